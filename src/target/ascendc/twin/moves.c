/* moves.c - pipes MTE1, MTE2, MTE3, M and FIX: copies between memories, products, what leaves L0C. */
#include "core.h"

#include <math.h>
#include <string.h>

void twin_gm_ub(int size, void *ub, const void *gm, int rows, uint32_t bytes, uint32_t gm_gap, uint32_t ub_gap, int pad,
                uint64_t pad_value) {
  uint32_t blocks = (bytes + 31) / 32 * 32;
  char *d = ub;
  const char *s = gm;
  twin_issue(TW_MTE2);
  twin_aligned("a load to UB", ub, 32);
  twin_within("a load to UB", "the number of rows", rows, 1, 4095);
  twin_within("a load to UB", "bytes of a row", bytes, 1, (1 << 21) - 1);
  for (int r = 0; r < rows; r++, s += bytes + gm_gap, d += blocks + ub_gap * 32) {
    twin_touch(TW_MTE2, s, bytes, TW_READ);
    twin_touch(TW_MTE2, d, blocks, TW_WRITE);
    memset(d + bytes, 0xee, blocks - bytes); /* undefined */
    memcpy(d, s, bytes);
    for (int e = 0; e < pad; e++) memcpy(d + bytes + e * size, &pad_value, (size_t)size);
  }
}

static void add_at(TwinType t, char *d, const char *x) {
  if (is_float(t)) twin_put_float(t, d, twin_get(t, d) + twin_get(t, x));
  else twin_put_int(t, d, twin_get_int(t, d) + twin_get_int(t, x));
}

void twin_ub_gm(void *gm, const void *ub, int rows, uint32_t bytes, uint32_t ub_gap, uint32_t gm_gap, int atomic_type) {
  char *d = gm;
  const char *s = ub;
  twin_issue(TW_MTE3);
  twin_aligned("a store from UB", ub, 32);
  twin_within("a store from UB", "the number of rows", rows, 1, 4095);
  twin_within("a store from UB", "bytes of a row", bytes, 1, (1 << 21) - 1);
  for (int r = 0; r < rows; r++, d += bytes + gm_gap, s += (bytes + 31) / 32 * 32 + ub_gap * 32) {
    twin_touch(TW_MTE3, s, bytes, TW_READ);
    if (atomic_type < 0) {
      twin_store(TW_MTE3, d, s, bytes);
      continue;
    }
    twin_lock();
    twin_touch(TW_MTE3, d, bytes, TW_ACCUMULATE);
    for (uint32_t e = 0; e < bytes; e += (uint32_t)twin_size[atomic_type]) add_at((TwinType)atomic_type, d + e, s + e);
    twin_unlock();
  }
}

void twin_nd_nz(int size, void *l1, const void *gm, int rows, int cols, int pitch, int plane_rows) {
  int c0 = 32 / size;
  twin_issue(TW_MTE2);
  twin_aligned("a load to L1", l1, 32);
  twin_within("a load to L1", "the number of rows", rows, 1, 16384);
  twin_within("a load to L1", "rows of the tile", plane_rows, rows, 16384);
  for (int r = 0; r < rows; r++) {
    const char *s = (const char *)gm + (ptrdiff_t)r * pitch * size;
    twin_touch(TW_MTE2, s, (size_t)(cols * size), TW_READ);
    for (int c = 0; c < (cols + c0 - 1) / c0; c++) {
      char *d = (char *)l1 + ((ptrdiff_t)c * plane_rows + r) * 32;
      int n = cols - c * c0 < c0 ? cols - c * c0 : c0;
      twin_touch(TW_MTE2, d, 32, TW_WRITE);
      memset(d, 0, 32);
      memcpy(d, s + c * 32, (size_t)(n * size));
    }
  }
}

void twin_fill_l1(int size, void *l1, int columns, int blocks, int gap, uint64_t value) {
  twin_issue(TW_MTE2);
  for (int c = 0; c < columns; c++) {
    char *d = (char *)l1 + (ptrdiff_t)c * (blocks + gap) * 32;
    twin_touch(TW_MTE2, d, (size_t)blocks * 32, TW_WRITE);
    for (int e = 0; e < blocks * 32; e += size) memcpy(d + e, &value, (size_t)size);
  }
}

