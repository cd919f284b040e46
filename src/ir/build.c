/* build.c - makes expressions, variables, buffers and statements, and is the only writer of their links.
 *
 * Expressions are simplified as they are built: constants fold at the width of their dtype, neutral elements
 * vanish, and sums and products collect their constants on the right, so that `%k * 64 + 0 + 64` is
 * `%k * 64 + 64`. Integer division and remainder are Python's (floor). Floats fold only when the result does
 * not depend on the order of rounding. */
#include "ir.h"

#include <math.h>
#include <string.h>

static Arena *arena_of(IrKernel *k) { return k->module->arena; }

static IrExpr *new_expr(IrKernel *k, ExprOp op, DType t, int n) {
  IrExpr *e = arena_new(arena_of(k), IrExpr);
  e->op = (uint8_t)op;
  e->type = (uint8_t)t;
  e->n = (uint8_t)n;
  return e;
}

int64_t dtype_wrap(DType t, int64_t v) {
  switch (t) {
  case DT_I8: return (int8_t)v;
  case DT_I16: return (int16_t)v;
  case DT_I32: return (int32_t)v;
  case DT_U8: return (uint8_t)v;
  case DT_U16: return (uint16_t)v;
  case DT_U32: return (uint32_t)v;
  case DT_BOOL: return v != 0;
  default: return v;
  }
}

IrExpr *ir_int(IrKernel *k, DType t, int64_t v) {
  if (dtype_is_float(t)) return ir_float(k, t, (double)v);
  IrExpr *e = new_expr(k, EX_INT, t, 0);
  e->i = dtype_wrap(t, v);
  return e;
}

IrExpr *ir_float(IrKernel *k, DType t, double v) {
  IrExpr *e = new_expr(k, EX_FLOAT, t, 0);
  e->f = (double)(float)v == v ? v : float_round(t, v); /* the text has the digits of a float32 */
  return e;
}

IrExpr *ir_var(IrKernel *k, IrVar *v) {
  IrExpr *e = new_expr(k, EX_VAR, v->type, 0);
  e->var = v;
  return e;
}

IrExpr *ir_load(IrKernel *k, IrBuf *b, IrExpr **idx) {
  IrExpr *e = new_expr(k, EX_LOAD, b->type, b->rank);
  e->buf = b;
  e->idx = arena_array(arena_of(k), IrExpr *, b->rank);
  memcpy(e->idx, idx, sizeof(IrExpr *) * b->rank);
  return e;
}

DType ir_common_type(const IrExpr *a, const IrExpr *b) {
  if (a->type == b->type) return a->type;
  bool fa = dtype_is_float(a->type), fb = dtype_is_float(b->type);
  bool ca = a->op == EX_INT || a->op == EX_FLOAT, cb = b->op == EX_INT || b->op == EX_FLOAT;
  if (ca && !cb && (fb || !fa)) return b->type == DT_BOOL ? a->type : b->type; /* a literal adopts */
  if (cb && !ca && (fa || !fb)) return a->type == DT_BOOL ? b->type : a->type;
  if (fa != fb) return fa ? a->type : b->type;
  int sa = dtype_size(a->type), sb = dtype_size(b->type);
  if (a->type == DT_BOOL) return b->type;
  if (b->type == DT_BOOL) return a->type;
  if (sa != sb) return sa > sb ? a->type : b->type;
  if (fa) return DT_F32; /* f16 with bf16 */
  return dtype_info[a->type].cls == 'i' ? a->type : b->type;
}

IrExpr *ir_cast(IrKernel *k, DType t, IrExpr *a) {
  if (a->type == t) return a;
  if (a->op == EX_INT && !dtype_is_float(t)) return ir_int(k, t, a->i);
  if (a->op == EX_INT) return ir_float(k, t, float_of_int((DType)a->type, a->i));
  if (a->op == EX_FLOAT && dtype_is_float(t)) return ir_float(k, t, float_round((DType)a->type, a->f));
  IrExpr *e = new_expr(k, EX_CAST, t, 1);
  e->arg[0] = a;
  return e;
}

IrExpr *ir_bits(IrKernel *k, DType t, IrExpr *a) {
  if (a->op == EX_BITS) a = a->arg[0];
  if (a->type == t) return a;
  IrExpr *e = new_expr(k, EX_BITS, t, 1);
  e->arg[0] = a;
  return e;
}

static IrExpr *to_bool(IrKernel *k, IrExpr *a) {
  if (a->type == DT_BOOL) return a;
  return ir_binary(k, EX_NE, a, ir_int(k, a->type, 0));
}

