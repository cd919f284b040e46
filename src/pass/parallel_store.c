/* parallel_store.c - the left side: a value that parallel_expr.c computes is stored, summed or scattered.
 *
 * The destination serves as it is when it is a box of a local tile; tensors in GM get a copy of a tile; other places
 * get a copy a row or, failing that, a scalar loop. Sums and maxima over the axes that the left side lacks reduce a
 * tile axis by axis, the last step straight into the destination. */
#include "parallel.h"

#include <math.h>

static IrArg reg(IrRegion r) { return ir_arg_region(r); }
static IrArg sca(IrExpr *e) { return ir_arg_scalar(e); }

/* Does e read elements of w's destination other than the one that is being written? */
static bool reads_other_elements(Par *v, const Work *w, const IrExpr *e) {
  if (e->op == EX_LOAD && e->buf != w->buf && ir_root(e->buf) == ir_root(w->buf)) return true;
  if (e->op == EX_LOAD && e->buf == w->buf) {
    bool same = true, apart = false;
    for (int i = 0; i < e->n; i++) {
      int64_t diff;
      if (ir_expr_equal(e->idx[i], w->idx[i])) continue;
      same = false;
      apart |= !par_axes_of(v, e->idx[i]) && !par_axes_of(v, w->idx[i]) &&
               ir_const_diff(v->k, e->idx[i], w->idx[i], &diff) && diff;
    }
    return !same && !apart;
  }
  int n = e->op == EX_LOAD || e->op > EX_LOAD ? e->n : 0;
  for (int i = 0; i < n; i++)
    if (reads_other_elements(v, w, e->op == EX_LOAD ? e->idx[i] : e->arg[i])) return true;
  return false;
}

Work par_work_subst(Par *v, const Work *w, const IrVar *var, IrExpr *by) {
  Work r = *w;
  r.idx = arena_array(v->p->arena, IrExpr *, w->buf->rank);
  for (int d = 0; d < w->buf->rank; d++) r.idx[d] = ir_subst(v->k, w->idx[d], var, by);
  r.value = ir_subst(v->k, w->value, var, by);
  if (w->guard) r.guard = ir_subst(v->k, w->guard, var, by);
  return r;
}

static IrRegion element(Par *v, IrBuf *b, IrExpr *const *idx) {
  IrRegion r = ir_whole(v->k, b);
  for (int d = 0; d < b->rank; d++) {
    r.off[d] = idx[d];
    r.ext[d] = ir_i32(v->k, 1);
  }
  return r;
}

/* A tile of one element that holds a value: what the DMA takes. */
static IrRegion one_element(Par *v, IrExpr *value) {
  IrExpr *idx[MAX_AXES];
  IrBuf *t = par_new_tile(v, SPACE_UB, value->type, 0);
  for (int d = 0; d < t->rank; d++) idx[d] = ir_i32(v->k, 0);
  par_emit_store(v, t, idx, value, false);
  return element(v, t, idx);
}

/* The whole statement, element by element. */
void par_scalar_statement(Par *v, const Work *w, const char *why, const char *fix) {
  IrExpr *at[MAX_AXES], *idx[IR_MAX_RANK];
  uint32_t left = par_left_axes(v, w),
           all = left | par_axes_of(v, w->value) | (w->guard ? par_axes_of(v, w->guard) : 0);
  IrBlock *outer = v->cur;
  bool sums = w->kind == WORK_SUM;
  par_warn_scalar(v, all, why, fix);
  if (sums && w->fresh && (all != left || w->guard)) {
    par_enter_loops(v, left, at);
    for (int d = 0; d < w->buf->rank; d++) idx[d] = par_at_loops(v, left, at, w->idx[d]);
    par_emit_store(v, w->buf, idx, ir_int(v->k, w->buf->type, 0), false);
    v->cur = outer;
  } else if (w->fresh) {
    sums = false;
  }
  par_enter_loops(v, all, at);
  if (v->cur->parent && v->cur != outer) v->cur->parent->why = why;
  IrExpr *guard = w->guard ? par_clamp_loads(v, w->guard) : NULL, *in = par_inside(v, w->buf, w->idx);
  if (in) guard = guard ? ir_binary(v->k, EX_LAND, in, guard) : in;
  if (guard) {
    par_enter_if(v, par_at_loops(v, all, at, guard));
  }
  IrExpr *value = par_clamp_loads(v, ir_cast(v->k, w->buf->type, w->value));
  if (w->kind > WORK_SUM) value = ir_binary(v->k, par_fold[w->kind].combine, ir_load(v->k, w->buf, w->idx), value);
  for (int d = 0; d < w->buf->rank; d++) idx[d] = par_at_loops(v, all, at, w->idx[d]);
  value = par_at_loops(v, all, at, value);
  if (w->atomic) {
    IrRegion one = one_element(v, value);
    par_emit(v, OP_ATOMIC_ADD, 2, reg(one), reg(element(v, w->buf, idx)));
  } else {
    par_emit_store(v, w->buf, idx, value, sums);
  }
  v->cur = outer;
}

