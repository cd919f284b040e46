/* emit_pto.c - lowered IR to PTO C++ (tiles with static shapes at literal addresses).
 *
 * PTO describes operands by type: a Tile has its memory, element type, shape, layout and valid part in its template
 * arguments. A buffer that is always used in one way is one Tile under its own name. Where an instruction reads the
 * same bytes in another shape (one run instead of rows, a column of row results, a transposed matrix) another Tile
 * stands at the same address. Tiles at constant addresses are declared at the top with the checking form
 * TASSIGN<address>; tiles whose address or valid part is known only at run time are declared where they are used.
 *
 * What PTO cannot say is refused by name (`refused` in ops_pto.def, and refuse_form below). */
#include "../cwriter.h"

#include <string.h>

typedef struct Spelling Spelling;
typedef void (*Writer)(CWriter *w, const IrStmt *s, const Spelling *sp);
struct Spelling {
  Writer write;
  const char *tile_api, *scalar_api, *row_api, *col_api;
};
static const Spelling spelling[OP_COUNT];

enum { HELP_TO_BF16 = HELP_SHARED, HELP_BF16_FLOAT, HELP_COUNT };
static const CHelper own_helpers[] = {
    {"ToBf16", "AICORE inline bfloat16_t ToBf16(float a) // to nearest, ties to even\n{\n"
               "  uint32_t bits = *reinterpret_cast<const uint32_t *>(&a);\n"
               "  if (a == a) {\n    bits += 0x7fff + ((bits >> 16) & 1);\n  }\n"
               "  const uint16_t high = bits >> 16;\n  return *reinterpret_cast<const bfloat16_t *>(&high);\n}\n"},
    {"FloatOfBf16", "AICORE inline float FloatOfBf16(bfloat16_t a)\n{\n"
                    "  const uint32_t bits = (uint32_t)*reinterpret_cast<const uint16_t *>(&a) << 16;\n"
                    "  return *reinterpret_cast<const float *>(&bits);\n}\n"}};

typedef enum { VEC_ROWS, VEC_COLUMN, MAT, MAT_TRANS, LEFT, RIGHT, ACC } Kind;

typedef struct {
  const IrBuf *buf;
  Kind kind;
  int64_t rows, cols;       /* of the Tile */
  int64_t valid_r, valid_c; /* -1: run time */
  int64_t addr;             /* -1: run time */
  const char *name;
} View;

typedef struct {
  Vec(View) views;        /* of the side being written, at constant addresses */
  Vec(const char *) here; /* names of tiles declared in place by the statement `here_of` */
  const IrStmt *here_of;
  bool mix;
  bool *gm_written; /* by buffer id */
} Own;

static const char *fmt(CWriter *w, const char *f, ...) {
  Text t;
  va_list ap;
  va_start(ap, f);
  text_init(&t, w->arena);
  text_vprintf(&t, f, ap);
  va_end(ap);
  return text_str(&t);
}

static const char *dt(DType t) { return t == DT_BOOL ? "uint8_t" : cw_type(t); }
static const char *op_name(const IrStmt *s) { return op_info[s->op].name; }
static bool is_a5(const CWriter *w) { return !strcmp(w->arch->family, "a5"); }

