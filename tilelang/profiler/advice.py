"""Advice from a profile: each rule looks at the numbers of one run, says what it found with its price, and what to do.

A rule speaks only where it can win at least SMALL of the kernel's time. Where the clock can be asked, the price is its
answer; else it is an upper bound and says "up to"."""

from .profile import DEEPER, LONG_ROWS, NO_LATENCY, REASONS, SPARE

SMALL = 0.03  # share of the kernel's time below which nothing is said
WHOLE = 16384  # bytes of a transfer beyond which its fixed cost is small (hardware reference, GM access)
LINE = 512  # bytes: GM transfers of shorter or unaligned rows are not at the full rate (hardware reference, GM access)


def advise(p):
    """[str], dearest first."""
    found = []
    if not p.blocks:
        return found
    for rule in (
        _launch,
        _idle_cores,
        _last_wave,
        _block_starts,
        _scalar,
        _small_products,
        _small_tiles,
        _tails,
        _rows,
        _small_transfers,
        _waits,
        _flags,
        _spare,
        _conflicts,
        _traffic,
    ):
        found += [(gain, text) for gain, text in rule(p) if gain >= SMALL * p.us]
    return [text for _, text in sorted(found, key=lambda x: -x[0])]


def _percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _dearest(statements, us=lambda s: s["busy_us"]):
    return max(statements, key=us, default=None)


def _where(s):
    return f"{s['file']}:{s['line']}"


def _faster(p, part):
    """What is won if only `part` of the time after the launch is needed: HBM is not faster than it is."""
    launch = p.launch_us
    hbm = p.hbm_moved_bytes / p.peak_gbps * 1e-3
    return p.us - launch - max((p.us - launch) * part, hbm)


# ---- blocks and cores -------------------------------------------------------------------------------------------


def _launch(p):
    launch = p.launch_us
    if launch > 0.2 * p.us:
        yield launch, (
            f"the launch takes {launch:.1f} of {p.us:.1f} us, the longer the more cores: more work in one launch, or"
            " one kernel with what comes before or after it"
        )


def _idle_cores(p):
    if p.cores_used < p.cores_there:
        gain = p.us - p.spread_us()
        yield gain, (
            f"{p.cores_there - p.cores_used} of {p.cores_there} cores get no block: {p.blocks} blocks. Smaller tiles"
            f" or a split of the reduction would use them (up to {gain:.1f} us)"
        )


