"""Damages every kind of file that tlc reads back, and runs what reads it: python tools/fuzz/fuzz_files.py --tlc TLC.

A file that a user edited, or that a full disk or a killed process cut short, must give an answer: the program runs, or
an error says what is wrong. What counts as a find: a signal, a report of a sanitizer (build tlc with -DTL_SANITIZE=ON),
a run that does not end, a traceback, TL0002.

    replay     the file of kernel.reproduce          tlc replay
    npy        a tensor as .npy                      tlc sim --arg X=x.npy
    cache      what the cache of built kernels holds Kernel.build, with a compiler that is a shell script
    toolkit    install.info, version.info, set by    tlc doctor --root
    results    results.jsonl of tilelang.conformance read in this process

    --seconds N (of all kinds together)   --seed N   --only KIND   --keep FOLDER (damaged files of finds)
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

import tilelang
import tilelang.language as T
from tilelang.conformance import report
from tilelang.errors import TileLangError

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = """tl 1
kernel @k(%n: i32, %X: gm f16[4, 16], %Y: gm f16[4, 16] out) grid(%bx: 1) {
  alloc %x: ub f16[4, 16]
  copy %X -> %x
  copy %x -> %Y
}
"""
WORDS = (b"0", b"-1", b"1", b"99999999999999999999", b"9223372036854775807", b"{}", b"[]", b"null", b'"', b"'", b"\n",
         b"\0", b"\xff\xfe", b"%", b"%s%n", b"../", b";! ", b"e308", b"nan", b"f16", b"(", b"4, 16")  # fmt: skip


def mutant(data, rng):
    """A few bytes other, more or less; or cut; or empty."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        n = min(rng.choice((1, 1, 2, 8, 64, 4096)), len(data) - at)
        how = rng.randrange(7)
        if how == 0 and n:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at:at] = rng.choice(WORDS)
        elif how == 2:
            del data[at : at + n]
        elif how == 3:
            data[at : at + n] = rng.choice(WORDS)
        elif how == 4:
            data[at:at] = data[at : at + n] * rng.choice((1, 2, 30))
        elif how == 5:
            data[at : at + n] = rng.randbytes(n)
        elif rng.random() < 0.2:
            del data[at:]
    return bytes(data)


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


# ---- kinds: make(folder) gives the files that are damaged, and what reads them ---------------------------------------


