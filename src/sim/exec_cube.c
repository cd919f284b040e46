/* exec_cube.c - loads of L0 and the matrix product.
 *
 * Layouts (docs/ir.md): L1 holds NZ, L0A holds ZZ, L0B holds ZN, L0C holds NZ of 16x16 fractals. A fractal is 512
 * bytes. A load moves whole fractals: what lies in a fractal beyond the box comes along, but means nothing afterwards.
 *
 * mmad unpacks both operands to f32 panels in scratch memory - A as 16x16 fractals [rows/16][k/16][16][16], B as
 * [cols/16][k][16] - and runs a register-blocked kernel of the host over them. Every element of C adds its products in
 * order of k with one rounding a step; products of f16 and fp8 are exact in f32, those of bf16 and f32 are fused into
 * the addition. i8 and int4 multiply in i32; int4 lie in pairs along k, an element of a buffer is a byte with two. */
#include "machine.h"

#include <string.h>

enum { FRACTAL = 512 };

/* ---- L1 to L0 ------------------------------------------------------------------------------------------- */

static bool legal_load(Core *c, Entry *e, Space space, Layout layout) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[0], *w = &e->v[1];
  bool trans = e->inst->trans;
  if (!op_in_space(c, e->inst, 0, SPACE_L1) || !op_in_space(c, e->inst, 1, space)) return false;
  if (s->layout != LAYOUT_NZ || d->layout != layout || !s->fractal || !d->fractal)
    return op_refuse(c, e->inst, "L1 must be nz, L0A zz and L0B zn");
  if (s->type != d->type) return op_refuse(c, e->inst, "a load into L0 does not convert");
  if (dtype_values(s->type) > 1 && trans != (space == SPACE_L0B))
    return op_refuse(c, e->inst, "two numbers of an element must lie along k: A is [m, k], B [n, k] with trans");
  if ((trans ? v->cols : v->rows) != w->rows || (trans ? v->rows : v->cols) != w->cols)
    return op_refuse(c, e->inst,
                     trans ? "the box of L1 is not the transposed shape of L0"
                           : "the box of L1 does not have the shape of L0");
  bool turned = (d->layout == LAYOUT_ZZ) == trans;
  bool any_row = (!turned || s->size == 2) && v->r0 + round_up(v->rows, 16) <= s->prow; /* a line is 32 bytes */
  if ((v->r0 % s->frow && !any_row) || v->c0 % s->fcol || w->r0 % d->frow || w->c0 % d->fcol) {
    if (!c->m->sim->checks) return op_refuse(c, e->inst, "a box must start at a whole fractal");
    if (!any_row) op_misaligned(c, e->inst, 0, "the first row", v->r0, s->frow);
    op_misaligned(c, e->inst, 0, "the first column", v->c0, s->fcol);
    op_misaligned(c, e->inst, 1, "the first row", w->r0, d->frow);
    op_misaligned(c, e->inst, 1, "the first column", w->c0, d->fcol);
    return false;
  }
  return true;
}

static bool legal_l0a(Core *c, Entry *e) { return legal_load(c, e, SPACE_L0A, LAYOUT_ZZ); }
static bool legal_l0b(Core *c, Entry *e) { return legal_load(c, e, SPACE_L0B, LAYOUT_ZN); }

/* L0A and L0B: rows of fractals. Exact bytes of the box; `whole`: its fractals. `across` runs along the lines of a
 * fractal: rows of ZZ, columns of ZN. */
static int64_t l0_offset(const SimBuf *b, int64_t fr, int64_t fc) { return (fr * (b->pcol / b->fcol) + fc) * FRACTAL; }

