/* arch.h - the chip as data. Every number stands in a2.def / a5.def with its source; chips.def lists the parts.
 * A3 dies are A2 dies (same family), so a3 has no file of its own. */
#ifndef TL_ARCH_H
#define TL_ARCH_H

#include "../ir/ir.h"

typedef struct {
  int64_t bytes; /* usable by a kernel; 0: the core has no such memory. GM: 0 = unlimited */
  int64_t physical; /* with what the toolkit keeps for itself */
  int32_t align; /* start of a buffer, bytes */
} ArchSpace;

typedef struct {
  const char *name;    /* "910B2" */
  const char *family;  /* "a2" "a3" "a5": selects the C++ dialect of the writers */
  const char *npu_arch;/* "dav-2201" */
  int32_t aic, aiv;    /* cube and vector cores */
  int32_t mhz;
  int64_t l2_bytes, hbm_bytes;
  ArchSpace space[SPACE_COUNT];
  int32_t n_flags;       /* event ids per ordered pipe pair */
  int32_t n_cross_flags; /* cross-core flag ids */
  int32_t cross_flag_max;/* pending sets a cross-core flag can hold */
  int32_t repeat_bytes;  /* vector datapath: bytes of one repeat */
  int32_t max_repeat;
  int32_t max_mmad;      /* m, n, k of one mmad */
  int32_t max_burst_rows;   /* rows of one DMA */
  int32_t max_burst_bytes;  /* bytes of one DMA row */
  int32_t select_scratch; /* UB byte from which `select` keeps select_scratch_bytes for itself; -1: it needs none */
  int32_t select_scratch_bytes;
  int32_t queue_depth;   /* instructions a pipe's queue holds */
} Arch;

const Arch *arch_find(const char *chip);     /* NULL: unknown */
const Arch *arch_at(int i);                  /* i = 0.., NULL past the end: for lists in messages */
extern const char *const arch_default_chip;  /* "910B2" */

/* Can pipe V of this chip convert src to dst in one instruction? */
bool arch_can_cast(const Arch *a, DType dst, DType src);
/* Does the vector unit (or cube) take dtype t under this rule? */
bool arch_has_dtype(const Arch *a, DTypeRule rule, DType t);

#endif
