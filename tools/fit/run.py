"""Times experiments; a program is lowered once and kept, and so is every result."""

import json

from points import EXPERIMENTS

from tilelang import _core


class Runner:
    """small: smaller runs of the same kernels (Experiment.smaller)."""

    def __init__(self, small=False):
        self.experiments = {n: e.smaller() if small else e for n, e in EXPERIMENTS.items()}
        self.programs = {}
        self.results = {}

    def key(self, name):
        e = self.experiments[name]
        return e.chip, e.make.__name__, str(e.args), str(sorted(e.kwargs.items()))

    def program(self, name):
        key = self.key(name)
        if key not in self.programs:
            text, shapes = self.experiments[name].text()
            p = _core.Program()
            if not (p.load(name, text) and p.lower()):
                raise RuntimeError(f"{name}:\n{text}\n{p.diags_text()}")
            self.programs[key] = p, [(0, s) for s in shapes]
        return self.programs[key]

    def time(self, name, constants=None):
        """The JSON of tl_time as a dictionary, without what nobody asks for."""
        text = ",".join(f"{k}={v!r}" for k, v in sorted((constants or {}).items()))
        key = (*self.key(name), text)
        if key not in self.results:
            p, args = self.program(name)
            ok, _ = p.time(args, l2_warm=self.experiments[name].warm, constants=text or None)
            if not ok:
                raise RuntimeError(f"{name}: {p.diags_text()}")
            j = json.loads(p.time_json())
            del j["statements"]
            self.results[key] = j
        return self.results[key]
