/* parallel_expr.c - one element statement over a box becomes vector ops.
 *
 * A value is either a scalar expression (nothing in it depends on the axes) or a region. A region spans some of
 * the axes and has extent 1 along the others, so that a sub-expression of %j alone is computed once per column:
 *
 *     c[i, j] = exp(b[j]) * a[i, j]        exp %b -> %t0[1, N] ; mul %a, %t0 -> %c
 *
 * Dimensions are compared from the last backwards, so `b[N]` serves as [1, N] as it is; a vector along the rows that
 * meets a matrix is first copied to a temporary [M, 1], which costs a move of a few bytes. Temporaries
 * come from a pool and ops work in place where the dtype allows. The destination itself serves as a temporary as
 * soon as nothing of the expression has still to read it.
 *
 * Leaves that are not boxes of a tile (strides, gathers, transposes) and operators without a vector instruction are
 * filled into a temporary by element loops, row by row where the rows are whole; everything around them stays
 * vectorised. Each such loop is reported with its price. Conditions become comparison masks, `&&` and `||` chains of selects. */
#include "parallel.h"

#include <math.h>

typedef struct {
  IrExpr *scalar; /* NULL: a region */
  IrRegion r;
  DType type;
  uint32_t span;
  const int8_t *dim; /* dimension of r that an axis of the span stands in; NULL: the axis itself */
  bool loose;        /* dimensions do not stand where the box has them: good only beside operands of the same span */
  IrBuf *temp;       /* the pool's tile behind r; may be overwritten and must be released */
} Val;

static Val eval(Par *v, IrExpr *e, const IrRegion *dst);

/* ---- questions about expressions -------------------------------------------------------------------------- */

uint32_t axes_of(const Par *v, const IrExpr *e) {
  uint32_t m = 0;
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT: return 0;
  case EX_VAR:
    for (int i = 0; i < v->n; i++)
      if (v->ax[i].var == e->var) m |= 1u << i;
    return m;
  case EX_LOAD:
    for (int i = 0; i < e->n; i++) m |= axes_of(v, e->idx[i]);
    return m;
  default:
    for (int i = 0; i < e->n; i++) m |= axes_of(v, e->arg[i]);
    return m;
  }
}

bool reads_buf(const IrExpr *e, const IrBuf *b) {
  if (e->op == EX_LOAD) {
    if (e->buf == b) return true;
    for (int i = 0; i < e->n; i++)
      if (reads_buf(e->idx[i], b)) return true;
    return false;
  }
  for (int i = 0; e->op > EX_LOAD && i < e->n; i++)
    if (reads_buf(e->arg[i], b)) return true;
  return false;
}

/* Does e read elements of w's destination other than the one that is being written? */
static bool reads_other_elements(Par *v, const Work *w, const IrExpr *e) {
  if (e->op == EX_LOAD && e->buf == w->buf) {
    bool same = true, apart = false;
    for (int i = 0; i < e->n; i++) {
      int64_t diff;
      if (ir_expr_equal(e->idx[i], w->idx[i])) continue;
      same = false;
      apart |= !axes_of(v, e->idx[i]) && !axes_of(v, w->idx[i]) && ir_const_diff(v->k, e->idx[i], w->idx[i], &diff) && diff;
    }
    return !same && !apart;
  }
  int n = e->op == EX_LOAD || e->op > EX_LOAD ? e->n : 0;
  for (int i = 0; i < n; i++)
    if (reads_other_elements(v, w, e->op == EX_LOAD ? e->idx[i] : e->arg[i])) return true;
  return false;
}

bool proven_inside(Par *v, IrExpr *e) {
  if (e->op == EX_LOAD) {
    for (int i = 0; i < e->n; i++) {
      if (!proven_inside(v, e->idx[i]) || ir_range(v->k, e->idx[i]).lo < 0) return false;
      IrExpr *last = ir_binary(v->k, EX_SUB, e->buf->shape[i], ir_i32(v->k, 1));
      bool clamped = e->buf->space == SPACE_GM && axes_of(v, e->idx[i]); /* by the copy */
      if (!clamped && !ir_prove_le(v->k, e->idx[i], last)) return false;
    }
    return true;
  }
  for (int i = 0; e->op > EX_LOAD && i < e->n; i++)
    if (!proven_inside(v, e->arg[i])) return false;
  return true;
}

/* ---- accesses as regions ------------------------------------------------------------------------------------ */

typedef struct { int axis; int64_t coef; IrExpr *rest; bool ok; } Linear; /* coef * axis + rest */

static Linear linear(const Par *v, IrExpr *e, uint32_t mask) {
  const Linear bad = {.axis = -1};
  if (!(axes_of(v, e) & mask)) return (Linear){-1, 0, e, true};
  if (e->op == EX_VAR) {
    for (int i = 0; i < v->n; i++)
      if (v->ax[i].var == e->var) return (Linear){i, 1, ir_int(v->k, e->type, 0), true};
  }
  if (e->op == EX_CAST && !dtype_is_float(e->type) && !dtype_is_float(e->arg[0]->type) && dtype_size(e->type) >= 4 &&
      dtype_size(e->arg[0]->type) >= 4) {
    Linear l = linear(v, e->arg[0], mask);
    if (l.ok) l.rest = ir_cast(v->k, e->type, l.rest);
    return l;
  }
  if (e->op == EX_NEG || (e->op == EX_MUL && e->arg[1]->op == EX_INT)) {
    int64_t c = e->op == EX_NEG ? -1 : e->arg[1]->i;
    Linear l = linear(v, e->arg[0], mask);
    l.coef *= c;
    if (l.ok) l.rest = ir_binary(v->k, EX_MUL, l.rest, ir_int(v->k, e->type, c));
    return l;
  }
  if (e->op == EX_ADD || e->op == EX_SUB) {
    Linear a = linear(v, e->arg[0], mask), b = linear(v, e->arg[1], mask);
    if (!a.ok || !b.ok || (a.axis >= 0 && b.axis >= 0 && a.axis != b.axis)) return bad;
    if (e->op == EX_SUB) b.coef = -b.coef;
    return (Linear){a.axis >= 0 ? a.axis : b.axis, a.coef + b.coef, ir_binary(v->k, e->op, a.rest, b.rest), true};
  }
  return bad;
}

bool axis_index(Par *v, IrExpr *e, uint32_t mask, int *axis, IrExpr **offset) {
  Linear l = linear(v, e, mask);
  *axis = l.axis;
  *offset = l.rest;
  return l.ok && (l.axis < 0 || l.coef == 1);
}

static void refuse(Access *a, const char *why, const char *fix) {
  if (!a->ok) return;
  a->ok = false;
  a->why = why;
  a->fix = fix;
}

static const char *text_of(Par *v, const IrExpr *e) {
  Text t;
  text_init(&t, v->p->arena);
  ir_print_expr(&t, e);
  return text_str(&t);
}

