"""Vector statements legalized and run on the simulated chip give numpy's numbers.

Each case is a kernel of one statement on UB buffers: `run` writes its text, the buffers go in and out whole. Ops times
dtypes times shapes: lengths around a block of 32 bytes, rows of odd width, every way to broadcast, extents known only
at run time, tiles that lie in larger buffers and tiles that overlap.
"""

import itertools
import zlib

import ml_dtypes
import numpy as np
import pytest

DTYPE = {n: np.dtype(t) for n, t in {"f16": "float16", "f32": "float32", "bf16": ml_dtypes.bfloat16, "i8": "int8",
                                     "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32",
                                     "i64": "int64"}.items()}
FLOATS = ("f16", "bf16", "f32")
INTS = ("i8", "u8", "i16", "i32")
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 3e-6}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "div": np.divide}
REDUCE = {"reduce_sum": (np.sum, np.add), "reduce_max": (np.max, np.maximum), "reduce_min": (np.min, np.minimum)}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal}


def tile(t, shape, kind="any"):
    rng = np.random.default_rng(zlib.crc32(repr((t, shape, kind)).encode()))
    d = DTYPE[t]
    if t in FLOATS:
        x = rng.standard_normal(shape) * 2
        return (abs(x) + 0.1 if kind == "positive" else x).astype(d)
    low, high = (0 if d.kind == "u" else -50, 50) if kind == "small" else (np.iinfo(d).min, np.iinfo(d).max)
    return rng.integers(low, high, shape, dtype=d, endpoint=True)


def wide(x):
    """What the chip computes in: f32 for the floats, the ints themselves."""
    return x.astype(np.float32) if x.dtype.kind not in "iub" else x


@pytest.fixture
def run(tlc, tmp_path):
    def go(statement, out, **buffers):
        """buffers: name = (dtype, array) or, scalars, name = int; returns the buffer `out` afterwards."""
        params, allocs, loads, args = [], [], [], []
        for n, b in buffers.items():
            if isinstance(b, int):
                params.append(f"%{n}: i32")
                args += ["--arg", f"{n}={b}"]
                continue
            t, x = b
            kind = f"{t}[{', '.join(map(str, x.shape))}]"
            np.save(tmp_path / f"{n}.npy", x)
            params.append(f"%G{n}: gm {kind}")
            allocs.append(f"alloc %{n}: ub {kind}")
            loads.append(f"copy %G{n} -> %{n}")
            args += ["--arg", f"G{n}={tmp_path / n}.npy"]
            if n == out:
                params.append(f"%O: gm {kind} out")
        body = [*loads, statement, f"copy %{out} -> %O"]
        head = f"kernel @t({', '.join(params)}) grid(%bx: 1) {{"
        text = "\n".join(["tl 1", head, *allocs, "vector {", *body, "}", "}", ""])
        (tmp_path / "t.tl").write_text(text)
        status, _, err = tlc("sim", tmp_path / "t.tl", *args, "--out", f"O={tmp_path / 'O.npy'}")
        assert status == 0, f"{text}\n{err}"
        return np.load(tmp_path / "O.npy").view(DTYPE[buffers[out][0]])

    return go


def same(got, want, t, scale=1):
    want = np.asarray(want).astype(DTYPE[t])
    if t in FLOATS:
        tol = TOLERANCE[t] * scale
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tol, atol=tol)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("t", FLOATS + INTS)
@pytest.mark.parametrize("op", BINARY)
def test_lengths(run, op, t):
    if op == "div" and t in INTS:
        pytest.skip("the chip divides floats only; an error says so")
    for n in (1, 31, 32, 33, 1000):
        a, b = tile(t, (n,)), tile(t, (n,), "positive")
        with np.errstate(over="ignore"):
            same(run(f"{op} %a, %b -> %a", "a", a=(t, a), b=(t, b)), BINARY[op](wide(a), wide(b)).astype(DTYPE[t]), t)


SHAPES = ((5, 64), (8, 33), (3, 512), (40, 200), (9, 130), (3, 4, 64))


@pytest.mark.parametrize("t", ("f32", "f16", "bf16", "i8", "i32"))
@pytest.mark.parametrize("shape", SHAPES)
def test_broadcast(run, shape, t):
    for keep in itertools.product((0, 1), repeat=len(shape)):
        part = tuple(n if k else 1 for n, k in zip(shape, keep))
        a, b = tile(t, shape, "small"), tile(t, part, "small")
        c = np.zeros(shape, DTYPE[t])
        for left, right in (("a", "b"), ("b", "a")):
            x, y = (a, b) if left == "a" else (b, a)
            got = run(f"sub %{left}, %{right} -> %c", "c", a=(t, a), b=(t, b), c=(t, c))
            same(got, (wide(x) - wide(y)).astype(DTYPE[t]), t)


