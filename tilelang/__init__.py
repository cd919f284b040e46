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
)
from .jit import compile, jit
from .kernel import Kernel, Kernel as JITKernel
from .language.dtypes import DType as DataType
from .math import cdiv, next_power_of_2
from .pass_config import PassConfigKey
from . import math  # noqa: E402 - after the names above, which `from .math` also binds

__version__ = "0.1.0"

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
