/* order.c - a core and its memories (twin.h): what is done when, who may reach what, flags between cores. */
#include "core.h"

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
  int faults;
  char text[MAX_FAULTS * 256];
} Twin;

static Twin twin;

static const char *const pipe_name[TW_PIPES] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
static const char *const memory_name[TW_MEMORIES] = {"UB", "L1", "L0A", "L0B", "L0C"};
static Tensor tensor[MAX_TENSORS];
static int n_tensors;

void twin_fault(const char *f, ...) {
  if (twin.faults++ >= MAX_FAULTS) return;
  va_list ap;
  size_t n = strlen(twin.text);
  va_start(ap, f);
  vsnprintf(twin.text + n, sizeof twin.text - n - 1, f, ap);
  va_end(ap);
  strcat(twin.text, "\n");
}

void twin_not_modelled(const char *intrinsic) { twin_fault("%s is not modelled", intrinsic); }

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
  twin_mask_begin();
}

void twin_memory(TwinMemory m, const void *at, size_t bytes) {
  twin.memory[m].at = at;
  twin.memory[m].bytes = bytes;
}

void twin_lock(void) {
  if (twin.shared) pthread_mutex_lock(&twin.shared->lock);
}
void twin_unlock(void) {
  if (twin.shared) pthread_mutex_unlock(&twin.shared->lock);
}
static void look_for_deadlock(void);

int twin_end(void) {
  for (int p = 0; p < TW_PIPES; p++)
    for (int q = 0; q < TW_PIPES; q++)
      for (int i = 0; i < EVENTS; i++)
        if (twin.flag[p][q][i]) twin_fault("flag %s->%s #%d is left set at the end", pipe_name[p], pipe_name[q], i);
  if (twin.shared) {
    twin_lock();
    twin.shared->alive--;
    look_for_deadlock();
    twin_unlock();
  }
  return twin.faults;
}

const char *twin_faults(void) { return twin.text; }

/* ---- order ------------------------------------------------------------------------------------------------------- */

void twin_issue(int pipe) { twin.now[pipe]++; }

void twin_set_flag(int p, int q, int id) {
  bool *f = &twin.flag[p][q][id];
  if (*f) twin_fault("flag %s->%s #%d is set twice without a wait", pipe_name[p], pipe_name[q], id);
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
  if (!*f) twin_fault("flag %s->%s #%d is waited for and was not set: a deadlock", pipe_name[p], pipe_name[q], id);
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
  twin_fault("pipe %s %s %d bytes at %p that pipe %s %s, and nothing orders the two", pipe_name[p], does, GRAIN,
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
  twin_fault("%s, pipe %s, %s %s at element %zu; %s, pipe %s, %s it, and nothing orders the two",
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
    twin_fault("pipe %s works on bytes %zu to %zu of %s, which has %zu", pipe_name[p], from, end, t->name, t->bytes);
    return;
  }
  bool said = false;
  twin_lock();
  for (size_t i = from / size; i < (end + size - 1) / size; i++) {
    Element *x = &t->shadow[i];
    said = said || (how != REWRITE && against(t, i, x->wrote, p, kind));
    for (int r = 0; r < READERS && !said; r++)
      said = x->other[r].kind != me.kind && against(t, i, x->other[r], p, kind);
    remember(x, me);
  }
  twin_unlock();
}

/* Writes that leave what is there need no order among each other. */
void twin_store(int p, char *d, const char *s, size_t bytes) {
  twin_lock();
  twin_touch(p, d, bytes, memcmp(d, s, bytes) ? TW_WRITE : REWRITE);
  memcpy(d, s, bytes);
  twin_unlock();
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
    twin_fault("pipe %s %s at %p: outside every tensor and every memory of the core", pipe_name[p], does, at);
  if (known && !(reach[p][how != TW_READ] >> m & 1))
    twin_fault("pipe %s %s %s, which it cannot", pipe_name[p], does, t ? t->name : memory_name[m]);
  if (t) {
    touch_tensor(t, p, a, bytes, how);
    return;
  }
  size_t from = known ? (size_t)(a - twin.memory[m].at) : 0;
  if (known && from + bytes > twin.memory[m].bytes)
    twin_fault("pipe %s %s bytes %zu to %zu of %s, which has %zu", pipe_name[p], does, from, from + bytes,
               memory_name[m], twin.memory[m].bytes);
  touch_own(p, at, bytes, how != TW_READ);
}

/* An operand must stand on a multiple of `to` bytes of the memory it is in. */
void twin_aligned(const char *instruction, const void *at, int to) {
  for (int m = 0; m < TW_MEMORIES; m++) {
    size_t from = (size_t)((const char *)at - twin.memory[m].at);
    if (twin.memory[m].at && (const char *)at >= twin.memory[m].at && from < twin.memory[m].bytes && from % (size_t)to)
      twin_fault("%s: byte %zu of %s does not stand on %d bytes", instruction, from, memory_name[m], to);
  }
}

void twin_within(const char *instruction, const char *what, int64_t v, int64_t low, int64_t high) {
  if (v < low || v > high)
    twin_fault("%s: %s is %lld, it may be %lld to %lld", instruction, what, (long long)v, (long long)low,
               (long long)high);
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
    twin_fault("there is no flag #%d of mode %d between cores here", flag, mode);
    return;
  }
  twin_lock();
  uint32_t n = set_at(s, way, flag)[twin.me];
  bool first = true, late = false;
  for (int c = 0; c < s->cores; c++) {
    first &= !sets(s, c, way) || set_at(s, way, flag)[c] <= n;
    late |= takes(s, c, way) && n - taken_at(s, way, flag)[c] + 1 > SETS - 1;
  }
  if (late) twin_fault("flag #%d between cores is set more than %d times before it is waited for", flag, SETS - 1);
  send(clock_at(s, way, flag, n), s->cores, pipe, first);
  set_at(s, way, flag)[twin.me]++;
  pthread_cond_broadcast(&s->changed);
  twin_unlock();
}

bool twin_cross_wait(int flag) {
  Shared *s = twin.shared;
  if (!s) return true;
  int way;
  twin_lock();
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
  twin_unlock();
  for (int p = 0; p < TW_PIPES; p++) merge(p, twin.far[twin.me]);
  char me[64];
  if (way < 0)
    twin_fault("%s waits for flag #%d between cores, and no core is left that could set it: a deadlock",
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
          twin_fault("flag #%d between cores is left set for %s", flag, core_name(c + s->first * TW_CORES, name));
  return twin.faults;
}