static void refuse_index(Par *v, Access *a, const IrBuf *buf, IrExpr *e, int64_t coef) {
  Arena *ar = v->p->arena;
  if (coef)
    refuse(a, arena_printf(ar, "index %s of %%%s steps by %lld", text_of(v, e), buf->name, (long long)coef),
           "keep the elements contiguous: split the dimension of the tile so that the loop index stands alone");
  else if (e->op == EX_LOAD || (e->op == EX_CAST && e->arg[0]->op == EX_LOAD))
    refuse(a, arena_printf(ar, "index %s of %%%s is read from a tile", text_of(v, e), buf->name),
           "copy whole rows in a serial loop, or gather with a tile op");
  else
    refuse(a, arena_printf(ar, "index %s of %%%s is not one loop index plus an offset", text_of(v, e), buf->name),
           "give every loop index a dimension of its own");
}

/* Do the dimensions of the access stand where those of the box stand, counted from the last? */
static bool is_aligned(const Par *v, const Access *a) {
  int rank = a->r.buf->rank;
  for (int t = 1; t <= rank; t++) {
    int axis = v->n - t, on = a->axis[rank - t];
    if (on >= 0 && on != axis) return false;
    if (on < 0 && axis >= 0 && (a->span >> axis & 1)) return false;
  }
  return rank >= v->n || !(a->span & ((1u << (v->n - rank)) - 1));
}

Access classify(Par *v, IrBuf *buf, IrExpr **idx, uint32_t mask) {
  Access a = {.ok = true, .r = {.buf = buf}};
  int last_axis = -1, last_dim = -1;
  for (int d = 0; d < buf->rank; d++) {
    Linear l = linear(v, idx[d], mask);
    a.axis[d] = -1;
    a.r.off[d] = idx[d];
    a.r.ext[d] = ir_i32(v->k, 1);
    if (!l.ok) {
      refuse_index(v, &a, buf, idx[d], 0);
      continue;
    }
    if (l.axis < 0 || !l.coef) continue;
    if (l.coef != 1) refuse_index(v, &a, buf, idx[d], l.coef);
    if (a.span >> l.axis & 1)
      refuse(&a, arena_printf(v->p->arena, "%%%s is read along a diagonal", buf->name), "use one loop index per dimension");
    if (l.axis < last_axis)
      refuse(&a, arena_printf(v->p->arena, "%%%s is transposed: its dimensions run in another order than those of the result", buf->name),
             "let the tile have the order of the result, or transpose it with a copy");
    a.axis[d] = (int8_t)l.axis;
    a.span |= 1u << l.axis;
    a.r.off[d] = l.rest;
    a.r.ext[d] = v->ax[l.axis].ext;
    last_axis = l.axis;
    last_dim = d;
  }
  for (int d = last_dim + 1; last_dim >= 0 && d < buf->rank; d++)
    if (!ir_is_int(buf->shape[d], 1))
      refuse(&a, arena_printf(v->p->arena, "the elements of %%%s lie a row apart: its last index does not move", buf->name),
             "keep such a column in a tile of its own, one element a row");
  IrRows rows;
  if (a.ok && !ir_rows(v->k, &a.r, &rows))
    refuse(&a, arena_printf(v->p->arena, "the box of %%%s has more than two strides", buf->name), "run the outer index as a serial loop");
  a.aligned = a.ok && is_aligned(v, &a);
  return a;
}

/* ---- statements and temporaries ----------------------------------------------------------------------------- */

static IrArg reg(IrRegion r) { return ir_arg_region(r); }
static IrArg sca(IrExpr *e) { return ir_arg_scalar(e); }

IrStmt *emit(Par *v, StmtOp op, int n_args, ...) {
  IrArg args[4];
  va_list ap;
  va_start(ap, n_args);
  for (int i = 0; i < n_args; i++) args[i] = va_arg(ap, IrArg);
  va_end(ap);
  IrStmt *s = ir_new_op(v->k, op, v->loc, n_args, args);
  ir_append(v->cur, s);
  return s;
}

IrStmt *emit_for(Par *v, const char *name, IrExpr *ext) {
  IrStmt *s = ir_new_stmt(v->k, ST_FOR, v->loc);
  s->loop.var = ir_new_var(v->k, name, DT_I32, VAR_LOOP, v->loc);
  s->loop.var->def = s;
  s->loop.lo = ir_i32(v->k, 0);
  s->loop.hi = ext;
  s->loop.step = ir_i32(v->k, 1);
  ir_append(v->cur, s);
  return s;
}

static void emit_store(Par *v, IrBuf *buf, IrExpr **idx, IrExpr *value, bool accumulate) {
  IrStmt *s = ir_new_stmt(v->k, ST_STORE, v->loc);
  s->store.buf = buf;
  s->store.idx = arena_array(v->p->arena, IrExpr *, buf->rank);
  for (int d = 0; d < buf->rank; d++) s->store.idx[d] = idx[d];
  s->store.value = ir_cast(v->k, buf->type, value);
  s->store.accumulate = accumulate;
  ir_append(v->cur, s);
}

IrBlock *enter_loops(Par *v, uint32_t axes, IrExpr **at) {
  IrBlock *outer = v->cur;
  for (int i = 0; i < v->n; i++) {
    if (!(axes >> i & 1)) continue;
    IrStmt *s = emit_for(v, v->ax[i].var->name, v->ax[i].ext);
    at[i] = ir_var(v->k, s->loop.var);
    v->cur = &s->body;
  }
  return outer;
}

IrExpr *at_loops(Par *v, uint32_t axes, IrExpr *const *at, IrExpr *e) {
  for (int i = 0; i < v->n; i++)
    if (axes >> i & 1) e = ir_subst(v->k, e, v->ax[i].var, at[i]);
  return e;
}

IrBuf *new_tile(Par *v, Space space, DType t, uint32_t span) {
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
  const char *name = arena_printf(v->p->arena, "t%d", (*v->n_names)++);
  IrBuf *b = ir_new_buf(v->k, name, t, space, rank, shape, v->loc);
  b->why = space == SPACE_UB ? "temporary of a vector expression" : NULL;
  IrStmt *s = ir_new_stmt(v->k, ST_ALLOC, v->loc);
  s->alloc.buf = b;
  ir_append(v->allocs, s);
  if (space == SPACE_UB) v->temp_bytes += round_up(bytes, 32);
  return b;
}

IrRegion tile_region(Par *v, IrBuf *tile, uint32_t span) {
  IrRegion r = ir_whole(v->k, tile);
  for (int i = 0; i < v->n; i++)
    if (span >> i & 1) r.ext[i] = v->ax[i].ext;
  return r;
}

IrExpr *tile_load(Par *v, IrBuf *tile, uint32_t span) {
  IrExpr *idx[MAX_AXES] = {ir_i32(v->k, 0)};
  for (int i = 0; i < v->n; i++) idx[i] = span >> i & 1 ? ir_var(v->k, v->ax[i].var) : ir_i32(v->k, 0);
  return ir_load(v->k, tile, idx);
}

static bool same_shape(const Par *v, const IrBuf *b, uint32_t span) {
  if (b->rank != (v->n ? v->n : 1)) return false;
  for (int i = 0; i < v->n; i++)
    if (!ir_is_int(b->shape[i], span >> i & 1 ? v->ax[i].cap : 1)) return false;
  return true;
}

