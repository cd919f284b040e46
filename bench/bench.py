#!/usr/bin/env python3
"""Measures tlc against numpy and prints ratios: both sides of a ratio are taken in turn, in one run, on the same cores.

    python bench/bench.py [--rounds N] [--json FILE] [PART...]
                                            parts: gemm add checks clock timed compile errors import wheel

`goal` is what the project set out for; nothing here is asserted. A ratio is of the best times over all rounds, since
whatever else runs on the machine only ever adds time."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A variable that pins numpy's BLAS to old kernels would make the other side of the comparison slow.
PINNED = [v for v in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if v in os.environ]
if PINNED and __name__ == "__main__":
    for variable in PINNED:
        del os.environ[variable]
    os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np  # noqa: E402

import tilelang  # noqa: E402
import tilelang.language as T  # noqa: E402


class Table:
    def __init__(self):
        self.rows = []

    def row(self, what, ours, against=None, ratio=None, goal=""):
        self.rows.append(dict(what=what, ours=ours, against=against, ratio=ratio, goal=goal))
        print(f"{what:<58} {ours:>12} {against or '':>14} {ratio or '':>8}  {goal}", flush=True)

    def head(self):
        print(f"{'':<58} {'ours':>12} {'against':>14} {'ratio':>8}  goal")


def best_in_turn(rounds, *functions, clock=time.perf_counter):
    """The best time of each; every round runs each of them once, after a rest in which threads of the others stop
    spinning."""
    best = [float("inf")] * len(functions)
    for f in functions:
        f()
    for _ in range(rounds):
        for i, f in enumerate(functions):
            time.sleep(0.05)
            began = clock()
            f()
            best[i] = min(best[i], clock() - began)
    return best


def ms(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.0f} us"


# ---- kernels ----------------------------------------------------------------------------------------------------


def gemm_whole_rows(M, N, K):
    """One product a block, K whole: the compiler tiles on the way into L0."""

    @T.prim_func
    def gemm_simple(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, K), "float16")
            b = T.alloc_shared((K, 64), "float16")
            c = T.alloc_local((64, 64), "float32", scope="local")
            T.copy(A[by * 64 : by * 64 + 64, :], a)
            T.copy(B[:, bx * 64 : bx * 64 + 64], b)
            for i, j, k in T.Parallel(64, 64, K):
                c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C[by * 64 : by * 64 + 64, bx * 64 : bx * 64 + 64])

    return gemm_simple


def gemm_pipelined(M, N, K, tile=128, step=64, wide=128):
    """Tiles of 128 x `wide` with a pipelined loop over K."""

    @T.prim_func
    def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, wide), T.ceildiv(M, tile), threads=128) as (bx, by):
            a = T.alloc_shared((tile, step), "float16")
            b = T.alloc_shared((step, wide), "float16")
            c = T.alloc_fragment((tile, wide), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, step), num_stages=2):
                T.copy(A[by * tile, k * step], a)
                T.copy(B[k * step, bx * wide], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * tile, bx * wide])

    return gemm


def vector_add(n, block=8192):
    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            a = T.alloc_shared((block,), "float32")
            b = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            for i in T.Parallel(block):
                a[i] = a[i] + b[i]
            T.copy(a, C[bx * block])

    return add


def add_in_loop(n, block=256, steps=64):
    """Tiles of 1 KiB in a pipelined loop: little to compute for each instruction."""

    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block * steps)) as bx:
            a, b, c = (T.alloc_shared((block,), "float32") for _ in range(3))
            for i in T.Pipelined(steps, num_stages=2):
                T.copy(A[(bx * steps + i) * block], a)
                T.copy(B[(bx * steps + i) * block], b)
                for j in T.Parallel(block):
                    c[j] = a[j] + b[j]
                T.copy(c, C[(bx * steps + i) * block])

    return add


def copy_in_loop(rows, n, dtype="float16", steps=64):
    """One row of `n` at a time: next to nothing to do with it."""

    @T.prim_func
    def copy(X: T.Tensor((rows, n), dtype), Y: T.Tensor((rows, n), dtype)):
        with T.Kernel(T.ceildiv(rows, steps)) as bx:
            x = T.alloc_shared((1, n), dtype)
            for r in T.serial(steps):
                T.copy(X[bx * steps + r, 0], x)
                T.copy(x, Y[bx * steps + r, 0])

    return copy


def softmax(rows, n=1024, block=16):
    @T.prim_func
    def soft(X: T.Tensor((rows, n), "float32"), Y: T.Tensor((rows, n), "float32")):
        with T.Kernel(T.ceildiv(rows, block)) as bx:
            x = T.alloc_shared((block, n), "float32")
            m = T.alloc_fragment((block,), "float32")
            s = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.reduce_max(x, m, dim=1)
            for i, j in T.Parallel(block, n):
                x[i, j] = T.exp(x[i, j] - m[i])
            T.reduce_sum(x, s, dim=1)
            for i, j in T.Parallel(block, n):
                x[i, j] = x[i, j] / s[i]
            T.copy(x, Y[bx * block, 0])

    return soft


def rmsnorm_rows(rows, n=512):
    """One row at a time, f16 in and out: small instructions."""

    @T.prim_func
    def norm(X: T.Tensor((rows, n), "float16"), Y: T.Tensor((rows, n), "float16")):
        with T.Kernel(T.ceildiv(rows, 64)) as bx:
            x = T.alloc_shared((1, n), "float16")
            f = T.alloc_fragment((1, n), "float32")
            q = T.alloc_fragment((1, n), "float32")
            s = T.alloc_fragment((1,), "float32")
            for r in T.serial(64):
                T.copy(X[bx * 64 + r, 0], x)
                for i, j in T.Parallel(1, n):
                    f[i, j] = T.cast(x[i, j], "float32")
                for i, j in T.Parallel(1, n):
                    q[i, j] = f[i, j] * f[i, j]
                T.reduce_sum(q, s, dim=1)
                for i, j in T.Parallel(1, n):
                    f[i, j] = f[i, j] * T.rsqrt(s[i] / n + 1e-5)
                for i, j in T.Parallel(1, n):
                    x[i, j] = T.cast(f[i, j], "float16")
                T.copy(x, Y[bx * 64 + r, 0])

    return norm


def flash(tokens, dim=128, block=128):
    """Attention forward of one head with a running softmax: both sides of the chip."""
    scale = dim**-0.5
    shape = (tokens, dim)

    @T.prim_func
    def flash(Q: T.Tensor(shape, "float16"), K: T.Tensor(shape, "float16"), V: T.Tensor(shape, "float16"),
              O: T.Tensor(shape, "float16")):  # fmt: skip
        with T.Kernel(T.ceildiv(tokens, block)) as bx:
            q, k, v = (T.alloc_shared((block, dim), "float16") for _ in range(3))
            p = T.alloc_shared((block, block), "float16")
            s = T.alloc_fragment((block, block), "float32")
            o = T.alloc_fragment((block, dim), "float32")
            m, before, r, total, part = (T.alloc_fragment((block,), "float32") for _ in range(5))
            T.copy(Q[bx * block, 0], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(m, -1e30)
            for j in T.Pipelined(T.ceildiv(tokens, block), num_stages=2):
                T.copy(K[j * block, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(m, before)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(block):
                    r[i] = T.exp((before[i] - m[i]) * scale)
                for i, c in T.Parallel(block, block):
                    s[i, c] = T.exp((s[i, c] - m[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * r[i] + part[i]
                T.copy(s, p)
                for i, c in T.Parallel(block, dim):
                    o[i, c] = o[i, c] * r[i]
                T.copy(V[j * block, 0], v)
                T.gemm(p, v, o)
            for i, c in T.Parallel(block, dim):
                o[i, c] = o[i, c] / total[i]
            T.copy(o, O[bx * block, 0])

    return flash


# ---- parts ------------------------------------------------------------------------------------------------------


def bench_gemm(table, rounds):
    n = 1024
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32).astype(np.float16) for _ in range(2))
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    c, c32 = np.empty((n, n), np.float32), np.empty((n, n), np.float32)
    for name, make in (("64 x 64 tiles, whole K", gemm_whole_rows), ("128 x 128 tiles, K in steps", gemm_pipelined)):
        on = tilelang.compile(make(n, n, n), checks=True)
        off = tilelang.compile(make(n, n, n), checks=False)
        fast, checked, blas = best_in_turn(rounds, lambda: off(a, b, c), lambda: on(a, b, c),
                                           lambda: np.matmul(a32, b32, out=c32))
        worst = float(np.abs(c - c32).max())
        if worst > 1e-2:
            raise SystemExit(f"the two products differ by {worst}")
        table.row(f"1024^3 f16 GEMM, {name}, checks off", ms(fast), ms(blas), f"{fast / blas:.2f}", "<= 3")
        table.row(f"1024^3 f16 GEMM, {name}, checks on", ms(checked), ms(blas), f"{checked / blas:.2f}", "<= 10")


def bench_add(table, rounds):
    n = 1 << 24
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
    c, c_numpy = np.empty(n, np.float32), np.empty(n, np.float32)
    off = tilelang.compile(vector_add(n), checks=False)
    on = tilelang.compile(vector_add(n), checks=True)
    fast, checked, add = best_in_turn(rounds, lambda: off(a, b, c), lambda: on(a, b, c),
                                      lambda: np.add(a, b, out=c_numpy))
    if not np.array_equal(c, c_numpy):
        raise SystemExit("the two sums differ")
    table.row("add of 2^24 f32, checks off", ms(fast), ms(add), f"{fast / add:.2f}", "<= 4")
    table.row("add of 2^24 f32, checks on", ms(checked), ms(add), f"{checked / add:.2f}")


def timed_cases():
    """(name, kernel, tensors, how much checks may cost)"""
    rng = np.random.default_rng(0)

    def tensor(dtype, *shape):
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)

    f16, f32 = np.float16, np.float32
    return (("add of 2^22 f32", vector_add(1 << 22), [tensor(f32, 1 << 22) for _ in range(3)], "<= 4"),
            ("softmax 4096 x 1024 f32", softmax(4096), [tensor(f32, 4096, 1024) for _ in range(2)], "<= 4"),
            ("rmsnorm 2048 x 512 f16, by rows", rmsnorm_rows(2048),
             [tensor(f16, 2048, 512) for _ in range(2)], "<= 4"),
            ("512^3 f16 GEMM, whole K", gemm_whole_rows(512, 512, 512),
             [tensor(f16, 512, 512), tensor(f16, 512, 512), tensor(f32, 512, 512)], "<= 2"),
            ("1024^3 f16 GEMM, K in steps", gemm_pipelined(1024, 1024, 1024),
             [tensor(f16, 1024, 1024), tensor(f16, 1024, 1024), tensor(f32, 1024, 1024)], "<= 2"))


def small_cases():
    """(name, kernel, tensors) where an instruction has little to do, and so the clock much."""

    def adds(name, n, make):
        return (f"add of {name}", make, [np.ones(n, np.float32) for _ in range(3)])

    def copies(rows, n):
        return (f"copy of {rows} rows of {n} f16, by rows", copy_in_loop(rows, n),
                [np.ones((rows, n), np.float16) for _ in range(2)])

    return [adds("2^20 f32, tiles of 256 in a loop", 1 << 20, add_in_loop(1 << 20)),
            adds("2^18 f32, tiles of 64 in a loop", 1 << 18, add_in_loop(1 << 18, 64)),
            adds("2^18 f32, blocks of 64", 1 << 18, vector_add(1 << 18, 64)),
            adds("2^16 f32, tiles of 16 in a loop", 1 << 16, add_in_loop(1 << 16, 16)),
            copies(4096, 512), copies(4096, 64), copies(4096, 16),
            ("512^3 f16 GEMM, tiles of 16", gemm_pipelined(512, 512, 512, 16, 16, 16),
             [np.ones((512, 512), np.float16) for _ in range(2)] + [np.ones((512, 512), np.float32)])]


def bench_checks(table, rounds):
    """The same kernel with and without checks, on one host thread."""
    for name, make, tensors, goal in timed_cases():
        on, off = (tilelang.compile(make, checks=c, threads=1) for c in (True, False))
        checked, fast = best_in_turn(rounds, lambda: on(*tensors), lambda: off(*tensors))
        table.row(f"{name}: checks on, against off", ms(checked), ms(fast), f"{checked / fast:.2f}", goal)


CLOCK = """
import resource, sys, time, warnings
sys.path.insert(0, {bench!r})
warnings.simplefilter("ignore")
import bench, tilelang
kernel = tilelang.compile({make})
p = kernel.profile()
best = float("inf")
for _ in range({rounds}):
    began = time.process_time()
    kernel._program.time(p._values)
    best = min(best, time.process_time() - began)
