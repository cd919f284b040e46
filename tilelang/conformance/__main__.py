"""python -m tilelang.conformance DIR [--out FOLDER] [--jobs N] [--timeout S] [--only PATTERN] ..."""

import argparse
import hashlib
import json
import os
import pathlib
import queue
import shlex
import subprocess
import sys
import threading

from . import find, report
from .outcome import STATUSES


def arguments():
    p = argparse.ArgumentParser(prog="python -m tilelang.conformance", description=find.__doc__.splitlines()[0])
    p.add_argument("folder", help="a folder of programs, or one file")
    p.add_argument("--out", default="conformance", help="where the report goes (default: %(default)s)")
    p.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="programs at once (default: %(default)s)"
    )
    p.add_argument("--timeout", type=float, default=300, help="seconds for one program (default: %(default)s)")
    p.add_argument("--only", action="append", default=[], help="a pattern of paths to run; may be repeated")
    p.add_argument("--without", action="append", default=[], help="a pattern of paths to leave out; may be repeated")
    p.add_argument(
        "--also", action="append", default=[], metavar="'FILE ARGUMENTS'", help="a script with arguments, too"
    )
    p.add_argument("--again", action="append", default=[], help="run those with this status again ('all': everything)")
    p.add_argument("--checks", choices=("on", "off"), default="on", help="the simulator's checks")
    p.add_argument("--no-relax", action="store_true", help="do not try a program with a fault again without checks")
    p.add_argument("--list", action="store_true", help="print what would be run, and stop")
    return p.parse_args()


class Host:
    """A process that forks one for each job."""

    def __init__(self):
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tilelang.conformance.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self.process.stdout.readline()
        found = json.loads(ready) if ready else {"ready": False, "reason": "the host process ended"}
        if not found["ready"]:
            raise RuntimeError(f"programs need torch (a CPU build): {found['reason']}")

    def run(self, job):
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.close()
            self.start()
            return {"status": "crash", "reason": "the host process ended", "seconds": 0}
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Run:
    """The results so far, and what is left."""

    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.folder).resolve()
        self.out = pathlib.Path(args.out).resolve()
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.kept = self.out / "results.jsonl"
        self.results = {}
        self.lock = threading.Lock()
        self.alone = [] if args.jobs > 1 else None  # killed while others ran beside them
        self.programs = find.programs(self.folder, args.only, args.without)
        self.load()

    def path(self, program):
        return str(self.folder if self.folder.is_file() else self.folder / program.path)

    def load(self):
        again = set(self.args.again)
        names = {p.path for p in self.programs}
        for r in report.read(self.kept):
            self.results[r["file"], r.get("case")] = r
        for key, r in list(self.results.items()):
            if r["file"] in names and ("all" in again or r["status"] in again):
                del self.results[key]

    def keep(self, r):
        with self.lock:
            self.results[r["file"], r.get("case")] = r
            with open(self.kept, "a", encoding="utf-8") as f:
                f.write(json.dumps(r) + "\n")

    def compact(self):
        with open(str(self.kept) + ".part", "w", encoding="utf-8") as f:
            for r in self.results.values():
                f.write(json.dumps(r) + "\n")
        os.replace(str(self.kept) + ".part", self.kept)

    def job(self, program, kind, case=None, checks=None):
        tag = hashlib.sha1(f"{program.path}::{case}".encode()).hexdigest()[:8]
        stem = program.path.replace("/", "__").removesuffix(".py")[-80:]
        checks = self.args.checks == "on" if checks is None else checks
        return {
            "kind": kind, "path": self.path(program), "case": case, "timeout": self.args.timeout, "checks": checks,
            "args": shlex.split(case or "") if kind == "script" else [],
            "log": str(self.logs / f"{stem}-{tag}{'' if checks else '-unchecked'}.log"),
        }  # fmt: skip

    def one(self, host, program, kind, case, order):
        """Runs one program or case and keeps its result; None: it is to run again, by itself."""
        r = host.run(self.job(program, kind, case))
        if r["status"] == "crash" and "SIGKILL" in r["reason"] and self.alone is not None:
            self.alone.append((program, kind, case, order))
            return None
        if r["status"] == "fault" and not self.args.no_relax:
            relaxed = host.run(self.job(program, kind, case, checks=False))
            if relaxed["status"] == "pass":
                relaxed["finding"] = r["reason"]
                r = relaxed
            else:
                r["unchecked"] = f"{relaxed['status']}: {relaxed.get('reason', '')}"
        r.update(file=program.path, case=case, order=order)
        self.keep(r)
        return r


