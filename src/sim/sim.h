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
  Arena *record;      /* not NULL: SimResult.values is made, there */
  int (*go_on)(void *user); /* NULL, or asked now and then by the calling thread: 0 stops the run, which then failed */
  void *user;
} SimOptions;

/* What pipe S read in a run and what a timed run cannot know: sim_time follows it. */
typedef struct SimValues SimValues;

/* One print of the kernel; block -1: before or after the launch. `where` names block and core. */
typedef struct { int64_t block; Loc loc; const char *where, *text; } SimSaid;

typedef struct {
  int64_t blocks, instructions; /* executed over all cores */
  int64_t gm_read_bytes, gm_write_bytes;
  int32_t cores_used;           /* physical cores that got at least one block */
  const SimValues *values;
  int64_t recorded;             /* how many there are */
  Vec(SimSaid) said;            /* by block, in the order of the program; in the arena given to sim_run */
} SimResult;

/* Runs k on the chip with args (k->params.len of them). Faults become diagnostics (errors) in d; false when there
 * was one. The result bytes written before a fault stay. Same bytes out for any number of threads. */
bool sim_run(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const SimArg *args, const SimOptions *opt,
             SimResult *out);

/* ---- time ------------------------------------------------------------------------------------------------ */

/* What L2 holds at the start: nothing; what the same launch before left there; every byte that is read */
typedef enum { L2_COLD, L2_WARM, L2_ALL_HIT } SimL2;

typedef struct {
  double hbm_factor, l2_factor; /* bandwidth times this; 0: 1 */
  double miss_factor;           /* of the transfers that L2 has not all of, this share still misses; 0: 1 */
  SimL2 l2;
  bool no_bank_conflicts;
  bool free_flags;   /* flags and barriers cost nothing; they still order */
  bool compute_only; /* transfers through GM take no time */
  bool copy_only;    /* everything else takes no time, but that S issues; with compute_only: what is left is overhead */
  bool no_latency;   /* transfers through GM take only the time that their bytes need on the way */
  bool long_rows;    /* transfers through GM cost no more for short or unaligned rows than for long ones */
  int64_t blocks;    /* only the first ones; 0: all */
  bool timeline;     /* keep events, at most max_events (0: a million) from number first_event on */
  int64_t first_event, max_events;
  const SimValues *follow; /* of a run with the same arguments; NULL: none */
  const char *constants; /* "hbm_gbps=1500,flag=10": other values of src/arch's timing table; NULL: none */
} SimTimeOptions;

enum { SIM_IDLE_COUNT = 7 };
extern const char *const sim_idle_name[SIM_IDLE_COUNT]; /* start issue flag cross barrier queue end */

typedef struct {
  char kind;    /* 'c' or 'v' */
  int32_t number; /* physical */
  int64_t blocks, start, end;
  int64_t busy[PIPE_COUNT], idle[PIPE_COUNT][SIM_IDLE_COUNT];
} SimTimeCore;

typedef struct { /* one instruction, or the elements that one statement reads or writes, over all executions */
  const IrStmt *stmt;
  char side; /* 'c' or 'v' */
  Pipe pipe;
  int64_t count, busy, slowed, idle[SIM_IDLE_COUNT], gm_bytes, gm_most, gm_rows, ops;
  int64_t scalar; /* of busy of pipe S: to issue this */
} SimTimeStmt;

typedef struct {
  int32_t core; /* index into cores */
  Pipe pipe;
  int32_t stmt; /* index into statements */
  int32_t cause; /* number of the event whose end let this one begin; -1: none */
  int64_t start, end;
} SimTimeEvent;

/* Times are ticks of 1/256 cycle. */
typedef struct {
  int64_t ticks, launch, blocks, instructions; /* launch: until the first instruction of a core */
  double us, mhz;
  int64_t gm_read_bytes, gm_write_bytes; /* as the instructions ask for them */
  int64_t l2_hit_bytes, l2_miss_bytes;         /* of the reads, in whole sectors of 128 bytes */
  int64_t hbm_write_bytes, write_back_bytes;   /* what HBM must take at some time; what it took until the end */
  SimTimeCore *core;
  int32_t n_cores;
  int32_t groups, groups_there; /* what takes a block (one cube core, its vector cores, or all): used, on chip */
  SimTimeStmt *stmt;
  int32_t n_stmts;
  SimTimeEvent *event; /* those kept */
  int64_t n_events, all_events, last_event; /* kept; in all; number of the one that ends last, -1: there is none */
} SimTime;

double sim_time_ratio(const SimTime *r, Pipe p, char side); /* busy share of pipe p; side 'c' or 'v', 0: both */
/* Everything but the events; see include/tilelang.h. */
void sim_time_json(Text *t, const IrKernel *k, const Arch *arch, const SimTime *r);
void sim_time_text(Text *t, const IrKernel *k, const Arch *arch, const SimTime *r); /* a table for people */

/* How long k takes on the chip. args as in sim_run; data may be NULL. An element that pipe S reads from a tensor
 * without data, from one that the kernel writes, or from UB has the value of the run to follow; without one it is
 * taken as 0, and it is a fault if a loop, a branch or a size depends on it.
 * Everything in the result lives in a. Faults become diagnostics; false when there was one. */
bool sim_time(Arena *a, Diags *d, const IrKernel *k, const Arch *arch, const SimArg *args, const SimTimeOptions *opt,
              SimTime *out);

#endif
