"""Whatever a program passes where it should not: an error at the user's line, and no traceback through this package."""

import pathlib
import random

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import ArgumentError, CompileError, TileLangError
from tilelang.language import tile

pytest.importorskip("tilelang._core")


def functions():
    for n in sorted(T.__all__):
        f = getattr(T, n)
        if callable(f) and not isinstance(f, type) or n in ("Kernel", "If", "Tensor"):
            yield f
    for n in sorted(tile.__all__):
        yield getattr(tile, n)


def test_wrong_arguments_of_every_function():
    choose = random.Random(20)
    # fmt: off
    strange = [None, "abc", 10**30, -1, 1.5, float("nan"), [], (1, 2), {}, object(), lambda: 1, np.zeros(3),
               np.int64(3), T.float32, int, b"x", ..., slice(0, 3), True, {1, 2}]
    # fmt: on
    for f in functions():
        for _ in range(4):
            n_args, seed = choose.randint(0, 5), choose.random()
            try:

                @T.prim_func
                def kernel(X: T.Tensor((64, 64), "float32"), n: T.int32):
                    with T.Kernel(4, is_npu=True) as (i, v):
                        x = T.alloc_ub((64, 64), "float32")
                        y = T.alloc_ub((64, 64), "int32")
                        pick = random.Random(seed)
                        made = f(*(pick.choice([*strange, X, x, y, x[0:2], x[0, 0], n, i]) for _ in range(n_args)))
                        if hasattr(made, "__enter__"):
                            with made:
                                pass

                tilelang.compile(kernel)
            except TileLangError as e:
                assert not {"TL0001", "TL0002", "TL0100"} & {d.code for d in e.diagnostics}, str(e)
                here = pathlib.Path(__file__).name
                assert all(pathlib.Path(d.file).name == here and d.line for d in e.errors), str(e)


@pytest.mark.parametrize("thing", [3, None, "abc", len, int, object(), pathlib.Path])
def test_a_kernel_is_a_function(thing):
    for decorator in (T.prim_func, T.macro, tilelang.jit(), tilelang.compile):
        if thing is None and decorator in (T.prim_func, T.macro):
            continue
        with pytest.raises(TileLangError):
            decorator(thing)


