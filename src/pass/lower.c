/* lower.c - data movement and matrix products become instructions.
 *
 * Copies: the two memories name the instruction. The GM side is clamped to the tensor: an extent that may pass the end
 * becomes min(extent, shape - offset); nothing is clamped that is proven to fit. When the window can be smaller than
 * the local tile, the tile is filled with the pad value first (in UB by the vector unit, in L1 by MTE2), under an `if`
 * when that is only known at run time.
 *
 * Products: `gemm` on L1 operands is cut into L0 tiles. One half of L0A and one half of L0B hold an operand tile each,
 * so that MTE1 loads the next step while the cube multiplies; k is the innermost loop and accumulates in L0C.
 *
 * Accumulators: the cube overwrites L0C when `init` holds, so `fill 0` on an accumulator becomes a flag that the next
 * product takes. What may be read before a product came is multiplied by zeros first. */
#include "pass.h"

#include <string.h>

typedef struct { PassCtx *p; IrKernel *k; bool ok; } Ctx;

static IrExpr *num(Ctx *c, int64_t v) { return ir_i32(c->k, v); }
static IrExpr *op2(Ctx *c, ExprOp op, IrExpr *a, IrExpr *b) { return ir_binary(c->k, op, a, b); }

static const char *shape_text(Ctx *c, const IrRegion *r) {
  Text t;
  text_init(&t, c->p->arena);
  text_put(&t, "(");
  for (int d = 0; d < r->buf->rank; d++) {
    if (d) text_put(&t, ", ");
    ir_print_expr(&t, r->ext[d]);
  }
  text_put(&t, ")");
  return text_str(&t);
}

/* ---- windows: the active dimensions of a region ------------------------------------------------------------- */

typedef struct { int dim[IR_MAX_RANK]; int n; } Dims; /* dimensions of extent other than 1, outer first */

static Dims active_dims(const IrRegion *r) {
  Dims d = {.n = 0};
  for (int i = 0; i < r->buf->rank; i++)
    if (!ir_is_int(r->ext[i], 1)) d.dim[d.n++] = i;
  return d;
}

typedef struct {
  IrRegion gm, local;    /* clamped to the same extents */
  IrExpr *smaller;       /* bool: the window does not fill the local region; NULL: never */
  bool always_smaller;
  bool all_or_nothing;   /* the window fills the local region wherever the guard holds */
  IrExpr *guard;         /* bool or NULL: a dimension of extent 1 lies inside the tensor */
} Window;

static IrExpr *land(Ctx *c, IrExpr *a, IrExpr *b) { return a ? op2(c, EX_LAND, a, b) : b; }

/* One dimension of a GM region: how much of `ext` elements from `off` exist. */
static IrExpr *clamp(Ctx *c, const IrRegion *r, int d) {
  IrExpr *end = op2(c, EX_ADD, r->off[d], r->ext[d]);
  if (ir_prove_le(c->k, end, r->buf->shape[d])) return r->ext[d];
  IrExpr *left = op2(c, EX_SUB, r->buf->shape[d], r->off[d]);
  if (!ir_prove_le(c->k, r->off[d], r->buf->shape[d])) left = op2(c, EX_MAX, left, num(c, 0));
  return op2(c, EX_MIN, r->ext[d], left);
}

/* May dimension d of a GM region start before the tensor does? Only a copy that says its pad asks for that. */
static bool starts_before(Ctx *c, const IrStmt *s, const IrRegion *r, int d) {
  int64_t lo = ir_range(c->k, r->off[d]).lo;
  return ir_attr(s, ATTR_PAD) && lo < 0 && lo > INT32_MIN;
}

/* How many of its elements lie there. */
static IrExpr *before_start(Ctx *c, const IrRegion *r, int d) {
  return op2(c, EX_MAX, ir_unary(c->k, EX_NEG, r->off[d]), num(c, 0));
}

static bool copy_shape_error(Ctx *c, const IrStmt *s, const IrRegion *src, const IrRegion *dst, const char *fix) {
  Diag *g =
      diag_add(c->p->diags, DIAG_COPY_SHAPE, s->loc, "copy of %s from %%%s into %s of %%%s: the shapes do not agree",
               shape_text(c, src), src->buf->name, shape_text(c, dst), dst->buf->name);
  diag_other(c->p->diags, g, dst->buf->loc, "%%%s is declared here", dst->buf->name);
  diag_fix(c->p->diags, g, "%s", fix);
  return false;
}

static bool starts_in_fractal(Ctx *c, const IrStmt *s, const IrRegion *gm, const IrRegion *local) {
  Diag *g = diag_add(c->p->diags, DIAG_COPY_PATH, s->loc,
                     "the load of %s starts before the tensor, and its pad would end inside a fractal of %%%s (%s)",
                     ir_region_str(c->p->arena, gm), local->buf->name, space_info[local->buf->space].name);
  diag_other(c->p->diags, g, local->buf->loc, "%%%s is declared here", local->buf->name);
  diag_fix(c->p->diags, g, "load it into a tile of T.alloc_ub with that pad, and copy that one here");
  return false;
}

/* Pairs the dimensions of the GM and the local side and clamps. `into_local`: GM is the source. */
static bool make_window(Ctx *c, const IrStmt *s, const IrRegion *gm, const IrRegion *local, bool into_local,
                        Window *w) {
  const IrRegion *src = into_local ? gm : local, *dst = into_local ? local : gm;
  Dims g = active_dims(gm), l = active_dims(local);
  *w = (Window){.gm = *gm, .local = *local};
  for (int d = 0; d < gm->buf->rank; d++) {
    if (!ir_is_int(gm->ext[d], 1)) continue;
    IrExpr *inside = op2(c, EX_LT, gm->off[d], gm->buf->shape[d]);
    if (ir_prove_le(c->k, gm->buf->shape[d], gm->off[d])) inside = ir_int(c->k, DT_BOOL, 0);
    if (!ir_prove_le(c->k, op2(c, EX_ADD, gm->off[d], num(c, 1)), gm->buf->shape[d]))
      w->guard = land(c, w->guard, inside);
    if (!starts_before(c, s, gm, d)) continue;
    w->guard = land(c, w->guard, op2(c, EX_GE, gm->off[d], num(c, 0)));
    w->gm.off[d] = op2(c, EX_MAX, gm->off[d], num(c, 0));
  }
  if (g.n != l.n) {
    /* A tile with a dimension the tensor does not have (or the other way round) still agrees if one side is all ones
     * there. */
    bool gm_point = g.n == 0, local_point = l.n == 0;
    if (!gm_point && !local_point && g.n > l.n)
      return copy_shape_error(c, s, src, dst,
                              "slice the tensor so that both sides have the same number of dimensions larger than 1");
  }
  int shift = l.n - g.n; /* inner dimensions pair up */
  for (int i = 0; i < l.n; i++) {
    int ld = l.dim[i];
    IrExpr *have = i >= shift ? clamp(c, gm, g.dim[i - shift]) : num(c, 1);
    IrExpr *full = i >= shift ? gm->ext[g.dim[i - shift]] : num(c, 1);
    if (full->op == EX_INT && local->ext[ld]->op == EX_INT && full->i > local->ext[ld]->i)
      return copy_shape_error(
          c, s, src, dst,
          into_local
              ? "make the tile as large as the slice, or copy a smaller slice (for a long dimension: a loop over tiles)"
              : "write a slice no larger than the tile");
    if (!ir_prove_le(c->k, full, local->ext[ld])) have = op2(c, EX_MIN, have, local->ext[ld]);
    if (!ir_prove_le(c->k, local->ext[ld], have)) {
      IrExpr *less = op2(c, EX_LT, have, local->ext[ld]);
      if (have->op == EX_INT) w->always_smaller = true;
      w->smaller = w->smaller ? op2(c, EX_LOR, w->smaller, less) : less;
    }
    if (i >= shift) {
      int gd = g.dim[i - shift];
      if (starts_before(c, s, gm, gd)) {
        if (local->buf->space != SPACE_UB && ld == local->buf->rank - 1) return starts_in_fractal(c, s, gm, local);
        IrExpr *missing = before_start(c, gm, gd);
        have = op2(c, EX_MAX, op2(c, EX_SUB, have, missing), num(c, 0));
        w->gm.off[gd] = op2(c, EX_MAX, gm->off[gd], num(c, 0));
        w->local.off[ld] = op2(c, EX_ADD, local->off[ld], missing);
        IrExpr *some = op2(c, EX_GT, missing, num(c, 0));
        w->smaller = w->smaller ? op2(c, EX_LOR, w->smaller, some) : some;
      }
      w->gm.ext[gd] = have;
    }
    w->local.ext[ld] = have;
  }
  if (shift < 0) /* the local side is a point: one element */
    for (int i = 0; i < g.n; i++) w->gm.ext[g.dim[i]] = num(c, 1);
  if (w->guard) {
    IrExpr *outside = ir_unary(c->k, EX_LNOT, w->guard);
    w->all_or_nothing = !w->smaller;
    w->smaller = w->smaller ? op2(c, EX_LOR, w->smaller, outside) : outside;
  }
  return true;
}

