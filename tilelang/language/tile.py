"""T.tile.*: operations on whole tiles in UB, destination first.

`_TABLE` gives for each function the op of src/ir/ops.def and the order of its operands in the call; test/python checks
that every op named here exists.
"""

from ..errors import UnknownNameError, counted, fail, nearest, rightly, warn
from ..frontend.builder import current, statements
from ..frontend.expr import Buffer, Element, Region, as_index, describe, same_size, shape_text, show, value_of, wrap
from .dtypes import int32
from .ops import atomic_add, clear, fill, long_dims, mark_written, only_element  # noqa: F401 - part of T.tile
from .ops import packed_cast, region_of, scaled_cast

# name -> (op, operands after dst): r tile · e tile or scalar · s scalar
_TABLE = {
    "add": ("add", "re"),
    "sub": ("sub", "re"),
    "mul": ("mul", "re"),
    "div": ("div", "re"),
    "max": ("max", "re"),
    "min": ("min", "re"),
    "bitwise_and": ("and", "re"),
    "bitwise_or": ("or", "re"),
    "bitwise_xor": ("xor", "re"),
    "bitwise_not": ("not", "r"),
    "bitwise_lshift": ("shl", "rs"),
    "bitwise_rshift": ("shr", "rs"),
    "axpy": ("axpy", "rs"),
    "mul_add_dst": ("mul_add", "rr"),
    "leaky_relu": ("leaky_relu", "rs"),
    "abs": ("abs", "r"),
    "exp": ("exp", "r"),
    "ln": ("ln", "r"),
    "sqrt": ("sqrt", "r"),
    "rsqrt": ("rsqrt", "r"),
    "reciprocal": ("reciprocal", "r"),
    "relu": ("relu", "r"),
    "sigmoid": ("sigmoid", "r"),
    "silu": ("silu", "r"),
    "tanh": ("tanh", "r"),
    "sin": ("sin", "r"),
    "cos": ("cos", "r"),
    "pow": ("pow", "re"),
}


def _count(ext):
    n = 1
    for e in ext:
        n = n * e if isinstance(n, int) and isinstance(e, int) else None
        if n is None:
            return None
    return n


def _agree(what, dst, src):
    """Same shape, or an input with extent 1 where the output has more."""
    a, b = long_dims(dst.ext), long_dims(src.ext)
    if len(a) == len(b) and False not in [same_size(x, y) for x, y in zip(a, b)]:
        return True
    have = [1] * (len(dst.ext) - len(src.ext)) + list(src.ext)
    if len(have) == len(dst.ext) and all(
        e == 1 if isinstance(e, int) and e == 1 else same_size(e, d) is not False for e, d in zip(have, dst.ext)
    ):
        return True
    current(what).error(
        1012,
        f"{what}: '{src.buf.called}' gives {shape_text(src.ext)}, '{dst.buf.called}' takes {shape_text(dst.ext)}",
        fix="give both the same shape by slicing; a dimension of 1 is repeated",
    )
    return False


def _operand(what, kind, v, dst):
    if kind == "s":
        v = only_element(v)
    if kind == "s" or (kind == "e" and not isinstance(v, (Buffer, Region))):
        if isinstance(v, (Buffer, Region)):
            fail(
                1004,
                f"{what} takes one value here, not the tile {describe(v)}",
                fix="one value: a number or an element of a tile",
            )
        return wrap(v, dst.dtype, f"a tile or one value for {what}")
    return region_of(v, what)


def _emit(what, op, dst, inputs, attrs=(), check=True):
    if check:
        for r in inputs:
            if isinstance(r, Region) and not _agree(what, dst, r):
                return
    head = [f"{op} "]
    for n, r in enumerate(inputs):
        head += [", " if n else "", r]
    current(what).emit([h for h in head if h != ""] + [" -> ", mark_written(dst), *attrs])


_EITHER_WAY = ("add", "mul", "max", "min", "and", "or", "xor")
_REVERSED = {
    "sub": "T.tile.mul(dst, src, -1.0), then T.tile.add",
    "div": "T.tile.reciprocal(dst, src), then T.tile.mul",
}


def _number_first(what, op, operands):
    fix = _REVERSED.get(op, "T.fill a tile with it, and take that") if isinstance(operands[1], (Buffer, Region)) else (
        "a buffer of T.alloc_shared, T.alloc_fragment …, or a slice of one")  # fmt: skip
    fail(1004, f"{what} takes a tile first, not {describe(operands[0])}", fix=fix)


def _make(name, op, kinds):
    what = f"T.tile.{name}"

    def function(dst, *operands):
        if len(operands) != len(kinds):
            fail(
                1004,
                f"{what} takes {counted(len(kinds), 'operand')} after the destination, {len(operands)} given",
                fix=f"{what}(dst, {', '.join(('src', 'other')[: len(kinds)])})",
            )
        d = region_of(dst, what)
        if kinds == "re" and not isinstance(operands[0], (Buffer, Region)):
            if op not in _EITHER_WAY or not isinstance(operands[1], (Buffer, Region)):
                _number_first(what, op, operands)
            operands = operands[::-1]
        _emit(what, op, d, [_operand(what, k, v, d) for k, v in zip(kinds, operands)])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The op `{op}` of docs/ir.md; destination first."
    return function


