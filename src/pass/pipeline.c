/* pipeline.c - T.Pipelined: several buffers for what each iteration loads or stores.
 *
 * A pipe starts its next instruction while other pipes still work on the last one, so an iteration overlaps with the
 * one before as soon as it does not have to wait for the same buffer. This pass gives every L1 or UB buffer of a
 * `pipeline(n)` loop that a copy from or to GM fills or drains n versions (a leading dimension, indexed by iteration %
 * n); the sync pass then orders version by version. A buffer qualifies if only this loop uses it and the first thing an
 * iteration does with it is to overwrite it whole.
 *
 * Loops that both sides of a kernel run are then skewed (pipeline_skew.c). */
#include "pipeline.h"

typedef struct {
  IrKernel *k;
  IrStmt *loop;
  IrBuf *buf;
  bool inside, gm, seen, fresh;
  IrExpr *version;
} Probe;

static void probe_load(IrExpr *e, void *user) {
  Probe *q = user;
  if (e->op == EX_LOAD && e->buf == q->buf) {
    q->inside = true;
    if (!q->seen) q->seen = true, q->fresh = false;
  }
}
static void probe_expr(IrExpr **e, void *user) { ir_walk_expr(*e, probe_load, user); }

/* In every iteration: a statement of the loop's body, or under a guard that says which vector core runs it. */
static bool runs_always(const Probe *q, const IrStmt *s) {
  const IrStmt *guard = s->block->parent;
  if (guard && guard->op == ST_IF && s->block == &guard->body) {
    const IrExpr *c = guard->test.cond;
    if (c->op == EX_EQ && c->arg[0]->op == EX_VAR && c->arg[0]->var->kind == VAR_VID) s = guard;
  }
  return s->block == &q->loop->body;
}

static bool probe_stmt(IrStmt *s, void *user) {
  Probe *q = user;
  ir_stmt_exprs(s, probe_expr, q);
  if (s->op == ST_STORE && s->store.buf == q->buf) {
    q->inside = true;
    if (!q->seen) q->seen = true, q->fresh = false;
  }
  int n_in = ir_n_in(s->op);
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION || s->args[i].region.buf != q->buf) continue;
    q->inside = true;
    if (s->op == OP_COPY && s->args[1 - i].region.buf->space == SPACE_GM) q->gm = true;
    if (q->seen) continue;
    bool writes = i >= n_in && op_info[s->op].out[i - n_in] == 'w';
    bool also_reads = false;
    for (int j = 0; j < n_in; j++) also_reads |= s->args[j].kind == ARG_REGION && s->args[j].region.buf == q->buf;
    q->fresh = writes && !also_reads && ir_region_is_whole(&s->args[i].region) && runs_always(q, s);
    q->seen = true;
  }
  return true;
}

typedef struct { const IrBuf *buf; int n; } Count;

static void count_load(IrExpr *e, void *user) {
  Count *c = user;
  c->n += e->op == EX_LOAD && e->buf == c->buf;
}
static void count_expr(IrExpr **e, void *user) { ir_walk_expr(*e, count_load, user); }

static bool count_uses(IrStmt *s, void *user) {
  Count *c = user;
  ir_stmt_exprs(s, count_expr, c);
  for (int i = 0; i < s->n_args; i++) c->n += s->args[i].kind == ARG_REGION && s->args[i].region.buf == c->buf;
  c->n += s->op == ST_STORE && s->store.buf == c->buf;
  return true;
}

static int uses_in(IrBlock *b, const IrBuf *buf) {
  Count c = {buf, 0};
  ir_walk(b, count_uses, &c);
  return c.n;
}

static Probe probe(PassCtx *p, IrStmt *loop, IrBuf *b) {
  Probe q = {.k = p->k, .loop = loop, .buf = b};
  ir_walk(&loop->body, probe_stmt, &q);
  q.fresh &= q.inside && uses_in(&loop->body, b) == uses_in(&p->k->body, b);
  return q;
}

bool pipeline_fresh(PassCtx *p, IrStmt *loop, IrBuf *b) { return probe(p, loop, b).fresh; }

static IrExpr *add_version(IrKernel *k, IrExpr *e, const Probe *q);

