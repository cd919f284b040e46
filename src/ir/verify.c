/* verify.c - the numbered rules of docs/ir.md.
 *
 * One walk over the kernel in program order. Going in, names are opened; leaving a block closes what it declared, so
 * "known here" is one flag a name. Each statement passes the rules of its kind, each op those of its table row, and at
 * the lowered level those of the hardware instruction it stands for.
 *
 * A rule speaks only of what is certain. Sizes are often symbolic, so a rule that compares numbers does so when both
 * are constants (or differ by a constant) and is silent otherwise; the simulator checks the rest. For bounds there are
 * two proofs: the interval of an offset lies outside for all values, or an end of the interval lies outside and is
 * reached. The second needs an `exact` expression (every index in it once, with constant bounds) in a place that
 * runs for all values of these indices.
 *
 * Breaks of the data model (which the text cannot express, only a faulty pass) are reported as TL0002. */
#include "ir.h"

#include <math.h>
#include <string.h>

typedef struct {
  const IrModule *m;
  IrKernel *k;
  Diags *d;
  Arena *a;
  bool lowered;
  bool *var_open, *buf_open, *buf_written; /* by id */
  Vec(uint32_t) opened;                    /* id << 1 | is_buf: closed when the block ends */
  const IrStmt *side, *par;                /* enclosing cube or vector, parallel */
  const IrStmt *at;                        /* the statement being looked at; NULL: the head of the kernel */
  Loc head;                                /* the parameter or grid index being looked at */
  int loops;                               /* enclosing for and while, within side and parallel */
  int inner;                               /* enclosing statements with a body, sides not counted */
  Vec(IrExpr *) conds;                     /* of the enclosing ifs that speak of indices and parameters only */
  int never;                               /* > 0: what stands here never happens: nothing is out of bounds */
  int maybe;                               /* > 0: the place may not run, for other reasons than these */
  int par_maybe;                           /* `maybe` of the place where the parallel stands */
  Vec(IrBuf *) refused;                    /* whose declaration has an error; what follows from it is not told */
  Diag untold;
  int lazy; /* > 0: inside a select, && or ||, whose condition may exist to keep it out */
} Verifier;

static void check_block(Verifier *v, IrBlock *b);

/* ---- reporting ---------------------------------------------------------------------------------------------- */

static Loc where(const Verifier *v) { return v->at ? v->at->loc : v->head; }

/* Does a statement speak of a buffer whose declaration is refused? */
static bool follows(const Verifier *v, const IrStmt *s) {
  for (uint32_t i = 0; i < v->refused.len && s && !s->body.first; i++)
    if (s->op == ST_ALLOC ? s->alloc.buf->view && ir_root(s->alloc.buf) == ir_root(v->refused.data[i])
                          : ir_stmt_names((IrStmt *)s, v->refused.data[i]))
      return true;
  return false;
}

/* Notes a buffer when errors were found since there were `before`. */
static void refuse_since(Verifier *v, IrBuf *b, uint32_t before) {
  if (b && v->d->n_errors > before) vec_push(v->a, &v->refused, b);
}

/* A warning that is in the list already (the IR is verified after every pass) is not repeated. */
static Diag *report(Verifier *v, DiagCode code, const char *fmt, ...) {
  if (follows(v, v->at)) return &v->untold;
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(v->a, fmt, ap);
  va_end(ap);
  for (uint32_t i = 0; diag_severity(code) != SEV_ERROR && i < v->d->list.len; i++) {
    Diag *g = &v->d->list.data[i];
    if (g->code == code && !strcmp(g->text, text)) return g;
  }
  return diag_add(v->d, code, where(v), "%s", text);
}

#define bad(v, rule, ...) report(v, DIAG_RULE_##rule, __VA_ARGS__)

static const char *expr_text(Verifier *v, const IrExpr *e) { return ir_expr_str(v->a, e); }
static const char *region_text(Verifier *v, const IrRegion *r) { return ir_region_str(v->a, r); }
static const char *shape_text(Verifier *v, IrExpr *const *ext, int n) { return ir_shape_str(v->a, ext, n); }

static const char *stmt_word(const IrStmt *s) {
  static const char *const words[ST_COUNT - OP_COUNT] = {
      "alloc",  "let",      "var",       "assignment", "store",     "for",        "parallel", "if",    "while",
      "cube",   "vector",   "set_flag",  "wait_flag",  "barrier",   "cross_set",  "cross_wait", "sync_all", "break",
      "continue", "print", "assert"};
  return s->op < OP_COUNT ? op_info[s->op].name : words[s->op - OP_COUNT];
}

static const char *tname(int t) { return dtype_info[t].name; }
static const char *sname(const IrBuf *b) { return space_info[b->space].name; }
static long long ll(int64_t v) { return (long long)v; }

/* ---- what is certain of numbers ----------------------------------------------------------------------------- */

/* Some rules hold from the pass on that establishes them. */
static bool holds(const Verifier *v, uint32_t fact) { return v->lowered || v->k->facts & fact; }

static bool is_const(const IrExpr *e, int64_t *out) {
  if (e->op == EX_INT) *out = e->i;
  return e->op == EX_INT;
}

/* Are both ends of ir_range(e) reached? Yes when every index occurs once and has constant bounds. */
static bool exact(const Verifier *v, const IrExpr *e, const IrVar **seen, int *n) {
  enum { MOST = 8 };
  switch (e->op) {
  case EX_INT: return true;
  case EX_ADD:
  case EX_SUB: return exact(v, e->arg[0], seen, n) && exact(v, e->arg[1], seen, n);
  case EX_MUL: return e->arg[1]->op == EX_INT && exact(v, e->arg[0], seen, n);
  case EX_VAR: break;
  default: return false;
  }
  const IrVar *x = e->var;
  for (int i = 0; i < *n; i++)
    if (seen[i] == x) return false;
  if (*n == MOST) return false;
  seen[(*n)++] = x;
  if (x->kind == VAR_VID) return true;
  if (x->kind == VAR_GRID) {
    for (uint32_t i = 0; i < v->k->grid.len; i++)
      if (v->k->grid.data[i] == x) return ir_is_const(v->k->grid_ext.data[i]) && v->k->grid_ext.data[i]->i > 0;
    return false;
  }
  if (x->kind != VAR_LOOP || !x->def) return false;
  if (x->def->op == ST_PARALLEL) {
    for (int i = 0; i < x->def->par.n; i++)
      if (x->def->par.vars[i] == x) return ir_is_const(x->def->par.ext[i]) && x->def->par.ext[i]->i > 0;
    return false;
  }
  return ir_is_const(x->def->loop.lo) && ir_is_const(x->def->loop.hi) && ir_is_int(x->def->loop.step, 1) &&
         x->def->loop.hi->i > x->def->loop.lo->i;
}

typedef struct { const IrVar *seen[8]; int n; bool found; } Mention;

