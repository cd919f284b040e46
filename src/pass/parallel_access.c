/* parallel_access.c - element accesses as regions: which axes an index moves along, and whether what it touches is a
 * box.
 *
 * An index is read as coef * axis + offset. An access is a box when every index is fixed or one axis with coefficient
 * 1, the axes come in the order of the box, none twice, and the last one is contiguous. Otherwise the reason is kept,
 * in words. */
#include "parallel.h"

/* ---- questions about expressions -------------------------------------------------------------------------- */

uint32_t par_axes_of(const Par *v, const IrExpr *e) {
  uint32_t m = 0;
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT: return 0;
  case EX_VAR:
    for (int i = 0; i < v->n; i++)
      if (v->ax[i].var == e->var) m |= 1u << i;
    return m;
  case EX_LOAD:
    for (int i = 0; i < e->n; i++) m |= par_axes_of(v, e->idx[i]);
    return m;
  default:
    for (int i = 0; i < e->n; i++) m |= par_axes_of(v, e->arg[i]);
    return m;
  }
}

uint32_t par_left_axes(const Par *v, const Work *w) {
  uint32_t m = 0;
  for (int d = 0; d < w->buf->rank; d++) m |= par_axes_of(v, w->idx[d]);
  return m;
}

bool par_reads_buf(const IrExpr *e, const IrBuf *b) {
  if (e->op == EX_LOAD) {
    if (e->buf == b) return true;
    for (int i = 0; i < e->n; i++)
      if (par_reads_buf(e->idx[i], b)) return true;
    return false;
  }
  for (int i = 0; e->op > EX_LOAD && i < e->n; i++)
    if (par_reads_buf(e->arg[i], b)) return true;
  return false;
}

enum { MOST_BEFORE = 256 };

bool par_proven_inside(Par *v, IrExpr *e) {
  if (e->op == EX_LOAD) {
    bool box = e->buf->space == SPACE_GM && par_classify(v, e->buf, e->idx, ~0u).ok;
    for (int i = 0; i < e->n; i++) {
      int64_t lo = ir_range(v->k, e->idx[i]).lo;
      bool before = box && lo > -MOST_BEFORE; /* a copy gives zeros there */
      if (!par_proven_inside(v, e->idx[i]) || (lo < 0 && !before)) return false;
      IrExpr *last = ir_binary(v->k, EX_SUB, e->buf->shape[i], ir_i32(v->k, 1));
      bool clamped = box || (e->buf->space == SPACE_GM && par_axes_of(v, e->idx[i])); /* by the copy */
      if (!clamped && !ir_prove_le(v->k, e->idx[i], last)) return false;
    }
    return true;
  }
  for (int i = 0; e->op > EX_LOAD && i < e->n; i++)
    if (!par_proven_inside(v, e->arg[i])) return false;
  return true;
}

/* ---- accesses as regions ------------------------------------------------------------------------------------ */

Linear par_linear(const Par *v, IrExpr *e, uint32_t mask) {
  const Linear bad = {.axis = -1};
  if (!(par_axes_of(v, e) & mask)) return (Linear){-1, 0, e, true};
  if (e->op == EX_VAR) {
    for (int i = 0; i < v->n; i++)
      if (v->ax[i].var == e->var) return (Linear){i, 1, ir_int(v->k, e->type, 0), true};
  }
  if (e->op == EX_CAST && !dtype_is_float(e->type) && !dtype_is_float(e->arg[0]->type) && dtype_size(e->type) >= 4 &&
      dtype_size(e->arg[0]->type) >= 4) {
    Linear l = par_linear(v, e->arg[0], mask);
    if (l.ok) l.rest = ir_cast(v->k, e->type, l.rest);
    return l;
  }
  if (e->op == EX_NEG || (e->op == EX_MUL && e->arg[1]->op == EX_INT)) {
    int64_t c = e->op == EX_NEG ? -1 : e->arg[1]->i;
    Linear l = par_linear(v, e->arg[0], mask);
    l.coef *= c;
    if (l.ok) l.rest = ir_binary(v->k, EX_MUL, l.rest, ir_int(v->k, e->type, c));
    return l;
  }
  if (e->op == EX_ADD || e->op == EX_SUB) {
    Linear a = par_linear(v, e->arg[0], mask), b = par_linear(v, e->arg[1], mask);
    if (!a.ok || !b.ok || (a.axis >= 0 && b.axis >= 0 && a.axis != b.axis)) return bad;
    if (e->op == EX_SUB) b.coef = -b.coef;
    return (Linear){a.axis >= 0 ? a.axis : b.axis, a.coef + b.coef, ir_binary(v->k, e->op, a.rest, b.rest), true};
  }
  return bad;
}

