/* memory.c - HBM and L2 as the cores see them: which bytes are in L2, and how transfers share the bandwidth.
 *
 * L2 remembers 512-byte lines by address. A line is there if fewer lines than L2 holds were brought in since it was
 * last touched (more or fewer by place); that needs no list, only a stamp a line. 128-byte sectors are fetched one by
 * one. Written sectors go to HBM while it has nothing else to do, oldest first; what has not gone when its line
 * has aged out, the transfer that pushed it out pays.
 *
 * A transfer moves all its bytes through L2, and what was missing through HBM at the same time; so a hit never takes
 * longer than a miss. A core has so much under way that alone it moves as much as its path takes; when all together ask
 * for more than HBM gives, then than L2 gives, each gets the same share of what it would get alone. Cores that read the
 * same place at the same time ask HBM for it together, and none is done before the first of them has brought it; they
 * share the lines that one place gives a cycle. Transfers whose rows are pieces of lines share what a part of a tensor
 * gives, so many cores on one small tensor are slowed down wherever they stand in it.
 *
 * Alone, a transfer moves as fast as its path takes it (cap). Those of one channel are slowed down alike: each gets the
 * same share of its cap. So `served` counts the ticks that each has moved as if alone, and one that joins with t such
 * ticks left is done when `served` has grown by t. The list is sorted by who is done first; a beginning or an end
 * changes one entry, however many are under way. Those that a part of a tensor slows down are on channels of that part,
 * with the same part of that as their cap: another one only changes what they get of it.
 *
 * Numbers are integers: bytes << 20 a tick. */
#include "timing.h"

#include <string.h>

/* One line: stamp in the upper 27 bits (0: never), a bit for `written`, a bit for each of the four sectors. */
enum { STAMP_SHIFT = 5, WRITTEN = 16, SECTORS = 15, LINES_A_STAMP = 8 };
enum { WORTH_KEEPING = 8, LEAST_TILE_BITS = 4, MOST_TILE_BITS = 12 }; /* lines of a tile; tiles are kept by hash */
enum { PART_ASKS = 64 }; /* for caps of what a part gives: that many ask */
#define LONGEST ((Tick)1 << 34) /* that HBM's spare time is counted for at once */

/* ---- transfers under way -------------------------------------------------------------------------------- */

/* Ticks that `work` bytes << RATE_BITS take at that cap, << RATE_BITS. */
static inline int64_t share_left(int64_t work, int64_t cap) {
  return (int64_t)((double)work / (double)cap * (1 << RATE_BITS));
}

static bool comes_before(const Turn *a, const Turn *b) {
  return a->at != b->at ? a->at < b->at : (int32_t)(a->order - b->order) < 0;
}

static void share_init(Arena *a, Channel *c, int32_t n_flows) {
  *c = (Channel){.turn = arena_array(a, Turn, 2 * n_flows + 1), .room = 2 * n_flows + 1, .next = NEVER};
}

/* What each has moved until now. */
static inline void serve(Channel *c, Tick now) {
  if (c->served_at == now) return; /* cores in step do much at once */
  c->served += c->rate * (now - c->served_at);
  c->served_at = now;
}

static TL_APART void make_room(Channel *c) {
  memmove(c->turn, c->turn + c->head, sizeof *c->turn * (size_t)c->n);
  c->head = 0;
}

static inline void put(Channel *c, Turn t) {
  if (c->head + c->n == c->room) make_room(c);
  Turn *x = c->turn + c->head;
  int32_t i = c->n++;
  for (; i && comes_before(&t, &x[i - 1]); i--) x[i] = x[i - 1];
  x[i] = t;
}

/* Flow `number` joins, with f->hbm and f->cap set; left: as share_left. This and the next ones count from the next
 * share_rate on, at the same time. */
static inline void share_join(Channel *c, Flow *f, int32_t number, int64_t left, Tick now) {
  serve(c, now);
  if (!c->n) c->served = 0;
  f->at = c->served + left;
  f->asks = (int64_t)((double)f->cap * f->hbm);
  c->caps += f->cap;
  c->asked += f->asks;
  c->changed = true;
  put(c, (Turn){f->at, f->order, number});
}

/* Ticks that are `left` at cap `from`, at cap `to`. */
static inline int64_t share_scale(int64_t left, int64_t from, int64_t to) {
  return from == to ? left : (int64_t)((double)left * (double)from / (double)to);
}

/* A flow on the channel gets another cap. */
static void share_cap(Channel *c, Flow *f, int64_t cap, Tick now) {
  if (f->cap == cap) return;
  serve(c, now);
  f->at = c->served + share_scale(max_i64(f->at - c->served, 0), f->cap, cap);
  c->caps += cap - f->cap;
  c->asked -= f->asks;
  f->cap = cap;
  f->asks = (int64_t)((double)cap * f->hbm);
  c->asked += f->asks;
  c->changed = c->unsorted = true;
}

