/* json.c - the IR as JSON, for readers outside of the core: one object a statement, names for variables and buffers.
 *
 *   expression  [op, dtype, operand...]: "const" with a number ("inf", "-inf", "nan" as strings), "var" with a name,
 *               "load" with a buffer and its indices, "cast", "bits", "select", "neg", or a spelling of exprs.def
 *   region      {"buf":name,"off":[expression],"ext":[expression]}
 *   statement   {"kind":…,"at":[file,line,column],…}: "op" has "name", "in", "out", "attrs"; the rest as the fields of
 *               IrStmt are called
 *   module      {"files","kernel","level","stage","cores","params":[name],"bufs","vars","grid":[[name,expression]],
 *               "vid","body"}; files are counted from 1 */
#include "ir.h"

#include <math.h>

static const struct { const char *spelling; } ops[EX_COUNT] = {
    [EX_INT] = {"const"}, [EX_FLOAT] = {"const"}, [EX_VAR] = {"var"},       [EX_LOAD] = {"load"},
    [EX_CAST] = {"cast"}, [EX_BITS] = {"bits"},   [EX_SELECT] = {"select"},
#define EXPR(id, spelling, arity, kind, prec, result) [EX_##id] = {spelling},
#include "exprs.def"
#undef EXPR
};

static void put_expr(Text *t, const IrExpr *e) {
  text_printf(t, "[\"%s\",\"%s\"", e->op == EX_NEG ? "neg" : ops[e->op].spelling, dtype_info[e->type].name);
  switch (e->op) {
  case EX_INT:
    if (e->type == DT_U64) text_printf(t, ",%llu", (unsigned long long)e->i);
    else text_printf(t, ",%lld", (long long)e->i);
    break;
  case EX_FLOAT:
    text_put(t, isfinite(e->f) ? "," : ",\"");
    text_double(t, e->f);
    if (!isfinite(e->f)) text_put(t, "\"");
    break;
  case EX_VAR: text_printf(t, ",\"%s\"", e->var->name); break;
  case EX_LOAD:
    text_printf(t, ",\"%s\"", e->buf->name);
    for (int i = 0; i < e->n; i++) {
      text_put(t, ",");
      put_expr(t, e->idx[i]);
    }
    break;
  default:
    for (int i = 0; i < e->n; i++) {
      text_put(t, ",");
      put_expr(t, e->arg[i]);
    }
  }
  text_put(t, "]");
}

static void put_list(Text *t, IrExpr *const *list, int n) {
  text_put(t, "[");
  for (int i = 0; i < n; i++) {
    if (i) text_put(t, ",");
    put_expr(t, list[i]);
  }
  text_put(t, "]");
}

static void key(Text *t, const char *name) { text_printf(t, ",\"%s\":", name); }

static void put_field(Text *t, const char *name, const IrExpr *e) {
  key(t, name);
  if (e) put_expr(t, e);
  else text_put(t, "null");
}

static void put_name(Text *t, const char *name, const char *value) {
  key(t, name);
  if (value) text_json(t, value);
  else text_put(t, "null");
}

static void put_arg(Text *t, const IrArg *a) {
  if (a->kind == ARG_SCALAR) {
    put_expr(t, a->scalar);
    return;
  }
  text_printf(t, "{\"buf\":\"%s\",\"off\":", a->region.buf->name);
  put_list(t, a->region.off, a->region.buf->rank);
  text_put(t, ",\"ext\":");
  put_list(t, a->region.ext, a->region.buf->rank);
  text_put(t, "}");
}

static void put_attrs(Text *t, const IrStmt *s) {
  text_put(t, ",\"attrs\":{");
  for (int i = 0; i < s->n_attrs; i++) {
    const struct AttrInfo *info = &attr_info[s->attrs[i].key];
    const IrExpr *v = s->attrs[i].value;
    text_printf(t, "%s\"%s\":", i ? "," : "", info->name);
    if (info->value == 'f') text_put(t, "true");
    else if (info->value == 'i') text_printf(t, "%lld", (long long)v->i);
    else if (info->value == 'm') text_printf(t, "\"%s\"", cast_name[v->i]);
    else if (info->value == 'c') text_printf(t, "\"%s\"", cmp_name[v->i]);
    else put_expr(t, v);
  }
  text_put(t, "}");
}

