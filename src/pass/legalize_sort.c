/* legalize_sort.c - sorting with the record instructions.
 *
 * `sort` makes records of 8 bytes, f32 value and 32-bit number, in groups of 32 that sort32 sorts, chunk by chunk so
 * that scratch stays small; what lies behind the given count becomes -inf. Four lists at a time are merged between two
 * scratch buffers until one is left. Numbers become values by a conversion of the records, chunk by chunk, of which a
 * mask of alternating bits takes every second element. f16 and bf16 sort as f32, which holds them exactly. A list of
 * one merge has at most 4095 records; of more than 8192 elements four parts are sorted, and those merged. */
#include "legalize.h"

#include <math.h>

enum { GROUP = 32, CHUNK = 1024, BY_FOURS = 8192, RECORD = 8 }; /* BY_FOURS: GROUP times a power of 4 */

static IrRegion piece(Lg *g, const IrRegion *r, IrExpr *off, IrExpr *ext) {
  IrRegion p = *r;
  p.off[0] = ir_binary(g->k, EX_ADD, r->off[0], off);
  p.ext[0] = ext;
  return p;
}

static IrExpr *num(Lg *g, int64_t v) { return ir_i32(g->k, v); }
static IrExpr *times(Lg *g, IrExpr *e, int64_t by) { return ir_binary(g->k, EX_MUL, e, num(g, by)); }

static void put(Lg *g, StmtOp op, int n, const IrArg *arg) {
  ir_append(g->out, ir_new_op(g->k, op, g->loc, n, arg));
}

static Opd run1(Lg *g, DType t, int64_t count) {
  Nest n;
  return lg_temp1(g, t, count, &n);
}

/* ---- records of one chunk, sorted in groups ------------------------------------------------------------------ */

typedef struct {
  IrRegion src; /* a run */
  IrExpr *n;    /* elements that count */
  bool whole;   /* n is all of src, which is f32 and whole groups */
  Opd vals, index, records;
} Sort;

/* vals := -inf, then elements from `at` on, as far as there are any. */
static void load_values(Lg *g, const Sort *q, IrExpr *at, int64_t len) {
  Nest all = {.n = 1, .ext = {num(g, len)}, .max = {len}, .flat = true};
  IrExpr *left = ir_binary(g->k, EX_SUB, q->n, at);
  IrExpr *count = ir_binary(g->k, EX_MAX, ir_binary(g->k, EX_MIN, left, num(g, len)), num(g, 0));
  Nest some = {.n = 1, .ext = {count}, .max = {len}, .flat = true};
  Opd from = {.r = piece(g, &q->src, at, count)}, to = q->vals;
  DType t = q->src.buf->type;
  lg_emit2(g, &all, OP_FILL, lg_number(g, DT_F32, -INFINITY), q->vals);
  to.r.ext[0] = count;
  if (t == DT_F32) lg_emit2(g, &some, OP_MOVE, from, to);
  else lg_emit(g, &some, OP_CAST, (Opd[]){from, to}, 2, ATTR_MODE, CAST_NONE);
}

static void sort_chunk(Lg *g, const Sort *q, IrExpr *at, int64_t len) {
  IrRegion vals = q->whole ? piece(g, &q->src, at, num(g, len)) : q->vals.r, index = q->index.r;
  IrRegion to = piece(g, &q->records.r, times(g, at, 2), num(g, 2 * len));
  Nest all = {.n = 1, .ext = {num(g, CHUNK)}, .max = {CHUNK}, .flat = true};
  if (!q->whole) load_values(g, q, at, len);
  vals.ext[0] = index.ext[0] = num(g, len);
  index = lg_flat(g, &index, DT_U32);
  put(g, OP_SORT32, 3, (IrArg[]){ir_arg_region(vals), ir_arg_region(index), ir_arg_region(to)});
  all.ext[0] = q->index.r.ext[0];
  all.max[0] = q->index.r.ext[0]->i;
  lg_emit3(g, &all, OP_ADD, q->index, lg_number(g, DT_I32, len), q->index);
}

