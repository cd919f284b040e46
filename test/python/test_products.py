"""Matrix products of every dtype, either operand the other way round, sizes that divide by nothing: end to end.

The values are small enough for exact results: what is compared is equality.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.language.dtypes import numpy_dtype

rng = np.random.default_rng(11)


@tilelang.jit(out_idx=[-1])
def product(M, N, K, dtype, acc, out, trans_a, trans_b, block=32, step=32):
    a_shape, b_shape = ((K, M) if trans_a else (M, K)), ((N, K) if trans_b else (K, N))
    a_tile, b_tile = ((step, block) if trans_a else (block, step)), ((block, step) if trans_b else (step, block))

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a, b = T.alloc_shared(a_tile, dtype), T.alloc_shared(b_tile, dtype)
            c = T.alloc_fragment((block, block), acc)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, step), num_stages=2):
                if trans_a:
                    T.copy(A[k * step, by * block], a)
                else:
                    T.copy(A[by * block, k * step], a)
                if trans_b:
                    T.copy(B[bx * block, k * step], b)
                else:
                    T.copy(B[k * step, bx * block], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C[by * block, bx * block])

    return main


def values(shape, dtype):
    low, high = (-8, 8) if dtype == "int8" else (-4, 5)
    return rng.integers(low, high, shape).astype(numpy_dtype(dtype))


KINDS = [
    ("float16", "float32", "float32"),
    ("float16", "float32", "float16"),
    ("bfloat16", "float32", "bfloat16"),
    ("float32", "float32", "float32"),
    ("int8", "int32", "int32"),
    ("float8_e4m3fn", "float32", "float32"),
    ("float8_e5m2", "float32", "float16"),
]


@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype, acc, out", KINDS)
def test_products(dtype, acc, out, trans_a, trans_b):
    m, n, k = 45, 70, 83
    a, b = values((k, m) if trans_a else (m, k), dtype), values((n, k) if trans_b else (k, n), dtype)
    wide = "int32" if dtype == "int8" else "float32"
    want = (a.T if trans_a else a).astype(wide) @ (b.T if trans_b else b).astype(wide)
    got = product(m, n, k, dtype, acc, out, trans_a, trans_b)(a, b)
    np.testing.assert_array_equal(got.astype(wide), want.astype(numpy_dtype(out)).astype(wide))


@tilelang.jit(out_idx=[-1])
def four_bits(M, N, K, block=32, step=32):
    """int8 times int4: the weights lie two in a byte and are unpacked on the way."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "int8"), W: T.Tensor((N, K // 2), "uint8"), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block)) as (bx, by):
            a, w = T.alloc_shared((block, step), "int8"), T.alloc_shared((block, step // 2), "uint8")
            b = T.alloc_fragment((block, step), "int8")
            c = T.alloc_fragment((block, block), "int32")
            T.clear(c)
            for k in T.serial(T.ceildiv(K, step)):
                T.copy(A[by * block, k * step], a)
                T.copy(W[bx * block, k * step // 2], w)
                for i, j in T.Parallel(block, step):
                    low = T.reinterpret(T.int8, (w[i, j // 2] >> (T.cast(j % 2, T.uint8) * 4)) << 4)
                    b[i, j] = low >> 4
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * block, bx * block])

    return main


def test_int4_weights():
    m, n, k = 32, 64, 64
    a, w = values((m, k), "int8"), rng.integers(-8, 8, (n, k)).astype("int8")
    packed = ((w[:, ::2] & 15) | ((w[:, 1::2] & 15) << 4)).astype("uint8")
    np.testing.assert_array_equal(four_bits(m, n, k)(a, packed), a.astype("int32") @ w.astype("int32").T)
    with pytest.raises(tilelang.CompileError, match="T.uint4 is refused: of the elements smaller than a byte"):
        T.uint4


@tilelang.jit(out_idx=[-1])
def converted(src, dst, mode):
    @T.prim_func
    def main(X: T.Tensor((64,), src), Y: T.Tensor((64,), dst)):
        with T.Kernel(1):
            x, y = T.alloc_ub((64,), src), T.alloc_ub((64,), dst)
            T.copy(X, x)
            T.tile.cast(y, x, mode, 64)
            T.copy(y, Y)

    return main


ROUND = {
    "CAST_RINT": np.rint,
    "CAST_FLOOR": np.floor,
    "CAST_CEIL": np.ceil,
    "CAST_ROUND": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "CAST_TRUNC": np.trunc,
}


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("src, dst", [("float32", "int32"), ("float32", "int16"), ("float16", "int32")])
def test_rounding_modes(src, dst, mode):
    x = (np.arange(64) * 0.25 - 8).astype(src)
    np.testing.assert_array_equal(converted(src, dst, mode)(x), ROUND[mode](x.astype("float64")).astype(dst))


@pytest.mark.parametrize("mode", ["CAST_RINT", "CAST_FLOOR", "CAST_CEIL", "CAST_TRUNC"])
@pytest.mark.parametrize("dst", ["float16", "bfloat16"])
def test_rounding_to_shorter_floats(dst, mode):
    x = np.concatenate([rng.standard_normal(32), 1 + np.arange(32) * 2.0**-14]).astype("float32")
    y = converted("float32", dst, mode)(x).astype("float32")
    unit = np.exp2(np.floor(np.log2(np.abs(x))) - (10 if dst == "float16" else 7)).astype("float32")
    down, up = np.floor(x / unit) * unit, np.ceil(x / unit) * unit
    want = {"CAST_FLOOR": down, "CAST_CEIL": up, "CAST_TRUNC": np.where(x < 0, up, down)}.get(
        mode, x.astype(numpy_dtype(dst)).astype("float32")
    )
    normal = np.abs(x) > 2.0**-13
    np.testing.assert_array_equal(y[normal], want[normal])


@tilelang.jit(out_idx=[-1])
def sums_of_steps(epilogue):
    """C[b] = A[:, :32 n[b]] @ B[:32 n[b]], with n[b] only known at run time."""

    @T.prim_func
    def main(A: T.Tensor((32, 96), "float16"), B: T.Tensor((96, 32), "float16"), n: T.Tensor((3,), "int32"),
             C: T.Tensor((3, 32, 32), "float32")):  # fmt: skip
        with T.Kernel(3) as b:
            a, w = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(n[b], num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], w)
                T.gemm(a, w, c)
            if epilogue:
                for i, j in T.Parallel(32, 32):
                    c[i, j] = 2 * c[i, j] + 1
            T.copy(c, C[b, 0, 0])

    return main


@pytest.mark.parametrize("epilogue", [False, True])
def test_a_cleared_accumulator_without_a_product_is_zero(epilogue):
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((32, 96), (96, 32)))
    n = np.array([0, 3, 1], np.int32)
    want = np.stack([a[:, : 32 * x].astype(np.float32) @ b[: 32 * x].astype(np.float32) for x in n])
    got = sums_of_steps(epilogue)(a, b, n)
    assert np.array_equal(got, 2 * want + 1 if epilogue else want)


@tilelang.jit(out_idx=[-1])
def state_of_chunks():
    """O[t] = X[t] @ S, S += X[t]^T @ X[t]: the state is read before the first product into it."""

    @T.prim_func
    def main(X: T.Tensor((96, 32), "float16"), O: T.Tensor((96, 32), "float32")):  # noqa: E741
        with T.Kernel(1) as _:
            x, s16 = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
            s, o = T.alloc_fragment((32, 32), "float32"), T.alloc_fragment((32, 32), "float32")
            T.clear(s)
            for t in T.Pipelined(3, num_stages=2):
                T.copy(X[t * 32, 0], x)
                T.copy(s, s16)
                T.gemm(x, s16, o, clear_accum=True)
                T.gemm(x, x, s, transpose_A=True)
                T.copy(o, O[t * 32, 0])

    return main


def test_a_state_that_is_read_before_it_is_added_to():
    x = rng.integers(-2, 3, (96, 32)).astype(np.float16)
    s, want = np.zeros((32, 32), np.float32), []
    for t in range(3):
        tile = x[32 * t : 32 * t + 32].astype(np.float32)
        want.append(tile @ s)
        s = s + tile.T @ tile
    assert np.array_equal(state_of_chunks()(x), np.concatenate(want))


M, N, K = T.symbolic("M, N, K")


def of_any_size(then_vector):
    @T.prim_func
    def product(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 48)) as (bx, by):
            a = T.alloc_shared((48, 40), "float16")
            b = T.alloc_shared((32, 40), "float16")
            c = T.alloc_fragment((48, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 40), num_stages=2):
                T.copy(A[by * 48, k * 40], a)
                T.copy(B[bx * 32, k * 40], b)
                T.gemm(a, b, c, transpose_B=True)
            if then_vector:
                for i, j in T.Parallel(48, 32):
                    c[i, j] = T.max(c[i, j], 0.0) - 1.0
            T.copy(c, C[by * 48, bx * 32])

    return product


@pytest.mark.parametrize("m, n, k", [(5, 5, 0), (1, 1, 1), (49, 33, 41), (3, 100, 0), (0, 5, 5)])
def test_loops_over_a_size_that_may_be_nothing(m, n, k):
    """An accumulator that is cleared is zero where the loop of its products does not run."""
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-4, 5, (rows, k)).astype(np.float16) for rows in (m, n))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    for then_vector, w in ((False, want), (True, np.maximum(want, 0) - 1)):
        np.testing.assert_array_equal(tilelang.compile(of_any_size(then_vector), out_idx=[2])(a, b), w)


def test_an_inner_loop_that_does_not_run_at_first():
    """The first product of all is not that of the first iterations."""

    @T.prim_func
    def f(A: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1) as _:
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.clear(c)
            for i in T.serial(4):
                for _ in T.serial(i):
                    T.gemm(a, a, c)
            T.copy(c, C)

    a = np.random.default_rng(7).integers(-4, 5, (16, 16)).astype(np.float16)
    want = 6 * (a.astype(np.float32) @ a.astype(np.float32))
    np.testing.assert_array_equal(tilelang.compile(f, out_idx=[1])(a), want)
