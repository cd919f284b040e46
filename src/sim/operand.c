/* operand.c - from registers to numbers: where an operand lies and what shape it has.
 *
 * A region of a row-major buffer becomes two descriptions of the same elements: `rows` rows of its innermost extent,
 * and `nruns` runs of contiguous memory (dimensions merged as far as they go). DMA takes the runs; vector instructions
 * take one flat run when all operands are flat, rows otherwise. A region of a fractal buffer is a box in one plane.
 *
 * Bounds are checked here, dimension by dimension, whatever the options say: nothing below can leave a buffer. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

/* ---- out of bounds -------------------------------------------------------------------------------------- */

static void report_bounds(Core *c, const IrStmt *s, const SimBuf *b, const int64_t *off, const int64_t *ext, int dim) {
  Arena *a = &c->m->arena;
  if (fault_known(c, DIAG_SIM_BOUNDS, s, NULL)) return;
  Text region;
  text_init(&region, a);
  for (int d = 0; d < b->rank; d++)
    text_printf(&region, ext ? "%s%lld +: %lld" : "%s%lld", d ? ", " : "", (long long)off[d],
                ext ? (long long)ext[d] : 0);
  Text shape;
  text_init(&shape, a);
  for (int d = 0; d < b->rank; d++) text_printf(&shape, "%s%lld", d ? ", " : "", (long long)b->shape[d]);
  Fault *f = fault(c, DIAG_SIM_BOUNDS, s, NULL, "`%s` touches %%%s[%s], outside of its shape [%s] in dimension %d (%s)",
                   inst_text(a, c, s), b->ir->name, text_str(&region), text_str(&shape), dim, where(a, c));
  if (!f) return;
  f->other = b->ir->loc;
  fault_other(c, f, "%%%s is declared here: %s %s[%s]", b->ir->name, space_info[b->space].name,
              dtype_info[b->type].name, text_str(&shape));
  long long size = (long long)b->shape[dim];
  if (off[dim] < 0) fault_fix(c, f, "start dimension %d at 0 or behind it", dim);
  else if (ext && ext[dim] != 1 && off[dim] < size)
    fault_fix(c, f, "clamp the extent of dimension %d to %lld minus the offset", dim, size);
  else
    fault_fix(c, f, "keep the index of dimension %d from 0 to %lld, or make %%%s larger", dim, size - 1, b->ir->name);
}

/* ---- views ---------------------------------------------------------------------------------------------- */

/* Row-major: from the inside out, cols is the first extent that is not 1, then rows and runs grow while one stride
 * describes them. */
static void view_nd(const SimBuf *b, const int64_t *off, const int64_t *ext, View *v) {
  int64_t at = 0;
  bool first = true;
  *v = (View){.count = 1, .rows = 1, .cols = 1, .nruns = 1, .run = 1};
  for (int d = b->rank - 1; d >= 0; d--) {
    int64_t n = ext[d], stride = b->stride[d];
    at += off[d] * stride;
    if (n == 1) continue;
    v->count *= n;
    if (first && stride == 1) {
      v->cols = n;
    } else if (v->rows == 1) {
      v->rows = n;
      v->pitch = stride;
    } else if (v->rows && stride == v->rows * v->pitch) {
      v->rows *= n;
    } else {
      v->rows = 0;
    }
    if (v->nruns == 1 && stride == v->run) {
      v->run *= n;
    } else if (v->nruns == 1) {
      v->nruns = n;
      v->rpitch = stride;
    } else if (v->nruns && stride == v->nruns * v->rpitch) {
      v->nruns *= n;
    } else {
      v->nruns = 0;
    }
    first = false;
  }
  v->off = at * b->size;
  v->pitch *= b->size;
  v->rpitch *= b->size;
}

