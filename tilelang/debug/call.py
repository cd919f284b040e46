"""A call of a kernel, prepared so that tools can run it many times: arguments as numpy arrays in the order of the IR
text's parameters, copied for each run."""

import json

import numpy as np

from ..errors import ArgumentError
from ..frontend.expr import evaluate
from .interpret import over, poison
from .load import Loader, program


class Call:
    """`text`: the IR; `given`: what the caller passed; `written`: parameter numbers of outputs, outputs first made."""

    def __init__(self, kernel, args, kwargs):
        got, views, scalars, env, other, _, _ = kernel._bind(args, kwargs)
        k, *rest = kernel._launches(other)
        if rest:
            raise ArgumentError(
                f"{kernel.name} launches several kernels one after the other; this tool takes one",
                "put each T.Kernel into a prim_func of its own and look at the one that is wrong",
            )
        self.text, self.paths, self.name = k.text, k.traced.builder.paths, k.name
        self.options = k._lower_options()
        self.given = list(args)
        n = len(k.sizes)
        self.base = [env[name] for name in k.sizes]
        for i, p in enumerate(k.params):
            if p.kind == "scalar":
                self.base.append(scalars[i])
            else:
                array = over(views[i], p.dtype)
                made = p.role != "in" and i not in got
                self.base.append(poison(array.shape, p.dtype) if made else array.copy())
        outs = k.out_idx or sorted(k.written - set(k.workspace_idx))
        self.written = [i + n for i in outs]

    def program(self, text=None):
        return program(text or self.text, self.name + ".tl", self.paths)

    def arguments(self, base=None):
        """A fresh copy of every argument."""
        return [a.copy() if isinstance(a, np.ndarray) else a for a in (self.base if base is None else base)]

    def workspaces(self, p):
        """Tensors that lowering added to the parameters of a core Program."""
        return self.added(Loader(json.loads(p.program_json()), {}).program())

    def added(self, prog):
        """The same for a Program of a later stage."""
        sizes = {q.name: v for q, v in zip(prog.params, self.base)}
        return [poison(tuple(int(evaluate(s, sizes)) for s in q.shape), q.dtype) for q in prog.params[len(self.base) :]]
