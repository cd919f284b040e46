"""Building with the toolkit's compiler, and the cache of what was built."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError, DeviceError
from tilelang.errors import TileLangWarning

SAVED = "for last; do :; done\n"  # the shell's idiom for the last argument: kernel.so


def scale(factor=3, n=64):
    @T.prim_func
    def scaled(A: T.Tensor((4, n), "float32"), B: T.Tensor((4, n), "float32")):
        with T.Kernel(4) as bx:
            a = T.alloc_shared((1, n), "float32")
            T.copy(A[bx, 0], a)
            for i, j in T.Parallel(1, n):
                a[i, j] = a[i, j] * factor  # LINE
            T.copy(a, B[bx, 0])

    return tilelang.compile(scaled, out_idx=[-1], device="ascend")


LINE = next(i for i, s in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1) if s.endswith("# LINE"))


@pytest.fixture
def toolkit(machine, monkeypatch):
    """A toolkit whose compiler is a shell script; it answers --version, and knows asc with `asc=True`."""
    machine.cann()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(machine.cann_home))

    def use(script, asc=True, version="bisheng 1"):
        return machine.compiler(f"case \"$*\" in *--version*) echo '{version}'; exit 0;; "
                                f"*-fsyntax-only*) exit {0 if asc else 1};; esac\n{SAVED}{script}")

    return use


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def entries(cache, which="built"):
    return sorted(p for p in (cache / which).iterdir())


def whole(entry):
    """An entry is there as a whole or not at all."""
    return subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=entry).returncode == 0


# ---- the compiler -----------------------------------------------------------------------------------------------


def test_the_second_build_is_a_hit(toolkit, cache, tmp_path):
    toolkit(f"echo run >> {tmp_path}/runs; echo library > $last")
    first = scale().build()
    assert scale().build() == first and pathlib.Path(first).read_text() == "library\n"
    assert (tmp_path / "runs").read_text() == "run\n" and len(entries(cache)) == 1
    assert scale(4).build() != first  # other content, other key
    assert (tmp_path / "runs").read_text() == "run\n" * 2
    scale().build(fresh=True)
    assert (tmp_path / "runs").read_text() == "run\n" * 3 and len(entries(cache)) == 2


def test_the_key_has_the_compiler_the_chip_and_the_target(toolkit, cache):
    script = "echo library > $last"
    toolkit(script)
    keys = {scale().build()}
    toolkit(script + " # changed", version="bisheng 2")
    keys.add(scale().build())
    keys.add(tilelang.compile(scale().prim_func, out_idx=[-1], device="ascend", target="pto").build())
    keys.add(tilelang.compile(scale().prim_func, out_idx=[-1], device="ascend", chip="950").build())
    assert len(keys) == 4


@pytest.mark.parametrize("asc, target, chip, wanted", [
    (True, "ascendc", "910B2", "--npu-arch=dav-2201 -O2 -std=c++17 -xasc"),
    (False, "ascendc", "910B2", "--cce-aicore-arch=dav-c220 -O2 -std=c++17 -xcce -mllvm -cce-aicore-stack-size=0x8000"),
    (True, "pto", "910B2", "--cce-aicore-arch=dav-c220 -DMEMORY_BASE -O2 -std=gnu++17 -xcce -mllvm"),
    (True, "pto", "950", "--cce-aicore-arch=dav-c310 -DREGISTER_BASE -O2 -std=gnu++17 -xcce -mllvm"),
])
def test_command_lines(toolkit, machine, cache, asc, target, chip, wanted):
    toolkit("echo library > $last", asc)
    tilelang.compile(scale().prim_func, out_idx=[-1], device="ascend", target=target, chip=chip).build()
    command = (entries(cache)[0] / "command").read_text()
    assert f"{machine.cann_home}/bin/bisheng {wanted}" in command
    assert f"-I{machine.cann_home}/include -L{machine.cann_home}/lib64" in command
    assert command.endswith("-lascendcl -lm -ltiling_api -lplatform -lc_sec -ldl -fPIC --shared kernel.cpp "
                            "-o kernel.so\n")


def test_no_toolkit():
    with pytest.raises(DeviceError) as e:
        scale()(np.zeros((4, 64), np.float32))
    said = str(e.value)
    assert e.value.code == "TL1100" and said.count("error") == 1
    assert "ASCEND_HOME_PATH is not set" in said and 'device="sim"' in said and "tlc doctor" in said


FOUND = "n=$(grep -n 'Muls(' kernel.cpp | head -1 | cut -d: -f1); "


@pytest.mark.parametrize("script, text", [
    (FOUND + "echo \"kernel.cpp:$n:9: error: no matching function for call to 'Muls'\"; exit 1",
     "no matching function for call to 'Muls'"),
    (FOUND + "echo '/opt/cann/x.h:7:3: error: static assertion failed: too big'; "
     "echo \"kernel.cpp:$n:5: note: in instantiation of function template\"; exit 1",
     "static assertion failed: too big"),
])
def test_messages_of_the_compiler_have_the_python_line(toolkit, cache, script, text):
    toolkit(script)
    with pytest.raises(CompileError) as e:
        scale().build()
    d, = e.value.diagnostics
    assert (d.code, d.file, d.line) == ("TL1101", __file__, LINE) and text in d.text
    kept = pathlib.Path(d.fix.rpartition(" ")[2])
    assert kept.parent == cache / "failed" and (kept / "log").read_text() and (kept / "kernel.cpp").is_file()
    assert entries(cache) == [] and entries(cache, "tmp") == []


def test_several_messages_and_one_of_the_linker(toolkit):
    toolkit("for i in 1 2; do echo \"kernel.cpp:1:1: error: number $i\"; done; "
            "echo 'ld.lld: error: undefined symbol: rtGetC2cCtrlAddr'; exit 1")
    with pytest.raises(CompileError) as e:
        scale().build()
    assert [d.text.partition(" (")[0] for d in e.value.diagnostics] == [
        "number 1", "number 2", "undefined symbol: rtGetC2cCtrlAddr"]


@pytest.mark.parametrize("script, code, text", [
    ("echo 'out of luck'; exit 3", "TL1102", "ended with status 3 for scaled; it said: out of luck"),
    ("exit 0", "TL1102", "made no library of scaled"),
    (": > $last", "TL1102", "made no library of scaled"),
    ("kill -11 $$", "TL1102", "was killed by signal 11 while it built scaled"),
])
def test_a_compiler_that_fails(toolkit, cache, script, code, text):
    toolkit(script)
    with pytest.raises(DeviceError) as e:
        scale().build()
    assert e.value.code == code and text in str(e.value) and str(cache / "failed") in str(e.value)
    assert entries(cache) == [] and entries(cache, "tmp") == []


def test_a_compiler_that_does_not_start(toolkit, machine):
    toolkit("").write_text("#!/no/such/shell\n")
    with pytest.raises(DeviceError, match="--version fails"):
        scale().build()


def gone(pid):
    for _ in range(200):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_compiler_that_hangs_is_stopped_with_its_children(toolkit, tmp_path, monkeypatch):
    toolkit(f"sleep 60 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setenv("TILELANG_BUILD_SECONDS", "1")
    with pytest.raises(DeviceError, match="worked on scaled for 1 seconds and was stopped") as e:
        scale().build()
    assert e.value.code == "TL1103" and gone(int((tmp_path / "child").read_text()))


def test_a_build_can_be_interrupted(toolkit, tmp_path):
    """In a program of its own: a test runner may keep signals for itself."""
    toolkit("kill -INT $PPID; sleep 60")
    ir = tmp_path / "scaled.tl"
    ir.write_text(scale().ir())
    program = ("import signal, sys\nfrom tilelang import _core\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "p = _core.Program()\nassert p.load('scaled.tl', open(sys.argv[1]).read()) and p.lower()\n"
               "try:\n    p.build('ascendc', False)\nexcept KeyboardInterrupt:\n    print(p.diags_json())\n")
    p = subprocess.run([sys.executable, "-c", program, ir], capture_output=True, text=True, timeout=50)
    assert '"TL1104"' in p.stdout and "building scaled was interrupted" in p.stdout, p.stderr
    toolkit("echo library > $last")
    assert scale().build()


# ---- the cache -----------------------------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written(toolkit, tmp_path, monkeypatch):
    toolkit("echo library > $last")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DeviceError, match="Not a directory") as e:
        scale().build()
    assert e.value.code == "TL1105" and "TILELANG_CACHE_DIR" in str(e.value)


def test_where_the_cache_is(toolkit, tmp_path, monkeypatch):
    toolkit("echo library > $last")
    monkeypatch.chdir(tmp_path)
    places = (("HOME", tmp_path / "me", "me/.cache/tilelang"), ("XDG_CACHE_HOME", tmp_path / "x", "x/tilelang"),
              ("TILELANG_CACHE_DIR", "here", "here"))
    for variable, value, place in places:
        monkeypatch.delenv("TILELANG_CACHE_DIR", raising=False)
        monkeypatch.setenv(variable, str(value))
        assert scale().build().startswith(f"{tmp_path / place}/built/")
    for variable in ("HOME", "XDG_CACHE_HOME", "TILELANG_CACHE_DIR"):
        monkeypatch.delenv(variable)
    with pytest.raises(DeviceError, match="(?s)TL1105.*no home directory.*TILELANG_CACHE_DIR"):
        scale().build()


KEPT = ["kernel.so", "kernel.cpp", "kernel.tl", "command", "SHA256SUMS"]


def spoil(path, how):
    data = bytearray(path.read_bytes())
    if how == "gone":
        return path.unlink()
    data[len(data) // 2] ^= 1
    path.write_bytes(data if how == "flipped" else data[:-1] if how == "short" else data + b"x")


@pytest.mark.parametrize("how", ["flipped", "short", "long", "gone"])
@pytest.mark.parametrize("name", KEPT)
def test_a_spoilt_entry_is_told_and_built_again(toolkit, cache, tmp_path, name, how):
    toolkit(f"echo run >> {tmp_path}/runs; echo library > $last")
    library = pathlib.Path(scale().build())
    assert sorted(p.name for p in library.parent.iterdir()) == sorted(KEPT) and whole(library.parent)
    spoil(library.parent / name, how)
    with pytest.warns(TileLangWarning, match="(?s)TL1116.*is not as it was built; scaled is built again"):
        assert scale().build() == str(library)
    assert library.read_text() == "library\n" and whole(library.parent)
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scale().build() == str(library)


@pytest.mark.parametrize("at", range(0, 120, 7))
def test_a_spoilt_answer_of_the_compiler_is_asked_for_again(toolkit, cache, at):
    toolkit("echo library > $last")
    library = scale().build()
    (answers,) = entries(cache, "compilers")
    text = answers.read_bytes()
    at %= len(text)
    answers.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert scale().build() == library
    assert answers.read_bytes() == text and (at < 4 or any("is asked again" in str(w.message) for w in said))


def test_the_least_recently_used_go(toolkit, cache, monkeypatch):
    toolkit("head -c 100000 /dev/zero > $last")
    monkeypatch.setenv("TILELANG_CACHE_BYTES", "350000")
    built = [pathlib.Path(scale(f).build()) for f in (2, 3, 4)]
    scale(2).build()  # used again
    built.append(pathlib.Path(scale(5).build()))
    assert [p.exists() for p in built] == [True, False, True, True]
    monkeypatch.setenv("TILELANG_CACHE_BYTES", "1")
    last = pathlib.Path(scale(6).build())
    assert entries(cache) == [last.parent] and entries(cache, "tmp") == []


@pytest.mark.parametrize("name, code", [("TILELANG_CACHE_BYTES", "TL1105"), ("TILELANG_BUILD_SECONDS", "TL1103")])
@pytest.mark.parametrize("value", ["x", "-5", "1e9", "0"])
def test_numbers_of_the_environment(toolkit, cache, monkeypatch, name, code, value):
    toolkit("touch $last")
    monkeypatch.setenv(name, value)
    with pytest.raises(tilelang.TileLangError) as caught:
        scale(2).build()
    d = caught.value.errors[0]
    assert d.code == code and f"{name} is '{value}'" in d.text and f"{name}=" in d.fix


@pytest.mark.parametrize("value", ["4294967296", "1" + 20 * "0"])
def test_large_numbers_of_the_environment(toolkit, cache, monkeypatch, value):
    toolkit("echo library > $last")
    for name in ("TILELANG_CACHE_BYTES", "TILELANG_BUILD_SECONDS"):
        monkeypatch.setenv(name, value)
    assert pathlib.Path(scale(3).build()).exists()


def build_all(programs, answers):
    for p in programs:
        made = p.build("ascendc", False)
        answers.put(made and made[0])


def test_eight_processes_build_fifty_kernels_once(toolkit, cache, tmp_path):
    toolkit(f"cksum kernel.cpp >> {tmp_path}/runs; echo library > $last")
    programs = [scale(f)._program for f in range(2, 52)]
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    workers = [fork.Process(target=build_all, args=(programs[i:] + programs[:i], answers)) for i in range(8)]
    for w in workers:
        w.start()
    made = [answers.get(timeout=100) for _ in range(8 * 50)]
    for w in workers:
        w.join()
    assert None not in made and len(set(made)) == 50
    runs = (tmp_path / "runs").read_text().splitlines()
    assert len(runs) == len(set(runs)) == 50
    assert len(entries(cache)) == 50 and all(whole(e) for e in entries(cache)) and entries(cache, "tmp") == []


KILLED_AT = {
    "before the compiler writes": "kill -9 $PPID; sleep 5",
    "while the compiler writes": "echo half > $last; kill -9 $PPID; sleep 5",
    "when the compiler has written": "echo library > $last; kill -9 $PPID",
}


@pytest.mark.parametrize("when", KILLED_AT)
def test_killed_at_any_moment(toolkit, cache, when):
    toolkit(KILLED_AT[when])
    kernel = scale()
    child = os.fork()
    if not child:
        kernel._program.build("ascendc", False)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert all(whole(e) for e in entries(cache))
    toolkit("echo library > $last; #")  # another compiler: another key, and the lock of what was left is free
    library = pathlib.Path(kernel.build())
    assert library.read_text() == "library\n" and all(whole(e) for e in entries(cache))
    assert entries(cache, "tmp") == []


def test_killed_again_and_again(toolkit, cache):
    """Wherever a build is when it is killed, the next one finds a cache it can use."""
    toolkit("echo library > $last")
    programs = [scale(f)._program for f in range(2, 10)]
    for n in range(12):
        child = os.fork()
        if not child:
            for p in programs:
                p.build("ascendc", n % 2 == 0)
            os._exit(0)
        time.sleep(0.003 * n)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert all(whole(e) for e in entries(cache)) if (cache / "built").exists() else True
    for p in programs:
        assert p.build("ascendc", False)
    scale(99).build()
    assert len(entries(cache)) == 9 and all(whole(e) for e in entries(cache)) and entries(cache, "tmp") == []
