/* parallel.c - removes `parallel`: every statement in it becomes tile ops.
 *
 * The body runs statement by statement over the whole box (iterations are independent, so the order between them is
 * free). A statement goes through these steps:
 *   1. lets are substituted, or computed once into a tile when something they read is written before their last use;
 *      conditions that depend on the indices become guards: `b = e` under `c` is `b = select(c, e, b)`.
 *   2. an index that the left side does not name is summed over (`+=`), or maximised (`x = max(x, e)`).
 *   3. a product of that kind goes to the cube (parallel_gemm.c).
 *   4. the indices are ordered as the left side has them, the absent ones where the operands have them.
 *   5. the outermost index becomes a serial loop while the box has more dimensions than a vector op takes; the box
 *      is cut into chunks while its temporaries do not fit UB. What this needs is found by trying: the statement is
 *      emitted, and taken back when the temporaries are too big.
 *   6. parallel_expr.c writes the vector ops.
 *
 * An accumulator (`+=`, or a gemm without init) that nothing was written to before starts at zero: by `init` on the
 * first trip of the loops between its declaration and the statement, by overwriting when there are no such loops, by a
 * fill beside the declaration otherwise. A note says so. */
#include "parallel.h"

#include <string.h>

static void vectorise(Par *v, const Work *w);
static void run_block(PassCtx *p, IrBlock *b, ParFacts *facts);

/* ---- who writes what first ---------------------------------------------------------------------------------- */

typedef struct { const IrBuf *buf; const IrStmt *stop; bool written; } Search;

static bool look_for_write(IrStmt *s, void *user) {
  Search *f = user;
  if (s == f->stop) return false;
  if (s->op == ST_STORE && ir_root(s->store.buf) == f->buf) f->written = true;
  if (ir_is_op(s))
    for (int i = ir_n_in(s->op); i < s->n_args; i++)
      if (s->args[i].kind == ARG_REGION && ir_root(s->args[i].region.buf) == f->buf) f->written = true;
  return !f->written;
}

bool par_never_written(PassCtx *p, const IrBuf *buf, const IrStmt *at, const Par *v) {
  buf = ir_root((IrBuf *)buf);
  if (buf->param >= 0 && !buf->is_out && !buf->is_work) return false; /* it comes with contents */
  Search f = {buf, at, false};
  ir_walk(&p->k->body, look_for_write, &f);
  if (v && !f.written) ir_walk(v->root, look_for_write, &f);
  return !f.written;
}

typedef struct { const IrBuf *buf; IrStmt *found; } AllocSearch;

static bool is_alloc_of(IrStmt *s, void *user) {
  AllocSearch *f = user;
  if (s->op == ST_ALLOC && s->alloc.buf == f->buf) f->found = s;
  return !f->found;
}

static IrStmt *find_alloc(IrKernel *k, const IrBuf *buf) {
  AllocSearch f = {buf, NULL};
  if (buf->param < 0) ir_walk(&k->body, is_alloc_of, &f);
  return f.found;
}

static bool mentions(const IrExpr *e, const IrVar *x) {
  if (e->op == EX_VAR)
    return e->var == x || (e->var->kind == VAR_LET && e->var->def && mentions(e->var->def->set.value, x));
  for (int i = 0; i < e->n; i++)
    if (mentions(e->op == EX_LOAD ? e->idx[i] : e->arg[i], x)) return true;
  return false;
}

IrExpr *par_first_time(PassCtx *p, const IrBuf *buf, IrExpr *const *idx, int n, IrBlock *b, const Par *v) {
  IrKernel *k = p->k;
  IrStmt *alloc = find_alloc(k, buf);
  IrBlock *stop = alloc ? alloc->block : &k->body;
  IrExpr *when = ir_int(k, DT_BOOL, 1);
  bool uncertain = false;
  while (b != stop) {
    if (v && b == v->root) {
      b = v->stmt->block;
      continue;
    }
    IrStmt *s = b->parent;
    if (!s) break;
    if (s->op == ST_IF) uncertain = true;
    if (s->op == ST_WHILE) return NULL;
    if (s->op == ST_FOR) {
      bool moves = false, jumps = ir_leaves_loop(&s->body);
      for (int i = 0; i < n; i++) moves |= mentions(idx[i], s->loop.var);
      if (!moves && (uncertain || jumps)) return NULL;
      if (!moves) when = ir_binary(k, EX_LAND, ir_binary(k, EX_EQ, ir_var(k, s->loop.var), s->loop.lo), when);
    }
    b = s->block;
  }
  return when;
}

IrVar *par_first_flag(PassCtx *p, const IrBuf *buf, Loc loc) {
  IrStmt *alloc = find_alloc(p->k, buf), *s = ir_new_stmt(p->k, ST_VAR, loc);
  s->set.var = ir_new_var(p->k, "first", DT_BOOL, VAR_MUT, loc);
  s->set.var->def = s;
  s->set.value = ir_int(p->k, DT_BOOL, 1);
  if (alloc) ir_insert_after(alloc, s);
  else ir_insert_before(p->k->body.first, s);
  return s->set.var;
}

void par_emit_flag_off(Par *v, IrVar *flag) {
  IrStmt *s = ir_new_stmt(v->k, ST_ASSIGN, v->loc);
  s->set.var = flag;
  s->set.value = ir_int(v->k, DT_BOOL, 0);
  ir_append(v->cur, s);
}

void par_note_acc_init(PassCtx *p, const IrBuf *buf, Loc loc) {
  Diag *g = diag_add(p->diags, DIAG_ACC_INIT, loc,
                     "nothing was written to %%%s before this accumulation; it starts at zero", buf->name);
  diag_other(p->diags, g, buf->loc, "%%%s is declared here", buf->name);
}

/* ---- boxes -------------------------------------------------------------------------------------------------- */

/* Largest value of an extent: what is known of it, or the dimension of a local tile it runs along. */
typedef struct { Par *v; const IrVar *var; int64_t cap; } CapSearch;

static void cap_from_index(CapSearch *c, const IrBuf *buf, IrExpr *const *idx) {
  if (buf->space == SPACE_GM) return;
  for (int d = 0; d < buf->rank; d++)
    if (idx[d]->op == EX_VAR && idx[d]->var == c->var && ir_is_const(buf->shape[d]))
      c->cap = c->cap < 0 ? buf->shape[d]->i : min_i64(c->cap, buf->shape[d]->i);
}

