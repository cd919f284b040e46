"""Random programs at source level, over the whole op table, and what must hold for each: python tools/randprog.py.

`generate(seed)` writes a valid kernel: tiles are loaded, worked on by statements drawn from EMIT (one entry for each op
of src/ir/ops.def that source may hold, one for each other statement), and stored. The same seed gives the same text.
Every tile knows how exact its values are, because some ops may round differently in another correct implementation:

    exact    small multiples of a power of two: sums of them are exact in any order
    rounded  one right answer an element (sums in another order may differ)
    loose    correct within a tolerance

`check(program)` runs it in every way that must give the same bytes: lowered at once, and resumed from the text of a
pass; with and without reuse of memory; with flags of the compiler, and with `barrier all` between all statements and
no flags of its own; with checks and without; on one thread and two; under another schedule. The interpreter
(tilelang/debug), which shares neither passes nor simulator, runs the source and the text of one pass: the same bytes,
or within the tolerance where tiles are loose.

    --count N  --seed FIRST  --jobs N  --keep FOLDER (texts that fail)  --show SEED
"""

import argparse
import collections
import json
import math
import multiprocessing
import pathlib
import random
import re
import time

import ml_dtypes
import numpy as np

from tilelang import _core
from tilelang.debug.interpret import interpret

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOATS, INTS = ("f32", "f16"), ("i32", "i16")
NP = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32,
}  # fmt: skip
MANTISSA = {"f32": 24, "f16": 11, "bf16": 8, "i8": 7, "i16": 15, "i32": 31, "u8": 8, "u16": 16, "u32": 31}
EXACT, ROUNDED, LOOSE = 0, 1, 2
Tile = collections.namedtuple("Tile", "name dtype shape")


def source_ops():
    """Names of the ops that source may hold, from the table."""
    rows = re.findall(r"^OP\(\w+,\s*\"(\w+)\",\s*'(\w)'", (ROOT / "src/ir/ops.def").read_text(), re.M)
    return [name for name, level in rows if level in "sb"]


class Known:
    """What is known of a tile's values: their grade; multiples of 2^-step, at most `most` in size."""

    def __init__(self, grade=EXACT, step=0, most=1.0):
        self.grade, self.step, self.most = grade, step, most


