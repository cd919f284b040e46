/* api_run.c - a lowered program on the simulated chip: numbers, cycles, and the closed form of its cost. */
#include "api/api.h"

#include "cost/cost.h"

#include <string.h>

/* ---- simulation ------------------------------------------------------------------------------------------- */

/* The value of a size made of constants and scalar parameters; false: overflow, division by 0, or another operator. */
static bool size_value(const IrKernel *k, const IrExpr *e, const TlArg *args, int64_t *out) {
  int64_t a = 0, b = 0;
  if (e->op == EX_INT) {
    *out = e->i;
    return true;
  }
  if (e->op == EX_VAR) {
    for (uint32_t i = 0; i < k->params.len; i++)
      if (k->params.data[i].var == e->var) {
        *out = args[i].scalar.i;
        return true;
      }
    return false;
  }
  if (e->op == EX_LOAD || e->op == EX_FLOAT || e->op == EX_SELECT || dtype_is_float(e->type)) return false;
  if (!size_value(k, e->arg[0], args, &a) || (e->n > 1 && !size_value(k, e->arg[1], args, &b))) return false;
  switch (e->op) {
  case EX_CAST: *out = a; return dtype_size(e->type) == 8 || a == (int32_t)a;
  case EX_NEG: return !__builtin_sub_overflow((int64_t)0, a, out);
  case EX_ADD: return !__builtin_add_overflow(a, b, out);
  case EX_SUB: return !__builtin_sub_overflow(a, b, out);
  case EX_MUL: return !__builtin_mul_overflow(a, b, out);
  case EX_MIN: *out = min_i64(a, b); return true;
  case EX_MAX: *out = max_i64(a, b); return true;
  case EX_FDIV:
  case EX_MOD:
    if (b <= 0) return false;
    *out = a / b - (a % b < 0);
    if (e->op == EX_MOD) *out = a - *out * b;
    return true;
  default: return false;
  }
}

static bool right_count(TlContext *c, int n_args) {
  const IrKernel *k = c->module->kernel;
  if (n_args == (int)k->params.len) return true;
  diag_add(&c->diags, DIAG_BAD_ARGUMENT, k->loc, "@%s takes %u arguments, %d are given", k->name, k->params.len,
           n_args);
  return false;
}

int tl_shapes(TlContext *c, TlArg *args, int n_args) {
  ENTER(c, false, 0);
  if (!api_loaded(c, "a shape") || !right_count(c, n_args)) return 0;
  const IrKernel *k = c->module->kernel;
  for (int i = 0; i < n_args; i++) {
    const IrBuf *b = k->params.data[i].buf;
    for (int d = 0; b && d < b->rank; d++) {
      if (size_value(k, b->shape[d], args, &args[i].shape[d]) && args[i].shape[d] >= 0) continue;
      Diag *g = diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc,
                         "dimension %d of %%%s, `%s`, is no size for these arguments", d, b->name,
                         ir_expr_str(&c->arena, b->shape[d]));
      diag_fix(&c->diags, g, "pass scalars with which every size is 0 or more");
      return 0;
    }
  }
  return 1;
}

/* Workspaces that passes added stand at the end; the caller need not know them. */
static int user_params(const IrKernel *k) {
  int n = (int)k->params.len;
  while (n > 0 && k->params.data[n - 1].buf && k->params.data[n - 1].buf->is_work && k->params.data[n - 1].buf->why)
    n--;
  return n;
}

static bool add_workspaces(TlContext *c, SimArg *in, const TlArg *args, int n_args, bool need_data) {
  const IrKernel *k = c->module->kernel;
  for (int i = n_args; i < (int)k->params.len; i++) {
    const IrBuf *b = k->params.data[i].buf;
    int64_t bytes = dtype_size(b->type);
    for (int d = 0; d < b->rank; d++) {
      if (!size_value(k, b->shape[d], args, &in[i].shape[d]) || in[i].shape[d] < 0 ||
          __builtin_mul_overflow(bytes, in[i].shape[d], &bytes)) {
        diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "dimension %d of workspace %%%s is no size for these arguments",
                 d, b->name);
        return false;
      }
    }
    if (need_data) in[i].data = arena_alloc(&c->scratch, (size_t)bytes + 1, 64);
  }
  return true;
}