static void cap_from_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) cap_from_index(user, e->buf, e->idx);
}

static int64_t cap_of(Par *v, const IrVar *var, IrExpr *ext, const Work *w) {
  if (ir_is_const(ext)) return ext->i;
  IrRange r = ir_range(v->k, ext);
  CapSearch c = {v, var, r.hi < INT32_MAX ? r.hi : -1};
  if (w->buf) cap_from_index(&c, w->buf, w->idx);
  ir_walk_expr(w->value, cap_from_load, &c);
  return c.cap;
}

static uint32_t work_axes(const Par *v, const Work *w) {
  return par_left_axes(v, w) | par_axes_of(v, w->value) | (w->guard ? par_axes_of(v, w->guard) : 0);
}

static void drop_axis(Par *v, int axis) {
  for (int i = axis; i + 1 < v->n; i++) v->ax[i] = v->ax[i + 1];
  v->n--;
}

static void keep_axes(Par *v, uint32_t used) {
  for (int i = v->n - 1; i >= 0; i--)
    if (!(used >> i & 1)) drop_axis(v, i);
}

/* Position of axis among the plain single-index dimensions of an access, or -1. */
static int position(Par *v, const IrBuf *buf, IrExpr *const *idx, int axis) {
  for (int d = 0; d < buf->rank; d++) {
    int a;
    IrExpr *off;
    if (par_axis_index(v, idx[d], ~0u, &a, &off) && a == axis) return d;
  }
  return -1;
}

typedef struct { Par *v; int a, b, votes; } Vote;

static void vote(IrExpr *e, void *user) {
  Vote *o = user;
  if (e->op != EX_LOAD) return;
  int a = position(o->v, e->buf, e->idx, o->a), b = position(o->v, e->buf, e->idx, o->b);
  if (a >= 0 && b >= 0) o->votes += a < b ? 1 : -1;
}

/* Axes as the left side has them; the others where most operands have them, last when nobody says. */
static void order_axes(Par *v, const Work *w) {
  int order[MAX_AXES], n = 0;
  uint32_t left = par_left_axes(v, w), placed = 0;
  for (int d = 0; d < w->buf->rank; d++) {
    uint32_t m = par_axes_of(v, w->idx[d]) & ~placed;
    for (int i = 0; i < v->n; i++)
      if (m >> i & 1) order[n++] = i;
    placed |= m;
  }
  for (int r = 0; r < v->n; r++) {
    if (left >> r & 1) continue;
    int at = n;
    while (at > 0) {
      Vote o = {v, order[at - 1], r, 0};
      ir_walk_expr(w->value, vote, &o);
      if (o.votes >= 0) break;
      at--;
    }
    for (int i = n++; i > at; i--) order[i] = order[i - 1];
    order[at] = r;
  }
  Axis sorted[MAX_AXES];
  for (int i = 0; i < n; i++) sorted[i] = v->ax[order[i]];
  for (int i = 0; i < n; i++) v->ax[i] = sorted[i];
}

/* ---- serial loops around a smaller box ------------------------------------------------------------------------ */

static void clear_destination(Par *v, const Work *w) {
  Work zero = *w;
  Box box = par_box(v);
  zero.kind = WORK_SET;
  zero.value = par_neutral(v, w->kind, w->buf->type);
  zero.guard = NULL;
  zero.fresh = false;
  keep_axes(v, par_left_axes(v, w));
  vectorise(v, &zero);
  par_put_box(v, &box);
}

/* Do all accesses of e along the axis run over a whole dimension of a tensor, where copies clamp by themselves? */
static bool clamped_along(Par *v, IrExpr *e, int axis) {
  if (!(par_axes_of(v, e) >> axis & 1)) return true;
  if (e->op == EX_LOAD) {
    for (int d = 0; d < e->n; d++) {
      if (!(par_axes_of(v, e->idx[d]) >> axis & 1)) continue;
      bool plain = e->idx[d]->op == EX_VAR && e->idx[d]->var == v->ax[axis].var;
      if (!plain || e->buf->space != SPACE_GM || !ir_expr_equal(e->buf->shape[d], v->ax[axis].ext)) return false;
    }
    return true;
  }
  for (int i = 0; i < e->n; i++)
    if (!clamped_along(v, e->arg[i], axis)) return false;
  return e->op != EX_VAR;
}

/* Runs w as a serial loop over pieces of `rows` values of one axis (1: the axis goes away). */
static void split_axis(Par *v, const Work *work, int axis, int64_t rows) {
  IrKernel *k = v->k;
  Work w = *work;
  Axis a = v->ax[axis];
  if (w.fresh && !(par_left_axes(v, &w) >> axis & 1)) {
    clear_destination(v, &w);
    w.fresh = false;
  }
  Box box = par_box(v);
  IrExpr *size = ir_i32(k, rows);
  IrExpr *trips = rows == 1 ? a.ext : ir_binary(k, EX_FDIV, ir_binary(k, EX_ADD, a.ext, ir_i32(k, rows - 1)), size);
  IrStmt *loop = ir_is_int(trips, 1) ? NULL : par_emit_for(v, a.var->name, trips);
  IrExpr *at = ir_binary(k, EX_MUL, loop ? ir_var(k, loop->loop.var) : ir_i32(k, 0), size);
  IrBlock *outer = v->cur;
  if (loop) v->cur = &loop->body;
  v->gm.len = 0;
  if (rows == 1) {
    w = par_work_subst(v, &w, a.var, at);
    drop_axis(v, axis);
  } else {
    bool whole = (par_left_axes(v, &w) >> axis & 1) && !w.guard && clamped_along(v, w.value, axis) &&
                 clamped_along(v, ir_load(k, w.buf, w.idx), axis);
    bool even = ir_is_const(a.ext) && a.ext->i % rows == 0;
    w = par_work_subst(v, &w, a.var, ir_binary(k, EX_ADD, at, ir_var(k, a.var)));
    v->ax[axis].ext = even || whole ? size : ir_binary(k, EX_MIN, size, ir_binary(k, EX_SUB, a.ext, at));
    v->ax[axis].cap = rows;
  }
  vectorise(v, &w);
  v->gm.len = 0;
  v->cur = outer;
  par_put_box(v, &box);
}

/* Can a box of more than two dimensions be one run of elements in every operand? */
static bool is_flat(Par *v, IrBuf *buf, IrExpr **idx) {
  Access a = par_classify(v, buf, idx, ~0u);
  IrRows r;
  return a.ok && a.span == (1u << v->n) - 1 && ir_rows(v->k, &a.r, &r) && ir_is_int(r.rows, 1);
}

