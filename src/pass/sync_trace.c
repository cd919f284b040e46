/* sync_trace.c - walks one side's program the way a core would and writes down what each instruction touches.
 *
 * Loops are unrolled a few times (for what is written by hand: whole) with concrete iteration numbers, counted from
 * their start; grid indices, parameters and loaded values stay symbolic. On-chip accesses become runs of bytes (whole
 * buffer when the place is unknown), accesses of GM stay boxes of symbolic offsets, compared dimension by dimension. */
#include "sync.h"

#include <string.h>

enum { MAX_EVENTS = TL_LIMIT(60000, 90), MAX_WHOLE = TL_LIMIT(6000, 60), MAX_UNROLL = 5 };

typedef struct {
  PassCtx *p;
  IrKernel *k;
  Trace *t;
  bool whole;
  int maybe; /* conditions around that are not known */
  int depth;
  IrStmt *loop[MAX_NEST];
  int32_t iter[MAX_NEST];
  int64_t rest[MAX_NEST]; /* iterations after this one that the trace leaves out; -1: not known how many */
} Walk;

/* ---- expressions at one iteration ------------------------------------------------------------------------------ */

static IrExpr *at_iteration(Walk *w, IrExpr *e) {
  for (int i = w->depth; i-- > 0;) {
    const IrStmt *l = w->loop[i];
    if (l->op != ST_FOR || e->op == EX_INT) continue;
    IrExpr *lo = l->loop.lo->op == EX_INT ? l->loop.lo : ir_i32(w->k, 0);
    IrExpr *v = ir_binary(w->k, EX_ADD, lo, ir_binary(w->k, EX_MUL, l->loop.step, ir_i32(w->k, w->iter[i])));
    e = ir_subst(w->k, e, l->loop.var, v);
  }
  return e;
}

typedef struct { const IrVar *v; int64_t modulus; } Modulus;
static void find_modulus(IrExpr *e, void *user) {
  Modulus *m = user;
  if (e->op != EX_MOD || e->arg[1]->op != EX_INT) return;
  IrExpr *a = e->arg[0];
  while (a->op == EX_ADD || a->op == EX_SUB || a->op == EX_MUL || a->op == EX_FDIV || a->op == EX_CAST) a = a->arg[0];
  if (a->op == EX_VAR && a->var == m->v) m->modulus = max_i64(m->modulus, e->arg[1]->i);
}
static void find_modulus_expr(IrExpr **e, void *user) { ir_walk_expr(*e, find_modulus, user); }
static bool find_modulus_stmt(IrStmt *s, void *user) {
  ir_stmt_exprs(s, find_modulus_expr, user);
  return true;
}

static int32_t unroll_of(Walk *w, IrStmt *loop, int64_t *rest) {
  int64_t n = 3, diff;
  *rest = -1;
  if (w->whole && loop->op == ST_FOR && ir_is_const(loop->loop.step) && loop->loop.step->i > 0 &&
      ir_const_diff(w->k, at_iteration(w, loop->loop.hi), at_iteration(w, loop->loop.lo), &diff)) {
    *rest = 0;
    return (int32_t)min_i64(ceil_div(max_i64(diff, 0), loop->loop.step->i), MAX_WHOLE);
  }
  if (loop->op == ST_FOR) {
    Modulus m = {loop->loop.var, 1};
    ir_walk(&loop->body, find_modulus_stmt, &m);
    n = min_i64(max_i64(3, m.modulus + 1), MAX_UNROLL);
    if (ir_is_int(loop->loop.step, 1) && ir_const_diff(w->k, loop->loop.hi, loop->loop.lo, &diff)) {
      n = max_i64(0, min_i64(n, diff));
      *rest = max_i64(diff - n, 0);
    }
  }
  return (int32_t)n;
}

/* ---- accesses ------------------------------------------------------------------------------------------------- */

static bool known(const IrExpr *e, int64_t *v) {
  *v = e->i;
  return e->op == EX_INT;
}

