/* split_hand.c - what one side of an AI core makes and the other uses, in program order and without losing a signal.
 *
 * Tiles (copies from L0C to UB, from UB to L1) go through a workspace tensor that this pass adds to the kernel, one
 * slice a block. Then every GM tensor that both sides touch and one writes is ordered with cross-core flags, which
 * count. For two accesses D and E of different sides, D first:
 *
 *   forward   D; set           wait; E         in the innermost block that holds both
 *   backward  set; for { wait; E   D; set } wait      D of one iteration before E of the next: set once before the
 *             loops, waited once after. The workspace of a tile in a pipelined loop has a slice a stage; its signal is
 *             set that many times before that loop: D comes before the E that uses its slice again
 *
 * A workspace may be read in the text before anything writes it: authors put the cube's statements first and the vector
 * cores' after them, in one loop or in two loops of the same length. Then the order is not the text's: the n-th read of
 * an iteration waits for the n-th write of it, and the next write for that read.
 *
 *   vector    wait back; D; set forward          cube    wait forward; E; set back
 *
 * The same holds for a tile of L1: where the products of a loop stand before the copies from UB that fill their
 * operand, the workspace takes the whole operand and the cube loads it before the first product. The other half of a
 * hand-over always stands right before its first use, so that a side has done all it can before it waits.
 *
 * When there are more edges than flags, edges of the same pipes share one: those that the program goes through one
 * after the other, and those of one loop whose sets come in the order of their waits. A flag counts, so the n-th wait
 * takes the n-th set.
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
  IrStmt *drain;                 /* where the last signal is taken, if that is another loop */
  bool paired;
  const IrBuf *buf;
  Loc loc;
  bool dead;
} Edge;
typedef struct { const IrStmt *a, *b; } Loops; /* that run in step, one on each side */
typedef struct { PassCtx *p; bool by_hand, sync_all; uint32_t used; Vec(Edge) edges; Vec(Loops) in_step; } Ctx;

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

static bool is_pipelined(const IrStmt *loop) { return loop && loop->op == ST_FOR && loop->loop.stages > 1; }

/* How many tiles the loop around s may have under way: its stages, if it is pipelined and counts by one. */
static int stages_of(const IrStmt *s) {
  const IrStmt *loop = s->block->parent;
  return is_pipelined(loop) && ir_is_int(loop->loop.step, 1) ? loop->loop.stages : 1;
}

static void check_workspace(Ctx *c, const IrBuf *b, int n, IrExpr *const *shape, Loc loc) {
  double all = 1;
  for (int d = 0; d < n; d++) all *= ir_is_const(shape[d]) ? (double)shape[d]->i : 1;
  if (all <= INT32_MAX) return;
  Diag *g = diag_add(c->p->diags, DIAG_MIX_UNSUPPORTED, loc,
                     "cube and vector cores hand over %%%s through a workspace of %.0f elements for all blocks, more "
                     "than %d", b->name, all, INT32_MAX);
  diag_fix(c->p->diags, g, "use fewer blocks, with a loop over tiles in each");
}