static void refuse_form(CWriter *w, const IrStmt *s, const char *fix, const char *what) {
  cw_refuse(w, DIAG_EMIT_FORM, fix, "%s: %s", op_name(s), what);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static const char *tile_type(CWriter *w, const View *v) {
  const char *t = dt(v->buf->type);
  long long r = v->rows, c = v->cols, vr = v->valid_r, vc = v->valid_c;
  switch (v->kind) {
  case VEC_ROWS: return fmt(w, "Tile<TileType::Vec, %s, %lld, %lld, BLayout::RowMajor, %lld, %lld>", t, r, c, vr, vc);
  case VEC_COLUMN: return fmt(w, "Tile<TileType::Vec, %s, %lld, %lld, BLayout::ColMajor, %lld, %lld>", t, r, c, vr, vc);
  case MAT:
    return fmt(w, "Tile<TileType::Mat, %s, %lld, %lld, BLayout::ColMajor, %lld, %lld, SLayout::RowMajor>", t, r, c, vr,
               vc);
  case MAT_TRANS:
    return fmt(w, "Tile<TileType::Mat, %s, %lld, %lld, BLayout::RowMajor, %lld, %lld, SLayout::ColMajor>", t, r, c, vr,
               vc);
  case LEFT: return fmt(w, "TileLeft<%s, %lld, %lld, %lld, %lld>", t, r, c, vr, vc);
  case RIGHT: return fmt(w, "TileRight<%s, %lld, %lld, %lld, %lld>", t, r, c, vr, vc);
  default: return fmt(w, "TileAcc<%s, %lld, %lld, %lld, %lld>", t, r, c, vr, vc);
  }
}

static bool view_name_taken(const Own *own, const char *name) {
  for (uint32_t i = 0; i < own->views.len; i++)
    if (!strcmp(own->views.data[i].name, name)) return true;
  return false;
}

/* The name of a Tile with these properties; written down once a side, declared at its top. */
static const char *constant_tile(CWriter *w, View v) {
  Own *own = w->own;
  for (uint32_t i = 0; i < own->views.len; i++) {
    const View *o = &own->views.data[i];
    if (o->buf == v.buf && o->kind == v.kind && o->rows == v.rows && o->cols == v.cols && o->valid_r == v.valid_r &&
        o->valid_c == v.valid_c && o->addr == v.addr)
      return o->name;
  }
  const char *base = w->buf_name[v.buf->id];
  v.name = base;
  for (int i = 1; view_name_taken(own, v.name); i++) v.name = cw_fresh(w, fmt(w, "%s_%d", base, i));
  vec_push(w->arena, &own->views, v);
  return v.name;
}

static const char *here_name(CWriter *w, const IrBuf *b) {
  Own *own = w->own;
  if (own->here_of != w->at) own->here.len = 0;
  own->here_of = w->at;
  const char *base = cw_fresh(w, fmt(w, "%s_here", w->buf_name[b->id])), *name = base;
  for (int n = 1;; n++) {
    bool taken = false;
    for (uint32_t i = 0; i < own->here.len; i++) taken |= !strcmp(own->here.data[i], name);
    if (!taken) break;
    name = fmt(w, "%s_%d", base, n);
  }
  vec_push(w->arena, &own->here, name);
  return name;
}

/* A Tile for `rows` x `cols` elements at byte address buf->addr + off * size. Declares it here if it must be. */
static const char *tile(CWriter *w, View v, IrExpr *off, IrExpr *rows, IrExpr *cols) {
  v.valid_r = rows->op == EX_INT ? rows->i : -1;
  v.valid_c = cols->op == EX_INT ? cols->i : -1;
  int64_t size = dtype_size(v.buf->type);
  v.addr = off->op == EX_INT ? v.buf->addr + off->i * size : -1;
  if (v.valid_r >= 0 && v.valid_c >= 0 && v.addr >= 0) return constant_tile(w, v);
  const char *name = here_name(w, v.buf);
  Text valid;
  text_init(&valid, w->arena);
  if (v.valid_r < 0 || v.valid_c < 0) {
    v.valid_r = v.valid_c = -1;
    text_printf(&valid, "(%s, %s)", cw_str(w, rows), cw_str(w, cols));
  }
  cw_line(w, "%s %s%s;", tile_type(w, &v), name, text_str(&valid));
  if (v.addr >= 0) cw_line(w, "TASSIGN<%lld>(%s);", (long long)v.addr, name);
  else cw_line(w, "TASSIGN(%s, %s);", name, cw_str(w, cw_op(w, EX_ADD, cw_mul(w, off, size), cw_num(w, v.buf->addr))));
  return name;
}

static IrExpr *most(CWriter *w, IrExpr *e, int64_t otherwise) { /* a constant bound */
  if (e->op == EX_INT) return e;
  int64_t hi = ir_range(w->k, e).hi;
  return cw_num(w, hi < otherwise ? max_i64(hi, 1) : otherwise);
}

/* Rows of UB. One run is a single row, padded to whole blocks. */
static const char *vec_tile(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *rows, IrExpr *cols, int64_t pitch) {
  int64_t elements = ir_buf_bytes(b) / dtype_size(b->type);
  View v = {.buf = b, .kind = VEC_ROWS};
  v.cols = pitch ? pitch : round_up(most(w, cols, elements)->i, dtype_c0(b->type));
  v.rows = most(w, rows, max_i64(elements / max_i64(v.cols, 1), 1))->i;
  return tile(w, v, off, rows, cols);
}

static const char *column_tile(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *rows) {
  View v = {.buf = b, .kind = VEC_COLUMN, .cols = 1};
  v.rows = round_up(most(w, rows, ir_buf_bytes(b) / dtype_size(b->type))->i, dtype_c0(b->type));
  return tile(w, v, off, rows, cw_num(w, 1));
}

/* A GM window: declares a GlobalTensor and returns its name. */
static const char *gm_tile(CWriter *w, const IrBuf *b, const IrRows *r) {
  bool fixed = r->rows->op == EX_INT && r->cols->op == EX_INT, near = r->pitch->op == EX_INT;
  const char *name = cw_fresh(w, fmt(w, "%s_window", w->buf_name[b->id]));
  Text args;
  text_init(&args, w->arena);
  text_put(&args, w->buf_name[b->id]);
  if (!ir_is_int(r->off, 0)) text_printf(&args, " + %s", cw_atom(w, r->off));
  const char *shape =
      fixed ? fmt(w, "Shape<1, 1, 1, %s, %s>", cw_str(w, r->rows), cw_str(w, r->cols)) : "Shape<1, 1, 1, -1, -1>";
  const char *stride = near ? fmt(w, "Stride<1, 1, 1, %s, 1>", cw_str(w, r->pitch)) : "Stride<1, 1, 1, -1, 1>";
  if (!fixed || !near)
    text_printf(&args, ", %s",
                fixed ? fmt(w, "%s()", shape) : fmt(w, "%s(%s, %s)", shape, cw_str(w, r->rows), cw_str(w, r->cols)));
  if (!near) text_printf(&args, ", %s(%s)", stride, cw_str(w, r->pitch));
  cw_line(w, "GlobalTensor<%s, %s, %s> %s(%s);", dt(b->type), shape, stride, name, text_str(&args));
  return name;
}

static bool open_guard(CWriter *w, IrExpr *rows, IrExpr *cols) {
  IrExpr *g = cw_guard(w, rows, cols);
  if (g) cw_open(w, "if (%s)", cw_str(w, g));
  return g != NULL;
}

/* ---- vector instructions ---------------------------------------------------------------------------------------- */

static bool read_vec(CWriter *w, const IrStmt *s, IrVec *v) {
  if (ir_vec(w->k, s, v)) return true;
  refuse_form(w, s, "make all operands one contiguous run, or rows of equal shape",
              "its operands are neither one run nor rows");
  return false;
}

static bool check_dtype(CWriter *w, const IrStmt *s) {
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    DType t = s->args[i].region.buf->type;
    if (arch_has_dtype(w->arch, op_info[s->op].dtypes, t)) continue;
    cw_refuse(w, DIAG_EMIT_DTYPE, "convert the tile with cast first", "%s has no %s of %s", w->arch->name, op_name(s),
              dtype_info[t].name);
    return false;
  }
  return true;
}

/* Flat over whole buffers whose last dimension is whole blocks: shown as rows, as the kernel has them. */
static void unfold(CWriter *w, const IrStmt *s, IrVec *v) {
  const IrBuf *b = s->args[s->n_args - 1].region.buf;
  if (!ir_is_int(v->rows, 1) || v->cols->op != EX_INT || b->rank < 2) return;
  int64_t cols = b->shape[b->rank - 1]->i, c0 = 1;
  for (int i = 0; i < s->n_args; i++) {
    if (!v->arg[i].off) continue;
    c0 = max_i64(c0, dtype_c0(s->args[i].region.buf->type));
  }
  if (cols % c0 || v->cols->i % cols || v->cols->i == cols) return;
  v->rows = cw_num(w, v->cols->i / cols);
  v->cols = cw_num(w, cols);
  for (int i = 0; i < s->n_args; i++)
    if (v->arg[i].off) v->arg[i].pitch = cols;
}

typedef struct {
  IrVec v;
  const IrStmt *s;
  bool scope, guarded;
} VecCall;

