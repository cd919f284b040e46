/* program.c - from the lowered tree to what pipe S runs: a flat register bytecode.
 *
 * Register v holds variable v; constants and temporaries follow. Loops, ifs and short-circuit operators become jumps,
 * so that S can stop before any instruction and go on later. A statement of ops.def becomes one Inst, whose operands
 * are registers, and one ISSUE. What was computed since the last place that jumps lead to, and would come out the same,
 * is not computed again; the clock counts it as if it were. The cube program skips `vector` blocks and the vector
 * program skips `cube` blocks; everything else both run. */
#include "machine.h"

#include <string.h>

enum { LOOK_BACK = 64 }; /* values and constants that are looked for */

typedef struct { uint16_t op, aux; int32_t d, a, b; } Value; /* as Code: register d holds this */

typedef struct Jump { struct Jump *up; Vec(int32_t) breaks, continues; } Jump;

typedef struct {
  Arena *arena;
  Diags *diags;
  const IrKernel *k;
  char side;
  uint32_t next_id;
  Vec(Code) code;
  Vec(const IrStmt *) code_stmt;
  Vec(Inst) inst;
  Vec(Element) elem;
  Vec(Say) say;
  bool peek; /* inside a print */
  bool says;
  Vec(Reg) init;
  Vec(int32_t) constant;
  Vec(Value) value;
  uint32_t label; /* the last place that jumps lead to */
  Jump *loop;
  Program *out;
  const IrStmt *stmt; /* for messages */
  bool ok;
} Build;

static bool writes(CodeOp op) {
  return op != C_HALT && op != C_JMP && op != C_JZ && op != C_JNZ && op != C_LOOP && op != C_ISSUE && op != C_STORE &&
         op != C_DRAIN && op != C_SAY;
}

static int32_t emit(Build *b, CodeOp op, int aux, int32_t d, int32_t x, int32_t y) {
  vec_push(b->arena, &b->code, ((Code){(uint16_t)op, (uint16_t)aux, d, x, y, 0, 1}));
  vec_push(b->arena, &b->code_stmt, b->stmt);
  uint32_t n = 0;
  bool var = writes(op) && (uint32_t)d < b->k->vars.len + 1; /* temporaries are not written again before a label */
  for (uint32_t i = 0; var && i < b->value.len; i++)
    if (b->value.data[i].a != d && b->value.data[i].b != d) b->value.data[n++] = b->value.data[i];
  if (var) b->value.len = n;
  return (int32_t)b->code.len - 1;
}

/* Jumps lead here: nothing is known to have been computed. */
static int32_t here(Build *b) {
  b->value.len = 0;
  b->label = b->code.len;
  return (int32_t)b->code.len;
}

static void land_here(Build *b, int32_t jump) { b->code.data[jump].to = here(b); }

static int32_t temp(Build *b) {
  vec_push(b->arena, &b->init, (Reg){0});
  return (int32_t)b->init.len - 1;
}

static int32_t constant(Build *b, Reg v) {
  uint32_t n = b->constant.len;
  for (uint32_t i = n; i > 0 && i + LOOK_BACK > n; i--)
    if (b->init.data[b->constant.data[i - 1]].i == v.i) return b->constant.data[i - 1];
  int32_t r = temp(b);
  b->init.data[r] = v;
  vec_push(b->arena, &b->constant, r);
  return r;
}

