"""What the rewritten code calls: one Frame a function call, with the names it made mutable; handles of loops and ifs.

A Python value takes Python's way through every hook. A value of the chip makes a statement: then the block runs once to
collect its statements, and names that were bound inside end with it, because the chip, not Python, decides how often
the block runs. A later use of such a name is an error that says so (expr.Poison)."""

import functools
import itertools

from ..errors import fail, here, warn
from ..language.dtypes import bool_, float32, int32
from . import builder
from .builder import active, goes_on
from .expr import (
    Buffer,
    Element,
    Expr,
    MutVar,
    Poison,
    Region,
    Var,
    _number,
    binary,
    cast,
    const,
    decided,
    describe,
    operands,
    select,
    show,
    to_bool,
    unary,
    whole,
    wrap,
)
from .returns import Call
from .returns import same as _same

_ABSENT = object()
_ITEMS = {list: list, set: list, dict: lambda d: [x for kv in d.items() for x in kv]}
_MOST_ITEMS = 1000
_TILES = (Buffer, Region)
_MAX_INLINE = 6  # operators of a pure expression that a name may stand for before it becomes a `let`


def _items(v):
    return _ITEMS[type(v)](v)


def _size(e, limit):
    n = 0 if e.op in ("const", "var") else 1
    for a in e.args:
        if n > limit:
            break
        if isinstance(a, Expr):
            n += _size(a, limit)
    return n


class RuntimeLoop:
    """A loop of the chip; subclasses say how it begins. `for` runs its body once."""

    ir = True
    at = None
    depth = 1  # loops that it opens
    single = True  # one index

    def begin(self, b, names):
        """Opens the statement(s); returns the loop's value(s)."""
        raise NotImplementedError

    def end(self, b):
        b.close()

    def run(self, names):
        b = active()
        if b is None:
            fail(1006, "a T loop is used outside a kernel", fix="it belongs into a function marked @T.prim_func")
        self.at = here()
        if self.single and isinstance(names, tuple) and len(names) != 1:
            fail(
                1004,
                f"this loop gives one index, {len(names)} names take it",
                fix="one name; for i, j in T.grid(m, n) or T.Parallel(m, n) has one for each extent",
                at=self.at,
            )
        yield from b.loop(self, names)

    def __iter__(self):
        return self.run(None)


def _flag(b):
    """A variable that is true until a loop is left by `break`."""
    v = MutVar(bool_, here())
    b.emit(["var ", v, f": {bool_.ir} = ", const(True, bool_)], "var")
    return v


class For:
    """`flag`: of a loop of the chip with an `else` and a `break`; `broken`: Python left the loop."""

    flag, broken = None, False

    def __init__(self, it, names, at, leaves):
        self.it, self.names, self.at = it, names, at
        b = active()
        ir = isinstance(it, RuntimeLoop)
        self.live = ir and b is not None and b.running
        self.ir = ir and not self.live
        self.control = b.control if b else 0
        self.ends = ir  # names end with the loop
        if ir and leaves:
            self.flag = _flag(b)

    def __iter__(self):
        if isinstance(self.it, RuntimeLoop):
            return self.it.run(self.names)
        return self.counted() if isinstance(self.it, _ENDLESS) else iter(self.it)

    def counted(self):
        """The values of an iterator that has no end of its own."""
        rounds = Rounds(f"a loop over itertools.{type(self.it).__name__}", self.at)
        for value in self.it:
            rounds.another()
            yield value


_ENDLESS = (itertools.count, itertools.cycle, itertools.repeat)


class Rounds:
    """Counts those of a loop that Python runs and of which nobody knows the end: many that make statements of the chip,
    or very many that make none, are an error at the loop."""

    def __init__(self, what, at):
        self.what, self.at, self.n = what, at, 0
        b = active()
        self.block = b.blocks[-1] if b is not None and not b.live else []
        self.first = len(self.block)

    def another(self):
        self.n += 1
        if self.n > builder.MANY:
            made = len(self.block) - self.first
            if made >= self.n // 4 or self.n > builder.MANY << 8:
                goes_on(f"{self.what} has gone round {self.n - 1} times, made {made} statements, and goes on", self.at)
        return True


