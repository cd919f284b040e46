/* sync.h - shared by sync*.c only: the program of one side as a trace of
 * events, and its replay. */
#ifndef TL_PASS_SYNC_H
#define TL_PASS_SYNC_H

#include "pass.h"

typedef enum {
  EV_INSTR,      /* stmt executes; `entry` says what it touches */
  EV_BEFORE,     /* about to execute stmt: waits and barriers stand here */
  EV_AFTER,      /* stmt is done: sets stand here */
  EV_LOOP_BEGIN, /* stmt is a loop; iter of it follows */
  EV_ITER,
  EV_LOOP_END,   /* arg 1: the loop may run no iteration at all */
  EV_IF_BEGIN,
  EV_ELSE,
  EV_IF_END,
  EV_JUMP,       /* break or continue: what follows in the branch does not happen */
  EV_HAND        /* set_flag, wait_flag, barrier of the user; arg: its id or -1. Whole traces: cross-core ones too */
} EventKind;

typedef struct { uint8_t kind; IrStmt *stmt; uint32_t entry; int32_t arg; } Event;

/* A set of bytes: `count` runs of `width` bytes, `pitch` apart. GM: per-dimension boxes of one tensor. */
typedef struct {
  const IrBuf *buf;
  bool write;
  bool sure; /* exactly these bytes, whenever the statement executes */
  int64_t start, width, pitch, count;
  IrExpr *off[IR_MAX_RANK], *ext[IR_MAX_RANK]; /* GM only; loop variables replaced by this iteration's value */
} Access;

enum { MAX_NEST = 16 };

typedef struct {
  IrStmt *stmt;
  Pipe pipe;
  bool maybe; /* executes only under a condition that is not known */
  Vec(Access) access;
  int depth; /* enclosing loops, outermost first, and the iteration of each */
  IrStmt *loop[MAX_NEST];
  int32_t iter[MAX_NEST];
  uint32_t dep[PIPE_COUNT]; /* latest earlier entry on each pipe that touches the same bytes; 0: none */
  const IrBuf *dep_buf[PIPE_COUNT];
} Entry;

typedef struct {
  Vec(Event) events;
  Vec(Entry) entries; /* from 1 */
  bool too_long;
  bool doubt;   /* a flag or barrier may execute or not, or a cross-core one is left out */
  bool crossed; /* there are cross-core flags or sync_all */
} Trace;

/* The trace of a side's block: every loop is walked often enough to meet each distance at which iterations can
 * touch the same bytes (one more than the largest modulus of its variable). Dependencies are filled in.
 * whole: every iteration of loops of known length, and the taken branch alone of an `if` that hangs on their indices;
 * shorter than other traces may be. */
void sync_trace(PassCtx *p, IrStmt *side, bool whole, Trace *out);

/* ---- the replay ---- */

enum { MAX_ROTATION = 8, HAND_IDS = IR_CROSS_FLAGS }; /* versions of a flag; ids that a text may write, of any flag */

/* Replay state of one event id. */
typedef struct { bool set; int32_t snapshot[PIPE_COUNT], waited; } FlagState;

typedef struct {
  Pipe src, dst;     /* src == PIPE_COUNT: a barrier of dst (ALL or an unordered pipe) before `before` */
  IrStmt *after;     /* sets stand after this statement */
  IrStmt *before;    /* waits stand before this one */
  IrStmt *loop;      /* backward: primed before and drained after this loop; NULL: forward */
  IrStmt *rotor;     /* the loop whose trip picks the id, n > 1 */
  int32_t n;         /* ids */
  int32_t base;      /* first id, once assigned */
  bool dead, answered; /* answered: a backward flag keeps the source from running ahead */
  const IrStmt *why_d, *why_e;
  const char *why;
  FlagState state[MAX_ROTATION];
} Flag;

typedef struct {
  int32_t vc[PIPE_COUNT][PIPE_COUNT], last[PIPE_COUNT];
  bool gone; /* control never comes here */
} Clock;

typedef struct Sync {
  PassCtx *p;
  IrKernel *k;
  IrStmt *side;
  Trace trace;
  Vec(Flag) flags;
  Vec(uint32_t) *at_before, *at_after, *at_loop; /* by statement id: flags to look at */
  Clock now;
  int32_t tick;
  int32_t *entry_tick, *iter;
  int32_t *trips; /* iterations of each loop in the trace */
  bool *made;     /* by statement id: an instruction that the user's statement does not name */
  FlagState by_id[PIPE_COUNT][PIPE_COUNT][HAND_IDS]; /* flags written by hand, and ids on trial */
  bool hand_used[PIPE_COUNT][PIPE_COUNT][HAND_IDS];
  bool check_ids; /* flags that share an id are replayed as one */
  uint32_t miss_e, miss_pipe; /* the first missing edge */
  uint32_t bad_flag;          /* or the flag set twice */
  /* sync_hand.c: */
  /* told of a missing edge that is the user's business; true: from here on it counts as mended */
  bool (*left)(struct Sync *y, uint32_t at, Pipe p);
  uint32_t n_left;                                   /* how many there were */
  /* sync_spare.c: */
  bool *gone; /* by statement id: a flag or barrier by hand that is left out; NULL: none */
  uint32_t n_twice; /* sets by hand that nothing orders after the wait for the set before */
  enum { KNOWN_NOT, KNOWN_NOTED, KNOWN_ASKED } known; /* what is known where other cores listen: kept, or compared */
  bool less;                              /* less than was kept */
  Vec(int32_t) kept, gm_tick[PIPE_COUNT]; /* ticks; gm_tick: accesses of GM and cross-core waits */
  uint32_t n_kept;
  int32_t crossed[PIPE_COUNT]; /* what cross-core sets have told the other cores */
} Sync;

/* True when nothing is missing. */
bool sync_replay(Sync *y);

/* Flags written by hand that are set and waited for unequally often (warnings): those of one core, and, once both sides
 * have all theirs, those between cores. */
void sync_count_side(PassCtx *p, IrStmt *side);
void sync_count_cross(PassCtx *p);
/* The first and the last block, where the grid is known; otherwise -1, any. Returns how many. */
int sync_sample_blocks(const IrKernel *k, int64_t block[2]);

/* sync_cross.c: all cores of a block together. Waits that never end, accesses of GM by different cores that nothing
 * orders (warnings), and cross-core flags that order nothing (remarks). */
void sync_check_cores(PassCtx *p);

/* What the user wrote by hand: accesses it leaves unordered (warnings), and flags and barriers that order nothing
 * (remarks). */
void sync_check_hand(Sync *y);
void sync_name_spare(Sync *y);

#endif
