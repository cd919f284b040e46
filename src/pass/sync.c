/* sync.c - flags and barriers, as few as order everything.
 *
 * The pipes of a core run at their own pace; what orders them is a flag (set on one pipe, waited on another) or a
 * barrier. The pass replays the trace of sync_trace.c with a vector clock per pipe: vc[q][p] is the tick up to which
 * pipe p is known to be done when the next instruction of q starts. An instruction that touches bytes of an earlier one
 * which its clock does not cover misses an edge. The first missing edge gets a flag, the replay starts again, until
 * nothing is missing. Then every flag is tried without; those that others imply go. So each flag that stays orders at
 * least one pair that nothing else orders.
 *
 *   forward   D; set          wait; E          D before E in the same iteration of all common loops
 *   backward  set; for { wait; E  D; set } wait   D of one iteration before E of a later one (primed, drained outside)
 *
 * A flag is one bit, so a set must come after the wait of the set before. Where iterations overlap (several versions of
 * a buffer) the flag rotates over as many ids as it needs: id = base + trip % n. Eight ids serve an ordered pair of
 * pipes; if they run out, `barrier all` takes the place of the flag, with a warning.
 *
 * Flags and barriers the user wrote count as they stand. With auto_sync off the pass orders what the user cannot see:
 * temporaries, the instructions of one statement among themselves, and both ends of what the compiler made of a
 * statement (find_made).
 *
 * Before all that, instructions on pieces that turned out empty go, and the condition of a `while` that instructions of
 * its loop feed becomes a statement, for a flag needs something to stand before. */
#include "sync.h"

#include <string.h>

enum { MAX_FLAGS = TL_LIMIT(400, 6), MAX_REPLAYS = TL_LIMIT(3000, 9), IDS = TL_LIMIT(IR_FLAGS, 2) };

/* ---- replay --------------------------------------------------------------------------------------------------- */

static void join(int32_t *into, const int32_t *from) {
  for (int i = 0; i < PIPE_COUNT; i++)
    if (from[i] > into[i]) into[i] = from[i];
}

static int slot_of(const Sync *y, const Flag *f) { return f->n > 1 ? y->iter[f->rotor->id] % f->n : 0; }

/* The state of a flag's id: its own until ids are on trial, then one state an id, whoever uses it. */
static FlagState *state_of(Sync *y, Flag *f, int slot) {
  return y->check_ids && f->base >= 0 ? &y->by_id[f->src][f->dst][f->base + slot] : &f->state[slot];
}

static void replay_set(Sync *y, uint32_t i, int slot) {
  Flag *f = &y->flags.data[i];
  FlagState *t = state_of(y, f, slot);
  if (t->set || (t->waited && y->now.vc[f->src][f->dst] < t->waited)) y->bad_flag = i + 1;
  t->set = true;
  memcpy(t->snapshot, y->now.vc[f->src], sizeof t->snapshot);
  t->snapshot[f->src] = ++y->tick;
}

static void replay_wait(Sync *y, uint32_t i, int slot) {
  Flag *f = &y->flags.data[i];
  FlagState *t = state_of(y, f, slot);
  if (!t->set) y->bad_flag = i + 1;
  t->set = false;
  join(y->now.vc[f->dst], t->snapshot);
  t->waited = y->now.last[f->dst] = ++y->tick;
}

static void replay_barrier(Sync *y, Pipe pipe) {
  if (pipe != PIPE_ALL) {
    y->now.vc[pipe][pipe] = y->now.last[pipe];
    return;
  }
  int32_t all[PIPE_COUNT];
  memcpy(all, y->now.last, sizeof all);
  for (int q = 0; q < PIPE_COUNT; q++) join(all, y->now.vc[q]);
  for (int q = 0; q < PIPE_COUNT; q++) memcpy(y->now.vc[q], all, sizeof all);
}

/* What pipe `pipe` knows of others: S's knowledge holds for all that it issues. */
static int32_t knows(const Sync *y, Pipe pipe, int p) {
  int32_t own = y->now.vc[pipe][p], s = y->now.vc[PIPE_S][p];
  return own > s ? own : s;
}

/* Other cores may listen here: is as much known of what matters to them as there was? */
static void keep_known(Sync *y, Pipe pipe) {
  for (int p = 0; y->known && p < PIPE_COUNT; p++) {
    int32_t now = knows(y, pipe, p);
    if (y->known == KNOWN_ASKED) {
      y->less |= now < y->kept.data[y->n_kept++];
      continue;
    }
    uint32_t i = y->gm_tick[p].len;
    while (i > 0 && y->gm_tick[p].data[i - 1] > now) i--;
    vec_push(y->p->arena, &y->kept, i ? y->gm_tick[p].data[i - 1] : 0);
  }
}

