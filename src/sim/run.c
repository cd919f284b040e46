/* run.c - one run of a kernel: arguments become buffers (bind.c), the tree becomes two programs, workers take blocks
 * one after another; or the clock runs them (run_time.c).
 *
 * Every worker thread owns a machine (the cores of one block) and an arena. Blocks are independent, so results do not
 * depend on which worker runs which block; kernels that add atomically run on one thread, for the order of float
 * additions shows. Kernels that wait across blocks (sync_all, cross-core flags of mode 0) run as one machine with all
 * cores of the launch.
 *
 * Faults are put in the order of blocks, not of time, and cut at max_faults: a block that found that many stops the
 * blocks after it, never one before. So the messages too are the same for any number of threads. */
#include "run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *locked_alloc(void *user, void *old, size_t size) {
  SharedAlloc *s = user;
  pthread_mutex_lock(&s->lock);
  void *p = s->host->alloc(s->host->user, old, size);
  pthread_mutex_unlock(&s->lock);
  return p;
}

/* ---- programs ------------------------------------------------------------------------------------------- */

typedef struct { uint32_t lanes; bool read, written; } GmUse; /* lanes: bit per (side, pipe) */

static void use_gm(Sim *s, GmUse *use, int32_t buf, int side, int pipe, bool write, bool read) {
  if (!buf || s->buf[buf].space != SPACE_GM) return;
  buf = (int32_t)s->buf[buf].share;
  use[buf].lanes |= 1u << (side * COMPS + pipe);
  use[buf].written |= write;
  use[buf].read |= read;
}

bool run_survey(Run *r) {
  Sim *s = &r->sim;
  bool atomic = false;
  GmUse *use = arena_array(&r->arena, GmUse, s->n_buf + 1);
  for (int side = 0; side < 2; side++) {
    const Program *p = &s->prog[side];
    for (int32_t i = 0; i < p->n_inst; i++) {
      s->who[p->inst[i].id] = p->inst[i].stmt;
      atomic |= p->inst[i].atomic;
      for (int a = 0; a < p->inst[i].n_args; a++)
        use_gm(s, use, p->inst[i].arg[a].buf, side, p->inst[i].pipe, a >= p->inst[i].n_in,
               a < p->inst[i].n_in || p->inst[i].atomic);
    }
    for (int32_t i = 0; i < p->n_elem; i++) {
      s->who[p->elem[i].id] = p->elem[i].stmt;
      if (p->elem[i].peek) continue;
      use_gm(s, use, p->elem[i].buf, side, PIPE_S, p->elem[i].is_store, !p->elem[i].is_store);
    }
  }
  bool *defined = arena_array(&r->arena, bool, s->n_buf + 1); /* by share: some of its tensors hold values */
  for (uint32_t b = 1; b < s->n_buf; b++)
    if (s->buf[b].space == SPACE_GM && s->buf[b].tensor == b && !s->buf[b].undefined) defined[s->buf[b].share] = true;
  int vectors = s->cores_per_block - (s->prog[0].code != NULL);
  for (uint32_t b = 1; b < s->n_buf; b++) {
    SimBuf *x = &s->buf[b];
    if (x->space != SPACE_GM || x->tensor != b) continue;
    const GmUse *u = &use[x->share];
    int cube = __builtin_popcount(u->lanes & ((1u << COMPS) - 1)), vector = __builtin_popcount(u->lanes >> COMPS);
    int64_t meet = (int64_t)(cube + vector * vectors) * (s->together ? s->blocks : 1);
    x->written = u->written;
    x->hazard = x->written && meet > 1;
    x->log = x->written && ((!s->together && s->blocks > 1) || x->ir->is_out);
    x->undefined &= u->read && !defined[x->share];
  }
  for (uint32_t b = 1; b < s->n_buf; b++) {
    SimBuf *x = &s->buf[b], *root = &s->buf[x->tensor];
    if (x->space != SPACE_GM || x == root) continue;
    x->written = root->written;
    x->hazard = root->hazard;
    x->log = root->log;
    x->undefined = root->undefined;
  }
  return atomic;
}