static bool flat_expr(Par *v, IrExpr *e) {
  if (!par_axes_of(v, e)) return true;
  if (e->op == EX_VAR) return false;
  if (e->op == EX_LOAD) return is_flat(v, e->buf, e->idx);
  for (int i = 0; i < e->n; i++)
    if (!flat_expr(v, e->arg[i])) return false;
  return true;
}

/* The axis that must become a serial loop before vector ops can take the box; -1: none. */
static int axis_to_serialise(Par *v, const Work *w) {
  uint32_t left = par_left_axes(v, w), gone = work_axes(v, w) & ~left;
  if (v->n <= 2) return -1;
  if (!gone && !w->guard && is_flat(v, w->buf, w->idx) && flat_expr(v, w->value)) return -1;
  return gone && left ? __builtin_ctz(left) : 0;
}

/* ---- trying ---------------------------------------------------------------------------------------------------- */

typedef struct {
  uint32_t bufs, vars, diags, errors, remarks, temps, gm, stmts;
  int names;
  int64_t bytes;
  IrStmt *cur, *allocs;
} Mark;

static Mark mark(const Par *v) {
  const Diags *d = v->p->diags;
  return (Mark){v->k->bufs.len, v->k->vars.len, d->list.len, d->n_errors,   v->p->remarks.len, v->temps.len,
                v->gm.len,      v->k->n_stmts,  v->facts->n_names, v->temp_bytes, v->cur->last,      v->allocs->last};
}

static void cut(IrBlock *b, IrStmt *last) {
  b->last = last;
  if (last) last->next = NULL;
  else b->first = NULL;
}

static void take_back(Par *v, const Mark *m) {
  v->k->bufs.len = m->bufs;
  v->k->vars.len = m->vars;
  v->k->n_stmts = m->stmts;
  v->p->diags->list.len = m->diags;
  v->p->diags->n_errors = m->errors;
  v->p->remarks.len = m->remarks;
  v->temps.len = m->temps;
  v->gm.len = m->gm;
  v->facts->n_names = m->names;
  v->temp_bytes = m->bytes;
  cut(v->cur, m->cur);
  cut(v->allocs, m->allocs);
}

static void free_temps(Par *v) {
  for (uint32_t i = 0; i < v->temps.len; i++) v->temps.data[i].busy = false;
}

/* Bytes of UB that temporaries may take: what the tiles of the kernel leave, a quarter at least. */
int64_t par_temp_budget(Par *v) {
  int64_t ub = v->p->arch->space[SPACE_UB].bytes, used = 0;
  for (uint32_t i = 1; i < v->k->bufs.len; i++) {
    const IrBuf *b = v->k->bufs.data[i];
    bool cube = i < v->facts->n_bufs && v->facts->cube_only[i];
    int64_t bytes = b->space == SPACE_UB || (b->space == SPACE_SHARED && !cube) ? ir_buf_bytes(b) : 0;
    if (bytes > 0 && bytes < ub) used += bytes;
  }
  return max_i64(ub - used, ub / 4);
}

/* Values of the outermost axis in a chunk, so that temporaries of `bytes` for all of them fit. */
static int64_t chunk_rows(const Par *v, int64_t bytes, int64_t budget) {
  int64_t cap = v->ax[0].cap, step = v->n == 1 ? 256 : 1, most = cap * budget / bytes;
  most = most / step * step;
  if (most < step) return cap > step ? step : 1;
  for (int64_t r = most; r > most / 2; r -= step)
    if (cap % r == 0) return r;
  return most;
}

/* What the tiles that the work itself names leave of UB, an eighth at least: they may be too large without it. */
static int64_t room_beside(const Par *v, const Work *w) {
  int64_t ub = v->p->arch->space[SPACE_UB].bytes, room = ub;
  for (uint32_t i = 1; i < v->k->bufs.len; i++) {
    const IrBuf *b = v->k->bufs.data[i];
    bool named = b == w->buf || par_reads_buf(w->value, b) || (w->guard && par_reads_buf(w->guard, b));
    if (named && !b->view && (b->space == SPACE_UB || b->space == SPACE_SHARED)) room -= max_i64(ir_buf_bytes(b), 0);
  }
  return max_i64(room, ub / 8);
}

enum { PIECE = 4096, PIECE_ROWS = 64 }; /* of an axis whose extent nothing bounds */

static void vectorise(Par *v, const Work *w) {
  order_axes(v, w);
  int axis = axis_to_serialise(v, w);
  if (axis >= 0) {
    split_axis(v, w, axis, 1);
    return;
  }
  if (w->guard && (!par_proven_inside(v, w->guard) || !par_proven_inside(v, w->value) ||
                   !par_proven_inside(v, ir_load(v->k, w->buf, w->idx)))) {
    par_scalar_statement(v, w, "an element that the condition leaves out may lie outside its tile",
                     "let the tiles cover the whole loop, or guard with a copy that clamps");
    return;
  }
  int64_t budget = min_i64(par_temp_budget(v), room_beside(v, w));
  Mark m = mark(v);
  v->temp_bytes = 0;
  v->unsized = false;
  par_vector_statement(v, w);
  free_temps(v);
  int64_t bytes = v->temp_bytes;
  if (v->p->diags->n_errors != m.errors || (!v->unsized && (bytes <= budget || v->n == 0))) {
    v->temp_bytes += m.bytes;
    return;
  }
  bool unsized = v->unsized;
  take_back(v, &m);
  v->unsized = false;
  if (unsized) { /* pieces of a known size, the last one clamped */
    axis = 0;
    while (v->ax[axis].cap >= 0) axis++;
    split_axis(v, w, axis, axis == v->n - 1 ? PIECE : PIECE_ROWS);
    return;
  }
  int64_t kept = min_i64(v->p->arch->space[SPACE_UB].bytes / 16, budget / 2); /* for scratch of the vector ops */
  int64_t rows = chunk_rows(v, bytes, budget - kept);
  if (rows >= v->ax[0].cap) rows = 1;
  split_axis(v, w, 0, rows);
}

/* ---- statements ------------------------------------------------------------------------------------------------ */

IrExpr *par_apply_lets(Par *v, IrExpr *e) {
  for (uint32_t i = v->lets.len; i-- > 0;) e = ir_subst(v->k, e, v->lets.data[i].var, v->lets.data[i].by);
  return e;
}

