/* compiler.c - drives the toolkit's compiler: its command line, its time, and what it says.
 *
 * A compiler is known by its path, size and time of change; what it answers to --version and whether it knows the
 * language asc is asked once and kept in the cache (directory `compilers`), so that a warm start runs no program.
 * Its messages are read as clang writes them, `file:line:col: error: text`; one inside a header belongs to the first
 * line of the kernel that a following note names. */
#include "rt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CCE_STACK                                                                                                     \
  "-mllvm -cce-aicore-stack-size=0x8000 -mllvm -cce-aicore-function-stack-size=0x8000 "                               \
  "-mllvm -cce-aicore-record-overflow=true -mllvm -cce-aicore-addr-transform "                                        \
  "-mllvm -cce-aicore-dcci-insert-for-scalar=false"
#define LINK                                                                                                          \
  "-Wno-macro-redefined -Wno-ignored-attributes -lruntime -lstdc++ -lascendcl -lm -ltiling_api -lplatform -lc_sec "   \
  "-ldl -fPIC --shared"

static const struct { const char *target; int generation; const char *text; } flag_sets[] = {
#define FLAGS(target, generation, text) {target, generation, text},
#include "flags.def"
#undef FLAGS
};
static const struct { const char *name, *cce, *base; } families[] = {
#define FAMILY(name, cce, base) {name, cce, base},
#include "flags.def"
#undef FAMILY
};
static const char *const includes[] = {
#define INCLUDE(dir) dir,
#include "flags.def"
#undef INCLUDE
};

/* ---- its command line ------------------------------------------------------------------------------------------ */

/* {npu}, {cce} and {base} of a text for a chip. */
static const char *fill_in(Arena *a, const char *text, const char *family, const char *npu_arch) {
  const char *cce = "", *base = "";
  for (size_t i = 0; i < TL_COUNT(families); i++)
    if (!strcmp(families[i].name, family)) cce = families[i].cce, base = families[i].base;
  Text t;
  text_init(&t, a);
  for (const char *s = text; *s; s++) {
    const char *value = !strncmp(s, "{npu}", 5) ? npu_arch : !strncmp(s, "{cce}", 5) ? cce :
                        !strncmp(s, "{base}", 6) ? base : NULL;
    if (value) text_put(&t, value), s = strchr(s, '}');
    else text_putn(&t, s, 1);
  }
  return text_str(&t);
}

const char *rt_flags(Arena *a, const char *target, int generation, const char *family, const char *npu_arch) {
  for (size_t i = 0; i < TL_COUNT(flag_sets); i++)
    if (!strcmp(flag_sets[i].target, target) && flag_sets[i].generation == generation)
      return fill_in(a, flag_sets[i].text, family, npu_arch);
  return "";
}

const char *rt_link_flags(void) { return LINK; }

const char *rt_include_dirs(Arena *a) {
  Text t;
  text_init(&t, a);
  for (size_t i = 0; i < TL_COUNT(includes); i++) text_printf(&t, "%s%s", i ? " " : "", includes[i]);
  return text_str(&t);
}

char **rt_command(Arena *a, const Compiler *c, const Build *b) {
  Words w = {0};
  vec_push(a, &w, arena_str(a, c->path));
  rt_words(a, &w, rt_flags(a, b->target, c->generation, b->family, b->npu_arch));
  for (size_t i = 0; c->home && i < TL_COUNT(includes); i++) {
    const char *dir = arena_printf(a, "%s/%s", c->home, includes[i]);
    if (rt_exists(dir)) vec_push(a, &w, arena_printf(a, "-I%s", dir));
  }
  if (c->home) vec_push(a, &w, arena_printf(a, "-L%s/lib64", c->home));
  rt_words(a, &w, LINK);
  rt_words(a, &w, "kernel.cpp -o kernel.so");
  vec_push(a, &w, NULL);
  return w.data;
}

/* ---- which compiler -------------------------------------------------------------------------------------------- */

static bool ask(Arena *a, const Build *b, const char *dir, const char *const *words, const char **said) {
  const char *log = arena_printf(a, "%s/said", dir);
  Run r = {.argv = (char *const *)(uintptr_t)words, .dir = dir, .log = log, .seconds = 60, .go_on = b->go_on,
           .user = b->user};
  int code;
  bool ok = rt_run(&r, &code) == RUN_EXITED && !code;
  *said = rt_read(a, log, NULL);
  return ok;
}

