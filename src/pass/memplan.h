/* memplan.h - shared by memplan.c and memplan_fresh.c only. */
#ifndef TL_PASS_MEMPLAN_H
#define TL_PASS_MEMPLAN_H

#include "pass.h"

/* Does every iteration of the loop read of b only what it has written before? Then nothing of b has to live from one
 * iteration to the next. "No" when it cannot tell. */
bool memplan_fresh(PassCtx *p, IrStmt *loop, IrBuf *b);

#endif
