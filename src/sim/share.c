/* share.c - one way (HBM or L2) and the transfers on it: each gets the same, none more than its own path takes (water
 * filling). Numbers are integers: bytes << 20 a tick.
 *
 * Transfers whose path takes no more than an equal share are `capped`: their rate does not depend on the others, so
 * their end is known until their cap changes. All the rest are `equal`: they get the same bytes in the same time, so
 * `served` counts what each of them has got, and one that joins with w bytes left is done when `served` has grown by w.
 * Both lists are sorted by who is done first; a beginning or an end changes one entry, however many are under way. */
#include "timing.h"

#include <string.h>

static bool comes_before(const Turn *a, const Turn *b) {
  return a->at != b->at ? a->at < b->at : (int32_t)(a->order - b->order) < 0;
}

static void put(Turns *q, Turn t) {
  if (q->head + q->n == q->room) {
    memmove(q->turn, q->turn + q->head, sizeof t * (size_t)q->n);
    q->head = 0;
  }
  Turn *x = q->turn + q->head;
  int32_t i = q->n++;
  for (; i && comes_before(&t, &x[i - 1]); i--) x[i] = x[i - 1];
  x[i] = t;
}

static void drop(Turns *q, int32_t i) {
  Turn *x = q->turn + q->head;
  q->n--;
  if (!i) q->head++;
  else memmove(x + i, x + i + 1, sizeof *x * (size_t)(q->n - i));
}

void share_init(Arena *a, Channel *c, int32_t n_flows, int64_t total) {
  *c = (Channel){.total = total, .next = NEVER, .least = INT64_MAX};
  Turns *both[] = {&c->capped, &c->equal};
  for (int i = 0; i < 2; i++) *both[i] = (Turns){arena_array(a, Turn, 2 * n_flows + 1), 0, 0, 2 * n_flows + 1};
  c->joining = arena_array(a, int32_t, n_flows);
}

/* What the equal ones have got until now. */
static void serve(Channel *c, Tick now) {
  c->served += c->rate * (now - c->served_at);
  c->served_at = now;
  if (!c->equal.n) c->served = 0;
  if (c->served < INT64_C(1) << 60) return;
  for (int32_t i = 0; i < c->equal.n; i++) c->equal.turn[c->equal.head + i].at -= c->served;
  c->served = 0;
}

static void work_off(Flow *f, int64_t rate, Tick now) {
  f->work = max_i64(f->work - rate * (now - f->since), 0);
  f->since = now;
}

void share_join(Channel *c, Flow *f, int32_t number, Tick now) {
  f->since = now;
  f->order = c->order++;
  f->seat = SEAT_JOINING;
  c->joining[c->n_joining++] = number;
  c->least = min_i64(c->least, f->cap);
  c->stale = true;
}

void share_cap(Channel *c, Flow *f, int64_t cap, Tick now) {
  if (f->cap == cap) return;
  if (f->seat == SEAT_CAPPED) {
    work_off(f, f->cap, now);
    c->taken += cap - f->cap;
    c->most = max_i64(c->most, cap);
    c->unsorted = true;
  } else {
    c->least = min_i64(c->least, cap);
  }
  f->cap = cap;
  c->stale = true;
}

/* New ends of those whose cap has changed; the order mostly stays. */
static void sort_capped(Channel *c, Flow *flow, Tick now) {
  Turn *x = c->capped.turn + c->capped.head;
  for (int32_t i = 0; i < c->capped.n; i++) {
    const Flow *f = &flow[x[i].flow];
    Turn t = x[i];
    if (f->since == now) t.at = now + ceil_div(f->work, f->cap);
    int32_t at = i;
    for (; at && comes_before(&t, &x[at - 1]); at--) x[at] = x[at - 1];
    x[at] = t;
  }
  c->unsorted = false;
}

static void to_capped(Channel *c, Flow *f, int32_t number, Tick now) {
  f->seat = SEAT_CAPPED;
  c->taken += f->cap;
  c->most = max_i64(c->most, f->cap);
  put(&c->capped, (Turn){now + ceil_div(f->work, f->cap), f->order, number});
}

