/* queue.c - instructions leave their queue: operations, flags, barriers, cross-core flags; and what it says when none
 * can.
 *
 * Order is kept in vector clocks: `seen` of a pipe says, for every pipe of every core, up to which of its instructions
 * all effects are known to be there. set_flag hands the setter's clock to the pipe that waits; so do cross-core flags,
 * barriers and sync_all. An instruction also starts after what S had seen when it issued it, for S blocks while it
 * waits (S_ORDER counts these waits) - but not after loads and stores of S itself, which need a flag like those of any
 * pipe. A pipe that is not in order (V) does not know its own instructions done until a barrier.
 *
 * With checks on, whether a flag is free for a set is asked of the clocks too: a wait that merely happened to run first
 * does not count, one that is ordered before the set does. So the answer is the worst over all schedules. */
#include "machine.h"

#include <string.h>

void clock_join(uint32_t *into, const uint32_t *from, int32_t n) {
  for (int32_t i = 0; i < n; i++) into[i] = into[i] > from[i] ? into[i] : from[i];
}

static int32_t comp(const Core *c, int p) { return c->index * COMPS + p; }
/* The component that tells when statements of synchronisation of pipe p are passed. */
static int32_t sync_comp(const Core *c, int p) { return comp(c, p == PIPE_S ? (int)S_ORDER : p); }

/* What is known done when everything pipe p has begun is done. */
static void publish(const Core *c, Pipe p, uint32_t *into) {
  const PipeQueue *q = &c->pipe[p];
  clock_join(into, q->seen, c->m->n_comp);
  if (c->m->n_comp && into[comp(c, p)] < q->tick) into[comp(c, p)] = q->tick;
}

static void learn(Core *c, Pipe p, const uint32_t *clock) {
  if (!c->m->n_comp) return;
  clock_join(c->pipe[p].seen, clock, c->m->n_comp);
  if (p == PIPE_S)
    for (int x = 1; x < CORE_PIPES; x++) c->pipe[x].stale = true;
}

void mend_race(Core *c, Pipe p, const Core *oc, Pipe op) {
  if (c == oc && p == op) {
    c->pipe[p].seen[comp(c, p)] = c->pipe[p].tick - 1;
    return;
  }
  memset(c->m->all_clock, 0, sizeof(uint32_t) * (size_t)c->m->n_comp);
  publish(oc, op, c->m->all_clock);
  learn(c, p, c->m->all_clock);
}

bool pipes_empty(const Core *c) {
  for (int p = 1; p < CORE_PIPES; p++)
    if (c->pipe[p].head != c->pipe[p].tail) return false;
  return true;
}

/* ---- flags ---------------------------------------------------------------------------------------------- */

static Flag *flag_of(const Core *c, const Inst *i, int64_t id) {
  if (id < 0 || id >= SIM_FLAGS) return NULL;
  return &c->flag[(i->src * CORE_PIPES + i->dst) * SIM_FLAGS + id];
}

static void no_flag(Core *c, const Inst *i, int64_t id, int n) {
  if (fault_known(c, DIAG_SIM_FLAG_ID, i->stmt, NULL)) return;
  Fault *f =
      fault(c, DIAG_SIM_FLAG_ID, i->stmt, NULL, "`%s`: flag %lld does not exist; %s has flags 0 to %d here (%s)",
            inst_text(&c->m->arena, c, i->stmt), (long long)id, c->m->sim->arch->name, n - 1, where(&c->m->arena, c));
  if (f) fault_fix(c, f, "use a flag below %d", n);
}

static void set_twice(Core *c, const Inst *i, const Flag *f, int64_t id) {
  bool pending = f->set > 0;
  const IrStmt *with = pending ? f->setter->stmt : f->waiter->stmt;
  if (fault_known(c, DIAG_SIM_FLAG_TWICE, i->stmt, with)) return;
  const char *src = pipe_info[i->src].name, *dst = pipe_info[i->dst].name;
  Fault *x = pending ? fault(c, DIAG_SIM_FLAG_TWICE, i->stmt, with,
                             "flag %s -> %s #%lld is set while it is still set; the second set is lost (%s)", src, dst,
                             (long long)id, where(&c->m->arena, c))
                     : fault(c, DIAG_SIM_FLAG_TWICE, i->stmt, with,
                             "flag %s -> %s #%lld may be set again before pipe %s has waited for the set before; one "
                             "of the two is then lost (%s)",
                             src, dst, (long long)id, dst, where(&c->m->arena, c));
  if (!x) return;
  fault_other(c, x, pending ? "the first set" : "the wait that takes the set before; nothing makes pipe %s wait for it",
              src);
  if (pending)
    fault_fix(c, x, "put a `wait_flag %s -> %s #%lld` between the two, or use two flags in turn", src, dst,
              (long long)id);
  else
    fault_fix(c, x, "%s, or use two ids in turn",
              ir_order_fix(&c->m->arena, c->m->sim->k, (IrStmt *)with, i->dst, (IrStmt *)i->stmt, i->src, false));
}

