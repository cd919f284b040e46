"""Arithmetic of the interpreter: scalars and arrays of a dtype, as docs/ir.md means them.

A value of an integer dtype is a Python int or an int64 (uint64 for u64) array that stays in the dtype's range; a value
of a float dtype is a Python float or a float64 array that the dtype can hold. Every operator computes in 64 bits and
rounds once to its dtype (ties to even; integers wrap), which is the exactly rounded result for + - * / and sqrt.
Functions go through float32, as the chip's do. NaN is always the one quiet NaN with a clear sign.
"""

import numpy as np

from ..language.dtypes import numpy_dtype

_NUMPY = {}


def np_dtype(dtype):
    """The dtype of memory; an element of int4 is a byte with two values."""
    found = _NUMPY.get(dtype)
    if found is None:
        found = _NUMPY[dtype] = np.dtype(np.uint8) if dtype == "int4" else numpy_dtype(dtype)
    return found


def pairs(array):
    """The int4 values of bytes, twice as many along the last dimension: the low half first."""
    both = np.stack([array & 15, array >> 4], axis=-1).astype(np.int64)
    return (both ^ 8).reshape(*array.shape[:-1], -1) - 8


# ---- into and out of memory -----------------------------------------------------------------------------------------


def widen(array, dtype):
    """An array of memory as an array of values."""
    if dtype.is_float:
        return array.astype(np.float64)
    return array.astype(np.uint64 if dtype == "uint64" else np.int64)


def narrow(value, dtype):
    """Values as an array (or scalar) of memory: rounds, wraps."""
    if dtype.is_float:
        v = np.asarray(value, np.float64)
        if dtype == "float8_e4m3fn":  # no infinity: saturates
            v = np.where(np.isnan(v), np.nan, np.clip(v, -448.0, 448.0))
        elif dtype in ("bfloat16", "float8_e5m2"):  # ml_dtypes rounds to float32 first
            v = _odd_float32(v)
        with np.errstate(all="ignore"):
            out = v.astype(np_dtype(dtype))
        return np.where(np.isnan(v), np.asarray(np.nan, np_dtype(dtype)), out) if np.isnan(v).any() else out
    if dtype == "bool":
        return np.asarray(value) != 0
    v = np.asarray(value)
    if v.dtype == object:
        v = np.array([int(x) & (1 << 64) - 1 for x in v.ravel()], np.uint64).reshape(v.shape)
    with np.errstate(all="ignore"):
        return v.astype(np_dtype(dtype))


def _odd_float32(v):
    """float64 to float32 so that a second rounding to fewer bits is the only one: inexact results end in an odd bit."""
    with np.errstate(all="ignore"):
        f = v.astype(np.float32)
    off = (f.astype(np.float64) != v) & np.isfinite(v) & np.isfinite(f)
    if not off.any():
        return f
    toward = np.where(np.abs(f.astype(np.float64)) > np.abs(v), np.nextafter(f, np.float32(0)), f)
    return np.where(off, (toward.view(np.uint32) | 1).view(np.float32), f)


EXACT = None  # instead of a dtype: nothing is rounded


def settle(value, dtype):
    """A result of 64-bit arithmetic as a value of dtype; EXACT: as it is."""
    if dtype is EXACT:
        return value
    if isinstance(value, np.ndarray):
        return widen(narrow(value, dtype), dtype)
    if dtype.is_float:
        return float(narrow(value, dtype))
    if dtype == "bool":
        return bool(value)
    bits, value = dtype.bits, int(value)
    if dtype[0] == "u":
        return value & (1 << bits) - 1
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


# ---- conversions ----------------------------------------------------------------------------------------------------


def convert(value, source, dtype):
    """A scalar or array from one dtype to another, as a cast expression: floats to integers truncate and saturate."""
    if source == dtype:
        return value
    if source.is_float and not dtype.is_float:
        return to_int(np.trunc(value), dtype) if dtype != "bool" else np.asarray(value) != 0
    if not source.is_float and dtype.is_float:
        value = _float_of_int(value, source)
    return settle(value, dtype)


