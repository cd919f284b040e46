/* legalize_reduce.c - sums, maxima and minima over one axis.
 *
 * Last axis: wide rows are folded by elementwise ops over 256-byte column chunks into one chunk a row, which row_sum,
 * row_max or row_min then reduces. A single long row is folded in halves and its partial results again. Another axis:
 * the tile is folded in halves (or row by row) with elementwise ops. Tails are exact; an extent known only at run time
 * is padded with the neutral element.
 *
 * f16 and bf16 sums run in f32. Small ints are exact in f32; i32 goes through two halves of 16 bits, for the maximum
 * with the high half deciding: x = h * 65536 + l; with H = max h the wanted low half is max(l + (h - H) * 65536). */
#include "legalize.h"

#include <math.h>
#include <string.h>

typedef struct { StmtOp fold, row; double neutral; } Kind;

static Kind kind_of(StmtOp op) {
  if (op == OP_REDUCE_SUM) return (Kind){OP_ADD, OP_ROW_SUM, 0};
  if (op == OP_REDUCE_MAX) return (Kind){OP_MAX, OP_ROW_MAX, -INFINITY};
  return (Kind){OP_MIN, OP_ROW_MIN, INFINITY};
}

/* o restricted to [off, off + ext) of dim d of n; ext NULL: the one index off, and d goes. */
static Opd part(Lg *g, const Nest *n, Opd o, int d, IrExpr *off, IrExpr *ext) {
  Nest m = *n;
  lg_narrow(g, &m, &o, 1, d, off, ext);
  return o;
}

static Opd slice(Lg *g, const Nest *n, Opd o, int d, int64_t off, int64_t ext) {
  return part(g, n, o, d, ir_i32(g->k, off), ir_i32(g->k, ext));
}

static Nest resized(Lg *g, const Nest *n, int d, int64_t ext) {
  Nest m = *n;
  m.ext[d] = ir_i32(g->k, ext);
  m.max[d] = ext;
  return m;
}

static Nest without(const Nest *n, int d) {
  Nest m = *n;
  memmove(&m.ext[d], &m.ext[d + 1], sizeof(m.ext[0]) * (size_t)(n->n - d - 1));
  memmove(&m.max[d], &m.max[d + 1], sizeof(m.max[0]) * (size_t)(n->n - d - 1));
  m.n--;
  return m;
}

/* ---- last axis ------------------------------------------------------------------------------------------------- */

/* The last dimension of n, known only at run time, padded with the neutral element. */
static Opd padded(Lg *g, Nest *n, Kind kind, Opd src) {
  int d = n->n - 1;
  DType t = opd_type(&src);
  Nest full = resized(g, n, d, round_up(n->max[d], dtype_c0(t)));
  Opd whole = lg_temp(g, &full, t);
  int64_t whole_neutral = kind.row == OP_ROW_SUM ? 0 : kind.row == OP_ROW_MAX ? INT32_MIN : INT32_MAX; /* i32 */
  IrExpr *zero = dtype_is_float(t) ? ir_float(g->k, t, kind.neutral) : ir_int(g->k, t, whole_neutral);
  lg_emit2(g, &full, OP_FILL, lg_scalar(zero), whole);
  Opd window = whole;
  window.r.ext[window.dim[d]] = n->ext[d];
  lg_emit2(g, n, OP_MOVE, src, window);
  *n = full;
  return whole;
}

