/* split.c - which side of an AI core executes each statement.
 *
 * Afterwards the kernel body is: all allocs, then at most one `cube { }` and one `vector { }`. Statements that name a
 * side (T.Scope) keep it. The others are sorted by the memories they touch: L1 and L0 are the cube's, UB is the vector
 * cores'. Scalars, loops and ifs belong to both and are copied to each side that needs them; a loop or an if that ends
 * up empty goes.
 *
 * What one side makes and the other uses is handed over in split_hand.c.
 * When the kernel does not name the vector cores (vid), they share its tiles (split_share.c); where that cannot be, the
 * first does the work and the second only keeps the flags balanced - or computes the same and stores nothing, when a
 * scalar comes from a tile. */
#include "split.h"

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

int split_side(IrStmt *s) {
  int side = SIDE_NONE;
  ir_stmt_exprs(s, add_expr_side, &side);
  if (s->op == ST_STORE) side |= side_of_space(s->store.buf->space) ? side_of_space(s->store.buf->space) : SIDE_VECTOR;
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) side |= side_of_pipe(s->sync.src) | side_of_pipe(s->sync.dst);
  if (s->op == ST_BARRIER || s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT) side |= side_of_pipe(s->sync.src);
  if (!ir_is_op(s)) return side;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) side |= side_of_space(s->args[i].region.buf->space);
  return side ? side : SIDE_VECTOR; /* GM to GM */
}

/* ---- print and assert: they look at one side, and nothing is decided by them -------------------------------- */

typedef struct { const IrVar *var; bool found; } Named;
static void look_for_core(IrExpr **e, void *user) {
  Named *n = user;
  n->found |= ir_expr_uses(*e, n->var);
}

/* Those outside of a cube or vector block: the side of their tiles; else the cube's, whose core is one a block, or the
 * vector cores' when they name the core. */
static void place_says(PassCtx *p, IrBlock *b, int seen) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    if (ir_is_side(s)) continue;
    place_says(p, &s->body, seen);
    place_says(p, &s->alt, seen);
    if (!ir_is_say(s)) continue;
    int side = SIDE_NONE;
    Named n = {p->k->vid, false};
    ir_say_exprs(s, add_expr_side, &side);
    for (int i = 0; i < s->say.n; i++)
      if (s->say.arg[i].kind == ARG_REGION) side |= side_of_space(s->say.arg[i].region.buf->space);
    ir_say_exprs(s, look_for_core, &n);
    if (n.found) side |= SIDE_VECTOR;
    if (!side) side = seen & SIDE_CUBE ? SIDE_CUBE : SIDE_VECTOR;
    if (side == SIDE_BOTH) pass_drop_say(p, s, "it names tiles of the cube and of the vector cores");
    else if (!(side & seen)) pass_drop_say(p, s, "nothing else runs on its side of the core");
    else s->say.side = (uint8_t)side;
  }
}

/* ---- keeping one side of a block ------------------------------------------------------------------------- */

static bool keeps_anything(const IrBlock *b);

static bool is_control(const IrStmt *s) { return s->op == ST_FOR || s->op == ST_IF || s->op == ST_WHILE; }

static bool has_effect(const IrStmt *s) {
  if (s->op == ST_LET || s->op == ST_VAR) return false;
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
    if (ir_is_side(s)) {
      if ((s->op == ST_CUBE) == (side == SIDE_CUBE)) ir_replace_with_block(s, &s->body);
      else ir_remove(s);
      continue;
    }
    int own = ir_is_say(s) ? s->say.side : split_side(s);
    if (own && !(own & side)) {
      ir_remove(s);
      continue;
    }
    keep_side(&s->body, side);
    keep_side(&s->alt, side);
    if (is_control(s) && !has_effect(s)) ir_remove(s);
  }
}

/* ---- snapshots whose sources are on the other side -------------------------------------------------------------- */

typedef struct { PassCtx *p; bool *known; bool orphan; } Names;

static bool note_names(IrStmt *s, void *user) {
  Names *n = user;
  if (s->op == ST_LET || s->op == ST_VAR) n->known[s->set.var->id] = true;
  return true;
}

