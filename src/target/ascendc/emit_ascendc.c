/* emit_ascendc.c - lowered IR to Ascend C (the subset that toolkits 8.1 and later share).
 *
 * One IR instruction becomes one call, or one call of a small function the output defines for itself
 * (prelude_ascendc.def) where the hardware wants a loop. How each op is spelled stands in ops_ascendc.def.
 *
 * Vector instructions come in two forms. Flat: the call with an element count. Rows: the call with a mask of `cols`
 * elements, one repeat a row, and strides in 32-byte blocks; a repeat count holds 255 and a stride 255 blocks, beyond
 * that a loop is written. Where an extent is known only at run time the call stands under `if (n > 0)`.
 *
 * Memory: one TBuf a memory, tiles at literal addresses, and pipe.Destroy() before the first flag, because the TPipe of
 * a cube core holds three M->MTE1 flags until then. */
#include "ascendc.h"

#include <string.h>

static const CHelper own_helpers[] = {
#define HELPER(id, name, text) {name, text},
#include "prelude_ascendc.def"
#undef HELPER
};

static const char *helper(CWriter *w, int id) {
  cw_use(w, id);
  return own_helpers[id - HELP_SHARED].name;
}

static const Spelling spelling[OP_COUNT];

typedef struct {
  int64_t used[SPACE_COUNT]; /* bytes, up to the end of the last buffer */
} Own;

/* ---- small things -------------------------------------------------------------------------------------------- */

static const char *tensor_at(CWriter *w, const IrBuf *b, IrExpr *off) {
  if (ir_is_int(off, 0)) return w->buf_name[b->id];
  return cw_fmt(w, "%s[%s]", w->buf_name[b->id], cw_str(w, off));
}

static const char *op_name(const IrStmt *s) { return op_info[s->op].name; }

/* Opens `if (…) {` where the extents need it; returns whether it did. */
static bool open_guard(CWriter *w, IrExpr *rows, IrExpr *cols) {
  IrExpr *g = cw_guard(w, rows, cols);
  if (g) cw_open(w, "if (%s)", cw_str(w, g));
  return g != NULL;
}

static bool is_a5(const CWriter *w) { return !strcmp(w->arch->family, "a5"); }

static void refuse_form(CWriter *w, const IrStmt *s, const char *fix, const char *what) {
  cw_refuse(w, DIAG_EMIT_FORM, fix, "%s: %s", op_name(s), what);
}

/* ---- vector instructions --------------------------------------------------------------------------------------- */

typedef enum { TAIL_UNARY, TAIL_BINARY, TAIL_FILL, TAIL_COPY } Tail;

typedef struct {
  const char *api;
  int arg[3], n;     /* operands by position in the statement: the destination first */
  const char *extra; /* arguments between the tensors and the count; "" or ", x" */
  Tail tail;
  DType view; /* elements the instruction counts in; the operands are reinterpreted if they differ in size */
} Call;

/* A tensor argument; `row` is the row expression added to its offset, or NULL. */
static const char *operand(CWriter *w, const IrStmt *s, const IrVec *v, const Call *c, int i, IrExpr *row) {
  int a = c->arg[i];
  const IrBuf *b = s->args[a].region.buf;
  IrExpr *off = v->arg[a].off;
  if (row && v->arg[a].pitch) off = cw_op(w, EX_ADD, off, cw_mul(w, row, v->arg[a].pitch));
  const char *t = tensor_at(w, b, off);
  if (c->tail <= TAIL_BINARY || dtype_size(b->type) == dtype_size(c->view)) return t;
  return cw_fmt(w, "%s.ReinterpretCast<%s>()", t, cw_element(w, c->view));
}

static int64_t rep_stride(const IrStmt *s, const IrVec *v, int a) {
  return v->arg[a].pitch * dtype_size(s->args[a].region.buf->type) / 32;
}

/* "{1, 1, 8, 8}": block strides, then repeat strides. */
static const char *strides(CWriter *w, const IrStmt *s, const IrVec *v, const Call *c) {
  Text t;
  text_init(&t, w->arena);
  if (c->tail == TAIL_FILL) return cw_fmt(w, "1, %lld", (long long)rep_stride(s, v, c->arg[0]));
  text_put(&t, "{");
  for (int i = 0; i < c->n; i++) text_printf(&t, "%s%d", i ? ", " : "", v->arg[c->arg[i]].block ? 0 : 1);
  for (int i = 0; i < c->n; i++) text_printf(&t, ", %lld", (long long)rep_stride(s, v, c->arg[i]));
  text_put(&t, "}");
  return text_str(&t);
}

static void put_call(CWriter *w, const IrStmt *s, const IrVec *v, const Call *c, IrExpr *row, const char *tail) {
  Text t;
  text_init(&t, w->arena);
  for (int i = 0; i < c->n; i++) text_printf(&t, "%s%s", i ? ", " : "", operand(w, s, v, c, i, row));
  cw_line(w, "%s(%s%s, %s);", c->api, text_str(&t), c->extra, tail);
}

/* One repeat a row: directly, in chunks of 255 rows, or row by row where a stride does not fit. */
static void rows_call(CWriter *w, const IrStmt *s, const IrVec *v, const Call *c, IrExpr *cols) {
  bool far = false;
  for (int i = 0; i < c->n; i++) far |= rep_stride(s, v, c->arg[i]) > 255;
  const char *st = strides(w, s, v, c), *mask = cw_str(w, cols);
  if (far) {
    IrExpr *r = cw_temp(w, DT_I32, "row");
    cw_open(w, "for (int32_t %s = 0; %s < %s; ++%s)", r->var->name, r->var->name, cw_str(w, v->rows), r->var->name);
    Call one = *c;
    IrVec near = *v;
    for (int i = 0; i < IR_VEC_ARGS; i++) near.arg[i].pitch = 0;
    const char *zero = strides(w, s, &near, &one);
    put_call(w, s, v, c, r, cw_fmt(w, "%s, 1, %s", mask, zero));
    cw_close(w);
    return;
  }
  if (ir_range(w->k, v->rows).hi <= w->arch->max_repeat) {
    put_call(w, s, v, c, NULL, cw_fmt(w, "%s, %s, %s", mask, cw_str(w, v->rows), st));
    return;
  }
  IrExpr *r = cw_temp(w, DT_I32, "row"), *n = cw_temp(w, DT_I32, "repeats");
  const char *rn = r->var->name;
  cw_open(w, "for (int32_t %s = 0; %s < %s; %s += 255)", rn, rn, cw_str(w, v->rows), rn);
  const char *left = cw_str(w, cw_op(w, EX_SUB, v->rows, r));
  cw_line(w, "const int32_t %s = %s < 255 ? %s : 255;", n->var->name, left, left);
  put_call(w, s, v, c, r, cw_fmt(w, "%s, %s, %s", mask, n->var->name, st));
  cw_close(w);
}

static bool read_vec(CWriter *w, const IrStmt *s, IrVec *v) {
  if (ir_vec(w->k, s, v)) return true;
  refuse_form(w, s, "make all operands one contiguous run, or rows of at most 256 bytes",
              "its operands are neither one run nor rows of equal shape");
  return false;
}

