"""What each instruction does to numbers, against numpy: rounding of the instruction, layouts, tails, strides."""

import numpy as np
import pytest

F32, F16, I32, I16 = np.float32, np.float16, np.int32, np.int16
NAME = {
    np.dtype(t): n
    for t, n in [
        (F32, "f32"),
        (F16, "f16"),
        (I32, "i32"),
        (I16, "i16"),
        (np.int8, "i8"),
        (np.uint8, "u8"),
        (np.int64, "i64"),
        (np.uint16, "u16"),
        (np.uint32, "u32"),
    ]
}


def sim(tlc, tmp_path, text, out="C", **arrays):
    """Runs the kernel on the arrays; returns tensor %C."""
    (tmp_path / "k.tl").write_text("tl 1\n" + text)
    args = ["--out", f"{out}=out.npy"]
    for name, a in arrays.items():
        if isinstance(a, np.ndarray):
            np.save(tmp_path / f"{name}.npy", a)
        args += ["--arg", f"{name}={name}.npy" if isinstance(a, np.ndarray) else f"{name}={a}"]
    status, _, err = tlc("sim", *args, "k.tl", cwd=tmp_path)
    assert status == 0, err
    return np.load(tmp_path / "out.npy")


def kernel(params, allocs, body, cores="vector"):
    lines = "\n".join(body)
    return (
        f'kernel @k({", ".join(params)}) grid(%bx: 1) lowered("910B2", {cores}) {{\n{allocs}\n{cores}'
        f" {{\n{lines}\n}}\n}}\n"
    )


def vector(tlc, tmp_path, op, out_type, out_shape, *inputs):
    """One vector instruction: `op` names its inputs %a, %b, ... and its result %r."""
    params, allocs, body, at = [], [], [], 0
    for name, x in zip("abcd", inputs):
        shape = ", ".join(map(str, x.shape))
        params.append(f"%{name.upper()}x: gm {NAME[x.dtype]}[{shape}]")
        allocs.append(f"alloc %{name}: ub {NAME[x.dtype]}[{shape}] at {at}")
        body.append(f"gm_to_ub %{name.upper()}x -> %{name}")
        at += (x.nbytes + 31) // 32 * 32
    shape = ", ".join(map(str, out_shape))
    kind = NAME[np.dtype(out_type)]
    allocs.append(f"alloc %r: ub {kind}[{shape}] at {at}")
    body += ["barrier all", op, "barrier all", "ub_to_gm %r -> %C"]
    text = kernel([*params, f"%C: gm {kind}[{shape}] out"], "\n".join(allocs), body)
    return sim(tlc, tmp_path, text, **{f"{n.upper()}x": x for n, x in zip("abcd", inputs)})


def same(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def numbers(dtype, n=1000, seed=0, low=-8.0, high=8.0):
    r = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        x = r.uniform(low, high, n).astype(dtype)
        x[:8] = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny], dtype)[: len(x[:8])]
        return x
    info = np.iinfo(dtype)
    x = r.integers(info.min, info.max, n, dtype, endpoint=True)
    x[:3] = [info.min, info.max, 0]
    return x


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "div": np.divide}


