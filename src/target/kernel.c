/* kernel.c - the file around the statements of a kernel: what must be known of it before they are written, its
 * parameters, tensors and grid, and the host entry `call`. */
#include "cwriter.h"

#include <string.h>

/* ---- before the statements -------------------------------------------------------------------------------------- */

static void mark_load(IrExpr *e, void *user) {
  if (e->op == EX_LOAD) ((bool *)user)[e->buf->id] = true;
}

static void mark_root(IrExpr **e, void *user) {
  if (*e) ir_walk_expr(*e, mark_load, user);
}

static bool mark_used(const IrStmt *s, void *user) {
  bool *used = user;
  if (s->op == ST_STORE) used[s->store.buf->id] = true;
  for (int i = 0; i < s->n_args; i++)
    if (s->args[i].kind == ARG_REGION) used[s->args[i].region.buf->id] = true;
  ir_stmt_exprs((IrStmt *)s, mark_root, used);
  return false;
}

/* Has every local buffer that a statement names an address? False after refusing. */
static bool placed(CWriter *w) {
  bool *used = arena_array(w->arena, bool, w->k->bufs.len + 1), ok = true;
  cw_scans(&w->k->body, mark_used, used);
  for (uint32_t i = 1; i < w->k->bufs.len; i++) {
    const IrBuf *b = w->k->bufs.data[i];
    if (b->space == SPACE_GM || b->addr >= 0 || !used[i]) continue;
    cw_refuse(w, DIAG_EMIT_LEVEL, "run the memplan pass", "buffer %s has no address", b->name);
    ok = false;
  }
  return ok;
}

static bool find_writes(const IrStmt *s, void *user) {
  bool *written = user;
  if (s->op == ST_STORE) written[ir_root(s->store.buf)->id] = true;
  if (ir_is_op(s))
    for (int i = ir_n_in(s->op); i < s->n_args; i++)
      if (s->args[i].kind == ARG_REGION) written[ir_root(s->args[i].region.buf)->id] = true;
  return false;
}

static bool is_cross(const IrStmt *s, void *user) {
  (void)user;
  return s->op == ST_CROSS_SET || s->op == ST_CROSS_WAIT || s->op == ST_SYNC_ALL;
}

int cw_params(CWriter *w, CParam **out) {
  int n = 0, total = (int)w->k->params.len;
  CParam *p = arena_array(w->arena, CParam, total + 1);
  for (int sizes = 0; sizes < 2; sizes++)
    for (int i = 0; i < total; i++) {
      const IrParam *q = &w->k->params.data[i];
      bool is_size = q->var && cw_is_size(w, q->var);
      if (is_size == (sizes == 1)) p[n++] = (CParam){q, is_size};
    }
  *out = p;
  return n;
}

bool cw_begin(CWriter *w, Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const CDialect *dialect) {
  if (k->level != LEVEL_LOWERED) {
    Diag *g = diag_add(d, DIAG_EMIT_LEVEL, k->loc, "%s: kernel %s has not been lowered", dialect->title, k->name);
    diag_fix(d, g, "run the passes first");
    return false;
  }
  cw_init(w, a, d, k, arch, dialect);
  w->gm_written = arena_array(a, bool, k->bufs.len + 1);
  if (!placed(w)) return false;
  cw_scans(&k->body, find_writes, w->gm_written);
  w->crosses = cw_scans(&k->body, is_cross, NULL);
  w->mix = w->crosses || k->cores == CORES_MIX;
  w->n_params = cw_params(w, &w->params);
  return true;
}

/* ---- parameters, tensors, grid ---------------------------------------------------------------------------------- */

static const char *param_name(CWriter *w, const CParam *p) {
  if (p->p->buf) return cw_fmt(w, "%s_gm", w->buf_name[p->p->buf->id]);
  DType t = p->p->var->type;
  bool converted = !p->is_size && (t == DT_F16 || t == DT_BF16 || t == DT_BOOL);
  return cw_fmt(w, "%s%s", w->var_name[p->p->var->id], converted ? "_in" : "");
}

void cw_kernel_params(CWriter *w, Text *t, const char *pointer) {
  const CParam *p = w->params;
  for (int i = 0; i < w->n_params; i++)
    text_printf(t, "%s%s%s", i ? ", " : "", p[i].p->buf ? pointer : cw_fmt(w, "%s ", cw_launch_type(&p[i])),
                param_name(w, &p[i]));
}

