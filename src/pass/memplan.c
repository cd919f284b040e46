/* memplan.c - an address for every on-chip buffer.
 *
 * First every buffer of a memory gets bytes of its own, one after another: nothing shares, nothing waits for anything.
 * Only when that does not fit are live ranges used. A live range is an interval of statement numbers. A buffer that a
 * loop touches is live through the whole loop, back edge included, unless the loop alone uses it and each iteration
 * reads only what it has written before (memplan_fresh.c). Buffers are placed largest first at the lowest aligned
 * address that no overlapping live range holds. Addresses the user gave (T.annotate_address) are kept; the others go
 * around them, and around the bytes of UB that `select` keeps for itself.
 *
 * When a memory overflows, the message lists the buffers that are live at the fullest point. */
#include "memplan.h"

#include <stdlib.h>
#include <string.h>

/* from, to: the live range; first, last: the statements that name the buffer; alloc: its place in the text */
typedef struct {
  IrBuf *buf;
  uint32_t from, to, first, last, alloc;
  int64_t bytes;
  bool used, by_hand, written;
} Life;
typedef struct { IrStmt *loop; uint32_t from, to; } Loop;
typedef struct {
  PassCtx *p;
  Life *life; /* by buffer id */
  Vec(Loop) loops;
  IrStmt *stmt;
  Life scratch; /* of `select`: from the first one to the last */
} Ctx;

static void touch(Ctx *c, const IrBuf *b, uint32_t at) {
  if (b->view) touch(c, b->view, at); /* what it views lives as long */
  Life *l = &c->life[b->id];
  if (!l->used) l->from = l->to = at;
  l->used = true;
  if (at < l->from) l->from = at;
  if (at > l->to) l->to = at;
}

static void touch_load(IrExpr *e, void *user) {
  Ctx *c = user;
  if (e->op == EX_LOAD) touch(c, e->buf, c->stmt->id);
}
static void touch_expr(IrExpr **e, void *user) { ir_walk_expr(*e, touch_load, user); }

static uint32_t last_id(const IrStmt *s) {
  while (s->body.last || s->alt.last) s = s->alt.last ? s->alt.last : s->body.last;
  return s->id;
}

static bool collect(IrStmt *s, void *user) {
  Ctx *c = user;
  c->stmt = s;
  if (s->op == ST_ALLOC) c->life[s->alloc.buf->id].alloc = s->id;
  ir_stmt_exprs(s, touch_expr, c);
  if (s->op == ST_STORE) touch(c, s->store.buf, s->id), c->life[ir_root(s->store.buf)->id].written = true;
  if (s->op == OP_SELECT && !ir_attr(s, ATTR_MASKREP)) {
    if (!c->scratch.used) c->scratch.from = s->id;
    c->scratch.used = true;
    c->scratch.to = s->id;
  }
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) {
      touch(c, s->args[i].region.buf, s->id);
      c->life[ir_root(s->args[i].region.buf)->id].written |= i >= ir_n_in(s->op);
    }
  if (s->op == ST_FOR || s->op == ST_WHILE) {
    Loop l = {s, s->id, last_id(s)};
    vec_push(c->p->arena, &c->loops, l);
  }
  return true;
}

/* Loops are in program order, outer before inner: going backwards, inner loops are extended first. */
static void extend_over_loops(Ctx *c, Life *l) {
  for (int changed = 1; changed;) {
    changed = 0;
    for (uint32_t i = c->loops.len; i-- > 0;) {
      const Loop *o = &c->loops.data[i];
      if (l->to < o->from || l->from > o->to) continue;
      if (l->from <= o->from && l->to >= o->to) continue;
      bool only_here = l->from >= o->from && l->to <= o->to;
      if (only_here && memplan_fresh(c->p, o->loop, l->buf)) continue;
      l->from = l->from < o->from ? l->from : o->from;
      l->to = l->to > o->to ? l->to : o->to;
      changed = 1;
    }
  }
}

static bool clash(const Life *a, const Life *b) { return a->from <= b->to && b->from <= a->to; }

