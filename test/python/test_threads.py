"""Kernels that number their threads, against numpy: what differs by thread becomes tiles."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import CompileError

rng = np.random.default_rng(3)


@tilelang.jit
def dot_rows(A, X, rows: int, lanes: int, how: str):
    N, K = T.const("N, K")
    A: T.Tensor((N, K), "float16")
    X: T.Tensor((K,), "float16")
    Y = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, rows), threads=(rows, lanes)) as bn:
        tn = T.get_thread_binding(0)
        tk = T.thread_binding(0, lanes, thread="threadIdx.y")
        a = T.alloc_local((8,), "float16")
        part = T.alloc_local((1,), "float32")
        whole = T.alloc_local((1,), "float32")
        shared = T.alloc_shared((rows,), "float32")
        if tk == 0:
            shared[tn] = 0
        T.clear(part)
        T.sync_threads()
        for bk in T.serial(T.ceildiv(K, lanes * 8)):
            for k in T.vectorized(8):
                a[k] = A[bn * rows + tn, bk * lanes * 8 + tk * 8 + k]
            for k in T.serial(8):
                part[0] += T.cast(a[k], "float32") * T.cast(X[bk * lanes * 8 + tk * 8 + k], "float32")
        if how == "atomic":
            T.atomic_add(shared[tn], part[0])
            T.sync_threads()
            Y[bn * rows + tn] = shared[tn]
        else:
            reducer = T.comm_reducer(lambda x, y: x + y, [T.cast(0, "float32")])
            with T.attr(reducer, "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), part[0], True, whole[0], tk, dtype="handle"))
            if tk == 0:
                Y[bn * rows + tn] = whole[0]
    return Y


@pytest.mark.parametrize("how", ["atomic", "allreduce"])
@pytest.mark.parametrize("n, k, rows, lanes", [(64, 128, 16, 4), (50, 200, 8, 5), (3, 7, 4, 1)])
def test_rows_of_a_product(n, k, rows, lanes, how):
    a, x = rng.standard_normal((n, k)).astype("f2"), rng.standard_normal(k).astype("f2")
    want = a.astype("f4") @ x.astype("f4")
    np.testing.assert_allclose(dot_rows(a, x, rows, lanes, how), want, rtol=1e-3, atol=1e-3)


@tilelang.jit
def body(X, do: object, n: int):
    X: T.Tensor((n,), "int32")
    Y = T.empty((n,), "int32")
    with T.Kernel(1, threads=n):
        do(T.get_thread_binding(), X, Y, n)
    return Y


@T.macro
def exchange(t, X, Y, n):
    s = T.alloc_shared((n,), "int32")
    s[t] = X[t]
    T.sync_threads()
    other = t ^ 1
    Y[t] = s[other] + t


@T.macro
def branches(t, X, Y, n):
    v = T.alloc_local((1,), "int32")
    x = X[t]
    if x > 0:
        v[0] = x * 2
        x_new = v[0] + 1
        v[0] = x_new
    else:
        v[0] = -x
    Y[t] = v[0]


@T.macro
def variable(t, X, Y, n):
    best = T.alloc_var("int32", 0)
    for i in T.serial(n):
        if X[i] < X[t] or (X[i] == X[t] and i < t):
            best += 1
    Y[best] = t


@T.macro
def own_lengths(t, X, Y, n):
    v = T.alloc_local((1,), "int32")
    v[0] = 0
    for i in T.serial(t + 1):
        v[0] = v[0] + X[i]
    Y[t] = v[0]


@T.macro
def strided(t, X, Y, n):
    Y[t] = 0
    for k in T.serial(1):
        f = T.alloc_fragment((n,), "int32")
        T.copy(X[k], f)
        for i in T.serial(t // 2 + 1, n - k, n // 2):
            Y[i] = f[i] + 1


@T.macro
def groups(t, X, Y, n):
    if t < n // 2:
        f = T.alloc_fragment((n,), "int32")
        T.copy(X, f)
        for i in T.Parallel(n // 2):
            Y[i] = f[i] * 3
    else:
        for i in T.Parallel(n - n // 2):
            Y[n // 2 + i] = 7


@T.macro
def between(t, X, Y, n):
    f = T.alloc_fragment((n,), "int32")
    if t >= n // 2 and t < n:
        T.copy(X, f)
    if t >= 1 and t < n // 2:
        for i in T.Parallel(n):
            Y[i] = f[i] + 1


@T.macro
def counted(t, X, Y, n):
    s = T.alloc_shared((1,), "int32")
    if t == 0:
        s[0] = 0
    if t % 2 == 0:
        T.atomic_add(s[0], 1)
    Y[t] = s[0]


@T.macro
def whole_tiles(t, X, Y, n):
    v = T.alloc_local((4,), "int32")
    T.fill(v, t)
    T.copy(X[t // 4 * 4], v)
    Y[t] = v[t % 4] + v[0]


def _rank(x):
    out = np.empty(len(x), "i4")
    out[np.argsort(x, kind="stable")] = 0
    return np.argsort(x, kind="stable").astype("i4")


MEANING = {
    exchange: lambda x: x[np.arange(len(x)) ^ 1] + np.arange(len(x)),
    branches: lambda x: np.where(x > 0, x * 2 + 1, -x),
    variable: _rank,
    own_lengths: np.cumsum,
    strided: lambda x: np.where(np.arange(len(x)) > 0, x + 1, 0),
    groups: lambda x: np.where(np.arange(len(x)) < len(x) // 2, x * 3, 7),
    between: lambda x: x + 1,
    counted: lambda x: np.full(len(x), (len(x) + 1) // 2),
    whole_tiles: lambda x: x + x[np.arange(len(x)) // 4 * 4],
}


@pytest.mark.parametrize("do", MEANING, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [32, 8])
def test_statements_of_threads(do, n):
    x = rng.integers(-9, 9, n).astype("i4")
    np.testing.assert_array_equal(body(x, do, n), MEANING[do](x))


@T.macro
def endless(t, X, Y, n):
    v = T.alloc_local((1,), "int32")
    v[0] = X[t]
    while v[0] > 0:
        v[0] = v[0] - 1
    Y[t] = v[0]


@T.macro
def which(t, X, Y, n):
    for i in T.Parallel(n):
        Y[i] = X[i] + t


@T.macro
def leaves(t, X, Y, n):
    for i in T.serial(n):
        if X[t] == i:
            break
        Y[t] = i


@pytest.mark.parametrize(
    "do, text", [(endless, "another number of runs"), (which, "which thread"), (leaves, "`break` under a condition")]
)
def test_what_has_no_meaning_is_named(do, text):
    with pytest.raises(CompileError, match=text) as e:
        body(np.zeros(8, "i4"), do, 8)
    assert e.value.diagnostics[0].code == "TL1002" and e.value.diagnostics[0].line
