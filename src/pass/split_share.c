/* split_share.c - the two vector cores of an AI core each take half of the rows.
 *
 * A UB tile can be shared if every statement treats its rows (dimension 0) alike: elementwise ops, reductions and
 * broadcasts along the other axis, copies of whole tiles. The search is optimistic: every tile with an even number of
 * rows is a candidate; a statement that mixes a candidate's rows, or ties it to a tile that is none, removes it; until
 * nothing changes. Shared tiles are then halved, each core keeps its own half at the same address, and copies from and
 * to GM move by `vid * rows / 2`. What is not shared is computed by both cores; only the first writes it to GM. */
#include "split.h"

typedef struct { PassCtx *p; IrKernel *k; bool *shared; bool changed; } Share;

static bool is_ub(const IrArg *a) { return a->kind == ARG_REGION && a->region.buf->space == SPACE_UB; }

static void forbid(Share *h, const IrBuf *b) {
  if (h->shared[b->id]) h->changed = true;
  h->shared[b->id] = false;
}

static bool full_rows(const IrRegion *r) {
  return ir_is_int(r->off[0], 0) && ir_expr_equal(r->ext[0], r->buf->shape[0]);
}

/* The rows of a and b are the same rows: both shared or none. */
static void tie(Share *h, const IrBuf *a, const IrBuf *b) {
  if (h->shared[a->id] == h->shared[b->id]) return;
  forbid(h, a);
  forbid(h, b);
}

/* The same extents but for some of 1, in another number of dimensions: [16, 1] and [16]. */
static bool other_rank(const IrRegion *a, const IrRegion *b) {
  int i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a->buf->rank && ir_is_int(a->ext[i], 1)) i++;
    while (j < b->buf->rank && ir_is_int(b->ext[j], 1)) j++;
    if (i == a->buf->rank || j == b->buf->rank) break;
    if (!ir_expr_equal(a->ext[i], b->ext[j])) return false;
  }
  return i == a->buf->rank && j == b->buf->rank && a->buf->rank != b->buf->rank;
}

/* [R] and [R, 1] and [R, 1, 1] are all a column of R rows. */
static bool is_column(const IrRegion *r) {
  for (int d = 1; d < r->buf->rank; d++)
    if (!ir_is_int(r->ext[d], 1)) return false;
  return true;
}

/* Input `in` against output `out` of an elementwise op: rows pair up, or the input serves all rows and must be
 * whole. */
static void tie_elementwise(Share *h, const IrRegion *in, const IrRegion *out) {
  bool same = ir_expr_equal(in->ext[0], out->ext[0]);
  bool has_rows = in->buf->rank == out->buf->rank ? same || !ir_is_int(in->ext[0], 1)
                                                  : same && is_column(in) && is_column(out);
  if (has_rows) tie(h, in->buf, out->buf);
  else forbid(h, in->buf);
  if (!has_rows && other_rank(in, out)) forbid(h, out->buf);
}

static void tie_rows(Share *h, const IrRegion *tile, const IrRegion *column) { /* [R, N] with [R] or [R, 1] */
  if (tile->buf->rank >= 2 && ir_expr_equal(tile->ext[0], column->ext[0])) tie(h, tile->buf, column->buf);
  else forbid(h, tile->buf), forbid(h, column->buf);
}

/* The dimension of `other` that runs along dimension 0 of the UB tile; -1: none. */
static int partner_of_rows(const IrRegion *ub, const IrRegion *other) {
  int inner = 0;
  if (ir_is_int(ub->ext[0], 1)) return -1;
  for (int d = 1; d < ub->buf->rank; d++) inner += !ir_is_int(ub->ext[d], 1);
  for (int d = other->buf->rank - 1; d >= 0; d--) {
    if (ir_is_int(other->ext[d], 1)) continue;
    if (inner-- == 0) return ir_expr_equal(other->ext[d], ub->ext[0]) ? d : -1;
  }
  return -1;
}

/* Whole bytes of a mask [R, N / 8] go with each row of a tile [R, N]; of a mask that is one run, half of the bytes are
 * the bits of half of the rows, where it holds no others. */
static void tie_mask(Share *h, const IrStmt *s, const IrRegion *mask, const IrRegion *tile) {
  int64_t bits = 8, row = 1, all = 1;
  bool rows = mask->buf->rank > 1 && mask->buf->rank == tile->buf->rank && ir_expr_equal(mask->ext[0], tile->ext[0]);
  for (int d = 1; rows && d < tile->buf->rank; d++) {
    rows = ir_is_const(mask->ext[d]) && ir_is_const(tile->ext[d]);
    if (rows) bits *= mask->ext[d]->i, row *= tile->ext[d]->i;
  }
  for (int d = 0; d < tile->buf->rank; d++) all = ir_is_const(tile->ext[d]) ? all * tile->ext[d]->i : 0;
  bool run = mask->buf->rank == 1 && all && all % 16 == 0 && ir_is_int(mask->ext[0], all / 8);
  if ((rows && bits == row) || (run && !ir_attr(s, ATTR_MASKREP))) tie(h, mask->buf, tile->buf);
  else forbid(h, mask->buf), forbid(h, tile->buf);
}

