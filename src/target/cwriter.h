/* cwriter.h - what both C++ writers share: lines and indentation, names, scalar expressions, control flow.
 *
 * A dialect gives the statements their spelling; cw_block walks the program and calls it. Private to src/target. */
#ifndef TL_CWRITER_H
#define TL_CWRITER_H

#include "target.h"

typedef struct CWriter CWriter;

typedef struct {
  const char *title;         /* "Ascend C": for messages */
  const char *const *names;  /* identifiers the dialect uses itself; ends with NULL */
  const char *func_prefix;   /* what stands before a function that runs on the chip */
  void (*load)(CWriter *w, Text *t, const IrExpr *e); /* one element, as an expression */
  void (*store)(CWriter *w, const IrStmt *s);
  void (*stmt)(CWriter *w, const IrStmt *s);          /* ops and synchronisation */
  /* The cache line of an element of GM, out of what the scalar unit sees: others write there. */
  void (*flush)(CWriter *w, const IrBuf *b, IrExpr *off);
  void (*tensor)(CWriter *w, const IrBuf *b, const char *at); /* declares a tensor at the address of a parameter */
  const char *no_host;       /* the macro under which there is no host part */
  const char *bf16_to_float, *bf16_from_float;        /* function names */
  const char *e4m3, *e5m2;                            /* types, on the 950 */
  const char *float_to_int;                           /* "%sOf": called with Floor, Ceil, Rint; NULL: none */
} CDialect;

/* Small functions that the output defines when a body needs them. The first ones are the same in every dialect. */
typedef struct { const char *name, *text; } CHelper;
enum {
  HELP_MIN,
  HELP_MAX,
  HELP_FLOOR_DIV,
  HELP_FLOOR_MOD,
  HELP_ABS,
  HELP_BITS,
#define HELPER(id, name, text) HELP_##id,
#include "scalar.def"
#undef HELPER
  HELP_SHARED
};
extern const CHelper cw_helpers[HELP_SHARED]; /* text: %s is func_prefix */

/* A parameter in the order of the call: tensors and the user's scalars, then symbolic sizes. */
typedef struct { const IrParam *p; bool is_size; } CParam;

struct CWriter {
  Arena *arena;
  Diags *diags;
  IrKernel *k;               /* only read; expressions are built in the arena of its module */
  const Arch *arch;
  const CDialect *dialect;
  void *own;                 /* the dialect's own state */
  Text out;
  int indent;
  const char **var_name, **buf_name; /* by id */
  uint32_t n_vars;           /* length of var_name: kernel variables, then temporaries */
  Loc last;                  /* of the last `// file:line` */
  const IrStmt *at;          /* the statement being written: for messages */
  bool host;                 /* writing code that runs on the host: no helpers */
  uint64_t helpers;          /* bit HELP_*: used */
  bool failed;
  /* set by cw_begin */
  CParam *params;
  int n_params;
  bool *gm_written;          /* by buffer: some statement writes it, or a view of it */
  bool crosses, mix;         /* it has flags between cores; it is started with the address of such flags */
};

void cw_init(CWriter *w, Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const CDialect *dialect);

/* ---- lines ---- */
#define cw_fmt(w, ...) arena_printf((w)->arena, __VA_ARGS__) /* text for a piece of a line */
void cw_line(CWriter *w, const char *fmt, ...) TL_PRINTF(2, 3);
void cw_open(CWriter *w, const char *fmt, ...) TL_PRINTF(2, 3); /* the line, then " {" and one step deeper */
void cw_scope(CWriter *w);                                      /* a bare "{" */
void cw_close(CWriter *w);
void cw_block(CWriter *w, const IrBlock *b);
void cw_use(CWriter *w, int helper);

/* ---- names ---- */
const char *cw_file(const CWriter *w, Loc loc);                /* base name of the Python source */
const char *cw_fresh(CWriter *w, const char *want);             /* a name nothing in the kernel has */
/* "s_1", or "s_1" of "s_": a double underscore belongs to the compiler. */
const char *cw_numbered(CWriter *w, const char *s, int i);
/* e under a short name: a literal or a variable stays itself, anything else gets a line `const T name = e;`. */
IrExpr *cw_bind(CWriter *w, IrExpr *e, const char *name);
bool cw_needs_name(const IrExpr *e);                             /* would cw_bind write a line? */
IrExpr *cw_temp(CWriter *w, DType t, const char *name);          /* a variable the dialect declares itself */

