/* bridge.c - one name, two memories: buffers that both the cube and the vector cores work on.
 *
 * Mainline programs rescale an accumulator that `gemm` adds to, start it with values, or compute an operand of a
 * product. On this chip no memory serves both, so such a buffer keeps its name in UB and gets a twin on the cube:
 *
 *   accumulator   gemm a, b -> x      becomes   gemm a, b -> x.acc;  copy x.acc -> x.part;  add x, x.part -> x
 *   operand       gemm x, b -> c      becomes   copy x -> x.l1;      gemm x.l1, b -> c
 *
 * The accumulator's twin keeps adding over the loops around the product in which nothing else touches x, so the
 * hand-over happens once after them. Where the product overwrites x, or x was just cleared, the copy goes straight to
 * x. Declared memories are not bridged. Operands of 8-bit floats get a twin in float16 first; an accumulator that is
 * copied to a dtype which the cube does not write, or from inside a fractal, goes through UB. */
#include "scope.h"

typedef struct { PassCtx *p; IrKernel *k; Use *use; IrBuf **l1; uint32_t n; } Ctx;

static bool undeclared(const IrBuf *b) { return !space_info[b->space].physical; }
enum { CORE_USE = USE_VECTOR | USE_ELEMENT };

static bool needs_acc(const Ctx *c, const IrBuf *b) {
  uint32_t uses = b->id < c->n && undeclared(b) ? c->use[b->id].uses : 0;
  return uses & USE_ACC && uses & (CORE_USE | USE_GEMM_AB | USE_START);
}
static bool needs_l1(const Ctx *c, const IrBuf *b) {
  return b->id < c->n && undeclared(b) && c->use[b->id].uses & USE_GEMM_AB && c->use[b->id].uses & (CORE_USE | USE_ACC);
}

/* The other kind of core fills or reads a twin next to the statement, which therefore cannot stand in a block that was
 * written for one kind. */
static bool may_hand_over(PassCtx *p, const IrStmt *s, const IrBuf *b, const char *why) {
  const IrStmt *side = ir_side_of(s);
  if (!side) return true;
  const char *word = side->op == ST_CUBE ? "cube" : "vector";
  Diag *g = diag_add(p->diags, DIAG_SIDE_CONFLICT, s->loc,
                     "%s, so that both kinds of core work on %%%s here; this stands inside `%s`", why, b->name, word);
  diag_other(p->diags, g, b->loc, "%%%s is declared here", b->name);
  diag_fix(p->diags, g,
           "leave the `%s` (T.Scope) out, and the sides are found; or use tiles that one side alone works on, and hand "
           "over through global memory between the blocks", word);
  return false;
}

static IrBuf *twin(Ctx *c, const IrBuf *b, const char *suffix, Space s, const IrRegion *like, Loc loc) {
  IrExpr *shape[IR_MAX_RANK];
  int n = 0;
  for (int d = 0; d < b->rank; d++)
    if (!like || d >= b->rank - 2 || !ir_is_int(like->ext[d], 1)) shape[n++] = like ? like->ext[d] : b->shape[d];
  IrBuf *t = ir_new_buf(c->k, arena_printf(c->p->arena, "%s.%s", b->name, suffix), b->type, s, n, shape, b->loc);
  IrStmt *alloc = ir_new_stmt(c->k, ST_ALLOC, b->loc.line ? b->loc : loc);
  alloc->alloc.buf = t;
  ir_insert_before(c->k->body.first, alloc);
  return t;
}

typedef struct { const IrBuf *buf; int n; } Count;
static void count_load(IrExpr *e, void *user) {
  ((Count *)user)->n += e->op == EX_LOAD && e->buf == ((Count *)user)->buf;
}
static void count_expr(IrExpr **e, void *user) { ir_walk_expr(*e, count_load, user); }
static bool count_stmt(IrStmt *s, void *user) {
  Count *n = user;
  for (int i = 0; i < s->n_args; i++) n->n += s->args[i].kind == ARG_REGION && s->args[i].region.buf == n->buf;
  n->n += s->op == ST_STORE && s->store.buf == n->buf;
  ir_stmt_exprs(s, count_expr, n);
  return true;
}