static bool build_programs(Run *r) {
  Sim *s = &r->sim;
  bool cube = s->k->cores == CORES_CUBE || s->k->cores == CORES_MIX,
       vector = s->k->cores == CORES_VECTOR || s->k->cores == CORES_MIX;
  uint32_t next_id = 1;
  bool ok = true;
  if (cube) ok &= program_build(&r->arena, r->diags, s->k, 'c', !r->time, &next_id, &s->prog[0]);
  if (vector) ok &= program_build(&r->arena, r->diags, s->k, 'v', !r->time, &next_id, &s->prog[1]);
  s->who = arena_array(&r->arena, const IrStmt *, next_id);
  s->n_ids = next_id;
  bool two = s->k->cores == CORES_MIX || s->k->vid;
  if (s->k->cores == CORES_MIX) { /* a side without a statement is not started */
    for (int side = 0; side < 2; side++)
      if (!s->prog[side].n_inst && !s->prog[side].n_elem && !s->prog[side].n_say) s->prog[side].code = NULL;
  }
  s->cores_per_block = (s->prog[0].code ? 1 : 0) + (s->prog[1].code ? (two ? 2 : 1) : 0);
  s->together = s->prog[0].sync_all || s->prog[1].sync_all || s->prog[0].mode0 || s->prog[1].mode0;
  return ok;
}

static bool eval_grid(Run *r) {
  Sim *s = &r->sim;
  s->blocks = 1;
  for (uint32_t g = 0; g < s->k->grid.len; g++) {
    if (!eval_const(s->k, s->param, s->k->grid_ext.data[g], &s->grid[g])) {
      Diag *d = diag_add(r->diags, DIAG_SIM_ARG, s->k->loc,
                         "extent %u of the grid cannot be computed from the scalar arguments", g);
      diag_fix(r->diags, d, "pass scalars with which no size divides by zero or overflows");
      return false;
    }
    int64_t n = max_i64(s->grid[g], 0);
    if (n && s->blocks > (INT64_C(1) << 40) / n) {
      diag_add(r->diags, DIAG_SIM_ARG, s->k->loc, "the grid has more than 2^40 blocks");
      return false;
    }
    s->blocks *= n;
  }
  return true;
}

int32_t run_chip_cores(const Sim *s) {
  return s->k->cores == CORES_VECTOR && !s->k->vid ? s->arch->aiv : s->arch->aic;
}

static bool launch_ok(Run *r) {
  Sim *s = &r->sim;
  if (!s->together || s->blocks <= run_chip_cores(s)) return true;
  Diag *g = diag_add(
      r->diags, DIAG_SIM_LAUNCH, s->k->loc,
      "the blocks of this kernel wait for each other, but %lld blocks do not run at once on the %d cores of %s",
      (long long)s->blocks, run_chip_cores(s), s->arch->name);
  diag_fix(r->diags, g, "launch at most %d blocks and let each loop over its share of the work", run_chip_cores(s));
  return false;
}

/* ---- workers -------------------------------------------------------------------------------------------- */

static void work(Machine *m) {
  Sim *s = m->sim;
  machine_init(m, s, s->together ? (int32_t)s->blocks : 1);
  if (s->together) {
    machine_run(m, 0);
    return;
  }
  for (;;) {
    int64_t b = atomic_fetch_add(&s->next, 1);
    if (b >= s->blocks || b > atomic_load(&s->last) || !machine_may_go_on(m)) return;
    machine_run(m, b);
    int64_t last = atomic_load(&s->last);
    while (m->block_faults >= s->max_faults && b < last && !atomic_compare_exchange_weak(&s->last, &last, b)) {}
  }
}

static void *worker(void *p) {
  Machine *m = p;
  if (setjmp(m->oom)) m->out_of_memory = true;
  else work(m);
  atomic_fetch_sub(&m->sim->busy, 1);
  return NULL;
}

static int thread_count(const Run *r, bool atomic) {
  int64_t n = r->opt->threads > 0 ? r->opt->threads : sysconf(_SC_NPROCESSORS_ONLN);
  n = min_i64(min_i64(n, 64), r->sim.blocks);
  return atomic || r->sim.together || n < 1 ? 1 : (int)n;
}

