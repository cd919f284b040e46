"""@tilelang.jit and tilelang.compile.

A decorated function is *lazy* (it builds and returns a prim_func; calling it gives a Kernel) or *eager* (it is the
kernel; calling it with tensors runs it). Which one is read off its source: a nested prim_func means lazy, a T.Kernel of
its own means eager.

An eager function is traced twice: first up to its last tensor annotation, to learn which T.const is which dimension of
which tensor; then with the values. Kernels are kept by the compile-time arguments and those values.
"""

import ast
import dataclasses
import functools
import time

import numpy as np

from . import cache
from .debug.methods import NAMES, Debugging
from .errors import ArgumentError, counted, explained, fail, here, nearest, rightly, rightly_all, warn, wrong_call
from .frontend.builder import Builder
from .frontend.expr import Buffer, Var
from .frontend.hooks import Frame
from .frontend.rewrite import parse, rewrite
from .frontend.trace import Named, PrimFunc, TensorType, Traced, annotations, other_way, parameter_names
from .kernel import Kernel, chip_of_platform
from .language.dtypes import IR_NAME, DType
from .tensors import is_tensor, view, what


# options of other compilers that say nothing to this one, with the value that means "not set"
_IGNORED = {"target_host": None, "debug_root_path": None, "compile_flags": None, "verbose": False}
_BACKENDS = (None, "auto", "cython")
_OPTIONS = ("out_idx", "workspace_idx", "target", "device", "chip", "pass_configs", "checks", "threads")


def _options(what, given):
    """Options of jit and compile as those of Kernel: target, device, chip, pass_configs, checks (the simulator's),
    threads (of the host), out_idx, workspace_idx; `platform` names a family of chips."""
    given = dict(given)
    platform = given.pop("platform", "auto")
    if given.pop("execution_backend", None) not in _BACKENDS:
        warn(f"{what}(execution_backend=...) has no effect: device= says where a kernel runs")
    for name, unset in _IGNORED.items():
        if given.pop(name, unset) not in (unset, None):
            warn(f"{what}({name}=...) has no effect")
    for name in given:
        if name not in _OPTIONS:
            near = nearest(name, [*_OPTIONS, *_IGNORED, "platform"])
            fix = f"did you mean '{near}'?" if near else f"the options are {', '.join(_OPTIONS)}"
            raise ArgumentError(f"{what} has no option '{name}'", fix)
    if given.get("chip") is None and platform not in (None, "auto"):
        given["chip"] = chip_of_platform(platform)
    return given


@rightly("tilelang.compile", ArgumentError)
def compile(func, out_idx=None, **options):
    """Compiles a prim_func into a Kernel."""
    if isinstance(func, Kernel):
        return func
    if isinstance(func, JITFunction):
        name = func.__name__
        raise ArgumentError(
            f"tilelang.compile takes a prim_func, and '{name}' is under @tilelang.jit",
            f"call it, or {name}.compile(...)",
        )
    if not isinstance(func, PrimFunc):
        raise ArgumentError(
            f"tilelang.compile takes a prim_func, not {what(func)}", "mark the kernel with @T.prim_func"
        )
    return Kernel(func, **_options("tilelang.compile", {"out_idx": out_idx, **options}))


@rightly("tilelang.jit", ArgumentError)
def jit(func=None, **options):
    """Decorator for kernels and for functions that build kernels; the options are those of tilelang.compile."""
    options = _options("tilelang.jit", options)

    def wrap(f):
        if isinstance(f, PrimFunc):
            return Kernel(f, **options)
        return JITFunction(f, options)

    return wrap if func is None else wrap(func)


def _freeze(v):
    """A hashable that stands for a compile-time argument: what it holds now. One that nobody can look into stands for
    nothing but this call."""
    if isinstance(v, (list, tuple)):
        return (type(v).__name__, *(_freeze(x) for x in v))
    if isinstance(v, dict):
        return ("dict", *((k, _freeze(x)) for k, x in v.items()))
    if isinstance(v, set):
        return ("set", frozenset(map(_freeze, v)))
    if isinstance(v, float):
        return ("float", repr(v))  # 0.0 is not -0.0
    if dataclasses.is_dataclass(v) and not isinstance(v, type):
        return (type(v), *(_freeze(getattr(v, f.name)) for f in dataclasses.fields(v)))
    if isinstance(v, np.ndarray):
        return ("array", v.dtype, v.shape, v.tobytes())
    try:
        hash(v)
    except TypeError:
        return object()
    return (type(v).__name__, v, getattr(v, "_version", 0))  # torch counts how often a tensor was written to