class While:
    """`stuck`: nothing in a loop of the chip changes its condition."""

    flag, broken, live, stuck = None, False, False, False
    ends = property(lambda self: self.ir)

    def __init__(self, test, at, leaves):
        self.test, self.at, self.stmt, self.leaves = test, at, None, leaves
        b = active()
        self.control = b.control if b else 0
        self.ir, self.count = False, 0
        self.rounds = Rounds("a `while` that Python runs", at)

    def next(self):
        b = active()
        if self.stmt is not None:
            b.close()
            b.control -= 1
            b.returns.after_loop(self.stmt)
            self.stuck = not _changes(self.stmt.body, self.stmt.head[1])
            return False
        value = self.test()
        if not isinstance(value, Expr):
            return bool(value) and self.rounds.another()
        if self.leaves and self.flag is None:
            self.flag = _flag(b)
        if b.running:
            self.count += 1
            return b.again(self, value, self.count - 1)
        self.ir = True
        self.stmt = b.open("while", ["while ", to_bool(value)])
        b.control += 1
        return True


def _changes(block, test):
    """May a block change what a condition hangs on, or leave the loop? Tensors may be changed by other blocks."""
    hangs = set()

    def walk(e):
        if isinstance(e, (MutVar, Element)):
            hangs.add(getattr(e, "buf", e))
        for a in operands(e):
            walk(a)

    def any_in(block):
        for s in block:
            parts = s.head[:1] if s.kind in ("assign", "store") else s.head
            if s.kind == "break" or any(getattr(p, "buf", p) in hangs for p in parts if not isinstance(p, str)):
                return True
            if any(any_in(b) for b in (s.body, s.alt) if b):
                return True
        return False

    walk(test)
    return any(isinstance(h, Buffer) and h.space == "gm" for h in hangs) or any_in(block)


class If:
    """`names`: what names stand for after it, where a branch returned (returns.after_if); `body`: what they are at the
    end of the first branch; `made`: there is an `else`."""

    live, made, body, names = False, False, None, None

    def __init__(self, test, at):
        self.at = at
        if isinstance(test, Poison):
            test._use()
        known = decided(test)
        test = test if known is None else known
        self.ir = isinstance(test, Expr) and test.op != "const"
        self.test = test.args[0] if isinstance(test, Expr) and not self.ir else test

    def then(self):
        if self.ir:
            b = active()
            if b is None:
                bool(self.test)
            if b.running:
                self.ir, self.live, self.test = False, True, b.branch(self, self.test)
                return self.test
            self.stmt = b.open("if", ["if ", to_bool(self.test)])
            b.control += 1
            return True
        self.test = bool(self.test)
        return self.test

    def orelse(self):
        if self.ir:
            active().open_alt(self.stmt)
            self.made = True
            return True
        return not self.test

    def end(self):
        if self.ir:
            b = active()
            b.close()
            b.control -= 1
            self.names = b.returns.after_if(self.stmt, self.made)
        elif self.live:
            active().leave(self)
        return self.ir