IrExpr *ir_select(IrKernel *k, IrExpr *c, IrExpr *a, IrExpr *b) {
  c = to_bool(k, c);
  if (c->op == EX_INT) return c->i ? a : b;
  DType t = ir_common_type(a, b);
  IrExpr *e = new_expr(k, EX_SELECT, t, 3);
  e->arg[0] = c;
  e->arg[1] = ir_cast(k, t, a);
  e->arg[2] = ir_cast(k, t, b);
  return e;
}

IrExpr *ir_unary(IrKernel *k, ExprOp op, IrExpr *a) {
  if (op == EX_LNOT) {
    a = to_bool(k, a);
    if (a->op == EX_INT) return ir_int(k, DT_BOOL, !a->i);
    if (a->op == EX_LNOT) return a->arg[0];
  }
  if (a->op == EX_INT && op == EX_NEG) return ir_int(k, a->type, -(uint64_t)a->i);
  if (a->op == EX_INT && op == EX_NOT) return ir_int(k, a->type, ~a->i);
  if (a->op == EX_INT && op == EX_ABS) return ir_int(k, a->type, a->i < 0 ? -(uint64_t)a->i : (uint64_t)a->i);
  if (a->op == EX_FLOAT && op == EX_NEG) return ir_float(k, a->type, -a->f);
  if (a->op == EX_FLOAT && op == EX_ABS) return ir_float(k, a->type, fabs(a->f));
  bool needs_float = op == EX_EXP || op == EX_LOG || op == EX_SQRT || op == EX_RSQRT || op == EX_SIN || op == EX_COS ||
                     op == EX_TANH;
  if (needs_float && !dtype_is_float(a->type)) a = ir_cast(k, DT_F32, a);
  IrExpr *e = new_expr(k, op, op == EX_LNOT ? DT_BOOL : a->type, 1);
  e->arg[0] = a;
  return e;
}

static int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

/* Both sides constant integers: *out and true when the operation is defined. */
static bool fold_ints(ExprOp op, DType t, int64_t a, int64_t b, int64_t *out) {
  bool is_signed = dtype_info[t].cls == 'i';
  switch (op) {
  case EX_ADD: *out = (int64_t)((uint64_t)a + (uint64_t)b); return true;
  case EX_SUB: *out = (int64_t)((uint64_t)a - (uint64_t)b); return true;
  case EX_MUL: *out = (int64_t)((uint64_t)a * (uint64_t)b); return true;
  case EX_FDIV:
  case EX_MOD:
    if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
    if (t == DT_U64) *out = (int64_t)(op == EX_FDIV ? (uint64_t)a / (uint64_t)b : (uint64_t)a % (uint64_t)b);
    else *out = op == EX_FDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
    return true;
  case EX_SHL:
    if (b < 0 || b > 63) return false;
    *out = (int64_t)((uint64_t)a << b);
    return true;
  case EX_SHR:
    if (b < 0 || b > 63) return false;
    *out = is_signed ? a >> b : (int64_t)((uint64_t)a >> b);
    return true;
  case EX_AND: *out = a & b; return true;
  case EX_OR: *out = a | b; return true;
  case EX_XOR: *out = a ^ b; return true;
  case EX_MIN: *out = t == DT_U64 ? ((uint64_t)a < (uint64_t)b ? a : b) : min_i64(a, b); return true;
  case EX_MAX: *out = t == DT_U64 ? ((uint64_t)a > (uint64_t)b ? a : b) : max_i64(a, b); return true;
  case EX_LT: *out = t == DT_U64 ? (uint64_t)a < (uint64_t)b : a < b; return true;
  case EX_LE: *out = t == DT_U64 ? (uint64_t)a <= (uint64_t)b : a <= b; return true;
  case EX_GT: *out = t == DT_U64 ? (uint64_t)a > (uint64_t)b : a > b; return true;
  case EX_GE: *out = t == DT_U64 ? (uint64_t)a >= (uint64_t)b : a >= b; return true;
  case EX_EQ: *out = a == b; return true;
  case EX_NE: *out = a != b; return true;
  default: return false;
  }
}

static bool is_compare(ExprOp op) { return op >= EX_LT && op <= EX_NE; }

