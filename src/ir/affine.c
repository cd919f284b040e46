/* affine.c - what can be known of integer expressions without running them.
 *
 * An expression is read as a linear form  c + sum(coef * atom)  over atoms that are not linear themselves
 * (variables, quotients, element loads). Equal atoms cancel, so `%k * 64 + 64 - %k * 64` is 64. Bounds of the
 * remaining atoms come from loops, the grid and the definition of lets. Everything saturates: INT64_MIN / MAX mean
 * "open".
 *
 * A proof that numbers do not settle replaces an atom by a bound that is an expression: an index by its extent less 1,
 * `x % n` by n - 1, `%i // n` by q - 1 where %i stays below q * n, `x // 64 * 64` by x. */
#include "ir.h"

enum { MAX_TERMS = TL_LIMIT(12, 2), MAX_DEPTH = TL_LIMIT(40, 3) };

typedef struct { const IrExpr *atom; int64_t coef; } Term;
typedef struct { Term term[MAX_TERMS]; int n; int64_t c; bool ok; } Linear;

static int64_t sat_add(int64_t a, int64_t b) {
  int64_t r;
  if (a == INT64_MIN || b == INT64_MIN) return INT64_MIN;
  if (a == INT64_MAX || b == INT64_MAX) return INT64_MAX;
  return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
}

static int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  if (a == 0 || b == 0) return 0;
  bool neg = (a < 0) != (b < 0);
  if (a == INT64_MIN || b == INT64_MIN || a == INT64_MAX || b == INT64_MAX) return neg ? INT64_MIN : INT64_MAX;
  return __builtin_mul_overflow(a, b, &r) ? (neg ? INT64_MIN : INT64_MAX) : r;
}

static void add_term(Linear *l, const IrExpr *atom, int64_t coef) {
  for (int i = 0; i < l->n; i++)
    if (ir_expr_equal(l->term[i].atom, atom)) {
      if (__builtin_add_overflow(l->term[i].coef, coef, &l->term[i].coef)) l->ok = false;
      if (!l->term[i].coef) l->term[i] = l->term[--l->n];
      return;
    }
  if (!coef) return;
  if (l->n == MAX_TERMS) l->ok = false;
  else l->term[l->n++] = (Term){atom, coef};
}

static void linearize(Linear *l, const IrExpr *e, int64_t scale, int depth) {
  int64_t v;
  if (dtype_is_float(e->type) || depth > MAX_DEPTH) {
    l->ok = false;
    return;
  }
  switch (e->op) {
  case EX_INT:
    if (__builtin_mul_overflow(e->i, scale, &v) || __builtin_add_overflow(l->c, v, &l->c)) l->ok = false;
    return;
  case EX_ADD:
    linearize(l, e->arg[0], scale, depth + 1);
    linearize(l, e->arg[1], scale, depth + 1);
    return;
  case EX_SUB:
    linearize(l, e->arg[0], scale, depth + 1);
    linearize(l, e->arg[1], scale == INT64_MIN ? 0 : -scale, depth + 1);
    return;
  case EX_MUL:
    if (e->arg[1]->op == EX_INT && !__builtin_mul_overflow(scale, e->arg[1]->i, &v)) {
      linearize(l, e->arg[0], v, depth + 1);
      return;
    }
    break;
  case EX_NEG: linearize(l, e->arg[0], -scale, depth + 1); return;
  case EX_CAST:
    if (!dtype_is_float(e->arg[0]->type) && dtype_size(e->type) >= 4 && dtype_size(e->arg[0]->type) >= 4) {
      linearize(l, e->arg[0], scale, depth + 1);
      return;
    }
    break;
  case EX_VAR:
    if (e->var->kind == VAR_LET && e->var->def && !dtype_is_float(e->var->type) &&
        !ir_expr_varies(e->var->def->set.value)) { /* else it is what it was then */
      linearize(l, e->var->def->set.value, scale, depth + 1);
      return;
    }
    break;
  default: break;
  }
  add_term(l, e, scale);
}