def _last_wave(p):
    over = p.blocks % p.cores_there
    if p.blocks > p.cores_there and over:
        waves = -(-p.blocks // p.cores_there)
        gain = p.us - p.spread_us()
        yield gain, (
            f"{p.blocks} blocks on {p.cores_there} cores are {waves} waves, the last of {over} blocks: up to"
            f" {gain:.1f} us of {p.us:.1f} are its idle cores. Tiles that make a multiple of {p.cores_there} blocks"
            " even it out"
        )


def _block_starts(p):
    gain = min(p.overhead_us - p.launch_us, _faster(p, 0.0))
    if p.blocks > p.cores_there:
        yield gain, (
            f"starting {p.blocks} blocks on {p.cores_there} cores costs up to {gain:.1f} us: {p.cores_there} blocks"
            " that loop over the tiles (T.Persistent) start once, and T.Pipelined can overlap the tiles of a block"
        )


# ---- computing --------------------------------------------------------------------------------------------------


def _scalar(p):
    for side in ("cube", "vector"):
        ran = p.core_us(side)
        mine = [s for s in p.statements if s["side"] == side]
        own = sum(s["busy_us"] for s in mine if s["pipe"] == "s")
        busy = own + sum(s["scalar_us"] for s in mine)
        if not ran or busy <= 0.3 * ran:
            continue
        if own > busy / 2:
            worst = _dearest([s for s in mine if s["pipe"] == "s"])
            what = f"on single elements ({worst['count']} times): whole tiles, T.tile or T.Parallel, do not need it"
        else:
            worst = _dearest(mine, lambda s: s["scalar_us"])
            what = f"to issue instructions ({worst['count']} times): larger tiles need fewer"
        yield p.us * busy / ran, (
            f"the scalar unit of the {side} cores is busy {_percent(busy, ran)} of the time, most in line"
            f" {_where(worst)} {what}"
        )


def _small_products(p):
    mmads = [s for s in p.statements if s["pipe"] == "m" and s["ops"]]
    busy = sum(s["busy_us"] for s in mmads)
    least = sum(s["least_us"] for s in mmads)
    worst = _dearest(mmads, lambda s: s["busy_us"] - s["least_us"])
    ran = p.core_us("cube")
    if mmads and busy > 1.15 * least:
        gain = min(p.us * (busy - least) / ran, p.us - p.copy_only_us)
        yield gain, (
            f"the cube is busy {busy / least:.1f} times as long as its products need at the full rate (up to"
            f" {gain:.1f} us): extents that are no multiples of the fractal, or small steps (line {_where(worst)})"
        )


def _small_tiles(p):
    """Copies of a product keep the cube waiting, and its accumulators have room: a larger tile reads less."""
    pipes = {(q["side"], q["pipe"]): q for q in p.pipes}
    load, cube = pipes.get(("cube", "mte2")), pipes.get(("cube", "m"))
    room = next((m for m in p.kernel.explain_json()["memory"] if m["space"] == "l0c"), None)
    if not load or not load["busy_us"] or not room or not room["used"] or cube["busy_us"] > 0.7 * load["busy_us"]:
        return
    larger = room["available"] / room["used"]
    if larger < 2 or p.cores_used < p.cores_there or p.blocks < 2 * p.cores_there:  # larger tiles are fewer blocks
        return
    larger = min(larger, p.blocks / p.cores_there)
    less = 1 - larger**-0.5
    gain = min(load["busy_us"] * less, p.us - p.compute_only_us)
    worst = _dearest(s for s in p.statements if s["side"] == "cube" and s["gm_bytes"] and s["pipe"] == "mte2")
    yield gain, (
        f"the cube waits for copies (mte2 {_percent(load['busy_us'], p.us)} busy, cube"
        f" {_percent(cube['busy_us'], p.us)}) and its accumulators use {room['used']} of {room['available']} bytes:"
        f" output tiles {larger:.0f} times as large read {_percent(less, 1)} less (line {_where(worst)}, up to"
        f" {gain:.1f} us)"
    )


def _tails(p):
    loads = [s for s in p.statements if s["gm_bytes"] and s["pipe"] == "mte2"]
    whole, moved = sum(s["count"] * s["gm_most"] for s in loads), sum(s["gm_bytes"] for s in loads)
    worst = _dearest(loads, lambda s: s["count"] * s["gm_most"] - s["gm_bytes"])
    if not loads or moved > 0.9 * whole:
        return
    gain = _faster(p, moved / whole)
    full = worst["gm_bytes"] / (worst["count"] * worst["gm_most"])
    yield gain, (
        f"the tiles of line {_where(worst)} are {_percent(full, 1)} full, the rest is tail that is computed for"
        f" nothing: a tile size that divides the tensor, or nearly (up to {gain:.1f} us)"
    )


# ---- moving -----------------------------------------------------------------------------------------------------


def _rows(p):
    then = p.what_if[LONG_ROWS]
    moves = [s for s in p.statements if s["gm_rows"]]
    short = _dearest([s for s in moves if s["gm_bytes"] < LINE * s["gm_rows"]])
    worst = short or _dearest(moves)
    if not worst or (not short and p.hbm_read_bytes < 1.05 * p.gm_read_bytes):
        return
    rows = f"{worst['gm_bytes'] / worst['gm_rows']:.0f} bytes"
    if short:
        what = f"{rows}: with rows of {LINE} bytes and more"
        cure = "Wider tiles, or a tensor that is stored tile by tile, have them"
    else:
        what = f"{rows} that do not begin and end at multiples of {LINE}: with rows that do"
        cure = "A padded tensor, or other places of the tiles, have them"
    yield p.us - then, f"line {_where(worst)} moves rows of {what} the kernel would take {then:.1f} us. {cure}"


def _small_transfers(p):
    then = p.what_if[NO_LATENCY]
    worst = _dearest([s for s in p.statements if s["count"] and 0 < s["gm_bytes"] < WHOLE * s["count"]])
    if not worst:
        return
    each = worst["gm_bytes"] / worst["count"]
    gain = (p.us - then) * (1 - each / WHOLE)
    yield gain, (
        f"line {_where(worst)} moves {each:.0f} bytes at a time ({worst['count']} times,"
        f" {worst['busy_us'] / worst['count']:.2f} us each); without the fixed cost of each transfer the kernel would"
        f" take {then:.1f} us: transfers of {WHOLE // 1024} KiB have little of it (up to {gain:.1f} us)"
    )


def _waits(p):
    """The busiest pipe waits."""
    busy = max((q for q in p.pipes if q["pipe"] != "s"), key=lambda q: q["busy_us"], default=None)
    found = p.most(busy["side"], busy["pipe"]) if busy else []
    if not found or found[0][1] == "start":
        return
    us, reason, n = found[0]
    s = p.statements[n]
    idle = busy["idle_us"].get(reason, 0.0)
    gain = min(idle, _faster(p, 0.0))
    text = (
        f"{busy['side']} {busy['pipe']}, the busiest pipe, waits {idle:.1f} us ({_percent(idle, p.us)}), most in line"
        f" {_where(s)}: `{s['text']}` ({REASONS[reason]})"
    )
    if reason == "issue" and (len(found) == 1 or found[1][0] < 0.3 * us):
        return  # S is busy: _scalar
    if len(found) > 1:
        at = p.statements[found[1][2]]
        text += f", which itself waits in line {_where(at)}: `{at['text']}` ({REASONS[found[1][1]]})"
    deeper = p.what_if.get(DEEPER)
    if deeper is not None and deeper < 0.99 * p.us:
        text += f"; one more stage in T.Pipelined makes it {deeper:.1f} us"
        gain = p.us - deeper
    elif deeper is not None:
        text += "; more stages do not change that"
    elif found[-1][1] == "cross":
        text += (
            "; with two tiles in the workspace each side can be a tile ahead of the other (T.Pipelined around both, or"
            " two flags that take turns)"
        )
    elif reason == "flag":
        text += (
            f"; {_percent(p.overlap, 1)} of the shorter of copies and computation is hidden. A loop over tiles in"
            f" T.Pipelined(..., num_stages=2) has the next tile on its way meanwhile{_room_for_two(p, busy['side'])}"
        )
    yield gain, text


def _room_for_two(p, side):
    space = "ub" if side == "vector" else "l1"
    m = next(m for m in p.kernel.explain_json()["memory"] if m["space"] == space)
    return f"; {space} has room for that with tiles of half the size" if m["used"] > m["available"] / 2 else ""


def _flags(p):
    then = p.what_if["flags and barriers free"]
    sync = [s for s in p.statements if s["idle_us"] and not s["busy_us"]]
    worst = _dearest(sync, lambda s: sum(s["idle_us"].values()))
    if worst:
        yield p.us - then, (
            f"flags and barriers themselves cost {p.us - then:.1f} us, the longest waits are in line {_where(worst)}:"
            f" `{worst['text']}`. Larger tiles need fewer; barriers written by hand can go where the compiler's"
            " flags order the same"
        )


def _spare(p):
    then = p.what_if.get(SPARE, p.us)
    lines = ", ".join(map(str, p.spare_lines))
    yield p.us - then, (
        f"flags and barriers by hand in line{'s' if len(p.spare_lines) > 1 else ''} {lines} order nothing that is not"
        f" ordered without them: deleted, the kernel takes {then:.1f} us"
    )


def _conflicts(p):
    gain = p.us - p.what_if["no UB bank conflicts"]
    if gain < SMALL * p.us:
        return
    worst = p.statements[max(range(len(p.conflicts)), key=lambda n: p.conflicts[n])]
    yield gain, (
        f"bank conflicts in UB cost {gain:.1f} us, most in line {_where(worst)}: `{worst['text']}`. Its buffers"
        " moved 256 bytes against each other do not meet in a bank group (T.annotate_address, or a buffer of 256"
        " bytes between them)"
    )


def _traffic(p):
    """Reads that L2 does not have: those of bytes that were read before, by a better order; others only by fewer."""
    then = p.what_if["every read in L2"]
    once = p.read_once_bytes
    again = max(1 - once / p.hbm_read_bytes, 0.0) if p.hbm_read_bytes else 0.0
    gain = (p.us - then) * again
    yield gain, (
        f"HBM gives {p.hbm_read_bytes / 1e6:.1f} MB of tensors of {once / 1e6:.1f}: with every byte once and then in"
        f" L2 up to {gain:.1f} us less. T.use_swizzle changes the order of the blocks"
    )
    share = p.hbm_moved_bytes / p.peak_gbps * 1e-3 / p.us if p.us else 0.0
    if share > 0.75 and again < 0.1 and p.hbm_read_bytes < 1.2 * p.gm_read_bytes:
        yield SMALL * p.us, (
            f"HBM is busy {_percent(share, 1)} of the time with bytes that are read once: the kernel is at its limit;"
            " fewer bytes (a smaller dtype, one kernel with what comes before or after) are all that helps"
        )
