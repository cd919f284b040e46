"""What each op of src/ir/ops.def does to tiles, once, in numpy: `OPS[name](op)`.

An `Op` hands over its operands: `op.a`, `op.b`, … are arrays in memory's dtype (regions, as views of their buffer) or
numbers; `op.put(values)` writes the result. Where the order of a sum is open (reductions, matrix products) it is taken
in float64 and rounded once; everything else rounds like the instruction: float32 arithmetic, then once to the dtype.
"""

import numpy as np

from ..language.dtypes import float32, int32
from .arith import cast_tile, convert, narrow, np_dtype, pairs, widen

OPS = {}


def op(*names):
    def put(f):
        for n in names:
            OPS[n] = f
        return f

    return put


def c0(dtype):
    return 32 // dtype.itemsize


# ---- shapes ---------------------------------------------------------------------------------------------------------


def long(shape):
    return [e for e in shape if e != 1]


def fit(a, shape, block):
    """An input as an array of the output's shape: equal but for extents of 1, repeated where it has 1, only the last
    dimensions, one block of `block` elements for the whole row, or the same count in another shape."""
    if a.shape == tuple(shape):
        return a
    while a.ndim > len(shape) and a.shape[0] == 1:
        a = a[0]
    have, want = long(a.shape), long(shape)
    if have == want:
        return a.reshape(shape)
    padded = (1,) * (len(shape) - a.ndim) + a.shape
    if len(padded) == len(shape) and all(x in (1, y) for x, y in zip(padded, shape)):
        return np.broadcast_to(a.reshape(padded), shape)
    if have == want[len(want) - len(have) :]:
        return np.broadcast_to(a.reshape(have), want).reshape(shape)
    if a.size == int(np.prod(shape)):
        return a.reshape(shape)
    if have and want and have[-1] == block and want[-1] != block:
        wide = a.reshape(have)[..., np.arange(want[-1]) % block]
        return fit(wide, shape, 0)
    raise ValueError(f"an operand of shape {list(a.shape)} for a result of shape {list(shape)}")


class Op:
    """One op with its operands at hand."""

    def __init__(self, name, ins, in_types, out, out_type, attrs):
        self.name, self.ins, self.types, self.out, self.type, self.attrs = name, ins, in_types, out, out_type, attrs

    @property
    def a(self):
        return self.ins[0]

    def put(self, values):
        """Memory values (the dtype of the result) into the result."""
        self.out[...] = np.asarray(values).reshape(self.out.shape)

    def operand(self, n, dtype=None):
        """Input n in the shape of the result, in memory's dtype; a scalar is converted to the tile's dtype first."""
        v = self.ins[n]
        if isinstance(v, np.ndarray):
            return fit(v, self.out.shape, c0(self.types[n]))
        dtype = dtype or self.type
        return narrow(convert(v, self.types[n], dtype), dtype)

    def run(self, n):
        """Input n as one run of elements."""
        return np.ascontiguousarray(self.ins[n]).reshape(-1)

    def put_run(self, values):
        """The first elements of the result, the rest stays."""
        flat = np.ascontiguousarray(self.out).reshape(-1)
        flat[: len(values)] = values
        self.out[...] = flat.reshape(self.out.shape)


# ---- elementwise ----------------------------------------------------------------------------------------------------


def _floats(f):
    def run(o):
        with np.errstate(all="ignore"):
            v = f(*(o.operand(n).astype(np.float32) for n in range(len(o.ins))))
        o.put(narrow(v, o.type))

    return run


def _wide(f):
    """Functions: in float64, rounded to float32 and to the dtype."""

    def run(o):
        with np.errstate(all="ignore"):
            v = f(*(o.operand(n).astype(np.float64) for n in range(len(o.ins)))).astype(np.float32)
        o.put(narrow(v, o.type))

    return run


