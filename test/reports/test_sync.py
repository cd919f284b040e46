"""Reports about synchronisation: missing, lost, deadlocking, dropped or refused."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import KernelFault, PassConfigKey


def flags(kernel, kind=None):
    return [f for f in kernel.explain_json()["flags"] if kind in (None, f["kind"])]


def product_then_vector(hand):
    @T.prim_func
    def f(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        W: T.Tensor((64, 64), "float32"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_L1((64, 64), "float16")
            b = T.alloc_L1((64, 64), "float16")
            c = T.alloc_L0C((64, 64), "float32")
            x = T.alloc_ub((32, 64), "float32")
            y = T.alloc_ub((32, 64), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, W)
            if hand:
                T.set_cross_flag("FIX", 3)
                T.wait_cross_flag(3)
            T.copy(W[vid * 32, 0], x)
            T.tile.cast(y, x, "CAST_RINT", 32 * 64)
            T.copy(y, C[vid * 32, 0])

    return f


@pytest.mark.parametrize("configs", [{PassConfigKey.TL_ASCEND_AUTO_CV_SYNC: True}, {}])
def test_R016_cross_core_sync_needs_no_second_option(rng, agree, configs):
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    kernel = tilelang.compile(product_then_vector(False), out_idx=-1, workspace_idx=-2, pass_configs=configs)
    assert flags(kernel, "cross_set") and flags(kernel, "cross_wait")
    agree(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32), 1e-3)


def test_R017_no_flag_pair_on_an_in_order_pipe(rng):
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            y = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.tile.fill(y, 2.0)
            T.tile.add(x, x, y)
            T.copy(x, Y)

    x = rng.standard_normal(64, np.float32)
    for chip in ("910B2", "950"):
        kernel = tilelang.compile(f, out_idx=-1, chip=chip)
        assert all(g["src"] != g["dst"] for g in flags(kernel, "set_flag"))
        assert np.array_equal(kernel(x), x + 2)


def test_R017_a_deadlock_names_the_waiting_instruction():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.wait_flag("mte2", "v", 0)  # nobody sets it
            T.tile.add(x, x, 1.0)
            T.set_flag("v", "mte3", 0)
            T.wait_flag("v", "mte3", 0)
            T.copy(x, Y)

    kernel = tilelang.compile(f, out_idx=-1)
    with pytest.raises(KernelFault) as caught:
        kernel(np.zeros(64, np.float32))
    d = caught.value.errors[0]
    assert d.code == "TL0809" and "wait_flag" in str(d) and d.line == f.where[1] + 4


def producer(credit):
    """The cube raises a binary flag for each of four tiles; the vector cores are slower."""

    @T.prim_func
    def f(A: T.Tensor((64, 16), "float16"), W: T.Tensor((2, 16, 16), "float32"), C: T.Tensor((4, 16, 16), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_L1((16, 16), "float16")
            c = T.alloc_L0C((16, 16), "float32")
            x = T.alloc_ub((8, 16), "float32")
            with T.Scope("C"):
                for k in T.serial(4):
                    if credit:
                        if k >= 2:
                            T.wait_cross_flag(2 + k % 2)
                    T.copy(A[k * 16, 0], a)
                    T.barrier_all()
                    T.gemm_v0(a, a, c, init=True)
                    T.barrier_all()
                    T.copy(c, W[k % 2, :, :])
                    T.set_cross_flag("FIX", k % 2)
                    T.barrier_all()
            with T.Scope("V"):
                for k in T.serial(4):
                    T.wait_cross_flag(k % 2)
                    T.copy(W[k % 2, vid * 8 : vid * 8 + 8, :], x)
                    T.barrier_all()
                    for _ in T.serial(20):
                        T.tile.add(x, x, 0.0)
                        T.pipe_barrier("v")
                    if credit:
                        T.set_cross_flag("MTE2", 2 + k % 2)
                    T.barrier_all()
                    T.copy(x, C[k, vid * 8, 0])
                    T.barrier_all()
                if credit:
                    pass

    return f


def test_R018_a_signal_without_credit_is_found():
    a = np.eye(16, dtype=np.float16).repeat(4, 0).reshape(64, 16)
    with pytest.raises(KernelFault) as caught:
        tilelang.compile(producer(False), out_idx=-1, workspace_idx=-2)(a)
    text = str(caught.value)
    assert "TL0805" in text or "TL0810" in text
    assert "set_cross_flag" in text or "wait_cross_flag" in text


def test_R019_pipeline_and_split_together(rng, agree):
    @T.prim_func
    def f(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        D: T.Tensor((64, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_shared((64, 64), "float32")
            T.copy(D, d)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] + d[i, j]
            T.copy(c, C)

    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    d = rng.standard_normal((64, 64), np.float32)
    agree(tilelang.compile(f, out_idx=-1)(a, b, d), a.astype(np.float32) @ b.astype(np.float32) + d, 1e-5)


def test_R020_scopes_by_hand_are_kept(rng, agree):
    @T.prim_func
    def f(
        X: T.Tensor((16, 16), "float32"),
        W: T.Tensor((16, 16), "float16"),
        B: T.Tensor((16, 16), "float16"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            x = T.alloc_ub((8, 16), "float32")
            h = T.alloc_ub((8, 16), "float16")
            a = T.alloc_L1((16, 16), "float16")
            b = T.alloc_L1((16, 16), "float16")
            c = T.alloc_L0C((16, 16), "float32")
            with T.Scope("V"):
                T.copy(X[vid * 8, 0], x)
                T.tile.cast(h, x, "CAST_RINT", 128)
                T.copy(h, W[vid * 8, 0])
                T.set_cross_flag("MTE3", 1)
            with T.Scope("C"):
                T.wait_cross_flag(1)
                T.copy(W, a)
                T.copy(B, b)
                T.gemm_v0(a, b, c, init=True)
                T.copy(c, C)

    kernel = tilelang.compile(f, out_idx=-1, workspace_idx=1)
    waits = flags(kernel, "cross_wait")
    assert len(waits) == 1 and waits[0]["hand"]
    text = kernel.ir(after="lowered")
    assert "cross_wait" in text.split("vector {")[0]
    x, b = rng.integers(-4, 5, (16, 16)).astype(np.float32), rng.integers(-4, 5, (16, 16)).astype(np.float16)
    agree(kernel(x, b), x @ b.astype(np.float32), 1e-6)


def test_R021_everything_automatic(rng, agree):
    @T.prim_func
    def f(
        A: T.Tensor((128, 128), "bfloat16"),
        B: T.Tensor((128, 128), "bfloat16"),
        D: T.Tensor((128, 128), "bfloat16"),
        C: T.Tensor((128, 128), "bfloat16"),
    ):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((128, 128), "bfloat16")
            b = T.alloc_shared((128, 128), "bfloat16")
            d = T.alloc_shared((128, 128), "bfloat16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(D, d)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(128, 128):
                c[i, j] = c[i, j] + T.cast(d[i, j], "float32")
            T.copy(c, C)

    a, b, d = (rng.standard_normal((128, 128)).astype(ml_dtypes.bfloat16) for _ in range(3))
    want = a.astype(np.float32) @ b.astype(np.float32) + d.astype(np.float32)
    agree(tilelang.compile(f, out_idx=-1)(a, b, d).astype(np.float32), want, 1e-2)


def across_cores(synced):
    @T.prim_func
    def f(X: T.Tensor((16,), "float32"), W: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(2) as bx:
            x = T.alloc_ub((16,), "float32")
            if bx == 0:
                T.copy(X, x)
                T.tile.add(x, x, 1.0)
                T.copy(x, W)
            if synced:
                T.sync_all()
            if bx == 1:
                T.copy(W, x)
                T.copy(x, Y)

    return f


def test_R022_workspace_is_seen_by_other_cores(rng):
    x = rng.standard_normal(16, np.float32)
    assert np.array_equal(tilelang.compile(across_cores(True), out_idx=-1, workspace_idx=1)(x), x + 1)
    with pytest.raises(KernelFault) as caught:
        tilelang.compile(across_cores(False), out_idx=-1, workspace_idx=1)(x)
    assert caught.value.code in ("TL0806", "TL0802") and "'W'" in str(caught.value)


def test_R023_a_read_is_ordered_after_the_last_write(rng):
    @T.prim_func
    def f(
        X: T.Tensor((16, 16), "bfloat16"), Y: T.Tensor((16, 16), "bfloat16"), Z: T.Tensor((16, 16), "float32")
    ):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16, 16), "bfloat16")
            z = T.alloc_ub((16, 16), "float32")
            T.copy(X, x)
            T.copy(x, Y)
            T.copy(x, z)
            T.tile.add(z, z, z)
            T.copy(z, Z)

    kernel = tilelang.compile(f, out_idx=[1, 2])
    assert {("mte2", "mte3"), ("mte2", "v")} <= {(g["src"], g["dst"]) for g in flags(kernel, "set_flag")}
    x = rng.standard_normal((16, 16)).astype(ml_dtypes.bfloat16)
    y, z = kernel(x)
    assert np.array_equal(y, x) and np.array_equal(z, 2 * x.astype(np.float32))


def test_R024_order_follows_bytes_not_names(rng):
    @T.prim_func
    def f(X: T.Tensor((4, 16, 128), "float32"), Y: T.Tensor((4, 16, 128), "float32"), S: T.Tensor((4, 16), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((16, 128), "float32")
            t = T.alloc_ub((16, 128), "float32")
            s = T.alloc_ub((16,), "float32")
            T.annotate_address({x: 16384, t: 0, s: 0})  # the sums stand over the bytes of t
            for k in T.serial(4):
                T.copy(X[k, :, :], x)
                T.tile.add(t, x, 1.0)
                T.copy(t, Y[k, :, :])
                T.reduce_sum(x, s, dim=1)
                T.copy(s, S[k, :])

    x = rng.integers(-4, 5, (4, 16, 128)).astype(np.float32)
    y, s = tilelang.compile(f, out_idx=[1, 2])(x)
    assert np.array_equal(y, x + 1) and np.array_equal(s, x.sum(2))


@pytest.mark.parametrize("trips", [1, 4, 5])
def test_R025_R026_two_slots_in_a_ring(rng, trips):
    """Two loads a trip into a ring of two slots; one slot ahead, for even and odd numbers of trips."""

    @T.prim_func
    def f(X: T.Tensor((2 * trips, 64, 64), "float32"), Y: T.Tensor((trips, 64, 64), "float32")):
        with T.Kernel(1) as bx:
            ring = T.alloc_ub((2, 64, 64), "float32")
            y = T.alloc_ub((64, 64), "float32")
            T.copy(X[0, :, :], ring[0, :, :])
            for k in T.serial(trips):
                T.copy(X[2 * k + 1, :, :], ring[1, :, :])
                T.tile.add(y, ring[0, :, :], ring[1, :, :])
                T.copy(y, Y[k, :, :])
                if k < trips - 1:
                    T.copy(X[2 * k + 2, :, :], ring[0, :, :])

    x = rng.standard_normal((2 * trips, 64, 64), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x[::2] + x[1::2])


def test_R027_sets_equal_waits_for_each_pair(rng, agree):
    @T.prim_func
    def f(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    kernel = tilelang.compile(f, out_idx=-1)
    pairs = {(g["src"], g["dst"]) for g in flags(kernel, "set_flag")}
    assert pairs == {(g["src"], g["dst"]) for g in flags(kernel, "wait_flag")}
    assert ("mte1", "mte2") in pairs  # a slot of L1 is given back
    a, b = rng.standard_normal((64, 256)).astype(np.float16), rng.standard_normal((256, 64)).astype(np.float16)
    agree(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32), 1e-5)


def test_R028_program_order_through_global_memory(rng):
    @T.prim_func
    def f(X: T.Tensor((8,), "float32"), W: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8,), "float32")
            w = T.alloc_ub((8,), "float32")
            s = T.alloc_ub((1,), "float32")
            T.copy(X, x)
            T.copy(x, W)
            T.copy(W, w)
            T.reduce_sum(w, s, dim=0)
            for i in T.Parallel(8):
                w[i] = w[i] / s[0]
            T.copy(w, Y)

    kernel = tilelang.compile(f, out_idx=-1, workspace_idx=1)
    x = rng.integers(1, 9, 8).astype(np.float32)
    runs = [kernel(x) for _ in range(5)]
    assert all(np.array_equal(r, runs[0]) for r in runs) and np.allclose(runs[0], x / x.sum(), rtol=1e-6)


def test_R029_every_stored_value_arrives(rng):
    @T.prim_func
    def f(X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16, 8), "float32")):
        with T.Kernel(4) as bx:
            x = T.alloc_ub((4, 8), "float32")
            T.copy(X[bx * 4, 0], x)
            T.copy(x[:, 0:5], Y[bx * 4 : bx * 4 + 4, 0:5])

    x = rng.standard_normal((16, 8), np.float32)
    kernel = tilelang.compile(f)
    for _ in range(3):
        y = np.full((16, 8), np.nan, np.float32)
        kernel(x, y)
        assert np.array_equal(y[:, :5], x[:, :5]) and np.isnan(y[:, 5:]).all()


@pytest.mark.parametrize("several", [False, True])
def test_a_missing_flag_of_an_instruction_in_many_pieces(several):
    """One flag is named, for one vector core or both, and however many bytes one instruction reads."""

    @T.prim_func
    def f(A: T.Tensor((128, 64), "float32"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a, c = T.alloc_ub((64, 64), "float32"), T.alloc_ub((64, 64), "float32")
            row = vid * 64 if several else 0
            with T.Scope("V"):
                T.copy(A[row, 0], a)
                T.tile.add(c, a, 1.0)
                T.set_flag("v", "mte3", 0)
                T.wait_flag("v", "mte3", 0)
                T.copy(c, C[row, 0])

    kernel = tilelang.compile(f, out_idx=[1], pass_configs={PassConfigKey.TL_ASCEND_AUTO_SYNC: False})
    with pytest.raises(KernelFault) as caught:
        kernel(np.ones((128, 64), np.float32))
    (found,) = caught.value.errors
    assert found.code == "TL0805" and '`T.set_flag("mte2", "v", 0)`' in found.fix and "in turn" not in found.fix
