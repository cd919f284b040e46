/* doctor.c - what a machine has on the way to a device, whether the versions go together, and what to do if not.
 *
 * Reads files only, except that it asks the compiler for its version, a Python for torch_npu, and the dynamic loader
 * whether the runtime library loads - "there, but does not load" is what a half set up shell has. The rules:
 *   driver and CANN     the driver's Innerversion is in the toolkit's compatible_version, or the other way round
 *   driver and firmware the firmware's Version lies in a range of the driver's compatible_version_fw
 *   parts of CANN       runtime and compiler have one version (version.cfg)
 *   torch_npu and CANN  torch_npu.def; torch_npu and torch have one version before ".post"
 * A version file that does not say what a rule needs leaves the rule out: nothing is guessed. */
#include "rt.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

typedef struct {
  Arena *a;
  const char *root;
  Findings *out;
  Toolkit kit;
  const char *driver_dir, *driver; /* the directory and the text of its version.info */
} Doctor;

static Finding *add(Doctor *d, const char *what, bool needed, const char *found, const char *where) {
  Finding f = {.what = what, .health = HEALTH_OK, .needed = needed, .found = found, .where = where};
  vec_push(d->a, d->out, f);
  return &d->out->data[d->out->len - 1];
}

static void ill(Finding *f, Health health, const char *text, const char *fix) {
  f->health = health;
  f->text = text;
  f->fix = fix;
}

/* ---- versions ----------------------------------------------------------------------------------------------- */

/* The release "V100R001C21" of an inner version "V100R001C21SPC001B238": up to the digits after C. */
static size_t release_len(const char *inner) {
  const char *c = strchr(inner, 'C');
  return c ? (size_t)(c - inner) + 1 + strspn(c + 1, "0123456789") : strlen(inner);
}

static bool listed(const char *list, const char *inner) {
  size_t n = release_len(inner);
  for (const char *s = list; (s = strchr(s, '[')); s++)
    if (!strncmp(s + 1, inner, n) && s[1 + n] == ']') return true;
  return false;
}

/* Compares dotted numbers; the text of a part counts as 0. */
static int compare(const char *x, const char *y) {
  while (*x || *y) {
    char *ex, *ey;
    long i = strtol(x, &ex, 10), j = strtol(y, &ey, 10);
    if (i != j) return i < j ? -1 : 1;
    x = ex + strcspn(ex, ".");
    y = ey + strcspn(ey, ".");
    x += *x == '.';
    y += *y == '.';
  }
  return 0;
}

/* Is v inside one of the ranges "[7.0.0,7.2.99],[…]"? */
static bool in_ranges(Arena *a, const char *ranges, const char *v) {
  for (const char *s = ranges; (s = strchr(s, '[')); s++) {
    const char *comma = s + 1 + strcspn(s + 1, ",]"), *end = s + strcspn(s, "]");
    if (*comma != ',') continue;
    const char *low = arena_strn(a, s + 1, (size_t)(comma - s - 1));
    const char *high = arena_strn(a, comma + 1, (size_t)(end - comma - 1));
    if (compare(low, v) <= 0 && compare(v, high) <= 0) return true;
  }
  return false;
}

/* ---- driver, firmware, devices ------------------------------------------------------------------------------- */

static void check_driver(Doctor *d) {
  const char *info = rt_read(d->a, arena_printf(d->a, "%s/etc/ascend_install.info", d->root), NULL);
  const char *base = rt_value(d->a, info, "Driver_Install_Path_Param");
  base = arena_printf(d->a, "%s%s", d->root, base ? base : "/usr/local/Ascend");
  d->driver_dir = arena_printf(d->a, "%s/driver", base);
  d->driver = rt_read(d->a, arena_printf(d->a, "%s/version.info", d->driver_dir), NULL);
  const char *version = rt_value(d->a, d->driver, "package_version");
  if (!version) version = rt_value(d->a, d->driver, "Version");
  Finding *f = add(d, "driver", true, version, d->driver ? d->driver_dir : NULL);
  if (!d->driver) {
    ill(f, HEALTH_MISSING, arena_printf(d->a, "there is no %s/version.info", d->driver_dir),
        "install the NPU driver of the card; in a container, map /usr/local/Ascend/driver into it");
    return;
  }
  const char *inner = rt_value(d->a, d->driver, "Innerversion");
  const char *list = rt_value(d->a, d->driver, "compatible_version");
  const Toolkit *k = &d->kit;
  if (!k->inner || !k->compatible || !inner || !list || listed(k->compatible, inner) || listed(list, k->inner)) return;
  ill(f, HEALTH_MISMATCH,
      arena_printf(d->a, "driver %s (%s) and CANN %s (%s) do not name each other as compatible", version, inner,
                   k->version, k->inner),
      arena_printf(d->a, "install a driver of one of the releases %s, or the CANN that belongs to this driver",
                   k->compatible));
}

