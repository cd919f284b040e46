"""Tensors of a call that share bytes: the same one for two parameters, or parts of one that overlap."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

N = 1024
rng = np.random.default_rng(11)


def elementwise(tile=128, shift=0, out_idx=None):
    """C[i] = A[i + shift] + B[i], tile by tile."""

    @T.prim_func
    def f(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(N // tile) as bx:
            a, b = T.alloc_ub((tile,), "float32"), T.alloc_ub((tile,), "float32")
            T.copy(A[(bx * tile + shift) % N : (bx * tile + shift) % N + tile], a)
            T.copy(B[bx * tile], b)
            T.tile.add(a, a, b)
            T.copy(a, C[bx * tile])

    return tilelang.compile(f, out_idx=out_idx)


def looped():
    """C[k] = A[k] * 2 in one block, loads ahead of stores."""

    @T.prim_func
    def f(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_ub((64,), "float32")
            for k in T.Pipelined(N // 64, num_stages=2):
                T.copy(A[k * 64], a)
                T.tile.mul(a, a, 2.0)
                T.copy(a, C[k * 64])

    return tilelang.compile(f)


def floats(n=N):
    return rng.standard_normal(n).astype("float32")


def fault_of(kernel, *args):
    with pytest.raises(tilelang.KernelFault) as e:
        kernel(*args)
    return e.value.diagnostics[0]


@pytest.mark.parametrize("out_idx", [None, [2]])
def test_elementwise_in_place(out_idx):
    a, b = floats(), floats()
    want = a + b
    elementwise(out_idx=out_idx)(a, b, a)
    np.testing.assert_array_equal(a, want)
    want = b + b
    elementwise()(b, b, b)
    np.testing.assert_array_equal(b, want)
    c = floats()
    want = c * 2
    looped()(c, c)
    np.testing.assert_array_equal(c, want)


def test_a_tensor_that_is_only_read_may_come_twice():
    a, c = floats(), np.zeros(N, "float32")
    elementwise(shift=128)(a, a, c)
    np.testing.assert_array_equal(c, np.roll(a, -128) + a)
    whole = floats(2 * N)
    elementwise()(whole[:N], whole[64 : N + 64], c)
    np.testing.assert_array_equal(c, whole[:N] + whole[64 : N + 64])


def test_blocks_that_read_what_others_write():
    a, b = floats(), floats()
    d = fault_of(elementwise(shift=128), a, b, a)
    assert "gm_to_ub A[" in d.text and "as 'C', which shares memory with it in this call" in d.text
    assert "pass a copy" in d.fix
    assert d.line == elementwise.__code__.co_firstlineno + 7 and d.other is not None


@pytest.mark.parametrize("at", [64, 1, 8])
def test_parts_of_one_array(at):
    whole = floats(2 * N)
    want = whole[:N] + 1
    elementwise()(whole[:N], np.ones(N, "float32"), whole[N:])
    np.testing.assert_array_equal(whole[N:], want)
    d = fault_of(elementwise(), whole[:N], np.ones(N, "float32"), whole[at : N + at])
    assert "shares memory" in d.text and "pass a copy" in d.fix


def test_one_block_that_loads_ahead():
    a = floats(N + 64)
    d = fault_of(looped(), a[:N], a[64:])
    assert d.code == "TL0805" and "the same memory as bytes" in d.text and "pass a copy" in d.fix


def test_slices_of_torch():
    torch = pytest.importorskip("torch")
    a = torch.arange(float(2 * N))
    elementwise()(a[:N], a[:N], a[:N])
    assert (a[:N] == 2 * torch.arange(float(N))).all()
    d = fault_of(elementwise(), a[:N], a[N:], a[32 : N + 32])
    assert "shares memory" in d.text


def test_two_outputs_that_overlap():
    @T.prim_func
    def f(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32"), D: T.Tensor((N,), "float32")):
        with T.Kernel(N // 128) as bx:
            a = T.alloc_ub((128,), "float32")
            T.copy(A[bx * 128], a)
            T.copy(a, C[bx * 128])
            T.tile.add(a, a, 1.0)
            T.copy(a, D[bx * 128])

    whole = np.zeros(2 * N, "float32")
    d = fault_of(tilelang.compile(f), floats(), whole[:N], whole[128 : N + 128])
    assert "shares memory" in d.text and "'C'" in d.text and "'D'" in d.text


def test_the_tools_see_the_sharing():
    a = floats()
    kernel = looped()
    assert kernel.compare(a, a) and not kernel.bisect(a, a)
    found = elementwise(shift=128).compare(a, floats(), a)
    assert found.faults and "shares memory" in found.faults[0].text
