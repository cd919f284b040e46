/* split.h - shared by split.c and split_share.c only. */
#ifndef TL_PASS_SPLIT_H
#define TL_PASS_SPLIT_H

#include "pass.h"

/* Shares the tiles of a vector block between the two vector cores, row by row; false: nothing can be shared, nothing was changed. */
bool split_share(PassCtx *p, IrStmt *vector);

#endif
