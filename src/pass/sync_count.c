/* sync_count.c - is every flag that the user wrote set as often as it is waited for? Counted over all iterations.
 *
 * The statements of a core are walked as they would run: loops of known length iteration by iteration (or once, times
 * the iterations, where no flag hangs on the index), the taken branch of an `if` whose condition follows from loop
 * indices, block and vector core. Of an unknown condition both branches are walked, and where they count differently,
 * or a loop of unknown length does not come out even, nothing is said of that flag: what is said is certain.
 *
 * Flags between cores are counted on the cube core and on both vector cores, and compared as the hardware matches them:
 * a set of the cube core (mode 2) counts for each vector core, one of the vector cores once both have set, and so do
 * the vector cores' own (mode 1). Mode 0 joins the cores of a kind in all blocks: then no count may hang on the
 * block. */
#include "sync.h"

#include <string.h>

enum {
  IDS_COUNTED = 16,
  LOCAL_KEYS = PIPE_COUNT * PIPE_COUNT * IDS_COUNTED, /* sets less waits */
  CROSS_KINDS = 4,                                    /* sets of the modes 0, 1, 2; waits */
  CROSS_WAITS = 3,
  KEYS = LOCAL_KEYS + IDS_COUNTED * CROSS_KINDS,
  MAX_STEPS = TL_LIMIT(20000, 50)
};

typedef struct { const IrVar *var; int64_t value; } Known;

typedef struct {
  PassCtx *p;
  IrKernel *k;
  int64_t *n;  /* by key */
  bool *doubt; /* the number is not certain */
  const IrStmt **first; /* the first statement of the key */
  bool *hand;           /* one of its statements is the user's */
  Vec(Known) known;
  int64_t steps;
} Count;

static int local_key(Pipe src, Pipe dst, int64_t id) {
  return (int)(((int64_t)src * PIPE_COUNT + dst) * IDS_COUNTED + id);
}
static int cross_key(int64_t id, int kind) { return (int)(LOCAL_KEYS + id * CROSS_KINDS + kind); }

static bool value_of(Count *c, IrExpr *e, int64_t *value) {
  for (uint32_t i = c->known.len; i-- > 0 && !ir_is_const(e);)
    e = ir_subst(c->k, e, c->known.data[i].var, ir_int(c->k, c->known.data[i].var->type, c->known.data[i].value));
  *value = ir_is_const(e) ? e->i : 0;
  return ir_is_const(e);
}

static void count_block(Count *c, IrBlock *b);

static int64_t *copy_of(Count *c, const int64_t *n) {
  return memcpy(arena_array(c->p->arena, int64_t, KEYS), n, sizeof *n * KEYS);
}

static void count_flag(Count *c, IrStmt *s) {
  bool cross = s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT, set = s->op == ST_SET_FLAG || s->op == ST_CROSS_SET;
  int kind = set ? (int)s->sync.mode : CROSS_WAITS;
  int64_t id;
  bool sure = value_of(c, s->sync.id, &id);
  if (sure && (id < 0 || id >= IDS_COUNTED)) return; /* other rules speak of it */
  for (int64_t i = sure ? id : 0; i <= (sure ? id : IDS_COUNTED - 1); i++) {
    int key = cross ? cross_key(i, kind) : local_key(s->sync.src, s->sync.dst, i);
    if (!sure) c->doubt[key] = true;
    if (!c->first[key]) c->first[key] = s;
    c->hand[key] |= s->hand == 1;
    c->n[key] += cross || set ? 1 : -1;
  }
}

static void count_if(Count *c, IrStmt *s) {
  int64_t taken;
  if (value_of(c, s->test.cond, &taken)) {
    count_block(c, taken ? &s->body : &s->alt);
    return;
  }
  int64_t *before = copy_of(c, c->n), *other = copy_of(c, c->n), *now = c->n;
  count_block(c, &s->body);
  c->n = other;
  count_block(c, &s->alt);
  for (int i = 0; i < KEYS; i++) c->doubt[i] |= now[i] != other[i];
  c->n = memcpy(before, now, sizeof *now * KEYS);
}

typedef struct { const IrVar *var; bool hangs, leaves, flags; } Body;

static void find_use(IrExpr **e, void *user) {
  Body *b = user;
  b->hangs |= ir_expr_uses(*e, b->var);
}

