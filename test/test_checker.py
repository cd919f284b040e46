"""What the checks find: faults that tools/inject.py puts into lowered programs.

Every flag and barrier that the sync pass inserts orders something: without it there is a fault. Half a flag - a set
without its wait, a wait without its set - is lost, left over, or a dead end, never silence. And of all kinds of
injected faults that change a result under some schedule, none is missed. docs/checker.md has the numbers over all
programs.
"""

import argparse
import importlib.util
import json
import pathlib
import re

import pytest

TOOL = pathlib.Path(__file__).parent.parent / "tools" / "inject.py"
spec = importlib.util.spec_from_file_location("inject", TOOL)
inject = importlib.util.module_from_spec(spec)
spec.loader.exec_module(inject)

KERNELS = {
    "gemm": """
kernel @gemm(%A: gm f16[128, 512], %B: gm f16[512, 128], %C: gm f32[128, 128] out) grid(%bx: 2, %by: 2) {
  alloc %a: shared f16[64, 512]
  alloc %b: shared f16[512, 64]
  alloc %c: fragment f32[64, 64]
  copy %A[%by * 64 +: 64, 0 +: 512] -> %a
  copy %B[0 +: 512, %bx * 64 +: 64] -> %b
  gemm %a, %b -> %c init(true)
  copy %c -> %C[%by * 64 +: 64, %bx * 64 +: 64]
}""",
    "gemm-serial": """
kernel @gemm(%A: gm f16[100, 500], %B: gm f16[500, 70], %C: gm f32[100, 70] out) grid(%bx: 2, %by: 2) {
  alloc %a: shared f16[64, 64]
  alloc %b: shared f16[64, 64]
  alloc %c: fragment f32[64, 64]
  for %k in 0..8 {
    copy %A[%by * 64 +: 64, %k * 64 +: 64] -> %a
    copy %B[%k * 64 +: 64, %bx * 64 +: 64] -> %b
    gemm %a, %b -> %c init(%k == 0)
  }
  copy %c -> %C[%by * 64 +: 64, %bx * 64 +: 64]
}""",
    "gemm-pipelined": """
kernel @gemm(%A: gm bf16[64, 1280], %B: gm bf16[1280, 64], %C: gm bf16[64, 64] out) grid(%bx: 1) {
  alloc %a: shared bf16[64, 256]
  alloc %b: shared bf16[256, 64]
  alloc %c: fragment f32[64, 64]
  for %k in 0..5 pipeline(3) {
    copy %A[0 +: 64, %k * 256 +: 256] -> %a
    copy %B[%k * 256 +: 256, 0 +: 64] -> %b
    gemm %a, %b -> %c init(%k == 0)
  }
  copy %c -> %C
}""",
    "axpy-pipelined": """
kernel @axpy(%X: gm f32[64, 256], %Y: gm f32[64, 256], %Z: gm f32[64, 256] out) grid(%bx: 2) {
  alloc %x: ub f32[4, 256]
  alloc %y: ub f32[4, 256]
  for %k in 0..8 pipeline(2) {
    copy %X[%bx * 32 + %k * 4 +: 4, 0 +: 256] -> %x
    copy %Y[%bx * 32 + %k * 4 +: 4, 0 +: 256] -> %y
    axpy %x, 2.0 -> %y
    copy %y -> %Z[%bx * 32 + %k * 4 +: 4, 0 +: 256]
  }
}""",
    # the later loop meets the earlier one only after many iterations
    "late": """
kernel @late(%A: gm f32[32, 64], %C: gm f32[64, 64] out) grid(%bx: 1) {
  alloc %a: ub f32[64, 64]
  copy %A -> %a[0 +: 32, 0 +: 64]
  for %i in 0..32 {
    fill 1.0 -> %a[32 + %i +: 1, 0 +: 64]
  }
  for %j in 0..64 {
    add %a[%j +: 1, 0 +: 64], 1.0 -> %a[%j +: 1, 0 +: 64]
  }
  copy %a -> %C
}""",
    # both kinds of core, a tile in workspace between them
    "mixed": """
kernel @mixed(%A: gm f16[64, 64], %B: gm f16[64, 192], %C: gm f32[64, 192] out) grid(%bx: 1) vid(%v) {
  alloc %a: shared f16[64, 64]
  alloc %b: shared f16[64, 64]
  alloc %c: fragment f32[64, 64]
  alloc %u: ub f32[64, 64]
  copy %A -> %a
  for %k in 0..3 {
    copy %B[0 +: 64, %k * 64 +: 64] -> %b
    gemm %a, %b -> %c init(true)
    copy %c -> %u
    exp %u -> %u
    copy %u -> %C[0 +: 64, %k * 64 +: 64]
  }
}""",
    "softmax": """
kernel @softmax(%X: gm f32[64, 128], %Y: gm f32[64, 128] out) grid(%bx: 4) {
  alloc %x: ub f32[16, 128]
  alloc %m: ub f32[16]
  alloc %s: ub f32[16]
  copy %X[%bx * 16 +: 16, 0 +: 128] -> %x
  reduce_max %x -> %m dim(1)
  for %r in 0..16 {
    let %v: f32 = %m[%r]
    sub %x[%r +: 1, 0 +: 128], %v -> %x[%r +: 1, 0 +: 128]
  }
  exp %x -> %x
  reduce_sum %x -> %s dim(1)
  for %r2 in 0..16 {
    let %w: f32 = %s[%r2]
    div %x[%r2 +: 1, 0 +: 128], %w -> %x[%r2 +: 1, 0 +: 128]
  }
  copy %x -> %Y[%bx * 16 +: 16, 0 +: 128]
}""",
}