/* The order mostly stays. */
static void sort(Channel *c, const Flow *flow) {
  Turn *x = c->turn + c->head;
  for (int32_t i = 0; i < c->n; i++) {
    Turn t = x[i];
    t.at = flow[t.flow].at;
    int32_t at = i;
    for (; at && comes_before(&t, &x[at - 1]); at--) x[at] = x[at - 1];
    x[at] = t;
  }
  c->unsorted = false;
}

/* What share_rate does, if anything changes. */
static void share_change(Channel *c, const Flow *flow, int64_t rate, Tick now) {
  serve(c, now);
  if (c->unsorted) sort(c, flow);
  c->changed = false;
  c->rate = rate;
  c->next = NEVER;
  if (!c->n) return;
  int64_t left = max_i64(c->turn[c->head].at - c->served, 0);
  c->next = now + (rate == 1 << RATE_BITS ? (left + rate - 1) >> RATE_BITS : ceil_div(left, rate)); /* mostly all */
}

/* Each flow gets that share of its cap, << RATE_BITS. */
static inline void share_rate(Channel *c, const Flow *flow, int64_t share, Tick now) {
  int64_t rate = c->n ? max_i64(share, 1) : 0;
  if (c->changed || rate != c->rate) share_change(c, flow, rate, now);
}

/* The flow at that place of the list leaves. */
static inline void share_remove(Channel *c, const Flow *f, int32_t place) {
  Turn *x = c->turn + c->head;
  if (place) memmove(x + place, x + place + 1, sizeof *x * (size_t)(c->n - place - 1));
  else c->head++;
  c->n--;
  c->changed = true;
  c->caps -= f->cap;
  c->asked -= f->asks;
}

/* Flow `number` leaves; what it has left. */
static int64_t share_quit(Channel *c, const Flow *f, int32_t number, Tick now) {
  int32_t place = 0;
  while (c->turn[c->head + place].flow != number) place++;
  serve(c, now);
  share_remove(c, f, place);
  return max_i64(f->at - c->served, 0);
}

/* At c->next: the flow that ends there leaves. */
static inline int32_t share_leave(Channel *c, const Flow *flow) {
  serve(c, c->next);
  int32_t number = c->turn[c->head].flow;
  share_remove(c, &flow[number], 0);
  return number;
}

/* ---- set-up --------------------------------------------------------------------------------------------- */

static const uint8_t n_sectors[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4}; /* bits of the index */

static Part part_of(const Memory *m, uint32_t from, uint32_t to) {
  uint32_t sectors = SECTORS >> (3 - (to - 1) / SECTOR) & SECTORS << from / SECTOR;
  int64_t bytes = n_sectors[sectors] * SECTOR, moved = max_i64(bytes, m->granule);
  bool odd = (from | to) % SECTOR && m->granule > SECTOR;
  return (Part){sectors, odd, odd ? moved : bytes, moved};
}

static int64_t rate_of(const Clock *k, double gbps) {
  return (int64_t)(gbps * 1e3 / k->arch.mhz / TICKS * (double)(1 << RATE_BITS));
}

/* The same pipe of the other vector core of a pair, or -1. */
static int32_t pair_of(const Clock *k, int32_t number) {
  int32_t core = number / CORE_PIPES;
  const Core *c = &k->m->core[core];
  if (c->prog->side != 'v') return -1;
  int32_t other = k->sim->cores_per_block == 1 ? core ^ 1 : c->vid == 1 ? core - 1 : core + 1;
  bool is = other < k->m->n_cores && k->m->core[other].prog->side == 'v';
  return is ? number + (other - core) * CORE_PIPES : -1;
}

