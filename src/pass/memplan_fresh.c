/* memplan_fresh.c - does an iteration read only what it has written?
 *
 * The statements of a block are followed in order, with what they overwrite of the frame, the part of the buffer in
 * question: as boxes relative to the frame, and as regions by their expressions. A read must lie in one of the boxes or
 * be one of the regions. When the boxes are the whole frame, nothing that comes later matters. A loop that overwrites
 * one slice of the frame an iteration overwrites what its slices are together; an `if` overwrites what both branches
 * do. */
#include "memplan.h"

typedef struct {
  PassCtx *p;
  IrBuf *probe; /* the buffer in question */
  IrRegion slice;
} Ctx;

/* The step of a product that begins with `init`: the loop over k as a whole overwrites the accumulator. */
static const IrStmt *product_of(const IrStmt *s) {
  const IrExpr *init = s->op == OP_MMAD ? ir_attr(s, ATTR_INIT) : NULL;
  if (!init) return NULL;
  if (ir_is_int(init, 1)) return s;
  const IrStmt *loop = s->block->parent;
  bool first = loop && loop->op == ST_FOR && init->op == EX_EQ && init->arg[0]->op == EX_VAR &&
               init->arg[0]->var == loop->loop.var && ir_expr_equal(init->arg[1], loop->loop.lo);
  bool runs = first && loop->loop.lo->op == EX_INT && loop->loop.hi->op == EX_INT && loop->loop.lo->i < loop->
  loop.hi->i;
  return runs ? loop : NULL;
}

enum { MAX_BOXES = 16 };
typedef enum { UNTOUCHED, TOUCHED, COVERED, EXPOSED } Cover;
typedef struct { int64_t off[IR_MAX_RANK], ext[IR_MAX_RANK]; } Box;
typedef struct Frame Frame;
struct Frame {
  Ctx *c;
  const IrRegion *frame;
  const Frame *up; /* of the block around */
  Box box[MAX_BOXES];
  IrRegion seen[MAX_BOXES];
  int n, n_seen;
  int64_t left; /* elements of the frame that are in no box */
  bool exposed, touched;
};

static bool relative(const Frame *f, const IrRegion *r, Box *x) {
  if (r->buf != f->c->probe) return false;
  for (int d = 0; d < r->buf->rank; d++) {
    const IrExpr *o = r->off[d], *from = f->frame->off[d];
    if (r->ext[d]->op != EX_INT) return false;
    x->ext[d] = r->ext[d]->i;
    if (ir_expr_equal(o, from)) x->off[d] = 0;
    else if (o->op == EX_INT && from->op == EX_INT) x->off[d] = o->i - from->i;
    else return false;
  }
  return true;
}

/* 1 a lies in b, 0 they share elements, -1 they do not. */
static int meet(const Box *a, const Box *b, int rank) {
  bool inside = true;
  for (int d = 0; d < rank; d++) {
    if (a->off[d] >= b->off[d] + b->ext[d] || b->off[d] >= a->off[d] + a->ext[d]) return -1;
    inside &= a->off[d] >= b->off[d] && a->off[d] + a->ext[d] <= b->off[d] + b->ext[d];
  }
  return inside;
}

static bool in_box(const Frame *f, const Box *x) {
  for (int i = 0; i < f->n; i++)
    if (meet(x, &f->box[i], f->c->probe->rank) == 1) return true;
  return false;
}

static void add_box(Frame *f, const Box *x) {
  int64_t n = 1;
  if (f->n == MAX_BOXES || in_box(f, x)) return;
  for (int i = 0; i < f->n; i++)
    if (meet(x, &f->box[i], f->c->probe->rank) != -1) return;
  for (int d = 0; d < f->c->probe->rank; d++) {
    if (x->off[d] < 0 || x->off[d] + x->ext[d] > f->frame->ext[d]->i) return;
    n *= x->ext[d];
  }
  f->box[f->n++] = *x;
  f->left -= n;
}

/* Do its bounds mean the same later in the iteration? */
static bool is_steady(const IrRegion *r) {
  for (int d = 0; d < r->buf->rank; d++)
    if (ir_expr_varies(r->off[d]) || ir_expr_varies(r->ext[d])) return false;
  return true;
}