/* ---- emitting ------------------------------------------------------------------------------------------------- */

typedef struct { Ctx *c; IrBlock *into; Loc loc; } Out;

static IrStmt *emit2(Out *o, StmtOp op, IrArg src, IrRegion dst) {
  IrArg args[2] = {src, ir_arg_region(dst)};
  IrStmt *s = ir_new_op(o->c->k, op, o->loc, 2, args);
  ir_append(o->into, s);
  return s;
}

static Out emit_if(Out *o, IrExpr *cond) {
  if (!cond) return *o;
  IrStmt *s = ir_new_stmt(o->c->k, ST_IF, o->loc);
  s->test.cond = cond;
  ir_append(o->into, s);
  return (Out){o->c, &s->body, o->loc};
}

static IrStmt *emit_for(Out *o, const char *name, int64_t n, Out *body) {
  IrStmt *s = ir_new_stmt(o->c->k, ST_FOR, o->loc);
  s->loop.lo = num(o->c, 0);
  s->loop.hi = num(o->c, n);
  s->loop.step = num(o->c, 1);
  s->loop.var = ir_new_var(o->c->k, name, DT_I32, VAR_LOOP, o->loc);
  s->loop.var->def = s;
  ir_append(o->into, s);
  *body = (Out){o->c, &s->body, o->loc};
  return s;
}

