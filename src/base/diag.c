/* diag.c - the list of diagnostics of a context. Rendering is src/api's (text, JSON) and Python's. */
#include "base.h"

#include <string.h>

static const struct { int number; Severity severity; const char *title; } info[DIAG_COUNT] = {
#define DIAG(id, number, severity, title) [DIAG_##id] = {number, SEV_##severity, title},
#include "diag.def"
#undef DIAG
};

enum { DEFAULT_LIMIT = 20 };

void diags_init(Diags *d, Arena *a) {
  memset(d, 0, sizeof *d);
  d->arena = a;
  d->limit = DEFAULT_LIMIT;
}

Diag *diag_add(Diags *d, DiagCode code, Loc loc, const char *fmt, ...) {
  Diag g = {.code = code, .severity = info[code].severity, .loc = loc};
  va_list ap;
  va_start(ap, fmt);
  g.text = arena_vprintf(d->arena, fmt, ap);
  va_end(ap);
  bool said = false; /* one finding of an expression that stands twice in a statement is one */
  for (size_t i = d->list.len; i > 0 && !said; i--) {
    const Diag *o = &d->list.data[i - 1];
    said = o->code == code && o->loc.line == loc.line && o->loc.col == loc.col && o->loc.file == loc.file &&
           !strcmp(o->text, g.text);
  }
  if (said || (g.severity == SEV_ERROR && d->n_errors++ >= d->limit && d->list.len)) {
    Diag *spare = arena_new(d->arena, Diag); /* counted, not kept: callers may still fill it */
    *spare = g;
    return spare;
  }
  vec_push(d->arena, &d->list, g);
  return &d->list.data[d->list.len - 1];
}

void diag_other(Diags *d, Diag *g, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  g->other = loc;
  g->other_text = arena_vprintf(d->arena, fmt, ap);
  va_end(ap);
}

void diag_fix(Diags *d, Diag *g, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  g->fix = arena_vprintf(d->arena, fmt, ap);
  va_end(ap);
}

bool diag_told(const Diags *d, DiagCode code, const Loc *at) {
  for (uint32_t i = 0; i < d->list.len; i++) {
    const Diag *g = &d->list.data[i];
    if (g->code == code && (!at || !memcmp(&g->loc, at, sizeof *at))) return true;
  }
  return false;
}

int diag_number(DiagCode code) { return info[code].number; }
const char *diag_title(DiagCode code) { return info[code].title; }
Severity diag_severity(DiagCode code) { return info[code].severity; }
