"""Reports about Python in kernels: dropped statements, rebinding, conditionals, indices; and about messages."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError, KernelFault


def test_R081_no_statement_vanishes(rng):
    @T.prim_func
    def f(X: T.Tensor((8, 64), "float32"), S: T.Tensor((8,), "float32"), M: T.Tensor((8,), "float32"),
          C: T.Tensor((8, 64), "float32")):  # fmt: skip
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8, 64), "float32")
            c = T.alloc_ub((8, 64), "float32")
            s = T.alloc_ub((8,), "float32")
            m = T.alloc_ub((8,), "float32")
            T.copy(X, x)
            T.reduce_abssum(x, s, dim=1)
            T.reduce_absmax(x, m, dim=1)
            T.cumsum(x, c, dim=1)
            T.copy(s, S)
            T.copy(m, M)
            T.copy(c, C)

    x = rng.integers(-8, 9, (8, 64)).astype(np.float32)
    s, m, c = tilelang.compile(f, out_idx=[1, 2, 3])(x)
    assert np.array_equal(s, np.abs(x).sum(1)) and np.array_equal(m, np.abs(x).max(1))
    assert np.array_equal(c, x.cumsum(1))


def test_R082_every_exported_tile_op_compiles_or_refuses_by_name():
    """Each function of T.tile with only tile operands becomes an instruction; the others refuse wrong calls by name."""
    from tilelang.language import tile

    for name, (_, kinds) in tile._TABLE.items():
        dtype = "int16" if name.startswith("bitwise") else "float32"

        @T.prim_func
        def f(X: T.Tensor((8, 64), dtype), Y: T.Tensor((8, 64), dtype)):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((8, 64), dtype)
                y = T.alloc_ub((8, 64), dtype)
                T.copy(X, x)
                T.copy(X, y)
                getattr(T.tile, name)(y, *(1 if k == "s" else x for k in kinds))
                T.copy(y, Y)

        kernel = tilelang.compile(f, out_idx=-1)
        done = kernel.ir("lowered").count("\n")
        assert done > 12, name
        kernel(np.ones((8, 64), dtype))
    for name in set(tile.__all__) - set(tile._TABLE):
        with pytest.raises((CompileError, TypeError)):
            getattr(T.tile, name)(1)


@pytest.mark.parametrize("direct", [False, True])
def test_R083_block_broadcast(rng, direct):
    @T.prim_func
    def f(X: T.Tensor((8,), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8,), "float32")
            y = T.alloc_ub((8, 8), "float32")
            T.copy(X, x)
            if direct:
                T.tile.brcb(y, x, 1)
            else:
                T.tile.broadcast(y, x, axis=1)
            T.copy(y, Y)

    x = rng.standard_normal(8, np.float32)
    kernel = tilelang.compile(f, out_idx=-1)
    assert "brcb" in kernel.ir("lowered")
    assert np.array_equal(kernel(x), np.repeat(x, 8).reshape(8, 8))


def test_R084_atomic_add_of_two_cores(rng, fails):
    @T.prim_func
    def f(X: T.Tensor((2, 16), "float32"), Y: T.Tensor((1, 16), "float32")):
        with T.Kernel(2) as bx:
            x = T.alloc_ub((16,), "float32")
            T.copy(X[bx, :], x)
            T.atomic_add(Y[0, 0], x)

    x, y = rng.integers(-8, 9, (2, 16)).astype(np.float32), np.zeros((1, 16), np.float32)
    tilelang.compile(f)(x, y)
    assert np.array_equal(y[0], x.sum(0))

    def make():
        @T.prim_func
        def g(X: T.Tensor((2, 16), "float32"), Y: T.Tensor((1, 16), "float32")):
            with T.Kernel(2) as bx:
                x = T.alloc_ub((16,), "float32")
                T.atomic_add(Y[0:1, 0:8], x)

    fails(make, "TL0501", "x[0 : 16]", "Y[0 : 1, 0 : 8]")


def test_R085_R086_python_names_that_change_in_a_loop(rng, fails):
    def make(word):
        def go():
            @T.prim_func
            def f(N: T.Tensor((8,), "int32"), Y: T.Tensor((16,), "float32")):
                with T.Kernel(1) as bx:
                    ptr = 0
                    for i in T.serial(4):
                        if word == "augmented":
                            ptr += N[i]
                        else:
                            ptr = ptr + N[i]

        return go

    for word in ("augmented", "plain"):
        fails(make(word), "TL1007", "'ptr' changes", "T.alloc_var")

    @T.prim_func
    def f(N: T.Tensor((8,), "int32"), X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16, 8), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8,), "float32")
            ptr = T.alloc_var("int32", init=0)
            for i in T.serial(4):
                for k in T.serial(N[i]):
                    T.copy(X[i * 4 + k, :], x)
                    T.copy(x, Y[ptr + k, :])
                ptr = ptr + N[i]

    counts = np.array([3, 0, 4, 2, 0, 0, 0, 0], np.int32)
    x, y = rng.standard_normal((16, 8), np.float32), np.zeros((16, 8), np.float32)
    tilelang.compile(f)(counts, x, y)
    want = np.concatenate([x[i * 4 : i * 4 + n] for i, n in enumerate(counts[:4])])
    assert np.array_equal(y[:9], want) and (y[9:] == 0).all()


def test_R087_a_flag_set_in_a_loop_is_read_after_it():
    @T.prim_func
    def f(X: T.Tensor((16,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1) as bx:
            y = T.alloc_ub((8,), "float32")
            found = T.alloc_var("bool", init=False)
            for i in T.serial(16):
                if X[i] > 3.0:
                    found = True
            T.tile.fill(y, 0.0)
            if found:
                T.tile.fill(y, 1.0)
            T.copy(y, Y)

    kernel = tilelang.compile(f, out_idx=-1)
    assert "bool found" in kernel.get_kernel_source().replace("found_", "found")
    for value in (0, 5):
        x = np.zeros(16, np.float32)
        x[7] = value
        assert kernel(x).tolist() == [float(value > 3)] * 8


def test_R088_a_conditional_expression_as_a_start(rng):
    @T.prim_func
    def f(n: T.int32, X: T.Tensor((4, 64), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            v = 1 if n > 10 else 2
            T.copy(X[v, :], x)
            T.copy(x, Y)

    x = rng.standard_normal((4, 64), np.float32)
    kernel = tilelang.compile(f, out_idx=-1)
    assert np.array_equal(kernel(11, x), x[1]) and np.array_equal(kernel(3, x), x[2])
    for target in ("ascendc", "pto"):
        assert kernel.get_kernel_source(target)


@pytest.mark.parametrize("chip", ["910B2", "910_9391", "950"])
def test_R089_persistent_and_swizzled_indices_are_declared(rng, agree, chip):
    @T.prim_func
    def f(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(2) as cid:
            a = T.alloc_L1((64, 64), "float16")
            b = T.alloc_L1((64, 64), "float16")
            c = T.alloc_L0C((64, 64), "float32")
            for i in T.serial(2):
                task = T.use_swizzle(i * 2 + cid, 128, 128, 64, 64, 64, off=2)
                bx, by = task // 2, task % 2
                T.copy(A[bx * 64, 0], a)
                T.copy(B[0, by * 64], b)
                T.gemm_v0(a, b, c, init=True)
                T.copy(c, C[bx * 64, by * 64])

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((128, 64), (64, 128)))
    kernel = tilelang.compile(f, out_idx=-1, chip=chip)
    agree(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)
    assert kernel.get_kernel_source()


@pytest.mark.parametrize("side", ["load", "store"])
def test_R090_one_index_of_two_dimensions_is_a_row(rng, side):
    @T.prim_func
    def f(X: T.Tensor((2, 64), "float32"), Y: T.Tensor((2, 64), "float32")):
        with T.Kernel(1) as bx:
            w = T.alloc_ub((2, 64), "float32")
            T.copy(X[1], w[0])
            T.copy(X[0], w[1])
            if side == "load":
                T.tile.add(w[0], w[0], w[1])
            T.copy(w, Y)

    x = rng.standard_normal((2, 64), np.float32)
    want = np.stack([x[1] + x[0] if side == "load" else x[1], x[0]])
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


def test_R091_slices_with_computed_bounds_and_typed_constants(rng):
    @T.prim_func
    def f(X: T.Tensor((2, 64), "float32"), Y: T.Tensor((2, 64), "float32")):
        with T.Kernel(1) as bx:
            w = T.alloc_ub((2, 64), "float32")
            k = T.int32(64)
            T.copy(X, w)
            T.tile.add(w[0, 0 * k : 1 * k], w[0, 0 * k : 1 * k], T.float32(3.0))
            T.copy(w, Y)

    x = rng.standard_normal((2, 64), np.float32)
    want = x.copy()
    want[0] += 3
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


@pytest.mark.parametrize("loop", ["Parallel", "vectorized", "serial", "unroll"])
def test_R092_loops_that_do_not_begin_at_zero(rng, loop):
    @T.prim_func
    def f(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((32,), "float32")
            T.copy(X, x)
            if loop == "Parallel":
                for i in T.Parallel(16):
                    x[i + 8] = x[i + 8] * 2.0
            else:
                for i in getattr(T, loop)(8, 24):
                    x[i] = x[i] * 2.0
            T.copy(x, Y)

    x = rng.standard_normal(32, np.float32)
    want = x.copy()
    want[8:24] *= 2
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


@pytest.mark.parametrize("blocks", [65535, 65536, 70000])
def test_R093_launches_of_many_blocks(blocks):
    @T.prim_func
    def f(Y: T.Tensor((8,), "float32")):
        with T.Kernel(blocks) as bx:
            y = T.alloc_ub((8,), "float32")
            if bx == blocks - 1:
                T.tile.fill(y, 1.0)
                T.copy(y, Y)

    kernel = tilelang.compile(f, out_idx=-1)
    assert kernel().tolist() == [1.0] * 8 and kernel.last_run["blocks"] == blocks


def test_R094_local_scratch_of_one_element(rng):
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            one = T.alloc_local((1,), "float32")
            T.copy(X, x)
            one[0] = x[5]
            T.tile.add(x, x, one[0])
            T.copy(x, Y)

    x = rng.standard_normal(64, np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x + x[5])


def test_R095_a_global_sync_between_scopes(rng, agree):
    @T.prim_func
    def f(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float16"), W: T.Tensor((32, 32), "float32"),
          C: T.Tensor((32, 32), "float32")):  # fmt: skip
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_L1((32, 32), "float16")
            b = T.alloc_L1((32, 32), "float16")
            c = T.alloc_L0C((32, 32), "float32")
            x = T.alloc_ub((16, 32), "float32")
            with T.Scope("C"):
                T.copy(A, a)
                T.copy(B, b)
                T.gemm_v0(a, b, c, init=True)
                T.copy(c, W)
            T.sync_all()
            with T.Scope("V"):
                T.copy(W[vid * 16, 0], x)
                T.tile.add(x, x, 1.0)
                T.copy(x, C[vid * 16, 0])

    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float16) for _ in range(2))
    kernel = tilelang.compile(f, out_idx=-1, workspace_idx=-2)
    agree(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32) + 1, 0)


def test_R096_two_buffers_chosen_by_parity(rng, agree):
    @T.prim_func
    def f(A: T.Tensor((4, 64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((4, 64, 64), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_L1((2, 64, 64), "float16")
            b = T.alloc_L1((64, 64), "float16")
            c = T.alloc_L0C((2, 64, 64), "float32")
            T.copy(B, b)
            for k in T.serial(4):
                T.copy(A[k, :, :], a[k % 2, :, :])
                T.gemm(a[k % 2, :, :], b, c[k % 2, :, :], clear_accum=True)
                T.copy(c[k % 2, :, :], C[k, :, :])

    a, b = rng.integers(-4, 5, (4, 64, 64)).astype(np.float16), rng.integers(-4, 5, (64, 64)).astype(np.float16)
    kernel = tilelang.compile(f, out_idx=-1)
    agree(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)
    assert kernel.get_kernel_source("ascendc") and kernel.get_kernel_source("pto")


def test_R097_one_cause_one_line(fails):
    def make():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64,), "float32")
                T.copy(X, x, sideways=True)

    found = fails(make, "TL1004", "T.copy has no argument 'sideways'")
    assert len(found) == 1 and str(found[0]).count("\n") <= 3 and "frontend" not in str(found[0])


@pytest.mark.parametrize("unused", [False, True])
def test_R098_unused_buffers_change_nothing(rng, unused):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n, 16), "float32"), Y: T.Tensor((n, 16), "float32")):
        with T.Kernel(T.ceildiv(n, 4)) as bx:
            x = T.alloc_ub((4, 16), "float32")
            if unused:
                never = T.alloc_ub((4, 16), "float32")
            y = T.alloc_ub((4, 16), "float32")
            T.copy(X[bx * 4, 0], x)
            T.tile.add(y, x, x)
            T.copy(y, Y[bx * 4, 0])

    x = rng.standard_normal((10, 16), np.float32)
    if unused:
        with pytest.warns(tilelang.TileLangWarning, match="'never' is never used"):
            kernel = tilelang.compile(f)
    else:
        kernel = tilelang.compile(f)
    y = np.zeros_like(x)
    kernel(x, y)
    assert np.array_equal(y, 2 * x)


def test_R099_a_wrong_pass_is_named():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.copy(x, X)

    kernel = tilelang.compile(f)
    with pytest.raises(tilelang.ArgumentError, match="(?s)there is no such pass.*parallel.*did you mean 'memplan'"):
        kernel.ir(after="memplann")


def test_R100_what_was_chosen_is_explained(rng):
    @T.prim_func
    def f(X: T.Tensor((18,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((18,), "float32")
            m = T.alloc_fragment((16,), "float32")
            y = T.alloc_fragment((16,), "float32")
            T.copy(X, x)
            for i in T.Parallel(16):
                m[i] = x[i] + x[i + 1] + x[i + 2]
            for i in T.Parallel(16):
                y[i] = m[i] / 3.0
            T.copy(y, Y)

    kernel = tilelang.compile(f, out_idx=-1)
    x = rng.standard_normal(18, np.float32)
    assert np.allclose(kernel(x), (x[:-2] + x[1:-1] + x[2:]) / 3)
    known = kernel.explain_json()
    assert all(b["why"] is not None and b["line"] > 0 for b in known["buffers"])
    assert all(g["why"] for g in known["flags"])
