/* parallel_expr.c - one element statement over a box becomes vector ops.
 *
 * A value is either a scalar expression (nothing in it depends on the axes) or a region. A region spans some of
 * the axes and has extent 1 along the others, so that a sub-expression of %j alone is computed once per column:
 *
 *     c[i, j] = exp(b[j]) * a[i, j]        exp %b -> %t0[1, N] ; mul %a, %t0 -> %c
 *
 * Dimensions are compared from the last backwards, so `b[N]` serves as [1, N] as it is; a vector along the rows that
 * meets a matrix is first copied to a temporary [M, 1], which costs a move of a few bytes. Temporaries
 * come from a pool and ops work in place where the dtype allows. The destination itself serves as a temporary as
 * soon as nothing of the expression has still to read it.
 *
 * Leaves that are not boxes of a tile (strides, index tiles, transposes) are copied row by row where the rows are
 * whole, else gathered by byte offsets that vector ops compute. What cannot be, and operators without a vector
 * instruction, is filled into a temporary by element loops; everything around it stays vectorised. Each such loop is
 * reported with its price. Conditions become comparison masks, `&&` and `||` chains of selects. */
#include "parallel.h"

#include <math.h>

static IrArg reg(IrRegion r) { return ir_arg_region(r); }
static IrArg sca(IrExpr *e) { return ir_arg_scalar(e); }

static Val scalar_val(IrExpr *e) { return (Val){.scalar = e, .type = e->type}; }

/* Where a result goes: the destination, an operand that is not needed any more, or a temporary. */
static Val place(Par *v, DType t, uint32_t span, const IrRegion *dst, Val *a, Val *b) {
  bool broadcasts = (a && a->span != span) || (b && b->span != span);
  if (dst && span == v->full && dst->buf->type == t && !(v->loose_dst && broadcasts))
    return (Val){.r = *dst, .type = t, .span = span, .loose = v->loose_dst};
  Val *operand[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    Val *x = operand[i];
    if (!x || !x->temp || x->span != span || x->type != t) continue;
    Val r = *x;
    x->temp = NULL;
    return r;
  }
  return par_take(v, t, span);
}

/* ---- element loops ------------------------------------------------------------------------------------------ */

static const char plain_fix[] = "compute this part with tile ops, or move it out of the parallel loop";

/* A tile with the values of e, filled element by element. */
static Val scalar_tile(Par *v, IrExpr *e, const char *why, const char *fix) {
  uint32_t span = par_axes_of(v, e);
  bool is_bool = e->type == DT_BOOL;
  if (is_bool) e = ir_select(v->k, e, ir_float(v->k, DT_F16, 1), ir_float(v->k, DT_F16, 0));
  par_warn_scalar(v, span, why, fix);
  Val t = par_take(v, e->type, span);
  IrExpr *at[MAX_AXES], *idx[MAX_AXES];
  IrBlock *outer = par_enter_loops(v, span, at);
  v->cur->parent->why = why;
  for (int i = 0; i < v->n; i++) idx[i] = span >> i & 1 ? at[i] : ir_i32(v->k, 0);
  par_emit_store(v, t.r.buf, idx, par_at_loops(v, span, at, par_clamp_loads(v, e)), false);
  v->cur = outer;
  return t;
}

/* Can one `gather` read the elements of e? Its offsets count bytes of the tile as it stands, so rows must not be padded
 * later, and the results lie close together. */
static bool gathers(const Par *v, const IrExpr *e, uint32_t span) {
  const IrBuf *b = e->buf;
  int size = dtype_size(b->type), first = span ? __builtin_ctz(span) : 0;
  int64_t count = 1;
  bool bytes = b->type == DT_I8 || b->type == DT_U8; /* as f16, which holds them */
  if (bytes) size = 2;
  if (!vector_space(b->space) || (size != 2 && size != 4)) return false;
  for (int d = 0; d < b->rank; d++)
    if (!ir_is_const(b->shape[d])) return false;
  if ((b->rank > 1 || bytes) && b->shape[b->rank - 1]->i * size % 32) return false;
  for (int i = first; i < v->n; i++) {
    if (!(span >> i & 1)) continue;
    if (v->ax[i].cap < 0 || (i > first && !ir_is_const(v->ax[i].ext))) return false;
    count *= v->ax[i].cap;
  }
  return count >= 16;
}

/* A copy of a tile in another dtype. */
static IrBuf *tile_as(Par *v, IrBuf *b, DType t) {
  Box box = par_box(v);
  v->n = b->rank;
  for (int d = 0; d < b->rank; d++) v->ax[d] = (Axis){NULL, b->shape[d], b->shape[d]->i};
  IrBuf *to = par_new_tile(v, SPACE_UB, t, (1u << b->rank) - 1);
  par_put_box(v, &box);
  par_emit(v, OP_CAST, 2, reg(ir_whole(v->k, b)), reg(ir_whole(v->k, to)));
  return to;
}

static Val emit_cast(Par *v, Val a, DType t, CastMode mode, const IrRegion *dst);

/* The elements of e by byte offsets that vector ops compute. */
static Val gathered(Par *v, IrExpr *e, uint32_t span) {
  IrKernel *k = v->k;
  IrBuf *b = dtype_size(e->type) == 1 ? tile_as(v, e->buf, DT_F16) : e->buf;
  IrExpr *off = NULL;
  int64_t stride = dtype_size(b->type);
  for (int d = b->rank - 1; d >= 0; d--) {
    IrExpr *part = ir_binary(k, EX_MUL, ir_cast(k, DT_I32, e->idx[d]), ir_i32(k, stride));
    off = off ? ir_binary(k, EX_ADD, part, off) : part;
    stride *= b->shape[d]->i;
  }
  Val at = par_whole(v, par_eval(v, off, NULL), span);
  Val t = par_take(v, b->type, span);
  par_emit(v, OP_GATHER, 4, reg(ir_whole(k, b)), reg(at.r), sca(ir_int(k, DT_U32, 0)), reg(t.r));
  par_release(v, at.temp);
  return b == e->buf ? t : emit_cast(v, t, e->type, CAST_RINT, NULL);
}

