/* sync_cross.c - flags written by hand, seen over all cores of a block (sync_run.c runs them against each other).
 *
 *   dead        nothing can move any more, in whatever order the cores get their turn
 *   by chance   a flag of one bit that may be set twice, a cross-core flag that two pipes use in no order
 *   unordered   one core writes bytes of GM that another one reads, and no flag orders the two
 *   spare       a cross-core flag without which every access is as ordered as with it
 *
 * Said only where it is certain: every flag, condition and trip count follows from block and core, the bytes are known
 * exactly, the statements are executed. The first and the last block are run; of a grid that only the launch knows, the
 * first. For a flag to be spare all blocks must agree, or nothing is said. Left to the run: two cores that write to the
 * same place (it may be the same values), and what blocks that wait for each other (mode 0) order. */
#include "sync_run.h"

#include <string.h>

enum { MAX_NAMED = 8, MAX_LOOKS = TL_LIMIT(1000000, 20000), MAX_LINED = TL_LIMIT(100000, 2000) };

/* An order that is missing between a write of `w` and a read of `r`; back: the write is the later one. */
typedef struct {
  IrStmt *w, *r;
  Pipe wp, rp;
  const RunCore *wc, *rc;
  const IrBuf *buf;
  bool back, again; /* again: w has written there before; that write r may read */
} Race;

typedef struct {
  Run r; /* first: `look` gets it back */
  uint8_t *users; /* by buffer: cores that touch it, and WRITTEN */
  Vec(uint32_t) done[RUN_CORES][PIPE_ALL]; /* steps with accesses that have begun */
  Vec(Race) races;
  bool any; /* accesses that may meet are counted, too, and nothing counts as mended */
  int64_t looks, unordered;
} Block;

enum { WRITTEN = 1u << 7 };

/* ---- accesses that meet ------------------------------------------------------------------------------------------ */

static bool meet(const Box *a, const Box *b) {
  for (int d = 0; d < a->buf->rank; d++)
    if (a->lo[d] >= b->end[d] || b->lo[d] >= a->end[d]) return false;
  return true;
}

static bool surely(const Box *a, const Box *b) {
  return a->buf == b->buf && a->sure && b->sure && !a->atomic && !b->atomic && a->write != b->write && meet(a, b);
}

static bool possibly(const Box *a, const Box *b) {
  if (!a->write && !b->write) return false;
  return a->buf == b->buf ? meet(a, b) : ir_root((IrBuf *)a->buf) == ir_root((IrBuf *)b->buf);
}

/* The box of step a (of core c) that meets box b. */
static const Box *meets(const Block *x, const RunCore *c, uint32_t a, const Box *b) {
  const Step *s = &c->step.data[a];
  for (uint32_t i = s->box; i < s->box + s->n_box; i++)
    if (x->any ? possibly(&c->box.data[i], b) : surely(&c->box.data[i], b)) return &c->box.data[i];
  return NULL;
}

static void note_users(Block *x) {
  memset(x->users, 0, x->r.k->bufs.len + 1);
  for (int i = 0; i < x->r.n_cores; i++)
    for (uint32_t n = 0; n < x->r.core[i].box.len; n++) {
      const Box *b = &x->r.core[i].box.data[n];
      x->users[ir_root((IrBuf *)b->buf)->id] |= (uint8_t)(1u << i | (b->write ? WRITTEN : 0));
    }
  for (int i = 0; i < x->r.n_cores; i++)
    for (int p = 0; p < PIPE_ALL; p++) x->done[i][p].len = 0;
}

static bool worth_it(const Block *x, const Box *b) {
  uint8_t u = x->users[ir_root((IrBuf *)b->buf)->id];
  return (u & WRITTEN) && (u & (u - 1) & ~WRITTEN);
}