/* Neutral elements and constants that can be collected; NULL: build the node as it is. */
static IrExpr *simplify(IrKernel *k, ExprOp op, IrExpr *a, IrExpr *b) {
  if (dtype_is_float(a->type)) return NULL;
  switch (op) {
  case EX_ADD:
    if (ir_is_int(a, 0)) return b;
    if (ir_is_int(b, 0)) return a;
    if (a->op == EX_INT) return ir_binary(k, EX_ADD, b, a);
    if (b->op == EX_INT && a->op == EX_ADD && a->arg[1]->op == EX_INT)
      return ir_binary(k, EX_ADD, a->arg[0], ir_binary(k, EX_ADD, a->arg[1], b));
    if (b->op == EX_INT && a->op == EX_SUB && a->arg[1]->op == EX_INT)
      return ir_binary(k, EX_ADD, a->arg[0], ir_binary(k, EX_SUB, b, a->arg[1]));
    break;
  case EX_SUB:
    if (ir_is_int(b, 0)) return a;
    if (ir_expr_equal(a, b)) return ir_int(k, a->type, 0);
    if (a->op == EX_ADD && ir_expr_equal(a->arg[0], b)) return a->arg[1];
    if (a->op == EX_ADD && ir_expr_equal(a->arg[1], b)) return a->arg[0];
    if (b->op == EX_INT && b->i < 0 && b->i != INT64_MIN) return ir_binary(k, EX_ADD, a, ir_int(k, b->type, -b->i));
    if (b->op == EX_INT && a->op == EX_ADD && a->arg[1]->op == EX_INT)
      return ir_binary(k, EX_ADD, a->arg[0], ir_binary(k, EX_SUB, a->arg[1], b));
    break;
  case EX_MUL:
    if (ir_is_int(a, 1)) return b;
    if (ir_is_int(b, 1)) return a;
    if (ir_is_int(a, 0) || ir_is_int(b, 0)) return ir_int(k, a->type, 0);
    if (a->op == EX_INT) return ir_binary(k, EX_MUL, b, a);
    if (b->op == EX_INT && a->op == EX_MUL && a->arg[1]->op == EX_INT)
      return ir_binary(k, EX_MUL, a->arg[0], ir_binary(k, EX_MUL, a->arg[1], b));
    break;
  case EX_FDIV:
    if (ir_is_int(b, 1)) return a;
    break;
  case EX_MOD:
    if (ir_is_int(b, 1)) return ir_int(k, a->type, 0);
    break;
  case EX_MIN:
  case EX_MAX:
    if (ir_expr_equal(a, b)) return a;
    break;
  default:
    if (is_compare(op) && ir_expr_equal(a, b)) return ir_int(k, DT_BOOL, op == EX_EQ || op == EX_LE || op == EX_GE);
  }
  return NULL;
}

IrExpr *ir_binary(IrKernel *k, ExprOp op, IrExpr *a, IrExpr *b) {
  if (op == EX_LAND || op == EX_LOR) {
    a = to_bool(k, a);
    b = to_bool(k, b);
    IrExpr *known = a->op == EX_INT ? a : b->op == EX_INT ? b : NULL;
    if (known) {
      IrExpr *other = known == a ? b : a;
      if (known == a || (op == EX_LAND) == (known->i != 0)) return (op == EX_LAND) == (known->i != 0) ? other : known;
    }
  } else {
    DType t = ir_common_type(a, b);
    if (op == EX_DIV && !dtype_is_float(t)) t = DT_F32;
    if ((op == EX_SHL || op == EX_SHR) && b->op == EX_INT) t = a->type;
    a = ir_cast(k, t, a);
    b = ir_cast(k, t, b);
    int64_t v;
    if (a->op == EX_INT && b->op == EX_INT && fold_ints(op, t, a->i, b->i, &v))
      return ir_int(k, is_compare(op) ? DT_BOOL : t, v);
    IrExpr *s = simplify(k, op, a, b);
    if (s) return s;
  }
  bool to_b = is_compare(op) || op == EX_LAND || op == EX_LOR;
  IrExpr *e = new_expr(k, op, to_b ? DT_BOOL : a->type, 2);
  e->arg[0] = a;
  e->arg[1] = b;
  return e;
}

bool ir_expr_equal(const IrExpr *a, const IrExpr *b) {
  if (a == b) return true;
  if (a->op != b->op || a->type != b->type || a->n != b->n) return false;
  switch (a->op) {
  case EX_INT: return a->i == b->i;
  case EX_FLOAT: return !memcmp(&a->f, &b->f, sizeof a->f);
  case EX_VAR: return a->var == b->var;
  case EX_LOAD:
    if (a->buf != b->buf) return false;
    for (int i = 0; i < a->n; i++)
      if (!ir_expr_equal(a->idx[i], b->idx[i])) return false;
    return true;
  default:
    for (int i = 0; i < a->n; i++)
      if (!ir_expr_equal(a->arg[i], b->arg[i])) return false;
    return true;
  }
}

