"""Prim funcs: a Python function traced into a kernel, and macros, which are inlined where they are called."""

import ast
import functools
import importlib
import linecache
import time
import types

from ..debug.methods import NAMES
from ..errors import ArgumentError, CompileError, Rightly, explained, fail, rightly, user_frame, warn
from ..language.dtypes import IR_NAME, DType
from .builder import Builder, active
from .expr import Buffer, Var, describe, dims
from .hooks import Frame
from .rewrite import parse, rewrite

_EMPTY = types.CellType()  # of a name that is bound later, or only in another branch


class TensorType(metaclass=Rightly):
    """`T.Tensor(shape, dtype)` as an annotation."""

    __slots__ = ("shape", "dtype")
    spoken, strides = "T.Tensor", None

    def __new__(cls, shape, dtype="float32", data=None, *rest, **kwargs):
        """T.Tensor(shape, dtype, tensor) inside a kernel is that tensor in another shape."""
        if isinstance(data, Buffer):
            from ..language.views import view

            return view(data, shape, dtype)
        return object.__new__(cls)

    def __init__(self, shape, dtype="float32", data=None):
        self.shape = dims(shape, "a tensor")
        self.dtype = DType(dtype)
        for n in self.shape:
            if isinstance(n, int) and n < 0:
                fail(1010, f"a tensor with {n} elements in a dimension", fix="sizes are at least 0")
        if not self.shape:
            fail(1010, "a tensor without dimensions", fix="T.Tensor((1,), dtype)")
        if len(self.shape) > 6:
            fail(
                1010,
                f"a tensor of {len(self.shape)} dimensions; 6 are supported",
                fix="join dimensions: a tensor is contiguous",
            )

    def __class_getitem__(cls, item):
        return cls(*item) if isinstance(item, tuple) and len(item) == 2 else cls(item)

    def __repr__(self):
        return f"T.Tensor({self.shape}, '{self.dtype}')"


class StridedTensorType(TensorType):
    """`T.StridedTensor(shape, strides, dtype)`: a tensor that need not be contiguous. The caller's is copied to one
    that is, and back where the kernel writes it; the strides are those that the tensor has."""

    __slots__ = ("strides",)
    spoken = "T.StridedTensor"

    def __new__(cls, shape, strides=None, dtype="float32"):
        return object.__new__(cls)

    def __init__(self, shape, strides=None, dtype="float32"):
        super().__init__(shape, dtype)
        self.strides = strides

    def __class_getitem__(cls, item):
        return cls(*item)


class Launches:
    """The builders of a function's launches, in order."""

    def __init__(self, builders):
        self.builders = builders
        self.first = {}

    def first_use(self, param):
        """Number of the first launch that speaks of a parameter."""
        if id(param) not in self.first:
            uses = (n for n, b in enumerate(self.builders) if b.mentions(param))
            self.first[id(param)] = next(uses, len(self.builders))
        return self.first[id(param)]


class Traced:
    """A finished kernel: parameters and IR text. With several T.Kernel it is the first launch and `rest` the others."""

    def __init__(self, builder, seconds, execute, launches=None, number=0):
        self.launches = launches or Launches([*builder.earlier, builder])
        builders = self.launches.builders
        self.builder, self.seconds, self.number = builders[number], seconds, number
        self.execute = execute  # execute(builder) runs the kernel's function under another builder
        later = range(1, 0 if launches else len(builders))
        self.rest = [Traced(builders[n], 0.0, execute, self.launches, n) for n in later]
        self.name = builder.name
        self.params = list(builder.params)

    def text(self, out_idx=(), workspace_idx=()):
        marks = {id(b): "out" for b in self.builder.outs}
        marks.update({id(self.params[i]): "out" for i in out_idx})
        marks.update({id(self.params[i]): "workspace" for i in workspace_idx})
        for p in self.params:
            first = self.launches.first_use(p)
            if self.number != first % len(self.launches.builders):
                marks.pop(id(p), None)  # an earlier launch has put something there, or this one does not speak of it
        text, self.size_names = self.builder.text(marks)
        return text


