"""The library for C programs: its symbols, its example, its pkg-config file. (Its threads: test/rt/test_threads.py.)"""

import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


def cc(out, *args):
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-o", str(out),
                    *map(str, args)], check=True)
    return out


def symbols(*args):
    out = subprocess.run(["nm", "--defined-only", *map(str, args)], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in out.splitlines() if len(line.split()) == 3}


def test_no_symbol_outside_the_prefix(built):
    header = (ROOT / "include/tilelang.h").read_text()
    shared, static = symbols("-D", built / "libtilelang.so"), symbols("-g", built / "libtilelang.a")
    assert shared == static
    assert {s for s in shared if not s.startswith("tl_")} == set()
    assert {s for s in shared if f"{s}(" not in header} == set()  # and every one is public


@pytest.mark.parametrize("how", ["shared", "static"])
def test_the_example(built, tmp_path, how):
    link = [f"-L{built}", "-ltilelang", f"-Wl,-rpath,{built}"] if how == "shared" else [
        built / "libtilelang.a", "-lpthread", "-lm", "-ldl"]
    exe = cc(tmp_path / "axpy", f"-I{ROOT}/include", ROOT / "examples/c/axpy.c", *link)
    p = subprocess.run([exe], capture_output=True, text=True)
    assert p.returncode == 0 and p.stderr == "" and "y[4999] = 9999, 0 of 5000 wrong" in p.stdout
    p = subprocess.run([exe, "ascendc"], capture_output=True, text=True)
    assert p.returncode == 0 and "axpy_kernel" in p.stdout
    p = subprocess.run([exe, "nothing"], capture_output=True, text=True)
    assert p.returncode == 1 and "TL0005" in p.stderr


def test_installed(built, tmp_path):
    """cmake --install, then a program that finds everything through pkg-config."""
    if not (shutil.which("cmake") and shutil.which("pkg-config") and (built / "cmake_install.cmake").exists()):
        pytest.skip("needs cmake, pkg-config and the build directory")
    if "SKBUILD" in (built / "CMakeCache.txt").read_text():
        pytest.skip("the build directory is that of a wheel, which installs the extension alone")
    p = subprocess.run(["cmake", "--install", built, "--prefix", tmp_path / "to"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    pc, = (tmp_path / "to").rglob("tilelang.pc")
    env = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}
    ask = ["pkg-config", f"--define-variable=prefix={tmp_path / 'to'}", "--cflags", "--libs", "tilelang"]
    flags = subprocess.run(ask, env=env, capture_output=True, text=True, check=True).stdout.split()
    exe = cc(tmp_path / "axpy", ROOT / "examples/c/axpy.c", *flags)
    lib = next((tmp_path / "to").rglob("libtilelang.so")).parent
    p = subprocess.run([exe], env={**os.environ, "LD_LIBRARY_PATH": str(lib)}, capture_output=True, text=True)
    assert p.returncode == 0 and "0 of 5000 wrong" in p.stdout