/* A register that holds what the operation gives. */
static int32_t compute(Build *b, CodeOp op, int aux, int32_t x, int32_t y) {
  const Code *last = b->code.len > b->label ? &b->code.data[b->code.len - 1] : NULL;
  bool counts = last && (writes((CodeOp)last->op) || last->op == C_ISSUE || last->op == C_STORE);
  /* division by zero is reported for each statement */
  bool divides = op == C_INT + EX_DIV || op == C_INT + EX_FDIV || op == C_INT + EX_MOD;
  uint32_t n = b->value.len;
  for (uint32_t i = n; counts && i > 0; i--) {
    const Value *v = &b->value.data[i - 1];
    if (v->op != op || v->aux != aux || v->a != x || v->b != y || (divides && !b->init.data[y].i)) continue;
    b->code.data[b->code.len - 1].steps++;
    return v->d;
  }
  int32_t d = temp(b);
  emit(b, op, aux, d, x, y);
  if (n == LOOK_BACK) {
    b->value.len = n / 2;
    memmove(b->value.data, b->value.data + n / 2, sizeof *b->value.data * (n / 2));
  }
  vec_push(b->arena, &b->value, ((Value){(uint16_t)op, (uint16_t)aux, d, x, y}));
  return d;
}

static void refuse(Build *b, const char *what, const char *name) {
  b->ok = false;
  diag_add(b->diags, DIAG_SIM_OPERAND, b->stmt->loc, "%s %s", what, name);
}

/* ---- expressions ---------------------------------------------------------------------------------------- */

static int32_t expr(Build *b, const IrExpr *e);

static int32_t element(Build *b, const IrBuf *buf, IrExpr *const *idx, bool is_store) {
  Element el = {.id = b->next_id++, .buf = (int32_t)buf->id, .stmt = b->stmt, .is_store = is_store,
                .peek = b->peek};
  if ((buf->space != SPACE_GM && buf->space != SPACE_UB) || (buf->space == SPACE_UB && buf->layout != LAYOUT_ND))
    refuse(b, "pipe s reaches single elements of gm and row-major ub only, not of",
           arena_printf(b->arena, "%%%s", buf->name));
  for (int i = 0; i < buf->rank; i++) el.idx[i] = expr(b, idx[i]);
  vec_push(b->arena, &b->elem, el);
  return (int32_t)b->elem.len - 1;
}

static bool float_only(ExprOp op) {
  return op == EX_EXP || op == EX_LOG || op == EX_SQRT || op == EX_RSQRT || op == EX_SIN || op == EX_COS ||
         op == EX_TANH;
}

static void short_circuit(Build *b, const IrExpr *e, int32_t d) {
  emit(b, C_MOV, 0, d, expr(b, e->arg[0]), 0);
  int32_t skip = emit(b, e->op == EX_LAND ? C_JZ : C_JNZ, 0, 0, d, 0);
  emit(b, C_MOV, 0, d, expr(b, e->arg[1]), 0);
  land_here(b, skip);
}

static void select_value(Build *b, const IrExpr *e, int32_t d) {
  int32_t no = emit(b, C_JZ, 0, 0, expr(b, e->arg[0]), 0);
  emit(b, C_MOV, 0, d, expr(b, e->arg[1]), 0);
  int32_t end = emit(b, C_JMP, 0, 0, 0, 0);
  land_here(b, no);
  emit(b, C_MOV, 0, d, expr(b, e->arg[2]), 0);
  land_here(b, end);
}

static int32_t expr(Build *b, const IrExpr *e) {
  int32_t d;
  switch (e->op) {
  case EX_INT: return constant(b, (Reg){.i = dtype_wrap(e->type, e->i)});
  case EX_FLOAT: return constant(b, (Reg){.f = float_round(e->type, e->f)});
  case EX_VAR: return (int32_t)e->var->id;
  case EX_LOAD: {
    int32_t el = element(b, e->buf, e->idx, false);
    emit(b, b->peek ? C_PEEK : C_LOAD, 0, d = temp(b), el, 0);
    return d;
  }
  case EX_CAST:
  case EX_BITS: {
    int32_t a = expr(b, e->arg[0]);
    return compute(b, e->op == EX_CAST ? C_CAST : C_BITS, e->type, a, e->arg[0]->type);
  }
  case EX_SELECT: select_value(b, e, d = temp(b)); return d;
  case EX_LAND:
  case EX_LOR: short_circuit(b, e, d = temp(b)); return d;
  default: {
    DType t = e->arg[0]->type;
    int32_t x = expr(b, e->arg[0]), y = e->n > 1 ? expr(b, e->arg[1]) : 0;
    if (!dtype_is_float(t) && float_only(e->op))
      refuse(b, "an integer has no", "such function: convert it to f32 first");
    return compute(b, (CodeOp)((dtype_is_float(t) ? C_FLT : C_INT) + e->op), t, x, y);
  }
  }
}

