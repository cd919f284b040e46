"""`return` under a condition of the chip, and T.thread_return.

The kernel is traced once, both branches of an `if`, so Python cannot return there. Instead the block in which a
`return` stands has ended, and what follows in the function goes where it still runs:

    if c: return           if c { } else {             the other branch stays open until the function ends
    rest                       rest }

    if a:                  var done = false
        x                  if a { x; if b { done = true } }
        if b: return       if !done {
    rest                       rest }

    for ...:               for ... { if c { done = true; break } }
        if c: return       if !done {                  in an outer loop: if done { break }
    rest                       rest }

The values of several `return` become one: a choice where the branches compute nothing else, a variable otherwise.
"""

import functools

from ..errors import fail, here, place
from ..language.dtypes import bool_
from .expr import Expr, MutVar, Poison, Var, _number, cast, common_dtype, const, describe, select, unary, wrap

_LOOPS = ("for", "while")
NOTHING = object()


def same(a, b):
    """Is it the same value, whichever of the two a name stands for?"""
    return a is b or type(a) is type(b) and isinstance(a, (int, float, str, bool)) and a == b


class Mark:
    """A `return`: the call it ends, the block and the number of statements before it there. `broke`: it leaves a loop;
    value NOTHING: what an ended loop left of one."""

    __slots__ = ("call", "block", "before", "value", "at", "broke", "told")

    def __init__(self, call, block, value, broke=False, told=False):
        self.call, self.block, self.before, self.value = call, block, len(block), value
        self.at, self.broke, self.told = here(), broke, told


class Call:
    """A call of a rewritten function: the depth of the blocks and the number of effects where it began, the statement
    of it with the first return, and the variable that says it has returned."""

    __slots__ = ("base", "effects", "first", "flag")

    def __init__(self, b):
        self.base, self.effects, self.first, self.flag = len(b.blocks), b.effects, None, None


