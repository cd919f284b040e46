/* pto.h - shared by the files of the PTO writer only. */
#ifndef TL_PTO_H
#define TL_PTO_H

#include "../cwriter.h"

/* Small functions that the output defines: numbers for cw_use. */
enum {
  PT_BEFORE_FIRST = HELP_SHARED - 1,
#define HELPER(id, name, text) PT_##id,
#include "prelude_pto.def"
#undef HELPER
  PT_END
};

typedef struct PtSpelling PtSpelling;
typedef void (*PtWriter)(CWriter *w, const IrStmt *s, const PtSpelling *sp);
struct PtSpelling { PtWriter write; const char *tile_api, *scalar_api, *row_api, *col_api, *instr; };

typedef enum { VEC_ROWS, VEC_COLUMN, MAT, MAT_TRANS, LEFT, RIGHT, ACC } PtKind;

typedef struct {
  const IrBuf *buf;
  PtKind kind;
  int64_t rows, cols;       /* of the Tile */
  int64_t valid_r, valid_c; /* -1: run time */
  int64_t addr;             /* -1: run time */
  const char *pad;          /* NULL, or the PadValue that TLOAD puts behind a row */
  const char *name;
} PtView;

typedef struct {
  IrVec v;
  const IrStmt *s;
  bool scope, guarded;
} PtCall;

bool pt_is_a5(const CWriter *w);
void pt_refuse(CWriter *w, const IrStmt *s, const char *fix, const char *what); /* this form of the op */
bool pt_has_intrinsics(CWriter *w, const IrStmt *s); /* instructions by name: not on the 950; refuses */
const char *pt_helper(CWriter *w, int id);            /* its name; marks it as used */
bool pt_guard(CWriter *w, IrExpr *rows, IrExpr *cols);
bool pt_check_dtype(CWriter *w, const IrStmt *s);
bool pt_read(CWriter *w, const IrStmt *s, IrVec *v);

/* A Tile for `rows` x `cols` elements at byte address buf->addr + off * size. Declares it here if it must be. */
const char *pt_tile(CWriter *w, PtView v, IrExpr *off, IrExpr *rows, IrExpr *cols);
/* Rows of UB. pitch 0: one run, a single row padded to whole blocks. */
const char *pt_rows(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *rows, IrExpr *cols, int64_t pitch);
/* A run of n elements from `off`, read as dtype t. */
const char *pt_run_at(CWriter *w, const IrBuf *b, IrExpr *off, IrExpr *n, int64_t most, DType t);
const char *pt_run(CWriter *w, const IrStmt *s, int arg, IrExpr *n, DType t); /* operand arg as one run */
IrExpr *pt_run_offset(CWriter *w, const IrStmt *s, int arg);
const char *pt_ub(CWriter *w, const char *tile, DType t); /* the pointer of a tile, to elements of t */

/* moved_pto.c */
void pt_compare(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_select(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_arange(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_brcb(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_moved(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_merge(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_transpose(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_row_reduce(CWriter *w, const IrStmt *s, const PtSpelling *sp);
void pt_piece(CWriter *w, const PtCall *c, const PtSpelling *sp); /* moves and fills that end inside a block */
/* 950: the first operand repeats: it is spread over the result first. false: not of that form. */
bool pt_spread(CWriter *w, const PtCall *c, const PtSpelling *sp);
/* Rows in which an operand repeats in a way no tile instruction knows: the instruction itself, 255 rows a call. */
void pt_rows_call(CWriter *w, const PtCall *c, const PtSpelling *sp, const char *scalar);

#endif
