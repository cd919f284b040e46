"""Writes docs/accuracy.md: every published point, what the clock says, and what cannot be compared.

    python tools/fit/accuracy.py            writes the page (about ten seconds)
    python tools/fit/accuracy.py --print    one line a row
"""

import argparse
import json
from pathlib import Path

from fit import CHIP_FAMILY, CROSS, points
from points import EXPERIMENTS, METRICS, OWN_GEMMS, experiment_of, is_unseen, reason, rows, skipped_metric
from run import Runner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"
WHOLE, PIECE = 10, 15  # per cent: targets for whole kernels, and for copies and single instructions
IS_WHOLE = {"matmul library", "matmul basic API", "pto gemm", "add", "catlass gemm", "nd2nz", "gelu"}
MAIN = ("task_duration", "time", "ticks_50MHz_total", "cycles", "profiled_cycles")  # how long, not how busy a pipe
FAMILY_NAME = {"a2": "910B, A3", "a5": "950"}


def compared(runner):
    """(row, experiment name, published, predicted)"""
    out = []
    for row, name, value in points(unseen=True):
        j = runner.time(name)
        out.append((row, name, value, METRICS[row["metric"]](j, EXPERIMENTS[name])))
    return out


def is_share(row):
    return row["metric"].endswith(("_ratio", "_rate"))


def error(row, value, got):
    """Per cent; of a share: points."""
    return got - value if is_share(row) else 100 * (got / value - 1)


def mean(v):
    return sum(v) / len(v) if v else 0.0


def spearman(a, b):
    def rank(v):  # equal values share the mean of their places
        return [sum(x < y for x in v) + (sum(x == y for x in v) - 1) / 2 for y in v]

    ra, rb = rank(a), rank(b)
    m = mean(ra)
    num = sum((x - m) * (y - m) for x, y in zip(ra, rb))
    return num / (sum((x - m) ** 2 for x in ra) * sum((y - m) ** 2 for y in rb)) ** 0.5


def classes(data, cross):
    """One line of the first table: name, points, mean and worst error of durations, of pipe times, unseen mean."""
    out = []
    for key in sorted({(EXPERIMENTS[d[1]].family, CHIP_FAMILY[EXPERIMENTS[d[1]].chip]) for d in data}):
        mine = [d for d in data if (EXPERIMENTS[d[1]].family, CHIP_FAMILY[EXPERIMENTS[d[1]].chip]) == key]
        main = [(abs(error(r, v, g)), n) for r, n, v, g in mine if r["metric"] in MAIN]
        rest = [abs(error(r, v, g)) for r, n, v, g in mine if r["metric"] not in MAIN and not is_share(r)]
        unseen = cross.get(f"{key[0]}, {key[1]}", {})
        new = [abs(error(r, v, unseen[r["id"]])) for r, n, v, g in mine if r["metric"] in MAIN and r["id"] in unseen]
        out.append((key, len(mine), mean([e for e, _ in main]), max(main), mean(rest), mean(new) if new else None))
    return out


def unseen_classes(data):
    """(kernel family, chip), durations, their mean error, the worst of them, of rows that no fit has seen."""
    found = {}
    for row, name, value, got in data:
        if row["metric"] in MAIN:
            key = EXPERIMENTS[name].family, CHIP_FAMILY[EXPERIMENTS[name].chip]
            found.setdefault(key, []).append((abs(error(row, value, got)), name))
    for key, errors in sorted(found.items()):
        yield key, len(errors), mean([e for e, _ in errors]), max(errors)


def unseen_table(data):
    yield "| kernel family | chip | durations | mean error | worst | where |"
    yield "|---|---|---|---|---|---|"
    for (family, chip), n, error_, (worst, where) in unseen_classes(data):
        yield f"| {family} | {FAMILY_NAME[chip]} | {n} | {error_:.1f} % | {worst:.1f} % | {where} |"


def first_table(table):
    yield "| kernel family | chip | rows | duration: mean error | worst | where | pipe times | duration, unseen |"
    yield "|---|---|---|---|---|---|---|---|"
    for (family, chip), n, main, (worst, where), rest, new in table:
        unseen = f"{new:.1f} %" if new is not None else "-"
        yield (f"| {family} | {FAMILY_NAME[chip]} | {n} | {main:.1f} % | {worst:.1f} % | {where} | {rest:.1f} % | "
               f"{unseen} |")


def misses(table, new_rows):
    """The classes that miss their target, worst first."""
    out = []
    for (family, chip), n, error_, (worst, where) in unseen_classes(new_rows):
        target = WHOLE if family in IS_WHOLE else PIECE
        if error_ > target:
            out.append((error_, f"* **{family}, {FAMILY_NAME[chip]}**: mean {error_:.1f} % of {n} durations that no fit"
                                f" has seen; the target is {target} %. Worst: {where}, {worst:.0f} %."))
    for (family, chip), _, main, (worst, where), _, new in table:
        target = WHOLE if family in IS_WHOLE else PIECE
        shown = new if new is not None else main
        if shown > target or main > target:
            out.append((shown, f"* **{family}, {FAMILY_NAME[chip]}**: mean {main:.1f} % on the rows it was fitted to"
                               + (f", {new:.1f} % unseen" if new is not None else "")
                               + f"; the target is {target} %. Worst: {where}, {worst:.0f} %."))
    return [text for _, text in sorted(out, reverse=True)]


