"""Launching on a card. The runtime is mock_acl.c, which runs kernels on the simulated chip when one waits for them."""

import subprocess
import sys
import textwrap

import pytest

KERNELS = '''
import numpy as np
import tilelang
import tilelang.language as T
from tilelang import ArgumentError, DeviceError

def compile(func, **options):
    return tilelang.compile(func, **{"device": "ascend", **options})

def scaled(dtype="float32"):
    n = T.symbolic("n")
    @T.prim_func
    def scaled(A: T.Tensor((n, 64), dtype), B: T.Tensor((n, 64), dtype), f: T.float32):
        with T.Kernel(T.ceildiv(n, 8)) as bx:
            a = T.alloc_shared((8, 64), dtype)
            T.copy(A[bx * 8, 0], a)
            for i, j in T.Parallel(8, 64):
                a[i, j] = a[i, j] * f
            T.copy(a, B[bx * 8, 0])
    return scaled

def matmul(M, N, K, relu=False):
    @T.prim_func
    def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32)) as (bx, by):
            a = T.alloc_shared((32, K), "float16")
            b = T.alloc_shared((K, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A[by * 32, 0], a)
            T.copy(B[0, bx * 32], b)
            T.gemm(a, b, c, clear_accum=True)
            if relu:
                for i, j in T.Parallel(32, 32):
                    c[i, j] = T.max(c[i, j], 0.0)
            T.copy(c, C[by * 32, bx * 32])
    return gemm

@T.prim_func
def in_place(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
    with T.Kernel(1) as bx:
        a = T.alloc_shared((8, 64), "float32")
        b = T.alloc_shared((8, 64), "float32")
        T.copy(A, a)
        T.copy(B, b)
        for i, j in T.Parallel(8, 64):
            a[i, j] = a[i, j] + b[i, j]
        T.copy(a, A)

rng = np.random.default_rng(1)
def random(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)
'''

# torch_npu is not there, but what it would do is: tensors whose device is npu:N, in memory the mock can reach
CARDS = '''
import os, sys, types
import torch
torch.utils.rename_privateuse1_backend("npu")
streams = {}
class Card(torch.Tensor):
    @property
    def device(self):
        return torch.device(self.card)
def on(x, card="npu:0"):
    x = x.as_subclass(Card)
    x.card = card
    return x
plain_empty = torch.empty
def empty(shape, dtype=None, device="cpu"):
    made = plain_empty(shape, dtype=dtype)
    return made if str(device) == "cpu" else on(made, str(device))
torch.empty = empty
torch_npu = types.ModuleType("torch_npu")
torch_npu._C = types.SimpleNamespace(_npu_getCurrentRawStream=lambda index: streams.get(index, 0))
sys.modules["torch_npu"] = torch_npu
torch.npu = types.SimpleNamespace(current_device=lambda: 0)
def plain(x):
    return x.as_subclass(torch.Tensor)
def calls(what="launch"):
    return [line.strip() for line in open(os.environ["MOCK_LOG"]) if line.startswith(what)]
'''


