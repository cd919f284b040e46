/* host_avx2.c - the inner loops for hosts with AVX2, FMA and F16C. Empty on other machines. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,fp-contract=off,no-math-errno,no-trapping-math")
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>

#include "machine.h"

#define HOST(x) x##_avx2
#define HOST_NAME "avx2"
#define HOST_AVX2 1
#define TILE_ROWS 4
#define TILE_FRACTALS 1
#include "host_kernels.inc"
#else
typedef int host_avx2_is_empty;
#endif
