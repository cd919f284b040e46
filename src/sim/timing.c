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

static void event_room(Clock *k, EventList *l) {
  Event *to = l->event;
  if (l->n * 2 >= l->room) to = arena_array(k->arena, Event, l->room = max_i64(2 * l->room, 16));
  if (l->n) memmove(to, l->event + l->first, sizeof *to * (size_t)l->n);
  l->event = to;
  l->first = 0;
}

static void push_event(Clock *k, int kind, Tick at, int32_t who) {
  EventList *l = &k->event[kind];
  if (l->first + l->n == l->room) event_room(k, l);
  Event *x = l->event + l->first;
  int32_t i = l->n++;
  for (; i && x[i - 1].at > at; i--) x[i] = x[i - 1]; /* mostly none */
  x[i] = (Event){at, who};
  k->kinds |= 1u << kind;
  if (!i && (at < k->next || (at == k->next && kind > k->first))) k->first = kind, k->next = at;
}

/* Of those of the same time the last kind comes first, and one kind in the order they were made. */
static inline Event pop_event(Clock *k) {
  EventList *l = &k->event[k->first];
  Event e = l->event[l->first++];
  if (!--l->n) {
    l->first = 0;
    k->kinds &= ~(1u << k->first);
  }
  k->next = NEVER;
  for (uint32_t kinds = k->kinds; kinds; kinds &= kinds - 1) {
    int kind = __builtin_ctz(kinds);
    Tick at = k->event[kind].event[k->event[kind].first].at;
    if (at <= k->next) k->first = kind, k->next = at;
  }
  return e;
}

/* ---- accounts ------------------------------------------------------------------------------------------- */

static inline void idle(TimePipe *q, Tick until, Idle why, TimeInst *x) {
  if (until <= q->mark) return;
  q->idle[why] += until - q->mark;
  if (x) x->sum.idle[why] += until - q->mark;
  q->mark = until;
}

/* What let the head of a queue begin at `at`: S, which had just issued it, or what it waited for. Only a timeline asks;
 * so the functions that run a queue are made twice (`timeline` is a constant in each). */
static inline int32_t began_by(const TimePipe *q, Tick at, bool timeline) {
  if (!timeline) return -1;
  return q->head->issued >= at ? q->head->cause.from : q->last;
}

/* The event that ends last; of two at once, the one with the smaller number. */
static void note_end(Clock *k, int32_t number, Tick until) {
  if (until < k->last_until || (until == k->last_until && number > k->last_event)) return;
  k->last_event = number;
  k->last_until = until;
}

/* One more event of the timeline, the last of its pipe; kept, if it is one of those asked for. */
static void add_event(TimeCore *t, int p, const TimeInst *x, Tick from, Tick until, int32_t cause) {
  Clock *k = t->clock;
  int32_t id = (int32_t)(x - k->inst), number = k->n_events;
  if (number == INT32_MAX) return;
  t->pipe[p].last = number;
  k->n_events++;
  note_end(k, number, until);
  if (number < k->opt->first_event || (int64_t)k->events.len >= k->opt->max_events) return;
  vec_push(k->keep, &k->events, ((SimTimeEvent){(int32_t)(t - k->core), (Pipe)p, id, cause, from, until}));
}

/* The head of queue p has run. */
static inline void busy(TimeCore *t, TimePipe *q, Tick from, Tick until, int32_t by, bool timeline) {
  TimeInst *x = q->head->inst;
  idle(q, from, IDLE_ISSUE, x);
  if (until > q->mark) {
    q->busy += until - q->mark;
    x->sum.busy += until - q->mark;
    q->mark = until;
  }
  x->sum.count++;
  if (timeline) add_event(t, (int)(q - t->pipe), x, from, until, by);
}

