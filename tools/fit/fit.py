"""Fits the constants of src/arch/<family>_time.def to the published rows that are experiments.

    python tools/fit/fit.py [--family a2|a5] [--rounds N] [--write]     fit, show, write into the table
    python tools/fit/fit.py --cross                                     leave out one kernel family at a time

Least squares on the logarithm of predicted over published (Levenberg-Marquardt, a step a round). Constants move in
groups with the rows that speak of them (GROUPS). An experiment counts once, however many rows it has; a ratio counts
half; errors over 10 % count in proportion. --cross starts from what vendors' pages say (PRIOR), never sees the family
it leaves out, predicts it, and writes the result to tools/fit/cross.json, which docs/accuracy.md shows.
"""

import argparse
import json
import math
import re
from pathlib import Path

import numpy as np
from points import EXPERIMENTS, METRICS, experiment_of, is_unseen, rows, skipped_metric
from run import Runner

ARCH = Path(__file__).resolve().parents[2] / "src" / "arch"
CROSS = Path(__file__).with_name("cross.json")
CHIP_FAMILY = {"910B1": "a2", "910B2": "a2", "910B3": "a2", "910_9391": "a2", "950PR_958x": "a5"}

# constants that are fitted together, the experiments that speak of them, and which of their metrics
GROUPS = [
    (("mmad_head", "mmad_tail"), r"mmad|matmul [01]$|basic", r"mac|cycles"),
    (("v_start",), r"950 add", r"vec"),
    (("hbm_gbps", "hbm_piece", "ub_row", "dma_head", "ub_bus", "ub_miss_bus", "hbm_latency", "l2_gbps", "out_bus"),
     r"UB [1-6]|add", ""),
    (("place_pieces", "part_pieces"), r"UB [78]|L1 [67]", ""),
    (("l1_head", "l1_row", "l1_bus", "l1_miss_bus", "miss_row", "l2_latency", "l1_write_slow"),
     r"L1|matmul [01456]|basic 1|gemm|add [12]", ""),
    (("l0_head", "l1_read_slow"), r"matmul [0156]|basic|gemm", r"mte1|EXTRACT"),
    (("fix_bus",), r"matmul [4-7]|gemm", r"fix|STORE"),
    (("issue", "scalar_op"), r"basic", r"scalar"),
    (("launch_ns", "dispatch_ns"), r"empty", ""),
]

# where cross-validation starts: architecture pages, round numbers where they say nothing
PRIOR = {
    "mmad_head": 16, "mmad_tail": 30, "v_start": 0, "hbm_gbps": 1600, "hbm_piece": 32, "ub_row": 4, "dma_head": 20,
    "ub_bus": 64, "ub_miss_bus": 64, "hbm_latency": 200, "l2_gbps": 7000, "out_bus": 32, "place_pieces": 3,
    "part_pieces": 6, "l1_head": 20, "l1_row": 2, "l1_bus": 128, "l1_miss_bus": 64, "miss_row": 4, "l2_latency": 100,
    "l1_write_slow": 0.05, "l0_head": 40, "l1_read_slow": 0.05, "fix_bus": 128, "issue": 4, "scalar_op": 0.5,
    "launch_ns": 1000, "dispatch_ns": 10,
}  # fmt: skip

# what no row of that chip speaks of, and what is 0 there
NOT_FITTED = {"a2": ("v_start", "launch_ns", "dispatch_ns", "l1_head"), "a5": ()}
# kept as they stand but where a family is left out: the two rows of part_pieces contradict each other; of what is about
# as good for both, 7.8 has the copies to UB in their order
CHOSEN = {"a2": (), "a5": ("part_pieces",)}


# kernel families whose constants no other family speaks of: one experiment is left out at a time
ALONE = {"launch"}


def points(family=None, unseen=False):
    """(row, experiment name, published value) of the rows that are compared; unseen: those kept from fits, too."""
    out = []
    for row in rows():
        name = experiment_of(row)
        if name is None or skipped_metric(row, name) or (is_unseen(row) and not unseen):
            continue
        if family is None or CHIP_FAMILY[EXPERIMENTS[name].chip] == family:
            out.append((row, name, float(row["value"])))
    return out


def constants_of(family):
    text = (ARCH / f"{family}_time.def").read_text(encoding="utf-8")
    return {m[1]: float(m[2]) for m in re.finditer(r"^TIME\((\w+), ([^,]+),", text, re.M)}


