"""What happened in a process: seconds in the compiler and in the simulator, memory of the simulator, kernels, and
failures that a program swallowed.

`python -m tilelang.sim --record FILE` and the conformance report read it. The file is written when a kernel begins and
when it ends, so that it says where a program was that did not come to its end.

A kernel that was compiled leaves an entry in "compiled": seconds by stage (trace, print, load, each pass, emit as
Ascend C; "passes" is their sum), and what the lowered program consists of (instructions, flags, barriers, crosses).
"megabytes" is the most memory the process has had until its last kernel run, "sim_megabytes" by how much it grew inside
one at most (Linux; elsewhere 0).
"""

import json
import os
import time

_EMPTY = {
    "compile_seconds": 0.0, "run_seconds": 0.0, "kernels": 0, "calls": 0, "instructions": 0, "inside": 0,
    "megabytes": 0.0, "sim_megabytes": 0.0, "mismatches": [], "faults": [], "errors": [], "compiled": [],
}  # fmt: skip
keep_in = None  # a path
seen = {k: list(v) if isinstance(v, list) else v for k, v in _EMPTY.items()}


def clear():
    for k, v in _EMPTY.items():
        seen[k] = list(v) if isinstance(v, list) else v


def write(path):
    with open(f"{path}.part", "w", encoding="utf-8") as f:
        json.dump(seen, f)
    os.replace(f"{path}.part", path)


def _inside(step):
    seen["inside"] += step
    if keep_in:
        write(keep_in)


def first_line(e):
    for line in str(e).splitlines():
        if line.strip():
            return line.strip()
    return type(e).__name__


def _note(kind, e):
    if len(seen[kind]) < 20:
        seen[kind].append(first_line(e))


_WORDS = {"set_flag": "flags", "barrier": "barriers", "cross_set": "crosses"}


def _compiled(kernel, program):
    entry = {"kernel": kernel.name, **{k: kernel.times[k] for k in ("trace", "print", "load")}}
    found = json.loads(program.explain_json())
    entry.update({done["pass"]: done["seconds"] for done in found.get("times") or ()})
    entry["passes"] = kernel.times["lower"]
    began = time.perf_counter()
    if program.emit("ascendc") is not None:
        entry["emit"] = time.perf_counter() - began
    program.diags_clear()
    entry.update(instructions=0, flags=0, barriers=0, crosses=0)
    for line in program.text().splitlines():
        word = line.strip().partition(" ")[0]
        entry["instructions"] += " -> " in line
        if word in _WORDS:
            entry[_WORDS[word]] += 1
    entry["by_hand"] = bool(kernel.traced.builder.hand_sync)
    return entry


def _memory(word):
    """A figure of this process in megabytes: VmRSS, or VmHWM, its highest since _memory_mark()."""
    try:
        with open("/proc/self/status", encoding="ascii") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith(word))
    except (OSError, StopIteration):
        return 0.0


def _memory_mark():
    seen["megabytes"] = max(seen["megabytes"], _memory("VmHWM"))
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
    except OSError:
        pass
    return _memory("VmRSS")


def _timed(key, kind, fn, count):
    def call(self, *args, **kwargs):
        _inside(1)
        before = _memory_mark() if key == "run_seconds" and keep_in else None
        began = time.perf_counter()
        done = None
        try:
            done = fn(self, *args, **kwargs)
            return done
        except Exception as e:
            _note(kind, e)
            raise
        finally:
            seen[key] += time.perf_counter() - began
            seen[count] += 1
            if key == "run_seconds":
                seen["instructions"] += (self.last_run or {}).get("instructions", 0)
            if before is not None:
                seen["sim_megabytes"] = max(seen["sim_megabytes"], _memory("VmHWM") - before)
            if done is not None and key == "compile_seconds" and keep_in and "lower" in self.times:
                seen["compiled"].append(_compiled(self, done))
            _inside(-1)

    return call


def patch(p, torch):
    """Watches kernels being compiled and run, and torch.testing.assert_close."""
    from ..kernel import Kernel

    p.wrap(Kernel, "_compile", lambda fn: _timed("compile_seconds", "errors", fn, "kernels"))
    p.wrap(Kernel, "_run", lambda fn: _timed("run_seconds", "faults", fn, "calls"))

    def watch(fn):
        def assert_close(*args, **kwargs):
            __tracebackhide__ = True
            try:
                return fn(*args, **kwargs)
            except AssertionError as e:
                _note("mismatches", " ".join(str(e).split()))
                raise

        return assert_close

    p.wrap(torch.testing, "assert_close", watch)
