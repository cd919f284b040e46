"""T.Kernel, T.Scope, T.If: the blocks of a kernel."""

import math

from ..errors import Rightly, fail, here
from ..frontend.builder import current
from ..frontend.expr import Var, binary, cast, describe, dims, interval, select, to_bool, value_of, wrap
from ..frontend.threads import Threads, expand
from ..language.dtypes import int32


_THREADS = 128  # of a block that does not say


class Kernel(metaclass=Rightly):
    """`with T.Kernel(gx, gy, threads=...) as (bx, by)`; with is_npu=True `as (cid, vid)`: one block index and which of
    the two vector cores. `threads` 1 or 2 with is_npu binds the block index alone; other numbers mean nothing here."""

    spoken = "T.Kernel"

    def __init__(self, *blocks, threads=None, is_cpu=False, prelude=None, is_npu=False, pipeline=False):
        b = current("T.Kernel")
        self.at = here()
        if b.eager is not None:
            b.eager.kernel_begins()
        if b.kernel_open:
            fail(1006, "T.Kernel inside T.Kernel", fix="put one behind the other: each is a launch")
        if b.grid is not None:
            b.next_launch()
        blocks = blocks or (1,)
        if len(blocks) > 3:
            fail(
                1004,
                f"T.Kernel takes up to 3 numbers of blocks, not {len(blocks)}",
                fix="T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64))",
            )
        if isinstance(blocks[0], (tuple, list)):
            fail(
                1004,
                f"T.Kernel takes a number for each dimension of the grid, not {describe(blocks[0])}",
                fix="T.Kernel(n, m): without the inner parentheses",
            )
        self.blocks = dims(blocks, "the grid")
        for n in self.blocks:
            if isinstance(n, int) and n < 0:
                fail(1004, f"T.Kernel with {n} blocks", fix="a number of blocks from 0 on")
            if not isinstance(n, int) and not n.pure:
                fail(
                    1004,
                    f"the number of blocks {n!r} is read from memory",
                    fix="pass it as a scalar parameter `n: T.int32`, or take a fixed number and test inside",
                )
        if is_npu and len(blocks) != 1:
            fail(
                1004,
                f"T.Kernel(..., is_npu=True) takes one number of blocks, not {len(blocks)}",
                fix="leave is_npu out: the grid may have 3 dimensions",
            )
        if all(isinstance(n, int) for n in self.blocks) and math.prod(self.blocks) >= 1 << 31:
            fail(
                1004,
                f"T.Kernel with {math.prod(self.blocks)} blocks; a launch has fewer than 2^31",
                fix="larger tiles, or T.serial over tiles inside a block",
            )
        self.vid = is_npu and threads is None
        if is_npu and threads not in (None, 1, 2):
            fail(
                1004,
                f"T.Kernel(..., is_npu=True) with threads={threads}",
                fix="threads=1 or threads=2 (vector cores a cube core)",
            )
        count = dims(_THREADS if threads is None or is_npu else threads, "threads")
        if not count or any(isinstance(n, int) and n < 1 for n in count):
            fail(1004, f"T.Kernel with threads={threads}", fix="a number of threads from 1 on, or leave it out")
        self.threads = Threads(count)
        before = len(b.notes)
        if not is_npu and threads not in (None, 1, 2):
            b.note(f"threads={threads} has no meaning on Ascend and is ignored: a block runs on one core")
        self.said = b.notes[before:]
        for name, value in (("is_cpu", is_cpu), ("prelude", prelude), ("pipeline", pipeline)):
            if value:
                b.note(f"T.Kernel({name}=...) has no effect here")
        self.builder, self.tl_names = b, None

    def __enter__(self):
        b, names = self.builder, self.tl_names
        count = len(self.blocks) + self.vid
        flat = names if isinstance(names, tuple) else (names,) * (names is not None)
        if isinstance(names, tuple) and len(names) != count:
            hint = (
                "T.Kernel(n, m) for two numbers of blocks; is_npu=True gives (cid, vid)"
                if len(names) == 2 and count == 1
                else f"with T.Kernel(...) as ({', '.join('b' + c for c in 'xyz'[:count])}):"
            )
            gives = f"{count} ind{'ex' if count == 1 else 'ices'}"
            fail(1004, f"T.Kernel gives {gives}, {len(names)} names take them", fix=hint, at=self.at)
        default = ("cid", "vid") if self.vid else ("bx", "by", "bz")
        flat = [
            n if isinstance(n, str) and n != "_" else d for n, d in zip(tuple(flat) + default[len(flat) :], default)
        ]
        sizes = [e if isinstance(e, int) or e.dtype in ("int32", "int64") else cast(e, int32) for e in self.blocks]
        b.grid = [(Var(n, int32, "grid"), e) for n, e in zip(flat, sizes)]
        for v, e in b.grid:
            v.range = (0, e - 1) if isinstance(e, int) and e > 0 else None
        values = [v for v, _ in b.grid]
        if self.vid:
            b.vid = Var(flat[1], int32, "vid")
            b.vid.range = (0, 1)
            values.append(b.vid)
        b.kernel_open, b.threads, b.launched = True, self.threads, self.at
        if len(values) == 1 and not isinstance(names, tuple):
            return values[0]
        return _Indices(values)

    def __exit__(self, kind, *exc):
        b = self.builder
        b.kernel_open, b.threads = False, None
        b.returns.close_kernel()
        if kind is None and self.threads.vars:
            expand(b, self.threads)
            b.notes = [n for n in b.notes if n not in self.said]


