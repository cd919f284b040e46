/* legalize_form.c - one step to vector instructions.
 *
 * lg_prepare puts the operands of a step in order once; lg_emit then only chooses the form:
 *
 *   every operand one contiguous run             one flat instruction
 *   rows of at most 256 bytes                    one instruction in rows form
 *   wider rows                                   a loop over 256-byte column chunks, or over rows (then flat again),
 *                                                whichever issues fewer instructions
 *   more dimensions                              a loop over the outermost, then the same question again
 *
 * An input that repeats along the columns ([M, 1]) becomes blocks of 32 bytes by brcb; one that repeats along the rows
 * is read with pitch 0. An operand whose start or row pitch is not a multiple of 32 bytes cannot be read by the vector
 * unit: an input is gathered by byte offsets to a temporary with padded rows; a destination, and elements of 8 or 64
 * bits, move one by one on the scalar pipe, and a warning says so. */
#include "legalize.h"

#include <string.h>

enum { BLOCK = 32, MAX_STRIDE = 255, CYCLES_AN_ELEMENT = 34 }; /* load and store of UB: 18.4 ns measured on A2 */

/* ---- regions and shapes ---------------------------------------------------------------------------------------- */

const char *lg_shape(Lg *g, const IrRegion *r) {
  Text t;
  text_init(&t, g->a);
  text_put(&t, "[");
  for (int d = 0; d < r->buf->rank; d++) {
    if (d) text_put(&t, ", ");
    ir_print_expr(&t, r->ext[d]);
  }
  text_put(&t, "]");
  return text_str(&t);
}

bool lg_same(Lg *g, IrExpr *a, IrExpr *b) {
  int64_t diff;
  return ir_expr_equal(a, b) || (ir_const_diff(g->k, a, b, &diff) && diff == 0);
}

int64_t lg_bound(Lg *g, IrExpr *ext, int64_t cap) {
  if (ir_is_const(ext)) return ext->i;
  return max_i64(1, min_i64(ir_range(g->k, ext).hi, cap));
}

Opd lg_scalar(IrExpr *e) {
  Opd o = {.scalar = e};
  return o;
}

static int64_t buf_dim(const IrBuf *b, int d) { return ir_is_const(b->shape[d]) ? b->shape[d]->i : INT32_MAX; }

static int64_t buf_stride(const IrBuf *b, int d) {
  int64_t s = 1;
  for (int i = d + 1; i < b->rank; i++) s *= buf_dim(b, i);
  return s;
}

bool lg_nest(Lg *g, const IrRegion *r, Nest *n, Opd *o) {
  *n = (Nest){0};
  *o = (Opd){.r = *r};
  for (int d = 0; d < r->buf->rank; d++) {
    bool last_chance = !n->n && d == r->buf->rank - 1; /* a single element: one dimension stays */
    if (ir_is_int(r->ext[d], 1) && !last_chance) continue;
    if (ir_is_const(r->ext[d]) && r->ext[d]->i <= 0) return false;
    n->ext[n->n] = r->ext[d];
    n->max[n->n] = lg_bound(g, r->ext[d], buf_dim(r->buf, d));
    o->dim[n->n++] = (int8_t)d;
  }
  return true;
}

/* Dimensions of the input from `first` on, against those of the destination `shift` places further; 1 fits all. */
static bool fit_aligned(Lg *g, const IrRegion *dst, const IrRegion *r, const Opd *home, int n, Opd *o) {
  int shift = dst->buf->rank - r->buf->rank;
  for (int d = 0; d < r->buf->rank; d++) {
    if (ir_is_int(r->ext[d], 1)) continue;
    if (d + shift < 0 || !lg_same(g, r->ext[d], dst->ext[d + shift])) return false;
  }
  for (int i = 0; i < n; i++) {
    int d = home->dim[i] - shift;
    bool one = d >= 0 && ir_is_int(r->ext[d], 1) && !ir_is_int(dst->ext[home->dim[i]], 1);
    o->dim[i] = (int8_t)(d < 0 || one ? REPEATS : d);
  }
  return true;
}

/* The input's dimensions other than 1 are dims [at, at + count) of the nest. */
static bool fit_at(Lg *g, const Nest *n, const IrRegion *r, int at, Opd *o) {
  int i = at;
  for (int d = 0; d < n->n; d++) o->dim[d] = REPEATS;
  for (int d = 0; d < r->buf->rank; d++) {
    if (ir_is_int(r->ext[d], 1)) continue;
    if (i < 0 || i >= n->n || !lg_same(g, r->ext[d], n->ext[i])) return false;
    o->dim[i++] = (int8_t)d;
  }
  return true;
}

bool lg_fit(Lg *g, const Nest *n, const IrRegion *dst, const IrRegion *r, int hint, Opd *o) {
  Nest unused;
  Opd home;
  *o = (Opd){.r = *r};
  if (!lg_nest(g, dst, &unused, &home)) return false;
  int kept = 0;
  for (int d = 0; d < r->buf->rank; d++) kept += !ir_is_int(r->ext[d], 1);
  if (n->n == 1 && ir_is_int(n->ext[0], 1)) { /* a single element */
    o->dim[0] = (int8_t)(r->buf->rank - 1);
    return kept == 0;
  }
  bool turned = hint >= 0 && hint < 2 && r->buf->rank == 2 && !ir_is_int(r->ext[hint], 1); /* [1, M] for rows */
  if (dst->buf->rank == r->buf->rank && !turned && fit_aligned(g, dst, r, &home, n->n, o)) return true;
  if (hint >= 0 && kept == 1 && n->n >= 2 && fit_at(g, n, r, hint ? n->n - 2 : n->n - 1, o)) return true;
  if (fit_aligned(g, dst, r, &home, n->n, o)) return true;
  return fit_at(g, n, r, n->n - kept, o) || fit_at(g, n, r, 0, o);
}

/* ---- temporaries ----------------------------------------------------------------------------------------------- */