static int larger_first(const void *x, const void *y) {
  const Life *a = *(Life *const *)x, *b = *(Life *const *)y;
  if (a->by_hand != b->by_hand) return a->by_hand ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->alloc < b->alloc ? -1 : 1;
}

/* Lowest address for l beside placed[0..n); share: only live ranges that overlap are in the way. */
static int64_t lowest(Life **placed, int n, const Life *l, int64_t align, bool share) {
  int64_t addr = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < n; i++) {
      const IrBuf *b = placed[i]->buf;
      if (share && !clash(placed[i], l)) continue;
      if (addr < b->addr + placed[i]->bytes && b->addr < addr + l->bytes) {
        addr = round_up(b->addr + placed[i]->bytes, align);
        moved = true;
      }
    }
  }
  return addr;
}

static bool place(Life **list, int n, int64_t limit, int64_t align, bool share) {
  bool fits = true;
  for (int i = 0; i < n; i++) {
    if (!list[i]->by_hand) list[i]->buf->addr = lowest(list, i, list[i], align, share);
    fits &= list[i]->buf->addr + list[i]->bytes <= limit;
  }
  return fits;
}

/* The most versions of pipelined buffers with which all would fit; 0: fewer do not help. */
static int most_stages(Ctx *c, Space s, Life **list, int n) {
  const ArchSpace *space = &c->p->arch->space[s];
  int fits = 0;
  for (int i = 0; i < n; i++)
    if (list[i]->buf->versions > fits) fits = list[i]->buf->versions;
  while (--fits > 0) {
    for (int i = 0; i < n; i++) {
      int64_t have = list[i]->buf->versions;
      if (have > fits) list[i]->bytes = ir_buf_bytes(list[i]->buf) / have * fits;
    }
    if (place(list, n, space->physical, space->align, true)) break;
  }
  return fits < 0 ? 0 : fits;
}

/* What would fit: the extent that most of the live bytes have in common, made as much smaller as it must be. */
static void fix_overflow(Ctx *c, Diag *g, Life **list, int n, uint32_t at, int64_t limit) {
  int64_t best = 0, extent = 0, rest = 0;
  const char *name = NULL;
  for (int i = 0; i < n; i++)
    for (int d = 0; d < list[i]->buf->rank; d++) {
      int64_t e = list[i]->buf->shape[d]->i, with = 0, without = 0;
      if (e < 2 || at < list[i]->from || at > list[i]->to) continue;
      for (int j = 0; j < n; j++) {
        bool has = false;
        if (at < list[j]->from || at > list[j]->to) continue;
        for (int x = 0; x < list[j]->buf->rank; x++) has |= list[j]->buf->shape[x]->i == e;
        *(has ? &with : &without) += ir_buf_bytes(list[j]->buf);
      }
      if (with < best || (with == best && e <= extent)) continue;
      best = with, extent = e, rest = without, name = list[i]->buf->name;
    }
  double share = best ? (double)(limit - rest) / (double)best : 0;
  int64_t fits = share > 0 ? (int64_t)((double)extent * share) : 0;
  if (fits >= 16) fits -= fits % 16;
  if (fits > 0)
    diag_fix(c->p->diags, g, "make the tiles smaller: with %lld instead of %lld in the shape of %%%s and of the others "
             "that have it they fit; or keep fewer buffers alive at the same time (T.Pipelined: fewer stages)",
             (long long)fits, (long long)extent, name);
  else
    diag_fix(c->p->diags, g, "smaller tiles, or fewer buffers alive at the same time (T.Pipelined: fewer stages)");
}

