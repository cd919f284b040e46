"""Values of a kernel while it is traced: scalars (`Expr`), buffers, regions.

A Python number stays a Python number; whatever depends on the chip is an `Expr` tree. Trees are immutable, typed, and
print as docs/ir.md says. Integers fold and collect their constants on the right as the C core does, so that slices
such as `x * 64 : x * 64 + 64` have a known extent. `Element` is the load of one element, `Region` a box of a buffer.
"""

import decimal
import math
import numbers
import operator

import numpy as np

from ..errors import ArgumentError, counted, fail, passed_as, place, warn
from ..language.dtypes import IR_NAME, DType, bool_, float32, int32, int64, numpy_dtype

# operator -> precedence (src/ir/exprs.def)
PREC = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip
COMPARE = {"==", "!=", "<", "<=", ">", ">="}
CALLS2 = {"min", "max", "pow"}
FLOAT_CALLS = {"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"}
_FOLD = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "/": operator.truediv, "min": min, "max": max, "pow": operator.pow,
}  # fmt: skip
_PYTHON_WORD = {"&&": "and", "||": "or"}


class Expr:
    """A scalar of the chip. `op`: "const", "var", "load", "cast", "bits", "select" or an operator of exprs.def."""

    __slots__ = ("op", "args", "dtype", "pure")

    def __init__(self, op, args, dtype, pure=None):
        self.op, self.args, self.dtype = op, args, dtype
        self.pure = all(a.pure for a in args if isinstance(a, Expr)) if pure is None else pure

    def __add__(self, o):
        return binary("+", self, o)

    def __radd__(self, o):
        return binary("+", o, self)

    def __sub__(self, o):
        return binary("-", self, o)

    def __rsub__(self, o):
        return binary("-", o, self)

    def __mul__(self, o):
        return binary("*", self, o)

    def __rmul__(self, o):
        return binary("*", o, self)

    def __truediv__(self, o):
        return binary("/", self, o)

    def __rtruediv__(self, o):
        return binary("/", o, self)

    def __floordiv__(self, o):
        return binary("//", self, o)

    def __rfloordiv__(self, o):
        return binary("//", o, self)

    def __mod__(self, o):
        return binary("%", self, o)

    def __rmod__(self, o):
        return binary("%", o, self)

    def __pow__(self, o):
        return binary("pow", self, o)

    def __rpow__(self, o):
        return binary("pow", o, self)

    def __lshift__(self, o):
        return binary("<<", self, o)

    def __rlshift__(self, o):
        return binary("<<", o, self)

    def __rshift__(self, o):
        return binary(">>", self, o)

    def __rrshift__(self, o):
        return binary(">>", o, self)

    def __and__(self, o):
        return binary("&", self, o)

    def __rand__(self, o):
        return binary("&", o, self)

    def __or__(self, o):
        return binary("|", self, o)

    def __ror__(self, o):
        return binary("|", o, self)

    def __xor__(self, o):
        return binary("^", self, o)

    def __rxor__(self, o):
        return binary("^", o, self)

    def __lt__(self, o):
        return binary("<", self, o)

    def __le__(self, o):
        return binary("<=", self, o)

    def __gt__(self, o):
        return binary(">", self, o)

    def __ge__(self, o):
        return binary(">=", self, o)

    def __neg__(self):
        return unary("neg", self)

    def __pos__(self):
        return self

    def __invert__(self):
        return unary("~" if self.dtype != "bool" else "!", self)

    def __abs__(self):
        return unary("abs", self)

    def __eq__(self, o):
        return binary("==", self, o) if _is_scalar(o) else NotImplemented

    def __ne__(self, o):
        return binary("!=", self, o) if _is_scalar(o) else NotImplemented

    def __hash__(self):
        return id(self)

    def __format__(self, spec):
        return format(
            self._python_value("a number", 'T.printf("%d", x) prints it on the chip') if spec else str(self), spec
        )

    def _python_value(self, want, hint):
        from .builder import active

        b = active()
        if b is not None and b.running:  # interpreted: it has one
            return b.value(self)
        given = passed_as(self)
        if given:
            text = f"T.{given[0]} needs its argument '{given[1]}' while the kernel is traced; {show(self)} is known "
            fail(1005, text + "only when it runs", fix="a Python value, or an `if` around two calls")
        fail(1005, f"{show(self)} is known only when the kernel runs; Python needs {want} of it here", fix=hint)

    def __getattr__(self, name):
        no_attribute(self, name)

    __array_priority__ = 1000.0  # numpy leaves `number * self` to this class

    def __array__(self, dtype=None, copy=None):
        import numpy

        hint = "functions and arrays of numpy are not on the chip: T.exp …; an array becomes a tensor parameter"
        return numpy.asarray(self._python_value("a number", hint), dtype)

    def __bool__(self):
        return bool(
            self._python_value(
                "the truth",
                "inside a kernel or a @T.macro write the `if` as it is (it is turned into one of the chip); in a plain "
                "Python function mark the function @T.macro, or use T.if_then_else(c, a, b); T.max and T.min stand for "
                "those of Python, x == a or x == b for `x in (a, b)`",
            )
        )

    def __index__(self):
        return int(
            self._python_value(
                "an integer",
                "index Python lists with numbers of T.unroll(n) only (T.serial and range give run-time ones inside a "
                "kernel); a plain Python function with such a `range` wants @T.macro",
            )
        )

    __int__ = __index__

    def __float__(self):
        return float(
            self._python_value(
                "a number",
                "inside the kernel T.cast(x, dtype) converts, and T.exp, T.sqrt … stand for those of math and numpy",
            )
        )

    def __iter__(self):
        self._python_value("the items", "a scalar has none")

    def __repr__(self):
        return _value_text(self) or show(self)

    def astype(self, dtype):
        return cast(self, dtype)


