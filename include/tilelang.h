/* tilelang.h - the C API of tlc: compile, explain, write out and simulate tile kernels for Ascend.
 *
 *   TlContext *c = tl_open(NULL);
 *   if (tl_load(c, "gemm.tl", text, len) && tl_lower(c, &(TlLower){.chip = "910B2"})) {
 *     puts(tl_emit(c, "ascendc"));
 *     tl_sim(c, args, n_args, &(TlSim){.checks = 1}, &result);
 *   }
 *   fputs(tl_diags_text(c), stderr);
 *   tl_close(c);
 *
 * Ownership: every string returned belongs to the context and lives until tl_close (or the next tl_load).
 * Threads: a context is used by one thread at a time; contexts share nothing.
 * Errors: functions return 0 / NULL on failure and leave diagnostics in the context; nothing is printed,
 * nothing exits. When memory runs out the call fails with TL0001. */
#ifndef TILELANG_H
#define TILELANG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define TL_API
#else
#define TL_API __attribute__((visibility("default")))
#endif

typedef struct TlContext TlContext;

/* ---- life --------------------------------------------------------------------------------------------- */

/* realloc-like allocator (size 0 frees); NULL: the C library's. Returns NULL if the first allocation fails. */
TL_API TlContext *tl_open(void *(*alloc)(void *user, void *old, size_t size), void *user);
TL_API void tl_close(TlContext *c);
TL_API const char *tl_version(void);

/* ---- text in, text out ----------------------------------------------------------------------------------- */

/* Parses and verifies IR text (docs/ir.md). Drops what the context held before. */
TL_API int tl_load(TlContext *c, const char *name, const char *text, size_t len);
/* The current IR as canonical text. */
TL_API const char *tl_text(TlContext *c);

/* ---- lowering --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *chip; /* "910B2" …; NULL: the default chip */
  const char *last; /* stop after this pass; NULL: all */
  int no_auto_sync; /* keep only hand-written flags and barriers */
  int no_auto_memory; /* no reuse of addresses */
  int keep_text;    /* remember the IR text after every pass for tl_text_after */
  int verify_each;  /* verify and re-read the printed text after every pass */
} TlLower;
TL_API int tl_lower(TlContext *c, const TlLower *opt);
/* IR text after the named pass; needs keep_text. NULL: no such pass (diagnostic). */
TL_API const char *tl_text_after(TlContext *c, const char *pass);
/* The i-th pass in order with its one-line description; 0 past the end. The strings are constants. */
TL_API int tl_pass_at(int i, const char **name, const char **doc);
/* What was chosen and why, for people: buffers by memory with bytes used of bytes there, live ranges, flags with the
 * hazard each orders, remarks. */
TL_API const char *tl_explain(TlContext *c);
/* The same as JSON; `live` counts statements in program order, `why`, `chip`, `cores`, `src`, `dst`, `id` may be null:
 * {"kernel","chip","cores","buffers":[{name,space,dtype,shape,layout,addr,bytes,live:[from,to],why,line}],
 * "memory":[{space,used,available}],"flags":[{kind,src,dst,id,hand,why,line}],"remarks":[{pass,line,text}],
 * "times":[{pass,seconds}]} */
TL_API const char *tl_explain_json(TlContext *c);
/* What the kernel takes: {"kernel":name,"params":[{"name","kind":"tensor"|"scalar","dtype", and for tensors
 * "shape":[int | "expr text"],"out":bool,"workspace":bool}],"grid":[int | "expr text"]} */
TL_API const char *tl_signature_json(TlContext *c);

/* The current IR as JSON, statement by statement: src/ir/json.c describes it. */
TL_API const char *tl_program_json(TlContext *c);

typedef struct {
  const char *name, *dtype; /* "f16" … */
  int bytes;                /* of one element */
  int is_tensor, is_out, is_workspace;
  int rank;                 /* tensors: number of dimensions */
  int64_t shape[6];         /* tensors: extents; -1: depends on scalars, see tl_shapes */
} TlParam;
/* The i-th parameter; 0 past the end. */
TL_API int tl_param_at(TlContext *c, int i, TlParam *out);

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* C++ source for "ascendc" (= "auto") or "pto" from the lowered program; NULL with diagnostics if it cannot. */
TL_API const char *tl_emit(TlContext *c, const char *target);
/* The i-th target's name, NULL past the end. */
TL_API const char *tl_target_at(int i);

/* ---- simulation ----------------------------------------------------------------------------------------------- */