static void look_for_orphan(IrExpr *e, void *user) {
  Names *n = user;
  bool set_here = e->op == EX_VAR && (e->var->kind == VAR_LET || e->var->kind == VAR_MUT);
  if (set_here && !n->known[e->var->id]) n->orphan = true;
}
static void look_in_expr(IrExpr **e, void *user) { ir_walk_expr(*e, look_for_orphan, user); }

static bool drop_orphans(IrBlock *b, Names *n) {
  bool dropped = false;
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    n->orphan = false;
    if (s->op == ST_LET || s->op == ST_VAR || s->op == ST_ASSIGN) ir_stmt_exprs(s, look_in_expr, n);
    if (ir_is_say(s)) {
      ir_say_exprs(s, look_in_expr, n);
      if (n->orphan) pass_drop_say(n->p, s, "it names a value of the other side");
      continue;
    }
    if (n->orphan) {
      if (s->op != ST_ASSIGN) n->known[s->set.var->id] = false;
      ir_remove(s);
      dropped = true;
      continue;
    }
    dropped |= drop_orphans(&s->body, n);
    dropped |= drop_orphans(&s->alt, n);
  }
  return dropped;
}

/* Keeps what one side executes; a snapshot of what only the other side can read goes with all that depends on it. */
static void keep_only(PassCtx *p, IrStmt *side) {
  Names n = {p, arena_array(p->arena, bool, p->k->vars.len + 1), false};
  keep_side(&side->body, side->op == ST_CUBE ? SIDE_CUBE : SIDE_VECTOR);
  ir_walk(&side->body, note_names, &n);
  while (drop_orphans(&side->body, &n)) {
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

/* ---- the second vector core ----------------------------------------------------------------------------------- */

/* Is `in`, in `user`, no part of the protocol with the cube, and does it set no variable that others see? */
static bool own_work(IrStmt *in, void *user) {
  if (in->op == ST_ASSIGN && !ir_stands_in(in->set.var->def, user)) return false;
  return in->op != ST_CROSS_SET && in->op != ST_CROSS_WAIT && in->op != ST_SYNC_ALL && in->op != ST_BREAK &&
         in->op != ST_CONTINUE;
}

static bool is_private(IrStmt *s) {
  if (s->op == ST_LET || s->op == ST_VAR || !own_work(s, s)) return false;
  return ir_walk(&s->body, own_work, s) && ir_walk(&s->alt, own_work, s);
}

static void find_tile_load(IrExpr *e, void *user) { *(bool *)user |= e->op == EX_LOAD && e->buf->space == SPACE_UB; }
static void find_tile_loads(IrExpr **e, void *user) { ir_walk_expr(*e, find_tile_load, user); }

/* A name or a condition that both cores must know and that comes from a tile: then both must hold the tile. */
static bool needs_no_tile(IrStmt *s, void *user) {
  bool loads = false;
  (void)user;
  if (!is_private(s)) ir_stmt_exprs(s, find_tile_loads, &loads);
  return !loads;
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

/* What the cube does cannot depend on which vector core asks for it. */
static bool find_core_number(IrStmt *s, void *user) {
  PassCtx *p = user;
  Named n = {p->k->vid, false};
  ir_stmt_exprs(s, look_for_core, &n);
  if (!n.found || ir_is_say(s)) return true;
  Diag *g = diag_add(p->diags, DIAG_RULE_VID_CUBE, s->loc,
                     "%%%s numbers the vector cores of a block, and the cube takes part in this", n.var->name);
  diag_fix(p->diags, g, "let each vector core store its part to global memory and the cube load the whole from there");
  return true;
}

/* The kernel names its vector cores and does not tell them apart. */
static void warn_same_work(PassCtx *p, IrStmt *vector) {
  const IrVar *vid = p->k->vid;
  if (ir_stmt_uses(vector, vid)) return;
  Diag *g = diag_add(p->diags, DIAG_VID_UNUSED, p->k->loc,
                     "both vector cores of a block do the same work: %%%s is not used", vid->name);
  diag_fix(p->diags, g, "give each core its part of the rows, such as rows // 2 from %s * (rows // 2)", vid->name);
}

/* ---- driver --------------------------------------------------------------------------------------------------- */

static int sides_below(IrBlock *b) {
  int side = SIDE_NONE;
  for (IrStmt *s = b->first; s; s = s->next) {
    if (ir_is_side(s)) side |= s->op == ST_CUBE ? SIDE_CUBE : SIDE_VECTOR;
    else side |= split_side(s) | sides_below(&s->body) | sides_below(&s->alt);
  }
  return side;
}

/* A statement no side can execute alone, or control flow that only one side can decide around work of the other. */
static bool find_conflict(IrStmt *s, void *user) {
  PassCtx *p = ((void **)user)[0];
  bool *ok = ((void **)user)[1];
  int own = split_side(s);
  int below = is_control(s) ? sides_below(&s->body) | sides_below(&s->alt) : SIDE_NONE;
  if (ir_is_side(s) || own == SIDE_NONE || ((own != SIDE_BOTH) && !(below & ~own)))
    return true;
  *ok = false;
  if (own != SIDE_BOTH) {
    Diag *g = diag_add(p->diags, DIAG_SIDE_CONFLICT, s->loc,
                       "this condition reads a memory of one side of the core, and work of the other depends on it");
    diag_fix(p->diags, g, "read the value from a tensor, which both sides reach");
    return true;
  }
  const IrBuf *b[2] = {0};
  for (int i = 0, n = 0; i < s->n_args && n < 2; i++)
    if (s->args[i].kind == ARG_REGION) b[n++] = s->args[i].region.buf;
  if (!b[1]) {
    diag_add(p->diags, DIAG_SIDE_CONFLICT, s->loc, "this needs memories of the cube and of the vector cores at once");
    return true;
  }
  Diag *g = diag_add(p->diags, DIAG_SIDE_CONFLICT, s->loc, "nothing moves from %s (%%%s) to %s (%%%s) on %s",
                     space_info[b[0]->space].name, b[0]->name, space_info[b[1]->space].name, b[1]->name, p->arch->name);
  diag_other(p->diags, g, b[0]->loc, "%%%s: %s", b[0]->name, b[0]->why ? b[0]->why : "declared here");
  diag_fix(p->diags, g,
           "load %%%s from the tensor that %%%s was loaded from, or make %%%s with T.alloc_shared, to be in both",
           b[1]->name, b[0]->name, b[0]->name);
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
  bool by_hand = ir_has_sides(k);
  int handed = split_hand_over(p);
  bool ok = handed >= 0;
  if (ok) ir_walk(&k->body, find_conflict, (void *[]){p, &ok});
  if (!ok) return false;
  int seen = sides_below(&k->body);
  if (!seen) seen = SIDE_VECTOR;
  ir_hoist_allocs(k);
  place_says(p, &k->body, seen);
  IrStmt *first = wrap(p, seen & SIDE_CUBE ? ST_CUBE : ST_VECTOR, k->loc);
  IrStmt *cube = seen & SIDE_CUBE ? first : NULL;
  IrStmt *vector = seen == SIDE_BOTH ? clone_side(k, first) : seen == SIDE_VECTOR ? first : NULL;
  if (cube) keep_only(p, cube);
  uint32_t errors = p->diags->n_errors;
  if (cube && k->vid) ir_walk(&cube->body, find_core_number, p);
  if (p->diags->n_errors > errors) return false;
  if (vector) keep_only(p, vector);
  if (vector && k->vid) warn_same_work(p, vector);
  if ((handed || (cube && !by_hand)) && vector && !k->vid) {
    k->vid = ir_new_var(k, "vid", DT_I32, VAR_VID, k->loc);
    if (!split_share(p, vector)) {
      bool alone = ir_walk(&vector->body, needs_no_tile, NULL);
      if (alone) only_first_core(k, &vector->body);
      else split_write_once(p, vector);
      pass_remark(p, "split", k->loc, "the second vector core of each AI core %s: no tile can be shared by rows",
                  alone ? "is idle" : "does the same as the first and stores nothing");
    }
  }
  if (cube) ir_append(&k->body, cube);
  if (vector) ir_append(&k->body, vector);
  k->cores = cube && vector ? CORES_MIX : cube ? CORES_CUBE : k->vid ? CORES_MIX : CORES_VECTOR;
  pass_remark(p, "split", k->loc, "runs on the %s",
              k->cores == CORES_MIX
                  ? (cube ? "cube and the vector cores of each AI core" : "two vector cores of each AI core")
              : k->cores == CORES_CUBE ? "cube cores"
                                       : "vector cores, one block each");
  return true;
}