const WorkFold par_fold[] = {
    [WORK_SUM] = {EX_ADD, OP_ADD, OP_REDUCE_SUM}, [WORK_MAX] = {EX_MAX, OP_MAX, OP_REDUCE_MAX},
    [WORK_MIN] = {EX_MIN, OP_MIN, OP_REDUCE_MIN}, [WORK_AND] = {EX_AND, OP_AND, OP_REDUCE_AND},
    [WORK_OR] = {EX_OR, OP_OR, OP_REDUCE_OR},     [WORK_XOR] = {EX_XOR, OP_XOR, OP_REDUCE_XOR},
};

/* What brings a row of values to its place. */
static StmtOp row_op(const Work *w) {
  if (w->kind == WORK_SET) return OP_COPY;
  if (w->buf->space == SPACE_GM) return OP_ATOMIC_ADD;
  return par_fold[w->kind].op;
}

/* Copies a tile to elements that are no box, or combines it with them: one after the other, as two may be the same. */
static void scatter(Par *v, const Work *w, Val x, const Access *a) {
  uint32_t span = par_left_axes(v, w), serial = span;
  Access row;
  bool folds = w->kind > WORK_SUM;
  bool alone = x.scalar || x.span != span || (folds && w->buf->space == SPACE_GM);
  int last = alone ? -1 : par_row_axis(v, w->buf, w->idx, span, &row);
  IrExpr *at[MAX_AXES];
  if (last >= 0) serial &= ~(1u << last);
  else par_warn_scalar(v, span, a->why, a->fix);
  IrBlock *outer = par_enter_loops(v, serial, at);
  if (v->cur != outer) v->cur->parent->why = a->why;
  if (last >= 0) {
    IrRegion from = x.r;
    for (int d = 0; d < w->buf->rank; d++) row.r.off[d] = par_at_loops(v, serial, at, row.r.off[d]);
    for (int i = 0; i < v->n; i++) {
      if (!(serial >> i & 1)) continue;
      int d = x.dim ? x.dim[i] : i;
      from.off[d] = ir_binary(v->k, EX_ADD, from.off[d], at[i]);
      from.ext[d] = ir_i32(v->k, 1);
    }
    StmtOp op = row_op(w);
    if (op == OP_COPY || op == OP_ATOMIC_ADD) par_emit(v, op, 2, reg(from), reg(row.r));
    else par_emit(v, op, 3, reg(row.r), reg(from), reg(row.r));
    pass_remark(v->p, "parallel", v->loc, "%s: one copy a row", a->why);
  } else {
    IrExpr *idx[IR_MAX_RANK], *value = x.scalar;
    if (!value) {
      for (int d = 0; d < x.r.buf->rank; d++) idx[d] = x.r.off[d];
      for (int i = 0; i < v->n; i++) {
        int d = x.dim ? x.dim[i] : i;
        if (x.span >> i & 1) idx[d] = ir_binary(v->k, EX_ADD, idx[d], at[i]);
      }
      value = ir_load(v->k, x.r.buf, idx);
    }
    IrExpr *in = par_inside(v, w->buf, w->idx);
    if (in) {
      par_enter_if(v, par_at_loops(v, span, at, in));
    }
    for (int d = 0; d < w->buf->rank; d++) idx[d] = par_at_loops(v, span, at, w->idx[d]);
    if (folds) value = ir_binary(v->k, par_fold[w->kind].combine, ir_load(v->k, w->buf, idx), value);
    if (w->atomic) par_emit(v, OP_ATOMIC_ADD, 2, reg(one_element(v, value)), reg(element(v, w->buf, idx)));
    else par_emit_store(v, w->buf, idx, value, w->kind == WORK_SUM);
  }
  v->cur = outer;
}