def ranks(data):
    """(title, number, Spearman) over the configurations of one kernel."""
    for title, pattern in (("matmul 8192³, library cases 0 to 6, 910B", "A2 matmul"),
                           ("matmul 8192³, library cases 0 to 6, 950", "950 matmul"),
                           ("copies to UB, 910B", "A2 UB"), ("copies to UB, 950", "950 UB"),
                           ("copies to L1, 910B", "A2 L1"), ("copies to L1, 950", "950 L1"),
                           ("products of CATLASS, 950, eight of them unseen", "950 catlass")):
        seen, a, b = set(), [], []
        for row, name, value, got in data:
            if name.startswith(pattern) and row["metric"] == "task_duration" and (name, value) not in seen:
                if name.endswith(("7", "8")) and "matmul" in name:
                    continue  # as lowered text the same program as case 6
                seen.add((name, value))
                a.append(value)
                b.append(got)
        yield title, len(a), spearman(a, b)


def gemm_ratios(data, runner):
    """The hand-written GEMM of the A3: time and the four ratios at four sizes, published where it is."""
    yield "| size | | time, us | cube % | extract % | load % | store % |"
    yield "|---|---|---|---|---|---|---|"
    names = ("time", "TMATMUL_ratio", "TEXTRACT_ratio", "TLOAD_ratio", "TSTORE_ratio")
    for size in (1536, 3072, 6144, 7680):
        name = f"A3 gemm {size}"
        known = {r["metric"]: v for r, n, v, g in data if n == name}
        j = runner.time(name)
        said = [METRICS[m](j, EXPERIMENTS[name]) for m in names]
        if known:
            v = [known[m] for m in names]
            yield f"| {size} | published | {1e3 * v[0]:.1f} | " + " | ".join(f"{x:.1f}" for x in v[1:]) + " |"
        yield f"| {size} | predicted | {1e3 * said[0]:.1f} | " + " | ".join(f"{x:.1f}" for x in said[1:]) + " |"


def own_gemms(data, runner):
    """The published GEMM of 6144³ beside the compiler's own, written in Python with T.gemm and T.Pipelined alone."""
    yield "| 6144³, tiles of 128 x 256 | time, us | cube % |"
    yield "|---|---|---|"
    published = {r["metric"]: v for r, n, v, g in data if n == "A3 gemm 6144"}
    yield f"| by hand, published | {1e3 * published['time']:.0f} | {published['TMATMUL_ratio']:.1f} |"
    named = [("by hand, predicted", "A3 gemm 6144")] + [(n.removeprefix("A3 "), n) for n, _, _ in OWN_GEMMS]
    for title, name in named:
        j, e = runner.time(name), EXPERIMENTS[name]
        yield f"| {title} | {1e3 * METRICS['time'](j, e):.0f} | {METRICS['TMATMUL_ratio'](j, e):.1f} |"


def all_points(data):
    yield "| row | experiment | metric | published | predicted | error |"
    yield "|---|---|---|---|---|---|"
    for row, name, value, got in data:
        unit = " points" if is_share(row) else " %"
        off = error(row, value, got)
        yield f"| {row['id']} | {name} | {row['metric']} | {value:g} | {got:.5g} | {off:+.1f}{unit} |"


def why_not(row):
    """Why a row is not compared, or None."""
    name = experiment_of(row)
    return skipped_metric(row, name) if name else reason(row)


def not_compared():
    why = {}
    for row in rows():
        text = why_not(row)
        if text:
            why.setdefault(text, []).append(row["id"])
    yield "| reason | rows | which |"
    yield "|---|---|---|"
    for text, ids in sorted(why.items(), key=lambda x: -len(x[1])):
        yield f"| {text} | {len(ids)} | {spans(ids)} |"


def spans(ids):
    """P0001, P0002, P0004 -> P0001-P0002, P0004"""
    numbers, out = sorted(int(i[1:]) for i in ids), []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(f"P{a:04d}" if a == b else f"P{a:04d}-P{b:04d}" for a, b in out)


INTRODUCTION = """\
The points are in `tools/fit/published.tsv`, with their sources. `tools/fit/kernels.py` holds the measured kernels as
lowered programs, with the schedules their authors describe; `tools/fit/fit.py` fits the constants of
`src/arch/*_time.def` on them. *Unseen*: constants fitted, from vendors' figures, without any row of that family; for
the launch, of which no other family speaks, without that row.
Nothing is fitted to a single row, and no row has a constant of its own. Costs of the launch (core_ns, fetch_ns) and of
odd columns (fix_odd) are read from the rows that the tables of constants name, without a fit. Errors are absolute.
Costs of vector instructions are not fitted here: they are the vendor's table and the fits of pto-isa, whose test
goldens are the instruction goldens below.""".splitlines()