/* Rows of bytes that need not end on a pair, or of 64-bit elements: a function of the prelude. */
static bool by_bytes(CWriter *w, const IrStmt *s, const Call *c, const IrVec *v, IrExpr *cols) {
  const IrBuf *dst = s->args[c->arg[0]].region.buf;
  int size = dtype_size(dst->type);
  bool fill = c->tail == TAIL_FILL, odd = size == 1 && (cols->op != EX_INT || cols->i % 2);
  int64_t pitch = v->arg[c->arg[0]].pitch;
  if (c->tail < TAIL_FILL || (size != 8 && !odd) || (size == 8 && !fill)) return false;
  const char *to = operand(w, s, v, c, 0, NULL), *rows = cw_str(w, v->rows), *n = cw_str(w, cols);
  if (size == 8) {
    cw_line(w, "%s(%s%s, %s, %s, %lld);", helper(w, HELP_FILL_WIDE), to, c->extra, rows, n, (long long)pitch);
    return true;
  }
  to = tensor_at(w, dst, v->arg[c->arg[0]].off);
  if (fill) {
    cw_line(w, "%s(%s%s, %s, %s, %lld);", helper(w, HELP_FILL_BYTES), to, c->extra, rows, n, (long long)pitch);
    return true;
  }
  if (v->arg[c->arg[1]].block) {
    refuse_form(w, s, "make the number of elements of a row a constant even number",
                "a block of 32 bytes repeats in rows that may end in half a pair of bytes");
    return true;
  }
  helper(w, HELP_COPY_UB);
  cw_line(w, "%s(%s, %s, %s, %s, %lld, %lld);", helper(w, HELP_COPY_BYTES), to,
          tensor_at(w, s->args[c->arg[1]].region.buf, v->arg[c->arg[1]].off), rows, n, (long long)pitch,
          (long long)v->arg[c->arg[1]].pitch);
  return true;
}