static bool was_seen(const Frame *f, const IrRegion *r) {
  for (; f; f = f->up)
    for (int i = 0; i < f->n_seen; i++)
      if (ir_region_equal(&f->seen[i], r)) return true;
  return false;
}

static void writes(Frame *f, const IrRegion *r) {
  Box x;
  f->touched = true;
  if (relative(f, r, &x)) add_box(f, &x);
  if (f->n_seen < MAX_BOXES && r->buf == f->c->probe && is_steady(r) && !was_seen(f, r)) f->seen[f->n_seen++] = *r;
}

static void reads(Frame *f, const IrRegion *r) {
  Box x;
  f->touched = true;
  for (const Frame *g = f; g; g = g->up)
    if (relative(g, r, &x) && in_box(g, &x)) return;
  if (!was_seen(f, r)) f->exposed = true;
}

static IrRegion element(IrKernel *k, IrBuf *b, IrExpr **idx) {
  IrRegion r = {.buf = b};
  for (int d = 0; d < b->rank; d++) r.off[d] = idx[d], r.ext[d] = ir_i32(k, 1);
  return r;
}

static void read_load(IrExpr *e, void *user) {
  Frame *f = user;
  if (e->op != EX_LOAD || ir_root(e->buf) != f->c->probe) return;
  IrRegion r = element(f->c->p->k, e->buf, e->idx);
  reads(f, &r);
}
static void read_expr(IrExpr **e, void *user) { ir_walk_expr(*e, read_load, user); }

static Cover cover(Ctx *c, const IrBlock *b, const IrRegion *frame, const Frame *up, Frame *f);

/* The first region of the buffer that a block overwrites. */
static bool find_write(IrStmt *s, void *user) {
  Ctx *c = user;
  for (int i = ir_n_in(s->op); i < s->n_args && !c->slice.buf; i++)
    if (s->args[i].kind == ARG_REGION && s->args[i].region.buf == c->probe) c->slice = s->args[i].region;
  if (s->op == ST_STORE && s->store.buf == c->probe) c->slice = element(c->p->k, s->store.buf, s->store.idx);
  return !c->slice.buf;
}

static bool at(Ctx *c, IrExpr *e, const IrVar *v, int64_t value, int64_t *out) {
  IrExpr *x = ir_subst(c->p->k, e, v, ir_int(c->p->k, v->type, value));
  *out = x->op == EX_INT ? x->i : 0;
  return x->op == EX_INT;
}

/* A loop whose iterations overwrite neighbouring slices of the frame: what they are together. */
static bool slices_of(Frame *f, IrStmt *s, IrRegion *inner, Box *x) {
  Ctx *c = f->c;
  const IrExpr *lo = s->loop.lo, *hi = s->loop.hi, *step = s->loop.step;
  if (lo->op != EX_INT || hi->op != EX_INT || lo->i >= hi->i || (step && !ir_is_int(step, 1))) return false;
  c->slice.buf = NULL;
  ir_walk(&s->body, find_write, c);
  if (!c->slice.buf) return false;
  IrRegion slice = c->slice;
  int along = -1;
  *inner = *f->frame;
  for (int d = 0; d < c->probe->rank; d++) {
    int64_t first, second, last;
    x->off[d] = 0;
    x->ext[d] = f->frame->ext[d]->i;
    if (!ir_expr_uses(slice.off[d], s->loop.var)) continue;
    if (along >= 0 || slice.ext[d]->op != EX_INT || f->frame->off[d]->op != EX_INT) return false;
    if (!at(c, slice.off[d], s->loop.var, lo->i, &first) || !at(c, slice.off[d], s->loop.var, lo->i + 1, &second) ||
        !at(c, slice.off[d], s->loop.var, hi->i - 1, &last))
      return false;
    if (second - first != slice.ext[d]->i || last - first != (hi->i - 1 - lo->i) * slice.ext[d]->i) return false;
    along = d;
    inner->off[d] = slice.off[d];
    inner->ext[d] = slice.ext[d];
    x->off[d] = first - f->frame->off[d]->i;
    x->ext[d] = (hi->i - lo->i) * slice.ext[d]->i;
  }
  return along >= 0;
}

