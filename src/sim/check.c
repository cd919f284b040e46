/* check.c - the hazard observer: looks at the bytes of an instruction before it runs, and says what is wrong with them.
 *
 * An access is a fault when its bytes hold no value (uninitialised), or when another access to one of them is not ordered before it
 * (race): by another pipe without a flag, by another core without a cross-core flag, or by pipe V itself without a barrier.
 * Accesses to GM tensors that other blocks may touch are logged as well; blocks.c compares them when all blocks are done. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

/* ---- faults ------------------------------------------------------------------------------------------------------- */

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
  Fault f = {.code = code, .block = c->block, .key = arena_str(&m->arena, fault_key(key, sizeof key, code, at, with))};
  if (at) f.loc = at->loc;
  if (with) f.other = with->loc;
  map_set(&m->arena, &m->fault_keys, f.key, strlen(f.key), 1);
  Text t;
  va_list ap;
  text_init(&t, &m->arena);
  va_start(ap, fmt);
  text_vprintf(&t, fmt, ap);
  va_end(ap);
  f.text = text_str(&t);
  vec_push(&m->arena, &m->faults, f);
  m->block_faults++;
  return &m->faults.data[m->faults.len - 1];
}

void fault_other(Core *c, Fault *f, const char *fmt, ...) {
  Text t;
  va_list ap;
  text_init(&t, &c->m->arena);
  va_start(ap, fmt);
  text_vprintf(&t, fmt, ap);
  va_end(ap);
  f->other_text = text_str(&t);
}