/* A column of a tensor, which a copy stores too. */
static bool to_column(const Par *v, const Work *w, const Access *to) {
  return to->column && w->buf->space == SPACE_GM && w->kind == WORK_SET && to->span == v->full;
}

/* Brings the value of the right side to its place. */
static void store_value(Par *v, const Work *w, Val x, const Access *a) {
  IrKernel *k = v->k;
  if (w->buf->space == SPACE_GM) v->gm.len = 0;
  if (!a->ok && !(to_column(v, w, a) && x.span == v->full)) {
    scatter(v, w, x, a);
  } else if (x.scalar && w->buf->space != SPACE_GM) {
    par_emit(v, OP_FILL, 2, sca(ir_cast(k, w->buf->type, x.scalar)), reg(a->r));
  } else if (!x.scalar && ir_region_equal(&x.r, &a->r)) {
    /* computed in place */
  } else {
    if (x.scalar) x = par_filled(v, x.scalar, w->buf->type, v->full);
    uint32_t missing = v->full & ~x.span;
    if (missing && w->buf->space != SPACE_GM) {
      int dim = 0;
      while (a->axis[dim] != __builtin_ctz(missing)) dim++;
      IrStmt *s = par_emit(v, OP_BROADCAST, 2, reg(x.r), reg(a->r));
      ir_set_attr(k, s, ATTR_DIM, ir_i32(k, dim));
    } else {
      if (x.span != v->full) x = par_whole(v, x, v->full);
      par_emit(v, OP_COPY, 2, reg(x.r), reg(a->r));
    }
  }
  par_release(v, x.temp);
}

/* The matrix that r is the upper left part of, and not all of; false: r is no such part. */
static bool rest_of_tile(const IrRegion *r, IrRegion *tile) {
  bool part = false;
  *tile = *r;
  for (int d = r->buf->rank - 2; d < r->buf->rank; d++) {
    if (d < 0 || !ir_is_int(r->off[d], 0)) return false;
    part |= !ir_expr_equal(r->ext[d], r->buf->shape[d]);
    tile->ext[d] = r->buf->shape[d];
  }
  return part;
}

/* `to[..] = from[..]`, perhaps with a conversion between floats, as one copy. Into L1 also a column: its DMA writes
 * whole blocks, so a tile that holds nothing yet is cleared, as the first load of a part of it clears it in a copy. */
static bool direct_copy(Par *v, const Work *w, IrExpr *val, const Access *to) {
  IrExpr *x = val->op == EX_CAST ? val->arg[0] : val;
  if (x->op != EX_LOAD || (x->buf->space == SPACE_GM && w->buf->space == SPACE_GM)) return false;
  bool to_l1 = x->buf->space == SPACE_GM && w->buf->space == SPACE_L1;
  IrRegion tile;
  bool first = to_l1 && rest_of_tile(&to->r, &tile) && par_never_written(v->p, w->buf, v->stmt, v);
  Access from = par_classify(v, x->buf, x->idx, ~0u);
  if (from.span != v->full || !(from.ok || (to_l1 && from.column)) || !(to->ok || (first && to->column))) return false;
  if (x != val) {
    bool floats = dtype_is_float(x->type) && dtype_is_float(val->type);
    bool moves = !vector_space(x->buf->space) || !vector_space(w->buf->space) || x->buf->space == SPACE_FRAGMENT;
    if (!floats || !moves) return false;
  }
  if (w->buf == x->buf) {
    if (reads_other_elements(v, w, x)) return false;
    if (ir_region_equal(&from.r, &to->r)) return true; /* nothing to do */
  }
  if (first) par_emit(v, OP_FILL, 2, sca(ir_int(v->k, w->buf->type, 0)), reg(tile));
  par_emit(v, OP_COPY, 2, reg(from.r), reg(to->r));
  if (w->buf->space == SPACE_GM) v->gm.len = 0;
  return true;
}