void memory_init(Clock *k) {
  Memory *m = &k->mem;
  const SimTimeOptions *o = k->opt;
  m->n_flows = k->m->n_cores * CORE_PIPES;
  m->flow = arena_array(k->arena, Flow, m->n_flows);
  m->hbm_rate = rate_of(k, k->t.hbm_gbps * (o->hbm_factor > 0 ? o->hbm_factor : 1));
  m->l2_rate = rate_of(k, k->t.l2_gbps * (o->l2_factor > 0 ? o->l2_factor : 1));
  m->spare = m->hbm_rate;
  m->part = arena_array(k->arena, TensorPart, m->n_flows + 1);
  m->used = arena_array(k->arena, int32_t, m->n_flows + 1);
  for (int32_t i = 0; i <= m->n_flows; i++) m->used[i] = i;
  m->n_used = 1;
  m->next = NEVER;
  for (int via = 0; via < VIA_COUNT; via++) share_init(k->arena, &m->part->channel[via], m->n_flows);
  for (int32_t f = 0; f < m->n_flows; f++) {
    m->flow[f].core = f / CORE_PIPES;
    m->flow[f].pair = pair_of(k, f);
  }
  m->scratch = arena_array(k->arena, int32_t, m->n_flows);
  int32_t buckets = 64;
  while (buckets < m->n_flows) buckets *= 2;
  m->same = arena_array(k->arena, int32_t, buckets);
  memset(m->same, -1, sizeof *m->same * (size_t)buckets);
  m->same_mask = buckets - 1;
  m->hbm_latency = o->no_latency ? 0 : ticks_of(k->t.hbm_latency);
  m->l2_latency = o->no_latency ? 0 : ticks_of(k->t.l2_latency);
  m->granule = o->long_rows ? 0 : (int64_t)k->t.granule;
  m->whole = part_of(m, 0, LINE);
  m->place_gives = (int64_t)(k->t.place_pieces / TICKS * (double)(1 << RATE_BITS));
  m->part_gives = (int64_t)(k->t.part_pieces / TICKS * (double)(1 << RATE_BITS));
  m->part_bytes = max_i64((int64_t)k->t.part_bytes, LINE);
  m->piece = (int64_t)k->t.hbm_piece;
  m->pair_asks = (int)k->t.pair_asks;
  m->long_rows = o->long_rows;
  m->all_hit = o->l2 == L2_ALL_HIT;
  m->miss_factor = o->miss_factor > 0 ? o->miss_factor : 1;
  m->free = o->compute_only;
  m->capacity = (uint32_t)(k->arch.l2_bytes / LINE / LINES_A_STAMP);
  for (int i = 0; i < PLACES; i++)
    m->keeps[i] = (uint32_t)((double)m->capacity * (1 + k->t.l2_uneven * ((2.0 * i + 1) / PLACES - 1)));
  m->filled = LINES_A_STAMP;
  m->dirty_cap = 1 << 12; /* always a power of two */
  m->dirty = arena_array(k->arena, Dirty, m->dirty_cap);
  m->line = arena_array(k->arena, uint32_t *, k->sim->n_buf + 1);
  int64_t lines = 0;
  for (uint32_t b = 1; b < k->sim->n_buf; b++) {
    if (!k->sim->buf[b].ir || k->sim->buf[b].space != SPACE_GM) continue;
    m->line[b] = arena_array(k->arena, uint32_t, k->sim->buf[b].bytes / LINE + 2);
    lines += k->sim->buf[b].bytes / LINE + 2;
  }
  m->room = lines / LINES_A_STAMP < m->keeps[0];
  m->tile_bits = LEAST_TILE_BITS;
  while (m->tile_bits < MOST_TILE_BITS && lines >> m->tile_bits > 32) m->tile_bits++;
  m->tile = arena_array(k->arena, Tile, 1 << m->tile_bits);
}

void memory_restart(Memory *m) {
  m->since = 0;
  for (int32_t i = 0; i <= m->n_flows; i++)
    for (int via = 0; via < VIA_COUNT; via++) m->part[i].channel[via].served_at = 0;
}

/* ---- L2 ------------------------------------------------------------------------------------------------- */

static inline uint32_t stamp_of(int64_t filled) {
  return (uint32_t)((uint64_t)filled / LINES_A_STAMP) << STAMP_SHIFT >> STAMP_SHIFT;
}

static uint32_t stamp_now(const Memory *m) { return stamp_of(m->filled); }

static void note_dirty(Clock *k, int64_t bytes) {
  Memory *m = &k->mem;
  if (m->room) return; /* nothing pushes them out */
  m->unclean += bytes;
  uint32_t now = stamp_now(m);
  if (m->dirty_tail != m->dirty_head) {
    Dirty *last = &m->dirty[(m->dirty_tail - 1) & (m->dirty_cap - 1)];
    if (last->stamp == now) {
      last->bytes += bytes;
      return;
    }
  }
  if (m->dirty_tail - m->dirty_head == m->dirty_cap) {
    Dirty *grown = arena_array(k->arena, Dirty, (int64_t)m->dirty_cap * 2);
    for (uint32_t i = 0; i < m->dirty_cap; i++) grown[i] = m->dirty[(m->dirty_head + i) & (m->dirty_cap - 1)];
    m->dirty = grown;
    m->dirty_head = 0;
    m->dirty_tail = m->dirty_cap;
    m->dirty_cap *= 2;
  }
  m->dirty[m->dirty_tail++ & (m->dirty_cap - 1)] = (Dirty){now, bytes};
}