typedef struct {
  void *data;         /* tensor: contiguous row-major bytes; written for out tensors */
  int64_t shape[6];   /* tensor: actual sizes */
  union { int64_t i; double f; } scalar;
} TlArg;
/* threads: of the host, 0: one a core. max_faults: 0: 8. schedule: 0: the usual order; else the seed of another order
 * in which the chip's pipes may run; the numbers of a correct program are the same for every seed. record: keep what
 * pipe S reads, for tl_time to follow. */
typedef struct {
  int checks, threads, max_faults;
  unsigned long long schedule;
  int record;
  int (*go_on)(void *user); /* NULL, or asked now and then by the calling thread: 0 stops the run, and tl_sim gives 0 */
  void *user;
} TlSim;
typedef struct {
  int64_t blocks, instructions, gm_read_bytes, gm_write_bytes;
  int32_t cores_used, cores; /* of the kind the kernel runs on */
  int64_t recorded;          /* values that `record` kept */
} TlSimResult;
/* Fills the shapes of all tensors in args from the kernel's text and the scalars in args. 0: a size cannot be computed
 * or is negative (diagnostic). */
TL_API int tl_shapes(TlContext *c, TlArg *args, int n_args);
/* Runs the lowered kernel; args in parameter order. Workspaces that lowering added (at the end) may be left out.
 * 0 when a fault was found (diagnostics say which). */
TL_API int tl_sim(TlContext *c, const TlArg *args, int n_args, const TlSim *opt, TlSimResult *result);

typedef struct {
  int seconds;              /* the compiler and the run are stopped after so long; 0: 600 */
  int (*go_on)(void *user); /* NULL, or asked now and then: 0 stops */
  void *user;
} TlTwin;
/* Does with args what tl_sim does, on this host without the simulator: the written Ascend C (A2 and A3), compiled with
 * the headers of an installed toolkit (layout of 8.1) in the vendor's CPU-debug mode, on a model of the hardware
 * intrinsics that checks order, addresses and flags (docs/verification.md). Needs a C++ compiler. 0: no toolkit, it
 * does not compile, or a fault was found (diagnostics); the caller compares the results. */
TL_API int tl_twin(TlContext *c, const TlArg *args, int n_args, const TlTwin *opt);

/* What the last run printed (`print` in docs/ir.md), in the order of the grid and, within a block, of the program. */
typedef struct {
  int64_t block;            /* counted over the grid, its first index fastest; -1: before or after the launch */
  const char *file;         /* of the statement */
  int line, col;
  const char *where, *text; /* "block (0, 1), vector core 0" */
} TlPrinted;
/* The i-th print; 0 past the end. The strings live until the next tl_sim. */
TL_API int tl_printed_at(TlContext *c, int i, TlPrinted *out);

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* All 0: the chip as it is. */
typedef struct {
  double hbm_factor, l2_factor; /* bandwidth times this; 0: 1 */
  double miss_factor;     /* of the transfers that L2 has not all of, this share still misses; 0: 1 */
  int l2_warm;            /* L2 holds what the same launch before left there; else nothing */
  int l2_all_hit;         /* every read is in L2 already */
  int no_bank_conflicts;  /* of UB */
  int free_flags;         /* flags and barriers take no time, they still order */
  int compute_only;       /* transfers through GM take no time */
  int copy_only;          /* only transfers through GM, and issuing, take time; with compute_only: just overhead */
  int timeline;           /* keep events for tl_time_event_at */
  int64_t max_events;     /* 0: a million */
  int64_t first_event;    /* keep them from this number on */
  int follow;             /* pipe S reads what it read in the last tl_sim with `record`, which had the same arguments */
  const char *constants;  /* "hbm_gbps=1500,flag=10": other values of the chip's timing table (src/arch); NULL: none */
  int long_rows;          /* short and unaligned rows in GM cost no more than long ones */
  int no_latency;         /* transfers through GM take only the time that their bytes need on the way */
  int64_t blocks;         /* only the first of the launch's blocks; 0: all */
} TlTime;
typedef struct {
  double us, mhz;
  int64_t ticks;          /* the same in 1/256 of a core cycle */
  int64_t blocks, instructions; /* synchronisation included */
  int64_t gm_read_bytes, gm_write_bytes;
  double l2_hit;          /* share of the bytes read that were in L2 */
  /* busy share of a pipe over the time its cores ran, as msprof's aic_mac_ratio, aiv_vec_ratio ...; mte2 and scalar of
   * a kernel that runs on both kinds of core are over both */
  struct { double cube, mte1, mte2, mte3, fix, vector, scalar; } pipe_ratio;
  int32_t cores_used, cores; /* of the kind that takes blocks */
  int64_t events, last_event; /* with `timeline`: all there are, kept or not; number of the last to end, -1: none */
} TlTimeResult;
/* How long the lowered kernel takes on the chip, all cores at once. args as for tl_sim; their data may be NULL, and no
 * data is changed. Elements that pipe S reads and that are not known (no data, or the kernel writes them) are those of
 * the run to `follow`; else they are taken as 0, and it is TL0851 if a loop, a branch or a size depends on one.
 * Numbers and time of one launch: tl_sim with `record`, then tl_time with `follow`. 0: a fault (diagnostics). */
