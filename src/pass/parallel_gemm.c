/* parallel_gemm.c - sums of products that are matrix products, and when an accumulator starts at zero.
 *
 *     parallel %i: M, %j: N, %k: K { %c[%i, %j] += %a[%i, %k] * %b[%k, %j] }   ->   gemm %a, %b -> %c
 *
 * The last two indices of the left side name m and n; the factor that has m is A, the other one B; whether k stands
 * last in A and first in B decides trans_a and trans_b. Indices that are neither m, n nor k (batches, taps of a
 * convolution, further sums) become serial loops around the gemm. Offsets go into the regions. Factors in GM are first
 * copied to tiles; a sum into GM goes through an accumulator tile. */
#include "parallel.h"

typedef struct { IrRegion r; int row, col; } Matrix; /* which axes its last two dimensions run over */

static bool matrix_access(Par *v, IrBuf *buf, IrExpr **idx, uint32_t mask, Matrix *m) {
  if (buf->rank < 2) return false;
  m->r.buf = buf;
  for (int d = 0; d < buf->rank; d++) {
    int axis;
    if (!par_axis_index(v, idx[d], mask, &axis, &m->r.off[d])) return false;
    if ((axis >= 0) != (d >= buf->rank - 2)) return false;
    m->r.ext[d] = axis >= 0 ? v->ax[axis].ext : ir_i32(v->k, 1);
    if (d == buf->rank - 2) m->row = axis;
    if (d == buf->rank - 1) m->col = axis;
  }
  return m->row != m->col;
}

/* The tile behind a factor: widening conversions to the accumulator's dtype are the cube's own. */
static IrExpr *factor(IrExpr *e) {
  while (e->op == EX_CAST && dtype_size(e->type) >= dtype_size(e->arg[0]->type) &&
         dtype_is_float(e->type) == dtype_is_float(e->arg[0]->type))
    e = e->arg[0];
  return e->op == EX_LOAD ? e : NULL;
}

static IrExpr *product_of(IrExpr *e) {
  while (e->op == EX_CAST && dtype_size(e->type) >= dtype_size(e->arg[0]->type) &&
         dtype_is_float(e->type) == dtype_is_float(e->arg[0]->type))
    e = e->arg[0];
  return e->op == EX_MUL ? e : NULL;
}

static bool cube_takes(DType a, DType b, DType c) {
  if (a != b) return false;
  if (a == DT_I8) return c == DT_I32;
  return (a == DT_F16 || a == DT_BF16 || a == DT_F32) && c == DT_F32;
}

typedef struct { Matrix a, b, c; int k; uint32_t serial; } Product;

/* Reads w as a product with reduction axis k; everything else but m and n is serial. */
static bool match(Par *v, const Work *w, IrExpr *x, IrExpr *y, int k, Product *out) {
  Product p = {.k = k};
  uint32_t all = (1u << v->n) - 1, left = 0;
  for (int d = w->buf->rank - 2; d < w->buf->rank; d++) left |= par_axes_of(v, w->idx[d]);
  uint32_t used = left | 1u << k;
  if (__builtin_popcount(left) != 2 || !matrix_access(v, w->buf, w->idx, used, &p.c)) return false;
  for (int swap = 0; swap < 2; swap++) {
    IrExpr *l = swap ? y : x, *r = swap ? x : y;
    if (!matrix_access(v, l->buf, l->idx, used, &p.a) || !matrix_access(v, r->buf, r->idx, used, &p.b)) continue;
    bool a_fits = (p.a.row == p.c.row && p.a.col == k) || (p.a.col == p.c.row && p.a.row == k);
    bool b_fits = (p.b.col == p.c.col && p.b.row == k) || (p.b.row == p.c.col && p.b.col == k);
    if (!a_fits || !b_fits) continue;
    p.serial = all & ~used;
    *out = p;
    return true;
  }
  return false;
}

static bool usable_factor(const IrBuf *b) {
  return b->space == SPACE_SHARED || b->space == SPACE_FRAGMENT || b->space == SPACE_L1 || b->space == SPACE_GM;
}

static void warn_not_cube(Par *v, const Work *w, const Product *p) {
  const IrBuf *a = p->a.r.buf, *b = p->b.r.buf;
  Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_NOT_CUBE, v->loc,
                     "this is a matrix product, but the cube does not multiply %%%s (%s in %s) by %%%s (%s in %s) into "
                     "%%%s (%s in %s); "
                     "the vector unit computes it",
                     a->name, dtype_info[a->type].name, space_info[a->space].name, b->name, dtype_info[b->type].name,
                     space_info[b->space].name, w->buf->name, dtype_info[w->buf->type].name,
                     space_info[w->buf->space].name);
  diag_fix(v->p->diags, g,
           "use f16, bf16 or f32 factors with an f32 accumulator, or i8 with i32, in shared tiles and a fragment (L1 "
           "and L0C)");
}

