/* api.c - implements tilelang.h; the only file that sees every folder.
 *
 * A context owns one arena. tl_load drops it whole and starts again, so everything a call returns lives until then.
 * Each public function that may allocate begins with ENTER: when the host refuses memory, the arena jumps back there
 * and the function fails. `no_memory` then stands for the diagnostic TL0001, which needs no memory to be shown; a
 * program that was being changed at that moment is dropped. */
#include "tilelang.h"

#include "cost/cost.h"
#include "pass/pass.h"
#include "rt/rt.h"
#include "sim/sim.h"
#include "target/target.h"

#include <stdlib.h>
#include <string.h>

#ifndef TL_VERSION
#define TL_VERSION "0.1.0"
#endif

typedef struct { const char *pass, *text; double seconds; } Stage;

struct TlContext {
  TlAlloc host;
  bool has_host;
  jmp_buf oom;
  bool no_memory;
  Arena arena;
  Arena scratch; /* of one simulation */
  SimTime *time; /* the last timed run; in scratch */
  Arena recorded;
  const SimValues *values; /* of the last run with `record`, in `recorded`; NULL: none */
  Diags diags;
  const char *name, *text; /* what tl_load was given */
  size_t len;
  IrModule *module;        /* NULL: nothing loaded */
  bool valid;              /* it keeps the rules, and no pass failed */
  bool begun;              /* tl_lower has changed the program */
  const Arch *arch;        /* the chip it was lowered for */
  PassCtx pass;
  Vec(Stage) stages;
  bool keep_text, verify_each;
  SimResult ran; /* the last simulation; its prints are in scratch */
};

/* Memory ran out while the program changed: it is gone; while only text was made: it stays. */
#define ENTER(c, drop, failed)                                                                                       \
  do {                                                                                                               \
    if (setjmp((c)->oom)) {                                                                                          \
      (c)->no_memory = true;                                                                                         \
      if (drop) (c)->module = NULL;                                                                                  \
      return failed;                                                                                                 \
    }                                                                                                                \
  } while (0)

/* ---- life ------------------------------------------------------------------------------------------------- */

static void reset(TlContext *c) {
  Arena *all[] = {&c->arena, &c->scratch, &c->recorded};
  for (int i = 0; i < 3; i++) {
    arena_free(all[i]);
    arena_init(all[i], c->has_host ? &c->host : NULL, &c->oom);
  }
  c->values = NULL;
  diags_init(&c->diags, &c->arena);
  memset(&c->stages, 0, sizeof c->stages);
  memset(&c->pass, 0, sizeof c->pass);
  memset(&c->ran, 0, sizeof c->ran);
  c->no_memory = c->begun = c->valid = false;
  c->module = NULL;
  c->time = NULL;
  c->arch = NULL;
  c->name = c->text = "";
  c->len = 0;
}

TlContext *tl_open(void *(*alloc)(void *user, void *old, size_t size), void *user) {
  TlContext *c = alloc ? alloc(user, NULL, sizeof *c) : malloc(sizeof *c);
  if (!c) return NULL;
  memset(c, 0, sizeof *c);
  c->has_host = alloc != NULL;
  c->host = (TlAlloc){alloc, user};
  arena_init(&c->arena, c->has_host ? &c->host : NULL, &c->oom);
  reset(c);
  return c;
}

void tl_close(TlContext *c) {
  if (!c) return;
  arena_free(&c->arena);
  arena_free(&c->scratch);
  arena_free(&c->recorded);
  if (c->has_host) c->host.alloc(c->host.user, c, 0);
  else free(c);
}

const char *tl_version(void) { return TL_VERSION; }

/* ---- text in, text out ------------------------------------------------------------------------------------ */

static const char *chip_names(TlContext *c) {
  Text t;
  text_init(&t, &c->arena);
  for (int i = 0; arch_at(i); i++) text_printf(&t, "%s%s", i ? ", " : "", arch_at(i)->name);
  return text_str(&t);
}

static const Arch *find_chip(TlContext *c, const char *chip) {
  const Arch *arch = arch_find(chip);
  if (arch) return arch;
  Loc loc = c->module ? c->module->kernel->loc : (Loc){0, 0, 0};
  Diag *g = diag_add(&c->diags, DIAG_NO_SUCH_CHIP, loc, "there is no chip '%s'", chip);
  diag_fix(&c->diags, g, "use one of %s", chip_names(c));
  return NULL;
}

int tl_load(TlContext *c, const char *name, const char *text, size_t len) {
  reset(c);
  ENTER(c, true, 0);
  c->name = arena_str(&c->arena, name ? name : "");
  c->text = arena_strn(&c->arena, text ? text : "", text ? len : 0);
  c->len = text ? len : 0;
  IrModule *m = ir_parse(&c->arena, &c->diags, c->name, c->text, c->len);
  c->module = m;
  if (!m || !pass_verify(m, &c->diags)) return 0;
  if (m->kernel->level == LEVEL_LOWERED && !(c->arch = find_chip(c, m->kernel->chip))) return 0;
  return c->valid = true;
}

/* Is there a program that keeps the rules? */
static bool loaded(TlContext *c, const char *call) {
  if (c->module && c->valid) return true;
  diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, c->module ? "%s needs a program without errors"
                                                                  : "%s needs a program: load one first", call);
  return false;
}

