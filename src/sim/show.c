/* show.c - print and assert: what the kernel shows of itself.
 *
 * Pipe S stops at a print until what it issued before is done, then reads memory without leaving a trace: no hazard is
 * looked for, no flag, clock or byte changes. A core that cannot go on otherwise shows what there is and says so.
 * Records are kept by block and sorted in the end, so that their order is that of the grid for any number of threads;
 * what a block prints past LIMIT bytes is left out. */
#include "machine.h"

#include <string.h>

enum { LIMIT = 1 << 20, WHOLE = 1000, EDGE = 3 };

typedef struct { const SimBuf *b; const Core *core; const int64_t *off, *ext; } Tile;

/* Host address of an element; NULL: outside of the buffer. */
static const uint8_t *element(const Tile *t, const int64_t *idx) {
  const SimBuf *b = t->b;
  int64_t at = 0;
  int flat = b->fractal && b->rank >= 2 ? b->rank - 2 : b->rank;
  for (int d = 0; d < b->rank; d++)
    if (idx[d] < 0 || idx[d] >= b->shape[d]) return NULL;
  for (int d = 0; d < flat; d++) at += idx[d] * b->stride[d];
  if (flat < b->rank)
    at += ir_fractal_offset(b->layout, b->space, b->type, b->shape[flat], b->shape[flat + 1], idx[flat], idx[flat + 1]);
  at *= b->size;
  return b->space == SPACE_GM ? b->gm + at : buf_ptr(t->core, b, at);
}

static void put_value(Text *t, DType type, Reg v) {
  if (type == DT_BOOL) text_put(t, v.i ? "true" : "false");
  else if (type == DT_U64) text_printf(t, "%llu", (unsigned long long)v.i);
  else if (!dtype_is_float(type)) text_printf(t, "%lld", (long long)v.i);
  else text_printf(t, "%.*g", type == DT_F32 ? 7 : 4, v.f);
}

static void put_element(Text *t, const Tile *x, const int64_t *idx) {
  const uint8_t *p = element(x, idx);
  if (p) put_value(t, x->b->type, scalar_load(x->b->type, p));
  else text_put(t, "outside");
}

static void put_box(Text *t, const Tile *x, int64_t *idx, int d, int indent, bool whole) {
  int64_t n = x->ext[d];
  bool last = d == x->b->rank - 1;
  text_put(t, "[");
  for (int64_t i = 0; i < n; i++) {
    if (i) text_put(t, last ? ", " : ",\n");
    if (i && !last) text_printf(t, "%*s", indent + 1, "");
    if (!whole && n > 2 * EDGE && i == EDGE) {
      text_put(t, "...");
      i = n - EDGE - 1;
      continue;
    }
    idx[d] = x->off[d] + i;
    if (last) put_element(t, x, idx);
    else put_box(t, x, idx, d + 1, indent + 1, whole);
  }
  text_put(t, "]");
}

/* The first `most` elements of a tile in one row, or all of them row by row. */
static void put_tile(Text *t, const Tile *x, int64_t most) {
  int64_t n = 1, idx[IR_MAX_RANK];
  for (int d = 0; d < x->b->rank; d++) n *= max_i64(x->ext[d], 0);
  text_printf(t, "%%%s %s[", x->b->ir->name, dtype_info[x->b->type].name);
  for (int d = 0; d < x->b->rank; d++) text_printf(t, "%s%lld", d ? ", " : "", (long long)x->ext[d]);
  text_put(t, "]");
  if (most >= n) {
    text_put(t, x->b->rank > 1 ? "\n" : " ");
    put_box(t, x, idx, 0, 0, n <= WHOLE);
    return;
  }
  text_put(t, " [");
  for (int64_t k = 0; k < most; k++) {
    int64_t rest = k;
    for (int d = x->b->rank - 1; d >= 0; d--) {
      idx[d] = x->off[d] + rest % x->ext[d];
      rest /= x->ext[d];
    }
    if (k) text_put(t, ", ");
    put_element(t, x, idx);
  }
  text_put(t, "]");
}

/* One conversion of C for a value of any dtype. */
static void put_spec(Text *t, const IrSpec *spec, DType type, Reg v) {
  char fmt[40] = "%";
  int n = 1;
  bool real = strchr("eEfFgG", spec->conv) != NULL, from = dtype_is_float(type);
  for (int i = 1; i < spec->len - 1 && n < 30; i++)
    if (!strchr("lhzjt", spec->at[i])) fmt[n++] = spec->at[i];
  if (!real && spec->conv != 'c') fmt[n++] = 'l', fmt[n++] = 'l';
  fmt[n] = spec->conv;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  if (real) text_printf(t, fmt, from ? v.f : type == DT_U64 ? (double)(uint64_t)v.i : (double)v.i);
  else if (spec->conv == 'c') text_printf(t, fmt, (int)v.i);
  else text_printf(t, fmt, (long long)(from ? scalar_cast(DT_I64, type, v).i : v.i));
#pragma GCC diagnostic pop
}

