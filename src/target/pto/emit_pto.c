/* emit_pto.c - lowered IR to PTO C++ (tiles with static shapes at literal addresses).
 *
 * PTO describes operands by type: a Tile has its memory, element type, shape, layout and valid part in its template
 * arguments. A buffer that is always used in one way is one Tile under its own name. Where an instruction reads the
 * same bytes in another shape (one run instead of rows, a column of row results, a transposed matrix) another Tile
 * stands at the same address. Tiles at constant addresses are declared at the top with the checking form
 * TASSIGN<address>; tiles whose address or valid part is known only at run time are declared where they are used.
 *
 * What PTO cannot say is refused by name (`refused` in ops_pto.def, and refuse_form below). */
#include "pto.h"

#include <string.h>

static const PtSpelling spelling[OP_COUNT];

static const CHelper own_helpers[] = {
#define HELPER(id, name, text) {name, text},
#include "prelude_pto.def"
#undef HELPER
};

typedef struct {
  Vec(PtView) views;      /* of the side being written, at constant addresses */
  Vec(const char *) here; /* names of tiles declared in place by the statement `here_of` */
  const IrStmt *here_of;
} Own;

static const char *op_name(const IrStmt *s) { return op_info[s->op].name; }
bool pt_is_a5(const CWriter *w) { return !strcmp(w->arch->family, "a5"); }