TL_API int tl_time(TlContext *c, const TlArg *args, int n_args, const TlTime *opt, TlTimeResult *result);
/* The last tl_time as a table for people; NULL before one. */
TL_API const char *tl_time_text(TlContext *c);
/* The last tl_time in full; NULL before one. Times are microseconds, sums over cores for statements, means for pipes;
 * busy + idle of a pipe is the time of the kernel. Reasons of idle time: start (no block yet), issue (pipe S had not
 * issued the instruction), flag, cross, barrier (waits in that statement), queue (S: no room), end (no more work).
 * {"kernel","chip","us","cycles","mhz","blocks","instructions","groups","groups_there","gm_read_bytes",
 *  "gm_write_bytes","l2_hit_bytes","l2_miss_bytes","hbm_write_bytes","write_back_bytes","l2_hit","launch_us",
 *  "peak_tops","peak_gbps",
 *  "pipes":[{side,pipe,ratio,busy_us,idle_us:{reason:us}}],
 *  "cores":[{kind,number,blocks,start_us,end_us,busy_us:{pipe:us},idle_us:{pipe:{reason:us}}}],
 *  "statements":[{id,text,file,line,col,side,pipe,count,busy_us,scalar_us,slowed_us,gm_bytes,gm_most,gm_rows,ops,
 *   least_us,idle_us:{reason:us}}]}
 * A statement is an instruction, or what pipe s does itself: elements that it reads and writes. scalar_us: part of the
 * busy time of pipe s in which it made this instruction ready and issued it; gm_most: bytes of its largest transfer;
 * l2_*_bytes: of the reads, in whole sectors of 128 bytes, of A2 and A3 in whole lines of 512 for a row that begins or
 * ends within a sector, so they can exceed gm_read_bytes; hbm_write_bytes: what
 * HBM takes at some time, write_back_bytes: by the end;
 * ops: multiplications and additions of the cube, one an element of a vector instruction; least_us: they at full rate;
 * peak_tops: that rate on all cores for the statement that computes most; gm_rows: pieces that gm_bytes move in.
 * launch_us: until the first instruction of a core;
 * slowed_us: part of busy_us that the transfer lost to others on HBM and L2. */
TL_API const char *tl_time_json(TlContext *c);
typedef struct {
  int32_t core;           /* index into "cores" */
  int32_t statement;      /* index into "statements" */
  const char *pipe;
  double start_us, end_us;
  int32_t cause;          /* number of the event that let this one begin: the one before it on its pipe, the one behind
                             the flag or barrier it waited for, or pipe s that issued it; -1: none */
} TlTimeEvent;
/* The i-th event that the last tl_time with `timeline` kept, number first_event + i, in the order they ended; 0 past
 * the end. */
TL_API int tl_time_event_at(TlContext *c, int64_t i, TlTimeEvent *out);

/* ---- cost -------------------------------------------------------------------------------------------------------- */

typedef struct {
  double us;        /* no run on the clock is faster: launch_us and the largest of the others */
  double launch_us, memory_us; /* memory: all transfers through GM at the full rate of L2 */
  struct { double cube, mte1, mte2, mte3, fix, vector, scalar; } pipe_us; /* what each must work, a core's share */
  int64_t blocks, gm_bytes;    /* gm_bytes: moved at least */
} TlCost;
/* A lower bound of the lowered kernel's time in closed form; executes nothing. args as for tl_time: scalars count, data
 * do not. Forgets the last tl_time. 0: not lowered (diagnostic). */
TL_API int tl_cost(TlContext *c, const TlArg *args, int n_args, TlCost *out);

/* ---- diagnostics ------------------------------------------------------------------------------------------------ */

TL_API int tl_error_count(TlContext *c);
/* [{"code":"TL0601","severity":"error","title","text","file","line","col",
 *   "other":{"text","file","line","col"}|null,"fix"|null}] */
TL_API const char *tl_diags_json(TlContext *c);
/* For a terminal, one paragraph each, with the line of the .tl text and a caret when the place is in the .tl text. */
TL_API const char *tl_diags_text(TlContext *c);
TL_API void tl_diags_clear(TlContext *c);
/* The page about a code ("TL0600"), as Markdown: what it means, a program that causes it and one that does not. NULL:
 * there is no such code. */
