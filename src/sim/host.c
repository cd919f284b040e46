/* host.c - the inner loops for any host, and the choice among what this host can run. The choice changes speed, never
 * results. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,fp-contract=off,no-math-errno,no-trapping-math")
#else
#pragma STDC FP_CONTRACT OFF
#endif
#include "machine.h"

#define HOST(x) x##_portable
#define HOST_NAME "portable"
#if defined(__aarch64__)
#define TILE_ROWS 4
#else
#define TILE_ROWS 2
#endif
#define TILE_FRACTALS 1
#include "host_kernels.inc"

const HostKernels *host_kernels(void) {
#if TL_HOST_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return &host_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return &host_avx2;
#endif
  return &host_portable;
}
