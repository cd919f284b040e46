/* legalize_pieces.c - statements whose scratch is too large for UB are done again, a piece of their rows at a time.
 *
 * The pass remembers what it wrote for each statement. When memplan finds no room in UB, the statements with the
 * largest scratch are taken back, put into a loop over pieces of the outermost dimension with half of it, and legalized
 * again; memplan then tries once more. So a kernel that fits stays as it is. */
#include "legalize.h"

typedef struct Rewrite {
  IrStmt *from;         /* the statement; no longer in the program */
  IrStmt *first, *last; /* what stands for it */
  Vec(IrStmt *) allocs;
  int64_t scratch; /* bytes */
  bool warned;     /* it is not worth saying twice */
} Rewrite;

Rewrite *lg_remember(PassCtx *p, IrStmt *from, bool warned) {
  Rewrite *r = arena_new(p->arena, Rewrite);
  r->from = from;
  r->warned = warned;
  vec_push(p->arena, &p->rewrites, r);
  return r;
}

void lg_remember_alloc(PassCtx *p, Rewrite *r, IrStmt *alloc) {
  vec_push(p->arena, &r->allocs, alloc);
  if (!alloc->alloc.buf->view) r->scratch += ir_buf_bytes(alloc->alloc.buf);
}

void lg_remember_body(Rewrite *r, IrStmt *first, IrStmt *last) {
  r->first = first;
  r->last = last;
}

/* ---- cutting ---------------------------------------------------------------------------------------------------- */

static bool is_reduce(const IrStmt *s) {
  return s->op == OP_REDUCE_SUM || s->op == OP_REDUCE_MAX || s->op == OP_REDUCE_MIN;
}

/* The sides of a copy agree after extents of 1 are dropped: a column may become a row. */
static int place_in_copy(const IrRegion *over, int d, const IrRegion *r) {
  int at = 0;
  for (int x = 0; x <= d; x++) {
    if (x < d && ir_is_int(over->ext[x], 1)) continue;
    while (at < r->buf->rank && ir_is_int(r->ext[at], 1)) at++;
    at += x < d;
  }
  return at < r->buf->rank && ir_expr_equal(r->ext[at], over->ext[d]) ? at : -2;
}

/* Where dimension d of the region that the work runs over stands in another operand: -1 nowhere, -2 not known. */
static int place_of(const IrStmt *s, const IrRegion *over, int d, const IrRegion *r) {
  int at = d - (over->buf->rank - r->buf->rank);
  if (s->op == OP_COPY) return place_in_copy(over, d, r);
  if (is_reduce(s)) { /* the result lacks an axis, or has extent 1 there */
    int64_t axis = ir_attr_int(s, ATTR_DIM, -1);
    if (axis < 0) axis += over->buf->rank;
    if (r->buf->rank == over->buf->rank) at = d;
    else if (r->buf->rank == over->buf->rank - 1) at = d - (d > axis);
    else return -2;
    return ir_expr_equal(r->ext[at], over->ext[d]) ? at : -2;
  }
  if (at < 0) return -1;
  if (ir_expr_equal(r->ext[at], over->ext[d])) return at;
  return ir_is_int(r->ext[at], 1) ? -1 : -2;
}

/* The dimension to cut, and where it stands in each operand; -1: this statement is done whole or not at all. */
static int find_cut(const IrStmt *s, int *place) {
  bool elementwise = (s->op >= OP_ADD && s->op <= OP_CAST) || s->op == OP_FILL ||
                     (s->op == OP_COPY && !ir_attr(s, ATTR_TRANS));
  if (!elementwise && !is_reduce(s)) return -1;
  const IrRegion *dst = &s->args[s->n_args - 1].region, *over = is_reduce(s) ? &s->args[0].region : dst;
  int64_t axis = is_reduce(s) ? ir_attr_int(s, ATTR_DIM, -1) : over->buf->rank;
  if (axis < 0) axis += over->buf->rank;
  int d = 0;
  while (d < over->buf->rank && (d == axis || ir_is_int(over->ext[d], 1))) d++;
  if (d == over->buf->rank || (over->ext[d]->op != EX_INT && over->buf->shape[d]->op != EX_INT)) return -1;
  for (int i = 0; i < s->n_args; i++) {
    const IrRegion *r = &s->args[i].region;
    place[i] = -1;
    if (s->args[i].kind != ARG_REGION) continue;
    place[i] = place_of(s, over, d, r);
    if (place[i] == -2) return -1;
    /* every element is read before any is written: pieces must not write what a later piece reads */
    if (i + 1 < s->n_args && ir_root(r->buf) == ir_root(dst->buf) && !ir_region_equal(r, dst)) return -1;
  }
  return d;
}

