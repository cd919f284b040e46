/* parallel_emit.c - what the parallel pass writes with: statements, loops over axes, and tiles from a pool. */
#include "parallel.h"

static IrArg reg(IrRegion r) { return ir_arg_region(r); }
static IrArg sca(IrExpr *e) { return ir_arg_scalar(e); }

/* ---- statements and temporaries ----------------------------------------------------------------------------- */

IrStmt *par_emit(Par *v, StmtOp op, int n_args, ...) {
  IrArg args[4];
  va_list ap;
  va_start(ap, n_args);
  for (int i = 0; i < n_args; i++) args[i] = va_arg(ap, IrArg);
  va_end(ap);
  IrStmt *s = ir_new_op(v->k, op, v->loc, n_args, args);
  ir_append(v->cur, s);
  return s;
}

IrStmt *par_emit_for(Par *v, const char *name, IrExpr *ext) {
  IrStmt *s = ir_new_stmt(v->k, ST_FOR, v->loc);
  s->loop.var = ir_new_var(v->k, name, DT_I32, VAR_LOOP, v->loc);
  s->loop.var->def = s;
  s->loop.lo = ir_i32(v->k, 0);
  s->loop.hi = ir_cast(v->k, DT_I32, ext);
  s->loop.step = ir_i32(v->k, 1);
  ir_append(v->cur, s);
  return s;
}

IrStmt *par_new_loop(PassCtx *p, const char *name, IrExpr *ext, Loc loc) {
  IrStmt *s = ir_new_stmt(p->k, ST_PARALLEL, loc);
  s->par.n = 1;
  s->par.vars = arena_array(p->arena, IrVar *, 1);
  s->par.ext = arena_array(p->arena, IrExpr *, 1);
  s->par.vars[0] = ir_new_var(p->k, name, DT_I32, VAR_LOOP, loc);
  s->par.vars[0]->def = s;
  s->par.ext[0] = ext;
  return s;
}

IrBlock *par_enter_if(Par *v, IrExpr *cond) {
  IrBlock *outer = v->cur;
  IrStmt *s = ir_new_stmt(v->k, ST_IF, v->loc);
  s->test.cond = cond;
  ir_append(v->cur, s);
  v->cur = &s->body;
  return outer;
}

void par_emit_store(Par *v, IrBuf *buf, IrExpr **idx, IrExpr *value, bool accumulate) {
  IrStmt *s = ir_new_stmt(v->k, ST_STORE, v->loc);
  s->store.buf = buf;
  s->store.idx = arena_array(v->p->arena, IrExpr *, buf->rank);
  for (int d = 0; d < buf->rank; d++) s->store.idx[d] = idx[d];
  s->store.value = ir_cast(v->k, buf->type, value);
  s->store.accumulate = accumulate;
  ir_append(v->cur, s);
}

IrBlock *par_enter_loops(Par *v, uint32_t axes, IrExpr **at) {
  IrBlock *outer = v->cur;
  for (int i = 0; i < v->n; i++) {
    if (!(axes >> i & 1)) continue;
    IrStmt *s = par_emit_for(v, v->ax[i].var->name, v->ax[i].ext);
    at[i] = ir_var(v->k, s->loop.var);
    v->cur = &s->body;
  }
  return outer;
}

IrExpr *par_at_loops(Par *v, uint32_t axes, IrExpr *const *at, IrExpr *e) {
  for (int i = 0; i < v->n; i++)
    if (axes >> i & 1) e = ir_subst(v->k, e, v->ax[i].var, at[i]);
  return e;
}

IrBuf *par_new_tile(Par *v, Space space, DType t, uint32_t span) {
  IrExpr *shape[MAX_AXES];
  int64_t bytes = dtype_size(t);
  int rank = v->n ? v->n : 1;
  shape[0] = ir_i32(v->k, 1);
  for (int i = 0; i < v->n; i++) {
    int64_t n = span >> i & 1 ? v->ax[i].cap : 1;
    if (n < 0) v->unsized = true;
    if (n < 1) n = 1;
    bytes *= n;
    shape[i] = ir_i32(v->k, n);
  }
  const char *name = arena_printf(v->p->arena, "t%d", v->facts->n_names++);
  IrBuf *b = ir_new_buf(v->k, name, t, space, rank, shape, v->loc);
  b->why = space == SPACE_UB ? "temporary of a vector expression" : NULL;
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = b;
  ir_append(v->allocs, s);
  if (space == SPACE_UB) v->temp_bytes += round_up(bytes, 32);
  return b;
}

