"""Chips as the carver sees them."""

from ...errors import ArgumentError
from . import ascend, driver
from .ascend import Ascend


def _absent(name):
    def make(*args, **kwargs):
        raise ArgumentError(
            f"carver.arch.{name} is a GPU; this compiler knows Ascend chips: carver.arch.Ascend()",
            "carver.arch.Ascend()",
        )

    make.__name__ = name
    make.__doc__ = "Refused by name: a GPU."
    return make


CUDA, CDNA = _absent("CUDA"), _absent("CDNA")

__all__ = ["Ascend", "CDNA", "CUDA", "ascend", "driver"]
