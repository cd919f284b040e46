/* twin.c - see twin.h: order, vector unit, moves, cube. */
#include "twin.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 16, PAGE = 4096, GRAINS = PAGE / GRAIN, BUCKETS = 4096, MAX_FAULTS = 20, EVENTS = 8, CROSS = 16,
       SETS = 16, MAX_TENSORS = 64, READERS = 3, REWRITE = TW_ACCUMULATE + 1 };

typedef struct {
  uint32_t wrote;            /* time of the last write */
  uint32_t read[TW_PIPES];   /* time of the last read by each pipe */
  uint8_t writer;
  bool written;
} Grain;

typedef struct Page {
  uintptr_t at;
  struct Page *next;
  Grain grain[GRAINS];
} Page;

/* An access to global memory: the core counts over all blocks; kind is 1 + TW_READ ..., 0: none. */
typedef struct { uint64_t time : 32, core : 26, pipe : 4, kind : 2; } Epoch;
typedef struct { Epoch wrote, other[READERS]; } Element; /* other: reads and additions since the last write */
typedef struct { const char *name, *at; size_t bytes, room; int element; Element *shadow; } Tensor;

typedef uint32_t Clock[TW_PIPES]; /* of one core */

/* Ways of flags between cores: mode 0 of cube or vector cores; in a block: mode 1, mode 2 from either kind. */
enum { ALL_CUBE, ALL_VECTOR, OF_BLOCK, PAIR = 0, FROM_CUBE, FROM_VECTOR, WAYS_OF_BLOCK };

/* Behind it, by way, flag and core: how often it is set; how often it is taken; with each of the last SETS sets, what
 * the setters knew of each core. */
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int first, cores, ways, alive, waiting;
  bool there[TW_CORES], dead;
  int waits_for[];           /* by core: 1 + flag */
} Shared;

typedef struct {
  uint32_t now[TW_PIPES];    /* instructions of each pipe */
  uint32_t said[TW_PIPES];   /* the last that was found out of order */
  Clock seen[TW_PIPES];      /* how far pipe p knows pipe q to be done */
  Clock *far;                /* of the other cores, for every pipe: a wait for a flag between cores holds all back */
  bool flag[TW_PIPES][TW_PIPES][EVENTS];
  Clock passed[TW_PIPES][TW_PIPES][EVENTS];
  Page *page[BUCKETS];
  Shared *shared;
  int me;                    /* of the cores that run together */
  struct { const char *at; size_t bytes; } memory[TW_MEMORIES];
  bool counting;
  uint64_t high, low;
  uint8_t cmpmask[32];
  int faults;
  char text[MAX_FAULTS * 256];
} Twin;

static Twin twin;

static const char *const pipe_name[TW_PIPES] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
static const char *const memory_name[TW_MEMORIES] = {"UB", "L1", "L0A", "L0B", "L0C"};
static Tensor tensor[MAX_TENSORS];
static int n_tensors;
static const int type_size[TW_TYPES] = {2, 2, 4, 1, 1, 2, 2, 4, 4, 8, 1};

static void fault(const char *f, ...) {
  if (twin.faults++ >= MAX_FAULTS) return;
  va_list ap;
  size_t n = strlen(twin.text);
  va_start(ap, f);
  vsnprintf(twin.text + n, sizeof twin.text - n - 1, f, ap);
  va_end(ap);
  strcat(twin.text, "\n");
}

void twin_not_modelled(const char *intrinsic) { fault("%s is not modelled", intrinsic); }

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static size_t flags_of(const Shared *s) { return (size_t)s->ways * CROSS; }
static uint32_t *set_at(Shared *s, int way, int flag) {
  return (uint32_t *)(s->waits_for + s->cores) + ((size_t)way * CROSS + (size_t)flag) * (size_t)s->cores;
}
static uint32_t *taken_at(Shared *s, int way, int flag) {
  return set_at(s, way, flag) + flags_of(s) * (size_t)s->cores;
}
static Clock *clock_at(Shared *s, int way, int flag, uint32_t set) {
  uint32_t *behind = set_at(s, 0, 0) + 2 * flags_of(s) * (size_t)s->cores;
  return (Clock *)behind + (((size_t)way * CROSS + (size_t)flag) * SETS + set % SETS) * (size_t)s->cores;
}

size_t twin_shared_bytes(int blocks) {
  size_t cores = (size_t)blocks * TW_CORES, flags = (size_t)(OF_BLOCK + WAYS_OF_BLOCK * blocks) * CROSS;
  return sizeof(Shared) + cores * sizeof(int) + 2 * flags * cores * 4 + flags * SETS * cores * sizeof(Clock);
}

void twin_share(void *shared, int first, int blocks, const bool there[TW_CORES]) {
  Shared *s = shared;
  pthread_mutexattr_t lock;
  pthread_condattr_t changed;
  pthread_mutexattr_init(&lock);
  pthread_condattr_init(&changed);
  pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_settype(&lock, PTHREAD_MUTEX_RECURSIVE);
  pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&s->lock, &lock);
  pthread_cond_init(&s->changed, &changed);
  s->first = first;
  s->cores = blocks * TW_CORES;
  s->ways = OF_BLOCK + WAYS_OF_BLOCK * blocks;
  for (int c = 0; c < TW_CORES; c++) {
    s->there[c] = there[c];
    s->alive += there[c] ? blocks : 0;
  }
}

size_t twin_shadow_bytes(size_t bytes, int element) { return (bytes / (size_t)element + 1) * sizeof(Element); }

void twin_tensor(const char *name, const void *at, size_t bytes, size_t room, int element, void *shadow) {
  if (n_tensors < MAX_TENSORS) tensor[n_tensors++] = (Tensor){name, at, bytes, room, element, shadow};
}

void twin_begin(void *shared, int block, int core) {
  for (int i = 0; i < BUCKETS; i++)
    for (Page *p = twin.page[i], *next; p; p = next) {
      next = p->next;
      free(p);
    }
  free(twin.far);
  memset(&twin, 0, sizeof twin);
  twin.shared = shared;
  twin.me = block * TW_CORES + core;
  twin.far = calloc(shared ? (size_t)twin.shared->cores : (size_t)twin.me + 1, sizeof(Clock));
  if (!twin.far) abort();
  twin.high = twin.low = UINT64_MAX;
}

void twin_memory(TwinMemory m, const void *at, size_t bytes) {
  twin.memory[m].at = at;
  twin.memory[m].bytes = bytes;
}

static void lock(void) {
  if (twin.shared) pthread_mutex_lock(&twin.shared->lock);
}
static void unlock(void) {
  if (twin.shared) pthread_mutex_unlock(&twin.shared->lock);
}
static void look_for_deadlock(void);

int twin_end(void) {
  for (int p = 0; p < TW_PIPES; p++)
    for (int q = 0; q < TW_PIPES; q++)
      for (int i = 0; i < EVENTS; i++)
        if (twin.flag[p][q][i]) fault("flag %s->%s #%d is left set at the end", pipe_name[p], pipe_name[q], i);
  if (twin.shared) {
    lock();
    twin.shared->alive--;
    look_for_deadlock();
    unlock();
  }
  return twin.faults;
}

