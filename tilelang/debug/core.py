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