class Quiet:
    """Progress for a file or a pipe: a line a result."""

    def __init__(self, n):
        self.n, self.done = n, 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def more(self, n):
        self.n += n

    def result(self, r):
        self.done += 1
        print(
            f"[{self.done}/{self.n}] {r['status']:14} {r['seconds']:7.1f} s  {report.name(r)}  {r.get('reason') or ''}"[
                :220
            ],
            flush=True,
        )


class Shown:
    """Progress for a terminal."""

    def __init__(self, n):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
            TextColumn("{task.fields[last]}"),
        )
        self.task = self.progress.add_task("", total=n, counts="", last="")
        self.n, self.counts = n, {}

    def __enter__(self):
        self.progress.start()
        return self

    def __exit__(self, *exc):
        self.progress.stop()

    def more(self, n):
        self.n += n
        self.progress.update(self.task, total=self.n)

    def result(self, r):
        self.counts[r["status"]] = self.counts.get(r["status"], 0) + 1
        counts = " ".join(f"{self.counts[s]} {s}" for s in STATUSES if s in self.counts)
        self.progress.update(self.task, advance=1, counts=counts, last=report.name(r)[-60:])
        if r["status"] not in ("pass", "skipped"):
            self.progress.console.print(
                f"{r['status']:14} {report.name(r)}: {r.get('reason', '')}", markup=False, highlight=False
            )


def work(run, todo, shown, errors):
    """A worker: takes from the queue until it is empty."""
    try:
        host = Host()
    except RuntimeError as e:
        errors.append(str(e))
        return
    try:
        while not errors:
            try:
                program, kind, case, order = todo.get_nowait()
            except queue.Empty:
                if todo.unfinished_tasks == 0:
                    return
                threading.Event().wait(0.2)
                continue
            try:
                if kind == "collect":
                    collected(run, host, program, todo, shown)
                else:
                    r = run.one(host, program, kind, case, order)
                    if r is not None:
                        shown.result(r)
            finally:
                todo.task_done()
    finally:
        host.close()


def by_themselves(run, shown):
    """Programs that were killed, most likely for want of memory, one at a time."""
    host, again, run.alone = Host(), run.alone, None
    for program, kind, case, order in again:
        shown.result(run.one(host, program, kind, case, order))
    host.close()


def collected(run, host, program, todo, shown):
    """Puts the cases of a pytest file that have no result yet into the queue."""
    found = host.run(run.job(program, "collect"))
    if not found.get("cases"):
        status, reason = found.get("status") or ("error", "no cases collected"), found.get("reason", "")
        r = (
            {"status": status[0], "reason": status[1]}
            if isinstance(status, list)
            else {"status": status, "reason": reason}
        )
        r.update(file=program.path, case=None, order=0, seconds=found.get("seconds", 0))
        run.keep(r)
        shown.result(r)
        return
    new = [(n, c) for n, c in enumerate(found["cases"]) if (program.path, c) not in run.results]
    shown.more(len(new) - 1)
    for n, c in new:
        todo.put((program, "case", c, n))


def main():
    args = arguments()
    if not os.path.exists(args.folder):
        sys.exit(f"python -m tilelang.conformance: there is no {args.folder}")
    run = Run(args)
    todo = queue.Queue()
    for p in run.programs:
        if args.list:
            print(f"{p.kind:8} {p.path}")
        elif p.kind == "pytest":
            todo.put((p, "collect", None, 0))
        elif p.kind == "script" and (p.path, None) not in run.results:
            todo.put((p, "script", None, 0))
    for n, line in enumerate(args.also):
        path, _, rest = line.partition(" ")
        run.programs.append(find.Program(path, "script"))
        if (path, rest) not in run.results and not args.list:
            todo.put((run.programs[-1], "script", rest, n + 1))
    if args.list:
        return
    errors, n = [], todo.qsize()
    display = Shown if sys.stdout.isatty() else Quiet
    with display(n) as shown:
        threads = [
            threading.Thread(target=work, args=(run, todo, shown, errors), daemon=True)
            for _ in range(max(args.jobs, 1))
        ]
        for t in threads:
            t.start()
        try:
            for t in threads:
                while t.is_alive():
                    t.join(0.5)
            if run.alone and not errors:
                by_themselves(run, shown)
        except KeyboardInterrupt:
            errors.append("interrupted: the same command goes on from here")
    names = {p.path for p in run.programs}
    run.compact()
    wanted = [r for r in run.results.values() if r["file"] in names]
    s = report.write(wanted, run.folder, str(run.out))
    print(
        f"files {s['files'].get('pass', 0)} of {s['n_files']} pass, cases {s['cases'].get('pass', 0)} of {s['n_cases']}"
        " pass"
    )
    print(f"report: {os.path.join(args.out, 'report.html')} (.txt, .json)")
    if errors:
        sys.exit(errors[0])


if __name__ == "__main__":
    main()