static void overflow(Ctx *c, Space s, Life **list, int n) {
  /* The fullest moment: some live range begins there. */
  int64_t peak = -1;
  uint32_t at = 0;
  for (int i = 0; i < n; i++) {
    int64_t sum = 0;
    for (int j = 0; j < n; j++)
      sum += list[j]->from <= list[i]->from && list[i]->from <= list[j]->to ? list[j]->bytes : 0;
    if (sum > peak) peak = sum, at = list[i]->from;
  }
  Text t;
  text_init(&t, c->p->arena);
  const IrBuf *biggest = NULL;
  int64_t big = -1, own = -1;
  for (int i = 0; i < n; i++) {
    const IrBuf *b = list[i]->buf;
    if (at < list[i]->from || at > list[i]->to) continue;
    if (list[i] == &c->scratch) {
      own = b->addr;
      text_printf(&t, "%s%lld B from byte %lld on that `select` itself needs", t.len ? ", " : "",
                  (long long)list[i]->bytes, (long long)own);
      continue;
    }
    if (list[i]->bytes > big) big = list[i]->bytes, biggest = b;
    text_printf(&t, "%s%%%s %s[", t.len ? ", " : "", b->name, dtype_info[b->type].name);
    for (int d = 0; d < b->rank; d++) text_printf(&t, "%s%lld", d ? ", " : "", (long long)b->shape[d]->i);
    text_printf(&t, "] %lld B (%s%s)", (long long)list[i]->bytes, b->id >= c->p->n_user_bufs ? "scratch of " : "",
                ir_loc_str(c->p->arena, c->p->module, b->loc));
  }
  int64_t limit = c->p->arch->space[s].bytes;
  if (!biggest) return;
  Diag *g = diag_add(c->p->diags, DIAG_MEM_OVERFLOW, biggest->loc,
                     "%s of %s holds %lld bytes, the buffers that are live together need %lld%s: %s",
                     space_info[s].name, c->p->arch->name, (long long)limit, (long long)peak,
                     peak > limit ? "" : " and do not fit around what has its place", text_str(&t));
  if (own >= 0) limit = own;
  int stages = most_stages(c, s, list, n);
  if (stages)
    diag_fix(c->p->diags, g, "num_stages=%d: the largest that fits", stages);
  else if (s == SPACE_L1)
    diag_fix(c->p->diags, g,
             "loop over K: `for k in T.Pipelined(T.ceildiv(K, 64), num_stages=2)`, copy tiles of 64 of K, and "
             "accumulate with T.gemm inside the loop");
  else if (s == SPACE_L0C)
    diag_fix(c->p->diags, g, "smaller output tiles: block_M * block_N * 4 bytes must fit, as 128 x 128 does");
  else
    fix_overflow(c, g, list, n, at, limit);
}

/* Two buffers that the user placed share bytes while both are in use: kept, since it may be meant, and said. */
static void hand_clash(Ctx *c, const Life *a, const Life *b) {
  int64_t lo = max_i64(a->buf->addr, b->buf->addr);
  int64_t hi = min_i64(a->buf->addr + a->bytes, b->buf->addr + b->bytes);
  if (lo >= hi || a->last <= b->first || b->last <= a->first) return; /* one may take over in one statement */
  if (!a->written || !b->written) return; /* two names of one value */
  Diag *g = diag_add(c->p->diags, DIAG_MEM_CLASH, b->buf->loc,
                     "%%%s (bytes %lld to %lld of %s) and %%%s (bytes %lld to %lld) share %lld bytes while both are in "
                     "use: what is written to one is lost in the other",
                     b->buf->name, (long long)b->buf->addr, (long long)(b->buf->addr + b->bytes - 1),
                     space_info[b->buf->space].name, a->buf->name, (long long)a->buf->addr,
                     (long long)(a->buf->addr + a->bytes - 1), (long long)(hi - lo));
  diag_other(c->p->diags, g, a->buf->loc, "%%%s stands here", a->buf->name);
  diag_fix(c->p->diags, g, "put %%%s at byte %lld, or leave its address to the compiler", b->buf->name,
           (long long)round_up(a->buf->addr + a->bytes, c->p->arch->space[b->buf->space].align));
}

