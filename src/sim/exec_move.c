/* exec_move.c - instructions that move bytes between memories.
 *
 * DMA between GM and UB takes rows as runs of contiguous memory; GM to L1 turns rows into NZ fractals (ND2NZ): every
 * 32-byte piece of a row goes into its own column of fractals. L0C to GM and L1 read NZ, convert from f32 or i32, and
 * write rows or fractals. f32 to f16 follows IEEE: too large becomes infinity (the saturating mode of the chip is a
 * control bit that kernels leave off). */
#include "machine.h"

#include <string.h>

/* ---- GM and UB ------------------------------------------------------------------------------------------ */

/* The same runs on both sides: if one side is flat the other side's runs cut it. */
static bool pair_runs(Core *c, Entry *e) {
  const View *s = &e->v[0], *d = &e->v[1];
  const SimBuf *sb = arg_buf(c, e->inst, 0), *db = arg_buf(c, e->inst, 1);
  if (sb->fractal || db->fractal || sb->size != db->size)
    return op_refuse(c, e->inst, "both sides must be row-major and of one element size");
  const View *r = d->nruns > s->nruns ? d : s;
  if (!s->nruns || !d->nruns || !fit_rows(s, sb, r->nruns, r->run, &e->pitch[0]) ||
      !fit_rows(d, db, r->nruns, r->run, &e->pitch[1]))
    return op_refuse(c, e->inst, "the two sides do not have the same rows and columns");
  e->rows = r->nruns;
  e->cols = r->run;
  return true;
}

static bool dma_legal(Core *c, Entry *e, int ub, Space from, Space to) {
  const Arch *arch = c->m->sim->arch;
  const SimBuf *b = arg_buf(c, e->inst, ub);
  if (!op_in_space(c, e->inst, 0, from) || !op_in_space(c, e->inst, 1, to) || !pair_runs(c, e)) return false;
  if (op_misaligned(c, e->inst, ub, "the byte address", b->addr + e->v[ub].off, 32)) return false;
  if (e->rows > 1 && op_misaligned(c, e->inst, ub, "the distance of rows in bytes", e->pitch[ub], 32)) return false;
  return !op_over_limit(c, e->inst, "the number of rows", e->rows, arch->max_burst_rows) &&
         !op_over_limit(c, e->inst, "the length of a row in bytes", e->cols * b->size, arch->max_burst_bytes);
}

static bool legal_gm_to_ub(Core *c, Entry *e) { return dma_legal(c, e, 1, SPACE_GM, SPACE_UB); }
static bool legal_ub_to_gm(Core *c, Entry *e) {
  if (!dma_legal(c, e, 0, SPACE_UB, SPACE_GM)) return false;
  bool adds = ir_gm_adds(arg_buf(c, e->inst, 1)->type);
  return !e->inst->atomic || adds || op_refuse(c, e->inst, "the DMA adds " IR_ADDS " only");
}

/* Bytes behind a UB row that the DMA overwrites, up to the next 32-byte block: with the pad value, or with nothing of
 * meaning. */
static int64_t spoilt(const Core *c, const Entry *e) {
  const SimBuf *b = arg_buf(c, e->inst, 1);
  int64_t used = c->m->sim->used[SPACE_UB], row = e->cols * b->size,
          end = b->addr + e->v[1].off + (e->rows - 1) * e->pitch[1] + row;
  return min_i64(round_up(row, 32) - row, used - end);
}

static void touch_gm_to_ub(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0), *d = arg_buf(t->core, e->inst, 1);
  int64_t row = e->cols * s->size, tail = spoilt(t->core, e);
  touch(t, s, TOUCH_READ, e->v[0].off, row, e->rows, e->pitch[0]);
  touch(t, d, TOUCH_WRITE, e->v[1].off, row, e->rows, e->pitch[1]);
  if (tail > 0)
    touch(t, d, e->inst->pad_reg != NO_REG ? TOUCH_WRITE : TOUCH_SPOIL, e->v[1].off + row, tail, e->rows, e->pitch[1]);
}

static void copy_rows(uint8_t *d, int64_t dp, const uint8_t *s, int64_t sp, int64_t bytes, int64_t rows) {
  if (rows > 1 && dp == bytes && sp == bytes) {
    bytes *= rows;
    rows = 1;
  }
  for (; rows > 0; rows--, d += dp, s += sp) memmove(d, s, (size_t)bytes);
}

