"""Reports about tail blocks, bounds and alignment."""

import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError, KernelFault


@pytest.mark.parametrize("k", [200, 100, 17])
def test_R050_the_tail_of_k_is_zero(rng, agree, k):
    @T.prim_func
    def f(A: T.Tensor((64, k), "float16"), B: T.Tensor((k, 128), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            for s in T.Pipelined(T.ceildiv(k, 64), num_stages=2):
                T.copy(A[0, s * 64], a)
                T.copy(B[s * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((64, k), (k, 128)))
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)


@pytest.mark.parametrize("lo, hi, stages", [(0, 3, 2), (0, 2, 3), (2, 6, 2), (0, 1, 2), (0, None, 2), (1, None, 3)])
def test_R051_pipelined_loops_run_every_index(lo, hi, stages):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n if hi is None else hi, 16), "float32"), Y: T.Tensor((8, 16), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((16,), "float32")
            for k in T.Pipelined(lo, n if hi is None else hi, num_stages=stages):
                T.copy(X[k, :], x)
                for i in T.Parallel(16):
                    x[i] = x[i] + 1.0
                T.copy(x, Y[k, :])

    kernel = tilelang.compile(f)
    for end in [hi] if hi is not None else [1, 2, 5]:
        x, y = np.arange(end * 16, dtype=np.float32).reshape(end, 16), np.zeros((8, 16), np.float32)
        want = y.copy()
        want[lo:end] = x[lo:end] + 1
        kernel(x, y)
        assert np.array_equal(y, want)


@pytest.mark.parametrize("m, cores", [(256, 24), (64, 24), (320, 3)])
def test_R052_fewer_tiles_than_cores(rng, agree, m, cores):
    @T.prim_func
    def f(A: T.Tensor((m, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((m, 64), "float32")):
        with T.Kernel(cores) as cid:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for i, j in T.Persistent([m // 64, 1], cores, cid):
                T.copy(A[i * 64, 0], a)
                T.copy(B[0, j * 64], b)
                T.gemm(a, b, c, clear_accum=True)
                T.copy(c, C[i * 64, j * 64])

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, 64), (64, 64)))
    agree(tilelang.compile(f, out_idx=-1)(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)


@pytest.mark.parametrize("dtype, pad", [("int32", -99), ("float32", -np.inf), ("float16", 1.5)])
def test_R053_the_pad_value_is_honoured(rng, dtype, pad):
    @T.prim_func
    def f(X: T.Tensor((60, 60), dtype), Y: T.Tensor((64, 64), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64, 64), dtype)
            T.copy(X[0, 0], x, pad_value=pad)
            T.copy(x, Y)

    x = rng.integers(-4, 5, (60, 60)).astype(dtype)
    want = np.full((64, 64), pad, dtype)
    want[:60, :60] = x
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


def test_R054_a_slice_past_the_end_is_refused(fails):
    def make(what):
        def go():
            @T.prim_func
            def f(X: T.Tensor((64,), "float32"), n: T.int32):
                with T.Kernel(1) as bx:
                    x = T.alloc_ub((64,), "float32")
                    y = T.alloc_ub((64,), "float32")
                    T.tile.fill(y, 1.0)
                    if what == "fill":
                        T.tile.fill(x[56:72], 0.0)
                    elif what == "clear":
                        T.clear(x[60:65])
                    else:
                        T.copy(y[0:16], x[56:72])
                    T.copy(y, X)

        return go

    for what, span in (("fill", "56:72"), ("clear", "60:65"), ("copy", "56:72")):
        found = fails(make(what), "TL1011", span, "'x'", "64")
        assert found[0].other["text"] == "'x' is made here"


def test_R054_a_run_time_slice_past_the_end_is_found():
    @T.prim_func
    def f(n: T.int32, X: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            y = T.alloc_ub((64,), "float32")
            T.tile.fill(x, 0.0)
            T.tile.fill(y, 1.0)
            T.tile.fill(x[n : n + 16], 2.0)
            T.copy(x, X)

    kernel = tilelang.compile(f, out_idx=-1)
    assert kernel(48)[48:].tolist() == [2.0] * 16
    with pytest.raises(KernelFault) as caught:
        kernel(56)
    assert caught.value.code in ("TL0801", "TL0804") and "x" in caught.value.errors[0].text


@pytest.mark.parametrize("n", [1, 7, 50, 63])
def test_R055_every_byte_of_a_run_is_stored(rng, n):
    @T.prim_func
    def f(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float16")
            T.copy(X, x[0:n])
            T.copy(x[0:n], Y)

    x = rng.standard_normal(n).astype(np.float16)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x)


def test_R056_partial_last_block_in_one_dimension(rng):
    @T.prim_func
    def f(X: T.Tensor((1000,), "float32"), Y: T.Tensor((1000,), "float32")):
        with T.Kernel(T.ceildiv(1000, 256)) as bx:
            x = T.alloc_ub((256,), "float32")
            T.copy(X[bx * 256], x)
            T.tile.mul(x, x, 2.0)
            T.copy(x, Y[bx * 256])

    x = rng.standard_normal(1000, np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), 2 * x)


def test_R057_the_ir_shows_which_accesses_are_guarded(rng):
    def add(n):
        @T.prim_func
        def f(X: T.Tensor((n, n), "float32"), Y: T.Tensor((n, n), "float32")):
            with T.Kernel(T.ceildiv(n, 64), T.ceildiv(n, 64)) as (bx, by):
                x = T.alloc_ub((64, 64), "float32")
                T.copy(X[by * 64, bx * 64], x)
                T.tile.add(x, x, 1.0)
                T.copy(x, Y[by * 64, bx * 64])

        return tilelang.compile(f, out_idx=-1)

    assert "min(" not in add(128).ir("lowered")  # whole tiles: no guard
    kernel = add(100)
    assert "min(64, 100 - " in kernel.ir("lowered")
    x = rng.standard_normal((100, 100), np.float32)
    assert np.array_equal(kernel(x), x + 1)


@pytest.mark.parametrize("rows", [1, 5, 16, 33, 64])
@pytest.mark.parametrize("scaled", [False, True])
def test_R058_R059_valid_rows_known_at_run_time(rng, agree, rows, scaled):
    m = T.symbolic("m")

    @T.prim_func
    def f(A: T.Tensor((m, 32), "int8"), B: T.Tensor((32, 64), "int8"), C: T.Tensor((m, 64), "float32")):
        with T.Kernel(T.ceildiv(m, 64)) as bx:
            a = T.alloc_shared((64, 32), "int8")
            b = T.alloc_shared((32, 64), "int8")
            c = T.alloc_fragment((64, 64), "int32")
            y = T.alloc_shared((64, 64), "float32")
            T.copy(A[bx * 64, 0], a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                y[i, j] = T.cast(c[i, j], "float32") * (0.5 if scaled else 1.0)
            T.copy(y, C[bx * 64, 0])

    kernel = tilelang.compile(f)
    a, b = (rng.integers(-8, 9, s).astype(np.int8) for s in ((rows, 32), (32, 64)))
    c = np.full((rows, 64), np.nan, np.float32)
    kernel(a, b, c)
    agree(c, (a.astype(np.int32) @ b.astype(np.int32)) * (0.5 if scaled else 1.0), 0)


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_R060_valid_rows_through_cast_square_and_sum(rng, agree, rows):
    m = T.symbolic("m")

    @T.prim_func
    def f(X: T.Tensor((m, 256), "float16"), Y: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, 8)) as bx:
            h = T.alloc_shared((8, 256), "float16")
            x = T.alloc_fragment((8, 256), "float32")
            s = T.alloc_fragment((8,), "float32")
            T.copy(X[bx * 8, 0], h)
            T.copy(h, x)
            for i, j in T.Parallel(8, 256):
                x[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(x, s, dim=1)
            T.copy(s, Y[bx * 8])

    x = rng.integers(-4, 5, (rows, 256)).astype(np.float16)
    y = np.full(rows, np.nan, np.float32)
    tilelang.compile(f)(x, y)
    agree(y, (x.astype(np.float32) ** 2).sum(1), 0)


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_R061_a_column_of_narrow_rows(rng, m):
    @T.prim_func
    def f(X: T.Tensor((m, 1), "float32"), Y: T.Tensor((m, 16), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((m, 1), "float32")
            y = T.alloc_ub((m, 16), "float32")
            T.copy(X, x)
            T.tile.broadcast(y, x)
            T.copy(y, Y)

    x = rng.standard_normal((m, 1), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), np.broadcast_to(x, (m, 16)))


@pytest.mark.parametrize("shape", [(4, 100), (3, 5), (1, 7)])
def test_R062_bitwise_not_of_any_size(rng, shape):
    @T.prim_func
    def f(X: T.Tensor(shape, "int16"), Y: T.Tensor(shape, "int16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub(shape, "int16")
            T.copy(X, x)
            T.tile.bitwise_not(x, x)
            T.copy(x, Y)

    x = rng.integers(-30000, 30000, shape).astype(np.int16)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), ~x)


def test_R063_rows_of_sixteen_bytes(rng):
    @T.prim_func
    def f(X: T.Tensor((8, 4), "float32"), Y: T.Tensor((8, 4), "float32"), Z: T.Tensor((8, 4), "float32")):
        with T.Kernel(4) as bx:
            x = T.alloc_ub((2, 4), "float32")
            y = T.alloc_ub((2, 4), "float32")
            T.copy(X[bx * 2, 0], x)
            T.copy(Y[bx * 2, 0], y)
            T.tile.add(x, x, y)
            T.copy(x, Z[bx * 2, 0])

    x, y = rng.standard_normal((8, 4), np.float32), rng.standard_normal((8, 4), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x, y), x + y)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("lo, hi", [(8, 40), (3, 40), (16, 64)])
def test_R064_columns_of_a_tile_as_operands(rng, dtype, lo, hi):
    @T.prim_func
    def f(X: T.Tensor((4, 64), dtype), Y: T.Tensor((4, 64), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((4, 64), dtype)
            T.copy(X, x)
            T.tile.add(x[:, lo:hi], x[:, lo:hi], x[:, lo:hi])
            T.copy(x, Y)

    x = rng.standard_normal((4, 64)).astype(dtype)
    want = x.copy()
    want[:, lo:hi] *= 2
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), want)


def test_R065_the_declared_pitch_of_a_padded_tile(rng):
    @T.prim_func
    def f(X: T.Tensor((8, 32), "float32"), Y: T.Tensor((8, 32), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8, 40), "float32")
            T.tile.fill(x, -1.0)
            T.copy(X, x[:, 0:32])
            T.copy(x[:, 0:32], Y)

    x = rng.standard_normal((8, 32), np.float32)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x)


def test_R066_rows_of_eleven_halves_leave_their_neighbours_alone(rng):
    @T.prim_func
    def f(X: T.Tensor((3, 11), "float16"), Y: T.Tensor((5, 16), "float16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((3, 11), "float16")
            T.copy(X, x)
            T.tile.add(x, x, 1.0)
            T.copy(x, Y[1:4, 3:14])

    x, y = rng.standard_normal((3, 11)).astype(np.float16), np.full((5, 16), 7, np.float16)
    want = y.copy()
    want[1:4, 3:14] = x + np.float16(1)
    tilelang.compile(f)(x, y)
    assert np.array_equal(y, want)


@pytest.mark.parametrize("offset", [0, 1, 2, 15])
def test_R067_any_start_in_global_memory(rng, offset):
    @T.prim_func
    def f(X: T.Tensor((128,), "float16"), Y: T.Tensor((100,), "float16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((100,), "float16")
            T.copy(X[offset : offset + 100], x)
            T.copy(x, Y)

    x = rng.standard_normal(128).astype(np.float16)
    assert np.array_equal(tilelang.compile(f, out_idx=-1)(x), x[offset : offset + 100])


@pytest.mark.parametrize("offset", [1, 8, 16, 17])
def test_R067_operands_from_before_the_start(rng, offset):
    """The pad stands in whole rows of an operand in L1; in columns it would end inside a fractal: that is said."""

    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 32), "float16"), C: T.Tensor((64, 32), "float32")):
        with T.Kernel(4) as bx:
            a, b = T.alloc_L1((16, 64), "float16"), T.alloc_L1((64, 32), "float16")
            c = T.alloc_L0C((16, 32), "float32")
            T.copy(A[bx * 16 - offset, 0], a, pad_value=0)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, C[bx * 16, 0])

    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 64), (64, 32)))
    shifted = np.zeros_like(a)
    shifted[offset:] = a[:-offset]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the last rows are left out on purpose
        assert np.array_equal(tilelang.compile(f, out_idx=-1)(a, b), shifted.astype(np.float32) @ b.astype(np.float32))

    @T.prim_func
    def g(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(2) as bx:
            a = T.alloc_L1((16, 64), "float16")
            T.copy(A[0, bx * 16 - offset], a, pad_value=0)

    with pytest.raises(CompileError, match="inside a fractal") as caught:
        tilelang.compile(g)
    assert caught.value.errors[0].code == "TL0500" and "T.alloc_ub" in caught.value.errors[0].fix
