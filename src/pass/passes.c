/* passes.c - THE table of passes, in order, and the runner. Each row says what it needs, gives and breaks; the
 * runner refuses a row whose needs are not met and verifies the IR after each. */
#include "pass.h"

#include <string.h>
#include <time.h>

const Pass pass_table[] = {
    {"jumps", pass_jumps, 0, 0, 0, "a continue becomes the other branch of its condition"},
    {"parallel", pass_parallel, 0, FACT_TILES, 0,
     "T.Parallel to tile ops: matrix products, vector expressions, reductions"},
    {"scalars", pass_scalars, FACT_TILES, 0, 0, "scalars that both sides may need leave the memories of one side"},
    {"bridge", pass_bridge, FACT_TILES, 0, 0, "buffers that cube and vector cores both work on get a twin"},
    {"scope", pass_scope, FACT_TILES, FACT_SPACES, 0, "a memory and a layout for every buffer"},
    {"split", pass_split, FACT_SPACES, FACT_SIDES, 0, "statements to the cube and the vector side"},
    {"pipeline", pass_pipeline, FACT_SIDES, 0, 0,
     "several buffers for what a pipelined loop loads and stores; the sides on different iterations"},
    {"lower", pass_lower, FACT_SIDES, 0, 0, "copies to DMA with tails, products to L0 tiles and mmad"},
    {"legalize", pass_legalize, FACT_SIDES, FACT_LOWERED, 0, "vector ops to forms the vector unit executes"},
    {"memplan", pass_memplan, FACT_LOWERED, FACT_ADDRESSES, 0, "addresses from loop-aware live ranges",
     pass_legalize_tighter},
    {"sync", pass_sync, FACT_ADDRESSES, FACT_SYNCED, 0, "flags and barriers from byte ranges"},
};
const int pass_count = (int)TL_COUNT(pass_table);

void pass_remark(PassCtx *p, const char *pass, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(p->arena, fmt, ap);
  va_end(ap);
  Remark r = {pass, loc, text};
  vec_push(p->arena, &p->remarks, r);
}

void pass_left_out(PassCtx *p, const IrStmt *s, const char *why) {
  diag_add(p->diags, DIAG_SAY_LEFT_OUT, s->loc, "this %s is left out: %s", s->op == ST_PRINT ? "print" : "assertion",
           why);
}

void pass_drop_say(PassCtx *p, IrStmt *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(p->arena, fmt, ap);
  va_end(ap);
  pass_left_out(p, s, text);
  ir_remove(s);
}

static void look_for_unreachable(IrExpr *e, void *user) {
  bool reached = e->op != EX_LOAD || e->buf->space == SPACE_GM || e->buf->space == SPACE_UB;
  if (!reached) *(const IrBuf **)user = e->buf;
}
static void look_in_say(IrExpr **e, void *user) { ir_walk_expr(*e, look_for_unreachable, user); }

/* Elements of a memory of the cube: whole regions of it are shown, but the scalar unit does not read it. */
static void drop_unreachable(PassCtx *p, IrBlock *b) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    drop_unreachable(p, &s->body);
    drop_unreachable(p, &s->alt);
    const IrBuf *in = NULL;
    if (ir_is_say(s)) ir_say_exprs(s, look_in_say, &in);
    if (in)
      pass_drop_say(p, s, "the scalar unit does not reach %%%s in %s; a slice is shown: T.print(x[0:1, 0:4])", in->name,
                    space_info[in->space].name);
  }
}

/* What is printed before and after the launch stands aside while a pass runs. */
static void set_aside(IrKernel *k, IrBlock *aside) {
  for (IrStmt *s = k->body.first, *next; s; s = next) {
    next = s->next;
    if (!ir_is_say(s) || !s->say.when) continue;
    ir_remove(s);
    ir_append(aside, s);
  }
}