static bool lowered(TlContext *c, const char *call) {
  if (!loaded(c, call)) return false;
  if (c->module->kernel->level == LEVEL_LOWERED) return true;
  const IrKernel *k = c->module->kernel;
  Diag *g = diag_add(&c->diags, DIAG_WRONG_STAGE, k->loc, "%s needs a lowered program; @%s is not lowered%s", call,
                     k->name, c->begun ? " to the end" : "");
  diag_fix(&c->diags, g, "run all passes first");
  return false;
}

static const char *print_module(TlContext *c, const IrModule *m) {
  Text t;
  text_init(&t, &c->arena);
  ir_print(&t, m);
  return text_str(&t);
}

const char *tl_text(TlContext *c) {
  ENTER(c, false, NULL);
  if (c->module) return print_module(c, c->module);
  loaded(c, "the text");
  return NULL;
}

/* ---- lowering --------------------------------------------------------------------------------------------- */

static const char *pass_names(TlContext *c) {
  Text t;
  text_init(&t, &c->arena);
  for (int i = 0; i < pass_count; i++) text_printf(&t, "%s%s", i ? ", " : "", pass_table[i].name);
  return text_str(&t);
}

static bool is_pass(const char *name) {
  for (int i = 0; i < pass_count; i++)
    if (!strcmp(pass_table[i].name, name)) return true;
  return false;
}

static void no_such_pass(TlContext *c, const char *name) {
  Diag *g = diag_add(&c->diags, DIAG_NO_SUCH_PASS, (Loc){0, 0, 0}, "there is no pass '%s'", name);
  diag_fix(&c->diags, g, "use one of %s", pass_names(c));
}

/* Reads the printed text back and prints it again: both must be one. */
static bool rereads(TlContext *c, const char *pass, const char *text) {
  Diags d;
  diags_init(&d, &c->arena);
  IrModule *m = ir_parse(&c->arena, &d, c->name, text, strlen(text));
  if (m && !strcmp(print_module(c, m), text)) return true;
  diag_add(&c->diags, DIAG_INTERNAL, c->module->kernel->loc, "the text after pass '%s' does not read back%s%s", pass,
           d.list.len ? ": " : "", d.list.len ? d.list.data[0].text : "");
  return false;
}

static bool observe(const Pass *done, PassCtx *p, double seconds, void *user) {
  TlContext *c = user;
  (void)p;
  Stage s = {done->name, NULL, seconds};
  if (c->keep_text || c->verify_each) s.text = print_module(c, c->module);
  vec_push(&c->arena, &c->stages, s);
  return !c->verify_each || rereads(c, done->name, s.text);
}

/* ---- print and assert never change a program: it is lowered without them too, and must be the same ---------- */

/* The module's text with its prints dropped; the module is left as it is. */
static const char *text_without_says(TlContext *c) {
  Diags d;
  diags_init(&d, &c->arena);
  const char *text = print_module(c, c->module);
  IrModule *m = ir_parse(&c->arena, &d, c->name, text, strlen(text));
  if (!m) return text;
  ir_drop_says(m->kernel);
  return print_module(c, m);
}

/* Puts the program of a text in place of the module. */
static bool put_text(TlContext *c, PassCtx *p, const char *text) {
  IrModule *m = ir_parse(&c->arena, p->diags, c->name, text, strlen(text));
  if (!m || !ir_verify(m, p->diags)) return false;
  p->module = m;
  p->k = m->kernel;
  return true;
}

/* Lowers a program with prints. What the passes make of it must be what they make of `source`, its text without them;
 * otherwise it is lowered without them, and the user is told. */
static bool lower_says(TlContext *c, const TlLower *o, const char *source) {
  PassCtx fresh = c->pass, plain = c->pass;
  uint32_t before = c->diags.n_errors, known = c->diags.list.len;
  Diags unseen;
  diags_init(&unseen, &c->arena);
  plain.diags = &unseen;
  bool other = put_text(c, &plain, source) && pass_run_all(&plain, o->last, NULL, NULL);
  bool ok = pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
  if (!other || (ok && !strcmp(text_without_says(c), print_module(c, plain.module)))) return ok;
  c->diags.n_errors = before;
  c->diags.list.len = known;
  c->stages.len = 0;
  c->pass = fresh;
  if (!put_text(c, &c->pass, source)) return false;
  c->module = c->pass.module;
  diag_add(&c->diags, DIAG_SAY_LEFT_OUT, c->pass.k->loc,
           "the prints of this kernel are left out: with them the compiler would make another program");
  return pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
}

int tl_lower(TlContext *c, const TlLower *opt) {
  static const TlLower defaults = {0};
  ENTER(c, true, 0);
  const TlLower *o = opt ? opt : &defaults;
  if (!loaded(c, "lowering")) return 0;
  IrKernel *k = c->module->kernel;
  bool done = k->level == LEVEL_LOWERED;
  const Arch *arch = o->chip || !done ? find_chip(c, o->chip ? o->chip : arch_default_chip) : c->arch;
  if (!arch) return 0;
  if (o->last && !is_pass(o->last)) {
    no_such_pass(c, o->last);
    return 0;
  }
  if (done && arch != c->arch) {
    Diag *g = diag_add(&c->diags, DIAG_WRONG_STAGE, k->loc, "@%s is lowered for %s already, not for %s", k->name,
                       k->chip, arch->name);
    diag_fix(&c->diags, g, "load the source level text again");
    return 0;
  }
  if (done) return 1;
  if (c->begun) {
    diag_add(&c->diags, DIAG_WRONG_STAGE, k->loc, "@%s is lowered in part already; load its text again", k->name);
    return 0;
  }
  c->begun = true;
  c->arch = arch;
  c->keep_text = o->keep_text;
  c->verify_each = o->verify_each;
  c->pass = (PassCtx){.arena = &c->arena, .diags = &c->diags, .arch = arch, .module = c->module, .k = k,
                      .auto_sync = !o->no_auto_sync, .auto_memory = !o->no_auto_memory};
  uint32_t before = c->diags.n_errors;
  if (ir_has_says(k)) return c->valid = lower_says(c, o, text_without_says(c));
  return c->valid = pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
}

