/* pipeline.h - shared by pipeline.c and pipeline_skew.c only. */
#ifndef TL_PASS_PIPELINE_H
#define TL_PASS_PIPELINE_H

#include "pass.h"

/* Gives b a leading dimension of n, indexed by the iteration of the loop modulo n. All uses of b are in the loop. */
void pipeline_versions(PassCtx *p, IrStmt *loop, IrBuf *b, int n);

/* How many versions of b there is room for when nothing shares addresses, at least 1. */
int pipeline_room(const PassCtx *p, const IrBuf *b);

/* Does the loop alone use b, and is the first thing an iteration does with it to overwrite it whole? */
bool pipeline_fresh(PassCtx *p, IrStmt *loop, IrBuf *b);

/* Lets the two sides of a kernel work on different iterations of its pipelined loops. */
void pipeline_skew(PassCtx *p);

#endif