static void run_workers(Run *r, int n) {
  pthread_t *thread = arena_array(&r->arena, pthread_t, n);
  int started = 0;
  r->machine = arena_array(&r->arena, Machine, n);
  for (int i = 0; i < n; i++) {
    r->machine[i].sim = &r->sim;
    arena_init(&r->machine[i].arena, r->alloc.host ? &r->alloc.locked : NULL, &r->machine[i].oom);
  }
  r->n_machines = n;
  r->machine[0].asks = true;
  atomic_store(&r->sim.busy, n);
  while (started + 1 < n && pthread_create(&thread[started], NULL, worker, &r->machine[started + 1]) == 0) started++;
  atomic_fetch_sub(&r->sim.busy, n - 1 - started);
  worker(&r->machine[0]);
  while (r->opt->go_on && atomic_load(&r->sim.busy) && machine_may_go_on(&r->machine[0]))
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

/* ---- results -------------------------------------------------------------------------------------------- */

static Pipe pipe_of(const IrStmt *s) { return ir_is_op(s) ? op_info[s->op].pipe : PIPE_S; }

/* A read that came too early finds no value, or another one, and races with the write to come: that is the fault. And
 * where one pipe does not wait for another in an access, neither do those that wait for the first one only: they set
 * their flags again before the other one has waited. */
static bool is_consequence(const FaultList *l, const Fault *u) {
  bool early = u->code == DIAG_SIM_UNINIT || u->code == DIAG_SIM_LOST, twice = u->code == DIAG_SIM_FLAG_TWICE;
  for (uint32_t i = 0; i < l->len && (early || twice); i++) {
    const Fault *r = &l->data[i];
    if (r->code != DIAG_SIM_RACE || r->block > u->block) continue;
    if (early && (r->at == u->at || r->with == u->at)) return true;
    if (twice && u->at->sync.dst == pipe_of(r->with)) return true;
  }
  return false;
}

/* One flag may be all that several races want: then the first place that needs it is told. */
static bool is_covered(FaultList *l, uint32_t i) {
  Fault *u = &l->data[i];
  IrStmt *d = (IrStmt *)u->with, *e = (IrStmt *)u->at;
  for (uint32_t x = 0; x < l->len && u->flag; x++) {
    Fault *r = &l->data[x];
    IrStmt *d2 = (IrStmt *)r->with, *e2 = (IrStmt *)r->at;
    if (x == i || !r->flag || r->dropped || pipe_of(d) != pipe_of(d2) || pipe_of(e) != pipe_of(e2)) continue;
    if (!ir_orders_too(d2, e2, d, e) || (x > i && ir_orders_too(d, e, d2, e2))) continue;
    r->ahead |= u->ahead;
    return true;
  }
  return false;
}

void run_collect(Run *r) {
  Sim *s = &r->sim;
  FaultList all = {0}, kept = {0};
  for (int i = 0; i < r->n_machines; i++) {
    const Machine *m = &r->machine[i];
    r->result->instructions += m->instructions;
    r->result->gm_read_bytes += m->gm_read;
    r->result->gm_write_bytes += m->gm_write;
    for (uint32_t f = 0; f < m->faults.len; f++) { /* insertion keeps the order within a block */
      vec_push(&r->arena, &all, m->faults.data[f]);
      for (uint32_t x = all.len - 1; x > 0 && all.data[x - 1].block > all.data[x].block; x--) {
        Fault t = all.data[x];
        all.data[x] = all.data[x - 1];
        all.data[x - 1] = t;
      }
    }
  }
  for (uint32_t f = 0; f < all.len; f++) {
    bool seen = all.data[f].dropped || is_consequence(&all, &all.data[f]) || is_covered(&all, f);
    for (uint32_t x = 0; x < kept.len; x++) seen |= !strcmp(kept.data[x].key, all.data[f].key);
    if (!seen) vec_push(&r->arena, &kept, all.data[f]);
  }
  if (s->checks && (int32_t)kept.len < s->max_faults) compare_blocks(s, &r->arena, r->machine, r->n_machines, &kept);
  for (uint32_t f = 0; f < kept.len && (int32_t)f < s->max_faults; f++) {
    const Fault *x = &kept.data[f];
    Diag *g = diag_add(r->diags, x->code, x->loc, "%s", x->text);
    if (x->other_text) diag_other(r->diags, g, x->other, "%s", x->other_text);
    if (x->flag)
      diag_fix(r->diags, g, "%s", ir_order_fix(&r->arena, s->k, (IrStmt *)x->with, pipe_of(x->with), (IrStmt *)x->at,
                                               pipe_of(x->at), x->ahead));
    else if (x->fix) diag_fix(r->diags, g, "%s", x->fix);
  }
  r->ok = kept.len == 0 && !atomic_load(&s->stopped);
  if (!s->checks || !r->ok) return;
  find_unwritten(s, &r->arena, r->diags, r->machine, r->n_machines);
  find_unread(s, &r->arena, r->diags, r->machine, r->n_machines);
}

bool run_known_element(const Sim *s, const Element *el) {
  const SimBuf *b = &s->buf[el->buf];
  return b->space == SPACE_GM && b->gm && !b->written;
}

static void need(bool *needed, int32_t reg) {
  if (reg != NO_REG) needed[reg] = true;
}

/* Registers that decide what runs when, how much, and where: those of jumps, sizes, places, flags, and all that these
 * are made of. */
static bool *needed_registers(Run *r, const Program *p) {
  bool *needed = arena_array(&r->arena, bool, p->n_reg + 1);
  for (int32_t i = 0; i < p->n_inst; i++) {
    const Inst *x = &p->inst[i];
    need(needed, x->id_reg);
    for (int a = 0; a < x->n_args; a++)
      for (int d = 0; x->arg[a].buf && d < r->sim.buf[x->arg[a].buf].rank; d++)
        need(needed, x->arg[a].off[d]), need(needed, x->arg[a].ext[d]);
  }
  for (int32_t i = 0; i < p->n_elem; i++)
    for (int d = 0; d < r->sim.buf[p->elem[i].buf].rank; d++) need(needed, p->elem[i].idx[d]);
  for (bool again = true; again;) {
    again = false;
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      int32_t from[3] = {NO_REG, NO_REG, NO_REG};
      if (q->op == C_JZ || q->op == C_JNZ) from[0] = q->a;
      else if (q->op == C_LOOP) from[0] = q->a, from[1] = q->b, from[2] = q->d;
      else if (q->op == C_STEP) from[0] = needed[q->d] ? q->b : NO_REG;
      else if (q->op == C_MOV || q->op == C_CAST || q->op == C_BITS) from[0] = needed[q->d] ? q->a : NO_REG;
      else if (q->op >= C_INT && needed[q->d]) from[0] = q->a, from[1] = q->b;
      for (int f = 0; f < 3; f++) {
        if (from[f] == NO_REG || needed[from[f]]) continue;
        needed[from[f]] = again = true;
      }
    }
  }
  return needed;
}

