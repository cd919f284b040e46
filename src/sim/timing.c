/* timing.c - the clock: all cores of the chip run the program without data, and every instruction gets a time.
 *
 * Pipe S runs the same bytecode as in a functional run and hands each instruction, with its price, to the queue of its
 * pipe. A queue of `depth` places lets instruction n in when instruction n - depth has left. A pipe takes its
 * instructions in order: one begins when S has issued it, the one before has let go of the pipe, and the flags it waits
 * for are set. `free` is when the pipe takes the next one, `done` when all bytes are there; a flag is set at `done`.
 *
 * Blocks go to cores in order, as cores become free. A group of cores runs ahead (advance) until all it can do waits
 * for a transfer through GM; transfers begin and end in the order of time, with shared bandwidth (memory.c). An event
 * never makes one before itself, so the result is that of doing everything in order of time.
 *
 * For every pipe busy + idle = total: `mark` moves from 0 to the end, and each step goes into one account. */
#include "timing.h"

#include <string.h>

const char *const sim_idle_name[SIM_IDLE_COUNT] = {"start", "issue", "flag", "cross", "barrier", "queue", "end"};
_Static_assert((int)IDLE_COUNT == (int)SIM_IDLE_COUNT, "names of all reasons");

/* ---- events --------------------------------------------------------------------------------------------- */

static inline bool before(const Event *a, const Event *b) {
  return a->at != b->at ? a->at < b->at : a->what != b->what ? a->what > b->what : a->seq < b->seq;
}

enum { GROUP_FREE = -1, GROUP_START = -2 }; /* Event.what; else a pipe whose transfer begins */

/* Room for one more event behind the others. */
static void event_room(Clock *k) {
  const Event *old = k->event + k->first_event;
  if (k->n_events * 2 > k->cap_events) k->event = arena_array(k->arena, Event, (int64_t)(k->cap_events *= 2));
  memmove(k->event, old, sizeof *old * (size_t)k->n_events);
  k->first_event = 0;
}

static void push_event(Clock *k, Tick at, int32_t what, int32_t who) {
  if (k->first_event + k->n_events == k->cap_events) event_room(k);
  Event e = {at, k->seq++, what, who}, *x = k->event + k->first_event;
  int32_t n = k->n_events++, from = 0, to = n; /* what is later than e begins in between */
  if (n && before(&x[n - 1], &e)) from = n;
  while (from < to) {
    int32_t mid = (from + to) / 2;
    if (before(&e, &x[mid])) to = mid;
    else from = mid + 1;
  }
  if (from < n - from && k->first_event) { /* the shorter part moves */
    k->first_event--;
    memmove(x - 1, x, sizeof e * (size_t)from);
    x[from - 1] = e;
  } else if (from < n) {
    memmove(x + from + 1, x + from, sizeof e * (size_t)(n - from));
    x[from] = e;
  } else {
    x[n] = e;
  }
}

/* ---- accounts ------------------------------------------------------------------------------------------- */

static inline void idle(TimeCore *t, int p, Tick until, Idle why, const Inst *i) {
  TimePipe *q = &t->pipe[p];
  if (until <= q->mark) return;
  t->idle[p][why] += until - q->mark;
  if (i) t->clock->inst[i->id].idle[why] += until - q->mark;
  q->mark = until;
}

/* What let the entry at the head of a queue begin at `at`: S, which had just issued it, or what it waited for. */
static inline int32_t began_by(const Clock *k, const TimePipe *q, const TimeEntry *e, Tick at) {
  if (!k->timeline) return -1;
  return e->issued >= at ? q->cause[q->head & k->ring].from : q->last;
}

/* One more event of the timeline, if there is one, the last of its pipe. */
static void add_event(TimeCore *t, int p, uint32_t id, Tick from, Tick until, int32_t cause) {
  Clock *k = t->clock;
  if ((int64_t)k->events.len >= k->opt->max_events) return;
  t->pipe[p].last = (int32_t)k->events.len;
  vec_push(k->arena, &k->events, ((SimTimeEvent){(int32_t)(t - k->core), (Pipe)p, (int32_t)id, from, until, cause}));
}

