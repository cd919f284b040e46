"""Kernels from Python, interpreted: the kernel's own function runs once for each lane, and every statement is executed
as it is traced.

`Live` is a Builder that does not collect: what a hook or a T function emits goes to the lane (machine.py) at once,
loops of the chip run as often as they should, an `if` takes one branch. So `breakpoint()`, `print` and any other Python
in the kernel see the values of this moment: a tile prints and converts (`numpy.asarray(tile)`) as its array, a scalar
as its number. T.Parallel alone is collected, for it is executed over its whole box.
"""

import re

from ..frontend.builder import Builder, Stmt
from ..frontend.expr import Buffer, Region, wrap
from .machine import Node

_SYNC = {"set_flag", "wait_flag", "barrier", "cross_set", "cross_wait", "sync_all"}
_ATTR = re.compile(r"(\w+)(?:\(([^)]*)\))?")


def node_of(s, loc):
    """A statement of the front end as a machine.Node."""
    head, kind = s.head, s.kind
    if kind == "alloc":
        return Node(kind, loc, buf=head[1])
    if kind in ("let", "var"):
        return Node(kind, loc, var=head[1], value=head[3])
    if kind == "assign":
        return Node(kind, loc, var=head[0], value=head[2])
    if kind == "store":
        target, sign, value = head[:3]
        return Node(kind, loc, buf=target.buf, idx=target.idx, value=value, accumulate=sign == " += ")
    if kind == "if":
        alt = [node_of(x, x.loc) for x in s.alt or ()]
        return Node(kind, loc, cond=head[1], body=[node_of(x, x.loc) for x in s.body], alt=alt)
    if kind == "for":
        step = head[7] if len(head) > 7 and not isinstance(head[7], str) else wrap(1)
        body = [node_of(x, x.loc) for x in s.body]
        return Node(kind, loc, var=head[1], lo=head[3], hi=head[5], step=step, body=body)
    if kind == "parallel":
        parts = [p for p in head if not isinstance(p, str)]
        return Node(kind, loc, vars=parts[::2], ext=parts[1::2], body=[node_of(x, x.loc) for x in s.body])
    words = head[0].split()
    if kind == "say":
        cond, rest = (head[1], head[3:]) if words[0] == "assert" else (None, head[1:])
        args = [Region(p, [0] * len(p.shape), list(p.shape)) if isinstance(p, Buffer) else p for p in rest[2::2]]
        when = words[1] if len(words) > 1 else "here"
        return Node(words[0], loc, text=rest[0].raw, args=args, cond=cond, when=when)
    if words[0] in _SYNC:
        mode = int(re.search(r"mode\((\d)\)", str(head[-1])).group(1)) if words[0] == "cross_set" else 0
        return Node(words[0], loc, id=head[1] if len(head) > 1 else None, mode=mode)
    return _op(words[0], head[1:], loc)


def _op(name, parts, loc):
    ins, outs, text, values = [], [], "", []
    side = ins
    for p in parts:
        if isinstance(p, Buffer):
            p = Region(p, [0] * len(p.shape), list(p.shape))
        if isinstance(p, str):
            if p.strip() == "->":
                side = outs
            elif side is outs:
                text += p
        elif side is outs and outs:  # the value of an attribute
            text += str(len(values))
            values.append(p)
        else:
            side.append(p)
    attrs = {}
    for key, value in _ATTR.findall(text):
        if key in ("init", "pad"):
            attrs[key] = values[int(value)] if value.isdigit() else value == "true"
        else:
            attrs[key] = int(value) if value.isdigit() else value or True
    return Node("op", loc, name=name, ins=ins, outs=outs, attrs=attrs)


class _Open:
    """An open block of the chip: the statement, what close() restores."""

    __slots__ = ("stmt", "muted", "place", "taken")

    def __init__(self, stmt, muted, place, taken=True):
        self.stmt, self.muted, self.place, self.taken = stmt, muted, place, taken