static bool begin(CWriter *w, const IrStmt *s, VecCall *c) {
  c->s = s;
  if (!read_vec(w, s, &c->v)) return false;
  unfold(w, s, &c->v);
  c->scope = cw_needs_name(c->v.rows) || cw_needs_name(c->v.cols);
  for (int i = 0; i < s->n_args; i++)
    if (c->v.arg[i].off && c->v.arg[i].off->op != EX_INT) c->scope = true;
  if (c->v.rows->op != EX_INT || c->v.cols->op != EX_INT) c->scope = true;
  if (c->scope) cw_scope(w);
  c->v.rows = cw_bind(w, c->v.rows, "rows");
  c->v.cols = cw_bind(w, c->v.cols, "n");
  c->guarded = open_guard(w, c->v.rows, c->v.cols);
  return true;
}

static void end(CWriter *w, const VecCall *c) {
  if (c->guarded) cw_close(w);
  if (c->scope) cw_close(w);
}

static const char *operand(CWriter *w, const VecCall *c, int i) {
  const IrBuf *b = c->s->args[i].region.buf;
  bool one_row = !ir_is_int(c->v.rows, 1) && c->v.arg[i].pitch == 0;
  IrExpr *rows = one_row ? cw_num(w, 1) : c->v.rows;
  if (c->v.arg[i].block) return vec_tile(w, b, c->v.arg[i].off, rows, cw_num(w, dtype_c0(b->type)), c->v.arg[i].pitch);
  return vec_tile(w, b, c->v.arg[i].off, rows, c->v.cols, one_row || ir_is_int(c->v.rows, 1) ? 0 : c->v.arg[i].pitch);
}

static const char *scalar_of(CWriter *w, const IrStmt *s, int i) {
  IrExpr *e = s->args[i].scalar;
  if (s->op == OP_DIV) e = ir_binary(w->k, EX_DIV, ir_float(w->k, DT_F32, 1.0), ir_cast(w->k, DT_F32, e));
  return cw_scalar(w, e, s->args[s->n_args - 1].region.buf->type);
}

static void elem(CWriter *w, const IrStmt *s, const Spelling *sp) {
  VecCall c;
  int last = s->n_args - 2, out = s->n_args - 1;
  bool bytes = s->op == OP_MOVE || s->op == OP_FILL || s->op == OP_CAST; /* any dtype */
  if ((!bytes && !check_dtype(w, s)) || !begin(w, s, &c)) return;
  bool scalar = s->args[last].kind == ARG_SCALAR, rows = !ir_is_int(c.v.rows, 1);
  bool by_row = !scalar && c.v.arg[last].block, by_col = !scalar && !by_row && rows && c.v.arg[last].pitch == 0;
  const char *api = scalar ? sp->scalar_api : by_row ? sp->row_api : by_col ? sp->col_api : sp->tile_api;
  bool odd = false; /* a repeated operand where the instruction takes none */
  for (int i = 0; i < last; i++)
    if (c.v.arg[i].off && (c.v.arg[i].block || (rows && c.v.arg[i].pitch == 0))) odd = true;
  if (!*api || odd) {
    refuse_form(w, s, scalar ? "fill a tile with the scalar first" : "give it operands of the same shape",
                scalar ? "there is no instruction with a scalar operand"
                       : "an operand that repeats stands where the instruction takes none");
  } else {
    Text t;
    text_init(&t, w->arena);
    text_put(&t, operand(w, &c, out));
    for (int i = 0; i <= last; i++)
      text_printf(&t, ", %s", s->args[i].kind == ARG_SCALAR ? scalar_of(w, s, i) : operand(w, &c, i));
    cw_line(w, "%s(%s);", api, text_str(&t));
  }
  end(w, &c);
}

static void cast(CWriter *w, const IrStmt *s, const Spelling *sp) {
  static const char *const mode_name[CAST_COUNT] = {
      [CAST_NONE] = "CAST_RINT",   [CAST_RINT] = "CAST_RINT",   [CAST_FLOOR] = "CAST_FLOOR", [CAST_CEIL] = "CAST_CEIL",
      [CAST_ROUND] = "CAST_ROUND", [CAST_TRUNC] = "CAST_TRUNC", [CAST_ODD] = "CAST_ODD"};
  VecCall c;
  DType src = s->args[0].region.buf->type, dst = s->args[1].region.buf->type;
  bool same = src == dst && ir_attr_int(s, ATTR_MODE, CAST_NONE) == CAST_NONE;
  if (same) {
    elem(w, s, &spelling[OP_MOVE]);
    return;
  }
  if (!arch_can_cast(w->arch, dst, src)) {
    cw_refuse(w, DIAG_EMIT_DTYPE, "go through f32 or f16", "cast from %s to %s is not one instruction of %s",
              dtype_info[src].name, dtype_info[dst].name, w->arch->name);
    return;
  }
  if (!begin(w, s, &c)) return;
  const char *to = operand(w, &c, 1), *from = operand(w, &c, 0);
  cw_line(w, "%s(%s, %s, RoundMode::%s);", sp->tile_api, to, from, mode_name[ir_attr_int(s, ATTR_MODE, CAST_NONE)]);
  end(w, &c);
}

static void arange(CWriter *w, const IrStmt *s, const Spelling *sp) {
  VecCall c;
  DType t = s->args[2].region.buf->type;
  if ((t != DT_I16 && t != DT_I32) || !ir_is_int(s->args[1].scalar, 1)) {
    refuse_form(w, s, "count in i32 with step 1, then cast and multiply", "TCI counts i16 and i32 upwards by one only");
    return;
  }
  c.s = s;
  if (!ir_vec(w->k, s, &c.v) || !ir_is_int(c.v.rows, 1) || c.v.cols->op != EX_INT || c.v.arg[2].off->op != EX_INT) {
    refuse_form(w, s, "write a whole tile", "the destination is not one run of constant length");
    return;
  }
  const char *to = operand(w, &c, 2);
  cw_line(w, "%s<decltype(%s), %s, 0>(%s, %s);", sp->tile_api, to, dt(t), to, cw_scalar(w, s->args[0].scalar, t));
}

