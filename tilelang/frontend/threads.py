"""Kernels that number their threads, as tiles: runs when T.Kernel closes, and only when a thread index was asked for.

A block of Ascend is one core, so its threads are lanes of tiles. The statements run one after the other, each for all
threads, which is one of the orders that a program without races allows; T.sync_threads then has nothing to do.

  1. What differs between threads is found by going over the statements until nothing changes: a buffer of
     T.alloc_local or a variable that takes a value of some threads gets those threads as leading dimensions; all
     else is kept once.
  2. A statement on elements becomes T.Parallel over the threads it depends on; what depends on none is done once. An
     `if` on a thread becomes a condition of each statement in it. A condition on threads that the statement itself does
     not depend on holds for the whole when it holds for one of them.
  3. A serial loop whose runs do not depend on each other, or only add up, goes into T.Parallel as well.
  4. Statements on whole tiles and T.Parallel are work of all threads together, in mainline too: they are done once.

What has no such meaning - a loop that ends at another time for each thread, a tile that starts elsewhere for each - is
an error that names it."""

import itertools
import math

from ..errors import fail
from ..language.dtypes import int32
from .expr import (
    CALLS2,
    PREC,
    Buffer,
    Element,
    Expr,
    MutVar,
    Region,
    Var,
    binary,
    const,
    difference,
    interval,
    key_of,
    operands,
    select,
    show,
    to_bool,
    unary,
    value_of,
    wrap,
)

_MOST_THREADS = 4096  # beyond, conditions are not tried one by one
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LANES = 4096  # elements of a loop that goes into T.Parallel


def rebuild(e, leaf):
    """e with every leaf x replaced by leaf(x), where that is not None; folded again on the way."""
    found = leaf(e)
    if found is not None:
        return found
    old = operands(e)
    new = [rebuild(a, leaf) for a in old]
    if all(a is b for a, b in zip(old, new)):
        return e
    if isinstance(e, Element):
        return Element(e.buf, tuple(new))
    if e.op in PREC or e.op in CALLS2:
        return binary(e.op, *new)
    if e.op in ("neg", "!", "~", "abs"):
        return unary(e.op, *new)
    return Expr(e.op, tuple(new), e.dtype)


def conjuncts(e):
    return [c for a in e.args for c in conjuncts(a)] if e.op == "&&" else [e]


def opposite(e):
    if e.op in _OPPOSITE and not e.args[0].dtype.is_float:
        return binary(_OPPOSITE[e.op], *e.args)
    return unary("!", e)


class Threads:
    """The thread indices of a launch: `extents` of T.Kernel(threads=), a Var for each that was asked for."""

    def __init__(self, extents):
        self.extents, self.vars = extents, {}

    def index(self, axis):
        n = self.extents[axis] if axis < len(self.extents) else 1
        if n == 1:
            return const(0, int32)
        if axis not in self.vars:
            self.vars[axis] = v = Var("t" + "xyz"[axis], int32, "thread")
            v.range = (0, n - 1)
        return self.vars[axis]


