/* pipeline_skew.c - T.Pipelined across the sides: while one side finishes an iteration, the other begins the next.
 *
 * In an iteration the sides take turns: cube, vector cores, cube again ... The statements of a side before it has to
 * wait for an answer to what it handed over itself are its group 0, those after the first answer group 1, and so on; at
 * most `stages` groups. The loop is rewritten so that a side runs group 0 of an iteration before group 1 of the one
 * before:
 *
 *   for %i in 0..n { A(i); B(i) }   becomes   for %t in 0..n + 1 { if %t < n { A(t) }  if %t >= 1 { B(t - 1) } }
 *
 * so the other side finds its next tile ready when it has answered. That is legal when
 *  - a buffer that two groups touch and one writes has versions: its loop alone uses it, each iteration overwrites it
 *    first, and there is room. Otherwise the statements that touch it move to the later group, with what depends on
 *    them; flags, and copies of tensors that both sides use, stay where they are, or the loop is left alone;
 *  - no circle of waiting arises. With time t, group g of iteration t - g runs at time t. A flag set in group s and
 *    waited for in group w, c credits in advance, is no matter if s < w + c; if s = w + c it orders groups of the same
 *    time, and these orders must not close a circle; s > w + c would wait for something later.
 *
 * Loops marked `ordered` are left alone: their order across the sides was written by hand. */
#include "pipeline.h"

enum { SIDES = 2, MAX_GROUPS = 8, MAX_FLAGS = 16 };

typedef struct {
  IrStmt *loop; /* of one side */
  IrStmt **stmt;
  int n;
  int *depth, *group;    /* by statement */
  uint8_t *effect;       /* by statement and buffer: 1 reads, 2 writes */
  bool *fixed;           /* holds a flag, or moves what both sides use */
} Side;

typedef struct {
  PassCtx *p;
  Side side[SIDES];
  int groups;
  struct { int set, wait, from, credits; } flag[MAX_FLAGS]; /* set, wait: statements, or -1; from: a side */
  bool *versions; /* by buffer */
  bool ok;
} Skew;

/* ---- what statements do --------------------------------------------------------------------------------------- */

typedef struct { Skew *k; Side *side; int at; bool plain; } Look;

static uint8_t *effect_of(Look *l, const IrBuf *b) {
  return &l->side->effect[(size_t)l->at * l->k->p->k->bufs.len + ir_root((IrBuf *)b)->id];
}

static void look_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) *effect_of(user, e->buf) |= 1;
}
static void look_expr(IrExpr **e, void *user) { ir_walk_expr(*e, look_load, user); }

static bool look_stmt(IrStmt *s, void *user) {
  Look *l = user;
  ir_stmt_exprs(s, look_expr, l);
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    int n_in = ir_n_in(s->op);
    *effect_of(l, s->args[i].region.buf) |= i < n_in ? 1 : op_info[s->op].out[i - n_in] == 'w' ? 2 : 3;
  }
  if (s->op == ST_STORE) *effect_of(l, s->store.buf) |= 2;
  bool sync = s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT;
  if (sync) {
    int id = s->sync.id->op == EX_INT ? (int)s->sync.id->i : -1;
    if (id < 0 || id >= MAX_FLAGS) l->plain = false;
    else if (s->op == ST_CROSS_SET) l->k->flag[id].set = l->at, l->k->flag[id].from = (int)(l->side - l->k->side);
    else l->k->flag[id].wait = l->at;
    l->side->fixed[l->at] = true;
  }
  if (s->op == ST_VAR || s->op == ST_ASSIGN || s->op == ST_BREAK || s->op == ST_CONTINUE || s->op == ST_SYNC_ALL ||
      s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG || s->op == ST_BARRIER || s->op == ST_ALLOC)
    l->plain = false;
  return l->plain;
}

