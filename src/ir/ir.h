/* ir.h - the whole data model of the IR on one page. The language itself is docs/ir.md.
 *
 *   IrModule ─ files[]                       names of Python sources that Loc.file points to
 *            └ IrKernel ─ params[]           tensors (a buffer in GM) and scalars, in call order
 *                       ├ grid[]             block index variables and their extents; vid
 *                       ├ bufs[] vars[]      dense ids: side tables of analyses are arrays over them
 *                       └ body  ─ IrBlock ─ IrStmt ⇄ IrStmt ⇄ …   (doubly linked, statements nest)
 *
 * Expressions are immutable trees, shared freely; ir_binary() and friends fold constants as they build.
 * Everything lives in the module's arena. */
#ifndef TL_IR_H
#define TL_IR_H

#include "../base/base.h"

typedef enum {
#define DTYPE(id, name, np, bits, cls, cxx) DT_##id,
#include "types.def"
#undef DTYPE
  DTYPE_COUNT
} DType;

typedef enum {
#define SPACE(id, name, side, physical, doc) SPACE_##id,
#include "types.def"
#undef SPACE
  SPACE_COUNT
} Space;

typedef enum {
#define PIPE(id, name, side, in_order, cxx) PIPE_##id,
#include "types.def"
#undef PIPE
  PIPE_COUNT,
  PIPE_NONE = PIPE_COUNT
} Pipe;

typedef enum {
#define LAYOUT(id, name, doc) LAYOUT_##id,
#include "types.def"
#undef LAYOUT
  LAYOUT_COUNT
} Layout;

typedef enum {
#define CASTMODE(id, name) CAST_##id,
#include "types.def"
#undef CASTMODE
  CAST_COUNT
} CastMode;

typedef enum {
#define CMPMODE(id, name) CMP_##id,
#include "types.def"
#undef CMPMODE
  CMP_COUNT
} CmpMode;

typedef enum {
#define ATTR(id, name, value) ATTR_##id,
#include "attrs.def"
#undef ATTR
  ATTR_COUNT
} AttrKey;

typedef struct { const char *name, *np, *cxx; uint8_t bits; char cls; } DTypeInfo;
typedef struct { const char *name, *doc; char side; bool physical; } SpaceInfo;
typedef struct { const char *name, *cxx; char side; bool in_order; } PipeInfo;
extern const DTypeInfo dtype_info[DTYPE_COUNT];
extern const SpaceInfo space_info[SPACE_COUNT];
extern const PipeInfo pipe_info[PIPE_COUNT];
extern const char *const layout_name[LAYOUT_COUNT];
extern const char *const cast_name[CAST_COUNT];
extern const char *const cmp_name[CMP_COUNT];
extern const struct AttrInfo { const char *name; char value; } attr_info[ATTR_COUNT];
static inline int dtype_size(DType t) { return dtype_info[t].bits / 8; }
static inline bool dtype_is_float(DType t) { return dtype_info[t].cls == 'f'; }
static inline int dtype_values(DType t) { return dtype_info[t].cls == 'p' ? 2 : 1; } /* numbers in one element */
static inline int dtype_c0(DType t) { return 32 / dtype_size(t); } /* elements of a 32-byte block */
int64_t dtype_wrap(DType t, int64_t v);  /* v in the bits of an integer dtype, two's complement; bool: v != 0 */

/* float.c: t is a float dtype; its bits stand in the low ones. */
double float_value(DType t, uint32_t bits);
uint32_t float_bits(DType t, double v);      /* of the nearest value, ties to even */
double float_round(DType t, double v);       /* that value */
double float_round_mode(DType t, double v, CastMode mode);
double round_mode(double v, CastMode mode);  /* to a whole number */
/* v of an integer dtype; what 53 bits do not hold is folded into the last of them, so that rounding the result to a
 * float dtype is as rounding v itself. */
double float_of_int(DType from, int64_t v);
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

/* ---- expressions --------------------------------------------------------------------------------------- */

typedef enum {
  EX_INT,    /* i (bool too: 0 or 1) */
  EX_FLOAT,  /* f */
  EX_VAR,    /* var */
  EX_LOAD,   /* buf, idx[n]: one element */
  EX_CAST,   /* a converted to type */
  EX_BITS,   /* a's bits reinterpreted as type */
  EX_SELECT, /* a ? b : c, lazy */
#define EXPR(id, spelling, arity, kind, prec, result) EX_##id,
#include "exprs.def"
#undef EXPR
  EX_COUNT
} ExprOp;