/* Bytes of a box of a fractal matrix: runs along the inner order, one run an outer block. */
static void fractal_runs(const IrBuf *b, int64_t plane, int64_t r, int64_t rows, int64_t c, int64_t cols, Access *a) {
  int64_t size = dtype_size(b->type), c0 = ir_c0(b->space, b->type);
  IrFractal f = ir_fractal(b->layout, b->space, b->type);
  int64_t R = b->shape[b->rank - 2]->i, C = b->shape[b->rank - 1]->i;
  int64_t fractal = 16 * c0 * size;
  if (b->layout == LAYOUT_NZ) {
    a->pitch = round_up(R, 16) * c0 * size;
    a->start = plane + c / c0 * a->pitch + r * c0 * size;
    a->width = rows * c0 * size;
    a->count = (c + cols - 1) / c0 - c / c0 + 1;
  } else {
    a->pitch = ceil_div(C, f.cols) * fractal;
    a->start = plane + r / f.rows * a->pitch + c / f.cols * fractal;
    a->width = ((c + cols - 1) / f.cols - c / f.cols + 1) * fractal;
    a->count = (r + rows - 1) / f.rows - r / f.rows + 1;
  }
}

static void whole_buffer(const IrBuf *b, Access *a) {
  a->start = b->addr;
  a->width = a->pitch = ir_buf_bytes(b);
  a->count = 1;
}

/* How far an offset moves over the iterations that the trace leaves out.
The step of PERIOD iterations is linear, whatever
 * moduli of versions stand in the expression. */
enum { PERIOD = 12, FAR = INT32_MAX };
static int64_t drift(Walk *w, IrExpr *off) {
  int64_t sum = 0;
  for (int i = 0; i < w->depth; i++) {
    if (!w->rest[i]) continue;
    int64_t step;
    IrExpr *here = at_iteration(w, off);
    w->iter[i] += PERIOD;
    IrExpr *there = at_iteration(w, off);
    w->iter[i] -= PERIOD;
    if (!ir_const_diff(w->k, there, here, &step)) continue; /* symbolic: compared as unknown anyway */
    if (step && w->rest[i] < 0) return step > 0 ? FAR : -(int64_t)FAR;
    sum += step * w->rest[i] / PERIOD;
  }
  return sum;
}

static void on_chip_access(Walk *w, const IrRegion *r, Access *a) {
  const IrBuf *b = r->buf;
  int64_t off[IR_MAX_RANK], ext[IR_MAX_RANK], size = dtype_size(b->type);
  whole_buffer(b, a);
  for (int d = 0; d < b->rank; d++) {
    if (!known(at_iteration(w, r->off[d]), &off[d])) return;
    if (!known(at_iteration(w, r->ext[d]), &ext[d])) {
      IrRange range = ir_range(w->k, at_iteration(w, r->ext[d])); /* a tail: as much as it can be */
      ext[d] = min_i64(range.hi, b->shape[d]->i - off[d]);
    }
    int64_t move = drift(w, r->off[d]), first = off[d], last = off[d] + ext[d];
    if (move) {
      off[d] = max_i64(min_i64(first, first + move), 0);
      ext[d] = min_i64(max_i64(last, last + move), b->shape[d]->i) - off[d];
    }
    if (ext[d] <= 0 || off[d] < 0 || off[d] + ext[d] > b->shape[d]->i) return;
  }
  bool exact = true;
  for (int d = 0; d < b->rank; d++) {
    int64_t e;
    exact &= known(at_iteration(w, r->ext[d]), &e) && !drift(w, r->off[d]);
  }
  int outer = b->layout == LAYOUT_ND ? 0 : b->rank - 2;
  if (b->layout != LAYOUT_ND && b->rank >= 2) {
    int64_t planes = 1, index = 0, one = 1;
    for (int d = 0; d < outer; d++)
      planes *= b->shape[d]->i, index = index * b->shape[d]->i + off[d], one &= ext[d] == 1;
    if (!one) return;
    fractal_runs(b, b->addr + index * (ir_buf_bytes(b) / planes), off[outer], ext[outer], off[outer + 1],
                 ext[outer + 1], a);
    a->sure = exact;
    return;
  }
  /* Row-major: cols grow inwards while contiguous, one strided dimension, otherwise the hull. */
  int64_t stride = 1, start = 0, span = 1, width = 1, pitch = 0, count = 1;
  bool open = true, simple = true;
  for (int d = b->rank - 1; d >= 0; d--) {
    start += off[d] * stride;
    span += (ext[d] - 1) * stride;
    if (ext[d] > 1) {
      if (open && stride == width) width *= ext[d];
      else if (!pitch) pitch = stride, count = ext[d], open = false;
      else if (pitch * count == stride) count *= ext[d];
      else simple = false;
    }
    stride *= b->shape[d]->i;
  }
  a->start = b->addr + start * size;
  a->width = (simple ? width : span) * size;
  a->count = simple ? count : 1;
  a->pitch = simple && pitch ? pitch * size : a->width;
  a->sure = exact && simple;
}

