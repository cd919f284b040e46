"""The kinds of reports about functions made of several steps: rounded to the tile's dtype once."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name, want", [
    ("exp2", np.exp2), ("log2", lambda x: np.log2(abs(x))), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))
])  # fmt: skip
def test_functions_of_halves_are_rounded_once(dtype, name, want):
    of = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.linspace(-14, 14, 132).reshape(4, 33).astype(of)

    @T.prim_func
    def f(X: T.Tensor((4, 33), dtype), O: T.Tensor((4, 33), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((4, 33), dtype)
            T.copy(X, x)
            for i, j in T.Parallel(4, 33):
                x[i, j] = getattr(T, name)(T.abs(x[i, j]) if name == "log2" else x[i, j])
            T.copy(x, O)

    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want(x.astype(np.float64)).astype(of))


@pytest.mark.parametrize("chip", ["910B2", "950"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.filterwarnings("ignore")
def test_arithmetic_of_8_bit_floats(chip, dtype):
    """tile-ai/tilelang#2635 and its like: computed in float32, rounded once."""
    of = getattr(ml_dtypes, dtype)
    rng = np.random.default_rng(0)
    a, b = ((rng.integers(-12, 13, (3, 13)) / 4 + d).astype(of) for d in (0, 0.125))

    @T.prim_func
    def f(A: T.Tensor((3, 13), dtype), B: T.Tensor((3, 13), dtype), C: T.Tensor((3, 13), dtype),
          D: T.Tensor((3, 13), dtype)):  # fmt: skip
        with T.Kernel(1) as bx:
            a = T.alloc_shared((3, 13), dtype)
            b = T.alloc_shared((3, 13), dtype)
            c = T.alloc_shared((3, 13), dtype)
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(3, 13):
                c[i, j] = T.if_then_else(a[i, j] < b[i, j], a[i, j] * b[i, j] + 1.5, T.exp(a[i, j]))
            for i, j in T.Parallel(3, 13):
                b[i, j] = T.max(T.abs(a[i, j]), b[i, j])
            T.copy(c, C)
            T.copy(b, D)

    kernel = tilelang.compile(f, out_idx=[2, 3], chip=chip)
    c, d = kernel(a, b)
    assert np.array_equal(d, np.maximum(abs(a), b))
    inside = [np.asarray(x).astype(np.float32) for x in kernel.interpret(a, b)]
    assert np.array_equal(c.astype(np.float32), inside[0]) and np.array_equal(d.astype(np.float32), inside[1])
    x, y = a.astype(np.float64), b.astype(np.float64)
    sums = (x * y).astype(of).astype(np.float64) + 1.5
    assert np.array_equal(c, np.where(x < y, sums, np.exp(x)).astype(of))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_quotient_that_is_rounded_to_a_whole_number_is_not_an_ulp_off(dtype):
    """41 // 41 is 1, and so is the whole part of 41 / 41; the product with the reciprocal is less."""
    of = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)

    @T.prim_func
    def f(A: T.Tensor((64,), dtype), S: T.Tensor((1,), dtype), O: T.Tensor((4, 64), dtype)):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64,), dtype)
            s = T.alloc_shared((1,), dtype)
            o = T.alloc_shared((4, 64), dtype)
            T.copy(A, a)
            T.copy(S, s)
            for i in T.Parallel(64):
                o[0, i] = a[i] // 41.0
            for i in T.Parallel(64):
                o[1, i] = a[i] // s[0]
            for i in T.Parallel(64):
                o[2, i] = T.floor(a[i] / 41.0)
            for i in T.Parallel(64):
                o[3, i] = T.cast(T.cast(a[i] / s[0], "int32"), dtype)
            T.copy(o, O)

    a = (np.arange(64) * 41).astype(of)
    got = tilelang.compile(f, out_idx=-1)(a, np.array([41]).astype(of)).astype(np.float64)
    exact = a.astype(np.float64) / 41
    assert np.array_equal(got[0], np.floor(exact).astype(of)) and np.array_equal(got[1], got[0])
    once = np.floor(exact.astype(of).astype(np.float64))  # what is rounded to the dtype first
    assert np.array_equal(got[2], once) and np.array_equal(got[3], once)