@pytest.mark.parametrize("dtype", [F32, F16, I32, I16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("op", BINARY)
def test_binary(tlc, tmp_path, op, dtype):
    if op == "div" and np.dtype(dtype).kind == "i":
        pytest.skip("the vector unit divides floats only")
    a, b = numbers(dtype, seed=1), numbers(dtype, seed=2)[::-1].copy()
    with np.errstate(all="ignore"):
        same(vector(tlc, tmp_path, f"{op} %a, %b -> %r", dtype, a.shape, a, b), BINARY[op](a, b))


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("op", BINARY)
def test_scalar_operand(tlc, tmp_path, op, dtype):
    """The scalar is rounded to the tile's dtype; a division multiplies by the reciprocal."""
    a = numbers(dtype, seed=3)
    with np.errstate(all="ignore"):
        want = a * dtype(F32(1) / F32(0.3)) if op == "div" else BINARY[op](a, dtype(0.3))
        same(vector(tlc, tmp_path, f"{op} %a, 0.3 -> %r", dtype, a.shape, a), want)


def ulps(got, want, dtype):
    """Distance in units of the last place of the exact (double) result."""
    ok = np.isfinite(want) & (np.abs(want) <= np.finfo(dtype).max)
    rounded = want.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    np.testing.assert_array_equal(got[~ok & ~np.isnan(rounded)], rounded[~ok & ~np.isnan(rounded)])
    return np.max(np.abs(got[ok].astype(np.float64) - want[ok]) / np.spacing(np.abs(rounded[ok])).astype(np.float64))


UNARY = {
    "exp": np.exp,
    "ln": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("op", UNARY)
def test_unary(tlc, tmp_path, op, dtype):
    a = numbers(dtype, 4096, seed=4, low=-100 if dtype is F32 else -12, high=95 if dtype is F32 else 12)
    if op in ("ln", "sqrt", "rsqrt"):
        a[16:] = np.abs(a[16:])
    with np.errstate(all="ignore"):
        got = vector(tlc, tmp_path, f"{op} %a -> %r", dtype, a.shape, a)
        assert ulps(got, UNARY[op](a.astype(np.float64)), dtype) <= 0.51


def test_fused_ops(tlc, tmp_path):
    a, b = numbers(F16, seed=5)[8:], numbers(F16, seed=6)[8:]
    wide = a.astype(F32) * b.astype(F32)
    same(
        vector(tlc, tmp_path, "fill 1.5 -> %r\nbarrier v\nmul_add %a, %b -> %r", F16, a.shape, a, b),
        (F32(1.5) + wide).astype(F16),
    )
    want = (F32(1.5) + a.astype(F32) * F32(F16(0.3))).astype(F16)
    same(vector(tlc, tmp_path, "fill 1.5 -> %r\nbarrier v\naxpy %a, 0.3 -> %r", F16, a.shape, a), want)
    same(vector(tlc, tmp_path, "leaky_relu %a, 0.5 -> %r", F16, a.shape, a), np.where(a >= 0, a, a * F16(0.5)))


def test_bits_and_shifts(tlc, tmp_path):
    a, b = numbers(I16, seed=7), numbers(I16, seed=8)
    same(vector(tlc, tmp_path, "and %a, %b -> %r", I16, a.shape, a, b), a & b)
    same(vector(tlc, tmp_path, "or %a, %b -> %r", I16, a.shape, a, b), a | b)
    same(vector(tlc, tmp_path, "not %a -> %r", I16, a.shape, a), ~a)
    for dtype in (I16, I32, np.uint16, np.uint32):
        x = numbers(dtype, seed=9)
        same(vector(tlc, tmp_path, "shl %a, 3 -> %r", dtype, x.shape, x), x << dtype(3))
        same(vector(tlc, tmp_path, "shr %a, 3 -> %r", dtype, x.shape, x), x >> dtype(3))


ROUND = {
    "rint": np.rint,
    "none": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
}


@pytest.mark.parametrize("mode", ROUND)
def test_float_to_int(tlc, tmp_path, mode):
    a = np.concatenate([np.arange(-8, 8, 0.5), numbers(F32, 500, 10, -3e9, 3e9)]).astype(F32)
    with np.errstate(all="ignore"):
        want = (
            np.nan_to_num(np.clip(ROUND[mode](a.astype(np.float64)), -(2.0**31), 2.0**31 - 1), nan=0)
            .astype(np.int64)
            .astype(I32)
        )
    same(vector(tlc, tmp_path, f"cast %a -> %r mode({mode})", I32, a.shape, a), want)


def test_casts(tlc, tmp_path):
    f = numbers(F32, seed=11, low=-70000, high=70000)
    with np.errstate(all="ignore"):
        half = f.astype(F16)
    same(vector(tlc, tmp_path, "cast %a -> %r mode(rint)", F16, f.shape, f), half)
    same(vector(tlc, tmp_path, "cast %a -> %r mode(none)", F32, half.shape, half), half.astype(F32))
    low = vector(tlc, tmp_path, "cast %a -> %r mode(floor)", F16, f.shape, f).astype(np.float64)
    high = vector(tlc, tmp_path, "cast %a -> %r mode(ceil)", F16, f.shape, f).astype(np.float64)
    ok = ~np.isnan(f)
    assert np.all(low[ok] <= f[ok]) and np.all(f[ok] <= high[ok])
    odd = vector(tlc, tmp_path, "cast %a -> %r mode(odd)", F16, f.shape, f)
    inexact = ok & (np.abs(f) < 65000) & (low != high)
    assert np.all(odd.view(np.uint16)[inexact] & 1)
    i = numbers(I32, seed=12)
    same(vector(tlc, tmp_path, "cast %a -> %r mode(none)", F32, i.shape, i), i.astype(F32))
    same(vector(tlc, tmp_path, "cast %a -> %r mode(none)", I16, i.shape, i), np.clip(i, -32768, 32767).astype(I16))
    b = numbers(np.int8, seed=13)
    same(vector(tlc, tmp_path, "cast %a -> %r mode(none)", F16, b.shape, b), b.astype(F16))


@pytest.mark.parametrize(
    "mode,fn",
    [
        ("eq", np.equal),
        ("ne", np.not_equal),
        ("gt", np.greater),
        ("ge", np.greater_equal),
        ("lt", np.less),
        ("le", np.less_equal),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda t: t.__name__)
def test_compare_and_select(tlc, tmp_path, dtype, mode, fn):
    a, b = numbers(dtype, 1024, 14), numbers(dtype, 1024, 15)
    b[::3] = a[::3]
    mask = vector(tlc, tmp_path, f"compare %a, %b -> %r cmp({mode})", np.uint8, (128,), a, b)
    same(mask, np.packbits(fn(a, b), bitorder="little"))
    chosen = np.unpackbits(mask, bitorder="little").astype(bool)
    same(vector(tlc, tmp_path, "select %c, %a, %b -> %r", dtype, a.shape, a, b, mask), np.where(chosen, a, b))
    same(vector(tlc, tmp_path, "select %b, %a, 2.0 -> %r", dtype, a.shape, a, mask), np.where(chosen, a, dtype(2)))


def test_select_repeats_the_mask(tlc, tmp_path):
    a, mask = numbers(F32, 256, 16)[8:].copy(), np.arange(8, dtype=np.uint8) * 37
    a = np.resize(a, 256)
    bits = np.tile(np.unpackbits(mask, bitorder="little"), 4).astype(bool)
    same(
        vector(tlc, tmp_path, "select %b, %a, %c -> %r maskrep", F32, a.shape, a, np.resize(mask, 32), -a),
        np.where(bits, a, -a),
    )


def tree(x, dtype):
    """Neighbours are added, each sum rounded to dtype; an f16 sum does not pass 65504."""
    x = list(x)
    while len(x) > 1:
        x = [
            np.clip(dtype(x[i] + x[i + 1]), np.finfo(dtype).min, np.finfo(dtype).max) if i + 1 < len(x) else x[i]
            for i in range(0, len(x), 2)
        ]
    return x[0]


@pytest.mark.parametrize("dtype,cols", [(F32, 64), (F16, 128), (F32, 24), (F16, 48)])
def test_row_reductions(tlc, tmp_path, dtype, cols):
    a = np.resize(numbers(dtype, 16 * cols, 17)[8:], (16, cols))
    same(vector(tlc, tmp_path, "row_max %a -> %r", dtype, (16,), a), a.max(1))
    same(vector(tlc, tmp_path, "row_min %a -> %r", dtype, (16,), a), a.min(1))
    a[3] = 60000
    with np.errstate(over="ignore"):
        same(vector(tlc, tmp_path, "row_sum %a -> %r", dtype, (16,), a), np.array([tree(r, dtype) for r in a], dtype))


def test_rows_blocks_and_broadcast(tlc, tmp_path):
    a, row, col = numbers(F32, 16 * 64, 18)[8:], numbers(F32, 72, 19)[8:], numbers(F32, 24, 20)[8:]
    a = np.resize(a, (16, 64))
    spread = vector(tlc, tmp_path, "brcb %a -> %r", F32, (16, 8), col)
    same(spread, np.repeat(col[:, None], 8, 1))
    same(vector(tlc, tmp_path, "sub %a, %b -> %r", F32, a.shape, a, spread), a - col[:, None])
    same(vector(tlc, tmp_path, "mul %a, %b -> %r", F32, a.shape, a, row.reshape(1, 64)), a * row)
    same(
        vector(
            tlc,
            tmp_path,
            "fill 0.0 -> %r\nbarrier v\nadd %a[4 +: 8, 8 +: 20], %a[0 +: 8, 32 +: 20] -> %r[2 +: 8, 16 +: 20]",
            F32,
            a.shape,
            a,
        )[2:10, 16:36],
        a[4:12, 8:28] + a[0:8, 32:52],
    )


def test_fill_arange_move(tlc, tmp_path):
    a = np.resize(numbers(F16, 1000, 21)[8:], (16, 64))
    same(vector(tlc, tmp_path, "fill 0.1 -> %r", F16, (37,)), np.full(37, 0.1, F16))
    same(vector(tlc, tmp_path, "arange 5, 3 -> %r", I32, (64,)), np.arange(5, 5 + 3 * 64, 3, I32))
    same(vector(tlc, tmp_path, "move %a -> %r", F16, a.shape, a), a)


def test_dma_strides_and_atomic(tlc, tmp_path):
    a = np.resize(numbers(F32, 500, 22)[8:], (3, 10, 20)).copy()
    text = kernel(
        ["%A: gm f32[3, 10, 20]", "%C: gm f32[3, 10, 20]"],
        "alloc %u: ub f32[3, 5, 8] at 0",
        [
            "for %i in 0..3 {",
            "gm_to_ub %A[%i +: 1, 2 +: 5, 7 +: 8] -> %u[%i +: 1, 0 +: 5, 0 +: 8]",
            "}",
            "barrier all",
            "for %j in 0..3 {",
            "ub_to_gm %u[%j +: 1, 0 +: 5, 0 +: 8] -> %C[%j +: 1, 4 +: 5, 1 +: 8] atomic",
            "}",
        ],
    )
    c = np.ones((3, 10, 20), F32)
    want = c.copy()
    want[:, 4:9, 1:9] += a[:, 2:7, 7:15]
    same(sim(tlc, tmp_path, text, A=a, C=c), want)


# ---- the cube ------------------------------------------------------------------------------------------------


def accumulate(a, b, start=None):
    """In order of k, one rounding to f32 a step; a product is exact or fused into the addition."""
    c = np.zeros((a.shape[0], b.shape[1]), F32) if start is None else start.copy()
    for k in range(a.shape[1]):
        c = (c.astype(np.float64) + a[:, k : k + 1].astype(np.float64) * b[k].astype(np.float64)).astype(F32)
    return c


def cube(tlc, tmp_path, a, b, dtype, acc, out, m, n, k, trans_a=False, trans_b=False, relu=False):
    pad = lambda x, unit: (x + unit - 1) // unit * unit
    c0 = 32 // np.dtype(a.dtype).itemsize
    side = max(16, c0)
    am, ak, bn = pad(m, side), pad(k, side), pad(n, side)
    ashape, bshape = ((ak, am), (k, m)) if trans_a else ((am, ak), (m, k)), (
        ((bn, ak), (n, k)) if trans_b else ((ak, bn), (k, n))
    )
    box = lambda s: f"[0 +: {s[0]}, 0 +: {s[1]}]"
    size = np.dtype(a.dtype).itemsize
    allocs = [
        f"alloc %a: l1 {dtype}[{ashape[0][0]}, {ashape[0][1]}] nz at 0",
        f"alloc %b: l1 {dtype}[{bshape[0][0]}, {bshape[0][1]}] nz at {am * ak * size}",
        f"alloc %a0: l0a {dtype}[{am}, {ak}] zz at 0",
        f"alloc %b0: l0b {dtype}[{ak}, {bn}] zn at 0",
        f"alloc %c: l0c {acc}[{am}, {bn}] nz at 0",
    ]
    body = [
        f"gm_to_l1 %A -> %a{box(ashape[1])}",
        f"gm_to_l1 %B -> %b{box(bshape[1])}",
        "barrier all",
        f"l1_to_l0a %a{box(ashape[1])} -> %a0{box((m, k))}{' trans' if trans_a else ''}",
        f"l1_to_l0b %b{box(bshape[1])} -> %b0{box((k, n))}{' trans' if trans_b else ''}",
        "barrier all",
        f"mmad %a0{box((m, k))}, %b0{box((k, n))} -> %c{box((m, n))} init(true)",
        "barrier all",
        f"l0c_to_gm %c{box((m, n))} -> %C{' relu' if relu else ''}",
    ]
    shape = lambda x: ", ".join(map(str, x.shape))
    params = [f"%A: gm {dtype}[{shape(a)}]", f"%B: gm {dtype}[{shape(b)}]", f"%C: gm {out}[{m}, {n}] out"]
    return sim(tlc, tmp_path, kernel(params, "\n".join(allocs), body, "cube"), A=a, B=b)


@pytest.mark.parametrize("m,n,k", [(16, 16, 16), (64, 48, 80), (33, 17, 50), (1, 100, 7), (64, 80, 300)])
@pytest.mark.parametrize("trans_a,trans_b", [(False, False), (False, True), (True, False)])
def test_product_f16(tlc, tmp_path, m, n, k, trans_a, trans_b):
    r = np.random.default_rng(m * n)
    a, b = r.standard_normal((m, k)).astype(F16), r.standard_normal((k, n)).astype(F16)
    got = cube(
        tlc,
        tmp_path,
        a.T.copy() if trans_a else a,
        b.T.copy() if trans_b else b,
        "f16",
        "f32",
        "f32",
        m,
        n,
        k,
        trans_a,
        trans_b,
    )
    same(got, accumulate(a, b))


def test_product_f32(tlc, tmp_path):
    r = np.random.default_rng(5)
    a, b = r.standard_normal((40, 24)).astype(F32), r.standard_normal((24, 36)).astype(F32)
    got = cube(tlc, tmp_path, a, b.T.copy(), "f32", "f32", "f32", 40, 36, 24, trans_b=True)
    np.testing.assert_allclose(got, accumulate(a, b), rtol=1e-6, atol=1e-6)


def test_product_i8(tlc, tmp_path):
    r = np.random.default_rng(6)
    a, b = r.integers(-128, 128, (40, 70), np.int8), r.integers(-128, 128, (70, 36), np.int8)
    same(
        cube(tlc, tmp_path, a, b.T.copy(), "i8", "i32", "i32", 40, 36, 70, trans_b=True), a.astype(I32) @ b.astype(I32)
    )


def test_product_converts_and_clips(tlc, tmp_path):
    r = np.random.default_rng(7)
    a, b = r.standard_normal((32, 64)).astype(F16) * 100, r.standard_normal((64, 32)).astype(F16) * 100
    exact = accumulate(a, b)
    with np.errstate(over="ignore"):
        same(cube(tlc, tmp_path, a, b, "f16", "f32", "f16", 32, 32, 64), exact.astype(F16))
        same(cube(tlc, tmp_path, a, b, "f16", "f32", "f16", 32, 32, 64, relu=True), np.maximum(exact, 0).astype(F16))
