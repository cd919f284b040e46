"""A profile as text for people."""

REASON_ORDER = ("start", "issue", "flag", "cross", "barrier", "queue", "end")
MOST_LINES, MOST_STEPS = 12, 6  # of the program, of the critical path


def _mb(n):
    return f"{n / 1e3:.2f} kB" if n < 1e6 else f"{n / 1e6:.2f} MB" if n < 1e9 else f"{n / 1e9:.2f} GB"


def _head(p):
    yield f"{p.name} on {p.chip}: {p.us:.2f} us, {p.cycles} cycles at {p.mhz:.0f} MHz (simulated chip)"
    yield f"  {p.blocks} blocks on {p.cores_used} of {p.cores_there} cores; {p.instructions} instructions"
    yield (
        f"  GM read {_mb(p.gm_read_bytes)}, written {_mb(p.gm_write_bytes)}; {100 * p.l2_hit:.0f} % of the reads"
        f" hit L2; HBM gives {_mb(p.hbm_read_bytes)}, takes {_mb(p.hbm_write_bytes)}"
    )
    yield (
        f"  computation alone {p.compute_only_us:.2f} us, copies alone {p.copy_only_us:.2f} us, neither"
        f" {p.overhead_us:.2f} us"
        + (f": {100 * p.overlap:.0f} % of the shorter is hidden" if p.shorter_us >= 0.005 else "")
    )
    r = p.roofline
    if p.flops and r["memory_peak"] != float("inf"):
        limit = min(r["compute_peak"], r["memory_peak"])
        yield (
            f"  roofline: {r['intensity']:.1f} operations a byte of HBM; {r['achieved']:.2f} of {limit:.2f} Tops"
            f" ({100 * r['achieved'] / limit if limit else 0:.0f} %), {r['bound']} bound; compute peak"
            f" {r['compute_peak']:.1f}"
        )


def _pipes(p):
    """Means over the cores, and the line where a pipe waited longest for another one."""
    reasons = [r for r in REASON_ORDER if any(q["busy_us"] and q["idle_us"].get(r, 0) >= 0.005 for q in p.pipes)]
    yield f"{'pipe':<13}{'busy us':>10}{'ratio':>8} | idle us: " + "".join(f"{r:>10}" for r in reasons) + "   most at"
    for q in p.pipes:
        if not q["busy_us"]:
            continue
        idle = "".join(f"{q['idle_us'].get(r, 0):>10.2f}" for r in reasons)
        waits = [f"{p.place(n)} ({reason})" for us, reason, n in p.most(q["side"], q["pipe"]) if us >= 0.005]
        most = "   " + ", where s waits at ".join(waits) if waits else ""
        yield f"{q['side'] + ' ' + q['pipe']:<13}{q['busy_us']:>10.2f}{100 * q['ratio']:>7.1f}% |          {idle}{most}"


def _lines(p):
    yield f"{'busy':>6}  {'on pipe':<12}{'waits':>7}  line"
    for line in p.lines[:MOST_LINES]:
        waits = line.wait_share
        if line.share < 0.0005 and waits < 0.0005:
            continue
        yield (
            f"{100 * line.share:>5.1f}%  {line.pipe:<12}{100 * waits:>6.1f}%  {line.file}:{line.line}  "
            f"{line.source.strip()}"
        )


def _path(p):
    path = p.critical_path
    if not path:
        return
    on_path = sum(us for _, _, us, _ in path)
    yield f"critical path ({on_path:.2f} of {p.us:.2f} us)"
    for s, pipe, us, times in path[:MOST_STEPS]:
        at = p.statements[s]
        work = "issue of " if pipe != at["pipe"] else ""
        yield f"{us:>9.2f} us {times:>7} times  {at['side'] + ' ' + pipe:<11}  {p.place(s)}  {work}{at['text']}"
    more = sum(us for _, _, us, _ in path[MOST_STEPS:])
    if more >= 0.005:
        yield f"{more:>9.2f} us {sum(n for _, _, _, n in path[MOST_STEPS:]):>7} times  others"
    yield f"{p.us - on_path:>9.2f} us          launch, starts of blocks, flags and data on their way"


def _what_if(p):
    for question, us in p.what_if.items():
        yield f"  {question:<38}{us:>10.2f} us  {100 * (us - p.us) / p.us if p.us else 0:>+6.1f} %"


def render(p):
    out = [*_head(p), "", *_pipes(p), "", *_lines(p)]
    path = list(_path(p))
    if path:
        out += ["", *path]
    out += ["", "what if", *_what_if(p)]
    if p.advice:
        out += ["", "advice", *(f"  - {a}" for a in p.advice)]
    return "\n".join(out) + "\n"