static IrRange range_linear(const Linear *l, IrVarRange *var, const void *user, int depth) {
  IrRange r = {l->c, l->c};
  for (int i = 0; i < l->n; i++) {
    IrRange a = ir_range_in(l->term[i].atom, var, user, depth + 1);
    int64_t c = l->term[i].coef;
    r.lo = sat_add(r.lo, sat_mul(c > 0 ? a.lo : a.hi, c));
    r.hi = sat_add(r.hi, sat_mul(c > 0 ? a.hi : a.lo, c));
  }
  return r;
}

/* v is a factor of the extent, or of what is cut into the extent. */
static bool is_factor(const IrExpr *extent, const IrVar *v) {
  if (extent->op == EX_VAR) return extent->var == v;
  if (extent->op == EX_MUL) return is_factor(extent->arg[0], v) || is_factor(extent->arg[1], v);
  return extent->op == EX_FDIV && extent->arg[1]->op == EX_INT && extent->arg[1]->i > 0 && is_factor(extent->arg[0], v);
}

static bool is_size_symbol(const IrKernel *k, const IrVar *v) {
  for (uint32_t i = 0; i < k->params.len; i++) {
    const IrBuf *b = k->params.data[i].buf;
    for (int d = 0; b && d < b->rank; d++)
      if (is_factor(b->shape[d], v)) return true;
  }
  return false;
}

typedef struct { const IrKernel *k; const IrVar *zero; } Without;
static IrRange range_without(const void *user, const IrVar *v, int depth) {
  const Without *w = user;
  (void)depth;
  if (v == w->zero) return (IrRange){0, 0};
  return v->kind == VAR_PARAM && is_size_symbol(w->k, v) ? (IrRange){0, INT32_MAX} : IR_OPEN;
}

/* Any size may be 0 in a call, but where blocks run, one that the number of blocks hangs on is not. */
static bool makes_blocks(const IrKernel *k, const IrVar *size) {
  Without w = {k, size};
  for (uint32_t i = 0; i < k->grid_ext.len; i++)
    if (ir_range_in(k->grid_ext.data[i], range_without, &w, 0).hi <= 0) return true;
  return false;
}

static IrRange indices(IrRange lo, IrRange hi) {
  return (IrRange){lo.lo, hi.hi == INT64_MAX ? INT64_MAX : max_i64(hi.hi - 1, lo.lo)};
}

/* A variable over the whole run of `kernel`. */
static IrRange range_var(const void *kernel, const IrVar *v, int depth) {
  const IrKernel *k = kernel;
  IrRange open = IR_OPEN, zero = {0, 0};
  switch (v->kind) {
  case VAR_VID: return (IrRange){0, 1};
  case VAR_PARAM: return is_size_symbol(k, v) ? (IrRange){makes_blocks(k, v), INT32_MAX} : open;
  case VAR_GRID:
    for (uint32_t i = 0; i < k->grid.len; i++)
      if (k->grid.data[i] == v) return indices(zero, ir_range_in(k->grid_ext.data[i], range_var, k, depth + 1));
    return open;
  case VAR_LOOP: {
    if (!v->def) return open;
    if (v->def->op == ST_PARALLEL) {
      for (int i = 0; i < v->def->par.n; i++)
        if (v->def->par.vars[i] == v) return indices(zero, ir_range_in(v->def->par.ext[i], range_var, k, depth + 1));
      return open;
    }
    if (v->def->loop.step->op != EX_INT || v->def->loop.step->i <= 0) return open;
    return indices(ir_range_in(v->def->loop.lo, range_var, k, depth + 1),
                   ir_range_in(v->def->loop.hi, range_var, k, depth + 1));
  }
  case VAR_LET: return v->def ? ir_range_in(v->def->set.value, range_var, k, depth + 1) : open;
  default: return open;
  }
}