static bool check_args(TlContext *c, const TlArg *args, int n_args, bool need_data) {
  const IrKernel *k = c->module->kernel;
  if (n_args != user_params(k) && !right_count(c, n_args)) return false;
  for (int i = 0; i < n_args; i++) {
    const IrBuf *b = k->params.data[i].buf;
    int64_t want;
    bool empty = false;
    for (int d = 0; b && d < b->rank; d++) {
      int64_t have = args[i].shape[d];
      empty |= have == 0;
      bool known = size_value(k, b->shape[d], args, &want);
      if (have >= 0 && (!known || want == have)) continue;
      diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "argument %d (%%%s %s) has %lld elements in dimension %d", i,
               b->name, ir_shape_str(&c->arena, b->shape, b->rank), (long long)have, d);
      return false;
    }
    if (!b || args[i].data || empty || !need_data) continue;
    diag_add(&c->diags, DIAG_BAD_ARGUMENT, b->loc, "argument %d (%%%s) has no data", i, b->name);
    return false;
  }
  return true;
}

/* The arguments of a run; NULL: reported. Drops what the run before left in scratch. */
SimArg *api_run_args(TlContext *c, const char *what, const TlArg *args, int n_args, bool need_data) {
  _Static_assert(sizeof ((SimArg *)0)->shape == sizeof args->shape, "tilelang.h and sim.h agree about ranks");
  if (!api_lowered(c, what) || !check_args(c, args, n_args, need_data)) return NULL;
  memset(&c->ran, 0, sizeof c->ran);
  arena_free(&c->scratch);
  c->time = NULL;
  SimArg *in = arena_array(&c->scratch, SimArg, c->module->kernel->params.len + 1);
  for (int i = 0; i < n_args; i++) {
    in[i].data = args[i].data;
    memcpy(in[i].shape, args[i].shape, sizeof in[i].shape);
    memcpy(&in[i].scalar, &args[i].scalar, sizeof in[i].scalar);
  }
  return add_workspaces(c, in, args, n_args, need_data) ? in : NULL;
}

int tl_sim(TlContext *c, const TlArg *args, int n_args, const TlSim *opt, TlSimResult *result) {
  static const TlSim defaults = {.checks = 1};
  ENTER(c, false, 0);
  const TlSim *o = opt ? opt : &defaults;
  if (result) memset(result, 0, sizeof *result);
  SimArg *in = api_run_args(c, "simulation", args, n_args, true);
  if (!in) return 0;
  SimOptions so = {.checks = o->checks != 0,
                   .threads = o->threads,
                   .max_faults = o->max_faults,
                   .schedule = o->schedule,
                   .record = o->record ? &c->recorded : NULL,
                   .go_on = o->go_on,
                   .user = o->user};
  c->values = NULL;
  arena_free(&c->recorded);
  uint32_t before = c->diags.n_errors;
  bool ok = sim_run(&c->scratch, &c->diags, c->module->kernel, c->arch, in, &so, &c->ran);
  if (ok) c->values = c->ran.values;
  const SimResult r = c->ran;
  if (result)
    *result = (TlSimResult){r.blocks,     r.instructions, r.gm_read_bytes, r.gm_write_bytes, r.cores_used,
                            c->module->kernel->cores == CORES_VECTOR ? c->arch->aiv : c->arch->aic, r.recorded};
  return ok && c->diags.n_errors == before;
}

/* ---- cost ------------------------------------------------------------------------------------------------- */

int tl_cost(TlContext *c, const TlArg *args, int n_args, TlCost *out) {
  ENTER(c, false, 0);
  memset(out, 0, sizeof *out);
  SimArg *in = api_run_args(c, "cost", args, n_args, false);
  if (!in) return 0;
  const IrKernel *k = c->module->kernel;
  int64_t *scalar = arena_array(&c->scratch, int64_t, k->params.len + 1);
  for (uint32_t i = 0; i < k->params.len; i++) scalar[i] = in[i].scalar.i;
  Cost r;
  if (!cost_bound(&c->scratch, &c->diags, k, c->arch, scalar, &r)) return 0;
#define PIPE(p) (r.pipe_us[0][PIPE_##p] > r.pipe_us[1][PIPE_##p] ? r.pipe_us[0][PIPE_##p] : r.pipe_us[1][PIPE_##p])
  *out = (TlCost){.us = r.us, .launch_us = r.launch_us, .memory_us = r.memory_us, .blocks = r.blocks,
                  .gm_bytes = r.gm_bytes,
                  .pipe_us = {PIPE(M), PIPE(MTE1), PIPE(MTE2), PIPE(MTE3), PIPE(FIX), PIPE(V), PIPE(S)}};
#undef PIPE
  return 1;
}