/* Rebuilds e with leaves replaced through `leaf` (NULL = keep); shares what did not change. */
typedef struct {
  IrKernel *k;
  IrExpr *(*leaf)(void *user, IrExpr *e);
  IrBuf *(*buf)(void *user, IrBuf *b);
  void *user;
  IrExpr *(*load)(void *user, IrExpr *e);
} Rebuild;

static IrExpr *rebuild(const Rebuild *r, IrExpr *e) {
  IrExpr *arg[IR_MAX_RANK];
  bool same = true;
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT: return e;
  case EX_VAR: {
    IrExpr *by = r->leaf ? r->leaf(r->user, e) : NULL;
    return by ? by : e;
  }
  case EX_LOAD: {
    IrBuf *b = r->buf ? r->buf(r->user, e->buf) : e->buf;
    for (int i = 0; i < e->n; i++) same &= (arg[i] = rebuild(r, e->idx[i])) == e->idx[i];
    if (!same || b != e->buf) e = ir_load(r->k, b, arg);
    IrExpr *by = r->load ? r->load(r->user, e) : NULL;
    return by ? by : e;
  }
  default:
    for (int i = 0; i < e->n; i++) same &= (arg[i] = rebuild(r, e->arg[i])) == e->arg[i];
    if (same) return e;
    if (e->op == EX_CAST) return ir_cast(r->k, e->type, arg[0]);
    if (e->op == EX_BITS) return ir_bits(r->k, e->type, arg[0]);
    if (e->op == EX_SELECT) return ir_select(r->k, arg[0], arg[1], arg[2]);
    return e->n == 1 ? ir_unary(r->k, e->op, arg[0]) : ir_binary(r->k, e->op, arg[0], arg[1]);
  }
}

typedef struct { const IrVar *v; IrExpr *by; } Subst;
static IrExpr *subst_leaf(void *user, IrExpr *e) {
  Subst *s = user;
  return e->var == s->v ? s->by : NULL;
}

IrExpr *ir_subst(IrKernel *k, IrExpr *e, const IrVar *v, IrExpr *by) {
  Subst s = {v, by};
  return rebuild(&(Rebuild){.k = k, .leaf = subst_leaf, .user = &s}, e);
}

IrExpr *ir_replace_loads(IrKernel *k, IrExpr *e, IrExpr *(*f)(void *user, IrExpr *load), void *user) {
  return rebuild(&(Rebuild){.k = k, .load = f, .user = user}, e);
}

/* ---- variables, buffers, statements --------------------------------------------------------------------- */

static const char *unique_name(IrKernel *k, const char *want) {
  for (int tries = 0;; tries++) {
    const char *name = tries ? arena_printf(arena_of(k), "%s.%d", want, tries) : arena_str(arena_of(k), want);
    bool taken = false;
    for (uint32_t i = 1; i < k->vars.len && !taken; i++) taken = !strcmp(k->vars.data[i]->name, name);
    for (uint32_t i = 1; i < k->bufs.len && !taken; i++) taken = !strcmp(k->bufs.data[i]->name, name);
    if (!taken) return name;
  }
}

IrVar *ir_new_var(IrKernel *k, const char *name, DType t, VarKind kind, Loc loc) {
  if (!k->vars.len) vec_push(arena_of(k), &k->vars, NULL);
  IrVar *v = arena_new(arena_of(k), IrVar);
  *v = (IrVar){k->vars.len, unique_name(k, name), t, kind, loc, NULL};
  vec_push(arena_of(k), &k->vars, v);
  return v;
}

IrBuf *ir_new_buf(IrKernel *k, const char *name, DType t, Space s, int rank, IrExpr **shape, Loc loc) {
  if (!k->bufs.len) vec_push(arena_of(k), &k->bufs, NULL);
  IrBuf *b = arena_new(arena_of(k), IrBuf);
  b->id = k->bufs.len;
  b->name = unique_name(k, name);
  b->type = t;
  b->space = s;
  b->rank = (uint8_t)rank;
  for (int i = 0; i < rank; i++) b->shape[i] = shape[i];
  b->addr = -1;
  b->param = -1;
  b->loc = loc;
  vec_push(arena_of(k), &k->bufs, b);
  return b;
}

