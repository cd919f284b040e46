/* legalize_fold.c - reductions that are another one with a step before it, or that fold whole rows: sums and maxima of
 * absolute values, bitwise and, or, exclusive or. Each is written as source statements on scratch, which are legalized
 * in turn. */
#include "legalize.h"

static IrStmt *stmt(Lg *g, StmtOp op, int n, const IrArg *arg) { return ir_new_op(g->k, op, g->loc, n, arg); }

/* Scratch of the region's shape, so that its dimensions keep their numbers. */
static IrRegion like(Lg *g, const IrRegion *r) {
  int64_t shape[IR_MAX_RANK] = {1};
  int rank = r->buf->rank;
  for (int d = 0; d < rank; d++) shape[d] = lg_bound(g, r->ext[d], r->buf->shape[d]->i);
  if (rank > 1) shape[rank - 1] = round_up(shape[rank - 1], dtype_c0(r->buf->type));
  IrRegion out = ir_whole(g->k, lg_buf(g, r->buf->type, rank, shape));
  for (int d = 0; d < rank; d++) out.ext[d] = r->ext[d];
  return out;
}

static void of_absolute(Lg *g, StmtOp op) {
  const IrStmt *s = g->s;
  IrRegion abs = like(g, &s->args[0].region);
  IrArg to = ir_arg_region(abs);
  lg_statement(g, stmt(g, OP_ABS, 2, (IrArg[]){s->args[0], to}));
  IrStmt *reduce = stmt(g, op, 2, (IrArg[]){to, s->args[1]});
  reduce->attrs = s->attrs;
  reduce->n_attrs = s->n_attrs;
  lg_statement(g, reduce);
}

/* The result of a row region [.., 1, ..] against dst without that dimension. */
static IrRegion index_at(const IrRegion *r, int d, IrExpr *at, IrKernel *k) {
  IrRegion x = *r;
  x.off[d] = ir_binary(k, EX_ADD, r->off[d], at);
  x.ext[d] = ir_i32(k, 1);
  return x;
}

static void fold_bits(Lg *g, StmtOp op) {
  const IrStmt *s = g->s;
  const IrRegion *src = &s->args[0].region;
  int64_t dim = ir_attr_int(s, ATTR_DIM, src->buf->rank - 1);
  bool keep = ir_attr(s, ATTR_KEEP) != NULL;
  if (dtype_is_float(src->buf->type)) {
    lg_no_dtype(g, src->buf->type, "bitwise reductions take integer tiles");
    return;
  }
  if (dim < 0 || dim >= src->buf->rank) {
    lg_refuse(g, "names an axis that the tile does not have", "dim(0) to dim(rank - 1)");
    return;
  }
  IrArg dst = s->args[1];
  IrExpr *from = ir_i32(g->k, keep ? 0 : 1);
  IrRegion row = index_at(src, (int)dim, ir_i32(g->k, 0), g->k);
  if (!keep) lg_statement(g, stmt(g, OP_COPY, 2, (IrArg[]){ir_arg_region(row), dst}));
  if (!keep && ir_is_int(src->ext[dim], 1)) return;
  IrBlock *saved;
  IrExpr *v = ir_var(g->k, lg_loop(g, "row", ir_binary(g->k, EX_SUB, src->ext[dim], from), &saved));
  row = index_at(src, (int)dim, ir_binary(g->k, EX_ADD, v, from), g->k);
  lg_statement(g, stmt(g, op, 3, (IrArg[]){dst, ir_arg_region(row), dst}));
  g->out = saved;
}

bool lg_is_fold(StmtOp op) {
  return op == OP_REDUCE_ABSSUM || op == OP_REDUCE_ABSMAX || op == OP_REDUCE_AND || op == OP_REDUCE_OR ||
         op == OP_REDUCE_XOR;
}

void lg_fold(Lg *g) {
  switch (g->s->op) {
  case OP_REDUCE_ABSSUM: of_absolute(g, OP_REDUCE_SUM); return;
  case OP_REDUCE_ABSMAX: of_absolute(g, OP_REDUCE_MAX); return;
  case OP_REDUCE_AND: fold_bits(g, OP_AND); return;
  case OP_REDUCE_OR: fold_bits(g, OP_OR); return;
  default: fold_bits(g, OP_XOR);
  }
}