static void put_op(Text *t, const IrStmt *s) {
  put_name(t, "name", op_info[s->op].name);
  int n_in = ir_n_in(s->op);
  for (int i = 0; i <= s->n_args; i++) {
    if (i == 0) text_put(t, ",\"in\":[");
    if (i == n_in) text_put(t, "],\"out\":[");
    if (i == s->n_args) break;
    if (i && i != n_in) text_put(t, ",");
    put_arg(t, &s->args[i]);
  }
  text_put(t, "]");
  put_attrs(t, s);
}

static void put_block(Text *t, const char *name, const IrBlock *b);

static const char *const kinds[ST_COUNT] = {
    [ST_ALLOC] = "alloc",       [ST_LET] = "let",         [ST_VAR] = "var",           [ST_ASSIGN] = "assign",
    [ST_STORE] = "store",       [ST_FOR] = "for",         [ST_PARALLEL] = "parallel", [ST_IF] = "if",
    [ST_WHILE] = "while",       [ST_CUBE] = "cube",       [ST_VECTOR] = "vector",     [ST_SET_FLAG] = "set_flag",
    [ST_WAIT_FLAG] = "wait_flag", [ST_BARRIER] = "barrier", [ST_CROSS_SET] = "cross_set",
    [ST_CROSS_WAIT] = "cross_wait", [ST_SYNC_ALL] = "sync_all", [ST_BREAK] = "break", [ST_CONTINUE] = "continue",
    [ST_PRINT] = "print",       [ST_ASSERT] = "assert"};

static void put_say(Text *t, const IrStmt *s) {
  static const char *const when[] = {"here", "before", "after"};
  put_name(t, "text", s->say.text);
  put_name(t, "when", when[s->say.when]);
  if (s->say.only) put_field(t, "only", s->say.only);
  put_field(t, "cond", s->say.cond);
  key(t, "args");
  text_put(t, "[");
  for (int i = 0; i < s->say.n; i++) {
    if (i) text_put(t, ",");
    put_arg(t, &s->say.arg[i]);
  }
  text_put(t, "]");
}

static void put_sync(Text *t, const IrStmt *s) {
  put_name(t, "src", s->sync.src < PIPE_COUNT ? pipe_info[s->sync.src].name : NULL);
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) put_name(t, "dst", pipe_info[s->sync.dst].name);
  put_field(t, "id", s->sync.id);
  text_printf(t, ",\"mode\":%d", s->op == ST_CROSS_SET ? s->sync.mode : 0);
}

static void put_stmt(Text *t, const IrStmt *s) {
  text_printf(t, "{\"kind\":\"%s\",\"at\":[%u,%u,%u]", ir_is_op(s) ? "op" : kinds[s->op], s->loc.file, s->loc.line,
              s->loc.col);
  switch (s->op) {
  case ST_ALLOC: put_name(t, "buf", s->alloc.buf->name); break;
  case ST_LET:
  case ST_VAR:
  case ST_ASSIGN:
    put_name(t, "var", s->set.var->name);
    put_field(t, "value", s->set.value);
    break;
  case ST_STORE:
    put_name(t, "buf", s->store.buf->name);
    key(t, "idx");
    put_list(t, s->store.idx, s->store.buf->rank);
    put_field(t, "value", s->store.value);
    text_printf(t, ",\"accumulate\":%s", s->store.accumulate ? "true" : "false");
    if (s->store.atomic) text_put(t, ",\"atomic\":true");
    break;
  case ST_FOR:
    put_name(t, "var", s->loop.var->name);
    put_field(t, "lo", s->loop.lo);
    put_field(t, "hi", s->loop.hi);
    put_field(t, "step", s->loop.step);
    text_printf(t, ",\"stages\":%d", s->loop.stages);
    break;
  case ST_PARALLEL:
    text_put(t, ",\"vars\":[");
    for (int i = 0; i < s->par.n; i++) text_printf(t, "%s\"%s\"", i ? "," : "", s->par.vars[i]->name);
    text_put(t, "],\"ext\":");
    put_list(t, s->par.ext, s->par.n);
    break;
  case ST_IF:
  case ST_WHILE: put_field(t, "cond", s->test.cond); break;
  default:
    if (ir_is_op(s)) put_op(t, s);
    else if (ir_is_say(s)) put_say(t, s);
    else if (s->op >= ST_SET_FLAG && s->op <= ST_CROSS_WAIT) put_sync(t, s);
  }
  if (ir_has_body(s->op)) put_block(t, "body", &s->body);
  if (s->op == ST_IF) put_block(t, "alt", &s->alt);
  text_put(t, "}");
}

