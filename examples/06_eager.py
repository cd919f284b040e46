"""The newest style: the decorated function is the kernel, sizes are read from the tensors, outputs are returned."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul(A, B, bm: int = 128, bn: int = 128, bk: int = 64):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=128) as (bx, by):
        a = T.alloc_shared((bm, bk), T.float16)
        b = T.alloc_shared((bk, bn), T.float16)
        c = T.alloc_fragment((bm, bn), T.float32)
        T.clear(c)
        for ko in T.Pipelined(T.ceildiv(K, bk), num_stages=3):
            T.copy(A[by * bm, ko * bk], a)
            T.copy(B[ko * bk, bx * bn], b)
            T.gemm(a, b, c)
        T.copy(c, C[by * bm, bx * bn])
    return C


def main():
    rng = np.random.default_rng(0)
    for m, n, k in ((512, 512, 512), (300, 200, 100)):
        a = rng.standard_normal((m, k), dtype=np.float32).astype(np.float16)
        b = rng.standard_normal((k, n), dtype=np.float32).astype(np.float16)
        c = matmul(a, b)
        expected = a.astype(np.float32) @ b.astype(np.float32)
        print(f"eager GEMM {m} x {n} x {k}: maximum error {np.abs(c - expected).max():.1e} (rounding to float16)")
        np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-1)
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
