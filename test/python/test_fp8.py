"""Products of fp8 tiles: the cube of the 950 has them, that of the 910B does not."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

pytest.importorskip("tilelang._core")

DTYPES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def product(dtype, M, N, K, trans=False):
    bk = 48 if K == 48 else 64

    @T.prim_func
    def gemm(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K) if trans else (K, N), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64)) as (bx, by):
            a = T.alloc_shared((64, bk), dtype)
            b = T.alloc_shared((64, bk) if trans else (bk, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[by * 64, k * bk], a)
                if trans:
                    T.copy(B[bx * 64, k * bk], b)
                else:
                    T.copy(B[k * bk, bx * 64], b)
                T.gemm(a, b, c, transpose_B=trans, clear_accum=(k == 0))
            T.copy(c, C[by * 64, bx * 64])

    return gemm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("M, N, K, trans", [(128, 64, 160, False), (70, 90, 100, True), (64, 64, 48, False)])
def test_product(dtype, M, N, K, trans):
    r = np.random.default_rng(0)
    a = r.standard_normal((M, K)).astype(DTYPES[dtype])
    b = r.standard_normal((N, K) if trans else (K, N)).astype(DTYPES[dtype])
    c = tilelang.compile(product(dtype, M, N, K, trans), out_idx=[2], chip="950")(a, b)
    f = [x.astype(np.float32) for x in (a, b)]
    np.testing.assert_allclose(c, f[0] @ (f[1].T if trans else f[1]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_the_cube_does_not(dtype):
    """On the 910B the operands are multiplied as float16, which holds each of their values: the same bytes."""
    r = np.random.default_rng(1)
    a, b = (r.standard_normal(s).astype(DTYPES[dtype]) for s in ((70, 100), (100, 90)))
    kernels = [tilelang.compile(product(dtype, 70, 90, 100), out_idx=[2], chip=c) for c in ("910B2", "950")]
    np.testing.assert_allclose(kernels[0](a, b), kernels[1](a, b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("through", ["gm", "shared"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_written_as_8_bits(dtype, through):
    """The cube writes f32, f16 and bf16 only: what becomes 8 bits passes the vector cores."""
    M, N, K = 70, 64, 64

    @T.prim_func
    def gemm(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, 32)) as bx:
            a, b = T.alloc_shared((32, K), dtype), T.alloc_shared((K, N), dtype)
            c, out = T.alloc_fragment((32, N), "float32"), T.alloc_shared((32, N), dtype)
            T.copy(A[bx * 32, 0], a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            if through == "gm":
                T.copy(c, C[bx * 32, 0])
            else:
                T.copy(c, out)
                T.copy(out, C[bx * 32, 0])

    np_type = DTYPES[dtype]
    a, b = (np.random.default_rng(s).standard_normal(d).astype(np_type) for s, d in ((0, (M, K)), (1, (K, N))))
    got = tilelang.compile(gemm, out_idx=[2])(a, b)
    want = (a.astype("float32") @ b.astype("float32")).astype(np_type)
    differ = np.asarray(got).view("uint8") != want.view("uint8")
    assert differ.mean() < 0.002  # sums in another order that lie on a boundary
