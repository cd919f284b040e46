"""kernel.profile(): how long a kernel takes on the chip, where the time goes, and what would change it.

The numbers are those of the simulator's clock (`tl_time` in include/tilelang.h; how far they can be trusted:
docs/accuracy.md). A Profile is filled by one timed run; the questions that need other runs - compute alone, copies
alone, what if - are asked of the clock when they are first read.
"""

import functools
import json
import linecache
import math
import re

import numpy as np

from ..errors import ArgumentError, KernelFault, rightly_all
from ..frontend.expr import evaluate
from ..kernel import LAUNCHES, lowered
from ..language.dtypes import numpy_dtype
from .launches import Launches

# Idle reasons of the clock, for people.
REASONS = {
    "start": "no block yet",
    "issue": "the scalar unit had not issued it",
    "flag": "for another pipe",
    "cross": "the other side or another core",
    "barrier": "a barrier",
    "queue": "a full queue",
    "end": "no more work",
}

# How many events are kept at once, and a row of them; in memory as the core's time_events gives them.
MOST_EVENTS = 1_000_000
EVENT = np.dtype([("core", "i4"), ("statement", "i4"), ("cause", "i4"), ("pipe", "S4"), ("start_us", "f8"),
                  ("end_us", "f8")])  # fmt: skip
LONG_ROWS, NO_LATENCY = "rows in GM long and aligned", "transfers without latency"
DEEPER = "one more stage in every T.Pipelined"
SPARE = "without the flags and barriers by hand that order nothing"

# What the clock is asked for each what-if of `Profile.what_if`. All of them only take something away that costs time.
QUESTIONS = {
    "every read in L2": {"l2_all_hit": True},
    "twice the HBM bandwidth": {"hbm_factor": 2.0},
    "twice the L2 bandwidth": {"l2_factor": 2.0},
    LONG_ROWS: {"long_rows": True},
    NO_LATENCY: {"no_latency": True},
    "no UB bank conflicts": {"no_bank_conflicts": True},
    "flags and barriers free": {"free_flags": True},
}


class Line:
    """What one Python line costs, over all cores.

    busy_us {pipe: us}, wait_us {reason: us}   sums over the cores; of pipe s: to issue the line's instructions, and its
                                               own work on single elements
    slowed_us                                  part of busy_us that transfers lost to others on HBM and L2
    gm_bytes, count                            bytes through global memory; instructions
    share, pipe                                busy share (0..1) of the cores' time on the pipe that it keeps longest
    wait_share                                 share of the kernel's time that a pipe of a core waits there, at most
    """

    __slots__ = ("file", "line", "busy_us", "wait_us", "slowed_us", "gm_bytes", "count", "share", "pipe", "wait_share",
                 "source")  # fmt: skip

    def __init__(self, file, line):
        self.file, self.line, self.source, self.pipe = file, line, "", ""
        self.busy_us, self.wait_us = {}, {}
        self.slowed_us = self.share = self.wait_share = 0.0
        self.gm_bytes = self.count = 0

    def to_dict(self):
        return {k: getattr(self, k) for k in self.__slots__}

    def __repr__(self):
        return f"<line {self.file}:{self.line}: {self.share:.1%} of {self.pipe or 'no pipe'}, {self.source.strip()}>"


def lanes_of(events):
    """{(core, pipe)} of events."""
    return {(core, pipe.decode()) for core, pipe in np.unique(events[["core", "pipe"]]).tolist()}


def profile(kernel, args, kwargs):
    """A Profile of one launch, or Launches: see Kernel.profile."""
    from ..tensors import is_tensor

    found, results = Launches(), None
    if kernel.device == "sim" and any(is_tensor(a) for a in [*args, *kwargs.values()]):
        token = LAUNCHES.set(lambda *launch: found.append(Profile(*launch).settle()))
        try:
            results = kernel(*args, **kwargs)
        finally:
            LAUNCHES.reset(token)
    if not found:
        for k in (kernel, *kernel.rest):
            values, given = arguments(k, args, dict(kwargs))
            found.append(Profile(k, values, given))
    made = found if len(found) > 1 else found[0]
    made.results = results
    return made


