/* api_build.c - written C++, built, exported and launched; the twin; what the machine has. */
#include "api/api.h"

#include "rt/rt.h"
#include "target/target.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---------------------------------------------------------------------------------------------- */

const char *tl_target_at(int i) { return target_at(i) ? target_at(i)->name : NULL; }

const char *tl_emit(TlContext *c, const char *target) {
  ENTER(c, false, NULL);
  if (!api_lowered(c, "writing source")) return NULL;
  const Target *writer = target_find(target);
  if (!writer) {
    Text t;
    text_init(&t, &c->arena);
    for (int i = 0; target_at(i); i++) text_printf(&t, "%s%s", i ? ", " : "", target_at(i)->name);
    Diag *g = diag_add(&c->diags, DIAG_NO_SUCH_TARGET, (Loc){0, 0, 0}, "there is no target '%s'", target);
    diag_fix(&c->diags, g, "use one of auto, %s", text_str(&t));
    return NULL;
  }
  Text out;
  text_init(&out, &c->arena);
  uint32_t before = c->diags.n_errors;
  if (!writer->emit(&c->arena, &c->diags, c->module->kernel, c->arch, &out) || c->diags.n_errors != before) return NULL;
  return text_str(&out);
}

/* ---- building, exporting, launching ----------------------------------------------------------------------- */

/* What the runtime says has no place; it belongs to the kernel. */
static void place_new(TlContext *c, uint32_t from) {
  for (uint32_t i = from; c->module && i < c->diags.list.len; i++)
    if (!c->diags.list.data[i].loc.line) c->diags.list.data[i].loc = c->module->kernel->loc;
}

static char kind_of(const IrParam *p) {
  if (p->buf) return p->buf->is_work ? KIND_WORKSPACE : KIND_TENSOR;
  return dtype_is_float(p->var->type) ? KIND_FLOAT : KIND_INT;
}

/* The launch of the lowered program, for src/rt. */
static bool signature(TlContext *c, const Target *target, Signature *out) {
  const IrKernel *k = c->module->kernel;
  LaunchParam *list;
  *out = (Signature){.kernel = k->name, .chip = c->arch->name, .family = c->arch->family,
                     .file = api_file_of(c, k->loc), .npu_arch = c->arch->npu_arch, .target = target->name,
                     .version = tl_version(), .line = (int)k->loc.line, .n = (int)k->params.len};
  if (out->n > MAX_PARAMS) {
    diag_add(&c->diags, DIAG_LIMIT, k->loc, "@%s has %d parameters; a launch takes %d", k->name, out->n, MAX_PARAMS);
    return false;
  }
  if (target_launch(&c->arena, &c->diags, k, c->arch, &list, &out->blocks) < 0) return false;
  LaunchedParam *param = arena_array(&c->arena, LaunchedParam, out->n + 1);
  int *call = arena_array(&c->arena, int, out->n + 1);
  for (int i = 0; i < out->n; i++) {
    const LaunchParam *p = &list[i];
    const IrBuf *b = p->param->buf;
    DType t = b ? b->type : p->param->var->type;
    call[i] = p->index;
    param[p->index] = (LaunchedParam){p->name, p->type, dtype_info[t].name, kind_of(p->param), b && b->is_out,
                                      dtype_size(t), b ? b->rank : 0, p->extent, p->elements};
  }
  out->param = param;
  out->call = call;
  return true;
}

/* Source, IR text and signature of the lowered program for a target. */
static const char *ready_to_build(TlContext *c, const char *target, const char **ir, Signature *s) {
  const char *source = tl_emit(c, target);
  if (!source) return NULL;
  *ir = api_print(c, c->module);
  return signature(c, target_find(target), s) ? source : NULL;
}

int tl_export(TlContext *c, const char *target, const char *dir) {
  const char *ir;
  Signature s;
  ENTER(c, false, 0);
  const char *source = ready_to_build(c, target, &ir, &s);
  ENTER(c, false, 0); /* tl_emit has an entry of its own */
  uint32_t before = c->diags.list.len;
  if (source && rt_export(&c->arena, &c->diags, &s, source, ir, dir)) return 1;
  place_new(c, before);
  return 0;
}

/* The Python line of a line of the source: the last comment `// file:line` above it. */
static Loc loc_of_source_line(const TlContext *c, const char *source, int line) {
  Loc found = c->module->kernel->loc;
  for (int n = 1; *source && n <= line; n++) {
    size_t len = strcspn(source, "\n"), blank = strspn(source, " ");
    const char *name = source + blank + 3, *end = source + len, *colon = end;
    while (colon > name && *colon != ':') colon--;
    if (!strncmp(source + blank, "// ", 3) && colon > name)
      for (uint32_t f = 1; f < c->module->files.len; f++) {
        const char *file = c->module->files.data[f], *slash = strrchr(file, '/');
        file = slash ? slash + 1 : file;
        if (strlen(file) != (size_t)(colon - name) || strncmp(file, name, (size_t)(colon - name))) continue;
        found = (Loc){(uint32_t)strtoul(colon + 1, NULL, 10), 1, (uint16_t)f};
      }
    source += len + (source[len] != 0);
  }
  return found;
}

