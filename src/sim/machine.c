/* machine.c - cores that run: pipe S interprets its program and issues, the other pipes take instructions from their
 * queues.
 *
 * Scheduling is eager and has a fixed order: core after core, S until it must wait, then what waits in the queues, the
 * oldest instruction that may run first; over and over while something moves. So the order, and with it every result,
 * is the same in every run. When nothing moves and a core is not done, that is a deadlock. What a pipe may do is asked
 * of may_issue(), which changes nothing; issue() does it.
 *
 * With a seed (Sim.schedule) the order is another one that the chip allows, for tests: each pipe, S among them, has a
 * random priority that changes now and then, and the first that may move makes one step. So pipes starve and run ahead
 * as far as flags let them; on a pipe that is not in order an instruction may pass the one before it. The seed and the
 * block fix the order. */
#include "timing.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* ---- S -------------------------------------------------------------------------------------------------- */

static void *arena_aligned(Arena *a, int64_t bytes) { return arena_alloc(a, (size_t)bytes + GUARD, 64); }

static void keep_read(Core *c, Reg v) {
  Reads *r = c->reads;
  if (r->n == r->cap) {
    Reg *grown = arena_array(&c->m->arena, Reg, r->cap ? 2 * r->cap : 8);
    if (r->n) memcpy(grown, r->value, sizeof *grown * (size_t)r->n);
    r->value = grown;
    r->cap = r->cap ? 2 * r->cap : 8;
  }
  r->value[r->n++] = v;
}

/* steps: operations of S until here, for the clock. */
static void s_load(Core *c, const Code *q, int64_t steps) {
  const Element *el = &c->prog->elem[q->a];
  const SimBuf *b = &c->m->sim->buf[el->buf];
  int64_t at;
  c->m->spin = SPIN;
  c->reg[q->d] = (Reg){0};
  if (!element_at(c, el, &at)) return;
  if (c->time) {
    c->steps = steps;
    clock_element(c, el);
    if (el->kept && c->reads) {
      if (c->followed < c->reads->n) c->reg[q->d] = c->reads->value[c->followed++];
      return;
    }
    if (b->space != SPACE_GM || !b->gm) return;
  }
  if (c->m->sim->checks) observe_element(c, el, at);
  c->reg[q->d] = scalar_load(b->type, buf_ptr(c, b, at));
  if (el->kept && c->reads) keep_read(c, c->reg[q->d]);
}

static void s_store(Core *c, const Code *q, int64_t steps) {
  const Element *el = &c->prog->elem[q->a];
  const SimBuf *b = &c->m->sim->buf[el->buf];
  int64_t at;
  c->m->spin = SPIN;
  if (!element_at(c, el, &at)) return;
  if (c->time) {
    c->steps = steps;
    clock_element(c, el);
    return;
  }
  if (c->m->sim->checks) observe_element(c, el, at);
  scalar_store(b->type, buf_ptr(c, b, at), c->reg[q->d]);
  if (c->m->twice.len) observe_done(c);
}

/* Puts an instruction into its pipe's queue, or does it at once if it is S's own. false: S must wait. */
static bool s_issue(Core *c, const Inst *i) {
  c->at = i;
  if (i->pipe == PIPE_S) {
    c->state = S_SYNC;
    if (!s_may_sync(c, i) || !s_sync(c, i)) return false;
    c->state = S_RUN;
    return true;
  }
  PipeQueue *p = &c->pipe[i->pipe];
  if (p->tail - p->head == p->depth) {
    c->state = S_QUEUE;
    return false;
  }
  Entry *e = &p->ring[p->tail % p->depth];
  e->inst = i;
  e->seq = ++c->seq;
  if (i->id_reg != NO_REG) e->id = c->reg[i->id_reg].i;
  if (!resolve(c, i, e)) c->tainted = true;
  if (e->dead && i->op < OP_COUNT) return true;
  e->has_clock = p->stale;
  if (p->stale) {
    memcpy(e->clock, c->pipe[PIPE_S].seen, sizeof(uint32_t) * (size_t)c->m->n_comp);
    p->stale = false;
  }
  p->tail++;
  return true;
}

