/* scope.c - a physical memory and a layout for every local buffer.
 *
 * Uses decide: operands of `gemm` stand in L1, operands of `mmad` in L0A and L0B, accumulators of both in L0C, whatever
 * a vector op or an element access touches in UB. What only copies touch follows its partner: L1 if it feeds L0A/L0B or
 * comes from L0C and feeds L1, otherwise UB. A space the user declared is binding; a use it cannot serve is an error
 * that names both. Matrices in L1 and L0 get their fractal layouts.
 *
 * A UB tile whose rows are not whole 32-byte blocks cannot be the target of a DMA of several rows; when a copy needs
 * that, the tile's last dimension is padded here, once, and every later pass sees an ordinary buffer. */
#include "scope.h"

typedef struct { PassCtx *p; Use *use; bool spread; } Ctx;

static const char *const use_name[USE_COUNT] = {"an operand of a matrix product",
                                                "the left operand of mma",
                                                "the right operand of mma",
                                                "an accumulator",
                                                "an operand of a vector op",
                                                "an element access",
                                                "a copy",
                                                "a comparison mask",
                                                "given values"};

static void mark(Ctx *c, const IrBuf *b, uint32_t use, const IrStmt *s) {
  Use *u = &c->use[b->id];
  for (int i = 0; i < USE_COUNT; i++)
    if (use >> i & 1 && !u->first[i]) u->first[i] = s;
  u->uses |= use;
}

typedef struct { Ctx *c; const IrStmt *s; } ExprUse;
static void mark_load(IrExpr *e, void *user) {
  ExprUse *u = user;
  if (e->op == EX_LOAD) mark(u->c, e->buf, USE_ELEMENT, u->s);
}
static void mark_expr(IrExpr **e, void *user) { ir_walk_expr(*e, mark_load, user); }

static bool is_copy(const IrStmt *s) { return s->op == OP_COPY || s->op == OP_ATOMIC_ADD; }

static bool collect(IrStmt *s, void *user) {
  Ctx *c = user;
  ir_stmt_exprs(s, mark_expr, &(ExprUse){c, s});
  if (s->op == ST_STORE) mark(c, s->store.buf, USE_ELEMENT, s);
  if (!ir_is_op(s)) return true;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    uint32_t use = USE_VECTOR;
    if (is_copy(s)) use = i ? USE_COPY | USE_START : USE_COPY;
    else if (s->op == OP_FILL) use = ir_is_zero(s->args[0].scalar) ? 0 : USE_START; /* follows the other uses */
    else if (s->op == OP_GEMM) use = i == 2 ? USE_ACC : USE_GEMM_AB;
    else if (s->op == OP_MMAD) use = i == 2 ? USE_ACC : i ? USE_MMAD_B : USE_MMAD_A;
    else if ((s->op == OP_COMPARE && i == 2) || (s->op == OP_SELECT && i == 0)) use = USE_MASK | USE_VECTOR;
    mark(c, s->args[i].region.buf, use, s);
  }
  return true;
}

static void add_uses(Use *to, const Use *from) {
  for (int i = 0; i < USE_COUNT; i++)
    if (!to->first[i]) to->first[i] = from->first[i];
  to->uses |= from->uses;
}

/* What the cube holds in L1 goes nowhere but to it, and what it holds has one shape: an operand that is copied
 * elsewhere, or that has a view, is worked on in UB too (bridge.c). */
static bool find_copied_operand(IrStmt *s, void *user) {
  Ctx *c = user;
  if (!is_copy(s)) return true;
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  bool to_cube = dst->space == SPACE_L0A || dst->space == SPACE_L0B || c->use[dst->id].uses & (USE_MMAD_A | USE_MMAD_B);
  if (c->use[src->id].uses & USE_GEMM_AB && !space_info[src->space].physical && !to_cube) mark(c, src, USE_VECTOR, s);
  return true;
}