class Var(Expr):
    """A named scalar: parameter, symbolic size, block index, loop index or snapshot. The name may come late.
    `range`: (least, greatest) value of an index, where both are known."""

    __slots__ = ("name", "kind", "range")

    def __init__(self, name, dtype, kind):
        self.op, self.args, self.dtype = "var", (), DType(dtype)
        self.name, self.kind, self.range = name, kind, None
        self.pure = kind != "mut"


class MutVar(Var):
    """T.alloc_var: assigning to the Python name assigns to it."""

    __slots__ = ("where",)

    def __setitem__(self, idx, value):
        name = self.name or "v"
        fail(1005, f"'{name}' is a variable and has no elements", fix=f"{name} = value gives it one")

    def __init__(self, dtype, where):
        super().__init__(None, dtype, "mut")
        self.where = where


class Element(Expr):
    """One element of a buffer. As an operand of T.copy it is the origin of a tile. `writes`: Buffer.writes of then."""

    __slots__ = ("buf", "idx", "writes")

    def __init__(self, buf, idx):
        self.op, self.args, self.dtype, self.pure = "load", idx, buf.dtype, False
        self.buf, self.idx, self.writes = buf, idx, buf.base.writes

    @property
    def buffer(self):
        return self.buf


class Poison:
    """Stands for a name whose value is not known here; every use is an error that says why."""

    __slots__ = ("_name", "_why", "_fix", "_at", "_error")

    def __init__(self, name, why, fix, at, error=None):
        object.__setattr__(self, "_error", error)  # told before: it is what every use says
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_why", why)
        object.__setattr__(self, "_fix", fix)
        object.__setattr__(self, "_at", at)

    def _use(self, *args, **kwargs):
        if self._error is not None:
            raise self._error
        fail(
            1008,
            f"'{self._name}' {self._why}",
            fix=self._fix,
            other=place(self._at, f"'{self._name}' gets its value in here"),
        )

    def __getattr__(self, name):
        self._use()

    def __setattr__(self, name, value):
        self._use()

    __call__ = __getitem__ = __setitem__ = __iter__ = __bool__ = __index__ = __int__ = __float__ = __len__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _use
    __and__ = __rand__ = __or__ = __ror__ = __lshift__ = __rshift__ = __pow__ = __eq__ = __ne__ = _use
    __hash__ = object.__hash__


def _is_scalar(v):
    return isinstance(v, (Expr, int, float)) or _number(v) is not None


def _number(v):
    """A Python number out of numpy scalars and other things that are one; else None."""
    if isinstance(v, (int, float)):
        return v
    if isinstance(v, (Expr, str, Buffer, Region)):
        return None
    item = getattr(v, "item", None)
    if item is not None and getattr(v, "shape", None) == ():
        v = item()
        return v if isinstance(v, (int, float)) else None
    return None


def wrap(v, like=None, what="a scalar"):
    """An Expr of a Python number or an Expr; a number takes the dtype `like` when it can."""
    if isinstance(v, Expr):
        return v
    if isinstance(v, Poison):
        v._use()
    n = _number(v)
    if n is None:
        fail(1004, f"{what} was expected, not {describe(v)}", fix=instead_of(v))
    return const(n, _literal_dtype(n, like), what == "a scalar")


def _literal_dtype(n, like):
    if isinstance(n, bool):
        return like if like is not None else bool_
    if isinstance(n, float):
        return like if like is not None and like.is_float else float32
    if like is not None and like != "bool":
        return like
    return int32 if -(2**31) <= n < 2**31 else int64


LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
            "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}  # fmt: skip


def beyond(n, dtype, who):
    """Whether a finite number, rounded, is beyond a float dtype; a warning says so of `who`."""
    most = LARGEST.get(dtype, math.inf)
    if abs(n) <= most or abs(n) == math.inf:
        return False
    with np.errstate(over="ignore"):
        if abs(n) < 2 * most and np.isfinite(numpy_dtype(dtype).type(n)):
            return False
    warn(f"{who} is beyond {dtype}, which ends at {most:.6g}: it becomes infinite", 1026)
    return True


