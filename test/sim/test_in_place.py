"""Ops whose result shares elements with an input: the numbers are those of reading everything before writing. Every op
of the source level is tried on the same tile, on shifted parts of one, and through a view."""

import pathlib
import re

import numpy as np
import pytest

from tilelang.debug.core import lowered, simulate
from tilelang.debug.interpret import interpret

ROOT = pathlib.Path(__file__).parents[2]
TYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i16": np.int16, "u8": np.uint8}

# a statement a line on %a [64, 64] and %v, a view of it; S and D are two boxes of one buffer that meet in part
UNARY = "abs exp ln sqrt rsqrt reciprocal relu sigmoid silu tanh sin cos"
BINARY = "add sub mul div max min pow"
BITS = "and or xor"
REDUCE = "reduce_sum reduce_max reduce_min reduce_abssum reduce_absmax"
REDUCE_BITS = "reduce_and reduce_or reduce_xor"
WHOLE = {
    "f32": [*(f"{op} %a -> %a" for op in UNARY.split()), *(f"{op} %v, %a -> %a" for op in BINARY.split()),
            *(f"{op} S -> D" for op in UNARY.split()), *(f"{op} S, D -> D" for op in BINARY.split()),
            *(f"{op} S, 2.0 -> D" for op in BINARY.split()),
            "axpy %a, 2.0 -> %a", "axpy S, 2.0 -> D", "mul_add %a, %v -> %a", "mul_add S, D -> D",
            "leaky_relu S, 0.1 -> D", "copy S -> D", "copy %v -> %a", "copy %a -> %a trans", "cast S -> D mode(rint)",
            *(f"{op} %v -> %a[0 +: 1, 0 +: 64] dim(0)" for op in REDUCE.split()),
            *(f"{op} %a -> %a[0 +: 64, 5 +: 1] dim(1) keep" for op in REDUCE.split()),
            *(f"{op} {r} dim({d})" for op in ("cumsum", "cummax") for r in ("%a -> %a", "S -> D") for d in (0, 1)),
            "broadcast %a[3 +: 1, 0 +: 64] -> %a dim(0)", "broadcast %v[0 +: 64, 3 +: 1] -> %a dim(1)",
            "transpose %a -> %a", "transpose %v -> %a", "gemm %a, %a -> %a", "gemm %v, %a -> %a init(true)",
            "gemm %a[0 +: 32, 0 +: 32], %a[32 +: 32, 0 +: 32] -> %a[16 +: 32, 16 +: 32]",
            "sort %v[0 +: 1, 0 +: 32], 32 -> %v[0 +: 1, 0 +: 64]",
            "sort32 %a[0 +: 1, 0 +: 32], %x -> %a[0 +: 1, 0 +: 64]",
            "merge2 %a[0 +: 1, 0 +: 16], %a[0 +: 1, 16 +: 16] -> %a[0 +: 1, 0 +: 32]",
            "merge3 %a[0 +: 1, 0 +: 8], %a[0 +: 1, 16 +: 8], %a[0 +: 1, 8 +: 8] -> %a[0 +: 1, 8 +: 24]",
            "merge4 %v[0 +: 1, 0 +: 8], %a[0 +: 1, 16 +: 8], %a[0 +: 1, 8 +: 8], %a[0 +: 1, 0 +: 8]"
            " -> %a[1 +: 1, 0 +: 32]",
            "gather %v[0 +: 1, 0 +: 64], %o, 0 -> %a[0 +: 1, 0 +: 64]", "gatherb %a, %o[0 +: 8] -> %a[0 +: 1, 0 +: 64]",
            "gather_mask %a[0 +: 1, 0 +: 64], 2 -> %a[0 +: 1, 0 +: 32]",
            "gather_mask %v[0 +: 1, 0 +: 64], 1 -> %a[0 +: 1, 16 +: 32]",
            "select %m, %a[0 +: 32, 0 +: 64], %v[2 +: 32, 0 +: 64] -> %a[1 +: 32, 0 +: 64]"],
    "i32": [*(f"{op} %v -> %a[0 +: 1, 0 +: 64] dim(0)" for op in REDUCE_BITS.split()),
            "shl S, 1 -> D", "shr S, 1 -> D"],
    "i16": [*(f"{op} S, D -> D" for op in BITS.split()), "not S -> D"],
    "u8": ["compare %a[0 +: 1, 0 +: 64], 3 -> %a[0 +: 1, 8 +: 8] cmp(lt)"],
}  # fmt: skip
# an input and a result of different kinds: another dtype (int4 in pairs), another memory, or no input tile at all
OTHER = {"unpack4", "pack4", "atomic_add", "fill", "arange", "mmad"}


def boxes(text):
    """With S and D as rows, as columns on 32 bytes, and as columns off them."""
    if "S" not in text:
        return [text]
    row, col = "[%d +: 32, 0 +: 64]", "[0 +: 64, %d +: 32]"
    pairs = [(row % 0, row % 1), (row % 1, row % 0), (col % 0, col % 8), (col % 3, col % 0)]
    return [text.replace("S", "%v" + s).replace("D", "%a" + d) for s, d in pairs]


def test_every_op_is_tried():
    ops = re.findall(r'^OP\(\w+, *"(\w+)", *\'([sbl])\', *\w+, *"(\w*)"', (ROOT / "src/ir/ops.def").read_text(), re.M)
    tried = {text.split()[0] for texts in WHOLE.values() for text in texts}
    assert {name for name, level, _ in ops if level != "l"} == tried | OTHER


@pytest.mark.parametrize("dtype", [d for d in WHOLE if WHOLE[d]])
def test_results_on_their_inputs(dtype):
    rng = np.random.default_rng(4)
    a = rng.integers(1, 9, size=(64, 64)).astype(TYPES[dtype])
    if dtype == "f32":
        a = np.sort(a + rng.random((64, 64), np.float32), axis=1)[:, ::-1].copy()  # lists to merge are sorted
    wrong = []
    for text in [b for t in WHOLE[dtype] for b in boxes(t)]:
        source = f"""tl 1
kernel @k(%A: gm {dtype}[64, 64], %O: gm u32[64], %C: gm {dtype}[64, 64]) grid(%bx: 1) {{
  alloc %a: shared {dtype}[64, 64]
  alloc %v: shared {dtype}[64, 64] view(%a)
  alloc %o: shared u32[64]
  alloc %x: shared u32[32]
  alloc %m: shared u8[32, 8]
  fill 85 -> %m
  fill 7 -> %x
  copy %O -> %o
  copy %A -> %a
  {text}
  copy %a -> %C
}}
"""
        offsets = np.arange(63, -1, -1, np.int64).astype(np.uint32) * (32 if "gatherb" in text else 4)
        got, want = np.zeros_like(a), np.zeros_like(a)
        faults = simulate(lowered(source), [a.copy(), offsets, got], checks=True)
        interpret(source, [a.copy(), offsets, want])
        if faults or not np.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True):
            wrong.append((text, faults))
    assert not wrong