/* The workspace slice of this block for a tile like r, and in a pipelined loop of this iteration. */
static IrRegion workspace_for(Ctx *c, const IrRegion *r, DType t, const IrStmt *s) {
  IrKernel *k = c->p->k;
  IrExpr *shape[IR_MAX_RANK], *count, *block = block_index(k, &count);
  int n = 0, stages = r->buf->rank + 2 <= IR_MAX_RANK ? stages_of(s) : 1;
  shape[n++] = count;
  if (stages > 1) shape[n++] = ir_i32(k, stages);
  for (int d = 0; d < r->buf->rank && n < IR_MAX_RANK; d++)
    if (!ir_is_int(r->ext[d], 1)) shape[n++] = r->ext[d];
  if (n == 1) shape[n++] = ir_i32(k, 1);
  check_workspace(c, r->buf, n, shape, s->loc);
  IrBuf *ws = ir_new_buf(k, arena_printf(c->p->arena, "%s.ws", r->buf->name), t, SPACE_GM, n, shape, s->loc);
  ws->is_work = true;
  ws->param = (int32_t)k->params.len;
  ws->why = "hand-over between cube and vector cores";
  vec_push(c->p->arena, &k->params, ((IrParam){NULL, ws}));
  IrRegion slice = ir_whole(k, ws);
  slice.off[0] = block;
  slice.ext[0] = ir_i32(k, 1);
  if (stages > 1) {
    const IrStmt *loop = s->block->parent;
    IrExpr *trip = ir_binary(k, EX_SUB, ir_var(k, loop->loop.var), loop->loop.lo);
    ws->versions = stages;
    slice.off[1] = ir_binary(k, EX_MOD, trip, ir_i32(k, stages));
    slice.ext[1] = ir_i32(k, 1);
  }
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

static bool is_sync(const IrStmt *s) { return s->op >= ST_SET_FLAG && s->op <= ST_SYNC_ALL; }

/* The statement of s's block that uses b next, after s, or synchronisation by hand before it; NULL: none does before
 * the block ends or what ends it early. */
static IrStmt *next_use(IrStmt *s, IrBuf *b) {
  for (IrStmt *x = s->next; x; x = x->next) {
    if (ir_stmt_names(x, b) || is_sync(x)) return x;
    if (x->op == ST_BREAK || x->op == ST_CONTINUE || ir_is_side(x)) return NULL;
  }
  return NULL;
}

/* ---- operands that the text reads before it fills them --------------------------------------------------------- */

typedef struct { IrBuf *buf; Vec(IrStmt *) reads, fills; bool other, late; } Operand;

static bool note_operand(IrStmt *s, void *user) {
  struct { Ctx *c; Operand o; } *u = user;
  bool to_vector;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION || s->args[i].region.buf != u->o.buf) continue;
    if (i < ir_n_in(s->op)) {
      u->o.late |= u->o.fills.len > 0;
      vec_push(u->c->p->arena, &u->o.reads, s);
    } else if (crosses(s, &to_vector)) {
      vec_push(u->c->p->arena, &u->o.fills, s);
    } else {
      u->o.other = true;
    }
  }
  return true;
}

static IrStmt *loop_of_both(IrStmt *a, IrStmt *b);

static void early_operand(Ctx *c, IrBuf *b) {
  struct { Ctx *c; Operand o; } u = {c, {.buf = b}};
  ir_walk(&c->p->k->body, note_operand, &u);
  Operand *o = &u.o;
  if (!o->reads.len || !o->fills.len || o->other || o->late) return;
  IrStmt *loop = loop_of_both(o->reads.data[0], o->fills.data[0]);
  for (uint32_t i = 0; i < o->reads.len + o->fills.len && loop; i++)
    if (!ir_child_of(&loop->body, i < o->reads.len ? o->reads.data[i] : o->fills.data[i - o->reads.len])) loop = NULL;
  if (!loop) return;
  IrStmt *first = ir_child_of(&loop->body, o->reads.data[0]);
  IrRegion whole = ir_whole(c->p->k, b), ws = workspace_for(c, &whole, b->type, first);
  for (uint32_t i = 0; i < o->fills.len; i++) {
    IrStmt *s = o->fills.data[i];
    IrRegion src = s->args[0].region, part = ws;
    IrBlock both = {0};
    int n = ws.buf->rank;
    for (int d = b->rank; d-- > 0;) {
      if (ir_is_int(b->shape[d], 1)) continue;
      part.off[--n] = s->args[1].region.off[d];
      part.ext[n] = s->args[1].region.ext[d];
    }
    if (src.buf->type != b->type) ir_append(&both, convert_first(c, &src, b->type, s));
    ir_append(&both, copy_of(c->p->k, src, part, s));
    ir_replace_with_block(s, &both);
  }
  ir_insert_before(first, copy_of(c->p->k, ws, whole, o->reads.data[0]));
  pass_remark(c->p, "split", b->loc,
              "%%%s is read in the text before the vector cores fill it: the cube loads it from workspace %%%s in each "
              "iteration", b->name, ws.buf->name);
}

/* ---- one tile -------------------------------------------------------------------------------------------------- */