static void row_reduce(CWriter *w, const IrStmt *s, const Spelling *sp) {
  VecCall c = {.s = s};
  if (!check_dtype(w, s) || !read_vec(w, s, &c.v)) return;
  const IrBuf *dst = s->args[1].region.buf;
  IrExpr *off = c.v.arg[1].off;
  if (off->op == EX_INT && off->i % dtype_c0(dst->type)) {
    refuse_form(w, s, "start the results at a multiple of 32 bytes", "the results start inside a block of 32 bytes");
    return;
  }
  c.scope = c.v.rows->op != EX_INT || c.v.cols->op != EX_INT || off->op != EX_INT || c.v.arg[0].off->op != EX_INT;
  if (c.scope) cw_scope(w);
  c.v.rows = cw_bind(w, c.v.rows, "rows");
  c.v.cols = cw_bind(w, c.v.cols, "cols");
  c.guarded = open_guard(w, c.v.rows, c.v.cols);
  const IrBuf *src = s->args[0].region.buf;
  const char *from = vec_tile(w, src, c.v.arg[0].off, c.v.rows, c.v.cols, c.v.arg[0].pitch);
  const char *to = column_tile(w, dst, off, c.v.rows);
  cw_line(w, "%s(%s, %s, %s);", sp->tile_api, to, from, from); /* a row of one repeat needs no scratch tile */
  end(w, &c);
}

static void brcb(CWriter *w, const IrStmt *s, const Spelling *sp) {
  VecCall c = {.s = s};
  if (!read_vec(w, s, &c.v)) return;
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  if (c.v.rows->op != EX_INT || c.v.arg[0].off->op != EX_INT || c.v.arg[1].off->op != EX_INT) {
    refuse_form(w, s, "broadcast a whole tile", "the number of elements or the place is known only at run time");
    return;
  }
  const char *to = vec_tile(w, dst, c.v.arg[1].off, c.v.rows, c.v.cols, dtype_c0(dst->type));
  cw_line(w, "%s(%s, %s);", sp->tile_api, to, column_tile(w, src, c.v.arg[0].off, c.v.rows));
}

/* An operand that is one run, as a tile of one row. */
static const char *run_tile(CWriter *w, const IrStmt *s, int arg) {
  const IrRegion *r = &s->args[arg].region;
  IrRows rows;
  if (!ir_rows(w->k, r, &rows)) return w->buf_name[r->buf->id]; /* the verifier has seen to it */
  return vec_tile(w, r->buf, rows.off, cw_num(w, 1), ir_count(w->k, r), 0);
}

/* gatherb, gather_mask, sort32: operands of constant length in the order result, source, indices. */
static void moved(CWriter *w, const IrStmt *s, const Spelling *sp) {
  static const char *const pattern_name[] = {"", "P0101", "P1010", "P0001", "P0010", "P0100", "P1000", "P1111"};
  int out = s->n_args - 1;
  const IrBuf *dst = s->args[out].region.buf;
  bool pattern = s->op == OP_GATHER_MASK && s->args[1].kind == ARG_SCALAR, indices = s->op != OP_GATHER_MASK;
  bool scope = false; /* tiles declared here */
  for (int i = 0; i < s->n_args; i++) {
    IrRows rows;
    if (s->args[i].kind != ARG_REGION) continue;
    scope |= ir_rows(w->k, &s->args[i].region, &rows) && rows.off->op != EX_INT;
    if (ir_count(w->k, &s->args[i].region)->op == EX_INT) continue;
    refuse_form(w, s, "use tiles of constant size", "the number of elements is known only at run time");
    return;
  }
  if (indices && s->args[1].region.buf->type != DT_U32) {
    cw_refuse(w, DIAG_EMIT_DTYPE, "use u32 indices", "%s takes indices of u32 only", op_name(s));
    return;
  }
  if (!indices && (!pattern || ir_count(w->k, &s->args[2].region)->i % dtype_c0(dst->type))) {
    refuse_form(w, s, "use target ascendc",
                pattern ? "the result is not a whole number of 32-byte blocks" : "the pattern is a tile of bits");
    return;
  }
  if (scope) cw_scope(w);
  const char *to = run_tile(w, s, out), *from = run_tile(w, s, 0);
  if (indices) cw_line(w, "%s(%s, %s, %s);", sp->tile_api, to, from, run_tile(w, s, 1));
  else
    cw_line(w, "%s<decltype(%s), decltype(%s), MaskPattern::%s>(%s, %s);", sp->tile_api, to, from,
            pattern_name[s->args[1].scalar->i], to, from);
  if (scope) cw_close(w);
}

static void refused(CWriter *w, const IrStmt *s, const Spelling *sp) {
  (void)sp;
  cw_refuse(w, DIAG_EMIT_OP, "use target ascendc", "%s is not written for PTO", op_name(s));
}

/* ---- moves between GM and the cores ----------------------------------------------------------------------------- */

static void gm_ub(CWriter *w, const IrStmt *s, const Spelling *sp, bool in) {
  const IrRegion *reg[2] = {&s->args[in ? 1 : 0].region, &s->args[in ? 0 : 1].region}; /* UB, GM */
  IrRows r[2];
  if (!cw_rows(w, reg, r, 2) || !ir_expr_equal(r[0].rows, r[1].rows) || !ir_expr_equal(r[0].cols, r[1].cols)) {
    refuse_form(w, s, "copy a plane at a time", "the two sides are not rows of one shape");
    return;
  }
  const IrBuf *ub = reg[0]->buf;
  int64_t width = ub->rank ? ub->shape[ub->rank - 1]->i : 1;
  if (ir_is_int(r[0].rows, 1) && r[0].cols->op == EX_INT && ub->rank > 1 && r[0].cols->i % width == 0 &&
      r[0].cols->i > width && width % dtype_c0(ub->type) == 0) { /* whole rows in one run: shown as rows */
    for (int i = 0; i < 2; i++)
      r[i] = (IrRows){r[i].off, cw_num(w, r[0].cols->i / width), cw_num(w, width), cw_num(w, width)};
  }
  const IrExpr *run = r[0].cols;
  if (ir_is_int(r[0].rows, 1) && run->op == EX_MUL && ir_is_int(run->arg[1], width) && width % dtype_c0(ub->type) == 0)
    for (int i = 0; i < 2; i++) r[i] = (IrRows){r[i].off, run->arg[0], cw_num(w, width), cw_num(w, width)};
  if (ir_attr(s, ATTR_PAD) && (r[0].cols->op != EX_INT || r[0].cols->i * dtype_size(ub->type) % 32)) {
    refuse_form(w, s, "make the row length a multiple of 32 bytes, or use target ascendc",
                "a row ends inside a block of 32 bytes, and TLOAD cannot fill the rest with a chosen value");
    return;
  }
  cw_scope(w);
  r[0].rows = r[1].rows = cw_bind(w, r[0].rows, "rows");
  IrExpr *cols = cw_bind(w, r[0].cols, "cols");
  for (int i = 0; i < 2; i++) {
    if (ir_expr_equal(r[i].pitch, r[0].cols) || ir_is_int(r[i].rows, 1)) r[i].pitch = cols;
    r[i].cols = cols;
  }
  bool guarded = open_guard(w, r[0].rows, cols), one = ir_is_int(r[0].rows, 1);
  const char *gm = gm_tile(w, reg[1]->buf, &r[1]);
  const char *t = vec_tile(w, ub, r[0].off, r[0].rows, cols, one || r[0].pitch->op != EX_INT ? 0 : r[0].pitch->i);
  if (in) cw_line(w, "%s(%s, %s);", sp->tile_api, t, gm);
  else if (!ir_attr(s, ATTR_ATOMIC)) cw_line(w, "%s(%s, %s);", sp->tile_api, gm, t);
  else cw_line(w, "%s<decltype(%s), decltype(%s), AtomicType::AtomicAdd>(%s, %s);", sp->tile_api, t, gm, gm, t);
  if (guarded) cw_close(w);
  cw_close(w);
}

