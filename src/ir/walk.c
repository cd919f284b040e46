/* walk.c - visits over statements and expressions, and the shape of regions in memory. */
#include "ir.h"

bool ir_walk(IrBlock *b, IrVisit f, void *user) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    if (!f(s, user)) return false;
    if (!s->block) continue; /* f removed it */
    if (!ir_walk(&s->body, f, user) || !ir_walk(&s->alt, f, user)) return false;
  }
  return true;
}

void ir_walk_expr(IrExpr *e, void (*f)(IrExpr *e, void *user), void *user) {
  f(e, user);
  if (e->op == EX_LOAD) {
    for (int i = 0; i < e->n; i++) ir_walk_expr(e->idx[i], f, user);
  } else if (e->op > EX_LOAD) {
    for (int i = 0; i < e->n; i++) ir_walk_expr(e->arg[i], f, user);
  }
}

void ir_stmt_exprs(IrStmt *s, void (*f)(IrExpr **e, void *user), void *user) {
  for (int i = 0; i < s->n_args; i++) {
    IrArg *a = &s->args[i];
    if (a->kind == ARG_SCALAR) {
      f(&a->scalar, user);
    } else {
      for (int d = 0; d < a->region.buf->rank; d++) {
        f(&a->region.off[d], user);
        f(&a->region.ext[d], user);
      }
    }
  }
  for (int i = 0; i < s->n_attrs; i++) f(&s->attrs[i].value, user);
  switch (s->op) {
  case ST_FOR:
    f(&s->loop.lo, user);
    f(&s->loop.hi, user);
    f(&s->loop.step, user);
    break;
  case ST_PARALLEL:
    for (int i = 0; i < s->par.n; i++) f(&s->par.ext[i], user);
    break;
  case ST_IF:
  case ST_WHILE: f(&s->test.cond, user); break;
  case ST_LET:
  case ST_VAR:
  case ST_ASSIGN: f(&s->set.value, user); break;
  case ST_STORE:
    for (int i = 0; i < s->store.buf->rank; i++) f(&s->store.idx[i], user);
    f(&s->store.value, user);
    break;
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
  case ST_CROSS_SET:
  case ST_CROSS_WAIT: f(&s->sync.id, user); break;
  default: break;
  }
}

void ir_say_exprs(IrStmt *s, void (*f)(IrExpr **e, void *user), void *user) {
  if (!ir_is_say(s)) return;
  if (s->say.only) f(&s->say.only, user);
  if (s->say.cond) f(&s->say.cond, user);
  for (int i = 0; i < s->say.n; i++) {
    IrArg *a = &s->say.arg[i];
    if (a->kind == ARG_SCALAR) f(&a->scalar, user);
    for (int d = 0; a->kind == ARG_REGION && d < a->region.buf->rank; d++) {
      f(&a->region.off[d], user);
      f(&a->region.ext[d], user);
    }
  }
}

typedef struct { IrKernel *k; const IrVar *var; IrExpr *by; } Subst;

static void subst_expr(IrExpr **e, void *user) {
  const Subst *s = user;
  *e = ir_subst(s->k, *e, s->var, s->by);
}

static bool subst_stmt(IrStmt *s, void *user) {
  ir_stmt_exprs(s, subst_expr, user);
  ir_say_exprs(s, subst_expr, user);
  return true;
}

void ir_subst_block(IrKernel *k, IrBlock *b, const IrVar *v, IrExpr *by) {
  Subst s = {k, v, by};
  ir_walk(b, subst_stmt, &s);
}

/* ---- who uses what ----------------------------------------------------------------------------------------- */

typedef struct { const IrVar *var; IrBuf *buf; bool found; } Search;