static void touch_l0(Toucher *t, const SimBuf *b, const View *v, TouchKind kind, bool whole) {
  int64_t fr0 = v->r0 / b->frow, fc0 = v->c0 / b->fcol, fr = ceil_div(v->rows, b->frow),
          fc = ceil_div(v->cols, b->fcol);
  int64_t row = b->pcol / b->fcol * FRACTAL;
  bool zz = b->layout == LAYOUT_ZZ;
  if (whole || (v->rows % b->frow == 0 && v->cols % b->fcol == 0)) {
    touch(t, b, kind, v->off + l0_offset(b, fr0, fc0), fc * FRACTAL, fr, row);
    return;
  }
  for (int64_t i = 0; i < fr; i++)
    for (int64_t j = 0; j < fc; j++) {
      int64_t h = min_i64(b->frow, v->rows - i * b->frow), w = min_i64(b->fcol, v->cols - j * b->fcol);
      int64_t lines = zz ? h : w, len = (zz ? w : h) * b->size, at = v->off + l0_offset(b, fr0 + i, fc0 + j);
      touch(t, b, kind, at, len == 32 ? lines * 32 : len, len == 32 ? 1 : lines, 32);
    }
}

static void touch_load(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0), *d = arg_buf(t->core, e->inst, 1);
  touch_nz(t, s, &e->v[0], TOUCH_READ);
  bool ragged = e->v[1].rows % d->frow || e->v[1].cols % d->fcol;
  if (ragged) touch_l0(t, d, &e->v[1], TOUCH_SPOIL, true);
  touch_l0(t, d, &e->v[1], TOUCH_WRITE, false);
}

/* L1 fractals are 16 x C0, line = row; ZZ the same; ZN C0 x 16, line = column. So A without transposition and B with it
 * move fractals as they are; the other two turn elements. */
static void turn(uint8_t *d, const SimBuf *db, const View *w, const uint8_t *plane, const SimBuf *sb, const View *v,
                 bool trans) {
  int64_t size = db->size, c0 = 32 / size;
  bool zz = db->layout == LAYOUT_ZZ;
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t k = 0; k < w->cols; k++) {
      int64_t dr = w->r0 + r, dk = w->c0 + k, f = l0_offset(db, dr / db->frow, dk / db->fcol);
      int64_t in = zz ? dr % 16 * c0 + dk % c0 : dk % 16 * c0 + dr % c0;
      memcpy(d + f + in * size, plane + nz_offset(sb, v->r0 + (trans ? k : r), v->c0 + (trans ? r : k)), (size_t)size);
    }
}

static void exec_load(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[0], *w = &e->v[1];
  bool trans = e->inst->trans, as_is = (d->layout == LAYOUT_ZZ) != trans;
  uint8_t *to = buf_ptr(c, d, w->off);
  const uint8_t *from = buf_ptr(c, s, v->off);
  if (!as_is && s->size != 2) {
    turn(to, d, w, from, s, v, trans);
    return;
  }
  int64_t fr = ceil_div(w->rows, d->frow), fc = ceil_div(w->cols, d->fcol), sc = v->c0 / s->fcol;
  for (int64_t i = 0; i < fr; i++)
    for (int64_t j = 0; j < fc; j++) {
      int64_t r = v->r0 + 16 * (trans ? j : i), k = sc + (trans ? i : j);
      uint8_t *fd = to + l0_offset(d, w->r0 / d->frow + i, w->c0 / d->fcol + j);
      const uint8_t *fs = from + (k * s->prow + r) * 32;
      if (as_is) memcpy(fd, fs, FRACTAL);
      else c->m->sim->host->transpose16((uint16_t *)(void *)fd, (const uint16_t *)(const void *)fs);
    }
}

/* ---- mmad ----------------------------------------------------------------------------------------------- */