static void find_mention(IrExpr *e, void *user) {
  Mention *m = user;
  for (int i = 0; i < m->n; i++) m->found |= e->op == EX_VAR && e->var == m->seen[i];
}

static void find_opaque(IrExpr *e, void *user) {
  bool *opaque = user;
  *opaque |= e->op == EX_LOAD || (e->op == EX_VAR && (e->var->kind == VAR_LET || e->var->kind == VAR_MUT));
}

/* What only the indices of a parallel decide is as certain as a region: the loop stands for a tile op. */
static bool is_exact(const Verifier *v, const IrExpr *e) {
  Mention m = {.n = 0};
  if (!exact(v, e, m.seen, &m.n)) return false;
  bool tile = v->par;
  for (int i = 0; i < m.n; i++) tile &= m.seen[i]->kind == VAR_LOOP && m.seen[i]->def == v->par;
  if (v->maybe > (tile ? v->par_maybe : 0)) return false;
  for (uint32_t i = 0; i < v->conds.len; i++) ir_walk_expr(v->conds.data[i], find_mention, &m);
  return !m.found;
}

/* Is off .. off + ext outside 0 .. size for certain? *reach: how far it goes. */
static bool outside(Verifier *v, IrExpr *off, IrExpr *ext, IrExpr *size, int64_t *reach) {
  if (v->never) return false;
  IrExpr *end = ir_binary(v->k, EX_ADD, off, ext), *over = ir_binary(v->k, EX_SUB, end, size);
  IrRange r = ir_range(v->k, off), o = ir_range(v->k, over), e = ir_range(v->k, end);
  if (ir_range(v->k, ext).lo <= 0) return false; /* may be empty: then nothing is touched */
  if (r.hi < 0 || (r.lo < 0 && r.lo != INT64_MIN && is_exact(v, off))) {
    *reach = r.hi < 0 ? r.hi : r.lo;
    return true;
  }
  if ((o.lo > 0 && o.lo != INT64_MAX) || (o.hi > 0 && o.hi != INT64_MAX && is_exact(v, over))) {
    *reach = o.lo > 0 ? e.lo : e.hi;
    return true;
  }
  return false;
}

/* ---- names and expressions ---------------------------------------------------------------------------------- */

static void no_scalar(Verifier *v, const char *what, DType t) {
  if (dtype_values(t) == 1) return;
  Diag *g = bad(v, PACKED, "%s is a scalar of %s, which holds two int4 in a byte", what, dtype_info[t].name);
  diag_fix(v->d, g, "use i8 or i32 for one value");
}

static void open_var(Verifier *v, const IrVar *x) {
  if (x->id == 0 || x->id >= v->k->vars.len || v->k->vars.data[x->id] != x) {
    report(v, DIAG_INTERNAL, "variable %%%s is not in the kernel's table", x->name);
    return;
  }
  no_scalar(v, arena_printf(v->a, "%%%s", x->name), x->type);
  v->var_open[x->id] = true;
  vec_push(v->a, &v->opened, x->id << 1);
}

static void open_buf(Verifier *v, const IrBuf *b) {
  if (b->id == 0 || b->id >= v->k->bufs.len || v->k->bufs.data[b->id] != b) {
    report(v, DIAG_INTERNAL, "buffer %%%s is not in the kernel's table", b->name);
    return;
  }
  v->buf_open[b->id] = true;
  vec_push(v->a, &v->opened, b->id << 1 | 1);
}

static void close_to(Verifier *v, uint32_t mark) {
  while (v->opened.len > mark) {
    uint32_t x = v->opened.data[--v->opened.len];
    if (x & 1) v->buf_open[x >> 1] = false;
    else v->var_open[x >> 1] = false;
  }
}

static void use_var(Verifier *v, const IrVar *x) {
  if (x->id >= v->k->vars.len || !v->var_open[x->id]) {
    Diag *g = bad(v, NAME_SCOPE, "%%%s is used outside the block that declares it", x->name);
    diag_other(v->d, g, x->loc, "%%%s is declared here", x->name);
    diag_fix(v->d, g, "declare %%%s as `var` before the outer block and assign it inside", x->name);
  } else if (x->kind == VAR_VID && v->side && v->side->op == ST_CUBE) {
    Diag *g = bad(v, VID_CUBE, "%%%s numbers the vector cores of a block and is used on the cube side", x->name);
    diag_fix(v->d, g, "split the work by %%%s inside `vector` only", x->name);
  }
}

static bool use_buf(Verifier *v, const IrBuf *b) {
  if (b->id < v->k->bufs.len && v->buf_open[b->id]) return true;
  Diag *g = bad(v, NAME_SCOPE, "%%%s is used outside the block that allocates it", b->name);
  diag_other(v->d, g, b->loc, "%%%s is allocated here", b->name);
  diag_fix(v->d, g, "move the allocation of %%%s before the outer block", b->name);
  return false;
}

static const char *side_word(char side) { return side == 'c' ? "cube" : "vector"; }

static void side_of_buf(Verifier *v, const IrBuf *b) {
  char side = space_info[b->space].side;
  if (!ir_wrong_side(v->side, side)) return;
  Diag *g = bad(v, SIDE_PIPE, "%%%s is in %s, a memory of the %s core, and is used inside `%s`", b->name, sname(b),
                side_word(side), stmt_word(v->side));
  diag_fix(v->d, g, "move the statement into the `%s` block", side_word(side));
}

static void check_expr(Verifier *v, IrExpr *e);

typedef struct { const IrStmt *par; bool found; } Turns;

static void find_turn(IrExpr *e, void *user) {
  Turns *t = user;
  if (e->op != EX_VAR || !e->var->def || t->found) return;
  if (e->var->kind == VAR_LET) ir_walk_expr(e->var->def->set.value, find_turn, t);
  else t->found |= e->var->kind == VAR_LOOP && e->var->def == t->par;
}

/* Does an element of GM become a piece of a copy, which keeps to the end of the tensor? Inside a parallel, if its
 * indices choose it; else it is a scalar. */
static bool element_clamps(const Verifier *v, const IrBuf *b, IrExpr **idx) {
  Turns t = {v->par, false};
  for (int i = 0; v->par && b->space == SPACE_GM && i < b->rank; i++) ir_walk_expr(idx[i], find_turn, &t);
  return t.found;
}