def small():
    @T.prim_func
    def add(X: T.Tensor((4, 16), "float16"), s: T.float32, Y: T.Tensor((4, 16), "float16")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((4, 16), "float16")
            T.copy(X, x)
            T.tile.add(x, x, T.cast(s, "float16"))
            T.copy(x, Y)

    return add


def replay(folder, tlc):
    path = folder / "call.tl"
    tilelang.compile(small(), out_idx=-1).reproduce(str(path), np.ones((4, 16), np.float16), 2.0)
    return [path], [tlc, "replay", str(path)]


def npy(folder, tlc):
    np.save(folder / "x.npy", np.ones((4, 16), np.float16))
    write(folder / "k.tl", KERNEL)
    return [folder / "x.npy"], [tlc, "sim", "--arg", "n=3", "--arg", f"X={folder / 'x.npy'}", str(folder / "k.tl")]


def toolkit_files(folder):
    home = folder / "usr/local/Ascend/ascend-toolkit/latest"
    script = "case \"$*\" in *--version*) echo 'bisheng version 1.2'; exit 0;; *-fsyntax-only*) exit 0;; esac\n"
    write(home / "bin/bisheng", f"#!/bin/sh\n{script}for last; do :; done\necho library > $last\n", 0o755)
    for name in ("tikcpp/tikcfw/kernel_operator.h", "include/acl/acl.h", "include/pto/pto-inst.hpp"):
        write(home / "x86_64-linux" / name if name[0] == "t" else home / name, "")
    return home, [
        write(home / "x86_64-linux/ascend_toolkit_install.info",
              "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100R001C21SPC001B238\n"
              "compatible_version=[V100R001C15],[V100R001C21]\narch=x86_64\nos=linux\n"),
        write(home / "version.cfg", "# version: 1.0\nruntime_running_version=[7.7.0.1.238:8.1.RC1]\n"),
        write(folder / "usr/local/Ascend/driver/version.info",
              "Version=24.1.rc3\nInnerversion=V100R001C19SPC001B124\ncompatible_version=[V100R001C17],[V100R001C19]\n"
              "compatible_version_fw=[7.0.0,7.5.99]\npackage_version=24.1.rc3\n"),
        write(folder / "usr/local/Ascend/firmware/version.info", "Version=7.5.0.1.129\nfirmware_version=1.0\n"),
    ]  # fmt: skip


def toolkit(folder, tlc):
    home, files = toolkit_files(folder)
    os.environ["ASCEND_HOME_PATH"] = str(home)
    return files, [tlc, "doctor", "--root", str(folder)]


def cache(folder, tlc):
    home, _ = toolkit_files(folder)
    os.environ["ASCEND_HOME_PATH"] = str(home)
    os.environ["TILELANG_CACHE_DIR"] = str(folder / "cache")
    kernel = tilelang.compile(small(), out_idx=-1, device="ascend")
    size = pathlib.Path(kernel.build()).stat().st_size
    files = [p for p in sorted((folder / "cache").rglob("*")) if p.is_file() and "locks" not in p.parts]

    def read():
        try:
            if pathlib.Path(kernel.build()).stat().st_size != size:
                return "a library that was cut short is handed out"
        except TileLangError:
            pass

    return files, read


def results(folder, tlc):
    line = {"file": "a.py", "case": "test_a[1]", "status": "pass", "seconds": 1.5, "run_seconds": 1, "megabytes": 40}
    other = {**line, "status": "crash", "reason": "ended"}
    path = write(folder / "results.jsonl", f"{json.dumps(line)}\n{json.dumps(other)}\n")

    def read():
        found = report.read(path)
        report.page(found, "folder"), report.text(found, "folder")

    return [path], read


KINDS = {f.__name__: f for f in (replay, npy, cache, toolkit, results)}


def outcome(run):
    """None, or what is wrong with how the reader took it."""
    if callable(run):
        try:
            return run()
        except Exception as e:
            return f"{type(e).__name__}: {e}"
    env = {**os.environ, "ASAN_OPTIONS": "exitcode=99:detect_leaks=0"}  # what tlc keeps until it ends is no leak
    try:
        done = subprocess.run(run, capture_output=True, timeout=60, env=env)
    except subprocess.TimeoutExpired:
        return "not done after 60 s"
    said = (done.stdout + done.stderr).decode(errors="replace")
    wrong = done.returncode not in (0, 1, 2) or "runtime error:" in said or "TL0002" in said
    return f"status {done.returncode}: {said[:2000]}" if wrong else None


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tlc", required=True)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", choices=KINDS)
    p.add_argument("--keep", type=pathlib.Path)
    o = p.parse_args()
    finds, runs = set(), collections.Counter()
    kinds = [o.only] if o.only else list(KINDS)
    for kind in kinds:
        rng, end = random.Random(o.seed), time.monotonic() + o.seconds / len(kinds)
        with tempfile.TemporaryDirectory(prefix="tilelang-fuzz-") as folder:
            files, run = KINDS[kind](pathlib.Path(folder), o.tlc)
            right = {f: f.read_bytes() for f in files}
            wrong = outcome(run)
            if wrong:
                raise SystemExit(f"{kind}: the undamaged file: {wrong}")
            while time.monotonic() < end:
                path = rng.choice(files)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(mutant(right[path], rng))
                damaged = path.read_bytes()
                wrong = outcome(run)
                runs[kind] += 1
                for f, data in right.items():
                    if not f.exists() or f.read_bytes() != data:
                        write(f, data)
                key = (kind, wrong and wrong[:60])
                if wrong and key not in finds:
                    finds.add(key)
                    print(f"== {kind}, {path.name}, damaged file {runs[kind]} of seed {o.seed}: {wrong}", flush=True)
                    if o.keep:
                        write(o.keep / f"{kind}-{runs[kind]}-{path.name}", damaged)
            shutil.rmtree(folder, ignore_errors=True)
            pathlib.Path(folder).mkdir()
    print(f"{dict(runs)} damaged files in {o.seconds:.0f} s, {len(finds)} finds")
    sys.exit(bool(finds))


if __name__ == "__main__":
    main()
