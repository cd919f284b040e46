/* parallel_lanes.c - stores that take turns along the last dimension.
 *
 *     o[i, 2 * j] = a ; o[i, 2 * j + 1] = b
 *
 * No instruction stores every second element, but together such stores fill a box. Their values go to a tile [2, I, J],
 * from which one gather takes them in turn: o[i, k] = tile[k % 2, i, k // 2]. A loop over the first axis keeps the tile
 * small. */
#include "parallel.h"

#include <string.h>

enum { MAX_LANES = 8 };

typedef struct {
  IrStmt *store[MAX_LANES]; /* by lane */
  int n;
  int64_t rows; /* of the first axis that are done at once */
  IrExpr **idx; /* of the box they fill, whose last index is the new axis plus an offset */
} Lanes;

static IrExpr **indices(Par *v, const IrStmt *s) {
  IrExpr **idx = arena_array(v->p->arena, IrExpr *, s->store.buf->rank);
  for (int d = 0; d < s->store.buf->rank; d++) idx[d] = par_apply_lets(v, s->store.idx[d]);
  return idx;
}

/* Axes of constant extent, and rows of the last one that are whole blocks, as gather wants them. */
static bool fits(Par *v, const IrBuf *b, Lanes *l) {
  int64_t size = dtype_size(b->type), bytes = l->n * size, most = par_temp_budget(v) / 4;
  if ((size != 2 && size != 4) || v->n_all >= IR_MAX_RANK) return false;
  for (int i = 0; i < v->n_all; i++) {
    if (!ir_is_const(v->all[i].ext)) return false;
    bytes *= v->all[i].ext->i;
  }
  int64_t all = l->rows = v->all[0].ext->i;
  while (v->n_all > 1 && l->rows > 1 && (all % l->rows || bytes / all * l->rows > most)) l->rows--;
  return v->all[v->n_all - 1].ext->i * size % 32 == 0 && bytes / all * l->rows <= most;
}

/* Is t the store of another lane of the same places, with a value that no other lane changes? */
static bool belongs(Par *v, const IrStmt *first, IrExpr **at, const IrStmt *t, int64_t *lane) {
  if (!t || t->op != ST_STORE || t->store.buf != first->store.buf) return false;
  if (t->store.accumulate || t->store.atomic) return false;
  IrExpr **idx = indices(v, t);
  int last = t->store.buf->rank - 1;
  for (int d = 0; d < last; d++)
    if (!ir_expr_equal(idx[d], at[d])) return false;
  return ir_const_diff(v->k, idx[last], at[last], lane) &&
         (t == first || !par_reads_buf(par_apply_lets(v, t->store.value), t->store.buf));
}

static bool find(Par *v, IrStmt *s, Lanes *l) {
  IrBuf *b = s->store.buf;
  IrExpr **at = indices(v, s);
  int last = b->rank - 1;
  Linear x = par_linear(v, at[last], ~0u);
  uint32_t left = 0;
  for (int d = 0; d < b->rank; d++) left |= par_axes_of(v, at[d]);
  if (s->store.accumulate || s->store.atomic || !x.ok || x.axis != v->n_all - 1 || x.coef < 2 || x.coef > MAX_LANES ||
      left != (1u << v->n_all) - 1)
    return false;
  int64_t lane[MAX_LANES], low = 0;
  IrStmt *t = s;
  l->n = (int)x.coef;
  if (!fits(v, b, l)) return false;
  for (int i = 0; i < l->n; i++, t = t->next) {
    if (!belongs(v, s, at, t, &lane[i])) return false;
    low = min_i64(low, lane[i]);
  }
  memset(l->store, 0, sizeof l->store);
  t = s;
  for (int i = 0; i < l->n; i++, t = t->next) {
    int64_t k = lane[i] - low;
    if (k >= l->n || l->store[k]) return false;
    l->store[k] = t;
  }
  l->idx = at;
  at[last] = ir_binary(v->k, EX_ADD, ir_var(v->k, v->all[x.axis].var),
                       ir_binary(v->k, EX_ADD, x.rest, ir_int(v->k, x.rest->type, low)));
  return par_classify(v, b, at, ~0u).ok;
}