Use *scope_uses(PassCtx *p) {
  Ctx c = {p, arena_array(p->arena, Use, p->k->bufs.len + 1), false};
  ir_walk(&p->k->body, collect, &c);
  ir_walk(&p->k->body, find_copied_operand, &c);
  for (int back = 0; back < 2; back++) /* a buffer and its views are one place */
    for (uint32_t i = 1; i < p->k->bufs.len; i++) {
      IrBuf *b = p->k->bufs.data[i];
      if (!b->view) continue;
      Use *view = &c.use[b->id], *root = &c.use[ir_root(b)->id];
      uint32_t cube = root->uses & (USE_GEMM_AB | USE_ACC);
      if (back && cube && !space_info[b->space].physical)
        mark(&c, ir_root(b), USE_VECTOR, root->first[__builtin_ctz(cube)]);
      add_uses(back ? view : root, back ? root : view);
    }
  return c.use;
}

static bool serves(Space s, uint32_t use) {
  switch (use) {
  case USE_GEMM_AB: return s == SPACE_L1;
  case USE_MMAD_A: return s == SPACE_L0A;
  case USE_MMAD_B: return s == SPACE_L0B;
  case USE_ACC: return s == SPACE_L0C;
  case USE_VECTOR:
  case USE_MASK: return s == SPACE_UB;
  case USE_ELEMENT: return s == SPACE_UB || s == SPACE_GM;
  default: return true;
  }
}

static Space wanted(uint32_t use) {
  static const Space space[] = {SPACE_L1, SPACE_L0A, SPACE_L0B, SPACE_L0C};
  int i = __builtin_ctz(use);
  return i < (int)TL_COUNT(space) ? space[i] : SPACE_UB;
}

static void choose(IrBuf *b, Space s, const char *why) {
  b->space = s;
  b->why = why;
}

/* The space that uses other than copies ask for. */
static void place_by_use(Ctx *c, IrBuf *b) {
  uint32_t u = c->use[b->id].uses;
  if (u & USE_MMAD_A) choose(b, SPACE_L0A, "left operand of mma");
  else if (u & USE_MMAD_B) choose(b, SPACE_L0B, "right operand of mma");
  else if (u & USE_ACC) choose(b, SPACE_L0C, "accumulator of a matrix product");
  else if (u & USE_GEMM_AB) choose(b, SPACE_L1, "operand of a matrix product");
  else if (u & (USE_VECTOR | USE_ELEMENT)) choose(b, SPACE_UB, "operand of vector or scalar operations");
}

static bool place_by_copy(IrStmt *s, void *user) {
  Ctx *c = user;
  (void)c;
  if (!is_copy(s)) return true;
  IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  if (!space_info[src->space].physical && (dst->space == SPACE_L0A || dst->space == SPACE_L0B))
    choose(src, SPACE_L1, "feeds L0A or L0B");
  if (!space_info[dst->space].physical && src->space == SPACE_L1) choose(dst, SPACE_L1, "copied from L1");
  return true;
}

static bool check_uses(Ctx *c, IrBuf *b) {
  const Use *u = &c->use[b->id];
  for (int i = 0; i < USE_COUNT; i++) {
    if (!(u->uses >> i & 1) || serves(b->space, 1u << i)) continue;
    bool declared = !b->why;
    Diag *g =
        diag_add(c->p->diags, DIAG_SCOPE_CONFLICT, u->first[i]->loc,
                 "%%%s stands in %s%s, but here it is %s, which must stand in %s", b->name, space_info[b->space].name,
                 declared ? " as declared" : "", use_name[i], space_info[wanted(1u << i)].name);
    diag_other(c->p->diags, g, b->loc, "%%%s: %s", b->name, declared ? "declared here" : b->why);
    if (declared && 1u << i & (USE_GEMM_AB | USE_ACC | USE_VECTOR | USE_ELEMENT) &&
        !(u->uses & (USE_MMAD_A | USE_MMAD_B)))
      diag_fix(c->p->diags, g, "make %%%s with T.alloc_%s: the compiler then gives it the memories that its uses need",
               b->name, u->uses & USE_ACC ? "fragment" : "shared");
    else
      diag_fix(c->p->diags, g, "give the two uses two buffers and copy between them");
    return false;
  }
  return true;
}

