/* glue.cpp - the names and types that the vendor's headers expect, on the model of twin.h.
 *
 * Compiled with the headers of the user's toolkit (8.1). Each intrinsic here is one that the headers call for the
 * Ascend C this project writes; a kernel that needs another one does not link, and the linker names it. The checks of
 * arguments that live in the vendor's library, not in its headers, are not made. */
#include "kernel_operator.h"

#include "twin.h"

int64_t block_idx;
int32_t g_coreType, g_taskRation = 2, sub_block_idx;

namespace {

template <typename T> constexpr TwinType type_of();
template <> constexpr TwinType type_of<half>() { return TW_F16; }
template <> constexpr TwinType type_of<bfloat16_t>() { return TW_BF16; }
template <> constexpr TwinType type_of<float>() { return TW_F32; }
template <> constexpr TwinType type_of<int8_t>() { return TW_I8; }
template <> constexpr TwinType type_of<uint8_t>() { return TW_U8; }
template <> constexpr TwinType type_of<int16_t>() { return TW_I16; }
template <> constexpr TwinType type_of<uint16_t>() { return TW_U16; }
template <> constexpr TwinType type_of<int32_t>() { return TW_I32; }
template <> constexpr TwinType type_of<uint32_t>() { return TW_U32; }
template <> constexpr TwinType type_of<int64_t>() { return TW_I64; }

uint64_t pad_value, taken;
int atomic_type = -1, image_rows;
void *va[8][8];
const uint8_t *gathered; /* the source of vgather: its 32-bit address is no address here */

int pipe_of(pipe_t p) { return p == PIPE_FIX ? TW_FIX : p == PIPE_ALL ? TW_ALL : (int)p; }

} // namespace

/* ---- what the toolkit's library holds ---- */
namespace AscendC {
const int32_t AIC_TYPE = 1, AIV_TYPE = 2;
bool g_isAtomic = false;
ProcessLock *ProcessLock::processLock = nullptr;
ProcessLock *ProcessLock::CreateLock()
{
  static char bytes[sizeof(ProcessLock)];
  return reinterpret_cast<ProcessLock *>(bytes);
}
int ProcessLock::Write() { return 0; }
int ProcessLock::Unlock() { return 0; }
void SetModelGatherbSrc0Tensor(uint64_t at, uint32_t) { gathered = reinterpret_cast<const uint8_t *>(at); }
namespace check {
#define PASSES(f, ...) bool f(__VA_ARGS__) { return true; }
PASSES(CheckFunBcBImpl, VecBroadCastApiParams &, uint32_t, const char *)
PASSES(CheckFunDupImpl, VecDupApiParams &, const char *)
PASSES(CheckFunDupImpl, VecDupApiParams &, uint64_t, const char *)
PASSES(CheckFunDupImplForMaskArray, VecDupApiParams &, const uint64_t *, const char *)
PASSES(CheckFunProposalImpl, VecProposalApiParams &, const char *)
PASSES(CheckFunReduceOtherImpl, VecReduceApiParams &, uint64_t, const char *)
PASSES(CheckFunReduceOtherWhlImpl, VecReduceWhlApiParams &, uint64_t, const char *)
PASSES(CheckFunVecBinaryScalarImpl, VecBinaryScalarApiParams &, const char *)
PASSES(CheckFunVecBinaryScalarImpl, VecBinaryScalarApiParams &, uint64_t, const char *)
PASSES(CheckFuncCopyImpl, CopyApiParams &, uint64_t, const char *)
PASSES(CheckFuncDataCopyPadImpl, DataCopyPadApiParams &, const char *)
PASSES(CheckFuncGatherImpl, VecGatherApiParams &, const char *)
PASSES(CheckFuncGatherImpl, VecGatherApiParams &, uint64_t, const char *)
PASSES(CheckFuncGatherbImpl, VecGatherApiParams &, uint32_t, const char *)
PASSES(CheckFuncInitConstValueImpl, CubeInitConstValueApiParams &, const char *)
PASSES(CheckFuncLoadData2dImpl, LoadData2dApiParams &, const char *)
PASSES(CheckFuncLoadData3dv2Impl, LoadData3dv2ApiParams &, const char *)
PASSES(CheckFuncMmadImpl, MmadApiParams &, const char *)
PASSES(CheckFuncVecBinaryCmpImpl, VecBinaryApiParams &, const char *)
PASSES(CheckFuncVecBinaryImpl, VecBinaryApiParams &, const char *)
PASSES(CheckFuncVecBinaryImpl, VecBinaryApiParams &, uint64_t, const char *)
PASSES(CheckFuncVecBinaryScalarCmpImpl, VecBinaryScalarApiParams &, const char *)
PASSES(CheckFuncVecGatherMaskImpl, VecGatherMaskApiParams &, uint32_t, const char *)
PASSES(CheckFuncVecSelectImpl, VecSelectApiParams &, const char *)
} // namespace check
} // namespace AscendC