def fits(dtype, known):
    if dtype[0] in "iu":
        return known.step == 0 and known.most < 2 ** MANTISSA[dtype]
    return known.most * 2**known.step <= 2 ** MANTISSA[dtype]


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines, self.depth, self.n = [], 1, 0
        self.allocs, self.params, self.inputs, self.outs = [], [], [], []
        self.known = {}
        self.used = set()
        self.blocks = self.rng.choice([1, 1, 2, 3])
        self.rows = self.rng.choice([1, 2, 3, 8, 8, 16, 16, 17])
        self.cols = self.rng.choice([1, 5, 8, 16, 16, 24, 32, 64, 72])
        self.tail = self.rng.choice([0, 0, 1, self.rows // 2])
        self.total = max(self.blocks * self.rows - self.tail, 1)

    # ---- text --------------------------------------------------------------------------------------------------

    def put(self, line):
        self.lines.append("  " * self.depth + line)

    def name(self, stem):
        self.n += 1
        return f"%{stem}{self.n}"

    def alloc(self, dtype, shape, space=None):
        t = Tile(self.name("t"), dtype, tuple(shape))
        space = space or self.rng.choice(["ub", "shared", "fragment"])
        self.allocs.append(f"  alloc {t.name}: {space} {dtype}[{', '.join(map(str, shape))}]")
        return t

    def tensor(self, dtype, shape, out):
        name = self.name("Y" if out else "X")
        self.params.append(f"{name}: gm {dtype}[{', '.join(map(str, shape))}]{' out' if out else ''}")
        return name

    def part(self, shape):
        """The block's part of a tensor whose first dimension is cut by blocks."""
        rest = "".join(f", 0 +: {s}" for s in shape[1:])
        return f"[%bx * {shape[0]} +: {shape[0]}{rest}]"

    # ---- tiles -------------------------------------------------------------------------------------------------

    def load(self, dtype, shape, most=8):
        """A tile with values from a tensor of its own: small integers, floats in eighths."""
        x = self.tensor(dtype, (self.total if len(shape) and shape[0] == self.rows else self.blocks * shape[0],
                                *shape[1:]), False)  # fmt: skip
        t = self.alloc(dtype, shape)
        pad = self.rng.choice(["", "", " pad(1)" if dtype[0] in "iu" else " pad(1.0)"])
        self.put(f"copy {x}{self.part(shape)} -> {t.name}{pad}")
        self.known[t] = Known(EXACT, 3 if dtype[0] in "fb" else 0, 16 if dtype[0] == "u" else most)
        return t

    def tile(self, dtypes=FLOATS, shape=None, grade=LOOSE):
        """A tile that holds values, of one of the dtypes; loaded if there is none."""
        shape = shape or (self.rows, self.cols)
        have = [t for t, k in self.known.items() if t.dtype in dtypes and t.shape == shape and k.grade <= grade]
        if have and self.rng.random() < 0.8:
            return self.rng.choice(have)
        return self.load(self.rng.choice(dtypes), shape)

    def target(self, dtype, shape):
        """A tile to write: new, or one that holds something already."""
        have = [t for t in self.known if (t.dtype, t.shape) == (dtype, tuple(shape))]
        return self.rng.choice(have) if have and self.rng.random() < 0.4 else self.alloc(dtype, shape)

    def grade(self, *tiles):
        return max([self.known[t].grade for t in tiles], default=EXACT)

    def result(self, t, known, at_least=EXACT):
        """t now holds values of which this is known; when they may not be exact, they are at least rounded."""
        grade = max(known.grade, at_least)
        if grade == EXACT and not fits(t.dtype, known):
            grade = ROUNDED
        self.known[t] = Known(grade, known.step, known.most)

    def scalar(self, dtype):
        """(text, Known) of a constant."""
        if dtype[0] in "iu":
            v = self.rng.randint(0 if dtype[0] == "u" else -7, 7)
            return str(v), Known(EXACT, 0, abs(v))
        v = self.rng.randint(-24, 24) / 8
        return repr(v), Known(EXACT, 3, abs(v))

    def operand(self, t):
        """(text, Known) of a second operand for tile t: a tile, one that repeats, an element or a constant."""
        how = self.rng.randrange(6)
        if how == 0:
            return self.scalar(t.dtype)
        shape = {1: (1, self.cols), 2: (self.rows, 1)}.get(how, t.shape)
        if len(t.shape) != 2 or t.shape != (self.rows, self.cols):
            shape = t.shape
        o = self.tile((t.dtype,), shape)
        if how == 3:
            at = ", ".join(str(self.rng.randrange(s)) for s in o.shape)
            return f"{o.name}[{at}]", self.known[o]
        return o.name, self.known[o]

    # ---- the program -------------------------------------------------------------------------------------------

    def program(self, names):
        for _ in range(self.rng.choice([1, 1, 2])):
            self.load(self.rng.choice(FLOATS + INTS), (self.rows, self.cols))
        for _ in range(self.rng.randint(2, 6)):
            name = self.rng.choice(names)
            self.used.add(name)
            EMIT[name](self, name)
        stored = list(self.known)
        self.rng.shuffle(stored)
        for t in stored[:2] + [t for t in stored[2:] if self.rng.random() < 0.3]:
            self.store(t)
        grid = f"grid(%bx: {self.blocks})"
        head = f"kernel @random({', '.join(self.params)}) {grid} {{"
        return "\n".join(["tl 1", head, *self.allocs, *self.lines, "}"]) + "\n"

    def store(self, t):
        rows = self.total if t.shape[0] == self.rows else self.blocks * t.shape[0]
        y = self.tensor(t.dtype, (rows, *t.shape[1:]), True)
        self.put(f"copy {t.name} -> {y}{self.part(t.shape)}")
        self.outs.append((y[1:], self.known[t].grade))


# ---- statements --------------------------------------------------------------------------------------------------

EMIT = {}


def emits(*names):
    def put(f):
        for n in names:
            EMIT[n] = f
        return f

    return put


@emits("add", "sub", "mul", "max", "min")
def binary(g, name):
    a = g.tile(FLOATS + INTS)
    text, k = g.operand(a)
    d = g.target(a.dtype, a.shape)
    x = g.known[a]
    step, most = max(x.step, k.step), max(x.most, k.most)
    if name in ("add", "sub"):
        most = x.most + k.most
    if name == "mul":
        step, most = x.step + k.step, x.most * k.most
    g.put(f"{name} {a.name}, {text} -> {d.name}")
    g.result(d, Known(max(x.grade, k.grade), step, most))


@emits("div", "pow")
def quotient(g, name):
    a = g.tile(FLOATS, grade=ROUNDED)
    if name == "pow":
        text = g.rng.choice(["2.0", "3.0", "1.0"])
    else:
        text = g.operand(a)[0] if g.rng.random() < 0.7 else repr(g.rng.choice([2.0, 4.0, 3.0]))
    d = g.target(a.dtype, a.shape)
    g.put(f"{name} {a.name}, {text} -> {d.name}")
    g.result(d, Known(LOOSE))


@emits("exp", "ln", "sqrt", "rsqrt", "reciprocal", "sigmoid", "silu", "tanh", "sin", "cos")
def function(g, name):
    a = g.tile(FLOATS, grade=LOOSE if name in ("sigmoid", "silu", "tanh") else ROUNDED)
    d = g.target(a.dtype, a.shape)
    g.put(f"{name} {a.name} -> {d.name}")
    g.result(d, Known(LOOSE))


@emits("abs", "relu")
def sign(g, name):
    a = g.tile(FLOATS)
    d = g.target(a.dtype, a.shape)
    g.put(f"{name} {a.name} -> {d.name}")
    g.result(d, g.known[a])


@emits("axpy", "leaky_relu")
def scaled(g, name):
    a = g.tile(FLOATS)
    d = g.tile((a.dtype,)) if name == "axpy" else g.target(a.dtype, a.shape)
    text, k = g.scalar(a.dtype)
    x = g.known[a]
    out = Known(max(x.grade, ROUNDED), x.step + k.step, x.most * k.most + x.most)
    if name == "axpy":
        y = g.known[d]
        out = Known(max(x.grade, y.grade), max(out.step, y.step), out.most + y.most)
        if not fits(a.dtype, out):
            out.grade = LOOSE
    g.put(f"{name} {a.name}, {text} -> {d.name}")
    g.result(d, out)


@emits("mul_add")
def mul_add(g, name):
    a = g.tile(FLOATS)
    b, d = g.tile((a.dtype,)), g.tile((a.dtype,))
    x, y, z = g.known[a], g.known[b], g.known[d]
    out = Known(g.grade(a, b, d), max(x.step + y.step, z.step), x.most * y.most + z.most)
    if not fits(a.dtype, out):
        out.grade = LOOSE
    g.put(f"mul_add {a.name}, {b.name} -> {d.name}")
    g.result(d, out)


@emits("and", "or", "xor", "not")
def bits(g, name):
    a = g.tile(("i16", "u16", "i32", "u32"))
    d = g.target(a.dtype, a.shape)
    if name == "not":
        g.put(f"not {a.name} -> {d.name}")
    else:
        b = g.tile((a.dtype,)).name if g.rng.random() < 0.7 else str(g.rng.choice([1, 7, 255]))
        g.put(f"{name} {a.name}, {b} -> {d.name}")
    g.result(d, Known(EXACT, 0, 2.0 ** MANTISSA[a.dtype] - 1))


@emits("shl", "shr")
def shift(g, name):
    a = g.tile(("i16", "u16", "i32", "u32"))
    d = g.target(a.dtype, a.shape)
    by = g.rng.randint(0, 3)
    g.put(f"{name} {a.name}, {by} -> {d.name}")
    g.result(d, Known(EXACT, 0, 2.0 ** MANTISSA[a.dtype] - 1))


@emits("fill")
def fill(g, name):
    d = g.target(g.rng.choice(("f32", "f16", "bf16", "i32", "i16", "u8", "i8")), (g.rows, g.cols))
    text, k = g.scalar(d.dtype)
    g.put(f"fill {text} -> {d.name}")
    g.result(d, k)


@emits("arange")
def arange(g, name):
    d = g.alloc(g.rng.choice(("i32", "f32", "i16")), (g.rows * g.cols,))
    first, step = g.rng.randint(0, 4), g.rng.randint(1, 3)
    g.put(f"arange {first}, {step} -> {d.name}")
    g.result(d, Known(EXACT, 0, first + step * g.rows * g.cols))


@emits("cast")
def cast(g, name):
    a = g.tile(("f32", "f16", "i32", "i16", "bf16"))
    x = g.known[a]
    to = g.rng.choice([d for d in ("f32", "f16", "bf16", "i32", "i16") if d != a.dtype])
    d = g.target(to, a.shape)
    mode = ""
    if a.dtype[0] in "fb" and to[0] == "i":
        if x.grade == LOOSE or x.most > 2**14:
            return
        mode = f" mode({g.rng.choice(['rint', 'floor', 'ceil', 'trunc', 'round'])})"
    if a.dtype[0] == "i" and to == "i16" and x.most >= 2**15:
        return
    g.put(f"cast {a.name} -> {d.name}{mode}")
    g.result(d, Known(x.grade, 0 if to[0] == "i" else x.step, x.most + (to[0] == "i")))


@emits("compare", "select")
def choose(g, name):
    a = g.tile(FLOATS, grade=ROUNDED)
    mask = g.alloc("u8", (math.ceil(g.rows * g.cols / 8),))
    other = g.tile((a.dtype,), grade=ROUNDED).name if g.rng.random() < 0.6 else g.scalar(a.dtype)[0]
    g.put(f"compare {a.name}, {other} -> {mask.name} cmp({g.rng.choice(['eq', 'ne', 'lt', 'le', 'gt', 'ge'])})")
    x, y = g.tile((a.dtype,)), g.tile((a.dtype,))
    if g.rng.random() < 0.3:
        text, k = g.scalar(a.dtype)
    else:
        text, k = y.name, g.known[y]
    d = g.target(a.dtype, a.shape)
    g.put(f"select {mask.name}, {x.name}, {text} -> {d.name}")
    z = g.known[x]
    g.result(d, Known(max(z.grade, k.grade), max(z.step, k.step), max(z.most, k.most)))


@emits("broadcast")
def broadcast(g, name):
    axis = g.rng.randrange(2)
    shape = (1, g.cols) if axis == 0 else (g.rows, 1)
    if g.rng.random() < 0.4:
        shape = shape[1 - axis : 2 - axis] if axis == 0 else shape[:1]
    a = g.tile(FLOATS + INTS, shape)
    d = g.target(a.dtype, (g.rows, g.cols))
    g.put(f"broadcast {a.name} -> {d.name} dim({axis})")
    g.result(d, g.known[a])


@emits("reduce_sum", "reduce_max", "reduce_min", "reduce_abssum", "reduce_absmax", "reduce_and", "reduce_or",
       "reduce_xor")  # fmt: skip
def reduce(g, name):
    whole = ("i32", "i16", "u16", "u32") if name in ("reduce_and", "reduce_or", "reduce_xor") else FLOATS + ("i32",)
    a = g.tile(whole)
    axis = g.rng.randrange(2)
    shape = (a.shape[1 - axis],)
    keep = g.rng.random() < 0.3
    d = g.tile((a.dtype,), shape) if keep else g.target(a.dtype, shape)
    x = g.known[a]
    grade, step, most = x.grade, x.step, x.most
    if keep:
        y = g.known[d]
        grade, step, most = max(grade, y.grade), max(step, y.step), max(most, y.most)
    if name in ("reduce_sum", "reduce_abssum"):
        most *= a.shape[axis] + 1
        if grade != EXACT or not fits(a.dtype, Known(EXACT, step, most)):
            grade = LOOSE
    if whole[0] == "i32":
        step, most = 0, 2.0 ** MANTISSA[a.dtype] - 1
    g.put(f"{name} {a.name} -> {d.name} dim({axis}){' keep' if keep else ''}")
    g.result(d, Known(grade, step, most))


@emits("cumsum", "cummax")
def running(g, name):
    a = g.tile(("f32", "f16", "i32"))
    axis = g.rng.randrange(2)
    d = g.alloc(a.dtype, a.shape)
    x = g.known[a]
    out = Known(x.grade, x.step, x.most * (a.shape[axis] if name == "cumsum" else 1))
    if name == "cumsum" and (x.grade != EXACT or not fits(a.dtype, out)):
        out.grade = LOOSE
    g.put(f"{name} {a.name} -> {d.name} dim({axis}){' reverse' if g.rng.random() < 0.3 else ''}")
    g.result(d, out)


@emits("transpose")
def transpose(g, name):
    a = g.tile(("f32", "f16", "i32", "i16"))
    d = g.alloc(a.dtype, a.shape[::-1])
    g.put(f"transpose {a.name} -> {d.name}")
    g.result(d, g.known[a])


@emits("gather")
def gather(g, name):
    a = g.tile(("f32", "f16", "i32", "i16"))
    n, size = g.rows * g.cols, np.dtype(NP[a.dtype]).itemsize
    first, step = g.rng.choice([(0, size), ((n - 1) * size, -size), (0, 0)])
    idx = g.alloc("i32", a.shape)
    g.put(f"arange {first}, {step} -> {idx.name}")
    d = g.alloc(a.dtype, a.shape)
    g.put(f"gather {a.name}, {idx.name}, 0 -> {d.name}")
    g.result(d, g.known[a])


@emits("gatherb")
def gatherb(g, name):
    a = g.load(g.rng.choice(("f32", "i32")), (8, 8))
    idx = g.alloc("u32", (8,))
    first, step = g.rng.choice([(0, 32), (224, -32), (32, 0)])
    signed = g.alloc("i32", (8,))
    g.put(f"arange {first}, {step} -> {signed.name}")
    g.put(f"cast {signed.name} -> {idx.name}")
    d = g.alloc(a.dtype, (8, 8))
    g.put(f"gatherb {a.name}, {idx.name} -> {d.name}")
    g.result(d, g.known[a])


@emits("gather_mask")
def gather_mask(g, name):
    a = g.tile(("f32", "f16", "i32", "i16"))
    n, pattern = g.rows * g.cols, g.rng.randint(1, 7)
    count = n if pattern == 7 else (n + (pattern == 1)) // 2 if pattern <= 2 else (n + 6 - pattern) // 4
    if not count:
        return
    d = g.alloc(a.dtype, (count,))
    g.put(f"gather_mask {a.name}, {pattern} -> {d.name}")
    g.result(d, g.known[a])


@emits("pack4", "unpack4")
def pairs(g, name):
    a = g.load("f16", (64,))
    packed = g.alloc("i4x2", (32,))
    g.put(f"pack4 {a.name} -> {packed.name}")
    d = g.alloc("f16", (64,))
    g.put(f"unpack4 {packed.name} -> {d.name}")
    g.result(d, Known(EXACT, 0, 8))


@emits("sort")
def sort(g, name):
    a = g.load(g.rng.choice(FLOATS), (g.rows * g.cols,))
    n = g.rng.randint(1, g.rows * g.cols)
    d = g.alloc(a.dtype, (2 * g.rows * g.cols,))
    g.put(f"sort {a.name}, {n} -> {d.name}")
    g.result(d, Known(ROUNDED, 3, 2048))


@emits("sort32", "merge2", "merge3", "merge4")
def records(g, name):
    lists = int(name[-1]) if name != "sort32" else g.rng.choice([2, 3, 4])
    a, idx = g.load("f32", (32 * lists,)), g.alloc("u32", (32 * lists,))
    signed = g.alloc("i32", (32 * lists,))
    g.put(f"arange 0, 1 -> {signed.name}")
    g.put(f"cast {signed.name} -> {idx.name}")
    r = g.alloc("f32", (64 * lists,), "ub")
    g.put(f"sort32 {a.name}, {idx.name} -> {r.name}")
    d = r
    if name != "sort32":
        d = g.alloc("f32", (64 * lists,), "ub")
        parts = ", ".join(f"{r.name}[{64 * i} +: 64]" for i in range(lists))
        g.put(f"merge{lists} {parts} -> {d.name}")
    even = g.alloc("f32", (32 * lists,))
    g.put(f"gather_mask {d.name}, 1 -> {even.name}")
    g.result(even, g.known[a])


@emits("copy")
def copy(g, name):
    a = g.tile(FLOATS + INTS + ("bf16",))
    d = g.target(g.rng.choice((a.dtype, *(("f32", "f16", "bf16") if a.dtype[0] in "fb" else ()))), a.shape)
    g.put(f"copy {a.name} -> {d.name}")
    g.result(d, g.known[a])


@emits("atomic_add")
def atomic(g, name):
    a = g.tile(("f32", "f16", "i32"), grade=EXACT)
    y = g.tensor(a.dtype, (g.total, g.cols), False)
    g.put(f"atomic_add {a.name} -> {y}{g.part(a.shape)}")
    g.outs.append((y[1:], ROUNDED))


@emits("gemm", "mmad")
def gemm(g, name):
    dtype = g.rng.choice(["f16", "bf16", "f32", "i8"])
    m, n, k = (g.rng.choice([1, 16, 17, 32]) for _ in range(3))
    ta, tb = g.rng.random() < 0.3, g.rng.random() < 0.3
    a = g.alloc(dtype, (k, m) if ta else (m, k), "shared")
    b = g.alloc(dtype, (n, k) if tb else (k, n), "shared")
    c = g.alloc("i32" if dtype == "i8" else "f32", (m, n), "fragment")
    xa, xb = g.tensor(dtype, (g.blocks * a.shape[0], a.shape[1]), False), g.tensor(dtype, b.shape, False)
    steps = g.rng.choice([1, 2, 3])
    if steps > 1:
        i = g.name("k")
        g.put(f"for {i} in 0..{steps}{g.rng.choice(['', ' pipeline(2)'])} {{")
        g.depth += 1
    g.put(f"copy {xa}{g.part(a.shape)} -> {a.name}")
    g.put(f"copy {xb} -> {b.name}")
    first = "true" if steps == 1 else f"{i} == 0"
    g.put(f"gemm {a.name}, {b.name} -> {c.name} init({first}){' trans_a' if ta else ''}{' trans_b' if tb else ''}")
    if steps > 1:
        g.depth -= 1
        g.put("}")
    g.result(c, Known(EXACT, 6 if dtype != "i8" else 0, 64 * k * steps))


@emits("gemm of parts")
def gemm_parts(g, name):
    """An accumulator cleared as one and multiplied into by parts, from parts of tiles: any row where nothing turns."""
    dtype = g.rng.choice(["f16", "bf16", "f32", "i8"])
    k, rows, cols = g.rng.choice([16, 32]), g.rng.choice([32, 48]), g.rng.choice([32, 64])
    if g.rows % 16 == 0 and g.rng.random() < 0.7:  # of the size that vector ops of the program work on
        rows, cols = g.rows, max(16, g.cols // 16 * 16)
    c = g.alloc("i32" if dtype == "i8" else "f32", (rows, cols), "fragment")
    tall, right = (g.alloc(dtype, (64, 64), "shared") for _ in "ab")
    for t in (tall, right):
        g.put(f"copy {g.tensor(dtype, (g.blocks * 64, 64), False)}{g.part(t.shape)} -> {t.name}")
        if g.rng.random() < 0.2:
            g.put(f"add {t.name}, 1 -> {t.name}")
    turned = g.rng.random() < 0.3
    g.put(f"fill 0 -> {c.name}")
    times, trips = g.rng.randint(1, 3), g.rng.choice([1, 1, 3])
    if trips > 1:
        i = g.name("i")
        g.put(f"for {i} in 0..{trips} {{")
        g.depth += 1
    for _ in range(times):
        if trips > 1 and g.rng.random() < 0.5:
            g.put(jump(g, i))
        m, n = g.rng.choice([16, min(rows, 32)]), g.rng.choice([16, min(cols, 32)])
        r, q = 16 * g.rng.randint(0, (rows - m) // 16), 16 * g.rng.randint(0, (cols - n) // 16)
        whole, free = lambda most: 16 * g.rng.randint(0, most // 16), lambda most: g.rng.randint(0, most)
        any_row = dtype in ("f16", "bf16")
        a_at = (free if any_row or not turned else whole)(32), 32 * g.rng.randint(0, 1)
        b_at = (free if any_row else whole)(32), 32 * g.rng.randint(0, 1)
        a_ext = (k, m) if turned else (m, k)
        box = lambda at, ext: f"[{at[0]} +: {ext[0]}, {at[1]} +: {ext[1]}]"
        g.put(
            f"gemm {tall.name}{box(a_at, a_ext)}, {right.name}{box(b_at, (k, n))} -> {c.name}{box((r, q), (m, n))}"
            + (" trans_a" if turned else "")
        )
    if trips > 1:
        g.depth -= 1
        g.put("}")
    g.result(c, Known(EXACT, 6 if dtype != "i8" else 0, 81 * k * times * trips))


def inside(g, head, leave=None):
    """Statements in a block, with a jump among them. What they write is known less: they may run more than once, or not
    at all."""
    g.put(head)
    g.depth += 1
    before = dict(g.known)
    for t in list(g.known):
        k = g.known[t]
        g.known[t] = Known(max(k.grade, ROUNDED), k.step, k.most)
    n = g.rng.randint(1, 2)
    at = g.rng.randint(0, n) if leave else -1
    for x in range(n + 1):
        if x == at:
            g.put(leave)
        if x < n:
            name = g.rng.choice(["add", "mul", "max", "abs", "fill", "copy", "broadcast", "exp", "axpy"])
            EMIT[name](g, name)
    g.depth -= 1
    for t in list(g.known):
        if t not in before:
            del g.known[t]
        else:
            g.known[t] = Known(max(before[t].grade, LOOSE), 0, 2.0**14)


def jump(g, i):
    """A way out of an iteration of the loop over i, or of the loop."""
    when = f"{i} {g.rng.choice(['==', '>', '<'])} {g.rng.randint(0, 2)}"
    return f"if {when} {{ {g.rng.choice(['continue', 'break'])} }}"


@emits("for")
def loop(g, name):
    g.tile()
    n = g.rng.choice([1, 2, 3])
    i = g.name("i")
    inside(g, f"for {i} in 0..{n}{g.rng.choice(['', '', ' pipeline(2)'])} {{", g.rng.choice([None, jump(g, i)]))
    g.put("}")


@emits("if")
def branch(g, name):
    g.tile()
    inside(g, f"if %bx % 2 == {g.rng.randrange(2)} {{")
    if g.rng.random() < 0.5:
        inside(g, "} else {")
    g.put("}")


@emits("rows")
def rows(g, name):
    """A loop over the rows of a tile."""
    a = g.tile(FLOATS)
    d = g.tile((a.dtype,))
    i = g.name("r")
    row = f"[{i} +: 1, 0 +: {g.cols}]"
    g.put(f"for {i} in 0..{g.rows} {{")
    op = g.rng.choice(["add", "mul", "max"])
    g.put(f"  {op} {a.name}{row}, {d.name}{row} -> {d.name}{row}")
    g.put("}")
    x, y = g.known[a], g.known[d]
    g.result(d, Known(g.grade(a, d), x.step + y.step, x.most * y.most + x.most + y.most))


@emits("part")
def part(g, name):
    """An op on a part of a tile."""
    a, d = g.tile(FLOATS), g.tile(FLOATS)
    if a.dtype != d.dtype or a == d:
        return
    h, w = g.rng.randint(1, g.rows), g.rng.randint(1, g.cols)

    def at():
        return f"[{g.rng.randint(0, g.rows - h)} +: {h}, {g.rng.randint(0, g.cols - w)} +: {w}]"

    op = g.rng.choice(["abs", "relu", "copy"])
    g.put(f"{op} {a.name}{at()} -> {d.name}{at()}")
    x, y = g.known[a], g.known[d]
    g.result(d, Known(g.grade(a, d), max(x.step, y.step), max(x.most, y.most)))


@emits("element")
def element(g, name):
    """Scalars: elements read, computed with, and written."""
    a = g.tile(("f32", "i32"))
    s = g.name("s")
    spot = [", ".join(str(g.rng.randrange(n)) for n in a.shape) for _ in range(3)]
    one = "1.0" if a.dtype == "f32" else "1"
    g.put(f"let {s}: {a.dtype} = {a.name}[{spot[0]}] + {one}")
    g.put(f"{a.name}[{spot[1]}] = {s} * {a.name}[{spot[2]}]")
    x = g.known[a]
    g.result(a, Known(x.grade, 2 * x.step, x.most * x.most + x.most))


@emits("while")
def repeat(g, name):
    a = g.tile(("f32",))
    c = g.name("c")
    g.put(f"var {c}: i32 = {g.rng.randint(0, 3)}")
    g.put(f"while {c} > 0 {{")
    g.put(f"  add {a.name}, 1.0 -> {a.name}")
    g.put(f"  {c} = {c} - 1")
    g.put("}")
    x = g.known[a]
    g.result(a, Known(x.grade, x.step, x.most + 3))


@emits("parallel")
def parallel(g, name):
    a, b = g.tile(("f32",)), g.tile(("f32",))
    d = g.target("f32", (g.rows, g.cols))
    i, j = g.name("i"), g.name("j")
    at = f"[{i}, {j}]"
    x, y = f"{a.name}{at}", f"{b.name}{at}"
    grade = g.grade(a, b)
    k, m = g.known[a], g.known[b]
    form, step, most = g.rng.choice([
        (f"{x} + {y}", max(k.step, m.step), k.most + m.most),
        (f"{x} * {y}", k.step + m.step, k.most * m.most),
        (f"max({x}, {y}) - 0.5", max(k.step, m.step, 1), max(k.most, m.most) + 1),
        (f"select({x} > {y}, {x}, {y} * 2.0)", max(k.step, m.step), k.most + 2 * m.most),
        (f"{x} * 0.5 + {y} * 2.0", max(k.step + 1, m.step), k.most + 2 * m.most),
    ])  # fmt: skip
    if "select" in form and grade == LOOSE:
        return
    g.put(f"parallel {i}: {g.rows}, {j}: {g.cols} {{")
    g.put(f"  {d.name}{at} = {form}")
    g.put("}")
    out = Known(grade, step, most)
    if not fits("f32", out):
        out.grade = LOOSE
    g.result(d, out)


class Accesses:
    """Expressions over the indices i and j of a parallel loop, whose leaves reach tiles and tensors in every way. All
    values are eighths below 8, so that what four of them make is exact."""

    def __init__(self, g, i, j):
        self.g, self.i, self.j = g, i, j

    def tile(self, shape):
        return self.g.load("f32", shape).name

    def leaf(self):
        g, i, j, (rows, cols) = self.g, self.i, self.j, (self.g.rows, self.g.cols)
        how = g.rng.randrange(13)
        if how == 0:
            return f"{self.tile((cols,))}[{j}]"
        if how == 1:
            return f"{self.tile((rows, 1))}[{i}, 0]"
        if how == 2:
            return f"{self.tile((rows + 3, cols + 3))}[{i} + {g.rng.randint(0, 3)}, {j} + {g.rng.randint(0, 3)}]"
        if how == 3:
            return f"{self.tile((cols, rows))}[{j}, {i}]"
        if how == 4:
            return f"{self.tile((rows, 2 * cols + 1))}[{i}, {j} * 2 + {g.rng.randint(0, 1)}]"
        if how == 5:
            return f"{self.tile((rows, cols))}[{rows - 1} - {i}, {cols - 1} - {j}]"
        if how == 6:
            x = g.tensor("f32", (g.total, cols), False)
            return f"{x}[%bx * {rows} + {i}, {j}]"
        if how == 7:  # what lies before the start of the tensor, or behind its end, is left out
            x, at = g.tensor("f32", (g.total, cols), False), f"%bx * {rows} + {i} - {g.rng.randint(0, 2)}"
            k = f"{j} - {g.rng.randint(0, 2)}"
            inside = f"{at} >= 0 && {at} < {g.total} && {k} >= 0"
            return f"select({inside}, {x}[{at}, {k}], {g.rng.choice(['0.0', '1.5'])})"
        if how == 8:
            x = g.tensor("f32", (g.total, 5), False)
            return f"{x}[%bx * {rows} + {i}, {g.rng.randrange(5)}]"
        if how == 9:
            return f"f32({g.rng.choice([i, j])} % {g.rng.choice([3, 4, 7])})"
        if how == 10:
            return f"f32({g.rng.choice([f'{i} * {cols} + {j}', i, j])} // {g.rng.choice([16, 24, 200])} % 8)"
        return f"{self.tile((rows, cols))}[{i}, {j}]"

    def condition(self):
        g = self.g
        a = g.rng.choice([self.leaf, lambda: f"f32({self.i})", lambda: f"f32({self.j})"])()
        return f"{a} {g.rng.choice(['<', '<=', '>', '>=', '==', '!='])} {g.rng.choice(['0.5', '3.0', '-1.0'])}"

    def value(self, depth):
        g = self.g
        if not depth:
            return self.leaf()
        a, b = self.value(depth - 1), self.value(depth - 1 if g.rng.random() < 0.5 else 0)
        form = g.rng.choice(["{} + {}", "{} - {}", "{} * {}", "max({}, {})", "min({}, {})"]).format(f"({a})", f"({b})")
        return form if g.rng.random() < 0.75 else f"select({self.condition()}, {form}, {self.leaf()})"

    def bound(self):
        """A condition on the indices, as stores are guarded with."""
        g = self.g
        i, n = g.rng.choice([(self.i, g.rows), (self.j, g.cols)])
        at = g.rng.choice([str(g.rng.randint(-1, n + 1)), f"%bx * 3 + {g.rng.randint(0, n)}"])
        return g.rng.choice([f"{i} < {at}", f"{i} >= {at}", f"{at} > {i}", f"{i} == {at}", f"{i} + 1 <= {at}"])


@emits("parallel access")
def parallel_access(g, name):
    i, j = g.name("i"), g.name("j")
    x = Accesses(g, i, j)
    value, to = x.value(g.rng.choice([0, 1, 1, 2])), g.rng.randrange(4)
    guard = " && ".join(x.bound() for _ in range(g.rng.randint(1, 2))) if to >= 2 else None
    if to % 2:  # straight to a tensor; what the guard leaves out keeps what it holds
        y = g.tensor("f32", (g.total, g.cols), False)
        place = f"{y}[%bx * {g.rows} + {i}, {j}]"
        g.outs.append((y[1:], EXACT))
    else:
        d = g.tile(("f32",)) if guard else g.alloc("f32", (g.rows, g.cols))
        place = f"{d.name}[{i}, {j}]"
        before = g.known.get(d, Known(EXACT, 0, 0))
        g.result(d, Known(before.grade, max(before.step, 12), max(before.most, 4096)))
    g.put(f"parallel {i}: {g.rows}, {j}: {g.cols} {{")
    if guard:
        g.put(f"  if {guard} {{")
    g.put(f"    {place} = {value}" if guard else f"  {place} = {value}")
    if guard:
        g.put("  }")
    g.put("}")


@emits("parallel sum")
def parallel_sum(g, name):
    a = g.tile(("f32",))
    d = g.alloc("f32", (g.rows,))
    g.put(f"fill 0.0 -> {d.name}")
    i, j = g.name("i"), g.name("j")
    g.put(f"parallel {i}: {g.rows}, {j}: {g.cols} {{")
    g.put(f"  {d.name}[{i}] += {a.name}[{i}, {j}]")
    g.put("}")
    x = g.known[a]
    out = Known(x.grade, x.step, x.most * g.cols)
    if x.grade != EXACT or not fits("f32", out):
        out.grade = LOOSE
    g.result(d, out)


# text; outs: {name of a tensor that is written: grade of its values}; used: the statements drawn
Program = collections.namedtuple("Program", "seed text outs used", defaults=({}, ()))


def generate(seed, names=None):
    g = Generator(seed)
    text = g.program(names or sorted(EMIT))
    return Program(seed, text, dict(g.outs), g.used)


def with_barriers(text):
    """The text with `barrier all` after every statement, and between iterations."""
    lines, body = [], False
    for line in text.splitlines():
        word = line.split()[0] if line.split() else ""
        inside_parallel = lines and body == "parallel"
        if body and not inside_parallel and word not in ("}", "alloc"):
            lines.append("barrier all")
        lines.append(line)
        if word == "kernel":
            body = True
        elif word == "parallel":
            body = "parallel"
        elif inside_parallel and word == "}":
            body = True
    return "\n".join(lines) + "\n"


# ---- what must hold ----------------------------------------------------------------------------------------------


class Wrong(Exception):
    """A program that does not do the same in two ways."""


class Refused(Exception):
    """The compiler refuses the program with a diagnostic of its own."""


def problems(program):
    return [f"{d['code']} {d['text']}" for d in json.loads(program.diags_json()) if d["severity"] == "error"]


def compiled(text, **options):
    p = _core.Program()
    if not p.load("random.tl", text):
        raise Refused("; ".join(problems(p)))
    if not p.lower(**options):
        found = problems(p)
        if not found or found[0].startswith(("TL0002", "TL02")):
            raise Wrong(f"lowering failed: {found}")
        raise Refused("; ".join(found))
    return p


def inputs(program):
    """Arrays for all parameters: small values, outputs poisoned."""
    arrays, rng = [], np.random.default_rng(1)
    for p in json.loads(program.signature_json())["params"]:
        kind = np.dtype(NP[p["dtype"]])
        a = rng.integers(-8, 9, p["shape"])
        a = a / 8 if kind.kind in "fV" else a + 8 if kind.kind == "u" else a
        a = np.ascontiguousarray(a.astype(kind))
        if p["out"] or p["workspace"]:
            a.view(np.uint8)[...] = 0x5A
        arrays.append((p["name"], a))
    return arrays


def simulated(p, arrays, **options):
    copies = [a.copy() for _, a in arrays]
    ok, _ = p.sim([(a.ctypes.data, a.shape) for a in copies], **options)
    found = [d for d in json.loads(p.diags_json()) if d["code"].startswith("TL08")]  # warnings of the run, too
    if not ok or found:
        raise Wrong(f"sim({options}): {problems(p) or found}")
    return copies


def differ(a, b):
    """Where the values differ; -0 is not 0."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return ~((x == y) & (np.signbit(x) == np.signbit(y)) | (np.isnan(x) & np.isnan(y)))


def same(a, b):
    """The same bytes, but any NaN is as good as another."""
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind not in "fV":
        return False
    return not differ(a, b).any()


def close(a, b):
    x, y = a.astype(np.float64), b.astype(np.float64)
    rough = {2: 2e-2, 4: 1e-4}.get(a.dtype.itemsize, 0)
    return np.allclose(x, y, rough, rough, equal_nan=True)


def compare(way, arrays, first, second, grades=None):
    """Raises Wrong where two runs differ; with grades, as much as the grade of a tensor allows, and as a zero may have
    either sign (the larger of 0 and -0 is either)."""
    for (name, _), a, b in zip(arrays, first, second):
        if same(a, b) or (grades and grades.get(name) == LOOSE and close(a, b)):
            continue
        if grades and a.dtype.kind in "fV" and np.array_equal(a + a.dtype.type(0), b + b.dtype.type(0), equal_nan=True):
            continue
        at = tuple(int(i[0]) for i in np.nonzero(differ(a, b)))
        raise Wrong(f"{way}: %{name}{list(at)} is {a[at]!r} there, {b[at]!r} here")


def check(program):
    """Every way to run it gives the same bytes: raises Wrong if not, Refused if it is refused. One program of four is
    interpreted at another stage, too."""
    rng = random.Random(program.seed)
    p = compiled(program.text, keep_text=True)
    passes = [n for n, _ in _core.passes() if p.text_after(n)]
    whole = p.text()
    source = _core.Program()
    source.load("random.tl", program.text)
    arrays = inputs(source)
    right = simulated(p, arrays, threads=1)
    compare("without checks", arrays, right, simulated(p, arrays, checks=False, threads=2))
    compare("another schedule", arrays, right, simulated(p, arrays, threads=1, schedule=program.seed + 1))
    middle = rng.choice(passes)
    text = p.text_after(middle)
    resumed = compiled(text)
    if resumed.text() != whole:
        raise Wrong(f"resumed from the text after {middle}, the lowered text is another")
    tight = compiled(program.text, no_auto_memory=True)
    compare("no reuse of memory", arrays, right, simulated(tight, arrays, threads=1))
    by_hand = compiled(with_barriers(program.text), no_auto_sync=True)
    compare("barriers by hand", arrays, right, simulated(by_hand, arrays, threads=1))
    for stage, written in (("source", program.text), (f"text after {middle}", text))[: 1 + (program.seed % 4 == 0)]:
        given = [a.copy() for _, a in arrays]
        try:
            interpret(written, given)
        except Exception as e:
            raise Wrong(f"interpreter, {stage}: {type(e).__name__}: {e}") from e
        compare(f"interpreter, {stage}", arrays, right, given, program.outs)


def outcome(seed):
    """(seed, "fine" | "refused" | "wrong", reason, statements used)."""
    program = generate(seed)
    try:
        check(program)
    except Refused as e:
        return seed, "refused", str(e), program.used
    except Wrong as e:
        return seed, "wrong", str(e), program.used
    return seed, "fine", "", program.used


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--keep", type=pathlib.Path)
    p.add_argument("--show", type=int)
    options = p.parse_args()
    if options.show is not None:
        print(generate(options.show).text, outcome(options.show)[1:3])
        return
    began, counts, reasons = time.perf_counter(), collections.Counter(), collections.Counter()
    seeds = range(options.seed, options.seed + options.count)
    pool = multiprocessing.Pool(options.jobs) if options.jobs > 1 else None
    for seed, status, reason, _ in pool.imap(outcome, seeds, 50) if pool else map(outcome, seeds):
        counts[status] += 1
        reasons[status, re.sub(r"\d+", "N", reason)[:100]] += status != "fine"
        if status == "wrong":
            print(f"{seed}: {reason}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{seed}.tl").write_text(generate(seed).text)
    for (status, reason), n in reasons.most_common(30):
        print(f"{n:6} {status}: {reason}")
    print(f"{options.count} programs from seed {options.seed}: {dict(counts)}; {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
