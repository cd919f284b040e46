"""Marks and small helpers for test files of programs in mainline TileLang.

Under `python -m tilelang.sim` the simulated card answers to the name of a CUDA card (torch.cuda.is_available()), so
`requires_cuda` lets a test run. A test that asks for a generation of GPUs by its compute capability runs when
`--capability` of the runner satisfies it.
"""

import importlib.util
import inspect
import operator
import random
import sys

import pytest

from .profiler import do_bench
from .utils.tensor import torch_assert_close


def _card():
    import torch

    return torch.cuda.is_available()


def requires_cuda(func):
    """Runs the test where torch sees a card."""
    return pytest.mark.skipif(not _card(), reason="needs a card: run under python -m tilelang.sim")(func)


def _never(what):
    return lambda func: pytest.mark.skip(reason=f"needs {what}")(func)


requires_rocm, requires_cdna, requires_gfx950 = _never("ROCm"), _never("ROCm"), _never("ROCm")
requires_metal, requires_llvm = _never("Metal"), _never("LLVM")
requires_cuda_or_cdna = requires_cuda


def requires_package(*names):
    """Runs the test where every package is installed."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


_MODES = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt, "eq": operator.eq}


def requires_cuda_compute_version(major, minor=0, mode="ge"):
    """Runs the test where torch.cuda.get_device_capability() compares so."""
    import torch

    have = tuple(torch.cuda.get_device_capability()) if _card() else (0, 0)
    reason = f"needs compute capability {mode} {major}.{minor}; here it is {have[0]}.{have[1]}"
    return pytest.mark.skipif(not _MODES[mode](have, (major, minor)), reason=reason)


def _version(mode):
    return lambda major, minor=0: requires_cuda_compute_version(major, minor, mode)


for _mode in _MODES:
    globals()[f"requires_cuda_compute_version_{_mode}"] = _version(_mode)


def set_random_seed(seed=42):
    """Seeds random, numpy and torch."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def main():
    """Runs the tests of the calling file."""
    sys.exit(pytest.main([inspect.getsourcefile(sys._getframe(1)), *sys.argv[1:]]))


def process_func(func, *args, **kwargs):
    """Calls a function that measures; prints what it gives."""
    print(f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}: {func(*args, **kwargs)}")


def regression():
    """Calls every regression_* function of the calling file."""
    for name, fn in list(sys._getframe(1).f_globals.items()):
        if name.startswith("regression_") and callable(fn):
            fn()


__all__ = ["do_bench", "main", "process_func", "regression", "requires_package", "set_random_seed",
           "torch_assert_close", *(n for n in list(globals()) if n.startswith("requires_"))]  # fmt: skip