static bool view_of_fractals(Ctx *c, const IrBuf *b) {
  const IrBuf *root = ir_root((IrBuf *)b);
  if (root->space == SPACE_UB || root->space == SPACE_GM) return true;
  Diag *g = diag_add(c->p->diags, DIAG_SCOPE_CONFLICT, b->loc,
                     "%%%s stands in %s%s, where a matrix lies in fractals of 512 bytes: it has one shape and dtype",
                     root->name, space_info[root->space].name, root->why ? "" : " as declared");
  diag_other(c->p->diags, g, root->loc, "%%%s: %s", root->name, root->why ? root->why : "declared here");
  diag_fix(c->p->diags, g, "declare it with the shape and dtype that it has here, and reshape the tensor that it is "
                           "loaded from; or T.alloc_shared, which leaves the memory to the compiler");
  return false;
}

/* Of a buffer with views, view_of_fractals tells. */
static bool two_dimensions(Ctx *c, const IrBuf *b) {
  const IrKernel *k = c->p->k;
  if (b->rank > 1 || space_info[b->space].side != 'c') return true;
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (k->bufs.data[i]->view && ir_root(k->bufs.data[i]) == b) return true;
  Diag *g = diag_add(c->p->diags, DIAG_SCOPE_CONFLICT, b->loc,
                     "%%%s has one dimension and stands in %s%s, where a matrix lies in fractals of 512 bytes", b->name,
                     space_info[b->space].name, b->why ? "" : " as declared");
  diag_fix(c->p->diags, g,
           "give it two dimensions (1 by n is a row); or T.alloc_shared, which leaves the memory to the compiler");
  return false;
}

static void set_layout(IrBuf *b) {
  if (b->rank < 2) return;
  switch (b->space) {
  case SPACE_L1:
  case SPACE_L0C: b->layout = LAYOUT_NZ; break;
  case SPACE_L0A: b->layout = LAYOUT_ZZ; break;
  case SPACE_L0B: b->layout = LAYOUT_ZN; break;
  default: break;
  }
}

/* Is the part of the tensor this copy moves one run of memory, whatever is clamped? */
static bool gm_is_one_run(PassCtx *p, const IrRegion *r) {
  bool inner_whole = true;
  for (int d = r->buf->rank - 1; d >= 0; d--) {
    if (ir_is_int(r->ext[d], 1)) continue;
    if (!inner_whole) return false;
    inner_whole = ir_is_int(r->off[d], 0) && ir_expr_equal(r->ext[d], r->buf->shape[d]);
  }
  (void)p;
  return true;
}

static bool odd_rows(const IrBuf *b) {
  const IrExpr *cols = b->shape[b->rank - 1];
  return b->space == SPACE_UB && b->rank >= 2 && cols->op == EX_INT && cols->i > 1 &&
         cols->i * dtype_size(b->type) % 32 != 0;
}

/* Ops that take a tile row by row (reductions, broadcasts of rows or columns) need rows that start on blocks. */
static void find_row_ops(Ctx *c, const IrStmt *s) {
  bool by_rows = s->op == OP_REDUCE_SUM || s->op == OP_REDUCE_MAX || s->op == OP_REDUCE_MIN || s->op == OP_BROADCAST;
  const IrRegion *out = &s->args[s->n_args - 1].region;
  for (int i = 0; i < s->n_args - 1 && !by_rows; i++) {
    const IrRegion *in = &s->args[i].region;
    if (s->args[i].kind != ARG_REGION || out->buf->rank < 2) continue;
    by_rows = in->buf->rank != out->buf->rank;
    for (int d = 0; !by_rows && d < out->buf->rank; d++) by_rows = !ir_expr_equal(in->ext[d], out->ext[d]);
  }
  for (int i = 0; i < s->n_args && by_rows; i++)
    if (s->args[i].kind == ARG_REGION && odd_rows(s->args[i].region.buf)) c->use[s->args[i].region.buf->id].pad = true;
}

static bool find_padding(IrStmt *s, void *user) {
  Ctx *c = user;
  if (ir_is_op(s) && s->op != OP_GEMM && s->op != OP_MMAD && !is_copy(s)) find_row_ops(c, s);
  if (!is_copy(s)) return true;
  for (int i = 0; i < 2; i++) {
    IrBuf *b = s->args[i].region.buf, *other = s->args[1 - i].region.buf;
    if (other->space != SPACE_GM || !odd_rows(b)) continue;
    const IrRegion *r = &s->args[i].region;
    bool one_row = true;
    for (int d = 0; d < b->rank - 1; d++) one_row &= ir_is_int(r->ext[d], 1);
    if (!one_row || !ir_is_int(r->off[0], 0)) {
      bool whole = true;
      for (int d = 1; d < b->rank; d++) whole &= ir_is_int(r->off[d], 0) && ir_expr_equal(r->ext[d], b->shape[d]);
      if (!whole || !gm_is_one_run(c->p, &s->args[1 - i].region) || !ir_is_int(r->off[0], 0)) c->use[b->id].pad = true;
    }
  }
  return true;
}

