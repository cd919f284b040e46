/* print_ascendc.c - print and assert as printf, DumpTensor and assert of the toolkit
 * (kernel_operator_dump_tensor_intf.h). What was issued before is done first; nothing else changes. */
#include "ascendc.h"

#include <string.h>

/* `from` up to `to` as a string of C. */
static const char *c_text(CWriter *w, const char *from, const char *to) {
  Text t;
  text_init(&t, w->arena);
  for (; from < to; from++) {
    if (*from == '\n') text_put(&t, "\\n");
    else if (*from == '\t') text_put(&t, "\\t");
    else text_printf(&t, "%s%c", *from == '"' || *from == '\\' ? "\\" : "", *from);
  }
  return text_str(&t);
}

static void print_piece(CWriter *w, const char *from, const char *to, const Text *values) {
  if (from == to) return;
  cw_line(w, "AscendC::printf(\"%s\"%s);", c_text(w, from, to), text_str((Text *)values));
}

static void dump(CWriter *w, const IrStmt *s, const IrRegion *r, const IrExpr *most) {
  IrRows rows;
  bool run = r->buf->layout == LAYOUT_ND && ir_rows(w->k, r, &rows) && ir_is_int(rows.rows, 1);
  const IrExpr *off = run ? cw_offset(w, r->buf, (IrExpr *const *)r->off) : ir_i32(w->k, 0);
  const IrExpr *n = most ? most : ir_count(w->k, r);
  if (!run) cw_line(w, "// not one run of elements: from the start of the buffer, as it lies in memory");
  cw_line(w, "DumpTensor(%s%s, %u, %s);", w->buf_name[r->buf->id],
          ir_is_const(off) && !off->i ? "" : arena_printf(w->arena, "[%s]", cw_str(w, off)), s->loc.line, cw_str(w, n));
}

static void put_say(CWriter *w, const IrStmt *s) {
  const char *from = s->say.text, *at = from;
  IrSpec spec;
  Text values;
  if (s->op == ST_ASSERT) cw_open(w, "if (!(%s))", cw_str(w, s->say.cond));
  text_init(&values, w->arena);
  for (int n = 0; ir_next_spec(&at, &spec) && n < s->say.n; n++) {
    if (spec.conv != 't') {
      text_printf(&values, ", %s", cw_str(w, s->say.arg[n].scalar));
      continue;
    }
    print_piece(w, from, spec.at, &values);
    text_init(&values, w->arena);
    from = at;
    const IrExpr *most = spec.count ? s->say.arg[n++].scalar : NULL;
    dump(w, s, &s->say.arg[n].region, most);
  }
  print_piece(w, from, from + strlen(from), &values);
  if (s->op != ST_ASSERT) return;
  cw_close(w);
  cw_line(w, "assert(%s);", cw_str(w, s->say.cond));
}

void ac_say(CWriter *w, const IrStmt *s) {
  if (s->say.when) {
    cw_line(w, "// a print %s the launch is the host's", s->say.when == SAY_BEFORE ? "before" : "after");
    return;
  }
  cw_line(w, "PipeBarrier<PIPE_ALL>();");
  if (s->say.only) cw_open(w, "if (%s)", cw_str(w, s->say.only));
  put_say(w, s);
  if (s->say.only) cw_close(w);
}