typedef struct IrExpr IrExpr;
typedef struct IrVar IrVar;
typedef struct IrBuf IrBuf;
typedef struct IrStmt IrStmt;
typedef struct IrBlock IrBlock;

struct IrExpr {
  uint8_t op;   /* ExprOp */
  uint8_t type; /* DType */
  uint8_t n;    /* operands in arg[], or indices in idx[] */
  union {
    int64_t i;
    double f;
    IrVar *var;
    IrExpr *arg[3];
    struct { IrBuf *buf; IrExpr **idx; };
  };
};

typedef enum {
  VAR_PARAM, /* scalar parameter of the kernel; symbolic sizes are i32 or i64 parameters */
  VAR_GRID,  /* block index */
  VAR_VID,   /* 0 or 1: which of the two vector cores */
  VAR_LOOP,
  VAR_LET,   /* assigned once, where it is declared */
  VAR_MUT    /* `var`: may be assigned again */
} VarKind;

struct IrVar {
  uint32_t id;
  const char *name; /* without the %; unique in the kernel */
  DType type;
  VarKind kind;
  Loc loc;
  IrStmt *def; /* the for/let/var statement, or NULL */
};

/* ---- buffers and regions ---------------------------------------------------------------------------------- */

enum { IR_MAX_RANK = 6 };

struct IrBuf {
  uint32_t id;
  const char *name; /* without the %; unique in the kernel */
  DType type;
  Space space;
  Layout layout;
  uint8_t rank;
  IrExpr *shape[IR_MAX_RANK]; /* constants, except for GM */
  int64_t addr;   /* byte address in its space; -1: not planned yet */
  int32_t versions; /* extent of the leading dimension that the pipeline pass gave it; 0: none */
  IrBuf *view;    /* local: this one is the bytes of `view` under another dtype or shape; NULL: bytes of its own */
  int32_t param;  /* index into kernel params, or -1 */
  bool is_out;    /* `out`: allocated by the caller's runtime and returned */
  bool is_work;   /* `workspace`: allocated by the runtime, not returned */
  Loc loc;
  const char *why; /* set by passes: how the space was chosen (explain) */
};

/* The buffer that owns the bytes. */
static inline IrBuf *ir_root(IrBuf *b) {
  while (b->view) b = b->view;
  return b;
}

/* A box of a buffer: per dimension offset and extent, in elements. */
typedef struct { IrBuf *buf; IrExpr *off[IR_MAX_RANK], *ext[IR_MAX_RANK]; } IrRegion;

typedef enum { ARG_REGION, ARG_SCALAR } ArgKind;
typedef struct { ArgKind kind; IrRegion region; IrExpr *scalar; } IrArg;
typedef struct { AttrKey key; IrExpr *value; } IrAttr; /* modes and flags are EX_INT */

/* ---- statements ------------------------------------------------------------------------------------------- */

typedef enum {
#define OP(id, name, level, pipe, in, out, dtypes, spaces, attrs, cost, doc) OP_##id,
#include "ops.def"
#undef OP
  OP_COUNT,
  ST_ALLOC = OP_COUNT, /* alloc %x: space dtype[shape] */
  ST_LET,              /* let %v: t = e        snapshot */
  ST_VAR,              /* var %v: t = e        may be assigned */
  ST_ASSIGN,           /* %v = e */
  ST_STORE,            /* %b[i, j] = e   or += e (accumulate), += e atomic */
  ST_FOR,              /* for %i in lo..hi [step s] [pipeline(n)] { } */
  ST_PARALLEL,         /* parallel %i: n, %j: m { stores, ifs and lets }   source only */
  ST_IF,
  ST_WHILE,
  ST_CUBE,             /* cube { }    runs on the cube core only */
  ST_VECTOR,           /* vector { }  runs on the vector cores only */
  ST_SET_FLAG,         /* set_flag p -> q #id */
  ST_WAIT_FLAG,        /* wait_flag p -> q #id: q waits */
  ST_BARRIER,          /* barrier p */
  ST_CROSS_SET,        /* cross_set p #id mode(n) */
  ST_CROSS_WAIT,       /* cross_wait [p] #id */
  ST_SYNC_ALL,         /* all cores of the launch */
  ST_BREAK,
  ST_CONTINUE,
  ST_PRINT,            /* print [before | after] "text" {, arg}: nothing but a look */
  ST_ASSERT,           /* assert e, "text" {, arg} */
  ST_COUNT
} StmtOp;

