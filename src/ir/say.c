/* say.c - `print` and `assert`: their texts, and a kernel without them. */
#include "ir.h"

#include <string.h>

bool ir_next_spec(const char **text, IrSpec *out) {
  for (const char *p = *text; *p; p++) {
    if (*p != '%') continue;
    if (p[1] == '%') {
      p++;
      continue;
    }
    *out = (IrSpec){p, 1, 0, false};
    for (p++; *p && strchr("-+ #0123456789.*lhzjt", *p) && !out->conv; p++) {
      out->count |= *p == '*';
      if (*p == 't') out->conv = 't';
    }
    if (!out->conv && *p) out->conv = *p++;
    out->len = (int)(p - out->at);
    *text = p;
    return true;
  }
  return false;
}

static bool count_say(IrStmt *s, void *user) {
  *(int *)user += ir_is_say(s);
  return true;
}

int ir_count_says(const IrKernel *k) {
  int n = 0;
  ir_walk((IrBlock *)&k->body, count_say, &n);
  return n;
}

static bool drop(IrBlock *b, const bool **keep) {
  bool any = false;
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    bool goes = ir_is_say(s) && !(*keep && *(*keep)++);
    bool body = drop(&s->body, keep), alt = drop(&s->alt, keep);
    bool empty = (body || alt) && !s->body.first && !s->alt.first;
    any |= body || alt || goes;
    if (goes || empty) ir_remove(s);
  }
  return any;
}

void ir_drop_says(IrKernel *k, const bool *keep) { drop(&k->body, &keep); }

/* ---- an `if` around prints --------------------------------------------------------------------------------------- */

static void look_for_load(IrExpr *e, void *user) { *(bool *)user |= e->op == EX_LOAD; }

static bool loads(IrExpr *e) {
  bool found = false;
  ir_walk_expr(e, look_for_load, &found);
  return found;
}

/* Nothing but prints and assertions, loops and branches around them, and the names they use; n: how many there are. */
static bool only_says(const IrBlock *b, int *n) {
  for (const IrStmt *s = b->first; s; s = s->next) {
    *n += ir_is_say(s);
    bool around = s->op == ST_IF || s->op == ST_FOR;
    if (!ir_is_say(s) && s->op != ST_LET && !around) return false;
    if (around && (!only_says(&s->body, n) || !only_says(&s->alt, n))) return false;
  }
  return true;
}

/* A name in a block of says is what it stands for: nothing in between changes it. */
static void drop_names(IrKernel *k, IrBlock *b) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    drop_names(k, &s->body);
    drop_names(k, &s->alt);
    if (s->op != ST_LET) continue;
    ir_subst_block(k, b, s->set.var, s->set.value);
    ir_remove(s);
  }
}

static void put_guard(IrKernel *k, IrBlock *b, IrExpr *cond) {
  for (IrStmt *s = b->first; s; s = s->next) {
    put_guard(k, &s->body, cond);
    put_guard(k, &s->alt, cond);
    if (ir_is_say(s)) s->say.only = s->say.only ? ir_binary(k, EX_LAND, cond, s->say.only) : cond;
  }
}

static void guard(IrKernel *k, IrBlock *b) {
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    int n = 0;
    bool around = s->op == ST_IF || s->op == ST_FOR;
    if (around && only_says(&s->body, &n) && only_says(&s->alt, &n) && n) {
      drop_names(k, &s->body);
      drop_names(k, &s->alt);
    } else {
      n = 0;
    }
    guard(k, &s->body);
    guard(k, &s->alt);
    if (!n || s->op != ST_IF || !loads(s->test.cond)) continue;
    put_guard(k, &s->body, s->test.cond);
    put_guard(k, &s->alt, ir_unary(k, EX_LNOT, s->test.cond));
    for (IrStmt *x; (x = s->alt.first);) {
      ir_remove(x);
      ir_append(&s->body, x);
    }
    ir_replace_with_block(s, &s->body);
  }
}

void ir_guard_says(IrKernel *k) { guard(k, &k->body); }
