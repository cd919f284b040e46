"""`kernel.compare`: where results differ from a reference, by how much, who wrote them, and what it looks like.

The reference is what the caller gives, or the interpreter's result. Who wrote an element comes from the interpreter,
which notes block, core and statement of each store to an output. The kind is a guess: each test of `KINDS` looks for
the trace that one kind of mistake leaves in the numbers; the first that finds it is named.
"""

import inspect

import numpy as np

from ..errors import ArgumentError, _short, file_name, rightly_all
from ..frontend.expr import Region
from ..tensors import what
from .call import copied
from .machine import root

# relative error that rounding explains, by dtype; the absolute one is that times the largest value
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}


class Writers:
    """An observer of the interpreter: for each output element the lane and statement that stored it last."""

    def __init__(self, arrays):
        self.found = []
        self.owner = {id(a): np.full(a.shape, -1, np.int32) for a in arrays}
        self.boxes = {id(a): [] for a in arrays}

    def __call__(self, lane, s):
        for r in s.outs if s.kind == "op" else [s.buf]:
            buf = r.buf if isinstance(r, Region) else r
            if buf.space != "gm":
                continue
            array = lane.tile(buf)
            owner = self.owner.get(id(array))
            if owner is None:
                continue
            self.found.append((lane, s.loc, s))
            if isinstance(r, Region):
                part = tuple(slice(max(o, 0), max(o + e, 0)) for o, e in lane.box(r))
                self.boxes[id(array)].append([(o, e) for o, e in lane.box(r)])
            else:
                _, at, _ = lane.find(buf, s.idx, None)
                part = tuple(np.broadcast_arrays(*at))
            owner[part] = len(self.found) - 1

    def of(self, array, index):
        """(block and core, (file, line)) of an element's last store, or None."""
        n = self.owner[id(array)][index]
        if n < 0:
            return None
        lane, loc, s = self.found[n]
        ins = [r.buf for r in getattr(s, "ins", ()) if isinstance(r, Region) and r.buf.space != "gm"]
        where = lane.who()
        if lane.side is None and ins:
            prog = lane.run.program
            on_cube = prog.on_cube(ins[0]) and root(ins[0]).at not in prog.vector  # not a tile that is handed over
            where += ", cube core" if on_cube else f", vector core {lane.vid}"
        files = lane.run.program.files
        file = files[loc[0] - 1] if 0 < loc[0] <= len(files) else None
        return where, (file, loc[1])

    def tile(self, array):
        """The shape that most stores to an output had."""
        boxes = [tuple(e for _, e in b) for b in self.boxes[id(array)]]
        return max(set(boxes), key=lambda b: (boxes.count(b), b)) if boxes else tuple(min(n, 16) for n in array.shape)


# ---- what kind of mistake -------------------------------------------------------------------------------------------


def _near(d, a, b):
    return d.close(np.asarray(a, np.float64), np.asarray(b, np.float64))


def _tail(d):
    for axis, (n, t) in enumerate(zip(d.got.shape, d.tile)):
        whole = n // t * t
        at = np.moveaxis(d.bad, axis, 0)
        if n % t and t > 1 and at[whole:].any() and not at[:whole].any():
            return f"all of it lies behind element {whole} of dimension {axis}, in the last tile of {n % t} of {t}"
    return None


def _transposed(d):
    g, w = d.got, d.want
    if g.ndim < 2:
        return None
    if g.shape[-1] == g.shape[-2] and _near(d, g, np.swapaxes(w, -1, -2)).all():
        return "the result is the transpose of the reference"
    t = d.tile[-2:]
    if g.ndim == 2 and t[0] == t[1] and t[0] > 1:
        boxes = [b for b in d.boxes() if d.bad[b].any() and g[b].shape == t]
        if boxes and all(_near(d, g[b], w[b].T).all() for b in boxes):
            return "each tile is transposed"
    n = g.size
    if g.ndim == 2 and g.shape[0] != g.shape[1] and _near(d, g.reshape(-1), w.T.reshape(-1)[:n]).all():
        return "the elements are those of the transposed reference, row by row"
    return None


def _shifted(d):
    for axis, n in enumerate(d.got.shape):
        for step in (1, -1):
            if n > 2:
                inner = [slice(None)] * d.got.ndim
                inner[axis] = slice(1, -1)
                moved = np.roll(d.want, step, axis)
                if d.bad[tuple(inner)].mean() > 0.3 and _near(d, d.got[tuple(inner)], moved[tuple(inner)]).all():
                    return f"the reference, shifted by {step} in dimension {axis}"
    return None