/* ---- instructions --------------------------------------------------------------------------------------- */

static void operand(Build *b, const IrArg *a, Operand *o) {
  if (a->kind == ARG_SCALAR) {
    o->scalar = expr(b, a->scalar);
    o->type = a->scalar->type;
    return;
  }
  o->buf = (int32_t)a->region.buf->id;
  for (int d = 0; d < a->region.buf->rank; d++) {
    o->off[d] = expr(b, a->region.off[d]);
    o->ext[d] = expr(b, a->region.ext[d]);
  }
}

static void add_inst(Build *b, Inst *i) {
  i->id = b->next_id++;
  i->stmt = b->stmt;
  i->op = b->stmt->op;
  vec_push(b->arena, &b->inst, *i);
  emit(b, C_ISSUE, 0, 0, (int32_t)b->inst.len - 1, 0);
}

static bool pipe_on_side(Pipe p, char side) { return pipe_info[p].side == 'b' || pipe_info[p].side == side; }

static void op_inst(Build *b, const IrStmt *s) {
  const OpInfo *info = &op_info[s->op];
  Inst i = {
      .id_reg = NO_REG, .init_reg = NO_REG, .pad_reg = NO_REG, .n_args = s->n_args, .n_in = (uint8_t)ir_n_in(s->op)};
  if (info->level == 's' || info->pipe == PIPE_NONE || s->n_args > MAX_ARGS) {
    refuse(b, "not an instruction of the lowered level:", info->name);
    return;
  }
  i.pipe = info->pipe;
  i.impl = impl_move(s->op);
  if (!i.impl) i.impl = impl_cube(s->op);
  if (!i.impl) i.impl = impl_vector(s->op);
  if (!i.impl) i.impl = impl_gather(s->op);
  if (!i.impl) i.impl = impl_sort(s->op);
  if (!i.impl) {
    refuse(b, "the simulator does not know the instruction", info->name);
    return;
  }
  if (!pipe_on_side(i.pipe, b->side)) {
    refuse(b, b->side == 'c' ? "a cube core has no pipe for" : "a vector core has no pipe for", info->name);
    return;
  }
  for (int a = 0; a < s->n_args; a++) operand(b, &s->args[a], &i.arg[a]);
  i.relu = ir_attr(s, ATTR_RELU) != NULL;
  i.atomic = ir_attr(s, ATTR_ATOMIC) != NULL;
  i.trans = ir_attr(s, ATTR_TRANS) != NULL;
  i.maskrep = ir_attr(s, ATTR_MASKREP) != NULL;
  i.cast = (uint8_t)ir_attr_int(s, ATTR_MODE, CAST_NONE);
  i.cmp = (uint8_t)ir_attr_int(s, ATTR_CMP, CMP_EQ);
  IrExpr *init = ir_attr(s, ATTR_INIT);
  if (init) i.init_reg = expr(b, init);
  IrExpr *pad = s->op == OP_GM_TO_UB ? ir_attr(s, ATTR_PAD) : NULL;
  if (pad) {
    i.pad_reg = expr(b, pad);
    i.pad_type = pad->type;
  }
  add_inst(b, &i);
}

