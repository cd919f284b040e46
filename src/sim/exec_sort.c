/* exec_sort.c - pipe V: sorting, and the place of the largest element of a row.
 *
 * A record is 8 bytes: the score first (f32; or f16 and two bytes that hold nothing), a 32-bit index in the upper
 * half. `sort32` makes records and sorts each 32 of them, `merge*` merge lists that are sorted. Larger scores come
 * first, equal ones in the order they had (list by list). -0 and 0 are equal; a NaN counts as larger than all
 * numbers. `row_argmax` and `row_argmin` give the value and, in the bits of the element, its first column. */
#include "machine.h"

#include <math.h>
#include <string.h>

enum { RECORD = 8, GROUP = 32, MAX_LIST = 4095, MAX_LISTS = 4 };

static float score(const uint8_t *p, bool half) {
  float f;
  uint16_t h;
  if (half) {
    memcpy(&h, p, 2);
    return f16_to_f32(h);
  }
  memcpy(&f, p, 4);
  return f;
}

static bool larger(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

static bool score_dtype(Core *c, const Inst *i, DType t) {
  return t == DT_F16 || t == DT_F32 || op_no_dtype(c, i, t);
}

/* All operands are runs in UB; `lists`: inputs start on 8 bytes; nothing overlaps the result. */
static bool legal_runs(Core *c, const Entry *e, bool lists) {
  const Inst *i = e->inst;
  int out = i->n_args - 1;
  int64_t os = entry_start(c, e, out), ob = entry_bytes(c, e, out);
  for (int a = 0; a < i->n_args; a++) {
    if (!i->arg[a].buf) return op_refuse(c, i, "all operands are tiles");
    if (!op_in_space(c, i, a, SPACE_UB)) return false;
    if (!view_flat(&e->v[a])) return op_refuse(c, i, "an operand is not one run of elements");
    if (op_misaligned(c, i, a, "the byte address", entry_start(c, e, a), lists && a != out ? RECORD : 32)) return false;
    int64_t as = entry_start(c, e, a);
    if (a != out && c->m->sim->checks && as < os + ob && os < as + entry_bytes(c, e, a))
      return op_refuse(c, i, "the result overlaps an operand; the instruction does not work in place");
  }
  return true;
}

static void touch_runs(Toucher *t, const Entry *e) {
  int out = e->inst->n_args - 1;
  for (int a = 0; a <= out; a++)
    touch(t, arg_buf(t->core, e->inst, a), a == out ? TOUCH_WRITE : TOUCH_READ, e->v[a].off,
          entry_bytes(t->core, e, a), 1, 0);
}

/* ---- sort32 ----------------------------------------------------------------------------------------------- */

static bool legal_sort32(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!legal_runs(c, e, false)) return false;
  const SimBuf *a = arg_buf(c, i, 0), *b = arg_buf(c, i, 1), *d = arg_buf(c, i, 2);
  if (a->type != d->type) return op_refuse(c, i, "the operands have different dtypes");
  if (b->size != 4 || dtype_is_float(b->type)) return op_refuse(c, i, "the indices must be u32 or i32");
  if (!score_dtype(c, i, a->type)) return false;
  if (e->v[0].count % GROUP) return op_refuse(c, i, "the number of scores must be a multiple of 32");
  if (e->v[1].count != e->v[0].count || entry_bytes(c, e, 2) != e->v[0].count * RECORD)
    return op_refuse(c, i, "there must be an index and 8 bytes of result for each score");
  return true;
}

static void exec_sort32(Core *c, const Entry *e) {
  const uint8_t *s = entry_ptr(c, e, 0), *x = entry_ptr(c, e, 1);
  uint8_t *d = entry_ptr(c, e, 2);
  int64_t size = arg_buf(c, e->inst, 0)->size;
  bool half = size == 2;
  for (int64_t g = 0; g < e->v[0].count; g += GROUP) {
    int order[GROUP];
    float key[GROUP];
    for (int k = 0; k < GROUP; k++) {
      key[k] = score(s + (g + k) * size, half);
      int at = k;
      for (; at > 0 && larger(key[k], key[order[at - 1]]); at--) order[at] = order[at - 1];
      order[at] = k;
    }
    for (int k = 0; k < GROUP; k++) {
      uint8_t record[RECORD] = {0};
      memcpy(record, s + (g + order[k]) * size, (size_t)size);
      memcpy(record + 4, x + (g + order[k]) * 4, 4);
      memcpy(d + (g + k) * RECORD, record, RECORD);
    }
  }
}

/* ---- merge2, merge3, merge4 -------------------------------------------------------------------------------- */

static bool legal_merge(Core *c, Entry *e) {
  const Inst *i = e->inst;
  int out = i->n_args - 1;
  int64_t sum = 0;
  if (!legal_runs(c, e, true) || !score_dtype(c, i, arg_buf(c, i, out)->type)) return false;
  for (int a = 0; a < out; a++) {
    if (arg_buf(c, i, a)->type != arg_buf(c, i, out)->type)
      return op_refuse(c, i, "the operands have different dtypes");
    if (entry_bytes(c, e, a) % RECORD) return op_refuse(c, i, "a list is not whole records of 8 bytes");
    if (op_over_limit(c, i, "the length of a list", entry_bytes(c, e, a) / RECORD, MAX_LIST)) return false;
    sum += e->v[a].count;
  }
  return sum == e->v[out].count || op_refuse(c, i, "the result is not as long as the lists together");
}