@pytest.mark.parametrize("t", ("f32", "f16", "bf16", "i8", "i32"))
@pytest.mark.parametrize("at, n", ((0, 16), (0, 40), (32, 64), (8, 24), (5, 7), (32, 33)))
def test_windows(run, at, n, t):
    a = tile(t, (6, 128), "small")
    want = a.copy()
    want[0:4, at : at + n] = (wide(a)[1:5, at : at + n] + wide(a)[2:6, at : at + n]).astype(DTYPE[t])
    win = f"{at} +: {n}"
    got = run(f"add %a[1 +: 4, {win}], %a[2 +: 4, {win}] -> %a[0 +: 4, {win}]", "a", a=(t, a))
    same(got, want, t)


UNARY = {"exp": np.exp, "ln": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
         "relu": lambda x: np.maximum(x, 0), "abs": np.abs, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
         "silu": lambda x: x / (1 + np.exp(-x)), "tanh": np.tanh}


@pytest.mark.parametrize("t", FLOATS + INTS)
@pytest.mark.parametrize("op", UNARY)
def test_unary(run, op, t):
    if t in INTS and op not in ("relu", "abs"):
        pytest.skip("floats only; an error says so")
    for part, shape in (((33,), (33,)), ((5, 64), (5, 64)), ((5, 1), (5, 64)), ((1, 64), (5, 64)), ((7, 33), (7, 33))):
        a = tile(t, part, "positive" if op in ("ln", "sqrt", "rsqrt", "reciprocal") else "small")
        want = np.broadcast_to(UNARY[op](a.astype(np.float64) if t in FLOATS else a).astype(DTYPE[t]), shape)
        same(run(f"{op} %a -> %c", "c", a=(t, a), c=(t, np.zeros(shape, DTYPE[t]))), want, t, 2)


@pytest.mark.parametrize("t", ("i8", "u8", "i16", "u16", "i32", "u32", "i64"))
def test_bits(run, t):
    for op, f in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.items():
        for part in ((5, 64), (1, 64), (5, 1)):
            a, b = tile(t, (5, 64)), tile(t, part, "bits")
            same(run(f"{op} %a, %b -> %a", "a", a=(t, a), b=(t, b)), f(a, b), t)
    a = tile(t, (5, 40))
    same(run("not %a -> %a", "a", a=(t, a)), ~a, t)
    same(run("shl %a, 3 -> %a", "a", a=(t, a)), a << DTYPE[t].type(3), t)
    same(run("shr %a, 2 -> %a", "a", a=(t, a)), a >> DTYPE[t].type(2), t)


@pytest.mark.parametrize("to", DTYPE)
@pytest.mark.parametrize("of", DTYPE)
def test_cast(run, of, to):
    for shape in ((33,), (5, 64)):
        a = tile(of, shape, "small")
        if DTYPE[to].kind == "u":
            a = np.abs(a.astype(np.float32)).astype(DTYPE[of])
        if of in FLOATS:
            a = (a.astype(np.float32) * 7).astype(DTYPE[of])
        c = (to, np.zeros(shape, DTYPE[to]))
        x = a.astype(np.float64)
        same(run("copy %a -> %c", "c", a=(of, a), c=c), a.astype(np.float32) if to in FLOATS else np.rint(x), to)
        if of in FLOATS and to not in FLOATS:
            for mode, f in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}.items():
                same(run(f"cast %a -> %c mode({mode})", "c", a=(of, a), c=c), f(x), to)


def test_cast_rounds_once_and_saturates(run):
    for of, to, values, want in (("f32", "i8", [2.50001, 2.5, 3.5, 1e9, -1e9, 127.4], [3, 2, 4, 127, -128, 127]),
                                 ("f32", "u8", [2.50001, 255.6, -5], [3, 255, 0]),
                                 ("i32", "f16", [2049, 2051, 65504], [2048, 2052, 65504]),
                                 ("i32", "i8", [300, -300, 5], [127, -128, 5]),
                                 ("bf16", "i8", [2.5, 300, -3.5], [2, 127, -4])):
        a, c = np.array(values, DTYPE[of]), np.zeros(len(values), DTYPE[to])
        assert run("copy %a -> %c", "c", a=(of, a), c=(to, c)).tolist() == want