def _made_again(function, args, kwargs):
    return function.compile(*args, **kwargs)


class JITFunction(Named, Debugging):
    """What @tilelang.jit gives: call it."""

    def __init__(self, fn, options):
        if not callable(fn) or not hasattr(fn, "__code__"):
            twice = isinstance(fn, JITFunction)
            fix = "one @tilelang.jit is enough" if twice else "@tilelang.jit(out_idx=[-1]): options are given by name"
            fix = other_way("tilelang.jit", fn) or fix
            raise ArgumentError(f"@tilelang.jit takes a function, not {what(fn)}", fix)
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.options = options
        self._eager = self.last = None

    @property
    def __jit_impl__(self):
        return self

    @property
    def target(self):
        return self.options.get("target") or "auto"

    @property
    def style(self):
        """ "lazy" or "eager"."""
        if self._eager is None:
            self._eager = Eager(self) if _is_kernel(self.fn) else False
        return "eager" if self._eager else "lazy"

    def __call__(self, *args, **kwargs):
        if self.style == "eager":
            return self._eager.call(args, kwargs)
        return self._build(args, kwargs)

    def compile(self, *args, **kwargs):
        """The Kernel, without running it."""
        if self.style == "eager":
            return self._eager.kernel(args, kwargs)[0]
        return self._build(args, kwargs)

    def _called(self, args, kwargs):
        if self.style == "eager":
            return (*self._eager.kernel(args, kwargs, partly=False), {})
        raise ArgumentError(
            f"'{self.__name__}' builds kernels; the tools look at a kernel",
            f"kernel = {self.__name__}(...), then the same of `kernel`, with its tensors",
        )

    def interpret(self, *args, **kwargs):
        kernel, given, _ = self._called(args, kwargs)
        return kernel.returned(kernel.interpret(*given), given)

    def get_kernel_source(self, *args, target=None, **kwargs):
        """The source of the kernel that these arguments give; without any, of the one used last."""
        kernel = self.compile(*args, **kwargs) if args or kwargs or self.last is None else self.last
        return kernel.get_kernel_source(target)

    def _build(self, args, kwargs):
        self.last = self._kept(args, kwargs)
        self.last.origin = _made_again, (self, args, kwargs)
        return self.last

    def _kept(self, args, kwargs):
        key = (self, _freeze(args), _freeze(dict(sorted(kwargs.items()))))
        return cache.lookup(key, lambda: self._make(args, kwargs))

    def _make(self, args, kwargs):
        func = rightly(self.__name__, ArgumentError)(self.fn)(*args, **kwargs)
        if isinstance(func, Kernel):
            return func
        if not isinstance(func, PrimFunc):
            raise ArgumentError(
                f"'{self.__name__}' is under @tilelang.jit but returns {what(func)}, not a prim_func",
                "call what it returns: it is under @tilelang.jit too"
                if isinstance(func, JITFunction)
                else "mark the inner function with @T.prim_func, and `return` it",
            )
        return Kernel(func, **self.options)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)

    def __repr__(self):
        return f"<jit {self.__name__}>"


rightly_all(JITFunction, "jit", ArgumentError, " ".join(NAMES))


def _is_kernel(fn):
    """Does the function itself open a T.Kernel, without a prim_func inside?"""
    tree = parse(fn)
    inner, own = False, False
    stack = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [ast.unparse(d) for d in node.decorator_list]
            inner |= any("prim_func" in n for n in names)
            continue
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if (
                    isinstance(call, ast.Call)
                    and getattr(call.func, "attr", getattr(call.func, "id", None)) == "Kernel"
                ):
                    own = True
        stack += [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.stmt)]
    return own and not inner


class _Enough(Exception):
    """The first tracing has seen every annotation."""