/* Does what a flag, a condition or a bound says hang on the index? Is the loop left early? Has it flags at all? */
static bool look_at_body(IrStmt *s, void *user) {
  Body *b = user;
  bool flag = s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG || s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT;
  b->flags |= flag;
  b->leaves |= s->op == ST_BREAK || s->op == ST_CONTINUE;
  if (b->var && (flag || s->op == ST_IF || s->op == ST_FOR || s->op == ST_LET)) ir_stmt_exprs(s, find_use, b);
  return true;
}

/* Once, whatever the iteration: what does not come out even is in doubt. */
static void count_unknown_loop(Count *c, IrStmt *s, bool leaves) {
  int64_t *before = copy_of(c, c->n);
  bool *was = memcpy(arena_array(c->p->arena, bool, KEYS), c->doubt, sizeof(bool) * KEYS);
  count_block(c, &s->body);
  for (int i = 0; i < KEYS; i++) c->doubt[i] = was[i] || c->n[i] != before[i] || (leaves && c->first[i]) || c->doubt[i];
}

static void count_loop(Count *c, IrStmt *s) {
  Body b = {s->op == ST_FOR ? s->loop.var : NULL, false, false, false};
  int64_t lo, hi, step;
  ir_walk(&s->body, look_at_body, &b);
  if (!b.flags) return;
  bool sure = s->op == ST_FOR && !b.leaves && value_of(c, s->loop.lo, &lo) && value_of(c, s->loop.hi, &hi) &&
              value_of(c, s->loop.step, &step) && step != 0;
  if (!sure) {
    count_unknown_loop(c, s, b.leaves);
    return;
  }
  int64_t trips = step > 0 ? ceil_div(max_i64(hi - lo, 0), step) : ceil_div(max_i64(lo - hi, 0), -step);
  if (!b.hangs && trips > 0) {
    int64_t *before = copy_of(c, c->n);
    count_block(c, &s->body);
    for (int i = 0; i < KEYS; i++) c->n[i] = before[i] + (c->n[i] - before[i]) * trips;
    return;
  }
  for (int64_t i = 0; i < trips && c->steps <= MAX_STEPS; i++) {
    vec_push(c->p->arena, &c->known, ((Known){s->loop.var, lo + i * step}));
    count_block(c, &s->body);
    c->known.len--;
  }
}

static void count_stmt(Count *c, IrStmt *s) {
  int64_t value;
  if (c->steps++ > MAX_STEPS) return;
  switch (s->op) {
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
  case ST_CROSS_SET:
  case ST_CROSS_WAIT: count_flag(c, s); break;
  case ST_IF: count_if(c, s); break;
  case ST_FOR:
  case ST_WHILE: count_loop(c, s); break;
  case ST_LET:
    if (value_of(c, s->set.value, &value)) vec_push(c->p->arena, &c->known, ((Known){s->set.var, value}));
    break;
  default: break;
  }
}

static void count_block(Count *c, IrBlock *b) {
  uint32_t known = c->known.len;
  for (IrStmt *s = b->first; s; s = s->next) count_stmt(c, s);
  c->known.len = known;
}

/* ---- a core ---------------------------------------------------------------------------------------------- */

/* What core `vid` of block `block` (-1: any) counts; NULL: too long to say. */
static Count *count_core(PassCtx *p, IrStmt *side, int64_t block, int64_t vid) {
  Count *c = arena_new(p->arena, Count);
  *c = (Count){.p = p,
               .k = p->k,
               .n = arena_array(p->arena, int64_t, KEYS),
               .doubt = arena_array(p->arena, bool, KEYS),
               .first = arena_array(p->arena, const IrStmt *, KEYS),
               .hand = arena_array(p->arena, bool, KEYS)};
  if (p->k->vid) vec_push(p->arena, &c->known, ((Known){p->k->vid, vid}));
  for (uint32_t g = 0; g < p->k->grid.len && block >= 0; g++) {
    int64_t n = max_i64(p->k->grid_ext.data[g]->i, 1);
    vec_push(p->arena, &c->known, ((Known){p->k->grid.data[g], block % n}));
    block /= n;
  }
  if (side) count_block(c, &side->body);
  return c->steps > MAX_STEPS ? NULL : c;
}

int sync_sample_blocks(const IrKernel *k, int64_t block[2]) {
  int64_t n = 1;
  for (uint32_t g = 0; g < k->grid.len && n > 0; g++)
    n = ir_is_const(k->grid_ext.data[g]) && k->grid_ext.data[g]->i > 0 && n < INT32_MAX ? n * k->grid_ext.data[g]->i
                                                                                       : -1;
  block[0] = n > 0 ? 0 : -1;
  block[1] = n - 1;
  return n > 1 ? 2 : 1;
}