const char *twin_faults(void) { return twin.text; }

/* ---- order ------------------------------------------------------------------------------------------------------- */

void twin_issue(int pipe) { twin.now[pipe]++; }

void twin_set_flag(int p, int q, int id) {
  bool *f = &twin.flag[p][q][id];
  if (*f) fault("flag %s->%s #%d is set twice without a wait", pipe_name[p], pipe_name[q], id);
  *f = true;
  twin_issue(p);
  memcpy(twin.passed[p][q][id], twin.seen[p], sizeof twin.seen[p]);
  twin.passed[p][q][id][p] = twin.now[p]; /* all that came before it is done */
}

static void merge(int p, const uint32_t *seen) {
  for (int q = 0; q < TW_PIPES; q++)
    if (seen[q] > twin.seen[p][q]) twin.seen[p][q] = seen[q];
}

void twin_wait_flag(int p, int q, int id) {
  bool *f = &twin.flag[p][q][id];
  if (!*f) fault("flag %s->%s #%d is waited for and was not set: a deadlock", pipe_name[p], pipe_name[q], id);
  *f = false;
  merge(q, twin.passed[p][q][id]);
}

void twin_barrier(int pipe) {
  if (pipe < TW_PIPES) {
    twin.seen[pipe][pipe] = twin.now[pipe];
    return;
  }
  for (int p = 0; p < TW_PIPES; p++) merge(p, twin.now);
}

static Grain *grain_at(uintptr_t a) {
  uintptr_t at = a / PAGE;
  Page **list = &twin.page[at % BUCKETS], *p = *list;
  while (p && p->at != at) p = p->next;
  if (!p) {
    p = calloc(1, sizeof *p);
    if (!p) abort();
    p->at = at;
    p->next = *list;
    *list = p;
  }
  return &p->grain[a % PAGE / GRAIN];
}

/* Is what pipe q did at `time` done when pipe p works now? Pipes but V run in order. */
static bool done(int p, int q, uint32_t time) { return (p == q && p != TW_V) || twin.seen[p][q] >= time; }

static void unordered(int p, const char *does, int q, const char *did, uintptr_t a) {
  if (twin.said[p] == twin.now[p]) return; /* one for an instruction */
  twin.said[p] = twin.now[p];
  fault("pipe %s %s %d bytes at %p that pipe %s %s, and nothing orders the two", pipe_name[p], does, GRAIN,
        (void *)(a & ~(uintptr_t)(GRAIN - 1)), pipe_name[q], did);
}

static void touch_own(int p, const void *at, size_t bytes, bool writes) {
  for (uintptr_t a = (uintptr_t)at, end = a + bytes; a < end; a = (a & ~(uintptr_t)(GRAIN - 1)) + GRAIN) {
    Grain *g = grain_at(a);
    if (g->written && !done(p, g->writer, g->wrote) && !(g->writer == p && g->wrote == twin.now[p]))
      unordered(p, writes ? "writes" : "reads", g->writer, "wrote", a);
    for (int q = 0; writes && q < TW_PIPES; q++)
      if (g->read[q] && !done(p, q, g->read[q]) && !(q == p && g->read[q] == twin.now[p]))
        unordered(p, "writes", q, "read", a);
    if (!writes) {
      g->read[p] = twin.now[p];
      continue;
    }
    memset(g->read, 0, sizeof g->read);
    g->written = true;
    g->writer = (uint8_t)p;
    g->wrote = twin.now[p];
  }
}

/* ---- global memory ----------------------------------------------------------------------------------------------- */

static const char *core_name(int core, char text[64]) {
  if (core % TW_CORES == TW_CUBE) snprintf(text, 64, "the cube core of block %d", core / TW_CORES);
  else snprintf(text, 64, "vector core %d of block %d", core % TW_CORES - 1, core / TW_CORES);
  return text;
}

static int first_core(void) { return twin.shared ? twin.shared->first * TW_CORES : 0; }

/* Is an access done when pipe p of this core works now? */
static bool before(Epoch e, int p) {
  int core = (int)e.core - first_core();
  if (core == twin.me) return done(p, e.pipe, e.time) || (e.pipe == (unsigned)p && e.time == twin.now[p]);
  return core >= 0 && twin.shared && core < twin.shared->cores && twin.far[core][e.pipe] >= e.time;
}

static bool against(const Tensor *t, size_t element, Epoch e, int p, int how) {
  static const char *const does[] = {"reads", "writes", "adds to"}, *const did[] = {"", "read", "wrote", "added to"};
  char me[64], other[64];
  if (!e.kind || before(e, p)) return false;
  if (twin.said[p] == twin.now[p]) return true;
  twin.said[p] = twin.now[p];
  fault("%s, pipe %s, %s %s at element %zu; %s, pipe %s, %s it, and nothing orders the two",
        core_name(first_core() + twin.me, me), pipe_name[p], does[how], t->name, element, core_name(e.core, other),
        pipe_name[e.pipe], did[e.kind]);
  return true;
}

static void remember(Element *x, Epoch me) {
  if (me.kind == 1 + TW_WRITE) {
    *x = (Element){.wrote = me};
    return;
  }
  int at = 0;
  for (int i = 0; i < READERS; i++) { /* its own place, else one that is free or done, else the first */
    Epoch e = x->other[i];
    if (!e.kind || (e.kind == me.kind && before(e, (int)me.pipe))) at = i;
    if (e.core != me.core || e.pipe != me.pipe || e.kind != me.kind) continue;
    at = i;
    break;
  }
  x->other[at] = me;
}

static void touch_tensor(const Tensor *t, int p, const char *at, size_t bytes, int how) {
  int kind = how == REWRITE ? TW_WRITE : how;
  Epoch me = {twin.now[p], (unsigned)(first_core() + twin.me), (unsigned)p, 1u + (unsigned)kind};
  size_t from = (size_t)(at - t->at), end = from + bytes, size = (size_t)t->element;
  if (end > t->bytes) {
    fault("pipe %s works on bytes %zu to %zu of %s, which has %zu", pipe_name[p], from, end, t->name, t->bytes);
    return;
  }
  bool said = false;
  lock();
  for (size_t i = from / size; i < (end + size - 1) / size; i++) {
    Element *x = &t->shadow[i];
    said = said || (how != REWRITE && against(t, i, x->wrote, p, kind));
    for (int r = 0; r < READERS && !said; r++)
      said = x->other[r].kind != me.kind && against(t, i, x->other[r], p, kind);
    remember(x, me);
  }
  unlock();
}

/* Writes that leave what is there need no order among each other. */
static void store(int p, char *d, const char *s, size_t bytes) {
  lock();
  twin_touch(p, d, bytes, memcmp(d, s, bytes) ? TW_WRITE : REWRITE);
  memcpy(d, s, bytes);
  unlock();
}

