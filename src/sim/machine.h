/* machine.h - what the files of the simulator share; nobody outside src/sim includes it.
 *
 *   Sim                one run, read-only for the workers: buffers with their actual sizes, one Program a side
 *   ├ Program          flat register bytecode for pipe S; ISSUE ops point to Inst records        program.c
 *   └ Machine          one worker: the cores of one block (or of all blocks when they wait for each other)
 *     └ Core           memories, registers of pipe S, in-order queues of the other pipes, flags  machine.c, queue.c
 *         Entry        an instruction in a queue: its operands as numbers                        operand.c
 *         OpImpl       legal / touch / exec of one op                    exec_*.c
 *         Shadow       who touched which bytes last, which bytes hold a value                    check.c
 *
 * `legal` says whether an instruction may run and sets up its loop; `touch` names the bytes it reads and writes
 * (the hazard observer calls it twice: to look, then to mark); `exec` changes the bytes. */
#ifndef TL_SIM_MACHINE_H
#define TL_SIM_MACHINE_H

#include "sim.h"

enum {
  MAX_ARGS = 5,
  CORE_PIPES = PIPE_ALL, /* pipes with a queue: all but the pseudo pipe ALL */
  S_ORDER = CORE_PIPES,  /* clock component: statements of synchronisation that S has passed */
  COMPS = 8,             /* clock components a core: the pipes and S_ORDER */
  FLAG_CLOCKS = 4,
  SEQ_RING = 256,
  SIM_FLAGS = 16,        /* flags kept for a pair of pipes; chips have fewer: more is a fault */
  CROSS_MODES = 3,
  CROSS_RING = 16,       /* pending sets a cross flag can hold here; chips allow fewer */
  NO_REG = -1
};
_Static_assert((int)PIPE_S == 0, "pipe loops start after S");
_Static_assert((int)S_ORDER < (int)COMPS, "a clock component for every pipe, one for the order of S");

typedef union { int64_t i; double f; } Reg; /* integers and bool sign- or zero-extended; floats exact in double */

/* ---- program -------------------------------------------------------------------------------------------- */

typedef enum {
  C_HALT,
  C_MOV,    /* d = a */
  C_JMP,    /* goto to */
  C_JZ,     /* if (!a) goto to */
  C_JNZ,    /* if (a) goto to */
  C_STEP,   /* d += b, 64 bits */
  C_LOOP,   /* if (b > 0 ? d < a : d > a) goto to */
  C_ISSUE,  /* instruction a */
  C_LOAD,   /* d = element a */
  C_STORE,  /* element a = d */
  C_DRAIN,  /* wait until what was issued is done */
  C_PEEK,   /* d = element a, unseen by the checks */
  C_SAY,    /* print or assert a */
  C_CAST,   /* d = a converted from dtype b to dtype aux */
  C_BITS,   /* d = bits of a (dtype b) read as dtype aux */
  C_INT,                   /* + ExprOp: integer arithmetic in dtype aux */
  C_FLT = C_INT + EX_COUNT /* + ExprOp: float arithmetic in dtype aux */
} CodeOp;

/* steps: operations of S that it stands for, and those after it whose result is there already, as the clock counts. */
typedef struct { uint16_t op, aux; int32_t d, a, b, to, steps; } Code;

/* One element of a buffer, read or written by pipe S. */
typedef struct {
  uint32_t id;
  int32_t buf, idx[IR_MAX_RANK];
  const IrStmt *stmt;
  bool is_store, peek; /* peek: of a print */
  bool kept;           /* its values are kept for a timed run, or come from the run that it follows */
} Element;

/* A region operand: registers with its offsets and extents. */
typedef struct {
  int32_t buf;
  int32_t off[IR_MAX_RANK], ext[IR_MAX_RANK];
  int32_t scalar; /* register, when the operand is no region (buf == 0) */
  uint8_t type;   /* DType of the scalar's register */
} Operand;