/* An instruction of a pipe with a queue has run. */
static inline void busy(TimeCore *t, int p, Tick from, Tick until, const TimeEntry *e) {
  TimePipe *q = &t->pipe[p];
  InstTime *it = &t->clock->inst[e->inst->id];
  idle(t, p, from, IDLE_ISSUE, e->inst);
  if (until > q->mark) {
    t->busy[p] += until - q->mark;
    it->busy += until - q->mark;
    q->mark = until;
  }
  it->count++;
  it->ops += e->price->ops;
  if (t->clock->timeline) add_event(t, p, e->inst->id, from, until, began_by(t->clock, q, e, from));
}

/* Elements of one statement on end are one event, and so is a series of issues. */
static void s_event(TimeCore *t, Tick until, uint32_t id, const IrStmt *stmt) {
  Clock *k = t->clock;
  const TimePipe *s = &t->pipe[PIPE_S];
  SimTimeEvent *last = s->last < 0 ? NULL : &k->events.data[s->last];
  bool mine = last && last->pipe == PIPE_S && last->core == (int32_t)(t - k->core) && last->end == s->free;
  if (mine && (!stmt || stmt == t->doing)) {
    last->end = until;
  } else {
    add_event(t, PIPE_S, id, s->free, until, s->last);
    t->doing = stmt;
  }
}

/* S works for instruction or element `id`; stmt: of an element, NULL to issue. */
static inline void s_works(TimeCore *t, Tick work, uint32_t id, const IrStmt *stmt) {
  Clock *k = t->clock;
  TimePipe *s = &t->pipe[PIPE_S];
  if (!work) return;
  if (k->timeline) s_event(t, s->free + work, id, stmt);
  t->busy[PIPE_S] += work;
  k->inst[id].scalar += work;
  s->free = s->done = s->mark = s->free + work;
}

/* ---- flags ---------------------------------------------------------------------------------------------- */

/* Something happened that pipe p may wait for. */
static inline void may_move(TimeCore *t, int p) { t->may |= 1u << p; }

static void flag_push(TimeFlag *f, Tick at, int32_t from) {
  if (f->n == FLAG_RING) return; /* the functional run calls this a fault */
  int s = (f->head + f->n++) % FLAG_RING;
  f->at[s] = at;
  f->from[s] = from;
}

static Tick flag_pop(TimeFlag *f, int32_t *from) {
  Tick at = f->at[f->head];
  *from = f->from[f->head];
  f->head = --f->n ? (uint8_t)((f->head + 1) % FLAG_RING) : 0;
  return at;
}

static bool cross_ok(const Clock *k, int64_t id) { return id >= 0 && id < k->arch.n_cross_flags; }

/* The flag that a statement sets or waits for; NULL: there is no such flag. */
static TimeFlag *flag_of(Clock *k, TimeCore *t, const Inst *i, int64_t id) {
  int n = k->arch.n_flags;
  if (i->op == ST_CROSS_WAIT) return cross_ok(k, id) ? &t->cross[id] : NULL;
  return id < 0 || id >= n ? NULL : &t->flag[t->pair[i->src * CORE_PIPES + i->dst] * n + id];
}

static bool partner(const Core *a, const Core *b, int mode) {
  return (a->vid < 0) == (b->vid < 0) && (mode == 0 || a->slot == b->slot);
}

static void wake(Clock *k, int32_t group) {
  push_event(k, k->now, GROUP_START, group);
}