void par_whole_box(Par *v) {
  for (int i = 0; i < v->n_all; i++) v->ax[i] = v->all[i];
  v->n = v->n_all;
}

static bool is_element(const Work *w, const IrExpr *e) {
  if (e->op != EX_LOAD || e->buf != w->buf) return false;
  for (int d = 0; d < e->n; d++)
    if (!ir_expr_equal(e->idx[d], w->idx[d])) return false;
  return true;
}

/* x = x + e, e + x, x - e, max(x, e), x & e and the like: what happens to x. The rest must not read the buffer of x. */
static void find_accumulation(Par *v, Work *w) {
  IrExpr *e = w->value, *rest = NULL;
  bool gone = (par_axes_of(v, e) & ~par_left_axes(v, w)) != 0;
  if (w->kind != WORK_SET || e->n != 2 || e->op == EX_LOAD || e->type != w->buf->type) return;
  if (is_element(w, e->arg[0])) rest = e->arg[1];
  else if (is_element(w, e->arg[1]) && e->op != EX_SUB) rest = e->arg[0];
  if (!rest || par_reads_buf(rest, w->buf)) return;
  /* at places that an expression names, several iterations may meet too */
  bool meet = gone || (par_left_axes(v, w) && !par_classify(v, w->buf, w->idx, ~0u).ok);
  if (e->op == EX_SUB && meet) {
    rest = ir_unary(v->k, EX_NEG, rest);
    w->kind = WORK_SUM;
  } else if (e->op == EX_ADD) {
    w->kind = WORK_SUM;
  } else {
    WorkKind fold = WORK_XOR;
    while (fold > WORK_SUM && par_fold[fold].combine != (ExprOp)e->op) fold--;
    if (!meet || fold == WORK_SUM) return;
    w->kind = fold;
  }
  w->spelled |= gone;
  w->value = rest;
}

static const char *axis_names(Par *v, uint32_t axes) {
  Text t;
  text_init(&t, v->p->arena);
  for (int i = 0; i < v->n; i++)
    if (axes >> i & 1) text_printf(&t, "%s%%%s", t.len ? ", " : "", v->ax[i].var->name);
  return text_str(&t);
}

static void race(Par *v, const Work *w, uint32_t gone) {
  Text t;
  text_init(&t, v->p->arena);
  ir_print_expr(&t, ir_load(v->k, w->buf, w->idx));
  Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_RACE, v->loc,
                     "%s is one element that all iterations of %s write, and which of them is last is not defined",
                     text_str(&t), axis_names(v, gone));
  diag_fix(v->p->diags, g, "use += for a sum, x = max(x, ...) for a maximum, x = x | ... for bits, or give the left "
                           "side the index");
}

/* A sum whose destination holds nothing yet. */
static void start_at_zero(Par *v, Work *w) {
  if (!par_never_written(v->p, w->buf, v->stmt, v)) return;
  par_note_acc_init(v->p, w->buf, v->loc);
  IrExpr *when = par_first_time(v->p, w->buf, w->idx, w->buf->rank, v->cur, v);
  if (when && when->op == EX_INT) {
    w->fresh = true;
    return;
  }
  if (w->buf->space != SPACE_GM) {
    IrArg args[2] = {ir_arg_scalar(ir_int(v->k, w->buf->type, 0)), ir_arg_region(ir_whole(v->k, w->buf))};
    ir_insert_after(find_alloc(v->k, w->buf), ir_new_op(v->k, OP_FILL, v->loc, 2, args));
    return;
  }
  IrVar *flag = when ? NULL : par_first_flag(v->p, w->buf, v->loc);
  IrBlock *outer = par_enter_if(v, flag ? ir_var(v->k, flag) : when);
  clear_destination(v, w);
  v->gm.len = 0;
  if (flag) par_emit_flag_off(v, flag);
  v->cur = outer;
}

/* Conditions that only keep a store inside its tensor: copies clamp by themselves. */
static IrExpr *drop_clamps(Par *v, const Work *w, IrExpr *g) {
  if (g->op == EX_LAND) {
    IrExpr *a = drop_clamps(v, w, g->arg[0]), *b = drop_clamps(v, w, g->arg[1]);
    return a && b ? ir_binary(v->k, EX_LAND, a, b) : a ? a : b;
  }
  if (g->op != EX_LT && g->op != EX_GT) return g;
  IrExpr *x = g->arg[g->op == EX_GT], *size = g->arg[g->op == EX_LT];
  for (int d = 0; d < w->buf->rank; d++) {
    int64_t di, ds;
    if (ir_const_diff(v->k, x, w->idx[d], &di) && !di && ir_const_diff(v->k, size, w->buf->shape[d], &ds) && !ds)
      return NULL;
  }
  return g;
}

/* The axes of the last dimension of the left side that moves. */
static uint32_t last_axes(const Par *v, const Work *w) {
  for (int d = w->buf->rank - 1; d >= 0; d--)
    if (par_axes_of(v, w->idx[d])) return par_axes_of(v, w->idx[d]);
  return 0;
}

typedef struct { IrExpr *from[MAX_AXES], *below[MAX_AXES], *when; } Bounds; /* NULL: none */

static void bound(Par *v, IrExpr **at, ExprOp op, IrExpr *by) { *at = *at ? ir_binary(v->k, op, *at, by) : by; }

/* Notes a condition `axis < e`, `axis >= e` ...; false: it is none. */
static bool note_bound(Par *v, const Work *w, const IrExpr *g, Bounds *b) {
  IrKernel *k = v->k;
  bool no = g->op == EX_LNOT;
  if (no) g = g->arg[0];
  if (g->op < EX_LT || g->op > EX_EQ || (no && g->op == EX_EQ) || dtype_is_float(g->arg[0]->type)) return false;
  Linear l = par_linear(v, ir_binary(k, EX_SUB, g->arg[0], g->arg[1]), ~0u);
  if (l.coef == 1) l.rest = par_linear(v, ir_binary(k, EX_SUB, g->arg[1], g->arg[0]), ~0u).rest;
  if (!l.ok || l.axis < 0 || (l.coef != 1 && l.coef != -1) || par_axes_of(v, l.rest)) return false;
  /* axis (coef 1: as it stands, -1: mirrored), compared with rest */
  bool up = (g->op == EX_LT || g->op == EX_LE) != no, strict = (g->op == EX_LT || g->op == EX_GT) != no;
  IrExpr *root = ir_cast(k, DT_I32, l.rest), *next = ir_binary(k, EX_ADD, root, ir_i32(k, 1));
  IrExpr *from = NULL, *below = NULL;
  if (g->op == EX_EQ) {
    from = root;
    below = next;
  } else if (up == (l.coef == 1)) {
    below = strict ? root : next;
  } else {
    from = strict ? next : root;
  }
  if (from && ir_range(k, from).hi <= 0) from = NULL;
  if (from && last_axes(v, w) >> l.axis & 1) return false; /* a DMA starts on whole blocks of its tile */
  if (from) bound(v, &b->from[l.axis], EX_MAX, from);
  if (below) bound(v, &b->below[l.axis], EX_MIN, below);
  return true;
}