static void check_firmware(Doctor *d) {
  const char *dir = arena_printf(d->a, "%.*sfirmware", (int)(strlen(d->driver_dir) - strlen("driver")), d->driver_dir);
  const char *info = rt_read(d->a, arena_printf(d->a, "%s/version.info", dir), NULL);
  const char *version = rt_value(d->a, info, "Version");
  const char *ranges = rt_value(d->a, d->driver, "compatible_version_fw");
  Finding *f = add(d, "firmware", false, version, info ? dir : NULL);
  if (!version)
    ill(f, HEALTH_MISSING, arena_printf(d->a, "there is no %s/version.info", dir),
        "inside a container that is usual: look on the host; else install the firmware that belongs to the driver");
  else if (ranges && !in_ranges(d->a, ranges, version))
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "the driver takes firmware %s, found %s", ranges, version),
        "install the firmware of the driver's package, then restart the machine");
}

static void check_devices(Doctor *d) {
  static const char *const others[] = {"davinci_manager", "devmm_svm", "hisi_hdc"};
  const char *dev = arena_printf(d->a, "%s/dev", d->root), *closed = NULL, *absent = NULL;
  int n = 0;
  DIR *dir = opendir(dev);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    const char *number = strncmp(e->d_name, "davinci", 7) ? "" : e->d_name + 7;
    if (!*number || number[strspn(number, "0123456789")]) continue;
    const char *path = arena_printf(d->a, "%s/%s", dev, e->d_name);
    n++;
    if (access(path, R_OK | W_OK) && (!closed || strcmp(path, closed) < 0)) closed = path;
  }
  if (dir) closedir(dir);
  for (size_t i = 0; n && i < TL_COUNT(others); i++) {
    const char *path = arena_printf(d->a, "%s/%s", dev, others[i]);
    if (!absent && !rt_exists(path)) absent = path;
    else if (!closed && access(path, R_OK | W_OK)) closed = path;
  }
  Finding *f = add(d, "devices", true, arena_printf(d->a, "%d", n), n ? arena_printf(d->a, "%s/davinci*", dev) : NULL);
  if (!n)
    ill(f, HEALTH_MISSING, arena_printf(d->a, "there is no %s/davinci0", dev),
        "load the driver (npu-smi info must list the cards); in a container: --device /dev/davinci0");
  else if (absent)
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "%d devices, but no %s", n, absent),
        arena_printf(d->a, "in a container add --device %s", absent + strlen(d->root)));
  else if (closed)
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "%s may not be read and written by this user", closed),
        "add the user to the group HwHiAiUser, or run as root");
}

/* ---- the toolkit ---------------------------------------------------------------------------------------------- */

static void check_parts(Doctor *d, Finding *f) {
  const char *cfg = rt_read(d->a, arena_printf(d->a, "%s/version.cfg", d->kit.home), NULL);
  const char *runtime = rt_value(d->a, cfg, "runtime_running_version");
  const char *compiler = rt_value(d->a, cfg, "compiler_running_version");
  if (runtime && compiler && strcmp(runtime, compiler))
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "its runtime is %s and its compiler %s", runtime, compiler),
        "install the whole toolkit of one version, or point ASCEND_HOME_PATH at one");
}

static void check_cann(Doctor *d) {
  const Toolkit *k = &d->kit;
  Finding *f = add(d, "CANN", true, k->version, k->home);
  struct utsname here;
  if (!k->home) {
    ill(f, HEALTH_MISSING, "no toolkit: ASCEND_HOME_PATH is not set, and the usual places are empty",
        "install the CANN toolkit (8.1.RC1 or newer), then: source /usr/local/Ascend/ascend-toolkit/set_env.sh");
  } else if (!rt_exists(k->home)) {
    ill(f, HEALTH_MISSING, arena_printf(d->a, "%s points at %s, which is not there", k->from, k->home),
        "correct the variable: source the set_env.sh of the toolkit");
  } else if (!k->version) {
    ill(f, HEALTH_MISMATCH, "it has none of the files that say its version",
        arena_printf(d->a, "is %s the toolkit's directory? It has <arch>-linux, compiler and lib64 in it", k->home));
  } else if (compare(k->version, "8.1") < 0) {
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "CANN %s is older than 8.1, whose API the kernels use", k->version),
        "install CANN 8.1.RC1 or newer");
  } else if (k->arch && !uname(&here) && strcmp(k->arch, here.machine)) {
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "it is made for %s, this machine is %s", k->arch, here.machine),
        arena_printf(d->a, "install the toolkit for %s", here.machine));
  } else {
    check_parts(d, f);
  }
}