static void sort_groups(Lg *g, Sort *q, int64_t total) {
  int64_t len = min_i64(total, CHUNK), full = total / len, tail = total % len;
  q->index = run1(g, DT_I32, len);
  if (!q->whole) q->vals = run1(g, DT_F32, len);
  lg_put(g, OP_ARANGE, (Opd[]){lg_number(g, DT_I32, 0), lg_number(g, DT_I32, 1), q->index}, 3, NO_ATTR, 0);
  if (full > 1) {
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "chunk", num(g, full), &saved));
    sort_chunk(g, q, times(g, v, len), len);
    g->out = saved;
  } else {
    sort_chunk(g, q, num(g, 0), len);
  }
  if (tail) sort_chunk(g, q, num(g, full * len), tail);
}

/* ---- merging --------------------------------------------------------------------------------------------------- */

static void merge(Lg *g, int k, const IrRegion *from, IrExpr *at, int64_t len, int64_t last, const IrRegion *to) {
  IrArg arg[5];
  IrExpr *base = times(g, at, 2);
  for (int i = 0; i < k; i++) {
    int64_t n = i + 1 < k ? len : last;
    arg[i] = ir_arg_region(piece(g, from, ir_binary(g->k, EX_ADD, base, num(g, 2 * i * len)), num(g, 2 * n)));
  }
  int64_t sum = (k - 1) * len + last;
  arg[k] = ir_arg_region(piece(g, to, base, num(g, 2 * sum)));
  put(g, k == 1 ? OP_MOVE : k == 2 ? OP_MERGE2 : k == 3 ? OP_MERGE3 : OP_MERGE4, k + 1, arg);
}

/* Lists of `len` records to lists of four times that, `total` records from `base` on; the last may end early. */
static void merge_level(Lg *g, int64_t base, int64_t total, int64_t len, const IrRegion *from, const IrRegion *to) {
  int64_t lists = ceil_div(total, len), last = total - (lists - 1) * len;
  int64_t full = lists % 4 == 0 && last < len ? lists / 4 - 1 : lists / 4, rest = lists - 4 * full;
  if (full > 1) {
    IrBlock *saved;
    IrExpr *v = ir_var(g->k, lg_loop(g, "merge", num(g, full), &saved));
    merge(g, 4, from, ir_binary(g->k, EX_ADD, times(g, v, 4 * len), num(g, base)), len, len, to);
    g->out = saved;
  } else if (full == 1) {
    merge(g, 4, from, num(g, base), len, len, to);
  }
  if (rest) merge(g, (int)rest, from, num(g, base + full * 4 * len), len, last, to);
}

static void swap(IrRegion *a, IrRegion *b) {
  IrRegion x = *a;
  *a = *b;
  *b = x;
}