static void exec_gm_to_ub(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  int64_t row = e->cols * s->size, tail = spoilt(c, e);
  uint8_t *to = buf_ptr(c, d, e->v[1].off);
  copy_rows(to, e->pitch[1], buf_ptr(c, s, e->v[0].off), e->pitch[0], row, e->rows);
  uint8_t behind[32];
  memset(behind, 0xff, sizeof behind);
  if (e->inst->pad_reg != NO_REG && tail > 0) {
    scalar_store(d->type, behind, scalar_cast(d->type, (DType)e->inst->pad_type, e->pad));
    for (int x = d->size; x < 32; x++) behind[x] = behind[x - d->size];
  }
  for (int64_t r = 0; r < e->rows && tail > 0; r++) memcpy(to + r * e->pitch[1] + row, behind, (size_t)tail);
  c->m->gm_read += row * e->rows;
}

static void touch_ub_to_gm(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0), *d = arg_buf(t->core, e->inst, 1);
  int64_t row = e->cols * s->size;
  touch(t, s, TOUCH_READ, e->v[0].off, row, e->rows, e->pitch[0]);
  touch(t, d, e->inst->atomic ? TOUCH_ATOMIC : TOUCH_WRITE, e->v[1].off, row, e->rows, e->pitch[1]);
}

static void add_row(Core *c, DType t, uint8_t *d, const uint8_t *s, int64_t n) {
  VecType v = vec_type(t);
  if (v != VT_COUNT) c->m->sim->host->vec[OP_ADD][v](d, d, s, n, false);
  else
    for (int64_t i = 0; i < n; i++) d[i] = (uint8_t)(d[i] + s[i]);
}

static void exec_ub_to_gm(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  uint8_t *to = buf_ptr(c, d, e->v[1].off);
  const uint8_t *from = buf_ptr(c, s, e->v[0].off);
  if (!e->inst->atomic) copy_rows(to, e->pitch[1], from, e->pitch[0], e->cols * s->size, e->rows);
  else
    for (int64_t r = 0; r < e->rows; r++) add_row(c, d->type, to + r * e->pitch[1], from + r * e->pitch[0], e->cols);
  c->m->gm_write += e->cols * s->size * e->rows;
}

/* ---- GM to L1 ------------------------------------------------------------------------------------------- */

static bool l1_box(Core *c, const Entry *e, int arg) {
  const SimBuf *b = arg_buf(c, e->inst, arg);
  if (!op_in_space(c, e->inst, arg, SPACE_L1)) return false;
  if (!b->fractal || b->layout != LAYOUT_NZ) return op_refuse(c, e->inst, "the L1 operand must have layout nz");
  if (e->v[arg].c0 % b->fcol) { /* always: the bytes of a piece would cross fractals */
    c->m->sim->checks ? (void)op_misaligned(c, e->inst, arg, "the first column", e->v[arg].c0, b->fcol)
                      : (void)op_refuse(c, e->inst, "misaligned column");
    return false;
  }
  return true;
}

static bool legal_gm_to_l1(Core *c, Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  if (!op_in_space(c, e->inst, 0, SPACE_GM) || !l1_box(c, e, 1)) return false;
  e->rows = e->v[1].rows;
  e->cols = e->v[1].cols;
  if (s->size != d->size) return op_refuse(c, e->inst, "the DMA to L1 does not convert");
  if (!fit_rows(&e->v[0], s, e->rows, e->cols, &e->pitch[0]))
    return op_refuse(c, e->inst, "the two sides do not have the same rows and columns");
  return true;
}

static void touch_gm_to_l1(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0), *d = arg_buf(t->core, e->inst, 1);
  const View *v = &e->v[1];
  touch(t, s, TOUCH_READ, e->v[0].off, e->cols * s->size, e->rows, e->pitch[0]);
  touch(t, d, TOUCH_WRITE, v->off + nz_offset(d, v->r0, v->c0), e->rows * 32, ceil_div(e->cols, d->fcol), d->prow * 32);
}

/* Two rows at a time, so that each 64-byte line of L1 is written once and whole. */
static void nd_to_nz(uint8_t *d, int64_t column, const uint8_t *s, int64_t pitch, int64_t rows, int64_t bytes) {
  int64_t whole = bytes / 32, tail = bytes % 32, r = 0;
  for (; r + 1 < rows; r += 2) {
    const uint8_t *s0 = s + r * pitch, *s1 = s0 + pitch;
    uint8_t *to = d + r * 32;
    for (int64_t j = 0; j < whole; j++, to += column) {
      memcpy(to, s0 + j * 32, 32);
      memcpy(to + 32, s1 + j * 32, 32);
    }
    if (!tail) continue;
    memset(to, 0, 64);
    memcpy(to, s0 + whole * 32, (size_t)tail);
    memcpy(to + 32, s1 + whole * 32, (size_t)tail);
  }
  for (; r < rows; r++) {
    uint8_t *to = d + r * 32;
    for (int64_t j = 0; j < whole; j++, to += column) memcpy(to, s + r * pitch + j * 32, 32);
    if (!tail) continue;
    memset(to, 0, 32);
    memcpy(to, s + r * pitch + whole * 32, (size_t)tail);
  }
}