static Val take(Par *v, DType t, uint32_t span) {
  Temp *found = NULL;
  for (uint32_t i = 0; i < v->temps.len && !found; i++) {
    Temp *x = &v->temps.data[i];
    if (!x->busy && !x->mask && x->buf->type == t && same_shape(v, x->buf, span)) found = x;
  }
  if (!found) {
    Temp x = {new_tile(v, SPACE_UB, t, span), span, false, false};
    vec_push(v->p->arena, &v->temps, x);
    found = &v->temps.data[v->temps.len - 1];
  }
  found->busy = true;
  return (Val){.r = tile_region(v, found->buf, span), .type = t, .span = span, .temp = found->buf};
}

static IrBuf *take_mask(Par *v, uint32_t span) {
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
  int n = v->n;
  Axis keep = v->ax[0];
  v->n = 1;
  v->ax[0] = (Axis){NULL, bytes, bytes->i};
  Temp x = {new_tile(v, SPACE_UB, DT_U8, 1), span, true, true};
  v->n = n;
  v->ax[0] = keep;
  vec_push(v->p->arena, &v->temps, x);
  return x.buf;
}

static void release(Par *v, const IrBuf *temp) {
  for (uint32_t i = 0; temp && i < v->temps.len; i++)
    if (v->temps.data[i].buf == temp) v->temps.data[i].busy = false;
}

static Val scalar_val(IrExpr *e) { return (Val){.scalar = e, .type = e->type}; }

/* Where a result goes: the destination, an operand that is not needed any more, or a temporary. */
static Val place(Par *v, DType t, uint32_t span, const IrRegion *dst, Val *a, Val *b) {
  bool broadcasts = (a && a->span != span) || (b && b->span != span);
  if (dst && span == v->full && dst->buf->type == t && !(v->loose_dst && broadcasts))
    return (Val){.r = *dst, .type = t, .span = span, .loose = v->loose_dst};
  Val *operand[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    Val *x = operand[i];
    if (!x || !x->temp || x->span != span || x->type != t) continue;
    Val r = *x;
    x->temp = NULL;
    return r;
  }
  return take(v, t, span);
}

/* ---- element loops ------------------------------------------------------------------------------------------ */

static void warn_scalar(Par *v, uint32_t span, const char *why, const char *fix) {
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

static const char plain_fix[] = "compute this part with tile ops, or move it out of the parallel loop";

/* A tile with the values of e, filled element by element. */
static Val scalar_tile(Par *v, IrExpr *e, const char *why, const char *fix) {
  uint32_t span = axes_of(v, e);
  bool is_bool = e->type == DT_BOOL;
  if (is_bool) e = ir_select(v->k, e, ir_float(v->k, DT_F16, 1), ir_float(v->k, DT_F16, 0));
  warn_scalar(v, span, why, fix);
  Val t = take(v, e->type, span);
  IrExpr *at[MAX_AXES], *idx[MAX_AXES];
  IrBlock *outer = enter_loops(v, span, at);
  v->cur->parent->why = why;
  for (int i = 0; i < v->n; i++) idx[i] = span >> i & 1 ? at[i] : ir_i32(v->k, 0);
  emit_store(v, t.r.buf, idx, at_loops(v, span, at, e), false);
  v->cur = outer;
  return t;
}

/* The axis along which an irregular access is still a contiguous run of whole 32-byte blocks, or -1. */
static int row_axis(Par *v, IrBuf *buf, IrExpr **idx, uint32_t span, Access *row) {
  int last = 31 - __builtin_clz(span);
  if (span == 1u << last || v->ax[last].cap < 0 || v->ax[last].cap * dtype_size(buf->type) % 32) return -1;
  *row = classify(v, buf, idx, 1u << last);
  if (!row->ok || row->span != 1u << last) return -1;
  if (buf->space == SPACE_GM) return last;
  int64_t c0 = dtype_c0(buf->type);
  for (int d = 0, seen = 0; d < buf->rank; d++) {
    if (seen && (!ir_is_const(buf->shape[d]) || buf->shape[d]->i != 1)) return -1;
    if (row->axis[d] != last) continue;
    seen = 1;
    if (!ir_is_const(buf->shape[d]) || buf->shape[d]->i % c0) return -1;
    if (row->r.off[d]->op != EX_INT || row->r.off[d]->i % c0) return -1;
  }
  return last;
}

/* An irregular load as a tile. */
static Val gather_tile(Par *v, IrExpr *e, const char *why, const char *fix) {
  uint32_t span = axes_of(v, e);
  Access row;
  int last = vector_space(e->buf->space) || e->buf->space == SPACE_GM ? row_axis(v, e->buf, e->idx, span, &row) : -1;
  if (last < 0) return scalar_tile(v, e, why, fix);
  Val t = take(v, e->type, span);
  IrExpr *at[MAX_AXES];
  uint32_t serial = span & ~(1u << last);
  IrBlock *outer = enter_loops(v, serial, at);
  v->cur->parent->why = why;
  IrRegion to = t.r;
  for (int d = 0; d < e->buf->rank; d++) row.r.off[d] = at_loops(v, serial, at, row.r.off[d]);
  for (int i = 0; i < v->n; i++) {
    if (!(serial >> i & 1)) continue;
    to.off[i] = at[i];
    to.ext[i] = ir_i32(v->k, 1);
  }
  emit(v, OP_COPY, 2, reg(row.r), reg(to));
  v->cur = outer;
  pass_remark(v->p, "parallel", v->loc, "%s: one copy a row", why);
  return t;
}

/* ---- leaves ------------------------------------------------------------------------------------------------- */

static bool same_region(const IrRegion *a, const IrRegion *b) {
  if (a->buf != b->buf) return false;
  for (int d = 0; d < a->buf->rank; d++)
    if (!ir_expr_equal(a->off[d], b->off[d]) || !ir_expr_equal(a->ext[d], b->ext[d])) return false;
  return true;
}

static Val gm_tile(Par *v, const Access *a) {
  for (uint32_t i = 0; i < v->gm.len; i++)
    if (same_region(&v->gm.data[i].from, &a->r) && same_shape(v, v->gm.data[i].tile, a->span))
      return (Val){.r = tile_region(v, v->gm.data[i].tile, a->span), .type = a->r.buf->type, .span = a->span};
  IrBuf *tile = new_tile(v, SPACE_UB, a->r.buf->type, a->span);
  GmTile t = {a->r, tile};
  vec_push(v->p->arena, &v->gm, t);
  IrRegion r = tile_region(v, tile, a->span);
  emit(v, OP_COPY, 2, reg(a->r), reg(r));
  return (Val){.r = r, .type = tile->type, .span = a->span};
}

static Val eval_load(Par *v, IrExpr *e) {
  Space s = e->buf->space;
  if (!vector_space(s) && s != SPACE_GM) {
    Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_SPACE, v->loc, "%%%s stands in %s, where neither the vector nor the scalar unit can read it",
                       e->buf->name, space_info[s].name);
    diag_other(v->p->diags, g, e->buf->loc, "%%%s is declared here", e->buf->name);
    diag_fix(v->p->diags, g, "copy %%%s to a tile in ub first", e->buf->name);
    return take(v, e->type, axes_of(v, e)); /* nobody will see it */
  }
  Access a = classify(v, e->buf, e->idx, ~0u);
  if (!a.ok) return gather_tile(v, e, a.why, a.fix);
  if (s == SPACE_GM) return gm_tile(v, &a);
  int8_t *dim = arena_array(v->p->arena, int8_t, MAX_AXES);
  for (int d = 0; d < e->buf->rank; d++)
    if (a.axis[d] >= 0) dim[a.axis[d]] = (int8_t)d;
  return (Val){.r = a.r, .type = e->type, .span = a.span, .dim = dim, .loose = !a.aligned};
}

