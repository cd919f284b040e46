"""The texts of `print` and `assert` with their values, as src/sim/say.c writes them."""

import re

import numpy as np

from ..language.dtypes import int64
from .arith import convert, widen

_SPEC = re.compile(r"%(?:%|([-+ #0-9.]*)(\*?t|.))", re.S)
_WHOLE, _EDGE = 1000, 3


def _value(v, dtype):
    if dtype == "bool":
        return "true" if v else "false"
    return ("%.*g" % (7 if dtype == "float32" else 4, v)) if dtype.is_float else str(v)


def _box(a, dtype, indent, whole):
    last = a.ndim == 1
    n = len(a)
    parts = [None if not whole and n > 2 * _EDGE and _EDGE <= i < n - _EDGE else a[i] for i in range(n)]
    texts = []
    for i, p in enumerate(parts):
        if p is None:
            if i == _EDGE:
                texts.append("...")
        else:
            texts.append(_value(p.item(), dtype) if last else _box(p, dtype, indent + 1, whole))
    return "[" + (", " if last else ",\n" + " " * (indent + 1)).join(texts) + "]"


def tile_text(name, array, dtype, most=None):
    """A tile as its name, dtype and shape, then all elements row by row, or the first `most`."""
    head = f"%{name} {dtype.ir}[{', '.join(str(n) for n in array.shape)}]"
    values = widen(array, dtype)
    if most is not None and most < array.size:
        return f"{head} [{', '.join(_value(v, dtype) for v in values.reshape(-1)[:most].tolist())}]"
    return f"{head}{' ' if array.ndim == 1 else chr(10)}{_box(values, dtype, 0, array.size <= _WHOLE)}"


def say(lane, text, args):
    """The text with the values of `args` at this moment of a machine.Lane."""
    rest = list(args)

    def put(m):
        if m.group(2) is None:
            return "%"
        if m.group(2)[-1] == "t":
            most = int(lane.value(rest.pop(0))) if m.group(2) == "*t" else None
            r = rest.pop(0)
            box = lane.tile(r.buf)[tuple(slice(o, o + e) for o, e in lane.box(r))]
            return tile_text(r.buf.name, np.asarray(box), r.buf.dtype, most)
        e = rest.pop(0)
        v = lane.value(e)
        if m.group(2) in "eEfFgG":
            return f"%{m.group(1)}{m.group(2)}" % float(v)
        v = int(convert(v, e.dtype, int64)) if e.dtype.is_float else int(v)
        if m.group(2) in "uxXo" and v < 0:
            v += 1 << 64
        return chr(v & 0xFF) if m.group(2) == "c" else f"%{m.group(1)}{m.group(2)}" % v

    return _SPEC.sub(put, text)