static bool legal_mmad(Core *c, Entry *e) {
  const SimBuf *a = arg_buf(c, e->inst, 0), *b = arg_buf(c, e->inst, 1), *d = arg_buf(c, e->inst, 2);
  const View *va = &e->v[0], *vb = &e->v[1], *vd = &e->v[2];
  int64_t most = c->m->sim->arch->max_mmad;
  if (!op_in_space(c, e->inst, 0, SPACE_L0A) || !op_in_space(c, e->inst, 1, SPACE_L0B) ||
      !op_in_space(c, e->inst, 2, SPACE_L0C))
    return false;
  if (a->layout != LAYOUT_ZZ || b->layout != LAYOUT_ZN || d->layout != LAYOUT_NZ || !a->fractal || !b->fractal ||
      !d->fractal)
    return op_refuse(c, e->inst, "operands must be zz in L0A, zn in L0B and nz in L0C");
  if (a->type != b->type || arch_product(c->m->sim->arch, a->type) != d->type)
    return op_refuse(c, e->inst, "the cube does not multiply these dtypes");
  if (va->rows != vd->rows || vb->cols != vd->cols || va->cols != vb->rows)
    return op_refuse(c, e->inst, "the shapes do not agree: A is [m, k], B is [k, n], C is [m, n]");
  if (op_over_limit(c, e->inst, "m", va->rows, most) || op_over_limit(c, e->inst, "n", vb->cols, most) ||
      op_over_limit(c, e->inst, "k", va->cols * dtype_values(a->type), most))
    return false;
  if ((ceil_div(va->rows, 16) + ceil_div(vb->cols, 16)) * 16 * 64 * (int64_t)sizeof(float) > SCRATCH)
    return op_refuse(c, e->inst, "the tile is too large");
  const int64_t at[6] = {va->r0, va->c0, vb->r0, vb->c0, vd->r0, vd->c0},
                unit[6] = {a->frow, a->fcol, b->frow, b->fcol, 16, 16};
  for (int x = 0; x < 6; x++) {
    if (at[x] % unit[x] == 0) continue;
    if (!c->m->sim->checks) return op_refuse(c, e->inst, "a box must start at a whole fractal");
    op_misaligned(c, e->inst, x / 2, x % 2 ? "the first column" : "the first row", at[x], unit[x]);
    return false;
  }
  return true;
}

static void touch_mmad(Toucher *t, const Entry *e) {
  const SimBuf *d = arg_buf(t->core, e->inst, 2);
  touch_l0(t, arg_buf(t->core, e->inst, 0), &e->v[0], TOUCH_READ, false);
  touch_l0(t, arg_buf(t->core, e->inst, 1), &e->v[1], TOUCH_READ, false);
  if (!e->init) touch_nz(t, d, &e->v[2], TOUCH_READ);
  touch_nz(t, d, &e->v[2], TOUCH_WRITE);
}

/* One step of the product: k0 .. k0 + kn of the operands, unpacked. */
typedef struct {
  const Core *c;
  const SimBuf *a, *b, *d;
  const View *va, *vb, *vd;
  int64_t k0, kn, kf; /* kf: fractals of 16 in kn */
  float *pa, *pb;
  float fp8[256];     /* values of the bytes of an fp8 operand */
} Step;

/* A fractal of fp8, 16 lines of 32 bytes, to fractals of 16 floats (A: a line is a row) or to panels (B: a column). */
static void unpack_fp8(const Step *s, float *to, const uint8_t *from, int64_t f, bool a) {
  for (int64_t line = 0; line < 16; line++)
    for (int64_t x = 0; x < 32 && f * 32 + x < s->kf * 16; x++) {
      int64_t k = f * 32 + x;
      to[a ? k / 16 * 256 + line * 16 + k % 16 : k * 16 + line] = s->fp8[from[line * 32 + x]];
    }
}

/* A fractal row i of 16 rows: [kf][16][16]. f16 and bf16 fractals are that already; f32 ones are 16x8. */
static void unpack_a(const Step *s, int64_t i) {
  const HostKernels *h = s->c->m->sim->host;
  float *to = s->pa + i * s->kf * 256;
  int64_t per = s->a->fcol, first = (s->va->c0 + s->k0) / per, n = ceil_div(s->kn, per);
  const uint8_t *from = buf_ptr(s->c, s->a, s->va->off + l0_offset(s->a, s->va->r0 / 16 + i, first));
  if (per == 16) {
    h->to_f32[vec_type(s->a->type)](to, from, n * 256);
    return;
  }
  for (int64_t f = 0; per == 32 && f < n; f++) unpack_fp8(s, to, from + f * FRACTAL, f, true);
  if (per == 32) return;
  for (int64_t f = 0; f < n; f++)
    for (int64_t r = 0; r < 16; r++) memcpy(to + f / 2 * 256 + r * 16 + f % 2 * 8, from + f * FRACTAL + r * 32, 32);
}

