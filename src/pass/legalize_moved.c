/* legalize_moved.c - ops that move elements to computed places: gather, gatherb, gather_mask, transpose, and running
 * sums and maxima.
 *
 * Their instructions work on runs. An operand that is no run, does not start on 32 bytes or shares bytes with the
 * result is copied into scratch first; a result likewise, and moved home afterwards. Conversions between int4 in pairs
 * and f16 (unpack4, pack4) go row by row instead. Elements of 8 bits go through f16, of 64 bits element by element. A
 * matrix whose sides are no multiples of 16 is transposed in padded scratch. A running sum along the last axis is one
 * along the first axis of the transposed tile, where whole rows are added. */
#include "legalize.h"

#include <string.h>

static int64_t count_max(const Nest *n) {
  int64_t c = 1;
  for (int d = 0; d < n->n; d++) c *= n->max[d];
  return c;
}

static bool is_byte(DType t) { return dtype_size(t) == 1; }

void lg_refuse(Lg *g, const char *what, const char *fix) {
  Diag *d = diag_add(g->p->diags, DIAG_LEG_FORM, g->loc, "'%s' %s", op_info[g->s->op].name, what);
  diag_fix(g->p->diags, d, "%s", fix);
  g->failed = true;
}

static bool is_one_run(Lg *g, const IrRegion *r) {
  IrRows rows;
  return ir_rows(g->k, r, &rows) && ir_is_int(rows.rows, 1);
}

static IrExpr *linear_offset(Lg *g, const IrRegion *r) {
  IrExpr *off = ir_i32(g->k, 0);
  for (int d = 0; d < r->buf->rank; d++)
    off = ir_binary(g->k, EX_ADD, ir_binary(g->k, EX_MUL, off, r->buf->shape[d]), r->off[d]);
  return off;
}

IrRegion lg_flat(Lg *g, const IrRegion *r, DType t) {
  int64_t have = dtype_size(r->buf->type), want = dtype_size(t), total = 1;
  for (int d = 0; d < r->buf->rank; d++) total *= r->buf->shape[d]->i;
  IrBuf *b = r->buf;
  if (b->rank != 1 || b->type != t) b = lg_view(g, r->buf, t, 1, (int64_t[]){total * have / want});
  IrRegion out = {.buf = b};
  out.off[0] = linear_offset(g, r);
  out.ext[0] = ir_count(g->k, r);
  if (have > want) {
    IrExpr *ratio = ir_i32(g->k, have / want);
    out.off[0] = ir_binary(g->k, EX_MUL, out.off[0], ratio);
    out.ext[0] = ir_binary(g->k, EX_MUL, out.ext[0], ratio);
  } else if (have < want) {
    IrExpr *ratio = ir_i32(g->k, want / have);
    out.off[0] = ir_binary(g->k, EX_FDIV, out.off[0], ratio);
    out.ext[0] = ir_binary(g->k, EX_FDIV, out.ext[0], ratio);
  }
  return out;
}

/* ---- operands that are runs ------------------------------------------------------------------------------- */

typedef struct { Nest n; Opd home, run; bool moved; } Run;

static bool shares(const Run *x, const IrRegion *r) { return x && ir_root(x->run.r.buf) == ir_root(r->buf); }

/* The region as a run of its own dtype; a result is apart from the inputs a and b (NULL: none). */
static Run as_run(Lg *g, const IrRegion *r, const Run *a, const Run *b, bool reads) {
  Run x = {.moved = false};
  if (!lg_nest(g, r, &x.n, &x.home)) return x;
  x.run = x.home;
  if (!shares(a, r) && !shares(b, r) && lg_is_dense(g, &x.n, &x.home)) return x;
  x.n.flat = true;
  x.run = lg_temp(g, &x.n, opd_type(&x.home));
  x.moved = true;
  x.n.flat = false;
  if (reads) lg_copy(g, &x.n, x.home, x.run);
  return x;
}

static void send_home(Lg *g, Run *x) {
  if (x->moved) lg_copy(g, &x->n, x->run, x->home);
}

static IrArg region_arg(const IrRegion *r) { return ir_arg_region(*r); }

static void put(Lg *g, StmtOp op, int n, const IrArg *arg) {
  ir_append(g->out, ir_new_op(g->k, op, g->loc, n, arg));
}

