/* legalize.h - what the files of the legalize pass share; nobody else includes it.
 *
 *   legalize.c         the pass: one source statement to a short list of steps in dtypes the vector unit has
 *   legalize_op.c      the steps of each elementwise op: dtype conversion, scalar operands
 *   legalize_form.c    one step to instructions: flat or rows form, loops, temporaries, broadcast, realignment
 *   legalize_mask.c    compare and select
 *   legalize_reduce.c  reductions
 *   legalize_fold.c    reductions that are written as other statements
 *   legalize_math.c    sine, cosine, power
 *   legalize_moved.c   gather, transpose, running sums
 *   legalize_sort.c    sorting
 *   legalize_pieces.c  statements done again with less scratch
 *
 * A step works on a Nest, the box of its destination without dimensions of extent 1. Every operand (Opd) says which
 * dimension of its buffer each nest dimension walks, or that it repeats there. */
#ifndef TL_PASS_LEGALIZE_H
#define TL_PASS_LEGALIZE_H

#include "pass.h"

enum { LG_MAX_IN = 3, NO_ATTR = -1, REPEATS = -1 };

typedef struct {
  int n;
  IrExpr *ext[IR_MAX_RANK];
  int64_t max[IR_MAX_RANK]; /* bound of ext */
  bool flat;                /* every operand is one contiguous run: temporaries need no row padding */
} Nest;

typedef struct {
  IrExpr *scalar; /* not NULL: a scalar operand; nothing below holds */
  IrRegion r;
  int8_t dim[IR_MAX_RANK]; /* buffer dimension of each nest dimension, or REPEATS */
  bool block;              /* r has a further last dimension: C0 copies of the row's value */
} Opd;

typedef struct {
  PassCtx *p;
  IrKernel *k;
  Arena *a;
  const IrStmt *s;  /* the source statement */
  Loc loc;
  IrBlock allocs;   /* temporaries of this statement */
  IrBlock *out;     /* where the next instruction goes */
  bool failed, warned;
} Lg;

/* ---- form ---- */
static inline DType opd_type(const Opd *o) { return o->scalar ? (DType)o->scalar->type : o->r.buf->type; }
const char *lg_shape(Lg *g, const IrRegion *r);              /* "[64, 33]" */
bool lg_same(Lg *g, IrExpr *a, IrExpr *b);                   /* provably equal */
int64_t lg_bound(Lg *g, IrExpr *ext, int64_t cap);
bool lg_nest(Lg *g, const IrRegion *r, Nest *n, Opd *o);     /* the nest that r itself is */
bool lg_fit(Lg *g, const Nest *n, const IrRegion *dst, const IrRegion *r, int hint, Opd *o); /* r over dst's nest */
bool lg_fit_block(Lg *g, const Nest *n, const IrRegion *dst, const IrRegion *r, Opd *o); /* [M, C0] for [M, N] */
Opd lg_scalar(IrExpr *e);
Opd lg_temp(Lg *g, const Nest *n, DType t);
Opd lg_temp1(Lg *g, DType t, int64_t count, Nest *n);        /* one run of its own */
IrBuf *lg_buf(Lg *g, DType t, int rank, const int64_t *shape);
IrBuf *lg_view(Lg *g, IrBuf *of, DType t, int rank, const int64_t *shape); /* its bytes as another tile */
bool lg_is_ordered(Lg *g, const Nest *n, const Opd *o, int from);
void lg_statement(Lg *g, IrStmt *s); /* s, a source statement, legalized here */
void lg_narrow(Lg *g, Nest *n, Opd *o, int n_opd, int d, IrExpr *off,
               IrExpr *ext);                                          /* ext NULL: one index, d vanishes */
IrVar *lg_loop(Lg *g, const char *name, IrExpr *hi, IrBlock **saved); /* opens a loop; g->out = *saved closes it */
void lg_put(Lg *g, StmtOp op, const Opd *arg, int n_arg, int key, int64_t value); /* one instruction, as it stands */
/* One step whose operands lg_prepare (or their making) has put in order. Inputs first, the destination last. */
void lg_emit(Lg *g, const Nest *n, StmtOp op, const Opd *arg, int n_arg, int key, int64_t value);
/* Puts operands in order: aligned starts and pitches, no clash of the destination with an input. The destination (last)
 * may become a temporary; lg_finish then moves it home. */