/* One contiguous run of n->ext[0] (constant) elements to one element. */
static void reduce_run(Lg *g, const Nest *n, Kind kind, Opd src, Opd dst) {
  DType t = opd_type(&src);
  int64_t e = g->p->arch->repeat_bytes / dtype_size(t), count = n->ext[0]->i;
  if (count <= e) {
    lg_put(g, kind.row, (Opd[]){src, dst}, 2, NO_ATTR, 0);
    return;
  }
  int64_t lines = count / e, tail = count % e, half = max_i64(lines / 2, 1);
  Nest acc_n, line_n = {.n = 1, .ext = {ir_i32(g->k, e)}, .max = {e}, .flat = true};
  Opd acc = lg_temp1(g, t, half * e, &acc_n), first = slice(g, &acc_n, acc, 0, 0, e);
  Opd low = slice(g, n, src, 0, 0, half * e);
  if (lines == 1) lg_put(g, OP_MOVE, (Opd[]){low, acc}, 2, NO_ATTR, 0);
  else lg_put(g, kind.fold, (Opd[]){low, slice(g, n, src, 0, half * e, half * e), acc}, 3, NO_ATTR, 0);
  if (lines > 1 && lines % 2) lg_emit3(g, &line_n, kind.fold, first, slice(g, n, src, 0, (lines - 1) * e, e), first);
  if (tail) {
    Nest tail_n = resized(g, &line_n, 0, tail);
    Opd head = slice(g, &line_n, first, 0, 0, tail);
    lg_emit3(g, &tail_n, kind.fold, head, slice(g, n, src, 0, lines * e, tail), head);
  }
  if (half == 1) {
    lg_put(g, kind.row, (Opd[]){acc, dst}, 2, NO_ATTR, 0);
    return;
  }
  Nest next_n;
  Opd next = lg_temp1(g, t, half, &next_n);
  Opd rows = {.r = ir_whole(g->k, lg_view(g, acc.r.buf, t, 2, (int64_t[]){half, e}))};
  lg_put(g, kind.row, (Opd[]){rows, next}, 2, NO_ATTR, 0);
  reduce_run(g, &next_n, kind, next, dst);
}

/* The columns of every row folded to at most `e`; n becomes the nest of the result. */
static Opd fold_columns(Lg *g, Nest *n, Kind kind, Opd src, int64_t e) {
  int d = n->n - 1;
  int64_t count = n->ext[d]->i, full = count / e, tail = count % e;
  if (count <= e) return src;
  Nest m = resized(g, n, d, e);
  Opd acc = lg_temp(g, &m, opd_type(&src));
  if (full == 1) lg_emit2(g, &m, OP_MOVE, slice(g, n, src, d, 0, e), acc);
  else lg_emit3(g, &m, kind.fold, slice(g, n, src, d, 0, e), slice(g, n, src, d, e, e), acc);
  if (full > 3) {
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "chunk", ir_i32(g->k, full - 2), &saved)), *step = ir_i32(g->k, e);
    IrExpr *off = ir_binary(g->k, EX_ADD, ir_binary(g->k, EX_MUL, v, step), ir_i32(g->k, 2 * e));
    lg_emit3(g, &m, kind.fold, acc, part(g, n, src, d, off, step), acc);
    g->out = saved;
  } else if (full == 3) {
    lg_emit3(g, &m, kind.fold, acc, slice(g, n, src, d, 2 * e, e), acc);
  }
  if (tail) {
    Nest t = resized(g, &m, d, tail);
    Opd head = slice(g, &m, acc, d, 0, tail);
    lg_emit3(g, &t, kind.fold, head, slice(g, n, src, d, full * e, tail), head);
  }
  *n = m;
  return acc;
}

static bool one_row_group(const Nest *n, const Opd *src, const Opd *dst) {
  for (int d = 0; d + 2 < n->n; d++) {
    if (!ir_is_const(n->ext[d + 1])) return false;
    int64_t a = 1, b = 1, c = 1, e = 1;
    const IrBuf *s = src->r.buf, *t = dst->r.buf;
    for (int i = src->dim[d] + 1; i < s->rank; i++) a *= s->shape[i]->i;
    for (int i = src->dim[d + 1] + 1; i < s->rank; i++) b *= s->shape[i]->i;
    for (int i = dst->dim[d] + 1; i < t->rank; i++) c *= t->shape[i]->i;
    for (int i = dst->dim[d + 1] + 1; i < t->rank; i++) e *= t->shape[i]->i;
    if (a != b * n->ext[d + 1]->i || c != e * n->ext[d + 1]->i) return false;
  }
  return true;
}

/* f16 or f32 tile in order, last dimension constant, to dst over the other dimensions (contiguous, any element
 * start). */
static void reduce_rows(Lg *g, Nest n, Kind kind, Opd src, Opd dst) {
  DType t = opd_type(&src);
  int64_t e = g->p->arch->repeat_bytes / dtype_size(t), rows = 1, chunks = ceil_div(n.max[n.n - 1], e);
  bool fixed = true;
  for (int d = 0; d + 1 < n.n; d++) {
    rows *= n.max[d];
    fixed &= ir_is_const(n.ext[d]);
  }
  if (n.n == 1) {
    reduce_run(g, &n, kind, src, dst);
    return;
  }
  bool few = fixed && chunks > 1 && rows * 5 < chunks;
  if (few || !one_row_group(&n, &src, &dst)) {
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "row", n.ext[0], &saved));
    Opd s = part(g, &n, src, 0, v, NULL), o = part(g, &n, dst, 0, v, NULL);
    reduce_rows(g, without(&n, 0), kind, s, o);
    g->out = saved;
    return;
  }
  if (chunks <= 1 && lg_is_far(&n, &src)) { /* one instruction cannot step from row to row */
    Opd near = lg_temp(g, &n, t);
    lg_emit2(g, &n, OP_MOVE, src, near);
    src = near;
  }
  src = fold_columns(g, &n, kind, src, e);
  lg_put(g, kind.row, (Opd[]){src, dst}, 2, NO_ATTR, 0);
}