def less_of_much(r, knee=0.1):
    """What is squared. Beyond the knee an error counts in proportion: what the model does not have bends little."""
    return r if abs(r) <= knee else math.copysign(math.sqrt(2 * knee * abs(r) - knee * knee), r)


def prior(family):
    return {n: v for n, v in PRIOR.items() if n not in NOT_FITTED[family]}


class Fit:
    def __init__(self, family, runner, left_out=None, start=None):
        self.family, self.runner = family, runner
        self.keeps = NOT_FITTED[family] + (() if left_out else CHOSEN[family])
        self.base = constants_of(family)
        self.now = {**self.base, **(start or {})}
        self.points = [p for p in points(family) if left_out not in (EXPERIMENTS[p[1]].family, p[1])]
        self.points = [p for p in self.points if p[0]["metric"] != "l2_hit_rate"]  # some are 0

    def changes(self, more=None):
        both = {**self.now, **(more or {})}
        return {k: v for k, v in both.items() if v != self.base[k]}

    def residuals(self, pts, more=None):
        count = {}
        for _, name, _ in pts:
            count[name] = count.get(name, 0) + 1
        out = []
        for row, name, value in pts:
            got = METRICS[row["metric"]](self.runner.time(name, self.changes(more)), self.runner.experiments[name])
            weight = (0.5 if row["metric"].endswith("_ratio") else 1.0) / math.sqrt(count[name])
            out.append(weight * less_of_much(math.log(max(got, 1e-9) / value)))
        return np.array(out)

    def step(self, names, experiments, metrics):
        """True: it became better."""
        names = [n for n in names if n not in self.keeps]
        pts = [p for p in self.points if re.search(experiments, p[1]) and re.search(metrics, p[0]["metric"])]
        if not pts or not names:
            return False
        r0 = self.residuals(pts)
        size = {n: max(self.now[n], 0.1) for n in names}
        jac = np.array([(self.residuals(pts, {n: self.now[n] + 0.05 * size[n]}) - r0) / 0.05 for n in names]).T
        names = [n for n, column in zip(names, jac.T) if column @ column > 1e-9]
        jac = jac[:, [column @ column > 1e-9 for column in jac.T]]
        if not names:
            return False
        best = None
        for damping in (0.01, 0.3):
            lam = damping * np.trace(jac.T @ jac) / len(names)
            delta = np.clip(-np.linalg.solve(jac.T @ jac + lam * np.eye(len(names)), jac.T @ r0), -0.5, 0.8)
            new = {n: float(f"{max(self.now[n] + d * size[n], 0):.3g}") for n, d in zip(names, delta)}
            r1 = self.residuals(pts, new)
            if best is None or r1 @ r1 < best[0]:
                best = r1 @ r1, new
        if best[0] >= r0 @ r0 * 0.98:  # less is a walk along a valley
            return False
        self.now.update(best[1])
        before, after = (math.sqrt(r / len(r0)) for r in (r0 @ r0, best[0]))
        print(f"    {before:.4f} -> {after:.4f}  {best[1]}", flush=True)
        return True

    def run(self, rounds, about=""):
        """about: an experiment; only what speaks of it is fitted."""
        for _ in range(rounds):
            mine = [group for group in GROUPS if re.search(group[1], about) or not about]
            if not any([self.step(*group) for group in mine]):
                break


def cross(families, rounds, only):
    """Writes {kernel family and chip: {row id: predicted}} of rows that the fit had not seen.

    only: what to leave out; empty: each in turn.
    """
    seen = json.loads(CROSS.read_text()) if CROSS.exists() else {}
    for family in families:
        runner = Runner(small=True)
        named = [(name, EXPERIMENTS[name].family) for _, name, _ in points(family)]
        for left_out in only or sorted({name if kernels in ALONE else kernels for name, kernels in named}):
            print(f"  {family} without {left_out}", flush=True)
            fit = Fit(family, runner, left_out, prior(family))
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
    a.add_argument("--rounds", type=int, default=8)
    a.add_argument("--write", action="store_true")
    a.add_argument("--cross", action="store_true")
    a.add_argument("--only", nargs="*", default=[], help="with --cross: leave out these kernel families alone")
    o = a.parse_args()
    families = [o.family] if o.family else ["a2", "a5"]
    if o.cross:
        cross(families, o.rounds, o.only)
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
