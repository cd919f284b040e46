"""Machines that are not there: trees of files as CANN, a driver and its devices lay them down.

The facts are those of real files (CANN 8.1.RC1 and 8.5.0, drivers 24.1.rc1 to 25.0.rc1)."""

import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ARCH = platform.machine()

CANN = {
    "8.1.RC1": ("V100R001C21SPC001B238", "[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]"),
    "8.5.0": ("V100R001C25SPC001B212", "[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21],"
              "[V100R001C23]"),
    "7.0.0": ("V100R001C15SPC001B100", "[V100R001C13],[V100R001C15]"),
}
DRIVER = {
    "24.1.rc3": ("V100R001C19SPC001B124",
                 "[V100R001C13],[V100R001C15],[V100R001C17],[V100R001C18],[V100R001C19]", "[7.0.0,7.5.99]"),
    "25.0.rc1.1": ("V100R001C21SPC002B220",
                   "[V100R001C17],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]",
                   "[6.4.0,6.4.99],[7.0.0,7.7.99]"),
    "22.0.4": ("V100R001C83SPC001B220", "[V100R001C80],[V100R001C83]", "[1.0.0,1.86.99]"),
}


def write(path, text, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if mode:
        path.chmod(mode)
    return path


class Machine:
    """A directory that stands for /."""

    def __init__(self, root):
        self.root = root
        self.cann_home = root / "usr/local/Ascend/ascend-toolkit/latest"

    def cann(self, version="8.1.RC1", arch=ARCH, home=None):
        inner, compatible = CANN[version]
        h = self.cann_home = home or self.cann_home
        write(h / f"{arch}-linux/ascend_toolkit_install.info",
              f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion={inner}\n"
              f"compatible_version={compatible}\narch={arch}\nos=linux\npath={h}/{arch}-linux\n")
        write(h / "version.cfg", f"# version: 1.0\nruntime_running_version=[7.7.0.1.238:{version}]\n"
              f"compiler_running_version=[7.7.0.1.238:{version}]\n")
        write(h / f"{arch}-linux/tikcpp/tikcfw/kernel_operator.h", "")
        write(h / "include/acl/acl.h", "")
        write(h / "include/pto/pto-inst.hpp", "")
        self.compiler("echo 'bisheng version 1.2 (clang 15)'")
        return self

    def compiler(self, script):
        return write(self.cann_home / "bin/bisheng", "#!/bin/sh\n" + script + "\n", 0o755)

    def acl(self, library):
        (self.cann_home / "lib64").mkdir(parents=True, exist_ok=True)
        shutil.copy(library, self.cann_home / "lib64/libascendcl.so")
        return self

    def driver(self, version="24.1.rc3", firmware="7.5.0.1.129", base="usr/local/Ascend"):
        inner, compatible, fw = DRIVER[version]
        write(self.root / base / "driver/version.info",
              f"Version={version}\nascendhal_version=7.35.19\naicpu_version=1.0\nInnerversion={inner}\n"
              f"compatible_version={compatible}\ncompatible_version_fw={fw}\npackage_version={version}\n")
        if firmware:
            write(self.root / base / "firmware/version.info", f"Version={firmware}\nfirmware_version=1.0\n")
        return self

    def devices(self, n=2):
        for name in [f"davinci{i}" for i in range(n)] + ["davinci_manager", "devmm_svm", "hisi_hdc"]:
            write(self.root / "dev" / name, "")
        return self

    def python(self, torch_npu, torch):
        """An interpreter that says it has these."""
        return write(self.root / "python", f"#!/bin/sh\necho '{torch_npu} {torch}'\n", 0o755)


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch, tmp_path):
    """Tests see nothing of this machine: no toolkit, no cache."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME", "ASCEND_RT_VISIBLE_DEVICES",
                 "TILELANG_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Machine(tmp_path / "root")


@pytest.fixture(scope="session")
def mock_acl(tmp_path_factory):
    """libascendcl.so made of mock_acl.c."""
    out = tmp_path_factory.mktemp("acl") / "libascendcl.so"
    subprocess.run(["cc", "-O1", "-Wall", "-shared", "-fPIC", "-Wl,-soname,libascendcl.so", str(HERE / "mock_acl.c"),
                    "-o", str(out)], check=True)
    return out


@pytest.fixture
def card(machine, mock_acl, tlc_path, monkeypatch):
    """A machine with a toolkit whose compiler is fake_bisheng.py and whose cards are mock_acl.c."""
    if not shutil.which("c++"):
        pytest.skip("the host part of a kernel is C++, and there is no c++")
    machine.cann().acl(mock_acl)
    machine.compiler(f"exec '{sys.executable}' -S '{HERE / 'fake_bisheng.py'}' \"$@\"")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(machine.cann_home))
    monkeypatch.setenv("TLC", tlc_path)
    for name in ("MOCK_RUN", "MOCK_FAULT", "MOCK_LOG", "MOCK_MEMORY", "MOCK_DEVICES", "MOCK_SOC"):
        monkeypatch.delenv(name, raising=False)
    return machine


@pytest.fixture(scope="session")
def empty_library(tmp_path_factory):
    """A shared library that loads."""
    out = tmp_path_factory.mktemp("lib") / "empty.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", str(out), "-"], input=b"int nothing;", check=True)
    return out
