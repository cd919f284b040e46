/* parse.c - IR text to IR: a hand-written lexer and a recursive-descent reader of the grammar in docs/ir.md.
 *
 * Errors: a bad statement is reported at its token and skipped to the next line, so that one reading reports
 * several errors. `fail` unwinds to the innermost statement with longjmp; nothing is freed by hand, so nothing leaks.
 * Nesting is limited (MAX_DEPTH) because the reader, the printer and the passes recurse. The canonical text, with the
 * casts that the reader adds, keeps to the same limits; what a pass has printed may go further by PASSES_ADD. */
#include "ir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 120, MAX_HEIGHT = 1000, PASSES_ADD = 4, MAX_ARGS = 8 };

typedef enum { T_END, T_NAME, T_VAR, T_INT, T_FLOAT, T_STRING, T_PUNCT } Tok;

typedef struct {
  Tok kind;
  const char *s; /* start of the spelling, % and quotes not included */
  uint32_t len;
  uint32_t line, col;
  int64_t i;
  double f;
} Token;

typedef struct {
  Arena *a;
  Diags *d;
  const char *cur, *end, *line_start;
  uint32_t line;
  Token tok;
  uint32_t prev_line; /* line of the token before tok */
  int depth;
  int height;  /* levels of the highest expression read so far inside the one being read */
  int tallest; /* and of any in the statement */
  int scale;   /* of the limits: 1, PASSES_ADD after a pass */
  IrModule *m;
  IrKernel *k;
  Map names; /* name -> (id << 1 | is_buf) */
  jmp_buf *recover;
} Parser;

/* ---- lexer ------------------------------------------------------------------------------------------------ */

static Loc here(const Parser *p) { return (Loc){p->tok.line, (uint16_t)(p->tok.col > 65535 ? 65535 : p->tok.col), 0}; }

static const char *fix_of(DiagCode code) {
  switch (code) {
  case DIAG_UNKNOWN_NAME: return "declare it before, or take a name of docs/ops.md";
  case DIAG_REDEFINED: return "use another name";
  case DIAG_BAD_TYPE: return "convert one side: i32(x), f32(x)";
  case DIAG_BAD_OPERAND: return "write `offset +: extent` or one index for each dimension";
  case DIAG_BAD_ATTR: return "docs/ops.md lists the attributes of each op";
  case DIAG_LIMIT: return "split it";
  default: return NULL;
  }
}

static _Noreturn void fail_at(Parser *p, Loc loc, DiagCode code, const char *text) {
  Diag *g = diag_add(p->d, code, loc, "%s", text);
  if (fix_of(code)) diag_fix(p->d, g, "%s", fix_of(code));
  longjmp(*p->recover, 1);
}

static _Noreturn void fail_as(Parser *p, DiagCode code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(p->a, fmt, ap);
  va_end(ap);
  fail_at(p, here(p), code, text);
}

/* Of an expression that has been read to its end: at its operator or its first word. */
static _Noreturn void bad_type(Parser *p, Loc loc, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(p->a, fmt, ap);
  va_end(ap);
  fail_at(p, loc, DIAG_BAD_TYPE, text);
}
#define fail(p, ...) fail_as(p, DIAG_SYNTAX, __VA_ARGS__)

