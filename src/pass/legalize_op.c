/* legalize_op.c - elementwise ops in dtypes the vector unit has.
 *
 *   bf16            cast to f32, computed there, rounded back to nearest even
 *   i8 u8           cast to i16 through f16 (exact), computed there, taken modulo 256 where the op can leave the range
 *   i32 bits        two halves of 16 bits, each exact in i16; i32 select: two halves, each exact in f32
 *   i32 compare     the unit only has equality: a <= b is min(a, b) == a, a != b is clamp(a - b, -1, 1)^2 == 1
 *   64 bits, u32 …  no unit: element by element on the scalar pipe with a warning, or an error that names the dtype
 *
 * The destination of a step is written by the last instruction that still needs the inputs, never earlier, because it
 * may be one of them. */
#include "legalize.h"

#include <math.h>
#include <string.h>

void lg_emit2(Lg *g, const Nest *n, StmtOp op, Opd a, Opd dst) {
  lg_emit(g, n, op, (Opd[]){a, dst}, 2, NO_ATTR, 0);
}
void lg_emit3(Lg *g, const Nest *n, StmtOp op, Opd a, Opd b, Opd dst) {
  lg_emit(g, n, op, (Opd[]){a, b, dst}, 3, NO_ATTR, 0);
}

Opd lg_number(Lg *g, DType t, double v) {
  return lg_scalar(dtype_is_float(t) ? ir_float(g->k, t, v) : ir_int(g->k, t, (int64_t)v));
}

IrExpr *lg_scalar_as(Lg *g, DType t, IrExpr *e) {
  if (e->op == EX_FLOAT && !dtype_is_float(t) && fabs(e->f) < 9e18) return ir_int(g->k, t, (int64_t)e->f);
  return ir_cast(g->k, t, e);
}

void lg_no_dtype(Lg *g, DType t, const char *fix) {
  Diag *d = diag_add(g->p->diags, DIAG_LEG_DTYPE, g->loc, "'%s' has no form on %s tiles on the %s",
                     op_info[g->s->op].name, dtype_info[t].name, g->p->arch->name);
  diag_fix(g->p->diags, d, "%s", fix);
  g->failed = true;
}

/* ---- conversions ------------------------------------------------------------------------------------------------ */

static bool is_byte(DType t) { return t == DT_I8 || t == DT_U8; }

/* Does y hold every value of x? */
static bool holds(DType y, DType x) {
  if (x == y) return true;
  if (dtype_is_float(x)) return dtype_is_float(y) && dtype_size(y) > dtype_size(x);
  if (dtype_is_float(y)) return dtype_size(x) < dtype_size(y) && y != DT_BF16;
  return dtype_size(x) < dtype_size(y) && (dtype_info[x].cls != 'i' || dtype_info[y].cls == 'i');
}

/* The dtype after src on the way to dst: hops that lose nothing come first, so that a value is rounded once. */
static DType next_hop(const Arch *arch, DType dst, DType src) {
  if (arch_can_cast(arch, dst, src)) return dst;
  if (is_byte(dst)) {
    if (is_byte(src) || src == DT_I16) return DT_F16;
    return src == DT_F32 || src == DT_I32 ? DT_I16 : src == DT_I64 ? DT_I32 : DT_F32;
  }
  if (is_byte(src)) return DT_F16;
  if (src == DT_I64 && !dtype_is_float(dst)) return DT_I32;
  if (dst == DT_I64) return src == DT_F16 || src == DT_BF16 || src == DT_I16 ? DT_F32 : DT_I32;
  return DT_F32;
}

bool lg_cast_route(const Arch *arch, DType dst, DType src, DType hop[4], int *n_hops) {
  for (*n_hops = 0; src != dst && *n_hops < 4; (*n_hops)++) {
    DType to = next_hop(arch, dst, src);
    if (to == src || !arch_can_cast(arch, to, src)) return false;
    hop[*n_hops] = src = to;
  }
  return src == dst;
}

static void cast_hop(Lg *g, const Nest *n, Opd src, Opd dst, CastMode mode) {
  lg_emit(g, n, OP_CAST, (Opd[]){src, dst}, 2, ATTR_MODE, mode);
}

/* To whole numbers of the same float dtype. */
static void round_in_place(Lg *g, const Nest *n, Opd src, Opd dst, CastMode mode) {
  DType t = opd_type(&src);
  if (arch_can_cast(g->p->arch, t, t)) {
    cast_hop(g, n, src, dst, mode);
  } else {
    Opd wide = lg_as(g, n, src, DT_F32), whole = lg_temp(g, n, DT_F32);
    cast_hop(g, n, wide, whole, mode);
    lg_cast(g, n, whole, dst, CAST_RINT);
  }
}

