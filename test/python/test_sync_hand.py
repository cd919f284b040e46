"""Flags and barriers written by hand that order nothing are named in explain(), with what they hold up."""

import json
import pathlib
import re

import tilelang
import tilelang.language as T
from tilelang import _core
from tilelang.profiler.profile import SPARE

TEXT = """tl 1
file "k.py"
kernel @k(%X: gm f32[512], %Y: gm f32[512] out) grid(%bx: 1) {
  alloc %a: ub f32[64]
  alloc %b: ub f32[64]
  set_flag mte3 -> mte2 #0 @4:5
  for %i in 0..8 {
    wait_flag mte3 -> mte2 #0 @6:9
    copy %X[%i * 64 +: 64] -> %a @7:9
    set_flag mte2 -> v #0 @8:9
    set_flag mte2 -> v #1 @9:9
    wait_flag mte2 -> v #0 @10:9
    wait_flag mte2 -> v #1 @11:9
    add %a, 1.0 -> %b @12:9
    BARRIER
    set_flag v -> mte3 #0 @14:9
    wait_flag v -> mte3 #0 @15:9
    copy %b -> %Y[%i * 64 +: 64] @16:9
    set_flag mte3 -> mte2 #0 @17:9
  } @5:5
  wait_flag mte3 -> mte2 #0 @18:5
}
"""


def redundant(text):
    p = _core.Program()
    assert p.load("k.tl", text) and p.lower(no_auto_sync=True), p.diags_text()
    return re.findall(r"k\.py:(\d+):\d+\): (flag .*?|barrier \w+), written by hand, orders nothing", p.explain())


def test_one_of_two_flags():
    assert redundant(TEXT.replace("BARRIER", "")) == [("8", "flag mte2 -> v #0")]


def test_barrier_beside_flags():
    assert ("13", "barrier v") in redundant(TEXT.replace("BARRIER", "barrier v @13:9"))


def test_needed_ones_are_not_named():
    once = re.sub(r".* mte2 -> v #1 .*\n", "", TEXT.replace("BARRIER", ""))
    assert redundant(once) == []


def test_too_many_iterations_to_trace():
    """Loops in loops are traced a few times each; beyond a limit the program is refused, with what helps."""
    depth = 12
    loops = "".join(f"for %i{i} in 0..3 {{\n" for i in range(depth))
    p = _core.Program()
    assert p.load(
        "k.tl",
        "tl 1\nkernel @k(%Y: gm f32[64] out) grid(%bx: 1) {\nalloc %a: ub f32[64]\nfill 0.0 -> %a\n"
        + f"{loops}add %a, 1.0 -> %a\n{'}' * depth}\ncopy %a -> %Y\n}}\n",
    )
    assert not p.lower()
    found = json.loads(p.diags_json())
    assert [d["code"] for d in found] == ["TL0703"] and "T.barrier_all()" in found[0]["fix"]


def fixes(text):
    """(line, fix) of what the compiler warns of."""
    p = _core.Program()
    assert p.load("k.tl", text) and p.lower(no_auto_sync=True), p.diags_text()
    return [(d["line"], d["fix"]) for d in json.loads(p.diags_json()) if d["code"] == "TL0701"]


def test_the_nearest_access_is_named():
    """The store reads what the load and then the add wrote. A flag v -> mte3 orders both; mte2 -> mte3 is no answer."""
    text = """tl 1
file "k.py"
kernel @k(%X: gm f32[64], %Y: gm f32[64] out) grid(%bx: 1) {
  alloc %a: ub f32[64]
  copy %X -> %a @2:5
  set_flag mte2 -> v #0 @3:5
  wait_flag mte2 -> v #0 @4:5
  add %a, 1.0 -> %a @5:5
  copy %a -> %Y @6:5
}
"""
    found = fixes(text)
    assert [line for line, _ in found] == [6]
    assert "`set_flag v -> mte3 #0` and `wait_flag v -> mte3 #0` before line 6" in found[0][1]


def test_all_that_is_missing_at_once():
    """Without any flag: four orders are missing, and each is told once."""
    bare = re.sub(r".*_flag .*\n|.*BARRIER\n", "", TEXT)
    wanted = [("mte2 -> v", 12), ("v -> mte3", 16), ("v -> mte2", 7), ("mte3 -> v", 12)]
    assert [(re.search(r"set_flag (\w+ -> \w+)", fix)[1], line) for line, fix in fixes(bare)] == wanted


