/* verify_op.c - the rules of docs/ir.md that speak of one op: memories, dtypes, attributes, shapes, and at the lowered
 * level what one instruction can do. verify.c has looked at names, bounds and the operand kinds before.
 *
 * Numbers are compared when both are constants or differ by a constant; otherwise the rule is silent and the simulator
 * checks the running kernel. Instructions see a region as rows (ir_rows), in which contiguous dimensions are merged; a
 * contiguous operand then takes the rows of its partner. */
#include "ir.h"

#include <math.h>
#include <string.h>

typedef struct {
  IrKernel *k;
  Diags *d;
  Arena *a;
  const IrStmt *at, *side; /* the op, and the cube or vector block around it */
  bool lowered;
} Verifier;

static Diag *report(Verifier *v, DiagCode code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(v->a, fmt, ap);
  va_end(ap);
  return diag_add(v->d, code, v->at->loc, "%s", text);
}
#define bad(v, rule, ...) report(v, DIAG_RULE_##rule, __VA_ARGS__)

static const char *expr_text(Verifier *v, const IrExpr *e) { return ir_expr_str(v->a, e); }
static const char *region_text(Verifier *v, const IrRegion *r) { return ir_region_str(v->a, r); }
static const char *shape_text(Verifier *v, IrExpr *const *ext, int n) { return ir_shape_str(v->a, ext, n); }

/* "%a [64, 64]" */
static const char *operand_text(Verifier *v, const IrRegion *r) {
  return arena_printf(v->a, "%%%s %s", r->buf->name, shape_text(v, r->ext, r->buf->rank));
}

static const char *oname(const IrStmt *s) { return op_info[s->op].name; }
static const char *tname(int t) { return dtype_info[t].name; }
static const char *sname(const IrBuf *b) { return space_info[b->space].name; }
static long long ll(int64_t v) { return (long long)v; }
static const char *side_word(char side) { return side == 'c' ? "cube" : "vector"; }
static const char *this_side(const Verifier *v) { return side_word(v->side->op == ST_CUBE ? 'c' : 'v'); }

static bool is_const(const IrExpr *e, int64_t *out) {
  if (e->op == EX_INT) *out = e->i;
  return e->op == EX_INT;
}

/* True only if a and b differ for all values of the variables. */
static bool differ(Verifier *v, IrExpr *a, IrExpr *b) {
  int64_t diff;
  if (ir_is_const(a) && ir_is_const(b)) return a->i != b->i;
  return ir_const_diff(v->k, a, b, &diff) && diff != 0;
}

/* ---- memories, dtypes, attributes --------------------------------------------------------------------------- */

static const IrRegion *out_region(const IrStmt *s) { return &s->args[ir_n_in(s->op)].region; }
static const IrRegion *in_region(const IrStmt *s, int i) {
  return s->args[i].kind == ARG_REGION ? &s->args[i].region : NULL;
}

/* The name of operand i in a "gm,ub->ub" list. */
static const char *nth_space(Arena *a, const char *list, int i) {
  for (; i > 0 && *list; list++) {
    if (*list == ',') i--;
    if (list[0] == '-' && list[1] == '>') {
      i--;
      list++;
    }
  }
  size_t n = *list == '-' ? 1 : strcspn(list, ",-");
  return arena_strn(a, list, n);
}

static void check_spaces(Verifier *v, const IrStmt *s) {
  const OpInfo *op = &op_info[s->op];
  bool follows = s->op == OP_FILL && !v->lowered; /* clears tiles of either side */
  if (op->pipe != PIPE_NONE && !follows && ir_wrong_side(v->side, pipe_info[op->pipe].side)) {
    Diag *g = bad(v, SIDE_PIPE, "'%s' runs on pipe %s of the %s core and stands inside `%s`", op->name,
                  pipe_info[op->pipe].name, side_word(pipe_info[op->pipe].side), this_side(v));
    diag_fix(v->d, g, "move it into the `%s` block", side_word(pipe_info[op->pipe].side));
    return;
  }
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    const IrBuf *b = s->args[i].region.buf;
    if (v->lowered && *op->spaces && space_info[b->space].physical) {
      const char *want = nth_space(v->a, op->spaces, i);
      if (strcmp(want, sname(b))) {
        Diag *g = bad(v, OP_SPACE, "operand %d of '%s' is %%%s in %s; the instruction takes %s there", i, op->name,
                      b->name, sname(b), want);
        diag_fix(v->d, g, "move the tile to %s first", want);
        return;
      }
    }
    char side = space_info[b->space].side;
    if (ir_wrong_side(v->side, side)) {
      Diag *g = bad(v, SIDE_PIPE, "'%s' uses %%%s in %s, a memory of the %s core, inside `%s`", op->name, b->name,
                    sname(b), side_word(side), this_side(v));
      if (b->why) diag_other(v->d, g, b->loc, "%%%s: %s", b->name, b->why);
      diag_fix(v->d, g, "move it into the `%s` block", side_word(side));
      return;
    }
    if (!v->lowered && b->space == SPACE_GM && op->level != 'l' && s->op != OP_COPY && s->op != OP_ATOMIC_ADD) {
      Diag *g = bad(v, OPERAND_GM, "'%s' works on %%%s, which is in global memory", op->name, b->name);
      diag_fix(v->d, g, "copy it into a local tile first");
      return;
    }
  }
}

static bool in_list(DTypeRule rule, DType t, bool eq) {
  switch (rule) {
  case RULE_ARITH: return t == DT_F16 || t == DT_F32 || t == DT_I16 || t == DT_I32;
  case RULE_FLOAT:
  case RULE_SEL: return t == DT_F16 || t == DT_F32;
  case RULE_RELU: return t == DT_F16 || t == DT_F32 || t == DT_I32;
  case RULE_INT: return t == DT_I16 || t == DT_I32 || t == DT_U16 || t == DT_U32;
  case RULE_BITS: return t == DT_I16 || t == DT_U16;
  case RULE_CMP: return t == DT_F16 || t == DT_F32 || (eq && t == DT_I32);
  case RULE_MOVED:
  case RULE_INDEX: return dtype_size(t) == 2 || dtype_size(t) == 4;
  case RULE_SCORE: return t == DT_F16 || t == DT_F32;
  default: return true;
  }
}

static const char *list_text(DTypeRule rule, bool eq) {
  switch (rule) {
  case RULE_ARITH: return "f16, f32, i16 or i32";
  case RULE_RELU: return "f16, f32 or i32";
  case RULE_INT: return "i16, i32, u16 or u32";
  case RULE_BITS: return "i16 or u16";
  case RULE_CMP: return eq ? "f16, f32 or i32" : "f16 or f32";
  case RULE_MOVED:
  case RULE_INDEX: return "elements of 16 or 32 bits";
  default: return "f16 or f32";
  }
}