/* The accumulator of a loop that is a product beginning with init, and touches it nowhere else. */
static const IrRegion *accumulator(Frame *f, IrStmt *loop) {
  const IrRegion *r = NULL;
  for (IrStmt *s = loop->body.first; s; s = s->next) {
    if (!ir_stmt_names(s, f->c->probe)) continue;
    if (r || s->op != OP_MMAD || product_of(s) != loop || ir_root(s->args[0].region.buf) == f->c->probe) return NULL;
    r = &s->args[2].region;
  }
  return r;
}

static void cover_loop(Frame *f, IrStmt *s) {
  Frame g;
  IrRegion inner;
  Box x;
  const IrRegion *product = accumulator(f, s);
  if (product) {
    writes(f, product);
    return;
  }
  ir_stmt_exprs(s, read_expr, f);
  if (slices_of(f, s, &inner, &x) && cover(f->c, &s->body, &inner, f, &g) == COVERED) {
    add_box(f, &x);
    return;
  }
  f->exposed |= cover(f->c, &s->body, f->frame, f, &g) == EXPOSED;
}

/* What runs when the condition of an `if` does not hold: its other branch, or the next `if`, with the opposite one. */
static IrBlock *otherwise(IrStmt *s) {
  IrStmt *n = s->next;
  if (s->alt.first) return &s->alt;
  if (!n || n->op != ST_IF || n->alt.first) return NULL;
  const IrExpr *a = s->test.cond, *b = n->test.cond;
  bool opposite = a->op == EX_LNOT ? ir_expr_equal(a->arg[0], b) : b->op == EX_LNOT && ir_expr_equal(b->arg[0], a);
  return opposite ? &n->body : NULL;
}

static void cover_if(Frame *f, IrStmt *s) {
  Frame then, other;
  IrBlock *alt = otherwise(s);
  ir_stmt_exprs(s, read_expr, f);
  Cover a = cover(f->c, &s->body, f->frame, f, &then);
  Cover b = alt ? cover(f->c, alt, f->frame, f, &other) : UNTOUCHED;
  f->touched = true;
  f->exposed |= a == EXPOSED || b == EXPOSED;
  if (a == COVERED && b == COVERED) f->left = 0;
  for (int i = 0; alt && i < then.n_seen; i++)
    for (int j = 0; j < other.n_seen; j++)
      if (ir_region_equal(&then.seen[i], &other.seen[j])) writes(f, &then.seen[i]);
}

static void cover_op(Frame *f, IrStmt *s) {
  int n_in = ir_n_in(s->op);
  ir_stmt_exprs(s, read_expr, f);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < s->n_args; i++) {
      const IrRegion *r = &s->args[i].region;
      if (s->args[i].kind != ARG_REGION || ir_root(r->buf) != f->c->probe) continue;
      bool over = i >= n_in && (op_info[s->op].out[i - n_in] == 'w' || product_of(s) == s);
      if (!pass && !over) reads(f, r);
      if (pass && i >= n_in) writes(f, r);
    }
}

static Cover cover(Ctx *c, const IrBlock *b, const IrRegion *frame, const Frame *up, Frame *f) {
  *f = (Frame){.c = c, .frame = frame, .up = up, .left = 1};
  for (int d = 0; d < c->probe->rank; d++) f->left *= frame->ext[d]->i;
  for (IrStmt *s = b->first; s && f->left && !f->exposed; s = s->next) {
    if (!ir_stmt_names(s, c->probe)) continue;
    if (ir_is_op(s)) cover_op(f, s);
    else if (s->op == ST_FOR) cover_loop(f, s);
    else if (s->op == ST_IF) cover_if(f, s);
    else {
      ir_stmt_exprs(s, read_expr, f);
      if (s->op == ST_WHILE) f->exposed = true;
      if (s->op != ST_STORE || ir_root(s->store.buf) != c->probe) continue;
      IrRegion r = element(c->p->k, s->store.buf, s->store.idx);
      if (s->store.accumulate) reads(f, &r);
      writes(f, &r);
    }
  }
  return f->exposed ? EXPOSED : !f->left ? COVERED : f->touched ? TOUCHED : UNTOUCHED;
}

bool memplan_fresh(PassCtx *p, IrStmt *loop, IrBuf *b) {
  Ctx c = {p, b, {0}};
  Frame f;
  for (int d = 0; d < b->rank; d++)
    if (b->shape[d]->op != EX_INT) return false;
  IrRegion whole = ir_whole(p->k, b);
  return cover(&c, &loop->body, &whole, NULL, &f) != EXPOSED;
}