static bool hand_tile(IrStmt *s, void *user) {
  Ctx *c = user;
  bool to_vector;
  if (!crosses(s, &to_vector)) return true;
  IrRegion src = s->args[0].region, dst = s->args[1].region;
  IrBlock both = {0};
  if (!to_vector && src.buf->type != dst.buf->type) ir_append(&both, convert_first(c, &src, dst.buf->type, s));
  IrRegion ws = workspace_for(c, to_vector ? &src : &dst, to_vector ? dst.buf->type : src.buf->type, s);
  ir_append(&both, copy_of(c->p->k, src, ws, s));
  IrStmt *load = copy_of(c->p->k, ws, dst, s), *use = next_use(s, dst.buf);
  if (use) ir_insert_before(use, load);
  else ir_append(&both, load);
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
    if (s->args[i].kind != ARG_REGION || ir_root(s->args[i].region.buf) != u->buf) continue;
    int side = split_side(s);
    bool write = i >= ir_n_in(s->op);
    Use use = {s, side, !write ? PIPE_MTE2 : side == SIDE_CUBE ? PIPE_FIX : PIPE_MTE3, write};
    vec_push(u->c->p->arena, &u->uses, use);
  }
  return true;
}

/* The innermost loop around block b, and the outermost loop of the nest it belongs to. */
static IrStmt *loop_of(const IrBlock *b, IrStmt **outermost) {
  IrStmt *inner = NULL;
  *outermost = NULL;
  for (IrStmt *up = b->parent; up && !ir_is_side(up); up = up->block->parent) {
    if (up->op != ST_FOR && up->op != ST_WHILE) continue;
    if (!inner) inner = up;
    *outermost = up;
  }
  return inner;
}

static IrStmt *loop_of_both(IrStmt *a, IrStmt *b) {
  IrStmt *outermost;
  IrBlock *both = ir_common_block(a, b);
  return both ? loop_of(both, &outermost) : NULL;
}

static void add_edge(Ctx *c, const Use *d, const Use *e, const IrBuf *buf) {
  Edge x = {.to_vector = d->side == SIDE_CUBE, .src = d->pipe, .dst = e->pipe, .buf = buf, .loc = d->stmt->loc};
  x.block = ir_common_block(d->stmt, e->stmt);
  if (!x.block) return;
  x.after = ir_child_of(x.block, d->stmt);
  x.before = ir_child_of(x.block, e->stmt);
  bool forward = x.after->id < x.before->id;
  IrStmt *outermost, *inner = loop_of(x.block, &outermost);
  if (forward) vec_push(c->p->arena, &c->edges, x);
  else if (inner) {
    x.block = &inner->body;
    x.after = ir_child_of(x.block, d->stmt);
    x.before = ir_child_of(x.block, e->stmt);
    x.loop = buf->versions ? inner : outermost;
    vec_push(c->p->arena, &c->edges, x);
  }
}

/* ---- reads that stand before their writes ------------------------------------------------------------------------ */

typedef struct { Use *d, *e; int n_d, n_e; IrBlock *of_d, *of_e; } Pairing;

static bool same_length(const IrStmt *a, const IrStmt *b) {
  if (!a || !b || a->op != ST_FOR || b->op != ST_FOR) return false;
  const IrExpr *x = a->loop.step, *y = b->loop.step;
  return ir_expr_equal(a->loop.lo, b->loop.lo) && ir_expr_equal(a->loop.hi, b->loop.hi) &&
         (x && y ? ir_expr_equal(x, y) : x == y);
}

/* The blocks that pass the workspace on, one iteration after the other: one loop's, or those of two loops. */
static bool find_blocks(Pairing *p) {
  IrBlock *both = ir_common_block(p->d->stmt, p->e->stmt);
  IrStmt *outermost, *loop = both ? loop_of(both, &outermost) : NULL;
  if (loop) {
    p->of_d = p->of_e = &loop->body;
    return true;
  }
  IrStmt *a = both ? ir_child_of(both, p->d->stmt) : NULL, *b = both ? ir_child_of(both, p->e->stmt) : NULL;
  if (a == b || !same_length(a, b)) return false;
  p->of_d = &a->body;
  p->of_e = &b->body;
  return true;
}