/* The memories a pipe reads and writes, bits of TwinMemory; GLOBAL: tensors. */
enum { U = 1 << TW_UB, L = 1 << TW_L1, A = 1 << TW_L0A, B = 1 << TW_L0B, C = 1 << TW_L0C, GLOBAL = 1 << TW_MEMORIES };
static const int reach[TW_PIPES][2] = {
    [TW_S] = {U | GLOBAL, U | GLOBAL}, [TW_V] = {U, U},              [TW_M] = {A | B | C, C}, [TW_MTE1] = {L, A | B},
    [TW_MTE2] = {GLOBAL, U | L},       [TW_MTE3] = {U | L, GLOBAL}, [TW_FIX] = {C, GLOBAL | L}};

void twin_touch(int p, const void *at, size_t bytes, int how) {
  const char *a = at, *does = how == TW_READ ? "reads" : "writes";
  const Tensor *t = NULL;
  int m = 0;
  while (m < TW_MEMORIES && !(twin.memory[m].at && a >= twin.memory[m].at &&
                              a < twin.memory[m].at + twin.memory[m].bytes)) m++;
  for (int i = 0; i < n_tensors && m == TW_MEMORIES && !t; i++)
    if (a >= tensor[i].at && a < tensor[i].at + tensor[i].bytes + tensor[i].room) t = &tensor[i];
  bool known = t || m < TW_MEMORIES;
  if (!known && twin.memory[TW_UB].at)
    fault("pipe %s %s at %p: outside every tensor and every memory of the core", pipe_name[p], does, at);
  if (known && !(reach[p][how != TW_READ] >> m & 1))
    fault("pipe %s %s %s, which it cannot", pipe_name[p], does, t ? t->name : memory_name[m]);
  if (t) {
    touch_tensor(t, p, a, bytes, how);
    return;
  }
  size_t from = known ? (size_t)(a - twin.memory[m].at) : 0;
  if (known && from + bytes > twin.memory[m].bytes)
    fault("pipe %s %s bytes %zu to %zu of %s, which has %zu", pipe_name[p], does, from, from + bytes, memory_name[m],
          twin.memory[m].bytes);
  touch_own(p, at, bytes, how != TW_READ);
}

/* An operand must stand on a multiple of `to` bytes of the memory it is in. */
static void aligned(const char *instruction, const void *at, int to) {
  for (int m = 0; m < TW_MEMORIES; m++) {
    size_t from = (size_t)((const char *)at - twin.memory[m].at);
    if (twin.memory[m].at && (const char *)at >= twin.memory[m].at && from < twin.memory[m].bytes && from % (size_t)to)
      fault("%s: byte %zu of %s does not stand on %d bytes", instruction, from, memory_name[m], to);
  }
}

static void within(const char *instruction, const char *what, int64_t v, int64_t low, int64_t high) {
  if (v < low || v > high)
    fault("%s: %s is %lld, it may be %lld to %lld", instruction, what, (long long)v, (long long)low, (long long)high);
}

/* ---- flags between cores ----------------------------------------------------------------------------------------- */

/* The way that a core sets in a mode; -1: there is none. */
static int way_of(int core, int mode) {
  bool vector = core % TW_CORES != TW_CUBE;
  int of_block = OF_BLOCK + core / TW_CORES * WAYS_OF_BLOCK;
  if (mode == 0) return vector ? ALL_VECTOR : ALL_CUBE;
  if (mode == 1) return vector ? of_block + PAIR : -1;
  return mode == 2 ? of_block + (vector ? FROM_VECTOR : FROM_CUBE) : -1;
}

static bool sets(const Shared *s, int core, int way) {
  int mode = way < OF_BLOCK ? 0 : (way - OF_BLOCK) % WAYS_OF_BLOCK == PAIR ? 1 : 2;
  return s->there[core % TW_CORES] && way_of(core, mode) == way;
}

static bool takes(const Shared *s, int core, int way) {
  if (!s->there[core % TW_CORES]) return false;
  int kind = way < OF_BLOCK ? PAIR : (way - OF_BLOCK) % WAYS_OF_BLOCK;
  if (kind == PAIR) return sets(s, core, way);
  return (way - OF_BLOCK) / WAYS_OF_BLOCK == core / TW_CORES && (core % TW_CORES != TW_CUBE) == (kind == FROM_CUBE);
}

/* How often all setters of a way have set its flag. */
static uint32_t sets_done(Shared *s, int way, int flag) {
  uint32_t least = UINT32_MAX;
  for (int c = 0; c < s->cores; c++)
    if (sets(s, c, way) && set_at(s, way, flag)[c] < least) least = set_at(s, way, flag)[c];
  return least == UINT32_MAX ? 0 : least;
}

/* A way on which the flag is there for a core; -1: none. */
static int ready(Shared *s, int core, int flag) {
  for (int mode = 0; mode < 3; mode++) {
    bool vector = core % TW_CORES != TW_CUBE;
    int way = way_of(mode == 2 ? core - core % TW_CORES + (vector ? TW_CUBE : TW_VECTOR0) : core, mode);
    if (way >= 0 && sets_done(s, way, flag) > taken_at(s, way, flag)[core]) return way;
  }
  return -1;
}

/* All cores that still run wait, and none has its flag. */
static void look_for_deadlock(void) {
  Shared *s = twin.shared;
  if (s->dead || !s->waiting || s->waiting != s->alive) return;
  for (int c = 0; c < s->cores; c++)
    if (s->waits_for[c] && ready(s, c, s->waits_for[c] - 1) >= 0) return;
  s->dead = true;
  pthread_cond_broadcast(&s->changed);
}

/* Adds what this core knows when `pipe` is done to what goes with a set. */
static void send(Clock *sent, int cores, int pipe, bool first) {
  for (int c = 0; c < cores; c++)
    for (int q = 0; q < TW_PIPES; q++) {
      uint32_t t = c != twin.me ? twin.far[c][q] : q == pipe ? twin.now[q] : twin.seen[pipe][q];
      if (first || t > sent[c][q]) sent[c][q] = t;
    }
}

void twin_cross_set(int pipe, int mode, int flag) {
  Shared *s = twin.shared;
  twin_issue(pipe);
  if (!s) return;
  int way = way_of(twin.me, mode);
  if (way < 0 || flag < 0 || flag >= CROSS) {
    fault("there is no flag #%d of mode %d between cores here", flag, mode);
    return;
  }
  lock();
  uint32_t n = set_at(s, way, flag)[twin.me];
  bool first = true, late = false;
  for (int c = 0; c < s->cores; c++) {
    first &= !sets(s, c, way) || set_at(s, way, flag)[c] <= n;
    late |= takes(s, c, way) && n - taken_at(s, way, flag)[c] + 1 > SETS - 1;
  }
  if (late) fault("flag #%d between cores is set more than %d times before it is waited for", flag, SETS - 1);
  send(clock_at(s, way, flag, n), s->cores, pipe, first);
  set_at(s, way, flag)[twin.me]++;
  pthread_cond_broadcast(&s->changed);
  unlock();
}

