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

static bool not_say(IrStmt *s, void *user) {
  (void)user;
  return !ir_is_say(s);
}

bool ir_has_says(const IrKernel *k) { return !ir_walk((IrBlock *)&k->body, not_say, NULL); }

static bool drop(IrBlock *b) {
  bool any = false;
  for (IrStmt *s = b->first, *next; s; s = next) {
    next = s->next;
    bool body = drop(&s->body), alt = drop(&s->alt);
    bool empty = (body || alt) && !s->body.first && !s->alt.first;
    any |= body || alt || ir_is_say(s);
    if (ir_is_say(s) || empty) ir_remove(s);
  }
  return any;
}

void ir_drop_says(IrKernel *k) { drop(&k->body); }