static void version_load(IrExpr **e, void *user) {
  Probe *q = user;
  *e = add_version(q->k, *e, q);
}

/* Rebuilds e with loads of the buffer given their leading index. */
static IrExpr *add_version(IrKernel *k, IrExpr *e, const Probe *q) {
  if (e->op < EX_LOAD) return e;
  IrExpr *arg[IR_MAX_RANK + 1];
  if (e->op == EX_LOAD) {
    int lead = e->buf == q->buf;
    if (lead) arg[0] = q->version;
    for (int i = 0; i < e->n; i++) arg[i + lead] = add_version(k, e->idx[i], q);
    return ir_load(k, e->buf, arg);
  }
  for (int i = 0; i < e->n; i++) arg[i] = add_version(k, e->arg[i], q);
  switch (e->op) {
  case EX_CAST: return ir_cast(k, e->type, arg[0]);
  case EX_BITS: return ir_bits(k, e->type, arg[0]);
  case EX_SELECT: return ir_select(k, arg[0], arg[1], arg[2]);
  default: return e->n == 1 ? ir_unary(k, e->op, arg[0]) : ir_binary(k, e->op, arg[0], arg[1]);
  }
}

/* `dim` counts the axes of the larger operand. */
static void shift_dim(IrKernel *k, IrStmt *s, const IrBuf *b) {
  const IrExpr *dim = ir_attr(s, ATTR_DIM);
  if (!dim || s->n_args < 2) return;
  if (s->args[s->op == OP_BROADCAST ? 1 : 0].region.buf == b) ir_set_attr(k, s, ATTR_DIM, ir_i32(k, dim->i + 1));
}

static void version_arg(const Probe *q, IrArg *a) {
  if (a->kind != ARG_REGION || a->region.buf != q->buf) return;
  for (int d = q->buf->rank - 1; d > 0; d--) {
    a->region.off[d] = a->region.off[d - 1];
    a->region.ext[d] = a->region.ext[d - 1];
  }
  a->region.off[0] = q->version;
  a->region.ext[0] = ir_i32(q->k, 1);
}

static bool version_stmt(IrStmt *s, void *user) {
  Probe *q = user;
  IrBuf *b = q->buf;
  shift_dim(q->k, s, b);
  if (s->op == ST_STORE && s->store.buf == b) {
    IrExpr **idx = arena_array(q->k->module->arena, IrExpr *, b->rank);
    idx[0] = q->version;
    for (int d = 1; d < b->rank; d++) idx[d] = s->store.idx[d - 1];
    s->store.idx = idx;
  }
  for (int i = 0; i < s->n_args; i++) version_arg(q, &s->args[i]);
  for (int i = 0; ir_is_say(s) && i < s->say.n; i++) version_arg(q, &s->say.arg[i]);
  ir_stmt_exprs(s, version_load, q); /* regions have their new rank by now */
  ir_say_exprs(s, version_load, q);
  return true;
}

/* A print outside of the loop does not know which version it means. */
typedef struct { PassCtx *p; const IrStmt *loop; const IrBuf *buf; bool named; } Outside;

static void name_load(IrExpr *e, void *user) {
  Outside *o = user;
  o->named |= e->op == EX_LOAD && e->buf == o->buf;
}
static void name_expr(IrExpr **e, void *user) { ir_walk_expr(*e, name_load, user); }

static bool drop_outside(IrStmt *s, void *user) {
  Outside *o = user;
  if (!ir_is_say(s)) return true;
  for (const IrStmt *up = s->block->parent; up; up = up->block->parent)
    if (up == o->loop) return true;
  o->named = false;
  for (int i = 0; i < s->say.n; i++)
    o->named |= s->say.arg[i].kind == ARG_REGION && s->say.arg[i].region.buf == o->buf;
  if (!o->named) ir_say_exprs(s, name_expr, o); /* its region has the old rank */
  if (o->named)
    pass_drop_say(o->p, s, "%%%s has %d versions for the loop over %%%s; print it in the loop", o->buf->name,
                  o->buf->versions, o->loop->loop.var->name);
  return true;
}

