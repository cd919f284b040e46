"""Loops of T.Parallel that must not become scalar loops: conditions on the indices, places before the start of a
tensor, columns, shifts, truth values, divisions. Compared with numpy; a warning of a scalar loop is an error."""

import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T

rng = np.random.default_rng(23)


def run(kernel, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kernel()(*args)


def small(*shape, dtype="float32"):
    return rng.integers(-8, 9, shape).astype(dtype)


@tilelang.jit(out_idx=[-1])
def groups():
    """Rows of a group, whose first one and number are known at run time."""

    @T.prim_func
    def main(X: T.Tensor((80, 48), "float32"), at: T.Tensor((5,), "int32"), Y: T.Tensor((80, 48), "float16")):
        with T.Kernel(4) as g:
            x = T.alloc_shared((32, 48), "float32")
            start, n = T.alloc_var("int32"), T.alloc_var("int32")
            start = at[g]
            n = at[g + 1] - start
            T.copy(X[start : start + 32, :], x)
            for i, j in T.Parallel(32, 48):
                if i < n:
                    Y[start + i, j] = x[i, j] * 2

    return main


def test_a_store_under_a_bound_known_at_run_time():
    x, at = small(80, 48), np.array([0, 30, 30, 49, 80], np.int32)
    assert np.array_equal(run(groups, x, at), (2 * x).astype(np.float16))


@tilelang.jit
def between():
    @T.prim_func
    def main(X: T.Tensor((32, 32), "float32"), lo: T.int32, hi: T.int32, Y: T.Tensor((32, 32), "float32")):
        with T.Kernel(1) as _:
            x = T.alloc_shared((32, 32), "float32")
            T.copy(X, x)
            for i, j in T.Parallel(32, 32):
                if i >= lo:
                    if (i <= hi) and (hi > 0):
                        Y[i, j] = x[i, j] + 1

    return main


@pytest.mark.parametrize("lo, hi", [(0, 31), (5, 9), (9, 5), (-3, 40), (31, 31), (2, 0)])
def test_rows_between_two_bounds(lo, hi):
    x, y = small(32, 32), np.zeros((32, 32), np.float32)
    rows = (np.arange(32) >= lo) & (np.arange(32) <= hi) & (hi > 0)
    run(between, x, lo, hi, y)
    assert np.array_equal(y, np.where(rows[:, None], x + 1, 0))


@tilelang.jit(out_idx=[-1])
def columns(dtype):
    @T.prim_func
    def main(X: T.Tensor((40, 3), dtype), Y: T.Tensor((40, 3), dtype)):
        with T.Kernel(2) as b:
            x = T.alloc_shared((32,), dtype)
            for c in T.serial(3):
                for i in T.Parallel(32):
                    x[i] = X[b * 32 + i, c]
                for i in T.Parallel(32):
                    if b * 32 + i < 40:
                        Y[b * 32 + i, 2 - c] = x[i]

    return main


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_columns_of_tensors(dtype):
    x = small(40, 3, dtype=dtype)
    assert np.array_equal(run(lambda: columns(dtype), x), x[:, ::-1])


@tilelang.jit(out_idx=[-1])
def convolution(H, W, C, F):
    @T.prim_func
    def main(X: T.Tensor((H, W, C), "float16"), K: T.Tensor((3, 3, C, F), "float16"),
             Y: T.Tensor((H, W, F), "float32")):  # fmt: skip
        with T.Kernel(H) as h:
            x, k = T.alloc_shared((16, C), "float16"), T.alloc_shared((C, F), "float16")
            y = T.alloc_fragment((16, F), "float32")
            T.clear(y)
            for r in T.serial(3):
                for s in T.serial(3):
                    for i, c in T.Parallel(16, C):
                        inside = (h + r >= 1) and (h + r - 1 < H) and (i + s >= 1) and (i + s - 1 < W)
                        x[i, c] = T.if_then_else(inside, X[h + r - 1, i + s - 1, c], 0)
                    T.copy(K[r, s, 0, 0], k)
                    T.gemm(x, k, y)
            for i, f in T.Parallel(16, F):
                if i < W:
                    Y[h, i, f] = y[i, f]

    return main


def test_pixels_before_the_first_are_zero():
    x, k = small(5, 12, 16, dtype="float16"), small(3, 3, 16, 32, dtype="float16")
    wide = np.pad(x.astype(np.float32), ((1, 1), (1, 1), (0, 0)))
    want = sum(wide[r : r + 5, s : s + 12] @ k[r, s].astype(np.float32) for r in range(3) for s in range(3))
    assert np.array_equal(run(lambda: convolution(5, 12, 16, 32), x, k), want)


@tilelang.jit(out_idx=[-1])
def stencil(N, dtype):
    """Neighbours in both directions, zero outside: tiles start before the tensor and are read off by one."""

    @T.prim_func
    def main(X: T.Tensor((N, N), dtype), Y: T.Tensor((N, N), dtype)):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(N, 32)) as (by, bx):
            x, y = T.alloc_shared((34, 34), dtype), T.alloc_shared((32, 32), dtype)
            for i, j in T.Parallel(34, 34):
                r, c = by * 32 + i - 1, bx * 32 + j - 1
                x[i, j] = T.if_then_else((r >= 0) and (r < N) and (c >= 0) and (c < N), X[r, c], 0)
            for i, j in T.Parallel(32, 32):
                y[i, j] = x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2] - 4 * x[i + 1, j + 1]
            T.copy(y, Y[by * 32, bx * 32])

    return main


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_tiles_with_a_halo(dtype):
    x = small(50, 50, dtype=dtype)
    w = np.pad(x, 1)
    want = w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:] - 4 * x
    assert np.array_equal(run(lambda: stencil(50, dtype), x), want)