static void note_gm(Sync *y, Pipe pipe) {
  if (y->known == KNOWN_NOTED) vec_push(y->p->arena, &y->gm_tick[pipe], y->tick);
}

/* Another core may answer at once: a wait is ordered after all that was told before it. That is more than is certain,
 * so what it leaves unordered is. */
static void replay_cross(Sync *y, const IrStmt *s) {
  Pipe pipe = s->sync.src < PIPE_ALL ? s->sync.src : PIPE_S; /* a wait that names none: S waits, and all after it */
  if (s->op == ST_CROSS_SET) {
    keep_known(y, pipe);
    join(y->crossed, y->now.vc[pipe]);
    y->crossed[pipe] = ++y->tick;
    return;
  }
  y->now.last[pipe] = ++y->tick;
  note_gm(y, pipe);
  for (int q = 0; q < PIPE_COUNT; q++)
    if (pipe == (Pipe)q || pipe == PIPE_S) join(y->now.vc[q], y->crossed);
}

static void replay_hand(Sync *y, const Event *e) {
  const IrStmt *s = e->stmt;
  if (y->gone && y->gone[s->id]) {
    y->tick += s->op != ST_BARRIER; /* so that ticks of replays compare */
    return;
  }
  if (s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT) {
    replay_cross(y, s);
    return;
  }
  if (s->op == ST_BARRIER || s->op == ST_SYNC_ALL) {
    replay_barrier(y, s->op == ST_BARRIER ? s->sync.src : PIPE_ALL);
    return;
  }
  if (e->arg < 0 || e->arg >= HAND_IDS || s->sync.src >= PIPE_ALL || s->sync.dst >= PIPE_ALL) return;
  Pipe p = s->sync.src, q = s->sync.dst;
  FlagState *t = &y->by_id[p][q][e->arg];
  ++y->tick;
  if (s->op == ST_SET_FLAG) {
    y->n_twice += t->set || (t->waited && knows(y, p, (int)q) < t->waited);
    t->set = true;
    memcpy(t->snapshot, y->now.vc[p], sizeof t->snapshot);
    t->snapshot[p] = y->tick;
  } else if (t->set) {
    t->set = false;
    join(y->now.vc[q], t->snapshot);
    t->waited = y->now.last[q] = y->tick;
  }
}

/* May this edge be left to the user? */
static bool users_business(const Sync *y, const Entry *e, Pipe p) {
  if (y->p->auto_sync) return false;
  const Entry *d = &y->trace.entries.data[e->dep[p]];
  bool temp = e->dep_buf[p]->id >= y->p->n_user_bufs;
  bool same_line = d->stmt->loc.line == e->stmt->loc.line && d->stmt->loc.file == e->stmt->loc.file &&
                   d->stmt->loc.col == e->stmt->loc.col;
  return !temp && !same_line && !y->made[d->stmt->id] && !y->made[e->stmt->id];
}

/* The edge that e misses and whose other end comes latest, of those that are not `skip`; PIPE_COUNT: none. */
static Pipe nearest_miss(const Sync *y, const Entry *e, uint32_t skip) {
  Pipe best = PIPE_COUNT;
  for (int p = 0; p < PIPE_COUNT; p++)
    if (e->dep[p] && !(skip >> p & 1) && y->now.vc[e->pipe][p] < y->entry_tick[e->dep[p]] &&
        (best == PIPE_COUNT || e->dep[p] > e->dep[best]))
      best = (Pipe)p;
  return best;
}

/* As if e's pipe had waited for all that p did before. */
static void mend_edge(Sync *y, Pipe pipe, Pipe p) {
  if (p != pipe) join(y->now.vc[pipe], y->now.vc[p]);
  y->now.vc[pipe][p] = y->now.last[p];
}

static bool replay_instr(Sync *y, uint32_t at) {
  const Entry *e = &y->trace.entries.data[at];
  uint32_t left = 0;
  for (Pipe p; (p = nearest_miss(y, e, left)) != PIPE_COUNT;) {
    if (!users_business(y, e, p)) {
      y->miss_e = at;
      y->miss_pipe = (uint32_t)p;
      return false;
    }
    left |= 1u << p;
    /* what S waits for comes before all that it issues later */
    if (p != PIPE_S && y->now.vc[PIPE_S][p] >= y->entry_tick[e->dep[p]]) continue;
    y->n_left++;
    if (y->left && y->left(y, at, p)) mend_edge(y, e->pipe, p);
  }
  y->entry_tick[at] = y->now.last[e->pipe] = ++y->tick;
  bool gm = false;
  for (uint32_t i = 0; i < e->access.len; i++) gm |= e->access.data[i].buf->space == SPACE_GM;
  if (gm) keep_known(y, e->pipe), note_gm(y, e->pipe);
  return true;
}

