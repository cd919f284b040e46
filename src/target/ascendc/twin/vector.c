/* vector.c - pipe V: instructions on elements under the mask, conversions, comparisons, reductions of rows, gathers,
 * sorting of records. */
#include "core.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static struct {
  bool counting;       /* low is a number of elements */
  uint64_t high, low;
  uint8_t compared[32];
} mask;

void twin_mask_begin(void) {
  memset(&mask, 0, sizeof mask);
  mask.high = mask.low = UINT64_MAX;
}

void twin_mask_count(void) { mask.counting = true; }
void twin_mask_norm(void) { mask.counting = false; }
void twin_mask(uint64_t high, uint64_t low) {
  mask.high = high;
  mask.low = low;
}

static int repeats_of(int repeats, int lanes) {
  return mask.counting ? (int)((mask.low + (uint64_t)lanes - 1) / (uint64_t)lanes) : repeats;
}

static bool active(int r, int lane, int lanes) {
  if (mask.counting) return (uint64_t)r * (uint64_t)lanes + (uint64_t)lane < mask.low;
  return (lane < 64 ? mask.low >> lane : mask.high >> (lane - 64)) & 1;
}

static char *place(const void *base, int r, int lane, int size, int block_step, int rep_step) {
  int per = 32 / size;
  return (char *)(uintptr_t)base + ((ptrdiff_t)r * rep_step + (ptrdiff_t)(lane / per) * block_step) * 32 +
         lane % per * size;
}

static double compute(TwinOp op, double x, double y, double old) {
  switch (op) {
  case TW_ADD: return (float)x + (float)y;
  case TW_SUB: return (float)x - (float)y;
  case TW_MUL: return (float)x * (float)y;
  case TW_DIV: return (float)x / (float)y;
  case TW_MAX: return isnan(x) ? x : isnan(y) ? y : x > y ? x : y;
  case TW_MIN: return isnan(x) ? x : isnan(y) ? y : x < y ? x : y;
  case TW_MLA: return fma(x, y, old);
  case TW_AXPY: return fma(x, y, old);
  case TW_ABS: return fabs(x);
  case TW_EXP: return exp(x);
  case TW_LN: return log(x);
  case TW_SQRT: return sqrt(x);
  case TW_RSQRT: return 1 / sqrt(x);
  case TW_REC: return 1 / x;
  case TW_RELU: return x > 0 ? x : 0;
  case TW_LRELU: return x >= 0 ? x : (float)x * (float)y;
  default: return x;
  }
}

static int64_t compute_int(TwinOp op, TwinType t, int64_t x, int64_t y) {
  switch (op) {
  case TW_ADD: return x + y;
  case TW_SUB: return x - y;
  case TW_MUL: return x * y;
  case TW_MAX: return x > y ? x : y;
  case TW_MIN: return x < y ? x : y;
  case TW_AND: return x & y;
  case TW_OR: return x | y;
  case TW_NOT: return ~x;
  case TW_RELU: return x > 0 ? x : 0;
  case TW_SHL: return y >= 8 * twin_size[t] ? 0 : (int64_t)((uint64_t)x << y);
  case TW_SHR: return y >= 63 ? (x < 0 ? -1 : 0) : x >> y;
  default: return x;
  }
}

static bool whole(TwinOp op) { return op == TW_COPY || op == TW_DUP; } /* bits, not numbers */

