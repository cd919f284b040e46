/* split_hand.c - what one side of an AI core makes and the other uses, in program order and without losing a signal.
 *
 * Tiles (copies from L0C to UB, from UB to L1) go through a workspace tensor that this pass adds to the kernel, one
 * slice a block. Then every GM tensor that both sides touch and one writes is ordered with cross-core flags, which
 * count. For two accesses D and E of different sides, D first:
 *
 *   forward   D; set           wait; E         in the innermost block that holds both
 *   backward  set; for { wait; E   D; set } wait      D of one iteration before E of the next: set once before the
 * loops, waited once after
 *
 * An edge goes when another of the same pipes sets later and waits earlier, or when, in the same loop, a forward one
 * already carries the signal from iteration to iteration. A kernel that sets cross-core flags itself keeps to them:
 * only the tiles are ordered here. */
#include "split.h"

typedef struct {
  bool to_vector;
  Pipe src, dst;
  IrBlock *block;
  IrStmt *after, *before, *loop; /* children of block; loop: NULL for a forward edge, else where it is primed */
  const IrBuf *buf;
  Loc loc;
  bool dead;
} Edge;
typedef struct { PassCtx *p; bool by_hand, sync_all; uint32_t used; Vec(Edge) edges; } Ctx;

static IrStmt *cross(IrKernel *k, StmtOp op, Pipe pipe, int id, Loc loc) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->sync.src = pipe;
  s->sync.id = ir_i32(k, id);
  s->sync.mode = 2;
  s->hand = 2;
  s->why = op == ST_CROSS_SET ? "hand-over between cube and vector cores" : "waits for the other side of a hand-over";
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
  bool to_vector;
  if (!crosses(s, &to_vector)) return true;
  IrRegion src = s->args[0].region, dst = s->args[1].region;
  IrBlock both = {0};
  if (!to_vector && src.buf->type != dst.buf->type) ir_append(&both, convert_first(c, &src, dst.buf->type, s));
  IrRegion ws = workspace_for(c, to_vector ? &src : &dst, to_vector ? dst.buf->type : src.buf->type, s->loc);
  ir_append(&both, copy_of(c->p->k, src, ws, s));
  ir_append(&both, copy_of(c->p->k, ws, dst, s));
  ir_replace_with_block(s, &both);
  pass_remark(c->p, "split", s->loc, "%%%s goes from the %s to the %s through workspace %%%s", src.buf->name,
              to_vector ? "cube" : "vector cores", to_vector ? "vector cores" : "cube", ws.buf->name);
  return true;
}

/* ---- edges ---------------------------------------------------------------------------------------------------- */

typedef struct { IrStmt *stmt; int side; Pipe pipe; bool write; } Use;
typedef struct { Ctx *c; const IrBuf *buf; Vec(Use) uses; } Uses;

static bool note_use(IrStmt *s, void *user) {
  Uses *u = user;
  if (!ir_is_op(s)) return true;
  for (int i = s->n_args - 1; i >= 0; i--) {
    if (s->args[i].kind != ARG_REGION || s->args[i].region.buf != u->buf) continue;
    int side = split_side(s);
    bool write = i >= ir_n_in(s->op);
    Use use = {s, side, !write ? PIPE_MTE2 : side == SIDE_CUBE ? PIPE_FIX : PIPE_MTE3, write};
    vec_push(u->c->p->arena, &u->uses, use);
  }
  return true;
}

static IrStmt *child_of(const IrBlock *b, IrStmt *s) {
  while (s && s->block != b) s = s->block ? s->block->parent : NULL;
  return s;
}

static IrBlock *common_block(IrStmt *a, IrStmt *b) {
  for (IrStmt *x = a; x && x->block; x = x->block->parent)
    if (child_of(x->block, b)) return x->block;
  return NULL;
}

/* The innermost loop around block b, and the outermost loop of the nest it belongs to. */
static IrStmt *loop_of(const IrBlock *b, IrStmt **outermost) {
  IrStmt *inner = NULL;
  *outermost = NULL;
  for (IrStmt *up = b->parent; up && up->op != ST_CUBE && up->op != ST_VECTOR; up = up->block->parent) {
    if (up->op != ST_FOR && up->op != ST_WHILE) continue;
    if (!inner) inner = up;
    *outermost = up;
  }
  return inner;
}

static void add_edge(Ctx *c, const Use *d, const Use *e, const IrBuf *buf) {
  Edge x = {.to_vector = d->side == SIDE_CUBE, .src = d->pipe, .dst = e->pipe, .buf = buf, .loc = d->stmt->loc};
  x.block = common_block(d->stmt, e->stmt);
  if (!x.block) return;
  x.after = child_of(x.block, d->stmt);
  x.before = child_of(x.block, e->stmt);
  bool forward = x.after->id < x.before->id;
  IrStmt *outermost, *inner = loop_of(x.block, &outermost);
  if (forward) vec_push(c->p->arena, &c->edges, x);
  else if (inner) {
    x.block = &inner->body;
    x.after = child_of(x.block, d->stmt);
    x.before = child_of(x.block, e->stmt);
    x.loop = outermost;
    vec_push(c->p->arena, &c->edges, x);
  }
}