/* Path A was replayed; path B may happen instead. What holds on both: ticks of instructions that a path does not
 * execute hold there for free. */
static void merge_paths(Clock *a, const Clock *b) {
  if (b->gone) return;
  if (a->gone) {
    *a = *b;
    return;
  }
  for (int q = 0; q < PIPE_COUNT; q++)
    for (int p = 0; p < PIPE_COUNT; p++) {
      int32_t va = a->vc[q][p], vb = b->vc[q][p];
      bool a_all = va >= a->last[p], b_all = vb >= b->last[p];
      int32_t end = a->last[p] > b->last[p] ? a->last[p] : b->last[p];
      if (a_all) va = end;
      if (b_all) vb = end;
      a->vc[q][p] = va < vb ? va : vb;
    }
  for (int p = 0; p < PIPE_COUNT; p++)
    if (b->last[p] > a->last[p]) a->last[p] = b->last[p];
}

/* An `if` or a loop that is being replayed: how things stood before it and after its first branch; in a loop, where
 * its continues and its breaks come from. */
typedef struct { Clock before, then, next, out; bool loop; } Branch;

enum { MAX_BRANCH = 64 };

static void begin_branch(Branch *stack, int depth, const Clock *now, bool loop) {
  if (depth >= MAX_BRANCH) return;
  stack[depth] = (Branch){.before = *now, .next.gone = true, .out.gone = true, .loop = loop};
}

static void take_path(Clock *now, Clock *other) {
  merge_paths(now, other);
  other->gone = true;
}

static void replay_jump(Sync *y, Branch *stack, int depth, const IrStmt *s) {
  if (depth > MAX_BRANCH) depth = MAX_BRANCH;
  while (depth > 0 && !stack[depth - 1].loop) depth--;
  if (depth) merge_paths(s->op == ST_BREAK ? &stack[depth - 1].out : &stack[depth - 1].next, &y->now);
  y->now.gone = true;
}

bool sync_replay(Sync *y) {
  Branch stack[MAX_BRANCH];
  int depth = 0;
  memset(&y->now, 0, sizeof y->now);
  memset(y->by_id, 0, sizeof y->by_id);
  memset(y->crossed, 0, sizeof y->crossed);
  y->tick = 0;
  y->miss_e = y->bad_flag = y->n_left = y->n_twice = y->n_kept = 0;
  y->less = false;
  for (uint32_t i = 0; i < y->flags.len; i++) memset(y->flags.data[i].state, 0, sizeof y->flags.data[i].state);
  for (uint32_t n = 0; n < y->trace.events.len; n++) {
    const Event *e = &y->trace.events.data[n];
    uint32_t id = e->stmt->id;
    if (y->now.gone && e->kind < EV_LOOP_BEGIN) continue;
    switch (e->kind) {
    case EV_INSTR:
      if (!replay_instr(y, e->entry)) return false;
      break;
    case EV_BEFORE:
      for (uint32_t i = 0; i < y->at_before[id].len; i++) {
        Flag *f = &y->flags.data[y->at_before[id].data[i]];
        if (f->dead) continue;
        if (f->src == PIPE_COUNT) replay_barrier(y, f->dst);
        else replay_wait(y, y->at_before[id].data[i], slot_of(y, f));
      }
      break;
    case EV_AFTER:
      for (uint32_t i = 0; i < y->at_after[id].len; i++)
        if (!y->flags.data[y->at_after[id].data[i]].dead)
          replay_set(y, y->at_after[id].data[i], slot_of(y, &y->flags.data[y->at_after[id].data[i]]));
      break;
    case EV_LOOP_BEGIN:
      for (uint32_t i = 0; i < y->at_loop[id].len; i++) {
        Flag *f = &y->flags.data[y->at_loop[id].data[i]];
        for (int s = 0; s < f->n && !f->dead; s++) replay_set(y, y->at_loop[id].data[i], s);
      }
      begin_branch(stack, depth++, &y->now, true);
      break;
    case EV_ITER:
      y->iter[id] = e->arg;
      if (depth <= MAX_BRANCH) take_path(&y->now, &stack[depth - 1].next);
      break;
    case EV_LOOP_END:
      depth--;
      if (depth < MAX_BRANCH) {
        take_path(&y->now, &stack[depth].next);
        take_path(&y->now, &stack[depth].out);
        if (e->arg) merge_paths(&y->now, &stack[depth].before);
      }
      for (uint32_t i = 0; i < y->at_loop[id].len; i++) {
        Flag *f = &y->flags.data[y->at_loop[id].data[i]];
        for (int s = 0; s < f->n && !f->dead; s++) replay_wait(y, y->at_loop[id].data[i], s);
      }
      break;
    case EV_IF_BEGIN: begin_branch(stack, depth++, &y->now, false); break;
    case EV_ELSE:
      if (depth <= MAX_BRANCH) {
        stack[depth - 1].then = y->now;
        y->now = stack[depth - 1].before;
      }
      break;
    case EV_IF_END:
      depth--;
      if (depth < MAX_BRANCH) merge_paths(&y->now, &stack[depth].then);
      break;
    case EV_JUMP: replay_jump(y, stack, depth, e->stmt); break;
    case EV_HAND:
      if (!y->now.gone) replay_hand(y, e);
      break;
    default: break;
    }
    if (y->bad_flag) return false;
  }
  return true;
}