/* Room for the clock of one more set. Each set has its own, so that a wait learns only of the set it takes. */
static uint32_t *flag_clock(Core *c, Flag *f) {
  int64_t n = c->m->n_comp;
  if (!f->clocks) f->clocks = arena_array(&c->m->arena, uint32_t, n * FLAG_CLOCKS);
  uint32_t *clock = f->clocks + (f->first + f->set) % FLAG_CLOCKS * n;
  if (f->set >= FLAG_CLOCKS)
    return f->clocks + (f->first + FLAG_CLOCKS - 1) % FLAG_CLOCKS * n; /* a fault long since: the last takes it too */
  return memset(clock, 0, sizeof *clock * (size_t)n);
}

static void set_flag(Core *c, const Inst *i, Pipe p, int64_t id) {
  Flag *f = flag_of(c, i, id);
  if (!f || (c->m->sim->checks && id >= c->m->sim->arch->n_flags)) no_flag(c, i, id, c->m->sim->arch->n_flags);
  if (!f) return;
  if (c->m->n_comp) {
    if (f->set || (f->waiter && f->wait_tick > c->pipe[p].seen[sync_comp(c, i->dst)])) set_twice(c, i, f, id);
    publish(c, p, flag_clock(c, f));
  }
  f->set++;
  f->setter = i;
}

static void wait_flag(Core *c, const Inst *i, Pipe p, int64_t id) {
  Flag *f = flag_of(c, i, id);
  if (!f || (c->m->sim->checks && id >= c->m->sim->arch->n_flags)) no_flag(c, i, id, c->m->sim->arch->n_flags);
  if (!f) return;
  const uint32_t *clock = c->m->n_comp ? f->clocks + f->first * (uint32_t)c->m->n_comp : NULL;
  f->set--;
  f->first = (f->first + 1) % FLAG_CLOCKS;
  f->waiter = i;
  f->wait_tick = p == PIPE_S ? c->s_order : c->pipe[p].tick;
  if (clock) learn(c, p, clock);
}

/* ---- cross-core flags ----------------------------------------------------------------------------------- */

static uint32_t *cross_clock(const Machine *m, uint32_t *clocks, uint32_t n) {
  return clocks + (int64_t)(n % CROSS_RING) * m->n_comp;
}

static bool covers(const uint32_t *clock, const uint32_t *other, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    if (clock[i] < other[i]) return false;
  return true;
}

static void cross_full(Core *from, const Inst *i, int64_t id, uint32_t most) {
  if (fault_known(from, DIAG_SIM_CROSS_FULL, i->stmt, NULL)) return;
  Fault *f = fault(from, DIAG_SIM_CROSS_FULL, i->stmt, NULL,
                   "cross-core flag %lld can hold %u sets already, for nothing makes this set come after the waits "
                   "that take them; one more hangs the core (%s)",
                   (long long)id, most, where(&from->m->arena, from));
  if (f) fault_fix(from, f, "let the other core wait for the flag more often, or answer with a flag of its own");
}

/* Two pipes of one core that use the same end of a flag must do it in an order; `clock`: when the other did. */
static void cross_mixed(Core *c, const Inst *i, const Inst *other, const uint32_t *clock, int64_t id,
                        const char *verb) {
  int32_t x = sync_comp(c, other->pipe);
  if (i->pipe == other->pipe || c->pipe[i->pipe].seen[x] >= clock[x]) return;
  if (fault_known(c, DIAG_SIM_CROSS_MIXED, i->stmt, other->stmt)) return;
  Fault *f = fault(c, DIAG_SIM_CROSS_MIXED, i->stmt, other->stmt,
                   "pipes %s and %s %s cross-core flag %lld in no order; which set serves which wait is left to chance "
                   "(%s)", pipe_info[i->pipe].name, pipe_info[other->pipe].name, verb, (long long)id,
                   where(&c->m->arena, c));
  if (!f) return;
  fault_other(c, f, "the other pipe");
  fault_fix(c, f, "use one flag a pipe, or order the two pipes by a flag between them");
}