class Frame:
    __slots__ = ("muts", "call", "depth", "result")

    def __init__(self, names, values):
        self.muts = {n: v for n, v in zip(names, values) if isinstance(v, MutVar)}
        b = active()
        self.call = b and Call(b)
        self.depth = len(b.stack) if b is not None and b.live else 0
        if b is not None and b.call is None:
            b.call = self.call

    # ---- assignment ---------------------------------------------------------------------------------------------

    def assign(self, spec, value):
        if spec is None:
            return value
        if isinstance(spec, str):
            return self._bind(spec, value)
        if isinstance(value, (Buffer, Region, Expr)):
            fail(
                1005,
                f"{value!r} cannot be unpacked into {len(spec)} names",
                fix="x.shape unpacks the sizes of a tile; an element is x[i, j]",
            )
        values = list(value)
        if len(values) != len(spec):
            return values  # Python's own message says it best
        values[1:] = (self.once(v) for v in values[1:])  # what is stored first must not change what follows
        return tuple(self.assign(s, v) for s, v in zip(spec, values))

    def each(self, value):
        """The values for targets one of which is starred."""
        return [self._snapshot("v", v) for v in value]

    def once(self, value):
        """A value that several targets take, or that is stored after another: what it reads, it reads now."""
        if isinstance(value, Expr) and not value.pure and not (isinstance(value, MutVar) and value.name is None):
            return active_or_fail().let("v", value)
        if type(value) in (tuple, list):
            return type(value)(map(self.once, value))
        return value

    def _bind(self, name, value):
        if isinstance(value, MutVar) and value.name is None:
            value.name = name
            self.muts[name] = value
            return value
        mut = self.muts.get(name)
        if mut is not None:
            if isinstance(value, Expr) or _number(value) is not None:
                value = whole(value, mut.dtype, f"'{name}'")
                active().emit([mut, " = ", cast(wrap(value, mut.dtype), mut.dtype)], "assign")
                return mut
            del self.muts[name]
        return self._snapshot(name, value)

    def _snapshot(self, name, value):
        if isinstance(value, Buffer):
            if value.name is None:
                value.name = name
            return value
        if isinstance(value, Var) and not isinstance(value, MutVar):
            if value.name is None:
                value.name = name
            return value
        if isinstance(value, Expr):
            b = active()
            if value.op == "const" or b is None:
                return value
            if value.pure and (not b.kernel_open or _size(value, _MAX_INLINE) <= _MAX_INLINE):
                return value
            return b.let(name, value)
        if type(value) in (tuple, list):
            return type(value)(self._snapshot(f"{name}_{i}", v) for i, v in enumerate(value))
        if type(value) is dict:
            return {k: self._snapshot(f"{name}_{i}", v) for i, (k, v) in enumerate(value.items())}
        return value

    def aug(self, name, old, op, value):
        new = _apply(op, old, value)
        return self._bind(name, new)

    def aug_store(self, target, idx, op, value):
        if isinstance(target, (Buffer, Region)):
            if op == "@":
                fail(1004, "'@=' of elements", fix="T.gemm(a, b, c) multiplies tiles")
            active_or_fail().store(target, idx, value, "pow" if op == "**" else op)
        else:
            target[idx] = _apply(op, target[idx], value)

    def annotate(self, name, annotation, value):
        b = active()
        if b is not None and b.eager is not None:
            return b.eager.annotate(name, annotation, value)
        try:
            return value()
        except NameError:
            return Poison(name, "has an annotation but no value", f"{name} = ...", here())

    # ---- names that end with a block ----------------------------------------------------------------------------

    def save(self, now, names):
        """What names stand for before a block that the chip may decide about, and what Python's lists, dicts and sets
        hold (under None)."""
        saved = {n: now[n] for n in names if n in now}
        saved[None] = [(n, v, _items(v)) for n, v in now.items() if type(v) in _ITEMS and len(v) <= _MOST_ITEMS]
        return saved

    def keep(self, h, saved, what):
        """Python changes its lists as often as it runs a block, which is once."""
        for n, v, before in saved[None]:
            after = _items(v)
            if len(after) != len(before) or any(a is not b for a, b in zip(after, before)):
                saved[None] = []
                warn(
                    f"the {type(v).__name__} '{n}' is one of Python: what {what} puts into it or takes out, it does "
                    "once, while the kernel is traced",
                    1023,
                    h.at,
                    "what changes while the kernel runs is a variable or a tile: T.alloc_var, T.alloc_shared; a loop "
                    "of Python is T.unroll(n)",
                )

    def _back(self, n, value):
        if isinstance(value, MutVar):
            self.muts[n] = value
        else:
            self.muts.pop(n, None)
        return value

    def again(self, saved, now, names):
        """What `leave` says of names that get another value in a run-time loop, at the start of an iteration."""
        return tuple(
            self._back(n, saved[n]) if isinstance(saved.get(n), Expr) and saved[n].op != "const" else now.get(n)
            for n in names
        )

    def leave(self, h, saved, now, names, carried):
        if h.live:  # interpreted: names keep what they got, but for those of the loop's indices
            index = {n for n in names if isinstance(now.get(n), Var) and now[n].kind == "loop" and n in saved}
            return tuple(self._back(n, saved[n]) if n in index else now.get(n) for n in names)
        self.keep(h, saved, "a run-time loop")
        for n in carried:
            before, after = saved.get(n, _ABSENT), now.get(n, _ABSENT)
            if before is _ABSENT or isinstance(before, Poison) or _same(before, after):
                continue
            if isinstance(before, Expr) and before.op != "const":
                warn(
                    f"'{n}' gets another value inside a run-time loop: it holds until the end of the run, "
                    f"and each run begins with {show(before)} again",
                    1023,
                    h.at,
                )
                now[n] = before
                continue
            fail(
                1007,
                f"'{n}' changes from one run of this loop to the next, "
                f"but the loop runs on the chip and '{n}' is a Python name",
                fix=(
                    f"tiles that take turns are one with a dimension for the turn, {n}[k % 2, :]"
                    if isinstance(after, _TILES)
                    else f"make it a variable of the chip: {n} = T.alloc_var('int32', init=...) (any dtype)"
                )
                + "; or unroll the loop with T.unroll",
                at=h.at,
            )
        if isinstance(h, While) and h.stuck:
            fail(
                1006,
                f"`while {show(h.stmt.head[1])}` does not end once it has begun: nothing in the loop changes its "
                "condition",
                fix="change a variable of the condition in the loop (v = T.alloc_var(...); v = v + 1), or `break`",
                at=h.at,
            )
        out = []
        for n in names:
            before, after = saved.get(n, _ABSENT), now.get(n, _ABSENT)
            if before is not _ABSENT and (_same(before, after) or isinstance(after, Var) and after.kind == "loop"):
                out.append(self._back(n, before))
            else:
                out.append(self._back(n, _unknown(n, after, "a run-time loop", h.at)))
        return tuple(out)

    def between(self, h, saved, now, names):
        out, h.body = [], now
        for n in names:
            before = saved.get(n, _ABSENT)
            other = "the other branch of a run-time `if`"
            out.append(self._back(n, _unknown(n, now.get(n), other, h.at) if before is _ABSENT else before))
        return tuple(out)

    def merge(self, h, saved, now, names):
        out = []
        self.keep(h, saved, "a run-time `if`")
        if h.names == "body":
            saved = now = h.body or now
        elif h.names == "now":
            saved = now
        elif h.names == "saved":
            now = saved
        for n in names:
            before, after = saved.get(n, _ABSENT), now.get(n, _ABSENT)
            same = before is not _ABSENT and _same(before, after)
            value = before if after is _ABSENT else after
            out.append(self._back(n, before if same else _unknown(n, value, "a run-time `if`", h.at)))
        return tuple(out)

    # ---- control flow -------------------------------------------------------------------------------------------

    def range_(self, fn):
        b = active()
        if fn is not range or b is None or not b.kernel_open:
            return fn
        from ..language.loops import serial

        return serial

    def pythons(self, fn):
        """What a kernel calls in place of a function of Python. `breakpoint()` stops where the kernel is interpreted,
        not where it is traced."""
        b = active()
        if b is None or fn is breakpoint and b.live:
            return fn
        return ON_CHIP[fn] if _hashable(fn) and fn in ON_CHIP else fn

    def items(self, it):
        """What a comprehension goes through."""
        if isinstance(it, RuntimeLoop):
            _refuse_loop("a comprehension")
        return it

    def for_(self, it, names, leaves):
        if isinstance(it, Poison):
            it._use()
        if isinstance(it, (Expr, int)):
            fail(1004, f"a loop over {show(it)}", fix=f"for i in T.serial({show(it)}):")
        return For(it, names, here(), leaves)

    def while_(self, test, leaves, endless):
        if endless:
            goes_on("`while True` without a `break`: Python runs it while the kernel is traced, and goes on for ever")
        return While(test, here(), leaves)

    def unbroken(self, h):
        """Does the `else` of a loop run?"""
        return not h.broken if h.flag is None else h.flag

    def if_(self, test):
        return If(test, here())

    def jump(self, h, word):
        b = active()
        if word == "break" and isinstance(h, For) and h.ir and h.it.depth > 1:
            fail(1006, f"`break` of {h.it.depth} loops at once", fix="loops of their own: for i in T.serial(m):")
        if h.flag is not None and word == "break":
            b.emit([h.flag, " = ", const(False, bool_)], "assign")
        if h.ir:
            b.emit([word], word)
            return False
        if b is not None and b.control > h.control:
            fail(
                1006,
                f"`{word}` of a loop that Python runs, under an `if` that the chip decides",
                fix="make the loop a run-time loop: T.serial",
            )
        h.broken = word == "break"
        return True

    def ret(self, value):
        """A `return`: is it Python's? Then self.result is what it gives."""
        b = active()
        self.result = value
        if b is None or self.call is None:
            return True
        if b.effects != self.call.effects and b.call is not self.call:
            self.result = value = self.once(value)  # what it reads, another call may write
        if b.running:
            b.unwind(self.depth)
            return True
        kernel = b.call is self.call
        if not b.returns.path(self.call):
            self.result = b.returns.finish(self.call, value, kernel)
            return True
        if kernel and value is not None:
            fail(
                1006,
                f"`return` of {describe(value)} where the chip decides: the kernel gives it back or does not",
                fix="`return` without a value ends the work of a block; return tensors at the end of the function",
            )
        b.returns.leave(self.call, value)
        return False

    def raise_(self, error):
        """Is a `raise` Python's? Where the chip decides, it is an assertion that fails."""
        b = active()
        if b is None or self.call is None or b.running or not b.returns.path(self.call):
            return True
        from ..language.debug import device_assert

        error = error()
        name = (error if isinstance(error, type) else type(error)).__name__
        said = "" if isinstance(error, type) else str(error)
        device_assert(False, f"{name}: {said}" if said else name)
        return False

    def with_(self, obj, names):
        if isinstance(obj, RuntimeLoop):
            fail(1004, "`with` over a loop", fix="for i in T.serial(n):")
        if callable(obj) and not hasattr(type(obj), "__enter__") and str(obj.__module__).startswith("tilelang."):
            name = getattr(obj, "spoken", f"T.{getattr(obj, '__name__', '...')}")
            fail(1004, f"`with {name}` without its parentheses", fix=f"with {name}(...):")
        if hasattr(obj, "tl_names"):
            obj.tl_names = names
        return obj

    # ---- booleans -----------------------------------------------------------------------------------------------

    def and_(self, *parts):
        return self._bool("&&", parts)

    def or_(self, *parts):
        return self._bool("||", parts)

    def _bool(self, op, parts):
        out = _ABSENT
        for part in parts:
            value = part()
            if out is not _ABSENT and isinstance(out, Expr):
                value = binary(op, out, value if isinstance(value, Expr) else bool(value))
            if isinstance(value, Expr) and value.op != "const":
                out = value
                continue
            out = value.args[0] if isinstance(value, Expr) else value
            if bool(out) == (op == "||"):
                return out
        return out

    def in_(self, value, items):
        if isinstance(items, range) and isinstance(value, Expr) and len(items):
            low, high, step = min(items), max(items), abs(items.step)
            parts = [lambda: value >= low, lambda: value <= high] + [lambda: (value - low) % step == 0] * (step > 1)
            return self.and_(*parts)
        chip = isinstance(items, (tuple, list, set)) and any(isinstance(v, Expr) for v in (value, *items))
        return self.or_(*((lambda v=v: value == v) for v in items)) if chip else value in items

    def assert_(self, test, message):
        """`assert` of a value of the chip is T.device_assert; true where nothing is left to Python."""
        if not isinstance(test, Expr) or test.op == "const":
            return test.args[0] if isinstance(test, Expr) else test
        from ..language.debug import device_assert

        device_assert(test, "" if message is None else message())
        return True

    def text(self, *parts):
        """An f-string: what T.printf and its like see still has the values of the chip."""
        return Text(parts) if any(isinstance(p, (Expr, Text)) for p in parts) else "".join(map(format, parts))

    def not_(self, value):
        return unary("!", value) if isinstance(value, Expr) else not value

    def ifexp(self, test, a, b):
        if isinstance(test, Expr) and test.op != "const":
            a, b = a(), b()
            tile = a if isinstance(a, _TILES) else b
            if isinstance(tile, _TILES):
                fail(
                    1004,
                    f"{describe(tile)} or something else, as the chip decides: there is no such value",
                    fix="copy the one that is wanted: `if c: T.copy(a, t)`, `else: T.copy(b, t)`; or work in both "
                    "branches",
                )
            return select(test, a, b)
        return a() if (test.args[0] if isinstance(test, Expr) else test) else b()