static IrBuf *emit_alloc(Ctx *c, const char *name, DType t, Space space, Layout layout, int rank, IrExpr **shape,
                         Loc loc) {
  IrBuf *b = ir_new_buf(c->k, name, t, space, rank, shape, loc);
  b->layout = layout;
  IrStmt *s = ir_new_stmt(c->k, ST_ALLOC, loc);
  s->alloc.buf = b;
  ir_insert_before(c->k->body.first, s);
  return b;
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

static void keep_attr(IrKernel *k, const IrStmt *from, IrStmt *to, AttrKey key) {
  IrExpr *e = ir_attr(from, key);
  if (e) ir_set_attr(k, to, key, e);
}

/* What a tile needs for dimension d of a region of a local buffer: its extent, or all there is of an unknown one. */
static IrExpr *room(const IrRegion *r, int d) { return ir_is_const(r->ext[d]) ? r->ext[d] : r->buf->shape[d]; }

/* A UB tile like `r` in another dtype. */
static IrRegion temp_like(Ctx *c, const IrRegion *r, DType t, Loc loc) {
  IrExpr *shape[IR_MAX_RANK], *ext[IR_MAX_RANK];
  int n = 0;
  for (int d = 0; d < r->buf->rank; d++) {
    if (ir_is_int(r->ext[d], 1)) continue;
    ext[n] = r->ext[d];
    shape[n++] = room(r, d);
  }
  if (!n) ext[n] = shape[0] = num(c, 1), n++;
  if (n > 1) shape[n - 1] = num(c, round_up(shape[n - 1]->i, dtype_c0(t)));
  IrBuf *b = emit_alloc(c, arena_printf(c->p->arena, "%s.%s", r->buf->name, dtype_info[t].name), t, SPACE_UB, LAYOUT_ND,
                        n, shape, loc);
  IrRegion part = ir_whole(c->k, b);
  for (int d = 0; d < n; d++) part.ext[d] = ext[d];
  return part;
}

/* Does a region of UB start, for some row or always, where the DMA cannot: on no multiple of 32 bytes? What is only
 * known at run time inside a row is the user's. */
static bool start_off_blocks(Ctx *c, const IrRegion *r) {
  int64_t stride = dtype_size(r->buf->type), fixed = 0;
  if (r->buf->space != SPACE_UB) return false;
  for (int d = r->buf->rank - 1; d >= 0; d--) {
    if (r->off[d]->op == EX_INT) fixed += r->off[d]->i * stride;
    else if (d < r->buf->rank - 1 && (stride << min_i64(ir_pow2(c->k, r->off[d]), 5)) % 32) return true;
    stride *= r->buf->shape[d]->i;
  }
  return fixed % 32 != 0;
}

/* Rows of a UB tile that stay as they are (a mask, a view) and do not start on 32 bytes, where the DMA needs it. */
static bool rows_off_blocks(Ctx *c, const IrStmt *s, const IrRegion *gm, const IrRegion *local) {
  const IrBuf *b = local->buf;
  IrRows l, g;
  bool several = false, cut = false;
  if (b->space != SPACE_UB || b->rank < 2 || b->shape[b->rank - 1]->i * dtype_size(b->type) % 32 == 0) return false;
  for (int d = 0; d < b->rank - 1; d++) several |= !ir_is_int(local->ext[d], 1);
  for (int d = 0; d < gm->buf->rank - 1; d++) cut |= starts_before(c, s, gm, d);
  if (cut) return true; /* what there is begins in some row of the tile */
  if (!several || !ir_rows(c->k, local, &l) || !ir_rows(c->k, gm, &g)) return false;
  return !ir_is_int(l.rows, 1) || !ir_is_int(g.rows, 1);
}

/* One column of a tensor: its elements lie apart, so that each of them is a row of the DMA. */
static bool is_column(const IrRegion *gm) {
  int last = gm->buf->rank - 1;
  return ir_is_int(gm->ext[last], 1) && !ir_is_int(gm->buf->shape[last], 1) && active_dims(gm).n > 0;
}

/* A UB tile with 32 bytes for each element of a column. */
static IrRegion temp_column(Ctx *c, const IrRegion *r, DType t, Loc loc) {
  IrExpr *shape[2] = {num(c, 1), num(c, dtype_c0(t))}, *rows = num(c, 1);
  for (int d = 0; d < r->buf->rank; d++) {
    if (ir_is_int(r->ext[d], 1)) continue;
    rows = r->ext[d];
    shape[0] = room(r, d);
  }
  IrBuf *b = emit_alloc(c, arena_printf(c->p->arena, "%s.column", r->buf->name), t, SPACE_UB, LAYOUT_ND, 2, shape, loc);
  IrRegion one = ir_whole(c->k, b);
  one.ext[0] = rows;
  one.ext[1] = num(c, 1);
  return one;
}

static void converts(Ctx *c, const IrStmt *s, const IrBuf *from, const IrBuf *to) {
  c->ok = false;
  Diag *g = diag_add(c->p->diags, DIAG_COPY_PATH, s->loc,
                     "copy from %%%s (%s) to %%%s (%s) in %s would have to convert the dtype; the copy unit cannot",
                     from->name, dtype_info[from->type].name, to->name, dtype_info[to->type].name,
                     space_info[to->space].name);
  diag_fix(c->p->diags, g, "give both the same dtype, or convert in UB first");
}

static void lower_load(Ctx *c, Out *o, const IrStmt *s, IrRegion gm, IrRegion local);

/* Rows that may start before the tensor does: the DMA writes whole blocks, so what exists lands behind a margin in a
 * tile of its own, from where the rows are copied with what is missing of the margin in front. */
static bool lower_load_with_margin(Ctx *c, Out *o, const IrStmt *s, const IrRegion *gm, const IrRegion *local) {
  Dims g = active_dims(gm), l = active_dims(local);
  if (local->buf->space != SPACE_UB || is_column(gm) || !g.n || !l.n) return false;
  int last = g.dim[g.n - 1], n = l.dim[l.n - 1], c0 = dtype_c0(gm->buf->type);
  if (!starts_before(c, s, gm, last)) return false;
  int64_t margin = round_up(-ir_range(c->k, gm->off[last]).lo, c0);
  if (margin > 64 * c0 || !ir_expr_equal(gm->ext[last], local->ext[n]) || !ir_is_const(gm->ext[last])) return false;
  IrExpr *shape[IR_MAX_RANK];
  for (int d = 0; d < n; d++) shape[d] = room(local, d);
  shape[n] = num(c, margin + round_up(gm->ext[last]->i, c0));
  IrBuf *b = emit_alloc(c, arena_printf(c->p->arena, "%s.margin", local->buf->name), gm->buf->type, SPACE_UB, LAYOUT_ND,
                        n + 1, shape, s->loc);
  IrRegion part = ir_whole(c->k, b), front = part, from = *gm;
  front.ext[n] = num(c, margin);
  emit2(o, OP_FILL, ir_arg_scalar(ir_cast(c->k, b->type, ir_attr(s, ATTR_PAD))), front);
  for (int d = 0; d < n; d++) part.ext[d] = local->ext[d];
  part.off[n] = num(c, margin);
  part.ext[n] = gm->ext[last];
  from.off[last] = op2(c, EX_MAX, gm->off[last], num(c, 0));
  lower_load(c, o, s, from, part);
  part.off[n] = op2(c, EX_SUB, num(c, margin), before_start(c, gm, last));
  emit2(o, OP_COPY, ir_arg_region(part), *local);
  return true;
}

static void lower_load(Ctx *c, Out *o, const IrStmt *s, IrRegion gm, IrRegion local) {
  if (lower_load_with_margin(c, o, s, &gm, &local)) return;
  bool to_l1 = local.buf->space == SPACE_L1;
  IrRegion target = local;
  if (!to_l1 && is_column(&gm)) {
    target = temp_column(c, &local, gm.buf->type, s->loc);
  } else if (gm.buf->type != local.buf->type) {
    if (to_l1) {
      converts(c, s, gm.buf, local.buf);
      return;
    }
    target = temp_like(c, &local, gm.buf->type, s->loc);
  } else if (rows_off_blocks(c, s, &gm, &local) || start_off_blocks(c, &local)) {
    target = temp_like(c, &local, gm.buf->type, s->loc);
  }
  Window w;
  if (!make_window(c, s, &gm, &target, true, &w)) {
    c->ok = false;
    return;
  }
  IrExpr *behind = NULL;
  Out in = {c, NULL, s->loc};
  if (w.all_or_nothing) in = emit_if(o, w.guard);
  if (w.smaller) {
    Out fill = {c, NULL, s->loc};
    if (w.all_or_nothing) fill.into = &o->into->last->alt;
    else fill = emit_if(o, w.always_smaller ? NULL : w.smaller);
    IrExpr *pad = ir_attr(s, ATTR_PAD);
    if (!pad)
      pad = dtype_is_float(target.buf->type) ? ir_float(c->k, target.buf->type, 0) : ir_int(c->k, target.buf->type, 0);
    pad = ir_cast(c->k, target.buf->type, pad);
    IrRegion whole = target; /* of a column: its blocks */
    if (!to_l1 && is_column(&gm)) whole.ext[1] = target.buf->shape[1];
    emit2(&fill, to_l1 ? OP_L1_FILL : OP_FILL, ir_arg_scalar(pad), whole);
    if (!to_l1 && !w.all_or_nothing) behind = pad;
  }
  if (!to_l1 && !behind && ir_attr(s, ATTR_PAD)) behind = ir_cast(c->k, target.buf->type, ir_attr(s, ATTR_PAD));
  if (!w.all_or_nothing) in = emit_if(o, w.guard);
  IrStmt *dma = emit2(&in, to_l1 ? OP_GM_TO_L1 : OP_GM_TO_UB, ir_arg_region(w.gm), w.local);
  if (behind) ir_set_attr(c->k, dma, ATTR_PAD, behind); /* or the DMA would spoil what the fill wrote */
  if (target.buf != local.buf) emit2(o, OP_COPY, ir_arg_region(target), local);
}

static bool cube_writes(Ctx *c, const IrStmt *s, const IrRegion *sums, const IrRegion *to) {
  DType t = sums->buf->type;
  if (ir_starts_inside(sums)) {
    Diag *g = diag_add(c->p->diags, DIAG_GEMM_START, s->loc,
                       "the cube does not write %s: it starts inside a fractal, of 16 columns",
                       ir_region_str(c->p->arena, sums));
    diag_other(c->p->diags, g, sums->buf->loc, "%%%s is declared here", sums->buf->name);
    diag_fix(c->p->diags, g, "start on a multiple of 16; or make it with T.alloc_fragment, and it goes through UB");
    return false;
  }
  if (ir_cube_writes(t, to->buf->type)) return true;
  bool holds = t == DT_F32 || t == DT_I32;
  if (!holds && !c->ok) return true; /* its product said so */
  const char *as = "";
  if (holds) as = arena_printf(c->p->arena, " as %s (%%%s)", dtype_info[to->buf->type].name, to->buf->name);
  Diag *g = diag_add(c->p->diags, DIAG_COPY_PATH, s->loc, "the cube does not write %%%s (%s in L0C)%s", sums->buf->name,
                     dtype_info[t].name, as);
  diag_other(c->p->diags, g, sums->buf->loc, "%%%s is declared here", sums->buf->name);
  diag_fix(c->p->diags, g,
           holds ? "copy it to a tile in UB, and that one further; or make it with T.alloc_fragment"
                 : "L0C holds sums of products: make it float32, or int32 for integers");
  return false;
}

static void lower_store(Ctx *c, Out *o, const IrStmt *s, IrRegion local, IrRegion gm) {
  bool from_cube = local.buf->space == SPACE_L0C, column = !from_cube && is_column(&gm);
  if (column) {
    IrRegion t = temp_column(c, &local, gm.buf->type, s->loc), blocks = t;
    blocks.ext[1] = t.buf->shape[1];
    bool spreads = local.buf->type == t.buf->type && (dtype_size(t.buf->type) == 2 || dtype_size(t.buf->type) == 4);
    IrStmt *spread = emit2(o, spreads ? OP_BROADCAST : OP_COPY, ir_arg_region(local), spreads ? blocks : t);
    if (spreads) ir_set_attr(c->k, spread, ATTR_DIM, num(c, 1));
    local = t;
  } else if (!from_cube && (gm.buf->type != local.buf->type || rows_off_blocks(c, s, &gm, &local) ||
                             start_off_blocks(c, &local))) {
    IrRegion t = temp_like(c, &local, gm.buf->type, s->loc);
    emit2(o, OP_COPY, ir_arg_region(local), t);
    local = t;
  }
  Window w;
  if ((from_cube && !cube_writes(c, s, &local, &gm)) || !make_window(c, s, &gm, &local, false, &w)) {
    c->ok = false;
    return;
  }
  Out in = emit_if(o, w.guard);
  IrStmt *i = emit2(&in, from_cube ? OP_L0C_TO_GM : OP_UB_TO_GM, ir_arg_region(w.local), w.gm);
  if (from_cube) keep_attr(c->k, s, i, ATTR_RELU);
  if (s->op == OP_ATOMIC_ADD) ir_set_attr(c->k, i, ATTR_ATOMIC, ir_int(c->k, DT_BOOL, 1));
}

static const char *detour(Space from, Space to) {
  if (from == SPACE_GM && to == SPACE_GM) return "load a tile into UB, then store it: two copies";
  if (from == SPACE_L0A || from == SPACE_L0B) return "nothing is read back from there: copy what it was loaded from";
  if (to == SPACE_L0C) return "only a product fills an accumulator: add the tile to the result after the product";
  if (to == SPACE_L0A || to == SPACE_L0B)
    return "load it into T.alloc_L1 first and copy that here; or T.gemm, which does both, in place of T.mma";
  if (from == SPACE_L1) return "load the tensor again, into a tile of T.alloc_ub or T.alloc_shared, and copy that";
  return "go through global memory, or through a memory that has a path to both";
}

static void no_path(Ctx *c, const IrStmt *s, const IrBuf *src, const IrBuf *dst) {
  c->ok = false;
  Diag *g = diag_add(c->p->diags, DIAG_COPY_PATH, s->loc, "no data path from %s (%%%s) to %s (%%%s) on %s",
                     space_info[src->space].name, src->name, space_info[dst->space].name, dst->name, c->p->arch->name);
  const IrBuf *local = dst->space == SPACE_GM || (src->why && !dst->why) ? src : dst;
  diag_other(c->p->diags, g, local->loc, "%%%s: %s", local->name, local->why ? local->why : "declared here");
  diag_fix(c->p->diags, g, "%s", detour(src->space, dst->space));
}

static bool lower_copy(Ctx *c, Out *o, const IrStmt *s);

/* A copy becomes a loop of copies of `part` steps along the outermost dimension of both sides that is not 1. */
static bool lower_along(Ctx *c, Out *o, const IrStmt *s, const Dims d[2], const char *name, int64_t part) {
  IrExpr *all = s->args[0].region.ext[d[0].dim[0]];
  IrStmt *one = ir_clone(c->k, s);
  Out body;
  IrStmt *loop = emit_for(o, name, 0, &body);
  IrExpr *parts = op2(c, EX_FDIV, op2(c, EX_ADD, all, num(c, part - 1)), num(c, part));
  loop->loop.hi = ir_cast(c->k, DT_I32, parts);
  IrExpr *at = op2(c, EX_MUL, ir_var(c->k, loop->loop.var), num(c, part));
  for (int i = 0; i < 2; i++) {
    IrRegion *q = &one->args[i].region;
    int dim = d[i].dim[0];
    q->off[dim] = op2(c, EX_ADD, q->off[dim], at);
    q->ext[dim] = part == 1 ? num(c, 1) : op2(c, EX_MIN, num(c, part), op2(c, EX_SUB, all, at));
  }
  return lower_copy(c, &body, one);
}

/* A copy of several planes becomes copies of matrices. */
static bool lower_planes(Ctx *c, Out *o, const IrStmt *s) {
  Dims d[2] = {active_dims(&s->args[0].region), active_dims(&s->args[1].region)};
  const IrRegion *r[2] = {&s->args[0].region, &s->args[1].region};
  bool fractal = r[0]->buf->layout != LAYOUT_ND || r[1]->buf->layout != LAYOUT_ND;
  IrRows rows;
  bool many = false, column = !fractal && (r[0]->buf->space == SPACE_GM ? is_column(r[0]) : is_column(r[1]));
  for (int i = 0; i < 2; i++) many |= column ? d[i].n > 1 : d[i].n > 2 && (fractal || !ir_rows(c->k, r[i], &rows));
  if (!many || d[0].n != d[1].n || !ir_expr_equal(r[0]->ext[d[0].dim[0]], r[1]->ext[d[1].dim[0]])) return false;
  return lower_along(c, o, s, d, "plane", 1);
}

/* A copy of more rows than one DMA has becomes copies of fewer. */
static bool lower_parts(Ctx *c, Out *o, const IrStmt *s) {
  const IrRegion *r[2] = {&s->args[0].region, &s->args[1].region};
  int ub = r[0]->buf->space != SPACE_UB;
  Dims d[2] = {active_dims(r[0]), active_dims(r[1])};
  if (r[ub]->buf->space != SPACE_UB || r[!ub]->buf->space != SPACE_GM || !d[0].n || d[0].n != d[1].n) return false;
  if (!ir_expr_equal(r[0]->ext[d[0].dim[0]], r[1]->ext[d[1].dim[0]])) return false;
  int64_t most = c->p->arch->max_burst_rows, rows = 0, inner = 1;
  for (int i = 0; i < 2; i++) {
    IrRegion full = *r[i]; /* as much as the tile has room for */
    IrRows q;
    for (int k = 0; k < d[i].n; k++) {
      IrExpr **ext = &full.ext[d[i].dim[k]], *there = room(r[ub], d[ub].dim[k]);
      if (!ir_is_const(*ext)) *ext = num(c, min_i64(ir_range(c->k, *ext).hi, there->i));
    }
    if (ir_rows(c->k, &full, &q) && ir_is_const(q.rows)) rows = max_i64(rows, q.rows->i);
    full.ext[d[i].dim[0]] = num(c, 1);
    if (ir_rows(c->k, &full, &q) && ir_is_const(q.rows)) inner = max_i64(inner, q.rows->i);
  }
  return rows > most && lower_along(c, o, s, d, "part", max_i64(most / inner, 1));
}

/* false: the statement stays (UB to UB is legalize's). */
static bool lower_copy(Ctx *c, Out *o, const IrStmt *s) {
  bool moves = s->args[0].region.buf->space != SPACE_UB || s->args[1].region.buf->space != SPACE_UB;
  if (moves && (lower_planes(c, o, s) || lower_parts(c, o, s))) return true;
  IrRegion src = s->args[0].region, dst = s->args[1].region;
  Space a = src.buf->space, b = dst.buf->space;
  if (a == SPACE_GM && (b == SPACE_UB || b == SPACE_L1) && s->op == OP_COPY) {
    lower_load(c, o, s, src, dst);
  } else if ((a == SPACE_UB || a == SPACE_L0C) && b == SPACE_GM) {
    lower_store(c, o, s, src, dst);
  } else if (a == SPACE_L1 && (b == SPACE_L0A || b == SPACE_L0B)) {
    if (src.buf->type != dst.buf->type) {
      converts(c, s, src.buf, dst.buf);
      return true;
    }
    /* The source is a tile of the destination's shape at the source's corner. */
    IrRegion box = src;
    int n = src.buf->rank, m = dst.buf->rank;
    bool trans = ir_attr(s, ATTR_TRANS) != NULL;
    for (int d = 0; d < n - 2; d++) box.ext[d] = num(c, 1);
    box.ext[n - 2] = dst.ext[trans ? m - 1 : m - 2];
    box.ext[n - 1] = dst.ext[trans ? m - 2 : m - 1];
    IrStmt *i = emit2(o, b == SPACE_L0A ? OP_L1_TO_L0A : OP_L1_TO_L0B, ir_arg_region(box), dst);
    keep_attr(c->k, s, i, ATTR_TRANS);
  } else if (a == SPACE_L0C && b == SPACE_L1) {
    if (!cube_writes(c, s, &src, &dst)) {
      c->ok = false;
      return true;
    }
    IrStmt *i = emit2(o, OP_L0C_TO_L1, ir_arg_region(src), dst);
    keep_attr(c->k, s, i, ATTR_RELU);
  } else if (a == SPACE_UB && b == SPACE_UB && s->op == OP_COPY) {
    return false;
  } else {
    no_path(c, s, src.buf, dst.buf);
  }
  return true;
}

/* ---- accumulators that a fill clears -------------------------------------------------------------------------- */

static bool touches(const IrStmt *s, const IrBuf *b) {
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION && s->args[i].region.buf == b) return true;
  return false;
}