/* How many accesses of core c that meet box b have begun before step `at`. again: one of them is of its statement. */
static uint32_t begun_before(const Block *x, const RunCore *c, uint32_t at, const Box *b, bool *again) {
  uint32_t found = 0;
  *again = false;
  for (int p = 0; p < PIPE_ALL; p++)
    for (uint32_t i = 0; i < x->done[c - x->r.core][p].len; i++) {
      uint32_t then = x->done[c - x->r.core][p].data[i];
      if (then >= at || !meets(x, c, then, b)) continue;
      found++;
      *again |= c->step.data[then].stmt == c->step.data[at].stmt;
    }
  return found;
}

/* Which of the two should come first is not known: the n-th write is taken to be for the n-th read. */
static void note_race(Block *x, const RunCore *a, uint32_t at_a, const Box *ba, const RunCore *b, uint32_t at_b,
                      const Box *bb) {
  const Step *sa = &a->step.data[at_a], *sb = &b->step.data[at_b];
  Race m = {sa->stmt, sb->stmt, (Pipe)sa->pipe, (Pipe)sb->pipe, a, b, bb->buf, false, false};
  if (bb->write) m = (Race){sb->stmt, sa->stmt, (Pipe)sb->pipe, (Pipe)sa->pipe, b, a, ba->buf, false, false};
  bool unused;
  uint32_t writes = begun_before(x, m.wc, bb->write ? at_b : at_a, bb->write ? ba : bb, &m.again);
  uint32_t reads = begun_before(x, m.rc, bb->write ? at_a : at_b, bb->write ? bb : ba, &unused);
  m.back = writes > reads;
  m.again &= m.back;
  for (uint32_t i = 0; i < x->races.len; i++) {
    const Race *o = &x->races.data[i];
    if (o->w == m.w && o->r == m.r && o->back == m.back) return;
  }
  vec_push(x->r.p->arena, &x->races, m);
}

/* Of the accesses on pipe p of `other` that have begun and are not known done here, those that meet box b: counts them,
 * or finds the last one before the first comes again, in the next iteration. */
static bool find_meeting(Block *x, const RunCore *other, int p, uint32_t known, const Box *b, uint32_t *at) {
  uint32_t *done = x->done[other - x->r.core][p].data, n = x->done[other - x->r.core][p].len, i = n;
  const IrStmt *first = NULL;
  while (i > 0 && other->when[done[i - 1]] > known) i--;
  for (; i < n && x->looks < MAX_LOOKS; i++) {
    x->looks++;
    if (!meets(x, other, done[i], b)) continue;
    const IrStmt *s = other->step.data[done[i]].stmt;
    x->unordered++;
    if (first == s && !x->any) break;
    if (!first) first = s;
    *at = done[i];
  }
  return first && !x->any;
}

static bool look_once(Block *x, RunCore *c, const Step *s, uint32_t at, const Box *b) {
  Run *r = &x->r;
  for (int o = 0; o < r->n_cores; o++)
    for (int p = 0; p < PIPE_ALL && &r->core[o] != c; p++) {
      RunCore *other = &r->core[o];
      uint32_t then = 0, known = c->seen[s->pipe].t[run_comp(r, other, (Pipe)p)];
      if (!find_meeting(x, other, p, known, b, &then)) continue;
      note_race(x, other, then, meets(x, other, then, b), c, at, b);
      run_mend(r, c, (Pipe)s->pipe, other, then);
      return true;
    }
  return false;
}

static void look(Run *r, RunCore *c, uint32_t at) {
  Block *x = (Block *)r;
  const Step *s = &c->step.data[at];
  bool keep = false;
  for (uint32_t i = s->box; i < s->box + s->n_box; i++) {
    const Box *b = &c->box.data[i];
    if (!worth_it(x, b)) continue;
    keep = true;
    while ((x->any || b->sure) && look_once(x, c, s, at, b) && x->looks < MAX_LOOKS) {}
  }
  if (keep) vec_push(r->p->arena, &x->done[c - r->core][s->pipe], at);
}

static bool replay(Block *x, uint32_t gone) {
  note_users(x);
  x->unordered = x->looks = 0;
  x->r.gone = gone;
  return run_replay(&x->r) && x->looks < MAX_LOOKS;
}

