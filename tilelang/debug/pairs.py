"""Which accesses to global memory of the two sides belong together, although the text does not say their order.

Authors write the statements of the cube core first and those of the vector cores after them, in one loop or in two
loops of the same length, and let both hand tensors to each other. Where such a tensor is read in the text before it is
written, the compiler pairs by iteration: the n-th read of an iteration waits for the n-th write of it, and the next
write for that read (src/pass/split_hand.c says when). `find` gives the same pairs for the interpreter, whose lanes then
wait for each other.

A place of a program is a list [statement, step, statement, step, ...]: the number of a statement in its block, then the
iteration of a loop, or 0 or 1 for the branch of an `if`, then the number of a statement in that block. A lane has
passed a statement when its place comes after that of the statement in the order of lists.
"""

from ..frontend.expr import Expr, Region

LOOPS, SIDES = ("for", "while"), ("cube", "vector")


class Site:
    """An access: `path` to its statement (numbers and None for iterations), the statements along it."""

    def __init__(self, path, above, node, side, write):
        self.path, self.above, self.node, self.side, self.write = path, above, node, side, write

    @property
    def order(self):
        return tuple(n or 0 for n in self.path)

    def stands_in(self, loop):
        return any(s is loop for s in self.above)


class Wait:
    """Before `site` in iteration n of its loop, the lanes of `side` have passed `path`, a child of the loop that
    belongs to it, in iteration n - `back`. `common`: loops around both, whose iterations are the waiting lane's own."""

    def __init__(self, buf, site, at, other, other_at, back):
        self.buf, self.side, self.back, self.write = buf, other.side, back, site.write
        self.loc = site.node.loc
        self.own = 2 * at + 1  # where the iteration stands in the place of `site`
        self.path = list(other.path[: 2 * other_at + 3])
        self.path[-1] += 1
        self.at = 2 * other_at + 1
        self.before = [2 * n + 1 for n, s in enumerate(site.above[:at]) if s.kind in LOOPS]  # around both

    def target(self, place, base):
        """The place to pass, or None: nothing to wait for in this iteration."""
        n = place[self.own] - self.back
        if n < 0:
            return None
        out = [p + base if k % 2 == 0 else p for k, p in enumerate(self.path)]
        for k, own in zip((k for k in range(1, self.at, 2) if out[k] is None), self.before):
            out[k] = place[own]
        out[self.at] = n
        return out


def sites(program, body, path=(), above=(), side=None):
    """Every access to a tensor: [(tensor, Site)]."""
    from .machine import root

    for n, s in enumerate(body):
        here = (*path, n)
        inner = s.kind if s.kind in SIDES else side
        if s.kind == "op":
            own = side or program.side_of(s)
            for k, r in enumerate(s.ins + s.outs):
                if isinstance(r, Region) and r.buf.space == "gm":
                    yield root(r.buf), Site(here, above, s, own, k >= len(s.ins))
        step = None if s.kind in LOOPS else 0
        yield from sites(program, s.body, (*here, step), (*above, s), inner)
        yield from sites(program, s.alt, (*here, 1), (*above, s), inner)


def mentions(thing, var):
    """Does an op's operand, or an expression, use a variable?"""
    if isinstance(thing, Region):
        return any(mentions(e, var) for e in [*thing.off, *thing.ext])
    if isinstance(thing, Expr):
        return thing is var or any(mentions(a, var) for a in thing.args)
    return any(mentions(a, var) for a in thing.ins + thing.outs) if hasattr(thing, "ins") else False


def _same_length(a, b):
    return a.kind == b.kind == "for" and all(_same(getattr(a, k), getattr(b, k)) for k in ("lo", "hi", "step"))


def _same(x, y):
    if getattr(x, "op", None) is None or x is y:
        return x is y or x == y if getattr(y, "op", None) is None else x is y
    return (
        x.op == getattr(y, "op", None)
        and len(x.args) == len(y.args)
        and all(_same(a, b) for a, b in zip(x.args, y.args))
    )


def _blocks(d, e):
    """The loops that pass a tensor on from iteration to iteration: (position in d.above, in e.above), or None."""
    both = [a for a, b in zip(d.above, e.above) if a is b]
    common = [n for n, a in enumerate(both) if a.kind in LOOPS]
    if common:
        return common[-1], common[-1]
    n = len(both)  # blocks of a side that the author wrote keep to the flags in them
    return (n, n) if min(len(d.above), len(e.above)) > n and _same_length(d.above[n], e.above[n]) else None


class Pairing:
    def __init__(self, buf, found):
        self.buf = buf
        self.d, self.e = [s for s in found if s.write], [s for s in found if not s.write]
        self.at = _blocks(self.d[0], self.e[0]) if self.d and self.e and self.d[0].side != self.e[0].side else None
        if self.at is not None:
            self.of_d, self.of_e = self.d[0].above[self.at[0]], self.e[0].above[self.at[1]]
            for side, of, all_ in ((self.d[0].side, self.of_d, self.d), (self.e[0].side, self.of_e, self.e)):
                if any(s.side != side or not s.stands_in(of) for s in all_):
                    self.at = None

    def read_first(self):
        return self.e[0].order < self.d[0].order

    def same_place(self):
        """The same bytes in every iteration? Otherwise a tensor of the caller may well be read before it is written."""
        loops = [(self.of_d, self.d), (self.of_e, self.e)]
        return not any(of.kind == "for" and mentions(s.node, of.var) for of, all_ in loops for s in all_)

    def carried(self, found):
        """Does the reading side hand over, after its first read, what the writing side needs before its first write?
        Then the read is of what the iteration before wrote."""
        d, e = self.d[0], self.e[0]
        for sites_ in found:
            after = [s for s in sites_ if s.write and s.side == e.side and s.order > e.order]
            before = [s for s in sites_ if not s.write and s.side == d.side and s.order < d.order]
            if any(s.stands_in(self.of_e) for s in after) and any(s.stands_in(self.of_d) for s in before):
                return True
        return False

    def waits(self):
        """[(Site, Wait)]."""
        d, e = (self.d, self.e) if len(self.d) == len(self.e) else (self.d[-1:], self.e[:1])
        at_d, at_e = self.at
        for x, y in zip(d, e):
            yield y, Wait(self.buf, y, at_e, x, at_d, 0)
        for x, y in zip(d[1:], e):
            yield x, Wait(self.buf, x, at_d, y, at_e, 0)
        yield self.d[0], Wait(self.buf, self.d[0], at_d, self.e[-1], at_e, 1)


def find(program):
    """{path of a statement: [Wait]}, empty where the text says the order."""
    found = {}
    for buf, site in sites(program, program.body):
        found.setdefault(id(buf), (buf, []))[1].append(site)
    all_ = [p for p in (Pairing(b, s) for b, s in found.values() if b.mark != "out") if p.at is not None]
    every = [s for _, s in found.values()]
    all_ = [p for p in all_ if (p.buf.mark == "workspace" or p.same_place()) and not p.carried(every)]
    steps = [(p.of_d, p.of_e) for p in all_ if p.of_d is not p.of_e and p.read_first()]
    out = {}
    for p in all_:
        together = any({id(p.of_d), id(p.of_e)} == {id(a), id(b)} for a, b in steps)
        if p.read_first() if p.of_d is p.of_e else together:
            for site, wait in p.waits():
                out.setdefault(site.path[0::2], []).append(wait)
    return out