static void search_var(IrExpr *e, void *user) {
  Search *f = user;
  f->found |= e->op == EX_VAR && e->var == f->var;
}
static void search_load(IrExpr *e, void *user) {
  Search *f = user;
  f->found |= e->op == EX_LOAD && ir_root(e->buf) == f->buf;
}
static void search_var_in(IrExpr **e, void *user) { ir_walk_expr(*e, search_var, user); }
static void search_load_in(IrExpr **e, void *user) { ir_walk_expr(*e, search_load, user); }

static bool search_uses(IrStmt *s, void *user) {
  ir_stmt_exprs(s, search_var_in, user);
  return !((Search *)user)->found;
}

static bool search_names(IrStmt *s, void *user) {
  Search *f = user;
  ir_stmt_exprs(s, search_load_in, f);
  if (s->op == ST_STORE) f->found |= ir_root(s->store.buf) == f->buf;
  for (int i = 0; i < s->n_args; i++)
    f->found |= s->args[i].kind == ARG_REGION && ir_root(s->args[i].region.buf) == f->buf;
  return !f->found;
}

bool ir_expr_uses(IrExpr *e, const IrVar *v) {
  Search f = {v, NULL, false};
  ir_walk_expr(e, search_var, &f);
  return f.found;
}

bool ir_expr_loads(IrExpr *e, IrBuf *b) {
  Search f = {NULL, ir_root(b), false};
  ir_walk_expr(e, search_load, &f);
  return f.found;
}

bool ir_stmt_feeds(const IrStmt *s, IrExpr *e) {
  if (s->op == ST_ASSIGN) return ir_expr_uses(e, s->set.var);
  if (s->op == ST_STORE) return ir_expr_loads(e, s->store.buf);
  for (int i = ir_is_op(s) ? ir_n_in(s->op) : s->n_args; i < s->n_args; i++)
    if (ir_expr_loads(e, s->args[i].region.buf)) return true;
  return false;
}

bool ir_stmt_uses(IrStmt *s, const IrVar *v) {
  Search f = {v, NULL, false};
  return !(search_uses(s, &f) && ir_walk(&s->body, search_uses, &f) && ir_walk(&s->alt, search_uses, &f));
}

bool ir_stmt_names(IrStmt *s, IrBuf *b) {
  Search f = {NULL, ir_root(b), false};
  return !(search_names(s, &f) && ir_walk(&s->body, search_names, &f) && ir_walk(&s->alt, search_names, &f));
}

static void search_varying(IrExpr *e, void *user) {
  *(bool *)user |= e->op == EX_LOAD || (e->op == EX_VAR && e->var->kind == VAR_MUT);
}

bool ir_expr_varies(IrExpr *e) {
  bool found = false;
  ir_walk_expr(e, search_varying, &found);
  return found;
}

bool ir_region_equal(const IrRegion *a, const IrRegion *b) {
  if (a->buf != b->buf) return false;
  for (int d = 0; d < a->buf->rank; d++)
    if (!ir_expr_equal(a->off[d], b->off[d]) || !ir_expr_equal(a->ext[d], b->ext[d])) return false;
  return true;
}

bool ir_region_is_whole(const IrRegion *r) {
  for (int d = 0; d < r->buf->rank; d++)
    if (!ir_is_int(r->off[d], 0) || !ir_expr_equal(r->ext[d], r->buf->shape[d])) return false;
  return true;
}

typedef struct { IrKernel *k; IrStmt *last; } Hoist;
static bool hoist_alloc(IrStmt *s, void *user) {
  Hoist *h = user;
  if (s->op != ST_ALLOC) return true;
  ir_remove(s);
  if (h->last) ir_insert_after(h->last, s);
  else if (h->k->body.first) ir_insert_before(h->k->body.first, s);
  else ir_append(&h->k->body, s);
  h->last = s;
  return true;
}

void ir_hoist_allocs(IrKernel *k) {
  Hoist h = {k, NULL};
  ir_walk(&k->body, hoist_alloc, &h);
}