typedef struct { Opd home; bool moved, by_element; } Finish;
void lg_prepare(Lg *g, Nest *n, Opd *arg, int n_arg, bool reads_dst, Finish *f);
Opd lg_ordered(Lg *g, const Nest *n, Opd o, int from); /* o as it is, or in padded rows: dims before from aligned */
void lg_finish(Lg *g, const Nest *n, const Opd *dst, const Finish *f);
void lg_copy(Lg *g, const Nest *n, Opd src, Opd dst);        /* same dtype, any shapes that fit */
bool lg_is_full(const Nest *n, const Opd *o);                 /* repeats nowhere */
bool lg_is_dense(Lg *g, const Nest *n, const Opd *o);        /* one aligned contiguous run over the whole nest */
bool lg_is_far(const Nest *n, const Opd *o);                  /* rows further apart than a repeat can step */
Opd lg_dense(Lg *g, const Nest *n, Opd o);
Nest lg_own(const Nest *n, const Opd *o, Opd *own, int8_t *back); /* the nest of o's own dimensions */
Opd lg_widen(const Nest *n, const Nest *m, Opd o,
             const int8_t *back);                            /* o over m = lg_own(n, ...), seen from n again */
Opd lg_as(Lg *g, const Nest *n, Opd o, DType t);             /* o, or a temporary of dtype t with its value */
void lg_by_element(Lg *g, const Nest *n, StmtOp op, const Opd *arg, int n_arg); /* loops on the scalar pipe */
void lg_warn_scalar(Lg *g, const Nest *n, const char *what, const char *why, const char *fix);
IrExpr *lg_element(Lg *g, const Opd *o, IrExpr **at, int n);
IrExpr *lg_hoist(Lg *g, IrExpr *e);                          /* reads of memory in e happen here and once */

/* ---- op ---- */
bool lg_cast_route(const Arch *arch, DType dst, DType src, DType hop[4], int *n_hops);
void lg_cast(Lg *g, const Nest *n, Opd src, Opd dst, CastMode mode); /* src and dst in order */
void lg_binary(Lg *g, const Nest *n, StmtOp op, DType w, Opd a, Opd b, Opd dst); /* add sub mul div max min, dtype w */
void lg_elementwise(Lg *g);
void lg_halves(Lg *g, const Nest *n, Opd x, DType w, bool low_signed, Opd *hi, Opd *lo); /* i32 x = hi * 65536 + lo */
void lg_join(Lg *g, const Nest *n, Opd hi, Opd lo, Opd dst);  /* the inverse; hi and lo i32 scratch */
Opd lg_filled(Lg *g, const Nest *n, Opd scalar, DType w);
Opd lg_number(Lg *g, DType t, double v);
IrExpr *lg_scalar_as(Lg *g, DType t, IrExpr *e);
DType lg_common(DType a, DType b);
void lg_shape_error(Lg *g, const IrRegion *in, const IrRegion *dst);
void lg_emit2(Lg *g, const Nest *n, StmtOp op, Opd a, Opd dst);
void lg_emit3(Lg *g, const Nest *n, StmtOp op, Opd a, Opd b, Opd dst);
void lg_no_dtype(Lg *g, DType t, const char *fix);
void lg_wrap(Lg *g, const Nest *n, Opd x, DType t);          /* x (i16 or i32) modulo the width of the int dtype t */

/* ---- math ---- */
void lg_math(Lg *g, const Nest *n, StmtOp op, Opd a, Opd b, Opd dst); /* sin cos pow, all f32 */

/* ---- moved, sort, fold ---- */
bool lg_is_moved(StmtOp op);
void lg_moved(Lg *g);
void lg_transpose(Lg *g, const Nest *n, Opd src, Opd dst);   /* n: two dimensions of src */
bool lg_is_record(StmtOp op);
void lg_records(Lg *g);
void lg_sort(Lg *g);
bool lg_is_fold(StmtOp op);
void lg_fold(Lg *g);
IrRegion lg_flat(Lg *g, const IrRegion *r, DType t);         /* the same run, one dimension, elements read as t */
void lg_refuse(Lg *g, const char *what, const char *fix);

/* ---- mask ---- */
void lg_compare(Lg *g);
void lg_select(Lg *g);

/* ---- reduce ---- */
void lg_reduce(Lg *g);

/* ---- pieces ---- */
typedef struct Rewrite Rewrite;
void lg_rewrite(PassCtx *p, IrStmt *s);                       /* instructions in place of s, remembered */
Rewrite *lg_remember(PassCtx *p, IrStmt *from, bool warned);
void lg_remember_alloc(PassCtx *p, Rewrite *r, IrStmt *alloc);
void lg_remember_body(Rewrite *r, IrStmt *first, IrStmt *last); /* NULL: nothing was needed */

#endif