static void report(PassCtx *p, const IrStmt *at, const char *flag, int64_t sets, int64_t waits) {
  bool more = sets > waits;
  int64_t over = more ? sets - waits : waits - sets;
  const char *often = over == 1 ? "once more" : arena_printf(p->arena, "%lld times more", (long long)over);
  Diag *g = diag_add(p->diags, DIAG_SYNC_COUNT, at->loc, "%s is %s %s than it is %s; %s", flag,
                     more ? "set" : "waited for", often, more ? "waited for" : "set",
                     more ? "what is left set goes off in the next kernel" : "the last wait never ends");
  diag_fix(p->diags, g, more ? "wait for it once more, or drop a set" : "set it once more, or drop a wait");
}

void sync_count_side(PassCtx *p, IrStmt *side) {
  int64_t block[2];
  int blocks = sync_sample_blocks(p->k, block), cores = side->op == ST_VECTOR && p->k->vid ? 2 : 1;
  bool *told = arena_array(p->arena, bool, KEYS);
  for (int i = 0; i < blocks * cores; i++) {
    const Count *c = count_core(p, side, block[i / cores], i % cores);
    for (int key = 0; c && key < LOCAL_KEYS; key++) {
      if (told[key] || !c->n[key] || c->doubt[key] || !c->hand[key]) continue;
      const IrStmt *s = c->first[key];
      const char *flag = arena_printf(p->arena, "flag %s -> %s #%d", pipe_info[s->sync.src].name,
                                      pipe_info[s->sync.dst].name, key % IDS_COUNTED);
      report(p, s, flag, c->n[key], 0);
      told[key] = true;
    }
  }
}

/* ---- between cores --------------------------------------------------------------------------------------- */

static int64_t number(const Count *c, int64_t id, int kind) { return c->n[cross_key(id, kind)]; }

static bool joins_blocks(const Count *core[3], int64_t id) {
  for (int i = 0; i < 3; i++)
    if (core[i]->first[cross_key(id, 0)]) return true;
  return false;
}

static bool compare_cross(PassCtx *p, const Count *core[3], int64_t id) {
  const IrStmt *at = NULL;
  bool hand = false;
  for (int i = 0; i < 3; i++)
    for (int kind = 0; kind < CROSS_KINDS; kind++) {
      int key = cross_key(id, kind);
      if (core[i]->doubt[key]) return false;
      hand |= core[i]->hand[key];
      if (core[i]->first[key] && !at) at = core[i]->first[key];
    }
  if (!hand) return false;
  static const char *const name[] = {"cube core", "first vector core", "second vector core"};
  for (int i = 0; i < 3; i++) {
    int64_t both[3]; /* sets by mode that all vector cores do */
    for (int mode = 0; mode < 3; mode++) both[mode] = min_i64(number(core[1], id, mode), number(core[2], id, mode));
    int64_t sets = i == 0 ? both[2] + number(core[0], id, 0) : number(core[0], id, 2) + both[1] + both[0];
    int64_t waits = number(core[i], id, CROSS_WAITS);
    if (sets == waits) continue;
    const IrStmt *wait = core[i]->first[cross_key(id, CROSS_WAITS)];
    report(p, wait ? wait : at, arena_printf(p->arena, "cross-core flag #%lld of the %s", (long long)id, name[i]), sets,
           waits);
    return true;
  }
  return false;
}

/* The cores of a block, or of any (-1): cube core, vector cores. False: too long to say. */
static bool count_cores(PassCtx *p, IrStmt *const side[2], int64_t block, const Count *core[3]) {
  for (int i = 0; i < 3; i++) core[i] = count_core(p, side[i > 0], block, i == 2);
  return core[0] && core[1] && core[2];
}

void sync_count_cross(PassCtx *p) {
  IrStmt *side[2] = {NULL, NULL}; /* cube, vector */
  for (IrStmt *s = p->k->body.first; s; s = s->next)
    if (ir_is_side(s)) side[s->op == ST_VECTOR] = s;
  int64_t block[2];
  int blocks = sync_sample_blocks(p->k, block);
  bool told[IDS_COUNTED] = {false};
  const Count *core[3];
  if (!count_cores(p, side, -1, core)) return;
  for (int64_t id = 0; id < IDS_COUNTED; id++)
    if (joins_blocks(core, id)) compare_cross(p, core, id), told[id] = true;
  for (int b = 0; b < blocks; b++) {
    if (!count_cores(p, side, block[b], core)) return;
    for (int64_t id = 0; id < IDS_COUNTED; id++) told[id] = told[id] || compare_cross(p, core, id);
  }
}
