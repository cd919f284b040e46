"""tilelang.sim: programs for a card run on the host; importing tilelang changes nothing,
remove() takes everything back."""

import copy
import json
import subprocess
import sys
import textwrap

import numpy
import pytest

torch = pytest.importorskip("torch")

import tilelang  # noqa: E402
from tilelang import sim  # noqa: E402
from tilelang.sim.reference import OPERATORS  # noqa: E402

PROGRAM = """
import sys
import tilelang
import tilelang.language as T
import torch
import torch_npu

torch.set_default_device("npu")

@tilelang.jit(out_idx=[-1])
def add(M, N, dtype="float"):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(M // 16, is_npu=True) as (cid, vid):
            a, b = T.alloc_ub((8, N), dtype), T.alloc_ub((8, N), dtype)
            T.copy(A[cid * 16 + vid * 8, 0], a)
            T.copy(B[cid * 16 + vid * 8, 0], b)
            T.tile.add(a, a, b)
            T.copy(a, C[cid * 16 + vid * 8, 0])
    return main

a = torch.randn(64, 32).npu()
b = torch.randn(1, 32).expand(64, 32).npu()
assert b.is_contiguous()
c = add(64, 32)(a, b)
torch.npu.synchronize()
torch.testing.assert_close(c.cpu(), (a + b).cpu())
if "--wrong" in sys.argv:
    torch.testing.assert_close(c.cpu(), a.cpu())
print("Kernel Output Match!", sys.argv[1:])
"""


@pytest.fixture
def npu():
    with sim.simulated():
        yield


