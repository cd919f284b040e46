/* share.c - transfers under way: those that L2 has all of, or those that HBM brings some of.
 *
 * Alone, a transfer moves as fast as its path takes it (cap). Those of one channel are slowed down alike: each gets the
 * same share of its cap. So `served` counts the ticks that each has moved as if alone, and one that joins with t such
 * ticks left is done when `served` has grown by t. The list is sorted by who is done first; a beginning or an end
 * changes one entry, however many are under way. */
#include "timing.h"

#include <string.h>

static bool comes_before(const Turn *a, const Turn *b) {
  return a->at != b->at ? a->at < b->at : (int32_t)(a->order - b->order) < 0;
}

void share_init(Arena *a, Channel *c, int32_t n_flows) {
  *c = (Channel){.turn = arena_array(a, Turn, 2 * n_flows + 1), .room = 2 * n_flows + 1, .next = NEVER};
}

void share_restart(Channel *c) {
  c->rate = c->served = c->served_at = 0;
  c->next = NEVER;
}

/* What each has moved until now. */
static void serve(Channel *c, Tick now) {
  c->served += c->rate * (now - c->served_at);
  c->served_at = now;
}

static void put(Channel *c, Turn t) {
  if (c->head + c->n == c->room) {
    memmove(c->turn, c->turn + c->head, sizeof t * (size_t)c->n);
    c->head = 0;
  }
  Turn *x = c->turn + c->head;
  int32_t i = c->n++;
  for (; i && comes_before(&t, &x[i - 1]); i--) x[i] = x[i - 1];
  x[i] = t;
}

void share_join(Channel *c, Flow *f, int32_t number, int64_t left, Tick now) {
  serve(c, now);
  if (!c->n) c->served = 0;
  f->order = c->order++;
  f->moves = true;
  f->at = c->served + left;
  f->asks = (int64_t)((double)f->cap * f->hbm);
  c->caps += f->cap;
  c->asked += f->asks;
  c->changed = true;
  put(c, (Turn){f->at, f->order, number});
}

void share_cap(Channel *c, Flow *f, int64_t cap, Tick now) {
  if (f->cap == cap) return;
  serve(c, now);
  f->at = c->served + (int64_t)((double)max_i64(f->at - c->served, 0) * (double)f->cap / (double)cap);
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

void share_change(Channel *c, const Flow *flow, int64_t rate, Tick now) {
  serve(c, now);
  if (c->unsorted) sort(c, flow);
  c->changed = false;
  c->rate = rate;
  c->next = NEVER;
  if (!c->n) return;
  int64_t left = max_i64(c->turn[c->head].at - c->served, 0);
  c->next = now + (rate == 1 << RATE_BITS ? (left + rate - 1) >> RATE_BITS : ceil_div(left, rate)); /* mostly all */
}

int32_t share_leave(Channel *c, Flow *flow) {
  serve(c, c->next);
  int32_t number = c->turn[c->head].flow;
  c->head++;
  c->n--;
  c->changed = true;
  flow[number].moves = false;
  c->caps -= flow[number].cap;
  c->asked -= flow[number].asks;
  return number;
}