static void check_element(Verifier *v, IrBuf *b, IrExpr **idx) {
  for (int i = 0; i < b->rank; i++) check_expr(v, idx[i]);
  if (!use_buf(v, b)) return;
  side_of_buf(v, b);
  if (holds(v, FACT_LOWERED) && b->space != SPACE_UB && b->space != SPACE_GM) {
    Diag *g = bad(v, ELEMENT_SPACE, "an element of %%%s is accessed; the scalar unit does not reach %s", b->name,
                  sname(b));
    diag_fix(v->d, g, "move the tile to UB or GM first");
  }
  if (dtype_values(b->type) > 1) {
    Diag *g = bad(v, PACKED, "an element of %%%s is accessed, whose dtype %s holds two int4 in a byte", b->name,
                  dtype_info[b->type].name);
    diag_fix(v->d, g, "convert the tile to f16 first (T.copy to a float16 tile)");
    return;
  }
  bool clamps = element_clamps(v, b, idx);
  for (int i = 0; i < b->rank && !v->lazy; i++) {
    int64_t reach;
    if (!outside(v, idx[i], ir_i32(v->k, 1), b->shape[i], &reach) || (clamps && reach >= 0)) continue;
    const char *far = arena_printf(v->a, "%lld", ll(reach < 0 ? reach : reach - 1));
    if (reach >= 0 && !ir_is_const(b->shape[i])) far = expr_text(v, idx[i]);
    Diag *g = bad(v, ELEMENT_OUTSIDE, "index %d of %%%s%s reaches %s; the dimension has %s", i, b->name,
                  shape_text(v, idx, b->rank), far, expr_text(v, b->shape[i]));
    diag_fix(v->d, g, "keep `%s` between 0 and `%s`, or make %%%s larger", expr_text(v, idx[i]),
             expr_text(v, ir_binary(v->k, EX_SUB, b->shape[i], ir_i32(v->k, 1))), b->name);
    return;
  }
}

static void check_expr(Verifier *v, IrExpr *e) {
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT: return;
  case EX_VAR: use_var(v, e->var); return;
  case EX_LOAD: check_element(v, e->buf, e->idx); return;
  default: break;
  }
  no_scalar(v, arena_printf(v->a, "`%s`", expr_text(v, e)), e->type);
  bool lazy = e->op == EX_SELECT || e->op == EX_LAND || e->op == EX_LOR;
  for (int i = 0; i < e->n; i++) {
    v->maybe += lazy && i;
    v->lazy += lazy && i;
    check_expr(v, e->arg[i]);
    v->maybe -= lazy && i;
    v->lazy -= lazy && i;
  }
  IrRange c = e->n == 2 && !dtype_is_float(e->type) ? ir_range(v->k, e->arg[1]) : IR_OPEN;
  if ((e->op == EX_FDIV || e->op == EX_MOD) && c.lo == 0 && c.hi == 0) {
    Diag *g = bad(v, DIV_ZERO, "`%s` divides by 0", expr_text(v, e));
    diag_fix(v->d, g, "use a divisor that is not 0");
  }
  if ((e->op == EX_SHL || e->op == EX_SHR) && c.lo == c.hi && (c.lo < 0 || c.lo >= dtype_info[e->type].bits)) {
    Diag *g = bad(v, SHIFT_RANGE, "`%s` shifts %s by %lld", expr_text(v, e), tname(e->type), ll(c.lo));
    diag_fix(v->d, g, "shift by 0 to %d", dtype_info[e->type].bits - 1);
  }
}

static void check_int(Verifier *v, IrExpr *e, const char *what) {
  if (dtype_is_float(e->type)) report(v, DIAG_INTERNAL, "%s `%s` has dtype %s", what, expr_text(v, e), tname(e->type));
  check_expr(v, e);
}

/* ---- regions ------------------------------------------------------------------------------------------------ */

/* A source op clamps its GM side at the end of the tensor, a load that says its pad also at the start. False after an
 * error. */
static bool check_clamped(Verifier *v, const IrRegion *r, int i, bool *warned) {
  if (v->never) return true;
  const IrBuf *b = r->buf;
  IrRange start = ir_range(v->k, r->off[i]), past = ir_range(v->k, ir_binary(v->k, EX_SUB, r->off[i], b->shape[i]));
  bool padded = v->at->op == OP_COPY && r == &v->at->args[0].region && ir_attr(v->at, ATTR_PAD);
  if (!padded && start.lo < 0 && start.lo != INT64_MIN && (start.hi < 0 || is_exact(v, r->off[i]))) {
    Diag *g = bad(v, REGION_OUTSIDE, "region %s starts at element %lld of dimension %d", region_text(v, r),
                  ll(start.lo), i);
    diag_fix(v->d, g,
             "start at 0 or later, or give the load a pad value: without one only the end of a tensor may be passed");
    return false;
  }
  if (start.lo > INT32_MAX - max_i64(ir_range(v->k, r->ext[i]).lo, 0) && start.lo != INT64_MAX) {
    Diag *g = bad(v, REGION_OUTSIDE, "region %s starts at element %lld of dimension %d, and an index is i32",
                  region_text(v, r), ll(start.lo), i);
    diag_fix(v->d, g, "check the offset `%s`", expr_text(v, r->off[i]));
    return false;
  }
  if (*warned || ir_is_int(b->shape[i], 0) || past.lo < 0 || past.lo == INT64_MAX) return true;
  Diag *g = bad(v, GM_OUTSIDE, "region %s does not touch dimension %d of %%%s, which has %s elements",
                region_text(v, r), i, b->name, expr_text(v, b->shape[i]));
  diag_fix(v->d, g, "check the offset `%s`", expr_text(v, r->off[i]));
  *warned = true;
  return true;
}

/* Once statements stand on their sides, passes cut tiles to pieces, and an empty piece is only an instruction that does
 * nothing; sync leaves none. Instructions, unlike source ops, do not clamp. */
static void check_region_bounds(Verifier *v, const IrRegion *r) {
  const IrBuf *b = r->buf;
  bool pieces = !v->lowered && v->k->cores != CORES_UNSET;
  bool clamps = b->space == SPACE_GM && !v->lowered && !(ir_is_op(v->at) && op_info[v->at->op].level == 'l');
  bool warned = false;
  for (int i = 0; i < b->rank; i++) {
    int64_t reach, c;
    if (!pieces && !v->never && is_const(r->ext[i], &c) && c < 1) {
      Diag *g = bad(v, REGION_EMPTY, "region %s has %lld elements in dimension %d", region_text(v, r), ll(c), i);
      diag_fix(v->d, g, "use an extent of at least 1");
      return;
    }
    if (clamps) {
      if (!check_clamped(v, r, i, &warned)) return;
      continue;
    }
    if (!outside(v, r->off[i], r->ext[i], b->shape[i], &reach)) continue;
    Diag *g = bad(v, REGION_OUTSIDE, "region %s reaches element %lld in dimension %d; %%%s has %s elements there",
                  region_text(v, r), ll(reach < 0 ? reach : reach - 1), i, b->name, expr_text(v, b->shape[i]));
    diag_fix(v->d, g, "use a smaller offset or extent, or allocate %%%s larger", b->name);
    return;
  }
}

static void check_region(Verifier *v, const IrRegion *r) {
  for (int i = 0; i < r->buf->rank; i++) {
    check_int(v, r->off[i], "offset");
    check_int(v, r->ext[i], "extent");
  }
  if (!use_buf(v, r->buf)) return;
  check_region_bounds(v, r);
}

/* ---- statements --------------------------------------------------------------------------------------------- */