typedef struct { Share *h; } Loads;
static void forbid_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD && e->buf->space == SPACE_UB) forbid(user, e->buf);
}
static void forbid_expr(IrExpr **e, void *user) { ir_walk_expr(*e, forbid_load, user); }

static void check_op(Share *h, const IrStmt *s) {
  const IrArg *out = &s->args[s->n_args - 1];
  int n_in = ir_n_in(s->op);
  for (int i = 0; i < s->n_args; i++)
    if (is_ub(&s->args[i]) && !full_rows(&s->args[i].region)) forbid(h, s->args[i].region.buf);
  switch (s->op) {
  case OP_COPY:
  case OP_ATOMIC_ADD:
    if (ir_attr(s, ATTR_TRANS)) { /* half of the rows would be half of the columns */
      for (int i = 0; i < 2; i++)
        if (is_ub(&s->args[i])) forbid(h, s->args[i].region.buf);
    } else if (is_ub(&s->args[0]) && is_ub(out)) {
      if (partner_of_rows(&out->region, &s->args[0].region) == 0) tie(h, s->args[0].region.buf, out->region.buf);
      else forbid(h, s->args[0].region.buf), forbid(h, out->region.buf);
    } else {
      const IrRegion *ub = is_ub(&s->args[0]) ? &s->args[0].region : &out->region,
                     *other = is_ub(&s->args[0]) ? &out->region : &s->args[0].region;
      if (partner_of_rows(ub, other) < 0) forbid(h, ub->buf);
    }
    return;
  case OP_REDUCE_SUM:
  case OP_REDUCE_MAX:
  case OP_REDUCE_MIN:
  case OP_REDUCE_ABSSUM:
  case OP_REDUCE_ABSMAX:
  case OP_REDUCE_AND:
  case OP_REDUCE_OR:
  case OP_REDUCE_XOR:
    if (s->args[0].region.buf->rank == 2 && ir_attr_int(s, ATTR_DIM, -1) != 0)
      tie_rows(h, &s->args[0].region, &out->region);
    else forbid(h, s->args[0].region.buf), forbid(h, out->region.buf);
    return;
  case OP_BROADCAST:
    if (ir_attr_int(s, ATTR_DIM, 0) != 0) tie_rows(h, &out->region, &s->args[0].region);
    else forbid(h, s->args[0].region.buf);
    return;
  case OP_FILL: return;
  case OP_ARANGE:
    if (!is_column(&out->region)) forbid(h, out->region.buf);
    return;
  case OP_COMPARE: {
    const IrArg *a = &s->args[0], *b = &s->args[1];
    if (is_ub(b) && ir_is_int(a->region.ext[0], 1)) a = &s->args[1];
    tie_mask(h, s, &out->region, &a->region);
    for (int i = 0; i < 2; i++)
      if (is_ub(&s->args[i]) && &s->args[i] != a) tie_elementwise(h, &s->args[i].region, &a->region);
    return;
  }
  case OP_ROW_SUM:
  case OP_ROW_MAX:
  case OP_ROW_MIN:
  case OP_ROW_ARGMAX:
  case OP_ROW_ARGMIN:
  case OP_BRCB:
  case OP_CUMSUM:
  case OP_CUMMAX:
  case OP_TRANSPOSE:
  case OP_GATHER:
  case OP_GATHERB:
  case OP_GATHER_MASK:
  case OP_UNPACK4:
  case OP_PACK4:
  case OP_SORT:
  case OP_SORT32:
  case OP_MERGE2:
  case OP_MERGE3:
  case OP_MERGE4: /* a row of the result comes from other rows */
    for (int i = 0; i < s->n_args; i++)
      if (is_ub(&s->args[i])) forbid(h, s->args[i].region.buf);
    return;
  default:
    for (int i = 0; i < n_in; i++) {
      if (!is_ub(&s->args[i])) continue;
      if (s->op == OP_SELECT && i == 0 && !ir_attr(s, ATTR_MASKREP)) tie_mask(h, s, &s->args[i].region, &out->region);
      else tie_elementwise(h, &s->args[i].region, &out->region);
    }
  }
}

static bool check(IrStmt *s, void *user) {
  Share *h = user;
  ir_stmt_exprs(s, forbid_expr, h);
  if (s->op == ST_STORE && s->store.buf->space == SPACE_UB) forbid(h, s->store.buf);
  if (ir_is_op(s)) check_op(h, s);
  return true;
}

static bool candidate(const IrBuf *b) {
  return b->space == SPACE_UB && b->rank >= 1 && b->addr < 0 && b->shape[0]->op == EX_INT && b->shape[0]->i >= 2 &&
         b->shape[0]->i % 2 == 0;
}

/* ---- applying ------------------------------------------------------------------------------------------------- */

