/* price.c - what an instruction costs, as numbers: ticks on its pipe, or a transfer through GM.
 *
 * The operands are resolved and checked as in a functional run (operand.c, `legal` of the op), then the formulas of
 * src/arch/time.c give the cycles. Most instructions of a loop come with the same operands again, so prices are
 * remembered by the values of the registers they depend on. Where in a tensor a transfer begins is not one of these:
 * that is checked and added each time. */
#include "timing.h"

#include <string.h>

/* ---- what a price depends on ---------------------------------------------------------------------------- */

static void add_key(PriceMemo *p, const bool *varies, int32_t reg) {
  if (p->n_keys < 0 || reg == NO_REG || !varies[reg]) return;
  for (int i = 0; i < p->n_keys; i++)
    if (p->key[i] == reg) return;
  if (p->n_keys == (int)TL_COUNT(p->key)) p->n_keys = -1;
  else p->key[p->n_keys++] = reg;
}

/* Registers that some code writes, and those of the block. */
static bool *varying(Clock *k, const Program *p) {
  bool *v = arena_array(k->arena, bool, p->n_reg);
  for (int32_t i = 0; i < p->n_code; i++) {
    const Code *q = &p->code[i];
    if (q->op != C_HALT && q->op != C_JMP && q->op != C_JZ && q->op != C_JNZ && q->op != C_LOOP && q->op != C_ISSUE &&
        q->op != C_STORE)
      v[q->d] = true;
  }
  const IrKernel *kn = k->sim->k;
  for (uint32_t g = 0; g < kn->grid.len; g++) v[kn->grid.data[g]->id] = true;
  if (kn->vid) v[kn->vid->id] = true;
  return v;
}

static void memo_gm(const Clock *k, PriceMemo *p, const bool *varies, const Reg *init, const Operand *o) {
  const SimBuf *b = &k->sim->buf[o->buf];
  for (int d = 0; d < b->rank; d++) {
    int32_t off = o->off[d];
    int64_t stride = b->stride[d] * b->size, param = (uint32_t)off < k->sim->k->vars.len ? k->sim->param[off].i : 0;
    if (!varies[off]) p->gm_at += (init[off].i + param) * stride; /* one of them is 0 */
    else p->off[p->n_off++] = (GmOffset){off, o->ext[d], b->shape[d], stride};
  }
}

static void memo_init(Clock *k, const bool *varies, const Reg *init, const Inst *i) {
  PriceMemo *p = &k->inst[i->id].memo;
  p->gm_arg = -1;
  if (i->op >= OP_COUNT) return;
  p->cost = arch_cost(&k->arch, op_info[i->op].cost);
  for (int a = 0; a < i->n_args; a++) {
    const Operand *o = &i->arg[a];
    const SimBuf *b = &k->sim->buf[o->buf];
    if (!o->buf) continue;
    if (b->space == SPACE_GM) p->gm_arg = (int16_t)a, memo_gm(k, p, varies, init, o);
    if (b->space == SPACE_GM && b->fractal) p->n_keys = -1;
    for (int d = 0; d < b->rank; d++) {
      if (b->space != SPACE_GM) add_key(p, varies, o->off[d]);
      add_key(p, varies, o->ext[d]);
    }
  }
}

void price_init(Clock *k) {
  for (int side = 0; side < 2; side++) {
    const Program *p = &k->sim->prog[side];
    if (!p->code) continue;
    bool *varies = varying(k, p);
    for (int32_t i = 0; i < p->n_inst; i++) memo_init(k, varies, p->init, &p->inst[i]);
  }
}

/* ---- vector instructions -------------------------------------------------------------------------------- */

/* What an operand touches in repeat r: `n` blocks of 32 bytes from block `at` of UB. */
typedef struct { int64_t at, n, step; } Blocks; /* step: blocks from repeat to repeat */

static Blocks blocks_of(const Core *c, const Entry *e, int a, int64_t rows) {
  const SimBuf *b = arg_buf(c, e->inst, a);
  const View *v = &e->v[a];
  int64_t bytes = v->count * b->size;
  Blocks k = {(b->addr + v->off) / 32, 8, 8};
  if (rows > 1 && !view_flat(v)) k.step = e->pitch[a] / 32;
  if (rows > 1) k.n = min_i64(ceil_div(bytes / max_i64(rows, 1), 32), 8);
  else if (bytes < 256) k.n = ceil_div(bytes, 32);
  if (e->block[a]) k.n = 1;
  return k;
}

static bool share_group(int64_t a, int64_t an, int64_t b, int64_t bn) {
  int64_t apart = (b - a) & 15;
  return apart < an || 16 - apart < bn;
}

/* UB of A2: 16 groups of 32-byte blocks, each with three banks of 64 KiB of addresses. Two reads in one group take
 * two cycles. A write and a read in one bank wait for each other, unless both start in the same bank: then the write
 * goes one repeat later. The pattern comes again after at most 16 repeats. */
