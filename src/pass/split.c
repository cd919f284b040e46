/* split.c - which side of an AI core executes each statement.
 *
 * Afterwards the kernel body is: all allocs, then at most one `cube { }` and one `vector { }`. Statements that name a side
 * (T.Scope) keep it. The others are sorted by the memories they touch: L1 and L0 are the cube's, UB is the vector cores'.
 * Scalars, loops and ifs belong to both and are copied to each side that needs them; a loop or an if that ends up empty goes.
 *
 * A tile that one side makes and the other uses (L0C to UB, UB to L1) goes through a workspace tensor that this pass adds to the kernel,
 * one slice a block, with two cross-core flags:
 *
 *   maker   wait free;  copy tile -> workspace;  set ready          free is set once before, and waited once after:
 *   user    wait ready; copy workspace -> tile;  set free           no signal is lost, none is left over
 *
 * When the kernel does not name the vector cores (vid), they share its tiles (split_share.c); where that cannot be, the first does the work
 * and the second only keeps the flags balanced. */
#include "split.h"

enum { SIDE_NONE = 0, SIDE_CUBE = 1, SIDE_VECTOR = 2, SIDE_BOTH = 3 };

static int side_of_space(Space s) {
  if (s == SPACE_UB) return SIDE_VECTOR;
  return s == SPACE_GM ? SIDE_NONE : SIDE_CUBE;
}

static int side_of_pipe(Pipe p) {
  if (p >= PIPE_COUNT) return SIDE_NONE;
  return pipe_info[p].side == 'c' ? SIDE_CUBE : pipe_info[p].side == 'v' ? SIDE_VECTOR : SIDE_NONE;
}

static void add_load_side(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) *(int *)user |= side_of_space(e->buf->space);
}
static void add_expr_side(IrExpr **e, void *user) { ir_walk_expr(*e, add_load_side, user); }

/* The side(s) of one statement itself; SIDE_NONE: pure scalar or control, belongs wherever it is needed. */
static int side_of(IrStmt *s) {
  int side = SIDE_NONE;
  ir_stmt_exprs(s, add_expr_side, &side);
  if (s->op == ST_STORE) side |= side_of_space(s->store.buf->space) ? side_of_space(s->store.buf->space) : SIDE_VECTOR;
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) side |= side_of_pipe(s->sync.src) | side_of_pipe(s->sync.dst);
  if (s->op == ST_BARRIER || s->op == ST_CROSS_SET) side |= side_of_pipe(s->sync.src);
  if (!ir_is_op(s)) return side;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) side |= side_of_space(s->args[i].region.buf->space);
  return side ? side : SIDE_VECTOR; /* GM to GM */
}

/* ---- keeping one side of a block ------------------------------------------------------------------------- */

static bool keeps_anything(const IrBlock *b);

static bool is_control(const IrStmt *s) { return s->op == ST_FOR || s->op == ST_IF || s->op == ST_WHILE; }

static bool has_effect(const IrStmt *s) {
  if (s->op == ST_LET || s->op == ST_VAR || s->op == ST_ASSIGN || s->op == ST_BREAK || s->op == ST_CONTINUE) return false;
  if (s->op == ST_WHILE) return true;
  if (is_control(s)) return keeps_anything(&s->body) || keeps_anything(&s->alt);
  return true;
}

static bool keeps_anything(const IrBlock *b) {
  for (const IrStmt *s = b->first; s; s = s->next)
    if (has_effect(s)) return true;
  return false;
}

static void keep_side(IrBlock *b, int side) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    if (s->op == ST_CUBE || s->op == ST_VECTOR) {
      if ((s->op == ST_CUBE) == (side == SIDE_CUBE)) ir_replace_with_block(s, &s->body);
      else ir_remove(s);
      continue;
    }
    int own = side_of(s);
    if (own && !(own & side)) {
      ir_remove(s);
      continue;
    }
    keep_side(&s->body, side);
    keep_side(&s->alt, side);
    if (is_control(s) && !has_effect(s)) ir_remove(s);
  }
}

