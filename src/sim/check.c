/* check.c - the hazard observer: looks at the bytes of an instruction before it runs, and says what is wrong with them.
 *
 * An access is a fault when its bytes hold no value (uninitialised), when they held one that was covered through
 * another buffer at the same address (lost), or when another access to one of them is not ordered before it (race): by
 * another pipe without a flag, by another core without a cross-core flag, or by pipe V itself without a barrier. Two
 * cores that write the same values to the same place in GM do no harm, whatever their order; such a write is judged
 * when it has happened. Accesses to GM tensors that other blocks may touch are logged as well; blocks.c compares them
 * when all blocks are done.
 *
 * Of the accesses that race with one, the nearest in the program is told: the one a reader would think of. From there
 * on it counts as mended, so what the same flag would order is not told, and what needs another one is. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

/* ---- faults --------------------------------------------------------------------------------------------- */

static const char *fault_key(char *key, size_t n, DiagCode code, const IrStmt *at, const IrStmt *with) {
  snprintf(key, n, "%d/%u/%u", code, at ? at->id : 0, with ? with->id : 0);
  return key;
}

bool fault_known(Core *c, DiagCode code, const IrStmt *at, const IrStmt *with) {
  char key[64];
  fault_key(key, sizeof key, code, at, with);
  return map_get(&c->m->fault_keys, key, strlen(key)) != 0;
}

Fault *fault(Core *c, DiagCode code, const IrStmt *at, const IrStmt *with, const char *fmt, ...) {
  Machine *m = c->m;
  char key[64];
  if (fault_known(c, code, at, with)) return NULL;
  Fault f = {.code = code,
             .block = c->block,
             .at = at,
             .with = with,
             .key = arena_str(&m->arena, fault_key(key, sizeof key, code, at, with))};
  if (at) f.loc = at->loc;
  if (with) f.other = with->loc;
  map_set(&m->arena, &m->fault_keys, f.key, strlen(f.key), 1);
  va_list ap;
  va_start(ap, fmt);
  f.text = arena_vprintf(&m->arena, fmt, ap);
  va_end(ap);
  vec_push(&m->arena, &m->faults, f);
  m->block_faults += code != DIAG_SIM_UNINIT && code != DIAG_SIM_LOST; /* those may be consequences */
  return &m->faults.data[m->faults.len - 1];
}

void fault_other(Core *c, Fault *f, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  f->other_text = arena_vprintf(&c->m->arena, fmt, ap);
  va_end(ap);
}

void fault_fix(Core *c, Fault *f, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  f->fix = arena_vprintf(&c->m->arena, fmt, ap);
  va_end(ap);
}

/* ---- messages ------------------------------------------------------------------------------------------- */

/* The buffer through which a statement touches byte `at` of a memory; `b` when it cannot be told. */
static const SimBuf *buffer_at(const Core *c, const IrStmt *s, const SimBuf *b, int64_t at) {
  if (!ir_is_op(s)) return b;
  for (int a = 0; a < s->n_args; a++) {
    if (s->args[a].kind != ARG_REGION) continue;
    const SimBuf *x = &c->m->sim->buf[s->args[a].region.buf->id];
    if (x->space == b->space && x->share == b->share && at >= x->addr && at < x->addr + x->bytes) return x;
  }
  return b;
}

/* One side of a race, for the message. */
typedef struct {
  const IrStmt *stmt;
  const Core *core;
  Pipe pipe;
  LaneKind kind;
  const SimBuf *buf;
  uint32_t seq;
} Party;

static const char *did(LaneKind k) { return k == LANE_READ ? "reads" : k == LANE_ATOMIC ? "adds to" : "writes"; }
static const char *does(LaneKind k) { return k == LANE_READ ? "read" : k == LANE_ATOMIC ? "add to" : "write"; }

static LaneKind lane_kind(TouchKind k) {
  return k == TOUCH_READ || k == TOUCH_READ_ANY ? LANE_READ : k == TOUCH_ATOMIC ? LANE_ATOMIC : LANE_WRITE;
}