static bool look_at_side(Skew *k, Side *d) {
  PassCtx *p = k->p;
  for (IrStmt *s = d->loop->body.first; s; s = s->next) d->n++;
  d->stmt = arena_array(p->arena, IrStmt *, d->n + 1);
  d->depth = arena_array(p->arena, int, d->n + 1);
  d->group = arena_array(p->arena, int, d->n + 1);
  d->fixed = arena_array(p->arena, bool, d->n + 1);
  d->effect = arena_array(p->arena, uint8_t, (size_t)(d->n + 1) * p->k->bufs.len);
  int i = 0;
  for (IrStmt *s = d->loop->body.first; s; s = s->next, i++) {
    Look l = {k, d, i, true};
    d->stmt[i] = s;
    bool all = look_stmt(s, &l) && ir_walk(&s->body, look_stmt, &l) && ir_walk(&s->alt, look_stmt, &l);
    if (!all || !l.plain) return false;
  }
  return true;
}

static bool is_set(const IrStmt *s, int id) {
  return s->op == ST_CROSS_SET && s->sync.id->op == EX_INT && s->sync.id->i == id;
}
static bool is_no_set(IrStmt *s, void *user) { return !is_set(s, *(int *)user); }

/* How often the flag is set before the loop: the credits in advance. What stands before another loop with that flag is
 * that loop's. */
static int credits_of(const IrStmt *loop, int id) {
  int n = 0;
  for (const IrStmt *at = loop; at && !ir_is_side(at); at = at->block->parent)
    for (IrStmt *s = at->prev; s; s = s->prev) {
      n += is_set(s, id);
      if (!ir_walk(&s->body, is_no_set, &id) || !ir_walk(&s->alt, is_no_set, &id)) return n;
    }
  return n;
}

static uint8_t effect(const Skew *k, const Side *d, int stmt, uint32_t buf) {
  return d->effect[(size_t)stmt * k->p->k->bufs.len + buf];
}

/* Tensors that both sides use are moved under flags: their copies stay beside them. False: a workspace of one of these
 * loops is no business of the other, so they are no halves of one loop; flags of the same number are other edges'. */
static bool fix_shared(Skew *k) {
  for (uint32_t b = 1; b < k->p->k->bufs.len; b++) {
    if (k->p->k->bufs.data[b]->space != SPACE_GM) continue;
    uint8_t all = 0, uses[SIDES] = {0};
    for (int x = 0; x < SIDES; x++)
      for (int i = 0; i < k->side[x].n; i++) uses[x] |= effect(k, &k->side[x], i, b);
    all = uses[0] | uses[1];
    if (!uses[0] != !uses[1] && k->p->k->bufs.data[b]->is_work) return false;
    if (!uses[0] || !uses[1] || !(all & 2)) continue;
    for (int x = 0; x < SIDES; x++)
      for (int i = 0; i < k->side[x].n; i++) k->side[x].fixed[i] |= effect(k, &k->side[x], i, b) != 0;
  }
  return true;
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

/* Depth: how often the sides have changed before a statement; a group is what lies between two answers. */
static bool find_groups(Skew *k, int stages) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int x = 0; x < SIDES; x++) {
      Side *d = &k->side[x];
      int depth = 0;
      for (int i = 0; i < d->n; i++) {
        for (int f = 0; f < MAX_FLAGS; f++) {
          bool forward = k->flag[f].set >= 0 && k->flag[f].wait == i && k->flag[f].from != x && !k->flag[f].credits;
          int need = forward ? k->side[1 - x].depth[k->flag[f].set] + 1 : 0;
          if (need > depth) depth = need;
        }
        if (depth > 2 * MAX_GROUPS) return false; /* each waits for the other: not a program that ends */
        changed |= d->depth[i] != depth;
        d->depth[i] = depth;
      }
    }
  }
  for (int x = 0; x < SIDES; x++)
    for (int i = 0; i < k->side[x].n; i++) {
      int g = k->side[x].depth[i] / 2;
      k->side[x].group[i] = g < stages ? g : stages - 1;
      if (k->side[x].group[i] + 1 > k->groups) k->groups = k->side[x].group[i] + 1;
    }
  return k->groups > 1;
}

