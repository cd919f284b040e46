/* cwriter.c - see cwriter.h.
 *
 * Scalars: an IR expression has one dtype per node, C++ promotes. Types narrower than int are cast back after each
 * operation; f16 and bf16 are computed as float and rounded after each operation, which is exactly the narrow result.
 * Symbolic sizes are int64_t in C++ whatever their IR dtype, so that offsets made of them do not overflow.
 *
 * Names: IR names become C++ identifiers once, at the start; the same program always gets the same names. */
#include "cwriter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const CHelper cw_helpers[HELP_SHARED] = {
    [HELP_MIN] = {"MinOf", "template <typename A, typename B>\n%s auto MinOf(A a, B b) -> decltype(a + b)\n{\n"
                           "  return a < b ? a : b;\n}\n"},
    [HELP_MAX] = {"MaxOf", "template <typename A, typename B>\n%s auto MaxOf(A a, B b) -> decltype(a + b)\n{\n"
                           "  return a > b ? a : b;\n}\n"},
    [HELP_FLOOR_DIV] = {"FloorDiv",
                        "template <typename A, typename B>\n%s auto FloorDiv(A a, B b) -> decltype(a + b)\n{\n"
                        "  return a / b - (a %% b != 0 && (a < 0) != (b < 0));\n}\n"},
    [HELP_FLOOR_MOD] = {"FloorMod",
                        "template <typename A, typename B>\n%s auto FloorMod(A a, B b) -> decltype(a + b)\n{\n"
                        "  return a %% b + ((a %% b != 0 && (a < 0) != (b < 0)) ? b : 0);\n}\n"},
    [HELP_ABS] = {"AbsOf", "template <typename T>\n%s T AbsOf(T a)\n{\n  return a < 0 ? -a : a;\n}\n"},
    [HELP_BITS] = {"BitsOf", "template <typename To, typename From>\n%s To BitsOf(From a)\n{\n"
                             "  return *reinterpret_cast<const To *>(&a);\n}\n"},
#define HELPER(id, name, text) [HELP_##id] = {name, text},
#include "scalar.def"
#undef HELPER
};