static bool read_before(const Entry *e) {
  const Access *a = &e->access.data[e->access.len - 1];
  for (const Access *b = e->access.data; b < a; b++)
    if (!b->write && b->buf == a->buf && b->start == a->start && b->width == a->width && b->pitch == a->pitch &&
        b->count == a->count && b->sure == a->sure)
      return true;
  return false;
}

static void add_access(Walk *w, Entry *e, const IrRegion *r, bool write) {
  vec_push(w->p->arena, &e->access, (Access){0});
  Access *a = &e->access.data[e->access.len - 1];
  a->buf = r->buf;
  a->write = write;
  if (r->buf->space != SPACE_GM) {
    on_chip_access(w, r, a);
    if (!write && read_before(e)) e->access.len--; /* long expressions read one element many times */
    if (write && e->stmt->op == OP_GM_TO_UB) a->width = round_up(a->width, 32); /* the DMA writes whole blocks */
    return;
  }
  for (int d = 0; d < r->buf->rank; d++) {
    int64_t move = drift(w, r->off[d]);
    a->off[d] = at_iteration(w, r->off[d]);
    a->ext[d] = at_iteration(w, r->ext[d]);
    if (move < 0) a->off[d] = ir_binary(w->k, EX_ADD, ir_cast(w->k, DT_I64, a->off[d]), ir_int(w->k, DT_I64, move));
    if (move) a->ext[d] = ir_int(w->k, DT_I64, FAR);
  }
}

static bool runs_overlap(const Access *a, const Access *b) {
  int64_t a_end = a->start + (a->count - 1) * a->pitch + a->width,
          b_end = b->start + (b->count - 1) * b->pitch + b->width;
  if (a->start >= b_end || b->start >= a_end) return false;
  int64_t pitch = a->count > 1 ? a->pitch : b->pitch;
  if ((a->count == 1 && b->count == 1) || (a->count > 1 && b->count > 1 && a->pitch != b->pitch)) return true;
  int64_t wa = a->width, wb = b->width;
  if (wa >= pitch || wb >= pitch) return true;
  int64_t d = (b->start - a->start) % pitch; /* b's runs begin d after a's, on the ring */
  if (d < 0) d += pitch;
  return d < wa || d + wb > pitch;
}

static bool overlap(Walk *w, const Access *a, const Access *b) {
  if (!a->write && !b->write) return false;
  if ((a->buf->space == SPACE_GM) != (b->buf->space == SPACE_GM) || a->buf->space != b->buf->space) return false;
  if (a->buf->space != SPACE_GM) return runs_overlap(a, b);
  if (ir_root((IrBuf *)a->buf) != ir_root((IrBuf *)b->buf)) return false;
  if (a->buf != b->buf) return true; /* two shapes of one tensor are not compared */
  for (int d = 0; d < a->buf->rank; d++) {
    int64_t diff; /* b begins this much after a */
    if (!ir_const_diff(w->k, b->off[d], a->off[d], &diff)) continue;
    if (diff >= 0 && diff >= ir_range(w->k, a->ext[d]).hi) return false;
    if (diff < 0 && -diff >= ir_range(w->k, b->ext[d]).hi) return false;
  }
  return true;
}