void fault_fix(Core *c, Fault *f, const char *fmt, ...) {
  Text t;
  va_list ap;
  text_init(&t, &c->m->arena);
  va_start(ap, fmt);
  text_vprintf(&t, fmt, ap);
  va_end(ap);
  f->fix = text_str(&t);
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

static int64_t base_of(const SimBuf *b) { return b->space == SPACE_GM ? 0 : b->addr; }

/* The buffer through which a statement touches byte `at` of a memory; `b` when it cannot be told. */
static const SimBuf *buffer_at(const Core *c, const IrStmt *s, const SimBuf *b, int64_t at) {
  if (b->space == SPACE_GM || !ir_is_op(s)) return b;
  for (int a = 0; a < s->n_args; a++) {
    if (s->args[a].kind != ARG_REGION) continue;
    const SimBuf *x = &c->m->sim->buf[s->args[a].region.buf->id];
    if (x->space == b->space && at >= x->addr && at < x->addr + x->bytes) return x;
  }
  return b;
}

static void report_race(Toucher *t, const SimBuf *b, TouchKind kind, const Hit *h) {
  Core *c = t->core;
  Machine *m = c->m;
  const IrStmt *with = m->sim->who[h->who];
  if (fault_known(c, DIAG_SIM_RACE, t->stmt, with)) return;
  uint32_t other = h->key / LANE_KINDS;
  const Core *oc = &m->core[other / COMPS];
  Pipe op = (Pipe)(other % COMPS);
  LaneKind ok = (LaneKind)(h->key % LANE_KINDS);
  const char *mine = kind == TOUCH_READ || kind == TOUCH_READ_ANY ? "reads" : kind == TOUCH_ATOMIC ? "adds to" : "writes";
  const char *theirs = ok == LANE_READ ? "read" : ok == LANE_ATOMIC ? "add to" : "write";
  const SimBuf *ob = buffer_at(c, with, b, h->lo);
  int64_t lo = h->lo - base_of(b), hi = h->hi - base_of(b);
  const char *through = ob == b ? "them" : arena_printf(&m->arena, "the same memory as bytes %lld to %lld of %%%s", (long long)(h->lo - ob->addr),
                                                        (long long)(h->hi - 1 - ob->addr), ob->ir->name);
  const char *who = oc == c ? (op == t->pipe ? "the same pipe" : arena_printf(&m->arena, "pipe %s", pipe_info[op].name))
                            : arena_printf(&m->arena, "pipe %s of the %s", pipe_info[op].name, where(&m->arena, oc));
  Fault *f = fault(c, DIAG_SIM_RACE, t->stmt, with,
                   "`%s` on pipe %s %s bytes %lld to %lld of %%%s (%s) while `%s` on %s may still %s %s (%s)", inst_text(&m->arena, c, t->stmt),
                   pipe_info[t->pipe].name, mine, (long long)lo, (long long)(hi - 1), b->ir->name, space_info[b->space].name,
                   inst_text(&m->arena, c, with), who, theirs, through, where(&m->arena, c));
  if (!f) return;
  fault_other(c, f, "the other access: `%s`", inst_text(&m->arena, c, with));
  const char *p = pipe_info[op].name, *q = pipe_info[t->pipe].name;
  if (oc != c) fault_fix(c, f, "order the two cores: a cross_set after the first access, a cross_wait with the same flag before the second");
  else if (op == t->pipe) fault_fix(c, f, "put `barrier %s` between the two: pipe %s does not wait for its own earlier instructions", p, p);
  else fault_fix(c, f, "put `set_flag %s -> %s` after the first access and the `wait_flag %s -> %s` with the same flag before the second", p, q, p, q);
}

static void report_undefined(Toucher *t, const SimBuf *b, const Hit *h) {
  Core *c = t->core;
  Arena *a = &c->m->arena;
  if (c->tainted || fault_known(c, DIAG_SIM_UNINIT, t->stmt, NULL)) return;
  Fault *f = fault(c, DIAG_SIM_UNINIT, t->stmt, NULL, "`%s` reads bytes %lld to %lld of %%%s (%s), which nothing has written in this block (%s)",
                   inst_text(a, c, t->stmt), (long long)(h->lo - base_of(b)), (long long)(h->hi - 1 - base_of(b)), b->ir->name,
                   space_info[b->space].name, where(a, c));
  if (!f) return;
  f->other = b->ir->loc;
  fault_other(c, f, "%%%s is declared here", b->ir->name);
  fault_fix(c, f, b->space == SPACE_GM ? "write the tensor before it is read, or pass it as an input instead of `out` or `workspace`"
                                       : "fill or load the whole region first, or read only the part that was written");
}

/* ---- accesses ----------------------------------------------------------------------------------------------------------- */

static LaneKind lane_kind(TouchKind k) {
  return k == TOUCH_READ || k == TOUCH_READ_ANY ? LANE_READ : k == TOUCH_ATOMIC ? LANE_ATOMIC : LANE_WRITE;
}

static void log_access(Toucher *t, const SimBuf *b, TouchKind kind, int64_t at, int64_t len, int64_t count, int64_t stride) {
  Machine *m = t->core->m;
  GmAccess *last = m->log.len ? &m->log.data[m->log.len - 1] : NULL;
  if (last && count == 1 && last->count == 1 && last->block == t->core->block && last->who == t->who && last->kind == kind &&
      last->buf == (int32_t)b->ir->id && last->at + last->len == at) {
    last->len += len;
    return;
  }
  vec_push(&m->arena, &m->log, ((GmAccess){t->core->block, t->who, (int32_t)b->ir->id, kind, at, len, count, stride}));
}

static void look(Toucher *t, Shadow *s, const SimBuf *b, TouchKind kind, int64_t lo, int64_t hi) {
  Core *c = t->core;
  Machine *m = c->m;
  Hit h;
  bool values = kind == TOUCH_READ || kind == TOUCH_ATOMIC;
  if (values && (s || b->undefined) && shadow_undefined(m, s, b, lo, hi, &h)) report_undefined(t, b, &h);
  if (!s && !b->hazard) return;
  uint32_t comp = (uint32_t)(c->index * COMPS + (int)t->pipe);
  if (shadow_conflict(m, s, b, lo, hi, comp, lane_kind(kind), c->pipe[t->pipe].seen, pipe_info[t->pipe].in_order, &h)) report_race(t, b, kind, &h);
}

static void mark(Toucher *t, Shadow *s, const SimBuf *b, TouchKind kind, int64_t lo, int64_t hi) {
  Core *c = t->core;
  Machine *m = c->m;
  uint32_t comp = (uint32_t)(c->index * COMPS + (int)t->pipe);
  if (s || b->hazard) shadow_mark(m, s, b, lo, hi, comp, lane_kind(kind), c->pipe[t->pipe].tick, t->who);
  if (!s && !b->undefined) return;
  if (kind == TOUCH_WRITE || kind == TOUCH_ATOMIC) shadow_define(m, s, b, lo, hi, true);
  if (kind == TOUCH_SPOIL) shadow_define(m, s, b, lo, hi, false);
}

void touch(Toucher *t, const SimBuf *b, TouchKind kind, int64_t at, int64_t len, int64_t count, int64_t stride) {
  Shadow *s = t->core->shadow[b->space];
  if (len <= 0 || count <= 0) return;
  if (b->space == SPACE_GM) {
    if (t->mark && b->log) log_access(t, b, kind, at, len, count, stride);
    if (!b->hazard && !b->undefined) return;
  }
  if (stride == len) {
    len *= count;
    count = 1;
  }
  int64_t lo = base_of(b) + at;
  for (int64_t i = 0; i < count; i++, lo += stride)
    if (t->mark) mark(t, s, b, kind, lo, lo + len);
    else look(t, s, b, kind, lo, lo + len);
}

void observe(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  Toucher t = {c, i->stmt, i->id, (Pipe)i->pipe, false};
  i->impl->touch(&t, e);
  t.mark = true;
  i->impl->touch(&t, e);
}

void observe_element(Core *c, const Element *el, int64_t at) {
  const SimBuf *b = &c->m->sim->buf[el->buf];
  Toucher t = {c, el->stmt, el->id, PIPE_S, false};
  TouchKind kind = el->is_store ? TOUCH_WRITE : TOUCH_READ;
  c->pipe[PIPE_S].tick++;
  touch(&t, b, kind, at, b->size, 1, b->size);
  t.mark = true;
  touch(&t, b, kind, at, b->size, 1, b->size);
}
