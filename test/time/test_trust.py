"""Can the cycles be believed: closed formulas, edges, monotonicity, nothing lost, the same in every run.

Kernels are lowered text of one or two instructions, so that what must come out can be said in a line. Constants are set
to round numbers, so that the tests hold whatever the fitted ones are.
"""

import json

import numpy as np
import pytest

from tilelang import _core
from tilelang.profiler.profile import EVENT

# round numbers: at 1800 MHz, 1 GB/s is 1/1.8 bytes a cycle
ROUND = {
    "launch_ns": 1000, "core_ns": 0, "fetch_ns": 0, "fix_odd": 4, "place_pieces": 1000, "dispatch_ns": 0,
    "block_ns": 0, "hbm_gbps": 1800, "l2_gbps": 7200,
    "part_pieces": 1000, "hbm_piece": 0, "hbm_latency": 100, "l2_latency": 50, "dma_head": 10, "l1_head": 14,
    "ub_bus": 64, "ub_row": 2, "ub_miss_bus": 32, "l1_bus": 128, "l1_row": 2, "l1_miss_bus": 32, "miss_row": 2,
    "out_bus": 32,
    "out_row": 2, "flag": 8, "issue": 0, "scalar_op": 0, "mmad_head": 10, "mmad_tail": 50, "l0_head": 20,
    "l0a_bus": 256, "l0b_bus": 128, "fix_head": 10, "fix_bus": 64, "cross_flag": 300, "sync_all": 1000,
    "l1_write_slow": 0, "l1_read_slow": 0, "pair_asks": 2, "l2_uneven": 0, "granule": 512, "v_start": 0,
}
MHZ = 1800
MISS = ROUND["l2_latency"] + ROUND["hbm_latency"]


def program(text):
    p = _core.Program()
    assert p.load("k.tl", text) and p.lower(), p.diags_text()
    return p


def kernel(params, grid, side, allocs, body, chip="910B2"):
    lines = "".join(f"  alloc {a} @1:1\n" for a in allocs) + f"  {side} {{\n"
    lines += "".join(f"    {s} @{n}:1\n" for n, s in enumerate(body, 2)) + "  } @1:1\n"
    return f'tl 1\nfile "k.py"\nkernel @k({params}) grid({grid}) lowered("{chip}", {side}) {{\n{lines}}}\n'


def timed(p, shapes, timeline=False, constants=None, **options):
    text = ",".join(f"{k}={v}" for k, v in {**ROUND, **(constants or {})}.items())
    ok, result = p.time([(0, s) for s in shapes], constants=text, timeline=timeline, **options)
    assert ok, p.diags_text()
    return result, json.loads(p.time_json())


def cycles(p, shapes, **options):
    """From the start of the kernel to its end, in cycles."""
    result, _ = timed(p, shapes, **options)
    return result["ticks"] / 256 - ROUND["launch_ns"] * MHZ / 1000


def busy(j, pipe):
    return sum(x["busy_us"] for x in j["pipes"] if x["pipe"] == pipe) * MHZ


# ---- formulas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, cols", [(1, 2048), (16, 512), (64, 64), (8, 8)])
def test_load_alone(rows, cols):
    """head + rows of max(row, bytes / bus), from HBM at most at the miss rate, then the latency."""
    p = program(kernel(f"%A: gm f32[{rows}, {2 * cols}]", "%b: 1", "vector", [f"%u: ub f32[{rows}, {cols}] at 0"],
                       [f"gm_to_ub %A[0 +: {rows}, 0 +: {cols}] -> %u"]))
    row = max(ROUND["miss_row"], 4 * cols / ROUND["ub_miss_bus"], ROUND["ub_row"], 4 * cols / ROUND["ub_bus"])
    expected = ROUND["dma_head"] + rows * row + MISS
    assert cycles(p, [(rows, 2 * cols)]) == pytest.approx(expected, rel=0.12 if 4 * cols < 128 else 0.001, abs=1)
    hit = ROUND["dma_head"] + rows * max(ROUND["ub_row"], 4 * cols / ROUND["ub_bus"]) + ROUND["l2_latency"]
    assert cycles(p, [(rows, 2 * cols)], l2_all_hit=True) == pytest.approx(hit, rel=0.001, abs=1)