/* One side only writes and the other only reads, all of it in the blocks found. */
static bool find_pairing(Ctx *c, Uses *u, Pairing *p) {
  uint32_t most = u->uses.len + 1;
  *p = (Pairing){.d = arena_array(c->p->arena, Use, most), .e = arena_array(c->p->arena, Use, most)};
  if (!u->buf->is_work && u->buf->is_out) return false;
  for (uint32_t i = 0; i < u->uses.len; i++) {
    if (u->uses.data[i].write) p->d[p->n_d++] = u->uses.data[i];
    else p->e[p->n_e++] = u->uses.data[i];
  }
  if (!p->n_d || !p->n_e || p->d->side == p->e->side || !find_blocks(p)) return false;
  for (int i = 0; i < p->n_d; i++)
    if (p->d[i].side != p->d->side || !ir_child_of(p->of_d, p->d[i].stmt)) return false;
  for (int i = 0; i < p->n_e; i++)
    if (p->e[i].side != p->e->side || !ir_child_of(p->of_e, p->e[i].stmt)) return false;
  return true;
}

/* The same bytes in every iteration? Otherwise a tensor of the caller may well be read before it is written. */
static bool same_place(const IrBlock *of, const Use *u, int n) {
  for (int i = 0; i < n; i++)
    if (of->parent->op == ST_FOR && ir_stmt_uses(u[i].stmt, of->parent->loop.var)) return false;
  return true;
}

static bool may_pair(const Uses *u, const Pairing *p) {
  return u->buf->is_work || (same_place(p->of_d, p->d, p->n_d) && same_place(p->of_e, p->e, p->n_e));
}

static bool read_first(const Pairing *p) { return p->e->stmt->id < p->d->stmt->id; }

static bool in_step(const Ctx *c, const IrStmt *a, const IrStmt *b) {
  for (uint32_t i = 0; i < c->in_step.len; i++)
    if ((c->in_step.data[i].a == a && c->in_step.data[i].b == b) ||
        (c->in_step.data[i].a == b && c->in_step.data[i].b == a))
      return true;
  return false;
}

static void put_pair(Ctx *c, const IrBuf *buf, const Use *from, const Use *to, IrBlock *of, IrBlock *into,
                     bool primed) {
  Edge x = {.to_vector = from->side == SIDE_CUBE, .src = from->pipe, .dst = to->pipe, .buf = buf, .paired = true};
  x.loc = from->stmt->loc;
  x.block = into;
  x.after = ir_child_of(of, from->stmt);
  x.before = ir_child_of(into, to->stmt);
  if (primed) {
    loop_of(of, &x.loop);
    loop_of(into, &x.drain);
  }
  vec_push(c->p->arena, &c->edges, x);
}

static bool is_tensor(const IrBuf *b) { return b->space == SPACE_GM && !b->view; }

/* Does the reading side, after its first read, hand over something that the writing side needs before its first write?
 * Then the read is of what the iteration before wrote: a value carried from iteration to iteration. */
static bool is_carried(Ctx *c, const Pairing *p) {
  for (uint32_t i = 1; i < c->p->k->bufs.len; i++) {
    Uses u = {c, c->p->k->bufs.data[i], {0}};
    bool made = false, needed = false;
    if (!is_tensor(u.buf)) continue;
    ir_walk(&c->p->k->body, note_use, &u);
    for (uint32_t j = 0; j < u.uses.len; j++) {
      const Use *x = &u.uses.data[j];
      made |= x->side == p->e->side && x->write && x->stmt->id > p->e->stmt->id && ir_child_of(p->of_e, x->stmt);
      needed |= x->side == p->d->side && !x->write && x->stmt->id < p->d->stmt->id && ir_child_of(p->of_d, x->stmt);
    }
    if (made && needed) return true;
  }
  return false;
}

