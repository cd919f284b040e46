/* mock_acl.c - libascendcl and libruntime of a machine without cards: what tlc calls, with the same rules.
 *
 * Memory of a device is host memory. A stream keeps what is launched on it and runs it when it is synchronised, on the
 * simulated chip (`tlc sim`, found in the variable TLC): a caller that reads results without waiting reads nothing.
 * The fake compiler (fake_bisheng.py) turns `kernel<<<blocks, nullptr, stream>>>(args)` into mock_launch.
 *
 *   MOCK_DEVICES=N      number of devices (2)            MOCK_SOC=NAME        what aclrtGetSocName says (Ascend910B2)
 *   MOCK_RUN=none       kernels do nothing               MOCK_FAULT=kernel    that kernel fails with 507015
 *   MOCK_LOG=FILE       one line a call                  MOCK_MEMORY=BYTES    what a device can allocate
 *   MOCK_REFUSE=NAME    that call fails */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAD_PARAM = 107000, NO_MEMORY = 207001, REPEATED = 100002, NOT_INITIALISED = 100000, AICORE_EXCEPTION = 507015 };

/* As the fake compiler writes it. */
typedef struct {
  const char *name, *ir;
  int n;
  const char *const *arg;
  const char *kinds; /* 't' tensor, 'i', 'f' */
} MockKernel;
typedef void (*MockBytes)(const uint64_t *values, int64_t *bytes); /* of the tensors among a launch's arguments */

typedef struct Launch {
  struct Launch *next;
  const MockKernel *k;
  MockBytes bytes;
  uint64_t v[64];
} Launch;
typedef struct Stream { int device, error; Launch *first, **last; struct Stream *next; } Stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the counters and the queues */
static int initialised;
static Stream defaults[16], *streams; /* `streams`: all that were started */
static size_t allocated;
static _Thread_local int current = -1;
static _Thread_local int last_error;
static _Thread_local char message[2000];

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static void logged(const char *fmt, ...) {
  const char *path = getenv("MOCK_LOG");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  va_list ap;
  va_start(ap, fmt);
  vfprintf(f, fmt, ap);
  va_end(ap);
  fclose(f);
}

static int failed(int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  return last_error = code;
}

static int refuses(const char *call) {
  const char *name = getenv("MOCK_REFUSE");
  return name && !strcmp(name, call) ? failed(BAD_PARAM, "EE1001: %s is refused", call) : 0;
}

int aclInit(const char *config) {
  (void)config;
  logged("aclInit\n");
  pthread_mutex_lock(&lock);
  int before = initialised++;
  pthread_mutex_unlock(&lock);
  return before ? REPEATED : 0;
}

int aclrtGetDeviceCount(uint32_t *n) {
  *n = (uint32_t)number("MOCK_DEVICES", 2);
  return 0;
}

const char *aclrtGetSocName(void) { return getenv("MOCK_SOC") ? getenv("MOCK_SOC") : "Ascend910B2"; }

int aclrtSetDevice(int32_t d) {
  if (!initialised) return failed(NOT_INITIALISED, "aclInit was not called");
  if (d < 0 || d >= number("MOCK_DEVICES", 2)) return failed(BAD_PARAM, "EE1001: device %d is out of range", d);
  current = d;
  return 0;
}

int aclrtGetDevice(int32_t *d) {
  if (current < 0) return failed(BAD_PARAM, "no device was set in this thread");
  *d = current;
  return 0;
}

static void start(Stream *s, int device) { /* with the lock */
  *s = (Stream){.device = device, .next = streams};
  s->last = &s->first;
  streams = s;
}

static Stream *of(void *stream) {
  Stream *s = stream ? stream : &defaults[current < 0 ? 0 : current];
  pthread_mutex_lock(&lock);
  if (!s->last) start(s, current < 0 ? 0 : current);
  pthread_mutex_unlock(&lock);
  return s;
}

int aclrtCreateStream(void **out) {
  if (refuses("aclrtCreateStream")) return BAD_PARAM;
  pthread_mutex_lock(&lock);
  start(*out = malloc(sizeof(Stream)), current);
  pthread_mutex_unlock(&lock);
  logged("stream on %d\n", current);
  return 0;
}

int aclrtDestroyStream(void *stream) {
  pthread_mutex_lock(&lock);
  for (Stream **s = &streams; *s; s = &(*s)->next)
    if (*s == stream) {
      *s = (*s)->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  free(stream);
  return 0;
}

/* Each block: its size, then the bytes. */
int aclrtMalloc(void **out, size_t bytes, int policy) {
  (void)policy;
  if (current < 0) return failed(BAD_PARAM, "no device was set in this thread");
  if (getenv("MOCK_MEMORY") && allocated + bytes > (size_t)atoll(getenv("MOCK_MEMORY")))
    return failed(NO_MEMORY, "EL0004: %zu bytes are not there", bytes);
  size_t *block = malloc(bytes + 64);
  memset(block, 0xa5, bytes + 64); /* nobody may count on zeros */
  *block = bytes;
  __atomic_fetch_add(&allocated, bytes, __ATOMIC_RELAXED);
  *out = (char *)block + 64;
  logged("malloc %zu on %d\n", bytes, current);
  return 0;
}

int aclrtFree(void *p) {
  size_t *block = (size_t *)((char *)p - 64);
  __atomic_fetch_sub(&allocated, *block, __ATOMIC_RELAXED);
  free(block);
  return 0;
}

int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind) {
  if (refuses("aclrtMemcpy")) return BAD_PARAM;
  if (bytes > room) return failed(BAD_PARAM, "copy of %zu bytes into %zu", bytes, room);
  if (kind < 1 || kind > 2) return failed(BAD_PARAM, "memcpy kind %d", kind);
  memcpy(to, from, bytes);
  return 0;
}