def _exchanged(d):
    boxes = [b for b in d.boxes() if d.bad[b].any()]
    if not 2 <= len(boxes) <= 64:
        return None
    for b in boxes:
        if not any(d.got[b].shape == d.want[o].shape and _near(d, d.got[b], d.want[o]).all() for o in d.boxes()):
            return None
    return f"{len(boxes)} tiles hold what belongs to others: an index of the tile is wrong"


def _nothing(d):
    g = d.got[d.bad]
    if (g == 0).all() and (d.want[d.bad] != 0).all():
        whole = "the result is" if d.bad.mean() > 0.9 else "the wrong elements are"
        return f"{whole} all zeros: never written, or flushed to zero in a narrow dtype"
    return None


def _unwritten(d):
    g, w = d.got[d.bad], d.want[d.bad]
    if np.isnan(g).mean() > 0.5 and np.isfinite(w).all():
        return "NaN where the reference is finite: memory that nothing wrote, or an overflow on the way"
    if np.isinf(g).any() and np.isfinite(w).all():
        return "overflow: infinity where the reference is finite"
    return None


def _precision(d):
    with np.errstate(all="ignore"):
        rel = np.abs(d.got - d.want)[d.bad] / np.maximum(np.abs(d.want)[d.bad], d.scale * 1e-3)
    return f"small errors everywhere, at most {rel.max():.1e} of the value" if rel.max() < 2e-2 else None


def _accumulation(d):
    g, w = d.got[d.bad].astype(np.float64), d.want[d.bad].astype(np.float64)
    ok = np.isfinite(g) & np.isfinite(w)
    g, w = g[ok], w[ok]
    if g.size < 16 or not g.std() or not w.std():
        return None
    ratio = g / np.where(w == 0, np.nan, w)
    middle = np.nanmedian(ratio)
    if np.nanmax(np.abs(ratio - middle)) < 1e-2 * abs(middle):
        return f"the result is {middle:.4g} times the reference: terms are missing, or counted more than once"
    r = np.corrcoef(g, w)[0, 1]
    if not 0.15 < r < 0.9995:
        return None
    if abs(np.cov(g, w)[0, 1] / g.var(ddof=1) - 1) < 0.15:  # what is missing does not depend on what is there
        return f"missed accumulation: about {r * r:.0%} of the terms of each sum are there"
    if abs(np.cov(g, w)[0, 1] / w.var(ddof=1) - 1) < 0.15:
        return "something is added to each sum: an accumulator that was not cleared, or terms counted twice"
    return None


KINDS = [
    ("tail", _tail),
    ("not written", _nothing),
    ("undefined", _unwritten),
    ("transposed", _transposed),
    ("shifted", _shifted),
    ("exchanged tiles", _exchanged),
    ("precision", _precision),
    ("accumulation", _accumulation),
]


# ---- one output -----------------------------------------------------------------------------------------------------


def wide(values):
    """Numbers to subtract: float64, for integers of 64 bits more."""
    values = np.asarray(values)
    return values.astype(np.longdouble if values.dtype.kind in "iu" and values.dtype.itemsize == 8 else np.float64)


