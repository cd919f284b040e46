/* launch.c - what a caller of a written kernel must know: the parameters of its host entry `call` in their order, the
 * C types they have there, and the sizes as C expressions of the scalars. The writers print the same types. */
#include "cwriter.h"

const char *cw_launch_type(const CParam *p) {
  if (p->p->buf) return "uint8_t *";
  if (p->is_size) return "int64_t";
  DType t = p->p->var->type;
  return dtype_is_float(t) ? "float" : t == DT_BOOL ? "uint8_t" : cw_type(t);
}

/* A size on the host: 64 bits wide. */
static const char *size(CWriter *w, const IrExpr *e) {
  const char *s = cw_atom(w, e);
  return cw_has_size(w, e) || ir_is_const(e) ? s : arena_printf(w->arena, "(int64_t)%s", s);
}

static const char *product(CWriter *w, IrExpr *const *e, int n) {
  Text t;
  text_init(&t, w->arena);
  for (int i = 0; i < n; i++)
    text_printf(&t, "%s%s", i ? " * " : ir_is_const(e[0]) ? "(int64_t)" : "", size(w, e[i]));
  return n ? text_str(&t) : "1";
}

int target_launch(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, LaunchParam **out, const char **blocks) {
  /* names that the code around the launch uses itself */
  static const char *const taken[] = {"call", "stream", "slot", "bytes", "restrict", NULL};
  static const CDialect host = {.title = "the launch", .names = taken, .func_prefix = ""};
  CWriter w;
  CParam *p;
  cw_init(&w, a, d, k, arch, &host);
  w.host = true;
  int n = cw_params(&w, &p);
  LaunchParam *list = arena_array(a, LaunchParam, n + 1);
  for (int i = 0; i < n; i++) {
    const IrBuf *b = p[i].p->buf;
    LaunchParam *q = &list[i];
    *q = (LaunchParam){.param = p[i].p, .type = cw_launch_type(&p[i]),
                       .name = b ? w.buf_name[b->id] : w.var_name[p[i].p->var->id]};
    while (&k->params.data[q->index] != p[i].p) q->index++;
    if (!b) continue;
    q->extent = arena_array(a, const char *, b->rank + 1);
    for (int r = 0; r < b->rank; r++) q->extent[r] = size(&w, b->shape[r]);
    q->elements = product(&w, b->shape, b->rank);
  }
  *blocks = product(&w, k->grid_ext.data, (int)k->grid_ext.len);
  *out = list;
  return w.failed ? -1 : n;
}
