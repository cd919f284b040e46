"""Matrix product with everything by hand: memories, double buffering, flags between the pipes of the cube core."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=256, block_K=64):
    m_num, n_num = T.ceildiv(M, block_M), T.ceildiv(N, block_N)

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(m_num * n_num, is_npu=True) as (cid, _):
            bx = cid // n_num
            by = cid % n_num
            A_L1 = T.alloc_L1((2, block_M, block_K), "float16")
            B_L1 = T.alloc_L1((2, block_K, block_N), "float16")
            C_L0 = T.alloc_L0C((block_M, block_N), "float")
            with T.Scope("C"):
                T.set_flag("mte1", "mte2", 0)
                T.set_flag("mte1", "mte2", 1)
                for k in T.serial(T.ceildiv(K, block_K)):
                    stage = k % 2
                    T.wait_flag("mte1", "mte2", stage)
                    T.copy(A[bx * block_M, k * block_K], A_L1[stage, :, :])
                    T.copy(B[k * block_K, by * block_N], B_L1[stage, :, :])
                    T.set_flag("mte2", "mte1", stage)
                    T.wait_flag("mte2", "mte1", stage)
                    T.gemm_v0(A_L1[stage, :, :], B_L1[stage, :, :], C_L0, init=(k == 0))
                    T.set_flag("mte1", "mte2", stage)
                T.wait_flag("mte1", "mte2", 0)
                T.wait_flag("mte1", "mte2", 1)
                T.set_flag("m", "fix", 0)
                T.wait_flag("m", "fix", 0)
                T.copy(C_L0, C[bx * block_M, by * block_N])

    return main


def main():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((512, 768), dtype=np.float32).astype(np.float16)
    b = rng.standard_normal((768, 1024), dtype=np.float32).astype(np.float16)
    c = matmul(512, 1024, 768)(a, b)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    print(f"expert GEMM 512 x 1024 x 768: maximum error {np.abs(c - expected).max():.1e} (rounding to float16)")
    np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-1)
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