void twin_load(int size, void *l0, const void *l1, int first, int repeats, int src_step, int gap, bool transpose) {
  twin_issue(TW_MTE1);
  twin_aligned("a load to L0", l0, 512);
  twin_aligned("a load to L0", l1, 32);
  for (int r = 0; r < repeats; r++) {
    const char *s = (const char *)l1 + ((ptrdiff_t)first + (ptrdiff_t)r * src_step) * 512;
    char *d = (char *)l0 + (ptrdiff_t)r * (gap + 1) * 512;
    twin_touch(TW_MTE1, s, 512, TW_READ);
    twin_touch(TW_MTE1, d, 512, TW_WRITE);
    if (!transpose) memcpy(d, s, 512);
    else if (size != 2) twin_fault("a load of %d-byte elements cannot transpose single fractals", size);
    else
      for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) memcpy(d + (j * 16 + i) * 2, s + (i * 16 + j) * 2, 2);
  }
}

void twin_load_square(int size, void *l0, const void *l1, int first, int repeats, int src_step, int gap,
                      int fractal_gap) {
  int side = size == 1 ? 32 : 16, bytes = side * side * size;
  twin_issue(TW_MTE1);
  twin_aligned("a load to L0", l0, 512);
  twin_aligned("a load to L0", l1, 32);
  for (int r = 0; r < repeats; r++) {
    const char *s = (const char *)l1 + ((ptrdiff_t)first + (ptrdiff_t)r * src_step) * bytes;
    char *to = (char *)l0 + (ptrdiff_t)r * (gap + 1) * 512;
    twin_touch(TW_MTE1, s, (size_t)bytes, TW_READ);
    for (int f = 0; f < bytes / 512; f++) { /* 16 rows of the transpose each */
      char *d = to + (ptrdiff_t)f * (fractal_gap + 1) * 512;
      twin_touch(TW_MTE1, d, 512, TW_WRITE);
      for (int i = 0; i < 16; i++)
        for (int j = 0; j < side; j++)
          memcpy(d + (i * side + j) * size, s + (j * side + f * 16 + i) * size, (size_t)size);
    }
  }
}

void twin_image(bool to_l0a, void *l0, const void *l1, int l1_rows, int cols, int rows, int col, int row, bool turn) {
  int across = to_l0a ? ((turn ? rows : cols) + 7) / 8 : (cols + 15) / 16; /* fractals side by side */
  twin_issue(TW_MTE1);
  twin_aligned("a load to L0", l0, 512);
  twin_aligned("a load to L0", l1, 32);
  if (!to_l0a && turn) twin_not_modelled("img2colv2_cbuf_to_cb that transposes");
  for (int y = 0; y < rows; y++)
    for (int x = 0; x < cols; x++) {
      int r = row + y, c = col + x, i = turn ? x : y, j = turn ? y : x;
      const char *s = (const char *)l1 + ((ptrdiff_t)(c / 8) * l1_rows + r) * 32 + c % 8 * 4;
      char *d = (char *)l0 + (to_l0a ? ((ptrdiff_t)(i / 16 * across + j / 8) * 16 + i % 16) * 32 + j % 8 * 4
                                     : ((ptrdiff_t)(i / 8 * across + j / 16) * 16 + j % 16) * 32 + i % 8 * 4);
      twin_touch(TW_MTE1, s, 4, TW_READ);
      twin_touch(TW_MTE1, d, 4, TW_WRITE);
      memcpy(d, s, 4);
    }
}

/* ---- cube -------------------------------------------------------------------------------------------------------- */