/* What should wait has run, and now comes what it should wait for: several accesses may, and the last of them that
 * knows the others done is the nearest. */
static void note_late(Toucher *t, Fault *f) {
  Core *c = t->core;
  for (uint32_t i = 0; i < c->m->faults.len; i++) {
    Fault *o = &c->m->faults.data[i];
    bool same = o->late && o->at == f->at && o->block == c->block;
    o->dropped |= same && c->pipe[t->pipe].seen[o->late_comp] >= o->late_tick;
  }
  f->late = true;
  f->late_comp = (uint32_t)(c->index * COMPS + (int)t->pipe);
  f->late_tick = c->pipe[t->pipe].tick;
}

static void fix_cores(Toucher *t, Fault *f, const Party *first, const Party *last, bool again) {
  const Core *a = first->core, *b = last->core;
  int id = ir_free_cross_flag(t->core->m->sim->k, 0), mode = a->slot != b->slot ? 0 : a->vid < 0 || b->vid < 0 ? 2 : 1;
  const char *from = pipe_info[first->pipe].name, *to = pipe_info[last->pipe].name;
  if (again)
    fault_fix(t->core, f,
              "order the two cores: `cross_set %s #%d mode(%d)` after the read, and `cross_wait %s #%d` before the "
              "write in all iterations but the first, and once after them",
              to, id, mode, from, id);
  else
    fault_fix(t->core, f,
              "order the two cores: `cross_set %s #%d mode(%d)` after the first access, `cross_wait %s #%d` before the "
              "second",
              from, id, mode, to, id);
}

/* Does the reader know that the writer wrote there before? Then it is the next write that comes too early. */
static bool writes_again(const Toucher *t, const Party *first, const Party *last, uint32_t who) {
  const uint32_t *begun = first->core->begun;
  if (first->core == last->core || first->kind != LANE_WRITE || last->kind != LANE_READ || !begun) return false;
  return t->core->pipe[t->pipe].seen[first->core->index * COMPS + (int)first->pipe] >= begun[who];
}

/* `first` comes first in the program, whichever the schedule happened to run first. */
static void report_race(Toucher *t, const SimBuf *b, TouchKind kind, const Hit *h) {
  Core *c = t->core;
  Machine *m = c->m;
  Arena *a = &m->arena;
  uint32_t comp = h->key / LANE_KINDS;
  Core *oc = &m->core[comp / COMPS];
  Party first = {m->sim->who[h->who], oc, (Pipe)(comp % COMPS), (LaneKind)(h->key % LANE_KINDS), NULL,
                 hit_seq(m, (uint32_t)c->index, h)};
  Party last = {t->stmt, c, t->pipe, lane_kind(kind), b, t->seq};
  bool late = oc == c && first.seq > last.seq;
  first.buf = buffer_at(c, first.stmt, b, h->lo);
  if (late) {
    Party x = first;
    first = last;
    last = x;
  }
  if (fault_known(c, DIAG_SIM_RACE, last.stmt, first.stmt)) return;
  int64_t lo = h->lo - last.buf->addr, hi = h->hi - last.buf->addr;
  const char *through =
      first.buf == last.buf
          ? "them"
          : arena_printf(a, "the same memory as bytes %lld to %lld of %%%s", (long long)(h->lo - first.buf->addr),
                         (long long)(h->hi - 1 - first.buf->addr), first.buf->ir->name);
  const char *who = first.core != last.core
                        ? arena_printf(a, "pipe %s of %s", pipe_info[first.pipe].name, where(a, first.core))
                    : first.pipe == last.pipe ? "the same pipe"
                                              : arena_printf(a, "pipe %s", pipe_info[first.pipe].name);
  const char *earlier = oc == c && first.stmt->id >= last.stmt->id ? " of an earlier iteration" : "";
  bool again = writes_again(t, &first, &last, h->who);
  Fault *f = fault(c, DIAG_SIM_RACE, last.stmt, first.stmt,
                   "`%s` on pipe %s %s bytes %lld to %lld of %%%s (%s) while `%s`%s on %s may %s %s %s (%s)",
                   inst_text(a, c, last.stmt), pipe_info[last.pipe].name, did(last.kind), (long long)lo,
                   (long long)(hi - 1), last.buf->ir->name, space_info[b->space].name, inst_text(a, c, first.stmt),
                   earlier, who, again ? "already" : "still", does(first.kind), through, where(a, last.core));
  if (!f) return;
  if (late) note_late(t, f);
  f->flag = oc == c && first.buf->tensor == last.buf->tensor; /* which one: see collect */
  fault_other(c, f, "the other access: `%s`", inst_text(a, c, first.stmt));
  if (first.buf->tensor != last.buf->tensor) { /* GM: nobody who compiled the kernel could know */
    fault_fix(c, f, "%s", PASS_APART);
    return;
  }
  if (oc != c && oc->block == c->block && first.stmt == last.stmt)
    fault_fix(c, f,
              "both vector cores of a block run this statement: let each take its own part (offsets with vid), or one "
              "of them do it (`if vid == 0`)");
  else if (oc != c) fix_cores(t, f, &first, &last, again);
}

