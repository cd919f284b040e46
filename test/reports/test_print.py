"""Reports about printing from kernels."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def product(dump):
    @T.prim_func
    def f(A: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_L1((16, 16), "float16")
            c = T.alloc_L0C((16, 16), "float32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            if dump:
                T.dump_tensor(c, 7, 4)
                T.dump_tensor(a, 8, 4)
            T.copy(c, C)

    return tilelang.compile(f, out_idx=-1)


def test_R102_the_cube_side_prints_what_it_holds(rng, capsys):
    a = rng.integers(-3, 4, (16, 16)).astype(np.float16)
    kernel = product(True)
    c = kernel(a)
    printed = capsys.readouterr().out
    for value in [*c.ravel()[:4], *a.ravel()[:4]]:
        assert f"{value:g}" in printed, printed
    assert len(kernel.last_run["printed"]) == 2


def test_R103_a_dump_changes_nothing(rng):
    import re

    def bare(kernel):
        text = re.sub(r" @[\d:]+", "", kernel.ir("lowered"))
        return [line for line in text.splitlines() if not line.strip().startswith("print")]

    assert bare(product(True)) == bare(product(False))
    a = rng.integers(-3, 4, (16, 16)).astype(np.float16)
    assert np.array_equal(product(True)(a), product(False)(a))


@pytest.mark.parametrize("count", [1, 5, 20])
def test_R104_dumps_of_any_length(capsys, count):
    @T.prim_func
    def f(X: T.Tensor((24,), "float32"), Y: T.Tensor((24,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((24,), "float32")
            T.copy(X, x)
            T.dump_tensor(x, 1, count)
            T.copy(x, Y)

    tilelang.compile(f, out_idx=-1)(np.arange(100, 124, dtype=np.float32))
    printed = capsys.readouterr().out
    assert [v for v in range(100, 124) if str(v) in printed] == list(range(100, 100 + count)), printed


def test_R105_R107_prints_need_no_switch_and_leave_none(capsys):
    def make(loud):
        @T.prim_func
        def f(Y: T.Tensor((8,), "float32")):
            with T.Kernel(1) as bx:
                y = T.alloc_ub((8,), "float32")
                T.tile.fill(y, 3.0)
                if loud:
                    T.printf("three: %f\n", y[0])
                T.copy(y, Y)

        return tilelang.compile(f, out_idx=-1)

    for loud in (True, False, True):
        make(loud)()
        assert ("three: 3" in capsys.readouterr().out) == loud


def test_R110_slices_of_one_core(capsys):
    @T.prim_func
    def f(X: T.Tensor((32, 16), "float32"), Y: T.Tensor((32, 16), "float32")):
        with T.Kernel(2) as bx:
            x = T.alloc_ub((16, 16), "float32")
            T.copy(X[bx * 16, 0], x)
            if bx == 0:
                T.print(x[0:2, :], "rows")
            T.copy(x, Y[bx * 16, 0])

    x = np.arange(512, dtype=np.float32).reshape(32, 16)
    tilelang.compile(f, out_idx=-1)(x)
    printed = capsys.readouterr().out
    assert "rows" in printed and "block (0)" in printed and "block (1)" not in printed
    assert " 31]]" in printed and printed.count("\n") == 3
