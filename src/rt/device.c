/* device.c - launches built kernels through the runtime library of the toolkit.
 *
 * Device: the library, its devices, memory that copies of host tensors use again, and the launches that may still run.
 * A launch with device addresses is only queued on the caller's stream. A launch with host memory copies tensors in,
 * runs, waits, copies back, on a stream that no other thread uses meanwhile.
 * Nothing says which launch an asynchronous error belongs to, except that its text mostly names the kernel. So the last
 * launches of a stream are remembered until it has been waited for; an error names the one that the text names, else
 * all that were under way. */
#include "rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TO_DEVICE = 1, TO_HOST = 2, HUGE_FIRST = 0, THREAD_LEVEL = 0, REPEAT_INITIALIZE = 100002 };
enum { MAX_DEVICES = 64, MAX_FLIGHT = 64, MAX_SPACES = 16, MAX_IDLE = 16 };

static const Loc nowhere = {0, 0, 0};

typedef struct Block { struct Block *next; void *memory; int64_t bytes; } Block;
typedef struct { void *stream; int device; const DeviceKernel *kernel; const char *file; int line; } Flight;

struct Device {
  void *library;
#define ACL(needed, result, name, parameters) result(*name) parameters;
#include "acl.def"
#undef ACL
  int count;
  pthread_mutex_t lock; /* of what follows */
  void *idle[MAX_DEVICES][MAX_IDLE]; /* streams that no thread uses now */
  int n_idle[MAX_DEVICES];
  Block *spare[MAX_DEVICES];
  Flight flight[MAX_FLIGHT]; /* a ring; `flown` counts up */
  unsigned flown;
};

/* Workspace of one stream: the next launch there runs after the last one, so both may use it. */
typedef struct { int device; void *stream, *memory; int64_t bytes; } Space;

struct DeviceKernel {
  Device *device;
  void *library;
  void (*launch)(const uint64_t *slot, void *stream);
  void (*bytes)(const uint64_t *slot, int64_t *bytes);
  char *name, *file; /* copies, with this struct */
  int line, n;
  char *kinds;
  uint64_t queued; /* bit i: device i may still work on it */
  Space space[MAX_SPACES];
};

/* ---- failures ------------------------------------------------------------------------------------------------ */

static const char *recent(Device *v) {
  const char *s = v->aclGetRecentErrMsg ? v->aclGetRecentErrMsg() : NULL;
  return s && *s ? s : "the runtime says no more";
}

static bool refused(Device *v, Diags *d, DiagCode code, const char *call, int error) {
  diag_add(d, code, nowhere, "%s failed with %d: %s", call, error, recent(v));
  return false;
}

/* The launches that may have failed, newest first: the one that `text` names, else all. */
static const char *suspects(Device *v, Arena *a, int device, const void *stream, const char *text, int *n) {
  Text t;
  text_init(&t, a);
  *n = 0;
  for (int named = 1; named >= 0 && !*n; named--)
    for (unsigned i = 0; i < MAX_FLIGHT && i < v->flown; i++) {
      const Flight *f = &v->flight[(v->flown - 1 - i) % MAX_FLIGHT];
      if (!f->kernel || f->device != device || f->stream != stream) continue;
      if (named && !strstr(text, arena_printf(a, "%s_kernel", f->kernel->name))) continue;
      text_printf(&t, "%s%s (%s:%d)", *n ? ", " : "", f->kernel->name, f->kernel->file, f->kernel->line);
      if (f->line) text_printf(&t, " launched at %s:%d", f->file, f->line);
      ++*n;
      if (named) break;
    }
  return text_str(&t);
}

static void landed(Device *v, int device, const void *stream) {
  pthread_mutex_lock(&v->lock);
  for (unsigned i = 0; i < MAX_FLIGHT; i++)
    if (v->flight[i].stream == stream && v->flight[i].device == device) v->flight[i].kernel = NULL;
  pthread_mutex_unlock(&v->lock);
}

