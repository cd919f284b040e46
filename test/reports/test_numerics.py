"""Reports about wrong numbers: strides, layouts, transposes, loops, rounding."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import KernelFault
from tilelang.language.dtypes import numpy_dtype


@pytest.mark.parametrize("into_gm", [False, True])
def test_R030_row_slices_have_the_pitch_of_their_buffer(rng, into_gm):
    @T.prim_func
    def f(X: T.Tensor((16, 128), "float32"), Y: T.Tensor((16, 128), "float32")):
        with T.Kernel(16) as bx:
            x = T.alloc_ub((16, 128), "float32")
            T.copy(X[bx, :], x[bx, :])
            T.copy(x[bx, :], Y[15 - bx if into_gm else bx, :])

    x = rng.standard_normal((16, 128), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x[::-1] if into_gm else x)


def test_R031_sub_regions_have_length_and_pitch_apart(rng):
    @T.prim_func
    def f(X: T.Tensor((16, 64), "float32"), Y: T.Tensor((16, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8, 16), "float32")
            T.copy(X[2:10, 16:32], x)
            T.tile.add(x, x, 1.0)
            T.copy(x, Y[2:10, 16:32])

    x, y = rng.standard_normal((16, 64), np.float32), np.zeros((16, 64), np.float32)
    want = y.copy()
    want[2:10, 16:32] = x[2:10, 16:32] + 1
    tilelang.compile(f)(x, y)
    assert np.array_equal(y, want)


def test_R032_partial_rows_and_columns_both_ways(rng):
    @T.prim_func
    def f(X: T.Tensor((16, 32), "float32"), Y: T.Tensor((16, 32), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16, 32), "float32")
            T.tile.fill(x, 0.0)
            T.copy(X[4:12, 0:24], x[2:10, 8:32])
            T.copy(x[2:10, 8:32], Y[8:16, 8:32])

    x, y = rng.standard_normal((16, 32), np.float32), np.zeros((16, 32), np.float32)
    kernel = tilelang.compile(f)
    kernel(x, y)
    want = np.zeros((16, 32), np.float32)
    want[8:16, 8:32] = x[4:12, 0:24]
    assert np.array_equal(y, want)
    for target in ("ascendc", "pto"):  # both writers write the same program
        assert kernel.get_kernel_source(target)


@pytest.mark.parametrize("dtype, tol", [("float16", 1e-5), ("float32", 1e-6), ("int8", 0)])
def test_R033_R034_transposed_operands(rng, agree, dtype, tol):
    acc = "int32" if dtype == "int8" else "float32"

    def kernel(ta, tb):
        @T.prim_func
        def f(
            A: T.Tensor((64, 64), dtype),
            B: T.Tensor((128, 64) if tb else (64, 128), dtype),
            C: T.Tensor((64, 128), acc),
        ):
            with T.Kernel(1) as bx:
                a = T.alloc_shared((64, 64), dtype)
                b = T.alloc_shared((128, 64) if tb else (64, 128), dtype)
                c = T.alloc_fragment((64, 128), acc)
                T.copy(A, a)
                T.copy(B, b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=True)
                T.copy(c, C)

        return tilelang.compile(f, out_idx=-1)

    a, b = (rng.integers(-8, 9, s).astype(dtype) for s in ((64, 64), (64, 128)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    for ta in (False, True):
        for tb in (False, True):
            left, right = np.ascontiguousarray(a.T) if ta else a, np.ascontiguousarray(b.T) if tb else b
            agree(kernel(ta, tb)(left, right), want, tol)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_R035_k_steps_for_elements_of_every_size(rng, agree, dtype):
    acc = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def f(A: T.Tensor((128, 256), dtype), B: T.Tensor((256, 32), dtype), C: T.Tensor((128, 32), acc)):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((128, 128), dtype)
            b = T.alloc_shared((128, 32), dtype)
            c = T.alloc_fragment((128, 32), acc)
            for k in T.serial(2):
                T.copy(A[0, k * 128], a)
                T.copy(B[k * 128, 0], b)
                T.gemm(a, b, c, clear_accum=(k == 0))
            T.copy(c, C)

    a, b = (rng.integers(-8, 9, s).astype(dtype) for s in ((128, 256), (256, 32)))
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float64) @ b.astype(np.float64), 0)


def test_R036_same_tiles_on_every_chip(rng, agree):
    @T.prim_func
    def f(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 512), "float16"),
        C: T.Tensor((256, 512), "float32"),
        W: T.Tensor((8, 16), "int32"),
    ):
        with T.Kernel(8) as bx:
            T.use_swizzle(2)
            a = T.alloc_L1((128, 256), "float16")
            b = T.alloc_L1((256, 128), "float16")
            c = T.alloc_L0C((128, 128), "float32")
            w = T.alloc_ub((16,), "int32")
            T.copy(A[(bx // 4) * 128, 0], a)
            T.copy(B[0, (bx % 4) * 128], b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C[(bx // 4) * 128, (bx % 4) * 128])
            T.tile.fill(w, bx)
            T.copy(w, W[bx, :])

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((256, 256), (256, 512)))
    for chip in ("910B2", "950"):
        c, w = tilelang.compile(f, out_idx=[2, 3], chip=chip)(a, b)
        agree(c, a.astype(np.float32) @ b.astype(np.float32), 1e-6)
        assert np.array_equal(w[:, 0], np.arange(8))


@pytest.mark.parametrize("group", [0, 1])
def test_R037_operand_sliced_from_a_wide_tensor(rng, agree, group):
    @T.prim_func
    def f(A: T.Tensor((16, 128), "float16"), B: T.Tensor((64, 32), "float16"), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1) as bx:
            wide = T.alloc_shared((16, 128), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((16, 32), "float32")
            T.copy(A, wide)
            T.copy(B, b)
            T.gemm(wide[:, group * 64 : group * 64 + 64], b, c, clear_accum=True)
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((16, 128), (64, 32)))
    want = a[:, group * 64 : group * 64 + 64].astype(np.float32) @ b.astype(np.float32)
    agree(tilelang.compile(f, out_idx=-1)(a, b), want, 1e-6)


def test_R038_long_k_with_transposed_b(rng, agree):
    @T.prim_func
    def f(A: T.Tensor((16, 1024), "float32"), B: T.Tensor((32, 1024), "float32"), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((16, 512), "float32")
            b = T.alloc_shared((32, 512), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for k in T.serial(2):
                T.copy(A[:, k * 512 : k * 512 + 512], a)
                T.copy(B[:, k * 512 : k * 512 + 512], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    a, b = rng.standard_normal((16, 1024), np.float32), rng.standard_normal((32, 1024), np.float32)
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float64) @ b.astype(np.float64).T, 1e-5)


def test_R039_int8_accumulator_whole_or_in_halves(rng):
    def kernel(rows):
        @T.prim_func
        def f(A: T.Tensor((128, 64), "int8"), B: T.Tensor((64, 64), "int8"), C: T.Tensor((128, 64), "int32")):
            with T.Kernel(128 // rows) as bx:
                a = T.alloc_shared((rows, 64), "int8")
                b = T.alloc_shared((64, 64), "int8")
                c = T.alloc_fragment((rows, 64), "int32")
                T.copy(A[bx * rows, 0], a)
                T.copy(B, b)
                T.gemm(a, b, c, clear_accum=True)
                T.copy(c, C[bx * rows, 0])

        return tilelang.compile(f, out_idx=-1)

    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((128, 64), (64, 64)))
    want = a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(kernel(128)(a, b), want) and np.array_equal(kernel(64)(a, b), want)


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_R040_R041_pipelined_equals_serial(rng, stages):
    @T.prim_func
    def f(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((64, 256), (256, 64)))
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("stages", [1, 2])
def test_R042_scalars_carried_through_a_pipelined_loop(rng, stages):
    @T.prim_func
    def f(X: T.Tensor((4, 64), "float32"), I: T.Tensor((8,), "int32"), Y: T.Tensor((4, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            row = T.alloc_var("int32", init=0)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(X[row, :], x)
                T.copy(x, Y[k, :])
                row = I[k]

    x, order = rng.standard_normal((4, 64), np.float32), np.array([2, 3, 1, 0, 0, 0, 0, 0], np.int32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x, order), x[[0, 2, 3, 1]])


def into_workspace(cleared):
    @T.prim_func
    def f(X: T.Tensor((4, 16, 16), "float32"), W: T.Tensor((16, 16), "float32"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16, 16), "float32")
            w = T.alloc_ub((16, 16), "float32")
            if cleared:
                T.tile.fill(w, 0.0)
                T.copy(w, W)
            for k in T.serial(4):
                T.copy(X[k, :, :], x)
                T.copy(W, w)
                T.tile.add(w, w, x)
                T.copy(w, W)
            T.copy(W, w)
            T.copy(w, Y)

    return f


def test_R043_a_workspace_begins_without_a_value(rng):
    x = rng.integers(-4, 5, (4, 16, 16)).astype(np.float32)
    assert np.array_equal(tilelang.compile(into_workspace(True), out_idx=-1, workspace_idx=1)(x), x.sum(0))
    with pytest.raises(KernelFault) as caught:
        tilelang.compile(into_workspace(False), out_idx=-1, workspace_idx=1)(x)
    assert caught.value.code == "TL0802" and "W" in caught.value.errors[0].text


def test_R044_init_of_two_nested_loops(rng, agree):
    @T.prim_func
    def f(A: T.Tensor((16, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((16, 64), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_L1((16, 64), "float16")
            b = T.alloc_L1((64, 64), "float16")
            c = T.alloc_L0C((16, 64), "float32")
            for k in T.serial(2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                for kk in T.serial(2):
                    T.gemm_v0(
                        a[:, kk * 32 : kk * 32 + 32], b[kk * 32 : kk * 32 + 32, :], c, init=(k == 0) and (kk == 0)
                    )
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((16, 128), (128, 64)))
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize("axis", [0, 1])
def test_R045_sums_over_both_axes(rng, dtype, axis):
    @T.prim_func
    def f(X: T.Tensor((16, 128), dtype), Y: T.Tensor((128 if axis == 0 else 16,), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16, 128), dtype)
            y = T.alloc_ub((128 if axis == 0 else 16,), dtype)
            T.copy(X, x)
            T.reduce_sum(x, y, dim=axis)
            T.copy(y, Y)

    x = rng.integers(-4, 5, (16, 128)).astype(dtype)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x.sum(axis, dtype=dtype))


def test_R046_round_to_even():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            y = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.tile.round(y, x)
            T.copy(y, Y)
            for i in T.Parallel(64):
                y[i] = T.round(x[i])
            T.copy(y, Z)

    x = (np.arange(64, dtype=np.float32) - 32) / 2
    kernel = tilelang.compile(f, out_idx=[1, 2])
    y, z = kernel(x)
    assert np.array_equal(y, np.rint(x)) and np.array_equal(z, np.rint(x))


@pytest.mark.parametrize("n", [100, 128, 256, 300])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_R047_compare_and_select_of_every_length(rng, n, dtype):
    @T.prim_func
    def f(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor((n,), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((n,), dtype)
            y = T.alloc_ub((n,), dtype)
            mask = T.alloc_ub(((n + 7) // 8,), "uint8")
            T.copy(X, x)
            T.copy(Y, y)
            T.tile.compare(mask, x, 0.0, "LT")
            T.tile.select(y, mask, x, y, "VSEL_TENSOR_TENSOR_MODE")
            T.copy(y, Z)

    x = (rng.standard_normal(n) * np.where(np.arange(n) % 2, 1, -1)).astype(dtype)
    y = rng.standard_normal(n).astype(dtype)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x, y), np.where(x < 0, x, y))


@pytest.mark.parametrize("op, want", [("exp", np.exp), ("ln", np.log), ("reciprocal", np.reciprocal)])
def test_R048_float32_functions_have_float32_precision(op, want):
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            y = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            getattr(T.tile, op)(y, x)
            T.copy(y, Y)
            for i in T.Parallel(64):
                if op == "exp":
                    y[i] = T.exp(x[i])
                elif op == "ln":
                    y[i] = T.log(x[i])
                else:
                    y[i] = 1.0 / x[i]
            T.copy(y, Z)

    x = np.linspace(-20, 20, 64, dtype=np.float32) if op == "exp" else np.linspace(0.01, 40, 64, dtype=np.float32)
    for got in tilelang.compile(f, out_idx=[1, 2])(x):
        exact = want(x.astype(np.float64))
        assert np.abs(got - exact).max() <= np.abs(exact * 4 * np.finfo(np.float32).eps).max()
        assert (np.abs(got - exact) <= 4 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_R049_int_to_bfloat16_rounds_to_even():
    @T.prim_func
    def f(X: T.Tensor((16,), "int32"), Y: T.Tensor((16,), "bfloat16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16,), "int32")
            y = T.alloc_ub((16,), "bfloat16")
            T.copy(X, x)
            T.copy(x, y)
            T.copy(y, Y)

    x = np.array([259, 33000, -259, 1] * 4, np.int32)
    got = tilelang.compile(f, out_idx=-1)(x).astype(np.int32)
    assert got[:4].tolist() == [260, 33024, -260, 1]
