/* split_hand.c - what one side of an AI core makes and the other uses, handed over without losing a signal.
 *
 * Tiles (copies from L0C to UB, from UB to L1) go through a workspace tensor that this pass adds to the kernel, one
 * slice a block. Workspace tensors of the kernel itself that one side writes and the other reads are found by their
 * accesses. Both get a pair of cross-core flags:
 *
 *   maker   wait free;  writes; set ready          free is set once before, and waited once after:
 *   user    wait ready; reads;  set free           no signal is lost, none is left over
 *
 * The flags stand in the innermost block that holds all accesses, around each run of writes and each run of reads
 * there. Outside of loops the space is written once and `free` is not needed. A kernel that sets cross-core flags
 * itself keeps to them: only tiles are handed over here. */
#include "split.h"

typedef struct { PassCtx *p; HandOver *h; bool by_hand, sync_all; } Ctx;

static IrStmt *cross(IrKernel *k, StmtOp op, Pipe pipe, int id, Loc loc) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->sync.src = pipe;
  s->sync.id = ir_i32(k, id);
  s->sync.mode = 2;
  s->hand = 2;
  s->why = op == ST_CROSS_SET ? "hand-over between cube and vector cores" : "waits for the other side of a hand-over";
  return s;
}

/* A pair of flags for one more hand-over; -1 after an error. */
static int new_hand(Ctx *c, bool to_vector, bool credit, Loc loc) {
  HandOver *h = c->h;
  int used = 0;
  for (int i = 0; i < h->n; i++) used += h->hand[i].credit ? 2 : 1;
  int limit = c->sync_all ? 11 : c->p->arch->n_cross_flags; /* SyncAll takes 11-14 */
  if (h->n == h->max || used + (credit ? 2 : 1) > limit) {
    Diag *g =
        diag_add(c->p->diags, DIAG_MIX_UNSUPPORTED, loc,
                 "more than %d tiles change between the cube and the vector cores; the cross-core flags run out", h->n);
    diag_fix(c->p->diags, g,
             "keep a tile on one side for longer, or write the hand-over by hand with T.Scope and T.set_cross_flag");
    h->ok = false;
    return -1;
  }
  h->hand[h->n].to_vector = to_vector;
  h->hand[h->n].credit = credit;
  h->hand[h->n].ready = used;
  h->hand[h->n].make = to_vector ? PIPE_FIX : PIPE_MTE3;
  h->hand[h->n].take = PIPE_MTE2;
  h->hand[h->n].loc = loc;
  return h->n++;
}