/* A run of 8-bit elements as f16: exact. */
static void widen(Lg *g, Run *x, bool reads) {
  Opd narrow = x->run;
  x->n.flat = true;
  x->run = lg_temp(g, &x->n, DT_F16);
  if (reads) lg_cast(g, &x->n, narrow, x->run, CAST_RINT);
  x->home = narrow;
}

/* ---- gather, gatherb, gather_mask --------------------------------------------------------------------------- */

/* dst[k] := src[offset[k] + base] on the scalar pipe. */
static void gather_by_element(Lg *g, const IrRegion *src, const IrRegion *off, IrExpr *base, const IrRegion *dst,
                              const Nest *n) {
  DType t = dst->buf->type;
  lg_warn_scalar(g, n, arena_printf(g->a, "%%%s %s", dst->buf->name, lg_shape(g, dst)),
                 arena_printf(g->a, "the vector unit gathers elements of 16 and 32 bits, not %s", dtype_info[t].name),
                 "use i32, i16, f16 or f32 tiles");
  IrRegion s = lg_flat(g, src, t), o = lg_flat(g, off, off->buf->type), d = lg_flat(g, dst, t);
  IrBlock *saved;
  IrExpr *k = ir_var(g->k, lg_loop(g, "e", d.ext[0], &saved));
  IrExpr *from = ir_cast(g->k, DT_I32, ir_load(g->k, o.buf, (IrExpr *[]){ir_binary(g->k, EX_ADD, o.off[0], k)}));
  from = ir_binary(g->k, EX_ADD, from, ir_cast(g->k, DT_I32, base));
  from = ir_binary(g->k, EX_FDIV, from, ir_i32(g->k, dtype_size(t)));
  IrStmt *st = ir_new_stmt(g->k, ST_STORE, g->loc);
  st->why = "no vector form";
  st->store.buf = d.buf;
  st->store.idx = arena_array(g->a, IrExpr *, 1);
  st->store.idx[0] = ir_binary(g->k, EX_ADD, d.off[0], k);
  st->store.value = ir_load(g->k, s.buf, (IrExpr *[]){ir_binary(g->k, EX_ADD, s.off[0], from)});
  ir_append(g->out, st);
  g->out = saved;
}

static void gather(Lg *g) {
  const IrStmt *s = g->s;
  const IrRegion *dst = &s->args[3].region;
  DType t = dst->buf->type;
  Nest n;
  Opd unused;
  if (!lg_nest(g, dst, &n, &unused)) return;
  IrExpr *base = lg_hoist(g, s->args[2].scalar);
  if (dtype_size(t) != 2 && dtype_size(t) != 4) {
    if (!is_one_run(g, &s->args[0].region) || !is_one_run(g, &s->args[1].region) || !is_one_run(g, dst))
      lg_refuse(g, "of 8- and 64-bit elements works on contiguous tiles", "use whole buffers or whole rows");
    else gather_by_element(g, &s->args[0].region, &s->args[1].region, base, dst, &n);
    return;
  }
  Run src = as_run(g, &s->args[0].region, NULL, NULL, true), off = as_run(g, &s->args[1].region, NULL, NULL, true);
  Run out = as_run(g, dst, &src, &off, false);
  put(g, OP_GATHER, 4, (IrArg[]){region_arg(&src.run.r), region_arg(&off.run.r), ir_arg_scalar(base),
                                 region_arg(&out.run.r)});
  send_home(g, &out);
}

static void gatherb(Lg *g) {
  const IrStmt *s = g->s;
  DType t = s->args[2].region.buf->type, bits = dtype_size(t) == 4 || dtype_size(t) == 8 ? DT_U32 : DT_U16;
  IrExpr *count = ir_count(g->k, &s->args[1].region);
  if (!ir_is_const(count) || count->i % 8) {
    lg_refuse(g, "takes a number of offsets that is a multiple of 8 and known at compile time",
              "gather single elements, or pad the offsets");
    return;
  }
  Run src = as_run(g, &s->args[0].region, NULL, NULL, true), off = as_run(g, &s->args[1].region, NULL, NULL, true);
  Run out = as_run(g, &s->args[2].region, &src, &off, false);
  IrRegion a = src.run.r, d = out.run.r;
  if (dtype_size(t) != dtype_size(bits)) {
    a = lg_flat(g, &a, bits);
    d = lg_flat(g, &d, bits);
  }
  put(g, OP_GATHERB, 3, (IrArg[]){region_arg(&a), region_arg(&off.run.r), region_arg(&d)});
  send_home(g, &out);
}