/* A tile of truth values as the bytes 0 and 1 that they are. */
static Opd as_bytes(Lg *g, Opd o) {
  int64_t shape[IR_MAX_RANK] = {0};
  for (int d = 0; d < o.r.buf->rank; d++) shape[d] = o.r.buf->shape[d]->i;
  o.r.buf = lg_view(g, o.r.buf, DT_U8, o.r.buf->rank, shape);
  return o;
}

void lg_cast(Lg *g, const Nest *n, Opd src, Opd dst, CastMode mode) {
  if (opd_type(&src) == DT_BOOL && opd_type(&dst) != DT_BOOL) src = as_bytes(g, src);
  DType from = opd_type(&src), to = opd_type(&dst), hop[4];
  int hops;
  bool rounds = mode != CAST_NONE && mode != CAST_ODD;
  if (from == to) {
    lg_emit2(g, n, OP_MOVE, src, dst);
    return;
  }
  if (!lg_cast_route(g->p->arch, to, from, hop, &hops)) {
    if (dtype_is_float(to) && rounds && mode != CAST_RINT && !holds(to, from)) {
      lg_no_dtype(g, to, "leave the mode out: pipe S, which converts here, rounds to nearest");
      return;
    }
    lg_warn_scalar(g, n, arena_printf(g->a, "the conversion of %s to %s", dtype_info[from].name, dtype_info[to].name),
                   "the vector unit has no path between the two", "use i32, i16, f16 or f32 tiles");
    if (dtype_is_float(from) && !dtype_is_float(to) && to != DT_BOOL) { /* whole first: pipe S cuts off the fraction */
      Opd wide = lg_as(g, n, src, DT_F32), whole = lg_temp(g, n, DT_F32);
      cast_hop(g, n, wide, whole, rounds ? mode : CAST_RINT);
      src = whole;
    }
    lg_by_element(g, n, OP_CAST, (Opd[]){src, dst}, 2);
    return;
  }
  for (int i = 0; i < hops; i++) {
    DType x = opd_type(&src), y = hop[i];
    bool int_x = !dtype_is_float(x), int_y = !dtype_is_float(y);
    CastMode m = holds(y, x) || (int_x && int_y) ? CAST_NONE : CAST_RINT;
    if (m != CAST_NONE && rounds && (int_y || dtype_is_float(to))) m = mode;
    if (mode == CAST_ODD && x == DT_F32 && y == DT_F16 && to == DT_F16) m = CAST_ODD;
    Opd t = i + 1 == hops ? dst : lg_temp(g, n, y);
    cast_hop(g, n, src, t, m);
    src = t;
  }
}

void lg_wrap(Lg *g, const Nest *n, Opd x, DType t) {
  DType w = opd_type(&x);
  int shift = dtype_info[w].bits - dtype_info[t].bits;
  Opd by = lg_number(g, w, shift), narrow = lg_number(g, w, dtype_info[t].bits);
  if (shift <= 0) return;
  if (dtype_info[t].cls == 'i') {
    lg_emit3(g, n, OP_SHL, x, by, x);
    lg_emit3(g, n, OP_SHR, x, by, x);
    return;
  }
  Opd high = lg_temp(g, n, w); /* x - (x >> bits << bits) */
  lg_emit3(g, n, OP_SHR, x, narrow, high);
  lg_emit3(g, n, OP_SHL, high, narrow, high);
  lg_emit3(g, n, OP_SUB, x, high, x);
}

/* ---- arithmetic ----------------------------------------------------------------------------------------------- */

Opd lg_filled(Lg *g, const Nest *n, Opd scalar, DType w) {
  Opd t = lg_temp(g, n, w);
  lg_emit2(g, n, OP_FILL, lg_scalar(lg_scalar_as(g, w, scalar.scalar)), t);
  return t;
}

static IrExpr *reciprocal(Lg *g, DType w, IrExpr *s) {
  IrExpr *f = ir_cast(g->k, DT_F32, s);
  if (f->op == EX_FLOAT) return ir_float(g->k, w, (double)(1.0f / (float)f->f));
  return ir_cast(g->k, w, ir_binary(g->k, EX_DIV, ir_float(g->k, DT_F32, 1), f));
}

static IrExpr *scalar_op(Lg *g, StmtOp op, DType w, IrExpr *a, IrExpr *b) {
  DType t = dtype_is_float(w) ? DT_F32 : w;
  a = ir_cast(g->k, t, a);
  b = ir_cast(g->k, t, b);
  ExprOp e = op == OP_ADD ? EX_ADD : op == OP_SUB ? EX_SUB : op == OP_MUL ? EX_MUL : op == OP_MAX ? EX_MAX
           : op == OP_MIN ? EX_MIN : EX_DIV;
  return ir_cast(g->k, w, ir_binary(g->k, e, a, b));
}