def test_kinds_of_functions():
    with pytest.raises(CompileError, match="TL1009.*not a `def`"):
        T.prim_func(lambda X: 1)

    async def waiting(X: T.Tensor((4,), "float32")):
        pass

    with pytest.raises(CompileError, match="TL1009"):
        T.prim_func(waiting)

    def yielding(X: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            yield 1

    with pytest.raises(CompileError, match="TL1009.*has a `yield`"):
        T.prim_func(yielding)

    @T.macro
    def endless(x):
        endless(x)

    def recursive(X: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            endless(X)

    with pytest.raises(CompileError, match="TL1014.*calls itself without end"):
        T.prim_func(recursive)

    def factory():
        @T.prim_func
        def kernel(X: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                factory()

    with pytest.raises(CompileError, match="TL1014.*calls itself without end") as caught:
        factory()
    assert caught.value.errors[0].file == __file__  # not a file of Python's library that the front end reads with


def test_errors_of_the_user_stay_the_users():
    def kernel(X: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            X[0] = undefined_name  # noqa: F821

    with pytest.raises(NameError, match="undefined_name"):
        T.prim_func(kernel)

    def wrong(X: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            T.copy(X)

    with pytest.raises(CompileError, match="TL1004: T.copy is called without its argument 'dst'"):
        T.prim_func(wrong)


def test_names_of_other_scripts_and_of_cplusplus():
    @T.prim_func
    def größe(Ä: T.Tensor((8,), "float32"), int: T.Tensor((8,), "float32"), kernel: T.int32):
        with T.Kernel(1):
            vector = T.alloc_ub((8,), "float32")
            T.copy(Ä, vector)
            T.copy(vector, int)

    compiled = tilelang.compile(größe, out_idx=1)
    assert np.array_equal(compiled(np.arange(8, dtype=np.float32), 1), np.arange(8))
    assert compiled.get_kernel_source("ascendc") and compiled.get_kernel_source("pto")


def test_numbers_no_dtype_holds():
    def kernel(X: T.Tensor((4,), "int32"), n: T.int32):
        with T.Kernel(1):
            X[0] = n + 10**30

    with pytest.raises(CompileError, match="TL1004: 10+ does not fit int32"):
        T.prim_func(kernel)
    with pytest.raises(CompileError, match="TL0205.*elements, more than") as e:

        @T.prim_func
        def huge(X: T.Tensor((2**40, 2**40), "float32")):
            with T.Kernel(1):
                X[0, 0] = 1.0

        tilelang.compile(huge)
    assert pathlib.Path(e.value.errors[0].file).name == pathlib.Path(__file__).name
    with pytest.raises(CompileError, match="TL1010"):
        T.Tensor((-3,), "float32")


def copies():
    M = T.symbolic("M")

    @T.prim_func
    def f(X: T.Tensor((M, 4), "float32"), n: T.int32, Y: T.Tensor((M, 4), "float32")):
        with T.Kernel(M) as b:
            x = T.alloc_ub((4,), "float32")
            T.copy(X[b, :], x)
            T.tile.add(x, x, T.cast(n, "float32"))
            T.copy(x, Y[b, :])

    return f


class Liar:
    shape, dtype = (4, 4), "float32"

    def __dlpack__(self, **_):
        return 3


def test_wrong_arguments_of_a_call():
    kernel = tilelang.compile(copies())
    good = np.zeros((4, 4), np.float32)
    # fmt: off
    wrong = [None, "x", [[1.0]], 3, 1.5, object(), b"abc", bytearray(64), good.astype(float), good.astype(complex),
             good.astype(">f4"), good.T.copy().T[::2], np.zeros(4, np.float32), np.zeros((1, 4, 4), np.float32), int,
             np.ma.zeros((4, 4), np.float32), np.array([["a"] * 4] * 4), np.zeros((4, 4), "M8[s]"), Liar(),
             np.array([[object()] * 4] * 4), np.broadcast_to(np.float32(0), (4, 4)), np.zeros((3, 4), np.float32)]
    # fmt: on
    for x in wrong:
        with pytest.raises(ArgumentError) as e:
            kernel(x, 1, good)
        assert e.value.code == "TL1030" and e.value.errors[0].line, x
    for n in [None, "x", [1], 1.5, 10**30, -(2**31) - 1, float("nan"), object(), good, np.float32(3), int]:
        with pytest.raises(ArgumentError) as e:
            kernel(good, n, good)
        assert "argument 'n'" in str(e.value) and len(str(e.value)) < 400, n
    for args, names in [((good,), {}), ((good, 1, good, good), {}), ((good, 1), {"Z": good}), ((good, 1), {"X": good})]:
        with pytest.raises(ArgumentError):
            kernel(*args, **names)


@pytest.mark.parametrize(
    "options",
    [
        {"out_idx": 5}, {"out_idx": "a"}, {"out_idx": 1.5}, {"out_idx": [None]}, {"out_idx": 1}, {"target": 3},
        {"target": "cuda"}, {"chip": "x"}, {"chip": 3}, {"pass_configs": 3}, {"pass_configs": {3: 1}}, {"foo": 1},
        {"platform": "B"}, {"platform": 3}, {"workspace_idx": -9},
    ],
)  # fmt: skip
def test_wrong_options(options):
    with pytest.raises(TileLangError) as e:
        tilelang.compile(copies(), **options)
    assert e.value.errors[0].line


COMMAND = """import tilelang, tilelang.language as T
@T.prim_func
def f(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        x = T.alloc_ub((8,), "float32")
        T.copy(X, x)
        T.copy(x, Y[0:OTHER])
print(tilelang.compile(f).name)
"""


def test_kernels_of_a_command_line():
    import subprocess
    import sys

    def run(text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)

    assert run(COMMAND.replace("OTHER", "8")).stdout == "f\n"
    assert "<string>:7:16: error TL0501: T.copy moves" in run(COMMAND.replace("OTHER", "4")).stderr
    inside = COMMAND.replace("OTHER", "8")
    assert "TL1009" in run(f"exec({inside!r})").stderr


def test_a_tensor_that_is_none():
    @tilelang.jit
    def add(A, B):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B: T.Tensor((N,), T.float32)
        C = T.empty((N,), T.float32)
        with T.Kernel(1):
            a = T.alloc_ub((N,), "float32")
            T.copy(A, a)
            T.copy(a, C)
        return C

    good = np.zeros(8, np.float32)
    assert add(good, good).shape == (8,)
    for wrong in (None, "x", [1.0]):
        for args in ((wrong, good), (good, wrong)):
            with pytest.raises(ArgumentError, match="wanted a tensor"):
                add(*args)


def test_traps():
    """Accepted by other compilers, and wrong: a truth as an index, numbers as a mask, constants beyond the range."""

    def kernel(body):
        @T.prim_func
        def f(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
            with T.Kernel(1):
                x = T.alloc_ub((64, 64), "float16")
                y = T.alloc_ub((64, 64), "float16")
                T.copy(X, x)
                body(X, Y, x, y)

        return f

    with pytest.raises(CompileError, match="TL1011: True is not an index"):
        kernel(lambda X, Y, x, y: T.copy(x[True], y))
    with pytest.raises(CompileError, match="TL1004: T.tile.select: a mask is one bit an element, and 'y"):
        kernel(lambda X, Y, x, y: T.tile.select(x, y, x, x))
    with pytest.warns(tilelang.TileLangWarning, match="TL1020: T.tile.compare: a mask is one bit"):
        kernel(lambda X, Y, x, y: T.tile.compare(y, x, 0.0, "GT"))
    with pytest.warns(tilelang.TileLangWarning, match="TL1026: 70000.0 is beyond float16, which ends at 65504"):
        kernel(lambda X, Y, x, y: T.fill(y, 7e4))
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    assert np.array_equal(tilelang.compile(kernel(lambda X, Y, x, y: T.copy(X, Y)), out_idx=[1])(x), x)
