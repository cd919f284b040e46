"""kernel.profile(): figures that agree with each other, and views of them."""

import importlib
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang
import tilelang.language as T
from tilelang.profiler import do_bench

pytest.importorskip("tilelang._core")


def gemm(M, N, K, bm=128, bn=128, bk=64, stages=2):
    @T.prim_func
    def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm)) as (bx, by):
            a, b = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=stages):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return gemm


def scale(n):
    @T.prim_func
    def scale(x: T.Tensor((n, 256), "float32"), y: T.Tensor((n, 256), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as b:
            t = T.alloc_ub((32, 256), "float32")
            T.copy(x[b * 32, 0], t)
            for i, j in T.Parallel(32, 256):
                t[i, j] = t[i, j] * 2.0
            T.copy(t, y[b * 32, 0])

    return scale


@pytest.fixture(scope="module")
def seen():
    return tilelang.compile(gemm(512, 512, 512), out_idx=[2]).profile()


def test_figures(seen):
    assert 0 < seen.compute_only_us < seen.us and 0 < seen.copy_only_us < seen.us and 0 <= seen.overlap <= 1
    assert seen.cycles == pytest.approx(seen.us * seen.mhz, abs=1)
    assert seen.gm_write_bytes == 512 * 512 * 4 and seen.gm_read_bytes == 2 * 512 * 512 * 2 * 4
    assert 0 < seen.hbm_read_bytes <= 2 * 512 * 512 * 2 + 4096 and 0 <= seen.l2_hit <= 1
    assert seen.flops == 2 * 512**3
    assert set(seen.pipe_ratio) == {"cube", "mte1", "mte2", "mte3", "fix", "vector", "scalar"}
    assert 0 < seen.pipe_ratio["cube"] < 1 and seen.pipe_ratio["vector"] == 0
    assert (seen.blocks, seen.cores_used, seen.cores_there) == (16, 16, 24)


def test_busy_and_idle_are_the_whole_time(seen):
    for core in seen.cores:
        for pipe, busy in core["busy_us"].items():
            assert busy + sum(core["idle_us"][pipe].values()) == pytest.approx(seen.us, abs=2e-3), (
                core["number"],
                pipe,
            )


def test_lines_are_those_of_the_kernel(seen):
    sources = [x.source.strip() for x in seen.lines]
    assert {"T.gemm(a, b, c)", "T.copy(A[by * bm, k * bk], a)"} <= set(sources)
    assert seen.lines == sorted(seen.lines, key=lambda x: -x.share)
    assert sum(x.gm_bytes for x in seen.lines) == seen.gm_read_bytes + seen.gm_write_bytes


def test_what_if(seen):
    for question, us in seen.what_if.items():
        if "stage" not in question:
            assert us <= seen.us + 1e-6, question
    assert "one more stage in every T.Pipelined" in seen.what_if


def test_the_critical_path_is_within_the_time(seen):
    assert 0 < sum(us for _, _, us, _ in seen.critical_path) <= seen.us + 1e-6


def test_more_events_than_are_kept(seen, monkeypatch, tmp_path):
    """The critical path is found in parts, each of a run of its own; views show the first events and say so."""
    monkeypatch.setattr(importlib.import_module("tilelang.profiler.profile"), "MOST_EVENTS", 100)
    p = seen.kernel.profile()
    assert len(p.events) == 100 and p.n_events == seen.n_events == len(seen.events) > 300
    assert (p.events == seen.events[:100]).all()
    assert p.critical_path == seen.critical_path
    assert f"the first 100 of {p.n_events} events" in open(p.save_html(tmp_path / "t.html")).read()
    about = json.load(open(p.save_trace(tmp_path / "t.json")))["otherData"]
    assert (about["shown"], about["events"]) == (100, p.n_events)


def test_it_prints_and_packs(seen):
    text = str(seen)
    for word in ("gemm on 910B2", "cube mte2", "what if", "T.gemm(a, b, c)", "roofline", "advice"):
        assert word in text
    assert json.loads(json.dumps(seen.to_dict()))["us"] == seen.us
    assert f"the launch takes {seen.launch_us:.1f} of {seen.us:.1f} us" in text


def test_the_trace_is_whole(seen, tmp_path):
    events = json.load(open(seen.save_trace(tmp_path / "t.json")))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(seen.events)
    assert all(0 <= e["ts"] and e["dur"] >= 0 and e["ts"] + e["dur"] <= seen.us + 1e-6 for e in spans)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)
    assert all(re.fullmatch(r"test_profile\.py:\d+", e["args"]["line"]) for e in spans)
    lanes = {}
    for e in events:  # the Trace Event format: phases with the keys that they need
        assert e["ph"] in "XMsf" and isinstance(e["pid"], int) and isinstance(e["tid"], int) and e["name"]
        assert e["ph"] == "M" or (isinstance(e["ts"], float) and isinstance(e["cat"], str))
        if e["ph"] == "X":
            lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for slices in lanes.values():  # slices of a thread may not overlap
        slices.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(slices, slices[1:]))
    for e in [*starts.values(), *ends.values()]:  # an arrow hangs on the slice that it lies in
        assert any(a - 1e-9 <= e["ts"] <= b + 1e-9 for a, b in lanes[e["pid"], e["tid"]])
    assert ends.keys() and all(e["bp"] == "e" for e in ends.values())


