"""T.tile.* that move, sort, reduce and compute on whole tiles, for each dtype, against numpy; every check on."""

import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.language.dtypes import numpy_dtype

pytest.importorskip("tilelang._core")

FLOATS = ["float32", "float16", "bfloat16"]
INTS = ["int32", "int16", "uint32", "uint16", "int8", "uint8", "int64"]
TOLERANCE = {"float32": 3e-7, "float16": 1.5e-3, "bfloat16": 9e-3}


def numbers(dtype, shape, low=-8, high=8, seed=0):
    r = np.random.default_rng(seed)
    if dtype in FLOATS:
        return r.uniform(low, high, shape).astype(numpy_dtype(dtype))
    return r.integers(-(2**62), 2**62, shape).astype(numpy_dtype(dtype))


def kernel(body, shapes, out):
    """One tile an input, `body(c, a[, b])`, and the result."""
    first, (shape, dtype) = shapes[0], out
    if len(shapes) == 1:

        @T.prim_func
        def one(A: T.Tensor(*first), C: T.Tensor(shape, dtype)):
            with T.Kernel(1, threads=1):
                a = T.alloc_ub(*first)
                c = T.alloc_ub(shape, dtype)
                T.copy(A, a)
                body(c, a)
                T.copy(c, C)

        return one
    second = shapes[1]

    @T.prim_func
    def two(A: T.Tensor(*first), B: T.Tensor(*second), C: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=1):
            a = T.alloc_ub(*first)
            b = T.alloc_ub(*second)
            c = T.alloc_ub(shape, dtype)
            T.copy(A, a)
            T.copy(B, b)
            body(c, a, b)
            T.copy(c, C)

    return two


def run(body, *inputs, out):
    shapes = [(x.shape, x.dtype.name) for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tilelang.TileLangWarning)
        return np.asarray(tilelang.compile(kernel(body, shapes, out), out_idx=[-1])(*inputs))


def same(got, want):
    np.testing.assert_array_equal(got.astype(np.float64), np.asarray(want).astype(np.float64))


def close(got, want, dtype, tolerance=None):
    t = tolerance or TOLERANCE[dtype]
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=t, atol=t)


