"""What happened in a process: seconds in the compiler and in the simulator, kernels,
and failures that a program swallowed.

`python -m tilelang.sim --record FILE` and the conformance report read it. The file is written when a kernel begins and
when it ends, so that it says where a program was that did not come to its end.
"""

import json
import os
import time

_EMPTY = {
    "compile_seconds": 0.0, "run_seconds": 0.0, "kernels": 0, "calls": 0, "instructions": 0, "inside": 0,
    "mismatches": [], "faults": [], "errors": [],
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


def _timed(key, kind, fn, count):
    def call(self, *args, **kwargs):
        _inside(1)
        began = time.perf_counter()
        try:
            return fn(self, *args, **kwargs)
        except Exception as e:
            _note(kind, e)
            raise
        finally:
            seen[key] += time.perf_counter() - began
            seen[count] += 1
            if key == "run_seconds":
                seen["instructions"] += (self.last_run or {}).get("instructions", 0)
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
