"""Results must not depend on the host: all variants of the inner loops give the same bytes."""

import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


def objects():
    """The built core, if there is one newer than the inner loops; else their sources."""
    sources = [
        *[ROOT / "src/ir" / f"{n}.c" for n in ("tables", "float")],
        *[ROOT / "src/sim" / f"{n}.c" for n in ("scalar", "host", "host_avx2", "host_avx512")],
    ]
    newest = max(p.stat().st_mtime for p in [*sources, ROOT / "src/sim/host_kernels.inc", ROOT / "src/sim/machine.h"])
    for lib in sorted(ROOT.glob("build/**/libtlcore.a")):
        if "hard" not in lib.parts and lib.stat().st_mtime > newest:
            return [lib]
    return sources


def test_variants_agree(tmp_path):
    cc = os.environ.get("CC") or shutil.which("cc")
    if not cc:
        pytest.skip("no C compiler")
    flags = ["-std=gnu17", "-O1", "-w", "-ffp-contract=off", "-pthread"]
    subprocess.run([*cc.split(), *flags, "-o", tmp_path / "t", HERE / "host_kernels.c", *objects(), "-lm"], check=True)
    p = subprocess.run([tmp_path / "t"], capture_output=True, text=True)
    assert p.returncode == 0 and p.stdout.endswith(" 0 differences\n"), p.stdout