static bool view_fractal(Core *c, const Inst *i, const SimBuf *b, const int64_t *off, const int64_t *ext, View *v) {
  int64_t plane = 0;
  for (int d = 0; d < b->rank - 2; d++) {
    plane += off[d] * b->stride[d];
    if (ext[d] != 1) {
      if (!fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL))
        fault(c, DIAG_SIM_OPERAND, i->stmt, NULL, "`%s` spans %lld planes of %%%s; an instruction works in one",
              inst_text(&c->m->arena, c, i->stmt), (long long)ext[d], b->ir->name);
      return false;
    }
  }
  int r = b->rank - 2, k = b->rank - 1;
  *v = (View){.off = plane * b->size,
              .rows = b->rank > 1 ? ext[r] : 1,
              .cols = ext[k],
              .r0 = b->rank > 1 ? off[r] : 0,
              .c0 = off[k]};
  v->count = v->rows * v->cols;
  return true;
}

static bool view_of(Core *c, const Inst *i, const Operand *o, View *v, bool *empty) {
  const SimBuf *b = &c->m->sim->buf[o->buf];
  int64_t off[IR_MAX_RANK], ext[IR_MAX_RANK];
  for (int d = 0; d < b->rank; d++) {
    off[d] = c->reg[o->off[d]].i;
    ext[d] = c->reg[o->ext[d]].i;
    if (ext[d] <= 0) {
      *empty = true;
      return true;
    }
  }
  for (int d = 0; d < b->rank; d++) {
    int64_t n = b->shape[d];
    if (b->fractal && d == b->rank - 2) n = b->prow;
    if (b->fractal && d == b->rank - 1) n = b->pcol;
    if (ext[d] > n || off[d] < 0 || off[d] > n - ext[d]) {
      report_bounds(c, i->stmt, b, off, ext, d);
      return false;
    }
  }
  if (b->fractal) return view_fractal(c, i, b, off, ext, v);
  view_nd(b, off, ext, v);
  return true;
}

/* Does the instruction mean as many elements in operand `in` as in its result? The two sides of a transfer do, and two
 * parts of one buffer; another vector operand may be a row that serves no rows at all. */
static bool same_extent(const Inst *i, int in) {
  bool dma = i->pipe == PIPE_MTE1 || i->pipe == PIPE_MTE2 || i->pipe == PIPE_MTE3 || i->pipe == PIPE_FIX;
  return i->arg[in].buf && i->arg[i->n_in].buf && ((dma && i->n_args == 2) || i->arg[in].buf == i->arg[i->n_in].buf);
}

/* An instruction of which one side only is empty does nothing, and says so nowhere. */
static bool half_empty(Core *c, const Inst *i, const bool *empty) {
  int out = i->n_in, in = 0;
  while (in < out && !(same_extent(i, in) && empty[in] != empty[out])) in++;
  if (in == out || i->n_args == out) return false;
  if (fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL)) return true;
  Arena *a = &c->m->arena;
  const char *operand = arena_printf(a, "%%%s", arg_buf(c, i, in)->ir->name);
  Fault *f = fault(c, DIAG_SIM_OPERAND, i->stmt, NULL,
                   "`%s` does nothing: %s has no elements here, but %s has some (%s)", inst_text(a, c, i->stmt),
                   empty[out] ? "its result" : operand, empty[out] ? operand : "its result", where(a, c));
  if (f) fault_fix(c, f, "give both the same extents; clamp both in the same way where the tail is short");
  return true;
}

bool resolve(Core *c, const Inst *i, Entry *e) {
  bool any_empty = false, empty[MAX_ARGS] = {0};
  e->dead = false;
  for (int a = 0; a < i->n_args; a++) {
    const Operand *o = &i->arg[a];
    if (!o->buf) {
      e->s[a] = c->reg[o->scalar];
    } else if (!view_of(c, i, o, &e->v[a], &empty[a])) {
      e->dead = true;
      return false;
    }
    any_empty |= empty[a];
  }
  e->dead = any_empty;
  if (any_empty && c->m->sim->checks && half_empty(c, i, empty)) return false;
  if (i->init_reg != NO_REG) e->init = c->reg[i->init_reg].i != 0;
  else e->init = false;
  if (i->pad_reg != NO_REG) e->pad = c->reg[i->pad_reg];
  return true;
}