const char *tl_text_after(TlContext *c, const char *pass) {
  ENTER(c, false, NULL);
  for (uint32_t i = 0; i < c->stages.len; i++)
    if (c->stages.data[i].text && !strcmp(c->stages.data[i].pass, pass)) return c->stages.data[i].text;
  if (is_pass(pass))
    diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, "the text after pass '%s' is not kept", pass);
  else no_such_pass(c, pass);
  return NULL;
}

int tl_pass_at(int i, const char **name, const char **doc) {
  if (i < 0 || i >= pass_count) return 0;
  *name = pass_table[i].name;
  *doc = pass_table[i].doc;
  return 1;
}

int tl_chip_at(int i, TlChip *out) {
  const Arch *a = arch_at(i);
  if (!a) return 0;
  *out = (TlChip){a->name, a->family, a->aic, a->aiv, a->mhz};
  return 1;
}

const char *tl_target_at(int i) { return target_at(i) ? target_at(i)->name : NULL; }

/* ---- explain ---------------------------------------------------------------------------------------------- */

/* First and last statement (numbers in program order) that touches each buffer. */
typedef struct { uint32_t *from, *to; uint32_t at; } Uses;

static void use(Uses *u, const IrBuf *b) {
  if (!u->from[b->id]) u->from[b->id] = u->at;
  u->to[b->id] = u->at;
}

static void use_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) use(user, e->buf);
}

static void use_expr(IrExpr **e, void *user) { ir_walk_expr(*e, use_load, user); }

static bool use_stmt(IrStmt *s, void *user) {
  Uses *u = user;
  u->at = s->id;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) use(u, s->args[i].region.buf);
  if (s->op == ST_STORE) use(u, s->store.buf);
  ir_stmt_exprs(s, use_expr, u);
  return true;
}

static Uses find_uses(TlContext *c) {
  IrKernel *k = c->module->kernel;
  Uses u = {arena_array(&c->arena, uint32_t, k->bufs.len + 1), arena_array(&c->arena, uint32_t, k->bufs.len + 1), 0};
  ir_renumber(k);
  ir_walk(&k->body, use_stmt, &u);
  return u;
}

typedef struct { TlContext *c; Vec(const IrBuf *) bufs; Vec(const IrStmt *) syncs; } Chosen;

static bool collect(IrStmt *s, void *user) {
  Chosen *x = user;
  if (s->op == ST_ALLOC) vec_push(&x->c->arena, &x->bufs, s->alloc.buf);
  if (s->op >= ST_SET_FLAG && s->op <= ST_SYNC_ALL) vec_push(&x->c->arena, &x->syncs, s);
  return true;
}

static Chosen find_chosen(TlContext *c) {
  Chosen x = {.c = c};
  ir_walk(&c->module->kernel->body, collect, &x);
  return x;
}

/* Bytes of a memory that buffers reach, at most. */
static int64_t bytes_used(const Chosen *x, Space space) {
  int64_t used = 0;
  for (uint32_t i = 0; i < x->bufs.len; i++) {
    const IrBuf *b = x->bufs.data[i];
    if (b->space == space) used = max_i64(used, (b->addr < 0 ? 0 : b->addr) + ir_buf_bytes(b));
  }
  return used;
}

static const char *loc_text(TlContext *c, Loc loc) { return ir_loc_str(&c->arena, c->module, loc); }
static const char *shape_text(TlContext *c, const IrBuf *b) { return ir_shape_str(&c->arena, b->shape, b->rank); }
static const char *const cores_name[] = {"", "cube", "vector", "mix"};

static const char *sync_kind(const IrStmt *s) {
  static const char *const kinds[] = {"set_flag", "wait_flag", "barrier", "cross_set", "cross_wait", "sync_all"};
  return kinds[s->op - ST_SET_FLAG];
}

static void explain_buffers(TlContext *c, Text *t, const Chosen *x) {
  Uses u = find_uses(c);
  for (int space = 0; space < SPACE_COUNT; space++) {
    int64_t used = bytes_used(x, space);
    if (!used || space == SPACE_GM) continue;
    text_printf(t, "\n%s", space_info[space].name);
    if (space_info[space].physical && c->arch)
      text_printf(t, ": %lld of %lld bytes", (long long)used, (long long)c->arch->space[space].bytes);
    text_put(t, "\n");
    for (uint32_t i = 0; i < x->bufs.len; i++) {
      const IrBuf *b = x->bufs.data[i];
      if ((int)b->space != space) continue;
      text_printf(t, "  %%%s %s%s", b->name, dtype_info[b->type].name, shape_text(c, b));
      if (b->layout != LAYOUT_ND) text_printf(t, " %s", layout_name[b->layout]);
      if (b->addr >= 0) text_printf(t, " at %lld", (long long)b->addr);
      text_printf(t, ", %lld bytes", (long long)ir_buf_bytes(b));
      if (u.from[b->id]) text_printf(t, ", statements %u to %u", u.from[b->id], u.to[b->id]);
      text_printf(t, " (%s)", loc_text(c, b->loc));
      if (b->why) text_printf(t, ": %s", b->why);
      text_put(t, "\n");
    }
  }
}

