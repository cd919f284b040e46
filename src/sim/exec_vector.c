/* exec_vector.c - pipe V: what vector instructions do to UB.
 *
 * Elementwise instructions run a kernel of the host over each row (one row when all operands are flat). Arithmetic is
 * that of the instruction: f16 computes in f32 and rounds once to f16; integers wrap. Scalars are converted to the
 * tile's dtype first; division by a scalar multiplies by its reciprocal, as the chip must. Row sums add neighbours in a
 * binary tree, rounding at each level, and an f16 sum saturates at 65504 as the vendor describes. Casts from float to
 * integer round by mode and saturate. */
#include "machine.h"

#include <math.h>
#include <string.h>

/* ---- shapes, places, dtypes ----------------------------------------------------------------------------- */

static int out_arg(const Inst *i) { return i->n_args - 1; }
static bool is_region(const Inst *i, int a) { return i->arg[a].buf != 0; }
static int64_t row_bytes(const Core *c, const Entry *e, int a) {
  return e->block[a] ? 32 : e->cols * arg_buf(c, e->inst, a)->size;
}

static bool all_in_ub(Core *c, const Inst *i) {
  for (int a = 0; a < i->n_args; a++) {
    if (!is_region(i, a)) continue;
    if (!op_in_space(c, i, a, SPACE_UB)) return false;
    if (arg_buf(c, i, a)->fractal) return op_refuse(c, i, "vector operands are row-major");
  }
  return is_region(i, out_arg(i)) || op_refuse(c, i, "the result must be a region");
}

static bool aligned(Core *c, const Entry *e, int a) {
  return !op_misaligned(c, e->inst, a, "the byte address", entry_start(c, e, a), 32) &&
         !(e->rows > 1 && op_misaligned(c, e->inst, a, "the distance of rows in bytes", e->pitch[a], 32));
}

/* Do the rows of a and b share bytes without being the same rows? */
static bool rows_overlap(const Core *c, const Entry *e, int a, int64_t alen, int b, int64_t blen) {
  int64_t as = entry_start(c, e, a), bs = entry_start(c, e, b), ap = e->pitch[a], bp = e->pitch[b], rows = e->rows;
  if (as == bs && (rows == 1 || ap == bp) && alen == blen) return false;
  if (as + (rows - 1) * ap + alen <= bs || bs + (rows - 1) * bp + blen <= as) return false;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = as + r * ap, k = bp ? (at - bs) / bp : 0;
    for (int64_t x = max_i64(k - 1, 0); x <= min_i64(k + alen / max_i64(bp, 1) + 1, rows - 1); x++)
      if (at < bs + x * bp + blen && bs + x * bp < at + alen) return true;
  }
  return false;
}

static bool no_overlap(Core *c, const Entry *e, int a, int64_t alen, int64_t out_len) {
  const Inst *i = e->inst;
  int out = out_arg(i);
  if (!c->m->sim->checks || !rows_overlap(c, e, a, alen, out, out_len)) return true;
  if (fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL)) return false;
  Fault *f = fault(
      c, DIAG_SIM_OPERAND, i->stmt, NULL,
      "`%s`: the input from byte %lld and the result from byte %lld of ub overlap without being the same bytes (%s)",
      inst_text(&c->m->arena, c, i->stmt), (long long)entry_start(c, e, a), (long long)entry_start(c, e, out),
      where(&c->m->arena, c));
  if (f) fault_fix(c, f, "write the result over the whole input or into other memory");
  return false;
}

static bool known_dtype(Core *c, const Inst *i, bool has_kernel, DType t) {
  const Sim *s = c->m->sim;
  return (has_kernel && (!s->checks || arch_has_dtype(s->arch, op_info[i->op].dtypes, t))) || op_no_dtype(c, i, t);
}

static bool same_dtypes(Core *c, const Inst *i, int from) {
  for (int a = from; a < i->n_args; a++)
    if (is_region(i, a) && arg_buf(c, i, a)->type != arg_buf(c, i, out_arg(i))->type)
      return op_refuse(c, i, "the operands have different dtypes");
  return true;
}

static bool legal_rows(Core *c, Entry *e, int first_in) {
  const Inst *i = e->inst;
  int out = out_arg(i);
  if (!elementwise_form(c, e, first_in, out - first_in, out)) return false;
  for (int a = first_in; a < i->n_args; a++) {
    if (!is_region(i, a)) continue;
    if (!aligned(c, e, a) || (a != out && !no_overlap(c, e, a, row_bytes(c, e, a), row_bytes(c, e, out)))) return false;
  }
  return true;
}