static IrBuf *temp_buf(Lg *g, DType t, int rank, const int64_t *shape) {
  IrExpr *ext[IR_MAX_RANK];
  const IrArg *last = &g->s->args[g->s->n_args - 1];
  for (int d = 0; d < rank; d++) ext[d] = ir_i32(g->k, shape[d]);
  const char *name = arena_printf(g->a, "%s.t", last->kind == ARG_REGION ? last->region.buf->name : "vec");
  IrBuf *b = ir_new_buf(g->k, name, t, SPACE_UB, rank, ext, g->loc);
  b->why = arena_printf(g->a, "scratch of '%s'", op_info[g->s->op].name);
  IrStmt *s = ir_new_stmt(g->k, ST_ALLOC, g->loc);
  s->alloc.buf = b;
  ir_append(&g->allocs, s);
  return b;
}

IrBuf *lg_buf(Lg *g, DType t, int rank, const int64_t *shape) { return temp_buf(g, t, rank, shape); }

IrBuf *lg_view(Lg *g, IrBuf *of, DType t, int rank, const int64_t *shape) {
  IrBuf *b = temp_buf(g, t, rank, shape);
  b->view = of;
  b->why = arena_printf(g->a, "%%%s as %s", of->name, dtype_info[t].name);
  return b;
}

Opd lg_temp(Lg *g, const Nest *n, DType t) {
  int64_t shape[IR_MAX_RANK];
  memcpy(shape, n->max, sizeof shape);
  if (!n->flat && n->n > 1) shape[n->n - 1] = round_up(shape[n->n - 1], dtype_c0(t));
  Opd o = {.r = ir_whole(g->k, temp_buf(g, t, n->n, shape))};
  for (int d = 0; d < n->n; d++) {
    o.r.ext[d] = n->ext[d];
    o.dim[d] = (int8_t)d;
  }
  return o;
}

Opd lg_temp1(Lg *g, DType t, int64_t count, Nest *n) {
  *n = (Nest){.n = 1, .ext = {ir_i32(g->k, count)}, .max = {count}, .flat = true};
  return lg_temp(g, n, t);
}

Nest lg_own(const Nest *n, const Opd *o, Opd *own, int8_t *back) {
  Nest m = {0};
  *own = *o;
  for (int d = 0; d < n->n; d++) {
    if (o->dim[d] == REPEATS) continue;
    m.ext[m.n] = n->ext[d];
    m.max[m.n] = n->max[d];
    own->dim[m.n] = o->dim[d];
    back[m.n++] = (int8_t)d;
  }
  m.flat = n->flat || o->dim[n->n - 1] == REPEATS;
  return m;
}

Opd lg_widen(const Nest *n, const Nest *m, Opd o, const int8_t *back) {
  int8_t dim[IR_MAX_RANK];
  memcpy(dim, o.dim, sizeof dim);
  for (int d = 0; d < n->n; d++) o.dim[d] = REPEATS;
  for (int i = 0; i < m->n; i++) o.dim[back[i]] = dim[i];
  return o;
}

/* ---- questions about one operand ------------------------------------------------------------------------------- */

static bool start_aligned(Lg *g, const Opd *o) {
  int size = dtype_size(o->r.buf->type);
  for (int d = 0; d < o->r.buf->rank; d++) {
    int64_t bytes = buf_stride(o->r.buf, d) * size;
    int p = ir_pow2(g->k, o->r.off[d]);
    if ((p < 5 ? bytes << p : 0) % BLOCK) return false;
  }
  return true;
}

static int64_t stride_at(const Opd *o, int d) { return o->dim[d] == REPEATS ? 0 : buf_stride(o->r.buf, o->dim[d]); }

bool lg_is_full(const Nest *n, const Opd *o) {
  for (int d = 0; d < n->n; d++)
    if (o->dim[d] == REPEATS) return false;
  return true;
}

static bool is_run(const Nest *n, const Opd *o) {
  int64_t want = 1;
  for (int d = n->n - 1; d >= 0; d--) {
    if (o->dim[d] == REPEATS || want < 0 || stride_at(o, d) != want) return false;
    want = ir_is_const(n->ext[d]) ? want * n->ext[d]->i : -1;
  }
  return true;
}

bool lg_is_dense(Lg *g, const Nest *n, const Opd *o) {
  return !o->scalar && !o->block && is_run(n, o) && start_aligned(g, o);
}

bool lg_is_far(const Nest *n, const Opd *o) {
  return n->n > 1 && stride_at(o, n->n - 2) * dtype_size(o->r.buf->type) > MAX_STRIDE * BLOCK;
}

/* Are dims d and d + 1 one dimension for every operand? */
static bool mergeable(const Nest *n, const Opd *arg, int n_arg, int d) {
  if (!ir_is_const(n->ext[d + 1])) return false;
  for (int i = 0; i < n_arg; i++) {
    if (arg[i].scalar) continue;
    if (arg[i].block && d + 1 == n->n - 1) return false;
    if (stride_at(&arg[i], d) != stride_at(&arg[i], d + 1) * n->ext[d + 1]->i) return false;
  }
  return true;
}

/* First dimension of the group of mergeable ones that ends at `last`. */
static int group_start(const Nest *n, const Opd *arg, int n_arg, int last) {
  int from = last;
  while (from > 0 && mergeable(n, arg, n_arg, from - 1)) from--;
  return from;
}

/* ---- scalar pipe ----------------------------------------------------------------------------------------------- */

static void find_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) *(bool *)user = true;
}

IrExpr *lg_hoist(Lg *g, IrExpr *e) {
  bool loads = false;
  ir_walk_expr(e, find_load, &loads);
  if (!loads) return e;
  IrStmt *let = ir_new_stmt(g->k, ST_LET, g->loc);
  let->set.var = ir_new_var(g->k, "elem", e->type, VAR_LET, g->loc);
  let->set.var->def = let;
  let->set.value = e;
  ir_append(g->out, let);
  return ir_var(g->k, let->set.var);
}

IrVar *lg_loop(Lg *g, const char *name, IrExpr *hi, IrBlock **saved) {
  IrStmt *s = ir_new_stmt(g->k, ST_FOR, g->loc);
  s->loop.var = ir_new_var(g->k, name, DT_I32, VAR_LOOP, g->loc);
  s->loop.var->def = s;
  s->loop.lo = ir_i32(g->k, 0);
  s->loop.hi = ir_cast(g->k, DT_I32, hi);
  s->loop.step = ir_i32(g->k, 1);
  ir_append(g->out, s);
  *saved = g->out;
  g->out = &s->body;
  return s->loop.var;
}