const char *tl_explain(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !loaded(c, "explain")) return NULL;
  IrKernel *k = c->module->kernel;
  Chosen x = find_chosen(c);
  Text t;
  text_init(&t, &c->arena);
  text_printf(&t, "kernel @%s", k->name);
  if (c->arch) text_printf(&t, " for %s", c->arch->name);
  if (k->cores) text_printf(&t, ", %s cores", k->cores == CORES_MIX ? "cube and vector" : cores_name[k->cores]);
  text_put(&t, "\n");
  explain_buffers(c, &t, &x);
  if (x.syncs.len) text_put(&t, "\nflags and barriers\n");
  for (uint32_t i = 0; i < x.syncs.len; i++) {
    const IrStmt *s = x.syncs.data[i];
    text_put(&t, "  ");
    ir_print_stmt(&t, k, s);
    text_printf(&t, " (%s)", loc_text(c, s->loc));
    if (s->why || s->hand == 1) text_printf(&t, ": %s", s->why ? s->why : "written by hand");
    text_put(&t, "\n");
  }
  if (c->pass.remarks.len) text_put(&t, "\nremarks\n");
  for (uint32_t i = 0; i < c->pass.remarks.len; i++) {
    const Remark *r = &c->pass.remarks.data[i];
    text_printf(&t, "  %s (%s): %s\n", r->pass, loc_text(c, r->loc), r->text);
  }
  if (c->stages.len) text_put(&t, "\ntimes\n");
  for (uint32_t i = 0; i < c->stages.len; i++)
    text_printf(&t, "  %-10s %.3f ms\n", c->stages.data[i].pass, 1e3 * c->stages.data[i].seconds);
  return text_str(&t);
}

/* ---- the same as JSON ------------------------------------------------------------------------------------- */

static void put_key(Text *t, const char *key) { text_printf(t, "\"%s\":", key); }
static void put_str(Text *t, const char *key, const char *s) {
  put_key(t, key);
  if (s) text_json(t, s);
  else text_put(t, "null");
}
static void put_int(Text *t, const char *key, int64_t v) { text_printf(t, "\"%s\":%lld", key, (long long)v); }
static void comma(Text *t, uint32_t i) { text_put(t, i ? ",\n " : "\n "); }

static void put_extent(TlContext *c, Text *t, const IrExpr *e) {
  if (ir_is_const(e)) text_printf(t, "%lld", (long long)e->i);
  else text_json(t, ir_expr_str(&c->arena, e));
}

static void put_shape(TlContext *c, Text *t, const IrBuf *b) {
  text_put(t, "\"shape\":[");
  for (int d = 0; d < b->rank; d++) {
    if (d) text_put(t, ",");
    put_extent(c, t, b->shape[d]);
  }
  text_put(t, "]");
}

static void json_buffers(TlContext *c, Text *t, const Chosen *x) {
  Uses u = find_uses(c);
  text_put(t, "\"buffers\":[");
  for (uint32_t i = 0; i < x->bufs.len; i++) {
    const IrBuf *b = x->bufs.data[i];
    comma(t, i);
    text_put(t, "{");
    put_str(t, "name", b->name);
    text_printf(t, ",\"space\":\"%s\",\"dtype\":\"%s\",", space_info[b->space].name, dtype_info[b->type].name);
    put_shape(c, t, b);
    text_printf(t, ",\"layout\":\"%s\",\"addr\":%lld,\"bytes\":%lld,\"live\":[%u,%u],", layout_name[b->layout],
                (long long)b->addr, (long long)ir_buf_bytes(b), u.from[b->id], u.to[b->id]);
    put_str(t, "why", b->why);
    text_printf(t, ",\"line\":%u}", b->loc.line);
  }
  text_put(t, "],\n\"memory\":[");
  for (int space = 0, n = 0; space < SPACE_COUNT; space++) {
    int64_t used = bytes_used(x, space);
    if (!used || !space_info[space].physical) continue;
    comma(t, (uint32_t)n++);
    text_printf(t, "{\"space\":\"%s\",", space_info[space].name);
    put_int(t, "used", used);
    text_put(t, ",");
    put_int(t, "available", c->arch ? c->arch->space[space].bytes : 0);
    text_put(t, "}");
  }
  text_put(t, "]");
}

static void json_flags(TlContext *c, Text *t, const Chosen *x) {
  text_put(t, "\"flags\":[");
  for (uint32_t i = 0; i < x->syncs.len; i++) {
    const IrStmt *s = x->syncs.data[i];
    bool pair = s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG;
    comma(t, i);
    text_printf(t, "{\"kind\":\"%s\",", sync_kind(s));
    put_str(t, "src", s->op != ST_SYNC_ALL && s->sync.src < PIPE_COUNT ? pipe_info[s->sync.src].name : NULL);
    text_put(t, ",");
    put_str(t, "dst", pair && s->sync.dst < PIPE_COUNT ? pipe_info[s->sync.dst].name : NULL);
    text_put(t, ",\"id\":");
    if (s->sync.id && s->op != ST_SYNC_ALL && s->op != ST_BARRIER) put_extent(c, t, s->sync.id);
    else text_put(t, "null");
    text_printf(t, ",\"hand\":%s,", s->hand == 1 ? "true" : "false");
    put_str(t, "why", s->why);
    text_printf(t, ",\"line\":%u}", s->loc.line);
  }
  text_put(t, "]");
}