class Text(str):
    """A text with values of the chip in it: `parts` are strings and values."""

    def __new__(cls, parts):
        made = super().__new__(cls, "".join(map(format, parts)))
        made.parts = []
        for p in parts:
            made.parts += p.parts if isinstance(p, Text) else [p if isinstance(p, Expr) else format(p)]
        return made

    def __add__(self, other):
        return Text([self, other]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other):
        return Text([other, self]) if isinstance(other, str) else NotImplemented


def _nothing(*args, **kwargs):
    pass


def _hashable(fn):
    return getattr(type(fn), "__hash__", None) is not None


def _refuse_loop(what):
    fail(
        1004,
        f"{what} over a loop that the chip runs",
        fix="`for i in T.serial(n):` by itself, and compute what else changes from i; range(n) and T.unroll(n) in a "
        "comprehension are Python's",
    )


def _largest(fn, op):
    def function(*values, **named):
        given = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
        if named or not any(isinstance(v, Expr) for v in given):
            return fn(*values, **named)
        out = given[0]
        for v in given[1:]:
            out = binary(op, out, v)
        return out

    return function


def _converted(fn, dtype):
    def function(*values, **named):
        one = values[0] if len(values) == 1 else None
        if not isinstance(one, Expr) or one.op == "const":
            return fn(*values, **named)
        return to_bool(one) if fn is bool else cast(one, dtype)

    return function