/* A print or assert: registers of its condition and values. */
typedef struct { const IrStmt *stmt; int32_t cond; Operand *arg; } Say;

typedef struct Inst Inst;
struct Inst {
  uint32_t id; /* dense over instructions and elements of both programs, from 1: names who touched a byte */
  const IrStmt *stmt;
  uint16_t op; /* StmtOp */
  uint8_t pipe;
  uint8_t n_args, n_in;
  uint8_t src, dst; /* flags */
  uint8_t cast, cmp;
  bool relu, atomic, trans, maskrep;
  int32_t mode;  /* cross_set */
  int32_t id_reg, init_reg, pad_reg; /* flag id; mmad init; gm_to_ub pad; NO_REG */
  uint8_t pad_type;
  Operand arg[MAX_ARGS];
  const struct OpImpl *impl;
};

typedef struct {
  char side; /* 'c' or 'v' */
  Code *code;
  const IrStmt **code_stmt; /* the statement each code comes from */
  int32_t n_code;
  Inst *inst;
  int32_t n_inst;
  Element *elem;
  int32_t n_elem;
  Say *say;
  int32_t n_say;
  Reg *init; /* constants at their places, rest 0 */
  int32_t n_reg;
  bool sync_all, cross, mode0;
} Program;

/* What a core read in one block, in order. */
typedef struct { Reg *value; int64_t n, cap; } Reads;
struct SimValues { int64_t blocks; int32_t cores; Reads *reads; /* [block][core of the block] */ };

/* ---- buffers of a run ----------------------------------------------------------------------------------- */

typedef struct {
  const IrBuf *ir;
  Space space;
  Layout layout;
  DType type;
  int32_t size; /* bytes of an element */
  int32_t rank;
  int64_t shape[IR_MAX_RANK],
      stride[IR_MAX_RANK]; /* elements; fractal: strides of the leading dimensions, in elements */
  int64_t addr, bytes;  /* place in the memory; GM: from the first byte of the tensors that share bytes with it */
  uint8_t *gm;          /* GM: host memory */
  uint32_t tensor;      /* GM: id of the tensor whose bytes these are: its own, or of what it views */
  uint32_t share;       /* GM: the first of the tensors that share bytes with it, as the caller passed them */
  bool fractal;
  int64_t frow, fcol;   /* fractal layouts: rows and columns of one fractal */
  int64_t prow, pcol;   /* a plane, padded to whole fractals */
  bool written;         /* GM: some instruction of the kernel writes it */
  bool hazard;          /* GM: cores or pipes of one block may meet in it: keep a shadow */
  bool undefined;       /* GM: `out` or `workspace`: holds nothing at the start */
  uint8_t watch;        /* GM: note what is read or written (unread.c) */
  bool log;             /* GM: an output, or blocks may meet in it: log accesses for what is done at the end */
  uint8_t owner;        /* local: number among the buffers that share bytes with others; 0: its bytes are its own */
} SimBuf;

/* A region with numbers. Bytes are counted from the start of the buffer. */
typedef struct {
  int64_t off;                /* ND: first byte; fractal: first byte of the plane */
  int64_t count;              /* elements */
  int64_t rows, cols,
      pitch; /* cols: the innermost extent other than 1; pitch in bytes; rows 0: more than two strides */
  int64_t nruns, run, rpitch; /* the same with contiguous dimensions merged; nruns 0: more than two strides */
  int64_t r0, c0;             /* fractal: corner of the box; rows x cols is the box */
} View;

static inline bool view_flat(const View *v) { return v->nruns == 1; }

typedef struct {
  const Inst *inst;
  bool dead;             /* nothing to do: an empty region, or a fault already reported */
  uint32_t seq;          /* place in program order */
  bool has_clock;        /* clock holds what S had seen when it issued this */
  View v[MAX_ARGS];
  Reg s[MAX_ARGS];       /* scalar operands */
  int64_t id;            /* flag */
  bool init;             /* mmad */
  Reg pad;               /* gm_to_ub with pad */
  /* set by legal: rows x cols steps; pitch in bytes; block: a 32-byte block serves the row */
  int64_t rows, cols, pitch[MAX_ARGS];
  bool block[MAX_ARGS];
  uint32_t *clock;
} Entry;

