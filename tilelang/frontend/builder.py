"""The builder: collects the statements of one kernel while its Python function runs, and prints them as IR text.

Statements hold values, not text: names are settled last, so that `a = T.alloc_shared(...)` can name the buffer after it
was made. Every statement takes the line of the innermost frame outside this package: kernel, macro or helper function.
"""

import copy
import functools
import itertools
import os
import threading

from ..errors import (
    CompileError,
    Diagnostic,
    UnknownNameError,
    fail,
    frame_depth,
    here,
    place,
    spot,
    user_frames,
    warn,
)
from ..language.dtypes import int32
from .expr import (
    Buffer,
    Element,
    Expr,
    Poison,
    Region,
    Var,
    _number,
    _split_index,
    binary,
    cast,
    describe,
    half,
    instead_of,
    operands,
    shape_text,
    show,
    subtract,
    unary,
    value_of,
    whole,
    wrap,
)
from .returns import Returns
from .watch import Endless, Watch


class Stmt:
    """`head` is a list of text, Expr, Buffer and Region; body and alt are lists of Stmt or None."""

    __slots__ = ("head", "loc", "body", "alt", "kind")

    def __init__(self, kind, head, loc, body=None):
        self.kind, self.head, self.loc, self.body, self.alt = kind, head, loc, body, None


_local = threading.local()
MOST = 1 << 17  # statements of a block; more cannot be ordered (sync_trace.c), and mostly there is no end to them
MANY = 1 << 12  # launches of a function; statements after which to look whether there is an end to them


def current(what):
    """The builder of the kernel being traced."""
    b = getattr(_local, "builder", None)
    if b is None:
        fail(
            1006,
            f"{what} is used outside a kernel",
            fix="it belongs into a function marked @T.prim_func (or @T.macro, called from one)",
        )
    return b


ON_THE_CHIP = "loop on the chip: T.serial(n); a `while` needs a condition on values of the kernel, or a `break`"


def goes_on(text, at=None, fix=ON_THE_CHIP):
    """The error of a loop without end that Python runs."""
    fail(1006, text, fix=fix, at=at)


def active():
    return getattr(_local, "builder", None)


_MOST_ERRORS = 20


def statements(space, names):
    """Makes functions of `space` that stand for statements go on after an error: one run shows every wrong call."""
    for name in names:
        space[name] = _statement(space[name])


def _statement(fn):
    @functools.wraps(fn)
    def wrapped_statement(*args, **kwargs):
        b = active()
        before = len(b.errors) if b is not None else 0
        try:
            made = fn(*args, **kwargs)
            if b is not None and len(b.errors) > before:
                _one_element(b.errors[before:], (*args, *kwargs.values()))
            return made
        except CompileError as e:
            if _one_element(e.diagnostics, (*args, *kwargs.values())):
                e.args = CompileError(e.diagnostics).args
            known = b is not None and {str(d) for d in b.errors}
            if type(e) is not CompileError or b is None or b.live or len(b.errors) >= _MOST_ERRORS:
                raise
            if any(str(d) in known for d in e.diagnostics):  # a loop that Python runs comes by again
                raise
            b.errors += e.diagnostics
            return Poison("", "", None, None, e)

    return wrapped_statement


_TILES_DISAGREE = ("TL0501", "TL0502", "TL1004", "TL1012")


def _one_element(diagnostics, args):
    """Where a tile was wanted and the call gives an element of one: what to write. Has a text changed?"""
    changed = False
    for e in args:
        if not isinstance(e, Element):
            continue
        for d in diagnostics:
            one = f"element {show(e)}" in d.text or shape_text([1] * len(e.idx)) in d.text
            if d.code not in _TILES_DISAGREE or not one:
                continue
            name, sizes = e.buf.called, "mnkl"[: len(e.idx)].rjust(len(e.idx), "m")
            part = ", ".join(f"{show(i)} : {n if show(i) == '0' else f'{show(i)} + {n}'}" for i, n in zip(e.idx, sizes))
            d.fix = f"{show(e)} is one element: write {name} for the whole tile, {name}[{part}] for a part of it"
            changed = True
    return changed


