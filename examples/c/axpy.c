/* axpy.c - y = a * x + y on a simulated Ascend chip, from IR text, with nothing but the C library.
 *
 *   cc axpy.c $(pkg-config --cflags --libs tilelang) -o axpy && ./axpy [pto | ascendc]
 *
 * The text is what Python hands over too (docs/ir.md); `tlc sim` runs it from a file. Sizes are scalar parameters, so
 * one lowered kernel serves every length. With the name of a target, the C++ for the chip is printed instead. */
#include <tilelang.h>

#include <stdio.h>
#include <stdlib.h>

static const char text[] =
    "tl 1\n"
    "file \"axpy.c\"\n"
    "kernel @axpy(%n: i32, %a: f32, %X: gm f32[%n], %Y: gm f32[%n]) grid(%b: (%n + 1023) // 1024) {\n"
    "  alloc %x: shared f32[1024] @1:1\n"
    "  alloc %y: shared f32[1024] @2:1\n"
    "  copy %X[%b * 1024 +: 1024] -> %x @3:1\n"
    "  copy %Y[%b * 1024 +: 1024] -> %y @4:1\n"
    "  mul %x, %a -> %x @5:1\n"
    "  add %x, %y -> %y @6:1\n"
    "  copy %y -> %Y[%b * 1024 +: 1024] @7:1\n"
    "}\n";

/* What the core has to say goes to the standard error; 1 when something went wrong. */
static int finish(TlContext *c, int ok) {
  fputs(tl_diags_text(c), stderr);
  tl_close(c);
  return !ok;
}

int main(int argc, char **argv) {
  TlContext *c = tl_open(NULL, NULL);
  if (!c) return 1;
  if (!tl_load(c, "axpy.tl", text, sizeof text - 1) || !tl_lower(c, &(TlLower){.chip = "910B2"})) return finish(c, 0);
  if (argc > 1) {
    const char *source = tl_emit(c, argv[1]);
    if (source) fputs(source, stdout);
    return finish(c, source != NULL);
  }

  enum { n = 5000 };
  float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
  for (int i = 0; i < n; i++) x[i] = (float)i, y[i] = 1;
  TlArg args[] = {{.scalar.i = n}, {.scalar.f = 2}, {.data = x, .shape = {n}}, {.data = y, .shape = {n}}};
  TlSimResult r;
  int ok = tl_sim(c, args, 4, NULL, &r);
  int wrong = 0;
  for (int i = 0; ok && i < n; i++) wrong += y[i] != 2 * (float)i + 1;
  if (ok)
    printf("%lld blocks on %d of %d cores, %lld instructions; y[%d] = %g, %d of %d wrong\n", (long long)r.blocks,
           r.cores_used, r.cores, (long long)r.instructions, n - 1, y[n - 1], wrong, n);
  free(x);
  free(y);
  return finish(c, ok && !wrong);
}
