"""Runs jobs, each in a forked process: python -m tilelang.conformance.host

The expensive imports (torch, tilelang) happen once. A job is a line of JSON on standard input, its result a line on
standard output: {"kind": "script" | "case" | "collect", "path", "case", "log", "timeout", "checks", "args"}.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback

from ..sim import record
from . import outcome


_KEPT = ("compile_seconds", "run_seconds", "kernels", "calls", "instructions", "megabytes", "sim_megabytes", "compiled")


class Catch:
    """A pytest plugin: what was collected, and how the one case ended."""

    def __init__(self):
        self.cases, self.status = [], None

    def pytest_collection_modifyitems(self, items):
        self.cases = [item.nodeid for item in items]

    def pytest_runtest_makereport(self, item, call):
        if call.excinfo is None:
            return
        error = call.excinfo.value
        if type(error).__name__ == "XFailed":
            self.status = ("pass", "")
        elif type(error).__name__ == "Skipped":
            self.status = ("skipped", outcome.one_line(error))
        elif self.status is None:
            self.status = outcome.of_exception(error)

    def pytest_collectreport(self, report):
        if report.failed and self.status is None:
            lines = [x for x in str(report.longrepr).splitlines() if x.startswith("E ")]
            self.status = ("error", outcome.one_line(lines[-1][1:] if lines else report.longrepr))


def run_script(job):
    import runpy

    sys.argv = [job["path"], *job.get("args", ())]
    sys.path.insert(0, os.path.dirname(job["path"]))
    try:
        runpy.run_path(job["path"], run_name="__main__")
    except BaseException as e:
        if not isinstance(e, SystemExit):
            traceback.print_exc()
        return outcome.of_exception(e)
    return outcome.of_silence()


def run_pytest(job):
    import pytest

    catch = Catch()
    folder, name = os.path.split(job["path"])
    args = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, "-o", "addopts="]
    if job["kind"] == "collect":
        pytest.main([*args, "--collect-only", job["path"]], plugins=[catch])
        return {"cases": [c.split("::", 1)[1] for c in catch.cases], "status": catch.status}
    code = pytest.main([*args, f"{job['path']}::{job['case']}"], plugins=[catch])
    if catch.status:
        return catch.status
    return ("pass", "") if code == 0 else ("error", f"pytest ended with {int(code)}")


def child(job, result_path):
    os.setsid()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, now in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, now)
    os.chdir(os.path.dirname(job["path"]))
    os.environ["TILELANG_CHECKS"] = "1" if job.get("checks", True) else "0"
    record.clear()
    record.keep_in = job["log"] + ".kernels"
    began = time.perf_counter()
    found = (run_script if job["kind"] == "script" else run_pytest)(job)
    result = found if isinstance(found, dict) else {"status": found[0], "reason": found[1]}
    result["seconds"] = time.perf_counter() - began
    result.update({k: record.seen[k] for k in _KEPT})
    sys.stdout.flush()
    sys.stderr.flush()
    with open(result_path, "w", encoding="utf-8") as f:
        json.dump(result, f)


def _read(path):
    """The JSON of a file; None: there is none, or a full disk cut it short."""
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def where(path):
    """What a program had done that was ended: {"where": a sentence, and the numbers of its record}."""
    seen = _read(path)
    if seen is None:
        return {"where": "no kernel had begun"}
    n, seconds = seen["calls"], f"{seen['run_seconds']:.1f} s"
    ran = f"{n} kernel run{'s' * (n != 1)} done in {seconds}"
    at = "inside a kernel" if seen["inside"] else "in code of its own, outside any kernel"
    return {"where": f"{at}, {ran}", **{k: seen[k] for k in _KEPT}}


def one(job):
    """The result of a job, as a dict."""
    result_path, kernels_path = job["log"] + ".json", job["log"] + ".kernels"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            child(job, result_path)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    late = False
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if not late and time.monotonic() - began > job["timeout"]:
            late = True
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    result = {"status": "error", "reason": "the process left no result", "seconds": time.monotonic() - began}
    if late:
        result.update(where(kernels_path), status="time-out")
        result["reason"] = f"not done after {job['timeout']} s: {result['where']}"
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        result.update(where(kernels_path), status="crash")
        result["reason"] = f"ended by {signal.Signals(number).name}: {result['where']}"
    else:
        result = _read(result_path) or result
    for path in (result_path, kernels_path):
        if os.path.exists(path):
            os.remove(path)
    result["megabytes"] = max(result.get("megabytes", 0), usage.ru_maxrss / 1024)
    return result


def main():
    reply = os.dup(1)
    os.dup2(2, 1)  # what a program prints must not be taken for an answer
    if os.environ.get("TILELANG_CONFORMANCE_MEMORY"):
        limit = int(os.environ["TILELANG_CONFORMANCE_MEMORY"]) << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        import torch  # noqa: F401 - once, for every job

        from .. import sim
        from ..language import tile  # noqa: F401

        sim.install()
        ready = {"ready": True}
    except ImportError as e:
        ready = {"ready": False, "reason": str(e)}
    os.write(reply, (json.dumps(ready) + "\n").encode())
    for line in sys.stdin:
        os.write(reply, (json.dumps(one(json.loads(line))) + "\n").encode())


if __name__ == "__main__":
    main()