/* Is the buffer a result of the statement, too? Then it is a sum, a maximum or an operation in place. */
static bool is_result(const IrStmt *s, const IrBuf *b) {
  for (int i = ir_is_op(s) ? ir_n_in(s->op) : s->n_args; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION && ir_root(s->args[i].region.buf) == ir_root((IrBuf *)b)) return true;
  return false;
}

static void report_undefined(Toucher *t, const SimBuf *b, const Hit *h) {
  Core *c = t->core;
  Arena *a = &c->m->arena;
  if (c->tainted || fault_known(c, DIAG_SIM_UNINIT, t->stmt, NULL)) return;
  Fault *f = fault(c, DIAG_SIM_UNINIT, t->stmt, NULL,
                   "`%s` reads bytes %lld to %lld of %%%s (%s), which hold no value in this block (%s)",
                   inst_text(a, c, t->stmt), (long long)(h->lo - b->addr), (long long)(h->hi - 1 - b->addr),
                   b->ir->name, space_info[b->space].name, where(a, c));
  if (!f) return;
  f->other = b->ir->loc;
  fault_other(c, f, "%%%s is declared here", b->ir->name);
  if (b->space != SPACE_GM && h->lo == b->addr && is_result(t->stmt, b->ir)) {
    fault_fix(c, f, "%%%s is an input and the result: give it a first value (T.clear, T.fill, a load), or have the "
              "statement only write it (a reduction with clear=True, a product with clear_accum=True)", b->ir->name);
    return;
  }
  fault_fix(c, f,
            b->space == SPACE_GM
                ? "write the tensor before it is read, or pass it as an input instead of `out` or `workspace`"
                : "fill or load the whole region first, or read only the part that was written (the rest of the last "
                  "32 bytes of a DMA row holds nothing)");
}

static void report_lost(Toucher *t, const SimBuf *b, const Hit *h) {
  Core *c = t->core;
  Arena *a = &c->m->arena;
  const IrStmt *by = c->m->sim->who[h->who];
  if (c->tainted || fault_known(c, DIAG_SIM_LOST, t->stmt, by)) return;
  const SimBuf *over = buffer_at(c, by, b, h->lo);
  Fault *f = fault(c, DIAG_SIM_LOST, t->stmt, by,
                   "`%s` reads bytes %lld to %lld of %%%s, but %%%s, which shares them (%s bytes %lld to %lld), was "
                   "written since (%s)",
                   inst_text(a, c, t->stmt), (long long)(h->lo - b->addr), (long long)(h->hi - 1 - b->addr),
                   b->ir->name, over->ir->name, space_info[b->space].name, (long long)over->addr,
                   (long long)(over->addr + over->bytes - 1), where(a, c));
  if (!f) return;
  fault_other(c, f, "`%s` covers the value", inst_text(a, c, by));
  fault_fix(c, f, "give %%%s and %%%s addresses that do not overlap, or write %%%s again before it is read",
            b->ir->name, over->ir->name, b->ir->name);
}