/* ---- where a flag stands -------------------------------------------------------------------------------------- */

static bool breaks(IrStmt *s, void *user) {
  (void)user;
  return s->op != ST_BREAK && s->op != ST_CONTINUE;
}
static bool has_break(IrStmt *loop) { return !ir_walk(&loop->body, breaks, NULL); }

static void index_flag(Sync *y, uint32_t i) {
  const Flag *f = &y->flags.data[i];
  vec_push(y->p->arena, &y->at_before[f->before->id], i);
  if (f->after) vec_push(y->p->arena, &y->at_after[f->after->id], i);
  if (f->loop) vec_push(y->p->arena, &y->at_loop[f->loop->id], i);
}

static void add_flag(Sync *y, Flag f) {
  vec_push(y->p->arena, &y->flags, f);
  index_flag(y, y->flags.len - 1);
}

static const char *hazard_text(Sync *y, const Entry *d, const Entry *e, const IrBuf *b) {
  bool dw = false, ew = false;
  for (uint32_t i = 0; i < d->access.len; i++)
    dw |= d->access.data[i].write && d->access.data[i].buf->space == b->space;
  for (uint32_t i = 0; i < e->access.len; i++) ew |= e->access.data[i].write && e->access.data[i].buf == b;
  Text t;
  text_init(&t, y->p->arena);
  text_printf(&t, "%s on %%%s: ",
              dw && ew ? "write after write"
              : ew     ? "write after read"
                       : "read after write",
              b->name);
  text_put(&t, ir_is_op(d->stmt) ? op_info[d->stmt->op].name : "scalar access");
  text_printf(&t, " (%s) before ", ir_loc_str(y->p->arena, y->p->module, d->stmt->loc));
  text_put(&t, ir_is_op(e->stmt) ? op_info[e->stmt->op].name : "scalar access");
  text_printf(&t, " (%s)", ir_loc_str(y->p->arena, y->p->module, e->stmt->loc));
  return text_str(&t);
}

static Flag barrier_before(Pipe pipe, IrStmt *before, const char *why, const Entry *d, const Entry *e) {
  return (Flag){.src = PIPE_COUNT, .dst = pipe, .before = before, .why = why, .why_d = d->stmt, .why_e = e->stmt};
}

/* The first level at which the two differ, and whether a common loop carries the dependency. */
static int common_depth(const Entry *d, const Entry *e, bool *carried) {
  int i = 0;
  *carried = false;
  while (i < d->depth && i < e->depth && d->loop[i] == e->loop[i]) {
    if (d->iter[i] != e->iter[i]) {
      *carried = true;
      return i;
    }
    i++;
  }
  return i;
}

static bool before_in_block(const IrStmt *a, const IrStmt *b) { return a->id < b->id; }

/* Does the trace hold every iteration of a loop? Then an id for each of them hides nothing. */
static bool whole_in_trace(const Sync *y, const IrStmt *loop) {
  int64_t trips;
  return ir_is_int(loop->loop.step, 1) && ir_const_diff(y->k, loop->loop.hi, loop->loop.lo, &trips) &&
         trips == y->trips[loop->id];
}

/* How many iterations of the loop below `level` lie between the two, all its runs one after the other, if ids can
 * rotate over so many of them; else 0. So the flag stands inside, and a run need not wait for the end of the one
 * before. */
static int32_t apart_inside(const Sync *y, const Entry *d, const Entry *e, int level) {
  int in = level + 1;
  const IrStmt *loop = in < d->depth && in < e->depth && d->loop[in] == e->loop[in] ? d->loop[in] : NULL;
  if (!loop || loop->op != ST_FOR || loop->block != &d->loop[level]->body || !whole_in_trace(y, loop)) return 0;
  int32_t trips = y->trips[loop->id];
  int32_t n = (e->iter[level] - d->iter[level]) * trips + e->iter[in] - d->iter[in];
  return n > 1 && n <= MAX_ROTATION && trips % n == 0 ? n : 0;
}

