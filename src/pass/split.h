/* split.h - shared by split.c, split_hand.c and split_share.c only. */
#ifndef TL_PASS_SPLIT_H
#define TL_PASS_SPLIT_H

#include "pass.h"

enum { SIDE_NONE = 0, SIDE_CUBE = 1, SIDE_VECTOR = 2, SIDE_BOTH = 3 };

/* The side(s) of one statement itself; SIDE_NONE: pure scalar or control, belongs wherever it is needed. */
int split_side(IrStmt *s);

/* Before the sides are taken apart: workspaces for tiles that change sides, and cross-core flags (wrapped in cube { }
 * and vector { }) for every tensor both sides use. How many things are handed over; -1 after an error. */
int split_hand_over(PassCtx *p);

/* Shares the tiles of a vector block between the two vector cores, row by row; false: nothing can be shared, nothing
 * was changed. */
bool split_share(PassCtx *p, IrStmt *vector);
/* Both vector cores do everything; only the first writes to GM. */
void split_write_once(PassCtx *p, IrStmt *vector);

#endif