/* An integer expression of one axis: first + k * step. Floats hold it exactly up to `limit`. */
static bool is_ramp(Par *v, IrExpr *e, Linear *l, int64_t limit) {
  if (dtype_is_float(e->type) || e->type == DT_BOOL || e->op == EX_LOAD) return false;
  *l = linear(v, e, ~0u);
  if (!l->ok || l->axis < 0) return false;
  IrRange r = ir_range(v->k, e);
  return limit == 0 || (r.lo >= -limit && r.hi <= limit);
}

static Val eval_ramp(Par *v, const Linear *l, DType t, const IrRegion *dst) {
  Val r = place(v, t, 1u << l->axis, dst, NULL, NULL);
  emit(v, OP_ARANGE, 3, sca(ir_cast(v->k, t, l->rest)), sca(ir_int(v->k, t, l->coef)), reg(r.r));
  return r;
}

/* ---- operators ---------------------------------------------------------------------------------------------- */

static Val emit_unary(Par *v, StmtOp op, Val a, DType t, const IrRegion *dst) {
  Val r = place(v, t, a.span, dst, &a, NULL);
  emit(v, op, 2, reg(a.r), reg(r.r));
  release(v, a.temp);
  return r;
}

static Val emit_cast(Par *v, Val a, DType t, CastMode mode, const IrRegion *dst) {
  Val r = place(v, t, a.span, dst, &a, NULL);
  IrStmt *s = emit(v, OP_CAST, 2, reg(a.r), reg(r.r));
  if (mode != CAST_NONE) ir_set_attr(v->k, s, ATTR_MODE, ir_i32(v->k, mode));
  release(v, a.temp);
  return r;
}

/* x so that it can stand beside operands that span `span`. */
static Val settle(Par *v, Val x, uint32_t span) {
  if (x.scalar || !x.loose || x.span == span) return x;
  Val t = take(v, x.type, x.span);
  emit(v, OP_COPY, 2, reg(x.r), reg(t.r));
  return t;
}

/* a must be a region, b may be a scalar. */
static Val emit_binary(Par *v, StmtOp op, Val a, Val b, DType t, const IrRegion *dst) {
  uint32_t span = a.span | b.span;
  a = settle(v, a, span);
  b = settle(v, b, span);
  IrArg second = b.scalar ? sca(ir_cast(v->k, a.type, b.scalar)) : reg(b.r);
  Val r = place(v, t, span, dst, &a, b.scalar ? NULL : &b);
  emit(v, op, 3, reg(a.r), second, reg(r.r));
  release(v, a.temp);
  release(v, b.temp);
  return r;
}

static Val filled(Par *v, IrExpr *scalar, DType t, uint32_t span) {
  Val r = take(v, t, span);
  emit(v, OP_FILL, 2, sca(ir_cast(v->k, t, scalar)), reg(r.r));
  return r;
}

static StmtOp vector_op(ExprOp op) {
  switch (op) {
  case EX_ADD: return OP_ADD;
  case EX_SUB: return OP_SUB;
  case EX_MUL: return OP_MUL;
  case EX_DIV: return OP_DIV;
  case EX_MIN: return OP_MIN;
  case EX_MAX: return OP_MAX;
  case EX_AND: return OP_AND;
  case EX_OR: return OP_OR;
  case EX_XOR: return OP_XOR;
  case EX_SHL: return OP_SHL;
  case EX_SHR: return OP_SHR;
  case EX_EXP: return OP_EXP;
  case EX_LOG: return OP_LN;
  case EX_SQRT: return OP_SQRT;
  case EX_RSQRT: return OP_RSQRT;
  case EX_TANH: return OP_TANH;
  case EX_ABS: return OP_ABS;
  case EX_NOT: return OP_NOT;
  default: return OP_COUNT;
  }
}

static Val with_scalar_first(Par *v, ExprOp op, IrExpr *s, Val b, DType t, const IrRegion *dst) {
  if (op == EX_SUB) { /* s - b = b * -1 + s */
    Val neg = emit_binary(v, OP_MUL, b, scalar_val(ir_int(v->k, t, -1)), t, dst);
    return emit_binary(v, OP_ADD, neg, scalar_val(s), t, dst);
  }
  if (op == EX_DIV) return emit_binary(v, OP_DIV, filled(v, s, t, b.span), b, t, dst);
  return emit_binary(v, vector_op(op), b, scalar_val(s), t, dst); /* the others commute */
}

static Val eval_arith(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *l = e->arg[0], *r = e->arg[1];
  Val a = eval(v, l, dst && !reads_buf(r, dst->buf) ? dst : NULL);
  bool dst_free = dst && (a.scalar ? !reads_buf(a.scalar, dst->buf) : a.r.buf != dst->buf);
  Val b = eval(v, r, dst_free ? dst : NULL);
  if (a.scalar) return with_scalar_first(v, e->op, a.scalar, b, e->type, dst);
  return emit_binary(v, vector_op(e->op), a, b, e->type, dst);
}

/* pow with a constant exponent: a whole one by squaring, a half one with a square root, else exp(y * ln x). */
static Val eval_pow(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0], *y = e->arg[1];
  double p = y->op == EX_FLOAT ? y->f : y->op == EX_INT ? (double)y->i : NAN;
  IrKernel *k = v->k;
  if (p == 0.5) return eval(v, ir_unary(k, EX_SQRT, x), dst);
  if (p == -0.5) return eval(v, ir_unary(k, EX_RSQRT, x), dst);
  if (p != floor(p) || fabs(p) > 64)
    return eval(v, ir_unary(k, EX_EXP, ir_binary(k, EX_MUL, ir_unary(k, EX_LOG, x), y)), dst);
  int n = (int)fabs(p);
  if (n == 0) return scalar_val(ir_int(k, e->type, 1)); /* eval makes a tile of it */
  Val base = eval(v, x, NULL), acc = {0};
  bool have = false;
  for (; n; n >>= 1) {
    if (n & 1) {
      if (have) {
        Val b = base;
        b.temp = NULL; /* still needed for squares */
        acc = emit_binary(v, OP_MUL, acc, b, e->type, NULL);
      } else {
        acc = base; /* takes over the tile, if there is one */
        base.temp = NULL;
      }
      have = true;
    }
    if (n > 1) {
      Val b = base;
      b.temp = NULL;
      base = emit_binary(v, OP_MUL, base, b, e->type, NULL);
    }
  }
  if (acc.temp != base.temp) release(v, base.temp);
  return p < 0 ? emit_binary(v, OP_DIV, filled(v, ir_int(k, e->type, 1), e->type, acc.span), acc, e->type, dst) : acc;
}

