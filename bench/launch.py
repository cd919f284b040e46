#!/usr/bin/env python3
"""What the host spends on the way to a card: finding a built kernel in the cache, and launching it.

    python bench/launch.py [--rounds N] [--json FILE]

There is no card: the runtime is test/rt/mock_acl.c with kernels that do nothing, so the times are the host's own -
checks, results, the core, copies of small tensors in and out - without a driver's. Times are the best and the median of
many rounds. `goal` is what the project set out for; nothing is asserted."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def toolkit(folder):
    """A toolkit with the fake compiler and the mock runtime."""
    for d in ("bin", "lib64", "include/acl"):
        (folder / d).mkdir(parents=True)
    mock = ROOT / "test/rt"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libascendcl.so", str(mock / "mock_acl.c"), "-o",
                    str(folder / "lib64/libascendcl.so")], check=True)
    compiler = folder / "bin/bisheng"
    compiler.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S '{mock / 'fake_bisheng.py'}' \"$@\"\n")
    compiler.chmod(0o755)
    os.environ.update(ASCEND_HOME_PATH=str(folder), TILELANG_CACHE_DIR=str(folder / "cache"), MOCK_RUN="none")


def kernel():
    import tilelang
    import tilelang.language as T

    @T.prim_func
    def add(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(8) as bx:
            a = T.alloc_shared((8, 64), "float32")
            b = T.alloc_shared((8, 64), "float32")
            T.copy(A[bx * 8, 0], a)
            T.copy(B[bx * 8, 0], b)
            for i, j in T.Parallel(8, 64):
                a[i, j] = a[i, j] + b[i, j]
            T.copy(a, C[bx * 8, 0])

    return tilelang.compile(add, out_idx=[-1], device="ascend")


def measure(f, rounds, repeat):
    f()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(repeat):
            f()
        times.append((time.perf_counter() - began) / repeat)
    return min(times), statistics.median(times)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--json")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        toolkit(Path(folder))
        import numpy as np

        import tilelang.device

        a = np.ones((64, 64), np.float32)
        ready = kernel()
        ready(a, a)
        out = np.empty_like(a)
        rows = []

        def found():
            launcher = tilelang.device.Launcher(ready)
            launcher.load()

        rows.append(("warm cache hit: kernel found, loaded", *measure(found, options.rounds, 10), 1e-3))
        whole = measure(lambda: tilelang.device.Launcher(kernel()).load(), options.rounds, 5)
        rows.append(("the same with tracing and lowering", *whole, 1e-3))
        rows.append(("launch, numpy, results given", *measure(lambda: ready(a, a, out), options.rounds, 200), 10e-6))
        rows.append(("launch, numpy, results made", *measure(lambda: ready(a, a), options.rounds, 200), 10e-6))
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None:
            t = torch.ones(64, 64)
            rows.append(("launch, torch, results made", *measure(lambda: ready(t, t), options.rounds, 200), 20e-6))
        print(f"{'':<40} {'best':>10} {'median':>10} {'goal':>10}")
        for what, best, median, goal in rows:
            print(f"{what:<40} {best * 1e6:8.1f}us {median * 1e6:8.1f}us {goal * 1e6:8.0f}us")
        if options.json:
            keys = ("what", "best", "median", "goal")
            Path(options.json).write_text(json.dumps([dict(zip(keys, r)) for r in rows], indent=1))


if __name__ == "__main__":
    main()