void AscendCBufInit(uint8_t, uint8_t, uint8_t, uint64_t, uint64_t) {}
void AscendCBufAbsAddr(uint8_t hardware, uint64_t at, uint64_t bytes)
{
  using AscendC::Hardware;
  const struct { Hardware hardware; TwinMemory memory; } memories[] = {
      {Hardware::UB, TW_UB}, {Hardware::L1, TW_L1}, {Hardware::L0A, TW_L0A}, {Hardware::L0B, TW_L0B},
      {Hardware::L0C, TW_L0C}};
  for (auto m : memories)
    if (uint8_t(m.hardware) == hardware) twin_memory(m.memory, reinterpret_cast<void *>(at), bytes);
}
void AscendCQueCreate(uint8_t, uint8_t, uint8_t) {}
uint16_t float16::Fp16T::FloatToFp16(const float &v) const { return twin_half(v); }
uint16_t float16::Fp16T::Int32ToFp16(const int32_t &v) const { return twin_half(v); }
float16::Fp16T::operator float() const { return twin_of_half(val); }
float16::Fp16T &float16::Fp16T::operator=(const Fp16T &o)
{
  val = o.val;
  return *this;
}
uint16_t bfloat16::Bf16T::FloatToBf16(const float &v) const { return twin_bf16(v); }
bfloat16::Bf16T &bfloat16::Bf16T::operator=(const Bf16T &o)
{
  val = o.val;
  return *this;
}

/* ---- order, modes, registers ---- */
void set_flag(pipe_t p, pipe_t q, event_t id) { twin_set_flag(pipe_of(p), pipe_of(q), id); }
void wait_flag(pipe_t p, pipe_t q, event_t id) { twin_wait_flag(pipe_of(p), pipe_of(q), id); }
void pipe_barrier(pipe_t p) { twin_barrier(pipe_of(p)); }
void ffts_cross_core_sync(pipe_t p, uint64_t config) { twin_cross_set(pipe_of(p), config >> 4 & 3, config >> 8 & 15); }
void wait_flag_dev(int64_t id) { twin_cross_wait((int)id); }
void set_ffts_base_addr(uint64_t) {}
void set_mask_count() { twin_mask_count(); }
void set_mask_norm() { twin_mask_norm(); }
void set_vector_mask(uint64_t high, uint64_t low) { twin_mask(high, low); }
void set_cmpmask(void *bytes) { twin_set_cmpmask(bytes); }
void set_mov_pad_val(uint64_t v) { pad_value = v; }
void set_nd_para(uint64_t) {}
void set_atomic_none() { atomic_type = -1; }
void set_atomic_f32() { atomic_type = TW_F32; }
void set_atomic_f16() { atomic_type = TW_F16; }
void set_atomic_s32() { atomic_type = TW_I32; }
void set_atomic_s16() { atomic_type = TW_I16; }
void set_atomic_add() {}
void set_padding(uint64_t) {}
void set_l1_3d_size(uint64_t) {}
void set_quant_pre(uint64_t) {}
void dcci(void *, uint64_t, uint64_t) {}
int64_t get_rsvd_cnt() { return (int64_t)taken; }
uint64_t sbitset0(uint64_t x, int64_t bit) { return (x & ~((uint64_t)1 << bit)); }
uint64_t sbitset1(uint64_t x, int64_t bit) { return (x | (uint64_t)1 << bit); }
int64_t sff0(uint64_t x) { return ~x ? __builtin_ctzll(~x) : -1; }
int64_t conv_f322s32r(float v) { return (int64_t)__builtin_nearbyintf(v); }
int64_t conv_f322s32f(float v) { return (int64_t)__builtin_floorf(v); }
int64_t conv_f322s32c(float v) { return (int64_t)__builtin_ceilf(v); }