/* An irregular load as a tile. */
static Val gather_tile(Par *v, IrExpr *e, const char *why, const char *fix) {
  uint32_t span = par_axes_of(v, e);
  Access row;
  int last = vector_space(e->buf->space) || e->buf->space == SPACE_GM ? par_row_axis(v, e->buf, e->idx, span, &row)
                                                                      : -1;
  if (last < 0 && gathers(v, e, span)) return gathered(v, e, span);
  if (last < 0) return scalar_tile(v, e, why, fix);
  Val t = par_take(v, e->type, span);
  IrExpr *at[MAX_AXES];
  uint32_t serial = span & ~(1u << last);
  IrBlock *outer = par_enter_loops(v, serial, at);
  v->cur->parent->why = why;
  IrRegion to = t.r;
  for (int d = 0; d < e->buf->rank; d++) row.r.off[d] = par_at_loops(v, serial, at, row.r.off[d]);
  for (int i = 0; i < v->n; i++) {
    if (!(serial >> i & 1)) continue;
    to.off[i] = at[i];
    to.ext[i] = ir_i32(v->k, 1);
  }
  par_emit(v, OP_COPY, 2, reg(row.r), reg(to));
  v->cur = outer;
  pass_remark(v->p, "parallel", v->loc, "%s: one copy a row", why);
  return t;
}

/* ---- leaves ------------------------------------------------------------------------------------------------- */

static Val gm_tile(Par *v, const Access *a) {
  for (uint32_t i = 0; i < v->gm.len; i++)
    if (ir_region_equal(&v->gm.data[i].from, &a->r) && par_same_shape(v, v->gm.data[i].tile, a->span))
      return (Val){.r = par_tile_region(v, v->gm.data[i].tile, a->span), .type = a->r.buf->type, .span = a->span};
  IrBuf *tile = par_new_tile(v, SPACE_UB, a->r.buf->type, a->span);
  GmTile t = {a->r, tile};
  vec_push(v->p->arena, &v->gm, t);
  IrRegion r = par_tile_region(v, tile, a->span);
  IrStmt *load = par_emit(v, OP_COPY, 2, reg(a->r), reg(r));
  for (int d = 0; v->choosing && d < a->r.buf->rank; d++)
    if (ir_range(v->k, a->r.off[d]).lo < 0) ir_set_attr(v->k, load, ATTR_PAD, ir_int(v->k, tile->type, 0));
  return (Val){.r = r, .type = tile->type, .span = a->span};
}

static Val eval_load(Par *v, IrExpr *e) {
  Space s = e->buf->space;
  if (!vector_space(s) && s != SPACE_GM) {
    Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_SPACE, v->loc,
                       "%%%s stands in %s, where neither the vector nor the scalar unit can read it", e->buf->name,
                       space_info[s].name);
    diag_other(v->p->diags, g, e->buf->loc, "%%%s is declared here", e->buf->name);
    if (s == SPACE_L0C) diag_fix(v->p->diags, g, "copy %%%s to a tile in ub first", e->buf->name);
    else diag_fix(v->p->diags, g, "load it into a tile of ub: nothing comes back from %s", space_info[s].name);
    return par_take(v, e->type, par_axes_of(v, e)); /* nobody will see it */
  }
  Access a = par_classify(v, e->buf, e->idx, ~0u);
  if (!a.ok && !(a.column && s == SPACE_GM)) return gather_tile(v, e, a.why, a.fix);
  if (s == SPACE_GM) return gm_tile(v, &a);
  int8_t *dim = arena_array(v->p->arena, int8_t, MAX_AXES);
  for (int d = 0; d < e->buf->rank; d++)
    if (a.axis[d] >= 0) dim[a.axis[d]] = (int8_t)d;
  return (Val){.r = a.r, .type = e->type, .span = a.span, .dim = dim, .loose = !a.aligned};
}

/* An integer expression of one axis: first + k * step. Floats hold it exactly up to `limit`. */
static bool is_ramp(Par *v, IrExpr *e, Linear *l, int64_t limit) {
  if (dtype_is_float(e->type) || e->type == DT_BOOL || e->op == EX_LOAD) return false;
  *l = par_linear(v, e, ~0u);
  if (!l->ok || l->axis < 0) return false;
  IrRange r = ir_range(v->k, e);
  return limit == 0 || (r.lo >= -limit && r.hi <= limit);
}

static Val eval_ramp(Par *v, const Linear *l, DType t, const IrRegion *dst) {
  Val r = place(v, t, 1u << l->axis, dst, NULL, NULL);
  par_emit(v, OP_ARANGE, 3, sca(ir_cast(v->k, t, l->rest)), sca(ir_int(v->k, t, l->coef)), reg(r.r));
  return r;
}

/* ---- operators ---------------------------------------------------------------------------------------------- */

static Val emit_unary(Par *v, StmtOp op, Val a, DType t, const IrRegion *dst) {
  Val r = place(v, t, a.span, dst, &a, NULL);
  par_emit(v, op, 2, reg(a.r), reg(r.r));
  par_release(v, a.temp);
  return r;
}

static Val emit_cast(Par *v, Val a, DType t, CastMode mode, const IrRegion *dst) {
  Val r = place(v, t, a.span, dst, &a, NULL);
  IrStmt *s = par_emit(v, OP_CAST, 2, reg(a.r), reg(r.r));
  if (mode != CAST_NONE) ir_set_attr(v->k, s, ATTR_MODE, ir_i32(v->k, mode));
  par_release(v, a.temp);
  return r;
}