static void report_messages(TlContext *c, const Built *b, const char *source) {
  for (uint32_t i = 0; i < b->messages.len; i++) {
    const CompilerMessage *m = &b->messages.data[i];
    Diag *g = diag_add(&c->diags, DIAG_RT_COMPILER, loc_of_source_line(c, source, m->line), "%s%s", m->text,
                       m->line ? arena_printf(&c->arena, " (line %d of kernel.cpp)", m->line) : "");
    diag_fix(&c->diags, g, "kernel.cpp, its command and what %s said are in %s", b->compiler, b->kept);
  }
}

/* What a variable of the environment says, `most` if that is more; `given` where the caller says it, `otherwise` where
 * nobody does. */
static int64_t number_from(TlContext *c, DiagCode code, const char *name, int64_t most, int64_t given,
                           int64_t otherwise) {
  const char *text = given ? NULL : rt_env(name);
  char *end = NULL;
  int64_t v = text ? strtoll(text, &end, 10) : given ? given : otherwise;
  if (!text || (v > 0 && end != text && !*end)) return min_i64(v, most);
  Diag *g = diag_add(&c->diags, code, (Loc){0, 0, 0}, "%s is '%s', no number greater than 0", name, text);
  diag_fix(&c->diags, g, "%s=%lld, which holds without it", name, (long long)otherwise);
  return 0;
}

int tl_build(TlContext *c, const TlBuild *opt, TlBuilt *out) {
  const char *ir;
  Signature s;
  *out = (TlBuilt){0};
  ENTER(c, false, 0);
  const char *source = ready_to_build(c, opt ? opt->target : NULL, &ir, &s);
  ENTER(c, false, 0);
  if (!source) return 0;
  static const TlBuild defaults = {0};
  const TlBuild *o = opt ? opt : &defaults;
  uint32_t before = c->diags.list.len;
  int64_t seconds = number_from(c, DIAG_RT_COMPILER_TIME, "TILELANG_BUILD_SECONDS", INT32_MAX, o->seconds, 600);
  Build b = {.name = s.kernel, .source = rt_shim(&c->arena, &s, source), .ir = ir, .target = s.target,
             .family = s.family, .npu_arch = s.npu_arch, .fresh = o->fresh, .go_on = o->go_on, .user = o->user,
             .cache_dir = o->cache_dir ? o->cache_dir : rt_cache_dir(&c->arena),
             .cache_bytes = number_from(c, DIAG_RT_CACHE, "TILELANG_CACHE_BYTES", INT64_MAX, o->cache_bytes, 1 << 30),
             .seconds = (int)seconds};
  Built built = {0};
  bool ok = b.cache_bytes && b.seconds && rt_build(&c->arena, &c->diags, &b, &built);
  report_messages(c, &built, b.source);
  place_new(c, before);
  *out = (TlBuilt){built.library, built.key, built.cached};
  return ok;
}

int tl_twin(TlContext *c, const TlArg *args, int n_args, const TlTwin *opt) {
  const char *ir;
  Signature s;
  ENTER(c, false, 0);
  const char *source = ready_to_build(c, "ascendc", &ir, &s);
  ENTER(c, false, 0);
  SimArg *in = source ? api_run_args(c, "the twin", args, n_args, true) : NULL;
  if (!in) return 0;
  uint64_t *slot = arena_array(&c->scratch, uint64_t, s.n + 1);
  size_t *bytes = arena_array(&c->scratch, size_t, s.n + 1);
  for (int i = 0; i < s.n; i++) {
    float f = (float)in[i].scalar.f;
    if (s.param[i].kind == KIND_INT) slot[i] = (uint64_t)in[i].scalar.i;
    else if (s.param[i].kind == KIND_FLOAT) memcpy(&slot[i], &f, sizeof f);
    else slot[i] = i < n_args ? (uint64_t)(uintptr_t)args[i].data : 0;
    bytes[i] = (size_t)s.param[i].element_bytes;
    for (int d = 0; d < s.param[i].rank; d++) bytes[i] *= (size_t)in[i].shape[d];
  }
  static const TlTwin defaults = {0};
  const TlTwin *o = opt ? opt : &defaults;
  TwinRun run = {&s, source, slot, bytes, o->seconds ? o->seconds : 600, o->go_on, o->user};
  uint32_t before = c->diags.list.len;
  bool ok = rt_twin(&c->scratch, &c->diags, &run);
  place_new(c, before);
  return ok;
}

