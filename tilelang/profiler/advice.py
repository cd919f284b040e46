"""Advice from a profile: each rule looks at the numbers of one run, says what it found with its price, and what to do.

A rule speaks only where it can win at least SMALL of the kernel's time."""

from .profile import REASONS

SMALL = 0.03  # share of the kernel's time below which nothing is said
SHORT_ROW = 512  # bytes: GM transfers of shorter rows do not reach the full rate (hardware reference, GM access)


def advise(p):
    """[str], dearest first."""
    found = []
    for rule in (
        _idle_cores,
        _last_wave,
        _scalar,
        _small_products,
        _short_rows,
        _in_turns,
        _conflicts,
        _one_waits,
        _traffic,
    ):
        found += [(gain, text) for gain, text in rule(p) if gain >= SMALL * p.us]
    return [text for _, text in sorted(found, key=lambda x: -x[0])]


def _percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _idle_cores(p):
    if p.cores_used < p.cores_there:
        idle = p.cores_there - p.cores_used
        gain = p.us * idle / p.cores_there
        yield (
            gain,
            (
                f"{idle} of {p.cores_there} cores get no block: {p.blocks} blocks. Smaller tiles or a split of the"
                f" reduction would use them (up to {gain:.1f} us)"
            ),
        )


def _last_wave(p):
    over = p.blocks % p.cores_there
    if p.blocks > p.cores_there and over:
        waves = -(-p.blocks // p.cores_there)
        ideal = p.blocks / p.cores_there
        gain = p.us * (waves - ideal) / waves
        yield (
            gain,
            (
                f"{p.blocks} blocks on {p.cores_there} cores are {waves} waves, the last of {over} blocks: up to"
                f" {gain:.1f} us of {p.us:.1f} are its idle cores. A block count that {p.cores_there} divides, or"
                " T.Persistent, evens it out"
            ),
        )


def _dearest(statements, us=lambda s: s["busy_us"]):
    return max(statements, key=us, default=None)


def _where(s):
    return f"{s['file']}:{s['line']}"


def _scalar(p):
    for side in ("cube", "vector"):
        ran = p.core_us(side)
        mine = [s for s in p.statements if s["side"] == side and s["pipe"] == "s"]
        busy = sum(s["busy_us"] for s in mine)
        worst = _dearest(mine)
        if ran and worst and busy > 0.3 * ran:
            yield p.us * busy / ran, (
                f"the scalar unit of the {side} cores is busy {_percent(busy, ran)} of the time, most of it in line "
                f"{_where(worst)} ({worst['count']} times): work on whole tiles instead of elements"
            )


def _small_products(p):
    mmads = [s for s in p.statements if s["pipe"] == "m" and s.get("ops")]
    busy = sum(s["busy_us"] for s in mmads)
    least = sum(s["least_us"] for s in mmads)
    worst = _dearest(mmads, lambda s: s["busy_us"] - s["least_us"])
    ran = p.core_us("cube")
    if mmads and busy > 1.15 * least:
        yield p.us * (busy - least) / ran, (
            f"the cube is busy {busy:.1f} us for products that need {least:.1f} at its full rate: extents that are no "
            f"multiples of the fractal, or small steps (line {_where(worst)})"
        )


def _short_rows(p):
    for s in sorted(p.statements, key=lambda s: -s["busy_us"])[:12]:
        rows = s.get("gm_rows", 0)
        if not rows or s["gm_bytes"] / rows >= SHORT_ROW or not s["gm_bytes"]:
            continue
        cores = p.core_us(s["side"])
        yield (
            p.us * s["busy_us"] / cores / 2 if cores else 0.0,
            (
                f"line {_where(s)} moves rows of {s['gm_bytes'] / rows:.0f} bytes; rows of {SHORT_ROW} bytes and more"
                f" reach the full rate of global memory (busy {s['busy_us']:.1f} us over all cores)"
            ),
        )


def _in_turns(p):
    shorter = min(p.compute_only_us, p.copy_only_us)
    deeper = p.what_if.get("one more stage in every T.Pipelined")
    if p.overlap >= 0.6:
        return
    gain = shorter * (1 - p.overlap)
    cure = "T.Pipelined around the loop, or smaller tiles, would overlap them"
    if deeper is not None and deeper < 0.99 * p.us:
        cure = f"one more stage in T.Pipelined makes it {deeper:.1f} us"
    elif deeper is not None:
        cure = "more stages do not change that: look for what the loop waits for"
    yield gain, (
        f"copies alone take {p.copy_only_us:.1f} us, computation alone {p.compute_only_us:.1f}, together {p.us:.1f}: "
        f"{_percent(p.overlap, 1)} of the shorter is hidden, up to {gain:.1f} us could be; {cure}"
    )


def _conflicts(p):
    gain = p.us - p.what_if["no UB bank conflicts"]
    yield gain, f"bank conflicts in UB cost {gain:.1f} us: buffers 256 bytes further apart do not meet in a bank group"


def _one_waits(p):
    busy = max((q for q in p.pipes if q["pipe"] != "s"), key=lambda q: q["busy_us"], default=None)
    for us, reason, n in p.waits(busy["side"], busy["pipe"])[:1] if busy else ():
        if us > 0.1 * p.us:
            s = p.statements[n]
            yield (
                us,
                (
                    f"{busy['side']} {busy['pipe']}, the busiest pipe, waits {us:.1f} us ({_percent(us, p.us)}) in line"
                    f" {_where(s)}: `{s['text']}` ({REASONS[reason]})"
                ),
            )


def _traffic(p):
    gain = p.us - p.what_if["every read in L2"]
    if p.l2_hit < 0.9:
        yield (
            gain,
            (
                f"{_percent(1 - p.l2_hit, 1)} of the {p.gm_read_bytes / 1e6:.1f} MB read come from HBM; all in L2 it"
                f" would take {p.us - gain:.1f} us. T.use_swizzle changes the order of the blocks"
            ),
        )