/* ---- unordered --------------------------------------------------------------------------------------------------- */

static const char *core_name(const RunCore *c, const RunCore *other) {
  if (c->vid < 0) return "the cube core";
  return other->vid < 0 ? "the vector cores" : c->vid ? "the second vector core" : "the first vector core";
}

static void tell_race(const Block *x, int64_t n) {
  const Race *m = &x->races.data[n];
  PassCtx *p = x->r.p;
  const IrStmt *first = m->back ? m->r : m->w, *last = m->back ? m->w : m->r;
  const RunCore *fc = m->back ? m->rc : m->wc, *lc = m->back ? m->wc : m->rc;
  const char *from = pipe_info[m->back ? m->rp : m->wp].name, *to = pipe_info[m->back ? m->wp : m->rp].name;
  Diag *g = diag_add(p->diags, DIAG_SYNC_HAND, last->loc,
                     "no cross-core flag written here makes pipe %s of %s wait for pipe %s of %s, which may still %s "
                     "the bytes of %%%s",
                     to, core_name(lc, fc), from, core_name(fc, lc), m->back ? "read" : "write", m->buf->name);
  diag_other(p->diags, g, first->loc, "what pipe %s of %s does to them", from, core_name(fc, lc));
  int id = ir_free_cross_flag(p->k, n);
  diag_fix(p->diags, g, "put `cross_set %s #%d mode(%d)` after line %u, and `cross_wait %s #%d` before line %u%s", from,
           id, fc->vid >= 0 && lc->vid >= 0 ? 1 : 2, first->loc.line, to, id, last->loc.line,
           m->again ? " in all iterations but the first, and once after them" : "");
}

/* ---- dead -------------------------------------------------------------------------------------------------------- */

typedef struct { const RunCore *c; Pipe p; uint32_t at; } Waiting;

static const Step *step_of(const Waiting *w) { return &w->c->step.data[w->at]; }

/* What core c does at the head of the pipe that will come to step `at`; S, if it has not been issued. */
static Waiting holds_up(const RunCore *c, uint32_t at) {
  Waiting w = {c, at < c->pc ? (Pipe)c->step.data[at].pipe : PIPE_S, c->pc};
  if (w.p != PIPE_S) w.at = c->queue[w.p].data[c->head[w.p]];
  return w;
}

static bool serves(const Waiting *w, const RunCore *c, const IrStmt *set) {
  const IrStmt *wait = step_of(w)->stmt;
  if (wait->op == ST_WAIT_FLAG)
    return c == w->c && set->op == ST_SET_FLAG && set->sync.src == wait->sync.src && set->sync.dst == wait->sync.dst;
  bool same = (c->vid < 0) == (w->c->vid < 0);
  return wait->op == ST_CROSS_WAIT && set->op == ST_CROSS_SET && (set->sync.mode == 2) != same;
}

/* What stands before that for which w waits; false: nothing is left that it could wait for. */
static bool waits_for(const Run *r, const Waiting *w, Waiting *next, const IrStmt **set) {
  const Step *s = step_of(w);
  *set = NULL;
  if (s->stmt->op == ST_BARRIER || s->stmt->op == ST_SYNC_ALL) {
    *next = (Waiting){.c = w->c};
    next->p = run_waiting(w->c, PIPE_S + 1, &next->at);
    return next->p != PIPE_COUNT;
  }
  for (int i = 0; i < r->n_cores; i++)
    for (uint32_t n = 0; n < r->core[i].step.len; n++) {
      const RunCore *c = &r->core[i];
      if (c->when[n] || c->step.data[n].id != s->id || !serves(w, c, c->step.data[n].stmt)) continue;
      *set = c->step.data[n].stmt;
      *next = holds_up(c, n);
      return true;
    }
  return false;
}

static const char *waiting_text(const Run *r, const Waiting *w) {
  Text t;
  text_init(&t, r->p->arena);
  text_put(&t, "`");
  ir_print_stmt(&t, r->k, step_of(w)->stmt);
  text_printf(&t, "` on pipe %s", pipe_info[w->p].name);
  if (r->n_cores > 1) text_printf(&t, " of %s", core_name(w->c, &r->core[0]));
  return text_str(&t);
}