/* The queue a synchronisation statement goes to: set_flag its source's, wait_flag its destination's. */
static void sync_inst(Build *b, const IrStmt *s) {
  Inst i = {.id_reg = NO_REG,
            .init_reg = NO_REG,
            .pad_reg = NO_REG,
            .src = s->sync.src,
            .dst = s->sync.dst,
            .mode = s->sync.mode};
  switch (s->op) {
  case ST_SET_FLAG: i.pipe = s->sync.src; break;
  case ST_WAIT_FLAG: i.pipe = s->sync.dst; break;
  case ST_SYNC_ALL: i.pipe = PIPE_S; b->out->sync_all = true; break;
  case ST_CROSS_WAIT: i.pipe = s->sync.src == PIPE_NONE ? PIPE_S : s->sync.src; b->out->cross = true; break;
  case ST_CROSS_SET:
    i.pipe = s->sync.src;
    b->out->cross = true;
    b->out->mode0 |= i.mode == 0;
    if (i.mode < 0 || i.mode >= CROSS_MODES)
      refuse(b, "cross-core flags have modes 0, 1 and 2, not", arena_printf(b->arena, "%d", i.mode));
    break;
  default: i.pipe = s->sync.src == PIPE_ALL ? PIPE_S : s->sync.src; break;
  }
  bool two = s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG;
  if (i.pipe >= CORE_PIPES || (two && (i.src >= CORE_PIPES || i.dst >= CORE_PIPES)) || !pipe_on_side(i.pipe, b->side) ||
      (two && (!pipe_on_side(i.src, b->side) || !pipe_on_side(i.dst, b->side)))) {
    refuse(b,
           b->side == 'c' ? "a cube core does not have the pipes of this"
                          : "a vector core does not have the pipes of this",
           "synchronisation");
    return;
  }
  if (s->op != ST_SYNC_ALL && s->op != ST_BARRIER) i.id_reg = expr(b, s->sync.id);
  add_inst(b, &i);
}

/* ---- statements ----------------------------------------------------------------------------------------- */

static void block(Build *b, const IrBlock *blk);

static void loop_body(Build *b, const IrBlock *body, Jump *j) {
  j->up = b->loop;
  b->loop = j;
  block(b, body);
  b->loop = j->up;
}

static void for_loop(Build *b, const IrStmt *s) {
  int32_t var = (int32_t)s->loop.var->id;
  int32_t lo = expr(b, s->loop.lo), hi = temp(b), step = temp(b);
  emit(b, C_MOV, 0, hi, expr(b, s->loop.hi), 0); /* snapshots: the body may assign to what they read */
  emit(b, C_MOV, 0, step, s->loop.step ? expr(b, s->loop.step) : constant(b, (Reg){.i = 1}), 0);
  emit(b, C_MOV, 0, var, lo, 0);
  int32_t enter = emit(b, C_JMP, 0, 0, 0, 0), top = here(b);
  Jump j = {0};
  loop_body(b, &s->body, &j);
  for (uint32_t i = 0; i < j.continues.len; i++) land_here(b, j.continues.data[i]);
  b->stmt = s;
  emit(b, C_STEP, 0, var, 0, step);
  land_here(b, enter);
  int32_t again = emit(b, C_LOOP, 0, var, hi, step);
  b->code.data[again].to = top;
  for (uint32_t i = 0; i < j.breaks.len; i++) land_here(b, j.breaks.data[i]);
}

static void while_loop(Build *b, const IrStmt *s) {
  int32_t top = here(b);
  int32_t out = emit(b, C_JZ, 0, 0, expr(b, s->test.cond), 0);
  Jump j = {0};
  loop_body(b, &s->body, &j);
  b->stmt = s;
  int32_t back = emit(b, C_JMP, 0, 0, 0, 0);
  b->code.data[back].to = top;
  land_here(b, out);
  for (uint32_t i = 0; i < j.continues.len; i++) b->code.data[j.continues.data[i]].to = top;
  for (uint32_t i = 0; i < j.breaks.len; i++) land_here(b, j.breaks.data[i]);
}

