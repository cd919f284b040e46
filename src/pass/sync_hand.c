/* sync_hand.c - flags and barriers that the user wrote, read once the compiler has added its own.
 *
 *   unordered  the replay of the trace (sync.c) meets an access that nothing orders after an earlier one to the same
 *              bytes, and both are the user's statements. Said only where it is certain: bytes known exactly, no flag
 *              under a condition that is not known; the simulator checks the rest in the run. The trace is that of all
 *              iterations, so conditions and ids that hang on loop indices are known, unless it is too long. Of several
 *              accesses the nearest is named, and what its flag would order too is not: each flag is missed once.
 *   spare      the same replay without the flag or the barrier leaves nothing more unordered (sync_spare.c).
 *
 * That flags are set as often as they are waited for is counted in sync_count.c. */
#include "sync.h"

#include <string.h>

enum { MAX_NAMED = 8 };

/* A missing edge: entries, and the tick at which e starts. ahead: d's pipe comes there again and has not waited. */
typedef struct { uint32_t d, e; const IrBuf *buf; int32_t tick; bool ahead; } Missing;

/* ---- unordered ------------------------------------------------------------------------------------------------ */

static bool sure_overlap(const Access *a, const Access *b) {
  if (!a->sure || !b->sure || a->buf->space != b->buf->space || (!a->write && !b->write)) return false;
  bool flat = a->count == 1 && b->count == 1;
  if (flat) return a->start < b->start + b->width && b->start < a->start + a->width;
  return a->start == b->start && a->pitch == b->pitch; /* the same rows */
}

static bool certain(const Entry *d, const Entry *e) {
  if (d->maybe || e->maybe) return false;
  for (uint32_t x = 0; x < e->access.len; x++)
    for (uint32_t i = 0; i < d->access.len; i++)
      if (sure_overlap(&e->access.data[x], &d->access.data[i])) return true;
  return false;
}

typedef struct { Sync y; Vec(Missing) missing; } Told; /* y first: `left` gets it back */

static bool note_missing(Sync *y, uint32_t at, Pipe p) {
  Told *t = (Told *)y;
  const Entry *entry = y->trace.entries.data, *e = &entry[at], *d = &entry[e->dep[p]];
  if (!certain(d, e)) return false;
  for (uint32_t i = 0; i < t->missing.len; i++) {
    Missing *m = &t->missing.data[i];
    if (entry[m->d].stmt != d->stmt || entry[m->e].stmt != e->stmt) continue;
    m->ahead |= y->now.vc[p][e->pipe] < m->tick;
    m->tick = y->tick + 1;
    return true;
  }
  vec_push(y->p->arena, &t->missing, ((Missing){e->dep[p], at, e->dep_buf[p], y->tick + 1, false}));
  return true;
}

/* One flag may be all that several of them want: then the first place that needs it is told. */
static bool covered(Told *t, uint32_t i) {
  const Entry *entry = t->y.trace.entries.data;
  Missing *m = t->missing.data, *u = &m[i];
  const Entry *d = &entry[u->d], *e = &entry[u->e];
  for (uint32_t r = 0; r < t->missing.len; r++) {
    const Entry *d2 = &entry[m[r].d], *e2 = &entry[m[r].e];
    if (r == i || d->pipe != d2->pipe || e->pipe != e2->pipe) continue;
    if (!ir_orders_too(d2->stmt, e2->stmt, d->stmt, e->stmt)) continue;
    if (r > i && ir_orders_too(d->stmt, e->stmt, d2->stmt, e2->stmt)) continue;
    m[r].ahead |= u->ahead;
    return true;
  }
  return false;
}

static void tell(const Sync *y, const Missing *m) {
  const Entry *e = &y->trace.entries.data[m->e], *d = &y->trace.entries.data[m->d];
  const char *from = pipe_info[d->pipe].name, *to = pipe_info[e->pipe].name, *b = m->buf->name;
  Diag *g = d->pipe == e->pipe
                ? diag_add(y->p->diags, DIAG_SYNC_HAND, e->stmt->loc,
                           "no barrier written here makes pipe %s wait for its own earlier instruction, which may "
                           "still use the bytes of %%%s",
                           to, b)
                : diag_add(y->p->diags, DIAG_SYNC_HAND, e->stmt->loc,
                           "no flag written here makes pipe %s wait for pipe %s, which may still use the bytes of %%%s",
                           to, from, b);
  diag_other(y->p->diags, g, d->stmt->loc, "what pipe %s does to them", from);
  diag_fix(y->p->diags, g, "%s", ir_order_fix(y->p->arena, y->k, d->stmt, d->pipe, e->stmt, e->pipe, m->ahead));
}

/* ---- the side ------------------------------------------------------------------------------------------------- */

void sync_check_hand(Sync *y) {
  bool any = false;
  for (uint32_t i = 0; i < y->trace.events.len && !any; i++) any = y->trace.events.data[i].kind == EV_HAND;
  if (!any && y->p->auto_sync) return;
  sync_count_side(y->p, y->side);
  Told told = {.y = *y};
  Trace *t = &told.y.trace;
  sync_trace(y->p, y->side, true, t);
  if (t->too_long) *t = y->trace;
  if (t->doubt) return;
  told.y.entry_tick = arena_array(y->p->arena, int32_t, t->entries.len + 1);
  told.y.left = note_missing;
  sync_replay(&told.y);
  told.y.left = NULL;
  bool *skip = arena_array(y->p->arena, bool, told.missing.len + 1);
  for (uint32_t i = 0; i < told.missing.len; i++) skip[i] = covered(&told, i);
  for (uint32_t i = 0, n = 0; i < told.missing.len && n < MAX_NAMED; i++)
    if (!skip[i]) tell(&told.y, &told.missing.data[i]), n++;
  sync_name_spare(&told.y);
}