# ---- functions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("reach", [3, 1000])
def test_sine(name, dtype, reach):
    a = numbers(dtype, (4, 100), -reach, reach)
    got = run(getattr(T.tile, name), a, out=(a.shape, dtype))
    close(got, getattr(np, name)(a.astype(np.float64)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_round(dtype):
    a = numbers(dtype, (4, 100))
    a[0, :6] = [0.5, 1.5, 2.5, -0.5, -1.5, 3.0]
    same(run(T.tile.round, a, out=(a.shape, dtype)), np.round(a.astype(np.float64)))


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
def test_clamp(dtype):
    a = numbers(dtype, (4, 64))
    same(run(lambda c, a: T.tile.clamp(c, a, -3, 5, 256), a, out=(a.shape, dtype)), np.clip(a, -3, 5))
    same(run(lambda c, a: T.tile.clamp_min(c, a, -3, 256), a, out=(a.shape, dtype)), np.maximum(a, -3))
    same(run(lambda c, a: T.tile.clamp_max(c, a, 5, 256), a, out=(a.shape, dtype)), np.minimum(a, 5))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [2.0, 0.5, 3, 2.7, -1.5, 0.0])
def test_power_of_scalar(dtype, exponent):
    a = numbers(dtype, (4, 96), 0.1, 3)
    got = run(lambda c, a: T.tile.pow(c, a, exponent), a, out=(a.shape, dtype))
    close(got, np.power(a.astype(np.float64), exponent), dtype, max(TOLERANCE[dtype], 2e-6))


@pytest.mark.parametrize("dtype", FLOATS)
def test_power(dtype):
    a, b = numbers(dtype, (4, 64), 0, 3), numbers(dtype, (4, 64), -2, 2, seed=1)
    a[0, :9] = [-2, -2, -2, 0, 0, 0, 1, -1, -2]
    b[0, :9] = [3, 2, 0.5, 0, 1, 2, 7, 2, -1]
    got = run(T.tile.pow, a, b, out=(a.shape, dtype))
    with np.errstate(all="ignore"):
        close(got, np.power(a.astype(np.float64), b.astype(np.float64)), dtype, max(TOLERANCE[dtype], 3e-6))


def test_power_of_integers():
    r = np.random.default_rng(0)
    a, b = r.integers(-9, 10, (4, 64)).astype(np.int32), r.integers(0, 5, (4, 64)).astype(np.int32)
    same(run(T.tile.pow, a, b, out=(a.shape, "int32")), a**b)


# ---- integers -------------------------------------------------------------------------------------------------------

BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
WRAPPING = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", [*BITS, *WRAPPING])
def test_integer(name, dtype):
    a, b = numbers(dtype, (4, 64)), numbers(dtype, (4, 64), seed=1)
    reference = (BITS | WRAPPING)[name]
    np.testing.assert_array_equal(run(getattr(T.tile, name), a, b, out=(a.shape, dtype)), reference(a, b))
    if dtype != "int64":
        got = run(lambda c, a: getattr(T.tile, name)(c, a, 5), a, out=(a.shape, dtype))
        np.testing.assert_array_equal(got, reference(a, a.dtype.type(5)))


@pytest.mark.parametrize("dtype", INTS)
def test_shifts(dtype):
    a = numbers(dtype, (4, 64))
    one = a.dtype.type
    np.testing.assert_array_equal(run(T.tile.bitwise_not, a, out=(a.shape, dtype)), ~a)
    got = run(lambda c, a: T.tile.bitwise_lshift(c, a, 3), a, out=(a.shape, dtype))
    np.testing.assert_array_equal(got, a << one(3))
    got = run(lambda c, a: T.tile.bitwise_rshift(c, a, 2), a, out=(a.shape, dtype))
    np.testing.assert_array_equal(got, a >> one(2))
    bits = a.dtype.itemsize * 8  # the whole width: only signs are left
    for op, want in ((T.tile.bitwise_lshift, a & one(0)), (T.tile.bitwise_rshift, a >> one(bits - 1))):
        got = run(lambda c, a: op(c, a, bits), a, out=(a.shape, dtype))
        np.testing.assert_array_equal(got, want if "u" not in dtype else a & one(0))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int16"])
def test_shifts_by_counts_that_leave_the_element(dtype, left):
    @T.prim_func
    def f(X: T.Tensor((64,), dtype), Y: T.Tensor((64,), dtype)):
        with T.Kernel(1) as bx:
            x, y = T.alloc_ub((64,), dtype), T.alloc_ub((64,), dtype)
            T.copy(X, x)
            for i in T.Parallel(64):
                n = T.cast(i % 8 * 8, dtype)
                y[i] = x[i] << n if left else x[i] >> n
            T.copy(y, Y)

    x = numbers(dtype, (64,))
    bits = x.dtype.itemsize * 8
    n = np.arange(64) % 8 * 8
    wide = x.astype(np.int64)
    want = np.where(n < bits, wide << np.minimum(n, 31), 0) if left else wide >> np.minimum(n, bits - 1)
    got = tilelang.compile(f, out_idx=-1)(x)
    np.testing.assert_array_equal(got, want.astype(dtype))


@pytest.mark.parametrize("dtype", [*INTS, "float32", "float16"])
def test_vector_index(dtype):
    a = numbers(dtype, (4, 24))
    want = np.arange(3, 99).reshape(4, 24).astype(a.dtype)
    same(run(lambda c, a: T.tile.createvecindex(c, 3), a, out=(a.shape, dtype)), want)


# ---- moved ----------------------------------------------------------------------------------------------------------

ALL = [*FLOATS, *INTS]


@pytest.mark.parametrize("dtype", ALL)
def test_gather(dtype):
    a = numbers(dtype, (4, 64))
    at = np.random.default_rng(1).integers(0, 256, (2, 64)).astype(np.uint32)
    offsets = at * np.uint32(a.itemsize)
    same(run(lambda c, a, b: T.tile.gather(c, a, b, 0), a, offsets, out=((2, 64), dtype)), a.ravel()[at])
    got = run(lambda c, a, b: T.tile.gather(c, a, b, 0), a, offsets, out=((50,), dtype))  # as many as both have
    same(got, a.ravel()[at.ravel()[:50]])


@pytest.mark.parametrize("dtype", [d for d in ALL if d != "int64"])
@pytest.mark.parametrize(
    "pattern, chosen", [("P0101", np.s_[::2]), ("P1010", np.s_[1::2]), ("P0100", np.s_[2::4]), ("P1111", np.s_[:])]
)
def test_gather_mask(dtype, pattern, chosen):
    a = numbers(dtype, (4, 64))
    want = a.ravel()[chosen]
    same(run(lambda c, a: T.tile.gather_mask(c, a, pattern), a, out=(want.shape, dtype)), want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "uint32"])
