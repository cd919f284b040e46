/* blocks.c - do two blocks touch the same bytes? Blocks run in any order or at once, so nothing orders them.
 *
 * Each worker logged the accesses of its blocks to tensors that the kernel writes. They are compared when all blocks
 * are done, in the order of the blocks, whoever ran them. The unit is the greatest common divisor of all offsets,
 * lengths and strides of a tensor, so the comparison is exact to the byte and yet an array lookup for each tile row:
 * every unit remembers its first writer. Two writers of different blocks are a fault, and so is a reader of another
 * block; two atomic additions are not.
 *
 * The same log tells which elements of an `out` tensor nobody wrote. The caller gets them as the host's memory had
 * them, so that is a warning: a kernel may mean it, but one whose grid, extent or guard is too small looks the same. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a < 0 ? -a : a;
}

static int by_block(const void *x, const void *y) {
  const GmAccess *a = *(const GmAccess *const *)x, *b = *(const GmAccess *const *)y;
  if (a->block != b->block) return a->block < b->block ? -1 : 1;
  return a < b ? -1 : a > b; /* one block is in one log */
}

static const char *block_name(const Sim *s, Arena *a, int64_t block) {
  Text t;
  text_init(&t, a);
  text_put(&t, "(");
  for (uint32_t g = 0; g < s->k->grid.len; g++) {
    text_printf(&t, "%s%lld", g ? ", " : "", (long long)(block % s->grid[g]));
    block /= s->grid[g];
  }
  text_put(&t, ")");
  return text_str(&t);
}

static const char *stmt_text(const Sim *s, Arena *a, uint32_t who) {
  Text t;
  text_init(&t, a);
  ir_print_stmt(&t, s->k, s->who[who]);
  return text_str(&t);
}

static bool reads(const GmAccess *x) { return x->kind == TOUCH_READ || x->kind == TOUCH_READ_ANY; }

static void report(const Sim *s, Arena *a, const GmAccess *x, const GmAccess *y, int64_t at, int64_t len,
                   FaultList *out) {
  const IrStmt *sx = s->who[x->who], *sy = s->who[y->who];
  char *key = arena_printf(a, "%d/%u/%u", DIAG_SIM_BLOCK_RACE, sx->id, sy->id);
  for (uint32_t i = 0; i < out->len; i++)
    if (!strcmp(out->data[i].key, key)) return;
  const SimBuf *b = &s->buf[x->buf];
  const char *verb = reads(x) ? "reads" : x->kind == TOUCH_ATOMIC ? "adds to" : "writes";
  Fault f = {.code = DIAG_SIM_BLOCK_RACE, .block = x->block, .key = key, .loc = sx->loc, .other = sy->loc};
  at -= b->addr;
  const char *as = x->buf == y->buf ? "" : arena_printf(a, " as %%%s, which shares memory with it in this call",
                                                        s->buf[y->buf].ir->name);
  f.text = arena_printf(
      a, "`%s` in block %s %s bytes %lld to %lld of %%%s, which `%s` in block %s writes%s; nothing orders two blocks",
      stmt_text(s, a, x->who), block_name(s, a, x->block), verb, (long long)at, (long long)(at + len - 1), b->ir->name,
      stmt_text(s, a, y->who), block_name(s, a, y->block), as);
  f.other_text = "the write in the other block";
  f.fix = y->buf != x->buf ? PASS_APART
          : reads(x) ? "let the block compute what it reads, split the kernel in two, or order all blocks by sync_all"
                     : "give each block its own part of the tensor, or add atomically";
  vec_push(a, out, f);
}

typedef Vec(const GmAccess *) AccessList;

static int64_t unit_of(const Sim *s, const AccessList *l) {
  int64_t g = 0;
  for (uint32_t i = 0; i < l->len; i++) {
    const GmAccess *x = l->data[i];
    g = gcd(gcd(gcd(g, x->at), x->len), s->buf[x->buf].addr);
    if (x->count > 1) g = gcd(g, x->stride);
  }
  return g ? g : 1;
}

/* The first unit of x whose owner is of another block: reported. Otherwise, if x writes, x owns what has no owner. */
static void visit(const Sim *s, Arena *a, const AccessList *l, uint32_t self, uint32_t *owner, int64_t unit, bool own,
                  FaultList *out) {
  const GmAccess *x = l->data[self];
  for (int64_t r = 0; r < x->count; r++) {
    int64_t at = (s->buf[x->buf].addr + x->at + r * x->stride) / unit, n = x->len / unit;
    for (int64_t i = at; i < at + n; i++) {
      if (!owner[i]) {
        if (own) owner[i] = self + 1;
        continue;
      }
      const GmAccess *y = l->data[owner[i] - 1];
      if (y->block == x->block || (x->kind == TOUCH_ATOMIC && y->kind == TOUCH_ATOMIC)) continue;
      int64_t end = i;
      while (end < at + n && owner[end] == owner[i]) end++;
      report(s, a, x, y, i * unit, (end - i) * unit, out);
      return;
    }
  }
}

