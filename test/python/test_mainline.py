"""The style of mainline TileLang: what its programs write that the other dialects do not."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

rng = np.random.default_rng(5)


def floats(*shape):
    return rng.standard_normal(shape).astype("float32")


@tilelang.jit
def atomics(X, O, P, S, block):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    O: T.Tensor((N,), "float32")
    P: T.Tensor((M, N), "float32")
    S: T.Tensor((1,), "float32")
    with T.Kernel(T.ceildiv(M, block), 3) as (bx, by):
        T.use_swizzle(panel_size=10)
        x = T.alloc_fragment((block, N), "float32")
        T.copy(X[bx * block, 0], x)
        for i, j in T.Parallel(block, N):
            if x[i, j] > 0:
                T.atomic_add(O[j], x[i, j])
        for i, j in T.Parallel(block, N):
            T.atomic_add(P[bx * block + i, j], x[i, j], memory_order="relaxed")
        T.atomic_add(S[0], 2.5)


@pytest.mark.parametrize("m, n", [(48, 32), (40, 33)])
def test_atomic_additions(m, n):
    x, o, p, s = floats(m, n), np.zeros(n, "float32"), np.zeros((m, n), "float32"), np.zeros(1, "float32")
    atomics(x, o, p, s, 16)
    np.testing.assert_allclose(o, 3 * np.maximum(x, 0).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(p, 3 * x, rtol=1e-6)
    assert s[0] == 2.5 * 3 * 3


@tilelang.jit
def split_sum(X, parts):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((N,), "float32")
    partial = T.alloc_global((parts, N), "float32")
    rows = M // parts
    with T.Kernel(parts) as bx:
        x, s = T.alloc_fragment((rows, N), "float32"), T.alloc_fragment((N,), "float32")
        T.copy(X[bx * rows, 0], x)
        T.reduce_sum(x, s, dim=0)
        T.copy(s, partial[bx, 0])
    with T.Kernel(1) as _:
        x, s = T.alloc_fragment((parts, N), "float32"), T.alloc_fragment((N,), "float32")
        T.copy(partial, x)
        T.reduce_sum(x, s, dim=0)
        T.copy(s, Y)
    return Y


def test_two_launches_and_scratch_between():
    x = floats(64, 96)
    np.testing.assert_allclose(split_sum(x, 4), x.sum(0), rtol=1e-4, atol=1e-5)
    kernel = split_sum.compile(M=64, N=96, parts=4)
    assert [p.role for p in kernel.params] == ["in", "out", "workspace"]
    np.testing.assert_allclose(kernel(x), x.sum(0), rtol=1e-4, atol=1e-5)
    assert kernel.last_run["blocks"] == 5
    np.testing.assert_allclose(kernel.interpret(x), x.sum(0), rtol=1e-4, atol=1e-5)
    assert kernel.ir().count("kernel @") == kernel.ir("lowered").count("kernel @") == 2
    assert kernel.get_kernel_source().count("__global__") == 2


@tilelang.jit
def reducers(X, S, best, rows):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    S: T.Tensor((M // rows, N), "float32")
    best: T.Tensor((M,), "float32")
    with T.Kernel(M // rows) as bx:
        x = T.alloc_fragment((rows, N), "float32")
        total = T.alloc_reducer(N, "float32", replication="all")
        top = T.alloc_reducer((rows,), "float32", "max")
        T.copy(X[bx * rows, 0], x)
        T.fill(total, 0)
        T.reducer_init(top)
        for i, j in T.Parallel(rows, N):
            total[j] += x[i, j]
            T.reducer_update(top[i], x[i, j])
        T.finalize_reducer(total)
        T.finalize_reducer(top, best[bx * rows : (bx + 1) * rows])
        T.copy(total, S[bx, :])


def test_reducers():
    x, s, best = floats(32, 64), np.empty((2, 64), "float32"), np.empty(32, "float32")
    reducers(x, s, best, 16)
    np.testing.assert_allclose(s, x.reshape(2, 16, 64).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(best, x.max(1))


@tilelang.jit
def middle(X, dtype, block):
    B, H, W = T.const("B, H, W")
    X: T.Tensor((B, H, W), dtype)
    Y = T.empty((B, W), "float32")
    Z = T.empty((B, H), "float32")
    with T.Kernel(B // block) as bx:
        x = T.alloc_fragment((block, H, W), dtype)
        y, z = T.alloc_fragment((block, W), "float32"), T.alloc_fragment((block, H), "float32")
        T.copy(X[bx * block, 0, 0], x)
        T.reduce_sum(x, y, dim=1)
        T.reduce_max(x, z, dim=2)
        T.copy(y, Y[bx * block, 0])
        T.copy(z, Z[bx * block, 0])
    return Y, Z


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("h, w, block", [(4, 4, 1), (8, 32, 4), (5, 24, 2)])
def test_reductions_over_a_middle_axis(dtype, h, w, block):
    x = floats(8, h, w).astype(dtype)
    y, z = middle(x, dtype, block)
    np.testing.assert_allclose(y, x.astype("float32").sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(z, x.astype("float32").max(2))


@tilelang.jit
def convolve(X, F, stride, dilation, pad, bm, bn, bk):
    N, H, W, C, K, O = T.const("N, H, W, C, K, O")
    OH = (H + 2 * pad - dilation * (K - 1) - 1) // stride + 1
    OW = (W + 2 * pad - dilation * (K - 1) - 1) // stride + 1
    X: T.Tensor((N, H, W, C), "float16")
    F: T.Tensor((K, K, C, O), "float16")
    Y = T.empty((N, OH, OW, O), "float16")
    with T.Kernel(T.ceildiv(O, bn), T.ceildiv(N * OH * OW, bm)) as (bx, by):
        x, f = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
        y = T.alloc_fragment((bm, bn), "float32")
        flat, out = T.Tensor((K * K * C, O), "float16", F.data), T.Tensor((N * OH * OW, O), "float16", Y.data)
        T.clear(y)
        for k in T.Pipelined(T.ceildiv(K * K * C, bk), num_stages=2):
            T.im2col(X, x, by, k, K, stride, dilation, pad)
            T.copy(flat[k * bk, bx * bn], f)
            T.gemm(x, f, y)
        T.copy(y, out[by * bm, bx * bn])
    return Y


def convolved(x, f, stride, dilation, pad):
    x = np.pad(x.astype("float32"), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    reach = dilation * (f.shape[0] - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (reach, reach), (1, 2))
    windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return np.einsum("nhwcij,ijco->nhwo", windows, f.astype("float32"))


@pytest.mark.parametrize(
    "c, k, stride, dilation, pad, bk", [(32, 3, 1, 1, 1, 32), (16, 3, 2, 1, 0, 32), (32, 2, 1, 2, 1, 16)]
)
def test_convolution(c, k, stride, dilation, pad, bk):
    x, f = floats(2, 9, 7, c).astype("float16"), floats(k, k, c, 32).astype("float16")
    want = convolved(x, f, stride, dilation, pad)
    np.testing.assert_allclose(convolve(x, f, stride, dilation, pad, 32, 32, bk), want, rtol=1e-2, atol=2e-2)


@T.prim_func
def early(X: T.Tensor((64, 32), "float32"), n: T.int32, Y: T.Tensor((64, 32), "float32")):
    with T.Kernel(4) as bx:
        if bx >= n:
            T.thread_return()
        x = T.alloc_fragment((16, 32), "float32")
        T.copy(X[bx * 16, 0], x)
        if bx == 0:
            T.copy(x, Y[48, 0])
        else:
            T.thread_return()
        T.copy(x, Y[0, 0])


def test_early_return():
    x, y = floats(64, 32), np.zeros((64, 32), "float32")
    early(x, 2, y)
    want = np.zeros_like(y)
    want[48:], want[:16] = x[:16], x[:16]
    np.testing.assert_array_equal(y, want)
    y[:] = 0
    early.compiled().interpret(x, 2, y)
    np.testing.assert_array_equal(y, want)


@tilelang.jit
def between(X, Y, Z):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y: T.Tensor((M, N), "float16")
    Z: T.Tensor((N, M), "float32")
    with T.Kernel(T.ceildiv(M, 16)) as bx:
        T.copy(X[bx * 16 : bx * 16 + 16, :], Y[bx * 16 : bx * 16 + 16, :])
        T.copy(X[bx * 16, 0:1], Z[0, bx * 16 : bx * 16 + 1])


def test_copies_between_tensors():
    x, y, z = floats(40, 33), np.zeros((40, 33), "float16"), np.zeros((33, 40), "float32")
    between(x, y, z)
    np.testing.assert_array_equal(y, x.astype("float16"))
    np.testing.assert_array_equal(z[0, [0, 16, 32]], x[[0, 16, 32], 0])


def rows_of(strided):
    n, pitch = T.dynamic("n"), T.dynamic("pitch")

    @T.prim_func
    def f(
        X: T.StridedTensor[(n, 32), (pitch, 1), "float32"] if strided else T.Tensor((n, 32), "float32"),
        S: T.Tensor((n,), "float32"),
        Y: T.StridedTensor((n, 32), (pitch, 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 8)) as bx:
            x = T.alloc_fragment((8, 32), "float32")
            T.copy(X[bx * 8, 0], x)
            for i, j in T.Parallel(8, 32):
                x[i, j] = x[i, j] * 2.0
            T.copy(x, Y[bx * 8, 0])

    return tilelang.compile(f)


def test_strided_and_absent_tensors():
    x, y = floats(20, 48), np.zeros((20, 40), "float32")
    rows_of(True)(x[:, :32], None, y[:, 8:])
    np.testing.assert_array_equal(y[:, 8:], 2 * x[:, :32])
    assert not y[:, :8].any()
    with pytest.raises(tilelang.ArgumentError, match="not contiguous"):
        rows_of(False)(x[:, :32], None, y[:, 8:])
    with pytest.raises(tilelang.ArgumentError, match="'X' is None"):
        rows_of(True)(None, None, y[:, 8:])


@tilelang.autotune(configs=[{"rows": 8}, {"rows": 16}])
@tilelang.jit
def doubled(X, rows=None):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, rows)) as bx:
        x = T.alloc_shared((rows, N), "float32")
        T.copy(X[bx * rows, 0], x)
        for i, j in T.Parallel(rows, N):
            x[i, j] += x[i, j]
        T.copy(x, Y[bx * rows, 0])
    return Y


@tilelang.autotune(configs=[{"rows": 8}, {"rows": 16}])
@tilelang.jit
def rows_less(X, Y, rows=None):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y: T.Tensor((N,), "float32")
    Z = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, rows)) as bx:
        x = T.alloc_shared((rows, N), "float32")
        y = T.alloc_shared((N,), "float32")
        T.copy(X[bx * rows, 0], x)
        T.copy(Y, y)
        for i, j in T.Parallel(rows, N):
            x[i, j] -= y[j]
        T.copy(x, Z[bx * rows, 0])
    return Z


def test_a_tuned_eager_kernel_runs():
    x = floats(32, 64)
    np.testing.assert_array_equal(doubled(x), 2 * x)
    np.testing.assert_array_equal(doubled(x, rows=4), 2 * x)
    np.testing.assert_array_equal(rows_less(Y=x[0], X=x), x - x[0])


@tilelang.jit
def meeting(X, at, S, top, low):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    at: T.Tensor((M,), "int32")
    S: T.Tensor((3, N), "float32")
    top: T.Tensor((8,), "float32")
    low: T.Tensor((8,), "float32")
    with T.Kernel(1):
        x, i = T.alloc_fragment((M, N), "float32"), T.alloc_shared((M,), "int32")
        s, t = T.alloc_fragment((3, N), "float32"), T.alloc_fragment((8,), "float32")
        u = T.alloc_fragment((8,), "float32")
        T.copy(X, x)
        T.copy(at, i)
        T.clear(s)
        T.clear(u)
        T.fill(t, -T.infinity("float32"))
        for a, b in T.Parallel(M, N):
            s[T.min(2, a // 4), b] += x[a, b]
        for a in T.Parallel(M):
            t[i[a]] = T.max(t[i[a]], x[a, 0])
        for a in T.Parallel(M):
            u[i[a]] -= x[a, 1]
        T.copy(s, S)
        T.copy(t, top)
        T.copy(u, low)


def test_terms_that_meet_in_one_element():
    x, at = floats(24, 16), rng.integers(0, 8, 24).astype("int32")
    s, top, low = np.empty((3, 16), "float32"), np.empty(8, "float32"), np.empty(8, "float32")
    meeting(x, at, s, top, low)
    want, most, less = np.zeros((3, 16)), np.full(8, -np.inf), np.zeros(8)
    np.add.at(want, np.minimum(np.arange(24) // 4, 2), x)
    np.maximum.at(most, at, x[:, 0])
    np.subtract.at(less, at, x[:, 1])
    np.testing.assert_allclose(s, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(low, less, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(top, most.astype("float32"))


@tilelang.jit(out_idx=[-1])
def widened(n):
    @T.prim_func
    def f(X: T.Tensor((n,), "uint8"), Y: T.Tensor((n,), "uint16")):
        with T.Kernel(1):
            x, y = T.alloc_shared((n,), "uint8"), T.alloc_fragment((n,), "uint16")
            T.copy(X, x)
            for i in T.Parallel(n):
                y[i] = (x[i] >> (T.cast(i % 2, T.uint16) * T.uint16(4))) << 9
            T.copy(y, Y)

    return f


def test_a_shift_takes_the_wider_dtype():
    x = np.arange(64, dtype="uint8") * 4
    want = (x.astype("uint16") >> (np.arange(64) % 2 * 4).astype("uint16")) << np.uint16(9)
    np.testing.assert_array_equal(widened(64)(x), want)


def test_a_tuner_made_from_a_function():
    def kernel(block=None):
        @T.prim_func
        def double(X: T.Tensor((4800, 64), "float32"), Y: T.Tensor((4800, 64), "float32")):
            with T.Kernel(T.ceildiv(4800, block)) as bx:
                x = T.alloc_shared((block, 64), "float32")
                T.copy(X[bx * block, 0], x)
                for i, j in T.Parallel(block, 64):
                    x[i, j] = x[i, j] * 2.0
                T.copy(x, Y[bx * block, 0])

        return double

    tuner = tilelang.autotuner.AutoTuner.from_kernel(kernel, configs=[{"block": 4}, {"block": 50}, {"block": 4000}])
    result = tuner.set_compile_args(out_idx=[-1]).set_profile_args(ref_prog=lambda x: x * 2).run(warmup=3)
    assert result.config == {"block": 50} and 0 < result.latency == result.kernel.latency
    x = floats(4800, 64)
    np.testing.assert_array_equal(result.kernel(x), x * 2)


def test_a_tuned_kernel_by_its_sizes():
    kernel = doubled.compile(M=32, N=64)
    assert set(kernel.config) == {"rows"}
    profiler = kernel.get_profiler()
    assert profiler.func is kernel
    profiler.assert_allclose(lambda x: x * 2)
    assert doubled.compile(M=32, N=64, rows=4).explain() != kernel.explain()


@pytest.mark.parametrize("supply, mean, deviation", [("Auto", 0, 3**-0.5), ("Normal", -1, 1), ("Randn", 0, 1)])
def test_inputs_are_those_of_mainline(supply, mean, deviation):
    from tilelang.profiler.bench import make_tensor

    made = make_tensor((100, 100), T.float16, getattr(tilelang.TensorSupplyType, supply), 0).astype("float32")
    assert abs(made.mean() - mean) < 0.05 and abs(made.std() - deviation) < 0.05


def product(m, n, k, bm, bn, bk, panel, order="row"):
    @T.prim_func
    def f(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm)) as (bx, by):
            a, b = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(panel, order=order, enable=panel > 0)
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, i * bk], a)
                T.copy(B[i * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return tilelang.compile(f)


@pytest.mark.parametrize("panel, order", [(1, "row"), (3, "row"), (5, "column"), (99, "column")])
def test_blocks_in_panels(panel, order):
    """10 x 7 blocks: panels of which the last one is smaller, and one panel; numbers as in the order of the grid."""
    kernel = product(300, 200, 64, 32, 32, 32, panel, order)
    a, b = floats(300, 64).astype("float16"), floats(64, 200).astype("float16")
    for run in (kernel, kernel.interpret):
        c = np.zeros((300, 200), "float32")
        run(a, b, c)
        np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)
    for target in ("ascendc", "pto"):
        assert "panel % 2" in kernel.get_kernel_source(target)


def test_panels_keep_tiles_in_l2():
    """The order is what makes the difference: the rows and columns of a panel fit L2, those of the grid do not."""
    by_grid, by_panel = (product(8192, 24576, 4096, 128, 256, 64, panel).profile() for panel in (0, 4))
    assert by_grid.l2_hit < 0.5 < 0.9 < by_panel.l2_hit and by_panel.us < 0.9 * by_grid.us


def test_where_panels_have_no_effect():
    def late():
        @T.prim_func
        def f(X: T.Tensor((4, 4), "float32")):
            with T.Kernel(4, 4) as (bx, by):
                X[bx, by] = 1.0
                T.use_swizzle(2)

        return f

    assert "T.use_swizzle(panel) has no effect here: it stands after" in late().traced.builder.notes[0].text
    with pytest.raises(tilelang.CompileError, match="panel_size=int 0"):

        @T.prim_func
        def f(X: T.Tensor((4, 4), "float32")):
            with T.Kernel(4, 4) as (bx, by):
                T.use_swizzle(0)


def test_a_tuned_kernel_that_writes_to_its_inputs():
    """Each configuration and the reference start from the same inputs."""

    @tilelang.autotune(configs=[{"rows": 8}, (16,)], ref_prog=lambda x: x + 1)
    @tilelang.jit(out_idx=[-1])
    def more(rows):
        @T.prim_func
        def f(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((32, 64), "float32")):
            with T.Kernel(32 // rows) as bx:
                x = T.alloc_shared((rows, 64), "float32")
                T.copy(X[bx * rows, 0], x)
                for i, j in T.Parallel(rows, 64):
                    x[i, j] += 1
                T.copy(x, X[bx * rows, 0])
                T.copy(x, Y[bx * rows, 0])

        return f

    assert ["reason" in t for t in more().get_tuner_result()["tried"]] == [False, False]
    with pytest.raises(tilelang.ArgumentError, match="has 2 values, 'more' 1 arguments left"):
        tilelang.autotune(configs=[(8, 16)])(more.jit)()


@pytest.mark.parametrize(
    "got, want, says",
    [
        (1, (1,), None), ((1, 2), [1, 2], None), ([1, 2, 3], [[1, 2, 3]], "3 results, the reference has 1"),
        ((1, 2), 1, "2 results, the reference has 1"), (None, 1, "the kernel returns nothing"), (2, 1, "by 1 at most"),
    ],
)  # fmt: skip
def test_results_are_as_many_as_the_references(got, want, says):
    from tilelang.profiler.bench import agree

    found = agree(got, want, 0, 0)
    assert says in found if says else found is None