/* Are the two in different branches of one `if`, in the same iteration? Then only one of them happens. */
static bool exclusive(const Entry *a, const Entry *b) {
  for (int i = 0; i < a->depth && i < b->depth; i++)
    if (a->loop[i] == b->loop[i] && a->iter[i] != b->iter[i]) return false;
  for (const IrStmt *x = a->stmt; x->block && x->block->parent; x = x->block->parent) {
    const IrStmt *up = x->block->parent;
    if (up->op != ST_IF) continue;
    for (const IrStmt *y = b->stmt; y->block && y->block->parent; y = y->block->parent)
      if (y->block->parent == up) return x->block != y->block;
  }
  return false;
}

static void find_deps(Walk *w, uint32_t at) {
  Entry *e = &w->t->entries.data[at];
  for (uint32_t i = at; i-- > 1;) {
    const Entry *d = &w->t->entries.data[i];
    if (e->dep[d->pipe]) continue; /* a later one of that pipe is known; it covers this one */
    if (d->pipe == e->pipe && pipe_info[d->pipe].in_order) continue;
    for (uint32_t x = 0; x < e->access.len && !e->dep[d->pipe]; x++)
      for (uint32_t y = 0; y < d->access.len; y++)
        if (overlap(w, &e->access.data[x], &d->access.data[y]) && !exclusive(d, e)) {
          e->dep[d->pipe] = i;
          e->dep_buf[d->pipe] = e->access.data[x].buf;
          break;
        }
  }
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static void push(Walk *w, EventKind kind, IrStmt *s, uint32_t entry, int32_t arg) {
  Event e = {(uint8_t)kind, s, entry, arg};
  if (w->t->events.len > (w->whole ? MAX_WHOLE : MAX_EVENTS)) w->t->too_long = true;
  else vec_push(w->p->arena, &w->t->events, e);
}

static Entry *new_entry(Walk *w, IrStmt *s, Pipe pipe) {
  Entry e = {.stmt = s, .pipe = pipe, .maybe = w->maybe > 0, .depth = w->depth};
  memcpy(e.loop, w->loop, sizeof e.loop);
  memcpy(e.iter, w->iter, sizeof e.iter);
  vec_push(w->p->arena, &w->t->entries, e);
  return &w->t->entries.data[w->t->entries.len - 1];
}

static void commit(Walk *w, Entry *e) {
  uint32_t at = (uint32_t)(e - w->t->entries.data);
  push(w, EV_INSTR, e->stmt, at, 0);
  if (!w->t->too_long) find_deps(w, at);
}

typedef struct { Walk *w; Entry *e; IrStmt *s; } Loads;
static IrRegion element(Walk *w, IrBuf *b, IrExpr **idx) {
  IrRegion r = {.buf = b};
  for (int d = 0; d < b->rank; d++) r.off[d] = idx[d], r.ext[d] = ir_i32(w->k, 1);
  return r;
}
static void add_load(IrExpr *e, void *user) {
  Loads *l = user;
  if (e->op != EX_LOAD) return;
  if (!l->e) l->e = new_entry(l->w, l->s, PIPE_S);
  IrRegion r = element(l->w, e->buf, e->idx);
  add_access(l->w, l->e, &r, false);
}
static void add_loads(IrExpr **e, void *user) { ir_walk_expr(*e, add_load, user); }

static void walk_block(Walk *w, IrBlock *b);

/* Then there is no second iteration, and what one would do hides what the first one did. */
static bool ends_with_break(const IrBlock *b) {
  return b->last && b->last->op == ST_BREAK && !ir_has_jump(b, ST_CONTINUE);
}

static void walk_loop(Walk *w, IrStmt *s) {
  if (w->depth == MAX_NEST) {
    w->t->too_long = true;
    return;
  }
  int64_t rest;
  int32_t n = unroll_of(w, s, &rest);
  if (ends_with_break(&s->body)) n = n > 1 ? 1 : n, rest = 0;
  bool maybe_none = !ir_loop_runs(w->k, s);
  push(w, EV_LOOP_BEGIN, s, 0, 0);
  w->loop[w->depth] = s;
  w->depth++;
  bool maybe = s->op == ST_WHILE || ir_leaves_loop(&s->body);
  w->maybe += maybe;
  for (int32_t i = 0; i < n && !w->t->too_long; i++) {
    w->iter[w->depth - 1] = i;
    w->rest[w->depth - 1] = i == n - 1 ? rest : 0;
    push(w, EV_ITER, s, 0, i);
    walk_block(w, &s->body);
  }
  w->depth--;
  w->maybe -= maybe;
  push(w, EV_LOOP_END, s, 0, maybe_none);
}

/* Is the condition known in this iteration? */
static bool decided(Walk *w, IrExpr *cond, int64_t *taken) {
  for (int i = 0; i < w->depth; i++) {
    const IrStmt *l = w->loop[i];
    if (l->op == ST_FOR && l->loop.lo->op != EX_INT && ir_expr_uses(cond, l->loop.var)) return false;
  }
  return known(at_iteration(w, cond), taken);
}

static void walk_if(Walk *w, IrStmt *s) {
  int64_t taken = 0;
  bool sure = w->whole && decided(w, s->test.cond, &taken), all = true;
  for (int i = 0; i < w->depth; i++) all &= w->rest[i] == 0;
  w->maybe += !(sure && all); /* in an iteration that stands for others, a flag of one branch says nothing of them */
  if (sure && all) {
    walk_block(w, taken ? &s->body : &s->alt);
    return;
  }
  push(w, EV_IF_BEGIN, s, 0, 0);
  walk_block(w, &s->body);
  push(w, EV_ELSE, s, 0, 0);
  walk_block(w, &s->alt);
  push(w, EV_IF_END, s, 0, 0);
  w->maybe--;
}

static bool walk_sync(Walk *w, IrStmt *s) {
  bool cross = s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT || s->op == ST_SYNC_ALL;
  bool flag = s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG;
  if (!cross && !flag && s->op != ST_BARRIER) return false;
  int64_t id = -1;
  w->t->crossed |= cross;
  w->t->doubt |= w->maybe > 0 || (cross && !w->whole);
  if (flag && !known(at_iteration(w, s->sync.id), &id)) w->t->doubt = true, id = -1;
  if (!cross || w->whole) push(w, EV_HAND, s, 0, (int32_t)id);
  return true;
}

static void walk_stmt(Walk *w, IrStmt *s) {
  if (s->op == ST_ALLOC || ir_is_say(s) || walk_sync(w, s)) return;
  if (s->op == ST_BREAK || s->op == ST_CONTINUE) {
    w->t->doubt = true;
    push(w, EV_JUMP, s, 0, 0);
    return;
  }
  push(w, EV_BEFORE, s, 0, 0);
  Loads l = {w, NULL, s};
  ir_stmt_exprs(s, add_loads, &l);
  if (s->op == ST_STORE) {
    if (!l.e) l.e = new_entry(w, s, PIPE_S);
    IrRegion r = element(w, s->store.buf, s->store.idx);
    add_access(w, l.e, &r, true);
    if (s->store.accumulate) add_access(w, l.e, &r, false);
  }
  if (l.e) commit(w, l.e);
  if (ir_is_op(s) && op_info[s->op].pipe < PIPE_COUNT) {
    Entry *e = new_entry(w, s, op_info[s->op].pipe);
    int n_in = ir_n_in(s->op);
    for (int i = 0; i < s->n_args; i++) {
      if (s->args[i].kind != ARG_REGION) continue;
      if (i < n_in || op_info[s->op].out[i - n_in] == 'u') add_access(w, e, &s->args[i].region, false);
      if (i >= n_in) add_access(w, e, &s->args[i].region, true);
    }
    commit(w, e);
  } else if (s->op == ST_IF) {
    walk_if(w, s);
  } else if (s->op == ST_FOR || s->op == ST_WHILE) {
    walk_loop(w, s);
  }
  push(w, EV_AFTER, s, 0, 0);
}

static void walk_block(Walk *w, IrBlock *b) {
  for (IrStmt *s = b->first; s && !w->t->too_long; s = s->next) walk_stmt(w, s);
}

void sync_trace(PassCtx *p, IrStmt *side, bool whole, Trace *out) {
  Walk w = {.p = p, .k = p->k, .t = out, .whole = whole};
  memset(out, 0, sizeof *out);
  vec_push(p->arena, &out->entries, (Entry){0});
  walk_block(&w, &side->body);
}