class Context:
    """What T.const, T.empty and annotations of an eager kernel talk to."""

    def __init__(self, tensors, consts, collecting, fixed):
        self.tensors, self.consts, self.collecting, self.fixed = tensors, consts, collecting, fixed
        self.called = here()
        self.found = {}  # tensor -> TensorType
        self.asked = {}  # T.const names

    def const(self, name, dtype):
        self.asked.setdefault(name)
        if self.collecting:
            return Var(name, dtype, "const")
        if name not in self.consts:
            fail(
                1013,
                f"T.const '{name}' is not a dimension of any tensor by itself",
                fix=f"use '{name}' alone as a dimension in an annotation, or pass {name}=... in the call",
            )
        return self.consts[name]

    def annotate(self, name, annotation, value):
        if name not in self.tensors and name not in self.fixed:
            return value()
        kind = annotation()
        if name in self.fixed and isinstance(kind, TensorType):
            raise ArgumentError(
                f"argument '{name}' is {what(self.fixed[name])}, wanted a tensor {kind!r}",
                "a numpy array or a torch tensor",
                self.called,
            )
        if not isinstance(kind, TensorType):
            return value()
        self.found[name] = kind
        if self.collecting:
            if len(self.found) == len(self.tensors):
                raise _Enough
            return value()
        buf = value()
        buf.shape, buf.dtype = kind.shape, kind.dtype
        return buf

    def kernel_begins(self):
        if self.collecting:
            raise _Enough


class Plan:
    """Where the compile-time sizes of an eager kernel come from."""

    def __init__(self, sources, untyped, tensors, ranks):
        self.sources, self.untyped, self.tensors, self.ranks = sources, untyped, tensors, ranks