static void gm_to_ub(CWriter *w, const IrStmt *s, const Spelling *sp) { gm_ub(w, s, sp, true); }
static void ub_to_gm(CWriter *w, const IrStmt *s, const Spelling *sp) { gm_ub(w, s, sp, false); }

static bool fractal_box(CWriter *w, const IrStmt *s, const IrRegion *r, CBox *b) {
  if (cw_box(w, r, b)) return true;
  refuse_form(w, s, "take one plane of the buffer at a time", "more than two dimensions of a fractal tile");
  return false;
}

static IrExpr *nz_offset(CWriter *w, const IrBuf *buf, const CBox *b) {
  int64_t c0 = buf->space == SPACE_L0C ? 16 : dtype_c0(buf->type);
  return cw_op(w, EX_ADD, b->plane, cw_op(w, EX_ADD, cw_mul(w, b->c, b->plane_rows), cw_mul(w, b->r, c0)));
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
  if ((b.r->op != EX_INT || b.c->op != EX_INT)) {
    refuse_form(w, s, "load the tile from its first row and column",
                "the place inside the L1 tile is known only at run time");
    return;
  }
  cw_scope(w);
  bool whole_rows = ir_is_int(g.rows, 1);
  IrExpr *rows = cw_bind(w, b.rows, "rows"), *cols = cw_bind(w, b.cols, "cols");
  bool guarded = open_guard(w, rows, cols);
  g.rows = rows;
  g.cols = cols;
  if (whole_rows) g.pitch = cols;
  const char *gm = gm_tile(w, src->buf, &g);
  View v = {.buf = dst->buf, .kind = MAT, .rows = b.plane_rows, .cols = b.plane_cols - b.c->i};
  cw_line(w, "%s(%s, %s);", sp->tile_api, tile(w, v, nz_offset(w, dst->buf, &b), rows, cols), gm);
  if (guarded) cw_close(w);
  cw_close(w);
}

static const char *whole_mat(CWriter *w, const IrBuf *buf, const CBox *b, bool trans) {
  int64_t r = b->plane_rows, c = b->plane_cols;
  View v = {.buf = buf, .kind = trans ? MAT_TRANS : MAT, .rows = trans ? c : r, .cols = trans ? r : c};
  return tile(w, v, b->plane, cw_num(w, v.rows), cw_num(w, v.cols));
}

static void l1_fill(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *dst = &s->args[1].region;
  CBox b;
  if (!fractal_box(w, s, dst, &b)) return;
  int n = dst->buf->rank;
  if (!ir_is_int(b.r, 0) || !ir_is_int(b.c, 0) || !ir_expr_equal(b.rows, dst->buf->shape[n - 2]) ||
      !ir_expr_equal(b.cols, dst->buf->shape[n - 1])) {
    refuse_form(w, s, "fill the whole tile", "TEXPANDS fills whole L1 tiles only");
    return;
  }
  bool scope = b.plane->op != EX_INT;
  if (scope) cw_scope(w);
  const char *t = whole_mat(w, dst->buf, &b, false);
  cw_line(w, "%s(%s, %s);", sp->scalar_api, t, cw_scalar(w, s->args[0].scalar, dst->buf->type));
  if (scope) cw_close(w);
}

/* ---- cube ------------------------------------------------------------------------------------------------------- */

/* The tile of an L0 operand: exactly the extents that are used, in whole fractals. */
static const char *l0_tile(CWriter *w, const IrStmt *s, const IrRegion *r, const CBox *b) {
  if (!ir_is_int(b->r, 0) || !ir_is_int(b->c, 0) || b->rows->op != EX_INT || b->cols->op != EX_INT) {
    refuse_form(w, s, "use whole L0 tiles",
                "the extents of an L0 tile are known only at run time, or it starts inside one");
    return NULL;
  }
  int64_t c0 = dtype_c0(r->buf->type);
  bool left = r->buf->space == SPACE_L0A;
  View v = {.buf = r->buf, .kind = left ? LEFT : RIGHT};
  v.rows = round_up(b->rows->i, left ? 16 : c0);
  v.cols = round_up(b->cols->i, left ? c0 : 16);
  return tile(w, v, b->plane, b->rows, b->cols);
}

static void l1_to_l0(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  bool trans = ir_attr(s, ATTR_TRANS) != NULL;
  CBox a, b;
  if (!fractal_box(w, s, src, &a) || !fractal_box(w, s, dst, &b)) return;
  bool scope = a.plane->op != EX_INT || b.plane->op != EX_INT;
  if (scope) cw_scope(w);
  const char *to = l0_tile(w, s, dst, &b);
  if (to)
    cw_line(w, "%s(%s, %s, %s, %s);", sp->tile_api, to, whole_mat(w, src->buf, &a, trans), cw_str(w, trans ? a.c : a.r),
            cw_str(w, trans ? a.r : a.c));
  if (scope) cw_close(w);
}

static const char *acc_tile(CWriter *w, const IrRegion *r, const CBox *b, IrExpr *m, IrExpr *n) {
  View v = {.buf = r->buf, .kind = ACC, .rows = b->plane_rows, .cols = b->plane_cols};
  return tile(w, v, nz_offset(w, r->buf, b), m, n);
}