/* ---- vector ---- */
#define TYPES4(M, ...) M(half, __VA_ARGS__) M(float, __VA_ARGS__) M(int16_t, __VA_ARGS__) M(int32_t, __VA_ARGS__)
#define FLOATS(M, ...) M(half, __VA_ARGS__) M(float, __VA_ARGS__)
#define BINARY(T, name, op)                                                                                            \
  void name(T *d, T *a, T *b, uint8_t n, uint8_t db, uint8_t ab, uint8_t bb, uint8_t dr, uint8_t ar, uint8_t br)       \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, b, nullptr, n, {db, ab, bb, dr, ar, br});                                      \
  }
TYPES4(BINARY, vadd, TW_ADD)
TYPES4(BINARY, vsub, TW_SUB)
TYPES4(BINARY, vmul, TW_MUL)
TYPES4(BINARY, vmax, TW_MAX)
TYPES4(BINARY, vmin, TW_MIN)
FLOATS(BINARY, vdiv, TW_DIV)
FLOATS(BINARY, vmla, TW_MLA)
BINARY(int16_t, vand, TW_AND)
BINARY(uint16_t, vand, TW_AND)
BINARY(int16_t, vor, TW_OR)
BINARY(uint16_t, vor, TW_OR)
#define UNARY(T, name, op)                                                                                             \
  void name(T *d, T *a, uint8_t n, uint16_t db, uint16_t ab, uint8_t dr, uint8_t ar)                                   \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, nullptr, nullptr, n, {db, ab, 0, dr, ar, 0});                                  \
  }
FLOATS(UNARY, vabs, TW_ABS)
FLOATS(UNARY, vexp, TW_EXP)
FLOATS(UNARY, vln, TW_LN)
FLOATS(UNARY, vsqrt, TW_SQRT)
FLOATS(UNARY, vrsqrt, TW_RSQRT)
FLOATS(UNARY, vrec, TW_REC)
FLOATS(UNARY, vrelu, TW_RELU)
UNARY(int32_t, vrelu, TW_RELU)
UNARY(int16_t, vnot, TW_NOT)
UNARY(uint16_t, vnot, TW_NOT)
#define COPY(T, name, op)                                                                                              \
  void name(T *d, T *a, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar)                                 \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, nullptr, nullptr, n, {db, ab, 0, dr, ar, 0});                                  \
  }
COPY(uint16_t, vcopy, TW_COPY)
COPY(uint32_t, vcopy, TW_COPY)
#define SCALAR(T, name, op)                                                                                            \
  void name(T *d, T *a, T s, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar)                            \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                       \
  }
TYPES4(SCALAR, vadds, TW_ADD)
TYPES4(SCALAR, vmuls, TW_MUL)
FLOATS(SCALAR, vlrelu, TW_LRELU)
#define SCALAR_LIMIT(T, name, op)                                                                                      \
  void name(T *d, T *a, T s, uint8_t n, uint16_t db, uint16_t ab, uint8_t dr, uint8_t ar, bool, bool)                  \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                       \
  }
