/* api.h - what the files of the C API share: the context, and how a public function begins.
 *
 * A context owns one arena. tl_load drops it whole and starts again, so everything a call returns lives until then.
 * Each public function that may allocate begins with ENTER: when the host refuses memory, the arena jumps back there
 * and the function fails. `no_memory` then stands for the diagnostic TL0001, which needs no memory to be shown; a
 * program that was being changed at that moment is dropped. */
#ifndef TL_API_H
#define TL_API_H

#include "tilelang.h"

#include "pass/pass.h"
#include "sim/sim.h"

typedef struct { const char *pass, *text; double seconds; } Stage;

struct TlContext {
  TlAlloc host;
  bool has_host;
  jmp_buf oom;
  bool no_memory;
  Arena arena;
  Arena scratch; /* of one simulation */
  SimTime *time; /* the last timed run; in scratch */
  Arena recorded;
  const SimValues *values; /* of the last run with `record`, in `recorded`; NULL: none */
  Diags diags;
  const char *name, *text; /* what tl_load was given */
  size_t len;
  IrModule *module;        /* NULL: nothing loaded */
  bool valid;              /* it keeps the rules, and no pass failed */
  bool begun;              /* tl_lower has changed the program */
  const Arch *arch;        /* the chip it was lowered for */
  PassCtx pass;
  Vec(Stage) stages;
  bool keep_text, verify_each;
  SimResult ran; /* the last simulation; its prints are in scratch */
};

/* Memory ran out while the program changed: it is gone; while only text was made: it stays. */
#define ENTER(c, drop, failed)                                                                                       \
  do {                                                                                                               \
    if (setjmp((c)->oom)) {                                                                                          \
      (c)->no_memory = true;                                                                                         \
      if (drop) (c)->module = NULL;                                                                                  \
      return failed;                                                                                                 \
    }                                                                                                                \
  } while (0)

/* api.c; `call` names in a message what was asked for */
bool api_loaded(TlContext *c, const char *call);  /* is there a program that keeps the rules? */
bool api_lowered(TlContext *c, const char *call);
const char *api_print(TlContext *c, const IrModule *m);
const Arch *api_chip(TlContext *c, const char *chip); /* NULL after an error */

/* api_run.c: arguments as the simulator takes them, workspaces added; NULL after errors */
SimArg *api_run_args(TlContext *c, const char *what, const TlArg *args, int n_args, bool need_data);

/* api_diags.c */
const char *api_file_of(const TlContext *c, Loc loc);
void api_put_str(Text *t, const char *key, const char *s); /* "key":"s", or "key":null */
static inline void api_comma(Text *t, uint32_t i) { text_put(t, i ? ",\n " : "\n "); } /* before the i-th of a list */

#endif
