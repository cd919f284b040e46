"""Every flag and barrier that the sync pass inserts orders something: without it the simulator finds a fault.

The lowered text of each kernel is taken apart: the statements of one event id of one pipe pair (all its sets, waits,
the
priming before a loop and the draining after it) go together, a barrier goes alone. Each is removed in turn; the
rest must run into TL08xx. With everything in place the same kernel runs clean.
"""

import re

import pytest

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

FLAG = re.compile(r"\s*(?:set|wait)_flag (\w+) -> (\w+) #([^@\n]*)")
ROTATING = re.compile(r"% (\d+)(?: \+ (\d+))?$")


def ids_of(text):
    text = text.strip()
    if text.isdigit():
        return [int(text)]
    n, base = ROTATING.search(text).groups()
    return [int(base or 0) + i for i in range(int(n))]


def removable(lines):
    """Groups of line numbers that stand and fall together."""
    groups = []  # (ids, lines)
    for i, line in enumerate(lines):
        if re.match(r"\s*barrier ", line):
            groups.append((set(), {i}))
        found = FLAG.match(line)
        if not found:
            continue
        src, dst, expr = found.groups()
        ids, mine = {(src, dst, n) for n in ids_of(expr)}, {i}
        for group in [g for g in groups if g[0] & ids]:
            groups.remove(group)
            ids, mine = ids | group[0], mine | group[1]
        groups.append((ids, mine))
    return [g[1] for g in groups]


@pytest.mark.parametrize("name", KERNELS)
def test_every_flag_is_needed(tlc, name, tmp_path):
    source = tmp_path / "k.tl"
    source.write_text("tl 1" + KERNELS[name] + "\n")
    status, lowered, problems = tlc("opt", source)
    assert status == 0, problems
    lines = lowered.splitlines()
    groups = removable(lines)
    assert groups, "the kernel has several pipes, so it has flags"
    whole = tmp_path / "whole.tl"
    whole.write_text(lowered)
    status, out, problems = tlc("sim", whole)
    assert status == 0, problems
    for group in groups:
        broken = tmp_path / "broken.tl"
        broken.write_text("\n".join(line for i, line in enumerate(lines) if i not in group) + "\n")
        status, out, problems = tlc("sim", broken)
        gone = "\n".join(lines[i] for i in sorted(group))
        assert status == 1 and "TL08" in problems, f"not missed:\n{gone}\n{out}{problems}"


@pytest.mark.parametrize("name", KERNELS)
def test_half_a_flag_is_found(tlc, name, tmp_path):
    """A set without its wait, a wait without its set: lost, left over, or a dead end - never silence."""
    source = tmp_path / "k.tl"
    source.write_text("tl 1" + KERNELS[name] + "\n")
    lines = tlc("opt", source)[1].splitlines()
    for i, line in enumerate(lines):
        if not FLAG.match(line):
            continue
        broken = tmp_path / "broken.tl"
        broken.write_text("\n".join(lines[:i] + lines[i + 1 :]) + "\n")
        status, out, problems = tlc("sim", broken)
        assert status == 1 and "TL08" in problems, f"line {i + 1} not missed: {line}\n{out}{problems}"