/* x so that it can stand beside operands that span `span`. */
static Val settle(Par *v, Val x, uint32_t span) {
  if (x.scalar || !x.loose || x.span == span) return x;
  Val t = par_take(v, x.type, x.span);
  par_emit(v, OP_COPY, 2, reg(x.r), reg(t.r));
  return t;
}

/* a must be a region, b may be a scalar. */
static Val emit_binary(Par *v, StmtOp op, Val a, Val b, DType t, const IrRegion *dst) {
  uint32_t span = a.span | b.span;
  a = settle(v, a, span);
  b = settle(v, b, span);
  IrArg second = b.scalar ? sca(ir_cast(v->k, a.type, b.scalar)) : reg(b.r);
  Val r = place(v, t, span, dst, &a, b.scalar ? NULL : &b);
  par_emit(v, op, 3, reg(a.r), second, reg(r.r));
  par_release(v, a.temp);
  par_release(v, b.temp);
  return r;
}

static StmtOp vector_op(ExprOp op) {
  switch (op) {
  case EX_ADD: return OP_ADD;
  case EX_SUB: return OP_SUB;
  case EX_MUL: return OP_MUL;
  case EX_DIV: return OP_DIV;
  case EX_MIN: return OP_MIN;
  case EX_MAX: return OP_MAX;
  case EX_AND: return OP_AND;
  case EX_OR: return OP_OR;
  case EX_XOR: return OP_XOR;
  case EX_SHL: return OP_SHL;
  case EX_SHR: return OP_SHR;
  case EX_EXP: return OP_EXP;
  case EX_LOG: return OP_LN;
  case EX_SQRT: return OP_SQRT;
  case EX_RSQRT: return OP_RSQRT;
  case EX_TANH: return OP_TANH;
  case EX_SIN: return OP_SIN;
  case EX_COS: return OP_COS;
  case EX_ABS: return OP_ABS;
  case EX_NOT: return OP_NOT;
  default: return OP_COUNT;
  }
}

static Val with_scalar_first(Par *v, ExprOp op, IrExpr *s, Val b, DType t, const IrRegion *dst) {
  if (op == EX_SUB) { /* s - b = b * -1 + s */
    Val neg = emit_binary(v, OP_MUL, b, scalar_val(ir_int(v->k, t, -1)), t, dst);
    return emit_binary(v, OP_ADD, neg, scalar_val(s), t, dst);
  }
  if (op == EX_DIV) return emit_binary(v, OP_DIV, par_filled(v, s, t, b.span), b, t, dst);
  return emit_binary(v, vector_op(op), b, scalar_val(s), t, dst); /* the others commute */
}

/* A power of two; the quotient by another number is its product with the reciprocal, which may be an ulp off. */
static bool exact_reciprocal(const IrExpr *e) {
  int exponent;
  return e->op == EX_FLOAT && fabs(frexp(e->f, &exponent)) == 0.5;
}

static Val eval_arith(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *l = e->arg[0], *r = e->arg[1];
  Val a = par_eval(v, l, dst && !par_reads_buf(r, dst->buf) ? dst : NULL);
  bool dst_free = dst && (a.scalar ? !par_reads_buf(a.scalar, dst->buf) : ir_root(a.r.buf) != ir_root(dst->buf));
  Val b = par_eval(v, r, dst_free ? dst : NULL);
  if (a.scalar) return with_scalar_first(v, e->op, a.scalar, b, e->type, dst);
  if (b.scalar && e->op == EX_DIV && v->rounding && !exact_reciprocal(b.scalar))
    b = par_filled(v, b.scalar, e->type, a.span);
  return emit_binary(v, vector_op(e->op), a, b, e->type, dst);
}

/* A whole exponent by squaring, a half one with a square root, else the op for any. */
static Val eval_pow(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0], *y = e->arg[1];
  double p = y->op == EX_FLOAT ? y->f : y->op == EX_INT ? (double)y->i : NAN;
  IrKernel *k = v->k;
  if (p == 0.5) return par_eval(v, ir_unary(k, EX_SQRT, x), dst);
  if (p == -0.5) return par_eval(v, ir_unary(k, EX_RSQRT, x), dst);
  if (isnan(p) || fabs(p) > 64 || p != floor(p)) { /* NaN: an exponent of each element */
    Val a = par_eval(v, x, NULL), b = par_eval(v, y, NULL);
    if (a.scalar) a = par_filled(v, a.scalar, e->type, b.span);
    return emit_binary(v, OP_POW, a, b, e->type, dst);
  }
  int n = (int)fabs(p);
  if (n == 0) return scalar_val(ir_int(k, e->type, 1)); /* eval makes a tile of it */
  Val base = par_eval(v, x, NULL), acc = {0};
  bool have = false;
  for (; n; n >>= 1) {
    if (n & 1) {
      if (have) {
        Val b = base;
        b.temp = NULL; /* still needed for squares */
        acc = emit_binary(v, OP_MUL, acc, b, e->type, NULL);
      } else {
        acc = base; /* takes over the tile, if there is one */
        base.temp = NULL;
      }
      have = true;
    }
    if (n > 1) {
      Val b = base;
      b.temp = NULL;
      base = emit_binary(v, OP_MUL, base, b, e->type, NULL);
    }
  }
  if (acc.temp != base.temp) par_release(v, base.temp);
  return p < 0 ? emit_binary(v, OP_DIV, par_filled(v, ir_int(k, e->type, 1), e->type, acc.span), acc, e->type, dst)
               : acc;
}

/* floor, ceil, round: a cast inside f32. */
static Val eval_rounding(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0];
  if (!dtype_is_float(x->type)) return par_eval(v, x, dst);
  CastMode mode = e->op == EX_FLOOR ? CAST_FLOOR : e->op == EX_CEIL ? CAST_CEIL : CAST_RINT;
  v->rounding++;
  Val a = par_eval(v, ir_cast(v->k, DT_F32, x), NULL);
  v->rounding--;
  a = emit_cast(v, a, DT_F32, mode, e->type == DT_F32 ? dst : NULL);
  return e->type == DT_F32 ? a : emit_cast(v, a, e->type, CAST_NONE, dst);
}

