/* run.c - one run of a kernel: arguments become buffers, the tree becomes two programs, workers take blocks one after
 * another.
 *
 * Every worker thread owns a machine (the cores of one block) and an arena. Blocks are independent, so results do not
 * depend on which worker runs which block; kernels that add atomically run on one thread, for the order of float
 * additions shows. Kernels that wait across blocks (sync_all, cross-core flags of mode 0) run as one machine with all
 * cores of the launch.
 *
 * Faults are put in the order of blocks, not of time, and cut at max_faults: a block that found that many stops the
 * blocks after it, never one before. So the messages too are the same for any number of threads. */
#include "timing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { pthread_mutex_t lock; const TlAlloc *host; TlAlloc locked; } SharedAlloc;

typedef struct {
  Sim sim;
  Arena arena;      /* of the run, used by one thread only */
  Arena *to;        /* the caller's */
  Machine *machine;
  int n_machines;
  SharedAlloc alloc;
  const SimOptions *opt;
  Diags *diags;
  SimResult *result;
  const SimTimeOptions *time_opt; /* a timed run: no data needed */
  SimTime *time;
  Arena *keep;      /* where the timed run's result lives */
  bool ok;
} Run;

static void *locked_alloc(void *user, void *old, size_t size) {
  SharedAlloc *s = user;
  pthread_mutex_lock(&s->lock);
  void *p = s->host->alloc(s->host->user, old, size);
  pthread_mutex_unlock(&s->lock);
  return p;
}

/* ---- buffers -------------------------------------------------------------------------------------------- */

static bool shape_ok(Run *r, SimBuf *b, const SimArg *arg) {
  const IrBuf *ir = b->ir;
  for (int d = 0; d < b->rank; d++) {
    int64_t want;
    if (!eval_const(r->sim.k, r->sim.param, ir->shape[d], &want)) {
      diag_add(r->diags, DIAG_SIM_ARG, ir->loc, "dimension %d of %%%s cannot be computed from the scalar arguments", d,
               ir->name);
      return false;
    }
    b->shape[d] = max_i64(want, 0);
    if (arg && arg->shape[d] != b->shape[d]) {
      Diag *g = diag_add(r->diags, DIAG_SIM_ARG, ir->loc, "dimension %d of %%%s is %lld, the kernel wants %lld", d,
                         ir->name, (long long)arg->shape[d], (long long)b->shape[d]);
      diag_fix(r->diags, g, "pass a tensor whose shape agrees with the scalar arguments");
      return false;
    }
  }
  return true;
}

static bool too_large(Run *r, const IrBuf *b) {
  diag_add(r->diags, DIAG_SIM_ARG, b->loc, "%%%s is larger than the simulator can address", b->name);
  return false;
}

/* Strides; for fractal layouts the last two dimensions are a plane padded to whole fractals. */
static bool lay_out(Run *r, SimBuf *b) {
  int64_t n = 1;
  b->fractal = b->ir->layout != LAYOUT_ND;
  for (int d = b->rank - 1; d >= 0; d--) {
    int64_t extent = b->shape[d];
    if (b->fractal && d == b->rank - 1) {
      int64_t c0 = b->space == SPACE_L0C ? 16 : 32 / b->size;
      b->frow = b->layout == LAYOUT_ZN ? c0 : 16;
      b->fcol = b->layout == LAYOUT_ZN ? 16 : c0;
      extent = b->pcol = round_up(b->shape[d], b->fcol);
      b->prow = b->rank > 1 ? round_up(b->shape[d - 1], b->frow) : b->frow;
      if (b->rank == 1) extent *= b->prow;
    } else if (b->fractal && d == b->rank - 2) {
      extent = b->prow;
    }
    b->stride[d] = n;
    if (extent && n > INT64_MAX / 16 / extent) return too_large(r, b->ir);
    n *= extent;
  }
  b->bytes = n * b->size;
  if (b->space != SPACE_GM) b->bytes = round_up(b->bytes, 32);
  return true;
}