static bool is_product(const IrStmt *s, const IrBuf *acc) {
  return (s->op == OP_GEMM || s->op == OP_MMAD) && s->args[2].region.buf == acc;
}

/* The flag of an accumulator that says at run time "cleared, and no product since", or NULL. */
static IrVar *zero_flag(Ctx *c, const IrBuf *acc) {
  const char *name = arena_printf(c->p->arena, "%s.zero", acc->name);
  for (uint32_t i = 1; i < c->k->vars.len; i++)
    if (c->k->vars.data[i]->kind == VAR_MUT && !strcmp(c->k->vars.data[i]->name, name)) return c->k->vars.data[i];
  return NULL;
}

/* The same, declared at the top of the cube block around `s` if it was not there. */
static IrVar *new_zero_flag(Ctx *c, const IrBuf *acc, const IrStmt *s) {
  IrVar *flag = zero_flag(c, acc);
  if (flag) return flag;
  IrStmt *cube = s->block->parent;
  while (cube->op != ST_CUBE) cube = cube->block->parent;
  flag = ir_new_var(c->k, arena_printf(c->p->arena, "%s.zero", acc->name), DT_BOOL, VAR_MUT, s->loc);
  IrStmt *def = ir_new_stmt(c->k, ST_VAR, s->loc);
  def->set.var = flag;
  def->set.value = ir_int(c->k, DT_BOOL, 0);
  flag->def = def;
  ir_insert_before(cube->body.first, def);
  return flag;
}