static void check_mmad_dtypes(Verifier *v, const IrStmt *s) {
  DType a = s->args[0].region.buf->type, b = s->args[1].region.buf->type, c = s->args[2].region.buf->type;
  bool legal = a == b;
  if (v->lowered)
    legal &= dtype_is_float(a) ? c == DT_F32 : (a == DT_I8 || a == DT_I4X2) && c == DT_I32; /* floats: arch_product */
  if (legal) return;
  Diag *g = bad(v, MMAD_DTYPE, "'%s' multiplies %%%s %s by %%%s %s into %%%s %s; the cube does not", oname(s),
                s->args[0].region.buf->name, tname(a), s->args[1].region.buf->name, tname(b),
                s->args[2].region.buf->name, tname(c));
  diag_fix(v->d, g, "use one float dtype twice into f32, or i8 or i4x2 twice into i32");
}

static void check_fix_dtypes(Verifier *v, const IrStmt *s) {
  const IrBuf *a = s->args[0].region.buf, *b = s->args[1].region.buf;
  if (!v->lowered || ir_cube_writes(a->type, b->type)) return;
  Diag *g = bad(v, DTYPE_LIST, "'%s' converts %%%s %s to %%%s %s", oname(s), a->name, tname(a->type),
                b->name, tname(b->type));
  diag_fix(v->d, g, "write f32 as f32, f16 or bf16, and i32 as i32");
}

/* Operands first.. (regions) share one dtype, which is in the rule's list at the lowered level. */
static void check_same(Verifier *v, const IrStmt *s, int first, int last) {
  const OpInfo *op = &op_info[s->op];
  const IrBuf *one = NULL;
  for (int i = first; i <= last; i++) {
    if (s->args[i].kind != ARG_REGION) continue;
    const IrBuf *b = s->args[i].region.buf;
    if (!one) one = b;
    if (b->type == one->type) continue;
    Diag *g = bad(v, SAME_DTYPE, "'%s' has operands %%%s of dtype %s and %%%s of dtype %s", op->name, one->name,
                  tname(one->type), b->name, tname(b->type));
    diag_fix(v->d, g, "copy one of them into a tile of the other's dtype first");
    return;
  }
  bool eq = s->op == OP_COMPARE && ir_attr_int(s, ATTR_CMP, CMP_EQ) == CMP_EQ;
  if (!v->lowered || !one || in_list(op->dtypes, one->type, eq)) return;
  Diag *g = bad(v, DTYPE_LIST, "'%s' on %%%s of dtype %s; the instruction takes %s", op->name, one->name,
                tname(one->type), list_text(op->dtypes, eq));
  diag_fix(v->d, g, "convert to one of these dtypes with `cast`");
}

/* The indices of gather and sort32, the bits of gather_mask, beside data of one dtype. */
static void check_index_dtypes(Verifier *v, const IrStmt *s) {
  const OpInfo *op = &op_info[s->op];
  const IrBuf *a = s->args[0].region.buf, *dst = s->args[s->n_args - 1].region.buf;
  const IrRegion *b = in_region(s, s->n_args > 2 ? 1 : 0);
  if (a->type != dst->type) {
    Diag *g = bad(v, SAME_DTYPE, "'%s' has operands %%%s of dtype %s and %%%s of dtype %s", op->name, a->name,
                  tname(a->type), dst->name, tname(dst->type));
    diag_fix(v->d, g, "copy one of them into a tile of the other's dtype first");
    return;
  }
  if (v->lowered && !in_list(op->dtypes, a->type, false)) {
    Diag *g = bad(v, DTYPE_LIST, "'%s' on %%%s of dtype %s; the instruction takes %s", op->name, a->name,
                  tname(a->type), list_text(op->dtypes, false));
    diag_fix(v->d, g, "convert to one of these dtypes with `cast`");
    return;
  }
  if (!b || ir_n_in(s->op) < 2) return;
  DType t = b->buf->type;
  bool bits = s->op == OP_GATHER_MASK;
  if (bits ? dtype_info[t].cls == 'u' && dtype_size(t) == dtype_size(a->type) : t == DT_U32 || t == DT_I32) return;
  Diag *g = bad(v, INDEX_DTYPE, "'%s' on %%%s of dtype %s has %s %%%s of dtype %s", op->name, a->name, tname(a->type),
                bits ? "the bits" : "the indices", b->buf->name, tname(t));
  if (bits) diag_fix(v->d, g, "an unsigned dtype as wide as the data's: u16 or u32");
  else diag_fix(v->d, g, "u32 or i32");
}

static void check_mask_dtype(Verifier *v, const IrStmt *s, int i) {
  const IrRegion *r = in_region(s, i);
  if (!r || r->buf->type == DT_U8) return;
  Diag *g = bad(v, MASK_DTYPE, "the mask %%%s of '%s' has dtype %s", r ? r->buf->name : "?", oname(s),
                tname(r->buf->type));
  diag_fix(v->d, g, "allocate the mask as u8, one bit an element");
}

/* Numbers that lie two in an element: what may be done with them. */
static bool check_packed(Verifier *v, const IrStmt *s) {
  static const uint8_t takes[OP_COUNT] = {
      [OP_COPY] = 1,      [OP_FILL] = 1,      [OP_GEMM] = 1,     [OP_MMAD] = 1, [OP_UNPACK4] = 1, [OP_PACK4] = 1,
      [OP_GM_TO_L1] = 1,  [OP_GM_TO_UB] = 1,  [OP_UB_TO_GM] = 1, [OP_MOVE] = 1, [OP_L1_FILL] = 1,
      [OP_L1_TO_L0A] = 1, [OP_L1_TO_L0B] = 1};
  for (int i = 0; i < s->n_args; i++) {
    const IrRegion *r = s->args[i].kind == ARG_REGION ? &s->args[i].region : NULL;
    if (!r || dtype_values(r->buf->type) == 1) continue;
    bool left = s->op == OP_GEMM && i == 0, right = s->op == OP_GEMM && i == 1;
    bool along_k = !(left && ir_attr(s, ATTR_TRANS_A)) && !(right && !ir_attr(s, ATTR_TRANS_B));
    bool load = s->op == OP_L1_TO_L0A || s->op == OP_L1_TO_L0B;
    along_k &= !load || (ir_attr(s, ATTR_TRANS) != NULL) == (s->op == OP_L1_TO_L0B);
    bool converts = s->op == OP_COPY && s->args[0].region.buf->type != s->args[1].region.buf->type;
    bool turns = s->op == OP_COPY && ir_attr(s, ATTR_TRANS);
    if (takes[s->op] && along_k && !converts && !turns) continue;
    Diag *g = bad(v, PACKED, "'%s' on %%%s of %s, which holds two int4 in a byte%s", oname(s), r->buf->name,
                  tname(r->buf->type), along_k ? "" : ": the two must lie along k");
    diag_fix(v->d, g, "%s",
             !along_k ? "take the left operand as [m, k] and the right one as [n, k], transposed"
                      : "copy it, multiply it, or convert it to f16 and back (unpack4, pack4)");
    return false;
  }
  return true;
}