bool run_mark_kept(Run *r) {
  bool any = false;
  for (int side = 0; side < 2; side++) {
    const Program *p = &r->sim.prog[side];
    if (!p->code || !p->n_elem) continue;
    const bool *needed = needed_registers(r, p);
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      if (q->op != C_LOAD || !needed[q->d] || run_known_element(&r->sim, &p->elem[q->a])) continue;
      p->elem[q->a].kept = any = true;
    }
  }
  return any;
}

/* Values for a timed run, to be filled by the workers; `save_values` brings what they hold to where it stays. */
static void begin_values(Run *r) {
  Sim *s = &r->sim;
  if (!r->opt->record) return;
  s->values = arena_new(r->opt->record, SimValues);
  *s->values = (SimValues){.blocks = s->blocks, .cores = s->cores_per_block};
  if (run_mark_kept(r)) s->values->reads = arena_array(r->opt->record, Reads, s->blocks * s->cores_per_block);
  r->result->values = s->values;
}

static void save_values(Run *r) {
  SimValues *v = r->sim.values;
  for (int64_t i = 0; v && v->reads && i < v->blocks * v->cores; i++) {
    Reads *x = &v->reads[i];
    Reg *kept = arena_array(r->opt->record, Reg, x->n);
    if (x->n) memcpy(kept, x->value, sizeof *kept * (size_t)x->n);
    *x = (Reads){kept, x->n, x->n};
    r->result->recorded += x->n;
  }
}