/* As clock_issue (timing.h), in a functional run. */
static inline const Code *s_issue_row(Core *c, const Code *q, int64_t *steps, bool one) {
  for (;; *steps += q->steps, q++) {
    c->steps = *steps;
    if (!s_issue(c, &c->prog->inst[q->a]) || one || q[1].op != C_ISSUE) return q; /* mostly several stand in a row */
  }
}

/* Runs what waits in the queues, the oldest that may run first: where flags leave the order open, the numbers are those
 * of the program's order. What the order should have been said about is found by the clocks, not by the numbers. */
static bool drain(Core *c) {
  for (bool moved = false;; moved = true) {
    Pipe next = PIPE_S;
    uint32_t age = 0;
    for (Pipe p = (Pipe)1; p < (Pipe)CORE_PIPES; p++) {
      const PipeQueue *q = &c->pipe[p];
      if (q->head == q->tail) continue;
      uint32_t a = c->seq - q->ring[q->head % q->depth].seq;
      if ((next == PIPE_S || a > age) && may_issue(c, p)) next = p, age = a;
    }
    if (next == PIPE_S) return moved;
    issue(c, next);
  }
}

static void divide_fault(Core *c, int32_t pc) {
  const IrStmt *s = c->prog->code_stmt[pc];
  if (fault_known(c, DIAG_SIM_DIVIDE, s, NULL)) return;
  Fault *f = fault(c, DIAG_SIM_DIVIDE, s, NULL, "`%s` divides by zero (%s)", inst_text(&c->m->arena, c, s),
                   where(&c->m->arena, c));
  if (f) fault_fix(c, f, "guard the division with an `if`, or keep the divisor at least 1 with max");
}

/* False: the caller wants no more. It is asked 20 times a second. */
bool machine_may_go_on(Machine *m) {
  const SimOptions *o = m->sim->opt;
  struct timespec t;
  if (m->asks && o && o->go_on && clock_gettime(CLOCK_MONOTONIC, &t) == 0) {
    int64_t now = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
    if (now - m->asked >= 50 && !o->go_on(o->user)) atomic_store(&m->sim->stopped, 1);
    if (now - m->asked >= 50) m->asked = now;
  }
  return !atomic_load(&m->sim->stopped);
}

/* A jump backwards: loops that do not end must not hang the host. */
static bool charge(Core *c, int32_t pc) {
  if (--c->m->budget > 0 && --c->m->spin > 0) {
    if (c->m->budget % 65536 || machine_may_go_on(c->m)) return true;
    c->state = S_DONE;
    c->m->hung = true; /* what it leaves is no fault */
    return false;
  }
  const IrStmt *s = c->prog->code_stmt[pc];
  Fault *f = fault(c, DIAG_SIM_ENDLESS, s, NULL, "the loop went round so often that it looks endless (%s)",
                   where(&c->m->arena, c));
  if (f) fault_fix(c, f, "make the condition of the loop false at some time");
  c->pc = pc;
  c->state = S_DONE;
  return false;
}

static void s_peek(Core *c, const Code *q) {
  const Element *el = &c->prog->elem[q->a];
  const SimBuf *b = &c->m->sim->buf[el->buf];
  int64_t at;
  c->reg[q->d] = (Reg){0};
  if (element_at(c, el, &at)) c->reg[q->d] = scalar_load(b->type, buf_ptr(c, b, at));
}