/* floor(x / b) of small whole numbers x, which f32 holds, as dtype t. */
static Val small_quotient(Par *v, Val x, int64_t b, DType t, const IrRegion *dst) {
  x = emit_binary(v, OP_ADD, x, scalar_val(ir_float(v->k, DT_F32, 0.5)), DT_F32, NULL);
  x = emit_binary(v, OP_MUL, x, scalar_val(ir_float(v->k, DT_F32, 1.0 / (double)b)), DT_F32, NULL);
  return emit_cast(v, x, t, CAST_FLOOR, dst);
}

/* floor(a / b) of any i32: a quotient of rounded numbers, at most 1 + 2^9 / b off, then that of what it leaves. */
static Val large_quotient(Par *v, IrExpr *a, int64_t b, const IrRegion *dst) {
  Val x = par_eval(v, a, NULL), whole = x;
  whole.temp = NULL;
  Val f = emit_cast(v, whole, DT_F32, CAST_NONE, NULL);
  f = emit_binary(v, OP_MUL, f, scalar_val(ir_float(v->k, DT_F32, 1.0 / (double)b)), DT_F32, NULL);
  Val q = emit_cast(v, f, DT_I32, CAST_FLOOR, NULL), part = q;
  part.temp = NULL;
  Val r = emit_binary(v, OP_MUL, part, scalar_val(ir_int(v->k, DT_I32, b)), DT_I32, NULL);
  r = emit_binary(v, OP_SUB, x, r, DT_I32, NULL);
  r = small_quotient(v, emit_cast(v, r, DT_F32, CAST_NONE, NULL), b, DT_I32, NULL);
  return emit_binary(v, OP_ADD, q, r, DT_I32, dst);
}

enum { EXACT_DIVIDEND = 1 << 21, LARGEST_DIVISOR = 1 << 20 };

static bool small_dividend(Par *v, const IrExpr *e) {
  IrRange r = ir_range(v->k, e->arg[0]);
  return (r.lo >= -EXACT_DIVIDEND && r.hi <= EXACT_DIVIDEND) || dtype_size(e->type) < 4;
}

/* Integer a // b and a % b for a positive constant b: a shift, or products with 1 / b. */
static Val eval_int_division(Par *v, IrExpr *e, const IrRegion *dst) {
  IrKernel *k = v->k;
  IrExpr *a = e->arg[0], *b = e->arg[1];
  if (e->op == EX_MOD && (b->i & (b->i - 1)) != 0)
    return par_eval(v, ir_binary(k, EX_SUB, a, ir_binary(k, EX_MUL, ir_binary(k, EX_FDIV, a, b), b)), dst);
  if ((b->i & (b->i - 1)) == 0) {
    IrExpr *sh = ir_int(k, e->type, __builtin_ctzll((uint64_t)b->i));
    IrExpr *q = ir_binary(k, EX_SHR, a, sh);
    return par_eval(v, e->op == EX_FDIV ? q : ir_binary(k, EX_SUB, a, ir_binary(k, EX_SHL, q, sh)), dst);
  }
  if (!small_dividend(v, e)) return large_quotient(v, a, b->i, dst);
  return small_quotient(v, par_eval(v, ir_cast(k, DT_F32, a), NULL), b->i, e->type, dst);
}

/* ---- shifts by counts that take turns ----------------------------------------------------------------------- */

enum { MAX_TURNS = 8 };

/* The remainder in e by a constant of at most MAX_TURNS; NULL: there is none. */
static IrExpr *turn_in(IrExpr *e) {
  if (e->op == EX_MOD && e->arg[1]->op == EX_INT && e->arg[1]->i > 0 && e->arg[1]->i <= MAX_TURNS) return e;
  for (int i = 0; e->op > EX_LOAD && i < e->n; i++) {
    IrExpr *found = turn_in(e->arg[i]);
    if (found) return found;
  }
  return NULL;
}

/* e with n for the turn. */
static IrExpr *at_turn(Par *v, IrExpr *e, const IrExpr *turn, int64_t n) {
  if (ir_expr_equal(e, turn)) return ir_int(v->k, e->type, n);
  if (e->op == EX_CAST) return ir_cast(v->k, e->type, at_turn(v, e->arg[0], turn, n));
  if (e->op <= EX_LOAD || e->n != 2) return e;
  return ir_binary(v->k, e->op, at_turn(v, e->arg[0], turn, n), at_turn(v, e->arg[1], turn, n));
}

/* Does the count of a shift take few values in turn, as of values that lie several in a word? */
static bool shifts_in_turn(Par *v, IrExpr *e) {
  IrExpr *turn = turn_in(e->arg[1]);
  return turn && !par_axes_of(v, at_turn(v, e->arg[1], turn, 0));
}

/* The value of e in a tile, and what reads it. */
static IrExpr *hold(Par *v, IrExpr *e, Val *held) {
  *held = (Val){0};
  if (e->op == EX_LOAD && par_classify(v, e->buf, e->idx, ~0u).ok) return e;
  *held = par_whole(v, par_eval(v, e, NULL), par_axes_of(v, e));
  return held->temp ? par_tile_load(v, held->r.buf, held->span) : e; /* perhaps a view of its tile */
}