/* Orders the missing edge. attempt > 0: what was tried did not cover it. */
static void cover(Sync *y, uint32_t at, Pipe p, int attempt) {
  const Entry *e = &y->trace.entries.data[at], *d = &y->trace.entries.data[e->dep[p]];
  const char *why = hazard_text(y, d, e, e->dep_buf[p]);
  bool carried;
  int level = common_depth(d, e, &carried);
  int32_t inside = carried && !attempt ? apart_inside(y, d, e, level) : 0;
  if (inside) level++;
  IrBlock *block = carried ? &d->loop[level]->body : ir_common_block(d->stmt, e->stmt);
  IrStmt *D = ir_child_of(block, d->stmt), *E = ir_child_of(block, e->stmt);
  bool breaking = false;
  for (int i = 0; i < e->depth; i++) breaking |= has_break(e->loop[i]);
  for (int i = 0; i < d->depth; i++) breaking |= has_break(d->loop[i]);
  if (carried && d->loop[level]->op == ST_WHILE) breaking = true;
  if (attempt || !D || !E || breaking) {
    add_flag(y, barrier_before(PIPE_ALL, attempt > 1 || !E ? e->stmt : E, why, d, e));
    return;
  }
  if (d->pipe == e->pipe) {
    add_flag(y, barrier_before(d->pipe, E, why, d, e));
    return;
  }
  Flag f = {
      .src = d->pipe, .dst = e->pipe, .after = D, .before = E, .n = 1, .why = why, .why_d = d->stmt, .why_e = e->stmt};
  if (carried && !before_in_block(D, E)) {
    IrStmt *loop = d->loop[level];
    f.n = inside ? inside : e->iter[level] - d->iter[level];
    f.rotor = loop;
    for (int i = level; i >= 0 && d->loop[i]->op == ST_FOR; i--) loop = d->loop[i]; /* primed once for the whole nest */
    f.loop = loop;
  }
  add_flag(y, f);
}

/* ---- search --------------------------------------------------------------------------------------------------- */

/* A flag set twice, because its source may run ahead. Where the loop has versions of buffers, one id more for each;
 * otherwise the source waits for an answer: a backward flag of the other direction. Last resort: a barrier. */
static void mend(Sync *y, uint32_t i) {
  Flag *f = &y->flags.data[i];
  IrStmt *loop = f->before->block->parent;
  while (loop && loop->op == ST_IF) loop = loop->block->parent;
  bool in_loop = !f->loop && loop && loop->op == ST_FOR && !has_break(loop);
  if (in_loop && f->n + 1 < y->trips[loop->id] + whole_in_trace(y, loop)) {
    f->rotor = loop;
    f->n++;
    return;
  }
  if (in_loop && !f->answered && f->after->block == f->before->block) {
    f->answered = true;
    f->n = 1;
    Flag back = {.src = f->dst,
                 .dst = f->src,
                 .after = f->before,
                 .before = f->after,
                 .loop = loop,
                 .rotor = loop,
                 .n = 1,
                 .why_d = f->why_e,
                 .why_e = f->why_d};
    back.why = arena_printf(y->p->arena, "answer, so that the flag is not set twice: %s", f->why);
    for (IrStmt *up = loop; up && up->op == ST_FOR; up = up->block->parent) back.loop = up;
    add_flag(y, back);
    return;
  }
  f->dead = true;
  Flag b = {
      .src = PIPE_COUNT, .dst = PIPE_ALL, .before = f->before, .why = f->why, .why_d = f->why_d, .why_e = f->why_e};
  add_flag(y, b);
}

static bool solve(Sync *y) {
  uint32_t last_e = 0, last_p = 0;
  int attempt = 0;
  for (int i = 0; i < MAX_REPLAYS && y->flags.len < MAX_FLAGS; i++) {
    if (sync_replay(y)) return true;
    if (y->bad_flag) {
      mend(y, y->bad_flag - 1);
      continue;
    }
    attempt = y->miss_e == last_e && y->miss_pipe == last_p ? attempt + 1 : 0;
    last_e = y->miss_e;
    last_p = y->miss_pipe;
    if (attempt > 3) return false;
    cover(y, y->miss_e, (Pipe)y->miss_pipe, attempt);
  }
  return false;
}

static void drop_implied(Sync *y) {
  for (uint32_t i = 0; i < y->flags.len; i++) {
    if (y->flags.data[i].dead) continue;
    y->flags.data[i].dead = true;
    if (!sync_replay(y)) y->flags.data[i].dead = false;
  }
}

/* Two flags of one pipe pair whose ends are neighbours serve as well as one: the later set, the earlier wait.
 * Neighbours means that nothing but instructions of the same pipe stands between, so nothing is held up that
 * matters. */