static bool legal_elementwise(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!all_in_ub(c, i) || !same_dtypes(c, i, 0)) return false;
  VecType v = vec_type(arg_buf(c, i, out_arg(i))->type);
  if (i->op == OP_SHL || i->op == OP_SHR || i->op == OP_AND || i->op == OP_OR || i->op == OP_NOT) {
    if (arg_buf(c, i, out_arg(i))->type == DT_U16) v = VT_U16;
    if (arg_buf(c, i, out_arg(i))->type == DT_U32) v = VT_U32;
  }
  if (!known_dtype(c, i, v != VT_COUNT && c->m->sim->host->vec[i->op][v], arg_buf(c, i, out_arg(i))->type))
    return false;
  if (!is_region(i, 0)) return op_refuse(c, i, "the first input must be a region");
  e->id = v;
  return legal_rows(c, e, 0);
}

static void touch_input(Toucher *t, const Entry *e, int a) {
  const SimBuf *b = arg_buf(t->core, e->inst, a);
  touch(t, b, TOUCH_READ, e->v[a].off, row_bytes(t->core, e, a), e->pitch[a] ? e->rows : 1, e->pitch[a]);
}

static void touch_output(Toucher *t, const Entry *e, TouchKind kind) {
  int out = out_arg(e->inst);
  touch(t, arg_buf(t->core, e->inst, out), kind, e->v[out].off, row_bytes(t->core, e, out), e->rows, e->pitch[out]);
}

static void touch_elementwise(Toucher *t, const Entry *e) {
  const Inst *i = e->inst;
  for (int a = 0; a < out_arg(i); a++)
    if (is_region(i, a)) touch_input(t, e, a);
  if (op_info[i->op].out[0] == 'u') touch_output(t, e, TOUCH_READ);
  touch_output(t, e, TOUCH_WRITE);
}

/* ---- operands of a row ---------------------------------------------------------------------------------- */

typedef union { uint8_t b[256]; uint64_t align; } RowBuf;

/* Row r of an input; a 32-byte block is repeated over the row in `tmp`. */
static const void *row_in(const Core *c, const Entry *e, int a, int64_t r, RowBuf *tmp) {
  const SimBuf *b = arg_buf(c, e->inst, a);
  const uint8_t *p = buf_ptr(c, b, e->v[a].off + r * e->pitch[a]);
  if (!e->block[a]) return p;
  for (int x = 0; x < 256; x += 32) memcpy(tmp->b + x, p, 32);
  return tmp->b;
}

static uint8_t *row_out(const Core *c, const Entry *e, int64_t r) {
  int out = out_arg(e->inst);
  return buf_ptr(c, arg_buf(c, e->inst, out), e->v[out].off + r * e->pitch[out]);
}

static void scalar_as(const Inst *i, const Entry *e, int a, DType t, void *to) {
  scalar_store(t, to, scalar_cast(t, (DType)i->arg[a].type, e->s[a]));
}

/* A row with a repeated block may not be longer than RowBuf; only possible with checks off, where rows are not limited.
 */
static int64_t piece(const Entry *e) {
  for (int a = 0; a < MAX_ARGS; a++)
    if (e->block[a]) return 64;
  return e->cols;
}

/* ---- elementwise ---------------------------------------------------------------------------------------- */

static VecFn kernel_of(const Core *c, const Entry *e, DType t, void *scalar) {
  const Inst *i = e->inst;
  StmtOp op = (StmtOp)i->op;
  if (i->n_in < 2 || is_region(i, 1)) return c->m->sim->host->vec[op][e->id];
  if (op == OP_SHL || op == OP_SHR) {
    int64_t n = e->s[1].i, bits = dtype_info[t].bits;
    n = n < 0 ? bits : n;
    if (n >= bits && op == OP_SHR && dtype_info[t].cls == 'i') n = bits - 1;
    if (n >= bits) return NULL; /* everything is shifted out */
    scalar_store(t, scalar, (Reg){.i = n});
  } else if (op == OP_DIV) {
    Reg r = {.f = 1.0 / scalar_cast(DT_F32, (DType)i->arg[1].type, e->s[1]).f};
    scalar_store(t, scalar, (Reg){.f = float_round(DT_F32, r.f)});
    op = OP_MUL;
  } else {
    scalar_as(i, e, 1, t, scalar);
  }
  return c->m->sim->host->vec[op][e->id];
}