static void tell_dead(const Run *r) {
  Waiting w = {0}, next;
  const IrStmt *set;
  for (int i = 0; i < r->n_cores && !w.c; i++) {
    w.p = run_waiting(&r->core[i], PIPE_S, &w.at);
    if (w.p != PIPE_COUNT) w.c = &r->core[i];
  }
  if (!w.c) return;
  for (uint32_t n = 0; n < RUN_CORES * PIPE_ALL; n++) /* then it goes round, or ends at a wait that nothing serves */
    if (waits_for(r, &w, &next, &set)) w = next;
  bool served = waits_for(r, &w, &next, &set);
  if (!served && step_of(&w)->stmt->op == ST_SYNC_ALL) return;
  Diag *g = diag_add(r->p->diags, DIAG_SYNC_DEAD, step_of(&w)->stmt->loc, "%s never ends: %s", waiting_text(r, &w),
                     !served ? "nothing sets the flag any more"
                     : next.c == w.c && next.at == w.at
                         ? "what it waits for comes after it"
                         : arena_printf(r->p->arena, "what it waits for comes after %s, which never ends either",
                                        waiting_text(r, &next)));
  if (served && (next.c != w.c || next.at != w.at))
    diag_other(r->p->diags, g, step_of(&next)->stmt->loc, "the other one");
  if (set) diag_fix(r->p->diags, g, "set it, which line %u does, before line %u waits", set->loc.line,
                    step_of(&next)->stmt->loc.line);
  else diag_fix(r->p->diags, g, "set the flag first, or drop the wait");
}

/* ---- by chance --------------------------------------------------------------------------------------------------- */

static void tell_pipes(const Run *r) {
  const IrStmt *s = r->shaken->stmt;
  Diag *g = diag_add(r->p->diags, DIAG_SYNC_CHANCE, s->loc,
                "pipes %s and %s of %s %s cross-core flag #%d in no order; which set serves which wait is left to "
                "chance",
                pipe_info[r->shaken->pipe].name, pipe_info[r->shaken_with->pipe].name,
                core_name(r->shaken_core, &r->core[0]), s->op == ST_CROSS_SET ? "set" : "wait for", r->shaken->id);
  diag_other(r->p->diags, g, r->shaken_with->stmt->loc, "the other pipe");
  diag_fix(r->p->diags, g, "use one flag a pipe, or order the two pipes by a flag between them");
}

static void tell_twice(const Run *r) {
  IrStmt *s = r->shaken->stmt, *with = r->shaken_with->stmt;
  const char *src = pipe_info[s->sync.src].name, *dst = pipe_info[s->sync.dst].name;
  bool pending = with->op == ST_SET_FLAG;
  Diag *g = diag_add(r->p->diags, DIAG_SYNC_CHANCE, s->loc,
                "flag %s -> %s #%d is set again, and nothing makes pipe %s wait until pipe %s has waited for the set "
                "before; one of the two may be lost",
                src, dst, r->shaken->id, src, dst);
  diag_other(r->p->diags, g, with->loc, pending ? "the set before" : "that wait");
  if (pending) diag_fix(r->p->diags, g, "wait for it between the two, or use two ids in turn");
  else diag_fix(r->p->diags, g, "%s, or use two ids in turn",
                ir_order_fix(r->p->arena, r->k, with, with->sync.dst, s, s->sync.src, false));
}

static void tell_chance(const Run *r) {
  bool local = r->shaken->stmt->op == ST_SET_FLAG;
  if (r->shaken->stmt->hand != 1) return;
  if (local && diag_told(r->p->diags, DIAG_SYNC_HAND, NULL)) return; /* it is the order that is missing */
  if (local) tell_twice(r);
  else tell_pipes(r);
}

/* ---- spare ------------------------------------------------------------------------------------------------------- */

