"""Loops of a kernel."""

from ..errors import fail, warn
from ..frontend.builder import active, current
from ..frontend.expr import Var, as_index, binary, decided, describe, dims, shape_text, show, value_of, wrap
from ..frontend.hooks import RuntimeLoop
from .dtypes import int32

_UNROLL_LIMIT = 64


def _bounds(what, args, start=None, stop=None, step=None):
    """(begin, end, step) of bounds by place, as of Python's range, or by name."""
    args = (start,) * (start is not None) + args + (stop,) * (stop is not None)
    if step is not None and args:
        args = (0, *args)[-2:] + (step,) if len(args) < 3 else (*args, step)
    if not 1 <= len(args) <= 3:
        fail(1004, f"{what} takes 1 to 3 bounds, not {len(args)}", fix=f"{what}(n), or {what}(begin, end, step)")
    lo, hi, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) == 3 else 1)
    lo, hi, step = (as_index(v, f"a bound of {what}") for v in (lo, hi, step))
    if isinstance(step, int) and step == 0:
        fail(1004, f"{what} with step 0", fix="a step other than 0, or `while` with a variable of the chip")
    return lo, hi, step


class _Serial(RuntimeLoop):
    def __init__(self, lo, hi, step, stages=0):
        self.bounds, self.stages = (lo, hi, step), stages

    def begin(self, b, names):
        lo, hi, step = self.bounds
        name = names[0] if isinstance(names, tuple) and len(names) == 1 else names
        if isinstance(step, int) and step < 0:
            return self.down(b, name, isinstance(names, tuple))
        v = Var(name if isinstance(name, str) and name != "_" else "i", wrap(hi, int32).dtype, "loop")
        if isinstance(lo, int) and isinstance(hi, int) and lo < hi:
            v.range = (lo, hi - 1)
        head = ["for ", v, " in ", wrap(lo, int32), "..", wrap(hi, int32)]
        if not isinstance(step, int) or step != 1:
            head += [" step ", wrap(step, int32)]
        if self.stages:
            head.append(f" pipeline({self.stages})")
        b.open("for", head, self.at)
        return (v,) if isinstance(names, tuple) else v

    def down(self, b, name, many):
        """Counting down: the loop of the chip counts the runs."""
        lo, hi, step = self.bounds
        runs = as_index((lo - hi - step - 1) // -step)
        v = Var("i", int32, "loop")
        if isinstance(runs, int) and runs > 0:
            v.range = (0, runs - 1)
        b.open("for", ["for ", v, " in ", wrap(0, int32), "..", wrap(runs, int32)], self.at)
        index = b.let(name if isinstance(name, str) else "i", wrap(lo - v * -step))
        return (index,) if many else index

    def end(self, b):
        b.close()
        lo, hi, step = self.bounds
        if isinstance(step, int) and step < 0:
            lo, hi = hi, lo
        if isinstance(lo, int) and isinstance(hi, int) and hi <= lo:
            b.blocks[-1].pop()  # the body never runs: what it says need not hold


def _forward(step):
    """A step known at run time only, which must be positive: the chip compares in one direction."""
    from .debug import device_assert

    b = active()
    if isinstance(step, int) or b is None or not b.kernel_open:
        return step
    step = step if step.pure else b.let("step", step)
    device_assert(step > 0, "a step that is known only at run time must be positive")
    return step


def serial(*args, start=None, stop=None, step=None):
    """`for i in T.serial(n)` or `(lo, hi[, step])`: a loop of the chip, one run after another. `range` is the same."""
    current("T.serial")
    lo, hi, step = _bounds("T.serial", args, start, stop, step)
    return _Serial(lo, hi, _forward(step))


def Pipelined(
    *args,
    num_stages=0,
    order=None,
    stage=None,
    sync=None,
    group=None,
    cross_interval=None,
    annotations=None,
    stop=None,
    start=None,
):
    """A serial loop whose copies may run ahead of its computation by `num_stages` tiles."""
    b = current("T.Pipelined")
    for name, value in (("order", order), ("stage", stage), ("sync", sync), ("group", group)):
        if value is not None:
            warn(
                f"T.Pipelined({name}=...) has no effect: "
                "the order of the statements is kept and overlap comes from num_stages"
            )
    if cross_interval not in (None, 1):
        b.note("T.Pipelined(cross_interval=...) has no effect here")
    lo, hi, step = _bounds("T.Pipelined", args, start, stop)
    if not isinstance(num_stages, int) or not 0 <= num_stages <= 64:
        fail(1004, f"T.Pipelined with num_stages={describe(num_stages)}", fix="a Python number from 0 to 64")
    return _Serial(lo, hi, step, num_stages)


class _Grid(RuntimeLoop):
    """Loops in one another."""

    def __init__(self, loops):
        self.loops, self.depth = loops, len(loops)

    def run(self, names):
        if isinstance(names, tuple) and len(names) != self.depth:
            fail(
                1004,
                f"T.grid has {self.depth} extents, {len(names)} names take them",
                fix="a name for each extent: for i, j in T.grid(m, n):",
            )
        many = self.depth > 1 or isinstance(names, tuple)
        each = names if isinstance(names, tuple) else (names,) * self.depth
        for index in self.nest(self.loops, each):
            yield index if many else index[0]

    def nest(self, loops, names):
        for i in loops[0].run(names[0]):
            if len(loops) == 1:
                yield (i,)
            else:
                for rest in self.nest(loops[1:], names[1:]):
                    yield (i, *rest)


def grid(*extents):
    """`for i, j in T.grid(m, n)`: loops of the chip in one another, the last index fastest."""
    current("T.grid")
    if not extents:
        fail(1004, "T.grid without an extent", fix="for i, j in T.grid(m, n):")
    return _Grid([_Serial(*_bounds("T.grid", (e,))) for e in extents])


class _Parallel(RuntimeLoop):
    single = False

    def __init__(self, extents):
        self.extents = extents

    def begin(self, b, names):
        many = len(self.extents) > 1
        flat = names if isinstance(names, tuple) else (names,)
        if isinstance(names, tuple) and len(names) != len(self.extents):
            fail(
                1004,
                f"T.Parallel has {len(self.extents)} extents, {len(names)} names take them",
                fix="a name for each extent: for i, j in T.Parallel(m, n):",
                at=self.at,
            )
        default = ("i", "j", "k", "l", "m", "n")
        flat = [
            n if isinstance(n, str) and n != "_" and len(flat) == len(self.extents) else d
            for n, d in zip(tuple(flat) + default[len(flat) :], default)
        ]
        self.vars = [Var(n, int32, "loop") for n, _ in zip(flat, self.extents)]
        head = ["parallel "]
        for n, (v, e) in enumerate(zip(self.vars, self.extents)):
            head += [", " if n else "", v, ": ", wrap(e, int32)]
        outer = b.blocks[-1]
        self.stmt = b.open("parallel", head, self.at)
        self.outer, self.depth = outer, len(b.parallel)
        b.parallel += self.vars
        return tuple(self.vars) if many or isinstance(names, tuple) else self.vars[0]

    def end(self, b):
        del b.parallel[self.depth :]
        body = self.stmt.body
        if len(body) == 1 and body[0].kind == "parallel":  # nested T.Parallel is one loop
            inner = body[0]
            self.stmt.head += [", "] + inner.head[1:]
            self.stmt.body = inner.body
        elif any(s.kind == "parallel" for s in body):
            fail(
                1006,
                "a T.Parallel beside other statements of an outer T.Parallel",
                fix="use T.serial for the outer loop",
                at=self.at,
            )
        b.close()
        if any(isinstance(e, int) and e == 0 for e in self.extents) and self.stmt in self.outer:
            self.outer.remove(self.stmt)  # the body never runs: what it says need not hold


def Parallel(*extents):
    """`for i, j in T.Parallel(m, n)`: independent iterations over a box. In `c[i, j] += a[i, k] * b[k, j]` an index
    that the left side does not have is summed over."""
    current("T.Parallel")
    if not 1 <= len(extents) <= 6:
        fail(1004, f"T.Parallel takes 1 to 6 extents, not {len(extents)}", fix="for i, j in T.Parallel(64, 64):")
    extents = dims(extents, "T.Parallel")
    if any(isinstance(e, int) and e < 0 for e in extents):
        fail(1004, f"T.Parallel over {shape_text(extents)}", fix="extents are at least 0")
    return _Parallel(extents)


def unroll(*args, start=None, stop=None, step=None):
    """A loop that Python runs: its index is a Python number. Long or run-time ones become T.serial, with a warning."""
    current("T.unroll")
    lo, hi, step = _bounds("T.unroll", args, start, stop, step)
    if all(isinstance(v, int) for v in (lo, hi, step)) and (hi - lo) // step <= _UNROLL_LIMIT:
        return range(lo, hi, step)
    why = (
        "its bounds are known only at run time"
        if not all(isinstance(v, int) for v in (lo, hi, step))
        else f"it has more than {_UNROLL_LIMIT} iterations"
    )
    warn(f"T.unroll has no effect: {why}; the loop is T.serial")
    return _Serial(lo, hi, step)


class _Persistent(RuntimeLoop):
    """Tiles of a 2-D (or n-D) domain dealt out to `wave` blocks; groups of columns for reuse of the rows."""

    single = False

    def __init__(self, domain, wave, index, group):
        self.domain, self.wave, self.index, self.group = domain, wave, index, group

    def begin(self, b, names):
        total = 1
        for d in self.domain:
            total = as_index(wrap(total) * d)
        waves = as_index((wrap(total) + self.wave - 1) // self.wave)
        v = Var("w", int32, "loop")
        if isinstance(waves, int) and waves > 0:
            v.range = (0, waves - 1)
        if not decided(binary("<", wrap(v * self.wave + self.index), wrap(total))):  # some blocks have a tile less
            waves = as_index((wrap(total) - self.index + self.wave - 1) // self.wave)
        b.open("for", ["for ", v, " in ", wrap(0, int32), "..", wrap(waves, int32)], self.at)
        t = b.let("tile", wrap(v * self.wave + self.index))
        last = self.domain[-1]
        group = (
            next(g for g in range(min(self.group, last), 0, -1) if last % g == 0)
            if isinstance(last, int) and last > 0
            else 1
        )
        place, rest = t % group, t // group
        out = []
        for d in reversed(self.domain[:-1]):
            out.insert(0, rest % d)
            rest = rest // d
        out.append(rest * group + place)
        flat = names if isinstance(names, tuple) and len(names) == len(out) else (names,) * len(out)
        if len(out) == 1 and not isinstance(names, tuple):  # `for t in T.Persistent([n], ...)`
            return b.let(names if isinstance(names, str) else "t0", wrap(out[0]))
        return tuple(b.let(n if isinstance(n, str) else f"t{k}", wrap(e)) for k, (n, e) in enumerate(zip(flat, out)))

    def end(self, b):
        b.close()


def Persistent(domain, wave_size, index, group_size=8):
    """`for i, j in T.Persistent([m, n], cores, cid)`: each of `wave_size` blocks takes every wave_size-th tile."""
    current("T.Persistent")
    group = value_of(group_size)
    if not isinstance(group, int) or group < 1:
        fail(1004, f"T.Persistent with group_size={show(group_size)}", fix="a Python number from 1 on")
    return _Persistent(dims(domain, "T.Persistent"), as_index(wave_size), wrap(index), group)


def loop_break():
    """Leaves the innermost run-time loop, as `break` does."""
    current("T.loop_break").emit(["break"], "break")


def vectorized(*args, start=None, stop=None, step=None):
    """A serial loop: vector instructions come from T.Parallel."""
    b = active()
    if b is not None and not (b.threads and b.threads.vars):
        warn("T.vectorized has no effect: the loop is T.serial; T.Parallel becomes vector instructions")
    return serial(*args, start=start, stop=stop, step=step)


Serial, Unroll, Vectorized = serial, unroll, vectorized
