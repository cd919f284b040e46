/* sync_run.c - the cores of one block run against each other: order alone, no data.
 *
 * Every core is lined up first: the statements it executes, one after another, loops of known length iteration by
 * iteration, of an `if` the branch that is taken. Where a flag hangs on what only a run knows there is nothing to line
 * up, and nothing is said. A stretch without synchronisation may hang on anything: its accesses count as possible.
 *
 * Then S of each core issues its steps to the pipes, which take them in order, and what has to wait waits, as on the
 * chip: flags inside a core are one bit, cross-core flags count, a set of the cube core (mode 2) serves each vector
 * core, and one of the vector cores (modes 1 and 2) counts when both have set. Other blocks are taken to be in time.
 * Vector clocks keep what each pipe knows of the others, in the same way as the simulator does. The order in which the
 * cores get their turn does not matter: which wait takes which set is the same in every run, or `shaken` says so. */
#include "sync_run.h"

#include <string.h>

enum { MAX_STEPS = TL_LIMIT(12000, 100), MAX_ALIKE = 16, S_WAITS = PIPE_ALL };

/* ---- lining up ------------------------------------------------------------------------------------------------- */

typedef struct { Run *r; RunCore *c; int maybe; } Line;

static IrRange range_of(const void *user, const IrVar *v, int depth) {
  (void)depth;
  return ((const Run *)user)->env[v->id];
}

static IrRange range(const Run *r, const IrExpr *e) { return ir_range_in(e, range_of, r, 0); }

static bool value(const Run *r, const IrExpr *e, int64_t *v) {
  IrRange x = range(r, e);
  *v = x.lo;
  return x.lo == x.hi;
}

/* Widens the box by an index range; false: the access is empty. */
static bool add_extent(Box *b, int d, IrRange off, IrRange ext) {
  b->sure &= off.lo == off.hi && ext.lo == ext.hi;
  b->lo[d] = off.lo;
  b->end[d] = off.hi > INT64_MAX / 4 || ext.hi > INT64_MAX / 4 ? INT64_MAX : off.hi + ext.hi;
  return ext.hi > 0;
}

/* Appends what a region, or an element, touches in GM. */
static bool add_box(Line *l, Step *s, const IrBuf *buf, IrExpr *const *off, IrExpr *const *ext, bool write,
                    bool atomic) {
  Box b = {.buf = buf, .write = write, .sure = !l->maybe, .atomic = atomic};
  for (int d = 0; d < buf->rank; d++)
    if (!add_extent(&b, d, range(l->r, off[d]), ext ? range(l->r, ext[d]) : (IrRange){1, 1})) return false;
  if (buf->space != SPACE_GM) return true;
  vec_push(l->r->p->arena, &l->c->box, b);
  s->n_box++;
  return true;
}

static void push_step(Line *l, Step s) {
  if (l->c->step.len >= MAX_STEPS) l->r->doubt = true;
  else vec_push(l->r->p->arena, &l->c->step, s);
}

typedef struct { Line *l; Step s; bool any; } Loads;

static void add_load(IrExpr *e, void *user) {
  Loads *x = user;
  if (e->op != EX_LOAD) return;
  x->any = true;
  add_box(x->l, &x->s, e->buf, e->idx, NULL, false, false);
}
static void add_loads(IrExpr **e, void *user) { ir_walk_expr(*e, add_load, user); }

static void line_block(Line *l, IrBlock *b);

static void line_sync(Line *l, IrStmt *s) {
  Step x = {.stmt = s, .pipe = PIPE_S, .id = 0};
  int64_t id = 0;
  if (s->op == ST_BARRIER) x.pipe = s->sync.src == PIPE_ALL ? PIPE_S : s->sync.src;
  else if (s->op == ST_WAIT_FLAG) x.pipe = s->sync.dst;
  else if (s->op == ST_CROSS_WAIT) x.pipe = s->sync.src == PIPE_NONE ? PIPE_S : s->sync.src;
  else if (s->op != ST_SYNC_ALL) x.pipe = s->sync.src;
  bool sure = s->op == ST_BARRIER || s->op == ST_SYNC_ALL || (value(l->r, s->sync.id, &id) && id >= 0 && id < RUN_IDS);
  if (!sure || l->maybe || x.pipe >= PIPE_ALL) {
    l->r->doubt = true;
    return;
  }
  bool cross = s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT;
  x.id = (int8_t)id;
  l->c->joins_all |= s->op == ST_SYNC_ALL;
  l->r->by_hand |= cross && s->hand == 1;
  l->r->mode0 |= s->op == ST_CROSS_SET && s->sync.mode == 0;
  l->r->doubt |= s->op == ST_CROSS_SET && s->sync.mode == 1 && l->c->vid < 0;
  push_step(l, x);
}

