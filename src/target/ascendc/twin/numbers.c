/* numbers.c - elements as the host's numbers. */
#include "core.h"

#include <math.h>
#include <string.h>

const int twin_size[TW_TYPES] = {2, 2, 4, 1, 1, 2, 2, 4, 4, 8, 1};

float twin_of_half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(m + 1024), e - 25) : ldexpf((float)m, -24);
  return h & 0x8000 ? -v : v;
}

uint16_t twin_half(double v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  int e;
  if (isnan(v)) return (uint16_t)(sign | 0x7e00);
  v = fabs(v);
  if (v == 0) return sign;
  frexp(v, &e);
  if (e < -13) e = -13;
  double units = nearbyint(ldexp(v, 11 - e)); /* ties to even */
  double code = isinf(v) ? 65536 : units + ldexp((double)(e + 13), 10);
  return (uint16_t)(sign | (code >= 0x7c00 ? 0x7c00 : (int)code));
}

uint16_t twin_bf16(float f) {
  uint32_t b;
  memcpy(&b, &f, 4);
  return isnan(f) ? 0x7fc0 : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

double twin_get(TwinType t, const void *p) {
  union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; int64_t i64; float f; } u;
  memcpy(&u, p, (size_t)twin_size[t]);
  switch (t) {
  case TW_F16: return twin_of_half(u.u16);
  case TW_BF16: u.u32 = (uint32_t)u.u16 << 16; return u.f;
  case TW_F32: return u.f;
  case TW_I8: return u.i8;
  case TW_U8: return u.u8;
  case TW_I16: return u.i16;
  case TW_U16: return u.u16;
  case TW_I32: return u.i32;
  case TW_U32: return u.u32;
  default: return (double)u.i64;
  }
}

void twin_put_float(TwinType t, void *p, double v) {
  float f = (float)v;
  uint16_t h = t == TW_F16 ? twin_half(v) : twin_bf16(f);
  memcpy(p, t == TW_F32 ? (void *)&f : (void *)&h, (size_t)twin_size[t]);
}

int64_t twin_get_int(TwinType t, const void *p) {
  int64_t v = 0;
  if (t != TW_I64) return (int64_t)twin_get(t, p);
  memcpy(&v, p, 8);
  return v;
}

int twin_get_i4(const char *p, int i) { return ((p[i / 2] >> i % 2 * 4 & 15) ^ 8) - 8; }

void twin_put_int(TwinType t, void *p, int64_t v) { memcpy(p, &v, (size_t)twin_size[t]); } /* little-endian */