static bool renumber(IrStmt *s, void *user) {
  IrKernel *k = user;
  s->id = ir_is_say(s) ? k->n_stmts : ++k->n_stmts;
  return true;
}

void ir_renumber(IrKernel *k) {
  k->n_stmts = 0;
  ir_walk(&k->body, renumber, k);
}

IrExpr *ir_count(IrKernel *k, const IrRegion *r) {
  IrExpr *n = ir_i32(k, 1);
  for (int d = 0; d < r->buf->rank; d++) n = ir_binary(k, EX_MUL, n, r->ext[d]);
  return n;
}

/* Elements between neighbours along dimension d of a row-major buffer. */
static IrExpr *stride_of(IrKernel *k, const IrBuf *b, int d) {
  IrExpr *n = ir_i32(k, 1);
  for (int i = d + 1; i < b->rank; i++) n = ir_binary(k, EX_MUL, n, b->shape[i]);
  return n;
}

bool ir_rows(IrKernel *k, const IrRegion *r, IrRows *out) {
  const IrBuf *b = r->buf;
  IrExpr *off = ir_i32(k, 0);
  for (int d = 0; d < b->rank; d++)
    off = ir_binary(k, EX_ADD, off, ir_binary(k, EX_MUL, r->off[d], stride_of(k, b, d)));
  /* From the inside out: cols grow while memory is contiguous, then one strided dimension, which may grow too. */
  IrExpr *cols = ir_i32(k, 1), *rows = ir_i32(k, 1), *pitch = NULL;
  bool open = true; /* cols may still grow */
  for (int d = b->rank - 1; d >= 0; d--) {
    if (ir_is_int(r->ext[d], 1)) continue;
    IrExpr *stride = stride_of(k, b, d);
    if (open && ir_expr_equal(cols, stride)) {
      cols = ir_binary(k, EX_MUL, cols, r->ext[d]);
    } else if (!pitch) {
      open = false;
      pitch = stride;
      rows = r->ext[d];
    } else if (ir_expr_equal(ir_binary(k, EX_MUL, pitch, rows), stride)) {
      rows = ir_binary(k, EX_MUL, rows, r->ext[d]);
    } else {
      return false;
    }
  }
  *out = (IrRows){off, rows, cols, pitch ? pitch : cols};
  return true;
}

int64_t ir_buf_bytes(const IrBuf *b) {
  int64_t n[IR_MAX_RANK];
  for (int d = 0; d < b->rank; d++) {
    if (!ir_is_const(b->shape[d])) return -1;
    n[d] = b->shape[d]->i;
  }
  if (b->layout != LAYOUT_ND && b->rank >= 2) {
    IrFractal f = ir_fractal(b->layout, b->space, b->type);
    n[b->rank - 2] = round_up(n[b->rank - 2], f.rows);
    n[b->rank - 1] = round_up(n[b->rank - 1], f.cols);
  }
  int64_t bytes = dtype_size(b->type);
  for (int d = 0; d < b->rank; d++) {
    if (n[d] < 0 || (n[d] && bytes > INT64_MAX / n[d])) return INT64_MAX;
    bytes *= n[d];
  }
  return b->space == SPACE_GM ? bytes : round_up(bytes, 32);
}

int64_t ir_fractal_offset(Layout l, Space s, DType t, int64_t rows, int64_t cols, int64_t r, int64_t c) {
  int64_t c0 = ir_c0(s, t);
  switch (l) {
  case LAYOUT_NZ: return c / c0 * round_up(rows, 16) * c0 + r * c0 + c % c0;
  case LAYOUT_ZZ: return (r / 16 * ceil_div(cols, c0) + c / c0) * 16 * c0 + r % 16 * c0 + c % c0;
  case LAYOUT_ZN: return (r / c0 * ceil_div(cols, 16) + c / 16) * 16 * c0 + c % 16 * c0 + r % c0;
  default: return r * cols + c;
  }
}