bool twin_cross_wait(int flag) {
  Shared *s = twin.shared;
  if (!s) return true;
  int way;
  lock();
  s->waits_for[twin.me] = 1 + flag;
  s->waiting++;
  while ((way = ready(s, twin.me, flag)) < 0 && !s->dead) {
    look_for_deadlock();
    if (!s->dead) pthread_cond_wait(&s->changed, &s->lock);
  }
  s->waiting--;
  s->waits_for[twin.me] = 0;
  Clock *sent = way < 0 ? NULL : clock_at(s, way, flag, taken_at(s, way, flag)[twin.me]++);
  for (int c = 0; c < s->cores && sent; c++)
    for (int q = 0; q < TW_PIPES; q++)
      if (sent[c][q] > twin.far[c][q]) twin.far[c][q] = sent[c][q];
  unlock();
  for (int p = 0; p < TW_PIPES; p++) merge(p, twin.far[twin.me]);
  char me[64];
  if (way < 0)
    fault("%s waits for flag #%d between cores, and no core is left that could set it: a deadlock",
          core_name(first_core() + twin.me, me), flag);
  return way >= 0;
}

int twin_left(void *shared) {
  Shared *s = shared;
  char name[64];
  for (int way = 0; way < s->ways && !s->dead; way++)
    for (int flag = 0; flag < CROSS; flag++)
      for (int c = 0; c < s->cores; c++)
        if (takes(s, c, way) && sets_done(s, way, flag) > taken_at(s, way, flag)[c])
          fault("flag #%d between cores is left set for %s", flag, core_name(c + s->first * TW_CORES, name));
  return twin.faults;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

float twin_of_half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(m + 1024), e - 25) : ldexpf((float)m, -24);
  return h & 0x8000 ? -v : v;
}

uint16_t twin_half(double v) {
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  int e;
  if (isnan(v)) return (uint16_t)(sign | 0x7e00);
  v = fabs(v);
  if (v == 0) return sign;
  frexp(v, &e);
  if (e < -13) e = -13;
  double units = nearbyint(ldexp(v, 11 - e)); /* ties to even */
  double code = isinf(v) ? 65536 : units + ldexp((double)(e + 13), 10);
  return (uint16_t)(sign | (code >= 0x7c00 ? 0x7c00 : (int)code));
}

uint16_t twin_bf16(float f) {
  uint32_t b;
  memcpy(&b, &f, 4);
  return isnan(f) ? 0x7fc0 : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static bool is_float(TwinType t) { return t <= TW_F32; }

static double get(TwinType t, const void *p) {
  union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; int64_t i64; float f; } u;
  memcpy(&u, p, (size_t)type_size[t]);
  switch (t) {
  case TW_F16: return twin_of_half(u.u16);
  case TW_BF16: u.u32 = (uint32_t)u.u16 << 16; return u.f;
  case TW_F32: return u.f;
  case TW_I8: return u.i8;
  case TW_U8: return u.u8;
  case TW_I16: return u.i16;
  case TW_U16: return u.u16;
  case TW_I32: return u.i32;
  case TW_U32: return u.u32;
  default: return (double)u.i64;
  }
}

static void put_float(TwinType t, void *p, double v) {
  float f = (float)v;
  uint16_t h = t == TW_F16 ? twin_half(v) : twin_bf16(f);
  memcpy(p, t == TW_F32 ? (void *)&f : (void *)&h, (size_t)type_size[t]);
}

static int64_t get_int(TwinType t, const void *p) {
  int64_t v = 0;
  if (t != TW_I64) return (int64_t)get(t, p);
  memcpy(&v, p, 8);
  return v;
}

static void put_int(TwinType t, void *p, int64_t v) { memcpy(p, &v, (size_t)type_size[t]); } /* little-endian */

/* ---- vector unit ------------------------------------------------------------------------------------------------- */

void twin_mask_count(void) { twin.counting = true; }
void twin_mask_norm(void) { twin.counting = false; }
void twin_mask(uint64_t high, uint64_t low) {
  twin.high = high;
  twin.low = low;
}

static int repeats_of(int repeats, int lanes) {
  return twin.counting ? (int)((twin.low + (uint64_t)lanes - 1) / (uint64_t)lanes) : repeats;
}

static bool active(int r, int lane, int lanes) {
  if (twin.counting) return (uint64_t)r * (uint64_t)lanes + (uint64_t)lane < twin.low;
  return (lane < 64 ? twin.low >> lane : twin.high >> (lane - 64)) & 1;
}

static char *place(const void *base, int r, int lane, int size, int block_step, int rep_step) {
  int per = 32 / size;
  return (char *)(uintptr_t)base + ((ptrdiff_t)r * rep_step + (ptrdiff_t)(lane / per) * block_step) * 32 +
         lane % per * size;
}

static double compute(TwinOp op, double x, double y, double old) {
  switch (op) {
  case TW_ADD: return (float)x + (float)y;
  case TW_SUB: return (float)x - (float)y;
  case TW_MUL: return (float)x * (float)y;
  case TW_DIV: return (float)x / (float)y;
  case TW_MAX: return isnan(x) ? x : isnan(y) ? y : x > y ? x : y;
  case TW_MIN: return isnan(x) ? x : isnan(y) ? y : x < y ? x : y;
  case TW_MLA: return fma(x, y, old);
  case TW_AXPY: return fma(x, y, old);
  case TW_ABS: return fabs(x);
  case TW_EXP: return exp(x);
  case TW_LN: return log(x);
  case TW_SQRT: return sqrt(x);
  case TW_RSQRT: return 1 / sqrt(x);
  case TW_REC: return 1 / x;
  case TW_RELU: return x > 0 ? x : 0;
  case TW_LRELU: return x >= 0 ? x : (float)x * (float)y;
  default: return x;
  }
}

static int64_t compute_int(TwinOp op, TwinType t, int64_t x, int64_t y) {
  switch (op) {
  case TW_ADD: return x + y;
  case TW_SUB: return x - y;
  case TW_MUL: return x * y;
  case TW_MAX: return x > y ? x : y;
  case TW_MIN: return x < y ? x : y;
  case TW_AND: return x & y;
  case TW_OR: return x | y;
  case TW_NOT: return ~x;
  case TW_RELU: return x > 0 ? x : 0;
  case TW_SHL: return y >= 8 * type_size[t] ? 0 : (int64_t)((uint64_t)x << y);
  case TW_SHR: return y >= 63 ? (x < 0 ? -1 : 0) : x >> y;
  default: return x;
  }
}

static bool whole(TwinOp op) { return op == TW_COPY || op == TW_DUP; } /* bits, not numbers */