static bool neighbours(const IrStmt *a, const IrStmt *b, Pipe pipe) {
  if (!a || !b) return a == b;
  if (a->block != b->block) return false;
  if (a->id > b->id) return neighbours(b, a, pipe);
  for (const IrStmt *s = a; s != b; s = s->next)
    if (!ir_is_say(s) && (!ir_is_op(s) || op_info[s->op].pipe != pipe)) return false;
  return ir_is_op(b) && op_info[b->op].pipe == pipe;
}

static void merge_flags(Sync *y) {
  for (uint32_t i = 0; i < y->flags.len; i++)
    for (uint32_t j = 0; j < y->flags.len; j++) {
      Flag f = y->flags.data[i], g = y->flags.data[j];
      if (i == j || f.dead || g.dead || f.src != g.src || f.dst != g.dst || f.src == PIPE_COUNT || f.n != g.n ||
          f.loop != g.loop)
        continue;
      if (f.rotor != g.rotor || !neighbours(f.after, g.after, f.src) || !neighbours(f.before, g.before, f.dst))
        continue;
      Flag both = f;
      if (g.after->id > f.after->id) both.after = g.after;
      if (g.before->id < f.before->id) both.before = g.before;
      y->flags.data[i].dead = y->flags.data[j].dead = true;
      add_flag(y, both);
      if (sync_replay(y)) break;
      y->flags.data[y->flags.len - 1].dead = true;
      y->flags.data[i].dead = y->flags.data[j].dead = false;
    }
}

/* ---- ids ------------------------------------------------------------------------------------------------------ */

static bool id_is_free(const Sync *y, const Flag *f, int32_t base, bool shared) {
  for (int32_t s = 0; s < f->n; s++)
    if (y->hand_used[f->src][f->dst][base + s]) return false;
  for (uint32_t j = 0; !shared && j < y->flags.len; j++) {
    const Flag *o = &y->flags.data[j];
    if (o != f && !o->dead && o->base >= 0 && o->src == f->src && o->dst == f->dst && base < o->base + o->n &&
        o->base < base + f->n)
      return false;
  }
  return true;
}

/* An id of its own if there is one, otherwise one that an earlier flag is always done with. */
static bool find_id(Sync *y, Flag *f) {
  for (int shared = 0; shared < 2; shared++)
    for (int32_t base = 0; base + f->n <= IDS; base++) {
      if (!id_is_free(y, f, base, shared)) continue;
      f->base = base;
      if (!shared) return true;
      y->check_ids = true;
      bool ok = sync_replay(y);
      y->check_ids = false;
      if (ok) return true;
    }
  f->base = -1;
  return false;
}

/* One message a pair of pipes, at the first of its places. */
static void report_ids(Sync *y, const Flag *first, int n) {
  const char *others = n > 1 ? arena_printf(y->p->arena, " and at %d more place%s", n - 1, n > 2 ? "s" : "") : "";
  Diag *g = diag_add(y->p->diags, DIAG_SYNC_IDS, first->why_e->loc,
                     "no event id of %s -> %s is free here%s; a barrier of all pipes takes its place (%s)",
                     pipe_info[first->src].name, pipe_info[first->dst].name, others, first->why);
  diag_fix(y->p->diags, g, "use fewer tiles at a time: a loop of the chip in place of unrolled code");
}

static void assign_ids(Sync *y) {
  Flag first[PIPE_COUNT][PIPE_COUNT];
  int n[PIPE_COUNT][PIPE_COUNT] = {0};
  for (uint32_t i = 0; i < y->flags.len; i++) y->flags.data[i].base = -1;
  for (uint32_t i = 0; i < y->flags.len; i++) {
    Flag *f = &y->flags.data[i];
    if (f->dead || f->src == PIPE_COUNT || find_id(y, f)) continue;
    if (!n[f->src][f->dst]++) first[f->src][f->dst] = *f;
    f->dead = true;
    Flag b = {.src = PIPE_COUNT,
              .dst = PIPE_ALL,
              .before = f->before,
              .why = f->why,
              .why_d = f->why_d,
              .why_e = f->why_e,
              .base = -1};
    add_flag(y, b);
  }
  for (int s = 0; s < PIPE_COUNT; s++)
    for (int d = 0; d < PIPE_COUNT; d++)
      if (n[s][d]) report_ids(y, &first[s][d], n[s][d]);
}

/* ---- writing it down ------------------------------------------------------------------------------------------ */

static IrStmt *flag_stmt(Sync *y, const Flag *f, StmtOp op, IrExpr *id, Loc loc) {
  IrStmt *s = ir_new_stmt(y->k, op, loc);
  s->sync.src = f->src;
  s->sync.dst = f->dst;
  s->sync.id = id;
  s->hand = 2;
  s->why = f->why;
  return s;
}