/* Elements of one statement on end are one event, and so is a series of issues. */
static void s_event(TimeCore *t, Tick until, const TimeInst *x, const IrStmt *stmt) {
  Clock *k = t->clock;
  const TimePipe *s = &t->pipe[PIPE_S];
  bool mine = s->last >= 0 && s->last == t->said && t->said_until == s->free;
  if (mine && (!stmt || stmt == t->doing)) {
    int64_t at = s->last - k->opt->first_event;
    note_end(k, s->last, until);
    if (at >= 0 && at < (int64_t)k->events.len) k->events.data[at].end = until;
  } else {
    add_event(t, PIPE_S, x, s->free, until, s->last);
    t->doing = stmt;
    t->said = s->last;
  }
  t->said_until = until;
}

static inline void s_account(TimePipe *s, Tick work, TimeInst *x) {
  s->busy += work;
  x->sum.scalar += work;
  s->free = s->mark = s->free + work;
}

/* S works for an instruction or element; stmt: of an element, NULL to issue. */
static inline void s_works(TimeCore *t, Tick work, TimeInst *x, const IrStmt *stmt) {
  TimePipe *s = &t->pipe[PIPE_S];
  if (work && t->clock->timeline) s_event(t, s->free + work, x, stmt);
  s_account(s, work, x);
}

/* ---- flags ---------------------------------------------------------------------------------------------- */

/* Something happened that pipe p may wait for. */
static inline void may_move(TimeCore *t, int p) { t->may |= 1u << p; }

static inline void flag_push(TimeFlag *f, Tick at, int32_t from) {
  if (f->n == FLAG_RING) return; /* the functional run calls this a fault */
  f->set[(f->head + f->n++) % FLAG_RING] = (TimeSet){at, from};
}

/* Another set for pipe dst. */
static inline void flag_set(TimeCore *t, int dst, TimeFlag *f, Tick at, int32_t from) {
  flag_push(f, at, from);
  if (t->pipe[dst].waits == f) may_move(t, dst);
}

static inline TimeSet flag_pop(TimeFlag *f) {
  TimeSet set = f->set[f->head];
  f->head = --f->n ? (uint8_t)((f->head + 1) % FLAG_RING) : 0;
  return set;
}

static bool cross_ok(const Clock *k, int64_t id) { return id >= 0 && id < k->arch.n_cross_flags; }

static inline int64_t id_of(const Core *c, const TimeInst *x) { return x->id_reg == NO_REG ? 0 : c->reg[x->id_reg].i; }

/* The flag that a statement sets or waits for; NULL: there is no such flag. */
static inline TimeFlag *flag_of(const Clock *k, const TimeCore *t, const TimeInst *x) {
  int64_t id = id_of(t->core, x);
  if (x->kind == TIME_CROSS_WAIT) return cross_ok(k, id) ? &t->cross[id] : NULL;
  return (uint64_t)id < (uint64_t)k->arch.n_flags ? &t->flag[x->pair + id] : NULL;
}

static bool partner(const Core *a, const Core *b, int mode) {
  return (a->vid < 0) == (b->vid < 0) && (mode == 0 || a->slot == b->slot);
}