bool ir_has_jump(const IrBlock *b, StmtOp jump) {
  for (const IrStmt *s = b->first; s; s = s->next) {
    if (s->op == jump) return true;
    if (s->op == ST_FOR || s->op == ST_WHILE) continue;
    if (ir_has_jump(&s->body, jump) || ir_has_jump(&s->alt, jump)) return true;
  }
  return false;
}

bool ir_leaves_loop(const IrBlock *b) { return ir_has_jump(b, ST_BREAK) || ir_has_jump(b, ST_CONTINUE); }

const IrStmt *ir_side_of(const IrStmt *s) {
  do {
    s = s->block ? s->block->parent : NULL;
  } while (s && !ir_is_side(s));
  return s;
}

static bool is_no_side(IrStmt *s, void *user) { return (void)user, !ir_is_side(s); }
bool ir_has_sides(IrKernel *k) { return !ir_walk(&k->body, is_no_side, NULL); }

bool ir_stands_in(const IrStmt *s, const IrStmt *outer) {
  while (s && s != outer) s = s->block ? s->block->parent : NULL;
  return s;
}

bool ir_cube_writes(DType from, DType to) {
  if (from == DT_I32) return to == DT_I32;
  return from == DT_F32 && (to == DT_F32 || to == DT_F16 || to == DT_BF16);
}

/* Lines of an NZ fractal in L1 are 32 bytes, one below the other: a load may start at any of them, if what it takes of
 * the tile is there as whole fractals. Loads that turn squares of several fractals (1 and 4 bytes) start at those. */
static bool any_row(const IrStmt *s, int arg) {
  const IrRegion *r = &s->args[arg].region;
  int d = r->buf->rank - 2;
  bool right = s->op == OP_GEMM ? arg == 1 : s->op == OP_L1_TO_L0B;
  bool trans = ir_attr(s, s->op != OP_GEMM ? ATTR_TRANS : right ? ATTR_TRANS_B : ATTR_TRANS_A) != NULL;
  if (trans != right && dtype_size(r->buf->type) != 2) return false;
  if (r->ext[d]->op != EX_INT) return false;
  if (r->ext[d]->i % 16 == 0) return true;
  return r->off[d]->op == EX_INT && r->buf->shape[d]->op == EX_INT &&
         r->off[d]->i + round_up(r->ext[d]->i, 16) <= round_up(r->buf->shape[d]->i, 16);
}

bool ir_starts_inside(const IrRegion *sums) {
  int64_t rest;
  const IrBuf *b = sums->buf;
  int64_t cols = ir_fractal(LAYOUT_NZ, SPACE_L0C, b->type).cols;
  return b->rank >= 2 && ir_residue(sums->off[b->rank - 1], cols, &rest) && rest;
}

int ir_fractal_split(const IrStmt *s, int arg, int *unit) {
  const IrRegion *r = &s->args[arg].region;
  const IrBuf *b = r->buf;
  if (b->rank < 2 || b->space == SPACE_GM || b->space == SPACE_UB) return -1;
  bool acc = s->op == OP_GEMM && arg == 2;
  IrFractal f = ir_fractal(b->space == SPACE_L0B ? LAYOUT_ZN : LAYOUT_NZ, acc ? SPACE_L0C : b->space, b->type);
  int64_t units[2] = {f.rows, f.cols};
  bool load = b->space == SPACE_L1 && (s->op == OP_L1_TO_L0A || s->op == OP_L1_TO_L0B);
  bool loaded = load || (s->op == OP_GEMM && arg < 2);
  if (s->op == OP_GM_TO_L1 || s->op == OP_L0C_TO_GM || (loaded && any_row(s, arg))) units[0] = 1;
  for (int i = 0; i < 2; i++) {
    int d = b->rank - 2 + i;
    int64_t rest;
    if (!ir_residue(r->off[d], units[i], &rest) || !rest) continue;
    *unit = (int)units[i];
    return d;
  }
  return -1;
}
