/* unread.c - what kernels leave out.
 *
 * The end of an operand that was never read: a K loop of `K // block` where the tail is lost, a loop with one
 * iteration too few. For each tensor that only the loads to L1 read, a bit an element says that some block read it;
 * the workers' bits are put together when all blocks are done. A tensor is reported when its elements up to some index
 * of one of its last two dimensions were all read, those from there on never, and they are no more than a load takes:
 * then the loop that goes along the dimension ended early. Nothing is said where a part may be left out on purpose:
 * what is read may hang on data (a scalar argument that is no size, an element that pipe S reads from a tensor), or is
 * read shifted, from before the start of the tensor.
 *
 * The end of what was loaded into L0 and no product took: an extent too small. For each buffer of L0 it is kept how far
 * loads filled it and how far products read it, in all blocks. Rows and columns that nothing moved into L1, but which a
 * load takes along to fill a tile, do not count; neither does a part as large as what a product takes, which may be one
 * that a condition skips.
 *
 * Gaps between tiles: an extent too small, or steps too large. For each tensor that the kernel only loads or only
 * stores (outputs are in blocks.c), a bit an element says that some block did. It is reported when along one of its
 * last two dimensions all but the last few of every n elements were, n is an extent of the tile at the other end of a
 * transfer, and the few are no more than a sixteenth of it: what is padded on purpose is mostly padded by more. */
#include "machine.h"

#include <string.h>

enum { WATCH_ENDS = 1, WATCH_GAPS = 2 }; /* SimBuf.watch */

struct ReadMap { uint64_t *bit; int64_t rows, cols; uint32_t who; }; /* rows, cols: the most that one load takes */

static void set_bits(uint64_t *bit, int64_t lo, int64_t hi) {
  for (; lo < hi && lo % 64; lo++) bit[lo / 64] |= UINT64_C(1) << lo % 64;
  for (; lo + 64 <= hi; lo += 64) bit[lo / 64] = ~UINT64_C(0);
  for (; lo < hi; lo++) bit[lo / 64] |= UINT64_C(1) << lo % 64;
}

void note_access(Toucher *t, const SimBuf *b, int64_t at, int64_t len, int64_t count, int64_t stride) {
  Machine *m = t->core->m;
  if (!m->read) m->read = arena_array(&m->arena, struct ReadMap, m->sim->n_buf);
  struct ReadMap *r = &m->read[b->tensor];
  if (!r->bit) r->bit = arena_array(&m->arena, uint64_t, b->bytes / b->size / 64 + 1);
  r->who = r->who && r->who < t->who ? r->who : t->who;
  r->rows = max_i64(r->rows, count);
  r->cols = max_i64(r->cols, len / b->size);
  for (int64_t i = 0; i < count; i++)
    set_bits(r->bit, (at + i * stride) / b->size, (at + i * stride + len) / b->size);
}

/* ---- what is in L0 ---------------------------------------------------------------------------------------- */

/* Rows and columns: how far boxes of a buffer go, the largest box, the first statement. */
typedef struct { int64_t end[2], most[2]; uint32_t who; } Reach;
struct BoxUse { Reach put, taken; };

static void extend_to(Reach *r, const Reach *by) {
  for (int d = 0; d < 2; d++) {
    r->end[d] = max_i64(r->end[d], by->end[d]);
    r->most[d] = max_i64(r->most[d], by->most[d]);
  }
  r->who = r->who && r->who < by->who ? r->who : by->who;
}

static void extend(Reach *r, int64_t r0, int64_t c0, int64_t rows, int64_t cols, uint32_t who) {
  if (rows > 0 && cols > 0) extend_to(r, &(Reach){{r0 + rows, c0 + cols}, {rows, cols}, who});
}