const char *tl_explain_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !loaded(c, "explain")) return NULL;
  IrKernel *k = c->module->kernel;
  Chosen x = find_chosen(c);
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "{");
  put_str(t, "kernel", k->name);
  text_put(t, ",");
  put_str(t, "chip", c->arch ? c->arch->name : NULL);
  text_put(t, ",");
  put_str(t, "cores", k->cores ? cores_name[k->cores] : NULL);
  text_put(t, ",\n");
  json_buffers(c, t, &x);
  text_put(t, ",\n");
  json_flags(c, t, &x);
  text_put(t, ",\n\"remarks\":[");
  for (uint32_t i = 0; i < c->pass.remarks.len; i++) {
    const Remark *r = &c->pass.remarks.data[i];
    comma(t, i);
    text_put(t, "{");
    put_str(t, "pass", r->pass);
    text_printf(t, ",\"line\":%u,", r->loc.line);
    put_str(t, "text", r->text);
    text_put(t, "}");
  }
  text_put(t, "],\n\"times\":[");
  for (uint32_t i = 0; i < c->stages.len; i++) {
    comma(t, i);
    text_put(t, "{");
    put_str(t, "pass", c->stages.data[i].pass);
    text_printf(t, ",\"seconds\":%.9f}", c->stages.data[i].seconds);
  }
  text_put(t, "]}\n");
  return text_str(t);
}

const char *tl_signature_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !loaded(c, "the signature")) return NULL;
  IrKernel *k = c->module->kernel;
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "{");
  put_str(t, "kernel", k->name);
  text_put(t, ",\n\"params\":[");
  for (uint32_t i = 0; i < k->params.len; i++) {
    const IrBuf *b = k->params.data[i].buf;
    const IrVar *v = k->params.data[i].var;
    comma(t, i);
    text_put(t, "{");
    put_str(t, "name", b ? b->name : v->name);
    text_printf(t, ",\"kind\":\"%s\",\"dtype\":\"%s\"", b ? "tensor" : "scalar",
                dtype_info[b ? b->type : v->type].name);
    if (b) {
      text_put(t, ",");
      put_shape(c, t, b);
      text_printf(t, ",\"out\":%s,\"workspace\":%s", b->is_out ? "true" : "false", b->is_work ? "true" : "false");
    }
    text_put(t, "}");
  }
  text_put(t, "],\n\"grid\":[");
  for (uint32_t i = 0; i < k->grid_ext.len; i++) {
    if (i) text_put(t, ",");
    put_extent(c, t, k->grid_ext.data[i]);
  }
  text_put(t, "]}\n");
  return text_str(t);
}

const char *tl_program_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !loaded(c, "the program")) return NULL;
  Text text;
  text_init(&text, &c->arena);
  ir_json(&text, c->module);
  return text_str(&text);
}

int tl_param_at(TlContext *c, int i, TlParam *out) {
  if (!c->module || i < 0 || i >= (int)c->module->kernel->params.len) return 0;
  const IrBuf *b = c->module->kernel->params.data[i].buf;
  const IrVar *v = c->module->kernel->params.data[i].var;
  DType t = b ? b->type : v->type;
  *out = (TlParam){b ? b->name : v->name, dtype_info[t].name, dtype_size(t), b != NULL, b && b->is_out, b && b->is_work,
                   b ? b->rank : 0, {0}};
  for (int d = 0; b && d < b->rank; d++) out->shape[d] = ir_is_const(b->shape[d]) ? b->shape[d]->i : -1;
  return 1;
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

const char *tl_emit(TlContext *c, const char *target) {
  ENTER(c, false, NULL);
  if (!lowered(c, "writing source")) return NULL;
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

/* ---- simulation ------------------------------------------------------------------------------------------- */

/* The value of a size made of constants and scalar parameters; false: overflow, division by 0, or another operator. */
static bool size_value(const IrKernel *k, const IrExpr *e, const TlArg *args, int64_t *out) {
  int64_t a = 0, b = 0;
  if (e->op == EX_INT) {
    *out = e->i;
    return true;
  }
  if (e->op == EX_VAR) {
    for (uint32_t i = 0; i < k->params.len; i++)
      if (k->params.data[i].var == e->var) {
        *out = args[i].scalar.i;
        return true;
      }
    return false;
  }
  if (e->op == EX_LOAD || e->op == EX_FLOAT || e->op == EX_SELECT || dtype_is_float(e->type)) return false;
  if (!size_value(k, e->arg[0], args, &a) || (e->n > 1 && !size_value(k, e->arg[1], args, &b))) return false;
  switch (e->op) {
  case EX_CAST: *out = a; return dtype_size(e->type) == 8 || a == (int32_t)a;
  case EX_NEG: return !__builtin_sub_overflow((int64_t)0, a, out);
  case EX_ADD: return !__builtin_add_overflow(a, b, out);
  case EX_SUB: return !__builtin_sub_overflow(a, b, out);
  case EX_MUL: return !__builtin_mul_overflow(a, b, out);
  case EX_MIN: *out = min_i64(a, b); return true;
  case EX_MAX: *out = max_i64(a, b); return true;
  case EX_FDIV:
  case EX_MOD:
    if (b <= 0) return false;
    *out = a / b - (a % b < 0);
    if (e->op == EX_MOD) *out = a - *out * b;
    return true;
  default: return false;
  }
}

static bool right_count(TlContext *c, int n_args) {
  const IrKernel *k = c->module->kernel;
  if (n_args == (int)k->params.len) return true;
  diag_add(&c->diags, DIAG_BAD_ARGUMENT, k->loc, "@%s takes %u arguments, %d are given", k->name, k->params.len,
           n_args);
  return false;
}

int tl_shapes(TlContext *c, TlArg *args, int n_args) {
  ENTER(c, false, 0);
  if (!loaded(c, "a shape") || !right_count(c, n_args)) return 0;
  const IrKernel *k = c->module->kernel;
  for (int i = 0; i < n_args; i++) {
    const IrBuf *b = k->params.data[i].buf;
    for (int d = 0; b && d < b->rank; d++) {
      if (size_value(k, b->shape[d], args, &args[i].shape[d]) && args[i].shape[d] >= 0) continue;
      diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "dimension %d of %%%s, `%s`, is no size for these arguments", d,
               b->name, ir_expr_str(&c->arena, b->shape[d]));
      return 0;
    }
  }
  return 1;
}

/* Workspaces that passes added stand at the end; the caller need not know them. */
static int user_params(const IrKernel *k) {
  int n = (int)k->params.len;
  while (n > 0 && k->params.data[n - 1].buf && k->params.data[n - 1].buf->is_work && k->params.data[n - 1].buf->why)
    n--;
  return n;
}

static bool add_workspaces(TlContext *c, SimArg *in, const TlArg *args, int n_args, bool need_data) {
  const IrKernel *k = c->module->kernel;
  for (int i = n_args; i < (int)k->params.len; i++) {
    const IrBuf *b = k->params.data[i].buf;
    int64_t bytes = dtype_size(b->type);
    for (int d = 0; d < b->rank; d++) {
      if (!size_value(k, b->shape[d], args, &in[i].shape[d]) || in[i].shape[d] < 0 ||
          __builtin_mul_overflow(bytes, in[i].shape[d], &bytes)) {
        diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "dimension %d of workspace %%%s is no size for these arguments",
                 d, b->name);
        return false;
      }
    }
    if (need_data) in[i].data = arena_alloc(&c->scratch, (size_t)bytes + 1, 64);
  }
  return true;
}