def test_one_flag_for_two():
    """Two loads before two adds: one flag after the second load orders both."""
    text = """tl 1
file "k.py"
kernel @k(%X: gm f32[2, 64], %Y: gm f32[64] out) grid(%bx: 1) {
  alloc %a: ub f32[64]
  alloc %b: ub f32[64]
  copy %X[0 +: 1, 0 +: 64] -> %a @2:5
  copy %X[1 +: 1, 0 +: 64] -> %b @3:5
  add %a, 1.0 -> %a @4:5
  add %b, 1.0 -> %b @5:5
  barrier all @6:5
  copy %a -> %Y @7:5
}
"""
    assert [line for line, _ in fixes(text)] == [4]


def halves(spare):
    @T.prim_func
    def kernel(X: T.Tensor((4096,), "float32"), Y: T.Tensor((4096,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_ub((512,), "float32")
            for i in T.serial(8):
                if spare:
                    T.barrier_all()
                T.copy(X[i * 512], a)
                T.barrier_all()
                T.tile.mul(a, a, 0.5)
                T.set_flag("v", "mte3", 0)
                T.wait_flag("v", "mte3", 0)
                T.copy(a, Y[i * 512])
                T.set_flag("mte3", "mte2", 0)
                T.wait_flag("mte3", "mte2", 0)

    return tilelang.compile(kernel, out_idx=-1)


def test_the_clock_tells_what_they_cost():
    """The what-if is the time of the kernel without the lines."""
    profile, without = halves(True).profile(), halves(False).profile()
    assert len(profile.spare_lines) == 1 and not without.spare_lines
    assert profile.what_if[SPARE] == without.us < profile.us and SPARE not in without.what_if


def test_a_cross_wait_that_names_no_pipe():
    """S waits, and all that it issues later comes after."""
    path = pathlib.Path(__file__).parent.parent / "pass" / "sync" / "hand-cross.tl"
    text = re.sub(r"cross_wait \w+ ", "cross_wait ", path.read_text())
    p = _core.Program()
    assert p.load("k.tl", text) and p.lower(no_auto_sync=True), p.diags_text()
    assert [d["code"] for d in json.loads(p.diags_json())] == ["TL0702"]


def handed_over(*changes):
    """(what is said, what is redundant) of a tile that the cube core hands to the vector cores three times, with flags
    there and back; changed: pairs of text and text."""
    text = """tl 1
file "k.py"
kernel @k(%A: gm f16[64, 32], %B: gm f16[32, 32], %W: gm f32[2, 32, 32] workspace, %C: gm f32[64, 32] out)
  grid(%bx: 2) vid(%v) {
  alloc %a: l1 f16[32, 32]
  alloc %b: l1 f16[32, 32]
  alloc %c: l0c f32[32, 32]
  alloc %u: ub f32[16, 32]
  cube {
    copy %A[%bx * 32 +: 32, 0 +: 32] -> %a @1:1
    copy %B -> %b @2:1
    gemm %a, %b -> %c init(true) @3:1
    for %i in 0..3 {
      if %i > 0 {
        cross_wait fix #1 @4:1
      }
      copy %c -> %W[%bx +: 1, 0 +: 32, 0 +: 32] @5:1
      cross_set fix #0 mode(2) @6:1
    }
    cross_wait fix #1 @7:1
  }
  vector {
    for %j in 0..3 {
      cross_wait mte2 #0 @8:1
      copy %W[%bx +: 1, %v * 16 +: 16, 0 +: 32] -> %u @9:1
      cross_set mte2 #1 mode(2) @10:1
      copy %u -> %C[%bx * 32 + %v * 16 +: 16, 0 +: 32] @11:1
    }
  }
}
"""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    p = _core.Program()
    assert p.load("k.tl", text) and p.lower(), p.diags_text()
    spare = re.findall(r"cross-core flag ([#\d, ]+), written by hand, .*: delete lines ([\d, ]+);", p.explain())
    return [(d["code"], d["line"], (d["other"] or {}).get("line")) for d in json.loads(p.diags_json())], spare


WAIT, SET = "cross_wait mte2 #0 @8:1", "cross_set fix #0 mode(2) @6:1"


def test_orders_between_cores():
    assert handed_over() == ([], [])
    # nobody asks whether the tile was read
    back = [(f"{x} @{n}:1\n", "\n") for x, n in (("cross_wait fix #1", 4), ("cross_wait fix #1", 7))]
    assert handed_over(*back, ("cross_set mte2 #1 mode(2) @10:1", ""))[0] == [("TL0701", 5, 9)]
    # nobody asks whether it is there, or the wrong pipe does
    assert handed_over((WAIT, ""), (SET, ""))[0] == [("TL0701", 9, 5)]
    assert handed_over((WAIT, WAIT.replace("mte2", "mte3")))[0][0] == ("TL0701", 9, 5)
    # set before the tile is there
    assert handed_over((SET, ""), ("copy %c", f"{SET}\n      copy %c"))[0][0] == ("TL0701", 9, 5)
    # what a block reads is another one's
    assert handed_over(("copy %W[%bx", "copy %W[1 - %bx"), (WAIT, ""), (SET, ""))[0] == []


def test_waits_that_never_end():
    """The first wait of the cube core has nobody who answers: the vector cores wait for the cube core."""
    found = handed_over(("if %i > 0 {", "if %i < 3 {"), ("cross_wait fix #1 @7:1\n", "\n"))[0]
    assert found == [("TL0704", 8, 4)]
    # the sets come in another order than their waits on one pipe
    twice = [(SET, f"{SET}\n      cross_wait fix #2 @20:1\n      cross_set fix #3 mode(2) @21:1")]
    twice += [(WAIT, f"{WAIT}\n      cross_wait mte2 #3 @22:1\n      cross_set mte2 #2 mode(2) @23:1")]
    assert handed_over(*twice)[0] == [("TL0704", 22, 20)]
    # it hangs on what only a run knows: nothing is said
    data = ("if %i > 0 {", "let %e: f32 = %C[0, 0]\n      if %e > 0.0 {")
    assert handed_over(data, ("cross_wait fix #1 @7:1\n", "\n"))[0] == []


def test_cross_core_flags_that_order_nothing():
    """A second flag beside the first; an answer that nobody needs, for each round has a tile of its own."""
    beside = [(SET, f"{SET}\n      cross_set fix #2 mode(2) @30:1"), (WAIT, f"{WAIT}\n      cross_wait mte2 #2 @31:1")]
    assert handed_over(*beside) == ([], [("#0", "6, 8")])
    rounds = [("f32[2, 32, 32]", "f32[6, 32, 32]"), ("%W[%bx +", "%W[%bx * 3 + ROUND +")]
    own = [*rounds, ("ROUND +: 1, 0", "%i +: 1, 0"), ("ROUND", "%j")]
    assert handed_over(*own) == ([], [("#1", "4, 7, 10")])
    # more sets than a flag can hold: then the answer is needed
    many = [("in 0..3", "in 0..20"), ("f32[2, 32, 32]", "f32[40, 32, 32]"), ("%W[%bx +", "%W[%bx * 20 + ROUND +")]
    assert handed_over(*many, *own[2:]) == ([], [])
    # what all blocks wait for may tell others
    assert handed_over(*beside, ("    for %j in", "    sync_all @40:1\n    for %j in")) == ([], [])


def test_flags_that_join_all_blocks():
    """Mode 0 and mode 1 are counted, too; where a count hangs on the block nothing is said."""
    path = pathlib.Path(__file__).parent.parent / "sim" / "mix-mode0.tl"
    text = re.sub(r'lowered\("910B2", vector\)', 'after("memplan", vector)', path.read_text())
    wait = "cross_wait mte2 #3 @5:5"

    def said(new):
        p = _core.Program()
        assert p.load("k.tl", text.replace(wait, new)) and p.lower(no_auto_sync=True), p.diags_text()
        return [(d["code"], re.search(r"is (.*) than", d["text"])[1]) for d in json.loads(p.diags_json())]

    assert said(wait) == [] and said(wait + "\nif %bx == 3 {\ncross_wait mte2 #3\n}") == []
    assert said("cross_wait mte2 #4") == [("TL0702", "set once more"), ("TL0702", "waited for once more")]
    assert said(wait + "\ncross_wait mte2 #3") == [("TL0702", "waited for once more")]
    assert said(wait + "\ncross_set mte2 #1 mode(1)\ncross_wait mte2 #1") == []
    assert said(wait + "\ncross_set mte2 #1 mode(1)") == [("TL0702", "set once more")]


def test_sets_that_may_serve_another_wait():
    """Two pipes wait for one flag in no order; a flag of one bit is set again (its page is a test of that, too)."""
    assert handed_over(("cross_wait fix #1 @7:1", "cross_wait mte1 #1 @7:1"))[0] == [("TL0705", 4, 7)]
    ordered = "set_flag fix -> mte1 #0 @50:1\n    wait_flag fix -> mte1 #0 @51:1\n    cross_wait mte1 #1 @7:1"
    assert handed_over(("cross_wait fix #1 @7:1", ordered))[0] == []
