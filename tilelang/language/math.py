"""Scalar functions: on Python numbers they compute, on values of the chip they build expressions."""

import builtins as _b
import math as _m

from ..errors import fail
from ..frontend.expr import LARGEST, Buffer, Expr, Region, binary, const, describe, select, show, unary, wrap
from ..frontend.expr import cast as _cast
from .dtypes import DType


def _python(*values):
    return not any(isinstance(v, Expr) for v in values)


class Int(int):
    """A Python int that also answers as a constant of the dialect does: `T.ceildiv(m, 64).value`."""

    __slots__ = ()

    @property
    def value(self):
        return int(self)

    @property
    def dtype(self):
        return DType("int32")


def _constant(v):
    return Int(v) if type(v) is int else v


def ceildiv(a, b):
    """a / b, rounded up."""
    if _python(b) and b == 0:
        fail(1004, f"`T.ceildiv({show(a)}, 0)` divides by zero", fix="a divisor of at least 1")
    return _constant(-(-a // b)) if _python(a, b) else (a + b - 1) // b


cdiv = ceildiv


def align_up(a, b):
    """The first multiple of b from a on."""
    return ceildiv(a, b) * b


def floordiv(a, b):
    return _constant(a // b)


def floormod(a, b):
    return _constant(a % b)


def truncdiv(a, b):
    """a / b rounded towards 0, of integers as C divides them."""
    if _python(a, b):
        return _constant(-(-a // b) if (a < 0) != (b < 0) else a // b)
    a, b = wrap(a), wrap(b)
    if a.dtype.is_float or b.dtype.is_float:
        return trunc(a / b)
    down = a // b
    return if_then_else(And((a < 0) != (b < 0), a % b != 0), down + 1, down)


def truncmod(a, b):
    """What is left of a after truncdiv(a, b): it has the sign of a."""
    if _python(a, b):
        return _constant(a - truncdiv(a, b) * b)
    a, b = wrap(a), wrap(b)
    if a.dtype.is_float or b.dtype.is_float:
        left = abs(a) % abs(b)
        return if_then_else(a < 0, -left, left)
    left = a % b
    return if_then_else(And((a < 0) != (b < 0), left != 0), left - b, left)


def _fold(op, python, values):
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    for v in values:
        if isinstance(v, (Buffer, Region)):
            fail(
                1004,
                f"T.{op} works on elements, {describe(v)} is a tile",
                fix=f"T.tile.{op}(dst, a, b) works on tiles; T.reduce_{op} reduces one",
            )
    if _python(*values):
        return _constant(python(values))
    out = values[0]
    for v in values[1:]:
        out = binary(op, out, v)
    return out


def max(*values):
    """The largest of the values."""
    return _fold("max", _b.max, values)


def min(*values):
    """The smallest of the values."""
    return _fold("min", _b.min, values)


def _function(name, op, python):
    def function(x):
        if isinstance(x, (Expr, Buffer, Region)):
            return unary(op, x)
        return python(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}(x) of one value."
    return function


exp = _function("exp", "exp", _m.exp)
log = _function("log", "log", _m.log)
sqrt = _function("sqrt", "sqrt", _m.sqrt)
rsqrt = _function("rsqrt", "rsqrt", lambda x: 1.0 / _m.sqrt(x))
sin = _function("sin", "sin", _m.sin)
cos = _function("cos", "cos", _m.cos)
tanh = _function("tanh", "tanh", _m.tanh)
floor = _function("floor", "floor", _m.floor)
ceil = _function("ceil", "ceil", _m.ceil)
_even = _function("round", "round", _b.round)
abs = _function("abs", "abs", _b.abs)


_WAYS = ("ties-to-even", "ties-away-from-zero")


def round(x, rounding_mode="ties-to-even"):
    """x rounded to a whole number; halves go to the even one, or away from 0."""
    if rounding_mode not in _WAYS:
        fail(1004, f"T.round(rounding_mode={show(rounding_mode)})", fix=f"{_WAYS[0]!r} or {_WAYS[1]!r}")
    if rounding_mode == _WAYS[0]:
        return _even(x)
    size = abs(x)
    down = floor(size)
    up = down + 1 if _python(x) else down + 1.0
    near = if_then_else(size - down >= 0.5, up, down)
    return if_then_else(x < 0, -near, near)


def trunc(x):
    """x without its fraction."""
    if _python(x) and not isinstance(x, (Buffer, Region)):
        return _m.trunc(x)
    return if_then_else(wrap(x) < 0, ceil(x), floor(x))


def _in_float32(fn, x):
    """fn(x), a formula of several steps, rounded to x's dtype once."""
    if _python(x):
        return fn(x)
    x = wrap(x)
    return _cast(fn(_cast(x, "float32")), x.dtype) if x.dtype in ("float16", "bfloat16") else fn(x)


def exp2(x):
    """2 ** x."""
    return _in_float32(lambda v: exp(v * _m.log(2.0)), x)


def log2(x):
    return _in_float32(lambda v: log(v) * (1.0 / _m.log(2.0)), x)


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return _in_float32(lambda v: 1.0 / (1.0 + exp(-v)), x)


def pow(a, b):
    return binary("pow", a, b) if not _python(a, b) else a**b


power = pow


def fma(a, b, c):
    return a * b + c


def clamp(x, min_val, max_val):
    """min(max(x, min_val), max_val)."""
    return min(max(x, min_val), max_val)


def if_then_else(cond, a, b):
    """a if cond else b; only the chosen one is computed."""
    if _python(cond):
        return a if cond else b
    return select(cond, a, b)


Select = if_then_else


def cast(x, dtype):
    """x converted to dtype."""
    return _cast(x, dtype)


def Cast(dtype, x):
    return _cast(x, dtype)


def reinterpret(value, dtype):
    """The bits of a value read as dtype; also with dtype first."""
    x, dtype = (dtype, value) if isinstance(dtype, Expr) else (value, dtype)
    if dtype == "handle":
        return x  # a place that mainline fills in itself
    dtype, x = DType(dtype), wrap(x)
    if x.dtype.bits != dtype.bits:
        fail(
            1004,
            f"T.reinterpret of {describe(x)} as {dtype}: {x.dtype.bits} bits and {dtype.bits} bits",
            fix="a dtype of the same size",
        )
    return x if x.dtype == dtype else Expr("bits", (x,), dtype)


def infinity(dtype="float32"):
    """+inf of a float dtype, the largest value of an integer dtype."""
    dtype = DType(dtype)
    return const(_m.inf, dtype) if dtype.is_float else max_value(dtype)


def max_value(dtype):
    dtype = DType(dtype)
    if dtype.is_float:
        return const(LARGEST[dtype], dtype)
    return const(1 if dtype == "bool" else 2 ** (dtype.bits - (dtype[0] != "u")) - 1, dtype)


def min_value(dtype):
    dtype = DType(dtype)
    if dtype.is_float:
        return const(-LARGEST[dtype], dtype)
    return const(0 if dtype == "bool" or dtype[0] == "u" else -(2 ** (dtype.bits - 1)), dtype)


def And(a, *rest):
    for b in rest:
        a = binary("&&", a, b) if not _python(a, b) else (a and b)
    return a


def Or(a, *rest):
    for b in rest:
        a = binary("||", a, b) if not _python(a, b) else (a or b)
    return a


def Not(a):
    return unary("!", a) if isinstance(a, Expr) else not a


def bitwise_and(a, b):
    return a & b


def bitwise_or(a, b):
    return a | b


def bitwise_xor(a, b):
    return a ^ b


def bitwise_not(a):
    return ~a


def shift_left(a, b):
    return a << b


def shift_right(a, b):
    return a >> b


_SWIZZLE = ("M", "N", "K", "block_M", "block_N")


def use_swizzle(*args, panel_size=None, order="row", enable=True, off=1, dir=0, **sizes):
    """Order of the blocks. use_swizzle(panel_size, order="row" or "column") lets the blocks of a grid of two dimensions
    run panel by panel (kernel.in_panels). use_swizzle(cid, M, N, K, block_M, block_N, off, dir) returns the new block
    index: rows in groups of `off`, column by column inside a group, odd groups from the right."""
    args = (panel_size,) if panel_size is not None and not args else args
    for name in sizes:
        if name not in _SWIZZLE:
            fail(1004, f"T.use_swizzle has no option '{name}'", fix=f"the sizes are {', '.join(_SWIZZLE)}")
    args += tuple(sizes[n] for n in _SWIZZLE[max(len(args) - 1, 0) :] if n in sizes)
    if len(args) < 6:
        if len(args) > 1:
            fail(1004, "T.use_swizzle with some of its sizes", fix=f"T.use_swizzle(cid, {', '.join(_SWIZZLE)}, off=2)")
        from .kernel import in_panels

        return in_panels(args[0] if args else 10, order) if enable else None
    cid, m, n, _, bm, bn = args[:6]
    off, dir = (list(args[6:]) + [off, dir][len(args) - 6 :])[:2]
    rows, cols = ceildiv(m, bm), ceildiv(n, bn)
    if dir:
        rows, cols = cols, rows
    group = cid // (off * cols)
    inside = cid % (off * cols)
    even = isinstance(rows, int) and isinstance(off, int) and rows % off == 0
    height = off if even else min(off, rows - group * off)  # the last group may have fewer rows
    row = group * off + inside % height
    col = inside // height
    col = if_then_else(group % 2 == 1, cols - 1 - col, col)
    return col * rows + row if dir else row * cols + col
