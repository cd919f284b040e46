/* sync_hand.c - flags and barriers that the user wrote, read once the compiler has added its own.
 *
 *   unordered  the replay of the trace (sync.c) meets an access that nothing orders after an earlier one to the same
 *              bytes, and both are the user's statements. Said only where it is certain: bytes known exactly, no flag
 *              under an `if`, no flag between cores that might order it; the simulator checks the rest in the run.
 *   counts     over all iterations a flag is set more often than it is waited for, or less. Certain when all loops
 *              around its statements have constant trip counts, or the same loops stand around sets and waits.
 *   redundant  the same replay without the flag or the barrier leaves nothing more unordered: a remark. */
#include "sync.h"

#include <string.h>

enum { MAX_NAMED = 8 };

typedef struct { const IrStmt *d, *e; } Pair;
typedef Vec(Pair) Pairs;

/* ---- is it certain? ------------------------------------------------------------------------------------------- */

static bool under_if(const IrStmt *s) {
  for (const IrStmt *x = s; x->block && x->block->parent; x = x->block->parent)
    if (x->block->parent->op == ST_IF || x->block->parent->op == ST_WHILE) return true;
  return false;
}

static bool find_doubt(IrStmt *s, void *user) {
  (void)user;
  if (s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT || s->op == ST_SYNC_ALL) return false;
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG || s->op == ST_BARRIER) return !under_if(s);
  return s->op != ST_BREAK && s->op != ST_CONTINUE;
}

static bool sure_overlap(const Access *a, const Access *b) {
  if (!a->sure || !b->sure || a->buf->space != b->buf->space || (!a->write && !b->write)) return false;
  bool flat = a->count == 1 && b->count == 1;
  if (flat) return a->start < b->start + b->width && b->start < a->start + a->width;
  return a->start == b->start && a->pitch == b->pitch; /* the same rows */
}

static bool certain(const Entry *d, const Entry *e) {
  if (under_if(d->stmt) || under_if(e->stmt)) return false;
  for (uint32_t x = 0; x < e->access.len; x++)
    for (uint32_t i = 0; i < d->access.len; i++)
      if (sure_overlap(&e->access.data[x], &d->access.data[i])) return true;
  return false;
}

/* ---- unordered ------------------------------------------------------------------------------------------------ */

typedef struct { Sync y; Pairs told; } Told; /* y first: `left` gets it back */

static void tell(Sync *y, uint32_t at, Pipe p) {
  Pairs *told = &((Told *)y)->told;
  const Entry *e = &y->trace.entries.data[at], *d = &y->trace.entries.data[e->dep[p]];
  if (told->len == MAX_NAMED || !certain(d, e)) return;
  for (uint32_t i = 0; i < told->len; i++)
    if (told->data[i].d == d->stmt && told->data[i].e == e->stmt) return;
  vec_push(y->p->arena, told, ((Pair){d->stmt, e->stmt}));
  const char *from = pipe_info[d->pipe].name, *to = pipe_info[e->pipe].name;
  const char *b = e->dep_buf[p]->name;
  Diag *g = d->pipe == e->pipe
                ? diag_add(y->p->diags, DIAG_SYNC_HAND, e->stmt->loc,
                           "pipe %s does not wait for its own earlier instructions, one of which may still use the "
                           "bytes of %%%s",
                           to, b)
                : diag_add(y->p->diags, DIAG_SYNC_HAND, e->stmt->loc,
                           "no flag written here makes pipe %s wait for pipe %s, which may still use the bytes of %%%s",
                           to, from, b);
  diag_other(y->p->diags, g, d->stmt->loc, "what pipe %s does to them", from);
  if (d->pipe == e->pipe) diag_fix(y->p->diags, g, "put a barrier of pipe %s between the two", from);
  else
    diag_fix(y->p->diags, g, "set a flag %s -> %s after the first and wait for it before the second", from, to);
}

/* ---- counts --------------------------------------------------------------------------------------------------- */

typedef struct {
  const IrStmt *loop; /* the innermost around the statements; NULL: none */
  int64_t trips;      /* of all loops around them together; -1: not a constant */
  int64_t sets, waits;
} Count;

typedef struct {
  Pipe src, dst;
  int64_t id;
  const IrStmt *first;
  Vec(Count) counts;
} HandFlag;

typedef struct { Sync *y; Vec(HandFlag) flags; bool doubt[PIPE_COUNT][PIPE_COUNT]; } Tally;

static int64_t trips_around(IrKernel *k, const IrStmt *s, const IrStmt **loop) {
  int64_t n = 1, diff;
  *loop = NULL;
  for (const IrStmt *x = s; x->block && x->block->parent; x = x->block->parent) {
    IrStmt *up = x->block->parent;
    if (up->op != ST_FOR) continue;
    if (!*loop) *loop = up;
    const IrExpr *step = up->loop.step;
    bool constant = step->op == EX_INT && step->i > 0 && ir_const_diff(k, up->loop.hi, up->loop.lo, &diff);
    n = n < 0 || !constant ? -1 : n * max_i64(0, ceil_div(diff, step->i));
  }
  return n;
}

