/* legalize_mask.c - compare and select: flat only, one bit an element, lowest bit first.
 *
 * The unit compares whole repeats of 256 bytes. A tile whose size is no multiple of that is copied into padded scratch,
 * compared there, and the bytes of the mask that belong to it are moved out. */
#include "legalize.h"

#include <string.h>

static IrExpr *count_of(Lg *g, const Nest *n) {
  IrExpr *c = ir_i32(g->k, 1);
  for (int d = 0; d < n->n; d++) c = ir_binary(g->k, EX_MUL, c, n->ext[d]);
  return c;
}

static int64_t max_count(const Nest *n) {
  int64_t c = 1;
  for (int d = 0; d < n->n; d++) c *= n->max[d];
  return c;
}

/* The mask holds a bit for every element of the tile. */
static bool mask_fits(Lg *g, const Nest *n, const IrRegion *mask, const IrRegion *tile) {
  IrExpr *bytes = ir_binary(g->k, EX_FDIV, ir_binary(g->k, EX_ADD, count_of(g, n), ir_i32(g->k, 7)), ir_i32(g->k, 8));
  if (mask->buf->type != DT_U8) {
    Diag *d = diag_add(g->p->diags, DIAG_LEG_DTYPE, g->loc,
                       "'%s': the mask %%%s is %s; a mask is one bit an element in u8 bytes", op_info[g->s->op].name,
                       mask->buf->name, dtype_info[mask->buf->type].name);
    diag_fix(g->p->diags, d, "declare %%%s as u8", mask->buf->name);
    g->failed = true;
    return false;
  }
  IrExpr *there = ir_count(g->k, mask);
  if (lg_same(g, bytes, there) || ir_prove_le(g->k, bytes, there)) return true;
  Text t;
  text_init(&t, g->a);
  ir_print_expr(&t, bytes);
  Diag *d = diag_add(g->p->diags, DIAG_LEG_SHAPE, g->loc,
                     "'%s': the mask %%%s is %s, %%%s of %s needs %s bytes of mask", op_info[g->s->op].name,
                     mask->buf->name, lg_shape(g, mask), tile->buf->name, lg_shape(g, tile), text_str(&t));
  diag_fix(g->p->diags, d, "give the mask one byte for every 8 elements");
  g->failed = true;
  return false;
}

/* The contiguous tile o at the start of a run of `padded` elements whose rest is zero. */
static Opd padded_run(Lg *g, const Nest *n, Opd o, int64_t padded) {
  Nest whole;
  DType t = opd_type(&o);
  Opd run = lg_temp1(g, t, padded, &whole), part = run;
  lg_emit2(g, &whole, OP_FILL, lg_number(g, t, 0), run);
  part.r.ext[0] = count_of(g, n);
  lg_put(g, OP_MOVE, (Opd[]){o, part}, 2, NO_ATTR, 0);
  return run;
}

/* a and b are contiguous over n, dtype f16 or f32 (i32: eq only); b may be a scalar. */
static void compare_runs(Lg *g, const Nest *n, Opd a, Opd b, CmpMode mode, const IrRegion *mask) {
  int64_t e = g->p->arch->repeat_bytes / dtype_size(opd_type(&a)), padded = round_up(max_count(n), e);
  Nest m, whole;
  Opd to;
  if (!lg_nest(g, mask, &m, &to)) return;
  bool exact = ir_is_const(count_of(g, n)) && max_count(n) == padded;
  if (!exact) {
    a = padded_run(g, n, a, padded);
    if (!b.scalar) b = padded_run(g, n, b, padded);
  }
  bool room = ir_is_const(count_of(g, &m)) && max_count(&m) * 8 >= padded;
  if (room && lg_is_dense(g, &m, &to)) {
    if (m.n == 1) to.r.ext[to.dim[0]] = ir_i32(g->k, padded / 8);
    lg_put(g, OP_COMPARE, (Opd[]){a, b, to}, 3, ATTR_CMP, mode);
    return;
  }
  if (m.n != 1) {
    Diag *d = diag_add(g->p->diags, DIAG_LEG_FORM, g->loc,
                       "'compare': the mask %%%s%s is not one contiguous run with room for %lld bits", mask->buf->name,
                       lg_shape(g, mask), (long long)padded);
    diag_fix(g->p->diags, d, "use a whole one-dimensional u8 buffer as the mask");
    g->failed = true;
    return;
  }
  Opd bits = lg_temp1(g, DT_U8, padded / 8, &whole);
  lg_put(g, OP_COMPARE, (Opd[]){a, b, bits}, 3, ATTR_CMP, mode);
  bits.r.ext[0] = m.ext[0];
  lg_copy(g, &m, bits, to);
}

