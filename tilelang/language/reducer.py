"""Reducers of mainline TileLang: buffers that many iterations of T.Parallel add to.

There, each thread has a part of its own and finalize_reducer brings the parts together. Here a block is one core, so
that a reducer is a tile and `r[i] += v`, with an index that the left side lacks, is a sum over it.
"""

from ..errors import fail
from ..frontend.builder import current
from ..frontend.expr import Buffer, Element, binary, cast, const, describe, wrap
from .dtypes import DType
from .math import max_value, min_value
from .memory import alloc_fragment
from .ops import copy, fill

_OPS = {"sum": "+", "max": "max", "min": "min", "bitand": "&", "bitor": "|", "bitxor": "^"}


def alloc_reducer(shape, dtype="float32", op="sum", replication=None):
    """A tile to reduce into with `op`: sum, max, min, bitand, bitor or bitxor."""
    if op not in _OPS:
        fail(1004, f"T.alloc_reducer with op={op!r}", fix=f"one of {', '.join(_OPS)}")
    made = alloc_fragment(shape, dtype)
    made.mark = op
    return made


def _op(buf, what):
    op = buf.mark if isinstance(buf, Buffer) else None
    if op not in _OPS:
        fail(1004, f"{what} of {describe(buf)}, which is no reducer", fix="T.alloc_reducer(shape, dtype, op)")
    return op


def neutral(op, dtype):
    """What a reduction starts from."""
    dtype = DType(dtype)
    if op in ("max", "min"):
        if dtype.is_float:
            return const(float("-inf" if op == "max" else "inf"), dtype)
        return min_value(dtype) if op == "max" else max_value(dtype)
    if op == "bitand" and dtype.startswith("u"):
        return max_value(dtype)
    return const(-1 if op == "bitand" else 0, dtype)


def reducer_init(reducer, init=None):
    """Every element := init, or what the operation starts from."""
    op = _op(reducer, "T.reducer_init")
    fill(reducer, neutral(op, reducer.dtype) if init is None else init)


def reducer_update(element, value):
    """reducer[i] := reducer[i] op value, in T.Parallel."""
    if not isinstance(element, Element):
        fail(1004, f"T.reducer_update takes an element, not {describe(element)}", fix="T.reducer_update(r[i], value)")
    op = _OPS[_op(element.buf, "T.reducer_update")]
    b = current("T.reducer_update")
    if op == "+":
        b.store(element.buf, element.idx, value, "+")
    else:
        b.store(element.buf, element.idx, binary(op, element, cast(wrap(value, element.dtype), element.dtype)), None)


def finalize_reducer(reducer, dst=None):
    """The reducer holds the whole from here on; with `dst` it is copied there."""
    _op(reducer, "T.finalize_reducer")
    if dst is not None:
        copy(reducer, dst)


__all__ = ["alloc_reducer", "finalize_reducer", "reducer_init", "reducer_update"]