void pt_refuse(CWriter *w, const IrStmt *s, const char *fix, const char *what) {
  cw_refuse(w, DIAG_EMIT_FORM, fix, "%s: %s", op_name(s), what);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static const char *tile_type(CWriter *w, const PtView *v) {
  const char *t = cw_element(w, v->buf->type);
  long long r = v->rows, c = v->cols, vr = v->valid_r, vc = v->valid_c;
  switch (v->kind) {
  case VEC_ROWS:
    return cw_fmt(w, "Tile<TileType::Vec, %s, %lld, %lld, BLayout::RowMajor, %lld, %lld%s%s>", t, r, c, vr, vc,
               v->pad ? ", SLayout::NoneBox, TileConfig::fractalABSize, " : "", v->pad ? v->pad : "");
  case VEC_COLUMN:
    return cw_fmt(w, "Tile<TileType::Vec, %s, %lld, %lld, BLayout::ColMajor, %lld, %lld>", t, r, c, vr, vc);
  case MAT:
    return cw_fmt(w, "Tile<TileType::Mat, %s, %lld, %lld, BLayout::ColMajor, %lld, %lld, SLayout::RowMajor>", t, r, c,
                  vr, vc);
  case MAT_TRANS:
    return cw_fmt(w, "Tile<TileType::Mat, %s, %lld, %lld, BLayout::RowMajor, %lld, %lld, SLayout::ColMajor>", t, r, c,
                  vr, vc);
  case LEFT: return cw_fmt(w, "TileLeft%s<%s, %lld, %lld, %lld, %lld>", vr < 0 ? "Compact" : "", t, r, c, vr, vc);
  case RIGHT: return cw_fmt(w, "TileRight%s<%s, %lld, %lld, %lld, %lld>", vr < 0 ? "Compact" : "", t, r, c, vr, vc);
  default: return cw_fmt(w, "TileAcc<%s, %lld, %lld, %lld, %lld>", t, r, c, vr, vc);
  }
}

static bool view_name_taken(const Own *own, const char *name) {
  for (uint32_t i = 0; i < own->views.len; i++)
    if (!strcmp(own->views.data[i].name, name)) return true;
  return false;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* The name of a Tile with these properties; written down once a side, declared at its top. */
static const char *constant_tile(CWriter *w, PtView v) {
  Own *own = w->own;
  for (uint32_t i = 0; i < own->views.len; i++) {
    const PtView *o = &own->views.data[i];
    if (o->buf->id == v.buf->id && o->buf->type == v.buf->type && o->kind == v.kind &&
        same_text(o->pad, v.pad) && o->rows == v.rows && o->cols == v.cols && o->valid_r == v.valid_r &&
        o->valid_c == v.valid_c && o->addr == v.addr)
      return o->name;
  }
  const char *base = w->buf_name[v.buf->id];
  v.name = base;
  for (int i = 1; view_name_taken(own, v.name); i++) v.name = cw_fresh(w, cw_numbered(w, base, i));
  vec_push(w->arena, &own->views, v);
  return v.name;
}

static const char *here_name(CWriter *w, const IrBuf *b) {
  Own *own = w->own;
  if (own->here_of != w->at) own->here.len = 0;
  own->here_of = w->at;
  const char *base = cw_fresh(w, cw_fmt(w, "%s_here", w->buf_name[b->id])), *name = base;
  for (int n = 1;; n++) {
    bool taken = false;
    for (uint32_t i = 0; i < own->here.len; i++) taken |= !strcmp(own->here.data[i], name);
    if (!taken) break;
    name = cw_numbered(w, base, n);
  }
  vec_push(w->arena, &own->here, name);
  return name;
}

/* TASSIGN<address> wants the whole Tile in the memory, from a multiple of 32 bytes. */
static bool can_check(const CWriter *w, const PtView *v) {
  return v->addr % 32 == 0 &&
         v->addr + v->rows * v->cols * dtype_size(v->buf->type) <= w->arch->space[v->buf->space].physical;
}

const char *pt_tile(CWriter *w, PtView v, IrExpr *off, IrExpr *rows, IrExpr *cols) {
  v.valid_r = rows->op == EX_INT ? rows->i : -1;
  v.valid_c = cols->op == EX_INT ? cols->i : -1;
  int64_t size = dtype_size(v.buf->type);
  v.addr = off->op == EX_INT ? v.buf->addr + off->i * size : -1;
  bool dynamic = v.valid_r < 0 || v.valid_c < 0;
  if (!dynamic && v.addr >= 0 && can_check(w, &v)) return constant_tile(w, v);
  const char *name = here_name(w, v.buf);
  Text valid;
  text_init(&valid, w->arena);
  if (dynamic) {
    v.valid_r = v.valid_c = -1;
    text_printf(&valid, "(%s, %s)", cw_str(w, rows), cw_str(w, cols));
  }
  cw_line(w, "%s %s%s;", tile_type(w, &v), name, text_str(&valid));
  if (v.addr >= 0 && can_check(w, &v)) cw_line(w, "TASSIGN<%lld>(%s);", (long long)v.addr, name);
  else cw_line(w, "TASSIGN(%s, %s);", name, cw_str(w, cw_op(w, EX_ADD, cw_mul(w, off, size), cw_num(w, v.buf->addr))));
  return name;
}

static IrExpr *most(CWriter *w, IrExpr *e, int64_t otherwise) { /* a constant bound */
  if (e->op == EX_INT) return e;
  int64_t hi = ir_range(w->k, e).hi;
  return cw_num(w, hi < otherwise ? max_i64(hi, 1) : otherwise);
}

/* Rows of UB. One run is a single row, padded to whole blocks. */
static PtView rows_view(CWriter *w, const IrBuf *b, IrExpr *rows, IrExpr *cols, int64_t pitch) {
  int64_t elements = ir_buf_bytes(b) / dtype_size(b->type);
  PtView v = {.buf = b, .kind = VEC_ROWS};
  v.cols = pitch ? pitch : round_up(most(w, cols, elements)->i, dtype_c0(b->type));
  v.rows = most(w, rows, max_i64(elements / max_i64(v.cols, 1), 1))->i;
  return v;
}

const char *pt_rows(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *rows, IrExpr *cols, int64_t pitch) {
  return pt_tile(w, rows_view(w, b, rows, cols, pitch), off, rows, cols);
}

const char *pt_run_at(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *n, int64_t most_n, DType t) {
  IrBuf *as = (IrBuf *)b;
  if (t != b->type) { /* the same bytes as elements of t */
    as = arena_new(w->arena, IrBuf);
    *as = *b;
    as->type = t;
    off = cw_op(w, EX_FDIV, cw_mul(w, off, dtype_size(b->type)), cw_num(w, dtype_size(t)));
  }
  PtView v = {.buf = as, .kind = VEC_ROWS, .rows = 1, .cols = round_up(max_i64(most_n, 1), dtype_c0(t))};
  return pt_tile(w, v, off, cw_num(w, 1), n);
}

IrExpr *pt_run_offset(CWriter *w, const IrStmt *s, int arg) {
  IrRows rows;
  return ir_rows(w->k, &s->args[arg].region, &rows) ? rows.off : cw_num(w, 0); /* the verifier has seen to it */
}

const char *pt_run(CWriter *w, const IrStmt *s, int arg, IrExpr *n, DType t) {
  const IrRegion *r = &s->args[arg].region;
  int size = dtype_size(r->buf->type);
  if (!n) n = cw_op(w, EX_FDIV, cw_mul(w, ir_count(w->k, r), size), cw_num(w, dtype_size(t)));
  return pt_run_at(w, r->buf, pt_run_offset(w, s, arg), n, most(w, n, ir_buf_bytes(r->buf) / dtype_size(t))->i, t);
}

const char *pt_helper(CWriter *w, int id) {
  cw_use(w, id);
  return own_helpers[id - HELP_SHARED].name;
}

const char *pt_ub(CWriter *w, const char *tile, DType t) {
  return cw_fmt(w, "%s<%s>(%s)", pt_helper(w, PT_UB), cw_element(w, t), tile);
}

bool pt_has_intrinsics(CWriter *w, const IrStmt *s) {
  if (!pt_is_a5(w)) return true;
  cw_refuse(w, DIAG_EMIT_OP, "operands of one shape and constant size, or a chip of A2 or A3",
            "%s: on the 950 no instruction takes operands of this form", op_name(s));
  return false;
}

/* A GM window: declares a GlobalTensor and returns its name. */
static const char *gm_tile(CWriter *w, const IrBuf *b, const IrRows *r) {
  bool fixed = r->rows->op == EX_INT && r->cols->op == EX_INT, near = r->pitch->op == EX_INT;
  const char *name = cw_fresh(w, cw_fmt(w, "%s_window", w->buf_name[b->id]));
  Text args;
  text_init(&args, w->arena);
  text_put(&args, w->buf_name[b->id]);
  if (!ir_is_int(r->off, 0)) text_printf(&args, " + %s", cw_atom(w, r->off));
  const char *shape =
      fixed ? cw_fmt(w, "Shape<1, 1, 1, %s, %s>", cw_str(w, r->rows), cw_str(w, r->cols)) : "Shape<1, 1, 1, -1, -1>";
  const char *stride = near ? cw_fmt(w, "Stride<1, 1, 1, %s, 1>", cw_str(w, r->pitch)) : "Stride<1, 1, 1, -1, 1>";
  if (!fixed || !near)
    text_printf(&args, ", %s",
                fixed ? cw_fmt(w, "%s()", shape)
                      : cw_fmt(w, "%s(%s, %s)", shape, cw_str(w, r->rows), cw_str(w, r->cols)));
  if (!near) text_printf(&args, ", %s(%s)", stride, cw_str(w, r->pitch));
  cw_line(w, "GlobalTensor<%s, %s, %s> %s(%s);", cw_element(w, b->type), shape, stride, name, text_str(&args));
  return name;
}

bool pt_guard(CWriter *w, IrExpr *rows, IrExpr *cols) {
  IrExpr *g = cw_guard(w, rows, cols);
  if (g) cw_open(w, "if (%s)", cw_str(w, g));
  return g != NULL;
}

/* ---- vector instructions ---------------------------------------------------------------------------------------- */

bool pt_read(CWriter *w, const IrStmt *s, IrVec *v) {
  if (ir_vec(w->k, s, v)) return true;
  pt_refuse(w, s, "make all operands one contiguous run, or rows of equal shape",
              "its operands are neither one run nor rows");
  return false;
}

bool pt_check_dtype(CWriter *w, const IrStmt *s) {
  DTypeRule rule = op_info[s->op].dtypes;
  int data = rule == RULE_CMP ? 0 : s->n_args - 1; /* not the mask, not the indices */
  DType t = s->args[data].region.buf->type;
  if (arch_has_dtype(w->arch, rule, t)) return true;
  cw_refuse(w, DIAG_EMIT_DTYPE, "convert the tile with cast first", "%s has no %s of %s", w->arch->name, op_name(s),
            dtype_info[t].name);
  return false;
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

static bool begin(CWriter *w, const IrStmt *s, PtCall *c) {
  c->s = s;
  if (!pt_read(w, s, &c->v)) return false;
  unfold(w, s, &c->v);
  c->scope = cw_needs_name(c->v.rows) || cw_needs_name(c->v.cols);
  for (int i = 0; i < s->n_args; i++)
    if (c->v.arg[i].off && c->v.arg[i].off->op != EX_INT) c->scope = true;
  if (c->v.rows->op != EX_INT || c->v.cols->op != EX_INT) c->scope = true;
  if (c->scope) cw_scope(w);
  c->v.rows = cw_bind(w, c->v.rows, "rows");
  c->v.cols = cw_bind(w, c->v.cols, "n");
  c->guarded = pt_guard(w, c->v.rows, c->v.cols);
  return true;
}

static void end(CWriter *w, const PtCall *c) {
  if (c->guarded) cw_close(w);
  if (c->scope) cw_close(w);
}

static const char *operand(CWriter *w, const PtCall *c, int i) {
  const IrBuf *b = c->s->args[i].region.buf;
  bool one_row = !ir_is_int(c->v.rows, 1) && c->v.arg[i].pitch == 0;
  IrExpr *rows = one_row ? cw_num(w, 1) : c->v.rows;
  if (c->v.arg[i].block) return pt_rows(w, b, c->v.arg[i].off, rows, cw_num(w, dtype_c0(b->type)), c->v.arg[i].pitch);
  return pt_rows(w, b, c->v.arg[i].off, rows, c->v.cols, one_row || ir_is_int(c->v.rows, 1) ? 0 : c->v.arg[i].pitch);
}

static const char *scalar_of(CWriter *w, const IrStmt *s, int i) {
  IrExpr *e = s->args[i].scalar;
  if (s->op == OP_DIV) e = ir_binary(w->k, EX_DIV, ir_float(w->k, DT_F32, 1.0), ir_cast(w->k, DT_F32, e));
  return cw_scalar(w, e, s->args[s->n_args - 1].region.buf->type);
}

/* TMOV copies whole blocks of 32 bytes and TEXPANDS pairs of bytes: rows that end elsewhere go another way. */
static bool ends_inside(CWriter *w, const PtCall *c) {
  const IrStmt *s = c->s;
  int size = dtype_size(s->args[s->n_args - 1].region.buf->type), unit = s->op == OP_MOVE ? 32 : 2;
  if (pt_is_a5(w) || (s->op != OP_MOVE && s->op != OP_FILL)) return false;
  if (s->op == OP_FILL && size > 1) return size == 8;
  return c->v.cols->op != EX_INT || c->v.cols->i * size % unit != 0;
}

static bool repeats(const PtCall *c, int i) {
  return c->v.arg[i].off && (c->v.arg[i].block || (!ir_is_int(c->v.rows, 1) && c->v.arg[i].pitch == 0));
}

static void elem(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  PtCall c;
  int out = s->n_args - 1, in[IR_VEC_ARGS] = {0, 1, 2};
  bool bytes = s->op == OP_MOVE || s->op == OP_FILL || s->op == OP_CAST; /* any dtype */
  if ((!bytes && !pt_check_dtype(w, s)) || !begin(w, s, &c)) return;
  bool scalar = s->args[out - 1].kind == ARG_SCALAR;
  bool swaps = s->op == OP_ADD || s->op == OP_MUL || s->op == OP_MAX || s->op == OP_MIN;
  if (swaps && !scalar && repeats(&c, 0) && !repeats(&c, 1)) in[0] = 1, in[1] = 0; /* what repeats comes second */
  int last = in[out - 1];
  bool by_row = !scalar && c.v.arg[last].block, by_col = !scalar && !by_row && repeats(&c, last);
  const char *api = scalar ? sp->scalar_api : by_row ? sp->row_api : by_col ? sp->col_api : sp->tile_api;
  bool odd = false; /* a repeated operand where the instruction takes none, or rows TMOV finds too different */
  if (s->op == OP_MOVE && !pt_is_a5(w) && !by_row && !by_col) odd = c.v.arg[0].pitch != c.v.arg[1].pitch;
  for (int i = 0; i < out - 1; i++) odd |= repeats(&c, in[i]);
  if (ends_inside(w, &c)) {
    pt_piece(w, &c, sp);
  } else if (scalar && !*api) {
    pt_refuse(w, s, "fill a tile with the scalar first", "there is no instruction with a scalar operand");
  } else if (!*api || odd) {
    if (!pt_is_a5(w) || !repeats(&c, 0) || !pt_spread(w, &c, sp))
      pt_rows_call(w, &c, sp, scalar ? scalar_of(w, s, last) : "");
  } else {
    Text t;
    text_init(&t, w->arena);
    text_put(&t, operand(w, &c, out));
    for (int i = 0; i < out; i++)
      text_printf(&t, ", %s", s->args[in[i]].kind == ARG_SCALAR ? scalar_of(w, s, in[i]) : operand(w, &c, in[i]));
    cw_line(w, "%s(%s);", api, text_str(&t));
  }
  end(w, &c);
}

static void cast(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  static const char *const mode_name[CAST_COUNT] = {
      [CAST_NONE] = "CAST_RINT",   [CAST_RINT] = "CAST_RINT",   [CAST_FLOOR] = "CAST_FLOOR", [CAST_CEIL] = "CAST_CEIL",
      [CAST_ROUND] = "CAST_ROUND", [CAST_TRUNC] = "CAST_TRUNC", [CAST_ODD] = "CAST_ODD"};
  PtCall c;
  DType src = s->args[0].region.buf->type, dst = s->args[1].region.buf->type;
  bool same = src == dst && ir_attr_int(s, ATTR_MODE, CAST_NONE) == CAST_NONE;
  if (same) {
    elem(w, s, &spelling[OP_MOVE]);
    return;
  }
  if (!begin(w, s, &c)) return;
  const char *to = operand(w, &c, 1), *from = operand(w, &c, 0);
  cw_line(w, "%s(%s, %s, RoundMode::%s);", sp->tile_api, to, from, mode_name[ir_attr_int(s, ATTR_MODE, CAST_NONE)]);
  end(w, &c);
}

/* ---- moves between GM and the cores ----------------------------------------------------------------------------- */

/* The PadValue of a constant; NULL: none. */
static const char *pad_value(CWriter *w, const IrExpr *e) {
  if ((e->op == EX_INT && e->i == 0) || (e->op == EX_FLOAT && e->f == 0)) return "PadValue::Zero";
  if (dtype_size(e->type) > 4) return NULL;
  if (e->op == EX_FLOAT && e->type == DT_BF16) /* there is no constant of this dtype: its bits */
    return cw_fmt(w, "PadValueCustom16(0x%llx)", (unsigned long long)cw_repeated(w, (IrExpr *)e, DT_U16)->i);
  if (e->op == EX_INT) return cw_fmt(w, "PadValueCustom((%s)%lld)", cw_element(w, e->type), (long long)e->i);
  return e->op == EX_FLOAT ? cw_fmt(w, "PadValueCustom(%s)", cw_str(w, e)) : NULL;
}

static void gm_ub(CWriter *w, const IrStmt *s, const PtSpelling *sp, bool in) {
  const IrRegion *reg[2] = {&s->args[in ? 1 : 0].region, &s->args[in ? 0 : 1].region}; /* UB, GM */
  IrRows r[2];
  if (!cw_rows(w, reg, r, 2) || !ir_expr_equal(r[0].rows, r[1].rows) || !ir_expr_equal(r[0].cols, r[1].cols)) {
    pt_refuse(w, s, "copy a plane at a time", "the two sides are not rows of one shape");
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
  const char *pad = NULL;
  if (ir_attr(s, ATTR_PAD) && (r[0].cols->op != EX_INT || r[0].cols->i * dtype_size(ub->type) % 32)) {
    pad = pad_value(w, ir_cast(w->k, ub->type, ir_attr(s, ATTR_PAD)));
    if (!pad) {
      pt_refuse(w, s, "pad with a constant, or use target ascendc",
                "a row ends inside a block of 32 bytes, and TLOAD fills the rest with constants only");
      return;
    }
  }
  cw_scope(w);
  r[0].rows = r[1].rows = cw_bind(w, r[0].rows, "rows");
  IrExpr *cols = cw_bind(w, r[0].cols, "cols");
  for (int i = 0; i < 2; i++) {
    if (ir_expr_equal(r[i].pitch, r[0].cols) || ir_is_int(r[i].rows, 1)) r[i].pitch = cols;
    r[i].cols = cols;
  }
  bool guarded = pt_guard(w, r[0].rows, cols), one = ir_is_int(r[0].rows, 1);
  const char *gm = gm_tile(w, reg[1]->buf, &r[1]);
  PtView v = rows_view(w, ub, r[0].rows, cols, one || r[0].pitch->op != EX_INT ? 0 : r[0].pitch->i);
  v.pad = pad;
  const char *t = pt_tile(w, v, r[0].off, r[0].rows, cols);
  if (in) cw_line(w, "%s(%s, %s);", sp->tile_api, t, gm);
  else if (!ir_attr(s, ATTR_ATOMIC)) cw_line(w, "%s(%s, %s);", sp->tile_api, gm, t);
  else cw_line(w, "%s<decltype(%s), decltype(%s), AtomicType::AtomicAdd>(%s, %s);", sp->tile_api, t, gm, gm, t);
  if (guarded) cw_close(w);
  cw_close(w);
}

static void gm_to_ub(CWriter *w, const IrStmt *s, const PtSpelling *sp) { gm_ub(w, s, sp, true); }
static void ub_to_gm(CWriter *w, const IrStmt *s, const PtSpelling *sp) { gm_ub(w, s, sp, false); }

static bool fractal_box(CWriter *w, const IrStmt *s, const IrRegion *r, CBox *b) {
  if (cw_box(w, r, b)) return true;
  pt_refuse(w, s, "take one plane of the buffer at a time", "more than two dimensions of a fractal tile");
  return false;
}

static void gm_to_l1(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  IrRows g;
  CBox b;
  if (!fractal_box(w, s, dst, &b)) return;
  if (!cw_gm_matrix(w, src, &g)) {
    pt_refuse(w, s, "copy a plane at a time", "the GM region is not the rows of one matrix");
    return;
  }
  cw_scope(w);
  bool whole_rows = ir_is_int(g.rows, 1);
  IrExpr *rows = cw_bind(w, b.rows, "rows"), *cols = cw_bind(w, b.cols, "cols");
  bool guarded = pt_guard(w, rows, cols);
  g.rows = rows;
  g.cols = cols;
  if (whole_rows) g.pitch = cols;
  const char *gm = gm_tile(w, src->buf, &g);
  PtView v = {.buf = dst->buf, .kind = MAT, .rows = b.plane_rows};
  v.cols = round_up(most(w, cols, b.plane_cols)->i, dtype_c0(dst->buf->type));
  cw_line(w, "%s(%s, %s);", sp->tile_api, pt_tile(w, v, cw_nz_offset(w, dst->buf, &b), rows, cols), gm);
  if (guarded) cw_close(w);
  cw_close(w);
}

static const char *whole_mat(CWriter *w, const IrBuf *buf, const CBox *b, bool trans) {
  int64_t r = b->plane_rows, c = b->plane_cols;
  PtView v = {.buf = buf, .kind = trans ? MAT_TRANS : MAT, .rows = trans ? c : r, .cols = trans ? r : c};
  return pt_tile(w, v, b->plane, cw_num(w, v.rows), cw_num(w, v.cols));
}

static void l1_fill(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *dst = &s->args[1].region;
  DType t = dst->buf->type;
  CBox b;
  if (!fractal_box(w, s, dst, &b)) return;
  int n = dst->buf->rank;
  if (ir_is_int(b.r, 0) && ir_is_int(b.c, 0) && ir_expr_equal(b.rows, dst->buf->shape[n - 2]) &&
      ir_expr_equal(b.cols, dst->buf->shape[n - 1])) {
    bool scope = b.plane->op != EX_INT;
    if (scope) cw_scope(w);
    const char *to = whole_mat(w, dst->buf, &b, false);
    cw_line(w, "%s(%s, %s);", sp->scalar_api, to, cw_scalar(w, s->args[0].scalar, t));
    if (scope) cw_close(w);
    return;
  }
  if (!pt_has_intrinsics(w, s)) return;
  int64_t c0 = dtype_c0(t);
  bool ends = b.cols->op == EX_INT && b.c->op == EX_INT && b.c->i + b.cols->i == dst->buf->shape[n - 1]->i;
  if (!ends && b.cols->op == EX_INT && b.cols->i % c0) {
    pt_refuse(w, s, "fill whole blocks of 32 bytes", "the box ends inside a block of 32 bytes");
    return;
  }
  cw_scope(w);
  IrExpr *rows = cw_bind(w, b.rows, "rows"), *cols = cw_bind(w, b.cols, "cols");
  bool guarded = pt_guard(w, rows, cols);
  PtView v = {.buf = dst->buf, .kind = MAT, .rows = b.plane_rows, .cols = c0};
  const char *at = pt_tile(w, v, cw_nz_offset(w, dst->buf, &b), cw_num(w, v.rows), cw_num(w, v.cols));
  cw_line(w, "%s((__cbuf__ uint32_t *)%s.data(), %s, %s, %s, %s);", pt_helper(w, PT_FILL_L1), at,
          cw_str(w, cw_ceil_div(w, cols, c0)), cw_str(w, rows),
          cw_str(w, cw_op(w, EX_SUB, cw_num(w, b.plane_rows), rows)),
          cw_str(w, cw_repeated(w, ir_cast(w->k, t, s->args[0].scalar), DT_U32)));
  if (guarded) cw_close(w);
  cw_close(w);
}

/* ---- cube ------------------------------------------------------------------------------------------------------- */

/* The tile of an L0 operand: exactly the extents that are used, in whole fractals. Extents known only at run time
 * stand in a compact tile, whose rows of fractals are as long as they are valid. */
static const char *l0_tile(CWriter *w, const IrStmt *s, const IrRegion *r, const CBox *b) {
  if (!ir_is_int(b->r, 0) || !ir_is_int(b->c, 0)) {
    pt_refuse(w, s, "use whole L0 tiles", "the box starts inside an L0 tile");
    return NULL;
  }
  int64_t c0 = dtype_c0(r->buf->type);
  bool left = r->buf->space == SPACE_L0A;
  PtView v = {.buf = r->buf, .kind = left ? LEFT : RIGHT};
  v.rows = round_up(most(w, b->rows, b->plane_rows)->i, left ? 16 : c0);
  v.cols = round_up(most(w, b->cols, b->plane_cols)->i, left ? c0 : 16);
  return pt_tile(w, v, b->plane, b->rows, b->cols);
}

static bool runs_late(const CBox *b) { return b->rows->op != EX_INT || b->cols->op != EX_INT; }

static void l1_to_l0(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  bool trans = ir_attr(s, ATTR_TRANS) != NULL;
  CBox a, b;
  if (!fractal_box(w, s, src, &a) || !fractal_box(w, s, dst, &b)) return;
  if (dtype_size(src->buf->type) == 1 && trans == (s->op == OP_L1_TO_L0A) && a.plane_rows % 32) {
    pt_refuse(w, s, "store the operand the other way round, [m, k] or [n, k]",
              "the transposing load of 8-bit elements works on squares of 32 x 32, and the tile is not made of them");
    return;
  }
  int64_t in_fractal;
  if (!ir_residue(a.r, 16, &in_fractal) || in_fractal) { /* the index of TEXTRACT counts fractals */
    a.plane = cw_op(w, EX_ADD, a.plane, cw_mul(w, a.r, dtype_c0(src->buf->type)));
    a.r = cw_num(w, 0);
  }
  bool scope = a.plane->op != EX_INT || b.plane->op != EX_INT || runs_late(&b);
  if (scope) cw_scope(w);
  b.rows = cw_bind(w, b.rows, "rows");
  b.cols = cw_bind(w, b.cols, "cols");
  bool guarded = pt_guard(w, b.rows, b.cols);
  const char *to = l0_tile(w, s, dst, &b);
  if (to)
    cw_line(w, "%s(%s, %s, %s, %s);", sp->tile_api, to, whole_mat(w, src->buf, &a, trans), cw_str(w, trans ? a.c : a.r),
            cw_str(w, trans ? a.r : a.c));
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

/* Rows and columns of an accumulator from anywhere in its plane: columns of fractals are as high as the plane. */
static const char *acc_tile(CWriter *w, const IrRegion *r, const CBox *b, IrExpr *m, IrExpr *n) {
  PtView v = {.buf = r->buf, .kind = ACC, .rows = b->plane_rows};
  v.cols = round_up(most(w, n, b->plane_cols)->i, 16);
  return pt_tile(w, v, cw_nz_offset(w, r->buf, b), m, n);
}

static void mmad(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *A = &s->args[0].region, *B = &s->args[1].region, *C = &s->args[2].region;
  CBox a, b, c;
  if (dtype_values(A->buf->type) > 1) {
    cw_refuse(w, DIAG_EMIT_DTYPE, "write Ascend C: target=\"ascendc\"", "mmad of int4: not written in PTO yet");
    return;
  }
  if (!fractal_box(w, s, A, &a) || !fractal_box(w, s, B, &b) || !fractal_box(w, s, C, &c)) return;
  /* The cube writes columns of fractals as high as m is; the tile has them as high as it is itself. */
  bool high = a.rows->op == EX_INT ? round_up(a.rows->i, 16) == c.plane_rows : c.plane_rows == 16;
  bool apart = !high && ir_range(w->k, b.cols).hi > 16;
  if (apart && !pt_has_intrinsics(w, s)) return;
  bool scope = a.plane->op != EX_INT || b.plane->op != EX_INT || c.plane->op != EX_INT || runs_late(&a) ||
               runs_late(&b) || c.r->op != EX_INT || c.c->op != EX_INT;
  if (scope) cw_scope(w);
  a.rows = cw_bind(w, a.rows, "m");
  a.cols = cw_bind(w, a.cols, "k");
  b.cols = cw_bind(w, b.cols, "n");
  b.rows = a.cols;
  IrExpr *g = cw_guard(w, a.rows, b.cols), *gk = cw_guard(w, a.cols, NULL);
  if (gk) g = g ? cw_op(w, EX_LAND, g, gk) : gk;
  if (g) cw_open(w, "if (%s)", cw_str(w, g));
  const char *at = l0_tile(w, s, A, &a), *bt = at ? l0_tile(w, s, B, &b) : NULL;
  if (at && bt) {
    const char *ct = acc_tile(w, C, &c, a.rows, b.cols);
    const char *first = cw_fmt(w, "%s(%s, %s, %s);", sp->tile_api, ct, at, bt);
    const char *more = cw_fmt(w, "%s_ACC(%s, %s, %s, %s);", sp->tile_api, ct, ct, at, bt);
    IrExpr *init = ir_attr(s, ATTR_INIT);
    if (init) init = ir_cast(w->k, DT_BOOL, init);
    if (apart) {
      cw_line(w, "%s((__cc__ %s *)%s.data(), (__ca__ %s *)%s.data(), (__cb__ %s *)%s.data(), %s, %s, %s, %lld, %s);",
              pt_helper(w, PT_MMAD_ROWS), cw_element(w, C->buf->type), ct, cw_element(w, A->buf->type), at,
              cw_element(w, B->buf->type), bt, cw_str(w, a.rows), cw_str(w, b.cols), cw_str(w, a.cols),
              (long long)c.plane_rows, init ? cw_str(w, init) : "false");
    } else if (init && init->op != EX_INT) {
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
  if (g) cw_close(w);
  if (scope) cw_close(w);
}

static void l0c_to_gm(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  CBox b;
  IrRows g;
  if (!fractal_box(w, s, src, &b)) return;
  if (!cw_gm_matrix(w, dst, &g)) {
    pt_refuse(w, s, "write a plane at a time", "the GM region is not the rows of one matrix");
    return;
  }
  cw_scope(w);
  bool whole_rows = ir_is_int(g.rows, 1);
  IrExpr *m = cw_bind(w, b.rows, "m"), *n = cw_bind(w, b.cols, "n");
  bool guarded = pt_guard(w, m, n);
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

static void l0c_to_l1(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  CBox b, d;
  if (!fractal_box(w, s, src, &b) || !fractal_box(w, s, dst, &d)) return;
  bool scope = runs_late(&b) || b.plane->op != EX_INT || d.plane->op != EX_INT || b.r->op != EX_INT ||
               b.c->op != EX_INT;
  if (scope) cw_scope(w);
  IrExpr *m = cw_bind(w, b.rows, "m"), *n = cw_bind(w, b.cols, "n");
  bool guarded = pt_guard(w, m, n);
  const char *from = acc_tile(w, src, &b, m, n);
  PtView v = {.buf = dst->buf, .kind = MAT, .rows = d.plane_rows, .cols = d.plane_cols};
  const char *to = pt_tile(w, v, d.plane, cw_num(w, v.rows), cw_num(w, v.cols));
  const char *relu = ir_attr(s, ATTR_RELU)
                         ? cw_fmt(w, "<decltype(%s), decltype(%s), ReluPreMode::NormalRelu>", to, from) : "";
  cw_line(w, "%s%s(%s, %s, %s, %s);", sp->tile_api, relu, to, from, cw_str(w, d.r), cw_str(w, d.c));
  if (guarded) cw_close(w);
  if (scope) cw_close(w);
}

static const PtSpelling spelling[OP_COUNT] = {
#define none NULL
#define PT(id, writer, tile_api, scalar_api, row_api, col_api, instr)                                                  \
  [OP_##id] = {writer, tile_api, scalar_api, row_api, col_api, instr},
#include "ops_pto.def"
#undef PT
#undef none
};

enum { /* an op without a line in ops_pto.def does not compile */
#define PT(id, writer, tile_api, scalar_api, row_api, col_api, instr) HAS_##id = 1,
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
    PtView v = {.buf = b, .kind = VEC_ROWS, .rows = 1, .cols = elements};
    return pt_tile(w, v, cw_num(w, 0), cw_num(w, 1), cw_num(w, elements));
  }
  cw_scalar_reaches(w, b);
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
  if (id->op == EX_INT && id->i >= 0 && id->i < 8) return cw_fmt(w, "EVENT_ID%lld", (long long)id->i);
  return cw_fmt(w, "(event_t)%s", cw_atom(w, id));
}

/* Which cores meet. */
static const char *sync_cores(CWriter *w) {
  bool cube = cw_side_syncs(w, ST_CUBE), vector = cw_side_syncs(w, ST_VECTOR);
  return cube && vector ? "Mix" : cube ? "AICOnly" : "AIVOnly";
}

/* Flags between the cores of a block of the 950: the cube core has a pair of each, one for either vector core. */
static void inner_flag(CWriter *w, const IrStmt *s, const char *call) {
  bool any = s->sync.src == PIPE_NONE || s->sync.src == PIPE_ALL;
  const char *pipe = any ? "PIPE_S" : pipe_info[s->sync.src].cxx, *id = cw_str(w, s->sync.id);
  cw_line(w, "%s(%s, %s);", call, pipe, id);
  for (const IrStmt *up = s; up; up = up->block->parent)
    if (up->op == ST_CUBE) cw_line(w, "%s(%s, %s + 16);", call, pipe, cw_atom(w, s->sync.id));
}

static bool sets_outer(const IrStmt *s, void *user) {
  const IrStmt *wait = user;
  return s->op == ST_CROSS_SET && s->sync.mode != 2 && ir_expr_equal(s->sync.id, wait->sync.id);
}

/* Does the flag that s waits for come from other blocks? */
static bool outer_flag(CWriter *w, const IrStmt *s) { return cw_scans(&w->k->body, sets_outer, (void *)s); }

static void sync_stmt(CWriter *w, const IrStmt *s) {
  if (ir_is_say(s)) {
    cw_line(w, "// no prints or assertions in PTO: left out");
    return;
  }
  switch (s->op) {
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
    cw_line(w, "%s(%s, %s, %s);", s->op == ST_SET_FLAG ? "set_flag" : "wait_flag", pipe_info[s->sync.src].cxx,
            pipe_info[s->sync.dst].cxx, event(w, s->sync.id));
    break;
  case ST_BARRIER:
    if (s->sync.src == PIPE_V && pt_is_a5(w)) break; /* its vector unit orders its own instructions */
    cw_line(w, "pipe_barrier(%s);", pipe_info[s->sync.src].cxx);
    break;
  case ST_CROSS_SET: /* bit 0: set; mode from bit 4, flag from bit 8 */
    if (pt_is_a5(w) && s->sync.mode == 2) inner_flag(w, s, "set_intra_block");
    else cw_line(w, "ffts_cross_core_sync(%s, 1 | %d << 4 | %s << 8);", pipe_info[s->sync.src].cxx, s->sync.mode,
            cw_atom(w, s->sync.id));
    break;
  case ST_CROSS_WAIT:
    if (!pt_is_a5(w)) cw_line(w, "wait_flag_dev(%s);", cw_str(w, s->sync.id));
    else if (outer_flag(w, s)) cw_line(w, "wait_flag_dev(PIPE_S, %s);", cw_str(w, s->sync.id));
    else inner_flag(w, s, "wait_intra_block");
    break;
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
  text_printf(&w->out, "#if defined(__DAV_%s__) || defined(__DAV_%s_%s__)\n", core,
              pt_is_a5(w) ? "C310" : "C220", core);
  cw_scope(w);
  if (!cube) {
    cw_line(w, "set_mask_norm();");
    cw_line(w, "set_vector_mask(-1, -1);");
  }
  for (uint32_t i = 0; i < own->views.len; i++) {
    const PtView *v = &own->views.data[i];
    cw_line(w, "%s %s;", tile_type(w, v), v->name);
    cw_line(w, "TASSIGN<%lld>(%s);", (long long)v->addr, v->name);
  }
  text_put(&w->out, "\n");
  text_put(&w->out, body);
  cw_close(w);
  text_put(&w->out, "#endif\n");
}

static void stmt(CWriter *w, const IrStmt *s) {
  if (ir_is_side(s)) {
    write_side(w, s);
  } else if (cw_chip_has(w, s)) {
    const PtSpelling *sp = ir_is_op(s) ? &spelling[s->op] : NULL;
    if (!sp) sync_stmt(w, s);
    else if (sp->write) sp->write(w, s, sp);
    else cw_refuse(w, DIAG_EMIT_OP, "write Ascend C: target=\"ascendc\"", "%s: not written in PTO yet", op_name(s));
  }
}

/* ---- the kernel around the statements --------------------------------------------------------------------------- */

static void tensor(CWriter *w, const IrBuf *b, const char *at) {
  const char *type = cw_element(w, b->type);
  cw_line(w, "__gm__ %s *%s = (__gm__ %s *)%s;", type, w->buf_name[b->id], type, at);
}

static const char *const reserved[] = {
#define PT(id, writer, tile_api, scalar_api, row_api, col_api, instr) tile_api, scalar_api, row_api, col_api, instr,
#include "ops_pto.def"
#undef PT
#define HELPER(id, name, text) name,
#include "prelude_pto.def"
#undef HELPER
    "pto",          "Tile",          "TileLeft",
    "TileRight",    "TileAcc",       "TileType",
    "GlobalTensor", "Shape",         "Stride",
    "BLayout",      "SLayout",       "RoundMode",
    "AtomicType",   "ReluPreMode",   "TASSIGN",
    "TMATMUL_ACC",  "set_flag",      "wait_flag",
    "pipe_barrier", "get_block_idx", "get_subblockid",
    "dcci",         "ffts_addr",     "call",
    "stream",       "blocks",        "ffts",
    "ffts_bytes",   "AICORE",       "event_t",       NULL};

static const CDialect dialect = {.title = "PTO",
                                 .names = reserved,
                                 .func_prefix = "AICORE inline",
                                 .load = load,
                                 .store = store,
                                 .stmt = stmt,
                                 .flush = flush,
                                 .tensor = tensor,
                                 .no_host = "__CPU_SIM",
                                 .bf16_to_float = "FloatOfBf16",
                                 .bf16_from_float = "ToBf16",
                                 .e4m3 = "float8_e4m3_t",
                                 .e5m2 = "float8_e5m2_t",
                                 .float_to_int = "%sOf"};

static bool emit(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, Text *out) {
  CWriter w;
  if (!cw_begin(&w, a, d, k, arch, &dialect)) return false;
  w.own = arena_new(a, Own);
  Text head;
  text_init(&head, a);
  cw_kernel_params(&w, &head, "__gm__ uint8_t *");
  if (w.mix) text_printf(&head, "%suint64_t ffts_addr", w.n_params ? ", " : "");
  cw_line(&w, "extern \"C\" __global__ AICORE void %s_kernel(%s)", k->name, text_str(&head));
  cw_scope(&w);
  if (w.mix) cw_line(&w, "set_ffts_base_addr(ffts_addr);");
  cw_kernel_tensors(&w);
  const char *block = cw_fresh(&w, "block");
  if (k->grid.len) cw_line(&w, "const int32_t %s = get_block_idx();", block);
  cw_kernel_grid(&w, block, "get_subblockid()");
  cw_block(&w, &k->body);
  cw_close(&w);
  for (int i = 0; i < (int)TL_COUNT(own_helpers); i++) /* the shared writer names some of them in expressions */
    if (strstr(text_str(&w.out), cw_fmt(&w, "%s(", own_helpers[i].name))) cw_use(&w, HELP_SHARED + i);
  cw_header(&w, out, "#include <cstdint>\n#include <pto/pto-inst.hpp>\nusing namespace pto;\n");
  cw_put_helpers(&w, out, own_helpers, (int)TL_COUNT(own_helpers));
  text_put(out, "\n");
  text_put(out, text_str(&w.out));
  cw_host_part(&w, out);
  return !w.failed;
}

const Target target_pto = {"pto", emit};