bool par_axis_index(const Par *v, IrExpr *e, uint32_t mask, int *axis, IrExpr **offset) {
  Linear l = par_linear(v, e, mask);
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

const char *par_expr_text(Par *v, const IrExpr *e) {
  Text t;
  text_init(&t, v->p->arena);
  ir_print_expr(&t, e);
  return text_str(&t);
}

static void refuse_index(Par *v, Access *a, const IrBuf *buf, IrExpr *e, int64_t coef) {
  Arena *ar = v->p->arena;
  if (coef)
    refuse(a, arena_printf(ar, "index %s of %%%s steps by %lld", par_expr_text(v, e), buf->name, (long long)coef),
           "keep the elements contiguous: split the dimension of the tile so that the loop index stands alone");
  else if (e->op == EX_LOAD || (e->op == EX_CAST && e->arg[0]->op == EX_LOAD))
    refuse(a, arena_printf(ar, "index %s of %%%s is read from a tile", par_expr_text(v, e), buf->name),
           "copy whole rows in a serial loop, or gather with a tile op");
  else
    refuse(a, arena_printf(ar, "index %s of %%%s is not one loop index plus an offset", par_expr_text(v, e), buf->name),
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

Access par_classify(Par *v, IrBuf *buf, IrExpr **idx, uint32_t mask) {
  Access a = {.ok = true, .r = {.buf = buf}};
  int last_axis = -1, last_dim = -1;
  for (int d = 0; d < buf->rank; d++) {
    Linear l = par_linear(v, idx[d], mask);
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
      refuse(&a, arena_printf(v->p->arena, "%%%s is read along a diagonal", buf->name),
             "use one loop index per dimension");
    if (l.axis < last_axis)
      refuse(&a,
             arena_printf(v->p->arena,
                          "%%%s is transposed: its dimensions run in another order than those of the result",
                          buf->name),
             "let the tile have the order of the result, or transpose it with a copy");
    a.axis[d] = (int8_t)l.axis;
    a.span |= 1u << l.axis;
    a.r.off[d] = l.rest;
    a.r.ext[d] = v->ax[l.axis].ext;
    last_axis = l.axis;
    last_dim = d;
  }
  for (int d = last_dim + 1; last_dim >= 0 && d < buf->rank; d++)
    if (!ir_is_int(buf->shape[d], 1)) {
      a.column |= a.ok;
      refuse(&a,
             arena_printf(v->p->arena, "the elements of %%%s lie a row apart: its last index does not move", buf->name),
             "keep such a column in a tile of its own, one element a row");
    }
  IrRows rows;
  if (a.ok && !ir_rows(v->k, &a.r, &rows))
    refuse(&a, arena_printf(v->p->arena, "the box of %%%s has more than two strides", buf->name),
           "run the outer index as a serial loop");
  a.aligned = a.ok && is_aligned(v, &a);
  return a;
}

int par_row_axis(Par *v, IrBuf *buf, IrExpr **idx, uint32_t span, Access *row) {
  int last = 31 - __builtin_clz(span);
  if (span == 1u << last || v->ax[last].cap < 0 || v->ax[last].cap * dtype_size(buf->type) % 32) return -1;
  *row = par_classify(v, buf, idx, 1u << last);
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
