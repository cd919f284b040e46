"""Kernels against numpy on the simulated chip, every check on."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.language.dtypes import numpy_dtype

pytest.importorskip("tilelang._core")


def normal(shape, dtype="float16", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return (x * 50).astype(numpy_dtype(dtype)) if "int" in dtype else x.astype(numpy_dtype(dtype))


def product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def close(got, want, k, rtol=1e-5):
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=rtol, atol=rtol * 8 * np.sqrt(k))


# ---- matrix products ------------------------------------------------------------------------------------------------


def gemm_simple(M, N, K, bm=64, bn=64):
    """The article's kernel with shapes that agree: the whole K extent in L1."""

    @T.prim_func
    def gemm_simple(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, K), "float16")
            b = T.alloc_shared((K, bn), "float16")
            c = T.alloc_local((bm, bn), "float32", scope="local")
            T.copy(A[by * bm : by * bm + bm, :], a)
            T.copy(B[:, bx * bn : bx * bn + bn], b)
            for i, j, k in T.Parallel(bm, bn, K):
                c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C[by * bm : by * bm + bm, bx * bn : bx * bn + bn])

    return gemm_simple


def gemm_k_loop(M, N, K, bm=128, bn=128, bk=64, form="gemm", loop="pipelined", dtype="float16", out="float32"):
    """K in steps, with each way of writing the loop and the product."""

    def steps():
        n = T.ceildiv(K, bk)
        return T.Pipelined(n, num_stages=2) if loop == "pipelined" else T.serial(n)

    acc = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def gemm(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=256) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), acc)
            if form == "gemm":
                T.clear(c)
            for ko in steps():
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                if form == "gemm":
                    T.gemm(a, b, c)
                elif form == "gemm_v0":
                    T.gemm_v0(a, b, c, init=(ko == 0))
                else:
                    for i, j, k in T.Parallel(bm, bn, bk):
                        c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C[by * bm, bx * bn])

    return gemm


@pytest.mark.parametrize("M, N, K", [(1024, 1024, 1024), (64, 64, 64), (100, 77, 123), (1000, 777, 1234)])
def test_article_gemm(M, N, K):
    a, b = normal((M, K)), normal((K, N), seed=1)
    kernel = tilelang.compile(gemm_simple(M, N, K), out_idx=[-1])
    close(kernel(a, b), product(a, b), K)
    assert any("starts at zero" in d.title or "zero" in d.text for d in kernel.diagnostics if d.severity == "note")
    assert "cube" in kernel.explain()


def test_article_gemm_into_the_callers_tensor():
    a, b, c = normal((128, 64)), normal((64, 128), seed=1), np.full((128, 128), 7, np.float32)
    tilelang.compile(gemm_simple(128, 128, 64))(a, b, c)
    close(c, product(a, b), 64)


def test_whole_k_does_not_fit():
    """128 x 128 tiles with K = 4096: 2 MiB of operands, L1 has half of one."""
    with pytest.raises(tilelang.CompileError) as e:
        tilelang.compile(gemm_simple(4096, 4096, 4096, 128, 128))
    text = str(e.value)
    assert e.value.code == "TL0600"
    for part in ("'a'", "'b'", "1048576", "524032"):
        assert part in text, text
    assert "K" in e.value.errors[0].fix and "loop" in e.value.errors[0].fix, e.value.errors[0].fix


@pytest.mark.parametrize("loop", ["serial", "pipelined"])
@pytest.mark.parametrize("form", ["gemm", "gemm_v0", "parallel"])
@pytest.mark.parametrize("M, N, K", [(256, 256, 256), (1000, 777, 1234), (1, 1, 1)])
def test_gemm_with_a_k_loop(M, N, K, form, loop):
    a, b = normal((M, K)), normal((K, N), seed=1)
    c = tilelang.compile(gemm_k_loop(M, N, K, form=form, loop=loop), out_idx=[-1])(a, b)
    close(c, product(a, b), K)


def test_gemm_4096():
    n = 4096
    a, b = normal((n, n)), normal((n, n), seed=1)
    c = tilelang.compile(gemm_k_loop(n, n, n, form="parallel"), out_idx=[-1], checks=False)(a, b)
    rows = np.r_[0:8, n - 8 : n]
    close(c[rows], product(a[rows], b), n)
    close(c[:, rows], product(a, b[:, rows]), n)


