"""Whole-tile statements: copy, matrix product, reductions, fill, atomic add.

T.copy pairs the two sides the way both dialects do: a whole buffer has its shape, a slice its extents, a single element
is the origin of a tile and takes the extents of the other side, aligned from the right.
"""

from ..errors import fail, here, nearest, place, warn
from ..frontend.builder import current
from ..frontend.expr import (
    Buffer,
    Element,
    Expr,
    MutVar,
    Poison,
    Region,
    cast,
    describe,
    instead_of,
    same_size,
    shape_text,
    show,
    value_of,
    wrap,
)
from .dtypes import DType
from .loops import Parallel


def region_of(v, what):
    """An operand as a region; an element is a box of extent 1."""
    if isinstance(v, Region):
        return v
    if isinstance(v, Buffer):
        return Region(v, [0] * len(v.shape), v.shape)
    if isinstance(v, Element):
        return Region(v.buf, [value_of(i) if value_of(i) is not None else i for i in v.idx], [1] * len(v.idx))
    if isinstance(v, Poison):
        v._use()
    hint = instead_of(v, tile=True)
    if isinstance(v, Expr):
        hint = "a name bound to `buf[i]` holds the value at that moment, not the place; write buf[i] in the call itself"
        if getattr(v, "kind", "let") == "param":
            hint = f"a scalar parameter is one value; for a tensor {v.name}: T.Tensor((M, N), '{v.dtype}')"
        elif getattr(v, "kind", "let") != "let":
            hint = "one value: T.fill(dst, value) writes it to each element, x[i, j] = value to one"
    fail(1004, f"{what} takes a tile (buffer or slice), not {describe(v)}", fix=hint)


def only_element(v):
    """The element of a tile that has one; anything else as it is."""
    if isinstance(v, (Buffer, Region)) and all(isinstance(n, int) and n == 1 for n in v.shape):
        return v[(0,) * len(v.shape)]
    return v


def mark_written(r):
    r.buf.written = True
    return r


def long_dims(ext):
    return [e for e in ext if not (isinstance(e, int) and e == 1)]


# ---- copy -----------------------------------------------------------------------------------------------------------


def _grow(r, ext):
    """The region at an element's place with the other side's extents; of a tile with more dimensions the first row."""
    rank, ext = len(r.off), list(ext)
    while len(ext) > rank and isinstance(ext[0], int) and ext[0] == 1:
        ext.pop(0)
    if len(ext) > rank:
        ext = long_dims(ext)
    ext = ext[-rank:]
    return Region(r.buf, r.off, [1] * (rank - len(ext)) + ext)


def _first(r, ext):
    """The first row of a tile when the other side, `ext`, has fewer dimensions."""
    long = long_dims(ext)
    if len(long) < len(long_dims(r.ext)) and len(ext) < len(r.ext):
        return Region(r.buf, r.off, [1] * (len(r.ext) - len(ext)) + list(ext))
    return r


def _shrink(r, ext):
    """The first `ext` elements of a whole buffer; ext lists the extents other than 1."""
    out, rest = [], list(ext)
    for e in r.ext:
        out.append(1 if isinstance(e, int) and e == 1 else rest.pop(0))
    return Region(r.buf, r.off, out)


def _fits(small, big):
    """Is every extent of `small` at most that of `big`, all known and not all equal?"""
    if len(small) != len(big):
        return False
    pairs = list(zip(small, big))
    return all(isinstance(s, int) and isinstance(b, int) and s <= b for s, b in pairs)


def _pair(src, dst, transpose):
    """Source and destination regions with extents that agree; None after an error was recorded."""
    s, d = region_of(src, "T.copy"), region_of(dst, "T.copy")
    if isinstance(src, Element) and isinstance(dst, Element):
        fail(
            1004,
            f"T.copy between two elements, {show(src)} and {show(dst)}",
            fix=f"give one side a size: a whole buffer or a slice; one value is copied by {show(dst)} = {show(src)}",
        )
    partly = False
    if isinstance(src, Element):
        s = _grow(s, reversed(d.ext) if transpose else d.ext)
        whole, d = d, _first(d, s.ext)
        partly = d is not whole and s.buf.space == "gm"
    elif isinstance(dst, Element):
        d = _grow(d, reversed(s.ext) if transpose else s.ext)
        s = _first(s, d.ext)
    se, de = long_dims(s.ext), long_dims(d.ext)
    if transpose:
        se = se[::-1]
    same = [same_size(a, b) for a, b in zip(se, de)]
    if len(se) == len(de) and False not in same:
        return s, d, partly
    whole = isinstance(dst, Buffer) and dst.space != "gm"
    if whole and s.buf.space == "gm" and not transpose and _fits(se, de):
        return s, _shrink(d, se), True  # fewer rows than the tile has: the rest becomes the pad value
    _disagree(s, d, transpose)
    return None


