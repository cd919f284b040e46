"""The kinds of reports about memory that the compiler takes for itself: what it cuts, it cuts so that it fits."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError


@pytest.mark.parametrize("dtype, value", [
    ("uint8", lambda x: x + 1), ("int8", lambda x: x * x), ("uint8", lambda x: 1), ("int8", lambda x: (x & 6) | 1),
    ("float16", lambda x: T.if_then_else(x > 3, x, 2)),
    ("uint8", lambda x: T.cast(T.cast(x, "float32") * 2.0, "uint8")),
], ids=["add", "mul", "fill", "bits", "select", "cast"])  # fmt: skip
def test_a_loop_over_a_whole_tensor_leaves_room_for_scratch(dtype, value):
    """tile-ai/tilelang#2883: no tile is declared, so none can be made smaller."""

    @T.prim_func
    def f(X: T.Tensor((1, 300000), dtype), Y: T.Tensor((1, 300000), dtype)):
        with T.Kernel(1) as bx:
            for i, j in T.Parallel(1, 300000):
                Y[i, j] = value(X[i, j])

    tilelang.compile(f)


def test_scratch_of_a_tile_that_nearly_fills_the_memory():
    x = np.random.default_rng(0).integers(0, 120, 40000).astype(np.uint8)

    @T.prim_func
    def f(X: T.Tensor((40000,), "uint8"), Y: T.Tensor((40000,), "uint8")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((40000,), "uint8")
            T.copy(X, x)
            for i in T.Parallel(40000):
                x[i] = T.cast(T.cast(x[i], "float32") * 2.0, "uint8")
            T.copy(x, Y)

    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x * 2)


def test_what_select_keeps_for_itself_is_told():
    def kernel(n):
        @T.prim_func
        def f(X: T.Tensor((n,), "float32"), M: T.Tensor((64,), "uint8"), O: T.Tensor((n,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((n,), "float32")
                y = T.alloc_ub((n,), "float32")
                m = T.alloc_ub((64,), "uint8")
                T.copy(X, x)
                T.copy(X, y)
                T.copy(M, m)
                T.tile.select(x[0:512], m, y[0:512], 0.0, "VSEL_TENSOR_SCALAR_MODE")
                T.copy(x, O)
                T.copy(y, O)

        return f

    with pytest.raises(CompileError) as caught:
        tilelang.compile(kernel(24512))
    (d,) = caught.value.errors
    assert d.code == "TL0600" and "do not fit around" in d.text and "128 B from byte 188416" in d.text, d.text
    assert "with 23536 instead of 24512" in d.fix
    tilelang.compile(kernel(23536))
