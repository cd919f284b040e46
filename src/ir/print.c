/* print.c - IR to canonical text; reading it back gives the same IR. */
#include "ir.h"

#include <string.h>

static const struct { const char *spelling; char kind; int prec; } expr_ops[EX_COUNT] = {
#define EXPR(id, spelling, arity, kind, prec, result) [EX_##id] = {spelling, kind, prec},
#include "exprs.def"
#undef EXPR
};

static IrLevels put_expr(Text *t, const IrExpr *e, int min_prec, bool adopts);

static IrLevels higher(IrLevels a, IrLevels b) {
  return (IrLevels){a.nest > b.nest ? a.nest : b.nest, a.height > b.height ? a.height : b.height};
}

/* Around what stands in brackets: those of a call, of an index, or by themselves. */
static IrLevels around(IrLevels in) { return (IrLevels){in.nest + 2, in.height + 1}; }

/* `adopts`: the reader will give an int or float literal here the right dtype by itself. */
static IrLevels put_literal(Text *t, const IrExpr *e, bool adopts) {
  static const IrLevels leaf = {1, 1};
  bool is_float = e->op == EX_FLOAT;
  if (e->type == DT_BOOL) {
    text_put(t, e->i ? "true" : "false");
    return leaf;
  }
  bool fits = is_float || e->i == (int32_t)e->i;
  bool plain = e->type == (is_float ? DT_F32 : DT_I32) || (adopts && fits);
  bool big = e->type == DT_I64 && !fits && e->i > 0; /* the reader makes it i64 */
  if (!plain && !big) text_printf(t, "%s(", dtype_info[e->type].name);
  if (is_float) text_double(t, e->f);
  else if (e->type == DT_U64) text_printf(t, "%llu", (unsigned long long)e->i);
  else text_printf(t, "%lld", (long long)e->i);
  if (plain || big) return leaf;
  text_put(t, ")");
  return around(leaf);
}

static bool is_literal(const IrExpr *e) { return e->op == EX_INT || e->op == EX_FLOAT; }

static IrLevels put_list(Text *t, IrExpr *const *e, int n, const bool *adopts) {
  IrLevels in = {0};
  for (int i = 0; i < n; i++) {
    if (i) text_put(t, ", ");
    in = higher(in, put_expr(t, e[i], 0, adopts && adopts[i]));
  }
  return around(in);
}

static IrLevels put_call(Text *t, const char *name, const IrExpr *e, const bool *adopts) {
  text_printf(t, "%s(", name);
  IrLevels l = put_list(t, e->arg, e->n, adopts);
  text_put(t, ")");
  return l;
}

static IrLevels put_in_parens(Text *t, const IrExpr *e) {
  text_put(t, "(");
  IrLevels l = put_expr(t, e, 0, false);
  text_put(t, ")");
  return around(l);
}

static IrLevels put_expr(Text *t, const IrExpr *e, int min_prec, bool adopts) {
  IrLevels l = {1, 1};
  switch (e->op) {
  case EX_INT:
  case EX_FLOAT: return put_literal(t, e, adopts);
  case EX_VAR: text_printf(t, "%%%s", e->var->name); return l;
  case EX_LOAD:
    text_printf(t, "%%%s[", e->buf->name);
    l = put_list(t, e->idx, e->n, NULL);
    text_put(t, "]");
    return l;
  case EX_CAST: return put_call(t, dtype_info[e->type].name, e, NULL);
  case EX_BITS:
    text_printf(t, "bits(%s, ", dtype_info[e->type].name);
    l = put_list(t, e->arg, 1, NULL);
    text_put(t, ")");
    return l;
  case EX_SELECT:
    return put_call(t, "select", e, (bool[]){false, !is_literal(e->arg[2]), !is_literal(e->arg[1])});
  default: break;
  }
  bool adopts_a = e->n == 2 && !is_literal(e->arg[1]), adopts_b = e->n == 2 && !is_literal(e->arg[0]);
  if (e->op == EX_SHL || e->op == EX_SHR) adopts_a = false;
  if (e->op == EX_LAND || e->op == EX_LOR) adopts_a = adopts_b = false;
  int prec = expr_ops[e->op].prec;
  if (expr_ops[e->op].kind == 'c') return put_call(t, expr_ops[e->op].spelling, e, (bool[]){adopts_a, adopts_b});
  if (expr_ops[e->op].kind == 'p') {
    text_put(t, expr_ops[e->op].spelling);
    bool wrap = is_literal(e->arg[0]); /* -(3) would fold */
    l = wrap ? put_in_parens(t, e->arg[0]) : put_expr(t, e->arg[0], 11, false);
    return (IrLevels){l.nest + 1, l.height + 1};
  }
  if (prec < min_prec) return put_in_parens(t, e);
  l = put_expr(t, e->arg[0], prec, adopts_a);
  text_printf(t, " %s ", expr_ops[e->op].spelling);
  l = higher(l, put_expr(t, e->arg[1], prec + 1, adopts_b));
  return (IrLevels){l.nest, l.height + 1};
}

