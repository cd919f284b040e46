/* sim.h - the simulated chip: what every lowered instruction does to bytes, and what can go wrong.
 * The program is the lowered IR; the simulator trusts nothing that passes promised. */
#ifndef TL_SIM_H
#define TL_SIM_H

#include "../arch/arch.h"

/* One kernel argument, in parameter order. Tensors: contiguous row-major data of the host. */
typedef struct {
  void *data;                     /* tensors */
  int64_t shape[IR_MAX_RANK];     /* tensors: actual sizes */
  union { int64_t i; double f; } scalar; /* scalars: by the parameter's dtype class */
} SimArg;

typedef struct {
  bool checks;     /* bounds, uninitialised, alignment, races, flags; off: deadlock and memory safety only */
  int32_t threads; /* host threads over blocks; 0: one per host core */
  int32_t max_faults; /* stop after this many different faults; 0: 8 */
  uint64_t schedule;  /* 0: the usual order; else the seed of another order of the pipes that the chip allows */
} SimOptions;

typedef struct {
  int64_t blocks, instructions; /* executed over all cores */
  int64_t gm_read_bytes, gm_write_bytes;
  int32_t cores_used;           /* physical cores that got at least one block */
} SimResult;

/* Runs k on the chip with args (k->params.len of them). Faults become diagnostics (errors) in d; false when there
 * was one. The result bytes written before a fault stay. Same bytes out for any number of threads. */
bool sim_run(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const SimArg *args, const SimOptions *opt,
             SimResult *out);

#endif
