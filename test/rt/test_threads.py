"""Threads with a context each, on one device that all share.

TL_SANITIZE=thread builds the program and the runtime under the thread sanitizer, for a tlc that was built with it
(`make hard`)."""

import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
KERNELS = ["test/ir/vector_lowered.tl", "test/sim/gemm-double-buffer.tl", "test/sim/mix-cross-flags.tl"]


def test_threads(built, card, tmp_path):
    sanitizer = os.environ.get("TL_SANITIZE")
    how = ["-g", "-O1", *([f"-fsanitize={sanitizer}"] if sanitizer else [])]
    runtime = card.cann_home / "lib64/libascendcl.so"
    runtime.unlink()
    subprocess.run(["cc", *how, "-shared", "-fPIC", "-Wl,-soname,libascendcl.so", HERE / "mock_acl.c", "-o", runtime],
                   check=True)
    exe = tmp_path / "threads"
    subprocess.run(["cc", *how, f"-I{ROOT}/include", HERE / "threads.c", built / "libtilelang.a", "-lpthread", "-lm",
                    "-ldl", "-o", exe], check=True)
    env = {**os.environ, "MOCK_RUN": "none", "TSAN_OPTIONS": f"suppressions={HERE / 'thread_sanitizer.txt'}"}
    p = subprocess.run([exe, "4", *KERNELS], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stdout + p.stderr
    assert "4 threads, 3 kernels on a device" in p.stdout and p.stderr == ""