bool element_at(Core *c, const Element *el, int64_t *at) {
  const SimBuf *b = &c->m->sim->buf[el->buf];
  int64_t idx[IR_MAX_RANK], n = 0;
  int bad = -1;
  for (int d = 0; d < b->rank; d++) {
    idx[d] = c->reg[el->idx[d]].i;
    if (bad < 0 && (idx[d] < 0 || idx[d] >= b->shape[d])) bad = d;
    else n += idx[d] * b->stride[d];
  }
  if (bad >= 0) {
    report_bounds(c, el->stmt, b, idx, NULL, bad);
    return false;
  }
  *at = n * b->size;
  return true;
}

/* ---- fitting shapes ------------------------------------------------------------------------------------- */

/* Can the view be read as rows x cols? pitch: bytes from row to row. */
bool fit_rows(const View *v, const SimBuf *b, int64_t rows, int64_t cols, int64_t *pitch) {
  if (view_flat(v) && v->count == rows * cols) {
    *pitch = cols * b->size;
    return true;
  }
  if (v->rows == rows && v->cols == cols) {
    *pitch = v->pitch;
    return true;
  }
  if (v->nruns == rows && v->run == cols) {
    *pitch = v->rpitch;
    return true;
  }
  return false;
}

static void shape_fault(Core *c, const Entry *e, const SimBuf *b, const View *v, const char *want) {
  if (fault_known(c, DIAG_SIM_OPERAND, e->inst->stmt, NULL)) return;
  Fault *f =
      fault(c, DIAG_SIM_OPERAND, e->inst->stmt, NULL, "`%s`: %%%s as %lld rows of %lld elements does not fit %s (%s)",
            inst_text(&c->m->arena, c, e->inst->stmt), b->ir->name, (long long)v->rows, (long long)v->cols, want,
            where(&c->m->arena, c));
  if (f)
    fault_fix(c, f, "give all operands the same rows and columns, or an input of one row, or one 32-byte block a row");
}

/* Flat if all operands are one run of the same length; else rows of the output, inputs may repeat one row or one block.
 */
bool elementwise_form(Core *c, Entry *e, int first_in, int n_in, int out) {
  const Inst *i = e->inst;
  const SimBuf *ob = arg_buf(c, i, out);
  View *o = &e->v[out];
  bool flat = view_flat(o);
  for (int a = first_in; a < first_in + n_in; a++)
    flat &= !i->arg[a].buf || (view_flat(&e->v[a]) && e->v[a].count == o->count);
  memset(e->block, 0, sizeof e->block);
  memset(e->pitch, 0, sizeof e->pitch);
  if (flat) {
    e->rows = 1;
    e->cols = o->count;
    return true;
  }
  bool merged = o->rows == 0 && o->nruns > 0;
  e->rows = merged ? o->nruns : o->rows;
  e->cols = merged ? o->run : o->cols;
  e->pitch[out] = merged ? o->rpitch : o->pitch;
  if (!e->rows) {
    shape_fault(c, e, ob, o, "one stride between rows");
    return false;
  }
  int64_t widest = e->cols * ob->size;
  for (int a = first_in; a < first_in + n_in; a++) {
    if (!i->arg[a].buf) continue;
    const SimBuf *b = arg_buf(c, i, a);
    const View *v = &e->v[a];
    int64_t c0 = 32 / b->size;
    if (fit_rows(v, b, e->rows, e->cols, &e->pitch[a])) {
      widest = max_i64(widest, e->cols * b->size);
    } else if (v->rows == 1 && v->cols == e->cols) {
      e->pitch[a] = 0;
    } else if (e->cols > c0 && fit_rows(v, b, e->rows, c0, &e->pitch[a])) {
      e->block[a] = true;
    } else {
      char want[160];
      snprintf(want, sizeof want, "%%%s of %lld rows of %lld", ob->ir->name, (long long)e->rows, (long long)e->cols);
      shape_fault(c, e, b, v, want);
      return false;
    }
  }
  if (c->m->sim->checks && widest > c->m->sim->arch->repeat_bytes) {
    if (fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL)) return false;
    Fault *f = fault(c, DIAG_SIM_OPERAND, i->stmt, NULL,
                     "`%s` works on rows of %lld bytes; in row form a row is one repeat of at most %d bytes (%s)",
                     inst_text(&c->m->arena, c, i->stmt), (long long)widest, c->m->sim->arch->repeat_bytes,
                     where(&c->m->arena, c));
    if (f)
      fault_fix(c, f, "cut the columns into pieces of %d bytes, or make all operands contiguous",
                c->m->sim->arch->repeat_bytes);
    return false;
  }
  return true;
}

