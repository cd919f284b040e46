"""The kinds of reports about functions made of several steps: rounded to the tile's dtype once."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name, want", [
    ("exp2", np.exp2), ("log2", lambda x: np.log2(abs(x))), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))
])  # fmt: skip
def test_functions_of_halves_are_rounded_once(dtype, name, want):
    of = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.linspace(-14, 14, 132).reshape(4, 33).astype(of)

    @T.prim_func
    def f(X: T.Tensor((4, 33), dtype), O: T.Tensor((4, 33), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((4, 33), dtype)
            T.copy(X, x)
            for i, j in T.Parallel(4, 33):
                x[i, j] = getattr(T, name)(T.abs(x[i, j]) if name == "log2" else x[i, j])
            T.copy(x, O)

    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want(x.astype(np.float64)).astype(of))