/* Bytes that must go to HBM now because what was brought in since pushed them out. */
static int64_t write_back(Memory *m) {
  if (m->dirty_head == m->dirty_tail) return 0;
  int64_t bytes = 0;
  uint32_t now = stamp_now(m);
  while (m->dirty_head != m->dirty_tail) {
    const Dirty *d = &m->dirty[m->dirty_head & (m->dirty_cap - 1)];
    if (((now - d->stamp) << STAMP_SHIFT >> STAMP_SHIFT) < m->capacity) break;
    bytes += d->bytes;
    m->dirty_head++;
  }
  m->write_back += bytes;
  int64_t gone = min_i64(bytes, m->clean >> RATE_BITS);
  m->clean -= gone << RATE_BITS;
  m->unclean -= bytes - gone;
  return bytes - gone;
}

/* Bytes: asked for in whole sectors, that L2 moves, not there, written for the first time; lines asked for, missed. */
typedef struct { int64_t touched, moved, missing, dirtied, lines, pieces; } Touched;

/* How much may be brought in before a line of this number is out: places of L2 are not equally full. */
static inline uint32_t keeps(const Memory *m, int64_t line) {
  return m->keeps[(uint32_t)((uint64_t)line / LINES_A_STAMP) * UINT32_C(2654435769) >> (32 - PLACE_BITS)];
}

/* What of a part is not there; now it is. */
static inline void touch_line(int64_t *filled, uint32_t room, uint32_t *line, Part p, bool write, Touched *out) {
  uint32_t now = stamp_of(*filled), w = *line;
  if (!(w >> STAMP_SHIFT) || ((now - (w >> STAMP_SHIFT)) << STAMP_SHIFT >> STAMP_SHIFT) >= room) {
    w = 0;
    now = stamp_of(++*filled);
  }
  int64_t miss = n_sectors[p.sectors & ~w] * SECTOR;
  if (p.odd && (w & SECTORS) != SECTORS) miss = p.bytes;
  out->touched += p.bytes;
  out->moved += p.moved;
  out->missing += miss;
  out->pieces += miss > 0;
  if (write && !(w & WRITTEN)) out->dirtied += p.bytes;
  *line = now << STAMP_SHIFT | (w & (WRITTEN | SECTORS)) | p.sectors | (write ? WRITTEN : 0);
}

/* Whole lines that nobody has touched. */
static inline void add_fresh(const Memory *m, const Transfer *t, int64_t n, Touched *out) {
  out->touched = out->missing = n * LINE;
  out->moved = n * m->whole.moved;
  out->lines = out->pieces = n;
  out->dirtied = t->write ? n * LINE : 0;
}

/* Rows of whole lines that nobody has touched, as touch_line takes them. False: some line was touched. */
static bool touch_fresh(Memory *m, const Transfer *t, int64_t at, Touched *out) {
  const uint32_t state = SECTORS | (t->write ? WRITTEN : 0);
  if ((at | t->run | t->pitch) % LINE || t->pitch < t->run) return false;
  int64_t n = t->run / LINE, filled = m->filled;
  uint32_t *first = m->line[t->buf] + at / LINE, *line = first;
  for (int64_t r = 0; r < t->rows; r++, line += t->pitch / LINE)
    for (int64_t i = 0; i < n; i++)
      if (line[i]) return false;
  line = first;
  for (int64_t r = 0; r < t->rows; r++, line += t->pitch / LINE)
    for (int64_t i = 0; i < n; i++) line[i] = stamp_of(++filled) << STAMP_SHIFT | state;
  m->filled = filled;
  add_fresh(m, t, n * t->rows, out);
  return true;
}

/* Rows of `run` bytes, line by line. */
static void touch_rows(Memory *m, const Transfer *t, int64_t at, int64_t run, Touched *out) {
  Touched x = *out;
  int64_t filled = m->filled; /* nothing else can change it */
  const Part whole = m->whole;
  uint32_t *lines = m->line[t->buf];
  Part first = whole, last = whole;
  int64_t n = 0, l = at / LINE, pitch = t->pitch / LINE;
  bool alike = t->pitch % LINE == 0; /* rows are cut like the first */
  for (int64_t r = 0; r < t->rows; r++, at += t->pitch, l += pitch) {
    if (!r || !alike) {
      uint32_t from = (uint32_t)(at % LINE), end = (uint32_t)((at + run - 1) % LINE) + 1;
      l = at / LINE;
      n = (at + run - 1) / LINE - l;
      first = part_of(m, from, n ? LINE : end);
      if (n) last = part_of(m, 0, end);
    }
    uint32_t *line = lines + l;
    touch_line(&filled, keeps(m, l), line, first, t->write, &x);
    for (int64_t i = 1; i < n; i++) touch_line(&filled, keeps(m, l + i), line + i, whole, t->write, &x);
    if (n) touch_line(&filled, keeps(m, l + n), line + n, last, t->write, &x);
    x.lines += n + 1;
  }
  m->filled = filled;
  *out = x;
}