typedef enum {
  RULE_ANY,   /* no relation */
  RULE_SAME,  /* all operands one dtype */
  RULE_MMAD,  /* A and B one dtype, the accumulator what arch_product says: f32, or i32 for i8 and i4x2 */
  RULE_FIX,   /* f32 -> f32 f16 bf16;  i32 -> i32 */
  RULE_ARITH, /* SAME; vector hardware of A2/A3: f16 f32 i16 i32 */
  RULE_FLOAT, /* SAME; f16 f32 */
  RULE_RELU,  /* SAME; f16 f32 i32 */
  RULE_INT,   /* SAME; i16 i32 u16 u32 */
  RULE_BITS,  /* SAME; i16 u16 */
  RULE_CAST,  /* pairs of the arch table */
  RULE_CMP,   /* a, b: f16 f32 (i32 for eq); mask: u8 */
  RULE_SEL,   /* mask: u8; a, b, dst: f16 f32 */
  RULE_MOVED, /* SAME, 16 or 32 bits; a tile of bits: u16 or u32 */
  RULE_INDEX, /* a, dst: SAME, 16 or 32 bits; b: i32 u32 */
  RULE_PACK,  /* one side i4x2, the other f16 */
  RULE_SCORE  /* score, dst: SAME, f16 f32; index: i32 u32 */
} DTypeRule; /* the dtype lists hold at the lowered level; at source level any dtype is legalised */

typedef struct {
  const char *name;
  char level; /* 's' 'l' 'b' */
  Pipe pipe;
  const char *in, *out; /* letters of ops.def */
  DTypeRule dtypes;
  const char *spaces;
  uint32_t attrs;
  const char *cost;
  const char *doc;
} OpInfo;
extern const OpInfo op_info[OP_COUNT];

typedef enum { SAY_HERE, SAY_BEFORE, SAY_AFTER } SayWhen; /* print: in the program, or around the whole launch */

struct IrBlock { IrStmt *first, *last; IrStmt *parent; /* NULL: kernel body */ };

struct IrStmt {
  uint32_t id; /* dense, unique in the kernel */
  uint16_t op; /* StmtOp */
  uint8_t n_args, n_attrs;
  uint8_t hand; /* 1: synchronisation written by the user, 2: inserted by the sync pass */
  Loc loc;
  IrStmt *prev, *next;
  IrBlock *block;
  IrArg *args; /* inputs in order, then outputs (ops of ops.def only) */
  IrAttr *attrs;
  IrBlock body, alt; /* for, parallel, if (alt = else), while, cube, vector */
  union {
    struct { IrVar *var; IrExpr *lo, *hi, *step; int32_t stages; bool ordered; } loop; /* stages 0: plain serial */
    struct { IrVar **vars; IrExpr **ext; int32_t n; } par;
    struct { IrExpr *cond; } test;                /* if, while */
    struct { IrVar *var; IrExpr *value; } set;    /* let, var, assign */
    struct { IrBuf *buf; IrExpr **idx; IrExpr *value; bool accumulate, atomic; } store;
    struct { IrBuf *buf; } alloc;
    struct { Pipe src, dst; IrExpr *id; int32_t mode; } sync; /* barrier, cross_*: src only */
    struct { const char *text; IrExpr *only, *cond; IrArg *arg; uint8_t n, when, side; } say; /* not among args */
  };
  const char *why; /* set by passes: which hazard a flag orders, why a loop is scalar (explain) */
};

typedef enum { LEVEL_SOURCE, LEVEL_LOWERED } Level;
/* What holds of a program, as passes need, give and break it. */
enum {
  FACT_SPACES = 1,    /* every buffer has a physical space */
  FACT_TILES = 2,     /* no `parallel` */
  FACT_SIDES = 4,     /* kernel->cores is set, statements stand in cube/vector blocks */
  FACT_LOWERED = 8,   /* instructions only; flags may be missing */
  FACT_ADDRESSES = 16,
  FACT_SYNCED = 32
};