class Returns:
    """Those of one builder."""

    def __init__(self, b):
        self.b, self.marks, self.kept, self.dead = b, [], [], []
        self.barred = None  # (depth of the blocks, word of the T.Scope, place): what follows a T.Scope with a return

    # ---- blocks -------------------------------------------------------------------------------------------------

    def path(self, call):
        """The open statements since a call began, without those that only a return keeps open."""
        blocks = self.b.blocks
        return [blocks[d - 1][-1] for d in range(call.base, len(blocks)) if not self.is_kept(blocks[d])]

    def is_kept(self, block):
        return any(block is k for k in self.kept)

    def keep(self, block):
        self.b.blocks.append(block)
        self.kept.append(block)

    def drop(self):
        """Closes what only returns keep open in the innermost block."""
        blocks = self.b.blocks
        while self.kept and self.is_kept(blocks[-1]):
            last = blocks.pop()
            self.kept = [k for k in self.kept if k is not last]

    def within(self, block):
        """The marks in a block that what follows it has to heed."""
        return [m for m in self.marks if not m.broke and _holds(block, m.block)]

    def ended(self, block):
        """Does every way through a block return?"""
        if any(m.block is block and not m.broke and m.value is not NOTHING for m in self.marks):
            return True
        last = block[-1] if block else None
        return bool(last) and last.kind == "if" and last.alt is not None and self.ended(last.body) and self.ended(
            last.alt
        )  # fmt: skip

    def rest(self, block):
        """The block that runs exactly where a block does not return; None: there is no such one."""
        if not self.within(block):
            return block
        last = block[-1] if block else None
        if last is None or last.kind != "if" or last.alt is None:
            return None
        if self.ended(last.body):
            return None if self.ended(last.alt) else self.rest(last.alt)
        return self.rest(last.body) if self.ended(last.alt) else None

    # ---- a return -----------------------------------------------------------------------------------------------

    def leave(self, call, value, what="`return`"):
        """A return inside open blocks."""
        b, path = self.b, self.path(call)
        kinds = [s.kind for s in path]
        if "parallel" in kinds:
            fail(1006, f"{what} inside T.Parallel, whose iterations run together", fix="an `if` around the rest of it")
        if any(s is i.stmt for s in path for i in b.ifs):
            fail(1006, f"{what} inside T.If", fix="`if` of Python in its place")
        if any(k in ("cube", "vector") for k in kinds[1:]):
            fail(
                1006,
                f"{what} inside a T.Scope that stands in a loop or an `if`",
                fix="put what follows into the opposite `if`",
            )
        call.first = call.first or b.blocks[call.base - 1][-1]
        broke = any(k in _LOOPS for k in kinds)
        mark = Mark(call, b.blocks[-1], value, broke)
        self.marks.append(mark)
        if broke:
            self.tell(mark)
            b.emit(["break"], "break")
        self.nowhere()

    def nowhere(self):
        """What follows in the innermost block never runs."""
        self.dead.append([])
        self.keep(self.dead[-1])

    def tell(self, mark):
        """The variable of a call says that it has returned."""
        if mark.told:
            return
        b, call = self.b, mark.call
        if call.flag is None:
            call.flag = MutVar(bool_, mark.at)
            call.flag.name = "done"
            self.insert(call, b.statement("var", ["var ", call.flag, f": {bool_.ir} = ", const(False, bool_)], mark.at))
        s = b.statement("assign", [call.flag, " = ", const(True, bool_)], mark.at)
        mark.block.insert(mark.before, s)
        mark.told = True

    def insert(self, call, s):
        """A statement before whatever returns."""
        block = self.b.blocks[call.base - 1]
        block.insert(next(n for n, x in enumerate(block) if x is call.first), s)

    def unless(self, calls):
        """What follows runs unless one of the calls has returned."""
        cond = None
        for c in calls:
            this = unary("!", c.flag)
            cond = this if cond is None else cond & this
        s = self.b.statement("if", ["if ", cond], None, [])
        self.b.blocks[-1].append(s)
        self.keep(s.body)

    def after_if(self, s, made):
        """At the end of an `if`, whose other branch was `made` by the author or not. What names stand for from here on:
        "saved" (before it), "now", "body" (at the end of its first branch), None: it depends."""
        alt = [] if s.alt is None else s.alt
        marks = self.within(s.body) + self.within(alt)
        if not marks:
            return None
        body_ended, alt_ended = self.ended(s.body), self.ended(alt)
        if body_ended and alt_ended:
            self.nowhere()
            return "now"
        on = self.rest(alt) if body_ended else self.rest(s.body) if alt_ended else None
        if on is not None:
            s.alt = alt
            self.keep(on)
            return "body" if alt_ended else "now" if made else "saved"
        for m in marks:
            self.tell(m)
        self.unless(dict.fromkeys(m.call for m in marks))
        return None

    def after_loop(self, s):
        """At the end of a loop of the chip, which is not there any more if it never runs."""
        inside = [m for m in self.marks if m.broke and _holds(s.body, m.block)]
        if not inside:
            return
        self.marks = [m for m in self.marks if m not in inside or m.value is not NOTHING]
        block = self.b.blocks[-1]
        if not block or block[-1] is not s:
            self.marks = [m for m in self.marks if m not in inside]
            return
        calls = dict.fromkeys(m.call for m in inside)
        outer = [c for c in calls if any(p.kind in _LOOPS for p in self.path(c))]
        for c in outer:
            at = next(m.at for m in inside if m.call is c)
            body = [self.b.statement("break", ["break"], at)]
            block.append(self.b.statement("if", ["if ", c.flag], at, body))
            self.marks.append(Mark(c, body, NOTHING, broke=True, told=True))
        ways = [c for c in calls if c not in outer]
        if ways:
            self.marks += [Mark(c, block, NOTHING, told=True) for c in ways]
            self.unless(ways)

    def after_scope(self, s):
        """At the end of a T.Scope: of the cores that it is for, those that returned do nothing more."""
        marks = self.within(s.body)
        if marks:
            self.barred = (len(self.b.blocks), s.kind, marks[0].at)
        self.marks = [m for m in self.marks if m not in marks]

    def check(self, kind):
        """What a return in a T.Scope would have to leave out cannot follow it."""
        depth, word, at = self.barred
        if len(self.b.blocks) > depth or kind in ("cube", "vector") and kind != word:
            return
        fail(
            1006,
            f"a statement after a T.Scope with a `return` in it: cores of the {word} side may be done by then",
            fix="put what follows in the T.Scope into the opposite `if`",
            other=place(at, "the `return`"),
        )

    # ---- the end of a call --------------------------------------------------------------------------------------

    def finish(self, call, value, kernel):
        """The result of a call that ends here with `value`; `kernel`: it is the kernel's own function, where
        a `return` ends the work of a block."""
        b = self.b
        mine = [m for m in self.marks if m.call is call]
        if self.barred and self.barred[0] >= call.base and not kernel:
            self.barred = None
        if not mine:
            return value
        if kernel and not b.kernel_open:
            return value
        blocks = b.blocks[call.base :]
        if any(m.call is not call and any(_holds(x, m.block) for x in blocks) for m in self.marks):
            fail(1006, "`return` and T.thread_return in one function", fix="T.thread_return in the kernel itself")
        if not any(x is d for x in blocks for d in self.dead):
            mine.append(Mark(call, b.blocks[-1], value))
        values = [m for m in mine if m.value is not NOTHING and not (kernel and m.value is None)]
        del b.blocks[call.base :]
        self.kept = [k for k in self.kept if not any(k is x for x in blocks)]
        self.marks = [m for m in self.marks if m.call is not call]
        return self.join(call, values, [m.value for m in values])

    def close_kernel(self):
        """The end of T.Kernel."""
        del self.b.blocks[1:]
        self.marks, self.kept, self.dead, self.barred = [], [], [], None

    def join(self, call, marks, values):
        """One value for those of several returns."""
        if not values or all(same(values[0], v) for v in values):
            return values[0] if values else None
        if all(type(v) in (tuple, list) and len(v) == len(values[0]) for v in values):
            return type(values[0])(self.join(call, marks, list(parts)) for parts in zip(*values))
        at = next(m.at for m, v in zip(marks, values) if not same(v, values[0]))
        if any(v is None for v in values):
            why = "is missing: on some ways through the function a `return` gives a value, on others none"
            return Poison("the result", why, "`return` a value at the end of the function, too", at)
        if not all(isinstance(v, Expr) or _number(v) is not None for v in values):
            fail(
                1006,
                f"the function returns {describe(values[0])} or {describe(values[-1])}, and the chip decides which",
                fix="numbers can be chosen so; for tiles put the rest of the work into the two branches of an `if`",
                at=marks[0].at,
                other=place(at, "the other `return`"),
            )
        exprs = sorted((wrap(v) for v in values), key=lambda e: e.op == "const")
        dtype = functools.reduce(lambda a, e: Var(None, common_dtype(a, e), "let"), exprs).dtype
        base = self.b.blocks[-1]
        chosen = _choice(base[-1:], {id(m.block): v for m, v in zip(marks, values)})
        if chosen is not None and base[-1] is call.first:
            base.pop()
            return chosen
        v = MutVar(dtype, at)
        v.name = "result"
        self.insert(call, self.b.statement("var", ["var ", v, f": {dtype.ir} = ", const(0, dtype)], at))
        for m, value in zip(marks, values):
            s = self.b.statement("assign", [v, " = ", cast(wrap(value, dtype), dtype)], m.at)
            m.block.insert(m.before, s)
        return v


def _holds(block, wanted):
    """Is a block another, or does it stand in it?"""
    if block is wanted:
        return True
    return any(_holds(x, wanted) for s in block for x in (s.body, s.alt) if x is not None)


def _choice(block, values):
    """The value of a block of nothing but `if` and returns; None: there is more."""
    if not block:
        return values.get(id(block))
    if len(block) != 1 or block[0].kind != "if" or block[0].alt is None:
        return None
    a, b = _choice(block[0].body, values), _choice(block[0].alt, values)
    return None if a is None or b is None else select(block[0].head[1], a, b)