static bool bind_local(Run *r, SimBuf *b) {
  Sim *s = &r->sim;
  const IrBuf *ir = b->ir;
  int64_t there = s->arch->space[b->space].physical;
  if (!space_info[b->space].physical || ir->addr < 0) {
    Diag *g = diag_add(r->diags, DIAG_SIM_OPERAND, ir->loc, "%%%s has no %s yet", ir->name,
                       ir->addr < 0 ? "address" : "memory");
    diag_fix(r->diags, g, "run all passes first, or write `at` with an address");
    return false;
  }
  b->addr = ir->addr;
  if (b->bytes > there || b->addr > there - b->bytes) {
    diag_add(r->diags, DIAG_SIM_BOUNDS, ir->loc, "%%%s takes bytes %lld to %lld of %s, which has %lld bytes on %s",
             ir->name, (long long)b->addr, (long long)(b->addr + b->bytes - 1), space_info[b->space].name,
             (long long)there, s->arch->name);
    return false;
  }
  int32_t align = b->space == SPACE_L0C ? 64 : s->arch->space[b->space].align;
  if (b->fractal && b->space != SPACE_L1 && b->addr % align) {
    diag_add(r->diags, DIAG_SIM_ALIGN, ir->loc, "%%%s starts at byte %lld of %s, not a multiple of %d", ir->name,
             (long long)b->addr, space_info[b->space].name, align);
    return false;
  }
  if (b->addr % 32) {
    diag_add(r->diags, DIAG_SIM_ALIGN, ir->loc, "%%%s starts at byte %lld of %s, not a multiple of 32", ir->name,
             (long long)b->addr, space_info[b->space].name);
    return false;
  }
  s->used[b->space] = max_i64(s->used[b->space], round_up(b->addr + b->bytes, 32));
  return true;
}

static bool note_alloc(IrStmt *s, void *user) {
  if (s->op == ST_ALLOC) ((bool *)user)[s->alloc.buf->id] = true;
  return true;
}

/* Numbers the local buffers that share bytes with another one; a view counts as what it views. */
static void number_owners(Sim *s) {
  int n[SPACE_COUNT] = {0};
  for (uint32_t i = 1; i < s->n_buf; i++) {
    SimBuf *a = &s->buf[i];
    if (!a->ir || a->space == SPACE_GM || a->ir->view) continue;
    for (uint32_t j = 1; j < s->n_buf && !a->owner; j++) {
      const SimBuf *b = &s->buf[j];
      bool shares = j != i && b->ir && !b->ir->view && b->space == a->space && b->addr < a->addr + a->bytes &&
                    a->addr < b->addr + b->bytes;
      if (shares && n[a->space] < MAX_OWNERS) a->owner = (uint8_t)++n[a->space];
    }
  }
  for (uint32_t i = 1; i < s->n_buf; i++)
    if (s->buf[i].ir && s->buf[i].ir->view) s->buf[i].owner = s->buf[ir_root((IrBuf *)s->buf[i].ir)->id].owner;
}