bool run_s(Core *c, bool one) {
  Reg *r = c->reg;
  const Code *code = c->prog->code;
  int32_t pc = c->pc;
  int64_t steps = c->steps, before = steps;
  bool zero = false;
  c->state = S_RUN;
  for (const Code *q;; steps += q->steps) {
    q = &code[pc++];
    switch (q->op) {
    case C_HALT:
      c->pc = pc - 1;
      c->steps = steps;
      c->state = S_DONE;
      return true;
    case C_MOV: r[q->d] = r[q->a]; break;
    case C_JMP:
      if (q->to < pc && !charge(c, pc - 1)) return true;
      pc = q->to;
      break;
    case C_JZ: pc = r[q->a].i ? pc : q->to; break;
    case C_JNZ: pc = r[q->a].i ? q->to : pc; break;
    case C_STEP: r[q->d].i = (int64_t)((uint64_t)r[q->d].i + (uint64_t)r[q->b].i); break;
    case C_LOOP:
      if (r[q->b].i > 0 ? r[q->d].i < r[q->a].i : r[q->d].i > r[q->a].i) {
        if (!charge(c, pc - 1)) return true;
        pc = q->to;
      }
      break;
    case C_ISSUE:
      c->m->spin = SPIN;
      q = c->time ? clock_issue(c, q, &steps) : s_issue_row(c, q, &steps, one);
      pc = (int32_t)(q - code) + 1;
      if (c->state != S_RUN) return c->pc = pc - 1, steps > before;
      if (one) return c->pc = pc, true;
      break;
    case C_LOAD:
      if (!one) drain(c);
      s_load(c, q, steps);
      break;
    case C_DRAIN:
      if (!pipes_empty(c) && !c->hurry) {
        bool moved = c->pc != pc - 1;
        c->pc = pc - 1;
        c->state = S_SAY;
        return moved;
      }
      break;
    case C_PEEK: s_peek(c, q); break;
    case C_SAY: say(c, &c->prog->say[q->a]); break;
    case C_STORE:
      if (!one) drain(c);
      s_store(c, q, steps);
      if (one) return c->pc = pc, true;
      break;
    case C_CAST: r[q->d] = scalar_cast((DType)q->aux, (DType)q->b, r[q->a]); break;
    case C_BITS: r[q->d] = scalar_bits((DType)q->aux, (DType)q->b, r[q->a]); break;
    case C_INT + EX_ADD:
      r[q->d].i = dtype_wrap((DType)q->aux, (int64_t)((uint64_t)r[q->a].i + (uint64_t)r[q->b].i));
      break;
    case C_INT + EX_MUL:
      r[q->d].i = dtype_wrap((DType)q->aux, (int64_t)((uint64_t)r[q->a].i * (uint64_t)r[q->b].i));
      break;
    default:
      if (q->op >= C_FLT) {
        r[q->d] = scalar_float((ExprOp)(q->op - C_FLT), (DType)q->aux, r[q->a], r[q->b]);
      } else {
        r[q->d] = scalar_int((ExprOp)(q->op - C_INT), (DType)q->aux, r[q->a], r[q->b], &zero);
        if (zero) divide_fault(c, pc - 1);
        zero = false;
      }
    }
  }
}

/* Could S go on? Changes nothing. */
static bool s_may_run(const Core *c) {
  switch (c->state) {
  case S_RUN: return true;
  case S_DONE: return false;
  case S_SAY: return pipes_empty(c) || c->hurry;
  case S_QUEUE: {
    const PipeQueue *p = &c->pipe[c->at->pipe];
    return p->tail - p->head < p->depth;
  }
  default: return s_may_sync(c, c->at);
  }
}

/* ---- the machine ---------------------------------------------------------------------------------------- */

static void core_init(Machine *m, Core *c, const Program *prog, int32_t index, int32_t slot, int32_t vid) {
  Sim *s = m->sim;
  Arena *a = &m->arena;
  *c = (Core){.m = m, .prog = prog, .index = index, .slot = slot, .vid = vid};
  c->reg = arena_array(a, Reg, prog->n_reg);
  for (int sp = 0; sp < SPACE_COUNT; sp++) {
    bool here = sp == SPACE_UB ? vid >= 0 : vid < 0;
    if (sp == SPACE_GM || !here || !s->used[sp]) continue;
    c->mem[sp] = arena_aligned(a, s->used[sp]);
    if (s->checks) c->shadow[sp] = shadow_new(m, s->used[sp]);
  }
  for (int p = 0; p < CORE_PIPES; p++) {
    PipeQueue *q = &c->pipe[p];
    q->depth = (uint32_t)max_i64(s->arch->queue_depth, 1);
    q->seen = arena_array(a, uint32_t, m->n_comp);
    if (p == PIPE_S) continue;
    if (pipe_info[p].side != 'b' && pipe_info[p].side != prog->side) continue;
    q->ring = arena_array(a, Entry, q->depth);
    for (uint32_t e = 0; e < q->depth; e++) q->ring[e].clock = arena_array(a, uint32_t, m->n_comp);
  }
  int n_flags = CORE_PIPES * CORE_PIPES * SIM_FLAGS;
  c->flag = arena_array(a, Flag, n_flags);
  if (!s->prog[0].cross && !s->prog[1].cross) return;
  int n_cross = s->arch->n_cross_flags;
  c->cross = arena_array(a, CrossFlag, n_cross);
  c->sent = arena_array(a, CrossFlag, n_cross * CROSS_MODES);
  if (s->checks) c->begun = arena_array(a, uint32_t, s->n_ids);
  for (int f = 0; f < n_cross * (1 + CROSS_MODES); f++) {
    CrossFlag *x = f < n_cross ? &c->cross[f] : &c->sent[f - n_cross];
    if (!s->checks) continue;
    x->clocks = arena_array(a, uint32_t, (int64_t)CROSS_RING * m->n_comp);
    x->gone = arena_array(a, uint32_t, (int64_t)CROSS_RING * m->n_comp);
  }
}

