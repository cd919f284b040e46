"""Errors: what the front end and the C core report, as Python exceptions.

A `Diagnostic` is one sentence about one place (a Python line, mostly), at most one second place, at most one thing to
change. The C core hands diagnostics over as JSON; the front end makes its own with the codes 10xx (and, where the fact
is the same, the core's). `CompileError` and `KernelFault` carry a list of them and print each with its source line.
"""

import ast
import functools
import itertools
import linecache
import os
import re
import sys
import tokenize

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
    1014: ("error", "a call that fails inside the front end"),
    1020: ("warning", "option without effect"),
    1021: ("note", "hint ignored on this chip"),
    1022: ("warning", "tensor read in another shape"),
    1023: ("warning", "a change inside a run-time loop that does not last"),
    1024: ("warning", "count larger than the tile"),
    1025: ("warning", "time by the simulated clock"),
    1026: ("warning", "number beyond the range of its dtype"),
    1027: ("warning", "launch without blocks"),
    1028: ("warning", "arguments share bytes"),
    1029: ("warning", "element read after a write"),
    1030: ("error", "wrong argument of a kernel call"),
    1031: ("warning", "no gradient goes through a kernel"),
}


class Diagnostic:
    """One finding.

    `code` "TL0600"; `severity` "error", "warning" or "note"; `title` what all findings of this code have in common;
    `text` the sentence with names and numbers; `file`, `line`, `col` the place, from 1 (line 0: there is none); `other`
    a second place {"text", "file", "line", "col"} or None; `fix` what to change, or None. str() is the paragraph that
    `tlc` prints too."""

    __slots__ = ("code", "severity", "title", "text", "file", "line", "col", "other", "fix")

    def __init__(self, code, text, file=None, line=0, col=0, other=None, fix=None, severity=None, title=None):
        known = CODES.get(code, ("error", ""))
        self.code = code if isinstance(code, str) else f"TL{code:04d}"
        self.severity = severity or known[0]
        self.title = title or known[1]
        self.text, self.file, self.fix = text, file, fix
        self.line, self.col = _pinpoint(text, file, line, col)
        if other:
            line, col = _pinpoint(other["text"], other.get("file"), other.get("line"), other.get("col"))
            other = {**other, "line": line, "col": col}
        self.other = other

    def to_dict(self):
        """The fields as a dict, as `tlc --json` writes them."""
        return {k: getattr(self, k) for k in self.__slots__}

    def render(self, color=False):
        """The paragraph; `color`: with terminal colours."""
        paint = _PAINT if color else _PLAIN
        word = paint[self.severity].format(f"{self.severity} {self.code}:")
        out = [f"{_spot(self.file, self.line, self.col)}{word} {paint['text'].format(self.text)}"]
        out += _source(self.file, self.line, self.col, paint)
        if self.other:
            file, line, col = (self.other.get(k) for k in ("file", "line", "col"))
            out.append(f"  see {_spot(file, line, col)}{self.other['text']}")
            out += _source(file, line, col, paint)
        if self.fix:
            out.append(f"  {paint['fix'].format('fix:')} {self.fix}")
        return "\n".join(out)

    def __str__(self):
        return self.render()


_PLAIN = dict.fromkeys(("error", "warning", "note", "text", "caret", "fix"), "{}")
_PAINT = {
    "error": "\033[1;31m{}\033[0m",
    "warning": "\033[1;35m{}\033[0m",
    "note": "\033[1;36m{}\033[0m",
    "text": "\033[1m{}\033[0m",
    "caret": "\033[1;32m{}\033[0m",
    "fix": "\033[1;32m{}\033[0m",
}


def _spot(file, line, col):
    return f"{_short(file)}:{line}:{col}: " if file and line else ""


def _source(file, line, col, paint):
    """The line of the source with a caret below the column; nothing when it cannot be read."""
    source = linecache.getline(file, line).rstrip() if file and line else ""
    if not source.strip() or len(source) > 400:
        return []
    return ["    " + source.replace("\t", " "), f"    {' ' * max((col or 1) - 1, 0)}{paint['caret'].format('^')}"]


_QUOTED = re.compile(r"(?:'|`(?=\w+=\w)|\((?=\w+=\.\.\.\)))([^\W\d]\w*)")  # 'name'; options: `init=k`, (init=...)