static void gather_mask(Lg *g) {
  const IrStmt *s = g->s;
  bool bits = s->args[1].kind == ARG_REGION;
  DType t = s->args[2].region.buf->type;
  if (dtype_size(t) == 8) {
    lg_no_dtype(g, t, "use 32-bit elements, two for each");
    return;
  }
  Run src = as_run(g, &s->args[0].region, NULL, NULL, true), mask;
  IrArg chosen = s->args[1];
  if (bits) mask = as_run(g, &chosen.region, NULL, NULL, true);
  Run out = as_run(g, &s->args[2].region, &src, bits ? &mask : NULL, bits);
  if (bits) {
    DType unit = dtype_size(t) == 4 ? DT_U32 : DT_U16;
    IrRegion m = lg_flat(g, &mask.run.r, unit);
    chosen = region_arg(&m);
  }
  if (is_byte(t)) {
    widen(g, &src, true);
    Opd home = out.run;
    Run wide = out;
    widen(g, &wide, bits);
    put(g, OP_GATHER_MASK, 3, (IrArg[]){region_arg(&src.run.r), chosen, region_arg(&wide.run.r)});
    lg_cast(g, &wide.n, wide.run, home, CAST_RINT);
  } else {
    put(g, OP_GATHER_MASK, 3, (IrArg[]){region_arg(&src.run.r), chosen, region_arg(&out.run.r)});
  }
  send_home(g, &out);
}

/* ---- unpack4, pack4 ----------------------------------------------------------------------------------------- */

/* One instruction where both operands are runs, else one for each row. */
static void pack(Lg *g) {
  const IrStmt *s = g->s;
  IrRegion r[2] = {s->args[0].region, s->args[1].region};
  Nest n[2];
  Opd o[2];
  IrBlock *saved[IR_MAX_RANK], *before = g->out;
  for (int i = 0; i < 2; i++)
    if (!lg_nest(g, &r[i], &n[i], &o[i])) return;
  bool runs = lg_is_dense(g, &n[0], &o[0]) && lg_is_dense(g, &n[1], &o[1]), rows = runs || n[0].n == n[1].n;
  for (int d = 0; d < n[0].n - 1 && !runs && rows; d++) {
    rows = lg_same(g, n[0].ext[d], n[1].ext[d]);
    IrExpr *at = ir_var(g->k, lg_loop(g, "row", n[0].ext[d], &saved[d]));
    for (int i = 0; i < 2; i++) {
      r[i].off[o[i].dim[d]] = ir_binary(g->k, EX_ADD, r[i].off[o[i].dim[d]], at);
      r[i].ext[o[i].dim[d]] = ir_i32(g->k, 1);
    }
  }
  for (int i = 0; i < 2 && rows && !runs; i++) rows = lg_nest(g, &r[i], &n[i], &o[i]) && lg_is_dense(g, &n[i], &o[i]);
  if (!rows) {
    lg_refuse(g, "takes tiles of the same rows, each starting on 32 bytes",
              "make the rows a multiple of 64 int4, or convert whole buffers");
    return;
  }
  IrStmt *made = ir_new_op(g->k, s->op, g->loc, 2, (IrArg[]){region_arg(&r[0]), region_arg(&r[1])});
  if (ir_attr(s, ATTR_MODE)) ir_set_attr(g->k, made, ATTR_MODE, ir_attr(s, ATTR_MODE));
  ir_append(g->out, made);
  g->out = before;
}

/* ---- transpose ---------------------------------------------------------------------------------------------- */

static Nest swapped(const Nest *n) {
  Nest m = *n;
  m.ext[0] = n->ext[1];
  m.ext[1] = n->ext[0];
  m.max[0] = n->max[1];
  m.max[1] = n->max[0];
  return m;
}