void lg_binary(Lg *g, const Nest *n, StmtOp op, DType w, Opd a, Opd b, Opd dst) {
  if (a.scalar && b.scalar) {
    lg_emit2(g, n, OP_FILL, lg_scalar(scalar_op(g, op, w, a.scalar, b.scalar)), dst);
    return;
  }
  if (a.scalar && op == OP_SUB) { /* s - b = b * -1 + s */
    lg_emit3(g, n, OP_MUL, b, lg_number(g, w, -1), dst);
    lg_emit3(g, n, OP_ADD, dst, lg_scalar(lg_scalar_as(g, w, a.scalar)), dst);
    return;
  }
  if (a.scalar && op == OP_DIV) {
    a = lg_filled(g, n, a, w);
  } else if (a.scalar) {
    Opd swap = a;
    a = b;
    b = swap;
  }
  if (b.scalar) {
    IrExpr *s = op == OP_DIV ? reciprocal(g, w, b.scalar) : lg_scalar_as(g, w, b.scalar);
    if (op == OP_SUB) s = ir_unary(g->k, EX_NEG, s);
    op = op == OP_DIV ? OP_MUL : op == OP_SUB ? OP_ADD : op;
    b = lg_scalar(s);
  }
  lg_emit3(g, n, op, a, b, dst);
}

/* ---- bits ----------------------------------------------------------------------------------------------------- */

static void bits16(Lg *g, const Nest *n, StmtOp op, DType w, Opd a, Opd b, Opd dst) {
  if (op == OP_NOT) {
    lg_emit2(g, n, OP_NOT, a, dst);
    return;
  }
  if (a.scalar) a = lg_filled(g, n, a, w);
  if (b.scalar) b = lg_filled(g, n, b, w);
  if (op != OP_XOR) {
    lg_emit3(g, n, op, a, b, dst);
    return;
  }
  Opd any = lg_temp(g, n, w), both = lg_temp(g, n, w); /* (a | b) & ~(a & b) */
  lg_emit3(g, n, OP_OR, a, b, any);
  lg_emit3(g, n, OP_AND, a, b, both);
  lg_emit2(g, n, OP_NOT, both, both);
  lg_emit3(g, n, OP_AND, any, both, dst);
}

/* x = hi * 65536 + lo as tiles of dtype w; lo from 0 to 65535, or the signed value of its bits. */
void lg_halves(Lg *g, const Nest *n, Opd x, DType w, bool low_signed, Opd *hi, Opd *lo) {
  Opd by = lg_number(g, DT_I32, 16);
  if (x.scalar) {
    IrExpr *s = ir_cast(g->k, DT_I32, x.scalar), *h = ir_binary(g->k, EX_SHR, s, by.scalar);
    IrExpr *l = ir_binary(g->k, EX_SUB, s, ir_binary(g->k, EX_SHL, h, by.scalar));
    if (low_signed) l = ir_binary(g->k, EX_SHR, ir_binary(g->k, EX_SHL, s, by.scalar), by.scalar);
    *hi = lg_scalar(ir_cast(g->k, w, h));
    *lo = lg_scalar(ir_cast(g->k, w, l));
    return;
  }
  Opd own;
  int8_t back[IR_MAX_RANK];
  Nest m = lg_own(n, &x, &own, back);
  Opd h = lg_temp(g, &m, DT_I32), l = lg_temp(g, &m, DT_I32);
  lg_emit3(g, &m, OP_SHR, own, by, h);
  if (low_signed) {
    lg_emit3(g, &m, OP_SHL, own, by, l);
    lg_emit3(g, &m, OP_SHR, l, by, l);
  } else {
    lg_emit3(g, &m, OP_SHL, h, by, l);
    lg_emit3(g, &m, OP_SUB, own, l, l);
  }
  *hi = lg_widen(n, &m, lg_as(g, &m, h, w), back);
  *lo = lg_widen(n, &m, lg_as(g, &m, l, w), back);
}

/* dst = hi * 65536 + lo; both i32 scratch that may be changed. */
void lg_join(Lg *g, const Nest *n, Opd hi, Opd lo, Opd dst) {
  lg_emit3(g, n, OP_SHL, hi, lg_number(g, DT_I32, 16), hi);
  lg_emit3(g, n, OP_ADD, hi, lo, dst);
}