static bool check_args(TlContext *c, const TlArg *args, int n_args, bool need_data) {
  const IrKernel *k = c->module->kernel;
  if (n_args != user_params(k) && !right_count(c, n_args)) return false;
  for (int i = 0; i < n_args; i++) {
    const IrBuf *b = k->params.data[i].buf;
    int64_t want;
    bool empty = false;
    for (int d = 0; b && d < b->rank; d++) {
      int64_t have = args[i].shape[d];
      empty |= have == 0;
      bool known = size_value(k, b->shape[d], args, &want);
      if (have >= 0 && (!known || want == have)) continue;
      diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "argument %d (%%%s %s) has %lld elements in dimension %d", i,
               b->name, shape_text(c, b), (long long)have, d);
      return false;
    }
    if (!b || args[i].data || empty || !need_data) continue;
    diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "argument %d (%%%s) has no data", i, b->name);
    return false;
  }
  return true;
}

/* The arguments of a run; NULL: reported. Drops what the run before left in scratch. */
static SimArg *run_args(TlContext *c, const char *what, const TlArg *args, int n_args, bool need_data) {
  _Static_assert(sizeof ((SimArg *)0)->shape == sizeof args->shape, "tilelang.h and sim.h agree about ranks");
  if (!lowered(c, what) || !check_args(c, args, n_args, need_data)) return NULL;
  memset(&c->ran, 0, sizeof c->ran);
  arena_free(&c->scratch);
  c->time = NULL;
  SimArg *in = arena_array(&c->scratch, SimArg, c->module->kernel->params.len + 1);
  for (int i = 0; i < n_args; i++) {
    in[i].data = args[i].data;
    memcpy(in[i].shape, args[i].shape, sizeof in[i].shape);
    memcpy(&in[i].scalar, &args[i].scalar, sizeof in[i].scalar);
  }
  return add_workspaces(c, in, args, n_args, need_data) ? in : NULL;
}

int tl_sim(TlContext *c, const TlArg *args, int n_args, const TlSim *opt, TlSimResult *result) {
  static const TlSim defaults = {.checks = 1};
  ENTER(c, false, 0);
  const TlSim *o = opt ? opt : &defaults;
  if (result) memset(result, 0, sizeof *result);
  SimArg *in = run_args(c, "simulation", args, n_args, true);
  if (!in) return 0;
  SimOptions so = {.checks = o->checks != 0,
                   .threads = o->threads,
                   .max_faults = o->max_faults,
                   .schedule = o->schedule,
                   .record = o->record ? &c->recorded : NULL,
                   .go_on = o->go_on,
                   .user = o->user};
  c->values = NULL;
  arena_free(&c->recorded);
  uint32_t before = c->diags.n_errors;
  bool ok = sim_run(&c->scratch, &c->diags, c->module->kernel, c->arch, in, &so, &c->ran);
  if (ok) c->values = c->ran.values;
  const SimResult r = c->ran;
  if (result)
    *result = (TlSimResult){r.blocks,     r.instructions, r.gm_read_bytes, r.gm_write_bytes, r.cores_used,
                            c->module->kernel->cores == CORES_VECTOR ? c->arch->aiv : c->arch->aic, r.recorded};
  return ok && c->diags.n_errors == before;
}

/* ---- cost ------------------------------------------------------------------------------------------------- */