static bool conflict(const Skew *k, const Side *d, int a, int b) {
  for (uint32_t i = 1; i < k->p->k->bufs.len; i++) {
    uint8_t x = effect(k, d, a, i), y = effect(k, d, b, i);
    if (x && y && ((x | y) & 2)) return true;
  }
  return false;
}

static bool move_to(Skew *k, Side *d, int i, int group) {
  if (d->group[i] >= group) return false;
  if (d->fixed[i]) k->ok = false;
  d->group[i] = group;
  return true;
}

/* The groups that touch buffer b: from the first to the last; does one write it? */
static bool spread(const Skew *k, const Side *d, uint32_t b, int *first, int *last) {
  bool written = false;
  *first = MAX_GROUPS;
  *last = -1;
  for (int i = 0; i < d->n; i++) {
    uint8_t e = effect(k, d, i, b);
    if (!e) continue;
    written |= (e & 2) != 0;
    if (d->group[i] < *first) *first = d->group[i];
    if (d->group[i] > *last) *last = d->group[i];
  }
  return written && *first < *last;
}

/* Are the versions that b has those of this loop? */
static bool versions_of(const Side *d, const IrBuf *b) {
  for (int i = 0; i < d->n; i++)
    for (int a = 0; a < d->stmt[i]->n_args; a++) {
      const IrArg *arg = &d->stmt[i]->args[a];
      if (arg->kind == ARG_REGION && arg->region.buf == b) return ir_expr_uses(arg->region.off[0], d->loop->loop.var);
    }
  return false;
}

static bool can_have_versions(Skew *k, const Side *d, IrBuf *b) {
  if (b->versions) return b->versions >= k->groups && versions_of(d, b);
  if ((b->space != SPACE_UB && b->space != SPACE_L1) || b->rank >= IR_MAX_RANK || b->addr >= 0 || b->view)
    return false;
  for (uint32_t i = 1; i < k->p->k->bufs.len; i++)
    if (k->p->k->bufs.data[i]->view == b) return false;
  return pipeline_fresh(k->p, d->loop, b) && pipeline_room(k->p, b) >= k->groups;
}

/* Moves statements to later groups until groups share nothing but what has versions. */
static void settle(Skew *k, Side *d) {
  for (bool changed = true; changed && k->ok;) {
    changed = false;
    for (uint32_t b = 1; b < k->p->k->bufs.len; b++) {
      int first, last;
      k->versions[b] = false;
      if (!spread(k, d, b, &first, &last)) continue;
      k->versions[b] = can_have_versions(k, d, k->p->k->bufs.data[b]);
      for (int i = 0; i < d->n && !k->versions[b]; i++)
        if (effect(k, d, i, b)) changed |= move_to(k, d, i, last);
    }
    for (int i = 0; i < d->n; i++)
      for (int j = i + 1; j < d->n; j++)
        if (d->group[j] < d->group[i] && conflict(k, d, i, j)) changed |= move_to(k, d, j, d->group[i]);
  }
}

/* Snapshots are taken anew in each group, so what they read must not change. */
static bool snapshots_hold(const Skew *k, const Side *d) {
  for (int i = 0; i < d->n; i++) {
    if (d->stmt[i]->op != ST_LET) continue;
    for (uint32_t b = 1; b < k->p->k->bufs.len; b++)
      for (int x = 0; effect(k, d, i, b) && x < SIDES; x++)
        for (int j = 0; j < k->side[x].n; j++)
          if (k->p->k->bufs.data[b]->space != SPACE_GM || (effect(k, &k->side[x], j, b) & 2)) return false;
  }
  return true;
}

/* ---- waiting in a circle -------------------------------------------------------------------------------------- */

