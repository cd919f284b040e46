/* parallel.h - what the files of the parallel pass share. Private to them.
 *
 *   parallel.c         the pass: bodies, statements, accumulators that start at zero, loops around smaller boxes
 *   parallel_gemm.c    sums of products that go to the cube
 *   parallel_store.c   left sides: stores, sums, scatters
 *   parallel_expr.c    right sides: expressions as vector ops
 *   parallel_access.c  element accesses as regions
 *   parallel_lanes.c   stores that take turns
 *   parallel_emit.c    statements, loops and temporaries */
#ifndef TL_PASS_PARALLEL_H
#define TL_PASS_PARALLEL_H

#include "pass.h"

enum { MAX_AXES = IR_MAX_RANK };
/* Cycles of one trip of a scalar loop (two reads of UB, convert, add, write of UB) on A2: measured 18.4 ns. */
enum { CYCLES_PER_ELEMENT = 34 };

/* One dimension of the box a statement runs over: a parallel index with its extent. */
typedef struct {
  IrVar *var;
  IrExpr *ext;
  int64_t cap; /* largest value of ext; -1: unknown */
} Axis;

typedef struct { Axis ax[MAX_AXES]; int n; } Box;
typedef struct { IrBuf *buf; uint32_t span; bool mask, busy; } Temp;
typedef struct { IrVar *var; IrExpr *by; } LetValue;
typedef struct { IrRegion from; IrBuf *tile; } GmTile; /* a piece of GM that already stands in a temporary */

/* Of the kernel as it came, for all its parallel loops. */
typedef struct {
  int n_names;           /* counts the names of temporaries */
  const bool *cube_only; /* by id of buffer: a tile that is loaded and multiplied, and nothing else: it takes no UB */
  uint32_t n_bufs;       /* later ones are temporaries */
} ParFacts;

/* What one `parallel` statement needs while it is taken apart. */
typedef struct {
  PassCtx *p;
  IrKernel *k;
  IrStmt *stmt;       /* the parallel being replaced */
  IrBlock *root;      /* what replaces it */
  IrBlock *cur;       /* where statements go */
  IrBlock *allocs;    /* temporaries of the statement, put before root */
  Loc loc;
  Axis all[MAX_AXES]; /* the indices of the parallel */
  int n_all;
  Axis ax[MAX_AXES];  /* the box of the statement at hand */
  int n;
  uint32_t full;      /* the axes that the left side spans */
  bool loose_dst;     /* the left side's dimensions do not stand where the box has them */
  Vec(LetValue) lets; /* lets of the body and what stands for them */
  Vec(Temp) temps;    /* reusable from one operation to the next */
  Vec(GmTile) gm;
  int64_t temp_bytes; /* allocated by the statement at hand */
  bool unsized;       /* a temporary of unknown size was needed */
  int choosing;       /* depth of selects around the expression at hand: what they leave out may lie outside */
  int rounding;       /* depth of roundings to whole numbers around it: a quotient must not be an ulp off */
  ParFacts *facts;
} Par;

/* The box at hand, to be put back when another one is done. */
static inline Box par_box(const Par *v) {
  Box b = {.n = v->n};
  for (int i = 0; i < MAX_AXES; i++) b.ax[i] = v->ax[i];
  return b;
}
static inline void par_put_box(Par *v, const Box *b) {
  for (int i = 0; i < MAX_AXES; i++) v->ax[i] = b->ax[i];
  v->n = b->n;
}

/* How one buffer access relates to the axes in `mask`; the others count as fixed. */
typedef struct {
  bool ok;
  const char *why, *fix;       /* when not ok */
  bool column;                 /* not ok only because the last index does not move */
  IrRegion r;
  int8_t axis[IR_MAX_RANK];    /* axis that dimension d runs over, -1: fixed */
  uint32_t span;               /* set of axes */
  bool aligned;                /* dimensions stand where those of the box stand */
} Access;

/* A statement `buf[idx] = value` (or sum, maximum, minimum over the absent axes) on its way to tile ops. */
typedef enum { WORK_SET, WORK_SUM, WORK_MAX, WORK_MIN, WORK_AND, WORK_OR, WORK_XOR } WorkKind;
typedef struct { ExprOp combine; StmtOp op, reduce; } WorkFold; /* of two values, of two tiles, of an axis */
extern const WorkFold par_fold[];
typedef struct {
  WorkKind kind;
  IrBuf *buf;
  IrExpr **idx;
  IrExpr *value;
  IrExpr *guard; /* NULL or a condition that depends on the axes */
  bool fresh;    /* the destination of a sum holds nothing yet */
  bool spelled;  /* the source accumulates: nothing written before means zero */
  bool atomic;   /* a sum into a tensor that other blocks add to as well */
} Work;

typedef struct {
  IrExpr *scalar; /* NULL: a region */
  IrRegion r;
  DType type;
  uint32_t span;
  const int8_t *dim; /* dimension of r that an axis of the span stands in; NULL: the axis itself */
  bool loose;        /* dimensions do not stand where the box has them: good only beside operands of the same span */
  IrBuf *temp;       /* the pool's tile behind r; may be overwritten and must be released */
} Val;