static IrBuf *lane_tile(Par *v, DType t, int n) {
  IrExpr *shape[IR_MAX_RANK] = {ir_i32(v->k, n)};
  for (int i = 0; i < v->n_all; i++) shape[i + 1] = v->all[i].ext;
  const char *name = arena_printf(v->p->arena, "t%d", v->facts->n_names++);
  IrBuf *b = ir_new_buf(v->k, name, t, SPACE_UB, v->n_all + 1, shape, v->loc);
  b->why = "values that are stored in turn";
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = b;
  ir_append(v->allocs, s);
  return b;
}

/* An index of a parallel of its own, so that its range is known. */
static IrVar *new_axis(Par *v, const IrVar *like, IrExpr *ext) {
  return par_new_loop(v->p, like->name, ext, v->loc)->par.vars[0];
}

/* The lanes to the tile, in the order of the text; `row` for the first axis where it is not NULL. */
static void fill_lanes(Par *v, const Lanes *l, IrStmt *first, IrBuf *tile, const IrVar *of, IrExpr *row) {
  IrStmt *t = first;
  for (int i = 0; i < l->n; i++, t = t->next) {
    Work w = {.kind = WORK_SET, .buf = tile, .value = ir_cast(v->k, tile->type, par_apply_lets(v, t->store.value))};
    if (row) w.value = ir_subst(v->k, w.value, of, row);
    w.idx = arena_array(v->p->arena, IrExpr *, tile->rank);
    int lane = 0;
    while (l->store[lane] != t) lane++;
    w.idx[0] = ir_i32(v->k, lane);
    for (int d = 0; d < v->n_all; d++) w.idx[d + 1] = ir_var(v->k, v->all[d].var);
    v->loc = t->loc;
    par_whole_box(v);
    par_run_work(v, &w);
  }
}

/* The tile to the box. */
static void take_turns(Par *v, const Lanes *l, const IrStmt *first, IrBuf *tile, const IrVar *of, IrExpr *row) {
  IrKernel *k = v->k;
  Axis *last = &v->all[v->n_all - 1], keep = *last;
  IrExpr *n = ir_i32(k, l->n), *ext = ir_i32(k, keep.ext->i * l->n), *idx[IR_MAX_RANK];
  IrVar *turn = new_axis(v, keep.var, ext);
  IrExpr *at = ir_var(k, turn);
  for (int d = 0; d < v->n_all; d++) idx[d + 1] = ir_var(k, v->all[d].var);
  idx[0] = ir_binary(k, EX_MOD, at, n);
  idx[v->n_all] = ir_binary(k, EX_FDIV, at, n);
  Work w = {.kind = WORK_SET, .buf = first->store.buf, .value = ir_load(k, tile, idx)};
  w.idx = arena_array(v->p->arena, IrExpr *, w.buf->rank);
  for (int d = 0; d < w.buf->rank; d++) {
    w.idx[d] = ir_subst(k, l->idx[d], keep.var, at);
    if (row) w.idx[d] = ir_subst(k, w.idx[d], of, row);
  }
  *last = (Axis){turn, ext, ext->i};
  v->loc = first->loc;
  par_whole_box(v);
  par_run_work(v, &w);
  *last = keep;
}

int par_lanes(Par *v, IrStmt *s) {
  Lanes l;
  IrKernel *k = v->k;
  if (!find(v, s, &l)) return 0;
  Axis all = v->all[0];
  IrBlock *outer = v->cur;
  IrExpr *row = NULL;
  v->loc = s->loc;
  if (l.rows < all.ext->i) {
    IrStmt *loop = par_emit_for(v, all.var->name, ir_i32(k, all.ext->i / l.rows));
    IrExpr *ext = ir_i32(k, l.rows);
    v->all[0] = (Axis){new_axis(v, all.var, ext), ext, l.rows};
    row = ir_binary(k, EX_ADD, ir_binary(k, EX_MUL, ir_var(k, loop->loop.var), ext), ir_var(k, v->all[0].var));
    v->cur = &loop->body;
    v->gm.len = 0;
  }
  IrBuf *tile = lane_tile(v, s->store.buf->type, l.n);
  fill_lanes(v, &l, s, tile, all.var, row);
  take_turns(v, &l, s, tile, all.var, row);
  if (row) v->gm.len = 0;
  v->all[0] = all;
  v->cur = outer;
  pass_remark(v->p, "parallel", s->loc, "%d stores that take turns: one gather", l.n);
  return l.n;
}