static void check_pack_dtypes(Verifier *v, const IrStmt *s) {
  const IrBuf *a = s->args[0].region.buf, *b = s->args[1].region.buf;
  bool un = s->op == OP_UNPACK4;
  if (a->type == (un ? DT_I4X2 : DT_F16) && b->type == (un ? DT_F16 : DT_I4X2)) return;
  Diag *g = bad(v, SAME_DTYPE, "'%s' from %%%s of dtype %s to %%%s of dtype %s", oname(s), a->name, tname(a->type),
                b->name, tname(b->type));
  diag_fix(v->d, g, "it goes from %s", un ? "i4x2 to f16" : "f16 to i4x2");
}

static void check_dtypes(Verifier *v, const IrStmt *s) {
  if (!check_packed(v, s)) return;
  switch (op_info[s->op].dtypes) {
  case RULE_PACK: check_pack_dtypes(v, s); return;
  case RULE_ANY:
  case RULE_CAST: return;
  case RULE_MMAD: check_mmad_dtypes(v, s); return;
  case RULE_FIX: check_fix_dtypes(v, s); return;
  case RULE_CMP:
    check_same(v, s, 0, 1);
    check_mask_dtype(v, s, 2);
    return;
  case RULE_SEL:
    check_mask_dtype(v, s, 0);
    check_same(v, s, 1, 3);
    return;
  case RULE_MOVED:
  case RULE_INDEX: check_index_dtypes(v, s); return;
  case RULE_SCORE:
    if (s->op == OP_SORT32) check_index_dtypes(v, s);
    else check_same(v, s, 0, s->n_args - 1);
    return;
  default: check_same(v, s, 0, s->n_args - 1);
  }
}

static bool int_limits(DType t, int64_t *lo, int64_t *hi) {
  int bits = dtype_info[t].bits;
  if (dtype_info[t].cls == 'i') {
    *lo = bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1));
    *hi = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1;
    return true;
  }
  *lo = 0;
  *hi = bits == 64 ? INT64_MAX : ((int64_t)1 << bits) - 1;
  return dtype_info[t].cls == 'u';
}

/* The vector unit takes the width, too: everything is shifted out. A pass may put the counts of a loop in place. */
static void check_shift(Verifier *v, const IrStmt *s, const IrExpr *count) {
  if (v->k->stage || v->lowered) return;
  DType t = out_region(s)->buf->type;
  IrRange by = ir_range(v->k, count);
  if (by.hi >= 0 && by.lo <= dtype_info[t].bits) return;
  Diag *g = bad(v, SHIFT_RANGE, "'%s' shifts %%%s of dtype %s by %s", oname(s), out_region(s)->buf->name, tname(t),
                expr_text(v, count));
  diag_fix(v->d, g, "shift by 0 to %d", dtype_info[t].bits);
}

static void check_scalars(Verifier *v, const IrStmt *s) {
  const IrBuf *dst = out_region(s)->buf;
  DType t = s->op == OP_COMPARE && s->args[0].kind == ARG_REGION ? s->args[0].region.buf->type : dst->type;
  int64_t lo, hi;
  if (s->op == OP_L1_FILL || !int_limits(t, &lo, &hi)) return;
  for (int i = 0; i < ir_n_in(s->op); i++) {
    if (s->args[i].kind != ARG_SCALAR) continue;
    const IrExpr *e = s->args[i].scalar;
    bool fits = e->op != EX_INT && e->op != EX_FLOAT;
    if (e->op == EX_INT) fits = e->i >= lo && e->i <= hi;
    if (e->op == EX_FLOAT) fits = e->f == floor(e->f) && e->f >= (double)lo && e->f <= (double)hi;
    if (fits && (s->op == OP_SHL || s->op == OP_SHR)) check_shift(v, s, e);
    if (fits) continue;
    if (e->op == EX_FLOAT && isfinite(e->f) && e->f != floor(e->f)) {
      Diag *g = bad(v, SCALAR_FITS, "'%s' with the constant %s on %%%s of dtype %s, which holds whole numbers",
                    oname(s), expr_text(v, e), dst->name, tname(t));
      diag_fix(v->d, g, "use a whole number, or a tile of floats");
      continue;
    }
    Diag *g = bad(v, SCALAR_FITS, "'%s' with the constant %s on %%%s of dtype %s, which holds %lld to %lld", oname(s),
                  expr_text(v, e), dst->name, tname(t), ll(lo), ll(hi));
    diag_fix(v->d, g, "use a constant from %lld to %lld, or a wider dtype", ll(lo), ll(hi));
  }
}

typedef struct { const IrStmt *self; IrBuf *buf; } Reader;

static void reads_elements(IrExpr **e, void *user) {
  Reader *r = user;
  if (r->buf && ir_expr_loads(*e, r->buf)) r->buf = NULL;
}

/* False: the statement reads the tile (a product that adds to it does). */
static bool leaves_unread(IrStmt *s, void *user) {
  Reader *r = user;
  ir_stmt_exprs(s, reads_elements, r);
  if (!r->buf || ir_is_say(s)) return false;
  for (int i = 0; ir_is_op(s) && s != r->self && i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION && ir_root(s->args[i].region.buf) == r->buf) return false;
  return true;
}

/* The accumulator begins anew in each iteration, and all but the last product are lost. */
static void check_lost_product(Verifier *v, const IrStmt *s) {
  const IrExpr *init = ir_attr(s, ATTR_INIT);
  IrStmt *loop = s->block ? s->block->parent : NULL;
  if (!init || !ir_is_const(init) || !init->i || !loop || loop->op != ST_FOR) return;
  const IrRegion *c = out_region(s);
  bool known = ir_is_const(loop->loop.lo) && ir_is_const(loop->loop.hi) && ir_is_const(loop->loop.step);
  int64_t span = known ? loop->loop.hi->i - loop->loop.lo->i : 0, step = known ? loop->loop.step->i : 1;
  for (int d = 0; d < c->buf->rank; d++) known &= ir_is_const(c->off[d]);
  if (!known || span * (step > 0 ? 1 : -1) <= (step > 0 ? step : -step)) return; /* not more than one trip */
  Reader r = {s, ir_root(c->buf)};
  if (!ir_walk(&loop->body, leaves_unread, &r)) return;
  Diag *g = bad(v, LOST_PRODUCT,
                "the product into %%%s begins anew in each iteration, and nothing in the loop reads it: only the last "
                "one is kept", c->buf->name);
  diag_other(v->d, g, loop->loc, "the loop");
  diag_fix(v->d, g, "begin anew in the first iteration only, `init(%%%s == %lld)`, to add up over the loop",
           loop->loop.var->name, ll(loop->loop.lo->i));
}