/* Moves what follows the allocs into `side`. */
static IrStmt *wrap(PassCtx *p, StmtOp op, Loc loc) {
  IrStmt *w = ir_new_stmt(p->k, op, loc);
  for (IrStmt *s = p->k->body.first, *next; s; s = next) {
    next = s->next;
    if (s->op == ST_ALLOC) continue;
    ir_remove(s);
    ir_append(&w->body, s);
  }
  return w;
}

/* ---- hand-over through workspace --------------------------------------------------------------------------------- */

enum { MAX_HANDOVERS = 5 }; /* two of the ids 0..10 each; 11-14 are SyncAll's (hardware facts, cross-core flags) */

typedef struct { PassCtx *p; IrExpr *block; int n; bool ok; Vec(IrStmt *) primes; bool to_vector[MAX_HANDOVERS]; Loc loc[MAX_HANDOVERS]; } Hand;

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

static IrStmt *cross(IrKernel *k, StmtOp op, Pipe pipe, int id, Loc loc) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->sync.src = pipe;
  s->sync.id = ir_i32(k, id);
  s->sync.mode = 2;
  s->hand = 2;
  s->why = op == ST_CROSS_SET ? "hand-over between cube and vector cores" : "waits for the other side of a hand-over";
  return s;
}

static IrStmt *copy_of(IrKernel *k, IrRegion from, IrRegion to, const IrStmt *like) {
  IrArg args[2] = {ir_arg_region(from), ir_arg_region(to)};
  IrStmt *c = ir_new_op(k, OP_COPY, like->loc, 2, args);
  IrExpr *relu = ir_attr(like, ATTR_RELU);
  if (relu && from.buf->space == SPACE_L0C) ir_set_attr(k, c, ATTR_RELU, relu);
  return c;
}

/* The workspace slice of this block for a tile like r. */
static IrRegion workspace_for(Hand *h, const IrRegion *r, DType t, Loc loc) {
  IrKernel *k = h->p->k;
  IrExpr *shape[IR_MAX_RANK], *count;
  h->block = block_index(k, &count);
  int n = 0;
  shape[n++] = count;
  for (int d = 0; d < r->buf->rank && n < IR_MAX_RANK; d++)
    if (!ir_is_int(r->ext[d], 1)) shape[n++] = r->ext[d];
  if (n == 1) shape[n++] = ir_i32(k, 1);
  IrBuf *ws = ir_new_buf(k, arena_printf(h->p->arena, "%s.ws", r->buf->name), t, SPACE_GM, n, shape, loc);
  ws->is_work = true;
  ws->param = (int32_t)k->params.len;
  ws->why = "hand-over between cube and vector cores";
  vec_push(h->p->arena, &k->params, ((IrParam){NULL, ws}));
  IrRegion slice = ir_whole(k, ws);
  slice.off[0] = h->block;
  slice.ext[0] = ir_i32(k, 1);
  return slice;
}

