/* timing.h - what the files of the clock share; nobody outside src/sim includes it.
 *
 *   Clock            one timed run: all cores of the chip at once, no data                                    timing.c
 *   ├ Group          the cores that run one block: one cube core, one or two vector cores, or all three
 *   │ └ TimeCore     a core with times: in-order queues, flags that carry the time of their set
 *   ├ Price          what an instruction costs, as numbers                                                    price.c
 *   └ Memory         HBM and L2: hits by address, who reads the same place                                  memory.c
 *     └ Channel      transfers under way: those that L2 has all of, and the others
 *
 * A Tick is 1/256 of a core cycle. Within a group nothing needs an event queue: the time of everything follows from the
 * program by taking maxima, so the group runs ahead until it waits for a transfer through GM. Only those transfers
 * compete with each other, and only they are events. */
#ifndef TL_SIM_TIMING_H
#define TL_SIM_TIMING_H

#include "machine.h"

typedef int64_t Tick;
enum { TICKS = 256, RATE_BITS = 20, NEVER_BITS = 62, FLAG_RING = 16, SECTOR = 128, LINE = 512,
       ALL_PIPES = (1 << CORE_PIPES) - 1, PLACE_BITS = 5, PLACES = 1 << PLACE_BITS };
#define NEVER ((Tick)1 << NEVER_BITS)

/* A transfer between GM and a core, or the rest of one. */
typedef struct {
  int32_t buf;
  bool write;
  int64_t run, rows, pitch; /* bytes of the tensor: `rows` runs of `run`, `pitch` apart */
  Tick head, path, miss;        /* before it moves; to move it, alone on the chip, all in L2 or nothing in L2 */
} Transfer;

typedef struct { Tick ticks; int64_t ops; Transfer gm; } Price; /* ticks -1: it does nothing */

/* ---- memory.c ------------------------------------------------------------------------------------------- */

typedef enum { VIA_HBM, VIA_L2, VIA_COUNT } Via;

/* What it depends on how a transfer moves: bytes asked for in whole sectors, that L2 moves, lines; bytes missing, of
 * HBM; times as in Transfer. */
typedef struct { int64_t touched, moved, lines, miss, hbm; Tick path, path_miss; } Way;

typedef struct { int32_t before, after; } FlowLink; /* or -1 */

typedef struct {
  Way way;             /* of the last transfer: the next one is mostly like it */
  bool moves;          /* is on its channel */
  bool waits;          /* has moved all; only the one before is not there yet */
  Via via, alone_via;  /* VIA_HBM: some of it is not in L2 */
  uint32_t order;      /* in which they began to move */
  double hbm;          /* bytes through HBM for each one that L2 moves */
  int64_t asks;        /* bytes of HBM a tick, << RATE_BITS, at cap */
  int64_t alone_left;  /* ticks that it moves with nobody else, << RATE_BITS */
  int64_t cap;         /* bytes a tick, << RATE_BITS, that it gets a share of; of its part or own_cap */
  int64_t own_cap;     /* the most its path takes now */
  int64_t path_cap, alone_cap; /* own_cap with all in L2; with nobody else at the same place */
  int64_t crowd_cap;   /* own_cap with all that read the same place */
  int64_t at;          /* what `served` is when it ends */
  Tick latency;
  int64_t place;       /* what it reads, -1: it writes */
  FlowLink at_place, in_part; /* others under way whose place has the same hash; of the same part */
  int64_t piece;       /* bytes that L2 moves for each line */
  int32_t part;        /* 0: its rows are whole lines, or it writes */
  bool asks_part;      /* is one of those that share what the part gives */
  bool bound;          /* gets what the part gives to each, for that is less than own_cap */
  int32_t core;
  int32_t pair;        /* the flow of the other vector core beside it, or -1 */
  int32_t together;    /* flows at the same place, this one included */
  int32_t behind;      /* the flow that brings from HBM what this one reads, or -1 */
  int32_t followers;   /* flows behind this one */
} Flow;

typedef struct { int64_t at; uint32_t order; int32_t flow; } Turn;

