"""A profile as text for people."""

REASON_ORDER = ("start", "issue", "flag", "cross", "barrier", "queue", "end")


def _mb(n):
    return f"{n / 1e6:.2f} MB" if n < 1e9 else f"{n / 1e9:.2f} GB"


def render(p):
    out = [
        f"{p.name} on {p.chip}: {p.us:.2f} us, {p.cycles} cycles at {p.mhz:.0f} MHz (simulated chip)",
        f"  {p.blocks} blocks on {p.cores_used} of {p.cores_there} cores; {p.instructions} instructions",
        (
            f"  GM read {_mb(p.gm_read_bytes)}, written {_mb(p.gm_write_bytes)}; {100 * p.l2_hit:.0f} % of the reads"
            f" hit L2, {_mb(p.hbm_read_bytes)} come from HBM"
        ),
        (
            f"  computation alone {p.compute_only_us:.2f} us, copies alone {p.copy_only_us:.2f} us: "
            f"{100 * p.overlap:.0f} % of the shorter is hidden"
        ),
    ]
    r = p.roofline
    if p.flops and r["memory_peak"] != float("inf"):
        limit = min(r["compute_peak"], r["memory_peak"])
        out.append(
            f"  {r['intensity']:.1f} operations a byte of HBM; {r['achieved']:.2f} of {limit:.2f} Tops that the"
            f" roofline allows ({r['bound']} bound, compute peak {r['compute_peak']:.1f})"
        )
    out += ["", f"{'pipe':<14}{'busy us':>9}{'ratio':>8}   idle us, waiting for"]
    for q in p.pipes:
        if not q["busy_us"]:
            continue
        idle = "  ".join(f"{k} {q['idle_us'][k]:.2f}" for k in REASON_ORDER if q["idle_us"].get(k, 0) >= 0.005)
        out.append(f"{q['side'] + ' ' + q['pipe']:<14}{q['busy_us']:>9.2f}{100 * q['ratio']:>7.1f}%   {idle}")
    out += ["", f"{'busy':>7}{'waits':>10}  line"]
    for line in p.lines[:12]:
        waits = sum(line.wait_us.values())
        if line.share < 0.0005 and waits < 0.005:
            continue
        out.append(f"{100 * line.share:>6.1f}%{waits:>7.1f} us  {line.file}:{line.line}  {line.source.strip()}")
    out += ["", "what if"]
    for question, us in p.what_if.items():
        out.append(f"  {question:<38}{us:>10.2f} us  {100 * (us - p.us) / p.us if p.us else 0:>+6.1f} %")
    if p.advice:
        out += ["", "advice"] + [f"  - {a}" for a in p.advice]
    return "\n".join(out) + "\n"