/* Which cores a kernel runs on; set by the split pass. mix: one block = 1 cube + 2 vector cores. */
typedef enum { CORES_UNSET, CORES_CUBE, CORES_VECTOR, CORES_MIX } Cores;

typedef struct { IrVar *var; /* scalar */ IrBuf *buf; /* or tensor */ } IrParam;

typedef struct {
  struct IrModule *module;
  const char *name;
  Loc loc;
  Level level;
  uint32_t facts;              /* given by the passes that ran: their rules hold, too */
  Cores cores;
  const char *stage;           /* source: the last pass that ran, or NULL; the text resumes after it */
  const char *chip;            /* lowered: the chip it was lowered for */
  Vec(IrParam) params;
  Vec(IrVar *) grid;           /* at most 3 */
  Vec(IrExpr *) grid_ext;
  IrVar *vid;                  /* NULL: the kernel does not name the vector cores */
  Vec(IrBuf *) bufs;           /* by id; id 0 is NULL */
  Vec(IrVar *) vars;           /* by id; id 0 is NULL */
  uint32_t n_stmts;
  IrBlock body;
} IrKernel;

typedef struct IrModule {
  Arena *arena;
  Vec(const char *) files; /* [0] is the name of the .tl text */
  IrKernel *kernel;
} IrModule;

/* ---- build.c: the only writer of links; simplifies expressions as it builds them ------------------------- */

IrExpr *ir_int(IrKernel *k, DType t, int64_t v);
static inline IrExpr *ir_i32(IrKernel *k, int64_t v) { return ir_int(k, DT_I32, v); }
IrExpr *ir_float(IrKernel *k, DType t, double v);
IrExpr *ir_var(IrKernel *k, IrVar *v);
IrExpr *ir_load(IrKernel *k, IrBuf *b, IrExpr **idx); /* rank(b) indices, copied */
IrExpr *ir_unary(IrKernel *k, ExprOp op, IrExpr *a);
IrExpr *ir_binary(IrKernel *k, ExprOp op, IrExpr *a, IrExpr *b); /* operands converted to a common dtype */
IrExpr *ir_select(IrKernel *k, IrExpr *c, IrExpr *a, IrExpr *b);
IrExpr *ir_cast(IrKernel *k, DType t, IrExpr *a);
IrExpr *ir_bits(IrKernel *k, DType t, IrExpr *a);
DType ir_common_type(const IrExpr *a, const IrExpr *b); /* an int literal adopts the other side's dtype */
static inline bool ir_is_int(const IrExpr *e, int64_t v) { return e->op == EX_INT && e->i == v; }
static inline bool ir_is_zero(const IrExpr *e) { return ir_is_int(e, 0) || (e->op == EX_FLOAT && e->f == 0); }
static inline bool ir_is_const(const IrExpr *e) { return e->op == EX_INT; }
bool ir_expr_equal(const IrExpr *a, const IrExpr *b); /* structural */
/* e with every occurrence of v replaced. */
IrExpr *ir_subst(IrKernel *k, IrExpr *e, const IrVar *v, IrExpr *by);
void ir_subst_block(IrKernel *k, IrBlock *b, const IrVar *v, IrExpr *by); /* in all that stands there, in prints too */
/* e with every load that f has something else for replaced; f returns NULL to keep it. Inner loads come first. */
IrExpr *ir_replace_loads(IrKernel *k, IrExpr *e, IrExpr *(*f)(void *user, IrExpr *load), void *user);

IrVar *ir_new_var(IrKernel *k, const char *name, DType t, VarKind kind, Loc loc); /* name made unique */
IrBuf *ir_new_buf(IrKernel *k, const char *name, DType t, Space s, int rank, IrExpr **shape, Loc loc);
IrStmt *ir_new_stmt(IrKernel *k, StmtOp op, Loc loc);           /* not linked yet */
/* A statement of ops.def; n_args regions/scalars, inputs first. */
IrStmt *ir_new_op(IrKernel *k, StmtOp op, Loc loc, int n_args, const IrArg *args);
void ir_append(IrBlock *b, IrStmt *s);
void ir_insert_before(IrStmt *at, IrStmt *s);
void ir_insert_after(IrStmt *at, IrStmt *s);
void ir_remove(IrStmt *s);
void ir_replace_with_block(IrStmt *at, IrBlock *b); /* splice b's statements in place of `at` */
/* Deep copy of a statement or block; variables and buffers declared inside are renewed. */
IrStmt *ir_clone(IrKernel *k, const IrStmt *s);