const char *aclGetRecentErrMsg(void) {
  static _Thread_local char given[sizeof message];
  if (!*message) return NULL;
  strcpy(given, message);
  *message = 0;
  return given;
}

int aclrtPeekAtLastError(int level) { return level ? BAD_PARAM : last_error; }

int rtGetC2cCtrlAddr(uint64_t *address, uint32_t *bytes) {
  *address = 0x1000;
  *bytes = 64;
  return 0;
}

/* ---- launching ------------------------------------------------------------------------------------------------ */

void mock_launch(const MockKernel *k, MockBytes bytes, uint32_t blocks, void *stream, const uint64_t *values) {
  Stream *s = of(stream);
  logged("launch %s blocks %u on %d%s\n", k->name, blocks, s->device, stream ? " stream" : "");
  if (getenv("MOCK_RUN")) return;
  Launch *l = calloc(1, sizeof *l);
  *l = (Launch){.k = k, .bytes = bytes};
  memcpy(l->v, values, sizeof *values * (size_t)k->n);
  pthread_mutex_lock(&lock);
  *s->last = l;
  s->last = &l->next;
  pthread_mutex_unlock(&lock);
}

static void put_file(const char *path, const void *data, size_t n) {
  FILE *f = fopen(path, "wb");
  fwrite(data, 1, n, f);
  fclose(f);
}

/* Runs `tlc sim` on files that hold the tensors' bytes, and reads them back. */
static int simulate(const Launch *l) {
  const MockKernel *k = l->k;
  char dir[] = "/tmp/mock-acl-XXXXXX", text[64][400], *argv[300] = {getenv("TLC"), "sim", text[0]};
  int n = 3, status = 0, used = 1;
  int64_t bytes[64] = {0};
  if (!mkdtemp(dir)) return 1;
  sprintf(text[0], "%s/kernel.tl", dir);
  put_file(text[0], k->ir, strlen(k->ir));
  l->bytes(l->v, bytes);
  for (int i = 0; i < k->n; i++) {
    if (k->kinds[i] != 't') {
      float f;
      memcpy(&f, &l->v[i], sizeof f);
      if (k->kinds[i] == 'f') sprintf(text[used], "%s=%.9g", k->arg[i], f);
      else sprintf(text[used], "%s=%lld", k->arg[i], (long long)l->v[i]);
      argv[n++] = "--arg", argv[n++] = text[used++];
      continue;
    }
    sprintf(text[used], "%s=%s/%d.bin", k->arg[i], dir, i);
    put_file(strchr(text[used], '=') + 1, (void *)(uintptr_t)l->v[i], (size_t)bytes[i]);
    argv[n++] = "--arg", argv[n++] = text[used];
    argv[n++] = "--out", argv[n++] = text[used++];
  }
  pid_t child = fork();
  if (!child) {
    sprintf(text[63], "%s/said", dir);
    if (!freopen(text[63], "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(126);
    execv(argv[0], argv);
    _exit(127);
  }
  waitpid(child, &status, 0);
  for (int i = 0; i < k->n && !status; i++) {
    sprintf(text[0], "%s/%d.bin", dir, i);
    FILE *f = k->kinds[i] == 't' ? fopen(text[0], "rb") : NULL;
    if (f && fread((void *)(uintptr_t)l->v[i], 1, (size_t)bytes[i], f) != (size_t)bytes[i]) status = 1;
    if (f) fclose(f);
  }
  sprintf(text[0], "%s/said", dir);
  FILE *f = fopen(text[0], "r");
  size_t got = f ? fread(text[1], 1, 1500, f) : 0;
  if (f) fclose(f);
  text[1][got] = 0;
  if (status) failed(AICORE_EXCEPTION, "Aicore kernel execute failed, fault kernel_name=%s: %s", k->name, text[1]);
  sprintf(text[0], "rm -rf %s", dir);
  return system(text[0]) || status;
}

static int finish(Stream *s) { /* with the lock */
  while (s->first) {
    Launch *l = s->first;
    if (!(s->first = l->next)) s->last = &s->first;
    const char *fault = getenv("MOCK_FAULT");
    if (!s->error && fault && !strcmp(fault, l->k->name))
      s->error = failed(AICORE_EXCEPTION, "EZ9999: Aicore kernel execute failed, fault kernel_name=%s", l->k->name);
    if (!s->error && simulate(l)) s->error = AICORE_EXCEPTION;
    free(l);
  }
  int error = s->error;
  s->error = 0;
  return error;
}

int aclrtSynchronizeStream(void *stream) {
  Stream *s = of(stream);
  pthread_mutex_lock(&lock);
  int error = finish(s);
  pthread_mutex_unlock(&lock);
  return error;
}

int aclrtSynchronizeDevice(void) {
  int error = 0;
  pthread_mutex_lock(&lock);
  for (Stream *s = streams; s; s = s->next)
    if (s->device == current && !error) error = finish(s);
  pthread_mutex_unlock(&lock);
  return error;
}
