"""Buffers of the chip and variables."""

from ..errors import fail, here
from ..frontend.builder import active, current
from ..frontend.expr import Buffer, MutVar, Var, as_index, cast, describe, dims, whole, wrap
from ..frontend.trace import TensorType as Tensor
from .dtypes import DType, int32


def _alloc(what, space, shape, dtype):
    b = current(what)
    shape = dims(shape, "a buffer")
    dtype = DType(dtype)
    for s in shape:
        if not isinstance(s, int):
            fail(
                1004,
                f"{what} with the size {s!r}, which is known only at run time",
                fix="take the largest size as a Python number and copy a slice",
            )
        if s <= 0:
            fail(1004, f"{what} with a size of {s}", fix="sizes of buffers are at least 1")
    if not shape or len(shape) > 6:
        fail(1004, f"{what} with {len(shape)} dimensions; 1 to 6 are supported", fix="T.alloc_shared((m, n), dtype)")
    return b.alloc(shape, dtype, space)


_SCOPES = {"shared": ("shared", "shared.dyn"), "local": ("local", "local.fragment", "local.var")}


def _scope(what, kind, scope):
    """The name of a memory as other chips have it says what the function says; another one is an error."""
    if scope not in _SCOPES[kind]:
        fail(
            1004,
            f"{what}: {describe(scope)} is no memory for it",
            fix=f"leave it out, or {' or '.join(map(repr, _SCOPES[kind]))}; T.alloc_ub, T.alloc_L1, T.alloc_L0C … name "
            "a memory of this chip",
        )


def alloc_shared(shape, dtype="float32", scope="shared.dyn"):
    """A tile in L1 or UB: the compiler chooses by what uses it."""
    _scope("T.alloc_shared", "shared", scope)
    return _alloc("T.alloc_shared", "shared", shape, dtype)


def alloc_fragment(shape, dtype="float32", scope="local.fragment"):
    """A tile in L0A, L0B, L0C or UB: the compiler chooses by what uses it."""
    _scope("T.alloc_fragment", "local", scope)
    return _alloc("T.alloc_fragment", "fragment", shape, dtype)


def alloc_local(shape, dtype="float32", scope="local"):
    """The same class of memory as alloc_fragment; where threads are numbered, one for each thread."""
    _scope("T.alloc_local", "local", scope)
    made = _alloc("T.alloc_local", "fragment", shape, dtype)
    made.mark = "private"
    return made


def alloc_ub(shape, dtype="float32"):
    """A tile in UB, the memory of a vector core."""
    return _alloc("T.alloc_ub", "ub", shape, dtype)


def alloc_L1(shape, dtype="float32"):
    """A tile in L1, the memory of a cube core."""
    return _alloc("T.alloc_L1", "l1", shape, dtype)


def alloc_L0A(shape, dtype="float32"):
    """A left operand of the cube."""
    return _alloc("T.alloc_L0A", "l0a", shape, dtype)


def alloc_L0B(shape, dtype="float32"):
    """A right operand of the cube."""
    return _alloc("T.alloc_L0B", "l0b", shape, dtype)


def alloc_L0C(shape, dtype="float32"):
    """An accumulator of the cube."""
    return _alloc("T.alloc_L0C", "l0c", shape, dtype)


def alloc_var(dtype, *args, init=None, scope=None):
    """A scalar variable: assigning to its Python name assigns to it."""
    b = current("T.alloc_var")
    dtype = DType(dtype)
    rest = [a for a in args if not isinstance(a, str)]
    for s in [a for a in (*args, scope) if isinstance(a, str)]:
        _scope("T.alloc_var", "local", s)
    if len(rest) > 1 or (rest and init is not None):
        fail(
            1004,
            f"T.alloc_var takes one initial value, not {len(rest) + (init is not None)}",
            fix="T.alloc_var(dtype, init=value)",
        )
    value = rest[0] if rest else (0 if init is None else init)
    value = whole(value, dtype, "the variable")
    v = MutVar(dtype, here())
    b.emit(["var ", v, f": {dtype.ir} = ", cast(wrap(value, dtype), dtype)], "var")
    return v


def empty(*shape, dtype=None):
    """A new output tensor of an eager kernel: `C = T.empty((M, N), T.float16)`, then `return C`."""
    b = current("T.empty")
    if len(shape) == 2 and isinstance(shape[0], (tuple, list)) and dtype is None:
        shape, dtype = shape[0], shape[1]
    elif len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    elif len(shape) > 1 and isinstance(shape[-1], str):
        shape, dtype = shape[:-1], shape[-1]
    if b.eager is None:
        fail(
            1006,
            "T.empty in a prim_func",
            fix="make the output a parameter, and name it in out_idx=[-1]; T.empty is for kernels under @tilelang.jit",
        )
    buf = Buffer(None, dims(shape, "a tensor"), DType(dtype or "float32"), "gm", here())
    b.params.append(buf)
    b.outs.append(buf)
    return buf


def alloc_global(shape, dtype="float32"):
    """A scratch tensor in global memory for all blocks and all launches of one kernel; it holds nothing at first."""
    b = current("T.alloc_global")
    buf = Buffer(None, dims(shape, "a tensor"), DType(dtype), "gm", here())
    b.params.append(buf)
    b.scratch.append(buf)
    return buf


def _names(what, text):
    names = text.replace(",", " ").split() if isinstance(text, str) else []
    if not names or not all(n.isidentifier() for n in names):
        fail(1004, f"{what} of {describe(text)}", fix=f"names: M, N = {what}('M, N')")
    return names


def symbolic(name, dtype=int32):
    """A size known at call time, read from the tensor that has it as a dimension. "M, N" gives two."""
    names = _names("T.symbolic", name)
    made = tuple(Var(n, dtype, "sym") for n in names)
    return made[0] if len(made) == 1 else made


dynamic = symbolic


def const(names, dtype=int32):
    """Sizes known at compile time, read from the tensors of an eager kernel."""
    b = active()
    if b is None or b.eager is None:
        fail(
            1006,
            "T.const outside an eager kernel",
            fix="an eager kernel, under @tilelang.jit, opens T.Kernel itself; in a prim_func take the sizes from the "
            "enclosing function; T.symbolic for sizes known at call time",
        )
    names = _names("T.const", names)
    made = tuple(b.eager.const(n, dtype) for n in names)
    return made[0] if len(made) == 1 else made


def annotate_address(addresses):
    """Byte addresses of buffers, by hand: {buffer: offset}."""
    current("T.annotate_address")
    if not isinstance(addresses, dict):
        fail(1004, f"T.annotate_address of {describe(addresses)}", fix="{buffer: byte, ...}")
    for buf, offset in addresses.items():
        if not isinstance(buf, Buffer) or buf.space == "gm":
            fail(1004, f"T.annotate_address of {describe(buf)}", fix="a buffer of T.alloc_*")
        buf.addr = as_index(offset, "an address")
        if not isinstance(buf.addr, int) or buf.addr < 0:
            fail(1004, f"the address {buf.addr!r} of {describe(buf)}", fix="a number of bytes, known to Python")
