/* shadow.c - for every 32-byte granule: who read it last, who wrote it last, which bytes hold a value.
 *
 * Memory is shadowed in pages of 128 granules. A page has one lane for each (pipe of a core, kind of access) that ever
 * touched it: the tick of that pipe's last access and who it was, per granule. An access conflicts with a lane whose
 * tick is later than what the accessing pipe has seen of that lane's pipe - one vector comparison over the granules of
 * the range, so cost grows with 32-byte granules over 16, not with bytes.
 *
 * A granule touched in part is split: its lanes are then kept byte by byte, and the page lane only filters. A full
 * write that is ordered after everything mends it. Ticks grow from block to block and a new block has seen all old
 * ones, so nothing is cleared between blocks but the bits of bytes that hold a value.
 *
 * Where buffers share bytes, each granule knows through which buffer it was written last, and through which before: a
 * value that another buffer has covered is lost.
 *
 * Local memories are arrays of pages; GM tensors have theirs in a table, made when first touched. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "machine.h"

#include <string.h>

enum { GRANULE = 32, GRANULES = 128, PAGE = GRANULE * GRANULES };

typedef struct SplitLane {
  struct SplitLane *next;
  uint32_t key;
  uint32_t tick[GRANULE], who[GRANULE];
} SplitLane;

/* last: the latest of the ticks; most accesses are ordered after all of a page, and need to know no more. */
typedef struct { uint32_t last, tick[GRANULES], who[GRANULES]; } Lane;

typedef struct Page {
  uint32_t init[GRANULES]; /* a bit a byte: holds a value */
  uint64_t owners[GRANULES];    /* a bit for each buffer through which it was written */
  uint32_t owner_who[GRANULES]; /* the last of these writes, and its buffer */
  uint8_t owner[GRANULES];
  uint64_t is_split[GRANULES / 64];
  int32_t n, cap;
  uint32_t *key;
  Lane **lane;
  SplitLane **split; /* per granule; NULL until the first */
} Page;

struct Shadow { int64_t n; Page page[]; };

typedef struct { uint64_t key; Page *page; } GmSlot;
struct GmShadow { GmSlot *slot; uint32_t cap, count; Vec(Page *) spare; };

/* ---- pages ---------------------------------------------------------------------------------------------- */

Shadow *shadow_new(Machine *m, int64_t bytes) {
  int64_t n = ceil_div(bytes, PAGE);
  Shadow *s = arena_alloc(&m->arena, sizeof(Shadow) + sizeof(Page) * (size_t)n, 64);
  s->n = n;
  return s;
}

static void mend(Machine *m, Page *p, int g) {
  for (SplitLane *l = p->split[g], *next; l; l = next) {
    next = l->next;
    l->next = m->free_lanes;
    m->free_lanes = l;
  }
  p->split[g] = NULL;
  p->is_split[g / 64] &= ~(UINT64_C(1) << g % 64);
}

static void page_reset(Machine *m, Page *p) {
  memset(p->init, 0, sizeof p->init);
  memset(p->owners, 0, sizeof p->owners);
  for (int w = 0; w < GRANULES / 64; w++)
    while (p->is_split[w]) mend(m, p, w * 64 + __builtin_ctzll(p->is_split[w]));
}

void shadow_reset(Machine *m, Shadow *s) {
  for (int64_t i = 0; i < s->n; i++) page_reset(m, &s->page[i]);
}

struct GmShadow *gm_shadow_new(Machine *m) {
  struct GmShadow *g = arena_new(&m->arena, struct GmShadow);
  g->cap = 1024;
  g->slot = arena_array(&m->arena, GmSlot, g->cap);
  return g;
}

void gm_shadow_reset(Machine *m) {
  struct GmShadow *g = m->gm;
  if (!g->count) return;
  for (uint32_t i = 0; i < g->cap; i++) {
    if (!g->slot[i].page) continue;
    page_reset(m, g->slot[i].page);
    vec_push(&m->arena, &g->spare, g->slot[i].page);
    g->slot[i].page = NULL;
  }
  g->count = 0;
}

static uint32_t gm_hash(uint64_t key) { return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32); }