/* Sums, differences and products of unsigned elements have the bits of the signed ones. */
static DType as_signed(StmtOp op, DType t) {
  if (op != OP_ADD && op != OP_SUB && op != OP_MUL && op != OP_MULADD && op != OP_AXPY && op != OP_ARANGE) return t;
  return t == DT_U32 ? DT_I32 : t == DT_U16 ? DT_I16 : t;
}

/* o with its last dimension in elements of t: twice or four times as many. */
static Opd reread(Lg *g, Opd o, DType t) {
  IrBuf *b = o.r.buf;
  int64_t shape[IR_MAX_RANK], ratio = dtype_size(b->type) / dtype_size(t);
  int last = b->rank - 1;
  for (int d = 0; d <= last; d++) shape[d] = b->shape[d]->i;
  shape[last] *= ratio;
  o.r.buf = lg_view(g, b, t, b->rank, shape);
  o.r.off[last] = ir_binary(g->k, EX_MUL, o.r.off[last], ir_i32(g->k, ratio));
  o.r.ext[last] = ir_binary(g->k, EX_MUL, o.r.ext[last], ir_i32(g->k, ratio));
  return o;
}

/* An integer of the other sign, same width, as it is read by the unit. */
static IrExpr *same_bits(Lg *g, DType t, IrExpr *e) {
  e = lg_scalar_as(g, e->type == t || ir_is_const(e) || e->op == EX_FLOAT ? t : (DType)e->type, e);
  int bits = dtype_info[t].bits;
  if (e->op == EX_INT && bits < 64) {
    int64_t v = (int64_t)((uint64_t)e->i << (64 - bits)) >> (64 - bits);
    return ir_int(g->k, t, dtype_info[t].cls == 'u' ? v & (((int64_t)1 << bits) - 1) : v);
  }
  return ir_cast(g->k, t, e);
}

/* o over n as 16-bit elements; written out where it repeats or its columns are not the last dimension of its buffer. */
static Opd as_u16(Lg *g, const Nest *n, Opd o, DType w, bool reads) {
  if (o.scalar) o = lg_filled(g, n, o, w);
  if (o.block || o.dim[n->n - 1] != o.r.buf->rank - 1) {
    Opd full = lg_temp(g, n, w);
    if (reads) lg_emit2(g, n, OP_MOVE, o, full);
    o = full;
  }
  return reread(g, o, DT_U16);
}

/* Wide elements bit by bit: as twice (64 bits: four times) as many of 16 bits. */
static void bits_wide(Lg *g, const Nest *n, StmtOp op, int n_in, const Opd *from, Opd dst) {
  DType w = opd_type(&dst);
  Opd in[LG_MAX_IN] = {0}, to = as_u16(g, n, dst, w, false), home = dst;
  Nest m = *n;
  int last = n->n - 1, ratio = dtype_size(w) / 2;
  for (int i = 0; i < n_in; i++) in[i] = as_u16(g, n, from[i], w, true);
  m.ext[last] = ir_binary(g->k, EX_MUL, n->ext[last], ir_i32(g->k, ratio));
  m.max[last] = n->max[last] * ratio;
  bits16(g, &m, op, DT_U16, in[0], in[1], to);
  if (ir_root(to.r.buf) == ir_root(home.r.buf)) return;
  Opd made = {.r = ir_whole(g->k, to.r.buf->view)};
  for (int d = 0; d < n->n; d++) {
    made.r.ext[d] = n->ext[d];
    made.dim[d] = (int8_t)d;
  }
  lg_emit2(g, n, OP_MOVE, made, home);
}

/* Unsigned tiles and their scalars, read as signed where that makes no difference. */
static void read_signed(Lg *g, StmtOp op, Opd *arg, int n_in) {
  DType t = opd_type(&arg[n_in]), w = as_signed(op, t);
  if (w == t) return;
  for (int i = 0; i <= n_in; i++) {
    if (arg[i].scalar) arg[i].scalar = same_bits(g, w, arg[i].scalar);
    else if (opd_type(&arg[i]) == t) arg[i] = reread(g, arg[i], w);
  }
}

/* ---- one op in its working dtype ------------------------------------------------------------------------------ */

static bool is_bits(StmtOp op) { return op == OP_AND || op == OP_OR || op == OP_XOR || op == OP_NOT; }