@pytest.mark.parametrize("rows, cols", [(1, 2048), (16, 512)])
def test_store_alone(rows, cols):
    p = program(kernel(f"%A: gm f32[{rows}, {2 * cols}] out", "%b: 1", "vector", [f"%u: ub f32[{rows}, {cols}] at 0"],
                       [f"ub_to_gm %u -> %A[0 +: {rows}, 0 +: {cols}]"]))
    expected = ROUND["dma_head"] + rows * 4 * cols / ROUND["out_bus"]
    assert cycles(p, [(rows, 2 * cols)]) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("what, constant", [("hbm", "hbm_gbps"), ("l2", "l2_gbps")])
def test_all_cores_reach_the_peak(what, constant):
    """48 cores that read at once get the bandwidth of the chip, no more, when their own paths would take more."""
    rows, cols = 48, 16384
    body = [f"gm_to_ub %A[%b +: 1, 0 +: {cols}] -> %u"]
    p = program(kernel(f"%A: gm f32[{rows}, {cols}]", "%b: 48", "vector", [f"%u: ub f32[1, {cols}] at 0"], body))
    wide = {"ub_bus": 4096, "ub_miss_bus": 4096, "ub_row": 0, "miss_row": 0}
    n = cycles(p, [(rows, cols)], constants=wide, l2_all_hit=what == "l2")
    latency = MISS if what == "hbm" else ROUND["l2_latency"]
    expected = rows * cols * 4 / (ROUND[constant] * 1000 / MHZ)
    assert n == pytest.approx(ROUND["dma_head"] + expected + latency, rel=0.001)