@tilelang.jit(out_idx=[-1])
def masked():
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float16"), M: T.Tensor((32, 64), "bool"), Y: T.Tensor((32, 64), "float16")):
        with T.Kernel(1) as _:
            x, m = T.alloc_shared((32, 64), "float16"), T.alloc_shared((32, 64), "bool")
            T.copy(X, x)
            T.copy(M, m)
            for i, j in T.Parallel(32, 64):
                x[i, j] = T.if_then_else(m[i, j], x[i, j], T.cast(-1, "float16"))
            T.copy(x, Y)

    return main


def test_truth_values_of_a_tile():
    x, m = small(32, 64, dtype="float16"), rng.random((32, 64)) > 0.5
    assert np.array_equal(run(masked, x, m), np.where(m, x, np.float16(-1)))


@tilelang.jit(out_idx=[-2, -1])
def divided(by):
    @T.prim_func
    def main(X: T.Tensor((8, 64), "int32"), Q: T.Tensor((8, 64), "int32"), R: T.Tensor((8, 64), "int32")):
        with T.Kernel(1) as _:
            x, q = T.alloc_shared((8, 64), "int32"), T.alloc_shared((8, 64), "int32")
            T.copy(X, x)
            for i, j in T.Parallel(8, 64):
                q[i, j] = x[i, j] // by
            for i, j in T.Parallel(8, 64):
                x[i, j] = x[i, j] % by
            T.copy(q, Q)
            T.copy(x, R)

    return main


@pytest.mark.parametrize("by", [3, 10, 641, 65537, 1000003, (1 << 20) - 1])
def test_whole_numbers_divided_by_a_constant(by):
    x = rng.integers(-(2**31), 2**31, (8, 64)).astype(np.int32)
    near = (np.arange(64, dtype=np.int64) - 32) * by
    x[0], x[1], x[2] = near, near - 1, near + 1
    x[3] = (2**31 - 1) // by * by - np.arange(64)
    x[4] = -(2**31) + np.arange(64)
    q, r = run(lambda: divided(by), x)
    assert np.array_equal(q, x // by) and np.array_equal(r, x % by)


@pytest.mark.parametrize("n", [3, 0, -2])
def test_an_index_that_stands_nowhere(n):
    """As many equal terms as the loop runs: none where its extent is negative."""

    @T.prim_func
    def f(n: T.int32, A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64,), "float32")
            c = T.alloc_shared((64,), "float32")
            T.copy(A, a)
            T.clear(c)
            for i, j in T.Parallel(64, n):
                c[i] += a[i]
            T.copy(c, C)

    a, c = np.arange(64, dtype=np.float32), np.full(64, 7, np.float32)
    tilelang.compile(f)(n, a, c)
    np.testing.assert_array_equal(c, max(n, 0) * a)
