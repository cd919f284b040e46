"""Errors: what the front end and the C core report, as Python exceptions.

A `Diagnostic` is one sentence about one place (a Python line, mostly), at most one second place, at most one thing to
change. The C core hands diagnostics over as JSON; the front end makes its own with the codes 10xx (and, where the fact
is the same, the core's). `CompileError` and `KernelFault` carry a list of them and print each with its source line.
"""

import linecache
import os
import sys

# number -> (severity, title); the 10xx lines are the Python section of src/base/diag.def (test/python compares them)
CODES = {
    501: ("error", "shapes of a copy do not agree"),
    502: ("error", "shapes of a matrix product do not agree"),
    1001: ("error", "unknown name in T"),
    1002: ("error", "not supported yet"),
    1003: ("error", "unknown dtype"),
    1004: ("error", "wrong argument in a kernel"),
    1005: ("error", "a value of the chip used as a Python value"),
    1006: ("error", "wrong place for this statement"),
    1007: ("error", "a name that changes in a run-time loop"),
    1008: ("error", "a name that is not known here"),
    1009: ("error", "kernel source is not available"),
    1010: ("error", "wrong kernel signature"),
    1011: ("error", "index or slice does not fit"),
    1012: ("error", "element counts of a tile operation do not agree"),
    1013: ("error", "a size that no tensor gives"),
    1020: ("warning", "option without effect"),
    1021: ("note", "hint ignored on this chip"),
    1022: ("warning", "tensor read in another shape"),
    1023: ("warning", "name shadowed inside a run-time loop"),
    1024: ("warning", "count larger than the tile"),
    1030: ("error", "wrong argument of a kernel call"),
    1031: ("error", "device is not available"),
}


class TileLangError(Exception):
    """Base of everything this package raises on purpose."""


class TileLangWarning(UserWarning):
    """Something was accepted but has no effect, or runs slower than it looks."""


class Diagnostic:
    __slots__ = ("code", "severity", "title", "text", "file", "line", "col", "other", "fix")

    def __init__(self, code, text, file=None, line=0, col=0, other=None, fix=None, severity=None, title=None):
        known = CODES.get(code, ("error", ""))
        self.code = code if isinstance(code, str) else f"TL{code:04d}"
        self.severity = severity or known[0]
        self.title = title or known[1]
        self.text, self.file, self.line, self.col = text, file, line, col
        self.other = other  # {"text", "file", "line", "col"} or None
        self.fix = fix

    def as_dict(self):
        return {k: getattr(self, k) for k in self.__slots__}

    def __str__(self):
        out = [f"{self.severity} {self.code}: {self.text}"]
        out += _place(self.file, self.line, self.col)
        if self.other:
            out.append(f"  also: {self.other['text']}")
            out += _place(self.other.get("file"), self.other.get("line") or 0, self.other.get("col") or 0)
        if self.fix:
            out.append(f"  fix: {self.fix}")
        return "\n".join(out)


def _place(file, line, col):
    if not file or not line:
        return []
    out = [f"  at {_short(file)}:{line}:{col}"]
    source = linecache.getline(file, line).rstrip() if os.path.isabs(file) or os.path.exists(file) else ""
    if source.strip():
        number = f"{line:5d}"
        out.append(f"{number} | {source}")
        out.append(f"{' ' * len(number)} | {' ' * max(col - 1, 0)}^")
    return out


def _short(path):
    try:
        rel = os.path.relpath(path)
    except ValueError:
        return path
    return path if rel.startswith("..") else rel


class CompileError(TileLangError):
    """A kernel that cannot be compiled. `diagnostics` holds every one found; str() prints them all."""

    def __init__(self, diagnostics):
        self.diagnostics = list(diagnostics)
        super().__init__("\n\n".join(str(d) for d in self.diagnostics))

    def __str__(self):
        return "\n" + self.args[0] if self.args else ""

    @property
    def errors(self):
        return [d for d in self.diagnostics if d.severity == "error"]

    @property
    def code(self):
        return self.errors[0].code if self.errors else None

    def as_json(self):
        import json

        return json.dumps([d.as_dict() for d in self.diagnostics])


class KernelFault(CompileError):
    """The simulated chip found a fault while the kernel ran: two diagnostics' lines say who, and against whom."""


class UnknownNameError(CompileError, AttributeError):
    """`T.name` that does not exist."""


class ArgumentError(TileLangError, TypeError, ValueError):
    """A kernel call with an argument of the wrong kind: says which, what it is and what was wanted."""

    code = "TL1030"


class DeviceError(TileLangError, RuntimeError):
    """The device asked for cannot be used."""

    code = "TL1031"


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def user_frame(depth=1):
    """The innermost frame that does not belong to this package."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def place_of(frame):
    """(file, line, column) of the statement a frame stands in; the column is that of the line's first character."""
    if frame is None:
        return (None, 0, 0)
    file, line = frame.f_code.co_filename, frame.f_lineno or 0
    source = linecache.getline(file, line)
    return (file, line, len(source) - len(source.lstrip()) + 1)


def here():
    return place_of(user_frame(2))


def fail(code, text, fix=None, at=None, other=None, kind=CompileError):
    """Raises one front-end error at the user's current line (or at `at`)."""
    file, line, col = at or here()
    raise kind([Diagnostic(code, text, file, line, col, other, fix)])


def place(at, text):
    """A second place for a diagnostic."""
    return {"text": text, "file": at[0], "line": at[1], "col": at[2]} if at and at[0] else None


def nearest(name, choices):
    import difflib

    found = difflib.get_close_matches(name, [c for c in choices if not c.startswith("_")], 1, 0.6)
    if not found:
        low = {c.lower(): c for c in choices}
        found = [low[m] for m in difflib.get_close_matches(name.lower(), list(low), 1, 0.6)]
    return found[0] if found else None


def warn(text, code=1020, at=None):
    """A warning at the user's line through Python's own machinery."""
    import warnings

    file, line, _ = at or here()
    warnings.warn_explicit(f"TL{code:04d}: {text}", TileLangWarning, file or "tilelang", line or 1)


def from_core(entries, paths):
    """Diagnostics of the C core; `paths` maps the file names of the IR text to files of this machine."""
    out = []
    for e in entries:
        other = e.get("other")
        if other:
            other = dict(other, file=paths.get(other.get("file"), other.get("file")))
        file = paths.get(e.get("file"), e.get("file"))
        out.append(
            Diagnostic(
                e["code"],
                e["text"],
                file,
                e.get("line") or 0,
                e.get("col") or 0,
                other,
                e.get("fix"),
                e["severity"],
                e.get("title"),
            )
        )
    return out