void note_box(Core *c, const Entry *e) {
  const Inst *i = e->inst;
  const View *v = e->v, *to = &e->v[1];
  if (!c->box) c->box = arena_array(&c->m->arena, struct BoxUse, c->m->sim->n_buf);
  struct BoxUse *x = &c->box[i->arg[0].buf], *y = &c->box[i->arg[1].buf];
  if (i->op == OP_GM_TO_L1 || i->op == OP_L0C_TO_L1) {
    if (!to->r0 && !to->c0) y->put = (Reach){0}; /* another tile */
    extend(&y->put, to->r0, to->c0, to->rows, to->cols, i->id);
  } else if (i->op == OP_L1_TO_L0A || i->op == OP_L1_TO_L0B) {
    int64_t rows = min_i64(v->rows, x->put.end[0] - v->r0), cols = min_i64(v->cols, x->put.end[1] - v->c0);
    extend(&y->put, to->r0, to->c0, i->trans ? cols : rows, i->trans ? rows : cols, i->id);
  } else if (i->op == OP_MMAD) {
    extend(&x->taken, v->r0, v->c0, v->rows, v->cols, i->id);
    extend(&y->taken, to->r0, to->c0, to->rows, to->cols, i->id);
  }
}

/* ---- which tensors --------------------------------------------------------------------------------------- */

static bool is_size(const IrKernel *k, const IrVar *v) {
  for (uint32_t p = 0; p < k->params.len; p++)
    for (int d = 0; k->params.data[p].buf && d < k->params.data[p].buf->rank; d++)
      if (ir_expr_uses(k->params.data[p].buf->shape[d], v)) return true;
  return false;
}

static bool may_start_before(const IrRegion *r) {
  for (int d = 0; d < r->buf->rank; d++)
    if (r->off[d]->op == EX_MAX && ir_is_zero(r->off[d]->arg[1])) return true;
  return false;
}

/* What may be said of a tensor that is argument `a` of an instruction. */
static int watched(const Inst *x, int a, const SimBuf *b) {
  bool load = x->op == OP_GM_TO_L1 || x->op == OP_GM_TO_UB, store = x->op == OP_UB_TO_GM || x->op == OP_L0C_TO_GM;
  if ((!load && !store) || b->tensor != b->ir->id || may_start_before(&x->stmt->args[a].region)) return 0;
  if (store) return x->atomic ? 0 : WATCH_GAPS;
  return b->written ? 0 : x->op == OP_GM_TO_L1 ? WATCH_ENDS | WATCH_GAPS : WATCH_GAPS;
}

void watch_tensors(Sim *s) {
  for (uint32_t p = 0; p < s->k->params.len; p++)
    if (s->k->params.data[p].var && !is_size(s->k, s->k->params.data[p].var)) return;
  for (int side = 0; side < 2; side++)
    for (int32_t i = 0; i < s->prog[side].n_elem; i++)
      if (s->buf[s->prog[side].elem[i].buf].space == SPACE_GM && !s->prog[side].elem[i].is_store) return;
  s->by_size = true;
  for (uint32_t b = 1; b < s->n_buf; b++) {
    SimBuf *x = &s->buf[b];
    if (!x->ir || x->space != SPACE_GM || x->tensor != b || !x->rank) continue;
    x->watch = (!x->written && x->rank >= 2 ? WATCH_ENDS : 0) | (x->ir->is_out ? 0 : WATCH_GAPS);
  }
  for (int side = 0; side < 2; side++) {
    for (int32_t i = 0; i < s->prog[side].n_elem; i++) s->buf[s->buf[s->prog[side].elem[i].buf].tensor].watch = 0;
    for (int32_t i = 0; i < s->prog[side].n_inst; i++) {
      const Inst *x = &s->prog[side].inst[i];
      for (int a = 0; a < x->n_args; a++) {
        const SimBuf *b = &s->buf[x->arg[a].buf];
        if (b->ir && b->space == SPACE_GM) s->buf[b->tensor].watch &= watched(x, a, b);
      }
    }
  }
}

/* ---- the answer ------------------------------------------------------------------------------------------- */

static bool has(const uint64_t *bit, int64_t i) { return bit[i / 64] >> i % 64 & 1; }

/* Where the first bit from `lo` on is that is not `set`; hi: nowhere. */
static int64_t run_end(const uint64_t *bit, int64_t lo, int64_t hi, bool set) {
  while (lo < hi && has(bit, lo) == set) lo += lo % 64 || bit[lo / 64] != (set ? ~UINT64_C(0) : 0) ? 1 : 64;
  return min_i64(lo, hi);
}