bool run_prepare(Run *r) {
  Sim *s = &r->sim;
  if (s->k->level != LEVEL_LOWERED || s->k->cores == CORES_UNSET) {
    Diag *g = diag_add(r->diags, DIAG_WRONG_STAGE, s->k->loc,
                       "the simulator runs lowered programs; @%s is at source level", s->k->name);
    diag_fix(r->diags, g, "lower it first");
    return false;
  }
  s->param = eval_params(&r->arena, s->k, s->args);
  if (!eval_grid(r) || !run_bind(r) || !build_programs(r) || !launch_ok(r)) return false;
  run_number_owners(s);
  r->ok = true;
  s->host = host_kernels();
  return s->blocks && s->cores_per_block;
}

static void run_all(Run *r) {
  Sim *s = &r->sim;
  bool any = run_prepare(r);
  if (r->ok) say_around(s, r->to, SAY_BEFORE, r->result);
  if (!any) {
    if (r->ok && s->checks && s->blocks == 0) find_unwritten(s, &r->arena, r->diags, NULL, 0);
    return;
  }
  r->result->blocks = s->blocks;
  r->result->cores_used = (int32_t)min_i64(s->blocks, run_chip_cores(s));
  atomic_store(&s->next, 0);
  atomic_store(&s->last, INT64_MAX);
  bool atomic = run_survey(r);
  if (s->checks) watch_tensors(s);
  begin_values(r);
  run_workers(r, thread_count(r, atomic));
  for (int i = 0; i < r->n_machines; i++)
    if (r->machine[i].out_of_memory) longjmp(*r->arena.oom, 1);
  say_collect(r->to, r->machine, r->n_machines, r->result);
  say_around(s, r->to, SAY_AFTER, r->result);
  save_values(r);
  run_collect(r);
}

static void release(Run *r) {
  for (int i = 0; i < r->n_machines; i++) arena_free(&r->machine[i].arena);
  arena_free(&r->arena);
  pthread_mutex_destroy(&r->alloc.lock);
}

/* ---- both ------------------------------------------------------------------------------------------------- */

static bool run(Arena *a, Run *r, const IrKernel *k, const Arch *arch, const SimArg *args, void (*what)(Run *)) {
  Arena *into[] = {a, r->diags->arena, r->opt && r->opt->record ? r->opt->record : a}; /* the caller's */
  jmp_buf here, *oom[TL_COUNT(into)];
  r->sim.k = k;
  r->sim.arch = arch;
  r->sim.args = args;
  r->alloc.host = a->host;
  r->alloc.locked = (TlAlloc){locked_alloc, &r->alloc};
  pthread_mutex_init(&r->alloc.lock, NULL);
  arena_init(&r->arena, a->host, &here);
  for (size_t i = 0; i < TL_COUNT(into); i++) oom[i] = into[i]->oom;
  bool out_of_memory = setjmp(here) != 0;
  if (!out_of_memory) {
    for (size_t i = 0; i < TL_COUNT(into); i++) into[i]->oom = &here;
    what(r);
  }
  for (size_t i = 0; i < TL_COUNT(into); i++) into[i]->oom = oom[i];
  bool ok = r->ok && !out_of_memory;
  release(r);
  if (out_of_memory && oom[0]) longjmp(*oom[0], 1);
  return ok;
}

bool sim_run(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const SimArg *args, const SimOptions *opt,
             SimResult *out) {
  Run r;
  memset(&r, 0, sizeof r);
  memset(out, 0, sizeof *out);
  r.sim.checks = opt->checks;
  r.sim.schedule = opt->schedule;
  r.sim.max_faults = opt->max_faults > 0 ? opt->max_faults : 8;
  r.opt = r.sim.opt = opt;
  r.to = a;
  r.diags = d;
  r.result = out;
  return run(a, &r, k, arch, args, run_all);
}

bool sim_time(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const SimArg *args, const SimTimeOptions *opt,
              SimTime *out) {
  Run r;
  SimResult unused = {0};
  memset(&r, 0, sizeof r);
  memset(out, 0, sizeof *out);
  r.sim.max_faults = 8;
  r.diags = d;
  r.result = &unused;
  r.time_opt = opt;
  r.time = out;
  r.keep = a;
  return run(a, &r, k, arch, args, time_all);
}
