/* sync_spare.c - flags and barriers written by hand that order nothing: without them the same replay leaves nothing
 * more unordered.
 *
 * What can be deleted is a line of the user, so statements that stand or fall together are tried together: those that
 * share a line, or an id of a flag. A line that runs on both sides is left alone. Each one that goes stays out for
 * those tried later: all that are named may go at once.
 *
 * Nothing more unordered means: no access of this core that lacks an order it had, no flag that may be set twice, and,
 * where other cores listen, at each cross-core set and each access of GM no less known of earlier accesses of GM and of
 * what other cores have said. */
#include "sync.h"

#include <string.h>

typedef struct {
  Sync *y;
  uint32_t *with; /* by statement id: another one of its group, itself at the end */
  Map at;         /* a statement of each place */
  IrStmt *owner[PIPE_COUNT][PIPE_COUNT][16];
  bool *both;     /* by statement id: its line also runs on the other side */
  uint32_t *runs; /* how often, in the trace */
  IrStmt **stmt;  /* by id */
} Spare;

static uint32_t root(const Spare *x, uint32_t id) {
  while (x->with[id] != id) id = x->with[id];
  return id;
}

static void unite(Spare *x, const IrStmt *a, const IrStmt *b) {
  uint32_t ra = root(x, a->id), rb = root(x, b->id);
  if (ra != rb) x->with[ra > rb ? ra : rb] = ra > rb ? rb : ra;
}

static void note_stmt(Spare *x, IrStmt *s) {
  if (x->stmt[s->id]) return;
  x->stmt[s->id] = s;
  uint32_t there = map_get(&x->at, (const char *)&s->loc, sizeof s->loc);
  if (there) unite(x, s, x->stmt[there]);
  else map_set(x->y->p->arena, &x->at, (const char *)&s->loc, sizeof s->loc, s->id);
}

static void note_event(Spare *x, const Event *e) {
  IrStmt *s = e->stmt;
  if (e->kind != EV_HAND || s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT || s->op == ST_SYNC_ALL) return;
  note_stmt(x, s);
  x->runs[s->id]++;
  if (s->op == ST_BARRIER || e->arg < 0 || e->arg >= 16 || s->sync.src >= PIPE_COUNT || s->sync.dst >= PIPE_COUNT)
    return;
  IrStmt **owner = &x->owner[s->sync.src][s->sync.dst][e->arg];
  if (*owner) unite(x, s, *owner);
  else *owner = s;
}

static bool note_other_side(IrStmt *s, void *user) {
  Spare *x = user;
  uint32_t there = s->hand == 1 ? map_get(&x->at, (const char *)&s->loc, sizeof s->loc) : 0;
  if (there) x->both[root(x, there)] = true;
  return true;
}

/* ---- what it says --------------------------------------------------------------------------------------------- */

static void say_spare(const Spare *x, uint32_t group) {
  PassCtx *p = x->y->p;
  const IrStmt *first = x->stmt[group];
  uint32_t n = 0, runs = 0, last = 0;
  Text lines, what;
  text_init(&lines, p->arena);
  text_init(&what, p->arena);
  for (uint32_t id = group; id <= x->y->k->n_stmts; id++) {
    IrStmt *s = x->stmt[id];
    if (!s || root(x, id) != group) continue;
    s->why = "written by hand; orders nothing that is not ordered without it";
    runs += s->op == ST_WAIT_FLAG || s->op == ST_BARRIER ? x->runs[id] : 0;
    if (s->loc.line != last) text_printf(&lines, "%s%u", n++ ? ", " : "", s->loc.line);
    last = s->loc.line;
  }
  bool barrier = first->op == ST_BARRIER;
  const char *src = pipe_info[first->sync.src].name, *dst = pipe_info[first->sync.dst].name;
  if (barrier) text_printf(&what, "barrier %s", src);
  else text_printf(&what, "flag %s -> %s #", src, dst);
  if (!barrier) ir_print_expr(&what, first->sync.id);
  pass_remark(p, "sync", first->loc,
              "%s, written by hand, orders nothing that is not ordered without it: delete line%s %s; "
              "%u times a block %s",
              text_str(&what), n > 1 ? "s" : "", text_str(&lines), runs,
              barrier ? first->sync.src == PIPE_ALL ? "it waits until every pipe is empty" : "the pipe runs empty"
                      : arena_printf(p->arena, "it costs about %.0f cycles, and %s waits until %s gets there",
                                     arch_time(p->arch).flag, dst, src));
}

void sync_name_spare(Sync *y) {
  uint32_t n = y->k->n_stmts + 1;
  Spare x = {.y = y};
  x.with = arena_array(y->p->arena, uint32_t, n);
  x.both = arena_array(y->p->arena, bool, n);
  x.runs = arena_array(y->p->arena, uint32_t, n);
  x.stmt = arena_array(y->p->arena, IrStmt *, n);
  y->gone = arena_array(y->p->arena, bool, n);
  for (uint32_t i = 0; i < n; i++) x.with[i] = i;
  for (uint32_t i = 0; i < y->trace.events.len; i++) note_event(&x, &y->trace.events.data[i]);
  for (IrStmt *s = y->k->body.first; s; s = s->next)
    if (s != y->side && (ir_is_side(s))) ir_walk(&s->body, note_other_side, &x);
  if (y->trace.crossed) y->known = KNOWN_NOTED;
  if (!sync_replay(y)) return; /* what the compiler adds does not do in the whole trace: nothing can be said */
  if (y->trace.crossed) y->known = KNOWN_ASKED;
  uint32_t left = y->n_left, twice = y->n_twice;
  for (int barriers = 1; barriers >= 0; barriers--)
    for (uint32_t g = 0; g < n; g++) {
      if (!x.stmt[g] || root(&x, g) != g || x.both[g] || (x.stmt[g]->op == ST_BARRIER) != barriers) continue;
      for (uint32_t i = g; i < n; i++)
        if (x.stmt[i] && root(&x, i) == g) y->gone[i] = true;
      if (sync_replay(y) && y->n_left <= left && y->n_twice <= twice && !y->less) {
        say_spare(&x, g);
        continue;
      }
      for (uint32_t i = g; i < n; i++)
        if (x.stmt[i] && root(&x, i) == g) y->gone[i] = false;
    }
}