void twin_mad(TwinType t, void *c, const void *a, const void *b, int m, int k, int n, bool init, bool k_whole) {
  int size = twin_size[t], c0 = t == TW_I4 ? 64 : 32 / size, kf = (k + c0 - 1) / c0, nf = (n + 15) / 16;
  int high = (m + 15) / 16 * 16;
  if (k_whole) kf = (k + 15) / 16 * 16 / c0;
  twin_issue(TW_M);
  twin_aligned("mmad", a, 512);
  twin_aligned("mmad", b, 512);
  twin_aligned("mmad", c, 1024);
  twin_within("mmad", "m", m, 1, 4095);
  twin_within("mmad", "k", k, 1, 4095);
  twin_within("mmad", "n", n, 1, 4095);
  twin_touch(TW_M, a, (size_t)(high / 16 * kf) * 512, TW_READ);
  twin_touch(TW_M, b, (size_t)((k + c0 - 1) / c0 * nf) * 512, TW_READ);
  if (!init) twin_touch(TW_M, c, (size_t)(nf * high) * 64, TW_READ);
  twin_touch(TW_M, c, (size_t)(nf * high) * 64, TW_WRITE);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      char *d = (char *)c + ((size_t)(j / 16) * (size_t)high + (size_t)i) * 64 + j % 16 * 4;
      float sum = 0;
      int32_t whole_sum = 0;
      memcpy(&sum, d, 4);
      memcpy(&whole_sum, d, 4);
      if (init) sum = 0, whole_sum = 0;
      for (int x = 0; x < k; x++) {
        const char *u = (const char *)a + ((i / 16 * kf + x / c0) * 16 + i % 16) * 32;
        const char *v = (const char *)b + ((x / c0 * nf + j / 16) * 16 + j % 16) * 32;
        int e = x % c0;
        if (t == TW_I4) whole_sum += twin_get_i4(u, e) * twin_get_i4(v, e);
        else if (t == TW_I8) whole_sum += (int32_t)(twin_get_int(t, u + e) * twin_get_int(t, v + e));
        else sum = (float)fma(twin_get(t, u + e * size), twin_get(t, v + e * size), sum);
      }
      memcpy(d, is_float(t) ? (void *)&sum : (void *)&whole_sum, 4);
    }
}

static void begin_fix(const void *c, int n, int m) {
  twin_issue(TW_FIX);
  twin_aligned("fixpipe", c, 64);
  twin_within("fixpipe", "n", n, 1, 4095);
  twin_within("fixpipe", "m", m, 1, 8192);
}

/* Element (i, j) of an NZ plane of sums. */
static double sum_at(TwinType type, const void *c, int plane_rows, int i, int j, bool relu) {
  const char *s = (const char *)c + ((size_t)(j / 16) * (size_t)plane_rows + (size_t)i) * 64 + j % 16 * 4;
  twin_touch(TW_FIX, s, 4, TW_READ);
  double v = twin_get(type, s);
  return relu && !(v > 0) ? 0 : v;
}

void twin_fix(TwinType from, TwinType to, void *gm, const void *c, int n, int m, uint32_t pitch, int plane_rows,
              bool relu, int atomic_type) {
  int size = twin_size[to];
  begin_fix(c, n, m);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      char *d = (char *)gm + ((size_t)i * pitch + (size_t)j) * (size_t)size, out[4];
      double v = sum_at(from, c, plane_rows, i, j, relu);
      if (is_float(to)) twin_put_float(to, out, v);
      else twin_put_int(to, out, (int64_t)v);
      if (atomic_type < 0) {
        twin_store(TW_FIX, d, out, (size_t)size);
        continue;
      }
      twin_lock();
      twin_touch(TW_FIX, d, (size_t)size, TW_ACCUMULATE);
      add_at((TwinType)atomic_type, d, out);
      twin_unlock();
    }
}

void twin_fix_l1(TwinType to, void *l1, const void *c, int n, int m, int l1_rows, int plane_rows, bool relu) {
  int size = twin_size[to], c0 = 32 / size;
  begin_fix(c, n, m);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      char *d = (char *)l1 + ((size_t)(j / c0) * (size_t)l1_rows + (size_t)i) * 32 + j % c0 * size;
      double v = sum_at(TW_F32, c, plane_rows, i, j, relu);
      twin_touch(TW_FIX, d, (size_t)size, TW_WRITE);
      twin_put_float(to, d, v);
    }
}