static void check_attrs(Verifier *v, const IrStmt *s) {
  const char *name = oname(s);
  IrExpr *init = ir_attr(s, ATTR_INIT);
  if (init && init->type != DT_BOOL) {
    Diag *g = bad(v, INIT_TYPE, "'%s' has `init(%s)`, which is of dtype %s", name, expr_text(v, init),
                  tname(init->type));
    diag_fix(v->d, g, "write a comparison, such as `k == 0`");
  }
  if (init && (s->op == OP_GEMM || s->op == OP_MMAD)) check_lost_product(v, s);
  if (s->op == OP_COMPARE && !ir_attr(s, ATTR_CMP)) {
    Diag *g = bad(v, CMP_MISSING, "'compare' into %%%s does not say how to compare", out_region(s)->buf->name);
    diag_fix(v->d, g, "add cmp(eq), cmp(ne), cmp(gt), cmp(ge), cmp(lt) or cmp(le)");
  }
  if (s->op == OP_CAST && ir_attr_int(s, ATTR_MODE, CAST_NONE) == CAST_ODD) {
    const IrBuf *a = s->args[0].region.buf, *b = s->args[1].region.buf;
    if (a->type != DT_F32 || b->type != DT_F16) {
      Diag *g = bad(v, CAST_MODE, "`mode(odd)` from %%%s %s to %%%s %s: it is for f32 to f16 only", a->name,
                    tname(a->type), b->name, tname(b->type));
      diag_fix(v->d, g, "use `mode(rint)`");
    }
  }
  bool bits = s->op == OP_AND || s->op == OP_OR;
  for (int i = 1; v->lowered && (bits || s->op == OP_SELECT) && i < ir_n_in(s->op); i++) {
    if (s->args[i].kind == ARG_REGION || (s->op == OP_SELECT && i == 2 && !ir_attr(s, ATTR_MASKREP))) continue;
    Diag *g = bad(v, SCALAR_FORM, "'%s' with the scalar %s: the instruction takes a tile there", name,
                  expr_text(v, s->args[i].scalar));
    diag_fix(v->d, g, "fill a tile with it first");
  }
  if (s->op == OP_ATOMIC_ADD) {
    const IrBuf *a = s->args[0].region.buf, *b = s->args[1].region.buf;
    if (b->space != SPACE_GM || a->space == SPACE_GM) {
      Diag *g = bad(v, ATOMIC_PLACE, "'atomic_add' from %%%s in %s to %%%s in %s: it goes from a tile to global memory",
                    a->name, sname(a), b->name, sname(b));
      diag_fix(v->d, g, "add a local tile to a tensor parameter");
    }
  }
  if (s->op == OP_ATOMIC_ADD || ir_attr(s, ATTR_ATOMIC)) {
    const IrBuf *b = s->args[1].region.buf;
    if (!ir_gm_adds(b->type)) {
      Diag *g = bad(v, DTYPE_LIST, "an atomic addition to %%%s of dtype %s; the DMA adds %s", b->name, tname(b->type),
                    IR_ADDS);
      diag_fix(v->d, g, "keep the sums in a tensor of one of these dtypes, and convert it afterwards");
    }
  }
}

/* ---- ops: shapes -------------------------------------------------------------------------------------------- */

typedef struct { IrExpr *e[IR_MAX_RANK]; int n; } Extents;

static Extents extents(const IrRegion *r) {
  Extents x = {.n = r->buf->rank};
  memcpy(x.e, r->ext, sizeof x.e);
  return x;
}

static Extents drop_ones(Extents x) {
  Extents y = {.n = 0};
  for (int i = 0; i < x.n; i++)
    if (!ir_is_int(x.e[i], 1)) y.e[y.n++] = x.e[i];
  return y;
}

static Extents without(const Extents *x, int axis) {
  Extents y = {.n = 0};
  for (int i = 0; i < x->n; i++)
    if (i != axis) y.e[y.n++] = x->e[i];
  return y;
}

static bool same_extents(Verifier *v, Extents a, Extents b) {
  if (a.n != b.n) return false;
  for (int i = 0; i < a.n; i++)
    if (differ(v, a.e[i], b.e[i])) return false;
  return true;
}

/* The region as [rows, cols]; false: more leading extents than ones. */
static bool matrix(Verifier *v, const IrRegion *r, IrExpr **rows, IrExpr **cols) {
  int n = r->buf->rank;
  for (int i = 0; i < n - 2; i++)
    if (differ(v, r->ext[i], ir_i32(v->k, 1))) return false;
  if (n < 2) return false;
  *rows = r->ext[n - 2];
  *cols = r->ext[n - 1];
  return true;
}

static void check_copy_shape(Verifier *v, const IrStmt *s) {
  const IrRegion *a = &s->args[0].region, *b = &s->args[1].region;
  Extents x = drop_ones(extents(a)), y = drop_ones(extents(b));
  bool trans = s->op == OP_COPY && ir_attr(s, ATTR_TRANS);
  if (trans && x.n >= 2) {
    IrExpr *e = x.e[x.n - 1];
    x.e[x.n - 1] = x.e[x.n - 2];
    x.e[x.n - 2] = e;
  }
  if (same_extents(v, x, y)) return;
  Diag *g = bad(v, COPY_SHAPE, "'%s' from %s to %s%s: the extents differ", oname(s), operand_text(v, a),
                operand_text(v, b), trans ? ", transposed" : "");
  if (trans) diag_fix(v->d, g, "the destination must be [n, m] where the source is [m, n]");
  else
    diag_fix(v->d, g, "slice %%%s to %s, or make %%%s %s", a->buf->name, shape_text(v, b->ext, b->buf->rank),
             b->buf->name, shape_text(v, a->ext, a->buf->rank));
}

/* May an input of extents a stand where the result has extents b? Trailing dimensions are matched; 1 repeats, and in UB
 * a last extent of one 32-byte block serves the row. */
static bool repeats_to(Verifier *v, const IrRegion *in, Extents b) {
  Extents a = extents(in);
  if (same_extents(v, drop_ones(a), drop_ones(b))) return true;
  while (a.n > b.n && ir_is_int(a.e[0], 1)) a = without(&a, 0);
  if (a.n > b.n) return false;
  for (int i = 1; i <= a.n; i++) {
    IrExpr *x = a.e[a.n - i], *y = b.e[b.n - i];
    bool block = i == 1 && in->buf->space == SPACE_UB && ir_is_int(x, dtype_c0(in->buf->type));
    if (!ir_is_int(x, 1) && !block && differ(v, x, y)) return false;
  }
  return true;
}

