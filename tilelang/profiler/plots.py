"""Pictures of a profile by matplotlib: the roofline, the pipes, the memories over the program."""

import os

from ..errors import file_name


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        from ..errors import ArgumentError

        raise ArgumentError("pictures need matplotlib", "pip install matplotlib") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tilelang"  # the same bytes every time
    import matplotlib.pyplot as plt

    return plt


def _roofline(plt, p):
    import numpy

    r = p.roofline
    fig, ax = plt.subplots(figsize=(6, 4))
    gbps = r["memory_peak"] / r["intensity"] * 1e3 if r["intensity"] else 1.0
    ridge = r["compute_peak"] / gbps * 1e3
    low, high = min(r["intensity"], ridge) / 8, max(r["intensity"], ridge) * 8
    x = numpy.geomspace(low, high, 200)
    ax.loglog(x, numpy.minimum(x * gbps * 1e-3, r["compute_peak"]), color="black")
    ax.loglog([r["intensity"]], [r["achieved"]], "o", color="tab:red")
    ax.annotate(p.name, (r["intensity"], r["achieved"]), textcoords="offset points", xytext=(6, -12))
    ax.set_xlabel("operations a byte of HBM traffic")
    ax.set_ylabel("tera-operations a second")
    ax.set_title(f"{p.name} on {p.chip}: {r['bound']} bound")
    return fig


def _pipes(plt, p):
    from .table import REASON_ORDER

    rows = [q for q in p.pipes if q["busy_us"]]
    fig, ax = plt.subplots(figsize=(7, 0.5 * len(rows) + 1.5))
    left = [0.0] * len(rows)
    for part in ("busy", *REASON_ORDER):
        width = [q["busy_us"] if part == "busy" else q["idle_us"].get(part, 0.0) for q in rows]
        ax.barh([f"{q['side']} {q['pipe']}" for q in rows], width, left=left, label=part)
        left = [a + b for a, b in zip(left, width)]
    ax.invert_yaxis()
    ax.set_xlabel("microseconds, mean over cores")
    ax.legend(fontsize=7, ncol=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return fig


def _memory(plt, p):
    """Which buffer holds which bytes of its memory during which statements of the lowered program."""
    told = p.kernel.explain_json()
    spaces = [m for m in told["memory"] if m["used"]]
    fig, axes = plt.subplots(len(spaces), 1, figsize=(7, 2.2 * len(spaces)), squeeze=False)
    for ax, m in zip(axes[:, 0], spaces):
        for n, b in enumerate(x for x in told["buffers"] if x["space"] == m["space"] and x["live"]):
            first, last = b["live"]
            ax.add_patch(
                plt.Rectangle((first, b["addr"]), max(last - first, 1), b["bytes"], color=f"C{n % 10}", alpha=0.6)
            )
            ax.text(first, b["addr"] + b["bytes"] / 2, b["name"], fontsize=6, va="center")
        ax.set_xlim(0, max((b["live"][1] for b in told["buffers"] if b["live"]), default=1) + 1)
        ax.set_ylim(0, m["available"])
        ax.set_ylabel(f"{m['space']} bytes")
    axes[-1, 0].set_xlabel("statement of the lowered program")
    return fig


def write_plots(profile, folder, format="svg"):
    """Writes roofline, pipes and memory pictures into `folder`; returns their paths."""
    plt = _pyplot()
    folder = file_name(folder, "profile.save_plots")
    os.makedirs(folder, exist_ok=True)
    paths = []
    for name, draw in (("roofline", _roofline), ("pipes", _pipes), ("memory", _memory)):
        if name == "roofline" and not profile.flops:
            continue
        fig = draw(plt, profile)
        path = os.path.join(folder, f"{name}.{format}")
        fig.savefig(path, bbox_inches="tight", metadata={"Date": None} if format == "svg" else None)
        plt.close(fig)
        paths.append(path)
    return paths