int tl_cost(TlContext *c, const TlArg *args, int n_args, TlCost *out) {
  ENTER(c, false, 0);
  memset(out, 0, sizeof *out);
  SimArg *in = run_args(c, "cost", args, n_args, false);
  if (!in) return 0;
  const IrKernel *k = c->module->kernel;
  int64_t *scalar = arena_array(&c->scratch, int64_t, k->params.len + 1);
  for (uint32_t i = 0; i < k->params.len; i++) scalar[i] = in[i].scalar.i;
  Cost r;
  if (!cost_bound(&c->scratch, &c->diags, k, c->arch, scalar, &r)) return 0;
#define PIPE(p) (r.pipe_us[0][PIPE_##p] > r.pipe_us[1][PIPE_##p] ? r.pipe_us[0][PIPE_##p] : r.pipe_us[1][PIPE_##p])
  *out = (TlCost){.us = r.us, .launch_us = r.launch_us, .memory_us = r.memory_us, .blocks = r.blocks,
                  .gm_bytes = r.gm_bytes,
                  .pipe_us = {PIPE(M), PIPE(MTE1), PIPE(MTE2), PIPE(MTE3), PIPE(FIX), PIPE(V), PIPE(S)}};
#undef PIPE
  return 1;
}

/* ---- time ------------------------------------------------------------------------------------------------- */

int tl_time(TlContext *c, const TlArg *args, int n_args, const TlTime *opt, TlTimeResult *result) {
  static const TlTime defaults = {0};
  ENTER(c, false, 0);
  const TlTime *o = opt ? opt : &defaults;
  if (result) memset(result, 0, sizeof *result);
  SimArg *in = run_args(c, "timing", args, n_args, false);
  if (!in) return 0;
  SimTimeOptions so = {.hbm_factor = o->hbm_factor, .l2_factor = o->l2_factor, .miss_factor = o->miss_factor,
                       .l2 = o->l2_all_hit ? L2_ALL_HIT : o->l2_warm ? L2_WARM : L2_COLD,
                       .no_bank_conflicts = o->no_bank_conflicts, .free_flags = o->free_flags,
                       .compute_only = o->compute_only, .copy_only = o->copy_only, .timeline = o->timeline,
                       .max_events = o->max_events, .follow = o->follow ? c->values : NULL,
                       .constants = o->constants, .long_rows = o->long_rows, .no_latency = o->no_latency};
  SimTime *r = arena_new(&c->scratch, SimTime);
  uint32_t before = c->diags.n_errors;
  bool ok = sim_time(&c->scratch, &c->diags, c->module->kernel, c->arch, in, &so, r);
  if (!ok || c->diags.n_errors != before) return 0;
  c->time = r;
  if (!result) return 1;
  int64_t l2 = r->l2_hit_bytes + r->l2_miss_bytes;
  *result = (TlTimeResult){.us = r->us, .mhz = r->mhz, .ticks = r->ticks, .blocks = r->blocks,
                           .instructions = r->instructions, .gm_read_bytes = r->gm_read_bytes,
                           .gm_write_bytes = r->gm_write_bytes, .l2_hit = l2 ? (double)r->l2_hit_bytes / (double)l2 : 0,
                           .pipe_ratio = {sim_time_ratio(r, PIPE_M, 0), sim_time_ratio(r, PIPE_MTE1, 0),
                                          sim_time_ratio(r, PIPE_MTE2, 0), sim_time_ratio(r, PIPE_MTE3, 'v'),
                                          sim_time_ratio(r, PIPE_FIX, 0), sim_time_ratio(r, PIPE_V, 0),
                                          sim_time_ratio(r, PIPE_S, 0)},
                           .cores_used = r->groups, .cores = r->groups_there};
  return 1;
}

static const char *time_report(TlContext *c, void (*write)(Text *, const IrKernel *, const Arch *, const SimTime *)) {
  ENTER(c, false, NULL);
  if (!c->time) {
    diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, "nothing has been timed yet");
    return NULL;
  }
  Text t;
  text_init(&t, &c->arena);
  write(&t, c->module->kernel, c->arch, c->time);
  return text_str(&t);
}

const char *tl_time_text(TlContext *c) { return time_report(c, sim_time_text); }
const char *tl_time_json(TlContext *c) { return time_report(c, sim_time_json); }

int tl_time_event_at(TlContext *c, int64_t i, TlTimeEvent *out) {
  if (!c->time || i < 0 || i >= c->time->n_events) return 0;
  const SimTimeEvent *e = &c->time->event[i];
  double tick = 1.0 / 256 / c->time->mhz;
  *out = (TlTimeEvent){e->core, e->stmt, pipe_info[e->pipe].name, (double)e->start * tick, (double)e->end * tick,
                       e->cause};
  return 1;
}

/* ---- diagnostics ------------------------------------------------------------------------------------------ */

static const char *const severity_name[] = {"note", "warning", "error"};

int tl_error_count(TlContext *c) { return (int)c->diags.n_errors + c->no_memory; }

void tl_diags_clear(TlContext *c) {
  diags_init(&c->diags, &c->arena);
  c->no_memory = false;
}

static const char *file_of(const TlContext *c, Loc loc) {
  if (!loc.file || !c->module || loc.file >= c->module->files.len) return c->name;
  return c->module->files.data[loc.file];
}

int tl_printed_at(TlContext *c, int i, TlPrinted *out) {
  if (i < 0 || (uint32_t)i >= c->ran.said.len) return 0;
  const SimSaid *s = &c->ran.said.data[i];
  *out = (TlPrinted){s->block, file_of(c, s->loc), (int)s->loc.line, s->loc.col, s->where, s->text};
  return 1;
}

static void put_place(const TlContext *c, Text *t, Loc loc) {
  text_put(t, file_of(c, loc));
  if (loc.line) text_printf(t, ":%u:%u", loc.line, loc.col);
}

