/* flags.c - what to write so that one statement waits for another, in words: two of the compiler's own readers say it,
 * the sync pass of what is certain in every run, the simulator of what happened in one.
 *
 * The change named is the smallest one: both ends of a flag right before the later statement, or before the loop that
 * holds it and not the earlier one. There it needs no first set and no last wait, and whatever else that pipe did
 * before is waited for as well. Where the pipe that sets runs ahead it would set the flag twice; then a barrier is
 * named. */
#include "ir.h"

IrStmt *ir_child_of(const IrBlock *b, IrStmt *s) {
  while (s && s->block != b) s = s->block ? s->block->parent : NULL;
  return s;
}

IrBlock *ir_common_block(IrStmt *a, IrStmt *b) {
  for (IrStmt *x = a; x; x = x->block ? x->block->parent : NULL)
    if (x->block && ir_child_of(x->block, b)) return x->block;
  return NULL;
}

bool ir_orders_too(IrStmt *d, IrStmt *e, IrStmt *d2, IrStmt *e2) {
  const IrBlock *both = ir_common_block(d, e);
  if (!both || both != ir_common_block(d2, e2)) return false;
  uint32_t first = ir_child_of(both, e)->id, second = ir_child_of(both, e2)->id, other = ir_child_of(both, d2)->id;
  return first == second || (first < second && (other < first || other >= second));
}

typedef struct { const IrKernel *k; Pipe src, dst; bool used[IR_FLAGS]; } Ids;

static bool note_ids(IrStmt *s, void *user) {
  Ids *u = user;
  if ((s->op != ST_SET_FLAG && s->op != ST_WAIT_FLAG) || s->sync.src != u->src || s->sync.dst != u->dst) return true;
  IrRange id = ir_range(u->k, s->sync.id);
  for (int64_t i = max_i64(id.lo, 0); i <= min_i64(id.hi, IR_FLAGS - 1); i++) u->used[i] = true;
  return true;
}

typedef struct { const IrKernel *k; bool used[IR_CROSS_FLAGS]; } CrossIds;

static bool note_cross_ids(IrStmt *s, void *user) {
  CrossIds *u = user;
  if (s->op != ST_CROSS_SET && s->op != ST_CROSS_WAIT) return true;
  IrRange id = ir_range(u->k, s->sync.id);
  for (int64_t i = max_i64(id.lo, 0); i <= min_i64(id.hi, IR_CROSS_FLAGS - 1); i++) u->used[i] = true;
  return true;
}

int ir_free_cross_flag(const IrKernel *k, int64_t n) {
  CrossIds u = {.k = k};
  int id = 0;
  ir_walk((IrBlock *)&k->body, note_cross_ids, &u);
  while (id < IR_CROSS_FLAGS - 1 && (u.used[id] || n-- > 0)) id++;
  return id;
}

const char *ir_order_fix(Arena *a, const IrKernel *k, IrStmt *d, Pipe p, IrStmt *e, Pipe q, bool ahead) {
  const char *src = pipe_info[p].name, *dst = pipe_info[q].name;
  IrBlock *both = ir_common_block(d, e);
  uint32_t line = both ? ir_child_of(both, e)->loc.line : e->loc.line;
  if (p == q)
    return arena_printf(a, "put `barrier %s` before line %u: pipe %s does not wait for its own earlier instructions",
                        src, line, src);
  Ids u = {.k = k, .src = p, .dst = q};
  int id = 0;
  ir_walk((IrBlock *)&k->body, note_ids, &u);
  while (id < IR_FLAGS && u.used[id]) id++;
  if (id == IR_FLAGS)
    return arena_printf(a, "put `barrier all` before line %u; no event id of %s -> %s is free", line, src, dst);
  if (ahead)
    return arena_printf(a,
                        "put `barrier all` before line %u, or a flag %s -> %s with ids in turn, one for each version "
                        "of the buffer: pipe %s is ahead of pipe %s here",
                        line, src, dst, src, dst);
  return arena_printf(a, "put `set_flag %s -> %s #%d` and `wait_flag %s -> %s #%d` before line %u%s", src, dst, id, src,
                      dst, id, line,
                      d->block == e->block && d->id < e->id ? " (the set may stand right after the other access)" : "");
}