void machine_init(Machine *m, Sim *s, int32_t n_blocks) {
  m->sim = s;
  m->n_cores = n_blocks * s->cores_per_block;
  m->n_comp = s->checks ? m->n_cores * COMPS : 0;
  m->core = arena_array(&m->arena, Core, m->n_cores);
  m->all_clock = arena_array(&m->arena, uint32_t, m->n_comp);
  m->scratch = arena_aligned(&m->arena, SCRATCH);
  m->faults.len = 0;
  int32_t n = 0;
  for (int32_t slot = 0; slot < n_blocks; slot++) {
    if (s->prog[0].code) core_init(m, &m->core[n], &s->prog[0], n, slot, -1), n++;
    if (!s->prog[1].code) continue;
    int32_t vectors = s->cores_per_block - (s->prog[0].code != NULL);
    for (int32_t v = 0; v < vectors; v++) core_init(m, &m->core[n], &s->prog[1], n, slot, v), n++;
  }
  if (s->checks) m->gm = gm_shadow_new(m);
}

static void cross_clear(CrossFlag *x) { x->head = x->tail = x->known = 0; }

void core_begin(Core *c, int64_t block) {
  Sim *s = c->m->sim;
  const IrKernel *k = s->k;
  memcpy(c->reg, c->prog->init, sizeof(Reg) * (size_t)c->prog->n_reg);
  for (uint32_t i = 0; i < k->params.len; i++)
    if (k->params.data[i].var) c->reg[k->params.data[i].var->id] = s->param[k->params.data[i].var->id];
  int64_t rest = block;
  for (uint32_t g = 0; g < k->grid.len; g++) {
    c->reg[k->grid.data[g]->id].i = rest % s->grid[g];
    rest /= s->grid[g];
  }
  if (k->vid) c->reg[k->vid->id].i = c->vid < 0 ? 0 : c->vid;
  c->block = block;
  c->reads = s->values && s->values->reads
                 ? &s->values->reads[block * s->cores_per_block + c->index % s->cores_per_block] : NULL;
  c->followed = 0;
  c->pc = 0;
  c->state = S_RUN;
  c->at = NULL;
  c->all = 0;
  c->tainted = c->hurry = false;
}

/* A new block on the core: memories hold nothing of meaning (all ones: NaN, -1), flags are clear, all that was is
 * ordered before. */
static void core_start(Core *c, int64_t block) {
  Sim *s = c->m->sim;
  core_begin(c, block);
  for (int sp = 0; sp < SPACE_COUNT; sp++) {
    if (!c->mem[sp]) continue;
    memset(c->mem[sp], 0xff, (size_t)s->used[sp]);
    if (c->shadow[sp]) shadow_reset(c->m, c->shadow[sp]);
  }
  for (int f = 0; f < CORE_PIPES * CORE_PIPES * SIM_FLAGS; f++)
    c->flag[f].set = c->flag[f].wait_tick = c->flag[f].first = 0;
  if (c->begun) memset(c->begun, 0, sizeof *c->begun * s->n_ids);
  for (int f = 0; c->cross && f < s->arch->n_cross_flags; f++) cross_clear(&c->cross[f]);
  for (int f = 0; c->sent && f < s->arch->n_cross_flags * CROSS_MODES; f++) cross_clear(&c->sent[f]);
  for (int p = 0; p < CORE_PIPES; p++) {
    PipeQueue *q = &c->pipe[p];
    q->head = q->tail = 0;
    q->stale = false;
    for (int32_t o = 0; o < c->m->n_cores && c->m->n_comp; o++) {
      for (int x = 0; x < CORE_PIPES; x++) q->seen[o * COMPS + x] = c->m->core[o].pipe[x].tick;
      q->seen[o * COMPS + S_ORDER] = c->m->core[o].s_order;
    }
  }
}