/* The fewest rows after which every operand is on 32 bytes again. */
static int64_t unit_of(const IrStmt *s, const int *place) {
  int64_t unit = 1;
  for (int i = 0; i < s->n_args; i++) {
    if (place[i] < 0) continue;
    int64_t bytes = dtype_size(s->args[i].region.buf->type);
    for (int d = place[i] + 1; d < s->args[i].region.buf->rank; d++) bytes *= s->args[i].region.buf->shape[d]->i;
    while (unit * bytes % 32) unit *= 2;
  }
  return unit;
}

static IrStmt *piece_of(IrKernel *k, const IrStmt *s, const int *place, IrExpr *off, IrExpr *rows) {
  IrStmt *one = ir_clone(k, s);
  for (int i = 0; i < s->n_args; i++) {
    IrRegion *r = &one->args[i].region;
    if (place[i] < 0) continue;
    r->off[place[i]] = ir_binary(k, EX_ADD, r->off[place[i]], off);
    r->ext[place[i]] = rows;
  }
  return one;
}

/* r->from in pieces of at most `most` bytes of scratch, legalized, in its old place. */
static bool cut(PassCtx *p, Rewrite *r, int64_t most) {
  IrStmt *s = r->from;
  int place[8];
  int d = r->warned || !r->first ? -1 : find_cut(s, place);
  if (d < 0) return false;
  const IrRegion *over = is_reduce(s) ? &s->args[0].region : &s->args[s->n_args - 1].region;
  IrExpr *ext = over->ext[d];
  bool known = ext->op == EX_INT;
  int64_t all = known ? ext->i : min_i64(over->buf->shape[d]->i, ir_range(p->k, ext).hi);
  int64_t unit = unit_of(s, place), rows = max_i64(all * most / r->scratch / unit, 1) * unit, whole = all / rows;
  if (rows >= all) return false;
  IrStmt *loop = ir_new_stmt(p->k, ST_FOR, s->loc), *tail = NULL;
  loop->loop.var = ir_new_var(p->k, "piece", DT_I32, VAR_LOOP, s->loc);
  loop->loop.var->def = loop;
  loop->loop.lo = ir_i32(p->k, 0);
  loop->loop.hi = ir_i32(p->k, whole);
  if (!known)
    loop->loop.hi = ir_binary(p->k, EX_FDIV, ir_binary(p->k, EX_ADD, ext, ir_i32(p->k, rows - 1)), ir_i32(p->k, rows));
  loop->loop.step = ir_i32(p->k, 1);
  IrExpr *off = ir_binary(p->k, EX_MUL, ir_var(p->k, loop->loop.var), ir_i32(p->k, rows));
  IrExpr *each = ir_i32(p->k, rows);
  if (!known) each = ir_binary(p->k, EX_MIN, each, ir_binary(p->k, EX_SUB, ext, off));
  ir_append(&loop->body, piece_of(p->k, s, place, off, each));
  if (known && all % rows) tail = piece_of(p->k, s, place, ir_i32(p->k, whole * rows), ir_i32(p->k, all % rows));
  ir_insert_before(r->first, loop);
  if (tail) ir_insert_before(r->first, tail);
  for (IrStmt *x = r->first, *next;; x = next) {
    next = x->next;
    ir_remove(x);
    if (x == r->last) break;
  }
  for (uint32_t i = 0; i < r->allocs.len; i++) ir_remove(r->allocs.data[i]);
  r->first = NULL;
  lg_rewrite(p, loop->body.first);
  if (tail) lg_rewrite(p, tail);
  pass_remark(p, "legalize", s->loc, "'%s': in pieces of %lld rows, for its scratch of %lld bytes has no room in UB",
              op_info[s->op].name, (long long)rows, (long long)r->scratch);
  return true;
}

bool pass_legalize_tighter(PassCtx *p) {
  if (!p->ub_full) return false;
  for (;;) {
    Rewrite *largest = NULL;
    uint32_t n = p->rewrites.len;
    for (uint32_t i = 0; i < n; i++) {
      Rewrite *r = p->rewrites.data[i];
      if (r->first && r->scratch > (largest ? largest->scratch : 0)) largest = r;
    }
    if (!largest) return false;
    int64_t most = largest->scratch / 2;
    bool done = false;
    for (uint32_t i = 0; i < n; i++) {
      Rewrite *r = p->rewrites.data[i];
      if (!r->first || r->scratch <= most) continue;
      if (cut(p, r, most)) done = true;
      else r->scratch = 0;
    }
    if (done) return true;
  }
}
