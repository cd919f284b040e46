/* scalars.c - numbers that both kinds of core need, out of the memories of one.
 *
 * Mainline programs keep a counter in a fragment of one element, or load a mask or a table of block numbers into a tile
 * and decide by its elements which tiles the whole block works on. A tile stands in the memory of one kind of core,
 * though, and the other cannot read it. In kernels with matrix products:
 *
 *   a buffer of one element that is only read and written by element     becomes a variable
 *   an element of a tile that holds nothing but a copy from a tensor     is read from the tensor
 *
 * Both kinds of core execute scalar code and read global memory. The copy goes when nothing else reads the tile.
 * Declared memories, written by hand, stay as they are. */
#include "pass.h"

typedef struct {
  IrStmt *alloc, *copy;        /* the only copy into it */
  int written, read, loads;    /* by ops; elements */
  bool stored, viewed, early;  /* element stores; a view of it; a load where the copy is not known to have happened */
  IrVar *var;                  /* stands for it from now on */
} Use;

typedef struct {
  PassCtx *p;
  IrKernel *k;
  Use *use;                    /* by buffer id */
  const IrStmt *at;
  bool product, by_hand;
} Ctx;

static bool undeclared(const IrBuf *b) { return b->space != SPACE_GM && !space_info[b->space].physical; }

/* Has the copy of b run, with the same tensor elements, whenever `at` does? */
static bool after_copy(const IrStmt *copy, const IrStmt *at) {
  for (const IrStmt *s = at; s; s = s->block->parent)
    if (s->block == copy->block) return copy->id < s->id;
  return false;
}

static void count_load(IrExpr *e, void *user) {
  Ctx *c = user;
  if (e->op != EX_LOAD) return;
  Use *u = &c->use[e->buf->id];
  u->loads++;
  u->early |= !u->copy || !after_copy(u->copy, c->at);
}
static void count_expr(IrExpr **e, void *user) { ir_walk_expr(*e, count_load, user); }

static bool look(IrStmt *s, void *user) {
  Ctx *c = user;
  c->at = s;
  c->product |= s->op == OP_GEMM;
  c->by_hand |= ir_is_side(s);
  ir_stmt_exprs(s, count_expr, c);
  if (s->op == ST_ALLOC) {
    c->use[s->alloc.buf->id].alloc = s;
    if (s->alloc.buf->view) c->use[ir_root(s->alloc.buf)->id].viewed = c->use[s->alloc.buf->id].viewed = true;
  }
  if (s->op == ST_STORE) c->use[s->store.buf->id].stored = true;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    const IrRegion *r = &s->args[i].region;
    Use *u = &c->use[r->buf->id];
    if (i < ir_n_in(s->op)) u->read++;
    else if (u->written++ == 0 && s->op == OP_COPY && ir_region_is_whole(r)) u->copy = s;
  }
  return true;
}

/* Is b nothing but a copy of elements of a tensor that nobody writes? */
static bool mirrors(Ctx *c, const IrBuf *b) {
  const Use *u = &c->use[b->id];
  if (!u->loads || u->early || !u->copy || u->written != 1 || u->stored || u->viewed || !undeclared(b)) return false;
  const IrRegion *from = &u->copy->args[0].region;
  const Use *gm = &c->use[from->buf->id];
  bool changing = ir_attr(u->copy, ATTR_TRANS) || ir_attr(u->copy, ATTR_RELU) || ir_attr(u->copy, ATTR_PAD);
  if (from->buf->space != SPACE_GM || from->buf->type != b->type || gm->written || gm->stored) return false;
  int long_from = 0, long_to = 0;
  for (int d = 0; d < from->buf->rank; d++) {
    long_from += !ir_is_int(from->ext[d], 1);
    changing |= ir_expr_varies(from->off[d]);
  }
  for (int d = 0; d < b->rank; d++) long_to += !ir_is_int(b->shape[d], 1);
  return !changing && long_from == long_to;
}

/* The element of the tensor; zero outside, as the copy has it. */
static IrExpr *from_tensor(Ctx *c, const IrExpr *load) {
  IrKernel *k = c->k;
  const IrRegion *from = &c->use[load->buf->id].copy->args[0].region;
  IrExpr *idx[IR_MAX_RANK], *inside = NULL;
  int d = 0;
  for (int g = 0; g < from->buf->rank; g++) {
    idx[g] = from->off[g];
    if (!ir_is_int(from->ext[g], 1)) {
      while (ir_is_int(load->buf->shape[d], 1)) d++;
      idx[g] = ir_binary(k, EX_ADD, from->off[g], load->idx[d++]);
    }
    if (ir_prove_le(k, ir_binary(k, EX_ADD, idx[g], ir_i32(k, 1)), from->buf->shape[g])) continue;
    IrExpr *in = ir_binary(k, EX_LT, idx[g], from->buf->shape[g]);
    inside = inside ? ir_binary(k, EX_LAND, inside, in) : in;
  }
  IrExpr *e = ir_load(k, from->buf, idx);
  return inside ? ir_select(k, inside, e, ir_int(k, load->type, 0)) : e;
}