static Page *gm_page(Machine *m, const SimBuf *b, int64_t page) {
  struct GmShadow *g = m->gm;
  uint64_t key = (uint64_t)b->share << 44 ^ (uint64_t)page;
  uint32_t i = gm_hash(key) & (g->cap - 1);
  for (; g->slot[i].page; i = (i + 1) & (g->cap - 1))
    if (g->slot[i].key == key) return g->slot[i].page;
  if (g->count * 2 >= g->cap) {
    GmSlot *old = g->slot;
    uint32_t n = g->cap;
    g->cap *= 2;
    g->slot = arena_array(&m->arena, GmSlot, g->cap);
    for (uint32_t k = 0; k < n; k++) {
      if (!old[k].page) continue;
      uint32_t at = gm_hash(old[k].key) & (g->cap - 1);
      while (g->slot[at].page) at = (at + 1) & (g->cap - 1);
      g->slot[at] = old[k];
    }
    for (i = gm_hash(key) & (g->cap - 1); g->slot[i].page;) i = (i + 1) & (g->cap - 1);
  }
  g->count++;
  g->slot[i].key = key;
  g->slot[i].page = g->spare.len ? g->spare.data[--g->spare.len] : arena_new(&m->arena, Page);
  return g->slot[i].page;
}

static Page *page_at(Machine *m, Shadow *s, const SimBuf *b, int64_t page) {
  return s ? &s->page[page] : gm_page(m, b, page);
}

static Lane *lane_of(Machine *m, Page *p, uint32_t key) {
  for (int i = 0; i < p->n; i++)
    if (p->key[i] == key) return p->lane[i];
  if (p->n == p->cap) {
    int32_t cap = p->cap ? p->cap * 2 : 4;
    uint32_t *keys = arena_array(&m->arena, uint32_t, cap);
    Lane **lanes = arena_array(&m->arena, Lane *, cap);
    if (p->n) memcpy(keys, p->key, sizeof *keys * (size_t)p->n);
    if (p->n) memcpy(lanes, p->lane, sizeof *lanes * (size_t)p->n);
    p->key = keys;
    p->lane = lanes;
    p->cap = cap;
  }
  p->key[p->n] = key;
  return p->lane[p->n++] = arena_new(&m->arena, Lane);
}

/* ---- parts of a range that lie in one page -------------------------------------------------------------- */

typedef struct {
  Page *page;
  int64_t start;
  int g0, g1;
  uint32_t first, last;
} Part; /* granules g0..g1, byte masks of the two ends */

static Part part_at(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi) {
  int64_t page = lo / PAGE, end = min_i64(hi, (page + 1) * PAGE) - page * PAGE, at = lo - page * PAGE;
  Part p = {page_at(m, s, b, page), page * PAGE, (int)(at / GRANULE), (int)((end - 1) / GRANULE), 0, 0};
  p.first = ~UINT32_C(0) << at % GRANULE;
  p.last = ~UINT32_C(0) >> (GRANULE - 1 - (end - 1) % GRANULE);
  return p;
}

static uint32_t part_mask(const Part *p, int g) {
  return (g == p->g0 ? p->first : ~UINT32_C(0)) & (g == p->g1 ? p->last : ~UINT32_C(0));
}

static bool any_later(const uint32_t *tick, int n, uint32_t limit) {
  uint32_t any = 0;
  for (int i = 0; i < n; i++) any |= tick[i] > limit;
  return any;
}

static bool is_split(const Page *p, int g) { return p->is_split[g / 64] >> g % 64 & 1; }

static bool any_split(const Page *p, int g0, int g1) {
  uint64_t any = 0;
  for (int w = g0 / 64; w <= g1 / 64; w++) any |= p->is_split[w];
  if (!any) return false;
  for (int g = g0; g <= g1; g++)
    if (is_split(p, g)) return true;
  return false;
}

/* ---- conflicts ------------------------------------------------------------------------------------------ */

uint32_t hit_seq(const Machine *m, uint32_t core, const Hit *h) {
  uint32_t comp = h->key / LANE_KINDS;
  const PipeQueue *q = &m->core[core].pipe[comp % COMPS];
  return comp / COMPS == core && q->tick - h->tick < SEQ_RING ? q->seq[h->tick % SEQ_RING] : 0;
}

bool hit_nearer(const Machine *m, const Search *q, const Hit *h, const Hit *than) {
  uint32_t core = q->comp / COMPS, a = hit_seq(m, core, h), b = hit_seq(m, core, than);
  if (a <= q->seq || b <= q->seq) return a > b;
  uint32_t from = q->id + 1; /* ids before it wrap round: the next iteration */
  return m->sim->who[h->who]->id - from < m->sim->who[than->who]->id - from;
}

static bool split_conflict(const Page *p, int g, uint32_t mask, uint32_t key, uint32_t limit, Hit *hit) {
  for (const SplitLane *l = p->split[g]; l; l = l->next) {
    if (l->key != key) continue;
    for (int i = 0; i < GRANULE; i++)
      if (mask >> i & 1 && l->tick[i] > limit) {
        int end = i + 1;
        while (end < GRANULE && mask >> end & 1 && l->tick[end] > limit && l->who[end] == l->who[i]) end++;
        *hit = (Hit){i, end, key, l->who[i], l->tick[i]};
        return true;
      }
  }
  return false;
}