static void exec_elementwise(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  const SimBuf *o = arg_buf(c, i, out_arg(i));
  uint64_t scalar = 0;
  int64_t step = piece(e);
  RowBuf ta, tb;
  VecFn fn = kernel_of(c, e, o->type, &scalar);
  bool b_scalar = i->n_in > 1 && !is_region(i, 1);
  for (int64_t r = 0; r < e->rows; r++) {
    uint8_t *d = row_out(c, e, r);
    if (!fn) {
      memset(d, 0, (size_t)(e->cols * o->size));
      continue;
    }
    const uint8_t *a = row_in(c, e, 0, r, &ta), *b = NULL;
    if (i->n_in > 1) b = b_scalar ? (const uint8_t *)&scalar : row_in(c, e, 1, r, &tb);
    for (int64_t k = 0; k < e->cols; k += step) {
      int64_t at = k * o->size;
      fn(d + at, e->block[0] ? a : a + at, !b || b_scalar || e->block[1] ? b : b + at,
         min_i64(step, e->cols - k), b_scalar);
    }
  }
}

/* ---- fill, arange, move --------------------------------------------------------------------------------- */

static bool legal_fill(Core *c, Entry *e) { return all_in_ub(c, e->inst) && legal_rows(c, e, out_arg(e->inst)); }
static void touch_fill(Toucher *t, const Entry *e) { touch_output(t, e, TOUCH_WRITE); }

static void exec_fill(Core *c, const Entry *e) {
  const SimBuf *d = arg_buf(c, e->inst, 1);
  uint8_t v[8];
  scalar_as(e->inst, e, 0, d->type, v);
  for (int64_t r = 0; r < e->rows; r++) {
    uint8_t *to = row_out(c, e, r);
    int64_t n = e->cols * d->size;
    memcpy(to, v, (size_t)d->size);
    for (int64_t have = d->size; have < n; have *= 2) memcpy(to + have, to, (size_t)min_i64(have, n - have));
  }
}

static void exec_arange(Core *c, const Entry *e) {
  const SimBuf *d = arg_buf(c, e->inst, 2);
  bool is_float = dtype_is_float(d->type);
  Reg first = scalar_cast(d->type, (DType)e->inst->arg[0].type, e->s[0]),
      step = scalar_cast(d->type, (DType)e->inst->arg[1].type, e->s[1]);
  for (int64_t r = 0, n = 0; r < e->rows; r++)
    for (int64_t k = 0; k < e->cols; k++, n++) {
      Reg v = is_float ? (Reg){.f = first.f + (double)n * step.f}
                       : (Reg){.i = (int64_t)((uint64_t)first.i + (uint64_t)n * (uint64_t)step.i)};
      scalar_store(d->type, row_out(c, e, r) + k * d->size, v);
    }
}

static bool legal_move(Core *c, Entry *e) {
  return all_in_ub(c, e->inst) && same_dtypes(c, e->inst, 0) && legal_rows(c, e, 0);
}

static void exec_move(Core *c, const Entry *e) {
  int64_t n = e->cols * arg_buf(c, e->inst, 0)->size;
  RowBuf t;
  for (int64_t r = 0; r < e->rows; r++) {
    const uint8_t *s = row_in(c, e, 0, r, &t);
    uint8_t *d = row_out(c, e, r);
    if (!e->block[0]) memmove(d, s, (size_t)n);
    else
      for (int64_t k = 0; k < n; k += 32) memcpy(d + k, s, (size_t)min_i64(32, n - k));
  }
}

/* ---- cast ----------------------------------------------------------------------------------------------- */

static bool legal_cast(Core *c, Entry *e) {
  if (!all_in_ub(c, e->inst)) return false;
  DType s = arg_buf(c, e->inst, 0)->type, d = arg_buf(c, e->inst, 1)->type;
  if (c->m->sim->checks && !arch_can_cast(c->m->sim->arch, d, s)) {
    if (!fault_known(c, DIAG_SIM_OPERAND, e->inst->stmt, NULL))
      fault(c, DIAG_SIM_OPERAND, e->inst->stmt, NULL, "`%s`: pipe v of %s does not convert %s to %s in one instruction",
            inst_text(&c->m->arena, c, e->inst->stmt), c->m->sim->arch->name, dtype_info[s].name, dtype_info[d].name);
    return false;
  }
  return legal_rows(c, e, 0);
}