/* The accesses to a tensor, or to all that share bytes with it. */
static AccessList log_of(const Sim *s, Arena *a, const Machine *m, int n, uint32_t b, bool share) {
  AccessList l = {0};
  if (!s->buf[b].log || s->buf[b].tensor != b) return l;
  for (int w = 0; w < n; w++)
    for (uint32_t i = 0; i < m[w].log.len; i++) {
      const GmAccess *x = &m[w].log.data[i];
      if (x->buf == (int32_t)b || (share && s->buf[x->buf].share == b)) vec_push(a, &l, x);
    }
  if (l.len) qsort(l.data, l.len, sizeof *l.data, by_block);
  return l;
}

void compare_blocks(const Sim *s, Arena *a, const Machine *m, int n, FaultList *out) {
  for (uint32_t b = 1; b < s->n_buf && !s->together; b++) {
    if (s->buf[b].share != b) continue;
    AccessList l = log_of(s, a, m, n, b, true);
    if (!l.len) continue;
    int64_t unit = unit_of(s, &l), end = s->buf[b].bytes;
    for (uint32_t i = 1; i < s->n_buf; i++)
      if (s->buf[i].share == b) end = max_i64(end, s->buf[i].addr + s->buf[i].bytes);
    uint32_t *owner = arena_array(a, uint32_t, end / unit + 1);
    for (uint32_t i = 0; i < l.len; i++)
      if (!reads(l.data[i])) visit(s, a, &l, i, owner, unit, true, out);
    for (uint32_t i = 0; i < l.len; i++)
      if (reads(l.data[i])) visit(s, a, &l, i, owner, unit, false, out);
  }
}

/* ---- outputs --------------------------------------------------------------------------------------------- */

static void put_index(Text *t, const SimBuf *b, int64_t element) {
  for (int d = 0; d < b->rank; d++) {
    text_printf(t, "%s%lld", d ? ", " : "[", (long long)(element / b->stride[d]));
    element %= b->stride[d];
  }
  text_put(t, b->rank ? "]" : "[]");
}

/* The write that comes closest before byte `at`, or the first there is; NULL: none. */
static const GmAccess *write_before(const AccessList *l, int64_t at) {
  const GmAccess *best = NULL;
  for (uint32_t i = 0; i < l->len; i++) {
    const GmAccess *x = l->data[i];
    if (!reads(x) && (!best || (x->at <= at && (best->at > at || x->at > best->at)))) best = x;
  }
  return best;
}

static void report_unwritten(const Sim *s, Arena *a, Diags *d, const SimBuf *b, const AccessList *l, int64_t first,
                             int64_t elements) {
  const GmAccess *near = write_before(l, first * b->size);
  Text t;
  text_init(&t, a);
  if (near) text_printf(&t, "%lld of the %lld elements of", (long long)elements, (long long)(b->bytes / b->size));
  else text_put(&t, "all elements of");
  text_printf(&t, " %%%s, an output, are never written", b->ir->name);
  if (near) text_put(&t, "; the first has index ");
  if (near) put_index(&t, b, first);
  text_put(&t, ", and the caller finds there what the memory held before");
  if (near) text_printf(&t, " (`%s` writes nearest to it)", stmt_text(s, a, near->who));
  Diag *g = diag_add(d, DIAG_SIM_UNWRITTEN, near ? s->who[near->who]->loc : b->ir->loc, "%s", text_str(&t));
  if (near) diag_other(d, g, b->ir->loc, "%%%s is declared here", b->ir->name);
  diag_fix(d, g, "%s",
           s->blocks
               ? "write the rest too (is the grid, an extent or a condition too small?), or pass the tensor as an "
                 "argument that is no output: then what the kernel leaves alone stays as it was"
               : "launch at least one block: an extent of T.Kernel is 0 or less here");
}

void find_unwritten(const Sim *s, Arena *a, Diags *d, const Machine *m, int n) {
  for (uint32_t i = 1; i < s->n_buf; i++) {
    const SimBuf *b = &s->buf[i];
    if (!b->ir || b->space != SPACE_GM || !b->ir->is_out || b->tensor != i || !b->bytes) continue;
    AccessList l = log_of(s, a, m, n, i, false);
    int64_t unit = l.len ? gcd(unit_of(s, &l), b->size) : b->size, units = b->bytes / unit, left = 0, first = -1;
    uint8_t *written = arena_array(a, uint8_t, units);
    for (uint32_t x = 0; x < l.len; x++)
      for (int64_t r = 0; r < l.data[x]->count && !reads(l.data[x]); r++)
        memset(written + (l.data[x]->at + r * l.data[x]->stride) / unit, 1, (size_t)(l.data[x]->len / unit));
    for (int64_t u = 0; u < units; u++) {
      if (written[u]) continue;
      if (first < 0) first = u * unit / b->size;
      left++;
    }
    if (left) report_unwritten(s, a, d, b, &l, first, max_i64(left * unit / b->size, 1));
  }
}
