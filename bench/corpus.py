#!/usr/bin/env python3
"""What a run of `python -m tilelang.conformance` says about speed, memory and flags, as Markdown.

    python bench/corpus.py REPORT/results.jsonl

Seconds are wall time, memory is what the process grew by inside a kernel run. Each table says over what it is taken."""

import json
import statistics
import sys

STAGES = ("trace", "print", "load", "parallel", "scalars", "bridge", "scope", "split", "pipeline", "lower", "legalize",
          "memplan", "sync", "emit")  # fmt: skip


def name(r):
    return f"{r['file']}::{r['case']}" if r.get("case") else r["file"]


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    print()


def most(results, key, n):
    return sorted((r for r in results if r.get(key)), key=lambda r: -r[key])[:n]


def stages(kernels):
    def row(title, seconds):
        ms = sorted(1e3 * s for s in seconds)
        figures = (statistics.median(ms), ms[int(0.9 * (len(ms) - 1))], ms[-1])
        return (title, *(f"{x:.2f}" for x in figures))

    rows = [row(s, [k.get(s, 0) for k in kernels]) for s in STAGES]
    core = [k["load"] + k["passes"] + k.get("emit", 0) for k in kernels]
    rows.append(row("C core (load, passes, Ascend C)", core))
    rows.append(row("all", [c + k["trace"] + k["print"] for c, k in zip(core, kernels)]))
    table(("stage, ms", "median", "90 %", "worst"), rows)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        results = [json.loads(line) for line in f]
    kernels = [k for r in results for k in r.get("compiled") or ()]
    print(f"{len(results)} programs; simulator {sum(r.get('run_seconds', 0) for r in results):.0f} s,"
          f" everything {sum(r['seconds'] for r in results):.0f} s.\n")  # fmt: skip
    slow, large = most(results, "run_seconds", 10), most(results, "sim_megabytes", 5)
    table(("slowest in the simulator", "s"), [(name(r), f"{r['run_seconds']:.1f}") for r in slow])
    table(("most memory of the simulator", "MB"), [(name(r), f"{r['sim_megabytes']:.0f}") for r in large])
    print(f"{len(kernels)} kernels compiled.\n")
    stages(kernels)
    ours = [k for k in kernels if not k["by_hand"]]
    n = {key: sum(k[key] for k in ours) for key in ("instructions", "flags", "barriers", "crosses")}
    print(f"{len(ours)} kernels without flags written by hand: {n['instructions']} instructions, {n['flags']} flags,"
          f" {n['barriers']} barriers, {n['crosses']} flags between cores.")  # fmt: skip


if __name__ == "__main__":
    main()
