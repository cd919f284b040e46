/* text.c - string builder. The only caller of vsnprintf in the core. */
#include "base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_init(Text *t, Arena *a) { *t = (Text){a, NULL, 0, 0}; }

static void reserve(Text *t, size_t more) {
  if (t->len + more + 1 <= t->cap) return;
  size_t cap = t->cap ? t->cap * 2 : 128;
  if (cap < t->len + more + 1) cap = t->len + more + 1;
  char *p = arena_alloc(t->arena, cap, 1);
  if (t->len) memcpy(p, t->data, t->len);
  t->data = p;
  t->cap = cap;
}

void text_putn(Text *t, const char *s, size_t n) {
  reserve(t, n);
  memcpy(t->data + t->len, s, n);
  t->len += n;
}

void text_put(Text *t, const char *s) { text_putn(t, s, strlen(s)); }

void text_vprintf(Text *t, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  char small[256];
  int n = vsnprintf(small, sizeof small, fmt, ap);
  if (n >= 0 && (size_t)n < sizeof small) {
    text_putn(t, small, (size_t)n);
  } else if (n > 0) {
    reserve(t, (size_t)n);
    vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
    t->len += (size_t)n;
  }
  va_end(again);
}

void text_printf(Text *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  text_vprintf(t, fmt, ap);
  va_end(ap);
}

void text_double(Text *t, double v) {
  char s[40];
  if (isnan(v)) {
    text_put(t, "nan");
    return;
  }
  if (isinf(v)) {
    text_put(t, v < 0 ? "-inf" : "inf");
    return;
  }
  snprintf(s, sizeof s, "%.1f", fabs(v) < 1e7 ? v : 0.0); /* 100.0 rather than 1e+02 */
  for (int digits = 1; digits <= 17 && strtod(s, NULL) != v; digits++) snprintf(s, sizeof s, "%.*g", digits, v);
  text_put(t, s);
  if (!strpbrk(s, ".e")) text_put(t, ".0");
}

const char *text_str(Text *t) {
  reserve(t, 0);
  t->data[t->len] = 0;
  return t->data;
}

void text_json(Text *t, const char *s) {
  text_put(t, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') text_printf(t, "\\%c", c);
    else if (c == '\n') text_put(t, "\\n");
    else if (c == '\t') text_put(t, "\\t");
    else if (c < 0x20) text_printf(t, "\\u%04x", c);
    else text_putn(t, s, 1);
  }
  text_put(t, "\"");
}