class Live(Builder):
    """`lane` executes what is emitted."""

    live = True

    def __init__(self, name, where, eager, lane, launch=0):
        self.lane = lane
        self.launches = launch  # launches still to pass over
        super().__init__(name, where, eager)
        self.muted = int(launch > 0)  # blocks open that do not run: another core's, a condition that is false
        self.collecting = 0
        self.stack = []
        self.nth = self.more = None  # the iteration a loop is to open; does it exist?

    # ---- indices of the block ---------------------------------------------------------------------------------------

    @property
    def grid(self):
        return self._grid

    @grid.setter
    def grid(self, grid):
        self._grid = grid
        if grid:
            self.lane.env.update((id(v), k) for (v, _), k in zip(grid, self.lane.index))

    @property
    def vid(self):
        return self._vid

    @vid.setter
    def vid(self, var):
        self._vid = var
        if var is not None:
            self.lane.env[id(var)] = self.lane.vid

    def next_launch(self):
        self.launches -= 1
        self.muted = int(self.launches != 0)
        self.top = []
        self.blocks, self.views, self.ifs, self.stack = [self.top], {}, [], []
        self.grid = self.vid = self.deq_scale = None
        self.begun = False

    def end_work(self):
        if not self.muted:
            self.muted += 1
            for o in self.stack:
                o.muted += 1

    # ---- statements -------------------------------------------------------------------------------------------------

    def emit(self, head, kind="op", at=None):
        if self.collecting:
            return super().emit(head, kind, at)
        if not self.kernel_open or kind == "alloc":
            s = super().emit(head, kind, at)  # its errors; views look for the alloc
        else:
            s = Stmt(kind, head, self.loc(at))
            self.effect(kind, head)
        self.run(s)
        return s

    def look_back(self, head):
        pass  # the traced kernel has said it

    def say(self, head):
        if self.kernel_open:
            return self.emit(head, "say")
        s = node_of(Stmt("say", head, self.loc()), self.loc())
        if s.when in self.lane.speaks:
            self.lane.loc = s.loc
            self.lane.show(s, f"{s.when} the launch")

    def value(self, e):
        return self.lane.value(e)

    def array(self, tile):
        return self.lane.tile(tile) if isinstance(tile, Buffer) else self.lane.window(tile)

    # ---- blocks -----------------------------------------------------------------------------------------------------

    def enter(self, stmt, step, runs=True):
        """Begins a block at this place of the program; `runs` false: what stands in it is not executed."""
        self.stack.append(_Open(stmt, self.muted, len(self.lane.place), runs))
        self.lane.place += [step, 0]
        self.muted += not runs

    def unwind(self, depth):
        """Ends the blocks above a depth of the stack: `break` and `continue` leave them open."""
        while len(self.stack) > depth:
            o = self.stack.pop()
            self.muted = o.muted
            del self.lane.place[o.place :]

    def leave(self, stmt):
        """Ends the block of `stmt`, if it is open still."""
        for depth, o in enumerate(self.stack):
            if o.stmt is stmt:
                self.unwind(depth)
                return

    def open(self, kind, head, at=None):
        s = super().open(kind, head, at)
        if kind == "parallel":
            self.collecting += 1
        if self.collecting:
            return s
        self.lane.place[-1] += 1
        self.lane.loc = s.loc
        if kind == "for":
            bounds = (head[3], head[5], head[7] if len(head) > 7 and not isinstance(head[7], str) else 1)
            run = range(0) if self.muted else range(*(int(self.value(e)) for e in bounds))
            self.more = self.nth < len(run)
            if self.more:
                self.lane.env[id(head[1])] = run[self.nth]
            self.lane.place[-1] -= self.nth > 0  # one statement, whatever its iterations
            self.enter(s, self.nth, self.more)
        elif kind == "if":
            taken = not self.muted and bool(self.value(head[1]))
            self.enter(s, 0 if taken else 1, taken)
        else:
            self.enter(s, 0, self.lane.side in (None, kind))
        return s

    def open_alt(self, s):
        super().open_alt(s)
        if not self.collecting:
            o = self.stack[-1]
            self.muted = o.muted + bool(o.taken)

    def close(self):
        self.returns.drop()
        self.blocks.pop()
        s = self.blocks[-1][-1]
        if not self.collecting:
            self.leave(s)
        elif s.kind == "parallel":
            self.collecting -= 1
            if not self.collecting:
                self.blocks[-1].pop()
                self.run(s)

    def run(self, s):
        self.lane.place[-1] += 1
        if not self.muted:
            self.lane.statement(node_of(s, s.loc))

    def cut(self, block, mark):
        """Statements of a block from `mark` on are done with; buffers they made end."""
        for s in block[mark:]:
            if s.kind == "alloc":
                buf = s.head[1]
                self.lane.tiles.pop(id(buf), None)
                self.lane.memory.pop(id(buf), None)
                self.lane.written.discard(id(buf))
            for inner in (s.body, s.alt):
                self.cut(inner or [], 0)
        del block[mark:]

    # ---- what hooks.py asks -----------------------------------------------------------------------------------------

    @property
    def running(self):
        return not self.collecting

    def loop(self, it, names):
        """The values of a loop of the chip, iteration by iteration."""
        if self.collecting:
            yield from super().loop(it, names)
            return
        outer = self.blocks[-1]
        blocks, stack, mark, n = len(self.blocks), len(self.stack), len(outer), 0
        try:
            while True:
                self.nth, self.more = n, None
                value = it.begin(self, names)
                more, inside = self.more, len(self.stack)
                if more is not False:
                    yield value
                self.unwind(inside)
                it.end(self)
                self.cut(outer, mark)
                n += 1
                if not more:
                    return
        finally:  # after `break` too
            del self.blocks[blocks:]
            self.unwind(stack)
            self.cut(outer, mark)

    def branch(self, h, test):
        """The truth of a run-time condition; the block of `h` is open until leave(h)."""
        self.lane.place[-1] += 1
        taken = not self.muted and bool(self.value(test))
        self.enter(h, 0 if taken else 1)
        return taken

    def again(self, h, test, n):
        """Does a `while` run an n-th time?"""
        self.leave(h)
        self.lane.place[-1] += n == 0
        runs = not self.muted and bool(self.value(test))
        if runs:
            self.enter(h, n)
        return runs


def replay(kernel, lane, arrays, scalars):
    """One lane's run of the function that a Kernel was traced from, as far as it is the Kernel's launch; tensors
    and scalars by parameter number."""
    traced = kernel.traced
    with Live(traced.name, traced.builder.where, traced.builder.eager, lane, traced.number) as b:

        def given(thing):
            i = next(i for i, p in enumerate(b.params) if p is thing)
            return scalars[i] if i in scalars else arrays[i]

        lane.given, lane.files, lane.base = given, b.files, 1
        traced.execute(b)