/* Can the guard be a smaller box, under an `if` for what has no axis in it? */
static bool find_bounds(Par *v, const Work *w, IrExpr *g, Bounds *b) {
  if (g->op == EX_LAND) return find_bounds(v, w, g->arg[0], b) && find_bounds(v, w, g->arg[1], b);
  if (par_axes_of(v, g)) return note_bound(v, w, g, b);
  bound(v, &b->when, EX_LAND, g);
  return true;
}

/* False: nothing is left of the box. */
static bool cut_box(Par *v, Work *w, const Bounds *b) {
  IrKernel *k = v->k;
  w->guard = NULL;
  for (int i = 0; i < v->n; i++) {
    Axis *a = &v->ax[i];
    IrExpr *zero = ir_i32(k, 0);
    if (b->below[i]) a->ext = ir_binary(k, EX_MIN, a->ext, ir_binary(k, EX_MAX, b->below[i], zero));
    if (b->from[i]) {
      IrExpr *start = ir_binary(k, EX_MAX, b->from[i], zero);
      *w = par_work_subst(v, w, a->var, ir_binary(k, EX_ADD, ir_var(k, a->var), start));
      a->ext = ir_binary(k, EX_MAX, ir_binary(k, EX_SUB, a->ext, start), zero);
    }
    if (ir_range(k, a->ext).hi <= 0) return false;
  }
  for (int d = 0; d < w->buf->rank; d++) /* all of it lies behind the end of the tensor */
    if (ir_range(k, ir_binary(k, EX_SUB, w->idx[d], w->buf->shape[d])).lo >= 0) return false;
  return true;
}

/* The value of e in a tile of its own, as an element load. */
static IrExpr *in_tile(Par *v, IrExpr *e) {
  Box box = par_box(v);
  Work w = {.kind = WORK_SET, .value = e};
  keep_axes(v, par_axes_of(v, e));
  for (int i = 0; i < v->n; i++) v->ax[i].cap = cap_of(v, v->ax[i].var, v->ax[i].ext, &w);
  uint32_t all = (1u << v->n) - 1;
  w.buf = par_new_tile(v, SPACE_UB, e->type, all);
  IrExpr *load = par_tile_load(v, w.buf, all);
  w.idx = load->idx;
  vectorise(v, &w);
  par_put_box(v, &box);
  return load;
}

/* Guards of stores to GM: elements left out may belong to another block and must not be written back. What bounds the
 * indices makes the box smaller; the value is computed over the whole box where nothing forbids that. */
static bool guarded_gm(Par *v, Work *w, bool *empty) {
  if (!w->guard || w->buf->space != SPACE_GM) return false;
  bool inside = par_proven_inside(v, w->value);
  if (w->kind == WORK_SET && inside) w->guard = drop_clamps(v, w, w->guard);
  if (!w->guard) return false;
  Bounds b = {0};
  if (!find_bounds(v, w, w->guard, &b)) return true;
  if (b.when) {
    par_enter_if(v, b.when);
    v->gm.len = 0;
  }
  if (w->kind == WORK_SET && inside && w->value->op != EX_LOAD && par_axes_of(v, w->value))
    w->value = in_tile(v, ir_cast(v->k, w->buf->type, w->value));
  *empty = !cut_box(v, w, &b);
  return false;
}

/* c[i, j] += a[i, k]: a tile of the sums over k, then that tile spread over the left side. */
static void reduce_then_spread(Par *v, const Work *w, uint32_t left, uint32_t right) {
  Box box = par_box(v);
  keep_axes(v, left & right);
  uint32_t all = (1u << v->n) - 1;
  Work sum = *w, spread = *w;
  sum.buf = par_new_tile(v, SPACE_UB, w->buf->type, all);
  IrExpr *load = par_tile_load(v, sum.buf, all);
  sum.idx = load->idx;
  sum.fresh = true;
  spread.value = load;
  spread.guard = NULL;
  for (int pass = 0; pass < 2; pass++) {
    par_put_box(v, &box);
    keep_axes(v, pass ? left : right);
    vectorise(v, pass ? &spread : &sum);
  }
}

static uint32_t single_axes(const Par *v) {
  uint32_t m = 0;
  for (int i = 0; i < v->n; i++) m |= (uint32_t)ir_is_int(v->ax[i].ext, 1) << i;
  return m;
}

/* A load from GM that only indices of one value reach becomes a scalar, which no copy clamps. */
static IrExpr *clamp_single(void *user, IrExpr *load) {
  Par *v = user;
  uint32_t axes = par_axes_of(v, load);
  if (load->buf->space != SPACE_GM || !axes || axes & ~single_axes(v)) return load;
  IrExpr *inside = par_inside(v, load->buf, load->idx);
  return inside ? ir_select(v->k, inside, load, ir_int(v->k, load->type, 0)) : load;
}