/* Shifts by each of the counts, one chosen after the other. */
static Val shift_in_turn(Par *v, IrExpr *e, const IrRegion *dst) {
  IrKernel *k = v->k;
  IrExpr *turn = turn_in(e->arg[1]), *r = NULL;
  Val x, last = {0};
  IrExpr *from = hold(v, e->arg[0], &x);
  for (int64_t i = turn->arg[1]->i - 1; i > 0; i--) {
    IrExpr *shifted = ir_binary(k, e->op, from, at_turn(v, e->arg[1], turn, i));
    if (r) shifted = ir_select(k, ir_binary(k, EX_EQ, turn, ir_int(k, turn->type, i)), shifted, r);
    Val held;
    r = hold(v, shifted, &held);
    par_release(v, last.temp);
    last = held;
  }
  IrExpr *by = at_turn(v, e->arg[1], turn, 0), *first = ir_is_int(by, 0) ? from : ir_binary(k, e->op, from, by);
  if (r) first = ir_select(k, ir_binary(k, EX_EQ, turn, ir_int(k, turn->type, 0)), first, r);
  Val out = par_eval(v, first, dst && !par_reads_buf(first, dst->buf) ? dst : NULL);
  par_release(v, last.temp);
  par_release(v, x.temp);
  return out;
}

/* ---- conditions --------------------------------------------------------------------------------------------- */

static bool is_compare(ExprOp op) { return op >= EX_LT && op <= EX_NE; }

static CmpMode mirror(CmpMode m) {
  switch (m) {
  case CMP_GT: return CMP_LT;
  case CMP_GE: return CMP_LE;
  case CMP_LT: return CMP_GT;
  case CMP_LE: return CMP_GE;
  default: return m;
  }
}

/* The dtype a comparison of e's operands runs in; DT_BOOL: none. */
static DType compare_type(Par *v, const IrExpr *e) {
  DType t = e->arg[0]->type;
  if (t == DT_F16 || t == DT_F32) return t;
  if (t == DT_I8 || t == DT_U8) return DT_F16;
  if (dtype_is_float(t) || t == DT_I16) return DT_F32;
  if (t != DT_I32 && t != DT_I64) return DT_BOOL;
  bool small = true;
  for (int i = 0; i < 2; i++) {
    IrRange r = ir_range(v->k, e->arg[i]);
    small &= r.lo >= -(1 << 24) && r.hi <= 1 << 24;
  }
  return small ? DT_F32 : t == DT_I32 ? DT_I32 : DT_BOOL;
}

/* A mask of the bits of comparison e over span; *swap: its bits are inverted. */
static IrBuf *compare_mask(Par *v, IrExpr *e, uint32_t span, bool *swap) {
  static const CmpMode modes[] = {CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_EQ, CMP_NE};
  IrKernel *k = v->k;
  CmpMode mode = modes[e->op - EX_LT];
  DType t = compare_type(v, e);
  IrExpr *l = ir_cast(k, t, e->arg[0]), *r = ir_cast(k, t, e->arg[1]);
  *swap = false;
  if (t == DT_I32) { /* the unit compares i32 for equality only: a <= b is min(a, b) == a */
    *swap = mode == CMP_NE || mode == CMP_LT || mode == CMP_GT;
    if (mode == CMP_LE || mode == CMP_GT) r = ir_binary(k, EX_MIN, l, r);
    if (mode == CMP_GE || mode == CMP_LT) r = ir_binary(k, EX_MAX, l, r);
    mode = CMP_EQ;
  }
  Val a = par_eval(v, l, NULL), b = par_eval(v, r, NULL);
  bool whole_numbers = t == DT_F32 && !dtype_is_float(e->arg[0]->type) && !dtype_is_float(e->arg[1]->type);
  if (whole_numbers && !a.scalar && !b.scalar && a.span != span && b.span != span) {
    /* neither is a whole tile, as in i >= j: one tile of the differences, whose sign is exact */
    a = emit_binary(v, OP_SUB, a, b, t, NULL);
    b = scalar_val(ir_float(k, t, 0));
  }
  a = par_whole(v, a, span);
  b = par_whole(v, b, span);
  if (a.scalar) {
    Val c = a;
    a = b;
    b = c;
    mode = mirror(mode);
  }
  IrBuf *mask = par_take_mask(v, span);
  IrStmt *s = par_emit(v, OP_COMPARE, 3, reg(a.r), b.scalar ? sca(b.scalar) : reg(b.r), reg(ir_whole(k, mask)));
  ir_set_attr(k, s, ATTR_CMP, ir_i32(k, mode));
  par_release(v, a.temp);
  par_release(v, b.temp);
  return mask;
}

static Val select_leaf(Par *v, IrBuf *mask, Val a, Val b, uint32_t span, const IrRegion *dst) {
  Val own = {0};
  if (a.scalar) a = own = par_filled(v, a.scalar, a.type, span);
  Val r = place(v, a.type, span, dst, own.temp ? &own : NULL, NULL);
  par_emit(v, OP_SELECT, 4, reg(ir_whole(v->k, mask)), reg(a.r), b.scalar ? sca(b.scalar) : reg(b.r), reg(r.r));
  par_release(v, own.temp);
  par_release(v, mask);
  return r;
}

static void move_into(Par *v, Val x, Val to) {
  if (x.scalar) par_emit(v, OP_FILL, 2, sca(x.scalar), reg(to.r));
  else par_emit(v, OP_COPY, 2, reg(x.r), reg(to.r));
}

static Val select_fixed(Par *v, IrExpr *cond, Val a, Val b, uint32_t span, const IrRegion *dst) {
  Val r = place(v, a.type, span, dst, NULL, NULL);
  IrBlock *outer = par_enter_if(v, cond);
  move_into(v, a, r);
  v->cur = &v->cur->parent->alt;
  move_into(v, b, r);
  v->cur = outer;
  return r;
}

