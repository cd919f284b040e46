/* scalar.c - arithmetic of pipe S, and the conversions every other file is measured against.
 *
 * Integers wrap to their dtype; // and % round towards minus infinity as Python's do; shifts take their count modulo
 * nothing: a count of the width or more shifts everything out. Floats compute in double and round once to their dtype,
 * which is exact rounding for + - * / sqrt. A conversion from float to integer truncates and saturates, NaN becomes 0.
 *
 * NaN results are the one NaN of float.c, so that bytes do not depend on the host. */
#include "machine.h"

#include <math.h>
#include <string.h>

/* ---- one value ------------------------------------------------------------------------------------------ */

Reg scalar_load(DType t, const void *p) {
  uint64_t u = 0;
  memcpy(&u, p, (size_t)dtype_size(t)); /* little-endian hosts: x86-64 and aarch64 */
  return dtype_is_float(t) ? (Reg){.f = float_value(t, (uint32_t)u)} : (Reg){.i = dtype_wrap(t, (int64_t)u)};
}

void scalar_store(DType t, void *p, Reg v) {
  uint32_t bits = dtype_is_float(t) ? float_bits(t, v.f) : 0;
  memcpy(p, dtype_is_float(t) ? (const void *)&bits : (const void *)&v.i, (size_t)dtype_size(t));
}

static int64_t float_to_int(DType t, double v) { /* v is integral */
  if (isnan(v)) return 0;
  bool is_signed = dtype_info[t].cls == 'i';
  int bits = dtype_info[t].bits;
  double lo = is_signed ? -ldexp(1, bits - 1) : 0, hi = ldexp(1, is_signed ? bits - 1 : bits);
  if (v < lo) return is_signed ? (int64_t)lo : 0;
  if (v >= hi)
    return is_signed    ? (int64_t)((UINT64_C(1) << (bits - 1)) - 1)
           : bits == 64 ? -1
                        : (int64_t)((UINT64_C(1) << bits) - 1);
  return v < 0 || is_signed ? (int64_t)v : (int64_t)(uint64_t)v;
}

Reg scalar_cast(DType to, DType from, Reg a) {
  Reg r = {0};
  bool ff = dtype_is_float(from), tf = dtype_is_float(to);
  if (ff && tf) r.f = float_round(to, a.f);
  else if (ff && to == DT_BOOL) r.i = a.f != 0;
  else if (ff) r.i = float_to_int(to, trunc(a.f));
  else if (tf) r.f = float_round(to, float_of_int(from, a.i));
  else r.i = dtype_wrap(to, a.i);
  return r;
}

Reg scalar_bits(DType to, DType from, Reg a) {
  uint8_t buf[8] = {0};
  scalar_store(from, buf, a);
  return scalar_load(to, buf);
}

/* ---- operators ------------------------------------------------------------------------------------------ */

static int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t int_pow(int64_t base, int64_t e, bool is_signed) {
  uint64_t r = 1, b = (uint64_t)base;
  if (is_signed && e < 0) return base == 1 ? 1 : base == -1 ? (e & 1 ? -1 : 1) : 0;
  for (uint64_t n = (uint64_t)e; n; n >>= 1, b *= b)
    if (n & 1) r *= b;
  return (int64_t)r;
}