typedef struct { const IrBuf *buf; IrStmt *first; int n; } Touch;
static bool find_touch(IrStmt *s, void *user) {
  Touch *t = user;
  if (!touches(s, t->buf)) return true;
  if (!t->first) t->first = s;
  t->n++;
  return true;
}

/* Does the body of a loop run, whatever the sizes and indices are, to its end? */
static bool runs_whole(Ctx *c, const IrStmt *loop) {
  IrExpr *second = op2(c, EX_ADD, loop->loop.lo, num(c, 1));
  return !ir_leaves_loop(&loop->body) && ir_prove_le(c->k, second, loop->loop.hi);
}

/* `fill 0 -> %acc`, then one product in loops below the fill's block that all run, and nothing else of %acc in those
 * loops: init is "first iteration of them all". Otherwise a run-time flag: set by the fill, taken by every product. */
static void lower_acc_fill(Ctx *c, Out *o, IrStmt *s) {
  IrBuf *acc = s->args[1].region.buf;
  if (!ir_is_zero(s->args[0].scalar)) {
    c->ok = false;
    Diag *g = diag_add(c->p->diags, DIAG_COPY_PATH, s->loc, "%%%s is an accumulator in L0C; it can start at zero only",
                       acc->name);
    diag_fix(c->p->diags, g, "clear it, and add the constant after the product");
    return;
  }
  IrStmt *at = s->next;
  Touch t = {acc, NULL, 0};
  for (; at && !t.n; at = at->next) {
    if (touches(at, acc)) find_touch(at, &t);
    ir_walk(&at->body, find_touch, &t);
    ir_walk(&at->alt, find_touch, &t);
  }
  if (t.n == 1 && is_product(t.first, acc) && !zero_flag(c, acc)) {
    IrExpr *first = ir_int(c->k, DT_BOOL, 1);
    bool straight = true;
    for (IrStmt *up = t.first->block->parent; up && t.first->block != s->block && up->block; up = up->block->parent) {
      if (up->op == ST_FOR && !runs_whole(c, up)) straight = false;
      else if (up->op == ST_FOR) first = op2(c, EX_LAND, first, op2(c, EX_EQ, ir_var(c->k, up->loop.var), up->loop.lo));
      else if (up->op != ST_CUBE) straight = false;
      if (up->block == s->block) break;
    }
    if (straight) {
      ir_set_attr(c->k, t.first, ATTR_INIT, first);
      return;
    }
  }
  IrStmt *set = ir_new_stmt(c->k, ST_ASSIGN, s->loc);
  set->set.var = new_zero_flag(c, acc, s);
  set->set.value = ir_int(c->k, DT_BOOL, 1);
  ir_append(o->into, set);
}

