"""`kernel.numerics`: where values leave their dtype.

The program is interpreted; after each statement its result is compared with what went in. Overflow is an infinity, and
"not a number" a NaN, that no input had; underflow is a zero that exact arithmetic would not give. A sum that is kept in
float16 or bfloat16 and then written in float32 is named too: its digits were lost before.
"""

import numpy as np

from ..errors import _short
from ..frontend.expr import Buffer, Region
from .arith import widen
from .machine import root

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
ADDS = {"axpy", "mul_add", "reduce_sum", "reduce_abssum"}


class Entry:
    """One statement: `line`, `text`, `dtype`, counts of `overflow`, `underflow`, `nan` and of the elements seen, and
    the first block where it happened."""

    def __init__(self, file, line, text, dtype):
        self.file, self.line, self.text, self.dtype = file, line, text, dtype
        self.overflow = self.underflow = self.nan = self.elements = 0
        self.where = None

    def add(self, lane, overflow, underflow, nan, elements):
        self.elements += elements
        if not (overflow or underflow or nan):
            return
        self.overflow, self.underflow, self.nan = self.overflow + overflow, self.underflow + underflow, self.nan + nan
        self.where = self.where or lane.who()

    def __str__(self):
        found = [
            f"{n} {what}"
            for n, what in (
                (self.overflow, "overflow to infinity"),
                (self.underflow, "underflow to 0"),
                (self.nan, "become NaN"),
            )
            if n
        ]
        at = f"{_short(self.file)}:{self.line}" if self.file else f"line {self.line}"
        return f"{at} {self.text} ({self.dtype}): {', '.join(found)} of {self.elements}; first in {self.where}"


class Numerics:
    """What kernel.numerics found: `entries` (statements where something happened) and `sums` (in words)."""

    def __init__(self, entries, sums):
        self.entries, self.sums = entries, sums

    def __bool__(self):
        """True when something was found."""
        return bool(self.entries or self.sums)

    def __str__(self):
        lines = [str(e) for e in self.entries] + self.sums
        return "\n".join(lines) if lines else "nothing overflows, underflows or becomes NaN"

    __repr__ = __str__


class Observer:
    def __init__(self):
        self.entries, self.sums = {}, {}
        self.before = {}  # lane -> values of the inputs of the statement under way
        self.summed = {}  # place of a narrow buffer that sums are kept in -> line

    def entry(self, s, text, dtype):
        key = (s.loc, text)
        if key not in self.entries:
            number, line, _ = s.loc
            file = self.prog.files[number - 1] if 0 < number <= len(self.prog.files) else None
            self.entries[key] = Entry(file, line, text, dtype)
        return self.entries[key]

    def look(self, lane, s):
        """Before a statement: inputs as float64."""
        if s.kind == "op" and s.outs[0].buf.dtype.is_float:
            ins = [a for a in s.ins if isinstance(a, Region) and a.buf.dtype.is_float]
            ins += [r for r in s.outs if s.name in ADDS or s.name in ("gemm", "mmad")]
            self.before[lane] = [widen(_view(lane, r), r.buf.dtype).copy() for r in ins]

    def __call__(self, lane, s):
        if s.kind == "store":
            self.store(lane, s)
            return
        out = s.outs[0]
        if not out.buf.dtype.is_float or s.name == "fill":
            return
        self.notice_sum(lane, s, out)
        ins = self.before.pop(lane, [])
        got = widen(_view(lane, out), out.buf.dtype)
        before = [*ins, *([np.float64(lane.value(s.attrs["pad"]))] if s.attrs.get("pad") is not None else [])]
        overflow = int(np.isinf(got).sum()) if not any(np.isinf(a).any() for a in before) else 0
        nan = int(np.isnan(got).sum()) if not any(np.isnan(a).any() for a in before) else 0
        self.entry(s, s.name, out.buf.dtype).add(lane, overflow, self.flushed(lane, s, ins, got), nan, got.size)

    def flushed(self, lane, s, ins, got):
        """Zeros that exact arithmetic would not give."""
        zero = got == 0
        if not zero.any() or not ins:
            return 0
        if s.name in ("exp", "sigmoid"):
            return int((zero & np.isfinite(ins[0]).reshape(got.shape) if ins[0].size == got.size else zero).sum())
        if s.name in ("cast", "copy", "sqrt", "reciprocal", "gm_to_ub", "l0c_to_gm") and ins[0].size == got.size:
            return int((zero & (ins[0].reshape(got.shape) != 0)).sum())
        same = [a.reshape(got.shape) for a in ins if a.size == got.size]
        if s.name in ("mul", "div") and same:
            live = same[0] != 0
            if s.name == "mul" and len(same) > 1:
                live &= same[1] != 0
            scalar = [a for a in s.ins if not isinstance(a, Region)]
            return (
                int((zero & live).sum()) if not scalar or s.name == "div" or np.any(lane.value(scalar[0]) != 0) else 0
            )
        return 0

    def store(self, lane, s):
        if not s.buf.dtype.is_float or lane.exact is None:
            return
        exact, rounded = lane.exact
        lane.exact = None
        exact, rounded = np.asarray(exact, np.float64), np.asarray(rounded, np.float64)
        with np.errstate(all="ignore"):
            overflow = int((np.isinf(rounded) & np.isfinite(exact)).sum())
            nan = int((np.isnan(rounded) & ~np.isnan(exact)).sum())
            under = int(((rounded == 0) & (exact != 0) & np.isfinite(exact)).sum())
        self.entry(s, "assignment", s.buf.dtype).add(lane, overflow, under, nan, max(exact.size, rounded.size))
        if s.accumulate:
            self.keep(s.buf, s)

    def keep(self, buf, s):
        if buf.dtype in NARROW and buf.space != "gm":
            self.summed.setdefault(root(buf).at, (buf.name, s.loc))

    def notice_sum(self, lane, s, out):
        if s.name in ADDS or (s.name == "add" and any(isinstance(a, Region) and a.buf is out.buf for a in s.ins)):
            self.keep(out.buf, s)
        if s.name not in ("copy", "cast") or out.buf.dtype != "float32":
            return
        src = s.ins[0].buf
        kept = self.summed.get(root(src).at) if isinstance(src, Buffer) else None
        if kept and src.dtype in NARROW:
            name, loc = kept
            self.sums.setdefault(
                (root(src).at, root(out.buf).at),
                f"line {s.loc[1]}: '{name}' keeps a sum in {src.dtype} (line {loc[1]}) and is written to "
                f"'{out.buf.name}' in float32: digits below {_epsilon(src.dtype)} of the sum are lost before; make "
                f"'{name}' float32",
            )


def _epsilon(dtype):
    return {"float16": "1/2048", "bfloat16": "1/256"}.get(str(dtype), "1/16")


def _view(lane, r):
    """The part of a region that lies inside its buffer."""
    return lane.clamped(r)[0]


def numerics(call):
    """Interprets a call and watches every statement; see Kernel.numerics."""
    tensors, entries, sums = call.tensors(), [], []
    for launch in call.launches:
        seen = Observer()

        def watch(run, seen=seen):
            seen.prog, run.look = run.program, seen.look
            run.observers.append(seen)

        launch.interpreted(tensors, watch=watch)
        found = [e for e in seen.entries.values() if e.overflow or e.underflow or e.nan]
        entries += sorted(found, key=lambda e: (e.file or "", e.line))
        sums += seen.sums.values()
    return Numerics(entries, sums)