/* dst[j, i] := src[i, j]; n: the nest of src, two dimensions; both dtypes the same. */
void lg_transpose(Lg *g, const Nest *from_n, Opd src, Opd dst) {
  Nest n = *from_n, t, padded;
  DType type = opd_type(&src);
  n.flat = false;
  if (is_byte(type)) {
    Opd wide = lg_as(g, &n, lg_ordered(g, &n, src, 1), DT_F16), out;
    t = swapped(&n);
    out = lg_temp(g, &t, DT_F16);
    lg_transpose(g, &n, wide, out);
    lg_cast(g, &t, out, dst, CAST_RINT);
    return;
  }
  t = swapped(&n);
  if (dtype_size(type) == 8 || !ir_is_const(n.ext[0]) || !ir_is_const(n.ext[1])) {
    Opd read = src;
    read.dim[0] = src.dim[1];
    read.dim[1] = src.dim[0];
    lg_warn_scalar(g, &t, arena_printf(g->a, "%%%s %s", dst.r.buf->name, lg_shape(g, &dst.r)),
                   "the vector unit transposes 16- and 32-bit elements of a size known at compile time",
                   "use i32, i16, f16 or f32 tiles");
    lg_by_element(g, &t, OP_MOVE, (Opd[]){read, dst}, 2);
    return;
  }
  padded = n;
  for (int d = 0; d < 2; d++) {
    padded.max[d] = round_up(n.max[d], 16);
    padded.ext[d] = ir_i32(g->k, padded.max[d]);
  }
  bool exact = padded.max[0] == n.max[0] && padded.max[1] == n.max[1];
  Nest padded_t = swapped(&padded);
  Opd a = src, b = dst;
  if (!exact) {
    a = lg_temp(g, &padded, type);
    lg_emit2(g, &padded, OP_FILL, lg_number(g, type, 0), a);
    Opd part = a;
    part.r.ext[0] = n.ext[0];
    part.r.ext[1] = n.ext[1];
    lg_copy(g, &n, src, part);
  } else {
    a = lg_ordered(g, &n, src, 1);
  }
  bool direct = exact && ir_root(dst.r.buf) != ir_root(a.r.buf) && lg_is_ordered(g, &t, &dst, 1);
  if (!direct) b = lg_temp(g, &padded_t, type);
  put(g, OP_TRANSPOSE, 2, (IrArg[]){region_arg(&a.r), region_arg(&b.r)});
  if (direct) return;
  b.r.ext[0] = t.ext[0];
  b.r.ext[1] = t.ext[1];
  lg_copy(g, &t, b, dst);
}

static void transpose(Lg *g) {
  const IrRegion *s = &g->s->args[0].region, *d = &g->s->args[1].region;
  Nest n = {.n = 2};
  Opd src = {.r = *s}, dst = {.r = *d};
  for (int i = 0; i < 2; i++) { /* both dimensions stay, whatever their extents */
    int a = s->buf->rank - 2 + i, b = d->buf->rank - 2 + i;
    n.ext[i] = s->ext[a];
    n.max[i] = lg_bound(g, s->ext[a], s->buf->shape[a]->i);
    src.dim[i] = (int8_t)a;
    dst.dim[i] = (int8_t)b;
  }
  bool line = ir_is_int(n.ext[0], 1) || ir_is_int(n.ext[1], 1);
  if (line && is_one_run(g, s) && is_one_run(g, d)) { /* the same elements in the same order */
    src = (Opd){.r = lg_flat(g, s, s->buf->type)};
    dst = (Opd){.r = lg_flat(g, d, d->buf->type)};
    n = (Nest){.n = 1, .ext = {src.r.ext[0]}, .max = {n.max[0] * n.max[1]}};
    lg_copy(g, &n, src, dst);
    return;
  }
  lg_transpose(g, &n, src, dst);
}

/* ---- cumsum, cummax ------------------------------------------------------------------------------------------- */

/* Rows of o (dimension d of n) one after the other: row i gets what row i - 1 (reverse: i + 1) holds. */
static void run_down(Lg *g, const Nest *n, int d, StmtOp op, Opd o, bool reverse) {
  IrBlock *saved;
  if (ir_is_int(n->ext[d], 1)) return;
  Nest rest = *n;
  Opd now = o, before = o;
  IrExpr *one = ir_i32(g->k, 1), *v = ir_var(g->k, lg_loop(g, "row", ir_binary(g->k, EX_SUB, n->ext[d], one), &saved));
  IrExpr *at = ir_binary(g->k, EX_ADD, v, one);
  if (reverse) {
    at = ir_binary(g->k, EX_SUB, ir_binary(g->k, EX_SUB, n->ext[d], ir_i32(g->k, 2)), v);
    v = ir_binary(g->k, EX_ADD, at, one);
  }
  Nest unused = *n;
  lg_narrow(g, &rest, &now, 1, d, at, NULL);
  lg_narrow(g, &unused, &before, 1, d, v, NULL);
  lg_emit3(g, &rest, op, before, now, now);
  g->out = saved;
}

