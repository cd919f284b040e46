/* threads.c - many threads, a context each: reads, lowers, writes and simulates the same kernels, and where
 * ASCEND_HOME_PATH names a toolkit, builds and launches them on one device that all share. Every thread must come to
 * the same texts and numbers.
 *
 *   threads N FILE.tl...
 *
 * test_threads.py runs it. */
#include "tilelang.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 64, SIZE = 40, ROUNDS = 3 };

typedef struct { const char *name; char *text; size_t len; } File;
typedef struct { const File *files; int n; TlDevice *device; unsigned long sum; int failed; } Job;

static void mix(unsigned long *sum, const void *data, size_t n) {
  for (size_t i = 0; i < n; i++) *sum = (*sum ^ ((const unsigned char *)data)[i]) * 1099511628211ul;
}

static int fail(Job *j, TlContext *c, const File *f, const char *what) {
  fprintf(stderr, "%s: %s\n%s", f->name, what, tl_diags_text(c));
  return j->failed = 1;
}

/* Arguments of SIZE for every scalar; tensors of small integers. */
static int make_args(TlContext *c, TlArg *args, size_t *bytes) {
  TlParam p;
  int n = 0;
  for (; tl_param_at(c, n, &p); n++)
    if (!p.is_tensor) args[n].scalar.i = SIZE;
  if (!tl_shapes(c, args, n)) return -1;
  for (int i = 0; tl_param_at(c, i, &p); i++) {
    if (!p.is_tensor) continue;
    bytes[i] = (size_t)p.bytes;
    for (int d = 0; d < p.rank; d++) bytes[i] *= (size_t)args[i].shape[d];
    args[i].data = calloc(1, bytes[i] + 1);
  }
  return n;
}

static int launch(Job *j, TlContext *c, const File *f, const TlArg *args, int n) {
  TlBuilt built;
  if (!tl_build(c, NULL, &built)) return fail(j, c, f, "build");
  TlKernel *k = tl_kernel_open(c, j->device, built.library);
  if (!k) return fail(j, c, f, "load");
  for (int i = 0; i < ROUNDS && !j->failed; i++)
    if (!tl_launch(c, k, args, n, &(TlLaunch){.host = 1, .device = i % tl_device_count(j->device)}))
      fail(j, c, f, "launch");
  tl_kernel_close(k);
  return j->failed;
}

static int once(Job *j, const File *f) {
  TlContext *c = tl_open(NULL, NULL);
  TlArg args[64] = {0};
  size_t bytes[64] = {0};
  int n = -1;
  if (!c) return j->failed = 1;
  if (!tl_load(c, f->name, f->text, f->len) || !tl_lower(c, NULL)) fail(j, c, f, "lower");
  if (!j->failed && (n = make_args(c, args, bytes)) < 0) fail(j, c, f, "shapes");
  for (int i = 0; !j->failed && tl_target_at(i); i++) {
    const char *source = tl_emit(c, tl_target_at(i));
    if (source) mix(&j->sum, source, strlen(source));
    else tl_diags_clear(c); /* a target may refuse */
  }
  if (!j->failed) {
    const char *texts[] = {tl_text(c), tl_explain(c), tl_signature_json(c)};
    mix(&j->sum, texts[0], strlen(texts[0]));
    mix(&j->sum, texts[2], strlen(texts[2]));
    if (!texts[1] || !tl_sim(c, args, n, &(TlSim){.checks = 0, .threads = 2}, NULL)) fail(j, c, f, "sim");
  }
  for (int i = 0; i < n; i++) mix(&j->sum, args[i].data, bytes[i]);
  if (!j->failed && j->device) launch(j, c, f, args, n);
  for (int i = 0; i < n; i++) free(args[i].data);
  tl_close(c);
  return j->failed;
}

static void *work(void *job) {
  Job *j = job;
  j->sum = 14695981039346656037ul;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < j->n && !j->failed; i++) once(j, &j->files[i]);
  return NULL;
}

static int read_file(const char *name, File *f) {
  FILE *in = fopen(name, "rb");
  if (!in) return 0;
  *f = (File){name, malloc(1 << 20), 0};
  f->len = fread(f->text, 1, 1 << 20, in);
  return !fclose(in);
}

int main(int argc, char **argv) {
  static File files[MAX_FILES];
  int threads = argc > 2 ? atoi(argv[1]) : 0, n = 0, failed = 0;
  for (int i = 2; i < argc && n < MAX_FILES; i++, n++)
    if (!read_file(argv[i], &files[n])) return fprintf(stderr, "cannot read %s\n", argv[i]), 2;
  if (threads < 1 || threads > 64) return fprintf(stderr, "usage: threads N FILE.tl...\n"), 2;
  Job jobs[64];
  pthread_t ids[64];
  TlContext *c = tl_open(NULL, NULL);
  TlDevice *device = getenv("ASCEND_HOME_PATH") ? tl_device_open(c) : NULL;
  for (int i = 0; i < threads; i++) {
    jobs[i] = (Job){files, n, device, 0, 0};
    pthread_create(&ids[i], NULL, work, &jobs[i]);
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    failed |= jobs[i].failed || jobs[i].sum != jobs[0].sum;
  }
  printf("%d threads, %d kernels%s, sum %016lx%s\n", threads, n, device ? " on a device" : "", jobs[0].sum,
         failed ? ": they do not agree" : "");
  tl_device_close(device);
  tl_close(c);
  for (int i = 0; i < n; i++) free(files[i].text);
  return failed;
}
