/* legalize_math.c - sine, cosine and power out of what the vector unit has, in f32.
 *
 *   sin x   k = the multiple of pi next to x; r = x - k pi in steps that lose nothing while |k| < 2^13; an odd
 *           polynomial of r; the sign of k. cos x: the odd multiples of pi / 2 instead.
 *   a ^ b   exp(b ln |a|). A negative a with an odd b changes the sign, with a b that is no whole number gives NaN
 *           (the logarithm of a negative number); a = 0 and b = 0 come out as in C because ln 0 is held finite.
 *           Conditions are numbers, 0 or 1: min(|x| * HUGE, 1) is 1 where x is not 0, so no masks are needed. */
#include "legalize.h"

#include <float.h>
#include <math.h>

static void scaled(Lg *g, const Nest *n, StmtOp op, Opd a, double s, Opd dst) {
  lg_emit3(g, n, op, a, lg_number(g, DT_F32, s), dst);
}

static void rounded(Lg *g, const Nest *n, Opd a, CastMode mode, Opd dst) {
  lg_emit(g, n, OP_CAST, (Opd[]){a, dst}, 2, ATTR_MODE, mode);
}

/* dst := 1 where the whole number k is odd, 0 where it is even. */
static void odd(Lg *g, const Nest *n, Opd k, Opd dst) {
  scaled(g, n, OP_MUL, k, 0.5, dst);
  rounded(g, n, dst, CAST_FLOOR, dst);
  scaled(g, n, OP_MUL, dst, -2, dst);
  lg_emit3(g, n, OP_ADD, dst, k, dst);
}

static void sine(Lg *g, const Nest *n, bool cosine, Opd x, Opd dst) {
  /* pi in pieces of at most 11 bits: a product with |k| < 2^13 is exact */
  static const double piece[] = {0x1.92p+1, 0x1.fb4p-11, 0x1.444p-23, 0x1.68c234p-38};
  static const double term[] = {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6};
  Opd k = lg_temp(g, n, DT_F32), r = lg_temp(g, n, DT_F32), z = lg_temp(g, n, DT_F32), sign = lg_temp(g, n, DT_F32);
  scaled(g, n, OP_MUL, x, 1 / M_PI, k);
  if (cosine) scaled(g, n, OP_ADD, k, 0.5, k);
  rounded(g, n, k, CAST_RINT, k);
  odd(g, n, k, sign);
  scaled(g, n, OP_MUL, sign, -2, sign);
  scaled(g, n, OP_ADD, sign, 1, sign);
  if (cosine) scaled(g, n, OP_ADD, k, -0.5, k);
  for (size_t i = 0; i < TL_COUNT(piece); i++) {
    scaled(g, n, OP_MUL, k, -piece[i], z);
    lg_emit3(g, n, OP_ADD, i ? r : x, z, r);
  }
  lg_emit3(g, n, OP_MUL, r, r, z);
  scaled(g, n, OP_MUL, z, term[0], k);
  for (size_t i = 1; i < TL_COUNT(term); i++) {
    scaled(g, n, OP_ADD, k, term[i], k);
    lg_emit3(g, n, OP_MUL, k, z, k);
  }
  scaled(g, n, OP_ADD, k, 1, k);
  lg_emit3(g, n, OP_MUL, k, r, k);
  lg_emit3(g, n, OP_MUL, k, sign, dst);
}

/* dst := 1 where a > 0, else 0. */
static void above_zero(Lg *g, const Nest *n, Opd a, Opd dst) {
  scaled(g, n, OP_MUL, a, FLT_MAX, dst);
  scaled(g, n, OP_MAX, dst, 0, dst);
  scaled(g, n, OP_MIN, dst, 1, dst);
}

static void power(Lg *g, const Nest *n, Opd a, Opd b, Opd dst) {
  Opd whole = lg_temp(g, n, DT_F32), part = lg_temp(g, n, DT_F32), neg = lg_temp(g, n, DT_F32),
      l = lg_temp(g, n, DT_F32);
  rounded(g, n, b, CAST_RINT, whole);
  scaled(g, n, OP_MUL, a, -1, l);
  above_zero(g, n, l, neg); /* 1 where a < 0 */
  lg_emit3(g, n, OP_MUL, b, lg_number(g, DT_F32, -1), part);
  lg_emit3(g, n, OP_ADD, part, whole, part);
  lg_emit2(g, n, OP_ABS, part, part);
  above_zero(g, n, part, part); /* 1 where b is no whole number */
  lg_emit3(g, n, OP_MUL, part, neg, part);
  scaled(g, n, OP_MUL, part, -2, part);
  scaled(g, n, OP_ADD, part, 1, part); /* -1 where the result is NaN, else 1 */
  lg_emit2(g, n, OP_ABS, a, l);
  lg_emit3(g, n, OP_MUL, l, part, l);
  lg_emit2(g, n, OP_LN, l, l);
  scaled(g, n, OP_MAX, l, -FLT_MAX, l);
  scaled(g, n, OP_MIN, l, FLT_MAX, l);
  lg_emit3(g, n, OP_MUL, l, b, l);
  lg_emit2(g, n, OP_EXP, l, l);
  odd(g, n, whole, part);
  lg_emit3(g, n, OP_MUL, part, neg, part);
  scaled(g, n, OP_MUL, part, -2, part);
  scaled(g, n, OP_ADD, part, 1, part); /* the sign */
  lg_emit3(g, n, OP_MUL, l, part, dst);
}

/* A power that is known: products, a root, exp(p ln a). false: it is none of them. */
static bool known_power(Lg *g, const Nest *n, Opd a, Opd b, Opd dst) {
  const IrExpr *e = b.scalar;
  double p = !e ? NAN : e->op == EX_FLOAT ? e->f : e->op == EX_INT ? (double)e->i : NAN;
  if (isnan(p)) return false;
  if (p == 0.5) {
    lg_emit2(g, n, OP_SQRT, a, dst);
    return true;
  }
  if (p != floor(p)) { /* a negative base has no such power: its logarithm is NaN already */
    Opd l = lg_temp(g, n, DT_F32);
    lg_emit2(g, n, OP_LN, a, l);
    scaled(g, n, OP_MUL, l, p, l);
    lg_emit2(g, n, OP_EXP, l, dst);
    return true;
  }
  if (p < 1 || p > 16) return false;
  Opd acc = lg_temp(g, n, DT_F32);
  lg_emit2(g, n, OP_MOVE, a, acc);
  int bits = (int)p, top = 31 - __builtin_clz((unsigned)bits);
  for (int i = top - 1; i >= 0; i--) {
    lg_emit3(g, n, OP_MUL, acc, acc, acc);
    if (bits >> i & 1) lg_emit3(g, n, OP_MUL, acc, a, acc);
  }
  lg_emit2(g, n, OP_MOVE, acc, dst);
  return true;
}

void lg_math(Lg *g, const Nest *n, StmtOp op, Opd a, Opd b, Opd dst) {
  if (a.scalar) a = lg_filled(g, n, a, DT_F32);
  if (op != OP_POW) {
    sine(g, n, op == OP_COS, a, dst);
    return;
  }
  if (known_power(g, n, a, b, dst)) return;
  if (b.scalar) b = lg_filled(g, n, b, DT_F32);
  power(g, n, a, b, dst);
}
