/* scope.h - shared by scope.c and bridge.c only: what the statements of a kernel do with each buffer. */
#ifndef TL_PASS_SCOPE_H
#define TL_PASS_SCOPE_H

#include "pass.h"

enum {
  USE_GEMM_AB = 1, /* operand of gemm */
  USE_MMAD_A = 2,
  USE_MMAD_B = 4,
  USE_ACC = 8,     /* accumulator of gemm or mma */
  USE_VECTOR = 16,
  USE_ELEMENT = 32,
  USE_COPY = 64,
  USE_MASK = 128,
  USE_START = 256, /* written by a copy, or filled with something else than zero */
  USE_COUNT = 9
};

typedef struct { uint32_t uses; const IrStmt *first[USE_COUNT]; bool pad; } Use;

Use *scope_uses(PassCtx *p); /* by buffer id */

#endif