/* What a transfer touches. Most are one run of whole lines, and nobody has touched them; or one piece of a line. */
static inline void touch_all(Memory *m, const Transfer *t, int64_t at, Touched *out) {
  *out = (Touched){0};
  int64_t run = t->run;
  uint64_t l = (uint64_t)at / LINE, from = (uint64_t)at % LINE;
  if (t->rows > 1) {
    if (touch_fresh(m, t, at, out)) return;
  } else if (!from && (uint64_t)run % LINE == 0) {
    const uint32_t state = SECTORS | (t->write ? WRITTEN : 0);
    uint32_t *line = m->line[t->buf] + l, *first = line, *end = line + (uint64_t)run / LINE;
    int64_t filled = m->filled;
    while (line != end && !*line) *line++ = stamp_of(++filled) << STAMP_SHIFT | state;
    m->filled = filled;
    add_fresh(m, t, line - first, out);
    if (line == end) return;
    at += (line - first) * LINE;
    run -= (line - first) * LINE;
  } else if (from + (uint64_t)run <= LINE) {
    Part piece = part_of(m, (uint32_t)from, (uint32_t)(from + (uint64_t)run));
    touch_line(&m->filled, keeps(m, (int64_t)l), m->line[t->buf] + l, piece, t->write, out);
    out->lines = 1;
    return;
  }
  touch_rows(m, t, at, run, out);
}

/* A transfer that comes again finds everything as it left it: all in L2. That holds for ever where L2 has room for all
 * tensors, else while what is brought in bears the same stamp. */
static TL_APART void touch_again(Memory *m, const Transfer *t, int64_t at, Touched *x) {
  uint64_t hash = ((uint64_t)at + (uint64_t)t->buf) * UINT64_C(0x9e3779b97f4a7c15);
  Tile *seen = &m->tile[hash >> (64 - m->tile_bits)];
  uint32_t now = stamp_now(m);
  bool same = seen->buf == t->buf && seen->at == at && seen->run == t->run && seen->rows == t->rows &&
              seen->pitch == t->pitch && seen->write == t->write;
  if (same && (m->room || seen->stamp == now)) {
    *x = (Touched){.touched = seen->touched, .moved = seen->moved, .lines = seen->lines};
    return;
  }
  touch_all(m, t, at, x);
  bool whole = (at | t->run | t->pitch) % SECTOR == 0 || m->granule <= SECTOR;
  if ((whole || !x->missing) && (m->room || stamp_now(m) == now))
    *seen = (Tile){t->buf, t->write, now, at, t->run, t->rows, t->pitch, x->touched, x->moved, x->lines};
}

/* ---- flows with something in common --------------------------------------------------------------------- */

static inline int32_t *same_list(Memory *m, int64_t place) {
  uint64_t hash = (uint64_t)place * UINT64_C(0x9e3779b97f4a7c15);
  return &m->same[hash >> 32 & (uint64_t)m->same_mask];
}

/* True: there are others that may be at the same place. */
static inline bool same_add(Memory *m, int32_t number, int64_t place) {
  Flow *f = &m->flow[number];
  f->place = place;
  if (place < 0) return false;
  int32_t *first = same_list(m, place), other = *first;
  f->at_place = (FlowLink){-1, other};
  *first = number;
  if (other >= 0) m->flow[other].at_place.before = number;
  return other >= 0;
}

static inline void same_remove(Memory *m, const Flow *f) {
  FlowLink l = f->at_place;
  if (f->place < 0) return;
  if (l.before >= 0) m->flow[l.before].at_place.after = l.after;
  else *same_list(m, f->place) = l.after;
  if (l.after >= 0) m->flow[l.after].at_place.before = l.before;
}

/* The flows under way at that place, the last one that began first; -1: no more. */
static int32_t same_next(const Memory *m, int64_t place, int32_t number) {
  while (number >= 0 && m->flow[number].place != place) number = m->flow[number].at_place.after;
  return number;
}
#define FOR_SAME(m, i, place)                                        \
  for (int32_t i = same_next(m, place, *same_list(m, place)); i >= 0; \
       i = same_next(m, place, (m)->flow[i].at_place.after))

/* The part with that key, perhaps new. */
static int32_t part_of_tensor(Clock *k, int64_t key) {
  Memory *m = &k->mem;
  int32_t i = 1;
  while (i < m->n_used && m->part[m->used[i]].key != key) i++;
  TensorPart *p = &m->part[m->used[i]];
  if (i < m->n_used) return m->used[i];
  m->n_used++;
  p->key = key;
  p->first = -1;
  p->bind_at = INT64_MAX;
  p->free_at = 0;
  for (int via = 0; via < VIA_COUNT && !p->channel[via].room; via++) share_init(k->arena, &p->channel[via], m->n_flows);
  return m->used[i];
}

static void part_enter(Memory *m, int32_t number, int32_t part) {
  Flow *f = &m->flow[number];
  TensorPart *p = &m->part[part];
  f->part = part;
  f->in_part = (FlowLink){-1, p->first};
  if (p->first >= 0) m->flow[p->first].in_part.before = number;
  p->first = number;
  p->flows++;
}