static int n_operands(const IrStmt *s) { return ir_n_in(s->op) + (int)strlen(op_info[s->op].out); }
static bool check_row(Verifier *v, const IrStmt *s) {
  const OpInfo *op = &op_info[s->op];
  if (s->n_args != n_operands(s)) {
    report(v, DIAG_INTERNAL, "'%s' has %d operands, its table row %d", op->name, s->n_args, n_operands(s));
    return false;
  }
  for (int i = 0; i < s->n_args; i++) {
    char want = i < ir_n_in(s->op) ? op->in[i] : 'r';
    if (want != 'e' && (want == 's') != (s->args[i].kind == ARG_SCALAR)) {
      report(v, DIAG_INTERNAL, "operand %d of '%s' has the wrong kind", i, op->name);
      return false;
    }
  }
  for (int i = 0; i < s->n_attrs; i++)
    if (!(op->attrs >> s->attrs[i].key & 1))
      report(v, DIAG_INTERNAL, "'%s' takes no attribute '%s'", op->name, attr_info[s->attrs[i].key].name);
  return true;
}

static void check_op(Verifier *v, const IrStmt *s) {
  if (v->par) {
    Diag *g = bad(v, PARALLEL_BODY, "'%s' works on tiles and stands inside `parallel`", op_info[s->op].name);
    diag_other(v->d, g, v->par->loc, "the parallel loop");
    diag_fix(v->d, g, "move it out of the loop, or write it with elements");
  }
  if (!check_row(v, s)) return;
  if (holds(v, FACT_LOWERED) && op_info[s->op].level == 's') {
    Diag *g = bad(v, LOWERED_OP, "'%s' is no instruction of the chip", op_info[s->op].name);
    diag_fix(v->d, g, "leave `%s` out of the kernel's head and let the passes lower it",
             v->lowered ? "lowered" : "after");
    return;
  }
  uint32_t before = v->d->n_errors;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind == ARG_SCALAR) check_expr(v, s->args[i].scalar);
    else check_region(v, &s->args[i].region);
    if (i >= ir_n_in(s->op)) v->buf_written[ir_root(s->args[i].region.buf)->id] = true;
  }
  for (int i = 0; i < s->n_attrs; i++)
    if (attr_info[s->attrs[i].key].value == 'e') check_expr(v, s->attrs[i].value);
  if (v->d->n_errors == before && !follows(v, s)) ir_verify_op(v->k, v->d, s, v->side);
}

static void check_layout(Verifier *v, const IrBuf *b) {
  bool nz = b->layout == LAYOUT_NZ, legal = b->layout == LAYOUT_ND;
  const char *fix = "leave the layout out: the passes choose it with the memory";
  switch (b->space) {
  case SPACE_UB: fix = "UB holds rows: leave the layout out"; break;
  case SPACE_L1:
  case SPACE_L0C:
    legal = nz || (legal && !holds(v, FACT_SPACES));
    fix = "use nz";
    break;
  case SPACE_L0A:
    legal = nz || b->layout == LAYOUT_ZZ || (legal && !holds(v, FACT_SPACES));
    fix = "use zz";
    break;
  case SPACE_L0B:
    legal = b->layout == LAYOUT_ZN || (legal && !holds(v, FACT_SPACES));
    fix = "use zn";
    break;
  default: break;
  }
  if (b->rank < 2 && (b->layout != LAYOUT_ND || (space_info[b->space].side == 'c' && holds(v, FACT_SPACES)))) {
    legal = false;
    fix = "what the cube holds lies in fractals, of two dimensions: [1, n] is a row";
  }
  if (legal) return;
  const char *what = b->rank < 2 ? "one dimension" : arena_printf(v->a, "layout %s", layout_name[b->layout]);
  Diag *g = bad(v, LAYOUT, "%%%s %s in %s has %s", b->name, shape_text(v, b->shape, b->rank), sname(b), what);
  diag_fix(v->d, g, "%s", fix);
}

static void check_address(Verifier *v, const IrBuf *b) {
  if (b->addr == -1) {
    if (!holds(v, FACT_ADDRESSES) || b->space == SPACE_GM) return;
    Diag *g = bad(v, ADDR_MISSING, "%%%s in %s has no address", b->name, sname(b));
    diag_fix(v->d, g, "write `at` with a byte address, or let the memplan pass choose");
    return;
  }
  if (!space_info[b->space].physical) {
    Diag *g = bad(v, ADDR_SPACE, "%%%s has address %lld but its memory (%s) is not decided", b->name, ll(b->addr),
                  sname(b));
    diag_fix(v->d, g, "allocate it in ub, l1, l0a, l0b or l0c");
    return;
  }
  int align = b->space == SPACE_L0C ? 1024 : b->space == SPACE_L0A || b->space == SPACE_L0B ? 512 : 32;
  if (b->addr >= 0 && b->addr % align == 0) return;
  Diag *g = bad(v, ADDR_ALIGN, "%%%s has address %lld; %s is addressed in steps of %d bytes", b->name, ll(b->addr),
                sname(b), align);
  diag_fix(v->d, g, "use %lld", ll(b->addr < 0 ? 0 : b->addr > INT64_MAX - align ? 0 : round_up(b->addr, align)));
}

/* A view is bytes of another buffer: the same memory, no more of them, and row-major. */
static void check_view(Verifier *v, const IrBuf *b) {
  IrBuf *of = b->view;
  if (!use_buf(v, of)) return;
  bool moved = holds(v, FACT_ADDRESSES) && b->space != SPACE_GM && (of->space != SPACE_UB || of->addr != b->addr);
  if (of->space != b->space || moved) {
    Diag *g = bad(v, VIEW_PLACE, "%%%s in %s is a view of %%%s in %s%s", b->name, sname(b), of->name, sname(of),
                  of->space == b->space && of->addr != b->addr ? " and has another address" : "");
    diag_fix(v->d, g, "a view and what it views are one place, in ub or in gm");
    return;
  }
  int64_t have = ir_buf_bytes(of), want = ir_buf_bytes(b);
  if (have < 0 || want < 0 || want <= have) return;
  Diag *g = bad(v, VIEW_SIZE, "%%%s %s of %s takes %lld bytes, %%%s has %lld", b->name,
                shape_text(v, b->shape, b->rank), tname(b->type), ll(want), of->name, ll(have));
  diag_fix(v->d, g, "make the view smaller, or %%%s larger", of->name);
}

/* Element numbers are i32 in the IR. */
static bool too_many(const IrBuf *b, int64_t *elements) {
  *elements = 1;
  for (int i = 0; i < b->rank; i++) {
    int64_t c = 1;
    if (is_const(b->shape[i], &c) && c < 1) return false;
    if (__builtin_mul_overflow(*elements, c, elements)) *elements = INT64_MAX;
  }
  return *elements > INT32_MAX;
}

static void size_term(IrExpr *e, void *user) {
  const IrExpr **other = user;
  if (e->op == EX_LOAD || (e->op == EX_VAR && e->var->kind != VAR_PARAM)) *other = e;
}

