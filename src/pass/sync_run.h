/* sync_run.h - shared by sync_run.c and sync_cross.c: the cores of one block, lined up and run against each other. */
#ifndef TL_PASS_SYNC_RUN_H
#define TL_PASS_SYNC_RUN_H

#include "sync.h"

enum {
  RUN_CORES = 3, /* cube core, first and second vector core */
  RUN_COMPS = PIPE_ALL + 1, /* of a core's clock: its pipes, and what S has waited for */
  RUN_IDS = HAND_IDS,
  RUN_MODES = 3
};

/* For every pipe of every core: how many of its steps are known to be done. */
typedef struct { uint32_t t[RUN_CORES * RUN_COMPS]; } RunClock;

/* What a step touches in GM: at most [lo, end) of each dimension; sure: exactly that, in every run. */
typedef struct { const IrBuf *buf; bool write, sure, atomic; int64_t lo[IR_MAX_RANK], end[IR_MAX_RANK]; } Box;

/* One instruction, or statement of synchronisation, in the order in which S comes to them. */
typedef struct { IrStmt *stmt; uint8_t pipe; int8_t id; uint32_t box, n_box; } Step;

/* Sets that are on their way to a wait: what the setter knew, and when the wait had taken them. */
typedef struct {
  uint32_t head, tail, known;
  RunClock set[RUN_IDS], gone[RUN_IDS];
  const Step *setter, *taker; /* of the last one */
} Sets;

typedef struct { bool set; const Step *setter, *waiter; uint32_t wait_tick; RunClock clock; } LocalFlag;

typedef struct {
  IrStmt *side;
  int vid; /* -1: the cube core */
  bool joins_all;
  Vec(Step) step;
  Vec(Box) box;
  Vec(uint32_t) queue[PIPE_ALL]; /* the steps of each pipe */
  uint32_t pc, issued[PIPE_ALL], head[PIPE_ALL], tick[PIPE_ALL], s_order;
  int all; /* 1: has come to a sync_all, 2: may go on */
  RunClock seen[PIPE_ALL];
  Vec(RunClock) said; /* what S knew, each time it learned something */
  uint32_t room;      /* of the arrays by step */
  uint32_t *version;  /* by step: which of them held when it was issued */
  RunClock *knew;     /* by step: what its pipe knew when it began */
  uint32_t *when;     /* by step: its tick; 0: it has not begun */
  LocalFlag *flag;
  Sets *cross, *sent; /* [id], [id][mode] */
} RunCore;

typedef struct Run {
  PassCtx *p;
  IrKernel *k;
  IrRange *env;  /* by variable */
  bool *holds;   /* by statement: synchronisation stands in it */
  RunCore core[RUN_CORES];
  int n_cores;
  bool doubt;    /* it hangs on what only a run knows, or is too long: nothing can be said */
  bool mode0, by_hand; /* by_hand: there are cross-core flags of the user */
  /* Which set serves which wait is left to chance, from this step on: the order of this run says nothing of others. */
  const Step *shaken, *shaken_with;
  const RunCore *shaken_core;
  bool full;     /* a flag may hold more sets than it can */
  uint32_t gone; /* ids that are left out */
  int64_t work;
  /* told before each step with accesses to GM */
  void (*step)(struct Run *r, RunCore *c, uint32_t at);
} Run;

static inline bool run_is_sync(const IrStmt *s) { return s->op >= ST_SET_FLAG && s->op <= ST_SYNC_ALL; }

void run_init(Run *r, PassCtx *p);
/* Lines up what the cores of `block` do. False: nothing can be said. */
bool run_line_up(Run *r, int64_t block);
/* Runs them until nothing can move. True: all came to their end. */
bool run_replay(Run *r);
bool run_over(const RunCore *c);
/* The first pipe whose next step has been issued and waits; S for a step that S is at. PIPE_COUNT: none. */
Pipe run_waiting(const RunCore *c, Pipe from, uint32_t *at);
/* Where the pipes of one core stand in a clock. */
static inline int run_comp(const Run *r, const RunCore *c, Pipe p) { return (int)(c - r->core) * RUN_COMPS + (int)p; }
/* c's pipe p now knows step `at` of `other` done. */
void run_mend(Run *r, RunCore *c, Pipe p, const RunCore *other, uint32_t at);

#endif