/* As match_sets of queue.c: the set counts when all partners have set. */
static void cross_set(Clock *k, Core *c, const Inst *i, int64_t id, Tick at, int32_t from) {
  Machine *m = k->m;
  const Group *g = &k->group[c->slot];
  int32_t first = i->mode == 0 ? 0 : g->first, end = i->mode == 0 ? m->n_cores : g->first + g->n;
  if (!cross_ok(k, id)) return;
  int64_t slot = id * CROSS_MODES + i->mode;
  bool to_vectors = i->mode == 2 && c->vid < 0;
  Tick last = at;
  if (!to_vectors) {
    flag_push(&c->time->sent[slot], at, from);
    for (int32_t o = first; o < end; o++)
      if (partner(c, &m->core[o], i->mode) && !m->core[o].time->sent[slot].n) return;
    for (int32_t o = first; o < end; o++) {
      int32_t other;
      if (!partner(c, &m->core[o], i->mode)) continue;
      Tick t = flag_pop(&m->core[o].time->sent[slot], &other);
      if (t > last) last = t, from = other;
    }
  }
  for (int32_t o = first; o < end; o++) {
    Core *to = &m->core[o];
    bool takes = to_vectors       ? to->slot == c->slot && to->vid >= 0
                 : i->mode == 2 ? to->slot == c->slot && to->vid < 0
                                : partner(c, to, i->mode);
    if (!takes) continue;
    flag_push(&to->time->cross[id], last + k->cross_flag, from);
    to->time->may = ALL_PIPES;
    if (to->time->group != c->time->group) wake(k, to->time->group);
  }
}

/* ---- what a queue does ---------------------------------------------------------------------------------- */

static TimeEntry *head_of(const Clock *k, const TimePipe *q) { return &q->ring[q->head & k->ring]; }

/* The head of a queue leaves it. */
static inline void leave(const Clock *k, TimePipe *q, Tick at, int32_t by) {
  uint32_t place = q->head++ & k->ring;
  q->left[place] = at;
  if (k->timeline) q->cause[place].by = by;
}

/* Something has left queue p; S may wait for that. */
static inline void have_left(Core *c, int p) {
  const TimePipe *q = &c->time->pipe[p];
  if (c->state == S_QUEUE ? c->at->pipe == p : c->state == S_SYNC && q->head == q->tail) may_move(c->time, PIPE_S);
}

/* A synchronisation statement at the head of a queue. False: it must wait. */
static bool queue_sync(Clock *k, Core *c, int p, const TimeEntry *e) {
  TimeCore *t = c->time;
  TimePipe *q = &t->pipe[p];
  const Inst *i = e->inst;
  Tick at = max_i64(q->free, e->issued), all = max_i64(at, q->done);
  int32_t from = -1;
  switch (i->op) {
  case ST_SET_FLAG:
    if (e->flag) flag_push(e->flag, all + k->flag, began_by(k, q, e, all));
    may_move(t, i->dst);
    break;
  case ST_CROSS_SET: cross_set(k, c, i, e->id, all, began_by(k, q, e, all)); break;
  case ST_WAIT_FLAG:
  case ST_CROSS_WAIT: {
    if (e->flag && !e->flag->n) return false;
    idle(t, p, e->issued, IDLE_ISSUE, i);
    Tick set = e->flag ? flag_pop(e->flag, &from) : at;
    if (set > at && from >= 0) q->last = from;
    at = max_i64(at, set);
    idle(t, p, at, i->op == ST_WAIT_FLAG ? IDLE_FLAG : IDLE_CROSS, i);
    break;
  }
  default: at = all; /* barrier of the pipe */
  }
  q->free = at;
  k->inst[i->id].count++;
  return true;
}

/* Runs what is in a queue until it must wait or is empty. */
static void run_pipe(Clock *k, Core *c, int p) {
  TimeCore *t = c->time;
  TimePipe *q = &t->pipe[p];
  uint32_t head = q->head;
  while (q->head != q->tail && !q->in_flight) {
    TimeEntry *e = head_of(k, q);
    if (e->inst->op >= OP_COUNT) {
      if (!queue_sync(k, c, p, e)) break;
      leave(k, q, q->free, began_by(k, q, e, q->free));
      continue;
    }
    Tick at = max_i64(q->free, e->issued);
    const Price *price = e->price;
    if (price->is_gm) {
      q->in_flight = true;
      q->began = at;
      q->free = at + price->gm.head;
      push_event(k, q->free, p, c->index);
      break;
    }
    q->free = at + price->ticks;
    if (p == PIPE_MTE1 && t->pipe[PIPE_MTE2].in_flight) q->free += price->ticks * k->l1_read_slow / TICKS;
    q->done = max_i64(q->done, q->free + (p == PIPE_M ? k->mmad_tail : 0));
    int32_t by = began_by(k, q, e, at);
    busy(t, p, at, q->done, e);
    leave(k, q, at, by);
  }
  if (q->head != head) have_left(c, p);
}

