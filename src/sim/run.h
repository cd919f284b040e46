/* run.h - what the files of a run share: its state, and what is the same for a run with data and a timed one; nobody
 * outside src/sim includes it. */
#ifndef TL_SIM_RUN_H
#define TL_SIM_RUN_H

#include "timing.h"

#include <pthread.h>

typedef struct { pthread_mutex_t lock; const TlAlloc *host; TlAlloc locked; } SharedAlloc;

typedef struct {
  Sim sim;
  Arena arena;      /* of the run, used by one thread only */
  Arena *to;        /* the caller's */
  Machine *machine;
  int n_machines;
  SharedAlloc alloc;
  const SimOptions *opt;
  Diags *diags;
  SimResult *result;
  const SimTimeOptions *time_opt; /* a timed run: no data needed */
  SimTime *time;
  Arena *keep;      /* where the timed run's result lives */
  bool ok;
} Run;

/* bind.c: arguments become buffers. */
bool run_bind(Run *r);           /* false: reported */
void run_number_owners(Sim *s);  /* local buffers that share bytes, to be told apart; after the programs are built */

/* run.c */
int32_t run_chip_cores(const Sim *s); /* of the chip, that take blocks */
/* Arguments, buffers, programs. False: reported, or there is nothing to run (then r->ok). */
bool run_prepare(Run *r);
/* Which tensors need a shadow, a log; is anything added atomically? */
bool run_survey(Run *r);
void run_collect(Run *r);        /* faults of all machines become diagnostics */
bool run_known_element(const Sim *s, const Element *el); /* its value is known without running the kernel */
bool run_mark_kept(Run *r);      /* which elements a timed run has to be told; true: there are any */

void time_all(Run *r); /* run_time.c: a timed run */

#endif