/* i32 in terms of equality alone; all of it exact modulo 2^32. */
static void compare_i32(Lg *g, const Nest *n, Opd a, Opd b, CmpMode mode, const IrRegion *mask) {
  if (mode == CMP_EQ) {
    compare_runs(g, n, a, b, CMP_EQ, mask);
    return;
  }
  Opd t = lg_temp(g, n, DT_I32);
  if (mode == CMP_LE || mode == CMP_GE) {
    lg_emit3(g, n, mode == CMP_LE ? OP_MIN : OP_MAX, a, b, t);
    compare_runs(g, n, t, a, CMP_EQ, mask);
    return;
  }
  if (mode == CMP_NE) {
    lg_binary(g, n, OP_SUB, DT_I32, a, b, t);
  } else { /* a < b: max(a, b) - a is not 0 */
    lg_emit3(g, n, mode == CMP_LT ? OP_MAX : OP_MIN, a, b, t);
    lg_emit3(g, n, OP_SUB, t, a, t);
  }
  lg_emit3(g, n, OP_MAX, t, lg_number(g, DT_I32, -1), t);
  lg_emit3(g, n, OP_MIN, t, lg_number(g, DT_I32, 1), t);
  lg_emit3(g, n, OP_MUL, t, t, t);
  compare_runs(g, n, t, lg_number(g, DT_I32, 1), CMP_EQ, mask);
}

static CmpMode mirrored(CmpMode m) {
  switch (m) {
  case CMP_GT: return CMP_LT;
  case CMP_LT: return CMP_GT;
  case CMP_GE: return CMP_LE;
  case CMP_LE: return CMP_GE;
  default: return m;
  }
}

/* f16 or f32 that holds t exactly; i32: itself; DTYPE_COUNT: none. */
static DType exact_float(DType t) {
  switch (t) {
  case DT_F16:
  case DT_F32:
  case DT_I32: return t;
  case DT_I8:
  case DT_U8: return DT_F16;
  case DT_BF16:
  case DT_I16: return DT_F32;
  default: return dtype_is_float(t) ? DT_F32 : DTYPE_COUNT;
  }
}

void lg_compare(Lg *g) {
  const IrStmt *s = g->s;
  Opd arg[2]; /* the second stands for the destination of lg_prepare: it has every dimension */
  Nest n;
  Finish unused;
  CmpMode mode = (CmpMode)ir_attr_int(s, ATTR_CMP, CMP_EQ);
  const IrRegion *a = &s->args[0].region, *b = s->args[1].kind == ARG_REGION ? &s->args[1].region : NULL, *tile = a;
  if (!lg_nest(g, a, &n, &arg[1])) return;
  if (!b) {
    arg[0] = lg_scalar(lg_hoist(g, s->args[1].scalar));
  } else if (!lg_fit(g, &n, a, b, -1, &arg[0])) {
    tile = b;
    mode = mirrored(mode);
    if (!lg_nest(g, b, &n, &arg[1])) return;
    if (!lg_fit(g, &n, b, a, -1, &arg[0])) {
      lg_shape_error(g, a, b);
      return;
    }
  }
  if (!mask_fits(g, &n, &s->args[2].region, tile)) return;
  DType t = arg[0].scalar ? opd_type(&arg[1]) : lg_common(opd_type(&arg[0]), opd_type(&arg[1])), w = exact_float(t);
  if (w == DTYPE_COUNT) {
    lg_no_dtype(g, t, "compare i32, i16, f16 or f32 tiles");
    return;
  }
  lg_prepare(g, &n, arg, 2, true, &unused);
  for (int i = 0; i < 2; i++) {
    if (arg[i].scalar) arg[i].scalar = lg_scalar_as(g, w, arg[i].scalar);
    else arg[i] = lg_dense(g, &n, lg_as(g, &n, arg[i], w));
  }
  n.flat = true;
  if (g->failed) return;
  if (w == DT_I32) compare_i32(g, &n, arg[1], arg[0], mode, &s->args[2].region);
  else compare_runs(g, &n, arg[1], arg[0], mode, &s->args[2].region);
}