/* cond ? a : b over span; a and b (f16 or f32) are whole or scalars and stay the caller's. */
static Val choose(Par *v, IrExpr *cond, Val a, Val b, uint32_t span, const IrRegion *dst) {
  IrKernel *k = v->k;
  if (!par_axes_of(v, cond)) return select_fixed(v, cond, a, b, span, dst);
  if (cond->op == EX_LNOT) return choose(v, cond->arg[0], b, a, span, dst);
  if (cond->op == EX_LAND || cond->op == EX_LOR) {
    bool both = cond->op == EX_LAND;
    IrExpr *when = both ? cond->arg[0] : ir_unary(k, EX_LNOT, cond->arg[0]);
    Val inner = choose(v, par_safe_divisors(v, cond->arg[1], when), a, b, span, NULL);
    Val r = choose(v, cond->arg[0], both ? inner : a, both ? b : inner, span, dst);
    if (inner.temp != r.temp) par_release(v, inner.temp);
    return r;
  }
  if (cond->op == EX_SELECT) {
    Val yes = choose(v, cond->arg[1], a, b, span, NULL), no = choose(v, cond->arg[2], a, b, span, NULL);
    Val r = choose(v, cond->arg[0], yes, no, span, dst);
    par_release(v, yes.temp);
    par_release(v, no.temp);
    return r;
  }
  bool swap = false;
  IrBuf *mask;
  if (is_compare(cond->op) && compare_type(v, cond) != DT_BOOL) {
    mask = compare_mask(v, cond, span, &swap);
  } else { /* a bool tile, or a comparison the vector unit does not know: bytes or halves against zero */
    Val x;
    if (cond->op == EX_LOAD) x = emit_cast(v, eval_load(v, cond), DT_F16, CAST_NONE, NULL);
    else
      x = scalar_tile(v, cond, arena_printf(v->p->arena, "%s has no vector form", par_expr_text(v, cond)), plain_fix);
    x = par_whole(v, x, span);
    mask = par_take_mask(v, span);
    IrStmt *s = par_emit(v, OP_COMPARE, 3, reg(x.r), sca(ir_float(k, DT_F16, 0)), reg(ir_whole(k, mask)));
    ir_set_attr(k, s, ATTR_CMP, ir_i32(k, CMP_NE));
    par_release(v, x.temp);
  }
  return select_leaf(v, mask, swap ? b : a, swap ? a : b, span, dst);
}

/* The same choice of the same bits, in dtype t. */
static IrExpr *select_signed(Par *v, IrExpr *c, IrExpr *a, IrExpr *b, DType t) {
  return ir_bits(v->k, (DType)a->type, ir_select(v->k, c, ir_bits(v->k, t, a), ir_bits(v->k, t, b)));
}

static Val eval_select(Par *v, IrExpr *e, const IrRegion *dst) {
  IrKernel *k = v->k;
  IrExpr *c = e->arg[0], *a = par_safe_divisors(v, e->arg[1], c);
  IrExpr *b = par_safe_divisors(v, e->arg[2], ir_unary(k, EX_LNOT, c));
  DType t = e->type;
  if (t == DT_I32 || t == DT_I16) { /* b + c * (a - b) wraps to the exact choice */
    v->choosing++;
    Val x =
        par_eval(v, ir_binary(k, EX_ADD, b, ir_binary(k, EX_MUL, ir_cast(k, t, c), ir_binary(k, EX_SUB, a, b))), dst);
    v->choosing--;
    return x;
  }
  if (t == DT_U16) return par_eval(v, select_signed(v, c, a, b, DT_I16), dst);
  if (t != DT_F16 && t != DT_F32) { /* of one byte: exact in f16 */
    DType w = t == DT_BF16 ? DT_F32 : DT_F16;
    return par_eval(v, ir_cast(k, t, ir_select(k, c, ir_cast(k, w, a), ir_cast(k, w, b))), dst);
  }
  uint32_t span = par_axes_of(v, e);
  v->choosing++;
  Val x = par_whole(v, par_eval(v, a, NULL), span), y = par_whole(v, par_eval(v, b, NULL), span);
  v->choosing--;
  Val r = choose(v, c, x, y, span, dst);
  par_release(v, x.temp);
  par_release(v, y.temp);
  return r;
}

/* A condition as numbers 1 and 0 of dtype t. */
static Val eval_truth(Par *v, IrExpr *cond, DType t, const IrRegion *dst) {
  DType w = t == DT_F32 ? DT_F32 : DT_F16;
  uint32_t span = par_axes_of(v, cond);
  Val r = choose(v, cond, scalar_val(ir_float(v->k, w, 1)), scalar_val(ir_float(v->k, w, 0)), span,
                 w == t ? dst : NULL);
  return w == t ? r : emit_cast(v, r, t, CAST_NONE, dst);
}

/* ---- expressions -------------------------------------------------------------------------------------------- */

static bool wide_or_unsigned(DType t) { return t == DT_I64 || t == DT_U64 || t == DT_U32; }

/* Can the operand of a bit cast be seen under another dtype? Rows of a tile are padded to whole blocks. */
static bool can_view(Par *v, const IrExpr *e) {
  const IrExpr *x = e->arg[0];
  int64_t size = dtype_size(e->type);
  if (dtype_size(x->type) == size) return true;
  if (x->op == EX_LOAD && vector_space(x->buf->space) && par_classify(v, x->buf, x->idx, ~0u).ok) {
    const IrExpr *row = x->buf->shape[x->buf->rank - 1];
    return x->buf->rank == 1 || (ir_is_const(row) && row->i * size % 32 == 0);
  }
  bool along = par_axes_of(v, x) >> (v->n - 1) & 1;
  return v->n == 1 || (along && v->ax[v->n - 1].cap * size % 32 == 0);
}

