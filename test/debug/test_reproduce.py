"""kernel.reproduce and `tlc replay`."""

import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T

pytest.importorskip("tilelang._core")


def make(by_hand, shift=0):
    M = T.symbolic("M")

    @T.prim_func
    def f(A: T.Tensor((M, 64), "float16"), s: T.float32, n: T.int32, C: T.Tensor((M, 64), "float16")):
        with T.Kernel(T.ceildiv(M, 16)) as bx:
            a = T.alloc_ub((16, 64), "float16")
            T.copy(A[bx * 16, 0], a)
            if by_hand:
                T.set_flag("mte2", "v", 0)
            T.tile.mul(a, a, T.cast(s, "float16"))
            if n > 3:
                T.tile.add(a, a, 1.0)
            if by_hand:
                T.set_flag("v", "mte3", 0)
                T.wait_flag("v", "mte3", 0)
            T.copy(a, C[bx * 16 + shift, 0])

    return tilelang.compile(f, out_idx=[-1])


A = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float16)


def test_the_same_bytes(tlc, tmp_path):
    path = make(False).reproduce(tmp_path / "ok.tl", A, 1.5, 4)
    status, out, err = tlc("replay", str(path))
    assert (status, out, err) == (0, "the same as recorded: the same bytes\n", "")
    assert tlc("check", str(path))[0] == 0
    lines = path.read_text().split("\n")
    other = [x.replace("arg n 4", "arg n 2") for x in lines]
    (tmp_path / "other.tl").write_text("\n".join(other))
    status, out, _ = tlc("replay", str(tmp_path / "other.tl"))
    assert status == 1 and out.startswith("not as recorded: %C has crc32 ")


def test_tensors_of_many_lines(tlc_path, tmp_path):
    """What is read of a record takes room like the record, not like its square."""

    @T.prim_func
    def f(A: T.Tensor((1024, 512), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_ub((64,), "float32")
            T.copy(A[1023, 448], a)
            T.copy(a, C)

    path = tilelang.compile(f, out_idx=[-1]).reproduce(
        tmp_path / "large.tl", np.random.default_rng(1).normal(size=(1024, 512)).astype(np.float32)
    )
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)); "
    done = subprocess.run(
        [sys.executable, "-c", limited + "os.execv(sys.argv[1], sys.argv[1:])", tlc_path, "replay", str(path)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "the same as recorded: the same bytes\n"), done.stderr


def test_the_same_fault(tlc, tmp_path):
    path = make(True).reproduce(tmp_path / "race.tl", A, 1.5, 4)
    assert ";! fault TL08" in path.read_text() and ";! option no-auto-sync" in path.read_text()
    status, out, err = tlc("replay", str(path))
    assert status == 0 and out.startswith("the same as recorded: TL08") and "test_reproduce.py" in err
    cured = path.read_text().replace(";! option no-auto-sync\n", "")
    (tmp_path / "cured.tl").write_text(cured.replace("set_flag mte2 -> v #0", "let %x: i32 = 0"))
    status, out, _ = tlc("replay", str(tmp_path / "cured.tl"))
    assert status == 1 and out.startswith("not as recorded")


def test_a_file_without_a_record(tlc, tmp_path):
    (tmp_path / "plain.tl").write_text(make(False).ir())
    status, _, err = tlc("replay", str(tmp_path / "plain.tl"))
    assert status == 2 and "records no call" in err