void par_run_work(Par *v, Work *w) {
  uint32_t left = par_left_axes(v, w), right = work_axes(v, w), gone = right & ~left;
  IrBlock *outer = v->cur;
  if (w->kind == WORK_SET && gone) {
    race(v, w, gone);
    return;
  }
  for (int i = 0; i < v->n; i++) { /* an index that stands nowhere: as many equal terms */
    if (w->kind != WORK_SUM || right >> i & 1 || ir_is_int(v->ax[i].ext, 1)) continue;
    IrExpr *terms = v->ax[i].ext;
    if (ir_range(v->k, terms).lo < 0) terms = ir_binary(v->k, EX_MAX, terms, ir_i32(v->k, 0));
    w->value = ir_binary(v->k, EX_MUL, w->value, ir_cast(v->k, w->value->type, terms));
  }
  w->value = ir_replace_loads(v->k, w->value, clamp_single, v);
  for (int i = v->n - 1; i >= 0; i--) {
    if (ir_is_int(v->ax[i].ext, 1)) *w = par_work_subst(v, w, v->ax[i].var, ir_i32(v->k, 0));
    if (ir_is_int(v->ax[i].ext, 1) || !(right >> i & 1)) drop_axis(v, i);
  }
  for (int i = 0; i < v->n; i++) v->ax[i].cap = cap_of(v, v->ax[i].var, v->ax[i].ext, w);
  if (!w->atomic && par_gemm_statement(v, w)) return;
  if (!w->atomic && w->kind == WORK_SUM && w->spelled) start_at_zero(v, w);
  bool empty = false;
  if (!w->atomic && guarded_gm(v, w, &empty)) {
    par_scalar_statement(
        v, w, "a condition leaves out elements of a tensor in global memory",
        "store to a tile under the condition and copy the tile, or compare the indices with the tensor's own extents");
    return;
  }
  left = par_left_axes(v, w);
  right = par_axes_of(v, w->value) | (w->guard ? par_axes_of(v, w->guard) : 0);
  if (empty) v->cur = outer;
  else if ((right & ~left) && (left & ~right)) reduce_then_spread(v, w, left, right);
  else vectorise(v, w);
  if (v->cur != outer) v->gm.len = 0;
  v->cur = outer;
}

typedef struct { Par *v; const Work *w; const IrExpr *found; } OldScan;

/* Does e load what an earlier iteration of a serial loop would have stored? Surely so: along one dimension at least the
 * places are a fixed way apart, the first such way goes as the index does, and no longer than it goes. */
static void look_for_old(IrExpr *e, void *user) {
  OldScan *o = user;
  if (e->op != EX_LOAD || e->buf != o->w->buf || o->found) return;
  bool ahead = false;
  for (int d = 0; d < e->n; d++) {
    Linear l = par_linear(o->v, o->w->idx[d], ~0u);
    int64_t way;
    if (!ir_const_diff(o->v->k, o->w->idx[d], e->idx[d], &way)) return;
    if (!way) continue;
    if (!l.ok || l.axis < 0 || !l.coef || way % l.coef || par_axes_of(o->v, l.rest)) return;
    way /= l.coef;
    int64_t trips = o->v->ax[l.axis].cap;
    if ((way < 0 && !ahead) || (trips >= 0 && (way >= trips || -way >= trips))) return;
    ahead = true;
  }
  if (ahead) o->found = e;
}

static void tell_old(Par *v, const Work *w) {
  OldScan o = {.v = v, .w = w};
  ir_walk_expr(w->value, look_for_old, &o);
  if (!o.found) return;
  Text read, written;
  text_init(&read, v->p->arena);
  text_init(&written, v->p->arena);
  ir_print_expr(&read, o.found);
  ir_print_expr(&written, ir_load(v->k, w->buf, w->idx));
  Diag *g = diag_add(v->p->diags, DIAG_PARALLEL_OLD, v->loc,
                     "%s is what it was before the loop: iterations of T.Parallel do not see what others store to %s",
                     text_str(&read), text_str(&written));
  diag_fix(v->p->diags, g, "use T.serial where one iteration needs what the one before it stored; copy the tile to "
                           "another one first where the old values are meant");
}

/* A guarded store to a tile that holds nothing yet: the elements it leaves out must hold something to be kept. */
static void define_old(Par *v, Work *w) {
  if (!w->guard || w->kind != WORK_SET || w->buf->space == SPACE_GM || !par_never_written(v->p, w->buf, v->stmt, v))
    return;
  IrArg args[2] = {ir_arg_scalar(ir_int(v->k, w->buf->type, 0)), ir_arg_region(ir_whole(v->k, w->buf))};
  ir_insert_after(find_alloc(v->k, w->buf), ir_new_op(v->k, OP_FILL, v->loc, 2, args));
}