/* Flows that get the same share of their caps. */
typedef struct {
  Turn *turn;          /* by `at`, then by `order` */
  int32_t head, n, room;
  int64_t caps, asked; /* together: caps; bytes of HBM for them */
  int64_t rate, served; /* the share; ticks that each has moved, as if alone: both << RATE_BITS */
  Tick served_at, next; /* next: when the first flow ends */
  bool unsorted, changed; /* since the last share_rate */
} Channel;

/* Flows that read pieces of lines of the same part of a tensor. Each may get as much as what the part gives, shared by
 * all that ask. */
typedef struct {
  Channel channel[VIA_COUNT]; /* of those that are bound by that; of part 0: all others */
  int64_t key;
  int32_t flows, first; /* under way: number; the last one that began, or -1 */
  int64_t asks;        /* how many ask */
  int64_t bind_at, free_at; /* with so many, some flow becomes bound; with so few, free */
} TensorPart;

/* A part of a line: its sectors, the bytes they count as and L2 moves, and whether it is not whole sectors. Such a part
 * is fetched whole, unless the whole line is there. */
typedef struct { uint32_t sectors; bool odd; int64_t bytes, moved; } Part;

typedef struct { uint32_t stamp; int64_t bytes; } Dirty;

/* A transfer that L2 has seen; stamp: of the lines that were brought in then. */
typedef struct { int32_t buf; bool write; uint32_t stamp; int64_t at, run, rows, pitch, touched, moved, lines; } Tile;

typedef struct {
  Flow *flow;
  int32_t n_flows;
  TensorPart *part;    /* as many as flows, and part 0 */
  int32_t *used, n_used; /* parts with flows, and part 0, which comes first; then those without */
  bool stale, ends;    /* shares are to be made anew, once for all that happens at a time; a flow may have moved all */
  Channel *first;      /* whose first flow ends next, at `next`: NEVER if nothing is under way */
  Tick next;
  uint32_t order;      /* of the next flow */
  int64_t hbm_rate, l2_rate, spare; /* bytes a tick, << RATE_BITS; what nobody takes of hbm_rate */
  Tick since;          /* of the last change */
  int32_t *same, same_mask; /* flows under way by hash of their place: the last one that began */
  int32_t *scratch;    /* a place for each flow */
  uint32_t **line;     /* by buffer: state of each 512-byte line */
  uint32_t capacity;   /* in units of LINES_A_STAMP lines */
  uint32_t keeps[PLACES]; /* the same for lines that are there by address: how long each place keeps them */
  bool room;           /* for all lines of all tensors: none is ever pushed out */
  Tile *tile;          /* by hash */
  int tile_bits;
  int64_t filled;      /* lines brought in so far */
  Dirty *dirty;        /* ring of written ranges, oldest first */
  uint32_t dirty_head, dirty_tail, dirty_cap;
  int64_t unclean, clean; /* written bytes that are only in L2; that HBM has, too, << RATE_BITS */
  int64_t hit_bytes, miss_bytes, dirtied, write_back; /* dirtied: HBM takes them at some time */
  Tick hbm_latency, l2_latency;
  int64_t granule;     /* bytes that L2 moves at least for a piece of a line */
  Part whole;          /* a line */
  int64_t place_gives, part_gives; /* pieces of lines a tick, << RATE_BITS */
  int64_t part_bytes;
  int64_t piece;       /* bytes of HBM that each piece of a line costs besides its own */
  int pair_asks;       /* requests of two vector cores of a pair for the same place: 1 or 2 */
  bool all_hit, free, long_rows; /* what-if: every read hits; transfers take no time; rows are long and aligned */
  double miss_factor, misses; /* share of the transfers that miss and do; how much of the next one is due */
} Memory;

struct Clock;
void memory_init(struct Clock *k);
void memory_restart(Memory *m); /* at time 0, with L2 as it is */
/* Flow f begins at `now`, at byte `at` of its tensor. */
void memory_begin(struct Clock *k, int32_t f, const Transfer *t, int64_t at, Tick now);
/* When a flow ends next, NEVER if none does; what happens at `until` may still change that, if it is the same time. */
Tick memory_settle(Memory *m, Tick until);
static inline Tick memory_next(Memory *m, Tick until) {
  if (!m->stale) return m->next;
  return m->ends || until > m->since ? memory_settle(m, until) : NEVER;
}
/* At that time: the flow that ends there has moved everything. False: it waits for another that brings the same. */
bool memory_step(struct Clock *k, int32_t *flow);