void twin_vector(TwinOp op, TwinType t, void *dst, const void *a, const void *b, const void *scalar, int repeats,
                 TwinSteps s) {
  int size = type_size[t], lanes = 256 / size;
  twin_issue(TW_V);
  aligned("a vector instruction", dst, 32);
  if (a) aligned("a vector instruction", a, 32);
  if (b) aligned("a vector instruction", b, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      char *d = place(dst, r, l, size, s.dst, s.dst_rep);
      const char *x = a ? place(a, r, l, size, s.a, s.a_rep) : scalar;
      const char *y = b ? place(b, r, l, size, s.b, s.b_rep) : scalar;
      if (a) twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (b) twin_touch(TW_V, y, (size_t)size, TW_READ);
      if (op == TW_MLA || op == TW_AXPY) twin_touch(TW_V, d, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      if (whole(op)) memmove(d, x, (size_t)size);
      else if (is_float(t)) put_float(t, d, compute(op, get(t, x), y ? get(t, y) : 0, get(t, d)));
      else put_int(t, d, compute_int(op, t, get_int(t, x), y ? get_int(op >= TW_SHL && !b ? TW_I32 : t, y) : 0));
    }
}

static double rounded(double v, TwinRound mode) {
  switch (mode) {
  case TW_FLOOR: return floor(v);
  case TW_CEIL: return ceil(v);
  case TW_ROUND: return round(v);
  case TW_TRUNC: return trunc(v);
  default: return nearbyint(v);
  }
}

/* v in steps of the last place of a float of `bits` mantissa bits, rounded by mode. */
static double rounded_float(double v, int bits, int lowest, TwinRound mode) {
  int e;
  if (v == 0 || !isfinite(v)) return v;
  frexp(v, &e);
  if (e - 1 < lowest) e = lowest + 1;
  double scaled = ldexp(v, bits + 1 - e), near = rounded(scaled, mode);
  if (mode == TW_ODD) {
    near = trunc(scaled);
    if (near != scaled && fmod(near, 2) == 0) near += scaled < 0 ? -1 : 1;
  }
  return ldexp(near, e - 1 - bits);
}

void twin_cast(TwinType to, TwinType from, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s) {
  static const int64_t low[] = {[TW_I8] = INT8_MIN, [TW_U8] = 0, [TW_I16] = INT16_MIN, [TW_U16] = 0,
                                [TW_I32] = INT32_MIN, [TW_U32] = 0, [TW_I64] = INT64_MIN};
  static const int64_t high[] = {[TW_I8] = INT8_MAX, [TW_U8] = UINT8_MAX, [TW_I16] = INT16_MAX, [TW_U16] = UINT16_MAX,
                                 [TW_I32] = INT32_MAX, [TW_U32] = UINT32_MAX, [TW_I64] = INT64_MAX};
  int ds = type_size[to], as = type_size[from], lanes = 256 / (ds > as ? ds : as);
  twin_issue(TW_V);
  aligned("vconv", dst, 32);
  aligned("vconv", a, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      char *d = place(dst, r, l, ds, s.dst, s.dst_rep);
      const char *x = place(a, r, l, as, s.a, s.a_rep);
      twin_touch(TW_V, x, (size_t)as, TW_READ);
      twin_touch(TW_V, d, (size_t)ds, TW_WRITE);
      if (!is_float(to) && !is_float(from)) {
        int64_t v = get_int(from, x);
        put_int(to, d, v < low[to] ? low[to] : v > high[to] ? high[to] : v);
      } else if (is_float(to)) {
        double v = is_float(from) ? get(from, x) : (double)get_int(from, x);
        if (to == from) v = rounded(v, mode); /* to a whole number */
        int bits = to == TW_F16 ? 10 : to == TW_BF16 ? 7 : 23, least = to == TW_F16 ? -14 : -126;
        put_float(to, d, to == from ? v : rounded_float(v, bits, least, mode));
      } else {
        double v = rounded(get(from, x), mode);
        put_int(to, d, isnan(v) ? 0 : v <= (double)low[to] ? low[to] : v >= (double)high[to] ? high[to] : (int64_t)v);
      }
    }
}

static int nibble(const char *p, int i) { return ((p[i / 2] >> i % 2 * 4 & 15) ^ 8) - 8; }

void twin_cast4(bool to_int4, TwinRound mode, void *dst, const void *a, int repeats, TwinSteps s) {
  enum { LANES = 128, IN_BLOCK = 64 };
  twin_issue(TW_V);
  aligned("vconv", dst, 32);
  aligned("vconv", a, 32);
  repeats = repeats_of(repeats, LANES);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < LANES; l++) {
      if (!active(r, l, LANES)) continue;
      const char *wide = to_int4 ? place(a, r, l, 2, s.a, s.a_rep) : place(dst, r, l, 2, s.dst, s.dst_rep);
      char *byte = to_int4 ? (char *)dst + ((ptrdiff_t)r * s.dst_rep + l / IN_BLOCK * s.dst) * 32
                           : (char *)(uintptr_t)a + ((ptrdiff_t)r * s.a_rep + l / IN_BLOCK * s.a) * 32;
      int at = l % IN_BLOCK;
      twin_touch(TW_V, to_int4 ? wide : byte + at / 2, to_int4 ? 2 : 1, TW_READ);
      twin_touch(TW_V, to_int4 ? byte + at / 2 : wide, to_int4 ? 1 : 2, TW_WRITE);
      if (!to_int4) {
        put_float(TW_F16, (void *)(uintptr_t)wide, nibble(byte, at));
        continue;
      }
      double v = rounded(get(TW_F16, wide), mode);
      int n = isnan(v) ? 0 : v < -8 ? -8 : v > 7 ? 7 : (int)v;
      byte[at / 2] = (char)((byte[at / 2] & ~(15 << at % 2 * 4)) | (n & 15) << at % 2 * 4);
    }
}

void twin_compare(TwinCompare how, TwinType t, uint8_t *dst, const void *a, const void *b, const void *scalar,
                  int repeats, TwinSteps s) {
  int size = type_size[t], lanes = 256 / size;
  twin_issue(TW_V);
  aligned("vcmp", dst, 32);
  aligned("vcmp", a, 32);
  if (b) aligned("vcmp", b, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++) /* whole repeats: the mask does not count */
    for (int l = 0; l < lanes; l++) {
      const char *x = place(a, r, l, size, s.a, s.a_rep), *y = b ? place(b, r, l, size, s.b, s.b_rep) : scalar;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (b) twin_touch(TW_V, y, (size_t)size, TW_READ);
      double u = get(t, x), v = get(t, y);
      bool bit = how == TW_EQ ? u == v : how == TW_NE ? u != v : how == TW_LT ? u < v : how == TW_GT ? u > v
                 : how == TW_GE ? u >= v : u <= v;
      int k = r * lanes + l;
      twin_touch(TW_V, dst + k / 8, 1, TW_WRITE);
      dst[k / 8] = (uint8_t)((dst[k / 8] & ~(1 << k % 8)) | bit << k % 8);
    }
}

void twin_set_cmpmask(const void *bytes) {
  twin_issue(TW_V);
  twin_touch(TW_V, bytes, 16, TW_READ);
  memcpy(twin.cmpmask, bytes, 16);
}