static void put_back(IrKernel *k, IrBlock *aside) {
  while (aside->first) {
    IrStmt *s = aside->first;
    ir_remove(s);
    ir_append(&k->body, s);
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void has_run(IrKernel *k, const Pass *pass) { k->facts = (k->facts & ~pass->breaks) | pass->gives; }

/* Where a text that an earlier run printed goes on; k->facts: what holds there. -1: it names no pass. */
static int resume_at(IrKernel *k) {
  k->facts = 0;
  if (!k->stage) return 0;
  for (int i = 0; i < pass_count; i++) {
    has_run(k, &pass_table[i]);
    if (!strcmp(k->stage, pass_table[i].name)) return i + 1;
  }
  k->facts = 0;
  return -1;
}

static int resume(PassCtx *p) {
  int at = resume_at(p->k);
  if (at >= 0) return at;
  diag_add(p->diags, DIAG_NO_SUCH_PASS, p->k->loc, "the text stands after pass '%s', which does not exist",
           p->k->stage);
  return -1;
}

bool pass_verify(IrModule *m, Diags *d) {
  resume_at(m->kernel);
  return ir_verify(m, d);
}

/* Runs a pass, again as long as something relieves it. The errors of a run that is repeated are forgotten; when all was
 * in vain, those of the first run stay, or of the last one, if it cured some. */
static bool run_pass(PassCtx *p, const Pass *pass) {
  uint32_t errors = p->diags->n_errors, known = p->diags->list.len, remarks = p->remarks.len;
  if (pass->run(p) && p->diags->n_errors == errors) return true;
  if (!pass->relieve) return false;
  uint32_t n_errors = p->diags->n_errors, n = p->diags->list.len;
  Diag *first = arena_array(p->arena, Diag, n - known + 1);
  if (n > known) memcpy(first, &p->diags->list.data[known], sizeof *first * (n - known));
  while (pass->relieve(p)) {
    p->diags->list.len = known;
    p->diags->n_errors = errors;
    if (pass->run(p) && p->diags->n_errors == errors) return true;
  }
  p->remarks.len = remarks;
  if (p->diags->n_errors < n_errors) return false;
  if (n > known) memcpy(&p->diags->list.data[known], first, sizeof *first * (n - known));
  p->diags->list.len = n;
  p->diags->n_errors = n_errors;
  return false;
}

/* Before statements have sides, an invalid program may be the user's fault: memories do not suit the blocks that were
 * written for one kind of core, or a condition became the bound of an index, which is outside for certain now. */
static bool only_bounds(const Diags *d, uint32_t from) {
  bool only = true;
  for (uint32_t i = from; i < d->list.len; i++) {
    DiagCode code = d->list.data[i].code;
    only &= diag_severity(code) != SEV_ERROR || code == DIAG_RULE_REGION_OUTSIDE || code == DIAG_RULE_ELEMENT_OUTSIDE;
  }
  return only;
}

bool pass_run_all(PassCtx *p, const char *last, PassObserver obs, void *user) {
  if (p->k->level == LEVEL_LOWERED) return true;
  p->n_user_bufs = p->k->bufs.len;
  int first = resume(p);
  if (first < 0) return false;
  bool by_hand = ir_has_sides(p->k);
  for (int i = first; i < pass_count; i++) {
    const Pass *pass = &pass_table[i];
    if ((p->k->facts & pass->needs) != pass->needs) {
      diag_add(p->diags, DIAG_INTERNAL, p->k->loc, "pass '%s' runs before what it needs", pass->name);
      return false;
    }
    double t0 = now();
    IrBlock aside = {0};
    set_aside(p->k, &aside);
    if (pass->gives & FACT_LOWERED) drop_unreachable(p, &p->k->body);
    if (!run_pass(p, pass)) return false;
    put_back(p->k, &aside);
    ir_renumber(p->k);
    p->k->stage = pass->name;
    double seconds = now() - t0;
    has_run(p->k, pass);
    if (p->k->facts & FACT_SYNCED) {
      p->k->level = LEVEL_LOWERED;
      p->k->chip = p->arch->name;
    }
    uint32_t known = p->diags->list.len;
    if (!ir_verify(p->module, p->diags)) {
      bool theirs = !(p->k->facts & FACT_SIDES) && (by_hand || only_bounds(p->diags, known));
      if (!theirs)
        diag_add(p->diags, DIAG_INTERNAL, p->k->loc, "the IR is not valid after pass '%s'", pass->name);
      return false;
    }
    if (obs && !obs(pass, p, seconds, user)) return true;
    if (last && !strcmp(last, pass->name)) return true;
  }
  return true;
}
