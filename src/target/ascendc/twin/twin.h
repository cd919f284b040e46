/* twin.h - one core of A2 as its instructions see it, for running generated Ascend C on the host.
 *
 * The vendor's headers, compiled for debugging on a CPU, turn every call of the Ascend C API into calls of hardware
 * intrinsics. glue.cpp gives these their names and types and calls what stands here. The model is plain C and knows no
 * header of the vendor; the tests call it directly. What is done when, and who may reach what: order.c; what the
 * instructions do: vector.c, moves.c; numbers.c.
 *
 * A process is one core. Instructions run at once, in program order; what the order of the chip does not guarantee is
 * found by clocks: every pipe counts its instructions and knows how far it has seen the others (set_flag passes this on
 * to wait_flag, pipe_barrier merges it), every 16 bytes of a core's memories remember who wrote and read them last (the
 * vendor's memories start on 16). Pipe V does not order its own instructions; that takes a barrier. Memory is known by
 * its address; where a core's memories and the tensors lie is told once, and an access elsewhere is a fault.
 *
 * Between cores the clocks go through a piece of shared memory: a flag carries what its setter's pipe had seen, of all
 * cores; every element of a tensor remembers its last writer and its last three readers or adders. Two writes of the
 * same values need no order. Cores that do not run together (blocks, one after another) are never ordered: on the chip
 * they may run at once. */
#ifndef TWIN_H
#define TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TW_S, TW_V, TW_M, TW_MTE1, TW_MTE2, TW_MTE3, TW_FIX, TW_PIPES, TW_ALL = TW_PIPES } TwinPipe;
typedef enum {
  TW_F16, TW_BF16, TW_F32, TW_I8, TW_U8, TW_I16, TW_U16, TW_I32, TW_U32, TW_I64,
  TW_I4, /* two a byte, the first in the low half; for twin_mad only */
  TW_TYPES
} TwinType;
typedef enum {
  TW_ADD, TW_SUB, TW_MUL, TW_DIV, TW_MAX, TW_MIN, TW_AND, TW_OR, TW_MLA, TW_AXPY, /* two inputs, or a scalar */
  TW_ABS, TW_EXP, TW_LN, TW_SQRT, TW_RSQRT, TW_REC, TW_RELU, TW_NOT, TW_COPY, TW_DUP, TW_SHL, TW_SHR, TW_LRELU
} TwinOp;
typedef enum { TW_EQ, TW_NE, TW_LT, TW_GT, TW_GE, TW_LE } TwinCompare;
typedef enum { TW_NONE, TW_RINT, TW_FLOOR, TW_CEIL, TW_ROUND, TW_TRUNC, TW_ODD } TwinRound;

/* ---- a run ------------------------------------------------------------------------------------------------------- */
enum { TW_CUBE, TW_VECTOR0, TW_VECTOR1, TW_CORES }; /* the cores of a block */
typedef enum { TW_UB, TW_L1, TW_L0A, TW_L0B, TW_L0C, TW_MEMORIES } TwinMemory;

/* What the cores that run together share, in memory of this size that all of them see and the caller has zeroed. */
size_t twin_shared_bytes(int blocks);
/* first: number of the first block; cores: which of a block's are there. Before the cores begin. */
void twin_share(void *shared, int first, int blocks, const bool cores[TW_CORES]);
/* A tensor, before the cores begin: `room` bytes behind it are nobody's; shadow: zeroed memory that all cores see. */
size_t twin_shadow_bytes(size_t bytes, int element_bytes);
void twin_tensor(const char *name, const void *at, size_t bytes, size_t room, int element_bytes, void *shadow);
/* Forgets everything but tensors. shared NULL: a core alone; block counts from the first. */
void twin_begin(void *shared, int block, int core);
void twin_memory(TwinMemory m, const void *at, size_t bytes); /* where the core's memories lie; all or none */
int twin_end(void);                         /* flags left set are faults; the number of faults */
const char *twin_faults(void);              /* one a line; at most the first 20 */
int twin_left(void *shared);                /* after all cores: flags between cores that nobody waited for are faults */

/* ---- order ------------------------------------------------------------------------------------------------------- */
enum { TW_READ, TW_WRITE, TW_ACCUMULATE };     /* additions to global memory do not mind each other's order */
void twin_set_flag(int src, int dst, int id);  /* TwinPipe */
void twin_wait_flag(int src, int dst, int id);
void twin_barrier(int pipe);                   /* TW_ALL: every pipe */
/* A flag between cores, set when `pipe` has done what came before. mode 0: for all cores of the kind, when all of them
 * have set it; 1: for both vector cores of the block, when both have; 2: for the other kind of the block, when the
 * block's cores of this kind have. */