IrStmt *ir_new_stmt(IrKernel *k, StmtOp op, Loc loc) {
  IrStmt *s = arena_new(arena_of(k), IrStmt);
  s->id = ++k->n_stmts;
  s->op = (uint16_t)op;
  s->loc = loc;
  s->body.parent = s->alt.parent = s;
  return s;
}

IrStmt *ir_new_op(IrKernel *k, StmtOp op, Loc loc, int n_args, const IrArg *args) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->n_args = (uint8_t)n_args;
  s->args = arena_array(arena_of(k), IrArg, n_args);
  memcpy(s->args, args, sizeof(IrArg) * (size_t)n_args);
  return s;
}

void ir_append(IrBlock *b, IrStmt *s) {
  s->block = b;
  s->prev = b->last;
  s->next = NULL;
  if (b->last) b->last->next = s;
  else b->first = s;
  b->last = s;
}

void ir_insert_before(IrStmt *at, IrStmt *s) {
  s->block = at->block;
  s->next = at;
  s->prev = at->prev;
  if (at->prev) at->prev->next = s;
  else at->block->first = s;
  at->prev = s;
}

void ir_insert_after(IrStmt *at, IrStmt *s) {
  if (at->next) ir_insert_before(at->next, s);
  else ir_append(at->block, s);
}

void ir_remove(IrStmt *s) {
  if (s->prev) s->prev->next = s->next;
  else s->block->first = s->next;
  if (s->next) s->next->prev = s->prev;
  else s->block->last = s->prev;
  s->block = NULL;
}

void ir_replace_with_block(IrStmt *at, IrBlock *b) {
  while (b->first) {
    IrStmt *s = b->first;
    ir_remove(s);
    ir_insert_before(at, s);
  }
  ir_remove(at);
}

IrRegion ir_whole(IrKernel *k, IrBuf *b) {
  IrRegion r = {.buf = b};
  for (int i = 0; i < b->rank; i++) {
    r.off[i] = ir_i32(k, 0);
    r.ext[i] = b->shape[i];
  }
  return r;
}

bool ir_has_body(StmtOp op) {
  return op == ST_FOR || op == ST_PARALLEL || op == ST_IF || op == ST_WHILE || op == ST_CUBE || op == ST_VECTOR;
}

/* ---- attributes ------------------------------------------------------------------------------------------- */

IrExpr *ir_attr(const IrStmt *s, AttrKey key) {
  for (int i = 0; i < s->n_attrs; i++)
    if (s->attrs[i].key == key) return s->attrs[i].value;
  return NULL;
}

int64_t ir_attr_int(const IrStmt *s, AttrKey key, int64_t otherwise) {
  IrExpr *e = ir_attr(s, key);
  return e && e->op == EX_INT ? e->i : otherwise;
}

void ir_set_attr(IrKernel *k, IrStmt *s, AttrKey key, IrExpr *value) {
  for (int i = 0; i < s->n_attrs; i++)
    if (s->attrs[i].key == key) {
      s->attrs[i].value = value;
      return;
    }
  IrAttr *grown = arena_array(arena_of(k), IrAttr, s->n_attrs + 1);
  int at = 0; /* kept in key order, so that text is canonical */
  while (at < s->n_attrs && s->attrs[at].key < key) at++;
  for (int i = 0; i < s->n_attrs; i++) grown[i + (i >= at)] = s->attrs[i];
  grown[at] = (IrAttr){key, value};
  s->attrs = grown;
  s->n_attrs++;
}

void ir_drop_attr(IrStmt *s, AttrKey key) {
  int n = 0;
  for (int i = 0; i < s->n_attrs; i++)
    if (s->attrs[i].key != key) s->attrs[n++] = s->attrs[i];
  s->n_attrs = (uint8_t)n;
}

/* ---- cloning ------------------------------------------------------------------------------------------------ */

typedef struct { IrKernel *k; IrExpr **var; IrBuf **buf; uint32_t n_vars, n_bufs; } Renewal;

static IrExpr *renew_leaf(void *user, IrExpr *e) {
  Renewal *r = user;
  return e->var->id < r->n_vars ? r->var[e->var->id] : NULL;
}

static IrBuf *renew_buf(void *user, IrBuf *b) {
  Renewal *r = user;
  return b->id < r->n_bufs && r->buf[b->id] ? r->buf[b->id] : b;
}

