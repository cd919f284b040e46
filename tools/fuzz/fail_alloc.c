/* fail_alloc.c - compiles, simulates and times files while the host refuses its k-th request for memory, for k = 1, 2,
 * 3 … until one run needs fewer; with `-n MOST` for at most MOST of them a file, spread evenly. Every call must come
 * back, report TL0001 when it failed for that reason, and leak nothing.
 *
 *   cc -g -O1 -fsanitize=address,undefined -Iinclude tools/fuzz/fail_alloc.c … -o build/fail_alloc
 *   build/fail_alloc test/ir/\*.tl */
#include "tilelang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENOUGH = 1 << 30 };
typedef struct { long left; int refused; } Budget;

static void *limited(void *user, void *old, size_t size) {
  Budget *b = user;
  if (!size) {
    free(old);
    return NULL;
  }
  if (b->left-- == 0) {
    b->refused = 1;
    return NULL;
  }
  return realloc(old, size);
}

/* One run on zeros; the kernel's scalars are zero too. */
static void simulate(TlContext *c) {
  enum { MOST = 64 };
  TlArg args[MOST] = {{0}};
  TlParam p;
  int n = 0;
  while (n < MOST && tl_param_at(c, n, &p)) n++;
  if (n < MOST && tl_shapes(c, args, n)) {
    for (int i = 0; i < n && tl_param_at(c, i, &p); i++) {
      int64_t bytes = p.bytes;
      for (int d = 0; d < p.rank; d++) bytes *= args[i].shape[d];
      if (p.is_tensor) args[i].data = calloc(1, (size_t)bytes + 1);
    }
    TlSim opt = {.checks = 1, .threads = 1, .record = 1};
    TlSimResult r;
    TlTime time = {.follow = 1};
    TlCost cost;
    if (tl_sim(c, args, n, &opt, &r)) tl_time(c, args, n, &time, NULL);
    tl_cost(c, args, n, &cost);
  }
  for (int i = 0; i < n; i++) free(args[i].data);
}

/* One compilation with k requests granted; true when one was refused. *used: how many it made. */
static int compile(const char *text, size_t len, long k, long *used) {
  Budget budget = {k, 0};
  TlContext *c = tl_open(limited, &budget);
  if (!c) return 1;
  if (tl_load(c, "fail.tl", text, len)) {
    tl_signature_json(c);
    tl_program_json(c);
    TlLower opt = {.keep_text = 1, .verify_each = 1};
    if (tl_lower(c, &opt)) {
      tl_text(c);
      tl_explain(c);
      tl_explain_json(c);
      tl_emit(c, "ascendc");
      tl_emit(c, "pto");
      simulate(c);
    }
  }
  int refused = budget.refused; /* before the questions, which need memory too */
  const char *said = tl_diags_text(c), *json = tl_diags_json(c);
  if (refused && (!strstr(said, "TL0001") || !strstr(json, "TL0001"))) {
    fprintf(stderr, "fail_alloc: request %ld was refused and not reported:\n%s\n%s\n", k, said, json);
    abort();
  }
  *used = k - budget.left;
  tl_close(c);
  return budget.refused;
}

int main(int argc, char **argv) {
  long most = 0, all, used;
  for (int i = 1; i < argc; i++) {
    static char text[1 << 20];
    if (!strcmp(argv[i], "-n") && i + 1 < argc) {
      most = atol(argv[++i]);
      continue;
    }
    FILE *f = fopen(argv[i], "rb");
    if (!f) return 2;
    size_t len = fread(text, 1, sizeof text, f);
    fclose(f);
    long k = 0, step = 1, n = 0;
    compile(text, len, ENOUGH, &all);
    if (most && all > most) step = (all + most - 1) / most;
    for (; compile(text, len, k, &used); k += step) n++;
    printf("%s: %ld requests, %ld of them refused in turn\n", argv[i], all, n);
    fflush(stdout);
  }
  return 0;
}