def browser():
    return next((b for b in ("chromium-headless-shell", "chromium", "google-chrome") if shutil.which(b)), None)


@pytest.mark.skipif(browser() is None, reason="no headless browser here")
def test_the_page_in_a_browser(seen, tmp_path):
    page = seen.save_html(tmp_path / "t.html")

    def shown(at=""):
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
        out = subprocess.run([*command, f"file://{page}{at}"], capture_output=True, text=True, timeout=120).stdout
        boxes, span = re.search(r'data-shown="(\d+)"', out), re.search(r'<span id="span">([^<]*)<', out)
        assert boxes and span, out[:2000]
        return int(boxes[1]), span[1]

    whole, span = shown()
    assert whole > 100 and span.startswith(f"{seen.us:.4g} us of")
    middle = (seen.launch_us + seen.us) / 2
    part, span = shown(f"#from={middle}&to={middle + 1}")
    assert 0 < part < whole and span.startswith("1.000 us of")


def test_plots(seen, tmp_path):
    pytest.importorskip("matplotlib")
    paths = seen.save_plots(tmp_path)
    assert [os.path.basename(p) for p in paths] == ["roofline.svg", "pipes.svg", "memory.svg"]
    again = seen.save_plots(tmp_path / "again")
    assert [open(p).read() for p in paths] == [open(p).read() for p in again]


def test_profile_of_tensors_is_a_call():
    """Numbers and time in one call; the same time as of the shapes alone, where no loop depends on data."""
    kernel = tilelang.compile(scale(64))
    x, y = np.ones((64, 256), np.float32), np.full((64, 256), 7, np.float32)
    p = kernel.profile(x, y)
    assert p.us > 0 and (y == 2).all() and p.results is None
    assert p.pipe_ratio["vector"] > 0 and p.pipe_ratio["cube"] == 0
    assert p.us == kernel.profile((64, 256), (64, 256)).us and (y == 2).all()
    q = tilelang.compile(scale(64), out_idx=[1]).profile(x)
    assert q.us == p.us and (q.results == 2).all()