IrExpr *ir_attr(const IrStmt *s, AttrKey key); /* NULL when absent */
int64_t ir_attr_int(const IrStmt *s, AttrKey key, int64_t otherwise);
void ir_set_attr(IrKernel *k, IrStmt *s, AttrKey key, IrExpr *value);
void ir_drop_attr(IrStmt *s, AttrKey key);
IrRegion ir_whole(IrKernel *k, IrBuf *b);
static inline IrArg ir_arg_region(IrRegion r) { IrArg a = {ARG_REGION, r, NULL}; return a; }
static inline IrArg ir_arg_scalar(IrExpr *e) { IrArg a = {ARG_SCALAR, {0}, e}; return a; }
static inline int ir_n_in(StmtOp op) { return op < OP_COUNT ? (int)__builtin_strlen(op_info[op].in) : 0; }
static inline bool ir_is_op(const IrStmt *s) { return s->op < OP_COUNT; }
static inline bool ir_is_side(const IrStmt *s) { return s->op == ST_CUBE || s->op == ST_VECTOR; }
/* Is a memory or pipe of that side out of reach in a cube or vector block? block NULL: around both. */
static inline bool ir_wrong_side(const IrStmt *block, char side) {
  return block && side != 'b' && side != (block->op == ST_CUBE ? 'c' : 'v');
}
bool ir_has_body(StmtOp op);
/* Can a DMA add elements of a dtype to global memory? IR_ADDS says which. */
static inline bool ir_gm_adds(DType t) {
  return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_I8 || t == DT_I16 || t == DT_I32;
}
#define IR_ADDS "f16, bf16, f32, i8, i16 and i32"
static inline bool ir_is_say(const IrStmt *s) { return s->op == ST_PRINT || s->op == ST_ASSERT; }

/* ---- parse.c / print.c --------------------------------------------------------------------------------------- */

/* NULL after errors, all of them in d. `name` is what messages call the text. */
IrModule *ir_parse(Arena *a, Diags *d, const char *name, const char *text, size_t len);
void ir_print(Text *t, const IrModule *m);           /* canonical: print(parse(print(m))) == print(m) */
void ir_print_stmt(Text *t, const IrKernel *k, const IrStmt *s); /* one line, no location, no body */
/* What reading the text takes: calls of the reader inside each other, and levels of the tree that it walks. */
typedef struct { int nest, height; } IrLevels;
IrLevels ir_print_expr(Text *t, const IrExpr *e);
void ir_print_region(Text *t, const IrRegion *r);
void ir_json(Text *t, const IrModule *m);            /* json.c says what it holds */
const char *ir_expr_str(Arena *a, const IrExpr *e);
const char *ir_region_str(Arena *a, const IrRegion *r);                 /* "%a[0 +: 16, %k * 64 +: 64]" */
const char *ir_shape_str(Arena *a, IrExpr *const *ext, int n);          /* "[64, 64]" */
const char *ir_loc_str(Arena *a, const IrModule *m, Loc loc); /* "gemm.py:14:9" */

/* ---- verify.c: the numbered rules of docs/ir.md ------------------------------------------------------------- */

bool ir_verify(const IrModule *m, Diags *d); /* level rules of m->kernel->level; false after any error */
/* The rules of one op, apart from names and bounds; side: the cube or vector block around it, or NULL. */
void ir_verify_op(IrKernel *k, Diags *d, const IrStmt *s, const IrStmt *side);

/* ---- walk.c ------------------------------------------------------------------------------------------------------ */

/* Calls f on every statement of b, outer before inner, in program order; stops when f returns false.
 * f may remove or replace the statement it is given. */