static void if_stmt(Build *b, const IrStmt *s) {
  int32_t cond = expr(b, s->test.cond);
  int32_t no = emit(b, C_JZ, 0, 0, cond, 0);
  block(b, &s->body);
  if (s->alt.first) {
    int32_t end = emit(b, C_JMP, 0, 0, 0, 0);
    land_here(b, no);
    block(b, &s->alt);
    land_here(b, end);
  } else {
    land_here(b, no);
  }
}

static void store_stmt(Build *b, const IrStmt *s) {
  int32_t v = expr(b, s->store.value), el = element(b, s->store.buf, s->store.idx, true);
  DType t = s->store.buf->type;
  if (s->store.value->type != t) {
    int32_t c = temp(b);
    emit(b, C_CAST, t, c, v, s->store.value->type);
    v = c;
  }
  if (s->store.accumulate) {
    Element from = b->elem.data[el];
    from.is_store = false;
    from.id = b->next_id++;
    vec_push(b->arena, &b->elem, from);
    int32_t old = temp(b), sum = temp(b);
    emit(b, C_LOAD, 0, old, (int32_t)b->elem.len - 1, 0);
    emit(b, (CodeOp)((dtype_is_float(t) ? C_FLT : C_INT) + EX_ADD), t, sum, old, v);
    v = sum;
  }
  emit(b, C_STORE, 0, v, el, 0);
}

static void say_stmt(Build *b, const IrStmt *s) {
  Say x = {s, 0, arena_array(b->arena, Operand, s->say.n + 1)};
  if (s->say.when || !b->says) return;
  emit(b, C_DRAIN, 0, 0, 0, 0);
  b->peek = true;
  int32_t no = s->say.only ? emit(b, C_JZ, 0, 0, expr(b, s->say.only), 0) : 0;
  if (s->say.cond) x.cond = expr(b, s->say.cond);
  for (int i = 0; i < s->say.n; i++) operand(b, &s->say.arg[i], &x.arg[i]);
  b->peek = false;
  vec_push(b->arena, &b->say, x);
  emit(b, C_SAY, 0, 0, (int32_t)b->say.len - 1, 0);
  if (s->say.only) land_here(b, no);
}

static void stmt(Build *b, const IrStmt *s) {
  b->stmt = s;
  if (ir_is_op(s)) {
    op_inst(b, s);
    return;
  }
  switch (s->op) {
  case ST_ALLOC: break;
  case ST_LET:
  case ST_VAR:
  case ST_ASSIGN: {
    int32_t v = expr(b, s->set.value), d = (int32_t)s->set.var->id;
    DType to = s->set.var->type, from = s->set.value->type;
    emit(b, to == from ? C_MOV : C_CAST, to, d, v, from);
    break;
  }
  case ST_STORE: store_stmt(b, s); break;
  case ST_FOR: for_loop(b, s); break;
  case ST_IF: if_stmt(b, s); break;
  case ST_WHILE: while_loop(b, s); break;
  case ST_CUBE:
    if (b->side == 'c') block(b, &s->body);
    break;
  case ST_VECTOR:
    if (b->side == 'v') block(b, &s->body);
    break;
  case ST_SET_FLAG:
  case ST_WAIT_FLAG:
  case ST_BARRIER:
  case ST_CROSS_SET:
  case ST_CROSS_WAIT:
  case ST_SYNC_ALL: sync_inst(b, s); break;
  case ST_PRINT:
  case ST_ASSERT: say_stmt(b, s); break;
  case ST_BREAK:
  case ST_CONTINUE: {
    int32_t j = emit(b, C_JMP, 0, 0, 0, 0);
    if (!b->loop) refuse(b, "outside of a loop:", s->op == ST_BREAK ? "break" : "continue");
    else if (s->op == ST_BREAK) vec_push(b->arena, &b->loop->breaks, j);
    else vec_push(b->arena, &b->loop->continues, j);
    break;
  }
  default: refuse(b, "not a statement of the lowered level:", "parallel"); break;
  }
}