static void exec_gm_to_l1(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[1];
  nd_to_nz(buf_ptr(c, d, v->off + nz_offset(d, v->r0, v->c0)), d->prow * 32, buf_ptr(c, s, e->v[0].off), e->pitch[0],
           e->rows, e->cols * s->size);
  c->m->gm_read += e->rows * e->cols * s->size;
}

static bool legal_l1_fill(Core *c, Entry *e) {
  e->rows = e->v[1].rows;
  e->cols = e->v[1].cols;
  return l1_box(c, e, 1);
}

static void touch_l1_fill(Toucher *t, const Entry *e) {
  touch_nz(t, arg_buf(t->core, e->inst, 1), &e->v[1], TOUCH_WRITE);
}

static void exec_l1_fill(Core *c, const Entry *e) {
  const SimBuf *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[1];
  uint8_t one[32];
  scalar_store(d->type, one, scalar_cast(d->type, (DType)e->inst->arg[0].type, e->s[0]));
  for (int x = d->size; x < 32; x++) one[x] = one[x - d->size];
  uint8_t *to = buf_ptr(c, d, v->off + nz_offset(d, v->r0, v->c0));
  for (int64_t k = 0; k < e->cols; k += d->fcol, to += d->prow * 32) {
    size_t n = (size_t)(min_i64(d->fcol, e->cols - k) * d->size);
    for (int64_t r = 0; r < e->rows; r++) memcpy(to + r * 32, one, n);
  }
}

/* ---- out of L0C ----------------------------------------------------------------------------------------- */

static bool fix_dtypes(Core *c, const Entry *e) {
  DType s = arg_buf(c, e->inst, 0)->type, d = arg_buf(c, e->inst, 1)->type;
  if ((s == DT_F32 && (d == DT_F32 || d == DT_F16 || d == DT_BF16)) || (s == DT_I32 && d == DT_I32)) return true;
  return op_refuse(c, e->inst, "pipe fix does not convert between these dtypes");
}

static bool l0c_box(Core *c, const Entry *e) {
  const SimBuf *b = arg_buf(c, e->inst, 0);
  const View *v = &e->v[0];
  if (!op_in_space(c, e->inst, 0, SPACE_L0C)) return false;
  if (!b->fractal || b->layout != LAYOUT_NZ) return op_refuse(c, e->inst, "the accumulator must have layout nz");
  return !op_misaligned(c, e->inst, 0, "the first row", v->r0, 16) &&
         !op_misaligned(c, e->inst, 0, "the first column", v->c0, 16) && fix_dtypes(c, e);
}

static bool legal_l0c_to_gm(Core *c, Entry *e) {
  const SimBuf *d = arg_buf(c, e->inst, 1);
  if (!op_in_space(c, e->inst, 1, SPACE_GM) || !l0c_box(c, e)) return false;
  e->rows = e->v[0].rows;
  e->cols = e->v[0].cols;
  if (!fit_rows(&e->v[1], d, e->rows, e->cols, &e->pitch[1]))
    return op_refuse(c, e->inst, "the two sides do not have the same rows and columns");
  return true;
}

static void touch_l0c_to_gm(Toucher *t, const Entry *e) {
  const SimBuf *d = arg_buf(t->core, e->inst, 1);
  touch_nz(t, arg_buf(t->core, e->inst, 0), &e->v[0], TOUCH_READ);
  touch(t, d, e->inst->atomic ? TOUCH_ATOMIC : TOUCH_WRITE, e->v[1].off, e->cols * d->size, e->rows, e->pitch[1]);
}

