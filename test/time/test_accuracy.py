"""docs/accuracy.md says what the clock says now, and the promises about published kernels hold."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "fit"))

import accuracy  # noqa: E402
from fit import points  # noqa: E402
from points import EXPERIMENTS, METRICS, rows  # noqa: E402
from run import Runner  # noqa: E402

QUICK = ("A2 bank 5", "A2 mmad 256", "A2 TEXP 64x64 f16", "A2 UB 3", "A2 L1 2", "950 UB 3", "950 empty 64",
         "A3 gemm 3072", "A3 gemm 6144", "950 basic 1")  # fmt: skip


@pytest.fixture(scope="module")
def runner():
    return Runner()


def test_the_page_is_fresh(runner):
    """If this fails, run tools/fit/accuracy.py."""
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    data = [(row, name, value, METRICS[row["metric"]](runner.time(name), EXPERIMENTS[name]))
            for row, name, value in points(unseen=True) if name in QUICK]  # fmt: skip
    assert {d[1] for d in data} == set(QUICK)
    missing = [line for line in accuracy.all_points(data) if line not in page]
    assert not missing


def test_every_published_row_is_accounted_for():
    compared = {row["id"] for row, _, _ in points(unseen=True)}
    left_out = "\n".join(accuracy.not_compared())
    for row in rows():
        assert (row["id"] in compared) != (accuracy.why_not(row) is not None)
    assert "P0960" not in compared and left_out


def test_hand_written_gemm_6144(runner):
    """Published: 1506 us, cube 86.7 %. Within 10 % and 5 points."""
    j, e = runner.time("A3 gemm 6144"), EXPERIMENTS["A3 gemm 6144"]
    assert METRICS["time"](j, e) == pytest.approx(1.506, rel=0.10)
    assert METRICS["TMATMUL_ratio"](j, e) == pytest.approx(86.7, abs=5)


def test_automatic_gemm_6144_is_as_fast(runner):
    """The compiler's own schedule of the same product, written with T.Persistent: no slower in the model."""
    own = METRICS["time"](runner.time("A3 own gemm, T.Persistent"), EXPERIMENTS["A3 own gemm, T.Persistent"])
    assert own <= METRICS["time"](runner.time("A3 gemm 6144"), EXPERIMENTS["A3 gemm 6144"])