/* ---- host kernels --------------------------------------------------------------------------------------- */

typedef enum { VT_F32, VT_F16, VT_BF16, VT_I32, VT_I16, VT_U32, VT_U16, VT_COUNT } VecType;

/* d[i] = f(a[i], b[i]), i < n. d may be a or b. b_scalar: b points to one element that serves all. */
typedef void (*VecFn)(void *d, const void *a, const void *b, int64_t n, bool b_scalar);

typedef struct {
  const char *name;
  VecFn vec[OP_COUNT][VT_COUNT]; /* NULL: not an op of that dtype */
  void (*compare[VT_COUNT])(uint8_t *mask, const void *a, const void *b, int64_t n, bool b_scalar, CmpMode mode);
  void (*to_f32[VT_COUNT])(float *d, const void *s, int64_t n);
  void (*from_f32[VT_COUNT])(void *d, const float *s, int64_t n); /* nearest even; i32 and i16: saturating */
  /* Unpacking of one 16x16 fractal, columns first: d[k * 16 + n] = s[n * 16 + k]. */
  void (*unpack_t[VT_COUNT])(float *d, const uint16_t *s);
  void (*transpose16)(uint16_t *d, const uint16_t *s); /* 16x16 elements of 2 bytes */
  /* c[rows][16] of `fractals` fractals cstride floats apart: c (+)= a b over k steps in order.
   * a: [kf][16][16] fractals, first row of the tile; b: [k][16] panels bstride floats apart. */
  int32_t tile_rows, tile_fractals;
  void (*mmad)(float *c, int64_t cstride, const float *a, const float *b, int64_t bstride, int64_t k, bool init,
               int fractals, bool exact);
  void (*mmad_i8)(int32_t *c, const int32_t *a, const int32_t *b, int64_t k, bool init); /* one 16x16 fractal */
} HostKernels;

const HostKernels *host_kernels(void); /* the best this host runs */
extern const HostKernels host_portable;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TL_HOST_X86 1
extern const HostKernels host_avx2, host_avx512;
#endif

/* ---- shadow and clocks (check.c) ------------------------------------------------------------------------ */

typedef struct Shadow Shadow;

typedef struct {
  int64_t lo, hi;
  uint32_t key, who, tick;
} Hit; /* bytes of a range, and the access before: lane key, who, when */

typedef enum {
  TOUCH_READ,      /* must hold values */
  TOUCH_READ_ANY,  /* read, but whether it holds values does not matter */
  TOUCH_WRITE,
  TOUCH_SPOIL,     /* written with nothing of meaning */
  TOUCH_ATOMIC     /* added to; two of them need no order */
} TouchKind;

typedef struct { const SimBuf *buf; TouchKind kind; Hit hit; } Race; /* buf NULL: none */

typedef struct {
  struct Core *core;
  const IrStmt *stmt;
  uint32_t who, seq;
  Pipe pipe;
  bool mark;  /* false: look for hazards; true: remember the access */
  bool again; /* looks once more, when a race is told */
  uint32_t before; /* see Search */
  Race race;  /* the nearest that a look has found */
} Toucher;

/* `count` ranges of `len` bytes, `stride` apart, from byte `at` of the buffer. */
void touch(Toucher *t, const SimBuf *b, TouchKind kind, int64_t at, int64_t len, int64_t count, int64_t stride);

/* ---- cores ---------------------------------------------------------------------------------------------- */

typedef struct {
  Entry *ring;
  uint32_t head, tail, depth;
  uint32_t tick;  /* instructions this pipe has begun */
  uint32_t seq[SEQ_RING]; /* by tick: when S issued it, counted over all pipes of the core */
  uint32_t *seen; /* per component: how far this pipe knows the others to be done; its own: itself */
  bool stale;     /* S has learned something since it last issued to this pipe */
} PipeQueue;