static bool is_mask(const IrStmt *s, int i) {
  return (s->op == OP_COMPARE && i == 2) || (s->op == OP_SELECT && i == 0);
}

static void check_tile_shape(Verifier *v, const IrStmt *s) {
  int ref = s->op == OP_COMPARE ? 0 : ir_n_in(s->op);
  const IrRegion *dst = &s->args[ref].region;
  for (int i = 0; i < ir_n_in(s->op); i++) {
    const IrRegion *r = in_region(s, i);
    if (!r || is_mask(s, i) || i == ref || repeats_to(v, r, extents(dst))) continue;
    Diag *g = bad(v, TILE_SHAPE, "'%s' has operands %s and %s: the extents differ", oname(s), operand_text(v, r),
                  operand_text(v, dst));
    diag_fix(v->d, g, "give %%%s the extents %s, or 1 where it repeats", r->buf->name,
             shape_text(v, dst->ext, dst->buf->rank));
    return;
  }
}

static void check_gemm_shape(Verifier *v, const IrStmt *s) {
  IrExpr *m = NULL, *ka = NULL, *kb = NULL, *n = NULL, *cm = NULL, *cn = NULL;
  const IrRegion *a = &s->args[0].region, *b = &s->args[1].region, *c = &s->args[2].region;
  bool ta = ir_attr(s, ATTR_TRANS_A), tb = ir_attr(s, ATTR_TRANS_B);
  bool fit = matrix(v, a, ta ? &ka : &m, ta ? &m : &ka) && matrix(v, b, tb ? &n : &kb, tb ? &kb : &n) &&
             matrix(v, c, &cm, &cn);
  if (fit && !differ(v, ka, kb) && !differ(v, m, cm) && !differ(v, n, cn)) return;
  Diag *g = bad(v, GEMM_SHAPE, "'%s' multiplies %s%s by %s%s into %s: the sizes do not agree", oname(s),
                operand_text(v, a), ta ? " transposed" : "", operand_text(v, b), tb ? " transposed" : "",
                operand_text(v, c));
  if (!fit) diag_fix(v->d, g, "a matrix has two dimensions, with extents of 1 before them");
  else if (differ(v, ka, kb))
    diag_fix(v->d, g, "the inner sizes are %s and %s: make them equal", expr_text(v, ka), expr_text(v, kb));
  else diag_fix(v->d, g, "the result must be [%s, %s]", expr_text(v, m), expr_text(v, n));
}

static void check_axis(Verifier *v, const IrStmt *s) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  const IrRegion *big = s->op == OP_BROADCAST ? dst : src, *small = s->op == OP_BROADCAST ? src : dst;
  IrExpr *dim = ir_attr(s, ATTR_DIM);
  if (!dim && s->op == OP_BROADCAST) {
    check_tile_shape(v, s);
    return;
  }
  int64_t axis = dim && dim->op == EX_INT ? dim->i : big->buf->rank - 1;
  if (axis < 0 || axis >= big->buf->rank) {
    Diag *g = bad(v, AXIS, "'%s' has dim(%lld); %%%s has %d dimensions", oname(s), ll(axis), big->buf->name,
                  big->buf->rank);
    diag_fix(v->d, g, "use 0 to %d", big->buf->rank - 1);
    return;
  }
  Extents whole = extents(big), want = without(&whole, (int)axis);
  if (same_extents(v, drop_ones(want), drop_ones(extents(small)))) return;
  Diag *g = bad(v, AXIS_SHAPE, "'%s' along axis %lld from %s to %s: the extents do not agree", oname(s), ll(axis),
                operand_text(v, src), operand_text(v, dst));
  diag_fix(v->d, g, "make %%%s %s", small->buf->name, shape_text(v, want.e, want.n));
}

static void check_mask_size(Verifier *v, const IrStmt *s) {
  int at = s->op == OP_COMPARE ? 2 : 0, ref = s->op == OP_COMPARE ? 0 : 3;
  const IrRegion *mask = in_region(s, at), *data = &s->args[ref].region;
  int64_t bytes, elems;
  if (!mask || !is_const(ir_count(v->k, mask), &bytes) || !is_const(ir_count(v->k, data), &elems)) return;
  if (ir_attr(s, ATTR_MASKREP)) elems = min_i64(elems, 256 / dtype_size(data->buf->type));
  if (mask->buf->type != DT_U8 || bytes >= ceil_div(elems, 8)) return;
  Diag *g = bad(v, MASK_SIZE, "'%s' of %lld elements with the mask %s of %lld bytes", oname(s), ll(elems),
                operand_text(v, mask), ll(bytes));
  diag_fix(v->d, g, "the mask needs %lld bytes", ll(ceil_div(elems, 8)));
}

/* Elements that the pattern 1 to 7 of gather_mask chooses from n; -1: not known. */
static int64_t chosen(int64_t pattern, int64_t n) {
  if (n < 0 || pattern < 1 || pattern > 7) return -1;
  if (pattern <= 2) return (n + (pattern == 1)) / 2;
  return pattern == 7 ? n : (n + 6 - pattern) / 4;
}

static void bad_count(Verifier *v, const IrStmt *s, int arg, int64_t want, const char *fix) {
  const IrRegion *r = &s->args[arg].region;
  int64_t have;
  if (want < 0 || !is_const(ir_count(v->k, r), &have) || have == want) return;
  Diag *g = bad(v, MOVED_COUNT, "'%s' with %s: its %lld elements should be %lld", oname(s), operand_text(v, r),
                ll(have), ll(want));
  diag_fix(v->d, g, "%s", fix);
}

static int64_t count_of(Verifier *v, const IrStmt *s, int arg) {
  int64_t n;
  return s->args[arg].kind == ARG_REGION && is_const(ir_count(v->k, &s->args[arg].region), &n) ? n : -1;
}

static void check_mask_count(Verifier *v, const IrStmt *s) {
  int64_t n = count_of(v, s, 0), bits = count_of(v, s, 1);
  if (s->args[1].kind == ARG_REGION) {
    int64_t want = ceil_div(n, dtype_info[s->args[1].region.buf->type].bits);
    if (n >= 0 && bits >= 0 && bits < want) bad_count(v, s, 1, want, "one bit for each element of the source");
    return;
  }
  int64_t pattern;
  if (!is_const(s->args[1].scalar, &pattern) || pattern < 1 || pattern > 7) {
    Diag *g = bad(v, MOVED_FORM, "'gather_mask' with the pattern %s", expr_text(v, s->args[1].scalar));
    diag_fix(v->d, g, "a constant: 1 even elements, 2 odd ones, 3 to 6 one of each four, 7 all; or a tile of bits");
    return;
  }
  bad_count(v, s, 2, chosen(pattern, n), "as many as the pattern chooses from the source");
}