void twin_select(TwinType t, void *dst, const void *a, const void *b, int repeats, TwinSteps s, int mode) {
  int size = type_size[t], lanes = 256 / size;
  const uint8_t *bits = twin.cmpmask;
  twin_issue(TW_V);
  aligned("vsel", dst, 32);
  aligned("vsel", a, 32);
  aligned("vsel", b, 32);
  if (mode == 1) bits = b;
  if (mode == 2) memcpy(&bits, twin.cmpmask, sizeof bits);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      int k = mode == 0 ? l : r * lanes + l;
      char *d = place(dst, r, l, size, s.dst, s.dst_rep);
      const char *x = place(a, r, l, size, s.a, s.a_rep);
      const char *y = mode == 1 ? (const char *)twin.cmpmask : place(b, r, l, size, s.b, s.b_rep);
      if (mode) twin_touch(TW_V, bits + k / 8, 1, TW_READ);
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      if (mode != 1) twin_touch(TW_V, y, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memmove(d, bits[k / 8] >> k % 8 & 1 ? x : y, (size_t)size);
    }
}

/* Neighbours in a binary tree, rounded at each level; lanes that are masked out are zero. */
static double tree(TwinType t, double *v, int n) {
  for (; n > 1; n /= 2)
    for (int i = 0; i < n / 2; i++) {
      uint8_t at[8];
      put_float(t, at, v[2 * i] + v[2 * i + 1]);
      v[i] = get(t, at);
    }
  return v[0];
}

void twin_row(TwinReduce how, TwinType t, void *dst, const void *a, int repeats, int dst_rep, int a_step, int a_rep,
              int order) {
  int size = type_size[t], lanes = 256 / size, per = how != TW_ROW_SUM && order == 0 ? 2 : 1;
  twin_issue(TW_V);
  aligned("a reduction", dst, size * per);
  aligned("a reduction", a, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++) {
    double v[128] = {0}, best = 0;
    int at = -1;
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      const char *x = place(a, r, l, size, a_step, a_rep);
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      v[l] = get(t, x);
      if (at < 0 || (how == TW_ROW_MIN ? v[l] < best : v[l] > best)) best = v[l], at = l;
    }
    if (at < 0) continue;
    char *d = (char *)dst + (ptrdiff_t)r * dst_rep * per * size;
    twin_touch(TW_V, d, (size_t)(per * size), TW_WRITE);
    put_float(t, d, how == TW_ROW_SUM ? tree(t, v, lanes) : best);
    if (per == 2) put_int(size == 2 ? TW_U16 : TW_U32, d + size, at);
  }
}

void twin_brcb(int size, void *dst, const void *a, int block, int rep, int repeats) {
  twin_issue(TW_V);
  aligned("vbrcb", dst, 32);
  aligned("vbrcb", a, 32);
  for (int r = 0; r < repeats; r++)
    for (int i = 0; i < 8; i++) {
      const char *x = (const char *)a + (r * 8 + i) * size;
      char *d = (char *)dst + ((ptrdiff_t)r * rep + i * block) * 32;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      twin_touch(TW_V, d, 32, TW_WRITE);
      for (int e = 0; e < 32; e += size) memcpy(d + e, x, (size_t)size);
    }
}