static IrExpr *flag_id(Sync *y, const Flag *f) {
  if (f->n < 2) return ir_i32(y->k, f->base);
  const IrStmt *l = f->rotor;
  IrExpr *trip = ir_binary(y->k, EX_SUB, ir_var(y->k, l->loop.var), l->loop.lo);
  if (!ir_is_int(l->loop.step, 1)) trip = ir_binary(y->k, EX_FDIV, trip, l->loop.step);
  return ir_binary(y->k, EX_ADD, ir_binary(y->k, EX_MOD, trip, ir_i32(y->k, f->n)), ir_i32(y->k, f->base));
}

static void write_down(Sync *y) {
  for (uint32_t i = 0; i < y->flags.len; i++) { /* waits and barriers, in order */
    const Flag *f = &y->flags.data[i];
    if (f->dead) continue;
    if (f->src == PIPE_COUNT) {
      IrStmt *s = ir_new_stmt(y->k, ST_BARRIER, f->why_e->loc);
      s->sync.src = s->sync.dst = f->dst;
      s->hand = 2;
      s->why = f->why;
      ir_insert_before(f->before, s);
    } else {
      ir_insert_before(f->before, flag_stmt(y, f, ST_WAIT_FLAG, flag_id(y, f), f->why_e->loc));
    }
  }
  for (uint32_t i = 0; i < y->flags.len; i++) {
    const Flag *f = &y->flags.data[i];
    if (!f->dead && f->after) ir_insert_after(f->after, flag_stmt(y, f, ST_SET_FLAG, flag_id(y, f), f->why_d->loc));
  }
  for (uint32_t i = 0; i < y->flags.len; i++) {
    const Flag *f = &y->flags.data[i];
    for (int32_t s = 0; !f->dead && f->loop && s < f->n; s++) {
      IrExpr *id = ir_i32(y->k, f->base + s);
      ir_insert_before(f->loop, flag_stmt(y, f, ST_SET_FLAG, id, f->why_d->loc));
      ir_insert_after(f->loop, flag_stmt(y, f, ST_WAIT_FLAG, id, f->why_e->loc));
    }
  }
}

static bool note_hand_ids(IrStmt *s, void *user) {
  Sync *y = user;
  if ((s->op != ST_SET_FLAG && s->op != ST_WAIT_FLAG) || s->sync.src >= PIPE_ALL || s->sync.dst >= PIPE_ALL)
    return true;
  bool *used = y->hand_used[s->sync.src][s->sync.dst];
  IrRange id = ir_range(y->k, s->sync.id);
  for (int64_t i = max_i64(id.lo, 0); i <= min_i64(id.hi, HAND_IDS - 1); i++) used[i] = true;
  return true;
}

/* What the compiler made of a statement that became instructions of several pipes: the loads of L0 and the steps of a
 * product, the fill or the conversion beside a DMA. The author ordered "the product", "the copy"; that its parts stand
 * on other pipes than the one he named is our doing. Found by location, so that a text resumes the same way. */
typedef struct { Sync *y; Map *pipes; int round; } Made;
static bool find_made(IrStmt *s, void *user) {
  Made *m = user;
  if (!ir_is_op(s) || op_info[s->op].pipe >= PIPE_COUNT) return true;
  uint32_t here = map_get(m->pipes, (const char *)&s->loc, sizeof s->loc), pipe = 1u << op_info[s->op].pipe;
  if (m->round == 0) {
    map_set(m->y->p->arena, m->pipes, (const char *)&s->loc, sizeof s->loc, here | pipe);
    return true;
  }
  const uint32_t product = 1u << PIPE_M | 1u << PIPE_MTE1, dma = 1u << PIPE_MTE2 | 1u << PIPE_MTE3;
  m->y->made[s->id] = ((here & product) == product && (pipe & product)) || (pipe == 1u << PIPE_V && (here & dma));
  return true;
}

