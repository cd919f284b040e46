"""Meanings of the Ascend dialect that programs rely on: what a copy moves when the sides differ, names inside loops."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def run(func, *args, **options):
    return tilelang.compile(func, **options)(*args)


def rand(*shape, dtype="float32"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_one_row_of_a_tensor_into_a_tile_of_l1():
    @T.prim_func
    def gemv(x: T.Tensor((64,), "float16"), A: T.Tensor((32, 64), "float16"), y: T.Tensor((32,), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, _):
            x_l1, a_l1 = T.alloc_L1((16, 32), "float16"), T.alloc_L1((32, 32), "float16")
            c = T.alloc_L0C((16, 32), "float32")
            for k in T.serial(2):
                T.copy(x[k * 32], x_l1)
                T.copy(A[0, k * 32], a_l1)
                T.gemm_v0(x_l1, a_l1, c, transpose_B=True, init=(k == 0))
            T.copy(c, y[0])

    x, a = rand(64, dtype="float16"), rand(32, 64, dtype="float16")
    assert np.allclose(run(gemv, x, a, out_idx=[2]), a.astype("float32") @ x.astype("float32"), atol=1e-4)


def test_a_row_into_a_column_and_the_rest_is_the_pad():
    @T.prim_func
    def column(x: T.Tensor((3, 8), "float32"), y: T.Tensor((16, 8), "float32")):
        with T.Kernel(1) as bx:
            c, t = T.alloc_ub((16, 1), "float32"), T.alloc_ub((16, 8), "float32")
            T.copy(x[1, 0:8], c, pad_value=7.0)
            T.tile.broadcast(t, c)
            T.copy(t, y)

    x = rand(3, 8)
    want = np.concatenate([x[1], np.full(8, 7, "float32")])
    assert np.array_equal(run(column, x, out_idx=[1]), np.repeat(want[:, None], 8, 1))


def test_elements_of_a_tensor_into_a_part_of_a_tile_of_l1():
    """The first part that is stored clears the tile, as the first copy of a part does."""

    @T.prim_func
    def outer(A: T.Tensor((32, 3), "float16"), B: T.Tensor((3, 48), "float16"), C: T.Tensor((32, 48), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, _):
            a, b = T.alloc_L1((32, 32), "float16"), T.alloc_L1((32, 48), "float16")
            c = T.alloc_L0C((32, 48), "float32")
            with T.Scope("C"):
                for k in T.serial(3):
                    for i in T.Parallel(32):
                        a[i, 0] = A[i, k]
                    for j in T.Parallel(48):
                        b[0, j] = B[k, j]
                    T.gemm_v0(a, b, c, init=(k == 0))
                T.copy(c, C)

    a, b = rand(32, 3, dtype="float16"), rand(3, 48, dtype="float16")
    assert np.allclose(run(outer, a, b, out_idx=[2]), a.astype("float32") @ b.astype("float32"), atol=1e-5)


def test_a_tensor_under_another_shape_and_dtype():
    n = T.symbolic("n")

    @T.prim_func
    def flat(A: T.Tensor((n, 8, 4), "float32"), B: T.Tensor((n, 32), "int32"), C: T.Tensor((n, 32), "float32")):
        with T.Kernel(1):
            a, c = T.alloc_ub((64,), "float32"), T.alloc_ub((64,), "int32")
            run, bits, again = T.reshape(A, (n * 32,)), T.view(B, dtype="float32"), T.view(B, (-1,))
            for i in T.serial(n // 2):
                T.copy(run[i * 64], a)
                T.tile.add(a, a, 1.0)
                T.copy(T.reshape(a, (2, 32)), bits[2 * i : 2 * i + 2, :])
                T.copy(again[i * 64], c)  # what the other view has just written
                T.copy(c, T.view(C, (n * 32,), "int32")[i * 64])

    a = rand(6, 8, 4)
    kernel = tilelang.compile(flat, out_idx=[1, 2])
    b, c = kernel(a)
    assert np.array_equal(b.view("float32"), a.reshape(6, 32) + 1) and np.array_equal(c, a.reshape(6, 32) + 1)
    assert "SetGlobalBuffer((__gm__ float *)B_gm)" in kernel.get_kernel_source()
    assert re.search(r"__gm__ float \*\w+ = \(__gm__ float \*\)B_gm;", kernel.get_kernel_source(target="pto"))
    with pytest.raises(tilelang.TileLangError, match="4096 bytes and 4000 bytes"):

        @T.prim_func
        def other(A: T.Tensor((32, 32), "float32")):
            with T.Kernel(1):
                T.view(A, (1000,))


@pytest.mark.parametrize("rows", [(16, 16), (16, 1), (24, 40)])
def test_rows_of_l1_that_nothing_was_loaded_into_are_zero(rows):
    n, m = rows

    @T.prim_func
    def splice(A: T.Tensor((n, 32), "float16"), B: T.Tensor((m, 32), "float16"), Q: T.Tensor((16, 32), "float16"),
    S: T.Tensor((16, 64), "float32")):  # fmt: skip
        with T.Kernel(1, is_npu=True) as (cid, vid):
            q, k, c = T.alloc_L1((16, 32), "float16"), T.alloc_L1((64, 32), "float16"), T.alloc_L0C((16, 64), "float32")
            T.copy(Q, q)
            T.copy(A, k[0:n, :])
            T.copy(B, k[n : n + m, :])
            T.gemm_v0(q, k, c, transpose_B=True, init=True)
            T.copy(c, S)

    a, b, q = rand(n, 32, dtype="float16"), rand(m, 32, dtype="float16"), rand(16, 32, dtype="float16")
    keys = np.concatenate([a, b, np.zeros((64 - n - m, 32), "float16")]).astype("float32")
    assert np.allclose(run(splice, a, b, q, out_idx=[3]), q.astype("float32") @ keys.T, atol=1e-4)


def test_a_tile_of_one_element_is_a_value():
    @T.prim_func
    def mean(x: T.Tensor((64,), "float32"), y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            t, total = T.alloc_ub((64,), "float32"), T.alloc_ub((1,), "float32")
            T.copy(x, t)
            T.reduce_sum(t, total, dim=-1)
            T.tile.fill(t, total)
            T.copy(t, y)

    x = rand(64)
    assert np.allclose(run(mean, x, out_idx=[1]), np.full(64, x.sum()), atol=1e-4)


def test_a_name_shadowed_in_a_loop_begins_each_run_with_its_old_value():
    with pytest.warns(tilelang.TileLangWarning, match="TL1023"):

        @T.prim_func
        def f(y: T.Tensor((8, 16), "int32")):
            with T.Kernel(2) as bx:
                t = T.alloc_ub((1, 16), "int32")
                for i in T.serial(4):
                    bx = bx * 4 + i
                    T.tile.fill(t, bx)
                    T.copy(t, y[bx, 0])

    assert np.array_equal(run(f, out_idx=[0])[:, 0], np.arange(8))


def test_a_number_that_changes_in_a_loop_stays_an_error():
    with pytest.raises(tilelang.CompileError, match="TL1007"):

        @T.prim_func
        def f(y: T.Tensor((16,), "int32")):
            with T.Kernel(1) as bx:
                n = 0
                for i in T.serial(4):
                    n = n + i
                t = T.alloc_ub((16,), "int32")
                T.copy(t, y)


def test_the_body_of_a_loop_of_no_runs_is_not_looked_at():
    @T.prim_func
    def f(y: T.Tensor((16,), "int32")):
        with T.Kernel(1) as bx:
            t = T.alloc_ub((16,), "int32")
            T.tile.fill(t, 1)
            for i in T.serial(16 % 4):
                t[16 + i] = 2
            T.copy(t, y)

    assert np.array_equal(run(f, out_idx=[0]), np.ones(16))


def test_constants_answer_like_constants_of_the_dialect():
    n = T.min(T.ceildiv(100, 3), 7)
    assert (n, n.value, n.dtype) == (7, 7, "int32") and isinstance(n + 1, int)
    m = T.symbolic("m")
    assert repr((m + 1) * 128 // 2 - m * 128 // 2) == "64" and repr((m * 64 + 32) // 64) == "(m * 64 + 32) // 64"


def test_a_condition_that_the_bounds_of_the_loops_decide_is_decided():
    @T.prim_func
    def f(y: T.Tensor((2, 16), "int32")):
        with T.Kernel(2) as bx:
            t = T.alloc_ub((1, 16), "int32")
            T.tile.fill(t, 1)
            for i in T.serial(16):
                if i + 16 < 16 or bx > 1:
                    t[0, i + 16] = 2
                if (i * 2 + 1) % 2 >= 0:
                    t[0, i] = t[0, i] + 2
                if i > 7:
                    t[0, i] = 4
            T.copy(t, y[bx, 0])

    assert f.script().count("if ") == 1
    assert np.array_equal(run(f, out_idx=[0]), np.tile(np.repeat([3, 4], 8), (2, 1)))


def test_without_checks_the_order_of_the_text_holds_where_flags_leave_it_open():
    """No flag, and one with an id that the chip does not have: both faults with checks, the right numbers without."""

    @T.prim_func
    def f(x: T.Tensor((4, 256), "float32"), y: T.Tensor((4, 256), "float32")):
        with T.Kernel(4, is_npu=True) as (cid, vid):
            t, u = T.alloc_ub((1, 256), "float32"), T.alloc_ub((1, 256), "float32")
            with T.Scope("V"):
                T.copy(x[cid, 0], t)
                T.set_flag("mte2", "v", 9)
                T.wait_flag("mte2", "v", 9)
                T.tile.add(u, t, t)
                T.copy(u, y[cid, 0])

    x = np.random.default_rng(0).standard_normal((4, 256), dtype=np.float32)
    with pytest.warns(tilelang.TileLangWarning, match="TL0266"):
        kernel = tilelang.compile(f, out_idx=[1], checks=False)
        assert np.array_equal(kernel(x), x + x)
        checked = tilelang.compile(f, out_idx=[1])
    with pytest.raises(tilelang.KernelFault) as e:
        checked(x)
    assert {"TL0814", "TL0805"} <= {d.code for d in e.value.errors}


@T.macro
def times_in_row(t, r, s):
    for j in T.Parallel(16):
        t[r, j] = t[r, j] * s


@T.prim_func
def indexed_step_by_step(A: T.Tensor((4, 8, 16), "float32"), B: T.Tensor((4, 8, 16), "float32"), n: T.int32):
    with T.Kernel(4) as bx:
        a = T.alloc_shared((2, 4, 16), "float32")
        for k in T.unroll(2):
            T.copy(A[bx][k * 4 : k * 4 + 4, :], a[k])
            times_in_row(a[k, :, :], 1, 3.0)
            T.copy(a[k][...], B[bx][k * 4 : k * 4 + 4])
        B[bx][-1][3] = a[1][3][3] + a[1, 0][0] + a[1, :, :][0, 0, 1]
        B[bx, 0][2] = bool(n) + 1


def test_an_index_of_an_indexed_tile_is_of_what_is_left():
    a = np.arange(4 * 8 * 16, dtype="float32").reshape(4, 8, 16)
    want = a.copy()
    want[:, [1, 5]] *= 3
    want[:, 7, 3] += want[:, 4, 0] + want[:, 4, 1]
    want[:, 0, 2] = 2
    for run in (indexed_step_by_step, indexed_step_by_step.compiled().interpret):
        b = np.zeros_like(a)
        run(a, b, -3)
        np.testing.assert_array_equal(b, want)
