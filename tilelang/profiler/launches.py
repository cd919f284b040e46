"""The profiles of a call that launches several kernels, one after the other."""

import functools

import numpy as np

SUMS = ("us", "cycles", "blocks", "instructions", "gm_read_bytes", "gm_write_bytes", "hbm_read_bytes",
        "hbm_write_bytes", "hbm_moved_bytes", "compute_only_us", "copy_only_us", "overhead_us", "flops")  # fmt: skip


class Launches(list):
    """A list of Profile. us, cycles, bytes, compute_only_us and so on are the sums of theirs; pipe_ratio is over the
    time that the cores ran, l2_hit over the bytes read; lines and advice are those of all, dearest first. save_trace
    and save_html show them one after the other. results: as of a Profile."""

    results = None

    def __getattr__(self, name):
        if name in SUMS:
            return sum(getattr(p, name) for p in self)
        raise AttributeError(f"profiles of {len(self)} launches have no attribute '{name}'; each of them may")

    def _mean(self, value, weight):
        whole = sum(weight(p) for p in self)
        return sum(value(p) * weight(p) for p in self) / whole if whole else 0.0

    @property
    def name(self):
        return ", ".join(p.name for p in self)

    @property
    def chip(self):
        return self[0].chip

    @property
    def pipe_ratio(self):
        return {
            pipe: self._mean(
                lambda p, pipe=pipe: p.pipe_ratio[pipe],
                lambda p, pipe=pipe: sum(p.core_us(side) for side in ("cube", "vector") if p.has(side, pipe)),
            )
            for pipe in self[0].pipe_ratio
        }

    @property
    def l2_hit(self):
        return self._mean(lambda p: p.l2_hit, lambda p: p.gm_read_bytes)

    @property
    def overlap(self):
        return self._mean(lambda p: p.overlap, lambda p: p.shorter_us)

    @property
    def lines(self):
        return [line for _, line in sorted(((-x.share * p.us, x) for p in self for x in p.lines), key=lambda y: y[0])]

    @property
    def advice(self):
        return [f"{p.name}: {a}" for p in sorted(self, key=lambda p: -p.us) for a in p.advice]

    # ---- one timeline -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _joined(self):
        """cores, statements, events of all launches; a core is the same one in each of them."""
        cores, number, statements, joined, first, began = [], {}, [], [], 0, 0.0
        for p in self:
            for c in p.cores:
                if number.setdefault((c["kind"], c["number"]), len(cores)) == len(cores):
                    cores.append(c)
            place = np.array([number[c["kind"], c["number"]] for c in p.cores], "i4")
            events = p.events.copy()
            events["core"] = place[events["core"]]
            events["statement"] += len(statements)
            events["cause"][events["cause"] >= 0] += first
            for time in ("start_us", "end_us"):
                events[time] += began
            joined.append(events)
            statements += p.statements
            first += len(events)
            began += p.us
        return cores, statements, np.concatenate(joined)

    cores = property(lambda self: self._joined[0])
    statements = property(lambda self: self._joined[1])
    events = property(lambda self: self._joined[2])

    @property
    def n_events(self):
        return sum(p.n_events for p in self)

    @functools.cached_property
    def lanes(self):
        from .profile import lanes_of

        return lanes_of(self.events)

    # ---- views ------------------------------------------------------------------------------------------------------

    def to_dict(self):
        """{"us", "launches": [Profile.to_dict()]}"""
        return {"us": self.us, "launches": [p.to_dict() for p in self]}

    def save_trace(self, path):
        """As Profile.save_trace, one launch after the other."""
        from .trace import write_trace

        return write_trace(self, path)

    def save_html(self, path):
        """As Profile.save_html, one launch after the other."""
        from .page import write_page

        return write_page(self, path)

    def save_plots(self, folder, format="svg"):
        """As Profile.save_plots, in a folder for each launch: 0, 1, ... Returns all paths."""
        import os

        return [path for n, p in enumerate(self) for path in p.save_plots(os.path.join(folder, str(n)), format)]

    def __str__(self):
        return f"{len(self)} launches: {self.us:.2f} us\n\n" + "\n".join(str(p) for p in self)