static void cast_row(const Core *c, uint8_t *d, DType dt, const uint8_t *s, DType st, int64_t n, CastMode mode) {
  const HostKernels *h = c->m->sim->host;
  VecType sv = vec_type(st), dv = vec_type(dt);
  bool nearest = mode == CAST_NONE || mode == CAST_RINT;
  if (dt == DT_F32 && (st == DT_F16 || st == DT_BF16)) h->to_f32[sv]((float *)(void *)d, s, n);
  else if (st == DT_F32 && (dt == DT_F16 || dt == DT_BF16) && nearest)
    h->from_f32[dv](d, (const float *)(const void *)s, n);
  else convert(d, dt, s, st, n, mode);
}

static void exec_cast(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  int64_t step = e->block[0] ? 32 / s->size : e->cols;
  RowBuf t;
  for (int64_t r = 0; r < e->rows; r++) {
    const uint8_t *from = row_in(c, e, 0, r, &t);
    uint8_t *to = row_out(c, e, r);
    for (int64_t k = 0; k < e->cols; k += step)
      cast_row(c, to + k * d->size, d->type, e->block[0] ? from : from + k * s->size, s->type,
               min_i64(step, e->cols - k), (CastMode)e->inst->cast);
  }
}

/* ---- compare and select --------------------------------------------------------------------------------- */

/* Bits in the mask of a row; a repeated mask has those of one repeat. */
static int64_t mask_bits(const Core *c, const Entry *e, int64_t size) {
  return e->inst->maskrep ? min_i64(e->cols, c->m->sim->arch->repeat_bytes / size) : e->cols;
}

static bool fit_mask(Core *c, Entry *e, int a, int64_t bits) {
  const View *v = &e->v[a];
  const SimBuf *b = arg_buf(c, e->inst, a);
  int64_t bytes = ceil_div(bits, 8);
  if (b->type != DT_U8) return op_refuse(c, e->inst, "the mask must be u8");
  e->pitch[a] = 0;
  if ((e->rows == 1 || e->inst->maskrep) && view_flat(v) && v->count >= bytes) return true;
  if (bits % 8 == 0 && fit_rows(v, b, e->rows, bytes, &e->pitch[a])) return true;
  if (a == 0 && v->rows == 1 && v->cols >= bytes) { /* an input of one row serves all rows */
    e->pitch[a] = 0;
    return true;
  }
  return op_refuse(c, e->inst, "the mask does not have one bit for each element");
}

static bool legal_compare(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!all_in_ub(c, i)) return false;
  if (!is_region(i, 0)) return op_refuse(c, i, "the first input must be a region");
  const SimBuf *a = arg_buf(c, i, 0);
  if (is_region(i, 1) && arg_buf(c, i, 1)->type != a->type)
    return op_refuse(c, i, "the operands have different dtypes");
  VecType v = vec_type(a->type);
  if (!known_dtype(c, i, v != VT_COUNT && c->m->sim->host->compare[v], a->type)) return false;
  if (!elementwise_form(c, e, 1, 1, 0) || !fit_mask(c, e, 2, e->cols)) return false;
  e->id = v;
  if (!aligned(c, e, 0) || (is_region(i, 1) && !aligned(c, e, 1))) return false;
  if (op_misaligned(c, i, 2, "the byte address", entry_start(c, e, 2), 32)) return false;
  for (int x = 0; x < 2; x++)
    if (is_region(i, x) && !no_overlap(c, e, x, row_bytes(c, e, x), ceil_div(e->cols, 8))) return false;
  return true;
}

static void touch_compare(Toucher *t, const Entry *e) {
  touch_input(t, e, 0);
  if (is_region(e->inst, 1)) touch_input(t, e, 1);
  touch(t, arg_buf(t->core, e->inst, 2), TOUCH_WRITE, e->v[2].off, ceil_div(e->cols, 8), e->rows, e->pitch[2]);
}

static void exec_compare(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  const SimBuf *a = arg_buf(c, i, 0);
  int64_t step = piece(e);
  uint64_t scalar = 0;
  bool b_scalar = !is_region(i, 1);
  RowBuf ta, tb;
  if (b_scalar) scalar_as(i, e, 1, a->type, &scalar);
  for (int64_t r = 0; r < e->rows; r++) {
    const uint8_t *x = row_in(c, e, 0, r, &ta), *y = b_scalar ? (const uint8_t *)&scalar : row_in(c, e, 1, r, &tb);
    for (int64_t k = 0; k < e->cols; k += step)
      c->m->sim->host->compare[e->id](row_out(c, e, r) + k / 8, e->block[0] ? x : x + k * a->size,
                                      b_scalar || e->block[1] ? y : y + k * a->size,
                                      min_i64(step, e->cols - k), b_scalar, (CmpMode)i->cmp);
  }
}

