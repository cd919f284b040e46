/* pass.h - IR to IR. One pass, one file, one function; passes.c holds the table and the runner. */
#ifndef TL_PASS_H
#define TL_PASS_H

#include "../arch/arch.h"

/* What passes tell the user besides errors: kernel.explain() prints these lines. */
typedef struct { const char *pass; Loc loc; const char *text; } Remark;

typedef struct {
  Arena *arena;
  Diags *diags;
  const Arch *arch;
  IrModule *module;
  IrKernel *k;
  Vec(Remark) remarks;
  Vec(struct Rewrite *) rewrites; /* what legalize made of each statement, for pass_legalize_tighter */
  uint32_t n_user_bufs; /* buffers with smaller ids are the user's, the others are temporaries of passes */
  bool auto_sync;   /* default true; false: only hand-written flags */
  bool auto_memory; /* default true; false: buffers are packed one after another, no reuse */
  bool ub_full;     /* memplan has no room in UB: less scratch would help */
} PassCtx;

void pass_remark(PassCtx *p, const char *pass, Loc loc, const char *fmt, ...) TL_PRINTF(4, 5);

/* Takes a print or assertion out of the program; the user is told why. */
void pass_left_out(PassCtx *p, const IrStmt *s, const char *why); /* says that a print or assertion is */
void pass_drop_say(PassCtx *p, IrStmt *s, const char *fmt, ...) TL_PRINTF(3, 4);

typedef struct {
  const char *name;
  bool (*run)(PassCtx *p); /* false after an error in p->diags */
  uint32_t needs, gives, breaks;
  const char *doc;
  bool (*relieve)(PassCtx *p); /* after an error: changes the program so that the pass may succeed; false: it cannot */
} Pass;

extern const Pass pass_table[];
extern const int pass_count;

/* ir_verify for a text that may stand after a pass, where more rules hold (IrKernel.facts). */
bool pass_verify(IrModule *m, Diags *d);

/* Called after each pass with its name; NULL to skip. Returning false stops the run early (not an error). */
typedef bool (*PassObserver)(const Pass *done, PassCtx *p, double seconds, void *user);
/* Runs all passes, or those up to and including `last`; verifies after each. */
bool pass_run_all(PassCtx *p, const char *last, PassObserver obs, void *user);

bool pass_scalars(PassCtx *p);
bool pass_bridge(PassCtx *p);
bool pass_scope(PassCtx *p);
bool pass_jumps(PassCtx *p);
bool pass_parallel(PassCtx *p);
bool pass_split(PassCtx *p);
bool pass_pipeline(PassCtx *p);
bool pass_lower(PassCtx *p);
bool pass_legalize(PassCtx *p);
bool pass_legalize_tighter(PassCtx *p); /* halves the largest scratch; false: nothing to halve */
bool pass_memplan(PassCtx *p);
bool pass_sync(PassCtx *p);

#endif