void twin_vector(TwinOp op, TwinType t, void *dst, const void *a, const void *b, const void *scalar, int repeats,
                 TwinSteps s) {
  int size = twin_size[t], lanes = 256 / size;
  twin_issue(TW_V);
  twin_aligned("a vector instruction", dst, 32);
  if (a) twin_aligned("a vector instruction", a, 32);
  if (b) twin_aligned("a vector instruction", b, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      char *d = place(dst, r, l, size, s.dst, s.dst_rep);
      const char *x = a ? place(a, r, l, size, s.a, s.a_rep) : scalar;
      const char *y = b ? place(b, r, l, size, s.b, s.b_rep) : scalar;
      if (a) twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (b) twin_touch(TW_V, y, (size_t)size, TW_READ);
      if (op == TW_MLA || op == TW_AXPY) twin_touch(TW_V, d, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      if (whole(op)) memmove(d, x, (size_t)size);
      else if (is_float(t)) twin_put_float(t, d, compute(op, twin_get(t, x), y ? twin_get(t, y) : 0, twin_get(t, d)));
      else
        twin_put_int(t, d, compute_int(op, t, twin_get_int(t, x),
                                       y ? twin_get_int(op >= TW_SHL && !b ? TW_I32 : t, y) : 0));
    }
}

static double rounded(double v, TwinRound mode) {
  switch (mode) {
  case TW_FLOOR: return floor(v);
  case TW_CEIL: return ceil(v);
  case TW_ROUND: return round(v);
  case TW_TRUNC: return trunc(v);
  default: return nearbyint(v);
  }
}

/* v in steps of the last place of a float of `bits` mantissa bits, rounded by mode. */
static double rounded_float(double v, int bits, int lowest, TwinRound mode) {
  int e;
  if (v == 0 || !isfinite(v)) return v;
  frexp(v, &e);
  if (e - 1 < lowest) e = lowest + 1;
  double scaled = ldexp(v, bits + 1 - e), near = rounded(scaled, mode);
  if (mode == TW_ODD) {
    near = trunc(scaled);
    if (near != scaled && fmod(near, 2) == 0) near += scaled < 0 ? -1 : 1;
  }
  return ldexp(near, e - 1 - bits);
}

void twin_cast(TwinType to, TwinType from, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s) {
  static const int64_t low[] = {[TW_I8] = INT8_MIN, [TW_U8] = 0, [TW_I16] = INT16_MIN, [TW_U16] = 0,
                                [TW_I32] = INT32_MIN, [TW_U32] = 0, [TW_I64] = INT64_MIN};
  static const int64_t high[] = {[TW_I8] = INT8_MAX, [TW_U8] = UINT8_MAX, [TW_I16] = INT16_MAX, [TW_U16] = UINT16_MAX,
                                 [TW_I32] = INT32_MAX, [TW_U32] = UINT32_MAX, [TW_I64] = INT64_MAX};
  int ds = twin_size[to], as = twin_size[from], lanes = 256 / (ds > as ? ds : as);
  twin_issue(TW_V);
  twin_aligned("vconv", dst, 32);
  twin_aligned("vconv", a, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      char *d = place(dst, r, l, ds, s.dst, s.dst_rep);
      const char *x = place(a, r, l, as, s.a, s.a_rep);
      twin_touch(TW_V, x, (size_t)as, TW_READ);
      twin_touch(TW_V, d, (size_t)ds, TW_WRITE);
      if (!is_float(to) && !is_float(from)) {
        int64_t v = twin_get_int(from, x);
        twin_put_int(to, d, v < low[to] ? low[to] : v > high[to] ? high[to] : v);
      } else if (is_float(to)) {
        double v = is_float(from) ? twin_get(from, x) : (double)twin_get_int(from, x);
        if (to == from) v = rounded(v, mode); /* to a whole number */
        int bits = to == TW_F16 ? 10 : to == TW_BF16 ? 7 : 23, least = to == TW_F16 ? -14 : -126;
        twin_put_float(to, d, to == from ? v : rounded_float(v, bits, least, mode));
      } else {
        double v = rounded(twin_get(from, x), mode);
        int64_t i = isnan(v) ? 0 : v <= (double)low[to] ? low[to] : v >= (double)high[to] ? high[to] : (int64_t)v;
        twin_put_int(to, d, i);
      }
    }
}

void twin_cast4(bool to_int4, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s) {
  enum { LANES = 128, IN_BLOCK = 64 };
  twin_issue(TW_V);
  twin_aligned("vconv", dst, 32);
  twin_aligned("vconv", a, 32);
  repeats = repeats_of(repeats, LANES);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < LANES; l++) {
      if (!active(r, l, LANES)) continue;
      const char *wide = to_int4 ? place(a, r, l, 2, s.a, s.a_rep) : place(dst, r, l, 2, s.dst, s.dst_rep);
      char *byte = to_int4 ? (char *)dst + ((ptrdiff_t)r * s.dst_rep + l / IN_BLOCK * s.dst) * 32
                           : (char *)(uintptr_t)a + ((ptrdiff_t)r * s.a_rep + l / IN_BLOCK * s.a) * 32;
      int at = l % IN_BLOCK;
      twin_touch(TW_V, to_int4 ? wide : byte + at / 2, to_int4 ? 2 : 1, TW_READ);
      twin_touch(TW_V, to_int4 ? byte + at / 2 : wide, to_int4 ? 1 : 2, TW_WRITE);
      if (!to_int4) {
        twin_put_float(TW_F16, (void *)(uintptr_t)wide, twin_get_i4(byte, at));
        continue;
      }
      double v = rounded(twin_get(TW_F16, wide), mode);
      int n = isnan(v) ? 0 : v < -8 ? -8 : v > 7 ? 7 : (int)v;
      byte[at / 2] = (char)((byte[at / 2] & ~(15 << at % 2 * 4)) | (n & 15) << at % 2 * 4);
    }
}

