"""What a profile says of kernels that are slow in a known way: the reason, the line, and a price that comes true."""

import inspect
import json

import pytest

import tilelang
import tilelang.language as T

pytest.importorskip("tilelang._core")


def compiled(func, chip="910B2", **options):
    return tilelang.compile(func, chip=chip, **options)


def line_of(func, text):
    """file:line of the first line of a function that holds `text`."""
    lines, first = inspect.getsourcelines(func)
    return f"test_advice.py:{first + next(n for n, x in enumerate(lines) if text in x)}"


def said(profile, text):
    """The one advice that holds `text`."""
    found = [a for a in profile.advice if text in a]
    assert len(found) == 1, profile.advice
    return found[0]


def up_to(advice):
    return float(advice.split("up to ", 1)[1].split()[0])


def rows(width, n=153600):
    """Rows of 128 bytes, a whole sector, out of rows of `width` numbers."""

    @T.prim_func
    def rows(x: T.Tensor((n, width), "float32"), y: T.Tensor((n, 32), "float32")):
        with T.Kernel(n // 200) as b:
            t = T.alloc_ub((200, 32), "float32")
            T.copy(x[b * 200 : (b + 1) * 200, 0:32], t)
            T.copy(t, y[b * 200, 0])

    return compiled(rows)


def elements(vector, n=480):
    @T.prim_func
    def elements(x: T.Tensor((n, 512), "float32"), y: T.Tensor((n, 512), "float32")):
        with T.Kernel(48) as b:
            t = T.alloc_ub((n // 48, 512), "float32")
            T.copy(x[b * (n // 48), 0], t)
            if vector:
                T.tile.mul(t, t, 3.0)
            else:
                for i in T.serial(n // 48):
                    for j in T.serial(512):
                        t[i, j] = t[i, j] * 3.0
            T.copy(t, y[b * (n // 48), 0])

    return compiled(elements)


def tiles(stages, n=16 * 48 * 40):
    """stages 0: a tile a block; else blocks that loop over tiles, so many of them under way."""

    @T.prim_func
    def tiles(x: T.Tensor((n, 128), "float32"), y: T.Tensor((n, 128), "float32")):
        with T.Kernel(48 if stages else n // 16) as b:
            t = T.alloc_ub((16, 128), "float32")
            u = T.alloc_ub((16, 128), "float32")
            for k in T.Pipelined(40 if stages else 1, num_stages=max(stages, 1)):
                T.copy(x[(k * 48 + b) * 16, 0], t)
                T.tile.exp(u, t)
                T.copy(u, y[(k * 48 + b) * 16, 0])

    return compiled(tiles)


def banks(apart):
    @T.prim_func
    def banks(x: T.Tensor((24, 8192), "float32"), y: T.Tensor((24, 8192), "float32")):
        with T.Kernel(24, is_npu=True) as (cid, vid):
            a = T.alloc_ub((8192,), "float32")
            c = T.alloc_ub((8192,), "float32")
            T.annotate_address({a: 0, c: 32768 + apart})
            T.copy(x[cid, :], a)
            for _ in T.serial(64):
                T.tile.add(c, a, a)
                T.tile.max(a, a, c)
            T.copy(a, y[cid, :])

    return compiled(banks)


def small_loads(rows, chip):
    @T.prim_func
    def small_loads(x: T.Tensor((512, 512), "float32"), y: T.Tensor((64, 512), "float32")):
        with T.Kernel(64) as b:
            total = T.alloc_ub((rows, 512), "float32")
            t = T.alloc_ub((rows, 512), "float32")
            T.tile.fill(total, 0.0)
            for k in T.serial(512 // rows):
                T.copy(x[k * rows, 0], t)
                T.tile.add(total, total, t)
            T.copy(total[0, :], y[b, :])

    return compiled(small_loads, chip)


def handshake(K=1024):
    """Cube and vector core hand over each tile and wait for each other."""

    @T.prim_func
    def handshake(
        A: T.Tensor((3072, K), "float16"),
        B: T.Tensor((K, 128), "float16"),
        W: T.Tensor((3072, 128), "float32"),
        O: T.Tensor((3072, 128), "float32"),
    ):
        with T.Kernel(24, is_npu=True) as (cid, vid):
            a, b = T.alloc_L1((128, 64), "float16"), T.alloc_L1((64, 128), "float16")
            c = T.alloc_L0C((128, 128), "float32")
            total, t = T.alloc_ub((64, 128), "float32"), T.alloc_ub((64, 128), "float32")
            with T.Scope("C"):
                for k in T.serial(K // 64):
                    T.copy(A[cid * 128, k * 64], a)
                    T.copy(B[k * 64, 0], b)
                    T.barrier_all()
                    T.gemm_v0(a, b, c, init=True)
                    T.barrier_all()
                    T.copy(c, W[cid * 128, 0])
                    T.set_cross_flag("FIX", 0)
                    T.wait_cross_flag(1)
            with T.Scope("V"):
                T.tile.fill(total, 0.0)
                for k in T.serial(K // 64):
                    T.wait_cross_flag(0)
                    T.copy(W[cid * 128 + vid * 64, 0], t)
                    T.barrier_all()
                    T.tile.add(total, total, t)
                    T.barrier_all()
                    T.set_cross_flag("MTE2", 1)
                T.copy(total, O[cid * 128 + vid * 64, 0])

    return compiled(handshake)


def gemm(M, N, K, bm, bn, bk):
    @T.prim_func
    def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm)) as (bx, by):
            a, b = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return compiled(gemm)


def test_short_rows():
    slow, fast = rows(128).profile(), rows(32).profile()
    text = said(slow, "rows of 128 bytes")
    assert line_of(rows, "T.copy(x") in text
    assert slow.what_if["rows in GM long and aligned"] == pytest.approx(fast.us, rel=0.05) and fast.us < 0.9 * slow.us
    assert not any("use_swizzle" in a for a in slow.advice)  # every byte is read once: no order is better
    assert not any("rows of" in a for a in fast.advice)


def test_single_elements():
    slow, fast = elements(False).profile(), elements(True).profile()
    at = line_of(elements, "t[i, j] = t[i, j] * 3.0")
    assert at in said(slow, "the scalar unit of the vector cores is busy")
    assert f"{slow.lines[0].file}:{slow.lines[0].line}" == at and slow.lines[0].pipe == "vector s"
    statement, pipe, us, times = slow.critical_path[0]
    assert slow.place(statement) == at and pipe == "s" and us > 0.8 * (slow.us - slow.launch_us) and times == 1
    assert slow.copy_only_us < 1.1 * fast.copy_only_us and slow.compute_only_us > 0.9 * slow.us
    assert sum(s["count"] for s in slow.statements if s["pipe"] == "s" and s["busy_us"]) == 480 * 512
    assert not any("scalar unit" in a for a in fast.advice)


def test_many_small_blocks():
    slow, turns, fast = (tiles(stages).profile() for stages in (0, 1, 2))
    price = up_to(said(slow, "starting 1920 blocks on 48 cores"))
    assert price <= slow.overhead_us and 0.5 * price < slow.us - fast.us < 1.2 * price
    assert not any("starting" in a for a in fast.advice) and slow.us > turns.us > fast.us
    waits = said(turns, line_of(tiles, "T.copy(x") + ": `wait_flag")
    assert f"one more stage in T.Pipelined makes it {fast.us:.1f} us" in waits


def test_bank_conflicts():
    slow, fast = banks(0).profile(), banks(256).profile()
    text = said(slow, "bank conflicts in UB cost")
    assert line_of(banks, "T.tile.max") in text
    assert slow.what_if["no UB bank conflicts"] == pytest.approx(fast.us, rel=0.02) and fast.us < 0.9 * slow.us
    assert not any("bank" in a for a in fast.advice)


def test_small_transfers():
    slow, fast = (small_loads(n, "950PR_958x").profile() for n in (1, 8))
    text = said(slow, "moves 2048 bytes at a time")
    assert line_of(small_loads, "T.copy(x") in text
    price = up_to(text)
    assert 0.7 * price < slow.us - fast.us < 1.3 * price


def test_waiting_for_the_other_side():
    p = handshake().profile()
    text = said(p, "the busiest pipe, waits")
    assert "the other side" in text and line_of(handshake, "T.wait_cross_flag(1)") in text
    assert sum(us for _, _, us, _ in p.critical_path) > 0.7 * (p.us - p.launch_us)


def test_tails_and_tiles():
    slow, fast = gemm(136, 3072, 256, 128, 128, 64).profile(), gemm(136, 3072, 256, 144, 128, 64).profile()
    text = said(slow, "full, the rest is tail")
    assert "53 % full" in text and line_of(gemm, "T.copy(A") in text and fast.us < slow.us
    small, large = gemm(512, 512, 256, 32, 32, 32).profile(), gemm(512, 512, 256, 128, 128, 32).profile()
    assert "its accumulators use 4096 of 131072 bytes" in said(small, "cube waits for copies")
    assert large.us < 0.5 * small.us


@pytest.mark.parametrize(
    "kernel",
    [lambda: rows(128), lambda: elements(False), lambda: tiles(0), handshake,
     lambda: gemm(640, 128, 256, 128, 128, 64), lambda: gemm(256, 256, 128, 32, 32, 32),
     lambda: small_loads(1, "950PR_958x")],
)  # fmt: skip
def test_figures_of_slow_kernels(kernel):
    """No question that takes costs away makes it slower; nothing beats the roofline; the path fits into the time."""
    p = kernel().profile()
    assert all(us <= p.us for question, us in p.what_if.items() if "stage" not in question)
    assert 0 < p.overhead_us <= min(p.compute_only_us, p.copy_only_us) <= max(p.compute_only_us, p.copy_only_us) <= p.us
    assert 0 <= p.overlap <= 1 and p.hbm_moved_bytes <= p.hbm_read_bytes + p.hbm_write_bytes
    r = p.roofline
    assert r["achieved"] <= 1.001 * min(r["compute_peak"], r["memory_peak"])
    path = sum(us for _, _, us, _ in p.critical_path)
    assert 0.5 * (p.us - p.overhead_us) < path <= p.us + 1e-3
    for side in ("cube", "vector"):
        busy = sum(c["busy_us"]["s"] for c in p.cores if c["kind"] == side)
        mine = [s for s in p.statements if s["side"] == side]
        told = sum(s["scalar_us"] + (s["busy_us"] if s["pipe"] == "s" else 0) for s in mine)
        assert told == pytest.approx(busy, rel=0.02, abs=0.05)  # what S does is a statement's
    assert json.loads(json.dumps(p.to_dict()))["overhead_us"] == p.overhead_us and "neither" in str(p)


def test_twice_the_hits_of_a_tensor_read_by_some():
    """Some cores read it from HBM, others from L2: twice the hits are never slower."""
    p = gemm(640, 128, 256, 128, 128, 64).profile()
    us = p.what_if["twice the share of hits in L2"]
    assert p.what_if["every read in L2"] <= us <= p.us


def test_nothing_to_do():
    n = T.symbolic("n")

    @T.prim_func
    def nothing(x: T.Tensor((n, 64), "float32"), y: T.Tensor((n, 64), "float32")):
        with T.Kernel(n) as b:
            t = T.alloc_ub((64,), "float32")
            T.copy(x[b, :], t)
            T.copy(t, y[b, :])

    p = compiled(nothing).profile(n=0)
    assert (p.blocks, p.us, p.advice, p.lines) == (0, 0, [], []) and "0 blocks" in str(p)


def test_launches_have_figures_and_views(tmp_path):
    @T.prim_func
    def two(x: T.Tensor((7680, 512), "float32"), y: T.Tensor((7680, 512), "float32")):
        with T.Kernel(480) as b:
            t = T.alloc_ub((16, 512), "float32")
            T.copy(x[b * 16, 0], t)
            T.copy(t, y[b * 16, 0])
        with T.Kernel(4) as b:
            t = T.alloc_ub((64, 512), "float32")
            for k in T.serial(30):
                T.copy(y[b * 1920 + k * 64, 0], t)
                T.tile.exp(t, t)
                T.copy(t, y[b * 1920 + k * 64, 0])

    kernel = compiled(two)
    p, bound = kernel.profile(), kernel.cost()
    assert 2 * 1.8 < bound["us"] <= p.us and bound["blocks"] == 484 and bound["gm_bytes"] == 4 * 7680 * 512 * 4
    assert p.gm_read_bytes == 2 * 7680 * 512 * 4 and p.cycles == p[0].cycles + p[1].cycles
    assert 0 < p.pipe_ratio["vector"] < p[1].pipe_ratio["vector"] and 0 <= p.l2_hit <= 1
    assert p.us == pytest.approx(p[0].us + p[1].us) and len(p.lines) == len(p[0].lines) + len(p[1].lines)
    assert any(a.startswith("two: 44 of 48 cores") for a in p.advice)
    assert json.loads(json.dumps(p.to_dict()))["launches"][1]["us"] == p[1].us
    spans = [e for e in json.load(open(p.save_trace(tmp_path / "t.json")))["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(p[0].events) + len(p[1].events) and max(e["ts"] for e in spans) > p[0].us
    assert "2 launches" in open(p.save_html(tmp_path / "t.html")).read()
    with pytest.raises(AttributeError, match="2 launches have no attribute 'roofline'"):
        _ = p.roofline


def softmaxes(blocks, rows=16):
    @T.prim_func
    def softmaxes(x: T.Tensor((blocks * rows, 1024), "float32"), y: T.Tensor((blocks * rows, 1024), "float32")):
        with T.Kernel(blocks) as b:
            t = T.alloc_ub((rows, 1024), "float32")
            total = T.alloc_ub((rows, 1), "float32")
            T.copy(x[b * rows, 0], t)
            T.tile.exp(t, t)
            T.reduce_sum(t, total, dim=-1)
            for i, j in T.Parallel(rows, 1024):
                t[i, j] = t[i, j] / total[i, 0]
            T.copy(t, y[b * rows, 0])

    return compiled(softmaxes)


def test_last_turn_of_blocks():
    """What an even number of turns would win, by the price of a turn of all cores."""
    slow, fast = softmaxes(100).profile(), softmaxes(96).profile()
    price = up_to(said(slow, "100 blocks on 48 cores are 3 waves"))
    assert 0.85 * price < slow.us - fast.us < 1.15 * price
    assert not any("waves" in a for a in fast.advice)


def turns(blocks, times=40):
    @T.prim_func
    def turns(x: T.Tensor((blocks * times * 32, 512), "float32"), y: T.Tensor((blocks * times * 32, 512), "float32")):
        with T.Kernel(blocks) as b:
            t = T.alloc_ub((32, 512), "float32")
            for i in T.serial(times):
                T.copy(x[(b * times + i) * 32, 0], t)
                T.copy(t, y[(b * times + i) * 32, 0])

    return compiled(turns)


def test_idle_cores():
    """Copies of 16 cores are not three times as fast on 48: HBM is the same."""
    slow, fast = turns(16).profile(), turns(48).profile()
    assert "32 of 48 cores get no block" in said(slow, "get no block")
    work = fast.us - fast.launch_us  # three times the work
    assert slow.spread_us() - slow.launch_us * 3 == pytest.approx(work / 3, rel=0.05)
    assert not any("get no block" in a for a in fast.advice)