static int64_t div_floor(int64_t a, int64_t b) {
  if (a == INT64_MIN || a == INT64_MAX) return a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static IrRange truth(bool always, bool never) { return (IrRange){always, !never}; }

static IrRange compare(int op, IrRange a, IrRange b) {
  bool one = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, apart = a.hi < b.lo || b.hi < a.lo;
  switch (op) {
  case EX_LT: return truth(a.hi < b.lo, a.lo >= b.hi);
  case EX_LE: return truth(a.hi <= b.lo, a.lo > b.hi);
  case EX_GT: return truth(a.lo > b.hi, a.hi <= b.lo);
  case EX_GE: return truth(a.lo >= b.hi, a.hi < b.lo);
  case EX_EQ: return truth(one, apart);
  default: return truth(apart, one);
  }
}

static IrRange product(IrRange a, IrRange b) {
  int64_t p = sat_mul(a.lo, b.lo), q = sat_mul(a.lo, b.hi), r = sat_mul(a.hi, b.lo), s = sat_mul(a.hi, b.hi);
  return (IrRange){min_i64(min_i64(p, q), min_i64(r, s)), max_i64(max_i64(p, q), max_i64(r, s))};
}

static IrRange remainder_of(IrRange a, IrRange b) {
  if (b.lo < 1) return IR_OPEN;
  bool closed = a.lo != INT64_MIN && a.hi != INT64_MAX;
  if (closed && b.lo == b.hi && div_floor(a.lo, b.lo) == div_floor(a.hi, b.lo)) {
    int64_t whole = div_floor(a.lo, b.lo) * b.lo;
    return (IrRange){a.lo - whole, a.hi - whole};
  }
  if (a.lo >= 0 && a.hi < b.lo) return a;
  int64_t hi = b.hi == INT64_MAX ? INT64_MAX : b.hi - 1;
  return (IrRange){0, a.lo >= 0 ? min_i64(a.hi, hi) : hi};
}

/* Of operands' ranges alone. c: of the third operand, for select. */
static IrRange combine(const IrExpr *e, IrRange a, IrRange b, IrRange c) {
  switch (e->op) {
  case EX_MIN: return (IrRange){min_i64(a.lo, b.lo), min_i64(a.hi, b.hi)};
  case EX_MAX: return (IrRange){max_i64(a.lo, b.lo), max_i64(a.hi, b.hi)};
  case EX_MUL: return product(a, b);
  case EX_FDIV:
    if (b.lo < 1) return IR_OPEN;
    return (IrRange){div_floor(a.lo, a.lo < 0 ? b.lo : b.hi), div_floor(a.hi, a.hi < 0 ? b.hi : b.lo)};
  case EX_MOD: return remainder_of(a, b);
  case EX_LT: case EX_LE: case EX_GT: case EX_GE: case EX_EQ: case EX_NE: return compare(e->op, a, b);
  case EX_LAND: return truth(a.lo > 0 && b.lo > 0, a.hi == 0 || b.hi == 0);
  case EX_LOR: return truth(a.lo > 0 || b.lo > 0, a.hi == 0 && b.hi == 0);
  case EX_LNOT: return truth(a.hi == 0, a.lo > 0);
  case EX_SELECT: return a.lo > 0 ? b : a.hi == 0 ? c : (IrRange){min_i64(b.lo, c.lo), max_i64(b.hi, c.hi)};
  case EX_CAST: return e->arg[0]->type == DT_BOOL ? a : IR_OPEN;
  default: return e->type == DT_BOOL ? (IrRange){0, 1} : IR_OPEN;
  }
}

IrRange ir_range_in(const IrExpr *e, IrVarRange *var, const void *user, int depth) {
  if (depth > MAX_DEPTH || dtype_is_float(e->type)) return IR_OPEN;
  if (e->op == EX_INT) return (IrRange){e->i, e->i};
  if (e->op == EX_VAR) return var(user, e->var, depth);
  if (e->op == EX_ADD || e->op == EX_SUB || e->op == EX_MUL || e->op == EX_NEG || e->op == EX_CAST) {
    Linear l = {.ok = true};
    linearize(&l, e, 1, depth);
    if (l.ok && !(l.n == 1 && l.c == 0 && l.term[0].coef == 1 && l.term[0].atom == e))
      return range_linear(&l, var, user, depth);
  }
  IrRange arg[3] = {IR_OPEN, IR_OPEN, IR_OPEN};
  for (int i = 0; i < e->n && i < 3 && e->op != EX_LOAD; i++) arg[i] = ir_range_in(e->arg[i], var, user, depth + 1);
  return combine(e, arg[0], arg[1], arg[2]);
}

IrRange ir_range(const IrKernel *k, const IrExpr *e) { return ir_range_in(e, range_var, k, 0); }

/* e without its factor d, or NULL. */
static IrExpr *without_factor(IrKernel *k, IrExpr *e, IrExpr *d) {
  if (ir_expr_equal(e, d)) return ir_int(k, e->type, 1);
  if (e->op == EX_INT && d->op == EX_INT && d->i > 0 && e->i % d->i == 0) return ir_int(k, e->type, e->i / d->i);
  for (int i = 0; e->op == EX_MUL && i < 2; i++) {
    IrExpr *q = without_factor(k, e->arg[i], d);
    if (q) return ir_binary(k, EX_MUL, i ? e->arg[0] : q, i ? q : e->arg[1]);
  }
  return NULL;
}

/* An expression that e, which is not negative, stays below; NULL: none is known. */
static IrExpr *below(IrKernel *k, IrExpr *e, int depth) {
  if (depth > MAX_DEPTH) return NULL;
  IrExpr *d = e->n == 2 ? e->arg[1] : NULL, *end;
  switch (e->op) {
  case EX_CAST: return below(k, e->arg[0], depth + 1);
  case EX_MOD: return ir_range(k, d).lo > 0 ? d : NULL;
  case EX_FDIV:
    if (ir_range(k, d).lo < 1) return NULL;
    end = below(k, e->arg[0], depth + 1);
    return end ? without_factor(k, end, d) : NULL;
  case EX_VAR: {
    IrStmt *def = e->var->def;
    for (uint32_t i = 0; i < k->grid.len; i++)
      if (k->grid.data[i] == e->var) return k->grid_ext.data[i];
    if (!def || ir_range(k, e).lo < 0) return NULL;
    if (e->var->kind == VAR_LET) return below(k, def->set.value, depth + 1);
    for (int i = 0; def->op == ST_PARALLEL && i < def->par.n; i++)
      if (def->par.vars[i] == e->var) return def->par.ext[i];
    return def->op == ST_FOR && def->loop.step->op == EX_INT && def->loop.step->i > 0 ? def->loop.hi : NULL;
  }
  default: return NULL;
  }
}

/* Adds an upper bound of coef * atom that is no mere number, the first or the second one; false: there is none. */
static bool add_bound(IrKernel *k, Linear *l, IrExpr *atom, int64_t coef, int which) {
  if (which == 0 && coef > 0) {
    IrExpr *end = below(k, atom, 0);
    if (!end || end->op == EX_INT || ir_expr_varies(end)) return false; /* it may be another one by now */
    linearize(l, end, coef, 0);
    l->c -= coef;
    return true;
  }
  if (which == 1 && coef < 0 && atom->op == EX_VAR && atom->var->kind == VAR_LOOP && atom->var->def->op == ST_FOR) {
    IrExpr *lo = atom->var->def->loop.lo, *step = atom->var->def->loop.step;
    if (lo->op == EX_INT || ir_expr_varies(lo) || step->op != EX_INT || step->i <= 0) return false;
    linearize(l, lo, coef, 0);
    return true;
  }
  int64_t d = atom->op == EX_FDIV && atom->arg[1]->op == EX_INT ? atom->arg[1]->i : 0;
  if (which == 0 || d <= 0 || coef % d) return false;
  linearize(l, atom->arg[0], coef / d, 0);
  if (coef < 0) l->c -= coef / d * (d - 1); /* x // d * d > x - d */
  return true;
}

/* l <= 0 for all values of the variables, by numbers or with up to `swaps` atoms replaced by bounds. */
static bool never_positive(IrKernel *k, const Linear *l, int swaps) {
  if (!l->ok) return false;
  if (range_linear(l, range_var, k, 0).hi <= 0) return true;
  for (int i = 0; swaps && i < l->n; i++)
    for (int which = 0; which < 2; which++) {
      Term t = l->term[i];
      Linear m = *l;
      m.term[i] = m.term[--m.n];
      if (t.coef > INT32_MAX || t.coef < -INT32_MAX || l->c > INT64_MAX / 4 || l->c < INT64_MIN / 4) continue;
      if (add_bound(k, &m, (IrExpr *)t.atom, t.coef, which) && never_positive(k, &m, swaps - 1)) return true;
    }
  return false;
}

bool ir_prove_le(IrKernel *k, IrExpr *a, IrExpr *b) {
  if (a->op == EX_MIN && (ir_prove_le(k, a->arg[0], b) || ir_prove_le(k, a->arg[1], b))) return true;
  if (b->op == EX_MAX && (ir_prove_le(k, a, b->arg[0]) || ir_prove_le(k, a, b->arg[1]))) return true;
  if (b->op == EX_MIN) return ir_prove_le(k, a, b->arg[0]) && ir_prove_le(k, a, b->arg[1]);
  if (a->op == EX_MAX) return ir_prove_le(k, a->arg[0], b) && ir_prove_le(k, a->arg[1], b);
  Linear l = {.ok = true};
  linearize(&l, a, 1, 0);
  linearize(&l, b, -1, 0);
  return never_positive(k, &l, 3);
}

bool ir_const_diff(IrKernel *k, IrExpr *a, IrExpr *b, int64_t *diff) {
  (void)k;
  Linear l = {.ok = true};
  linearize(&l, a, 1, 0);
  linearize(&l, b, -1, 0);
  *diff = l.c;
  return l.ok && l.n == 0;
}

bool ir_residue(const IrExpr *e, int64_t m, int64_t *out) {
  int64_t a, b;
  switch (e->op) {
  case EX_INT: *out = ((e->i % m) + m) % m; return true;
  case EX_ADD:
  case EX_SUB:
    if (!ir_residue(e->arg[0], m, &a) || !ir_residue(e->arg[1], m, &b)) return false;
    *out = e->op == EX_ADD ? (a + b) % m : (a - b + m) % m;
    return true;
  case EX_MUL:
    for (int i = 0; i < 2; i++)
      if (ir_residue(e->arg[i], m, &a) && a == 0) {
        *out = 0;
        return true;
      }
    if (!ir_residue(e->arg[0], m, &a) || !ir_residue(e->arg[1], m, &b)) return false;
    *out = a * b % m;
    return true;
  default: return false;
  }
}

static int pow2_of(const IrKernel *k, const IrExpr *e, int depth) {
  enum { ALL = 30 };
  if (depth > 40) return 0;
  switch (e->op) {
  case EX_INT: return e->i ? __builtin_ctzll((unsigned long long)e->i) : ALL;
  case EX_ADD:
  case EX_SUB:
  case EX_MIN:
  case EX_MAX: return (int)min_i64(pow2_of(k, e->arg[0], depth + 1), pow2_of(k, e->arg[1], depth + 1));
  case EX_SELECT: return (int)min_i64(pow2_of(k, e->arg[1], depth + 1), pow2_of(k, e->arg[2], depth + 1));
  case EX_MUL: return (int)min_i64(ALL, pow2_of(k, e->arg[0], depth + 1) + pow2_of(k, e->arg[1], depth + 1));
  case EX_SHL: return ir_is_const(e->arg[1]) ? (int)min_i64(ALL, pow2_of(k, e->arg[0], depth + 1) + e->arg[1]->i) : 0;
  case EX_NEG: return pow2_of(k, e->arg[0], depth + 1);
  case EX_CAST: return dtype_is_float(e->arg[0]->type) ? 0 : pow2_of(k, e->arg[0], depth + 1);
  case EX_VAR:
    if (e->var->kind == VAR_LET && e->var->def) return pow2_of(k, e->var->def->set.value, depth + 1);
    if (e->var->kind == VAR_LOOP && e->var->def && e->var->def->op == ST_FOR)
      return (int)min_i64(pow2_of(k, e->var->def->loop.lo, depth + 1), pow2_of(k, e->var->def->loop.step, depth + 1));
    return 0;
  default: return 0;
  }
}

int ir_pow2(const IrKernel *k, const IrExpr *e) { return pow2_of(k, e, 0); }

bool ir_never_runs(IrKernel *k, const IrStmt *loop) {
  if (loop->op != ST_FOR) return false;
  IrRange step = ir_range(k, loop->loop.step);
  return (step.lo > 0 && ir_prove_le(k, loop->loop.hi, loop->loop.lo)) ||
         (step.hi < 0 && ir_prove_le(k, loop->loop.lo, loop->loop.hi));
}

bool ir_loop_runs(IrKernel *k, const IrStmt *loop) {
  return loop->op == ST_FOR && ir_prove_le(k, ir_binary(k, EX_ADD, loop->loop.lo, ir_i32(k, 1)), loop->loop.hi);
}
