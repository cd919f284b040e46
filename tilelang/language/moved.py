"""T.tile.* that move, sort and reduce elements of a tile as one run; part of T.tile, documented there.

Operands count as flat runs, as the instructions of the chip see them: a tile of several dimensions is read through a
view of its buffer with one dimension, or with rows of the length that strides ask for.
"""

from ..errors import fail, warn
from ..frontend.builder import current
from ..frontend.expr import Buffer, Element, Region, as_index, describe, same_size, show, value_of, wrap
from .dtypes import DType, float32, int16, int32, uint32
from .ops import long_dims, mark_written, region_of

_PATTERNS = {"P0101": 1, "P1010": 2, "P0001": 3, "P0010": 4, "P0100": 5, "P1000": 6, "P1111": 7}
BLOCK = 32  # bytes


def product(ext):
    """The number of elements: a Python int where it is known."""
    n = 1
    for e in ext:
        n = n * e
    return as_index(n) if not isinstance(n, int) else n


def _c0(dtype):
    return BLOCK * 8 // dtype.bits


def _known(v, name, what):
    n = value_of(v)
    if not isinstance(n, int):
        fail(1004, f"{what}: {name} = {show(v)} must be known when the kernel is compiled", fix="a Python number")
    return n


def reread(buf, shape, dtype=None):
    """The bytes of a buffer as a tile of another shape or dtype."""
    dtype = buf.dtype if dtype is None else DType(dtype)
    shape = tuple(shape)
    if shape == buf.shape and dtype == buf.dtype:
        return buf
    return current("a view").view(buf, shape, dtype)


def flat(v, what):
    """A tile as a region of one dimension."""
    r = region_of(v, what)
    shape = r.buf.shape
    if len(shape) == 1:
        return r
    inner = True  # dimensions so far are whole
    off, stride = 0, 1
    for o, e, n in zip(reversed(r.off), reversed(r.ext), reversed(shape)):
        whole = same_size(e, n) is True and isinstance(o, int) and o == 0
        if not inner and not (isinstance(e, int) and e == 1):
            fail(1012, f"{what}: {describe(r)} is not one run of elements", fix="use whole rows or a whole buffer")
        inner = inner and whole
        off = off + o * stride
        stride = stride * n
    return Region(reread(r.buf, (product(shape),)), [as_index(off)], [product(r.ext)])


def first(r, n, what):
    """The first n elements of a run."""
    have = r.ext[0]
    if isinstance(have, int) and isinstance(n, int) and n > have:
        fail(
            1012,
            f"{what} needs {n} elements of {describe(r)}, which has {have}",
            fix="a smaller count, or a larger tile",
        )
    return Region(r.buf, r.off, [n])


def part(r, off, n):
    return Region(r.buf, [as_index(r.off[0] + off)], [n])