static bool crashed(Device *v, Diags *d, int device, const void *stream, int error) {
  const char *text = recent(v);
  int n;
  pthread_mutex_lock(&v->lock);
  const char *who = suspects(v, d->arena, device, stream, text, &n);
  pthread_mutex_unlock(&v->lock);
  landed(v, device, stream);
  Diag *g = diag_add(d, DIAG_RT_ASYNC, nowhere, "%s failed on device %d with error %d: %s",
                     n == 0 ? "something" : n == 1 ? who : arena_printf(d->arena, "one of %s", who), device, error,
                     text);
  diag_fix(d, g, n > 1 ? "ASCEND_LAUNCH_BLOCKING=1 waits after every launch, which tells the kernel; %s"
                       : "%s", "run the kernel on the simulated chip with checks: device=\"sim\"");
  return false;
}

/* ---- the library ------------------------------------------------------------------------------------------------ */

static bool load(Arena *a, Diags *d, Device *v) {
  Toolkit kit = rt_toolkit(a, "");
  v->library = dlopen(kit.acl ? kit.acl : "libascendcl.so", RTLD_NOW | RTLD_GLOBAL);
  if (!v->library) {
    Diag *g = diag_add(d, DIAG_RT_NO_RUNTIME, nowhere, "the runtime library of the toolkit does not load: %s",
                       dlerror());
    diag_fix(d, g, RT_NO_CARD_FIX);
    return false;
  }
  const char *missing = NULL;
#define ACL(needed, result, name, parameters)                                                                          \
  *(void **)&v->name = dlsym(v->library, #name);                                                                       \
  if (needed && !v->name) missing = #name;
#include "acl.def"
#undef ACL
  if (!missing) return true;
  diag_add(d, DIAG_RT_NO_RUNTIME, nowhere, "%s has no %s", kit.acl ? kit.acl : "libascendcl.so", missing);
  return false;
}

Device *rt_device_open(Arena *a, Diags *d) {
  Device *v = calloc(1, sizeof *v);
  if (!v) longjmp(*a->oom, 1);
  pthread_mutex_init(&v->lock, NULL);
  uint32_t count = 0;
  if (load(a, d, v)) {
    int error = v->aclInit(NULL);
    if (error && error != REPEAT_INITIALIZE) refused(v, d, DIAG_RT_NO_RUNTIME, "aclInit", error);
    else if ((error = v->aclrtGetDeviceCount(&count))) refused(v, d, DIAG_RT_NO_DEVICE, "aclrtGetDeviceCount", error);
    else if (!count)
      diag_fix(d, diag_add(d, DIAG_RT_NO_DEVICE, nowhere, "the runtime sees no device"),
               "`tlc doctor` says what is missing; ASCEND_RT_VISIBLE_DEVICES may hide them");
    else {
      v->count = count < MAX_DEVICES ? (int)count : MAX_DEVICES;
      return v;
    }
  }
  rt_device_close(v);
  return NULL;
}

void rt_device_close(Device *v) {
  if (!v) return;
  for (int i = 0; i < v->count; i++) {
    if (!v->n_idle[i] && !v->spare[i]) continue;
    v->aclrtSetDevice(i);
    while (v->n_idle[i]) v->aclrtDestroyStream(v->idle[i][--v->n_idle[i]]);
    while (v->spare[i]) {
      Block *b = v->spare[i];
      v->spare[i] = b->next;
      v->aclrtFree(b->memory);
      free(b);
    }
  }
  pthread_mutex_destroy(&v->lock);
  if (v->library) dlclose(v->library);
  free(v);
}

int rt_device_count(const Device *v) { return v->count; }
const char *rt_device_chip(const Device *v) { return v->aclrtGetSocName ? v->aclrtGetSocName() : NULL; }

/* ---- kernels -------------------------------------------------------------------------------------------------- */

DeviceKernel *rt_kernel_open(Arena *a, Diags *d, Device *v, const LoadKernel *l) {
  void *library = dlopen(l->library, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    Diag *g = diag_add(d, DIAG_RT_LIBRARY, nowhere, "the built kernel %s does not load: %s", l->name, dlerror());
    diag_fix(d, g, "`tlc doctor` says whether the toolkit that built it is the one that runs");
    return NULL;
  }
  size_t name = strlen(l->name) + 1, file = strlen(l->file) + 1, kinds = strlen(l->kinds) + 1;
  DeviceKernel *k = calloc(1, sizeof *k + name + file + kinds);
  if (!k) dlclose(library), longjmp(*a->oom, 1);
  *k = (DeviceKernel){.device = v, .library = library, .line = l->line, .n = (int)kinds - 1, .name = (char *)(k + 1)};
  k->file = memcpy((char *)memcpy(k->name, l->name, name) + name, l->file, file);
  k->kinds = memcpy(k->file + file, l->kinds, kinds);
  *(void **)&k->launch = dlsym(library, "tlc_launch");
  *(void **)&k->bytes = dlsym(library, "tlc_bytes");
  if (k->launch && k->bytes) return k;
  diag_add(d, DIAG_RT_LIBRARY, nowhere, "%s is not a kernel that tlc built", l->library);
  rt_kernel_close(k);
  return NULL;
}

const char *rt_kernel_kinds(const DeviceKernel *k) { return k->kinds; }

void rt_kernel_close(DeviceKernel *k) {
  if (!k) return;
  Device *v = k->device;
  int32_t before = -1;
  bool had = !v->aclrtGetDevice(&before);
  for (int i = 0; i < v->count; i++) /* not its streams: they may be gone */
    if (k->queued >> i & 1 && !v->aclrtSetDevice(i)) v->aclrtSynchronizeDevice();
  for (int i = 0; i < MAX_SPACES; i++)
    if (k->space[i].memory && !v->aclrtSetDevice(k->space[i].device)) v->aclrtFree(k->space[i].memory);
  if (had) v->aclrtSetDevice(before);
  pthread_mutex_lock(&v->lock);
  for (unsigned i = 0; i < MAX_FLIGHT; i++)
    if (v->flight[i].kernel == k) v->flight[i].kernel = NULL;
  pthread_mutex_unlock(&v->lock);
  dlclose(k->library);
  free(k);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Whole units of what the runtime gives out. */
static int64_t units(int64_t bytes) { return (bytes + 511) / 512 * 512; }

/* A block of at least so many bytes: the smallest spare one that is not much too large, or a new one. */
static Block *take(Device *v, Diags *d, int device, int64_t bytes) {
  Block **best = NULL;
  bytes = units(bytes ? bytes : 1);
  pthread_mutex_lock(&v->lock);
  for (Block **b = &v->spare[device]; *b; b = &(*b)->next)
    if ((*b)->bytes >= bytes && (*b)->bytes <= 2 * bytes && (!best || (*b)->bytes < (*best)->bytes)) best = b;
  Block *got = best ? *best : NULL;
  if (got) *best = got->next;
  pthread_mutex_unlock(&v->lock);
  if (got) return got;
  if (!(got = calloc(1, sizeof *got))) return refused(v, d, DIAG_RT_MEMORY, "malloc", 0), NULL;
  got->bytes = bytes;
  int error = v->aclrtMalloc(&got->memory, (size_t)bytes, HUGE_FIRST);
  if (error) { /* what is spare may be what is missing */
    pthread_mutex_lock(&v->lock);
    Block *spare = v->spare[device];
    v->spare[device] = NULL;
    pthread_mutex_unlock(&v->lock);
    for (Block *next; spare; spare = next) {
      next = spare->next;
      v->aclrtFree(spare->memory);
      free(spare);
    }
    error = v->aclrtMalloc(&got->memory, (size_t)bytes, HUGE_FIRST);
  }
  if (!error) return got;
  Diag *g = diag_add(d, DIAG_RT_MEMORY, nowhere, "device %d has no %lld bytes for a tensor: error %d, %s", device,
                     (long long)bytes, error, recent(v));
  diag_fix(d, g, "free tensors on that device, or choose another one: device=\"ascend:N\"");
  free(got);
  return NULL;
}

static void give_back(Device *v, int device, Block *b) {
  if (!b) return;
  pthread_mutex_lock(&v->lock);
  b->next = v->spare[device];
  v->spare[device] = b;
  pthread_mutex_unlock(&v->lock);
}

/* The workspace of this kernel for a stream, of at least so many bytes. */
static void *workspace(DeviceKernel *k, Diags *d, int device, void *stream, int64_t bytes) {
  Device *v = k->device;
  Space *s = NULL;
  for (int i = 0; i < MAX_SPACES && !s; i++)
    if (!k->space[i].memory || (k->space[i].device == device && k->space[i].stream == stream)) s = &k->space[i];
  if (!s) s = &k->space[0];
  if (s->memory && s->device == device && s->stream == stream && s->bytes >= bytes) return s->memory;
  if (s->memory) {
    v->aclrtSynchronizeStream(s->stream);
    v->aclrtFree(s->memory);
  }
  *s = (Space){.device = device, .stream = stream, .bytes = bytes};
  int error = v->aclrtMalloc(&s->memory, (size_t)bytes, HUGE_FIRST);
  if (!error) return s->memory;
  s->memory = NULL;
  diag_add(d, DIAG_RT_MEMORY, nowhere, "device %d has no %lld bytes for the workspace of %s: error %d, %s", device,
           (long long)bytes, k->name, error, recent(v));
  return NULL;
}

/* ---- launching -------------------------------------------------------------------------------------------------- */

static bool use(Device *v, Diags *d, int device) {
  int32_t now = -1;
  if (!v->aclrtGetDevice(&now) && now == device) return true;
  int error = v->aclrtSetDevice(device);
  return error ? refused(v, d, DIAG_RT_NO_DEVICE, "aclrtSetDevice", error) : true;
}

static bool take_stream(Device *v, Diags *d, int device, void **out) {
  *out = NULL;
  pthread_mutex_lock(&v->lock);
  if (v->n_idle[device]) *out = v->idle[device][--v->n_idle[device]];
  pthread_mutex_unlock(&v->lock);
  int error = *out ? 0 : v->aclrtCreateStream(out);
  return error ? refused(v, d, DIAG_RT_LAUNCH, "aclrtCreateStream", error) : true;
}

static void give_stream(Device *v, int device, void *stream) {
  if (!stream) return;
  pthread_mutex_lock(&v->lock);
  bool kept = v->n_idle[device] < MAX_IDLE;
  if (kept) v->idle[device][v->n_idle[device]++] = stream;
  pthread_mutex_unlock(&v->lock);
  if (!kept) v->aclrtDestroyStream(stream);
}

bool rt_wait(Device *v, Diags *d, int device, void *stream) {
  if (!use(v, d, device)) return false;
  int error = v->aclrtSynchronizeStream(stream);
  if (error) return crashed(v, d, device, stream, error);
  landed(v, device, stream);
  return true;
}

static bool go(DeviceKernel *k, Diags *d, const LaunchKernel *l, const uint64_t *slot, void *stream) {
  Device *v = k->device;
  pthread_mutex_lock(&v->lock);
  v->flight[v->flown++ % MAX_FLIGHT] = (Flight){stream, l->device, k, l->file, l->line};
  pthread_mutex_unlock(&v->lock);
  int stale = v->aclrtPeekAtLastError ? v->aclrtPeekAtLastError(THREAD_LEVEL) : 0;
  k->launch(slot, stream);
  int error = v->aclrtPeekAtLastError ? v->aclrtPeekAtLastError(THREAD_LEVEL) : 0;
  return error && error != stale ? crashed(v, d, l->device, stream, error) : true;
}

/* Host memory: in, run, wait, out. */
static bool round_trip(DeviceKernel *k, Diags *d, const LaunchKernel *l, uint64_t *slot, const int64_t *bytes,
                       Block **blocks, void *stream) {
  Device *v = k->device;
  const uint64_t *host = l->slot;
  int error;
  for (int i = 0; i < k->n; i++) {
    if (rt_is_scalar(k->kinds[i])) continue;
    if (!(blocks[i] = take(v, d, l->device, bytes[i]))) return false;
    slot[i] = (uint64_t)(uintptr_t)blocks[i]->memory;
    if (!host[i] || !bytes[i] || l->fresh >> i & 1) continue;
    const void *from = (void *)(uintptr_t)host[i];
    error = v->aclrtMemcpy(blocks[i]->memory, (size_t)bytes[i], from, (size_t)bytes[i], TO_DEVICE);
    if (error) return refused(v, d, DIAG_RT_LAUNCH, "aclrtMemcpy to the device", error);
  }
  if (!go(k, d, l, slot, stream) || !rt_wait(v, d, l->device, stream)) return false;
  for (int i = 0; i < k->n; i++) {
    if (k->kinds[i] != KIND_TENSOR || !bytes[i] || l->read_only >> i & 1) continue;
    error = v->aclrtMemcpy((void *)(uintptr_t)host[i], (size_t)bytes[i], blocks[i]->memory, (size_t)bytes[i], TO_HOST);
    if (error) return refused(v, d, DIAG_RT_LAUNCH, "aclrtMemcpy to the host", error);
  }
  return true;
}

bool rt_launch(DeviceKernel *k, Diags *d, const LaunchKernel *l) {
  Device *v = k->device;
  uint64_t slot[MAX_PARAMS];
  int64_t bytes[MAX_PARAMS];
  if (l->device < 0 || l->device >= v->count) {
    Diag *g = diag_add(d, DIAG_RT_NO_DEVICE, nowhere, "there is no device %d; the runtime sees %d", l->device,
                       v->count);
    diag_fix(d, g, "devices are 0 to %d; ASCEND_RT_VISIBLE_DEVICES may hide some", v->count - 1);
    return false;
  }
  int32_t before = -1;
  if (v->aclrtGetDevice(&before)) before = -1;
  if (before != l->device && !use(v, d, l->device)) return false;
  memcpy(slot, l->slot, sizeof *slot * (size_t)k->n);
  k->bytes(slot, bytes);
  void *stream = l->stream;
  bool ok = true;
  if (l->host) {
    Block *blocks[MAX_PARAMS] = {0};
    ok = take_stream(v, d, l->device, &stream) && round_trip(k, d, l, slot, bytes, blocks, stream);
    for (int i = 0; i < k->n; i++) give_back(v, l->device, blocks[i]);
    give_stream(v, l->device, stream);
  } else {
    int64_t total = 0;
    for (int i = 0; i < k->n; i++)
      if (k->kinds[i] == KIND_WORKSPACE && !slot[i]) total += units(bytes[i]);
    char *memory = total ? workspace(k, d, l->device, stream, total) : NULL;
    ok = !total || memory;
    for (int i = 0; i < k->n && ok; i++)
      if (k->kinds[i] == KIND_WORKSPACE && !slot[i]) {
        slot[i] = (uint64_t)(uintptr_t)memory;
        memory += units(bytes[i]);
      }
    k->queued |= (uint64_t)1 << l->device;
    ok = ok && go(k, d, l, slot, stream) && (!l->blocking || rt_wait(v, d, l->device, stream));
  }
  if (before >= 0 && before != l->device) v->aclrtSetDevice(before);
  return ok;
}
