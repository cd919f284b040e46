/* vec.c - the one reading of a vector instruction's operands as rows x cols (docs/ir.md, lowered level).
 *
 * Flat comes first: every operand is one contiguous run of the same length. Otherwise the destination's dimensions of
 * extent other than 1 are the iteration space; an input has all of them, or only the last ones (it repeats over the
 * others), and its last extent may be C0 where the destination has another one (a block that serves the whole row).
 * Neighbouring dimensions that are contiguous in every operand become one; at most two may remain. */
#include "ir.h"

#include <string.h>

typedef struct { int n; IrExpr *ext[IR_MAX_RANK + 1]; int64_t stride[IR_MAX_RANK + 1]; } Dims;

static bool same(IrKernel *k, IrExpr *a, IrExpr *b) {
  int64_t diff;
  return ir_expr_equal(a, b) || (ir_const_diff(k, a, b, &diff) && diff == 0);
}

/* Dimensions of extent other than 1, outermost first; false: a stride is not constant. */
static bool kept_dims(const IrRegion *r, Dims *out) {
  int64_t stride[IR_MAX_RANK], s = 1;
  for (int d = r->buf->rank - 1; d >= 0; d--) {
    stride[d] = s;
    if (d > 0 && !ir_is_const(r->buf->shape[d])) return false;
    if (d > 0) s *= r->buf->shape[d]->i;
  }
  out->n = 0;
  for (int d = 0; d < r->buf->rank; d++) {
    if (ir_is_int(r->ext[d], 1)) continue;
    out->ext[out->n] = r->ext[d];
    out->stride[out->n++] = stride[d];
  }
  return true;
}

static IrExpr *offset_of(IrKernel *k, const IrRegion *r) {
  IrRows rows;
  IrRegion one = *r;
  for (int d = 0; d < r->buf->rank; d++) one.ext[d] = ir_i32(k, 1);
  return ir_rows(k, &one, &rows) ? rows.off : NULL;
}

static bool is_mask(const IrStmt *s, int arg) {
  return (s->op == OP_COMPARE && arg == s->n_args - 1) || (s->op == OP_SELECT && arg == 0);
}

/* All data operands one run of the same length. */
static bool try_flat(IrKernel *k, const IrStmt *s, IrVec *v) {
  IrExpr *count = NULL;
  for (int i = s->n_args - 1; i >= 0; i--) {
    IrRows r;
    if (s->args[i].kind != ARG_REGION || is_mask(s, i)) continue;
    if (!ir_rows(k, &s->args[i].region, &r) || !ir_is_int(r.rows, 1)) return false;
    if (count && !same(k, count, r.cols)) return false;
    if (!count) count = r.cols;
  }
  if (!count) return false;
  v->rows = ir_i32(k, 1);
  v->cols = count;
  return true;
}

/* Strides of one input over the destination's dimensions; 0: repeats. false: the shapes do not fit. */
static bool fit(IrKernel *k, const Dims *dst, bool has_unit, const IrRegion *r, int64_t *stride, bool *block) {
  Dims in;
  if (!kept_dims(r, &in)) return false;
  int n = has_unit ? dst->n - 1 : dst->n, lead = n - in.n, c0 = dtype_c0(r->buf->type);
  *block = false;
  if (has_unit && in.n == dst->n && ir_is_int(in.ext[in.n - 1], c0)) {
    lead = 0;
    n = dst->n;
  }
  if (lead < 0) return false;
  for (int d = 0; d < dst->n; d++) stride[d] = d < lead ? 0 : d < n ? in.stride[d - lead] : 1;
  for (int d = lead; d < n; d++) {
    if (same(k, in.ext[d - lead], dst->ext[d])) continue;
    if (d != dst->n - 1 || !ir_is_int(in.ext[d - lead], c0) || dst->n < 2) return false;
    *block = true;
  }
  return true;
}

static bool is_row_arg(const IrStmt *s) { return s->op == OP_ROW_ARGMAX || s->op == OP_ROW_ARGMIN; }