typedef struct {
  uint32_t set;          /* pending sets; more than 1 is a fault */
  uint32_t first;        /* place of the oldest in `clocks` */
  uint32_t wait_tick;    /* when the destination pipe last consumed the flag: tick, or S_ORDER of pipe S */
  const Inst *setter, *waiter;
  uint32_t *clocks;      /* one for each pending set, up to FLAG_CLOCKS; NULL before the first set */
} Flag;

typedef struct {
  uint32_t head, tail;  /* pending sets: tail - head */
  uint32_t known;       /* sets that were taken before the last set, whatever the schedule: known <= head */
  uint32_t *clocks;     /* one clock a pending set */
  uint32_t *gone;       /* one clock a taken set from `known` on: when it was taken */
  const Inst *setter[CROSS_RING], *taker;
} CrossFlag;

typedef enum {
  S_RUN,
  S_QUEUE,
  S_SYNC,
  S_SAY,
  S_DONE
} SState; /* S waits for room in a queue, or in a statement of synchronisation */

typedef struct Core {
  struct Machine *m;
  const Program *prog;
  int32_t index;     /* in the machine */
  int32_t slot;      /* which of the machine's blocks */
  int32_t vid;       /* vector: 0, 1; -1 on a cube core */
  int64_t block;
  Reg *reg;
  int32_t pc;
  uint32_t seq;      /* instructions and element accesses S has issued */
  uint32_t s_order;  /* statements of synchronisation S has passed */
  SState state;
  const Inst *at;    /* what S waits in */
  uint8_t all;       /* sync_all: 0 on the way, 1 arrived, 2 released */
  bool hurry;        /* nothing else moves: print what there is */
  bool tainted;      /* an instruction was left out after a fault: missing values are its fault */
  uint8_t *mem[SPACE_COUNT];
  Shadow *shadow[SPACE_COUNT];
  Flag *flag;        /* [src][dst][id] */
  CrossFlag *cross;  /* [id]: what this core may wait for */
  CrossFlag *sent;   /* [id][CROSS_MODES]: sets by this core that its partners have not matched yet */
  struct BoxUse *box; /* by buffer of L1 and L0: what was loaded, what products took (unread.c) */
  uint32_t *begun;   /* [Inst.id]: tick at which this block first came there; with checks and cross-core flags */
  Reads *reads;      /* of the block under way; NULL: not kept, not followed */
  int64_t followed;  /* taken from there by the clock */
  struct TimeCore *time; /* a core of the clock: instructions go there, not to `pipe`; NULL in a functional run */
  int64_t steps;     /* operations of S in this block, up to its last instruction or element; counted for the clock */
  PipeQueue pipe[CORE_PIPES]; /* large, and last: the clock has its own */
} Core;

typedef struct {
  DiagCode code;
  int64_t block;
  const IrStmt *at, *with;
  Loc loc, other;
  const char *text, *other_text, *fix, *key; /* key: the same fault in another block or iteration */
  bool flag, ahead; /* a race within a core, a flag mends it; the pipe that sets it runs ahead, would set it twice */
  uint32_t mended[2]; /* by vector core: tick of the pipe that should wait, when it last happened */
  bool late;        /* what should wait ran first: `with` came later, component and tick of it */
  uint32_t late_comp, late_tick;
  bool dropped;     /* another fault says more */
} Fault;
typedef Vec(Fault) FaultList;

#define PASS_APART "the kernel is made for tensors that do not overlap: pass a copy of one of them"

typedef struct { /* an access to a GM tensor that several blocks touch */
  int64_t block;
  uint32_t who;
  int32_t buf;
  TouchKind kind;
  int64_t at, len, count, stride;
} GmAccess;