int64_t nz_offset(const SimBuf *b, int64_t r, int64_t k) {
  return (k / b->fcol * b->prow * b->fcol + r * b->fcol + k % b->fcol) * b->size;
}

void touch_nz(Toucher *t, const SimBuf *b, const View *v, TouchKind kind) {
  int64_t at = v->off + nz_offset(b, v->r0, v->c0), whole = v->cols / b->fcol, tail = v->cols % b->fcol;
  int64_t row = b->fcol * b->size;
  touch(t, b, kind, at, v->rows * row, whole, b->prow * row);
  if (tail) touch(t, b, kind, at + whole * b->prow * row, tail * b->size, v->rows, row);
}

/* ---- legality: questions every op asks; each reports what it finds -------------------------------------- */

bool op_misaligned(Core *c, const Inst *i, int arg, const char *what, int64_t value, int64_t unit) {
  if (!c->m->sim->checks || value % unit == 0) return false;
  if (fault_known(c, DIAG_SIM_ALIGN, i->stmt, NULL)) return true;
  Fault *f = fault(c, DIAG_SIM_ALIGN, i->stmt, NULL, "`%s`: %s of %%%s is %lld, not a multiple of %lld (%s)",
                   inst_text(&c->m->arena, c, i->stmt), what, arg_buf(c, i, arg)->ir->name, (long long)value,
                   (long long)unit, where(&c->m->arena, c));
  if (!f) return true;
  f->other = arg_buf(c, i, arg)->ir->loc;
  fault_other(c, f, "%%%s is declared here", arg_buf(c, i, arg)->ir->name);
  fault_fix(c, f, "move the region or widen the buffer so that it becomes a multiple of %lld", (long long)unit);
  return true;
}

bool op_refuse(Core *c, const Inst *i, const char *what) {
  if (fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL)) return false;
  fault(c, DIAG_SIM_OPERAND, i->stmt, NULL, "`%s`: %s (%s)", inst_text(&c->m->arena, c, i->stmt), what,
        where(&c->m->arena, c));
  return false;
}

bool op_over_limit(Core *c, const Inst *i, const char *what, int64_t value, int64_t limit) {
  if (!c->m->sim->checks || value <= limit) return false;
  if (fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL)) return true;
  Fault *f =
      fault(c, DIAG_SIM_OPERAND, i->stmt, NULL, "`%s`: %s is %lld, the instruction takes at most %lld (%s)",
            inst_text(&c->m->arena, c, i->stmt), what, (long long)value, (long long)limit, where(&c->m->arena, c));
  if (f) fault_fix(c, f, "cut it into several instructions");
  return true;
}

bool op_in_space(Core *c, const Inst *i, int arg, Space s) {
  return arg_buf(c, i, arg)->space == s || op_refuse(c, i, "an operand is in the wrong memory");
}

bool op_no_dtype(Core *c, const Inst *i, DType t) {
  if (!fault_known(c, DIAG_SIM_OPERAND, i->stmt, NULL))
    fault(c, DIAG_SIM_OPERAND, i->stmt, NULL, "`%s`: pipe %s of %s has no %s for %s",
          inst_text(&c->m->arena, c, i->stmt), pipe_info[i->pipe].name, c->m->sim->arch->name, op_info[i->op].name,
          dtype_info[t].name);
  return false;
}

VecType vec_type(DType t) {
  switch (t) {
  case DT_F32: return VT_F32;
  case DT_F16: return VT_F16;
  case DT_BF16: return VT_BF16;
  case DT_I32: return VT_I32;
  case DT_I16: return VT_I16;
  default: return VT_COUNT;
  }
}