def _box(r):
    whole = all(isinstance(o, int) and o == 0 and same_size(e, n) for o, e, n in zip(r.off, r.ext, r.buf.shape))
    return f"'{r.buf.called}'" if whole else describe(r).split("' ")[0] + "'"


def _disagree(s, d, transpose):
    b = current("T.copy")
    how = "transposed " * bool(transpose)
    text = f"T.copy moves {_box(s)} of shape {shape_text(s.ext)} {how}into {_box(d)} of shape {shape_text(d.ext)}"
    fix = "slice both sides to the same shape, A[i : i + m, j : j + n], or give one of them as an element, A[i, j]"
    tile, other = (d, s) if s.buf.space == "gm" else (s, d)
    if len(long_dims(tile.ext)) == len(long_dims(other.ext)) and all(isinstance(e, int) for e in other.ext):
        fix = f"take a slice of shape {shape_text(tile.ext)} of '{other.buf.called}' and loop over it"
        part = any(same_size(e, n) is False for e, n in zip(tile.ext, tile.buf.shape))
        if part and len(tile.ext) == len(other.ext) and _fits(other.ext, tile.buf.shape):
            name = other.buf.called
            fix = f"take {shape_text(other.ext)} of '{tile.buf.called}', or {shape_text(tile.ext)} of '{name}'"
        elif not part:
            fix = f"make '{tile.buf.called}' {shape_text(long_dims(other.ext) or (1,))}, or " + fix
    elif len(long_dims(tile.ext)) == len(long_dims(other.ext)) and other.buf.space == "gm":
        fix = f"take a slice of shape {shape_text(tile.ext)} of '{other.buf.called}' and loop over it"
    b.error(501, text, fix, place(tile.buf.at, f"'{tile.buf.called}' is made here"))


_COPY_HINTS = ("coalesced_width", "disable_tma", "eviction_policy", "prefer_instruction", "annotations", "loop_layout")


def _cleared(s, d):
    """The tile of L1 whose first rows are loaded before anything else was put into it: the rest of it becomes zero, so
    that loads of the next rows may leave a tail. None for other copies."""
    buf = d.buf
    if buf.space != "l1" or s.buf.space != "gm" or buf.written or len(buf.shape) < 2:
        return None
    starts = all(isinstance(o, int) and o == 0 for o in d.off[-2:])
    less = any(same_size(e, n) is not True for e, n in zip(d.ext[-2:], buf.shape[-2:]))
    return Region(buf, d.off, [*d.ext[:-2], *buf.shape[-2:]]) if starts and less else None


def _between_tensors(b, s, d, transpose):
    """Element by element in a parallel loop: no instruction moves from global memory to global memory."""
    sizes = long_dims(s.ext)
    loop = Parallel(*(sizes or [1]))
    loop.at = here()
    made = loop.begin(b, None)
    indices = list(made) if isinstance(made, tuple) else [made]

    def place(r, order):
        left = list(order)
        return [o if isinstance(e, int) and e == 1 else wrap(o) + left.pop(0) for o, e in zip(r.off, r.ext)]

    source = Element(s.buf, tuple(wrap(i) for i in place(s, indices)))
    mark_written(d)
    b.store(d.buf, tuple(place(d, indices[::-1] if transpose else indices)), source, None)
    loop.end(b)