IrExpr *lg_element(Lg *g, const Opd *o, IrExpr **at, int n) {
  IrExpr *idx[IR_MAX_RANK];
  if (o->scalar) return o->scalar;
  for (int d = 0; d < o->r.buf->rank; d++) idx[d] = o->r.off[d];
  for (int i = 0; i < n; i++)
    if (o->dim[i] != REPEATS) idx[o->dim[i]] = ir_binary(g->k, EX_ADD, idx[o->dim[i]], at[i]);
  return ir_load(g->k, o->r.buf, idx);
}

void lg_warn_scalar(Lg *g, const Nest *n, const char *what, const char *why, const char *fix) {
  int64_t count = 1;
  if (g->warned) return;
  g->warned = true;
  for (int d = 0; d < n->n; d++) count *= n->max[d];
  Diag *w = diag_add(g->p->diags, DIAG_LEG_SCALAR, g->loc,
                     "'%s': %s goes element by element through the scalar pipe, up to %lld elements, about %lld "
                     "cycles; %s",
                     op_info[g->s->op].name, what, (long long)count, (long long)count * CYCLES_AN_ELEMENT, why);
  diag_fix(g->p->diags, w, "%s", fix);
}

/* e as a tile's conversion makes it: to the nearest that a narrower integer dtype holds. */
static IrExpr *narrowed(IrKernel *k, IrExpr *e, DType t) {
  DType from = (DType)e->type;
  int bits = dtype_info[t].bits;
  bool is_signed = dtype_info[t].cls == 'i';
  if (dtype_is_float(from) || dtype_is_float(t) || t == DT_BOOL || bits >= dtype_info[from].bits)
    return ir_cast(k, t, e);
  int64_t high = (INT64_C(1) << (bits - is_signed)) - 1;
  e = ir_binary(k, EX_MIN, e, ir_int(k, from, high));
  if (dtype_info[from].cls == 'i') e = ir_binary(k, EX_MAX, e, ir_int(k, from, is_signed ? -high - 1 : 0));
  return ir_cast(k, t, e);
}

/* A count of the width or more, which an expression does not have, shifts everything out but signs. */
static IrExpr *shifted(IrKernel *k, ExprOp op, IrExpr *a, IrExpr *by) {
  IrRange r = ir_range(k, by);
  int bits = dtype_info[a->type].bits;
  if (r.hi >= 0 && r.lo < bits) return ir_binary(k, op, a, by);
  bool sign = op == EX_SHR && dtype_info[a->type].cls == 'i';
  return sign ? ir_binary(k, op, a, ir_int(k, a->type, bits - 1)) : ir_int(k, a->type, 0);
}

/* The value of one element of op; NULL: pipe S does not compute it. Small floats run in f32 and are rounded once. */
static IrExpr *element_value(Lg *g, StmtOp op, IrExpr **in, DType t) {
  IrKernel *k = g->k;
  DType w = dtype_is_float(t) && dtype_size(t) < 4 ? DT_F32 : t;
  IrExpr *a = ir_cast(k, w, in[0]), *b = in[1] ? ir_cast(k, w, in[1]) : NULL;
  switch (op) {
  case OP_CAST: return narrowed(k, in[0], t);
  case OP_MOVE:
  case OP_COPY:
  case OP_FILL:
  case OP_BROADCAST: return ir_cast(k, t, in[0]);
  case OP_ADD: a = ir_binary(k, EX_ADD, a, b); break;
  case OP_SUB: a = ir_binary(k, EX_SUB, a, b); break;
  case OP_MUL: a = ir_binary(k, EX_MUL, a, b); break;
  case OP_MAX: a = ir_binary(k, EX_MAX, a, b); break;
  case OP_MIN: a = ir_binary(k, EX_MIN, a, b); break;
  case OP_AND: a = ir_binary(k, EX_AND, a, b); break;
  case OP_OR: a = ir_binary(k, EX_OR, a, b); break;
  case OP_XOR: a = ir_binary(k, EX_XOR, a, b); break;
  case OP_NOT: a = t == DT_BOOL ? ir_unary(k, EX_LNOT, a) : ir_unary(k, EX_NOT, a); break;
  case OP_POW: a = ir_binary(k, EX_POW, a, b); break;
  case OP_SHL: a = shifted(k, EX_SHL, a, b); break;
  case OP_SHR: a = shifted(k, EX_SHR, a, b); break;
  case OP_RELU: a = ir_binary(k, EX_MAX, a, ir_int(k, w, 0)); break;
  case OP_ABS: a = dtype_info[t].cls == 'i' ? ir_binary(k, EX_MAX, a, ir_unary(k, EX_NEG, a)) : a; break;
  default: return NULL;
  }
  return ir_cast(k, t, a);
}

void lg_by_element(Lg *g, const Nest *n, StmtOp op, const Opd *arg, int n_arg) {
  IrBlock *saved[IR_MAX_RANK];
  IrExpr *at[IR_MAX_RANK], *in[LG_MAX_IN + 1] = {0}, *idx[IR_MAX_RANK];
  const Opd *dst = &arg[n_arg - 1];
  for (int d = 0; d < n->n; d++) at[d] = ir_var(g->k, lg_loop(g, "e", n->ext[d], &saved[d]));
  for (int i = 0; i + 1 < n_arg; i++) in[i] = lg_element(g, &arg[i], at, n->n);
  IrExpr *value = element_value(g, op, in, dst->r.buf->type);
  if (!value) {
    lg_no_dtype(g, dst->r.buf->type, "convert the tile to f32 first");
    g->out = saved[0];
    return;
  }
  for (int d = 0; d < dst->r.buf->rank; d++) idx[d] = dst->r.off[d];
  for (int d = 0; d < n->n; d++) idx[dst->dim[d]] = ir_binary(g->k, EX_ADD, idx[dst->dim[d]], at[d]);
  IrStmt *st = ir_new_stmt(g->k, ST_STORE, g->loc);
  st->why = "no vector form";
  st->store.buf = dst->r.buf;
  st->store.idx = arena_array(g->a, IrExpr *, dst->r.buf->rank);
  memcpy(st->store.idx, idx, sizeof(IrExpr *) * dst->r.buf->rank);
  st->store.value = value;
  ir_append(g->out, st);
  g->out = saved[0];
}