/* ---- S -------------------------------------------------------------------------------------------------- */

static bool drained(const TimeCore *t) {
  for (int p = 1; p < CORE_PIPES; p++)
    if (t->pipe[p].head != t->pipe[p].tail) return false;
  return true;
}

/* When all pipes are done, and in `by` (if not NULL) what was last. */
static Tick all_done(const TimeCore *t, int32_t *by) {
  Tick at = 0;
  for (int p = 0; p < CORE_PIPES; p++) {
    Tick done = max_i64(t->pipe[p].done, t->pipe[p].free);
    if (done > at && by) *by = t->pipe[p].last;
    at = max_i64(at, done);
  }
  return at;
}

/* What S has worked since this was asked last. */
static Tick steps_work(Core *c) {
  Tick work = (c->steps - c->time->steps) * c->time->clock->scalar_op;
  c->time->steps = c->steps;
  return work;
}

void clock_element(Core *c, const Element *el) {
  Clock *k = c->time->clock;
  bool gm = k->sim->buf[el->buf].space == SPACE_GM;
  Tick work = steps_work(c) + (gm ? k->scalar_gm : k->scalar_mem);
  k->inst[el->id].count++;
  s_works(c->time, k->opt->copy_only && !gm ? 0 : work, el->id, el->stmt);
}

static void arrive_all(Clock *k, Core *c, Tick at, int32_t by) {
  Machine *m = k->m;
  Tick last = at;
  c->all = 1;
  c->time->blocked = at;
  c->time->blocked_by = by;
  for (int32_t o = 0; o < m->n_cores; o++)
    if (m->core[o].prog->sync_all && !m->core[o].all) return;
  for (int32_t o = 0; o < m->n_cores; o++)
    if (m->core[o].prog->sync_all && m->core[o].time->blocked >= last)
      last = m->core[o].time->blocked, by = m->core[o].time->blocked_by;
  for (int32_t o = 0; o < m->n_cores; o++) {
    if (!m->core[o].prog->sync_all) continue;
    m->core[o].all = 2;
    m->core[o].time->blocked = last + k->sync_all;
    m->core[o].time->blocked_by = by;
    may_move(m->core[o].time, PIPE_S);
    wake(k, m->core[o].time->group);
  }
}

/* A synchronisation statement of S itself. False: it must wait. */
static bool s_sync_time(Clock *k, Core *c, const Inst *i, int64_t id) {
  TimeCore *t = c->time;
  TimePipe *s = &t->pipe[PIPE_S];
  Tick at = s->free;
  int32_t from = -1;
  Idle why = IDLE_FLAG;
  switch (i->op) {
  case ST_SET_FLAG: {
    TimeFlag *f = flag_of(k, t, i, id);
    if (f) flag_push(f, at + k->flag, s->last);
    may_move(t, i->dst);
    break;
  }
  case ST_WAIT_FLAG:
  case ST_CROSS_WAIT: {
    TimeFlag *f = flag_of(k, t, i, id);
    if (f && !f->n) return false;
    if (f) at = max_i64(at, flag_pop(f, &from));
    if (i->op == ST_CROSS_WAIT) why = IDLE_CROSS;
    break;
  }
  case ST_CROSS_SET: cross_set(k, c, i, id, at, s->last); break;
  case ST_SYNC_ALL:
    why = IDLE_CROSS;
    if (!c->all) {
      if (!drained(t)) return false;
      Tick done = all_done(t, &from);
      arrive_all(k, c, max_i64(at, done), from);
    }
    if (c->all != 2) return false;
    c->all = 0;
    at = max_i64(at, t->blocked);
    from = t->blocked_by;
    break;
  default:
    if (!drained(t)) return false;
    at = max_i64(at, all_done(t, &from));
    why = IDLE_BARRIER;
  }
  idle(t, PIPE_S, at, why, i);
  if (at > s->free && from >= 0) s->last = from;
  s->free = s->done = at;
  k->inst[i->id].count++;
  return true;
}

