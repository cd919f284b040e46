/* legalize.c - turns what is left of the source level on the vector side into instructions of the vector unit.
 *
 * Every vector statement - already an instruction or not - is read as a step over the box of its destination and
 * written again: shapes are brought together (broadcast), dtypes to ones the unit computes in, scalars to the second
 * place, rows to 256 bytes, starts and pitches to 32 bytes. What is legal comes out as it was. See legalize.h for the
 * parts. */
#include "legalize.h"

static bool is_reduce(StmtOp op) { return op == OP_REDUCE_SUM || op == OP_REDUCE_MAX || op == OP_REDUCE_MIN; }

/* A statement this pass rewrites: a vector op or a source op, on UB. */
static bool is_ours(const IrStmt *s) {
  if (!ir_is_op(s) || op_info[s->op].level == 'l') return false;
  if (op_info[s->op].pipe == PIPE_V) return true;
  return s->op == OP_COPY || s->op == OP_XOR || s->op == OP_SIGMOID || s->op == OP_SILU || s->op == OP_TANH ||
         s->op == OP_SIN || s->op == OP_COS || s->op == OP_POW || s->op == OP_BROADCAST || s->op == OP_SORT ||
         lg_is_moved(s->op) || lg_is_fold(s->op) || is_reduce(s->op);
}

static bool all_in_ub(Lg *g, const IrStmt *s) {
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION || s->args[i].region.buf->space == SPACE_UB) continue;
    const IrBuf *b = s->args[i].region.buf;
    Diag *d = diag_add(g->p->diags, DIAG_LEG_SPACE, g->loc, "'%s': %%%s is in %s; the vector unit works on %s only",
                       op_info[s->op].name, b->name, space_info[b->space].name, space_info[SPACE_UB].name);
    diag_fix(g->p->diags, d, "copy %%%s to a UB buffer first", b->name);
    g->failed = true;
    return false;
  }
  return true;
}

/* Offsets and extents that read memory are read once, before anything is written. */
static void hoist_regions(Lg *g, IrStmt *s) {
  for (int i = 0; i < s->n_args; i++) {
    IrRegion *r = &s->args[i].region;
    if (s->args[i].kind != ARG_REGION) continue;
    for (int d = 0; d < r->buf->rank; d++) {
      r->off[d] = lg_hoist(g, r->off[d]);
      r->ext[d] = lg_hoist(g, r->ext[d]);
    }
  }
}

static void dispatch(Lg *g) {
  StmtOp op = (StmtOp)g->s->op;
  if (is_reduce(op)) lg_reduce(g);
  else if (lg_is_fold(op)) lg_fold(g);
  else if (lg_is_moved(op)) lg_moved(g);
  else if (lg_is_record(op)) lg_records(g);
  else if (op == OP_SORT) lg_sort(g);
  else if (op == OP_COMPARE) lg_compare(g);
  else if (op == OP_SELECT) lg_select(g);
  else lg_elementwise(g);
}

void lg_statement(Lg *g, IrStmt *s) {
  Lg inner = *g;
  if (g->failed) return;
  inner.s = s;
  inner.allocs = (IrBlock){0};
  dispatch(&inner);
  while (inner.allocs.first) {
    IrStmt *alloc = inner.allocs.first;
    ir_remove(alloc);
    ir_append(&g->allocs, alloc);
  }
  g->failed = inner.failed;
  g->warned = inner.warned;
}

void lg_rewrite(PassCtx *p, IrStmt *s) {
  IrBlock body = {0};
  Lg g = {.p = p, .k = p->k, .a = p->arena, .s = s, .loc = s->loc, .out = &body};
  if (!all_in_ub(&g, s)) return;
  IrStmt *before = arena_new(p->arena, IrStmt);
  *before = *s;
  before->args = arena_array(p->arena, IrArg, s->n_args);
  for (int i = 0; i < s->n_args; i++) before->args[i] = s->args[i];
  hoist_regions(&g, s);
  dispatch(&g);
  if (g.failed) return; /* the other statements are checked too */
  Rewrite *r = lg_remember(p, before, g.warned);
  while (g.allocs.first) {
    IrStmt *alloc = g.allocs.first, *at = p->k->body.first;
    while (at->op == ST_ALLOC) at = at->next; /* the side that holds s comes later at the latest */
    ir_remove(alloc);
    ir_insert_before(at, alloc);
    lg_remember_alloc(p, r, alloc);
  }
  lg_remember_body(r, body.first, body.last);
  while (body.first) {
    IrStmt *one = body.first;
    ir_remove(one);
    ir_insert_before(s, one);
  }
  ir_remove(s);
}

static bool visit(IrStmt *s, void *user) {
  if (is_ours(s)) lg_rewrite(user, s);
  return true;
}

bool pass_legalize(PassCtx *p) {
  uint32_t before = p->diags->n_errors;
  ir_walk(&p->k->body, visit, p);
  return p->diags->n_errors == before;
}
