"""Golden cycles of whole kernels: a change of the model shows here, kernel by kernel (pytest --update-golden)."""

import sys
from pathlib import Path

import pytest
import tilelang

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import bench  # noqa: E402

KERNELS = {
    "gemm 1024, 64 deep": lambda: bench.gemm_pipelined(1024, 1024, 1024, wide=256),
    "gemm 1000 x 777 x 300": lambda: bench.gemm_pipelined(1000, 777, 300),
    "gemm 512, whole K": lambda: bench.gemm_whole_rows(512, 512, 512),
    "add 2^20": lambda: bench.vector_add(1 << 20),
    "softmax 512 x 1024": lambda: bench.softmax(512),
    "rmsnorm 256 x 512, by rows": lambda: bench.rmsnorm_rows(256),
    "flash 1024": lambda: bench.flash(1024),
}
CHIPS = ("910B2", "910B4", "910_9391", "950PR_958x")


def test_cycles_of_whole_kernels(golden):
    lines = [f"{'kernel':<28}" + "".join(f"{c:>12}" for c in CHIPS)]
    for name, make in KERNELS.items():
        cycles = [tilelang.compile(make(), chip=chip).profile().cycles for chip in CHIPS]
        lines.append(f"{name:<28}" + "".join(f"{n:>12}" for n in cycles))
    golden(ROOT / "test" / "time" / "cycles.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("make", [lambda: bench.add_in_loop(1 << 14, 64), lambda: bench.copy_in_loop(1000, 40),
                                  lambda: bench.rmsnorm_rows(256), lambda: bench.vector_add(1 << 12, 64),
                                  lambda: bench.gemm_pipelined(300, 200, 100, 16, 16, 16)])  # fmt: skip
def test_a_timeline_changes_nothing(make):
    """With one, S goes on as soon as it can, so that events are numbered in order; without, it may sleep."""
    kernel = tilelang.compile(make(), chip="910B2")
    shapes = [(0, t.shape) for t in kernel.params]
    said = []
    for timeline in (False, True):
        assert kernel._program.time(shapes, timeline=timeline)[0]
        said.append(kernel._program.time_json())
    assert said[0] == said[1]