/* Counts of the ops that move and sort elements. */
static void check_moved_counts(Verifier *v, const IrStmt *s) {
  int last = s->n_args - 1, size = dtype_size(s->args[last].region.buf->type);
  int64_t a = count_of(v, s, 0), b = s->n_args > 2 ? count_of(v, s, 1) : -1, dst = count_of(v, s, last), sum = 0;
  IrExpr *m, *n, *dm, *dn;
  switch (s->op) {
  case OP_GATHER: bad_count(v, s, 3, b, "one for each offset"); return;
  case OP_GATHERB: bad_count(v, s, 2, b < 0 ? -1 : b * (32 / size), "one block of 32 bytes for each offset"); return;
  case OP_GATHER_MASK: check_mask_count(v, s); return;
  case OP_UNPACK4: bad_count(v, s, 1, a < 0 ? -1 : 2 * a, "two for each byte"); return;
  case OP_PACK4: bad_count(v, s, 0, dst < 0 ? -1 : 2 * dst, "two for each byte"); return;
  case OP_SORT32:
    bad_count(v, s, 1, a, "one index for each score");
    bad_count(v, s, 2, a < 0 ? -1 : a * (8 / size), "8 bytes for each score");
    return;
  case OP_MERGE2:
  case OP_MERGE3:
  case OP_MERGE4:
    for (int i = 0; i < last; i++) sum = sum < 0 || count_of(v, s, i) < 0 ? -1 : sum + count_of(v, s, i);
    bad_count(v, s, last, sum, "as many as the lists together");
    return;
  case OP_SORT:
    if (a >= 0 && dst > 2 * round_up(a, 32)) bad_count(v, s, 2, 2 * a, "at most a value and an index for each element");
    else if (dst % 2 == 1) bad_count(v, s, 2, dst + 1, "a value and an index for each element");
    return;
  case OP_TRANSPOSE:
    if (matrix(v, &s->args[0].region, &m, &n) && matrix(v, &s->args[1].region, &dm, &dn) && !differ(v, m, dn) &&
        !differ(v, n, dm))
      return;
    diag_fix(v->d,
             bad(v, MOVED_COUNT, "'transpose' from %s to %s: the extents do not agree",
                 operand_text(v, &s->args[0].region), operand_text(v, &s->args[1].region)),
             "the result of a matrix [m, n] is [n, m]");
    return;
  default: return;
  }
}

static bool is_elementwise(StmtOp op) { return op == OP_MOVE || (op >= OP_FILL && op <= OP_SELECT); }

static void check_shapes(Verifier *v, const IrStmt *s) {
  switch (s->op) {
  case OP_COPY:
  case OP_ATOMIC_ADD: check_copy_shape(v, s); return;
  case OP_GEMM:
  case OP_MMAD: check_gemm_shape(v, s); return;
  case OP_BROADCAST:
  case OP_REDUCE_SUM:
  case OP_REDUCE_MAX:
  case OP_REDUCE_MIN:
  case OP_REDUCE_ABSSUM:
  case OP_REDUCE_ABSMAX:
  case OP_REDUCE_AND:
  case OP_REDUCE_OR:
  case OP_REDUCE_XOR: check_axis(v, s); return;
  case OP_CUMSUM:
  case OP_CUMMAX: check_tile_shape(v, s); return;
  case OP_GATHER:
  case OP_GATHERB:
  case OP_GATHER_MASK:
  case OP_UNPACK4:
  case OP_PACK4:
  case OP_SORT:
  case OP_SORT32:
  case OP_MERGE2:
  case OP_MERGE3:
  case OP_MERGE4:
  case OP_TRANSPOSE: check_moved_counts(v, s); return;
  case OP_COMPARE:
  case OP_SELECT: check_mask_size(v, s); break;
  default: break;
  }
  if (!v->lowered && op_info[s->op].level != 'l' && is_elementwise(s->op)) check_tile_shape(v, s);
}

/* ---- lowered: what one instruction can do ------------------------------------------------------------------- */

/* A region as rows (ir_rows), in constants where they are known: -1 = not. */
typedef struct { IrRows e; int64_t rows, cols, pitch; } Rows;

static int64_t const_or(const IrExpr *e) { return e->op == EX_INT ? e->i : -1; }

static bool rows_of(Verifier *v, const IrStmt *s, const IrRegion *r, Rows *out) {
  if (!ir_rows(v->k, r, &out->e)) {
    Diag *g = bad(v, VECTOR_FORM, "operand %s of '%s' needs more than two strides", region_text(v, r),
                  oname(s));
    diag_fix(v->d, g, "use several instructions, one for each step of an outer dimension");
    return false;
  }
  out->rows = const_or(out->e.rows);
  out->cols = const_or(out->e.cols);
  out->pitch = const_or(out->e.pitch);
  return true;
}

static void check_start(Verifier *v, const IrStmt *s, const IrRegion *r, const IrExpr *off) {
  int size = dtype_size(r->buf->type);
  int64_t rest;
  if (r->buf->space != SPACE_UB || !ir_residue(off, 32 / size, &rest) || !rest) return;
  Diag *g = bad(v, UB_START, "operand %s of '%s' starts %lld bytes after a multiple of 32", region_text(v, r),
                oname(s), ll(rest * size));
  diag_fix(v->d, g, "start on a multiple of %d elements of %s", 32 / size, tname(r->buf->type));
}

static void check_pitch(Verifier *v, const IrStmt *s, const IrRegion *r, int64_t rows, int64_t pitch) {
  int size = dtype_size(r->buf->type);
  if (r->buf->space != SPACE_UB || rows <= 1 || pitch < 0 || pitch * size % 32 == 0) return;
  Diag *g = bad(v, UB_PITCH, "the rows of %s in '%s' are %lld bytes apart", region_text(v, r), oname(s),
                ll(pitch * size));
  diag_fix(v->d, g, "pad the rows of %%%s to a multiple of %d elements", r->buf->name, 32 / size);
}

static void check_row_bytes(Verifier *v, const IrStmt *s, int64_t rows, int64_t cols) {
  int widest = 0;
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION || is_mask(s, i)) continue;
    int size = dtype_size(s->args[i].region.buf->type);
    if (size > widest) widest = size;
  }
  if (rows <= 1 || cols * widest <= 256) return;
  Diag *g = bad(v, VECTOR_ROW, "'%s' has %lld rows of %lld elements, %lld bytes each", oname(s), ll(rows), ll(cols),
                ll(cols * widest));
  diag_fix(v->d, g, "cut the rows into pieces of at most %d elements", 256 / widest);
}

