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
 * in which the chip's pipes may run; the numbers of a correct program are the same for every seed. */
typedef struct { int checks; int threads; int max_faults; unsigned long long schedule; } TlSim;
typedef struct {
  int64_t blocks, instructions, gm_read_bytes, gm_write_bytes;
  int32_t cores_used, cores; /* of the kind the kernel runs on */
} TlSimResult;
/* Fills the shapes of all tensors in args from the kernel's text and the scalars in args. 0: a size cannot be computed
 * or is negative (diagnostic). */
TL_API int tl_shapes(TlContext *c, TlArg *args, int n_args);
/* Runs the lowered kernel; args in parameter order. Workspaces that lowering added (at the end) may be left out.
 * 0 when a fault was found (diagnostics say which). */
TL_API int tl_sim(TlContext *c, const TlArg *args, int n_args, const TlSim *opt, TlSimResult *result);

/* ---- diagnostics ------------------------------------------------------------------------------------------------ */

TL_API int tl_error_count(TlContext *c);
/* [{"code":"TL0601","severity":"error","title","text","file","line","col",
 *   "other":{"text","file","line","col"}|null,"fix"|null}] */
TL_API const char *tl_diags_json(TlContext *c);
/* For a terminal, one paragraph each, with the line of the .tl text and a caret when the place is in the .tl text. */
TL_API const char *tl_diags_text(TlContext *c);
TL_API void tl_diags_clear(TlContext *c);

/* ---- chips ------------------------------------------------------------------------------------------------------ */

typedef struct { const char *name, *family; int cube_cores, vector_cores, mhz; } TlChip;
/* The i-th chip; 0 past the end. */
TL_API int tl_chip_at(int i, TlChip *out);

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
