"""What programs in mainline TileLang import from its insides and from TVM, as far as it has a meaning here: policies
of a product, the expressions that dequantising functions are written with, questions about the card. Everything else
of TVM is an error by name: there is no TVM in this compiler."""

import types

from ..carver import MatmulTemplate
from ..errors import CompileError
from ..frontend.expr import Expr, Var, const
from ..language import GemmWarpPolicy, if_then_else, reinterpret
from ..language.dtypes import DType


def _nothing(path):
    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"{path}.{name} is a part of TVM, which this compiler does not have in it")

    return __getattr__


def _module(path, **names):
    m = types.ModuleType(path, f"Names of {path} that programs import.")
    vars(m).update(names)
    return m


def tvm_modules():
    """The module tvm: the exception, the dtype, and the few expressions of tvm.tir (later: tvm.tirx)."""
    names = dict(
        PrimExpr=Expr, Var=Var, const=lambda value, dtype="int32", span=None: const(value, dtype),
        reinterpret=reinterpret, Select=if_then_else, if_then_else=if_then_else,
    )  # fmt: skip
    out = {path: _module(path, **names) for path in ("tvm.tir", "tvm.tirx")}
    out["tvm"] = _module(
        "tvm", TVMError=CompileError, DataType=DType, tir=out["tvm.tir"], tirx=out["tvm.tirx"]
    )  # fmt: skip
    for path, m in out.items():
        m.__getattr__ = _nothing(path)
    return out


def _hook(func=None, **options):
    """A hook on the text of CUDA programs: there are none, so it is never called."""
    return func if func is not None else lambda f: f


def inner_modules(capability):
    """Modules of mainline TileLang by path."""
    version = "{}.{}".format(*capability)
    nvcc = _module(
        "tilelang.contrib.nvcc", get_target_compute_version=lambda target=None: version,
        parse_compute_version=lambda text: tuple(int(n) for n in text.split(".")),
    )  # fmt: skip
    plan = _module("tilelang.carver.roller.rasterization", NoRasterization=None)
    return {
        "tilelang.tileop.base": _module("tilelang.tileop.base", GemmWarpPolicy=GemmWarpPolicy),
        "tilelang.contrib": _module("tilelang.contrib", nvcc=nvcc),
        "tilelang.contrib.nvcc": nvcc,
        "tilelang.carver.template": _module("tilelang.carver.template", MatmulTemplate=MatmulTemplate),
        "tilelang.carver.roller": _module("tilelang.carver.roller", rasterization=plan),
        "tilelang.carver.roller.rasterization": plan,
        "tilelang.engine.callback": _module("tilelang.engine.callback", register_cuda_postproc_callback=_hook),
    }
