"""The twin: the model of the hardware intrinsics by direct calls, its driver, and kernel.twin() and `tlc twin`.

No header of a vendor is needed: in the compiler's place is a program that "compiles" to one that does what the test
wants; what is written for it and what is made of its results is what is tested."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "src" / "target" / "ascendc" / "twin"
PARTS = [str(p) for p in sorted(MODEL.glob("*.c"))]
CC, CXX = shutil.which("cc") or shutil.which("gcc"), shutil.which("c++") or shutil.which("g++")


@pytest.mark.skipif(not CC, reason="needs a C compiler")
def test_model(tmp_path):
    made = tmp_path / "model"
    subprocess.run([CC, "-std=gnu17", "-O1", "-Wall", "-Werror", f"-I{MODEL}", str(ROOT / "test/twin/model.c"),
                    *PARTS, "-o", str(made), "-lm", "-lpthread"], check=True)  # fmt: skip
    done = subprocess.run([str(made)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout, done.stdout


DRIVER = """
#include <cstdint>
namespace AscendC { enum { AIC_TYPE = 1, AIV_TYPE = 2 }; }
static int64_t block_idx;
static int32_t g_coreType, g_taskRation, sub_block_idx;
#include "driver.h"
int main(int, char **argv) {
  TwinDriver twin(argv[1]);
  const auto add = twin.scalar<float>(0);
  float *ws = (float *)twin.tensor("ws", 1, 16, 4);
  auto *sum = (float *)twin.tensor("sum", 2, 16, 4);
  return twin.run((int64_t)2, {false, true, true}, TOGETHER, [&] {
    int me = int(block_idx) * 2 + sub_block_idx;
    if (add < 0 && me == 3) abort();
    twin_issue(TW_MTE3);
    twin_touch(TW_MTE3, ws + me, 4, TW_WRITE);
    ws[me] += add;
    MEET
    twin_issue(TW_MTE2);
    twin_touch(TW_MTE2, ws, 16, TW_READ);
    sum[me] = ws[0] + ws[1] + ws[2] + ws[3];
  });
}
"""


@pytest.mark.skipif(not CC or not CXX, reason="needs a C++ compiler")
def test_driver(tmp_path):
    subprocess.run([CC, "-std=gnu17", "-c", *PARTS], cwd=tmp_path, check=True)

    objects = [pathlib.Path(p).stem + ".o" for p in PARTS]

    def run(together, meet, add):
        text = DRIVER.replace("TOGETHER", together).replace("MEET", meet)
        (tmp_path / "main.cpp").write_text(text)
        made = tmp_path / "main"
        subprocess.run([CXX, "-std=c++17", f"-I{MODEL}", "main.cpp", *objects, "-o", str(made), "-lpthread", "-lm"],
                       cwd=tmp_path, check=True)  # fmt: skip
        (tmp_path / "0.in").write_bytes(np.float32(add).tobytes())
        (tmp_path / "1.in").write_bytes(np.arange(4, dtype=np.float32).tobytes())
        status = subprocess.run([str(made), str(tmp_path)], timeout=60).returncode
        return status, np.fromfile(tmp_path / "2.out", np.float32), (tmp_path / "faults").read_text()

    all_cores = "twin_cross_set(TW_MTE3, 0, 14); twin_cross_wait(14);"
    status, out, faults = run("true", all_cores, 1)
    assert (status, out.tolist(), faults) == (0, [10] * 4, "")
    assert "a core was ended by signal 6" in run("true", all_cores, -1)[2]  # nobody waits for it
    status, _, faults = run("false", "", 1)  # nobody waits for anybody
    assert status == 0 and re.match(r"block 0, vector core [01]: .*ws at element \d; vector core", faults), faults
    assert "deadlock" in run("true", "if (me) twin_cross_set(TW_MTE3, 0, 14); twin_cross_wait(14);", 1)[2]


# ---- around it -------------------------------------------------------------------------------------------------------

FAKE = f"""#!{sys.executable}
import os, pathlib, stat, sys
here = pathlib.Path(os.environ["SEEN"])
here.joinpath(os.path.basename(sys.argv[0]) + ".args").write_text(" ".join(sys.argv[1:]))
if "-c" in sys.argv:
    sys.exit()
if os.environ.get("REFUSE"):
    sys.exit("kernel.cpp:3:1: error: no such thing")