static IrExpr *replace(void *user, IrExpr *load) {
  Ctx *c = user;
  Use *u = &c->use[load->buf->id];
  if (u->var) return ir_var(c->k, u->var);
  return u->early || !u->copy ? NULL : from_tensor(c, load);
}
static void replace_in(IrExpr **e, void *user) { *e = ir_replace_loads(((Ctx *)user)->k, *e, replace, user); }

/* A print of a tile that is a variable now shows nothing any more; one of its element does. */
static void rewrite_say(Ctx *c, IrStmt *s) {
  const IrBuf *gone = NULL;
  ir_say_exprs(s, replace_in, c);
  for (int i = 0; i < s->say.n; i++)
    if (s->say.arg[i].kind == ARG_REGION && c->use[s->say.arg[i].region.buf->id].var) gone = s->say.arg[i].region.buf;
  if (gone) pass_drop_say(c->p, s, "%%%s is a variable; print its element", gone->name);
}

static bool rewrite(IrStmt *s, void *user) {
  Ctx *c = user;
  if (ir_is_say(s)) {
    rewrite_say(c, s);
    return true;
  }
  ir_stmt_exprs(s, replace_in, c);
  IrBuf *b = s->op == ST_STORE ? s->store.buf : s->op == OP_FILL ? s->args[1].region.buf : NULL;
  IrVar *v = b ? c->use[b->id].var : NULL;
  if (!v) return true;
  IrStmt *set = ir_new_stmt(c->k, ST_ASSIGN, s->loc);
  set->set.var = v;
  set->set.value = ir_cast(c->k, v->type, s->op == ST_STORE ? s->store.value : s->args[0].scalar);
  if (s->op == ST_STORE && s->store.accumulate)
    set->set.value = ir_binary(c->k, EX_ADD, ir_var(c->k, v), set->set.value);
  ir_insert_before(s, set);
  ir_remove(s);
  return true;
}

typedef struct { const IrBuf *buf; int ops; } Fills;
static bool other_ops(IrStmt *s, void *user) {
  Fills *f = user;
  for (int i = 0; i < s->n_args; i++)
    f->ops += s->args[i].kind == ARG_REGION && s->args[i].region.buf == f->buf &&
              (s->op != OP_FILL || s->args[0].kind != ARG_SCALAR);
  return true;
}

/* A one-element buffer that only element accesses and fills touch, as a variable. */
static IrVar *as_variable(Ctx *c, IrBuf *b) {
  Use *u = &c->use[b->id];
  Fills f = {b, 0};
  if (!undeclared(b) || !u->alloc || u->viewed || !u->loads || b->addr >= 0) return NULL;
  for (int d = 0; d < b->rank; d++)
    if (!ir_is_int(b->shape[d], 1)) return NULL;
  ir_walk(&c->k->body, other_ops, &f);
  if (f.ops) return NULL;
  IrStmt *s = ir_new_stmt(c->k, ST_VAR, u->alloc->loc);
  s->set.var = ir_new_var(c->k, b->name, b->type, VAR_MUT, b->loc);
  s->set.var->def = s;
  s->set.value = dtype_is_float(b->type) ? ir_float(c->k, b->type, 0) : ir_int(c->k, b->type, 0);
  ir_insert_before(u->alloc, s);
  ir_remove(u->alloc);
  pass_remark(c->p, "scalars", b->loc, "%%%s is a variable: one element, which scalar code reads and writes", b->name);
  return s->set.var;
}

bool pass_scalars(PassCtx *p) {
  IrKernel *k = p->k;
  Ctx c = {.p = p, .k = k};
  uint32_t n = k->bufs.len;
  c.use = arena_array(p->arena, Use, n + 1);
  ir_renumber(k);
  ir_walk(&k->body, look, &c);
  if (!c.product || c.by_hand) return true;
  bool any = false;
  for (uint32_t i = 1; i < n; i++) {
    IrBuf *b = k->bufs.data[i];
    c.use[i].var = as_variable(&c, b);
    if (!mirrors(&c, b)) c.use[i].copy = NULL;
    any |= c.use[i].var || c.use[i].copy;
  }
  if (!any) return true;
  for (uint32_t i = 1; i < n; i++)
    if (c.use[i].copy)
      pass_remark(p, "scalars", k->bufs.data[i]->loc, "elements of %%%s are read from %%%s, which it is a copy of",
                  k->bufs.data[i]->name, c.use[i].copy->args[0].region.buf->name);
  ir_walk(&k->body, rewrite, &c);
  for (uint32_t i = 1; i < n; i++) {
    if (!c.use[i].copy || c.use[i].read) continue;
    ir_remove(c.use[i].copy);
    ir_remove(c.use[i].alloc);
  }
  return true;
}