static void put_block(Text *t, const char *name, const IrBlock *b) {
  key(t, name);
  text_put(t, "[");
  for (const IrStmt *s = b->first; s; s = s->next) {
    text_put(t, s == b->first ? "\n" : ",\n");
    put_stmt(t, s);
  }
  text_put(t, "]");
}

static void put_bufs(Text *t, const IrKernel *k) {
  bool any = false;
  text_put(t, ",\n\"bufs\":[");
  for (uint32_t i = 1; i < k->bufs.len; i++) {
    const IrBuf *b = k->bufs.data[i];
    if (!b) continue;
    text_printf(t, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"space\":\"%s\",\"layout\":\"%s\",\"addr\":%lld",
                any ? ",\n" : "", b->name, dtype_info[b->type].name, space_info[b->space].name, layout_name[b->layout],
                (long long)b->addr);
    key(t, "shape");
    put_list(t, b->shape, b->rank);
    put_name(t, "view", b->view ? b->view->name : NULL);
    text_printf(t, ",\"out\":%s,\"workspace\":%s,\"at\":[%u,%u,%u]}", b->is_out ? "true" : "false",
                b->is_work ? "true" : "false", b->loc.file, b->loc.line, b->loc.col);
    any = true;
  }
  text_put(t, "]");
}

static void put_vars(Text *t, const IrKernel *k) {
  bool any = false;
  text_put(t, ",\n\"vars\":[");
  for (uint32_t i = 1; i < k->vars.len; i++) {
    const IrVar *v = k->vars.data[i];
    if (!v) continue;
    text_printf(t, "%s[\"%s\",\"%s\"]", any ? "," : "", v->name, dtype_info[v->type].name);
    any = true;
  }
  text_put(t, "]");
}

void ir_json(Text *t, const IrModule *m) {
  static const char *const cores[] = {NULL, "cube", "vector", "mix"};
  const IrKernel *k = m->kernel;
  text_put(t, "{\"files\":[");
  for (uint32_t i = 1; i < m->files.len; i++) {
    if (i > 1) text_put(t, ",");
    text_json(t, m->files.data[i]);
  }
  text_put(t, "]");
  put_name(t, "kernel", k->name);
  put_name(t, "level", k->level == LEVEL_SOURCE ? "source" : "lowered");
  put_name(t, "stage", k->stage);
  put_name(t, "cores", cores[k->cores]);
  text_put(t, ",\n\"params\":[");
  for (uint32_t i = 0; i < k->params.len; i++)
    text_printf(t, "%s\"%s\"", i ? "," : "",
                k->params.data[i].buf ? k->params.data[i].buf->name : k->params.data[i].var->name);
  text_put(t, "]");
  put_bufs(t, k);
  put_vars(t, k);
  text_put(t, ",\n\"grid\":[");
  for (uint32_t i = 0; i < k->grid.len; i++) {
    text_printf(t, "%s[\"%s\",", i ? "," : "", k->grid.data[i]->name);
    put_expr(t, k->grid_ext.data[i]);
    text_put(t, "]");
  }
  text_put(t, "]");
  put_name(t, "vid", k->vid ? k->vid->name : NULL);
  put_block(t, "body", &k->body);
  text_put(t, "}\n");
}
