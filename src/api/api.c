/* api.c - a context, its text and its passes; what a program's parameters are. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#ifndef TL_VERSION
#define TL_VERSION "0.1.0"
#endif

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

const Arch *api_chip(TlContext *c, const char *chip) {
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
  if (m->kernel->level == LEVEL_LOWERED && !(c->arch = api_chip(c, m->kernel->chip))) return 0;
  return c->valid = true;
}

/* Is there a program that keeps the rules? */
bool api_loaded(TlContext *c, const char *call) {
  if (c->module && c->valid) return true;
  diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, c->module ? "%s needs a program without errors"
                                                                  : "%s needs a program: load one first", call);
  return false;
}

bool api_lowered(TlContext *c, const char *call) {
  if (!api_loaded(c, call)) return false;
  if (c->module->kernel->level == LEVEL_LOWERED) return true;
  const IrKernel *k = c->module->kernel;
  Diag *g = diag_add(&c->diags, DIAG_WRONG_STAGE, k->loc, "%s needs a lowered program; @%s is not lowered%s", call,
                     k->name, c->begun ? " to the end" : "");
  diag_fix(&c->diags, g, "run all passes first");
  return false;
}

const char *api_print(TlContext *c, const IrModule *m) {
  Text t;
  text_init(&t, &c->arena);
  ir_print(&t, m);
  return text_str(&t);
}

const char *tl_text(TlContext *c) {
  ENTER(c, false, NULL);
  if (c->module) return api_print(c, c->module);
  api_loaded(c, "the text");
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
  if (m && !strcmp(api_print(c, m), text)) return true;
  diag_add(&c->diags, DIAG_INTERNAL, c->module->kernel->loc, "the text after pass '%s' does not read back%s%s", pass,
           d.list.len ? ": " : "", d.list.len ? d.list.data[0].text : "");
  return false;
}

static bool observe(const Pass *done, PassCtx *p, double seconds, void *user) {
  TlContext *c = user;
  (void)p;
  Stage s = {done->name, NULL, seconds};
  if (c->keep_text || c->verify_each) s.text = api_print(c, c->module);
  vec_push(&c->arena, &c->stages, s);
  return !c->verify_each || rereads(c, done->name, s.text);
}

/* ---- print and assert never change a program: it is lowered without them too, and must be the same ---------- */

/* A text with some of its prints (NULL: all) dropped. */
static const char *with_says(TlContext *c, const char *text, const bool *keep) {
  Diags d;
  diags_init(&d, &c->arena);
  IrModule *m = ir_parse(&c->arena, &d, c->name, text, strlen(text));
  if (!m) return text;
  ir_drop_says(m->kernel, keep);
  return api_print(c, m);
}

/* Puts the program of a text in place of the module. */
static bool put_text(TlContext *c, PassCtx *p, const char *text) {
  IrModule *m = ir_parse(&c->arena, p->diags, c->name, text, strlen(text));
  if (!m || !ir_verify(m, p->diags)) return false;
  p->module = m;
  p->k = m->kernel;
  return true;
}

/* What the passes make of a text, without its prints; NULL: they refuse it. */
static const char *lowered_text(TlContext *c, const PassCtx *fresh, const TlLower *o, const char *text) {
  PassCtx p = *fresh;
  Diags unseen;
  diags_init(&unseen, &c->arena);
  p.diags = &unseen;
  if (!put_text(c, &p, text) || !pass_run_all(&p, o->last, NULL, NULL) || unseen.n_errors) return NULL;
  return with_says(c, api_print(c, p.module), NULL);
}

enum { MOST_TRIED = 32 }; /* prints that are lowered one by one */
typedef struct { Vec(IrStmt *) list; Arena *a; } Says;

static bool note_say(IrStmt *s, void *user) {
  Says *x = user;
  if (!ir_is_say(s)) return true;
  IrStmt *copy = arena_new(x->a, IrStmt); /* passes work on s */
  *copy = *s;
  vec_push(x->a, &x->list, copy);
  return true;
}