/* o over n in place, along dimension d; dtype f32, i32, i16 or f16. */
static void scan(Lg *g, const Nest *from_n, int d, StmtOp op, Opd o, bool reverse) {
  Nest n = *from_n;
  if (ir_is_int(n.ext[d], 1)) return;
  if (d < n.n - 1) {
    run_down(g, &n, d, op, o, reverse);
    return;
  }
  if (n.n > 2) {
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "plane", n.ext[0], &saved));
    lg_narrow(g, &n, &o, 1, 0, v, NULL);
    scan(g, &n, d - 1, op, o, reverse);
    g->out = saved;
    return;
  }
  if (n.n == 1) { /* [N] as [1, N] of a view */
    IrRegion r = o.r;
    IrBuf *b = lg_view(g, r.buf, r.buf->type, 2, (int64_t[]){1, r.buf->shape[0]->i});
    o = (Opd){.r = {.buf = b}};
    o.r.off[0] = ir_i32(g->k, 0);
    o.r.ext[0] = ir_i32(g->k, 1);
    o.r.off[1] = r.off[0];
    o.r.ext[1] = r.ext[0];
    o.dim[1] = 1;
    n = (Nest){.n = 2, .ext = {o.r.ext[0], n.ext[0]}, .max = {1, n.max[0]}};
  }
  Nest t = swapped(&n);
  t.flat = false;
  Opd turned = lg_temp(g, &t, opd_type(&o));
  lg_transpose(g, &n, o, turned);
  run_down(g, &t, 0, op, turned, reverse);
  lg_transpose(g, &t, turned, o);
}

static void running(Lg *g) {
  const IrStmt *s = g->s;
  const IrRegion *src = &s->args[0].region, *dst = &s->args[1].region;
  StmtOp op = s->op == OP_CUMSUM ? OP_ADD : OP_MAX;
  bool reverse = ir_attr(s, ATTR_REVERSE) != NULL;
  int64_t axis = ir_attr_int(s, ATTR_DIM, dst->buf->rank - 1);
  DType t = dst->buf->type, w = t == DT_F16 || t == DT_BF16 ? DT_F32 : is_byte(t) ? DT_I16 : t;
  Nest n;
  Opd in, out;
  int d = -1;
  if (!lg_nest(g, dst, &n, &out)) return;
  if (!lg_fit(g, &n, dst, src, -1, &in) || !lg_is_full(&n, &in)) {
    lg_shape_error(g, src, dst);
    return;
  }
  if (w != DT_F32 && w != DT_I32 && w != DT_I16) {
    lg_no_dtype(g, t, "use i32, i16, f16 or f32 tiles");
    return;
  }
  for (int i = 0; i < n.n; i++)
    if (out.dim[i] == axis) d = i;
  if (axis < 0 || axis >= dst->buf->rank) {
    lg_refuse(g, "names an axis that the tile does not have", "dim(0) to dim(rank - 1)");
    return;
  }
  IrExpr *width = n.ext[n.n - 1];
  bool whole = ir_is_const(width) && width->i % dtype_c0(w) == 0; /* rows of w start on 32 bytes as they stand */
  n.flat = whole && lg_is_dense(g, &n, &in) && lg_is_dense(g, &n, &out);
  Opd acc = lg_temp(g, &n, w); /* else its rows are padded */
  if (opd_type(&in) == w) lg_copy(g, &n, in, acc);
  else lg_cast(g, &n, n.flat ? in : lg_ordered(g, &n, in, n.n - 1), acc, CAST_RINT);
  if (d >= 0 && count_max(&n) > 1) scan(g, &n, d, op, acc, reverse);
  if (w == t) {
    lg_copy(g, &n, acc, out);
    return;
  }
  if (is_byte(t)) lg_wrap(g, &n, acc, t);
  Opd narrow = lg_as(g, &n, acc, t);
  lg_copy(g, &n, narrow, out);
}

bool lg_is_moved(StmtOp op) {
  return op == OP_GATHER || op == OP_GATHERB || op == OP_GATHER_MASK || op == OP_UNPACK4 || op == OP_PACK4 ||
         op == OP_TRANSPOSE || op == OP_CUMSUM || op == OP_CUMMAX;
}

void lg_moved(Lg *g) {
  switch (g->s->op) {
  case OP_GATHER: gather(g); return;
  case OP_GATHERB: gatherb(g); return;
  case OP_GATHER_MASK: gather_mask(g); return;
  case OP_UNPACK4:
  case OP_PACK4: pack(g); return;
  case OP_TRANSPOSE: transpose(g); return;
  default: running(g);
  }
}