void cw_kernel_tensors(CWriter *w) {
  for (int i = 0; i < w->n_params; i++) {
    const CParam *p = &w->params[i];
    const IrBuf *b = p->p->buf;
    const char *name = param_name(w, p);
    if (b) {
      w->dialect->tensor(w, b, name);
      for (uint32_t j = 1; j < w->k->bufs.len; j++) { /* and its views */
        const IrBuf *view = w->k->bufs.data[j];
        if (view->view && ir_root((IrBuf *)view) == b) w->dialect->tensor(w, view, name);
      }
    } else if (!p->is_size && strcmp(name, w->var_name[p->p->var->id])) {
      const IrVar *v = p->p->var;
      const char *conv = v->type == DT_BF16 ? w->dialect->bf16_from_float : cw_fmt(w, "(%s)", cw_type(v->type));
      cw_line(w, "const %s %s = %s(%s);", cw_type(v->type), w->var_name[v->id], conv, name);
    }
  }
}

void cw_kernel_grid(CWriter *w, const char *block, const char *sub_block) {
  const IrKernel *k = w->k;
  Text before;
  text_init(&before, w->arena);
  for (uint32_t i = 0; i < k->grid.len; i++) {
    const IrVar *v = k->grid.data[i];
    const char *ext = cw_atom(w, k->grid_ext.data[i]);
    bool last = i + 1 == k->grid.len;
    cw_line(w, "const %s %s = %s%s%s%s;", cw_type(v->type), w->var_name[v->id], block, text_str(&before),
            last ? "" : " % ", last ? "" : ext);
    text_printf(&before, " / %s", ext);
  }
  if (k->vid) cw_line(w, "const %s %s = %s;", cw_type(k->vid->type), w->var_name[k->vid->id], sub_block);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

void cw_header(CWriter *w, Text *t, const char *includes) {
  const IrModule *m = w->k->module;
  text_printf(t, "// %s: %s for %s.", w->k->name, w->dialect->title, w->arch->name);
  for (uint32_t i = 1; i < m->files.len; i++)
    text_printf(t, "%s%s", i == 1 ? " From " : ", ", cw_file(w, (Loc){1, 1, (uint16_t)i}));
  if (m->files.len > 1) text_put(t, ".");
  text_printf(t, "\n%s", includes);
}

void cw_put_helpers(CWriter *w, Text *t, const CHelper *own, int n_own) {
  for (int i = 0; i < HELP_SHARED + n_own; i++) {
    if (!(w->helpers >> i & 1)) continue;
    text_put(t, "\n");
    if (i < HELP_SHARED) {
      for (const char *c = cw_helpers[i].text; *c; c++) {
        if (c[0] == '%' && c[1] == 's') text_put(t, w->dialect->func_prefix), c++;
        else if (c[0] == '%' && c[1] == '%') text_put(t, "%"), c++;
        else text_putn(t, c, 1);
      }
    } else {
      text_put(t, own[i - HELP_SHARED].text);
    }
  }
}

void cw_host_part(CWriter *w, Text *t) {
  const IrKernel *k = w->k;
  int n = w->n_params;
  w->host = true;
  w->at = NULL;
  text_printf(t, "\n#ifndef %s\n#include \"acl/acl.h\"\n", w->dialect->no_host);
  if (w->mix) text_put(t, "extern \"C\" int32_t rtGetC2cCtrlAddr(uint64_t *addr, uint32_t *len);\n");
  text_put(t, "\nextern \"C\" void call(");
  cw_kernel_params(w, t, "uint8_t *");
  text_printf(t, "%saclrtStream stream)\n{\n  const int64_t blocks = ", n ? ", " : "");
  if (!k->grid.len) text_put(t, "1");
  for (uint32_t i = 0; i < k->grid.len; i++) {
    bool wide = cw_has_size(w, k->grid_ext.data[i]); /* already 64 bits */
    text_printf(t, "%s%s%s", i ? " * " : "", wide || i || ir_is_const(k->grid_ext.data[i]) ? "" : "(int64_t)",
                k->grid.len > 1 ? cw_atom(w, k->grid_ext.data[i]) : cw_str(w, k->grid_ext.data[i]));
  }
  text_put(t, ";\n  if (blocks <= 0) {\n    return;\n  }\n");
  if (w->mix)
    text_put(t, "  uint64_t ffts = 0;\n  uint32_t ffts_bytes = 0;\n  rtGetC2cCtrlAddr(&ffts, &ffts_bytes);\n");
  text_printf(t, "  %s_kernel<<<(uint32_t)blocks, nullptr, stream>>>(", k->name);
  for (int i = 0; i < n; i++) text_printf(t, "%s%s", i ? ", " : "", param_name(w, &w->params[i]));
  if (w->mix) text_printf(t, "%sffts", n ? ", " : "");
  text_put(t, ");\n}\n#endif\n");
}