static void wake(Clock *k, int32_t group) {
  push_event(k, GROUP_START, k->now, group);
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
      if (!partner(c, &m->core[o], i->mode)) continue;
      TimeSet set = flag_pop(&m->core[o].time->sent[slot]);
      if (set.at > last) last = set.at, from = set.from;
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

static inline TimeEntry *place_after(const TimePipe *q, TimeEntry *e) { return e + 1 == q->end ? q->first : e + 1; }

/* The head of a queue leaves it; it began at `at`, when `by` let it. */
static inline void leave(TimePipe *q, Tick at, int32_t by) {
  TimeEntry *e = q->head;
  e->left = at;
  e->cause.by = by;
  q->head = place_after(q, e);
  q->n--;
}

/* Something has left a queue; S may wait for that. */
static inline void have_left(TimeCore *t, const TimePipe *q) {
  const Core *c = t->core;
  if (c->state == S_QUEUE && t->full ? t->full == q : c->state != S_RUN && !q->n) may_move(t, PIPE_S);
}

/* A synchronisation statement at the head of a queue. False: it must wait. */
static inline bool queue_sync(Clock *k, TimeCore *t, TimePipe *q, bool timeline) {
  TimeEntry *e = q->head;
  TimeInst *x = e->inst;
  Tick at = max_i64(q->free, e->issued), all = max_i64(at, q->done);
  switch (x->kind) {
  case TIME_SET:
    if (e->flag) flag_set(t, x->dst, e->flag, all + k->flag, began_by(q, all, timeline));
    break;
  case TIME_CROSS_SET: cross_set(k, t->core, x->inst, e->id, all, began_by(q, all, timeline)); break;
  case TIME_WAIT:
  case TIME_CROSS_WAIT: {
    TimeSet set = {at, -1};
    q->waits = e->flag;
    if (e->flag && !e->flag->n) return false;
    if (e->flag) set = flag_pop(e->flag);
    idle(q, e->issued, IDLE_ISSUE, x);
    if (timeline && set.at > at && set.from >= 0) q->last = set.from;
    at = max_i64(at, set.at);
    idle(q, at, x->kind == TIME_WAIT ? IDLE_FLAG : IDLE_CROSS, x);
    break;
  }
  default: at = all; /* barrier of the pipe */
  }
  q->free = at;
  x->sum.count++;
  leave(q, at, began_by(q, at, timeline));
  return true;
}

/* Runs what is in a queue until it must wait or is empty. */
static TL_INLINE void run_queue(Clock *k, TimeCore *t, int p, bool timeline) {
  TimePipe *q = &t->pipe[p];
  uint32_t n = q->n;
  if (q->in_flight) return;
  while (q->n) {
    const TimeEntry *e = q->head;
    if (e->inst->kind > TIME_GM) {
      if (!queue_sync(k, t, q, timeline)) break;
      continue;
    }
    Tick at = max_i64(q->free, e->issued);
    const Price *price = e->price;
    if (e->inst->kind == TIME_GM) {
      q->in_flight = true;
      q->began = at;
      q->free = at + price->gm.head;
      push_event(k, TRANSFERS + p, q->free, (int32_t)(t - k->core));
      break;
    }
    q->free = at + price->ticks;
    if (p == PIPE_MTE1 && t->pipe[PIPE_MTE2].in_flight) q->free += price->ticks * k->l1_read_slow / TICKS;
    q->done = max_i64(q->done, q->free + (p == PIPE_M ? k->mmad_tail : 0));
    e->inst->sum.ops += price->ops;
    int32_t by = began_by(q, at, timeline);
    busy(t, q, at, q->done, by, timeline);
    leave(q, at, by);
  }
  if (q->n != n) have_left(t, q);
}

static void run_pipe(Clock *k, TimeCore *t, int p) { run_queue(k, t, p, false); }
static void run_pipe_told(Clock *k, TimeCore *t, int p) { run_queue(k, t, p, true); }

/* ---- S -------------------------------------------------------------------------------------------------- */

static bool drained(const TimeCore *t) {
  for (int p = 1; p < CORE_PIPES; p++)
    if (t->pipe[p].n) return false;
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
static inline Tick steps_work(Core *c) {
  Tick work = (c->steps - c->time->steps) * c->time->clock->scalar_op;
  c->time->steps = c->steps;
  return work;
}

void clock_element(Core *c, const Element *el) {
  Clock *k = c->time->clock;
  bool gm = k->sim->buf[el->buf].space == SPACE_GM;
  Tick work = steps_work(c) + (gm ? k->scalar_gm : k->scalar_mem);
  k->inst[el->id].sum.count++;
  s_works(c->time, k->opt->copy_only && !gm ? 0 : work, &k->inst[el->id], el->stmt);
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
static bool s_sync_time(Clock *k, Core *c, TimeInst *x) {
  TimeCore *t = c->time;
  TimePipe *s = &t->pipe[PIPE_S];
  const Inst *i = x->inst;
  Tick at = s->free;
  int32_t from = -1;
  Idle why = IDLE_FLAG;
  switch (i->op) {
  case ST_SET_FLAG: {
    TimeFlag *f = flag_of(k, t, x);
    if (f) flag_set(t, i->dst, f, at + k->flag, s->last);
    break;
  }
  case ST_WAIT_FLAG:
  case ST_CROSS_WAIT: {
    TimeFlag *f = flag_of(k, t, x);
    s->waits = f;
    if (f && !f->n) return false;
    TimeSet set = f ? flag_pop(f) : (TimeSet){at, -1};
    at = max_i64(at, set.at);
    from = set.from;
    if (i->op == ST_CROSS_WAIT) why = IDLE_CROSS;
    break;
  }
  case ST_CROSS_SET: cross_set(k, c, i, id_of(c, x), at, s->last); break;
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
  idle(s, at, why, x);
  if (at > s->free && from >= 0) s->last = from;
  s->free = at;
  x->sum.count++;
  return true;
}

static bool s_reaches_sync(Clock *k, Core *c, TimeInst *x) {
  c->state = S_SYNC;
  if (!s_sync_time(k, c, x)) return false;
  c->state = S_RUN;
  return true;
}

/* What a queue keeps of an instruction. False: it does nothing. */
static inline bool prepare(Clock *k, Core *c, TimeInst *x, TimeEntry *e) {
  if (x->kind <= TIME_GM) return price_of(k, c, x, e);
  if (x->kind == TIME_CROSS_SET) e->id = id_of(c, x);
  else if (x->kind != TIME_BARRIER) e->flag = flag_of(k, c->time, x);
  return true;
}

/* S finds no room in a queue. While each pipe has something to do, nothing that S issues can begin; so it may sleep
 * until one has not. But others may wait for what S does itself; an instruction of MTE1 takes longer if it comes to its
 * turn while MTE2 moves; and events are numbered as S makes them. */
static bool may_sleep(const TimeCore *t) {
  uint32_t pipes = t->clock->pipes[t->core->prog->side == 'v'];
  if (pipes & (1u << PIPE_S | 1u << PIPE_MTE1) || t->clock->timeline) return false;
  for (; pipes; pipes &= pipes - 1)
    if (!t->pipe[__builtin_ctz(pipes)].n) return false;
  return true;
}

/* The tail of queue q is all but filled; S puts it there after `work`. */
static inline void enter(TimeCore *t, TimePipe *q, TimeInst *x, Tick work, bool timeline) {
  TimePipe *s = &t->pipe[PIPE_S];
  TimeEntry *e = q->tail;
  if (e->left > s->free + work) {
    if (timeline) s_works(t, work, x, NULL);
    else s_account(s, work, x);
    work = 0;
    idle(s, e->left, IDLE_QUEUE, x);
    s->free = e->left;
    if (timeline && e->cause.by >= 0) s->last = e->cause.by;
  }
  if (timeline) s_works(t, work + x->issue, x, NULL);
  else s_account(s, work + x->issue, x);
  e->inst = x;
  e->issued = s->free;
  e->cause.from = s->last;
  q->tail = place_after(q, e);
  if (!q->n++) may_move(t, x->pipe);
}

/* What S issues itself, what finds no room, and everything with a timeline. False: S must wait. */
static TL_APART bool issue_any(Core *c, TimePipe *q, TimeInst *x, Tick work) {
  TimeCore *t = c->time;
  Clock *k = t->clock;
  bool timeline = k->timeline;
  if (q == t->pipe || q->n == k->depth || !prepare(k, c, x, q->tail)) {
    s_works(t, work, x, NULL);
    if (q == t->pipe) return s_reaches_sync(k, c, x);
    if (q->n < k->depth) return true;
    c->state = S_QUEUE;
    t->full = may_sleep(t) ? NULL : q;
    return false;
  }
  enter(t, q, x, work, timeline);
  return true;
}

const Code *clock_issue(Core *c, const Code *q, int64_t *steps) {
  TimeCore *t = c->time;
  Clock *k = t->clock;
  TimeInst *const *inst = t->inst, *x;
  int64_t now = *steps, paid = t->steps;
  bool goes_on = true;
  for (;; now += q->steps, q++) {
    Tick work = (now - paid) * k->scalar_op;
    paid = now;
    x = inst[q->a];
    c->at = x->inst;
    TimePipe *to = &t->pipe[x->pipe];
    if (to->n >= x->room) goes_on = issue_any(c, to, x, work);
    else if (prepare(k, c, x, to->tail)) enter(t, to, x, work, false);
    else s_account(t->pipe, work, x);
    if (!goes_on || q[1].op != C_ISSUE) break; /* mostly several stand in a row */
  }
  *steps = c->steps = t->steps = now;
  return q;
}

/* ---- groups and blocks ---------------------------------------------------------------------------------- */

/* Everything that may move does, S first and then pipe by pipe, until all waits. */
static void advance(Clock *k, Group *g) {
  TimeCore *first = &k->core[g->first], *end = first + g->n;
  if (!g->running) return;
  for (uint32_t more = 1; more;) {
    more = 0;
    for (TimeCore *t = first; t != end; t++) {
      for (uint32_t from = ALL_PIPES, todo; (todo = t->may & from);) {
        int p = __builtin_ctz(todo);
        t->may ^= 1u << p;
        from = ~1u << p;
        if (p == PIPE_S) run_s(t->core, false);
        else if (k->timeline) run_pipe_told(k, t, p);
        else run_pipe(k, t, p);
      }
    }
    for (TimeCore *t = first; t != end; t++) more |= t->may;
  }
  Tick at = 0;
  for (TimeCore *t = first; t != end; t++) {
    Core *c = t->core;
    if (c->state != S_DONE || !drained(t)) return;
    Tick rest = steps_work(c); /* after the last instruction of the block; there is one, or nothing took time */
    if (c->at) s_works(t, rest, &k->inst[c->at->id], NULL);
    at = max_i64(at, all_done(t, NULL));
  }
  g->running = false;
  push_event(k, GROUP_FREE, at, (int32_t)(g - k->group));
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
    if (!t->blocks++) t->start = at - k->fetch;
    for (int32_t f = 0; f < t->n_flags; f++) t->flag[f].head = t->flag[f].n = 0;
    for (int32_t f = 0; f < t->n_cross; f++) t->cross[f].head = t->cross[f].n = 0;
    for (int p = 0; p < CORE_PIPES; p++) {
      TimePipe *q = &t->pipe[p];
      idle(q, at, IDLE_START, NULL);
      q->free = q->done = at;
      q->last = by;
      q->head = q->tail = q->first;
      q->n = 0;
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
  if (k->next_block >= k->blocks) return;
  start_block(k, g, k->dispatcher + k->block_gap, by);
  push_event(k, GROUP_START, k->dispatcher + k->block_gap, number);
}

/* ---- transfers ------------------------------------------------------------------------------------------ */

static void transfer_ends(Clock *k, int32_t number) {
  const Flow *f = &k->mem.flow[number];
  TimeCore *t = &k->core[f->core];
  int p = number - f->core * CORE_PIPES;
  TimePipe *q = &t->pipe[p];
  InstTime *sum = &q->head->inst->sum;
  const Transfer *x = &q->head->price->gm;
  int64_t bytes = x->run * x->rows;
  Tick complete = k->now + f->latency;
  q->free = k->now;
  q->done = max_i64(q->done, complete);
  sum->gm_bytes += bytes;
  sum->gm_most = max_i64(sum->gm_most, bytes);
  sum->gm_rows += x->rows;
  if (x->write) k->m->gm_write += bytes;
  else k->m->gm_read += bytes;
  sum->slowed += max_i64(k->now - q->began - x->head - x->path, 0);
  q->in_flight = false;
  int32_t by = began_by(q, q->began, k->timeline);
  busy(t, q, q->began, complete, by, k->timeline);
  leave(q, q->began, by);
  have_left(t, q);
  may_move(t, p);
  advance(k, &k->group[t->group]);
}

static void transfer_begins(Clock *k, int32_t core, int p) {
  const TimeCore *c = &k->core[core];
  const TimeEntry *e = c->pipe[p].head;
  const Transfer *t = &e->price->gm;
  Transfer slow;
  if (p == PIPE_MTE2 && c->pipe[PIPE_MTE1].done > k->now) { /* both at L1 */
    slow = *t;
    slow.path += t->path * k->l1_write_slow / TICKS;
    slow.miss = max_i64(t->miss, slow.path);
    t = &slow;
  }
  memory_begin(k, core * CORE_PIPES + p, t, e->at, k->now);
}

static void handle_event(Clock *k) {
  int kind = k->first;
  Event e = pop_event(k);
  k->now = e.at;
  if (kind == GROUP_FREE) next_block(k, e.who);
  else if (kind == GROUP_START) advance(k, &k->group[e.who]);
  else transfer_begins(k, e.who, kind - TRANSFERS);
}

/* ---- a run ---------------------------------------------------------------------------------------------- */

static void core_set_up(Clock *k, int32_t index, const Program *prog, int32_t group, int32_t vid) {
  Machine *m = k->m;
  Core *c = &m->core[index];
  TimeCore *t = &k->core[index];
  *c = (Core){.m = m, .prog = prog, .index = index, .slot = group, .vid = vid, .time = t, .state = S_DONE};
  c->reg = arena_array(k->arena, Reg, prog->n_reg);
  *t = (TimeCore){.clock = k, .core = c, .group = group, .said = -1, .inst = k->issued[prog->side == 'v']};
  t->n_flags = k->n_pairs[prog->side == 'v'] * k->arch.n_flags;
  t->n_cross = prog->cross || k->sim->prog[prog->side != 'v'].cross ? k->arch.n_cross_flags * (1 + CROSS_MODES) : 0;
  t->flag = arena_array(k->arena, TimeFlag, t->n_flags);
  t->cross = arena_array(k->arena, TimeFlag, t->n_cross);
  t->sent = t->cross + k->arch.n_cross_flags;
  for (int p = 0; p < CORE_PIPES; p++) {
    TimePipe *q = &t->pipe[p];
    q->last = -1;
    if (p == PIPE_S || (pipe_info[p].side != 'b' && pipe_info[p].side != prog->side)) continue;
    q->first = arena_array(k->arena, TimeEntry, k->depth);
    q->end = q->first + k->depth;
  }
}

static TimeKind kind_of(const Sim *s, const Inst *i) {
  switch (i->op) {
  case ST_SET_FLAG: return TIME_SET;
  case ST_WAIT_FLAG: return TIME_WAIT;
  case ST_CROSS_SET: return TIME_CROSS_SET;
  case ST_CROSS_WAIT: return TIME_CROSS_WAIT;
  default: if (i->op >= OP_COUNT) return TIME_BARRIER;
  }
  for (int a = 0; a < i->n_args; a++)
    if (i->arg[a].buf && s->buf[i->arg[a].buf].space == SPACE_GM) return TIME_GM;
  return TIME_WORK;
}

/* What is the same whenever an instruction runs; numbers the pairs of pipes that flags join. */
static void know_instructions(Clock *k, int side) {
  const Program *p = &k->sim->prog[side];
  int8_t number[CORE_PIPES * CORE_PIPES];
  memset(number, -1, sizeof number);
  k->issued[side] = arena_array(k->arena, TimeInst *, p->n_inst);
  for (int32_t n = 0; p->code && n < p->n_inst; n++) {
    const Inst *i = &p->inst[n];
    TimeInst *x = &k->inst[i->id];
    k->issued[side][n] = x;
    *x = (TimeInst){.inst = i, .kind = kind_of(k->sim, i), .pipe = i->pipe, .dst = i->dst, .id_reg = i->id_reg};
    x->room = i->pipe == PIPE_S || k->timeline ? 0 : k->depth;
    x->issue = x->kind > TIME_GM && k->opt->free_flags ? 0 : k->issue;
    if (i->pipe != PIPE_S || x->kind == TIME_SET || x->kind == TIME_CROSS_SET) k->pipes[side] |= 1u << i->pipe;
    if (x->kind != TIME_SET && x->kind != TIME_WAIT) continue;
    int8_t *pair = &number[i->src * CORE_PIPES + i->dst];
    if (*pair < 0) *pair = (int8_t)k->n_pairs[side]++;
    x->pair = *pair * k->arch.n_flags;
  }
}

static void set_up(Clock *k) {
  Sim *s = k->sim;
  k->timeline = k->opt->timeline;
  k->depth = (uint32_t)max_i64(k->arch.queue_depth, 1);
  k->issue = ticks_of(k->t.issue);
  for (int side = 0; side < 2; side++) know_instructions(k, side);
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
  k->scalar_op = ticks_of(k->t.scalar_op);
  k->scalar_mem = ticks_of(k->t.scalar_mem);
  k->scalar_gm = ticks_of(k->t.scalar_gm);
  k->dispatch = ticks_of_ns(k, k->t.dispatch_ns);
  k->block_gap = ticks_of_ns(k, k->t.block_ns);
  k->launch = ticks_of_ns(k, arch_launch_ns(&k->t, k->m->n_cores));
  k->fetch = ticks_of_ns(k, arch_fetch_ns(&k->t, s->prog[0].code ? k->n_groups : (k->m->n_cores + 1) / 2));
  k->l1_write_slow = ticks_of(k->t.l1_write_slow);
  k->l1_read_slow = ticks_of(k->t.l1_read_slow);
  k->mmad_tail = k->opt->copy_only ? 0 : ticks_of(k->t.mmad_tail);
  k->next = NEVER;
  k->last_event = -1;
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
      if (p ? !q->n : c->state == S_DONE) continue;
      const IrStmt *s = p ? q->head->inst->inst->stmt : c->at->stmt;
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
    t->blocks = t->start = t->end = 0;
    t->said = -1;
    for (int p = 0; p < CORE_PIPES; p++) {
      TimePipe *q = &t->pipe[p];
      q->free = q->done = q->mark = q->busy = 0;
      memset(q->idle, 0, sizeof q->idle);
      q->last = -1;
      for (TimeEntry *e = q->first; e != q->end; e++) e->left = 0;
    }
  }
  for (uint32_t i = 0; i < k->sim->n_ids; i++) k->inst[i].sum = (InstTime){0};
  k->events.len = 0;
  k->n_events = 0;
  k->last_event = -1;
  k->last_until = 0;
  k->next_block = k->end = m->gm_read = m->gm_write = 0;
  k->mem.hit_bytes = k->mem.miss_bytes = k->mem.dirtied = k->mem.write_back = 0;
  k->mem.misses = 0;
  memory_restart(&k->mem);
}

static bool launch(Clock *k) {
  k->now = k->dispatcher = k->launch;
  for (int32_t g = 0; g < k->n_groups; g++) {
    start_block(k, &k->group[g], k->launch + k->fetch, -1);
    push_event(k, GROUP_START, k->launch + k->fetch, g);
  }
  for (;;) {
    Tick next = memory_next(&k->mem, k->next);
    if (k->next < next) {
      handle_event(k);
    } else if (next < NEVER) {
      int32_t number;
      k->now = next;
      if (!memory_step(k, &number)) continue;
      transfer_ends(k, number);
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
    for (int p = 0; p < CORE_PIPES; p++) idle(&k->core[n].pipe[p], k->end, IDLE_END, NULL);
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
