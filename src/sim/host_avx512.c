/* host_avx512.c - the inner loops for hosts with AVX-512 F, BW, DQ and VL. Empty on other machines. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,fp-contract=off,no-math-errno,no-trapping-math")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#include <immintrin.h>

#include "machine.h"

#define HOST(x) x##_avx512
#define HOST_NAME "avx512"
#define HOST_AVX512 1
#define TILE_ROWS 8
#define TILE_FRACTALS 2
#include "host_kernels.inc"
#else
typedef int host_avx512_is_empty;
#endif