def test_gather_by_index(dtype):
    a, at = numbers(dtype, (4, 64)), np.array([[1, 2, 2, 5, 4, 6, 7, 200]], np.uint32)
    same(run(T.tile.gather_mask, a, at, out=((1, 8), dtype)), a.ravel()[at])


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("strides", [(1, 8), (2, 16)])
def test_gather_blocks(dtype, strides):
    a = numbers(dtype, (4, 64))
    blocks = a.reshape(-1, 32 // a.itemsize)
    at = np.random.default_rng(2).integers(0, len(blocks), (1, 8)).astype(np.uint32)
    step = strides[0]
    want = np.zeros((8 * step, blocks.shape[1]), a.dtype)
    want[::step] = blocks[at.ravel()]

    def body(c, a, b):
        T.tile.fill(c, 0)
        T.tile.gatherb(c, a, b, 1, *strides)

    same(run(body, a, at * np.uint32(32), out=(want.shape, dtype)), want)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(16, 16), (32, 48), (20, 7), (1, 33), (64, 16)])
def test_transpose(dtype, shape):
    a = numbers(dtype, shape)
    same(run(T.tile.transpose, a, out=(shape[::-1], dtype)), a.T)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("shape", [(4, 16), (5, 7), (37,), (3, 4, 8)])
def test_running(dtype, shape):
    a = numbers(dtype, shape, -1, 1) if dtype in FLOATS else (numbers(dtype, shape) % 5).astype(numpy_dtype(dtype))
    for axis in range(len(shape)):
        for reverse in (False, True):
            x = np.flip(a, axis) if reverse else a
            exact = x.astype(np.float64) if dtype in FLOATS else x
            total = np.cumsum(exact, axis=axis, dtype=exact.dtype)
            largest = np.maximum.accumulate(x, axis=axis)
            if reverse:
                total, largest = np.flip(total, axis), np.flip(largest, axis)
            got = run(lambda c, a: T.cumsum(a, c, dim=axis, reverse=reverse), a, out=(shape, dtype))
            close(got, total, dtype, 1e-6 if dtype == "float32" else None) if dtype in FLOATS else same(got, total)
            same(run(lambda c, a: T.cummax(a, c, dim=axis, reverse=reverse), a, out=(shape, dtype)), largest)


# ---- sorting --------------------------------------------------------------------------------------------------------


def pairs(x):
    order = np.argsort(-x.astype(np.float64), kind="stable")
    out = np.empty(2 * x.size)
    out[0::2], out[1::2] = x[order].astype(np.float64), order
    return out.astype(x.dtype)


LENGTHS = [("float32", n) for n in (32, 51, 160, 1100, 4096, 9000)]
LENGTHS += [(d, n) for d in FLOATS[1:] for n in (51, 500)]


@pytest.mark.parametrize("dtype, n", LENGTHS)
def test_sort(dtype, n):
    a = numbers(dtype, (1, n))
    a[0, ::7] = a[0, 0]
    want = pairs(a.ravel())
    same(run(lambda c, a: T.tile.sort(c, a, n), a, out=((1, 2 * n), dtype)).ravel(), want)
    k = min(10, n)
    same(run(lambda c, a: T.tile.topk(c, a, k, n), a, out=((1, 2 * k), dtype)).ravel(), want[: 2 * k])
    got = run(lambda c, a: T.tile.topk(c, a, k, n - 9), a, out=((1, 2 * k), dtype))
    same(got.ravel(), pairs(a.ravel()[: n - 9])[: 2 * k])