def annotations(fn):
    """Annotations as objects; strings (`from __future__ import annotations`) are evaluated where the `def` stands."""
    try:
        found = dict(getattr(fn, "__annotations__", {}))
    except NameError:
        found = {}
    texts = {name for name, value in found.items() if type(value) is str and value not in IR_NAME}
    if not texts:
        return found
    maker = user_frame()  # or further out: runs the `def`. Names that only annotations use are in no closure
    while maker is not None and fn.__code__ not in maker.f_code.co_consts:
        maker = maker.f_back
    made_in = maker.f_locals if maker is not None else {}
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or ())
    scope = {**fn.__globals__, **made_in, **{n: c.cell_contents for n, c in cells if c != _EMPTY}}
    args = parse(fn).args
    for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
        if arg.arg in texts:
            found[arg.arg] = _evaluated(fn, arg, scope)
    return found


def _evaluated(fn, arg, scope):
    """An annotation by its source, so that what goes wrong stands there; a text in a text too."""
    node = arg.annotation
    while isinstance(node, ast.Constant) and type(node.value) is str and node.value not in IR_NAME:
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except SyntaxError as e:
            fail(
                1010,
                f"the annotation of '{arg.arg}' is no Python: {e.msg}",
                fix=f"{arg.arg}: T.Tensor((M, N), 'float16') for a tensor, {arg.arg}: T.int32 for a scalar",
                at=(fn.__code__.co_filename, node.lineno, node.col_offset + 1),
            )
        for n in ast.walk(inner):
            ast.copy_location(n, node)
        node = inner
    try:
        return eval(compile(ast.Expression(node), fn.__code__.co_filename, "eval"), scope)
    except CompileError:
        raise
    except Exception as e:
        fail(
            1010,
            f"the annotation of '{arg.arg}' cannot be evaluated: {e}",
            fix="names in it must be known where the function stands",
            at=(fn.__code__.co_filename, node.lineno, node.col_offset + 1),
        )


def _place(fn):
    """The line of its `def`, below its decorators."""
    file, line = fn.__code__.co_filename, fn.__code__.co_firstlineno
    lines = linecache.getlines(file)[line - 1 :]
    skip = next((n for n, text in enumerate(lines) if text.lstrip().startswith(("def ", "async "))), 0)
    text = lines[skip] if lines else ""
    return (file, line + skip, len(text) - len(text.lstrip()) + 1)


def make_param(builder, name, annotation, where):
    """The value a parameter has in the body; registers it."""
    if isinstance(annotation, TensorType) or annotation is TensorType:
        if annotation is TensorType:
            fail(
                1010,
                f"parameter '{name}' of '{builder.name}' is T.Tensor without a shape",
                fix=f"{name}: T.Tensor((M, N), 'float16')",
                at=where,
            )
        p = Buffer(name, annotation.shape, annotation.dtype, "gm", where)
        p.strided = annotation.strides is not None
    elif isinstance(annotation, str) or annotation in (int, float, bool):
        p = Var(name, DType(annotation), "param")
    else:
        fail(
            1010,
            f"parameter '{name}' of '{builder.name}' has the annotation {annotation!r}"
            if annotation is not None
            else f"parameter '{name}' of '{builder.name}' has no annotation",
            fix=f"{name}: T.Tensor((M, N), 'float16') for a tensor, {name}: T.int32 for a scalar"
            if name not in ("self", "cls")
            else "a kernel is no method: make it in one, def build(self): @T.prim_func def f(...): ...; return f",
            at=where,
        )
    builder.params.append(p)
    return p


def parameter_names(fn):
    code = fn.__code__
    if code.co_flags & 0x0C:
        fail(
            1010,
            f"'{fn.__name__}' takes *args or **kwargs",
            fix=f"a kernel has a parameter for each tensor: def {fn.__name__}(A: T.Tensor((M, N), 'float16'), ...)",
            at=_place(fn),
        )
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def called_inside(name):
    fail(
        1006,
        f"the kernel '{name}' is called from inside another kernel",
        fix="mark a function to be inlined with @T.macro",
    )