static double bank_conflicts(const Clock *k, const Core *c, const Entry *e, int64_t repeats) {
  const Inst *i = e->inst;
  int out = i->n_args - 1, n = 0;
  Blocks x[MAX_ARGS];
  if (k->opt->no_bank_conflicts || !i->arg[out].buf) return 0;
  for (int a = 0; a < out; a++)
    if (i->arg[a].buf) x[n++] = blocks_of(c, e, a, e->rows);
  Blocks to = blocks_of(c, e, out, e->rows);
  int64_t seen = min_i64(repeats, 16), reads = 0, writes = 0;
  for (int64_t r = 0; r < seen; r++) {
    int64_t w = to.at + r * to.step;
    bool waits = false;
    for (int a = 0; a < n; a++) {
      int64_t s = x[a].at + r * x[a].step;
      if (a && share_group(x[0].at + r * x[0].step, x[0].n, s, x[a].n) && x[0].at != x[a].at) reads++;
      bool same_start = ((s ^ w) & 15) == 0, same_bank = s >> 11 == w >> 11;
      waits |= same_bank && !same_start && share_group(s, x[a].n, w, to.n);
    }
    writes += waits;
  }
  return (k->t.bank_read * (double)reads + k->t.bank_write * (double)writes) / (double)max_i64(seen, 1);
}

static double vector_cycles(const Clock *k, const Core *c, const Entry *e, const ArchCost *cost) {
  const Inst *i = e->inst;
  int64_t most = 0, rows = 1, repeats;
  int size = 1;
  for (int a = 0; a < i->n_args; a++) {
    if (!i->arg[a].buf) continue;
    const SimBuf *b = arg_buf(c, i, a);
    most = max_i64(most, e->v[a].count * b->size);
    size = b->size > size ? b->size : size;
    if (!view_flat(&e->v[a])) rows = max_i64(rows, e->rows);
  }
  if (!strcmp(cost->key, "v_wreduce")) rows = e->rows;
  repeats = max_i64(rows, ceil_div(most, k->arch.repeat_bytes));
  return k->t.v_start + arch_vector_cycles(cost, repeats, size, bank_conflicts(k, c, e, repeats));
}

/* ---- transfers through GM ------------------------------------------------------------------------------- */

static void transfer(const Clock *k, const Core *c, const Entry *e, int arg, Transfer *t) {
  const Inst *i = e->inst;
  const SimBuf *b = arg_buf(c, i, arg);
  const ArchTime *a = &k->t;
  int64_t row = e->cols * b->size;
  *t = (Transfer){.buf = i->arg[arg].buf, .write = arg >= i->n_in, .run = row, .rows = e->rows, .pitch = e->pitch[arg]};
  if (t->pitch == row && row) { /* one piece for L2 */
    t->run = row * e->rows;
    t->rows = 1;
  }
  double cycles, miss = 1;
  int64_t rows = e->rows;
  if (k->opt->long_rows) row *= rows, rows = 1;
  switch (i->op) {
  case OP_GM_TO_L1:
    cycles = arch_dma_cycles(a->l1_bus, a->l1_row, rows, row);
    miss = a->l1_miss_bus;
    break;
  case OP_GM_TO_UB:
    cycles = arch_dma_cycles(a->ub_bus, a->ub_row, rows, row);
    miss = a->ub_miss_bus;
    break;
  case OP_UB_TO_GM: cycles = arch_dma_cycles(a->out_bus, a->out_row, rows, row); break;
  default: cycles = (double)(rows * row) / a->fix_bus + ((row | t->pitch) % SECTOR ? (double)rows * a->fix_odd : 0);
  }
  t->head = ticks_of(i->pipe == PIPE_FIX ? a->fix_head : i->op == OP_GM_TO_L1 ? a->l1_head : a->dma_head);
  t->path = ticks_of(cycles);
  t->miss = t->write ? t->path : max_i64(t->path, ticks_of(arch_dma_cycles(miss, a->miss_row, rows, row)));
}

/* ---- the price ------------------------------------------------------------------------------------------ */

static double cycles_of(const Clock *k, const Core *c, const Entry *e, const ArchCost *cost) {
  const ArchTime *t = &k->t;
  const Inst *i = e->inst;
  const View *v = e->v;
  switch (i->op) {
  case OP_MMAD: return arch_mmad_cycles(t, arg_buf(c, i, 0)->type, v[2].rows, v[2].cols, v[0].cols);
  case OP_L0C_TO_L1: return arch_inner_cycles(t, i->op, v[0].count, arg_buf(c, i, 0)->size);
  case OP_L1_TO_L0A:
  case OP_L1_TO_L0B:
  case OP_L1_FILL: return arch_inner_cycles(t, i->op, v[1].count, arg_buf(c, i, 1)->size);
  default: return cost ? vector_cycles(k, c, e, cost) : 1;
  }
}