/* y += s * x and y += a * b have instructions of their own. */
static bool multiply_add(Par *v, const Work *w, IrExpr *val, const Access *to) {
  if (!to->ok || w->buf->space == SPACE_GM || (w->buf->type != DT_F16 && w->buf->type != DT_F32)) return false;
  if (!v->full || val->op != EX_MUL || par_axes_of(v, val) != v->full || reads_other_elements(v, w, val)) return false;
  IrExpr *a = val->arg[0], *b = val->arg[1];
  if (par_axes_of(v, a) != v->full) {
    a = val->arg[1];
    b = val->arg[0];
  }
  if (par_axes_of(v, a) != v->full || (par_axes_of(v, b) && par_axes_of(v, b) != v->full)) return false;
  Val x = par_eval(v, a, NULL), y = par_eval(v, b, NULL);
  par_emit(v, y.scalar ? OP_AXPY : OP_MULADD, 3, reg(x.r), y.scalar ? sca(y.scalar) : reg(y.r), reg(to->r));
  par_release(v, x.temp);
  par_release(v, y.temp);
  return true;
}

/* A sum, maximum or minimum at places that an index tile or an expression names: several terms may meet in one. */
static void irregular(Par *v, const Work *w, const Access *to) {
  IrExpr *val = ir_cast(v->k, w->buf->type, w->value);
  if (w->guard) val = ir_select(v->k, w->guard, val, par_neutral(v, w->kind, w->buf->type));
  if (w->fresh) {
    Work zero = *w;
    zero.kind = WORK_SET;
    scatter(v, &zero, (Val){.scalar = ir_int(v->k, w->buf->type, 0), .type = w->buf->type}, to);
  }
  Val x = par_eval(v, val, NULL);
  x = x.scalar ? par_filled(v, x.scalar, w->buf->type, v->full) : par_whole(v, x, v->full);
  scatter(v, w, x, to);
  par_release(v, x.temp);
}

static void elementwise(Par *v, const Work *w) {
  IrKernel *k = v->k;
  IrExpr *val = ir_cast(k, w->buf->type, w->value), *old = ir_load(k, w->buf, w->idx);
  Access to = par_classify(v, w->buf, w->idx, ~0u);
  if (w->kind != WORK_SET && !to.ok && v->full) {
    irregular(v, w, &to);
    return;
  }
  bool adds = w->kind == WORK_SUM && !w->fresh;
  if (adds && !w->guard && multiply_add(v, w, val, &to)) return;
  if (adds) val = ir_binary(k, EX_ADD, old, val);
  if (w->kind > WORK_SUM) val = ir_binary(k, par_fold[w->kind].combine, old, val);
  if (w->guard) val = ir_select(k, w->guard, val, w->kind == WORK_SUM && w->fresh ? ir_int(k, w->buf->type, 0) : old);
  if (direct_copy(v, w, val, &to)) return;
  bool constant = val->op == EX_INT || val->op == EX_FLOAT,
       cube = !vector_space(w->buf->space) && w->buf->space != SPACE_GM;
  if (cube && constant && to.ok && !w->guard && (w->buf->space == SPACE_L0C || w->buf->space == SPACE_L1)) {
    par_emit(v, OP_FILL, 2, sca(val), reg(to.r)); /* clearing an accumulator or an operand is the cube's own */
    return;
  }
  if (cube) {
    Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_SPACE, v->loc,
                       "%%%s stands in %s, where neither the vector nor the scalar unit can write it", w->buf->name,
                       space_info[w->buf->space].name);
    diag_other(v->p->diags, g, w->buf->loc, "%%%s is declared here", w->buf->name);
    diag_fix(v->p->diags, g, "compute in a tile of ub and copy it");
    return;
  }
  bool direct = to.ok && w->buf->space != SPACE_GM && !reads_other_elements(v, w, val);
  v->loose_dst = !to.aligned;
  if (!to.ok && !to_column(v, w, &to) && val->op == EX_LOAD &&
      !w->guard) { /* element by element on both sides: no tile between */
    Access from = par_classify(v, val->buf, val->idx, ~0u), row;
    if (!from.ok || par_row_axis(v, w->buf, w->idx, par_left_axes(v, w), &row) < 0) {
      par_scalar_statement(v, w, to.why, to.fix);
      return;
    }
  }
  store_value(v, w, par_eval(v, val, direct ? &to.r : NULL), &to);
}