def copy(src, dst, enable_relu=False, transpose=False, pad_value=None, **hints):
    """Moves a tile between two memories; converts the dtype; clamps to the bounds of a GM tensor."""
    b = current("T.copy")
    for name in hints:
        if name not in _COPY_HINTS:
            near = nearest(name, ("enable_relu", "transpose", "pad_value", *_COPY_HINTS))
            fix = f"did you mean '{near}'?" if near else "the options are enable_relu, transpose and pad_value"
            fail(1004, f"T.copy has no argument '{name}'", fix=fix)
        if hints[name] is not None:
            warn(f"T.copy({name}=...) has no effect on Ascend")
    pair = _pair(src, dst, transpose)
    if pair is None:
        return
    s, d, partly = pair
    if s.buf.space == d.buf.space == "gm" and not enable_relu and pad_value is None:
        _between_tensors(b, s, d, transpose)
        return
    if packed_cast("T.copy", s, d):
        return
    if "gm" not in (s.buf.space, d.buf.space) and not transpose and scaled_cast("T.copy", s, d):
        return
    tile = region_of(d.buf, "T.copy") if partly else _cleared(s, d)
    if partly and pad_value is None:
        pad_value = 0  # the DMA writes whole blocks: what it adds to a row belongs to the rest of the tile
    if tile is not None:
        b.emit(["fill ", _fill_value(0 if pad_value is None else pad_value, d.dtype), " -> ", tile])
    head = ["copy ", s, " -> ", mark_written(d)]
    if transpose:
        head.append(" trans")
    if enable_relu:
        head.append(" relu")
    if pad_value is not None:
        head += [" pad(", _fill_value(pad_value, d.dtype), ")"]
    b.emit(head)


def atomic_add(dst, value, *args, **hints):
    """GM += tile, or one element += value. Blocks that add to the same elements do not disturb each other. A tile or
    element of the chip is the block's own, and added to as it is."""
    b = current("T.atomic_add")
    for name in hints:
        if name == "return_prev" and hints[name] or name not in ("memory_order", "use_tma", "return_prev"):
            fail(1002, f"T.atomic_add({name}=...) is not supported yet", fix="leave it out")
    one = only_element(dst)
    if isinstance(one, Element) and not isinstance(only_element(value), (Buffer, Region)):
        each = b.parallel or b.threads is not None and b.threads.vars
        if each or not isinstance(only_element(value), Element) or one.buf.space != "gm":
            b.add(one, only_element(value))
            return
    d, s = region_of(dst, "T.atomic_add"), region_of(value, "T.atomic_add")
    if d.buf.space != "gm" or s.buf.space == "gm":
        fail(
            1004,
            f"T.atomic_add adds a tile of the chip to a tensor, not {describe(value)} to {describe(dst)}",
            fix="T.atomic_add(tensor[i, j], tile)",
        )
    if isinstance(dst, Element):
        d = _grow(d, s.ext)
    se, de = long_dims(s.ext), long_dims(d.ext)
    if len(se) != len(de) or False in [same_size(x, y) for x, y in zip(se, de)]:
        b.error(
            501,
            f"T.atomic_add: the tile {describe(s)} does not fit {describe(d)}",
            fix="a slice of the tensor with the shape of the tile",
        )
        return
    b.emit(["atomic_add ", s, " -> ", mark_written(d)])


def _fill_value(value, dtype):
    """What an element is set to; of int4 the byte with two of them."""
    if dtype != "int4":
        return wrap(value, dtype, "a value to fill with")
    n = value_of(value)
    if not isinstance(n, (int, float)) or n != int(n) or not -8 <= n <= 7:
        fail(
            1004,
            f"int4 takes whole numbers of Python from -8 to 7 here, not {describe(value)}",
            fix="an int from -8 to 7",
        )
    byte = (int(n) & 15) * 17
    return wrap(byte - 256 if byte > 127 else byte, DType("int8"))


def _fill_tensor(b, r, value):
    """The tensor in pieces that fit: a loop over all its elements."""
    many = [d for d, e in enumerate(r.ext) if not (isinstance(e, int) and e == 1)]
    if not many:
        b.store(r.buf, tuple(r.off), value, None)
        return
    for at in Parallel(*(r.ext[d] for d in many)).run(None):
        index = list(r.off)
        for d, i in zip(many, at if isinstance(at, tuple) else (at,)):
            index[d] = index[d] + i
        b.store(r.buf, tuple(index), value, None)


def fill(buf, value):
    """Every element of a tile, or of a tensor or a part of it, := value."""
    b = current("T.fill")
    value = only_element(value)
    if isinstance(buf, MutVar):
        b.emit([buf, " = ", cast(wrap(value, buf.dtype), buf.dtype)], "assign")
        return
    r = region_of(buf, "T.fill")
    if isinstance(value, (Buffer, Region)):
        fail(1004, f"T.fill takes one value, not the tile {describe(value)}", fix="T.copy(src, dst)")
    if r.buf.space == "gm":
        _fill_tensor(b, r, _fill_value(value, r.dtype))
        return
    b.emit(["fill ", _fill_value(value, r.dtype), " -> ", mark_written(r)])