/* The latest access of a lane to bytes of p that `limit` does not cover. */
static bool lane_conflict(const Part *p, int lane, uint32_t limit, Hit *hit) {
  const Lane *l = p->page->lane[lane];
  if (l->last <= limit || !any_later(&l->tick[p->g0], p->g1 - p->g0 + 1, limit)) return false;
  hit->tick = limit;
  for (int g = p->g0; g <= p->g1; g++) {
    uint32_t mask = part_mask(p, g), who = l->who[g];
    if (l->tick[g] <= hit->tick || !mask) continue;
    if (is_split(p->page, g)) {
      if (!split_conflict(p->page, g, mask, p->page->key[lane], hit->tick, hit)) continue;
      hit->lo += p->start + g * GRANULE;
      hit->hi += p->start + g * GRANULE;
      continue;
    }
    *hit = (Hit){p->start + g * GRANULE + __builtin_ctz(mask), 0, p->page->key[lane], who, l->tick[g]};
    while (g < p->g1 && !is_split(p->page, g + 1) && l->tick[g + 1] == hit->tick && l->who[g + 1] == who) g++;
    hit->hi = p->start + g * GRANULE + 32 - __builtin_clz(part_mask(p, g));
  }
  return hit->tick > limit;
}

bool shadow_conflict(Machine *m, Shadow *s, const SimBuf *b, const Search *q, Hit *hit) {
  bool found = false;
  Hit h;
  for (int64_t lo = q->lo; lo < q->hi;) {
    Part p = part_at(m, s, b, lo, q->hi);
    for (int i = 0; i < p.page->n; i++) {
      uint32_t other = p.page->key[i] / LANE_KINDS, k = p.page->key[i] % LANE_KINDS;
      if (q->twice != (q->kind == LANE_WRITE && k == LANE_WRITE && other / COMPS != q->comp / COMPS)) continue;
      if (other == q->comp && q->in_order) continue;
      if (k == (uint32_t)q->kind && q->kind != LANE_WRITE) continue;
      if (!lane_conflict(&p, i, q->seen[other], &h)) continue;
      if (q->before && hit_seq(m, q->comp / COMPS, &h) > q->before) continue;
      if (!found || hit_nearer(m, q, &h, hit)) *hit = h;
      found = true;
    }
    lo = p.start + PAGE;
  }
  return found;
}

static SplitLane *split_lane(Machine *m, Page *p, int g, uint32_t key) {
  for (SplitLane *l = p->split[g]; l; l = l->next)
    if (l->key == key) return l;
  SplitLane *l = m->free_lanes;
  if (l) m->free_lanes = l->next;
  else l = arena_new(&m->arena, SplitLane);
  memset(l->tick, 0, sizeof l->tick);
  l->key = key;
  l->next = p->split[g];
  return p->split[g] = l;
}

/* From now on byte by byte: what was known of the granule holds for each of its bytes. */
static void split(Machine *m, Page *p, int g) {
  if (!p->split) p->split = arena_array(&m->arena, SplitLane *, GRANULES);
  p->is_split[g / 64] |= UINT64_C(1) << g % 64;
  for (int i = 0; i < p->n; i++) {
    if (!p->lane[i]->tick[g]) continue;
    SplitLane *l = split_lane(m, p, g, p->key[i]);
    for (int x = 0; x < GRANULE; x++) {
      l->tick[x] = p->lane[i]->tick[g];
      l->who[x] = p->lane[i]->who[g];
    }
  }
}

static void mark_granule(Machine *m, const Part *p, int g, Lane *lane, uint32_t key, uint32_t tick, uint32_t who) {
  Page *page = p->page;
  uint32_t mask = part_mask(p, g);
  if (mask == ~UINT32_C(0) && key % LANE_KINDS == LANE_WRITE && is_split(page, g)) {
    mend(m, page, g);
    for (int i = 0; i < page->n; i++) page->lane[i]->tick[g] = 0;
  } else if (mask != ~UINT32_C(0) || is_split(page, g)) {
    if (!is_split(page, g)) split(m, page, g);
    SplitLane *l = split_lane(m, page, g, key);
    for (int x = 0; x < GRANULE; x++) {
      if (!(mask >> x & 1)) continue;
      l->tick[x] = tick;
      l->who[x] = who;
    }
  }
  lane->tick[g] = tick;
  lane->who[g] = who;
}

