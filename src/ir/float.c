/* float.c - what a float dtype can hold. The one place that rounds to fewer bits: constants, pipe S, conversions of
 * tiles and the writers all come here, so they agree to the bit.
 *
 * Values are doubles, which hold every value of every dtype. IEEE rules; e4m3 has no infinity and saturates at 448.
 * NaN is the one NaN with a clear sign and only the quiet bit set (e4m3: all ones), whatever came in. */
#include "ir.h"

#include <math.h>
#include <string.h>

static const struct { int exponent, mantissa; bool finite; } form[DTYPE_COUNT] = {
    [DT_F16] = {5, 10, false}, [DT_BF16] = {8, 7, false}, [DT_F32] = {8, 23, false},
    [DT_E4M3] = {4, 3, true},  [DT_E5M2] = {5, 2, false}};

static int bias_of(DType t) { return (1 << (form[t].exponent - 1)) - 1; }

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

/* ---- 16 bits, quickly ------------------------------------------------------------------------------------ */

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

/* ---- any dtype ------------------------------------------------------------------------------------------- */

double float_value(DType t, uint32_t bits) {
  if (t == DT_F32) return bits_f32(bits);
  if (t == DT_F16) return f16_to_f32((uint16_t)bits);
  if (t == DT_BF16) return bf16_to_f32((uint16_t)bits);
  int m = form[t].mantissa, all = (1 << form[t].exponent) - 1, e = (int)(bits >> m) & all,
      f = (int)bits & ((1 << m) - 1);
  double v = e ? ldexp(1 + ldexp(f, -m), e - bias_of(t)) : ldexp(f, 1 - bias_of(t) - m);
  if (e == all && form[t].finite) v = f == (1 << m) - 1 ? NAN : v;
  else if (e == all) v = f ? NAN : INFINITY;
  return bits >> (m + form[t].exponent) & 1 ? -v : v;
}

/* The bits of the largest finite value. */
static uint32_t most_bits(DType t) {
  uint32_t all = (1u << form[t].exponent) - 1, ones = (1u << form[t].mantissa) - 1;
  return form[t].finite ? all << form[t].mantissa | (ones - 1) : (all - 1) << form[t].mantissa | ones;
}

uint32_t float_bits(DType t, double v) {
  int m = form[t].mantissa, x = form[t].exponent, e;
  uint32_t sign = (signbit(v) ? 1u : 0u) << (m + x), all = (1u << x) - 1;
  if (isnan(v)) return all << m | (form[t].finite ? (1u << m) - 1 : 1u << (m - 1));
  if (t == DT_F32) return f32_bits((float)v);
  if ((t == DT_F16 || t == DT_BF16) && (double)(float)v == v) /* else two roundings */
    return t == DT_F16 ? f32_to_f16((float)v) : f32_to_bf16((float)v);
  v = fabs(v);
  if (v == 0) return sign;
  if (isinf(v)) return sign | (form[t].finite ? most_bits(t) : all << m);
  frexp(v, &e); /* v = f 2^e with 0.5 <= f < 1 */
  if (e - 1 < 1 - bias_of(t)) e = 2 - bias_of(t);
  double units = nearbyint(ldexp(v, m + 1 - e)); /* of the last place; ties to even */
  double code = units + ldexp(e - 2 + bias_of(t), m);
  return sign | (code > (double)most_bits(t) ? most_bits(t) + !form[t].finite : (uint32_t)code);
}

double float_round(DType t, double v) { return t == DT_F32 ? (float)v : float_value(t, float_bits(t, v)); }

double round_mode(double v, CastMode mode) {
  switch (mode) {
  case CAST_FLOOR: return floor(v);
  case CAST_CEIL: return ceil(v);
  case CAST_ROUND: return round(v);
  case CAST_TRUNC: return trunc(v);
  default: return nearbyint(v);
  }
}

double float_round_mode(DType t, double v, CastMode mode) {
  if (mode == CAST_NONE || mode == CAST_RINT || isnan(v) || isinf(v) || v == 0) return float_round(t, v);
  int e, lowest = 1 - bias_of(t);
  frexp(v, &e);
  int ulp = (e - 1 < lowest ? lowest : e - 1) - form[t].mantissa;
  double q = ldexp(v, -ulp), r = round_mode(q, mode);
  if (mode == CAST_ODD) {
    r = trunc(q);
    if (r != q && fmod(r, 2) == 0) r += v < 0 ? -1 : 1;
  }
  r = copysign(ldexp(r, ulp), v);
  double most = float_value(t, most_bits(t));
  if (fabs(r) <= most) return r;
  bool inwards = mode == CAST_TRUNC || mode == CAST_ODD || mode == (v > 0 ? CAST_FLOOR : CAST_CEIL);
  return copysign(inwards || form[t].finite ? most : INFINITY, v);
}

double float_of_int(DType from, int64_t v) {
  uint64_t u = (uint64_t)v, few = UINT64_C(1) << 53;
  bool is_big = from == DT_U64 && v < 0;
  if (!is_big && v > -(int64_t)few && v < (int64_t)few) return (double)v;
  u = (u & ~UINT64_C(0x7ff)) | (u & 0x7ff ? 0x800 : 0);
  return is_big ? (double)u : (double)(int64_t)u;
}