def _float_of_int(value, source):
    """Integers as float64: what 53 bits do not hold is folded into the last of them, so that rounding to fewer bits is
    the only rounding."""
    kind = np.uint64 if source == "uint64" else np.int64
    v = np.asarray(value).astype(kind)
    sticky = v & ~kind(0x7FF) | np.where(v & kind(0x7FF) != 0, kind(0x800), kind(0))
    out = np.where(np.abs(v.astype(np.float64)) >= 2.0**53, sticky, v).astype(np.float64)
    return out if isinstance(value, np.ndarray) else float(out)


def to_int(value, dtype):
    """Whole floats to an integer dtype: saturates, NaN is 0."""
    v = np.asarray(value, np.float64)
    low = 0 if dtype[0] == "u" else -(2 ** (dtype.bits - 1))
    high = 2 ** (dtype.bits - (dtype[0] != "u")) - 1
    kind = np.uint64 if dtype == "uint64" else np.int64
    with np.errstate(all="ignore"):
        inside = np.where(np.isnan(v) | (v < float(low)) | (v >= float(high)), 0.0, v).astype(kind)
    out = np.where(v < float(low), kind(low), np.where(v >= float(high), kind(high), inside))
    return out if isinstance(value, np.ndarray) and value.ndim else int(out)


ROUND = {
    "none": np.rint,
    "rint": np.rint,
    "odd": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda v: np.copysign(np.floor(np.abs(v) + 0.5), v),
}
_MANTISSA = {
    "float16": (10, -14, 65504.0), "bfloat16": (7, -126, 3.3895313892515355e38),
    "float8_e4m3fn": (3, -6, 448.0), "float8_e5m2": (2, -14, 57344.0),
}  # fmt: skip


def cast_tile(array, source, dtype, mode):
    """The op `cast` (and the conversion of a copy): an array of memory to an array of memory."""
    v = widen(array, source)
    if source.is_float and dtype.is_float:
        if source == dtype:
            return narrow(ROUND[mode](v), dtype)
        return narrow(v if mode in ("none", "rint") else _directed(v, dtype, mode), dtype)
    if source.is_float:
        return narrow(to_int(np.asarray(ROUND[mode](v)), dtype), dtype)
    if dtype.is_float:
        v = _float_of_int(v, source)
        return narrow(v if mode in ("none", "rint") else _directed(v, dtype, mode), dtype)
    if dtype.itemsize >= source.itemsize:
        return narrow(v, dtype)
    low = 0 if dtype[0] == "u" or dtype == "bool" else -(2 ** (dtype.bits - 1))
    high = 1 if dtype == "bool" else 2 ** (dtype.bits - (dtype[0] != "u")) - 1
    return narrow(np.clip(v, low if v.dtype != np.uint64 else 0, high), dtype)


def _directed(v, dtype, mode):
    """Rounding of floats to a narrower float dtype by mode."""
    bits, lowest, most = _MANTISSA.get(dtype, (23, -126, 3.4028234663852886e38))
    with np.errstate(all="ignore"):
        _, e = np.frexp(v)
        ulp = np.maximum(e - 1, lowest) - bits
        q = np.ldexp(v, -ulp)
        if mode == "odd":
            r = np.trunc(q)
            r = np.where((r != q) & (np.fmod(r, 2) == 0), r + np.where(v < 0, -1, 1), r)
        else:
            r = ROUND[mode](q)
        r = np.ldexp(r, ulp)
        inwards = (mode in ("trunc", "odd")) | ((mode == "floor") & (v > 0)) | ((mode == "ceil") & (v < 0))
        r = np.where(np.abs(r) > most, np.copysign(np.where(inwards, most, np.inf), v), r)
    return np.where(np.isfinite(v) & (v != 0), r, v)


def bits(value, source, dtype):
    """The bits of a value read as another dtype of the same width."""
    out = widen(narrow(value, source).reshape(-1).view(np_dtype(dtype)), dtype)
    return out.reshape(np.shape(value)) if isinstance(value, np.ndarray) else out[0].item()


