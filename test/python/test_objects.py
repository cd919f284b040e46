"""Kernels and what makes them as values of Python: pickled, copied, kept by their arguments, with defaults and
annotations that are text."""

import contextlib
import copy
import dataclasses
import importlib
import pickle
import textwrap

import numpy as np
import pytest

import tilelang
import tilelang.language as T

MODULE = """
from __future__ import annotations
import tilelang
import tilelang.language as T

N = 16

@T.prim_func
def plain(A: T.Tensor((N,), "float32"), B: "T.Tensor((N,), 'float32')", by: T.float32 = 2.0):
    with T.Kernel(1) as _:
        a = T.alloc_shared((N,), "float32")
        T.copy(A, a)
        T.tile.mul(a, a, by)
        T.copy(a, B)

@tilelang.jit(out_idx=[1])
def made(size):
    length = size
    @T.prim_func
    def copied(A: T.Tensor((length,), "float32"), /, B: T.Tensor((length,), "float32")):
        with T.Kernel(1) as _:
            T.copy(A, B)
    return copied

compiled = tilelang.jit(out_idx=[1])(plain)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """MODULE, imported."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "kernels_of_a_module.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("kernels_of_a_module")


def test_pickled_by_name_or_by_what_makes_them(module):
    x = np.arange(16, dtype=np.float32)
    for kernel in (tilelang.compile(module.plain, out_idx=[1]), module.compiled, module.made(16)):
        again = pickle.loads(pickle.dumps(kernel))
        assert (again(x) == kernel(x)).all()
    for one in (module.plain, module.made):
        assert pickle.loads(pickle.dumps(one)) is one
    inner = module.made(16).prim_func
    with pytest.raises(tilelang.ArgumentError, match=r"'copied' cannot be pickled: .*made\.<locals>\.copied"):
        pickle.dumps(inner)


def test_a_deep_copy_of_what_holds_a_kernel(module):
    @dataclasses.dataclass
    class Net:
        kernel: object
        make: object = module.made

    net = Net(module.made(16))
    other = copy.deepcopy(net)
    assert other.kernel is net.kernel and other.make is net.make


def test_defaults_of_parameters(module):
    x = np.ones(16, np.float32)
    kernel = tilelang.compile(module.plain, out_idx=[1])
    assert kernel(x)[0] == 2 and kernel(x, 3.0)[0] == 3 and kernel(x, by=4.0)[0] == 4 and kernel(A=x)[0] == 2


ANNOTATED = """
import tilelang.language as T
def make(M):
    @T.prim_func
    def f(A: T.Tensor((4,), "int8"),
          B: {}):
        with T.Kernel(1) as _:
            pass
    return f
make(3)
"""


@pytest.mark.parametrize("annotation, code, text", [
    ('"T.Tensor((M,)"', "TL1010", "is no Python"),
    ('"T.Tensr((M,))"', "TL1001", "T has no 'Tensr'"),
    ("\"T.Tensor((M,), 'flot')\"", "TL1003", "'flot'"),
    ('"T.Tensor((K,))"', "TL1010", "name 'K' is not defined"),
])  # fmt: skip
def test_annotations_that_are_text(annotation, code, text, tmp_path):
    path = tmp_path / "annotated.py"
    path.write_text(ANNOTATED.format(annotation))
    with pytest.raises(tilelang.CompileError) as caught:
        exec(compile(path.read_text(), str(path), "exec"), {})
    d = caught.value.errors[0]
    assert (d.code, d.line, d.col) == (code, 6, 14) and text in d.text and d.fix


SCOPES = """
from __future__ import annotations
import tilelang
import tilelang.language as T

M = 64

@tilelang.jit
def twice(A: T.Tensor[[M], T.float32]):
    B = T.empty((M,), "float32")
    with T.Kernel(1) as _:
        a = T.alloc_shared((M,), "float32")
        T.copy(A, a)
        T.tile.add(a, a, a)
        T.copy(a, B)
    return B

def call(x):
    M = 128
    return twice(x)

def make(M):
    @T.prim_func
    def kernel(A: T.Tensor((M,), "float32")):
        with T.Kernel(1) as _:
            a = T.alloc_shared((64,), "float32")
            T.copy(A, a)
            if 64 > 128:
                later(a)

    @T.macro
    def later(a):
        T.tile.add(a, a, a)

    return kernel
"""


