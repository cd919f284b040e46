"""Which 8-bit floats this chip has: the OCP kinds, as torch names them without "fnuz"."""

from ..errors import ArgumentError
from .dtypes import DType

_KINDS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def determine_fp8_type(fp8_format="e4m3"):
    """The dtype of "e4m3" or "e5m2"."""
    if fp8_format not in _KINDS:
        raise ArgumentError(
            f"determine_fp8_type: {fp8_format!r}; one of {', '.join(_KINDS)}", f"one of {', '.join(_KINDS)}"
        )
    return DType(_KINDS[fp8_format])


def determine_torch_fp8_type(fp8_format="e4m3"):
    """The same as a torch dtype."""
    import torch

    return getattr(torch, str(determine_fp8_type(fp8_format)))


__all__ = ["determine_fp8_type", "determine_torch_fp8_type"]
