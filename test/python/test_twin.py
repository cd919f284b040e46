"""The twin: the model of the hardware intrinsics by direct calls, and what kernel.twin() says without a toolkit."""

import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import twin

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(not COMPILER, reason="needs a C compiler")
def test_model(tmp_path):
    model = ROOT / "src" / "target" / "ascendc" / "twin"
    made = tmp_path / "model"
    subprocess.run([COMPILER, "-std=gnu17", "-O1", "-Wall", "-Werror", f"-I{model}", str(ROOT / "test/twin/model.c"),
                    str(model / "twin.c"), "-o", str(made), "-lm"], check=True)  # fmt: skip
    done = subprocess.run([str(made)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout, done.stdout


def add(n):
    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64)) as bx:
            a = T.alloc_shared((64,), "float32")
            T.copy(A[bx * 64], a)
            for i in T.Parallel(64):
                a[i] = a[i] + 1.0
            T.copy(a, B[bx * 64])

    return tilelang.compile(add, out_idx=[-1])


def test_without_a_toolkit(monkeypatch, tmp_path):
    kernel, x = add(128), np.zeros(128, np.float32)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    with pytest.raises(tilelang.ArgumentError, match="set ASCEND_HOME_PATH"):
        kernel.twin(x)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(tilelang.ArgumentError, match=r"there is no .*stub_fun\.h"):
        kernel.twin(x)


def test_program_calls_the_kernel():
    text = twin._program(add(100).get_kernel_source("ascendc"), {"A_gm": 400, "B_gm": 400}, {}, 2)
    assert 'driver.tensor("A_gm", 400)' in text and "driver.run(2, {1}, [&] { add_kernel(A_gm, B_gm); })" in text
    assert "<<<" not in text


def test_report_says_what_differs():
    assert twin.Report({"C": "same"}, "").same
    report = twin.Report({"C": 0.5, "D": "same"}, "block 0: 1 faults\n")
    assert not report.same and str(report).splitlines() == ["C: differs by up to 0.5", "D: same", "block 0: 1 faults"]