static bool at_end(const Machine *m) {
  for (int32_t i = 0; i < m->n_cores; i++)
    if (m->core[i].state != S_DONE || !pipes_empty(&m->core[i])) return false;
  return true;
}

static uint32_t draw(Machine *m) { /* splitmix64 */
  uint64_t z = m->random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)(z >> 32);
}

/* Pipe V starts an instruction before the results of the one before are there. */
static void maybe_pass(Machine *m, Core *c, Pipe p) {
  PipeQueue *q = &c->pipe[p];
  if (pipe_info[p].in_order || q->tail - q->head < 2 || draw(m) % 2) return;
  Entry *first = &q->ring[q->head % q->depth], *second = &q->ring[(q->head + 1) % q->depth];
  if (first->inst->op >= OP_COUNT || second->inst->op >= OP_COUNT || first->has_clock) return;
  Entry e = *first;
  *first = *second;
  *second = e;
}

/* One step of the pipe of highest priority that may move; false: none may. */
static bool seeded_step(Machine *m) {
  int32_t best = -1;
  for (int32_t x = 0; x < m->n_cores * CORE_PIPES; x++) {
    const Core *c = &m->core[x / CORE_PIPES];
    Pipe p = (Pipe)(x % CORE_PIPES);
    if (best >= 0 && m->priority[x] <= m->priority[best]) continue;
    if (p == PIPE_S ? s_may_run(c) : c->pipe[p].head != c->pipe[p].tail && may_issue(c, p)) best = x;
  }
  if (best < 0) return false;
  if (best % CORE_PIPES == PIPE_S) run_s(&m->core[best / CORE_PIPES], true);
  else {
    maybe_pass(m, &m->core[best / CORE_PIPES], (Pipe)(best % CORE_PIPES));
    issue(&m->core[best / CORE_PIPES], (Pipe)(best % CORE_PIPES));
  }
  if (draw(m) % 8 == 0) m->priority[best] = draw(m);
  return true;
}

/* Nothing else moves: prints show what there is. */
static bool hurry_prints(Machine *m) {
  bool any = false;
  for (int32_t i = 0; i < m->n_cores; i++)
    if (m->core[i].state == S_SAY) any = m->core[i].hurry = true;
  return any;
}

static void run_seeded(Machine *m, int64_t block) {
  int32_t n = m->n_cores * CORE_PIPES;
  if (!m->priority) m->priority = arena_array(&m->arena, uint32_t, n);
  m->random = m->sim->schedule + (uint64_t)block * UINT64_C(0xd1342543de82ef95);
  for (int32_t x = 0; x < n; x++) m->priority[x] = draw(m);
  while (seeded_step(m) || hurry_prints(m))
    if (m->block_faults >= m->sim->max_faults) return;
  if (m->hung) return;
  if (!at_end(m)) report_deadlock(m);
  else if (m->sim->checks) report_flags_left(m);
}

static void run_cores(Machine *m) {
  for (bool moved = true, done = false; moved && !done;) {
    moved = false;
    done = true;
    for (int32_t i = 0; i < m->n_cores; i++) {
      Core *c = &m->core[i];
      if (s_may_run(c)) moved |= run_s(c, false);
      moved |= drain(c);
      done &= c->state == S_DONE && pipes_empty(c);
      if (m->block_faults >= m->sim->max_faults) return;
    }
    if (!moved && !done) moved = hurry_prints(m);
    if (!moved && !done) {
      if (!m->hung) report_deadlock(m);
      return;
    }
  }
  if (m->sim->checks && !m->hung) report_flags_left(m);
}

void machine_run(Machine *m, int64_t first_block) {
  m->block_faults = 0;
  m->hung = false;
  m->said_bytes = 0;
  m->spin = SPIN;
  m->budget = TL_LIMIT(INT64_C(1) << 28, 60);
  if (m->gm) gm_shadow_reset(m);
  for (int32_t i = 0; i < m->n_cores; i++) core_start(&m->core[i], first_block + m->core[i].slot);
  if (m->sim->schedule) run_seeded(m, first_block);
  else run_cores(m);
}