/* The dtype an op on t tiles is computed in; DTYPE_COUNT: the vector unit cannot. */
static DType work_type(Lg *g, StmtOp op, DType t) {
  bool float_only = op == OP_DIV || op == OP_LEAKY || op == OP_EXP || op == OP_LN || op == OP_SQRT || op == OP_RSQRT ||
                    op == OP_RECIP || op == OP_SIGMOID || op == OP_SILU || op == OP_TANH;
  if (op == OP_SIN || op == OP_COS || op == OP_POW)
    return dtype_is_float(t) && dtype_size(t) > 1 ? DT_F32 : DTYPE_COUNT;
  DTypeRule rule = op == OP_XOR ? RULE_BITS : op == OP_ARANGE ? RULE_ARITH : (DTypeRule)op_info[op].dtypes;
  if (op == OP_SIGMOID || op == OP_SILU || op == OP_TANH)
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 ? DT_F32 : DTYPE_COUNT;
  if (arch_has_dtype(g->p->arch, rule, t)) return t;
  if (is_bits(op)) return dtype_size(t) >= 4 ? t : is_byte(t) ? DT_I16 : DTYPE_COUNT;
  if (as_signed(op, t) != t) return as_signed(op, t);
  if (t == DT_BF16 || (dtype_is_float(t) && dtype_size(t) == 1))
    return op == OP_SHL || op == OP_SHR ? DTYPE_COUNT : DT_F32;
  if (float_only) return DTYPE_COUNT;
  if (is_byte(t)) return DT_I16;
  return t == DT_I16 || t == DT_I32 ? t : DTYPE_COUNT;
}

/* Can the result of op leave the range of the small int it came from? */
static bool leaves_range(StmtOp op) { return op != OP_MAX && op != OP_MIN && op != OP_SHR && op != OP_RELU; }

static void exp_family(Lg *g, const Nest *n, StmtOp op, Opd a, Opd dst) {
  Opd x = op == OP_SILU ? lg_temp(g, n, DT_F32) : dst, one = lg_number(g, DT_F32, 1);
  if (op == OP_TANH) { /* (exp(2a) - 1) / (exp(2a) + 1), a kept where exp neither overflows nor matters */
    Opd up = lg_temp(g, n, DT_F32);
    lg_emit3(g, n, OP_MIN, a, lg_number(g, DT_F32, 10), x);
    lg_emit3(g, n, OP_MAX, x, lg_number(g, DT_F32, -10), x);
    lg_emit3(g, n, OP_MUL, x, lg_number(g, DT_F32, 2), x);
    lg_emit2(g, n, OP_EXP, x, x);
    lg_emit3(g, n, OP_ADD, x, lg_number(g, DT_F32, -1), up);
    lg_emit3(g, n, OP_ADD, x, one, x);
    lg_emit3(g, n, OP_DIV, up, x, dst);
    return;
  }
  lg_emit3(g, n, OP_MUL, a, lg_number(g, DT_F32, -1), x);
  lg_emit2(g, n, OP_EXP, x, x);
  lg_emit3(g, n, OP_ADD, x, one, x);
  lg_emit3(g, n, OP_DIV, op == OP_SILU ? a : lg_filled(g, n, one, DT_F32), x, dst);
}

/* in[] and dst are in dtype w. For axpy and mul_add dst holds the old value. */
static void compute(Lg *g, const Nest *n, StmtOp op, DType w, Opd *in, Opd dst) {
  bool is_float = dtype_is_float(w);
  Opd t;
  if (is_bits(op)) {
    if (dtype_size(w) >= 4) bits_wide(g, n, op, op == OP_NOT ? 1 : 2, in, dst);
    else bits16(g, n, op, w, in[0], in[1], dst);
    return;
  }
  switch (op) {
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_MAX:
  case OP_MIN:
  case OP_DIV: lg_binary(g, n, op, w, in[0], in[1], dst); return;
  case OP_SIGMOID:
  case OP_SILU:
  case OP_TANH: exp_family(g, n, op, in[0], dst); return;
  case OP_SIN:
  case OP_COS:
  case OP_POW: lg_math(g, n, op, in[0], in[1], dst); return;
  case OP_ABS:
    if (is_float) break;
    t = lg_temp(g, n, w);
    lg_emit3(g, n, OP_MUL, in[0], lg_number(g, w, -1), t);
    lg_emit3(g, n, OP_MAX, in[0], t, dst);
    return;
  case OP_RELU:
    if (arch_has_dtype(g->p->arch, RULE_RELU, w)) break;
    lg_emit3(g, n, OP_MAX, in[0], lg_number(g, w, 0), dst);
    return;
  case OP_AXPY:
  case OP_MULADD: {
    Opd a = in[0], b = in[1];
    if (a.scalar) a = in[1], b = in[0];
    if (a.scalar) a = lg_filled(g, n, a, w);
    if (is_float) {
      lg_emit3(g, n, b.scalar ? OP_AXPY : OP_MULADD, a, b, dst);
      return;
    }
    t = lg_temp(g, n, w);
    lg_emit3(g, n, OP_MUL, a, b, t);
    lg_emit3(g, n, OP_ADD, dst, t, dst);
    return;
  }
  case OP_SHL:
  case OP_SHR:
    if (ir_is_const(in[1].scalar) && (in[1].scalar->i < 0 || in[1].scalar->i > dtype_info[w].bits))
      in[1] = lg_number(g, w, dtype_info[w].bits); /* that much the instruction takes; it shifts everything out */
    /* fall through */
  case OP_LEAKY:
    if (in[0].scalar) in[0] = lg_filled(g, n, in[0], w);
    lg_emit3(g, n, op, in[0], in[1], dst);
    return;
  default: break;
  }
  lg_emit2(g, n, op, in[0], dst);
}