static void find_edges(Ctx *c, const IrBuf *b) {
  Uses u = {c, b, {0}};
  int sides = 0, writes = 0;
  ir_walk(&c->p->k->body, note_use, &u);
  for (uint32_t i = 0; i < u.uses.len; i++) sides |= u.uses.data[i].side, writes += u.uses.data[i].write;
  if (sides != SIDE_BOTH || !writes) return;
  for (uint32_t i = 0; i < u.uses.len; i++)
    for (uint32_t j = 0; j < u.uses.len; j++) {
      const Use *d = &u.uses.data[i], *e = &u.uses.data[j];
      if (d->side != e->side && (d->write || e->write)) add_edge(c, d, e, b);
    }
}

/* Does y carry the signal of x? Both sit in the same block and join the same pipes. */
static bool implies(const Edge *y, const Edge *x) {
  if (x->to_vector != y->to_vector || x->src != y->src || x->dst != y->dst || x->block != y->block) return false;
  bool later = x->after->id <= y->after->id, earlier = y->before->id <= x->before->id;
  if (!x->loop) return !y->loop && later && earlier;
  return y->loop ? later && earlier : later || earlier;
}

static void prune(Ctx *c) {
  for (uint32_t i = 0; i < c->edges.len; i++)
    for (uint32_t j = 0; j < c->edges.len && !c->edges.data[i].dead; j++)
      if (i != j && !c->edges.data[j].dead && implies(&c->edges.data[j], &c->edges.data[i]))
        c->edges.data[i].dead = true;
}

static IrStmt *at_side(IrKernel *k, bool vector, StmtOp op, Pipe pipe, int id, Loc loc) {
  IrStmt *s = ir_new_stmt(k, vector ? ST_VECTOR : ST_CUBE, loc);
  ir_append(&s->body, cross(k, op, pipe, id, loc));
  return s;
}

static void write_down(Ctx *c, const Edge *e, int id) {
  IrKernel *k = c->p->k;
  ir_insert_before(e->before, at_side(k, e->to_vector, ST_CROSS_WAIT, e->dst, id, e->loc));
  ir_insert_after(e->after, at_side(k, !e->to_vector, ST_CROSS_SET, e->src, id, e->loc));
  if (!e->loop) return;
  ir_insert_before(e->loop, at_side(k, !e->to_vector, ST_CROSS_SET, e->src, id, e->loc));
  ir_insert_after(e->loop, at_side(k, e->to_vector, ST_CROSS_WAIT, e->dst, id, e->loc));
}

static bool find_cross(IrStmt *s, void *user) {
  Ctx *c = user;
  c->by_hand |= s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT;
  c->sync_all |= s->op == ST_SYNC_ALL;
  if ((s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT) && s->sync.id->op == EX_INT && s->sync.id->i >= 0 &&
      s->sync.id->i < 16)
    c->used |= 1u << s->sync.id->i;
  return true;
}

int split_hand_over(PassCtx *p) {
  Ctx c = {.p = p};
  ir_walk(&p->k->body, find_cross, &c);
  if (c.sync_all) c.used |= 0xf << 11; /* SyncAll takes 11-14 */
  uint32_t own = p->k->bufs.len;
  ir_walk(&p->k->body, hand_tile, &c);
  int n = (int)(p->k->bufs.len - own);
  ir_renumber(p->k);
  for (uint32_t i = c.by_hand || c.sync_all ? own : 1; i < p->k->bufs.len; i++)
    if (p->k->bufs.data[i]->space == SPACE_GM) find_edges(&c, p->k->bufs.data[i]);
  prune(&c);
  int id = 0;
  for (uint32_t i = 0; i < c.edges.len; i++) {
    const Edge *e = &c.edges.data[i];
    if (e->dead) continue;
    while (id < p->arch->n_cross_flags && c.used >> id & 1) id++;
    if (id == p->arch->n_cross_flags) {
      Diag *g = diag_add(p->diags, DIAG_MIX_UNSUPPORTED, e->loc,
                         "%%%s changes between the cube and the vector cores, and the %d cross-core flags are used up",
                         e->buf->name, p->arch->n_cross_flags);
      diag_fix(p->diags, g,
               "keep tiles on one side for longer, or write the hand-over by hand with T.Scope and T.set_cross_flag");
      return -1;
    }
    write_down(&c, e, id);
    pass_remark(p, "split", e->loc, "%%%s: cross-core flag %d from the %s (%s) to the %s (%s)%s", e->buf->name, id,
                e->to_vector ? "cube" : "vector cores", pipe_info[e->src].name, e->to_vector ? "vector cores" : "cube",
                pipe_info[e->dst].name, e->loop ? ", set once in advance" : "");
    id++;
    n++;
  }
  return n;
}