def by_name(module, name):
    """What stands under a name of a module."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def meaning(thing):
    """What the name of a decorated function means where it was defined; None: nothing."""
    try:
        return by_name(thing.__module__, thing.__qualname__)
    except (AttributeError, ImportError, ValueError):
        return None


class Itself:
    """Every copy of it is itself."""

    def __copy__(self, memo=None):
        return self

    __deepcopy__ = __copy__


class Named(Itself):
    """What a decorator puts in a function's place; pickle keeps its name."""

    def __reduce__(self):
        module, name = self.__module__, self.__qualname__
        if meaning(self) is not self:
            raise ArgumentError(
                f"'{self.__name__}' cannot be pickled: it is not what '{name}' means in the module {module}",
                "define it at the top of a module, or pass what it is made from and make it in the other process",
            )
        return by_name, (module, name)


class PrimFunc(Named):
    """A traced kernel. Calling it compiles it for the default device at the first call."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn
        began = time.perf_counter()
        run, where = rewrite(fn, Frame)
        notes = annotations(fn)
        names = parameter_names(fn)

        places = fn.__code__.co_argcount

        def execute(b):
            args = [make_param(b, n, notes.get(n), where) for n in names]
            return run(*args[:places], **dict(zip(names[places:], args[places:])))

        with explained(f"the kernel '{fn.__name__}'"), Builder(fn.__name__, where) as b:
            result = execute(b)
            returned = result if isinstance(result, (tuple, list)) else [result] * (result is not None)
            if not all(isinstance(r, Buffer) and r.space == "gm" for r in returned):
                fail(
                    1010,
                    f"'{fn.__name__}' returns {result!r}",
                    fix="a prim_func writes its results to its tensor parameters",
                    at=where,
                )
            b.finish()
        self.traced = Traced(b, time.perf_counter() - began, execute)
        self.where = where
        self.defaults = dict(zip(names[:places][::-1], (fn.__defaults__ or ())[::-1])) | (fn.__kwdefaults__ or {})
        self.params = self.traced.params
        self.attrs = {"global_symbol": fn.__name__}
        self._kernel = None

    def script(self):
        """The IR text of the front end."""
        return self.traced.text()

    def compiled(self):
        if self._kernel is None:
            from ..kernel import Kernel

            self._kernel = Kernel(self)
        return self._kernel

    def __call__(self, *args, **kwargs):
        if active() is not None:
            called_inside(self.__name__)
        return self.compiled()(*args, **kwargs)

    def __getattr__(self, name):
        kernel_names = ("ir", "explain", "get_kernel_source", "kernel_source", "last_run", "times")
        if name in kernel_names or name in NAMES:
            return getattr(self.compiled(), name)
        raise AttributeError(f"a prim_func has no attribute '{name}'")

    def __repr__(self):
        return f"<prim_func {self.__name__}>"


class Macro(Named):
    """A function inlined into the kernel that calls it."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.run = None

    def __call__(self, *args, **kwargs):
        if self.run is None:
            self.run = rightly(self.__name__)(rewrite(self.fn, Frame)[0])
        return self.run(*args, **kwargs)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)

    def __repr__(self):
        return f"<macro {self.__name__}>"


def _no_effect(what, options):
    for name in options:
        warn(f"{what}({name}=...) has no effect")


def other_way(what, fn):
    """The cure where a decorator is given what another decorator made; None."""
    kind = type(fn).__name__
    return f"@{kind} stands above @{what}" if isinstance(fn, (staticmethod, classmethod, property)) else None


def _function(what, fn):
    if not isinstance(fn, types.FunctionType):
        fail(1009, f"{what} of {describe(fn)}", fix=other_way(what, fn) or f"@{what} stands above a `def`")
    return fn


def prim_func(fn=None, **options):
    """Traces a function into a kernel. Parameters: `name: T.Tensor(shape, dtype)` or a scalar dtype."""
    _no_effect("T.prim_func", options)
    return prim_func if fn is None else PrimFunc(_function("T.prim_func", fn))


def macro(fn=None, **options):
    """Marks a function whose calls are inlined, with its own `if`, `for` and assignments traced."""
    _no_effect("T.macro", options)
    return macro if fn is None else Macro(_function("T.macro", fn))