/* ---- one step -------------------------------------------------------------------------------------------------- */

void lg_narrow(Lg *g, Nest *n, Opd *o, int n_opd, int d, IrExpr *off, IrExpr *ext) {
  for (int i = 0; i < n_opd; i++) {
    if (o[i].scalar) continue;
    int b = o[i].dim[d];
    if (b != REPEATS) {
      o[i].r.off[b] = ir_binary(g->k, EX_ADD, o[i].r.off[b], off);
      o[i].r.ext[b] = ext ? ext : ir_i32(g->k, 1);
    }
    if (!ext) memmove(&o[i].dim[d], &o[i].dim[d + 1], (size_t)(n->n - d - 1));
  }
  if (ext) {
    n->ext[d] = ext;
    n->max[d] = lg_bound(g, ext, n->max[d]);
    return;
  }
  memmove(&n->ext[d], &n->ext[d + 1], sizeof(n->ext[0]) * (size_t)(n->n - d - 1));
  memmove(&n->max[d], &n->max[d + 1], sizeof(n->max[0]) * (size_t)(n->n - d - 1));
  n->n--;
}

void lg_put(Lg *g, StmtOp op, const Opd *arg, int n_arg, int key, int64_t value) {
  IrArg args[LG_MAX_IN + 1];
  IrVec v;
  for (int i = 0; i < n_arg; i++) args[i] = arg[i].scalar ? ir_arg_scalar(arg[i].scalar) : ir_arg_region(arg[i].r);
  IrStmt *s = ir_new_op(g->k, op, g->loc, n_arg, args);
  if (key != NO_ATTR) ir_set_attr(g->k, s, (AttrKey)key, ir_i32(g->k, value));
  ir_append(g->out, s);
  if (ir_vec(g->k, s, &v) || g->failed) return;
  Text t;
  text_init(&t, g->a);
  ir_print_stmt(&t, g->k, s);
  diag_add(g->p->diags, DIAG_INTERNAL, g->loc, "legalize wrote an instruction of no known form: %s", text_str(&t));
  g->failed = true;
}

/* Blocks written out over the rows they repeat in, and over all columns unless they are to stay blocks. */
static Opd spread_blocks(Lg *g, const Nest *n, Opd blocks, bool stay) {
  int last = n->n - 1;
  Nest m = *n;
  DType t = opd_type(&blocks);
  int64_t cols = stay ? dtype_c0(t) : round_up(n->max[last], dtype_c0(t));
  m.ext[last] = ir_i32(g->k, cols);
  m.max[last] = cols;
  Opd pair[2] = {blocks, lg_temp(g, &m, t)};
  lg_emit(g, &m, OP_MOVE, pair, 2, NO_ATTR, 0);
  if (stay) {
    pair[1].block = true;
    pair[1].dim[last] = REPEATS;
  } else {
    pair[1].r.ext[pair[1].dim[last]] = n->ext[last];
  }
  return pair[1];
}

/* [M, 1] as [M, C0] with C0 copies of each value. Odd counts go through a padded run: brcb takes 8 values at a time. */
static Opd as_blocks(Lg *g, const Nest *n, Opd o) {
  Opd own, pair[2];
  int8_t back[IR_MAX_RANK];
  Nest m = lg_own(n, &o, &own, back);
  int64_t shape[IR_MAX_RANK], rest = 1;
  DType t = opd_type(&o);
  for (int d = m.n - 1; d >= 0; d--) shape[d] = m.max[d];
  for (int d = 1; d < m.n; d++) rest *= shape[d];
  while (shape[0] * rest % 8) shape[0]++;
  if (dtype_size(t) < 2 || dtype_size(t) > 4) {
    Opd whole[2] = {o, lg_temp(g, n, t)};
    lg_warn_scalar(g, n, "the broadcast of a column", "brcb takes 16- and 32-bit elements only", "use a wider dtype");
    lg_by_element(g, n, OP_MOVE, whole, 2);
    return whole[1];
  }
  bool exact = true;
  for (int d = 0; d < m.n; d++) exact &= ir_is_const(m.ext[d]) && shape[d] == m.ext[d]->i;
  Opd src = own;
  if (!exact) {
    src = (Opd){.r = ir_whole(g->k, temp_buf(g, t, m.n, shape))};
    lg_put(g, OP_FILL, (Opd[]){lg_scalar(ir_int(g->k, t, 0)), src}, 2, NO_ATTR, 0);
    Opd part = src;
    for (int d = 0; d < m.n; d++) {
      part.r.ext[d] = m.ext[d];
      part.dim[d] = (int8_t)d;
    }
    pair[0] = own;
    pair[1] = part;
    lg_emit(g, &m, OP_MOVE, pair, 2, NO_ATTR, 0);
  }
  shape[m.n] = dtype_c0(t);
  Opd blocks = {.r = ir_whole(g->k, temp_buf(g, t, m.n + 1, shape)), .block = true};
  lg_put(g, OP_BRCB, (Opd[]){src, blocks}, 2, NO_ATTR, 0);
  for (int d = 0; d < m.n; d++) {
    blocks.r.ext[d] = m.ext[d];
    blocks.dim[d] = (int8_t)d;
  }
  blocks = lg_widen(n, &m, blocks, back);
  if (m.n < n->n - 1) blocks = spread_blocks(g, n, blocks, true);
  /* a width known only at run time may be less than a block: whole rows then */
  return ir_is_const(n->ext[n->n - 1]) ? blocks : spread_blocks(g, n, blocks, false);
}

static void emit_form(Lg *g, Nest n, StmtOp op, const Opd *from_arg, int n_arg, int key, int64_t value);

/* Rows shorter than a block read only its start. */
static Opd narrow_block(const Nest *n, Opd o) {
  int last = n->n - 1;
  if (o.scalar || !o.block || !ir_is_const(n->ext[last]) || n->ext[last]->i > dtype_c0(opd_type(&o))) return o;
  o.block = false;
  o.dim[last] = (int8_t)(o.r.buf->rank - 1);
  o.r.ext[o.dim[last]] = n->ext[last];
  return o;
}