typedef bool (*IrVisit)(IrStmt *s, void *user);
bool ir_walk(IrBlock *b, IrVisit f, void *user);
/* Calls f on e and all its sub-expressions. */
void ir_walk_expr(IrExpr *e, void (*f)(IrExpr *e, void *user), void *user);
/* Calls f on every root expression of s itself (not of its body). */
void ir_stmt_exprs(IrStmt *s, void (*f)(IrExpr **e, void *user), void *user);
void ir_say_exprs(IrStmt *s, void (*f)(IrExpr **e, void *user), void *user); /* those of print and assert */
/* Does e, or s and what stands in it, use v? Prints and assertions are not looked at. */
bool ir_expr_uses(IrExpr *e, const IrVar *v);
bool ir_stmt_uses(IrStmt *s, const IrVar *v);
bool ir_expr_loads(IrExpr *e, IrBuf *b); /* elements of b, under whatever name */
bool ir_stmt_feeds(const IrStmt *s, IrExpr *e); /* does s, not what stands in it, write what e reads? */
/* Is there such a jump of the loop with body b? Inner loops keep theirs. */
bool ir_has_jump(const IrBlock *b, StmtOp jump);
bool ir_leaves_loop(const IrBlock *b); /* a break or a continue */
bool ir_stands_in(const IrStmt *s, const IrStmt *outer); /* s is `outer`, or below it */
const IrStmt *ir_side_of(const IrStmt *s);               /* the cube or vector block around s; NULL: none */
bool ir_has_sides(IrKernel *k);                          /* is there such a block? */
/* Does s, or a statement in it, read or write bytes of b, under whatever name? Prints do not count. */
bool ir_stmt_names(IrStmt *s, IrBuf *b);
/* Reads memory or a `var`: may have another value later. */
bool ir_expr_varies(IrExpr *e);
void ir_hoist_allocs(IrKernel *k); /* all allocs to the start of the kernel's body, in program order */
void ir_renumber(IrKernel *k); /* statement ids in program order, from 1; a print has that of the one before */

bool ir_region_equal(const IrRegion *a, const IrRegion *b); /* same buffer, same bounds by structure */
bool ir_region_is_whole(const IrRegion *r);

/* A region as the rows of a matrix: element (r, c) stands at off + r * pitch + c elements of the buffer
 * (ND layouts). Dimensions of extent 1 vanish, contiguous ones merge. */
typedef struct { IrExpr *off, *rows, *cols, *pitch; } IrRows;
bool ir_rows(IrKernel *k, const IrRegion *r, IrRows *out); /* false: more than two strides are needed */
IrExpr *ir_count(IrKernel *k, const IrRegion *r);          /* product of the extents */

/* ---- say.c: print and assert look at a program and are no part of it. Passes carry them along and see nothing of
 * what they name; docs/ir.md says what their texts may hold. */

typedef struct { const char *at; int len; char conv; bool count; } IrSpec; /* "%*t": count; conv 't' takes a tile */
bool ir_next_spec(const char **text, IrSpec *out); /* the next conversion of a text; %% is none */
int ir_count_says(const IrKernel *k);
/* Takes them out, and the loops and ifs that held nothing else. keep: one for each in the order of ir_walk, those that
 * are true stay; NULL: none. */
void ir_drop_says(IrKernel *k, const bool *keep);
/* An `if` on elements around nothing but prints and assertions becomes their own condition, `print if`: they look at
 * the elements as they look at what they show, and the program needs them no more than before. */
void ir_guard_says(IrKernel *k);

/* ---- vec.c: the one reading of a vector instruction's operands (simulator, writers, verifier, legalize) ---- */

/* Element (r, c) of operand i stands at off + r * pitch + c (block: off + r * pitch + c % C0) elements; pitch 0: the
 * same row for all. rows 1 is the flat form. Scalars and absent operands have off NULL. Masks of compare/select: off
 * only. row_*: operand 0 is rows x cols, element r of operand 1 is at off + r. brcb: rows = n, cols = C0. */
enum { IR_VEC_ARGS = 4 };
typedef struct {
  IrExpr *rows, *cols;
  struct { IrExpr *off; int64_t pitch; bool block; } arg[IR_VEC_ARGS];
} IrVec;
bool ir_vec(IrKernel *k, const IrStmt *s, IrVec *out); /* false: the operands do not have one of the forms */

