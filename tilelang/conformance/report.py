"""The table as text, JSON and one HTML page that needs nothing else."""

import collections
import html
import json
import os

from .outcome import STATUSES


def read(path):
    """The results in a file of JSON lines. Lines that are no results are left out: an interruption or a full disk cut
    them short, or somebody edited them; those programs run again."""
    if not path.exists():
        return []
    results = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            r = json.loads(line)
        except (ValueError, RecursionError):
            continue
        results += [r] if isinstance(r, dict) and _is_result(r) else []
    return results


def _is_result(r):
    case = isinstance(r.get("case"), (str, type(None)))
    texts = case and all(isinstance(r.get(k, ""), str) for k in ("reason", "finding"))
    numbers = all(
        isinstance(v := r.get(k, 0), (int, float)) and abs(v) < 1e12
        for k in ("seconds", "run_seconds", "compile_seconds", "megabytes")
    )
    named = isinstance(r.get("file"), str) and isinstance(r.get("status"), str) and r["status"] in STATUSES
    return named and texts and numbers


def summary(results):
    """{"files": {status: n}, "cases": {status: n}}; a file counts as its worst case."""
    cases = collections.Counter(r["status"] for r in results)
    files = collections.Counter(file_statuses(results).values())
    return {"files": _ordered(files), "cases": _ordered(cases), "n_files": sum(files.values()), "n_cases": len(results)}


def _ordered(counter):
    return {s: counter[s] for s in STATUSES if counter[s]}


def file_statuses(results):
    """{file: its worst status}; a file whose every case skips itself is skipped."""
    by_file = collections.defaultdict(list)
    for r in results:
        by_file[r["file"]].append(r["status"])
    out = {}
    for name, statuses in by_file.items():
        bad = [s for s in statuses if s not in ("pass", "skipped")]
        out[name] = (
            collections.Counter(bad).most_common(1)[0][0] if bad else ("pass" if "pass" in statuses else "skipped")
        )
    return out


def causes(results):
    """[(reason with its names taken out, number of files, number of cases, one example)], most files first."""
    seen = {}
    for r in results:
        if r["status"] in ("pass", "skipped"):
            continue
        slot = seen.setdefault((r["status"], general(r.get("reason", ""))), (set(), [0], r))
        slot[0].add(r["file"])
        slot[1][0] += 1
    rows = [(s, g, len(files), n[0], r) for (s, g), (files, n, r) in seen.items()]
    return sorted(rows, key=lambda row: (-row[2], -row[3], row[0], row[1]))


def general(reason):
    """A reason without what differs from program to program: numbers, names in quotes and places."""
    import re

    text = re.sub(r"\([^()]*\.py:\d+\)", "", reason)
    text = re.sub(r"%\w+(\.\w+)*", "%_", text)
    text = re.sub(r"'[^']*'", "'_'", text)
    text = re.sub(r"\b\d[\d.]*\b", "N", text)
    return " ".join(text.split())[:140]


def text(results, folder):
    s = summary(results)
    width = max([len(r["file"]) for r in results] or [4])
    out = [
        f"tilelang conformance: {folder}",
        "",
        f"files {s['files'].get('pass', 0)} of {s['n_files']} pass: "
        + ", ".join(f"{n} {k}" for k, n in s["files"].items()),
        f"cases {s['cases'].get('pass', 0)} of {s['n_cases']} pass: "
        + ", ".join(f"{n} {k}" for k, n in s["cases"].items()),
        (
            f"simulator {sum(r.get('run_seconds', 0) for r in results):.1f} s, compiler"
            f" {sum(r.get('compile_seconds', 0) for r in results):.1f} s, all"
            f" {sum(r.get('seconds', 0) for r in results):.1f} s"
        ),
        "",
        "what blocks most files",
    ]
    for status, reason, files, cases, _ in causes(results)[:40]:
        out.append(f"  {files:4d} files {cases:5d} cases  {status}: {reason}")
    out += ["", "ten slowest in the simulator"]
    for r in sorted(results, key=lambda r: -r.get("run_seconds", 0))[:10]:
        out.append(f"  {r.get('run_seconds', 0):8.1f} s  {name(r)}")
    out += ["", f"{'file':{width}}  {'status':14} {'sim s':>7} {'all s':>7}  case · reason"]
    for r in results:
        note = " · ".join(
            x for x in (r.get("case") or "", r.get("finding") and f"finding: {r['finding']}", r.get("reason")) if x
        )
        out.append(
            f"{r['file']:{width}}  {r['status']:14} {r.get('run_seconds', 0):7.2f} {r.get('seconds', 0):7.2f}  {note}"
        )
    return "\n".join(out) + "\n"


def name(r):
    return f"{r['file']}::{r['case']}" if r.get("case") else r["file"]