static void note_setter(Core *c, const CrossFlag *x, const Inst *i, int64_t id) {
  if (!c->m->n_comp || !x->tail) return;
  cross_mixed(c, i, x->setter[(x->tail - 1) % CROSS_RING], cross_clock(c->m, x->clocks, x->tail - 1), id, "set");
}

/* Another set for `to`. Sets count as taken when that is ordered before this set. */
static void push_set(Core *to, CrossFlag *x, const Inst *i, const uint32_t *clock, int64_t id, Core *from) {
  Machine *m = to->m;
  uint32_t most = (uint32_t)min_i64(m->sim->arch->cross_flag_max, CROSS_RING);
  while (m->n_comp && x->known != x->head && covers(clock, cross_clock(m, x->gone, x->known), m->n_comp)) x->known++;
  bool full = x->tail - x->head >= most;
  if (full || (m->n_comp && x->tail - x->known >= most)) {
    cross_full(from, i, id, most);
    m->hung |= full;
    if (full) return;
  }
  uint32_t slot = x->tail++ % CROSS_RING;
  x->setter[slot] = i;
  if (m->n_comp) memcpy(&x->clocks[(int64_t)slot * m->n_comp], clock, sizeof(uint32_t) * (size_t)m->n_comp);
}

static bool partner(const Core *a, const Core *b, int mode) {
  if ((a->vid < 0) != (b->vid < 0)) return false;
  return mode == 0 || a->slot == b->slot;
}

/* The clock that says when the set before `head` was taken. When the ring is full, a fault was reported long since. */
static uint32_t *take_set(const Machine *m, CrossFlag *x) {
  if (x->head - x->known > CROSS_RING) x->known++;
  return cross_clock(m, x->gone, x->head - 1);
}

/* The set counts when all partners have set: then every partner (modes 0, 1) or the cube core (mode 2) may pass one
 * wait. */
static void match_sets(Core *c, const Inst *i, int64_t id) {
  Machine *m = c->m;
  int64_t at = id * CROSS_MODES + i->mode;
  for (int32_t o = 0; o < m->n_cores; o++)
    if (partner(c, &m->core[o], i->mode) && m->core[o].sent[at].head == m->core[o].sent[at].tail) return;
  if (m->n_comp) memset(m->all_clock, 0, sizeof(uint32_t) * (size_t)m->n_comp);
  for (int32_t o = 0; o < m->n_cores; o++) {
    if (!partner(c, &m->core[o], i->mode)) continue;
    CrossFlag *x = &m->core[o].sent[at];
    uint32_t slot = x->head++ % CROSS_RING;
    if (m->n_comp) clock_join(m->all_clock, &x->clocks[(int64_t)slot * m->n_comp], m->n_comp);
  }
  for (int32_t o = 0; o < m->n_cores && m->n_comp; o++) {
    if (!partner(c, &m->core[o], i->mode)) continue;
    uint32_t *gone = take_set(m, &m->core[o].sent[at]);
    memcpy(gone, m->all_clock, sizeof *gone * (size_t)m->n_comp);
    memset(gone + comp(&m->core[o], 0), 0, sizeof *gone * COMPS); /* its own statements are in order */
  }
  for (int32_t o = 0; o < m->n_cores; o++) {
    Core *to = &m->core[o];
    bool takes = i->mode == 2 ? to->slot == c->slot && to->vid < 0 : partner(c, to, i->mode);
    if (takes) push_set(to, &to->cross[id], i, m->all_clock, id, c);
  }
}

static bool cross_id_ok(const Core *c, int64_t id) { return id >= 0 && id < c->m->sim->arch->n_cross_flags; }