static void renew_expr(IrExpr **e, void *user) {
  Renewal *r = user;
  *e = rebuild(&(Rebuild){.k = r->k, .leaf = renew_leaf, .buf = renew_buf, .user = r}, *e);
}

static IrVar *renew_var(Renewal *r, IrVar *v, IrStmt *def) {
  IrVar *fresh = ir_new_var(r->k, v->name, v->type, v->kind, v->loc);
  fresh->def = def;
  r->var[v->id] = ir_var(r->k, fresh);
  return fresh;
}

static void clone_block(Renewal *r, const IrBlock *from, IrBlock *to);

static IrStmt *clone_stmt(Renewal *r, const IrStmt *s) {
  Arena *a = arena_of(r->k);
  IrStmt *c = arena_new(a, IrStmt);
  *c = *s;
  c->id = ++r->k->n_stmts;
  c->prev = c->next = NULL;
  c->block = NULL;
  c->body = c->alt = (IrBlock){NULL, NULL, c};
  if (s->n_args) {
    c->args = arena_array(a, IrArg, s->n_args);
    memcpy(c->args, s->args, sizeof(IrArg) * s->n_args);
  }
  if (s->n_attrs) {
    c->attrs = arena_array(a, IrAttr, s->n_attrs);
    memcpy(c->attrs, s->attrs, sizeof(IrAttr) * s->n_attrs);
  }
  if (s->op == ST_STORE) {
    c->store.idx = arena_array(a, IrExpr *, s->store.buf->rank);
    memcpy(c->store.idx, s->store.idx, sizeof(IrExpr *) * s->store.buf->rank);
  }
  if (s->op == ST_PARALLEL) {
    c->par.vars = arena_array(a, IrVar *, s->par.n);
    c->par.ext = arena_array(a, IrExpr *, s->par.n);
    memcpy(c->par.ext, s->par.ext, sizeof(IrExpr *) * (size_t)s->par.n);
  }
  if (ir_is_say(s) && s->say.n) {
    c->say.arg = arena_array(a, IrArg, s->say.n);
    memcpy(c->say.arg, s->say.arg, sizeof(IrArg) * s->say.n);
  }
  ir_say_exprs(c, renew_expr, r);
  for (int i = 0; ir_is_say(s) && i < s->say.n; i++)
    if (c->say.arg[i].kind == ARG_REGION) c->say.arg[i].region.buf = renew_buf(r, c->say.arg[i].region.buf);
  ir_stmt_exprs(c, renew_expr, r); /* before new names: `for %i in 0..%i` speaks of the outer one */
  for (int i = 0; i < c->n_args; i++)
    if (c->args[i].kind == ARG_REGION) c->args[i].region.buf = renew_buf(r, c->args[i].region.buf);
  switch (s->op) {
  case ST_STORE: c->store.buf = renew_buf(r, s->store.buf); break;
  case ST_ASSIGN: {
    IrExpr *now = s->set.var->id < r->n_vars ? r->var[s->set.var->id] : NULL;
    if (now) c->set.var = now->var;
    break;
  }
  case ST_FOR: c->loop.var = renew_var(r, s->loop.var, c); break;
  case ST_LET:
  case ST_VAR: c->set.var = renew_var(r, s->set.var, c); break;
  case ST_PARALLEL:
    for (int i = 0; i < s->par.n; i++) c->par.vars[i] = renew_var(r, s->par.vars[i], c);
    break;
  case ST_ALLOC: {
    IrBuf *b = s->alloc.buf;
    c->alloc.buf = ir_new_buf(r->k, b->name, b->type, b->space, b->rank, b->shape, b->loc);
    c->alloc.buf->layout = b->layout;
    c->alloc.buf->why = b->why;
    c->alloc.buf->view = b->view ? renew_buf(r, b->view) : NULL;
    r->buf[b->id] = c->alloc.buf;
    break;
  }
  default: break;
  }
  clone_block(r, &s->body, &c->body);
  clone_block(r, &s->alt, &c->alt);
  return c;
}

static void clone_block(Renewal *r, const IrBlock *from, IrBlock *to) {
  for (const IrStmt *s = from->first; s; s = s->next) ir_append(to, clone_stmt(r, s));
}

IrStmt *ir_clone(IrKernel *k, const IrStmt *s) {
  Renewal r = {k, arena_array(arena_of(k), IrExpr *, k->vars.len + 1),
               arena_array(arena_of(k), IrBuf *, k->bufs.len + 1), k->vars.len, k->bufs.len};
  return clone_stmt(&r, s);
}
