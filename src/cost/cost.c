/* cost.c - the least that each pipe and the memory must do, from the lowered program.
 *
 * A walk over the program sums, for every pipe, the least cycles of its instructions (the formulas of arch/time.c with
 * everything in the way taken out) times how often they run at least. Quantities are intervals: of a loop whose index
 * decides about conditions or extents the first and the last iteration are walked alone and the rest as one interval;
 * so tails and skewed pipelines count exactly. Blocks are divided alike: the last along each axis of the grid, and the
 * others in a few parts. What cannot be known (a value read from memory) counts as the least it can be.
 *
 * The work of all blocks over the cores there is what a pipe needs at least; pipes may overlap, so the bound is the
 * largest of them, not their sum. */
#include "cost.h"

#include <string.h>

enum { PARTS = 8, MAX_SPLIT = 6 }; /* parts of an axis; loops within each other that are walked in three parts */

typedef struct {
  const IrKernel *k;
  const Arch *arch;
  ArchTime t;
  IrRange *var;                  /* by variable id */
  bool *steers;                  /* by variable id: a condition, an extent or a loop depends on it */
  double (*cycles)[PIPE_COUNT];  /* by side */
  double gm_bytes;
  int side, split; /* loops under way that are walked in parts */
} Walk;

/* ---- intervals ------------------------------------------------------------------------------------------------ */

static int64_t clamp(__int128 v) {
  return v < INT64_MIN / 4 ? INT64_MIN / 4 : v > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)v;
}

static IrRange known(const void *walk, const IrVar *v, int depth) {
  (void)depth;
  return ((const Walk *)walk)->var[v->id];
}

static IrRange range_of(const Walk *w, const IrExpr *e) { return ir_range_in(e, known, w, 0); }

/* ---- which variables steer ------------------------------------------------------------------------------------ */

static void mark_var(IrExpr *e, void *user) {
  if (e->op == EX_VAR) ((Walk *)user)->steers[e->var->id] = true;
}

static bool mark(IrStmt *s, void *user) {
  if (s->op == ST_IF || s->op == ST_WHILE) ir_walk_expr(s->test.cond, mark_var, user);
  if (s->op == ST_LET || s->op == ST_VAR || s->op == ST_ASSIGN) ir_walk_expr(s->set.value, mark_var, user);
  if (s->op == ST_FOR) {
    ir_walk_expr(s->loop.lo, mark_var, user);
    ir_walk_expr(s->loop.hi, mark_var, user);
  }
  for (int i = 0; i < s->n_args; i++)
    for (int d = 0; s->args[i].kind == ARG_REGION && d < s->args[i].region.buf->rank; d++)
      ir_walk_expr(s->args[i].region.ext[d], mark_var, user);
  return true;
}

/* ---- instructions --------------------------------------------------------------------------------------------- */

static int64_t extent(const Walk *w, const IrRegion *r, int d) { return max_i64(range_of(w, r->ext[d]).lo, 0); }

static int64_t count(const Walk *w, const IrRegion *r) {
  int64_t n = 1;
  for (int d = 0; d < r->buf->rank; d++) n = clamp((__int128)n * extent(w, r, d));
  return n;
}

static double bytes_of(const Walk *w, const IrRegion *r) { return (double)count(w, r) * dtype_size(r->buf->type); }

/* The tensor a statement moves to or from, or NULL. */
static const IrRegion *gm_of(const IrStmt *s) {
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION && s->args[i].region.buf->space == SPACE_GM) return &s->args[i].region;
  return NULL;
}

static double vector_cycles(const Walk *w, const IrStmt *s) {
  const ArchCost *c = arch_cost(w->arch, op_info[s->op].cost);
  double bytes = 0;
  int size = 1;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    double b = bytes_of(w, &s->args[i].region);
    int z = dtype_size(s->args[i].region.buf->type);
    bytes = b > bytes ? b : bytes;
    size = z > size ? z : size;
  }
  if (!c || bytes <= 0) return 0;
  return arch_vector_cycles(c, (int64_t)((bytes + w->arch->repeat_bytes - 1) / w->arch->repeat_bytes), size, 0);
}