static void mmad(CWriter *w, const IrStmt *s, const Spelling *sp) {
  const IrRegion *A = &s->args[0].region, *B = &s->args[1].region, *C = &s->args[2].region;
  CBox a, b, c;
  if (!fractal_box(w, s, A, &a) || !fractal_box(w, s, B, &b) || !fractal_box(w, s, C, &c)) return;
  if (!ir_is_int(c.r, 0) || !ir_is_int(c.c, 0)) {
    refuse_form(w, s, "accumulate into a whole tile", "the accumulator starts inside a tile");
    return;
  }
  if (a.rows->op == EX_INT && round_up(a.rows->i, 16) != c.plane_rows && c.plane_cols > 16) {
    refuse_form(w, s, "accumulate into a tile of exactly m rows", "it writes only some rows of the accumulator");
    return;
  }
  bool scope = a.plane->op != EX_INT || b.plane->op != EX_INT || c.plane->op != EX_INT;
  if (scope) cw_scope(w);
  const char *at = l0_tile(w, s, A, &a), *bt = at ? l0_tile(w, s, B, &b) : NULL;
  if (at && bt) {
    const char *ct = acc_tile(w, C, &c, a.rows, b.cols);
    const char *first = fmt(w, "%s(%s, %s, %s);", sp->tile_api, ct, at, bt);
    const char *more = fmt(w, "%s_ACC(%s, %s, %s, %s);", sp->tile_api, ct, ct, at, bt);
    IrExpr *init = ir_attr(s, ATTR_INIT);
    if (init) init = ir_cast(w->k, DT_BOOL, init);
    if (init && init->op != EX_INT) {
      cw_open(w, "if (%s)", cw_str(w, init));
      cw_line(w, "%s", first);
      w->indent--;
      cw_line(w, "} else {");
      w->indent++;
      cw_line(w, "%s", more);
      cw_close(w);
    } else {
      cw_line(w, "%s", init && init->i ? first : more);
    }
  }
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
  if (!ir_is_int(b.r, 0) || !ir_is_int(b.c, 0)) {
    refuse_form(w, s, "write the accumulator from its first row and column",
                "the window starts inside the accumulator");
    return;
  }
  cw_scope(w);
  bool whole_rows = ir_is_int(g.rows, 1);
  IrExpr *m = cw_bind(w, b.rows, "m"), *n = cw_bind(w, b.cols, "n");
  bool guarded = open_guard(w, m, n);
  g.rows = m;
  g.cols = n;
  if (whole_rows) g.pitch = n;
  const char *gm = gm_tile(w, dst->buf, &g), *t = acc_tile(w, src, &b, m, n);
  const char *atomic = ir_attr(s, ATTR_ATOMIC) ? "AtomicType::AtomicAdd" : "AtomicType::AtomicNone";
  if (ir_attr(s, ATTR_RELU))
    cw_line(w, "%s<decltype(%s), decltype(%s), %s, ReluPreMode::NormalRelu>(%s, %s);", sp->tile_api, t, gm, atomic, gm,
            t);
  else if (ir_attr(s, ATTR_ATOMIC))
    cw_line(w, "%s<decltype(%s), decltype(%s), %s>(%s, %s);", sp->tile_api, t, gm, atomic, gm, t);
  else cw_line(w, "%s(%s, %s);", sp->tile_api, gm, t);
  if (guarded) cw_close(w);
  cw_close(w);
}