IrLevels ir_print_expr(Text *t, const IrExpr *e) {
  IrLevels l = put_expr(t, e, 0, false);
  return (IrLevels){l.nest + 1, l.height};
}

void ir_print_region(Text *t, const IrRegion *r) {
  text_printf(t, "%%%s", r->buf->name);
  if (ir_region_is_whole(r)) return;
  text_put(t, "[");
  for (int d = 0; d < r->buf->rank; d++) {
    if (d) text_put(t, ", ");
    ir_print_expr(t, r->off[d]);
    text_put(t, " +: ");
    ir_print_expr(t, r->ext[d]);
  }
  text_put(t, "]");
}

static void put_shape(Text *t, const IrBuf *b) {
  text_put(t, "[");
  for (int d = 0; d < b->rank; d++) {
    if (d) text_put(t, ", ");
    ir_print_expr(t, b->shape[d]);
  }
  text_put(t, "]");
}

static void put_attrs(Text *t, const IrStmt *s) {
  for (int i = 0; i < s->n_attrs; i++) {
    const struct AttrInfo *info = &attr_info[s->attrs[i].key];
    const IrExpr *v = s->attrs[i].value;
    text_printf(t, " %s", info->name);
    if (info->value == 'f') continue;
    text_put(t, "(");
    if (info->value == 'm') text_put(t, cast_name[v->i]);
    else if (info->value == 'c') text_put(t, cmp_name[v->i]);
    else ir_print_expr(t, v);
    text_put(t, ")");
  }
}

static void put_op(Text *t, const IrStmt *s) {
  text_printf(t, "%s ", op_info[s->op].name);
  int n_in = ir_n_in(s->op);
  for (int i = 0; i < s->n_args; i++) {
    if (i == n_in) text_put(t, n_in ? " -> " : "-> ");
    else if (i) text_put(t, ", ");
    if (s->args[i].kind == ARG_REGION) ir_print_region(t, &s->args[i].region);
    else ir_print_expr(t, s->args[i].scalar);
  }
  put_attrs(t, s);
}

static void put_sync(Text *t, const IrStmt *s) {
  static const char *const word[] = {"set_flag", "wait_flag", "barrier", "cross_set", "cross_wait", "sync_all"};
  text_put(t, word[s->op - ST_SET_FLAG]);
  if (s->op != ST_SYNC_ALL && s->sync.src < PIPE_COUNT) text_printf(t, " %s", pipe_info[s->sync.src].name);
  if (s->op == ST_SET_FLAG || s->op == ST_WAIT_FLAG) text_printf(t, " -> %s", pipe_info[s->sync.dst].name);
  if (s->sync.id) {
    text_put(t, " #");
    ir_print_expr(t, s->sync.id);
  }
  if (s->op == ST_CROSS_SET) text_printf(t, " mode(%d)", s->sync.mode);
}