def run(*args, cwd):
    return subprocess.run([sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=300)


def snapshot():
    import torch.nn.functional as F

    Tensor = torch.Tensor
    return [
        torch.device, torch.randn, torch.empty, torch.matmul, torch.load, torch.Generator, torch.set_default_device,
        torch.testing.assert_close, Tensor.to, Tensor.cpu, Tensor.__setitem__, Tensor.copy_, Tensor.__matmul__,
        F.linear,
        torch.nn.Module.to, tilelang.Kernel._run, tilelang.Kernel._compile, tilelang.Kernel.loose,
        hasattr(torch, "npu"), hasattr(Tensor, "npu"), "torch_npu" in sys.modules,
    ]  # fmt: skip


def test_install_is_explicit_and_remove_takes_it_back():
    before = snapshot()
    assert not sim.installed() and not before[-1] and not before[-2] and not before[-3]
    with sim.simulated():
        assert sim.installed() and torch.npu.is_available()
        assert all(a is not b for a, b in zip(before[:-4], snapshot()[:-4]))
        import torch_npu  # noqa: F401 - only there while installed
    after = snapshot()
    assert all(a is b for a, b in zip(before, after))
    with pytest.raises(ImportError):
        import torch_npu  # noqa: F401, F811


def test_a_program_runs_unchanged(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    record = tmp_path / "record.json"
    p = run("-m", "tilelang.sim", "--record", str(record), "program.py", "--m", "64", cwd=tmp_path)
    assert p.returncode == 0, p.stderr
    assert "Kernel Output Match! ['--m', '64']" in p.stdout
    seen = json.loads(record.read_text())
    assert seen["kernels"] == 1 and seen["calls"] == 1 and seen["run_seconds"] > 0 and not seen["mismatches"]
    (compiled,) = seen["compiled"]
    assert compiled["instructions"] > 0 and compiled["flags"] > 0 and not compiled["by_hand"]
    assert compiled["passes"] >= compiled["sync"] > 0 and compiled["emit"] > 0 and compiled["trace"] > 0
    p = run("-m", "tilelang.sim", "program.py", "--wrong", cwd=tmp_path)
    assert p.returncode != 0 and "AssertionError" in p.stderr
    assert run("program.py", cwd=tmp_path).returncode != 0  # without the runner there is no torch_npu


def test_pytest_under_the_runner(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import torch\ndef test_a(): assert torch.ones(2, device='npu').npu().sum() == 2\ndef test_b(): assert False\n"
    )
    p = run("-m", "tilelang.sim", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "1 failed, 1 passed" in p.stdout, p.stdout + p.stderr


def test_the_word_npu_everywhere(npu):
    assert torch.device("npu") == torch.device("cpu") and torch.device("npu:1").type == "cpu"
    assert isinstance(torch.zeros(1).device, torch.device) and not isinstance("npu", torch.device)
    for made in (
        torch.zeros(2, device="npu"), torch.randn(2, device=torch.device("npu:0")), torch.tensor([1.0, 2.0],
        device="npu"),
        torch.zeros(2).new_ones(2, device="npu"), torch.zeros(2).to("npu"), torch.zeros(2).to(device="npu",
        dtype=torch.half),
        torch.empty_like(torch.zeros(2), device="npu"), torch.arange(2, device="npu"),
    ):  # fmt: skip
        assert made.device.type == "cpu" and made.shape == (2,)
    torch.set_default_device("npu")
    assert torch.ones(3).device.type == "cpu"
    assert torch.nn.Linear(2, 2).npu().to("npu").weight.device.type == "cpu"
    g = torch.Generator(device="npu")
    g.manual_seed(1)
    assert isinstance(g, torch.Generator)
    with torch.device("npu"):
        assert torch.ones(1).item() == 1
    torch.set_default_device(None)


def test_going_there_and_back_copies(npu):
    x = torch.zeros(4)
    for y in (x.npu(), x.to("npu"), x.to(device="npu")):
        y += 1
        assert x.sum() == 0
    assert x.to(torch.float32) is x and x.cpu() is x and x.to("cpu") is x
    there = torch.zeros(4, device="npu")
    for y in (there.cpu(), there.to("cpu"), there.npu()):
        y += 1
        assert there.sum() == 0
    assert there.to("npu") is there and there.to(torch.device("npu")) is there
    assert there.cpu().to("npu") is not there
    torch.set_default_device("npu")
    made = torch.zeros(4)
    assert made.to("npu") is made and made.cpu() is not made
    torch.set_default_device(None)
    z = torch.zeros(2, 1).expand(2, 3)
    assert z.npu().is_contiguous() and z.to("npu").is_contiguous()
    w = torch.ones(2, requires_grad=True)
    w.npu().sum().backward()
    assert w.grad.tolist() == [1, 1]


def test_half_products_round_once(npu):
    a, b = torch.randn(64, 512).half(), torch.randn(512, 64).half()
    want = (a.float() @ b.float()).half()
    for got in (a @ b, torch.matmul(a, b), torch.einsum("ik,kj->ij", a, b), torch.nn.functional.linear(a, b.T)):
        assert got.dtype is torch.half and torch.equal(got, want)


def test_overlapping_assignment(npu):
    x = torch.arange(6.0).view(1, 6)
    part = x[:, 0:4]
    x[:, 1:5] = part
    assert x.tolist() == [[0, 0, 1, 2, 3, 5]]
    y = torch.arange(6.0)
    y[1:].copy_(y[:-1])
    assert y.tolist() == [0, 0, 1, 2, 3, 4]


def test_bytes_wrap(npu):
    """Scripts build masks of bits in int8 tensors: 255 is -1 there."""
    x = torch.zeros(2, dtype=torch.int8)
    x[0] = 255
    assert x.tolist() == [-1, 0]



def test_chip_and_events(npu, monkeypatch):
    p = torch.npu.get_device_properties("npu")
    assert (p.cube_core_num, p.vector_core_num) == (24, 48) and "910B2" in p.name
    monkeypatch.setenv("TILELANG_CHIP", "910B4")
    assert torch.npu.get_device_properties(0).cube_core_num == 20
    a, b = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    a.record()
    b.record(torch.npu.current_stream())
    assert a.elapsed_time(b) >= 0
    torch.npu.set_device(1)
    assert torch.npu.current_device() == 1


def test_unknown_operator_is_an_error_by_name(npu):
    import torch_npu

    with pytest.raises(AttributeError, match="npu_nonsense"):
        torch_npu.npu_nonsense
    with pytest.raises(AttributeError, match="npu_nonsense"):
        torch.ops.npu.npu_nonsense(1)
    assert torch.ops.npu.npu_swiglu is torch_npu.npu_swiglu is OPERATORS["npu_swiglu"]


def test_tensors_of_another_shape_are_read_as_they_lie(npu):
    from tilelang import language as T

    @T.prim_func
    def twice(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            t = T.alloc_ub((2, 8), "float32")
            T.copy(A[vid * 2, 0], t)
            T.tile.add(t, t, t)
            T.copy(t, B[vid * 2, 0])

    kernel = tilelang.compile(twice, out_idx=[1])
    with pytest.warns(tilelang.TileLangWarning, match="is read as"):
        out = kernel(torch.arange(32.0))
    assert torch.equal(out, torch.arange(32.0).view(4, 8) * 2)
    with pytest.raises(tilelang.ArgumentError):
        kernel(torch.arange(31.0))


def test_each_shape_below_the_declared_one_has_a_kernel_of_its_own(npu):
    """A parameter of a large first dimension takes tensors of fewer rows, again and again."""
    from tilelang import language as T

    @T.prim_func
    def twice(A: T.Tensor((4096, 8), "float32"), B: T.Tensor((4096, 8), "float32"), n: T.int32):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            t = T.alloc_ub((1, 8), "float32")
            for row in T.serial(n):
                T.copy(A[row, 0], t)
                T.tile.add(t, t, t)
                T.copy(t, B[row, 0])

    kernel = tilelang.compile(twice)
    for rows in (2, 5, 3, 5):
        a, b = torch.arange(8.0 * rows).view(rows, 8), torch.zeros(rows, 8)
        kernel(a, b, rows)
        assert torch.equal(b, a * 2)
    assert kernel.params[0].shape == (4096, 8) and copy.copy(kernel) is kernel


# ---- operators against formulas written another way ----------------------------------------------------------


def test_swiglu_and_gelu_gradients_by_autograd():
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, 4, dtype=torch.float64)
    OPERATORS["npu_swiglu"](x).backward(g)
    assert torch.allclose(x.grad, OPERATORS["npu_swiglu_backward"](g, x.detach()))
    y = torch.randn(5, dtype=torch.float64, requires_grad=True)
    h = torch.randn(5, dtype=torch.float64)
    torch.nn.functional.gelu(y).backward(h)
    assert torch.allclose(y.grad, OPERATORS["npu_gelu_backward"](h, y.detach()))


def test_rotary_by_complex_numbers():
    x, angle = torch.randn(2, 3, 8), torch.randn(2, 1, 4)
    z = torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    want = torch.view_as_real(z).flatten(-2)
    pairs = angle.repeat_interleave(2, -1)
    got = OPERATORS["npu_rotary_mul"](x, pairs.cos(), pairs.sin(), rotary_mode="interleave")
    assert torch.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("kept", [None, 5])
def test_tokens_go_and_come_back(kept):
    tokens, experts = torch.randn(6, 4), torch.randint(0, 3, (6, 2))
    rows, places = OPERATORS["npu_moe_token_permute"](tokens, experts, num_out_tokens=kept)
    order = sorted(range(12), key=lambda n: (int(experts.view(-1)[n]), n))[: kept or 12]
    assert torch.equal(rows, torch.stack([tokens[n // 2] for n in order]))
    weights = torch.rand(6, 2)
    back = OPERATORS["npu_moe_token_unpermute"](rows, places, weights)
    want = torch.zeros(6, 4)
    for n in order:
        want[n // 2] += tokens[n // 2] * weights.view(-1)[n]
    assert torch.allclose(back, want, atol=1e-6)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH"])
def test_fusion_attention(layout):
    q, k, v = (torch.randn(2, n, 7, 16) for n in (4, 2, 2))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True, is_causal=True)

    def there(x):
        x = x if layout == "BNSD" else x.transpose(1, 2)
        return x.flatten(2) if layout == "BSH" else x

    got = OPERATORS["npu_fusion_attention"](*(there(t) for t in (q, k, v)), 4, layout, scale=0.3, sparse_mode=2)
    assert torch.allclose(got[0], there(want), atol=1e-5)
    assert got[1].shape == (2, 4, 7, 8)


def test_sparse_attention_over_pages():
    blocks, size, length = 4, 8, 27
    pages = torch.randperm(blocks).to(torch.int32).view(1, -1)
    cache = torch.randn(blocks, size, 1, 16)
    rope = torch.randn(blocks, size, 1, 4)
    q, q_rope = torch.randn(1, 3, 16), torch.randn(1, 3, 4)
    pick = torch.randperm(length)[:9].to(torch.int32).view(1, 1, 9)
    out, _, _ = OPERATORS["npu_sparse_flash_attention"](
        q,
        cache,
        cache,
        pick,
        0.25,
        1,
        pages,
        torch.tensor([1]),
        torch.tensor([length]),
        q_rope,
        rope,
        "TND",
        "PA_BSND",
        0,
    )
    flat = cache[pages[0].long()].flatten(0, 2)[pick[0, 0].long()]
    keys = torch.cat([flat, rope[pages[0].long()].flatten(0, 2)[pick[0, 0].long()]], 1)
    p = numpy.exp((torch.cat([q, q_rope], -1)[0] @ keys.T * 0.25).double().numpy())
    want = (p / p.sum(1, keepdims=True)) @ flat.double().numpy()
    assert numpy.allclose(out[0].numpy(), want, atol=1e-5)


def test_cross_entropy():
    x, y = torch.randn(5, 7), torch.randint(0, 7, (5,))
    loss, log_prob, _, _ = OPERATORS["npu_cross_entropy_loss"](x, y.to(torch.int32), reduction="none")
    p = numpy.exp(x.double().numpy())
    want = -numpy.log(p / p.sum(1, keepdims=True))
    assert numpy.allclose(loss.numpy(), want[numpy.arange(5), y.numpy()], atol=1e-5)
    assert numpy.allclose(log_prob.numpy(), -want, atol=1e-5)


# ---- graphs --------------------------------------------------------------------------------------------------


def test_a_graph_changes_nothing_until_it_is_replayed(npu):
    from tilelang import language as T

    @T.prim_func
    def add_one(A: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            t = T.alloc_ub((8, 8), "float32")
            T.copy(A[vid * 8, 0], t)
            T.tile.add(t, t, 1.0)
            T.copy(t, A[vid * 8, 0])

    kernel = tilelang.compile(add_one)
    x = torch.zeros(16, 8)
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        kernel(x)
        y = x * 2
        y += 1
    assert x.sum() == 0
    g.replay()
    assert torch.equal(x, torch.ones(16, 8)) and torch.equal(y, torch.full((16, 8), 3.0))
    g.replay()
    assert torch.equal(x, torch.full((16, 8), 2.0)) and torch.equal(y, torch.full((16, 8), 5.0))


# ---- the report ----------------------------------------------------------------------------------------------


def test_conformance_report(tmp_path):
    progs = tmp_path / "programs"
    progs.mkdir()
    (progs / "good.py").write_text(PROGRAM)
    (progs / "wrong.py").write_text(PROGRAM.replace('if "--wrong" in sys.argv:', "if True:"))
    (progs / "swallows.py").write_text(
        PROGRAM.replace('if "--wrong" in sys.argv:', "try:").replace(
            'print("K', 'except AssertionError: pass\nprint("K'
        )
    )
    (progs / "unknown.py").write_text(PROGRAM.replace("T.tile.add(a, a, b)", "T.tile.frobnicate(a, a, b)"))
    (progs / "slow.py").write_text(PROGRAM + "\nimport time\ntime.sleep(600)\n")
    (progs / "part.py").write_text("def f(): pass\n")
    (progs / "test_cases.py").write_text(
        textwrap.dedent(
            """
            import pytest
            @pytest.mark.parametrize("n", [1, 2])
            def test_n(n): assert n == 1
            @pytest.mark.skip(reason="not here")
            def test_skipped(): pass
            """
        )
    )
    out = tmp_path / "report"
    args = ("-m", "tilelang.conformance", "programs", "--out", str(out), "--jobs", "2", "--timeout", "25")
    p = run(*args, cwd=tmp_path)
    assert p.returncode == 0, p.stdout + p.stderr
    data = json.loads((out / "report.json").read_text())
    found = {(r["file"], r["case"]): r["status"] for r in data["results"]}
    assert found == {
        ("good.py", None): "pass",
        ("wrong.py", None): "wrong numbers",
        ("swallows.py", None): "wrong numbers",
        ("unknown.py", None): "unsupported",
        ("slow.py", None): "time-out",
        ("test_cases.py", "test_n[1]"): "pass",
        ("test_cases.py", "test_n[2]"): "error",
        ("test_cases.py", "test_skipped"): "skipped",
    }
    slow = next(r for r in data["results"] if r["file"] == "slow.py")
    assert "in code of its own, outside any kernel, 1 kernel run done" in slow["reason"] and slow["run_seconds"] > 0
    assert data["summary"]["files"] == {"pass": 1, "wrong numbers": 2, "unsupported": 1, "time-out": 1, "error": 1}
    text, page = (out / "report.txt").read_text(), (out / "report.html").read_text()
    assert "frobnicate" in text and "frobnicate" in page and "http" not in page
    again = run(*args, cwd=tmp_path)  # nothing is left to do
    assert again.returncode == 0 and "[1/" not in again.stdout
    lines = (out / "results.jsonl").read_text().splitlines()
    (out / "results.jsonl").write_text("\n".join(x for x in lines if "good.py" not in x) + '\n{"file": "go')
    p = run(*args, cwd=tmp_path)  # an interrupted run goes on
    assert p.stdout.count("good.py") == 1 and "wrong.py" not in p.stdout.splitlines()[0]
    assert json.loads((out / "report.json").read_text())["summary"] == data["summary"]


def test_the_word_cuda_everywhere():
    before = [torch.cuda.is_available, torch.cuda.get_device_capability, torch.Tensor.cuda, torch.Tensor.pin_memory]
    with sim.simulated():
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (8, 0)
        assert torch.device("cuda:0").type == "cpu" and torch.zeros(2, device="cuda").device.type == "cpu"
        assert torch.zeros(2, device=0).device.type == "cpu" and torch.empty(2, pin_memory=True).shape == (2,)
        x = torch.zeros(4)
        for y in (x.cuda(), x.to("cuda"), x.to(0)):
            y += 1
            assert x.sum() == 0
        assert torch.nn.Linear(2, 2).cuda().weight.device.type == "cpu"
        torch.manual_seed(7)
        a = torch.randn(3, device="cuda")
        torch.cuda.manual_seed(7)
        assert torch.equal(a, torch.randn(3))
        assert torch.cuda.get_device_properties(0).multi_processor_count == 24
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 0
    assert before == [
        torch.cuda.is_available, torch.cuda.get_device_capability, torch.Tensor.cuda, torch.Tensor.pin_memory
    ]  # fmt: skip
    assert not torch.cuda.is_available()


MAINLINE = """
import argparse, sys
import torch
import tilelang
import tilelang.language as T
import tilelang.testing
from tilelang.carver.arch import driver
from tilelang.language.fp8 import determine_fp8_type
from tilelang.layout import make_swizzled_layout
from tilelang.tileop.base import GemmWarpPolicy
from tilelang.transform import simplify_prim_func
from tilelang.utils.tensor import torch_assert_close
from tvm import DataType, tirx

@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_TMA_LOWER: True, "tl.disable_warp_specialized": True})
def scale(X, block: int):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float16)
    Y = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        x = T.alloc_shared((block, N), T.float16)
        T.annotate_layout({x: make_swizzled_layout(x)})
        T.copy(X[bx * block, 0], x)
        for i, j in T.Parallel(block, N):
            x[i, j] = x[i, j] * tirx.const(2, T.float16)
        T.copy(x, Y[bx * block, 0])
    return Y

@tilelang.testing.requires_cuda
@tilelang.testing.requires_cuda_compute_version_le(8, 9)
def test_runs():
    x = torch.randn(64, 32, device="cuda", dtype=DataType("float16").as_torch())
    torch_assert_close(scale(x, block=16), x * 2)

@tilelang.testing.requires_cuda_compute_version_ge(9, 0)
def test_other_cards():
    assert False

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--c", type=int, default=1)
    assert p.parse_args().c == 3 and driver.get_num_sms() == 24 and determine_fp8_type() == "float8_e4m3fn"
    test_runs()
    assert "half" in scale.get_kernel_source()
    try:
        tirx.IndexMap
    except AttributeError as e:
        print(e)
"""


def test_a_mainline_program_runs_unchanged(tmp_path):
    (tmp_path / "test_program.py").write_text(MAINLINE)
    p = run("-W", "error", "-m", "tilelang.sim", "test_program.py", "--c", "3", cwd=tmp_path)
    assert p.returncode == 0 and "tvm.tirx.IndexMap is a part of TVM" in p.stdout, p.stderr
    p = run("-m", "tilelang.sim", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_program.py", cwd=tmp_path)
    assert "1 passed, 1 skipped" in p.stdout, p.stdout + p.stderr


def test_results_that_are_damaged(tmp_path):
    """Lines of results.jsonl that are no results are left out; the programs run again."""
    from tilelang.conformance import report

    good = {"file": "a.py", "case": None, "status": "pass", "seconds": 1.5}
    bad = [
        "", "{", "1", "null", "[]", '"a.py"', "[" * 100000, '{"file": "a.py"}', json.dumps({**good, "status": "fine"}),
        json.dumps({**good, "file": 3}), json.dumps({**good, "status": []}), json.dumps({**good, "seconds": "1"}),
        json.dumps({**good, "seconds": float("inf")}), json.dumps({**good, "reason": 1}), json.dumps(good)[:-1],
        json.dumps({**good, "status": "crash", "reason": None}),
    ]  # fmt: skip
    path = tmp_path / "results.jsonl"
    path.write_bytes("\n".join([*bad, json.dumps(good), *bad]).encode() + b"\n\xff\xfe\0")
    assert report.read(path) == [good] and report.read(tmp_path / "none") == []
    assert "1 of 1 cases pass" in report.page(report.read(path), "folder")
