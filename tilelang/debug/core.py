"""The C core as the debugging tools use it: texts in, texts, numbers and diagnostics out."""

import json

from .. import _core
from ..errors import CompileError, from_core


def diagnostics(p, paths=None):
    """What the core found, as Diagnostics; forgets it."""
    found = from_core(json.loads(p.diags_json()), paths or {})
    p.diags_clear()
    return found


def parsed(text, name="kernel.tl", paths=None):
    """A core Program that holds IR text; CompileError when the text has errors."""
    p = _core.Program()
    if not p.load(name, text):
        raise CompileError(diagnostics(p, paths))
    return p


def lowered(text, paths=None, **options):
    """A core Program lowered from IR text of any stage; CompileError when a pass refuses it."""
    p = parsed(text, paths=paths)
    if not p.lower(**options):
        raise CompileError(diagnostics(p, paths))
    return p


def stages(text, paths=None, **options):
    """[(pass name, IR text after it)] in order, the last one lowered."""
    p = lowered(text, paths, keep_text=True, **options)
    return [(name, p.text_after(name)) for name, _ in _core.passes()]


def simulate(p, args, checks=False, schedule=0, threads=0):
    """Runs a lowered core Program: arrays are written in place, numbers are scalars. The Diagnostics of its faults."""
    given = [(a.ctypes.data if a.size else 0, a.shape) if hasattr(a, "ctypes") else a for a in args]
    ok, _ = p.sim(given, checks=checks, schedule=schedule, threads=threads)
    found = diagnostics(p)
    return [] if ok else [d for d in found if d.severity == "error"] or found
