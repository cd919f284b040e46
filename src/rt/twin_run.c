/* twin_run.c - the written Ascend C of a kernel, run on this host: compiled in the CPU-debug mode of the vendor with
 * headers of an installed toolkit, linked with our model of the hardware intrinsics (src/target/ascendc/twin; its
 * text is part of the library). Each core is a process; arguments go and come through files of a folder of its own. */
#include "rt.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const Loc nowhere = {0, 0, 0};

/* What a compiler must be told for the vendor's headers to stand for A2 on a host. */
static const char mode[] =
    "-D__CCE_AICORE__=220 -D__DAV_C220__=1 -D__CCE_KT_TEST__=1 -DASCENDC_CPU_DEBUG=1 -DASCENDC_DEBUG=1";

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* By the kernel's type, which of a block's cores run: cube, vector 0, vector 1. */
static const struct { const char *type, *cores; } kinds[] = {
    {"KERNEL_TYPE_MIX_AIC_1_2)", "true, true, true"}, {"KERNEL_TYPE_MIX_AIC_1_1)", "true, true, false"},
    {"KERNEL_TYPE_MIX_AIC_1_0)", "true, false, false"}, {"KERNEL_TYPE_MIX_AIV_1_0)", "false, true, false"},
    {"KERNEL_TYPE_AIC_ONLY)", "true, false, false"}, {"KERNEL_TYPE_AIV_ONLY)", "false, true, false"}};

/* The kernel of a written source, without its host part, and a main that runs it on what its folder holds. */
static const char *program(Arena *a, const TwinRun *r) {
  const Signature *s = r->signature;
  const char *host = strstr(r->source, "#ifndef __CCE_KT_TEST__"), *cores = kinds[0].cores;
  for (size_t i = 0; i < TL_COUNT(kinds); i++)
    if (strstr(r->source, kinds[i].type)) cores = kinds[i].cores;
  const char *name = strstr(r->source, "__aicore__ void "), *end = name ? strchr(name, '(') : NULL;
  if (!end) return NULL;
  name += strlen("__aicore__ void ");
  bool together = strstr(r->source, "SyncAll") || strstr(r->source, "CrossCoreSetFlag<0"); /* blocks wait for blocks */
  Text t, call;
  text_init(&t, a);
  text_init(&call, a);
  const char *body = strstr(r->source, "using namespace AscendC;"); /* behind the includes */
  if (!body) return NULL;
  text_putn(&t, r->source, (size_t)(body - r->source));
  text_put(&t, "#define DumpTensor(...) ((void)0) /* it needs the toolkit's own runtime */\n");
  text_putn(&t, body, host ? (size_t)(host - body) : strlen(body));
  text_put(&t, "\n#include \"driver.h\"\n\nint main(int, char **argv)\n{\n  TwinDriver twin(argv[1]);\n");
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = &s->param[i];
    if (rt_is_scalar(p->kind)) text_printf(&t, "  const auto %s = twin.scalar<%s>(%d);\n", p->name, p->type, i);
  }
  for (int i = 0; i < s->n; i++) {
    const LaunchedParam *p = &s->param[s->call[i]];
    text_printf(&call, "%s%s", i ? ", " : "", p->name);
    if (!rt_is_scalar(p->kind))
      text_printf(&t, "  uint8_t *%s = twin.tensor(\"%s\", %d, (%s) * %d, %d);\n", p->name, p->name, s->call[i],
                  p->elements, p->element_bytes, p->element_bytes);
  }
  if (strstr(r->source, "fftsAddr)")) text_put(&call, s->n ? ", 0" : "0");
  text_printf(&t, "  return twin.run(%s, {%s}, %s, [&] { %.*s(%s); });\n}\n", s->blocks, cores,
              together ? "true" : "false", (int)(end - name), name, text_str(&call));
  return text_str(&t);
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static const char *first_program(Arena *a, const char *variable, const char *const *names) {
  const char *found = rt_env(variable);
  if (found) return strchr(found, '/') ? found : rt_which(a, found);
  for (; *names && !found; names++) found = rt_which(a, *names);
  return found;
}

