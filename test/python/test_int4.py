"""int4: two values a byte, multiplied by the cube, converted to other dtypes and back by the vector unit."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

rng = np.random.default_rng(4)


def values(*shape):
    return rng.integers(-8, 8, shape).astype("int8")


def packed(x):
    return (x[..., ::2] & 15 | x[..., 1::2] << 4).astype("int8")


@tilelang.jit(out_idx=[-1])
def product(M, N, K, block_m, block_n, block_k):
    @T.prim_func
    def main(A: T.Tensor((M, K), T.int4), B: T.Tensor((N, K), "int4"), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m)) as (bx, by):
            a, b = T.alloc_shared((block_m, block_k), T.int4), T.alloc_shared((block_n, block_k), T.int4)
            c = T.alloc_fragment((block_m, block_n), T.int32)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_k), num_stages=2):
                T.copy(A[by * block_m, k * block_k], a)
                T.copy(B[bx * block_n, k * block_k], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * block_m, bx * block_n])

    return main


@pytest.mark.parametrize("sizes", [(64, 64, 128, 32, 32, 64), (50, 70, 190, 64, 32, 128), (16, 16, 8192, 16, 16, 8192)])
def test_products(sizes):
    m, n, k, *_ = sizes
    a, b = values(m, k), values(n, k)
    want = a.astype("int32") @ b.astype("int32").T
    kernel = product(*sizes)
    np.testing.assert_array_equal(kernel(packed(a), packed(b).view("uint8")), want)
    np.testing.assert_array_equal(kernel(a.astype(ml_dtypes.int4), packed(b)), want)


def test_any_k():
    K = T.symbolic("K")
    kernel = product(32, 32, K, 32, 32, 64)
    for k in (64, 200):
        a, b = values(32, k), values(32, k)
        np.testing.assert_array_equal(kernel(packed(a), packed(b)), a.astype("int32") @ b.astype("int32").T)


@tilelang.jit(out_idx=[1, 2])
def there_and_back(m, n, dtype, mode):
    @T.prim_func
    def main(X: T.Tensor((m, n), "int4"), Y: T.Tensor((m, n), dtype), Z: T.Tensor((m, n), "int4")):
        with T.Kernel(1):
            x, z, y = T.alloc_ub((m, n), "int4"), T.alloc_ub((m, n), "int4"), T.alloc_ub((m, n), dtype)
            T.copy(X, x)
            T.copy(x, y)
            T.copy(y, Y)
            for i, j in T.Parallel(m, n):
                y[i, j] = y[i, j] * (1.25 if y.dtype.is_float else 2)
            T.tile.cast(z, y, mode, m * n)
            T.copy(z, Z)

    return main


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32"])
@pytest.mark.parametrize("mode, rounded", [("CAST_RINT", np.rint), ("CAST_FLOOR", np.floor)])
def test_casts(dtype, mode, rounded):
    for m, n in ((8, 64), (3, 34)):
        x = values(m, n)
        y, z = there_and_back(m, n, dtype, mode)(packed(x))
        np.testing.assert_array_equal(y.astype("int8"), x)
        want = rounded(x * 1.25) if "float" in dtype else x * 2
        np.testing.assert_array_equal(z, packed(np.clip(want, -8, 7).astype("int8")))


@tilelang.jit(out_idx=[-1])
def weights(M, N, K):
    """float16 times int4 with a scale a row of the weights, which come as bytes."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), W: T.Tensor((N, K // 2), "uint8"), S: T.Tensor((N, 1), "float16"),
             C: T.Tensor((M, N), "float32")):  # fmt: skip
        with T.Kernel(1):
            a, w = T.alloc_shared((M, K), "float16"), T.alloc_ub((N, K // 2), "uint8")
            b, s = T.alloc_shared((N, K), "float16"), T.alloc_ub((N, 1), "float16")
            c = T.alloc_fragment((M, N), "float32")
            T.copy(A, a)
            T.copy(W, w)
            T.copy(S, s)
            T.copy(T.view(w, (N, K), "int4"), b)
            for i, j in T.Parallel(N, K):
                b[i, j] = b[i, j] * s[i, 0]
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return main


def test_weights():
    a, w, s = rng.integers(-4, 5, (32, 64)).astype("float16"), values(32, 64), rng.integers(1, 4, (32, 1))
    s = s.astype("float16")
    want = a.astype("float32") @ (w * s).astype("float32").T
    np.testing.assert_array_equal(weights(32, 32, 64)(a, packed(w).view("uint8"), s), want)


def refused(message, body):
    with pytest.raises(tilelang.CompileError, match=message):

        @T.prim_func
        def main(A: T.Tensor((32, 64), "int4"), B: T.Tensor((64, 32), "int4"), C: T.Tensor((32, 32), "int32")):
            with T.Kernel(1) as bx:
                a, b = T.alloc_shared((32, 64), "int4"), T.alloc_shared((64, 32), "int4")
                body(A, B, C, a, b, T.alloc_fragment((32, 32), "int32"), bx)

        tilelang.compile(main)


def test_refusals():
    def right_as_k_n(A, B, C, a, b, c, bx):
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, C)

    def variable(A, B, C, a, b, c, bx):
        x = T.alloc_var("int4", 3)
        C[0, 0] = x

    def element(A, B, C, a, b, c, bx):
        T.copy(A, a)
        C[0, 0] = a[0, 0]

    refused("the two must lie along k", right_as_k_n)
    refused("bx \\* 3 is an offset .* not known to be even", lambda A, B, C, a, b, c, bx: T.copy(A[0, bx * 3], a))
    refused("7 is a size .* it is odd", lambda A, B, C, a, b, c, bx: T.copy(A[0:1, 0:7], a[0:1, 0:7]))
    refused("an element of 'a' is accessed", element)
    refused("is a scalar of int4", variable)
    refused("is a scalar of int4", lambda A, B, C, a, b, c, bx: C.__setitem__((0, 0), T.cast(bx, "int4")))
    refused("convert in two steps", lambda A, B, C, a, b, c, bx: T.copy(A, T.alloc_ub((32, 64), "float16")))
    with pytest.raises(tilelang.CompileError, match="cube of 950 does not multiply int4"):
        tilelang.compile(product(32, 32, 64, 32, 32, 64).prim_func, chip="950", out_idx=-1)
    kernel = product(32, 32, 64, 32, 32, 64)
    with pytest.raises(tilelang.ArgumentError, match="'A' has dtype int16, wanted int4"):
        kernel(np.zeros((32, 64), "int16"), np.zeros((32, 32), "int8"))
    with pytest.raises(tilelang.ArgumentError, match=r"'A' has shape \(32, 32\), wanted \(32, 64\)"):
        kernel(np.zeros((32, 16), "int8"), np.zeros((32, 32), "int8"))


@pytest.mark.filterwarnings("ignore:.*interpreted from its IR text")
def test_the_debugging_tools_take_int4():
    a, b = values(50, 190), values(70, 190)
    kernel, given = product(50, 70, 190, 64, 32, 128), (packed(a), packed(b))
    want = a.astype("int32") @ b.astype("int32").T
    with pytest.warns(tilelang.errors.TileLangWarning, match="from its IR text: Python in it sees no values"):
        np.testing.assert_array_equal(kernel.interpret(*given), want)
    assert kernel.compare(*given, ref=want) and not kernel.bisect(*given) and not kernel.numerics(*given)
    for dtype in ("float16", "int8"):
        kernel, x = there_and_back(8, 64, dtype, "CAST_FLOOR"), packed(values(8, 64))
        for got, right in zip(kernel.interpret(x), kernel(x)):
            np.testing.assert_array_equal(got, right)
        assert kernel.compare(x) and not kernel.bisect(x)
    a, w, s = values(32, 64).astype("float16"), packed(values(32, 64)).view("uint8"), np.ones((32, 1), "float16")
    kernel = weights(32, 32, 64)
    np.testing.assert_array_equal(kernel.interpret(a, w, s), kernel(a, w, s))
    assert kernel.compare(a, w, s) and not kernel.bisect(a, w, s)