static int by_place(const void *x, const void *y) {
  const SimBuf *a = *(SimBuf *const *)x, *b = *(SimBuf *const *)y;
  if (a->gm != b->gm) return a->gm < b->gm ? -1 : 1;
  return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* Tensors of the caller that share bytes: the same one for two parameters, or parts of one that overlap. */
static void find_shared(Run *r) {
  Sim *s = &r->sim;
  SimBuf **list = arena_array(&r->arena, SimBuf *, s->n_buf + 1), *first = NULL;
  const uint8_t *end = NULL;
  int n = 0;
  for (uint32_t i = 1; i < s->n_buf; i++) {
    SimBuf *b = &s->buf[i];
    b->share = b->tensor;
    if (b->space == SPACE_GM && b->tensor == i && b->gm && b->bytes) list[n++] = b;
  }
  if (n) qsort(list, (size_t)n, sizeof *list, by_place);
  for (int i = 0; i < n; i++) {
    if (!first || list[i]->gm >= end) first = list[i];
    list[i]->share = first->tensor;
    list[i]->addr = list[i]->gm - first->gm;
    if (list[i] == first || list[i]->gm + list[i]->bytes > end) end = list[i]->gm + list[i]->bytes;
  }
  for (uint32_t i = 1; i < s->n_buf; i++) {
    SimBuf *b = &s->buf[i], *root = &s->buf[b->tensor];
    if (b->space != SPACE_GM || b == root) continue;
    b->share = root->share;
    b->addr = root->addr;
  }
}

static bool bind_buffers(Run *r) {
  Sim *s = &r->sim;
  const IrKernel *k = s->k;
  bool *allocated = arena_array(&r->arena, bool, k->bufs.len + 1);
  ir_walk((IrBlock *)&k->body, note_alloc, allocated);
  s->n_buf = k->bufs.len;
  s->buf = arena_array(&r->arena, SimBuf, s->n_buf + 1);
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    const IrBuf *ir = k->bufs.data[i];
    SimBuf *b = &s->buf[i];
    if (!ir || (ir->space != SPACE_GM && !allocated[i])) continue; /* passes dropped it */
    *b = (SimBuf){.ir = ir,
                  .space = ir->space,
                  .layout = ir->layout,
                  .type = ir->type,
                  .size = dtype_size(ir->type),
                  .rank = ir->rank};
    const SimArg *arg = ir->space == SPACE_GM && ir->param >= 0 ? &s->args[ir->param] : NULL;
    if (!shape_ok(r, b, arg) || !lay_out(r, b)) return false;
    if (ir->space != SPACE_GM) {
      if (!bind_local(r, b)) return false;
      continue;
    }
    if (ir->view) continue; /* bound below */
    b->gm = arg ? arg->data : NULL;
    b->undefined = ir->is_out || ir->is_work;
    if (b->bytes && !b->gm && !r->time) {
      diag_add(r->diags, DIAG_SIM_ARG, ir->loc, "no data was passed for %%%s (%lld bytes)", ir->name,
               (long long)b->bytes);
      return false;
    }
  }
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    SimBuf *b = &s->buf[i], *root = b->ir ? &s->buf[ir_root(k->bufs.data[i])->id] : NULL;
    if (!root || b->space != SPACE_GM) continue;
    b->tensor = root->ir->id;
    b->gm = root->gm;
    if (b->bytes <= root->bytes) continue;
    diag_add(r->diags, DIAG_SIM_ARG, b->ir->loc, "%%%s takes %lld bytes, %%%s, of which it is a view, has %lld",
             b->ir->name, (long long)b->bytes, root->ir->name, (long long)root->bytes);
    return false;
  }
  find_shared(r);
  return true;
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