@pytest.fixture
def run(card, tmp_path, monkeypatch):
    """Runs a program (the runtime is loaded once a process) and returns what it printed and the lines of MOCK_LOG."""

    def go(program, kernels=KERNELS, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("MOCK_LOG", str(tmp_path / "log"))
        script = tmp_path / "program.py"
        script.write_text(kernels + textwrap.dedent(program))
        p = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
        assert p.returncode == 0, p.stdout + p.stderr
        log = tmp_path / "log"
        return p.stdout, log.read_text().splitlines() if log.exists() else []

    return go


def test_numpy(run):
    """Sizes, scalars, results and workspaces; the same bytes as on the simulated chip."""
    out, log = run("""
        for dtype in (np.float32, np.float16):
            k = compile(scaled(np.dtype(dtype).name), out_idx=[1])
            for rows in (8, 21, 8):
                a = random(rows, 64, dtype=dtype)
                assert np.array_equal(k(a, 1.5), (a * dtype(1.5)).astype(dtype))
        for relu in (False, True):  # with relu: both kinds of core, a workspace
            a, b = random(40, 48, dtype=np.float16), random(48, 72, dtype=np.float16)
            card, sim = compile(matmul(40, 72, 48, relu), out_idx=[-1]), compile(matmul(40, 72, 48, relu),
                                                                                 out_idx=[-1], device="sim")
            assert np.array_equal(card(a, b), sim(a, b)) and card(a, b).any()
        a, b = random(8, 64), random(8, 64)
        want = a + b
        assert compile(in_place)(a, b) is None and np.array_equal(a, want)
        mine = np.zeros((8, 64), np.float32)
        assert compile(scaled(), out_idx=[1])(a, mine, 2.0) is mine and np.array_equal(mine, 2 * a)

        odd = np.frombuffer(b"." + a.tobytes(), np.float32, offset=1).reshape(8, 64)
        k = compile(scaled(), out_idx=[1])
        assert all(np.array_equal(k(odd, 2.0), 2 * odd) for _ in range(2))

        # arguments are checked at every call
        k = compile(scaled(), out_idx=[1])
        a = random(8, 64)
        k(a, 1.0)
        for bad, says in [((a[:, :32].copy(), 1.0), "wanted (8, 64)"), ((np.tile(a, 2)[:, ::2], 1.0), "not contiguous"),
                          ((np.asfortranarray(a), 1.0), "not contiguous"), ((a, "x"), "wanted a number"),
                          ((a.astype(np.float64), 1.0), "dtype float64"), ((a,), "missing: f")]:
            try:
                k(*bad)
                print("not refused:", says)
            except ArgumentError as e:
                assert says in str(e), str(e)
        fixed = random(8, 64)
        fixed.flags.writeable = False
        b = random(8, 64)
        add = compile(in_place)
        add(b, fixed)
        try:
            add(fixed, b)
        except ArgumentError as e:
            assert "read-only" in str(e)
            print("done")
        """)
    assert out == "done\n"
    launches = [line for line in log if line.startswith("launch")]
    assert launches[0] == "launch scaled_kernel blocks 1 on 0 stream" and "blocks 3" in launches[1]
    assert log.count("aclInit") == 1 and log.count("stream on 0") == 1
    assert sum(line.startswith("malloc") for line in log) < 2 * len(launches)  # memory is used again


TORCH = """
    k = compile(scaled(), out_idx=[1])
    host = torch.from_numpy(random(9, 64))
    for _ in range(2):  # of the host: as numpy arrays
        b = k(host, 2.0)
        assert isinstance(b, torch.Tensor) and torch.equal(b, 2 * host)
    print("host", "launches", len(calls()))

    # on cards: nothing is copied, nothing is waited for; the result is made there
    a = on(torch.from_numpy(random(8, 64)), "npu:1")
    b = k(a, 2.0)
    assert str(b.device) == "npu:1" and not torch.equal(plain(b), 2 * plain(a))
    tilelang.device.synchronize(1)
    assert torch.equal(plain(b), 2 * plain(a))

    # torch's current stream of the tensors' card; a launch elsewhere leaves the thread's card as it was
    import ctypes, gc
    acl = ctypes.CDLL("libascendcl.so")
    stream, here = ctypes.c_void_p(), ctypes.c_int32()
    acl.aclrtSetDevice(0)
    acl.aclrtCreateStream(ctypes.byref(stream))
    streams[0] = stream.value
    x, y = on(torch.ones(8, 64)), on(torch.ones(8, 64), "npu:1")  # kept: only cards free memory in stream order
    c, d = k(x, 3.0), k(y, 4.0)
    acl.aclrtGetDevice(ctypes.byref(here))
    assert here.value == 0
    tilelang.device.synchronize()
    assert torch.equal(plain(c), torch.full((8, 64), 3.0)) and not torch.equal(plain(d), torch.full((8, 64), 4.0))
    print(*calls()[-3:], sep="; ")
    try:
        compile(in_place)(a, on(torch.ones(8, 64)))
    except ArgumentError as e:
        print("npu:0 and npu:1" in str(e))

    # a workspace is there once a stream
    g = compile(matmul(32, 32, 32, True), out_idx=[-1])
    x = on(torch.ones(32, 32, dtype=torch.float16))
    before = calls("malloc")
    y = [g(x, x), g(x, x)]
    tilelang.device.synchronize(0, stream.value)
    assert all(float(plain(v).min()) == 32 for v in y)
    print("workspaces", len(calls("malloc")) - len(before))

    # a kernel that goes away is waited for
    e = compile(scaled(), out_idx=[1])
    r = e(x := on(torch.ones(8, 64)), 5.0)
    del e
    gc.collect()
    assert torch.equal(plain(r), torch.full((8, 64), 5.0))

    # errors come when the stream is waited for, or at the launch with ASCEND_LAUNCH_BLOCKING
    good, bad, x = compile(in_place), compile(scaled(), out_idx=[1]), on(torch.ones(8, 64))
    os.environ["MOCK_FAULT"] = "scaled_kernel"
    good(x, x)
    bad(x, 2.0)  # CALL
    good(x, x)
    try:
        tilelang.device.synchronize(0, stream.value)
    except DeviceError as e:
        print(e.diagnostics[0].text)
    os.environ["ASCEND_LAUNCH_BLOCKING"] = "1"
    try:
        compile(scaled(), out_idx=[1])(x, 2.0)
    except DeviceError as e:
        print(e.code, e.diagnostics[0].line)
"""


def test_torch(run):
    pytest.importorskip("torch")
    out, _ = run(TORCH, KERNELS + CARDS)
    said = out.splitlines()
    line, text = place("def scaled(A"), KERNELS + CARDS + textwrap.dedent(TORCH)
    assert said[:4] == [
        "host launches 2",
        "launch scaled_kernel blocks 1 on 1; launch scaled_kernel blocks 1 on 0 stream; "
        "launch scaled_kernel blocks 1 on 1",
        "True", "workspaces 1"]
    assert said[4].startswith(f"scaled (program.py:{line}) launched at ")
    assert f"program.py:{place('# CALL', text)} failed on device 0 with error 507015: EZ9999" in said[4]
    assert said[5] == f"TL1110 {line}"


ERRORS = """
    import os
    def attempt(kernel, *args):
        try:
            kernel(*args)
        except DeviceError as e:
            print(e.code, e.diagnostics[0].line, e.diagnostics[0].text, e.diagnostics[0].fix, sep="|")

    small, large = random(8, 64), random(800, 64)
    for call in ("aclrtCreateStream", "aclrtMemcpy"):
        os.environ["MOCK_REFUSE"] = call
        attempt(compile(scaled(), out_idx=[1]), small, 2.0)
    del os.environ["MOCK_REFUSE"]
    k = compile(scaled(), out_idx=[1], device="ascend:1")
    assert np.array_equal(k(small, 2.0), 2 * small)
    attempt(compile(scaled(), out_idx=[1], device="ascend:7"), small, 2.0)
    attempt(compile(scaled(), out_idx=[1], chip="950"), small, 2.0)
    os.environ["MOCK_MEMORY"] = "10000"
    attempt(k, large, 2.0)
    del os.environ["MOCK_MEMORY"]
    os.environ["MOCK_FAULT"] = "scaled_kernel"
    attempt(k, small, 2.0)
    del os.environ["MOCK_FAULT"]
    assert np.array_equal(k(small, 2.0), 2 * small)  # the next launch is a new one
    for wrong in ("sim:1", "ascend:x"):
        try:
            compile(scaled(), device=wrong)
        except ArgumentError as e:
            print(wrong in str(e))
    for soc in ("Ascend910B4", "Ascend910B2C", "Ascend910_9391", "Ascend950PR_9579", "Ascend310P3"):
        os.environ["MOCK_SOC"] = soc
        print(tilelang.device.device_count(), tilelang.device.chip_of_device(), compile(scaled()).chip)
"""


def test_cards_chips_and_errors(run):
    out, log = run(ERRORS)
    said, line = out.splitlines(), place("def scaled(A")
    assert "launch scaled_kernel blocks 1 on 1 stream" in log
    assert [s.partition("|")[0] for s in said[:2]] == ["TL1109", "TL1109"]
    assert "aclrtCreateStream failed with 107000: EE1001" in said[0] and "aclrtMemcpy to the device failed" in said[1]
    said = said[2:]
    assert said[0].startswith("TL1107|") and "there is no device 7; the runtime sees 2" in said[0]
    assert said[1] == f'TL1113|{line}|@scaled is made for 950, the device is a 910B2|compile it with chip="910B2"'
    assert said[2].startswith("TL1111|") and "204800 bytes" in said[2] and "EL0004" in said[2]
    assert said[3].startswith(
        f"TL1110|{line}|scaled (program.py:{line}) failed on device 1 with error 507015: EZ9999") and "sim" in said[3]
    assert said[4:] == ["True", "True"] + [f"2 {c} {c}" for c in ("910B4", "910B2", "910_9391", "950PR_957x", None)]


def place(what, text=KERNELS):
    return next(i for i, line in enumerate(text.splitlines(), 1) if what in line)


@pytest.mark.parametrize("made, says", [("echo nothing", "does not load: "),
                                        ("echo 'int x;' | cc -shared -fPIC -x c - -o /dev/stdout",
                                         "is not a kernel that tlc built")])
def test_a_library_that_is_no_kernel(run, card, made, says):
    card.compiler("case \"$*\" in *--version*) echo 1; exit 0;; *-fsyntax-only*) exit 1;; esac\n"
                  f"for last; do :; done\n{made} > $last")
    out, _ = run("""
        try:
            compile(scaled(), out_idx=[1])(random(8, 64), 2.0)
        except DeviceError as e:
            print(e.code, e.diagnostics[0].text)
        """)
    assert out.startswith("TL1108") and says in out


@pytest.mark.parametrize("env, says", [({"MOCK_DEVICES": 0}, "TL1107 the runtime sees no device"),
                                       ({}, "TL1106 the runtime library of the toolkit does not load")])
def test_nothing_to_run_on(run, card, env, says):
    if not env:
        (card.cann_home / "lib64/libascendcl.so").write_text("not a library")
    out, _ = run("""
        assert tilelang.device.device_count() == 0
        try:
            tilelang.device.runtime()
        except DeviceError as e:
            print(e.code, e.diagnostics[0].text)
        """, **env)
    assert out.startswith(says)