def _arith(floats, ints):
    on_floats = _floats(floats)

    def run(o):
        if o.type.is_float:
            return on_floats(o)
        kind = np.uint64 if o.type == "uint64" else np.int64
        with np.errstate(all="ignore"):
            o.put(narrow(ints(*(np.asarray(o.operand(n)).astype(kind) for n in range(len(o.ins)))), o.type))

    return run


def _larger(x, y):
    return np.where((x > y) | (x != x), x, y)


def _smaller(x, y):
    return np.where((x < y) | (x != x), x, y)


def _power(x, y):
    out = np.ones_like(x)
    base, e = x.copy(), np.broadcast_to(y, x.shape).copy()
    odd = np.where(e < 0, np.where(x == 1, 1, np.where(x == -1, np.where(e & 1, -1, 1), 0)), 0)
    while (e > 0).any():
        out = np.where((e > 0) & (e & 1 == 1), out * base, out)
        base, e = base * base, e >> 1
    return np.where(np.broadcast_to(y, x.shape) < 0, odd, out)


for _name, _f, _i in (
    ("add", np.add, np.add),
    ("sub", np.subtract, np.subtract),
    ("mul", np.multiply, np.multiply),
    ("max", _larger, np.maximum),
    ("min", _smaller, np.minimum),
    ("abs", np.abs, np.abs),
    ("relu", lambda x: _larger(x, np.float32(0)), lambda x: np.maximum(x, 0)),
    ("leaky_relu", lambda x, s: np.where(x >= 0, x, s * x), lambda x, s: np.where(x >= 0, x, s * x)),
):
    OPS[_name] = _arith(_f, _i)
for _name, _f in (
    ("exp", np.exp),
    ("ln", np.log),
    ("rsqrt", lambda x: 1.0 / np.sqrt(x)),
    ("sigmoid", lambda x: 1.0 / (1.0 + np.exp(-x))),
    ("silu", lambda x: x / (1.0 + np.exp(-x))),
    ("tanh", np.tanh),
    ("sin", np.sin),
    ("cos", np.cos),
):
    OPS[_name] = _wide(_f)
OPS["sqrt"] = _floats(np.sqrt)
OPS["reciprocal"] = _floats(lambda x: np.float32(1) / x)
_pow_floats = _wide(np.power)


@op("pow")
def _pow(o):
    (_pow_floats if o.type.is_float else _arith(None, _power))(o)


@op("div")
def _div(o):
    if isinstance(o.ins[1], np.ndarray):
        return _floats(np.divide)(o)
    with np.errstate(all="ignore"):
        r = np.float32(1.0 / np.float64(convert(o.ins[1], o.types[1], float32)))
        r = r.astype(np.float16).astype(np.float32) if o.type == "float16" else r
        o.put(narrow(o.operand(0).astype(np.float32) * r, o.type))


@op("axpy", "mul_add")
def _axpy(o):
    with np.errstate(all="ignore"):
        x, y = (o.operand(n).astype(np.float32) for n in range(2))
        o.put(narrow(o.out.astype(np.float32) + x * y, o.type))


def _bits_of(a):
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


@op("and", "or", "xor", "not")
def _bitwise(o):
    f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}[o.name]
    out = f(*(_bits_of(o.operand(n)) for n in range(len(o.ins))))
    o.put(out.view(np_dtype(o.type)))


@op("shl", "shr")
def _shift(o):
    wide, n = o.type.bits, int(o.ins[1])
    n = wide if n < 0 else n
    signed = o.type[0] != "u"
    if o.name == "shr" and signed:
        n = min(n, wide - 1)
    v = o.operand(0)
    if n >= wide:
        return o.put(np.zeros_like(v))
    v = v if o.name == "shr" and signed else _bits_of(v)
    out = np.left_shift(v, v.dtype.type(n)) if o.name == "shl" else np.right_shift(v, v.dtype.type(n))
    o.put(out.view(np_dtype(o.type)))