/* Pairs the writes and reads of a workspace; false: the order of the text holds. */
static bool pair_uses(Ctx *c, Uses *u) {
  Pairing p;
  if (!find_pairing(c, u, &p) || !may_pair(u, &p) || is_carried(c, &p)) return false;
  if (p.of_d == p.of_e ? !read_first(&p) : !in_step(c, p.of_d->parent, p.of_e->parent)) return false;
  bool each = p.n_d == p.n_e;
  int n = each ? p.n_d : 1;
  for (int i = 0; i < n; i++) {
    const Use *d = each ? &p.d[i] : &p.d[p.n_d - 1], *e = each ? &p.e[i] : &p.e[p.n_e - 1];
    put_pair(c, u->buf, d, each ? e : p.e, p.of_d, p.of_e, false);
    put_pair(c, u->buf, e, i + 1 < n ? &p.d[i + 1] : p.d, p.of_e, p.of_d, i + 1 == n);
  }
  pass_remark(c->p, "split", u->buf->loc,
              "%%%s is read in the text before it is written: the two are paired by iteration", u->buf->name);
  return true;
}

/* Two loops run in step when one of them reads a workspace that the other, further down, writes. */
static void find_steps(Ctx *c, const IrBuf *b) {
  Uses u = {c, b, {0}};
  Pairing p;
  ir_walk(&c->p->k->body, note_use, &u);
  if (!u.uses.len || !find_pairing(c, &u, &p) || p.of_d == p.of_e) return;
  if (read_first(&p) && may_pair(&u, &p) && !is_carried(c, &p))
    vec_push(c->p->arena, &c->in_step, ((Loops){p.of_d->parent, p.of_e->parent}));
}

static void find_edges(Ctx *c, const IrBuf *b) {
  Uses u = {c, b, {0}};
  int sides = 0, writes = 0;
  ir_walk(&c->p->k->body, note_use, &u);
  if (pair_uses(c, &u)) return;
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
  if (x->paired || y->paired || x->block != y->block) return false;
  if (x->to_vector != y->to_vector || x->src != y->src || x->dst != y->dst) return false;
  bool later = x->after->id <= y->after->id, earlier = y->before->id <= x->before->id;
  if (!x->loop) return !y->loop && later && earlier;
  if (is_pipelined(x->block->parent)) return false; /* iterations will overlap */
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
  for (int i = 0; e->loop && i < (e->buf->versions ? e->buf->versions : 1); i++) {
    ir_insert_before(e->loop, at_side(k, !e->to_vector, ST_CROSS_SET, e->src, id, e->loc));
    ir_insert_after(e->drain ? e->drain : e->loop, at_side(k, e->to_vector, ST_CROSS_WAIT, e->dst, id, e->loc));
  }
}

/* ---- flags ---------------------------------------------------------------------------------------------------- */

/* The children of block b that an edge has something in; false: not all of it is in b. */
static bool extent_in(const IrBlock *b, const Edge *e, uint32_t *lo, uint32_t *hi) {
  IrStmt *part[] = {e->after, e->before, e->loop, e->drain};
  *lo = UINT32_MAX, *hi = 0;
  for (int i = 0; i < 4; i++) {
    if (!part[i]) continue;
    const IrStmt *at = ir_child_of(b, part[i]);
    if (!at) return false;
    if (at->id < *lo) *lo = at->id;
    if (at->id > *hi) *hi = at->id;
  }
  return true;
}

static bool in_pipeline(const IrBlock *b) {
  for (const IrStmt *up = b->parent; up; up = up->block ? up->block->parent : NULL)
    if (is_pipelined(up)) return true;
  return false;
}

/* May the n-th wait of either be taken for the n-th set of either? */
static bool may_share(const Edge *x, const Edge *y) {
  if (x->to_vector != y->to_vector || x->src != y->src || x->dst != y->dst) return false;
  uint32_t a, b, c, d;
  const IrBlock *both = x->block;
  while (!extent_in(both, x, &a, &b) || !extent_in(both, y, &c, &d)) {
    if (!both->parent || !both->parent->block) return false;
    both = both->parent->block;
  }
  if (in_pipeline(both)) return false; /* its order will change */
  if (b < c || d < a) return true;
  if (x->block != y->block || x->loop != y->loop || x->paired || y->paired) return false;
  if (x->buf->versions || y->buf->versions || (x->loop && in_pipeline(x->block))) return false;
  return (x->after->id <= y->after->id && x->before->id <= y->before->id) ||
         (x->after->id >= y->after->id && x->before->id >= y->before->id);
}