/* Does `init` say "first iteration of the loops from gemm up to and including `top`"? Then the product overwrites. */
static bool init_is_first(IrExpr *init, IrExpr *first) {
  return init && (ir_is_int(init, 1) || ir_expr_equal(init, first));
}

static IrStmt *op_stmt(Ctx *c, StmtOp op, Loc loc, IrRegion a, IrRegion b, const IrRegion *out) {
  IrArg args[3] = {ir_arg_region(a), ir_arg_region(b), {0}};
  if (out) args[2] = ir_arg_region(*out);
  return ir_new_op(c->k, op, loc, out ? 3 : 2, args);
}

static bool clears(const IrStmt *s, const IrRegion *x) {
  return s && s->op == OP_FILL && ir_region_equal(&s->args[1].region, x) && ir_is_zero(s->args[0].scalar);
}

typedef struct { PassCtx *p; const IrRegion *x; IrBuf *acc; } Shown;

/* While the product adds up, the sum is in the twin: that is what a print there shows. */
static bool show_twin(IrStmt *s, void *user) {
  const Shown *sh = user;
  if (!ir_is_say(s)) return true;
  Count n = {sh->x->buf, 0};
  ir_say_exprs(s, count_expr, &n);
  for (int i = 0; i < s->say.n; i++) {
    IrRegion *r = s->say.arg[i].kind == ARG_REGION ? &s->say.arg[i].region : NULL;
    if (!r || r->buf != sh->x->buf) continue;
    if (ir_region_is_whole(sh->x) && sh->acc->rank == r->buf->rank) r->buf = sh->acc;
    else n.n++;
  }
  if (n.n)
    pass_drop_say(sh->p, s,
                  "the sum is in l0c here, which the scalar unit does not reach; a slice of the whole tile is shown: "
                  "T.print(x[0:1, 0:4])");
  return true;
}

/* Is the accumulator of a product of floats, or the float one of a product of integers, of another dtype than the sums
 * that the cube makes? */
static bool other_sum(const Ctx *c, const IrStmt *g) {
  const IrBuf *x = g->args[2].region.buf;
  DType sum = arch_product(c->p->arch, g->args[0].region.buf->type);
  return undeclared(x) && sum != DTYPE_COUNT && sum != x->type && dtype_is_float(x->type);
}

/* Such an accumulator has the cube's dtype where nothing but copies reads it; copies convert. Else it is bridged. */
static bool widen_acc(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_GEMM || !other_sum(c, s)) return true;
  IrBuf *x = s->args[2].region.buf;
  DType was = x->type, sum = arch_product(c->p->arch, s->args[0].region.buf->type);
  if (sum == DT_F32 && !(c->use[x->id].uses & (CORE_USE | USE_GEMM_AB | USE_START))) x->type = sum;
  else c->use[x->id].uses |= USE_START;
  pass_remark(c->p, "bridge", s->loc, "the cube adds in %s: sums become %s of %%%s when they leave it",
              dtype_info[sum].name, dtype_info[was].name, x->name);
  return true;
}