def test_topk_of_a_run_time_count():
    @T.prim_func
    def top(A: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=1):
            a = T.alloc_ub((64,), "float32")
            n = T.alloc_ub((1,), "int32")
            c = T.alloc_ub((8,), "float32")
            T.copy(A, a)
            T.copy(N, n)
            T.tile.topk(c, a, 4, n[0])
            T.copy(c, C)

    a = numbers("float32", (64,))
    k = tilelang.compile(top, out_idx=[-1])
    for n in (64, 33, 4):
        same(k(a, np.array([n], np.int32)), pairs(a[:n])[:8])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_records(dtype):
    """sort32 and merge_sort as the chip has them: the index as bits."""
    a, index = numbers(dtype, (2, 32)), np.arange(64, dtype=np.uint32).reshape(2, 32)
    size = 8 // a.itemsize

    def body(c, a, b):
        t = T.alloc_ub((2, 32 * size), dtype)
        T.tile.sort32(t, a, b)
        T.tile.merge_sort(c, t[0, :], t[1, :])

    got = run(body, a, index, out=((64 * size,), dtype))
    order = np.argsort(-a.ravel().astype(np.float64), kind="stable")
    same(got[::size], a.ravel()[order])
    np.testing.assert_array_equal(got.view(np.uint32)[1::2], order)


# ---- by rows, by repeats --------------------------------------------------------------------------------------------

TWO = ["float32", "float16"]