static void line_if(Line *l, IrStmt *s) {
  int64_t taken;
  if (value(l->r, s->test.cond, &taken)) {
    line_block(l, taken ? &s->body : &s->alt);
    return;
  }
  l->r->doubt |= l->r->holds[s->id];
  l->maybe++;
  line_block(l, &s->body);
  line_block(l, &s->alt);
  l->maybe--;
}

static void line_loop(Line *l, IrStmt *s) {
  int64_t lo, hi, step, trips = -1;
  bool holds = l->r->holds[s->id], leaves = s->op == ST_WHILE || ir_leaves_loop(&s->body);
  if (s->op == ST_FOR && !leaves && value(l->r, s->loop.lo, &lo) && value(l->r, s->loop.hi, &hi) &&
      value(l->r, s->loop.step, &step) && step != 0)
    trips = step > 0 ? ceil_div(max_i64(hi - lo, 0), step) : ceil_div(max_i64(lo - hi, 0), -step);
  if (trips < 0 || (!holds && trips > MAX_ALIKE)) {
    l->r->doubt |= holds;
    if (s->op == ST_FOR) {
      IrRange a = range(l->r, s->loop.lo), b = range(l->r, s->loop.hi);
      bool up = ir_is_const(s->loop.step) && s->loop.step->i > 0 && b.hi != INT64_MAX;
      l->r->env[s->loop.var->id] = up ? (IrRange){a.lo, max_i64(b.hi - 1, a.lo)} : IR_OPEN;
    }
    l->maybe++;
    line_block(l, &s->body);
    l->maybe--;
    return;
  }
  for (int64_t i = 0; i < trips && !l->r->doubt; i++) {
    l->r->env[s->loop.var->id] = (IrRange){lo + i * step, lo + i * step};
    line_block(l, &s->body);
  }
}

static void line_stmt(Line *l, IrStmt *s) {
  if (s->op == ST_ALLOC || ir_is_say(s)) return;
  if (run_is_sync(s)) {
    line_sync(l, s);
    return;
  }
  Loads loads = {l, {.stmt = s, .pipe = PIPE_S, .box = l->c->box.len}, false};
  ir_stmt_exprs(s, add_loads, &loads);
  if (s->op == ST_STORE) {
    bool atomic = s->store.atomic || s->store.accumulate;
    loads.any |= add_box(l, &loads.s, s->store.buf, s->store.idx, NULL, true, atomic);
  }
  if (loads.any) push_step(l, loads.s);
  if (s->op == ST_LET) l->r->env[s->set.var->id] = range(l->r, s->set.value);
  if (s->op == ST_IF) line_if(l, s);
  if (s->op == ST_FOR || s->op == ST_WHILE) line_loop(l, s);
  if (!ir_is_op(s) || op_info[s->op].pipe >= PIPE_ALL) return;
  Step x = {.stmt = s, .pipe = (uint8_t)op_info[s->op].pipe, .box = l->c->box.len};
  bool atomic = ir_attr(s, ATTR_ATOMIC) != NULL, some = true;
  for (int i = 0; i < s->n_args && some; i++) {
    const IrRegion *g = &s->args[i].region;
    if (s->args[i].kind == ARG_REGION) some = add_box(l, &x, g->buf, g->off, g->ext, i >= ir_n_in(s->op), atomic);
  }
  if (some) push_step(l, x);
  else l->c->box.len = x.box; /* an instruction without elements does not reach its pipe */
}

static void line_block(Line *l, IrBlock *b) {
  for (IrStmt *s = b->first; s && !l->r->doubt; s = s->next) line_stmt(l, s);
}

