"""What became of a program: one word, and the first line of the reason."""

from ..errors import CompileError, KernelFault, UnknownNameError
from ..sim import record

# in the order of the report
STATUSES = {
    "pass": "the program ended well",
    "fault": "the checker found a fault, and without the check the program does not end well either",
    "wrong numbers": "the program compared and did not agree",
    "compile error": "a kernel was refused",
    "unsupported": "a name or option that is not there yet, refused by name",
    "time-out": "not done in time",
    "missing module": "a package the program imports is not installed",
    "error": "the program ended with another exception",
    "crash": "the process ended by a signal",
    "skipped": "the program skips itself",
}

_UNSUPPORTED = {"TL1001", "TL1002"}


def _chain(e):
    seen = set()
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        yield e
        e = e.__cause__ or (None if e.__suppress_context__ else e.__context__)


def _diagnostic(e):
    """One line of a CompileError: code, sentence, place."""
    found = e.errors or e.diagnostics
    if not found:
        return record.first_line(e)
    d = found[0]
    where = f" ({d.file.rsplit('/', 1)[-1]}:{d.line})" if d.file else ""
    return f"{d.code}: {d.text}{where}"


def one_line(text, limit=400):
    text = " ".join(str(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def of_exception(error):
    """(status, reason) of an exception that ended a program."""
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return of_silence()
        return _swallowed() or ("error", one_line(f"exit status {error.code}"))
    for e in _chain(error):
        if isinstance(e, KernelFault):
            return "fault", one_line(_diagnostic(e))
        if isinstance(e, CompileError):
            new = isinstance(e, UnknownNameError) or e.code in _UNSUPPORTED
            return "unsupported" if new else "compile error", one_line(_diagnostic(e))
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "").split(".")[0]
        return ("unsupported" if missing == "tilelang" else "missing module"), one_line(error)
    if isinstance(error, (AttributeError, ImportError)) and "tilelang" in str(error):
        return "unsupported", one_line(error)
    if isinstance(error, AssertionError):
        if record.seen["calls"]:
            return "wrong numbers", one_line(str(error) or "an assert of the program")
        return "error", one_line(f"AssertionError: {error}")
    if isinstance(error, MemoryError):
        return "error", "out of memory"
    return "error", one_line(f"{type(error).__name__}: {error}")


def of_silence():
    """(status, reason) of a program that came to its end."""
    return _swallowed() or ("pass", "")


def _swallowed():
    """A failure that the program printed and went on from."""
    if record.seen["mismatches"]:
        return "wrong numbers", one_line(record.seen["mismatches"][0])
    if record.seen["faults"]:
        return "fault", one_line(record.seen["faults"][0])
    return None