@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (128, 256, 64), (32, 48, 128)])
def test_cube_formula(m, n, k):
    allocs = [f"%a: l0a f16[{m}, {k}] zz at 0", f"%b0: l0b f16[{k}, {n}] zn at 0", f"%c: l0c f32[{m}, {n}] nz at 0"]
    one = ["mmad %a, %b0 -> %c init(true)"]
    fractals = -(-m // 16) * -(-n // 16) * -(-k // 16)
    each = ROUND["mmad_head"] + fractals
    for times in (1, 3):  # the tail shows once: the next one runs meanwhile
        p = program(kernel("", "%b: 1", "cube", allocs, one * times))
        assert cycles(p, []) == pytest.approx(times * each + ROUND["mmad_tail"], abs=1)


@pytest.mark.parametrize("op, slope, head", [("add %x, %y -> %z", 1, 22), ("exp %x -> %z", 2, 31)])
def test_vector_formula(op, slope, head):
    """A repeat is 256 bytes; the operands stand in different bank groups."""
    n = 4096
    allocs = [f"%x: ub f32[{n}] at 0", f"%y: ub f32[{n}] at {0x10100}", f"%z: ub f32[{n}] at {0x20000}"]
    p = program(kernel("", "%b: 1", "vector", allocs, [op]))
    assert cycles(p, []) == pytest.approx(head + slope * n * 4 / 256, abs=1)


def test_bank_conflict():
    """Two inputs in one bank group: a cycle more a repeat, and the what-if takes it away."""
    n = 4096
    allocs = [f"%x: ub f32[{n}] at 0", f"%y: ub f32[{n}] at {0x4000}", f"%z: ub f32[{n}] at {0x20000}"]
    p = program(kernel("", "%b: 1", "vector", allocs, ["add %x, %y -> %z"]))
    free = cycles(p, [], no_bank_conflicts=True)
    assert cycles(p, []) - free == pytest.approx(n * 4 / 256, abs=1)


# ---- edges ----------------------------------------------------------------------------------------------------------


def events(p):
    names = ("core", "statement", "cause", "pipe", "start", "end")
    return [dict(zip(names, e)) | {"pipe": e[3].decode()} for e in np.frombuffer(p.time_events(), EVENT).tolist()]


def test_flag_edge():
    """What waits for a flag begins `flag` cycles after the setter is complete: not before, and not after."""
    allocs = ["%u: ub f32[1, 1024] at 0", f"%v: ub f32[1, 1024] at {0x10100}"]
    body = ["gm_to_ub %A -> %u", "set_flag mte2 -> v #0", "wait_flag mte2 -> v #0", "exp %u -> %v"]
    p = program(kernel("%A: gm f32[1, 1024]", "%b: 1", "vector", allocs, body))
    timed(p, [(1, 1024)], timeline=True)
    load, exp = events(p)
    assert (exp["start"] - load["end"]) * MHZ == pytest.approx(ROUND["flag"], abs=0.02)
    assert exp["cause"] == 0


def test_barrier_waits_for_all_pipes():
    allocs = ["%u: ub f32[1, 1024] at 0", f"%v: ub f32[1, 1024] at {0x10100}"]
    body = ["gm_to_ub %A -> %u", "barrier all", "exp %v -> %v"]
    p = program(kernel("%A: gm f32[1, 1024]", "%b: 1", "vector", allocs, body))
    timed(p, [(1, 1024)], timeline=True)
    load, exp = events(p)
    assert exp["start"] * MHZ == pytest.approx(load["end"] * MHZ, abs=0.02)


def test_queue_holds_so_many():
    """32 places: the 33rd instruction is issued when the first begins, and S counts the wait."""
    body = ["gm_to_ub %A -> %u", "set_flag mte2 -> v #0", "wait_flag mte2 -> v #0"] + ["exp %v -> %v"] * 40
    p = program(kernel("%A: gm f32[1, 1024]", "%b: 1", "vector",
                       ["%u: ub f32[1, 1024] at 0", "%v: ub f32[64] at 65536"], body))
    _, j = timed(p, [(1, 1024)])
    s = next(x for x in j["pipes"] if x["pipe"] == "s")
    first_free = ROUND["dma_head"] + 4096 / ROUND["ub_miss_bus"] + MISS + ROUND["flag"]
    each = 31 + 2  # one repeat of exp
    assert s["idle_us"]["queue"] * MHZ == pytest.approx(first_free + 7 * each, abs=1)  # 1 wait + 40 - 32 - 1


@pytest.mark.parametrize("blocks, waves", [(48, 1), (49, 2), (96, 2), (97, 3)])
def test_blocks_come_in_waves(blocks, waves):
    p = program(kernel("", f"%b: {blocks}", "vector", ["%v: ub f32[64] at 0"], ["exp %v -> %v"]))
    assert cycles(p, []) == pytest.approx(waves * 33, abs=1)


# ---- properties -----------------------------------------------------------------------------------------------------

PIPELINE = kernel(
    "%A: gm f16[384, 4096], %C: gm f16[384, 4096] out", "%b: 24", "vector",
    ["%u: ub f16[16, 512] at 0", "%w: ub f16[16, 512] at 81920"],
    ["set_flag v -> mte2 #0", "set_flag mte3 -> v #0"]
    + [line for i in range(8) for line in (
        "wait_flag v -> mte2 #0", f"gm_to_ub %A[%b * 16 +: 16, {512 * i} +: 512] -> %u", "set_flag mte2 -> v #0",
        "wait_flag mte2 -> v #0", "wait_flag mte3 -> v #0", "exp %u -> %w", "set_flag v -> mte2 #0",
        "set_flag v -> mte3 #0", "wait_flag v -> mte3 #0",
        f"ub_to_gm %w -> %C[%b * 16 +: 16, {512 * i} +: 512]", "set_flag mte3 -> v #0")]
    + ["wait_flag v -> mte2 #0", "wait_flag mte3 -> v #0"],
)  # fmt: skip
SHAPES = [(384, 4096), (384, 4096)]


def test_nothing_is_lost():
    """busy + idle = the time of the kernel, on every pipe of every core."""
    p = program(PIPELINE)
    result, j = timed(p, SHAPES)
    assert len(j["cores"]) == 24
    for core in j["cores"]:
        for pipe, us in core["busy_us"].items():
            assert us + sum(core["idle_us"][pipe].values()) == pytest.approx(result["us"], abs=0.001)
    assert j["gm_read_bytes"] == j["gm_write_bytes"] == 384 * 4096 * 2
    assert sum(s["gm_bytes"] for s in j["statements"]) == 2 * 384 * 4096 * 2


@pytest.mark.parametrize("option", ["hbm_factor", "l2_factor"])
def test_more_bandwidth_is_never_slower(option):
    p = program(PIPELINE)
    times = [cycles(p, SHAPES, **{option: f}) for f in (0.25, 0.5, 1.0, 2.0, 4.0)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", sorted(ROUND))
def test_no_cost_is_negative(name):
    """A larger latency or overhead is never faster, a wider bus never slower."""
    p = program(PIPELINE)
    wider = name.endswith(("_bus", "_gbps", "_pieces"))
    low, high = (cycles(p, SHAPES, constants={name: f * ROUND[name] + (f > 1)}) for f in (1.0, 3.0))
    if name == "launch_ns":
        return  # not part of the kernel's own time
    assert high <= low + 1 if wider else high >= low - 1


@pytest.mark.parametrize(
    "option",
    ["no_bank_conflicts", "free_flags", "compute_only", "copy_only", "l2_all_hit", "long_rows", "no_latency"],
)
def test_what_if_is_never_slower(option):
    p = program(PIPELINE)
    assert cycles(p, SHAPES, **{option: True}) <= cycles(p, SHAPES)


ROWS = """tl 1
file "k.py"
kernel @k(%A: gm f16[4096, 2048], %C: gm f16[4096, 512] out) grid(%b: 16) lowered("CHIP", vector) {
  alloc %u: ub f16[256, COLS] at 0 @1:1
  vector {
    for %r in 0..2 {
      for %j in 0..PIECES {
        gm_to_ub %A[%b * 256 +: 256, %j * 2 * COLS +: COLS] -> %u @2:1
        set_flag mte2 -> mte3 #0 @3:1
        wait_flag mte2 -> mte3 #0 @4:1
        ub_to_gm %u -> %C[%b * 256 +: 256, 0 +: COLS] @5:1
        set_flag mte3 -> mte2 #0 @6:1
        wait_flag mte3 -> mte2 #0 @7:1
      } @2:1
    } @2:1
  } @1:1
}
"""


@pytest.mark.parametrize("chip", ["910B2", "950PR_958x"])
@pytest.mark.parametrize("cols", [16, 32, 64, 112, 128, 256])
def test_more_hits_are_never_slower(chip, cols):
    """As the chip's own constants have it, for rows that are pieces of lines, aligned or not, half of them reread."""
    text = ROWS.replace("CHIP", chip).replace("COLS", str(cols)).replace("PIECES", str(min(1024 // cols, 16)))
    p, shapes = program(text), [(4096, 2048), (4096, 512)]

    def us(**options):
        ok, result = p.time([(0, s) for s in shapes], **options)
        assert ok, p.diags_text()
        return result["us"]

    as_it_is = us()
    assert all(us(miss_factor=f) <= as_it_is for f in (0.75, 0.5, 0.1)) and us(l2_all_hit=True) <= as_it_is


def test_extremes_bound_the_time():
    """The kernel takes at least as long as its compute alone and its copies alone, and no longer than both in turn."""
    p = program(PIPELINE)
    compute, copy, real = (cycles(p, SHAPES, **o) for o in ({"compute_only": True}, {"copy_only": True}, {}))
    assert max(compute, copy) <= real <= compute + copy + 200


def test_removing_a_flag_is_never_later():
    """Without the wait of the vector unit for the store before, the kernel is wrong, but not slower."""
    text = PIPELINE.replace("wait_flag mte3 -> v #0", "barrier v").replace("set_flag mte3 -> v #0", "barrier mte3")
    assert cycles(program(text), SHAPES) <= cycles(program(PIPELINE), SHAPES)


def test_same_bytes_every_time():
    p, q = program(PIPELINE), program(PIPELINE)
    for timeline in (False, True):
        timed(p, SHAPES, timeline=timeline)
        timed(q, SHAPES, timeline=timeline)
        assert p.time_json() == q.time_json()
        assert p.time_events() == q.time_events()


def test_second_read_hits():
    """L2: the second read of a tensor hits, unless more than L2 holds was read between."""
    def read(megabytes):
        rows = megabytes * 16  # 64 KiB each
        load = "gm_to_ub %A[%i +: 1, 0 +: 16384] -> %u"
        text = kernel(f"%A: gm f32[{rows}, 16384]", "%b: 1", "vector", ["%u: ub f32[1, 16384] at 0"], [load])
        loop = f"for %r in 0..2 {{ for %i in 0..{rows} {{ {load} @2:1 }} @2:1 }}"
        return timed(program(text.replace(load, loop)), [(rows, 16384)])[0]["l2_hit"]

    assert read(64) == pytest.approx(0.5, abs=0.001)
    assert read(256) == 0


def test_half_of_the_misses():
    """miss_factor: so many of the transfers that miss hit after all, and it is faster. 192 transfers are whole ones."""
    p = program(PIPELINE)
    times = [timed(p, SHAPES, miss_factor=f)[0] for f in (0.0, 0.5, 0.01)]  # 0: as it is
    assert [t["l2_hit"] for t in times] == pytest.approx([0, 0.5, 0.99], abs=1 / 192)
    assert times[0]["us"] > times[1]["us"] > times[2]["us"]


def test_no_blocks():
    p = program(kernel("%n: i32", "%b: %n", "vector", ["%v: ub f32[64] at 0"], ["exp %v -> %v"]))
    ok, result = p.time([0])
    assert ok and result["us"] == 0 and json.loads(p.time_json())["cores"] == []
    assert p.time_text().startswith("@k on 910B2: 0.00 us")


def test_warm_l2():
    p = program(PIPELINE)
    assert timed(p, SHAPES)[0]["l2_hit"] == 0
    assert timed(p, SHAPES, l2_warm=True)[0]["l2_hit"] == 1
    assert cycles(p, SHAPES, l2_warm=True) < cycles(p, SHAPES)


def inner(op):
    """A cube program of one instruction between the memories of the core, and its cycles alone."""
    m, n, k = 64, 64, 64
    a, b = f"%a: l1 f16[{m}, {k}] nz at 0", f"%b0: l1 f16[{k}, {n}] nz at 16384"
    a0, b0 = f"%a0: l0a f16[{m}, {k}] zz at 0", f"%b1: l0b f16[{k}, {n}] zn at 0"
    c, c1 = f"%c: l0c f32[{m}, {n}] nz at 0", f"%c1: l1 f16[{m}, {n}] nz at 32768"
    return {
        "l1_to_l0a": ([a, a0], "l1_to_l0a %a -> %a0", ROUND["l0_head"] + m * k * 2 / ROUND["l0a_bus"]),
        "l1_to_l0b": ([b, b0], "l1_to_l0b %b0 -> %b1", ROUND["l0_head"] + k * n * 2 / ROUND["l0b_bus"]),
        "l0c_to_l1": ([c, c1], "l0c_to_l1 %c -> %c1", ROUND["fix_head"] + m * n / 64),
    }[op]


@pytest.mark.parametrize("op", ["l1_to_l0a", "l1_to_l0b", "l0c_to_l1"])
def test_inside_the_core(op):
    allocs, statement, expected = inner(op)
    p = program(kernel("", "%b: 1", "cube", allocs, [statement]))
    assert cycles(p, [], constants={"fix_l1_elems": 64}) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("rows, cols", [(64, 64), (16, 512)])
def test_load_to_l1_alone(rows, cols):
    """From HBM and from L2: head, the slower of rows and bytes, the latency."""
    p = program(kernel(f"%A: gm f16[{rows}, {4 * cols}]", "%b: 1", "cube", [f"%t: l1 f16[{rows}, {cols}] nz at 0"],
                       [f"gm_to_l1 %A[0 +: {rows}, 0 +: {cols}] -> %t"]))  # fmt: skip
    hit = ROUND["l1_head"] + rows * max(ROUND["l1_row"], 2 * cols / ROUND["l1_bus"]) + ROUND["l2_latency"]
    miss = ROUND["l1_head"] + rows * max(ROUND["miss_row"], 2 * cols / ROUND["l1_miss_bus"]) + MISS
    assert cycles(p, [(rows, 4 * cols)], l2_all_hit=True) == pytest.approx(hit, rel=0.001, abs=1)
    assert cycles(p, [(rows, 4 * cols)]) == pytest.approx(miss, rel=0.001, abs=1)


def test_store_of_the_cube_alone():
    allocs = ["%c: l0c f32[64, 64] nz at 0"]
    p = program(kernel("%C: gm f32[64, 64] out", "%b: 1", "cube", allocs, ["l0c_to_gm %c -> %C"]))
    assert cycles(p, [(64, 64)]) == pytest.approx(ROUND["fix_head"] + 64 * 64 * 4 / ROUND["fix_bus"], abs=1)


PIECES = kernel("%A: gm f16[4096, 512]", "%b: 24", "cube", ["%t: l1 f16[128, 64] nz at 0"],
                ["gm_to_l1 %A[%b * 128 +: 128, 0 +: 64] -> %t"])  # fmt: skip


@pytest.mark.parametrize("mib, parts", [(64, 1), (1, 3)])
def test_pieces_of_one_part_of_l2(mib, parts):
    """24 cores read 128 pieces of lines each, 128 KiB apart: what one part gives serves them all; three parts of a MiB
    (8 cores each) give three times as much."""
    p = program(PIECES)
    slow = {"part_pieces": 0.5, "part_bytes": mib << 20}
    n = cycles(p, [(4096, 512)], constants=slow, l2_all_hit=True)
    assert n == pytest.approx(ROUND["l1_head"] + 24 * 128 / 0.5 / parts + ROUND["l2_latency"], rel=0.01)


@pytest.mark.parametrize("gives", [5, 7, 13])
def test_a_part_of_l2_that_serves_some_but_not_all(gives):
    """24 cores read pieces of one part, 12 of them fewer: while all ask, each gets a 24th of what it gives, then a
    12th; never more than its path takes."""
    rows = "+: 32 + %b // 12 * 96"
    p = program(kernel("%A: gm f16[4096, 512]", "%b: 24", "cube", ["%t: l1 f16[128, 64] nz at 0"],
                       [f"gm_to_l1 %A[%b * 128 {rows}, 0 +: 64] -> %t[0 {rows}, 0 +: 64]"]))  # fmt: skip
    n = cycles(p, [(4096, 512)], constants={"part_pieces": gives, "granule": 128}, l2_all_hit=True)
    expected = 32 * max(24 / gives, ROUND["l1_row"]) + 96 * max(12 / gives, ROUND["l1_row"])
    assert n == pytest.approx(ROUND["l1_head"] + expected + ROUND["l2_latency"], rel=0.001)


@pytest.mark.parametrize("same", [True, False])
def test_lines_of_one_place_of_l2(same):
    """24 cores read 128 whole lines each: the same ones come so many a cycle, others as fast as their path takes."""
    p = program(kernel("%A: gm f16[4096, 512]", "%b: 24", "cube", ["%t: l1 f16[128, 256] nz at 0"],
                       [f"gm_to_l1 %A[{0 if same else '%b * 128'} +: 128, 0 +: 256] -> %t"]))  # fmt: skip
    n = cycles(p, [(4096, 512)], constants={"place_pieces": 2}, l2_all_hit=True)
    lines = 24 * 128 / 2 if same else 128 * 512 / ROUND["l1_bus"]
    assert n == pytest.approx(ROUND["l1_head"] + lines + ROUND["l2_latency"], rel=0.01)


@pytest.mark.parametrize("side, blocks, pairs", [("cube", 5, 5), ("vector", 5, 3), ("vector", 48, 24)])
def test_launch_of_more_cores(side, blocks, pairs):
    """So much for each core, then for each cube core or pair of vector cores that fetch the same code."""
    body, allocs = (["add %u, 1 -> %u"], ["%u: ub f32[64] at 0"]) if side == "vector" else (["barrier all"], [])
    p = program(kernel("", f"%b: {blocks}", side, allocs, body))
    plain, _ = timed(p, [])
    later, j = timed(p, [], constants={"core_ns": 100, "fetch_ns": 200})
    assert later["us"] - plain["us"] == pytest.approx((100 * blocks + 200 * pairs) * 1e-3, abs=0.001)
    assert j["launch_us"] == pytest.approx((ROUND["launch_ns"] + 100 * blocks + 200 * pairs) * 1e-3, abs=0.001)
    assert j["cores"][0]["start_us"] == pytest.approx((ROUND["launch_ns"] + 100 * blocks) * 1e-3, abs=0.001)


def test_rows_of_the_cube_that_are_not_whole_sectors():
    allocs = ["%c: l0c f32[64, 64] nz at 0"]
    p = program(kernel("%C: gm f32[64, 63] out", "%b: 1", "cube", allocs,
                       ["l0c_to_gm %c[0 +: 64, 0 +: 63] -> %C"]))  # fmt: skip
    expected = ROUND["fix_head"] + 64 * 63 * 4 / ROUND["fix_bus"] + 64 * ROUND["fix_odd"]
    assert cycles(p, [(64, 63)]) == pytest.approx(expected, abs=1)


def test_only_the_first_blocks():
    p = program(kernel("", "%b: 100", "vector", ["%u: ub f32[64] at 0"], ["add %u, 1 -> %u"]))
    whole, turn = timed(p, [])[0], timed(p, [], blocks=48)[0]
    assert turn["blocks"] == 48 and whole["blocks"] == 100 and turn["us"] < whole["us"]
    assert timed(p, [], blocks=1000)[0]["us"] == whole["us"]


@pytest.mark.parametrize("asks", [1, 2])
def test_two_vector_cores_ask_as_one(asks):
    """48 cores read the same 128 pieces of lines: for pair_asks = 1, 24 requests share what the part gives."""
    p = program(kernel("%A: gm f16[128, 512]", "%b: 48", "vector", ["%u: ub f16[1, 128, 64] at 0"],
                       ["gm_to_ub %A[0 +: 128, 0 +: 64] -> %u[0, 0 +: 128, 0 +: 64]"]))  # fmt: skip
    n = cycles(p, [(128, 512)], constants={"part_pieces": 0.5, "pair_asks": asks}, l2_all_hit=True)
    assert n == pytest.approx(ROUND["dma_head"] + 24 * asks * 128 / 0.5 + ROUND["l2_latency"], rel=0.01)


@pytest.mark.parametrize("granule", [128, 512])
def test_granule_of_l2(granule):
    """Pieces of 128 bytes cost L2 a granule each."""
    p = program(kernel("%A: gm f16[6144, 512]", "%b: 48", "vector", ["%u: ub f16[1, 128, 64] at 0"],
                       ["gm_to_ub %A[%b * 128 +: 128, 0 +: 64] -> %u[0, 0 +: 128, 0 +: 64]"]))  # fmt: skip
    wide = {"ub_bus": 4096, "ub_row": 0, "granule": granule}
    n = cycles(p, [(6144, 512)], constants=wide, l2_all_hit=True)
    expected = 48 * 128 * granule / (ROUND["l2_gbps"] * 1000 / MHZ)
    assert n == pytest.approx(ROUND["dma_head"] + expected + ROUND["l2_latency"], rel=0.001)


def test_written_bytes_go_while_hbm_is_idle():
    """What is written twice as much as L2 holds goes to HBM; a store waits for that unless HBM had time before."""
    def cycles_a_store(times):
        rows = 384 * 16
        store = "ub_to_gm %u -> %A[%i +: 1, 0 +: 16384]"
        text = kernel(f"%A: gm f32[{rows}, 16384] out", "%b: 1", "vector",
                      ["%u: ub f32[1, 16384] at 0", "%v: ub f32[8192] at 131072"], [store])
        idle = f"for %w in 0..{times} {{ exp %v -> %v @2:1 }} @2:1 barrier all @2:1" if times else "barrier all @2:1"
        loop = f"for %i in 0..{rows} {{ {idle} {store} @2:1 }}"
        _, j = timed(program(text.replace(store, loop)), [(rows, 16384)], constants={"hbm_gbps": 10}, l2_warm=True)
        return busy(j, "mte3") / rows

    own, to_hbm = 65536 / ROUND["out_bus"] + ROUND["dma_head"], 65536 / (10 * 1000 / MHZ)
    assert 0.8 * to_hbm < cycles_a_store(0) < to_hbm + own
    assert cycles_a_store(60) == pytest.approx(own, rel=0.01)


CROSS = """tl 1
file "k.py"
kernel @k(%A: gm f32[64, 64] out) grid(%b: 1) vid(%v) lowered("910B2", mix) {
  alloc %c: l0c f32[64, 64] nz at 0 @1:1
  alloc %u: ub f32[64, 64] at 0 @1:1
  cube {
    l0c_to_gm %c -> %A @2:1
    cross_set fix #0 mode(2) @3:1
  } @1:1
  vector {
    cross_wait mte2 #0 @4:1
    gm_to_ub %A -> %u @5:1
  } @1:1
}
"""


@pytest.mark.parametrize("latency", [0, 300, 5000])
def test_cross_flag_edge(latency):
    """What waits for the other side begins when its store is complete and the flag has come: not before, not after."""
    p = program(CROSS)
    timed(p, [(64, 64)], timeline=True, constants={"cross_flag": latency})
    found = events(p)
    store = next(e for e in found if e["pipe"] == "fix")
    loads = [e for e in found if e["pipe"] == "mte2"]
    assert len(loads) == 2
    for load in loads:
        assert (load["start"] - store["end"]) * MHZ == pytest.approx(latency, abs=0.02)