/* What it answered, from the cache; NULL: nothing is there, or *damaged: not what was written. */
static const char *answers_in(Arena *a, const char *file, const char **damaged) {
  const char *text = rt_read(a, file, NULL), *sum = rt_value(a, text, "sum"), *rest = sum ? strchr(text, '\n') : NULL;
  if (!rest) return NULL;
  if (!strcmp(sum, rt_sha256(a, rest + 1, strlen(rest + 1)))) return rest + 1;
  *damaged = file;
  return NULL;
}

bool rt_compiler(Arena *a, const Toolkit *k, const Build *b, Compiler *out) {
  struct stat st;
  *out = (Compiler){.path = k->compiler, .home = k->home, .generation = 1};
  if (stat(k->compiler, &st)) return false;
  const char *id = arena_printf(a, "%s %lld %lld", k->compiler, (long long)st.st_size, (long long)st.st_mtime);
  const char *hash = rt_sha256(a, id, strlen(id)), *file = arena_printf(a, "%s/compilers/%s", b->cache_dir, hash);
  const char *known = NULL, *said = NULL;
  int held = -1;
  while (!(known = answers_in(a, file, &out->damaged)) && (held = rt_try_lock(a, b->cache_dir, hash)) < 0 &&
         errno == EWOULDBLOCK)
    nanosleep(&(struct timespec){0, 5000000}, NULL); /* somebody is asking it */
  if (!known) known = answers_in(a, file, &out->damaged);
  if (rt_value(a, known, "asc")) out->generation = 2;
  if ((out->version = rt_value(a, known, "version"))) return rt_unlock(held), true;

  const char *dir = arena_printf(a, "%s/tmp/%s-%ld", b->cache_dir, hash, (long)getpid());
  if (!rt_make_dirs(a, dir)) return rt_unlock(held), false;
  bool answers = ask(a, b, dir, (const char *const[]){k->compiler, "--version", NULL}, &said) && said && *said;
  if (answers) {
    out->version = arena_strn(a, said, strcspn(said, "\n"));
    rt_write(arena_printf(a, "%s/try.cpp", dir), "", 0);
    const char *npu = arena_printf(a, "--npu-arch=%s", b->npu_arch);
    if (ask(a, b, dir, (const char *const[]){k->compiler, "-xasc", npu, "-fsyntax-only", "try.cpp", NULL}, &said))
      out->generation = 2;
    const char *text = arena_printf(a, "version=%s\n%s", out->version, out->generation == 2 ? "asc=yes\n" : "");
    text = arena_printf(a, "sum=%s\n%s", rt_sha256(a, text, strlen(text)), text);
    const char *part = arena_printf(a, "%s/answers", dir); /* renamed, so that nobody reads half of it */
    if (rt_write(part, text, strlen(text))) rename(part, file);
  }
  rt_remove_tree(a, dir);
  rt_unlock(held);
  return answers;
}

/* ---- what it says ---------------------------------------------------------------------------------------------- */

/* `name:12:5: error: text` -> the parts; false: the line is no message. */
static bool read_message(Arena *a, const char *s, size_t len, CompilerMessage *m, bool *in_kernel, bool *is_note) {
  static const char *const kinds[] = {": fatal error: ", ": error: ", ": note: "};
  char *line = arena_strn(a, s, len);
  for (size_t i = 0; i < TL_COUNT(kinds); i++) {
    char *kind = strstr(line, kinds[i]);
    if (!kind) continue;
    *kind = 0;
    *is_note = i == 2;
    *m = (CompilerMessage){0, kind + strlen(kinds[i])};
    char *col = strrchr(line, ':'); /* path:line:col */
    if (col) *col = 0;
    char *row = col ? strrchr(line, ':') : NULL;
    if (row) *row = 0;
    const char *slash = strrchr(line, '/');
    *in_kernel = row && !strcmp(slash ? slash + 1 : line, "kernel.cpp");
    if (*in_kernel) m->line = atoi(row + 1);
    return true;
  }
  return false;
}

CompilerMessages rt_messages(Arena *a, const char *log) {
  CompilerMessages out = {0};
  for (const char *s = log; s && *s;) {
    size_t n = strcspn(s, "\n");
    CompilerMessage m;
    bool in_kernel, is_note;
    if (read_message(a, s, n, &m, &in_kernel, &is_note)) {
      CompilerMessage *last = out.len ? &out.data[out.len - 1] : NULL;
      if (!is_note) vec_push(a, &out, m);
      else if (in_kernel && last && !last->line) last->line = m.line;
    }
    s += n + (s[n] != 0);
  }
  return out;
}