typedef struct { /* bytes that another core writes too, in no order */
  Toucher by;
  const SimBuf *buf;
  TouchKind kind;
  int64_t lo, hi;
  Hit hit;
} TwiceWritten;

typedef struct Machine {
  struct Sim *sim;
  Arena arena;    /* lives as long as the worker */
  jmp_buf oom;
  bool out_of_memory;
  int32_t n_cores, n_comp;
  Core *core;
  struct GmShadow *gm; /* shadow of GM tensors within the machine's blocks */
  struct SplitLane *free_lanes;
  uint32_t *all_clock; /* n_comp: scratch */
  FaultList faults;
  Map fault_keys;
  int32_t block_faults; /* in the block under way */
  bool hung;            /* a set found no room: what does not move later is its fault */
  Vec(SimSaid) said;
  int64_t said_bytes;   /* of the block under way */
  Vec(GmAccess) log;
  struct ReadMap *read; /* by tensor; NULL: nothing noted yet */
  Vec(TwiceWritten) twice; /* by the instruction under way */
  Vec(uint8_t) before;     /* the bytes they had */
  int64_t asked;        /* when, in ms */
  bool asks;            /* runs on the calling thread: asks whether to go on */
  int64_t budget, spin; /* backward jumps left: in all, and until S does something others can see */
  int64_t instructions, gm_read, gm_write;
  uint64_t random;      /* state, with a seeded schedule */
  uint32_t *priority;   /* [core][pipe], with a seeded schedule */
  uint8_t *scratch;     /* SCRATCH bytes, 64-byte aligned: unpacked operands of the cube */
} Machine;

typedef struct Sim {
  const IrKernel *k;
  const Arch *arch;
  const SimArg *args;
  bool checks;
  int32_t max_faults;
  SimBuf *buf; /* by buffer id */
  uint32_t n_buf;
  Program prog[2]; /* cube, vector */
  uint64_t schedule; /* seed of the order in which pipes move; 0: fixed */
  SimValues *values; /* kept or followed; NULL: neither */
  const IrStmt **who; /* statement of each id of an instruction or element */
  uint32_t n_ids;
  Reg *param;      /* by variable id: scalar parameters */
  int64_t blocks, grid[3];
  int32_t cores_per_block; /* simulated: cube and vector cores with a program */
  bool together;           /* all blocks in one machine */
  bool by_size;            /* sizes alone decide what is read, neither scalars nor elements of tensors */
  int64_t used[SPACE_COUNT]; /* bytes of each memory that buffers occupy */
  const HostKernels *host;
  _Atomic int64_t next, last; /* next block to run; blocks beyond `last` need not run */
  _Atomic int32_t stopped, busy; /* the caller wants no more; workers that still run */
  const SimOptions *opt;
} Sim;

/* ---- ops ------------------------------------------------------------------------------------------------ */

typedef struct OpImpl {
  bool (*legal)(Core *c, Entry *e);
  void (*touch)(Toucher *t, const Entry *e);
  void (*exec)(Core *c, const Entry *e);
} OpImpl;

const OpImpl *impl_move(StmtOp op); /* NULL: not theirs */
const OpImpl *impl_cube(StmtOp op);
const OpImpl *impl_vector(StmtOp op);
const OpImpl *impl_gather(StmtOp op);
const OpImpl *impl_sort(StmtOp op);

static inline const SimBuf *arg_buf(const Core *c, const Inst *i, int arg) { return &c->m->sim->buf[i->arg[arg].buf]; }
/* Host address of byte `at` of a buffer, as this core sees it. */
static inline uint8_t *buf_ptr(const Core *c, const SimBuf *b, int64_t at) {
  return b->space == SPACE_GM ? b->gm + at : c->mem[b->space] + b->addr + at;
}