class Expansion:
    def __init__(self, b, threads):
        self.b, self.threads = b, threads
        self.axes = {id(v): v for v in threads.vars.values()}
        self.idle = math.prod(threads.extents) // _size(self.axes.values())  # threads that no index tells apart
        self.vary = {}  # id of a buffer or variable -> ids of the thread indices that it differs by
        self.lanes = {}  # id of the index of a loop that goes into T.Parallel -> Var
        self.vars = {}  # id of a `let` or `var` -> what stands for it
        self.bufs = {}  # id of a private buffer -> the buffer with its threads as dimensions
        self.order = {}

    # ---- what differs between threads -------------------------------------------------------------------------------

    def deps(self, e):
        """ids of the thread indices and lanes that the value of an expression depends on."""
        if not isinstance(e, Expr):
            return frozenset()
        if e.op == "var":
            own = {id(e)} & (self.axes.keys() | self.lanes.keys())
            return frozenset(own) | self.vary.get(id(e), frozenset())
        out = frozenset().union(*(self.deps(a) for a in operands(e)))
        return out | self.vary.get(id(e.buf), frozenset()) if isinstance(e, Element) else out

    def region_deps(self, r):
        return frozenset().union(*(self.deps(o) for o in r.off if isinstance(o, Expr)), self.vary.get(id(r.buf), ()))

    def grow(self, thing, by):
        have = self.vary.get(id(thing), frozenset())
        if not by <= have:
            self.vary[id(thing)] = have | by
            self.changed = True

    def survey(self, block, guard):
        for s in block:
            head = s.head
            if s.kind in ("store", "atomic"):
                if head[0].buf.mark == "private":
                    self.grow(head[0].buf, (self.deps(head[0]) | self.deps(head[2]) | guard) & self.axes.keys())
            elif s.kind == "let":
                self.grow(head[1], self.deps(head[3]))
            elif s.kind in ("assign", "var"):
                var, value = (head[0], head[2]) if s.kind == "assign" else (head[1], head[3])
                self.grow(var, (self.deps(value) | guard) & self.axes.keys())
            elif s.kind == "exchange":
                by = (self.deps(head[2]) | guard) - {id(a) for a in head[3]}
                self.grow(head[0].buf, by & self.axes.keys())
            elif s.kind == "op":
                regions = [x for x in head if isinstance(x, Region)]
                if regions and regions[-1].buf.mark == "private" and _name(s) in ("copy", "fill"):
                    values = [x for x in head if isinstance(x, Expr)]
                    by = guard.union(*map(self.region_deps, regions), *map(self.deps, values))
                    self.grow(regions[-1].buf, by & self.axes.keys())
            inner = guard
            if s.kind == "for" and self.deps(head[3]) | self.deps(head[5]):
                inner = guard | self.deps(head[3]) | self.deps(head[5])
            elif s.kind in ("if", "while"):
                inner = guard | self.deps(head[1])
            for block_ in (s.body, s.alt):
                if block_ and s.kind != "parallel":
                    self.survey(block_, inner)

    def find_lanes(self, block):
        for s in block:
            for inner in (s.body, s.alt):
                if inner:
                    self.find_lanes(inner)
            if s.kind == "for" and _is_lane(s):
                self.lanes[id(s.head[1])] = s.head[1]

    def rank_axes(self, block):
        """Of two threads that index one tensor the one in the later index comes last: its elements lie side by side."""

        def look(e):
            if isinstance(e, Element) and e.buf.space == "gm":
                places = [(v, at) for at, i in enumerate(reversed(e.idx)) for v in self.deps(i) & self.axes.keys()]
                for v, at in places if len(places) > 1 else ():
                    self.order[v] = self.order.get(v, 0) + at
            if isinstance(e, Expr):
                for a in operands(e):
                    look(a)

        for s in block:
            for part in s.head:
                look(part)
            for inner in (s.body, s.alt):
                if inner:
                    self.rank_axes(inner)

    def sorted(self, ids):
        """Vars of the thread indices in ids, then of the lanes."""
        numbers = {id(v): n for n, v in self.threads.vars.items()}
        mine = sorted((i for i in ids if i in self.axes), key=lambda i: (-self.order.get(i, 0), -numbers[i]))
        return [self.axes[i] for i in mine] + [v for i, v in self.lanes.items() if i in ids]

    # ---- expressions ------------------------------------------------------------------------------------------------

    def new(self, e):
        """An expression of the old program in the new one."""

        def leaf(x):
            if x.op == "var":
                found = self.vars.get(id(x))
                return x if found is None else found
            if isinstance(x, Element) and id(x.buf) in self.bufs:
                return self.element(x)
            return None

        return rebuild(e, leaf)

    def element(self, e):
        buf = self.bufs.get(id(e.buf))
        idx = tuple(self.new(i) for i in e.idx)
        if buf is None:
            return Element(e.buf, idx)
        lead = self.sorted(self.vary[id(e.buf)])
        return Element(buf, (*lead, *(() if e.buf.shape == (1,) else idx)))

    def widen(self, buf):
        lead = tuple(v.range[1] + 1 for v in self.sorted(self.vary[id(buf)]))
        shape = lead + (() if buf.shape == (1,) else buf.shape)
        if len(shape) > 6:
            fail(
                1002,
                f"'{buf.called}' with {len(shape)} dimensions, threads among them",
                fix="fewer dimensions, or T.Parallel in place of threads",
                at=buf.at,
            )
        new = self.bufs[id(buf)] = Buffer(buf.name, shape, buf.dtype, buf.space, buf.at)
        return new

    def tile(self, name, dtype, ids, s):
        """An element, at its threads and lanes, of a new tile."""
        over = self.sorted(ids)
        made = Buffer(name, tuple(v.range[1] + 1 for v in over), dtype, "fragment", s.at)
        self.put(s, "alloc", ["alloc ", made])
        return Element(made, tuple(over))

    # ---- statements -------------------------------------------------------------------------------------------------

    def put(self, like, kind, head, body=None, alt=None):
        new = type(like.stmt)(kind, head, like.stmt.loc, body)
        new.alt = alt
        self.out.append(new)
        return new

    def within(self, block, guards):
        out, self.out = getattr(self, "out", None), []
        for stmt in block:
            getattr(self, "on_" + stmt.kind, self.on_other)(_At(stmt, self.b.files), guards)
        made, self.out = self.out, out
        return made

    def project(self, guards, keep, repeat=frozenset()):
        """The guards of a statement that depends on `keep`, without the other threads: the conditions left, the threads
        that must be gone through one by one, and how often it is done when each of `repeat` does it. None: never."""
        over = frozenset().union(*map(self.deps_new, guards)) - keep
        mixed = [g for g in guards if self.deps_new(g) & over]
        left = [g for g in guards if not self.deps_new(g) & over]
        free = self.sorted(over)
        if not all(g.pure and _only(g, over) for g in mixed) or _size(free) > _MOST_THREADS:
            return guards, free, _size(self.sorted(repeat - over))
        done = set()
        for point in itertools.product(*(range(v.range[1] + 1) for v in free)):
            at = {id(v): const(n, int32) for v, n in zip(free, point)}
            if all(value_of(rebuild(g, lambda x: at.get(id(x)))) for g in mixed):
                done.add(tuple(n for v, n in zip(free, point) if id(v) in repeat))
        return (left, [], len(done) * _size(self.sorted(repeat - over))) if done else (None, [], 0)

    def deps_new(self, e):
        """deps of an expression of the new program: threads stand in it themselves."""
        if e.op == "var":
            return frozenset({id(e)} & (self.axes.keys() | self.lanes.keys()))
        return frozenset().union(*(self.deps_new(a) for a in operands(e)))

    def parallel(self, s, head, guards, times=frozenset()):
        """A store for all threads and lanes it depends on; each of the threads `times` does it."""
        target, sign, value = head[0], head[1], head[2]
        keep = self.deps_new(target) | self.deps_new(value)
        adds = sign == " += "
        repeat = (times.union(self.open_lanes) if adds else times) - keep
        guards, free, count = self.project(guards, keep, repeat)
        if guards is None:
            return
        if adds and count * (self.idle if times else 1) != 1:
            value = binary("*", value, const(count * (self.idle if times else 1), value.dtype))
        over = self.sorted(keep.union(*map(self.deps_new, guards)) - {id(v) for v in free})
        if adds:  # each of them adds
            over, free = over + free, []
        own = {id(v): _index(v.range[1] + 1, v.name) for v in over + free}  # each loop has indices of its own
        target, value, *guards = (rebuild(e, lambda x: own.get(id(x))) for e in (target, value, *guards))
        over, free = ([own[id(v)] for v in vs] for vs in (over, free))
        outer = self.out
        for v in free:
            self.out = self.put(s, "for", ["for ", v, " in ", wrap(0), "..", wrap(v.range[1] + 1)], []).body
        if target.buf.space == "gm" and head[3:] and not over:  # an atomic one stands in T.Parallel
            over = [_index(1)]
        if over:
            line = ["parallel "]
            for v in over:
                line += [", " if len(line) > 1 else "", v, ": ", wrap(v.range[1] + 1)]
            self.out = self.put(s, "parallel", line, []).body
        for g in guards:
            self.out = self.put(s, "if", ["if ", g], []).body
        self.put(s, "store", [target, sign, value, *head[3:]])
        self.out = outer

    open_lanes = ()

    def on_store(self, s, guards):
        target, sign, value = s.head[:3]
        self.parallel(s, [self.element(target), sign, self.new(value), *s.head[3:]], guards)

    def on_atomic(self, s, guards):
        target, sign, value = s.head[:3]
        self.parallel(s, [self.element(target), sign, self.new(value), *s.head[3:]], guards, frozenset(self.axes))

    def on_alloc(self, s, guards):
        buf = s.head[1]
        if buf.view is not None and id(buf.view) in self.bufs:
            fail(
                1002,
                f"a view of '{buf.view.called}', which every thread has for itself",
                fix="a buffer of T.alloc_shared",
                at=buf.at,
            )
        self.put(s, "alloc", ["alloc ", self.widen(buf) if self.vary.get(id(buf)) else buf])

    def on_let(self, s, guards):
        var, value = s.head[1], self.new(s.head[3])
        by = self.deps_new(value)
        if not by:
            self.put(s, "let", ["let ", var, s.head[2], value])
        elif value.pure:
            self.vars[id(var)] = value
        else:
            self.vars[id(var)] = self.snapshot(s, var.name, value, by, guards)

    def snapshot(self, s, name, value, by, guards):
        """The value of an expression now, for every thread that fulfils the guards."""
        flag = value.dtype == "bool"
        e = self.tile(name or "v", int32 if flag else value.dtype, by, s)
        one = select(value, const(1, int32), const(0, int32)) if flag else value
        if guards:
            self.parallel(s, [e, " = ", const(0, e.dtype)], [])
        self.parallel(s, [e, " = ", one], guards)
        return to_bool(e) if flag else e

    def on_var(self, s, guards):
        var, value = s.head[1], self.new(s.head[3])
        by = self.vary.get(id(var))
        if not by:
            self.put(s, "var", ["var ", var, s.head[2], value])
            return
        self.vars[id(var)] = e = self.tile(var.name or "v", var.dtype, by, s)
        self.parallel(s, [e, " = ", value], [])

    def on_assign(self, s, guards):
        var, value = s.head[0], self.new(s.head[2])
        e = self.vars.get(id(var))
        if e is not None:
            self.parallel(s, [e, " = ", value], guards)
            return
        self.collective(s, guards, lambda: self.put(s, "assign", [var, " = ", value]))

    def on_if(self, s, guards):
        test = self.new(s.head[1])
        if not self.deps_new(test):
            self.put(s, "if", ["if ", test], self.within(s.body, guards), self.within(s.alt, guards) if s.alt else None)
            return
        if not test.pure:
            test = self.snapshot(s, "if", test, self.deps_new(test), guards)
        self.out += self.within(s.body, guards + conjuncts(test))
        if s.alt:
            self.out += self.within(s.alt, guards + [opposite(test)])

    def on_for(self, s, guards):
        v, lo, hi = s.head[1], self.new(s.head[3]), self.new(s.head[5])
        if value_of(lo) is not None and value_of(hi) == value_of(lo) + 1:
            self.vars[id(v)] = lo
            self.out += self.within(s.body, guards)
            return
        if id(v) in self.lanes:
            before, self.open_lanes = self.open_lanes, (*self.open_lanes, id(v))
            self.out += self.within(s.body, guards)
            self.open_lanes = before
            return
        rest = s.head[6:]
        if self.deps_new(lo) | self.deps_new(hi):  # as many runs as the thread with most has
            step = rest[1] if rest and rest[0] == " step " else wrap(1)
            least, most = self.extreme(lo, min), self.extreme(hi, max)
            if least is None or most is None or self.deps_new(step):
                fail(1002, f"a loop from {show(lo)} to {show(hi)}, other numbers for each thread", at=s.at,
                     fix="loop to the largest number and put an `if` inside")  # fmt: skip
            run = Var(v.name, int32, "loop")
            self.vars[id(v)] = at = binary("+", lo, binary("*", run, step))
            guards = guards + [binary("<", at, hi)]
            runs = binary("//", binary("+", binary("-", most, least), binary("-", step, 1)), step)
            v, lo, hi, rest = run, wrap(0), runs, rest[2:] if rest and rest[0] == " step " else rest
        self.put(s, "for", [s.head[0], v, s.head[2], lo, s.head[4], hi, *rest], self.within(s.body, guards))

    def extreme(self, e, choose):
        """The least or greatest value over the threads of what has known ends or is a sum of multiples of their
        indices; None: it is neither."""
        if interval(e) is not None:
            return wrap(choose(interval(e)))
        for i in self.deps_new(e):
            v = self.axes.get(i)
            if v is None or not e.pure:
                return None
            ends = [rebuild(e, lambda x: const(n, int32) if x is v else None) for n in (0, v.range[1])]
            apart = difference(*ends)
            one = difference(e, rebuild(e, lambda x: binary("+", x, 1) if x is v else None))
            if apart is None or one is None or apart != one * v.range[1]:
                return None
            e = ends[0 if (apart < 0) == (choose is min) else 1]
        return e

    def on_while(self, s, guards):
        test = self.new(s.head[1])
        if self.deps_new(test):
            fail(
                1002,
                f"`while {show(test)}`, another number of runs for each thread",
                fix="a `for` over the same number of runs, with an `if` inside",
                at=s.at,
            )
        self.put(s, "while", ["while ", test], self.within(s.body, guards))

    def on_exchange(self, s, guards):
        """result := op over some threads of value (T.tvm_thread_allreduce)."""
        result, op, value, over, start = s.head
        target, value = self.element(result), self.new(value)
        self.parallel(s, [target, " = ", start], [])
        if op == "+":
            self.parallel(s, [target, " += ", value], guards, frozenset(id(a) for a in over))
        else:
            self.parallel(s, [target, " = ", binary(op, target, value)], guards)

    def collective(self, s, guards, put):
        """Work of all threads together, under the conditions on them."""
        guards, free, _ = self.project(guards, frozenset())
        if guards is None:
            return
        if free:
            fail(1002, "work of a whole block under a condition that takes a thread and something else", at=s.at,
                 fix="test the thread in an `if` of its own")  # fmt: skip
        outer = self.out
        for g in guards:
            self.out = self.put(s, "if", ["if ", g], []).body
        put()
        self.out = outer

    def on_parallel(self, s, guards):
        def again(block):
            out = []
            for x in block:
                made = type(x)(x.kind, [self.same(p, s) for p in x.head], x.loc, again(x.body) if x.body else x.body)
                made.alt = again(x.alt) if x.alt else x.alt
                out.append(made)
            return out

        self.collective(s, guards, lambda: self.out.extend(again([s.stmt])))

    def same(self, part, s):
        if isinstance(part, Expr) and self.deps(part) & self.axes.keys():
            fail(1002, f"{show(part)} in work of all threads together: which thread?", at=s.at,
                 fix="index tiles by the indices of T.Parallel there")  # fmt: skip
        if isinstance(part, Region) and self.region_deps(part) & self.axes.keys():
            fail(1002, f"{part!r} in work of all threads together: it differs by thread", at=s.at,
                 fix="T.alloc_shared or T.alloc_fragment for what threads work on together")  # fmt: skip
        if isinstance(part, Region):
            off, ext = ([self.new(e) if isinstance(e, Expr) else e for e in es] for es in (part.off, part.ext))
            return Region(part.buf, off, ext)
        return self.new(part) if isinstance(part, Expr) else part

    def on_op(self, s, guards):
        head = s.head
        regions = [x for x in head if isinstance(x, Region)]
        each = any(self.region_deps(r) & self.axes.keys() for r in regions)
        if not each or _name(s.stmt) not in ("copy", "fill"):
            self.collective(s, guards, lambda: self.put(s, "op", [self.same(p, s) for p in head]))
            return
        to = regions[-1]
        if not all(isinstance(n, int) for n in to.ext):
            fail(
                1002,
                f"a copy of {to!r} by each thread for itself",
                fix="T.copy by the whole block, before or behind the code of threads",
                at=s.at,
            )
        loops = [_index(n) for n in to.ext if n != 1]
        self.lanes.update((id(v), v) for v in loops)

        def at(r):
            rest = iter(loops)
            idx = (wrap(o) if n == 1 else binary("+", next(rest), o) for o, n in zip(r.off, r.ext))
            return Element(r.buf, tuple(idx))

        value = at(regions[0]) if len(regions) == 2 else next(x for x in head if isinstance(x, Expr))
        self.parallel(s, [self.element(at(to)), " = ", wrap(self.new(value)).astype(to.buf.dtype)], guards)

    def on_say(self, s, guards):
        parts = [p for p in (*s.head, *guards) if isinstance(p, (Expr, Region))]
        if any(self.region_deps(p) if isinstance(p, Region) else self.deps(p) | self.deps_new(p) for p in parts):
            self.b.note("a print or assertion of single threads is left out", at=s.at)
        else:
            self.put(s, "say", [self.same(p, s) for p in s.head])

    def on_other(self, s, guards):
        if guards and s.kind in ("break", "continue"):
            fail(1002, f"`{s.kind}` under a condition on threads", at=s.at, fix="put the rest of the loop into an `if`")
        self.collective(s, guards, lambda: self.put(s, s.kind, [self.same(p, s) for p in s.head]))