static void check_size(Verifier *v, IrExpr *e, const char *of) {
  IrExpr *other = NULL;
  ir_walk_expr(e, size_term, &other);
  if (other) {
    Diag *g = bad(v, SIZE_TERMS, "the size `%s` of %s speaks of `%s`", expr_text(v, e), of, expr_text(v, other));
    diag_fix(v->d, g, "use constants and scalar parameters");
    return;
  }
  check_expr(v, e);
  if (e->type == DT_I32 || e->type == DT_I64) return;
  Diag *g = bad(v, SIZE_DTYPE, "the size `%s` of %s has dtype %s", expr_text(v, e), of, tname(e->type));
  diag_fix(v->d, g, "make the parameter i32 or i64");
}

static const char *count_text(const Verifier *v, int64_t elements) {
  return elements < INT64_MAX ? arena_printf(v->a, "%lld", ll(elements)) : "2^63 or more";
}

static void check_alloc(Verifier *v, const IrStmt *s) {
  IrBuf *b = s->alloc.buf;
  uint32_t before = v->d->n_errors;
  if (b->space == SPACE_GM && !b->view) {
    Diag *g = bad(v, ALLOC_GM, "%%%s is allocated in gm", b->name);
    diag_fix(v->d, g, "make it a parameter: `%%%s: gm %s%s workspace`", b->name, tname(b->type),
             shape_text(v, b->shape, b->rank));
  }
  for (int i = 0; i < b->rank; i++) {
    check_int(v, b->shape[i], "extent");
    if (b->space == SPACE_GM) {
      check_size(v, b->shape[i], arena_printf(v->a, "%%%s", b->name));
      continue;
    }
    if (!ir_is_const(b->shape[i])) {
      Diag *g = bad(v, LOCAL_DYNAMIC, "dimension %d of %%%s is `%s`, which is known only at launch", i, b->name,
                    expr_text(v, b->shape[i]));
      diag_fix(v->d, g, "allocate for the largest tile and use a region of it");
      break;
    }
    if (b->shape[i]->i < 1) {
      Diag *g = bad(v, LOCAL_EXTENT, "%%%s has %lld elements in dimension %d", b->name, ll(b->shape[i]->i), i);
      diag_fix(v->d, g, "use an extent of at least 1");
      break;
    }
  }
  int64_t elements;
  if (too_many(b, &elements)) {
    Diag *g = bad(v, LOCAL_EXTENT, "%%%s %s has %s elements, more than %d", b->name,
                  shape_text(v, b->shape, b->rank), count_text(v, elements), INT32_MAX);
    diag_fix(v->d, g, "work in parts: smaller extents and a loop");
  }
  if (holds(v, FACT_SPACES) && !space_info[b->space].physical) {
    Diag *g = bad(v, SPACE_PHYSICAL, "%%%s is in %s, which is no memory of the chip", b->name, sname(b));
    diag_fix(v->d, g, "use ub, l1, l0a, l0b or l0c");
  } else {
    check_address(v, b);
  }
  check_layout(v, b);
  if (b->view) check_view(v, b);
  if (b->id < v->k->bufs.len && v->buf_open[b->id]) report(v, DIAG_INTERNAL, "%%%s is allocated twice", b->name);
  open_buf(v, b);
  refuse_since(v, b, before);
}

static void check_set(Verifier *v, const IrStmt *s) {
  static const char *const kinds[] = {"a parameter", "a block index", "the vector core's number",
                                      "a loop index", "a `let`", ""};
  check_expr(v, s->set.value);
  IrVar *x = s->set.var;
  if (s->set.value->type != x->type)
    report(v, DIAG_INTERNAL, "%%%s of dtype %s gets a value of dtype %s", x->name, tname(x->type),
           tname(s->set.value->type));
  if (s->op != ST_ASSIGN) {
    open_var(v, x);
    return;
  }
  use_var(v, x);
  if (x->kind == VAR_MUT) return;
  Diag *g = bad(v, ASSIGN_KIND, "%%%s is %s and keeps its value", x->name, kinds[x->kind]);
  diag_other(v->d, g, x->loc, "%%%s is declared here", x->name);
  diag_fix(v->d, g, "declare a `var` and assign that");
}

static void check_store(Verifier *v, const IrStmt *s) {
  check_expr(v, s->store.value);
  if (s->store.value->type != s->store.buf->type)
    report(v, DIAG_INTERNAL, "an element of %%%s gets a value of dtype %s", s->store.buf->name,
           tname(s->store.value->type));
  if (s->store.atomic && (!v->par || s->store.buf->space != SPACE_GM)) {
    Diag *g = bad(v, ATOMIC_STORE, "an atomic addition to %%%s in %s%s", s->store.buf->name,
                  space_info[s->store.buf->space].name, v->par ? "" : ", outside `parallel`");
    diag_fix(v->d, g, "leave `atomic` out: a block is alone with its memories; or `parallel %%i: 1 { }` around it");
  } else if (s->store.atomic && !ir_gm_adds(s->store.buf->type)) {
    Diag *g = bad(v, DTYPE_LIST, "an atomic addition to %%%s of dtype %s; the DMA adds %s", s->store.buf->name,
                  tname(s->store.buf->type), IR_ADDS);
    diag_fix(v->d, g, "keep the sums in a tensor of one of these dtypes, and convert it afterwards");
  }
  check_element(v, s->store.buf, s->store.idx);
  v->buf_written[ir_root(s->store.buf)->id] = true;
}

static void check_pipe_side(Verifier *v, const IrStmt *s, Pipe p) {
  if (p >= PIPE_COUNT || !ir_wrong_side(v->side, pipe_info[p].side)) return;
  Diag *g = bad(v, SYNC_SIDE, "'%s' names pipe %s of the %s core inside `%s`", stmt_word(s), pipe_info[p].name,
                side_word(pipe_info[p].side), stmt_word(v->side));
  diag_fix(v->d, g, "use a pipe of this side, or `cross_set` and `cross_wait` between the sides");
}

static void check_flag(Verifier *v, const IrStmt *s) {
  Pipe a = s->sync.src, b = s->sync.dst;
  int64_t id;
  bool apart = a < PIPE_COUNT && b < PIPE_COUNT && pipe_info[a].side != 'b' && pipe_info[b].side != 'b' &&
               pipe_info[a].side != pipe_info[b].side;
  if (a == b || a == PIPE_ALL || b == PIPE_ALL || apart) {
    Diag *g = bad(v, FLAG_PIPES, "'%s' from pipe %s to pipe %s, %s", stmt_word(s), pipe_info[a].name,
                  pipe_info[b].name,
                  apart    ? "which are on different cores"
                  : a == b ? "which is the same"
                           : "which is no pipe but all of them");
    if (a == b && a != PIPE_ALL && !apart)
      diag_fix(v->d, g, "use `barrier %s` inside one pipe", pipe_info[a].name);
    else
      diag_fix(v->d, g, "%s", apart ? "use `cross_set` and `cross_wait` between cores"
                                    : "name the two pipes, or use `barrier all`");
  } else {
    check_pipe_side(v, s, a);
    check_pipe_side(v, s, b);
  }
  if (!is_const(s->sync.id, &id) || (id >= 0 && id < IR_FLAGS)) return;
  Diag *g =
      bad(v, FLAG_ID, "'%s' with event id %lld; there are %d for a pair of pipes", stmt_word(s), ll(id), IR_FLAGS);
  diag_fix(v->d, g, "use 0 to %d", IR_FLAGS - 1);
}