def _every(op, ends):
    """any, all: `ends` is the truth of an item after which no other is asked for, as Python does."""

    def function(items):
        on_chip = []
        for v in items:
            if isinstance(v, Expr) and v.op != "const":
                on_chip.append(to_bool(v))
            elif bool(v) == ends:
                return ends
        return functools.reduce(lambda a, b: binary(op, a, b), on_chip) if on_chip else not ends

    return function


def _division(a, b):
    return (a // b, a % b) if isinstance(a, Expr) or isinstance(b, Expr) else divmod(a, b)


def _of_items(fn, on_chip=None):
    def function(*values, **named):
        if any(isinstance(v, RuntimeLoop) for v in values):
            _refuse_loop(f"`{fn.__name__}`")
        return (on_chip or fn)(*values, **named)

    return function


ON_CHIP = {
    breakpoint: _nothing,
    max: _largest(max, "max"),
    min: _largest(min, "min"),
    int: _converted(int, int32),
    float: _converted(float, float32),
    bool: _converted(bool, bool_),
    divmod: _division,
    **{f: _of_items(f) for f in (enumerate, zip, reversed, list, tuple, set, sorted, sum, map, filter, iter)},
    any: _of_items(any, _every("||", True)),
    all: _of_items(all, _every("&&", False)),
}


def active_or_fail():
    from .builder import current

    return current("an element store")


def _unknown(name, value, where, at):
    """Stands for a name after what the chip decides gave it a value."""
    if isinstance(value, Buffer):
        fix = f"allocate {name!r} before it"
    else:
        dtype = repr(str(value.dtype)) if isinstance(value, Expr) else "dtype"
        fix = (
            f"make it a variable of the chip before that: {name} = T.alloc_var({dtype}, init=...); "
            "for a choice of two values use T.if_then_else"
        )
    return Poison(name, f"is not known here: it gets its value inside {where}, which the chip decides", fix, at)


_PYTHON = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "**": lambda a, b: a**b, "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b, "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "@": lambda a, b: a @ b,
}  # fmt: skip


def _apply(op, a, b):
    return _PYTHON[op](a, b)
