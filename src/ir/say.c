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
