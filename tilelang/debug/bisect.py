"""`kernel.bisect`: the first pass after which the numbers change.

The text after every pass is interpreted with the same arguments; the interpreter gives each buffer memory of its own
and needs no flags, so what it shows are the values. Last the lowered program runs on the simulated chip, in the usual
order and in others: when only that differs, addresses (memplan) or flags (sync) are wrong, and a barrier behind every
instruction tells which.
"""

import difflib
import re

import numpy as np

from ..errors import CompileError, KernelFault
from .compare import TOLERANCE
from .core import lowered, simulate, stages
from .interpret import run

SCHEDULES = (0, 1, 2, 3)


class Bisection:
    """`stage`: the pass after which numbers change, or None; `before`, `after`: the IR; `what`: the change in words."""

    def __init__(self, stage, before, after, what):
        self.stage, self.before, self.after, self.what = stage, before, after, what

    def __bool__(self):
        """True when a pass was found."""
        return self.stage is not None

    def diff(self):
        """The IR before and after the pass as a unified diff."""
        names = ("before", "after " + str(self.stage))
        lines = difflib.unified_diff(self.before.split("\n"), self.after.split("\n"), *names, lineterm="", n=2)
        return "\n".join(lines)

    def __str__(self):
        if not self:
            return self.what
        return f"pass '{self.stage}': {self.what}\n\n{self.diff()}"

    __repr__ = __str__


def results(call, text):
    """(arrays of the outputs, None) of a text that is interpreted, or (None, the fault)."""
    prog = call.program(text)
    args = call.arguments()
    args += call.added(prog)
    arrays = {i: a for i, a in enumerate(args) if isinstance(a, np.ndarray)}
    try:
        run(prog, arrays, {i: a for i, a in enumerate(args) if i not in arrays}).go()
    except KernelFault as e:
        return None, e.diagnostics[0]
    return [arrays[i] for i in call.written], None


def apart(call, prog, was, now, rtol):
    """What differs, in words, or None."""
    for i, a, b in zip(call.written, was, now):
        p = prog.params[i]
        x, y = a.astype(np.float64), b.astype(np.float64)
        limit = 4 * TOLERANCE.get(str(p.dtype), 0.0) if rtol is None else rtol
        with np.errstate(all="ignore"):
            finite = np.abs(x[np.isfinite(x)])
            far = np.abs(x - y) > limit * (finite.max() if finite.size else 0.0)
            far = (far | (np.isnan(x) != np.isnan(y)) | (np.isinf(x) != np.isinf(y))) & ~(x == y)
        if far.any():
            at = tuple(int(n) for n in np.argwhere(far)[0])
            index = ", ".join(str(n) for n in at)
            count = f"{int(far.sum())} of {far.size} elements change"
            return f"{p.name}[{index}] was {x[at]:.9g} and is {y[at]:.9g}; {count}"
    return None


def serial(text):
    """A lowered text with a barrier behind every instruction."""
    return re.sub(r"(?m)^( +)(?!.*print )(.* -> .*)$", _barrier, text)


def _barrier(m):
    word = m.group(2).split()[0]
    if word in ("set_flag", "wait_flag", "alloc", "print", "assert"):
        return m.group(0)
    at = m.group(2).rsplit(" @", 1)
    return f"{m.group(0)}\n{m.group(1)}barrier all" + (f" @{at[1]}" if len(at) > 1 else "")


def _simulated(call, text, schedule):
    p = lowered(text, call.paths, chip=call.options.get("chip"))
    args = call.arguments() + call.workspaces(p)
    faults = simulate(p, args, checks=False, schedule=schedule)
    return (None, faults[0]) if faults else ([args[i] for i in call.written], None)


def bisect(call, rtol=None):
    """Interprets a call's text after each pass; see Kernel.bisect."""
    try:
        steps = stages(call.text, call.paths, **call.options)
    except CompileError as e:
        return Bisection(None, call.text, call.text, f"a pass refuses the program:\n{e}")
    return between(call, steps, rtol)


def between(call, steps, rtol=None):
    """The same for texts given as [(pass, text)]."""
    prog = call.program()
    was, fault = results(call, call.text)
    if fault:
        return Bisection(None, call.text, call.text, f"the program as written has a fault:\n{fault}")
    before = call.text
    for name, text in steps:
        now, fault = results(call, text)
        what = f"the interpreter finds a fault after it:\n{fault}" if fault else apart(call, prog, was, now, rtol)
        if what:
            return Bisection(name, before, text, what)
        before = text
    last = steps[-1][1]
    for schedule in SCHEDULES:
        ran, fault = _simulated(call, last, schedule)
        what = str(fault) if fault else apart(call, prog, was, ran, rtol)
        if not what:
            continue
        order = "" if schedule == 0 else f" (another order of the pipes, schedule {schedule})"
        ran, fault = _simulated(call, serial(last), 0)
        texts = {name: text for name, text in steps}
        if not fault and apart(call, prog, was, ran, rtol) is None:
            why = "with a barrier behind every instruction the numbers are right: flags are missing"
            return Bisection("sync", texts.get("memplan", last), last, f"{what}{order}; {why}")
        why = "the values are right and stand in wrong bytes: addresses overlap, or an instruction is simulated wrongly"
        return Bisection("memplan", texts.get("legalize", last), last, f"{what}{order}; {why}")
    return Bisection(None, call.text, last, "no pass changes the numbers, and neither does the simulated chip")