/* floor, ceil, round: a cast inside f32. */
static Val eval_rounding(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0];
  if (!dtype_is_float(x->type)) return eval(v, x, dst);
  CastMode mode = e->op == EX_FLOOR ? CAST_FLOOR : e->op == EX_CEIL ? CAST_CEIL : CAST_RINT;
  Val a = eval(v, ir_cast(v->k, DT_F32, x), NULL);
  a = emit_cast(v, a, DT_F32, mode, e->type == DT_F32 ? dst : NULL);
  return e->type == DT_F32 ? a : emit_cast(v, a, e->type, CAST_NONE, dst);
}

/* Integer a // b and a % b for a positive constant b: a shift, or a product with 1 / b that f32 holds exactly enough. */
static Val eval_int_division(Par *v, IrExpr *e, const IrRegion *dst) {
  IrKernel *k = v->k;
  IrExpr *a = e->arg[0], *b = e->arg[1];
  if (e->op == EX_MOD && (b->i & (b->i - 1)) != 0)
    return eval(v, ir_binary(k, EX_SUB, a, ir_binary(k, EX_MUL, ir_binary(k, EX_FDIV, a, b), b)), dst);
  if ((b->i & (b->i - 1)) == 0) {
    IrExpr *sh = ir_int(k, e->type, __builtin_ctzll((uint64_t)b->i));
    IrExpr *q = ir_binary(k, EX_SHR, a, sh);
    return eval(v, e->op == EX_FDIV ? q : ir_binary(k, EX_SUB, a, ir_binary(k, EX_SHL, q, sh)), dst);
  }
  Val x = eval(v, ir_cast(k, DT_F32, a), NULL);
  x = emit_binary(v, OP_ADD, x, scalar_val(ir_float(k, DT_F32, 0.5)), DT_F32, NULL);
  x = emit_binary(v, OP_MUL, x, scalar_val(ir_float(k, DT_F32, 1.0 / (double)b->i)), DT_F32, NULL);
  return emit_cast(v, x, e->type, CAST_FLOOR, dst);
}

/* ---- conditions --------------------------------------------------------------------------------------------- */

static bool is_compare(ExprOp op) { return op >= EX_LT && op <= EX_NE; }

/* x over the whole of `span`, contiguous, as masks need it; scalars stay. */
static Val whole(Par *v, Val x, uint32_t span) {
  IrRows rows;
  if (x.scalar) return x;
  if (x.span == span && ir_rows(v->k, &x.r, &rows) && ir_is_int(rows.rows, 1)) return x;
  Val t = take(v, x.type, span);
  if (x.span == span) {
    emit(v, OP_COPY, 2, reg(x.r), reg(t.r));
  } else {
    IrStmt *s = emit(v, OP_BROADCAST, 2, reg(x.r), reg(t.r));
    ir_set_attr(v->k, s, ATTR_DIM, ir_i32(v->k, __builtin_ctz(span & ~x.span)));
  }
  release(v, x.temp);
  return t;
}

static CmpMode mirror(CmpMode m) {
  switch (m) {
  case CMP_GT: return CMP_LT;
  case CMP_GE: return CMP_LE;
  case CMP_LT: return CMP_GT;
  case CMP_LE: return CMP_GE;
  default: return m;
  }
}

/* The dtype a comparison of e's operands runs in; DT_BOOL: none. */
static DType compare_type(Par *v, const IrExpr *e) {
  DType t = e->arg[0]->type;
  if (t == DT_F16 || t == DT_F32) return t;
  if (t == DT_I8 || t == DT_U8) return DT_F16;
  if (t == DT_BF16 || t == DT_I16) return DT_F32;
  if (t != DT_I32 && t != DT_I64) return DT_BOOL;
  bool small = true;
  for (int i = 0; i < 2; i++) {
    IrRange r = ir_range(v->k, e->arg[i]);
    small &= r.lo >= -(1 << 24) && r.hi <= 1 << 24;
  }
  return small ? DT_F32 : t == DT_I32 ? DT_I32 : DT_BOOL;
}

/* A mask of the bits of comparison e over span; *swap: its bits are inverted. */
static IrBuf *compare_mask(Par *v, IrExpr *e, uint32_t span, bool *swap) {
  static const CmpMode modes[] = {CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_EQ, CMP_NE};
  IrKernel *k = v->k;
  CmpMode mode = modes[e->op - EX_LT];
  DType t = compare_type(v, e);
  IrExpr *l = ir_cast(k, t, e->arg[0]), *r = ir_cast(k, t, e->arg[1]);
  *swap = false;
  if (t == DT_I32) { /* the unit compares i32 for equality only: a <= b is min(a, b) == a */
    *swap = mode == CMP_NE || mode == CMP_LT || mode == CMP_GT;
    if (mode == CMP_LE || mode == CMP_GT) r = ir_binary(k, EX_MIN, l, r);
    if (mode == CMP_GE || mode == CMP_LT) r = ir_binary(k, EX_MAX, l, r);
    mode = CMP_EQ;
  }
  Val a = whole(v, eval(v, l, NULL), span), b = whole(v, eval(v, r, NULL), span);
  if (a.scalar) {
    Val c = a;
    a = b;
    b = c;
    mode = mirror(mode);
  }
  IrBuf *mask = take_mask(v, span);
  IrStmt *s = emit(v, OP_COMPARE, 3, reg(a.r), b.scalar ? sca(b.scalar) : reg(b.r), reg(ir_whole(k, mask)));
  ir_set_attr(k, s, ATTR_CMP, ir_i32(k, mode));
  release(v, a.temp);
  release(v, b.temp);
  return mask;
}

static Val select_leaf(Par *v, IrBuf *mask, Val a, Val b, uint32_t span, const IrRegion *dst) {
  Val own = {0};
  if (a.scalar) a = own = filled(v, a.scalar, a.type, span);
  Val r = place(v, a.type, span, dst, own.temp ? &own : NULL, NULL);
  emit(v, OP_SELECT, 4, reg(ir_whole(v->k, mask)), reg(a.r), b.scalar ? sca(b.scalar) : reg(b.r), reg(r.r));
  release(v, own.temp);
  release(v, mask);
  return r;
}

static void move_into(Par *v, Val x, Val to) {
  if (x.scalar) emit(v, OP_FILL, 2, sca(x.scalar), reg(to.r));
  else emit(v, OP_COPY, 2, reg(x.r), reg(to.r));
}

static Val select_fixed(Par *v, IrExpr *cond, Val a, Val b, uint32_t span, const IrRegion *dst) {
  Val r = place(v, a.type, span, dst, NULL, NULL);
  IrStmt *s = ir_new_stmt(v->k, ST_IF, v->loc);
  s->test.cond = cond;
  ir_append(v->cur, s);
  IrBlock *outer = v->cur;
  v->cur = &s->body;
  move_into(v, a, r);
  v->cur = &s->alt;
  move_into(v, b, r);
  v->cur = outer;
  return r;
}