static bool note_holder(IrStmt *s, void *user) {
  Run *r = user;
  for (IrStmt *x = s; run_is_sync(s) && x && !r->holds[x->id]; x = x->block->parent) r->holds[x->id] = true;
  return true;
}

static void add_core(Run *r, IrStmt *side, int vid) {
  Arena *a = r->p->arena;
  RunCore *c = &r->core[r->n_cores++];
  c->side = side;
  c->vid = vid;
  c->joins_all = false;
  c->step.len = c->box.len = 0;
  for (int p = 0; p < PIPE_ALL; p++) c->queue[p].len = 0;
  if (r->k->vid) r->env[r->k->vid->id] = (IrRange){max_i64(vid, 0), max_i64(vid, 0)};
  line_block(&(Line){r, c, 0}, &side->body);
  for (uint32_t i = 0; i < c->step.len; i++) vec_push(a, &c->queue[c->step.data[i].pipe], i);
  if (!c->flag) {
    c->flag = arena_array(a, LocalFlag, PIPE_ALL * PIPE_ALL * RUN_IDS);
    c->cross = arena_array(a, Sets, RUN_IDS);
    c->sent = arena_array(a, Sets, RUN_IDS * RUN_MODES);
  }
  if (c->room >= c->step.len) return;
  c->room = c->step.len + c->step.len / 2;
  c->version = arena_array(a, uint32_t, c->room);
  c->knew = arena_array(a, RunClock, c->room);
  c->when = arena_array(a, uint32_t, c->room);
}

void run_init(Run *r, PassCtx *p) {
  *r = (Run){.p = p, .k = p->k};
  r->env = arena_array(p->arena, IrRange, p->k->vars.len + 1);
  r->holds = arena_array(p->arena, bool, p->k->n_stmts + 1);
  ir_walk(&p->k->body, note_holder, r);
}

bool run_line_up(Run *r, int64_t block) {
  IrKernel *k = r->k;
  r->n_cores = 0;
  r->doubt = false;
  for (uint32_t i = 0; i <= k->vars.len; i++) r->env[i] = IR_OPEN;
  for (uint32_t g = 0; g < k->grid.len; g++) {
    int64_t n = ir_is_const(k->grid_ext.data[g]) ? max_i64(k->grid_ext.data[g]->i, 1) : INT64_MAX;
    r->env[k->grid.data[g]->id] = (IrRange){block % n, block % n};
    block /= n;
  }
  for (IrStmt *s = k->body.first; s && !r->doubt; s = s->next) {
    if (!ir_is_side(s) || !s->body.first) continue;
    if (r->n_cores + (s->op == ST_VECTOR) >= RUN_CORES) return false;
    add_core(r, s, s->op == ST_CUBE ? -1 : 0);
    if (s->op == ST_VECTOR && (k->vid || k->cores == CORES_MIX) && !r->doubt) add_core(r, s, 1);
  }
  return !r->doubt && r->n_cores > 0;
}

/* ---- clocks ---------------------------------------------------------------------------------------------------- */

static void join(const Run *r, RunClock *into, const RunClock *from) {
  for (int i = 0; i < r->n_cores * RUN_COMPS; i++)
    if (into->t[i] < from->t[i]) into->t[i] = from->t[i];
}

static bool covers(const Run *r, const RunClock *a, const RunClock *b) {
  for (int i = 0; i < r->n_cores * RUN_COMPS; i++)
    if (a->t[i] < b->t[i]) return false;
  return true;
}

static void publish(const Run *r, const RunCore *c, Pipe p, RunClock *into) {
  join(r, into, &c->seen[p]);
  uint32_t *own = &into->t[run_comp(r, c, p)];
  if (*own < c->tick[p]) *own = c->tick[p];
}

static void learn(Run *r, RunCore *c, Pipe p, const RunClock *clock) {
  join(r, &c->seen[p], clock);
  if (p == PIPE_S) vec_push(r->p->arena, &c->said, c->seen[PIPE_S]);
}

