"""The 1024 x 1024 x 1024 matrix product, from Python function to result, IR and Ascend C.

python examples/01_gemm.py
"""

import time
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import tilelang
import tilelang.language as T

M, N, K = 1024, 1024, 1024


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


def main():
    console = Console(soft_wrap=True, highlight=False)
    kernel = tilelang.compile(gemm_simple, out_idx=[-1])

    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K), dtype=np.float32).astype(np.float16)
    b = rng.standard_normal((K, N), dtype=np.float32).astype(np.float16)
    c = kernel(a, b)
    checked = kernel.times["run"]
    kernel.checks = False
    kernel(a, b)
    began = time.perf_counter()
    expected = a.astype(np.float32) @ b.astype(np.float32)
    numpy_seconds = time.perf_counter() - began
    error = np.abs(c - expected).max()

    info, run = kernel.explain_json(), kernel.last_run
    console.print(f"[bold]{kernel.name}[/bold]  {M} x {N} x {K}, float16 -> float32, on {info['chip']}")
    console.print(f"{run['blocks']} blocks on {run['cores_used']} of {run['cores']} {info['cores']} cores")
    console.print(
        f"{run['instructions']} instructions, {run['gm_read_bytes'] / 2**20:.1f} MiB read, "
        f"{run['gm_write_bytes'] / 2**20:.1f} MiB written"
    )
    table = Table("memory", "buffer", "bytes", "used", "there", box=None, header_style="bold")
    for memory in info["memory"]:
        own = [x for x in info["buffers"] if x["space"] == memory["space"]]
        for n, x in enumerate(own):
            total = (str(memory["used"]), str(memory["available"])) if n == 0 else ("", "")
            table.add_row(
                memory["space"] if n == 0 else "", f"{x['name']} {x['dtype']}{x['shape']}", str(x["bytes"]), *total
            )
    console.print(table)
    pairs = Counter(f"{f['src']}->{f['dst']}" for f in info["flags"] if f["kind"] == "set_flag")
    console.print("flags set: " + ", ".join(f"{pair} x{n}" if n > 1 else pair for pair, n in pairs.items()))
    console.print(f"maximum error against numpy: {error:.2e} (largest value {np.abs(expected).max():.1f})")
    t = kernel.times
    kernel.get_kernel_source()
    console.print(
        "compile: " + ", ".join(f"{s} {t[s] * 1e3:.2f} ms" for s in ("trace", "print", "load", "lower", "emit"))
    )
    console.print(
        f"host time: {checked:.3f} s with checks, {t['run']:.3f} s without, numpy float32 {numpy_seconds:.3f} s"
    )

    out = Path(__file__).resolve().parent.parent / "build" / "demo"
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("gemm.tl", kernel.ir()),
        ("gemm.lowered.tl", kernel.ir(after="lowered")),
        ("gemm.cpp", kernel.get_kernel_source()),
    ):
        (out / name).write_text(text)
        console.print(f"wrote {(out / name).relative_to(out.parent.parent)}")
    assert error < 1e-2, error
    print("Kernel Output Match!")


if __name__ == "__main__":
    main()