static bool s_reaches_sync(Clock *k, Core *c, const Inst *i) {
  c->state = S_SYNC;
  if (!s_sync_time(k, c, i, i->id_reg == NO_REG ? 0 : c->reg[i->id_reg].i)) return false;
  c->state = S_RUN;
  k->issued++;
  return true;
}

/* What a queue keeps of an instruction. False: it does nothing. */
static bool prepare(Clock *k, Core *c, const Inst *i, TimeEntry *e) {
  if (i->op < OP_COUNT) return price_of(k, c, i, e);
  int64_t id = i->id_reg == NO_REG ? 0 : c->reg[i->id_reg].i;
  if (i->op == ST_CROSS_SET) e->id = id;
  else if (i->op != ST_BARRIER) e->flag = flag_of(k, c->time, i, id);
  return true;
}

bool clock_issue(Core *c, const Inst *i) {
  TimeCore *t = c->time;
  Clock *k = t->clock;
  TimePipe *s = &t->pipe[PIPE_S], *q = &t->pipe[i->pipe];
  Tick work = steps_work(c);
  c->at = i;
  if (i->pipe == PIPE_S) {
    s_works(t, work, i->id, NULL);
    return s_reaches_sync(k, c, i);
  }
  uint32_t n = q->tail;
  TimeEntry *e = &q->ring[n & k->ring];
  bool full = n - q->head == k->depth;
  if (full || !prepare(k, c, i, e)) {
    s_works(t, work, i->id, NULL);
    if (full) c->state = S_QUEUE;
    return !full;
  }
  uint32_t before = (n - k->depth) & k->ring; /* whose place it takes */
  if (n >= k->depth && q->left[before] > s->free + work) {
    s_works(t, work, i->id, NULL);
    work = 0;
    idle(t, PIPE_S, q->left[before], IDLE_QUEUE, i);
    s->free = q->left[before];
    if (k->timeline && q->cause[before].by >= 0) s->last = q->cause[before].by;
  }
  s_works(t, work + (i->op >= OP_COUNT && k->opt->free_flags ? 0 : k->issue), i->id, NULL);
  e->inst = i;
  e->issued = s->free;
  if (k->timeline) q->cause[n & k->ring].from = s->last;
  q->tail = n + 1;
  if (n == q->head) may_move(t, i->pipe);
  k->issued++;
  return true;
}

/* ---- groups and blocks ---------------------------------------------------------------------------------- */

/* Everything that may move does, S first and then pipe by pipe, until all waits. */
static void advance(Clock *k, Group *g) {
  for (bool moved = g->running; moved;) {
    moved = false;
    for (int32_t n = 0; n < g->n; n++) {
      Core *c = &k->m->core[g->first + n];
      TimeCore *t = c->time;
      for (uint32_t from = ALL_PIPES, todo; (todo = t->may & from);) {
        int p = __builtin_ctz(todo);
        t->may &= ~(1u << p);
        from &= ~1u << p;
        if (p == PIPE_S) run_s(c, false);
        else run_pipe(k, c, p);
        moved = true;
      }
    }
  }
  Tick end = 0;
  for (int32_t n = 0; n < g->n; n++) {
    Core *c = &k->m->core[g->first + n];
    if (!g->running || c->state != S_DONE || !drained(c->time)) return;
    Tick rest = steps_work(c); /* after the last instruction of the block; there is one, or nothing took time */
    if (c->at) s_works(c->time, rest, c->at->id, NULL);
    end = max_i64(end, all_done(c->time, NULL));
  }
  g->running = false;
  push_event(k, end, GROUP_FREE, (int32_t)(g - k->group));
}