static bool no_circle(const Skew *k) {
  bool before[SIDES * MAX_GROUPS][SIDES * MAX_GROUPS] = {{false}};
  int n = SIDES * MAX_GROUPS;
  for (int x = 0; x < SIDES; x++)
    for (int g = 0; g + 1 < k->groups; g++) before[x * MAX_GROUPS + g][x * MAX_GROUPS + g + 1] = true;
  for (int f = 0; f < MAX_FLAGS; f++) {
    if (k->flag[f].set < 0) continue;
    int from = k->flag[f].from, to = 1 - from;
    int s = k->side[from].group[k->flag[f].set], w = k->side[to].group[k->flag[f].wait];
    if (s > w + k->flag[f].credits) return false;
    if (s == w + k->flag[f].credits) before[from * MAX_GROUPS + s][to * MAX_GROUPS + w] = true;
  }
  for (int x = 0; x < n; x++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        if (before[i][x] && before[x][j]) before[i][j] = true;
  for (int x = 0; x < SIDES; x++)
    for (int g = 0; g < k->groups; g++)
      for (int h = g + 1; h < k->groups; h++)
        if (before[x * MAX_GROUPS + h][x * MAX_GROUPS + g]) return false;
  return true;
}

/* ---- writing the new loop ------------------------------------------------------------------------------------- */

/* Takes away the snapshots that nothing after them uses. */
static void drop_idle_lets(IrBlock *b) {
  for (IrStmt *s = b->last, *prev; s; s = prev) {
    prev = s->prev;
    if (s->op != ST_LET) continue;
    bool used = false;
    for (IrStmt *t = s->next; t && !used; t = t->next) used = ir_stmt_uses(t, s->set.var);
    if (!used) ir_remove(s);
  }
}

/* if (it is the turn of group g at time t) { the group's statements of iteration t - g } */
static IrStmt *group_of(Skew *k, Side *d, int g, IrVar *t) {
  IrKernel *ir = k->p->k;
  IrStmt *loop = d->loop, *one = ir_clone(ir, loop), *turn = ir_new_stmt(ir, ST_IF, loop->loc);
  IrExpr *i = ir_binary(ir, EX_SUB, ir_var(ir, t), ir_i32(ir, g)), *since = NULL, *until = NULL;
  if (g) since = ir_binary(ir, EX_LE, ir_binary(ir, EX_ADD, loop->loop.lo, ir_i32(ir, g)), ir_var(ir, t));
  if (g + 1 < k->groups) until = ir_binary(ir, EX_LT, i, loop->loop.hi);
  turn->test.cond = since && until ? ir_binary(ir, EX_LAND, since, until) : since ? since : until;
  int at = 0;
  for (IrStmt *s = one->body.first, *next; s; s = next, at++) {
    next = s->next;
    bool mine = s->op == ST_LET || d->group[at] == g;
    ir_remove(s);
    if (mine) ir_append(&turn->body, s);
  }
  drop_idle_lets(&turn->body);
  ir_subst_block(ir, &turn->body, one->loop.var, i);
  return turn;
}

static void rewrite(Skew *k, Side *d) {
  IrKernel *ir = k->p->k;
  IrStmt *old = d->loop, *loop = ir_new_stmt(ir, ST_FOR, old->loc);
  loop->loop = old->loop;
  loop->why = old->why;
  loop->loop.var = ir_new_var(ir, old->loop.var->name, old->loop.var->type, VAR_LOOP, old->loop.var->loc);
  loop->loop.var->def = loop;
  loop->loop.hi = ir_binary(ir, EX_ADD, old->loop.hi, ir_i32(ir, k->groups - 1));
  for (int g = 0; g < k->groups; g++) {
    IrStmt *turn = group_of(k, d, g, loop->loop.var);
    if (turn->body.first) ir_append(&loop->body, turn);
  }
  ir_insert_before(old, loop);
  ir_remove(old);
}

/* ---- driver --------------------------------------------------------------------------------------------------- */

/* Do all those versions fit together? */
static bool fits(const Skew *k, const bool *give) {
  int64_t more[SPACE_COUNT] = {0};
  for (uint32_t b = 1; b < k->p->k->bufs.len; b++) {
    IrBuf *x = k->p->k->bufs.data[b];
    if (!give[b]) continue;
    more[x->space] += (k->groups - 1) * ir_buf_bytes(x);
    if (more[x->space] > (pipeline_room(k->p, x) - 1) * ir_buf_bytes(x)) return false;
  }
  return true;
}

static void skew_loops(PassCtx *p, IrStmt *cube, IrStmt *vector) {
  Skew k = {.p = p, .side = {{.loop = cube}, {.loop = vector}}, .ok = true};
  for (int f = 0; f < MAX_FLAGS; f++) k.flag[f].set = k.flag[f].wait = -1;
  k.versions = arena_array(p->arena, bool, p->k->bufs.len);
  if (!look_at_side(&k, &k.side[0]) || !look_at_side(&k, &k.side[1])) return;
  if (!fix_shared(&k)) return;
  for (int f = 0; f < MAX_FLAGS; f++)
    if (k.flag[f].set >= 0) k.flag[f].credits = credits_of(k.side[k.flag[f].from].loop, f);
  for (int f = 0; f < MAX_FLAGS; f++)
    if ((k.flag[f].set < 0) != (k.flag[f].wait < 0)) return; /* to or from another loop */
  if (!find_groups(&k, cube->loop.stages)) return;
  for (int x = 0; x < SIDES; x++)
    if (!snapshots_hold(&k, &k.side[x])) return;
  bool *give = arena_array(p->arena, bool, p->k->bufs.len);
  for (int x = 0; x < SIDES; x++) {
    settle(&k, &k.side[x]);
    for (uint32_t b = 1; b < p->k->bufs.len; b++)
      if (k.versions[b] && !p->k->bufs.data[b]->versions) give[b] = true;
  }
  if (!k.ok || !fits(&k, give) || !no_circle(&k)) return;
  uint32_t n = p->k->bufs.len;
  for (uint32_t b = 1; b < n; b++)
    if (give[b]) pipeline_versions(p, k.side[p->k->bufs.data[b]->space == SPACE_UB].loop, p->k->bufs.data[b], k.groups);
  for (int x = 0; x < SIDES; x++) rewrite(&k, &k.side[x]);
  pass_remark(
      p, "pipeline", cube->loc,
      "the cube and the vector cores work on different iterations of the loop over %%%s: each runs up to %d ahead",
      cube->loop.var->name, k.groups - 1);
}

static bool is_candidate(const IrStmt *s) {
  return s->op == ST_FOR && s->loop.stages > 1 && !s->loop.ordered && ir_is_int(s->loop.step, 1);
}

typedef struct { PassCtx *p; Vec(IrStmt *) loops; } Found;
static bool find_loop(IrStmt *s, void *user) {
  Found *f = user;
  if (is_candidate(s)) vec_push(f->p->arena, &f->loops, s);
  return true;
}

static bool same_place(Loc a, Loc b) { return a.line == b.line && a.col == b.col && a.file == b.file; }

/* Both halves of one loop, or two loops of one length. */
static bool in_step(const IrStmt *a, const IrStmt *b) {
  if (a->loop.stages != b->loop.stages) return false;
  return same_place(a->loc, b->loc) ||
         (ir_expr_equal(a->loop.lo, b->loop.lo) && ir_expr_equal(a->loop.hi, b->loop.hi));
}

void pipeline_skew(PassCtx *p) {
  IrStmt *side[SIDES] = {NULL, NULL};
  for (IrStmt *s = p->k->body.first; s; s = s->next) {
    if (s->op == ST_CUBE) side[0] = s;
    if (s->op == ST_VECTOR) side[1] = s;
  }
  if (!side[0] || !side[1]) return;
  Found found[SIDES] = {{.p = p}, {.p = p}};
  for (int x = 0; x < SIDES; x++) ir_walk(&side[x]->body, find_loop, &found[x]);
  for (uint32_t i = 0; i < found[0].loops.len; i++)
    for (uint32_t j = 0; j < found[1].loops.len; j++) {
      IrStmt *a = found[0].loops.data[i], *b = found[1].loops.data[j];
      if (a->block && b->block && in_step(a, b)) skew_loops(p, a, b);
    }
}