/* A factor in GM as a tile that the cube can read. */
static bool stage(Par *v, Matrix *m) {
  if (m->r.buf->space != SPACE_GM) return true;
  IrExpr *shape[2];
  int axis[2] = {m->row, m->col};
  for (int i = 0; i < 2; i++) {
    if (v->ax[axis[i]].cap < 1) return false;
    shape[i] = ir_i32(v->k, v->ax[axis[i]].cap);
  }
  const char *name = arena_printf(v->p->arena, "t%d", v->facts->n_names++);
  IrBuf *tile = ir_new_buf(v->k, name, m->r.buf->type, SPACE_SHARED, 2, shape, v->loc);
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = tile;
  ir_append(v->allocs, s);
  IrRegion to = ir_whole(v->k, tile);
  for (int i = 0; i < 2; i++) to.ext[i] = v->ax[axis[i]].ext;
  par_emit(v, OP_COPY, 2, ir_arg_region(m->r), ir_arg_region(to));
  m->r = to;
  return true;
}

static void into_loops(Par *v, uint32_t serial, IrExpr *const *at, IrRegion *r) {
  for (int d = 0; d < r->buf->rank; d++) r->off[d] = par_at_loops(v, serial, at, r->off[d]);
}

/* The accumulator tile of a sum that goes to GM. */
static bool gm_accumulator(Par *v, const Product *p, DType t, IrRegion *acc) {
  IrExpr *shape[2];
  int axis[2] = {p->c.row, p->c.col};
  for (int i = 0; i < 2; i++) {
    if (v->ax[axis[i]].cap < 1) return false;
    shape[i] = ir_i32(v->k, v->ax[axis[i]].cap);
  }
  const char *name = arena_printf(v->p->arena, "t%d", v->facts->n_names++);
  IrBuf *tile = ir_new_buf(v->k, name, t, SPACE_FRAGMENT, 2, shape, v->loc);
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = tile;
  ir_append(v->allocs, s);
  *acc = ir_whole(v->k, tile);
  for (int i = 0; i < 2; i++) acc->ext[i] = v->ax[axis[i]].ext;
  return true;
}

static IrStmt *gemm_of(Par *v, const Product *p, IrRegion c) {
  IrArg args[3] = {ir_arg_region(p->a.r), ir_arg_region(p->b.r), ir_arg_region(c)};
  IrStmt *s = ir_new_op(v->k, OP_GEMM, v->loc, 3, args);
  if (p->a.row == p->k) ir_set_attr(v->k, s, ATTR_TRANS_A, ir_int(v->k, DT_BOOL, 1));
  if (p->b.col == p->k) ir_set_attr(v->k, s, ATTR_TRANS_B, ir_int(v->k, DT_BOOL, 1));
  return s;
}

/* Does every part of a tile start where the cube can address it? */
static bool addressable(Par *v, const Product *p) {
  const IrStmt *s = gemm_of(v, p, p->c.r);
  for (int i = 0; i < 3; i++) {
    const IrRegion *r = &s->args[i].region;
    int unit, dim = ir_fractal_split(s, i, &unit);
    if (dim < 0) continue;
    const char *what = dim == r->buf->rank - 1 ? "column" : "row";
    Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_NOT_CUBE, v->loc,
                       "this is a matrix product, but it takes %s, and %s %s is no multiple of %d; the vector unit "
                       "computes it",
                       ir_region_str(v->p->arena, r), what, ir_expr_str(v->p->arena, r->off[dim]), unit);
    diag_fix(v->p->diags, g, "copy the part to a tile of its own, or start on a multiple of %d", unit);
    return false;
  }
  return true;
}

static void emit_gemm(Par *v, Product *p, IrRegion c, IrExpr *init) {
  IrStmt *s = gemm_of(v, p, c);
  ir_append(v->cur, s);
  if (init) ir_set_attr(v->k, s, ATTR_INIT, init);
  else par_gemm_init(v->p, s, v);
}

/* C in GM: all sums in a tile, then one write (first time, or nothing there yet) or one addition. */
static void emit_gm_product(Par *v, const Work *w, Product *p, IrRegion acc) {
  IrExpr *at[MAX_AXES];
  uint32_t left = par_left_axes(v, w), batch = p->serial & left, sums = p->serial & ~left;
  bool fresh = par_never_written(v->p, w->buf, v->stmt, v);
  IrExpr *when = fresh ? par_first_time(v->p, w->buf, w->idx, w->buf->rank, v->cur, v) : NULL;
  IrVar *flag = fresh && !when ? par_first_flag(v->p, w->buf, v->loc) : NULL;
  if (flag) when = ir_var(v->k, flag);
  IrBlock *outer = par_enter_loops(v, batch, at), *inner = v->cur;
  par_enter_loops(v, sums, at);
  into_loops(v, p->serial, at, &p->a.r);
  into_loops(v, p->serial, at, &p->b.r);
  into_loops(v, batch, at, &p->c.r);
  stage(v, &p->a);
  stage(v, &p->b);
  IrExpr *init = ir_int(v->k, DT_BOOL, 1);
  for (int i = 0; i < v->n; i++)
    if (sums >> i & 1) init = ir_binary(v->k, EX_LAND, init, ir_binary(v->k, EX_EQ, at[i], ir_i32(v->k, 0)));
  emit_gemm(v, p, acc, init);
  v->cur = inner;
  IrStmt *s = NULL;
  if (when && when->op != EX_INT) {
    par_enter_if(v, when);
    s = v->cur->parent;
  }
  if (when) par_emit(v, OP_COPY, 2, ir_arg_region(acc), ir_arg_region(p->c.r));
  if (s) v->cur = &s->alt;
  if (!when || s) par_emit(v, OP_ATOMIC_ADD, 2, ir_arg_region(acc), ir_arg_region(p->c.r));
  v->cur = outer;
  if (flag) par_emit_flag_off(v, flag);
  if (fresh) par_note_acc_init(v->p, w->buf, v->loc);
}