TL_API const char *tl_page(const char *code);

/* ---- chips ------------------------------------------------------------------------------------------------------ */

typedef struct { const char *name, *family; int cube_cores, vector_cores, mhz; } TlChip;
/* The i-th chip; 0 past the end. */
TL_API int tl_chip_at(int i, TlChip *out);

/* ---- for other programs -------------------------------------------------------------------------------------- */

/* Writes the lowered kernel as files that need neither tlc nor Python: NAME.cpp (source of the target), NAME.h (launch
 * function, sizes of tensors and workspaces), NAME_run.c (launcher), CMakeLists.txt, NAME.json (description)
 * and NAME.tl. */
TL_API int tl_export(TlContext *c, const char *target, const char *dir);

/* ---- building and launching ------------------------------------------------------------------------------------ */

typedef struct {
  const char *target;     /* as for tl_emit */
  const char *cache_dir;  /* NULL: $TILELANG_CACHE_DIR, $XDG_CACHE_HOME/tilelang or ~/.cache/tilelang */
  int64_t cache_bytes;    /* the least recently used kernels go beyond that; 0: $TILELANG_CACHE_BYTES or 1 GiB */
  int seconds;            /* the compiler is stopped after so long; 0: $TILELANG_BUILD_SECONDS or 600 */
  int fresh;              /* build even if it is in the cache */
  int (*go_on)(void *user); /* NULL, or asked now and then while building: 0 stops */
  void *user;
} TlBuild;
typedef struct {
  const char *library, *key; /* path of the built kernel; its name in the cache */
  int cached;                /* it was there already */
} TlBuilt;
/* Builds the lowered kernel with the toolkit of this machine, or finds it in the cache. Any number of processes may do
 * that at once; each kernel is built once. 0: no toolkit, or its compiler failed (diagnostics). */
TL_API int tl_build(TlContext *c, const TlBuild *opt, TlBuilt *out);

typedef struct TlDevice TlDevice; /* the toolkit's runtime and its devices; for any number of threads */
typedef struct TlKernel TlKernel; /* a built kernel, loaded; launched by one thread at a time */
TL_API TlDevice *tl_device_open(TlContext *c); /* NULL: no runtime, no device (diagnostics) */
TL_API void tl_device_close(TlDevice *d);      /* after its kernels */
TL_API int tl_device_count(const TlDevice *d);
/* The chip's name as tlc has it (tl_chip_at); NULL: another chip, or the runtime does not say. */
TL_API const char *tl_device_chip(const TlDevice *d);
/* Waits for a stream; NULL is the default stream. 0: a kernel failed there; the diagnostic names it. */
TL_API int tl_device_wait(TlContext *c, TlDevice *d, int device, void *stream);
/* The kernel that tl_build made of this context's program. */
TL_API TlKernel *tl_kernel_open(TlContext *c, TlDevice *d, const char *library);
TL_API void tl_kernel_close(TlKernel *k);      /* waits for what it works on */
typedef struct {
  int device;
  void *stream;      /* an aclrtStream; the launch is queued there and returns at once; not used with host */
  int host;          /* the tensors are host memory: copied in, run, waited for, copied back */
  int blocking;      /* wait for the kernel */
  uint64_t fresh;    /* host: bit i: tensor i holds nothing yet and need not be copied in */
  uint64_t read_only;/* host: bit i: the kernel does not write tensor i, so it need not be copied back */
  const char *file;  /* NULL, or the caller's source line, for messages; the string lives as long as the kernel */
  int line;
} TlLaunch;
/* Launches with args in parameter order (shapes are not looked at); workspaces at the end may be left out. c takes the
 * diagnostics; it need not be the context the kernel came from. 0: refused, or an earlier launch failed. */
TL_API int tl_launch(TlContext *c, TlKernel *k, const TlArg *args, int n_args, const TlLaunch *opt);

/* ---- the machine ------------------------------------------------------------------------------------------------ */

typedef struct {
  const char *root;   /* directory that stands for /, NULL: this machine's */
  const char *python; /* interpreter asked for torch_npu, NULL: python3 on PATH */
} TlDoctor;
/* What this machine has to build and launch kernels with - driver, firmware, devices, CANN, compiler, headers,
 * torch_npu - whether the versions go together, and what to do. As text for people, or with json as {"tlc",
 * "ready":bool,"findings":[{"what","health":"ok"|"missing"|"mismatch","needed":bool,"found","where","text","fix"}]}
 * (the last four may be null). *ready: nothing that is needed is missing or does not go together. Needs no program. */
TL_API const char *tl_doctor(TlContext *c, const TlDoctor *opt, int json, int *ready);

#ifdef __cplusplus
}
#endif
#endif