static const char with_toolkit[] = "comes with the toolkit";

/* What a program says, its first line; NULL when it says nothing or fails. `words` ends with NULL. */
static const char *answer(Doctor *d, const char *const *words) {
  char log[] = "/tmp/tlc-doctor-XXXXXX";
  int fd = mkstemp(log), code;
  if (fd < 0) return NULL;
  close(fd);
  Run r = {.argv = (char *const *)(uintptr_t)words, .log = log, .seconds = 20};
  const char *said = rt_run(&r, &code) == RUN_EXITED && !code ? rt_read(d->a, log, NULL) : NULL;
  unlink(log);
  return said && *said ? arena_strn(d->a, said, strcspn(said, "\n")) : NULL;
}

static void check_compiler(Doctor *d) {
  const Toolkit *k = &d->kit;
  const char *version = k->compiler ? answer(d, (const char *const[]){k->compiler, "--version", NULL}) : NULL;
  Finding *f = add(d, "compiler", true, version, k->compiler);
  if (!k->compiler)
    ill(f, HEALTH_MISSING, k->home ? arena_printf(d->a, "there is no bisheng in %s", k->home) : with_toolkit,
        k->home ? "install the toolkit package, not only the runtime package (nnrt)" : NULL);
  else if (!version)
    ill(f, HEALTH_MISMATCH, "it does not run: `bisheng --version` fails",
        "is it made for this machine? source the toolkit's set_env.sh, then try it by hand");
  else if (k->compiler_on_path && k->home)
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "it is not part of %s", k->home),
        "point ASCEND_HOME_PATH at the toolkit that this bisheng belongs to");
}

static void check_headers(Doctor *d) {
  /* <arch>: the host's; kernel_operator.h stands in asc from CANN 8.5 on, before in tikcpp */
  static const struct { const char *name, *file, *dirs[4]; bool needed; const char *fix; } sets[] = {
      {"Ascend C headers", "kernel_operator.h",
       {"compiler/tikcpp/tikcfw", "<arch>-linux/tikcpp/tikcfw", "<arch>-linux/asc/include/basic_api",
        "<arch>-linux/ascendc/include/basic_api"}, true, "install the toolkit package; it brings them"},
      {"ACL headers", "acl/acl.h", {"include", "<arch>-linux/include"}, true,
       "install the toolkit package; it brings them"},
      {"PTO headers", "pto/pto-inst.hpp", {"include", "<arch>-linux/include"}, false,
       "if target=\"pto\" is wanted: put include/pto of the PTO tile library into the toolkit's include"}};
  for (size_t i = 0; i < TL_COUNT(sets); i++) {
    const char *there = NULL;
    for (size_t j = 0; d->kit.home && j < TL_COUNT(sets[i].dirs) && sets[i].dirs[j] && !there; j++) {
      const char *dir = sets[i].dirs[j], *arch = d->kit.arch ? d->kit.arch : "";
      bool by_arch = dir[0] == '<';
      const char *path = arena_printf(d->a, "%s/%s%s/%s", d->kit.home, by_arch ? arch : "", by_arch ? dir + 6 : dir,
                                      sets[i].file);
      if (rt_exists(path)) there = path;
    }
    Finding *f = add(d, sets[i].name, sets[i].needed, NULL, there);
    if (!there)
      ill(f, HEALTH_MISSING,
          d->kit.home ? arena_printf(d->a, "no %s in %s", sets[i].file, d->kit.home) : with_toolkit,
          d->kit.home ? sets[i].fix : NULL);
  }
}

static void check_runtime(Doctor *d) {
  const char *lib = d->kit.acl;
  Finding *f = add(d, "runtime library", true, NULL, lib);
  if (!lib) {
    ill(f, HEALTH_MISSING, d->kit.home ? arena_printf(d->a, "no libascendcl.so in %s", d->kit.home) : with_toolkit,
        d->kit.home ? "install the toolkit or the runtime package (nnrt)" : NULL);
    return;
  }
  void *handle = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
  if (handle) dlclose(handle);
  else
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "it does not load: %s", dlerror()),
        "source the toolkit's set_env.sh; libascend_hal.so comes with the driver: add "
        "/usr/local/Ascend/driver/lib64/driver to LD_LIBRARY_PATH");
}

/* ---- torch_npu ------------------------------------------------------------------------------------------------ */