/* i32 rows (constant last dimension) to a new i32 tile over the other dimensions. */
static Opd reduce_rows_i32(Lg *g, Nest n, const Nest *rows_n, Kind kind, Opd src) {
  Opd hi, lo, h = lg_temp(g, rows_n, DT_F32), l = lg_temp(g, rows_n, DT_F32), out = lg_temp(g, rows_n, DT_I32);
  src = fold_columns(g, &n, kind, src, g->p->arch->repeat_bytes / dtype_size(DT_I32));
  lg_halves(g, &n, src, DT_F32, false, &hi, &lo);
  reduce_rows(g, n, kind, hi, h);
  if (kind.row != OP_ROW_SUM) {
    Opd spread = h;
    spread.dim[n.n - 1] = REPEATS;
    if (n.n == 1) spread = lg_scalar(lg_hoist(g, lg_element(g, &h, (IrExpr *[]){ir_i32(g->k, 0)}, 1)));
    if (spread.scalar) spread.scalar = ir_unary(g->k, EX_NEG, spread.scalar);
    lg_emit3(g, &n, spread.scalar ? OP_ADD : OP_SUB, hi, spread, hi);
    lg_emit3(g, &n, OP_MUL, hi, lg_number(g, DT_F32, 65536), hi);
    lg_emit3(g, &n, OP_ADD, lo, hi, lo);
  }
  reduce_rows(g, n, kind, lo, l);
  Opd hw = lg_as(g, rows_n, h, DT_I32), lw = lg_as(g, rows_n, l, DT_I32);
  lg_join(g, rows_n, hw, lw, out);
  return out;
}

/* ---- another axis ------------------------------------------------------------------------------------------------ */

/* Dim d of n folded to one; the result over the other dimensions is a new tile of the same dtype. */
static Opd fold_axis(Lg *g, Nest n, int d, Kind kind, Opd src) {
  Nest rest = without(&n, d);
  DType t = opd_type(&src);
  int64_t count = ir_is_const(n.ext[d]) ? n.ext[d]->i : 0;
  if (d > 0 || count < 4) { /* one by one */
    Opd acc = lg_temp(g, &rest, t);
    lg_emit2(g, &rest, OP_MOVE, part(g, &n, src, d, ir_i32(g->k, 0), NULL), acc);
    if (count == 1) return acc;
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "row", ir_binary(g->k, EX_SUB, n.ext[d], ir_i32(g->k, 1)), &saved));
    Opd row = part(g, &n, src, d, ir_binary(g->k, EX_ADD, v, ir_i32(g->k, 1)), NULL);
    lg_emit3(g, &rest, kind.fold, acc, row, acc);
    g->out = saved;
    return acc;
  }
  int64_t half = count / 2;
  Nest m = resized(g, &n, 0, half);
  Opd acc = lg_temp(g, &m, t);
  lg_emit3(g, &m, kind.fold, slice(g, &n, src, 0, 0, half), slice(g, &n, src, 0, half, half), acc);
  Opd first = part(g, &m, acc, 0, ir_i32(g->k, 0), NULL);
  if (count % 2) lg_emit3(g, &rest, kind.fold, first, part(g, &n, src, 0, ir_i32(g->k, count - 1), NULL), first);
  for (; half > 1; half /= 2) {
    Nest h = resized(g, &n, 0, half / 2);
    Opd low = slice(g, &m, acc, 0, 0, half / 2);
    lg_emit3(g, &h, kind.fold, low, slice(g, &m, acc, 0, half / 2, half / 2), low);
    if (half % 2) lg_emit3(g, &rest, kind.fold, first, part(g, &m, acc, 0, ir_i32(g->k, half - 1), NULL), first);
  }
  return first;
}

/* ---- the statement -------------------------------------------------------------------------------------------- */

