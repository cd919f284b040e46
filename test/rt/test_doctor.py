"""tlc doctor on machines with nothing, with everything, and with parts that do not go together."""

import json
import subprocess
import sys

import pytest

import tilelang.device


@pytest.fixture
def doctor(tlc):
    def ask(machine, python=None, text=False):
        """{what: finding} and whether everything needed is there; with text, both forms agree about it."""
        args = ("--root", machine.root, "--python", python or machine.python("-", "-"))
        status, out, err = tlc("doctor", "--json", *args)
        said = json.loads(out)
        assert status == (0 if said["ready"] else 1) and not err
        assert all((f["text"] is None) == (f["health"] == "ok") for f in said["findings"])
        if text:
            status_of_text, lines, _ = tlc("doctor", *args)
            assert status_of_text == status
            assert all(f"{f['health']:9} {f['what']}" in lines for f in said["findings"])
        return {f["what"]: f for f in said["findings"]}, said["ready"]

    return ask


NEEDED = ["driver", "devices", "CANN", "compiler", "Ascend C headers", "ACL headers", "runtime library"]


def whole(machine, library, cann="8.1.RC1", driver="24.1.rc3"):
    return machine.cann(cann).driver(driver).devices().acl(library)


def test_a_machine_with_nothing(doctor, machine):
    found, ready = doctor(machine, text=True)
    assert not ready
    assert {w: f["health"] for w, f in found.items() if f["needed"]} == dict.fromkeys(NEEDED, "missing")
    assert "ASCEND_HOME_PATH is not set" in found["CANN"]["text"] and "set_env.sh" in found["CANN"]["fix"]


@pytest.mark.parametrize("cann, driver", [("8.1.RC1", "24.1.rc3"), ("8.1.RC1", "25.0.rc1.1"), ("8.5.0", "25.0.rc1.1")])
def test_a_machine_with_everything(doctor, machine, empty_library, cann, driver):
    whole(machine, empty_library, cann, driver)
    found, ready = doctor(machine, text=True)
    assert ready
    assert all(f["health"] == "ok" for f in found.values() if f["needed"])
    assert found["CANN"]["found"] == cann and found["driver"]["found"] == driver
    assert found["devices"]["found"] == "2" and found["compiler"]["found"] == "bisheng version 1.2 (clang 15)"
    assert found["firmware"]["health"] == "ok"


def test_the_variable_wins_over_the_usual_places(doctor, machine, empty_library, monkeypatch, tmp_path):
    whole(machine, empty_library)
    machine.cann("8.5.0", home=tmp_path / "other").acl(empty_library)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "other"))
    found, ready = doctor(machine)
    assert ready and found["CANN"]["found"] == "8.5.0" and found["CANN"]["where"] == str(tmp_path / "other")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "gone"))
    found, ready = doctor(machine)
    assert not ready and "ASCEND_HOME_PATH points at" in found["CANN"]["text"]


def test_the_driver_may_be_installed_elsewhere(doctor, machine, empty_library):
    whole(machine, empty_library)
    machine.driver("25.0.rc1.1", base="opt/npu")
    (machine.root / "etc").mkdir()
    (machine.root / "etc/ascend_install.info").write_text("Driver_Install_Path_Param=/opt/npu\n")
    found, _ = doctor(machine)
    assert found["driver"]["found"] == "25.0.rc1.1"


def break_driver(m):
    m.driver("22.0.4", firmware="1.85.0")


def break_parts(m):
    path = m.cann_home / "version.cfg"
    path.write_text(path.read_text().replace("compiler_running_version=[7.7", "compiler_running_version=[7.6"))


def break_host(m):
    other = "aarch64" if m.cann_home.joinpath("x86_64-linux").exists() else "x86_64"
    here = next(p for p in m.cann_home.glob("*-linux"))
    here.rename(here.with_name(f"{other}-linux"))


def break_compiler(m):
    m.compiler("exit 1")


def break_library(m):
    (m.cann_home / "lib64/libascendcl.so").write_text("not a library")


