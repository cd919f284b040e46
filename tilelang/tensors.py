"""Tensors of the caller: numpy, torch, anything with DLPack or the buffer protocol, without copies.

`View` is what the C core needs (address, shape) and what the checks need (dtype, contiguity, device). The object itself
stays alive with the view.
"""

import ctypes
import math
import sys

from .errors import ArgumentError, counted, warn
from .language.dtypes import IR_NAME, DType, numpy_dtype


class View:
    __slots__ = ("address", "shape", "dtype", "contiguous", "writable", "device", "kind", "keep")

    def __init__(self, address, shape, dtype, contiguous, writable, device, kind, keep):
        self.address, self.shape, self.dtype, self.contiguous = address, tuple(shape), dtype, contiguous
        self.writable, self.device, self.kind, self.keep = writable, device, kind, keep

    @property
    def core_shape(self):
        """The shape in elements of the core."""
        return stored(self.shape, self.dtype)[0]


def is_tensor(obj):
    """Does obj look like a tensor rather than a number?"""
    if isinstance(obj, (int, float, str, bytes, tuple, list, dict)) or obj is None or isinstance(obj, type):
        return False
    if isinstance(obj, (bytearray, memoryview)) or hasattr(obj, "__dlpack__") or type(obj).__module__ == "array":
        return True
    shape = getattr(obj, "shape", None)
    if shape is None:
        return False
    return hasattr(obj, "dtype") and not (
        shape == () and hasattr(obj, "item") and not hasattr(obj, "__array_interface__")
    )


def _is_torch(obj):
    return hasattr(obj, "data_ptr") and any(c.__module__.partition(".")[0] == "torch" for c in type(obj).__mro__)


def view(obj, who):
    """A View of any tensor; `who` names the argument in messages."""
    import numpy

    if _is_torch(obj):
        return _torch_view(obj, who)
    if not isinstance(obj, numpy.ndarray):
        if hasattr(obj, "__dlpack__"):
            return _dlpack_view(obj, who)
        try:
            made = numpy.asarray(memoryview(obj)) if not hasattr(obj, "__array_interface__") else numpy.asarray(obj)
        except TypeError:
            raise ArgumentError(
                f"{who} is {what(obj)}, wanted a tensor: a numpy array, a torch tensor, "
                "or an object with DLPack or the buffer protocol",
                "pass numpy.asarray(x), or torch.as_tensor(x)",
            ) from None
        obj = made
    if not obj.dtype.isnative:
        raise ArgumentError(
            f"{who} holds {obj.dtype.name} in the byte order of other machines",
            "convert it: x.astype(x.dtype.newbyteorder('='))",
        )
    if isinstance(obj, numpy.ma.MaskedArray):
        raise ArgumentError(f"{who} is a masked array; kernels do not see masks", "pass x.filled(value)")
    name = obj.dtype.name
    flags = obj.flags
    dtype = DType(name) if name in IR_NAME else None
    return View(
        obj.ctypes.data if obj.size else 0,
        obj.shape,
        dtype or name,
        flags.c_contiguous,
        flags.writeable,
        "cpu",
        "numpy",
        obj,
    )


def what(obj):
    """A value in a message: its type and the beginning of its text."""
    if obj is None:
        return "None"
    text = " ".join(repr(obj).split())
    if len(text) >= 40 and isinstance(obj, (list, tuple, dict, set)):
        return f"a {type(obj).__name__} of {len(obj)}"
    return f"{type(obj).__name__} {text if len(text) < 40 else text[:37] + '...'}"


def _torch_view(obj, who):
    name = str(obj.dtype).removeprefix("torch.")
    dtype = DType(name) if name in IR_NAME else name
    device = obj.device.type
    if device != "cpu" or str(getattr(obj, "layout", "torch.strided")) != "torch.strided":
        return View(
            0, obj.shape, dtype, True, True, str(obj.device) if device != "cpu" else str(obj.layout), "torch", obj
        )
    return View(obj.data_ptr(), obj.shape, dtype, obj.is_contiguous() and not obj.is_neg(), True, "cpu", "torch", obj)


_DLPACK = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_DLPACK.update({10: "float8_e4m3fn", 12: "float8_e5m2"})


def _dlpack_dtype(code, bits, lanes):
    name = _DLPACK.get(code, f"type {code} of ")
    name = name if "8_" in name or name == "bool" else f"{name}{bits}"
    if lanes != 1:
        name += f"x{lanes}"
    return DType(name) if name in IR_NAME else name


def _dlpack_view(obj, who):
    from . import _core

    device = tuple(obj.__dlpack_device__()) if hasattr(obj, "__dlpack_device__") else (1, 0)
    if device[0] not in (1, 3, 11):  # CPU, pinned CPU memory of two vendors
        return View(
            0, getattr(obj, "shape", ()), "?", True, True, f"DLPack device {int(device[0])}:{device[1]}", "dlpack", obj
        )
    capsule = obj.__dlpack__()
    address, code, bits, lanes, shape, strides = _core.dlpack(capsule)
    dtype = _dlpack_dtype(code, bits, lanes)
    contiguous = True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides or shape)):
        if strides is not None and size != 1 and stride != step:
            contiguous = False
        step *= size
    return View(
        address,
        shape,
        dtype,
        contiguous,
        True,
        "cpu",
        type(obj).__module__.split(".")[0],
        (obj, capsule),
    )


