"""Fits the constants of src/arch/<family>_time.def to the published rows that are experiments.

    python tools/fit/fit.py [--family a2|a5] [--rounds N] [--write]     fit, show, write into the table
    python tools/fit/fit.py --cross                                     leave out one kernel family at a time

Least squares on the logarithm of predicted over published, a step of Gauss-Newton a round. Constants move in groups
with the experiments that speak of them (GROUPS). An experiment counts once, however many rows it has; a ratio
counts half. --cross starts from what vendors' pages say (PRIOR), never sees the family it leaves out, predicts it,
and writes the result to tools/fit/cross.json, which docs/accuracy.md shows.
"""

import argparse
import json
import math
import re
from pathlib import Path

import numpy as np
from points import EXPERIMENTS, METRICS, experiment_of, rows, skipped_metric
from run import Runner

ARCH = Path(__file__).resolve().parents[2] / "src" / "arch"
CROSS = Path(__file__).with_name("cross.json")
CHIP_FAMILY = {"910B1": "a2", "910B2": "a2", "910B3": "a2", "910_9391": "a2", "950PR_958x": "a5"}

# constants that are fitted together, and the experiments that speak of them
GROUPS = [
    (("mmad_head", "mmad_tail"), r"mmad|matmul [01]$|basic"),
    (("hbm_gbps", "ub_row", "dma_head", "ub_bus", "ub_miss_bus", "hbm_latency"), r"UB|add 1"),
    (("part_pieces",), r"A2 (UB [78]|L1 [67]|matmul [23])"),
    (("l1_row", "l1_bus", "l1_miss_bus", "l2_latency", "l1_write_slow"), r"L1 [1-5]|matmul [014567]|basic 1|gemm"),
    (("l0_head", "l1_read_slow"), r"matmul [0156]|basic|gemm"),
    (("fix_bus",), r"matmul [4-7]|gemm"),
    (("issue", "scalar_op"), r"basic"),
    (("launch_ns", "dispatch_ns"), r"empty"),
]

# a constant that is another one: the 950 hands out its first blocks as it does the later ones
TIED = {"a2": {}, "a5": {"skew_ns": "dispatch_ns"}}

# where cross-validation starts: architecture pages, round numbers where they say nothing
PRIOR = {
    "a2": {"mmad_head": 16, "mmad_tail": 30, "hbm_gbps": 1600, "ub_row": 4, "dma_head": 20, "ub_bus": 64,
           "ub_miss_bus": 64, "hbm_latency": 200, "l1_row": 2, "l1_bus": 128, "l1_miss_bus": 64, "l2_latency": 100,
           "l1_write_slow": 0.05, "l0_head": 40, "l1_read_slow": 0.05, "fix_bus": 128, "issue": 4, "scalar_op": 0.5,
           "part_pieces": 6},
    "a5": {"mmad_head": 16, "mmad_tail": 30, "hbm_gbps": 1600, "ub_row": 4, "dma_head": 20, "ub_bus": 64,
           "ub_miss_bus": 64, "hbm_latency": 200, "l1_row": 2, "l1_bus": 128, "l1_miss_bus": 64, "l2_latency": 100,
           "l0_head": 40, "l1_read_slow": 0.05, "fix_bus": 128, "issue": 4, "scalar_op": 0.5, "launch_ns": 1000,
           "dispatch_ns": 10},
}


# kernel families whose constants no other family speaks of: one experiment is left out at a time
ALONE = {"launch"}


def points(family=None):
    """(row, experiment name, published value) of all rows that are compared."""
    out = []
    for row in rows():
        name = experiment_of(row)
        if name is None or skipped_metric(row, name):
            continue
        if family is None or CHIP_FAMILY[EXPERIMENTS[name].chip] == family:
            out.append((row, name, float(row["value"])))
    return out


def constants_of(family):
    text = (ARCH / f"{family}_time.def").read_text(encoding="utf-8")
    return {m[1]: float(m[2]) for m in re.finditer(r"^TIME\((\w+), ([^,]+),", text, re.M)}