class Builder:
    live = False  # True: statements are executed as they are emitted (debug/live.py)
    running = False  # and those of this place are, not collected for a T.Parallel

    def __init__(self, name, where, eager=None):
        self.name, self.where, self.eager = name, where, eager
        self.params = []  # Buffer or Var, in call order
        self.grid = None  # [(Var, extent)]
        self.vid = None
        self.top = []
        self.blocks = [self.top]
        self.control = 0  # run-time loops and ifs open now
        self.parallel = []  # index Vars of the open T.Parallel
        self.errors, self.notes = [], []
        self.hand_sync = False
        self.files, self.paths = {}, {}  # path -> number, text name -> path
        self.kernel_open = False
        self.reducer = None  # of the open T.attr
        self.threads = None  # of the open T.Kernel: frontend/threads.py
        self.launched = where  # the place of T.Kernel
        self.outs = []  # T.empty tensors, in order
        self.ifs = []  # open T.If
        self.views = {}  # (buffer, shape, dtype) -> view
        self.deq_scale = None  # T.set_deq_scale
        self.earlier = []  # launches before this one, in order: builders that share the parameters
        self.spelt = {}  # names of the IR text that the author wrote otherwise
        self.scratch = []  # T.alloc_global tensors
        self.made = self.effects = 0  # statements so far, and those of them that do more than name a value
        self.begun = False  # is there more than allocations in T.Kernel?
        self.returns = Returns(self)
        self.call = None  # of the kernel's function: returns.Call

    def __enter__(self):
        self.before = getattr(_local, "builder", None)
        self.depth = frame_depth()
        _local.builder = self
        self.watch = None if self.live else Watch(self)
        return self

    def __exit__(self, kind, error, tb):
        _local.builder = self.before
        if self.watch is not None:
            self.watch.end()
        if kind is Endless:
            goes_on("this loop of Python goes on, and makes no statement of the kernel", self.watch.place)
        if type(error) in (CompileError, UnknownNameError):  # what was found before belongs to it
            last = [str(d) for d in error.diagnostics]
            before = [d for d in self.errors if str(d) not in last]
            if before:
                raise CompileError(before + error.diagnostics) from None

    def next_launch(self):
        """A further T.Kernel: what was collected so far is a launch of its own, which ends before this one begins."""
        if len(self.earlier) >= MANY:
            goes_on(
                f"a loop that Python runs has made {MANY} launches and goes on",
                fix="put the loop into T.Kernel, as T.serial(n), or call the kernel n times",
            )
        self.earlier.append(copy.copy(self))
        self.top = []
        self.blocks, self.views, self.ifs = [self.top], {}, []
        self.grid = self.vid = self.deq_scale = None
        self.hand_sync = self.begun = False

    def end_work(self):
        """T.thread_return: a `return` of the kernel's function, from wherever it is called."""
        self.returns.leave(self.call, None, "T.thread_return")

    # ---- statements ---------------------------------------------------------------------------------------------

    def loc(self, at=None):
        file, line, col = at or here()
        number = self.files.get(file)
        if number is None:
            number = self.files[file] = len(self.files) + 1
            name = "".join("'" if c == '"' or not c.isprintable() else c for c in os.path.basename(file or "?"))
            while name in self.paths:
                name = os.path.join(os.path.basename(os.path.dirname(file)), name) if os.sep not in name else name + "'"
            self.paths[name] = file
        return (number, line, col)

    def emit(self, head, kind="op", at=None):
        if not self.kernel_open:
            fail(
                1006,
                f"'{head[0].split()[0]}' stands outside `with T.Kernel(...)`",
                fix="move it into the body of T.Kernel",
            )
        if self.parallel and kind not in ("store", "let", "assign", "var"):
            fail(
                1006,
                f"'{head[0].split()[0]}' stands inside T.Parallel, which takes assignments to elements only",
                fix="move it out of the T.Parallel loop, or use T.serial",
            )
        if self.returns.barred:
            self.returns.check(kind)
        made = len(self.blocks[-1])
        if made >= MOST:
            goes_on(f"a loop that Python runs has made {MOST} statements and goes on")
        if made and made % MANY == 0:
            from .rewrite import endless_loop

            at = endless_loop(user_frames(self.depth))
            if at is not None:
                goes_on(f"`while True` without a `break` has made {made} statements and goes on", at)
        self.look_back(head)
        s = self.statement(kind, head, at)
        self.blocks[-1].append(s)
        self.effect(kind, head)
        return s

    def effect(self, kind, head):
        """What a statement changes is changed from here on."""
        self.effects += kind not in ("let", "var", "alloc")
        self.begun |= kind != "alloc"
        changed = head[:1] if kind == "store" else itertools.dropwhile(lambda p: p != " -> ", head)
        for part in changed:
            if isinstance(part, (Buffer, Region, Element)):
                (part if isinstance(part, Buffer) else part.buf).base.writes += 1

    def look_back(self, head):
        """Warns of elements that Python took before a statement that writes them: the chip reads them here."""
        def walk(e):
            if isinstance(e, Element) and e.writes != e.buf.base.writes:
                warn(
                    f"{show(e)} is read here, and was taken before '{e.buf.called}' was written: it has the new value",
                    1029,
                    fix="where the old one is wanted, give it a name before that, in the kernel or a @T.macro: "
                    f"v = {show(e)}",
                )
                e.writes = e.buf.base.writes
            for a in operands(e):
                walk(a)

        for part in head:
            if isinstance(part, Expr):
                walk(part)

    def statement(self, kind, head, at, body=None):
        self.made += 1
        return Stmt(kind, head, self.loc(at), body)

    def say(self, head):
        """A print or an assertion; outside of T.Kernel it belongs to the launch."""
        if self.kernel_open:
            return self.emit(head, "say")
        s = Stmt("say", head, self.loc())
        self.top.append(s)
        return s

    def open(self, kind, head, at=None):
        """A statement with a block, entered; close() leaves it."""
        if not self.kernel_open:
            fail(
                1006,
                f"a run-time '{kind}' stands outside `with T.Kernel(...)`",
                fix="move it into the body of T.Kernel",
            )
        if self.returns.barred:
            self.returns.check(kind)
        if self.parallel and kind not in ("parallel", "if", "for"):
            fail(
                1006,
                f"a run-time '{kind}' inside T.Parallel",
                fix="T.Parallel takes assignments and `if`; put the loop outside, or use T.serial",
            )
        self.look_back(head)
        self.begun = True
        s = self.statement(kind, head, at, [])
        self.blocks[-1].append(s)
        self.blocks.append(s.body)
        return s

    def open_alt(self, s):
        self.returns.drop()
        self.blocks.pop()
        s.alt = []
        self.blocks.append(s.alt)

    def close(self):
        self.returns.drop()
        self.blocks.pop()

    def loop(self, it, names):
        """The values of a RuntimeLoop: its body runs once to collect its statements."""
        outer = self.blocks[-1]
        self.control += 1
        yield it.begin(self, names)
        s = outer[-1]
        it.end(self)
        self.control -= 1
        self.returns.after_loop(s)

    def error(self, code, text, fix=None, other=None, at=None):
        """An error after which tracing can go on."""
        file, line, col = at or spot()
        self.errors.append(Diagnostic(code, text, file, line, col, other, fix))

    def note(self, text, code=1021, at=None):
        file, line, col = at or here()
        self.notes.append(Diagnostic(code, text, file, line, col))

    # ---- names and snapshots ------------------------------------------------------------------------------------

    def let(self, name, value):
        """A snapshot of a run-time value under a name."""
        v = Var(name, value.dtype, "let")
        self.emit(["let ", v, f": {value.dtype.ir} = ", value], "let")
        return v

    def alloc(self, shape, dtype, space):
        b = Buffer(None, shape, dtype, space, here())
        self.emit(["alloc ", b], "alloc")
        return b

    def view(self, of, shape, dtype):
        """The bytes of a buffer under another shape and dtype; it stands beside that buffer, known wherever it is."""
        key = (id(of), shape_text(shape), str(dtype))
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = Buffer(of.name, shape, dtype, of.space, here())
            found.view = of
            block, at = self.find_alloc(of) or (self.top, -1)  # a tensor is known from the start
            block.insert(at + 1, Stmt("alloc", ["alloc ", found], self.loc()))
        return found

    def mentions(self, thing, block=None):
        """Does a statement speak of a buffer or of a view of it?"""

        def within(part):
            buf = part.buf if isinstance(part, (Region, Element)) else part
            if buf is thing or isinstance(buf, Buffer) and buf.view is thing:
                return True
            inner = part.idx if isinstance(part, Element) else (*part.off, *part.ext) if isinstance(part, Region) else (
                part.args if isinstance(part, Expr) else ())  # fmt: skip
            return any(within(i) for i in inner)

        return any(
            any(within(part) for part in s.head) or any(self.mentions(thing, b) for b in (s.body, s.alt) if b)
            for s in (self.top if block is None else block)
        )

    def find_alloc(self, buf, block=None):
        """(block, index) of the statement that makes a buffer."""
        block = self.top if block is None else block
        for n, s in enumerate(block):
            if s.kind == "alloc" and s.head[1] is buf:
                return block, n
            for inner in (s.body, s.alt):
                found = self.find_alloc(buf, inner) if inner else None
                if found:
                    return found
        return None

    def store(self, buf, idx, value, op):
        """buf[idx] = value, or `op`= value."""
        if isinstance(buf, Region):
            target = buf[idx]
            if not isinstance(target, Element):
                fail(
                    1004,
                    f"{describe(target)} is a tile and cannot be assigned to",
                    fix="T.copy(src, dst) or T.tile.fill(dst, value)",
                )
            buf, index = target.buf, list(target.idx)
        else:
            index, _, points = _split_index(buf, idx)
            if not all(points):
                region = buf[idx]
                fail(
                    1004,
                    f"{describe(region)} is a tile and cannot be assigned to",
                    fix="T.copy(src, dst) or T.tile.fill(dst, value)",
                )
        if isinstance(value, (Buffer, Region)):
            fail(
                1004,
                f"the tile {describe(value)} does not fit into an element of {describe(buf)}",
                fix="index it, or T.copy(src, dst)",
            )
        if isinstance(value, Poison):
            value._use()
        if not isinstance(value, Expr) and _number(value) is None:
            fail(1004, f"an element of {describe(buf)} cannot take {describe(value)}", fix=instead_of(value))
        value = wrap(whole(value, buf.dtype, f"an element of {describe(buf)}"), buf.dtype)
        buf.written = True
        index = [wrap(i, int32) for i in index]
        sign = " = "
        if op is not None:
            if op in ("+", "-"):
                sign = " += "
                value = value if op == "+" else unary("neg", value)
                if op == "-" and not self._reduces(index):
                    sign, value = (
                        " = ",
                        binary("-", Element(buf, tuple(index)), wrap(value.args[0] if value.op == "neg" else -value)),
                    )
            else:
                value = binary(op, Element(buf, tuple(index)), value)
        head = [Element(buf, tuple(index)), sign, cast(value, buf.dtype)]
        self.emit(head, "store")

    def add(self, element, value):
        """element += value, where other blocks may add to the same element of a tensor."""
        gm = element.buf.space == "gm"
        each = self.threads is not None and bool(self.threads.vars) and not self.parallel  # every thread adds
        alone = gm and not self.parallel and not each
        if alone:
            self.open("parallel", ["parallel ", Var("i", int32, "loop"), ": ", wrap(1)])
        self.store(element.buf, element.idx, value, "+")
        if gm:
            self.blocks[-1][-1].head.append(" atomic")
        if each:
            self.blocks[-1][-1].kind = "atomic"
        if alone:
            self.close()

    def _reduces(self, index):
        """Is an index of the open T.Parallel absent from the left side?"""
        used = set()

        def walk(e):
            if isinstance(e, Var):
                used.add(id(e))
            elif isinstance(e, Expr):
                for a in operands(e):
                    walk(a)

        for i in index:
            walk(i)
        return any(id(v) not in used for v in self.parallel)

    # ---- text ---------------------------------------------------------------------------------------------------

    def finish(self):
        if self.grid is None:
            self.error(
                1010,
                f"kernel '{self.name}' has no `with T.Kernel(...)`",
                fix="with T.Kernel(blocks) as bx:",
                at=self.where,
            )
        if self.errors:
            raise CompileError(self.errors)

    def text(self, marks):
        """(the kernel as IR text, names of its symbolic sizes); `marks` maps parameters to "out" or "workspace"."""
        printer = Printer(self)
        self.spelt = printer.written
        return printer.module(marks), list(printer.syms)