/* How two boxes of one buffer lie to each other. */
typedef enum { BOX_APART, BOX_EQUAL, BOX_START, BOX_PART } Meet; /* APART: or not known; START: begin together */

static Meet meet(Verifier *v, const IrRegion *a, const IrRegion *b) {
  bool start = true, equal = true;
  for (int i = 0; i < a->buf->rank; i++) {
    int64_t diff, ea, eb;
    if (!ir_const_diff(v->k, a->off[i], b->off[i], &diff)) return BOX_APART;
    if (!is_const(a->ext[i], &ea) || !is_const(b->ext[i], &eb) || diff >= eb || -diff >= ea) return BOX_APART;
    start &= diff == 0;
    equal &= ea == eb;
  }
  return !start ? BOX_PART : equal ? BOX_EQUAL : BOX_START;
}

/* Instructions that move elements do not work in place; choosing some may, to the front. */
static bool moves_elements(StmtOp op) {
  DTypeRule rule = op_info[op].dtypes;
  return rule == RULE_MOVED || rule == RULE_INDEX || rule == RULE_SCORE;
}

/* An input and the result: the same elements or none in common; none for what moves elements. */
static void check_overlap(Verifier *v, const IrStmt *s) {
  const IrRegion *out = out_region(s);
  for (int i = 0; i < ir_n_in(s->op); i++) {
    const IrRegion *r = in_region(s, i);
    Meet how = r && r->buf == out->buf ? meet(v, r, out) : BOX_APART;
    bool works = s->op == OP_GATHER_MASK ? i == 0 && how != BOX_PART : !moves_elements(s->op) && how == BOX_EQUAL;
    if (how == BOX_APART || works) continue;
    Diag *g = bad(v, OVERLAP, "'%s' reads %s while it writes %s", oname(s), region_text(v, r), region_text(v, out));
    diag_fix(v->d, g, moves_elements(s->op) ? "write to another buffer: the instruction does not work in place"
                                            : "write to another buffer, or to exactly the elements that are read");
  }
}

/* Starts, pitches and the length of rows; the form itself is read by ir_vec. The result of `row_*` starts anywhere. */
static void check_vector(Verifier *v, const IrStmt *s) {
  IrVec x;
  bool reduces = s->op == OP_ROW_SUM || s->op == OP_ROW_MAX || s->op == OP_ROW_MIN;
  if (!ir_vec(v->k, s, &x)) {
    Diag *g;
    if (reduces) {
      g = bad(v, ROW_RESULT, "'%s' from %s to %s: the result is not one element a row", oname(s),
              operand_text(v, in_region(s, 0)), operand_text(v, out_region(s)));
      diag_fix(v->d, g, "write one row with one element for each row of %%%s", in_region(s, 0)->buf->name);
    } else {
      Text t;
      text_init(&t, v->a);
      for (int i = 0; i < s->n_args; i++)
        if (in_region(s, i)) text_printf(&t, "%s%s", t.len ? ", " : "", region_text(v, in_region(s, i)));
      g = bad(v, VECTOR_FORM, "'%s' cannot run over %s in one instruction", oname(s), text_str(&t));
      diag_fix(v->d, g, "use rows of the same count and length, one row for all, or rows of 32 bytes");
    }
    return;
  }
  int64_t rows = const_or(x.rows), cols = const_or(x.cols);
  for (int i = 0; i < s->n_args; i++) {
    if (s->args[i].kind != ARG_REGION || (reduces && i == 1)) continue;
    check_start(v, s, &s->args[i].region, x.arg[i].off);
    if (!is_mask(s, i)) check_pitch(v, s, &s->args[i].region, rows, x.arg[i].pitch);
  }
  check_row_bytes(v, s, reduces && rows == 1 ? 2 : rows, cols);
  if (!reduces) check_overlap(v, s);
}

static void check_brcb(Verifier *v, const IrStmt *s) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  IrVec x;
  bool fits = ir_vec(v->k, s, &x);
  if (fits) {
    check_start(v, s, src, x.arg[0].off);
    check_start(v, s, dst, x.arg[1].off);
  }
  if (fits && (const_or(x.rows) < 0 || x.rows->i % 8 == 0)) return;
  Diag *g = bad(v, BRCB_SHAPE, "'brcb' from %s to %s: the sizes do not agree", operand_text(v, src),
                operand_text(v, dst));
  diag_fix(v->d, g, "read a row of n elements, n a multiple of 8, and write [n, %d]", dtype_c0(src->buf->type));
}

static void bad_form(Verifier *v, const IrStmt *s, const IrRegion *r, const char *what) {
  Diag *g = bad(v, MOVED_FORM, "operand %s of '%s' is not %s", region_text(v, r), oname(s), what);
  diag_fix(v->d, g, "make it %s", what);
}

/* Instructions that move or sort elements work on runs; a count must be a multiple of `unit`. */
static void check_runs(Verifier *v, const IrStmt *s) {
  bool merges = s->op == OP_MERGE2 || s->op == OP_MERGE3 || s->op == OP_MERGE4;
  for (int i = 0; i < s->n_args; i++) {
    const IrRegion *r = &s->args[i].region;
    IrRows rows;
    int64_t n = count_of(v, s, i), rest;
    if (s->args[i].kind != ARG_REGION) continue;
    int size = dtype_size(r->buf->type), list = merges && i < s->n_args - 1;
    if (!ir_rows(v->k, r, &rows) || !ir_is_int(rows.rows, 1)) {
      bad_form(v, s, r, "one run of elements");
      return;
    }
    if (!list) check_start(v, s, r, rows.off);
    else if (ir_residue(rows.off, 8 / size, &rest) && rest) bad_form(v, s, r, "a list that starts on 8 bytes");
    if (merges && n >= 0 && n * size % 8) bad_form(v, s, r, "a list of whole records of 8 bytes");
    if (list && n >= 0 && n * size / 8 > 4095) bad_form(v, s, r, "a list of at most 4095 records");
    if (s->op == OP_SORT32 && i < 2 && n >= 0 && n % 32) bad_form(v, s, r, "a multiple of 32 elements long");
    if (s->op == OP_GATHERB && i == 1 && n >= 0 && n % 8) bad_form(v, s, r, "a multiple of 8 offsets long");
  }
}

static void check_transpose(Verifier *v, const IrStmt *s) {
  for (int i = 0; i < 2; i++) {
    const IrRegion *r = &s->args[i].region;
    Rows rows;
    if (!rows_of(v, s, r, &rows)) return;
    check_start(v, s, r, rows.e.off);
    IrExpr *m, *n;
    if (!matrix(v, r, &m, &n) || const_or(m) % 16 || const_or(n) % 16) {
      bad_form(v, s, r, "a matrix whose rows and columns are multiples of 16");
      return;
    }
  }
}