@op("cast")
def _cast(o):
    o.put(fit(cast_tile(o.a, o.types[0], o.type, o.attrs.get("mode", "rint")), o.out.shape, c0(o.types[0])))


@op("fill", "l1_fill")
def _fill(o):
    o.put(np.broadcast_to(o.operand(0), o.out.shape))


@op("arange")
def _arange(o):
    first, step = (widen(np.asarray(o.operand(n)), o.type) for n in range(2))
    k = np.arange(o.out.size).astype(first.dtype)
    o.put(narrow(first + k * step, o.type))


# ---- masks ----------------------------------------------------------------------------------------------------------


def _mask_bits(mask, shape):
    """The bits of a mask for elements of `shape`, one run of bits; few bits repeat over the rows."""
    n = int(np.prod(shape))
    cols = shape[-1] if shape else 1
    got = np.unpackbits(np.ascontiguousarray(mask).reshape(-1), bitorder="little")
    if got.size >= n:
        return got[:n].reshape(shape)
    return np.broadcast_to(got[:cols], (n // max(cols, 1), cols)).reshape(shape)


@op("compare")
def _compare(o):
    shape = o.a.shape
    b = o.ins[1]
    if isinstance(b, np.ndarray):
        b = fit(b, shape, c0(o.types[1]))
    else:
        b = narrow(convert(b, o.types[1], o.types[0]), o.types[0])
    a, b = (widen(np.asarray(v), o.types[0]) for v in (o.a, b))
    mode = {"eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less}
    got = mode.get(o.attrs["cmp"], np.less_equal)(a, b).astype(np.uint8)
    flat = np.unpackbits(np.ascontiguousarray(o.out).reshape(-1), bitorder="little")
    flat[: got.size] = got.reshape(-1)
    o.put(np.packbits(flat, bitorder="little"))


@op("select")
def _select(o):
    shape, n = o.out.shape, o.out.size
    if "maskrep" in o.attrs:
        period = 256 // o.type.itemsize
        bits_ = np.unpackbits(np.ascontiguousarray(o.a).reshape(-1), bitorder="little")
        cols = shape[-1] if shape and n != shape[-1] else n
        one = bits_[np.arange(cols) % min(period, cols)]
        chosen = np.broadcast_to(one, (n // cols, cols)).reshape(shape)
    else:
        chosen = _mask_bits(o.a, shape)
    o.put(np.where(chosen == 1, o.operand(1), o.operand(2)))


# ---- across elements ------------------------------------------------------------------------------------------------


@op("broadcast")
def _broadcast(o):
    if len(long(o.a.shape)) == len(long(o.out.shape)):
        return o.put(o.a)
    shape = list(o.out.shape)
    dim = o.attrs["dim"]
    rest = [1] * len(shape)
    if len(shape) > 1:
        keep = len(shape) - 1 if dim == len(shape) - 2 else len(shape) - 2
        rest[keep] = o.a.size
    o.put(np.broadcast_to(o.a.reshape(rest), shape))


@op("brcb")
def _brcb(o):
    o.put(np.repeat(o.run(0), c0(o.type)))


_SATURATES = 65504.0


def _total(v, axis, dtype):
    """A sum in float64 (integers: modulo), rounded once; float16 sums of finite numbers stay finite."""
    with np.errstate(all="ignore"):
        s = v.sum(axis=axis)
    if dtype == "float16":
        s = np.where(np.isfinite(v).all(axis=axis), np.clip(s, -_SATURATES, _SATURATES), s)
    return s


def _fold(f):
    return lambda v, axis, dtype: f.reduce(v, axis=axis)


_REDUCE = {
    "sum": (_total, np.add), "max": (_fold(np.maximum), np.maximum), "min": (_fold(np.minimum), np.minimum),
    "abssum": (lambda v, axis, dtype: _total(np.abs(v), axis, dtype), np.add),
    "absmax": (lambda v, axis, dtype: np.abs(v).max(axis=axis), np.maximum),
    "and": (_fold(np.bitwise_and), np.bitwise_and), "or": (_fold(np.bitwise_or), np.bitwise_or),
    "xor": (_fold(np.bitwise_xor), np.bitwise_xor),
}  # fmt: skip


@op(*(f"reduce_{n}" for n in _REDUCE))
def _reduce(o):
    f, combine = _REDUCE[o.name[7:]]
    v = f(widen(o.a, o.types[0]), o.attrs["dim"], o.types[0])
    if "keep" in o.attrs:
        with np.errstate(all="ignore"):
            v = combine(widen(o.out, o.type).reshape(np.shape(v)), widen(narrow(v, o.type), o.type))
    o.put(narrow(v, o.type))


@op("row_sum", "row_max", "row_min")
def _row(o):
    f, _ = _REDUCE[o.name[4:]]
    rows = o.a.reshape(o.out.size, -1)
    if o.name != "row_sum":
        return o.put(narrow(f(widen(rows, o.types[0]), 1, o.types[0]), o.type))
    x = rows.astype(np.float32)  # neighbours in a tree, as the instruction adds them
    with np.errstate(all="ignore"):
        while x.shape[1] > 1:
            even = x.shape[1] // 2 * 2
            s = x[:, 0:even:2] + x[:, 1:even:2]
            if o.type == "float16":
                h = s.astype(np.float16).astype(np.float32)
                finite = np.isfinite(x[:, 0:even:2]) & np.isfinite(x[:, 1:even:2])
                s = np.where(np.isinf(h) & finite, np.copysign(np.float32(_SATURATES), h), h)
            x = np.concatenate([s, x[:, even:]], axis=1)
    o.put(narrow(x[:, 0], o.type))


@op("row_argmax", "row_argmin")
def _row_arg(o):
    n = o.out.size // 2
    rows = widen(o.a.reshape(n, -1), o.types[0])
    at = np.argmax(rows, axis=1) if o.name == "row_argmax" else np.argmin(rows, axis=1)
    index = at.astype(f"u{o.type.itemsize}").view(np_dtype(o.type))
    value = o.a.reshape(n, -1)[np.arange(n), at]
    o.put(np.stack([value, index], axis=1))


@op("cumsum", "cummax")
def _running(o):
    axis = o.attrs["dim"]
    v = widen(o.a, o.types[0])
    v = np.flip(v, axis) if "reverse" in o.attrs else v
    with np.errstate(all="ignore"):
        out = narrow((np.cumsum if o.name == "cumsum" else np.maximum.accumulate)(v, axis=axis), o.type)
    o.put(np.flip(out, axis) if "reverse" in o.attrs else out)


# ---- elements moved -------------------------------------------------------------------------------------------------


@op("move", "copy_plain")
def _move(o):
    o.put(o.operand(0))


@op("transpose")
def _transpose(o):
    a = o.a.reshape(o.a.shape[-2:]) if o.a.ndim >= 2 else o.a.reshape(1, -1)
    o.put(a.T)


def _offsets(o, base, unit, size):
    off = widen(o.run(1), o.types[1]).astype(np.int64) & 0xFFFFFFFF
    off = off + int(base)
    if ((off < 0) | (off > size - unit) | (off % unit != 0)).any():
        bad = int(off[(off < 0) | (off > size - unit) | (off % unit != 0)][0])
        raise ValueError(f"an offset of {bad} bytes into a source of {size} bytes with items of {unit}")
    return off


@op("gather")
def _gather(o):
    src = o.run(0)
    off = _offsets(o, o.ins[2], src.itemsize, src.nbytes)
    o.put(src[off // src.itemsize])


@op("gatherb")
def _gatherb(o):
    src = o.run(0).view(np.uint8)
    off = _offsets(o, 0, 32, src.size)
    o.put(src[off[:, None] + np.arange(32)].reshape(-1).view(o.out.dtype))


@op("gather_mask")
def _gather_mask(o):
    src, k = o.run(0), np.arange(o.a.size)
    if isinstance(o.ins[1], np.ndarray):
        chosen = np.unpackbits(o.run(1).view(np.uint8), bitorder="little")[: src.size] == 1
    else:
        p = int(o.ins[1])
        chosen = k >= 0 if p == 7 else k % 2 == p - 1 if p <= 2 else k % 4 == p - 3
    o.put_run(src[chosen])


@op("unpack4")
def _unpack4(o):
    o.put(narrow(pairs(o.run(0)), o.type))


@op("pack4")
def _pack4(o):
    whole = np.clip(cast_tile(o.run(0), o.types[0], int32, o.attrs.get("mode", "rint")), -8, 7) & 15
    o.put((whole[0::2] | whole[1::2] << 4).astype(np.uint8))


def _order(score):
    """Stable order, largest first; NaN counts as largest."""
    s = score.astype(np.float64)
    key = np.where(np.isnan(s), -np.inf, -s)
    return np.lexsort((np.arange(s.size), key, ~np.isnan(s)))


@op("sort")
def _sort(o):
    n, src = int(o.ins[1]), o.run(0)
    room = o.out.size // 2
    scores = np.full(max(room, src.size), -np.inf, np.float32)
    scores[:n] = src[:n]
    order = _order(scores)[:room]
    pairs = np.empty((room, 2), o.out.dtype)
    pairs[:, 0] = scores[order]
    pairs[:, 1] = narrow(order.astype(np.int64), o.type)
    o.put(pairs.reshape(-1))


def _records(o, n):
    return o.run(n).view(np.uint8).reshape(-1, 8)


def _scores(records, dtype):
    return np.ascontiguousarray(records[:, : dtype.itemsize]).view(np_dtype(dtype)).reshape(-1)


@op("sort32")
def _sort32(o):
    s, x = o.run(0), o.run(1)
    records = np.zeros((s.size, 8), np.uint8)
    records[:, : s.itemsize] = s.view(np.uint8).reshape(s.size, -1)
    records[:, 4:] = x.view(np.uint8).reshape(x.size, -1)
    for g in range(0, s.size, 32):
        records[g : g + 32] = records[g : g + 32][_order(s[g : g + 32])]
    o.put(records.reshape(-1).view(o.out.dtype))


@op("merge2", "merge3", "merge4")
def _merge(o):
    lists = [_records(o, n) for n in range(len(o.ins))]
    heads, out = [0] * len(lists), []
    keys = [[(0, 0.0) if np.isnan(v) else (1, -float(v)) for v in _scores(x, o.type).astype(np.float64)] for x in lists]
    for _ in range(sum(len(x) for x in lists)):
        n = min((m for m in range(len(lists)) if heads[m] < len(lists[m])), key=lambda m: (keys[m][heads[m]], m))
        out.append(lists[n][heads[n]])
        heads[n] += 1
    o.put(np.concatenate(out).view(o.out.dtype))


# ---- matrix products ------------------------------------------------------------------------------------------------


def _matrix(a, trans):
    a = a.reshape(a.shape[-2:])
    return a.T if trans else a


@op("gemm", "mmad")
def _gemm(o):
    a, b = _matrix(o.ins[0], "trans_a" in o.attrs), _matrix(o.ins[1], "trans_b" not in o.attrs)  # both: k is last
    a, b = (pairs(m) if t == "int4" else widen(m, t) for m, t in zip((a, b), o.types))
    with np.errstate(all="ignore"):
        c = a @ b.T
        if not o.attrs.get("init"):
            c = c + widen(o.out, o.type).reshape(c.shape)
    o.put(narrow(c, o.type))


@op("l1_to_l0a", "l1_to_l0b")
def _to_l0(o):
    o.put(_matrix(o.a, "trans" in o.attrs))