static const char *cann_of(const char *torch_npu) {
  static const struct { const char *version, *cann; } known[] = {
#define TORCH_NPU(version, cann) {version, cann},
#include "torch_npu.def"
#undef TORCH_NPU
  };
  for (size_t i = 0; i < TL_COUNT(known); i++)
    if (!strcmp(known[i].version, torch_npu)) return known[i].cann;
  return NULL;
}

static void check_torch(Doctor *d, const char *python) {
  static const char ask[] = "import importlib.metadata as m\n"
                            "def v(n):\n"
                            "    try: return m.version(n)\n"
                            "    except m.PackageNotFoundError: return '-'\n"
                            "print(v('torch-npu'), v('torch'))";
  if (!python) python = rt_which(d->a, "python3");
  const char *said = python ? answer(d, (const char *const[]){python, "-c", ask, NULL}) : NULL;
  size_t n = said ? strcspn(said, " ") : 0;
  const char *npu = said && said[n] ? arena_strn(d->a, said, n) : "-", *torch = said && said[n] ? said + n + 1 : "-";
  bool there = strcmp(npu, "-") != 0;
  Finding *f = add(d, "torch_npu", false, there ? npu : NULL, there ? python : NULL);
  const char *cann = cann_of(npu);
  size_t base = strcspn(npu, "."), plain = strstr(npu, ".post") ? (size_t)(strstr(npu, ".post") - npu) : strlen(npu);
  if (!there)
    ill(f, HEALTH_MISSING, python ? arena_printf(d->a, "%s has no torch_npu", python) : "no python3 on PATH to ask",
        "pip install torch-npu, if torch tensors on the card are wanted; numpy and C do without");
  else if (base && (strncmp(npu, torch, plain) || (torch[plain] && torch[plain] != '+')))
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "torch_npu %s belongs to torch %.*s, found torch %s", npu, (int)plain,
                                         npu, torch),
        arena_printf(d->a, "pip install torch==%.*s", (int)plain, npu));
  else if (cann && d->kit.version && strcmp(cann, d->kit.version))
    ill(f, HEALTH_MISMATCH, arena_printf(d->a, "torch_npu %s was made for CANN %s, found CANN %s", npu, cann,
                                         d->kit.version),
        "install the torch_npu that was made for this CANN, or that CANN (table: README of torch_npu)");
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static bool healthy(const Findings *f) {
  for (uint32_t i = 0; i < f->len; i++)
    if (f->data[i].needed && f->data[i].health != HEALTH_OK) return false;
  return true;
}

bool rt_doctor(Arena *a, const char *root, const char *python, Findings *out) {
  Doctor d = {.a = a, .root = root, .out = out, .kit = rt_toolkit(a, root)};
  check_driver(&d);
  check_firmware(&d);
  check_devices(&d);
  check_cann(&d);
  check_compiler(&d);
  check_headers(&d);
  check_runtime(&d);
  check_torch(&d, python);
  return healthy(out);
}

static const char *const health_name[] = {"ok", "missing", "mismatch"};

void rt_doctor_text(Text *t, const Findings *f, const char *version) {
  text_printf(t, "tlc %s\n", version);
  for (uint32_t i = 0; i < f->len; i++) {
    const Finding *x = &f->data[i];
    text_printf(t, "%-9s %s", health_name[x->health], x->what);
    if (x->found) text_printf(t, " %s", x->found);
    if (x->where) text_printf(t, " (%s)", x->where);
    if (!x->needed && x->health != HEALTH_OK) text_put(t, ", optional");
    if (x->text) text_printf(t, ": %s", x->text);
    text_put(t, "\n");
    if (x->fix) text_printf(t, "%10sfix: %s\n", "", x->fix);
  }
  text_put(t, healthy(f) ? "kernels can be built and launched on this machine\n"
                         : "kernels cannot be built and launched on this machine; the simulator needs none of this "
                           "(device=\"sim\", the default)\n");
}

static void put(Text *t, const char *key, const char *value) {
  text_printf(t, ",\"%s\":", key);
  if (value) text_json(t, value);
  else text_put(t, "null");
}

void rt_doctor_json(Text *t, const Findings *f, const char *version) {
  text_put(t, "{\"tlc\":");
  text_json(t, version);
  text_printf(t, ",\"ready\":%s,\"findings\":[", healthy(f) ? "true" : "false");
  for (uint32_t i = 0; i < f->len; i++) {
    const Finding *x = &f->data[i];
    text_printf(t, "%s\n {\"what\":\"%s\",\"health\":\"%s\",\"needed\":%s", i ? "," : "", x->what,
                health_name[x->health], x->needed ? "true" : "false");
    put(t, "found", x->found);
    put(t, "where", x->where);
    put(t, "text", x->text);
    put(t, "fix", x->fix);
    text_put(t, "}");
  }
  text_put(t, "]}\n");
}
