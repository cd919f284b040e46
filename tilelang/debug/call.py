"""A call of a kernel, prepared so that tools can run it many times: its launches, one for each T.Kernel, and the
tensors they share as numpy arrays by parameter number, copied for each run."""

import ctypes
import json

import numpy as np

from ..frontend.expr import Buffer, evaluate
from .core import lowered, simulate
from .interpret import over, poison, run, titled
from .load import Loader, program
from .machine import root, walk


class Launch:
    """One launch: `text`, its IR; the values of sizes and scalars; `title`: what to call it, "" for the only one."""

    def __init__(self, k, title, env, scalars):
        builder = k.traced.builder
        self.text, self.paths, self.name = k.text, builder.paths, k.name
        self.options = k._lower_options()
        self.sizes = [env[name] for name in k.sizes]
        self.scalars, self.params = scalars, len(k.params)
        self.title = title

    def program(self, text=None):
        return program(text or self.text, self.name + ".tl", self.paths)

    def arguments(self, tensors):
        """The arguments in the order of the text's parameters: `tensors` of the call (by parameter number), numbers."""
        return self.sizes + [self.scalars[i] if i in self.scalars else tensors[i] for i in range(self.params)]

    def number(self, i):
        """Of a parameter of the call in the text."""
        return i + len(self.sizes)

    def writes(self):
        """Numbers of the tensors of the call that the launch writes."""
        prog, found = self.program(), set()
        for s in walk(prog.body):
            found.update(id(root(r.buf)) for r in getattr(s, "outs", ()))
            found.update({id(root(s.buf))} if s.kind == "store" else ())
        return [i for i in range(self.params) if id(prog.params[self.number(i)]) in found]

    def lowered(self):
        return lowered(self.text, self.paths, **self.options)

    def workspaces(self, p):
        """Tensors that lowering added to the parameters of a core Program."""
        return self.added(Loader(json.loads(p.program_json()), {}).program())

    def added(self, prog):
        """The same for a Program of a later stage."""
        known = self.params + len(self.sizes)
        scalars = [self.scalars.get(i) for i in range(self.params)]
        sizes = {q.name: v for q, v in zip(prog.params, self.sizes + scalars) if v is not None}
        return [poison(tuple(int(evaluate(s, sizes)) for s in q.shape), q.dtype) for q in prog.params[known:]]

    def simulate(self, p, tensors, **options):
        """Runs a core Program of the launch; the Diagnostics of its faults."""
        return simulate(p, self.arguments(tensors) + self.workspaces(p), **options)

    def interpreted(self, tensors, text=None, watch=None):
        """Runs the text, or one of a later stage, in the interpreter; `watch(run, arguments)` before it starts."""
        prog = self.program(text)
        args = self.arguments(tensors)
        args += self.added(prog)
        arrays = {i: a for i, a in enumerate(args) if isinstance(a, np.ndarray)}
        made = run(prog, arrays, {i: a for i, a in enumerate(args) if i not in arrays}, title=self.title)
        made.quiet = True
        if watch is not None:
            watch(made)
        made.go()


class Call:
    """`kernel`; `params`, its parameters; `launches`; `written`: numbers of the tensors that are results."""

    def __init__(self, kernel, args, kwargs):
        got, views, scalars, env, other, _, _ = kernel._bind(args, kwargs)
        self.kernel, self.params = kernel, kernel.params
        self.launches = [
            Launch(k, title, env, scalars)
            for k, title in titled(kernel._launches(other))
            if k._program is not None and k._blocks(env, scalars)
        ]
        self.made = {i for i, p in enumerate(kernel.params) if p.role != "in" and i not in got}
        self.base = {i: over(v, kernel.params[i].dtype) for i, v in views.items()}
        self.keep = got, views  # whose memory that is
        self.written = kernel.out_idx or sorted(kernel.written - set(kernel.workspace_idx))

    def results(self, launch):
        """Numbers of the tensors to look at after a launch."""
        return self.written if len(self.launches) == 1 else launch.writes()

    def tensors(self, base=None):
        """A fresh copy of every tensor; those made for the call hold what memory holds that nothing wrote."""
        made = self.made if base is None else ()
        copies = copied(self.base if base is None else base)
        return {i: poison(a.shape, self.params[i].dtype) if i in made else a for i, a in copies.items()}


def copied(arrays):
    """Copies of arrays under the same keys; those that share bytes share them in the copies too."""
    out, end, group = {}, 0, {}

    def put():
        first = min((a.ctypes.data for a in group.values()), default=0)
        raw = (ctypes.c_uint8 * (end - first)).from_address(first)
        raw = np.frombuffer(raw, np.uint8).copy() if group else None
        for i, a in group.items():
            at = a.ctypes.data - first
            out[i] = raw[at : at + a.nbytes].view(a.dtype).reshape(a.shape)

    for i, a in sorted(arrays.items(), key=lambda item: item[1].ctypes.data if item[1].size else 0):
        if not a.size:
            out[i] = a.copy()
            continue
        if group and a.ctypes.data >= end:
            put()
            group = {}
        group[i] = a
        end = max(end, a.ctypes.data + a.nbytes)
    put()
    return out