static void bridge_acc(Ctx *c, IrStmt *g) {
  IrKernel *k = c->k;
  IrRegion x = g->args[2].region;
  if (!may_hand_over(c->p, g, x.buf, "the vector cores change what this product adds to")) return;
  IrExpr *first = ir_int(k, DT_BOOL, 1), *init = ir_attr(g, ATTR_INIT);
  IrStmt *top = g;
  bool runs = true; /* the product is sure to come */
  for (IrStmt *up = g->block->parent; up && up->op == ST_FOR; up = up->block->parent) {
    Count n = {x.buf, 0};
    ir_walk(&up->body, count_stmt, &n);
    bool moves = false;
    for (int d = 0; d < x.buf->rank; d++) moves |= ir_expr_uses(x.off[d], up->loop.var);
    IrExpr *next = ir_binary(k, EX_LAND, first, ir_binary(k, EX_EQ, ir_var(k, up->loop.var), up->loop.lo));
    bool jumps = ir_leaves_loop(&up->body);
    if (n.n != 1 || moves || (jumps && init)) break;
    if (init && !ir_is_int(init, 0) && !ir_expr_equal(init, next) && !ir_expr_equal(init, first)) break;
    if (init && ir_is_int(init, 1)) break;
    first = next;
    top = up;
    runs &= ir_loop_runs(k, up) && !jumps;
  }
  IrBuf *acc = twin(c, x.buf, "acc", SPACE_L0C, &x, g->loc);
  if (other_sum(c, g)) acc->type = arch_product(c->p->arch, g->args[0].region.buf->type);
  IrRegion whole = ir_whole(k, acc);
  g->args[2].region = whole;
  Shown shown = {c->p, &x, acc};
  if (top != g) ir_walk(&top->body, show_twin, &shown);
  bool overwrites = init_is_first(init, first);
  if (runs || init) {
    ir_set_attr(k, g, ATTR_INIT, first);
  } else {
    IrArg args[2] = {ir_arg_scalar(ir_i32(k, 0)), ir_arg_region(whole)};
    ir_insert_before(top, ir_new_op(k, OP_FILL, g->loc, 2, args));
  }
  IrStmt *cleared = top->prev;
  if (!runs && !init) cleared = cleared->prev;
  while (cleared && ir_is_say(cleared)) cleared = cleared->prev;
  if (!init && clears(cleared, &x)) {
    ir_remove(cleared);
    overwrites = true;
  }
  if (!init || ir_is_int(init, 0) || overwrites) init = NULL;
  if (!ir_cube_writes(acc->type, x.buf->type)) {
    IrRegion out = ir_whole(k, twin(c, acc, "out", SPACE_UB, NULL, g->loc));
    ir_insert_after(top, op_stmt(c, OP_COPY, g->loc, whole, out, NULL));
    top = top->next;
    whole = out;
  }
  if (overwrites) {
    ir_insert_after(top, op_stmt(c, OP_COPY, g->loc, whole, x, NULL));
    return;
  }
  IrBuf *part = twin(c, x.buf, "part", SPACE_UB, &x, g->loc);
  IrRegion p = ir_whole(k, part);
  IrStmt *move = op_stmt(c, OP_COPY, g->loc, whole, p, NULL), *add = op_stmt(c, OP_ADD, g->loc, x, p, &x);
  ir_insert_after(top, move);
  if (init) { /* overwrites or adds, known at run time */
    IrStmt *branch = ir_new_stmt(k, ST_IF, g->loc);
    branch->test.cond = init;
    ir_append(&branch->body, op_stmt(c, OP_COPY, g->loc, p, x, NULL));
    ir_append(&branch->alt, add);
    ir_insert_after(move, branch);
  } else {
    ir_insert_after(move, add);
  }
}

static void bridge_operand(Ctx *c, IrStmt *g, int i) {
  IrRegion *r = &g->args[i].region;
  IrBuf *b = r->buf;
  IrRegion to = *r;
  int unit;
  if (!may_hand_over(c->p, g, b, "the vector cores make or use an operand of this product")) return;
  if (ir_fractal_split(g, i, &unit) >= 0) { /* a part that the cube cannot address in a tile like x */
    to = ir_whole(c->k, twin(c, b, "l1", SPACE_L1, r, g->loc));
  } else {
    if (!c->l1[b->id]) c->l1[b->id] = twin(c, b, "l1", SPACE_L1, NULL, g->loc);
    to.buf = c->l1[b->id];
  }
  ir_insert_before(g, op_stmt(c, OP_COPY, g->loc, *r, to, NULL));
  *r = to;
}

static bool bridge_stmt(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_GEMM) return true;
  for (int i = 0; i < 2; i++)
    if (needs_l1(c, s->args[i].region.buf)) bridge_operand(c, s, i);
  if (needs_acc(c, s->args[2].region.buf)) bridge_acc(c, s);
  return true;
}

static bool is_bytes(const PassCtx *p, const IrBuf *b) {
  return (b->type == DT_E4M3 || b->type == DT_E5M2) && arch_product(p->arch, b->type) == DTYPE_COUNT;
}
static bool may_widen(const PassCtx *p, const IrRegion *r) { return !is_bytes(p, r->buf) || undeclared(r->buf); }

