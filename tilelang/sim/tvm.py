"""What programs import of tvm: the exception. There is no TVM in this compiler; everything else is an error by name."""

import types

from ..errors import CompileError


def _nothing(path):
    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{path}.{name} is a part of TVM, which this compiler does not have in it")

    return __getattr__


def make_module():
    """The module tvm: TVMError, and tir without anything in it."""
    m = types.ModuleType("tvm", __doc__)
    m.TVMError = CompileError
    m.tir = types.ModuleType("tvm.tir")
    m.__getattr__, m.tir.__getattr__ = _nothing("tvm"), _nothing("tvm.tir")
    return m
