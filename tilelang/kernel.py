"""A compiled kernel: call it, look inside it, get its source.

Python keeps the parameter list and the IR text; everything else is asked of the C core (`_core.Program`).
"""

import contextvars
import itertools
import json
import math
import os
import threading
import time

from .debug.methods import NAMES, Debugging
from .errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    KernelFault,
    counted,
    explained,
    file_name,
    from_core,
    nearest,
    rightly_all,
    show_print,
    warn,
)
from .frontend.builder import active
from .frontend.expr import Buffer, beyond, evaluate, show, sizes_in
from .frontend.trace import Itself, Named, by_name, called_inside, meaning
from .language.dtypes import DType
from .pass_config import PassConfigKey, read
from .tensors import (
    check,
    check_contiguous,
    empty_like_kind,
    four_bits,
    give_back,
    is_tensor,
    packed,
    poison,
    poisoned,
    stored,
    view,
    warn_of_gradient,
    what,
)

# Called with each launch, its kernel and the arguments for the core, while do_bench looks on; None: nobody asks.
LAUNCHES = contextvars.ContextVar("launches", default=None)

DEVICES = ("sim", "ascend")
TARGETS = ("auto", "ascendc", "pto")


def _choice(what, value, choices):
    if value not in choices:
        near = nearest(str(value), choices)
        raise ArgumentError(
            f"{what}={value!r}: there is no such {what.removeprefix('TILELANG_').lower()}; one of {', '.join(choices)}",
            f"did you mean '{near}'?" if near else f"{what}={choices[0]!r}, or leave it out",
        )
    return value


def _indices(what, idx, params):
    """Parameter numbers, counted from either end."""
    if idx is None:
        return []
    out = []
    one = isinstance(idx, str) or not hasattr(idx, "__iter__") or getattr(idx, "ndim", 1) == 0
    for i in [idx] if one else list(idx):
        i = i.item() if hasattr(i, "item") else i
        names = [p.name for p in params]
        fix = f"{what}=[-1] is the last parameter"
        if isinstance(i, bool) or not isinstance(i, int) or not -len(params) <= i < len(params):
            fix = f"{what}=[{names.index(i)}] is '{i}'" if i in names else fix
            raise ArgumentError(
                f"{what}={idx!r}: {i!r} is no number of one of the {len(params)} parameters ({', '.join(names)})", fix
            )
        i %= len(params)
        if not isinstance(params[i], Buffer):
            at = [n for n, p in enumerate(params) if isinstance(p, Buffer)]
            raise ArgumentError(
                f"{what}={idx!r}: parameter {i}, '{names[i]}', is a scalar, not a tensor", f"{what}={at[-1:]}"
            )
        out.append(i)
    return out


_ON_OFF = {word: True for word in ("", "1", "on", "true", "yes")} | dict.fromkeys(("0", "off", "false", "no"), False)


def _checks_asked():
    """What the environment says about the checks."""
    text = os.environ.get("TILELANG_CHECKS", "")
    if text.lower() not in _ON_OFF:
        raise ArgumentError(
            f"TILELANG_CHECKS={text!r}: the fault checks are on or off", "TILELANG_CHECKS=1 or TILELANG_CHECKS=0"
        )
    return _ON_OFF[text.lower()]


def _chip_asked():
    """The chip that the environment names; None: no word of it."""
    name = os.environ.get("TILELANG_CHIP")
    return name and chip_named(name, "TILELANG_CHIP")[0]


def _constant(shape):
    return all(isinstance(s, int) for s in shape)


def _total(runs):
    """What several launches did, in one."""
    out = {}
    for r in runs:
        for name, n in (r or {}).items():
            if isinstance(n, (int, float)):
                out[name] = max(out.get(name, 0), n) if name.startswith("cores") else out.get(name, 0) + n
    return out


class Given(dict):
    """Views of the tensors of a call by parameter number; `unused`: those that were given as None; `back`: what brings
    the elements of copies back to the tensors; `left_out`: codes of what is not said, because the caller or another
    launch of the call may put values where this one puts none, and read what it does not."""

    left_out = ("TL0818", "TL0819", "TL0821")

    def __init__(self):
        super().__init__()
        self.unused, self.back = [], []


def _as_tensor(obj, dtype):
    """What to write for an argument that is no tensor."""
    if isinstance(obj, (list, tuple)):
        return f"numpy.array(x, '{dtype}')"
    if isinstance(obj, (int, float)):
        return f"a scalar parameter is written `n: T.int32` in the kernel; numpy.full(shape, x, '{dtype}') is a tensor"
    return "a numpy array or a torch tensor"