static bool hand_overlap(Ctx *c, Life **list, int n) {
  for (int i = 0; i < n; i++) {
    const IrBuf *a = list[i]->buf;
    int64_t align = c->p->arch->space[a->space].align;
    int64_t end = a->addr + list[i]->bytes, room = c->p->arch->space[a->space].physical;
    if (list[i]->by_hand && end > room) {
      Diag *g = diag_add(c->p->diags, DIAG_MEM_OUTSIDE, a->loc,
                         "%%%s stands at bytes %lld to %lld of %s, which has %lld", a->name, (long long)a->addr,
                         (long long)end - 1, space_info[a->space].name, (long long)room);
      diag_fix(c->p->diags, g, list[i]->bytes > room ? "make it smaller" : "use an address up to %lld",
               (long long)((room - list[i]->bytes) / align * align));
      return false;
    }
    for (int j = 0; j < i && list[i]->by_hand; j++) hand_clash(c, list[j], list[i]);
  }
  return true;
}

/* The bytes of UB that the instruction keeps for itself, as a buffer that the user placed. */
static bool select_scratch(Ctx *c, Life **list, int n) {
  const Arch *arch = c->p->arch;
  Life *l = &c->scratch;
  if (!l->used || arch->select_scratch < 0) return false;
  l->buf = arena_new(c->p->arena, IrBuf);
  *l->buf = (IrBuf){.name = "select's own bytes", .type = DT_U8, .space = SPACE_UB, .addr = arch->select_scratch};
  l->bytes = arch->select_scratch_bytes;
  l->by_hand = true;
  l->first = l->from, l->last = l->to;
  for (uint32_t i = c->loops.len; i-- > 0;) { /* inner loops first */
    const Loop *o = &c->loops.data[i];
    if (l->to < o->from || l->from > o->to) continue;
    l->from = l->from < o->from ? l->from : o->from;
    l->to = l->to > o->to ? l->to : o->to;
  }
  for (int i = 0; i < n; i++) {
    const IrBuf *b = list[i]->buf;
    if (!list[i]->by_hand || b->addr >= l->buf->addr + l->bytes || b->addr + list[i]->bytes <= l->buf->addr) continue;
    if (!clash(list[i], l)) continue;
    Diag *g = diag_add(c->p->diags, DIAG_MEM_SCRATCH, b->loc,
                       "%%%s stands in bytes %lld to %lld of ub; `select` keeps bytes %d to %lld for itself", b->name,
                       (long long)b->addr, (long long)(b->addr + list[i]->bytes - 1), arch->select_scratch,
                       (long long)(l->buf->addr + l->bytes - 1));
    diag_fix(c->p->diags, g, "place it elsewhere, or leave its address to the compiler");
  }
  return true;
}

static bool plan_space(Ctx *c, Space s) {
  IrKernel *k = c->p->k;
  Life **list = arena_array(c->p->arena, Life *, k->bufs.len + 1);
  int n = 0;
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (k->bufs.data[i]->space == s && c->life[i].used && !k->bufs.data[i]->view) list[n++] = &c->life[i];
  uint32_t errors = c->p->diags->n_errors;
  if (s == SPACE_UB && n && select_scratch(c, list, n)) list[n++] = &c->scratch;
  if (c->p->diags->n_errors > errors) return false;
  qsort(list, (size_t)n, sizeof *list, larger_first);
  int64_t limit = c->p->arch->space[s].bytes, align = c->p->arch->space[s].align;
  if (!hand_overlap(c, list, n)) return false;
  if (place(list, n, limit, align, false)) return true;
  if (place(list, n, limit, align, true)) {
    pass_remark(c->p, "memplan", k->loc, "%s: buffers whose lives do not overlap share addresses", space_info[s].name);
    return true;
  }
  int64_t physical = c->p->arch->space[s].physical;
  if (place(list, n, physical, align, true)) {
    Diag *g = diag_add(c->p->diags, DIAG_MEM_RESERVED, list[0]->buf->loc,
                       "the buffers in %s reach into its last %lld bytes, which the toolkit keeps for itself",
                       space_info[s].name, (long long)(physical - limit));
    diag_fix(c->p->diags, g, "keep to %lld bytes: a little less in %%%s", (long long)limit, list[0]->buf->name);
    return true;
  }
  overflow(c, s, list, n);
  return false;
}