/* Those that are capped above the level are so no more. */
static void demote(Channel *c, Flow *flow, int64_t level, Tick now) {
  Turn *x = c->capped.turn + c->capped.head;
  int32_t n = c->capped.n;
  c->capped.n = 0;
  c->most = 0;
  for (int32_t i = 0; i < n; i++) {
    Flow *f = &flow[x[i].flow];
    if (f->cap <= level) {
      c->most = max_i64(c->most, f->cap);
      x[c->capped.n++] = x[i];
      continue;
    }
    work_off(f, f->cap, now);
    f->seat = SEAT_JOINING;
    c->taken -= f->cap;
    c->least = min_i64(c->least, f->cap);
    c->joining[c->n_joining++] = x[i].flow;
  }
}

/* Those whose path takes no more than the level are capped. */
static void promote(Channel *c, Flow *flow, int64_t level, Tick now) {
  Turn *x = c->equal.turn + c->equal.head;
  int32_t n = c->equal.n, joining = c->n_joining;
  c->equal.n = c->n_joining = 0;
  c->least = INT64_MAX;
  for (int32_t i = 0; i < joining; i++) {
    int32_t number = c->joining[i];
    if (flow[number].cap <= level) to_capped(c, &flow[number], number, now);
    else c->joining[c->n_joining++] = number, c->least = min_i64(c->least, flow[number].cap);
  }
  for (int32_t i = 0; i < n; i++) {
    Flow *f = &flow[x[i].flow];
    if (f->cap > level) {
      c->least = min_i64(c->least, f->cap);
      x[c->equal.n++] = x[i];
      continue;
    }
    f->work = max_i64(x[i].at - c->served, 0);
    f->since = now;
    to_capped(c, f, x[i].flow, now);
  }
}

void share_settle(Channel *c, Flow *flow, Tick now) {
  int64_t level;
  if (!c->stale) return;
  serve(c, now);
  if (c->unsorted) sort_capped(c, flow, now);
  for (;;) { /* ends: after the first demotion the level only rises, and with it who is capped */
    int32_t open = c->equal.n + c->n_joining;
    int64_t left = c->total - c->taken;
    level = open ? left / open : left < 0 ? c->most - 1 : INT64_MAX;
    if (c->capped.n && c->most > level) demote(c, flow, level, now);
    else if (open && c->least <= level) promote(c, flow, level, now);
    else break;
  }
  for (int32_t i = 0; i < c->n_joining; i++) {
    Flow *f = &flow[c->joining[i]];
    f->seat = SEAT_EQUAL;
    put(&c->equal, (Turn){c->served + f->work, f->order, c->joining[i]});
  }
  c->n_joining = 0;
  c->rate = c->equal.n ? max_i64(level, 1) : 0;
  c->next = c->capped.n ? c->capped.turn[c->capped.head].at : NEVER;
  if (c->equal.n) {
    int64_t left = max_i64(c->equal.turn[c->equal.head].at - c->served, 0);
    c->next = min_i64(c->next, now + ceil_div(left, c->rate));
  }
  c->stale = false;
}

int32_t share_leave(Channel *c, Flow *flow) {
  const Turn *capped = c->capped.turn + c->capped.head, *equal = c->equal.turn + c->equal.head, *first = NULL;
  serve(c, c->next);
  if (c->capped.n && capped->at == c->next) first = capped;
  for (int32_t i = 0; i < c->equal.n && equal[i].at <= c->served; i++)
    if (!first || (int32_t)(equal[i].order - first->order) < 0) first = &equal[i];
  int32_t number = first->flow;
  if (flow[number].seat == SEAT_CAPPED) c->taken -= flow[number].cap;
  if (first == capped) drop(&c->capped, 0);
  else drop(&c->equal, (int32_t)(first - equal));
  flow[number].seat = SEAT_NONE;
  c->stale = true;
  return number;
}