/* Multiplications and additions of a product; one for each element that a vector instruction makes. */
static int64_t ops_of(const Core *c, const Entry *e) {
  const View *v = e->v;
  if (e->inst->op == OP_MMAD)
    return 2 * v[2].rows * v[2].cols * v[0].cols * dtype_values(arg_buf(c, e->inst, 0)->type);
  return e->inst->pipe == PIPE_V ? v[e->inst->n_args - 1].count : 0;
}

static inline uint64_t hash_of(uint64_t hash, int64_t key) {
  return (hash ^ (uint64_t)key) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Where the price for these registers is, or would be. */
static inline Priced *place_of(const PriceMemo *p, const Reg *reg) {
  uint64_t hash = 0;
  for (int x = 0; x < p->n_keys; x++) hash = hash_of(hash, reg[p->key[x]].i);
  for (hash >>= 32;; hash++) {
    Priced *s = &p->seen[hash & p->mask];
    int same = 0;
    while (same < p->n_keys && s->key[same] == reg[p->key[same]].i) same++;
    if (same == p->n_keys || !s->valid) return s;
  }
}

static void move_prices(PriceMemo *p, const Priced *old, int64_t n) {
  for (const Priced *end = old + n; old != end; old++) {
    uint64_t hash = 0;
    if (!old->valid) continue;
    for (int x = 0; x < p->n_keys; x++) hash = hash_of(hash, old->key[x]);
    for (hash >>= 32; p->seen[hash & p->mask].valid;) hash++;
    p->seen[hash & p->mask] = *old;
  }
}

/* A place for a price; NULL: there is none any more. */
static Price *remember(Clock *k, PriceMemo *p, const Reg *reg) {
  int64_t n = p->seen ? p->mask + 1 : 0, more = !p->n_keys ? 1 : n ? 4 * n : 4;
  if (p->n_seen * 2 >= n) {
    const Priced *old = p->seen;
    if (more > MOST_PRICES) return NULL;
    p->seen = arena_array(k->arena, Priced, more);
    p->mask = (uint32_t)(more - 1);
    move_prices(p, old, n);
  }
  Priced *to = place_of(p, reg);
  for (int x = 0; x < p->n_keys; x++) to->key[x] = reg[p->key[x]].i;
  to->valid = true;
  p->n_seen++;
  return &to->price;
}

/* Where in its tensor a transfer begins; false: it leaves the tensor. */
static inline bool gm_place(const PriceMemo *p, const Core *c, int64_t *at) {
  *at = p->gm_at;
  for (int d = 0; d < p->n_off; d++) {
    int64_t off = c->reg[p->off[d].off].i;
    if (off < 0 || off > p->off[d].shape - c->reg[p->off[d].ext].i) return false;
    *at += off * p->off[d].stride;
  }
  return true;
}

static bool work_out(Clock *k, Core *c, const TimeInst *x, TimeEntry *to, Price *price) {
  const Inst *i = x->inst;
  Entry e = {.inst = i};
  bool runs = resolve(c, i, &e) && !e.dead && i->impl->legal(c, &e);
  *price = (Price){.ticks = runs ? 0 : -1};
  if (!runs) return false;
  if (x->kind == TIME_GM) {
    transfer(k, c, &e, x->memo.gm_arg, &price->gm);
    to->at = e.v[x->memo.gm_arg].off;
    if (k->opt->no_latency || (k->opt->copy_only && i->pipe == PIPE_FIX)) price->gm.head = 0;
  } else {
    price->ops = ops_of(c, &e);
    price->ticks = k->opt->copy_only ? 0 : ticks_of(cycles_of(k, c, &e, x->memo.cost));
  }
  return true;
}

static TL_APART bool price_new(Clock *k, Core *c, TimeInst *x, TimeEntry *to) {
  Price price;
  bool runs = work_out(k, c, x, to, &price);
  if (x->kind == TIME_GM && !runs) return false;
  Price *place = x->memo.n_keys >= 0 ? remember(k, &x->memo, c->reg) : NULL;
  TimePipe *q = &c->time->pipe[x->inst->pipe];
  if (!place && !q->own) q->own = arena_array(k->arena, Price, k->depth);
  if (!place) place = &q->own[to - q->first];
  *place = price;
  to->price = place;
  return runs;
}

bool price_of(Clock *k, Core *c, TimeInst *x, TimeEntry *to) {
  const PriceMemo *p = &x->memo;
  const Priced *seen = p->seen ? place_of(p, c->reg) : NULL;
  if (!seen || !seen->valid) return price_new(k, c, x, to);
  to->price = &seen->price;
  if (x->kind == TIME_WORK) return seen->price.ticks >= 0;
  return gm_place(p, c, &to->at) || price_new(k, c, x, to);
}