static bool all_are(const uint64_t *bit, int64_t lo, int64_t hi, bool set) { return run_end(bit, lo, hi, set) == hi; }

/* Rows and columns (of the last two dimensions) up to which all planes were read; false: they were read otherwise. */
static bool box_of(const SimBuf *b, const uint64_t *bit, int64_t *rows, int64_t *cols) {
  int64_t R = b->shape[b->rank - 2], C = b->shape[b->rank - 1], planes = b->bytes / b->size / (R * C);
  *cols = run_end(bit, 0, C, true);
  for (*rows = 0; *rows < R && has(bit, *rows * C);) ++*rows;
  for (int64_t r = 0; r < planes * R; r++) {
    int64_t end = r % R < *rows ? *cols : 0;
    if (!all_are(bit, r * C, r * C + end, true) || !all_are(bit, r * C + end, (r + 1) * C, false)) return false;
  }
  return true;
}

/* Of every `p` indices of a dimension of n, the first `e` were touched and no other; false: they were touched
 * otherwise, or there is but one tile. */
static bool gaps_of(const uint64_t *bit, int64_t outer, int64_t n, int64_t inner, int64_t *e, int64_t *p) {
  *e = run_end(bit, 0, n * inner, true) / inner;
  *p = run_end(bit, *e * inner, n * inner, false) / inner;
  if (!*e || *p >= n) return false;
  for (int64_t o = 0; o < outer * n; o += n)
    for (int64_t i = 0; i < n; i += *p) {
      int64_t mid = (o + min_i64(i + *e, n)) * inner, end = (o + min_i64(i + *p, n)) * inner;
      if (!all_are(bit, (o + i) * inner, mid, true) || !all_are(bit, mid, end, false)) return false;
    }
  return true;
}

/* A transfer of a tensor of which the other side has an extent of n. */
static const Inst *transfer_of(const Sim *s, const SimBuf *b, int64_t n) {
  for (int side = 0; side < 2; side++)
    for (int32_t i = 0; i < s->prog[side].n_inst; i++) {
      const Inst *x = &s->prog[side].inst[i];
      for (int a = 0; a < 2 && x->n_args == 2; a++) {
        const SimBuf *tile = &s->buf[x->arg[1 - a].buf];
        for (int d = 0; d < tile->rank && &s->buf[x->arg[a].buf] == b; d++)
          if (tile->shape[d] == n) return x;
      }
    }
  return NULL;
}

static void report_gaps(const Sim *s, Arena *a, Diags *d, const SimBuf *b, int dim, int64_t e, int64_t p) {
  const Inst *x = (p - e) * 16 <= p ? transfer_of(s, b, p) : NULL;
  if (!x) return;
  const SimBuf *tile = &s->buf[x->arg[b->written ? 0 : 1].buf];
  const char *last = p - e > 1 ? arena_printf(a, " to %lld", (long long)p - 1) : "";
  Diag *g = diag_add(d, DIAG_SIM_GAPS, x->stmt->loc,
                     "index %lld%s of every %lld in dimension %d of %%%s is never %s, though all else is and %%%s has "
                     "room for %lld",
                     (long long)e, last, (long long)p, dim, b->ir->name, b->written ? "stored" : "loaded",
                     tile->ir->name, (long long)p);
  diag_other(d, g, b->ir->loc, "%%%s is declared here", b->ir->name);
  diag_fix(d, g, "transfer all %lld, or let the tiles follow each other in steps of %lld", (long long)p, (long long)e);
}

static void report_end(const Sim *s, Arena *a, Diags *d, const SimBuf *b, uint32_t who, int dim, int64_t from) {
  int64_t n = b->shape[dim];
  const char *last = n - from > 1 ? arena_printf(a, " to %lld", (long long)n - 1) : "";
  Diag *g = diag_add(d, DIAG_SIM_UNREAD, s->who[who]->loc,
                     "index %lld%s of dimension %d of %%%s is never loaded, though all before it is: the product "
                     "leaves this part out",
                     (long long)from, last, dim, b->ir->name);
  diag_other(d, g, b->ir->loc, "%%%s is declared here", b->ir->name);
  diag_fix(d, g,
           "let the loop along this dimension run T.ceildiv(%lld, block) times (%lld // block leaves the rest out), or "
           "pass a tensor of %lld there",
           (long long)n, (long long)n, (long long)from);
}