static void emit_part(Lg *g, Nest n, StmtOp op, const Opd *from_arg, int n_arg, int key, int64_t value, int d,
                      IrExpr *off, IrExpr *ext) {
  Opd arg[LG_MAX_IN + 1];
  memcpy(arg, from_arg, sizeof(Opd) * (size_t)n_arg);
  lg_narrow(g, &n, arg, n_arg, d, off, ext);
  emit_form(g, n, op, arg, n_arg, key, value);
}

/* Columns in pieces of `e` elements, the rest exactly. */
static void emit_chunks(Lg *g, const Nest *n, StmtOp op, const Opd *arg, int n_arg, int key, int64_t value, int64_t e) {
  int d = n->n - 1;
  IrExpr *c = n->ext[d], *step = ir_i32(g->k, e);
  IrBlock *saved;
  if (!ir_is_const(c)) {
    IrExpr *count = ir_binary(g->k, EX_FDIV, ir_binary(g->k, EX_ADD, c, ir_i32(g->k, e - 1)), step);
    IrVar *v = lg_loop(g, "chunk", count, &saved);
    IrExpr *off = ir_binary(g->k, EX_MUL, ir_var(g->k, v), step);
    IrExpr *left = ir_binary(g->k, EX_SUB, c, off);
    emit_part(g, *n, op, arg, n_arg, key, value, d, off, ir_binary(g->k, EX_MIN, step, left));
    g->out = saved;
    return;
  }
  int64_t full = c->i / e, tail = c->i % e;
  if (full > 1) {
    IrVar *v = lg_loop(g, "chunk", ir_i32(g->k, full), &saved);
    emit_part(g, *n, op, arg, n_arg, key, value, d, ir_binary(g->k, EX_MUL, ir_var(g->k, v), step), step);
    g->out = saved;
  } else {
    emit_part(g, *n, op, arg, n_arg, key, value, d, ir_i32(g->k, 0), step);
  }
  if (tail) emit_part(g, *n, op, arg, n_arg, key, value, d, ir_i32(g->k, full * e), ir_i32(g->k, tail));
}

static void emit_form(Lg *g, Nest n, StmtOp op, const Opd *from_arg, int n_arg, int key, int64_t value) {
  Opd arg[LG_MAX_IN + 1] = {0};
  for (int i = 0; i < n_arg; i++) arg[i] = narrow_block(&n, from_arg[i]);
  int from = group_start(&n, arg, n_arg, n.n - 1);
  bool blocks = false, far = false; /* far: a repeat cannot step over the pitch, rows form would be one repeat a row */
  int64_t width = 1, cols = 1, rows = 1;
  for (int i = 0; i < n_arg; i++) {
    if (arg[i].scalar) continue;
    int size = dtype_size(arg[i].r.buf->type);
    blocks |= arg[i].block;
    far |= from > 0 && stride_at(&arg[i], from - 1) * size > MAX_STRIDE * BLOCK;
    width = max_i64(width, size);
  }
  if (from == 0 && !blocks) {
    lg_put(g, op, arg, n_arg, key, value);
    return;
  }
  for (int d = from; d < n.n; d++) cols *= n.max[d];
  for (int d = 0; d < from; d++) rows *= n.max[d];
  int64_t repeat = g->p->arch->repeat_bytes, chunks = ceil_div(cols * width, repeat);
  bool two = from == 0 || group_start(&n, arg, n_arg, from - 1) == 0;
  if (two && from == n.n - 1 && chunks <= 1) {
    lg_put(g, op, arg, n_arg, key, value);
  } else if (two && from == n.n - 1 && (blocks || (!far && chunks <= rows))) {
    emit_chunks(g, &n, op, arg, n_arg, key, value, repeat / width);
  } else {
    IrBlock *saved;
    IrVar *v = lg_loop(g, "row", n.ext[0], &saved);
    emit_part(g, n, op, arg, n_arg, key, value, 0, ir_var(g->k, v), NULL);
    g->out = saved;
  }
}

/* Bytes move in pairs: an odd number of 8-bit elements goes through f16, which holds them exactly. */
static bool odd_bytes(const Nest *n, const Opd *src) {
  DType t = opd_type(src);
  if (t != DT_I8 && t != DT_U8) return false;
  if (src->dim[n->n - 1] == REPEATS) return true;
  for (int d = n->n - 1; d >= 0; d--) {
    if (!ir_is_const(n->ext[d])) return true;
    if (n->ext[d]->i % 2 == 0) return false;
    if (!n->flat) return true;
  }
  return true;
}

void lg_emit(Lg *g, const Nest *n, StmtOp op, const Opd *from_arg, int n_arg, int key, int64_t value) {
  Opd arg[LG_MAX_IN + 1];
  if (g->failed) return;
  memcpy(arg, from_arg, sizeof(Opd) * (size_t)n_arg);
  if (op == OP_MOVE && odd_bytes(n, &arg[0])) {
    Opd wide = lg_as(g, n, arg[0], DT_F16);
    lg_cast(g, n, wide, arg[1], CAST_RINT);
    return;
  }
  for (int i = 0; i + 1 < n_arg; i++)
    if (!arg[i].scalar && !arg[i].block && arg[i].dim[n->n - 1] == REPEATS) arg[i] = as_blocks(g, n, arg[i]);
  emit_form(g, *n, op, arg, n_arg, key, value);
}

/* ---- putting operands in order --------------------------------------------------------------------------------- */

static bool provably_apart(Lg *g, const IrRegion *a, const IrRegion *b) {
  for (int d = 0; d < a->buf->rank; d++)
    if (ir_prove_le(g->k, ir_binary(g->k, EX_ADD, a->off[d], a->ext[d]), b->off[d]) ||
        ir_prove_le(g->k, ir_binary(g->k, EX_ADD, b->off[d], b->ext[d]), a->off[d]))
      return true;
  return false;
}

static IrExpr *offset_of(Lg *g, const Opd *o) {
  IrExpr *off = ir_i32(g->k, 0);
  for (int d = 0; d < o->r.buf->rank; d++)
    off = ir_binary(g->k, EX_ADD, off, ir_binary(g->k, EX_MUL, o->r.off[d], ir_i32(g->k, buf_stride(o->r.buf, d))));
  return off;
}

/* Two views of one buffer: does every step find the same bytes in both? */
static bool same_places(Lg *g, const Nest *n, const Opd *a, const Opd *b) {
  bool same = dtype_size(a->r.buf->type) == dtype_size(b->r.buf->type);
  for (int d = 0; d < n->n && same; d++) same = stride_at(a, d) == stride_at(b, d);
  return same && lg_same(g, offset_of(g, a), offset_of(g, b));
}