/* ---- accesses ------------------------------------------------------------------------------------------- */

static void log_access(Toucher *t, const SimBuf *b, TouchKind kind, int64_t at, int64_t len, int64_t count,
                       int64_t stride) {
  Machine *m = t->core->m;
  GmAccess *last = m->log.len ? &m->log.data[m->log.len - 1] : NULL;
  if (last && count == 1 && last->count == 1 && last->block == t->core->block && last->who == t->who &&
      last->kind == kind && last->buf == (int32_t)b->tensor && last->at + last->len == at) {
    last->len += len;
    return;
  }
  vec_push(&m->arena, &m->log, ((GmAccess){t->core->block, t->who, (int32_t)b->tensor, kind, at, len, count, stride}));
}

static void look(Toucher *t, Shadow *s, const SimBuf *b, TouchKind kind, int64_t lo, int64_t hi) {
  Core *c = t->core;
  Machine *m = c->m;
  Hit h;
  bool values = kind == TOUCH_READ || kind == TOUCH_ATOMIC;
  if (values && (s || b->undefined) && shadow_undefined(m, s, b, lo, hi, &h)) report_undefined(t, b, &h);
  else if (values && b->owner && shadow_lost(s, lo, hi, b->owner, &h)) report_lost(t, b, &h);
  if (!s && !b->hazard) return;
  uint32_t comp = (uint32_t)(c->index * COMPS + (int)t->pipe), *seen = c->pipe[t->pipe].seen;
  Search q = {lo, hi, comp, lane_kind(kind), seen, pipe_info[t->pipe].in_order, false, t->before, t->seq, t->stmt->id};
  if (shadow_conflict(m, s, b, &q, &h) && (!t->race.buf || hit_nearer(m, &q, &h, &t->race.hit)))
    t->race = (Race){b, kind, h};
  q.twice = true;
  if (s || t->again || q.kind != LANE_WRITE || !shadow_conflict(m, s, b, &q, &h)) return;
  vec_push(&m->arena, &m->twice, ((TwiceWritten){*t, b, kind, lo, hi, h}));
  for (int64_t i = lo; i < hi; i++) vec_push(&m->arena, &m->before, b->gm[i - b->addr]);
}

void observe_done(Core *c) {
  Machine *m = c->m;
  const uint8_t *before = m->before.data;
  for (uint32_t i = 0; i < m->twice.len; i++) {
    TwiceWritten *w = &m->twice.data[i];
    const uint8_t *now = w->buf->gm + w->lo - w->buf->addr;
    if (memcmp(before, now, (size_t)(w->hi - w->lo))) report_race(&w->by, w->buf, w->kind, &w->hit);
    before += w->hi - w->lo;
  }
  m->twice.len = m->before.len = 0;
}

static void mark(Toucher *t, Shadow *s, const SimBuf *b, TouchKind kind, int64_t lo, int64_t hi) {
  Core *c = t->core;
  Machine *m = c->m;
  uint32_t comp = (uint32_t)(c->index * COMPS + (int)t->pipe);
  if (s || b->hazard) shadow_mark(m, s, b, lo, hi, comp, lane_kind(kind), c->pipe[t->pipe].tick, t->who);
  if (!s && !b->undefined) return;
  if (kind == TOUCH_WRITE || kind == TOUCH_ATOMIC) shadow_define(m, s, b, lo, hi, true);
  if (kind == TOUCH_SPOIL) shadow_define(m, s, b, lo, hi, false);
  if (kind == TOUCH_WRITE && b->owner) shadow_own(s, lo, hi, b->owner, t->who);
}