/* cond ? a : b over span; a and b (f16 or f32) are whole or scalars and stay the caller's. */
static Val choose(Par *v, IrExpr *cond, Val a, Val b, uint32_t span, const IrRegion *dst) {
  IrKernel *k = v->k;
  if (!axes_of(v, cond)) return select_fixed(v, cond, a, b, span, dst);
  if (cond->op == EX_LNOT) return choose(v, cond->arg[0], b, a, span, dst);
  if (cond->op == EX_LAND || cond->op == EX_LOR) {
    Val inner = choose(v, cond->arg[1], a, b, span, NULL);
    bool both = cond->op == EX_LAND;
    Val r = choose(v, cond->arg[0], both ? inner : a, both ? b : inner, span, dst);
    if (inner.temp != r.temp) release(v, inner.temp);
    return r;
  }
  if (cond->op == EX_SELECT) {
    Val yes = choose(v, cond->arg[1], a, b, span, NULL), no = choose(v, cond->arg[2], a, b, span, NULL);
    Val r = choose(v, cond->arg[0], yes, no, span, dst);
    release(v, yes.temp);
    release(v, no.temp);
    return r;
  }
  bool swap = false;
  IrBuf *mask;
  if (is_compare(cond->op) && compare_type(v, cond) != DT_BOOL) {
    mask = compare_mask(v, cond, span, &swap);
  } else { /* a bool tile, or a comparison the vector unit does not know: bytes or halves against zero */
    Val x;
    if (cond->op == EX_LOAD) x = emit_cast(v, eval_load(v, cond), DT_F16, CAST_NONE, NULL);
    else x = scalar_tile(v, cond, arena_printf(v->p->arena, "%s has no vector form", text_of(v, cond)), plain_fix);
    x = whole(v, x, span);
    mask = take_mask(v, span);
    IrStmt *s = emit(v, OP_COMPARE, 3, reg(x.r), sca(ir_float(k, DT_F16, 0)), reg(ir_whole(k, mask)));
    ir_set_attr(k, s, ATTR_CMP, ir_i32(k, CMP_NE));
    release(v, x.temp);
  }
  return select_leaf(v, mask, swap ? b : a, swap ? a : b, span, dst);
}

static Val eval_select(Par *v, IrExpr *e, const IrRegion *dst) {
  IrKernel *k = v->k;
  IrExpr *c = e->arg[0], *a = e->arg[1], *b = e->arg[2];
  DType t = e->type;
  if (t == DT_I32 || t == DT_I16) /* b + c * (a - b) wraps to the exact choice */
    return eval(v, ir_binary(k, EX_ADD, b, ir_binary(k, EX_MUL, ir_cast(k, t, c), ir_binary(k, EX_SUB, a, b))), dst);
  if (t != DT_F16 && t != DT_F32) {
    DType w = t == DT_BF16 ? DT_F32 : DT_F16;
    return eval(v, ir_cast(k, t, ir_select(k, c, ir_cast(k, w, a), ir_cast(k, w, b))), dst);
  }
  uint32_t span = axes_of(v, e);
  Val x = whole(v, eval(v, a, NULL), span), y = whole(v, eval(v, b, NULL), span);
  Val r = choose(v, c, x, y, span, dst);
  release(v, x.temp);
  release(v, y.temp);
  return r;
}

/* A condition as numbers 1 and 0 of dtype t. */
static Val eval_truth(Par *v, IrExpr *cond, DType t, const IrRegion *dst) {
  DType w = t == DT_F32 ? DT_F32 : DT_F16;
  uint32_t span = axes_of(v, cond);
  Val r = choose(v, cond, scalar_val(ir_float(v->k, w, 1)), scalar_val(ir_float(v->k, w, 0)), span, w == t ? dst : NULL);
  return w == t ? r : emit_cast(v, r, t, CAST_NONE, dst);
}

/* ---- expressions -------------------------------------------------------------------------------------------- */

static bool wide_or_unsigned(DType t) { return t == DT_I64 || t == DT_U64 || t == DT_U32; }

/* Why the operator at the top of e cannot become vector ops; NULL: it can. */
static const char *no_vector_form(Par *v, IrExpr *e) {
  Arena *a = v->p->arena;
  if (e->op == EX_LOAD || e->type == DT_BOOL) return NULL;
  if (e->op == EX_BITS) return "a bit cast of elements has no vector op";
  if (wide_or_unsigned(e->type) && !(e->op == EX_CAST && e->type == DT_I64))
    return arena_printf(a, "the vector unit does not compute in %s", dtype_info[e->type].name);
  bool is_int = !dtype_is_float(e->type);
  switch (e->op) {
  case EX_SIN:
  case EX_COS: return arena_printf(a, "%s has no vector instruction", e->op == EX_SIN ? "sin" : "cos");
  case EX_POW:
    if (is_int && (e->arg[1]->op != EX_INT || e->arg[1]->i < 0)) return "an integer power needs a constant exponent";
    return e->arg[1]->op == EX_INT || e->arg[1]->op == EX_FLOAT ? NULL : "pow with an exponent that is no constant has no vector form";
  case EX_SHL:
  case EX_SHR: return axes_of(v, e->arg[1]) ? "a shift needs a count that is the same for all elements" : NULL;
  case EX_FDIV:
    if (!is_int) return NULL;
    /* fall through */
  case EX_MOD: {
    if (!is_int) return "a floating-point remainder has no vector instruction";
    IrExpr *b = e->arg[1];
    if (b->op != EX_INT || b->i <= 0) return "an integer division needs a positive constant divisor";
    IrRange r = ir_range(v->k, e->arg[0]);
    bool small = (r.lo >= -(1 << 21) && r.hi <= 1 << 21) || dtype_size(e->type) < 4;
    return (b->i & (b->i - 1)) == 0 || small ? NULL : "an integer division by this constant is not exact in f32 for the whole range of i32";
  }
  case EX_SELECT:
    return proven_inside(v, e->arg[1]) && proven_inside(v, e->arg[2])
               ? NULL
               : "an element that the condition leaves out may lie outside its tile";
  default: return NULL;
  }
}

static Val eval_cast(Par *v, IrExpr *e, const IrRegion *dst) {
  IrExpr *x = e->arg[0];
  Linear l;
  if (x->type == DT_BOOL && x->op != EX_LOAD) return eval_truth(v, x, e->type, dst);
  if ((e->type == DT_F32 && is_ramp(v, x, &l, 1 << 24)) || (e->type == DT_F16 && is_ramp(v, x, &l, 2048)))
    return eval_ramp(v, &l, e->type, dst);
  if (wide_or_unsigned(x->type) && is_ramp(v, x, &l, 1 << 30)) return eval(v, ir_cast(v->k, e->type, ir_cast(v->k, DT_I32, x)), dst);
  Val a = eval(v, x, NULL);
  bool trunc = dtype_is_float(x->type) && !dtype_is_float(e->type);
  return emit_cast(v, a, e->type, trunc ? CAST_TRUNC : CAST_NONE, dst);
}