/* ---- parallel_access.c ---- */
uint32_t par_axes_of(const Par *v, const IrExpr *e);
uint32_t par_left_axes(const Par *v, const Work *w);
bool par_reads_buf(const IrExpr *e, const IrBuf *b);
bool par_proven_inside(Par *v, IrExpr *e); /* no element that e loads lies outside its tile */
typedef struct { int axis; int64_t coef; IrExpr *rest; bool ok; } Linear; /* coef * axis + rest; axis -1: none */
Linear par_linear(const Par *v, IrExpr *e, uint32_t mask); /* the axes outside of mask count as fixed */
/* Index expression e as offset + one axis of `mask` (axis -1: none); false: it is something else. */
bool par_axis_index(const Par *v, IrExpr *e, uint32_t mask, int *axis, IrExpr **offset);
Access par_classify(Par *v, IrBuf *buf, IrExpr **idx, uint32_t mask);
/* The axis along which an irregular access is still a contiguous run of whole 32-byte blocks, or -1. */
int par_row_axis(Par *v, IrBuf *buf, IrExpr **idx, uint32_t span, Access *row);
const char *par_expr_text(Par *v, const IrExpr *e);
static inline bool vector_space(Space s) { return s == SPACE_UB || s == SPACE_SHARED || s == SPACE_FRAGMENT; }

/* ---- parallel_emit.c ---- */
IrStmt *par_emit(Par *v, StmtOp op, int n_args, ...); /* IrArg each; appended to cur */
void par_emit_store(Par *v, IrBuf *buf, IrExpr **idx, IrExpr *value, bool accumulate);
IrStmt *par_new_loop(PassCtx *p, const char *name, IrExpr *ext, Loc loc); /* a `parallel` of one index; not linked */
IrStmt *par_emit_for(Par *v, const char *name, IrExpr *ext);
IrBlock *par_enter_if(Par *v, IrExpr *cond);                  /* returns the block outside; cur is inside */
IrBlock *par_enter_loops(Par *v, uint32_t axes, IrExpr **at); /* the same with loops; at[axis] := loop variable */
IrExpr *par_at_loops(Par *v, uint32_t axes, IrExpr *const *at, IrExpr *e);
IrBuf *par_new_tile(Par *v, Space space, DType t, uint32_t span);
IrRegion par_tile_region(Par *v, IrBuf *tile, uint32_t span);
IrExpr *par_tile_load(Par *v, IrBuf *tile, uint32_t span); /* the element of a tile at the axes */
bool par_same_shape(const Par *v, const IrBuf *b, uint32_t span); /* is b such a tile? */
Val par_take(Par *v, DType t, uint32_t span);              /* a tile of the pool */
IrBuf *par_take_mask(Par *v, uint32_t span);
void par_release(Par *v, const IrBuf *temp);
Val par_filled(Par *v, IrExpr *scalar, DType t, uint32_t span);
Val par_whole(Par *v, Val x, uint32_t span); /* x over all of span, contiguous; scalars stay */
void par_warn_scalar(Par *v, uint32_t span, const char *why, const char *fix);
IrExpr *par_inside(Par *v, IrBuf *b, IrExpr *const *idx); /* "the element lies inside the tensor"; NULL: proven */
IrExpr *par_safe_divisors(Par *v, IrExpr *e, IrExpr *guard); /* integers are divided by 1 where the guard is false */
IrExpr *par_clamp_loads(Par *v, IrExpr *e);               /* loads from GM give 0 outside, as copies do */

/* ---- parallel_expr.c ---- */
/* The value of e, a scalar if and only if no axis stands in it. dst, where given, may be used for it. */
Val par_eval(Par *v, IrExpr *e, const IrRegion *dst);

/* ---- parallel_store.c ---- */
IrExpr *par_neutral(Par *v, WorkKind kind, DType t); /* what a sum, maximum or minimum starts from */
Work par_work_subst(Par *v, const Work *w, const IrVar *var, IrExpr *by);
void par_scalar_statement(Par *v, const Work *w, const char *why, const char *fix);
void par_vector_statement(Par *v, const Work *w);

/* ---- parallel_gemm.c ---- */
bool par_gemm_statement(Par *v, const Work *w); /* false: w is no matrix product that the cube takes */
void par_gemm_init(PassCtx *p, IrStmt *s, const Par *v); /* decides `init` of a gemm that does not say */

/* ---- parallel_lanes.c ---- */
int par_lanes(Par *v, IrStmt *s); /* how many stores from s on it has taken care of; 0: s is none that takes turns */

/* ---- parallel.c ---- */
void par_whole_box(Par *v);                  /* the box of the statement at hand: all indices of the parallel */
void par_run_work(Par *v, Work *w);          /* w over that box, as ops and loops */
IrExpr *par_apply_lets(Par *v, IrExpr *e);
int64_t par_temp_budget(Par *v);       /* bytes of UB that temporaries may take */
/* Has nothing been written to buf before `at`, or, with v, before what v has emitted so far? */
bool par_never_written(PassCtx *p, const IrBuf *buf, const IrStmt *at, const Par *v);
/* The condition that block b runs for the first time since buf was declared, from the loops between; loops whose
 * variable stands in the n indices idx visit other elements each time and do not count. NULL: it takes
 * par_first_flag. */
IrExpr *par_first_time(PassCtx *p, const IrBuf *buf, IrExpr *const *idx, int n, IrBlock *b, const Par *v);
IrVar *par_first_flag(PassCtx *p, const IrBuf *buf,
                      Loc loc); /* `var %first: bool = true` beside the declaration of buf */
void par_emit_flag_off(Par *v, IrVar *flag);
void par_note_acc_init(PassCtx *p, const IrBuf *buf, Loc loc);

#endif
