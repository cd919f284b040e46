"""Everything that the simulator executes, both writers write - or name what they refuse.

Every op of the lowered language, for every dtype and every form of operands, as one statement between fills. What the
verifier takes and the simulator runs without a fault is given to both writers. `refused` is the list of what one of
them cannot express; a line of it that no statement needs any more fails the test, too.
"""

import json
import re

import pytest

from tilelang import _core

DTYPES = "f16 bf16 f32 i8 i16 i32 i64 u8 u16 u32 u64 e4m3 e5m2".split()
SIZE = {"f16": 2, "bf16": 2, "i16": 2, "u16": 2, "f32": 4, "i32": 4, "u32": 4, "i64": 8, "u64": 8}
ORDERED = "eq ne gt ge lt le".split()

# (target, chip family, pattern of "op dtype form"): why
REFUSED = {
    **{
        (target, family, r"fill (e4m3|e5m2) .*"): "the scalar unit does not convert to 8-bit floats"
        for target in ("ascendc", "pto")
        for family in ("a2", "a5")
    },
    ("pto", "a5", r"gather \w+ .*"): "PTO gathers by index, and a conversion needs scratch",
    ("pto", "a5", r"gather_mask \w+ (bits|odd)"): "a pattern from memory, an odd number of results",
    ("pto", "a5", r"row_arg(max|min) .*"): "PTO writes values and places to two tiles",
    ("pto", "a5", r"select \w+ repeated"): "no instruction repeats a mask",
}


