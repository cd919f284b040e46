"""The kinds of reports about integers: what does not fit, choices, divisions; in every way of writing them."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

EDGES = [0, 1, 127, 128, 129, 255, 256, 32767, 32768, 65534, 65535, 2**31 - 1, -1, -2, -128, -129, -32769, -(2**31)]


def converter(src, dst, n, serial, body=lambda x, y, t: T.cast(x, t)):
    @T.prim_func
    def f(A: T.Tensor((3, n), src), B: T.Tensor((3, n), src), O: T.Tensor((3, n), dst)):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((3, n), src)
            b = T.alloc_shared((3, n), src)
            o = T.alloc_shared((3, n), dst)
            T.copy(A, a)
            T.copy(B, b)
            if serial:
                for i, j in T.grid(3, n):
                    o[i, j] = body(a[i, j], b[i, j], dst)
            else:
                for i, j in T.Parallel(3, n):
                    o[i, j] = body(a[i, j], b[i, j], dst)
            T.copy(o, O)

    return tilelang.compile(f, out_idx=-1)


def of(dtype):
    info = np.iinfo(dtype)
    row = [v for v in [*EDGES, info.max, info.min] if info.min <= v <= info.max]
    return np.tile(np.array(row, object), (3, 1)).astype(dtype)


@pytest.mark.parametrize("src, dst", [
    ("int32", "int8"), ("int32", "uint8"), ("int32", "int16"), ("int32", "uint16"), ("int16", "int8"),
    ("int16", "uint8"), ("int8", "uint8"), ("uint8", "int8"), ("uint16", "int16"), ("uint32", "int8"),
    ("int64", "uint16"), ("uint32", "int32"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_integers_keep_their_low_bits(src, dst):
    """triton-lang/triton-ascend#163: a conversion truncates as in C; the vector unit's own clamps."""
    x = of(src)
    if src == "int64":
        x = x[abs(x) < 2**31].reshape(3, -1)
    for serial in (False, True):
        kernel = converter(src, dst, x.shape[1], serial)
        assert np.array_equal(kernel(x, x), x.astype(dst))
        assert np.array_equal(kernel.interpret(x, x), x.astype(dst))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int16", "uint8"])
@pytest.mark.filterwarnings("ignore")
def test_a_choice_of_integers_is_exact(dtype):
    x = of(dtype)
    y = x[:, ::-1].copy()
    kernel = converter(dtype, dtype, x.shape[1], False, lambda a, b, t: T.if_then_else(a >= b, a, b))
    assert np.array_equal(kernel(x, y), np.maximum(x, y))


@pytest.mark.parametrize("src", ["float32", "float16", "int32"])
@pytest.mark.filterwarnings("ignore")
def test_truth_is_not_rounded(src):
    x = np.tile(np.array([0, 0.25, -0.5, 1e-6, 1, -3, 256, np.nan if src != "int32" else 0]), (3, 1)).astype(src)

    @T.prim_func
    def f(A: T.Tensor((3, 8), src), O: T.Tensor((3, 8), "bool")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((3, 8), src)
            o = T.alloc_shared((3, 8), "bool")
            T.copy(A, a)
            T.copy(a, o)
            T.copy(o, O)

    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x != 0)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int64"])
@pytest.mark.filterwarnings("ignore")
def test_absolute_values_of_every_integer(dtype):
    """tile-ai/tilelang#2624: what has no sign is its own absolute value."""
    x = np.arange(15).reshape(3, 5).astype(dtype) + np.iinfo(dtype).max - 20
    x[1] = np.array([0, 3, 7, 2, 1]) * (-1 if dtype == "int64" else 1)

    @T.prim_func
    def f(A: T.Tensor((3, 5), dtype), O: T.Tensor((3,), dtype), P: T.Tensor((5,), dtype)):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((3, 5), dtype)
            o = T.alloc_shared((3,), dtype)
            p = T.alloc_shared((5,), dtype)
            T.copy(A, a)
            T.reduce_absmax(a, o, dim=1)
            T.reduce_abssum(a, p, dim=0)
            T.copy(o, O)
            T.copy(p, P)

    o, p = tilelang.compile(f, out_idx=[-2, -1])(x)
    assert np.array_equal(o, abs(x).max(1)) and np.array_equal(p, abs(x).sum(0, dtype=dtype))


@pytest.mark.parametrize("way", ["if_then_else", "if", "and"])
@pytest.mark.filterwarnings("ignore")
def test_a_division_that_the_condition_leaves_out_is_not_done(way):
    x, z = np.arange(-20, 20, dtype=np.int32), np.tile(np.arange(-2, 3, dtype=np.int32), 8)

    @T.prim_func
    def f(X: T.Tensor((40,), "int32"), Z: T.Tensor((40,), "int32"), O: T.Tensor((40,), "int32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((40,), "int32")
            z = T.alloc_shared((40,), "int32")
            T.copy(X, x)
            T.copy(Z, z)
            for i in T.Parallel(40):
                if way == "if_then_else":
                    x[i] = T.if_then_else(z[i] != 0, x[i] // z[i], -1)
                elif way == "if":
                    if z[i] != 0:
                        x[i] = x[i] % z[i]
                else:
                    x[i] = T.if_then_else(T.And(z[i] != 0, x[i] > 0), x[i] % z[i] + x[i] // z[i], -1)
            T.copy(x, O)

    by = np.where(z == 0, 1, z)
    want = {"if_then_else": np.where(z != 0, x // by, -1), "if": np.where(z != 0, x % by, x),
            "and": np.where((z != 0) & (x > 0), x % by + x // by, -1)}[way]  # fmt: skip
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x, z), want)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("op, fold", [
    ("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor)
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_bits_are_folded_as_sums_are(dtype, op, fold):
    """Reducers, `x = x & y` over an index that x lacks, and at places that an index tensor names."""
    both = {"bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b, "bitxor": lambda a, b: a ^ b}[op]

    @T.prim_func
    def f(A: T.Tensor((4, 9), dtype), I: T.Tensor((9,), "int32"), B: T.Tensor((4,), dtype), C: T.Tensor((9,), dtype),
          D: T.Tensor((4,), dtype)):  # fmt: skip
        with T.Kernel(1) as bx:
            a = T.alloc_shared((4, 9), dtype)
            at = T.alloc_shared((9,), "int32")
            b = T.alloc_fragment((4,), dtype)
            c = T.alloc_fragment((9,), dtype)
            d = T.alloc_fragment((4,), dtype)
            T.copy(A, a)
            T.copy(I, at)
            r = T.alloc_reducer((4,), dtype, op=op)
            T.reducer_init(r)
            for i, k in T.Parallel(4, 9):
                T.reducer_update(r[i], a[i, k])
            T.finalize_reducer(r, b)
            T.copy(a[0, :], c)
            for i, k in T.Parallel(4, 9):
                if i > 1:
                    c[k] = both(c[k], a[i, k])
            T.fill(d, 5)
            for k in T.Parallel(9):
                d[at[k]] = both(d[at[k]], a[1, k])
            T.copy(b, B)
            T.copy(c, C)
            T.copy(d, D)

    a = np.random.default_rng(0).integers(0, 100, (4, 9)).astype(dtype)
    at = np.arange(9, dtype=np.int32) % 4
    b, c, d = tilelang.compile(f, out_idx=[2, 3, 4])(a, at)
    want = np.full(4, 5, dtype)
    for k in range(9):
        want[at[k]] = fold(want[at[k]], a[1, k])
    assert np.array_equal(b, fold.reduce(a, 1)) and np.array_equal(d, want)
    assert np.array_equal(c, fold(fold(a[0], a[2]), a[3]))
