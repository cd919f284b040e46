"""`interpret(text, *args)`: a kernel's IR text executed statement by statement with numpy.

A second opinion: it shares neither the passes nor the simulator with a call of the kernel. It runs every level of the
IR as written, in program order: no pipes, no flags within a core, no address is shared.
"""

import numpy as np

from ..errors import ArgumentError, _short, counted, warn
from ..frontend.expr import Buffer, Var
from ..language.dtypes import DType
from ..tensors import stored
from .arith import const, np_dtype
from .live import replay
from .load import program
from .machine import Lane, Run


def as_array(obj, dtype, who="an argument"):
    """A tensor of the caller as a numpy array over the same bytes."""
    from ..tensors import check, check_contiguous, view

    v = view(obj, who)
    check(v, who, dtype, None)
    check_contiguous(v, who)
    return over(v, dtype)


def over(v, dtype):
    """The bytes of a tensors.View as a numpy array."""
    import ctypes

    shape, _ = stored(v.shape, v.dtype)
    n = int(np.prod(shape)) * DType(dtype).itemsize
    if n == 0:
        return np.zeros(shape, np_dtype(dtype))
    return np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(v.address)).view(np_dtype(dtype)).reshape(shape)


def run(prog, arrays, scalars, sizes=None, title=""):
    """A machine.Run of a Program: `arrays` and `scalars` by parameter number. Workspaces that are left out are made.
    `title`: what the launch is called in messages."""
    tensors, values, made = {}, {}, set()
    for i, p in enumerate(prog.params):
        if isinstance(p, Var):
            values[id(p)] = const(scalars[i], p.dtype)
    out = Run(prog, tensors, values, sizes, title)
    scope = Lane(out, (), None, 0, 0)
    for i, p in enumerate(prog.params):
        if isinstance(p, Buffer):
            shape = tuple(int(scope.value(s)) for s in p.shape)
            if i not in arrays:
                arrays[i] = poison(shape, p.dtype)
                made.add(i)
            if arrays[i].shape != shape:
                raise ArgumentError(
                    f"{prog.name}: '{p.name}' has shape {arrays[i].shape}, wanted {shape}",
                    "give a tensor of that shape",
                )
            tensors[id(p)] = arrays[i]
            if p.mark or i in made:
                out.unwritten[id(arrays[i])] = np.ones(shape, np.bool_)
    return out


def poison(shape, dtype):
    """An array that nothing has written: bytes of ones (NaN, -1)."""
    n = int(np.prod(shape)) * DType(dtype).itemsize
    return np.full(n, 0xFF, np.uint8).view(np_dtype(dtype)).reshape(shape)


def interpret(text, args, paths=None):
    """Runs IR text. `args`: a tensor or number for each parameter, in order; None for a tensor makes one (poisoned).
    Returns {parameter name: array} of the tensors; arrays given are written in place."""
    prog = program(text, paths=paths)
    given = list(args) + [None] * (len(prog.params) - len(args))
    if len(args) > len(prog.params):
        raise ArgumentError(
            f"{prog.name} takes {counted(len(prog.params), 'argument')}, {len(args)} given",
            "a tensor or a number for each parameter; None is a tensor full of NaN",
        )
    arrays, scalars = {}, {}
    for i, (p, a) in enumerate(zip(prog.params, given)):
        if isinstance(p, Var):
            if a is None:
                raise ArgumentError(
                    f"{prog.name}: no value for the scalar '{p.name}'", "a number for each scalar parameter"
                )
            scalars[i] = a
        elif a is not None:
            arrays[i] = as_array(a, p.dtype, f"{prog.name}: argument '{p.name}'")
    run(prog, arrays, scalars).go()
    return {p.name: arrays[i] for i, p in enumerate(prog.params) if isinstance(p, Buffer)}


def interpret_kernel(kernel, args, kwargs):
    """A call of a Kernel, interpreted: its Python function runs again, so that what stands in it sees values."""
    from ..tensors import give_back

    got, views, scalars, sizes, other, results, kind = kernel._bind(args, kwargs)
    for k, title in titled(kernel._launches(other)):
        _interpret(k, title, views, scalars, sizes)
    for put_back in views.back:
        put_back()
    outs = [give_back(kind, results[i]) if i in results else got[i] for i in kernel.out_idx]
    return None if not outs else outs[0] if len(outs) == 1 else outs


def titled(kernels):
    """[(launch of a call, what to call it)]; "" when it is the only one."""
    if len(kernels) == 1:
        return [(kernels[0], "")]
    places = [k.traced.builder.launched for k in kernels]
    names = [f"launch {n + 1} of {len(kernels)} ({_short(file)}:{line})" for n, (file, line, _) in enumerate(places)]
    return list(zip(kernels, names))


def _interpret(k, title, views, scalars, sizes):
    prog = program(k.text, k.name + ".tl", k.traced.builder.paths)
    n = len(k.sizes)  # the text names them first
    values = {i: sizes[name] for i, name in enumerate(k.sizes)}
    values.update((i + n, v) for i, v in scalars.items())
    arrays = {i: over(v, k.params[i].dtype) for i, v in views.items()}
    made = run(prog, {i + n: a for i, a in arrays.items()}, values, sizes, title)
    if " i4x2[" in k.text:  # shapes of the text count bytes, those of the Python function values
        text = "a kernel with int4 is interpreted from its IR text: Python in it sees no values"
        warn(text, at=k.traced.builder.launched)
        made.go()
    else:
        made.go(lambda lane: replay(k, lane, arrays, scalars))