static void cross_set(Core *c, const Inst *i, Pipe p, int64_t id) {
  Machine *m = c->m;
  if (!cross_id_ok(c, id)) {
    no_flag(c, i, id, m->sim->arch->n_cross_flags);
    return;
  }
  if (i->mode == 1 && c->vid < 0) {
    fault(c, DIAG_SIM_OPERAND, i->stmt, NULL,
          "mode 1 joins the two vector cores of a block; a cube core cannot take part");
    return;
  }
  if (m->n_comp) memset(m->all_clock, 0, sizeof(uint32_t) * (size_t)m->n_comp);
  publish(c, p, m->all_clock);
  if (i->mode == 2 && c->vid < 0) {
    for (int32_t o = 0; o < m->n_cores; o++) {
      Core *to = &m->core[o];
      if (to->slot != c->slot || to->vid < 0) continue;
      note_setter(c, &to->cross[id], i, id);
      push_set(to, &to->cross[id], i, m->all_clock, id, c);
    }
    return;
  }
  CrossFlag *x = &c->sent[id * CROSS_MODES + i->mode];
  note_setter(c, x, i, id);
  push_set(c, x, i, m->all_clock, id, c);
  match_sets(c, i, id);
}

static void cross_wait(Core *c, const Inst *i, Pipe p, int64_t id) {
  if (!cross_id_ok(c, id)) {
    no_flag(c, i, id, c->m->sim->arch->n_cross_flags);
    return;
  }
  CrossFlag *x = &c->cross[id];
  uint32_t slot = x->head++ % CROSS_RING;
  Machine *m = c->m;
  if (!m->n_comp) return;
  PipeQueue *q = &c->pipe[p];
  if (x->head > 1) cross_mixed(c, i, x->taker, cross_clock(m, x->gone, x->head - 2), id, "wait for");
  x->taker = i;
  learn(c, p, cross_clock(m, x->clocks, slot));
  uint32_t *gone = take_set(m, x);
  memset(gone, 0, sizeof *gone * (size_t)m->n_comp);
  gone[sync_comp(c, p)] = p == PIPE_S ? c->s_order : q->tick;
}

/* ---- barriers ------------------------------------------------------------------------------------------- */

static void join_core(const Core *c, uint32_t *into) {
  for (int p = 0; p < CORE_PIPES; p++) publish(c, (Pipe)p, into);
}

static void barrier_all(Core *c) {
  Machine *m = c->m;
  if (!m->n_comp) return;
  memset(m->all_clock, 0, sizeof(uint32_t) * (size_t)m->n_comp);
  join_core(c, m->all_clock);
  for (int p = 0; p < CORE_PIPES; p++) learn(c, (Pipe)p, m->all_clock);
}

static bool joins_sync_all(const Core *c) { return c->prog->sync_all; }

static void arrive(Core *c) {
  Machine *m = c->m;
  c->all = 1;
  for (int32_t o = 0; o < m->n_cores; o++)
    if (joins_sync_all(&m->core[o]) && !m->core[o].all) return;
  if (m->n_comp) memset(m->all_clock, 0, sizeof(uint32_t) * (size_t)m->n_comp);
  for (int32_t o = 0; o < m->n_cores && m->n_comp; o++)
    if (joins_sync_all(&m->core[o])) join_core(&m->core[o], m->all_clock);
  for (int32_t o = 0; o < m->n_cores; o++) {
    Core *x = &m->core[o];
    if (!joins_sync_all(x)) continue;
    x->all = 2;
    for (int p = 0; p < CORE_PIPES; p++) learn(x, (Pipe)p, m->all_clock);
  }
}

/* ---- may it, do it -------------------------------------------------------------------------------------- */

/* Is there room for another set, with all who take part? On the chip a set without room hangs the core; a run without
 * checks lets it wait. */
static bool cross_room(const Core *c, const Inst *i, int64_t id) {
  const Machine *m = c->m;
  uint32_t most = (uint32_t)min_i64(m->sim->arch->cross_flag_max, CROSS_RING);
  bool from_cube = i->mode == 2 && c->vid < 0;
  if (!cross_id_ok(c, id)) return true;
  const CrossFlag *own = &c->sent[id * CROSS_MODES + i->mode];
  if (!from_cube && own->tail - own->head >= most) return false;
  for (int32_t o = 0; o < m->n_cores; o++) {
    const Core *to = &m->core[o];
    bool takes = i->mode == 2 ? to->slot == c->slot && (to->vid < 0) != (c->vid < 0) : partner(c, to, i->mode);
    if (takes && to->cross[id].tail - to->cross[id].head >= most) return false;
  }
  return true;
}

static bool may_sync(const Core *c, const Inst *i, int64_t id) {
  switch (i->op) {
  case ST_CROSS_SET: return c->m->sim->checks || cross_room(c, i, id);
  case ST_WAIT_FLAG: {
    const Flag *f = flag_of(c, i, id);
    return !f || f->set;
  }
  case ST_CROSS_WAIT: return !cross_id_ok(c, id) || c->cross[id].head != c->cross[id].tail;
  case ST_BARRIER: return i->src != PIPE_ALL || pipes_empty(c);
  case ST_SYNC_ALL: return c->all == 2 || (c->all == 0 && pipes_empty(c));
  default: return true;
  }
}