def _pinpoint(text, file, line, col):
    """(line, column) of the first name that `text` quotes, where the statement at (line, col) has it: an argument
    before what is assigned to, never an attribute. Without one, where the statement begins."""
    wanted = _QUOTED.findall(text) if file and line and col else ()
    if not wanted:
        return line, col
    found, depth, before = {}, 0, ""
    for kind, word, at in _words(file, line):
        if at < (line, col - 1):
            continue
        if word == ";" and not depth:
            break
        depth += (word in "([{") - (word in ")]}") if kind == tokenize.OP else 0
        if kind == tokenize.NAME and before != "." and word in wanted:
            found.setdefault((word, depth > 0), at)
        before = word
    for name in wanted:
        at = found.get((name, True)) or found.get((name, False))
        if at:
            return at[0], at[1] + 1
    return line, col


def _words(file, line):
    """(kind, text, (line, column from 0)) of each token of the statement that begins on a line of a Python file."""
    lines = iter(linecache.getlines(file)[line - 1 :])
    try:
        for t in tokenize.generate_tokens(lambda: next(lines, "")):
            if t.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                return
            yield t.type, t.string, (t.start[0] + line - 1, t.start[1])
    except (tokenize.TokenError, SyntaxError):
        return


def _short(path):
    try:
        rel = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if rel.startswith("..") else rel


def wants_color(stream):
    """Colour only on a terminal, and not where NO_COLOR is set (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        return False


class TileLangError(Exception):
    """Base of everything this package raises on purpose. `diagnostics` holds every finding; str() prints them all."""

    def __init__(self, diagnostics):
        self.diagnostics = list(diagnostics)
        super().__init__("\n\n".join(str(d) for d in self.diagnostics))

    def __str__(self):
        return "\n" + self.args[0] if self.args else ""

    def __reduce__(self):  # other processes: the tuner's, pytest-xdist's
        return (_remade, (type(self), self.diagnostics, dict(self.__dict__)))

    @property
    def errors(self):
        return [d for d in self.diagnostics if d.severity == "error"]

    @property
    def code(self):
        return self.errors[0].code if self.errors else None

    def render(self, color=False):
        """What a terminal shows: every finding, and where to read more."""
        parts = [d.render(color) for d in self.diagnostics]
        codes = list(dict.fromkeys(d.code for d in self.diagnostics))
        return "\n\n".join(parts) + f"\n\nmore: python -m tilelang explain {' '.join(codes)}"

    def to_dict(self):
        """{"error": the class, "diagnostics": [Diagnostic.to_dict()]}"""
        return {"error": type(self).__name__, "diagnostics": [d.to_dict() for d in self.diagnostics]}

    def as_json(self):
        """The diagnostics as a JSON list, in the form of `tlc --json`."""
        import json

        return json.dumps([d.to_dict() for d in self.diagnostics])

    def _render_traceback_(self):
        """What notebooks show in place of a traceback."""
        return self.render(color=True).splitlines()


def _remade(kind, diagnostics, state):
    e = kind.__new__(kind)
    TileLangError.__init__(e, diagnostics)
    e.__dict__.update(state)
    return e


class TileLangWarning(UserWarning):
    """Something was accepted but has no effect, or runs slower than it looks. `diagnostic` is the finding."""

    diagnostic = None

    def __init__(self, diagnostic):
        if isinstance(diagnostic, Diagnostic):
            self.diagnostic = d = diagnostic
            diagnostic = f"{d.code}: {d.text}" + (f"; fix: {d.fix}" if d.fix else "")
        super().__init__(diagnostic)

    def to_dict(self):
        return self.diagnostic.to_dict() if self.diagnostic else {"text": str(self)}


class CompileError(TileLangError):
    """A kernel that cannot be compiled."""


class KernelFault(CompileError):
    """The simulated chip found a fault while the kernel ran: two diagnostics' lines say who, and against whom."""


class UnknownNameError(CompileError, AttributeError):
    """`T.name` that does not exist."""


class _AtCall(TileLangError):
    """One finding at the user's line; `fix` says what to change."""

    number = 0

    def __init__(self, text, fix=None, at=None):
        file, line, col = at or spot()
        super().__init__([Diagnostic(self.number, text, file, line, col, None, fix)])