static void find_ends(const Sim *s, Arena *a, Diags *d, const SimBuf *b, const struct ReadMap *all) {
  int64_t R = b->shape[b->rank - 2], C = b->shape[b->rank - 1], rows, cols;
  if (!box_of(b, all->bit, &rows, &cols)) return;
  if (rows == R && cols < C && C - cols <= all->cols) report_end(s, a, d, b, all->who, b->rank - 1, cols);
  if (cols == C && rows < R && R - rows <= all->rows) report_end(s, a, d, b, all->who, b->rank - 2, rows);
}

static void find_gaps(const Sim *s, Arena *a, Diags *d, const SimBuf *b, const uint64_t *bit) {
  int64_t total = b->bytes / b->size, inner = 1, e, p;
  for (int dim = b->rank - 1; dim >= 0 && dim >= b->rank - 2; inner *= b->shape[dim--])
    if (gaps_of(bit, total / inner / b->shape[dim], b->shape[dim], inner, &e, &p)) report_gaps(s, a, d, b, dim, e, p);
}

static void report_unused(const Sim *s, Arena *a, Diags *d, const SimBuf *b, const struct BoxUse *u, int dim) {
  const IrStmt *by = s->who[u->taken.who], *load = s->who[u->put.who];
  const char *what = dim ? "columns" : "rows";
  Text t;
  text_init(&t, a);
  ir_print_stmt(&t, s->k, by);
  Diag *g = diag_add(d, DIAG_SIM_UNUSED, by->loc,
                     "`%s` takes %lld of the %lld %s of %%%s that are loaded, and no other product takes the rest",
                     text_str(&t), (long long)u->taken.end[dim], (long long)u->put.end[dim], what, b->ir->name);
  diag_other(d, g, load->loc, "loaded here");
  diag_fix(d, g, "let the product take all %lld %s, or load no more than %lld", (long long)u->put.end[dim], what,
           (long long)u->taken.end[dim]);
}

static void find_unused(const Sim *s, Arena *a, Diags *d, const Machine *m, int n) {
  for (uint32_t i = 1; i < s->n_buf; i++) {
    const SimBuf *b = &s->buf[i];
    struct BoxUse all = {0};
    if ((b->space != SPACE_L0A && b->space != SPACE_L0B) || b->owner) continue;
    for (int w = 0; w < n; w++)
      for (int32_t c = 0; c < m[w].n_cores; c++) {
        const struct BoxUse *u = m[w].core[c].box ? &m[w].core[c].box[i] : NULL;
        if (u && u->put.who) extend_to(&all.put, &u->put);
        if (u && u->taken.who) extend_to(&all.taken, &u->taken);
      }
    for (int dim = 0; dim < 2; dim++) {
      int64_t left = all.put.end[dim] - all.taken.end[dim];
      if (all.taken.who && left > 0 && left < all.taken.most[dim]) report_unused(s, a, d, b, &all, dim);
    }
  }
}

void find_unread(const Sim *s, Arena *a, Diags *d, const Machine *m, int n) {
  for (uint32_t i = 1; i < s->n_buf; i++) {
    const SimBuf *b = &s->buf[i];
    struct ReadMap all = {0};
    if (!b->watch || !b->bytes) continue;
    for (int w = 0; w < n; w++) {
      const struct ReadMap *r = m[w].read ? &m[w].read[i] : NULL;
      if (!r || !r->bit) continue;
      for (int64_t x = 0; all.bit && x <= b->bytes / b->size / 64; x++) all.bit[x] |= r->bit[x];
      if (!all.bit) all.bit = r->bit; /* the first worker's take those of the others */
      all.rows = max_i64(all.rows, r->rows);
      all.cols = max_i64(all.cols, r->cols);
      all.who = all.who && all.who < r->who ? all.who : r->who;
    }
    if (!all.bit) continue;
    if (b->watch & WATCH_ENDS) find_ends(s, a, d, b, &all);
    if (b->watch & WATCH_GAPS) find_gaps(s, a, d, b, all.bit);
  }
  find_unused(s, a, d, m, n);
}