void run_mend(Run *r, RunCore *c, Pipe p, const RunCore *other, uint32_t at) {
  RunClock then = other->knew[at];
  then.t[run_comp(r, other, (Pipe)other->step.data[at].pipe)] = other->when[at];
  learn(r, c, p, &then);
}

/* Where passing a statement of synchronisation is counted: what S issues later comes after those of S. */
static int sync_comp(const Run *r, const RunCore *c, Pipe p) {
  return run_comp(r, c, p == PIPE_S ? (Pipe)S_WAITS : p);
}

static uint32_t sync_tick(const RunCore *c, Pipe p) { return p == PIPE_S ? c->s_order : c->tick[p]; }

/* ---- flags ----------------------------------------------------------------------------------------------------- */

static LocalFlag *flag_of(RunCore *c, const Step *s) {
  return &c->flag[((int)s->stmt->sync.src * PIPE_ALL + (int)s->stmt->sync.dst) * RUN_IDS + s->id];
}

static void shake(Run *r, const RunCore *c, const Step *s, const Step *with) {
  if (r->shaken) return;
  r->shaken = s;
  r->shaken_with = with;
  r->shaken_core = c;
}

static void local_set(Run *r, RunCore *c, const Step *s, Pipe p) {
  LocalFlag *f = flag_of(c, s);
  if (f->set) shake(r, c, s, f->setter);
  else if (f->waiter && f->wait_tick > c->seen[p].t[sync_comp(r, c, s->stmt->sync.dst)]) shake(r, c, s, f->waiter);
  f->set = true;
  f->setter = s;
  memset(&f->clock, 0, sizeof f->clock);
  publish(r, c, p, &f->clock);
}

static void local_wait(Run *r, RunCore *c, const Step *s, Pipe p) {
  LocalFlag *f = flag_of(c, s);
  f->set = false;
  f->waiter = s;
  f->wait_tick = sync_tick(c, p);
  learn(r, c, p, &f->clock);
}

/* Two pipes that use the same end of a flag do it in an order, or which set serves which wait is left to chance. */
static void check_end(Run *r, const RunCore *c, const Step *s, const Step *other, const RunClock *then) {
  int x = sync_comp(r, c, (Pipe)other->pipe);
  if (s->pipe != other->pipe && c->seen[s->pipe].t[x] < then->t[x]) shake(r, c, s, other);
}

static void push_set(Run *r, Sets *to, const RunClock *clock, const Step *s) {
  uint32_t most = (uint32_t)min_i64(r->p->arch->cross_flag_max, RUN_IDS - 1);
  while (to->known != to->head && covers(r, clock, &to->gone[to->known % RUN_IDS])) to->known++;
  r->full |= to->tail - to->known >= most;
  if (to->tail - to->head >= RUN_IDS) {
    r->doubt = true;
    return;
  }
  to->set[to->tail++ % RUN_IDS] = *clock;
  to->setter = s;
}

static RunClock *take_set(Sets *x) {
  x->head++;
  if (x->head - x->known > RUN_IDS) x->known++;
  return &x->gone[(x->head - 1) % RUN_IDS];
}

static bool same_kind(const RunCore *a, const RunCore *b) { return (a->vid < 0) == (b->vid < 0); }

/* A set counts when all cores of its kind have set. */
static void match_sets(Run *r, RunCore *c, const Step *s) {
  int mode = s->stmt->sync.mode, at = s->id * RUN_MODES + mode;
  RunClock all = {{0}};
  for (int i = 0; i < r->n_cores; i++)
    if (same_kind(c, &r->core[i]) && r->core[i].sent[at].head == r->core[i].sent[at].tail) return;
  for (int i = 0; i < r->n_cores; i++) {
    Sets *x = &r->core[i].sent[at];
    if (same_kind(c, &r->core[i])) join(r, &all, &x->set[x->head % RUN_IDS]);
  }
  for (int i = 0; i < r->n_cores; i++) {
    if (!same_kind(c, &r->core[i])) continue;
    RunClock *gone = take_set(&r->core[i].sent[at]);
    *gone = all;
    memset(&gone->t[i * RUN_COMPS], 0, sizeof *gone->t * RUN_COMPS);
  }
  for (int i = 0; i < r->n_cores; i++)
    if (mode == 2 ? r->core[i].vid < 0 : same_kind(c, &r->core[i])) push_set(r, &r->core[i].cross[s->id], &all, s);
}