void twin_compare(TwinCompare how, TwinType t, uint8_t *dst, const void *a, const void *b, const void *scalar,
                  int repeats, TwinSteps s) {
  int size = twin_size[t], lanes = 256 / size;
  twin_issue(TW_V);
  twin_aligned("vcmp", dst, 32);
  twin_aligned("vcmp", a, 32);
  if (b) twin_aligned("vcmp", b, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++) /* whole repeats: the mask does not count */
    for (int l = 0; l < lanes; l++) {
      const char *x = place(a, r, l, size, s.a, s.a_rep), *y = b ? place(b, r, l, size, s.b, s.b_rep) : scalar;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (b) twin_touch(TW_V, y, (size_t)size, TW_READ);
      double u = twin_get(t, x), v = twin_get(t, y);
      bool bit = how == TW_EQ ? u == v : how == TW_NE ? u != v : how == TW_LT ? u < v : how == TW_GT ? u > v
                 : how == TW_GE ? u >= v : u <= v;
      int k = r * lanes + l;
      twin_touch(TW_V, dst + k / 8, 1, TW_WRITE);
      dst[k / 8] = (uint8_t)((dst[k / 8] & ~(1 << k % 8)) | bit << k % 8);
    }
}

void twin_set_cmpmask(const void *bytes) {
  twin_issue(TW_V);
  twin_touch(TW_V, bytes, 16, TW_READ);
  memcpy(mask.compared, bytes, 16);
}

void twin_select(TwinType t, void *dst, const void *a, const void *b, int repeats, TwinSteps s, int mode) {
  int size = twin_size[t], lanes = 256 / size;
  const uint8_t *bits = mask.compared;
  twin_issue(TW_V);
  twin_aligned("vsel", dst, 32);
  twin_aligned("vsel", a, 32);
  twin_aligned("vsel", b, 32);
  if (mode == 1) bits = b;
  if (mode == 2) memcpy(&bits, mask.compared, sizeof bits);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      int k = mode == 0 ? l : r * lanes + l;
      char *d = place(dst, r, l, size, s.dst, s.dst_rep);
      const char *x = place(a, r, l, size, s.a, s.a_rep);
      const char *y = mode == 1 ? (const char *)mask.compared : place(b, r, l, size, s.b, s.b_rep);
      if (mode) twin_touch(TW_V, bits + k / 8, 1, TW_READ);
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (mode != 1) twin_touch(TW_V, y, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memmove(d, bits[k / 8] >> k % 8 & 1 ? x : y, (size_t)size);
    }
}