static bool legal_select(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!all_in_ub(c, i) || !same_dtypes(c, i, 1)) return false;
  DType t = arg_buf(c, i, 3)->type;
  if (!known_dtype(c, i, dtype_size(t) == 2 || dtype_size(t) == 4, t)) return false;
  if (!is_region(i, 0)) return op_refuse(c, i, "the mask must be a region");
  if (!legal_rows(c, e, 1) || !fit_mask(c, e, 0, mask_bits(c, e, dtype_size(t)))) return false;
  return !op_misaligned(c, i, 0, "the byte address", entry_start(c, e, 0), 32);
}

static void touch_select(Toucher *t, const Entry *e) {
  int64_t bytes = ceil_div(mask_bits(t->core, e, arg_buf(t->core, e->inst, 3)->size), 8);
  touch(t, arg_buf(t->core, e->inst, 0), TOUCH_READ, e->v[0].off, bytes, e->pitch[0] ? e->rows : 1, e->pitch[0]);
  for (int a = 1; a < 3; a++)
    if (is_region(e->inst, a)) touch_input(t, e, a);
  touch_output(t, e, TOUCH_WRITE);
}

static void exec_select(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  const SimBuf *d = arg_buf(c, i, 3);
  int64_t size = d->size, bits = mask_bits(c, e, size), wrap[2] = {INT64_MAX, INT64_MAX};
  uint64_t scalar[2] = {0, 0};
  for (int a = 0; a < 2; a++) {
    if (!is_region(i, a + 1)) scalar_as(i, e, a + 1, d->type, &scalar[a]);
    wrap[a] = !is_region(i, a + 1) ? 1 : e->block[a + 1] ? 32 / size : INT64_MAX;
  }
  for (int64_t r = 0; r < e->rows; r++) {
    const uint8_t *mask = buf_ptr(c, arg_buf(c, i, 0), e->v[0].off + r * e->pitch[0]), *in[2];
    uint8_t *to = row_out(c, e, r);
    for (int a = 0; a < 2; a++)
      in[a] = is_region(i, a + 1) ? buf_ptr(c, arg_buf(c, i, a + 1), e->v[a + 1].off + r * e->pitch[a + 1])
                                  : (const uint8_t *)&scalar[a];
    for (int64_t k = 0, bit = 0; k < e->cols; k++, bit = bit + 1 == bits ? 0 : bit + 1) {
      int a = mask[bit / 8] >> bit % 8 & 1 ? 0 : 1;
      memcpy(to + k * size, in[a] + (wrap[a] == INT64_MAX ? k : k % wrap[a]) * size, (size_t)size);
    }
  }
}

/* ---- across elements ------------------------------------------------------------------------------------ */

static bool legal_brcb(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!all_in_ub(c, i) || !same_dtypes(c, i, 0)) return false;
  const SimBuf *d = arg_buf(c, i, 1);
  int64_t n = e->v[0].count;
  if (!view_flat(&e->v[0])) return op_refuse(c, i, "the source must be one row");
  if (!fit_rows(&e->v[1], d, n, 32 / d->size, &e->pitch[1]))
    return op_refuse(c, i, "the result must have one 32-byte block for each source element");
  e->rows = n;
  e->cols = 32 / d->size;
  memset(e->block, 0, sizeof e->block);
  e->pitch[0] = d->size;
  if (c->m->sim->checks && n % 8) return op_refuse(c, i, "the number of source elements must be a multiple of 8");
  return !op_misaligned(c, i, 0, "the byte address", entry_start(c, e, 0), 32) && aligned(c, e, 1) &&
         no_overlap(c, e, 0, d->size, 32);
}

static void touch_brcb(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0);
  touch(t, s, TOUCH_READ, e->v[0].off, e->rows * s->size, 1, 0);
  touch_output(t, e, TOUCH_WRITE);
}

static void exec_brcb(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0);
  const uint8_t *from = buf_ptr(c, s, e->v[0].off);
  for (int64_t r = 0; r < e->rows; r++)
    for (int64_t k = 0; k < e->cols; k++) memcpy(row_out(c, e, r) + k * s->size, from + r * s->size, (size_t)s->size);
}