@pytest.mark.parametrize("dtype", TWO)
@pytest.mark.parametrize("name, op", [("mul", np.multiply), ("sub", np.subtract), ("div", np.divide)])
def test_row_expand(dtype, name, op):
    a, s = numbers(dtype, (16, 128)), numbers(dtype, (16,), 1, 3, seed=1)
    f = getattr(T.tile, f"row_expand_{name}_experiment")
    want = op(a, s[:, None])
    same(run(f, a, s, out=(a.shape, dtype)), want)
    blocks = np.repeat(s[:, None], 32 // s.itemsize, 1)
    same(run(f, a, blocks, out=(a.shape, dtype)), want)

    def by_chunks(c, a, b):
        for k in range(2):
            f(c[:, 64 * k : 64 * k + 64], a[:, 64 * k : 64 * k + 64], b)

    same(run(by_chunks, a, blocks, out=(a.shape, dtype)), want)


@pytest.mark.parametrize("name", ["brcb", "brcb_experiment"])
@pytest.mark.parametrize("dtype", TWO)
def test_brcb(dtype, name):
    a = numbers(dtype, (64,))
    c0 = 32 // a.itemsize
    got = run(lambda c, a: getattr(T.tile, name)(c, a, 8, 1, 8), a, out=((64, c0), dtype))
    same(got, np.repeat(a[:, None], c0, 1))


@pytest.mark.parametrize("dtype", TWO)
@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_by_repeats(dtype, name):
    a = numbers(dtype, (1, 256))
    c0, f = 32 // a.itemsize, getattr(np, name)
    width = 4 * c0
    rows = a.reshape(-1, width).astype(np.float64)
    whole = getattr(T.tile, f"wholereduce{name}")
    n = len(rows)
    check = (lambda g, w: close(g, w, dtype, 2e-2)) if name == "sum" else same
    if name == "sum":
        check(run(lambda c, a: whole(c, a, width, n, 1, 1, 4), a, out=((n,), dtype)), rows.sum(1))
    else:
        got = run(lambda c, a: whole(c, a, width, n, 1, 1, 4), a, out=((2 * n,), dtype))
        same(got[0::2], f(rows, axis=1))
        where = got.view(np.uint32 if dtype == "float32" else np.uint16)[1::2]
        np.testing.assert_array_equal(where, getattr(np, f"arg{name}")(rows, axis=1))
    block = getattr(T.tile, f"block_reduce_{name}")
    m = a.size // c0
    got = run(lambda c, a: block(c, a, m // 8, 8 * c0, 1, 1, 8), a, out=((m,), dtype))
    check(got, f(a.reshape(m, c0).astype(np.float64), axis=1))


@pytest.mark.parametrize("dtype", TWO)
def test_first_elements(dtype):
    a, b = numbers(dtype, (4, 32)), numbers(dtype, (4, 32), seed=1)
    c0, some = 32 // a.itemsize, np.arange(128).reshape(4, 32) < 50

    def of(f):
        def body(c, *tiles):
            T.tile.fill(c, 0)
            f(c, *tiles)

        return body

    got = run(of(lambda c, a: T.tile.reduce_sum_experiment(c, a, 100)), a, out=((8,), dtype))
    close(got[:1], a.ravel()[:100].astype(np.float64).sum(keepdims=True), dtype, 1e-2)
    got = run(of(lambda c, a: T.tile.sum_experiment(c, a, [4, 32, 20])), a, out=((4,), dtype))
    close(got, a[:, :20].astype(np.float64).sum(1), dtype, 1e-2)
    got = run(of(lambda c, a: T.tile.reduce_sum_mask_experiment(c, a, 20, 4, 32 // c0)), a, out=((8,), dtype))
    close(got[:1], a[:, :20].astype(np.float64).sum(keepdims=True).ravel(), dtype, 1e-2)
    out = (a.shape, dtype)
    got = run(of(lambda c, a, b: T.tile.sub_experiment(c, a, b, 50)), a, b, out=out)
    same(got, np.where(some, a - b, 0))
    same(run(of(lambda c, a: T.tile.abs_experiment(c, a, 50)), a, out=out), np.where(some, abs(a), 0))
    got = run(of(lambda c, a: T.tile.mins_experiment(c, a, 1, 50)), a, out=out)
    same(got, np.where(some, np.minimum(a, 1), 0))
    got = run(of(lambda c, a: T.tile.fill_experiment(c, 3, [0b1011, 0], 1, 1, 8)), a, out=out)
    same(got, np.where(np.isin(np.arange(128), [0, 1, 3]), 3, 0).reshape(4, 32))


@pytest.mark.parametrize("by_block", [False, True])
def test_bilinear(by_block):
    a, w = numbers("float16", (512,)), numbers("float16", (16 if not by_block else 32,), 0, 1, seed=1)
    offsets = (np.random.default_rng(3).permutation(32) * 32).astype(np.uint32)

    @T.prim_func
    def weigh(
        A: T.Tensor((512,), "float16"),
        O: T.Tensor((32,), "uint32"),
        W: T.Tensor(w.shape, "float16"),
        C: T.Tensor((256,), "float16"),
    ):
        with T.Kernel(1, threads=1):
            a = T.alloc_ub((512,), "float16")
            o = T.alloc_ub((32,), "uint32")
            s = T.alloc_ub(w.shape, "float16")
            c = T.alloc_ub((256,), "float16")
            T.copy(A, a)
            T.copy(O, o)
            T.copy(W, s)
            T.tile.bilinear_interpolation(c, a, o, s, 128, 2, by_block, 1, 128, 2)
            T.copy(c, C)

    got = tilelang.compile(weigh, out_idx=[-1])(a, offsets, w)
    blocks = a.reshape(32, 16)[offsets // 32].reshape(2, 2, 8, 16).astype(np.float64)
    factor = w.astype(np.float64)
    factor = factor.reshape(2, 2, 8, 1) if by_block else factor[:4].reshape(2, 2, 1, 1)
    close(got, (blocks * factor).sum(1).ravel(), "float16", 1e-2)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int16", "int8"])
@pytest.mark.parametrize("shape", [(4, 16), (5, 7), (3, 40)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(dtype, shape, axis):
    a = numbers(dtype, shape) if dtype in FLOATS else (numbers(dtype, shape) % 100).astype(numpy_dtype(dtype))
    wide = np.abs(a.astype(np.float64 if dtype in FLOATS else np.int64))
    out = ((shape[1 - axis],), dtype)
    same(run(lambda c, a: T.reduce_absmax(a, c, dim=axis), a, out=out), wide.max(axis))
    got = run(lambda c, a: T.reduce_abssum(a, c, dim=axis), a, out=out)
    if dtype in FLOATS:
        close(got, wide.sum(axis), dtype, 1e-6 if dtype == "float32" else None)
        return
    same(got, wide.sum(axis).astype(a.dtype))
    for name, f in (("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor)):
        same(run(lambda c, a: getattr(T, f"reduce_{name}")(a, c, dim=axis), a, out=out), f.reduce(a, axis=axis))


# ---- views, scales --------------------------------------------------------------------------------------------------


def test_view_is_the_same_bytes():
    a = numbers("float32", (4, 16))

    def body(c, a):
        bits = T.view(a, dtype="int32")
        T.tile.bitwise_and(bits, bits, 0x7FFFFFFF)
        T.copy(a, c)

    same(run(body, a, out=(a.shape, "float32")), abs(a))


def test_reshape():
    a = numbers("float16", (4, 32))
    same(run(lambda c, a: T.copy(T.reshape(a, (-1, 16)), c), a, out=((8, 16), "float16")), a.reshape(8, 16))


def test_reinterpretcast():
    a = np.random.default_rng(0).permutation(64).astype(np.int32).reshape(1, 64)

    def body(c, a):
        at = T.alloc_ub((1, 64), "uint32")
        offsets = T.alloc_ub((1, 64), "int32")
        T.tile.mul(offsets, a, 4)
        T.reinterpretcast(at, offsets, "uint32_t")
        T.tile.gather(c, a, at, 0)

    same(run(body, a, out=(a.shape, "int32")), a.ravel()[a])


def test_view_of_another_size():
    def body(c, a):
        T.view(a, (3, 16))

    with pytest.raises(tilelang.CompileError, match="256 bytes and 192 bytes"):
        run(body, numbers("float32", (4, 16)), out=((4, 16), "float32"))


def test_scale_of_a_cast():
    a = np.arange(-32, 32, dtype=np.int32).reshape(4, 16) * 5000

    def body(c, a):
        T.set_deq_scale(0.25)
        T.tile.cast(c, a, "CAST_NONE", 64)

    same(run(body, a, out=(a.shape, "float16")), (a * 0.25).astype(np.float16))


def test_count_larger_than_the_tile():
    a = numbers("float16", (4, 16))
    with pytest.warns(tilelang.TileLangWarning, match="TL1024"):
        body = lambda c, a: T.tile.cast(c, a, "CAST_NONE", 100)  # noqa: E731
        k = tilelang.compile(kernel(body, [(a.shape, "float16")], (a.shape, "float32")), out_idx=[-1])
    same(k(a), a)


@pytest.mark.parametrize("mask_dtype", ["uint8", "int8"])
def test_mask_from_memory(mask_dtype):
    """Rows of a mask are shorter than 32 bytes: they are loaded apart and packed."""
    a = numbers("float32", (32, 64))
    bits = np.random.default_rng(0).integers(0, 2, (32, 64), np.uint8)
    mask = np.packbits(bits, axis=1, bitorder="little").view(mask_dtype)

    @T.prim_func
    def part(A: T.Tensor((32, 64), "float32"), M: T.Tensor((32, 32), mask_dtype), C: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=1):
            a = T.alloc_ub((32, 64), "float32")
            m = T.alloc_ub((32, 8), mask_dtype)
            c = T.alloc_ub((32, 64), "float32")
            T.copy(A, a)
            T.copy(M[:, 8:16], m)
            T.tile.select(c, m, a, -1.0, "VSEL_TENSOR_SCALAR_MODE")
            T.copy(c, C)

    wide = np.zeros((32, 32), mask_dtype)
    wide[:, 8:16] = mask
    same(tilelang.compile(part, out_idx=[-1])(a, wide), np.where(bits, a, -1))


@pytest.mark.parametrize("mask_dtype", ["uint8", "int8"])
def test_mask_to_memory(mask_dtype):
    a = numbers("float32", (32, 64))

    @T.prim_func
    def compare(A: T.Tensor((32, 64), "float32"), M: T.Tensor((32, 16), mask_dtype)):
        with T.Kernel(1, threads=1):
            a = T.alloc_ub((32, 64), "float32")
            m = T.alloc_ub((32, 8), mask_dtype)
            T.copy(A, a)
            T.tile.compare(m, a, 0.0, "GT")
            T.copy(m, M[:, 0:8])

    got = np.zeros((32, 16), mask_dtype)
    tilelang.compile(compare)(a, got)
    np.testing.assert_array_equal(got[:, :8], np.packbits(a > 0, axis=1, bitorder="little").view(mask_dtype))


# ---- T.Parallel over irregular elements ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int16", "bfloat16"])
@pytest.mark.parametrize("shape", [(16, 64), (5, 48), (3, 7)])
def test_parallel_gathers(dtype, shape):
    """By an index tile, by bits of the index, mirrored, transposed: the same numbers whatever form they take."""
    m, n = shape
    a, at = numbers(dtype, (m, n)), np.random.default_rng(5).integers(0, n, n).astype(np.int32)
    row = np.arange(m)[::-1][:, None]

    def by_index(c, a, b):
        for i, j in T.Parallel(m, n):
            c[i, j] = a[m - 1 - i, b[j]]

    same(run(by_index, a, at, out=(shape, dtype)), a[row, at])

    def turned(c, a):
        for i, j in T.Parallel(n, m):
            c[i, j] = a[j, n - 1 - i]

    same(run(turned, a, out=((n, m), dtype)), a[:, ::-1].T)
    if n % 2 == 0:

        def swapped(c, a):
            for i, j in T.Parallel(m, n):
                c[i, j] = a[i, j ^ 1]

        same(run(swapped, a, out=(shape, dtype)), a.reshape(m, n // 2, 2)[:, :, ::-1].reshape(shape))


# ---- little room ----------------------------------------------------------------------------------------------------


def test_scratch_that_has_no_room_is_done_in_pieces():
    """The tiles leave 7 kB of UB; whole, the sum wants 32 kB of scratch and the sine of the rows 64 kB."""

    @T.prim_func
    def tight(
        X: T.Tensor((128, 256), "float32"), Y: T.Tensor((60, 224), "float32"),
        S: T.Tensor((128,), "float32"), M: T.Tensor((128,), "float32"), Z: T.Tensor((60, 224), "float32")):  # fmt: skip
        with T.Kernel(1):
            a, b = T.alloc_ub((128, 256), "float32"), T.alloc_ub((60, 224), "float32")
            s, m = T.alloc_ub((128,), "float32"), T.alloc_ub((128,), "float32")
            T.copy(X, a)
            T.copy(Y, b)
            T.reduce_sum(a, s, dim=1)
            T.reduce_max(a, m, dim=1)
            T.tile.sin(b, b)
            T.copy(s, S)
            T.copy(m, M)
            T.copy(b, Z)
            T.copy(a, X)

    x, y = numbers("float32", (128, 256)), numbers("float32", (60, 224))
    kernel = tilelang.compile(tight, out_idx=[2, 3, 4])
    s, m, z = kernel(x.copy(), y)
    assert "in pieces of" in kernel.explain()
    np.testing.assert_allclose(s, x.sum(1), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(m, x.max(1))
    np.testing.assert_allclose(z, np.sin(y), rtol=1e-5, atol=1e-6)


def test_a_column_that_becomes_a_row_is_done_in_pieces():
    """Pieces of such a copy are rows on one side and columns on the other."""
    n, most = 746, 84600  # the offsets of the gather do not fit beside both

    @T.prim_func
    def copy_column(
        A: T.Tensor((n, 16), "float16"), B: T.Tensor((most,), "float16"),
        C: T.Tensor((n,), "float16"), D: T.Tensor((most,), "float16"),
    ):  # fmt: skip
        with T.Kernel(1):
            large = T.alloc_ub((most,), "float16")
            column = T.alloc_ub((n,), "float16")
            T.copy(B, large)
            T.copy(A[0:n, 3:4], column)
            T.copy(column, C)
            T.copy(large, D)

    kernel = tilelang.compile(copy_column)
    a, b = (np.random.default_rng(3).random(s).astype(np.float16) for s in ((n, 16), (most,)))
    c, d = np.zeros(n, np.float16), np.zeros(most, np.float16)
    kernel(a, b, c, d)
    assert np.array_equal(c, a[:, 3]) and np.array_equal(d, b)
    assert "in pieces of" in kernel.explain()