static bool sync_side(PassCtx *p, IrStmt *side) {
  Sync *y = arena_new(p->arena, Sync);
  y->p = p;
  y->k = p->k;
  y->side = side;
  ir_walk(&side->body, note_hand_ids, y);
  sync_trace(p, side, false, &y->trace);
  uint32_t n = p->k->n_stmts + 1;
  y->at_before = arena_alloc(p->arena, sizeof(*y->at_before) * n, 16);
  y->at_after = arena_alloc(p->arena, sizeof(*y->at_after) * n, 16);
  y->at_loop = arena_alloc(p->arena, sizeof(*y->at_loop) * n, 16);
  y->iter = arena_array(p->arena, int32_t, n);
  y->trips = arena_array(p->arena, int32_t, n);
  y->made = arena_array(p->arena, bool, n);
  Map pipes = {0};
  for (int round = 0; round < 2; round++) ir_walk(&side->body, find_made, &(Made){y, &pipes, round});
  for (uint32_t i = 0; i < y->trace.events.len; i++) {
    const Event *e = &y->trace.events.data[i];
    if (e->kind == EV_ITER && e->arg >= y->trips[e->stmt->id]) y->trips[e->stmt->id] = e->arg + 1;
  }
  y->entry_tick = arena_array(p->arena, int32_t, y->trace.entries.len + 1);
  if (y->trace.too_long || !solve(y)) {
    Diag *g = diag_add(p->diags, DIAG_SYNC_SIZE, side->loc,
                       "the program is too large to order its pipes (%u instructions traced)", y->trace.entries.len);
    diag_fix(p->diags, g, "use loops instead of repeated statements, or T.barrier_all() between phases");
    return false;
  }
  drop_implied(y);
  merge_flags(y);
  drop_implied(y);
  assign_ids(y);
  sync_check_hand(y);
  write_down(y);
  int live = 0, barriers = 0;
  for (uint32_t i = 0; i < y->flags.len; i++)
    if (!y->flags.data[i].dead) *(y->flags.data[i].src == PIPE_COUNT ? &barriers : &live) += 1;
  pass_remark(p, "sync", side->loc, "%s side: %d flags, %d barriers", side->op == ST_CUBE ? "cube" : "vector", live,
              barriers);
  return true;
}

/* A piece of a tile that turned out empty: an instruction that does nothing. A transfer of which one side only is empty
 * is a mistake, and stays. */
static bool does_nothing(const IrStmt *s) {
  int empty = 0, regions = 0;
  for (int a = 0; ir_is_op(s) && a < s->n_args; a++) {
    const IrRegion *r = &s->args[a].region;
    bool none = false;
    if (s->args[a].kind != ARG_REGION) continue;
    for (int d = 0; d < r->buf->rank; d++) none |= ir_is_const(r->ext[d]) && r->ext[d]->i < 1;
    empty += none;
    regions++;
  }
  return empty && (empty == regions || op_info[s->op].pipe == PIPE_V);
}

static void drop_empty(IrBlock *b) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    drop_empty(&s->body);
    drop_empty(&s->alt);
    if (does_nothing(s)) ir_remove(s);
  }
}

/* ---- conditions of `while` ------------------------------------------------------------------------------------ */

/* False: an instruction writes what the condition reads. */
static bool leaves_alone(IrStmt *s, void *cond) { return !ir_is_op(s) || !ir_stmt_feeds(s, cond); }

static IrStmt *set_to(IrKernel *k, StmtOp op, IrVar *x, IrExpr *value, Loc loc) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->set.var = x;
  s->set.value = value;
  if (op == ST_VAR) x->def = s;
  return s;
}

/* Where an iteration ends. */
static void set_at_ends(IrKernel *k, IrBlock *b, IrVar *x, IrExpr *value) {
  for (IrStmt *s = b->first; s; s = s->next) {
    if (s->op == ST_CONTINUE) ir_insert_before(s, set_to(k, ST_ASSIGN, x, value, s->loc));
    if (s->op != ST_IF) continue;
    set_at_ends(k, &s->body, x, value);
    set_at_ends(k, &s->alt, x, value);
  }
}

/* A condition that reads what instructions of its loop write is a statement before the loop and one at the end of each
 * iteration, so that flags and barriers can stand before it. */
static bool condition_apart(IrStmt *s, void *user) {
  IrKernel *k = user;
  if (s->op != ST_WHILE || ir_walk(&s->body, leaves_alone, s->test.cond)) return true;
  IrExpr *cond = s->test.cond;
  IrVar *x = ir_new_var(k, "goes_on", DT_BOOL, VAR_MUT, s->loc);
  ir_insert_before(s, set_to(k, ST_VAR, x, cond, s->loc));
  set_at_ends(k, &s->body, x, cond);
  if (!s->body.last || (s->body.last->op != ST_BREAK && s->body.last->op != ST_CONTINUE))
    ir_append(&s->body, set_to(k, ST_ASSIGN, x, cond, s->loc));
  s->test.cond = ir_var(k, x);
  return true;
}

bool pass_sync(PassCtx *p) {
  drop_empty(&p->k->body);
  ir_walk(&p->k->body, condition_apart, p->k);
  ir_renumber(p->k);
  for (IrStmt *s = p->k->body.first, *next; s; s = next) {
    next = s->next;
    if (ir_is_side(s) && !sync_side(p, s)) return false;
  }
  sync_count_cross(p);
  ir_renumber(p->k);
  sync_check_cores(p);
  return true;
}