here.joinpath("kernel.cpp").write_text(pathlib.Path("kernel.cpp").read_text())
assert all(pathlib.Path(f).stat().st_size for f in ("order.c", "twin.h", "glue.cpp", "driver.h"))
pathlib.Path("kernel").write_text("#!{sys.executable}" + '''
import numpy as np, os, pathlib, sys, time
os.chdir(sys.argv[1])
what = os.environ["WHAT"]
if what == "hang": time.sleep(60)
if what == "crash": sys.exit("no room")
a = np.fromfile("0.in", np.float32) + 1
if what == "differs": a[7] += 0.5
if what == "short": a = a[1:]
if what != "nothing": a.tofile("1.out")
np.fromfile("0.in", np.float32).tofile("0.out")
pathlib.Path("faults").write_text("block 1, cube core: flag #3 is left set\\\\n" if what == "fault" else "")
''')
os.chmod("kernel", 0o755)
"""


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


@pytest.fixture
def toolkit(monkeypatch, tmp_path):
    """A tree that looks like toolkit 8.1, and compilers that put a program of ours in the kernel's place."""
    for folder in ("tools/tikicpulib/lib/include", "aarch64-linux/ascendc/include/basic_api"):
        (tmp_path / "kit" / folder).mkdir(parents=True)
    (tmp_path / "kit/tools/tikicpulib/lib/include/stub_fun.h").touch()
    for name, variable in (("fake-cc", "CC"), ("fake-cxx", "CXX")):
        path = tmp_path / name
        path.write_text(FAKE)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(variable, str(path))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "kit"))
    monkeypatch.setenv("SEEN", str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    yield tmp_path
    assert not list((tmp_path / "tmp").iterdir())  # nothing stays


def test_differences():
    from tilelang.twin import _difference

    a = np.array([1, np.nan, np.inf, -0.0], np.float32)
    b = a.view(np.uint32).copy()
    b[1] ^= 1  # another NaN
    assert _difference(a, b.view(np.float32)) == "same" and _difference(a, a[::-1].copy()) == np.inf
    assert _difference(a[:1], a[:1] + 2) == 2 and _difference(a[3:], -a[3:]) == 0
    assert _difference(a[:0], a[:0]) == "same"


def test_kernel_twin(toolkit, monkeypatch):
    kernel, x = add(100), np.arange(100, dtype=np.float32)
    monkeypatch.setenv("WHAT", "same")
    report = kernel.twin(x)
    assert report.same and report.outputs == {"A": "same", "B": "same"} and str(report) == "A: same\nB: same"
    text = (toolkit / "kernel.cpp").read_text()
    assert 'twin.tensor("A", 0, ((int64_t)100) * 4, 4);' in text and "<<<" not in text
    assert "return twin.run((int64_t)2, {false, true, false}, false, [&] { add_kernel(A, B); });" in text
    words = (toolkit / "fake-cxx.args").read_text()
    assert "-D__CCE_AICORE__=220" in words and f"-I{toolkit}/kit/aarch64-linux/ascendc/include/basic_api " in words
    monkeypatch.setenv("WHAT", "differs")
    report = kernel.twin(x)
    assert not report.same and report.outputs == {"A": "same", "B": 0.5} and "B: differs by up to 0.5" in str(report)
    monkeypatch.setenv("WHAT", "fault")
    report = kernel.twin(x)
    assert not report.same and report.faults == ["block 1, cube core: flag #3 is left set"]


@pytest.mark.parametrize("what, says", [("crash", "ended with 1:\nno room"), ("short", "holds 396 bytes, 'B' has 400"),
                                        ("nothing", "holds 0 bytes"), ("hang", "did not end in 1 s")])  # fmt: skip
def test_twin_that_does_not_run(toolkit, monkeypatch, what, says):
    from tilelang import twin

    monkeypatch.setenv("WHAT", what)
    with pytest.raises(tilelang.errors.DeviceError, match="TL1114") as e:
        twin.run(add(100), [np.zeros(100, np.float32)], {}, seconds=1 if what == "hang" else 60)
    assert says in str(e.value)


def test_source_that_the_headers_refuse(toolkit, monkeypatch):
    monkeypatch.setenv("REFUSE", "1")
    with pytest.raises(tilelang.errors.DeviceError, match="does not compile with this toolkit") as e:
        add(100).twin(np.zeros(100, np.float32))
    assert "no such thing" in str(e.value)


def test_tlc_twin(toolkit, monkeypatch, tlc, tmp_path):
    file = tmp_path / "add.tl"
    file.write_text(add(100).ir())
    monkeypatch.setenv("WHAT", "same")
    assert tlc("twin", str(file)) == (0, "%A: same\n%B: same\n", "")
    monkeypatch.setenv("WHAT", "differs")
    status, out, _ = tlc("twin", str(file), "--arg", "A=iota")
    assert status == 1 and "%B: 1 of 100 elements differ; element 7 is 8.5, the simulator has 8\n" in out
    status, out, _ = tlc("twin", "--json", str(file))
    said = json.loads(out)
    assert status == 1 and said["same"] is False and said["faults"] == 0
    assert said["results"][1] == {"name": "B", "same": False, "elements": 100, "differ": 1, "first": 7}
    monkeypatch.setenv("WHAT", "fault")
    status, out, err = tlc("twin", "--json", str(file))
    assert status == 1 and json.loads(out)["faults"] == 1 and json.loads(err)[0]["code"] == "TL1115"
    monkeypatch.setenv("WHAT", "crash")
    status, out, err = tlc("twin", str(file))
    assert status == 1 and not out and "TL1114" in err


def test_another_chip(toolkit, monkeypatch, tlc, tmp_path):
    file = tmp_path / "add.tl"
    file.write_text(add(100).ir())
    status, out, err = tlc("twin", "--chip", "950", str(file))
    assert status == 1 and not out and "the model is of A2 and A3, @add is for 950" in err


def test_without_a_toolkit(monkeypatch, tmp_path):
    kernel, x = add(128), np.zeros(128, np.float32)
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if not os.path.exists("/usr/local/Ascend"):
        with pytest.raises(tilelang.errors.DeviceError, match="set ASCEND_HOME_PATH"):
            kernel.twin(x)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(tilelang.errors.DeviceError, match=r"there is no .*stub_fun\.h"):
        kernel.twin(x)