static void exec_merge(Core *c, const Entry *e) {
  int n = e->inst->n_args - 1;
  bool half = arg_buf(c, e->inst, n)->size == 2;
  const uint8_t *at[MAX_LISTS], *end[MAX_LISTS];
  uint8_t *d = entry_ptr(c, e, n);
  for (int a = 0; a < n; a++) {
    at[a] = entry_ptr(c, e, a);
    end[a] = at[a] + entry_bytes(c, e, a);
  }
  for (;;) {
    int best = -1;
    for (int a = 0; a < n; a++)
      if (at[a] < end[a] && (best < 0 || larger(score(at[a], half), score(at[best], half)))) best = a;
    if (best < 0) return;
    memmove(d, at[best], RECORD);
    at[best] += RECORD;
    d += RECORD;
  }
}

/* ---- row_argmax, row_argmin -------------------------------------------------------------------------------- */

static bool legal_row_arg(Core *c, Entry *e) {
  const Inst *i = e->inst;
  if (!op_in_space(c, i, 0, SPACE_UB) || !op_in_space(c, i, 1, SPACE_UB)) return false;
  const SimBuf *s = arg_buf(c, i, 0), *d = arg_buf(c, i, 1);
  if (s->type != d->type) return op_refuse(c, i, "the operands have different dtypes");
  if (!score_dtype(c, i, s->type)) return false;
  int64_t n = e->v[1].count;
  if (!view_flat(&e->v[1]) || n % 2) return op_refuse(c, i, "the result must be one row with two elements a row");
  e->rows = n / 2;
  e->cols = e->v[0].count / e->rows;
  if (e->v[0].count % e->rows || !fit_rows(&e->v[0], s, e->rows, e->cols, &e->pitch[0]))
    return op_refuse(c, i, "the source must have one row for each two result elements");
  if (e->cols * s->size > c->m->sim->arch->repeat_bytes)
    return op_refuse(c, i, "a row is longer than one repeat of 256 bytes");
  if (op_misaligned(c, i, 0, "the byte address", entry_start(c, e, 0), 32)) return false;
  if (e->rows > 1 && op_misaligned(c, i, 0, "the distance of rows in bytes", e->pitch[0], 32)) return false;
  int64_t ss = entry_start(c, e, 0), ds = entry_start(c, e, 1);
  int64_t s_end = ss + (e->rows - 1) * e->pitch[0] + e->cols * s->size;
  if (c->m->sim->checks && ss < ds + n * d->size && ds < s_end)
    return op_refuse(c, i, "the result overlaps the source");
  return !op_misaligned(c, i, 1, "the byte address", ds, 2 * d->size);
}

static void touch_row_arg(Toucher *t, const Entry *e) {
  const SimBuf *s = arg_buf(t->core, e->inst, 0), *d = arg_buf(t->core, e->inst, 1);
  touch(t, s, TOUCH_READ, e->v[0].off, e->cols * s->size, e->rows, e->pitch[0]);
  touch(t, d, TOUCH_WRITE, e->v[1].off, 2 * e->rows * d->size, 1, 0);
}

static void exec_row_arg(Core *c, const Entry *e) {
  int64_t size = arg_buf(c, e->inst, 0)->size;
  bool half = size == 2, least = e->inst->op == OP_ROW_ARGMIN;
  for (int64_t r = 0; r < e->rows; r++) {
    const uint8_t *row = entry_ptr(c, e, 0) + r * e->pitch[0];
    uint8_t *d = entry_ptr(c, e, 1) + 2 * r * size;
    uint32_t best = 0;
    for (int64_t k = 1; k < e->cols; k++) {
      float x = score(row + k * size, half), y = score(row + best * size, half);
      if (least ? larger(isnan(x) ? NAN : -x, isnan(y) ? NAN : -y) : larger(x, y)) best = (uint32_t)k;
    }
    uint16_t small = (uint16_t)best;
    memcpy(d, row + best * size, (size_t)size);
    memcpy(d + size, half ? (const void *)&small : (const void *)&best, (size_t)size);
  }
}

const OpImpl *impl_sort(StmtOp op) {
  static const OpImpl sort32 = {legal_sort32, touch_runs, exec_sort32}, merge = {legal_merge, touch_runs, exec_merge},
                      row_arg = {legal_row_arg, touch_row_arg, exec_row_arg};
  switch (op) {
  case OP_SORT32: return &sort32;
  case OP_MERGE2:
  case OP_MERGE3:
  case OP_MERGE4: return &merge;
  case OP_ROW_ARGMAX:
  case OP_ROW_ARGMIN: return &row_arg;
  default: return NULL;
  }
}
