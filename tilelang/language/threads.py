"""Threads of a block by number, as mainline TileLang has them. frontend/threads.py makes tiles of what they do."""

from ..errors import Rightly, fail
from ..frontend.builder import current
from ..frontend.expr import Element, Expr, Var, binary, const, describe, to_bool, value_of, wrap
from .reducer import neutral

_AXES = {"threadIdx.x": 0, "threadIdx.y": 1, "threadIdx.z": 2}


def _threads(what):
    b = current(what)
    if b.live:
        fail(1002, f"{what} in a kernel that is interpreted: it runs block by block", fix="call the kernel itself")
    if b.threads is None or b.parallel:
        fail(1006, f"{what} {'inside T.Parallel' if b.parallel else 'outside T.Kernel'}",
             fix="ask for the thread in T.Kernel, before T.Parallel")  # fmt: skip
    return b.threads


def get_thread_binding(dim=0):
    """The index of the thread in dimension `dim` of T.Kernel(threads=)."""
    return _threads("T.get_thread_binding").index(dim)


def get_thread_bindings():
    """Its three indices."""
    return tuple(_threads("T.get_thread_bindings").index(d) for d in range(3))


def thread_binding(start, stop, thread="threadIdx.x", **hints):
    """The index of the thread by name; `start` is 0 and `stop` what T.Kernel(threads=) says."""
    threads = _threads("T.thread_binding")
    if thread not in _AXES:
        fail(1002, f"T.thread_binding of {describe(thread)}", fix="threadIdx.x, .y or .z; blocks come from T.Kernel")
    axis = _AXES[thread]
    there = threads.extents[axis] if axis < len(threads.extents) else 1
    if value_of(start) != 0 or value_of(stop) != there:
        fail(
            1004,
            f"T.thread_binding from {describe(start)} to {describe(stop)}; T.Kernel has {there} there",
            fix=f"T.thread_binding(0, {there})",
        )
    return threads.index(axis)


def sync_threads(*args):
    """Nothing to do: statements are done one after the other, each for all threads."""
    current("T.sync_threads")


sync_warp = syncthreads = sync_threads


class comm_reducer(metaclass=Rightly):
    """How T.tvm_thread_allreduce brings two values together: `lambda x, y: x + y`, T.max or T.min of them."""

    spoken = "T.comm_reducer"

    def __init__(self, function, identity=()):
        x, y = Var("x", "float32", "let"), Var("y", "float32", "let")
        e = function(x, y) if callable(function) else function
        if not isinstance(e, Expr) or e.op not in ("+", "max", "min") or {id(a) for a in e.args} != {id(x), id(y)}:
            fail(1002, f"a reduction of threads by {e!r}", fix="x + y, T.max(x, y) or T.min(x, y)")
        self.op = e.op


class attr(metaclass=Rightly):
    """`with T.attr(T.comm_reducer(...), "reduce_scope", ...)`: the reducer of what stands in it."""

    spoken = "T.attr"

    def __init__(self, node, key, value=None):
        self.node, self.key = node, key
        if not isinstance(node, comm_reducer):
            current("T.attr").note(f"T.attr({key!r}) has no effect here")

    def __enter__(self):
        b = current("T.attr")
        self.before = b.reducer
        b.reducer = self.node if isinstance(self.node, comm_reducer) else b.reducer

    def __exit__(self, *exc):
        current("T.attr").reducer = self.before


def evaluate(value):
    """A call for its effect."""
    return value


def tvm_thread_allreduce(count, value, where, result, *over, dtype=None):
    """result := the sum (maximum, minimum) of `value` over the threads that differ in `over`; each of them gets it."""
    what = "T.tvm_thread_allreduce"
    threads = _threads(what)
    b = current(what)
    mine = [id(v) for v in threads.vars.values()]
    over = [v for v in over if value_of(v) != 0]  # one thread is no choice
    if value_of(count) != 1 or not isinstance(result, Element) or any(id(v) not in mine for v in over):
        fail(
            1004,
            f"{what} takes 1, a value, a condition, an element and threads of T.get_thread_binding",
            fix="T.tvm_thread_allreduce(T.uint32(1), value, True, element, thread)",
        )
    if b.reducer is None:
        fail(
            1006,
            f"{what} outside `with T.attr(T.comm_reducer(...), ...)`",
            fix="with T.attr(T.comm_reducer(...), 'reduce_scope', ...):",
        )
    where, op = to_bool(where), b.reducer.op
    start = neutral(op, result.dtype)
    value = wrap(value).astype(result.dtype)
    if value_of(where) is not True:
        value = (
            binary("*", value, where.astype(value.dtype))
            if op == "+"
            else fail(
                1002, f"{what} with a condition", fix="leave the condition True, and give 0 where it does not hold"
            )
        )
    result.buf.written = True
    b.emit([result, op, value, over, start], "exchange")


__all__ = """get_thread_binding get_thread_bindings thread_binding sync_threads sync_warp syncthreads comm_reducer attr
evaluate tvm_thread_allreduce""".split()