/* ---- expressions ---- */
void cw_expr(CWriter *w, Text *t, const IrExpr *e);
const char *cw_str(CWriter *w, const IrExpr *e);
const char *cw_atom(CWriter *w, const IrExpr *e);               /* in parentheses unless it binds tightest */
const char *cw_scalar(CWriter *w, IrExpr *e, DType t);          /* converted, of exactly the C++ type of t */
const char *cw_type(DType t);                                   /* C++ type of a scalar or element */
const char *cw_element(const CWriter *w, DType t);              /* C++ type of the elements of a tensor */
bool cw_not_negative(const CWriter *w, const IrExpr *e);
bool cw_is_size(const CWriter *w, const IrVar *v);              /* a scalar parameter that stands in a tensor's shape */
bool cw_has_size(const CWriter *w, const IrExpr *e);            /* one occurs in e, so e has 64 bits in C++ */

/* The bits of e once in every element of its size that the integer type `view` holds. */
IrExpr *cw_repeated(CWriter *w, IrExpr *e, DType view);

IrExpr *cw_op(CWriter *w, ExprOp op, IrExpr *a, IrExpr *b);
IrExpr *cw_num(CWriter *w, int64_t v);
IrExpr *cw_mul(CWriter *w, IrExpr *a, int64_t b);
IrExpr *cw_round_up(CWriter *w, IrExpr *a, int64_t to);
IrExpr *cw_ceil_div(CWriter *w, IrExpr *a, int64_t by);
/* The condition under which an instruction of these extents does something; NULL: always. */
IrExpr *cw_guard(CWriter *w, IrExpr *rows, IrExpr *cols);

/* ---- regions ---- */
/* A GM region as a matrix whose columns are contiguous: `cols` is its last dimension. false: needs more strides. */
bool cw_gm_matrix(CWriter *w, const IrRegion *r, IrRows *out);
/* The last two dimensions of a region in a fractal layout; `plane` is the element offset of the leading ones. */
typedef struct { IrExpr *plane, *r, *c, *rows, *cols; int64_t plane_rows, plane_cols; } CBox;
bool cw_box(CWriter *w, const IrRegion *r, CBox *out);
/* Row views of several regions made to agree with the one that has most rows. false: they do not. */
bool cw_rows(CWriter *w, const IrRegion *const *reg, IrRows *rows, int n);
IrExpr *cw_offset(CWriter *w, const IrBuf *b, IrExpr *const *idx); /* row-major element offset */
/* Offset of a box of an NZ tile: whole columns of fractals, then rows of C0 elements. */
IrExpr *cw_nz_offset(CWriter *w, const IrBuf *buf, const CBox *b);
/* The i-th row of an arange into a tile whose rows lie apart, as a statement of its own; NULL past the last one, or if
 * their number is not known. */
const IrStmt *cw_arange_row(CWriter *w, const IrStmt *s, int64_t i);

/* ---- refusals: TL09xx ---- */
/* False after a refusal: no instruction of the chip does this, whatever the language (chip.c). */
bool cw_chip_has(CWriter *w, const IrStmt *s);
bool cw_scalar_reaches(CWriter *w, const IrBuf *b);
void cw_refuse(CWriter *w, DiagCode code, const char *fix, const char *fmt, ...) TL_PRINTF(4, 5);

/* ---- the file around the kernel (kernel.c) ---- */
/* Before anything else. False after a diagnostic: it is not lowered, or a buffer has no address. */
bool cw_begin(CWriter *w, Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const CDialect *dialect);
int cw_params(CWriter *w, CParam **out); /* how many there are */
void cw_kernel_params(CWriter *w, Text *t, const char *pointer); /* their declarations; pointer: type of a tensor's */
void cw_kernel_tensors(CWriter *w); /* tensors and their views; narrow scalars get back their dtypes */
/* Indices of the grid from the number of the block; sub_block: of the vector core, an expression. */
void cw_kernel_grid(CWriter *w, const char *block, const char *sub_block);
void cw_header(CWriter *w, Text *t, const char *includes);
void cw_put_helpers(CWriter *w, Text *t, const CHelper *own, int n_own); /* own ones are numbered from HELP_SHARED */
void cw_host_part(CWriter *w, Text *t); /* `call`: how many blocks, and the launch; nothing may be written behind it */
const char *cw_launch_type(const CParam *p); /* across the launch: narrow floats travel as float, sizes as int64_t */
bool cw_scans(const IrBlock *b, bool (*f)(const IrStmt *s, void *user), void *user); /* f holds for some statement */
bool cw_side_syncs(CWriter *w, int side);   /* a core of ST_CUBE or ST_VECTOR waits for all cores */

#endif
