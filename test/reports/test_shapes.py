"""Reports about shapes, dtypes and counts that were accepted and then wrong."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import TileLangWarning


def test_R068_one_column_of_a_tensor(rng):
    @T.prim_func
    def f(X: T.Tensor((128, 128), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X[0:64, 10], x)
            T.tile.mul(x, x, 2.0)
            T.copy(x, Y)

    x = rng.standard_normal((128, 128), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), 2 * x[:64, 10])


def test_R069_a_run_along_another_axis(rng):
    @T.prim_func
    def f(X: T.Tensor((1, 64, 4), "float16"), Y: T.Tensor((4, 32), "float16")):
        with T.Kernel(4) as h:
            beta = T.alloc_ub((32,), "float16")
            T.copy(X[0, 16:48, h], beta)
            T.tile.add(beta, beta, beta)
            T.copy(beta, Y[h, :])

    x = rng.standard_normal((1, 64, 4)).astype(np.float16)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), 2 * x[0, 16:48].T)


def test_R070_three_axes_at_once(rng):
    @T.prim_func
    def f(X: T.Tensor((4, 8, 16), "float32"), Y: T.Tensor((2, 4, 8), "float32"), Z: T.Tensor((4, 8, 16), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((2, 4, 8), "float32")
            T.copy(X[1:3, 2:6, 8:16], x)
            T.copy(x, Y)
            T.copy(x, Z[0:2, 4:8, 0:8])

    x, z = rng.standard_normal((4, 8, 16), np.float32), np.zeros((4, 8, 16), np.float32)
    y = np.zeros((2, 4, 8), np.float32)
    tilelang.compile(f)(x, y, z)
    want = np.zeros_like(z)
    want[0:2, 4:8, 0:8] = x[1:3, 2:6, 8:16]
    assert np.array_equal(y, x[1:3, 2:6, 8:16]) and np.array_equal(z, want)


@pytest.mark.parametrize("elements", [False, True])
def test_R071_four_dimensions_as_slices_and_as_elements(rng, elements):
    @T.prim_func
    def f(Q: T.Tensor((2, 16, 4, 64), "float16"), Y: T.Tensor((8, 4, 64), "float16")):
        with T.Kernel(1) as bx:
            q = T.alloc_ub((8, 4, 64), "float16")
            if elements:
                for i, h, d in T.Parallel(8, 4, 64):
                    q[i, h, d] = Q[1, 8 + i, h, d]
            else:
                T.copy(Q[1, 8:16, :, :], q)
            T.copy(q, Y)

    q = rng.standard_normal((2, 16, 4, 64)).astype(np.float16)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(q), q[1, 8:16])


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_R072_round_of_every_dtype_and_count(rng, dtype):
    @T.prim_func
    def f(X: T.Tensor((64,), dtype), Y: T.Tensor((64,), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), dtype)
            y = T.alloc_ub((64,), dtype)
            T.copy(X, x)
            T.tile.fill(y, 7.0)
            T.tile.round(y, x, 10)
            T.copy(y, Y)

    x = (rng.standard_normal(64) * 10).astype(np.float32).astype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    want = np.full(64, 7, x.dtype)
    want[:10] = np.rint(x[:10].astype(np.float32)).astype(x.dtype)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


def test_R073_sort_of_many_and_counts(rng, fails):
    def sort(n, count, dtype="float32"):
        @T.prim_func
        def f(X: T.Tensor((n,), dtype), Y: T.Tensor((2 * n,), dtype)):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((n,), dtype)
                y = T.alloc_ub((2 * n,), dtype)
                T.copy(X, x)
                T.tile.fill(y, 0.0)
                T.tile.sort(y, x, count)
                T.copy(y, Y)

        return tilelang.compile(f, out_idx=-1)

    x = rng.permutation(4096).astype(np.float32)
    got = sort(4096, 4096)(x)
    assert np.array_equal(got[0::2], np.sort(x)[::-1])
    assert np.array_equal(got[1::2].astype(np.int64), np.argsort(-x))
    assert not np.isin(sort(64, 0)(x[64:128])[0::2], x[64:128]).any()  # nothing is sorted, nothing faults
    with pytest.warns(TileLangWarning, match="128.*64|64.*128"):
        sort(64, 128)


def test_R074_shift_of_int64_is_refused_or_right(rng):
    @T.prim_func
    def f(X: T.Tensor((64,), "int64"), Y: T.Tensor((64,), "int64")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "int64")
            T.copy(X, x)
            T.tile.bitwise_rshift(x, x, 1)
            T.copy(x, Y)

    x = rng.integers(-(2**40), 2**40, 64)
    try:
        kernel = tilelang.compile(f, out_idx=-1)
    except tilelang.CompileError as e:
        assert "i64" in str(e) and e.errors[0].line == f.where[1] + 4
    else:
        assert np.array_equal(kernel(x), x >> 1)


def test_R075_dtype_names_of_other_dialects():
    for name in ("bfloat16", "float16", "half", "float32", "float", "int8", "int32", "uint8", "bool", "float8_e4m3"):
        assert isinstance(getattr(T, name), T.dtype), name
    assert T.dtype("bf16") == T.bfloat16 and T.dtype("fp16") == T.float16
    with pytest.raises(AttributeError, match="did you mean T.bfloat16"):
        T.bfloat_16


def test_R076_one_bfloat16_value_as_a_factor(rng):
    @T.prim_func
    def f(S: T.Tensor((4,), "bfloat16"), X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.tile.mul(x, x, T.cast(S[2], "float32"))
            T.copy(x, Y)

    s, x = rng.standard_normal(4).astype(ml_dtypes.bfloat16), rng.standard_normal(64, np.float32)
    kernel = tilelang.compile(f, out_idx=-1)
    assert np.array_equal(kernel(s, x), x * np.float32(s[2]))
    for target in ("ascendc", "pto"):
        assert kernel.get_kernel_source(target)


@pytest.mark.parametrize("op, want", [("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or)])
@pytest.mark.parametrize("dtype", ["int16", "int32", "uint16"])
def test_R077_bit_operations_with_a_constant(rng, op, want, dtype):
    @T.prim_func
    def f(X: T.Tensor((4, 100), dtype), Y: T.Tensor((4, 100), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((4, 100), dtype)
            T.copy(X, x)
            getattr(T.tile, op)(x, x, 15)
            T.copy(x, Y)

    x = rng.integers(0, 30000, (4, 100)).astype(dtype)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want(x, np.array(15, dtype)))


def test_R078_topk_by_rows(rng, fails):
    def topk(rows):
        @T.prim_func
        def f(X: T.Tensor((rows, 64), "float32"), Y: T.Tensor((rows, 16), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((rows, 64), "float32")
                y = T.alloc_ub((rows, 16), "float32")
                T.copy(X, x)
                for r in T.serial(rows):
                    T.tile.topk(y[r, :], x[r, :], 8, 64)
                T.copy(y, Y)

        return tilelang.compile(f, out_idx=-1)

    x = rng.permutation(4 * 64).reshape(4, 64).astype(np.float32)
    got = topk(4)(x)
    assert np.array_equal(got[:, 0::2], -np.sort(-x, 1)[:, :8])


def test_R079_more_blocks_than_a_launch_takes(rng):
    @T.prim_func
    def f(X: T.Tensor((256, 256), "float32"), Y: T.Tensor((256, 256), "float32")):
        with T.Kernel(256, 256) as (bx, by):
            x = T.alloc_ub((1,), "float32")
            T.copy(X[by, bx : bx + 1], x)
            T.copy(x, Y[by, bx : bx + 1])

    x = rng.standard_normal((256, 256), np.float32)
    kernel = tilelang.compile(f, out_idx=-1, checks=False)
    assert np.array_equal(kernel(x), x) and kernel.last_run["blocks"] == 65536
    assert kernel.last_run["cores_used"] <= kernel.last_run["cores"]


@pytest.mark.parametrize("m, n, k", [(5, 256, 128), (8, 256, 128), (8, 5, 128), (16, 32, 100), (3, 5, 7)])
def test_R080_extents_that_are_no_multiple_of_sixteen(rng, agree, m, n, k):
    @T.prim_func
    def f(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (k, n)))
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)


@pytest.mark.parametrize("n", [1, 5, 64])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_R068_R069_columns_with_tails_conversions_planes_and_back(rng, n, dtype):
    m = T.symbolic("m")

    @T.prim_func
    def f(X: T.Tensor((m, 5, 6), dtype), Y: T.Tensor((6, 3, 64), "float32"), Z: T.Tensor((m, 7), dtype)):
        with T.Kernel(6) as k:
            x = T.alloc_ub((3, 64), "float32")
            h = T.alloc_ub((64,), dtype)
            two = T.alloc_ub((64, 2), dtype)
            T.copy(X[0:64, 1, k], x[0, :])
            T.copy(X[0:64, 1, k], h)
            T.copy(h, x[1, :])
            T.copy(X[0:64, 2:4, k], two)
            for i in T.Parallel(64):
                x[2, i] = T.cast(two[i, 0], "float32") + T.cast(two[i, 1], "float32")
            T.copy(x, Y[k, :, :])
            T.copy(h, Z[0:64, k])

    x = rng.integers(-4, 5, (n, 5, 6)).astype(dtype)
    y, z = np.zeros((6, 3, 64), np.float32), np.zeros((n, 7), dtype)
    tilelang.compile(f)(x, y, z)
    want = np.zeros_like(y)
    want[:, 0, :n] = want[:, 1, :n] = x[:, 1, :].T
    want[:, 2, :n] = (x[:, 2, :].astype(np.float32) + x[:, 3, :]).T
    assert np.array_equal(y, want)
    assert np.array_equal(z[:, :6], x[:, 1, :]) and (z[:, 6] == 0).all()