LIMITS = """\
* slices and hash of L2 are not published: how many pieces of lines one place and one small tensor give is what copies
  7, 8 to UB and 6, 7 to L1 say (all cores read one tensor of 6 or 8 MiB, from the same place or each from its own), and
  is taken for smaller tensors and for whole lines; that the two vector cores of a pair ask once for what both read is
  what distinguishes copy 7 to UB from copy 6 to L1 on the 950, and not the A2;
* what a launch of all cores costs on A2 (10 us for 24 cube cores, 13 us for 48 vector cores, a vendor's page says 20 us
  for both) is read from copies of these cores alone and taken as proportional to their number; it holds for one launch
  by itself, as a profiler times it. Kernels that are launched again and again have less: figures of 4 to 7 us for small
  vector kernels on all cores are published without their programs;
* what L2 holds of an earlier run: adds and gelus fit if all that a run writes is paid for by the next one, and so they
  are run here; nd2nz, whose tensors are 268 MB, fits neither so nor with an empty L2 (10 % and 8 % too fast);
* copy 5 to UB of the 950 was published twice, with 742 us and no hits and with 690 us and 8 % of hits;
* rows of 2038 columns that the cube writes on the 950 cost 22.6 cycles each more than whole sectors; on A2 it is not
  known;
* that cores which start together stay in step is what adds 2 and 3 show; a start one after the other, as a runtime's
  own tasks have it, would use HBM better and make add 2 15 % faster than it is;
* an unaligned ND2NZ load on A2 costs more than whole lines;
* which lines the 950 throws out: some places of its L2 hold less than others, by as much as its hit rates say;
* order of matmul 8192³ on the 950: cases 4 to 6 are bound by the cube here and equal but for their first loads. In case
  4 the loads are busy 95 % of the time as well, as published: there every load that takes longer than the mean holds up
  the cube, and here all take the same. Nor is the library's own scalar work in the program (52 % of the time of case 4,
  24 % and 30 % of cases 5 and 6). Cases 2 and 3 differ by 0.9 %;
* what many cores that read pieces of one small tensor get on the 950: copy 8 to UB loads as fast as its cores would
  alone, copy 7 to L1 with half as many cores slower than that leaves room for; one constant stands between them;
* copies 6 and 7 to L1 of the 950, by all cores from one small tensor, come 6 % to 8 % too early;
* order of copies to UB on the 950: cases 6, 7 and 8 differ by 6 % as published (case 6 was published twice, 355 and
  351 us, with 67 % and 75 % of hits), by 1 % here;
* the cost of flags between cores and of `sync_all`, which no published point isolates.""".splitlines()


def page(data, runner, cross):
    new = [d for d in data if is_unseen(d[0])]
    seen = [d for d in data if not is_unseen(d[0])]
    table = classes(seen, cross)
    rank = list(ranks(seen + [d for d in new if "catlass" in d[1]]))
    bad = misses(table, new)
    bad += [f"* order of {title}: Spearman {r:.2f}; the target is 0.95." for title, _, r in rank if r < 0.95]
    yield "# How well the clock keeps time"
    yield ""
    yield "Written by `python tools/fit/accuracy.py`; do not edit."
    yield ""
    if bad:
        yield "Where it is **worse than its target** (10 % for whole kernels, 15 % for copies and single instructions):"
        yield ""
        yield from bad
        yield ""
    yield from INTRODUCTION
    yield ""
    yield from first_table(table)
    yield ""
    yield "## Points that no fit has seen"
    yield ""
    errors = [e for _, n, e, _ in unseen_classes(new) for _ in range(n)]
    yield f"Rows U0001 and on, but for products of 2038 columns: {mean(errors):.1f} % in the mean of durations."
    yield ""
    yield from unseen_table(new)
    yield ""
    yield "## What the model does not have"
    yield ""
    yield from LIMITS
    yield ""
    yield "## Rank of configurations"
    yield ""
    yield "| configurations of one kernel | number | Spearman |"
    yield "|---|---|---|"
    for title, n, r in rank:
        yield f"| {title} | {n} | {r:.3f} |"
    yield ""
    yield "## The hand-written GEMM of the A3"
    yield ""
    yield from gemm_ratios(data, runner)
    yield ""
    yield "## The compiler's own GEMM"
    yield ""
    yield "`developer_gemm` of `tools/fit/kernels.py`: T.copy, T.gemm and T.Pipelined, no flag or address by hand."
    yield ""
    yield from own_gemms(data, runner)
    yield ""
    yield "## Every point"
    yield ""
    yield from all_points(data)
    yield ""
    yield "## Rows that are not compared"
    yield ""
    yield from not_compared()


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--print", action="store_true")
    o = a.parse_args()
    runner = Runner()
    data = compared(runner)
    if o.print:
        for row, name, value, got in data:
            print(f"{row['id']} {name:16} {row['metric']:18} {value:12.3f} {got:12.3f} {error(row, value, got):+7.1f}")
        return
    cross = json.loads(CROSS.read_text()) if CROSS.exists() else {}
    PAGE.write_text("\n".join(page(data, runner, cross)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