static bool drop_unused(IrStmt *s, void *user) {
  Ctx *c = user;
  if (s->op == ST_ALLOC && !c->life[s->alloc.buf->id].used) {
    if (s->loc.file && !strchr(s->alloc.buf->name, '.'))
      diag_add(c->p->diags, DIAG_SCOPE_UNUSED, s->loc, "%%%s is never used", s->alloc.buf->name);
    ir_remove(s);
  }
  return true;
}

/* Prints do not lengthen lives: what they show may be gone, or may never have been. */
typedef struct { Ctx *c; IrStmt *stmt; const IrBuf *none; } Say;

static void check_shown(Say *x, const IrBuf *b) {
  const IrBuf *own = ir_root((IrBuf *)b);
  const Life *l = &x->c->life[own->id];
  if (own->space == SPACE_GM) return;
  if (!l->used) {
    x->none = own;
    return;
  }
  for (uint32_t i = 1; i < x->c->p->k->bufs.len; i++) {
    const Life *o = &x->c->life[i];
    if (!o->used || o == l || o->buf->space != own->space || o->buf->view || o->from > x->stmt->id || o->to <= l->to)
      continue;
    if (o->buf->addr >= own->addr + l->bytes || own->addr >= o->buf->addr + o->bytes) continue;
    Diag *g = diag_add(x->c->p->diags, DIAG_SAY_LATE, x->stmt->loc,
                       "%%%s is printed after its last use; its memory (%s, byte %lld) belongs to %%%s by then",
                       own->name, space_info[own->space].name, (long long)own->addr, o->buf->name);
    diag_fix(x->c->p->diags, g, "print it where it is used last");
    return;
  }
}

static void shown_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) check_shown(user, e->buf);
}
static void shown_expr(IrExpr **e, void *user) { ir_walk_expr(*e, shown_load, user); }

static bool check_say(IrStmt *s, void *user) {
  Say x = {user, s, NULL};
  if (!ir_is_say(s)) return true;
  ir_say_exprs(s, shown_expr, &x);
  for (int i = 0; i < s->say.n; i++)
    if (s->say.arg[i].kind == ARG_REGION) check_shown(&x, s->say.arg[i].region.buf);
  if (x.none) pass_drop_say(x.c->p, s, "nothing else uses %%%s", x.none->name);
  return true;
}

bool pass_memplan(PassCtx *p) {
  IrKernel *k = p->k;
  Ctx c = {.p = p, .life = arena_array(p->arena, Life, k->bufs.len)};
  ir_hoist_allocs(k);
  ir_renumber(k);
  ir_walk(&k->body, collect, &c);
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    Life *l = &c.life[i];
    l->buf = k->bufs.data[i];
    l->by_hand = l->buf->addr >= 0;
    if (l->buf->space == SPACE_GM || !l->used || l->buf->view) continue;
    l->bytes = ir_buf_bytes(l->buf);
    bool temp = l->buf->id >= p->n_user_bufs;
    if (temp && (l->buf->space == SPACE_L0A || l->buf->space == SPACE_L0B))
      continue; /* a product loads what it reads: nothing lives on */
    l->first = l->from;
    l->last = l->to;
    extend_over_loops(&c, l);
    if (!p->auto_memory && !temp) l->from = 0, l->to = k->n_stmts; /* only temporaries of the compiler share */
  }
  bool planned = true;
  p->ub_full = false;
  for (int s = 0; s < SPACE_COUNT; s++) { /* each memory that overflows is told */
    if (s == SPACE_GM || !space_info[s].physical || plan_space(&c, (Space)s)) continue;
    planned = false;
    p->ub_full |= s == SPACE_UB;
  }
  for (uint32_t i = 1; i < k->bufs.len; i++)
    if (k->bufs.data[i]->view) k->bufs.data[i]->addr = ir_root(k->bufs.data[i])->addr;
  if (planned) ir_walk(&k->body, check_say, &c);
  if (planned) ir_walk(&k->body, drop_unused, &c);
  for (uint32_t i = 1; i < k->bufs.len && !planned; i++) /* as if it had not run */
    if (!c.life[i].by_hand) k->bufs.data[i]->addr = -1;
  return planned;
}