class Eager:
    def __init__(self, owner):
        import inspect

        self.owner, self.fn = owner, owner.fn
        self.signature = inspect.signature(self.fn)
        self.names = parameter_names(self.fn)
        self.notes = annotations(self.fn)
        self.scalars = {n for n, a in self.notes.items() if isinstance(a, DType)}
        self.plans = {}
        if owner.options.get("out_idx") is not None:
            raise ArgumentError(
                f"out_idx of '{self.fn.__name__}', which opens T.Kernel itself",
                "make the output with T.empty and `return` it; out_idx belongs to functions that return a prim_func",
            )

    def bind(self, args, kwargs, partly):
        """(bound arguments, sizes given by name)."""
        own = {k: v for k, v in kwargs.items() if k in self.names}
        sizes = {k: v for k, v in kwargs.items() if k not in self.names}
        try:
            bound = (self.signature.bind_partial if partly else self.signature.bind)(*args, **own)
        except TypeError as e:
            wrong_call(self.fn.__name__, self.fn, args, own, e, ArgumentError)
        bound.apply_defaults()
        return bound.arguments, sizes

    def is_tensor(self, name, arguments):
        note = self.notes.get(name)
        if isinstance(note, TensorType):
            return True
        if name in self.scalars or note in (int, float, str, bool):
            return False
        return name not in arguments or is_tensor(arguments[name])

    def kernel(self, args, kwargs, partly=True):
        """(Kernel, its runtime arguments)."""
        arguments, sizes = self.bind(args, kwargs, partly)
        tensors = [n for n in self.names if self.is_tensor(n, arguments)]
        views = {n: view(arguments[n], f"{self.fn.__name__}: argument '{n}'") for n in tensors if n in arguments}
        fixed = {n: v for n, v in arguments.items() if n not in tensors and n not in self.scalars}
        base = (_freeze(fixed), tuple((n, v.dtype, len(v.shape)) for n, v in views.items()), tuple(sizes))
        plan = self.plans.get(base)
        if plan is None:
            plan = self.plans[base] = self.collect(tensors, views, fixed)
        for n, rank in plan.ranks.items():
            if n in views and len(views[n].shape) != rank:
                shape = views[n].shape
                raise ArgumentError(
                    f"{self.fn.__name__}: argument '{n}' has {counted(len(shape), 'dimension')}, shape {shape}, "
                    f"wanted {rank}",
                    f"give it {counted(rank, 'dimension')}: x.reshape(...)",
                )
        consts = dict(sizes)
        for name, (tensor, dim) in plan.sources.items():
            if name not in consts and tensor in views and dim < len(views[tensor].shape):
                consts[name] = int(views[tensor].shape[dim])
        untyped = tuple((n, views[n].shape, views[n].dtype) if n in views else n for n in plan.untyped)
        key = (self.owner, base, tuple(sorted(consts.items())), untyped)
        made = self.owner.last = cache.lookup(key, lambda: self.trace(tensors, views, fixed, consts))
        order = [n for n in self.names if n in tensors or n in self.scalars]
        return made, [arguments[n] for n in order if n in arguments]

    def call(self, args, kwargs):
        kernel, runtime = self.kernel(args, kwargs, partly=False)
        return kernel.returned(kernel(*runtime), runtime)

    def start(self, tensors, views, context, fixed):
        """A builder with the parameters in call order, and the values of the function's arguments."""
        run, where = rewrite(self.fn, Frame)
        builder = Builder(self.fn.__name__, where, context)
        return run, builder, self.arguments(builder, tensors, views, fixed)

    def arguments(self, builder, tensors, views, fixed):
        """The values of the function's arguments; registers the parameters in call order."""
        where, values = builder.where, {}
        for n in self.names:
            note = self.notes.get(n)
            if n in tensors:
                shape = views[n].shape if n in views else (1,)
                dtype = views[n].dtype if n in views else "float32"
                if isinstance(note, TensorType):
                    shape, dtype = note.shape, note.dtype
                elif n in views and not isinstance(dtype, DType):
                    raise ArgumentError(
                        f"{self.fn.__name__}: argument '{n}' has dtype {dtype}, which kernels do not have",
                        f"convert it to one of {', '.join(IR_NAME)}",
                    )
                values[n] = Buffer(n, tuple(shape), dtype, "gm", where)
                builder.params.append(values[n])
            elif n in self.scalars:
                values[n] = Var(n, note, "param")
                builder.params.append(values[n])
            elif n in fixed:
                values[n] = fixed[n]
        return values

    def collect(self, tensors, views, fixed):
        loose = [n for n in tensors if not isinstance(self.notes.get(n), TensorType)]
        context = Context(loose, {}, True, fixed)
        run, builder, values = self.start(tensors, views, context, fixed)
        with explained(f"the kernel '{self.fn.__name__}'"), builder:
            try:
                run(**values)
            except _Enough:
                pass
        sources = {}
        for n in tensors:
            kind = context.found.get(n)
            for d, s in enumerate(kind.shape if kind else ()):
                if isinstance(s, Var) and s.kind == "const":
                    sources.setdefault(s.name, (n, d))
        ranks = {n: len(kind.shape) for n, kind in context.found.items()}
        return Plan(sources, [n for n in loose if n not in context.found], tensors, ranks)

    def trace(self, tensors, views, fixed, consts):
        loose = [n for n in tensors if not isinstance(self.notes.get(n), TensorType)]
        context = Context(loose, consts, False, fixed)
        began = time.perf_counter()
        run, builder, values = self.start(tensors, views, context, fixed)
        with explained(f"the kernel '{self.fn.__name__}'"), builder:
            result = run(**values)
            builder.finish()
        unused = [n for n in consts if n not in context.asked]
        if unused:
            near = nearest(unused[0], [*self.names, *context.asked])
            raise ArgumentError(
                f"{self.fn.__name__} has no argument and no T.const '{unused[0]}'",
                f"did you mean '{near}'?"
                if near
                else f"{self.fn.__name__}({', '.join([*self.names, *context.asked])})",
            )

        def execute(b):
            run(**self.arguments(b, tensors, views, fixed))

        kernel = Kernel(Traced(builder, time.perf_counter() - began, execute), **self.owner.options)
        kernel.returns = self.results(result, builder)
        return kernel

    def results(self, result, builder):
        """What `return` gives back: ("out", position among the outputs) or ("in", position among the arguments)."""
        result = result if isinstance(result, (tuple, list)) else [result] * (result is not None)
        for b in builder.outs:
            if not any(b is r for r in result):
                warn(f"'{b.called}' is made with T.empty and not returned: nothing of it is left", at=b.at,
                     fix=f"return {b.called}")  # fmt: skip
        out = []
        for r in result:
            outs = [i for i, b in enumerate(builder.outs) if b is r]
            ins = [i for i, p in enumerate(builder.params) if p is r]
            if not outs and not ins:
                fail(
                    1010,
                    f"'{self.fn.__name__}' returns {r!r}",
                    fix="return tensors made with T.empty",
                    at=builder.where,
                )
            out.append(("out", outs[0]) if outs else ("in", ins[0]))
        return out