/* Rows behind the last one, so that every version in UB starts on 32 bytes. */
static void pad_plane(IrKernel *k, IrBuf *b) {
  int64_t rows = b->shape[0]->i, row = dtype_size(b->type);
  for (int d = 1; d < b->rank; d++) row *= b->shape[d]->i;
  while (b->space == SPACE_UB && rows * row % 32) rows++;
  b->shape[0] = ir_i32(k, rows);
}

void pipeline_versions(PassCtx *p, IrStmt *loop, IrBuf *b, int n) {
  IrKernel *k = p->k;
  IrExpr *trip = ir_binary(k, EX_SUB, ir_var(k, loop->loop.var), loop->loop.lo);
  if (!ir_is_int(loop->loop.step, 1)) trip = ir_binary(k, EX_FDIV, trip, loop->loop.step);
  Probe q = {.k = k, .loop = loop, .buf = b, .version = ir_binary(k, EX_MOD, trip, ir_i32(k, n))};
  pad_plane(k, b);
  for (int d = b->rank; d > 0; d--) b->shape[d] = b->shape[d - 1];
  b->shape[0] = ir_i32(k, n);
  b->rank++;
  b->versions = n;
  ir_walk(&loop->body, version_stmt, &q);
  ir_walk(&k->body, drop_outside, &(Outside){p, loop, b, false});
  pass_remark(p, "pipeline", b->loc, "%%%s: %d versions for the loop over %%%s", b->name, n, loop->loop.var->name);
}

int pipeline_room(const PassCtx *p, const IrBuf *b) {
  int64_t free_bytes = p->arch->space[b->space].bytes;
  if (b->space == SPACE_UB) free_bytes -= free_bytes / 8; /* vector ops need some scratch */
  for (uint32_t i = 1; i < p->k->bufs.len; i++) {
    const IrBuf *o = p->k->bufs.data[i];
    if (o->space == b->space && !o->view && o != b) free_bytes -= ir_buf_bytes(o);
  }
  int64_t n = free_bytes / ir_buf_bytes(b);
  return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int)n;
}

static bool has_both_sides(const IrKernel *k) {
  bool cube = false, vector = false;
  for (const IrStmt *s = k->body.first; s; s = s->next) cube |= s->op == ST_CUBE, vector |= s->op == ST_VECTOR;
  return cube && vector;
}

/* Where cube and vector cores work in turns, the stages are first of all those of the hand-over between them: versions
 * of tiles are taken as far as they fit. Elsewhere they are what was asked for, and too many do not fit (TL0600). */
static int versions_for(PassCtx *p, const IrStmt *loop, const IrBuf *b) {
  int asked = loop->loop.stages, room = has_both_sides(p->k) ? pipeline_room(p, b) : asked;
  if (room >= asked) return asked;
  Diag *g = diag_add(p->diags, DIAG_PIPELINE_ROOM, b->loc,
                     "%%%s: %d versions for num_stages=%d do not fit %s beside the other buffers; it keeps %d", b->name,
                     asked, asked, space_info[b->space].name, room);
  diag_fix(p->diags, g, "num_stages=%d, or smaller tiles", room);
  return room;
}

static bool has_view(const IrKernel *k, const IrBuf *b) {
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (k->bufs.data[i]->view == b) return true;
  return b->view != NULL;
}

static bool visit_loop(IrStmt *s, void *user) {
  PassCtx *p = user;
  if (s->op != ST_FOR || s->loop.stages < 2) return true;
  for (uint32_t i = 1; i < p->k->bufs.len; i++) {
    IrBuf *b = p->k->bufs.data[i];
    if ((b->space != SPACE_L1 && b->space != SPACE_UB) || b->rank >= IR_MAX_RANK || b->addr >= 0 || has_view(p->k, b))
      continue;
    Probe q = probe(p, s, b);
    if (!q.fresh || !q.gm) continue;
    int n = versions_for(p, s, b);
    if (n > 1) pipeline_versions(p, s, b, n);
  }
  return true;
}

bool pass_pipeline(PassCtx *p) {
  ir_walk(&p->k->body, visit_loop, p);
  pipeline_skew(p);
  return true;
}