@pytest.fixture(params=KERNELS)
def case(request):
    program, text = inject.lowered(request.param, "tl 1" + KERNELS[request.param] + "\n")
    made = inject.Case(request.param, text, inject.arguments(program, {}))
    found, after = made.run(text, checks=True)
    assert after is not None and not found
    return made


def faults(case, *kinds):
    return [text for kind in kinds for text in inject.tries(case, kind, 0, None)]


def test_every_flag_is_needed(case):
    broken = faults(case, "both ends of a flag deleted", "barrier or sync_all deleted")
    assert broken, "the kernel has several pipes, so it has flags"
    for text in broken:
        found, _ = case.run(text, checks=True)
        assert any(c.startswith("TL08") for c in found), f"missed:\n{inject.difference(case.text, text)}"


def test_half_a_flag_is_found(case):
    for text in faults(case, "one end of a flag deleted"):
        found, _ = case.run(text, checks=True)
        assert any(c.startswith("TL08") for c in found), f"missed:\n{inject.difference(case.text, text)}"


def bare(text):
    """Without the Python lines: a diagnostic then names the line of the text itself."""
    return re.sub(r" @(\d+:)?\d+:\d+", "", text)


def mended(text, found):
    """The text with what the fixes say: flags and barriers before the statement that each names."""
    lines = text.splitlines()
    told = [re.match(r"put `(.*?)`(?: and `(.*?)`)? before line (\d+)", d["fix"]).groups() for d in found]
    for *what, line in sorted(told, key=lambda x: -int(x[-1])):
        lines[int(line) - 1 : int(line) - 1] = [x for x in what if x]
    return "\n".join(lines) + "\n"


def test_the_fixes_mend_it(case):
    """The fixes of one run are all it takes, for one flag or barrier that is gone, and for all of a core; not more than
    eight faults are told in a run, so for all of several cores it may take two more."""
    local = {x for x in case.text.splitlines() if inject.is_sync(x) and not inject.CROSS.match(x)}
    nothing = "\n".join(x for x in case.text.splitlines() if x not in local) + "\n"
    broken = faults(case, "both ends of a flag deleted", "barrier or sync_all deleted")
    broken = [x for x in broken if x.count("cross_") == case.text.count("cross_")]
    for text in map(bare, [*broken, nothing]):
        found = findings(case, text)
        assert found
        for _ in range(3 if len(found) == 8 else 1):
            before, text = text, mended(text, found)
            found = findings(case, text)
        assert not found, f"{inject.difference(before, text)}\n{found}"


def test_spare_ones_can_go(case):
    """Flags and barriers too many are named with their lines. Without these nothing is missing, and no more can go."""
    lines = bare(re.sub(r'lowered\("[^"]*", (\w+)\)', r'after("memplan", \1)', case.text)).splitlines()
    twin = next(m for x in lines if (m := re.search(r"_flag (\w+ -> \w+ #\d+)$", x)))[1]
    source = []
    for i, x in enumerate(lines):
        if x.endswith(f"_flag {twin}"):
            source.append(re.sub(r"#\d+", "#7", x))
        if inject.OPERATION.match(x) and not inject.is_sync(x) and i % 2 and " if " not in lines[i - 1]:
            source.append("barrier all")
        source.append(x)
    for again in (False, True):
        program = inject._core.Program()
        assert program.load(case.name, "\n".join(source) + "\n") and program.lower(no_auto_sync=True)
        assert json.loads(program.diags_json()) == [] and not findings(case, program.text())
        told = re.findall(r": delete lines? ([\d, ]+);", program.explain())
        gone = {int(n) for lines in told for n in lines.split(",")}
        assert bool(gone) != again and all(inject.is_sync(source[n - 1]) for n in gone), gone
        source = [x for n, x in enumerate(source, 1) if n not in gone]


def findings(case, text):
    program = inject._core.Program()
    assert program.load(case.name, text), program.diags_text()
    arrays = [a.copy() if isinstance(a, inject.np.ndarray) else a for a in case.args]
    program.sim([(a.ctypes.data, a.shape) if isinstance(a, inject.np.ndarray) else a for a in arrays], checks=True)
    return json.loads(program.diags_json())


def test_no_fault_is_missed(case):
    options = argparse.Namespace(limit=3, schedules=3, seed=1, seconds=60, kinds="")
    results = inject.judge(case, options)
    assert not isinstance(results, str), results
    missed = [inject.difference(case.text, text) for _, text, verdict, *_ in results if verdict == "missed"]
    assert not missed, "\n".join(missed)
    usual = list(inject.KINDS)[:10]  # others change what the program says, which only a second opinion tells
    verdicts = [verdict for kind, _, verdict, *_ in results if kind in usual]
    assert verdicts.count("found") > len(verdicts) // 4 and verdicts.count("another") <= 2


def test_of_kept_results_some_kinds_are_tried_again(case, tmp_path):
    keep = tmp_path / "results"
    options = argparse.Namespace(limit=2, schedules=1, seed=1, seconds=60, kinds="extent,one end")
    vars(options).update(keep=keep, minutes=0, jobs=1, again="", note="")
    (first,) = inject.results([case], options)
    old = {**first, "found": [[kind, "old", [], False, ""] for kind, *_ in first["found"]]}
    keep.write_text(json.dumps(old) + "\n")
    assert list(inject.results([case], options)) == [old]
    options.again = "extent"
    (again,) = inject.results([case], options)
    tried = [list(x) for x in first["found"] if x[0].startswith("extent")]
    assert tried and [list(x) for x in again["found"]] == tried + [x for x in old["found"] if x[0].startswith("one")]
    assert [x["found"] for x in inject.results([case], options)] == [[list(x) for x in again["found"]]]