/* Does this product overwrite its accumulator? */
static IrExpr *starts_over(Ctx *c, const IrStmt *product) {
  IrExpr *init = ir_attr(product, ATTR_INIT);
  IrVar *flag = zero_flag(c, product->args[2].region.buf);
  if (!init) init = ir_int(c->k, DT_BOOL, 0);
  return flag ? op2(c, EX_LOR, init, ir_var(c->k, flag)) : init;
}

/* After a product. */
static void take_zero_flag(Out *o, const IrBuf *acc) {
  IrVar *flag = zero_flag(o->c, acc);
  if (!flag) return;
  IrStmt *taken = ir_new_stmt(o->c->k, ST_ASSIGN, o->loc);
  taken->set.var = flag;
  taken->set.value = ir_int(o->c->k, DT_BOOL, 0);
  ir_append(o->into, taken);
}

/* ---- products ------------------------------------------------------------------------------------------------- */

typedef struct { int64_t m, n, k, mt, nt, kt; bool ta, tb; } Tiling;

static bool last_two(const IrRegion *r, int64_t *rows, int64_t *cols) {
  int n = r->buf->rank;
  if (n < 2) return false;
  for (int d = 0; d < n - 2; d++)
    if (!ir_is_int(r->ext[d], 1)) return false;
  if (r->ext[n - 2]->op != EX_INT || r->ext[n - 1]->op != EX_INT) return false;
  *rows = r->ext[n - 2]->i;
  *cols = r->ext[n - 1]->i;
  return true;
}

static bool gemm_sizes(Ctx *c, const IrStmt *s, Tiling *t) {
  const IrRegion *A = &s->args[0].region, *B = &s->args[1].region, *C = &s->args[2].region;
  int64_t ar, ac, br, bc, cr, cc;
  t->ta = ir_attr(s, ATTR_TRANS_A) != NULL;
  t->tb = ir_attr(s, ATTR_TRANS_B) != NULL;
  bool two = last_two(A, &ar, &ac) && last_two(B, &br, &bc) && last_two(C, &cr, &cc);
  if (two) {
    t->m = t->ta ? ac : ar;
    t->k = t->ta ? ar : ac;
    t->n = t->tb ? br : bc;
  }
  if (two && t->k == (t->tb ? bc : br) && t->m == cr && t->n == cc) return true;
  Diag *g = diag_add(c->p->diags, DIAG_GEMM_SHAPE, s->loc,
                     "product of %%%s %s%s and %%%s %s%s into %%%s %s: the shapes do not agree", A->buf->name,
                     shape_text(c, A), t->ta ? " transposed" : "", B->buf->name, shape_text(c, B),
                     t->tb ? " transposed" : "", C->buf->name, shape_text(c, C));
  diag_fix(c->p->diags, g,
           two ? "op(A) is (m, k), op(B) is (k, n), C is (m, n)"
               : "operands are constant-size matrices: all but the last two extents 1");
  return false;
}

static bool gemm_dtypes(Ctx *c, const IrStmt *s) {
  DType t[3];
  for (int i = 0; i < 3; i++) t[i] = s->args[i].region.buf->type;
  if (t[0] == t[1] && arch_product(c->p->arch, t[0]) == t[2]) return true;
  const char *name[3], *type[3];
  for (int i = 0; i < 3; i++) name[i] = s->args[i].region.buf->name, type[i] = dtype_info[t[i]].name;
  DType sum = arch_product(c->p->arch, t[0]);
  if (t[0] == t[1] && sum != DTYPE_COUNT) {
    Diag *g = diag_add(c->p->diags, DIAG_GEMM_DTYPE, s->loc, "%%%s is %s, but the cube of %s sums products of %s in %s",
                       name[2], type[2], c->p->arch->name, type[0], dtype_info[sum].name);
    diag_fix(c->p->diags, g, "make %%%s %s; the copy to a tensor converts", name[2], dtype_info[sum].name);
    return false;
  }
  Diag *g = diag_add(c->p->diags, DIAG_GEMM_DTYPE, s->loc,
                     "the cube of %s does not multiply %s (%%%s) by %s (%%%s) into %s (%%%s)", c->p->arch->name,
                     type[0], name[0], type[1], name[1], type[2], name[2]);
  bool fp8 = arch_product(c->p->arch, DT_E4M3) != DTYPE_COUNT;
  bool int4 = arch_product(c->p->arch, DT_I4X2) != DTYPE_COUNT;
  diag_fix(c->p->diags, g, "two tiles of float16, bfloat16%s or float32 into float32, or of int8%s into int32",
           fp8 ? ", float8_e4m3fn, float8_e5m2" : "", int4 ? " or int4" : "");
  return false;
}

static bool gemm_starts(Ctx *c, const IrStmt *s) {
  for (int i = 0; i < 3; i++) {
    const IrRegion *r = &s->args[i].region;
    int unit, dim = ir_fractal_split(s, i, &unit);
    if (dim < 0) continue;
    const char *what = dim == r->buf->rank - 1 ? "column" : "row";
    Diag *g = diag_add(c->p->diags, DIAG_GEMM_START, s->loc,
                       "the product takes %s, which starts inside a fractal of %s: %s %s is no multiple of %d",
                       ir_region_str(c->p->arena, r), space_info[r->buf->space].name, what,
                       ir_expr_str(c->p->arena, r->off[dim]), unit);
    diag_other(c->p->diags, g, r->buf->loc, "%%%s is declared here", r->buf->name);
    diag_fix(c->p->diags, g, "%s, or start on a multiple of %d",
             i < 2 ? "copy the part from global memory to a tile of its own" : "take an accumulator of its own", unit);
    return false;
  }
  return true;
}

/* The largest k step of whole fractals whose operand tile fits half of L0, a divisor of k if there is a good one. */
static void choose_tiling(Ctx *c, Tiling *t, DType type) {
  int64_t half = c->p->arch->space[SPACE_L0A].bytes / 2, c0 = dtype_c0(type), size = dtype_size(type);
  if (c0 < 16) c0 = 16; /* f32: two 16x8 fractals side by side, so that a transposed load stays square */
  t->mt = min_i64(t->m, half / (c0 * size)); /* whole columns of L0C: a product writes planes of its own height */
  t->nt = min_i64(t->n, 256);
  int64_t widest = round_up(max_i64(t->mt, t->nt), 16);
  int64_t most = max_i64(half / (widest * size) / c0 * c0, c0);
  most = min_i64(most, c->p->arch->max_mmad / dtype_values(type) / c0 * c0);
  if (t->k <= most) {
    t->kt = t->k;
    return;
  }
  t->kt = most;
  for (int64_t k = most; k * 2 > most; k -= c0)
    if (t->k % k == 0) {
      t->kt = k;
      return;
    }
}

