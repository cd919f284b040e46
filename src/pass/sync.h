/* sync.h - shared by sync.c and sync_trace.c only: the program of one side as a trace of events. */
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
  EV_HAND        /* set_flag, wait_flag or barrier the user wrote; arg: its id or -1 */
} EventKind;

typedef struct { uint8_t kind; IrStmt *stmt; uint32_t entry; int32_t arg; } Event;

/* A set of bytes: `count` runs of `width` bytes, `pitch` apart. GM: per-dimension boxes of one tensor. */
typedef struct {
  const IrBuf *buf;
  bool write;
  int64_t start, width, pitch, count;
  IrExpr *off[IR_MAX_RANK], *ext[IR_MAX_RANK]; /* GM only; loop variables replaced by this iteration's value */
} Access;

enum { MAX_NEST = 16, MAX_ACCESS = 8 };

typedef struct {
  IrStmt *stmt;
  Pipe pipe;
  int n_access;
  Access *access;
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
} Trace;

/* The trace of a side's block: every loop is walked often enough to meet each distance at which iterations can
 * touch the same bytes (one more than the largest modulus of its variable). Dependencies are filled in. */
void sync_trace(PassCtx *p, IrStmt *side, Trace *out);

#endif