static const Spelling spelling[OP_COUNT] = {
#define none NULL
#define PT(id, writer, tile_api, scalar_api, row_api, col_api)                                                         \
  [OP_##id] = {writer, tile_api, scalar_api, row_api, col_api},
#include "ops_pto.def"
#undef PT
#undef none
};

enum { /* an op without a line in ops_pto.def does not compile */
#define PT(id, writer, tile_api, scalar_api, row_api, col_api) HAS_##id = 1,
#include "ops_pto.def"
#undef PT
#define OP(id, name, level, pipe, in, out, dtypes, spaces, attrs, cost, doc) CHECKED_##id = HAS_##id,
#include "../../ir/ops.def"
#undef OP
};

/* ---- scalars in memory ------------------------------------------------------------------------------------------ */

static const char *scalar_place(CWriter *w, const IrBuf *b) {
  if (b->space == SPACE_GM) return w->buf_name[b->id];
  if (b->space == SPACE_UB) {
    int64_t elements = round_up(ir_buf_bytes(b), 32) / dtype_size(b->type);
    View v = {.buf = b, .kind = VEC_ROWS, .rows = 1, .cols = elements};
    return tile(w, v, cw_num(w, 0), cw_num(w, 1), cw_num(w, elements));
  }
  cw_refuse(w, DIAG_EMIT_SCALAR, "copy the tile to GM or UB first", "the scalar unit cannot reach %s, which is in %s",
            b->name, space_info[b->space].name);
  return b->name;
}

static void load(CWriter *w, Text *t, const IrExpr *e) {
  const char *off = cw_str(w, cw_offset(w, e->buf, e->idx)), *place = scalar_place(w, e->buf);
  if (e->buf->space == SPACE_GM) text_printf(t, "%s[%s]", place, off);
  else text_printf(t, "%s.GetValue(%s)", place, off);
}

static void flush(CWriter *w, const IrBuf *b, IrExpr *off) {
  cw_line(w, "dcci((__gm__ void *)(%s + %s), cache_line_t::SINGLE_CACHE_LINE);", w->buf_name[b->id], cw_atom(w, off));
}

static void flush_load(IrExpr *e, void *user) {
  CWriter *w = user;
  Own *own = w->own;
  if (e->op == EX_LOAD && e->buf->space == SPACE_GM && own->gm_written[e->buf->id])
    flush(w, e->buf, cw_offset(w, e->buf, e->idx));
}

static void flush_root(IrExpr **e, void *user) {
  if (*e) ir_walk_expr(*e, flush_load, user);
}

static void before(CWriter *w, const IrStmt *s) { ir_stmt_exprs((IrStmt *)s, flush_root, w); }

static void store(CWriter *w, const IrStmt *s) {
  const IrBuf *b = s->store.buf;
  IrExpr *off = cw_offset(w, b, s->store.idx), *value = ir_cast(w->k, b->type, s->store.value);
  const char *place = scalar_place(w, b);
  if (s->store.accumulate) {
    if (b->space == SPACE_GM) flush(w, b, off);
    value = cw_op(w, EX_ADD, ir_load(w->k, (IrBuf *)b, s->store.idx), value);
  }
  if (b->space == SPACE_GM) {
    cw_line(w, "%s[%s] = %s;", place, cw_str(w, off), cw_scalar(w, value, b->type));
    flush(w, b, off);
  } else {
    cw_line(w, "%s.SetValue(%s, %s);", place, cw_str(w, off), cw_scalar(w, value, b->type));
  }
}

/* ---- synchronisation -------------------------------------------------------------------------------------------- */

static const char *event(CWriter *w, const IrExpr *id) {
  if (id->op == EX_INT && id->i >= 0 && id->i < 8) return fmt(w, "EVENT_ID%lld", (long long)id->i);
  return fmt(w, "(event_t)%s", cw_atom(w, id));
}

static bool is_sync_all(const IrStmt *s, void *user) {
  (void)user;
  return s->op == ST_SYNC_ALL;
}

static bool syncs_cube(const IrStmt *s, void *user) {
  return s->op == ST_CUBE && cw_scans(&s->body, is_sync_all, user);
}
static bool syncs_vector(const IrStmt *s, void *user) {
  return s->op == ST_VECTOR && cw_scans(&s->body, is_sync_all, user);
}

/* Which cores meet. */
static const char *sync_cores(CWriter *w) {
  bool cube = cw_scans(&w->k->body, syncs_cube, NULL), vector = cw_scans(&w->k->body, syncs_vector, NULL);
  return cube && vector ? "Mix" : cube ? "AICOnly" : "AIVOnly";
}

static void sync_stmt(CWriter *w, const IrStmt *s) {
  switch (s->op) {
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
    cw_line(w, "%s(%s, %s, %s);", s->op == ST_SET_FLAG ? "set_flag" : "wait_flag", pipe_info[s->sync.src].cxx,
            pipe_info[s->sync.dst].cxx, event(w, s->sync.id));
    break;
  case ST_BARRIER:
    if (s->sync.src == PIPE_S)
      cw_refuse(w, DIAG_EMIT_SYNC, "leave it out: the scalar pipe runs in order", "barrier s does not exist");
    else cw_line(w, "pipe_barrier(%s);", pipe_info[s->sync.src].cxx);
    break;
  case ST_CROSS_SET: /* bit 0: set; mode from bit 4, flag from bit 8 */
    cw_line(w, "ffts_cross_core_sync(%s, 1 | %d << 4 | %s << 8);", pipe_info[s->sync.src].cxx, s->sync.mode,
            cw_atom(w, s->sync.id));
    break;
  case ST_CROSS_WAIT: cw_line(w, "wait_flag_dev(%s);", cw_str(w, s->sync.id)); break;
  case ST_SYNC_ALL: cw_line(w, "SYNCALL<SyncCoreType::%s>();", sync_cores(w)); break;
  default: break;
  }
}

/* A side: its body first, so that the tiles it turned out to need can be declared above it. */
static void write_side(CWriter *w, const IrStmt *s) {
  Own *own = w->own;
  bool cube = s->op == ST_CUBE;
  const char *core = cube ? "CUBE" : "VEC";
  Text outer = w->out;
  text_init(&w->out, w->arena);
  own->views.len = 0;
  w->indent++;
  cw_block(w, &s->body);
  w->indent--;
  const char *body = text_str(&w->out);
  w->out = outer;
  text_printf(&w->out, "#if defined(__DAV_%s__) || defined(__DAV_%s_%s__)\n", core, is_a5(w) ? "C310" : "C220", core);
  cw_scope(w);
  if (!cube) {
    cw_line(w, "set_mask_norm();");
    cw_line(w, "set_vector_mask(-1, -1);");
  }
  for (uint32_t i = 0; i < own->views.len; i++) {
    const View *v = &own->views.data[i];
    cw_line(w, "%s %s;", tile_type(w, v), v->name);
    cw_line(w, "TASSIGN<%lld>(%s);", (long long)v->addr, v->name);
  }
  text_put(&w->out, "\n");
  text_put(&w->out, body);
  cw_close(w);
  text_put(&w->out, "#endif\n");
}

static void stmt(CWriter *w, const IrStmt *s) {
  if (s->op == ST_CUBE || s->op == ST_VECTOR) {
    write_side(w, s);
  } else if (ir_is_op(s) && spelling[s->op].write) {
    spelling[s->op].write(w, s, &spelling[s->op]);
  } else if (ir_is_op(s) || s->op == ST_PARALLEL) {
    cw_refuse(w, DIAG_EMIT_LEVEL, "run the passes first", "%s exists at source level only",
              s->op == ST_PARALLEL ? "parallel" : op_name(s));
  } else {
    sync_stmt(w, s);
  }
}

/* ---- the kernel around the statements --------------------------------------------------------------------------- */

static bool is_cross(const IrStmt *s, void *user) {
  (void)user;
  return s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT || s->op == ST_SYNC_ALL;
}

static bool find_writes(const IrStmt *s, void *user) {
  bool *written = user;
  if (s->op == ST_STORE) written[s->store.buf->id] = true;
  if (ir_is_op(s))
    for (int i = ir_n_in(s->op); i < s->n_args; i++)
      if (s->args[i].kind == ARG_REGION) written[s->args[i].region.buf->id] = true;
  return false;
}

static const char *scalar_type(const CParam *p) {
  if (p->is_size) return "int64_t";
  DType t = p->p->var->type;
  return dtype_is_float(t) ? "float" : t == DT_BOOL ? "uint8_t" : cw_type(t);
}

static const char *param_name(CWriter *w, const CParam *p) {
  if (p->p->buf) return fmt(w, "%s_gm", w->buf_name[p->p->buf->id]);
  DType t = p->p->var->type;
  bool converted = !p->is_size && (t == DT_F16 || t == DT_BF16 || t == DT_BOOL);
  return fmt(w, "%s%s", w->var_name[p->p->var->id], converted ? "_in" : "");
}

static void kernel_params(CWriter *w, const CParam *p, int n, const char *pointer, Text *t) {
  for (int i = 0; i < n; i++)
    text_printf(t, "%s%s%s", i ? ", " : "", p[i].p->buf ? pointer : fmt(w, "%s ", scalar_type(&p[i])),
                param_name(w, &p[i]));
}

static void kernel_head(CWriter *w, const CParam *p, int n) {
  IrKernel *k = w->k;
  Own *own = w->own;
  if (own->mix) cw_line(w, "set_ffts_base_addr(ffts_addr);");
  for (int i = 0; i < n; i++) {
    const IrBuf *b = p[i].p->buf;
    const char *name = param_name(w, &p[i]);
    if (b) {
      cw_line(w, "__gm__ %s *%s = (__gm__ %s *)%s;", dt(b->type), w->buf_name[b->id], dt(b->type), name);
    } else if (!p[i].is_size && strcmp(name, w->var_name[p[i].p->var->id])) {
      const IrVar *v = p[i].p->var;
      bool bf16 = v->type == DT_BF16;
      cw_line(w, "const %s %s = %s(%s);", cw_type(v->type), w->var_name[v->id],
              bf16 ? w->dialect->bf16_from_float : fmt(w, "(%s)", cw_type(v->type)), name);
    }
  }
  const char *block = cw_fresh(w, "block");
  if (k->grid.len) cw_line(w, "const int32_t %s = get_block_idx();", block);
  Text above;
  text_init(&above, w->arena);
  for (uint32_t i = 0; i < k->grid.len; i++) {
    const IrVar *v = k->grid.data[i];
    const char *ext = cw_atom(w, k->grid_ext.data[i]);
    bool last = i + 1 == k->grid.len;
    cw_line(w, "const %s %s = %s%s%s%s;", cw_type(v->type), w->var_name[v->id], block, text_str(&above),
            last ? "" : " % ", last ? "" : ext);
    text_printf(&above, " / %s", ext);
  }
  if (k->vid) cw_line(w, "const %s %s = get_subblockid();", cw_type(k->vid->type), w->var_name[k->vid->id]);
}

static void host_part(CWriter *w, Text *t, const CParam *p, int n) {
  Own *own = w->own;
  IrKernel *k = w->k;
  w->host = true;
  w->at = NULL;
  text_put(t, "\n#ifndef __CPU_SIM\n#include \"acl/acl.h\"\n");
  if (own->mix) text_put(t, "extern \"C\" int32_t rtGetC2cCtrlAddr(uint64_t *addr, uint32_t *len);\n");
  text_put(t, "\nextern \"C\" void call(");
  kernel_params(w, p, n, "uint8_t *", t);
  text_printf(t, "%saclrtStream stream)\n{\n  const int64_t blocks = ", n ? ", " : "");
  if (!k->grid.len) text_put(t, "1");
  for (uint32_t i = 0; i < k->grid.len; i++) {
    bool wide = cw_has_size(w, k->grid_ext.data[i]);
    text_printf(t, "%s%s%s", i ? " * " : "", wide || i || ir_is_const(k->grid_ext.data[i]) ? "" : "(int64_t)",
                k->grid.len > 1 ? cw_atom(w, k->grid_ext.data[i]) : cw_str(w, k->grid_ext.data[i]));
  }
  text_put(t, ";\n  if (blocks <= 0) {\n    return;\n  }\n");
  if (own->mix)
    text_put(t, "  uint64_t ffts = 0;\n  uint32_t ffts_bytes = 0;\n  rtGetC2cCtrlAddr(&ffts, &ffts_bytes);\n");
  text_printf(t, "  %s_kernel<<<(uint32_t)blocks, nullptr, stream>>>(", k->name);
  for (int i = 0; i < n; i++) text_printf(t, "%s%s", i ? ", " : "", param_name(w, &p[i]));
  if (own->mix) text_printf(t, "%sffts", n ? ", " : "");
  text_put(t, ");\n}\n#endif\n");
}

static const char *const reserved[] = {
#define PT(id, writer, tile_api, scalar_api, row_api, col_api) tile_api, scalar_api, row_api, col_api,
#include "ops_pto.def"
#undef PT
    "pto",          "Tile",          "TileLeft",
    "TileRight",    "TileAcc",       "TileType",
    "GlobalTensor", "Shape",         "Stride",
    "BLayout",      "SLayout",       "RoundMode",
    "AtomicType",   "ReluPreMode",   "TASSIGN",
    "TMATMUL_ACC",  "set_flag",      "wait_flag",
    "pipe_barrier", "get_block_idx", "get_subblockid",
    "dcci",         "ffts_addr",     "call",
    "stream",       "blocks",        "ffts",
    "ffts_bytes",   "ToBf16",        "FloatOfBf16",
    "AICORE",       "event_t",       NULL};

static const CDialect dialect = {.title = "PTO",
                                 .names = reserved,
                                 .func_prefix = "AICORE inline",
                                 .load = load,
                                 .store = store,
                                 .stmt = stmt,
                                 .before = before,
                                 .bf16_to_float = "FloatOfBf16",
                                 .bf16_from_float = "ToBf16"};

static bool emit(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, Text *out) {
  CWriter w;
  if (k->level != LEVEL_LOWERED) {
    diag_fix(d, diag_add(d, DIAG_EMIT_LEVEL, k->loc, "PTO: kernel %s has not been lowered", k->name),
             "run the passes first");
    return false;
  }
  cw_init(&w, a, d, k, arch, &dialect);
  Own *own = arena_new(a, Own);
  own->gm_written = arena_array(a, bool, k->bufs.len + 1);
  w.own = own;
  if (!cw_placed(&w)) return false;
  cw_scans(&k->body, find_writes, own->gm_written);
  own->mix = k->cores == CORES_MIX || cw_scans(&k->body, is_cross, NULL);
  CParam *p;
  int n = cw_params(&w, &p);
  Text head;
  text_init(&head, a);
  kernel_params(&w, p, n, "__gm__ uint8_t *", &head);
  if (own->mix) text_printf(&head, "%suint64_t ffts_addr", n ? ", " : "");
  cw_line(&w, "extern \"C\" __global__ AICORE void %s_kernel(%s)", k->name, text_str(&head));
  cw_scope(&w);
  kernel_head(&w, p, n);
  cw_block(&w, &k->body);
  cw_close(&w);
  for (int i = 0; i < HELP_COUNT - HELP_SHARED; i++)
    if (strstr(text_str(&w.out), fmt(&w, "%s(", own_helpers[i].name))) cw_use(&w, HELP_SHARED + i);
  cw_header(&w, out, "#include <cstdint>\n#include <pto/pto-inst.hpp>\nusing namespace pto;\n");
  cw_put_helpers(&w, out, own_helpers, (int)TL_COUNT(own_helpers));
  text_put(out, "\n");
  text_put(out, text_str(&w.out));
  host_part(&w, out, p, n);
  return !w.failed;
}

const Target target_pto = {"pto", emit};