def counted():
    @T.prim_func
    def count(n: T.Tensor((64,), "int32"), x: T.Tensor((64, 1024), "float32"), y: T.Tensor((64, 1024), "float32")):
        with T.Kernel(64) as b:
            m = T.alloc_ub((8,), "int32")
            t = T.alloc_ub((1024,), "float32")
            T.copy(n[b // 8 * 8], m)
            T.copy(x[b, 0], t)
            for _ in T.serial(m[b % 8]):
                T.tile.add(t, t, 1.0)
            T.copy(t, y[b, 0])

    return tilelang.compile(count, out_idx=[2])


def test_the_clock_follows_the_values():
    """How often a loop runs is read from UB: with data the clock does as the run did, block for block; without: TL0851.
    What is asked later is that of this run, whatever ran meanwhile."""
    kernel, x = counted(), np.zeros((64, 1024), np.float32)
    with pytest.raises(tilelang.TileLangError, match="TL0851"):
        kernel.profile()
    per_add, seen = [], []
    for times in (0, 10, 50):
        n = np.full(64, times, np.int32)
        p = kernel.profile(n, x)
        seen.append(p)
        assert (p.results == times).all()
        adds = [s for s in p.statements if s["text"].startswith("add ")]
        assert sum(s["count"] for s in adds) == 64 * times
        per_add.append(p.us)
    assert per_add == sorted(per_add) and per_add[2] > per_add[1] > per_add[0]
    kernel(np.full(64, 3, np.int32), x)
    assert seen[2].compute_only_us > seen[1].compute_only_us and max(seen[2].what_if.values()) <= seen[2].us
    uneven = kernel.profile(np.arange(64, dtype=np.int32), x)
    assert (uneven.results == np.arange(64)[:, None]).all() and uneven.us < seen[2].us * 2
    with pytest.warns(tilelang.TileLangWarning, match="TL1025"):
        assert do_bench(lambda: kernel(np.full(64, 50, np.int32), x)) == pytest.approx(seen[2].us * 1e-3)


def test_several_launches():
    @T.prim_func
    def two(x: T.Tensor((64, 256), "float32"), y: T.Tensor((64, 256), "float32")):
        for _ in range(2):
            with T.Kernel(2) as b:
                t = T.alloc_ub((32, 256), "float32")
                T.copy(x[b * 32, 0], t)
                T.copy(t, y[b * 32, 0])

    kernel = tilelang.compile(two)
    p = kernel.profile()
    assert len(p) == 2 and p.us == p[0].us + p[1].us > 0 and str(p).startswith("2 launches: ")
    x, y = np.ones((64, 256), np.float32), np.zeros((64, 256), np.float32)
    assert kernel.profile(x, y).us == p.us and (y == 1).all()


def test_symbolic_sizes():
    kernel = tilelang.compile(scale(T.symbolic("n")), out_idx=[1])
    with pytest.raises(tilelang.ArgumentError, match="size n is not known"):
        kernel.profile()
    with pytest.raises(tilelang.ArgumentError, match="no argument 'k'"):
        kernel.profile(k=3)
    few, many = kernel.profile(n=64).us, kernel.profile(n=64000).us
    assert few < many == kernel.profile((64000, 256)).us


def test_bench_tells_the_time_of_the_chip():
    kernel = tilelang.compile(scale(64), out_idx=[1])
    x = np.ones((64, 256), np.float32)
    with pytest.warns(tilelang.TileLangWarning, match="TL1025"):
        ms = do_bench(lambda: (kernel(x), kernel(x)))
    assert ms == pytest.approx(2e-3 * kernel.profile().us) and ms.by == "simulated chip" and ms.host_ms > 0
    assert do_bench(lambda: x.sum(), warmup=0, rep=0).by == "host"
    with pytest.warns(tilelang.TileLangWarning, match="simulated time"):
        assert kernel.get_profiler().do_bench() == pytest.approx(ms / 2)


# ---- kernel.cost(): a lower bound -----------------------------------------------------------------------------------


def both(func, sizes=None, **options):
    kernel = tilelang.compile(func, **options)
    bound, run = kernel.cost(**(sizes or {})), kernel.profile(**(sizes or {}))
    assert 0 < bound["launch_us"] < bound["us"] <= run.us
    assert bound["gm_bytes"] <= run.gm_read_bytes + run.gm_write_bytes
    ratio = {k: v for k, v in bound["pipe_us"].items() if v}
    assert all(v <= run.us for v in ratio.values())
    return bound, run


@pytest.mark.parametrize("shape", [(512, 512, 512), (1000, 777, 300), (128, 4096, 64), (64, 64, 4096)])
@pytest.mark.parametrize("tile", [(128, 128, 64, 2), (64, 128, 32, 1), (128, 256, 64, 2)])
def test_products(shape, tile):
    bound, run = both(gemm(*shape, *tile), out_idx=[2])
    whole = all(s % t == 0 for s, t in zip(shape, tile[:2])) and shape[2] % tile[2] == 0
    if whole:
        assert bound["gm_bytes"] == run.gm_read_bytes + run.gm_write_bytes


@pytest.mark.parametrize("n", [32, 100, 4096, 100000])
def test_elements(n):
    both(scale(n), out_idx=[1])
    both(scale(T.symbolic("n")), {"n": n}, out_idx=[1])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 700)] * 3),
    st.sampled_from([16, 64, 128]),
    st.sampled_from([16, 64, 256]),
    st.sampled_from([16, 32, 128]),
    st.integers(1, 3),
)
def test_no_run_is_faster(shape, bm, bn, bk, stages):
    both(gemm(*shape, bm, bn, bk, stages), out_idx=[2])


def test_a_busy_kernel_is_near_its_bound():
    bound, run = both(gemm(2048, 2048, 2048, 128, 256, 256), out_idx=[2])  # rows of 512 bytes
    assert bound["us"] > 0.4 * run.us


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_before_the_first_one_are_no_riddle(dynamic):
    """How much of a halo is inside: what is subtracted twice cancels, so each byte is counted."""
    n = T.symbolic("n") if dynamic else 96

    @T.prim_func
    def halo(X: T.Tensor((n, 32), "float32"), Y: T.Tensor((n, 32), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as b:
            x = T.alloc_ub((34, 32), "float32")
            for i, j in T.Parallel(34, 32):
                x[i, j] = T.if_then_else(b * 32 + i >= 1, X[b * 32 + i - 1, j], 0.0)
            T.copy(x[1:33, :], Y[b * 32, 0])

    bound, run = both(halo, {"n": 96} if dynamic else None, out_idx=[1])
    assert bound["gm_bytes"] == run.gm_read_bytes + run.gm_write_bytes