/* by: the event at whose end the block before was done. */
static void start_block(Clock *k, Group *g, Tick at, int32_t by) {
  g->block = k->next_block++;
  g->running = true;
  k->m->budget = INT64_C(1) << 40;
  k->m->spin = SPIN;
  for (int32_t n = 0; n < g->n; n++) {
    Core *c = &k->m->core[g->first + n];
    TimeCore *t = c->time;
    core_begin(c, g->block);
    c->steps = t->steps = 0;
    t->may = 1u << PIPE_S;
    if (!t->blocks++) t->start = at;
    for (int32_t f = 0; f < t->n_flags; f++) t->flag[f].head = t->flag[f].n = 0;
    for (int32_t f = 0; f < t->n_cross; f++) t->cross[f].head = t->cross[f].n = 0;
    for (int p = 0; p < CORE_PIPES; p++) {
      TimePipe *q = &t->pipe[p];
      idle(t, p, at, IDLE_START, NULL);
      q->free = q->done = at;
      q->last = by;
      q->head = q->tail = 0;
    }
  }
}

/* The next block for a group that is free at k->now. */
static void next_block(Clock *k, int32_t number) {
  Group *g = &k->group[number];
  int32_t by = -1;
  for (int32_t n = 0; n < g->n; n++) {
    k->core[g->first + n].end = k->now;
    int32_t last = -1;
    if (all_done(&k->core[g->first + n], &last) == k->now) by = last;
  }
  k->dispatcher = max_i64(k->dispatcher, k->now) + k->dispatch;
  k->end = max_i64(k->end, k->dispatcher);
  if (k->next_block >= k->sim->blocks) return;
  start_block(k, g, k->dispatcher + k->block_gap, by);
  push_event(k, k->dispatcher + k->block_gap, GROUP_START, number);
}

/* ---- transfers ------------------------------------------------------------------------------------------ */

static void transfer_ends(Clock *k, int32_t number) {
  Core *c = &k->m->core[number / CORE_PIPES];
  int p = number % CORE_PIPES;
  TimeCore *t = c->time;
  TimePipe *q = &t->pipe[p];
  const Flow *f = &k->mem.flow[number];
  const TimeEntry *e = head_of(k, q);
  InstTime *it = &k->inst[e->inst->id];
  const Transfer *x = &e->price->gm;
  int64_t bytes = x->run * x->rows;
  q->free = k->now;
  Tick complete = k->now + f->latency;
  q->done = max_i64(q->done, complete);
  it->gm_bytes += bytes;
  it->gm_most = max_i64(it->gm_most, bytes);
  it->gm_rows += x->rows;
  if (x->write) k->m->gm_write += bytes;
  else k->m->gm_read += bytes;
  it->slowed += max_i64(k->now - q->began - x->head - x->path, 0);
  q->in_flight = false;
  int32_t by = began_by(k, q, e, q->began);
  busy(t, p, q->began, complete, e);
  leave(k, q, q->began, by);
  have_left(c, p);
  may_move(t, p);
}

static void handle(Clock *k, Event e) {
  k->now = e.at;
  if (e.what == GROUP_FREE) {
    next_block(k, e.who);
  } else if (e.what == GROUP_START) {
    advance(k, &k->group[e.who]);
  } else {
    Core *c = &k->m->core[e.who];
    const TimePipe *q = &c->time->pipe[e.what];
    const TimeEntry *head = head_of(k, q);
    Transfer t = head->price->gm;
    t.at = head->at;
    if (e.what == PIPE_MTE2 && c->time->pipe[PIPE_MTE1].done > e.at) { /* both at L1 */
      t.path += t.path * k->l1_write_slow / TICKS;
      t.miss = max_i64(t.miss, t.path);
    }
    memory_begin(k, e.who * CORE_PIPES + e.what, &t, e.at);
  }
}

/* ---- a run ---------------------------------------------------------------------------------------------- */

