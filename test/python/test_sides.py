"""Kernels whose body works on both sides, cube and vector cores in turns, against numpy with every check on."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

pytest.importorskip("tilelang._core")


def normal(shape, dtype=np.float16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(dtype)


def close(got, want, tol=2e-3):
    np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=tol, atol=tol)


# ---- workspaces named by the author, read in the text before they are written ---------------------------------------


def two_products(n, loops, stages):
    """C = sum over tiles of f16(exp(A_i @ B)) @ B; the exponential passes through workspaces S and P."""
    M = 64

    def steps():
        return T.Pipelined(n, num_stages=stages) if stages > 1 else T.serial(n)

    @T.prim_func
    def one(
        A: T.Tensor((n * M, M), "float16"),
        B: T.Tensor((M, M), "float16"),
        S: T.Tensor((M, M), "float32"),
        P: T.Tensor((M, M), "float16"),
        C: T.Tensor((M, M), "float32"),
    ):
        with T.Kernel(1) as bx:
            a, p, b = (T.alloc_L1((M, M), "float16") for _ in range(3))
            s, o = (T.alloc_L0C((M, M), "float32") for _ in range(2))
            u, h = T.alloc_ub((M, M), "float32"), T.alloc_ub((M, M), "float16")
            T.copy(B, b)
            if loops == 1:
                for i in steps():
                    T.copy(A[i * M, 0], a)
                    T.gemm_v0(a, b, s, init=True)
                    T.copy(s, S)
                    T.copy(P, p)
                    T.gemm_v0(p, b, o, init=(i == 0))
                    T.copy(S, u)
                    T.tile.exp(u, u)
                    T.copy(u, h)
                    T.copy(h, P)
            else:
                for i in steps():
                    T.copy(A[i * M, 0], a)
                    T.gemm_v0(a, b, s, init=True)
                    T.copy(s, S)
                    T.copy(P, p)
                    T.gemm_v0(p, b, o, init=(i == 0))
                for i in steps():
                    T.copy(S, u)
                    T.tile.exp(u, u)
                    T.copy(u, h)
                    T.copy(h, P)
            T.copy(o, C)

    return one


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_workspace_read_in_the_text_before_it_is_written(n, loops, stages):
    a, b = normal((n * 64, 64)) * np.float16(0.02), normal((64, 64), seed=1)
    kernel = tilelang.compile(
        two_products(n, loops, stages), out_idx=[4], workspace_idx=[2, 3], pass_configs={"tl.ascend_auto_sync": True}
    )
    p = np.exp(a.astype(np.float32).reshape(n, 64, 64) @ b.astype(np.float32)).astype(np.float16).astype(np.float32)
    close(kernel(a, b), (p @ b.astype(np.float32)).sum(0))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_state_carried_from_iteration_to_iteration(n):
    M = 64

    @T.prim_func
    def scan(A: T.Tensor((n * M, M), "float16"), H: T.Tensor((M, M), "float16"), C: T.Tensor((n * M, M), "float32")):
        with T.Kernel(1) as bx:
            a, b = T.alloc_shared((M, M), "float16"), T.alloc_shared((M, M), "float16")
            s = T.alloc_fragment((M, M), "float32")
            u, h = T.alloc_shared((M, M), "float32"), T.alloc_shared((M, M), "float16")
            for i in T.serial(n):
                T.copy(A[i * M, 0], a)
                T.copy(H, b)
                T.gemm(a, b, s, clear_accum=True)
                T.copy(s, u)
                for r, c in T.Parallel(M, M):
                    u[r, c] = u[r, c] * 0.125
                T.copy(u, C[i * M, 0])
                T.copy(u, h)
                T.copy(h, H)

    a, state = normal((n * M, M)), normal((M, M), seed=1)
    want, h = [], state.astype(np.float32)
    for i in range(n):
        u = (a[i * M : i * M + M].astype(np.float32) @ h) * np.float32(0.125)
        want.append(u)
        h = u.astype(np.float16).astype(np.float32)
    close(tilelang.compile(scan, out_idx=[2])(a, state.copy()), np.concatenate(want))