for _name, (_op, _kinds) in _TABLE.items():
    globals()[_name] = _make(_name, _op, _kinds)


def _first(r, count, what):
    """The first `count` elements of a tile: whole rows where that is what they are, else a run."""
    n, total = value_of(count), _count(r.ext)
    if isinstance(n, int) and isinstance(total, int):
        if n > total:
            warn(f"{what} of {n} elements: {describe(r)} has {total}, which are taken", 1024)
        if n >= total:
            return r
        rows = total // (r.ext[-1] or 1)
        if rows == 1:
            return Region(r.buf, r.off, list(r.ext[:-1]) + [n])
        if len(long_dims(r.ext)) <= 2 and n % r.ext[-1] == 0:
            return Region(r.buf, r.off, list(r.ext[:-2]) + [n // r.ext[-1], r.ext[-1]])
    run = _moved.flat(r, what)
    return Region(run.buf, run.off, [as_index(count)])


_MODES = {"CAST_NONE", "CAST_RINT", "CAST_FLOOR", "CAST_CEIL", "CAST_ROUND", "CAST_TRUNC", "CAST_ODD"}


def cast(dst, src, mode="CAST_RINT", count=None):
    """dst := src in dst's dtype; mode CAST_NONE, _RINT, _FLOOR, _CEIL, _ROUND, _TRUNC or _ODD."""
    mode = str(mode).rsplit(".", 1)[-1].upper()
    if mode not in _MODES:
        fail(1004, f"'{mode}' is not a rounding mode of T.tile.cast", fix=f"one of {', '.join(sorted(_MODES))}")
    d, s = region_of(dst, "T.tile.cast"), region_of(src, "T.tile.cast")
    if count is not None:
        d, s = _first(d, count, "T.tile.cast"), _first(s, count, "T.tile.cast")
    if not packed_cast("T.tile.cast", s, d, mode[5:].lower()) and not scaled_cast("T.tile.cast", s, d):
        _emit("T.tile.cast", "cast", d, [s], [f" mode({mode[5:].lower()})"])


def _mask(v, what):
    """A tile of bits: of another dtype than uint8 its bytes are taken."""
    r = region_of(v, what)
    size = r.dtype.bits // 8
    if r.dtype.is_float:
        word = f"{what}: a mask is one bit an element, and {describe(r)} holds numbers"
        if what.endswith("select"):
            fail(1004, word, fix="a uint8 tile of an eighth of the elements, filled by T.tile.compare")
        warn(word + ": its bits are no numbers any more", 1020, fix="give the mask a uint8 tile of its own")
    if r.dtype == "uint8":
        return r
    shape = (*r.buf.shape[:-1], r.buf.shape[-1] * size)
    off, ext = [*r.off[:-1], as_index(r.off[-1] * size)], [*r.ext[:-1], as_index(r.ext[-1] * size)]
    return Region(_moved.reread(r.buf, shape, "uint8"), off, ext)


def compare(dst, src0, src1, mode):
    """Bit k of the mask := src0[k] ? src1[k], lowest bit first; mode EQ NE GT GE LT LE."""
    mode = str(mode).rsplit(".", 1)[-1].lower()
    if mode not in ("eq", "ne", "gt", "ge", "lt", "le"):
        fail(1004, f"'{mode}' is not a comparison of T.tile.compare", fix="one of EQ, NE, GT, GE, LT, LE")
    a = region_of(src0, "T.tile.compare")
    b = _operand("T.tile.compare", "e", src1, a)
    if isinstance(b, Region) and not _agree("T.tile.compare", a, b):
        return
    _emit("T.tile.compare", "compare", _mask(dst, "T.tile.compare"), [a, b], [f" cmp({mode})"], check=False)


def select(dst, selMask, src0, src1, selMode="VSEL_TENSOR_TENSOR_MODE"):
    """Mask bit 1: src0, 0: src1."""
    d, m = region_of(dst, "T.tile.select"), _mask(selMask, "T.tile.select")
    a, b = (_operand("T.tile.select", "e", v, d) for v in (src0, src1))
    for r in (a, b):
        if isinstance(r, Region) and not _agree("T.tile.select", d, r):
            return
    repeat = "CMPMASK" in str(selMode).upper()
    _emit("T.tile.select", "select", d, [m, a, b], [" maskrep"] if repeat else [], check=False)


def broadcast(dst, src, axis=None):
    """[1, N], [M, 1], [N] or [M] to [M, N]; `axis` is the dimension that is repeated."""
    what = "T.tile.broadcast"
    d, s = region_of(dst, what), region_of(src, what)
    if axis is not None and value_of(axis) not in (-2, -1, 0, 1):
        fail(1004, f"{what}: 'axis' is {describe(axis)}", fix="0 repeats rows, 1 repeats columns")
    rows, cols = d.ext[-2] if len(d.ext) > 1 else 1, d.ext[-1]
    long = long_dims(s.ext)
    if len(long) == len(long_dims(d.ext)) and False not in [same_size(x, y) for x, y in zip(long, long_dims(d.ext))]:
        current(what).emit(["copy ", s, " -> ", mark_written(d)])
        return
    if len(s.ext) > 1 and axis is None and len(long) == 1:
        axis = 0 if isinstance(s.ext[-2], int) and s.ext[-2] == 1 else 1
    if axis is None and len(long) == 1:
        axis = 0 if same_size(long[0], cols) is not False else 1
    if not long and axis is None:  # one element
        fill(dst, Element(s.buf, tuple(wrap(o, int32) for o in s.off)))
        return
    axis = None if axis is None else value_of(axis) % 2
    want = (cols, rows)[axis] if axis is not None else None
    if axis is None or len(long) > 1 or (long and same_size(long[0], want) is False):
        fail(
            1012,
            f"{what}: {describe(s)} does not broadcast to {describe(d)}",
            fix="the source is [1, N], [M, 1], [N] or [M] for a destination [M, N]",
        )
    at = len(d.ext) - 2 + axis if len(d.ext) > 1 else 0
    current(what).emit(["broadcast ", s, " -> ", mark_written(d), f" dim({at})"])


def createvecindex(dst, first):
    """first, first + 1, ..."""
    arith_progression(dst, first, 1)


def arith_progression(dst, first, diff, count=None):
    """first + k * diff."""
    what = "T.tile.arith_progression"
    d = region_of(dst, what)
    if count is not None:
        d = _first(d, count, what)
    _emit(what, "arange", d, [wrap(first, d.dtype), wrap(diff, d.dtype)])


def _clamp(what, out, buffer, low, high, count):
    d, s = region_of(out, what), region_of(buffer, what)
    if count is not None:
        d, s = _first(d, count, what), _first(s, count, what)
    if low is not None:
        _emit(what, "max", d, [s, _operand(what, "s", low, d)])
        s = d
    if high is not None:
        _emit(what, "min", d, [s, _operand(what, "s", high, d)])


def round(out, buffer, count=None):
    """To the nearest whole number, ties to even, in the tile's own dtype."""
    d, s = region_of(out, "T.tile.round"), region_of(buffer, "T.tile.round")
    if count is not None:
        d, s = _first(d, count, "T.tile.round"), _first(s, count, "T.tile.round")
    _emit("T.tile.round", "cast", d, [s], [" mode(rint)"] if d.dtype.is_float else [])


def clamp(out, buffer, low, high, count=None):
    """min(max(x, low), high)."""
    _clamp("T.tile.clamp", out, buffer, low, high, count)


def clamp_max(out, buffer, high, count=None):
    """min(x, high)."""
    _clamp("T.tile.clamp_max", out, buffer, None, high, count)


def clamp_min(out, buffer, low, count=None):
    """max(x, low)."""
    _clamp("T.tile.clamp_min", out, buffer, low, None, count)


_FORMULAS = {
    "gelu": "in T.Parallel: 0.5 * x * (1.0 + T.tanh(0.79788456 * (x + 0.044715 * x * x * x)))",
    "erf": "there is none; of gelu: 0.5 * x * (1.0 + T.tanh(0.79788456 * (x + 0.044715 * x * x * x))) in T.Parallel",
    "softmax": "T.reduce_max, T.tile.sub, T.tile.exp, T.reduce_sum and T.tile.div, row by row",
    "neg": "T.tile.mul(dst, src, -1.0)",
    "square": "T.tile.mul(dst, src, src)",
    "log": "T.tile.ln(dst, src)",
    "sum": "T.reduce_sum(src, dst, dim)",
    "mean": "T.reduce_sum(src, dst, dim), then T.tile.mul by 1 / n",
    "copy": "T.copy(src, dst): the source first",
    "matmul": "T.gemm(a, b, c)",
    "where": "T.tile.select(dst, mask, a, b, mode), with a mask of T.tile.compare",
}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _FORMULAS:
        fail(1001, f"T.tile has no '{name}'", fix=_FORMULAS[name], kind=UnknownNameError)
    near = nearest(name, list(_TABLE) + [n for n in globals() if callable(globals()[n])])
    fail(
        1001,
        f"T.tile has no '{name}'",
        fix=f"did you mean T.tile.{near}?" if near else "docs/ops.md lists the operations",
        kind=UnknownNameError,
    )


from . import moved as _moved  # noqa: E402 - it may use what stands above
from .moved import *  # noqa: E402,F403

__all__ = [
    *_TABLE,
    "fill",
    "clear",
    "cast",
    "compare",
    "select",
    "broadcast",
    "createvecindex",
    "arith_progression",
    "clamp",
    "clamp_max",
    "clamp_min",
    "round",
    "atomic_add",
    *_moved.__all__,
]

for _name in __all__:
    globals()[_name] = rightly(f"T.tile.{_name}")(globals()[_name])
statements(globals(), [n for n in __all__ if n != "atomic_add"])