/* An operand of 8-bit floats, where the cube does not multiply them: as float16, which holds each of its values. */
static bool widen(IrStmt *s, void *user) {
  PassCtx *p = user;
  Ctx c = {.p = p, .k = p->k};
  if (s->op != OP_GEMM || !may_widen(p, &s->args[0].region) || !may_widen(p, &s->args[1].region)) return true;
  for (int i = 0; i < 2; i++) {
    IrRegion *r = &s->args[i].region;
    if (!is_bytes(p, r->buf)) continue;
    if (!may_hand_over(p, s, r->buf, "the vector cores convert 8-bit floats for the cube")) return true;
    IrBuf *wide = twin(&c, r->buf, "f16", SPACE_FRAGMENT, r, s->loc);
    wide->type = DT_F16;
    wide->why = "the values of 8-bit floats, for the cube";
    IrRegion to = ir_whole(p->k, wide);
    IrArg args[2] = {ir_arg_region(*r), ir_arg_region(to)};
    ir_insert_before(s, ir_new_op(p->k, OP_COPY, s->loc, 2, args));
    *r = to;
    pass_remark(p, "bridge", s->loc, "the cube does not multiply %s: %%%s holds the operand as f16",
                dtype_info[args[0].region.buf->type].name, wide->name);
  }
  return true;
}

/* What the cube does not write goes through UB: other dtypes, and what starts inside a fractal, for which the whole
 * accumulator is copied. */
static bool narrow(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_COPY) return true;
  IrRegion *r = &s->args[0].region;
  DType from = r->buf->type, to = s->args[1].region.buf->type;
  bool sums = undeclared(r->buf) && c->use[r->buf->id].uses & USE_ACC, inside = ir_starts_inside(r);
  if (!sums || needs_acc(c, r->buf) || (ir_cube_writes(from, to) && !inside)) return true;
  const char *why = inside ? "the cube writes whole fractals of 16 columns" : "the cube does not write this dtype";
  if (!may_hand_over(c->p, s, r->buf, why)) return true;
  IrBuf *out = twin(c, r->buf, "out", SPACE_UB, inside ? NULL : r, s->loc);
  out->why = why;
  IrRegion whole = ir_whole(c->k, out), sum = inside ? ir_whole(c->k, r->buf) : *r;
  ir_insert_before(s, op_stmt(c, OP_COPY, s->loc, sum, whole, NULL));
  if (inside) r->buf = out;
  else *r = whole;
  return true;
}

/* Nothing leads from L1 to UB or GM: an operand that is copied there is the vector cores', too. */
static bool operand_is_read(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op != OP_COPY) return true;
  const IrBuf *from = s->args[0].region.buf, *to = s->args[1].region.buf;
  if (!undeclared(from)) return true;
  uint32_t *uses = &c->use[from->id].uses;
  bool theirs = to->space == SPACE_GM || to->space == SPACE_UB || (undeclared(to) && c->use[to->id].uses & CORE_USE);
  if (theirs && *uses & USE_GEMM_AB && !(*uses & (CORE_USE | USE_ACC))) {
    *uses |= USE_VECTOR;
    return false; /* once more: what is copied to this one may be first in the text */
  }
  return true;
}

bool pass_bridge(PassCtx *p) {
  ir_walk(&p->k->body, widen, p);
  Ctx c = {p, p->k, scope_uses(p), arena_array(p->arena, IrBuf *, p->k->bufs.len + 1), p->k->bufs.len};
  ir_walk(&p->k->body, widen_acc, &c);
  ir_walk(&p->k->body, narrow, &c);
  while (!ir_walk(&p->k->body, operand_is_read, &c)) {
  }
  ir_walk(&p->k->body, bridge_stmt, &c);
  for (uint32_t i = 1; i < c.n; i++) {
    IrBuf *b = p->k->bufs.data[i];
    if (!needs_acc(&c, b) && !needs_l1(&c, b)) continue;
    b->space = SPACE_UB;
    b->why = "worked on by the vector cores; the cube has a twin";
    pass_remark(p, "bridge", b->loc,
                "%%%s is used by the cube and by the vector cores: it stands in UB, with a twin on the cube", b->name);
  }
  return true;
}