def test_names_in_annotations_that_are_text(tmp_path):
    """They mean what they mean where the `def` stands, whoever calls; other names may be bound later."""
    path, space = tmp_path / "scopes.py", {}
    path.write_text(SCOPES)
    exec(compile(path.read_text(), str(path), "exec"), space)
    assert np.array_equal(space["call"](np.ones(64, np.float32)), np.full(64, 2, np.float32))
    assert space["make"](64).params[0].shape == (64,)


def test_kernels_are_kept_by_what_their_arguments_hold():
    @dataclasses.dataclass
    class Sizes:
        first: int

    @tilelang.jit(out_idx=[0])
    def make(value):
        first = value[0] if isinstance(value, np.ndarray) else getattr(value, "first", value)

        @T.prim_func
        def f(B: T.Tensor((8,), "float32")):
            with T.Kernel(1) as _:
                T.fill(B, float(first))

        return f

    assert [make(np.full(4, i))()[0] for i in range(5)] == list(range(5))
    table, sizes = np.zeros(4), Sizes(3)
    assert make(table)()[0] == 0 and make(sizes)()[0] == 3 and make(Sizes(3)) is make(sizes)
    table[0], sizes.first = 7, 8
    assert make(table)()[0] == 7 and make(sizes)()[0] == 8
    assert np.signbit(make(-0.0)()[0]) and not np.signbit(make(0.0)()[0])


def test_numbers_that_a_parameter_does_not_hold():
    @T.prim_func
    def f(x: T.float16, y: T.float32, B: T.Tensor((2,), "float32")):
        with T.Kernel(1) as _:
            B[0] = x
            B[1] = y

    kernel = tilelang.compile(f, out_idx=[2])
    with pytest.warns(tilelang.TileLangWarning, match="TL1026: f: argument '[xy]' is beyond float") as found:
        assert kernel(70000.0, -(10**400)).tolist() == [np.inf, -np.inf]
    assert len(found) == 2
    for x in (65510.0, -65519.0):  # rounded, it is there
        assert kernel(x, 0.0)[0] == np.float16(x)
    torch = pytest.importorskip("torch")
    assert kernel(torch.tensor(1.5), torch.ones(1)).tolist() == [1.5, 1.0]


DECORATED = """
    import tilelang
    import tilelang.language as T
    class Net:
        @{}
        @{}
        def f(A: T.Tensor((4,), "int8")):
            pass
"""


@pytest.mark.parametrize("what", ["T.prim_func", "T.macro", "tilelang.jit"])
@pytest.mark.parametrize("kind", ["staticmethod", "classmethod"])
def test_decorators_in_the_wrong_order(what, kind, tmp_path):
    path = tmp_path / "order.py"
    path.write_text(textwrap.dedent(DECORATED.format(what, kind)))
    with pytest.raises(tilelang.TileLangError) as caught:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "order"})
    assert caught.value.errors[0].fix == f"@{kind} stands above @{what}"


def test_outputs_of_several_launches():
    """An output that a later launch writes is not one that nothing writes."""

    @T.prim_func
    def f(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1) as _:
            T.copy(A, B)
        with T.Kernel(1) as _:
            T.copy(B, C)

    kernel = tilelang.compile(f, out_idx=[1, 2])
    assert not kernel.diagnostics and not any(k.diagnostics for k in kernel.rest)
    x = np.arange(16, dtype=np.float32)
    assert all((r == x).all() for r in kernel(x))


def test_what_no_launch_writes():
    """The checks of one launch do not know what others write: what none has written is NaN, and a warning."""

    def make(dtype, read):
        @T.prim_func
        def f(A: T.Tensor((16,), dtype), W: T.Tensor((16,), dtype), C: T.Tensor((16,), dtype)):
            with T.Kernel(1) as _:
                T.copy(A[0:8], W[0:8])
            with T.Kernel(1) as _:
                T.copy(W[0:read], C[0:read])

        return tilelang.compile(f, out_idx=[2], workspace_idx=[1])

    for dtype, read in (("float32", 16), ("float16", 16), ("float32", 8)):
        x, kernel = np.arange(16, dtype=dtype), make(dtype, read)
        for call in (kernel, kernel.interpret) if read == 8 else (kernel,):
            said = "TL0818: 8 of the 16 elements of 'C'.*the first has index .8."
            with pytest.warns(tilelang.TileLangWarning, match=said) if call is kernel else contextlib.nullcontext():
                got = call(x)
            assert (got[:8] == x[:8]).all() and np.isnan(got[8:]).all()
    assert (make("int32", 16)(np.arange(16, dtype=np.int32))[8:] == -1).all()