static void store(Par *v, IrStmt *s, IrExpr *guard) {
  bool adds = s->store.accumulate;
  Work w = {.kind = adds ? WORK_SUM : WORK_SET, .buf = s->store.buf, .guard = guard, .spelled = adds,
            .atomic = s->store.atomic};
  v->loc = s->loc;
  w.idx = arena_array(v->p->arena, IrExpr *, w.buf->rank);
  for (int d = 0; d < w.buf->rank; d++) w.idx[d] = par_apply_lets(v, s->store.idx[d]);
  w.value = par_apply_lets(v, s->store.value);
  if (guard) w.value = par_safe_divisors(v, w.value, guard);
  tell_old(v, &w);
  find_accumulation(v, &w);
  define_old(v, &w);
  par_run_work(v, &w);
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

typedef struct { const IrVar *x; IrExpr *value; int uses; bool written, late; } LetScan;

static void count_use(IrExpr *e, void *user) {
  LetScan *l = user;
  if (e->op != EX_VAR || e->var != l->x) return;
  l->uses++;
  l->late |= l->written;
}

static void count_uses(IrExpr **e, void *user) { ir_walk_expr(*e, count_use, user); }

static bool note_write(IrStmt *s, void *user) {
  LetScan *l = user;
  if (s->op == ST_STORE && par_reads_buf(l->value, s->store.buf)) l->written = true;
  return true;
}

/* Is x used after something that its value reads was written? */
static void scan_let(LetScan *l, IrStmt *s) {
  for (; s; s = s->next) {
    if (s->op == ST_FOR) ir_walk(&s->body, note_write, l);
    ir_stmt_exprs(s, count_uses, l);
    note_write(s, l);
    scan_let(l, s->body.first);
    scan_let(l, s->alt.first);
  }
}

/* The same, of a condition as well. */
static IrExpr *materialise(Par *v, IrExpr *e) {
  if (e->type != DT_BOOL) return in_tile(v, e);
  IrExpr *no = ir_float(v->k, DT_F16, 0);
  return ir_binary(v->k, EX_NE, in_tile(v, ir_select(v->k, e, ir_float(v->k, DT_F16, 1), no)), no);
}

static bool is_trivial(const IrExpr *e) {
  if (e->op == EX_CAST) e = e->arg[0];
  return e->op <= EX_LOAD || e->type == DT_BOOL;
}

static void let(Par *v, IrStmt *s, bool guarded) {
  LetScan l = {.x = s->set.var, .value = par_apply_lets(v, s->set.value)};
  bool varies = par_axes_of(v, l.value) != 0;
  v->loc = s->loc;
  if (!varies && !guarded) {
    IrStmt *c = ir_new_stmt(v->k, ST_LET, s->loc);
    c->set.var = s->set.var;
    c->set.value = l.value;
    s->set.var->def = c;
    ir_append(v->cur, c);
    return;
  }
  scan_let(&l, s->next);
  IrExpr *by = l.value;
  if (varies && (l.late || (l.uses > 1 && !is_trivial(by)))) by = materialise(v, by);
  LetValue x = {s->set.var, by};
  vec_push(v->p->arena, &v->lets, x);
}

typedef struct { const IrExpr *cond; int stores; bool hit; } Hazard;

static bool look_for_hazard(IrStmt *s, void *user) {
  Hazard *h = user;
  if (s->op != ST_STORE) return true;
  h->stores++;
  h->hit |= par_reads_buf(h->cond, s->store.buf);
  return true;
}

static void run_body(Par *v, IrBlock *b, IrExpr *guard);

static void nested(Par *v, IrBlock *from, IrBlock *to, IrExpr *guard) {
  IrBlock *outer = v->cur;
  v->cur = to;
  v->gm.len = 0;
  run_body(v, from, guard);
  v->gm.len = 0;
  v->cur = outer;
}

static bool same_place(const IrStmt *a, const IrStmt *b) {
  if (a->op != ST_STORE || b->op != ST_STORE || a->store.buf != b->store.buf ||
      a->store.accumulate != b->store.accumulate || a->store.atomic != b->store.atomic)
    return false;
  for (int d = 0; d < a->store.buf->rank; d++)
    if (!ir_expr_equal(a->store.idx[d], b->store.idx[d])) return false;
  return true;
}

/* Both branches store to the same places: one store of either value each. */
static bool run_pairs(Par *v, IrStmt *s, IrExpr *cond, IrExpr *guard) {
  IrStmt *a = s->body.first, *b = s->alt.first;
  for (; a && b && same_place(a, b); a = a->next, b = b->next)
    if (a->store.value->type != b->store.value->type) return false;
  if (a || b || !s->body.first) return false;
  for (a = s->body.first, b = s->alt.first; a; a = a->next, b = b->next) {
    IrStmt either = *a;
    either.store.value = ir_select(v->k, cond, par_apply_lets(v, a->store.value), par_apply_lets(v, b->store.value));
    par_whole_box(v);
    store(v, &either, guard);
  }
  return true;
}

static void conditional(Par *v, IrStmt *s, IrExpr *guard) {
  IrExpr *cond = par_apply_lets(v, s->test.cond);
  v->loc = s->loc;
  if (!par_axes_of(v, cond)) {
    IrStmt *c = ir_new_stmt(v->k, ST_IF, s->loc);
    c->test.cond = cond;
    ir_append(v->cur, c);
    nested(v, &s->body, &c->body, guard);
    nested(v, &s->alt, &c->alt, guard);
    return;
  }
  Hazard h = {.cond = cond};
  ir_walk(&s->body, look_for_hazard, &h);
  ir_walk(&s->alt, look_for_hazard, &h);
  if (h.hit && h.stores > 1) cond = materialise(v, cond);
  if (run_pairs(v, s, cond, guard)) return;
  IrExpr *no = ir_unary(v->k, EX_LNOT, cond);
  run_body(v, &s->body, guard ? ir_binary(v->k, EX_LAND, guard, cond) : cond);
  run_body(v, &s->alt, guard ? ir_binary(v->k, EX_LAND, guard, no) : no);
}

static void serial_loop(Par *v, IrStmt *s, IrExpr *guard) {
  IrStmt *c = ir_new_stmt(v->k, ST_FOR, s->loc);
  c->loop = s->loop;
  c->loop.lo = par_apply_lets(v, s->loop.lo);
  c->loop.hi = par_apply_lets(v, s->loop.hi);
  c->loop.step = par_apply_lets(v, s->loop.step);
  c->loop.var->def = c;
  ir_append(v->cur, c);
  nested(v, &s->body, &c->body, guard);
}

static void run_body(Par *v, IrBlock *b, IrExpr *guard) {
  uint32_t lets = v->lets.len;
  for (IrStmt *s = b->first; s; s = s->next) {
    par_whole_box(v);
    switch (s->op) {
    case ST_STORE: {
      int lanes = guard ? 0 : par_lanes(v, s);
      for (int i = 1; i < lanes; i++) s = s->next;
      if (!lanes) store(v, s, guard);
      break;
    }
    case ST_LET: let(v, s, guard != NULL); break;
    case ST_IF: conditional(v, s, guard); break;
    case ST_FOR: serial_loop(v, s, guard); break;
    default: break; /* is_simple let nothing else through */
    }
  }
  v->lets.len = lets;
}

static bool varies(const Par *v, const IrExpr *e) {
  if (par_axes_of(v, e)) return true;
  if (e->op == EX_VAR) return e->var->kind == VAR_LET && e->var->def && varies(v, e->var->def->set.value);
  for (int i = 0; i < e->n; i++)
    if (varies(v, e->op == EX_LOAD ? e->idx[i] : e->arg[i])) return true;
  return false;
}

/* Why the body must stay a loop as it is; NULL: statements can be taken one by one. */
static const char *why_not_simple(Par *v, IrBlock *b) {
  for (IrStmt *s = b->first; s; s = s->next) {
    const char *why = NULL;
    switch (s->op) {
    case ST_STORE:
    case ST_LET: break;
    case ST_IF: why = why_not_simple(v, &s->alt); break;
    case ST_FOR:
      if (varies(v, s->loop.lo) || varies(v, s->loop.hi) || varies(v, s->loop.step))
        why = "the bounds of a loop inside depend on the parallel index";
      break;
    case ST_VAR:
    case ST_ASSIGN: why = "a variable is assigned inside"; break;
    case ST_WHILE: why = "a while loop stands inside"; break;
    case ST_PARALLEL: why = "another parallel loop stands inside"; break;
    default: why = "something other than element statements stands inside"; break;
    }
    if (!why) why = why_not_simple(v, &s->body);
    if (why) return why;
  }
  return NULL;
}

/* ---- the loop as it stands ------------------------------------------------------------------------------------- */

typedef struct { Par *v; } ZeroScan;

static bool zero_accumulator(IrStmt *s, void *user) {
  Par *v = ((ZeroScan *)user)->v;
  if (s->op != ST_STORE || !s->store.accumulate || s->store.buf->space == SPACE_GM) return true;
  if (!par_never_written(v->p, s->store.buf, s, NULL)) return true;
  IrArg args[2] = {ir_arg_scalar(ir_int(v->k, s->store.buf->type, 0)), ir_arg_region(ir_whole(v->k, s->store.buf))};
  IrStmt *alloc = find_alloc(v->k, s->store.buf);
  if (!alloc || alloc->block == s->block) return true;
  ir_insert_after(alloc, ir_new_op(v->k, OP_FILL, s->loc, 2, args));
  par_note_acc_init(v->p, s->store.buf, s->loc);
  return true;
}

static void plain_loops(Par *v, const char *why) {
  IrStmt *s = v->stmt, *inner = NULL;
  int64_t n = 1;
  ir_walk(&s->body, zero_accumulator, &(ZeroScan){v});
  for (int i = 0; i < v->n_all; i++) {
    IrStmt *f = ir_new_stmt(v->k, ST_FOR, s->loc);
    f->loop.var = v->all[i].var;
    f->loop.var->def = f;
    f->loop.lo = ir_i32(v->k, 0);
    f->loop.hi = v->all[i].ext;
    f->loop.step = ir_i32(v->k, 1);
    f->why = why;
    ir_append(inner ? &inner->body : v->root, f);
    inner = f;
    n = n < 0 || !ir_is_const(v->all[i].ext) ? -1 : n * v->all[i].ext->i;
  }
  while (s->body.first) {
    IrStmt *c = s->body.first;
    ir_remove(c);
    ir_append(&inner->body, c);
  }
  Diag *g = n < 0 ? diag_add(v->p->diags, DIAG_PARALLEL_SCALAR, s->loc, "%s: the parallel loop runs as a scalar loop",
                             why)
                  : diag_add(v->p->diags, DIAG_PARALLEL_SCALAR, s->loc,
                             "%s: the parallel loop runs as a scalar loop, %lld iterations of at least %d cycles each",
                             why, (long long)n, CYCLES_PER_ELEMENT);
  diag_fix(v->p->diags, g, "keep only stores, lets, ifs and loops with fixed bounds inside T.Parallel");
}

/* The first serial loop over an index takes its name. */
static bool take_name(IrStmt *s, void *user) {
  IrVar *dead = user;
  size_t n = strlen(dead->name);
  if (s->op != ST_FOR || strncmp(s->loop.var->name, dead->name, n) || s->loop.var->name[n] != '.') return true;
  s->loop.var->name = dead->name;
  return false;
}

static void run_parallel(PassCtx *p, IrStmt *s, ParFacts *facts) {
  IrBlock root = {0}, allocs = {0};
  Par v = {
      .p = p, .k = p->k, .stmt = s, .root = &root, .cur = &root, .allocs = &allocs, .loc = s->loc, .facts = facts};
  v.n_all = s->par.n;
  for (int i = 0; i < s->par.n; i++) {
    v.all[i] = (Axis){s->par.vars[i], s->par.ext[i], ir_is_const(s->par.ext[i]) ? s->par.ext[i]->i : -1};
  }
  par_whole_box(&v);
  const char *why = why_not_simple(&v, &s->body);
  if (why) plain_loops(&v, why);
  else run_body(&v, &s->body, NULL);
  for (int i = 0; !why && i < v.n_all; i++) {
    ir_walk(&root, take_name, v.all[i].var);
    /* dead: it must not make later names unlike those of a run that resumes from the text */
    v.all[i].var->name = arena_printf(p->arena, ".%u", v.all[i].var->id);
  }
  while (allocs.first) {
    IrStmt *a = allocs.first;
    ir_remove(a);
    ir_insert_before(s, a);
  }
  IrStmt *loops = why ? root.first : NULL;
  ir_replace_with_block(s, &root);
  if (loops) run_block(p, &loops->body, facts);
}

/* An atomic addition in a loop that stayed a loop: a parallel of one iteration around it. */
static IrStmt *alone(PassCtx *p, IrStmt *s) {
  IrStmt *par = par_new_loop(p, "one", ir_i32(p->k, 1), s->loc);
  ir_insert_before(s, par);
  ir_remove(s);
  ir_append(&par->body, s);
  return par;
}

static void run_block(PassCtx *p, IrBlock *b, ParFacts *facts) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    if (s->op == ST_STORE && s->store.atomic) s = alone(p, s);
    if (s->op == ST_PARALLEL) {
      run_parallel(p, s, facts);
      continue;
    }
    if (s->op == OP_GEMM) par_gemm_init(p, s, NULL);
    run_block(p, &s->body, facts);
    run_block(p, &s->alt, facts);
  }
}