IrRegion par_tile_region(Par *v, IrBuf *tile, uint32_t span) {
  IrRegion r = ir_whole(v->k, tile);
  for (int i = 0; i < v->n; i++)
    if (span >> i & 1) r.ext[i] = v->ax[i].ext;
  return r;
}

IrExpr *par_tile_load(Par *v, IrBuf *tile, uint32_t span) {
  IrExpr *idx[MAX_AXES] = {ir_i32(v->k, 0)};
  for (int i = 0; i < v->n; i++) idx[i] = span >> i & 1 ? ir_var(v->k, v->ax[i].var) : ir_i32(v->k, 0);
  return ir_load(v->k, tile, idx);
}

bool par_same_shape(const Par *v, const IrBuf *b, uint32_t span) {
  if (b->rank != (v->n ? v->n : 1)) return false;
  for (int i = 0; i < v->n; i++)
    if (!ir_is_int(b->shape[i], span >> i & 1 ? v->ax[i].cap : 1)) return false;
  return true;
}

Val par_take(Par *v, DType t, uint32_t span) {
  Temp *found = NULL;
  for (uint32_t i = 0; i < v->temps.len && !found; i++) {
    Temp *x = &v->temps.data[i];
    if (!x->busy && !x->mask && x->buf->type == t && par_same_shape(v, x->buf, span)) found = x;
  }
  if (!found) {
    Temp x = {par_new_tile(v, SPACE_UB, t, span), span, false, false};
    vec_push(v->p->arena, &v->temps, x);
    found = &v->temps.data[v->temps.len - 1];
  }
  found->busy = true;
  return (Val){.r = par_tile_region(v, found->buf, span), .type = t, .span = span, .temp = found->buf};
}

IrBuf *par_take_mask(Par *v, uint32_t span) {
  int64_t bits = 1;
  for (int i = 0; i < v->n; i++)
    if (span >> i & 1) bits *= v->ax[i].cap;
  if (bits < 0) v->unsized = true;
  IrExpr *bytes = ir_i32(v->k, max_i64(ceil_div(bits, 8), 1));
  for (uint32_t i = 0; i < v->temps.len; i++) {
    Temp *x = &v->temps.data[i];
    if (x->busy || !x->mask || !ir_expr_equal(x->buf->shape[0], bytes)) continue;
    x->busy = true;
    return x->buf;
  }
  Box box = par_box(v);
  v->n = 1;
  v->ax[0] = (Axis){NULL, bytes, bytes->i};
  Temp x = {par_new_tile(v, SPACE_UB, DT_U8, 1), span, true, true};
  par_put_box(v, &box);
  vec_push(v->p->arena, &v->temps, x);
  return x.buf;
}

void par_release(Par *v, const IrBuf *temp) {
  for (uint32_t i = 0; temp && i < v->temps.len; i++)
    if (v->temps.data[i].buf == temp) v->temps.data[i].busy = false;
}

/* x over the whole of `span`, contiguous, as masks need it; scalars stay. */
Val par_whole(Par *v, Val x, uint32_t span) {
  IrRows rows;
  if (x.scalar) return x;
  if (x.span == span && ir_rows(v->k, &x.r, &rows) && ir_is_int(rows.rows, 1)) return x;
  Val t = par_take(v, x.type, span);
  if (x.span == span) {
    par_emit(v, OP_COPY, 2, reg(x.r), reg(t.r));
  } else {
    IrStmt *s = par_emit(v, OP_BROADCAST, 2, reg(x.r), reg(t.r));
    ir_set_attr(v->k, s, ATTR_DIM, ir_i32(v->k, __builtin_ctz(span & ~x.span)));
  }
  par_release(v, x.temp);
  return t;
}

/* ---- element loops ------------------------------------------------------------------------------------------ */