/* Neighbours in a binary tree, rounded at each level; lanes that are masked out are zero. */
static double tree(TwinType t, double *v, int n) {
  for (; n > 1; n /= 2)
    for (int i = 0; i < n / 2; i++) {
      uint8_t at[8];
      twin_put_float(t, at, v[2 * i] + v[2 * i + 1]);
      v[i] = twin_get(t, at);
    }
  return v[0];
}

void twin_row(TwinReduce how, TwinType t, void *dst, const void *a, int repeats, int dst_rep, int a_step, int a_rep,
              int order) {
  int size = twin_size[t], lanes = 256 / size, per = how != TW_ROW_SUM && order == 0 ? 2 : 1;
  twin_issue(TW_V);
  twin_aligned("a reduction", dst, size * per);
  twin_aligned("a reduction", a, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++) {
    double v[128] = {0}, best = 0;
    int at = -1;
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      const char *x = place(a, r, l, size, a_step, a_rep);
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      v[l] = twin_get(t, x);
      if (at < 0 || (how == TW_ROW_MIN ? v[l] < best : v[l] > best)) best = v[l], at = l;
    }
    if (at < 0) continue;
    char *d = (char *)dst + (ptrdiff_t)r * dst_rep * per * size;
    twin_touch(TW_V, d, (size_t)(per * size), TW_WRITE);
    twin_put_float(t, d, how == TW_ROW_SUM ? tree(t, v, lanes) : best);
    if (per == 2) twin_put_int(size == 2 ? TW_U16 : TW_U32, d + size, at);
  }
}

void twin_brcb(int size, void *dst, const void *a, int block, int rep, int repeats) {
  twin_issue(TW_V);
  twin_aligned("vbrcb", dst, 32);
  twin_aligned("vbrcb", a, 32);
  for (int r = 0; r < repeats; r++)
    for (int i = 0; i < 8; i++) {
      const char *x = (const char *)a + (r * 8 + i) * size;
      char *d = (char *)dst + ((ptrdiff_t)r * rep + i * block) * 32;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      twin_touch(TW_V, d, 32, TW_WRITE);
      for (int e = 0; e < 32; e += size) memcpy(d + e, x, (size_t)size);
    }
}