/* e of dtype u32, which the unit only shifts, computed in i32, where the same bits come out; NULL: they would not. */
static IrExpr *as_signed(Par *v, IrExpr *e) {
  IrKernel *k = v->k;
  if (e->type != DT_U32) return NULL;
  switch (e->op) {
  case EX_ADD:
  case EX_SUB:
  case EX_MUL:
  case EX_AND:
  case EX_OR:
  case EX_XOR:
    return ir_bits(k, DT_U32, ir_binary(k, e->op, ir_bits(k, DT_I32, e->arg[0]), ir_bits(k, DT_I32, e->arg[1])));
  case EX_SHL:
    return par_axes_of(v, e->arg[1]) ? NULL
                                     : ir_bits(k, DT_U32, ir_binary(k, EX_SHL, ir_bits(k, DT_I32, e->arg[0]),
                                                                    ir_cast(k, DT_I32, e->arg[1])));
  case EX_NOT: return ir_bits(k, DT_U32, ir_unary(k, EX_NOT, ir_bits(k, DT_I32, e->arg[0])));
  case EX_SELECT: return select_signed(v, e->arg[0], e->arg[1], e->arg[2], DT_I32);
  case EX_CAST: {
    DType from = e->arg[0]->type;
    bool narrow = !dtype_is_float(from) && from != DT_BOOL && dtype_size(from) <= 4;
    return narrow ? ir_bits(k, DT_U32, ir_cast(k, DT_I32, e->arg[0])) : NULL;
  }
  default: return NULL;
  }
}

/* Why the operator at the top of e cannot become vector ops; NULL: it can. */
static const char *no_vector_form(Par *v, IrExpr *e) {
  Arena *a = v->p->arena;
  if (e->op == EX_LOAD || e->type == DT_BOOL) return NULL;
  if (e->op == EX_BITS)
    return can_view(v, e) ? NULL : "a bit cast of rows that are not whole blocks of 32 bytes has no vector op";
  bool shifts = e->type == DT_U32 && e->op == EX_SHR && !par_axes_of(v, e->arg[1]);
  if (wide_or_unsigned(e->type) && !(e->op == EX_CAST && e->type == DT_I64) && !shifts && !as_signed(v, e))
    return arena_printf(a, "the vector unit does not compute in %s", dtype_info[e->type].name);
  bool is_int = !dtype_is_float(e->type);
  switch (e->op) {
  case EX_POW:
    return is_int && (e->arg[1]->op != EX_INT || e->arg[1]->
    i < 0) ? "an integer power needs a constant exponent" : NULL;
  case EX_SHL:
  case EX_SHR:
    if (!par_axes_of(v, e->arg[1]) || shifts_in_turn(v, e)) return NULL;
    return "a shift needs a count that is the same for all elements";
  case EX_FDIV:
    if (!is_int) return NULL;
    /* fall through */
  case EX_MOD: {
    if (!is_int) return "a floating-point remainder has no vector instruction";
    IrExpr *b = e->arg[1];
    if (b->op != EX_INT || b->i <= 0) return "an integer division needs a positive constant divisor";
    return (b->i & (b->i - 1)) == 0 || b->i <= LARGEST_DIVISOR || small_dividend(v, e)
               ? NULL
               : "an integer division by a constant over 2^20 is not exact in f32";
  }
  case EX_SELECT:
    return par_proven_inside(v, e->arg[1]) && par_proven_inside(v, e->arg[2])
               ? NULL
               : "an element that the condition leaves out may lie outside its tile";
  default: return NULL;
  }
}

/* Is integer x known to be a value of integer dtype t? */
static bool fits(Par *v, const IrExpr *x, DType t) {
  IrRange r = ir_range(v->k, x);
  int bits = dtype_info[t].bits - (dtype_info[t].cls == 'i'), wide = dtype_info[x->type].bits;
  bool below_zero = dtype_info[x->type].cls == 'i', takes_sign = dtype_info[t].cls == 'i';
  int64_t top = bits > 62 ? INT64_MAX : ((int64_t)1 << bits) - 1;
  if (r.lo >= (takes_sign ? -top - 1 : 0) && r.hi <= top) return true;
  if (wide - below_zero <= bits && (takes_sign || !below_zero)) return true; /* every value of its dtype */
  const IrExpr *c = x->n == 2 ? x->arg[1] : NULL;
  switch (x->op) {
  case EX_AND:
    return (c->op == EX_INT && c->i >= 0 && c->i <= top) || (x->arg[0]->op == EX_INT && x->arg[0]->i >= 0 &&
                                                            x->arg[0]->i <= top);
  case EX_SHR:
    return c->op == EX_INT && c->i > 0 && wide - below_zero - c->i <= bits && (takes_sign || !below_zero);
  case EX_CAST: return !dtype_is_float(x->arg[0]->type) && wide >= dtype_info[x->arg[0]->type].bits &&
                       fits(v, x->arg[0], t);
  case EX_SELECT: return fits(v, x->arg[1], t) && fits(v, x->arg[2], t);
  default: return false;
  }
}

/* A conversion of integers keeps the low bits, the unit's clamps: `*x`, the operand, becomes one that is inside, or the
 * result is another expression of the same value. */
static IrExpr *low_bits(Par *v, const IrExpr *e, IrExpr **x) {
  IrKernel *k = v->k;
  DType t = e->type, from = (*x)->type, as = from == DT_U32 ? DT_I32 : from == DT_U16 ? DT_I16 : from;
  if (t == DT_BOOL || from == DT_BOOL || dtype_is_float(t) || dtype_is_float(from) || fits(v, *x, t)) return NULL;
  int more = dtype_info[from].bits - dtype_info[t].bits;
  if (more <= 0) return more ? NULL : ir_bits(k, t, *x);
  if (as != from) return ir_cast(k, t, ir_bits(k, as, *x));
  if (from == DT_I64 && dtype_size(t) < 4) return ir_cast(k, t, ir_cast(k, DT_I32, *x));
  if (t == DT_U16) return ir_bits(k, t, ir_cast(k, DT_I16, *x));
  if (as != DT_I32 && as != DT_I16) return NULL;
  IrExpr *by = ir_i32(k, more);
  *x = t == DT_U8 ? ir_binary(k, EX_AND, *x, ir_int(k, as, 255))
                  : ir_binary(k, EX_SHR, ir_binary(k, EX_SHL, *x, by), by);
  return NULL;
}