static void check_cross(Verifier *v, const IrStmt *s) {
  int64_t id;
  if (s->sync.src == PIPE_ALL) {
    Diag *g = bad(v, CROSS_PIPE, "'%s' on all pipes", stmt_word(s));
    diag_fix(v->d, g, "name the pipe that signals or waits, after a `barrier all` if need be");
  }
  check_pipe_side(v, s, s->sync.src);
  if (is_const(s->sync.id, &id) && (id < 0 || id >= IR_CROSS_FLAGS)) {
    Diag *g = bad(v, CROSS_ID, "'%s' with flag id %lld; there are %d", stmt_word(s), ll(id), IR_CROSS_FLAGS);
    diag_fix(v->d, g, "use 0 to %d", IR_CROSS_FLAGS - 1);
  }
  if (s->op == ST_CROSS_SET && (s->sync.mode < 0 || s->sync.mode > 2)) {
    Diag *g = bad(v, CROSS_MODE, "'cross_set' with mode %d", s->sync.mode);
    diag_fix(v->d, g, "use 0, 1 or 2");
  }
}

static void check_sync(Verifier *v, const IrStmt *s) {
  if (v->par) {
    Diag *g = bad(v, PARALLEL_BODY, "'%s' stands inside `parallel`", stmt_word(s));
    diag_other(v->d, g, v->par->loc, "the parallel loop");
    diag_fix(v->d, g, "move it out of the loop");
  }
  if (s->sync.id) check_int(v, s->sync.id, "flag id");
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) {
    check_flag(v, s);
  } else if (s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT) {
    check_cross(v, s);
  } else if (s->op == ST_BARRIER) {
    check_pipe_side(v, s, s->sync.src);
    if (s->sync.src != PIPE_S) return;
    Diag *g = bad(v, BARRIER_S, "'barrier s': the scalar pipe runs in order");
    diag_fix(v->d, g, "leave it out, or wait for a flag of the other pipe");
  }
}

static void check_branch(Verifier *v, IrBlock *b, bool never) {
  v->never += never;
  check_block(v, b);
  v->never -= never;
}

static void check_for(Verifier *v, IrStmt *s) {
  check_int(v, s->loop.lo, "loop bound");
  check_int(v, s->loop.hi, "loop bound");
  check_int(v, s->loop.step, "loop step");
  if (ir_is_int(s->loop.step, 0)) {
    Diag *g = bad(v, LOOP_STEP, "the loop over %%%s has step 0", s->loop.var->name);
    diag_fix(v->d, g, "use a step of at least 1");
  }
  const IrExpr *bounds[3] = {s->loop.lo, s->loop.hi, s->loop.step};
  for (int i = 0; i < 3; i++) {
    if (!ir_is_const(bounds[i]) || bounds[i]->i == (int32_t)bounds[i]->i) continue;
    Diag *g = bad(v, LOOP_STEP, "the loop over %%%s has the %s %lld, and its index is i32", s->loop.var->name,
                  i == 2 ? "step" : "bound", ll(bounds[i]->i));
    diag_fix(v->d, g, "use numbers up to %d; for more, a loop over parts around it", INT32_MAX);
    break;
  }
  if (s->loop.stages < 0 || s->loop.stages > 8) {
    Diag *g = bad(v, PIPELINE_DEPTH, "the loop over %%%s is a pipeline of %d stages", s->loop.var->name,
                  s->loop.stages);
    diag_fix(v->d, g, "use 1 to 8; 2 or 3 are usual");
  }
  open_var(v, s->loop.var);
  bool maybe = ir_leaves_loop(&s->body);
  v->maybe += maybe;
  v->loops++;
  check_branch(v, &s->body, ir_never_runs(v->k, s));
  v->loops--;
  v->maybe -= maybe;
}

static void check_if(Verifier *v, IrStmt *s) {
  bool opaque = false;
  check_expr(v, s->test.cond);
  ir_walk_expr(s->test.cond, find_opaque, &opaque);
  v->maybe += opaque;
  if (!opaque) vec_push(v->a, &v->conds, s->test.cond);
  IrRange truth = ir_range(v->k, s->test.cond);
  check_branch(v, &s->body, truth.hi == 0);
  check_branch(v, &s->alt, truth.lo > 0);
  v->conds.len -= !opaque;
  v->maybe -= opaque;
}

static void find_tensor_load(IrExpr *e, void *user) {
  *(bool *)user |= e->op == EX_LOAD && ir_root(e->buf)->space == SPACE_GM;
}
static bool leaves_condition(IrStmt *s, void *cond) { return !ir_stmt_feeds(s, cond); }

static void check_while(Verifier *v, IrStmt *s) {
  IrExpr *cond = s->test.cond;
  check_expr(v, cond);
  bool may_end = ir_has_jump(&s->body, ST_BREAK);
  if (ir_is_int(cond, 1) && !may_end) {
    Diag *g = bad(v, FOREVER, "`while true` without a `break`");
    diag_fix(v->d, g, "add a `break`, or a condition that becomes false");
  }
  ir_walk_expr(cond, find_tensor_load, &may_end); /* another block may write there */
  if (!may_end && !ir_is_const(cond) && ir_walk(&s->body, leaves_condition, cond)) {
    Diag *g = bad(v, SAME_CONDITION,
                  "nothing in the loop changes what its condition `%s` reads: it never ends once it begins",
                  ir_expr_str(v->a, cond));
    diag_fix(v->d, g, "change it in the loop, or add a `break`");
  }
  v->maybe++;
  v->loops++;
  check_block(v, &s->body);
  v->loops--;
  v->maybe--;
}

/* A tile or a tensor has at most INT32_MAX elements; a sum over such goes through more. */
static void check_iterations(Verifier *v, const IrStmt *s) {
  const int64_t most = (int64_t)1 << 40;
  int64_t all = 1;
  for (int i = 0; i < s->par.n; i++) {
    check_int(v, s->par.ext[i], "extent");
    if (!ir_is_const(s->par.ext[i])) continue;
    int64_t n = s->par.ext[i]->i;
    if (n < 1 || n > INT32_MAX) {
      Diag *g = bad(v, PARALLEL_EXTENT, "index %%%s of `parallel` has extent %lld", s->par.vars[i]->name, ll(n));
      diag_fix(v->d, g, "use an extent of at least 1 and at most %d", INT32_MAX);
      n = 1;
    }
    all = all > most / n ? most + 1 : all * n;
  }
  if (all <= most) return;
  Diag *g = bad(v, PARALLEL_EXTENT, "`parallel` over %%%s has more than %lld iterations", s->par.vars[0]->name,
                ll(most));
  diag_fix(v->d, g, "use smaller extents; no tensor has as many elements");
}

