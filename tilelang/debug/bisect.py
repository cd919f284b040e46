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
from .compare import TOLERANCE, wide
from .call import copied
from .core import lowered, stages

SCHEDULES = (0, 1, 2, 3)
SAME = "no pass changes the numbers, and neither does the simulated chip"


class Bisection:
    """`stage`: the pass after which numbers change, or None; `before`, `after`: the IR; `what`: the change in words;
    `launch`: which launch of several it is, in words."""

    launch = ""

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
        which = self.launch and f"{self.launch}: "
        if not self:
            return which + self.what
        return f"{which}pass '{self.stage}': {self.what}\n\n{self.diff()}"

    __repr__ = __str__


def results(launch, base, text):
    """(the tensors afterwards, None) of a text that is interpreted, or (None, the fault)."""
    tensors = copied(base)
    try:
        launch.interpreted(tensors, text)
    except KernelFault as e:
        return None, e.diagnostics[0]
    return tensors, None


def apart(call, launch, was, now, rtol):
    """What differs, in words, or None."""
    for i in call.results(launch):
        p, a, b = call.params[i], was[i], now[i]
        x, y = wide(a), wide(b)
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


def _simulated(launch, base, text, schedule):
    p = lowered(text, launch.paths, chip=launch.options.get("chip"))
    tensors = copied(base)
    faults = launch.simulate(p, tensors, checks=False, schedule=schedule)
    return (None, faults[0]) if faults else (tensors, None)


def bisect(call, rtol=None):
    """Interprets a call's text after each pass, launch after launch; see Kernel.bisect."""
    base = call.tensors()
    for launch in call.launches:
        found = _of_launch(call, launch, base, rtol)
        if found or found.what != SAME:
            found.launch = launch.title
            return found
        launch.interpreted(base)
    return Bisection(None, "", "", SAME) if len(call.launches) != 1 else found


def _of_launch(call, launch, base, rtol):
    try:
        steps = stages(launch.text, launch.paths, **launch.options)
    except CompileError as e:
        return Bisection(None, launch.text, launch.text, f"a pass refuses the program:\n{e}")
    return between(call, launch, base, steps, rtol)


def between(call, launch, base, steps, rtol=None):
    """The first of the texts [(pass, text)] of a launch that changes numbers; `base`: the tensors before it."""
    was, fault = results(launch, base, launch.text)
    if fault:
        return Bisection(None, launch.text, launch.text, f"the program as written has a fault:\n{fault}")
    before = launch.text
    for name, text in steps:
        now, fault = results(launch, base, text)
        what = f"the interpreter finds a fault after it:\n{fault}" if fault else apart(call, launch, was, now, rtol)
        if what:
            return Bisection(name, before, text, what)
        before = text
    last = steps[-1][1]
    for schedule in SCHEDULES:
        ran, fault = _simulated(launch, base, last, schedule)
        what = str(fault) if fault else apart(call, launch, was, ran, rtol)
        if not what:
            continue
        order = "" if schedule == 0 else f" (another order of the pipes, schedule {schedule})"
        ran, fault = _simulated(launch, base, serial(last), 0)
        texts = {name: text for name, text in steps}
        if not fault and apart(call, launch, was, ran, rtol) is None:
            why = "with a barrier behind every instruction the numbers are right: flags are missing"
            return Bisection("sync", texts.get("memplan", last), last, f"{what}{order}; {why}")
        why = "the values are right and stand in wrong bytes: addresses overlap, or an instruction is simulated wrongly"
        return Bisection("memplan", texts.get("legalize", last), last, f"{what}{order}; {why}")
    return Bisection(None, launch.text, last, SAME)