static void block(Build *b, const IrBlock *blk) {
  for (const IrStmt *s = blk->first; s; s = s->next) stmt(b, s);
}

bool program_build(Arena *a, Diags *d, const IrKernel *k, char side, bool says, uint32_t *next_id, Program *out) {
  Build b = {.arena = a, .diags = d, .k = k, .side = side, .next_id = *next_id, .out = out, .ok = true,
             .says = says};
  memset(out, 0, sizeof *out);
  for (uint32_t v = 0; v < k->vars.len + 1; v++) temp(&b);
  block(&b, &k->body);
  emit(&b, C_HALT, 0, 0, 0, 0);
  out->side = side;
  out->code = b.code.data;
  out->code_stmt = b.code_stmt.data;
  out->n_code = (int32_t)b.code.len;
  out->inst = b.inst.data;
  out->n_inst = (int32_t)b.inst.len;
  out->elem = b.elem.data;
  out->n_elem = (int32_t)b.elem.len;
  out->say = b.say.data;
  out->n_say = (int32_t)b.say.len;
  out->init = b.init.data;
  out->n_reg = (int32_t)b.init.len;
  *next_id = b.next_id;
  return b.ok;
}

/* ---- before the run: parameters, shapes, grid ----------------------------------------------------------- */

Reg *eval_params(Arena *a, const IrKernel *k, const SimArg *args) {
  Reg *r = arena_array(a, Reg, k->vars.len + 1);
  for (uint32_t i = 0; i < k->params.len; i++) {
    const IrVar *v = k->params.data[i].var;
    if (!v) continue;
    if (dtype_is_float(v->type)) r[v->id].f = float_round(v->type, args[i].scalar.f);
    else r[v->id].i = dtype_wrap(v->type, args[i].scalar.i);
  }
  return r;
}

static bool eval_reg(const IrKernel *k, const Reg *vars, const IrExpr *e, Reg *out, int depth) {
  Reg a = {0}, b = {0};
  bool zero = false;
  if (depth > 200) return false;
  switch (e->op) {
  case EX_INT: *out = (Reg){.i = dtype_wrap(e->type, e->i)}; return true;
  case EX_FLOAT: *out = (Reg){.f = float_round(e->type, e->f)}; return true;
  case EX_VAR:
    *out = vars[e->var->id];
    return e->var->kind == VAR_PARAM;
  case EX_LOAD: return false;
  case EX_CAST:
  case EX_BITS:
    if (!eval_reg(k, vars, e->arg[0], &a, depth + 1)) return false;
    *out = e->op == EX_CAST ? scalar_cast(e->type, e->arg[0]->type, a) : scalar_bits(e->type, e->arg[0]->type, a);
    return true;
  case EX_SELECT:
    if (!eval_reg(k, vars, e->arg[0], &a, depth + 1)) return false;
    return eval_reg(k, vars, e->arg[a.i ? 1 : 2], out, depth + 1);
  case EX_LAND:
  case EX_LOR:
    if (!eval_reg(k, vars, e->arg[0], out, depth + 1)) return false;
    return (out->i != 0) == (e->op == EX_LOR) || eval_reg(k, vars, e->arg[1], out, depth + 1);
  default:
    if (!eval_reg(k, vars, e->arg[0], &a, depth + 1) || (e->n > 1 && !eval_reg(k, vars, e->arg[1], &b, depth + 1)))
      return false;
    if (dtype_is_float(e->arg[0]->type)) *out = scalar_float(e->op, e->arg[0]->type, a, b);
    else *out = scalar_int(e->op, e->arg[0]->type, a, b, &zero);
    return !zero;
  }
}

bool eval_const(const IrKernel *k, const Reg *vars, const IrExpr *e, int64_t *out) {
  Reg r;
  if (!eval_reg(k, vars, e, &r, 0)) return false;
  *out = r.i;
  return true;
}
