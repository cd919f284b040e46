"""kernel.numerics: overflow, underflow and NaN by statement; sums in too few bits."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

pytest.importorskip("tilelang._core")


def scaled(factor, dtype="float16"):
    @T.prim_func
    def f(A: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(2) as bx:
            a, b = T.alloc_shared((32,), dtype), T.alloc_shared((32,), dtype)
            T.copy(A[bx * 32], a)
            T.tile.mul(b, a, factor)
            for i in T.Parallel(32):
                b[i] = b[i] / factor
            T.copy(b, C[bx * 32])

    return tilelang.compile(f, out_idx=[1])


AT = scaled.__code__.co_firstlineno


def test_overflow_and_nan():
    a = np.full(64, 100, np.float16)
    a[40:] = 1
    found = scaled(1000.0).numerics(a)
    first = found.entries[0]
    assert (first.line, first.text, first.overflow, first.elements) == (AT + 6, "mul", 40, 64)
    assert first.where == "block (0)" and str(first.dtype) == "float16"
    assert "40 overflow to infinity of 64; first in block (0)" in str(found)
    assert not scaled(2.0).numerics(a)


def test_underflow():
    a = np.full(64, 1e-4, np.float16)
    a[:10] = 0
    found = scaled(1e-5).numerics(a).entries
    assert [(e.text, e.underflow) for e in found if e.underflow] == [("mul", 54)]


def test_assignments():
    @T.prim_func
    def f(A: T.Tensor((64,), "float16"), C: T.Tensor((64,), "float16")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64,), "float16")
            T.copy(A, a)
            for i in T.Parallel(64):
                a[i] = a[i] * a[i] + 1.0
            T.copy(a, C)

    found = tilelang.compile(f, out_idx=[1]).numerics(np.linspace(0, 300, 64).astype(np.float16))
    entry = found.entries[0]
    assert entry.text == "assignment" and entry.overflow == int((np.linspace(0, 300, 64) ** 2 > 65520).sum())


def test_a_sum_in_too_few_bits():
    @T.prim_func
    def f(A: T.Tensor((4, 256), "float16"), C: T.Tensor((256,), "float32")):
        with T.Kernel(1) as bx:
            a, c = T.alloc_shared((1, 256), "float16"), T.alloc_shared((1, 256), "float16")
            d = T.alloc_shared((1, 256), "float32")
            T.clear(c)
            for k in T.serial(4):
                T.copy(A[k, 0], a)
                T.tile.add(c, c, a)
            T.copy(c, d)
            T.copy(d, C[0:256])

    found = tilelang.compile(f, out_idx=[1]).numerics(np.ones((4, 256), np.float16))
    assert not found.entries
    assert "'c' keeps a sum in float16" in str(found) and "'d' in float32" in str(found) and "1/2048" in str(found)


def test_a_factor_that_is_read_when_the_kernel_runs():
    @T.prim_func
    def f(A: T.Tensor((16, 64), "float32"), C: T.Tensor((16, 64), "float32"), n: T.int32):
        with T.Kernel(1) as bx:
            a = T.alloc_ub((16, 64), "float32")
            T.copy(A, a)
            T.tile.mul(a, a, T.cast(n, "float32"))
            T.copy(a, C)

    kernel = tilelang.compile(f, out_idx=[1])
    assert not kernel.numerics(np.full((16, 64), 1e-30, np.float32), 0).entries  # nothing is lost of zero
    assert not kernel.numerics(np.full((16, 64), 1e-30, np.float32), 3).entries


def test_what_stands_outside_a_tensor_is_no_overflow():
    @T.prim_func
    def f(A: T.Tensor((10, 64), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_ub((16, 64), "float32")
            m = T.alloc_ub((16,), "float32")
            T.copy(A[0, 0], a, pad_value=-T.infinity("float32"))
            T.reduce_max(a, m, dim=1)
            T.copy(m, C)

    assert not tilelang.compile(f, out_idx=[1]).numerics(np.ones((10, 64), np.float32)).entries