/* Is everything as ordered as it was: what each pipe knows of its own core, and accesses of different cores? */
typedef struct { Vec(RunClock) knew[RUN_CORES]; int64_t unordered; } Before;

static void keep(Block *x, Before *b) {
  b->unordered = x->unordered;
  for (int i = 0; i < x->r.n_cores; i++) {
    b->knew[i].len = 0;
    for (uint32_t n = 0; n < x->r.core[i].step.len; n++) vec_push(x->r.p->arena, &b->knew[i], x->r.core[i].knew[n]);
  }
}

static bool as_ordered(const Block *x, const Before *b) {
  if (x->unordered > b->unordered || x->r.shaken || x->r.full) return false;
  for (int i = 0; i < x->r.n_cores; i++)
    for (uint32_t n = 0; n < x->r.core[i].step.len; n++) {
      const Step *s = &x->r.core[i].step.data[n];
      if (run_is_sync(s->stmt)) continue; /* it hands on what others know */
      const uint32_t *now = &x->r.core[i].knew[n].t[i * RUN_COMPS], *then = &b->knew[i].data[n].t[i * RUN_COMPS];
      for (int p = 0; p < RUN_COMPS; p++)
        if (now[p] < then[p] && !(p == s->pipe && pipe_info[p].in_order)) return false;
    }
  return true;
}

/* Ids that stand or fall together: of one statement, or one line. */
typedef struct { PassCtx *p; uint32_t with[RUN_IDS], hand, made; Map at; } Ids;

static uint32_t ids_of(const IrKernel *k, const IrStmt *s) {
  uint32_t ids = 0;
  if (s->op != ST_CROSS_SET && s->op != ST_CROSS_WAIT) return 0;
  IrRange id = ir_range(k, s->sync.id);
  for (int64_t i = max_i64(id.lo, 0); i <= min_i64(id.hi, RUN_IDS - 1); i++) ids |= 1u << i;
  return ids;
}

static bool note_ids(IrStmt *s, void *user) {
  Ids *x = user;
  uint32_t ids = ids_of(x->p->k, s);
  if (!ids) return true;
  *(s->hand == 1 ? &x->hand : &x->made) |= ids;
  ids |= map_get(&x->at, (const char *)&s->loc, sizeof s->loc);
  for (int i = 0; i < RUN_IDS; i++)
    if (ids >> i & 1) ids |= x->with[i];
  for (int i = 0; i < RUN_IDS; i++)
    if (ids >> i & 1) x->with[i] = ids;
  map_set(x->p->arena, &x->at, (const char *)&s->loc, sizeof s->loc, ids);
  return true;
}

typedef struct { PassCtx *p; uint32_t ids; const IrStmt *first; Vec(uint32_t) lines; } Named;

static bool name_line(IrStmt *s, void *user) {
  Named *x = user;
  if (!(ids_of(x->p->k, s) & x->ids)) return true;
  s->why = "written by hand; orders nothing that is not ordered without it";
  if (!x->first) x->first = s;
  uint32_t i = x->lines.len;
  while (i > 0 && x->lines.data[i - 1] > s->loc.line) i--;
  if (i > 0 && x->lines.data[i - 1] == s->loc.line) return true;
  vec_push(x->p->arena, &x->lines, 0);
  for (uint32_t n = x->lines.len - 1; n > i; n--) x->lines.data[n] = x->lines.data[n - 1];
  x->lines.data[i] = s->loc.line;
  return true;
}