class Difference:
    """One output against its reference: `worst` index, `error` there, `count` of wrong elements, `kind` and `why`,
    `where` (block and core) and `line` that wrote the worst one, `by_tile` (largest error of each tile)."""

    def __init__(self, name, dtype, got, want, tile, rtol, atol):
        self.name, self.dtype, self.tile = name, dtype, tuple(max(t, 1) for t in tile)
        self.got, self.want = wide(got), wide(want)
        if self.want.ndim == 0:  # one number for all elements
            self.want = np.broadcast_to(self.want, self.got.shape)
        if self.got.shape != self.want.shape:
            raise ArgumentError(
                f"the reference of '{name}' has shape {self.want.shape}, the result {self.got.shape}",
                "give the reference the shape of the result",
            )
        finite = np.abs(self.want[np.isfinite(self.want)])
        self.scale = float(finite.max()) if finite.size else 0.0
        self.rtol = TOLERANCE.get(str(dtype), 0.0) if rtol is None else rtol
        self.atol = self.rtol * self.scale if atol is None else atol
        self.bad = ~self.close(self.got, self.want)
        self.count = int(self.bad.sum())
        with np.errstate(all="ignore"):
            error = np.abs(self.got - self.want)
        error = np.where(self.bad & ~np.isfinite(error), np.inf, np.where(self.bad, error, 0.0))
        self.errors = error
        self.worst = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape)) if error.size else ()
        self.error = float(error[self.worst]) if error.size else 0.0
        self.kind = self.why = self.where = self.line = None
        self.unwritten = 0  # elements that nothing writes

    def close(self, a, b):
        with np.errstate(all="ignore"):
            near = np.isfinite(b) & (np.abs(a - b) <= self.atol + self.rtol * np.abs(b))
        return near | (a == b) | (np.isnan(a) & np.isnan(b))

    def number(self, values):
        """The value at the worst place as text."""
        v = values[self.worst]
        return f"{v:.9g}" if self.dtype.is_float or v != np.floor(v) else str(int(v))

    def boxes(self):
        """The tiles of the output, as indices."""
        shape = self.got.shape
        for at in np.ndindex(*(-(-n // t) for n, t in zip(shape, self.tile))):
            yield tuple(slice(i * t, (i + 1) * t) for i, t in zip(at, self.tile))

    @property
    def by_tile(self):
        grid = tuple(-(-n // t) for n, t in zip(self.got.shape, self.tile))
        return np.array([self.errors[b].max() if self.errors[b].size else 0.0 for b in self.boxes()]).reshape(grid)

    def guess(self):
        for kind, test in KINDS:
            why = test(self)
            if why:
                self.kind, self.why = kind, why
                return

    def __str__(self):
        left = f"; {self.unwritten} of {self.got.size} elements are never written" if self.unwritten else ""
        if not self.count:
            return f"{self.name}: agrees (tolerance {self.atol:.3g} + {self.rtol:.3g} * |reference|){left}"
        at = ", ".join(str(i) for i in self.worst)
        out = [
            f"{self.name}: {self.count} of {self.got.size} elements differ by more than "
            f"{self.atol:.3g} + {self.rtol:.3g} * |reference|{left}",
            f"  worst: {self.name}[{at}] is {self.number(self.got)}, the reference {self.number(self.want)}",
        ]
        if self.where:
            file, line = self.line
            out.append(f"  written by {self.where}, {_short(file) if file else 'line'}:{line}")
        out.append(f"  looks like: {self.kind} - {self.why}" if self.kind else "  looks like: no kind that is known")
        return "\n".join(out + _map(self.by_tile, self.tile))


_SHADES = " .:-=+*#%@"


def _map(grid, tile):
    """The largest error of each tile as text."""
    g = grid.reshape(1, -1) if grid.ndim == 1 else grid.reshape(-1, grid.shape[-1])
    if g.size < 2 or g.shape[0] > 40 or g.shape[1] > 100:
        return []
    top = np.where(np.isfinite(g), g, 0).max() or 1.0
    shade = np.where(np.isfinite(g), np.ceil(g / top * (len(_SHADES) - 1)), len(_SHADES) - 1).astype(int)
    rows = ["    |" + "".join(_SHADES[s] for s in row) + "|" for row in shade]
    return [f"  largest error of each tile of {list(tile)}:", *rows]


class Comparison:
    """What `kernel.compare` found: `differences`, one for each output; true when all agree. Of several launches:
    `launch`, in words, the first one whose results differ from the interpreter's on the same tensors, None when each
    agrees, and `step`, its Difference."""

    def __init__(self, differences, faults, launch=None, step=None):
        self.differences, self.faults, self.launch, self.step = differences, faults, launch, step

    def __bool__(self):
        return not self.faults and not any(d.count for d in self.differences)

    def __iter__(self):
        return iter(self.differences)

    def __getitem__(self, n):
        return self.differences[n]

    def __str__(self):
        first = []
        if self.step is not None:
            first = [f"{self.launch} is the first that gives something else than the interpreter:", str(self.step)]
        return "\n".join([*(str(d) for d in self.differences), *first, *(str(f) for f in self.faults)])

    __repr__ = __str__

    def save(self, path):
        """The errors by tile as a heat map (PNG); needs matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ArgumentError("a heat map needs matplotlib", "pip install matplotlib") from None
        shown = self.differences
        figure = Figure(figsize=(5 * max(len(shown), 1), 4), layout="constrained")
        for n, d in enumerate(shown):
            axes = figure.add_subplot(1, len(shown), n + 1)
            grid = d.by_tile
            grid = grid.reshape(1, -1) if grid.ndim < 2 else grid.reshape(-1, grid.shape[-1])
            grid = np.where(np.isfinite(grid), grid, np.nan)
            rows, columns = (1, *d.tile)[-2:]
            box = (0, grid.shape[1] * columns, grid.shape[0] * rows, 0)  # axes count elements
            image = axes.imshow(np.ma.masked_invalid(grid), aspect="auto", cmap="inferno", extent=box)
            axes.set_xticks(range(0, box[1] + 1, columns * max(1, grid.shape[1] // 8)))
            axes.set_yticks(range(0, box[2] + 1, rows * max(1, grid.shape[0] // 8)))
            axes.set_facecolor("cyan")  # not finite
            axes.set_title(f"{d.name}: largest error of each tile {list(d.tile)}", fontsize=9)
            figure.colorbar(image, ax=axes)
        figure.savefig(file_name(path, "comparison.save"), metadata={"Software": None})
        return path


rightly_all(Comparison, "comparison", ArgumentError, "save")


# ---- the call -------------------------------------------------------------------------------------------------------


def simulated(call, programs, tensors, **options):
    """Runs the launches of a call one after the other up to the first fault; the Diagnostics of it."""
    for launch, p in zip(call.launches, programs):
        faults = launch.simulate(p, tensors, **options)
        if faults:
            return faults
    return []


def second_opinion(call, tensors):
    """Interprets a call on the tensors given; (Writers, the tensors before each launch)."""
    seen, before = Writers(tensors.values()), []
    for launch in call.launches:
        before.append(copied(tensors))
        launch.interpreted(tensors, watch=lambda run: run.observers.append(seen))
    return seen, before


def raced(call, programs, base, got):
    """Does another order of the pipes give other bytes? The number of a schedule that does, or None."""
    for schedule in (1, 2, 3):
        again = copied(base)
        if not simulated(call, programs, again, schedule=schedule):
            if any(again[i].tobytes() != got[i].tobytes() for i in call.written):
                return schedule
    return None


def compare(call, ref, rtol, atol):
    """A call.Call against `ref`; see Kernel.compare."""
    base = call.tensors()
    programs = [launch.lowered() for launch in call.launches]
    got, mine = copied(base), copied(base)
    faults = simulated(call, programs, got, checks=True)
    seen, before = second_opinion(call, mine)
    wants = _references(call, ref, mine)
    out = []
    for n, i in enumerate(call.written):
        p = call.params[i]
        d = Difference(p.name, p.dtype, got[i], wants[n], seen.tile(mine[i]), rtol, atol)
        d.unwritten = int((seen.owner[id(mine[i])] < 0).sum()) if i in call.made else 0
        if d.count:
            wrote = seen.of(mine[i], d.worst)
            d.where, d.line = wrote if wrote else (None, None)
            again = raced(call, programs, base, got)
            if again:
                d.kind, d.why = "race", "another order of the pipes gives other numbers"
            else:
                d.guess()
        out.append(d)
    step = None
    if len(call.launches) > 1 and not faults and any(d.count for d in out):
        step = first_apart(call, programs, [*before, mine], seen, rtol, atol)
    return Comparison(out, faults, *(step or ()))


def first_apart(call, programs, states, seen, rtol, atol):
    """(title, Difference) of the first launch that gives something else than the interpreter where both have the same
    tensors; `states`: the interpreter's before each launch and after the last."""
    for launch, p, base, want in zip(call.launches, programs, states, states[1:]):
        got = copied(base)
        if launch.simulate(p, got):
            continue
        for i in call.results(launch):
            d = Difference(
                call.params[i].name, call.params[i].dtype, got[i], want[i], seen.tile(states[-1][i]), rtol, atol
            )
            if d.count:
                d.guess()
                return launch.title, d
    return None


def _references(call, ref, interpreted):
    if ref is None:
        return [interpreted[i] for i in call.written]
    found = list(ref) if isinstance(ref, (tuple, list)) else [ref]
    if len(found) != len(call.written):
        raise ArgumentError(
            f"ref gives {len(found)} tensors, the kernel writes {len(call.written)}",
            "a tensor for each that the kernel writes, in the order of its parameters",
        )
    return [_numpy(r) for r in found]


def _numpy(r):
    if hasattr(r, "detach"):
        r = r.detach().cpu()
        return r.float().numpy() if r.dtype.is_floating_point and r.element_size() < 4 else r.numpy()
    found = np.asarray(r)
    if found.dtype.kind in "OUSMm":
        fix = "an array, a list of arrays, or a function of the arguments that gives them"
        raise ArgumentError(f"ref is {what(r)}", fix)
    return found


def asked(ref, args):
    """What a reference gives for the arguments of a call."""
    if not callable(ref):
        return ref
    try:
        inspect.signature(ref).bind(*args)
    except TypeError as e:
        raise ArgumentError(
            f"ref is called with the {len(args)} arguments of the call: {e}",
            "a parameter for each argument: ref=lambda A, B: A @ B",
        ) from None
    except ValueError:
        pass  # a function of C does not say what it takes
    got = ref(*args)
    if got is None:
        raise ArgumentError("ref returns None", "return the array that the kernel should give")
    return got
