"""The kind of R005 and R094, in other places: what a program does with an operand or an accumulator of the cube besides
the product. Undeclared buffers get the memories that their uses need; a declared one is kept, and what it cannot serve
is one message whose change cures it."""

import itertools

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError

X = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float16)
XX = X.astype(np.float32)
WHOLE = (64, 64)


def kernel(use):
    @T.prim_func
    def f(A: T.Tensor(WHOLE, "float16"), C: T.Tensor(WHOLE, "float32")):
        with T.Kernel(1) as bx:
            use(A, C)

    return f


def shared(shape=WHOLE, dtype="float16"):
    return T.alloc_shared(shape, dtype)


@T.macro
def operand_copied_on(A, C):
    a, s, c = shared(), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.gemm(a, a, c)
    T.copy(a, s)
    T.copy(s, C)


@T.macro
def operand_stored(A, C):
    a, c = shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.gemm(a, a, c)
    T.copy(a, C)


@T.macro
def operand_of_another_product(A, C):
    a, b, c = shared(), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.copy(a, b)
    T.gemm(a, b, c)
    T.copy(c, C)


@T.macro
def reshaped_operand(A, C):
    a, b, c = shared((4096,)), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, T.reshape(a, WHOLE))
    T.copy(A, b)
    T.gemm(T.reshape(a, WHOLE), b, c)
    T.copy(c, C)


@T.macro
def reshaped_accumulator(A, C):
    a, c = shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.gemm(a, a, c)
    T.copy(T.reshape(c, (4096,)), T.reshape(C, (4096,)))


@pytest.mark.parametrize("chip", ["910B2", "950"])
@pytest.mark.parametrize("use, want", [
    (operand_copied_on, XX), (operand_stored, XX), (operand_of_another_product, XX @ XX),
    (reshaped_operand, XX @ XX), (reshaped_accumulator, XX @ XX),
])  # fmt: skip
def test_undeclared(use, want, chip):
    assert np.array_equal(tilelang.compile(kernel(use), out_idx=-1, chip=chip)(X), want)


@T.macro
def multiply(A, C, alloc):
    a, b, c = alloc(WHOLE, "float16"), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.copy(A, b)
    T.gemm(a, b, c)
    T.copy(c, C)


@T.macro
def change(A, C, alloc):
    a = alloc(WHOLE, "float16")
    T.copy(A, a)
    T.tile.abs(a, a)
    T.copy(a, C)


@T.macro
def accumulate(A, C, alloc):
    a, c = shared(), alloc(WHOLE, "float32")
    T.copy(A, a)
    T.gemm(a, a, c)
    T.tile.abs(c, c)
    T.copy(c, C)


@T.macro
def store(A, C, alloc):
    a = alloc(WHOLE, "float16")
    T.copy(A, a)
    T.copy(a, C)


@T.macro
def move(A, C, alloc):
    a, u = alloc(WHOLE, "float16"), T.alloc_ub(WHOLE, "float16")
    T.copy(A, a)
    T.copy(a, u)
    T.copy(u, C)


@T.macro
def reshape(A, C, alloc):
    a, b, c = alloc((4096,), "float16"), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, T.reshape(a, WHOLE))
    T.copy(A, b)
    T.gemm(T.reshape(a, WHOLE), b, c)
    T.copy(c, C)


@T.macro
def multiply_in_l0(A, C, alloc):
    a, b, c = shared(), shared(), T.alloc_fragment(WHOLE, "float32")
    T.copy(A, a)
    T.copy(A, b)
    alloc(a, b, c)
    T.copy(c, C)


@T.macro
def narrow(A, C, dtype):
    a, c = shared(), T.alloc_L0C(WHOLE, dtype)
    T.copy(A, a)
    T.gemm(a, a, c)
    T.copy(c, C)


@pytest.mark.parametrize("program, wrong, cure, code, said, want", [
    (multiply, T.alloc_ub, T.alloc_shared, "TL0300", "T.alloc_shared", XX @ XX),
    (multiply, T.alloc_L0A, T.alloc_shared, "TL0300", "T.alloc_shared", XX @ XX),
    (change, T.alloc_L1, T.alloc_shared, "TL0300", "T.alloc_shared", abs(XX)),
    (accumulate, T.alloc_L0C, T.alloc_fragment, "TL0300", "T.alloc_fragment", abs(XX @ XX)),
    (accumulate, T.alloc_ub, T.alloc_fragment, "TL0300", "T.alloc_fragment", abs(XX @ XX)),
    (store, T.alloc_L1, T.alloc_ub, "TL0500", "T.alloc_ub", XX),
    (move, T.alloc_L1, T.alloc_shared, "TL0302", "T.alloc_shared", XX),
    (reshape, T.alloc_L1, T.alloc_shared, "TL0300", "T.alloc_shared", XX @ XX),
    (multiply_in_l0, T.mma, T.gemm, "TL0500", "T.gemm", XX @ XX),
    (narrow, "float16", "float32", "TL0503", "make 'c' float32", XX @ XX),
])  # fmt: skip
def test_the_change_cures(program, wrong, cure, code, said, want):
    with pytest.raises(CompileError) as caught:
        tilelang.compile(kernel(lambda A, C: program(A, C, wrong)), out_idx=-1)
    assert all(d.code == code and said in d.fix for d in caught.value.errors), str(caught.value)
    got = tilelang.compile(kernel(lambda A, C: program(A, C, cure)), out_idx=-1)(X)
    assert np.array_equal(got, want)


MEMORIES = {"l1": T.alloc_L1, "l0a": T.alloc_L0A, "l0b": T.alloc_L0B, "l0c": T.alloc_L0C, "ub": T.alloc_ub}


@pytest.mark.parametrize("chip", ["910B2", "950"])
@pytest.mark.parametrize("source", ["gm", *MEMORIES])
@pytest.mark.parametrize("target", ["gm", *MEMORIES])
def test_a_copy_from_any_memory_to_any_other_compiles_or_is_one_message(source, target, chip):
    """Whatever the dtypes: no pass makes what the chip does not have."""
    dtypes = ["float16", "bfloat16", "float32", "int8", "int32", "bool"]
    for source_dtype, target_dtype in itertools.product(dtypes, repeat=2):

        @T.prim_func
        def f(A: T.Tensor((16, 64), source_dtype), C: T.Tensor((16, 64), target_dtype)):
            with T.Kernel(1) as bx:
                a = A if source == "gm" else MEMORIES[source]((16, 64), source_dtype)
                c = C if target == "gm" else MEMORIES[target]((16, 64), target_dtype)
                T.copy(a, c)

        try:
            tilelang.compile(f, chip=chip)
        except CompileError as e:
            (d,) = e.errors
            assert d.code in ("TL0302", "TL0500") and d.fix, str(e)