def clear(buf):
    """Every element of a tile, or of a tensor or a part of it, := 0."""
    fill(buf, 0)


# ---- matrix product -------------------------------------------------------------------------------------------------


def _matrix(v, what):
    r = region_of(v, what)
    if len(r.ext) < 2:
        fail(502, f"{what}: the operand {describe(v)} has one dimension", fix="matrices have two dimensions")
    for e in r.ext[:-2]:
        if not (isinstance(e, int) and e == 1):
            fail(
                502,
                f"{what}: the operand {describe(v)} has more than two dimensions",
                fix="slice the leading dimensions down to one matrix, e.g. a[stage, :, :]",
            )
    return r, r.ext[-2], r.ext[-1]


def _product_fix(a, b, c, trans_a, trans_b):
    """The smallest change that makes the shapes of a product agree."""

    def sizes(ta, tb):
        (m, k), (kb, n) = (x.ext[-2:][::-1] if t else x.ext[-2:] for x, t in ((a, ta), (b, tb)))
        return m, n, (m, c.ext[-2]), (n, c.ext[-1]), (k, kb)

    for ta, tb in ((trans_a, not trans_b), (not trans_a, trans_b), (not trans_a, not trans_b)):
        _, _, *pairs = sizes(ta, tb)
        if all(same_size(x, y) for x, y in pairs):
            turned = [f"transpose_A={ta}"] * (ta != trans_a) + [f"transpose_B={tb}"] * (tb != trans_b)
            return f"{' and '.join(turned)}: the shapes then agree"
    m, n, _, _, (k, kb) = sizes(trans_a, trans_b)
    if same_size(k, kb):
        return f"the result is {shape_text((m, n))}: make '{c.buf.called}' so, or take that slice of it"
    return "A is (M, K), B is (K, N), C is (M, N); transpose_A / transpose_B read a tile the other way round"


def _gemm(what, op, a, b_, c, trans_a, trans_b, init):
    b = current(what)
    (ra, m, k), (rb, kb, n), (rc, cm, cn) = (_matrix(v, what) for v in (a, b_, c))
    if trans_a:
        m, k = k, m
    if trans_b:
        kb, n = n, kb
    for x, y, axis, left, right in ((k, kb, "K", ra, rb), (m, cm, "M", ra, rc), (n, cn, "N", rb, rc)):
        if same_size(x, y) is False:
            note = " (A transposed)" * bool(trans_a) + " (B transposed)" * bool(trans_b)
            b.error(
                502,
                f"{what}: '{left.buf.called}' {shape_text(left.ext)} and '{right.buf.called}' {shape_text(right.ext)} "
                f"disagree in {axis}: {show(x)} and {show(y)}{note}",
                fix=_product_fix(ra, rb, rc, bool(trans_a), bool(trans_b)),
                other=place(right.buf.at, f"'{right.buf.called}' is made here"),
            )
            return
    head = [f"{op} ", ra, ", ", rb, " -> ", mark_written(rc)]
    value = value_of(init)
    if value is None:
        head += [" init(", wrap(init), ")"]
    elif value:
        head.append(" init(true)")
    head.append(" trans_a" * bool(trans_a) + " trans_b" * bool(trans_b))
    b.emit([h for h in head if h != ""])


def gemm_v0(A, B, C, transpose_A=False, transpose_B=False, init=False):
    """C (+)= op(A) op(B); `init` (Python or run-time) true overwrites C."""
    _gemm("T.gemm_v0", "gemm", A, B, C, transpose_A, transpose_B, init)


def gemm(A, B, C, transpose_A=False, transpose_B=False, policy=None, clear_accum=False, k_pack=1, mbar=None, init=None):
    """C (+)= op(A) op(B); `clear_accum` true overwrites C."""
    names = [n for n, v, unset in (("policy", policy, None), ("mbar", mbar, None), ("k_pack", k_pack, 1)) if v != unset]
    if names:
        current("T.gemm").note(f"T.gemm({', '.join(names)}=...) has no effect on Ascend")
    _gemm("T.gemm", "gemm", A, B, C, transpose_A, transpose_B, clear_accum if init is None else init)


def mma(A, B, C, init=False):
    """One product of L0 operands."""
    _gemm("T.mma", "mmad", A, B, C, False, False, init)


class GemmWarpPolicy:
    """Names of the mainline option; no effect on Ascend."""

    Square, FullRow, FullCol = "square", "full_row", "full_col"


# ---- reductions -----------------------------------------------------------------------------------------------------