static Val eval_abs(Par *v, IrExpr *e, const IrRegion *dst) {
  Val a = eval(v, e->arg[0], dst);
  if (dtype_is_float(e->type)) return emit_unary(v, OP_ABS, a, e->type, dst);
  if (dtype_info[e->type].cls == 'u') return a;
  Val keep = a;
  keep.temp = NULL;
  Val neg = emit_binary(v, OP_MUL, keep, scalar_val(ir_int(v->k, e->type, -1)), e->type, NULL);
  return emit_binary(v, OP_MAX, a, neg, e->type, dst);
}

static Val eval_tile(Par *v, IrExpr *e, const IrRegion *dst) {
  Linear l;
  const char *why = no_vector_form(v, e);
  if ((e->type == DT_I32 || e->type == DT_I16) && is_ramp(v, e, &l, 0)) return eval_ramp(v, &l, e->type, dst);
  if (why) return scalar_tile(v, e, why, plain_fix);
  if (e->type == DT_BOOL && e->op != EX_LOAD) {
    if (e->op == EX_CAST) e = ir_binary(v->k, EX_NE, e->arg[0], ir_int(v->k, e->arg[0]->type, 0));
    return eval_truth(v, e, DT_BOOL, dst);
  }
  switch (e->op) {
  case EX_LOAD: return eval_load(v, e);
  case EX_CAST: return eval_cast(v, e, dst);
  case EX_SELECT: return eval_select(v, e, dst);
  case EX_NEG: return emit_binary(v, OP_MUL, eval(v, e->arg[0], dst), scalar_val(ir_int(v->k, e->type, -1)), e->type, dst);
  case EX_ABS: return eval_abs(v, e, dst);
  case EX_POW: return eval_pow(v, e, dst);
  case EX_FLOOR:
  case EX_CEIL:
  case EX_ROUND: return eval_rounding(v, e, dst);
  case EX_FDIV:
    if (dtype_is_float(e->type)) return eval(v, ir_unary(v->k, EX_FLOOR, ir_binary(v->k, EX_DIV, e->arg[0], e->arg[1])), dst);
    return eval_int_division(v, e, dst);
  case EX_MOD: return eval_int_division(v, e, dst);
  default: break;
  }
  if (e->n == 1) return emit_unary(v, vector_op(e->op), eval(v, e->arg[0], dst), e->type, dst);
  return eval_arith(v, e, dst);
}

/* The value of e: a scalar if and only if no axis stands in it. */
static Val eval(Par *v, IrExpr *e, const IrRegion *dst) {
  uint32_t span = axes_of(v, e);
  if (!span) return scalar_val(e);
  Val x = eval_tile(v, e, dst);
  return x.scalar ? filled(v, x.scalar, e->type, span) : x;
}

/* ---- statements --------------------------------------------------------------------------------------------- */

Work work_subst(Par *v, const Work *w, const IrVar *var, IrExpr *by) {
  Work r = *w;
  r.idx = arena_array(v->p->arena, IrExpr *, w->buf->rank);
  for (int d = 0; d < w->buf->rank; d++) r.idx[d] = ir_subst(v->k, w->idx[d], var, by);
  r.value = ir_subst(v->k, w->value, var, by);
  if (w->guard) r.guard = ir_subst(v->k, w->guard, var, by);
  return r;
}

uint32_t left_axes(const Par *v, const Work *w) {
  uint32_t m = 0;
  for (int d = 0; d < w->buf->rank; d++) m |= axes_of(v, w->idx[d]);
  return m;
}

/* The whole statement, element by element. */
void scalar_statement(Par *v, const Work *w, const char *why, const char *fix) {
  IrExpr *at[MAX_AXES], *idx[IR_MAX_RANK];
  uint32_t left = left_axes(v, w), all = left | axes_of(v, w->value) | (w->guard ? axes_of(v, w->guard) : 0);
  IrBlock *outer = v->cur;
  bool sums = w->kind == WORK_SUM;
  warn_scalar(v, all, why, fix);
  if (sums && w->fresh && (all != left || w->guard)) {
    enter_loops(v, left, at);
    for (int d = 0; d < w->buf->rank; d++) idx[d] = at_loops(v, left, at, w->idx[d]);
    emit_store(v, w->buf, idx, ir_int(v->k, w->buf->type, 0), false);
    v->cur = outer;
  } else if (w->fresh) {
    sums = false;
  }
  enter_loops(v, all, at);
  if (v->cur->parent && v->cur != outer) v->cur->parent->why = why;
  if (w->guard) {
    IrStmt *s = ir_new_stmt(v->k, ST_IF, v->loc);
    s->test.cond = at_loops(v, all, at, w->guard);
    ir_append(v->cur, s);
    v->cur = &s->body;
  }
  IrExpr *value = w->value;
  if (w->kind == WORK_MAX || w->kind == WORK_MIN)
    value = ir_binary(v->k, w->kind == WORK_MAX ? EX_MAX : EX_MIN, ir_load(v->k, w->buf, w->idx), value);
  for (int d = 0; d < w->buf->rank; d++) idx[d] = at_loops(v, all, at, w->idx[d]);
  emit_store(v, w->buf, idx, at_loops(v, all, at, value), sums);
  v->cur = outer;
}

/* Copies a tile to elements that are no box. */
static void scatter(Par *v, const Work *w, Val x, const Access *a) {
  uint32_t span = left_axes(v, w), serial = span;
  Access row;
  int last = x.scalar || x.span != span ? -1 : row_axis(v, w->buf, w->idx, span, &row);
  IrExpr *at[MAX_AXES];
  if (last >= 0) serial &= ~(1u << last);
  else warn_scalar(v, span, a->why, a->fix);
  IrBlock *outer = enter_loops(v, serial, at);
  if (v->cur != outer) v->cur->parent->why = a->why;
  if (last >= 0) {
    IrRegion from = x.r;
    for (int d = 0; d < w->buf->rank; d++) row.r.off[d] = at_loops(v, serial, at, row.r.off[d]);
    for (int i = 0; i < v->n; i++) {
      if (!(serial >> i & 1)) continue;
      int d = x.dim ? x.dim[i] : i;
      from.off[d] = ir_binary(v->k, EX_ADD, from.off[d], at[i]);
      from.ext[d] = ir_i32(v->k, 1);
    }
    emit(v, OP_COPY, 2, reg(from), reg(row.r));
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
    for (int d = 0; d < w->buf->rank; d++) idx[d] = at_loops(v, span, at, w->idx[d]);
    emit_store(v, w->buf, idx, value, false);
  }
  v->cur = outer;
}

/* Brings the value of the right side to its place. */
static void store_value(Par *v, const Work *w, Val x, const Access *a) {
  IrKernel *k = v->k;
  if (w->buf->space == SPACE_GM) v->gm.len = 0;
  if (!a->ok) {
    scatter(v, w, x, a);
  } else if (x.scalar && w->buf->space != SPACE_GM) {
    emit(v, OP_FILL, 2, sca(ir_cast(k, w->buf->type, x.scalar)), reg(a->r));
  } else if (!x.scalar && same_region(&x.r, &a->r)) {
    /* computed in place */
  } else {
    if (x.scalar) x = filled(v, x.scalar, w->buf->type, v->full);
    uint32_t missing = v->full & ~x.span;
    if (missing && w->buf->space != SPACE_GM) {
      int dim = 0;
      while (a->axis[dim] != __builtin_ctz(missing)) dim++;
      IrStmt *s = emit(v, OP_BROADCAST, 2, reg(x.r), reg(a->r));
      ir_set_attr(k, s, ATTR_DIM, ir_i32(k, dim));
    } else {
      if (x.span != v->full) x = whole(v, x, v->full);
      emit(v, OP_COPY, 2, reg(x.r), reg(a->r));
    }
  }
  release(v, x.temp);
}