static void check_parallel(Verifier *v, IrStmt *s) {
  if (v->par) {
    Diag *g = bad(v, PARALLEL_NEST, "`parallel` over %%%s stands inside another one", s->par.vars[0]->name);
    diag_other(v->d, g, v->par->loc, "the outer one");
    diag_fix(v->d, g, "write one `parallel` with all indices");
  }
  if (holds(v, FACT_TILES)) {
    Diag *g = bad(v, LOWERED_OP, "`parallel` is no instruction of the chip");
    diag_fix(v->d, g, "leave `%s` out of the kernel's head and let the passes lower it",
             v->lowered ? "lowered" : "after");
  }
  check_iterations(v, s);
  for (int i = 0; i < s->par.n; i++) open_var(v, s->par.vars[i]);
  const IrStmt *outer = v->par;
  int loops = v->loops, maybe = v->par_maybe;
  v->par = s;
  v->loops = 0;
  v->par_maybe = v->maybe;
  check_block(v, &s->body);
  v->par_maybe = maybe;
  v->loops = loops;
  v->par = outer;
}

static void check_side(Verifier *v, IrStmt *s) {
  const char *word = stmt_word(s);
  if (v->side) {
    Diag *g = bad(v, SIDE_NEST, "`%s` inside `%s`", word, stmt_word(v->side));
    diag_other(v->d, g, v->side->loc, "the outer block");
    diag_fix(v->d, g, "close `%s` first", stmt_word(v->side));
  }
  if (v->par) {
    Diag *g = bad(v, PARALLEL_BODY, "`%s` stands inside `parallel`", word);
    diag_fix(v->d, g, "move it out of the loop");
  }
  bool lacking = v->k->cores == (s->op == ST_CUBE ? CORES_VECTOR : CORES_CUBE);
  if (holds(v, FACT_SIDES) && lacking) {
    Diag *g = bad(v, SIDE_CORES, "a `%s` block in a kernel that runs on %s cores only", word,
                  s->op == ST_CUBE ? "vector" : "cube");
    diag_fix(v->d, g, "lower it for `mix`");
  }
  bool twice = false;
  for (const IrStmt *x = s->prev; x; x = x->prev) twice |= x->op == s->op;
  if (holds(v, FACT_SIDES) && (v->inner || twice)) {
    Diag *g = bad(v, SIDE_ORDER, twice ? "a second `%s` block" : "`%s` stands inside a loop or an `if`", word);
    diag_fix(v->d, g, "put the whole program of a side into one `%s` block of the kernel's body", word);
  }
  const IrStmt *outer = v->side;
  int loops = v->loops;
  v->side = s;
  v->loops = 0;
  v->inner--;
  check_block(v, &s->body);
  v->inner++;
  v->loops = loops;
  v->side = outer;
}

static void check_control(Verifier *v, const IrStmt *s) {
  if (v->loops) return;
  Diag *g = bad(v, LOOP_CONTROL, "`%s` outside a loop%s", stmt_word(s),
                v->par ? " (`parallel` has no order to leave)" : "");
  diag_fix(v->d, g, "put it into a `for` or `while`");
}

static const IrArg *say_arg(const IrStmt *s, int i) { return i < s->say.n ? &s->say.arg[i] : NULL; }

/* The values that the text asks for, and nothing else. */
static void check_say(Verifier *v, IrStmt *s) {
  const char *text = s->say.text, *what = NULL;
  int n = 0;
  IrSpec spec;
  while (!what && ir_next_spec(&text, &spec)) {
    const IrArg *a = say_arg(s, n++);
    if (spec.count && spec.conv == 't') {
      if (!a || a->kind != ARG_SCALAR) what = "a number of elements for `%*t`";
      a = say_arg(s, n++);
    }
    bool tile = spec.conv == 't';
    if (!strchr("tdiuxXocfFeEgG", spec.conv) || (spec.count && !tile)) what = "another conversion";
    else if (!what && (!a || (a->kind == ARG_REGION) != tile)) what = tile ? "a tile" : "a scalar";
    if (what) {
      Diag *g = bad(v, SAY_ARGS, "'%s' \"%s\": `%.*s` wants %s", stmt_word(s), s->say.text, spec.len, spec.at, what);
      diag_fix(v->d, g, "%%d, %%u, %%x, %%c, %%f, %%e and %%g take scalars, %%t takes a tile");
    }
  }
  if (!what && n < s->say.n) {
    Diag *g = bad(v, SAY_ARGS, "'%s' \"%s\" has %d values for %d conversions", stmt_word(s), s->say.text, s->say.n, n);
    diag_fix(v->d, g, "write a conversion for each value");
  }
  if (s->say.only) check_expr(v, s->say.only);
  if (s->say.cond) check_expr(v, s->say.cond);
  for (int i = 0; i < s->say.n; i++) {
    if (s->say.arg[i].kind == ARG_SCALAR) check_expr(v, s->say.arg[i].scalar);
    else check_region(v, &s->say.arg[i].region);
  }
  if (v->par) {
    Diag *g = bad(v, PARALLEL_BODY, "'%s' stands inside `parallel`", stmt_word(s));
    diag_other(v->d, g, v->par->loc, "the parallel loop");
    diag_fix(v->d, g, "move it out of the loop");
  }
}

static void check_order(Verifier *v, const IrStmt *s) {
  if (!holds(v, FACT_SIDES) || (ir_is_say(s) && s->say.when)) return;
  bool is_side = ir_is_side(s);
  bool wrong = v->side ? s->op == ST_ALLOC : !is_side && s->op != ST_ALLOC && !v->inner;
  for (const IrStmt *x = s->prev; x && s->op == ST_ALLOC && !wrong; x = x->prev) wrong = x->op != ST_ALLOC;
  if (!wrong) return;
  Diag *g = bad(v, SIDE_ORDER, "%s%s stands %s", s->op == ST_ALLOC ? "the allocation of %" : "",
                s->op == ST_ALLOC ? s->alloc.buf->name : arena_printf(v->a, "'%s'", stmt_word(s)),
                v->side ? "inside a side" : s->op == ST_ALLOC ? "after a side" : "outside `cube` and `vector`");
  diag_fix(v->d, g, "%s", s->op == ST_ALLOC ? "move it to the start of the body" : "move it into `cube` or `vector`");
}

static bool has_place(const Verifier *v, Loc at) { return at.line && at.file < v->m->files.len; }

static void without_place(Verifier *v, Loc at, const char *what) {
  Diag *g = bad(v, LOCATION, "%s has no place in the source: line %u of file %u", what, at.line, at.file);
  diag_fix(v->d, g, "write @LINE:COLUMN of the line it comes from, or nothing");
}