static bool ran(Arena *a, Diags *d, const TwinRun *r, const char *dir, const char *program_path, Words *w,
                const char *what) {
  const char *log = arena_printf(a, "%s/log", dir);
  int code = 0;
  vec_push(a, w, NULL);
  Run run = {w->data, dir, log, r->seconds, r->go_on, r->user};
  RunEnd end = rt_run(&run, &code);
  if (end == RUN_EXITED && !code) return true;
  const char *said = rt_read(a, log, NULL);
  size_t len = said ? strlen(said) : 0;
  const char *how = end == RUN_EXITED ? arena_printf(a, "ended with %d", code)
                    : end == RUN_KILLED ? arena_printf(a, "was killed by signal %d", code)
                    : end == RUN_TIMEOUT ? arena_printf(a, "did not end in %d s", r->seconds)
                    : end == RUN_STOPPED ? "was interrupted" : strerror(code);
  diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "%s: %s %s%s%s", what, program_path, how, len ? ":\n" : "",
           len > 4000 ? said + len - 4000 : len ? said : "");
  return false;
}

/* The include folders of a toolkit as compiler options; NULL after a diagnostic. */
static const char *includes(Arena *a, Diags *d) {
  Toolkit k = rt_toolkit(a, "");
  if (!k.home) {
    Diag *g = diag_add(d, DIAG_RT_NO_TOOLKIT, nowhere, "the twin needs the headers of a toolkit and there is none");
    diag_fix(d, g, "set ASCEND_HOME_PATH (source set_env.sh of CANN); the simulator needs none");
    return NULL;
  }
  const char *stub = arena_printf(a, "%s/tools/tikicpulib/lib/include", k.home);
  const char *api = arena_printf(a, "%s/%s-linux/ascendc/include", k.home, k.arch ? k.arch : "*");
  const char *needed[] = {arena_printf(a, "%s/stub_fun.h", stub), arena_printf(a, "%s/basic_api", api)};
  for (size_t i = 0; i < TL_COUNT(needed); i++)
    if (!rt_exists(needed[i])) {
      Diag *g = diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "there is no %s", needed[i]);
      diag_fix(d, g, "the twin knows the layout of toolkit 8.1; point ASCEND_HOME_PATH at one");
      return NULL;
    }
  return arena_printf(a, "-I%s -I%s/basic_api -I%s/basic_api/interface -I%s/basic_api/impl -I%s -I%s/highlevel_api "
                      "-I%s/highlevel_api/lib -I%s/%s-linux/include", stub, api, api, api, api, api, api, k.home,
                      k.arch ? k.arch : "*");
}