static bool legal_reduce(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!all_in_ub(c, i) || !same_dtypes(c, i, 0)) return false;
  const SimBuf *s = arg_buf(c, i, 0), *d = arg_buf(c, i, 1);
  if (!known_dtype(c, i, s->type == DT_F32 || s->type == DT_F16, s->type)) return false;
  int64_t n = e->v[1].count;
  e->rows = n;
  e->cols = e->v[0].count / n;
  memset(e->block, 0, sizeof e->block);
  e->pitch[1] = d->size;
  if (!view_flat(&e->v[1])) return op_refuse(c, i, "the result must be one row");
  if (e->v[0].count % n || !fit_rows(&e->v[0], s, n, e->cols, &e->pitch[0]))
    return op_refuse(c, i, "the source must have one row for each result element");
  if (e->cols * s->size > c->m->sim->arch->repeat_bytes)
    return op_refuse(c, i, "a row is longer than one repeat of 256 bytes");
  return aligned(c, e, 0) && !op_misaligned(c, i, 1, "the byte address", entry_start(c, e, 1), d->size) &&
         no_overlap(c, e, 0, e->cols * s->size, d->size);
}

static void touch_reduce(Toucher *t, const Entry *e) {
  touch_input(t, e, 0);
  const SimBuf *d = arg_buf(t->core, e->inst, 1);
  touch(t, d, TOUCH_WRITE, e->v[1].off, e->rows * d->size, 1, 0);
}

static float sum_step(float a, float b, bool half) {
  float s = a + b;
  if (!half) return s;
  float h = f16_to_f32(f32_to_f16(s));
  if (isinf(h) && !isinf(a) && !isinf(b)) h = copysignf(65504.0f, h);
  return h;
}

static float reduce_row(StmtOp op, float *x, int64_t n, bool half) {
  if (op == OP_ROW_SUM) {
    for (; n > 1; n = (n + 1) / 2)
      for (int64_t k = 0; k < n / 2 + n % 2; k++)
        x[k] = 2 * k + 1 < n ? sum_step(x[2 * k], x[2 * k + 1], half) : x[2 * k];
    return x[0];
  }
  float r = x[0];
  for (int64_t k = 1; k < n; k++) {
    if (isnan(r)) break;
    if (isnan(x[k]) || (op == OP_ROW_MAX ? x[k] > r : x[k] < r)) r = x[k];
  }
  return r;
}

static void exec_reduce(Core *c, const Entry *e) {
  const SimBuf *s = arg_buf(c, e->inst, 0), *d = arg_buf(c, e->inst, 1);
  float x[256];
  for (int64_t r = 0; r < e->rows; r++) {
    c->m->sim->host->to_f32[vec_type(s->type)](x, buf_ptr(c, s, e->v[0].off + r * e->pitch[0]), e->cols);
    scalar_store(d->type, buf_ptr(c, d, e->v[1].off + r * d->size),
                 (Reg){.f = reduce_row((StmtOp)e->inst->op, x, e->cols, s->type == DT_F16)});
  }
}

const OpImpl *impl_vector(StmtOp op) {
  static const OpImpl elementwise = {legal_elementwise, touch_elementwise, exec_elementwise},
                      fill = {legal_fill, touch_fill, exec_fill}, arange = {legal_fill, touch_fill, exec_arange},
                      move = {legal_move, touch_elementwise, exec_move},
                      cast = {legal_cast, touch_elementwise, exec_cast},
                      compare = {legal_compare, touch_compare, exec_compare},
                      select = {legal_select, touch_select, exec_select}, brcb = {legal_brcb, touch_brcb, exec_brcb},
                      reduce = {legal_reduce, touch_reduce, exec_reduce};
  switch (op) {
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_DIV:
  case OP_MAX:
  case OP_MIN:
  case OP_AND:
  case OP_OR:
  case OP_NOT:
  case OP_SHL:
  case OP_SHR:
  case OP_AXPY:
  case OP_MULADD:
  case OP_LEAKY:
  case OP_ABS:
  case OP_EXP:
  case OP_LN:
  case OP_SQRT:
  case OP_RSQRT:
  case OP_RECIP:
  case OP_RELU: return &elementwise;
  case OP_FILL: return &fill;
  case OP_ARANGE: return &arange;
  case OP_MOVE: return &move;
  case OP_CAST: return &cast;
  case OP_COMPARE: return &compare;
  case OP_SELECT: return &select;
  case OP_BRCB: return &brcb;
  case OP_ROW_SUM: case OP_ROW_MAX: case OP_ROW_MIN: return &reduce;
  default: return NULL;
  }
}