@pytest.mark.parametrize(
    "dtype, out", [("bfloat16", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16"), ("int8", "int32")]
)
def test_gemm_dtypes(dtype, out):
    a, b = normal((200, 150), dtype), normal((150, 100), dtype, seed=1)
    c = tilelang.compile(gemm_k_loop(200, 100, 150, dtype=dtype, out=out), out_idx=[-1])(a, b)
    if out == "int32":
        np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    else:
        close(c, product(a, b).astype(numpy_dtype(out)).astype(np.float32), 150, {"float32": 1e-5}.get(out, 2**-8))


@pytest.mark.parametrize("trans_a, trans_b", [(True, False), (False, True), (True, True)])
def test_gemm_transposed(trans_a, trans_b):
    M, N, K, bk = 96, 80, 112, 32

    @T.prim_func
    def gemm(
        A: T.Tensor((K, M) if trans_a else (M, K), "float16"),
        B: T.Tensor((N, K) if trans_b else (K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64)) as (bx, by):
            a = T.alloc_shared((bk, 64) if trans_a else (64, bk), "float16")
            b = T.alloc_shared((64, bk) if trans_b else (bk, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.serial(T.ceildiv(K, bk)):
                if trans_a:
                    T.copy(A[k * bk, by * 64], a)
                else:
                    T.copy(A[by * 64, k * bk], a)
                if trans_b:
                    T.copy(B[bx * 64, k * bk], b)
                else:
                    T.copy(B[k * bk, bx * 64], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b, clear_accum=(k == 0))
            T.copy(c, C[by * 64, bx * 64])

    a, b = normal((K, M) if trans_a else (M, K)), normal((N, K) if trans_b else (K, N), seed=1)
    c = tilelang.compile(gemm, out_idx=[-1])(a, b)
    close(c, product(a.T if trans_a else a, b.T if trans_b else b), K)


def expert_gemm(M, N, K, bM=128, bN=256, bK=64, flags=True):
    m_num, n_num = T.ceildiv(M, bM), T.ceildiv(N, bN)

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(m_num * n_num, is_npu=True) as (cid, _):
            bx = cid // n_num
            by = cid % n_num
            A_L1 = T.alloc_L1((2, bM, bK), "float16")
            B_L1 = T.alloc_L1((2, bK, bN), "float16")
            C_L0 = T.alloc_L0C((bM, bN), "float")
            with T.Scope("C"):
                T.set_flag("mte1", "mte2", 0)
                T.set_flag("mte1", "mte2", 1)
                for k in T.serial(T.ceildiv(K, bK)):
                    stage = k % 2
                    T.wait_flag("mte1", "mte2", stage)
                    T.copy(A[bx * bM, k * bK], A_L1[stage, :, :])
                    T.copy(B[k * bK, by * bN], B_L1[stage, :, :])
                    T.set_flag("mte2", "mte1", stage)
                    T.wait_flag("mte2", "mte1", stage)
                    T.gemm_v0(A_L1[stage, :, :], B_L1[stage, :, :], C_L0, init=(k == 0))
                    T.set_flag("mte1", "mte2", stage)
                T.wait_flag("mte1", "mte2", 0)
                T.wait_flag("mte1", "mte2", 1)
                if flags:
                    T.set_flag("m", "fix", 0)
                    T.wait_flag("m", "fix", 0)
                T.copy(C_L0, C[bx * bM, by * bN])

    return main


@pytest.mark.parametrize("M, N, K", [(512, 512, 256), (300, 500, 200)])
def test_expert_gemm(M, N, K):
    a, b = normal((M, K)), normal((K, N), seed=1)
    kernel = tilelang.compile(expert_gemm(M, N, K), out_idx=[-1])
    close(kernel(a, b), product(a, b), K, 1e-3)


def test_expert_gemm_orders_itself():
    """The loads of L0 and the steps of one product stand on two pipes; neither end of them is left to the author."""
    a, b = normal((300, 200)), normal((200, 500), seed=1)
    kernel = tilelang.compile(expert_gemm(300, 500, 200, flags=False), out_idx=[-1])
    close(kernel(a, b), product(a, b), 200, 1e-3)


def mma_by_hand(flag):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, _):
            a_l1, b_l1 = T.alloc_L1((64, 64), "float16"), T.alloc_L1((64, 64), "float16")
            a_l0, b_l0 = T.alloc_L0A((64, 64), "float16"), T.alloc_L0B((64, 64), "float16")
            c = T.alloc_L0C((64, 64), "float32")
            with T.Scope("C"):
                T.copy(A, a_l1)
                T.copy(B, b_l1)
                T.set_flag("mte2", "mte1", 0)
                T.wait_flag("mte2", "mte1", 0)
                T.copy(a_l1, a_l0)
                T.copy(b_l1, b_l0)
                T.set_flag("mte1", "m", 0)
                T.wait_flag("mte1", "m", 0)
                T.mma(a_l0, b_l0, c, init=True)
                if flag:
                    T.set_flag("m", "fix", 0)
                    T.wait_flag("m", "fix", 0)
                T.copy(c, C)

    return tilelang.compile(main, out_idx=[-1])


def test_mma_by_hand_without_a_flag_is_a_race():
    """A hand-written order that is missing is not repaired; the simulator finds it and names both lines."""
    a, b = normal((64, 64)), normal((64, 64), seed=1)
    close(mma_by_hand(True)(a, b), product(a, b), 64)
    with pytest.raises(tilelang.KernelFault) as e:
        mma_by_hand(False)(a, b)
    assert e.value.code == "TL0805"
    assert "T.copy(c, C)" in str(e.value) and "T.mma(" in str(e.value)


def test_what_a_copy_adds_is_ordered_in_a_kernel_with_flags():
    """The fill of a tail and the conversion before a store stand on pipe V; the author ordered the DMAs alone."""
    n, t = 1900, 256

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float16")):
        with T.Kernel(4, is_npu=True) as (cid, vid):
            a = T.alloc_ub((t,), "float32")
            with T.Scope("V"):
                for i in T.serial(1):
                    T.copy(A[cid * 2 * t + vid * t], a)
                    T.set_flag("mte2", "v", 0)
                    T.wait_flag("mte2", "v", 0)
                    T.tile.exp(a, a)
                    T.set_flag("v", "mte3", 0)
                    T.wait_flag("v", "mte3", 0)
                    T.copy(a, C[cid * 2 * t + vid * t])
                    T.set_flag("mte3", "mte2", 0)
                    T.wait_flag("mte3", "mte2", 0)

    a = normal(n, "float32")
    np.testing.assert_allclose(tilelang.compile(main, out_idx=[-1])(a), np.exp(a).astype("float16"), rtol=1e-3)


def test_expert_gemm_with_auto_sync():
    """Asked for, flags are added to those of the author."""
    a, b = normal((128, 256)), normal((256, 256), seed=1)
    key = tilelang.PassConfigKey.TL_ASCEND_AUTO_SYNC
    kernel = tilelang.compile(expert_gemm(128, 256, 256, flags=False), out_idx=[-1], pass_configs={key: True})
    close(kernel(a, b), product(a, b), 256, 1e-3)


# ---- elementwise ----------------------------------------------------------------------------------------------------

DTYPES = ["float32", "float16", "bfloat16", "int32"]
LENGTHS = [1, 31, 32, 33, 1000, 2**20]


def add_1d(n, dtype, block=2048, ops=False):
    @T.prim_func
    def add(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            a = T.alloc_shared((block,), dtype)
            b = T.alloc_shared((block,), dtype)
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            if ops:
                T.tile.add(a, a, b)
            else:
                for i in T.Parallel(block):
                    a[i] = a[i] + b[i]
            T.copy(a, C[bx * block])

    return add


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_add(n, dtype):
    a, b = normal(n, dtype), normal(n, dtype, seed=1)
    np.testing.assert_array_equal(tilelang.compile(add_1d(n, dtype), out_idx=[-1])(a, b), a + b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_tile_op(dtype):
    a, b = normal(1000, dtype), normal(1000, dtype, seed=1)
    np.testing.assert_array_equal(tilelang.compile(add_1d(1000, dtype, ops=True), out_idx=[-1])(a, b), a + b)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_axpy(n, dtype):
    block = 2048

    @T.prim_func
    def axpy(alpha: T.float32, X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            x = T.alloc_shared((block,), dtype)
            y = T.alloc_shared((block,), dtype)
            T.copy(X[bx * block], x)
            T.copy(Y[bx * block], y)
            for i in T.Parallel(block):
                y[i] = T.cast(alpha, dtype) * x[i] + y[i]
            T.copy(y, Y[bx * block])

    x, y = normal(n, dtype), normal(n, dtype, seed=1)
    want = y + x.dtype.type(1.5) * x
    tilelang.compile(axpy)(1.5, x, y)
    tol = 2e-3 if dtype == "float16" else 1e-6  # one rounding more or less
    np.testing.assert_allclose(y.astype(np.float32), want.astype(np.float32), rtol=tol, atol=tol)


@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (16, 32), (17, 33), (100, 1000)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_add_2d(shape, dtype):
    m, n = shape
    bm, bn = 8, 64

    @T.prim_func
    def add(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm)) as (bx, by):
            a = T.alloc_shared((bm, bn), dtype)
            b = T.alloc_shared((bm, bn), dtype)
            T.copy(A[by * bm, bx * bn], a)
            T.copy(B[by * bm, bx * bn], b)
            for i, j in T.Parallel(bm, bn):
                a[i, j] = a[i, j] + b[i, j]
            T.copy(a, C[by * bm, bx * bn])

    a, b = normal(shape, dtype), normal(shape, dtype, seed=1)
    np.testing.assert_array_equal(tilelang.compile(add, out_idx=[-1])(a, b), a + b)


def test_axpy_2d_in_place():
    m, n = 40, 200

    @T.prim_func
    def axpy(X: T.Tensor((m, n), "float32"), Y: T.Tensor((m, n), "float32"), alpha: T.float32):
        with T.Kernel(T.ceildiv(m, 16), is_npu=True) as (cid, vid):
            x = T.alloc_ub((8, n), "float32")
            y = T.alloc_ub((8, n), "float32")
            row = cid * 16 + vid * 8
            T.copy(X[row : row + 8, :], x)
            T.copy(Y[row : row + 8, :], y)
            T.tile.axpy(y, x, alpha)
            T.copy(y, Y[row : row + 8, :])

    x, y = normal((m, n), "float32"), normal((m, n), "float32", seed=1)
    want = y + np.float32(0.25) * x
    tilelang.compile(axpy)(x, y, 0.25)
    np.testing.assert_allclose(y, want, rtol=1e-6)


# ---- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M, N", [(64, 512), (100, 333), (7, 64)])
def test_softmax(M, N):
    rows = 16

    @T.prim_func
    def softmax(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), is_npu=True) as (cid, vid):
            x = T.alloc_ub((rows // 2, N), "float32")
            wide = T.alloc_ub((rows // 2, N), "float32")
            top = T.alloc_ub((rows // 2, 1), "float32")
            first = cid * rows + vid * (rows // 2)
            T.copy(X[first, 0], x)
            T.reduce_max(x, top, dim=-1)
            T.tile.broadcast(wide, top)
            T.tile.sub(x, x, wide)
            T.tile.exp(x, x)
            T.reduce_sum(x, top, dim=-1)
            T.tile.broadcast(wide, top)
            T.tile.div(x, x, wide)
            T.copy(x, Y[first, 0])

    x = normal((M, N), "float32") * 3
    e = np.exp(x - x.max(axis=1, keepdims=True))
    y = tilelang.compile(softmax, out_idx=[1])(x)
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("M, N", [(32, 256), (30, 200)])
def test_layer_norm(M, N):
    rows, eps = 8, 1e-5

    @T.prim_func
    def norm(
        X: T.Tensor((M, N), "float32"),
        G: T.Tensor((N,), "float32"),
        B: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, rows)) as bx:
            x = T.alloc_shared((rows, N), "float32")
            square = T.alloc_shared((rows, N), "float32")
            gain = T.alloc_shared((N,), "float32")
            bias = T.alloc_shared((N,), "float32")
            mean = T.alloc_shared((rows,), "float32")
            scale = T.alloc_shared((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.copy(G, gain)
            T.copy(B, bias)
            T.reduce_sum(x, mean, dim=1)
            T.tile.mul(mean, mean, 1.0 / N)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] - mean[i]
            T.tile.mul(square, x, x)
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = 1.0 / T.sqrt(scale[i] * (1.0 / N) + eps)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * scale[i] * gain[j] + bias[j]
            T.copy(x, Y[bx * rows, 0])

    x, g, b = normal((M, N), "float32") + 1, normal(N, "float32", 1), normal(N, "float32", 2)
    y = tilelang.compile(norm, out_idx=[-1])(x, g, b)
    d = x - x.mean(axis=1, keepdims=True)
    want = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + eps) * g + b
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op, want", [("sum", np.sum), ("max", np.max), ("min", np.min)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("M, N", [(16, 64), (13, 100)])
def test_reduce(op, want, dim, M, N):
    size = (N, M)[dim]

    @T.prim_func
    def reduce(X: T.Tensor((M, N), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((M, N), "float32")
            y = T.alloc_shared((size,), "float32")
            T.copy(X, x)
            getattr(T, f"reduce_{op}")(x, y, dim=dim)
            T.copy(y, Y)

    x = normal((M, N), "float32")
    y = tilelang.compile(reduce, out_idx=[1])(x)
    np.testing.assert_allclose(y, want(x, axis=dim), rtol=1e-5, atol=1e-5)


UNARY = {
    "exp": np.exp,
    "ln": lambda x: np.log(np.abs(x)),
    "sqrt": lambda x: np.sqrt(np.abs(x)),
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_unary_tile_ops(name, dtype):
    n = 333

    @T.prim_func
    def unary(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((n,), dtype)
            T.copy(X, x)
            if name in ("ln", "sqrt"):
                T.tile.abs(x, x)
            getattr(T.tile, name)(x, x)
            T.copy(x, Y)

    x = normal(n, dtype)
    y = tilelang.compile(unary, out_idx=[1])(x).astype(np.float32)
    tol = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(y, UNARY[name](x.astype(np.float32)), rtol=tol, atol=tol)


def test_compare_select():
    n = 512

    @T.prim_func
    def clip(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((n,), "float32")
            mask = T.alloc_ub((n // 8,), "uint8")
            T.copy(X, x)
            T.tile.compare(mask, x, 0.5, "GT")
            T.tile.select(x, mask, x, -1.0, "VSEL_TENSOR_SCALAR_MODE")
            T.copy(x, Y)

    x = normal(n, "float32")
    np.testing.assert_array_equal(tilelang.compile(clip, out_idx=[1])(x), np.where(x > 0.5, x, np.float32(-1)))


def test_cast_modes():
    n = 256

    @T.prim_func
    def cast(X: T.Tensor((n,), "float32"), H: T.Tensor((n,), "float16"), I: T.Tensor((n,), "int32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((n,), "float32")
            h = T.alloc_ub((n,), "float16")
            i = T.alloc_ub((n,), "int32")
            T.copy(X, x)
            T.tile.cast(h, x, "CAST_RINT", n)
            T.tile.cast(i, x, "CAST_FLOOR", n)
            T.copy(h, H)
            T.copy(i, I)

    x = normal(n, "float32") * 10
    h, i = tilelang.compile(cast, out_idx=[1, 2])(x)
    np.testing.assert_array_equal(h, x.astype(np.float16))
    np.testing.assert_array_equal(i, np.floor(x).astype(np.int32))


# ---- scalars and control flow ---------------------------------------------------------------------------------------


def test_scalars_and_control_flow():
    n = 64

    @T.prim_func
    def collatz(X: T.Tensor((n,), "int32"), Y: T.Tensor((n,), "int32"), limit: T.int32):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((n,), "int32")
            y = T.alloc_ub((n,), "int32")
            v = T.alloc_var("int32")
            steps = T.alloc_var("int32")
            T.copy(X, x)
            for i in T.serial(n):
                v = x[i]
                steps = 0
                while v != 1:
                    if v % 2 == 0:
                        v = v // 2
                    else:
                        v = 3 * v + 1
                    steps += 1
                    if steps >= limit:
                        break
                y[i] = steps
            T.copy(y, Y)

    def count(v):
        s = 0
        while v != 1 and s < 40:
            v, s = (v // 2 if v % 2 == 0 else 3 * v + 1), s + 1
        return s

    x = np.arange(1, n + 1, dtype=np.int32)
    y = tilelang.compile(collatz, out_idx=[1])(x, 40)
    np.testing.assert_array_equal(y, [count(int(v)) for v in x])


def test_index_from_memory():
    n, d, picked = 32, 64, 16

    @T.prim_func
    def gather(X: T.Tensor((n, d), "float32"), idx: T.Tensor((picked,), "int32"), Y: T.Tensor((picked, d), "float32")):
        with T.Kernel(picked) as bx:
            x = T.alloc_shared((d,), "float32")
            row = idx[bx]
            if row >= 0:
                T.copy(X[row, 0], x)
            else:
                T.fill(x, -1.0)
            T.copy(x, Y[bx, 0])

    x, idx = normal((n, d), "float32"), np.random.default_rng(3).integers(-8, n, picked).astype(np.int32)
    y = tilelang.compile(gather, out_idx=[2])(x, idx)
    np.testing.assert_array_equal(y, np.where(idx[:, None] >= 0, x[idx], np.float32(-1)))


def test_same_bytes_whatever_the_threads():
    a, b = normal((300, 200)), normal((200, 260), seed=1)
    outs = [tilelang.compile(gemm_k_loop(300, 260, 200), out_idx=[-1], threads=t)(a, b).tobytes() for t in (1, 2, 3)]
    assert outs[0] == outs[1] == outs[2]


def test_a_statement_that_reads_many_elements_is_ordered():
    """The store at the end of a long expression counts too: what is copied out afterwards waits for it."""
    n = 12

    def many(a, j):
        return sum((a[i, 63 - j] for i in range(1, n)), a[0, j])

    @T.prim_func
    def main(A: T.Tensor((n, 64), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1) as _:
            a = T.alloc_ub((n, 64), "float32")
            c = T.alloc_ub((64,), "float32")
            T.copy(A, a)
            for j in T.serial(64):
                c[j] = many(a, j)
            T.copy(c, C)

    a = np.arange(n * 64, dtype=np.float32).reshape(n, 64)
    want = a[0] + a[1:].sum(0)[::-1]
    assert (tilelang.compile(main, out_idx=[-1])(a) == want).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "uint32", "int64"])
def test_bounds_and_rows_from_a_tile_of_any_integers(dtype):
    @T.prim_func
    def some_rows(N: T.Tensor((32,), dtype), X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1):
            n, x = T.alloc_ub((32,), dtype), T.alloc_ub((1, 64), "float32")
            T.copy(N, n)
            for i in T.serial(n[1]):
                T.copy(X[i, 0], x)
                T.copy(x, Y[n[i], 0])

    n = np.array([3, 32, *range(7, 37)], dtype)
    x, want = np.arange(64.0 * 64, dtype=np.float32).reshape(64, 64), np.zeros((64, 64), np.float32)
    for i in range(32):
        want[n[i]] = x[i]
    y = np.zeros((64, 64), np.float32)
    tilelang.compile(some_rows)(n, x, y)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("shape, cut, dtype, rows", [
    ((5000, 24), (5000, 16), "float16", 5000),
    ((5000, 24), (5000, 16), "float16", 4321),
    ((4500, 24), (5000, 16), "float16", 5000),
    ((2, 3000, 12), (2, 3000, 8), "float32", 2),
    ((6000, 24), (6000, 16), "int16", 6000),
])  # fmt: skip
def test_more_rows_than_a_dma_has(shape, cut, dtype, rows):
    inner = tuple(slice(0, n) for n in cut[1:])

    @T.prim_func
    def move(N: T.int32, X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1):
            x = T.alloc_ub(cut, dtype)
            T.copy(X[(slice(0, N), *inner)], x[(slice(0, N), *inner)])
            T.copy(x[(slice(0, N), *inner)], Y[(slice(0, N), *inner)])

    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    want, y = np.zeros_like(x), np.zeros_like(x)
    want[(slice(0, rows), *inner)] = x[(slice(0, rows), *inner)]
    tilelang.compile(move)(rows, x, y)
    np.testing.assert_array_equal(y, want)


def test_a_while_that_reads_what_its_loop_computes():
    """The condition is asked again when the instructions of the iteration are done, whichever way that ends."""

    @T.prim_func
    def f(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1) as _:
            a = T.alloc_shared((64,), "int32")
            c = T.alloc_shared((64,), "int32")
            n = T.alloc_var("int32", init=0)
            T.copy(A, a)
            T.copy(A, c)
            while a[0] + a[63] < 10:
                T.tile.add(a, a, 1)
            while c[3] < 8:
                n = n + 1
                T.tile.add(c, c, 1)
                if n % 2 == 1:
                    continue
                while a[5] < 2 * n:
                    T.tile.add(a, a, 2)
                T.tile.add(c, c, 1)
            T.copy(a, B)
            T.copy(c, C)

    x = np.ones(64, np.int32)
    b, c = tilelang.compile(f, out_idx=[1, 2])(x)
    assert (b == 9).all() and (c == 8).all()