/* Groups in `from` to one list in the region returned, which is `from` or `to`. */
static IrRegion merge_all(Lg *g, int64_t total, IrRegion from, IrRegion to) {
  int64_t part = total <= BY_FOURS ? total : round_up(ceil_div(total, 4), GROUP);
  for (int64_t len = GROUP; len < part; len *= 4) {
    for (int64_t at = 0; at < total; at += part) merge_level(g, at, min_i64(part, total - at), len, &from, &to);
    swap(&from, &to);
  }
  if (part == total) return from;
  int64_t parts = ceil_div(total, part);
  merge(g, (int)parts, &from, num(g, 0), part, total - (parts - 1) * part, &to);
  return to;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

typedef struct {
  IrRegion records, home; /* home: a run of any dtype */
  Opd values, bits;
} Pairs;

/* home := value and number, as a value, of `len` records from record `at` on. */
static void store_pairs(Lg *g, const Pairs *q, IrExpr *at, int64_t len) {
  Nest n = {.n = 1, .ext = {num(g, 2 * len)}, .max = {2 * len}, .flat = true};
  IrRegion all = piece(g, &q->records, times(g, at, 2), num(g, 2 * len)), mask = lg_flat(g, &q->bits.r, DT_U8);
  Opd numbers = {.r = lg_flat(g, &all, DT_I32)}, values = q->values;
  Opd home = {.r = piece(g, &q->home, times(g, at, 2), num(g, 2 * len))};
  bool wide = q->home.buf->type == DT_F32;
  values.r.ext[0] = num(g, 2 * len);
  lg_emit(g, &n, OP_CAST, (Opd[]){numbers, values}, 2, ATTR_MODE, CAST_RINT);
  mask.ext[0] = num(g, g->p->arch->repeat_bytes / 4 / 8);
  IrStmt *s = ir_new_op(g->k, OP_SELECT, g->loc, 4,
                        (IrArg[]){ir_arg_region(mask), ir_arg_region(all), ir_arg_region(values.r),
                                  ir_arg_region(wide ? home.r : values.r)});
  ir_set_attr(g->k, s, ATTR_MASKREP, ir_int(g->k, DT_BOOL, 1));
  ir_append(g->out, s);
  if (!wide) lg_cast(g, &n, values, home, CAST_RINT);
}

static void store_all(Lg *g, const IrRegion *records, int64_t count, const IrRegion *home) {
  int64_t len = min_i64(count, CHUNK), full = count / len, tail = count % len;
  Pairs q = {*records, *home, run1(g, DT_F32, 2 * len), run1(g, DT_I16, GROUP / 2)};
  IrBlock *saved;
  lg_put(g, OP_FILL, (Opd[]){lg_number(g, DT_I16, 0x5555), q.bits}, 2, NO_ATTR, 0);
  if (full > 1) {
    IrExpr *v = ir_var(g->k, lg_loop(g, "chunk", num(g, full), &saved));
    store_pairs(g, &q, times(g, v, len), len);
    g->out = saved;
  } else {
    store_pairs(g, &q, num(g, 0), len);
  }
  if (tail) store_pairs(g, &q, num(g, full * len), tail);
}

static bool check_sort(Lg *g, DType t, const IrExpr *src_n, const IrExpr *dst_n) {
  if (t != DT_F32 && t != DT_F16 && t != DT_BF16) {
    lg_no_dtype(g, t, "sort f32 or f16 tiles");
    return false;
  }
  if (!ir_is_const(src_n) || !ir_is_const(dst_n)) {
    lg_refuse(g, "needs tiles of a size known at compile time", "give the count as the second operand instead");
    return false;
  }
  int64_t have = g->p->arch->space[SPACE_UB].bytes, need = 2 * RECORD * src_n->i, most = have / (2 * RECORD);
  if (need <= have) return true;
  lg_refuse(g,
            arena_printf(g->a,
                         "of %lld elements: their records, 8 bytes each in two buffers, are %lld bytes, and ub has "
                         "%lld, which holds %lld",
                         (long long)src_n->i, (long long)need, (long long)have, (long long)(most - most % GROUP)),
            "sort parts and merge the largest of each");
  return false;
}

void lg_sort(Lg *g) {
  const IrStmt *s = g->s;
  const IrRegion *in = &s->args[0].region, *out = &s->args[2].region;
  DType t = out->buf->type;
  IrExpr *n = lg_hoist(g, ir_cast(g->k, DT_I32, s->args[1].scalar)), *src_n = ir_count(g->k, in);
  Nest src_nest, dst_nest;
  Opd src, dst;
  if (!check_sort(g, t, src_n, ir_count(g->k, out))) return;
  if (!lg_nest(g, in, &src_nest, &src) || !lg_nest(g, out, &dst_nest, &dst)) return;
  Opd dense = lg_dense(g, &src_nest, src);
  int64_t total = round_up(src_n->i, GROUP), count = min_i64(ir_count(g->k, out)->i / 2, total);
  Sort q = {.src = lg_flat(g, &dense.r, t), .n = ir_binary(g->k, EX_MIN, n, src_n)};
  q.whole = t == DT_F32 && total == src_n->i && ir_is_int(q.n, total);
  q.records = run1(g, DT_F32, 2 * total);
  IrRegion from = q.records.r, to = total > GROUP ? run1(g, DT_F32, 2 * total).r : from;
  sort_groups(g, &q, total);
  from = merge_all(g, total, from, to);
  if (!lg_is_dense(g, &dst_nest, &dst)) {
    lg_refuse(g, "writes one contiguous tile that starts on 32 bytes", "use a whole buffer for the result");
    return;
  }
  IrRegion home = lg_flat(g, out, t);
  store_all(g, &from, count, &home);
}

/* ---- sort32, merge* by hand -------------------------------------------------------------------------------------- */

/* Lists are whole records, sort32 takes 32 scores at a time. */
static bool whole_records(Lg *g, const IrRegion *r, bool input) {
  const IrExpr *n = ir_count(g->k, r);
  int64_t size = dtype_size(r->buf->type);
  bool sorts = g->s->op == OP_SORT32;
  if (!ir_is_const(n)) return true;
  if (sorts ? !input || n->i % 32 == 0 : n->i * size % 8 == 0 && (!input || n->i * size / 8 <= 4095)) return true;
  if (sorts) lg_refuse(g, "sorts a number of scores that is no multiple of 32", "fill the tile up with -inf");
  else lg_refuse(g, "merges lists that are not 1 to 4095 whole records of 8 bytes", "use lists of whole records");
  return false;
}

/* Have two regions of one buffer surely no element in common? */
static bool surely_apart(Lg *g, const IrRegion *a, const IrRegion *b) {
  for (int d = 0; d < a->buf->rank; d++) {
    int64_t diff;
    if (ir_const_diff(g->k, a->off[d], b->off[d], &diff) && ir_is_const(a->ext[d]) && ir_is_const(b->ext[d]) &&
        (diff >= b->ext[d]->i || -diff >= a->ext[d]->i))
      return true;
  }
  return false;
}

/* A list starts on 8 bytes, and what starts elsewhere is copied; the result starts on 32. */
static bool starts_on(const IrRegion *r, const IrRows *rows, int bytes) {
  return !ir_is_const(rows->off) || rows->off->i * dtype_size(r->buf->type) % bytes == 0;
}

/* The instructions as they are, apart from operands that are no runs or share elements with the result. */
void lg_records(Lg *g) {
  const IrStmt *s = g->s;
  int last = s->n_args - 1;
  IrArg arg[5];
  DType t = s->args[last].region.buf->type;
  if (t != DT_F32 && t != DT_F16) {
    lg_no_dtype(g, t, "records have f32 or f16 scores");
    return;
  }
  for (int i = 0; i <= last; i++) {
    Nest n;
    Opd o;
    IrRows rows;
    arg[i] = s->args[i];
    const IrRegion *r = &s->args[i].region;
    if (!lg_nest(g, r, &n, &o) || !whole_records(g, r, i < last)) return;
    bool is_run = ir_rows(g->k, r, &rows) && ir_is_int(rows.rows, 1) && starts_on(r, &rows, i < last ? 8 : 32);
    bool meets = i < last && ir_root(r->buf) == ir_root(s->args[last].region.buf) &&
                 (r->buf != s->args[last].region.buf || !surely_apart(g, r, &s->args[last].region));
    if (is_run && !meets && (s->op != OP_SORT32 || lg_is_dense(g, &n, &o))) continue;
    if (i == last) {
      lg_refuse(g, "writes one contiguous tile that starts on 32 bytes", "use a whole buffer for the result");
      return;
    }
    Opd copy = o;
    if (meets) {
      Nest flat = n;
      flat.flat = true;
      copy = lg_temp(g, &flat, opd_type(&o));
      lg_copy(g, &n, o, copy);
    }
    arg[i] = ir_arg_region(lg_dense(g, &n, copy).r);
  }
  put(g, (StmtOp)s->op, s->n_args, arg);
}

bool lg_is_record(StmtOp op) { return op == OP_SORT32 || op == OP_MERGE2 || op == OP_MERGE3 || op == OP_MERGE4; }
