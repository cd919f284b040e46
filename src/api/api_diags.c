/* api_diags.c - diagnostics as text, with the source line below them, and as JSON. */
#include "api/api.h"

#include <string.h>

/* ---- diagnostics ------------------------------------------------------------------------------------------ */

static const char *const severity_name[] = {"note", "warning", "error"};

int tl_error_count(TlContext *c) { return (int)c->diags.n_errors + c->no_memory; }

void tl_diags_clear(TlContext *c) {
  diags_init(&c->diags, &c->arena);
  c->no_memory = false;
}

const char *api_file_of(const TlContext *c, Loc loc) {
  if (!loc.file || !c->module || loc.file >= c->module->files.len) return c->name;
  return c->module->files.data[loc.file];
}

int tl_printed_at(TlContext *c, int i, TlPrinted *out) {
  if (i < 0 || (uint32_t)i >= c->ran.said.len) return 0;
  const SimSaid *s = &c->ran.said.data[i];
  *out = (TlPrinted){s->block, api_file_of(c, s->loc), (int)s->loc.line, s->loc.col, s->where, s->text};
  return 1;
}

static void put_place(const TlContext *c, Text *t, Loc loc) {
  text_put(t, api_file_of(c, loc));
  if (loc.line) text_printf(t, ":%u:%u", loc.line, loc.col);
}

/* The line of the .tl text with a caret below its column. */
static void put_source(const TlContext *c, Text *t, Loc loc) {
  if (loc.file || !loc.line) return;
  const char *s = c->text, *end = c->text + c->len;
  for (uint32_t line = 1; line < loc.line && s < end; line++) {
    const char *n = memchr(s, '\n', (size_t)(end - s));
    s = n ? n + 1 : end;
  }
  const char *n = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;
  size_t len = (size_t)((n ? n : end) - s), col = loc.col ? loc.col - 1u : 0;
  if (!len || len > 400 || col > len) return; /* a longer line hides the place more than it shows it */
  text_put(t, "    ");
  for (size_t i = 0; i < len; i++) text_putn(t, (unsigned char)s[i] < ' ' ? " " : s + i, 1);
  text_printf(t, "\n    %*s^\n", (int)col, "");
}

static void put_diag(const TlContext *c, Text *t, const Diag *g) {
  put_place(c, t, g->loc);
  text_printf(t, ": %s TL%04d: %s\n", severity_name[g->severity], diag_number(g->code), g->text);
  put_source(c, t, g->loc);
  if (g->other_text) {
    text_put(t, "  see ");
    put_place(c, t, g->other);
    text_printf(t, ": %s\n", g->other_text);
    put_source(c, t, g->other);
  }
  if (g->fix) text_printf(t, "  fix: %s\n", g->fix);
}

static uint32_t errors_kept(const TlContext *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->diags.list.len; i++) n += c->diags.list.data[i].severity == SEV_ERROR;
  return n;
}

const char *tl_diags_text(TlContext *c) {
  static const char no_memory[] = "error TL0001: out of host memory\n";
  ENTER(c, false, no_memory);
  if (c->no_memory && !c->diags.list.len) return no_memory;
  Text t;
  text_init(&t, &c->arena);
  for (uint32_t i = 0; i < c->diags.list.len; i++) put_diag(c, &t, &c->diags.list.data[i]);
  if (c->diags.n_errors > errors_kept(c)) text_printf(&t, "and %u more errors\n", c->diags.n_errors - errors_kept(c));
  if (c->no_memory) text_put(&t, no_memory);
  return text_str(&t);
}

void api_put_str(Text *t, const char *key, const char *s) {
  text_printf(t, "\"%s\":", key);
  if (s) text_json(t, s);
  else text_put(t, "null");
}

static void json_place(const TlContext *c, Text *t, const char *text, Loc loc) {
  api_put_str(t, "text", text);
  text_put(t, ",");
  api_put_str(t, "file", api_file_of(c, loc));
  text_printf(t, ",\"line\":%u,\"col\":%u", loc.line, loc.col);
}

const char *tl_diags_json(TlContext *c) {
  static const char no_memory[] =
      "[{\"code\":\"TL0001\",\"severity\":\"error\",\"title\":\"out of host memory\",\"text\":\"out of host memory\","
      "\"file\":\"\",\"line\":0,\"col\":0,\"other\":null,\"fix\":null}]\n";
  ENTER(c, false, no_memory);
  if (c->no_memory) return no_memory;
  Text text, *t = &text;
  text_init(t, &c->arena);
  text_put(t, "[");
  for (uint32_t i = 0; i < c->diags.list.len; i++) {
    const Diag *g = &c->diags.list.data[i];
    api_comma(t, i);
    text_printf(t, "{\"code\":\"TL%04d\",\"severity\":\"%s\",", diag_number(g->code), severity_name[g->severity]);
    api_put_str(t, "title", diag_title(g->code));
    text_put(t, ",");
    json_place(c, t, g->text, g->loc);
    text_put(t, ",\"other\":");
    if (g->other_text) {
      text_put(t, "{");
      json_place(c, t, g->other_text, g->other);
      text_put(t, "},");
    } else {
      text_put(t, "null,");
    }
    api_put_str(t, "fix", g->fix);
    text_put(t, "}");
  }
  text_put(t, "]\n");
  return text_str(t);
}