void shadow_mark(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, uint32_t comp, LaneKind kind,
                 uint32_t tick, uint32_t who) {
  uint32_t key = comp * LANE_KINDS + kind;
  while (lo < hi) {
    Part p = part_at(m, s, b, lo, hi);
    Lane *lane = lane_of(m, p.page, key);
    lane->last = tick;
    bool ragged = p.first != ~UINT32_C(0) || p.last != ~UINT32_C(0) || any_split(p.page, p.g0, p.g1);
    if (ragged) {
      for (int g = p.g0; g <= p.g1; g++) mark_granule(m, &p, g, lane, key, tick, who);
    } else {
      for (int g = p.g0; g <= p.g1; g++) lane->tick[g] = tick;
      for (int g = p.g0; g <= p.g1; g++) lane->who[g] = who;
    }
    lo = p.start + PAGE;
  }
}

/* ---- bytes that hold a value ---------------------------------------------------------------------------- */

bool shadow_undefined(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, Hit *hit) {
  while (lo < hi) {
    Part p = part_at(m, s, b, lo, hi);
    uint32_t all = ~UINT32_C(0);
    for (int g = p.g0 + 1; g < p.g1; g++) all &= p.page->init[g];
    all &= p.page->init[p.g0] | ~part_mask(&p, p.g0);
    all &= p.page->init[p.g1] | ~part_mask(&p, p.g1);
    if (all != ~UINT32_C(0)) {
      int g = p.g0;
      while (!(part_mask(&p, g) & ~p.page->init[g])) g++;
      uint32_t bad = part_mask(&p, g) & ~p.page->init[g];
      int from = __builtin_ctz(bad);
      *hit = (Hit){p.start + g * GRANULE + from, 0, 0, 0, 0};
      uint32_t good = ~bad & (~UINT32_C(0) << from);
      if (good) {
        hit->hi = p.start + g * GRANULE + __builtin_ctz(good);
        return true;
      }
      for (g++; g <= p.g1 && (part_mask(&p, g) & ~p.page->init[g]) == part_mask(&p, g); g++) {}
      hit->hi = min_i64(p.start + (int64_t)g * GRANULE, hi);
      return true;
    }
    lo = p.start + PAGE;
  }
  return false;
}

void shadow_define(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, bool defined) {
  while (lo < hi) {
    Part p = part_at(m, s, b, lo, hi);
    uint32_t first = part_mask(&p, p.g0), last = part_mask(&p, p.g1), *init = p.page->init;
    if (defined) {
      init[p.g0] |= first;
      for (int g = p.g0 + 1; g < p.g1; g++) init[g] = ~UINT32_C(0);
      init[p.g1] |= last;
    } else {
      init[p.g0] &= ~first;
      for (int g = p.g0 + 1; g < p.g1; g++) init[g] = 0;
      init[p.g1] &= ~last;
    }
    lo = p.start + PAGE;
  }
}

/* ---- buffers that share bytes --------------------------------------------------------------------------- */

/* Granules of [lo, hi) that lie in the page of granule g: from g on, how many. */
static int in_page(int64_t g, int64_t hi) { return (int)min_i64((hi - 1) / GRANULE + 1 - g, GRANULES - g % GRANULES); }

void shadow_own(Shadow *s, int64_t lo, int64_t hi, uint8_t owner, uint32_t who) {
  for (int64_t g = lo / GRANULE; g <= (hi - 1) / GRANULE; g += in_page(g, hi)) {
    Page *p = &s->page[g / GRANULES];
    int at = (int)(g % GRANULES), n = in_page(g, hi);
    for (int i = 0; i < n; i++) p->owners[at + i] |= UINT64_C(1) << owner;
    for (int i = 0; i < n; i++) p->owner_who[at + i] = who;
    memset(p->owner + at, owner, (size_t)n);
  }
}

bool shadow_lost(const Shadow *s, int64_t lo, int64_t hi, uint8_t owner, Hit *hit) {
  for (int64_t g = lo / GRANULE; g <= (hi - 1) / GRANULE; g += in_page(g, hi)) {
    const Page *p = &s->page[g / GRANULES];
    int at = (int)(g % GRANULES), n = in_page(g, hi);
    uint8_t other = 0;
    for (int i = 0; i < n; i++) other |= p->owner[at + i] ^ owner;
    for (int i = 0; other && i < n; i++) {
      if (p->owner[at + i] == owner || !(p->owners[at + i] >> owner & 1)) continue;
      *hit = (Hit){max_i64((g + i) * GRANULE, lo), min_i64((g + i + 1) * GRANULE, hi), 0, p->owner_who[at + i], 0};
      return true;
    }
  }
  return false;
}