/* Operand a of an entry: its first byte in its memory, its bytes without gaps, where they lie in the host's memory. */
static inline int64_t entry_start(const Core *c, const Entry *e, int a) {
  return arg_buf(c, e->inst, a)->addr + e->v[a].off;
}
static inline int64_t entry_bytes(const Core *c, const Entry *e, int a) {
  return e->v[a].count * arg_buf(c, e->inst, a)->size;
}
static inline uint8_t *entry_ptr(const Core *c, const Entry *e, int a) {
  return buf_ptr(c, arg_buf(c, e->inst, a), e->v[a].off);
}

/* program.c */
/* says: with its prints and assertions; they take no time. */
bool program_build(Arena *a, Diags *d, const IrKernel *k, char side, bool says, uint32_t *next_id, Program *out);
Reg *eval_params(Arena *a, const IrKernel *k, const SimArg *args); /* by variable id */
bool eval_const(const IrKernel *k, const Reg *vars, const IrExpr *e, int64_t *out); /* shapes and grid extents */

/* scalar.c: arithmetic of pipe S */
Reg scalar_int(ExprOp op, DType t, Reg a, Reg b, bool *div_zero);
Reg scalar_float(ExprOp op, DType t, Reg a, Reg b); /* comparisons give .i */
Reg scalar_cast(DType to, DType from, Reg a);
Reg scalar_bits(DType to, DType from, Reg a);
Reg scalar_load(DType t, const void *p);
void scalar_store(DType t, void *p, Reg v);
void convert(void *d, DType dt, const void *s, DType st, int64_t n,
             CastMode mode); /* any pair, one element at a time */

/* operand.c */
bool resolve(Core *c, const Inst *i,
             Entry *e); /* false: out of bounds, reported; e->dead when there is nothing to do */
bool element_at(Core *c, const Element *el, int64_t *at);
bool fit_rows(const View *v, const SimBuf *b, int64_t rows, int64_t cols, int64_t *pitch);
bool elementwise_form(Core *c, Entry *e, int first_in, int n_in, int out);
bool op_refuse(Core *c, const Inst *i, const char *what);                                   /* false */
bool op_misaligned(Core *c, const Inst *i, int arg, const char *what, int64_t value, int64_t unit); /* checks only */
bool op_over_limit(Core *c, const Inst *i, const char *what, int64_t value, int64_t limit);  /* checks only */
bool op_in_space(Core *c, const Inst *i, int arg, Space s);
bool op_no_dtype(Core *c, const Inst *i, DType t); /* false: the pipe has no such form */
void touch_nz(Toucher *t, const SimBuf *b, const View *v, TouchKind kind); /* the elements of a box of NZ, no more */
VecType vec_type(DType t); /* VT_COUNT: vector kernels do not know it */
int64_t nz_offset(const SimBuf *b, int64_t r, int64_t c); /* byte of (r, c) in a fractal plane */

/* machine.c */
void machine_init(Machine *m, Sim *s, int32_t n_blocks);
bool machine_may_go_on(Machine *m);
void machine_run(Machine *m, int64_t first_block); /* until all cores are done or can go no further */
void core_begin(Core *c, int64_t block);           /* registers and state of S at the start of a block */
/* S runs until it must wait or is done, or for `one` statement that others can see. True if it got anywhere. */
bool run_s(Core *c, bool one);
const char *where(Arena *a, const Core *c);        /* "block (0, 1), vector core 1" */
const char *inst_text(Arena *a, const Core *c, const IrStmt *s);

/* queue.c: flags, barriers, queues */
bool may_issue(const Core *c, Pipe p);
void issue(Core *c, Pipe p);
bool s_may_sync(const Core *c, const Inst *i);
bool s_sync(Core *c, const Inst *i); /* false: S must wait after all */
bool pipes_empty(const Core *c);
void mend_race(Core *c, Pipe p, const Core *oc, Pipe op); /* as if p's next had waited for all that `op` of oc did */
void report_deadlock(Machine *m);
void report_flags_left(Machine *m);