static bool is_alpha(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(int c) { return c >= '0' && c <= '9'; }

static int peek_char(const Parser *p, int n) { return p->end - p->cur > n ? (unsigned char)p->cur[n] : 0; }

static void skip_blank(Parser *p) {
  while (p->cur < p->end) {
    char c = *p->cur;
    if (c == '\n') {
      p->line++;
      p->line_start = p->cur + 1;
    } else if (c == ';') {
      while (p->cur < p->end && *p->cur != '\n') p->cur++;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
    p->cur++;
  }
}

static void lex_number(Parser *p) {
  Token *t = &p->tok;
  const char *s = p->cur;
  t->kind = T_INT;
  bool hex = peek_char(p, 0) == '0' && (peek_char(p, 1) == 'x' || peek_char(p, 1) == 'X');
  if (hex) {
    p->cur += 2;
    while (is_digit(peek_char(p, 0)) || is_alpha(peek_char(p, 0))) p->cur++;
  } else {
    while (is_digit(peek_char(p, 0))) p->cur++;
    if (peek_char(p, 0) == '.' && peek_char(p, 1) != '.') {
      t->kind = T_FLOAT;
      p->cur++;
      while (is_digit(peek_char(p, 0))) p->cur++;
    }
    int e = peek_char(p, 0);
    int sign = peek_char(p, 1) == '-' || peek_char(p, 1) == '+';
    if ((e == 'e' || e == 'E') && is_digit(peek_char(p, 1 + sign))) {
      t->kind = T_FLOAT;
      p->cur += 1 + sign;
      while (is_digit(peek_char(p, 0))) p->cur++;
    }
  }
  char buf[64];
  size_t n = (size_t)(p->cur - s);
  t->len = (uint32_t)n;
  if (n >= sizeof buf) fail(p, "a number of %zu characters", n);
  memcpy(buf, s, n);
  buf[n] = 0;
  errno = 0;
  if (t->kind == T_FLOAT) t->f = strtod(buf, NULL);
  else t->i = (int64_t)strtoull(buf, NULL, hex ? 16 : 10);
  if (t->kind != T_FLOAT && errno) fail(p, "%s does not fit 64 bits", buf);
}

/* As written, with its escapes; read_text takes them out. */
static void lex_string(Parser *p) {
  Token *t = &p->tok;
  t->kind = T_STRING;
  t->s = ++p->cur;
  for (int c; (c = peek_char(p, 0)) && c != '"' && c != '\n'; p->cur++)
    if (c == '\\' && (peek_char(p, 1) == '"' || peek_char(p, 1) == '\\')) p->cur++;
  if (p->cur < p->end && !*p->cur) fail(p, "a string with a byte 0");
  if (peek_char(p, 0) != '"') fail(p, "a string that does not end on its line");
  t->len = (uint32_t)(p->cur++ - t->s);
}

static void next(Parser *p) {
  static const char *const two[] = {"->", "+:", "+=", "..", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
  p->prev_line = p->tok.line;
  skip_blank(p);
  Token *t = &p->tok;
  *t = (Token){T_END, p->cur, 0, p->line, (uint32_t)(p->cur - p->line_start) + 1, 0, 0};
  if (p->cur >= p->end) return;
  int c = peek_char(p, 0);
  if (is_alpha(c) || (c == '%' && is_alpha(peek_char(p, 1)))) {
    t->kind = c == '%' ? T_VAR : T_NAME;
    p->cur += c == '%';
    t->s = p->cur;
    while (is_alpha(peek_char(p, 0)) || is_digit(peek_char(p, 0)) ||
           (t->kind == T_VAR && peek_char(p, 0) == '.' && (is_alpha(peek_char(p, 1)) || is_digit(peek_char(p, 1)))))
      p->cur++;
    t->len = (uint32_t)(p->cur - t->s);
  } else if (is_digit(c)) {
    lex_number(p);
  } else if (c == '"') {
    lex_string(p);
  } else {
    t->kind = T_PUNCT;
    t->len = 1;
    for (size_t i = 0; i < TL_COUNT(two); i++)
      if (c == two[i][0] && peek_char(p, 1) == two[i][1]) t->len = 2;
    p->cur += t->len;
  }
}

static bool tok_is(const Parser *p, Tok kind, const char *s) {
  return p->tok.kind == kind && p->tok.len == strlen(s) && !memcmp(p->tok.s, s, p->tok.len);
}
static bool at(const Parser *p, const char *punct) { return tok_is(p, T_PUNCT, punct); }
static bool at_word(const Parser *p, const char *word) { return tok_is(p, T_NAME, word); }

static const char *show(Parser *p) {
  if (p->tok.kind == T_END) return "the end of the text";
  unsigned char c = (unsigned char)*p->tok.s;
  if (c < ' ' || c > '~') return arena_printf(p->a, "the byte 0x%02x", c);
  return arena_printf(p->a, "'%s%.*s'", p->tok.kind == T_VAR ? "%" : "", (int)(p->tok.len > 40 ? 40 : p->tok.len),
                      p->tok.s);
}

static bool accept(Parser *p, const char *punct) {
  if (!at(p, punct)) return false;
  next(p);
  return true;
}
static bool accept_word(Parser *p, const char *word) {
  if (!at_word(p, word)) return false;
  next(p);
  return true;
}
static void expect(Parser *p, const char *punct) {
  if (!accept(p, punct)) fail(p, "expected '%s' before %s", punct, show(p));
}
static void expect_word(Parser *p, const char *word) {
  if (!accept_word(p, word)) fail(p, "expected '%s' before %s", word, show(p));
}
static void expect_head(Parser *p) {
  if (accept_word(p, "tl")) return;
  Diag *g = diag_add(p->d, DIAG_SYNTAX, here(p), "expected 'tl' before %s", show(p));
  diag_fix(p->d, g, "IR text begins with the line `tl 1`: kernel.ir() gives it, tlc opt and tlc fmt write it");
  longjmp(*p->recover, 1);
}
static int64_t expect_int(Parser *p) {
  bool neg = accept(p, "-");
  if (p->tok.kind != T_INT) fail(p, "expected an integer before %s", show(p));
  int64_t v = p->tok.i;
  next(p);
  return neg ? (int64_t)-(uint64_t)v : v;
}

static int find_word(const Parser *p, const char *const *names, int n) {
  for (int i = 0; i < n; i++)
    if (at_word(p, names[i])) return i;
  return -1;
}

#define DEFINE_ENUM_READER(fn, type, count, name_of, what)                                                    \
  static bool try_##fn(Parser *p, type *out) {                                                                \
    for (int i = 0; i < (count); i++)                                                                          \
      if (at_word(p, name_of)) {                                                                               \
        *out = (type)i;                                                                                        \
        next(p);                                                                                               \
        return true;                                                                                           \
      }                                                                                                        \
    return false;                                                                                              \
  }                                                                                                            \
  static type read_##fn(Parser *p) {                                                                           \
    type v = (type)0;                                                                                          \
    if (!try_##fn(p, &v)) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not a " what, show(p));                         \
    return v;                                                                                                  \
  }
DEFINE_ENUM_READER(dtype, DType, DTYPE_COUNT, dtype_info[i].name, "dtype")
DEFINE_ENUM_READER(space, Space, SPACE_COUNT, space_info[i].name, "memory space")
DEFINE_ENUM_READER(pipe, Pipe, PIPE_COUNT, pipe_info[i].name, "pipe")

/* ---- names -------------------------------------------------------------------------------------------------- */

static uint32_t lookup(const Parser *p) { return map_get(&p->names, p->tok.s, p->tok.len); }
static bool at_buf(const Parser *p) { return p->tok.kind == T_VAR && (lookup(p) & 1); }

static const char *new_name(Parser *p) {
  if (p->tok.kind != T_VAR) fail(p, "expected a %%name before %s", show(p));
  if (lookup(p)) fail_as(p, DIAG_REDEFINED, "%s is defined already", show(p));
  const char *s = arena_strn(p->a, p->tok.s, p->tok.len);
  next(p);
  return s;
}

static void define(Parser *p, const char *name, uint32_t id, bool is_buf) {
  map_set(p->a, &p->names, name, strlen(name), id << 1 | is_buf);
}

static IrVar *declare_var(Parser *p, const char *name, DType t, VarKind kind, Loc loc) {
  IrVar *v = ir_new_var(p->k, name, t, kind, loc);
  define(p, name, v->id, false);
  return v;
}

static IrBuf *read_buf(Parser *p) {
  if (!at_buf(p)) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not a buffer", show(p));
  IrBuf *b = p->k->bufs.data[lookup(p) >> 1];
  next(p);
  return b;
}

/* ---- expressions ----------------------------------------------------------------------------------------------- */

static IrExpr *read_expr(Parser *p);
static IrExpr *read_binary(Parser *p, int min_prec);

static const struct { const char *spelling; int arity; char kind; int prec; char result; } expr_ops[EX_COUNT] = {
#define EXPR(id, spelling, arity, kind, prec, result) [EX_##id] = {spelling, arity, kind, prec, result},
#include "exprs.def"
#undef EXPR
};

static bool ints_only(ExprOp op) {
  return op == EX_SHL || op == EX_SHR || op == EX_AND || op == EX_OR || op == EX_XOR || op == EX_NOT;
}

static void limit(Parser *p, Loc at, IrLevels l) {
  int depth = MAX_DEPTH * p->scale, height = MAX_HEIGHT * p->scale;
  if (l.nest > depth) fail_at(p, at, DIAG_LIMIT, arena_printf(p->a, "nested deeper than %d", depth));
  if (l.height > height)
    fail_at(p, at, DIAG_LIMIT, arena_printf(p->a, "an expression of more than %d levels", height));
}

static void enter(Parser *p) { limit(p, here(p), (IrLevels){.nest = ++p->depth}); }

typedef struct { Parser *p; Loc at; } Limited;

/* Of what was just read, the canonical text. It is looked at where casts could matter only: each adds few levels. */
static void limit_canonical(IrExpr **e, void *user) {
  Limited *x = user;
  Text t;
  text_init(&t, x->p->a);
  IrLevels l = ir_print_expr(&t, *e);
  limit(x->p, x->at, (IrLevels){x->p->depth + l.nest, l.height});
}

static void limit_shape(IrBuf *b, Limited *x) {
  for (int d = 0; d < b->rank; d++) limit_canonical(&b->shape[d], x);
}

static bool is_tall(const Parser *p) { return p->tallest > MAX_DEPTH / 8; }

static IrExpr *read_size(Parser *p) {
  Loc loc = here(p);
  IrExpr *e = read_expr(p);
  if (dtype_is_float(e->type))
    bad_type(p, loc, "an index of dtype %s; it must be an integer", dtype_info[e->type].name);
  return e->op == EX_INT && e->type == DT_BOOL ? ir_i32(p->k, e->i) : e;
}

/* Indices and bounds are i32 or i64: what passes compute with them, as the rest of a tile, would wrap in u8 or u32. */
static IrExpr *read_index(Parser *p) {
  IrExpr *e = read_size(p);
  return e->type == DT_I32 || e->type == DT_I64 || dtype_is_float(e->type)
             ? e : ir_cast(p->k, e->type == DT_U64 ? DT_I64 : DT_I32, e);
}

static IrExpr *read_load(Parser *p) {
  IrBuf *b = read_buf(p);
  IrExpr *idx[IR_MAX_RANK];
  int n = 0;
  expect(p, "[");
  do {
    if (n == b->rank) fail_as(p, DIAG_BAD_OPERAND, "%%%s has %d dimensions, more indices are given", b->name, b->rank);
    idx[n++] = read_index(p);
  } while (accept(p, ","));
  if (n != b->rank) fail_as(p, DIAG_BAD_OPERAND, "%%%s has %d dimensions, %d indices are given", b->name, b->rank, n);
  expect(p, "]");
  return ir_load(p->k, b, idx);
}

static IrExpr *read_call(Parser *p) {
  DType t;
  if (accept_word(p, "true")) return ir_int(p->k, DT_BOOL, 1);
  if (accept_word(p, "false")) return ir_int(p->k, DT_BOOL, 0);
  if (accept_word(p, "inf")) return ir_float(p->k, DT_F32, __builtin_inf());
  if (accept_word(p, "nan")) return ir_float(p->k, DT_F32, __builtin_nan(""));
  if (try_dtype(p, &t)) {
    expect(p, "(");
    IrExpr *e = read_expr(p);
    expect(p, ")");
    return ir_cast(p->k, t, e);
  }
  if (at_word(p, "bits")) {
    Loc loc = here(p);
    next(p);
    expect(p, "(");
    t = read_dtype(p);
    expect(p, ",");
    IrExpr *e = read_expr(p);
    if (dtype_size(e->type) != dtype_size(t))
      bad_type(p, loc, "bits: %s and %s differ in size", dtype_info[e->type].name, dtype_info[t].name);
    expect(p, ")");
    return ir_bits(p->k, t, e);
  }
  if (accept_word(p, "select")) {
    expect(p, "(");
    IrExpr *c = read_expr(p);
    expect(p, ",");
    IrExpr *a = read_expr(p);
    expect(p, ",");
    IrExpr *b = read_expr(p);
    expect(p, ")");
    return ir_select(p->k, c, a, b);
  }
  for (int op = EX_SELECT + 1; op < EX_COUNT; op++) {
    if (expr_ops[op].kind != 'c' || !at_word(p, expr_ops[op].spelling)) continue;
    next(p);
    expect(p, "(");
    IrExpr *a = read_expr(p);
    if (expr_ops[op].arity == 2) expect(p, ",");
    IrExpr *b = expr_ops[op].arity == 2 ? read_expr(p) : NULL;
    expect(p, ")");
    return b ? ir_binary(p->k, op, a, b) : ir_unary(p->k, op, a);
  }
  fail_as(p, DIAG_UNKNOWN_NAME, "%s is not a function", show(p));
}

/* The expression is read, beside one of that height. */
static void leave(Parser *p, int beside) {
  if (p->height > p->tallest) p->tallest = p->height;
  if (p->height < beside) p->height = beside;
}

static IrExpr *read_unary(Parser *p) {
  enter(p);
  int beside = p->height;
  p->height = 0;
  IrExpr *e;
  Loc loc = here(p);
  if (accept(p, "-")) {
    e = ir_unary(p->k, EX_NEG, read_unary(p));
  } else if (accept(p, "~")) {
    e = read_unary(p);
    if (dtype_is_float(e->type))
      bad_type(p, loc, "~ of dtype %s; it takes integers", dtype_info[e->type].name);
    e = ir_unary(p->k, EX_NOT, e);
  } else if (accept(p, "!")) {
    e = ir_unary(p->k, EX_LNOT, read_unary(p));
  } else if (accept(p, "(")) {
    e = read_expr(p);
    expect(p, ")");
  } else if (p->tok.kind == T_INT) {
    int64_t v = p->tok.i;
    e = ir_int(p->k, v == (int32_t)v ? DT_I32 : DT_I64, v);
    next(p);
  } else if (p->tok.kind == T_FLOAT) {
    e = ir_float(p->k, DT_F32, p->tok.f);
    next(p);
  } else if (p->tok.kind == T_NAME) {
    e = read_call(p);
  } else if (p->tok.kind == T_VAR) {
    uint32_t id = lookup(p);
    if (!id) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not defined", show(p));
    if (id & 1) {
      e = read_load(p);
    } else {
      e = ir_var(p->k, p->k->vars.data[id >> 1]);
      next(p);
    }
  } else {
    fail(p, "expected an expression before %s", show(p));
  }
  p->depth--;
  p->height++;
  leave(p, beside);
  return e;
}

/* A long sum is a deep tree, and whoever walks over trees recurses. */
static IrExpr *read_binary(Parser *p, int min_prec) {
  int beside = p->height;
  p->height = 0;
  IrExpr *a = read_unary(p);
  for (;;) {
    int op = -1;
    for (int i = EX_SELECT + 1; i < EX_COUNT && op < 0; i++)
      if (expr_ops[i].kind == 'i' && expr_ops[i].prec >= min_prec && at(p, expr_ops[i].spelling)) op = i;
    if (op < 0 && min_prec <= expr_ops[EX_MOD].prec && at(p, "%")) op = EX_MOD;
    if (op < 0) break;
    Loc loc = here(p);
    next(p);
    IrExpr *b = read_binary(p, expr_ops[op].prec + 1);
    limit(p, here(p), (IrLevels){.height = ++p->height});
    if (ints_only(op) && (dtype_is_float(a->type) || dtype_is_float(b->type)))
      bad_type(p, loc, "'%s' of dtypes %s and %s; it takes integers", expr_ops[op].spelling,
               dtype_info[a->type].name, dtype_info[b->type].name);
    a = ir_binary(p->k, op, a, b);
  }
  leave(p, beside);
  return a;
}

static IrExpr *read_expr(Parser *p) {
  enter(p);
  IrExpr *e = read_binary(p, 1);
  p->depth--;
  return e;
}

/* ---- operands ------------------------------------------------------------------------------------------------- */

/* After a buffer's name: is this a bracket with `+:` in it? Looks ahead without moving. */
static bool bracket_is_region(Parser *p) {
  Parser look = *p;
  int depth = 0;
  for (; look.tok.kind != T_END; next(&look)) {
    if (at(&look, "[") || at(&look, "(")) depth++;
    if ((at(&look, "]") || at(&look, ")")) && --depth <= 0) return false;
    if (depth == 1 && at(&look, "+:")) return true;
  }
  return false;
}

static IrRegion read_region(Parser *p) {
  IrBuf *b = read_buf(p);
  if (!at(p, "[")) return ir_whole(p->k, b);
  next(p);
  IrRegion r = {.buf = b};
  int n = 0;
  do {
    if (n == b->rank) fail_as(p, DIAG_BAD_OPERAND, "%%%s has %d dimensions, the region has more", b->name, b->rank);
    r.off[n] = read_index(p);
    r.ext[n] = accept(p, "+:") ? read_index(p) : ir_i32(p->k, 1);
    n++;
  } while (accept(p, ","));
  if (n != b->rank) fail_as(p, DIAG_BAD_OPERAND, "%%%s has %d dimensions, the region has %d", b->name, b->rank, n);
  expect(p, "]");
  return r;
}

static IrArg read_arg(Parser *p, char letter) {
  if (letter == 's') return ir_arg_scalar(read_expr(p));
  if (letter == 'e') {
    if (!at_buf(p)) return ir_arg_scalar(read_expr(p));
    Parser look = *p;
    next(&look);
    if (at(&look, "[") && !bracket_is_region(&look)) return ir_arg_scalar(read_expr(p));
  }
  return ir_arg_region(read_region(p));
}

static void read_attrs(Parser *p, IrStmt *s) {
  while (p->tok.kind == T_NAME && p->tok.line == p->prev_line) {
    int key = -1;
    for (int i = 0; i < ATTR_COUNT && key < 0; i++)
      if (at_word(p, attr_info[i].name)) key = i;
    if (key < 0) return; /* the next statement on the same line */
    if (!(op_info[s->op].attrs >> key & 1))
      fail_as(p, DIAG_BAD_ATTR, "'%s' takes no attribute '%s'", op_info[s->op].name, attr_info[key].name);
    next(p);
    IrExpr *value = ir_int(p->k, DT_BOOL, 1);
    char kind = attr_info[key].value;
    if (kind != 'f') {
      expect(p, "(");
      int mode = -1;
      if (kind == 'e') value = read_expr(p);
      else if (kind == 'i') value = ir_i32(p->k, expect_int(p));
      else mode = kind == 'm' ? find_word(p, cast_name, CAST_COUNT) : find_word(p, cmp_name, CMP_COUNT);
      if (kind == 'm' || kind == 'c') {
        if (mode < 0) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not a mode of '%s'", show(p), attr_info[key].name);
        value = ir_i32(p->k, mode);
        next(p);
      }
      expect(p, ")");
    }
    ir_set_attr(p->k, s, (AttrKey)key, value);
  }
}

static IrStmt *read_op(Parser *p, StmtOp op, Loc loc) {
  IrArg args[MAX_ARGS];
  int n = 0;
  next(p);
  for (const char *c = op_info[op].in; *c; c++) {
    if (n) expect(p, ",");
    args[n++] = read_arg(p, *c);
  }
  expect(p, "->");
  for (const char *c = op_info[op].out; *c; c++) {
    if (c != op_info[op].out) expect(p, ",");
    args[n++] = read_arg(p, *c);
  }
  IrStmt *s = ir_new_op(p->k, op, loc, n, args);
  read_attrs(p, s);
  return s;
}

/* ---- statements ----------------------------------------------------------------------------------------------- */

static void read_block(Parser *p, IrBlock *b);

static int read_shape(Parser *p, IrExpr **shape) {
  int n = 0;
  expect(p, "[");
  do {
    if (n == IR_MAX_RANK) fail_as(p, DIAG_LIMIT, "more than %d dimensions", IR_MAX_RANK);
    shape[n++] = read_size(p);
  } while (accept(p, ","));
  expect(p, "]");
  return n;
}

static IrBuf *read_viewed(Parser *p, const IrBuf *view) {
  expect(p, "(");
  IrBuf *b = read_buf(p);
  if (b == view) fail_as(p, DIAG_BAD_OPERAND, "%%%s is a view of itself", b->name);
  expect(p, ")");
  return b;
}

static IrStmt *read_alloc(Parser *p, Loc loc) {
  const char *name = new_name(p);
  expect(p, ":");
  Space space = read_space(p);
  DType t = read_dtype(p);
  IrExpr *shape[IR_MAX_RANK];
  int rank = read_shape(p, shape);
  IrStmt *s = ir_new_stmt(p->k, ST_ALLOC, loc);
  IrBuf *b = ir_new_buf(p->k, name, t, space, rank, shape, loc);
  define(p, name, b->id, true);
  int layout = find_word(p, layout_name, LAYOUT_COUNT);
  if (layout >= 0) {
    b->layout = (Layout)layout;
    next(p);
  }
  if (accept_word(p, "view")) b->view = read_viewed(p, b);
  if (accept_word(p, "at")) b->addr = expect_int(p);
  s->alloc.buf = b;
  return s;
}

static IrStmt *read_let(Parser *p, StmtOp op, Loc loc) {
  const char *name = new_name(p);
  expect(p, ":");
  DType t = read_dtype(p);
  expect(p, "=");
  IrStmt *s = ir_new_stmt(p->k, op, loc);
  s->set.value = ir_cast(p->k, t, read_expr(p));
  s->set.var = declare_var(p, name, t, op == ST_LET ? VAR_LET : VAR_MUT, loc);
  s->set.var->def = s;
  return s;
}

static IrStmt *read_for(Parser *p, Loc loc) {
  IrStmt *s = ir_new_stmt(p->k, ST_FOR, loc);
  const char *name = new_name(p);
  expect_word(p, "in");
  s->loop.lo = read_index(p);
  expect(p, "..");
  s->loop.hi = read_index(p);
  s->loop.step = accept_word(p, "step") ? read_index(p) : ir_i32(p->k, 1);
  if (accept_word(p, "pipeline")) {
    expect(p, "(");
    int64_t n = expect_int(p);
    if (n < 0 || n > 64) fail_as(p, DIAG_LIMIT, "a pipeline of %lld stages", (long long)n);
    s->loop.stages = (int32_t)n;
    expect(p, ")");
    s->loop.ordered = accept_word(p, "ordered");
  }
  s->loop.var = declare_var(p, name, ir_common_type(s->loop.lo, s->loop.hi), VAR_LOOP, loc);
  s->loop.var->def = s;
  read_block(p, &s->body);
  return s;
}

static IrStmt *read_parallel(Parser *p, Loc loc) {
  IrStmt *s = ir_new_stmt(p->k, ST_PARALLEL, loc);
  IrVar *vars[IR_MAX_RANK];
  IrExpr *ext[IR_MAX_RANK];
  do {
    if (s->par.n == IR_MAX_RANK) fail_as(p, DIAG_LIMIT, "more than %d parallel indices", IR_MAX_RANK);
    const char *name = new_name(p);
    expect(p, ":");
    ext[s->par.n] = read_index(p);
    vars[s->par.n] = declare_var(p, name, DT_I32, VAR_LOOP, loc);
    vars[s->par.n++]->def = s;
  } while (accept(p, ","));
  s->par.vars = arena_array(p->a, IrVar *, s->par.n);
  s->par.ext = arena_array(p->a, IrExpr *, s->par.n);
  memcpy(s->par.vars, vars, sizeof(IrVar *) * (size_t)s->par.n);
  memcpy(s->par.ext, ext, sizeof(IrExpr *) * (size_t)s->par.n);
  read_block(p, &s->body);
  return s;
}

static IrStmt *read_store_or_assign(Parser *p, Loc loc) {
  if (at_buf(p)) {
    IrExpr *e = read_load(p);
    IrStmt *s = ir_new_stmt(p->k, ST_STORE, loc);
    s->store.buf = e->buf;
    s->store.idx = e->idx;
    s->store.accumulate = accept(p, "+=");
    if (!s->store.accumulate) expect(p, "=");
    s->store.value = ir_cast(p->k, e->buf->type, read_expr(p));
    s->store.atomic = s->store.accumulate && accept_word(p, "atomic");
    return s;
  }
  uint32_t id = lookup(p);
  if (!id) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not defined", show(p));
  IrStmt *s = ir_new_stmt(p->k, ST_ASSIGN, loc);
  s->set.var = p->k->vars.data[id >> 1];
  next(p);
  expect(p, "=");
  s->set.value = ir_cast(p->k, s->set.var->type, read_expr(p));
  return s;
}

static IrStmt *read_sync(Parser *p, StmtOp op, Loc loc) {
  IrStmt *s = ir_new_stmt(p->k, op, loc);
  s->hand = 1;
  if (op == ST_SET_FLAG || op == ST_WAIT_FLAG) {
    s->sync.src = read_pipe(p);
    expect(p, "->");
    s->sync.dst = read_pipe(p);
  } else if (op == ST_BARRIER || op == ST_CROSS_SET) {
    s->sync.src = read_pipe(p);
  } else if (op == ST_CROSS_WAIT) {
    s->sync.src = PIPE_NONE;
    if (p->tok.kind == T_NAME) s->sync.src = read_pipe(p);
  }
  if (op != ST_BARRIER && op != ST_SYNC_ALL) {
    expect(p, "#");
    s->sync.id = read_index(p);
  }
  s->sync.mode = 2;
  if (op == ST_CROSS_SET && accept_word(p, "mode")) {
    expect(p, "(");
    s->sync.mode = (int32_t)expect_int(p);
    expect(p, ")");
  }
  return s;
}

/* A string's bytes: \n, \t, \" and \\ stand for what they do in C. */
static const char *read_text(Parser *p) {
  if (p->tok.kind != T_STRING) fail(p, "expected a text in quotes before %s", show(p));
  Text t;
  text_init(&t, p->a);
  for (uint32_t i = 0; i < p->tok.len; i++) {
    char c = p->tok.s[i];
    if (c == '\\' && i + 1 < p->tok.len) {
      c = p->tok.s[++i];
      c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    text_putn(&t, &c, 1);
  }
  next(p);
  return text_str(&t);
}

static IrExpr *read_condition(Parser *p) {
  IrExpr *e = read_expr(p);
  return e->type == DT_BOOL ? e : ir_unary(p->k, EX_LNOT, ir_unary(p->k, EX_LNOT, e));
}

static IrStmt *read_say(Parser *p, StmtOp op, Loc loc) {
  enum { MOST = 64 };
  IrArg args[MOST];
  IrStmt *s = ir_new_stmt(p->k, op, loc);
  if (accept_word(p, "if")) {
    s->say.only = read_condition(p);
    expect(p, ",");
  }
  if (op == ST_ASSERT) {
    s->say.cond = read_condition(p);
    expect(p, ",");
  } else if (accept_word(p, "before")) {
    s->say.when = SAY_BEFORE;
  } else if (accept_word(p, "after")) {
    s->say.when = SAY_AFTER;
  }
  s->say.text = read_text(p);
  for (; accept(p, ","); s->say.n++) {
    if (s->say.n == MOST) fail_as(p, DIAG_LIMIT, "more than %d values", MOST);
    args[s->say.n] = read_arg(p, 'e');
  }
  s->say.arg = arena_array(p->a, IrArg, s->say.n + 1);
  memcpy(s->say.arg, args, sizeof(IrArg) * s->say.n);
  return s;
}

static const struct { const char *word; StmtOp op; } keywords[] = {
    {"alloc", ST_ALLOC},       {"let", ST_LET},           {"var", ST_VAR},           {"for", ST_FOR},
    {"parallel", ST_PARALLEL}, {"if", ST_IF},             {"while", ST_WHILE},       {"cube", ST_CUBE},
    {"vector", ST_VECTOR},     {"set_flag", ST_SET_FLAG}, {"wait_flag", ST_WAIT_FLAG}, {"barrier", ST_BARRIER},
    {"cross_set", ST_CROSS_SET}, {"cross_wait", ST_CROSS_WAIT}, {"sync_all", ST_SYNC_ALL}, {"break", ST_BREAK},
    {"continue", ST_CONTINUE}, {"print", ST_PRINT},       {"assert", ST_ASSERT},
};

static IrStmt *read_keyword(Parser *p, StmtOp op, Loc loc) {
  next(p);
  IrStmt *s;
  switch (op) {
  case ST_ALLOC: return read_alloc(p, loc);
  case ST_LET:
  case ST_VAR: return read_let(p, op, loc);
  case ST_FOR: return read_for(p, loc);
  case ST_PARALLEL: return read_parallel(p, loc);
  case ST_IF:
  case ST_WHILE:
    s = ir_new_stmt(p->k, op, loc);
    s->test.cond = read_expr(p);
    if (s->test.cond->type != DT_BOOL) s->test.cond = ir_unary(p->k, EX_LNOT, ir_unary(p->k, EX_LNOT, s->test.cond));
    read_block(p, &s->body);
    if (op == ST_IF && accept_word(p, "else")) read_block(p, &s->alt);
    return s;
  case ST_CUBE:
  case ST_VECTOR:
    s = ir_new_stmt(p->k, op, loc);
    read_block(p, &s->body);
    return s;
  case ST_BREAK:
  case ST_CONTINUE: return ir_new_stmt(p->k, op, loc);
  case ST_PRINT:
  case ST_ASSERT: return read_say(p, op, loc);
  default: return read_sync(p, op, loc);
  }
}

/* "@" [FILE ":"] LINE ":" COL */
static void read_loc(Parser *p, Loc *loc) {
  if (!accept(p, "@")) return;
  int64_t n[3] = {0, 0, 0};
  int count = 0;
  do n[count++] = expect_int(p);
  while (count < 3 && accept(p, ":"));
  int64_t file = count == 3 ? n[0] : 1, line = count < 2 ? -1 : n[count - 2], col = n[count - 1];
  if (line < 0 || line > INT32_MAX || col < 0)
    fail(p, "a location is @LINE:COLUMN or @FILE:LINE:COLUMN, numbers of a file's lines");
  if (file < 1 || file >= p->m->files.len)
    fail(p, "location in file %lld, the text names %u", (long long)file, p->m->files.len - 1);
  *loc = (Loc){(uint32_t)line, (uint16_t)(col > 65535 ? 65535 : col), (uint16_t)file};
}

/* Not inlined: its locals must not live in the frame that setjmp returns to. */
static __attribute__((noinline)) IrStmt *read_stmt(Parser *p) {
  Loc loc = here(p);
  int around = p->tallest; /* of the statement that this one stands in */
  p->height = p->tallest = 0;
  IrStmt *s = NULL;
  if (p->tok.kind == T_VAR) s = read_store_or_assign(p, loc);
  for (size_t i = 0; i < TL_COUNT(keywords) && !s; i++)
    if (at_word(p, keywords[i].word)) s = read_keyword(p, keywords[i].op, loc);
  for (int op = 0; op < OP_COUNT && !s; op++)
    if (at_word(p, op_info[op].name)) s = read_op(p, op, loc);
  if (!s && p->tok.kind == T_NAME) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not a statement or an op", show(p));
  if (!s) fail(p, "expected a statement before %s", show(p));
  if (is_tall(p)) {
    Limited x = {p, loc};
    ir_stmt_exprs(s, limit_canonical, &x);
    ir_say_exprs(s, limit_canonical, &x);
    if (s->op == ST_ALLOC) limit_shape(s->alloc.buf, &x);
  }
  if (p->tallest < around) p->tallest = around;
  read_loc(p, &s->loc);
  if (s->op == ST_ALLOC) s->alloc.buf->loc = s->loc;
  if (s->op == ST_LET || s->op == ST_VAR) s->set.var->loc = s->loc;
  if (s->op == ST_FOR) s->loop.var->loc = s->loc;
  return s;
}

/* Skips the rest of a bad statement that began on `line`: the line, and whole blocks that open on it. */
static void skip_stmt(Parser *p, uint32_t line) {
  int open = 0;
  for (; p->tok.kind != T_END && (p->tok.line <= line || open > 0); next(p)) {
    if (at(p, "{")) open++;
    if (at(p, "}") && open-- == 0) return;
  }
}

/* Statements up to the closing brace; a bad one is reported and skipped. */
static void read_block(Parser *p, IrBlock *b) {
  enter(p);
  expect(p, "{");
  jmp_buf *outer = p->recover, mine;
  while (!at(p, "}") && p->tok.kind != T_END) {
    volatile int depth = p->depth;
    volatile uint32_t line = p->tok.line;
    p->recover = &mine;
    if (!setjmp(mine)) {
      ir_append(b, read_stmt(p));
    } else {
      p->recover = outer; /* a lexer error while skipping leaves this block */
      p->depth = depth;
      skip_stmt(p, line);
    }
  }
  p->recover = outer;
  expect(p, "}");
  p->depth--;
}

/* ---- kernel --------------------------------------------------------------------------------------------------- */

static void read_param(Parser *p) {
  Loc loc = here(p);
  const char *name = new_name(p);
  expect(p, ":");
  IrParam param = {NULL, NULL};
  if (accept_word(p, "gm")) {
    DType t = read_dtype(p);
    IrExpr *shape[IR_MAX_RANK];
    int rank = read_shape(p, shape);
    IrBuf *b = param.buf = ir_new_buf(p->k, name, t, SPACE_GM, rank, shape, loc);
    define(p, name, b->id, true);
    b->param = (int32_t)p->k->params.len;
    b->is_out = accept_word(p, "out");
    b->is_work = accept_word(p, "workspace");
  } else {
    param.var = declare_var(p, name, read_dtype(p), VAR_PARAM, loc);
  }
  vec_push(p->a, &p->k->params, param);
}

static void read_grid(Parser *p) {
  expect_word(p, "grid");
  expect(p, "(");
  while (!at(p, ")")) {
    if (p->k->grid.len) expect(p, ",");
    if (p->k->grid.len == 3) fail_as(p, DIAG_LIMIT, "a grid of more than 3 dimensions");
    Loc loc = here(p);
    const char *name = new_name(p);
    expect(p, ":");
    IrExpr *e = read_size(p);
    vec_push(p->a, &p->k->grid_ext, e);
    vec_push(p->a, &p->k->grid, declare_var(p, name, DT_I32, VAR_GRID, loc));
  }
  expect(p, ")");
  if (accept_word(p, "vid")) {
    expect(p, "(");
    Loc loc = here(p);
    p->k->vid = declare_var(p, new_name(p), DT_I32, VAR_VID, loc);
    expect(p, ")");
  }
}

static Cores read_cores(Parser *p) {
  static const char *const cores[] = {"", "cube", "vector", "mix"};
  int c = find_word(p, cores, TL_COUNT(cores));
  if (c <= 0) fail_as(p, DIAG_UNKNOWN_NAME, "%s is not cube, vector or mix", show(p));
  next(p);
  return (Cores)c;
}

static __attribute__((noinline)) void read_kernel(Parser *p) {
  IrKernel *k = p->k;
  k->loc = here(p);
  expect_word(p, "kernel");
  expect(p, "@");
  if (p->tok.kind != T_NAME) fail(p, "expected the kernel's name before %s", show(p));
  k->name = arena_strn(p->a, p->tok.s, p->tok.len);
  next(p);
  expect(p, "(");
  while (!at(p, ")")) {
    if (k->params.len) expect(p, ",");
    read_param(p);
  }
  expect(p, ")");
  read_grid(p);
  Limited x = {p, here(p)};
  for (uint32_t i = 0; i < k->grid_ext.len && is_tall(p); i++) limit_canonical(&k->grid_ext.data[i], &x);
  for (uint32_t i = 1; i < k->bufs.len && is_tall(p); i++) limit_shape(k->bufs.data[i], &x);
  if (at_word(p, "after") || at_word(p, "lowered")) p->scale = PASSES_ADD;
  if (accept_word(p, "after")) {
    expect(p, "(");
    if (p->tok.kind != T_STRING) fail(p, "expected a pass name in quotes before %s", show(p));
    k->stage = arena_strn(p->a, p->tok.s, p->tok.len);
    next(p);
    if (accept(p, ",")) k->cores = read_cores(p);
    expect(p, ")");
  }
  if (accept_word(p, "lowered")) {
    expect(p, "(");
    k->level = LEVEL_LOWERED;
    if (p->tok.kind != T_STRING) fail(p, "expected the chip's name in quotes before %s", show(p));
    k->chip = arena_strn(p->a, p->tok.s, p->tok.len);
    next(p);
    expect(p, ",");
    k->cores = read_cores(p);
    expect(p, ")");
  }
  read_block(p, &k->body);
  read_loc(p, &k->loc);
  if (p->tok.kind != T_END) fail(p, "nothing may follow the kernel, found %s", show(p));
}

IrModule *ir_parse(Arena *a, Diags *d, const char *name, const char *text, size_t len) {
  jmp_buf top;
  Parser parser = {.a = a, .d = d, .cur = text, .end = text + len, .line_start = text, .line = 1, .recover = &top};
  parser.scale = 1;
  Parser *p = &parser;
  IrModule *m = arena_new(a, IrModule);
  m->arena = a;
  vec_push(a, &m->files, arena_str(a, name));
  m->kernel = arena_new(a, IrKernel);
  m->kernel->module = m;
  vec_push(a, &m->kernel->vars, NULL);
  vec_push(a, &m->kernel->bufs, NULL);
  p->m = m;
  p->k = m->kernel;
  uint32_t before = d->n_errors;
  if (!setjmp(top)) {
    if (p->end - p->cur >= 3 && !memcmp(p->cur, "\xef\xbb\xbf", 3)) p->line_start = p->cur += 3; /* a mark of UTF-8 */
    next(p);
    expect_head(p);
    int64_t version = expect_int(p);
    if (version != 1) fail(p, "the text is IR version %lld, this compiler reads version 1", (long long)version);
    while (accept_word(p, "file")) {
      if (p->tok.kind != T_STRING) fail(p, "expected a file name in quotes before %s", show(p));
      vec_push(a, &m->files, read_text(p));
    }
    read_kernel(p);
  }
  return d->n_errors == before ? m : NULL;
}