static void core_set_up(Clock *k, int32_t index, const Program *prog, int32_t group, int32_t vid) {
  Machine *m = k->m;
  Core *c = &m->core[index];
  TimeCore *t = &k->core[index];
  *c = (Core){.m = m, .prog = prog, .index = index, .slot = group, .vid = vid, .time = t, .state = S_DONE};
  c->reg = arena_array(k->arena, Reg, prog->n_reg);
  *t = (TimeCore){.clock = k, .group = group, .pair = k->pair[prog->side == 'v']};
  t->n_flags = k->n_pairs[prog->side == 'v'] * k->arch.n_flags;
  t->n_cross = prog->cross || k->sim->prog[prog->side != 'v'].cross ? k->arch.n_cross_flags * (1 + CROSS_MODES) : 0;
  t->flag = arena_array(k->arena, TimeFlag, t->n_flags);
  t->cross = arena_array(k->arena, TimeFlag, t->n_cross);
  t->sent = t->cross + k->arch.n_cross_flags;
  for (int p = 0; p < CORE_PIPES; p++) {
    t->pipe[p].last = -1;
    if (p == PIPE_S || (pipe_info[p].side != 'b' && pipe_info[p].side != prog->side)) continue;
    t->pipe[p].ring = arena_array(k->arena, TimeEntry, k->ring + 1);
    t->pipe[p].left = arena_array(k->arena, Tick, k->ring + 1);
    if (k->timeline) t->pipe[p].cause = arena_array(k->arena, Cause, k->ring + 1);
  }
}

/* Numbers the pairs of pipes that flags join. */
static void number_pairs(Clock *k, int side) {
  const Program *p = &k->sim->prog[side];
  memset(k->pair[side], -1, sizeof k->pair[side]);
  for (int32_t i = 0; p->code && i < p->n_inst; i++) {
    const Inst *x = &p->inst[i];
    int8_t *pair = &k->pair[side][x->src * CORE_PIPES + x->dst];
    if ((x->op == ST_SET_FLAG || x->op == ST_WAIT_FLAG) && *pair < 0) *pair = (int8_t)k->n_pairs[side]++;
  }
}

static void set_up(Clock *k) {
  Sim *s = k->sim;
  k->timeline = k->opt->timeline;
  k->depth = (uint32_t)max_i64(k->arch.queue_depth, 1);
  while (k->ring + 1 < k->depth) k->ring = 2 * k->ring + 1;
  for (int side = 0; side < 2; side++) number_pairs(k, side);
  int32_t vectors = s->prog[1].code ? s->cores_per_block - (s->prog[0].code != NULL) : 0;
  k->m->n_cores = k->n_groups * s->cores_per_block;
  k->m->core = arena_array(k->arena, Core, k->m->n_cores);
  k->core = arena_array(k->arena, TimeCore, k->m->n_cores);
  k->group = arena_array(k->arena, Group, k->n_groups);
  int32_t n = 0;
  for (int32_t g = 0; g < k->n_groups; g++) {
    k->group[g] = (Group){.first = n, .n = s->cores_per_block};
    if (s->prog[0].code) core_set_up(k, n++, &s->prog[0], g, -1);
    for (int32_t v = 0; v < vectors; v++) core_set_up(k, n++, &s->prog[1], g, v);
  }
  bool none = k->opt->free_flags;
  k->flag = none ? 0 : ticks_of(k->t.flag);
  k->cross_flag = none ? 0 : ticks_of(k->t.cross_flag);
  k->sync_all = none ? 0 : ticks_of(k->t.sync_all);
  k->issue = ticks_of(k->t.issue);
  k->scalar_op = ticks_of(k->t.scalar_op);
  k->scalar_mem = ticks_of(k->t.scalar_mem);
  k->scalar_gm = ticks_of(k->t.scalar_gm);
  k->skew = ticks_of_ns(k, k->t.skew_ns);
  k->dispatch = ticks_of_ns(k, k->t.dispatch_ns);
  k->block_gap = ticks_of_ns(k, k->t.block_ns);
  k->launch = ticks_of_ns(k, k->t.launch_ns);
  k->l1_write_slow = ticks_of(k->t.l1_write_slow);
  k->l1_read_slow = ticks_of(k->t.l1_read_slow);
  k->mmad_tail = k->opt->copy_only ? 0 : ticks_of(k->t.mmad_tail);
  k->cap_events = 256;
  k->event = arena_array(k->arena, Event, k->cap_events);
  memory_init(k);
  price_init(k);
}