/* ---- affine.c ------------------------------------------------------------------------------------------------- */

/* Interval of an integer expression from the bounds of loops, grid and params; INT64_MIN/MAX when open. */
typedef struct { int64_t lo, hi; } IrRange;
#define IR_OPEN ((IrRange){INT64_MIN, INT64_MAX})
IrRange ir_range(const IrKernel *k, const IrExpr *e);
/* The same, of what `var` says of the variables that occur (conditions are 0 or 1). A `var` that evaluates an
 * expression itself hands on depth + 1: beyond a limit all is open. Depth is 0 for others. A `let` may be seen through
 * to its value. */
typedef IrRange IrVarRange(const void *user, const IrVar *v, int depth);
IrRange ir_range_in(const IrExpr *e, IrVarRange *var, const void *user, int depth);
/* True only if a <= b is proven for all values of the variables. */
bool ir_prove_le(IrKernel *k, IrExpr *a, IrExpr *b);
/* a - b as a constant, if it is one. */
bool ir_const_diff(IrKernel *k, IrExpr *a, IrExpr *b, int64_t *diff);
IrStmt *ir_child_of(const IrBlock *b, IrStmt *s);    /* the ancestor of s that is a direct child of b; NULL: none */
IrBlock *ir_common_block(IrStmt *a, IrStmt *b);      /* the innermost block that holds ancestors of both */
/* Does what is written there to order e after d order e2 after d2, too? The pipes are the same. */
bool ir_orders_too(IrStmt *d, IrStmt *e, IrStmt *d2, IrStmt *e2);
/* Flags of the language: for an ordered pair of pipes, and across cores; the chips have as many (arch.c). */
enum { IR_FLAGS = 8, IR_CROSS_FLAGS = 16 };
/* What to write so that e, on pipe q, comes after d, on pipe p of the same core (flags.c). ahead: p does not wait for q
 * before it comes there again. */
const char *ir_order_fix(Arena *a, const IrKernel *k, IrStmt *d, Pipe p, IrStmt *e, Pipe q, bool ahead);
/* The n-th cross-core flag, from 0, that the program does not name; the last there is, if it names them all. */
int ir_free_cross_flag(const IrKernel *k, int64_t n);
bool ir_loop_runs(IrKernel *k, const IrStmt *loop); /* a `for` that is proven to have a trip */
bool ir_never_runs(IrKernel *k, const IrStmt *loop); /* ... to have none */
/* The exponent of a power of two, 30 at most, that divides e for all values of its variables. */
int ir_pow2(const IrKernel *k, const IrExpr *e);

/* e mod m of an e made of constants; false: it has another part that is not proven to vanish. */
bool ir_residue(const IrExpr *e, int64_t m, int64_t *out);

/* Bytes of a buffer as it lies in memory, padding of fractals and 32-byte rows included; GM: -1 if dynamic. */
int64_t ir_buf_bytes(const IrBuf *b);
/* Elements of a line of a fractal: a block of 32 bytes; in L0C 16, whatever their size. */
static inline int64_t ir_c0(Space s, DType t) { return s == SPACE_L0C ? 16 : dtype_c0(t); }
/* A fractal of a layout other than ND, in elements of the matrix: 16 lines; of ZN they are columns. */
typedef struct { int64_t rows, cols; } IrFractal;
static inline IrFractal ir_fractal(Layout l, Space s, DType t) {
  return l == LAYOUT_ZN ? (IrFractal){ir_c0(s, t), 16} : (IrFractal){16, ir_c0(s, t)};
}
/* Element offset of (row, col) in a fractal layout whose matrix is [rows, cols]; ND excluded. */
int64_t ir_fractal_offset(Layout l, Space s, DType t, int64_t rows, int64_t cols, int64_t r, int64_t c);
bool ir_cube_writes(DType from, DType to); /* can sums leave L0C so? Other dtypes go through UB, whose cores convert */
/* The dimension in which operand `arg` of an instruction of the cube's memories, or of a product, is known to start
 * inside a fractal, with the elements it must start on a multiple of; -1: none is known. */
int ir_fractal_split(const IrStmt *s, int arg, int *unit);
bool ir_starts_inside(const IrRegion *sums); /* is it known to start inside a fractal of L0C, of 16 columns? */

#endif