static IrStmt *side_stmt(IrKernel *k, bool vector, IrStmt *inside, Loc loc) {
  IrStmt *s = ir_new_stmt(k, vector ? ST_VECTOR : ST_CUBE, loc);
  ir_append(&s->body, inside);
  return s;
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

static bool crosses(const IrStmt *s, bool *to_vector) {
  if (s->op != OP_COPY) return false;
  Space a = s->args[0].region.buf->space, b = s->args[1].region.buf->space;
  *to_vector = a == SPACE_L0C && b == SPACE_UB;
  return *to_vector || (a == SPACE_UB && b == SPACE_L1);
}

/* Index of this block among all of them. */
static IrExpr *block_index(IrKernel *k, IrExpr **count) {
  IrExpr *at = ir_i32(k, 0), *n = ir_i32(k, 1);
  for (uint32_t i = 0; i < k->grid.len; i++) {
    at = ir_binary(k, EX_ADD, at, ir_binary(k, EX_MUL, ir_var(k, k->grid.data[i]), n));
    n = ir_binary(k, EX_MUL, n, k->grid_ext.data[i]);
  }
  *count = n;
  return at;
}

static IrStmt *copy_of(IrKernel *k, IrRegion from, IrRegion to, const IrStmt *like) {
  IrArg args[2] = {ir_arg_region(from), ir_arg_region(to)};
  IrStmt *c = ir_new_op(k, OP_COPY, like->loc, 2, args);
  IrExpr *relu = ir_attr(like, ATTR_RELU);
  if (relu && from.buf->space == SPACE_L0C) ir_set_attr(k, c, ATTR_RELU, relu);
  return c;
}

/* The workspace slice of this block for a tile like r. */
static IrRegion workspace_for(Ctx *c, const IrRegion *r, DType t, Loc loc) {
  IrKernel *k = c->p->k;
  IrExpr *shape[IR_MAX_RANK], *count, *block = block_index(k, &count);
  int n = 0;
  shape[n++] = count;
  for (int d = 0; d < r->buf->rank && n < IR_MAX_RANK; d++)
    if (!ir_is_int(r->ext[d], 1)) shape[n++] = r->ext[d];
  if (n == 1) shape[n++] = ir_i32(k, 1);
  IrBuf *ws = ir_new_buf(k, arena_printf(c->p->arena, "%s.ws", r->buf->name), t, SPACE_GM, n, shape, loc);
  ws->is_work = true;
  ws->param = (int32_t)k->params.len;
  ws->why = "hand-over between cube and vector cores";
  vec_push(c->p->arena, &k->params, ((IrParam){NULL, ws}));
  IrRegion slice = ir_whole(k, ws);
  slice.off[0] = block;
  slice.ext[0] = ir_i32(k, 1);
  return slice;
}

/* UB converts, the DMA does not: a copy to L1 in another dtype converts first. */
static IrStmt *convert_first(Ctx *c, IrRegion *src, DType t, const IrStmt *s) {
  IrKernel *k = c->p->k;
  IrBuf *same = ir_new_buf(k, arena_printf(c->p->arena, "%s.%s", src->buf->name, dtype_info[t].name), t, SPACE_UB,
                           src->buf->rank, src->ext, s->loc);
  IrStmt *alloc = ir_new_stmt(k, ST_ALLOC, s->loc);
  alloc->alloc.buf = same;
  ir_insert_before(k->body.first, alloc);
  IrStmt *convert = copy_of(k, *src, ir_whole(k, same), s);
  *src = ir_whole(k, same);
  return convert;
}

static bool hand_tile(IrStmt *s, void *user) {
  Ctx *c = user;
  IrKernel *k = c->p->k;
  bool to_vector;
  if (!crosses(s, &to_vector)) return true;
  int i = new_hand(c, to_vector, true, s->loc);
  if (i < 0) return false;
  IrRegion src = s->args[0].region, dst = s->args[1].region;
  IrBlock both = {0};
  if (!to_vector && src.buf->type != dst.buf->type) ir_append(&both, convert_first(c, &src, dst.buf->type, s));
  IrRegion ws = workspace_for(c, to_vector ? &src : &dst, to_vector ? dst.buf->type : src.buf->type, s->loc);
  Pipe make = c->h->hand[i].make;
  int ready = c->h->hand[i].ready;
  IrStmt *maker = side_stmt(k, !to_vector, cross(k, ST_CROSS_WAIT, make, ready + 1, s->loc), s->loc);
  ir_append(&maker->body, copy_of(k, src, ws, s));
  ir_append(&maker->body, cross(k, ST_CROSS_SET, make, ready, s->loc));
  IrStmt *taker = side_stmt(k, to_vector, cross(k, ST_CROSS_WAIT, PIPE_MTE2, ready, s->loc), s->loc);
  ir_append(&taker->body, copy_of(k, ws, dst, s));
  ir_append(&taker->body, cross(k, ST_CROSS_SET, PIPE_MTE2, ready + 1, s->loc));
  ir_append(&both, maker);
  ir_append(&both, taker);
  ir_replace_with_block(s, &both);
  pass_remark(c->p, "split", s->loc, "%%%s goes from the %s to the %s through workspace %%%s, flags %d and %d",
              src.buf->name, to_vector ? "cube" : "vector cores", to_vector ? "vector cores" : "cube", ws.buf->name,
              ready, ready + 1);
  return true;
}

/* ---- workspaces of the kernel --------------------------------------------------------------------------------- */

typedef struct {
  const IrBuf *buf;
  IrStmt *first[2];
  int sides[2];
  IrBlock *block;
  Arena *a;
  Vec(IrStmt *) list;
} Accesses; /* [0] reads, [1] writes */

static IrStmt *child_of(const IrBlock *b, IrStmt *s) {
  while (s && s->block != b) s = s->block ? s->block->parent : NULL;
  return s;
}

static void widen(Accesses *x, IrStmt *s) {
  if (!x->block) x->block = s->block;
  while (!child_of(x->block, s)) x->block = x->block->parent->block;
}

/* 1 write, 0 read, -1 neither; element loads are scalar reads of both sides and are not counted. */
static int access_of(const IrStmt *s, const IrBuf *b) {
  for (int i = s->n_args - 1; i >= 0; i--)
    if (s->args[i].kind == ARG_REGION && s->args[i].region.buf == b) return i >= ir_n_in(s->op);
  return -1;
}

static bool note_access(IrStmt *s, void *user) {
  Accesses *x = user;
  int w = ir_is_op(s) ? access_of(s, x->buf) : -1;
  if (w < 0) return true;
  vec_push(x->a, &x->list, s);
  if (!x->first[w]) x->first[w] = s;
  x->sides[w] |= split_side(s);
  return true;
}

/* What the statements below s do with the buffer: bit 1 read, bit 2 written. */
static bool below(IrStmt *s, void *user) {
  void **u = user;
  int w = ir_is_op(s) ? access_of(s, u[0]) : -1;
  if (w >= 0) *(int *)u[1] |= 1 << w;
  return true;
}
static int kinds_below(IrStmt *s, const IrBuf *b) {
  int kinds = 0;
  void *u[2] = {(void *)b, &kinds};
  below(s, u);
  ir_walk(&s->body, below, u);
  ir_walk(&s->alt, below, u);
  return kinds;
}

static bool inside_loop(const IrBlock *b) {
  for (const IrStmt *up = b->parent; up; up = up->block->parent)
    if (up->op == ST_FOR || up->op == ST_WHILE) return true;
  return false;
}

static bool refuse_order(Ctx *c, const Accesses *x, const IrStmt *at) {
  Diag *g = diag_add(c->p->diags, DIAG_MIX_UNSUPPORTED, at->loc,
                     "%%%s goes between the cube and the vector cores, and here it is read before it is written, or "
                     "written and read by one loop in turns",
                     x->buf->name);
  diag_fix(c->p->diags, g, "write the hand-over by hand with T.Scope and T.set_cross_flag / T.wait_cross_flag");
  c->h->ok = false;
  return false;
}

/* Flags around the runs of writes and reads among the children of the common block. */
static bool flag_runs(Ctx *c, Accesses *x, int i) {
  IrKernel *k = c->p->k;
  bool vec = c->h->hand[i].to_vector, credit = c->h->hand[i].credit;
  int ready = c->h->hand[i].ready;
  Pipe make = c->h->hand[i].make, take = c->h->hand[i].take;
  IrStmt *first = NULL, *last = NULL;
  int mode = 0; /* 2 in a run of writes, 1 of reads */
  for (IrStmt *s = x->block->first, *next;; s = next) {
    int kinds = s ? kinds_below(s, x->buf) : 0;
    next = s ? s->next : NULL;
    if (kinds == 3 || (kinds == 1 && !mode)) return refuse_order(c, x, s);
    if (s && (!kinds || kinds == mode)) {
      if (kinds) last = s;
      continue;
    }
    if (first) { /* a run ends */
      bool writes = mode == 2, on_vector = writes ? !vec : vec;
      if (!writes || credit)
        ir_insert_before(
            first, side_stmt(k, on_vector,
                             cross(k, ST_CROSS_WAIT, writes ? make : take, writes ? ready + 1 : ready, first->loc),
                             first->loc));
      if (writes || credit)
        ir_insert_after(last,
                        side_stmt(k, on_vector,
                                  cross(k, ST_CROSS_SET, writes ? make : take, writes ? ready : ready + 1, last->loc),
                                  last->loc));
    }
    if (!s) return true;
    first = last = s;
    mode = kinds;
  }
}

static Pipe pipe_of_write(const IrStmt *s) { return split_side((IrStmt *)s) == SIDE_CUBE ? PIPE_FIX : PIPE_MTE3; }

static bool hand_workspace(Ctx *c, const IrBuf *b) {
  Accesses x = {.buf = b, .a = c->p->arena};
  ir_walk(&c->p->k->body, note_access, &x);
  if (!x.first[0] || !x.first[1] || !(x.sides[0] & ~x.sides[1]))
    return true; /* not written, not read, or one side only */
  if (x.sides[1] == SIDE_BOTH) return refuse_order(c, &x, x.first[1]);
  bool to_vector = x.sides[1] == SIDE_CUBE;
  /* Only the writes and the other side's reads matter; the writer's own reads are ordered inside its core. */
  for (uint32_t i = 0; i < x.list.len; i++) widen(&x, x.list.data[i]);
  int i = new_hand(c, to_vector, inside_loop(x.block), x.first[1]->loc);
  if (i < 0) return false;
  c->h->hand[i].make = pipe_of_write(x.first[1]);
  if (!flag_runs(c, &x, i)) return false;
  pass_remark(c->p, "split", x.first[1]->loc, "%%%s: written by the %s, read by the %s, flag %d%s", b->name,
              to_vector ? "cube" : "vector cores", to_vector ? "vector cores" : "cube", c->h->hand[i].ready,
              c->h->hand[i].credit ? " and a credit" : "");
  return true;
}

static bool find_cross(IrStmt *s, void *user) {
  Ctx *c = user;
  c->by_hand |= s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT;
  c->sync_all |= s->op == ST_SYNC_ALL;
  return true;
}

void split_hand_over(PassCtx *p, HandOver *h) {
  Ctx c = {p, h, false, false};
  h->max = (int)TL_COUNT(h->hand);
  ir_walk(&p->k->body, find_cross, &c);
  uint32_t n = p->k->bufs.len;
  if (!c.by_hand && !c.sync_all)
    for (uint32_t i = 1; i < n && h->ok; i++)
      if (p->k->bufs.data[i]->space == SPACE_GM) hand_workspace(&c, p->k->bufs.data[i]);
  if (h->ok) ir_walk(&p->k->body, hand_tile, &c);
}

void split_bracket(PassCtx *p, const HandOver *h, IrBlock *cube, IrBlock *vector) {
  IrKernel *k = p->k;
  for (int i = 0; i < h->n; i++) {
    if (!h->hand[i].credit) continue;
    IrBlock *taker = h->hand[i].to_vector ? vector : cube, *maker = h->hand[i].to_vector ? cube : vector;
    IrStmt *prime = cross(k, ST_CROSS_SET, h->hand[i].take, h->hand[i].ready + 1, h->hand[i].loc);
    if (taker->first) ir_insert_before(taker->first, prime);
    else ir_append(taker, prime);
    ir_append(maker, cross(k, ST_CROSS_WAIT, h->hand[i].make, h->hand[i].ready + 1, h->hand[i].loc));
  }
}