static double cycles_of(const Walk *w, const IrStmt *s) {
  const ArchTime *t = &w->t;
  const IrRegion *gm = gm_of(s), *out = &s->args[s->n_args - 1].region;
  if (gm) {
    double bytes = bytes_of(w, gm);
    double bus = s->op == OP_GM_TO_L1 ? t->l1_bus : s->op == OP_GM_TO_UB ? t->ub_bus : s->op == OP_UB_TO_GM ? t->out_bus
                                                                                                         : t->fix_bus;
    return bytes > 0 ? bytes / bus : 0;
  }
  if (s->op == OP_MMAD) {
    const IrRegion *a = &s->args[0].region;
    int64_t n = extent(w, out, out->buf->rank - 1), m = n ? count(w, out) / n : 0;
    int64_t k = extent(w, a, a->buf->rank - 1);
    return m && n && k ? arch_mmad_cycles(t, a->buf->type, m, n, k) : 0;
  }
  if (op_info[s->op].pipe == PIPE_V) return vector_cycles(w, s);
  return arch_inner_cycles(t, s->op, count(w, s->op == OP_L0C_TO_L1 ? &s->args[0].region : out),
                           dtype_size(out->buf->type));
}

/* ---- the walk ------------------------------------------------------------------------------------------------- */

static void walk(Walk *w, const IrBlock *b, double n);

static bool leaves(IrStmt *s, void *user) {
  (void)user;
  return s->op != ST_BREAK && s->op != ST_CONTINUE;
}

static void walk_loop(Walk *w, const IrStmt *s, double n) {
  IrRange lo = range_of(w, s->loop.lo), hi = range_of(w, s->loop.hi), step = range_of(w, s->loop.step);
  IrRange *v = &w->var[s->loop.var->id];
  if (step.lo != step.hi || step.lo <= 0 || !ir_walk((IrBlock *)&s->body, leaves, NULL)) return;
  if (hi.lo <= lo.hi) return;
  int64_t trips = clamp(((__int128)hi.lo - lo.hi + step.lo - 1) / step.lo), last = lo.hi + (trips - 1) * step.lo;
  bool exact = lo.lo == lo.hi && hi.lo == hi.hi;
  bool parts = w->split < MAX_SPLIT && exact && w->steers[s->loop.var->id];
  w->split += parts;
  if (!parts || trips < 3) {
    *v = (IrRange){lo.lo, max_i64(hi.hi - 1, lo.lo)};
    if (parts)
      for (int64_t i = 0, x; i < trips; i++) x = lo.lo + i * step.lo, *v = (IrRange){x, x}, walk(w, &s->body, n);
    else walk(w, &s->body, n * (double)trips);
    w->split -= parts;
    return;
  }
  *v = (IrRange){lo.lo, lo.lo};
  walk(w, &s->body, n);
  *v = (IrRange){lo.lo + step.lo, last - step.lo};
  walk(w, &s->body, n * (double)(trips - 2));
  *v = (IrRange){last, last};
  walk(w, &s->body, n);
  w->split--;
}

static void walk_stmt(Walk *w, const IrStmt *s, double n) {
  IrRange c;
  switch (s->op) {
  case ST_FOR: walk_loop(w, s, n); return;
  case ST_IF:
    c = range_of(w, s->test.cond);
    if (c.lo > 0) walk(w, &s->body, n);
    else if (c.hi == 0) walk(w, &s->alt, n);
    return;
  case ST_LET: w->var[s->set.var->id] = range_of(w, s->set.value); return;
  case ST_VAR:
  case ST_ASSIGN: w->var[s->set.var->id] = IR_OPEN; return;
  default: break;
  }
  if (!ir_is_op(s)) return;
  const IrRegion *gm = gm_of(s);
  w->cycles[w->side][op_info[s->op].pipe] += n * cycles_of(w, s);
  w->cycles[w->side][PIPE_S] += n * w->t.issue;
  if (gm) w->gm_bytes += n * bytes_of(w, gm);
}

static void walk(Walk *w, const IrBlock *b, double n) {
  for (const IrStmt *s = b->first; s; s = s->next) walk_stmt(w, s, n);
}