void twin_gather(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int repeats) {
  int lanes = 256 / size;
  twin_issue(TW_V);
  aligned("vgather", dst, 32);
  aligned("vgather", offset, 32);
  repeats = repeats_of(repeats, lanes);
  for (int r = 0; r < repeats; r++)
    for (int l = 0; l < lanes; l++) {
      if (!active(r, l, lanes)) continue;
      const uint32_t *o = offset + r * lanes + l;
      char *d = place(dst, r, l, size, 1, dst_rep);
      twin_touch(TW_V, o, 4, TW_READ);
      twin_touch(TW_V, base + *o, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memcpy(d, base + *o, (size_t)size);
    }
}

void twin_gatherb(int size, void *dst, const uint32_t *offset, const uint8_t *base, int dst_rep, int block,
                  int repeats) {
  (void)size;
  twin_issue(TW_V);
  aligned("vgatherb", dst, 32);
  aligned("vgatherb", offset, 32);
  for (int r = 0; r < repeats; r++)
    for (int i = 0; i < 8; i++) {
      const uint32_t *o = offset + r * 8 + i;
      char *d = (char *)dst + ((ptrdiff_t)r * dst_rep + i * block) * 32;
      twin_touch(TW_V, o, 4, TW_READ);
      twin_touch(TW_V, base + *o, 32, TW_READ);
      twin_touch(TW_V, d, 32, TW_WRITE);
      memcpy(d, base + *o, 32);
    }
}

uint64_t twin_take(int size, void *dst, const void *a, const void *bits, int repeats, int pattern, int a_rep,
                   int b_rep) {
  int lanes = 256 / size;
  uint64_t taken = 0;
  twin_issue(TW_V);
  aligned("vreducev2", dst, 32);
  aligned("vreducev2", a, 32);
  uint64_t n = twin.counting ? twin.low : (uint64_t)lanes; /* elements of one repeat */
  for (int r = 0; r < repeats; r++)
    for (uint64_t k = 0; k < n; k++) {
      const uint8_t *b = (const uint8_t *)bits + (size_t)r * (size_t)b_rep * 32 + k / 8;
      if (!pattern) twin_touch(TW_V, b, 1, TW_READ);
      bool chosen = !pattern ? *b >> k % 8 & 1 : pattern == 7 || (pattern <= 2 ? k % 2 + 1 == (uint64_t)pattern
                                                                              : k % 4 + 3 == (uint64_t)pattern);
      if (!chosen) continue;
      const char *x = (const char *)a + (size_t)r * (size_t)a_rep * 32 + k * (size_t)size;
      char *d = (char *)dst + taken++ * (size_t)size;
      twin_touch(TW_V, x, (size_t)size, TW_READ);
      twin_touch(TW_V, d, (size_t)size, TW_WRITE);
      memmove(d, x, (size_t)size);
    }
  return taken;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static bool larger(double a, double b) { return isnan(a) ? !isnan(b) : a > b; }

void twin_sort32(TwinType t, void *dst, const void *score, const uint32_t *index, int repeats) {
  int size = type_size[t];
  twin_issue(TW_V);
  aligned("vbitsort", dst, 32);
  aligned("vbitsort", score, 32);
  aligned("vbitsort", index, 32);
  twin_touch(TW_V, score, (size_t)(repeats * 32 * size), TW_READ);
  twin_touch(TW_V, index, (size_t)repeats * 128, TW_READ);
  twin_touch(TW_V, dst, (size_t)repeats * 256, TW_WRITE);
  for (int g = 0; g < repeats; g++) {
    int order[32];
    for (int k = 0; k < 32; k++) {
      double key = get(t, (const char *)score + (g * 32 + k) * size);
      int at = k;
      for (; at > 0 && larger(key, get(t, (const char *)score + (g * 32 + order[at - 1]) * size)); at--)
        order[at] = order[at - 1];
      order[at] = k;
    }
    for (int k = 0; k < 32; k++) {
      char record[8] = {0}, *d = (char *)dst + (g * 32 + k) * 8;
      memcpy(record, (const char *)score + (g * 32 + order[k]) * size, (size_t)size);
      memcpy(record + 4, index + g * 32 + order[k], 4);
      memcpy(d, record, 8);
    }
  }
}

void twin_merge(TwinType t, void *dst, const void *const *list, const int *count, int lists) {
  const char *at[4], *end[4];
  char *d = dst;
  twin_issue(TW_V);
  aligned("vmrgsort4", dst, 32);
  for (int i = 0; i < lists; i++) {
    at[i] = list[i];
    end[i] = at[i] + count[i] * 8;
    twin_touch(TW_V, at[i], (size_t)count[i] * 8, TW_READ);
  }
  for (;; d += 8) {
    int best = -1;
    for (int i = 0; i < lists; i++)
      if (at[i] < end[i] && (best < 0 || larger(get(t, at[i]), get(t, at[best])))) best = i;
    if (best < 0) return;
    twin_touch(TW_V, d, 8, TW_WRITE);
    memmove(d, at[best], 8);
    at[best] += 8;
  }
}

void twin_transpose(int size, void *const dst[16], const void *const a[16], int repeats, int dst_rep, int a_rep) {
  int c0 = 32 / size;
  twin_issue(TW_V);
  for (int r = 0; r < repeats; r++) {
    char in[16][32], out[16][32];
    for (int j = 0; j < 16; j++) {
      const char *x = (const char *)a[j] + (ptrdiff_t)r * a_rep * 32;
      twin_touch(TW_V, x, 32, TW_READ);
      memcpy(in[j], x, 32);
    }
    for (int j = 0; j < 16; j++) /* 16-bit: 16 x 16; 32-bit: 16 x 8 to 8 x 16, two lines of 8 each */
      for (int e = 0; e < c0; e++)
        memcpy(size == 2 ? &out[e][j * 2] : &out[2 * e + j / 8][j % 8 * 4], &in[j][e * size], (size_t)size);
    for (int j = 0; j < 16; j++) {
      char *d = (char *)dst[j] + (ptrdiff_t)r * dst_rep * 32;
      twin_touch(TW_V, d, 32, TW_WRITE);
      memcpy(d, out[j], 32);
    }
  }
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

void twin_gm_ub(int size, void *ub, const void *gm, int rows, uint32_t bytes, uint32_t gm_gap, uint32_t ub_gap, int pad,
                uint64_t pad_value) {
  uint32_t blocks = (bytes + 31) / 32 * 32;
  char *d = ub;
  const char *s = gm;
  twin_issue(TW_MTE2);
  aligned("a load to UB", ub, 32);
  within("a load to UB", "the number of rows", rows, 1, 4095);
  within("a load to UB", "bytes of a row", bytes, 1, (1 << 21) - 1);
  for (int r = 0; r < rows; r++, s += bytes + gm_gap, d += blocks + ub_gap * 32) {
    twin_touch(TW_MTE2, s, bytes, TW_READ);
    twin_touch(TW_MTE2, d, blocks, TW_WRITE);
    memset(d + bytes, 0xee, blocks - bytes); /* undefined */
    memcpy(d, s, bytes);
    for (int e = 0; e < pad; e++) memcpy(d + bytes + e * size, &pad_value, (size_t)size);
  }
}

static void add_at(TwinType t, char *d, const char *x) {
  if (is_float(t)) put_float(t, d, get(t, d) + get(t, x));
  else put_int(t, d, get_int(t, d) + get_int(t, x));
}

void twin_ub_gm(void *gm, const void *ub, int rows, uint32_t bytes, uint32_t ub_gap, uint32_t gm_gap, int atomic_type) {
  char *d = gm;
  const char *s = ub;
  twin_issue(TW_MTE3);
  aligned("a store from UB", ub, 32);
  within("a store from UB", "the number of rows", rows, 1, 4095);
  within("a store from UB", "bytes of a row", bytes, 1, (1 << 21) - 1);
  for (int r = 0; r < rows; r++, d += bytes + gm_gap, s += (bytes + 31) / 32 * 32 + ub_gap * 32) {
    twin_touch(TW_MTE3, s, bytes, TW_READ);
    if (atomic_type < 0) {
      store(TW_MTE3, d, s, bytes);
      continue;
    }
    lock();
    twin_touch(TW_MTE3, d, bytes, TW_ACCUMULATE);
    for (uint32_t e = 0; e < bytes; e += (uint32_t)type_size[atomic_type]) add_at((TwinType)atomic_type, d + e, s + e);
    unlock();
  }
}

void twin_nd_nz(int size, void *l1, const void *gm, int rows, int cols, int pitch, int plane_rows) {
  int c0 = 32 / size;
  twin_issue(TW_MTE2);
  aligned("a load to L1", l1, 32);
  within("a load to L1", "the number of rows", rows, 1, 16384);
  within("a load to L1", "rows of the tile", plane_rows, rows, 16384);
  for (int r = 0; r < rows; r++) {
    const char *s = (const char *)gm + (ptrdiff_t)r * pitch * size;
    twin_touch(TW_MTE2, s, (size_t)(cols * size), TW_READ);
    for (int c = 0; c < (cols + c0 - 1) / c0; c++) {
      char *d = (char *)l1 + ((ptrdiff_t)c * plane_rows + r) * 32;
      int n = cols - c * c0 < c0 ? cols - c * c0 : c0;
      twin_touch(TW_MTE2, d, 32, TW_WRITE);
      memset(d, 0, 32);
      memcpy(d, s + c * 32, (size_t)(n * size));
    }
  }
}

void twin_fill_l1(int size, void *l1, int columns, int blocks, int gap, uint64_t value) {
  twin_issue(TW_MTE2);
  for (int c = 0; c < columns; c++) {
    char *d = (char *)l1 + (ptrdiff_t)c * (blocks + gap) * 32;
    twin_touch(TW_MTE2, d, (size_t)blocks * 32, TW_WRITE);
    for (int e = 0; e < blocks * 32; e += size) memcpy(d + e, &value, (size_t)size);
  }
}

void twin_load(int size, void *l0, const void *l1, int first, int repeats, int src_step, int gap, bool transpose) {
  twin_issue(TW_MTE1);
  aligned("a load to L0", l0, 512);
  aligned("a load to L0", l1, 32);
  for (int r = 0; r < repeats; r++) {
    const char *s = (const char *)l1 + ((ptrdiff_t)first + (ptrdiff_t)r * src_step) * 512;
    char *d = (char *)l0 + (ptrdiff_t)r * (gap + 1) * 512;
    twin_touch(TW_MTE1, s, 512, TW_READ);
    twin_touch(TW_MTE1, d, 512, TW_WRITE);
    if (!transpose) memcpy(d, s, 512);
    else if (size != 2) fault("a load of %d-byte elements cannot transpose single fractals", size);
    else
      for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) memcpy(d + (j * 16 + i) * 2, s + (i * 16 + j) * 2, 2);
  }
}

void twin_load_square(int size, void *l0, const void *l1, int first, int repeats, int src_step, int gap,
                      int fractal_gap) {
  int side = size == 1 ? 32 : 16, bytes = side * side * size;
  twin_issue(TW_MTE1);
  aligned("a load to L0", l0, 512);
  aligned("a load to L0", l1, 32);
  for (int r = 0; r < repeats; r++) {
    const char *s = (const char *)l1 + ((ptrdiff_t)first + (ptrdiff_t)r * src_step) * bytes;
    char *to = (char *)l0 + (ptrdiff_t)r * (gap + 1) * 512;
    twin_touch(TW_MTE1, s, (size_t)bytes, TW_READ);
    for (int f = 0; f < bytes / 512; f++) { /* 16 rows of the transpose each */
      char *d = to + (ptrdiff_t)f * (fractal_gap + 1) * 512;
      twin_touch(TW_MTE1, d, 512, TW_WRITE);
      for (int i = 0; i < 16; i++)
        for (int j = 0; j < side; j++)
          memcpy(d + (i * side + j) * size, s + (j * side + f * 16 + i) * size, (size_t)size);
    }
  }
}

void twin_image(bool to_l0a, void *l0, const void *l1, int l1_rows, int cols, int rows, int col, int row, bool turn) {
  int across = to_l0a ? ((turn ? rows : cols) + 7) / 8 : (cols + 15) / 16; /* fractals side by side */
  twin_issue(TW_MTE1);
  aligned("a load to L0", l0, 512);
  aligned("a load to L0", l1, 32);
  if (!to_l0a && turn) twin_not_modelled("img2colv2_cbuf_to_cb that transposes");
  for (int y = 0; y < rows; y++)
    for (int x = 0; x < cols; x++) {
      int r = row + y, c = col + x, i = turn ? x : y, j = turn ? y : x;
      const char *s = (const char *)l1 + ((ptrdiff_t)(c / 8) * l1_rows + r) * 32 + c % 8 * 4;
      char *d = (char *)l0 + (to_l0a ? ((ptrdiff_t)(i / 16 * across + j / 8) * 16 + i % 16) * 32 + j % 8 * 4
                                     : ((ptrdiff_t)(i / 8 * across + j / 16) * 16 + j % 16) * 32 + i % 8 * 4);
      twin_touch(TW_MTE1, s, 4, TW_READ);
      twin_touch(TW_MTE1, d, 4, TW_WRITE);
      memcpy(d, s, 4);
    }
}

/* ---- cube -------------------------------------------------------------------------------------------------------- */

void twin_mad(TwinType t, void *c, const void *a, const void *b, int m, int k, int n, bool init, bool k_whole) {
  int size = type_size[t], c0 = t == TW_I4 ? 64 : 32 / size, kf = (k + c0 - 1) / c0, nf = (n + 15) / 16;
  int high = (m + 15) / 16 * 16;
  if (k_whole) kf = (k + 15) / 16 * 16 / c0;
  twin_issue(TW_M);
  aligned("mmad", a, 512);
  aligned("mmad", b, 512);
  aligned("mmad", c, 1024);
  within("mmad", "m", m, 1, 4095);
  within("mmad", "k", k, 1, 4095);
  within("mmad", "n", n, 1, 4095);
  twin_touch(TW_M, a, (size_t)(high / 16 * kf) * 512, TW_READ);
  twin_touch(TW_M, b, (size_t)((k + c0 - 1) / c0 * nf) * 512, TW_READ);
  if (!init) twin_touch(TW_M, c, (size_t)(nf * high) * 64, TW_READ);
  twin_touch(TW_M, c, (size_t)(nf * high) * 64, TW_WRITE);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      char *d = (char *)c + ((size_t)(j / 16) * (size_t)high + (size_t)i) * 64 + j % 16 * 4;
      float sum = 0;
      int32_t whole_sum = 0;
      memcpy(&sum, d, 4);
      memcpy(&whole_sum, d, 4);
      if (init) sum = 0, whole_sum = 0;
      for (int x = 0; x < k; x++) {
        const char *u = (const char *)a + ((i / 16 * kf + x / c0) * 16 + i % 16) * 32;
        const char *v = (const char *)b + ((x / c0 * nf + j / 16) * 16 + j % 16) * 32;
        int e = x % c0;
        if (t == TW_I4) whole_sum += nibble(u, e) * nibble(v, e);
        else if (t == TW_I8) whole_sum += (int32_t)(get_int(t, u + e) * get_int(t, v + e));
        else sum = (float)fma(get(t, u + e * size), get(t, v + e * size), sum);
      }
      memcpy(d, is_float(t) ? (void *)&sum : (void *)&whole_sum, 4);
    }
}

void twin_fix(TwinType from, TwinType to, void *gm, const void *c, int n, int m, uint32_t pitch, int plane_rows,
              bool relu, int atomic_type) {
  int size = type_size[to];
  twin_issue(TW_FIX);
  aligned("fixpipe", c, 64);
  within("fixpipe", "n", n, 1, 4095);
  within("fixpipe", "m", m, 1, 8192);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      const char *s = (const char *)c + ((size_t)(j / 16) * (size_t)plane_rows + (size_t)i) * 64 + j % 16 * 4;
      char *d = (char *)gm + ((size_t)i * pitch + (size_t)j) * (size_t)size, out[4];
      twin_touch(TW_FIX, s, 4, TW_READ);
      double v = get(from, s);
      if (relu && !(v > 0)) v = 0;
      if (is_float(to)) put_float(to, out, v);
      else put_int(to, out, (int64_t)v);
      if (atomic_type < 0) {
        store(TW_FIX, d, out, (size_t)size);
        continue;
      }
      lock();
      twin_touch(TW_FIX, d, (size_t)size, TW_ACCUMULATE);
      add_at((TwinType)atomic_type, d, out);
      unlock();
    }
}

void twin_fix_l1(TwinType to, void *l1, const void *c, int n, int m, int l1_rows, int plane_rows, bool relu) {
  int size = type_size[to], c0 = 32 / size;
  twin_issue(TW_FIX);
  aligned("fixpipe", c, 64);
  within("fixpipe", "n", n, 1, 4095);
  within("fixpipe", "m", m, 1, 8192);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      const char *s = (const char *)c + ((size_t)(j / 16) * (size_t)plane_rows + (size_t)i) * 64 + j % 16 * 4;
      char *d = (char *)l1 + ((size_t)(j / c0) * (size_t)l1_rows + (size_t)i) * 32 + j % c0 * size;
      twin_touch(TW_FIX, s, 4, TW_READ);
      twin_touch(TW_FIX, d, (size_t)size, TW_WRITE);
      double v = get(TW_F32, s);
      put_float(to, d, relu && !(v > 0) ? 0 : v);
    }
}