DType lg_common(DType a, DType b) {
  if (a == b) return a;
  bool fa = dtype_is_float(a), fb = dtype_is_float(b);
  if (fa && fb) return DT_F32;
  if (fa) return dtype_size(b) >= dtype_size(a) ? DT_F32 : a;
  if (fb) return dtype_size(a) >= dtype_size(b) ? DT_F32 : b;
  return dtype_size(a) >= dtype_size(b) ? a : b;
}

/* arg: inputs in order, the destination last; all over n, not yet prepared. */
static void run(Lg *g, Nest *n, StmtOp op, Opd *arg, int n_in) {
  read_signed(g, op, arg, n_in);
  Opd *dst = &arg[n_in], in[LG_MAX_IN] = {0};
  DType t = opd_type(dst), c = t;
  Finish f;
  for (int i = 0; i < n_in; i++)
    if (!arg[i].scalar) c = lg_common(c, opd_type(&arg[i]));
  DType w = work_type(g, op, c);
  bool accumulates = op == OP_AXPY || op == OP_MULADD;
  if (op == OP_ABS && c == t && dtype_info[t].cls == 'u') { /* they are what they are */
    lg_copy(g, n, arg[0], *dst);
    return;
  }
  if (w == DTYPE_COUNT) {
    if (dtype_is_float(c) || (op_info[op].dtypes == RULE_FLOAT && op != OP_ABS)) {
      lg_no_dtype(g, c, "convert the tile to f32 first");
      return;
    }
    for (int i = 0; i < n_in; i++)
      if (arg[i].scalar) arg[i].scalar = lg_hoist(g, arg[i].scalar);
    lg_warn_scalar(g, n, arena_printf(g->a, "%%%s %s", dst->r.buf->name, lg_shape(g, &dst->r)),
                   op == OP_POW ? "the vector unit has no power of integers"
                                : arena_printf(g->a, "the vector unit does not compute %s", dtype_info[c].name),
                   op == OP_POW ? "use f32 tiles" : "use i32, i16, f16 or f32 tiles");
    lg_by_element(g, n, op, arg, n_in + 1);
    return;
  }
  lg_prepare(g, n, arg, n_in + 1, accumulates, &f);
  for (int i = 0; i < n_in; i++)
    in[i] = arg[i].scalar ? lg_scalar(op == OP_DIV ? arg[i].scalar : lg_scalar_as(g, w, arg[i].scalar))
                          : lg_as(g, n, arg[i], w);
  if (n_in == 1 && in[0].scalar) in[0] = lg_filled(g, n, in[0], w);
  bool fresh = !arg[0].scalar && opd_type(&arg[0]) != w && lg_is_full(n, &arg[0]);
  Opd out = w == t ? *dst : accumulates ? lg_as(g, n, *dst, w) : fresh ? in[0] : lg_temp(g, n, w);
  compute(g, n, op, w, in, out);
  if (w != t) {
    if (!dtype_is_float(w) && !dtype_is_float(t) && dtype_size(t) < dtype_size(w) && leaves_range(op))
      lg_wrap(g, n, out, t);
    lg_cast(g, n, out, *dst, CAST_RINT);
  }
  lg_finish(g, n, dst, &f);
}

/* ---- statements ----------------------------------------------------------------------------------------------- */

void lg_shape_error(Lg *g, const IrRegion *in, const IrRegion *dst) {
  Diag *d =
      diag_add(g->p->diags, DIAG_LEG_SHAPE, g->loc, "'%s': %s is %s and %s is %s; an extent must be the same or 1",
               op_info[g->s->op].name, ir_region_str(g->a, in), lg_shape(g, in), ir_region_str(g->a, dst),
               lg_shape(g, dst));
  diag_fix(g->p->diags, d, "slice %%%s so that the shapes agree", in->buf->name);
  g->failed = true;
}