/* B fractal column j of 16 columns: [k][16]. */
static void unpack_b(const Step *s, int64_t j) {
  const HostKernels *h = s->c->m->sim->host;
  float *to = s->pb + j * s->kf * 256;
  int64_t per = s->b->frow, first = (s->vb->r0 + s->k0) / per, n = ceil_div(s->kn, per);
  for (int64_t f = 0; f < n; f++) {
    const uint8_t *from = buf_ptr(s->c, s->b, s->vb->off + l0_offset(s->b, first + f, s->vb->c0 / 16 + j));
    if (per == 16) {
      h->unpack_t[vec_type(s->b->type)](to + f * 256, (const uint16_t *)(const void *)from);
      continue;
    }
    if (per == 32) {
      unpack_fp8(s, to, from, f, false);
      continue;
    }
    float x[128];
    memcpy(x, from, FRACTAL);
    for (int k = 0; k < 8; k++)
      for (int col = 0; col < 16; col++) to[f * 128 + k * 16 + col] = x[col * 8 + k];
  }
}

/* 16 rows x up to 16 * tile_fractals columns of C at fractal (i, j): rows in tiles of the host kernel. */
static void mmad_tile(const Step *s, int64_t i, int64_t j, int fractals, bool init, bool exact) {
  const HostKernels *h = s->c->m->sim->host;
  int64_t rows = min_i64(16, s->vd->rows - i * 16), plane = s->d->prow * 16;
  const float *a = s->pa + i * s->kf * 256, *b = s->pb + j * s->kf * 256;
  float *c = (float *)(void *)buf_ptr(s->c, s->d, s->vd->off + nz_offset(s->d, s->vd->r0 + i * 16, s->vd->c0 + j * 16));
  bool narrow = (j + fractals) * 16 > s->vd->cols;
  for (int64_t r = 0; r < rows; r += h->tile_rows) {
    if (!narrow && r + h->tile_rows <= rows) {
      h->mmad(c + r * 16, plane, a + r * 16, b, s->kf * 256, s->kn, init, fractals, exact);
      continue;
    }
    float t[4 * 16 * 16]; /* a tile over the edge: worked on in a copy, the valid part goes back */
    int64_t n = min_i64(h->tile_rows, rows - r), step = h->tile_rows * 16;
    memset(t, 0, sizeof t);
    for (int f = 0; f < fractals; f++) memcpy(t + f * step, c + f * plane + r * 16, (size_t)n * 64);
    h->mmad(t, step, a + r * 16, b, s->kf * 256, s->kn, init, fractals, exact);
    for (int f = 0; f < fractals; f++)
      for (int64_t x = 0; x < n; x++)
        memcpy(c + f * plane + (r + x) * 16, t + f * step + x * 16,
               (size_t)min_i64(16, s->vd->cols - (j + f) * 16) * 4);
  }
}

/* Number x of line `line` of a row of 8-bit fractals that starts at p: C0 elements a line. */
static int32_t whole_at(DType t, const uint8_t *p, int64_t line, int64_t x) {
  int64_t values = dtype_values(t), at = x / values;
  uint8_t b = p[at / 32 * FRACTAL + line * 32 + at % 32];
  if (values == 1) return (int8_t)b;
  return (int32_t)((uint32_t)(x % 2 ? b >> 4 : b & 15) ^ 8) - 8;
}