static void cross_set(Run *r, RunCore *c, const Step *s, Pipe p) {
  RunClock all = {{0}};
  publish(r, c, p, &all);
  bool to_vector = s->stmt->sync.mode == 2 && c->vid < 0;
  for (int i = 0; i < r->n_cores; i++) {
    RunCore *o = to_vector ? &r->core[i] : c;
    if (to_vector && o->vid < 0) continue;
    Sets *x = to_vector ? &o->cross[s->id] : &c->sent[s->id * RUN_MODES + s->stmt->sync.mode];
    if (x->tail) check_end(r, c, s, x->setter, &x->set[(x->tail - 1) % RUN_IDS]);
    push_set(r, x, &all, s);
    if (!to_vector) break;
  }
  if (!to_vector) match_sets(r, c, s);
}

static void cross_wait(Run *r, RunCore *c, const Step *s, Pipe p) {
  Sets *x = &c->cross[s->id];
  uint32_t slot = x->head % RUN_IDS;
  if (x->head) check_end(r, c, s, x->taker, &x->gone[(x->head - 1) % RUN_IDS]);
  x->taker = s;
  learn(r, c, p, &x->set[slot]);
  RunClock *gone = take_set(x);
  memset(gone, 0, sizeof *gone);
  gone->t[sync_comp(r, c, p)] = sync_tick(c, p);
}

static void join_core(const Run *r, const RunCore *c, RunClock *into) {
  for (int p = 0; p < PIPE_ALL; p++) publish(r, c, (Pipe)p, into);
}

static void learn_all(Run *r, RunCore *c, const RunClock *all) {
  for (int p = 0; p < PIPE_ALL; p++) learn(r, c, (Pipe)p, all);
}