void par_warn_scalar(Par *v, uint32_t span, const char *why, const char *fix) {
  int64_t n = 1;
  for (int i = 0; i < v->n; i++) {
    if (!(span >> i & 1)) continue;
    n = v->ax[i].cap < 0 ? -1 : n * v->ax[i].cap;
    if (n < 0) break;
  }
  Diag *g = n < 0 ? diag_add(v->p->diags, DIAG_PARALLEL_SCALAR, v->loc,
                             "%s; this becomes a scalar loop of about %d cycles an element", why, CYCLES_PER_ELEMENT)
                  : diag_add(v->p->diags, DIAG_PARALLEL_SCALAR, v->loc,
                             "%s; this becomes a scalar loop: %lld elements, about %lld cycles", why, (long long)n,
                             (long long)n * CYCLES_PER_ELEMENT);
  diag_fix(v->p->diags, g, "%s", fix);
}

/* "every index of the element lies inside the tensor"; NULL: proven. */
IrExpr *par_inside(Par *v, IrBuf *b, IrExpr *const *idx) {
  IrKernel *k = v->k;
  IrExpr *c = NULL;
  for (int d = 0; b->space == SPACE_GM && d < b->rank; d++) {
    IrExpr *last = ir_binary(k, EX_SUB, b->shape[d], ir_i32(k, 1));
    IrExpr *t[2] = {ir_range(k, idx[d]).lo < 0 && par_axes_of(v, idx[d]) ? ir_binary(k, EX_GE, idx[d], ir_i32(k, 0))
                                                                         : NULL,
                    ir_prove_le(k, idx[d], last) ? NULL : ir_binary(k, EX_LT, idx[d], b->shape[d])};
    for (int i = 0; i < 2; i++)
      if (t[i]) c = c ? ir_binary(k, EX_LAND, c, t[i]) : t[i];
  }
  return c;
}

/* e with loads from GM clamped as copies clamp: 0 outside. */
/* e with other operands. */
static IrExpr *rebuilt(Par *v, IrExpr *e, IrExpr **a) {
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT:
  case EX_VAR: return e;
  case EX_LOAD: return ir_load(v->k, e->buf, a);
  case EX_CAST: return ir_cast(v->k, e->type, a[0]);
  case EX_BITS: return ir_bits(v->k, e->type, a[0]);
  case EX_SELECT: return ir_select(v->k, a[0], a[1], a[2]);
  default: return e->n == 1 ? ir_unary(v->k, e->op, a[0]) : ir_binary(v->k, e->op, a[0], a[1]);
  }
}

IrExpr *par_safe_divisors(Par *v, IrExpr *e, IrExpr *guard) {
  IrExpr *a[IR_MAX_RANK];
  bool same = true;
  if (e->op < EX_LOAD || !par_axes_of(v, e)) return e;
  for (int i = 0; i < e->n; i++) {
    IrExpr *old = e->op == EX_LOAD ? e->idx[i] : e->arg[i];
    a[i] = par_safe_divisors(v, old, guard);
    same &= a[i] == old;
  }
  bool divides = (e->op == EX_FDIV || e->op == EX_MOD) && !dtype_is_float(e->type) && !ir_is_const(e->arg[1]) &&
                 !(e->arg[1]->op == EX_SELECT && ir_expr_equal(e->arg[1]->arg[0], guard));
  if (divides) a[1] = ir_select(v->k, guard, a[1], ir_int(v->k, a[1]->type, 1));
  return same && !divides ? e : rebuilt(v, e, a);
}

static IrExpr *clamp_loads(Par *v, IrExpr *e, bool of_axes) {
  IrExpr *a[IR_MAX_RANK];
  if (of_axes && !par_axes_of(v, e)) return e;
  for (int i = 0; i < e->n && e->op >= EX_LOAD; i++)
    a[i] = clamp_loads(v, e->op == EX_LOAD ? e->idx[i] : e->arg[i], of_axes);
  if (e->op == EX_LOAD) {
    IrExpr *load = ir_load(v->k, e->buf, a), *c = par_inside(v, e->buf, a);
    return c ? ir_select(v->k, c, load, ir_int(v->k, e->type, 0)) : load;
  }
  return rebuilt(v, e, a);
}

IrExpr *par_clamp_loads(Par *v, IrExpr *e) { return clamp_loads(v, e, true); }

Val par_filled(Par *v, IrExpr *scalar, DType t, uint32_t span) {
  Val r = par_take(v, t, span);
  par_emit(v, OP_FILL, 2, sca(ir_cast(v->k, t, clamp_loads(v, scalar, false))), reg(r.r));
  return r;
}