def const(n, dtype, pattern=True):
    """A number of a dtype; `pattern`: one beyond a signed dtype, such as 0xFF of int8, stands for its bits."""
    dtype = DType(dtype)
    if dtype.is_float:
        try:
            n = float(n)
        except OverflowError:
            fail(1004, f"{str(n)[:8]}… is beyond every float dtype", fix="T.infinity(dtype)")
        beyond(n, dtype, repr(n))
    elif dtype == "bool":
        n = bool(n)
    elif isinstance(n, float) and (n != n or n in (math.inf, -math.inf)):
        fail(1004, f"{n} does not exist in {dtype}", fix="a number of that dtype, or a float dtype")
    else:
        n = int(n)  # numbers of an enum too
        low, high = _range(dtype)
        if not -(1 << dtype.bits - 1) <= n < (1 << dtype.bits if pattern else high):
            wide = next((f"int{b}" for b in (16, 32, 64) if b > dtype.bits and -(1 << b - 1) <= n < 1 << b - 1), None)
            fail(
                1004,
                f"{n} does not fit {dtype}, which holds {low} to {high - 1}",
                fix="a number in that range" + (f", or {wide}: T.cast(x, '{wide}') in an expression" if wide else ""),
            )
        elif n >= high:
            warn(f"{n} is beyond {dtype}, which ends at {high - 1}: its bits are those of {n - 2 * high}", 1026)
    return Expr("const", (n,), dtype, True)


def _range(dtype):
    """(least, greatest + 1) of an integer dtype."""
    return (0, 1 << dtype.bits) if dtype[0] == "u" else (-1 << dtype.bits - 1, 1 << dtype.bits - 1)


def whole(n, dtype, what):
    """A value for `what`; a Python number with a fraction is an error where the dtype has none."""
    if isinstance(_number(n), float) and not dtype.is_float and _number(n) % 1:
        fail(
            1004,
            f"{n} is no whole number, and {what} is {dtype}",
            fix=f"T.cast({n}, '{dtype}') cuts it, or a float dtype",
        )
    return n


def is_const(e):
    return isinstance(e, Expr) and e.op == "const"


def value_of(v):
    """The Python number of a constant, else None."""
    if isinstance(v, (int, float)):
        return v
    return v.args[0] if is_const(v) else None


def common_dtype(a, b):
    """The dtype two Exprs meet in: src/ir/build.c ir_common_type."""
    x, y = a.dtype, b.dtype
    if x == y:
        return x
    ca, cb = a.op == "const", b.op == "const"
    if ca and not cb and (y.is_float or not x.is_float):
        return x if y == "bool" else y
    if cb and not ca and (x.is_float or not y.is_float):
        return y if x == "bool" else x
    if x.is_float != y.is_float:
        return x if x.is_float else y
    if x == "bool":
        return y
    if y == "bool":
        return x
    if x.bits != y.bits:
        return x if x.bits > y.bits else y
    if x.is_float:
        return float32
    return x if not x.startswith("u") else y


def cast(v, dtype):
    dtype = DType(dtype)
    if isinstance(v, (Buffer, Region)):
        fail(
            1004,
            f"T.{dtype}(...) converts one value, {describe(v)} is a tile",
            fix="T.tile.cast(dst, src, mode, count) converts a tile; T.copy converts too",
        )
    e = wrap(v, dtype)
    if e.dtype == dtype:
        return e
    if e.op == "const":
        return const(e.args[0], dtype)
    return Expr("cast", (e,), dtype)


def to_bool(v):
    e = wrap(v)
    return e if e.dtype == "bool" else binary("!=", e, 0)


def operands(e):
    """The operands of an expression that are expressions; the indices of an element."""
    return e.idx if isinstance(e, Element) else [a for a in e.args if isinstance(a, Expr)]