/* The same in i32, for i8 and for int4 in pairs; what the views count are elements. */
static void mmad_whole(const Step *s, bool init) {
  const HostKernels *h = s->c->m->sim->host;
  DType type = s->a->type;
  int32_t *a = (int32_t *)(void *)s->pa, *b = (int32_t *)(void *)s->pb, t[256];
  int64_t values = dtype_values(type), k = s->kn * values, fm = ceil_div(s->vd->rows, 16);
  int64_t a0 = (s->va->c0 + s->k0) * values, b0 = (s->vb->r0 + s->k0) * values;
  int64_t c0 = 32 * values, b_row = s->b->pcol / 16 * FRACTAL; /* numbers and bytes from one fractal to the next in k */
  for (int64_t i = 0; i < fm; i++) {
    const uint8_t *f = buf_ptr(s->c, s->a, s->va->off + l0_offset(s->a, s->va->r0 / 16 + i, 0));
    for (int64_t x = 0; x < k; x++)
      for (int64_t r = 0; r < 16; r++) a[(i * k + x) * 16 + r] = whole_at(type, f, r, a0 + x);
  }
  for (int64_t j = 0; j < ceil_div(s->vd->cols, 16); j++) {
    const uint8_t *f = buf_ptr(s->c, s->b, s->vb->off + (s->vb->c0 / 16 + j) * FRACTAL);
    for (int64_t x = 0; x < k; x++)
      for (int64_t n = 0; n < 16; n++)
        b[x * 16 + n] = whole_at(type, f + (b0 + x) / c0 * b_row, n, (b0 + x) % c0);
    for (int64_t i = 0; i < fm; i++) {
      int64_t rows = min_i64(16, s->vd->rows - i * 16), cols = min_i64(16, s->vd->cols - j * 16);
      uint8_t *c = buf_ptr(s->c, s->d, s->vd->off + nz_offset(s->d, s->vd->r0 + i * 16, s->vd->c0 + j * 16));
      memcpy(t, c, sizeof t);
      h->mmad_i8(t, a + i * k * 16, b, k, init);
      for (int64_t r = 0; r < rows; r++) memcpy(c + r * 64, t + r * 16, (size_t)cols * 4);
    }
  }
}

static void exec_mmad(Core *c, const Entry *e) {
  Step s = {c,
            arg_buf(c, e->inst, 0),
            arg_buf(c, e->inst, 1),
            arg_buf(c, e->inst, 2),
            &e->v[0],
            &e->v[1],
            &e->v[2],
            0,
            0,
            0,
            NULL,
            NULL,
            {0}};
  const HostKernels *h = c->m->sim->host;
  int64_t m = s.vd->rows, n = s.vd->cols, k = s.va->cols, values = dtype_values(s.a->type);
  int64_t fm = ceil_div(m, 16), fn = ceil_div(n, 16);
  /* Steps of k whose panels fit the scratch memory and the cache. */
  int64_t most = SCRATCH / (int64_t)sizeof(float) / ((fm + fn) * 16 * values) / 32 * 32, step = min_i64(256, most);
  bool fp8 = s.a->size == 1 && dtype_is_float(s.a->type), exact = s.a->type == DT_F16 || fp8;
  for (int x = 0; fp8 && x < 256; x++) s.fp8[x] = (float)scalar_load(s.a->type, &(uint8_t){(uint8_t)x}).f;
  for (s.k0 = 0; s.k0 < k; s.k0 += step) {
    bool init = e->init && s.k0 == 0;
    s.kn = min_i64(step, k - s.k0);
    s.kf = ceil_div(s.kn, 16);
    s.pa = (float *)(void *)c->m->scratch;
    s.pb = s.pa + fm * s.kf * 256 * values;
    if (!dtype_is_float(s.a->type)) {
      mmad_whole(&s, init);
      continue;
    }
    for (int64_t i = 0; i < fm; i++) unpack_a(&s, i);
    for (int64_t j = 0; j < fn; j++) unpack_b(&s, j);
    for (int64_t j = 0; j < fn; j += h->tile_fractals)
      for (int64_t i = 0; i < fm; i++) mmad_tile(&s, i, j, (int)min_i64(h->tile_fractals, fn - j), init, exact);
  }
}

const OpImpl *impl_cube(StmtOp op) {
  static const OpImpl l0a = {legal_l0a, touch_load, exec_load}, l0b = {legal_l0b, touch_load, exec_load},
                      mmad = {legal_mmad, touch_mmad, exec_mmad};
  switch (op) {
  case OP_L1_TO_L0A: return &l0a;
  case OP_L1_TO_L0B: return &l0b;
  case OP_MMAD: return &mmad;
  default: return NULL;
  }
}