static Val eval_cast(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0];
  Linear l;
  if (x->type == DT_BOOL && x->op != EX_LOAD) return eval_truth(v, x, e->type, dst);
  if ((e->type == DT_F32 && is_ramp(v, x, &l, 1 << 24)) || (e->type == DT_F16 && is_ramp(v, x, &l, 2048)))
    return eval_ramp(v, &l, e->type, dst);
  IrRange r = ir_range(v->k, x);
  bool positive = x->op == EX_SHR && x->arg[1]->op == EX_INT && x->arg[1]->i > 0;
  bool small = x->type == DT_U32 && (positive || (r.lo >= 0 && r.hi <= INT32_MAX)); /* the same number in i32 */
  if (small && e->type != DT_U32) return par_eval(v, ir_cast(v->k, e->type, ir_bits(v->k, DT_I32, x)), dst);
  if (wide_or_unsigned(x->type) && is_ramp(v, x, &l, 1 << 30))
    return par_eval(v, ir_cast(v->k, e->type, ir_cast(v->k, DT_I32, x)), dst);
  IrExpr *other = low_bits(v, e, &x);
  if (other) return par_eval(v, other, dst);
  bool trunc = dtype_is_float(x->type) && !dtype_is_float(e->type);
  v->rounding += trunc;
  Val a = par_eval(v, x, NULL);
  v->rounding -= trunc;
  return emit_cast(v, a, e->type, trunc ? CAST_TRUNC : CAST_NONE, dst);
}

/* The bytes of a tile under another dtype. */
static IrBuf *view_as(Par *v, IrBuf *b, DType t) {
  IrBuf *base = b->view ? b->view : b;
  for (IrStmt *s = v->allocs->first; s; s = s->next) {
    IrBuf *x = s->alloc.buf;
    bool same = x->view == base && x->type == t && x->rank == b->rank;
    for (int d = 0; same && d < b->rank; d++) same = ir_expr_equal(x->shape[d], b->shape[d]);
    if (same) return x;
  }
  const char *name = arena_printf(v->p->arena, "t%d", v->facts->n_names++);
  IrBuf *as = ir_new_buf(v->k, name, t, b->space, b->rank, b->shape, v->loc);
  as->view = base;
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = as;
  ir_append(v->allocs, s);
  return as;
}

static Val eval_bits(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *other = as_signed(v, e->arg[0]);
  if (other) return par_eval(v, ir_bits(v->k, e->type, other), dst);
  Val x = par_eval(v, e->arg[0], NULL);
  if (x.scalar) return scalar_val(ir_bits(v->k, e->type, x.scalar));
  x.r.buf = x.r.buf->type == e->type ? x.r.buf : view_as(v, x.r.buf, e->type);
  x.type = e->type;
  return x;
}

static Val eval_abs(Par *v, IrExpr *e, const IrRegion *dst) {
  Val a = par_eval(v, e->arg[0], dst);
  if (dtype_is_float(e->type)) return emit_unary(v, OP_ABS, a, e->type, dst);
  if (dtype_info[e->type].cls == 'u') return a;
  Val keep = a;
  keep.temp = NULL;
  Val neg = emit_binary(v, OP_MUL, keep, scalar_val(ir_int(v->k, e->type, -1)), e->type, NULL);
  return emit_binary(v, OP_MAX, a, neg, e->type, dst);
}

static Val eval_tile(Par *v, IrExpr *e, const IrRegion *dst) {
  Linear l;
  const char *why = no_vector_form(v, e);
  if ((e->type == DT_I32 || e->type == DT_I16) && is_ramp(v, e, &l, 0)) return eval_ramp(v, &l, e->type, dst);
  if (why) return scalar_tile(v, e, why, plain_fix);
  IrExpr *other = as_signed(v, e);
  if (other) return par_eval(v, other, dst);
  if (e->type == DT_BOOL && e->op != EX_LOAD) {
    if (e->op == EX_CAST) e = ir_binary(v->k, EX_NE, e->arg[0], ir_int(v->k, e->arg[0]->type, 0));
    return eval_truth(v, e, DT_BOOL, dst);
  }
  switch (e->op) {
  case EX_LOAD: return eval_load(v, e);
  case EX_CAST: return eval_cast(v, e, dst);
  case EX_BITS: return eval_bits(v, e, dst);
  case EX_SELECT: return eval_select(v, e, dst);
  case EX_NEG:
    return emit_binary(v, OP_MUL, par_eval(v, e->arg[0], dst), scalar_val(ir_int(v->k, e->type, -1)), e->type, dst);
  case EX_ABS: return eval_abs(v, e, dst);
  case EX_POW: return eval_pow(v, e, dst);
  case EX_FLOOR:
  case EX_CEIL:
  case EX_ROUND: return eval_rounding(v, e, dst);
  case EX_FDIV:
    if (dtype_is_float(e->type)) { /* in f32: a quotient rounded up to a whole number has no floor any more */
      IrExpr *q = ir_binary(v->k, EX_DIV, ir_cast(v->k, DT_F32, e->arg[0]), ir_cast(v->k, DT_F32, e->arg[1]));
      return par_eval(v, ir_cast(v->k, e->type, ir_unary(v->k, EX_FLOOR, q)), dst);
    }
    return eval_int_division(v, e, dst);
  case EX_MOD: return eval_int_division(v, e, dst);
  case EX_SHL:
  case EX_SHR:
    if (par_axes_of(v, e->arg[1])) return shift_in_turn(v, e, dst);
    break;
  default: break;
  }
  if (e->n == 1) return emit_unary(v, vector_op(e->op), par_eval(v, e->arg[0], dst), e->type, dst);
  return eval_arith(v, e, dst);
}

Val par_eval(Par *v, IrExpr *e, const IrRegion *dst) {
  uint32_t span = par_axes_of(v, e);
  if (!span) return scalar_val(e);
  Val x = eval_tile(v, e, dst);
  return x.scalar ? par_filled(v, x.scalar, e->type, span) : x;
}