/* Nothing under way and a block not at its end: what its pipes wait in. */
static void report_stuck(Clock *k) {
  Text t;
  text_init(&t, k->arena);
  Core *first = NULL;
  const IrStmt *at = NULL;
  int n = 0;
  for (int32_t o = 0; o < k->m->n_cores; o++) {
    Core *c = &k->m->core[o];
    if (!k->group[c->slot].running) continue;
    for (int x = 1; x <= CORE_PIPES; x++) { /* S last: it mostly waits for the others */
      int p = x % CORE_PIPES;
      const TimePipe *q = &c->time->pipe[p];
      if (p ? q->head == q->tail : c->state == S_DONE) continue;
      const IrStmt *s = p ? head_of(k, q)->inst->stmt : c->at->stmt;
      if (!first) first = c, at = s;
      if (n++ < 12)
        text_printf(&t, "\n  %s, pipe %s, %s: `%s` waits", where(k->arena, c), pipe_info[p].name,
                    ir_loc_str(k->arena, k->sim->k->module, s->loc), inst_text(k->arena, c, s));
    }
  }
  if (!first) return;
  Fault *f = fault(first, DIAG_SIM_DEADLOCK, at, NULL, "nothing can move any more; waiting:%s%s", text_str(&t),
                   n > 12 ? arena_printf(k->arena, "\n  and %d more", n - 12) : "");
  if (f)
    fault_fix(first, f, "every wait_flag needs its set_flag on every path, and no two pipes may wait for each other");
}

/* Everything but what L2 holds as at the start. */
static void clear(Clock *k) {
  Machine *m = k->m;
  for (int32_t n = 0; n < m->n_cores; n++) {
    TimeCore *t = &k->core[n];
    memset(t->busy, 0, sizeof t->busy);
    memset(t->idle, 0, sizeof t->idle);
    t->blocks = t->start = t->end = 0;
    for (int p = 0; p < CORE_PIPES; p++) {
      t->pipe[p].free = t->pipe[p].done = t->pipe[p].mark = 0;
      t->pipe[p].last = -1;
    }
  }
  memset(k->inst, 0, sizeof *k->inst * k->sim->n_ids);
  k->events.len = 0;
  k->next_block = k->end = k->issued = m->gm_read = m->gm_write = 0;
  k->mem.hit_bytes = k->mem.miss_bytes = k->mem.dirtied = k->mem.write_back = 0;
  k->mem.misses = 0;
  memory_restart(&k->mem);
}

static bool launch(Clock *k) {
  k->now = k->dispatcher = k->launch;
  for (int32_t g = 0; g < k->n_groups; g++) {
    Tick at = k->launch + g * k->skew;
    start_block(k, &k->group[g], at, -1);
    push_event(k, at, GROUP_START, g);
    k->dispatcher = at; /* later blocks come after the first ones */
  }
  for (;;) {
    int channel;
    Tick next = memory_next(&k->mem, &channel);
    if (k->n_events && k->event[k->first_event].at < next) {
      k->n_events--;
      handle(k, k->event[k->first_event++]);
    } else if (next < NEVER) {
      int32_t number;
      k->now = next;
      if (!memory_step(k, channel, &number)) continue;
      transfer_ends(k, number);
      advance(k, &k->group[k->core[number / CORE_PIPES].group]);
    } else {
      break;
    }
    if (k->m->block_faults >= k->sim->max_faults) return false;
  }
  for (int32_t g = 0; g < k->n_groups; g++)
    if (k->group[g].running) {
      report_stuck(k);
      return false;
    }
  for (int32_t n = 0; n < k->m->n_cores; n++)
    for (int p = 0; p < CORE_PIPES; p++) idle(&k->core[n], p, k->end, IDLE_END, NULL);
  return true;
}

void clock_run(Clock *k) {
  set_up(k);
  if (k->opt->l2 == L2_WARM) {
    if (!launch(k)) return;
    clear(k);
  }
  launch(k);
}