/* row_argmax, row_argmin: value and index for each row. */
static void check_row_arg(Verifier *v, const IrStmt *s) {
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  Rows a, b;
  if (!rows_of(v, s, src, &a) || !rows_of(v, s, dst, &b)) return;
  check_start(v, s, src, a.e.off);
  int64_t out = count_of(v, s, 1), in = count_of(v, s, 0);
  if (out < 0 || in < 0) return;
  int64_t rows = out / 2, cols = rows ? in / rows : 0, size = dtype_size(src->buf->type);
  if (b.rows == 1 && out % 2 == 0 && rows && in % rows == 0 && (a.rows == rows || a.rows == 1)) {
    check_pitch(v, s, src, rows, a.rows == 1 ? cols : a.pitch);
    if (cols * size > 256) check_row_bytes(v, s, 2, cols);
    return;
  }
  Diag *g = bad(v, ROW_RESULT, "'%s' from %s to %s: the result is not two elements a row", oname(s),
                operand_text(v, src), operand_text(v, dst));
  diag_fix(v->d, g, "write one row with a value and an index for each row of %%%s", src->buf->name);
}

static void check_dma(Verifier *v, const IrStmt *s) {
  bool in = s->op == OP_GM_TO_UB;
  const IrRegion *ub = &s->args[in].region, *gm = &s->args[!in].region;
  Rows u, g;
  if (!rows_of(v, s, ub, &u) || !rows_of(v, s, gm, &g)) return;
  check_start(v, s, ub, u.e.off);
  bool one_u = u.rows == 1, one_g = g.rows == 1;
  bool same = one_u || one_g ? !differ(v, ir_count(v->k, ub), ir_count(v->k, gm))
                             : !differ(v, u.e.rows, g.e.rows) && !differ(v, u.e.cols, g.e.cols);
  if (!same) {
    Diag *d = bad(v, DMA_SHAPE, "'%s' between %s and %s: the extents differ", oname(s), operand_text(v, gm),
                  operand_text(v, ub));
    diag_fix(v->d, d, "move the same rows and columns on both sides");
    return;
  }
  const Rows *form = one_g ? &u : &g;
  int64_t cols = form->cols, rows = form->rows;
  check_pitch(v, s, ub, rows, one_u ? cols : u.pitch);
  int size = dtype_size(ub->buf->type);
  bool long_rows = cols > 2097151 / size && !v->k->stage; /* more than UB holds: memplan says so */
  if (rows <= 4095 && !long_rows) return;
  Diag *d = bad(v, DMA_LIMIT, "'%s' moves %lld rows of %lld bytes", oname(s), ll(rows), ll(cols * size));
  diag_fix(v->d, d, "cut it into moves of at most 4095 rows of 2097151 bytes");
}

static void check_fractal_start(Verifier *v, const IrStmt *s, int arg) {
  const IrRegion *r = &s->args[arg].region;
  int unit, dim = ir_fractal_split(s, arg, &unit);
  if (dim < 0) return;
  Diag *g = bad(v, FRACTAL_START, "box %s of '%s' starts at %s `%s`; a fractal of %%%s has %d", region_text(v, r),
                oname(s), dim == r->buf->rank - 1 ? "column" : "row", expr_text(v, r->off[dim]), r->buf->name, unit);
  diag_fix(v->d, g, "start on a multiple of %d", unit);
}

static void check_fractal_move(Verifier *v, const IrStmt *s) {
  const IrRegion *a = &s->args[0].region, *b = &s->args[1].region;
  for (int i = 0; i < 2; i++) check_fractal_start(v, s, i);
  Extents x = drop_ones(extents(a)), y = drop_ones(extents(b));
  bool trans = ir_attr(s, ATTR_TRANS);
  if (trans && x.n == 2) {
    IrExpr *e = x.e[0];
    x.e[0] = x.e[1];
    x.e[1] = e;
  }
  if (same_extents(v, x, y)) return;
  Diag *g = bad(v, FRACTAL_SHAPE, "'%s' from %s to %s%s: the extents differ", oname(s), operand_text(v, a),
                operand_text(v, b), trans ? ", transposed" : "");
  diag_fix(v->d, g, "give both boxes the same rows and columns");
}

static void check_mmad_limit(Verifier *v, const IrStmt *s) {
  for (int i = 0; i < 3; i++) {
    const IrRegion *r = &s->args[i].region;
    check_fractal_start(v, s, i);
    for (int d = 0; d < r->buf->rank; d++) {
      bool k = d == r->buf->rank - 1 - i && i < 2;
      if (const_or(r->ext[d]) * (k ? dtype_values(r->buf->type) : 1) <= 4095) continue;
      Diag *g = bad(v, MMAD_LIMIT, "'mmad' with operand %s; one instruction takes 4095", operand_text(v, r));
      diag_fix(v->d, g, "cut the product into pieces");
      return;
    }
  }
}

static void check_instruction(Verifier *v, const IrStmt *s) {
  if (moves_elements(s->op) && op_info[s->op].pipe == PIPE_V) check_overlap(v, s);
  switch (s->op) {
  case OP_GM_TO_UB:
  case OP_UB_TO_GM: check_dma(v, s); return;
  case OP_GM_TO_L1:
  case OP_L1_TO_L0A:
  case OP_L1_TO_L0B:
  case OP_L0C_TO_GM:
  case OP_L0C_TO_L1: check_fractal_move(v, s); return;
  case OP_MMAD: check_mmad_limit(v, s); return;
  case OP_BRCB: check_brcb(v, s); return;
  case OP_GATHER:
  case OP_GATHERB:
  case OP_GATHER_MASK:
  case OP_UNPACK4:
  case OP_PACK4:
  case OP_SORT32:
  case OP_MERGE2:
  case OP_MERGE3:
  case OP_MERGE4: check_runs(v, s); return;
  case OP_TRANSPOSE: check_transpose(v, s); return;
  case OP_ROW_ARGMAX:
  case OP_ROW_ARGMIN: check_row_arg(v, s); return;
  default:
    if (op_info[s->op].pipe == PIPE_V) check_vector(v, s);
  }
}

void ir_verify_op(IrKernel *k, Diags *d, const IrStmt *s, const IrStmt *side) {
  /* no pass corrects it any more */
  bool lowered = k->level == LEVEL_LOWERED || k->facts & FACT_LOWERED || op_info[s->op].level == 'l';
  Verifier verifier = {k, d, k->module->arena, s, side, lowered}, *v = &verifier;
  uint32_t before = d->n_errors;
  check_attrs(v, s);
  check_spaces(v, s);
  check_dtypes(v, s);
  check_scalars(v, s);
  if (d->n_errors == before) check_shapes(v, s);
  if (v->lowered && d->n_errors == before) check_instruction(v, s);
}