# ---- operators ------------------------------------------------------------------------------------------------------


def _max(a, b):
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, np.maximum(a, b)))


def _min(a, b):
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, np.minimum(a, b)))


def _pow_int(a, b):
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    flat = [_one_pow(int(x), int(y)) for x, y in zip(a.ravel(), b.ravel())]
    return np.array(flat, np.int64).reshape(a.shape)


def _one_pow(a, b):
    if b < 0:
        return 1 if a == 1 else (-1 if b & 1 else 1) if a == -1 else 0
    r = pow(a, b, 1 << 64)
    return r - (1 << 64) if r >> 63 else r


def _mod_float(a, b):
    r = np.fmod(a, b)
    return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


_FLOAT = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "//": lambda a, b: np.floor(np.divide(a, b)), "%": _mod_float, "min": _min, "max": _max, "pow": np.power,
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a), "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint,
}  # fmt: skip
THROUGH_FLOAT32 = {"exp", "log", "rsqrt", "sin", "cos", "tanh", "pow"}
_COMPARE = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_INT = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "/": np.floor_divide,
    "min": np.minimum, "max": np.maximum, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "pow": _pow_int, "neg": np.negative, "abs": np.abs, "~": np.invert,
    "floor": lambda a: a, "ceil": lambda a: a, "round": lambda a: a,
}  # fmt: skip
_PLAIN = {  # Python ints: exact, then wrapped
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "min": min, "max": max, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "neg": lambda a: -a,
    "abs": abs, "~": lambda a: ~a, "pow": _one_pow, "/": lambda a, b: a // b,
    "floor": lambda a: a, "ceil": lambda a: a, "round": lambda a: a,
}  # fmt: skip


class DivideByZero(ArithmeticError):
    pass


def _shift(op, a, b, dtype):
    width = 64 if op == ">>" and dtype[0] != "u" else dtype.bits
    kind = np.uint64 if dtype == "uint64" else np.int64
    a, b = (np.asarray(v).astype(kind) for v in (a, b))
    out = (b < 0) | (b >= width)
    safe = np.where(out, kind(0), b)
    moved = np.left_shift(a, safe) if op == "<<" else np.right_shift(a, safe)
    gone = np.where(a < 0, -1, 0) if op == ">>" and dtype[0] == "i" else 0
    return np.where(out, gone, moved)


def apply(op, dtype, operand, *values):
    """The value of an operator of exprs.def: `operand` is the dtype of the operands, `dtype` that of the result."""
    arrays = any(isinstance(v, np.ndarray) for v in values)
    if op in ("<<", ">>"):
        out = _shift(op, *values, operand)
        return settle(out if arrays else int(out), dtype)
    if op == "!":
        return np.logical_not(values[0]) if arrays else not values[0]
    if operand.is_float:
        with np.errstate(all="ignore"):
            if op in _COMPARE:
                out = _COMPARE[op](*values)
                return out if arrays else bool(out)
            out = _FLOAT[op](*(np.asarray(v, np.float64) for v in values))
            if op in THROUGH_FLOAT32 and dtype is not EXACT:
                out = out.astype(np.float32).astype(np.float64)
        return settle(out if arrays else float(out), dtype)
    if op in ("//", "%", "/") and (np.any(np.asarray(values[1]) == 0)):
        raise DivideByZero
    if not arrays:
        return settle(_PLAIN[op](*values), dtype)
    kind = np.uint64 if operand == "uint64" else np.int64
    values = [np.asarray(v).astype(kind) for v in values]
    with np.errstate(all="ignore"):
        out = (_COMPARE.get(op) or _INT[op])(*values)
    return out if op in _COMPARE else settle(out, dtype)


def const(value, dtype):
    """The number of a literal."""
    if dtype.is_float:
        return settle(float(value), dtype)
    return bool(value) if dtype == "bool" else int(value)