/* Inputs of the statement over the nest of its destination. */
static bool operands(Lg *g, Nest *n, Opd *arg) {
  const IrStmt *s = g->s;
  int last = s->n_args - 1, hint = s->op == OP_BROADCAST ? (int)ir_attr_int(s, ATTR_DIM, -1) : -1;
  const IrRegion *dst = &s->args[last].region;
  if (!lg_nest(g, dst, n, &arg[last])) return false;
  if (hint >= 2) hint -= dst->buf->rank - 2;
  for (int i = 0; i < last; i++) {
    if (s->args[i].kind == ARG_SCALAR) arg[i] = lg_scalar(lg_hoist(g, s->args[i].scalar));
    else if (!lg_fit(g, n, dst, &s->args[i].region, hint, &arg[i]) &&
             !(s->op >= OP_ADD && s->op <= OP_MIN && lg_fit_block(g, n, dst, &s->args[i].region, &arg[i]))) {
      lg_shape_error(g, &s->args[i].region, dst);
      return false;
    }
  }
  return true;
}

/* copy trans: element (i, j) of the destination is element (j, i) of the source. */
static bool transposed(Lg *g, const Nest *n, Opd *src, const IrRegion *dst) {
  Nest m;
  Opd o;
  if (!lg_nest(g, &g->s->args[0].region, &m, &o)) return false;
  if (n->n == 2 && m.n == 2 && lg_same(g, n->ext[0], m.ext[1]) && lg_same(g, n->ext[1], m.ext[0])) {
    *src = o;
    src->dim[0] = o.dim[1];
    src->dim[1] = o.dim[0];
    return true;
  }
  if (n->n == 1 && m.n == 1 && lg_same(g, n->ext[0], m.ext[0])) {
    *src = o;
    return true;
  }
  lg_shape_error(g, &g->s->args[0].region, dst);
  return false;
}

static void fill(Lg *g, Nest *n, Opd scalar, Opd dst) {
  DType t = opd_type(&dst), via = t;
  IrExpr *e = lg_hoist(g, lg_scalar_as(g, t, scalar.scalar));
  if (is_byte(t)) via = DT_F16;
  if (t == DT_I64 && ir_is_const(e) && e->i == (int32_t)e->i) via = DT_I32;
  if (t == DT_BOOL || t == DT_U64 || (t == DT_I64 && via == t) || (dtype_is_float(t) && dtype_size(t) == 1)) {
    lg_warn_scalar(g, n, arena_printf(g->a, "%%%s %s", dst.r.buf->name, lg_shape(g, &dst.r)),
                   arena_printf(g->a, "the vector unit does not fill %s", dtype_info[t].name),
                   "use i32, i16, f16 or f32 tiles");
    lg_by_element(g, n, OP_FILL, (Opd[]){lg_scalar(e), dst}, 2);
    return;
  }
  bool placed = lg_is_dense(g, n, &dst) || lg_is_ordered(g, n, &dst, n->n - 1);
  if (via == t || !placed) { /* out of place: single elements need no other dtype */
    lg_copy(g, n, lg_scalar(e), dst);
    return;
  }
  Finish f;
  lg_prepare(g, n, &dst, 1, false, &f);
  lg_cast(g, n, lg_filled(g, n, lg_scalar(e), via), dst, CAST_RINT);
  lg_finish(g, n, &dst, &f);
}

/* Do `count` numbers from first on, step apart, stay in i32, as far as one can tell? */
static bool stays_in_i32(Lg *g, IrExpr *first, IrExpr *step, int64_t count) {
  IrRange f = ir_range(g->k, first), s = ir_range(g->k, step);
  int64_t low, high;
  bool over = __builtin_mul_overflow(min_i64(s.lo, 0), count, &low) || __builtin_add_overflow(low, f.lo, &low) ||
              __builtin_mul_overflow(max_i64(s.hi, 0), count, &high) || __builtin_add_overflow(high, f.hi, &high);
  bool known = dtype_size((DType)first->type) == 8 || dtype_size((DType)step->type) == 8 ||
               (ir_is_const(first) && ir_is_const(step));
  return !known || (!over && low >= INT32_MIN && high <= INT32_MAX);
}

