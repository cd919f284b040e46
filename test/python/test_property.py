"""Random shapes and dtypes against numpy."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.language.dtypes import numpy_dtype

pytest.importorskip("tilelang._core")
hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
settings = hypothesis.settings(max_examples=25, deadline=None, database=None, derandomize=True)
hypothesis.settings.register_profile("tile", settings)

sizes = st.integers(1, 150)
dtypes = st.sampled_from(["float32", "float16", "bfloat16", "int32"])


def values(shape, dtype, seed):
    x = np.random.default_rng(seed).integers(-9, 10, shape)
    return x.astype(numpy_dtype(dtype))


@settings
@hypothesis.given(m=sizes, n=sizes, k=sizes, bm=st.sampled_from([16, 32, 64]), bk=st.sampled_from([16, 32, 48]))
def test_gemm(m, n, k, bm, bk):
    @T.prim_func
    def gemm(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, bm)) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, 64), "float16")
            c = T.alloc_fragment((bm, 64), "float32")
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * 64], b)
                T.gemm_v0(a, b, c, init=(ko == 0))
            T.copy(c, C[by * bm, bx * 64])

    a, b = values((m, k), "float16", 1), values((k, n), "float16", 2)
    c = tilelang.compile(gemm, out_idx=[-1])(a, b)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))  # small integers: exact


@settings
@hypothesis.given(m=sizes, n=sizes, bm=st.integers(1, 40), bn=st.sampled_from([8, 16, 33, 64, 100]), dtype=dtypes)
def test_elementwise(m, n, bm, bn, dtype):
    @T.prim_func
    def f(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm)) as (bx, by):
            a = T.alloc_shared((bm, bn), dtype)
            b = T.alloc_shared((bm, bn), dtype)
            T.copy(A[by * bm, bx * bn], a)
            T.copy(B[by * bm, bx * bn], b)
            for i, j in T.Parallel(bm, bn):
                a[i, j] = a[i, j] * b[i, j] - a[i, j]
            T.copy(a, C[by * bm, bx * bn])

    a, b = values((m, n), dtype, 1), values((m, n), dtype, 2)
    c = tilelang.compile(f, out_idx=[-1])(a, b)
    np.testing.assert_array_equal(c, a * b - a)


@settings
@hypothesis.given(m=st.integers(1, 60), n=sizes, op=st.sampled_from(["sum", "max", "min"]), dim=st.sampled_from([0, 1]))
def test_reduction(m, n, op, dim):
    size = (n, m)[dim]

    @T.prim_func
    def f(X: T.Tensor((m, n), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((m, n), "float32")
            y = T.alloc_shared((size,), "float32")
            T.copy(X, x)
            getattr(T, f"reduce_{op}")(x, y, dim=dim)
            T.copy(y, Y)

    x = values((m, n), "float32", 1)
    y = tilelang.compile(f, out_idx=[1])(x)
    np.testing.assert_array_equal(y, getattr(np, op)(x, axis=dim))


@settings
@hypothesis.given(rows=st.lists(st.integers(0, 200), min_size=1, max_size=5), dtype=dtypes)
def test_symbolic_rows(rows, dtype):
    M = T.symbolic("M")

    @T.prim_func
    def f(X: T.Tensor((M, 48), dtype), Y: T.Tensor((M, 48), dtype)):
        with T.Kernel(T.ceildiv(M, 16)) as bx:
            x = T.alloc_shared((16, 48), dtype)
            T.copy(X[bx * 16, 0], x)
            for i, j in T.Parallel(16, 48):
                x[i, j] = x[i, j] + x[i, j]
            T.copy(x, Y[bx * 16, 0])

    kernel = tilelang.compile(f, out_idx=[1])
    for m in rows:
        x = values((m, 48), dtype, m)
        np.testing.assert_array_equal(kernel(x), x + x)


@settings
@hypothesis.given(
    a=st.integers(-50, 50), b=st.integers(1, 20), c=st.integers(-9, 9), op=st.sampled_from(["//", "%", "min", "max"])
)
def test_integer_arithmetic_is_pythons(a, b, c, op):
    """What folds in Python and what the chip computes agree: floor division and remainder, signs included."""
    apply = {"//": lambda x, y: x // y, "%": lambda x, y: x % y, "min": T.min, "max": T.max}[op]

    @T.prim_func
    def f(x: T.int32, Y: T.Tensor((2,), "int32")):
        with T.Kernel(1) as bx:
            Y[0] = apply(x + c, b) * 2
            Y[1] = apply(a + c, b) * 2

    y = tilelang.compile(f, out_idx=[1])(a)
    assert y[0] == y[1] == apply(a + c, b) * 2