static IrRegion sub_box(Ctx *c, const IrRegion *r, IrExpr *row, int64_t rows, IrExpr *col, int64_t cols) {
  IrRegion b = *r;
  int n = r->buf->rank;
  b.off[n - 2] = op2(c, EX_ADD, r->off[n - 2], row);
  b.off[n - 1] = op2(c, EX_ADD, r->off[n - 1], col);
  b.ext[n - 2] = num(c, rows);
  b.ext[n - 1] = num(c, cols);
  return b;
}

typedef struct { IrBuf *a0, *b0; IrExpr *version; } L0;

static IrRegion l0_tile(Ctx *c, IrBuf *b, IrExpr *version, int64_t rows, int64_t cols) {
  IrRegion r = ir_whole(c->k, b);
  r.off[0] = version;
  r.ext[0] = num(c, 1);
  r.ext[1] = num(c, rows);
  r.ext[2] = num(c, cols);
  return r;
}

/* One L0 step: [m0 +: mt] x [n0 +: nt] x [k0 +: kt]. */
static void emit_step(Out *o, const IrStmt *s, const Tiling *t, const L0 *l, IrExpr *m0, int64_t mt, IrExpr *n0,
                      int64_t nt, IrExpr *k0, int64_t kt, IrExpr *init) {
  Ctx *c = o->c;
  const IrRegion *A = &s->args[0].region, *B = &s->args[1].region, *C = &s->args[2].region;
  IrExpr *yes = ir_int(c->k, DT_BOOL, 1);
  IrRegion a = t->ta ? sub_box(c, A, k0, kt, m0, mt) : sub_box(c, A, m0, mt, k0, kt);
  IrRegion b = t->tb ? sub_box(c, B, n0, nt, k0, kt) : sub_box(c, B, k0, kt, n0, nt);
  IrRegion a0 = l0_tile(c, l->a0, l->version, mt, kt), b0 = l0_tile(c, l->b0, l->version, kt, nt);
  IrStmt *la = emit2(o, OP_L1_TO_L0A, ir_arg_region(a), a0);
  if (t->ta) ir_set_attr(c->k, la, ATTR_TRANS, yes);
  IrStmt *lb = emit2(o, OP_L1_TO_L0B, ir_arg_region(b), b0);
  if (t->tb) ir_set_attr(c->k, lb, ATTR_TRANS, yes);
  IrArg args[3] = {ir_arg_region(a0), ir_arg_region(b0), ir_arg_region(sub_box(c, C, m0, mt, n0, nt))};
  IrStmt *mm = ir_new_op(c->k, OP_MMAD, s->loc, 3, args);
  if (!(init->op == EX_INT && !init->i)) ir_set_attr(c->k, mm, ATTR_INIT, init);
  ir_append(o->into, mm);
}

/* The k steps of one [mt, nt] tile of the accumulator: a loop of whole steps and a tail. */
static void emit_k(Out *o, const IrStmt *s, const Tiling *t, L0 *l, IrExpr *m0, int64_t mt, IrExpr *n0, int64_t nt,
                   IrExpr *init) {
  Ctx *c = o->c;
  int64_t whole = t->k / t->kt, tail = t->k % t->kt;
  if (whole == 1 && !tail) {
    /* One step a product: versions alternate over the innermost loop around it, if its trips are countable. */
    IrStmt *up = s->block->parent;
    while (up && up->op == ST_IF) up = up->block->parent;
    bool countable = up && up->op == ST_FOR && ir_is_int(up->loop.step, 1);
    l->version =
        countable ? op2(c, EX_MOD, op2(c, EX_SUB, ir_var(c->k, up->loop.var), up->loop.lo), num(c, 2)) : num(c, 0);
    emit_step(o, s, t, l, m0, mt, n0, nt, num(c, 0), t->kt, init);
    return;
  }
  Out body = *o;
  IrExpr *kk = num(c, 0);
  if (whole > 1) kk = ir_var(c->k, emit_for(o, "kk", whole, &body)->loop.var);
  l->version = op2(c, EX_MOD, kk, num(c, 2));
  emit_step(&body, s, t, l, m0, mt, n0, nt, op2(c, EX_MUL, kk, num(c, t->kt)), t->kt,
            op2(c, EX_LAND, init, op2(c, EX_EQ, kk, num(c, 0))));
  if (tail) {
    l->version = num(c, whole % 2);
    emit_step(o, s, t, l, m0, mt, n0, nt, num(c, whole * t->kt), tail, num(c, 0));
  }
}

static void lower_gemm(Ctx *c, Out *o, const IrStmt *s) {
  Tiling t;
  if (!gemm_sizes(c, s, &t) || !gemm_dtypes(c, s) || !gemm_starts(c, s)) {
    c->ok = false;
    return;
  }
  DType type = s->args[0].region.buf->type;
  choose_tiling(c, &t, type);
  IrExpr *two = num(c, 2);
  IrExpr *sa[3] = {two, num(c, t.mt), num(c, t.kt)}, *sb[3] = {two, num(c, t.kt), num(c, t.nt)};
  L0 l = {emit_alloc(c, arena_printf(c->p->arena, "%s.l0a", s->args[0].region.buf->name), type, SPACE_L0A, LAYOUT_ZZ, 3,
                     sa, s->loc),
          emit_alloc(c, arena_printf(c->p->arena, "%s.l0b", s->args[1].region.buf->name), type, SPACE_L0B, LAYOUT_ZN, 3,
                     sb, s->loc),
          NULL};
  l.a0->why = l.b0->why = "step of a matrix product, two versions";
  IrExpr *init = starts_over(c, s);
  for (int64_t m0 = 0; m0 < t.m; m0 += t.mt)
    for (int64_t n0 = 0; n0 < t.n; n0 += t.nt)
      emit_k(o, s, &t, &l, num(c, m0), min_i64(t.mt, t.m - m0), num(c, n0), min_i64(t.nt, t.n - n0), init);
  take_zero_flag(o, s->args[2].region.buf);
  pass_remark(c->p, "lower", s->loc, "product (%lld, %lld) x (%lld, %lld): L0 steps of %lld x %lld x %lld",
              (long long)t.m, (long long)t.k, (long long)t.k, (long long)t.n, (long long)t.mt, (long long)t.nt,
              (long long)t.kt);
}

/* Does `s` surely come to a product into acc? */
static bool multiplies(Ctx *c, const IrStmt *s, const IrBuf *acc) {
  if (is_product(s, acc)) return true;
  if (s->op != ST_CUBE && (!ir_loop_runs(c->k, s) || ir_leaves_loop(&s->body))) return false;
  for (const IrStmt *in = s->body.first; in; in = in->next)
    if (multiplies(c, in, acc)) return true;
  return false;
}

/* Looks back from `reader`: is there a product before there may be the fill? */
static bool multiplied_since(Ctx *c, const IrStmt *fill, const IrStmt *reader, const IrBuf *acc) {
  for (const IrStmt *at = reader; at; at = at->block->parent) {
    if (at != reader && at->op == ST_FOR && ir_stands_in(fill, at)) return false; /* in the iteration before */
    for (const IrStmt *before = at->prev; before; before = before->prev) {
      if (multiplies(c, before, acc)) return true;
      if (ir_stands_in(fill, before)) return false;
    }
  }
  return true;
}