static void check_stmt(Verifier *v, IrStmt *s) {
  if (!has_place(v, s->loc)) without_place(v, s->loc, arena_printf(v->a, "'%s'", stmt_word(s)));
  check_order(v, s);
  if (ir_is_op(s)) {
    check_op(v, s);
    return;
  }
  switch (s->op) {
  case ST_ALLOC:
    if (v->par) {
      Diag *g = bad(v, PARALLEL_BODY, "%%%s is allocated inside `parallel`", s->alloc.buf->name);
      diag_fix(v->d, g, "move the allocation out of the loop");
    }
    check_alloc(v, s);
    return;
  case ST_LET:
  case ST_VAR:
  case ST_ASSIGN: check_set(v, s); return;
  case ST_STORE: check_store(v, s); return;
  case ST_FOR: check_for(v, s); return;
  case ST_PARALLEL: check_parallel(v, s); return;
  case ST_IF:
    check_if(v, s);
    return;
  case ST_WHILE: check_while(v, s); return;
  case ST_CUBE:
  case ST_VECTOR: check_side(v, s); return;
  case ST_BREAK:
  case ST_CONTINUE: check_control(v, s); return;
  case ST_PRINT:
  case ST_ASSERT: check_say(v, s); return;
  default: check_sync(v, s);
  }
}

static void check_block(Verifier *v, IrBlock *b) {
  uint32_t mark = v->opened.len;
  if (v->at && v->at->op == ST_FOR) mark--; /* the loop's index ends with the block */
  if (v->at && v->at->op == ST_PARALLEL) mark -= (uint32_t)v->at->par.n;
  const IrStmt *outer = v->at;
  v->inner += outer != NULL;
  for (IrStmt *s = b->first; s; s = s->next) {
    v->at = s;
    if (s->block != b || (s->next ? s->next->prev != s : b->last != s)) {
      report(v, DIAG_INTERNAL, "the links of '%s' are broken", stmt_word(s));
      break;
    }
    check_stmt(v, s);
  }
  v->inner -= outer != NULL;
  v->at = outer;
  close_to(v, mark);
}

/* ---- the head of the kernel --------------------------------------------------------------------------------- */

static void check_head(Verifier *v) {
  IrKernel *k = v->k;
  for (uint32_t i = 0; i < k->params.len; i++)
    if (k->params.data[i].var) open_var(v, k->params.data[i].var);
  for (uint32_t i = 0; i < k->params.len; i++) {
    IrBuf *b = k->params.data[i].buf;
    uint32_t before = v->d->n_errors;
    if (b) v->head = b->loc;
    for (int d = 0; b && d < b->rank; d++) {
      check_size(v, b->shape[d], arena_printf(v->a, "%%%s", b->name));
      if (!ir_is_const(b->shape[d]) || b->shape[d]->i >= 0) continue;
      Diag *g = bad(v, TENSOR_EXTENT, "%%%s has %lld elements in dimension %d", b->name, ll(b->shape[d]->i), d);
      diag_fix(v->d, g, "use 0 or more");
    }
    int64_t elements;
    if (b && too_many(b, &elements)) {
      Diag *g = bad(v, TENSOR_EXTENT, "%%%s %s has %s elements, more than %d", b->name,
                    shape_text(v, b->shape, b->rank), count_text(v, elements), INT32_MAX);
      diag_fix(v->d, g, "pass it in parts: a tensor of fewer rows, and a call for each");
    }
    if (b) open_buf(v, b);
    refuse_since(v, b, before);
  }
  v->head = k->loc;
  if (!has_place(v, k->loc)) without_place(v, k->loc, "the kernel");
  if (k->grid.len < 1 || k->grid.len > 3 || k->grid.len != k->grid_ext.len) {
    Diag *g = bad(v, GRID_RANK, "the grid of @%s has %u dimensions", k->name, k->grid.len);
    diag_fix(v->d, g, "use 1 to 3; grid(%%bx: 1) is a single block");
  }
  for (uint32_t i = 0; i < k->grid.len && i < k->grid_ext.len; i++) {
    IrExpr *e = k->grid_ext.data[i];
    v->head = k->grid.data[i]->loc;
    check_size(v, e, "the grid");
    if (ir_is_const(e) && e->i < 0) {
      Diag *g = bad(v, GRID_EXTENT, "grid index %%%s runs over %lld blocks", k->grid.data[i]->name, ll(e->i));
      diag_fix(v->d, g, "use 0 or more");
    }
  }
  v->head = k->loc;
  for (uint32_t i = 0; i < k->grid.len; i++) open_var(v, k->grid.data[i]);
  if (k->vid) open_var(v, k->vid);
  if (v->lowered && (k->cores == CORES_UNSET || !k->chip))
    report(v, DIAG_INTERNAL, "a lowered kernel without cores or chip");
}

static void check_outputs(Verifier *v) {
  for (uint32_t i = 0; i < v->k->params.len; i++) {
    const IrBuf *b = v->k->params.data[i].buf;
    if (!b || !b->is_out || v->buf_written[b->id]) continue;
    v->head = b->loc;
    Diag *g = bad(v, OUT_UNWRITTEN, "no statement writes to the output %%%s", b->name);
    diag_fix(v->d, g, "copy a result to %%%s, or drop `out`", b->name);
  }
}

bool ir_verify(const IrModule *m, Diags *d) {
  uint32_t before = d->n_errors;
  IrKernel *k = m->kernel;
  Verifier v = {.m = m, .k = k, .d = d, .a = m->arena, .lowered = k->level == LEVEL_LOWERED, .head = k->loc};
  v.var_open = arena_array(v.a, bool, k->vars.len + 1);
  v.buf_open = arena_array(v.a, bool, k->bufs.len + 1);
  v.buf_written = arena_array(v.a, bool, k->bufs.len + 1);
  check_head(&v);
  for (uint32_t i = 0; i < k->grid_ext.len; i++) v.never += ir_range(k, k->grid_ext.data[i]).hi < 1;
  check_block(&v, &k->body);
  check_outputs(&v);
  return d->n_errors == before;
}

/* ---- texts for messages ----------------------------------------------------------------------------------- */

const char *ir_expr_str(Arena *a, const IrExpr *e) {
  Text t;
  text_init(&t, a);
  ir_print_expr(&t, e);
  return text_str(&t);
}

const char *ir_region_str(Arena *a, const IrRegion *r) {
  Text t;
  text_init(&t, a);
  ir_print_region(&t, r);
  return text_str(&t);
}

const char *ir_shape_str(Arena *a, IrExpr *const *ext, int n) {
  Text t;
  text_init(&t, a);
  text_put(&t, "[");
  for (int i = 0; i < n; i++) {
    if (i) text_put(&t, ", ");
    ir_print_expr(&t, ext[i]);
  }
  text_put(&t, "]");
  return text_str(&t);
}