def binary(op, a, b):
    for side in (a, b):
        if isinstance(side, (Buffer, Region)):
            word = _PYTHON_WORD.get(op, op)
            fail(
                1004,
                f"'{word}' works on elements, {describe(side)} is a tile",
                fix="index it inside `for i, j in T.Parallel(...)`, or use T.tile.* on whole tiles",
            )
        if not _is_scalar(side):
            if isinstance(side, Poison):
                side._use()
            fail(1004, f"'{_PYTHON_WORD.get(op, op)}' of {describe(a)} and {describe(b)}", fix=instead_of(side))
    if not isinstance(a, Expr):
        a = wrap(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = wrap(b, a.dtype)
    if op in ("&&", "||"):
        a, b = to_bool(a), to_bool(b)
        for known, other in ((a, b), (b, a)):
            if known.op == "const":
                return other if known.args[0] == (op == "&&") else known
        return Expr(op, (a, b), bool_)
    if op in ("//", "%") and b.op == "const" and b.args[0] == 0:
        fail(1004, f"`{show(a)} {op} 0` divides by zero", fix="a divisor of at least 1")
    dtype = common_dtype(a, b)
    if op in ("/",) and not dtype.is_float:
        dtype = float32
    if op in ("<<", ">>") and (b.op == "const" or b.dtype.bits <= a.dtype.bits):
        dtype = a.dtype
    if op in ("<<", ">>", "&", "|", "^") and (a.dtype.is_float or b.dtype.is_float):
        fail(
            1004,
            f"'{op}' takes integers, not {a.dtype} and {b.dtype}",
            fix="T.cast(x, 'int32'), or T.reinterpret(x, 'int32') for its bits",
        )
    if op in ("&", "|") and a.dtype == b.dtype == "bool":
        return binary({"&": "&&", "|": "||"}[op], a, b)
    a, b = cast(a, dtype), cast(b, dtype)
    if a.op == b.op == "const":
        x, y = a.args[0], b.args[0]
        if not (y == 0 and op in ("/", "//", "%")) and not (op == "pow" and not dtype.is_float and y < 0):
            return const(_FOLD[op](x, y), bool_ if op in COMPARE else dtype)
    if not dtype.is_float:
        simple = _simplify(op, a, b)
        if simple is not None:
            return simple
    return Expr(op, (a, b), bool_ if op in COMPARE else dtype)


def _int(e):
    return e.args[0] if e.op == "const" else None


def _simplify(op, a, b):
    """Neutral elements vanish, constants gather on the right; None when there is nothing to do."""
    x, y = _int(a), _int(b)
    if op == "+":
        if x == 0:
            return b
        if y == 0:
            return a
        if x is not None:
            return binary("+", b, a)
        if y is not None and a.op == "+" and _int(a.args[1]) is not None:
            return binary("+", a.args[0], const(_int(a.args[1]) + y, a.dtype))
        if y is not None and a.op == "-" and _int(a.args[1]) is not None:
            return binary("+", a.args[0], const(y - _int(a.args[1]), a.dtype))
    elif op == "-":
        if y == 0:
            return a
        if y is not None and y < 0:
            return binary("+", a, const(-y, a.dtype))
        if y is not None and a.op == "+" and _int(a.args[1]) is not None:
            return binary("+", a.args[0], const(_int(a.args[1]) - y, a.dtype))
        d = difference(a, b)
        if isinstance(d, int):
            return const(d, a.dtype)
    elif op == "*":
        if x == 1:
            return b
        if y == 1:
            return a
        if (x == 0 and b.pure) or (y == 0 and a.pure):
            return const(0, a.dtype)
        if x is not None:
            return binary("*", b, a)
        if y is not None and a.op == "*" and _int(a.args[1]) is not None:
            return binary("*", a.args[0], const(_int(a.args[1]) * y, a.dtype))
    elif op == "//" and y == 1:
        return a
    elif op == "//" and y is not None and y > 1:
        return _divide(a, y)
    elif op == "%" and y == 1 and a.pure:
        return const(0, a.dtype)
    return None


def unary(op, a):
    if isinstance(a, (Buffer, Region)):
        fail(
            1004,
            f"'{op}' works on elements, {describe(a)} is a tile",
            fix=f"index it inside T.Parallel, or use T.tile.{op}",
        )
    a = wrap(a)
    if op == "!":
        a = to_bool(a)
        if a.op == "const":
            return const(not a.args[0], bool_)
        return a.args[0] if a.op == "!" else Expr("!", (a,), bool_)
    if op == "~" and a.dtype.is_float:
        fail(
            1004,
            f"'~' takes integers, not {a.dtype}",
            fix="T.cast(x, 'int32'), or T.reinterpret(x, 'int32') for its bits",
        )
    if a.op == "const" and op in ("neg", "abs", "~"):
        return const({"neg": operator.neg, "abs": abs, "~": operator.invert}[op](a.args[0]), a.dtype)
    if op in FLOAT_CALLS and not a.dtype.is_float:
        a = cast(a, float32)
    return Expr(op, (a,), a.dtype)


def select(c, a, b):
    c = to_bool(c)
    if c.op == "const":
        return a if c.args[0] else b
    a = wrap(a, b.dtype if isinstance(b, Expr) else (float32 if isinstance(b, float) else None))
    b = wrap(b, a.dtype)
    dtype = common_dtype(a, b)
    return Expr("select", (c, cast(a, dtype), cast(b, dtype)), dtype)


# ---- sums of products: when do two index expressions differ by a constant? ------------------------------------------


def key_of(e):
    """A hashable that is equal for structurally equal expressions."""
    if not isinstance(e, Expr):
        return e
    if e.op == "var":
        return ("var", id(e)) if e.kind != "sym" else ("sym", e.name)
    if e.op == "load":
        return ("load", id(e.buf)) + tuple(key_of(i) for i in e.idx)
    return (e.op, str(e.dtype)) + tuple(key_of(a) for a in e.args)


def _linear(e, scale, terms):
    """Adds scale * e to terms (key -> [coefficient, expr]); returns the constant part."""
    if not isinstance(e, Expr):
        return e * scale
    if e.op == "const":
        return e.args[0] * scale
    if e.op in ("+", "-"):
        return _linear(e.args[0], scale, terms) + _linear(e.args[1], scale if e.op == "+" else -scale, terms)
    if e.op == "neg":
        return _linear(e.args[0], -scale, terms)
    if e.op == "*" and e.args[1].op == "const":
        return _linear(e.args[0], scale * e.args[1].args[0], terms)
    slot = terms.setdefault(key_of(e), [0, e])
    slot[0] += scale
    return 0


def _divide(a, n):
    """a // n when n divides every term of a, else None."""
    if a.op not in ("*", "+", "-", "neg"):
        return None
    terms = {}
    rest = _linear(a, 1, terms)
    if rest % n or any(c % n for c, _ in terms.values()):
        return None
    out = None
    for c, e in terms.values():
        if c:
            term = binary("*", e, c // n)
            out = term if out is None else binary("+", out, term)
    return const(rest // n, a.dtype) if out is None else binary("+", out, const(rest // n, a.dtype))


def difference(a, b):
    """a - b as a Python int if the two differ by a constant, else None."""
    terms = {}
    rest = _linear(a, 1, terms) + _linear(b, -1, terms)
    return rest if not any(c for c, _ in terms.values()) else None


def subtract(a, b):
    """a - b, simplified; a Python int when it is one."""
    terms = {}
    rest = _linear(a, 1, terms) + _linear(b, -1, terms)
    terms = [(c, e) for c, e in terms.values() if c]
    if not terms:
        return rest
    out = None
    for c, e in sorted(terms, key=lambda t: t[0] < 0):
        if out is None:
            out = binary("*", e, c)
        else:
            out = binary("+" if c > 0 else "-", out, binary("*", e, abs(c)))
    return as_index(binary("+", out, rest))


def as_index(v, what="an index"):
    """A Python int or an integer Expr."""
    if isinstance(v, bool):
        fail(1011, f"{v} is not {what}", fix="a number; T.if_then_else chooses by a condition")
    if isinstance(v, int):
        return int(v)
    if isinstance(v, Expr):
        if v.op == "const" and not v.dtype.is_float:
            return int(v.args[0])
        if v.dtype.is_float:
            fix = "use `//` for integer division" if v.op == "/" else "T.cast(x, 'int32')"
            fail(1011, f"{show(v)} is {v.dtype}; {what} must be an integer", fix=fix)
        return v
    if isinstance(v, Poison):
        v._use()
    n = _number(v)
    if isinstance(n, bool):
        return as_index(n, what)
    if isinstance(n, int):
        return int(n)
    fix = (
        "the shape comes first, then the dtype"
        if isinstance(v, str) and v in IR_NAME
        else instead_of(v if n is None else n)
    )
    fail(1011, f"{describe(v)} is not {what}", fix=fix)


def half(e, even=()):
    """e // 2 of an int or Expr that is even whatever its variables are (sizes named in `even` are); else None."""
    n = value_of(e)
    if n is not None:
        return None if n % 2 else n // 2
    if e.op == "var":
        return binary("//", e, wrap(2, e.dtype)) if e.kind == "sym" and e.name in even else None
    if e.op not in ("+", "-", "*", "min", "max"):
        return None
    a, b = (half(x, even) for x in e.args)
    if e.op == "*":
        pair = (e.args[0], b) if b is not None else (a, e.args[1])
    else:
        pair = (a, b)
    return None if None in pair else as_index(binary(e.op, *(wrap(x, e.dtype) for x in pair)))


def interval(e):
    """(least, greatest) value of an integer expression of indices, or None."""
    if e.dtype.is_float:
        return None
    if e.op == "const":
        return e.args[0], e.args[0]
    if e.op == "var":
        return e.range
    parts = [interval(a) for a in e.args] if e.op in ("+", "-", "*", "//", "%", "min", "max") else [None]
    if None in parts:
        return None
    (a, b), (c, d) = parts
    if e.op == "+":
        return a + c, b + d
    if e.op == "-":
        return a - d, b - c
    if e.op == "*":
        ends = [a * c, a * d, b * c, b * d]
        return min(ends), max(ends)
    if e.op in ("min", "max"):
        f = min if e.op == "min" else max
        return f(a, c), f(b, d)
    if c != d or c <= 0:
        return None
    if e.op == "//":
        return a // c, b // c
    return (a % c, b % c) if a // c == b // c else (0, c - 1)


def decided(test):
    """True or False when a condition on indices always or never holds, else None."""
    if not isinstance(test, Expr) or test.op not in COMPARE | {"&&", "||"}:
        return None
    if test.op in ("&&", "||"):
        parts = [decided(a) for a in test.args]
        strong = test.op == "||"
        return strong if strong in parts else None if None in parts else not strong
    x, y = (interval(a) for a in test.args)
    if x is None or y is None:
        return None
    (a, b), (c, d) = x, y
    equal, apart = a == b == c == d, b < c or a > d
    always = {"<": b < c, "<=": b <= c, ">": a > d, ">=": a >= d, "==": equal, "!=": apart}[test.op]
    never = {"<": a >= d, "<=": a > d, ">": b <= c, ">=": b < c, "==": apart, "!=": equal}[test.op]
    return True if always else False if never else None


def same_size(a, b):
    """True, False, or None when only the chip can tell."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    d = difference(a, b)
    return None if d is None else d == 0


# ---- text -----------------------------------------------------------------------------------------------------------


def _number_text(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        if v != v:
            return "nan"
        if v in (math.inf, -math.inf):
            return "inf" if v > 0 else "-inf"
        text = repr(v)
        return text if "." in text or "e" in text else text + ".0"
    return str(v)


def show(e, prec=0, name=None):
    """IR text. `name` gives the text of a variable or buffer; the default is for messages, before names are final."""
    if not isinstance(e, Expr):
        return _number_text(e)
    name = name or _plain_name
    op = e.op
    if op == "const":
        text = _number_text(e.args[0])
        return f"({text})" if text.startswith("-") and prec > 10 else text
    if op == "var":
        return name(e)
    if op == "load":
        return f"{name(e.buf)}[{', '.join(show(i, 0, name) for i in e.idx)}]"
    if op == "cast":
        return f"{e.dtype.ir}({show(e.args[0], 0, name)})"
    if op == "bits":
        return f"bits({e.dtype.ir}, {show(e.args[0], 0, name)})"
    if op == "neg" or op in ("~", "!"):
        return ("-" if op == "neg" else op) + show(e.args[0], 11, name)
    if op in PREC:
        p = PREC[op]
        text = f"{show(e.args[0], p, name)} {op} {show(e.args[1], p + 1, name)}"
        return f"({text})" if p < prec else text
    return f"{op}({', '.join(show(a, 0, name) for a in e.args)})"


def _plain_name(thing):
    return thing.called if isinstance(thing, Buffer) else thing.name or "index"


def evaluate(e, env):
    """The value of an expression of sizes, with `env` giving those by name; KeyError when one is missing."""
    if not isinstance(e, Expr):
        return e
    if e.op == "const":
        return e.args[0]
    if e.op == "var":
        return env[e.name]
    if e.op == "select":
        return evaluate(e.args[1 if evaluate(e.args[0], env) else 2], env)
    args = [evaluate(a, env) for a in e.args]
    if e.op in ("//", "%") and args[1] == 0:
        given = ", ".join(f"{n} = {env[n]}" for n in sizes_in(e.args[1]))
        given = given and f" with {given}"
        raise ArgumentError(f"`{show(e)}` divides by zero{given}", "a divisor of at least 1")
    if e.op in _FOLD:
        return _FOLD[e.op](*args)
    if e.op == "neg":
        return -args[0]
    if e.op == "cast":
        return int(args[0]) if e.dtype.is_int else args[0]
    raise KeyError(e.op)


def sizes_in(e):
    """Names of the variables in an expression of sizes, each once."""
    if not isinstance(e, Expr):
        return []
    if e.op == "var":
        return [e.name]
    return list(dict.fromkeys(n for a in e.args for n in sizes_in(a)))


# ---- buffers --------------------------------------------------------------------------------------------------------


def _tile_arithmetic(self, *args):
    given = passed_as(self)
    if given:
        from ..language import math as elements

        if hasattr(elements, given[0]):
            fail(
                1004,
                f"T.{given[0]} works on elements, {describe(self)} is a tile",
                fix="index it inside `for i, j in T.Parallel(...)`, or use T.tile.*",
            )
        fail(
            1004,
            f"T.{given[0]}: its argument '{given[1]}' is a Python value, not the tile {describe(self)}",
            fix=f"help(T.{given[0]}) shows the order of its arguments",
        )
    fail(
        1004,
        f"{describe(self)} is a tile; operators work on elements",
        fix="index it inside `for i, j in T.Parallel(...)`, or use T.tile.*",
    )


def _value_text(v):
    """What a scalar or tile of a kernel that is interpreted holds now; None where nothing runs."""
    from .builder import active

    b = active()
    if b is None or not b.running:
        return None
    if isinstance(v, Expr):
        return repr(b.value(v))
    return f"{describe(v)}\n{b.array(v)}"


class _Tile:
    __slots__ = ()
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = (
        _tile_arithmetic
    )
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __int__ = _tile_arithmetic
    __pow__ = __floordiv__ = __mod__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _tile_arithmetic
    __rpow__ = __rfloordiv__ = __rmod__ = __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _tile_arithmetic
    __matmul__ = __rmatmul__ = __invert__ = __abs__ = __pos__ = __index__ = __divmod__ = __round__ = _tile_arithmetic
    __trunc__ = __floor__ = __ceil__ = _tile_arithmetic
    __hash__ = object.__hash__

    def __copy__(self, memo=None):
        fail(
            1004,
            f"{describe(self)} is a tile: Python cannot copy it",
            fix="a buffer of its own, T.alloc_shared(x.shape, x.dtype), and T.copy(x, y)",
        )

    __deepcopy__ = __copy__

    def __eq__(self, other):  # buffers are compared by identity, with a number it can only be meant for elements
        return _tile_arithmetic(self) if isinstance(other, (int, float, Expr)) else self is other

    def __ne__(self, other):
        return not self == other

    def __getattr__(self, name):
        no_attribute(self, name)

    def __setitem__(self, idx, value):
        from .builder import current

        current("an element store").store(self, idx, value, None)

    def __delitem__(self, idx):
        fail(1005, f"elements of {describe(self)} cannot be deleted", fix="slice what is wanted: x[0:n]")

    def __iter__(self):
        fail(1005, f"{describe(self)} cannot be looped over in Python", fix="for i in T.serial(n)")

    def __array__(self, dtype=None, copy=None):
        """numpy.asarray(tile): its values, where the kernel is interpreted."""
        from .builder import active

        b = active()
        if b is None or not b.running:
            fail(
                1005,
                f"{describe(self)} has values only when the kernel runs",
                fix="functions of numpy do not run on the chip: T.exp(x[i, j]) in T.Parallel, or T.tile.exp; to look "
                "at values, kernel.interpret(*args) runs it in Python",
            )
        return b.array(self) if dtype is None else b.array(self).astype(dtype)


class Buffer(_Tile):
    """A tensor of the caller (space "gm") or a buffer of the chip."""

    __slots__ = (
        "name", "shape", "dtype", "space", "at", "addr", "written", "read", "mark", "view", "strided", "writes",
    )  # fmt: skip

    def __init__(self, name, shape, dtype, space, at=None):
        self.name, self.shape, self.dtype, self.space, self.at = name, tuple(shape), DType(dtype), space, at
        self.addr = None
        self.writes = 0  # statements so far that write it
        self.written = self.read = False
        self.mark = ""  # "out" for T.empty
        self.view = None  # the Buffer whose bytes this one is
        self.strided = False  # a tensor of the caller that may have gaps between its rows

    @property
    def base(self):
        """The buffer that it is a view of, or itself."""
        return self if self.view is None else self.view.base

    @property
    def called(self):
        """Its name in a message; one that no name was given to yet is "buffer"."""
        return self.name or "buffer"

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def data(self):
        """The tensor itself: `T.Tensor(shape, dtype, x.data)` is x in another shape."""
        return self

    def scope(self):
        return self.space

    def __getitem__(self, idx):
        offs, exts, points = _split_index(self, idx)
        if all(points):
            return Element(self, tuple(wrap(o, int32) for o in offs))
        return Region(self, offs, exts, points)

    def __repr__(self):
        return _value_text(self) or describe(self)


class Region(_Tile):
    """A box of a buffer: per dimension an offset and an extent. `points`: is it a dimension, of extent 1, that an index
    and no slice has picked? Further indices pass over those, as in numpy, unless there is one for each dimension."""

    __slots__ = ("buf", "off", "ext", "points")

    def __init__(self, buf, off, ext, points=None):
        self.buf, self.off, self.ext = buf, list(off), list(ext)
        self.points = points or [False] * len(self.ext)

    @property
    def shape(self):
        return tuple(self.ext)

    @property
    def dtype(self):
        return self.buf.dtype

    @property
    def buffer(self):
        return self.buf

    def __getitem__(self, idx):
        every = len(idx if isinstance(idx, tuple) else (idx,)) == len(self.ext)
        open_dims = [d for d, p in enumerate(self.points) if every or not p]
        inner = Buffer(self.buf.name, [self.ext[d] for d in open_dims], self.buf.dtype, self.buf.space)
        offs, exts, points = list(self.off), list(self.ext), list(self.points)
        for d, off, exts[d], points[d] in zip(open_dims, *_split_index(inner, idx)):
            offs[d] = as_index(wrap(offs[d]) + off)
        if all(points):
            return Element(self.buf, tuple(wrap(o, int32) for o in offs))
        return Region(self.buf, offs, exts, points)

    def __repr__(self):
        return _value_text(self) or describe(self)


def _split_index(buf, idx):
    """(offsets, extents, is_point) of a subscript; missing trailing dimensions are taken whole."""
    idx = list(idx) if isinstance(idx, tuple) else [idx]
    if Ellipsis in [i for i in idx if i is Ellipsis]:
        at = next(n for n, i in enumerate(idx) if i is Ellipsis)
        idx[at : at + 1] = [slice(None)] * (len(buf.shape) - len(idx) + 1)
    if len(idx) > len(buf.shape):
        fail(
            1011,
            f"{describe(buf)} has {counted(len(buf.shape), 'dimension')}, {len(idx)} indices are given",
            fix=f"{buf.called}[{', '.join('ijklmn'[: len(buf.shape)])}]",
            other=place(buf.at, f"'{buf.called}' is made here"),
        )
    idx += [slice(None)] * (len(buf.shape) - len(idx))
    offs, exts, points = [], [], []
    for d, (i, size) in enumerate(zip(idx, buf.shape)):
        if not isinstance(i, slice):
            off, ext = _from_end(as_index(i), size), 1
            points.append(True)
        else:
            if i.step not in (None, 1):
                fail(
                    1011,
                    f"a slice with step {show(i.step)} of {describe(buf)}",
                    fix="slices are contiguous; loop over the rows instead",
                )
            off = _from_end(as_index(0 if i.start is None else i.start), size)
            stop = _from_end(as_index(size if i.stop is None else i.stop), size)
            ext = subtract(stop, off)
            points.append(False)
        if (
            isinstance(off, int)
            and isinstance(size, int)
            and not isinstance(i, slice)
            and not 0 <= off < size
            and buf.space != "gm"
        ):
            fail(
                1011,
                f"index {show(i)} in dimension {d} of {describe(buf)}, which has {size}",
                fix=f"an index from 0 to {size - 1}; -1 is the last",
                other=place(buf.at, f"'{buf.called}' is made here"),
            )
        if isinstance(ext, int) and ext <= 0 and not (isinstance(size, int) and size == 0):
            fail(
                1011,
                f"an empty slice in dimension {d} of {describe(buf)}: {show(off)} to {show(stop)}",
                fix="a slice a:b begins at a and ends before b; b is greater than a",
            )
        if (
            isinstance(off, int)
            and isinstance(ext, int)
            and isinstance(size, int)
            and off + ext > size
            and buf.space != "gm"
        ):
            fail(
                1011,
                f"slice {off}:{off + ext} in dimension {d} of {describe(buf)}, which has {size}",
                fix=f"end it at {size}, or make '{buf.called}' larger; only tensors may be passed at their end",
                other=place(buf.at, f"'{buf.called}' is made here"),
            )
        offs.append(off)
        exts.append(ext)
    return offs, exts, points


def _from_end(i, size):
    return as_index(size + i) if isinstance(i, int) and i < 0 else i


def shape_text(shape):
    items = [show(s) for s in shape]
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


_ATTRIBUTES = {  # methods of arrays -> what stands for them here
    "T": "T.copy(src, dst, transpose=True) or T.transpose(src, dst)",
    "transpose": "T.transpose(src, dst)",
    "size": "the product of .shape",
    "numel": "the product of .shape",
    "strides": "tensors and tiles are contiguous",
    "stride": "tensors and tiles are contiguous",
    "fill": "T.fill(tile, value)",
    "fill_": "T.fill(tile, value)",
    "zero_": "T.clear(tile)",
    "copy": "T.copy(src, dst)",
    "copy_": "T.copy(src, dst)",
    "clone": "T.copy(src, dst)",
    "reshape": "T.reshape(tile, shape)",
    "view": "T.view(tile, shape)",
    "flatten": "T.reshape(tile, (n,))",
    "squeeze": "index with 0: x[0, :]",
    "unsqueeze": "T.reshape(tile, shape)",
    "sum": "T.reduce_sum(src, dst, dim)",
    "max": "T.reduce_max(src, dst, dim)",
    "min": "T.reduce_min(src, dst, dim)",
    "mean": "T.reduce_sum(src, dst, dim), then times 1 / n",
    "exp": "T.tile.exp(dst, src)",
    **dict.fromkeys(("astype", "to", "float", "half", "int", "type"), "T.copy(src, dst) converts to the dtype of dst"),
    **dict.fromkeys(("item", "numpy", "tolist", "cpu"), "values are known in the call; T.print(tile) shows them"),
}


def no_attribute(thing, name):
    """`thing.name` of a value of a kernel that has no such attribute (names with an underscore are Python's own)."""
    if name.startswith("_"):
        raise AttributeError(name)
    from ..errors import UnknownNameError, nearest

    tile = isinstance(thing, (Buffer, Region))
    fix = _ATTRIBUTES.get(name) if tile else None
    near = nearest(name, ("shape", "dtype", "ndim", "scope", "buffer", "data") if tile else ("dtype", "astype"))
    if fix is None:
        fix = f"did you mean .{near}?" if near else "a tile has .shape and .dtype" if tile else "one value has .dtype"
    what = describe(thing) if isinstance(thing, (Buffer, Region)) else show(thing)
    fail(1001, f"{what} has no '{name}'", fix=fix, kind=UnknownNameError)


def instead_of(v, tile=False):
    """What to write in place of a value that cannot stand in a kernel, where one value or a `tile` is wanted; None
    where that is not clear."""
    kind = f"{type(v).__module__}.{type(v).__name__}"
    if isinstance(v, (Buffer, Region)):
        return "one element of it: index it with a number for each dimension"
    if v is None:
        return "give it a value: a function without `return` gives None"
    if hasattr(v, "__array_interface__") or kind.startswith("torch."):
        return "data comes in at the call: make it a parameter `x: T.Tensor(shape, dtype)` and copy tiles of it"
    if tile and not isinstance(v, (list, tuple)) and not callable(v):
        return "a buffer of T.alloc_shared, T.alloc_fragment …, or a slice of one"
    if isinstance(v, str):
        return "a number, or a size by name: N = T.symbolic('N') before the kernel"
    if isinstance(v, float):
        return "use `//` for integer division"
    if isinstance(v, tuple) and any(isinstance(x, Expr) for x in v):
        return "one value: unpack it, `for i, j in ...:`, and index with each"
    if isinstance(v, (list, tuple, range, set, dict)):
        return "one value: for several, `for k in T.unroll(n)` with a Python number k"
    if isinstance(v, complex):
        return "two tiles: the real and the imaginary part"
    if isinstance(v, (numbers.Number, decimal.Decimal)):
        return "float(x)"
    if callable(v):
        return "call it: f(...) gives its value"
    return None if tile else "a number of Python, or a value of the chip"


def describe(v):
    """What a value is, in a message."""
    if isinstance(v, Buffer):
        return f"'{v.called}' {v.dtype}{shape_text(v.shape)}"
    if isinstance(v, Region):
        box = ", ".join(f"{show(o)} : {show(as_index(wrap(o) + e))}" for o, e in zip(v.off, v.ext))
        return f"'{v.buf.called}[{box}]' {v.dtype}{shape_text(v.ext)}"
    if isinstance(v, Element):
        return f"element {show(v)}"
    if isinstance(v, Expr):
        return f"{show(v)} ({v.dtype})"
    if isinstance(v, str):
        return f"the string '{v}'"
    if v is None:
        return "None"
    text = repr(v)
    return f"{type(v).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def dims(shape, what):
    """A shape argument as a tuple of sizes; a single size is a 1-D shape."""
    items = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(as_index(s, f"a size of {what}") for s in items)