# statement -> the text after which the variable stands that it makes
_MAKES = {"let": ("let ",), "var": ("var ",), "for": ("for ",), "parallel": ("parallel ", ", ")}


class Printer:
    """Settles names and prints."""

    def __init__(self, b):
        self.b = b
        self.names, self.taken, self.syms = {}, set(), {}
        self.written = {}  # name in the text -> as the author wrote it, where IR text cannot
        tensors = [p for p in b.params if isinstance(p, Buffer)]
        self.even = {getattr(p.shape[-1], "name", None) for p in tensors if p.dtype == "int4"}
        self.at = b.where  # of the statement that is being printed

    def name(self, thing):
        if isinstance(thing, Var) and thing.kind == "sym":
            if thing.name not in self.syms:
                fail(
                    1013,
                    f"the size '{thing.name}' is used but is not a dimension of any input tensor",
                    fix=f"make '{thing.name}' a dimension of a parameter by itself, not only a part of an expression, "
                    f"or pass it as a parameter `{thing.name}: T.int32`",
                    at=self.b.where,
                )
            return self.syms[thing.name]
        found = self.names.get(id(thing))
        if found is None:
            buf = isinstance(thing, Buffer)
            fail(
                1008,
                f"{describe(thing) if buf else repr(thing.name)} belongs to another kernel, "
                "or to a T.Kernel before this one",
                fix="a launch keeps nothing but tensors: write it to one, and read it from there"
                if buf
                else "an index lives in its own `with T.Kernel(...)`; take one of this",
                at=getattr(self, "at", self.b.where),
                other=place(thing.at, f"'{thing.called}' is made here") if buf else None,
            )
        return found

    def declare(self, thing):
        """A new name for what a statement or the head of the kernel makes; the text says it before it is used."""
        found = self.names.get(id(thing))
        return found or self.names.setdefault(
            id(thing), self.unique(thing.name or ("buf" if isinstance(thing, Buffer) else "v"))
        )

    @staticmethod
    def plain(want):
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in want)
        return base if base and not base[0].isdigit() else "v" + base

    def unique(self, want):
        base = self.plain(want)
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        if base != want:
            self.written[name] = want
        return "%" + name

    def expr(self, e):
        return show(e, 0, self.name)

    def sizes(self, buf, sizes, what="a size"):
        """Offsets, extents or sizes of a buffer in its elements: of int4, two of which are one, half of the last."""
        if buf.dtype != "int4":
            return sizes
        last = half(sizes[-1], self.even)
        if last is None:
            odd = value_of(sizes[-1]) is not None
            fail(
                1011,
                f"{show(sizes[-1])} is {what} in the last dimension of {describe(buf)}, where two int4 share a byte: "
                + ("it is odd" if odd else "it is not known to be even"),
                fix="take an even number" if odd else "write it as a multiple of an even number, such as k * 64",
                at=self.at,
            )
        return [*sizes[:-1], last]

    def region(self, r):
        name = self.name(r.buf)
        whole = all(isinstance(o, int) and o == 0 for o in r.off)
        if whole and all(isinstance(d := subtract(e, s), int) and d == 0 for e, s in zip(r.ext, r.buf.shape)):
            return name
        off, ext = self.sizes(r.buf, r.off, "an offset"), self.sizes(r.buf, r.ext)
        return f"{name}[{', '.join(f'{self.expr(o)} +: {self.expr(e)}' for o, e in zip(off, ext))}]"

    def head(self, s):
        if s.kind == "alloc":
            b = s.head[1]
            shape = ", ".join(self.expr(d) for d in self.sizes(b, b.shape))
            text = f"alloc {self.declare(b)}: {b.space} {b.dtype.ir}[{shape}]"
            text += f" view({self.name(b.view)})" if b.view is not None else ""
            return text if b.addr is None else f"{text} at {b.addr}"
        out = []
        for part in s.head:
            if isinstance(part, str):
                out += [part] * bool(part)
            elif isinstance(part, Var) and out and out[-1] in _MAKES.get(s.kind, ()):
                out.append(self.declare(part))
            elif isinstance(part, Region):
                out.append(self.region(part))
            elif isinstance(part, Buffer):
                out.append(self.name(part))
            else:
                out.append(self.expr(part))
        return "".join(out)

    def block(self, stmts, pad, out):
        for s in stmts:
            number, line, col = s.loc
            self.at = (self.paths[number - 1], line, col)
            at = f" @{line}:{col}" if number == 1 else f" @{number}:{line}:{col}"
            if s.body is None:
                out.append(f"{pad}{self.head(s)}{at}")
                continue
            out.append(f"{pad}{self.head(s)} {{")
            self.block(s.body, pad + "  ", out)
            if s.alt:
                out.append(f"{pad}}} else {{")
                self.block(s.alt, pad + "  ", out)
            out.append(f"{pad}}}{at}")

    def module(self, marks):
        b = self.b
        b.loc(b.where)
        self.paths = list(b.files)
        head = []
        for p in b.params:  # sizes first: the shapes of the tensors name them
            for s in p.shape if isinstance(p, Buffer) else ():
                if isinstance(s, Var) and s.kind == "sym" and s.name not in self.syms and not marks.get(id(p)):
                    self.syms[s.name] = self.unique(s.name)
                    head.append(f"{self.syms[s.name]}: {s.dtype.ir}")
        for p in b.params:
            if isinstance(p, Buffer):
                mark = marks.get(id(p)) or ""
                self.at = p.at or b.where
                shape = ", ".join(self.expr(s) for s in self.sizes(p, p.shape))
                head.append(f"{self.declare(p)}: gm {p.dtype.ir}[{shape}]{' ' + mark if mark else ''}")
            else:
                head.append(f"{self.declare(p)}: {p.dtype.ir}")
        grid = ", ".join(f"{self.declare(v)}: {self.expr(e)}" for v, e in b.grid or ())
        vid = f" vid({self.declare(b.vid)})" if b.vid is not None else ""
        body = []
        self.block(b.top, "  ", body)
        files = ['file "{}"'.format(name.replace("\\", "\\\\")) for name in b.paths]
        line, col = b.where[1], b.where[2]
        number = b.files[b.where[0]]
        at = f"@{line}:{col}" if number == 1 else f"@{number}:{line}:{col}"
        first = f"kernel @{self.plain(self.b.name)}({', '.join(head)}) grid({grid}){vid} {{"
        return "\n".join(["tl 1", *files, first, *body, f"}} {at}", ""])