/* Up to 16 elements of one accumulator row, as they leave the chip. */
static void fix_piece(const Core *c, const Inst *i, uint8_t *d, DType t, const uint8_t *s, int64_t n) {
  float f[16];
  if (t == DT_I32 || (t == DT_F32 && !i->relu && !i->atomic)) {
    if (i->relu || i->atomic) {
      int32_t v[16];
      memcpy(v, s, (size_t)n * 4);
      for (int64_t k = 0; k < n; k++) v[k] = i->relu && v[k] < 0 ? 0 : v[k];
      if (i->atomic) c->m->sim->host->vec[OP_ADD][VT_I32](d, d, v, n, false);
      else memcpy(d, v, (size_t)n * 4);
    } else {
      memcpy(d, s, (size_t)n * 4);
    }
    return;
  }
  uint8_t out[64];
  memcpy(f, s, (size_t)n * 4);
  for (int64_t k = 0; k < n; k++) f[k] = i->relu && f[k] < 0 ? 0 : f[k];
  VecType v = vec_type(t);
  if (v == VT_F32) memcpy(out, f, (size_t)n * 4);
  else c->m->sim->host->from_f32[v](out, f, n);
  if (i->atomic) c->m->sim->host->vec[OP_ADD][v](d, d, out, n, false);
  else memcpy(d, out, (size_t)(n * dtype_size(t)));
}

static void exec_l0c_to_gm(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[0];
  for (int64_t r = 0; r < e->rows; r++) {
    uint8_t *to = buf_ptr(c, d, e->v[1].off + r * e->pitch[1]);
    for (int64_t k = 0; k < e->cols;) {
      int64_t in = (v->c0 + k) % 16, n = min_i64(16 - in, e->cols - k);
      fix_piece(c, e->inst, to + k * d->size, d->type, buf_ptr(c, s, v->off + nz_offset(s, v->r0 + r, v->c0 + k)), n);
      k += n;
    }
  }
  c->m->gm_write += e->rows * e->cols * d->size;
}

static bool legal_l0c_to_l1(Core *c, Entry *e) {
  const SimBuf *d = arg_buf(c, e->inst, 1);
  if (!op_in_space(c, e->inst, 1, SPACE_L1) || !l0c_box(c, e)) return false;
  if (!d->fractal || d->layout != LAYOUT_NZ) return op_refuse(c, e->inst, "the L1 operand must have layout nz");
  if (e->v[0].rows != e->v[1].rows || e->v[0].cols != e->v[1].cols)
    return op_refuse(c, e->inst, "the two sides do not have the same rows and columns");
  return !op_misaligned(c, e->inst, 1, "the first row", e->v[1].r0, 16) &&
         !op_misaligned(c, e->inst, 1, "the first column", e->v[1].c0, d->fcol);
}

static void touch_l0c_to_l1(Toucher *t, const Entry *e) {
  touch_nz(t, arg_buf(t->core, e->inst, 0), &e->v[0], TOUCH_READ);
  touch_nz(t, arg_buf(t->core, e->inst, 1), &e->v[1], TOUCH_WRITE);
}

static void exec_l0c_to_l1(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  const View *v = &e->v[0], *w = &e->v[1];
  for (int64_t r = 0; r < v->rows; r++)
    for (int64_t k = 0; k < v->cols;) {
      int64_t n = min_i64(16 - (v->c0 + k) % 16, min_i64(d->fcol - (w->c0 + k) % d->fcol, v->cols - k));
      fix_piece(c, e->inst, buf_ptr(c, d, w->off + nz_offset(d, w->r0 + r, w->c0 + k)), d->type,
                buf_ptr(c, s, v->off + nz_offset(s, v->r0 + r, v->c0 + k)), n);
      k += n;
    }
}

const OpImpl *impl_move(StmtOp op) {
  static const OpImpl gm_to_ub = {legal_gm_to_ub, touch_gm_to_ub, exec_gm_to_ub},
                      ub_to_gm = {legal_ub_to_gm, touch_ub_to_gm, exec_ub_to_gm},
                      gm_to_l1 = {legal_gm_to_l1, touch_gm_to_l1, exec_gm_to_l1},
                      l1_fill = {legal_l1_fill, touch_l1_fill, exec_l1_fill},
                      l0c_to_gm = {legal_l0c_to_gm, touch_l0c_to_gm, exec_l0c_to_gm},
                      l0c_to_l1 = {legal_l0c_to_l1, touch_l0c_to_l1, exec_l0c_to_l1};
  switch (op) {
  case OP_GM_TO_UB: return &gm_to_ub;
  case OP_UB_TO_GM: return &ub_to_gm;
  case OP_GM_TO_L1: return &gm_to_l1;
  case OP_L1_FILL: return &l1_fill;
  case OP_L0C_TO_GM: return &l0c_to_gm;
  case OP_L0C_TO_L1: return &l0c_to_l1;
  default: return NULL;
  }
}