/* Both vector cores of a block, or the one. */
static void walk_block(Walk *w, double n) {
  const IrKernel *k = w->k;
  for (const IrStmt *s = k->body.first; s; s = s->next) {
    if (s->op == ST_CUBE) {
      w->side = 0;
      walk(w, &s->body, n);
    } else if (s->op == ST_VECTOR) {
      w->side = 1;
      for (int v = 0; v < (k->vid ? 2 : 1); v++) {
        if (k->vid) w->var[k->vid->id] = (IrRange){v, v};
        walk(w, &s->body, n);
      }
    }
  }
}

/* Axis by axis: where it steers, in parts whose last is the last block alone. */
static void walk_grid(Walk *w, uint32_t axis, double n) {
  if (axis == w->k->grid.len) {
    walk_block(w, n);
    return;
  }
  int64_t ext = max_i64(range_of(w, w->k->grid_ext.data[axis]).lo, 0);
  uint32_t id = w->k->grid.data[axis]->id;
  if (!ext) return;
  if (!w->steers[id]) {
    w->var[id] = (IrRange){0, ext - 1};
    walk_grid(w, axis + 1, n * (double)ext);
    return;
  }
  int64_t parts = min_i64(ext - 1, PARTS);
  for (int64_t p = 0; p < parts; p++) {
    int64_t from = clamp((__int128)p * (ext - 1) / parts), to = clamp((__int128)(p + 1) * (ext - 1) / parts);
    w->var[id] = (IrRange){from, to - 1};
    if (to > from) walk_grid(w, axis + 1, n * (double)(to - from));
  }
  w->var[id] = (IrRange){ext - 1, ext - 1};
  walk_grid(w, axis + 1, n);
}

bool cost_bound(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const int64_t *scalar, Cost *out) {
  memset(out, 0, sizeof *out);
  if (k->level != LEVEL_LOWERED) {
    diag_add(d, DIAG_WRONG_STAGE, k->loc, "the cost of a kernel is that of its lowered program");
    return false;
  }
  double cycles[2][PIPE_COUNT] = {{0}};
  Walk w = {.k = k, .arch = arch, .t = arch_time(arch), .cycles = cycles};
  w.var = arena_array(a, IrRange, k->vars.len + 1);
  w.steers = arena_array(a, bool, k->vars.len + 1);
  for (uint32_t i = 0; i < k->vars.len; i++) w.var[i] = IR_OPEN;
  for (uint32_t i = 0; i < k->params.len; i++)
    if (k->params.data[i].var && !dtype_is_float(k->params.data[i].var->type))
      w.var[k->params.data[i].var->id] = (IrRange){scalar[i], scalar[i]};
  ir_walk((IrBlock *)&k->body, mark, &w);
  out->blocks = 1;
  for (uint32_t g = 0; g < k->grid.len; g++)
    out->blocks = clamp((__int128)out->blocks * max_i64(range_of(&w, k->grid_ext.data[g]).lo, 0));
  walk_grid(&w, 0, 1);
  double top = 0, mhz = arch->mhz;
  int groups = k->cores == CORES_VECTOR ? arch->aiv : arch->aic;
  int64_t n = out->blocks < groups ? max_i64(out->blocks, 1) : groups;
  int64_t pairs = k->cores == CORES_VECTOR ? (n + 1) / 2 : n;
  double used = (double)n;
  double per[2] = {used, used * (k->cores == CORES_MIX ? 2 : 1)};
  for (int side = 0; side < 2; side++)
    for (int p = 0; p < PIPE_COUNT; p++) {
      out->pipe_us[side][p] = cycles[side][p] / per[side] / mhz;
      top = out->pipe_us[side][p] > top ? out->pipe_us[side][p] : top;
    }
  out->gm_bytes = (int64_t)w.gm_bytes;
  out->memory_us = w.gm_bytes / w.t.l2_gbps * 1e-3;
  top = out->memory_us > top ? out->memory_us : top;
  out->launch_us = (arch_launch_ns(&w.t, n) + arch_fetch_ns(&w.t, pairs)) * 1e-3;
  out->us = out->blocks ? out->launch_us + top : 0;
  return true;
}