static void say_spare(const Run *r, uint32_t ids) {
  Named x = {.p = r->p, .ids = ids};
  uint32_t waits = 0;
  ir_walk(&r->k->body, name_line, &x);
  for (int i = 0; i < r->n_cores; i++)
    for (uint32_t n = 0, mine; n < r->core[i].step.len; n++) {
      mine = (uint32_t)r->core[i].step.data[n].id;
      waits += r->core[i].step.data[n].stmt->op == ST_CROSS_WAIT && (ids >> mine & 1);
    }
  Text what, lines;
  text_init(&what, r->p->arena);
  text_init(&lines, r->p->arena);
  for (int i = 0; i < RUN_IDS; i++)
    if (ids >> i & 1) text_printf(&what, "%s #%d", what.len ? "," : "", i);
  for (uint32_t i = 0; i < x.lines.len; i++) text_printf(&lines, "%s%u", i ? ", " : "", x.lines.data[i]);
  pass_remark(r->p, "sync", x.first->loc,
              "cross-core flag%s, written by hand, orders nothing that is not ordered without it: delete line%s %s; "
              "%u times a block it costs about %.0f cycles, and one core waits for another",
              text_str(&what), x.lines.len > 1 ? "s" : "", text_str(&lines), waits, arch_time(r->p->arch).cross_flag);
}

/* Of `ids` those without which this block is as ordered as with them, as many as can go at once. */
static uint32_t spare_in(Block *x, const Ids *ids, Before *before, uint32_t of, int64_t block) {
  if (!run_line_up(&x->r, block) || !replay(x, 0) || x->r.shaken || x->r.full) return 0;
  keep(x, before);
  if (replay(x, of) && as_ordered(x, before)) return of;
  uint32_t gone = 0, tried = 0;
  for (int i = 0; i < RUN_IDS; i++) {
    uint32_t group = ids->with[i];
    if (!(of >> i & 1) || (tried & group)) continue;
    tried |= group;
    if (replay(x, gone | group) && as_ordered(x, before)) gone |= group;
  }
  return gone;
}

static void name_spare(Block *x, int64_t blocks) {
  Ids ids = {.p = x->r.p};
  Before before = {0};
  int64_t steps = 0;
  uint32_t spare = 0, told = 0;
  for (int i = 0; i < x->r.n_cores; i++) {
    steps += x->r.core[i].step.len;
    if (x->r.core[i].joins_all) return; /* other blocks learn of it */
  }
  for (int i = 0; i < RUN_IDS; i++) ids.with[i] = 1u << i;
  ir_walk(&x->r.k->body, note_ids, &ids);
  if (!ids.hand || steps * blocks > MAX_LINED) return;
  for (int i = 0; i < RUN_IDS; i++)
    if ((ids.hand >> i & 1) && !(ids.with[i] & ids.made)) spare |= 1u << i;
  x->any = true;
  for (int64_t b = 0; b < blocks && spare; b++) spare = spare_in(x, &ids, &before, spare, b);
  for (int i = 0; i < RUN_IDS; i++) {
    if (!(spare >> i & 1) || (told >> i & 1)) continue;
    say_spare(&x->r, ids.with[i]);
    told |= ids.with[i];
  }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static bool no_hand(IrStmt *s, void *user) {
  (void)user;
  return s->hand != 1;
}

void sync_check_cores(PassCtx *p) {
  int64_t block[2], n_races = 0;
  if (p->auto_sync && ir_walk(&p->k->body, no_hand, NULL)) return;
  if (diag_told(p->diags, DIAG_SYNC_COUNT, NULL)) return; /* what is wrong here comes of that */
  Block *x = arena_new(p->arena, Block);
  run_init(&x->r, p);
  x->r.step = look;
  x->users = arena_array(p->arena, uint8_t, p->k->bufs.len + 1);
  int blocks = sync_sample_blocks(p->k, block);
  for (int i = 0; i < blocks; i++) {
    if (!run_line_up(&x->r, max_i64(block[i], 0))) return;
    bool over = replay(x, 0);
    if (x->r.doubt) return;
    if (x->r.shaken) {
      tell_chance(&x->r);
      return;
    }
    if (!over && x->looks < MAX_LOOKS) {
      tell_dead(&x->r);
      return;
    }
    if (x->r.mode0 || (!x->r.by_hand && p->auto_sync)) return;
    for (; n_races < x->races.len && n_races < MAX_NAMED; n_races++) tell_race(x, n_races);
    if (!over) return;
  }
  if (!n_races && block[0] >= 0) name_spare(x, block[blocks - 1] + 1);
}
