"""Shared by all tests: where `tlc` is, and the golden texts.

A golden test is an input and, beside it, what must come out. `pytest --update-golden` writes what came out instead
of comparing; look at the difference before you keep it.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

TEST_DIR = pathlib.Path(__file__).parent
ROOT = TEST_DIR.parent


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write what comes out as the expectation")


def find_tlc():
    """The tlc to test: $TLC, else the newest one built in the tree, else the one on the path."""
    if os.environ.get("TLC"):
        return os.environ["TLC"]
    built = [p for p in (ROOT / "build" / "tlc", *ROOT.glob("build/*/tlc")) if p.is_file()]
    if built:
        return str(max(built, key=lambda p: p.stat().st_mtime))
    return shutil.which("tlc")


@pytest.fixture(scope="session")
def tlc_path():
    """Where tlc is."""
    exe = find_tlc()
    if not exe:
        pytest.fail("there is no tlc: build it first (make), or name it in the environment variable TLC")
    return str(pathlib.Path(exe).resolve())


@pytest.fixture(scope="session")
def tlc(tlc_path):
    """Runs tlc with the given arguments in a folder; returns (exit status, output, diagnostics)."""
    exe = tlc_path

    def run(*args, cwd=ROOT, stdin=None):
        p = subprocess.run([exe, *map(str, args)], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=120)
        return p.returncode, p.stdout, p.stderr

    return run


@pytest.fixture(scope="session")
def built(tlc_path):
    """The directory of the libraries: that of tlc, or one below it."""
    beside = pathlib.Path(tlc_path).parent
    for folder in (beside, *sorted(p.parent for p in beside.glob("*/libtilelang.so"))):
        if (folder / "libtilelang.so").exists():
            return folder
    pytest.skip(f"no libtilelang.so at {beside}: this tlc was installed without the C library")


@pytest.fixture
def golden(request):
    """golden(path, text): text must be what the file says; with --update-golden the file is written.

    A text of None means that there must be no such file.
    """
    update = request.config.getoption("--update-golden")

    def check(path, text):
        path = pathlib.Path(path)
        if update:
            if text is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_text() != text:
                path.write_text(text)
            return
        want = path.read_text() if path.exists() else None
        assert text == want, f"{path.relative_to(ROOT)} says otherwise (pytest --update-golden accepts)"

    return check