/* TlDevice and TlKernel are what src/rt has under other names. */
TlDevice *tl_device_open(TlContext *c) {
  ENTER(c, false, NULL);
  uint32_t before = c->diags.list.len;
  Device *d = rt_device_open(&c->arena, &c->diags);
  place_new(c, before);
  return (TlDevice *)d;
}

void tl_device_close(TlDevice *d) { rt_device_close((Device *)d); }
int tl_device_count(const TlDevice *d) { return rt_device_count((const Device *)d); }

const char *tl_device_chip(const TlDevice *d) {
  const char *said = rt_device_chip((const Device *)d), *best = NULL;
  if (!said) return NULL;
  if (!strncmp(said, "Ascend", 6)) said += 6;
  for (int i = 0; arch_at(i); i++) { /* the longest name that it begins with; an x stands for any digit */
    const char *name = arch_at(i)->name;
    size_t n = 0;
    while (name[n] && (name[n] == said[n] || (name[n] == 'x' && said[n] >= '0' && said[n] <= '9'))) n++;
    if (!name[n] && (!best || n > strlen(best))) best = name;
  }
  return best;
}

int tl_device_wait(TlContext *c, TlDevice *d, int device, void *stream) {
  ENTER(c, false, 0);
  return rt_wait((Device *)d, &c->diags, device, stream);
}

TlKernel *tl_kernel_open(TlContext *c, TlDevice *d, const char *library) {
  ENTER(c, false, NULL);
  if (!api_lowered(c, "launching")) return NULL;
  const IrKernel *k = c->module->kernel;
  const char *chip = tl_device_chip(d);
  const Arch *there = chip ? arch_find(chip) : c->arch;
  if (strcmp(there->npu_arch, c->arch->npu_arch)) {
    Diag *g = diag_add(&c->diags, DIAG_RT_CHIP, k->loc, "@%s is made for %s, the device is a %s", k->name,
                       c->arch->name, chip);
    diag_fix(&c->diags, g, "compile it with chip=\"%s\"", chip);
    return NULL;
  }
  char *kinds = arena_alloc(&c->arena, k->params.len + 1, 1);
  for (uint32_t i = 0; i < k->params.len; i++) kinds[i] = kind_of(&k->params.data[i]);
  uint32_t before = c->diags.list.len;
  DeviceKernel *made = rt_kernel_open(&c->arena, &c->diags, (Device *)d,
                                      &(LoadKernel){library, k->name, api_file_of(c, k->loc), (int)k->loc.line, kinds});
  place_new(c, before);
  return (TlKernel *)made;
}

void tl_kernel_close(TlKernel *k) { rt_kernel_close((DeviceKernel *)k); }

/* The arguments as slots; workspaces at the end may be missing. */
static bool fill_slots(TlContext *c, const char *kinds, const TlArg *args, int n_args, uint64_t *slot) {
  int n = (int)strlen(kinds);
  if (n_args > n || (n_args < n && kinds[n_args] != KIND_WORKSPACE)) {
    diag_add(&c->diags, DIAG_BAD_ARGUMENT, (Loc){0, 0, 0}, "the kernel takes %d arguments, %d are given", n, n_args);
    return false;
  }
  for (int i = 0; i < n_args; i++) {
    float f = (float)args[i].scalar.f;
    if (kinds[i] == KIND_INT) slot[i] = (uint64_t)args[i].scalar.i;
    else if (kinds[i] == KIND_FLOAT) memcpy(&slot[i], &f, sizeof f);
    else slot[i] = (uint64_t)(uintptr_t)args[i].data;
  }
  return true;
}

int tl_launch(TlContext *c, TlKernel *k, const TlArg *args, int n_args, const TlLaunch *opt) {
  uint64_t slot[MAX_PARAMS] = {0};
  LaunchKernel l = {slot, opt->device, opt->stream, opt->host, opt->blocking, opt->fresh, opt->read_only, opt->file,
                    opt->line};
  ENTER(c, false, 0);
  return fill_slots(c, rt_kernel_kinds((DeviceKernel *)k), args, n_args, slot) &&
         rt_launch((DeviceKernel *)k, &c->diags, &l);
}

/* ---- the machine ------------------------------------------------------------------------------------------ */

const char *tl_doctor(TlContext *c, const TlDoctor *opt, int json, int *ready) {
  ENTER(c, false, NULL);
  Findings found = {0};
  Text t;
  text_init(&t, &c->arena);
  bool ok = rt_doctor(&c->arena, opt && opt->root ? opt->root : "", opt ? opt->python : NULL, &found);
  if (ready) *ready = ok;
  (json ? rt_doctor_json : rt_doctor_text)(&t, &found, tl_version());
  return text_str(&t);
}

const char *tl_page(const char *code) {
  for (const DiagPage *p = diag_pages; code && p->code; p++)
    if (!strcmp(p->code, code)) return p->text;
  return NULL;
}