def _size(kernel, verb, name, given):
    """A size that the caller names, as a number."""
    from ..tensors import what

    n = given.item() if hasattr(given, "item") else given
    if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1 << 31:
        raise ArgumentError(f"{kernel.name}.{verb}: the size {name} is {what(given)}", "a number from 0 to 2^31 - 1")
    return n


def arguments(kernel, args, kwargs, verb="profile"):
    """Arguments for the clock: [(address or 0, shape) | number], and what keeps their memory alive. `verb` names the
    method in messages."""
    from ..tensors import is_tensor, stored, what

    named = [n for n in kwargs if n in kernel.sizes and not is_tensor(kwargs[n])]
    sizes = {n: _size(kernel, verb, n, kwargs.pop(n)) for n in named}
    if any(is_tensor(a) for a in [*args, *kwargs.values()]):
        got, views, scalars, env, other, results, _ = kernel._bind(args, kwargs)
        if other:
            raise ArgumentError(
                f"{kernel.name}.{verb}: a tensor has another shape than its parameter",
                "tensors of the shapes that the kernel was built for",
            )
        values = [env[n] for n in kernel.sizes]
        for i, p in enumerate(kernel.params):
            values.append(scalars[i] if p.kind == "scalar" else (views[i].address, tuple(views[i].core_shape)))
        return values, (got, views, results)
    given = dict(zip(kernel.inputs, args))
    names = {p.name: i for i, p in enumerate(kernel.params)}
    for n, v in kwargs.items():
        if n not in names:
            raise ArgumentError(
                f"{kernel.name}.{verb} has no argument '{n}'",
                "give tensors, or shapes, or the symbolic sizes by name: " + ", ".join([*kernel.sizes, *names]),
            )
        given[names[n]] = v
    for i, shape in given.items():
        if kernel.params[i].kind == "tensor" and not isinstance(shape, (tuple, list)):
            raise ArgumentError(
                f"{kernel.name}.{verb}: '{kernel.params[i].name}' is {what(shape)}", "a tensor, its shape, or nothing"
            )
        want = kernel.params[i].shape
        for w, h in zip(want, shape if isinstance(shape, (tuple, list)) else ()):
            if getattr(w, "name", None) in kernel.sizes:
                sizes.setdefault(w.name, _size(kernel, verb, w.name, h))
    missing = [n for n in kernel.sizes if n not in sizes]
    if missing:
        raise ArgumentError(
            f"{kernel.name}.{verb}: the size {missing[0]} is not known",
            f"{verb}({missing[0]}=1024), or give the tensors or their shapes",
        )
    values = [sizes[n] for n in kernel.sizes]
    for i, p in enumerate(kernel.params):
        if p.kind == "scalar":
            values.append(kernel._scalar(i, given.get(i, 1)))
        else:
            shape = tuple(int(evaluate(s, sizes)) for s in p.shape)
            asked = given.get(i)
            if isinstance(asked, (tuple, list)) and tuple(asked) != shape:
                raise ArgumentError(
                    f"{kernel.name}.{verb}: '{p.name}' has shape {shape}, not {tuple(asked)}",
                    "the shape that the kernel was built for, or none",
                )
            values.append((0, stored(shape, p.dtype)[0]))
    return values, None


