/* bind.c - buffers of a run: shapes from the arguments, places in the memories, tensors of the caller, and which of
 * them share bytes. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

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
      IrFractal f = ir_fractal(b->layout, b->space, b->type);
      b->frow = f.rows;
      b->fcol = f.cols;
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
void run_number_owners(Sim *s) {
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

bool run_bind(Run *r) {
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
