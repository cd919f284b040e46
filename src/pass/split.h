/* split.h - shared by split.c, split_hand.c and split_share.c only. */
#ifndef TL_PASS_SPLIT_H
#define TL_PASS_SPLIT_H

#include "pass.h"

enum { SIDE_NONE = 0, SIDE_CUBE = 1, SIDE_VECTOR = 2, SIDE_BOTH = 3 };

/* The side(s) of one statement itself; SIDE_NONE: pure scalar or control, belongs wherever it is needed. */
int split_side(IrStmt *s);

/* Tiles and workspace tensors that go from one side to the other. */
typedef struct {
  int n;            /* hand-overs */
  int max;
  bool ok;          /* false after an error */
  struct { bool to_vector, credit; int ready; Pipe make, take; Loc loc; } hand[8];
} HandOver;
/* Before the sides are taken apart: adds workspaces and flags, wrapped in cube { } and vector { }. */
void split_hand_over(PassCtx *p, HandOver *h);
/* Afterwards: the first credit before everything, the last one taken after everything. */
void split_bracket(PassCtx *p, const HandOver *h, IrBlock *cube, IrBlock *vector);

/* Shares the tiles of a vector block between the two vector cores, row by row; false: nothing can be shared, nothing
 * was changed. */
bool split_share(PassCtx *p, IrStmt *vector);

#endif