static int most_pending(const Edge *e) { return 1 + (e->buf->versions ? e->buf->versions : 1); }

/* A flag for edge i: one of its own, or with `share` the first that the edges before it leave room on; -1: none. */
static int flag_for(const Ctx *c, uint32_t i, const int *id, bool share) {
  for (int f = 0; f < c->p->arch->n_cross_flags; f++) {
    bool fits = !(c->used >> f & 1);
    int pending = most_pending(&c->edges.data[i]);
    for (uint32_t j = 0; j < i && fits; j++) {
      if (c->edges.data[j].dead || id[j] != f) continue;
      pending += most_pending(&c->edges.data[j]);
      fits = share && may_share(&c->edges.data[i], &c->edges.data[j]) && pending <= c->p->arch->cross_flag_max;
    }
    if (fits) return f;
  }
  return -1;
}

/* A flag for every edge, each its own if there are enough; the edge that gets none, or NULL. */
static const Edge *choose_flags(const Ctx *c, int *id) {
  const Edge *without = NULL;
  for (int share = 0; share < 2; share++) {
    without = NULL;
    for (uint32_t i = 0; i < c->edges.len && !without; i++)
      if (!c->edges.data[i].dead && (id[i] = flag_for(c, i, id, share)) < 0) without = &c->edges.data[i];
    if (!without) return NULL;
  }
  return without;
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

static bool keep_order(IrStmt *s, void *user) {
  (void)user;
  if (is_pipelined(s)) s->loop.ordered = true;
  return true;
}

int split_hand_over(PassCtx *p) {
  Ctx c = {.p = p};
  ir_walk(&p->k->body, find_cross, &c);
  if (c.by_hand || c.sync_all) ir_walk(&p->k->body, keep_order, NULL);
  if (c.sync_all) c.used |= 0xf << 11; /* SyncAll takes 11-14 */
  uint32_t own = p->k->bufs.len;
  for (uint32_t i = 1; i < own; i++)
    if (p->k->bufs.data[i]->space == SPACE_L1) early_operand(&c, p->k->bufs.data[i]);
  ir_walk(&p->k->body, hand_tile, &c);
  int n = (int)(p->k->bufs.len - own);
  ir_renumber(p->k);
  for (uint32_t i = c.by_hand || c.sync_all ? own : 1; i < p->k->bufs.len; i++)
    if (is_tensor(p->k->bufs.data[i])) find_steps(&c, p->k->bufs.data[i]);
  for (uint32_t i = c.by_hand || c.sync_all ? own : 1; i < p->k->bufs.len; i++)
    if (is_tensor(p->k->bufs.data[i])) find_edges(&c, p->k->bufs.data[i]);
  prune(&c);
  int *flag = arena_array(p->arena, int, c.edges.len + 1);
  const Edge *without = choose_flags(&c, flag);
  if (without) {
    Diag *g = diag_add(p->diags, DIAG_MIX_UNSUPPORTED, without->loc,
                       "%%%s changes between the cube and the vector cores, and the %d cross-core flags are used up",
                       without->buf->name, p->arch->n_cross_flags);
    diag_fix(p->diags, g,
             "keep tiles on one side for longer, or write the hand-over by hand with T.Scope and T.set_cross_flag");
    return -1;
  }
  for (uint32_t i = 0; i < c.edges.len; i++) {
    const Edge *e = &c.edges.data[i];
    int id = flag[i];
    if (e->dead) continue;
    write_down(&c, e, id);
    pass_remark(p, "split", e->loc, "%%%s: cross-core flag %d from the %s (%s) to the %s (%s)%s", e->buf->name, id,
                e->to_vector ? "cube" : "vector cores", pipe_info[e->src].name, e->to_vector ? "vector cores" : "cube",
                pipe_info[e->dst].name,
                !e->loop           ? ""
                : e->buf->versions ? ", set once a stage in advance"
                                   : ", set once in advance");
    n++;
  }
  return n;
}
