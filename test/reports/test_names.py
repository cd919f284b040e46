"""The kinds of reports about names of other compilers: what has a meaning here works, the rest says what to write."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError, UnknownNameError


@pytest.mark.parametrize("name, instead", [
    ("sync_lanes_warp", "whole tile"), ("shfl_xor_sync", "whole tile"), ("__ldg", "the element"),
    ("ldg128", "the element"), ("sts64", "the element"), ("mbarrier_arrive", "order of the pipes"),
    ("tma_load", "order of the pipes"), ("alloc_cluster_barrier", "order of the pipes"), ("WSScope", "order"),
    ("float32x4", "a tile"), ("Broadcast", "a tile"), ("Ramp", "a tile"), ("float64", "T.float32"),
    ("float8_e8m0fnu", "T.float8_e4m3fn"), ("rng_rand", "random numbers"), ("launch_thread", "T.Kernel"),
    ("__exp", "T.exp"), ("ieee_add", "a + b"), ("address_of", "T.Tensor"), ("tvm_mfma_store", "T.gemm"),
])  # fmt: skip
def test_a_name_of_gpus_says_what_to_write(name, instead):
    """tile-ai/tilelang#2188, #2480, #2554 and its like."""
    with pytest.raises(UnknownNameError) as caught:
        getattr(T, name)
    (d,) = caught.value.errors
    assert d.code == "TL1002" and f"T.{name} is refused" in d.text and instead in d.fix


def test_loops_in_one_another():
    """tile-ai/tilelang#1690: one block where none is given; T.grid."""

    @T.prim_func
    def f(A: T.Tensor((3, 5), "float32"), O: T.Tensor((3, 5), "float32")):
        with T.Kernel() as bx:
            a = T.alloc_shared((3, 5), "float32")
            T.copy(A, a)
            for i, j in T.grid(3, 5):
                if j == 2:
                    continue
                a[i, j] = a[i, j] * 10 + T.align_up(i, 4)
            for i in T.grid(2):
                a[i, 0] = T.clamp(a[i, 0], min_val=-1.0, max_val=0.5)
            T.copy(a, O)

    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    want = x.copy()
    for i in range(3):
        for j in (0, 1, 3, 4):
            want[i, j] = x[i, j] * 10 + (i + 3) // 4 * 4
    want[:2, 0] = np.clip(want[:2, 0], -1, 0.5)
    kernel = tilelang.compile(f, out_idx=-1)
    assert np.array_equal(kernel(x), want) and np.array_equal(kernel.interpret(x), want)


def test_what_loops_in_one_another_cannot():
    def make():
        @T.prim_func
        def f(A: T.Tensor((3, 5), "float32")):
            with T.Kernel(1) as bx:
                for i, j in T.grid(3, 5):
                    if j == 2:
                        break
                for i, j, k in T.grid(3, 5):
                    A[i, j] = 0.0
                A[0, 0] = T.int32()

    with pytest.raises(CompileError) as caught:
        make()
    said = [(d.code, d.text) for d in caught.value.errors]
    assert said[0] == ("TL1006", "`break` of 2 loops at once")


def test_a_tensor_is_filled_as_a_tile_is():
    """tile-ai/tilelang#1008: whole, by parts, of run-time bounds, one element."""
    n = T.symbolic("n")

    @T.prim_func
    def f(A: T.Tensor((n, 37), "float32"), B: T.Tensor((300,), "int64"), C: T.Tensor((5, 6), "float16"),
          L: T.Tensor((2,), "int32")):  # fmt: skip
        with T.Kernel(1) as bx:
            T.fill(A, 3.0)
            T.fill(B[10:200], 7)
            T.fill(B[L[0] : L[1]], -9)
            T.clear(C[1, :])
            T.fill(C[2:4, 2:4], -1.5)
            T.fill(C[4, 5], 2.0)

    kernel = tilelang.compile(f)
    for run in (kernel, kernel.interpret):
        a, b, c = np.ones((9, 37), np.float32), np.ones(300, np.int64), np.ones((5, 6), np.float16)
        run(a, b, c, np.array([5, 12], np.int32))
        want_b, want_c = np.ones(300), np.ones((5, 6))
        want_b[10:200], want_b[5:12] = 7, -9
        want_c[1], want_c[2:4, 2:4], want_c[4, 5] = 0, -1.5, 2
        assert (a == 3).all() and np.array_equal(b, want_b) and np.array_equal(c, want_c)