typedef struct { Ctx *c; const IrStmt *fill; } Cleared;

/* part of acc := zeros * zeros */
static void multiply_zeros(Out *o, const IrRegion *part) {
  Ctx *c = o->c;
  const IrBuf *acc = part->buf;
  Loc loc = o->loc;
  DType t = acc->type == DT_I32 ? DT_I8 : DT_F16;
  IrExpr *k = num(c, dtype_c0(t)), *a[2] = {part->ext[acc->rank - 2], k}, *b[2] = {k, part->ext[acc->rank - 1]};
  IrRegion zero[2] = {
      ir_whole(c->k, emit_alloc(c, arena_printf(c->p->arena, "%s.a0", acc->name), t, SPACE_L1, LAYOUT_NZ, 2, a, loc)),
      ir_whole(c->k, emit_alloc(c, arena_printf(c->p->arena, "%s.b0", acc->name), t, SPACE_L1, LAYOUT_NZ, 2, b, loc))};
  for (int i = 0; i < 2; i++) {
    zero[i].buf->why = "zeros: the accumulator may be read before a product came";
    emit2(o, OP_FILL, ir_arg_scalar(ir_int(c->k, DT_I32, 0)), zero[i]);
  }
  Out into = *o;
  IrRegion plane = *part;
  for (int d = 0; d < acc->rank - 2; d++) {
    if (ir_is_int(part->ext[d], 1) || !ir_is_const(part->ext[d])) continue;
    IrStmt *loop = emit_for(&into, "plane", part->ext[d]->i, &into);
    plane.off[d] = op2(c, EX_ADD, part->off[d], ir_var(c->k, loop->loop.var));
    plane.ext[d] = num(c, 1);
  }
  IrArg args[3] = {ir_arg_region(zero[0]), ir_arg_region(zero[1]), ir_arg_region(plane)};
  IrStmt *g = ir_new_op(c->k, OP_GEMM, loc, 3, args);
  ir_set_attr(c->k, g, ATTR_INIT, ir_int(c->k, DT_BOOL, 1));
  ir_append(into.into, g);
}

/* if (cleared, and no product since) acc := zeros * zeros */
static void multiply_zeros_if_unwritten(Ctx *c, IrStmt *reader, IrBuf *acc) {
  Loc loc = reader->loc;
  IrVar *flag = new_zero_flag(c, acc, reader);
  IrStmt *when = ir_new_stmt(c->k, ST_IF, loc);
  when->test.cond = ir_var(c->k, flag);
  ir_insert_before(reader, when);
  Out o = {c, &when->body, loc};
  IrRegion whole = ir_whole(c->k, acc);
  multiply_zeros(&o, &whole);
}

static bool guard_reader(IrStmt *s, void *user) {
  const Cleared *x = user;
  IrBuf *acc = x->fill->args[1].region.buf;
  if ((s->op != OP_COPY && s->op != OP_ATOMIC_ADD) || s->args[0].kind != ARG_REGION || s->args[0].region.buf != acc)
    return true;
  const IrStmt *before = s->prev;
  bool guarded = before && before->op == ST_IF && before->test.cond->op == EX_VAR &&
                 before->test.cond->var == zero_flag(x->c, acc);
  if (!guarded && !multiplied_since(x->c, x->fill, s, acc)) multiply_zeros_if_unwritten(x->c, s, acc);
  return true;
}

/* `fill 0 -> %acc` whose accumulator may be read before a product comes: a loop may have no trips. */
static bool guard_readers(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_FILL || s->args[1].region.buf->space != SPACE_L0C || s->args[1].region.buf->rank != 2) return true;
  Cleared x = {c, s};
  ir_walk(&c->k->body, guard_reader, &x);
  return true;
}

/* A fill and a product of one accumulator that do not take the same part of it. */
static bool other_part(IrStmt *s, void *user) {
  const IrStmt *fill = user;
  const IrRegion *part = &fill->args[1].region;
  return !is_product(s, part->buf) || ir_attr(s, ATTR_INIT) || ir_region_equal(part, &s->args[2].region);
}

typedef struct { Ctx *c; const IrBuf *acc; bool apart; } Parts;

static bool find_apart(IrStmt *s, void *user) {
  Parts *p = user;
  if (s->op == OP_FILL && s->args[1].region.buf == p->acc) p->apart |= !ir_walk(&p->c->k->body, other_part, s);
  return !p->apart;
}

/* What is cleared as one thing and multiplied into by parts, or the other way round, has no single first product. */
static bool clear_parts(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_FILL || s->args[1].region.buf->space != SPACE_L0C || !ir_is_zero(s->args[0].scalar)) return true;
  Parts p = {c, s->args[1].region.buf, false};
  ir_walk(&c->k->body, find_apart, &p);
  if (!p.apart) return true;
  IrBlock made = {0};
  Out o = {c, &made, s->loc};
  multiply_zeros(&o, &s->args[1].region);
  pass_remark(c->p, "lower", s->loc, "%%%s is multiplied into by parts: it is cleared by a product of zeros",
              p.acc->name);
  ir_replace_with_block(s, &made);
  return true;
}

/* ---- driver --------------------------------------------------------------------------------------------------- */

/* Before the products, which have to know all flags: the one that a later fill sets may have come round a loop. */
static bool lower_clear(IrStmt *s, void *user) {
  if (s->op != OP_FILL || s->args[1].region.buf->space != SPACE_L0C) return true;
  IrBlock made = {0};
  Out o = {user, &made, s->loc};
  lower_acc_fill(user, &o, s);
  ir_replace_with_block(s, &made);
  return true;
}

static bool lower_stmt(IrStmt *s, void *user) {
  Ctx *c = user;
  IrBlock made = {0};
  Out o = {c, &made, s->loc};
  if (s->op == OP_COPY || s->op == OP_ATOMIC_ADD) {
    if (!lower_copy(c, &o, s)) return true;
  } else if (s->op == OP_GEMM) {
    lower_gemm(c, &o, s);
  } else if (s->op == OP_MMAD && zero_flag(c, s->args[2].region.buf)) {
    IrStmt *product = ir_clone(c->k, s);
    ir_set_attr(c->k, product, ATTR_INIT, starts_over(c, s));
    ir_append(&made, product);
    take_zero_flag(&o, s->args[2].region.buf);
  } else if (s->op == OP_FILL && s->args[1].region.buf->space == SPACE_L1) {
    emit2(&o, OP_L1_FILL, ir_arg_scalar(ir_cast(c->k, s->args[1].region.buf->type, s->args[0].scalar)),
          s->args[1].region);
  } else {
    return true;
  }
  ir_replace_with_block(s, &made);
  return true;
}

bool pass_lower(PassCtx *p) {
  Ctx c = {p, p->k, true};
  ir_walk(&p->k->body, clear_parts, &c);
  ir_walk(&p->k->body, guard_readers, &c);
  ir_walk(&p->k->body, lower_clear, &c);
  ir_walk(&p->k->body, lower_stmt, &c);
  return c.ok;
}