static bool row_reduce(IrKernel *k, const IrStmt *s, IrVec *v) {
  Dims in;
  IrExpr *rows = ir_count(k, &s->args[1].region);
  if (is_row_arg(s)) rows = ir_binary(k, EX_FDIV, rows, ir_i32(k, 2));
  if (!kept_dims(&s->args[0].region, &in)) return false;
  if (!in.n || in.stride[in.n - 1] != 1) {
    in.ext[in.n] = ir_i32(k, 1);
    in.stride[in.n++] = 1;
  }
  int split = in.n - 1; /* dims [split, n) are the columns */
  IrExpr *cols = in.ext[split], *outer = ir_i32(k, 1);
  for (int d = 0; d < split; d++) outer = ir_binary(k, EX_MUL, outer, in.ext[d]);
  while (split > 0 && !same(k, outer, rows)) {
    if (!ir_is_const(in.ext[split]) || in.stride[split - 1] != in.stride[split] * in.ext[split]->i) return false;
    cols = ir_binary(k, EX_MUL, in.ext[--split], cols);
    outer = ir_i32(k, 1);
    for (int d = 0; d < split; d++) outer = ir_binary(k, EX_MUL, outer, in.ext[d]);
  }
  if (!same(k, outer, rows)) return false;
  for (int d = split - 1; d > 0; d--)
    if (!ir_is_const(in.ext[d]) || in.stride[d - 1] != in.stride[d] * in.ext[d]->i) return false;
  v->rows = rows;
  v->cols = cols;
  v->arg[0].pitch = split ? in.stride[split - 1] : 0;
  v->arg[1].pitch = is_row_arg(s) ? 2 : 1;
  return true;
}

static bool brcb(IrKernel *k, const IrStmt *s, IrVec *v) {
  IrRows src, dst;
  if (!ir_rows(k, &s->args[0].region, &src) || !ir_is_int(src.rows, 1)) return false;
  if (!ir_rows(k, &s->args[1].region, &dst) || !ir_is_int(dst.rows, 1)) return false;
  int c0 = dtype_c0(s->args[0].region.buf->type);
  if (!same(k, dst.cols, ir_binary(k, EX_MUL, src.cols, ir_i32(k, c0)))) return false;
  v->rows = src.cols;
  v->cols = ir_i32(k, c0);
  v->arg[0].pitch = 1;
  v->arg[1].pitch = c0;
  return true;
}

static bool mergeable(const Dims *dst, int d, int n_args, int64_t stride[][IR_MAX_RANK + 1], const IrVec *v) {
  if (!ir_is_const(dst->ext[d + 1])) return false;
  for (int i = 0; i < n_args; i++) {
    if (!v->arg[i].off) continue;
    if (v->arg[i].block && d + 1 == dst->n - 1) return false;
    if (stride[i][d] != stride[i][d + 1] * dst->ext[d + 1]->i) return false;
  }
  return true;
}

bool ir_vec(IrKernel *k, const IrStmt *s, IrVec *v) {
  memset(v, 0, sizeof *v);
  if (!ir_is_op(s) || s->n_args < 1 || s->n_args > IR_VEC_ARGS) return false;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION && !(v->arg[i].off = offset_of(k, &s->args[i].region))) return false;
  if (s->op == OP_ROW_SUM || s->op == OP_ROW_MAX || s->op == OP_ROW_MIN || is_row_arg(s)) return row_reduce(k, s, v);
  if (s->op == OP_BRCB) return brcb(k, s, v);
  if (try_flat(k, s, v)) return true;
  if (s->op == OP_COMPARE || s->op == OP_SELECT) return false;

  Dims dst;
  int64_t stride[IR_VEC_ARGS][IR_MAX_RANK + 1];
  int last = s->n_args - 1;
  if (!kept_dims(&s->args[last].region, &dst)) return false;
  bool has_unit = !dst.n || dst.stride[dst.n - 1] != 1;
  if (has_unit) {
    dst.ext[dst.n] = ir_i32(k, 1);
    dst.stride[dst.n++] = 1;
  }
  memcpy(stride[last], dst.stride, sizeof dst.stride);
  for (int i = 0; i < last; i++)
    if (v->arg[i].off && !fit(k, &dst, has_unit, &s->args[i].region, stride[i], &v->arg[i].block)) return false;
  int from = dst.n - 1; /* columns are dims [from, n) */
  while (from > 0 && mergeable(&dst, from - 1, s->n_args, stride, v)) from--;
  v->cols = v->rows = ir_i32(k, 1);
  for (int d = from; d < dst.n; d++) v->cols = ir_binary(k, EX_MUL, v->cols, dst.ext[d]);
  for (int d = 0; d < from; d++) v->rows = ir_binary(k, EX_MUL, v->rows, dst.ext[d]);
  for (int d = from - 2; d >= 0; d--)
    if (!mergeable(&dst, d, s->n_args, stride, v)) return false;
  for (int i = 0; i <= last; i++) {
    if (!v->arg[i].off) continue;
    if (!v->arg[i].block && stride[i][dst.n - 1] != 1) return false;
    v->arg[i].pitch = from ? stride[i][from - 1] : 0;
  }
  return true;
}