/* The dtype the reduction runs in: `last` axis needs f16 or f32 (i32: halves), others what elementwise ops take. */
static DType reduce_type(StmtOp op, DType src, DType dst, bool last, int64_t count) {
  bool sum = op == OP_REDUCE_SUM;
  switch (src) {
  case DT_F16: return sum || dst == DT_F32 ? DT_F32 : DT_F16;
  case DT_BF16:
  case DT_F32: return DT_F32;
  case DT_I8:
  case DT_U8: return !last && !sum ? DT_I16 : last && count <= 65536 ? DT_F32 : DT_I32;
  case DT_I16: return !last && !sum ? DT_I16 : last && (!sum || count <= 512) ? DT_F32 : DT_I32;
  case DT_I32: return DT_I32;
  default: return DTYPE_COUNT;
  }
}

static void by_element(Lg *g, const Nest *n, int d, const Opd *src, const Opd *dst, bool keep) {
  Nest rest = without(n, d);
  StmtOp op = kind_of(g->s->op).fold;
  IrBlock *saved;
  lg_warn_scalar(g, n, arena_printf(g->a, "%%%s %s", src->r.buf->name, lg_shape(g, &src->r)),
                 arena_printf(g->a, "the vector unit does not reduce %s", dtype_info[opd_type(src)].name),
                 "use i32, f16 or f32 tiles");
  if (!rest.n) rest = (Nest){.n = 1, .ext = {ir_i32(g->k, 1)}, .max = {1}};
  if (!keep) {
    Opd first = part(g, n, *src, d, ir_i32(g->k, 0), NULL);
    if (n->n == 1) first.dim[0] = REPEATS;
    lg_by_element(g, &rest, OP_MOVE, (Opd[]){first, *dst}, 2);
  }
  IrExpr *from = ir_i32(g->k, keep ? 0 : 1);
  IrExpr *v = ir_var(g->k, lg_loop(g, "red", ir_binary(g->k, EX_SUB, n->ext[d], from), &saved));
  Opd one = part(g, n, *src, d, ir_binary(g->k, EX_ADD, v, from), NULL);
  if (n->n == 1) one.dim[0] = REPEATS;
  lg_by_element(g, &rest, op, (Opd[]){*dst, one, *dst}, 3);
  g->out = saved;
}

/* dst := value, or dst op value; value over rest, dtype w. */
static void deliver(Lg *g, Nest rest, Kind kind, DType w, Opd value, Opd dst, bool keep) {
  DType t = opd_type(&dst);
  Finish f;
  if (!keep && w == t) {
    lg_copy(g, &rest, value, dst);
    return;
  }
  Opd arg[2] = {value, dst};
  lg_prepare(g, &rest, arg, 2, keep, &f);
  Opd total = arg[0];
  value = arg[0];
  dst = arg[1];
  if (keep) {
    DType m = lg_common(w, t);
    if (dtype_is_float(w) && !dtype_is_float(t)) m = t == DT_I16 && kind.fold != OP_ADD ? DT_I16 : DT_I32;
    if (m == DT_I8 || m == DT_U8) m = DT_I16;
    if (m == DT_BF16) m = DT_F32;
    Opd old = lg_as(g, &rest, dst, m), now = lg_as(g, &rest, value, m);
    total = m == t ? dst : lg_temp(g, &rest, m);
    lg_binary(g, &rest, kind.fold, m, old, now, total);
    w = m;
  }
  if (w != t) {
    bool narrows = !dtype_is_float(t) && kind.fold == OP_ADD && dtype_size(t) < 4;
    if (narrows && dtype_is_float(w)) total = lg_as(g, &rest, total, DT_I32);
    if (narrows && dtype_size(t) < dtype_size(opd_type(&total))) lg_wrap(g, &rest, total, t);
    lg_cast(g, &rest, total, dst, CAST_RINT);
  }
  lg_finish(g, &rest, &dst, &f);
}

static bool dst_is_row(Lg *g, const Opd *dst) {
  IrRows rows;
  return ir_rows(g->k, &dst->r, &rows) && ir_is_int(rows.rows, 1);
}