static bool hand_over(IrStmt *s, void *user) {
  Hand *h = user;
  IrKernel *k = h->p->k;
  bool to_vector;
  if (!crosses(s, &to_vector)) return true;
  if (h->n == MAX_HANDOVERS) {
    Diag *g = diag_add(h->p->diags, DIAG_MIX_UNSUPPORTED, s->loc, "more than %d tiles change between the cube and the vector cores; the cross-core flags run out",
                       MAX_HANDOVERS);
    diag_fix(h->p->diags, g, "keep a tile on one side for longer, or write the hand-over by hand with T.Scope and T.set_cross_flag");
    h->ok = false;
    return false;
  }
  IrRegion src = s->args[0].region, dst = s->args[1].region;
  IrStmt *convert = NULL;
  if (!to_vector && src.buf->type != dst.buf->type) { /* UB converts, the DMA does not */
    IrBuf *same = ir_new_buf(k, arena_printf(h->p->arena, "%s.%s", src.buf->name, dtype_info[dst.buf->type].name), dst.buf->type, SPACE_UB,
                             src.buf->rank, src.ext, s->loc);
    IrStmt *alloc = ir_new_stmt(k, ST_ALLOC, s->loc);
    alloc->alloc.buf = same;
    ir_insert_before(k->body.first, alloc);
    convert = copy_of(k, src, ir_whole(k, same), s);
    src = ir_whole(k, same);
  }
  IrRegion ws = workspace_for(h, to_vector ? &src : &dst, to_vector ? dst.buf->type : src.buf->type, s->loc);
  Pipe make = to_vector ? PIPE_FIX : PIPE_MTE3;
  int ready = 2 * h->n, unused = ready + 1;
  IrBlock both = {0};
  if (convert) ir_append(&both, convert);
  IrStmt *maker = ir_new_stmt(k, to_vector ? ST_CUBE : ST_VECTOR, s->loc), *taker = ir_new_stmt(k, to_vector ? ST_VECTOR : ST_CUBE, s->loc);
  ir_append(&maker->body, cross(k, ST_CROSS_WAIT, make, unused, s->loc));
  ir_append(&maker->body, copy_of(k, src, ws, s));
  ir_append(&maker->body, cross(k, ST_CROSS_SET, make, ready, s->loc));
  ir_append(&taker->body, cross(k, ST_CROSS_WAIT, PIPE_MTE2, ready, s->loc));
  ir_append(&taker->body, copy_of(k, ws, dst, s));
  ir_append(&taker->body, cross(k, ST_CROSS_SET, PIPE_MTE2, unused, s->loc));
  ir_append(&both, maker);
  ir_append(&both, taker);
  ir_replace_with_block(s, &both);
  h->to_vector[h->n] = to_vector;
  h->loc[h->n++] = s->loc;
  pass_remark(h->p, "split", s->loc, "%%%s goes from the %s to the %s through workspace %%%s, flags %d and %d", src.buf->name,
              to_vector ? "cube" : "vector cores", to_vector ? "vector cores" : "cube", ws.buf->name, ready, unused);
  return true;
}

/* The first credit before everything, the last one taken after everything. */
static void bracket(Hand *h, IrBlock *cube, IrBlock *vector) {
  IrKernel *k = h->p->k;
  for (int i = 0; i < h->n; i++) {
    IrBlock *taker = h->to_vector[i] ? vector : cube, *maker = h->to_vector[i] ? cube : vector;
    Pipe make = h->to_vector[i] ? PIPE_FIX : PIPE_MTE3;
    IrStmt *prime = cross(k, ST_CROSS_SET, PIPE_MTE2, 2 * i + 1, h->loc[i]);
    if (taker->first) ir_insert_before(taker->first, prime);
    else ir_append(taker, prime);
    ir_append(maker, cross(k, ST_CROSS_WAIT, make, 2 * i + 1, h->loc[i]));
  }
}

/* ---- the second vector core ------------------------------------------------------------------------------------------ */

static bool no_cross(IrStmt *s, void *user) {
  (void)user;
  return s->op != ST_CROSS_SET && s->op != ST_CROSS_WAIT && s->op != ST_SYNC_ALL && s->op != ST_BREAK && s->op != ST_CONTINUE;
}

static bool is_private(IrStmt *s) { /* no part of the protocol with the cube, no name that others use */
  if (!no_cross(s, NULL) || s->op == ST_LET || s->op == ST_VAR || s->op == ST_ASSIGN) return false;
  return ir_walk(&s->body, no_cross, NULL) && ir_walk(&s->alt, no_cross, NULL);
}