static void part_exit(Memory *m, const Flow *f) {
  FlowLink l = f->in_part;
  TensorPart *p = &m->part[f->part];
  if (l.before >= 0) m->flow[l.before].in_part.after = l.after;
  else p->first = l.after;
  if (l.after >= 0) m->flow[l.after].in_part.before = l.before;
  if (--p->flows) return;
  int32_t i = 1, last = --m->n_used;
  while (m->used[i] != f->part) i++;
  m->used[i] = m->used[last];
  m->used[last] = f->part;
}

/* ---- sharing -------------------------------------------------------------------------------------------- */

/* Written bytes that HBM had time for until now. */
static inline void clean(Memory *m, Tick now) {
  Tick since = m->since;
  m->since = now;
  if (!m->unclean || since == now) return;
  int64_t bytes = min_i64(m->spare * min_i64(now - since, LONGEST), m->unclean << RATE_BITS) >> RATE_BITS;
  m->unclean -= bytes;
  m->clean += bytes << RATE_BITS;
}

/* The other vector core of the pair asks for the same, and for both. */
static bool asked_for(const Memory *m, int32_t number) {
  const Flow *f = &m->flow[number];
  if (f->pair < 0 || f->pair > number || m->pair_asks != 1) return false;
  const Flow *o = &m->flow[f->pair];
  return o->moves && o->place == f->place && o->part == f->part;
}

static inline Channel *channel_of(Memory *m, const Flow *f) { return &m->part[f->bound ? f->part : 0].channel[f->via]; }

/* The cap of flow f where it is bound: what its part gives, if PART_ASKS ask for it. */
static inline int64_t part_cap(const Memory *m, const Flow *f) {
  return max_i64(m->part_gives * f->piece / PART_ASKS, 1);
}

/* So many must ask before its part gives it less than its own cap. */
static inline int64_t least_asks(const Memory *m, const Flow *f) {
  return m->part_gives * f->piece / f->own_cap + 1;
}

/* Is f bound, now? */
static inline bool is_bound(const Memory *m, const Flow *f) {
  return f->part && m->part[f->part].asks >= least_asks(m, f);
}

/* Its part notes for how many that changes. */
static inline void note_turn(Memory *m, const Flow *f) {
  TensorPart *p = &m->part[f->part];
  if (!f->part) return;
  if (f->bound) p->free_at = max_i64(p->free_at, least_asks(m, f) - 1);
  else p->bind_at = min_i64(p->bind_at, least_asks(m, f));
}

/* Flow `number` gets what it may get now. */
static void set_cap(Memory *m, int32_t number, Tick now) {
  Flow *f = &m->flow[number];
  f->own_cap = min_i64(min_i64(f->path_cap, f->alone_cap * f->together), f->crowd_cap);
  bool bound = is_bound(m, f);
  int64_t cap = bound ? part_cap(m, f) : f->own_cap;
  if (bound == f->bound) {
    share_cap(channel_of(m, f), f, cap, now);
  } else {
    int64_t left = share_scale(share_quit(channel_of(m, f), f, number, now), f->cap, cap);
    f->bound = bound;
    f->cap = cap;
    share_join(channel_of(m, f), f, number, left, now);
  }
  note_turn(m, f);
}

/* Flow `number` begins or ends to ask its part. */
static inline void ask_part(Memory *m, int32_t number) {
  Flow *f = &m->flow[number];
  bool asks = f->moves && !asked_for(m, number);
  m->part[f->part].asks += asks - f->asks_part;
  f->asks_part = asks;
}

/* Flow `number` has begun or ended to move. */
static inline void ask_parts(Memory *m, int32_t number) {
  ask_part(m, number);
  if (m->pair_asks == 1 && m->flow[number].pair > number) ask_part(m, m->flow[number].pair);
}

/* left: as share_left, at own_cap. */
static inline void join(Memory *m, int32_t number, int64_t left, Tick now) {
  Flow *f = &m->flow[number];
  m->ends |= !left;
  f->moves = true;
  f->order = m->order++;
  if (f->part) ask_parts(m, number);
  f->bound &= f->part != 0; /* mostly as it was; settle looks */
  f->cap = f->bound ? part_cap(m, f) : f->own_cap;
  note_turn(m, f);
  share_join(channel_of(m, f), f, number, share_scale(left, f->own_cap, f->cap), now);
}

/* The most that a flow with pieces of that size gets of what n ask for at the same place and time. */
static int64_t crowd_share(const Memory *m, int64_t piece, int64_t n) { return max_i64(m->place_gives * piece / n, 1); }