IrExpr *par_neutral(Par *v, WorkKind kind, DType t) {
  if (kind != WORK_MAX && kind != WORK_MIN) return ir_int(v->k, t, kind == WORK_AND ? -1 : 0);
  if (dtype_is_float(t)) return ir_float(v->k, t, kind == WORK_MAX ? -INFINITY : INFINITY);
  int bits = dtype_info[t].bits;
  if (dtype_info[t].cls == 'u') return ir_int(v->k, t, kind == WORK_MAX ? 0 : -1);
  int64_t low = -(int64_t)(1ull << (bits - 1));
  return ir_int(v->k, t, kind == WORK_MAX ? low : ~low);
}

/* A sum, maximum and so on over the axes that the left side does not name. */
static void reduction(Par *v, const Work *w, uint32_t left, uint32_t gone) {
  IrKernel *k = v->k;
  IrExpr *val = ir_cast(k, w->buf->type, w->value);
  if (w->guard) val = ir_select(k, w->guard, val, par_neutral(v, w->kind, w->buf->type));
  StmtOp op = par_fold[w->kind].reduce;
  v->full = left | gone;
  Access to = par_classify(v, w->buf, w->idx, ~0u);
  bool direct = to.ok && w->buf->space != SPACE_GM;
  Val x = par_eval(v, val, NULL);
  uint32_t span = v->full;
  if (x.span != span) x = par_whole(v, x, span);
  while (gone) {
    int axis = 31 - __builtin_clz(gone);
    gone &= ~(1u << axis);
    bool final = !gone && direct;
    span &= ~(1u << axis);
    Val out = {0};
    if (!final) out = par_take(v, w->buf->type, span);
    IrStmt *s = par_emit(v, op, 2, reg(x.r), reg(final ? to.r : out.r));
    ir_set_attr(k, s, ATTR_DIM, ir_i32(k, x.dim ? x.dim[axis] : axis));
    if (final && !w->fresh) ir_set_attr(k, s, ATTR_KEEP, ir_i32(k, 1));
    par_release(v, x.temp);
    x = out;
  }
  if (direct) return;
  Work rest = *w; /* destination is no local box: combine the reduced tile with it element by element */
  rest.guard = NULL;
  rest.value = par_tile_load(v, x.temp, span);
  v->full = left;
  elementwise(v, &rest);
  par_release(v, x.temp);
}

/* A sum that other blocks add to as well: the terms of this block in a tile, and that tile by a DMA that adds. */
static void atomic_sum(Par *v, const Work *w, uint32_t left, uint32_t gone) {
  IrExpr *val = ir_cast(v->k, w->buf->type, w->value);
  Access to = par_classify(v, w->buf, w->idx, ~0u);
  if (!gone && !w->guard && to.ok && val->op == EX_LOAD && val->buf->space != SPACE_GM) {
    Access from = par_classify(v, val->buf, val->idx, ~0u);
    if (from.ok && from.span == left) {
      par_emit(v, OP_ATOMIC_ADD, 2, reg(from.r), reg(to.r));
      return;
    }
  }
  Val x = par_take(v, w->buf->type, left);
  Work sum = *w;
  sum.atomic = false;
  sum.fresh = true;
  sum.buf = x.temp;
  sum.idx = par_tile_load(v, x.temp, left)->idx;
  if (gone) reduction(v, &sum, left, gone);
  else elementwise(v, &sum);
  v->full = left;
  v->gm.len = 0;
  if (!to.ok) scatter(v, w, x, &to);
  else par_emit(v, OP_ATOMIC_ADD, 2, reg(x.r), reg(to.r));
  par_release(v, x.temp);
}

void par_vector_statement(Par *v, const Work *w) {
  uint32_t left = par_left_axes(v, w), right = par_axes_of(v, w->value) | (w->guard ? par_axes_of(v, w->guard) : 0);
  v->full = left;
  if (w->atomic) atomic_sum(v, w, left, right & ~left);
  else if (right & ~left) reduction(v, w, left, right & ~left);
  else elementwise(v, w);
}