/* Would writing dst change what the step still reads through `in`? The same elements in the same order are fine. */
static bool clashes(Lg *g, const Nest *n, const Opd *in, const Opd *dst) {
  if (in->scalar || ir_root(in->r.buf) != ir_root(dst->r.buf)) return false;
  if (in->dim[n->n - 1] == REPEATS)
    return !ir_is_int(in->r.ext[in->r.buf->rank - 1], 1) && !provably_apart(g, &in->r, &dst->r);
  if (in->r.buf != dst->r.buf) return !same_places(g, n, in, dst);
  bool same = !memcmp(in->dim, dst->dim, (size_t)n->n);
  for (int d = 0; d < in->r.buf->rank && same; d++) same = lg_same(g, in->r.off[d], dst->r.off[d]);
  return !same && !provably_apart(g, &in->r, &dst->r);
}

static bool repeats_in_columns(const Nest *n, const Opd *o) { return !o->scalar && o->dim[n->n - 1] == REPEATS; }

/* Start or pitch that the vector unit cannot address, given that dims from `from` on are one run. */
static bool is_bad(Lg *g, const Nest *n, const Opd *o, int from) {
  if (o->scalar || repeats_in_columns(n, o)) return false;
  if (!start_aligned(g, o) || stride_at(o, n->n - 1) != 1) return true;
  for (int d = 0; d < from; d++)
    if (stride_at(o, d) * dtype_size(o->r.buf->type) % BLOCK) return true;
  return false;
}

static void warn_layout(Lg *g, const Nest *n, const Opd *o) {
  int size = dtype_size(o->r.buf->type);
  const char *why = arena_printf(g->a, "its rows are not a multiple of %d bytes apart", BLOCK);
  if (!start_aligned(g, o))
    why = arena_printf(g->a, "the region does not start at a known multiple of %d bytes of its buffer", BLOCK);
  else if (stride_at(o, n->n - 1) != 1)
    why = arena_printf(g->a, "its neighbours stand %lld elements apart", (long long)stride_at(o, n->n - 1));
  int user = (int)strcspn(o->r.buf->name, "."); /* a temporary is called after what it stands for */
  const char *name = arena_printf(g->a, "%.*s", user, o->r.buf->name);
  const char *fix =
      arena_printf(g->a, "give %%%s rows of a multiple of %d elements and start tiles there", name, BLOCK / size);
  if (!start_aligned(g, o))
    fix = arena_printf(g->a, "start at a multiple of %d elements of %%%s; or a T.Parallel over all of it, with "
                             "T.if_then_else for the part", BLOCK / size, name);
  lg_warn_scalar(g, n, arena_printf(g->a, "%%%s %s", name, lg_shape(g, &o->r)), why, fix);
}

/* A column whose elements start blocks is gathered by one row_max over rows of one element. */
static bool gathers(Lg *g, const Nest *m, const Opd *own) {
  int64_t bytes = stride_at(own, 0) * dtype_size(own->r.buf->type);
  return m->n == 1 && bytes % BLOCK == 0 && bytes <= MAX_STRIDE * BLOCK && start_aligned(g, own) &&
         arch_has_dtype(g->p->arch, RULE_FLOAT, own->r.buf->type);
}

static void emit_gather(Lg *g, const Opd *from, IrRegion offsets, IrExpr *start, const IrRegion *to) {
  IrArg arg[4] = {ir_arg_region(ir_whole(g->k, from->r.buf)), ir_arg_region(offsets),
                  ir_arg_scalar(ir_cast(g->k, DT_U32, lg_hoist(g, start))), ir_arg_region(*to)};
  ir_append(g->out, ir_new_op(g->k, OP_GATHER, g->loc, 4, arg));
}

/* The offsets of a matrix, close together: element i of row i / columns stands i * step + row * (pitch - columns *
 * step) behind the first. */
static Opd matrix_offsets(Lg *g, const Nest *m, int64_t pitch, int64_t step) {
  int64_t columns = m->max[1], count = m->max[0] * columns;
  Nest line;
  Opd i = lg_temp1(g, DT_I32, count, &line), row = lg_temp1(g, DT_I32, count, &line),
      f = lg_temp1(g, DT_F32, count, &line);
  lg_put(g, OP_ARANGE, (Opd[]){lg_number(g, DT_I32, 0), lg_number(g, DT_I32, 1), i}, 3, NO_ATTR, 0);
  lg_cast(g, &line, i, f, CAST_RINT);
  lg_emit(g, &line, OP_ADD, (Opd[]){f, lg_number(g, DT_F32, 0.5), f}, 3, NO_ATTR, 0);
  lg_emit(g, &line, OP_MUL, (Opd[]){f, lg_number(g, DT_F32, 1.0 / (double)columns), f}, 3, NO_ATTR, 0);
  lg_cast(g, &line, f, row, CAST_FLOOR);
  lg_emit(g, &line, OP_MUL, (Opd[]){row, lg_number(g, DT_I32, (double)(pitch - columns * step)), row}, 3, NO_ATTR, 0);
  lg_emit(g, &line, OP_MUL, (Opd[]){i, lg_number(g, DT_I32, (double)step), i}, 3, NO_ATTR, 0);
  lg_emit(g, &line, OP_ADD, (Opd[]){i, row, i}, 3, NO_ATTR, 0);
  return i;
}

/* What starts anywhere, or steps, gathered by byte offsets: rows that start on blocks by an instruction each, a matrix
 * close together by one. */