/* Which prints leave the program as it is: each by itself, and those together. False: it cannot be told. */
static bool harmless(TlContext *c, const PassCtx *fresh, const TlLower *o, const char *text, const char *plain,
                     const Says *says, bool *keep) {
  uint32_t n = says->list.len;
  if (n > MOST_TRIED) return false;
  for (uint32_t i = 0; i < n; i++) {
    bool *one = arena_array(&c->arena, bool, n);
    one[i] = true;
    const char *with = lowered_text(c, fresh, o, with_says(c, text, one));
    keep[i] = with && !strcmp(with, plain);
  }
  const char *all = lowered_text(c, fresh, o, with_says(c, text, keep));
  return all && !strcmp(all, plain);
}

/* Lowers a program with prints. What the passes make of it must be what they make of its text without them; otherwise
 * those that make the difference are left out, and the user is told. */
static bool lower_says(TlContext *c, const TlLower *o) {
  PassCtx fresh = c->pass;
  ir_guard_says(c->module->kernel);
  const char *text = api_print(c, c->module), *plain = lowered_text(c, &fresh, o, with_says(c, text, NULL));
  uint32_t before = c->diags.n_errors, known = c->diags.list.len;
  Says says = {.a = &c->arena};
  ir_walk(&c->pass.k->body, note_say, &says);
  bool ok = pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
  if (!plain || (ok && !strcmp(with_says(c, api_print(c, c->module), NULL), plain))) return ok;
  c->diags.n_errors = before;
  c->diags.list.len = known;
  c->stages.len = 0;
  bool *keep = arena_array(&c->arena, bool, says.list.len), some = harmless(c, &fresh, o, text, plain, &says, keep);
  c->pass = fresh;
  if (!put_text(c, &c->pass, with_says(c, text, some ? keep : NULL))) return false;
  c->module = c->pass.module;
  for (uint32_t i = 0; i < says.list.len && some; i++)
    if (!keep[i])
      pass_left_out(&c->pass, says.list.data[i],
                    "with it the compiler would make another program: it, or the `if` around it, needs a value that "
                    "nothing else needs there");
  if (!some)
    diag_add(&c->diags, DIAG_SAY_LEFT_OUT, c->pass.k->loc,
             "the prints of this kernel are left out: with them the compiler would make another program");
  return pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
}

int tl_lower(TlContext *c, const TlLower *opt) {
  static const TlLower defaults = {0};
  ENTER(c, true, 0);
  const TlLower *o = opt ? opt : &defaults;
  if (!api_loaded(c, "lowering")) return 0;
  IrKernel *k = c->module->kernel;
  bool done = k->level == LEVEL_LOWERED;
  const Arch *arch = o->chip || !done ? api_chip(c, o->chip ? o->chip : arch_default_chip) : c->arch;
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
  if (ir_count_says(k)) return c->valid = lower_says(c, o);
  return c->valid = pass_run_all(&c->pass, o->last, observe, c) && c->diags.n_errors == before;
}

const char *tl_text_after(TlContext *c, const char *pass) {
  ENTER(c, false, NULL);
  for (uint32_t i = 0; i < c->stages.len; i++)
    if (c->stages.data[i].text && !strcmp(c->stages.data[i].pass, pass)) return c->stages.data[i].text;
  if (is_pass(pass)) {
    Diag *g = diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, "the text after pass '%s' is not kept", pass);
    diag_fix(&c->diags, g,
             "ask before the kernel is lowered, and for passes in the order in which they run (tlc passes)");
  } else {
    no_such_pass(c, pass);
  }
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

/* ---- the program and its parameters ------------------------------------------------------------------------ */

const char *tl_program_json(TlContext *c) {
  ENTER(c, false, NULL);
  if (!c->module && !api_loaded(c, "the program")) return NULL;
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