void twin_cross_set(int pipe, int mode, int flag);
bool twin_cross_wait(int flag);                /* false, and a fault: no core is left that could set it */
void twin_not_modelled(const char *intrinsic); /* a fault that names it */
void twin_issue(int pipe);                     /* the next instruction of a pipe begins; what it touches follows */
void twin_touch(int pipe, const void *p, size_t bytes, int how);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
uint16_t twin_half(double v); /* nearest, ties to even */
float twin_of_half(uint16_t h);
uint16_t twin_bf16(float v);

/* ---- vector ------------------------------------------------------------------------------------------------------ */
void twin_mask_count(void);
void twin_mask_norm(void);
void twin_mask(uint64_t high, uint64_t low);   /* counting: low is the number of elements */
/* Block steps and repeat steps in 32-byte blocks: dst, a, b. b NULL: the scalar; a NULL: TW_DUP. */
typedef struct { int dst, a, b, dst_rep, a_rep, b_rep; } TwinSteps;
void twin_vector(TwinOp op, TwinType t, void *dst, const void *a, const void *b, const void *scalar, int repeats,
                 TwinSteps s);
void twin_cast(TwinType to, TwinType from, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s);
void twin_cast4(bool to_int4, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s); /* f16 and int4 */
void twin_compare(TwinCompare how, TwinType t, uint8_t *dst, const void *a, const void *b, const void *scalar,
                  int repeats, TwinSteps s);
void twin_set_cmpmask(const void *bytes);
/* mode 0: bits of the cmpmask; 1: bits of b, the cmpmask holds the scalar; 2: the cmpmask holds the address of bits */
void twin_select(TwinType t, void *dst, const void *a, const void *b, int repeats, TwinSteps s, int mode);
typedef enum { TW_ROW_SUM, TW_ROW_MAX, TW_ROW_MIN } TwinReduce;
/* order 0: value and index, 2: value only. Steps: dst_rep in results, a and a_rep in blocks. */
void twin_row(TwinReduce how, TwinType t, void *dst, const void *a, int repeats, int dst_rep, int a_step, int a_rep,
              int order);
void twin_brcb(int size, void *dst, const void *a, int step, int rep, int repeats);
void twin_gather(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int repeats);
void twin_gatherb(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int step, int repeats);
uint64_t twin_take(int size, void *dst, const void *a, const void *bits, int repeats, int pattern, int a_rep,
                   int b_rep);
void twin_sort32(TwinType t, void *dst, const void *score, const uint32_t *index, int repeats);
void twin_merge(TwinType t, void *dst, const void *const *list, const int *count, int lists);
void twin_transpose(int size, void *const dst[16], const void *const a[16], int repeats, int dst_rep, int a_rep);

/* ---- moves and the cube ------------------------------------------------------------------------------------------ */
/* rows of `bytes`, each on a block of 32 in UB; gaps: GM bytes, UB blocks. pad: elements behind a row, of pad_value. */
void twin_gm_ub(int size, void *ub, const void *gm, int rows, uint32_t bytes, uint32_t gm_gap, uint32_t ub_gap, int pad,
                uint64_t pad_value);
void twin_ub_gm(void *gm, const void *ub, int rows, uint32_t bytes, uint32_t ub_gap, uint32_t gm_gap, int atomic_type);
void twin_nd_nz(int size, void *l1, const void *gm, int rows, int cols, int pitch, int plane_rows);
void twin_fill_l1(int size, void *l1, int columns, int blocks, int gap, uint64_t value);
void twin_load(int size, void *l0, const void *l1, int first, int repeats, int step, int gap, bool transpose);
/* Squares of 32 bytes x 32 rows (8 bits) or 16 x 16 (16 bits), transposed; steps in squares, gaps in fractals. */
void twin_load_square(int size, void *l0, const void *l1, int first, int repeats, int step, int gap, int fractal_gap);
/* 32 bits, a filter of one point on an NZ plane of l1_rows rows: the box [rows, cols] at (row, col). To L0A: itself, or
 * with turn its transpose, as zZ; to L0B: itself as Zn. */
void twin_image(bool to_l0a, void *l0, const void *l1, int l1_rows, int cols, int rows, int col, int row, bool turn);
void twin_mad(TwinType t, void *c, const void *a, const void *b, int m, int k, int n, bool init, bool k_whole);
/* pitch: elements between rows of GM. to: TW_F32, TW_F16, TW_BF16 of f32, TW_I32 of i32 */
void twin_fix(TwinType from, TwinType to, void *gm, const void *c, int n, int m, uint32_t pitch, int plane_rows,
              bool relu, int atomic_type);
/* To an NZ tile of L1 whose columns of fractals are l1_rows rows high: f16 or bf16 of f32. */
void twin_fix_l1(TwinType to, void *l1, const void *c, int n, int m, int l1_rows, int plane_rows, bool relu);

#ifdef __cplusplus
}
#endif
#endif