static void emit_local_product(Par *v, Product *p) {
  IrExpr *at[MAX_AXES];
  IrBlock *outer = par_enter_loops(v, p->serial, at);
  into_loops(v, p->serial, at, &p->a.r);
  into_loops(v, p->serial, at, &p->b.r);
  into_loops(v, p->serial, at, &p->c.r);
  stage(v, &p->a);
  stage(v, &p->b);
  emit_gemm(v, p, p->c.r, NULL);
  v->cur = outer;
}

static bool sized(const Par *v, const Matrix *m) {
  return m->r.buf->space != SPACE_GM || (v->ax[m->row].cap > 0 && v->ax[m->col].cap > 0);
}

bool par_gemm_statement(Par *v, const Work *w) {
  if (w->kind != WORK_SUM || w->guard || w->buf->rank < 2) return false;
  IrExpr *mul = product_of(w->value);
  IrExpr *x = mul ? factor(mul->arg[0]) : NULL, *y = mul ? factor(mul->arg[1]) : NULL;
  if (!x || !y) return false;
  uint32_t gone = par_axes_of(v, w->value) & ~par_left_axes(v, w);
  Product p;
  bool found = false;
  for (int k = v->n - 1; k >= 0 && !found; k--) found = (gone >> k & 1) && match(v, w, x, y, k, &p);
  if (!found) return false;
  DType ct = w->buf->type, at = x->buf->type;
  Space cs = w->buf->space;
  bool acc_ok = cs == SPACE_FRAGMENT || cs == SPACE_SHARED || cs == SPACE_L0C || cs == SPACE_GM;
  DType acc = at == DT_I8 ? DT_I32 : DT_F32; /* of a product that goes to GM */
  bool legal = cs == SPACE_GM ? cube_takes(at, y->buf->type, acc) && dtype_is_float(ct) == dtype_is_float(acc)
                              : cube_takes(at, y->buf->type, ct);
  if (cs == SPACE_GM && ct != acc) { /* a conversion can write, not add */
    IrExpr *when = par_never_written(v->p, w->buf, v->stmt, v)
                       ? par_first_time(v->p, w->buf, w->idx, w->buf->rank, v->cur, v)
                       : NULL;
    legal = legal && ct != DT_I8 && when && when->op == EX_INT;
  }
  if (!legal || !acc_ok || !usable_factor(x->buf) || !usable_factor(y->buf)) {
    warn_not_cube(v, w, &p);
    return false;
  }
  if (!addressable(v, &p)) return false;
  if (!sized(v, &p.a) || !sized(v, &p.b) || (cs == SPACE_GM && !sized(v, &p.c))) return false;
  IrRegion tile;
  if (cs == SPACE_GM) {
    gm_accumulator(v, &p, acc, &tile);
    emit_gm_product(v, w, &p, tile);
  } else {
    emit_local_product(v, &p);
  }
  pass_remark(v->p, "parallel", v->loc, "a matrix product of %%%s and %%%s: goes to the cube", p.a.r.buf->name,
              p.b.r.buf->name);
  return true;
}

void par_gemm_init(PassCtx *p, IrStmt *s, const Par *v) {
  IrRegion *c = &s->args[2].region;
  const IrStmt *at = v ? v->stmt : s;
  if (ir_attr(s, ATTR_INIT)) return;
  if (v) ir_remove(s); /* it must not count as a writer before itself */
  bool fresh = par_never_written(p, c->buf, at, v);
  if (v) ir_append(v->cur, s);
  if (!fresh) return;
  IrExpr *when = par_first_time(p, c->buf, c->off, c->buf->rank, s->block, v);
  if (!when) {
    IrVar *flag = par_first_flag(p, c->buf, s->loc);
    when = ir_var(p->k, flag);
    IrStmt *off = ir_new_stmt(p->k, ST_ASSIGN, s->loc);
    off->set.var = flag;
    off->set.value = ir_int(p->k, DT_BOOL, 0);
    ir_insert_after(s, off);
  }
  ir_set_attr(p->k, s, ATTR_INIT, when);
  par_note_acc_init(p, c->buf, s->loc);
}