static void arrive(Run *r, RunCore *c) {
  RunClock all = {{0}};
  c->all = 1;
  for (int i = 0; i < r->n_cores; i++)
    if (r->core[i].joins_all && !r->core[i].all) return;
  for (int i = 0; i < r->n_cores; i++)
    if (r->core[i].joins_all) join_core(r, &r->core[i], &all);
  for (int i = 0; i < r->n_cores; i++)
    if (r->core[i].joins_all) r->core[i].all = 2, learn_all(r, &r->core[i], &all);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static bool left_out(const Run *r, const Step *s) {
  return (s->stmt->op == ST_CROSS_SET || s->stmt->op == ST_CROSS_WAIT) && (r->gone >> s->id & 1);
}

static bool empty(const RunCore *c) {
  for (int p = PIPE_S + 1; p < PIPE_ALL; p++)
    if (c->head[p] < c->issued[p]) return false;
  return true;
}

static bool may_go(const Run *r, RunCore *c, const Step *s) {
  if (left_out(r, s)) return true;
  switch (s->stmt->op) {
  case ST_WAIT_FLAG: return flag_of(c, s)->set;
  case ST_CROSS_WAIT: return c->cross[s->id].head != c->cross[s->id].tail;
  case ST_BARRIER: return s->stmt->sync.src != PIPE_ALL || empty(c);
  case ST_SYNC_ALL: return c->all == 2;
  default: return true;
  }
}

static void go(Run *r, RunCore *c, uint32_t at) {
  const Step *s = &c->step.data[at];
  Pipe p = (Pipe)s->pipe;
  c->when[at] = ++c->tick[p];
  if (p != PIPE_S) {
    join(r, &c->seen[p], &c->said.data[c->version[at]]);
  } else if (run_is_sync(s->stmt)) {
    c->seen[PIPE_S].t[sync_comp(r, c, PIPE_S)] = ++c->s_order;
    vec_push(r->p->arena, &c->said, c->seen[PIPE_S]);
  }
  if (s->n_box && r->step) r->step(r, c, at);
  c->knew[at] = c->seen[p];
  r->work++;
  if (left_out(r, s)) return;
  RunClock all = {{0}};
  switch (s->stmt->op) {
  case ST_SET_FLAG: local_set(r, c, s, p); break;
  case ST_WAIT_FLAG: local_wait(r, c, s, p); break;
  case ST_CROSS_SET: cross_set(r, c, s, p); break;
  case ST_CROSS_WAIT: cross_wait(r, c, s, p); break;
  case ST_SYNC_ALL: c->all = 0; break;
  case ST_BARRIER:
    if (s->stmt->sync.src != PIPE_ALL) {
      c->seen[p].t[run_comp(r, c, p)] = c->tick[p];
      break;
    }
    join_core(r, c, &all);
    learn_all(r, c, &all);
    break;
  default: break;
  }
}

static bool move_s(Run *r, RunCore *c) {
  uint32_t from = c->pc;
  for (; c->pc < c->step.len && !r->doubt; c->pc++) {
    const Step *s = &c->step.data[c->pc];
    if (s->pipe != PIPE_S) {
      c->version[c->pc] = c->said.len - 1;
      c->issued[s->pipe]++;
      continue;
    }
    if (s->stmt->op == ST_SYNC_ALL && !c->all && empty(c)) arrive(r, c);
    if (!may_go(r, c, s)) break;
    go(r, c, c->pc);
    c->head[PIPE_S]++;
  }
  return c->pc != from;
}

static bool move_core(Run *r, RunCore *c) {
  bool moved = move_s(r, c);
  for (int p = PIPE_S + 1; p < PIPE_ALL; p++)
    while (c->head[p] < c->issued[p] && !r->doubt && may_go(r, c, &c->step.data[c->queue[p].data[c->head[p]]])) {
      go(r, c, c->queue[p].data[c->head[p]++]);
      moved = true;
    }
  return moved;
}

static void forget_sets(Sets *x, int n) {
  for (int i = 0; i < n; i++) x[i].head = x[i].tail = x[i].known = 0;
}

/* A wait that never ends because another pipe has taken its set. */
static void check_waiting(Run *r, const RunCore *c) {
  uint32_t at;
  for (Pipe p = PIPE_S; (p = run_waiting(c, p, &at)) != PIPE_COUNT; p++) {
    const Step *s = &c->step.data[at];
    const Sets *x = &c->cross[s->id];
    if (s->stmt->op == ST_CROSS_WAIT && x->head) check_end(r, c, s, x->taker, &x->gone[(x->head - 1) % RUN_IDS]);
  }
}

bool run_over(const RunCore *c) { return c->pc == c->step.len && empty(c); }

bool run_replay(Run *r) {
  r->shaken = NULL;
  r->full = false;
  for (int i = 0; i < r->n_cores; i++) {
    RunCore *c = &r->core[i];
    c->pc = c->s_order = 0;
    c->all = 0;
    c->said.len = 0;
    memset(c->issued, 0, sizeof c->issued);
    memset(c->head, 0, sizeof c->head);
    memset(c->tick, 0, sizeof c->tick);
    memset(c->seen, 0, sizeof c->seen);
    if (c->step.len) memset(c->when, 0, sizeof *c->when * c->step.len);
    memset(c->flag, 0, sizeof *c->flag * PIPE_ALL * PIPE_ALL * RUN_IDS);
    forget_sets(c->cross, RUN_IDS);
    forget_sets(c->sent, RUN_IDS * RUN_MODES);
    vec_push(r->p->arena, &c->said, c->seen[PIPE_S]);
  }
  for (bool moved = true, over; moved && !r->doubt;) {
    moved = false;
    over = true;
    for (int i = 0; i < r->n_cores; i++) moved |= move_core(r, &r->core[i]);
    for (int i = 0; i < r->n_cores; i++) over &= run_over(&r->core[i]);
    if (over) return true;
  }
  for (int i = 0; i < r->n_cores; i++) check_waiting(r, &r->core[i]);
  return false;
}

Pipe run_waiting(const RunCore *c, Pipe from, uint32_t *at) {
  for (int p = from; p < PIPE_ALL; p++) {
    if (p == PIPE_S ? c->pc == c->step.len : c->head[p] == c->issued[p]) continue;
    *at = p == PIPE_S ? c->pc : c->queue[p].data[c->head[p]];
    return (Pipe)p;
  }
  return PIPE_COUNT;
}