static void select_runs(Lg *g, Opd mask, Opd a, Opd b, Opd dst) {
  bool rep = ir_attr(g->s, ATTR_MASKREP) != NULL;
  lg_put(g, OP_SELECT, (Opd[]){mask, a, b, dst}, 4, rep ? (int)ATTR_MASKREP : NO_ATTR, 1);
}

/* i32 in two halves, both exact in f32. */
static void select_i32(Lg *g, const Nest *n, Opd mask, Opd a, Opd b, Opd dst) {
  Opd ah, al, bh, bl, h = lg_temp(g, n, DT_F32), l = lg_temp(g, n, DT_F32);
  lg_halves(g, n, a, DT_F32, false, &ah, &al);
  lg_halves(g, n, b, DT_F32, false, &bh, &bl);
  select_runs(g, mask, ah, bh, h);
  select_runs(g, mask, al, bl, l);
  Opd hi = lg_as(g, n, h, DT_I32), lo = lg_as(g, n, l, DT_I32);
  lg_join(g, n, hi, lo, dst);
}

void lg_select(Lg *g) {
  const IrStmt *s = g->s;
  const IrRegion *region = &s->args[3].region, *bits = &s->args[0].region;
  bool rep = ir_attr(s, ATTR_MASKREP) != NULL;
  Opd arg[3], mask;
  Nest n, m;
  Finish f;
  if (!lg_nest(g, region, &n, &arg[2]) || !lg_nest(g, bits, &m, &mask)) return;
  for (int i = 0; i < 2; i++) {
    const IrArg *in = &s->args[i + 1];
    if (in->kind == ARG_SCALAR) arg[i] = lg_scalar(lg_hoist(g, in->scalar));
    else if (!lg_fit(g, &n, region, &in->region, -1, &arg[i])) {
      lg_shape_error(g, &in->region, region);
      return;
    }
  }
  if (!rep && !mask_fits(g, &n, bits, region)) return;
  DType t = opd_type(&arg[2]), w = exact_float(t);
  if (w == DTYPE_COUNT || (rep && dtype_size(w) != dtype_size(t))) {
    lg_no_dtype(g, t, "select on i32, i16, f16 or f32 tiles");
    return;
  }
  mask = lg_dense(g, &m, mask);
  lg_prepare(g, &n, arg, 3, false, &f);
  bool in_place = w == t && lg_is_dense(g, &n, &arg[2]);
  for (int i = 0; i < 2; i++) {
    if (arg[i].scalar) arg[i].scalar = lg_scalar_as(g, w, arg[i].scalar);
    else arg[i] = lg_dense(g, &n, lg_as(g, &n, arg[i], w));
  }
  Nest flat = n;
  flat.flat = true;
  if (g->failed) return;
  if (arg[0].scalar) arg[0] = lg_filled(g, &flat, arg[0], w);
  if (arg[1].scalar && rep) arg[1] = lg_filled(g, &flat, arg[1], w);
  Opd out = in_place ? arg[2] : lg_temp(g, &flat, w);
  if (w == DT_I32) select_i32(g, &flat, mask, arg[0], arg[1], out);
  else select_runs(g, mask, arg[0], arg[1], out);
  if (!in_place && w != t) out = lg_as(g, &flat, out, t);
  if (!in_place) lg_copy(g, &n, out, arg[2]);
  lg_finish(g, &n, &arg[2], &f);
}
