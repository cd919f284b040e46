"""Flags and barriers written by hand that order nothing are named in explain(), with what they hold up."""

import json
import re

from tilelang import _core

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
