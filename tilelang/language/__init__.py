"""The kernel language: `import tilelang.language as T`."""

import types as _types

from ..errors import UnknownNameError as _UnknownNameError
from ..errors import fail as _fail
from ..errors import nearest as _nearest
from ..errors import rightly as _rightly
from ..frontend.builder import statements as _statements
from ..frontend.trace import Macro, PrimFunc, macro, prim_func
from ..frontend.trace import StridedTensorType as StridedTensor
from ..frontend.trace import TensorType as Tensor
from ..layout import Fragment, Layout
from . import hints as _hints
from . import tile
from .convolution import c2d_im2col, im2col
from .dtypes import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    half,
    int4,
    int8,
    int16,
    int32,
    int64,
    tfloat32,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .debug import *  # noqa: F403
from .hints import *  # noqa: F403
from .kernel import Else, If, Kernel, Scope, Then, thread_return
from .loops import (
    Parallel,
    Persistent,
    Pipelined,
    Serial,
    Unroll,
    Vectorized,
    grid,
    loop_break,
    serial,
    unroll,
    vectorized,
)
from .math import (
    And,
    Cast,
    Not,
    Or,
    Select,
    abs,
    align_up,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    cdiv,
    ceil,
    ceildiv,
    clamp,
    cos,
    exp,
    exp2,
    floor,
    floordiv,
    floormod,
    fma,
    if_then_else,
    infinity,
    log,
    log2,
    max,
    max_value,
    min,
    min_value,
    pow,
    power,
    reinterpret,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sqrt,
    tanh,
    trunc,
    truncdiv,
    truncmod,
    use_swizzle,
)
from .memory import (
    alloc_fragment,
    alloc_global,
    alloc_L0A,
    alloc_L0B,
    alloc_L0C,
    alloc_L1,
    alloc_local,
    alloc_shared,
    alloc_ub,
    alloc_var,
    annotate_address,
    const,
    dynamic,
    empty,
    symbolic,
)
from .ops import (
    GemmWarpPolicy,
    atomic_add,
    clear,
    copy,
    cummax,
    cumsum,
    fill,
    gemm,
    gemm_v0,
    mma,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
    set_deq_scale,
    transpose,
)
from .reducer import alloc_reducer, finalize_reducer, reducer_init, reducer_update
from .sync import barrier_all, pipe_barrier, set_cross_flag, set_flag, sync_all, sync_grid, wait_cross_flag, wait_flag
from .threads import *  # noqa: F403
from .views import reinterpretcast, reshape, view

Buffer = Tensor
inline = macro
Ref = LocalBuffer = SharedBuffer = FragmentBuffer = Tensor  # annotations of macros
dtype = DType
bool = bool_
float = float32
int = int32
long, short, uint = int64, int16, uint32
parallel = Parallel
alloc_buffer = alloc_global


def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    _hints.refuse(name, _UnknownNameError)
    near = _nearest(name, __all__)
    in_tile = name if name in tile.__all__ else None
    hint = f"did you mean T.tile.{in_tile}?" if in_tile else f"did you mean T.{near}?" if near else None
    _fail(1001, f"T has no '{name}'", fix=hint, kind=_UnknownNameError)


for _name, _value in list(globals().items()):
    if isinstance(_value, _types.FunctionType) and not _name.startswith("_"):
        globals()[_name] = _hints.without_foreign(_name, _rightly(f"T.{_name}", computes=True)(_value))
    elif isinstance(_value, _types.ModuleType) and _value is not tile and not _name.startswith("_"):
        del globals()[_name]  # its functions are names of T, it is none

_statements(
    globals(),
    "copy gemm gemm_v0 mma fill clear reduce_sum reduce_max reduce_min reduce_abssum reduce_absmax reduce_bitand "
    "reduce_bitor reduce_bitxor cumsum cummax transpose set_flag wait_flag pipe_barrier barrier_all set_cross_flag "
    "wait_cross_flag sync_all annotate_address printf print dump_tensor device_assert".split(),
)

__all__ = [n for n in globals() if not n.startswith("_")]
