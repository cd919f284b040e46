/* scalar.c - arithmetic of pipe S, and the conversions every other file is measured against.
 *
 * Integers wrap to their dtype; // and % round towards minus infinity as Python's do; shifts take their count modulo
 * nothing: a count of the width or more shifts everything out. Floats compute in double and round once to their dtype,
 * which is exact rounding for + - * / sqrt. A conversion from float to integer truncates and saturates, NaN becomes 0.
 *
 * NaN results are the one NaN with a clear sign and only the quiet bit set, so that bytes do not depend on the host. */
#include "machine.h"

#include <math.h>
#include <string.h>

/* ---- 16-bit floats -------------------------------------------------------------------------------------- */

static float bits_f32(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static uint32_t f32_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

float f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
  if (mag >= 0x7c00) return bits_f32(sign | 0x7f800000u | (mag & 0x3ff) << 13 | (mag > 0x7c00 ? 0x400000u : 0));
  if (mag < 0x400) {
    float f = (float)mag * 0x1p-24f;
    return sign ? -f : f;
  }
  return bits_f32(sign | ((mag << 13) + 0x38000000u));
}

uint16_t f32_to_f16(float f) {
  uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
  if (mag > 0x7f800000u) return 0x7e00;
  if (mag >= 0x47800000u) return (uint16_t)(sign | 0x7c00);
  if (mag < 0x38800000u) { /* subnormal: let the addition round */
    float r = bits_f32(mag) + 0.5f;
    return (uint16_t)(sign | (f32_bits(r) - 0x3f000000u));
  }
  uint32_t odd = mag >> 13 & 1;
  return (uint16_t)(sign | ((mag - 0x38000000u + 0xfff + odd) >> 13));
}

float bf16_to_f32(uint16_t h) { return bits_f32((uint32_t)h << 16); }

