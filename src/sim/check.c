/* check.c - the hazard observer: looks at the bytes of an instruction before it runs, and says what is wrong with them.
 *
 * An access is a fault when its bytes hold no value (uninitialised), when they held one that was covered through
 * another buffer at the same address (lost), or when another access to one of them is not ordered before it (race): by
 * another pipe without a flag, by another core without a cross-core flag, or by pipe V itself without a barrier. Two
 * cores that write the same values to the same place in GM do no harm, whatever their order; such a write is judged
 * when it has happened. Accesses to GM tensors that other blocks may touch are logged as well; blocks.c compares them
 * when all blocks are done. */
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

/* `first` comes first in the program, whichever the schedule happened to run first. */
static void report_race(Toucher *t, const SimBuf *b, TouchKind kind, const Hit *h) {
  Core *c = t->core;
  Machine *m = c->m;
  Arena *a = &m->arena;
  uint32_t comp = h->key / LANE_KINDS;
  Core *oc = &m->core[comp / COMPS];
  const PipeQueue *oq = &oc->pipe[comp % COMPS];
  Party first = {m->sim->who[h->who], oc, (Pipe)(comp % COMPS), (LaneKind)(h->key % LANE_KINDS), NULL, 0};
  Party last = {t->stmt, c, t->pipe, lane_kind(kind), b, t->seq};
  first.buf = buffer_at(c, first.stmt, b, h->lo);
  if (oq->tick - h->tick < SEQ_RING) first.seq = oq->seq[h->tick % SEQ_RING];
  if (oc == c && first.seq > last.seq) {
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
  Fault *f = fault(c, DIAG_SIM_RACE, last.stmt, first.stmt,
                   "`%s` on pipe %s %s bytes %lld to %lld of %%%s (%s) while `%s` on %s may still %s %s (%s)",
                   inst_text(a, c, last.stmt), pipe_info[last.pipe].name, did(last.kind), (long long)lo,
                   (long long)(hi - 1), last.buf->ir->name, space_info[b->space].name, inst_text(a, c, first.stmt), who,
                   does(first.kind), through, where(a, last.core));
  if (!f) return;
  fault_other(c, f, "the other access: `%s`", inst_text(a, c, first.stmt));
  if (first.buf->tensor != last.buf->tensor) { /* GM: nobody who compiled the kernel could know */
    fault_fix(c, f, "%s", PASS_APART);
    return;
  }
  const char *p = pipe_info[first.pipe].name, *q = pipe_info[last.pipe].name;
  if (oc != c && oc->block == c->block && first.stmt == last.stmt)
    fault_fix(c, f,
              "both vector cores of a block run this statement: let each take its own part (offsets with vid), or one "
              "of them do it (`if vid == 0`)");
  else if (oc != c)
    fault_fix(
        c, f,
        "order the two cores: a cross_set after the first access, a cross_wait with the same flag before the second");
  else if (first.pipe == last.pipe)
    fault_fix(c, f, "put `barrier %s` between the two: pipe %s does not wait for its own earlier instructions", p, p);
  else
    fault_fix(c, f,
              "put `set_flag %s -> %s` after the first access and the `wait_flag %s -> %s` with the same flag before "
              "the second",
              p, q, p, q);
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
  bool in_order = pipe_info[t->pipe].in_order;
  LaneKind lane = lane_kind(kind);
  if (shadow_conflict(m, s, b, lo, hi, comp, lane, seen, in_order, false, &h)) report_race(t, b, kind, &h);
  if (s || lane != LANE_WRITE || !shadow_conflict(m, s, b, lo, hi, comp, lane, seen, in_order, true, &h)) return;
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
    if (t->mark && b->watch) note_read(t, b, at, len, count, stride);
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

void observe(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  Toucher t = {c, i->stmt, i->id, e->seq, (Pipe)i->pipe, false};
  i->impl->touch(&t, e);
  t.mark = true;
  i->impl->touch(&t, e);
}

void observe_element(Core *c, const Element *el, int64_t at) {
  const SimBuf *b = &c->m->sim->buf[el->buf];
  PipeQueue *q = &c->pipe[PIPE_S];
  Toucher t = {c, el->stmt, el->id, ++c->seq, PIPE_S, false};
  TouchKind kind = el->is_store ? TOUCH_WRITE : TOUCH_READ;
  q->tick++;
  q->seq[q->tick % SEQ_RING] = t.seq;
  touch(&t, b, kind, at, b->size, 1, b->size);
  t.mark = true;
  touch(&t, b, kind, at, b->size, 1, b->size);
}