/* All flows that read the same place as this one share the pieces of lines that it gives a cycle. */
static void crowd(Memory *m, int32_t number, Tick now) {
  int64_t n = 0, piece = 0, most = 0; /* most: for pieces of that size */
  int32_t *list = m->scratch, moving = 0;
  if (m->flow[number].place < 0) return;
  FOR_SAME(m, i, m->flow[number].place) {
    if (!m->flow[i].moves) continue;
    list[moving++] = i;
    n += !asked_for(m, i);
  }
  for (int32_t i = 0; i < moving; i++) {
    Flow *o = &m->flow[list[i]];
    if (o->piece != piece) most = crowd_share(m, piece = o->piece, n);
    o->crowd_cap = most;
    set_cap(m, list[i], now);
  }
}

/* All flows that read the same place as f now ask HBM for it together, and none is done before the first of them,
 * which brings it. */
static void meet(Memory *m, int32_t number, Tick now) {
  Flow *f = &m->flow[number];
  int32_t n = 0;
  FOR_SAME(m, i, f->place) {
    const Flow *o = &m->flow[i];
    if (!o->moves) continue;
    n++;
    if (i != number && o->via == VIA_HBM) f->behind = i;
  }
  if (f->behind >= 0) m->flow[f->behind].followers++;
  if (n < 2) return;
  FOR_SAME(m, i, f->place) {
    if (!m->flow[i].moves) continue;
    m->flow[i].together = n;
    set_cap(m, i, now);
  }
}

/* Flow `number` has brought its bytes from HBM: who waited for them is done. They join by their numbers. */
static void release(Memory *m, int32_t number, Tick now) {
  int32_t *list = m->scratch, n = 0;
  FOR_SAME(m, i, m->flow[number].place) {
    Flow *o = &m->flow[i];
    if (o->behind != number) continue;
    o->behind = -1;
    if (!o->waits) continue;
    int32_t at = n++;
    for (; at && list[at - 1] > i; at--) list[at] = list[at - 1];
    list[at] = i;
  }
  m->flow[number].followers = 0;
  for (int32_t i = 0; i < n; i++) {
    Flow *o = &m->flow[list[i]];
    o->waits = false;
    o->via = VIA_L2;
    join(m, list[i], 0, now);
  }
}

/* What each flow on the channels of a part gets of its cap. */
static inline double part_share(const Memory *m, const TensorPart *p) {
  return p == m->part ? 1 : PART_ASKS / (double)p->asks;
}

/* Others of the part may be bound or free now. */
static void share_part(Memory *m, TensorPart *p) {
  p->bind_at = INT64_MAX;
  p->free_at = 0;
  for (int32_t i = p->first; i >= 0; i = m->flow[i].in_part.after)
    if (m->flow[i].moves) set_cap(m, i, m->since);
}

/* Something has changed: new shares. */
static void settle(Memory *m) {
  Tick now = m->since;
  for (int32_t i = 1; i < m->n_used; i++) {
    TensorPart *p = &m->part[m->used[i]];
    if (p->asks >= p->bind_at || p->asks <= p->free_at) share_part(m, p);
  }
  double there = 0, not = 0, from_hbm = 0;
  for (int32_t i = 0; i < m->n_used; i++) {
    const TensorPart *p = &m->part[m->used[i]];
    const Channel *c = p->channel;
    if (!(c[VIA_L2].n | c[VIA_HBM].n)) continue;
    double share = part_share(m, p);
    there += share * (double)c[VIA_L2].caps;
    not += share * (double)c[VIA_HBM].caps;
    from_hbm += share * (double)c[VIA_HBM].asked;
  }
  double hbm = from_hbm > (double)m->hbm_rate ? (double)m->hbm_rate / from_hbm : 1, asked = there + not * hbm;
  double l2 = asked > (double)m->l2_rate ? (double)m->l2_rate / asked : 1;
  m->spare = max_i64(m->hbm_rate - (int64_t)from_hbm, 0);
  m->next = NEVER;
  for (int32_t i = 0; i < m->n_used; i++) {
    TensorPart *p = &m->part[m->used[i]];
    Channel *c = p->channel;
    if (!(c[VIA_L2].n | c[VIA_HBM].n)) continue;
    double of_l2 = part_share(m, p) * l2 * (1 << RATE_BITS);
    share_rate(&c[VIA_L2], m->flow, (int64_t)of_l2, now);
    share_rate(&c[VIA_HBM], m->flow, (int64_t)(of_l2 * hbm), now);
    for (int via = 0; via < VIA_COUNT; via++)
      if (c[via].n && c[via].next < m->next) m->first = &c[via], m->next = c[via].next;
  }
  m->stale = false;
}

