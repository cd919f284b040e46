/* parallel.h - what the three files of the parallel pass share: parallel.c (statements, who writes what first),
 * parallel_gemm.c (matrix products) and parallel_expr.c (expressions as vector ops over boxes). Private to them. */
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

typedef struct { IrBuf *buf; uint32_t span; bool mask, busy; } Temp;
typedef struct { IrVar *var; IrExpr *by; } LetValue;
typedef struct { IrRegion from; IrBuf *tile; } GmTile; /* a piece of GM that already stands in a temporary */

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
  int *n_names;       /* counts the names of temporaries over the kernel */
} Par;

/* How one buffer access relates to the axes in `mask`; the others count as fixed. */
typedef struct {
  bool ok;
  const char *why, *fix;       /* when not ok */
  IrRegion r;
  int8_t axis[IR_MAX_RANK];    /* axis that dimension d runs over, -1: fixed */
  uint32_t span;               /* set of axes */
  bool aligned;                /* dimensions stand where those of the box stand */
} Access;

/* A statement `buf[idx] = value` (or sum, maximum, minimum over the absent axes) on its way to tile ops. */
typedef enum { WORK_SET, WORK_SUM, WORK_MAX, WORK_MIN } WorkKind;
typedef struct {
  WorkKind kind;
  IrBuf *buf;
  IrExpr **idx;
  IrExpr *value;
  IrExpr *guard; /* NULL or a condition that depends on the axes */
  bool fresh;    /* the destination of a sum holds nothing yet */
  bool spelled;  /* the source accumulates: nothing written before means zero */
} Work;

/* ---- parallel_expr.c ---- */
uint32_t axes_of(const Par *v, const IrExpr *e);
bool reads_buf(const IrExpr *e, const IrBuf *b);
Access classify(Par *v, IrBuf *buf, IrExpr **idx, uint32_t mask);
bool proven_inside(Par *v, IrExpr *e); /* no element that e loads lies outside its tile */
IrRegion tile_region(Par *v, IrBuf *tile, uint32_t span);
IrExpr *tile_load(Par *v, IrBuf *tile, uint32_t span); /* the element of a temporary at the axes */
IrBuf *new_tile(Par *v, Space space, DType t, uint32_t span);
Work work_subst(Par *v, const Work *w, const IrVar *var, IrExpr *by);
IrStmt *emit(Par *v, StmtOp op, int n_args, ...); /* IrArg each; appended to cur */
IrStmt *emit_for(Par *v, const char *name, IrExpr *ext);
IrBlock *enter_loops(Par *v, uint32_t axes, IrExpr **at); /* for loops over the axes; at[axis] := loop variable */
IrExpr *at_loops(Par *v, uint32_t axes, IrExpr *const *at, IrExpr *e);
void scalar_statement(Par *v, const Work *w, const char *why, const char *fix);
void vector_statement(Par *v, const Work *w);
static inline bool vector_space(Space s) { return s == SPACE_UB || s == SPACE_SHARED || s == SPACE_FRAGMENT; }

/* Index expression e as offset + one axis of `mask` (axis -1: none); false: it is something else. */
bool axis_index(Par *v, IrExpr *e, uint32_t mask, int *axis, IrExpr **offset);
uint32_t left_axes(const Par *v, const Work *w);
IrExpr *neutral(Par *v, WorkKind kind, DType t); /* what a sum, maximum or minimum starts from */

/* ---- parallel_gemm.c ---- */
bool gemm_statement(Par *v, const Work *w); /* false: w is no matrix product that the cube takes */
void gemm_init(PassCtx *p, IrStmt *s, const Par *v); /* decides `init` of a gemm that does not say */

/* ---- parallel.c ---- */
/* Has nothing been written to buf before `at`, or, with v, before what v has emitted so far? */
bool never_written(PassCtx *p, const IrBuf *buf, const IrStmt *at, const Par *v);
/* The condition that block b runs for the first time since buf was declared, from the loops between; loops whose variable
 * stands in the n indices idx visit other elements each time and do not count. NULL: needs first_flag. */
IrExpr *first_time(PassCtx *p, const IrBuf *buf, IrExpr *const *idx, int n, IrBlock *b, const Par *v);
IrVar *first_flag(PassCtx *p, const IrBuf *buf, Loc loc); /* `var %first: bool = true` beside the declaration of buf */
void emit_flag_off(Par *v, IrVar *flag);
void note_acc_init(PassCtx *p, const IrBuf *buf, Loc loc);

#endif