/* shadow.c */
Shadow *shadow_new(Machine *m, int64_t bytes);
void shadow_reset(Machine *m, Shadow *s); /* a new block: no byte holds a value */
struct GmShadow *gm_shadow_new(Machine *m);
void gm_shadow_reset(Machine *m);

typedef enum { LANE_READ, LANE_WRITE, LANE_ATOMIC, LANE_KINDS } LaneKind;
/* Bytes [lo, hi) of a local memory (b NULL) or a GM tensor. twice: only writes after those of other cores, which the
 * others leave out. */
typedef struct {
  int64_t lo, hi;
  uint32_t comp; /* who asks, to do what, and what it knows to be done */
  LaneKind kind;
  const uint32_t *seen;
  bool in_order, twice;
  uint32_t before;  /* 0, or: of this core, only what it issued before */
  uint32_t seq, id; /* of the access and its statement */
} Search;
/* Of what was issued before the access, the last; of what was issued after it and ran too early, the next statement of
 * the text: what follows that one knows it done. */
bool hit_nearer(const Machine *m, const Search *q, const Hit *h, const Hit *than);
/* The nearest one. */
bool shadow_conflict(Machine *m, Shadow *s, const SimBuf *b, const Search *q, Hit *hit);
/* When the core issued the other access, counted as its statements go; 0: long ago, or another core did. */
uint32_t hit_seq(const Machine *m, uint32_t core, const Hit *h);
bool shadow_undefined(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, Hit *hit);
void shadow_mark(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, uint32_t comp, LaneKind kind,
                 uint32_t tick, uint32_t who);
void shadow_define(Machine *m, Shadow *s, const SimBuf *b, int64_t lo, int64_t hi, bool defined);
/* Buffer number `owner` (1..MAX_OWNERS) was written. */
void shadow_own(Shadow *s, int64_t lo, int64_t hi, uint8_t owner, uint32_t who);
/* Bytes that were written through `owner`, and through another buffer later. */
bool shadow_lost(const Shadow *s, int64_t lo, int64_t hi, uint8_t owner, Hit *hit);

/* check.c */
void observe(Core *c, const Entry *e); /* look, then mark */
void observe_element(Core *c, const Element *el, int64_t at);
void observe_done(Core *c); /* the instruction or element store has happened */
bool fault_known(Core *c, DiagCode code, const IrStmt *at, const IrStmt *with); /* already reported: spare the text */
Fault *fault(Core *c, DiagCode code, const IrStmt *at, const IrStmt *with, const char *fmt, ...) TL_PRINTF(5, 6);
void fault_other(Core *c, Fault *f, const char *fmt, ...) TL_PRINTF(3, 4);
void fault_fix(Core *c, Fault *f, const char *fmt, ...) TL_PRINTF(3, 4);
void clock_join(uint32_t *into, const uint32_t *from, int32_t n);

/* show.c */
void say(Core *c, const Say *x);
void say_around(const Sim *s, Arena *a, SayWhen when, SimResult *out);
void say_collect(Arena *a, const Machine *machine, int n, SimResult *out);

/* unread.c */
void watch_tensors(Sim *s);
void note_access(Toucher *t, const SimBuf *b, int64_t at, int64_t len, int64_t count, int64_t stride);
void note_box(Core *c, const Entry *e); /* an instruction of the cube side */
void find_unread(const Sim *s, Arena *a, Diags *d, const Machine *m, int n); /* ends of operands, gaps: warnings */

/* blocks.c */
void compare_blocks(const Sim *s, Arena *a, const Machine *m, int n, FaultList *out);
void find_unwritten(const Sim *s, Arena *a, Diags *d, const Machine *m, int n); /* elements of outputs: warnings */

enum { SPIN = TL_LIMIT(1 << 26, 20) };
enum { MAX_OWNERS = TL_LIMIT(63, 2) }; /* buffers of one memory that share bytes and are told apart */
enum { SCRATCH = 1 << 20, GUARD = 64 }; /* GUARD: bytes after each memory that vector code may read */

#endif