def check(v, who, dtype, rank, cards=False):
    """Everything about a tensor argument except its sizes and strides; `cards`: it may be on one."""
    if v.device == "meta" or v.device.startswith("torch."):
        raise ArgumentError(
            f"{who} is on meta: it has no data" if v.device == "meta" else f"{who} is {v.device}, and not dense",
            "torch.empty_like(x, device='cpu') has memory" if v.device == "meta" else "pass x.to_dense()",
        )
    if v.device != "cpu" and not (cards and v.device.startswith("npu")):
        if cards:
            raise ArgumentError(f"{who} is on {v.device}, wanted an Ascend card", "pass x.npu() or x.cpu()")
        raise ArgumentError(f"{who} is on {v.device}, the simulated chip reads host memory", "pass x.cpu()")
    if v.dtype != dtype:
        fix = f"convert it, e.g. x.astype('{dtype}') or x.to(torch.{dtype})"
        if v.dtype.startswith("complex"):
            fix = "two tensors, x.real and x.imag, each contiguous: a kernel has no complex numbers"
        elif v.dtype.startswith(("qint", "quint")):
            fix = "x.dequantize(), or x.int_repr() for the integers in it"
        raise ArgumentError(f"{who} has dtype {v.dtype}, wanted {dtype}", fix)
    if rank is not None and len(v.shape) != rank:
        raise ArgumentError(
            f"{who} has {counted(len(v.shape), 'dimension')}, shape {v.shape}, wanted {rank}",
            f"give it {counted(rank, 'dimension')}: x.reshape(...)",
        )


def warn_of_gradient(obj, who):
    """A kernel is no operation of autograd: where that would follow the tensor, the way ends here."""
    if getattr(obj, "requires_grad", False) is True and sys.modules["torch"].is_grad_enabled():
        warn(
            f"{who} requires a gradient, and none goes through a kernel: the results do not depend on it for autograd",
            1031,
            fix="call it under torch.no_grad(), or from a torch.autograd.Function whose backward is a kernel, too",
        )


def check_contiguous(v, who, written=False):
    """After the sizes: the copy that cures this one would have the same shape; where the kernel writes it, the result
    is in the copy."""
    if not v.contiguous:
        copy = "x.contiguous()" if v.kind == "torch" else "numpy.ascontiguousarray(x)"
        back = "x.copy_(y)" if v.kind == "torch" else "x[...] = y"
        raise ArgumentError(
            f"{who} is not contiguous, shape {v.shape}",
            f"pass y = {copy}, which the kernel writes, and copy it back: {back}; or T.StridedTensor in the kernel"
            if written
            else f"pass {copy}",
        )


def four_bits(v, who, in_place):
    """The View of a tensor for an int4 parameter: bytes with two values, the first in the low half, along the last
    dimension (int8 or uint8, half as long), or ml_dtypes.int4 (one a byte: a copy, so not `in_place`)."""
    if v.dtype in ("int8", "uint8") and v.shape:
        v.shape, v.dtype = (*v.shape[:-1], v.shape[-1] * 2), DType("int4")
        return v
    if v.dtype != "int4" or v.kind != "numpy":
        raise ArgumentError(
            f"{who} has dtype {v.dtype}, wanted int4",
            "pass int8 or uint8 with two values a byte (the first in the low half), or a numpy array of ml_dtypes.int4",
        )
    if in_place or not v.shape or v.shape[-1] % 2:
        raise ArgumentError(
            f"{who} holds one int4 a byte, in the shape {v.shape}; the kernel takes two, here without a copy"
            if in_place
            else f"{who} has the shape {v.shape}: an odd number of int4 a row does not fill bytes",
            "pass int8 with two values a byte, the first in the low half",
        )
    import numpy

    bits = v.keep.astype(numpy.int8)
    made = numpy.ascontiguousarray(bits[..., ::2] & 15 | bits[..., 1::2] << 4)
    return View(made.ctypes.data if made.size else 0, v.shape, v.dtype, True, True, "cpu", "numpy", made)


def packed(obj):
    """(a contiguous tensor with the elements of obj, what brings its elements back)."""
    if _is_torch(obj):
        made = obj.contiguous()
        return made, lambda: obj.copy_(made)
    import numpy

    made = numpy.ascontiguousarray(obj)

    def back():
        obj[...] = made

    return made, back


def stored(shape, dtype):
    """(shape, dtype) of the memory of a tensor: of int4 int8 with two values a byte."""
    return ((*shape[:-1], shape[-1] // 2), DType("int8")) if dtype == "int4" else (shape, dtype)


def empty_like_kind(kind, shape, dtype):
    """A new tensor in the caller's kind."""
    shape, dtype = stored(shape, dtype)
    if kind == "torch":
        import torch

        return torch.empty(tuple(shape), dtype=getattr(torch, str(dtype)))
    import numpy

    made = numpy.empty(tuple(shape), dtype=numpy_dtype(dtype))
    return made


def poison(v):
    """Fills the memory of a View with ones: NaN, -1."""
    shape, dtype = stored(v.shape, v.dtype)
    ctypes.memset(v.address, 0xFF, math.prod(shape) * DType(dtype).bits // 8)


def poisoned(v):
    """Indices of the elements of a View that are as `poison` leaves them; empty for dtypes that have no NaN."""
    import numpy

    n, bits = math.prod(v.shape), DType(v.dtype).bits
    if not DType(v.dtype).is_float or not n:
        return []
    words = (getattr(ctypes, f"c_uint{bits}") * n).from_address(v.address)
    return numpy.argwhere(numpy.ctypeslib.as_array(words).reshape(v.shape) == (1 << bits) - 1)


def give_back(kind, made):
    """The array in the caller's kind: other libraries take it over by DLPack without a copy."""
    if kind in ("numpy", "torch", "dlpack"):
        return made
    import sys

    take = getattr(sys.modules.get(kind), "from_dlpack", None)
    return take(made) if take is not None else made
