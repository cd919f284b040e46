"""Kernels whose body works on both sides, cube and vector cores in turns, against numpy with every check on."""

import re

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


# ---- T.Pipelined across the sides -----------------------------------------------------------------------------------


def flash(batch, length, dim, block, stages, causal=False, dynamic=False):
    """Attention forward with a running maximum; `length` may be known only at the call."""
    n = T.symbolic("n") if dynamic else length
    scale = 1.44269504 / dim**0.5

    @T.prim_func
    def flash(
        Q: T.Tensor((batch, length, dim), "float16"),
        K: T.Tensor((batch, n, dim), "float16"),
        V: T.Tensor((batch, n, dim), "float16"),
        O: T.Tensor((batch, length, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, block), batch, threads=128) as (bx, bz):
            q, k, v = (T.alloc_shared((block, dim), "float16") for _ in range(3))
            s = T.alloc_fragment((block, block), "float32")
            p = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, dim), "float32")
            top, before, factor, part, total = (T.alloc_fragment((block,), "float32") for _ in range(5))
            T.copy(Q[bz, bx * block : (bx + 1) * block, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -1e30)
            for i in T.Pipelined(bx + 1 if causal else T.ceildiv(n, block), num_stages=stages):
                T.copy(K[bz, i * block : (i + 1) * block, :], k)
                if causal:
                    for r, c in T.Parallel(block, block):
                        s[r, c] = T.if_then_else(bx * block + r >= i * block + c, 0.0, -1e30)
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for r in T.Parallel(block):
                    factor[r] = T.exp2(before[r] * scale - top[r] * scale)
                for r, c in T.Parallel(block, block):
                    s[r, c] = T.exp2(s[r, c] * scale - top[r] * scale)
                T.reduce_sum(s, part, dim=1)
                for r in T.Parallel(block):
                    total[r] = total[r] * factor[r] + part[r]
                T.copy(s, p)
                for r, c in T.Parallel(block, dim):
                    o[r, c] *= factor[r]
                T.copy(V[bz, i * block : (i + 1) * block, :], v)
                T.gemm(p, v, o)
            for r, c in T.Parallel(block, dim):
                o[r, c] /= total[r]
            T.copy(o, O[bz, bx * block : (bx + 1) * block, :])

    return flash


def attention(q, k, v, causal):
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_flash_attention(steps, stages):
    q, k, v = (normal((2, 32 * steps, 32), seed=i) for i in range(3))
    kernel = tilelang.compile(flash(2, 32 * steps, 32, 32, stages), out_idx=[3])
    close(kernel(q, k, v), attention(q, k, v, False))


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_flash_attention_causal(stages):
    q, k, v = (normal((1, 160, 32), seed=i) for i in range(3))
    kernel = tilelang.compile(flash(1, 160, 32, 32, stages, causal=True), out_idx=[3])
    close(kernel(q, k, v), attention(q, k, v, True))


@pytest.mark.parametrize("stages", [2, 3])
def test_flash_attention_of_a_length_known_at_the_call(stages):
    kernel = tilelang.compile(flash(1, 64, 32, 32, stages, dynamic=True), out_idx=[3])
    for n in (32, 64, 160):
        q, k, v = normal((1, 64, 32)), normal((1, n, 32), seed=1), normal((1, n, 32), seed=2)
        close(kernel(q, k, v), attention(q, k, v, False))


def test_the_sides_work_on_different_iterations():
    text = tilelang.compile(flash(1, 64, 32, 32, 2), out_idx=[3]).explain()
    assert "the cube and the vector cores work on different iterations of the loop" in text
    text = tilelang.compile(flash(1, 64, 32, 32, 1), out_idx=[3]).explain()
    assert "different iterations" not in text


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_the_cost_is_a_lower_bound(stages, causal):
    kernel = tilelang.compile(flash(2, 256, 64, 64, stages, causal=causal), out_idx=[3])
    bound, run = kernel.cost(), kernel.profile()
    assert bound["launch_us"] < bound["us"] <= run.us
    assert bound["pipe_us"]["cube"] > 0 and bound["pipe_us"]["vector"] > 0


@pytest.mark.parametrize("rows", [16, 1])
def test_an_operand_that_the_text_reads_before_it_fills_it(rows):
    """The product stands first, the vector cores fill its operand below it, by rows or whole."""

    @T.prim_func
    def chain(
        X: T.Tensor((4, 16, 32), "float16"), W: T.Tensor((32, 32), "float16"), O: T.Tensor((4, 16, 32), "float32")
    ):
        with T.Kernel(1, threads=2, is_npu=True) as cid:
            x_l1, w_l1 = T.alloc_shared((16, 32), "float16"), T.alloc_shared((32, 32), "float16")
            c, o = T.alloc_fragment((16, 32), "float32"), T.alloc_shared((16, 32), "float32")
            x = T.alloc_shared((rows, 32), "float16")
            T.copy(W, w_l1)
            for i in T.serial(4):
                T.gemm_v0(x_l1, w_l1, c, init=True)
                T.copy(c, o)
                for r in T.serial(16 // rows):
                    T.copy(X[i, r * rows, 0], x)
                    T.tile.mul(x, x, 2.0)
                    T.copy(x, x_l1[r * rows : r * rows + rows, :])
                T.tile.add(o, o, 1.0)
                T.copy(o, O[i, 0, 0])

    x, w = normal((4, 16, 32)), normal((32, 32), seed=1)
    close(tilelang.compile(chain, out_idx=[2])(x, w), 2 * x.astype("float32") @ w.astype("float32") + 1)


@pytest.mark.parametrize("stages", [0, 2])
@pytest.mark.parametrize("loops, steps", [(1, 9), (5, 2), (2, 3), (1, 3), (1, 2), (2, 2)])
def test_more_tiles_change_sides_than_there_are_flags(loops, steps, stages):
    """Tiles go from the vector cores to the cube and back, `steps` times an iteration in each of `loops` loops."""
    if stages and steps > 3:
        pytest.skip("one pipelined loop with so many")
    half = "float16"

    @T.prim_func
    def chain(X: T.Tensor((4, 32, 32), half), W: T.Tensor((32, 32), half), O: T.Tensor((4, 32, 32), "float32")):
        with T.Kernel(1):
            w, c = T.alloc_shared((32, 32), "float16"), T.alloc_fragment((32, 32), "float32")
            x, o = T.alloc_shared((32, 32), "float16"), T.alloc_fragment((32, 32), "float32")
            T.copy(W, w)
            for n in T.unroll(loops):
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(X[k, 0, 0], o) if n == 0 else T.copy(O[k, 0, 0], o)
                    for s in T.unroll(steps):
                        for i, j in T.Parallel(32, 32):
                            x[i, j] = o[i, j] + 1.0
                        T.gemm(x, w, c, clear_accum=True)
                        for i, j in T.Parallel(32, 32):
                            o[i, j] = c[i, j] * 0.5
                    T.copy(o, O[k, 0, 0])

    x, w = normal((4, 32, 32)), (normal((32, 32), seed=1) / 4).astype("float16")
    want = x.astype("float32")
    for _ in range(loops * steps):
        want = (want + 1).astype("float16").astype("float32") @ w.astype("float32") * 0.5
    kernel = tilelang.compile(chain, out_idx=[2])
    close(kernel(x, w), want)
    sets = set(re.findall(r"cross_set \S+ (#\d+)", kernel.ir(after="lowered")))
    assert len(sets) <= 16
