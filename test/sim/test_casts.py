"""Conversions against exact arithmetic: every pair of dtypes that pipe S or pipe V converts, every rounding mode, at
the values where rounding, saturation and the ends of a dtype meet. The interpreter must say the same."""

import math
import pathlib
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilelang.debug import arith
from tilelang.language.dtypes import DType

ROOT = pathlib.Path(__file__).parents[2]
WHOLE = {f"{k}{b}": np.dtype(f"{k}{b // 8}") for k in "iu" for b in (8, 16, 32, 64)}
FLOAT = {  # numpy's dtype, bits of the mantissa, lowest exponent, largest value
    "f16": (np.dtype(np.float16), 10, -14, 65504.0),
    "bf16": (np.dtype(ml_dtypes.bfloat16), 7, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    "f32": (np.dtype(np.float32), 23, -126, float(np.finfo(np.float32).max)),
    "e4m3": (np.dtype(ml_dtypes.float8_e4m3fn), 3, -6, 448.0),
    "e5m2": (np.dtype(ml_dtypes.float8_e5m2), 2, -14, 57344.0),
}
MODES = ["none", "rint", "floor", "ceil", "round", "trunc"]


def numpy_of(t):
    return FLOAT[t][0] if t in FLOAT else WHOLE[t]


def values(t):
    """Ends, halves, ties, powers of two and their neighbours: all that dtype t holds of them."""
    if t in WHOLE:
        i = np.iinfo(WHOLE[t])
        near = {s * (1 << e) + d for e in range(65) for d in (-1, 0, 1) for s in (1, -1)}
        near |= {(1 << e) + (1 << h) + d for e in (53, 55, 60, 62, 63) for h in (e - 24, e - 8) for d in (-1, 0, 1)}
        return np.array(sorted(v for v in near if i.min <= v <= i.max), WHOLE[t])
    ends = [2.0**e * f for e in (-149, -25, -24, -17, -10, -9, 0, 7, 8, 15, 16, 31, 32, 63, 64) for f in (1, 1.5, 3)]
    ends += [0.1, 126.5, 127.5, 255.5, 448, 464, 465, 480, 57344, 61440, 65504, 65519, 65520, 32767.5, 3e38, math.inf]
    with np.errstate(all="ignore"):
        plus = np.array(ends, numpy_of(t))
        bits = plus.view(f"u{plus.itemsize}")
        near = np.unique(np.concatenate([bits, bits + 1, bits - 1])).view(plus.dtype)
        return np.concatenate([near, -near, np.array([0.0, -0.0, math.nan], plus.dtype)])


def whole(q, mode):
    """The whole number that q, a Fraction, becomes."""
    low = q.numerator // q.denominator
    part = q - low
    if part == 0 or mode == "floor" or (mode == "trunc" and q > 0):
        return low
    if mode == "ceil" or mode == "trunc":
        return low + 1
    if part == Fraction(1, 2):
        return low + (q > 0 if mode == "round" else low % 2)
    return low + (part > Fraction(1, 2))


def to_float(x, t, mode):
    _, mantissa, lowest, most = FLOAT[t]
    if isinstance(x, float) and (math.isnan(x) or math.isinf(x) or x == 0):
        return math.copysign(448.0, x) if t == "e4m3" and math.isinf(x) else x
    q = Fraction(x)
    if q == 0:
        return 0.0
    e = max(math.frexp(float(q))[1] - 2, lowest)
    while e > lowest and Fraction(2) ** e > abs(q):
        e -= 1
    while Fraction(2) ** (e + 1) <= abs(q):
        e += 1
    ulp = Fraction(2) ** (e - mantissa)
    r = whole(q / ulp, mode) * ulp
    if abs(r) <= Fraction(most):
        return math.copysign(float(r), q)
    inwards = mode == "trunc" or (mode == "floor" and q > 0) or (mode == "ceil" and q < 0)
    return math.copysign(most if inwards or t == "e4m3" else math.inf, q)


def to_whole(x, t, mode):
    i = np.iinfo(WHOLE[t])
    if isinstance(x, float) and not math.isfinite(x):
        return 0 if math.isnan(x) else i.max if x > 0 else i.min
    return min(max(whole(Fraction(x), mode), i.min), i.max)


def convert(x, source, t, mode, tile):
    """What x becomes. Integers: a tile narrows them to the nearest, a scalar and a wider tile wrap."""
    if t in FLOAT and t == source:
        return float(x) if not math.isfinite(x) or not tile else math.copysign(whole(Fraction(x), mode), x)
    if t in FLOAT:
        return to_float(x, t, mode)
    if source in FLOAT:
        return to_whole(x, t, mode if tile else "trunc")
    narrower = WHOLE[t].itemsize < WHOLE[source].itemsize
    if tile and narrower:
        return to_whole(x, t, mode)
    bits = 8 * WHOLE[t].itemsize
    x &= (1 << bits) - 1
    return x - (1 << bits) if t[0] == "i" and x >> (bits - 1) else x


def check(a, got, source, t, mode, tile):
    want = [convert(x, source, t, mode, tile) for x in (a.astype(float) if source in FLOAT else a).tolist()]
    if t in FLOAT:
        g, w = got.astype(np.float64), np.array(want)
        bad = ~(((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w)))
    else:
        bad = got != np.array(want, WHOLE[t])
    assert not bad.any(), [(a[k], got[k], want[k]) for k in np.flatnonzero(bad)[:5]]


def sim(tlc, tmp_path, text, a, outs):
    (tmp_path / "k.tl").write_text("tl 1\n" + text)
    a.tofile(tmp_path / "A.bin")
    args = [x for n in outs for x in ("--out", f"{n}={n}.bin")]
    status, _, err = tlc("sim", "--chip", "950", "--arg", "A=A.bin", *args, "k.tl", cwd=tmp_path)
    assert status == 0, err
    return {n: np.fromfile(tmp_path / f"{n}.bin", numpy_of(t)) for n, t in outs.items()}


@pytest.mark.parametrize("source", [*WHOLE, *FLOAT])
def test_scalars(tlc, tmp_path, source):
    a = values(source)
    outs = {t.upper(): t for t in (*WHOLE, *FLOAT)}
    params = ", ".join(f"%{n}c: gm {t}[{a.size}] out" for n, t in outs.items())
    body = "\n".join(f"%{n}c[%i] = {t}(%A[%i])" for n, t in outs.items())
    text = f"kernel @k(%A: gm {source}[{a.size}], {params}) grid(%bx: 1) lowered("
    text += f'"950", vector) {{\nvector {{\nfor %i in 0..{a.size} {{\n{body}\n}}\n}}\n}}\n'
    for n, got in sim(tlc, tmp_path, text, a, {f"{n}c": t for n, t in outs.items()}).items():
        check(a, got, source, outs[n[:-1]], "rint", tile=False)


def pairs():
    text = (ROOT / "src/arch/a5.def").read_text()
    return [(s.lower(), d.lower()) for d, s in re.findall(r"CASTPAIR\((\w+), (\w+)\)", text)]


@pytest.mark.parametrize("source,t", pairs(), ids=lambda t: t)
def test_tiles(tlc, tmp_path, source, t):
    a = values(source)
    a = np.resize(a, -(-a.size // 64) * 64)
    params = ", ".join(f"%{m}: gm {t}[{a.size}] out" for m in MODES)
    casts = "\n".join(f"cast %a -> %r mode({m})\nbarrier all\nub_to_gm %r -> %{m}\nbarrier all" for m in MODES)
    text = f"""kernel @k(%A: gm {source}[{a.size}], {params}) grid(%bx: 1) lowered("950", vector) {{
alloc %a: ub {source}[{a.size}] at 0\nalloc %r: ub {t}[{a.size}] at {a.nbytes}
vector {{\ngm_to_ub %A -> %a\nbarrier all\n{casts}\n}}\n}}\n"""
    for m, got in sim(tlc, tmp_path, text, a, dict.fromkeys(MODES, t)).items():
        check(a, got, source, t, m, tile=True)
        check(a, arith.cast_tile(a, DType(source), DType(t), m), source, t, m, tile=True)


def lowered(tlc, tmp_path, source, targets, mode, chip="950"):
    """The op `cast` before it is lowered: to each target, by whatever way there is."""
    a = values(source)
    a = np.resize(a, -(-a.size // 64) * 64)
    outs = {t.upper() + "c": t for t in targets}
    params = ", ".join(f"%{n}: gm {t}[{a.size}] out" for n, t in outs.items())
    body = [f"alloc %a: shared {source}[{a.size}]", "copy %A -> %a"]
    for n, t in outs.items():
        body += [f"alloc %{t}r: shared {t}[{a.size}]", f"cast %a -> %{t}r mode({mode})", f"copy %{t}r -> %{n}"]
    text = f"kernel @k(%A: gm {source}[{a.size}], {params}) grid(%bx: 1) {{\n" + "\n".join(body) + "\n}\n"
    for n, got in sim(tlc, tmp_path, 'file "k.py"\n' + located(text), a, outs).items():
        t, exact = outs[n], np.ones(a.size, bool)
        if t == "bf16" and source in WHOLE:
            exact = np.abs(a.astype(np.float64)) <= 2**24  # beyond, f32 rounds on the way
        check(a[exact], got[exact], source, t, mode, tile=True)


def located(text):
    return re.sub("(?m)^((?:alloc|copy|cast).*)$", r"\1 @1:1", text)


@pytest.mark.parametrize("source", [*WHOLE, *FLOAT])
def test_any_pair(tlc, tmp_path, source):
    """Integers go to the nearest that a narrower dtype holds, also where pipe S converts them; equal widths wrap."""
    lowered(tlc, tmp_path, source, [t for t in (*WHOLE, *FLOAT) if t != source], "none")


@pytest.mark.parametrize("mode", ["floor", "ceil", "trunc"])
@pytest.mark.parametrize("source", ["i16", "i32", "i64", "f16", "bf16", "f32"])
def test_modes_over_several_steps(tlc, tmp_path, source, mode):
    lowered(tlc, tmp_path, source, [t for t in ("f16", "bf16", "f32", "e4m3", "i8", "i16", "i32") if t != source], mode)


def test_constants(tlc, tmp_path):
    """A constant goes through every dtype that it is written in."""
    text = """kernel @k(%A: gm f32[1], %C: gm f32[6] out) grid(%bx: 1) lowered("950", vector) {
vector {\n%C[0] = f32(f16(0.1))\n%C[1] = f32(f16(100000.0))\n%C[2] = f32(bf16(0.1))
%C[3] = f32(u64(9223372036854775808))\n%C[4] = f32(i64(1152921573326323713))\n%C[5] = f32(e4m3(1000.0))\n}\n}\n"""
    got = sim(tlc, tmp_path, text, np.zeros(1, np.float32), {"C": "f32"})["C"]
    np.testing.assert_array_equal(
        got,
        np.array(
            [np.float16(0.1), math.inf, ml_dtypes.bfloat16(0.1), 2.0**63, 1152921642045800448.0, 448.0],
            np.float32,
        ),
    )


def test_powers_of_unsigned_numbers(tlc, tmp_path):
    """The exponent of u64 has no sign."""
    a = np.array([2**64 - 1, 2**64 - 2, 2**63, 3], np.uint64)
    text = """kernel @k(%A: gm u64[4], %C: gm u64[4] out) grid(%bx: 1) lowered("950", vector) {
vector {\nfor %i in 0..4 {\n%C[%i] = pow(u64(3), %A[%i])\n}\n}\n}\n"""
    got = sim(tlc, tmp_path, text, a, {"C": "u64"})["C"]
    assert got.tolist() == [pow(3, int(e), 1 << 64) for e in a]