class ArgumentError(_AtCall, TypeError, ValueError):
    """A call with an argument of the wrong kind: says which, what it is and what was wanted."""

    number = 1030


class DeviceError(TileLangError, RuntimeError):
    """Building for a card, the card itself, or a kernel on it failed."""


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep


def of_user(frame):
    """Does a frame not belong to this package?"""
    return not frame.f_code.co_filename.startswith(_PACKAGE)


def user_frame(depth=1):
    """The innermost frame that belongs neither to this package nor to Python's library, which may stand between."""
    frame = sys._getframe(depth)
    while frame is not None and (not of_user(frame) or _of_python(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def user_frames(depth):
    """The frames that do not belong to this package, without the outermost `depth`, from the innermost."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return [f for f in frames[: len(frames) - depth] if of_user(f)]


def frame_depth():
    """How many frames there are."""
    n, frame = 0, sys._getframe(1)
    while frame is not None:
        n, frame = n + 1, frame.f_back
    return n


def passed_as(value):
    """(function of T, its parameter) that `value` was passed as, where such a function is at work on it; else None."""
    frame, at = sys._getframe(2), None
    while frame is not None and not of_user(frame):
        if frame.f_code.co_filename.startswith(_PACKAGE + "language") and frame.f_code.co_name[:8] != "wrapped_":
            at = frame
        frame = frame.f_back
    code = at and at.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if at else ()
    return next(((code.co_name, n) for n in names if at.f_locals.get(n) is value), None)


def place_of(frame):
    """(file, line, column) of the statement a frame stands in; the column is that of the line's first character."""
    if frame is None:
        return (None, 0, 0)
    file, line = frame.f_code.co_filename, frame.f_lineno or 0
    source = linecache.getline(file, line)
    return (file, line, _column(frame.f_code, frame.f_lasti, file, line, source))


def _column(code, instruction, file, line, source):
    """Of the line's first character; where several statements share the line (Python 3.11 and newer), of the one that
    the instruction belongs to."""
    if _SHARED.search(source) and hasattr(code, "co_positions"):
        at = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)[2]
        columns = _statements_of("".join(linecache.getlines(file))).get(line, ())
        before = [c for c in columns if at is not None and c <= at]
        if before:  # ast counts bytes
            return len(source.encode()[: max(before)].decode(errors="ignore")) + 1
    return len(source) - len(source.lstrip()) + 1


_SHARED = re.compile(r";|^\s*(?:with|for|while|if|elif|else)\b.*:\s*[^\s#]")  # may hold more than one statement


@functools.lru_cache(8)
def _statements_of(text):
    """{line: columns at which its statements begin, from 0, in bytes} of a Python file."""
    found = {}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return found
    for n in ast.walk(tree):
        if isinstance(n, ast.stmt):
            found.setdefault(n.lineno, []).append(n.col_offset)
    return found


def here():
    return place_of(user_frame(2))


def _of_python(file):
    """Whether a file is of Python's own library: what this package calls there is not the user's code."""
    return file.startswith(_STDLIB) and "site-packages" not in file or file.startswith("<frozen ")


def spot(frame=None, instruction=None):
    """(file, line, column) of the call, index or operation that a frame, or without one the user's innermost, is at;
    before Python 3.11 of its statement. Columns count characters from 1."""
    frame = frame or user_frame(2)
    if frame is None or not hasattr(frame.f_code, "co_positions"):
        return place_of(frame)
    at = frame.f_lasti if instruction is None else instruction
    line, _, col, _ = next(itertools.islice(frame.f_code.co_positions(), at // 2, None), (None,) * 4)
    if line is None or col is None:
        return place_of(frame)
    source = linecache.getline(frame.f_code.co_filename, line)
    return (frame.f_code.co_filename, line, len(source.encode()[:col].decode(errors="ignore")) + 1)


def fail(code, text, fix=None, at=None, other=None, kind=CompileError):
    """Raises one front-end error where the user's code is (or at `at`)."""
    file, line, col = at or spot()
    raise kind([Diagnostic(code, text, file, line, col, other, fix)])


class explained:
    """`with explained("the kernel 'f'")`: what goes wrong inside this package, or in the call of one of its functions,
    becomes an error at the user's line instead of a traceback through it. The user's own exceptions pass."""

    def __init__(self, what, kind=CompileError, code=1014):
        self.what, self.kind, self.code = what, kind, code

    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        if not isinstance(error, Exception) or isinstance(error, (TileLangError, MemoryError)):
            return
        if isinstance(error, (Warning, BrokenPipeError)):
            return  # the user makes errors of warnings; nobody reads what is printed any more
        user, callee, inside = None, None, False
        while tb is not None:
            code = tb.tb_frame.f_code
            if code.co_name.startswith("wrapped_"):  # `rightly` below, and frontend/builder.py
                tb = tb.tb_next
                continue
            was, inside = inside, code.co_filename.startswith(_PACKAGE) or inside and _of_python(code.co_filename)
            user = user if inside else (tb.tb_frame, tb.tb_lasti)
            callee = callee if inside and was and callee else code.co_name if inside and user else None
            tb = tb.tb_next
        deep = isinstance(error, RecursionError)
        at = spot(*user) if user else spot()
        if not inside and not deep:
            asked = error.args[0] if isinstance(error, KeyError) and error.args else None
            if type(asked).__module__.startswith(__package__):
                text = f"{asked!r} is known only when the kernel runs; a dict of Python needs its value now"
                fix = "T.if_then_else or a tensor in place of the dict, or a Python number from T.unroll(n)"
                raise CompileError([Diagnostic(1005, text, *at, None, fix)]) from error
            if _OUR_KIND.search(str(error)):
                fix = next((fix for word, fix in _PYTHON_WORDS if word in str(error)), _PYTHON_WORDS[-1][1])
                said = _OUR_KIND.sub(
                    lambda m: "tile" if m[1] in ("Buffer", "Region") else "value of the chip", str(error)
                )
                raise CompileError([Diagnostic(1005, f"Python cannot do this with what is on the chip: {said}", *at,
                                               None, fix)]) from error  # fmt: skip
            return
        why = "calls itself without end" if deep else f"{type(error).__name__}: {error}"
        where = f"'{callee}' in {self.what}" if callee else self.what
        text = f"{self.what} {why}" if deep else f"{where} fails: {why}"
        fix = (
            "a kernel is executed once to trace it: end the recursion by a Python value"
            if deep
            else (
                "check the arguments of this call (help(T.name) shows them); TILELANG_TRACEBACK=1 shows where it fails"
            )
        )
        if isinstance(error, OSError) and error.filename:
            text, fix = f"{self.what}: {error.strerror}: '{error.filename}'", "a path that can be read and written"
        if issubclass(self.kind, _AtCall):
            raise self.kind(text, fix, at) from error
        raise self.kind([Diagnostic(self.code, text, *at, None, fix)]) from error


_OUR_KIND = re.compile(r"\b(Expr|Var|MutVar|Element|Buffer|Region|_Indices|Reducer)\b")
_PYTHON_WORDS = (  # in Python's message -> what to write instead
    ("len()", "x.shape[0] is the first of its sizes"),
    ("__format__", 'T.printf("%d", x) prints it on the chip; so does {x} without a format, in its text'),
    ("__round__", "T.round(x), or T.cast(x, 'int32')"),
    ("not callable", "index it with [ ]; T.* functions take it as an argument"),
    ("not subscriptable", "one value has no elements: index the buffer it comes from"),
    ("not support item", "one value has no elements: index the buffer it comes from"),
    ("attribute", "what belongs to a kernel is kept in names of its own, not in its buffers"),
    ("valid indices", "an array of Python is not on the chip: make it a tensor parameter of the kernel"),
    ("context manager", "with T.Kernel(...) and with T.Scope(...) open blocks"),
    ("", "T.* functions and operators work on it; kernel.interpret(*args) runs the kernel with values of Python"),
)


# ---- calls with other arguments than a function has -----------------------------------------------------------------


def rightly(what, kind=None, computes=False):
    """Decorator of a function that users call: a call that does not fit its signature is an error at their line, not a
    TypeError of Python. `what` is its name there; `kind` the class of the error (TL1030), without one a CompileError
    (TL1004). `computes`: what Python cannot compute of its arguments is an error of theirs, too."""

    def wrap(fn):
        @functools.wraps(fn)
        def wrapped_call(*args, **kwargs):
            refuse_texts(what, _switches(fn), args, kwargs, kind)
            try:
                return fn(*args, **kwargs)
            except (TypeError, ValueError) as e:
                if isinstance(e, TypeError) and e.__traceback__.tb_next is None:
                    wrong_call(what, fn, args, kwargs, e, kind)
                if computes and not isinstance(e, TileLangError):  # it did not fail at the call itself
                    wrong_values(what, (*args, *kwargs.values()), e)
                raise

        return wrapped_call

    return wrap


def wrong_values(what, values, error):
    """Raises what is wrong with the values that a function of T was to compute with; returns if that is not clear."""
    from .frontend.expr import describe, instead_of

    for v in values:
        if v is None or isinstance(v, (str, bytes, list, tuple, dict, set, complex)):
            fail(1004, f"{what} cannot take {describe(v)}", fix=instead_of(v))
    if all(isinstance(v, (int, float)) for v in values):
        said = " and ".join(map(describe, values))
        fix = "T.cast(x, 'int32') makes an integer of a number" if isinstance(error, TypeError) else "a finite number"
        fail(1004, f"{what} of {said}: {error}", fix=fix)


def refuse_texts(what, switches, args, kwargs, kind=None):
    """A text is true, whatever it says: an error where a parameter is on or off."""
    for name, n in switches:
        given = kwargs.get(name, args[n] if n < len(args) else None)
        if isinstance(given, str):
            text, fix = f"{what}: '{name}' is the string {given!r}", f"{name}=True or {name}=False"
            if kind is not None:
                raise kind(text, fix, spot())
            fail(1004, text, fix)


@functools.lru_cache(None)
def _switches(fn):
    """[(name, place)] of the parameters that are on or off."""
    import inspect

    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    on_off = [p.name for p in parameters if isinstance(p.default, bool)]
    return [(n, places.index(n) if n in places else len(parameters)) for n in on_off]


class Rightly(type):
    """Metaclass: the same for `Class(...)`; `spoken` is its name for the user."""

    def __call__(cls, *args, **kwargs):
        refuse_texts(cls.spoken, _switches(cls.__init__), (cls, *args), kwargs)
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as e:
            if e.__traceback__.tb_next is not None:
                raise
            wrong_call(cls.spoken, cls.__init__, (cls, *args), kwargs, e)


def rightly_all(cls, spoken, kind, names):
    """The same for methods of a class; besides, what goes wrong inside them is an error at the user's line."""

    def wrap(fn, what):
        fn = rightly(what, kind)(fn)

        @functools.wraps(fn)
        def wrapped_method(*args, **kwargs):
            with explained(what, kind):
                return fn(*args, **kwargs)

        return wrapped_method

    for name in names.split():
        setattr(cls, name, wrap(getattr(cls, name), f"{spoken}.{name}"))


def wrong_call(what, fn, args, kwargs, error, kind=None):
    """Raises what is wrong with a call whose arguments do not fit the signature of `fn`."""
    import inspect

    parameters = list(inspect.signature(fn).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names, places = [p.name for p in named], [p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD]
    shown = [p.replace(annotation=p.empty) for p in parameters if p.kind is not p.VAR_KEYWORD]
    usage = what + str(inspect.Signature(shown)).replace("'", '"')
    unknown = [n for n in kwargs if n not in names]
    missing = [p.name for p in named[len(args) :] if p.default is p.empty and p.name not in kwargs]
    twice = [n for n in places[: len(args)] if n in kwargs]
    text = fix = None
    if unknown:
        near = nearest(unknown[0], names)
        text, fix = f"{what} has no argument '{unknown[0]}'", f"did you mean '{near}'?" if near else None
    elif twice:
        text = f"{what} gets its argument '{twice[0]}' twice: by its place and by its name"
    elif missing:
        text = f"{what} is called without its argument{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing))}"
    elif len(args) > len(places):
        text = f"{what} takes {counted(len(places), 'argument')} by place, {len(args)} given"
    text, fix = text or f"{what}: {error}", fix or usage
    if kind is not None:
        raise kind(text, fix, spot()) from None
    fail(1004, text, fix)


def file_name(path, what):
    """A path that the user gave `what`, as text; a number would be a file that is open already."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        given = repr(path) if isinstance(path, (str, int, float, type(None))) else type(path).__name__
        raise ArgumentError(f"{what}: {given} is no path", "the name of a file or folder, a text or a pathlib.Path")
    return os.fspath(path)


def place(at, text):
    """A second place for a diagnostic."""
    return {"text": text, "file": at[0], "line": at[1], "col": at[2]} if at and at[0] else None


def counted(n, noun):
    """A number of things in a message: 1 argument, 2 arguments."""
    return f"{n} {noun}{'s' * (n != 1)}"


def nearest(name, choices):
    import difflib

    low = {c.lower(): c for c in choices}
    if name.lower() in low:
        return low[name.lower()]
    found = difflib.get_close_matches(name, [c for c in choices if not c.startswith("_")], 1, 0.6)
    if not found:
        found = [low[m] for m in difflib.get_close_matches(name.lower(), list(low), 1, 0.6)]
    return found[0] if found else None


def warn(text, code=1020, at=None, fix=None, other=None):
    """A warning at the user's line (or at `at`) through Python's own machinery."""
    import warnings

    file, line, col = at or spot()
    found = Diagnostic(code, text, file, line, col, other, fix, "warning")
    warnings.warn_explicit(TileLangWarning(found), TileLangWarning, file or "tilelang", line or 1)


def names_for_people(text, spelt=()):
    """%a of IR text is 'a' in Python, or a in an expression in backticks, f32 is float32, and flags and barriers are
    calls. `spelt`: {name of the IR text: as the author wrote it}, where they differ."""
    if spelt:
        text = _IR_NAME.sub(lambda m: "%" + spelt.get(m[1], m[1]), text)
    parts = text.split("`")
    parts[::2] = [_IR_SHAPE.sub(_shape, _IR_DTYPE.sub(_python_dtype, p)) for p in parts[::2]]
    parts[::2] = [_IR_ELEMENT.sub(_element, p) for p in parts[::2]]
    parts[::2] = [_CROSS.sub(r"T.\1_cross_flag", _IR_NAME.sub(r"'\1'", p)) for p in parts[::2]]
    parts[1::2] = [_as_written(_IR_NAME.sub(r"\1", p)) for p in parts[1::2]]
    return "`".join(parts)


def _element(m):
    """%x[%i] is 'x[i]', and %x[%i * 8 +: 8] is 'x[i * 8 : i * 8 + 8]'."""
    index, depth, parts = _IR_NAME.sub(r"\1", m[2]), 0, [""]
    for c in index:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return f"'{m[1]}[{', '.join(map(_slice, parts))}]'"


def _slice(part):
    """start +: extent as Python writes it."""
    start, is_slice, extent = part.strip().partition(" +: ")
    if not is_slice:
        return start
    try:
        return f"{start} : {int(start) + int(extent)}"
    except ValueError:
        return f"{start} : {extent}" if start == "0" else f"{start} : {start} + {extent}"


def _shape(m):
    """[%n, 64] is [n, 64]."""
    return _IR_NAME.sub(r"\1", m[0])


def _python_dtype(m):
    from .language.dtypes import OF_IR

    return OF_IR.get(m[0], m[0])


_IR_DTYPE = re.compile(r"(?<![%.\w'])(?:[iuf]\d+(?:x2)?|bf16|e4m3|e5m2)\b(?!')")
_IR_ELEMENT = re.compile(r"%([^\W\d][\w.]*)\[([^\[\]]+)\]")
_CROSS = re.compile(r"'cross_(set|wait)'")
_IR_SHAPE = re.compile(r"(?<![\w.])\[[^\[\]]*\]")
_IR_TILE = re.compile(r"%([^\W\d][\w.]*)( [a-z]\w+\[)")


def _as_written(ir):
    """Synchronisation and attributes as the author writes them; other IR text as it is."""
    for pattern, call in _SPELT.items():
        if found := re.fullmatch(pattern, ir):
            return call.format(*found.groups(), upper=(found.lastindex and found[1] or "").upper())
    return ir


_SPELT = {
    r"(set_flag|wait_flag) (\w+) -> (\w+) #([^@]+)": 'T.{}("{}", "{}", {})',
    r"cross_set (\w+) #([^@]+) mode\((\d)\)": 'T.set_cross_flag("{}", {}, mode={})',
    r"cross_wait (\w+) #([^@]+)": 'T.wait_cross_flag({1}, "{0}")',
    r"cross_wait #([^@]+)": "T.wait_cross_flag({})",
    r"sync_all": "T.sync_all()",
    r"barrier all": "T.barrier_all()",
    r"barrier (\w+)": 'T.pipe_barrier("{}")',
    r"cube": 'T.Scope("C")',
    r"vector": 'T.Scope("V")',
    r"cross_(set|wait)": "T.{}_cross_flag",
    r"mode\((\w+)\)": '"CAST_{upper}"',
    r"init\((.+)\)": "init={}",
}


_IR_NAME = re.compile(r"%([^\W\d][\w.]*\w|[^\W\d])")


def show_print(file, line, where, text):
    """One print of a kernel: place in the program, block and core, what it says; tiles by their names in Python."""
    text = _IR_TILE.sub(lambda m: m[1] + _IR_DTYPE.sub(_python_dtype, m[2]), text)
    text = f"{_short(file)}:{line} {where}: {text}" + "\n" * (not text.endswith("\n"))
    code = getattr(sys.stdout, "encoding", None)
    print(text.encode(code, "backslashreplace").decode(code) if code else text, end="")


def from_core(entries, paths, where=(None, 0, 0), spelt=()):
    """Diagnostics of the C core; `paths` maps the file names of the IR text to files of this machine. `where` is the
    place of the kernel: what has no Python line of its own, such as a parameter, stands there."""
    out = []
    for e in entries:
        for at in (e, e.get("other")):
            if at and at.get("file") not in paths and where[0]:
                at["file"], at["line"], at["col"] = where
        other = e.get("other")
        if other:
            other["file"] = paths.get(other.get("file"), other.get("file"))
            other["text"] = names_for_people(other["text"], spelt)
        file = paths.get(e.get("file"), e.get("file"))
        out.append(
            Diagnostic(
                e["code"],
                names_for_people(e["text"], spelt),
                file,
                e.get("line") or 0,
                e.get("col") or 0,
                other,
                names_for_people(e["fix"], spelt) if e.get("fix") else None,
                e["severity"],
                e.get("title"),
            )
        )
    return out


# ---- what an uncaught error looks like -------------------------------------------------------------------------------


def _users_frames(tb):
    """The lines of a traceback that are the user's: the inside of this package says nothing to them."""
    import traceback

    return [f for f in traceback.extract_tb(tb) if not f.filename.startswith(_PACKAGE)]


def install_hooks():
    """Uncaught errors of this package are shown as their message below the user's own frames, warnings as the same
    paragraph; everything else goes where it went before. TILELANG_TRACEBACK=1 keeps Python's full traceback."""
    import traceback
    import warnings

    before, format_before = sys.excepthook, warnings.formatwarning

    def excepthook(kind, error, tb):
        frames = _users_frames(tb)
        ours = isinstance(error, TileLangError)
        if os.environ.get("TILELANG_TRACEBACK") or not ours and len(frames) == len(traceback.extract_tb(tb)):
            return before(kind, error, tb)
        if not ours:  # the user's own error in a kernel
            sys.stderr.write("Traceback (most recent call last):\n" + "".join(traceback.format_list(frames)))
            sys.stderr.write("".join(traceback.format_exception_only(kind, error)))
            return
        if len(frames) > 1:
            sys.stderr.write("Traceback (most recent call last):\n" + "".join(traceback.format_list(frames)) + "\n")
        sys.stderr.write(error.render(wants_color(sys.stderr)) + "\n")

    def formatwarning(message, category, filename, lineno, line=None):
        found = getattr(message, "diagnostic", None)
        if found is None:
            return format_before(message, category, filename, lineno, line)
        return found.render(wants_color(sys.stderr)) + "\n"

    sys.excepthook, warnings.formatwarning = excepthook, formatwarning