_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1400px;padding:0 1em;color:#1b1f24;background:#fff}
h1{font-size:1.4em}table{border-collapse:collapse;width:100%;margin:1em 0}th,td{text-align:left;padding:.25em .6em;
border-bottom:1px solid #e3e6ea;vertical-align:top}th{position:sticky;top:0;background:#fff;cursor:pointer}
td.n{text-align:right;font-variant-numeric:tabular-nums}.s{font-weight:600;white-space:nowrap}.pass{color:#1a7f37}
.wrong,.fault,.crash{color:#b3261e}.compile,.error{color:#9a5b00}.unsupported,.missing{color:#6639ba}
.time-out{color:#0a5a8a}
.skipped{color:#6e7781}.bar{display:flex;height:14px;border-radius:4px;overflow:hidden;margin:.6em 0}
.bar div{height:100%}
input{font:inherit;padding:.3em .6em;width:30em;max-width:100%}code{font-size:12.5px;word-break:break-word}
@media(prefers-color-scheme:dark){body,th{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}}
"""

_SCRIPT = """
const q=document.getElementById('q'),rows=[...document.querySelectorAll('#all tbody tr')];
q.oninput=()=>{const w=q.value.toLowerCase();rows.forEach(r=>r.hidden=!r.textContent.toLowerCase().includes(w))};
document.querySelectorAll('th').forEach(h=>h.onclick=()=>{const t=h.closest('table'),b=t.tBodies[0],i=h.cellIndex,
d=h.dataset.d=h.dataset.d=='1'?'-1':'1';[...b.rows].sort((x,y)=>
{const a=x.cells[i].textContent,c=y.cells[i].textContent,
n=parseFloat(a)-parseFloat(c);return d*(isNaN(n)?a.localeCompare(c):n)}).forEach(r=>b.append(r))});
"""

_COLOURS = {
    "pass": "#2da44e", "fault": "#cf222e", "wrong numbers": "#e5534b", "compile error": "#d4a72c",
    "unsupported": "#8250df",
    "time-out": "#218bff", "missing module": "#a475f9", "error": "#bf8700", "crash": "#82071e", "skipped": "#8c959f",
}  # fmt: skip


def page(results, folder):
    s, e = summary(results), html.escape
    cls = {k: k.split()[0] for k in STATUSES}

    def bar(counts, total):
        parts = "".join(
            f'<div style="width:{100 * n / max(total, 1):.2f}%;background:{_COLOURS[k]}" title="{n} {k}"></div>'
            for k, n in counts.items()
        )
        return f'<div class="bar">{parts}</div>' + ", ".join(
            f'<span class="s {cls[k]}">{n} {k}</span>' for k, n in counts.items()
        )

    blocked = "".join(
        f'<tr><td class="n">{files}</td><td class="n">{cases}</td><td class="s {cls[status]}">{status}</td>'
        f"<td><code>{e(reason)}</code></td><td>{e(name(r))}</td></tr>"
        for status, reason, files, cases, r in causes(results)
    )
    rows = "".join(
        f'<tr><td>{e(r["file"])}</td><td><code>{e(r.get("case") or "")}</code></td><td class="s'
        f' {cls[r["status"]]}">{r["status"]}'
        f'{" (finding)" if r.get("finding") else ""}</td><td class="n">{r.get("run_seconds", 0):.2f}</td>'
        f'<td class="n">{r.get("seconds", 0):.2f}</td><td class="n">{r.get("megabytes", 0):.0f}</td>'
        f"<td><code>{e(r.get('finding') or r.get('reason') or '')}</code></td></tr>"
        for r in results
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Conformance</title><style>{_STYLE}</style>
<h1>Conformance: {e(str(folder))}</h1>
<p>{s["files"].get("pass", 0)} of {s["n_files"]} files pass</p>{bar(s["files"], s["n_files"])}
<p>{s["cases"].get("pass", 0)} of {s["n_cases"]} cases pass</p>{bar(s["cases"], s["n_cases"])}
<h2>What blocks most files</h2><table><thead><tr><th>files<th>cases<th>status<th>reason<th>example</thead><tbody>
{blocked}</tbody></table>
<h2>Everything</h2><p><input id="q" placeholder="filter"></p><table id="all"><thead><tr><th>file<th>case<th>status<th>
simulator s
<th>all s<th>MB<th>reason</thead><tbody>{rows}</tbody></table><script>{_SCRIPT}</script></html>
"""


def write(results, folder, out):
    """report.txt, report.json and report.html in the folder `out`."""
    results = sorted(results, key=lambda r: (r["file"], r.get("order", 0)))
    os.makedirs(out, exist_ok=True)
    data = {"folder": str(folder), "summary": summary(results), "results": results}
    for ending, content in (
        ("txt", text(results, folder)),
        ("json", json.dumps(data, indent=1)),
        ("html", page(results, folder)),
    ):
        path = os.path.join(out, "report." + ending)
        with open(path + ".part", "w", encoding="utf-8") as f:
            f.write(content)
        os.replace(path + ".part", path)
    return data["summary"]