def as_rows(v, pitch, what):
    """A whole buffer as rows of `pitch` elements."""
    buf = v if isinstance(v, Buffer) else None
    total = product(buf.shape) if buf is not None else 0
    if buf is None or total % pitch:
        fail(1012, f"{what}: {describe(v)} is not a buffer of rows of {pitch} elements", fix="pass a whole buffer")
    return reread(buf, (total // pitch, pitch))


def put(what, op, inputs, dst, attrs=""):
    head = [f"{op} "]
    for n, x in enumerate(inputs):
        head += [", ", x] if n else [x]
    current(what).emit([*head, " -> ", mark_written(dst), *([attrs] if attrs else [])])


def scratch(n, dtype, what):
    shape = n if isinstance(n, tuple) else (n,)
    return region_of(current(what).alloc(shape, DType(dtype), "ub"), what)


def _shorter(a, b):
    """The smaller of two counts, where both are known; else the one that is not."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if not isinstance(a, int) else b


# ---- gather ---------------------------------------------------------------------------------------------------------


def gather(dst, src, src_offset, src_base_addr=0):
    """dst[k] := the element of src at byte src_offset[k] + src_base_addr."""
    what = "T.tile.gather"
    d, s, o = (region_of(v, what) for v in (dst, src, src_offset))
    if same_size(product(d.ext), product(o.ext)) is not True:
        d, o = flat(dst, what), flat(src_offset, what)
        n = _shorter(d.ext[0], o.ext[0])
        d, o = first(d, n, what), first(o, n, what)
    put(what, "gather", [s, o, wrap(src_base_addr, uint32)], d)


def gatherb(dst, src0, offset, repeat_time, dst_blk_stride=1, dst_rep_stride=8):
    """Block k of dst := the 32 bytes of src0 at byte offset[k]; 8 blocks a repeat."""
    what = "T.tile.gatherb"
    n = 8 * _known(repeat_time, "repeat_time", what)
    blk, rep = _known(dst_blk_stride, "dst_blk_stride", what), _known(dst_rep_stride, "dst_rep_stride", what)
    d, s, o = flat(dst, what), flat(src0, what), first(flat(offset, what), n, what)
    c0 = _c0(d.dtype)
    if (max(blk, 1), rep) == (1, 8):
        put(what, "gatherb", [s, o], first(d, n * c0, what))
        return
    for r in range(n // 8):  # blocks further apart: one by one from scratch
        t = scratch(8 * c0, d.dtype, what)
        put(what, "gatherb", [s, part(o, 8 * r, 8)], t)
        for k in range(8):
            put(what, "copy", [part(t, k * c0, c0)], part(d, (r * rep + k * max(blk, 1)) * c0, c0))


def gather_mask(dst, src, src1Pattern):
    """Chosen elements of src, close together: "P0101" even ones, "P1010" odd ones, "P0001" to "P1000" one of each four,
    "P1111" all; a uint32 tile: src[pattern[k]]."""
    what = "T.tile.gather_mask"
    if isinstance(src1Pattern, (Buffer, Region)):
        p = flat(src1Pattern, what)
        d, s = flat(dst, what), flat(src, what)
        n = _shorter(d.ext[0], p.ext[0])
        offsets = scratch(_known(n, "the number of indices", what), uint32, what)
        put(what, "mul", [first(p, n, what), wrap(s.dtype.bits // 8, uint32)], offsets)
        put(what, "gather", [s, offsets, wrap(0, uint32)], first(d, n, what))
        return
    if src1Pattern not in _PATTERNS:
        fail(1004, f"{src1Pattern!r} is not a pattern of {what}", fix=f"one of {', '.join(_PATTERNS)}, or a tile")
    number = _PATTERNS[src1Pattern]
    d, s = flat(dst, what), flat(src, what)
    n = _known(s.ext[0], "the number of elements", what)
    count = n if number == 7 else (n + (number == 1)) // 2 if number < 3 else (n + 6 - number) // 4
    if isinstance(d.ext[0], int) and d.ext[0] < count:
        step, at = (1, 0) if number == 7 else (2, number - 1) if number < 3 else (4, number - 3)
        count = d.ext[0]
        s = first(s, min(n, (count - 1) * step + max(at + 1, step)), what)
    put(what, "gather_mask", [s, wrap(number, int32)], first(d, count, what))


def gathermask_experiment(dst, src0, src1Pattern, reduceMode, mask, GatherMaskParams, rsvdCnt=0):
    """Elements of the first `mask` of src0 whose bit in src1Pattern is 1, close together."""
    what = "T.tile.gathermask_experiment"
    block, repeat, row, bits_row = [*GatherMaskParams, 1, 1, 8, 0][:4]
    p, s, d = flat(src1Pattern, what), flat(src0, what), flat(dst, what)
    n = mask if reduceMode else _known(repeat, "repeatTimes", what) * 256 * 8 // s.dtype.bits
    if value_of(block) == 1 and (not reduceMode or value_of(repeat) == 1):
        put(what, "gather_mask", [first(s, as_index(n), what), p], d)
        return
    fail(
        1002,
        f"{what} with block stride {show(block)} and {show(repeat)} repeats is not supported",
        fix="one repeat over elements that lie close together",
    )


# ---- sorting --------------------------------------------------------------------------------------------------------


def sort32(dst, src0, src1):
    """Records of scores src0 and indices src1; each 32 sorted, largest first."""
    what = "T.tile.sort32"
    put(what, "sort32", [flat(src0, what), flat(src1, what)], flat(dst, what))


def merge_sort(dst, src0, src1, src2=None, src3=None):
    """Two to four sorted lists of records to one."""
    what = "T.tile.merge_sort"
    lists = [flat(s, what) for s in (src0, src1, src2, src3) if s is not None]
    n = product([sum(x.ext[0] for x in lists)])
    put(what, f"merge{len(lists)}", lists, first(flat(dst, what), n, what))


def _sorted_pairs(what, dst, src, n, count):
    s = flat(src, what)
    known, have = value_of(n), s.ext[0]
    if isinstance(known, int) and isinstance(have, int) and not 0 <= known <= have:
        warn(f"{what} of {known} elements: {describe(src)} has {have}, which are taken", 1024)
        n = have if known > have else 0
    d = first(flat(dst, what), count, what)
    put(what, "sort", [s, wrap(n, int32)], d)


def sort(dst, src, actual_num):
    """The first actual_num elements of src, largest first, as pairs (value, index)."""
    what = "T.tile.sort"
    d, total = product(region_of(dst, what).ext), product(region_of(src, what).ext)
    _sorted_pairs(what, dst, src, actual_num, min(_known(d, "its size", what), 2 * ((total + 31) // 32 * 32)))


def topk(dst, src, K, actual_num):
    """The K largest of the first actual_num elements of src as pairs (value, index)."""
    what = "T.tile.topk"
    d = product(region_of(dst, what).ext)
    k = value_of(K)
    _sorted_pairs(what, dst, src, actual_num, 2 * k if isinstance(k, int) else _known(d, "its size", what))


def init_sort_buf(buffer, num, rsv=0):
    """The first `num` records: score -inf, index -1."""
    what = "T.tile.init_sort_buf"
    d = flat(buffer, what)
    n = _known(num, "num", what) * (64 // d.dtype.bits)
    if d.dtype != "float32":
        fail(1004, f"{what} of {describe(d)}", fix="a float32 tile")
    low, ones, mask = scratch(n, "float32", what), scratch(n, "float32", what), scratch(16, int16, what)
    put(what, "fill", [wrap(float("-inf"), float32)], low)
    put(what, "fill", [wrap(-1, int32)], region_of(reread(ones.buf, (n,), int32), what))
    put(what, "fill", [wrap(0x5555, int16)], mask)
    bits = Region(reread(mask.buf, (32,), "uint8"), [0], [8])
    put(what, "select", [bits, low, ones], first(d, n, what), " maskrep")


# ---- shapes ---------------------------------------------------------------------------------------------------------


def transpose(dst, src):
    """dst[j, i] := src[i, j]."""
    what = "T.tile.transpose"
    put(what, "transpose", [region_of(src, what)], region_of(dst, what))


def brcb(dst, src, repeat_times, dst_blk_stride=1, dst_repeat_stride=8):
    """Element k of src fills the 32-byte block k of dst; 8 blocks a repeat."""
    what = "T.tile.brcb"
    n = 8 * _known(repeat_times, "repeat_times", what)
    if (value_of(dst_blk_stride), value_of(dst_repeat_stride)) not in ((1, 8), (0, 8)):
        fail(
            1002,
            f"{what} with block stride {show(dst_blk_stride)}, repeat stride {show(dst_repeat_stride)}",
            fix="strides of 1 and 8, the defaults",
        )
    d, s = flat(dst, what), flat(src, what)
    put(what, "brcb", [first(s, n, what)], first(d, n * _c0(d.dtype), what))


brcb_experiment = brcb


def _by_rows(name, op):
    what = f"T.tile.{name}"

    def function(dst, src0, src1, tmp=None):
        d, a = region_of(dst, what), region_of(src0, what)
        rows, cols = product(d.ext[:-1]), d.ext[-1]
        if len(long_dims(d.ext[:-1])) > 1:
            d, a = (Region(reread(r.buf, (rows, cols)), [0, 0], [rows, cols]) for r in (d, a))
        s = flat(src1, what)
        c0 = _c0(s.dtype)
        width = 1
        if same_size(s.ext[0], rows) is not True and same_size(s.ext[0], rows * c0) is True:
            width = c0
        elif same_size(s.ext[0], rows) is False:
            fail(
                1012,
                f"{what}: {describe(s)} has {show(s.ext[0])} elements for {show(rows)} rows",
                fix=f"one element a row, or one block of {c0} a row",
            )
        total = product(s.buf.shape)
        column = Region(reread(s.buf, (total // width, width)), [as_index(s.off[0] // width), 0], [rows, width])
        put(what, op, [a, column], d)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"dst[i, j] := src0[i, j] {op} src1[i]."
    return function


row_expand_mul = _by_rows("row_expand_mul", "mul")
row_expand_mul_experiment = _by_rows("row_expand_mul_experiment", "mul")
row_expand_sub = _by_rows("row_expand_sub", "sub")
row_expand_sub_experiment = _by_rows("row_expand_sub_experiment", "sub")
row_expand_div = _by_rows("row_expand_div", "div")
row_expand_div_experiment = _by_rows("row_expand_div_experiment", "div")


# ---- reductions by repeats ------------------------------------------------------------------------------------------


def _repeats(what, op, dst, src, repeat, cols, pitch, step, out_pitch):
    """One result of `step` elements for each row of `cols`; rows are `pitch` apart, results `out_pitch`."""
    d = flat(dst, what)
    rows = as_rows(src, pitch, what)
    if repeat > rows.shape[0]:
        fail(
            1012,
            f"{what}: {repeat} repeats of {pitch} elements, {describe(src)} has {rows.shape[0]}",
            fix="fewer repeats, or a larger tile",
        )
    if out_pitch == step:
        put(what, op, [Region(rows, [0, 0], [repeat, cols])], first(d, step * repeat, what))
        return
    for r in range(repeat):
        put(what, op, [Region(rows, [r, 0], [1, cols])], part(d, r * out_pitch, step))


def _block_reduce(name, op):
    what = f"T.tile.{name}"

    def function(dst, src, repeat, mask, dstRepStride=1, srcBlkStride=1, srcRepStride=8):
        n, lanes, out = (_known(v, "an operand", what) for v in (repeat, mask, dstRepStride))
        blk, rep = _known(srcBlkStride, "srcBlkStride", what), _known(srcRepStride, "srcRepStride", what)
        s, d = flat(src, what), flat(dst, what)
        c0 = _c0(s.dtype)
        rows = reread(s.buf, (product(s.buf.shape) // c0, c0))
        blocks = (lanes + c0 - 1) // c0
        if blocks == 8 and blk == 1 and rep == 8 and out == 1:
            put(what, op, [Region(rows, [0, 0], [8 * n, c0])], first(d, 8 * n, what))
            return
        for r in range(n):
            for k in range(1 if blk == 1 else blocks):
                m = blocks if blk == 1 else 1
                put(what, op, [Region(rows, [r * rep + k * blk, 0], [m, c0])], part(d, 8 * r * out + k, m))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "One result for each 32-byte block, 8 a repeat."
    return function


block_reduce_max = _block_reduce("block_reduce_max", "row_max")
block_reduce_min = _block_reduce("block_reduce_min", "row_min")
block_reduce_sum = _block_reduce("block_reduce_sum", "row_sum")


def _whole_reduce(name, value, index):
    what = f"T.tile.{name}"

    def function(
        dst, src, mask, repeattimes, dstrepstride, srcblkstride, srcrepstride, ReduceOrder="ORDER_VALUE_INDEX"
    ):
        numbers = (_known(v, "an operand", what) for v in (mask, repeattimes, dstrepstride, srcblkstride, srcrepstride))
        cols, repeat, out, blk, rep = numbers
        order = str(ReduceOrder).rsplit(".", 1)[-1]
        both = index is not None and order == "ORDER_VALUE_INDEX"
        if blk != 1 or (index is not None and order not in ("ORDER_VALUE_INDEX", "ORDER_ONLY_VALUE")):
            fail(1002, f"{what} with block stride {blk} and {order} is not supported", fix="a stride of 1, the default")
        step = 2 if both else 1
        pitch = rep * _c0(region_of(src, what).dtype)
        _repeats(what, index if both else value, dst, src, repeat, cols, pitch, step, step * out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "One result (maximum, minimum: value and index) for each repeat of `mask` elements."
    return function


wholereducemax = _whole_reduce("wholereducemax", "row_max", "row_argmax")
wholereducemin = _whole_reduce("wholereducemin", "row_min", "row_argmin")
wholereducesum = _whole_reduce("wholereducesum", "row_sum", None)


def reduce_sum_experiment(dst, src, count):
    """dst[0] := sum of the first `count` elements."""
    what = "T.tile.reduce_sum_experiment"
    put(what, "reduce_sum", [first(flat(src, what), as_index(count), what)], first(flat(dst, what), 1, what), " dim(0)")


def sum_experiment(dst, src, sumParams):
    """dst[i] := sum of the first n elements of row i; sumParams = [rows, row length, n]."""
    what = "T.tile.sum_experiment"
    outer, inner, n = sumParams
    outer, inner = _known(outer, "the number of rows", what), _known(inner, "the length of a row", what)
    rows = as_rows(src, inner, what) if outer > 1 else None
    s = Region(rows, [0, 0], [outer, as_index(n)]) if outer > 1 else first(flat(src, what), as_index(n), what)
    put(what, "reduce_sum", [s], first(flat(dst, what), outer, what), f" dim({1 if outer > 1 else 0})")


def reduce_sum_mask_experiment(dst, src, mask, repeatTime, srcRepStride):
    """dst[0] := sum of the first `mask` elements of each of `repeatTime` rows."""
    what = "T.tile.reduce_sum_mask_experiment"
    repeat = _known(repeatTime, "repeatTime", what)
    d = first(flat(dst, what), 1, what)
    if repeat == 1:
        put(what, "reduce_sum", [first(flat(src, what), as_index(mask), what)], d, " dim(0)")
        return
    rows = as_rows(src, _known(srcRepStride, "srcRepStride", what) * _c0(region_of(src, what).dtype), what)
    t = scratch(repeat, d.dtype, what)
    put(what, "reduce_sum", [Region(rows, [0, 0], [repeat, as_index(mask)])], t, " dim(1)")
    put(what, "reduce_sum", [t], d, " dim(0)")


# ---- the first elements of a tile -----------------------------------------------------------------------------------


def sub_experiment(dst, src0, src1, count):
    """dst := src0 - src1, `count` elements."""
    what = "T.tile.sub_experiment"
    d, a, b = (first(flat(v, what), as_index(count), what) for v in (dst, src0, src1))
    put(what, "sub", [a, b], d)


def abs_experiment(dst, src, count):
    """dst := |src|, `count` elements."""
    what = "T.tile.abs_experiment"
    d, a = (first(flat(v, what), as_index(count), what) for v in (dst, src))
    put(what, "abs", [a], d)


def mins_experiment(dst, src, scalarValue, count):
    """dst := min(src, value), `count` elements."""
    what = "T.tile.mins_experiment"
    d, a = (first(flat(v, what), as_index(count), what) for v in (dst, src))
    put(what, "min", [a, wrap(scalarValue, d.dtype)], d)


def fill_experiment(dst, value, mask, repeatTimes, dstBlockStride, dstRepeatStride):
    """Elements of each repeat whose bit of `mask` (two 64-bit numbers) is 1 := value."""
    what = "T.tile.fill_experiment"
    d = flat(dst, what)
    c0, lanes = _c0(d.dtype), 2048 // d.dtype.bits
    words = [_known(m, "mask", what) for m in (mask if isinstance(mask, (list, tuple)) else [mask])]
    bits = [k for k in range(lanes) if words[k // 64] >> k % 64 & 1] if len(words) * 64 >= lanes else None
    if bits is None:
        fail(
            1004,
            f"{what}: the mask has {len(words)} words for {lanes} elements a repeat",
            fix="one bit an element of a repeat: two words of 64 bits",
        )
    blk, rep = _known(dstBlockStride, "dstBlockStride", what), _known(dstRepeatStride, "dstRepeatStride", what)
    for r in range(_known(repeatTimes, "repeatTimes", what)):
        for k in bits:
            at = as_index(d.off[0] + (r * rep + k // c0 * blk) * c0 + k % c0)
            current(what).store(d.buf, (at,), value, None)


def datacachecleanandinvalid_experiment(*args, **kwargs):
    """Cache maintenance: no effect, memory is coherent here."""
    current("T.tile.datacachecleanandinvalid_experiment").note("cache maintenance has no effect here")


def bilinear_interpolation(
    dst, src0, src0_offset, src1, mask, h_repeat, repeat_mode, dst_blk_stride, v_r_offset, v_repeat
):
    """Sums over h_repeat of 8 gathered blocks times a weight: one for each block, or one for all 8."""
    what = "T.tile.bilinear_interpolation"
    numbers = (mask, h_repeat, repeat_mode, dst_blk_stride, v_r_offset, v_repeat)
    numbers = (_known(v, "an operand", what) for v in numbers)
    lanes, h, by_block, blk, pitch, v = numbers
    d, s, o, w = (flat(x, what) for x in (dst, src0, src0_offset, src1))
    c0 = _c0(d.dtype)
    if blk != 1:
        fail(1002, f"{what} with dst_blk_stride {blk} is not supported", fix="a stride of 1, the default")
    acc, t = (scratch(8 * c0, d.dtype, what) for _ in range(2))
    spread = scratch(8 * c0, d.dtype, what) if by_block else None
    for r in range(v):
        put(what, "fill", [wrap(0, d.dtype)], acc)
        for i in range(h):
            put(what, "gatherb", [s, part(o, 8 * (r * h + i), 8)], t)
            if by_block:
                put(what, "broadcast", [part(w, 8 * (r * h + i), 8)], _matrix(spread, 8, c0, what), " dim(1)")
                put(what, "mul", [t, spread], t)
            else:
                weight = Element(w.buf, (wrap(as_index(w.off[0] + r * h + i), int32),))
                put(what, "mul", [t, weight], t)
            put(what, "add", [acc, t], acc)
        put(what, "copy", [first(acc, lanes, what)], part(d, r * pitch, lanes))


def _matrix(r, rows, cols, what):
    return region_of(reread(r.buf, (rows, cols)), what)


__all__ = [
    n
    for n in globals()
    if callable(globals()[n])
    and getattr(globals()[n], "__module__", None) == __name__
    and not n.startswith("_")
    and n not in ("product", "reread", "flat", "first", "part", "as_rows", "put", "scratch")
]