class Fit:
    def __init__(self, family, runner, left_out=None, start=None):
        self.family, self.runner = family, runner
        self.base = constants_of(family)
        self.now = {**self.base, **(start or {})}
        self.points = [p for p in points(family) if left_out not in (EXPERIMENTS[p[1]].family, p[1])]
        self.points = [p for p in self.points if p[0]["metric"] != "l2_hit_rate"]  # some are 0

    def changes(self, more=None):
        both = {**self.now, **(more or {})}
        both.update({name: both[other] for name, other in TIED[self.family].items()})
        return {k: v for k, v in both.items() if v != self.base[k]}

    def residuals(self, pts, more=None):
        count = {}
        for _, name, _ in pts:
            count[name] = count.get(name, 0) + 1
        out = []
        for row, name, value in pts:
            got = METRICS[row["metric"]](self.runner.time(name, self.changes(more)), self.runner.experiments[name])
            weight = (0.5 if row["metric"].endswith("_ratio") else 1.0) / math.sqrt(count[name])
            out.append(weight * math.log(max(got, 1e-9) / value))
        return np.array(out)

    def step(self, names, pattern):
        pts = [p for p in self.points if re.search(pattern, p[1])]
        if not pts:
            return
        r0 = self.residuals(pts)
        size = {n: max(self.now[n], 0.1) for n in names}
        jac = np.array([(self.residuals(pts, {n: self.now[n] + 0.05 * size[n]}) - r0) / 0.05 for n in names]).T
        lam = 0.02 * max(np.trace(jac.T @ jac) / len(names), 1e-6)
        delta = -np.linalg.solve(jac.T @ jac + lam * np.eye(len(names)), jac.T @ r0)
        delta = np.clip(delta, -0.5, 0.8)
        for scale in (1.0, 0.4):
            new = {n: float(f"{max(self.now[n] + scale * d * size[n], 0):.3g}") for n, d in zip(names, delta)}
            r1 = self.residuals(pts, new)
            if r1 @ r1 < r0 @ r0:
                self.now.update(new)
                before, after = (math.sqrt(r @ r / len(r)) for r in (r0, r1))
                print(f"    {before:.4f} -> {after:.4f}  {new}", flush=True)
                return

    def run(self, rounds, about=""):
        """about: an experiment; only what speaks of it is fitted."""
        for _ in range(rounds):
            for names, pattern in GROUPS:
                if re.search(pattern, about) or not about:
                    self.step(names, pattern)


def cross(families, rounds):
    """Writes {kernel family and chip: {row id: predicted}} of rows that the fit had not seen."""
    seen = json.loads(CROSS.read_text()) if CROSS.exists() else {}
    for family in families:
        runner = Runner(small=True)
        named = [(name, EXPERIMENTS[name].family) for _, name, _ in points(family)]
        for left_out in sorted({name if kernels in ALONE else kernels for name, kernels in named}):
            print(f"  {family} without {left_out}", flush=True)
            fit = Fit(family, runner, left_out, PRIOR[family])
            fit.run(rounds, left_out if left_out in EXPERIMENTS else "")
            full = Runner()
            for row, name, _ in points(family):
                kernels = EXPERIMENTS[name].family
                if left_out in (name, kernels):
                    said = METRICS[row["metric"]](full.time(name, fit.changes()), EXPERIMENTS[name])
                    seen.setdefault(f"{kernels}, {family}", {})[row["id"]] = float(f"{said:.6g}")
            CROSS.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")


def write(family, values):
    path = ARCH / f"{family}_time.def"
    text = path.read_text(encoding="utf-8")
    for k, v in values.items():
        text = re.sub(rf"^TIME\({k}, [^,]+,", f"TIME({k}, {v:g},", text, flags=re.M)
    path.write_text(text, encoding="utf-8")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--family", choices=("a2", "a5"))
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--write", action="store_true")
    a.add_argument("--cross", action="store_true")
    o = a.parse_args()
    families = [o.family] if o.family else ["a2", "a5"]
    if o.cross:
        cross(families, o.rounds)
        return
    for family in families:
        print(family)
        fit = Fit(family, Runner(small=True))
        fit.run(o.rounds)
        print(" ", fit.changes())
        if o.write:
            write(family, fit.changes())


if __name__ == "__main__":
    main()