/* ---- time ------------------------------------------------------------------------------------------------- */

int tl_time(TlContext *c, const TlArg *args, int n_args, const TlTime *opt, TlTimeResult *result) {
  static const TlTime defaults = {0};
  ENTER(c, false, 0);
  const TlTime *o = opt ? opt : &defaults;
  if (result) memset(result, 0, sizeof *result);
  SimArg *in = api_run_args(c, "timing", args, n_args, false);
  if (!in) return 0;
  SimTimeOptions so = {.hbm_factor = o->hbm_factor, .l2_factor = o->l2_factor, .miss_factor = o->miss_factor,
                       .l2 = o->l2_all_hit ? L2_ALL_HIT : o->l2_warm ? L2_WARM : L2_COLD,
                       .no_bank_conflicts = o->no_bank_conflicts, .free_flags = o->free_flags,
                       .compute_only = o->compute_only, .copy_only = o->copy_only, .timeline = o->timeline,
                       .max_events = o->max_events, .first_event = o->first_event,
                       .follow = o->follow ? c->values : NULL, .constants = o->constants,
                       .long_rows = o->long_rows, .no_latency = o->no_latency, .blocks = o->blocks};
  SimTime *r = arena_new(&c->scratch, SimTime);
  uint32_t before = c->diags.n_errors;
  bool ok = sim_time(&c->scratch, &c->diags, c->module->kernel, c->arch, in, &so, r);
  if (!ok || c->diags.n_errors != before) return 0;
  c->time = r;
  if (!result) return 1;
  int64_t l2 = r->l2_hit_bytes + r->l2_miss_bytes;
  *result = (TlTimeResult){.us = r->us, .mhz = r->mhz, .ticks = r->ticks, .blocks = r->blocks,
                           .instructions = r->instructions, .gm_read_bytes = r->gm_read_bytes,
                           .gm_write_bytes = r->gm_write_bytes, .l2_hit = l2 ? (double)r->l2_hit_bytes / (double)l2 : 0,
                           .pipe_ratio = {sim_time_ratio(r, PIPE_M, 0), sim_time_ratio(r, PIPE_MTE1, 0),
                                          sim_time_ratio(r, PIPE_MTE2, 0), sim_time_ratio(r, PIPE_MTE3, 'v'),
                                          sim_time_ratio(r, PIPE_FIX, 0), sim_time_ratio(r, PIPE_V, 0),
                                          sim_time_ratio(r, PIPE_S, 0)},
                           .cores_used = r->groups, .cores = r->groups_there, .events = r->all_events,
                           .last_event = r->last_event};
  return 1;
}

static const char *time_report(TlContext *c, void (*write)(Text *, const IrKernel *, const Arch *, const SimTime *)) {
  ENTER(c, false, NULL);
  if (!c->time) {
    diag_add(&c->diags, DIAG_WRONG_STAGE, (Loc){0, 0, 0}, "nothing has been timed yet");
    return NULL;
  }
  Text t;
  text_init(&t, &c->arena);
  write(&t, c->module->kernel, c->arch, c->time);
  return text_str(&t);
}

const char *tl_time_text(TlContext *c) { return time_report(c, sim_time_text); }
const char *tl_time_json(TlContext *c) { return time_report(c, sim_time_json); }

int tl_time_event_at(TlContext *c, int64_t i, TlTimeEvent *out) {
  if (!c->time || i < 0 || i >= c->time->n_events) return 0;
  const SimTimeEvent *e = &c->time->event[i];
  double tick = 1.0 / 256 / c->time->mhz;
  *out = (TlTimeEvent){e->core, e->stmt, pipe_info[e->pipe].name, (double)e->start * tick, (double)e->end * tick,
                       e->cause};
  return 1;
}
