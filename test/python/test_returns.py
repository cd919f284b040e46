"""`return` where the chip decides: numbers against the same Python run for each block, and what cannot be expressed."""

from contextlib import nullcontext

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError


@T.macro
def relu(x):
    if x < 0:
        return 0.0
    return x


@T.macro
def sign_of_double(x):
    if x < 0:
        return -1.0
    elif x == 0:
        return 0.0
    y = x * 2
    return y / x


@T.macro
def find(A, v):
    for i in T.serial(4):
        for j in T.serial(4):
            if A[i * 4 + j] == v:
                return i, j
    return -1, -1


@T.macro
def first_above(A, n):
    for i in [3, 1, 2]:  # Python's loop
        if A[i] > n:
            return i
    return T.cast(A[0], "int32")


@T.prim_func
def every_way(X: T.Tensor((16,), "float32"), Y: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(4) as bx:
        if bx >= n:
            return
        for i in T.Parallel(16):
            Y[bx * 16 + i] = relu(X[i])
        if bx == 1:
            Y[16] = sign_of_double(X[3])
            if n > 3:
                return
            Y[17] = sign_of_double(X[2])
        Y[bx * 16 + 2] = first_above(X, 5 - n)
        i, j = find(X, X[7])
        Y[bx * 16 + 3] = i
        Y[bx * 16 + 4] = j
        i, j = find(X, 1e9)
        Y[bx * 16 + 5] = i
        for k in T.serial(4):
            Y[bx * 16 + 6 + k] = 42.0 + k
            if k == bx:
                return
        Y[bx * 16 + 15] = 99.0


def block(x, y, bx, n):
    """What a block of `every_way` does."""
    if bx >= n:
        return
    y[:] = np.maximum(x, 0)
    if bx == 1:
        y[0] = 2 * (x[3] > 0) - (x[3] < 0)
        if n > 3:
            return
        y[1] = 2 * (x[2] > 0) - (x[2] < 0)
    y[2] = next((i for i in (3, 1, 2) if x[i] > 5 - n), int(x[0]))
    y[3:6] = *divmod(int(np.argmax(x == x[7])), 4), -1
    for k in range(4):
        y[6 + k] = 42 + k
        if k == bx:
            return
    y[15] = 99


@pytest.mark.parametrize("n", range(6))
def test_every_way(n):
    x = np.arange(16, dtype="float32") - 6
    x[3] = 0
    want = np.zeros((4, 16), "float32")
    for bx in range(4):
        block(x, want[bx], bx, n)
    for run in (every_way, every_way.compiled().interpret):
        y = np.zeros(64, "float32")
        run(x, y, n)
        np.testing.assert_array_equal(y.reshape(4, 16), want)


def test_a_choice_stays_a_choice():
    """A guard of a helper is no obstacle to vector instructions."""
    assert "select(" in every_way.script()
    assert "var" not in every_way.script().split("parallel")[1].split("}")[0]


@T.prim_func
def both_cores(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32"), n: T.int32):
    with T.Kernel(1) as bx:
        a, c = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        if n == 0:
            return
        T.gemm(a, a, c, clear_accum=True)
        for k in T.serial(3):
            if k == n:
                return
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] + 1.0
            T.copy(c, C)


def test_a_return_of_both_kinds_of_core():
    a = np.random.default_rng(1).standard_normal((64, 64)).astype("float16")
    for n in range(4):
        for run in (both_cores, both_cores.compiled().interpret):
            c = np.zeros((64, 64), "float32")
            run(a, c, n)
            want = a.astype("float32") @ a.astype("float32") + n if n else 0 * c
            np.testing.assert_allclose(c, want, atol=1e-3)


@T.macro
def stop(n):
    if n > 2:
        T.thread_return()


@T.prim_func
def stopped(X: T.Tensor((16,), "float32"), n: T.int32):
    with T.Kernel(1) as bx:
        with T.Scope("V"):
            for i in T.serial(8):
                X[i] = 1.0
                stop(n + i)
            if n == -6:
                X[8] = 2.0
                return
            else:
                X[9] = 3.0
        with T.Scope("C"):
            T.barrier_all()


def test_the_work_of_a_block_ends_in_a_macro():
    for n in (0, 3, -6, -9):
        for run in (stopped, stopped.compiled().interpret):
            x = np.zeros(16, "float32")
            run(x, n)
            want = np.zeros(16, "float32")
            want[: min(8, max(1, 4 - n))] = 1
            if n < -4:
                want[8 if n == -6 else 9] = 2 if n == -6 else 3
            np.testing.assert_array_equal(x, want)


@tilelang.jit
def eager(X):
    M = T.const("M")
    X: T.Tensor((M,), "float32")
    Y = T.empty((M,), "float32")
    with T.Kernel(4) as bx:
        for i in T.Parallel(16):
            Y[bx * 16 + i] = 1.0
        if bx > 1:
            return
        for i in T.Parallel(16):
            Y[bx * 16 + i] = X[bx * 16 + i]
    return Y


def test_the_function_returns_its_tensor_all_the_same():
    x = np.arange(64, dtype="float32")
    np.testing.assert_array_equal(eager(x), np.where(np.arange(64) < 32, x, 1))


@T.prim_func
def lanes(X: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding()
        if tx >= n:
            return
        X[tx] = X[tx] + 1.0


def test_a_numbered_thread_returns():
    x = np.zeros(64, "float32")
    lanes(x, 5)
    np.testing.assert_array_equal(x, np.arange(64) < 5)


def in_kernel(body):
    def make():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32"), n: T.int32):
            with T.Kernel(1) as bx:
                body(X, n)

        return f

    return make


@T.macro
def a_tile(X, n):
    a, b = T.alloc_ub((64,), "float32"), T.alloc_ub((64,), "float32")
    if n > 2:
        return a
    return b


@T.macro
def sometimes(n):
    if n > 2:
        return n * 2


def stores_sometimes(X, n):
    sometimes(n)  # nobody asks for it
    X[0] = sometimes(n)


@T.macro
def in_parallel(X, n):
    for i in T.Parallel(64):
        if i > n:
            return
        X[i] = 1.0


@T.macro
def after_scope(X, n):
    with T.Scope("V"):
        if n > 1:
            return
        X[0] = 2.0
    X[1] = 3.0


@T.macro
def old_if(X, n):
    with T.If(n > 1):
        with T.Then():
            return


@pytest.mark.parametrize(
    "body, code, text, fix",
    [
        (a_tile, "TL1006", "returns 'a' float32(64,) or 'b' float32(64,)", "two branches of an `if`"),
        (stores_sometimes, "TL1008", "on some ways through the function", "at the end of the function"),
        (in_parallel, "TL1006", "`return` inside T.Parallel", "`if` around the rest"),
        (after_scope, "TL1006", "after a T.Scope with a `return` in it", "opposite `if`"),
        (old_if, "TL1006", "`return` inside T.If", "`if` of Python"),
    ],
)
def test_what_cannot_return(body, code, text, fix):
    with pytest.raises(CompileError) as caught:
        in_kernel(body)()
    d = caught.value.errors[0]
    assert d.code == code and text in d.text and fix in d.fix, str(d)


def test_a_tensor_is_returned_always_or_not():
    with pytest.raises(CompileError, match="`return` of 'X'"):

        @T.prim_func
        def f(X: T.Tensor((64,), "float32"), n: T.int32):
            with T.Kernel(1) as bx:
                if n > 1:
                    return X


@T.macro
def bump(x, i):
    x[i] = x[i] + 10.0
    return x[i]


@T.macro
def count(n):
    n += 1
    return n


def bump_of_python(x, i):
    x[i] = x[i] + 10.0
    return x[i]


@T.prim_func
def stores_and_returns(X: T.Tensor((16,), "float32"), Y: T.Tensor((16,), "float32")):
    with T.Kernel(1) as bx:
        x, y = T.alloc_shared((16,), "float32"), T.alloc_shared((16,), "float32")
        n = T.alloc_var("int32", init=0)
        T.copy(X, x)
        for i in T.Parallel(16):
            y[i] = bump(x, i)
        y[0] = bump(x, 3) + bump(x, 3)
        y[1], y[2] = bump(x, 4), bump(x, 4)
        y[3] = count(n) * 10 + count(n)
        T.copy(y, Y)


def test_a_value_is_that_of_the_moment_of_its_return():
    x = np.arange(16, dtype="float32")
    want = x + 10
    want[:4] = 23 + 33, 24, 34, 12
    for run in (stores_and_returns, stores_and_returns.compiled().interpret):
        y = np.zeros(16, "float32")
        run(x, y)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize(
    "value, times",
    [
        (lambda x: bump_of_python(x, 3) + bump_of_python(x, 3), 1),
        (lambda x: x[3] + bump(x, 3), 1),
        (lambda x: bump_of_python(x, 3) + 1, 0),
        (lambda x: bump(x, 3) + x[3], 0),
    ],
)
def test_an_old_element_in_an_expression_is_told(value, times):
    with pytest.warns(tilelang.TileLangWarning) if times else nullcontext() as caught:

        @T.prim_func
        def f(X: T.Tensor((16,), "float32"), Y: T.Tensor((1,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_shared((16,), "float32")
                T.copy(X, x)
                Y[0] = value(x)

    assert [w.message.diagnostic.code for w in caught or ()] == ["TL1029"] * times