void touch(Toucher *t, const SimBuf *b, TouchKind kind, int64_t at, int64_t len, int64_t count, int64_t stride) {
  Shadow *s = t->core->shadow[b->space];
  if (len <= 0 || count <= 0) return;
  if (b->space == SPACE_GM) {
    if (t->mark && b->log) log_access(t, b, kind, at, len, count, stride);
    if (t->mark && b->watch) note_access(t, b, at, len, count, stride);
    if (!b->hazard && !b->undefined) return;
  }
  if (stride == len) {
    len *= count;
    count = 1;
  }
  int64_t lo = b->addr + at;
  for (int64_t i = 0; i < count; i++, lo += stride)
    if (t->mark) mark(t, s, b, kind, lo, lo + len);
    else look(t, s, b, kind, lo, lo + len);
}

/* Where a race goes on, and the pipe that would set the flag has not waited for the other one in between, the flag
 * would be set twice. */
static void note_ahead(Toucher *t, Pipe op, const Hit *h) {
  Core *c = t->core;
  Machine *m = c->m;
  char key[64];
  fault_key(key, sizeof key, DIAG_SIM_RACE, t->stmt, m->sim->who[h->who]);
  for (uint32_t i = 0; i < m->faults.len; i++) {
    Fault *f = &m->faults.data[i];
    if (strcmp(f->key, key)) continue;
    uint32_t *mended = &f->mended[c->vid > 0], tick = c->pipe[t->pipe].tick;
    if (*mended == tick) continue; /* other bytes of the same instruction */
    const PipeQueue *q = &c->pipe[op];
    bool ran = q->seq[q->tick % SEQ_RING] > t->seq; /* it has begun what comes after this one */
    f->ahead |= *mended && f->block == c->block && (ran || q->seen[c->index * COMPS + (int)t->pipe] < *mended);
    *mended = tick;
  }
}

/* After a look: tells what it found, and looks again for what is left when that is mended. True: look again. */
static bool told_race(Toucher *t) {
  Race r = t->race;
  if (!r.buf) return false;
  const Core *oc = &t->core->m->core[r.hit.key / LANE_KINDS / COMPS];
  Pipe op = (Pipe)(r.hit.key / LANE_KINDS % COMPS);
  report_race(t, r.buf, r.kind, &r.hit);
  if (oc == t->core && hit_seq(oc->m, (uint32_t)oc->index, &r.hit) > t->seq) {
    t->before = t->seq;
  } else {
    if (oc == t->core) note_ahead(t, op, &r.hit);
    mend_race(t->core, t->pipe, oc, op);
  }
  t->race.buf = NULL;
  t->again = true;
  return true;
}

static void note_begun(const Toucher *t) {
  uint32_t *begun = t->core->begun;
  if (begun && !begun[t->who]) begun[t->who] = t->core->pipe[t->pipe].tick;
}

void observe(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  Toucher t = {.core = c, .stmt = i->stmt, .who = i->id, .seq = e->seq, .pipe = (Pipe)i->pipe};
  note_begun(&t);
  do i->impl->touch(&t, e);
  while (told_race(&t));
  t.mark = true;
  i->impl->touch(&t, e);
  if (c->vid < 0 && c->m->sim->by_size) note_box(c, e);
}

void observe_element(Core *c, const Element *el, int64_t at) {
  const SimBuf *b = &c->m->sim->buf[el->buf];
  PipeQueue *q = &c->pipe[PIPE_S];
  Toucher t = {.core = c, .stmt = el->stmt, .who = el->id, .seq = ++c->seq, .pipe = PIPE_S};
  TouchKind kind = el->is_store ? TOUCH_WRITE : TOUCH_READ;
  q->tick++;
  q->seq[q->tick % SEQ_RING] = t.seq;
  note_begun(&t);
  do touch(&t, b, kind, at, b->size, 1, b->size);
  while (told_race(&t));
  t.mark = true;
  touch(&t, b, kind, at, b->size, 1, b->size);
}
