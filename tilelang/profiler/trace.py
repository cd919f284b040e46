"""A profile as a Chrome trace: https://ui.perfetto.dev and MindStudio Insight open it.

Processes are cores, threads are pipes; a complete event ("X") is one instruction, on pipe S what it does on end for one
statement. Slices of a thread must not overlap, so one ends where the next of its pipe begins; `complete_us` says when
its bytes are there. Where an instruction waited for one of another pipe or core, a flow arrow ("s" to "f") leads from
that one to it; that pipe S issued it is no arrow. Times are microseconds."""

import json

import numpy as np

from ..errors import file_name

PIPE_ORDER = ("s", "mte2", "mte1", "m", "fix", "v", "mte3")
AT_ONCE = 20_000  # events that are written together


def pipe_numbers(events):
    """The place of each event's pipe in PIPE_ORDER."""
    known = np.array(PIPE_ORDER, "S4")
    order = np.argsort(known)
    return order[np.searchsorted(known, events["pipe"], sorter=order)]


def shown_ends(events):
    """When the slice of each event ends: with the event, or where the next one of its pipe begins."""
    lane, start, ends = events["core"] * len(PIPE_ORDER) + pipe_numbers(events), events["start_us"], events["end_us"]
    by_lane = np.lexsort((start, lane))
    last = np.append(np.diff(lane[by_lane]) != 0, True)
    ends = ends.copy()
    ends[by_lane] = np.where(last, ends[by_lane], np.minimum(ends[by_lane], np.append(start[by_lane][1:], 0.0)))
    return np.maximum(ends, start)


def _meta(what, pid, tid, args):
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}, separators=(",", ":"))


def _lanes(profile):
    for n, core in enumerate(profile.cores):
        yield _meta("process_name", n, 0, {"name": f"{core['kind']} core {core['number']}"})
        yield _meta("process_sort_index", n, 0, {"sort_index": n})
        for t, pipe in enumerate(PIPE_ORDER):
            if (n, pipe) in profile.lanes:
                yield _meta("thread_name", n, t, {"name": pipe.upper()})
                yield _meta("thread_sort_index", n, t, {"sort_index": t})


def _slices(profile):
    """JSON of the events and arrows, as text: a million of them as objects take minutes."""
    events = profile.events
    if not len(events):
        return
    pipes, starts, ends = pipe_numbers(events), np.round(events["start_us"], 6), np.round(shown_ends(events), 6)
    cause = events["cause"]
    other = np.maximum(cause, 0)
    same = (events["core"][other] == events["core"]) & (pipes[other] == pipes)
    arrow = (cause >= 0) & (pipes[other] != 0) & ~same  # pipe 0 is S
    leaves = np.round(starts[other] + 0.99 * (ends[other] - starts[other]), 6)  # within its slice, or it is another's
    lasts = np.round(ends - starts, 6)
    name = [json.dumps(s["text"].split(" ", 1)[0]) for s in profile.statements]
    args = [json.dumps({"line": f"{s['file']}:{s['line']}", "statement": s["text"]}, separators=(",", ":"))[:-1]
            for s in profile.statements]  # fmt: skip
    flag = '"name":"flag","cat":"flag","ts":'
    rows = [events["core"], pipes, events["statement"], starts, lasts, np.round(events["end_us"], 6), arrow,
            events["core"][other], pipes[other], leaves]  # fmt: skip
    for first in range(0, len(events), AT_ONCE):
        columns = [c[first : first + AT_ONCE].tolist() for c in rows]
        for i, (c, p, s, ts, dur, end, has, c2, p2, ts2) in enumerate(zip(*columns), first):
            at = f'{ts},"pid":{c},"tid":{p}'
            yield (f'{{"ph":"X","name":{name[s]},"cat":"{PIPE_ORDER[p]}","ts":{at},"dur":{dur},'
                   f'"args":{args[s]},"complete_us":{end}}}}}')  # fmt: skip
            if has:
                yield f'{{"ph":"s","id":{i},{flag}{ts2},"pid":{c2},"tid":{p2}}}'
                yield f'{{"ph":"f","bp":"e","id":{i},{flag}{at}}}'


def write_trace(profile, path):
    """Writes the trace to `path` and returns it."""
    about = {"kernel": profile.name, "chip": profile.chip, "us": profile.us, "clock": "simulated",
             "events": profile.n_events, "shown": len(profile.events)}  # fmt: skip
    with open(file_name(path, "profile.save_trace"), "w", encoding="utf-8") as f:
        f.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
        before = ""
        for some in (_lanes(profile), _slices(profile)):
            for text in some:
                f.write(before + text)
                before = ",\n"
        f.write("\n]}\n")
    return path
