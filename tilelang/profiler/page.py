"""A profile as one HTML file: figures, cost by line, and a timeline on a canvas to zoom into. Nothing is loaded from
anywhere; the data stand in the page as JSON. `page.html#from=3&to=5` opens at 3 to 5 us."""

import json

import numpy as np

from ..errors import file_name
from .trace import PIPE_ORDER, pipe_numbers

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>@TITLE@</title>
<style>
body { font: 13px/1.45 system-ui, sans-serif; margin: 16px; color: #1c1e21 }
h1 { font-size: 17px; margin: 0 0 4px } pre { background: #f5f6f7; padding: 10px; overflow-x: auto }
#bar { display: flex; gap: 12px; align-items: center; margin: 8px 0 } #bar button { font: inherit }
#time { width: 100%; height: 460px; border: 1px solid #ccd0d5; display: block; cursor: grab }
#tip { position: fixed; background: #1c1e21; color: #fff; padding: 6px 8px; border-radius: 3px; pointer-events: none;
       display: none; max-width: 640px; white-space: pre-wrap; font: 12px/1.4 ui-monospace, monospace }
.key i { display: inline-block; width: 10px; height: 10px; margin: 0 4px 0 10px }
</style>
<h1>@TITLE@</h1>
<div id="bar"><button id="all">whole</button><button id="in">+</button><button id="out">-</button>
<label><input type="checkbox" id="arrows" checked> flags as arrows</label><span class="key" id="key"></span>
<span id="span"></span></div>
<canvas id="time"></canvas><div id="tip"></div>
<p>Wheel: zoom at the pointer. Drag: move along time; with shift: up and down the cores. Double click: the whole.
@LESS@</p>
<pre>@TABLE@</pre>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("time"), tip = document.getElementById("tip"), ctx = canvas.getContext("2d");
const COLOR = {s: "#8d949e", mte2: "#2f7ed8", mte1: "#63b5f2", m: "#d9534f", fix: "#a05eb5",
  v: "#3c9d4e", mte3: "#e8a33d"};
const ROW = 14, GAP = 6, LEFT = 130, TOP = 20;
const rows = [], rowOf = new Map();
D.cores.forEach((c, n) => c.pipes.forEach((p, i) => {
  rowOf.set(n + p, rows.length);
  rows.push({core: n, pipe: p, first: i === 0, y: 0, events: []});
}));
let y = 0;
for (const r of rows) { if (r.first) y += GAP; r.y = y; y += ROW; }
const height = y;
const E = D.events;
E.core.forEach((c, i) => rows[rowOf.get(c + D.order[E.pipe[i]])].events.push(i));
for (const r of rows) r.events.sort((a, b) => E.start[a] - E.start[b]);
const view = {from: 0, to: D.us, up: 0};
document.getElementById("key").innerHTML = D.order.map(p => `<i style="background:${COLOR[p]}"></i>${p}`).join("");

function firstAfter(list, t) { // the first event of a row that ends after t
  let lo = 0, hi = list.length;
  while (lo < hi) { const m = (lo + hi) >> 1; if (E.end[list[m]] < t) lo = m + 1; else hi = m; }
  return lo;
}
function x(t) { return LEFT + (t - view.from) / (view.to - view.from) * (canvas.width / devicePixelRatio - LEFT); }
function timeAt(px) {
  return view.from + (px - LEFT) / (canvas.width / devicePixelRatio - LEFT) * (view.to - view.from);
}
function draw() {
  const w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = w * devicePixelRatio; canvas.height = h * devicePixelRatio;
  ctx.scale(devicePixelRatio, devicePixelRatio);
  ctx.clearRect(0, 0, w, h);
  ctx.font = "10px system-ui"; ctx.textBaseline = "middle";
  const least = (view.to - view.from) * 90 / (w - LEFT), ten = Math.pow(10, Math.floor(Math.log10(least)));
  const step = ten * [1, 2, 5, 10].find(n => n * ten >= least); // labels are 90 pixels apart, or more
  ctx.fillStyle = "#606770";
  for (let t = Math.ceil(view.from / step) * step; t < view.to; t += step) {
    ctx.fillRect(x(t), 0, 0.5, h); ctx.fillText(t.toPrecision(6) / 1 + " us", x(t) + 3, 8);
  }
  let shown = 0;
  for (const r of rows) {
    const top = TOP + r.y - view.up;
    if (top + ROW < TOP || top > h) continue;
    ctx.fillStyle = "#1c1e21";
    if (r.first) ctx.fillText(D.cores[r.core].name, 4, top + ROW / 2);
    ctx.fillText(r.pipe, 92, top + ROW / 2);
    ctx.fillStyle = COLOR[r.pipe];
    let until = -1;
    for (let k = firstAfter(r.events, view.from); k < r.events.length; k++) {
      const e = r.events[k];
      if (E.start[e] > view.to) break;
      const a = Math.max(x(E.start[e]), LEFT), b = Math.max(x(E.end[e]), a + 0.4);
      if (b < until) continue; // several events in a pixel: one box
      ctx.fillRect(a, top + 1, Math.max(b - a - 0.2, 0.6), ROW - 3);
      until = Math.max(until, a + 0.4); shown++;
    }
  }
  if (document.getElementById("arrows").checked && shown < 3000) arrows(h);
  document.getElementById("span").textContent =
    `${(view.to - view.from).toPrecision(4)} us of ${D.us.toFixed(2)}, ${shown} boxes`;
  canvas.dataset.shown = shown;
}
function arrows(h) {
  ctx.strokeStyle = "rgba(60,60,60,.55)"; ctx.lineWidth = 0.7;
  for (const r of rows) {
    const top = TOP + r.y - view.up + ROW / 2;
    if (top < TOP || top > h) continue;
    for (let k = firstAfter(r.events, view.from); k < r.events.length; k++) {
      const e = r.events[k], c = E.cause[e];
      if (E.start[e] > view.to) break;
      if (c < 0) continue;
      const pipe = D.order[E.pipe[c]], from = rows[rowOf.get(E.core[c] + pipe)];
      if (from === r || pipe === "s") continue;
      ctx.beginPath(); ctx.moveTo(Math.max(x(E.end[c]), LEFT), TOP + from.y - view.up + ROW / 2);
      ctx.lineTo(Math.max(x(E.start[e]), LEFT), top); ctx.stroke();
    }
  }
}
function zoom(factor, px) {
  const t = timeAt(px === undefined ? LEFT + (canvas.clientWidth - LEFT) / 2 : px);
  const from = t - (t - view.from) * factor, to = t + (view.to - t) * factor;
  view.from = Math.max(0, from); view.to = Math.min(D.us, Math.max(to, view.from + 1e-4)); draw();
}
canvas.addEventListener("wheel", e => {
  e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, e.offsetX);
}, {passive: false});
canvas.addEventListener("dblclick", () => { view.from = 0; view.to = D.us; view.up = 0; draw(); });
let held = null;
canvas.addEventListener("pointerdown", e => {
  held = {x: e.offsetX, y: e.offsetY, from: view.from, to: view.to, up: view.up};
});
addEventListener("pointerup", () => { held = null; });
canvas.addEventListener("pointermove", e => {
  if (held) {
    const span = held.to - held.from, dt = (e.offsetX - held.x) / (canvas.clientWidth - LEFT) * span;
    view.from = Math.min(Math.max(held.from - dt, 0), Math.max(D.us - span, 0)); view.to = view.from + span;
    if (e.shiftKey) view.up = Math.max(0, Math.min(held.up - (e.offsetY - held.y), Math.max(height - 300, 0)));
    draw(); return;
  }
  const t = timeAt(e.offsetX), at = e.offsetY - TOP + view.up, r = rows.find(r => at >= r.y && at < r.y + ROW);
  const e2 = r ? r.events[firstAfter(r.events, t)] : undefined, from = E.start[e2], to = E.end[e2];
  if (e2 === undefined || from > t) { tip.style.display = "none"; return; }
  const s = D.statements[E.statement[e2]];
  tip.textContent = `${s[0]}\\n${s[1]}\\n${from.toFixed(3)} to ${to.toFixed(3)} us: ${(to - from).toFixed(3)} us`;
  tip.style.display = "block"; tip.style.left = e.clientX + 14 + "px"; tip.style.top = e.clientY + 10 + "px";
});
document.getElementById("all").onclick = () => canvas.dispatchEvent(new Event("dblclick"));
document.getElementById("in").onclick = () => zoom(0.5);
document.getElementById("out").onclick = () => zoom(2);
document.getElementById("arrows").onchange = draw;
addEventListener("resize", draw);
for (const [name, value] of new URLSearchParams(location.hash.slice(1)))
  if (name in view && isFinite(value)) view[name] = +value;