uint16_t f32_to_bf16(float f) {
  uint32_t u = f32_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* 8-bit floats by their parameters: `e` exponent bits, `m` mantissa bits; e4m3 has no infinity. */
static double f8_to_double(uint8_t b, int m, int bias, bool has_inf) {
  int mag = b & 0x7f, e = mag >> m, f = mag & ((1 << m) - 1), top = (0x7f >> m);
  double v;
  if (has_inf && e == top) v = f ? NAN : INFINITY;
  else if (!has_inf && mag == 0x7f) v = NAN;
  else v = e ? ldexp(1.0 + (double)f / (1 << m), e - bias) : ldexp((double)f / (1 << m), 1 - bias);
  return b & 0x80 ? -v : v;
}

static uint8_t double_to_f8(double v, int m, int bias, bool has_inf) {
  uint8_t sign = signbit(v) ? 0x80 : 0;
  if (isnan(v)) return 0x7f;
  double a = fabs(v);
  int top = has_inf ? (0x7f >> m << m) : 0x7f, e;
  if (a == 0) return sign;
  frexp(a, &e);
  e = e - 1 < 1 - bias ? 1 - bias : e - 1;
  double q = nearbyint(ldexp(a, m - e)); /* in units of the last place; ties to even */
  double code = q + (double)(e + bias - 1) * (1 << m);
  if (code >= top) return (uint8_t)(sign | (has_inf ? top : 0x7e)); /* e4m3 saturates */
  return (uint8_t)(sign | (int)code);
}

/* ---- one value ------------------------------------------------------------------------------------------ */

double round_float(DType t, double v) {
  switch (t) {
  case DT_F16: { /* double to f32 to f16 rounds twice: go to odd first */
    float f = (float)v;
    if ((double)f != v && !isnan(v) && !isinf(f)) {
      float toward = fabs((double)f) > fabs(v) ? nextafterf(f, 0) : f;
      f = bits_f32(f32_bits(toward) | 1);
    }
    return f16_to_f32(f32_to_f16(f));
  }
  case DT_BF16: {
    float f = (float)v;
    if ((double)f != v && !isnan(v) && !isinf(f)) {
      float toward = fabs((double)f) > fabs(v) ? nextafterf(f, 0) : f;
      f = bits_f32(f32_bits(toward) | 1);
    }
    return bf16_to_f32(f32_to_bf16(f));
  }
  case DT_E4M3: return f8_to_double(double_to_f8(v, 3, 7, false), 3, 7, false);
  case DT_E5M2: return f8_to_double(double_to_f8(v, 2, 15, true), 2, 15, true);
  default: return (float)v;
  }
}

Reg scalar_load(DType t, const void *p) {
  Reg r = {0};
  uint16_t h;
  uint8_t b;
  float f;
  switch (t) {
  case DT_F16: memcpy(&h, p, 2); r.f = f16_to_f32(h); break;
  case DT_BF16: memcpy(&h, p, 2); r.f = bf16_to_f32(h); break;
  case DT_F32: memcpy(&f, p, 4); r.f = f; break;
  case DT_E4M3: memcpy(&b, p, 1); r.f = f8_to_double(b, 3, 7, false); break;
  case DT_E5M2: memcpy(&b, p, 1); r.f = f8_to_double(b, 2, 15, true); break;
  default: {
    uint64_t u = 0;
    memcpy(&u, p, (size_t)dtype_size(t)); /* little-endian hosts: x86-64 and aarch64 */
    r.i = dtype_wrap(t, (int64_t)u);
  }
  }
  return r;
}

void scalar_store(DType t, void *p, Reg v) {
  uint16_t h;
  uint8_t b;
  float f;
  switch (t) {
  case DT_F16: h = f32_to_f16((float)round_float(DT_F16, v.f)); memcpy(p, &h, 2); break;
  case DT_BF16: h = f32_to_bf16((float)round_float(DT_BF16, v.f)); memcpy(p, &h, 2); break;
  case DT_F32:
    f = (float)v.f;
    if (f != f) f = bits_f32(0x7fc00000u);
    memcpy(p, &f, 4);
    break;
  case DT_E4M3: b = double_to_f8(v.f, 3, 7, false); memcpy(p, &b, 1); break;
  case DT_E5M2: b = double_to_f8(v.f, 2, 15, true); memcpy(p, &b, 1); break;
  default: memcpy(p, &v.i, (size_t)dtype_size(t));
  }
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
  if (ff && tf) r.f = round_float(to, a.f);
  else if (ff && to == DT_BOOL) r.i = a.f != 0;
  else if (ff) r.i = float_to_int(to, trunc(a.f));
  else if (tf) r.f = round_float(to, from == DT_U64 ? (double)(uint64_t)a.i : (double)a.i);
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

static int64_t int_pow(int64_t base, int64_t e) {
  uint64_t r = 1, b = (uint64_t)base;
  if (e < 0) return base == 1 ? 1 : base == -1 ? (e & 1 ? -1 : 1) : 0;
  for (; e; e >>= 1, b *= b)
    if (e & 1) r *= b;
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
  case EX_POW: r = int_pow(a, b); break;
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
  return (Reg){.f = round_float(t, r)};
}

/* ---- cast, one element at a time ------------------------------------------------------------------------ */

static double round_mode(double v, CastMode mode) {
  switch (mode) {
  case CAST_FLOOR: return floor(v);
  case CAST_CEIL: return ceil(v);
  case CAST_ROUND: return round(v);
  case CAST_TRUNC: return trunc(v);
  default: return nearbyint(v);
  }
}

/* v rounded to a float dtype by mode: nearest first, then a step to the neighbour if the mode wants the other side. */
static double float_mode(DType t, double v, CastMode mode) {
  if (mode == CAST_NONE || mode == CAST_RINT || isnan(v) || isinf(v)) return round_float(t, v);
  int m = t == DT_F16 ? 10 : t == DT_BF16 ? 7 : 23, lowest = t == DT_F16 ? -14 : -126, e;
  if (v == 0) return v;
  frexp(v, &e);
  int ulp = (e - 1 < lowest ? lowest : e - 1) - m;
  double q = ldexp(v, -ulp), r;
  if (mode == CAST_ODD) {
    r = trunc(q);
    if (r != q && fmod(r, 2) == 0) r += v < 0 ? -1 : 1;
  } else {
    r = round_mode(q, mode);
  }
  r = ldexp(r, ulp);
  double most = t == DT_F16 ? 65504.0 : t == DT_BF16 ? 0x1.fep127 : 0x1.fffffep127;
  if (fabs(r) > most) {
    bool inwards =
        mode == CAST_TRUNC || mode == CAST_ODD || (mode == CAST_FLOOR && v > 0) || (mode == CAST_CEIL && v < 0);
    return copysign(inwards ? most : INFINITY, v);
  }
  return r;
}

/* v in 53 bits, with all lost bits folded into the last one, so that the rounding to come is the only one. */
static double exact_double(int64_t v) {
  int64_t low = v & 0x7ff;
  if (v > -(INT64_C(1) << 53) && v < (INT64_C(1) << 53)) return (double)v;
  return (double)((v & ~INT64_C(0x7ff)) | (low ? 0x800 : 0));
}

/* Float to integer rounds by mode and saturates; integer to narrower integer saturates, as the vector unit does by
 * default. */
void convert(void *d, DType dt, const void *s, DType st, int64_t n, CastMode mode) {
  int ds = dtype_size(dt), ss = dtype_size(st);
  bool ff = dtype_is_float(st), tf = dtype_is_float(dt);
  for (int64_t i = 0; i < n; i++) {
    Reg v = scalar_load(st, (const char *)s + i * ss), r = {0};
    if (ff && tf) r.f = dt == st ? (isnan(v.f) ? v.f : round_mode(v.f, mode)) : float_mode(dt, v.f, mode);
    else if (ff) r.i = float_to_int(dt, round_mode(v.f, mode));
    else if (tf) r.f = float_mode(dt, exact_double(v.i), mode);
    else if (ds >= ss) r.i = dtype_wrap(dt, v.i);
    else r.i = float_to_int(dt, v.i > INT64_C(1) << 40 ? 0x1p62 : v.i < -(INT64_C(1) << 40) ? -0x1p62 : (double)v.i);
    scalar_store(dt, (char *)d + i * ds, r);
  }
}