static void vector_call(CWriter *w, const IrStmt *s, const Call *c) {
  IrVec v;
  if (!read_vec(w, s, &v)) return;
  IrExpr *rows = v.rows, *cols = v.cols;
  bool scope = cw_needs_name(rows) || cw_needs_name(cols), block = false;
  if (scope) cw_scope(w);
  v.rows = rows = cw_bind(w, rows, "rows");
  cols = cw_bind(w, cols, "n");
  bool guarded = open_guard(w, rows, cols);
  for (int i = 0; i < c->n; i++) block |= v.arg[c->arg[i]].block;
  if (!by_bytes(w, s, c, &v, cols)) {
    if (c->tail >= TAIL_FILL) { /* as elements of c->view */
      int have = dtype_size(s->args[c->arg[0]].region.buf->type), want = dtype_size(c->view);
      cols = have >= want ? cw_mul(w, cols, have / want) : cw_num(w, cols->i / (want / have));
    }
    if (!ir_is_int(rows, 1) || block) {
      rows_call(w, s, &v, c, cols);
    } else if (c->tail == TAIL_COPY) {
      Call flat = *c;
      flat.api = helper(w, HELP_COPY_UB);
      put_call(w, s, &v, &flat, NULL, cw_str(w, cols));
    } else {
      put_call(w, s, &v, c, NULL, cw_str(w, cols));
    }
  }
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static bool check_dtype(CWriter *w, const IrStmt *s) {
  int a = op_info[s->op].dtypes == RULE_SEL ? s->n_args - 1 : 0;
  if (s->args[a].kind != ARG_REGION) return true;
  DType t = s->args[a].region.buf->type;
  if (arch_has_dtype(w->arch, op_info[s->op].dtypes, t)) return true;
  cw_refuse(w, DIAG_EMIT_DTYPE, "convert the tile with cast first", "the vector unit of %s has no %s of %s",
            w->arch->name, op_name(s), dtype_info[t].name);
  return false;
}

static const char *scalar_arg(CWriter *w, IrExpr *e, DType t, ScalarAs as) {
  if (as == negated) e = ir_unary(w->k, EX_NEG, ir_cast(w->k, t, e));
  if (as == inverse) e = ir_binary(w->k, EX_DIV, ir_float(w->k, DT_F32, 1.0), ir_cast(w->k, DT_F32, e));
  return cw_scalar(w, e, t);
}

/* Operands in the order of the API: destination, tiles, then the scalar if the last input is one. */
static void elem(CWriter *w, const IrStmt *s, const Spelling *sp) {
  if (!check_dtype(w, s)) return;
  int n_in = s->n_args - 1;
  bool scalar = s->args[n_in - 1].kind == ARG_SCALAR;
  Call c = {.api = scalar ? sp->scalar_api : sp->api, .extra = "", .view = s->args[n_in].region.buf->type};
  if (!*c.api) {
    refuse_form(w, s, scalar ? "fill a tile with the scalar first" : NULL,
                scalar ? "there is no instruction with a scalar operand" : "there is no instruction on two tiles");
    return;
  }
  c.arg[c.n++] = n_in;
  for (int i = 0; i < n_in - scalar; i++) c.arg[c.n++] = i;
  c.tail = c.n == 3 ? TAIL_BINARY : TAIL_UNARY;
  if (scalar)
    c.extra = cw_fmt(w, ", %s", scalar_arg(w, s->args[n_in - 1].scalar, s->args[n_in].region.buf->type, sp->scalar_as));
  vector_call(w, s, &c);
}

static void move(CWriter *w, const IrStmt *s, const Spelling *sp) {
  DType t = s->args[1].region.buf->type;
  DType view = dtype_size(t) == 1 ? DT_U16 : dtype_size(t) == 8 ? DT_U32 : t;
  Call c = {.api = sp->api, .arg = {1, 0}, .n = 2, .extra = "", .tail = TAIL_COPY, .view = view};
  vector_call(w, s, &c);
}

static void fill(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *dst = &s->args[1].region;
  DType t = dst->buf->type, view = t;
  IrExpr *e = ir_cast(w->k, t, s->args[0].scalar);
  Call c = {.api = sp->scalar_api, .arg = {1}, .n = 1, .tail = TAIL_FILL};
  if (dtype_size(t) == 1) { /* two elements at once, where rows end on a pair */
    IrVec v;
    bool even = ir_vec(w->k, s, &v) && v.cols->op == EX_INT && v.cols->i % 2 == 0;
    view = even ? DT_U16 : DT_U8;
  } else if (dtype_size(t) == 8) {
    view = DT_U64;
  }
  if (view != t) e = cw_repeated(w, e, view);
  c.view = view == DT_U64 ? DT_U32 : view;
  c.extra = cw_fmt(w, ", %s", cw_scalar(w, e, view));
  vector_call(w, s, &c);
}

static void arange(CWriter *w, const IrStmt *s, const Spelling *sp) {
  IrRows r;
  const IrRegion *dst = &s->args[2].region;
  DType t = dst->buf->type;
  if (!ir_rows(w->k, dst, &r) || !ir_is_int(r.rows, 1)) {
    const IrStmt *row = cw_arange_row(w, s, 0);
    if (!row) refuse_form(w, s, "write it to a contiguous tile", "the destination is not one run");
    for (int64_t i = 1; row; row = cw_arange_row(w, s, i++)) arange(w, row, sp);
    return;
  }
  DType step = dtype_is_float(t) ? DT_F32 : DT_I32;
  cw_line(w, "%s(%s, %s, %s, %s);", helper(w, HELP_ARANGE), tensor_at(w, dst->buf, r.off),
          cw_scalar(w, s->args[0].scalar, step), cw_scalar(w, s->args[1].scalar, step), cw_str(w, r.cols));
}

/* Does dst hold every value of src? Such conversions take no rounding mode. */
static bool cast_exact(DType dst, DType src) {
  if (dst == src) return true;
  if (dst == DT_F32) return src == DT_F16 || src == DT_BF16 || src == DT_I16;
  if (dst == DT_F16) return src == DT_I8 || src == DT_U8;
  return !dtype_is_float(dst) && !dtype_is_float(src);
}

const char *ac_round_mode(int64_t mode) {
  static const char *const name[CAST_COUNT] = {
      [CAST_NONE] = "CAST_NONE",   [CAST_RINT] = "CAST_RINT",   [CAST_FLOOR] = "CAST_FLOOR", [CAST_CEIL] = "CAST_CEIL",
      [CAST_ROUND] = "CAST_ROUND", [CAST_TRUNC] = "CAST_TRUNC", [CAST_ODD] = "CAST_ODD"};
  return name[mode];
}

static void cast(CWriter *w, const IrStmt *s, const Spelling *sp) {
  DType src = s->args[0].region.buf->type, dst = s->args[1].region.buf->type;
  int64_t mode = ir_attr_int(s, ATTR_MODE, CAST_NONE);
  if (dst == src && mode == CAST_NONE) {
    move(w, s, &spelling[OP_MOVE]);
    return;
  }
  if (mode == CAST_ODD && !(dst == DT_F16 && src == DT_F32)) {
    cw_refuse(w, DIAG_EMIT_FORM, "use mode(rint)", "cast from %s to %s: rounding to odd exists for f32 to f16 only",
              dtype_info[src].name, dtype_info[dst].name);
    return;
  }
  if (dst != src && cast_exact(dst, src)) mode = CAST_NONE;
  else if (mode == CAST_NONE) mode = CAST_RINT;
  Call c = {.api = sp->api, .arg = {1, 0}, .n = 2, .tail = TAIL_UNARY};
  c.extra = cw_fmt(w, ", RoundMode::%s", ac_round_mode(mode));
  vector_call(w, s, &c);
}

static bool flat_vec(CWriter *w, const IrStmt *s, IrVec *v) {
  if (!read_vec(w, s, v)) return false;
  if (ir_is_int(v->rows, 1)) return true;
  refuse_form(w, s, "use contiguous tiles", "its mask goes on over rows, so its operands must be one run");
  return false;
}

static void compare(CWriter *w, const IrStmt *s, const Spelling *sp) {
  static const char *const mode_name[CMP_COUNT] = {[CMP_EQ] = "EQ", [CMP_NE] = "NE", [CMP_GT] = "GT",
                                                   [CMP_GE] = "GE", [CMP_LT] = "LT", [CMP_LE] = "LE"};
  IrVec v;
  int64_t mode = ir_attr_int(s, ATTR_CMP, CMP_EQ);
  const IrBuf *a = s->args[0].region.buf;
  if (!check_dtype(w, s) || !flat_vec(w, s, &v)) return;
  bool scalar = s->args[1].kind == ARG_SCALAR;
  /* Whole repeats: the bits past the last element fall into the mask's own 32-byte block. */
  int64_t lanes = 256 / dtype_size(a->type);
  bool scope = cw_needs_name(v.cols);
  if (scope) cw_scope(w);
  IrExpr *n = cw_bind(w, v.cols, "n");
  bool guarded = open_guard(w, NULL, n);
  const char *b = scalar ? cw_scalar(w, s->args[1].scalar, a->type) : tensor_at(w, s->args[1].region.buf, v.arg[1].off);
  cw_line(w, "%s(%s, %s, %s, CMPMODE::%s, %s);", scalar ? sp->scalar_api : sp->api,
          tensor_at(w, s->args[2].region.buf, v.arg[2].off), tensor_at(w, a, v.arg[0].off), b, mode_name[mode],
          cw_str(w, cw_round_up(w, n, lanes)));
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static void select(CWriter *w, const IrStmt *s, const Spelling *sp) {
  IrVec v;
  if (!check_dtype(w, s) || !flat_vec(w, s, &v)) return;
  bool rep = ir_attr(s, ATTR_MASKREP) != NULL, scalar = s->args[2].kind == ARG_SCALAR;
  bool scope = cw_needs_name(v.cols);
  if (scope) cw_scope(w);
  IrExpr *n = cw_bind(w, v.cols, "n");
  bool guarded = open_guard(w, NULL, n);
  DType t = s->args[3].region.buf->type;
  const char *b = scalar ? cw_scalar(w, s->args[2].scalar, t) : tensor_at(w, s->args[2].region.buf, v.arg[2].off);
  cw_line(w, "%s(%s, %s, %s, %s, SELMODE::%s, %s);", sp->api, tensor_at(w, s->args[3].region.buf, v.arg[3].off),
          tensor_at(w, s->args[0].region.buf, v.arg[0].off), tensor_at(w, s->args[1].region.buf, v.arg[1].off), b,
          rep      ? "VSEL_CMPMASK_SPR"
          : scalar ? "VSEL_TENSOR_SCALAR_MODE"
                   : "VSEL_TENSOR_TENSOR_MODE",
          cw_str(w, n));
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

/* brcb and row_*: at most so many repeats a call. */
static void chunks(CWriter *w, IrExpr *repeats, int64_t most,
                   const char *(*call)(CWriter *w, void *user, IrExpr *from, const char *n), void *user) {
  if (ir_range(w->k, repeats).hi <= most) {
    cw_line(w, "%s", call(w, user, cw_num(w, 0), cw_str(w, repeats)));
    return;
  }
  IrExpr *r = cw_temp(w, DT_I32, "row"), *n = cw_temp(w, DT_I32, "repeats");
  const char *rn = r->var->name;
  cw_open(w, "for (int32_t %s = 0; %s < %s; %s += %lld)", rn, rn, cw_str(w, repeats), rn, (long long)most);
  const char *left = cw_str(w, cw_op(w, EX_SUB, repeats, r));
  cw_line(w, "const int32_t %s = %s < %lld ? %s : %lld;", n->var->name, left, (long long)most, left, (long long)most);
  cw_line(w, "%s", call(w, user, r, n->var->name));
  cw_close(w);
}

typedef struct {
  const IrStmt *s;
  const Spelling *sp;
  IrVec v;
} RowCall;

static const char *call_row_reduce(CWriter *w, void *user, IrExpr *from, const char *n) {
  RowCall *c = user;
  const IrBuf *src = c->s->args[0].region.buf, *dst = c->s->args[1].region.buf;
  IrExpr *so = cw_op(w, EX_ADD, c->v.arg[0].off, cw_mul(w, from, c->v.arg[0].pitch));
  IrExpr *d = cw_op(w, EX_ADD, c->v.arg[1].off, cw_mul(w, from, c->v.arg[1].pitch));
  bool place = c->s->op == OP_ROW_ARGMAX || c->s->op == OP_ROW_ARGMIN;
  return cw_fmt(w, "%s(%s, %s, %s, %s, 1, 1, %lld%s);", c->sp->api, tensor_at(w, dst, d), tensor_at(w, src, so),
             cw_str(w, c->v.cols), n, (long long)(c->v.arg[0].pitch * dtype_size(src->type) / 32),
             c->s->op == OP_ROW_SUM ? ""
             : place                ? ", ReduceOrder::ORDER_VALUE_INDEX"
                                    : ", ReduceOrder::ORDER_ONLY_VALUE");
}

static const char *call_brcb(CWriter *w, void *user, IrExpr *from, const char *n) {
  RowCall *c = user;
  const IrBuf *src = c->s->args[0].region.buf, *dst = c->s->args[1].region.buf;
  IrExpr *so = cw_op(w, EX_ADD, c->v.arg[0].off, cw_mul(w, from, 8));
  IrExpr *d = cw_op(w, EX_ADD, c->v.arg[1].off, cw_mul(w, from, 8 * dtype_c0(dst->type)));
  return cw_fmt(w, "%s(%s, %s, %s, {1, 8});", c->sp->api, tensor_at(w, dst, d), tensor_at(w, src, so), n);
}

static void row_call(CWriter *w, const IrStmt *s, const Spelling *sp) {
  RowCall c = {s, sp, {0}};
  bool is_brcb = s->op == OP_BRCB;
  if (!read_vec(w, s, &c.v)) return;
  bool scope = cw_needs_name(c.v.rows) || cw_needs_name(c.v.cols);
  if (scope) cw_scope(w);
  c.v.rows = cw_bind(w, c.v.rows, is_brcb ? "n" : "rows");
  c.v.cols = cw_bind(w, c.v.cols, "cols");
  bool guarded = open_guard(w, c.v.rows, c.v.cols);
  /* 254 repeats of brcb: the next source starts on a block of 32 bytes for 16-bit elements, too */
  if (is_brcb) chunks(w, cw_op(w, EX_FDIV, c.v.rows, cw_num(w, 8)), w->arch->max_repeat - 1, call_brcb, &c);
  else chunks(w, c.v.rows, w->arch->max_repeat, call_row_reduce, &c);
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static void row_reduce(CWriter *w, const IrStmt *s, const Spelling *sp) {
  if (!check_dtype(w, s)) return;
  IrVec v;
  const IrBuf *b = s->args[0].region.buf;
  if (ir_vec(w->k, s, &v) && v.arg[0].pitch * dtype_size(b->type) / 32 > 255) {
    refuse_form(w, s, "copy the rows closer together", "rows lie more than 255 blocks of 32 bytes apart");
    return;
  }
  row_call(w, s, sp);
}

/* ---- moves between GM and the cores ----------------------------------------------------------------------------- */

static void atomic_begin(CWriter *w, const IrStmt *s, DType t) {
  if (ir_attr(s, ATTR_ATOMIC)) cw_line(w, "SetAtomicAdd<%s>();", cw_element(w, t));
}

static void atomic_end(CWriter *w, const IrStmt *s) {
  if (ir_attr(s, ATTR_ATOMIC)) cw_line(w, "SetAtomicNone();");
}

/* GM bytes between the end of a row and the next row; UB blocks likewise. */
static const char *gm_gap(CWriter *w, const IrRows *r, int size) {
  if (ir_is_int(r->rows, 1)) return "0";
  return cw_str(w, cw_mul(w, cw_op(w, EX_SUB, r->pitch, r->cols), size));
}

static const char *ub_gap(CWriter *w, const IrRows *r, int size) {
  if (ir_is_int(r->rows, 1)) return "0";
  IrExpr *blocks = cw_ceil_div(w, cw_mul(w, r->cols, size), 32);
  IrExpr *pitch = cw_op(w, EX_FDIV, cw_mul(w, r->pitch, size), cw_num(w, 32));
  return cw_str(w, cw_op(w, EX_SUB, pitch, blocks));
}

static void gm_ub(CWriter *w, const IrStmt *s, const Spelling *sp, bool load) {
  const IrRegion *reg[2] = {&s->args[load ? 1 : 0].region, &s->args[load ? 0 : 1].region}; /* UB, GM */
  IrRows r[2];
  if (!cw_rows(w, reg, r, 2) || !ir_expr_equal(r[0].rows, r[1].rows) || !ir_expr_equal(r[0].cols, r[1].cols)) {
    refuse_form(w, s, "copy a plane at a time", "the two sides are not rows of one shape");
    return;
  }
  DType t = reg[0]->buf->type;
  int size = dtype_size(t);
  bool scope = cw_needs_name(r[0].rows) || cw_needs_name(r[0].cols);
  if (scope) cw_scope(w);
  r[0].rows = r[1].rows = cw_bind(w, r[0].rows, "rows");
  IrExpr *cols = cw_bind(w, r[0].cols, "cols");
  for (int i = 0; i < 2; i++) {
    if (ir_expr_equal(r[i].pitch, r[0].cols)) r[i].pitch = cols;
    r[i].cols = cols;
  }
  bool guarded = open_guard(w, r[0].rows, cols);
  atomic_begin(w, s, t);
  const char *ub = tensor_at(w, reg[0]->buf, r[0].off), *gm = tensor_at(w, reg[1]->buf, r[1].off);
  const char *ug = ub_gap(w, &r[0], size), *gg = gm_gap(w, &r[1], size);
  const char *params = cw_fmt(w, "DataCopyExtParams(%s, %s, %s, %s, 0)", cw_str(w, r[0].rows),
                           cw_str(w, cw_mul(w, cols, size)), load ? gg : ug, load ? ug : gg);
  IrExpr *pad = load ? ir_attr(s, ATTR_PAD) : NULL;
  const char *fill = "";
  if (pad) { /* pad the last block: elements behind the row, up to 32 bytes */
    IrExpr *behind = cw_op(w, EX_SUB, cw_mul(w, cw_ceil_div(w, cols, 32 / size), 32 / size), cols);
    fill = cw_fmt(w, "true, 0, %s, %s", cw_str(w, behind), cw_str(w, pad));
  }
  const char *type = cw_element(w, t);
  if (load) cw_line(w, "%s(%s, %s, %s, DataCopyPadExtParams<%s>(%s));", sp->api, ub, gm, params, type, fill);
  else cw_line(w, "%s(%s, %s, %s);", sp->api, gm, ub, params);
  atomic_end(w, s);
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static void gm_to_ub(CWriter *w, const IrStmt *s, const Spelling *sp) { gm_ub(w, s, sp, true); }
static void ub_to_gm(CWriter *w, const IrStmt *s, const Spelling *sp) { gm_ub(w, s, sp, false); }

static bool fractal_box(CWriter *w, const IrStmt *s, const IrRegion *r, CBox *b) {
  if (cw_box(w, r, b)) return true;
  refuse_form(w, s, "take one plane of the buffer at a time", "more than two dimensions of a fractal tile");
  return false;
}

static void gm_to_l1(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  IrRows g;
  CBox b;
  if (!fractal_box(w, s, dst, &b)) return;
  if (!cw_gm_matrix(w, src, &g)) {
    refuse_form(w, s, "copy a plane at a time", "the GM region is not the rows of one matrix");
    return;
  }
  bool scope = cw_needs_name(b.rows) || cw_needs_name(b.cols);
  if (scope) cw_scope(w);
  IrExpr *rows = cw_bind(w, b.rows, "rows"), *cols = cw_bind(w, b.cols, "cols");
  bool guarded = open_guard(w, rows, cols);
  const char *to = tensor_at(w, dst->buf, cw_nz_offset(w, dst->buf, &b)), *from = tensor_at(w, src->buf, g.off);
  IrExpr *pitch = ir_is_int(g.rows, 1) ? cols : g.pitch;
  if (pitch->op == EX_INT && pitch->i <= 65535) {
    cw_line(w, "%s(%s, %s, Nd2NzParams(1, %s, %s, 0, %s, %lld, 1, 0));", sp->api, to, from, cw_str(w, rows),
            cw_str(w, cols), cw_str(w, pitch), (long long)b.plane_rows);
  } else {
    cw_line(w, "%s(%s, %s, %s, %s, %s, %lld);", helper(w, HELP_GM_TO_L1), to, from, cw_str(w, rows), cw_str(w, cols),
            cw_str(w, pitch), (long long)b.plane_rows);
  }
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static void l1_fill(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *dst = &s->args[1].region;
  DType t = dst->buf->type, view = t;
  CBox b;
  IrExpr *e = ir_cast(w->k, t, s->args[0].scalar);
  if (!fractal_box(w, s, dst, &b)) return;
  if (dtype_size(t) == 1) {
    view = DT_U16;
    e = cw_repeated(w, e, view);
  }
  int64_t c0 = dtype_c0(t);
  bool ends = b.cols->op == EX_INT && b.c->op == EX_INT && b.c->i + b.cols->i == dst->buf->shape[dst->buf->rank - 1]->i;
  if (!ends && b.cols->op == EX_INT && b.cols->i % c0) {
    refuse_form(w, s, "fill whole blocks of 32 bytes", "the box ends inside a block of 32 bytes");
    return;
  }
  bool scope = cw_needs_name(b.rows) || cw_needs_name(b.cols);
  if (scope) cw_scope(w);
  IrExpr *rows = cw_bind(w, b.rows, "rows"), *cols = cw_bind(w, b.cols, "cols");
  bool guarded = open_guard(w, rows, cols);
  const char *at = tensor_at(w, dst->buf, cw_nz_offset(w, dst->buf, &b));
  if (view != t) at = cw_fmt(w, "%s.ReinterpretCast<%s>()", at, cw_element(w, view));
  cw_line(w, "%s(%s, InitConstValueParams<%s>(%s, %s, %s, %s));", sp->scalar_api, at, cw_element(w, view),
          cw_str(w, cw_ceil_div(w, cols, c0)), cw_str(w, rows),
          cw_str(w, cw_op(w, EX_SUB, cw_num(w, b.plane_rows), rows)), cw_scalar(w, e, view));
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

/* ---- cube ------------------------------------------------------------------------------------------------------- */

typedef struct {
  int id;
  const char *why;
  const char *fix;
} LoadChoice;

/* Which loop of loads brings this box into L0, or why none does. */
static LoadChoice choose_load(CWriter *w, const IrStmt *s, const CBox *src, const CBox *dst) {
  bool a = s->op == OP_L1_TO_L0A, trans = ir_attr(s, ATTR_TRANS) != NULL;
  int size = dtype_size(s->args[0].region.buf->type);
  if (a && !trans) return (LoadChoice){is_a5(w) ? HELP_LOAD_A_NZ : HELP_LOAD_A, NULL, NULL};
  if (!a && trans) return (LoadChoice){HELP_LOAD_BT, NULL, NULL};
  const char *other = a ? "store the left operand as [m, k]" : "store the right operand as [n, k] and use trans_b";
  if (size == 2) return (LoadChoice){a ? (is_a5(w) ? HELP_LOAD_AT16_NZ : HELP_LOAD_AT16) : HELP_LOAD_B16, NULL, NULL};
  if (is_a5(w))
    return (LoadChoice){-1, "a transposing load of 8-bit and 32-bit elements is not written for this chip yet", other};
  if (size == 4) {
    int64_t k = a ? dst->plane_cols : dst->plane_rows;
    if (k % 16)
      return (LoadChoice){-1,
                          "the transposing load of 32-bit elements works on squares of 16 x 16, and k of the L0 tile "
                          "is not a multiple of 16",
                          "make the k step a multiple of 16"};
    return (LoadChoice){a ? HELP_LOAD_AT32 : HELP_LOAD_B32, NULL, NULL};
  }
  const IrExpr *across = a ? dst->rows : dst->cols;
  bool square = src->plane_rows % 32 == 0 && across->op == EX_INT && across->i % 32 == 0 &&
                (src->r->op != EX_INT || src->r->i % 32 == 0) && (src->c->op != EX_INT || src->c->i % 32 == 0);
  if (!square)
    return (LoadChoice){
        -1,
        "the transposing load of 8-bit elements works on squares of 32 x 32, and the tile is not made of whole ones",
        other};
  return (LoadChoice){a ? HELP_LOAD_AT8 : HELP_LOAD_B8, NULL, NULL};
}

static void l1_to_l0(CWriter *w, const IrStmt *s, const Spelling *sp) {
  (void)sp;
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  CBox a, b;
  if (!fractal_box(w, s, src, &a) || !fractal_box(w, s, dst, &b)) return;
  if (!ir_is_int(b.r, 0) || !ir_is_int(b.c, 0)) {
    refuse_form(w, s, "load the whole L0 tile", "the destination starts inside an L0 tile");
    return;
  }
  LoadChoice c = choose_load(w, s, &a, &b);
  if (c.id < 0) {
    cw_refuse(w, DIAG_EMIT_FORM, c.fix, "%s%s of %s: %s", op_name(s), ir_attr(s, ATTR_TRANS) ? " trans" : "",
              dtype_info[src->buf->type].name, c.why);
    return;
  }
  bool scope = cw_needs_name(b.rows) || cw_needs_name(b.cols);
  if (scope) cw_scope(w);
  bool left = s->op == OP_L1_TO_L0A;
  IrExpr *rows = cw_bind(w, b.rows, left ? "m" : "k"), *cols = cw_bind(w, b.cols, left ? "k" : "n");
  bool guarded = open_guard(w, rows, cols);
  const char *to = tensor_at(w, dst->buf, b.plane);
  if (c.id == HELP_LOAD_AT32 || c.id == HELP_LOAD_B32) {
    cw_line(w, "%s(%s, %s, %s, %s, %s, %s, %lld, %lld);", helper(w, c.id), to, tensor_at(w, src->buf, a.plane),
            cw_str(w, a.r), cw_str(w, a.c), cw_str(w, rows), cw_str(w, cols), (long long)a.plane_rows,
            (long long)a.plane_cols);
  } else {
    cw_line(w, "%s(%s, %s, %s, %s, %lld);", helper(w, c.id), to, tensor_at(w, src->buf, cw_nz_offset(w, src->buf, &a)),
            cw_str(w, rows), cw_str(w, cols), (long long)a.plane_rows);
  }
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

typedef struct {
  CWriter *w;
  const IrBuf *buf;
  const IrExpr *cols;
  int64_t c0;
  bool bad, trans32;
} Loads;

/* The fractals of an operand lie as the load put them: its row of fractals must be as long as the product's. */
static bool check_load(const IrStmt *s, void *user) {
  Loads *l = user;
  if (s->op != OP_L1_TO_L0A && s->op != OP_L1_TO_L0B) return false;
  const IrRegion *dst = &s->args[1].region;
  if (dst->buf != l->buf) return false;
  const IrExpr *cols = dst->ext[dst->buf->rank - 1];
  bool same = ir_expr_equal(cols, l->cols) ||
              (cols->op == EX_INT && l->cols->op == EX_INT && ceil_div(cols->i, l->c0) == ceil_div(l->cols->i, l->c0));
  if (!same) l->bad = true;
  if (s->op == OP_L1_TO_L0A && ir_attr(s, ATTR_TRANS) && dtype_size(dst->buf->type) == 4) l->trans32 = true;
  return false;
}

static void mmad(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *A = &s->args[0].region, *B = &s->args[1].region, *C = &s->args[2].region;
  CBox a, b, c;
  if (!fractal_box(w, s, A, &a) || !fractal_box(w, s, B, &b) || !fractal_box(w, s, C, &c)) return;
  if (!ir_is_int(a.r, 0) || !ir_is_int(a.c, 0) || !ir_is_int(b.r, 0) || !ir_is_int(b.c, 0)) {
    refuse_form(w, s, "multiply whole L0 tiles", "an operand starts inside an L0 tile");
    return;
  }
  Loads la = {w, A->buf, a.cols, dtype_c0(A->buf->type), false, false}, lb = {w, B->buf, b.cols, 16, false, false};
  cw_scans(&w->k->body, check_load, is_a5(w) ? &lb : &la);
  cw_scans(&w->k->body, check_load, &lb);
  if (la.bad || lb.bad) {
    cw_refuse(w, DIAG_EMIT_FORM, "load exactly the extents that are multiplied",
              "mmad: %s was loaded with another row length than it is multiplied with", (la.bad ? A : B)->buf->name);
    return;
  }
  /* The cube writes columns of fractals as high as m is; the tile has them as high as it is itself. */
  bool high = a.rows->op == EX_INT ? round_up(a.rows->i, 16) == c.plane_rows : c.plane_rows == 16;
  bool apart = !high && ir_range(w->k, b.cols).hi > 16;
  if (apart && dtype_values(A->buf->type) > 1) {
    refuse_form(w, s, "accumulate into a tile of exactly m rows", "it writes only some rows of the accumulator");
    return;
  }
  bool scope = cw_needs_name(a.rows) || cw_needs_name(a.cols) || cw_needs_name(b.cols) || la.trans32;
  if (scope) cw_scope(w);
  IrExpr *m = cw_bind(w, a.rows, "m"), *n = cw_bind(w, b.cols, "n"), *k = cw_bind(w, a.cols, "k");
  IrExpr *g = cw_guard(w, m, n), *gk = cw_guard(w, k, NULL);
  if (gk) g = g ? cw_op(w, EX_LAND, g, gk) : gk;
  if (g) cw_open(w, "if (%s)", cw_str(w, g));
  const char *to = tensor_at(w, C->buf, cw_nz_offset(w, C->buf, &c)), *left = tensor_at(w, A->buf, a.plane);
  const char *right = tensor_at(w, B->buf, b.plane);
  IrExpr *init = ir_attr(s, ATTR_INIT);
  const char *fresh = init ? cw_str(w, ir_cast(w->k, DT_BOOL, init)) : "false";
  if (apart) {
    IrExpr *kf = la.trans32 ? cw_mul(w, cw_ceil_div(w, k, 16), 2) : cw_ceil_div(w, k, dtype_c0(A->buf->type));
    IrExpr *one = cw_num(w, 1), *mf = cw_ceil_div(w, m, 16);
    cw_line(w, "%s(%s, %s, %s, %s, %s, %s, %s, %s, %lld, %s);", helper(w, HELP_MMAD_ROWS), to, left, right,
            cw_str(w, m), cw_str(w, n), cw_str(w, k), cw_str(w, is_a5(w) ? one : kf), cw_str(w, is_a5(w) ? mf : one),
            (long long)c.plane_rows, fresh);
    if (g) cw_close(w);
    if (scope) cw_close(w);
    return;
  }
  /* m = 1 would switch the cube to vector-times-matrix, which reads the left operand in another layout. */
  const char *mt = m->op == EX_INT            ? (m->i == 1 ? "16" : cw_str(w, m))
                   : ir_range(w->k, m).lo > 1 ? cw_str(w, m)
                                              : cw_fmt(w, "(%s == 1 ? 16 : %s)", cw_str(w, m), cw_str(w, m));
  const char *kt = cw_str(w, cw_mul(w, k, dtype_values(A->buf->type)));
  const char *params = cw_fmt(w, "MmadParams(%s, %s, %s, 0, false, %s)", mt, cw_str(w, n), kt,
                           init ? cw_str(w, ir_cast(w->k, DT_BOOL, init)) : "false");
  if (la.trans32) { /* its loads round k up to 16 */
    const char *p = cw_fresh(w, "params");
    cw_line(w, "MmadParams %s = %s;", p, params);
    cw_line(w, "%s.kDirectionAlign = true;", p);
    params = p;
  }
  const char *cast = dtype_values(A->buf->type) > 1 ? ".ReinterpretCast<int4b_t>()" : ""; /* bytes so far */
  cw_line(w, "%s(%s, %s%s, %s%s, %s);", sp->api, tensor_at(w, C->buf, cw_nz_offset(w, C->buf, &c)),
          tensor_at(w, A->buf, a.plane), cast, tensor_at(w, B->buf, b.plane), cast, params);
  IrExpr *fractals = cw_op(w, EX_MUL, cw_ceil_div(w, m, 16), cw_ceil_div(w, n, 16));
  /* The cube does not wait for its own small results. */
  if (ir_range(w->k, fractals).lo < 10) cw_line(w, "PipeBarrier<PIPE_M>();");
  if (g) cw_close(w);
  if (scope) cw_close(w);
}

static const char *quant_mode(DType dst) { return dst == DT_F16 ? "F322F16" : dst == DT_BF16 ? "F322BF16" : "NoQuant"; }

static void fixpipe(CWriter *w, const IrStmt *s, const Spelling *sp, const char *to, const CBox *b, IrExpr *n,
                    const char *stride) {
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  bool scope = cw_needs_name(b->rows) || cw_needs_name(n);
  if (scope) cw_scope(w);
  IrExpr *m = cw_bind(w, b->rows, "m");
  n = cw_bind(w, n, "n");
  bool guarded = open_guard(w, m, n);
  atomic_begin(w, s, dst->type);
  cw_line(w, "%s<%s, %s, %s>(%s, %s, FixpipeParamsV220(%s, %s, %lld, %s, %s, QuantMode_t::%s, 0, 1, 0, 0, 0));",
          sp->api, cw_element(w, dst->type), cw_element(w, src->type),
          dst->space == SPACE_GM ? "CFG_ROW_MAJOR" : "CFG_NZ", to,
          tensor_at(w, src, cw_nz_offset(w, src, b)), cw_str(w, n), cw_str(w, m), (long long)b->plane_rows, stride,
          ir_attr(s, ATTR_RELU) ? "true" : "false", quant_mode(dst->type));
  atomic_end(w, s);
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static void l0c_to_gm(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  CBox b;
  IrRows g;
  if (!fractal_box(w, s, src, &b)) return;
  if (!cw_gm_matrix(w, dst, &g)) {
    refuse_form(w, s, "write a plane at a time", "the GM region is not the rows of one matrix");
    return;
  }
  fixpipe(w, s, sp, tensor_at(w, dst->buf, g.off), &b, b.cols, cw_str(w, ir_is_int(g.rows, 1) ? b.cols : g.pitch));
}

static void l0c_to_l1(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  CBox b, d;
  if (!fractal_box(w, s, src, &b) || !fractal_box(w, s, dst, &d)) return;
  fixpipe(w, s, sp, tensor_at(w, dst->buf, cw_nz_offset(w, dst->buf, &d)), &b, cw_round_up(w, b.cols, 16),
          cw_fmt(w, "%lld", (long long)d.plane_rows));
}

static const Spelling spelling[OP_COUNT] = {
#define none NULL
#define AC(id, writer, api, scalar_api, as) [OP_##id] = {writer, api, scalar_api, as},
#include "ops_ascendc.def"
#undef AC
#undef none
};

enum { /* an op without a line in ops_ascendc.def does not compile */
#define AC(id, writer, api, scalar_api, as) HAS_##id = 1,
#include "ops_ascendc.def"
#undef AC
#define OP(id, name, level, pipe, in, out, dtypes, spaces, attrs, cost, doc) CHECKED_##id = HAS_##id,
#include "../../ir/ops.def"
#undef OP
};

/* ---- scalars in memory ------------------------------------------------------------------------------------------ */

static void load(CWriter *w, Text *t, const IrExpr *e) {
  if (!cw_scalar_reaches(w, e->buf)) return;
  text_printf(t, "%s.GetValue(%s)", w->buf_name[e->buf->id], cw_str(w, cw_offset(w, e->buf, e->idx)));
}

/* The scalar unit's cache does not see what other pipes and cores write to GM. */
static void flush(CWriter *w, const IrBuf *b, IrExpr *off) {
  cw_line(w, "DataCacheCleanAndInvalid<%s, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(%s);",
          cw_element(w, b->type),
          tensor_at(w, b, off));
}

static void store(CWriter *w, const IrStmt *s) {
  const IrBuf *b = s->store.buf;
  if (!cw_scalar_reaches(w, b)) return;
  IrExpr *off = cw_offset(w, b, s->store.idx), *value = ir_cast(w->k, b->type, s->store.value);
  if (s->store.accumulate) {
    if (b->space == SPACE_GM) flush(w, b, off);
    value = cw_op(w, EX_ADD, ir_load(w->k, (IrBuf *)b, s->store.idx), value);
  }
  cw_line(w, "%s.SetValue(%s, %s);", w->buf_name[b->id], cw_str(w, off), cw_scalar(w, value, b->type));
  if (b->space == SPACE_GM) flush(w, b, off);
}

/* ---- synchronisation -------------------------------------------------------------------------------------------- */

/* Ordered pairs of pipes that have event flags (HardEvent of the 8.1 headers). */
static bool has_event(Pipe p, Pipe q) {
  static const Pipe pairs[][2] = {
      {PIPE_MTE2, PIPE_MTE1}, {PIPE_MTE1, PIPE_MTE2}, {PIPE_MTE1, PIPE_M},    {PIPE_M, PIPE_MTE1},
      {PIPE_MTE2, PIPE_V},    {PIPE_V, PIPE_MTE2},    {PIPE_MTE3, PIPE_V},    {PIPE_V, PIPE_MTE3},
      {PIPE_M, PIPE_V},       {PIPE_V, PIPE_M},       {PIPE_MTE3, PIPE_MTE1}, {PIPE_MTE1, PIPE_MTE3},
      {PIPE_MTE1, PIPE_V},    {PIPE_MTE2, PIPE_M},    {PIPE_M, PIPE_MTE2},    {PIPE_V, PIPE_MTE1},
      {PIPE_M, PIPE_FIX},     {PIPE_FIX, PIPE_M},     {PIPE_MTE3, PIPE_MTE2}, {PIPE_MTE2, PIPE_MTE3},
      {PIPE_S, PIPE_V},       {PIPE_V, PIPE_S},       {PIPE_S, PIPE_MTE2},    {PIPE_MTE2, PIPE_S},
      {PIPE_S, PIPE_MTE3},    {PIPE_MTE3, PIPE_S},    {PIPE_MTE2, PIPE_FIX},  {PIPE_FIX, PIPE_MTE2},
      {PIPE_FIX, PIPE_S},     {PIPE_M, PIPE_S},       {PIPE_FIX, PIPE_MTE3},  {PIPE_MTE1, PIPE_FIX},
      {PIPE_FIX, PIPE_MTE1}};
  for (size_t i = 0; i < TL_COUNT(pairs); i++)
    if (pairs[i][0] == p && pairs[i][1] == q) return true;
  return false;
}

static const char *short_pipe(Pipe p) { return pipe_info[p].cxx + 5; } /* without PIPE_ */

static void sync_stmt(CWriter *w, const IrStmt *s) {
  switch (s->op) {
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
    if (!has_event(s->sync.src, s->sync.dst)) {
      cw_refuse(w, DIAG_EMIT_SYNC, "use `barrier all`", "there is no event flag from pipe %s to pipe %s",
                pipe_info[s->sync.src].name, pipe_info[s->sync.dst].name);
      return;
    }
    cw_line(w, "%s<HardEvent::%s_%s>(%s);", s->op == ST_SET_FLAG ? "SetFlag" : "WaitFlag", short_pipe(s->sync.src),
            short_pipe(s->sync.dst), cw_str(w, s->sync.id));
    break;
  case ST_BARRIER:
    cw_line(w, "PipeBarrier<%s>();", pipe_info[s->sync.src].cxx);
    break;
  case ST_CROSS_SET:
    cw_line(w, "CrossCoreSetFlag<%d, %s>(%s);", s->sync.mode, pipe_info[s->sync.src].cxx, cw_str(w, s->sync.id));
    break;
  case ST_CROSS_WAIT: cw_line(w, "CrossCoreWaitFlag(%s);", cw_str(w, s->sync.id)); break;
  case ST_SYNC_ALL:
    /* With a cube side that takes part, all cores of both kinds meet. */
    cw_line(w, "SyncAll%s();", cw_side_syncs(w, ST_CUBE) ? "<false>" : "");
    break;
  default: break;
  }
}

static void side_begin(CWriter *w, const IrStmt *side);

static void stmt(CWriter *w, const IrStmt *s) {
  if (ir_is_side(s)) {
    cw_open(w, s->op == ST_CUBE ? "if ASCEND_IS_AIC" : "if ASCEND_IS_AIV");
    side_begin(w, s);
    cw_block(w, &s->body);
    cw_close(w);
  } else if (ir_is_say(s)) {
    ac_say(w, s);
  } else if (cw_chip_has(w, s)) {
    if (ir_is_op(s)) spelling[s->op].write(w, s, &spelling[s->op]);
    else sync_stmt(w, s);
  }
}

/* ---- the kernel around the statements --------------------------------------------------------------------------- */

static const struct {
  Space space;
  const char *position, *name;
} places[] = {{SPACE_L1, "A1", "l1"},
              {SPACE_L0A, "A2", "l0a"},
              {SPACE_L0B, "B2", "l0b"},
              {SPACE_L0C, "CO1", "l0c"},
              {SPACE_UB, "VECCALC", "ub"}};

static const char *place_name(CWriter *w, int i) { return cw_fresh(w, places[i].name); }

/* The buffers of this side, then the end of the TPipe. */
static void side_begin(CWriter *w, const IrStmt *side) {
  Own *own = w->own;
  const char *pipe = cw_fresh(w, "pipe");
  for (size_t p = 0; p < TL_COUNT(places); p++) {
    if ((places[p].space == SPACE_UB) != (side->op == ST_VECTOR) || !own->used[places[p].space]) continue;
    const char *name = place_name(w, (int)p);
    cw_line(w, "TBuf<TPosition::%s> %s;", places[p].position, name);
    cw_line(w, "%s.InitBuffer(%s, %lld);", pipe, name, (long long)own->used[places[p].space]);
    for (uint32_t i = 1; i < w->k->bufs.len; i++) {
      const IrBuf *b = w->k->bufs.data[i];
      if (b->space != places[p].space || b->addr < 0) continue;
      int64_t bytes = ir_buf_bytes(b);
      cw_line(w, "LocalTensor<%s> %s = %s.GetWithOffset<%s>(%lld, %lld);", cw_element(w, b->type), w->buf_name[i], name,
              cw_element(w, b->type), (long long)(bytes / dtype_size(b->type)), (long long)b->addr);
    }
  }
  cw_line(w, "%s.Destroy();", pipe);
  text_put(&w->out, "\n");
}

static const char *kernel_type(const CWriter *w) {
  switch (w->k->cores) {
  case CORES_CUBE: return w->crosses ? "KERNEL_TYPE_MIX_AIC_1_0" : "KERNEL_TYPE_AIC_ONLY";
  case CORES_VECTOR: return w->crosses ? "KERNEL_TYPE_MIX_AIV_1_0" : "KERNEL_TYPE_AIV_ONLY";
  default: return "KERNEL_TYPE_MIX_AIC_1_2";
  }
}

static void tensor(CWriter *w, const IrBuf *b, const char *at) {
  cw_line(w, "GlobalTensor<%s> %s;", cw_element(w, b->type), w->buf_name[b->id]);
  cw_line(w, "%s.SetGlobalBuffer((__gm__ %s *)%s);", w->buf_name[b->id], cw_element(w, b->type), at);
}

static void kernel_grid(CWriter *w) {
  IrKernel *k = w->k;
  bool halve = k->cores == CORES_MIX;
  const char *block = cw_fresh(w, "block");
  if (k->grid.len || halve) {
    cw_line(w, "%sint32_t %s = GetBlockIdx();", halve ? "" : "const ", block);
    if (halve) {
      cw_open(w, "if ASCEND_IS_AIV");
      cw_line(w, "%s /= 2;", block); /* two vector cores a block */
      cw_close(w);
    }
  }
  cw_kernel_grid(w, block, "GetSubBlockIdx()");
}

static const char *const reserved[] = {
#define AC(id, writer, api, scalar_api, as) api, scalar_api,
#include "ops_ascendc.def"
#undef AC
#define HELPER(id, name, text) name,
#include "prelude_ascendc.def"
#undef HELPER
    "AscendC",
    "GlobalTensor",
    "LocalTensor",
    "TPipe",
    "TBuf",
    "TPosition",
    "GetBlockIdx",
    "GetSubBlockIdx",
    "SetFlag",
    "WaitFlag",
    "PipeBarrier",
    "HardEvent",
    "CrossCoreSetFlag",
    "CrossCoreWaitFlag",
    "SyncAll",
    "SetAtomicAdd",
    "SetAtomicNone",
    "RoundMode",
    "CMPMODE",
    "SELMODE",
    "ReduceOrder",
    "QuantMode_t",
    "MmadParams",
    "Nd2NzParams",
    "LoadDataWithTranspose",
    "FixpipeParamsV220",
    "DataCopyExtParams",
    "DataCopyPadExtParams",
    "InitConstValueParams",
    "DataCacheCleanAndInvalid",
    "CacheLine",
    "DcciDst",
    "SetSyncBaseAddr",
    "ToFloat",
    "ToBfloat16",
    "ScalarCast",
    "CFG_ROW_MAJOR",
    "CFG_NZ",
    "GM_ADDR",
    "MIX",
    "AIC",
    "AIV",
    "fftsAddr",
    "call",
    "stream",
    "blocks",
    "ffts",
    "ffts_bytes",
    NULL};

static const CDialect dialect = {.title = "Ascend C",
                                 .names = reserved,
                                 .func_prefix = "__aicore__ inline",
                                 .load = load,
                                 .store = store,
                                 .stmt = stmt,
                                 .flush = flush,
                                 .tensor = tensor,
                                 .no_host = "__CCE_KT_TEST__",
                                 .bf16_to_float = "ToFloat",
                                 .bf16_from_float = "ToBf16",
                                 .e4m3 = "fp8_e4m3fn_t",
                                 .e5m2 = "fp8_e5m2_t",
                                 .float_to_int = "%sOf"};

/* Which helpers of the scalar unit do the expressions use? They are named in the text by the shared writer. */
static void use_named(CWriter *w) {
  static const int ids[] = {HELP_FLOOR, HELP_CEIL, HELP_RINT, HELP_BF16};
  const char *text = text_str(&w->out);
  for (size_t i = 0; i < TL_COUNT(ids); i++)
    if (strstr(text, cw_fmt(w, "%s(", own_helpers[ids[i] - HELP_SHARED].name))) cw_use(w, ids[i]);
}

static bool emit(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, Text *out) {
  CWriter w;
  if (!cw_begin(&w, a, d, k, arch, &dialect)) return false;
  Own *own = arena_new(a, Own);
  w.own = own;
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    const IrBuf *b = k->bufs.data[i];
    if (b->space != SPACE_GM && b->addr >= 0)
      own->used[b->space] = max_i64(own->used[b->space], b->addr + ir_buf_bytes(b));
  }
  Text head;
  text_init(&head, a);
  cw_kernel_params(&w, &head, "GM_ADDR ");
  if (w.mix) text_printf(&head, "%suint64_t fftsAddr", w.n_params ? ", " : "");
  cw_line(&w, "extern \"C\" __global__ __aicore__ void %s_kernel(%s)", k->name, text_str(&head));
  cw_scope(&w);
  cw_line(&w, "KERNEL_TASK_TYPE_DEFAULT(%s);", kernel_type(&w));
  if (w.mix) cw_line(&w, "SetSyncBaseAddr(fftsAddr);");
  cw_kernel_tensors(&w);
  kernel_grid(&w);
  cw_line(&w, "TPipe %s;", cw_fresh(&w, "pipe"));
  cw_block(&w, &k->body);
  cw_close(&w);
  use_named(&w);
  cw_header(&w, out, "#include \"kernel_operator.h\"\nusing namespace AscendC;\n");
  cw_put_helpers(&w, out, own_helpers, (int)TL_COUNT(own_helpers));
  text_put(out, "\n");
  text_put(out, text_str(&w.out));
  cw_host_part(&w, out);
  return !w.failed;
}

const Target target_ascendc = {"ascendc", emit};
