"""The interpreter's machine: buffers as numpy arrays, one statement of the source level after another.

A `Run` is one call of a kernel; a `Lane` executes the program of one core: the cube core of a block, or one of its
vector cores. Local buffers begin as bytes of ones (NaN), and an accumulator nothing was written to counts as zero.

Lanes. A kernel without a vector core index and without `cube`/`vector` blocks is one lane a block, in the order of the
grid. Otherwise the lanes of a block are threads of which one runs at a time: before a statement that touches global
memory, the lane that is furthest behind in program order goes first. So each side sees what the other wrote earlier in
the program, as docs/ir.md asks, cross-core flags written by hand hold a lane until they are set, and where a tensor is
read in the text before the other side writes it, they wait for each other by iteration (pairs.py). Without such blocks
both vector cores execute every statement and keep their own local buffers; what only the cube core does to global
memory is done once. Kernels that wait for other blocks (sync_all, flags of mode 0) run all blocks together.
"""

import threading

import numpy as np

from ..errors import Diagnostic, KernelFault, show_print
from ..frontend.expr import Buffer, Element, Expr, Region, show
from ..language.dtypes import float32
from . import arith
from .arith import narrow, np_dtype, widen
from .ops import OPS, Op, c0
from .pairs import find
from .say import say


class Node:
    """A statement. `kind` as in src/ir/json.c; the other fields by kind."""

    body = alt = ()
    only = None  # the condition of a print or assertion

    def __init__(self, kind, loc, **fields):
        self.kind, self.loc = kind, loc
        self.__dict__.update(fields)


CUBE_SPACES = ("l1", "l0a", "l0b", "l0c")


class Program:
    """What is interpreted: parameters in call order (Buffer or Var), grid, vid, statements, files by number."""

    def __init__(self, name, params, grid, vid, body, files, cores=None):
        self.name, self.params, self.grid, self.vid, self.body, self.files = name, params, grid, vid, body, files
        self.cores = cores
        kinds = set()
        self.cube = set()  # places of the buffers of the cube core
        self.vector = set()  # and of those that vector cores compute with; a tile that is handed over is in both
        for s in walk(body):
            kinds.add(s.kind)
            if s.kind == "op" and s.name in ("gemm", "mmad"):
                self.cube.update(root(r.buf).at for r in s.ins + s.outs)
            elif s.kind == "op" and s.name not in ("copy", "fill"):
                self.vector.update(root(r.buf).at for r in s.ins + s.outs if isinstance(r, Region))
            elif s.kind == "store":
                self.vector.add(root(s.buf).at)
        self.sides = [k for k in ("cube", "vector") if k in kinds]
        self.inferred = False  # the sides of statements are
        self.pairs = find(self) if "cross_set" not in kinds else {}
        if self.pairs and not self.sides:
            self.sides, self.inferred = ["cube", "vector"], True
        self.together = "sync_all" in kinds or any(s.kind == "cross_set" and s.mode == 0 for s in walk(body))
        self.lanes = self._lanes()

    def _lanes(self):
        """[(side or None, vid)] of a block."""
        vector = [("vector", 0), ("vector", 1)] if self.vid is not None or self.cores == "mix" else [("vector", 0)]
        if self.sides:
            return ([("cube", 0)] if "cube" in self.sides else []) + (vector if "vector" in self.sides else [])
        return [(None, 0), (None, 1)] if self.vid is not None else [(None, 0)]

    def side_of(self, s):
        """The side of a statement outside of `cube` and `vector`, told by the memory it works on; None: both."""
        operands = {"op": ("ins", "outs"), "print": ("args",), "store": (), "parallel": ()}.get(s.kind)
        if operands is None:
            return None
        bufs = [r.buf for name in operands for r in getattr(s, name) if isinstance(r, Region) and r.buf.space != "gm"]
        return "cube" if bufs and all(self.on_cube(b) for b in bufs) else "vector"

    def on_cube(self, buf):
        buf = root(buf)
        return buf.space in CUBE_SPACES or (buf.space in ("shared", "fragment") and buf.at in self.cube)


def walk(body):
    for s in body:
        yield s
        yield from walk(s.body)
        yield from walk(s.alt)


def root(buf):
    while buf.view is not None:
        buf = buf.view
    return buf


# ---- lanes ----------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """Another lane failed."""


