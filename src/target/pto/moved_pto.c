/* moved_pto.c - PTO of masks, counting, moved and sorted elements, and of rows that repeat.
 *
 * Where PTO has a tile instruction of the form it is used (TCMP, TSEL, TGATHERB, TGATHER, TSORT32, TMRGSORT, TROWSUM
 * ...). The rest is the instruction of A2 and A3 by its own name, on the pointers of tiles, wrapped in a function of
 * prelude_pto.def where it needs a mask or a loop. The 950 has other instructions: there such a form is refused. */
#include "pto.h"

static DType bits_of(DType t) { return dtype_size(t) == 2 ? DT_U16 : DT_U32; }

/* ---- rows whose operands repeat ---------------------------------------------------------------------------------- */

static const char *pointer(CWriter *w, const PtCall *c, int i, DType t) {
  const IrBuf *b = c->s->args[i].region.buf;
  bool one = c->v.arg[i].pitch == 0;
  IrExpr *cols = c->v.arg[i].block ? cw_num(w, dtype_c0(b->type)) : c->v.cols;
  const char *tile = pt_rows(w, b, c->v.arg[i].off, one ? cw_num(w, 1) : c->v.rows, cols, c->v.arg[i].pitch);
  return pt_ub(w, tile, t);
}

void pt_rows_call(CWriter *w, const PtCall *c, const PtSpelling *sp, const char *scalar) {
  const IrStmt *s = c->s;
  int out = s->n_args - 1, n = 0, arg[IR_VEC_ARGS];
  DType type = s->args[out].region.buf->type, t = s->op == OP_MOVE ? bits_of(type) : type;
  IrExpr *cols = c->v.cols;
  bool far = false;
  if (!*sp->instr || (dtype_size(type) == 1 && (cols->op != EX_INT || cols->i % 2))) {
    pt_refuse(w, s, "give it operands of the same shape", "an operand that repeats stands where nothing takes one");
    return;
  }
  if (!pt_has_intrinsics(w, s)) return;
  if (dtype_size(type) == 1) t = DT_U16, cols = cw_num(w, cols->i / 2);
  if (dtype_size(type) == 8) t = DT_U32, cols = cw_mul(w, cols, 2);
  arg[n++] = out;
  for (int i = 0; i < out; i++)
    if (s->args[i].kind == ARG_REGION) arg[n++] = i;
  Text steps;
  text_init(&steps, w->arena);
  for (int i = 0; i < n; i++) text_printf(&steps, ", %d", c->v.arg[arg[i]].block ? 0 : 1);
  for (int i = 0; i < n; i++) {
    int64_t step = c->v.arg[arg[i]].pitch * dtype_size(s->args[arg[i]].region.buf->type) / 32;
    far |= step > 255;
    text_printf(&steps, ", %lld", (long long)step);
  }
  IrExpr *row = NULL, *rows = c->v.rows;
  bool loop = far || ir_range(w->k, rows).hi > w->arch->max_repeat;
  const char *count = cw_str(w, rows), *p[IR_VEC_ARGS];
  for (int i = 0; i < n; i++) p[i] = pointer(w, c, arg[i], t); /* declares the tiles */
  cw_line(w, "%s<%s>(%s);", pt_helper(w, PT_ROW_MASK), cw_element(w, t), cw_str(w, cols));
  if (loop) {
    row = cw_temp(w, DT_I32, "row");
    const char *r = row->var->name;
    cw_open(w, "for (int32_t %s = 0; %s < %s; %s += %d)", r, r, count, r, far ? 1 : 255);
    count = far ? "1" : cw_fmt(w, "(%s < 255 ? %s : 255)", cw_str(w, cw_op(w, EX_SUB, rows, row)),
                            cw_str(w, cw_op(w, EX_SUB, rows, row)));
  }
  Text t2;
  text_init(&t2, w->arena);
  for (int i = 0; i < n; i++) {
    int64_t pitch = c->v.arg[arg[i]].pitch * dtype_size(s->args[arg[i]].region.buf->type) / dtype_size(t);
    text_printf(&t2, "%s%s", i ? ", " : "", p[i]);
    if (row && pitch) text_printf(&t2, " + %s", cw_str(w, cw_mul(w, row, pitch)));
  }
  cw_line(w, "%s(%s%s%s, %s%s);", sp->instr, text_str(&t2), *scalar ? ", " : "", scalar, count, text_str(&steps));
  if (loop) cw_close(w);
  cw_line(w, "%s();", pt_helper(w, PT_FULL_MASK));
}