draw();
</script></html>
"""


def _escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def write_page(profile, path):
    """Writes the page to `path` and returns it."""
    events = profile.events
    columns = {c: events[c] for c in ("core", "statement", "cause")} | {"pipe": pipe_numbers(events)}
    columns |= {"start": np.round(events["start_us"], 4), "end": np.round(events["end_us"], 4)}
    data = {
        "us": profile.us,
        "order": PIPE_ORDER,
        "cores": [
            {"name": f"{c['kind']} {c['number']}", "pipes": [p for p in PIPE_ORDER if (n, p) in profile.lanes]}
            for n, c in enumerate(profile.cores)
        ],
        "statements": [[f"{s['file']}:{s['line']}", s["text"]] for s in profile.statements],
        "events": {name: column.tolist() for name, column in columns.items()},
    }
    told = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    n = profile.n_events
    less = f"It shows the first {len(events)} of {n} events." if len(events) < n else ""
    title = _escape(f"{profile.name} on {profile.chip}: {profile.us:.2f} us")
    page = _PAGE
    for mark, text in (("TITLE", title), ("LESS", less), ("TABLE", _escape(str(profile))), ("DATA", told)):
        page = page.replace(f"@{mark}@", text)
    with open(file_name(path, "profile.save_html"), "w", encoding="utf-8") as f:
        f.write(page)
    return path