static void only_first_core(IrKernel *k, IrBlock *b) {
  IrStmt *guard = NULL;
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    if (!is_private(s)) {
      guard = NULL;
      only_first_core(k, &s->body);
      only_first_core(k, &s->alt);
      continue;
    }
    if (!guard) {
      guard = ir_new_stmt(k, ST_IF, s->loc);
      guard->test.cond = ir_binary(k, EX_EQ, ir_var(k, k->vid), ir_i32(k, 0));
      ir_insert_before(s, guard);
    }
    ir_remove(s);
    ir_append(&guard->body, s);
  }
}

/* ---- driver --------------------------------------------------------------------------------------------------------------- */

static int sides_below(IrBlock *b) {
  int side = SIDE_NONE;
  for (IrStmt *s = b->first; s; s = s->next) {
    if (s->op == ST_CUBE || s->op == ST_VECTOR) side |= s->op == ST_CUBE ? SIDE_CUBE : SIDE_VECTOR;
    else side |= side_of(s) | sides_below(&s->body) | sides_below(&s->alt);
  }
  return side;
}

/* A statement no side can execute alone, or control flow that only one side can decide around work of the other. */
static bool find_conflict(IrStmt *s, void *user) {
  Hand *h = user;
  int own = side_of(s);
  int below = is_control(s) ? sides_below(&s->body) | sides_below(&s->alt) : SIDE_NONE;
  if (s->op == ST_CUBE || s->op == ST_VECTOR || own == SIDE_NONE || ((own != SIDE_BOTH) && !(below & ~own))) return true;
  Diag *g = diag_add(h->p->diags, DIAG_SIDE_CONFLICT, s->loc, own == SIDE_BOTH
                         ? "this statement needs memories of the cube and of the vector cores at once"
                         : "this condition reads a memory of one side of the core, and work of the other side depends on it");
  diag_fix(h->p->diags, g, "copy the tile to the side that uses it first");
  h->ok = false;
  return true;
}

static IrStmt *clone_side(IrKernel *k, const IrStmt *cube) {
  IrStmt *copy = ir_clone(k, cube), *vector = ir_new_stmt(k, ST_VECTOR, cube->loc);
  for (IrStmt *s = copy->body.first, *next; s; s = next) {
    next = s->next;
    ir_remove(s);
    ir_append(&vector->body, s);
  }
  return vector;
}

bool pass_split(PassCtx *p) {
  IrKernel *k = p->k;
  Hand h = {.p = p, .ok = true};
  ir_walk(&k->body, hand_over, &h);
  ir_walk(&k->body, find_conflict, &h);
  if (!h.ok) return false;
  int seen = sides_below(&k->body);
  if (!seen) seen = SIDE_VECTOR;
  ir_hoist_allocs(k);
  IrStmt *first = wrap(p, seen & SIDE_CUBE ? ST_CUBE : ST_VECTOR, k->loc);
  IrStmt *cube = seen & SIDE_CUBE ? first : NULL;
  IrStmt *vector = seen == SIDE_BOTH ? clone_side(k, first) : seen == SIDE_VECTOR ? first : NULL;
  if (cube) keep_side(&cube->body, SIDE_CUBE);
  if (vector) keep_side(&vector->body, SIDE_VECTOR);
  if (h.n) {
    bracket(&h, &cube->body, &vector->body);
    if (!k->vid) {
      k->vid = ir_new_var(k, "vid", DT_I32, VAR_VID, k->loc);
      if (!split_share(p, vector)) {
        only_first_core(k, &vector->body);
        pass_remark(p, "split", k->loc, "the second vector core of each AI core is idle: no tile can be shared by rows");
      }
    }
  }
  if (cube) ir_append(&k->body, cube);
  if (vector) ir_append(&k->body, vector);
  k->cores = cube && vector ? CORES_MIX : cube ? CORES_CUBE : k->vid ? CORES_MIX : CORES_VECTOR;
  pass_remark(p, "split", k->loc, "runs on the %s", k->cores == CORES_MIX ? (cube ? "cube and the vector cores of each AI core"
                                                                                 : "two vector cores of each AI core")
                                                    : k->cores == CORES_CUBE ? "cube cores" : "vector cores, one block each");
  return true;
}