bool pt_spread(CWriter *w, const PtCall *c, const PtSpelling *sp) {
  const IrStmt *s = c->s;
  int out = s->n_args - 1;
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[out].region.buf;
  bool block = c->v.arg[0].block;
  if (out == 2 && (s->args[1].kind == ARG_SCALAR || c->v.arg[1].block || !c->v.arg[1].pitch ||
                   ir_root(s->args[1].region.buf) == ir_root((IrBuf *)dst)))
    return false;
  const char *to = pt_rows(w, dst, c->v.arg[out].off, c->v.rows, c->v.cols, c->v.arg[out].pitch), *second = "";
  IrExpr *one = cw_num(w, 1), *rows = c->v.rows, *cols = c->v.cols;
  const char *from = pt_rows(w, src, c->v.arg[0].off, block ? rows : one, block ? one : cols, c->v.arg[0].pitch);
  if (out == 2)
    second = cw_fmt(w, ", %s", pt_rows(w, s->args[1].region.buf, c->v.arg[1].off, rows, cols, c->v.arg[1].pitch));
  cw_line(w, "%s(%s, %s);", block ? "TROWEXPAND" : "TCOLEXPAND", to, from);
  if (s->op != OP_MOVE) cw_line(w, "%s(%s, %s%s);", sp->tile_api, to, to, second);
  return true;
}

void pt_piece(CWriter *w, const PtCall *c, const PtSpelling *sp) {
  const IrStmt *s = c->s;
  const IrBuf *dst = s->args[1].region.buf;
  int size = dtype_size(dst->type);
  long long pitch = c->v.arg[1].pitch, from_pitch = c->v.arg[0].pitch;
  const char *rows = cw_str(w, c->v.rows), *n = cw_str(w, c->v.cols);
  pt_helper(w, PT_FULL_MASK);
  if (s->op == OP_FILL) {
    DType bits = size == 8 ? DT_U64 : DT_U8;
    IrExpr *e = cw_repeated(w, ir_cast(w->k, dst->type, s->args[0].scalar), bits);
    const char *to = pointer(w, c, 1, size == 8 ? DT_U32 : DT_U8), *value = cw_scalar(w, e, bits);
    cw_line(w, "%s(%s, %s, %s, %s, %lld);", pt_helper(w, size == 8 ? PT_FILL_WIDE : PT_FILL_BYTES), to, value, rows, n,
            pitch);
    return;
  }
  bool rows_form = !ir_is_int(c->v.rows, 1) || c->v.arg[0].block;
  if (size > 1 ? rows_form : c->v.arg[0].block) {
    pt_rows_call(w, c, sp, "");
    return;
  }
  DType t = size == 1 ? DT_U8 : size == 2 ? DT_U16 : DT_U32;
  const char *to = pointer(w, c, 1, t), *from = pointer(w, c, 0, t);
  pt_helper(w, PT_ROW_MASK);
  pt_helper(w, PT_COPY_RUN);
  if (size == 1) cw_line(w, "%s(%s, %s, %s, %s, %lld, %lld);", pt_helper(w, PT_COPY_BYTES), to, from, rows, n, pitch,
                         from_pitch);
  else cw_line(w, "CopyRun(%s, %s, %s);", to, from, size == 8 ? cw_str(w, cw_mul(w, c->v.cols, 2)) : n);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* Flat operands; opens a scope and a guard around what follows, where they are needed. */
static bool begin_flat(CWriter *w, const IrStmt *s, PtCall *c, bool scratch) {
  c->s = s;
  if (!pt_check_dtype(w, s) || !pt_read(w, s, &c->v)) return false;
  if (!ir_is_int(c->v.rows, 1)) {
    pt_refuse(w, s, "use contiguous tiles", "its mask goes on over rows, so its operands must be one run");
    return false;
  }
  c->scope = scratch || c->v.cols->op != EX_INT;
  for (int i = 0; i < s->n_args; i++) c->scope |= c->v.arg[i].off && c->v.arg[i].off->op != EX_INT;
  if (c->scope) cw_scope(w);
  c->v.cols = cw_bind(w, c->v.cols, "n");
  c->guarded = pt_guard(w, NULL, c->v.cols);
  return true;
}

static void end_call(CWriter *w, const PtCall *c) {
  if (c->guarded) cw_close(w);
  if (c->scope) cw_close(w);
}

/* A statement on runs: a scope if a tile or a name is declared in it. */
static void begin_runs(CWriter *w, const IrStmt *s, PtCall *c, IrExpr **n) {
  *c = (PtCall){.s = s, .scope = *n && (*n)->op != EX_INT};
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    const IrExpr *off = pt_run_offset(w, s, i);
    int size = dtype_size(s->args[i].region.buf->type);
    c->scope |= off->op != EX_INT || off->i * size % 32 || ir_count(w->k, &s->args[i].region)->op != EX_INT;
  }
  if (c->scope) cw_scope(w);
  if (*n) *n = cw_bind(w, *n, "n");
  c->guarded = *n && pt_guard(w, NULL, *n);
}