/* Has some flow moved all by the time of the last change? Then m->first is its channel. */
static bool any_ends(Memory *m) {
  for (int32_t i = 0; i < m->n_used; i++)
    for (int via = 0; via < VIA_COUNT; via++) {
      Channel *c = &m->part[m->used[i]].channel[via];
      if (!c->n) continue;
      serve(c, m->since);
      if (c->unsorted) sort(c, m->flow);
      if (c->turn[c->head].at > c->served) continue;
      m->first = c;
      m->next = m->since;
      return true;
    }
  return m->ends = false;
}

Tick memory_settle(Memory *m, Tick until) {
  if (m->ends && any_ends(m)) return m->next;
  if (until <= m->since) return NEVER;
  settle(m);
  return m->next;
}

/* Bytes a tick when `all` take that long, << RATE_BITS as `all`. */
static int64_t cap_of(int64_t all, Tick path) { return path > 0 && all ? max_i64(all / path, 1) : INT64_C(1) << 50; }

/* How a flow moves that way, alone. */
static TL_APART void set_way(const Memory *m, Flow *f, const Way *w) {
  bool moves = w->moved && !m->free;
  int64_t all = moves ? w->moved << RATE_BITS : 0;
  Tick path = w->path;
  if (w->miss && w->miss == w->touched) path = w->path_miss;
  else if (w->miss) path = (path * (w->touched - w->miss) + w->path_miss * w->miss) / w->touched;
  f->way = *w;
  f->alone_via = w->hbm > 0 && moves ? VIA_HBM : VIA_L2;
  f->hbm = f->alone_via == VIA_HBM ? (double)w->hbm / (double)w->moved : 0;
  f->piece = !moves || w->moved == w->lines * LINE ? LINE : w->moved / w->lines;
  f->path_cap = cap_of(all, w->path);
  f->alone_cap = cap_of(all, path);
  f->alone_left = share_left(all, f->alone_cap);
}

void memory_begin(Clock *k, int32_t number, const Transfer *t, int64_t at, Tick now) {
  Memory *m = &k->mem;
  Flow *f = &m->flow[number];
  clean(m, now);
  Touched x;
  if (t->rows + (int64_t)((uint64_t)t->run / LINE) < WORTH_KEEPING) touch_all(m, t, at, &x);
  else touch_again(m, t, at, &x);
  if (m->long_rows) x.lines = ceil_div(x.touched, LINE), x.pieces = ceil_div(x.missing, LINE);
  if (x.dirtied) note_dirty(k, x.dirtied);
  m->dirtied += x.dirtied;
  int64_t back = write_back(m), miss = x.missing;
  if (m->all_hit || t->write) miss = 0; /* a write needs nothing from HBM */
  else if (miss && (m->misses += m->miss_factor) < 1) miss = 0; /* of the transfers that miss, that share does */
  else if (miss) m->misses -= 1;
  if (m->all_hit) back = 0;
  if (!t->write) {
    m->miss_bytes += miss;
    m->hit_bytes += x.touched - miss;
  }
  int64_t hbm = miss + back + (miss ? x.pieces * m->piece : 0);
  const Way *w = &f->way;
  if ((w->touched ^ x.touched) | (w->moved ^ x.moved) | (w->lines ^ x.lines) | (w->miss ^ miss) | (w->hbm ^ hbm) |
      (w->path ^ t->path) | (w->path_miss ^ t->miss))
    set_way(m, f, &(Way){x.touched, x.moved, x.lines, miss, hbm, t->path, t->miss});
  f->via = f->alone_via;
  f->own_cap = f->alone_cap;
  f->moves = f->waits = false;
  f->together = 1;
  f->behind = -1;
  f->followers = 0;
  f->latency = m->free || t->write ? 0 : m->l2_latency + (miss > 0 ? m->hbm_latency : 0);
  bool alone = t->write || m->free, pieces = !alone && t->run < LINE && !m->long_rows;
  f->crowd_cap = alone ? INT64_MAX : crowd_share(m, f->piece, 1);
  bool others = same_add(m, number, alone ? -1 : (int64_t)t->buf << 40 | at);
  f->part = 0;
  if (pieces) part_enter(m, number, part_of_tensor(k, (int64_t)t->buf << 40 | at / m->part_bytes));
  join(m, number, f->alone_left, now);
  if (others) meet(m, number, now);
  if (others || f->crowd_cap < f->own_cap) crowd(m, number, now);
  m->stale = true;
}

bool memory_step(Clock *k, int32_t *out) {
  Memory *m = &k->mem;
  Tick now = m->next;
  clean(m, now);
  int32_t number = *out = share_leave(m->first, m->flow);
  Flow *f = &m->flow[number];
  f->moves = false;
  if (f->part) ask_parts(m, number);
  if (f->followers) release(m, number, now);
  f->waits = f->behind >= 0;
  if (f->together > 1) crowd(m, number, now);
  if (!f->waits) {
    same_remove(m, f);
    if (f->part) part_exit(m, f);
  }
  m->stale = m->ends = true;
  return !f->waits;
}