/* ---- instructions as the clock sees them ---------------------------------------------------------------- */

enum { PRICE_KEYS = 8, MOST_PRICES = 1024 };

typedef struct { bool valid; int64_t key[PRICE_KEYS]; Price price; } Priced;
typedef struct { int32_t off, ext; int64_t shape, stride; } GmOffset; /* registers; extent and bytes of a dimension */

typedef struct {
  int16_t gm_arg;    /* the operand in GM, or -1 */
  int8_t n_keys;     /* registers its price depends on; -1: too many to remember */
  int32_t key[PRICE_KEYS];
  int32_t n_seen;
  uint32_t mask;     /* places in `seen`, less one: a power of two */
  Priced *seen;      /* by hash of the keys; what is there stays */
  const ArchCost *cost;
  int64_t gm_at;     /* where a transfer begins in its tensor, but for the offsets that vary */
  int32_t n_off;
  GmOffset off[IR_MAX_RANK];
} PriceMemo;

typedef enum { IDLE_START, IDLE_ISSUE, IDLE_FLAG, IDLE_CROSS, IDLE_BARRIER, IDLE_QUEUE, IDLE_END, IDLE_COUNT } Idle;

typedef struct {
  int64_t count, busy, idle[IDLE_COUNT], slowed, gm_bytes, gm_most, gm_rows, ops;
  int64_t scalar; /* work of S: to issue it, or for this element */
} InstTime; /* slowed: part of busy in which it waited for bandwidth; gm_most: bytes of its largest transfer */

/* What its pipe does with it. */
typedef enum { TIME_WORK, TIME_GM, TIME_SET, TIME_WAIT, TIME_CROSS_SET, TIME_CROSS_WAIT, TIME_BARRIER } TimeKind;

typedef struct {
  const Inst *inst;
  TimeKind kind;
  uint8_t pipe, dst; /* dst, id_reg: of a flag */
  int32_t id_reg;
  uint32_t room;     /* places of its queue; 0: S has more to do than to put it there */
  int32_t pair;      /* set, wait: the first flag of its pair of pipes */
  Tick issue;        /* what S works to issue it */
  InstTime sum;      /* over all executions */
  PriceMemo memo;
} TimeInst;

/* ---- price.c -------------------------------------------------------------------------------------------- */

struct TimeEntry;
void price_init(struct Clock *k);
/* Fills price and at. False: the instruction does nothing, or is illegal (reported). */
bool price_of(struct Clock *k, Core *c, TimeInst *x, struct TimeEntry *e);

/* ---- cores with times ----------------------------------------------------------------------------------- */

typedef struct { Tick at; int32_t from; } TimeSet; /* from: see Cause */
typedef struct { uint8_t head, n; TimeSet set[FLAG_RING]; } TimeFlag;

/* Events of the timeline, -1: what issued an instruction; what let the one before at its place begin. */
typedef struct { int32_t from, by; } Cause;

typedef struct TimeEntry {
  TimeInst *inst;
  const Price *price;
  union {
    int64_t at;        /* where its transfer begins in the tensor */
    int64_t id;        /* cross_set */
    TimeFlag *flag;    /* other flags; NULL: no such flag */
  };
  Tick issued;
  Tick left;           /* when the instruction before left this place */
  Cause cause;         /* for a timeline only */
} TimeEntry;

typedef struct {
  TimeEntry *head, *tail; /* the next to run; where S puts the next one */
  TimeEntry *first, *end; /* all places, a ring */
  Price *own;          /* by place, for prices that are not remembered; NULL: none yet */
  uint32_t n;          /* instructions in it */
  int32_t last;        /* its last event of the timeline, or the one on another pipe that it waited for since; -1 */
  bool in_flight;      /* its head moves through GM */
  TimeFlag *waits;     /* if the flag at its head is not set, it is this one */
  Tick free;           /* the next instruction may begin */
  Tick done;           /* everything so far is complete */
  Tick mark;           /* time is accounted for up to here */
  Tick began;          /* of the transfer in flight */
  Tick busy, idle[IDLE_COUNT];
} TimePipe;