def thread_return():
    """Ends the block's work: nothing that follows is done. In a macro, too, where `return` ends the macro alone."""
    current("T.thread_return").end_work()


def in_panels(panel, order):
    """The blocks of a launch take other indices: `panel` rows of the grid (columns for order="column") one after
    another are a panel, which is gone through column by column, every other panel backwards, as the rasterization of
    mainline TileLang does. Blocks that run at one time then read fewer different rows and columns of tiles, which stay
    in L2. The indices of the launch get names of their own; those of the author are computed from them."""
    b = current("T.use_swizzle")
    given, panel = panel, value_of(panel)
    if not isinstance(panel, int) or panel < 1 or order not in ("row", "column", "col"):
        fail(
            1004,
            f"T.use_swizzle with panel_size={describe(given)} and order={order!r}",
            fix="a Python number from 1 on; order='row' or 'column'",
        )
    if not b.kernel_open:
        fail(1006, "T.use_swizzle stands outside `with T.Kernel(...)`", fix="move it into the body of T.Kernel")
    why = None
    if len(b.grid) < 2:
        why = "the grid has one dimension"
    elif b.begun:
        why = "it stands after other statements than allocations"
    if why:
        return b.note(f"T.use_swizzle(panel) has no effect here: {why}")
    (x, columns), (y, rows) = b.grid[:2]
    launched = []
    for v in (x, y):
        launched.append(Var(f"{v.name}0", int32, "grid"))
        launched[-1].range, v.kind = v.range, "let"
    b.grid = [(launched[0], columns), (launched[1], rows), *b.grid[2:]]
    across, along, deep, wide = (y, x, rows, columns) if order == "row" else (x, y, columns, rows)
    panel = min(panel, deep) if isinstance(deep, int) else panel

    def let(name, value, v=None):
        value = wrap(value)
        if v is None:
            v = Var(name, int32, "let")
            v.range = interval(value)
        b.emit(["let ", v, f": {int32.ir} = ", value], "let")
        return v

    place = let("place", launched[0] + launched[1] * columns)
    group, inside = let("panel", place // (wide * panel)), let("inside", place % (wide * panel))
    even = isinstance(deep, int) and deep % panel == 0
    height = panel if even else let("height", binary("min", panel, deep - group * panel))  # the last one may be less
    step, row = inside // height, inside % height + group * panel
    if not even:  # what is known of them otherwise
        step, row = binary("min", step, wide - 1), binary("min", row, deep - 1)
    step = let("step", step)
    let(None, select(group % 2 == 1, wide - 1 - step, step), along)
    let(None, row, across)


class _Indices(tuple):
    """Several block indices; one name for all of them is no number."""

    def _several(self, *_):
        names = ", ".join(v.name for v in self)
        fail(1004, f"this T.Kernel gives {len(self)} indices ({names}), one name takes them", fix=f"as ({names}):")

    __mul__ = __rmul__ = __sub__ = __rsub__ = __floordiv__ = __truediv__ = __mod__ = __lt__ = __gt__ = _several


class Block:
    """A statement with a block: cube { }, vector { }."""

    def __init__(self, word):
        self.word = word

    def __enter__(self):
        self.builder = current(f"a {self.word} block")
        self.stmt = self.builder.open(self.word, [self.word])

    def __exit__(self, *exc):
        self.builder.close()
        self.builder.returns.after_scope(self.stmt)


def Scope(side):
    """`with T.Scope("C")`: code of the cube core; "V": of each vector core."""
    word = {"c": "cube", "v": "vector", "cube": "cube", "vector": "vector"}.get(str(side).lower())
    if word is None:
        fail(1004, f"T.Scope takes 'C' or 'V', not {describe(side)}", fix="'C' is the cube core, 'V' each vector core")
    return Block(word)


class If(metaclass=Rightly):
    """`with T.If(c): with T.Then(): ... with T.Else(): ...` - the older form of `if`."""

    spoken = "T.If"

    def __init__(self, cond):
        self.cond = to_bool(cond)

    def __enter__(self):
        self.builder = b = current("T.If")
        self.stmt = b.open("if", ["if ", self.cond])
        b.control += 1
        b.ifs.append(self)

    def __exit__(self, *exc):
        b = self.builder
        b.close()
        b.control -= 1
        b.ifs.pop()


class _Branch(metaclass=Rightly):
    def __init__(self):
        pass

    def __enter__(self):
        b = current(self.spoken)
        if not b.ifs:
            fail(
                1006, f"{self.spoken} outside T.If", fix="with T.If(c): with T.Then(): ... with T.Else(): ..."
            )
        if isinstance(self, Else):
            b.open_alt(b.ifs[-1].stmt)

    def __exit__(self, *exc):
        pass


class Then(_Branch):
    spoken = "T.Then"


class Else(_Branch):
    spoken = "T.Else"
