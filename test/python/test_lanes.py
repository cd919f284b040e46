"""T.Parallel over elements that take turns: pairs stored side by side, values that lie several in a word. None of these
may become a scalar loop."""

import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T

rng = np.random.default_rng(7)


def compiled(main):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tilelang.compile(main, out_idx=[-1])


def values(dtype, *shape):
    return rng.integers(-8, 8, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("m, n", [(8, 64), (3, 32), (96, 128)])
def test_rotation_of_pairs(dtype, m, n):
    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), C: T.Tensor((n // 2,), dtype), S: T.Tensor((n // 2,), dtype),
             O: T.Tensor((m, n), dtype)):  # fmt: skip
        with T.Kernel(1, threads=1):
            x, c, s = T.alloc_ub((m, n), dtype), T.alloc_ub((n // 2,), dtype), T.alloc_ub((n // 2,), dtype)
            T.copy(X, x)
            T.copy(C, c)
            T.copy(S, s)
            for i, j in T.Parallel(m, n // 2):
                a = x[i, 2 * j]
                b = x[i, 2 * j + 1]
                x[i, 2 * j] = a * c[j] - b * s[j]
                x[i, 2 * j + 1] = a * s[j] + b * c[j]
            T.copy(x, O)

    x, c, s = values(dtype, m, n), values(dtype, n // 2), values(dtype, n // 2)
    want = np.stack([x[:, ::2] * c - x[:, 1::2] * s, x[:, ::2] * s + x[:, 1::2] * c], -1).reshape(m, n)
    np.testing.assert_array_equal(compiled(main)(x, c, s), want)


def test_three_lanes_into_a_tensor():
    @T.prim_func
    def main(X: T.Tensor((20, 32), "float32"), O: T.Tensor((20, 90), "float32")):
        with T.Kernel(1, threads=1):
            x = T.alloc_ub((20, 32), "float32")
            T.copy(X, x)
            for i, j in T.Parallel(20, 32):
                O[i, 3 * j + 2] = -x[i, j]
                O[i, 3 * j] = x[i, j] + 1.0
                O[i, 3 * j + 1] = x[i, j] * 2.0

    x = values("float32", 20, 32)
    want = np.stack([x + 1, x * 2, -x], -1).reshape(20, 96)[:, :90]
    np.testing.assert_array_equal(compiled(main)(x), want)


def test_a_lane_that_reads_another_stays_in_order():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=1):
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            for j in T.Parallel(32):
                x[2 * j] = x[2 * j] * 2.0
                x[2 * j + 1] = x[2 * j] + x[2 * j + 1]
            T.copy(x, O)

    x = values("float32", 64)
    want = x.copy()
    want[::2] *= 2
    want[1::2] += want[::2]
    np.testing.assert_array_equal(tilelang.compile(main, out_idx=[-1])(x), want)


@pytest.mark.parametrize("word, bits", [("uint8", 4), ("uint8", 2), ("int8", 4), ("int32", 4), ("int32", 8)])
def test_values_in_words(word, bits):
    size = 8 * np.dtype(word).itemsize // bits
    m, n, mask = 12, 64, (1 << bits) - 1

    @T.prim_func
    def main(W: T.Tensor((m, n), word), O: T.Tensor((m, n * size), "float16")):
        with T.Kernel(1, threads=1):
            w, o = T.alloc_ub((m, n), word), T.alloc_ub((m, n * size), "float16")
            T.copy(W, w)
            for i, j in T.Parallel(m, n * size):
                o[i, j] = T.cast((w[i, j // size] >> (j % size * bits)) & mask, "float16")
            T.copy(o, O)

    info = np.iinfo(word)
    w = rng.integers(info.min, info.max, (m, n), endpoint=True).astype(word)
    want = np.stack([(w.astype("int64") >> (bits * k)) & mask for k in range(size)], -1).reshape(m, n * size)
    np.testing.assert_array_equal(compiled(main)(w), want)


def test_bits_of_elements():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), W: T.Tensor((8, 64), "uint8"), O: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=1):
            x, w = T.alloc_ub((8, 64), "float32"), T.alloc_ub((8, 64), "uint8")
            T.copy(X, x)
            T.copy(W, w)
            for i, j in T.Parallel(8, 64):
                exponent = (T.reinterpret("int32", x[i, j] * 2.0) >> 23) & 255
                low = T.reinterpret("int8", w[i, j] << 4) >> 4
                x[i, j] = T.cast(exponent, "float32") + T.cast(low, "float32") * 1000.0
            T.copy(x, O)

    x, w = rng.random((8, 64), "float32") * 100, rng.integers(0, 256, (8, 64)).astype("uint8")
    want = ((x * 2).view("int32") >> 23 & 255) + ((w << 4).view("int8") >> 4).astype("float32") * 1000
    np.testing.assert_array_equal(compiled(main)(x, w), want)


def test_random_numbers_in_uint32():
    n = 512

    @T.prim_func
    def main(S: T.Tensor((n,), "uint32"), R: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=1):
            s, r = T.alloc_ub((n,), "uint32"), T.alloc_ub((n,), "float32")
            T.copy(S, s)
            for i in T.Parallel(n):
                a = s[i] ^ (s[i] << 13)
                b = a ^ (a >> 17)
                s[i] = (b ^ (b << 5)) * T.uint32(1664525) + T.uint32(1013904223)
            for i in T.Parallel(n):
                r[i] = T.cast(s[i] >> 8, "float32")
            T.copy(r, R)

    s = rng.integers(0, 2**32, n).astype("uint32")
    a = s ^ s << np.uint32(13)
    b = a ^ a >> np.uint32(17)
    want = ((b ^ b << np.uint32(5)) * np.uint32(1664525) + np.uint32(1013904223)) >> np.uint32(8)
    np.testing.assert_array_equal(compiled(main)(s), want.astype("float32"))