def break_manager(m):
    (m.root / "dev/davinci_manager").unlink()


def break_age(m):
    m.cann("7.0.0").driver("24.1.rc3")


def break_firmware(m):
    m.driver(firmware="7.9.0.1.1")


@pytest.mark.parametrize("what, hurt, says", [
    ("driver", break_driver, "driver 22.0.4 (V100R001C83SPC001B220) and CANN 8.1.RC1"),
    ("CANN", break_parts, "its runtime is [7.7.0.1.238:8.1.RC1] and its compiler [7.6"),
    ("CANN", break_host, "it is made for"),
    ("CANN", break_age, "CANN 7.0.0 is older than 8.1"),
    ("compiler", break_compiler, "it does not run"),
    ("runtime library", break_library, "it does not load: "),
    ("devices", break_manager, "2 devices, but no "),
    ("firmware", break_firmware, "the driver takes firmware [7.0.0,7.5.99], found 7.9.0.1.1"),
], ids=lambda v: v.__name__ if callable(v) else None)
def test_what_does_not_go_together(doctor, machine, empty_library, what, hurt, says):
    whole(machine, empty_library)
    hurt(machine)
    found, ready = doctor(machine)
    assert found[what]["health"] == "mismatch" and says in found[what]["text"] and found[what]["fix"]
    assert ready == (not found[what]["needed"])


@pytest.mark.parametrize("gone, what", [("bin/bisheng", "compiler"), ("include/acl/acl.h", "ACL headers"),
                                        ("lib64/libascendcl.so", "runtime library")])
def test_a_toolkit_in_part(doctor, machine, empty_library, gone, what):
    whole(machine, empty_library)
    (machine.cann_home / gone).unlink()
    found, ready = doctor(machine)
    assert not ready and found[what]["health"] == "missing" and found[what]["fix"]
    assert [w for w, f in found.items() if f["needed"] and f["health"] != "ok"] == [what]


def test_a_compiler_of_another_toolkit(doctor, machine, empty_library, monkeypatch, tmp_path):
    whole(machine, empty_library)
    (tmp_path / "bin").mkdir()
    (machine.cann_home / "bin/bisheng").rename(tmp_path / "bin/bisheng")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    found, ready = doctor(machine)
    assert not ready and found["compiler"]["where"] == f"{tmp_path}/bin/bisheng"
    assert found["compiler"]["health"] == "mismatch" and "it is not part of" in found["compiler"]["text"]


@pytest.mark.parametrize("torch_npu, torch, health, says", [
    ("2.5.1", "2.5.1+cpu", "ok", None),
    ("2.4.0.post4", "2.4.0", "ok", None),
    ("2.5.1", "2.6.0", "mismatch", "torch_npu 2.5.1 belongs to torch 2.5.1, found torch 2.6.0"),
    ("2.6.0", "2.6.0", "mismatch", "torch_npu 2.6.0 was made for CANN 8.2.RC1, found CANN 8.1.RC1"),
    ("2.99.0", "2.99.0", "ok", None),  # newer than the table: nothing is claimed
    ("-", "2.5.1", "missing", "has no torch_npu"),
])
def test_torch_npu(doctor, machine, empty_library, torch_npu, torch, health, says):
    whole(machine, empty_library)
    found, ready = doctor(machine, machine.python(torch_npu, torch))
    assert ready and found["torch_npu"]["health"] == health
    assert says is None or says in found["torch_npu"]["text"]


def test_from_python(machine, empty_library):
    whole(machine, empty_library)
    assert tilelang.device.doctor(root=str(machine.root))["ready"]
    p = subprocess.run([sys.executable, "-m", "tilelang", "doctor", "--json"], capture_output=True, text=True)
    said = json.loads(p.stdout)
    assert p.returncode == (0 if said["ready"] else 1)
    p = subprocess.run([sys.executable, "-m", "tilelang", "nothing"], capture_output=True, text=True)
    assert p.returncode == 2 and "doctor" in p.stderr
