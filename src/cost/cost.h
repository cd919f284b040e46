/* cost.h - a lower bound of a kernel's time in closed form: nothing is executed. */
#ifndef TL_COST_H
#define TL_COST_H

#include "../arch/arch.h"

typedef struct {
  double us;                 /* no run on the clock is faster: launch + the largest of the bounds below */
  double launch_us;
  double pipe_us[2][PIPE_COUNT]; /* [0] cube, [1] vector cores: what the pipe must work, a core's share */
  double memory_us;          /* all transfers through GM at the full rate of L2 */
  int64_t blocks;
  int64_t gm_bytes;          /* moved at least */
} Cost;

/* The bound for the lowered kernel k. scalar[i]: value of parameter i where it is an integer scalar, symbolic sizes
 * included (k->params.len of them; others are ignored). False and a diagnostic when k is not lowered. */
bool cost_bound(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const int64_t *scalar, Cost *out);

#endif