typedef struct TimeCore {
  struct Clock *clock;
  Core *core;
  TimeInst *const *inst;     /* as Clock.issued */
  int32_t group;
  uint32_t may;              /* pipes that may move, a bit each; the others wait */
  TimePipe pipe[CORE_PIPES]; /* of S: no queue; all is done when it is free, and accounted for */
  const TimePipe *full;      /* whose queue has no room for what S is at; NULL: S sleeps until a queue is empty */
  TimeFlag *flag;            /* [pair][id] */
  int32_t n_flags, n_cross;  /* in `flag`; in `cross` and `sent` together */
  TimeFlag *cross, *sent;    /* as in Core */
  Tick blocked;              /* S in sync_all: since when it waits, then until when */
  int32_t blocked_by;        /* the event that this time hangs on, -1 */
  const IrStmt *doing;       /* statement of the elements in the last event of S; NULL: it issues */
  int32_t said;              /* number of that event, -1: none yet */
  Tick said_until;           /* its end */
  int64_t steps;             /* operations of S that are paid for */
  int64_t blocks;
  Tick start, end;
} TimeCore;

typedef struct { int32_t first, n; int64_t block; bool running; } Group;

/* A group goes on, a group is free for a block, and for each pipe: a transfer begins. */
enum { GROUP_START, GROUP_FREE, TRANSFERS, EVENTS = TRANSFERS + CORE_PIPES };

typedef struct { Tick at; int32_t who; } Event; /* who: a group or core */
typedef struct { Event *event; int32_t first, n, room; } EventList; /* by time */

typedef struct Clock {
  Sim *sim;
  Machine *m;
  Arena *arena;
  Arch arch;
  ArchTime t;
  const SimTimeOptions *opt;
  bool timeline;       /* of opt: what events hang on is kept */
  Memory mem;
  TimeInst *inst;      /* by id of an instruction or an element */
  TimeInst **issued[2]; /* the instructions of a side by their numbers */
  int32_t *number;     /* by the same id: its place in the result */
  TimeCore *core;      /* as m->core */
  Group *group;
  int32_t n_groups;
  int32_t n_pairs[2];  /* of pipes that flags join, by side */
  uint32_t pipes[2];   /* that a side uses, a bit each; that of S: it does what others may wait for */
  EventList event[EVENTS]; /* to come */
  uint32_t kinds;      /* lists that are not empty, a bit each */
  int first;           /* the list whose first comes next, at `next`: NEVER if there is none */
  Tick next;
  uint32_t depth;      /* instructions that a queue holds */
  int64_t next_block, blocks; /* blocks: of the launch */
  Tick dispatcher, now, end;
  Arena *keep;         /* where `events` live */
  Vec(SimTimeEvent) events; /* kept: numbers first_event on */
  int32_t n_events, last_event; /* in all; the one that ends last, -1: none yet, and when */
  Tick last_until;
  Tick flag, cross_flag, sync_all, issue, scalar_op, scalar_mem, scalar_gm, mmad_tail;
  Tick l1_write_slow, l1_read_slow; /* shares */
  Tick launch, fetch, dispatch, block_gap; /* launch: until the cores start; fetch: then until their first block does */
} Clock;

static inline Tick ticks_of(double cycles) { return (Tick)(cycles * TICKS + 0.5); }
static inline Tick ticks_of_ns(const Clock *k, double ns) { return (Tick)(ns * 1e-3 * k->arch.mhz * TICKS + 0.5); }

/* S is at C_ISSUE after `steps` operations and goes on to the last one in a row, which comes back with the operations
 * until there; or, with a state other than S_RUN, the one it must wait in. */
const Code *clock_issue(Core *c, const Code *at, int64_t *steps);
void clock_element(Core *c, const Element *el); /* S reads or writes one element */
/* Runs the whole launch. The machine's faults say whether it went well. */
void clock_run(Clock *k);

#endif