static void put_plain(Text *t, const char *from, const char *to) {
  for (; from < to; from++)
    if (*from != '%' || from[1] != '%' || from + 1 == to) text_putn(t, from, 1);
}

/* The text with its values; those are asked of `value` and `tile` by number. */
typedef struct {
  const Sim *sim;
  const Core *core;
  Reg (*value)(const void *user, const IrExpr *e, int32_t reg);
  const void *user;
  const Say *say; /* registers; NULL: none */
} Values;

static int64_t number(const Values *v, const IrExpr *e, int32_t reg) { return v->value(v->user, e, reg).i; }

static void put_text(Text *t, const Values *v, const IrStmt *s) {
  const char *at = s->say.text, *rest = at;
  IrSpec spec;
  for (int n = 0; ir_next_spec(&rest, &spec) && n < s->say.n; n++) {
    put_plain(t, at, spec.at);
    at = rest;
    int64_t most = INT64_MAX, off[IR_MAX_RANK], ext[IR_MAX_RANK];
    if (spec.count) {
      most = max_i64(number(v, s->say.arg[n].scalar, v->say ? v->say->arg[n].scalar : 0), 0);
      n++;
    }
    const IrArg *a = &s->say.arg[n];
    const Operand *o = v->say ? &v->say->arg[n] : NULL;
    if (a->kind == ARG_SCALAR) {
      put_spec(t, &spec, a->scalar->type, v->value(v->user, a->scalar, o ? o->scalar : 0));
      continue;
    }
    for (int d = 0; d < a->region.buf->rank; d++) {
      off[d] = number(v, a->region.off[d], o ? o->off[d] : 0);
      ext[d] = number(v, a->region.ext[d], o ? o->ext[d] : 0);
    }
    put_tile(t, &(Tile){&v->sim->buf[a->region.buf->id], v->core, off, ext}, most);
  }
  put_plain(t, at, at + strlen(at));
}

static Reg in_register(const void *user, const IrExpr *e, int32_t reg) {
  (void)e;
  return ((const Core *)user)->reg[reg];
}

void say(Core *c, const Say *x) {
  Machine *m = c->m;
  const IrStmt *s = x->stmt;
  Text t;
  bool forced = c->hurry;
  c->hurry = false;
  if (s->op == ST_ASSERT && (c->reg[x->cond].i || fault_known(c, DIAG_SIM_ASSERT, s, NULL))) return;
  if (s->op == ST_PRINT && m->said_bytes > LIMIT) return;
  text_init(&t, &m->arena);
  put_text(&t, &(Values){m->sim, c, in_register, c, x}, s);
  if (forced) text_put(&t, " (before what was issued earlier is done)");
  if (s->op == ST_ASSERT) {
    const char *text = text_str(&t), *colon = *text ? ": " : "";
    const char *cond = arena_printf(&m->arena, "`%s` does not hold%s", ir_expr_str(&m->arena, s->say.cond), colon);
    if (s->say.cond->op == EX_INT) cond = ""; /* `raise`: what it asks is the `if` around it */
    Fault *f = fault(c, DIAG_SIM_ASSERT, s, NULL, "%s%s (%s)", cond, text, where(&m->arena, c));
    if (f) fault_fix(c, f, "print what the condition reads with T.print");
    return;
  }
  m->said_bytes += (int64_t)t.len;
  if (m->said_bytes > LIMIT) text_put(&t, "\n... what this block prints further is left out");
  vec_push(&m->arena, &m->said, ((SimSaid){c->block, s->loc, where(&m->arena, c), text_str(&t)}));
}

/* ---- around the launch ---------------------------------------------------------------------------------- */

static Reg of_parameters(const void *user, const IrExpr *e, int32_t reg) {
  const Sim *s = user;
  Reg r = {0};
  (void)reg;
  eval_const(s->k, s->param, e, &r.i);
  return r;
}

void say_around(const Sim *s, Arena *a, SayWhen when, SimResult *out) {
  for (const IrStmt *x = s->k->body.first; x; x = x->next) {
    if (!ir_is_say(x) || x->say.when != when) continue;
    Text t;
    text_init(&t, a);
    put_text(&t, &(Values){s, NULL, of_parameters, s, NULL}, x);
    vec_push(a, &out->said, ((SimSaid){-1, x->loc, when == SAY_BEFORE ? "before the launch" : "after the launch",
                                       text_str(&t)}));
  }
}

/* By block, and within a block as it happened. */
void say_collect(Arena *a, const Machine *machine, int n, SimResult *out) {
  uint32_t *next = arena_array(a, uint32_t, n);
  for (;;) {
    int first = -1;
    for (int i = 0; i < n; i++) {
      if (next[i] == machine[i].said.len) continue;
      if (first < 0 || machine[i].said.data[next[i]].block < machine[first].said.data[next[first]].block) first = i;
    }
    if (first < 0) return;
    const SimSaid *x = &machine[first].said.data[next[first]++];
    vec_push(a, &out->said,
             ((SimSaid){x->block, x->loc, arena_printf(a, "%s", x->where), arena_printf(a, "%s", x->text)}));
  }
}