static void do_sync(Core *c, const Inst *i, Pipe p, int64_t id) {
  switch (i->op) {
  case ST_SET_FLAG: set_flag(c, i, p, id); break;
  case ST_WAIT_FLAG: wait_flag(c, i, p, id); break;
  case ST_CROSS_SET: cross_set(c, i, p, id); break;
  case ST_CROSS_WAIT: cross_wait(c, i, p, id); break;
  case ST_BARRIER:
    if (i->src == PIPE_ALL) barrier_all(c);
    else if (c->m->n_comp) c->pipe[p].seen[comp(c, p)] = c->pipe[p].tick;
    break;
  default: break;
  }
}

bool s_may_sync(const Core *c, const Inst *i) { return may_sync(c, i, i->id_reg == NO_REG ? 0 : c->reg[i->id_reg].i); }

/* What S issues from here on starts after what it waited for. */
static void pass_order(Core *c) {
  c->s_order++;
  if (!c->m->n_comp) return;
  c->pipe[PIPE_S].seen[comp(c, S_ORDER)] = c->s_order;
  for (int x = 1; x < CORE_PIPES; x++) c->pipe[x].stale = true;
}

bool s_sync(Core *c, const Inst *i) {
  if (i->op == ST_SYNC_ALL) {
    if (!c->all) arrive(c);
    if (c->all != 2) return false;
    c->all = 0;
    return true;
  }
  c->pipe[PIPE_S].tick++;
  pass_order(c);
  do_sync(c, i, PIPE_S, i->id_reg == NO_REG ? 0 : c->reg[i->id_reg].i);
  return true;
}

bool may_issue(const Core *c, Pipe p) {
  const PipeQueue *q = &c->pipe[p];
  const Entry *e = &q->ring[q->head % q->depth];
  return e->inst->op < OP_COUNT || may_sync(c, e->inst, e->id);
}

void issue(Core *c, Pipe p) {
  PipeQueue *q = &c->pipe[p];
  Entry *e = &q->ring[q->head % q->depth];
  const Inst *i = e->inst;
  q->tick++;
  q->seq[q->tick % SEQ_RING] = e->seq;
  if (e->has_clock) clock_join(q->seen, e->clock, c->m->n_comp);
  if (i->op >= OP_COUNT) {
    do_sync(c, i, p, e->id);
  } else if (i->impl->legal(c, e)) {
    c->m->instructions++;
    if (c->m->sim->checks) observe(c, e);
    i->impl->exec(c, e);
    if (c->m->twice.len) observe_done(c);
  } else {
    c->tainted = true;
  }
  q->head++;
}

/* ---- what is wrong at the end --------------------------------------------------------------------------- */

static const char *core_name(Arena *a, const Core *c) {
  return c->vid < 0                       ? "cube core"
         : c->m->sim->cores_per_block > 1 ? arena_printf(a, "vector core %d", c->vid)
                                          : "vector core";
}

/* Has the pipe that would set this flag nothing left to do? Then the wait is not just part of a chain. */
static bool never_set(const Core *c, const Inst *i) {
  if (i->op != ST_WAIT_FLAG) return false;
  const PipeQueue *q = &c->pipe[i->src];
  return i->src == PIPE_S ? c->state == S_DONE : c->state == S_DONE && q->head == q->tail;
}

static void waiting_line(Machine *m, Text *t, const Core *c, int p, const Inst *i, int64_t id, bool full) {
  Arena *a = &m->arena;
  text_printf(t, "\n  %s, pipe %s, %s: ", where(a, c), pipe_info[p].name,
              ir_loc_str(a, m->sim->k->module, i->stmt->loc));
  if (full)
    text_printf(t, "no room in the queue of pipe %s for `%s`", pipe_info[i->pipe].name, inst_text(a, c, i->stmt));
  else if (i->op == ST_SYNC_ALL && c->all) text_put(t, "sync_all waits for the other cores");
  else if (i->op == ST_SYNC_ALL || i->op == ST_BARRIER)
    text_printf(t, "`%s` waits for the pipes of its core", inst_text(a, c, i->stmt));
  else if (i->op == ST_CROSS_WAIT)
    text_printf(t, "`%s` waits for cross-core flag #%lld", inst_text(a, c, i->stmt), (long long)id);
  else
    text_printf(t, "`%s` waits for flag #%lld, %s", inst_text(a, c, i->stmt), (long long)id,
                never_set(c, i) ? "which nothing sets any more"
                                : arena_printf(a, "which pipe %s has not set", pipe_info[i->src].name));
}

