"""tilelang: tile kernels for Ascend, written in Python, run at once on a simulated chip.

import tilelang
import tilelang.language as T
"""

from . import cache, language
from .cache import disable_cache, enable_cache
from .errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    Diagnostic,
    KernelFault,
    TileLangError,
    TileLangWarning,
    UnknownNameError,
    install_hooks,
)
from .jit import compile, jit
from .kernel import Kernel, Kernel as JITKernel
from .language.dtypes import DType as DataType
from .math import cdiv, next_power_of_2
from .pass_config import PassConfigKey
from . import math  # noqa: E402 - after the names above, which `from .math` also binds

__version__ = "0.1.0"

install_hooks()

_LATER = (
    "autotuner", "carver", "conformance", "device", "engine", "intrinsics", "layout", "profiler", "sim", "testing",
    "transform", "utils",
)  # fmt: skip


def __getattr__(name):
    """Parts that are imported when they are first used."""
    import importlib

    if name in _LATER:
        return importlib.import_module("." + name, __name__)
    if name == "autotune":
        return importlib.import_module(".autotuner", __name__).autotune
    if name in ("Profiler", "TensorSupplyType"):
        return getattr(importlib.import_module(".profiler", __name__), name)
    if name.startswith("_"):
        raise AttributeError(name)
    from .errors import fail, nearest

    near = nearest(name, [*__all__, *_LATER])
    fix = f"did you mean tilelang.{near}?" if near else "dir(tilelang) lists what there is"
    fail(1001, f"tilelang has no '{name}'", fix=fix, kind=UnknownNameError)


__all__ = [
    "ArgumentError",
    "CompileError",
    "DataType",
    "DeviceError",
    "Diagnostic",
    "JITKernel",
    "Kernel",
    "KernelFault",
    "PassConfigKey",
    "TileLangError",
    "TileLangWarning",
    "UnknownNameError",
    "autotune",
    "cache",
    "cdiv",
    "compile",
    "disable_cache",
    "enable_cache",
    "jit",
    "language",
    "math",
    "next_power_of_2",
]
