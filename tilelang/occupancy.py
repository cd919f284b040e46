"""A picture of the memories over time: which bytes hold which buffer while which statements run.

Both forms read `kernel.explain_json()`: `text(data)` gives rows of letters, `svg(data)` a drawing. Time runs to the
right, in statements of the lowered program in the order of the text; addresses run upwards. What is empty was free. A
buffer stands from its first to its last statement; in a loop the planner keeps it until the loop's end where the next
iteration needs it.
"""

from xml.sax.saxutils import escape, quoteattr

_ROWS, _COLUMNS = 12, 72
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_COLOURS = "#4e79a7 #f28e2b #59a14f #e15759 #76b7b2 #edc948 #b07aa1 #9c755f #ff9da7 #bab0ac".split()


class Box:
    """One buffer: bytes [low, high) from statement `begin` to `end`."""

    __slots__ = ("name", "what", "low", "high", "begin", "end", "line", "why")

    def __init__(self, b):
        self.name, self.low, self.high = b["name"], b["addr"], b["addr"] + b["bytes"]
        self.begin, self.end = b["live"]
        self.what = f"{b['dtype']}[{', '.join(str(n) for n in b['shape'])}]"
        self.line, self.why = b["line"], b.get("why") or ""

    def label(self):
        where = f", line {self.line}" if self.line else ""
        return f"{self.name} {self.what}: {self.high - self.low} bytes at {self.low}{where}"


def memories(data):
    """[(name, bytes used, bytes available, boxes by address)] of the memories that hold something."""
    out = []
    for m in data["memory"]:
        boxes = [Box(b) for b in data["buffers"] if b["space"] == m["space"] and b["addr"] >= 0 and b["live"]]
        boxes = [b for b in boxes if b.high > b.low and b.begin]
        if boxes:
            out.append((m["space"], m["used"], m["available"], sorted(boxes, key=lambda b: (b.low, b.begin, b.name))))
    return out


def _span(found):
    boxes = [b for _, _, _, bs in found for b in bs]
    return min(b.begin for b in boxes), max(b.end for b in boxes) + 1


def text(data):
    """Rows of letters, a picture a memory; the lowest addresses at the bottom. Empty when nothing has an address."""
    found = memories(data)
    if not found:
        return ""
    first, last = _span(found)
    columns = min(_COLUMNS, last - first)
    out = [f"occupancy over time (statements {first} to {last - 1}, left to right)"]
    for space, used, available, boxes in found:
        rows = min(_ROWS, len({b.low for b in boxes} | {b.high for b in boxes}) * 2)
        out.append(f"\n{space}: {used} of {available} bytes")
        for row in reversed(range(rows)):
            low, high = used * row // rows, used * (row + 1) // rows
            line = ""
            for col in range(columns):
                t = [first + (last - first) * c / columns for c in (col, col + 1)]
                band = [n for n, b in enumerate(boxes) if b.low < high and b.high > low]
                here = [n for n in band if boxes[n].begin < t[1] and boxes[n].end + 1 > t[0]]
                line += "." if not here else _LETTERS[here[0] % len(_LETTERS)] if len(here) == 1 else "*"
            out.append(f"{low:9d} |{line}|")
        out += [f"  {_LETTERS[n % len(_LETTERS)]} {b.label()}" for n, b in enumerate(boxes)]
    if any("*" in line for line in out):
        out.append("  * several buffers in one cell")
    return "\n".join(out) + "\n"


def svg(data):
    """A drawing of its own, with a tooltip a buffer; no scripts, nothing fetched."""
    found = memories(data)
    width, left, top, gap = 960, 90, 40, 46
    heights = [max(90, min(260, 24 * len(b))) for *_, b in found]
    height = top + sum(h + gap for h in heights) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="14">{escape(data["kernel"])}: memories of {escape(data["chip"])}</text>',
    ]
    y = top
    first, last = _span(found) if found else (0, 1)
    across = (width - left - 20) / (last - first)
    for (space, used, available, boxes), h in zip(found, heights):
        scale = h / max(used, 1)
        out.append(f'<text x="10" y="{y + 12}" font-weight="bold">{space}</text>')
        out.append(f'<text x="{left}" y="{y + h + 14}" fill="#555">{used} of {available} bytes used; statements'
                   f" {first} to {last - 1}</text>")  # fmt: skip
        out.append(f'<rect x="{left}" y="{y}" width="{width - left - 20}" height="{h}" fill="#f4f4f4" stroke="#999"/>')
        for n, b in enumerate(boxes):
            x, w = left + (b.begin - first) * across, (b.end + 1 - b.begin) * across
            high, tall = y + h - b.high * scale, (b.high - b.low) * scale
            title = escape(b.label() + (f"; {b.why}" if b.why else ""))
            out.append(
                f'<g><rect x="{x:.1f}" y="{high:.1f}" width="{w:.1f}" height="{tall:.1f}"'
                f' fill={quoteattr(_COLOURS[n % len(_COLOURS)])} fill-opacity="0.85" stroke="white"/>'
            )
            if tall >= 11 and w >= 7 * len(b.name):
                out.append(f'<text x="{x + 3:.1f}" y="{high + tall / 2 + 4:.1f}" fill="white">{escape(b.name)}</text>')
            out.append(f"<title>{title}</title></g>")
        y += h + gap
    return "\n".join([*out, "</svg>", ""])