typedef struct { bool *operand, *other; } TileUses; /* by id of buffer */

static void use_of_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) ((TileUses *)user)->other[ir_root(e->buf)->id] = true;
}

static void uses_of_expr(IrExpr **e, void *user) { ir_walk_expr(*e, use_of_load, user); }

static bool uses_of_stmt(IrStmt *s, void *user) {
  TileUses *u = user;
  ir_stmt_exprs(s, uses_of_expr, u);
  if (s->op == ST_STORE) u->other[ir_root(s->store.buf)->id] = true;
  for (int i = 0; ir_is_op(s) && i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    uint32_t id = ir_root(s->args[i].region.buf)->id;
    bool load = s->op == OP_COPY && i == 1 && s->args[0].region.buf->space == SPACE_GM;
    if (s->op == OP_GEMM && i < 2) u->operand[id] = true;
    else if (!load) u->other[id] = true;
  }
  return true;
}

static const bool *find_cube_only(PassCtx *p) {
  TileUses u = {arena_array(p->arena, bool, p->k->bufs.len), arena_array(p->arena, bool, p->k->bufs.len)};
  ir_walk(&p->k->body, uses_of_stmt, &u);
  for (uint32_t i = 0; i < p->k->bufs.len; i++) u.operand[i] &= !u.other[i];
  return u.operand;
}

bool pass_parallel(PassCtx *p) {
  uint32_t errors = p->diags->n_errors;
  ParFacts facts = {.cube_only = find_cube_only(p), .n_bufs = p->k->bufs.len};
  run_block(p, &p->k->body, &facts);
  return p->diags->n_errors == errors;
}
