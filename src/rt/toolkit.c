/* toolkit.c - where the CANN toolkit is, and which one.
 *
 * The layout is that of the packages: <home>/{bin, compiler, include, lib64, <arch>-linux}. The version stands in
 * <home>/<arch>-linux/ascend_toolkit_install.info; where that is missing, in version.cfg beside it or in
 * compiler/version.info (files of CANN 8.1.RC1 and 8.5.0 read). From 8.5 on the usual place is Ascend/cann. */
#include "rt.h"

#include <string.h>
#include <sys/utsname.h>

static const char *const variables[] = {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME"};
static const char *const places[] = {"/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest",
                                     "~/Ascend/cann", "~/Ascend/ascend-toolkit/latest"};
static const char *const compiler_dirs[] = {"bin", "compiler/ccec_compiler/bin", "compiler/bin",
                                            "tools/bisheng_compiler/bin"};
static const char *const hosts[] = {"aarch64", "x86_64"};

/* dir/file of the first of some directories of a toolkit that has the file; NULL: none. */
static const char *first_there(Arena *a, const char *home, const char *const *dirs, size_t n, const char *file) {
  for (size_t i = 0; i < n; i++) {
    const char *path = arena_printf(a, "%s/%s/%s", home, dirs[i], file);
    if (rt_exists(path)) return path;
  }
  return NULL;
}

/* "[7.7.0.1.238:8.1.RC1]" -> "8.1.RC1" */
static const char *after_colon(Arena *a, const char *s) {
  const char *colon = s ? strchr(s, ':') : NULL;
  return colon ? arena_strn(a, colon + 1, strcspn(colon + 1, "]")) : NULL;
}

static void find_version(Arena *a, Toolkit *k) {
  struct utsname here;
  if (uname(&here)) here.machine[0] = 0;
  for (int pass = 0; pass < 2 && !k->arch; pass++)
    for (size_t i = 0; i < TL_COUNT(hosts) && !k->arch; i++) {
      if (pass == 0 && strcmp(hosts[i], here.machine)) continue; /* this machine's first */
      const char *dir = arena_printf(a, "%s/%s-linux", k->home, hosts[i]);
      if (!rt_exists(dir)) continue;
      k->arch = hosts[i];
      const char *info = rt_read(a, arena_printf(a, "%s/ascend_toolkit_install.info", dir), NULL);
      if (!info) continue;
      k->version = rt_value(a, info, "version");
      k->inner = rt_value(a, info, "innerversion");
      k->compatible = rt_value(a, info, "compatible_version");
    }
  if (k->version) return;
  k->version = after_colon(a, rt_value(a, rt_read(a, arena_printf(a, "%s/version.cfg", k->home), NULL),
                                       "toolkit_running_version"));
  if (k->version) return;
  k->version = rt_value(a, rt_read(a, arena_printf(a, "%s/compiler/version.info", k->home), NULL), "version_dir");
}

const char *rt_compiler_dirs(Arena *a, const char *before) {
  Text t;
  text_init(&t, a);
  for (size_t i = 0; i < TL_COUNT(compiler_dirs); i++)
    text_printf(&t, "%s%s%s", i ? " " : "", before, compiler_dirs[i]);
  return text_str(&t);
}

Toolkit rt_toolkit(Arena *a, const char *root) {
  Toolkit k = {0};
  for (size_t i = 0; i < TL_COUNT(variables) && !k.home; i++) {
    k.home = rt_env(variables[i]);
    k.from = k.home ? variables[i] : NULL;
  }
  for (size_t i = 0; i < TL_COUNT(places) && !k.home; i++) {
    const char *user = rt_env("HOME"), *path;
    if (places[i][0] == '~' && !user) continue;
    path = places[i][0] == '~' ? arena_printf(a, "%s%s%s", root, user, places[i] + 1)
                               : arena_printf(a, "%s%s", root, places[i]);
    if (rt_exists(path)) k.home = path;
  }
  if (k.home) {
    static const char *const library_dirs[] = {"lib64", "runtime/lib64"};
    find_version(a, &k);
    k.compiler = first_there(a, k.home, compiler_dirs, TL_COUNT(compiler_dirs), "bisheng");
    k.acl = first_there(a, k.home, library_dirs, TL_COUNT(library_dirs), "libascendcl.so");
  }
  if (!k.compiler && (k.compiler = rt_which(a, "bisheng"))) k.compiler_on_path = true;
  return k;
}