@pytest.mark.parametrize("t", (*FLOATS, *INTS, "i64"))
@pytest.mark.parametrize("op", REDUCE)
def test_reduce(run, op, t):
    f, both = REDUCE[op]
    kind = "small" if t in FLOATS else "any"
    for shape, dim in itertools.chain(itertools.product(((1, 33), (5, 64), (8, 33), (16, 200), (33, 32)), (0, 1)),
                                      [((9000,), 0), ((3, 1000), 1), ((3, 4, 64), 1), ((3, 4, 64), 2)]):
        if t == "i64" and np.prod(shape) > 400:
            continue
        a = tile(t, shape, kind)
        x = a.astype(np.float64) if t in FLOATS else a.astype(np.int64)
        want = f(x, axis=dim, keepdims=True)
        c = tile(t, want.shape, kind)
        for keep in (False, True):
            r = both(c.astype(want.dtype), want) if keep else want
            statement = f"{op} %a -> %c dim({dim})" + (" keep" if keep else "")
            same(run(statement, "c", a=(t, a), c=(t, c)), r.astype(DTYPE[t]), t, 60 if t == "f32" else 4)


@pytest.mark.parametrize("t", FLOATS + INTS)
def test_masks(run, t):
    for n, (mode, f) in itertools.product((1, 33, 256), COMPARE.items()):
        a, b = tile(t, (n,), "small"), tile(t, (n,), "other")
        b[::2] = a[::2]
        m = ("u8", np.zeros(-(-n // 8), np.uint8))
        got = run(f"compare %a, %b -> %m cmp({mode})", "m", a=(t, a), b=(t, b), m=m)
        same(np.unpackbits(got, bitorder="little")[:n], f(a, b), "u8")
        if mode == "eq":
            m = np.packbits(np.arange(n) % 3 == 0, bitorder="little")
            got = run("select %m, %a, %b -> %b", "b", a=(t, a), b=(t, b), m=("u8", m))
            same(got, np.where(np.arange(n) % 3 == 0, a, b), t)


@pytest.mark.parametrize("t", ("f32", "f16", "bf16", "i8", "i32"))
@pytest.mark.parametrize("k", (1, 7, 63, 64, 200))
def test_extents_at_run_time(run, k, t):
    a, c, v = tile(t, (6, 200), "small"), tile(t, (6, 200), "other"), tile(t, (6, 1), "small")
    win, want = "[0 +: 6, 0 +: min(200, %k)]", c.copy()
    with np.errstate(over="ignore"):
        want[:, :k] = (wide(a)[:, :k] + wide(v)).astype(DTYPE[t])
    same(run(f"add %a{win}, %v -> %c{win}", "c", a=(t, a), c=(t, c), v=(t, v), k=k), want, t)
    got = run(f"reduce_max %a{win} -> %v dim(1)", "v", a=(t, a), v=(t, v), k=k)
    same(got, np.max(wide(a)[:, :k], axis=1, keepdims=True), t)


@pytest.mark.parametrize("t", FLOATS + INTS)
def test_in_place(run, t):
    a = tile(t, (5, 40), "small")
    x = wide(a)
    cases = {"sub %a, %a[0 +: 1, 0 +: 40] -> %a": x - x[:1], "sub %a, %a[0 +: 5, 0 +: 1] -> %a": x - x[:, :1],
             "mul %a, %a[2, 3] -> %a": x * x[2, 3], "axpy %a, 3 -> %a": x + x * x.dtype.type(3),
             "copy %a[0 +: 4, 0 +: 40] -> %a[1 +: 4, 0 +: 40]": np.concatenate([x[:1], x[:4]])}
    for statement, want in cases.items():
        with np.errstate(over="ignore"):
            same(run(statement, "a", a=(t, a)), want.astype(DTYPE[t]), t, 2)


@pytest.mark.parametrize("first,step", [(0, 1), (100, -1), (-7, 3)])
@pytest.mark.parametrize("t", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "f16", "bf16", "f32"])
def test_arange(run, t, first, step):
    """Integers wrap in their dtype, however narrow."""
    if t[0] == "u" and min(first, step) < 0:
        pytest.skip("the verifier refuses the constant")
    a = np.zeros(320, DTYPE[t])
    same(run(f"arange {first}, {step} -> %a", "a", a=(t, a)), (np.arange(320) * step + first), t)