static void halve_regions(Share *h, IrStmt *s) {
  for (int i = 0; i < s->n_args; i++) {
    if (!is_ub(&s->args[i]) || !h->shared[s->args[i].region.buf->id]) continue;
    IrRegion *ub = &s->args[i].region;
    int64_t half = ub->ext[0]->i / 2;
    if (s->op == OP_COPY || s->op == OP_ATOMIC_ADD) {
      IrRegion *other = &s->args[1 - i].region;
      if (other->buf->space == SPACE_GM) {
        int d = partner_of_rows(ub, other);
        other->off[d] = ir_binary(h->k, EX_ADD, other->off[d],
                                  ir_binary(h->k, EX_MUL, ir_var(h->k, h->k->vid), ir_i32(h->k, half)));
        other->ext[d] = ir_i32(h->k, half);
      }
    }
  }
  if (s->op == OP_ARANGE && h->shared[s->args[2].region.buf->id]) { /* the second core begins in the middle */
    IrExpr *rows = ir_binary(h->k, EX_MUL, ir_var(h->k, h->k->vid), ir_i32(h->k, s->args[2].region.ext[0]->i / 2)),
           *step = s->args[1].scalar;
    s->args[0].scalar = ir_binary(h->k, EX_ADD, s->args[0].scalar,
                                  ir_binary(h->k, EX_MUL, ir_cast(h->k, step->type, rows), step));
  }
  for (int i = 0; i < s->n_args; i++)
    if (is_ub(&s->args[i]) && h->shared[s->args[i].region.buf->id])
      s->args[i].region.ext[0] = ir_i32(h->k, s->args[i].region.ext[0]->i / 2);
}

typedef struct { const Share *h; bool found; } Shared;
static void look_for_shared(IrExpr *e, void *user) {
  Shared *x = user;
  x->found |= e->op == EX_LOAD && x->h->shared[e->buf->id];
}
static void look_in_expr(IrExpr **e, void *user) { ir_walk_expr(*e, look_for_shared, user); }

/* A print shows the half of a tile that its core has. */
static void halve_say(Share *h, IrStmt *s) {
  Shared x = {h, false};
  ir_say_exprs(s, look_in_expr, &x);
  for (int i = 0; i < s->say.n; i++) {
    IrRegion *r = &s->say.arg[i].region;
    if (!is_ub(&s->say.arg[i]) || !h->shared[r->buf->id]) continue;
    if (!full_rows(r)) x.found = true;
    else r->ext[0] = ir_i32(h->k, r->ext[0]->i / 2);
  }
  if (x.found) pass_drop_say(h->p, s, "the two vector cores have half of the rows each; print the whole tile");
}

static bool apply(IrStmt *s, void *user) {
  Share *h = user;
  if (ir_is_say(s)) {
    halve_say(h, s);
    return true;
  }
  bool to_gm = false, shares = false;
  if (ir_is_op(s)) {
    to_gm = s->args[s->n_args - 1].kind == ARG_REGION && s->args[s->n_args - 1].region.buf->space == SPACE_GM;
    for (int i = 0; i < s->n_args; i++) shares |= is_ub(&s->args[i]) && h->shared[s->args[i].region.buf->id];
    halve_regions(h, s);
  }
  if (s->op == ST_STORE) to_gm = s->store.buf->space == SPACE_GM;
  if (to_gm && !shares) {
    IrStmt *guard = ir_new_stmt(h->k, ST_IF, s->loc);
    guard->test.cond = ir_binary(h->k, EX_EQ, ir_var(h->k, h->k->vid), ir_i32(h->k, 0));
    ir_insert_before(s, guard);
    ir_remove(s);
    ir_append(&guard->body, s);
  }
  return true;
}

void split_write_once(PassCtx *p, IrStmt *vector) {
  Share none = {p, p->k, arena_array(p->arena, bool, p->k->bufs.len + 1), false};
  ir_walk(&vector->body, apply, &none);
}

/* Only what is allocated counts: passes leave buffers behind that they did not need in the end. */
static bool propose(IrStmt *s, void *user) {
  Share *h = user;
  if (s->op == ST_ALLOC) h->shared[s->alloc.buf->id] = candidate(s->alloc.buf);
  return true;
}

bool split_share(PassCtx *p, IrStmt *vector) {
  IrKernel *k = p->k;
  Share h = {p, k, arena_array(p->arena, bool, k->bufs.len + 1), false};
  ir_walk(&k->body, propose, &h);
  for (uint32_t i = 1; i < k->bufs.len; i++) /* rows of a view need not be the rows of its bytes */
    if (k->bufs.data[i]->view) h.shared[i] = h.shared[ir_root(k->bufs.data[i])->id] = false;
  do {
    h.changed = false;
    ir_walk(&vector->body, check, &h);
  } while (h.changed);
  int n = 0;
  for (uint32_t i = 1; i < k->bufs.len; i++) n += h.shared[i];
  if (!n) return false;
  ir_walk(&vector->body, apply, &h);
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (h.shared[i]) k->bufs.data[i]->shape[0] = ir_i32(k, k->bufs.data[i]->shape[0]->i / 2);
  pass_remark(p, "split", k->loc, "the two vector cores share %d tiles, half of the rows each", n);
  return true;
}