class _At:
    """A statement of the old program with its place in Python."""

    def __init__(self, stmt, files):
        self.stmt, self.head, self.body, self.alt, self.kind = stmt, stmt.head, stmt.body, stmt.alt, stmt.kind
        number, line, column = stmt.loc
        self.at = (next(f for f, n in files.items() if n == number), line, column)


def _index(n, name="i"):
    v = Var(name, int32, "loop")
    v.range = (0, n - 1)
    return v


def _size(over):
    return math.prod(v.range[1] + 1 for v in over)


def _name(s):
    return s.head[0].split()[0] if isinstance(s.head[0], str) else ""


def _only(e, ids):
    """Does e depend on these variables alone?"""
    return id(e) in ids if e.op == "var" else all(_only(a, ids) for a in operands(e))


def _accesses(block, reads, writes, flat):
    """Collects element accesses of a block of stores, lets and ifs; False when there is something else in it."""

    def look(e):
        if isinstance(e, Element):
            reads.append(e)
        if isinstance(e, MutVar):
            flat.append(e)
        if isinstance(e, Expr):
            for a in operands(e):
                look(a)

    for s in block:
        if s.kind not in ("store", "let", "if"):
            return False
        if s.kind == "store":
            look(s.head[2])
            for i in s.head[0].idx:
                look(i)
            writes.append((s.head[0], s.head[1] == " += "))
        else:
            look(s.head[-1])
        for inner in (s.body, s.alt):
            if inner and not _accesses(inner, reads, writes, flat):
                return False
    return True