static const char *const cxx_words[] = {
  "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr",
  "continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false",
  "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not",
  "nullptr", "operator", "or", "private", "protected", "public", "register", "return", "short", "signed", "sizeof",
  "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "union",
  "unsigned", "using", "virtual", "void", "volatile", "while", "xor", "half", "bfloat16_t", "int8_t", "int16_t",
  "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "sqrt", "std", "main", NULL};

/* ---- names ------------------------------------------------------------------------------------------------- */

static bool in_list(const char *const *list, const char *s) {
  for (; *list; list++)
    if (!strcmp(*list, s)) return true;
  return false;
}

static bool name_taken(const CWriter *w, const char *s) {
  for (uint32_t i = 1; i < w->k->vars.len; i++)
    if (w->var_name[i] && !strcmp(w->var_name[i], s)) return true;
  for (uint32_t i = 1; i < w->k->bufs.len; i++)
    if (w->buf_name[i] && !strcmp(w->buf_name[i], s)) return true;
  return false;
}

static bool name_reserved(const CWriter *w, const char *s) {
  if (in_list(cxx_words, s) || in_list(w->dialect->names, s)) return true;
  for (int i = 0; i < HELP_SHARED; i++)
    if (!strcmp(cw_helpers[i].name, s)) return true;
  return strstr(s, "__") || (s[0] == '_' && s[1] >= 'A' && s[1] <= 'Z');
}

const char *cw_numbered(CWriter *w, const char *s, int i) {
  size_t n = strlen(s);
  return arena_printf(w->arena, n && s[n - 1] == '_' ? "%s%d" : "%s_%d", s, i);
}

static const char *identifier(CWriter *w, const char *ir_name) {
  char *s = arena_str(w->arena, ir_name);
  for (char *c = s; *c; c++)
    if (*c == '.') *c = '_';
  if (name_reserved(w, s)) {
    Text t;
    text_init(&t, w->arena);
    text_put(&t, s[0] == '_' ? "v" : "");
    for (char *c = s; *c; c++)
      if (!(c[0] == '_' && c[1] == '_')) text_putn(&t, c, 1);
    s = arena_str(w->arena, text_str(&t));
    if (name_reserved(w, s)) s = arena_printf(w->arena, "%s_", s);
  }
  const char *name = s;
  for (int i = 1; name_taken(w, name) || name_reserved(w, name); i++) name = cw_numbered(w, s, i);
  return name;
}

const char *cw_fresh(CWriter *w, const char *want) {
  const char *name = want;
  for (int i = 1; name_taken(w, name); i++) name = cw_numbered(w, want, i);
  return name;
}

void cw_init(CWriter *w, Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const CDialect *dialect) {
  *w = (CWriter){.arena = a, .diags = d, .k = (IrKernel *)k, .arch = arch, .dialect = dialect, .n_vars = k->vars.len};
  text_init(&w->out, a);
  w->var_name = arena_array(a, const char *, k->vars.len + 1);
  w->buf_name = arena_array(a, const char *, k->bufs.len + 1);
  for (uint32_t i = 1; i < k->bufs.len; i++) w->buf_name[i] = identifier(w, k->bufs.data[i]->name);
  for (uint32_t i = 1; i < k->vars.len; i++) w->var_name[i] = identifier(w, k->vars.data[i]->name);
}

const char *cw_file(const CWriter *w, Loc loc) {
  const IrModule *m = w->k->module;
  const char *f = loc.file < m->files.len ? m->files.data[loc.file] : "";
  const char *slash = f ? strrchr(f, '/') : NULL;
  return slash ? slash + 1 : f ? f : "";
}

typedef struct { const CWriter *w; const IrVar *v; bool found; } FindVar;

static void find_var(IrExpr *e, void *user) {
  FindVar *f = user;
  if (e->op == EX_VAR && (f->v ? e->var == f->v : cw_is_size(f->w, e->var))) f->found = true;
}

bool cw_is_size(const CWriter *w, const IrVar *v) {
  if (v->kind != VAR_PARAM || dtype_is_float(v->type)) return false;
  FindVar f = {w, v, false};
  for (uint32_t i = 0; i < w->k->params.len; i++) {
    const IrBuf *b = w->k->params.data[i].buf;
    for (int d = 0; b && d < b->rank; d++) ir_walk_expr(b->shape[d], find_var, &f);
  }
  return f.found;
}

bool cw_has_size(const CWriter *w, const IrExpr *e) {
  FindVar f = {w, NULL, false};
  ir_walk_expr((IrExpr *)e, find_var, &f);
  return f.found;
}

IrExpr *cw_temp(CWriter *w, DType t, const char *name) {
  IrVar *v = arena_new(w->arena, IrVar);
  *v = (IrVar){.id = w->n_vars, .name = cw_fresh(w, name), .type = t, .kind = VAR_MUT};
  const char **grown = arena_array(w->arena, const char *, w->n_vars + 2);
  memcpy(grown, w->var_name, sizeof(char *) * w->n_vars);
  grown[w->n_vars++] = v->name;
  w->var_name = grown;
  return ir_var(w->k, v);
}

bool cw_needs_name(const IrExpr *e) { return e->op != EX_INT && e->op != EX_FLOAT && e->op != EX_VAR; }

IrExpr *cw_bind(CWriter *w, IrExpr *e, const char *name) {
  if (!cw_needs_name(e)) return e;
  IrExpr *v = cw_temp(w, e->type, name);
  IrStmt *def = arena_new(w->arena, IrStmt); /* lets ir_range look through the name */
  def->op = ST_LET;
  def->set.var = v->var;
  def->set.value = e;
  v->var->kind = VAR_LET;
  v->var->def = def;
  cw_line(w, "const %s %s = %s;", cw_type(e->type), v->var->name, cw_str(w, e));
  return v;
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

static void indent(CWriter *w) {
  for (int i = 0; i < w->indent; i++) text_put(&w->out, "  ");
}

void cw_line(CWriter *w, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (*fmt) indent(w);
  text_vprintf(&w->out, fmt, ap);
  text_put(&w->out, "\n");
  va_end(ap);
}

void cw_open(CWriter *w, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  indent(w);
  text_vprintf(&w->out, fmt, ap);
  text_put(&w->out, " {\n");
  va_end(ap);
  w->indent++;
}

void cw_scope(CWriter *w) {
  cw_line(w, "{");
  w->indent++;
}

void cw_close(CWriter *w) {
  w->indent--;
  cw_line(w, "}");
}

void cw_use(CWriter *w, int helper) { w->helpers |= UINT64_C(1) << helper; }

void cw_refuse(CWriter *w, DiagCode code, const char *fix, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(w->arena, fmt, ap);
  va_end(ap);
  Diag *g = diag_add(w->diags, code, w->at ? w->at->loc : w->k->loc, "%s: %s", w->dialect->title, text);
  if (fix) diag_fix(w->diags, g, "%s", fix);
  w->failed = true;
}

/* ---- expressions ------------------------------------------------------------------------------------------- */

static const struct { const char *spelling; int8_t arity; char kind; int8_t prec; } expr_info[EX_COUNT] = {
#define EXPR(id, spelling, arity, kind, prec, result) [EX_##id] = {spelling, arity, kind, prec},
#include "../ir/exprs.def"
#undef EXPR
};

const char *cw_type(DType t) { return dtype_info[t].cxx; }

bool cw_not_negative(const CWriter *w, const IrExpr *e) {
  if (dtype_info[e->type].cls == 'u' || e->type == DT_BOOL) return true;
  switch (e->op) {
  case EX_VAR:
    if (cw_is_size(w, e->var)) return true;
    break;
  case EX_ADD:
  case EX_MUL:
  case EX_MAX:
  case EX_MIN:
  case EX_FDIV:
    if (cw_not_negative(w, e->arg[0]) && cw_not_negative(w, e->arg[1])) return true;
    break;
  case EX_MOD:
    if (cw_not_negative(w, e->arg[1])) return true;
    break;
  default: break;
  }
  return ir_range(w->k, e).lo >= 0;
}

static void put(CWriter *w, Text *t, const IrExpr *e, int prec);

/* e as a C++ float. */
static void put_float(CWriter *w, Text *t, const IrExpr *e, int prec) {
  if (e->type == DT_F32) {
    put(w, t, e, prec);
  } else if (e->op == EX_FLOAT) {
    IrExpr f = *e;
    f.type = DT_F32;
    put(w, t, &f, prec);
  } else if (e->type == DT_BF16) {
    text_printf(t, "%s(", w->dialect->bf16_to_float);
    put(w, t, e, 0);
    text_put(t, ")");
  } else {
    text_put(t, "(float)");
    put(w, t, e, 12);
  }
}

static void put_int(Text *t, const IrExpr *e) {
  switch (e->type) {
  case DT_BOOL: text_put(t, e->i ? "true" : "false"); break;
  case DT_U32: text_printf(t, "%lluu", (unsigned long long)e->i); break;
  case DT_U64: text_printf(t, "%lluull", (unsigned long long)e->i); break;
  default:
    if (e->i == INT64_MIN) text_put(t, "(-9223372036854775807LL - 1)");
    else if (e->i == INT32_MIN) text_put(t, "(-2147483647 - 1)");
    else text_printf(t, "%lld%s", (long long)e->i, e->i > INT32_MAX || e->i < INT32_MIN ? "LL" : "");
  }
}

static void put_float_literal(CWriter *w, Text *t, const IrExpr *e) {
  if (e->type == DT_BF16) {
    text_printf(t, "%s(", w->dialect->bf16_from_float);
    put_float(w, t, e, 0);
    text_put(t, ")");
    return;
  }
  if (e->type != DT_F32) text_printf(t, "(%s)", cw_type(e->type));
  if (isnan(e->f)) {
    text_put(t, "__builtin_nanf(\"\")");
  } else if (isinf(e->f)) {
    text_put(t, e->f < 0 ? "-__builtin_inff()" : "__builtin_inff()");
  } else {
    char s[40]; /* the shortest decimal that is this float */
    for (int digits = 1; digits <= 9; digits++) {
      snprintf(s, sizeof s, "%.*g", digits, e->f);
      if (strtof(s, NULL) == (float)e->f) break;
    }
    if (strchr(s, 'e') && fabs(e->f) >= 1.0 && fabs(e->f) < 1e7) snprintf(s, sizeof s, "%.1f", e->f);
    text_printf(t, "%s%sf", s, strpbrk(s, ".e") ? "" : ".0");
  }
}

static bool is_small_float(DType t) { return dtype_is_float(t) && t != DT_F32; }

/* Operand of an operation whose result has type `t`, or that compares values of type `t`. */
static void put_operand(CWriter *w, Text *t, const IrExpr *e, int prec) {
  if (is_small_float(e->type)) put_float(w, t, e, prec);
  else put(w, t, e, prec);
}

static void put_call(CWriter *w, Text *t, int helper, const IrExpr *e) {
  if (w->host) { /* plain C++ */
    const char *a = cw_atom(w, e->arg[0]), *b = e->n > 1 ? cw_atom(w, e->arg[1]) : NULL;
    if (b) text_printf(t, "(%s %s %s ? %s : %s)", a, helper == HELP_MIN ? "<" : ">", b, a, b);
    else text_printf(t, "(%s < 0 ? -%s : %s)", a, a, a);
    return;
  }
  cw_use(w, helper);
  text_printf(t, "%s(", cw_helpers[helper].name);
  for (int i = 0; i < e->n; i++) {
    if (i) text_put(t, ", ");
    put_operand(w, t, e->arg[i], 0);
  }
  text_put(t, ")");
}

static void put_infix(CWriter *w, Text *t, const IrExpr *e, const char *op, int p, int prec) {
  if (prec > p) text_put(t, "(");
  put_operand(w, t, e->arg[0], p);
  text_printf(t, " %s ", op);
  put_operand(w, t, e->arg[1], p + 1);
  if (prec > p) text_put(t, ")");
}

/* The start of a call that rounds a float to a whole one; false: the dialect has none. */
static bool put_whole(CWriter *w, Text *t, const char *how) {
  if (w->dialect->float_to_int) {
    text_printf(t, w->dialect->float_to_int, how);
    text_put(t, "(");
    return true;
  }
  cw_refuse(w, DIAG_EMIT_SCALAR, "use a vector op, or target ascendc",
            "floor, ceil and round of a scalar are not written for it");
  return false;
}

static void put_divide(CWriter *w, Text *t, const IrExpr *e, int prec) {
  bool mod = e->op == EX_MOD;
  if (dtype_is_float(e->type)) {
    if (mod) {
      put_call(w, t, HELP_FLOAT_MOD, e);
      return;
    }
    if (!put_whole(w, t, "Floor")) return;
    put_infix(w, t, e, "/", 10, 0);
    text_put(t, ")");
  } else if (cw_not_negative(w, e->arg[0]) && cw_not_negative(w, e->arg[1])) {
    put_infix(w, t, e, mod ? "%" : "/", 10, prec);
  } else if (w->host) { /* no functions there */
    const char *a = cw_atom(w, e->arg[0]), *b = cw_atom(w, e->arg[1]);
    bool positive = ir_range(w->k, e->arg[1]).lo > 0;
    text_printf(t, mod ? "((%s %% %s + %s) %% %s)" : "(%s / %s - (%s %% %s", a, b, mod ? b : a, b);
    if (!mod && positive) text_put(t, " < 0))");
    else if (!mod) text_printf(t, " != 0 && (%s < 0) != (%s < 0)))", a, b);
  } else {
    put_call(w, t, mod ? HELP_FLOOR_MOD : HELP_FLOOR_DIV, e);
  }
}

/* A function of scalar.def, and those it calls. */
static void put_float_call(CWriter *w, Text *t, int helper, const IrExpr *e) {
  cw_use(w, helper);
  if (helper == HELP_TANH || helper == HELP_POW) cw_use(w, HELP_EXP);
  if (helper == HELP_POW) cw_use(w, HELP_LOG);
  if (helper == HELP_EXP || helper == HELP_LOG || helper == HELP_TANH || helper == HELP_POW) cw_use(w, HELP_BITS);
  text_printf(t, "%s(", cw_helpers[helper].name);
  for (int i = 0; i < e->n; i++) {
    if (i) text_put(t, ", ");
    put_float(w, t, e->arg[i], 0);
  }
  text_put(t, helper != HELP_SIN ? ")" : e->op == EX_COS ? ", 1)" : ", 0)");
}

static void put_int_pow(CWriter *w, Text *t, const IrExpr *e) {
  const IrExpr *n = e->arg[1];
  if (w->host && n->op == EX_INT && n->i > 0 && n->i <= 8) { /* no functions there */
    const char *a = cw_atom(w, e->arg[0]);
    for (int64_t i = 0; i < n->i; i++) text_printf(t, i ? " * %s" : "(%s", a);
    text_put(t, ")");
    return;
  }
  if (w->host) cw_refuse(w, DIAG_EMIT_FORM, "raise it to a constant power, 1 to 8, or pass the number of blocks",
                         "a power in the size of the grid");
  cw_use(w, HELP_INT_POW);
  text_printf(t, "%s<%s>(", cw_helpers[HELP_INT_POW].name, cw_type(e->type));
  put(w, t, e->arg[0], 0);
  text_put(t, ", ");
  put(w, t, e->arg[1], 0);
  text_put(t, ")");
}

static void put_function(CWriter *w, Text *t, const IrExpr *e) {
  switch (e->op) {
  case EX_MIN: put_call(w, t, HELP_MIN, e); return;
  case EX_MAX: put_call(w, t, HELP_MAX, e); return;
  case EX_ABS: put_call(w, t, HELP_ABS, e); return;
  case EX_SQRT:
  case EX_RSQRT:
    text_put(t, e->op == EX_RSQRT ? "(1.0f / sqrt(" : "sqrt(");
    put_float(w, t, e->arg[0], 0);
    text_put(t, e->op == EX_RSQRT ? "))" : ")");
    return;
  case EX_FLOOR:
  case EX_CEIL:
  case EX_ROUND:
    if (!dtype_is_float(e->type)) {
      put(w, t, e->arg[0], 12);
      return;
    }
    if (!put_whole(w, t, e->op == EX_FLOOR ? "Floor" : e->op == EX_CEIL ? "Ceil" : "Rint")) return;
    put_float(w, t, e->arg[0], 0);
    text_put(t, ")");
    return;
  case EX_EXP: put_float_call(w, t, HELP_EXP, e); return;
  case EX_LOG: put_float_call(w, t, HELP_LOG, e); return;
  case EX_TANH: put_float_call(w, t, HELP_TANH, e); return;
  case EX_SIN:
  case EX_COS: put_float_call(w, t, HELP_SIN, e); return;
  case EX_POW:
    if (dtype_is_float(e->type)) put_float_call(w, t, HELP_POW, e);
    else put_int_pow(w, t, e);
    return;
  default:
    cw_refuse(w, DIAG_EMIT_SCALAR, "compute it on a tile with the vector op of that name, then read the element",
              "the scalar unit has no %s", expr_info[e->op].spelling);
  }
}

static void put_cast(CWriter *w, Text *t, const IrExpr *e, int prec) {
  const IrExpr *a = e->arg[0];
  DType to = e->type, from = a->type;
  if (to == DT_E4M3 || to == DT_E5M2 || from == DT_E4M3 || from == DT_E5M2) {
    cw_refuse(w, DIAG_EMIT_SCALAR, "convert a tile with cast", "the scalar unit does not convert %s to %s",
              dtype_info[from].name, dtype_info[to].name);
    return;
  }
  if (to == DT_BOOL) {
    if (prec > 6) text_put(t, "(");
    put_operand(w, t, a, 7);
    text_put(t, " != 0");
    if (prec > 6) text_put(t, ")");
  } else if (to == DT_F32) {
    if (dtype_is_float(from)) {
      put_float(w, t, a, prec);
    } else {
      text_put(t, "(float)");
      put(w, t, a, 12);
    }
  } else if (to == DT_BF16) {
    text_printf(t, "%s(", w->dialect->bf16_from_float);
    if (dtype_is_float(from)) put_float(w, t, a, 0);
    else text_put(t, "(float)"), put(w, t, a, 12);
    text_put(t, ")");
  } else {
    text_printf(t, "(%s)", cw_type(to));
    if (is_small_float(from) || (is_small_float(to) && dtype_is_float(from))) put_float(w, t, a, 12);
    else if (is_small_float(to)) text_put(t, "(float)"), put(w, t, a, 12);
    else put(w, t, a, 12);
  }
}

static void put_op(CWriter *w, Text *t, const IrExpr *e, int prec) {
  char kind = expr_info[e->op].kind;
  if (e->op == EX_FDIV || e->op == EX_MOD) {
    put_divide(w, t, e, prec);
  } else if (kind == 'i') {
    put_infix(w, t, e, expr_info[e->op].spelling, expr_info[e->op].prec, prec);
  } else if (kind == 'p') {
    text_put(t, e->op == EX_LNOT ? "!" : e->op == EX_NOT ? "~" : "-");
    put_operand(w, t, e->arg[0], 12);
  } else {
    put_function(w, t, e);
  }
}

static void put(CWriter *w, Text *t, const IrExpr *e, int prec) {
  switch (e->op) {
  case EX_INT:
    if (e->i < 0 && prec > 11) text_put(t, "(");
    put_int(t, e);
    if (e->i < 0 && prec > 11) text_put(t, ")");
    return;
  case EX_FLOAT:
    if (prec > 11) text_put(t, "(");
    put_float_literal(w, t, e);
    if (prec > 11) text_put(t, ")");
    return;
  case EX_VAR: text_put(t, w->var_name[e->var->id]); return;
  case EX_LOAD: w->dialect->load(w, t, e); return;
  case EX_CAST: put_cast(w, t, e, prec); return;
  case EX_BITS:
    cw_use(w, HELP_BITS);
    text_printf(t, "%s<%s>(", cw_helpers[HELP_BITS].name, cw_type(e->type));
    put(w, t, e->arg[0], 0);
    text_put(t, ")");
    return;
  case EX_SELECT:
    text_put(t, "(");
    put(w, t, e->arg[0], 1);
    text_put(t, " ? ");
    put(w, t, e->arg[1], 1);
    text_put(t, " : ");
    put(w, t, e->arg[2], 1);
    text_put(t, ")");
    return;
  default: break;
  }
  /* An operation: narrow results go back to their type. */
  DType r = e->type;
  bool narrow = is_small_float(r) || (r != DT_BOOL && !dtype_is_float(r) && dtype_size(r) < 4);
  if (!narrow) {
    put_op(w, t, e, prec);
  } else if (r == DT_BF16) {
    text_printf(t, "%s(", w->dialect->bf16_from_float);
    put_op(w, t, e, 0);
    text_put(t, ")");
  } else {
    text_printf(t, "(%s)", cw_type(r));
    put_op(w, t, e, 12);
  }
}

void cw_expr(CWriter *w, Text *t, const IrExpr *e) { put(w, t, e, 0); }

static const char *str_at(CWriter *w, const IrExpr *e, int prec) {
  Text t;
  text_init(&t, w->arena);
  put(w, &t, e, prec);
  return text_str(&t);
}

const char *cw_str(CWriter *w, const IrExpr *e) { return str_at(w, e, 0); }
const char *cw_atom(CWriter *w, const IrExpr *e) { return str_at(w, e, 12); }

const char *cw_scalar(CWriter *w, IrExpr *e, DType t) {
  e = ir_cast(w->k, t, e);
  bool literal = e->op == EX_FLOAT || (e->op == EX_INT && t == DT_I32);
  bool plain_var = e->op == EX_VAR && !cw_is_size(w, e->var);
  bool typed = dtype_is_float(t) && e->op != EX_SELECT; /* every float operation already has its type */
  typed |= e->op == EX_CAST || e->op == EX_BITS;
  if (literal || plain_var || typed || e->op == EX_LOAD) return cw_str(w, e);
  return arena_printf(w->arena, "(%s)%s", cw_type(t), cw_atom(w, e));
}

IrExpr *cw_repeated(CWriter *w, IrExpr *e, DType view) {
  static const DType same_size[] = {[1] = DT_U8, [2] = DT_U16, [4] = DT_U32, [8] = DT_U64};
  int from = dtype_size(e->type), to = dtype_size(view);
  uint64_t ones = 0;
  for (int i = 0; i < to; i += from) ones |= UINT64_C(1) << (8 * i);
  if (e->op == EX_INT || e->op == EX_FLOAT) {
    uint64_t bits = e->op == EX_INT ? (uint64_t)e->i : float_bits(e->type, e->f);
    return ir_int(w->k, view, (int64_t)((bits & (UINT64_MAX >> (64 - 8 * from))) * ones));
  }
  bool whole = !dtype_is_float(e->type);
  IrExpr *bits = whole ? ir_cast(w->k, same_size[from], e) : ir_bits(w->k, same_size[from], e);
  bits = ir_cast(w->k, view, bits);
  return ones == 1 ? bits : cw_op(w, EX_MUL, bits, ir_int(w->k, view, (int64_t)ones));
}

const char *cw_element(const CWriter *w, DType t) {
  bool bytes = t == DT_BOOL || ((t == DT_E4M3 || t == DT_E5M2) && strcmp(w->arch->family, "a5"));
  if (!bytes && (t == DT_E4M3 || t == DT_E5M2)) return t == DT_E4M3 ? w->dialect->e4m3 : w->dialect->e5m2;
  return bytes ? "uint8_t" : cw_type(t); /* A2 and A3 have no type of 8-bit floats: they can only be moved there */
}

IrExpr *cw_op(CWriter *w, ExprOp op, IrExpr *a, IrExpr *b) { return ir_binary(w->k, op, a, b); }
IrExpr *cw_num(CWriter *w, int64_t v) { return ir_i32(w->k, v); }
IrExpr *cw_mul(CWriter *w, IrExpr *a, int64_t b) { return cw_op(w, EX_MUL, a, cw_num(w, b)); }

IrExpr *cw_ceil_div(CWriter *w, IrExpr *a, int64_t by) {
  if (by == 1) return a;
  return cw_op(w, EX_FDIV, cw_op(w, EX_ADD, a, cw_num(w, by - 1)), cw_num(w, by));
}

IrExpr *cw_round_up(CWriter *w, IrExpr *a, int64_t to) { return cw_mul(w, cw_ceil_div(w, a, to), to); }

IrExpr *cw_guard(CWriter *w, IrExpr *rows, IrExpr *cols) {
  IrExpr *e[2] = {rows, cols}, *guard = NULL;
  for (int i = 0; i < 2; i++) {
    if (!e[i] || ir_range(w->k, e[i]).lo >= 1) continue;
    IrExpr *some = cw_op(w, EX_GT, e[i], cw_num(w, 0));
    guard = guard ? cw_op(w, EX_LAND, guard, some) : some;
  }
  return guard;
}

/* ---- regions ----------------------------------------------------------------------------------------------- */

static IrExpr *stride_of(CWriter *w, const IrBuf *b, int d) {
  IrExpr *n = cw_num(w, 1);
  for (int i = d + 1; i < b->rank; i++) n = cw_op(w, EX_MUL, n, b->shape[i]);
  return n;
}

/* Row-major offset. GM tensors of more than 2^31 elements are addressed in 64 bits. */
IrExpr *cw_offset(CWriter *w, const IrBuf *b, IrExpr *const *idx) {
  int64_t elements = 1;
  for (int d = 0; d < b->rank; d++)
    elements = b->shape[d]->op == EX_INT && elements <= INT32_MAX ? elements * max_i64(b->shape[d]->i, 1) : elements;
  bool wide = b->space == SPACE_GM && elements > INT32_MAX;
  IrExpr *off = cw_num(w, 0);
  for (int d = 0; d < b->rank; d++) {
    IrExpr *i = wide ? ir_cast(w->k, DT_I64, idx[d]) : idx[d];
    off = cw_op(w, EX_ADD, off, cw_op(w, EX_MUL, i, stride_of(w, b, d)));
  }
  return off;
}

bool cw_gm_matrix(CWriter *w, const IrRegion *r, IrRows *out) {
  const IrBuf *b = r->buf;
  IrExpr *rows = cw_num(w, 1), *pitch = NULL;
  for (int d = b->rank - 2; d >= 0; d--) {
    if (ir_is_int(r->ext[d], 1)) continue;
    IrExpr *stride = stride_of(w, b, d);
    if (pitch && !ir_expr_equal(cw_op(w, EX_MUL, pitch, rows), stride)) return false;
    if (!pitch) pitch = stride;
    rows = cw_op(w, EX_MUL, rows, r->ext[d]);
  }
  IrExpr *cols = b->rank ? r->ext[b->rank - 1] : cw_num(w, 1);
  *out = (IrRows){cw_offset(w, b, r->off), rows, cols, pitch ? pitch : cols};
  return true;
}

bool cw_box(CWriter *w, const IrRegion *r, CBox *out) {
  const IrBuf *b = r->buf;
  int n = b->rank;
  if (n < 2) return false;
  IrFractal f = ir_fractal(b->layout, b->space, b->type);
  out->plane_rows = round_up(b->shape[n - 2]->i, f.rows);
  out->plane_cols = round_up(b->shape[n - 1]->i, f.cols);
  out->plane = cw_num(w, 0);
  int64_t size = out->plane_rows * out->plane_cols;
  for (int d = n - 3; d >= 0; d--) {
    if (!ir_is_int(r->ext[d], 1)) return false;
    out->plane = cw_op(w, EX_ADD, cw_mul(w, r->off[d], size), out->plane);
    size *= b->shape[d]->i;
  }
  out->r = r->off[n - 2];
  out->c = r->off[n - 1];
  out->rows = r->ext[n - 2];
  out->cols = r->ext[n - 1];
  return true;
}

bool cw_rows(CWriter *w, const IrRegion *const *reg, IrRows *rows, int n) {
  int lead = -1;
  for (int i = 0; i < n; i++) {
    if (!ir_rows(w->k, reg[i], &rows[i])) return false;
    rows[i].off = cw_offset(w, reg[i]->buf, reg[i]->off);
    if (!ir_is_int(rows[i].rows, 1) && lead < 0) lead = i;
  }
  if (lead < 0) return true;
  IrExpr *all = cw_op(w, EX_MUL, rows[lead].rows, rows[lead].cols);
  for (int i = 0; i < n; i++) {
    if (!ir_is_int(rows[i].rows, 1) || !ir_expr_equal(rows[i].cols, all)) continue;
    rows[i].rows = rows[lead].rows; /* contiguous: cut where the leading operand is cut */
    rows[i].cols = rows[lead].cols;
    rows[i].pitch = rows[lead].cols;
  }
  return true;
}

IrExpr *cw_nz_offset(CWriter *w, const IrBuf *buf, const CBox *b) {
  int64_t c0 = ir_c0(buf->space, buf->type);
  return cw_op(w, EX_ADD, b->plane, cw_op(w, EX_ADD, cw_mul(w, b->c, b->plane_rows), cw_mul(w, b->r, c0)));
}

const IrStmt *cw_arange_row(CWriter *w, const IrStmt *s, int64_t i) {
  const IrRegion *dst = &s->args[2].region;
  int64_t rows = 1;
  for (int d = 0; d < dst->buf->rank - 1; d++) {
    if (dst->ext[d]->op != EX_INT) return NULL;
    rows *= dst->ext[d]->i;
  }
  if (i >= rows) return NULL;
  IrStmt *row = arena_new(w->arena, IrStmt);
  *row = *s;
  row->args = arena_array(w->arena, IrArg, 3);
  for (int a = 0; a < 3; a++) row->args[a] = s->args[a];
  IrRegion *to = &row->args[2].region;
  IrExpr *before = cw_op(w, EX_MUL, ir_i32(w->k, i), dst->ext[dst->buf->rank - 1]);
  row->args[0].scalar = cw_op(w, EX_ADD, s->args[0].scalar, cw_op(w, EX_MUL, before, s->args[1].scalar));
  for (int d = dst->buf->rank - 2; d >= 0; d--) {
    to->off[d] = cw_op(w, EX_ADD, dst->off[d], ir_i32(w->k, i % dst->ext[d]->i));
    to->ext[d] = ir_i32(w->k, 1);
    i /= dst->ext[d]->i;
  }
  return row;
}

/* ---- control flow ------------------------------------------------------------------------------------------ */

static void put_loc(CWriter *w, const IrStmt *s) {
  if (!s->loc.file || (s->loc.line == w->last.line && s->loc.file == w->last.file)) return;
  w->last = s->loc;
  cw_line(w, "// %s:%u", cw_file(w, s->loc), s->loc.line);
}

static IrExpr *read_once(CWriter *w, IrExpr *e, const char *name) {
  if (!ir_expr_varies(e)) return e;
  IrExpr *once = cw_temp(w, e->type, name);
  cw_line(w, "const %s %s = %s;", cw_type(e->type), once->var->name, cw_str(w, e));
  return once;
}

static void write_for(CWriter *w, const IrStmt *s) {
  const char *name = w->var_name[s->loop.var->id];
  bool unsteady = ir_expr_varies(s->loop.hi) || ir_expr_varies(s->loop.step);
  if (unsteady) cw_scope(w);
  IrExpr *hi = read_once(w, s->loop.hi, "end"), *step = read_once(w, s->loop.step, "step");
  bool down = step->op == EX_INT && step->i < 0;
  const char *bump = ir_is_int(step, 1) ? arena_printf(w->arena, "++%s", name)
                                        : arena_printf(w->arena, "%s += %s", name, cw_str(w, step));
  cw_open(w, "for (%s %s = %s; %s %s %s; %s)", cw_type(s->loop.var->type), name, cw_str(w, s->loop.lo), name,
          down ? ">" : "<", str_at(w, hi, 8), bump);
  cw_block(w, &s->body);
  cw_close(w);
  if (unsteady) cw_close(w);
}

static void write_if(CWriter *w, const IrStmt *s) {
  cw_open(w, "if (%s)", cw_str(w, s->test.cond));
  cw_block(w, &s->body);
  if (s->alt.first) {
    w->indent--;
    cw_line(w, "} else {");
    w->indent++;
    cw_block(w, &s->alt);
  }
  cw_close(w);
}

static void write_stmt(CWriter *w, const IrStmt *s) {
  const IrVar *v = s->op == ST_LET || s->op == ST_VAR || s->op == ST_ASSIGN ? s->set.var : NULL;
  switch (s->op) {
  case ST_ALLOC: break; /* declared at the top */
  case ST_LET:
    cw_line(w, "const %s %s = %s;", cw_type(v->type), w->var_name[v->id],
            cw_str(w, ir_cast(w->k, v->type, s->set.value)));
    break;
  case ST_VAR:
    cw_line(w, "%s %s = %s;", cw_type(v->type), w->var_name[v->id], cw_str(w, ir_cast(w->k, v->type, s->set.value)));
    break;
  case ST_ASSIGN:
    cw_line(w, "%s = %s;", w->var_name[v->id], cw_str(w, ir_cast(w->k, v->type, s->set.value)));
    break;
  case ST_FOR: write_for(w, s); break;
  case ST_IF: write_if(w, s); break;
  case ST_WHILE:
    cw_open(w, "while (%s)", cw_str(w, s->test.cond));
    cw_block(w, &s->body);
    cw_close(w);
    break;
  case ST_BREAK: cw_line(w, "break;"); break;
  case ST_CONTINUE: cw_line(w, "continue;"); break;
  case ST_STORE: w->dialect->store(w, s); break;
  default: w->dialect->stmt(w, s);
  }
}

static void flush_load(IrExpr *e, void *user) {
  CWriter *w = user;
  if (e->op == EX_LOAD && e->buf->space == SPACE_GM && w->gm_written[ir_root(e->buf)->id])
    w->dialect->flush(w, e->buf, cw_offset(w, e->buf, e->idx));
}

static void flush_root(IrExpr **e, void *user) {
  if (*e) ir_walk_expr(*e, flush_load, user);
}

void cw_block(CWriter *w, const IrBlock *b) {
  for (const IrStmt *s = b->first; s; s = s->next) {
    w->at = s;
    if (s->op != ST_ALLOC) put_loc(w, s);
    ir_stmt_exprs((IrStmt *)s, flush_root, w);
    write_stmt(w, s);
  }
}

bool cw_scans(const IrBlock *b, bool (*f)(const IrStmt *s, void *user), void *user) {
  for (const IrStmt *s = b->first; s; s = s->next)
    if (f(s, user) || cw_scans(&s->body, f, user) || cw_scans(&s->alt, f, user)) return true;
  return false;
}

static bool is_sync_all(const IrStmt *s, void *user) {
  (void)user;
  return s->op == ST_SYNC_ALL;
}

static bool side_syncs(const IrStmt *s, void *user) {
  return s->op == *(const int *)user && cw_scans(&s->body, is_sync_all, NULL);
}

bool cw_side_syncs(CWriter *w, int side) { return cw_scans(&w->k->body, side_syncs, &side); }
