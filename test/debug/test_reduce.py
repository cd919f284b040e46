"""python -m tilelang reduce."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug.core import parsed
from tilelang.debug.reduce import differs, main, outcome, reduce

pytest.importorskip("tilelang._core")

_spec = importlib.util.spec_from_file_location("tl_conftest", pathlib.Path(__file__).parents[1] / "conftest.py")
_conftest = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_conftest)
find_tlc = _conftest.find_tlc

RACE = """tl 1
file "k.py"
kernel @k(%A: gm f32[256, 64], %B: gm f32[64], %C: gm f32[256, 64] out) grid(%bx: 8) {
  alloc %a: ub f32[32, 64] @2:5
  alloc %b: ub f32[64] @2:5
  copy %B -> %b @3:5
  for %i in 0..4 {
    if %bx > 2 {
      copy %A[%bx * 32 +: 32, 0 +: 64] -> %a @5:9
      add %a, %b -> %a @6:9
    } else {
      fill 0.0 -> %a @7:9
    } @4:9
    mul %a, 2.0 -> %a @8:9
    exp %a -> %a @8:9
  } @4:5
  copy %a -> %C[0 +: 32, 0 +: 64] @9:5
} @1:1
"""


def test_a_fault(tmp_path):
    tlc = find_tlc()
    assert outcome([tlc, "sim"], RACE, 20) == "TL0806"  # all blocks write the same rows
    small = reduce(RACE, lambda text: outcome([tlc, "sim"], text, 20) == "TL0806")
    assert outcome([tlc, "sim"], small, 20) == "TL0806"
    body = small.split("{\n", 1)[1].strip().split("\n")
    assert len(body) <= 4 and "for" not in small, small
    parsed(small)


def test_a_recorded_fault(tmp_path):
    """`tlc replay` ends with 0 when the recorded fault comes again: that is the failure."""

    @T.prim_func
    def f(A: T.Tensor((256, 64), "float32"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(4) as bx:
            a = T.alloc_ub((64, 64), "float32")
            T.copy(A[bx * 64, 0], a)
            T.tile.add(a, a, 1.0)
            T.device_assert(a[0, 0] < 0.5)
            T.tile.mul(a, a, 2.0)
            T.copy(a, C[bx * 64, 0])

    path = tilelang.compile(f, out_idx=[-1]).reproduce(tmp_path / "call.tl", np.ones((256, 64), np.float32))
    small = tmp_path / "small.tl"
    assert main([str(path), "--replay", "--tlc", find_tlc(), "-o", str(small)]) == 0
    assert outcome([find_tlc(), "replay"], small.read_text(), 20) == "TL0817"
    assert "add" not in small.read_text() and "mul" not in small.read_text()


def test_the_command(tmp_path):
    (tmp_path / "case.tl").write_text(RACE)
    call = [sys.executable, "-m", "tilelang", "reduce", str(tmp_path / "case.tl"), "--tlc", find_tlc()]
    done = subprocess.run([*call, "--test", "grep -q exp {}"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0 and "exp" in done.stdout and "copy" not in done.stdout, done.stderr
    done = subprocess.run([*call, "--interpret"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 2 and "does not fail" in done.stderr


def test_agreement():
    path = pathlib.Path(__file__).parents[1] / "pass" / "parallel" / "ew_chain.tl"
    assert not differs(path.read_text())


def test_what_is_not_there_is_said(tmp_path, monkeypatch, capfd):
    assert main([str(tmp_path / "none.tl")]) == 2
    assert "none.tl cannot be read: No such file" in capfd.readouterr().err
    (tmp_path / "case.tl").write_text("tl 1\n")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main([str(tmp_path / "case.tl")]) == 2 and "there is no tlc" in capfd.readouterr().err


def test_files_that_cannot_be_reduced_or_written(tmp_path, capfd):
    (tmp_path / "x.tl").write_text("hello\n")
    for how in ([], ["--sim"], ["--interpret"], ["--test", "true"]):
        assert main([str(tmp_path / "x.tl"), *how]) == 2
        assert "no line of it begins with `kernel`" in capfd.readouterr().err
    (tmp_path / "k.tl").write_text("tl 1\nkernel @k(%A: gm f32[64]) grid(%bx: 1) {\n  fill 1.0 -> %A\n}\n")
    out = tmp_path / "no" / "small.tl"
    assert main([str(tmp_path / "k.tl"), "--test", "true", "-o", str(out)]) == 2
    assert "small.tl cannot be written: No such file" in capfd.readouterr().err


@pytest.mark.parametrize(
    "body, says",
    [
        ("{ foo }", "lines of their own"),
        ("{\n  if true {\n    foo\n", "lines of their own"),
        ("{\n  }\n  foo\n}", "do not match"),
    ],
)
def test_text_whose_braces_are_elsewhere(tmp_path, capfd, body, says):
    path = tmp_path / "k.tl"
    path.write_text(f"tl 1\nkernel @k(%A: gm f32[64]) grid(%bx: 1) {body}\n")
    assert main([str(path), "--test", "true"]) == 2
    assert "cannot be taken apart" in (err := capfd.readouterr().err) and says in err
