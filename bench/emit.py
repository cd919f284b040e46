#!/usr/bin/env python3
"""How long each writer takes from lowered IR to C++, for every kernel in folders of .tl files.

    python bench/emit.py [--rounds N] [FOLDER...]      default: the kernels of the tests

A time is the best of the rounds. The goal is under 5 ms for each kernel; nothing here is asserted."""

import argparse
import json
import time
from pathlib import Path

from tilelang import _core

ROOT = Path(__file__).resolve().parent.parent


def lowered(path):
    p = _core.Program()
    options = json.loads(path.with_suffix(".json").read_text()) if path.with_suffix(".json").exists() else {}
    if not p.load(path.name, path.read_text(encoding="utf-8")):
        return None
    ok = p.lower(chip=options.get("chip"), no_auto_sync=options.get("nosync", False),
                 no_auto_memory=options.get("nomem", False))  # fmt: skip
    return p if ok else None


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("folders", nargs="*", default=[ROOT / "test"])
    options = a.parse_args()
    files = sorted(f for folder in options.folders for f in Path(folder).rglob("*.tl") if "bad" not in f.parts)
    times, sizes = {t: [] for t in _core.targets()}, {t: 0 for t in _core.targets()}
    for path in files:
        p = lowered(path)
        for target in _core.targets() if p else ():
            best, text = float("inf"), None
            for _ in range(options.rounds):
                began = time.perf_counter()
                text = p.emit(target)
                best = min(best, time.perf_counter() - began)
            if text:
                times[target].append((best, path.name))
                sizes[target] += len(text)
    print(f"{'target':<10} {'kernels':>8} {'median':>10} {'99 %':>10} {'slowest':>10}   {'bytes a kernel':>14}")
    for target, found in times.items():
        found.sort()
        n = len(found)
        pick = [found[n // 2][0], found[n * 99 // 100][0], found[-1][0]]
        print(f"{target:<10} {n:>8} " + " ".join(f"{t * 1e3:>7.3f} ms" for t in pick)
              + f"   {sizes[target] // n:>14}  {found[-1][1]}")  # fmt: skip


if __name__ == "__main__":
    main()