static bool tally(IrStmt *s, void *user) {
  Tally *t = user;
  if (s->op != ST_SET_FLAG && s->op != ST_WAIT_FLAG) return true;
  Pipe p = s->sync.src, q = s->sync.dst;
  if (s->sync.id->op != EX_INT || under_if(s)) {
    t->doubt[p][q] = true;
    return true;
  }
  HandFlag *f = NULL;
  for (uint32_t i = 0; i < t->flags.len && !f; i++) {
    HandFlag *x = &t->flags.data[i];
    if (x->src == p && x->dst == q && x->id == s->sync.id->i) f = x;
  }
  if (!f) {
    vec_push(t->y->p->arena, &t->flags, ((HandFlag){p, q, s->sync.id->i, s, {0}}));
    f = &t->flags.data[t->flags.len - 1];
  }
  Count c = {0}, *found = NULL;
  c.trips = trips_around(t->y->k, s, &c.loop);
  for (uint32_t i = 0; i < f->counts.len && !found; i++)
    if (f->counts.data[i].loop == c.loop) found = &f->counts.data[i];
  if (!found) {
    vec_push(t->y->p->arena, &f->counts, c);
    found = &f->counts.data[f->counts.len - 1];
  }
  *(s->op == ST_SET_FLAG ? &found->sets : &found->waits) += 1;
  return true;
}

static void compare_counts(Sync *y, const HandFlag *f) {
  int64_t sets = 0, waits = 0;
  for (uint32_t i = 0; i < f->counts.len; i++) {
    const Count *c = &f->counts.data[i];
    if (c->sets == c->waits) continue;
    if (c->trips < 0) return;
    sets += c->sets * c->trips;
    waits += c->waits * c->trips;
  }
  if (sets == waits) return;
  const char *src = pipe_info[f->src].name, *dst = pipe_info[f->dst].name;
  Diag *g = diag_add(y->p->diags, DIAG_SYNC_COUNT, f->first->loc,
                     "flag %s -> %s #%lld is %s by %lld than it is %s; %s", src, dst, (long long)f->id,
                     sets > waits ? "set more often" : "waited for more often",
                     (long long)(sets > waits ? sets - waits : waits - sets), sets > waits ? "waited for" : "set",
                     sets > waits ? "what is left set goes off in the next kernel" : "the last wait never ends");
  diag_fix(y->p->diags, g, sets > waits ? "wait for it once more, or drop a set" : "set it once more, or drop a wait");
}

/* ---- redundant ------------------------------------------------------------------------------------------------ */

typedef struct { Sync *y; const IrStmt *like; bool gone; } Mark;

static bool mark(IrStmt *s, void *user) {
  const Mark *m = user;
  const IrStmt *l = m->like;
  bool flag = l->op != ST_BARRIER && (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) && s->sync.src == l->sync.src &&
              s->sync.dst == l->sync.dst && s->sync.id->op == EX_INT && s->sync.id->i == l->sync.id->i;
  if (s == l || flag) m->y->gone[s->id] = m->gone;
  return true;
}

/* Without it (a barrier, or all sets and waits of a flag), and without what went before: is nothing more left to the
 * user? Then it stays out. */
static bool goes(Sync *y, const IrStmt *s, uint32_t left) {
  ir_walk(&y->side->body, mark, &(Mark){y, s, true});
  if (sync_replay(y) && y->n_left <= left) return true;
  ir_walk(&y->side->body, mark, &(Mark){y, s, false});
  return false;
}

static void name_redundant(Sync *y, const Tally *t) {
  y->gone = arena_array(y->p->arena, bool, y->k->n_stmts + 1);
  sync_replay(y);
  uint32_t left = y->n_left;
  for (uint32_t i = 0; i < y->trace.events.len; i++) {
    const Event *e = &y->trace.events.data[i];
    const IrStmt *s = e->stmt;
    bool seen = e->kind != EV_HAND || s->op != ST_BARRIER || y->gone[s->id];
    for (uint32_t j = 0; j < i && !seen; j++) seen = y->trace.events.data[j].stmt == s;
    if (seen || !goes(y, s, left)) continue;
    pass_remark(y->p, "sync", s->loc, "barrier %s, written by hand, orders nothing that is not ordered without it; %s",
                pipe_info[s->sync.src].name,
                s->sync.src == PIPE_ALL ? "each time it waits until every pipe is empty"
                                        : "each time the pipe runs empty");
  }
  for (uint32_t i = 0; i < t->flags.len; i++) {
    const HandFlag *f = &t->flags.data[i];
    const char *src = pipe_info[f->src].name, *dst = pipe_info[f->dst].name;
    if (t->doubt[f->src][f->dst] || !goes(y, f->first, left)) continue;
    pass_remark(y->p, "sync", f->first->loc,
                "flag %s -> %s #%lld, written by hand, orders nothing that is not ordered without it; each time it "
                "costs about %.0f cycles, and %s waits until %s gets there",
                src, dst, (long long)f->id, arch_time(y->p->arch).flag, dst, src);
  }
  y->gone = NULL;
}

/* ---- the side ------------------------------------------------------------------------------------------------- */

void sync_check_hand(Sync *y) {
  bool any = false;
  for (uint32_t i = 0; i < y->trace.events.len && !any; i++) any = y->trace.events.data[i].kind == EV_HAND;
  if (!any) return;
  Tally t = {.y = y};
  ir_walk(&y->side->body, tally, &t);
  for (uint32_t i = 0; i < t.flags.len; i++)
    if (!t.doubt[t.flags.data[i].src][t.flags.data[i].dst]) compare_counts(y, &t.flags.data[i]);
  if (!ir_walk(&y->side->body, find_doubt, NULL)) return;
  Told told = {.y = *y};
  told.y.left = tell;
  sync_replay(&told.y);
  name_redundant(y, &t);
}