Reg scalar_int(ExprOp op, DType t, Reg ra, Reg rb, bool *div_zero) {
  int64_t a = ra.i, b = rb.i, r = 0;
  uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  bool big = t == DT_U64;
  switch (op) {
  case EX_ADD: r = (int64_t)(ua + ub); break;
  case EX_SUB: r = (int64_t)(ua - ub); break;
  case EX_MUL: r = (int64_t)(ua * ub); break;
  case EX_DIV:
  case EX_FDIV:
    if (!b) *div_zero = true;
    else r = big ? (int64_t)(ua / ub) : floor_div(a, b);
    break;
  case EX_MOD:
    if (!b) *div_zero = true;
    else r = big ? (int64_t)(ua % ub) : floor_mod(a, b);
    break;
  case EX_SHL: r = ub >= dtype_info[t].bits ? 0 : (int64_t)(ua << b); break;
  case EX_SHR:
    if (dtype_info[t].cls == 'i') r = a >> (ub > 63 ? 63 : b);
    else r = ub > 63 ? 0 : (int64_t)(ua >> b);
    break;
  case EX_AND: r = a & b; break;
  case EX_XOR: r = a ^ b; break;
  case EX_OR: r = a | b; break;
  case EX_LT: return (Reg){.i = big ? ua < ub : a < b};
  case EX_LE: return (Reg){.i = big ? ua <= ub : a <= b};
  case EX_GT: return (Reg){.i = big ? ua > ub : a > b};
  case EX_GE: return (Reg){.i = big ? ua >= ub : a >= b};
  case EX_EQ: return (Reg){.i = a == b};
  case EX_NE: return (Reg){.i = a != b};
  case EX_NEG: r = (int64_t)(0 - ua); break;
  case EX_NOT: r = t == DT_BOOL ? !a : ~a; break;
  case EX_LNOT: return (Reg){.i = !a};
  case EX_MIN: r = (big ? ua < ub : a < b) ? a : b; break;
  case EX_MAX: r = (big ? ua > ub : a > b) ? a : b; break;
  case EX_ABS: r = a < 0 && !big ? (int64_t)(0 - ua) : a; break;
  case EX_POW: r = int_pow(a, b, !big); break;
  case EX_FLOOR:
  case EX_CEIL:
  case EX_ROUND: r = a; break;
  default: break; /* the rest take floats only; program_build refuses them */
  }
  return (Reg){.i = dtype_wrap(t, r)};
}

Reg scalar_float(ExprOp op, DType t, Reg ra, Reg rb) {
  double a = ra.f, b = rb.f, r = 0;
  switch (op) {
  case EX_ADD: r = a + b; break;
  case EX_SUB: r = a - b; break;
  case EX_MUL: r = a * b; break;
  case EX_DIV: r = a / b; break;
  case EX_FDIV: r = floor(a / b); break;
  case EX_MOD:
    r = fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0)) r += b;
    break;
  case EX_LT: return (Reg){.i = a < b};
  case EX_LE: return (Reg){.i = a <= b};
  case EX_GT: return (Reg){.i = a > b};
  case EX_GE: return (Reg){.i = a >= b};
  case EX_EQ: return (Reg){.i = a == b};
  case EX_NE: return (Reg){.i = a != b};
  case EX_LNOT: return (Reg){.i = a == 0};
  case EX_NEG: r = -a; break;
  case EX_MIN: r = isnan(a) ? a : isnan(b) ? b : a < b ? a : b; break;
  case EX_MAX: r = isnan(a) ? a : isnan(b) ? b : a > b ? a : b; break;
  case EX_POW: r = pow(a, b); break;
  case EX_ABS: r = fabs(a); break;
  case EX_EXP: r = exp(a); break;
  case EX_LOG: r = log(a); break;
  case EX_SQRT: r = sqrt(a); break;
  case EX_RSQRT: r = 1 / sqrt(a); break;
  case EX_SIN: r = sin(a); break;
  case EX_COS: r = cos(a); break;
  case EX_TANH: r = tanh(a); break;
  case EX_FLOOR: r = floor(a); break;
  case EX_CEIL: r = ceil(a); break;
  case EX_ROUND: r = nearbyint(a); break;
  default: break;
  }
  return (Reg){.f = float_round(t, r)};
}

/* ---- cast, one element at a time ------------------------------------------------------------------------ */

/* Float to integer rounds by mode and saturates; integer to narrower integer saturates, as the vector unit does by
 * default. */
void convert(void *d, DType dt, const void *s, DType st, int64_t n, CastMode mode) {
  int ds = dtype_size(dt), ss = dtype_size(st);
  bool ff = dtype_is_float(st), tf = dtype_is_float(dt);
  for (int64_t i = 0; i < n; i++) {
    Reg v = scalar_load(st, (const char *)s + i * ss), r = {0};
    if (ff && tf) r.f = dt == st ? (isnan(v.f) ? v.f : round_mode(v.f, mode)) : float_round_mode(dt, v.f, mode);
    else if (ff) r.i = float_to_int(dt, round_mode(v.f, mode));
    else if (tf) r.f = float_round_mode(dt, float_of_int(st, v.i), mode);
    else if (ds >= ss) r.i = dtype_wrap(dt, v.i);
    else r.i = float_to_int(dt, v.i > INT64_C(1) << 40 ? 0x1p62 : v.i < -(INT64_C(1) << 40) ? -0x1p62 : (double)v.i);
    scalar_store(dt, (char *)d + i * ds, r);
  }
}
