/* jumps.c - a continue becomes the other branch of its condition.
 *
 *     if c { x; continue }  rest      becomes      if c { x } else { rest }
 *
 * so that what follows it is seen as conditional by every later pass: a flag may stand there, a product that may not
 * happen does not start an accumulator. A continue at the end of an iteration goes. Those inside deeper conditions with
 * something behind them stay, and so do breaks: the passes after this one know of both. Loops without a trip go.
 *
 * In a kernel of both kinds of core, a loop with a product hands tiles over in each iteration, and both sides must
 * count the same number of them. There all jumps go; after a break the rest of the loop runs idle:
 *
 *     for i { x; if c { y; break } rest }
 *
 *     var go = true
 *     for i { if go { x; if c { y; go = false }  if go { rest } } }
 */
#include "pass.h"

static bool is_continue(const IrStmt *s) { return s && s->op == ST_CONTINUE; }

/* s and what follows it in its block go to the end of `to`. */
static void move_to(IrStmt *s, IrBlock *to) {
  for (IrStmt *next; s; s = next) {
    next = s->next;
    ir_remove(s);
    ir_append(to, s);
  }
}

/* ---- conditions ----------------------------------------------------------------------------------------------- */

/* b is the end of an iteration: what leaves it early may as well come to its end. */
static void fold_end(IrKernel *k, IrBlock *b) {
  while (is_continue(b->last)) ir_remove(b->last);
  for (IrStmt *s = b->first; s; s = s->next) {
    if (s->op != ST_IF) continue;
    IrBlock *leaves = is_continue(s->body.last) ? &s->body : &s->alt, *stays = leaves == &s->body ? &s->alt : &s->body;
    if (!is_continue(leaves->last) || ir_leaves_loop(stays)) continue;
    ir_remove(leaves->last);
    move_to(s->next, stays);
    if (s->body.first) continue;
    s->test.cond = ir_unary(k, EX_LNOT, s->test.cond);
    move_to(s->alt.first, &s->body);
  }
  if (b->last && b->last->op == ST_IF) {
    fold_end(k, &b->last->body);
    fold_end(k, &b->last->alt);
  }
}

static bool fold_loop(IrStmt *s, void *user) {
  if (ir_never_runs(user, s)) {
    ir_remove(s);
    return true;
  }
  if (s->op == ST_FOR || s->op == ST_WHILE) fold_end(user, &s->body);
  return true;
}

/* ---- variables ------------------------------------------------------------------------------------------------ */

typedef struct { bool product, vector, by_hand; } Found;

static bool find(IrStmt *s, void *user) {
  Found *f = user;
  f->product |= s->op == OP_GEMM;
  f->vector |= s->op == ST_PARALLEL || (ir_is_op(s) && op_info[s->op].pipe == PIPE_V);
  f->by_hand |= ir_is_side(s);
  return true;
}

static IrStmt *assign(IrKernel *k, StmtOp op, IrVar *x, bool value, Loc loc) {
  IrStmt *s = ir_new_stmt(k, op, loc);
  s->set.var = x;
  s->set.value = ir_int(k, DT_BOOL, value);
  if (op == ST_VAR) x->def = s;
  return s;
}

/* Every such jump in b becomes `on = false`, and what would follow it hangs on `on`. */
static void lower_jumps(IrKernel *k, IrBlock *b, StmtOp jump, IrVar *on) {
  for (IrStmt *s = b->first; s; s = s->next) {
    if (s->op == jump) {
      while (s->next) ir_remove(s->next); /* never comes */
      ir_insert_before(s, assign(k, ST_ASSIGN, on, false, s->loc));
      ir_remove(s);
      return;
    }
    if (s->op != ST_IF || !(ir_has_jump(&s->body, jump) || ir_has_jump(&s->alt, jump))) continue;
    lower_jumps(k, &s->body, jump, on);
    lower_jumps(k, &s->alt, jump, on);
    if (!s->next) return;
    IrStmt *rest = ir_new_stmt(k, ST_IF, s->next->loc);
    rest->test.cond = ir_var(k, on);
    move_to(s->next, &rest->body);
    ir_append(b, rest);
  }
}

static IrVar *new_switch(IrKernel *k, IrStmt *loop, const char *name) {
  IrVar *x = ir_new_var(k, name, DT_BOOL, VAR_MUT, loop->loc);
  ir_insert_before(loop, assign(k, ST_VAR, x, true, loop->loc));
  return x;
}

static bool lower_loop(IrStmt *s, void *user) {
  PassCtx *p = user;
  IrKernel *k = p->k;
  Found f = {0};
  if (s->op != ST_FOR && s->op != ST_WHILE) return true;
  ir_walk(&s->body, find, &f);
  if (!f.product) return true;
  if (ir_has_jump(&s->body, ST_CONTINUE)) {
    IrVar *on = new_switch(k, s, "on");
    lower_jumps(k, &s->body, ST_CONTINUE, on);
    ir_insert_before(s->body.first, assign(k, ST_ASSIGN, on, true, s->loc));
  }
  if (!ir_has_jump(&s->body, ST_BREAK)) return true;
  IrVar *go = new_switch(k, s, "go");
  lower_jumps(k, &s->body, ST_BREAK, go);
  if (s->op == ST_WHILE) {
    s->test.cond = ir_binary(k, EX_LAND, ir_var(k, go), s->test.cond);
    return true;
  }
  IrStmt *rest = ir_new_stmt(k, ST_IF, s->loc);
  rest->test.cond = ir_var(k, go);
  move_to(s->body.first, &rest->body);
  ir_append(&s->body, rest);
  pass_remark(p, "jumps", s->loc,
              "both kinds of core hand tiles over in this loop: after a break the rest of its trips runs idle");
  return true;
}

bool pass_jumps(PassCtx *p) {
  Found f = {0};
  ir_walk(&p->k->body, find, &f);
  ir_walk(&p->k->body, fold_loop, p->k);
  if (f.product && f.vector && !f.by_hand) ir_walk(&p->k->body, lower_loop, p);
  return true;
}