/* The line of the .tl text with a caret below its column. */
static void put_source(const TlContext *c, Text *t, Loc loc) {
  if (loc.file || !loc.line) return;
  const char *s = c->text, *end = c->text + c->len;
  for (uint32_t line = 1; line < loc.line && s < end; line++) {
    const char *n = memchr(s, '\n', (size_t)(end - s));
    s = n ? n + 1 : end;
  }
  const char *n = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;
  size_t len = (size_t)((n ? n : end) - s), col = loc.col ? loc.col - 1u : 0;
  if (!len || len > 400 || col > len) return; /* a longer line hides the place more than it shows it */
  text_put(t, "    ");
  for (size_t i = 0; i < len; i++) text_putn(t, (unsigned char)s[i] < ' ' ? " " : s + i, 1);
  text_printf(t, "\n    %*s^\n", (int)col, "");
}

static void put_diag(const TlContext *c, Text *t, const Diag *g) {
  put_place(c, t, g->loc);
  text_printf(t, ": %s TL%04d: %s\n", severity_name[g->severity], diag_number(g->code), g->text);
  put_source(c, t, g->loc);
  if (g->other_text) {
    text_put(t, "  see ");
    put_place(c, t, g->other);
    text_printf(t, ": %s\n", g->other_text);
    put_source(c, t, g->other);
  }
  if (g->fix) text_printf(t, "  fix: %s\n", g->fix);
}

static uint32_t errors_kept(const TlContext *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->diags.list.len; i++) n += c->diags.list.data[i].severity == SEV_ERROR;
  return n;
}

const char *tl_diags_text(TlContext *c) {
  static const char no_memory[] = "error TL0001: out of host memory\n";
  ENTER(c, false, no_memory);
  if (c->no_memory && !c->diags.list.len) return no_memory;
  Text t;
  text_init(&t, &c->arena);
  for (uint32_t i = 0; i < c->diags.list.len; i++) put_diag(c, &t, &c->diags.list.data[i]);
  if (c->diags.n_errors > errors_kept(c)) text_printf(&t, "and %u more errors\n", c->diags.n_errors - errors_kept(c));
  if (c->no_memory) text_put(&t, no_memory);
  return text_str(&t);
}

static void json_place(const TlContext *c, Text *t, const char *text, Loc loc) {
  put_str(t, "text", text);
  text_put(t, ",");
  put_str(t, "file", file_of(c, loc));
  text_printf(t, ",\"line\":%u,\"col\":%u", loc.line, loc.col);
}

const char *tl_diags_json(TlContext *c) {
  static const char no_memory[] =
      "[{\"code\":\"TL0001\",\"severity\":\"error\",\"title\":\"out of host memory\",\"text\":\"out of host memory\","
      "\"file\":\"\",\"line\":0,\"col\":0,\"other\":null,\"fix\":null}]\n";
  ENTER(c, false, no_memory);
  if (c->no_memory) return no_memory;
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "[");
  for (uint32_t i = 0; i < c->diags.list.len; i++) {
    const Diag *g = &c->diags.list.data[i];
    comma(t, i);
    text_printf(t, "{\"code\":\"TL%04d\",\"severity\":\"%s\",", diag_number(g->code), severity_name[g->severity]);
    put_str(t, "title", diag_title(g->code));
    text_put(t, ",");
    json_place(c, t, g->text, g->loc);
    text_put(t, ",\"other\":");
    if (g->other_text) {
      text_put(t, "{");
      json_place(c, t, g->other_text, g->other);
      text_put(t, "},");
    } else {
      text_put(t, "null,");
    }
    put_str(t, "fix", g->fix);
    text_put(t, "}");
  }
  text_put(t, "]\n");
  return text_str(t);
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
  *out = (Signature){.kernel = k->name, .chip = c->arch->name, .family = c->arch->family, .file = file_of(c, k->loc),
                     .npu_arch = c->arch->npu_arch, .target = target->name, .version = TL_VERSION,
                     .line = (int)k->loc.line, .n = (int)k->params.len};
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
  *ir = print_module(c, c->module);
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

static int64_t number_from(const char *variable, int64_t otherwise) {
  const char *text = rt_env(variable);
  int64_t v = text ? strtoll(text, NULL, 10) : 0;
  return v > 0 ? v : otherwise;
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
  Build b = {.name = s.kernel, .source = rt_shim(&c->arena, &s, source), .ir = ir, .target = s.target,
             .family = s.family, .npu_arch = s.npu_arch, .fresh = o->fresh, .go_on = o->go_on, .user = o->user,
             .cache_dir = o->cache_dir ? o->cache_dir : rt_cache_dir(&c->arena),
             .cache_bytes = o->cache_bytes ? o->cache_bytes : number_from("TILELANG_CACHE_BYTES", (int64_t)1 << 30),
             .seconds = o->seconds ? o->seconds : (int)number_from("TILELANG_BUILD_SECONDS", 600)};
  Built built;
  uint32_t before = c->diags.list.len;
  bool ok = rt_build(&c->arena, &c->diags, &b, &built);
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
  SimArg *in = source ? run_args(c, "the twin", args, n_args, true) : NULL;
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
  if (!lowered(c, "launching")) return NULL;
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
                                      &(LoadKernel){library, k->name, file_of(c, k->loc), (int)k->loc.line, kinds});
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
  (json ? rt_doctor_json : rt_doctor_text)(&t, &found, TL_VERSION);
  return text_str(&t);
}

const char *tl_page(const char *code) {
  for (const DiagPage *p = diag_pages; code && p->code; p++)
    if (!strcmp(p->code, code)) return p->text;
  return NULL;
}