static bool gather_rows(Lg *g, const Nest *m, const Opd *from, const Opd *to) {
  enum { MOST = 8192 }; /* offsets of a matrix: 96 KB of scratch */
  IrKernel *k = g->k;
  int last = m->n - 1, size = dtype_size(opd_type(from));
  int64_t count = 1, step = stride_at(from, last) * size;
  for (int d = 0; d < m->n; d++) count *= m->max[d];
  if ((size != 2 && size != 4) || count < 16 || m->max[last] < 8 || from->dim[last] == REPEATS ||
      ir_root(from->r.buf) == ir_root(to->r.buf))
    return false;
  Nest row = *m, line;
  Opd pair[2] = {*from, *to};
  if (is_bad(g, m, to, last)) {
    if (m->n != 2 || !ir_is_const(m->ext[0]) || !ir_is_const(m->ext[1]) || count > MOST || !lg_is_dense(g, m, to))
      return false;
    Opd off = matrix_offsets(g, m, stride_at(from, 0) * size, step);
    IrExpr *start = ir_binary(k, EX_MUL, offset_of(g, from), ir_i32(k, size));
    IrRegion run = lg_flat(g, &to->r, opd_type(to));
    emit_gather(g, from, lg_flat(g, &off.r, DT_U32), start, &run);
    return true;
  }
  Opd off = lg_temp1(g, DT_I32, m->max[last], &line);
  lg_put(g, OP_ARANGE, (Opd[]){lg_number(g, DT_I32, 0), lg_number(g, DT_I32, (double)step), off}, 3, NO_ATTR, 0);
  IrRegion bytes = lg_flat(g, &off.r, DT_U32);
  bytes.ext[0] = m->ext[last];
  IrBlock *outer = g->out, *saved;
  while (row.n > 1) lg_narrow(g, &row, pair, 2, 0, ir_var(k, lg_loop(g, "row", row.ext[0], &saved)), NULL);
  emit_gather(g, from, bytes, ir_binary(k, EX_MUL, offset_of(g, &pair[0]), ir_i32(k, size)), &pair[1].r);
  g->out = outer;
  return true;
}

/* An input that the unit cannot address as it stands, in scratch. */
static Opd copied_in(Lg *g, const Nest *n, Opd o, bool dense) {
  Opd own, pair[2];
  int8_t back[IR_MAX_RANK];
  Nest m = lg_own(n, &o, &own, back);
  if (dense) m.flat = true;
  pair[0] = own;
  pair[1] = lg_temp(g, &m, opd_type(&o));
  if (gathers(g, &m, &own)) {
    lg_put(g, OP_ROW_MAX, pair, 2, NO_ATTR, 0);
  } else if (!gather_rows(g, &m, &own, &pair[1])) {
    warn_layout(g, &m, &own);
    lg_by_element(g, &m, OP_MOVE, pair, 2);
  }
  return lg_widen(n, &m, pair[1], back);
}

bool lg_is_ordered(Lg *g, const Nest *n, const Opd *o, int from) { return !is_bad(g, n, o, from); }

Opd lg_ordered(Lg *g, const Nest *n, Opd o, int from) {
  if (!is_bad(g, n, &o, from)) return o;
  return copied_in(g, n, o, false);
}

bool lg_fit_block(Lg *g, const Nest *n, const IrRegion *dst, const IrRegion *r, Opd *o) {
  int last = r->buf->rank - 1, c0 = dtype_c0(r->buf->type);
  IrRegion column = *r;
  if (last < 1 || !ir_is_int(r->ext[last], c0)) return false;
  column.ext[last] = ir_i32(g->k, 1);
  if (!lg_fit(g, n, dst, &column, -1, o) || o->dim[n->n - 1] != REPEATS) return false;
  if (!ir_is_const(n->ext[n->n - 1]) || !start_aligned(g, o)) return true; /* the first of each block will do */
  if (!arch_has_dtype(g->p->arch, RULE_ARITH, r->buf->type)) return true;
  o->r = *r;
  o->block = true;
  return true;
}

/* Full operands are dense: write out what repeats, and the whole step is flat. */
static bool flatten(Lg *g, Nest *n, Opd *arg, int n_arg) {
  bool some = false;
  for (int i = 0; i < n_arg; i++) {
    if (arg[i].scalar) continue;
    if (!lg_is_full(n, &arg[i])) some = true;
    else if (!lg_is_dense(g, n, &arg[i])) return false;
  }
  if (!some) return false;
  n->flat = true;
  for (int i = 0; i < n_arg; i++) {
    if (arg[i].scalar || lg_is_full(n, &arg[i])) continue;
    Opd pair[2] = {arg[i], lg_temp(g, n, opd_type(&arg[i]))};
    warn_layout(g, n, &arg[n_arg - 1]);
    lg_by_element(g, n, OP_MOVE, pair, 2);
    arg[i] = pair[1];
  }
  return true;
}

static void fix_inputs(Lg *g, Nest *n, Opd *arg, int n_arg, const bool *is_bad_at, Finish *f) {
  bool runs = true;
  for (int i = 0; i < n_arg; i++) runs &= arg[i].scalar || is_run(n, &arg[i]);
  n->flat = runs; /* only starts are off */
  for (int i = 0; i < n_arg; i++) {
    Opd own;
    int8_t back[IR_MAX_RANK];
    bool column = repeats_in_columns(n, &arg[i]) && !arg[i].block;
    Nest m = column ? lg_own(n, &arg[i], &own, back) : *n;
    bool off = runs ? !arg[i].scalar && !start_aligned(g, &arg[i]) : is_bad_at[i];
    if (!off && !(column && !lg_is_dense(g, &m, &own))) continue;
    if (i + 1 < n_arg) {
      arg[i] = copied_in(g, n, arg[i], column);
    } else {
      warn_layout(g, n, &arg[i]);
      f->by_element = true;
    }
  }
}

void lg_prepare(Lg *g, Nest *n, Opd *arg, int n_arg, bool reads_dst, Finish *f) {
  Opd *dst = &arg[n_arg - 1];
  bool clash = false, bad = false, is_bad_at[LG_MAX_IN + 1];
  *f = (Finish){.home = *dst};
  n->flat = true;
  for (int i = 0; i < n_arg; i++) {
    if (arg[i].scalar) continue;
    bool repeats = true;
    for (int d = 0; d < n->n; d++) repeats &= arg[i].dim[d] == REPEATS;
    if (repeats) arg[i] = lg_scalar(lg_hoist(g, lg_element(g, &arg[i], NULL, 0)));
    else if (i + 1 < n_arg) clash |= clashes(g, n, &arg[i], dst);
    if (!arg[i].scalar) n->flat &= lg_is_dense(g, n, &arg[i]);
  }
  if (!n->flat) { /* scratch has padded rows then, so that columns are one dimension */
    for (int i = 0; i < n_arg; i++) bad |= is_bad_at[i] = is_bad(g, n, &arg[i], n->n - 1);
    if (!bad || !flatten(g, n, arg, n_arg)) fix_inputs(g, n, arg, n_arg, is_bad_at, f);
  }
  if (!clash && !f->by_element) return;
  f->moved = true;
  *dst = lg_temp(g, n, opd_type(dst));
  if (!reads_dst) return;
  if (f->by_element) lg_by_element(g, n, OP_MOVE, (Opd[]){f->home, *dst}, 2);
  else lg_emit(g, n, OP_MOVE, (Opd[]){f->home, *dst}, 2, NO_ATTR, 0);
}

