"""A profile as a Chrome trace: https://ui.perfetto.dev and MindStudio Insight open it.

Processes are cores, threads are pipes; a complete event ("X") is one instruction, on pipe S what it does on end for one
statement. Slices of a thread must not overlap, so one ends where the next of its pipe begins; `complete_us` says when
its bytes are there. Where an instruction waited for one of another pipe or core, a flow arrow ("s" to "f") leads from
that one to it; that pipe S issued it is no arrow. Times are microseconds."""

import json

PIPE_ORDER = ("s", "mte2", "mte1", "m", "fix", "v", "mte3")


def shown_ends(events):
    """When the slice of each event ends: with the event, or where the next one of its pipe begins."""
    ends, later = [end for _, _, _, _, end, _ in events], {}
    for i in sorted(range(len(events)), key=lambda i: (events[i][3], i), reverse=True):
        lane = events[i][0], events[i][2]
        ends[i] = max(min(ends[i], later.get(lane, ends[i])), events[i][3])
        later[lane] = events[i][3]
    return ends


def trace_events(profile):
    """The list of trace events of a profile."""
    out = []
    events = profile.events
    ends = shown_ends(events)
    for n, core in enumerate(profile.cores):
        out.append(_meta("process_name", n, 0, f"{core['kind']} core {core['number']}"))
        out.append({"ph": "M", "name": "process_sort_index", "pid": n, "tid": 0, "args": {"sort_index": n}})
        for t, pipe in enumerate(PIPE_ORDER):
            if (n, pipe) in profile.lanes:
                out.append(_meta("thread_name", n, t, pipe.upper()))
                out.append({"ph": "M", "name": "thread_sort_index", "pid": n, "tid": t, "args": {"sort_index": t}})
    for i, (core, statement, pipe, start, end, cause) in enumerate(events):
        s = profile.statements[statement]
        at = {"pid": core, "tid": PIPE_ORDER.index(pipe)}
        args = {"line": f"{s['file']}:{s['line']}", "statement": s["text"], "complete_us": end}
        out.append(
            {
                "ph": "X",
                "name": s["text"].split(" ", 1)[0],
                "cat": pipe,
                "ts": start,
                "dur": ends[i] - start,
                **at,
                "args": args,
            }
        )
        if cause < 0 or events[cause][2] == "s" or (events[cause][0] == core and events[cause][2] == pipe):
            continue
        other = events[cause]
        out.append(
            {
                "ph": "s",
                "id": i,
                "name": "flag",
                "cat": "flag",
                "ts": other[3] + 0.99 * (ends[cause] - other[3]),  # within its slice, or the arrow starts at another
                "pid": other[0],
                "tid": PIPE_ORDER.index(other[2]),
            }
        )
        out.append({"ph": "f", "bp": "e", "id": i, "name": "flag", "cat": "flag", "ts": start, **at})
    return out


def _meta(what, pid, tid, name):
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def write_trace(profile, path):
    """Writes the trace to `path` and returns it."""
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"kernel": profile.name, "chip": profile.chip, "us": profile.us, "clock": "simulated"},
        "traceEvents": trace_events(profile),
    }
    with open(path, "w", encoding="utf-8") as f:
        json.dump(document, f, separators=(",", ":"))
    return path