/* Elements that every data operand has behind its start: the size of tiles of run-time length. */
static int64_t common_length(CWriter *w, const PtCall *c, int first, int last) {
  int64_t most = c->v.cols->op == EX_INT ? c->v.cols->i : ir_range(w->k, c->v.cols).hi;
  for (int i = first; i <= last; i++) {
    if (c->s->args[i].kind != ARG_REGION) continue;
    const IrBuf *b = c->s->args[i].region.buf;
    most = min_i64(most, ir_buf_bytes(b) / dtype_size(b->type));
  }
  return max_i64(most, 1);
}

void pt_compare(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  static const char *const mode_name[CMP_COUNT] = {[CMP_EQ] = "EQ", [CMP_NE] = "EQ", [CMP_GT] = "GT",
                                                   [CMP_GE] = "GE", [CMP_LT] = "LT", [CMP_LE] = "LE"};
  PtCall c;
  int64_t mode = ir_attr_int(s, ATTR_CMP, CMP_EQ);
  const IrBuf *a = s->args[0].region.buf, *bits = s->args[2].region.buf;
  if (!begin_flat(w, s, &c, false)) return;
  bool scalar = s->args[1].kind == ARG_SCALAR;
  int64_t most = common_length(w, &c, 0, 1);
  IrExpr *n = c.v.cols;
  /* Whole repeats: the bits past the last element fall into the mask's own 32-byte block. */
  IrExpr *bytes = cw_mul(w, cw_ceil_div(w, n, 256 / dtype_size(a->type)), 32 / dtype_size(a->type));
  bytes = cw_bind(w, bytes, "bytes");
  const char *mask = pt_is_a5(w) ? pt_run_at(w, bits, c.v.arg[2].off, cw_ceil_div(w, bytes, 4),
                                             round_up(ceil_div(most, 32), 8), DT_U32)
                                 : pt_run_at(w, bits, c.v.arg[2].off, bytes, round_up(ceil_div(most, 8), 32), DT_U8);
  const char *x = pt_run_at(w, a, c.v.arg[0].off, n, most, a->type);
  const char *y = scalar ? cw_scalar(w, s->args[1].scalar, a->type)
                         : pt_run_at(w, s->args[1].region.buf, c.v.arg[1].off, n, most, a->type);
  cw_line(w, "%s(%s, %s, %s, CmpMode::%s);", scalar ? sp->scalar_api : sp->tile_api, mask, x, y,
          mode == CMP_NE && pt_is_a5(w) ? "NE" : mode_name[mode]);
  if (mode == CMP_NE && !pt_is_a5(w)) { /* PTO's own NE turns over the whole tile of the mask */
    const char *m = pt_run_at(w, bits, c.v.arg[2].off, cw_ceil_div(w, bytes, 2), round_up(ceil_div(most, 16), 16),
                              DT_U16);
    cw_line(w, "pipe_barrier(PIPE_V);");
    cw_line(w, "TNOT(%s, %s);", m, m);
  }
  end_call(w, &c);
}

