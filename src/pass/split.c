/* split.c - which side of an AI core executes each statement.
 *
 * Afterwards the kernel body is: all allocs, then at most one `cube { }` and one `vector { }`. Statements that name a side
 * (T.Scope) keep it. The others are sorted by the memories they touch: L1 and L0 are the cube's, UB is the vector cores'.
 * Scalars, loops and ifs belong to both and are copied to each side that needs them; a loop or an if that ends up empty goes.
 *
 * A kernel whose two sides exchange tiles through the hand (T.Scope with workspaces and cross-core flags) is kept as written. A body
 * that mixes both sides without T.Scope needs hand-over through workspace, which this pass does not build: it says so. */
#include "pass.h"

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

typedef struct { PassCtx *p; int inside; int seen; bool scoped; IrStmt *cube, *vector, *mixed; } Census;

static bool count_sides(IrStmt *s, void *user) {
  Census *c = user;
  if (s->op == ST_CUBE || s->op == ST_VECTOR) {
    c->scoped = true;
    c->seen |= s->op == ST_CUBE ? SIDE_CUBE : SIDE_VECTOR;
    return true;
  }
  int side = side_of(s);
  if (side == SIDE_BOTH && !c->mixed) c->mixed = s;
  if (side & SIDE_CUBE && !c->cube && !s->block->parent) c->cube = s;
  if (side & SIDE_CUBE && !c->cube) c->cube = s;
  if (side & SIDE_VECTOR && !c->vector) c->vector = s;
  c->seen |= side;
  return true;
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

/* ---- allocs to the top -------------------------------------------------------------------------------------- */

typedef struct { Vec(IrStmt *) list; Arena *a; } Allocs;
static bool gather_alloc(IrStmt *s, void *user) {
  Allocs *l = user;
  if (s->op == ST_ALLOC) vec_push(l->a, &l->list, s);
  return true;
}

static void hoist_allocs(PassCtx *p) {
  Allocs l = {.a = p->arena};
  ir_walk(&p->k->body, gather_alloc, &l);
  IrStmt *at = NULL;
  for (uint32_t i = 0; i < l.list.len; i++) {
    ir_remove(l.list.data[i]);
    if (at) ir_insert_after(at, l.list.data[i]);
    else if (p->k->body.first) ir_insert_before(p->k->body.first, l.list.data[i]);
    else ir_append(&p->k->body, l.list.data[i]);
    at = l.list.data[i];
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

static bool refuse_mix(PassCtx *p, const Census *c) {
  IrStmt *at = c->mixed ? c->mixed : c->vector;
  Diag *g = diag_add(p->diags, DIAG_MIX_UNSUPPORTED, at->loc,
                     "this statement is the vector cores' work and the kernel also has cube work; handing tiles from one to "
                     "the other automatically is not supported yet");
  if (c->cube && c->cube != at) diag_other(p->diags, g, c->cube->loc, "cube work");
  diag_fix(p->diags, g, "split the kernel in two, or write both sides by hand: with T.Scope(\"C\") and T.Scope(\"V\"), a workspace "
                        "tensor and cross-core flags");
  return false;
}

bool pass_split(PassCtx *p) {
  IrKernel *k = p->k;
  Census c = {.p = p};
  ir_walk(&k->body, count_sides, &c);
  if (c.mixed || (!c.scoped && c.seen == SIDE_BOTH)) return refuse_mix(p, &c);
  hoist_allocs(p);
  int seen = c.seen ? c.seen : SIDE_VECTOR;
  IrStmt *first = k->body.first;
  while (first && first->op == ST_ALLOC) first = first->next;
  IrStmt *cube = NULL, *vector = NULL;
  if (seen & SIDE_CUBE) cube = wrap(p, ST_CUBE, k->loc);
  if (seen & SIDE_VECTOR) {
    if (cube) {
      IrStmt *copy = ir_clone(k, cube);
      vector = ir_new_stmt(k, ST_VECTOR, k->loc);
      for (IrStmt *s = copy->body.first, *next; s; s = next) {
        next = s->next;
        ir_remove(s);
        ir_append(&vector->body, s);
      }
    } else {
      vector = wrap(p, ST_VECTOR, k->loc);
    }
  }
  if (cube) {
    keep_side(&cube->body, SIDE_CUBE);
    ir_append(&k->body, cube);
  }
  if (vector) {
    keep_side(&vector->body, SIDE_VECTOR);
    ir_append(&k->body, vector);
  }
  k->cores = cube && vector ? CORES_MIX : cube ? CORES_CUBE : k->vid ? CORES_MIX : CORES_VECTOR;
  pass_remark(p, "split", k->loc, "runs on the %s", k->cores == CORES_MIX ? (cube ? "cube and both vector cores of each AI core"
                                                                                 : "two vector cores of each AI core")
                                                    : k->cores == CORES_CUBE ? "cube cores" : "vector cores, one block each");
  return true;
}