def _wrong_dim(what, dim, tile, rank):
    fail(
        1004,
        f"{what}: 'dim' is {describe(dim)}; {tile} has {rank} dimension{'s' * (rank > 1)}",
        fix=f"a Python number from {-rank} to {rank - 1}",
    )


def _reduce(op, buffer, out, dim, args, clear, real_shape):
    what = f"T.{op}"
    b = current(what)
    for a in args:
        if isinstance(a, bool):
            clear = a
        elif isinstance(a, (list, tuple)):
            real_shape = a
        else:
            fail(
                1004,
                f"{what}: {describe(a)} is neither `clear`, which is True or False, nor `real_shape`, a list of sizes",
                fix=f"{what}(tile, out, dim, clear=True, real_shape=[rows, columns])",
            )
    src, dst = region_of(buffer, what), region_of(out, what)
    rank = len(src.ext)
    axis = value_of(dim)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        _wrong_dim(what, dim, describe(buffer), rank)
    by_rank = isinstance(buffer, Buffer) and isinstance(out, Buffer) and len(out.shape) >= rank - 1
    if rank > 2 and 0 <= axis < 2 and not long_dims(src.ext[:-2]) and not by_rank:
        axis += rank - 2  # a slice that is one matrix: 0 and 1 are its rows and columns
    axis %= rank
    if real_shape and any(not (isinstance(n, int) and n == 0) for n in real_shape):
        window = list(real_shape)
        at = rank - len(window)
        src = Region(
            src.buf,
            src.off,
            [
                e if d < at or (isinstance(window[d - at], int) and window[d - at] == 0) else window[d - at]
                for d, e in enumerate(src.ext)
            ],
        )
    kept = [e for d, e in enumerate(src.ext) if d != axis]
    want, have = long_dims(kept), long_dims(dst.ext)
    if len(want) != len(have) or False in [same_size(x, y) for x, y in zip(want, have)]:
        if real_shape and isinstance(out, Buffer) and len(want) == len(have) and _fits(want, have):
            dst = _shrink(dst, want)
        else:
            keep = list(src.ext)
            keep[axis] = 1
            b.error(
                1012,
                f"{what} of {shape_text(src.ext)} over dimension {axis} gives {shape_text(kept or (1,))}; "
                f"'{dst.buf.called}' takes {shape_text(dst.ext)}",
                fix=f"make '{dst.buf.called}' {shape_text(kept or (1,))} or {shape_text(keep)}",
                other=place(dst.buf.at, f"'{dst.buf.called}' is made here"),
            )
            return
    if src.dtype != dst.dtype:  # each element is converted first
        wide = region_of(b.alloc(tuple(long_dims(src.ext)) or (1,), dst.dtype, "fragment"), what)
        before = [e for d, e in enumerate(src.ext[:axis]) if not (isinstance(e, int) and e == 1)]
        b.emit(["copy ", src, " -> ", wide])
        src, axis = wide, len(before)
    merge = (
        not clear
        if not isinstance(clear, Expr)
        else fail(
            1004,
            f"{what}: clear={show(clear)} is known only at run time",
            fix="True or False; T.fill before it in an `if` clears by a condition",
        )
    )
    b.emit([f"{op} ", src, " -> ", mark_written(dst), f" dim({axis})" + " keep" * merge])


def reduce_sum(buffer, out, dim=-1, *args, clear=True, real_shape=None):
    """out := sums of a tile over one dimension; clear=False adds to what `out` holds."""
    _reduce("reduce_sum", buffer, out, dim, args, clear, real_shape)


def reduce_max(buffer, out, dim=-1, *args, clear=True, real_shape=None):
    """out := maxima of a tile over one dimension."""
    _reduce("reduce_max", buffer, out, dim, args, clear, real_shape)


def reduce_min(buffer, out, dim=-1, *args, clear=True, real_shape=None):
    """out := minima of a tile over one dimension."""
    _reduce("reduce_min", buffer, out, dim, args, clear, real_shape)


def reduce_abssum(buffer, out, dim=-1, *args, clear=True):
    """out := sums of the absolute values of a tile over one dimension."""
    _reduce("reduce_abssum", buffer, out, dim, args, clear, None)


def reduce_absmax(buffer, out, dim=-1, *args, clear=True):
    """out := largest absolute values of a tile over one dimension."""
    _reduce("reduce_absmax", buffer, out, dim, args, clear, None)