/* Tiles that meet in one vector op get the same row pitch. */
static bool spread_padding(IrStmt *s, void *user) {
  Ctx *c = user;
  bool pad = false;
  IrExpr *cols = NULL;
  if (!ir_is_op(s)) return true;
  for (int i = 0; i < s->n_args; i++) {
    const IrBuf *b = s->args[i].kind == ARG_REGION ? s->args[i].region.buf : NULL;
    if (b && c->use[b->id].pad) pad = true, cols = b->shape[b->rank - 1];
  }
  for (int i = 0; pad && i < s->n_args; i++) {
    const IrBuf *b = s->args[i].kind == ARG_REGION ? s->args[i].region.buf : NULL;
    if (!b || b->space != SPACE_UB || b->rank < 2 || c->use[b->id].pad || !ir_expr_equal(b->shape[b->rank - 1], cols))
      continue;
    c->use[b->id].pad = true;
    c->spread = true;
  }
  return true;
}

static bool same_tile(const IrBuf *a, const IrBuf *b) {
  bool same = a->rank == b->rank && dtype_size(a->type) == dtype_size(b->type);
  for (int d = 0; d < a->rank && same; d++) same = ir_expr_equal(a->shape[d], b->shape[d]);
  return same;
}

/* Views of the same shape and element size are padded together; a buffer with another view keeps its rows. */
static void spread_to_views(Ctx *c) {
  IrKernel *k = c->p->k;
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    IrBuf *b = k->bufs.data[i], *root = ir_root(b);
    Use *view = &c->use[b->id], *whole = &c->use[root->id];
    if (b == root || !same_tile(b, root) || view->pad == whole->pad) continue;
    view->pad = whole->pad = true;
    c->spread = true;
  }
}

static void unpad_views(Ctx *c) {
  IrKernel *k = c->p->k;
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    IrBuf *b = k->bufs.data[i];
    if (!same_tile(b, ir_root(b))) c->use[b->id].pad = c->use[ir_root(b)->id].pad = false;
  }
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (k->bufs.data[i]->view) c->use[i].pad &= c->use[ir_root(k->bufs.data[i])->id].pad;
}

static void pad_rows(Ctx *c, IrBuf *b) {
  if (!c->use[b->id].pad || c->use[b->id].uses & USE_MASK) return;
  int last = b->rank - 1;
  int64_t cols = b->shape[last]->i, padded = round_up(cols, dtype_c0(b->type));
  b->shape[last] = ir_i32(c->p->k, padded);
  pass_remark(c->p, "scope", b->loc, "%%%s: rows padded from %lld to %lld elements, so that each starts on 32 bytes",
              b->name, (long long)cols, (long long)padded);
}

bool pass_scope(PassCtx *p) {
  IrKernel *k = p->k;
  Ctx c = {p, scope_uses(p), false};
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (!space_info[k->bufs.data[i]->space].physical) place_by_use(&c, k->bufs.data[i]);
  ir_walk(&k->body, place_by_copy, &c);
  bool ok = true;
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    IrBuf *b = k->bufs.data[i];
    if (b->view) {
      choose(b, ir_root(b)->space, "a view");
      ok &= check_uses(&c, b) && view_of_fractals(&c, b);
      continue;
    }
    if (!space_info[b->space].physical) choose(b, SPACE_UB, "only copied");
    if (b->space == SPACE_GM) continue;
    ok &= check_uses(&c, b) && two_dimensions(&c, b);
    set_layout(b);
  }
  ir_walk(&k->body, find_padding, &c);
  do {
    c.spread = false;
    ir_walk(&k->body, spread_padding, &c);
    spread_to_views(&c);
  } while (c.spread);
  unpad_views(&c);
  for (uint32_t i = 1; i < k->bufs.len; i++) pad_rows(&c, k->bufs.data[i]);
  return ok;
}