static void put_text(Text *t, const char *s) {
  text_put(t, "\"");
  for (; *s; s++) {
    if (*s == '\n') text_put(t, "\\n");
    else if (*s == '\t') text_put(t, "\\t");
    else text_printf(t, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
  }
  text_put(t, "\"");
}

static void put_say(Text *t, const IrStmt *s) {
  static const char *const when[] = {"", "before ", "after "};
  text_printf(t, "%s ", s->op == ST_ASSERT ? "assert" : "print");
  if (s->say.only) {
    text_put(t, "if ");
    ir_print_expr(t, s->say.only);
    text_put(t, ", ");
  }
  if (s->say.cond) {
    ir_print_expr(t, s->say.cond);
    text_put(t, ", ");
  }
  text_put(t, when[s->say.when]);
  put_text(t, s->say.text);
  for (int i = 0; i < s->say.n; i++) {
    text_put(t, ", ");
    if (s->say.arg[i].kind == ARG_REGION) ir_print_region(t, &s->say.arg[i].region);
    else ir_print_expr(t, s->say.arg[i].scalar);
  }
}

static void put_head(Text *t, const IrStmt *s) {
  switch (s->op) {
  case ST_ALLOC: {
    const IrBuf *b = s->alloc.buf;
    text_printf(t, "alloc %%%s: %s %s", b->name, space_info[b->space].name, dtype_info[b->type].name);
    put_shape(t, b);
    if (b->layout != LAYOUT_ND) text_printf(t, " %s", layout_name[b->layout]);
    if (b->view) text_printf(t, " view(%%%s)", b->view->name);
    if (b->addr >= 0) text_printf(t, " at %lld", (long long)b->addr);
    break;
  }
  case ST_LET:
  case ST_VAR:
    text_printf(t, "%s %%%s: %s = ", s->op == ST_LET ? "let" : "var", s->set.var->name,
                dtype_info[s->set.var->type].name);
    put_expr(t, s->set.value, 0, false);
    break;
  case ST_ASSIGN:
    text_printf(t, "%%%s = ", s->set.var->name);
    put_expr(t, s->set.value, 0, false);
    break;
  case ST_STORE:
    text_printf(t, "%%%s[", s->store.buf->name);
    for (int i = 0; i < s->store.buf->rank; i++) {
      if (i) text_put(t, ", ");
      ir_print_expr(t, s->store.idx[i]);
    }
    text_put(t, s->store.accumulate ? "] += " : "] = ");
    put_expr(t, s->store.value, 0, false);
    if (s->store.atomic) text_put(t, " atomic");
    break;
  case ST_FOR:
    text_printf(t, "for %%%s in ", s->loop.var->name);
    ir_print_expr(t, s->loop.lo);
    text_put(t, "..");
    ir_print_expr(t, s->loop.hi);
    if (!ir_is_int(s->loop.step, 1)) {
      text_put(t, " step ");
      ir_print_expr(t, s->loop.step);
    }
    if (s->loop.stages) text_printf(t, " pipeline(%d)", s->loop.stages);
    if (s->loop.stages && s->loop.ordered) text_put(t, " ordered");
    break;
  case ST_PARALLEL:
    text_put(t, "parallel ");
    for (int i = 0; i < s->par.n; i++) {
      text_printf(t, "%s%%%s: ", i ? ", " : "", s->par.vars[i]->name);
      ir_print_expr(t, s->par.ext[i]);
    }
    break;
  case ST_IF:
  case ST_WHILE:
    text_put(t, s->op == ST_IF ? "if " : "while ");
    ir_print_expr(t, s->test.cond);
    break;
  case ST_CUBE: text_put(t, "cube"); break;
  case ST_VECTOR: text_put(t, "vector"); break;
  case ST_BREAK: text_put(t, "break"); break;
  case ST_CONTINUE: text_put(t, "continue"); break;
  case ST_PRINT:
  case ST_ASSERT: put_say(t, s); break;
  default:
    if (ir_is_op(s)) put_op(t, s);
    else put_sync(t, s);
  }
}

void ir_print_stmt(Text *t, const IrKernel *k, const IrStmt *s) {
  (void)k;
  put_head(t, s);
}

static void put_loc(Text *t, Loc loc) {
  if (!loc.file) return;
  if (loc.file == 1) text_printf(t, " @%u:%u", loc.line, loc.col);
  else text_printf(t, " @%u:%u:%u", loc.file, loc.line, loc.col);
}

static void put_block(Text *t, const IrBlock *b, int indent) {
  for (const IrStmt *s = b->first; s; s = s->next) {
    text_printf(t, "%*s", indent, "");
    put_head(t, s);
    if (ir_has_body(s->op)) {
      text_put(t, " {\n");
      put_block(t, &s->body, indent + 2);
      text_printf(t, "%*s}", indent, "");
      if (s->alt.first) {
        text_put(t, " else {\n");
        put_block(t, &s->alt, indent + 2);
        text_printf(t, "%*s}", indent, "");
      }
    }
    put_loc(t, s->loc);
    text_put(t, "\n");
  }
}

static void put_params(Text *t, const IrKernel *k) {
  for (uint32_t i = 0; i < k->params.len; i++) {
    if (i) text_put(t, ", ");
    const IrBuf *b = k->params.data[i].buf;
    const IrVar *v = k->params.data[i].var;
    if (v) {
      text_printf(t, "%%%s: %s", v->name, dtype_info[v->type].name);
      continue;
    }
    text_printf(t, "%%%s: gm %s", b->name, dtype_info[b->type].name);
    put_shape(t, b);
    if (b->is_out) text_put(t, " out");
    if (b->is_work) text_put(t, " workspace");
  }
}

void ir_print(Text *t, const IrModule *m) {
  static const char *const cores[] = {"cube", "cube", "vector", "mix"};
  const IrKernel *k = m->kernel;
  text_put(t, "tl 1\n");
  for (uint32_t i = 1; i < m->files.len; i++) {
    text_put(t, "file ");
    put_text(t, m->files.data[i]);
    text_put(t, "\n");
  }
  text_printf(t, "kernel @%s(", k->name);
  put_params(t, k);
  text_put(t, ") grid(");
  for (uint32_t i = 0; i < k->grid.len; i++) {
    text_printf(t, "%s%%%s: ", i ? ", " : "", k->grid.data[i]->name);
    ir_print_expr(t, k->grid_ext.data[i]);
  }
  text_put(t, ")");
  if (k->vid) text_printf(t, " vid(%%%s)", k->vid->name);
  if (k->stage && k->level == LEVEL_SOURCE) {
    text_printf(t, " after(\"%s\"", k->stage);
    if (k->cores) text_printf(t, ", %s", cores[k->cores]);
    text_put(t, ")");
  }
  if (k->level == LEVEL_LOWERED) text_printf(t, " lowered(\"%s\", %s)", k->chip, cores[k->cores]);
  text_put(t, " {\n");
  put_block(t, &k->body, 2);
  text_put(t, "}");
  put_loc(t, k->loc);
  text_put(t, "\n");
}

const char *ir_loc_str(Arena *a, const IrModule *m, Loc loc) {
  if (!loc.line) return "?";
  const char *file = loc.file < m->files.len ? m->files.data[loc.file] : "?";
  const char *slash = strrchr(file, '/');
  return arena_printf(a, "%s:%u:%u", slash ? slash + 1 : file, loc.line, loc.col);
}