void lg_finish(Lg *g, const Nest *n, const Opd *dst, const Finish *f) {
  if (!f->moved || g->failed) return;
  Opd pair[2] = {*dst, f->home};
  if (f->by_element) lg_by_element(g, n, OP_MOVE, pair, 2);
  else lg_emit(g, n, OP_MOVE, pair, 2, NO_ATTR, 0);
}

/* Narrow rows that stand a few blocks apart, close together: gather_mask with the pattern of one row, repeated. */
static bool packs(Lg *g, const Nest *n, const Opd *src, const Opd *dst) {
  if (src->scalar || n->n != 2 || !ir_is_const(n->ext[0]) || !ir_is_const(n->ext[1]) || !lg_is_dense(g, n, dst) ||
      ir_root(src->r.buf) == ir_root(dst->r.buf))
    return false;
  const IrBuf *b = src->r.buf;
  int64_t size = dtype_size(b->type), width = n->ext[1]->i * size, pitch = stride_at(src, 0) * size;
  int64_t unit = width % 4 == 0 ? 4 : 2, bits = pitch / unit;
  if (stride_at(src, 1) != 1 || !ir_is_int(src->r.off[b->rank - 1], 0) || !start_aligned(g, src)) return false;
  if (width % unit || pitch % BLOCK || width >= pitch || bits > 32 || (bits & (bits - 1))) return false;
  DType t = unit == 4 ? DT_U32 : DT_U16;
  IrRegion all = src->r; /* whole rows, as they lie in memory */
  all.ext[src->dim[1]] = ir_i32(g->k, stride_at(src, 0));
  IrRows rows;
  if (!ir_rows(g->k, &all, &rows) || !ir_is_int(rows.rows, 1)) return false;
  int64_t one = (INT64_C(1) << (width / unit)) - 1, pattern = bits == 8 ? one | one << 8 : one;
  int64_t count = n->ext[0]->i * bits; /* bits in all */
  DType m = bits == 32 ? DT_U32 : DT_U16;
  Nest unused;
  Opd mask = lg_temp1(g, m, round_up(count, 256) / dtype_info[m].bits, &unused);
  lg_put(g, OP_FILL, (Opd[]){lg_scalar(ir_int(g->k, m, pattern)), mask}, 2, NO_ATTR, 0);
  IrArg arg[3] = {ir_arg_region(lg_flat(g, &all, t)), ir_arg_region(lg_flat(g, &mask.r, t)),
                  ir_arg_region(lg_flat(g, &dst->r, t))};
  arg[1].region.ext[0] = ir_i32(g->k, ceil_div(count, unit * 8));
  ir_append(g->out, ir_new_op(g->k, OP_GATHER_MASK, g->loc, 3, arg));
  return true;
}

void lg_copy(Lg *g, const Nest *from_n, Opd src, Opd dst) {
  Nest n = *from_n;
  Opd arg[2] = {src, dst};
  Finish f;
  int from = group_start(&n, arg, 2, n.n - 1);
  if (src.scalar && is_bad(g, &n, &dst, from)) {
    warn_layout(g, &n, &dst);
    lg_by_element(g, &n, OP_FILL, arg, 2);
    return;
  }
  if (!src.scalar && !clashes(g, &n, &src, &dst) && (is_bad(g, &n, &src, from) || is_bad(g, &n, &dst, from))) {
    if (packs(g, &n, &src, &dst) || gather_rows(g, &n, &src, &dst)) return;
    warn_layout(g, &n, is_bad(g, &n, &src, from) ? &src : &dst);
    lg_by_element(g, &n, OP_MOVE, arg, 2); /* one trip is enough */
    return;
  }
  lg_prepare(g, &n, arg, 2, false, &f);
  lg_emit(g, &n, arg[0].scalar ? OP_FILL : OP_MOVE, arg, 2, NO_ATTR, 0);
  lg_finish(g, &n, &arg[1], &f);
}

/* Rows of a width that only the run knows would start anywhere in a run. */
static bool cannot_close_up(Lg *g, const Nest *n, const Opd *o) {
  bool rows = false, open = false;
  for (int d = 0; d < n->n; d++) {
    open |= rows && !ir_is_const(n->ext[d]);
    rows |= !ir_is_int(n->ext[d], 1);
  }
  if (!open) return false;
  if (!diag_told(g->p->diags, DIAG_LEG_FORM, &g->loc)) { /* a loop makes many such of one expression */
    Diag *d = diag_add(g->p->diags, DIAG_LEG_FORM, g->loc,
                       "'%s' works on one run of elements, and the rows of %%%s%s have a width that only the run knows",
                       op_info[g->s->op].name, o->r.buf->name, lg_shape(g, &o->r));
    diag_fix(g->p->diags, d, "give it whole rows, of a constant width: what is behind their valid part can be filled");
  }
  return g->failed = true;
}

Opd lg_dense(Lg *g, const Nest *from_n, Opd o) {
  if (lg_is_dense(g, from_n, &o) || cannot_close_up(g, from_n, &o)) return o;
  Nest n = *from_n;
  n.flat = true;
  Opd t = lg_temp(g, &n, opd_type(&o));
  lg_copy(g, from_n, o, t);
  return t;
}

Opd lg_as(Lg *g, const Nest *n, Opd o, DType t) {
  if (opd_type(&o) == t) return o;
  if (o.scalar) return lg_scalar(ir_cast(g->k, t, o.scalar));
  Opd own;
  int8_t back[IR_MAX_RANK];
  Nest m = lg_own(n, &o, &own, back);
  Opd to = lg_temp(g, &m, t);
  lg_cast(g, &m, own, to, CAST_RINT);
  return lg_widen(n, &m, to, back);
}