class Lanes:
    """Threads of which one runs at a time: the one furthest behind in program order that waits for no flag."""

    def __init__(self):
        self.lock = threading.Condition()
        self.parked = {}  # lane -> place in the program it wants to go on from
        self.wanted = {}  # lane -> the same in words
        self.blocked = {}  # lane -> what it waits for: a function that is true when it may go on
        self.failed = None

    def run(self, jobs):
        """[(lane, function)]: runs all, raises the first failure."""
        self.parked = {lane: [] for lane, _ in jobs}
        self.turn = jobs[0][0]
        threads = [threading.Thread(target=self._job, args=job, daemon=True) for job in jobs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if self.failed:
            raise self.failed

    def _job(self, lane, work):
        try:
            with self.lock:
                self.lock.wait_for(lambda: self.turn is lane or self.failed)
            if not self.failed:
                work()
        except Stopped:
            pass
        except BaseException as e:
            self.failed = self.failed or e
        finally:
            with self.lock:
                del self.parked[lane]
                self.choose(lane)
                self.lock.notify_all()

    def choose(self, lane):
        self.turn = self.next()
        if self.turn is None and self.parked:
            self.failed = self.failed or lane.fault(809, "nothing can move any more: " + self.waiting())

    def next(self):
        ready = [lane for lane in self.parked if lane not in self.blocked or self.blocked[lane]()]
        if not ready:
            return None
        return min(ready, key=lambda lane: (self.parked[lane], lane.number))

    def passed(self, lane, place):
        """Is a lane behind a place of the program?"""
        return lane not in self.parked or self.parked[lane] >= place

    def meet(self, lane, until=None, what=""):
        """Goes on when no other lane is behind (and `until()` holds); `what` it waits for, in words."""
        with self.lock:
            self.parked[lane] = list(lane.place)
            if until is not None:
                self.blocked[lane] = until
                self.wanted[lane] = what
            self.choose(lane)
            if self.turn is not lane:
                self.lock.notify_all()
                self.lock.wait_for(lambda: self.turn is lane or self.failed)
            self.blocked.pop(lane, None)
            if self.failed:
                raise Stopped

    def waiting(self):
        return "; ".join(f"{lane.who()} waits at line {lane.loc[1]} for {self.wanted[lane]}" for lane in self.parked)


# ---- a run ----------------------------------------------------------------------------------------------------------


class Run:
    """One call: tensors as arrays by parameter, scalars by Var."""

    def __init__(self, program, tensors, scalars, sizes=None, title=""):
        self.title = title  # "launch 2 of 3 (kernel.py:31)"; "": the only one
        self.program = program
        self.gm = tensors  # id(Buffer) -> array
        self.scalars = scalars  # id(Var) -> value
        self.sizes = sizes or {}  # name of a symbolic size -> value
        self.unwritten = {}  # id(array) of an output or workspace -> where nothing has written yet
        self.observers = []  # called as f(lane, node) after each op and store
        self.look = None  # called as f(lane, node) before each op; with it, stores leave (exact, rounded) in lane.exact
        self.quiet = False  # prints show nothing
        self.tokens = {}  # (lane, flag) -> waits that may pass
        self.sent = {}  # (lane, flag, mode) -> sets not yet counted

    def blocks(self):
        lane = Lane(self, (), None, 0, 0)
        extents = [max(int(lane.value(e)), 0) for _, e in self.program.grid]
        for k in range(int(np.prod(extents, dtype=np.int64))):
            at = []
            for e in extents:
                at.append(k % e)
                k //= e
            yield tuple(at)

    def go(self, body=None):
        """Every block; `body(lane)` executes a lane's program."""
        if body is None:
            self.around("before")
            self.go(lambda lane: lane.block(self.program.body))
            self.around("after")
            return
        pending = []
        blocks = list(self.blocks())
        for n, index in enumerate(blocks):
            lanes = [Lane(self, index, side, vid, n * 4 + k) for k, (side, vid) in enumerate(self.program.lanes)]
            for k, lane in enumerate(lanes):
                lane.first = k == 0
                lane.speaks = ["before"] * (n == 0 and k == 0)
                lane.speaks += ["after"] * (n == len(blocks) - 1 and k == len(lanes) - 1)
            pending += lanes
            if not self.program.together:
                self._together(pending, body)
                pending = []
        if pending:
            self._together(pending, body)

    def around(self, when):
        """What is printed before or after the launch."""
        if self.quiet:
            return
        lane = Lane(self, (), None, 0, 0)
        for s in self.program.body:
            if s.kind == "print" and s.when == when:
                lane.loc = s.loc
                lane.show(s, f"{when} the launch")

    def _together(self, lanes, body):
        self.now = lanes
        if len(lanes) == 1:
            body(lanes[0])
            return
        control = Lanes()
        for lane in lanes:
            lane.control = control
        control.run([(lane, lambda lane=lane: body(lane)) for lane in lanes])

    # cross-core flags: docs/ir.md; a set counts when all partners have set
    def cross_set(self, lane, flag, mode):
        if mode == 2 and lane.side == "cube":
            for other in self.now:
                if other.index == lane.index and other.side == "vector":
                    self.tokens[other, flag] = self.tokens.get((other, flag), 0) + 1
            return
        partners = [o for o in self.now if o.side == lane.side and (mode == 0 or o.index == lane.index)]
        self.sent[lane, flag, mode] = self.sent.get((lane, flag, mode), 0) + 1
        if any(not self.sent.get((o, flag, mode)) for o in partners):
            return
        for o in partners:
            self.sent[o, flag, mode] -= 1
        takers = [o for o in self.now if o.index == lane.index and o.side == "cube"] if mode == 2 else partners
        for o in takers:
            self.tokens[o, flag] = self.tokens.get((o, flag), 0) + 1


class Lane:
    """One core's program: values of variables, local buffers."""

    first = True
    base = 0  # number of the first statement of a block in `place`
    control = None
    files = None  # path -> number, where statements do not number those of the program
    exact = None
    wide = False  # arithmetic of floats is not rounded
    speaks = ()  # "before", "after": the prints around the launch that this lane shows
    given = None  # the array or number of a parameter of the caller's

    def __init__(self, run, index, side, vid, number):
        self.run, self.index, self.side, self.vid, self.number = run, index, side, vid, number
        self.env = dict(run.scalars)
        for (v, _), k in zip(run.program.grid, index):
            self.env[id(v)] = k
        if run.program.vid is not None:
            self.env[id(run.program.vid)] = vid
        self.memory = {}  # id(root Buffer) -> bytes
        self.tiles = {}  # id(Buffer) -> array
        self.written = set()
        self.place = [0]
        self.loc = (0, 0, 0)
        self.syncs = 0

    def who(self):
        block = ", ".join(str(i) for i in self.index)
        core = {None: "", "cube": ", cube core", "vector": f", vector core {self.vid}"}[self.side]
        return f"{self.run.title + ', ' if self.run.title else ''}block ({block}){core}"

    def source(self):
        """(file, line) of the statement under way."""
        files = self.run.program.files if self.files is None else list(self.files)
        return files[self.loc[0] - 1] if 0 < self.loc[0] <= len(files) else None, self.loc[1]

    def fault(self, code, text, fix=None):
        (file, line), col = self.source(), self.loc[2]
        return KernelFault([Diagnostic(code, f"{text} ({self.who()})", file, line, col, None, fix, "error")])

    # ---- memory -----------------------------------------------------------------------------------------------------

    def tile(self, buf):
        """The array of a buffer or tensor."""
        found = self.tiles.get(id(buf))
        if found is None:
            found = self.run.gm.get(id(buf)) if buf.space == "gm" and buf.view is None else self._make(buf)
            found = self.tiles[id(buf)] = self.given(buf) if found is None else found
        return found

    def _make(self, buf):
        base = root(buf)
        shape = tuple(int(self.value(s)) for s in buf.shape)
        n = int(np.prod(shape)) * buf.dtype.itemsize
        if buf.space == "gm":
            return self.tile(base).reshape(-1).view(np.uint8)[:n].view(np_dtype(buf.dtype)).reshape(shape)
        if base is buf:
            self.memory[id(buf)] = np.full(n, 0xFF, np.uint8)
        else:
            self.tile(base)
        return self.memory[id(base)][:n].view(np_dtype(buf.dtype)).reshape(shape)

    def forget(self, buf):
        """An `alloc` begins a new life."""
        if root(buf) is buf:
            self.written.discard(id(buf))
            if id(buf) in self.memory:
                self.memory[id(buf)][:] = 0xFF

    def box(self, region):
        """[(offset, extent)] of a region, as numbers."""
        return [(int(self.value(o)), int(self.value(e))) for o, e in zip(region.off, region.ext)]

    def window(self, region):
        """A region as a view; outside of the buffer is a fault."""
        if isinstance(region, Buffer):
            return self.tile(region)
        array, box = self.tile(region.buf), self.box(region)
        for d, ((o, e), n) in enumerate(zip(box, array.shape)):
            if e > 0 and not 0 <= o <= n - e:
                text = f"{o} to {o + e - 1} in dimension {d} of '{region.buf.name}', which has {n}"
                raise self.fault(801, text, f"keep the part of dimension {d} from 0 to {n - 1}")
        return array[tuple(slice(o, o + max(e, 0)) for o, e in box)]

    # ---- expressions ------------------------------------------------------------------------------------------------

    def value(self, e, mask=None):
        """The value of an expression: a Python number, or an array when indices of `parallel` are in it."""
        if not isinstance(e, Expr):
            return e
        op = e.op
        if op == "const":
            return arith.const(e.args[0], e.dtype)
        if op == "var":
            found = self.env.get(id(e))
            if found is None:
                found = self.run.sizes.get(e.name) if e.kind == "sym" else self.given(e)
                self.env[id(e)] = found = arith.const(found, e.dtype)
            return found
        if op == "load":
            return self.load(e.buf, e.idx, mask)
        if op == "cast":
            return arith.convert(self.value(e.args[0], mask), e.args[0].dtype, e.dtype)
        if op == "bits":
            return arith.bits(self.value(e.args[0], mask), e.args[0].dtype, e.dtype)
        if op == "select":
            return self.choose(e, mask)
        if op in ("&&", "||"):
            return self.short(e, mask)
        operand = e.args[0].dtype
        values = [self.value(a, mask) for a in e.args]
        if op == "/" and isinstance(values[0], np.ndarray) and not isinstance(values[1], np.ndarray):
            reciprocal = arith.apply("/", float32, operand, 1.0, values[1])  # as the op `div` by a scalar
            return arith.apply("*", e.dtype, operand, values[0], arith.settle(reciprocal, operand))
        if op in ("//", "%") and mask is not None and not e.dtype.is_float:
            values[1] = np.where(mask, values[1], 1)  # what the mask leaves out is not divided
        try:
            return arith.apply(op, arith.EXACT if self.wide and e.dtype.is_float else e.dtype, operand, *values)
        except arith.DivideByZero:
            fix = "guard the division with an `if`, or keep the divisor at least 1 with max"
            raise self.fault(811, "integer division by zero", fix) from None

    def choose(self, e, mask):
        c = self.value(e.args[0], mask)
        if not isinstance(c, np.ndarray):
            return self.value(e.args[1] if c else e.args[2], mask)
        a = self.value(e.args[1], c if mask is None else c & mask)
        b = self.value(e.args[2], ~c if mask is None else ~c & mask)
        return np.where(c, a, b)

    def short(self, e, mask):
        a = self.value(e.args[0], mask)
        if not isinstance(a, np.ndarray):
            return bool(self.value(e.args[1], mask)) if bool(a) == (e.op == "&&") else bool(a)
        rest = a if e.op == "&&" else ~a
        b = self.value(e.args[1], rest if mask is None else rest & mask)
        return a & b if e.op == "&&" else a | b

    def find(self, buf, idx, mask):
        """(index arrays or numbers, inside): where an access with these indices lands; a tensor is clamped."""
        array = self.tile(buf)
        at, inside = [], True
        for d, (i, n) in enumerate(zip(idx, array.shape)):
            v = self.value(i, mask) + 0  # a truth value is 0 or 1
            ok = (v >= 0) & (v < n)
            if not (isinstance(ok, bool) and ok) and not np.all(ok):
                valid = ok if mask is None else ok | ~mask
                if buf.space != "gm" or not isinstance(v, np.ndarray):
                    if not np.all(valid):
                        bad = v if not isinstance(v, np.ndarray) else v[~np.broadcast_to(valid, v.shape)].flat[0]
                        text = f"index {bad} in dimension {d} of '{buf.name}', which has {n}"
                        raise self.fault(801, text, f"keep the index of dimension {d} from 0 to {n - 1}")
                inside = inside & ok
                v = np.clip(v, 0, n - 1) if n else v
            at.append(v)
        return array, at, inside

    def load(self, buf, idx, mask=None):
        array, at, inside = self.find(buf, idx, mask)
        if inside is True or array.size:
            got = array[tuple(at)]
        else:
            got = np.zeros(np.broadcast(*at).shape, array.dtype)
        out = widen(np.asarray(got), buf.dtype)
        if inside is not True:
            out = np.where(inside, out, out.dtype.type(0))
        if out.ndim:
            return out != 0 if buf.dtype == "bool" else out
        return bool(out) if buf.dtype == "bool" else out.item()

    # ---- statements -------------------------------------------------------------------------------------------------

    def block(self, body):
        """None, "break" or "continue"."""
        for n, s in enumerate(body):
            self.place[-1] = n
            signal = self.statement(s)
            if signal:
                return signal
        return None

    def statement(self, s):
        self.loc = s.loc
        if self.run.program.inferred and self.run.program.side_of(s) not in (None, self.side):
            return None
        if self.control is not None and s.kind in _MEETS and touches_gm(s):
            self.control.meet(self, *self.pending(s))
        try:
            return getattr(self, "on_" + s.kind)(s)
        except ValueError as e:
            raise self.fault(804, f"{s.name if s.kind == 'op' else s.kind}: {e}") from None

    def pending(self, s):
        """(what a statement waits for: a function that is true when it may go on, in words), or nothing."""
        pairs = self.run.program.pairs
        found = pairs.get(tuple(n - self.base for n in self.place[0::2])) if pairs else None
        if not found or found[0].loc[1:] != s.loc[1:]:
            return ()
        targets = [(w, w.target(self.place, self.base)) for w in found]
        others = [(o, t) for w, t in targets if t for o in self.run.now if o.index == self.index and o.side == w.side]
        names = " and ".join(
            f"'{w.buf.name}' to be {'read' if w.write else 'written'} by the {w.side} side" for w in found
        )
        return lambda: all(self.control.passed(o, t) for o, t in others), names

    def inside(self, step, body):
        self.place += [step, 0]
        signal = self.block(body)
        del self.place[-2:]
        return signal

    def on_alloc(self, s):
        self.forget(s.buf)

    def on_let(self, s):
        self.env[id(s.var)] = self.value(s.value)

    on_var = on_assign = on_let

    def on_store(self, s):
        self.store(s, None)

    def on_for(self, s):
        lo, hi, step = (int(self.value(e)) for e in (s.lo, s.hi, s.step))
        for n, i in enumerate(range(lo, hi, step)):
            self.env[id(s.var)] = i
            if self.inside(n, s.body) == "break":
                break

    def on_while(self, s):
        n = 0
        while self.value(s.cond):
            if self.inside(n, s.body) == "break":
                break
            n += 1
            self.loc = s.loc

    def on_if(self, s):
        if self.value(s.cond):
            return self.inside(0, s.body)
        return self.inside(1, s.alt) if s.alt else None

    def on_break(self, s):
        return "break"

    def on_continue(self, s):
        return "continue"

    def on_cube(self, s):
        if self.side in (None, s.kind):
            return self.inside(0, s.body)
        return None

    on_vector = on_cube

    def nothing(self, s):
        pass

    on_set_flag = on_wait_flag = on_barrier = nothing

    def on_cross_set(self, s):
        self.run.cross_set(self, int(self.value(s.id)), s.mode)

    def on_cross_wait(self, s):
        flag = int(self.value(s.id))
        if self.control is None:
            return
        self.control.meet(self, lambda: self.run.tokens.get((self, flag), 0) > 0, f"cross-core flag {flag}")
        self.run.tokens[self, flag] -= 1

    def on_print(self, s):
        if s.when == "here" and not self.run.quiet and (s.only is None or self.value(s.only)):
            self.show(s, self.who())

    def show(self, s, where):
        file, line = self.source()
        show_print(file or "kernel.tl", line, where, say(self, s.text, s.args))

    def on_assert(self, s):
        if (s.only is None or self.value(s.only)) and not self.value(s.cond):
            text = say(self, s.text, s.args)
            cond = "" if s.cond.op == "const" else f"`{show(s.cond)}` does not hold{': ' * bool(text)}"
            raise self.fault(817, cond + text, "print what the condition reads with T.print")

    def on_sync_all(self, s):
        self.syncs += 1
        if self.control is not None:
            self.control.meet(self, lambda: all(o.syncs >= self.syncs for o in self.run.now), "sync_all of the others")

    # ---- ops --------------------------------------------------------------------------------------------------------

    def repeated(self, regions):
        """Is this lane the second one to do what the cube core does once?"""
        if self.first or self.side is not None:
            return False
        local = [r for r in regions if r.buf.space != "gm"]
        return any(self.run.program.on_cube(r.buf) for r in local)

    def on_op(self, s):
        regions = [r for r in s.ins + s.outs if isinstance(r, Region)]
        gm_out = any(r.buf.space == "gm" for r in s.outs)
        if gm_out and self.repeated(regions):
            return
        if self.run.look is not None:
            self.run.look(self, s)
        move = _MOVES.get(s.name)
        if move is not None:
            move(self, s)
        else:
            self.plain(s)
        for r in s.outs:
            self.written.add(id(root(r.buf)))
        for f in self.run.observers:
            f(self, s)

    def operand(self, a):
        if isinstance(a, Region):
            return self.window(a), a.buf.dtype
        return self.value(a), a.dtype

    def plain(self, s):
        out = s.outs[0]
        target = self.window(out)
        if s.name in ("gemm", "mmad") and id(root(out.buf)) not in self.written and out.buf.space != "gm":
            self.tile(out.buf)[...] = 0  # an accumulator that nothing was written to
        ins = [self.operand(a) for a in s.ins]
        attrs = {k: self.value(v) if isinstance(v, Expr) else v for k, v in s.attrs.items()}
        f = OPS.get(s.name)
        if f is None:
            raise self.fault(1002, f"the interpreter has no '{s.name}'")
        if target.size == 0:
            return
        if any(isinstance(a, np.ndarray) and np.shares_memory(a, target) for a, _ in ins):
            ins = [(a.copy() if isinstance(a, np.ndarray) else a, t) for a, t in ins]
        f(Op(s.name, [a for a, _ in ins], [t for _, t in ins], target, out.buf.dtype, attrs))

    def clamped(self, region):
        """(view of what lies inside, [offset of that within the region])."""
        array, box = self.tile(region.buf), self.box(region)
        if region.buf.space != "gm":
            return self.window(region), [0] * len(box), [e for _, e in box]
        at, skip = [], []
        for (o, e), n in zip(box, array.shape):
            lo, hi = min(max(o, 0), n), min(max(o + e, 0), n)
            at.append(slice(lo, max(lo, hi)))
            skip.append(lo - o)
        return array[tuple(at)], skip, [e for _, e in box]

    def passes(self, region, writes):
        """A copy reads or writes a region of a tensor: what nothing has written is not read."""
        array = self.tile(region.buf) if region.buf.space == "gm" else None
        shadow = self.run.unwritten.get(id(array))
        if shadow is None:
            return
        part = tuple(slice(max(o, 0), max(o + e, 0)) for o, e in self.box(region))
        if writes:
            shadow[part] = False
        elif shadow[part].any():
            raise self.fault(
                802,
                f"'{region.buf.name}' is read where nothing has written yet",
                "write it earlier in the program, or let a cross-core flag hold this side until the other one has",
            )

    def on_copy(self, s):
        """`copy`: clamps to the tensors, pads, converts."""
        src, dst = s.ins[0], s.outs[0]
        self.passes(src, False)
        self.passes(dst, True)
        a, a_skip, a_ext = self.clamped(src)
        b, b_skip, b_ext = self.clamped(dst)
        a, a_skip, a_ext = self.squeeze(a, a_skip, a_ext)
        if "trans" in s.attrs:
            a, a_skip, a_ext = a.T, a_skip[::-1], a_ext[::-1]
        target, b_skip, b_ext = self.squeeze(b, b_skip, b_ext)
        if len(a_ext) != len(b_ext):
            raise ValueError(f"{a_ext} into {b_ext}")
        pad = s.attrs.get("pad")
        fills = dst.buf.space != "gm" and src.buf.space == "gm"
        if fills:
            value = 0 if pad is None else arith.convert(self.value(pad), pad.dtype, dst.buf.dtype)
            fill = narrow(value, dst.buf.dtype)
        lo = [max(x, y) for x, y in zip(a_skip, b_skip)]
        hi = [min(x + m, y + n) for x, m, y, n in zip(a_skip, a.shape, b_skip, target.shape)]
        short = any(h - l < n for h, l, n in zip(hi, lo, target.shape))
        moved = a[tuple(slice(l - k, max(h, l) - k) for l, h, k in zip(lo, hi, a_skip))]
        if src.buf.dtype != dst.buf.dtype:
            moved = arith.cast_tile(self.relu(moved, s, src.buf.dtype), src.buf.dtype, dst.buf.dtype, "none")
        else:
            moved = self.relu(moved, s, src.buf.dtype).copy()
        if fills and short:
            target[...] = fill
        target[tuple(slice(l - k, max(h, l) - k) for l, h, k in zip(lo, hi, b_skip))] = moved

    @staticmethod
    def squeeze(array, skip, ext):
        """Dimensions of extent 1 go; a clamped one that lies outside leaves nothing."""
        keep = [d for d in range(len(ext)) if ext[d] != 1]
        empty = any(array.shape[d] == 0 for d in range(len(ext)) if ext[d] == 1)
        at = tuple(slice(None) if d in keep else (slice(0, 0) if empty else 0) for d in range(len(ext)))
        if empty:
            return (
                np.zeros([0] * len(keep) or [0], array.dtype),
                [skip[d] for d in keep] or [0],
                [ext[d] for d in keep] or [1],
            )
        if not keep:
            return array.reshape(1), [0], [1]
        return array[at], [skip[d] for d in keep], [ext[d] for d in keep]

    def relu(self, a, s, dtype):
        if "relu" not in s.attrs:
            return a
        return narrow(np.where(widen(a, dtype) < 0, 0, widen(a, dtype)), dtype)

    def on_atomic_add(self, s):
        src, dst = s.ins[0], s.outs[0]
        b, skip, ext = self.clamped(dst)
        b, skip, ext = self.squeeze(b, skip, ext)
        a, _, _ = self.squeeze(self.window(src), [0] * len(src.ext), [e for _, e in self.box(src)])
        a = a[tuple(slice(k, k + n) for k, n in zip(skip, b.shape))]
        self.add(b, a, src.buf.dtype, dst.buf.dtype)

    def add(self, b, a, source, dtype):
        with np.errstate(all="ignore"):
            b[...] = narrow(widen(b, dtype) + widen(a, source), dtype)

    def on_dma(self, s):
        """Lowered moves: the same number of elements on both sides."""
        src, dst = s.ins[0], s.outs[0]
        self.passes(src, False)
        self.passes(dst, True)
        a, b = self.window(src), self.window(dst)
        if a.size == 0 or b.size == 0:
            return
        moved = (
            a
            if src.buf.dtype == dst.buf.dtype
            else arith.cast_tile(self.relu(a, s, src.buf.dtype), src.buf.dtype, dst.buf.dtype, "none")
        )
        moved = self.relu(moved, s, dst.buf.dtype).reshape(b.shape)
        if "atomic" in s.attrs:
            self.add(b, moved, dst.buf.dtype, dst.buf.dtype)
        else:
            b[...] = moved
        if s.name == "gm_to_l1" or "pad" in s.attrs:
            self.pad_row(s, dst)

    def pad_row(self, s, dst):
        """What stands behind each row up to the next block of 32 bytes."""
        array, box = self.tile(dst.buf), self.box(dst)
        o, e = box[-1]
        end = min(o + -(-e // c0(dst.buf.dtype)) * c0(dst.buf.dtype), array.shape[-1])
        pad = s.attrs.get("pad")
        value = 0 if pad is None else arith.convert(self.value(pad), pad.dtype, dst.buf.dtype)
        at = tuple(slice(o, o + e) for o, e in box[:-1]) + (slice(o + e, end),)
        array[at] = narrow(value, dst.buf.dtype)

    # ---- parallel ---------------------------------------------------------------------------------------------------

    def on_parallel(self, s):
        extents = [int(self.value(e)) for e in s.ext]
        rank = len(extents)
        if any(e <= 0 for e in extents):
            return
        own = {id(n.var) for n in walk(s.body) if n.kind == "var"}
        if any(n.kind == "assign" and id(n.var) not in own for n in walk(s.body)):
            self.in_turn(s, extents)
            return
        self.indices = s.vars
        for d, (v, e) in enumerate(zip(s.vars, extents)):
            self.env[id(v)] = np.arange(e, dtype=np.int64).reshape([e if k == d else 1 for k in range(rank)])
        self.over(s.body, tuple(extents), None)

    def in_turn(self, s, extents):
        """One iteration after the other, because a variable goes from one to the next."""
        self.indices = []
        for at in np.ndindex(*extents):
            self.env.update((id(v), k) for v, k in zip(s.vars, at))
            self.over(s.body, (), None)

    def over(self, body, box, mask):
        """Statement after statement over the whole box; one iteration where the box has no dimensions."""
        for s in body:
            self.loc = s.loc
            if s.kind == "let":
                self.env[id(s.var)] = self.value(s.value, mask)
            elif s.kind == "store":
                self.store(s, mask, box or None)
            elif s.kind == "if":
                c = self.value(s.cond, mask)
                if not isinstance(c, np.ndarray):
                    self.over(s.body if c else s.alt, box, mask)
                    continue
                self.over(s.body, box, c if mask is None else c & mask)
                self.over(s.alt, box, ~c if mask is None else ~c & mask)
            elif s.kind == "for":
                self.loop_over(s, box, mask)
            elif s.kind in ("var", "assign"):
                new = self.value(s.value, mask)
                old = self.env.get(id(s.var))
                self.env[id(s.var)] = new if mask is None or s.kind == "var" else np.where(mask, new, old)
            else:
                raise self.fault(1002, f"the interpreter has no '{s.kind}' inside parallel")

    def loop_over(self, s, box, mask):
        """A loop inside `parallel`: its bounds may depend on the indices."""
        lo, hi, step = (self.value(e, mask) for e in (s.lo, s.hi, s.step))
        for k in range(int(np.max(-((lo - hi) // step))) if np.all(step > 0) else 0):
            i = lo + k * step
            self.env[id(s.var)] = i
            if not isinstance(i, np.ndarray) and not isinstance(hi, np.ndarray):
                self.over(s.body, box, mask)
            else:
                runs = np.asarray(i < hi)
                self.over(s.body, box, runs if mask is None else runs & mask)

    def steps(self, s, mask, box):
        """A store that several iterations make to one element: one after the other over the indices it lacks."""
        used = set()
        _indices(s.idx, used)
        vars = [v for v in self.indices if id(v) not in used and self.env[id(v)].size > 1]
        if not vars or s.accumulate:
            return False
        base = root(s.buf)
        if s.buf.space != "gm" and id(base) not in self.written and _reads([s.value], base):
            self.tile(s.buf)[...] = narrow(0, s.buf.dtype)  # a sum that nothing was written to
        grids = [self.env[id(v)] for v in vars]
        axes = [next(d for d, n in enumerate(g.shape) if n > 1) for g in grids]
        inner = tuple(1 if d in axes else n for d, n in enumerate(box))
        for at in np.ndindex(*(g.size for g in grids)):
            for v, g, k in zip(vars, grids, at):
                self.env[id(v)] = g.reshape(-1)[k].reshape((1,) * len(box))
            part = mask
            for d, k in zip(axes, at):
                if part is not None and part.shape[d] > 1:
                    part = part.take([k], axis=d)
            self.store(s, part, inner)
        for v, g in zip(vars, grids):
            self.env[id(v)] = g
        return True

    def store(self, s, mask, box=None):
        if box is not None and self.steps(s, mask, box):
            return
        buf, dtype = s.buf, s.buf.dtype
        value = self.value(s.value, mask) if box is None or not s.accumulate else self.term(s.value, mask, len(box))
        array, at, inside = self.find(buf, s.idx, mask)
        if self.run.look is not None and dtype.is_float:
            self.note_exact(s, mask, value)
        base = root(buf)
        first = buf.space != "gm" and id(base) not in self.written
        if first and (s.accumulate or (box is not None and buf.space == "l1")):  # a sum; a part of an operand
            array[...] = narrow(0, dtype)
        self.written.add(id(base))
        shadow = self.run.unwritten.get(id(array))
        if shadow is not None:
            shadow[tuple(np.broadcast_arrays(*at))] = False
        where = inside if mask is None else (mask if inside is True else inside & mask)
        if box is None:
            if where is True or bool(where):
                old = widen(np.asarray(array[tuple(at)]), dtype).item() if s.accumulate else None
                array[tuple(at)] = narrow(value if old is None else old + value, dtype)
        elif s.accumulate:
            self.sum_into(array, at, np.broadcast_to(value, box), where, dtype, box)
        else:
            at = np.broadcast_arrays(*(np.asarray(i) for i in at), np.zeros(box, np.bool_))[:-1]
            value = narrow(np.broadcast_to(value, box), dtype)
            if where is True:
                array[tuple(at)] = value
            else:
                where = np.broadcast_to(where, box)
                array[tuple(i[where] for i in at)] = value[where]
        for f in self.run.observers:
            f(self, s)

    def note_exact(self, s, mask, value):
        """What the right side of a store is without rounding, and what the buffer can hold of it."""
        self.wide = True
        exact = self.value(s.value, mask)
        self.wide = False
        rounded = widen(narrow(value, s.buf.dtype), s.buf.dtype)
        if mask is not None:
            exact, rounded = (np.where(mask, v, 0.0) for v in (exact, rounded))
        self.exact = exact, rounded

    def term(self, e, mask, rank):
        """What a `+=` adds. A product of two elements in a sum over three axes and more is the cube's: not rounded."""
        inner = e.args[0] if e.op == "cast" and e.dtype.is_float else e
        if rank < 3 or inner.op != "*" or not all(a.op in ("load", "cast") for a in inner.args):
            return self.value(e, mask)
        return self.value(inner.args[0], mask) * self.value(inner.args[1], mask)

    def sum_into(self, array, at, value, where, dtype, box):
        """array[at] += value: axes that no index has are summed in 64 bits, the sum is added once."""
        if where is not True:
            value = np.where(where, value, value.dtype.type(0))
        used = np.broadcast(*(np.asarray(i) for i in at)).shape if at else ()
        used = (1,) * (len(box) - len(used)) + used
        axes = tuple(d for d, n in enumerate(used) if n == 1 and box[d] != 1)
        with np.errstate(all="ignore"):
            total = value.sum(axis=axes, keepdims=True)
            inside = True if where is True else np.broadcast_to(where, box).any(axis=axes, keepdims=True)
            at = np.broadcast_arrays(*(np.asarray(i) for i in at), np.zeros(total.shape, np.bool_))[:-1]
            acc = widen(array, dtype)
            if inside is True:
                np.add.at(acc, tuple(at), total)
            else:
                np.add.at(acc, tuple(i[inside] for i in at), total[inside])
            touched = np.zeros(array.shape, np.bool_)
            touched[tuple(at)] = True
            array[touched] = narrow(acc, dtype)[touched]


_MEETS = {"op", "store", "let", "var", "assign", "if", "for", "while", "parallel"}
_MOVES = {"copy": Lane.on_copy, "atomic_add": Lane.on_atomic_add}
_MOVES.update(dict.fromkeys(("gm_to_l1", "gm_to_ub", "ub_to_gm", "l0c_to_gm", "l0c_to_l1"), Lane.on_dma))


def touches_gm(s):
    """Does the statement itself (not what stands in its block, `parallel` apart) read or write global memory?"""
    found = s.__dict__.get("gm")
    if found is None:
        found = s.gm = _scan(list(s.__dict__.values()), s.kind == "parallel")
    return found


def _indices(exprs, found):
    """The ids of the variables in expressions."""
    for e in exprs:
        if isinstance(e, Expr):
            found.add(id(e))
            _indices(e.args, found)


def _reads(exprs, base):
    return any(
        isinstance(e, Expr) and ((isinstance(e, Element) and root(e.buf) is base) or _reads(e.args, base))
        for e in exprs
    )


def _scan(things, deep):
    for t in things:
        if isinstance(t, Buffer):
            if t.space == "gm":
                return True
        elif isinstance(t, Region):
            if t.buf.space == "gm" or _scan([*t.off, *t.ext], deep):
                return True
        elif isinstance(t, Expr):
            if (isinstance(t, Element) and t.buf.space == "gm") or _scan(t.args, deep):
                return True
        elif isinstance(t, dict):
            if _scan(t.values(), deep):
                return True
        elif isinstance(t, Node):
            if deep and _scan(list(t.__dict__.values()), deep):
                return True
        elif isinstance(t, (list, tuple)) and _scan(t, deep):
            return True
    return False