def _moves(e, v):
    """Is e a multiple of v, other than 0, plus something without v?"""
    step = binary("-", rebuild(e, lambda x: binary("+", x, 1) if x is v else None), e)
    return e.pure and value_of(step) not in (None, 0)


def _is_lane(s):
    """May all runs of a loop be done at once, statement by statement? Then no run reads or writes an element that
    another one writes, except to add to it."""
    v, lo, hi = s.head[1], value_of(s.head[3]), value_of(s.head[5])
    if lo != 0 or not isinstance(hi, int) or not 1 < hi <= _LANES or len(s.head) > 6:
        return False
    reads, writes, flat = [], [], []
    if not _accesses(s.body, reads, writes, flat) or flat:
        return False
    for w, adds in writes:
        others = [e for e in reads + [x for x, _ in writes if x is not w] if _root(e.buf) is _root(w.buf)]
        if any(e.buf is not w.buf for e in others):
            return False
        if adds and not others and not any(_mentions(i, v) for i in w.idx):
            continue
        if not any(_moves(i, v) and all(key_of(e.idx[d]) == key_of(i) for e in others) for d, i in enumerate(w.idx)):
            return False
    return True


def _root(buf):
    return buf if buf.view is None else _root(buf.view)


def _mentions(e, v):
    return e is v or any(_mentions(a, v) for a in operands(e))


def expand(b, threads):
    """Replaces the statements of a launch that numbers its threads."""
    x = Expansion(b, threads)
    x.find_lanes(b.top)
    x.changed = True
    while x.changed:
        x.changed = False
        x.survey(b.top, frozenset())
    x.rank_axes(b.top)
    b.top = x.within(b.top, [])
    b.blocks = [b.top]