class Profile:
    """One launch on the clock.

    us, cycles, mhz            of the whole launch, launch cost included
    pipe_ratio                 {cube mte1 mte2 mte3 fix vector scalar}: busy share of the cores' time, as msprof defines
                               aic_mac_ratio and so on
    gm_read_bytes              what the instructions read and write in global memory, workspaces included
    gm_write_bytes
    l2_hit                     share (0..1) of the reads that L2 had
    hbm_read_bytes             what HBM gives and, at some time, takes: sectors of 128 bytes, on A2 and A3 lines of 512
    hbm_write_bytes            where a row begins or ends within a sector; what is written twice in L2 counts once
    hbm_moved_bytes            what went through HBM until the kernel ended; the rest of what was written is in L2 then
    compute_only_us            with all transfers through global memory free
    copy_only_us               with nothing but them
    launch_us                  until the first instruction of a core: more for more cores, which fetch the same code.
                               Launches that follow each other closely have less of it
    overhead_us                with neither: launch, starts of blocks, issuing, flags; it is part of both
    overlap                    of what the shorter of the two takes besides overhead_us, 0: nothing, 1: all is hidden
                               behind the other
    lines                      [Line], dearest first
    results                    what the call returns, where tensors were given; else None
    pipes, cores, statements   as tl_time_json gives them
    """

    def __init__(self, kernel, values, keep=None, follow=False):
        self.kernel, self.name, self.results = kernel, kernel.name, None
        self._values, self._keep, self._follow = values, keep, follow
        self._program = kernel._need("profile")
        result, self._all = self._run()
        self.chip = self._all["chip"]
        self.us, self.cycles, self.mhz = result["us"], self._all["cycles"], self._all["mhz"]
        self.pipe_ratio = result["pipe_ratio"]
        self.gm_read_bytes, self.gm_write_bytes = result["gm_read_bytes"], result["gm_write_bytes"]
        self.l2_hit = result["l2_hit"]
        self.hbm_read_bytes, self.hbm_write_bytes = self._all["l2_miss_bytes"], self._all["hbm_write_bytes"]
        self.launch_us = self._all["launch_us"]
        self.hbm_moved_bytes = self.hbm_read_bytes + self._all["write_back_bytes"]
        self.blocks, self.instructions = result["blocks"], result["instructions"]
        self.cores_used, self.cores_there = result["cores_used"], result["cores"]
        self.pipes, self.cores, self.statements = self._all["pipes"], self._all["cores"], self._all["statements"]

    def _run(self, program=None, full=True, **options):
        """(result, JSON of the run). Errors of the run are raised like those of a call."""
        program = program or self._program
        with self.kernel._lock:
            program.diags_clear()
            ok, result = program.time(self._values, follow=self._follow, **options)
            found = self.kernel.findings(program)
            if not ok:
                raise KernelFault(found)
            return result, json.loads(program.time_json()) if full else None

    def _relaxed(self, full=False, **options):
        """(microseconds, JSON) of a run that leaves costs out. Not above `us`: where the order of the transfers comes
        out worse by it, the kernel could still run as it did."""
        result, told = self._run(full=full, **options)
        return min(result["us"], self.us), told

    def settle(self):
        """Where the clock follows a run: asks now all that other runs answer, while what that run read is there."""
        if self._follow:
            _ = self.compute_only_us, self.copy_only_us, self.overhead_us, self.what_if, self.conflicts
            _ = self.critical_path, self.events
        return self

    # ---- other runs ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def compute_only_us(self):
        return self._relaxed(compute_only=True)[0]

    @functools.cached_property
    def copy_only_us(self):
        return self._relaxed(copy_only=True)[0]

    @functools.cached_property
    def overhead_us(self):
        both = self._relaxed(compute_only=True, copy_only=True)[0]
        return min(both, self.compute_only_us, self.copy_only_us)

    @property
    def shorter_us(self):
        """What the shorter of computation and copies takes besides overhead_us."""
        return max(min(self.compute_only_us, self.copy_only_us) - self.overhead_us, 0.0)

    @property
    def overlap(self):
        hidden = self.compute_only_us + self.copy_only_us - self.overhead_us - self.us
        return max(0.0, min(1.0, round(hidden / self.shorter_us, 6))) if self.shorter_us > 0 else 1.0

    @functools.cached_property
    def what_if(self):
        """{question: microseconds} of runs under another condition; a question that cannot be asked is left out."""
        asked = dict(QUESTIONS)
        if 0 < self.l2_hit < 0.5:
            asked["twice the share of hits in L2"] = {"miss_factor": (1 - 2 * self.l2_hit) / (1 - self.l2_hit)}
        answers = {q: self._relaxed(**how)[0] for q, how in asked.items()}
        deeper = self._deeper()
        if deeper is not None:
            answers[DEEPER] = deeper
        if self.spare_lines:
            answers[SPARE] = self._without(self.spare_lines)
        return answers

    def spread_us(self):
        """Time if the work of this launch were spread evenly over all cores of the chip, as it is: HBM and L2 do not
        become faster. Blocks in turns: as much longer than their full turns as there are more of them. Fewer blocks
        than cores: these, with as much less of HBM and L2 for each as there are more cores, and less to do for each."""
        full = self.blocks // self.cores_there
        if full:
            us = self._run(full=False, blocks=full * self.cores_there)[0]["us"]
            return self.launch_us + (us - self.launch_us) * self.blocks / (full * self.cores_there)
        part = self.cores_used / self.cores_there
        us = self._run(full=False, hbm_factor=part, l2_factor=part)[0]["us"]
        return self.launch_us / part + (us - self.launch_us) * part

    @functools.cached_property
    def spare_lines(self):
        """[line]: flags and barriers written by hand that may all be deleted: `Kernel.explain` says why."""
        flags = self.kernel.explain_json()["flags"]
        return sorted({f["line"] for f in flags if f["hand"] and (f["why"] or "").startswith("written by hand; ")})

    def _without(self, lines):
        """Time without the flags and barriers of these Python lines."""
        found = r"\n *(?:set_flag|wait_flag|barrier|cross_set|cross_wait) .* @(?:\d+:)?(\d+):\d+(?=\n)"
        text = re.sub(found, lambda m: "" if int(m[1]) in lines else m[0], self._program.text())
        return self._run(lowered(self.name, text), full=False)[0]["us"]

    @functools.cached_property
    def conflicts(self):
        """[microseconds over all cores]: what each of `statements` loses to bank conflicts in UB."""
        told = self._relaxed(full=True, no_bank_conflicts=True)[1]["statements"]
        return [s["busy_us"] - t["busy_us"] if s["pipe"] == "v" else 0.0 for s, t in zip(self.statements, told)]

    def _deeper(self):
        """Time with one more pipeline stage; None: no pipeline, or it does not fit."""
        text, n = re.subn(r"\bpipeline\((\d+)\)", lambda m: f"pipeline({int(m[1]) + 1})", self.kernel.text)
        program = lowered(self.name, text, self.kernel.chip) if n else None
        try:
            return self._run(program, full=False)[0]["us"] if program else None
        except KernelFault:  # its loops depend on data, and there is no run of it to follow
            return None

    def _events_from(self, number):
        """(result, the events from that number on)."""
        with self.kernel._lock:
            result, _ = self._run(full=False, timeline=True, first_event=number, max_events=MOST_EVENTS)
            return result, np.frombuffer(self._program.time_events(), EVENT)

    @functools.cached_property
    def _first_events(self):
        return self._events_from(0)

    @property
    def events(self):
        """What ran when, in the order of the ends: a numpy array with the fields core, statement (they index `cores`
        and `statements`), pipe (bytes), start_us, end_us, and cause, the event that let it begin, -1 for none. At most
        the first MOST_EVENTS of n_events."""
        return self._first_events[1]

    @property
    def n_events(self):
        """How many events there are."""
        return self._first_events[0]["events"]

    def waits(self, side, pipe):
        """[(us a core, reason, statement)]: what a pipe waited for and where, longest first."""
        found = [
            (us / self.cores_of(side), reason, n)
            for n, s in enumerate(self.statements)
            if s["side"] == side
            for reason, us in s["idle_us"].items()
            if ("s" if reason == "queue" else s["pipe"]) == pipe  # the scalar unit waits for a place in a queue
        ]
        return sorted(found, key=lambda x: (-x[0], x[2]))

    def most(self, side, pipe):
        """The longest of `waits`, or None; where the pipe waited for S to issue, with what S itself waited for longest
        as a second one: [(us a core, reason, statement)]."""
        found = self.waits(side, pipe)[:1]
        if found and found[0][1] == "issue":
            found += self.waits(side, "s")[:1]
        return found

    def place(self, statement):
        """file:line of a statement."""
        return f"{self.statements[statement]['file']}:{self.statements[statement]['line']}"

    def cores_of(self, side):
        """How many cores of a side ("cube", "vector") there are in `cores`."""
        return sum(c["kind"] == side for c in self.cores)

    def has(self, side, pipe):
        """Do the cores of a side have a pipe (a name of pipe_ratio)? mte3 of a cube core is not counted."""
        return (side == "vector" if pipe in ("vector", "mte3") else side == "cube") or pipe in ("mte2", "scalar")

    def core_us(self, side):
        """What the cores of a side ("cube", "vector") ran, summed."""
        return sum(c["end_us"] - c["start_us"] for c in self.cores if c["kind"] == side)

    @functools.cached_property
    def lanes(self):
        """{(core, pipe)} on which something ran."""
        return lanes_of(self.events)

    # ---- where the time goes ------------------------------------------------------------------------------------

    @functools.cached_property
    def lines(self):
        found, shares, waits = {}, {}, {}
        span = {side: self.core_us(side) for side in ("cube", "vector")}
        for s in self.statements:
            key = (s["file"], s["line"])
            line = found.setdefault(key, Line(*key))
            for pipe, us in ((s["pipe"], s["busy_us"]), ("s", s["scalar_us"])):
                line.busy_us[pipe] = line.busy_us.get(pipe, 0.0) + us
                place = (*key, s["side"], pipe)
                shares[place] = shares.get(place, 0.0) + (us / span[s["side"]] if span[s["side"]] else 0.0)
                if shares[place] > line.share:
                    line.share, line.pipe = shares[place], f"{s['side']} {pipe}"
            place = (*key, s["side"], s["pipe"])
            wait = sum(us for reason, us in s["idle_us"].items() if reason != "queue")  # that is the scalar unit's
            waits[place] = waits.get(place, 0.0) + wait / self.cores_of(s["side"]) / self.us
            line.wait_share = max(line.wait_share, waits[place])
            for reason, us in s["idle_us"].items():
                line.wait_us[reason] = line.wait_us.get(reason, 0.0) + us
            line.slowed_us += s["slowed_us"]
            line.gm_bytes += s["gm_bytes"]
            line.count += s["count"]
        paths = self.kernel.traced.builder.paths
        for line in found.values():
            line.source = linecache.getline(paths.get(line.file, line.file), line.line).rstrip()
        return sorted(found.values(), key=lambda x: (-x.share, -sum(x.wait_us.values()), x.file, x.line))

    @functools.cached_property
    def critical_path(self):
        """[(statement, pipe, microseconds, times)]: the chain of instructions, and of what S did, each of which let the
        next one begin, from the last to end back to the first; dearest first. `us` without them is the launch, starts
        of blocks, flags on their way and data on their way from memory. Of more than MOST_EVENTS the clock gives a
        part in each run, from the last one back."""
        (result, events), first, path = self._first_events, 0, []
        at = result["last_event"]
        while at >= 0:
            if not first <= at < first + len(events):
                first = max(at - MOST_EVENTS + 1, 0)
                events = self._events_from(first)[1]
            cause, here = events["cause"], []
            while at >= first:
                here.append(at - first)
                at = int(cause[at - first])
            path.append(events[here])
        if not path:
            return []
        path = np.concatenate(path)
        until = np.minimum.accumulate(np.append(path["end_us"][0], path["start_us"][:-1]))
        us = np.maximum(np.minimum(path["end_us"], until) - path["start_us"], 0.0)
        keys, which = np.unique(path[["statement", "pipe"]], return_inverse=True)
        spent, times = np.bincount(which, us).tolist(), np.bincount(which).tolist()
        found = [(int(s), p.decode(), spent[i], times[i]) for i, (s, p) in enumerate(keys)]
        return sorted(found, key=lambda x: (-x[2], x[0], x[1]))

    @property
    def peak_gbps(self):
        """Bandwidth of HBM, GB/s."""
        return self._all["peak_gbps"]

    @property
    def read_once_bytes(self):
        """Bytes of the tensors among the parameters that the kernel reads: what HBM must give at most."""
        from ..tensors import stored

        read = {m[1] for s in self.statements if (m := re.match(r"gm_to_\w+ %(\w+)\[", s["text"]))}
        values = self._values[len(self.kernel.sizes) :]
        found = 0
        for p, value in zip(self.kernel.params, values):
            if p.kind == "tensor" and p.name in read:
                found += math.prod(value[1]) * numpy_dtype(stored((0,), p.dtype)[1]).itemsize
        return found

    @property
    def flops(self):
        """Multiplications and additions of the cube, and one for each element of a vector instruction."""
        return sum(s.get("ops", 0) for s in self.statements)

    @property
    def roofline(self):
        """{intensity: operations a byte of hbm_moved_bytes, achieved, compute_peak, memory_peak: tera-operations a
        second, bound: "memory" | "compute"} at this intensity; peaks are those of the clock's own tables."""
        moved = self.hbm_moved_bytes
        peak = self._all["peak_tops"]
        intensity = self.flops / moved if moved else float("inf")
        memory = intensity * self.peak_gbps * 1e-3 if moved else float("inf")
        return {
            "intensity": intensity,
            "achieved": self.flops / self.us * 1e-6 if self.us else 0.0,
            "compute_peak": peak,
            "memory_peak": memory,
            "bound": "memory" if memory < peak else "compute",
        }

    @functools.cached_property
    def advice(self):
        """[str]: what the numbers suggest, dearest first."""
        from .advice import advise

        return advise(self)

    # ---- views --------------------------------------------------------------------------------------------------

    def to_dict(self):
        """Everything but the events, as plain values for JSON."""
        return {
            "kernel": self.name,
            "chip": self.chip,
            "us": self.us,
            "cycles": self.cycles,
            "mhz": self.mhz,
            "blocks": self.blocks,
            "instructions": self.instructions,
            "cores_used": self.cores_used,
            "cores_there": self.cores_there,
            "pipe_ratio": dict(self.pipe_ratio),
            "gm_read_bytes": self.gm_read_bytes,
            "gm_write_bytes": self.gm_write_bytes,
            "l2_hit": self.l2_hit,
            "hbm_read_bytes": self.hbm_read_bytes,
            "hbm_write_bytes": self.hbm_write_bytes,
            "hbm_moved_bytes": self.hbm_moved_bytes,
            "compute_only_us": self.compute_only_us,
            "copy_only_us": self.copy_only_us,
            "launch_us": self.launch_us,
            "overhead_us": self.overhead_us,
            "overlap": self.overlap,
            "roofline": self.roofline,
            "what_if": self.what_if,
            "advice": self.advice,
            "lines": [x.to_dict() for x in self.lines],
            "critical_path": [
                {"statement": s, "pipe": pipe, "us": us, "times": n, "line": self.statements[s]["line"]}
                for s, pipe, us, n in self.critical_path
            ],
            "pipes": self.pipes,
            "cores": self.cores,
            "statements": self.statements,
        }

    def save_trace(self, path):
        """A Chrome trace (JSON) for ui.perfetto.dev and MindStudio Insight: a process a core, a thread a pipe, flags as
        arrows, Python lines as arguments. Returns the path."""
        from .trace import write_trace

        return write_trace(self, path)

    def save_html(self, path):
        """A timeline to zoom into, in one file that needs nothing else. Returns the path."""
        from .page import write_page

        return write_page(self, path)

    def save_plots(self, folder, format="svg"):
        """roofline, pipes, memory: pictures by matplotlib, "svg" or "png". Returns their paths."""
        from .plots import write_plots

        return write_plots(self, folder, format)

    def __str__(self):
        from .table import render

        return render(self)

    def __repr__(self):
        return f"<profile of {self.name} on {self.chip}: {self.us:.2f} us, {self.cycles} cycles>"


for _kind in (Profile, Launches):
    rightly_all(_kind, "profile", ArgumentError, "save_trace save_html save_plots")