static bool compile(Arena *a, Diags *d, const TwinRun *r, const char *dir) {
  static const char *const c_names[] = {"cc", "gcc", "clang", NULL};
  static const char *const cxx_names[] = {"c++", "g++", "clang++", NULL};
  const char *dirs = includes(a, d);
  if (!dirs) return false;
  const char *cc = first_program(a, "CC", c_names), *cxx = first_program(a, "CXX", cxx_names);
  if (!cc || !cxx) {
    Diag *g = diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "there is no %s compiler on PATH", cc ? "C++" : "C");
    diag_fix(d, g, "install g++, or name one by CC and CXX");
    return false;
  }
  const char *sources = "", *objects = ""; /* the model: those in C */
  for (const TwinFile *f = twin_files; f->name; f++) {
    size_t n = strlen(f->name);
    if (n < 2 || strcmp(f->name + n - 2, ".c")) continue;
    sources = arena_printf(a, "%s %s", sources, f->name);
    objects = arena_printf(a, "%s %.*so", objects, (int)n - 1, f->name);
  }
  const struct { const char *path, *options; } steps[] = {
      {cc, arena_printf(a, "-std=gnu17 -O2 -c%s", sources)},
      {cxx, arena_printf(a, "-std=c++17 -O1 -w %s -I. %s kernel.cpp glue.cpp%s -o kernel -lpthread -lm", mode, dirs,
                         objects)}};
  for (size_t i = 0; i < TL_COUNT(steps); i++) {
    Words w = {0};
    vec_push(a, &w, arena_str(a, steps[i].path));
    rt_words(a, &w, steps[i].options);
    if (!ran(a, d, r, dir, steps[i].path, &w, "the written source does not compile with this toolkit")) return false;
  }
  return true;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static bool write_files(Arena *a, Diags *d, const TwinRun *r, const char *dir) {
  bool ok = true;
  for (const TwinFile *f = twin_files; f->name && ok; f++)
    ok = rt_write(arena_printf(a, "%s/%s", dir, f->name), f->text, strlen(f->text));
  const char *text = program(a, r);
  ok = ok && text && rt_write(arena_printf(a, "%s/kernel.cpp", dir), text, strlen(text));
  for (int i = 0; i < r->signature->n && ok; i++) {
    bool scalar = rt_is_scalar(r->signature->param[i].kind);
    const void *data = scalar ? &r->slot[i] : (const void *)(uintptr_t)r->slot[i];
    if (data) ok = rt_write(arena_printf(a, "%s/%d.in", dir, i), data, scalar ? sizeof r->slot[i] : r->bytes[i]);
  }
  if (!ok) diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "%s: %s", dir, strerror(errno));
  return ok;
}

static bool read_back(Arena *a, Diags *d, const TwinRun *r, const char *dir) {
  for (int i = 0; i < r->signature->n; i++) {
    if (rt_is_scalar(r->signature->param[i].kind) || !r->slot[i]) continue;
    size_t len = 0;
    const char *path = arena_printf(a, "%s/%d.out", dir, i), *bytes = rt_read(a, path, &len);
    if (!bytes || len != r->bytes[i]) {
      diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "%s holds %zu bytes, %%%s has %zu", path, bytes ? len : 0,
               r->signature->param[i].name, r->bytes[i]);
      return false;
    }
    memcpy((void *)(uintptr_t)r->slot[i], bytes, len);
  }
  return true;
}

/* What the twin found, a line each, in DIR/faults. */
static bool report(Arena *a, Diags *d, const char *dir) {
  const char *s = rt_read(a, arena_printf(a, "%s/faults", dir), NULL);
  bool clean = !s || !*s;
  for (size_t n; s && *s; s += n + (s[n] != 0)) {
    n = strcspn(s, "\n");
    diag_add(d, DIAG_RT_TWIN_FAULT, nowhere, "%.*s", (int)n, s);
  }
  return clean;
}

bool rt_twin(Arena *a, Diags *d, const TwinRun *r) {
  const Signature *s = r->signature;
  if (!strcmp(s->family, "a5")) {
    Diag *g = diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "the model is of A2 and A3, @%s is for %s", s->kernel, s->chip);
    diag_fix(d, g, "compile it for one of those: chip=\"910B2\", --chip 910B2");
    return false;
  }
  const char *tmp = rt_env("TMPDIR");
  char *dir = arena_printf(a, "%s/tilelang-twin-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(dir)) {
    diag_add(d, DIAG_RT_TWIN_TOOLS, nowhere, "%s: %s", dir, strerror(errno));
    return false;
  }
  bool ok = write_files(a, d, r, dir) && compile(a, d, r, dir);
  if (ok) {
    Words w = {0};
    vec_push(a, &w, arena_printf(a, "%s/kernel", dir));
    vec_push(a, &w, dir);
    ok = ran(a, d, r, dir, "kernel", &w, "the twin did not come to its end") && read_back(a, d, r, dir);
    ok = report(a, d, dir) && ok;
  }
  if (!rt_env("TILELANG_TWIN_KEEP")) rt_remove_tree(a, dir);
  return ok;
}