/* Which tensors need a shadow, a log; is anything added atomically? */
static bool survey(Run *r) {
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

static int32_t chip_cores(const Sim *s) {
  return s->k->cores == CORES_VECTOR && !s->k->vid ? s->arch->aiv : s->arch->aic;
}

static bool launch_ok(Run *r) {
  Sim *s = &r->sim;
  if (!s->together || s->blocks <= chip_cores(s)) return true;
  Diag *g = diag_add(
      r->diags, DIAG_SIM_LAUNCH, s->k->loc,
      "the blocks of this kernel wait for each other, but %lld blocks do not run at once on the %d cores of %s",
      (long long)s->blocks, chip_cores(s), s->arch->name);
  diag_fix(r->diags, g, "launch at most %d blocks and let each loop over its share of the work", chip_cores(s));
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

/* A read that came too early finds no value, or another one, and races with the write to come: that is the fault. And a
 * pipe that does not wait for another one in an access does not do so before it sets its flag again. */
static bool is_consequence(const FaultList *l, const Fault *u) {
  bool early = u->code == DIAG_SIM_UNINIT || u->code == DIAG_SIM_LOST, twice = u->code == DIAG_SIM_FLAG_TWICE;
  for (uint32_t i = 0; i < l->len && (early || twice); i++) {
    const Fault *r = &l->data[i];
    if (r->code != DIAG_SIM_RACE || r->block > u->block) continue;
    if (early && (r->at == u->at || r->with == u->at)) return true;
    if (twice && u->at->sync.src == pipe_of(r->at) && u->at->sync.dst == pipe_of(r->with)) return true;
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

static void collect(Run *r) {
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

/* Is the value of this element known without running the kernel? */
static bool known_element(const Sim *s, const Element *el) {
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

/* Which elements a timed run has to be told. True: there are any. */
static bool mark_kept(Run *r) {
  bool any = false;
  for (int side = 0; side < 2; side++) {
    const Program *p = &r->sim.prog[side];
    if (!p->code || !p->n_elem) continue;
    const bool *needed = needed_registers(r, p);
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      if (q->op != C_LOAD || !needed[q->d] || known_element(&r->sim, &p->elem[q->a])) continue;
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
  if (mark_kept(r)) s->values->reads = arena_array(r->opt->record, Reads, s->blocks * s->cores_per_block);
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

/* Arguments, buffers, programs. False: reported, or there is nothing to run (then r->ok). */
static bool prepare(Run *r) {
  Sim *s = &r->sim;
  if (s->k->level != LEVEL_LOWERED || s->k->cores == CORES_UNSET) {
    Diag *g = diag_add(r->diags, DIAG_WRONG_STAGE, s->k->loc,
                       "the simulator runs lowered programs; @%s is at source level", s->k->name);
    diag_fix(r->diags, g, "lower it first");
    return false;
  }
  s->param = eval_params(&r->arena, s->k, s->args);
  if (!eval_grid(r) || !bind_buffers(r) || !build_programs(r) || !launch_ok(r)) return false;
  number_owners(s);
  r->ok = true;
  s->host = host_kernels();
  return s->blocks && s->cores_per_block;
}

static void run_all(Run *r) {
  Sim *s = &r->sim;
  bool any = prepare(r);
  if (r->ok) say_around(s, r->to, SAY_BEFORE, r->result);
  if (!any) {
    if (r->ok && s->checks && s->blocks == 0) find_unwritten(s, &r->arena, r->diags, NULL, 0);
    return;
  }
  r->result->blocks = s->blocks;
  r->result->cores_used = (int32_t)min_i64(s->blocks, chip_cores(s));
  atomic_store(&s->next, 0);
  atomic_store(&s->last, INT64_MAX);
  bool atomic = survey(r);
  if (s->checks) watch_reads(s);
  begin_values(r);
  run_workers(r, thread_count(r, atomic));
  for (int i = 0; i < r->n_machines; i++)
    if (r->machine[i].out_of_memory) longjmp(*r->arena.oom, 1);
  say_collect(r->to, r->machine, r->n_machines, r->result);
  say_around(s, r->to, SAY_AFTER, r->result);
  save_values(r);
  collect(r);
}

static void release(Run *r) {
  for (int i = 0; i < r->n_machines; i++) arena_free(&r->machine[i].arena);
  arena_free(&r->arena);
  pthread_mutex_destroy(&r->alloc.lock);
}

/* ---- time ------------------------------------------------------------------------------------------------ */

/* "name=value,..." into the timing table of this run. */
static bool set_constants(Run *r, ArchTime *t, const char *text) {
  while (text && *text) {
    size_t n = strcspn(text, "=");
    double *field = text[n] ? arch_time_field(t, arena_strn(&r->arena, text, n)) : NULL;
    char *end = NULL;
    double v = field ? strtod(text + n + 1, &end) : 0;
    if (!field || end == text + n + 1 || (*end && *end != ',') || !(v >= 0 && v < 1e12)) {
      Text names;
      text_init(&names, &r->arena);
      for (int i = 0; arch_time_name(i); i++) text_printf(&names, "%s%s", i ? ", " : "", arch_time_name(i));
      Diag *g = diag_add(r->diags, DIAG_TIME_CONSTANT, r->sim.k->loc,
                         "'%s' is not NAME=VALUE with the name of a time and a number", text);
      diag_fix(r->diags, g, "names: %s", text_str(&names));
      return false;
    }
    *field = v;
    text = end + (*end == ',');
  }
  return true;
}

/* Registers whose value comes from an element that is not known; elem: which, plus one. */
static int32_t *unknown_registers(Run *r, const Program *p) {
  int32_t *elem = arena_array(&r->arena, int32_t, p->n_reg);
  for (bool again = true; again;) {
    again = false;
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      int32_t from = 0;
      if (q->op == C_LOAD) from = known_element(&r->sim, &p->elem[q->a]) ? 0 : q->a + 1;
      else if (q->op == C_MOV || q->op == C_CAST || q->op == C_BITS) from = elem[q->a];
      else if (q->op == C_STEP) from = elem[q->b];
      else if (q->op >= C_INT) from = elem[q->a] ? elem[q->a] : elem[q->b];
      else continue;
      if (!from || elem[q->d]) continue;
      elem[q->d] = from;
      again = true;
    }
  }
  return elem;
}

static bool report_unknown(Run *r, const Program *p, int32_t elem, const IrStmt *at, const char *what) {
  const Element *el = &p->elem[elem - 1];
  const SimBuf *b = &r->sim.buf[el->buf];
  Diag *g = diag_add(r->diags, DIAG_TIME_DATA, at->loc, "%s depends on a value of %%%s, which is not known without %s",
                     what, b->ir->name, b->space == SPACE_GM && !b->written ? "data" : "running the kernel");
  diag_other(r->diags, g, el->stmt->loc, "read here");
  diag_fix(r->diags, g, "pass the tensors, not their shapes alone: the kernel runs, and the clock follows it");
  return false;
}

/* What the clock does must not hang on data it does not have: an unknown value reads as 0, and that may only move an
 * address. */
static bool data_known(Run *r) {
  for (int side = 0; side < 2; side++) {
    const Program *p = &r->sim.prog[side];
    if (!p->code || !p->n_elem) continue;
    const int32_t *elem = unknown_registers(r, p);
    for (int32_t i = 0; i < p->n_code; i++) {
      const Code *q = &p->code[i];
      int32_t from = 0;
      if (q->op == C_JZ || q->op == C_JNZ) from = elem[q->a];
      if (q->op == C_LOOP) from = elem[q->d] ? elem[q->d] : elem[q->a] ? elem[q->a] : elem[q->b];
      if (from) return report_unknown(r, p, from, p->code_stmt[i], "how often this runs");
    }
    for (int32_t i = 0; i < p->n_inst; i++) {
      const Inst *x = &p->inst[i];
      for (int a = 0; a < x->n_args; a++)
        for (int d = 0; x->arg[a].buf && d < r->sim.buf[x->arg[a].buf].rank; d++)
          if (elem[x->arg[a].ext[d]]) return report_unknown(r, p, elem[x->arg[a].ext[d]], x->stmt, "a size");
    }
  }
  return true;
}

static void time_cores(const Clock *k, SimTime *out, Arena *a) {
  out->n_cores = k->m->n_cores;
  out->core = arena_array(a, SimTimeCore, out->n_cores + 1);
  int32_t number[2] = {0, 0};
  for (int32_t n = 0; n < out->n_cores; n++) {
    const TimeCore *t = &k->core[n];
    bool vector = k->m->core[n].vid >= 0;
    SimTimeCore *o = &out->core[n];
    *o = (SimTimeCore){vector ? 'v' : 'c', number[vector]++, t->blocks, t->start, t->end, {0}, {{0}}};
    memcpy(o->busy, t->busy, sizeof t->busy);
    memcpy(o->idle, t->idle, sizeof t->idle);
  }
}

/* The elements of a statement are one row. */
static void time_elements(const Clock *k, const Program *p, SimTime *out) {
  SimTimeStmt *o = NULL;
  for (int32_t i = 0; i < p->n_elem; i++) {
    const Element *el = &p->elem[i];
    const InstTime *t = &k->inst[el->id];
    if (el->peek) continue;
    if (!o || o->stmt != el->stmt) {
      o = &out->stmt[out->n_stmts++];
      *o = (SimTimeStmt){.stmt = el->stmt, .side = p->side, .pipe = PIPE_S};
    }
    k->number[el->id] = out->n_stmts - 1;
    o->count = max_i64(o->count, t->count);
    o->busy += t->scalar;
  }
}

static void time_stmts(const Clock *k, SimTime *out, Arena *a) {
  const Program *prog = k->sim->prog;
  out->stmt = arena_array(a, SimTimeStmt, prog[0].n_inst + prog[1].n_inst + prog[0].n_elem + prog[1].n_elem + 1);
  for (int side = 0; side < 2; side++) {
    for (int32_t i = 0; i < prog[side].n_inst; i++) {
      const Inst *x = &prog[side].inst[i];
      const InstTime *t = &k->inst[x->id];
      k->number[x->id] = out->n_stmts;
      SimTimeStmt *o = &out->stmt[out->n_stmts++];
      *o = (SimTimeStmt){.stmt = x->stmt, .side = prog[side].side, .pipe = (Pipe)x->pipe, .count = t->count,
                         .busy = t->busy, .slowed = t->slowed, .gm_bytes = t->gm_bytes, .gm_most = t->gm_most,
                         .gm_rows = t->gm_rows, .ops = t->ops, .scalar = t->scalar};
      memcpy(o->idle, t->idle, sizeof t->idle);
    }
    time_elements(k, &prog[side], out);
  }
}

static void time_all(Run *r) {
  Sim *s = &r->sim;
  SimTime *out = r->time;
  out->mhz = s->arch->mhz;
  if (!prepare(r)) return;
  survey(r);
  const SimValues *follow = r->time_opt->follow;
  if (follow && follow->blocks == s->blocks && follow->cores == s->cores_per_block) {
    s->values = (SimValues *)follow; /* read only: the clock takes from it */
    mark_kept(r);
  } else if (!data_known(r)) {
    r->ok = false;
    return;
  }
  Clock *k = arena_new(&r->arena, Clock);
  SimTimeOptions o = *r->time_opt;
  if (!o.max_events) o.max_events = 1000000;
  r->machine = arena_new(&r->arena, Machine);
  r->n_machines = 1;
  r->machine->sim = s;
  arena_init(&r->machine->arena, r->arena.host, r->arena.oom);
  *k = (Clock){.sim = s, .m = r->machine, .arena = &r->machine->arena, .arch = *s->arch, .opt = &o};
  k->t = arch_time(s->arch);
  if (!set_constants(r, &k->t, o.constants)) {
    r->ok = false;
    return;
  }
  k->memo = arena_array(k->arena, PriceMemo, s->n_ids);
  k->inst = arena_array(k->arena, InstTime, s->n_ids);
  k->number = arena_array(k->arena, int32_t, s->n_ids);
  k->n_groups = (int32_t)min_i64(s->blocks, chip_cores(s));
  clock_run(k);
  collect(r);
  out->ticks = k->end;
  out->us = (double)k->end / TICKS / s->arch->mhz;
  out->blocks = s->blocks;
  out->instructions = k->issued;
  out->gm_read_bytes = k->m->gm_read;
  out->gm_write_bytes = k->m->gm_write;
  out->l2_hit_bytes = k->mem.hit_bytes;
  out->l2_miss_bytes = k->mem.miss_bytes;
  out->hbm_write_bytes = k->mem.dirtied;
  out->write_back_bytes = k->mem.write_back;
  out->groups = k->n_groups;
  out->groups_there = chip_cores(s);
  time_cores(k, out, r->keep);
  time_stmts(k, out, r->keep);
  out->n_events = k->events.len;
  out->event = arena_array(r->keep, SimTimeEvent, out->n_events + 1);
  for (int64_t e = 0; e < out->n_events; e++) {
    out->event[e] = k->events.data[e];
    out->event[e].stmt = k->number[out->event[e].stmt];
  }
}

/* ---- both ------------------------------------------------------------------------------------------------- */

static bool run(Arena *a, Run *r, const IrKernel *k, const Arch *arch, const SimArg *args, void (*what)(Run *)) {
  jmp_buf here, *oom_a = a->oom, *oom_d = r->diags->arena->oom;
  r->sim.k = k;
  r->sim.arch = arch;
  r->sim.args = args;
  r->alloc.host = a->host;
  r->alloc.locked = (TlAlloc){locked_alloc, &r->alloc};
  pthread_mutex_init(&r->alloc.lock, NULL);
  arena_init(&r->arena, a->host, &here);
  bool out_of_memory = setjmp(here) != 0;
  if (!out_of_memory) {
    a->oom = r->diags->arena->oom = &here;
    what(r);
  }
  a->oom = oom_a;
  r->diags->arena->oom = oom_d;
  bool ok = r->ok && !out_of_memory;
  release(r);
  if (out_of_memory && oom_a) longjmp(*oom_a, 1);
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
