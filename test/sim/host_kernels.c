/* host_kernels.c - do the inner loops of the simulator give the same bytes for every instruction set of this host?
 * Random bits (so also infinities, NaN, subnormals) and ordinary numbers go through every kernel of every table; the
 * portable table is the reference, and for conversions the one-value functions of float.c. Prints the differences. */
#include "../../src/sim/machine.h"

#include <stdio.h>
#include <string.h>

enum { N = 1024 };
typedef struct { const HostKernels *table[3]; int n, bad; uint64_t state; } Test;

static uint32_t next(Test *t) {
  t->state = t->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(t->state >> 32);
}

static int32_t type_size(int type) { return type == VT_F32 || type == VT_I32 || type == VT_U32 ? 4 : 2; }
static float number(Test *t) { return (float)((int)(next(t) % 2000) - 1000) / 64.0f; }

static void fill(Test *t, uint8_t *p, int type, bool bits) {
  for (int i = 0; i < N; i++) {
    uint32_t u = next(t);
    float f = number(t);
    uint16_t h = type == VT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
    if (!bits && type == VT_F32) memcpy(&u, &f, 4);
    if (!bits && (type == VT_F16 || type == VT_BF16)) u = h;
    memcpy(p + i * type_size(type), &u, (size_t)type_size(type));
  }
}

static void expect(Test *t, const void *got, const void *want, size_t n, const char *what, int op, int type,
                   int table) {
  if (!memcmp(got, want, n)) return;
  if (t->bad++ < 20)
    printf("%s %s dtype %d: %s differs from %s\n", what, op < 0 ? "" : op_info[op].name, type, t->table[table]->name,
           t->table[0]->name);
}

static void vectors(Test *t) {
  static uint8_t a[N * 4], b[N * 4], d[3][N * 4], before[N * 4];
  for (int op = 0; op < OP_COUNT; op++)
    for (int type = 0; type < VT_COUNT; type++)
      for (int round = 0; t->table[0]->vec[op][type] && round < 100; round++) {
        int64_t n = next(t) % N + 1;
        fill(t, a, type, round & 1);
        fill(t, b, type, round & 1);
        fill(t, before, type, round & 1);
        for (int i = 0; (op == OP_SHL || op == OP_SHR) && i < N; i++) {
          uint32_t count = next(t) % (type_size(type) * 8);
          memcpy(b + i * type_size(type), &count, (size_t)type_size(type));
        }
        for (int k = 0; k < t->n; k++) {
          memcpy(d[k], before, sizeof before);
          t->table[k]->vec[op][type](d[k], a, b, n, round % 3 == 0);
          expect(t, d[k], d[0], sizeof before, "vec", op, type, k);
          if (!t->table[k]->compare[type] || op != OP_ADD) continue;
          uint8_t m[2][N / 8];
          memset(m, 0x5a, sizeof m);
          t->table[0]->compare[type](m[0], a, b, n, false, (CmpMode)(round % CMP_COUNT));
          t->table[k]->compare[type](m[1], a, b, n, false, (CmpMode)(round % CMP_COUNT));
          expect(t, m[1], m[0], sizeof m[0], "compare", -1, type, k);
        }
      }
}

static void conversions(Test *t) {
  static uint16_t half[65536];
  static float wide[65536], f[N];
  for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
  for (int type = VT_F16; type <= VT_BF16; type++)
    for (int k = 0; k < t->n; k++) {
      t->table[k]->to_f32[type](wide, half, 65536);
      for (int i = 0; i < 65536; i++) {
        float want = type == VT_F16 ? f16_to_f32((uint16_t)i) : bf16_to_f32((uint16_t)i);
        if (want == want) expect(t, &wide[i], &want, 4, "to_f32", -1, type, k);
        else if (wide[i] == wide[i]) expect(t, "no", "ne", 2, "to_f32 of NaN", -1, type, k);
      }
      for (int round = 0; round < 100; round++) {
        uint16_t got[N], want[N];
        for (int i = 0; i < N; i++) {
          uint32_t u = round & 1 ? next(t) : (next(t) & 0x807fffffu) | (100 + next(t) % 50) << 23;
          memcpy(&f[i], &u, 4);
          want[i] = type == VT_F16 ? f32_to_f16(f[i]) : f32_to_bf16(f[i]);
        }
        t->table[k]->from_f32[type](got, f, N);
        expect(t, got, want, sizeof got, "from_f32", -1, type, k);
      }
    }
}

static void fractals(Test *t) {
  for (int k = 0; k < t->n; k++) {
    uint16_t s[256], d[256], want[256];
    float u[256];
    for (int i = 0; i < 256; i++) s[i] = (uint16_t)(next(t) & 0xbbff);
    for (int i = 0; i < 256; i++) want[i] = s[i % 16 * 16 + i / 16];
    t->table[k]->transpose16(d, s);
    expect(t, d, want, sizeof d, "transpose16", -1, 0, k);
    t->table[k]->unpack_t[VT_F16](u, s);
    for (int i = 0; i < 256; i++) d[i] = f32_to_f16(u[i]);
    expect(t, d, want, sizeof d, "unpack_t", -1, VT_F16, k);
  }
}

/* f16 products are exact; the others must be fused on every host. */
static void products(Test *t) {
  static float a[20 * 256], b[2][20 * 256], c[3][512], before[512];
  for (int round = 0; round < 100; round++) {
    int64_t k = next(t) % 300 + 1;
    bool exact = round % 2, init = round % 3 == 0;
    for (int i = 0; i < 20 * 256; i++) {
      a[i] = f16_to_f32(round % 10 == 9 ? (uint16_t)next(t) : f32_to_f16(number(t))) * (exact ? 1 : 1.2345f);
      b[0][i] = f16_to_f32(f32_to_f16(number(t))) * (exact ? 1 : 0.98765f);
      b[1][i] = f16_to_f32(f32_to_f16(number(t)));
    }
    for (int i = 0; i < 512; i++) before[i] = number(t) / 7;
    for (int x = 0; x < t->n; x++) {
      const HostKernels *h = t->table[x];
      memcpy(c[x], before, sizeof before);
      for (int j = 0; j < 2; j += h->tile_fractals)
        for (int r = 0; r < 16; r += h->tile_rows)
          h->mmad(c[x] + j * 256 + r * 16, 256, a + r * 16, b[j], 20 * 256, k, init, h->tile_fractals, exact);
      expect(t, c[x], c[0], sizeof before, "mmad", -1, exact ? VT_F16 : VT_F32, x);
    }
  }
}

int main(void) {
  Test t = {{&host_portable}, 1, 0, 1};
#if TL_HOST_X86
  if (host_kernels() != &host_portable) t.table[t.n++] = &host_avx2;
  if (host_kernels() == &host_avx512) t.table[t.n++] = &host_avx512;
#endif
  vectors(&t);
  conversions(&t);
  fractals(&t);
  products(&t);
  printf("%d tables, %d differences\n", t.n, t.bad);
  return t.bad != 0;
}