/* 32 bytes that the toolkit keeps for select: see scratch of arch.h. */
static const char *scratch_tile(CWriter *w, DType t, const char *otherwise) {
  if (w->arch->select_scratch < 0) return otherwise;
  cw_line(w, "Tile<TileType::Vec, %s, 1, %d> scratch;", cw_element(w, t), 64 / dtype_size(t));
  cw_line(w, "TASSIGN<%d>(scratch);", w->arch->select_scratch);
  return "scratch";
}

void pt_select(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  PtCall c;
  bool repeated = ir_attr(s, ATTR_MASKREP) != NULL, scalar = s->args[2].kind == ARG_SCALAR;
  DType t = s->args[3].region.buf->type;
  if (repeated && !pt_has_intrinsics(w, s)) return;
  if (!begin_flat(w, s, &c, !repeated)) return;
  IrExpr *n = c.v.cols;
  int64_t most = common_length(w, &c, 1, 3);
  const IrBuf *bits = s->args[0].region.buf;
  IrExpr *bytes = repeated ? cw_num(w, 256 / dtype_size(t) / 8) : cw_ceil_div(w, n, 8);
  const char *mask = pt_run_at(w, bits, c.v.arg[0].off, bytes, round_up(ceil_div(most, 8), 32), DT_U8);
  const char *a = pt_run_at(w, s->args[1].region.buf, c.v.arg[1].off, n, most, t);
  const char *to = pt_run_at(w, s->args[3].region.buf, c.v.arg[3].off, n, most, t);
  if (scalar && pt_is_a5(w)) {
    cw_line(w, "TSELS(%s, %s, %s, %s, %s);", to, mask, a, a, cw_scalar(w, s->args[2].scalar, t));
  } else if (scalar) {
    const char *name = pt_helper(w, PT_SELECT_OR);
    cw_line(w, "%s(%s, %s, %s, %s, %s, %s);", name, pt_ub(w, to, t), pt_ub(w, mask, DT_U8), pt_ub(w, a, t),
            cw_scalar(w, s->args[2].scalar, t), pt_ub(w, scratch_tile(w, t, a), t), cw_str(w, n));
  } else {
    const char *b = pt_run_at(w, s->args[2].region.buf, c.v.arg[2].off, n, most, t);
    if (repeated)
      cw_line(w, "%s(%s, %s, %s, %s, %s);", pt_helper(w, PT_SELECT_REPEATED), pt_ub(w, to, t), pt_ub(w, mask, DT_U8),
              pt_ub(w, a, t), pt_ub(w, b, t), cw_str(w, n));
    else cw_line(w, "%s(%s, %s, %s, %s, %s);", sp->tile_api, to, mask, a, b, scratch_tile(w, DT_U32, a));
  }
  end_call(w, &c);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* The 950 counts integers by one; the rest is a conversion in place, a product and a sum. */
static void count_a5(CWriter *w, const IrStmt *s, IrExpr *n) {
  DType t = s->args[2].region.buf->type, whole = dtype_size(t) == 2 ? DT_I16 : DT_I32;
  const char *to = pt_run(w, s, 2, n, t), *ints = whole == t ? to : pt_run(w, s, 2, n, whole);
  cw_line(w, "pipe_barrier(PIPE_ALL);"); /* the scalar unit does it */
  cw_line(w, "TCI<decltype(%s), %s, 0>(%s, 0);", ints, cw_element(w, whole), ints);
  cw_line(w, "pipe_barrier(PIPE_ALL);");
  if (whole != t) cw_line(w, "TCVT(%s, %s, RoundMode::CAST_RINT);", to, ints);
  if (!ir_is_int(s->args[1].scalar, 1))
    cw_line(w, "TMULS(%s, %s, %s);", to, to, cw_scalar(w, s->args[1].scalar, t));
  if (!ir_is_int(s->args[0].scalar, 0))
    cw_line(w, "TADDS(%s, %s, %s);", to, to, cw_scalar(w, s->args[0].scalar, t));
}

void pt_arange(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  IrRows r;
  const IrRegion *dst = &s->args[2].region;
  DType t = dst->buf->type, step = dtype_is_float(t) ? DT_F32 : DT_I32;
  if (!ir_rows(w->k, dst, &r) || !ir_is_int(r.rows, 1)) {
    const IrStmt *row = cw_arange_row(w, s, 0);
    if (!row) pt_refuse(w, s, "write it to a contiguous tile", "the destination is not one run");
    for (int64_t i = 1; row; row = cw_arange_row(w, s, i++)) pt_arange(w, row, sp);
    return;
  }
  PtCall c;
  IrExpr *n = r.cols;
  begin_runs(w, s, &c, &n);
  if (pt_is_a5(w)) {
    count_a5(w, s, n);
    end_call(w, &c);
    return;
  }
  const char *to = pt_run(w, s, 2, n, t);
  pt_helper(w, PT_FULL_MASK);
  cw_line(w, "%s(%s, %s, %s, %s);", pt_helper(w, PT_ARANGE), pt_ub(w, to, t), cw_scalar(w, s->args[0].scalar, step),
          cw_scalar(w, s->args[1].scalar, step), cw_str(w, n));
  end_call(w, &c);
}

void pt_brcb(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  PtCall c = {.s = s};
  if (!pt_read(w, s, &c.v)) return;
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  DType t = bits_of(src->type);
  int64_t c0 = dtype_c0(dst->type);
  bool fixed = c.v.rows->op == EX_INT && c.v.arg[0].off->op == EX_INT && c.v.arg[1].off->op == EX_INT;
  IrVec v = c.v;
  IrExpr *n = v.rows;
  begin_runs(w, s, &c, &n);
  if (pt_is_a5(w) || (fixed && v.rows->i % c0 == 0)) {
    const char *to = pt_rows(w, dst, v.arg[1].off, n, v.cols, c0);
    PtView column = {.buf = src, .kind = VEC_COLUMN, .cols = 1};
    column.rows = round_up(min_i64(ir_range(w->k, n).hi, ir_buf_bytes(src) / dtype_size(src->type)), c0);
    cw_line(w, "%s(%s, %s);", sp->tile_api, to, pt_tile(w, column, v.arg[0].off, n, cw_num(w, 1)));
    end_call(w, &c);
    return;
  }
  const char *from = pt_run(w, s, 0, n, src->type), *to = pt_run(w, s, 1, cw_mul(w, n, c0), dst->type);
  cw_line(w, "%s(%s, %s, %s);", pt_helper(w, PT_BLOCKS), pt_ub(w, to, t), pt_ub(w, from, t), cw_str(w, n));
  end_call(w, &c);
}

/* gather, gatherb, gather_mask, sort32 */
void pt_moved(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  static const char *const pattern_name[] = {"", "P0101", "P1010", "P0001", "P0010", "P0100", "P1000", "P1111"};
  int out = s->n_args - 1;
  DType t = s->args[out].region.buf->type, u = bits_of(t);
  bool by_index = s->op == OP_GATHER || s->op == OP_GATHERB;
  bool pattern = s->op == OP_GATHER_MASK && s->args[1].kind == ARG_SCALAR;
  IrExpr *n = ir_count(w->k, &s->args[by_index ? 1 : 0].region), *n_out = ir_count(w->k, &s->args[out].region);
  bool whole = n_out->op == EX_INT && n_out->i % dtype_c0(t) == 0 && n->op == EX_INT;
  bool tiles = s->op == OP_GATHER_MASK ? pattern && whole : s->op != OP_GATHER && whole; /* PTO has the instruction */
  if (s->op == OP_GATHERB && n->op != EX_INT) {
    pt_refuse(w, s, "use offsets of constant number", "the number of blocks is known only at run time");
    return;
  }
  if (!tiles && s->op != OP_SORT32 && s->op != OP_GATHERB && !pt_has_intrinsics(w, s)) return;
  PtCall c;
  begin_runs(w, s, &c, &n);
  if (s->op == OP_GATHER) {
    const char *to = pt_run(w, s, out, n, t), *from = pt_run(w, s, 0, NULL, t), *at = pt_run(w, s, 1, n, DT_U32);
    pt_helper(w, PT_FULL_MASK);
    cw_line(w, "%s(%s, %s, %s, %s, %s);", pt_helper(w, PT_GATHER), pt_ub(w, to, u), pt_ub(w, from, u),
            pt_ub(w, at, DT_U32), cw_scalar(w, s->args[2].scalar, DT_U32), cw_str(w, n));
  } else if (s->op == OP_GATHER_MASK && !tiles) {
    const char *to = pt_run(w, s, out, NULL, t), *from = pt_run(w, s, 0, n, t);
    const char *bits = pattern ? from : pt_run(w, s, 1, NULL, u);
    pt_helper(w, PT_FULL_MASK);
    cw_line(w, "%s(%s, %s, %s, %s, %s);", pt_helper(w, PT_TAKE_CHOSEN), pt_ub(w, to, u), pt_ub(w, from, u),
            pt_ub(w, bits, u), pattern ? cw_str(w, s->args[1].scalar) : "0", cw_str(w, n));
  } else {
    const char *to = pt_run(w, s, out, n_out, t), *from = pt_run(w, s, 0, by_index ? NULL : n, t);
    if (pattern)
      cw_line(w, "%s<decltype(%s), decltype(%s), MaskPattern::%s>(%s, %s);", sp->tile_api, to, from,
              pattern_name[s->args[1].scalar->i], to, from);
    else cw_line(w, "%s(%s, %s, %s);", sp->tile_api, to, from, pt_run(w, s, 1, n, DT_U32));
  }
  end_call(w, &c);
}

void pt_merge(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  (void)sp;
  int out = s->n_args - 1;
  DType t = s->args[out].region.buf->type;
  PtCall c;
  IrExpr *none = NULL;
  begin_runs(w, s, &c, &none);
  Text list;
  text_init(&list, w->arena);
  text_put(&list, pt_run(w, s, out, ir_count(w->k, &s->args[out].region), t));
  for (int i = 0; i < out; i++)
    text_printf(&list, ", %s", pt_run(w, s, i, ir_count(w->k, &s->args[i].region), t));
  cw_line(w, "%s(%s);", pt_helper(w, PT_MERGE), text_str(&list));
  end_call(w, &c);
}

void pt_transpose(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  (void)sp;
  IrRows rows[2];
  const IrRegion *r[2] = {&s->args[0].region, &s->args[1].region};
  DType u = bits_of(r[0]->buf->type);
  if (!ir_rows(w->k, r[0], &rows[0]) || !ir_rows(w->k, r[1], &rows[1])) {
    pt_refuse(w, s, "copy a plane at a time", "a matrix needs more than two strides");
    return;
  }
  const char *p[2], *pitch[2];
  PtCall c;
  IrExpr *none = NULL;
  begin_runs(w, s, &c, &none);
  for (int i = 0; i < 2; i++) {
    const IrBuf *b = r[i]->buf;
    IrExpr *step = b->shape[b->rank - 1], *m = r[i]->ext[b->rank - 2], *n = r[i]->ext[b->rank - 1];
    pitch[i] = cw_str(w, step);
    p[i] = pt_rows(w, b, rows[i].off, m, n, step->i);
    if (!pt_is_a5(w)) p[i] = pt_ub(w, p[i], u);
  }
  if (pt_is_a5(w)) {
    cw_line(w, "TTRANS(%s, %s, %s);", p[1], p[0], p[0]); /* its scratch tile is not used there */
    end_call(w, &c);
    return;
  }
  const IrBuf *b = r[0]->buf;
  cw_line(w, "%s(%s, %s, %s, %s, %s, %s);", pt_helper(w, PT_TRANSPOSE), p[1], p[0],
          cw_str(w, r[0]->ext[b->rank - 2]), cw_str(w, r[0]->ext[b->rank - 1]), pitch[0], pitch[1]);
  end_call(w, &c);
}

/* ---- rows to one element ----------------------------------------------------------------------------------------- */

void pt_row_reduce(CWriter *w, const IrStmt *s, const PtSpelling *sp) {
  PtCall c = {.s = s};
  if (!pt_check_dtype(w, s) || !pt_read(w, s, &c.v)) return;
  const IrBuf *src = s->args[0].region.buf, *dst = s->args[1].region.buf;
  bool place = s->op == OP_ROW_ARGMAX || s->op == OP_ROW_ARGMIN;
  IrExpr *off = c.v.arg[1].off;
  bool column = !place && (pt_is_a5(w) || (off->op == EX_INT && off->i % dtype_c0(dst->type) == 0));
  int64_t step = c.v.arg[0].pitch * dtype_size(src->type) / 32;
  if (!column && (!pt_has_intrinsics(w, s))) return;
  if (!column && step > 255) {
    pt_refuse(w, s, "copy the rows closer together", "rows lie more than 255 blocks of 32 bytes apart");
    return;
  }
  c.scope = (!column && (off->op != EX_INT || off->i * dtype_size(dst->type) % 32)) || c.v.rows->op != EX_INT ||
            (column && (off->op != EX_INT || off->i % dtype_c0(dst->type))) ||
            c.v.cols->op != EX_INT || c.v.arg[0].off->op != EX_INT;
  if (c.scope) cw_scope(w);
  IrExpr *rows = c.v.rows = cw_bind(w, c.v.rows, "rows");
  c.v.cols = cw_bind(w, c.v.cols, "cols");
  c.guarded = pt_guard(w, rows, c.v.cols);
  const char *from = pt_rows(w, src, c.v.arg[0].off, rows, c.v.cols, c.v.arg[0].pitch);
  if (column) {
    PtView v = {.buf = dst, .kind = VEC_COLUMN, .cols = 1};
    int64_t most = min_i64(ir_range(w->k, rows).hi, ir_buf_bytes(dst) / dtype_size(dst->type));
    v.rows = round_up(max_i64(most, 1), dtype_c0(dst->type));
    const char *to = pt_tile(w, v, off, rows, cw_num(w, 1));
    cw_line(w, "%s(%s, %s, %s);", sp->tile_api, to, from, from); /* a row of one repeat needs no scratch tile */
  } else { /* the results start anywhere */
    IrExpr *row = NULL;
    const char *to = pt_run(w, s, 1, NULL, dst->type), *count = cw_str(w, rows);
    cw_line(w, "%s<%s>(%s);", pt_helper(w, PT_ROW_MASK), cw_element(w, src->type), cw_str(w, c.v.cols));
    if (ir_range(w->k, rows).hi > w->arch->max_repeat) {
      row = cw_temp(w, DT_I32, "row");
      const char *r = row->var->name, *left = cw_str(w, cw_op(w, EX_SUB, rows, row));
      cw_open(w, "for (int32_t %s = 0; %s < %s; %s += 255)", r, r, count, r);
      count = cw_fmt(w, "(%s < 255 ? %s : 255)", left, left);
    }
    const char *pt = pt_ub(w, to, dst->type), *ps = pt_ub(w, from, src->type);
    if (row) {
      pt = cw_fmt(w, "%s + %s", pt, cw_str(w, cw_mul(w, row, c.v.arg[1].pitch)));
      ps = cw_fmt(w, "%s + %s", ps, cw_str(w, cw_mul(w, row, c.v.arg[0].pitch)));
    }
    cw_line(w, "%s(%s, %s, %s, 1, 1, %lld%s);", sp->instr, pt, ps, count, (long long)step,
            s->op == OP_ROW_SUM ? "" : place ? ", VALUE_INDEX" : ", ONLY_VALUE");
    if (row) cw_close(w);
    cw_line(w, "%s();", pt_helper(w, PT_FULL_MASK));
  }
  if (c.guarded) cw_close(w);
  if (c.scope) cw_close(w);
}