print(best, p.instructions, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def bench_clock(table, rounds):
    """Time without data, on one host core: CPU seconds, so that what else runs here does not count; each kernel in a
    process of its own, whose whole memory is told."""
    cases = (("4096^3 GEMM, tiles of 128 x 256 x 64", "bench.gemm_pipelined(4096, 4096, 4096, wide=256)", "< 0.5 s"),
             ("flash attention forward, 32 K tokens", "bench.flash(32768)", "< 5 s"))
    for name, make, goal in cases:
        code = CLOCK.format(bench=str(ROOT / "bench"), make=make, rounds=min(rounds, 5))
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        seconds, instructions, memory = (float(x) for x in out.split())
        table.row(f"clock: {name}", ms(seconds), goal=goal)
        table.row("  instructions a second", f"{instructions / seconds / 1e6:.1f} M", goal=">= 5 M")
        table.row("  memory of the process", f"{memory / 1e6:.0f} MB", goal="< 200 MB")


def bench_timed(table, rounds):
    """A run with numbers and time (kernel.profile(*tensors) without its report) against one with numbers alone; checks
    on, one thread, CPU time."""
    for name, make, tensors in [case[:3] for case in timed_cases()] + small_cases():
        kernel = tilelang.compile(make, checks=True, threads=1)
        kernel(*tensors)
        values = [(t.ctypes.data, t.shape) for t in tensors]
        program = kernel._program

        def run():
            program.sim(values, threads=1)

        def both():
            program.sim(values, threads=1, record=True)
            program.time(values, follow=True)

        plain, timed = best_in_turn(rounds, run, both, clock=time.process_time)
        table.row(f"{name}: numbers and time", ms(timed), ms(plain), f"{timed / plain:.2f}", "<= 1.3")


def bench_compile(table, rounds):
    """Python function to lowered IR and Ascend C, by stage; each stage at its best."""
    cases = (("gemm 1024^3, whole K", lambda: gemm_whole_rows(1024, 1024, 1024)),
             ("gemm 4096^3, K in steps", lambda: gemm_pipelined(4096, 4096, 4096)),
             ("gemm 1000 x 777 x 1234", lambda: gemm_pipelined(1000, 777, 1234)))
    for name, make in cases:
        stages, whole = {}, float("inf")
        for _ in range(max(rounds, 10)):
            began = time.perf_counter()
            kernel = tilelang.compile(make())
            kernel.get_kernel_source("ascendc")
            whole = min(whole, time.perf_counter() - began)
            for stage, seconds in kernel.times.items():
                stages[stage] = min(stages.get(stage, float("inf")), seconds)
        core = sum(stages[s] for s in ("load", "lower", "emit"))
        table.row(f"compile {name}: function to Ascend C", ms(whole), goal="< 15 ms")
        table.row("  of it the C core: read, lower, write", ms(core), goal="< 3 ms")
        for stage in stages:
            table.row(f"    {stage}", ms(stages[stage]))
        for done in kernel.explain_json().get("times") or []:
            table.row(f"      pass {done['pass']}", ms(done["seconds"]))


def wrong_name():
    @T.prim_func
    def f(X: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            T.tile.exq(X, X)


def wrong_shape():
    @T.prim_func
    def f(X: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64, 32), "float32")
            T.copy(X, x)


def too_large():
    tilelang.compile(gemm_whole_rows(4096, 4096, 16384))


def missing_flag():
    @T.prim_func
    def f(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(16) as bx:
            x = T.alloc_ub((64, 64), "float32")
            T.copy(X, x)
            T.set_flag("mte2", "v", 0)
            T.wait_flag("mte2", "v", 0)
            T.tile.add(x, x, 1.0)
            T.copy(x, Y)

    kernel = tilelang.compile(f, out_idx=-1)
    return lambda: kernel(np.zeros((64, 64), np.float32))


def wrong_argument():
    kernel = tilelang.compile(gemm_pipelined(256, 256, 256), out_idx=-1)
    return lambda: kernel(np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float16))


def bench_errors(table, rounds):
    """From the call to the message as a terminal shows it, with its source lines; the first one reads the files."""
    cases = (("a name that T does not have", wrong_name), ("shapes of a copy", wrong_shape),
             ("tiles that do not fit, K = 16384", too_large), ("a fault of a run, 16 blocks", missing_flag()),
             ("an argument of a call", wrong_argument()))
    for name, make in cases:
        first, best = None, float("inf")
        for _ in range(max(rounds, 5)):
            began = time.perf_counter()
            try:
                make()
            except tilelang.TileLangError as e:
                e.render(color=True)
            took = time.perf_counter() - began
            first, best = took if first is None else first, min(best, took)
        table.row(f"error: {name}", ms(best), f"first {ms(first)}", goal="< 50 ms")


def bench_import(table, rounds):
    """Fresh processes, with compiled bytecode as in an installed package."""
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def once(modules):
        command = [sys.executable, "-c", code.format(modules)]
        out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return float(out.stdout)

    best = {"numpy": float("inf"), "tilelang": float("inf"), "numpy, tilelang": float("inf")}
    for _ in range(max(2 * rounds, 15)):
        for modules in best:
            best[modules] = min(best[modules], once(modules))
    numpy, both = best["numpy"], best["numpy, tilelang"]
    more = best["tilelang"] - numpy
    table.row("import tilelang, against import numpy", ms(best["tilelang"]), ms(numpy), f"{more * 1e3:+.0f} ms",
              "<= +60 ms")
    table.row("import numpy, tilelang, against import numpy", ms(both), ms(numpy), f"{(both - numpy) * 1e3:+.0f} ms")
    heavy = subprocess.run([sys.executable, "-c", "import sys, tilelang; print('torch' in sys.modules)"],
                           capture_output=True, text=True, check=True).stdout.strip()
    table.row("import tilelang imports torch", "yes" if heavy == "True" else "no", goal="no")


def bench_wheel(table, rounds):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, str(ROOT)],
                              capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise SystemExit(f"no wheel: {done.stderr.strip()}")
        size = wheels[0].stat().st_size
        with zipfile.ZipFile(wheels[0]) as z:
            inside = sum(i.file_size for i in z.infolist())
    table.row("wheel", f"{size / 1e6:.2f} MB", goal="< 3 MB")
    table.row("  unpacked", f"{inside / 1e6:.2f} MB")


PARTS = {"gemm": bench_gemm, "add": bench_add, "checks": bench_checks, "clock": bench_clock, "timed": bench_timed,
         "compile": bench_compile, "errors": bench_errors, "import": bench_import, "wheel": bench_wheel}


def blas_name():
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "kernel not known: threadpoolctl is not installed"
    return ", ".join(f"{i['internal_api']} {i.get('architecture', '')} x{i['num_threads']}" for i in threadpool_info())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    args = parser.parse_args()
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"no part {part}; one of {' '.join(PARTS)}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__} "
          f"({blas_name()}), tilelang {tilelang.__version__}")
    table = Table()
    table.head()
    for part in args.parts or PARTS:
        PARTS[part](table, args.rounds)
    if args.json:
        args.json.write_text(json.dumps(table.rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