void twin_gather(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int repeats) {
  int lanes = 256 / size;
  twin_issue(TW_V);
  twin_aligned("vgather", dst, 32);
  twin_aligned("vgather", offset, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      const uint32_t *o = offset + r * lanes + l;
      char *d = place(dst, r, l, size, 1, dst_rep);
      twin_touch(TW_V, o, 4, TW_READ);
      twin_touch(TW_V, base + *o, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memcpy(d, base + *o, (size_t)size);
    }
}

void twin_gatherb(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int block,
                  int repeats) {
  (void)size;
  twin_issue(TW_V);
  twin_aligned("vgatherb", dst, 32);
  twin_aligned("vgatherb", offset, 32);
  for (int r = 0; r < repeats; r++)
    for (int i = 0; i < 8; i++) {
      const uint32_t *o = offset + r * 8 + i;
      char *d = (char *)dst + ((ptrdiff_t)r * dst_rep + i * block) * 32;
      twin_touch(TW_V, o, 4, TW_READ);
      twin_touch(TW_V, base + *o, 32, TW_READ);
      twin_touch(TW_V, d, 32, TW_WRITE);
      memcpy(d, base + *o, 32);
    }
}

uint64_t twin_take(int size, void *dst, const void *a, const void *bits, int repeats, int pattern, int a_rep,
                   int b_rep) {
  int lanes = 256 / size;
  uint64_t taken = 0;
  twin_issue(TW_V);
  twin_aligned("vreducev2", dst, 32);
  twin_aligned("vreducev2", a, 32);
  uint64_t n = mask.counting ? mask.low : (uint64_t)lanes; /* elements of one repeat */
  for (int r = 0; r < repeats; r++)
    for (uint64_t k = 0; k < n; k++) {
      const uint8_t *b = (const uint8_t *)bits + (size_t)r * (size_t)b_rep * 32 + k / 8;
      if (!pattern) twin_touch(TW_V, b, 1, TW_READ);
      bool chosen = !pattern ? *b >> k % 8 & 1 : pattern == 7 || (pattern <= 2 ? k % 2 + 1 == (uint64_t)pattern
                                                                              : k % 4 + 3 == (uint64_t)pattern);
      if (!chosen) continue;
      const char *x = (const char *)a + (size_t)r * (size_t)a_rep * 32 + k * (size_t)size;
      char *d = (char *)dst + taken++ * (size_t)size;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memmove(d, x, (size_t)size);
    }
  return taken;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static bool larger(double a, double b) { return isnan(a) ? !isnan(b) : a > b; }

void twin_sort32(TwinType t, void *dst, const void *score, const uint32_t *index, int repeats) {
  int size = twin_size[t];
  twin_issue(TW_V);
  twin_aligned("vbitsort", dst, 32);
  twin_aligned("vbitsort", score, 32);
  twin_aligned("vbitsort", index, 32);
  twin_touch(TW_V, score, (size_t)(repeats * 32 * size), TW_READ);
  twin_touch(TW_V, index, (size_t)repeats * 128, TW_READ);
  twin_touch(TW_V, dst, (size_t)repeats * 256, TW_WRITE);
  for (int g = 0; g < repeats; g++) {
    int order[32];
    for (int k = 0; k < 32; k++) {
      double key = twin_get(t, (const char *)score + (g * 32 + k) * size);
      int at = k;
      for (; at > 0 && larger(key, twin_get(t, (const char *)score + (g * 32 + order[at - 1]) * size)); at--)
        order[at] = order[at - 1];
      order[at] = k;
    }
    for (int k = 0; k < 32; k++) {
      char record[8] = {0}, *d = (char *)dst + (g * 32 + k) * 8;
      memcpy(record, (const char *)score + (g * 32 + order[k]) * size, (size_t)size);
      memcpy(record + 4, index + g * 32 + order[k], 4);
      memcpy(d, record, 8);
    }
  }
}

void twin_merge(TwinType t, void *dst, const void *const *list, const int *count, int lists) {
  const char *at[4], *end[4];
  char *d = dst;
  twin_issue(TW_V);
  twin_aligned("vmrgsort4", dst, 32);
  for (int i = 0; i < lists; i++) {
    at[i] = list[i];
    end[i] = at[i] + count[i] * 8;
    twin_touch(TW_V, at[i], (size_t)count[i] * 8, TW_READ);
  }
  for (;; d += 8) {
    int best = -1;
    for (int i = 0; i < lists; i++)
      if (at[i] < end[i] && (best < 0 || larger(twin_get(t, at[i]), twin_get(t, at[best])))) best = i;
    if (best < 0) return;
    twin_touch(TW_V, d, 8, TW_WRITE);
    memmove(d, at[best], 8);
    at[best] += 8;
  }
}

void twin_transpose(int size, void *const dst[16], const void *const a[16], int repeats, int dst_rep, int a_rep) {
  int c0 = 32 / size;
  twin_issue(TW_V);
  for (int r = 0; r < repeats; r++) {
    char in[16][32], out[16][32];
    for (int j = 0; j < 16; j++) {
      const char *x = (const char *)a[j] + (ptrdiff_t)r * a_rep * 32;
      twin_touch(TW_V, x, 32, TW_READ);
      memcpy(in[j], x, 32);
    }
    for (int j = 0; j < 16; j++) /* 16-bit: 16 x 16; 32-bit: 16 x 8 to 8 x 16, two lines of 8 each */
      for (int e = 0; e < c0; e++)
        memcpy(size == 2 ? &out[e][j * 2] : &out[2 * e + j / 8][j % 8 * 4], &in[j][e * size], (size_t)size);
    for (int j = 0; j < 16; j++) {
      char *d = (char *)dst[j] + (ptrdiff_t)r * dst_rep * 32;
      twin_touch(TW_V, d, 32, TW_WRITE);
      memcpy(d, out[j], 32);
    }
  }
}