static void arange(Lg *g, Nest *n, Opd first, Opd step, Opd dst) {
  if (as_signed(OP_ARANGE, opd_type(&dst)) != opd_type(&dst)) {
    DType same = as_signed(OP_ARANGE, opd_type(&dst));
    first.scalar = same_bits(g, same, first.scalar);
    step.scalar = same_bits(g, same, step.scalar);
    dst = reread(g, dst, same);
  }
  DType t = opd_type(&dst), w = work_type(g, OP_ARANGE, t);
  if (t == DT_I64) w = DT_I32;
  int64_t count = 1;
  for (int d = 0; d < n->n; d++) count *= n->max[d];
  if (w == DTYPE_COUNT || (t == DT_I64 && !stays_in_i32(g, first.scalar, step.scalar, count))) {
    lg_no_dtype(g, t, t == DT_I64 ? "numbers beyond i32 have none: make it in i32, cast, and add the rest"
                                  : "make it in i32 or f32 and cast");
    return;
  }
  Finish f;
  lg_prepare(g, n, &dst, 1, false, &f);
  Nest flat = *n;
  flat.flat = true;
  Opd run = w == t && lg_is_dense(g, n, &dst) ? dst : lg_temp(g, &flat, w);
  lg_put(g, OP_ARANGE,
         (Opd[]){lg_scalar(lg_scalar_as(g, w, first.scalar)), lg_scalar(lg_scalar_as(g, w, step.scalar)), run}, 3,
         NO_ATTR, 0);
  if (run.r.buf != dst.r.buf) {
    if (is_byte(t)) lg_wrap(g, &flat, run, t);
    if (w != t) run = lg_as(g, &flat, run, t);
    lg_copy(g, n, run, dst);
  }
  lg_finish(g, n, &dst, &f);
}

/* cast, copy and broadcast. */
static void convert(Lg *g, Nest *n, Opd *arg, CastMode mode) {
  DType from = opd_type(&arg[0]), to = opd_type(&arg[1]);
  bool whole = from == to && dtype_is_float(to) && mode != CAST_NONE;
  Finish f;
  bool whole_both = strchr("iu", dtype_info[from].cls) && strchr("iu", dtype_info[to].cls);
  if (from != to && whole_both && dtype_size(from) == dtype_size(to) && !arg[0].scalar) { /* the same bits */
    arg[0] = reread(g, arg[0], to);
    from = to;
  }
  if (from == to && !whole) {
    lg_copy(g, n, arg[0], arg[1]);
    return;
  }
  lg_prepare(g, n, arg, 2, false, &f);
  if (arg[0].scalar) {
    Opd src = {.scalar = arg[0].scalar}, tile = lg_filled(g, n, src, from);
    arg[0] = tile;
  }
  if (whole) round_in_place(g, n, arg[0], arg[1], mode);
  else if (arg[0].dim[n->n - 1] == REPEATS || from == DT_BOOL) {
    Opd t = lg_as(g, n, arg[0], to); /* few elements are converted, then spread */
    lg_emit2(g, n, OP_MOVE, t, arg[1]);
  } else {
    lg_cast(g, n, arg[0], arg[1], mode);
  }
  lg_finish(g, n, &arg[1], &f);
}

/* An op of one input whose input repeats: computed once on what is there, then spread. */
static bool spread(Lg *g, Nest *n, StmtOp op, Opd *arg) {
  bool some = false, repeats = false;
  for (int d = 0; d < n->n; d++) {
    some |= arg[0].dim[d] != REPEATS;
    repeats |= arg[0].dim[d] == REPEATS;
  }
  if (arg[0].scalar || !some || !repeats) return false;
  int8_t back[IR_MAX_RANK];
  Opd pair[2], home = arg[1];
  Nest m = lg_own(n, &arg[0], &pair[0], back);
  pair[1] = lg_temp(g, &m, opd_type(&home));
  run(g, &m, op, pair, 1);
  if (!g->failed) lg_copy(g, n, lg_widen(n, &m, pair[1], back), home);
  return true;
}

void lg_elementwise(Lg *g) {
  const IrStmt *s = g->s;
  int n_in = ir_n_in(s->op);
  Opd arg[LG_MAX_IN + 1] = {0};
  Nest n;
  if (s->op == OP_COPY && ir_attr(s, ATTR_TRANS)) {
    if (!lg_nest(g, &s->args[1].region, &n, &arg[1]) || !transposed(g, &n, &arg[0], &s->args[1].region)) return;
  } else if (!operands(g, &n, arg)) {
    return;
  }
  switch (s->op) {
  case OP_FILL: fill(g, &n, arg[0], arg[1]); return;
  case OP_ARANGE: arange(g, &n, arg[0], arg[1], arg[2]); return;
  case OP_BROADCAST: convert(g, &n, arg, CAST_NONE); return;
  case OP_COPY:
    convert(g, &n, arg, CAST_NONE);
    if (ir_attr(s, ATTR_RELU) && !g->failed) run(g, &n, OP_RELU, (Opd[]){arg[1], arg[1]}, 1);
    return;
  case OP_CAST: convert(g, &n, arg, (CastMode)ir_attr_int(s, ATTR_MODE, CAST_NONE)); return;
  default: break;
  }
  if (n_in == 1 && spread(g, &n, s->op, arg)) return;
  run(g, &n, s->op, arg, n_in);
}