def reduce_bitand(buffer, out, dim=-1, *args, clear=True):
    """out := bitwise and of a tile over one dimension."""
    _reduce("reduce_and", buffer, out, dim, args, clear, None)


def reduce_bitor(buffer, out, dim=-1, *args, clear=True):
    """out := bitwise or of a tile over one dimension."""
    _reduce("reduce_or", buffer, out, dim, args, clear, None)


def reduce_bitxor(buffer, out, dim=-1, *args, clear=True):
    """out := bitwise exclusive or of a tile over one dimension."""
    _reduce("reduce_xor", buffer, out, dim, args, clear, None)


def _running(what, op, src, dst, dim, reverse):
    b = current(what)
    s = region_of(src, what)
    d = s if dst is None else region_of(dst, what)
    axis = value_of(dim)
    if not isinstance(axis, int) or not -len(s.ext) <= axis < len(s.ext):
        _wrong_dim(what, dim, describe(src), len(s.ext))
    if len(s.ext) != len(d.ext) or False in [same_size(x, y) for x, y in zip(s.ext, d.ext)]:
        b.error(1012, f"{what} of {describe(s)} does not fit {describe(d)}", fix="give both the same shape")
        return
    b.emit([f"{op} ", s, " -> ", mark_written(d), f" dim({axis % len(s.ext)})" + " reverse" * bool(reverse)])


def cumsum(src, dst=None, dim=0, reverse=False):
    """dst := running sums of src along one dimension; without dst in place."""
    _running("T.cumsum", "cumsum", src, dst, dim, reverse)


def cummax(src, dst=None, dim=0, reverse=False):
    """dst := running maxima of src along one dimension; without dst in place."""
    _running("T.cummax", "cummax", src, dst, dim, reverse)


def transpose(src, dst):
    """dst[j, i] := src[i, j]."""
    b = current("T.transpose")
    b.emit(["transpose ", region_of(src, "T.transpose"), " -> ", mark_written(region_of(dst, "T.transpose"))])


def set_deq_scale(scale):
    """The factor of the conversions of int32 tiles to float16 that follow."""
    current("T.set_deq_scale").deq_scale = scale


def packed_cast(what, src, dst, mode="rint"):
    """From or to int4, of which two share a byte: through float16; false: neither side is."""
    b, f16 = current(what), DType("float16")
    if src.dtype == dst.dtype or "int4" not in (src.dtype, dst.dtype):
        return False
    other = dst if src.dtype == "int4" else src
    if "gm" in (src.buf.space, dst.buf.space):
        fail(
            1004,
            f"{what} from {describe(src)} to {describe(dst)}: a tensor and a tile of int4 convert in two steps",
            fix="T.copy between the tensor and a tile of its dtype, then T.copy between the two tiles",
        )
    half_way = other
    if other.dtype != f16:
        if not all(isinstance(e, int) for e in src.ext):
            fail(1004, f"{what} on {describe(src)}, whose size is known only at run time", fix="a tile of a fixed size")
        half_way = region_of(b.alloc(tuple(long_dims(src.ext)) or (1,), f16, "ub"), what)
    if src.dtype == "int4":
        b.emit(["unpack4 ", src, " -> ", mark_written(half_way)])
        if half_way is not dst:
            b.emit(["cast ", half_way, " -> ", mark_written(dst), " mode(rint)"])
    else:
        if half_way is not src:
            b.emit(["cast ", src, " -> ", half_way, f" mode({mode})"])
        b.emit(["pack4 ", half_way, " -> ", mark_written(dst), f" mode({mode})"])
    return True


def scaled_cast(what, src, dst):
    """int32 to float16 with the factor of T.set_deq_scale, rounded once; false: there is none, or other dtypes."""
    b = current(what)
    scale = b.deq_scale
    if scale is None or src.dtype != "int32" or dst.dtype != "float16" or value_of(scale) == 1:
        return False
    if not all(isinstance(e, int) for e in src.ext):
        fail(
            1004,
            f"{what} with T.set_deq_scale on {describe(src)}, whose size is known only at run time",
            fix="a tile of a fixed size",
        )
    wide = region_of(b.alloc(tuple(long_dims(src.ext)) or (1,), DType("float32"), "ub"), what)
    b.emit(["cast ", src, " -> ", wide, " mode(rint)"])
    b.emit(["mul ", wide, ", ", wrap(scale, DType("float32")), " -> ", wide])
    b.emit(["cast ", wide, " -> ", mark_written(dst), " mode(rint)"])
    return True
