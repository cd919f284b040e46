"""One buffer's bytes under another shape or dtype: T.view, T.reshape, T.reinterpretcast."""

from ..errors import fail, place
from ..frontend.builder import current
from ..frontend.expr import Buffer, Element, Expr, Region, describe, dims, same_size, shape_text
from .dtypes import DType
from .moved import product


def _whole(v, what):
    if isinstance(v, Region) and all(
        isinstance(o, int) and o == 0 and same_size(e, n) is True for o, e, n in zip(v.off, v.ext, v.buf.shape)
    ):
        return v.buf
    if not isinstance(v, Buffer):
        fail(1004, f"{what} of {describe(v)}", fix="a whole buffer of T.alloc_*; slice the result instead")
    return v


def view(src, shape=None, dtype=None):
    """The bytes of a buffer as a tile of another shape or dtype; both stay the same bytes."""
    src = _whole(src, "T.view")
    dtype = src.dtype if dtype is None else DType(dtype)
    if shape is None:
        last = src.shape[-1] * src.dtype.bits
        if last % dtype.bits:
            fail(
                1004,
                f"T.view of {describe(src)} as {dtype}: its rows are no whole number of elements",
                fix="a last dimension whose bytes divide by the size of the dtype",
            )
        shape = (*src.shape[:-1], last // dtype.bits)
    shape = dims(shape, "a view")
    known = [n for n in shape if not (isinstance(n, int) and n == -1)]
    have, size = product(src.shape) * src.dtype.bits, product(known) * dtype.bits
    odd = isinstance(have, int) and isinstance(size, int) and (not size or have % size)
    if len(known) == len(shape) - 1 and not odd:
        shape = tuple(have // size if isinstance(n, int) and n == -1 else n for n in shape)
        size = have
    if same_size(size, have) is False:
        fail(
            1004,
            f"T.view of {describe(src)} as {dtype} {shape_text(shape)}: {have // 8} bytes and {size // 8} bytes",
            fix="a view has as many bytes as its buffer",
            other=place(src.at, f"'{src.called}' is made here"),
        )
    same = len(shape) == len(src.shape) and all(same_size(a, b) is True for a, b in zip(shape, src.shape))
    return src if same and dtype == src.dtype else current("T.view").view(src, shape, dtype)


def reshape(src, shape):
    """The elements of a buffer in another shape."""
    return view(src, shape)


def _uses(thing, buf):
    if isinstance(thing, Region):
        return thing.buf is buf
    if isinstance(thing, Element):
        return thing.buf is buf or any(_uses(i, buf) for i in thing.idx)
    if isinstance(thing, Expr):
        return any(_uses(a, buf) for a in thing.args)
    return thing is buf


def _used(block, buf):
    for s in block:
        if s.kind != "alloc" and any(_uses(part, buf) for part in s.head):
            return True
        if any(_used(inner, buf) for inner in (s.body, s.alt) if inner):
            return True
    return False


def reinterpretcast(dst, src, ctype):
    """From here on the name `dst` means the bytes of `src`, read as `ctype`."""
    what = "T.reinterpretcast"
    b = current(what)
    dst, src = _whole(dst, what), _whole(src, what)
    dtype = DType(str(ctype).removesuffix("_t"))
    if dst.view is src and dst.dtype == dtype:
        return
    if dst is src or dst.view is not None or dst.space == "gm" or src.space == "gm" or _used(b.top, dst):
        fail(
            1002,
            f"{what} of {describe(dst)} to {describe(src)}: the name has been used before, or is a tensor",
            fix=f"a buffer of its own that nothing uses before, or `view = T.view(src, dtype='{dtype}')`",
        )
    have = product(src.shape) * src.dtype.bits
    if product(dst.shape) * dtype.bits > have:
        dst.shape = (have // dtype.bits,)
    dst.view, dst.dtype, dst.space = src, dtype, src.space
    block, at = b.find_alloc(dst)
    made = block.pop(at)
    block, at = b.find_alloc(src)
    block.insert(at + 1, made)