TYPES4(SCALAR_LIMIT, vmaxs, TW_MAX)
TYPES4(SCALAR_LIMIT, vmins, TW_MIN)
#define SCALAR_BYTE(T, name, op)                                                                                       \
  void name(T *d, T *a, T s, uint8_t n, uint16_t db, uint16_t ab, uint8_t dr, uint8_t ar)                              \
  {                                                                                                                    \
    twin_vector(op, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                       \
  }
FLOATS(SCALAR_BYTE, vaxpy, TW_AXPY)
#define SHIFT_LEFT(T)                                                                                                  \
  void vshl(T *d, T *a, uint32_t s, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar)                     \
  {                                                                                                                    \
    twin_vector(TW_SHL, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                   \
  }
#define SHIFT_RIGHT(T)                                                                                                 \
  void vshr(T *d, T *a, int32_t s, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar, bool)                \
  {                                                                                                                    \
    twin_vector(TW_SHR, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                   \
  }
SHIFT_LEFT(int16_t) SHIFT_LEFT(uint16_t) SHIFT_LEFT(int32_t) SHIFT_LEFT(uint32_t)
SHIFT_RIGHT(int16_t) SHIFT_RIGHT(int32_t)
#define FILL(T)                                                                                                        \
  void vector_dup(T *d, T s, uint8_t n, uint16_t db, uint16_t, uint8_t dr, uint8_t)                                    \
  {                                                                                                                    \
    twin_vector(TW_DUP, type_of<T>(), d, nullptr, nullptr, &s, n, {db, 0, 0, dr, 0, 0});                               \
  }
FILL(half) FILL(bfloat16_t) FILL(float) FILL(int16_t) FILL(uint16_t) FILL(int32_t) FILL(uint32_t)

/* vconv_<from>2<to><mode>; the width of the repeat steps differs from one to the other */
#define CONVERT(name, D, A, S, mode)                                                                                   \
  void name(D *d, A *a, uint8_t n, uint16_t db, uint16_t ab, S dr, S ar)                                               \
  {                                                                                                                    \
    twin_cast(type_of<D>(), type_of<A>(), mode, d, a, n, {db, ab, 0, dr, ar, 0});                                      \
  }
#define MODES(name, D, A, S)                                                                                           \
  CONVERT(name##r, D, A, S, TW_RINT) CONVERT(name##a, D, A, S, TW_ROUND) CONVERT(name##f, D, A, S, TW_FLOOR)           \
  CONVERT(name##c, D, A, S, TW_CEIL) CONVERT(name##z, D, A, S, TW_TRUNC)
#define BOTH(M, name, D, A, ...) M(name, D, A, uint8_t, ##__VA_ARGS__) M(name, D, A, uint16_t, ##__VA_ARGS__)
BOTH(MODES, vconv_f322bf16, bfloat16_t, float)
BOTH(MODES, vconv_f322f32, float, float)
BOTH(MODES, vconv_s322f32, float, int32_t)
BOTH(MODES, vconv_f322f16, half, float)
BOTH(MODES, vconv_s162f16, half, int16_t)
BOTH(MODES, vconv_f322s32, int32_t, float)
BOTH(MODES, vconv_f162s32, int32_t, half)
BOTH(MODES, vconv_f322s16, int16_t, float)
BOTH(MODES, vconv_f162s16, int16_t, half)
BOTH(MODES, vconv_f162s8, int8_t, half)
BOTH(MODES, vconv_f162u8, uint8_t, half)
BOTH(CONVERT, vconv_f322f16o, half, float, TW_ODD)
BOTH(CONVERT, vconv_f322f16, half, float, TW_RINT)
BOTH(CONVERT, vconv_bf162f32, float, bfloat16_t, TW_RINT)
BOTH(CONVERT, vconv_f162f32, float, half, TW_RINT)
BOTH(CONVERT, vconv_s322f32, float, int32_t, TW_RINT)
BOTH(CONVERT, vconv_s162f32, float, int16_t, TW_RINT)
BOTH(CONVERT, vconv_s162f16, half, int16_t, TW_RINT)
BOTH(CONVERT, vconv_s82f16, half, int8_t, TW_RINT)
BOTH(CONVERT, vconv_u82f16, half, uint8_t, TW_RINT)
BOTH(CONVERT, vconv_f162s8, int8_t, half, TW_RINT)
BOTH(CONVERT, vconv_f162u8, uint8_t, half, TW_RINT)
BOTH(CONVERT, vconv_s322s64, int64_t, int32_t, TW_RINT)
BOTH(CONVERT, vconv_s642s32, int32_t, int64_t, TW_RINT)
BOTH(CONVERT, vconv_s322s16, int16_t, int32_t, TW_RINT)

#define COMPARES(T, M) M(T, eq, TW_EQ) M(T, ne, TW_NE) M(T, lt, TW_LT) M(T, gt, TW_GT) M(T, ge, TW_GE) M(T, le, TW_LE)
#define COMPARE(T, how, code)                                                                                          \
  void vcmpv_##how(uint8_t *d, T *a, T *b, uint8_t n, uint8_t db, uint8_t ab, uint8_t bb, uint8_t dr, uint8_t ar,      \
                   uint8_t br)                                                                                         \
  {                                                                                                                    \
    twin_compare(code, type_of<T>(), d, a, b, nullptr, n, {db, ab, bb, dr, ar, br});                                   \
  }                                                                                                                    \
  void vcmpvs_##how(uint8_t *d, T *a, T s, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar)              \
  {                                                                                                                    \
    twin_compare(code, type_of<T>(), d, a, nullptr, &s, n, {db, ab, 0, dr, ar, 0});                                    \
  }
COMPARES(half, COMPARE)
COMPARES(float, COMPARE)
COMPARE(int32_t, eq, TW_EQ)
#define SELECTS(T)                                                                                                     \
  void vsel(T *d, T *a, T *b, uint8_t n, uint8_t db, uint8_t ab, uint8_t bb, uint8_t dr, uint8_t ar, uint8_t br)       \
  {                                                                                                                    \
    twin_select(type_of<T>(), d, a, b, n, {db, ab, bb, dr, ar, br}, 0);                                                \
  }                                                                                                                    \
  void vsel(T *d, T *a, T *b, uint8_t n, uint8_t db, uint8_t ab, uint8_t bb, uint8_t dr, uint8_t ar, uint8_t br,       \
            uint8_t mode)                                                                                              \
  {                                                                                                                    \
    twin_select(type_of<T>(), d, a, b, n, {db, ab, bb, dr, ar, br}, mode);                                             \
  }                                                                                                                    \
  void vsel(T *d, T *a, void *b, uint8_t n, uint8_t db, uint8_t ab, uint8_t bb, uint8_t dr, uint8_t ar, uint8_t br,    \
            uint8_t mode)                                                                                              \
  {                                                                                                                    \
    twin_select(type_of<T>(), d, a, b, n, {db, ab, bb, dr, ar, br}, mode);                                             \
  }
SELECTS(half) SELECTS(float)
#define ROWS(T)                                                                                                        \
  void vcadd(T *d, T *a, uint8_t n, uint16_t dr, uint16_t ab, uint16_t ar, bool)                                       \
  {                                                                                                                    \
    twin_row(TW_ROW_SUM, type_of<T>(), d, a, n, dr, ab, ar, 2);                                                        \
  }                                                                                                                    \
  void vcmax(T *d, T *a, uint8_t n, uint16_t dr, uint16_t ab, uint16_t ar, Order_t order)                              \
  {                                                                                                                    \
    twin_row(TW_ROW_MAX, type_of<T>(), d, a, n, dr, ab, ar, order);                                                    \
  }                                                                                                                    \
  void vcmin(T *d, T *a, uint8_t n, uint16_t dr, uint16_t ab, uint16_t ar, Order_t order)                              \
  {                                                                                                                    \
    twin_row(TW_ROW_MIN, type_of<T>(), d, a, n, dr, ab, ar, order);                                                    \
  }
ROWS(half) ROWS(float)
#define MOVED(T)                                                                                                       \
  void vbrcb(T *d, T *a, uint16_t block, uint16_t rep, uint8_t n) { twin_brcb(sizeof(T), d, a, block, rep, n); }       \
  void vgather(T *d, uint32_t *at, uint32_t, uint16_t dr, uint8_t n)                                              \
  {                                                                                                                    \
    twin_gather(sizeof(T), d, at, gathered, dr, n);                              \
  }                                                                                                                    \
  void vgatherb(T *d, uint32_t *at, uint32_t, uint16_t dr, uint8_t db, uint8_t n)                                 \
  {                                                                                                                    \
    twin_gatherb(sizeof(T), d, at, gathered, dr, db, n);                         \
  }                                                                                                                    \
  void vreducev2(T *d, T *a, T *b, uint16_t n, uint8_t, uint8_t pattern, uint16_t ar, uint8_t br)                      \
  {                                                                                                                    \
    taken = twin_take(sizeof(T), d, a, b, n, pattern, ar, br);                                                         \
  }
MOVED(uint16_t) MOVED(uint32_t)
#define RECORDS(T)                                                                                                     \
  void vbitsort(T *d, T *a, uint32_t *index, uint64_t config)                                                          \
  {                                                                                                                    \
    twin_sort32(type_of<T>(), d, a, index, (int)config);                                                              \
  }                                                                                                                    \
  void vmrgsort4(T *d, T **list, uint64_t count, uint64_t config)                                                      \
  {                                                                                                                    \
    const void *from[4];                                                                                               \
    int n[4], lists = __builtin_popcount(config >> 8 & 15);                                                            \
    for (int i = 0; i < lists; i++) from[i] = list[i], n[i] = (int)(count >> 16 * i & 0xffff);                         \
    twin_merge(type_of<T>(), d, from, n, lists);                                                                       \
  }
RECORDS(half) RECORDS(float)
void set_va_reg_sb(ub_addr8_t reg, uint64_t *at)
{
  for (int i = 0; i < 8; i++) va[reg][i] = reinterpret_cast<void *>(at[i]);
}
static void transposed(int size, ub_addr8_t d, ub_addr8_t a, uint8_t n, uint16_t dr, uint16_t ar)
{
  void *to[16], *from[16];
  for (int i = 0; i < 16; i++) to[i] = va[d + i / 8][i % 8], from[i] = va[a + i / 8][i % 8];
  twin_transpose(size, to, const_cast<const void *const *>(from), n, dr, ar);
}
void scatter_vnchwconv_b16(ub_addr8_t d, ub_addr8_t a, uint8_t n, uint16_t dr, uint16_t ar) { transposed(2, d, a, n, dr, ar); }
void scatter_vnchwconv_b32(ub_addr8_t d, ub_addr8_t a, uint8_t n, uint16_t dr, uint16_t ar) { transposed(4, d, a, n, dr, ar); }

void vconv_s42f16(half *d, void *a, uint8_t n, uint16_t db, uint16_t ab, uint8_t dr, uint8_t ar)
{
  twin_cast4(false, TW_NONE, d, a, n, {db, ab, 0, dr, ar, 0});
}
#define TO_INT4(mode, round)                                                                                           \
  void vconv_f162s4##mode(void *d, half *a, uint8_t n, uint16_t db, uint16_t ab, uint16_t dr, uint16_t ar)             \
  {                                                                                                                    \
    twin_cast4(true, round, d, a, n, {db, ab, 0, dr, ar, 0});                                                          \
  }
TO_INT4(, TW_NONE) TO_INT4(r, TW_RINT) TO_INT4(a, TW_ROUND) TO_INT4(f, TW_FLOOR) TO_INT4(c, TW_CEIL)
TO_INT4(z, TW_TRUNC)

/* ---- moves ---- */
#define GM_UB(bits)                                                                                                    \
  void copy_gm_to_ubuf_align_b##bits(void *d, void *s, uint8_t, uint16_t rows, uint32_t bytes, uint8_t, uint8_t pad,   \
                                     uint32_t gm_gap, uint32_t ub_gap)                                                 \
  {                                                                                                                    \
    twin_gm_ub(bits / 8, d, s, rows, bytes, gm_gap, ub_gap, pad, pad_value);                                           \
  }                                                                                                                    \
  void copy_ubuf_to_gm_align_b##bits(void *d, void *s, uint8_t, uint16_t rows, uint32_t bytes, uint8_t, uint8_t,       \
                                     uint32_t ub_gap, uint32_t gm_gap)                                                 \
  {                                                                                                                    \
    twin_ub_gm(d, s, rows, bytes, ub_gap, gm_gap, atomic_type);                                                        \
  }
GM_UB(8) GM_UB(16) GM_UB(32)
void copy_ubuf_to_gm(void *d, void *s, uint8_t, uint16_t rows, uint16_t blocks, uint16_t ub_gap, uint16_t gm_gap)
{
  twin_ub_gm(d, s, rows, blocks * 32, ub_gap, gm_gap * 32, atomic_type);
}
#define ND_NZ(T, name)                                                                                                 \
  void name(T *d, T *s, uint8_t, uint16_t, uint16_t rows, uint16_t cols, uint16_t, uint16_t pitch, uint16_t plane,     \
            uint16_t, uint16_t)                                                                                        \
  {                                                                                                                    \
    twin_nd_nz(sizeof(T), d, s, rows, cols, pitch, plane);                                                             \
  }
ND_NZ(half, copy_gm_to_cbuf_multi_nd2nz_b16)
ND_NZ(bfloat16_t, copy_gm_to_cbuf_multi_nd2nz_b16)
ND_NZ(float, copy_gm_to_cbuf_multi_nd2nz_b32s)
ND_NZ(int8_t, copy_gm_to_cbuf_multi_nd2nz_b8)
template <typename V> static uint64_t bits_of(V v)
{
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &v, sizeof v);
  return bits;
}
#define L1_FILL(T, V, name)                                                                                            \
  void name(T *d, int64_t config, V v)                                                                                 \
  {                                                                                                                    \
    twin_fill_l1(sizeof(T), d, config & 0x7fff, config >> 16 & 0x7fff, config >> 32 & 0x7fff, bits_of(v));             \
  }
L1_FILL(half, half, create_cbuf_matrix)
L1_FILL(uint16_t, half, create_cbuf_matrix)
L1_FILL(float, uint32_t, create_cbuf_matrix)
L1_FILL(bfloat16_t, bfloat16_t, create_cbuf_matrix_bf16)
#define NOT_USED(T, V, a, b)                                                                                           \
  void a(T *, int64_t, V) { twin_not_modelled(#a); }                                                                   \
  void b(T *, int64_t, V) { twin_not_modelled(#b); }
NOT_USED(half, half, create_ca_matrix, create_cb_matrix)
NOT_USED(uint16_t, half, create_ca_matrix, create_cb_matrix)
NOT_USED(float, uint32_t, create_ca_matrix, create_cb_matrix)
NOT_USED(bfloat16_t, bfloat16_t, create_ca_matrix_bf16, create_cb_matrix_bf16)
#define LOAD(T, name, left)                                                                                            \
  void name(T *d, T *s, uint16_t first, uint8_t n, uint16_t step, uint16_t gap, uint8_t, bool turn, addr_cal_mode_t)   \
  {                                                                                                                    \
    twin_load(sizeof(T), d, s, first, n, step, gap, turn);                                                             \
  }
#define LOADS(T) LOAD(T, load_cbuf_to_ca, true) LOAD(T, load_cbuf_to_cb, false)
LOADS(half) LOADS(bfloat16_t) LOADS(float) LOADS(int8_t)
#define TURN(name)                                                                                                     \
  void name(int8_t *d, int8_t *s, uint16_t first, uint8_t n, uint16_t step, uint16_t gap, bool, uint16_t fractal_gap)  \
  {                                                                                                                    \
    twin_load_square(1, d, s, first, n, step, gap, fractal_gap);                                                       \
  }
TURN(load_cbuf_to_ca_transpose) TURN(load_cbuf_to_cb_transpose)
#define IMAGE(name, left)                                                                                              \
  void name(float *d, float *s, uint16_t cols, uint16_t rows, uint16_t col, uint16_t row, uint8_t step_w,              \
            uint8_t step_h, uint8_t w, uint8_t h, uint8_t, uint8_t, bool, bool, bool turn, bool, uint16_t)             \
  {                                                                                                                    \
    if (step_w != 1 || step_h != 1 || w != 1 || h != 1) twin_not_modelled(#name " with a filter");                     \
    twin_image(left, d, s, image_rows, cols, rows, col, row, turn);                                                    \
  }
IMAGE(img2colv2_cbuf_to_ca, true) IMAGE(img2colv2_cbuf_to_cb, false)
void set_fmatrix(uint64_t v) { image_rows = int(v & 0xffff) * int(v >> 16 & 0xffff); }

/* ---- cube ---- */
#define PRODUCT(C, T)                                                                                                  \
  void mad(C *c, T *a, T *b, uint16_t m, uint16_t k, uint16_t n, uint8_t, bool k_whole, bool, bool init)               \
  {                                                                                                                    \
    twin_mad(type_of<T>(), c, a, b, m, k, n, init, k_whole);                                                           \
  }
void mad_s4(int32_t *c, void *a, void *b, uint16_t m, uint16_t k, uint16_t n, uint8_t, bool, bool, bool init)
{
  twin_mad(TW_I4, c, a, b, m, k, n, init, false);
}
PRODUCT(float, half) PRODUCT(float, bfloat16_t) PRODUCT(float, float) PRODUCT(int32_t, int8_t)
#define FIX(D, C)                                                                                                      \
  void copy_matrix_cc_to_gm(D *d, C *c, uint8_t, uint16_t n, uint16_t m, uint32_t pitch, uint16_t plane, uint8_t,      \
                            QuantMode_t, uint8_t relu, bool, bool)                                                     \
  {                                                                                                                    \
    twin_fix(type_of<C>(), type_of<D>(), d, c, n, m, pitch, plane, relu != 0, atomic_type);                            \
  }
FIX(float, float) FIX(half, float) FIX(bfloat16_t, float) FIX(int32_t, int32_t)
#define FIX_L1(D)                                                                                                      \
  void copy_matrix_cc_to_cbuf(D *d, float *c, uint8_t, uint16_t n, uint16_t m, uint32_t to, uint16_t plane, uint8_t,   \
                              QuantMode_t, uint8_t relu, bool, bool)                                                   \
  {                                                                                                                    \
    twin_fix_l1(type_of<D>(), d, c, n, m, to, plane, relu != 0);                                                       \
  }
FIX_L1(half) FIX_L1(bfloat16_t)
