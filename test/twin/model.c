/* model.c - direct calls of the twin's model of hardware intrinsics; prints what is wrong, exit status 1 if any. */
#include "twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int wrong;
#define CHECK(c) ((c) ? (void)0 : (void)(wrong++, printf("%s:%d: %s\n", __func__, __LINE__, #c)))

static _Alignas(64) float a[4096], b[4096], c[4096];
static _Alignas(64) uint16_t h[4096], g[4096];
static _Alignas(64) uint8_t bits[512];
static const TwinSteps dense = {1, 1, 1, 8, 8, 8};

static void numbers(void) {
  for (int i = 0; i < 4096; i++) a[i] = (float)(i % 97) - 40, b[i] = (float)(i % 13) + 1, c[i] = -7;
}

static void numbers_of_halves(void) {
  CHECK(twin_half(1.0) == 0x3c00 && twin_half(-2.5) == 0xc100 && twin_half(65520.0) == 0x7c00);
  CHECK(twin_half(2049.0) == twin_half(2048.0) && twin_half(0x1p-24) == 1 && twin_half(0x1p-26) == 0);
  CHECK(twin_of_half(0x3555) == 0x1.554p-2f && isnan(twin_of_half(0x7e00)) && twin_bf16(1.0f) == 0x3f80);
  for (int i = 0; i < 0x7c00; i++) CHECK(twin_half(twin_of_half((uint16_t)i)) == i);
}

/* Sets what orders two pipes: none, a flag. */
static int faults_of(int first, int second, bool flag, bool write_then_read) {
  twin_begin(NULL, 0, 0);
  twin_touch(first, a, 64, write_then_read ? TW_WRITE : TW_READ);
  if (flag) twin_set_flag(first, second, 3), twin_wait_flag(first, second, 3);
  twin_touch(second, a, 64, write_then_read ? TW_READ : TW_WRITE);
  return twin_end();
}

static void order(void) {
  CHECK(faults_of(TW_MTE2, TW_V, true, true) == 0 && faults_of(TW_MTE2, TW_MTE2, false, true) == 0);
  twin_begin(NULL, 0, 0); /* pipes count instructions: one each */
  twin_gm_ub(4, a, b, 1, 256, 0, 0, 0, 0);
  twin_vector(TW_EXP, TW_F32, c, a, NULL, NULL, 1, dense);
  CHECK(twin_end() > 0 && strstr(twin_faults(), "pipe V reads") && strstr(twin_faults(), "MTE2 wrote"));
  twin_begin(NULL, 0, 0);
  twin_vector(TW_EXP, TW_F32, c, a, NULL, NULL, 1, dense);
  twin_vector(TW_ABS, TW_F32, c, c, NULL, NULL, 1, dense);
  CHECK(twin_end() > 0); /* pipe V does not order itself */
  twin_begin(NULL, 0, 0);
  twin_vector(TW_EXP, TW_F32, c, a, NULL, NULL, 1, dense);
  twin_barrier(TW_V);
  twin_vector(TW_ABS, TW_F32, c, c, NULL, NULL, 1, dense);
  CHECK(twin_end() == 0);
  twin_begin(NULL, 0, 0); /* a flag passes on what its sender had seen */
  twin_gm_ub(4, a, b, 1, 256, 0, 0, 0, 0);
  twin_set_flag(TW_MTE2, TW_V, 0), twin_wait_flag(TW_MTE2, TW_V, 0);
  twin_set_flag(TW_V, TW_MTE3, 0), twin_wait_flag(TW_V, TW_MTE3, 0);
  twin_ub_gm(c, a, 1, 256, 0, 0, -1);
  CHECK(twin_end() == 0);
}