/* `to[..] = from[..]`, perhaps with a conversion between floats, as one copy. */
static bool direct_copy(Par *v, const Work *w, IrExpr *val, const Access *to) {
  IrExpr *x = val->op == EX_CAST ? val->arg[0] : val;
  if (x->op != EX_LOAD || !to->ok) return false;
  Access from = classify(v, x->buf, x->idx, ~0u);
  if (!from.ok || from.span != v->full) return false;
  if (x != val) {
    bool floats = dtype_is_float(x->type) && dtype_is_float(val->type);
    bool moves = !vector_space(x->buf->space) || !vector_space(w->buf->space) || x->buf->space == SPACE_FRAGMENT;
    if (!floats || !moves) return false;
  }
  if (w->buf == x->buf) {
    if (reads_other_elements(v, w, x)) return false;
    if (same_region(&from.r, &to->r)) return true; /* nothing to do */
  }
  emit(v, OP_COPY, 2, reg(from.r), reg(to->r));
  if (w->buf->space == SPACE_GM) v->gm.len = 0;
  return true;
}

/* y += s * x and y += a * b have instructions of their own. */
static bool multiply_add(Par *v, const Work *w, IrExpr *val, const Access *to) {
  if (!to->ok || w->buf->space == SPACE_GM || (w->buf->type != DT_F16 && w->buf->type != DT_F32)) return false;
  if (val->op != EX_MUL || axes_of(v, val) != v->full || reads_other_elements(v, w, val)) return false;
  IrExpr *a = val->arg[0], *b = val->arg[1];
  if (axes_of(v, a) != v->full) {
    a = val->arg[1];
    b = val->arg[0];
  }
  if (axes_of(v, a) != v->full || (axes_of(v, b) && axes_of(v, b) != v->full)) return false;
  Val x = eval(v, a, NULL), y = eval(v, b, NULL);
  emit(v, y.scalar ? OP_AXPY : OP_MULADD, 3, reg(x.r), y.scalar ? sca(y.scalar) : reg(y.r), reg(to->r));
  release(v, x.temp);
  release(v, y.temp);
  return true;
}

static void elementwise(Par *v, const Work *w) {
  IrKernel *k = v->k;
  IrExpr *val = ir_cast(k, w->buf->type, w->value), *old = ir_load(k, w->buf, w->idx);
  Access to = classify(v, w->buf, w->idx, ~0u);
  bool adds = w->kind == WORK_SUM && !w->fresh;
  if (adds && !w->guard && multiply_add(v, w, val, &to)) return;
  if (adds) val = ir_binary(k, EX_ADD, old, val);
  if (w->kind == WORK_MAX || w->kind == WORK_MIN) val = ir_binary(k, w->kind == WORK_MAX ? EX_MAX : EX_MIN, old, val);
  if (w->guard) val = ir_select(k, w->guard, val, w->kind == WORK_SUM && w->fresh ? ir_int(k, w->buf->type, 0) : old);
  if (direct_copy(v, w, val, &to)) return;
  if (!vector_space(w->buf->space) && w->buf->space != SPACE_GM) {
    Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_SPACE, v->loc, "%%%s stands in %s, where neither the vector nor the scalar unit can write it",
                       w->buf->name, space_info[w->buf->space].name);
    diag_other(v->p->diags, g, w->buf->loc, "%%%s is declared here", w->buf->name);
    diag_fix(v->p->diags, g, "compute in a tile of ub and copy it");
    return;
  }
  bool direct = to.ok && w->buf->space != SPACE_GM && !reads_other_elements(v, w, val);
  v->loose_dst = !to.aligned;
  if (!to.ok && val->op == EX_LOAD && !w->guard) { /* element by element on both sides: no tile between */
    Access from = classify(v, val->buf, val->idx, ~0u), row;
    if (!from.ok || row_axis(v, w->buf, w->idx, left_axes(v, w), &row) < 0) {
      scalar_statement(v, w, to.why, to.fix);
      return;
    }
  }
  store_value(v, w, eval(v, val, direct ? &to.r : NULL), &to);
}

IrExpr *neutral(Par *v, WorkKind kind, DType t) {
  if (kind == WORK_SUM) return ir_int(v->k, t, 0);
  if (dtype_is_float(t)) return ir_float(v->k, t, kind == WORK_MAX ? -INFINITY : INFINITY);
  int bits = dtype_info[t].bits;
  if (dtype_info[t].cls == 'u') return ir_int(v->k, t, kind == WORK_MAX ? 0 : -1);
  int64_t low = -(int64_t)(1ull << (bits - 1));
  return ir_int(v->k, t, kind == WORK_MAX ? low : ~low);
}

/* A sum, maximum or minimum over the axes that the left side does not name. */
static void reduction(Par *v, const Work *w, uint32_t left, uint32_t gone) {
  IrKernel *k = v->k;
  IrExpr *val = ir_cast(k, w->buf->type, w->value);
  if (w->guard) val = ir_select(k, w->guard, val, neutral(v, w->kind, w->buf->type));
  StmtOp op = w->kind == WORK_SUM ? OP_REDUCE_SUM : w->kind == WORK_MAX ? OP_REDUCE_MAX : OP_REDUCE_MIN;
  v->full = left | gone;
  Access to = classify(v, w->buf, w->idx, ~0u);
  bool direct = to.ok && w->buf->space != SPACE_GM;
  Val x = eval(v, val, NULL);
  uint32_t span = v->full;
  if (x.span != span) x = whole(v, x, span);
  while (gone) {
    int axis = 31 - __builtin_clz(gone);
    gone &= ~(1u << axis);
    bool final = !gone && direct;
    span &= ~(1u << axis);
    Val out = {0};
    if (!final) out = take(v, w->buf->type, span);
    IrStmt *s = emit(v, op, 2, reg(x.r), reg(final ? to.r : out.r));
    ir_set_attr(k, s, ATTR_DIM, ir_i32(k, x.dim ? x.dim[axis] : axis));
    if (final && !w->fresh) ir_set_attr(k, s, ATTR_KEEP, ir_i32(k, 1));
    release(v, x.temp);
    x = out;
  }
  if (direct) return;
  Work rest = *w; /* destination is no local box: combine the reduced tile with it element by element */
  rest.guard = NULL;
  rest.value = tile_load(v, x.temp, span);
  v->full = left;
  elementwise(v, &rest);
  release(v, x.temp);
}

void vector_statement(Par *v, const Work *w) {
  uint32_t left = left_axes(v, w), right = axes_of(v, w->value) | (w->guard ? axes_of(v, w->guard) : 0);
  v->full = left;
  if (right & ~left) reduction(v, w, left, right & ~left);
  else elementwise(v, w);
}