/* src over n without its dim d equals dst. */
static bool operands(Lg *g, Nest *n, int *d, Opd *src, Opd *dst, Nest *rest) {
  const IrRegion *s = &g->s->args[0].region, *o = &g->s->args[1].region;
  int64_t dim = ir_attr_int(g->s, ATTR_DIM, -1);
  if (dim < 0) dim += s->buf->rank;
  Nest out_n;
  if (dim < 0 || dim >= s->buf->rank) {
    Diag *e = diag_add(g->p->diags, DIAG_LEG_SHAPE, g->loc, "'%s': %%%s has %d dimensions, dim(%lld) is none of them",
                       op_info[g->s->op].name, s->buf->name, s->buf->rank, (long long)ir_attr_int(g->s, ATTR_DIM, -1));
    diag_fix(g->p->diags, e, "use dim(0) to dim(%d)", s->buf->rank - 1);
    g->failed = true;
    return false;
  }
  *n = (Nest){0};
  *src = (Opd){.r = *s};
  *d = -1;
  for (int i = 0; i < s->buf->rank; i++) { /* the reduced axis stays, whatever its extent */
    if (i != dim && ir_is_int(s->ext[i], 1)) continue;
    if (i == dim) *d = n->n;
    n->ext[n->n] = s->ext[i];
    n->max[n->n] = lg_bound(g, s->ext[i], ir_is_const(s->buf->shape[i]) ? s->buf->shape[i]->i : INT32_MAX);
    src->dim[n->n++] = (int8_t)i;
  }
  *rest = without(n, *d);
  bool ok = lg_nest(g, o, &out_n, dst);
  if (!rest->n) *rest = (Nest){.n = 1, .ext = {ir_i32(g->k, 1)}, .max = {1}};
  ok = ok && out_n.n == rest->n;
  for (int i = 0; ok && i < rest->n; i++) ok = lg_same(g, out_n.ext[i], rest->ext[i]);
  if (ok) return true;
  Diag *e =
      diag_add(g->p->diags, DIAG_LEG_SHAPE, g->loc, "'%s' over dim(%lld) of %%%s%s does not give the shape of %%%s%s",
               op_info[g->s->op].name, (long long)dim, s->buf->name, lg_shape(g, s), o->buf->name, lg_shape(g, o));
  diag_fix(g->p->diags, e, "the result has the source's shape without that dimension, or with extent 1 there");
  g->failed = true;
  return false;
}

/* The source in dtype w with the starts of its rows (dims before `from`) on 32 bytes. */
static Opd in_order(Lg *g, Nest *n, Opd src, DType w, int from) {
  IrExpr *width = n->ext[n->n - 1];
  if (w != opd_type(&src) && lg_is_dense(g, n, &src) && ir_is_const(width) && width->i % dtype_c0(w) == 0) {
    n->flat = true;
    src = lg_as(g, n, src, w);
    n->flat = false;
    return src;
  }
  n->flat = false;
  return lg_as(g, n, lg_ordered(g, n, src, from), w);
}

void lg_reduce(Lg *g) {
  const IrStmt *s = g->s;
  Kind kind = kind_of(s->op);
  bool keep = ir_attr(s, ATTR_KEEP) != NULL;
  Nest n, rest;
  Opd src, dst, value;
  int d;
  if (!operands(g, &n, &d, &src, &dst, &rest)) return;
  bool computes = reduce_type((StmtOp)s->op, opd_type(&src), opd_type(&dst), false, 1) != DTYPE_COUNT;
  rest.flat = true;
  if (ir_is_int(n.ext[d], 1) && (!keep || computes)) {
    deliver(g, rest, kind, opd_type(&src), n.n == 1 ? src : part(g, &n, src, d, ir_i32(g->k, 0), NULL), dst, keep);
    return;
  }
  bool last = d == n.n - 1;
  DType t = opd_type(&dst), w = reduce_type(s->op, opd_type(&src), t, last, n.max[d]);
  if (w == DTYPE_COUNT) {
    if (dtype_is_float(opd_type(&src))) lg_no_dtype(g, opd_type(&src), "convert the tile to f32 first");
    else by_element(g, &n, d, &src, &dst, keep);
    return;
  }
  src = in_order(g, &n, src, w, last ? n.n - 1 : d + 1);
  if (!last) {
    value = fold_axis(g, n, d, kind, src);
    deliver(g, rest, kind, w, value, dst, keep);
    return;
  }
  if (!ir_is_const(n.ext[d])) src = padded(g, &n, kind, src);
  if (w == DT_I32) {
    value = reduce_rows_i32(g, n, &rest, kind, src);
  } else {
    bool direct = w == t && !keep && dst_is_row(g, &dst);
    value = direct ? dst : lg_temp(g, &rest, w);
    reduce_rows(g, n, kind, src, value);
    if (direct) return;
  }
  deliver(g, rest, kind, w, value, dst, keep);
}
