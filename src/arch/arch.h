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

/* What things cost: the times of <family>_time.def. Cycles are those of the core clock. */
typedef struct {
  /* the launch: before the cores start; more of that for each core; in each core, before its first instruction, for
   * each pair of vector cores or cube core (with its vector cores) that fetch the same code at the same time; from one
   * later block to the next over the chip; from the end of a block on a core to the start of the next one there */
  double launch_ns, core_ns, fetch_ns, dispatch_ns, block_ns;
  double hbm_gbps, l2_gbps;       /* all cores together */
  double hbm_piece;               /* bytes that each piece of a 512-byte line costs HBM besides its own */
  /* pieces of lines (whole ones, too) a cycle that L2 gives to all cores that read the same place at the same time; and
   * to all that read pieces within the same part_bytes of a tensor */
  double place_pieces, part_pieces, part_bytes;
  double l2_uneven;               /* L2 keeps a line while 1 - l2_uneven to 1 + l2_uneven of its size is brought in */
  double pair_asks;               /* requests of the two vector cores of a pair that read the same: 1 or 2 */
  /* from the end of a DMA's transfer until its bytes count as there; hbm_latency: more, if some came from HBM */
  double hbm_latency, l2_latency;
  /* bytes that L2 moves at least for a piece of a line; that it fetches for one that is not whole sectors of 128 */
  double granule;
  /* DMA of one core: dma_head an instruction, l1_head one of GM to L1, then each row of n bytes takes
   * max(row, n / bus) cycles; bytes that are not in L2 come at max(miss_row, n / miss_bus) */
  double dma_head, l1_head, ub_bus, ub_row, ub_miss_bus, l1_bus, l1_row, l1_miss_bus, miss_row, out_bus, out_row;
  /* an mmad: head, then a cycle for 16x16x16 of 16 bits or 16x16x32 of 8, mmad_f32 for 16x16x8 of 32; its result counts
   * as there mmad_tail later, during which the next one may run */
  double mmad_head, mmad_tail, mmad_f32;
  double l0_head, l0a_bus, l0b_bus;
  /* GM to L1 and L1 to L0 at the same time: the share that the write and the read take longer */
  double l1_write_slow, l1_read_slow;
  /* to GM: bytes a cycle, and cycles more for each row that is not whole sectors; to L1: elements a cycle */
  double fix_head, fix_bus, fix_odd, fix_l1_elems;
  double l1_fill_bus;
  double issue, scalar_op, scalar_mem, scalar_gm; /* pipe S: an instruction, an operation, an element of UB, of GM */
  double flag, cross_flag, sync_all;
  double bank_read, bank_write;   /* UB: cycles more a repeat */
  double v_start;                 /* cycles that each vector instruction takes besides its COST */
} ArchTime;

typedef struct { const char *key; double per16, per32, head; } ArchCost;

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

/* ---- time.c: the clock's constants and the formulas that need nothing but numbers ---- */

ArchTime arch_time(const Arch *a);                       /* of the chip's family */
const ArchCost *arch_cost(const Arch *a, const char *key); /* NULL: no such key */
/* Field of t by name, for experiments; NULL: no such field. */
double *arch_time_field(ArchTime *t, const char *name);
const char *arch_time_name(int i); /* i = 0.., NULL past the end */

/* Until the cores start, for so many; from there to their first instruction, for so many pairs of vector cores or cube
 * cores (with their vector cores). */
double arch_launch_ns(const ArchTime *t, int64_t cores);
double arch_fetch_ns(const ArchTime *t, int64_t pairs);
/* Cycles of one instruction on its pipe, nothing else in the way. */
double arch_mmad_cycles(const ArchTime *t, DType type, int64_t m, int64_t n, int64_t k);
/* Operations a cycle at full rate: multiplications and additions of the cube; elements of the vector unit. */
double arch_mmad_rate(const ArchTime *t, DType type);
double arch_vector_rate(const Arch *a, DType type);
double arch_vector_cycles(const ArchCost *c, int64_t repeats, int size, double more_per_repeat);
/* Between L1, L0 and L0C: count elements of size bytes. */
double arch_inner_cycles(const ArchTime *t, int op, int64_t count, int size);
double arch_dma_cycles(double bus, double row_cycles, int64_t rows, int64_t row_bytes);

/* Can pipe V of this chip convert src to dst in one instruction? */
bool arch_can_cast(const Arch *a, DType dst, DType src);
/* Does the cube multiply t by t, and into which dtype? DTYPE_COUNT: it does not. */
DType arch_product(const Arch *a, DType t);
/* Does the vector unit (or cube) take dtype t under this rule? */
bool arch_has_dtype(const Arch *a, DTypeRule rule, DType t);

#endif