void report_deadlock(Machine *m) {
  Core *first_core = NULL, *some;
  bool root_found = false;
  const IrStmt *first = NULL, *second = NULL;
  Text t;
  int n = 0;
  text_init(&t, &m->arena);
  for (int32_t o = 0; o < m->n_cores; o++) {
    Core *c = &m->core[o];
    for (int k = 1; k <= CORE_PIPES; k++) { /* S last: it mostly waits for the others */
      int p = k % CORE_PIPES;
      const PipeQueue *q = &c->pipe[p];
      if (p ? q->head == q->tail : c->state == S_DONE) continue;
      const Inst *i = p ? q->ring[q->head % q->depth].inst : c->at;
      int64_t id = p ? q->ring[q->head % q->depth].id : i->id_reg == NO_REG ? 0 : c->reg[i->id_reg].i;
      if (n++ < 12) waiting_line(m, &t, c, p, i, id, !p && c->state == S_QUEUE);
      bool root = never_set(c, i) && !root_found;
      root_found |= root;
      if (!first || root) second = first, first = i->stmt, first_core = c;
      else if (!second) second = i->stmt;
      if (second == first) second = NULL;
    }
  }
  if (n > 12) text_printf(&t, "\n  and %d more", n - 12);
  if (!first) return;
  some = first_core;
  Fault *f = fault(some, DIAG_SIM_DEADLOCK, first, second, "nothing can move any more; waiting:%s", text_str(&t));
  if (!f) return;
  if (second) fault_other(some, f, "this waits too");
  fault_fix(some, f, "every wait_flag needs its set_flag on every path, and no two pipes may wait for each other");
}

void report_flags_left(Machine *m) {
  int nf = SIM_FLAGS;
  for (int32_t o = 0; o < m->n_cores; o++) {
    Core *c = &m->core[o];
    for (int x = 0; x < CORE_PIPES * CORE_PIPES * nf; x++) {
      const Flag *f = &c->flag[x];
      if (!f->set || fault_known(c, DIAG_SIM_FLAG_LEFT, f->setter->stmt, NULL)) continue;
      Fault *g = fault(c, DIAG_SIM_FLAG_LEFT, f->setter->stmt, NULL,
                       "flag %s -> %s #%d is still set at the end of the kernel (%s)", pipe_info[f->setter->src].name,
                       pipe_info[f->setter->dst].name, x % nf, where(&m->arena, c));
      if (g)
        fault_fix(c, g, "add the missing wait_flag, or drop this set; a flag left set goes off in the next kernel");
    }
    for (int64_t id = 0; c->cross && id < m->sim->arch->n_cross_flags; id++) {
      const CrossFlag *x = &c->cross[id];
      if (x->head == x->tail) continue;
      const Inst *s = x->setter[x->head % CROSS_RING];
      if (fault_known(c, DIAG_SIM_FLAG_LEFT, s->stmt, NULL)) continue;
      Fault *g = fault(c, DIAG_SIM_FLAG_LEFT, s->stmt, NULL,
                       "cross-core flag #%lld is still set for the %s at the end of the kernel (%s)", (long long)id,
                       core_name(&m->arena, c), where(&m->arena, c));
      if (g) fault_fix(c, g, "add the missing cross_wait, or drop this set");
    }
  }
}

const char *where(Arena *a, const Core *c) {
  const IrKernel *k = c->m->sim->k;
  Text t;
  text_init(&t, a);
  text_put(&t, "block (");
  int64_t rest = c->block;
  for (uint32_t g = 0; g < k->grid.len; g++) {
    text_printf(&t, "%s%lld", g ? ", " : "", (long long)(rest % c->m->sim->grid[g]));
    rest /= c->m->sim->grid[g];
  }
  text_printf(&t, "), %s", core_name(a, c));
  return text_str(&t);
}

const char *inst_text(Arena *a, const Core *c, const IrStmt *s) {
  Text t;
  text_init(&t, a);
  ir_print_stmt(&t, c->m->sim->k, s);
  return text_str(&t);
}