static void flags(void) {
  twin_begin(NULL, 0, 0);
  twin_set_flag(TW_M, TW_FIX, 1);
  CHECK(twin_end() == 1 && strstr(twin_faults(), "left set"));
  twin_begin(NULL, 0, 0);
  twin_set_flag(TW_M, TW_FIX, 1), twin_set_flag(TW_M, TW_FIX, 1), twin_wait_flag(TW_M, TW_FIX, 1);
  CHECK(twin_end() == 1 && strstr(twin_faults(), "set twice"));
  twin_begin(NULL, 0, 0);
  twin_wait_flag(TW_M, TW_FIX, 2);
  CHECK(twin_end() == 1 && strstr(twin_faults(), "deadlock"));
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

static const bool all_cores[TW_CORES] = {true, true, true};
static const float *ws; /* a tensor of 64 */

static void *seen_by_all(size_t bytes) {
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Runs body(block, core) in a process each, blocks together. The faults of all, one text. */
static const char *run_cores(int blocks, const bool there[TW_CORES], void (*body)(int, int)) {
  static char text[8192];
  void *shared = seen_by_all(twin_shared_bytes(blocks));
  FILE *f = tmpfile();
  int status;
  twin_share(shared, 0, blocks, there);
  for (int b = 0; b < blocks; b++)
    for (int c = 0; c < TW_CORES; c++)
      if (there[c] && fork() == 0) {
        twin_begin(shared, b, c);
        body(b, c);
        if (twin_end()) fputs(twin_faults(), f), fflush(f);
        _exit(0);
      }
  while (wait(&status) > 0) CHECK(status == 0);
  twin_begin(NULL, 0, 0);
  twin_left(shared);
  rewind(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = 0;
  strncat(text, twin_faults(), sizeof text - n - 1);
  fclose(f);
  return text;
}

/* The cube core waits for both vector cores of its block, each of them for the cube core. */
static void both_ways(int block, int core) {
  (void)block;
  if (core) twin_cross_set(TW_MTE3, 2, 4);
  CHECK(twin_cross_wait(core ? 5 : 4) && !wrong);
  if (!core) twin_cross_set(TW_FIX, 2, 5);
}

static void one_of_two(int block, int core) {
  if (core == TW_VECTOR0) twin_cross_set(TW_MTE3, 2, 4);
  if (core == TW_CUBE) CHECK(!twin_cross_wait(4));
  (void)block;
}

static void waits_for_ever(int block, int core) {
  (void)block;
  (void)core;
  twin_cross_wait(7);
}

static void sets_too_often(int block, int core) {
  for (int i = 0; i < 16 && !block && core == TW_CUBE; i++) twin_cross_set(TW_FIX, 2, 1);
}

static void not_there(int block, int core) {
  (void)block;
  if (core == TW_CUBE) twin_cross_set(TW_FIX, 1, 3); /* mode 1 is for vector cores */
}

static void between_cores(void) {
  CHECK(!*run_cores(3, all_cores, both_ways));
  const char *said = run_cores(1, all_cores, one_of_two);
  CHECK(strstr(said, "the cube core of block 0 waits for flag #4") && strstr(said, "deadlock"));
  said = run_cores(2, all_cores, waits_for_ever);
  CHECK(strstr(said, "vector core 1 of block 1 waits for flag #7"));
  CHECK(strstr(run_cores(1, all_cores, sets_too_often), "more than 15 times"));
  CHECK(strstr(run_cores(1, all_cores, sets_too_often), "flag #1 between cores is left set for vector core 0"));
  CHECK(strstr(run_cores(1, all_cores, not_there), "no flag #3 of mode 1"));
}

/* Every vector core writes its element, all meet, every one reads its neighbour's. mode: of the meeting, -1 none. */
static int meeting = -1, cores_that_meet;
static void neighbours(int block, int core) {
  int me = block * 2 + core - 1, other = (me + 1) % cores_that_meet;
  twin_issue(TW_MTE3);
  twin_touch(TW_MTE3, ws + me * 8, 32, TW_WRITE);
  if (meeting >= 0) twin_cross_set(TW_MTE3, meeting, 14), twin_cross_wait(14);
  twin_issue(TW_MTE2);
  twin_touch(TW_MTE2, ws + other * 8, 32, TW_READ);
}

/* The flag is set by a pipe that does not know the write to be done. */
static void wrong_pipe(int block, int core) {
  (void)block;
  if (core == TW_CUBE) {
    twin_issue(TW_FIX);
    twin_touch(TW_FIX, ws, 32, TW_WRITE);
    twin_cross_set(TW_MTE2, 2, 1);
    return;
  }
  twin_cross_wait(1);
  twin_issue(TW_MTE2);
  twin_touch(TW_MTE2, ws, 32, TW_READ);
}

static void adders(int block, int core) {
  twin_issue(TW_MTE3);
  twin_touch(TW_MTE3, ws, 32, TW_ACCUMULATE);
  if (block == 1 && core == TW_VECTOR1 && meeting) twin_touch(TW_MTE3, ws + 1, 4, TW_WRITE);
}

static float written_by[2];
static void same_place(int block, int core) {
  (void)block;
  for (int i = 0; i < 8; i++) a[i] = written_by[core - 1];
  twin_ub_gm((void *)(uintptr_t)ws, a, 1, 32, 0, 0, -1);
}

static void beyond(int block, int core) {
  if (!block && core == TW_VECTOR0) twin_touch(TW_MTE2, ws + 60, 32, TW_READ);
}

static void order_between_cores(void) {
  static const bool vectors[TW_CORES] = {false, true, true};
  ws = seen_by_all(64 * 4 + 4096);
  void *shadow = seen_by_all(twin_shadow_bytes(64 * 4, 4));
#define FRESH memset(shadow, 0, twin_shadow_bytes(64 * 4, 4))
  twin_tensor("ws", ws, 64 * 4, 4096, 4, shadow);
  meeting = 0, cores_that_meet = 4;
  CHECK(!*run_cores(2, vectors, neighbours)); /* all vector cores */
  FRESH;
  meeting = 1, cores_that_meet = 2;
  CHECK(!*run_cores(1, vectors, neighbours)); /* the two of a block */
  FRESH;
  cores_that_meet = 4;
  CHECK(strstr(run_cores(2, vectors, neighbours), "nothing orders the two")); /* a pair is not all */
  FRESH;
  meeting = -1;
  CHECK(strstr(run_cores(2, vectors, neighbours), "ws at element "));
  FRESH;
  CHECK(strstr(run_cores(1, all_cores, wrong_pipe), "the cube core of block 0, pipe FIX, wrote it"));
  FRESH;
  meeting = 0;
  CHECK(!*run_cores(2, vectors, adders));
  FRESH;
  meeting = 1;
  CHECK(strstr(run_cores(2, vectors, adders), "added to it") || strstr(run_cores(2, vectors, adders), "adds to ws"));
  FRESH;
  written_by[0] = written_by[1] = 3;
  CHECK(!*run_cores(1, vectors, same_place)); /* the same values */
  FRESH;
  written_by[1] = 4;
  CHECK(strstr(run_cores(1, vectors, same_place), "writes ws at element 0"));
  FRESH;
  CHECK(strstr(run_cores(1, vectors, beyond), "works on bytes 240 to 272 of ws, which has 256"));
}

static void memories(void) {
  static _Alignas(64) char ub[1024], l1[1024];
  twin_begin(NULL, 0, 0);
  twin_memory(TW_UB, ub, sizeof ub);
  twin_memory(TW_L1, l1, sizeof l1);
  twin_vector(TW_EXP, TW_F32, ub, ub + 512, NULL, NULL, 1, dense);
  CHECK(twin_end() == 0);
  twin_vector(TW_EXP, TW_F32, ub, ub + 16, NULL, NULL, 1, dense);
  CHECK(strstr(twin_faults(), "byte 16 of UB does not stand on 32 bytes"));
  twin_begin(NULL, 0, 0);
  twin_memory(TW_UB, ub, sizeof ub);
  twin_memory(TW_L1, l1, sizeof l1);
  twin_vector(TW_EXP, TW_F32, l1, ub, NULL, NULL, 1, dense);
  CHECK(strstr(twin_faults(), "pipe V writes L1, which it cannot"));
  twin_begin(NULL, 0, 0);
  twin_memory(TW_UB, ub, sizeof ub);
  twin_touch(TW_V, ub + 1000, 32, TW_READ);
  CHECK(strstr(twin_faults(), "bytes 1000 to 1032 of UB, which has 1024"));
  twin_touch(TW_MTE2, a, 4, TW_READ);
  CHECK(strstr(twin_faults(), "outside every tensor"));
  twin_begin(NULL, 0, 0);
  twin_mad(TW_F16, c, h, g, 0, 16, 16, true, false);
  CHECK(strstr(twin_faults(), "mmad: m is 0, it may be 1 to 4095"));
}

static void vector(void) {
  numbers();
  twin_begin(NULL, 0, 0);
  twin_mask_count();
  twin_mask(0, 100);
  twin_vector(TW_ADD, TW_F32, c, a, b, NULL, 1, dense);
  for (int i = 0; i < 128; i++) CHECK(c[i] == (i < 100 ? a[i] + b[i] : -7));
  twin_mask_norm();
  twin_mask(0, 0xff); /* 8 lanes a repeat, rows of 16, one block of b for all rows */
  numbers();
  twin_vector(TW_MUL, TW_F32, c, a, b, NULL, 3, (TwinSteps){1, 1, 0, 2, 2, 0});
  for (int r = 0; r < 3; r++)
    for (int i = 0; i < 16; i++) CHECK(c[r * 16 + i] == (i < 8 ? a[r * 16 + i] * b[i] : -7));
  float two = 2;
  int32_t four = 4;
  twin_vector(TW_DUP, TW_F32, c, NULL, NULL, &two, 1, dense);
  CHECK(c[0] == 2 && c[7] == 2 && c[8] == -7);
  int16_t *x = (int16_t *)(void *)h;
  for (int i = 0; i < 128; i++) x[i] = (int16_t)(i - 64);
  twin_mask(UINT64_MAX, UINT64_MAX);
  twin_vector(TW_SHR, TW_I16, g, h, NULL, &four, 1, dense);
  for (int i = 0; i < 128; i++) CHECK(((int16_t *)(void *)g)[i] == (i - 64) >> 4);
}

static void casts(void) {
  static const struct { TwinRound mode; float want[5]; } cases[] = {
      {TW_RINT, {2, -2, 2, 4, -3}}, {TW_ROUND, {2, -2, 3, 4, -3}}, {TW_FLOOR, {1, -2, 2, 3, -3}},
      {TW_CEIL, {2, -1, 3, 4, -2}}, {TW_TRUNC, {1, -1, 2, 3, -2}}};
  static const float in[5] = {1.5f, -1.5f, 2.5f, 3.5f, -2.75f};
  int32_t *out = (int32_t *)(void *)c;
  twin_begin(NULL, 0, 0);
  twin_mask_count();
  twin_mask(0, 5);
  memcpy(a, in, sizeof in);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    twin_cast(TW_I32, TW_F32, cases[k].mode, c, a, 1, dense);
    for (int i = 0; i < 5; i++) CHECK(out[i] == (int32_t)cases[k].want[i]);
  }
  a[0] = 3e9f, a[1] = 1.0f + 0x1p-11f, a[2] = NAN;
  twin_cast(TW_I32, TW_F32, TW_RINT, c, a, 1, dense);
  CHECK(out[0] == INT32_MAX && out[2] == 0);
  twin_cast(TW_F16, TW_F32, TW_RINT, h, a, 1, dense);
  CHECK(h[1] == 0x3c00 && h[0] == 0x7c00);
  twin_cast(TW_F16, TW_F32, TW_ODD, h, a, 1, dense);
  CHECK(h[1] == 0x3c01);
}

/* f16 to int4 and back, two a byte; a product of int4. */
static void int4(void) {
  static const float in[6] = {1.5f, -2.5f, 9, -20, 7, -8};
  static const int want[6] = {2, -2, 7, -8, 7, -8};
  uint8_t *two = (uint8_t *)g;
  numbers();
  memset(g, 0, sizeof g);
  twin_begin(NULL, 0, 0);
  twin_mask_count();
  twin_mask(0, 6);
  for (int i = 0; i < 6; i++) h[i] = twin_half(in[i]);
  twin_cast4(true, TW_RINT, g, h, 1, dense);
  for (int i = 0; i < 6; i++) CHECK((two[i / 2] >> i % 2 * 4 & 15) == (want[i] & 15));
  CHECK(two[3] == 0);
  twin_barrier(TW_V);
  twin_cast4(false, TW_NONE, h, g, 1, dense);
  for (int i = 0; i < 6; i++) CHECK(twin_of_half(h[i]) == (float)want[i]);
  int32_t *out = (int32_t *)(void *)c;
  memset(a, 0x21, sizeof a); /* 1, 2, 1, 2 ... */
  memset(b, 0xf3, sizeof b); /* 3, -1 ... */
  twin_mad(TW_I4, c, a, b, 16, 80, 16, true, false);
  CHECK(out[0] == 40 * (3 - 2) && out[255] == 40 && twin_end() == 0);
}

static void masks(void) {
  numbers();
  twin_begin(NULL, 0, 0);
  twin_compare(TW_GT, TW_F32, bits, a, b, NULL, 2, dense);
  for (int i = 0; i < 128; i++) CHECK((bits[i / 8] >> i % 8 & 1) == (a[i] > b[i]));
  twin_barrier(TW_ALL);
  uint64_t at[2] = {(uint64_t)(uintptr_t)bits, 0};
  twin_set_cmpmask(at);
  twin_mask_count();
  twin_mask(0, 128);
  twin_select(TW_F32, c, a, b, 1, dense, 2);
  for (int i = 0; i < 128; i++) CHECK(c[i] == (a[i] > b[i] ? a[i] : b[i]));
}

static void rows_and_moves(void) {
  numbers();
  twin_begin(NULL, 0, 0);
  twin_row(TW_ROW_SUM, TW_F32, c, a, 2, 1, 1, 8, 2);
  double sum = 0;
  for (int i = 64; i < 128; i++) sum += a[i];
  CHECK(c[1] == sum);
  twin_barrier(TW_ALL);
  twin_row(TW_ROW_MAX, TW_F32, c, a, 1, 1, 1, 8, 0);
  CHECK(c[0] == 23 && ((uint32_t *)(void *)c)[1] == 63);
  twin_barrier(TW_ALL);
  twin_brcb(4, c, a, 1, 8, 1);
  for (int i = 0; i < 64; i++) CHECK(c[i] == a[i / 8]);
  uint32_t offset[64];
  for (int i = 0; i < 64; i++) offset[i] = (uint32_t)(63 - i) * 4;
  twin_barrier(TW_ALL);
  twin_gather(4, c, offset, (const uint8_t *)a, 8, 1);
  for (int i = 0; i < 64; i++) CHECK(c[i] == a[63 - i]);
  twin_barrier(TW_ALL);
  twin_mask_count();
  twin_mask(0, 64);
  CHECK(twin_take(4, c, a, NULL, 1, 2, 8, 8) == 32 && c[3] == a[7]);
  twin_barrier(TW_ALL);
  const void *from[16];
  void *to[16];
  for (int j = 0; j < 16; j++) from[j] = h + j * 16, to[j] = g + j * 16;
  for (int i = 0; i < 256; i++) h[i] = (uint16_t)i;
  twin_transpose(2, to, from, 1, 0, 0);
  CHECK(g[1] == 16 && g[17] == 17 && g[16 * 15] == 15);
}

static void sorting(void) {
  uint32_t index[32];
  struct { float score; uint32_t at; } *r = (void *)c;
  numbers();
  twin_begin(NULL, 0, 0);
  for (int i = 0; i < 32; i++) index[i] = (uint32_t)i, a[i] = (float)(i * 7 % 32);
  twin_sort32(TW_F32, c, a, index, 1);
  for (int i = 0; i < 32; i++) CHECK(r[i].score == 31 - i && (int)r[i].at * 7 % 32 == 31 - i);
  twin_barrier(TW_ALL);
  const void *list[4] = {c, c + 32};
  twin_merge(TW_F32, b, list, (const int[]){16, 16}, 2);
  CHECK(b[0] == 31 && b[2] == 30 && b[62] == 0);
}

static void product(void) {
  enum { M = 20, K = 40, N = 24 };
  static _Alignas(64) uint16_t gm_a[M * K], gm_b[K * N], l1_a[4096], l1_b[4096], l0_a[4096], l0_b[4096];
  static _Alignas(64) float acc[4096], out[M * N];
  for (int i = 0; i < M * K; i++) gm_a[i] = twin_half(i % 7 - 3);
  for (int i = 0; i < K * N; i++) gm_b[i] = twin_half(i % 5 - 2);
  twin_begin(NULL, 0, 0);
  twin_nd_nz(2, l1_a, gm_a, M, K, K, 32);
  twin_nd_nz(2, l1_b, gm_b, K, N, N, 48);
  twin_barrier(TW_ALL);
  for (int i = 0; i < 2; i++) twin_load(2, l0_a + i * 3 * 256, l1_a + i * 256, 0, 3, 2, 0, false);
  for (int i = 0; i < 3; i++) twin_load(2, l0_b + i * 2 * 256, l1_b + i * 256, 0, 2, 3, 0, true);
  twin_barrier(TW_ALL);
  twin_mad(TW_F16, acc, l0_a, l0_b, M, K, N, true, false);
  twin_barrier(TW_ALL);
  twin_fix(TW_F32, TW_F32, out, acc, N, M, N, 32, false, -1);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      int sum = 0;
      for (int k = 0; k < K; k++) sum += ((i * K + k) % 7 - 3) * ((k * N + j) % 5 - 2);
      CHECK(out[i * N + j] == (float)sum);
    }
  CHECK(twin_end() == 0);
}

/* A square of 8-bit elements turned into two fractals, some apart; boxes of 32-bit elements by the image load. */
static void turning_loads(void) {
  static _Alignas(64) int8_t l1[4096], l0[4096];
  static _Alignas(64) float plane[8 * 48], box[4096];
  for (int i = 0; i < 2048; i++) l1[i] = (int8_t)(i * 7 % 251);
  twin_begin(NULL, 0, 0);
  twin_load_square(1, l0, l1, 0, 2, 1, 0, 1); /* fractal f of square r lands on r + 2 f */
  for (int r = 0; r < 2; r++)
    for (int n = 0; n < 32; n++)
      for (int k = 0; k < 32; k++)
        CHECK(l0[(r + n / 16 * 2) * 512 + n % 16 * 32 + k] == l1[r * 1024 + k * 32 + n]);
  for (int i = 0; i < 8 * 48; i++) plane[i] = (float)i; /* NZ, 24 rows x 16 columns */
  twin_image(true, box, plane, 24, 8, 16, 8, 4, true); /* rows 4.., columns 8.. -> L0A [8, 16], zZ */
  for (int m = 0; m < 8; m++)
    for (int k = 0; k < 16; k++)
      CHECK(box[(k / 8 * 16 + m) * 8 + k % 8] == plane[(24 + 4 + k) * 8 + m]);
  twin_barrier(TW_ALL);
  twin_image(false, box, plane, 24, 16, 16, 0, 4, false); /* -> L0B [16, 16], Zn */
  for (int k = 0; k < 16; k++)
    for (int n = 0; n < 16; n++)
      CHECK(box[(k / 8 * 16 + n) * 8 + k % 8] == plane[(n / 8 * 24 + 4 + k) * 8 + n % 8]);
  CHECK(twin_end() == 0);
  twin_image(false, box, plane, 24, 16, 16, 0, 4, true);
  CHECK(strstr(twin_faults(), "is not modelled"));
}

static void dma(void) {
  numbers();
  twin_begin(NULL, 0, 0);
  float pad = -1;
  uint64_t pad_bits = 0;
  memcpy(&pad_bits, &pad, 4);
  twin_gm_ub(4, c, a, 2, 20, 12, 1, 3, pad_bits); /* rows of 5 of 8, in UB two blocks apart */
  CHECK(c[4] == a[4] && c[5] == -1 && c[7] == -1 && c[16] == a[8] && c[8] == -7);
  twin_barrier(TW_ALL);
  twin_ub_gm(b, c, 2, 20, 1, 0, TW_F32);
  CHECK(b[0] == 1 + a[0] && b[5] == 6 + a[8]);
  twin_not_modelled("vthing");
  CHECK(twin_end() == 1 && strstr(twin_faults(), "vthing is not modelled"));
}

int main(void) {
  numbers_of_halves();
  order();
  flags();
  between_cores();
  order_between_cores();
  memories();
  vector();
  casts();
  int4();
  masks();
  rows_and_moves();
  sorting();
  product();
  turning_loads();
  dma();
  return wrong != 0;
}