def vector_cases():
    """(op, dtype, form, statement) over tiles %a %b %c of [16, 64] and their kin."""
    whole, late, odd = "", "[0 +: 1, 0 +: %n]", "[0 +: 1, 0 +: 13]"
    rows, far = "[0 +: 16, 0 +: 16]", "[0 +: %n, 0 +: 16]"
    flat = [("whole", whole), ("late", late), ("odd", odd), ("rows", rows), ("far", far)]
    for t in DTYPES:
        n = SIZE.get(t, 1)
        c0 = 32 // n
        for form, r in flat:
            for op in "add sub mul div max min and or".split():
                yield op, t, form, f"{op} %a{r}, %b{r} -> %c{r}"
            for op in "not abs exp ln sqrt rsqrt reciprocal relu move".split():
                yield op, t, form, f"{op} %a{r} -> %c{r}"
            for op in "add sub mul div max min shl shr axpy leaky_relu".split():
                yield f"{op}_scalar", t, form, f"{op} %a{r}, {3 if t[0] in 'iu' else 0.75} -> %c{r}"
            yield "mul_add", t, form, f"mul_add %a{r}, %b{r} -> %c{r}"
            yield "fill", t, form, f"fill {t}(%s) -> %c{r}"
            yield "fill_constant", t, form, f"fill 5 -> %c{r}"
        block, row0 = f"[0 +: 16, 0 +: {c0}]", f"[0 +: 1, 0 +: {c0}]"
        for op in "add sub div max".split():
            yield op, t, "block", f"{op} %a[0 +: 16, 0 +: {c0 * 4}], %k -> %c[0 +: 16, 0 +: {c0 * 4}]"
            yield op, t, "first", f"{op} %k, %a[0 +: 16, 0 +: {c0 * 4}] -> %c[0 +: 16, 0 +: {c0 * 4}]"
            yield op, t, "row", f"{op} %a{block}, %b{row0} -> %c{block}"
            yield op, t, "row0", f"{op} %b{row0}, %a{block} -> %c{block}"
        yield "exp", t, "block", f"exp %k -> %c[0 +: 16, 0 +: {c0 * 4}]"
        yield "move", t, "block", f"move %k -> %c[0 +: 16, 0 +: {c0 * 4}]"
        yield "move", t, "row0", f"move %b{row0} -> %c{block}"
        yield "arange", t, "whole", "arange 1, 3 -> %c"
        yield "arange", t, "late", "arange %i, 1 -> %c[0 +: 1, 0 +: %n]"
        for mode in ORDERED:
            yield "compare", t, mode, f"compare %a, %b -> %m cmp({mode})"
            yield "compare_scalar", t, mode, f"compare %a, 1 -> %m cmp({mode})"
        yield "compare", t, "late", "compare %a[0 +: 1, 0 +: %n], %b[0 +: 1, 0 +: %n] -> %m cmp(ge)"
        yield "select", t, "whole", "select %m, %a, %b -> %c"
        yield "select", t, "late", "select %m, %a[0 +: 1, 0 +: %n], %b[0 +: 1, 0 +: %n] -> %c[0 +: 1, 0 +: %n]"
        yield "select", t, "scalar", "select %m, %a, 1 -> %c"
        yield "select", t, "first", "select %m, 1, %a -> %c"
        yield "select", t, "repeated", f"select %m[0 +: {32 // n}], %a, %b -> %c maskrep"
        yield "brcb", t, "whole", "brcb %a[0 +: 1, 0 +: 16] -> %k"
        yield "brcb", t, "late", f"brcb %a[0 +: 1, 0 +: %n] -> %k[0 +: %n, 0 +: {c0}]"
        w = min(64, 256 // n)
        for op in "row_sum row_max row_min".split():
            yield op, t, "whole", f"{op} %a[0 +: 16, 0 +: {w}] -> %r[0 +: 16]"
            yield op, t, "inside", f"{op} %a[0 +: 16, 0 +: {w}] -> %r[3 +: 16]"
            yield op, t, "late", f"{op} %a[0 +: %n, 0 +: {w}] -> %r[0 +: %n]"
        for op in "row_argmax row_argmin".split():
            yield op, t, "whole", f"{op} %a[0 +: 16, 0 +: {w}] -> %r[0 +: 32]"
        for index in "i32 u32".split():
            yield "gather", t, index, f"gather %a, %{index}[0 +: 64], {2 * n} -> %r"
            yield "gatherb", t, index, f"gatherb %a, %{index}[0 +: 8] -> %r[0 +: {8 * c0}]"
        yield "gather", t, "late", "gather %a, %i32[0 +: %n], 0 -> %r[0 +: %n]"
        for pattern in range(1, 8):
            yield "gather_mask", t, "pattern", f"gather_mask %a[0 +: 1, 0 +: 64], {pattern} -> %r"
        yield "gather_mask", t, "odd", "gather_mask %a[0 +: 1, 0 +: 18], 1 -> %r[0 +: 9]"
        yield "gather_mask", t, "bits", f"gather_mask %a[0 +: 1, 0 +: 64], %u{8 * n}[0 +: {max(8 // n, 2)}] -> %r"
        yield "transpose", t, "whole", "transpose %a -> %d"
        for index in "i32 u32".split():
            yield "sort32", t, index, f"sort32 %a[0 +: 1, 0 +: 32], %{index}[0 +: 32] -> %c[0 +: 1, 0 +: {256 // n}]"
        e = 64 // n
        lists = [f"%a[{k} +: 1, 0 +: {e}]" for k in range(4)]
        for k in range(2, 5):
            yield f"merge{k}", t, "lists", f"merge{k} {', '.join(lists[:k])} -> %r[0 +: {k * e}]"
        for other in DTYPES:
            for mode in "none rint floor ceil round trunc odd".split():
                yield "cast", t, f"{mode} to {other}", f"cast %a -> %to_{other} mode({mode})"


SCALARS = """let %f0: f32 = exp(%s) + log(%s) * tanh(%s) - sin(%s) / cos(%s)
let %f1: f32 = pow(%s, 2.5) % 3.0 + sqrt(%s) + rsqrt(%s) + floor(%s) + ceil(%s) + round(%s) // 2.0
let %f2: i32 = pow(%n, 3) + (-%n) // 3 % 5 + abs(%n) + bits(i32, %s) + i32(%s)
let %f3: f16 = f16(exp(f16(%s))) + f16(pow(f16(%s), f16(%s)))
let %f4: bf16 = bf16(%s) * bf16(%s) + tanh(bf16(%s))
let %f5: i64 = pow(i64(%n), i64(5)) + i64(%f2)
let %f6: u8 = u8(%n) * u8(7) + u8(%f2)"""


def text(statement, t, chip):
    n = SIZE.get(t, 1)
    c0 = 32 // n
    bufs, at = [], 0
    tiles = {"a": (t, "16, 64"), "b": (t, "16, 64"), "c": (t, "16, 64"), "d": (t, "64, 16"), "k": (t, f"16, {c0}"),
             "r": (t, "256"), "m": ("u8", "512"), "i32": ("i32", "64"), "u32": ("u32", "64"), "u16": ("u16", "64"),
             **{f"to_{o}": (o, "16, 64") for o in DTYPES}}  # fmt: skip
    used = set(re.findall(r"%(\w+)", statement))
    first = []
    for name, (dtype, shape) in tiles.items():
        if name not in used:
            continue
        size = SIZE.get(dtype, 1)
        for x in shape.split(", "):
            size *= int(x)
        bufs.append(f"  alloc %{name}: ub {dtype}[{shape}] at {at} @2:5")
        at += (size + 31) // 32 * 32
        first.append(f"    fill 0 -> %{name} @3:5")
    body = "\n".join(f"    {line} @4:5" for line in statement.splitlines())
    return (
        f'tl 1\nfile "w.py"\nkernel @k(%n: i32, %s: f32, %O: gm f32[8] out) grid(%i: 1) lowered("{chip}", vector) {{\n'
        + "\n".join(bufs) + "\n  vector {\n" + "\n".join(first) + "\n    barrier all @4:5\n" + body + "\n  }\n}\n"
    )  # fmt: skip


def runs(source):
    """The program, if the verifier takes it and the simulator runs it; else None."""
    p = _core.Program()
    if not p.load("w.tl", source):
        return None
    if not p.lower():
        return None
    import numpy as np

    out = np.zeros(8, np.float32)
    ok, _ = p.sim([8, 1.5, (out.ctypes.data, (8,))])
    return p if ok else None


def refusal(target, family, key):
    return [k for k in REFUSED if k[0] == target and k[1] == family and re.fullmatch(k[2], key)]


@pytest.mark.parametrize("chip", ["910B2", "950"])
def test_vector_statements(chip):
    family, needed, missing, silent, written = ("a2" if chip == "910B2" else "a5"), set(), [], [], 0
    for op, t, form, statement in vector_cases():
        p = runs(text(statement, t, chip))
        if p is None:
            continue
        for target in _core.targets():
            p.diags_clear()
            got = p.emit(target)
            written += 1
            expected = refusal(target, family, f"{op} {t} {form}")
            needed.update(expected if got is None else ())
            if got is None and not expected:
                missing.append((target, op, t, form, statement, p.diags_text()))
            named = [d for d in json.loads(p.diags_json()) if d["code"].startswith("TL09") and d["line"] == 4]
            if got is None and not named:
                silent.append((target, op, t, form))
    assert not missing, "\n".join(f"{m[0]}: {m[1]} {m[2]} {m[3]}: {m[4]}\n  {m[5]}" for m in missing)
    assert not silent
    assert {k for k in REFUSED if k[1] == family} == needed, "the list names what is written"
    assert written > 1500


@pytest.mark.parametrize("target", ["ascendc", "pto"])
def test_scalars(target):
    p = runs(text(SCALARS, "f32", "910B2"))
    assert p is not None
    assert p.emit(target), p.diags_text()