def warn_of(found):
    for d in found:
        if d.severity == "warning":
            warn(d.text, int(d.code[2:]), (d.file, d.line, d.col), d.fix, d.other)


class Param:
    """One parameter as the caller sees it."""

    __slots__ = ("name", "kind", "dtype", "shape", "role")

    def __init__(self, name, kind, dtype, shape, role):
        self.name, self.kind, self.dtype, self.shape, self.role = name, kind, dtype, shape, role

    def __repr__(self):
        shape = f"[{', '.join(show(s) for s in self.shape)}]" if self.kind == "tensor" else ""
        return f"{self.name}: {self.dtype}{shape}{'' if self.role == 'in' else ' ' + self.role}"


class Kernel(Itself, Debugging):
    """A compiled kernel. `kernel(*tensors)` runs it; `kernel.ir()`, `explain()`, `get_kernel_source()` show it."""

    tuner_result = None
    origin = None  # what pickle calls to make it again, with the arguments: @tilelang.jit says so
    returns = ()  # of a function that opens T.Kernel itself: what it returns, ("out" or "in", number)
    home = "numpy"  # the kind of tensor that results are when no tensor goes in
    loose = False  # True: a tensor of another shape with enough elements is read in the parameter's, with a warning

    def __init__(
        self,
        func,
        out_idx=None,
        workspace_idx=None,
        target="auto",
        device=None,
        chip=None,
        pass_configs=None,
        checks=None,
        threads=0,
    ):
        began = time.perf_counter()
        self.traced = traced = getattr(func, "traced", func)
        self.prim_func = func
        self.defaults = getattr(func, "defaults", {})  # of parameters, by name
        self._options = out_idx, workspace_idx, target, device, chip, pass_configs, checks, threads
        self.name = traced.name
        self.target = _choice("target", target or "auto", TARGETS)
        asked = "device" if device else "TILELANG_DEVICE"
        device, _, card = str(device or os.environ.get(asked) or "sim").partition(":")
        self.device = _choice(asked, device, DEVICES)
        self.card = int(card) if card.isdigit() else None  # "ascend:1"; without a number the current one
        if card and (self.card is None or self.device == "sim"):
            raise ArgumentError(f"{asked}='{device}:{card}' is no device", "'sim', 'ascend' or 'ascend:N', N a number")
        self.chip = chip or _chip_asked() or self._chip_there()
        if self.chip is not None and not isinstance(self.chip, str):
            raise ArgumentError(f"chip={what(chip)}, wanted the name of a chip", "chip='910B2'; tlc chips lists them")
        if checks not in (None, True, False):
            raise ArgumentError(f"checks={checks!r}: the fault checks are on or off", "checks=True or checks=False")
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
            raise ArgumentError(f"threads={threads!r}: a number of threads of this machine", "threads=0 chooses one")
        self.checks = checks if checks is not None else _checks_asked()
        self.threads = threads
        self.pass_configs = read(pass_configs)
        self.last_run = None
        self.diagnostics = list(traced.builder.notes)
        self._lock = threading.RLock()
        self._roles(out_idx, workspace_idx)
        self.text = traced.text(self.out_idx, self.workspace_idx)
        self.sizes = traced.size_names
        self._plan()
        self.times = {"trace": traced.seconds, "print": time.perf_counter() - began}
        self._sources = {}
        self._program = None
        self._kept = None
        self._variants = {}
        self._launcher = None
        if not self._empty() and not self._awaits_shapes():
            self._program = self._compile(keep_text=False)
        self.rest = [  # the launches after the first
            Kernel(t, out_idx, workspace_idx, target, device, chip, pass_configs, checks, threads)
            for t in getattr(traced, "rest", ())
        ]

    def __reduce__(self):
        """Pickled as what makes it: a name, a call of a function under @tilelang.jit, or a prim_func and options."""
        func = self.prim_func
        if self.origin is not None:
            return self.origin
        if not isinstance(func, Named):
            raise ArgumentError(
                f"the kernel '{self.name}' of a function that opens T.Kernel itself cannot be pickled",
                "pass the arguments and call the function in the other process",
            )
        if meaning(func) is self:
            return by_name, (func.__module__, func.__qualname__)
        return Kernel, (func, *self._options)

    def _chip_there(self):
        """For a card: the name of its chip. None: the default."""
        if self.device == "sim":
            return None
        from .device import chip_of_device

        return chip_of_device()

    # ---- parameters ---------------------------------------------------------------------------------------------

    def _roles(self, out_idx, workspace_idx):
        params = self.traced.params
        outs = {id(b) for b in self.traced.builder.outs}
        self.out_idx = _indices("out_idx", out_idx, params) + [i for i, p in enumerate(params) if id(p) in outs]
        scratch = {id(b) for b in self.traced.builder.scratch}
        self.workspace_idx = _indices("workspace_idx", workspace_idx, params)
        self.workspace_idx += [i for i, p in enumerate(params) if id(p) in scratch]
        both = set(self.out_idx) & set(self.workspace_idx)
        if both:
            name = params[both.pop()].name
            raise ArgumentError(
                f"parameter '{name}' is named in out_idx and in workspace_idx", "name it in one of them"
            )
        if len(set(self.out_idx)) != len(self.out_idx):
            raise ArgumentError(f"out_idx={out_idx!r} names a parameter twice", f"out_idx={sorted(set(self.out_idx))}")

    def _plan(self):
        self.params = []
        for i, p in enumerate(self.traced.params):
            role = "out" if i in self.out_idx else "workspace" if i in self.workspace_idx else "in"
            if isinstance(p, Buffer):
                self.params.append(Param(p.name, "tensor", p.dtype, p.shape, role))
            else:
                self.params.append(Param(p.name, "scalar", p.dtype, (), role))
        self.written = {i for i, p in enumerate(self.traced.params) if isinstance(p, Buffer) and p.written}
        self.inputs = [i for i, p in enumerate(self.params) if p.role == "in"]
        self.given = [i for i, p in enumerate(self.params) if p.role in ("in", "out")]

    def _empty(self):
        """Nothing to do whatever is passed: no blocks, or no element to write."""
        if any(isinstance(e, int) and e == 0 for _, e in self.traced.builder.grid):
            return True
        shapes = [self.params[i].shape for i in self.written]
        return bool(shapes) and all(any(isinstance(s, int) and s == 0 for s in shape) for shape in shapes)

    # ---- tensors of other shapes ---------------------------------------------------------------------------------

    def _awaits_shapes(self):
        """Loose, and a parameter is declared larger than any tensor: it is compiled for the shapes of a call."""
        return self.loose and any(math.prod(p.shape) >= 1 << 31 for p in self.params if _constant(p.shape))

    def _read_as(self, i, want, have):
        """The shape to read tensor `i` in: the declared one,
        or that with one dimension shortened; None: neither fits."""
        n = math.prod(have)
        if math.prod(want) <= n:
            return want
        if _constant(self.params[i].shape):
            for d in range(len(want)):
                others = math.prod(want[:d] + want[d + 1 :])
                if others and n % others == 0 and n // others < want[d]:
                    return want[:d] + (n // others,) + want[d + 1 :]
        return None

    def _variant(self, shapes):
        """This kernel with other shapes of parameters: {number: shape}."""
        key = tuple(sorted(shapes.items()))
        if key not in self._variants:
            made = self._variants[key] = object.__new__(type(self))  # copy.copy would go the way of pickle
            vars(made).update(vars(self))
            before = {i: self.traced.params[i].shape for i in shapes}
            try:
                for i, shape in shapes.items():
                    self.traced.params[i].shape = shape
                made.text = self.traced.text(self.out_idx, self.workspace_idx)
                made._plan()
            finally:
                for i, shape in before.items():
                    self.traced.params[i].shape = shape
            made._program = made._compile(keep_text=False)
        return self._variants[key]

    # ---- the core -----------------------------------------------------------------------------------------------

    def _lower_options(self):
        asked = self.pass_configs.get(PassConfigKey.TL_ASCEND_AUTO_SYNC)
        return {
            "chip": self.chip,
            "no_auto_sync": not asked and (asked is not None or self.traced.builder.hand_sync),
            "no_auto_memory": self.pass_configs.get(PassConfigKey.TL_ASCEND_MEMORY_PLANNING) is False,
        }

    def _compile(self, keep_text):
        from . import _core

        builder = self.traced.builder
        p = _core.Program()
        began = time.perf_counter()
        ok = p.load(self.name + ".tl", self.text)
        loaded = time.perf_counter()
        ok = ok and p.lower(keep_text=keep_text, **self._lower_options())
        if not keep_text:
            self.times.update(load=loaded - began, lower=time.perf_counter() - loaded)
            found = self.findings(p)
            if not ok:
                raise CompileError([d for d in found if d.severity != "note"] or found)
            warn_of(found)
            self.diagnostics += found
        return p

    def findings(self, program):
        """What the core found in a program of this kernel, as Diagnostics; the core then forgets it."""
        builder = self.traced.builder
        found = from_core(json.loads(program.diags_json()), builder.paths, builder.where, builder.spelt)
        program.diags_clear()
        return found

    def _need(self, what):
        if self._program is None:
            raise ArgumentError(
                f"{what}: '{self.name}' has no blocks or no elements to write, so nothing was compiled",
                "build it for sizes greater than 0",
            )
        return self._program

    def _outputs_hint(self, missing):
        """What to say when only tensors are missing that the kernel writes."""
        at = [i for i in self.inputs if self.params[i].name in missing]
        if at and self.written.issuperset(at):
            return f"out_idx={at} in tilelang.jit or tilelang.compile makes and returns what the kernel writes"
        return None

    def ir(self, after=None):
        """IR text: as written, or after a pass by name ("lowered": after the last one); one text a launch."""
        if self.rest:
            return "\n".join([self._ir(after), *(k.ir(after) for k in self.rest)])
        return self._ir(after)

    def _ir(self, after):
        if after is None:
            return self.text
        program = self._need(f"ir(after={after!r})")
        if after in ("lowered", "all", "last"):
            return program.text()
        if self._kept is None:
            self._kept = self._compile(keep_text=True)
        text = self._kept.text_after(str(after))
        if text is None:
            from . import _core

            names = [n for n, _ in _core.passes()]
            near = nearest(str(after), names)
            raise ArgumentError(
                f"ir(after={after!r}): there is no such pass; the passes are {', '.join(names)}",
                f"did you mean '{near}'?" if near else "ir(after='lowered') is the end",
            )
        return text

    def explain(self, svg=None):
        """What was chosen and why: buffers by memory, addresses, live ranges, flags and the hazard each orders, and
        the memories over time. `svg`: a file that gets them as a drawing (the first launch of several)."""
        if svg is not None:
            from .occupancy import svg as draw

            with open(file_name(svg, "kernel.explain(svg=...)"), "w", encoding="utf-8") as f:
                f.write(draw(self.explain_json()))
        return "\n".join([self._explain(), *(k.explain() for k in self.rest)])

    def _explain(self):
        from .occupancy import text as picture

        if self._program is None:
            return f"kernel {self.name}: no blocks or no elements to write; a call does nothing\n"
        text = self._program.explain()
        over_time = picture(self.explain_json())
        text = text.rstrip("\n") + "\n\n" + over_time if over_time else text
        notes = [d for d in self.traced.builder.notes]
        if notes:
            text = text.rstrip("\n") + "\n\nfront end\n" + "".join(f"  line {d.line}: {d.text}\n" for d in notes)
        return text

    def explain_json(self):
        """explain() as a dict."""
        return json.loads(self._need("explain_json").explain_json())

    def get_kernel_source(self, target=None):
        """C++ source for the chip: Ascend C, or PTO with target="pto"."""
        target = _choice("target", target or self.target, TARGETS)
        if target not in self._sources:
            program = self._need("get_kernel_source")
            began = time.perf_counter()
            with self._lock:
                program.diags_clear()
                text = program.emit(target)
                if text is None:
                    raise CompileError(self.findings(program))
            self.times["emit"] = time.perf_counter() - began
            self._sources[target] = text
        return "\n".join([self._sources[target], *(k.get_kernel_source(target) for k in self.rest)])

    @property
    def kernel_source(self):
        return self.get_kernel_source()

    def profile(self, *args, **kwargs):
        """How long one launch takes on the chip, by the clock of the simulator, and where the time goes: a
        tilelang.profiler.Profile. With the tensors of a call the kernel runs as in that call (`.results`: what the call
        returns), and the clock follows it. With their shapes, or nothing where all shapes are constant (symbolic sizes
        by name), nothing runs, and what the scalar unit reads from a tensor is 0. Several launches: a list of
        profiles with their sum, `.us`."""
        from .profiler import profile

        return profile(self, args, kwargs)

    def cost(self, *args, **kwargs):
        """{"us", "launch_us", "memory_us", "pipe_us", "blocks", "gm_bytes"}: a lower bound of the time of a call on
        the chip, in closed form: no run on the clock is faster. Sums, where a call launches several kernels. Arguments
        as for profile()."""
        from .profiler.profile import arguments

        found = []
        for k in (self, *self.rest):
            values, keep = arguments(k, args, dict(kwargs), "cost")
            with k._lock:
                found.append(k._need("cost").cost(values)[1])
        total = {n: sum(c[n] for c in found) for n in found[0] if n != "pipe_us"}
        return {**total, "pipe_us": {p: sum(c["pipe_us"][p] for c in found) for p in found[0]["pipe_us"]}}

    def get_profiler(self, tensor_supply_type=None):
        """Times the kernel and checks it against a reference: see tilelang.profiler."""
        from .profiler import Profiler, TensorSupplyType

        return Profiler(self, tensor_supply_type or TensorSupplyType.Auto)

    def get_tuner_result(self):
        """{"latency", "config", "ref_latency", "by", "tried"} of a kernel that @tilelang.autotune chose."""
        if self.tuner_result is None:
            raise ArgumentError(f"{self.name} was not tuned", "@tilelang.autotune above @tilelang.jit tunes")
        return self.tuner_result

    # ---- the call -----------------------------------------------------------------------------------------------

    def _who(self, i):
        return f"{self.name}: argument '{self.params[i].name}'"

    def _collect(self, args, kwargs):
        """{parameter number: given object}."""
        if kwargs:
            names = {p.name: i for i, p in enumerate(self.params)}
            for n in kwargs:
                if n not in names:
                    near = nearest(n, names)
                    fix = f"did you mean '{near}'?" if near else f"the parameters are {', '.join(names)}"
                    raise ArgumentError(f"{self.name} has no parameter '{n}'", fix)
        order = self.inputs if len(args) + len(kwargs) <= len(self.inputs) else self.given
        got = dict(zip(order, args))
        for n, v in kwargs.items():
            if names[n] in got:
                raise ArgumentError(f"{self.name}: '{n}' is given twice", "by its place or by its name, not both")
            got[names[n]] = v
        for i in self.inputs:
            if self.params[i].name in self.defaults:
                got.setdefault(i, self.defaults[self.params[i].name])
        missing = [self.params[i].name for i in self.inputs if i not in got]
        if missing or len(args) > len(order):
            wanted = ", ".join(repr(self.params[i]) for i in self.inputs)
            raise ArgumentError(
                f"{self.name} takes {counted(len(self.inputs), 'argument')} ({wanted}), {len(args) + len(kwargs)} given"
                + (f"; missing: {', '.join(missing)}" if missing else ""),
                self._outputs_hint(missing) or f"{self.name}({', '.join(self.params[i].name for i in self.inputs)})",
            )
        return got

    def _tensors(self):
        return [p for p in self.traced.params if isinstance(p, Buffer)]

    def _builders(self):
        return [self.traced.builder, *(k.traced.builder for k in self.rest)]

    def _bind_sizes(self, views):
        """(symbolic sizes from the tensors that have them as a dimension,
        shapes that differ from those declared); every
        other size is checked."""
        env, source, other = {}, {}, {}
        for i, v in views.items():
            shape = self.params[i].shape
            for d, (want, have) in enumerate(zip(shape, v.shape if len(v.shape) == len(shape) else ())):
                name = getattr(want, "name", None)
                if name in self.sizes and name not in env:
                    env[name], source[name] = have, (i, d)
        for i in views.unused:  # a tensor that is not there has no elements
            for s in self.params[i].shape:
                if getattr(s, "name", None) in self.sizes:
                    env.setdefault(s.name, 0)
        missing = [n for n in self.sizes if n not in env]
        if missing:
            raise ArgumentError(
                f"{self.name}: the size {missing[0]} cannot be read from the tensors given",
                f"give a tensor that has '{missing[0]}' as a dimension",
            )
        for i, v in views.items():
            want = tuple(evaluate(s, env) for s in self.params[i].shape)
            if want == tuple(v.shape):
                continue
            read = self._read_as(i, want, tuple(v.shape)) if self.loose else None
            if read is not None:
                if read != tuple(v.shape):
                    warn(f"{self._who(i)} has shape {tuple(v.shape)} and is read as {read}", 1022)
                if read != want:
                    other[i] = read
                v.shape = read
                continue
            if len(want) != len(v.shape):
                raise ArgumentError(
                    f"{self._who(i)} has {counted(len(v.shape), 'dimension')}, shape {v.shape}, wanted {len(want)}",
                    f"x.reshape({', '.join(map(str, want))})"
                    if math.prod(want) == math.prod(v.shape)
                    else f"a tensor of shape {want}",
                )
            d = next(d for d in range(len(want)) if want[d] != v.shape[d])
            why = "".join(
                f"; {name} is {env[name]} from dimension {source[name][1]} of '{self.params[source[name][0]].name}'"
                for name in sizes_in(self.params[i].shape[d])
                if name in source
            )
            raise ArgumentError(
                f"{self._who(i)} has shape {tuple(v.shape)}, wanted {want}: "
                f"dimension {d} is {v.shape[d]}, not {want[d]}{why}",
                f"give a tensor of shape {want}"
                + ("" if why else ", or make the kernel for this size (T.symbolic('N') in its place takes any)"),
            )
        return env, other

    def _scalar(self, i, value):
        dtype = self.params[i].dtype
        item, count = getattr(value, "item", None), getattr(value, "size", 1)
        if item is not None and (value.numel() if hasattr(value, "numel") else count) == 1:
            value = item()
        if isinstance(value, bool):
            value = int(value)
        if dtype.is_float and isinstance(value, (int, float)):
            if beyond(value, dtype, self._who(i)):
                return math.inf if value > 0 else -math.inf
            return float(value)
        if not dtype.is_float and isinstance(value, int):
            bits, signed = (1, False) if dtype == "bool" else (dtype.bits, not dtype.startswith("u"))
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            if not low <= value <= high:
                raise ArgumentError(
                    f"{self._who(i)} is {value}, which {dtype} does not hold ({low} to {high})",
                    "a smaller number, or a wider dtype in the kernel",
                )
            return value
        raise ArgumentError(
            f"{self._who(i)} is {what(value)}, wanted a number for {dtype}",
            f"int(x), or {self.params[i].name}: T.float32 in the kernel"
            if isinstance(value, float)
            else "a Python number",
        )

    def _launches(self, other):
        """The kernels of a call, one for each T.Kernel, for the shapes of the tensors given."""
        return [k._variant(other) if other else k for k in (self, *self.rest)]

    def _accept(self, args, kwargs):
        """The arguments by parameter number, checked: (objects, views of tensors, scalars, sizes, other shapes)."""
        got = self._collect(args, kwargs)
        views, scalars = Given(), {}
        for i, obj in got.items():
            p = self.params[i]
            if p.kind == "scalar":
                scalars[i] = self._scalar(i, obj)
                continue
            if obj is None and not any(b.mentions(self.traced.params[i]) for b in self._builders()):
                views.unused.append(i)
                continue
            if self.traced.params[i].strided and is_tensor(obj) and not view(obj, self._who(i)).contiguous:
                obj, put_back = packed(obj)
                views.back += [put_back] * (i in self.written)
            if not is_tensor(obj):
                raise ArgumentError(f"{self._who(i)} is {what(obj)}, wanted a tensor {p!r}", _as_tensor(obj, p.dtype))
            v = view(obj, self._who(i))
            if p.dtype == "int4":
                v = four_bits(v, self._who(i), i in self.written or p.role == "out" or self.device != "sim")
            views[i] = v
            warn_of_gradient(obj, self._who(i))
            check(v, self._who(i), p.dtype, None if self.loose else len(p.shape), cards=self.device != "sim")
            if not v.writable and (i in self.written or p.role == "out"):
                raise ArgumentError(
                    f"{self._who(i)} is written by the kernel, but the array is read-only",
                    "pass y = x.copy(), and take the result from y",
                )
        env, other = self._bind_sizes(views)
        for i, v in views.items():
            check_contiguous(v, self._who(i), i in self.written or self.params[i].role == "out")
        return got, views, scalars, env, other

    def _launch(self, args, kwargs):
        """The call on a card."""
        if self.rest or any(p.strided for p in self._tensors()):
            raise DeviceError(
                f"{self.name} has several T.Kernel, or a tensor that may have gaps: not on a card yet",
                "write it with one T.Kernel and contiguous tensors, or run it on the simulated chip: device='sim'",
            )
        if self._launcher is None or self._launcher.kernel is not self:  # a variant is a copy
            from .device import Launcher

            self._launcher = Launcher(self)
        return self._launcher(args, kwargs)

    def build(self, fresh=False):
        """Builds the kernel for the card with the toolkit of this machine and returns the path of the library; finds it
        in the cache if it was built before, unless `fresh`."""
        from .device import build

        return build(self, fresh)[0]

    def export(self, directory, target=None):
        """Writes the kernel as files that need neither tlc nor Python, and returns the directory: source, C header with
        the launch function and the sizes of tensors and workspaces, launcher in C, CMakeLists.txt, description in
        JSON."""
        target, name = _choice("target", target or self.target, TARGETS), file_name(directory, "kernel.export")
        program = self._need("export")
        with self._lock:
            program.diags_clear()
            ok = program.export(target, name)
            found = self.findings(program)
        if not ok:
            raise CompileError(found)
        return directory

    def __call__(self, *args, **kwargs):
        if active() is not None:
            called_inside(self.name)
        with explained(f"the call of '{self.name}'", ArgumentError):
            return self._call(args, kwargs)

    def _call(self, args, kwargs):
        if self.device != "sim":
            return self._launch(args, kwargs)
        got, views, scalars, env, other, results, kind = self._bind(args, kwargs)
        runs = self._launches(other)
        self._idle(runs, env, scalars, results)
        if len(runs) == 1:
            views.left_out = () if all(i in results for i in self.out_idx) else ("TL0818",)
        if not self.checks:
            self._shared(views)
        for k in runs:
            k._run(env, views, scalars)
        if self.rest and self.checks:
            self._unwritten(views, results)
        for put_back in views.back:
            put_back()
        self.last_run = runs[0].last_run if len(runs) == 1 else _total([k.last_run for k in runs])
        outs = [give_back(kind, results[i]) if i in results else got[i] for i in self.out_idx]
        return None if not outs else outs[0] if len(outs) == 1 else outs

    def returned(self, outs, args):
        """What the function returns that opens T.Kernel itself, of what a call returns and its arguments."""
        if not self.returns:
            return None
        outs = outs if isinstance(outs, list) else [outs]
        results = [outs[i] if kind == "out" else args[i] for kind, i in self.returns]
        return results[0] if len(results) == 1 else results

    def _bind(self, args, kwargs):
        """What a call on the simulated chip hands over: what _accept says, then the outputs and workspaces made for the
        call and the kind of the outputs."""
        got, views, scalars, env, other = self._accept(args, kwargs)
        kind = next((v.kind for v in views.values()), self.home)
        results = {}
        for i in [*self.out_idx, *self.workspace_idx]:
            if i not in got:
                p = self.params[i]
                made = empty_like_kind(
                    kind if p.role == "out" else "numpy", [evaluate(s, env) for s in p.shape], p.dtype
                )
                views[i] = view(made, self._who(i))
                results[i] = made
                if self.rest and self.checks:  # the checks of one launch do not know what the others write
                    poison(views[i])
        for i in views.unused:
            shape = [evaluate(s, env) for s in self.params[i].shape]
            views[i] = view(empty_like_kind("numpy", shape, self.params[i].dtype), self._who(i))
        return got, views, scalars, env, other, results, kind

    def twin(self, *args, **kwargs):
        """Compiles the written Ascend C with the headers of the toolkit at ASCEND_HOME_PATH, runs it on this host on a
        model of the hardware intrinsics, and compares with the simulator: a report with `same`, `outputs` by name and
        `faults` (docs/verification.md). Arguments as for a call; needs g++."""
        from .twin import run

        return run(self, args, kwargs)

    def _values(self, env, views, scalars):
        """A call's arguments as the core takes them."""
        args = [env[n] for n in self.sizes]
        for i, p in enumerate(self.params):
            args.append(scalars[i] if p.kind == "scalar" else (views[i].address, tuple(views[i].core_shape)))
        return args

    def _blocks(self, env, scalars):
        """The number of blocks of a call."""
        scope = {**env, **{self.params[i].name: v for i, v in scalars.items()}}
        grid = [int(evaluate(e, scope)) for _, e in self.traced.builder.grid]
        if min(grid) < 0 or math.prod(grid) >= 1 << 31:
            text = " x ".join(show(e) for _, e in self.traced.builder.grid)
            sizes = ", ".join(f"{n} is {scope[n]}" for _, e in self.traced.builder.grid for n in sizes_in(e))
            raise ArgumentError(
                f"{self.name}: T.Kernel({text}) has {' x '.join(map(str, grid))} blocks" + f": {sizes}" * bool(sizes),
                "a number from 0 to 2^31 - 1",
            )
        return math.prod(grid)

    def _idle(self, runs, env, scalars, made):
        """Launches without blocks do nothing: no word where there is no element to write, a warning where tensors of
        the caller stay as they are, an error where one that is `made` for the call would hold nothing."""
        idle = [k for k in runs if k._blocks(env, scalars) == 0]
        if not idle:
            return
        shapes = {i: tuple(evaluate(s, env) for s in self.params[i].shape) for i in self.written}
        alive = [k for k in runs if k not in idle]
        for i in sorted(i for i in shapes if math.prod(shapes[i])):
            launches = [k for k in idle if k.traced.builder.mentions(self.traced.params[i])]
            if not launches or any(k.traced.builder.mentions(self.traced.params[i]) for k in alive):
                continue
            grid = ", ".join(show(e) for _, e in launches[0].traced.builder.grid)
            text = f"T.Kernel({grid}) has 0 blocks in this call, so that nothing is written to it"
            fix = "give sizes that make at least one block"
            if i in made:
                raise ArgumentError(f"{self._who(i)} of shape {shapes[i]} is an output, and {text}", fix)
            warn(f"{self._who(i)}: {text}", 1027, fix=fix)

    def _unwritten(self, views, made):
        """Warns where an output of several launches still holds what the call put there."""
        for i in made:
            left = poisoned(views[i]) if self.params[i].role == "out" else ()
            if len(left):
                warn(
                    f"{len(left)} of the {math.prod(views[i].shape)} elements of '{self.params[i].name}', an output, "
                    f"hold what no launch has written; the first has index {left[0].tolist()}",
                    818,
                    fix="write the rest too, and what is read to make it (is a grid, an extent or a condition too "
                    "small?)",
                )

    def _shared(self, views):
        """Warns where a tensor that is written begins inside another one, or two that are written are one. The same
        tensor as input and output is what many kernels are made for. The checks of the simulator see more, and only
        what does meet."""
        spans = sorted(
            (v.address, v.address + math.prod(v.core_shape) * DType(stored(v.shape, v.dtype)[1]).bits // 8, i)
            for i, v in views.items()
        )
        for n, (low, high, i) in enumerate(spans):
            for low_2, high_2, j in itertools.takewhile(lambda s: s[0] < high, spans[n + 1 :]):
                wrote = self.written & {i, j}
                if not wrote or (low, high) == (low_2, high_2) and len(wrote) < 2:
                    continue
                warn(
                    f"{self._who(min(i, j))} and '{self.params[max(i, j)].name}' share {min(high, high_2) - low_2} "
                    f"bytes, and the kernel writes '{self.params[min(wrote)].name}': what comes out hangs on the order "
                    "of the blocks",
                    1028,
                    fix="tensors of their own (x.copy(), x.clone()); checks=True shows where they meet",
                )

    def _run(self, env, views, scalars):
        if self._program is None or self._blocks(env, scalars) == 0:
            self.last_run = {
                "blocks": 0,
                "instructions": 0,
                "gm_read_bytes": 0,
                "gm_write_bytes": 0,
                "cores_used": 0,
                "cores": 0,
            }
            return
        args = self._values(env, views, scalars)
        launched = LAUNCHES.get()
        with self._lock:
            program = self._program
            program.diags_clear()
            began = time.perf_counter()
            ok, result = program.sim(args, checks=bool(self.checks), threads=self.threads, record=launched is not None)
            self.times["run"] = time.perf_counter() - began
            self.last_run = result
            found = [d for d in self.findings(program) if d.code not in views.left_out]
            printed = result["printed"] = program.printed()
            if ok and launched is not None:
                launched(self, args, views, result["recorded"] > 0)
        for p in printed:
            p["file"] = self.traced.builder.paths.get(p["file"], p["file"])
            show_print(p["file"], p["line"], p["where"], p["text"])
        if not ok:
            raise KernelFault(found)
        warn_of(found)

    def __repr__(self):
        return f"<kernel {self.name}({', '.join(repr(p) for p in self.params)}) for {self.device}>"


rightly_all(
    Kernel,
    "kernel",
    ArgumentError,
    "ir explain explain_json get_kernel_source profile cost export build twin " + " ".join(NAMES),
)


def chip_named(name=None, asked="chip"):
    """(name, family, cube cores, vector cores, MHz) of a chip; None is the default one. `asked`: what names it."""
    from . import _core

    chips = _core.chips()
    name = name or "910B2"
    for chip in chips:
        if chip[0] == name:
            return chip
    names = [c[0] for c in chips]
    near = nearest(name, names)
    raise ArgumentError(
        f"{asked}={name!r}: there is no such chip; one of {', '.join(names)}", f"did you mean '{near or names[1]}'?"
    )


def chip_of_platform(platform):
    """The first chip of a family: "A2", "A3", "A5"."""
    from . import _core

    for name, family, *_ in _core.chips():
        if family.lower() == str(platform).lower():
            return name
    families = sorted({c[1].upper() for c in _core.chips()})
    raise ArgumentError(f"platform={platform!r}: there is no such family of chips", f"one of {', '.join(families)}")


def lowered(name, text, chip=None):
    """The core's program for IR text, or None if it does not compile."""
    from . import _core

    program = _core.Program()
    return program if program.load(name + ".tl", text) and program.lower(chip=chip) else None
