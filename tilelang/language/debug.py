"""Looking at a kernel while it runs: T.printf, T.print, T.dump_tensor, T.device_assert.

They never change addresses, flags or results. On the simulated chip and in `kernel.interpret` they print the Python
line, the block and the core; a failed assertion is a fault of the run. Before and after `with T.Kernel(...)` they
look at tensors once, around the launch.
"""

import re

from ..errors import fail
from ..frontend.builder import current
from ..frontend.expr import Buffer, Expr, Region, describe, to_bool, value_of, wrap
from ..frontend.hooks import Text
from .dtypes import int32
from .ops import region_of

_SPEC = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z|j)?(.))", re.S)
_NUMBERS = "diuxXocfFeEgG"


class Quoted(str):
    """The text of a print as IR text; `raw` is what it says."""

    def __new__(cls, raw):
        out = "".join({"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}.get(c, c if c >= " " else "") for c in raw)
        made = super().__new__(cls, f'"{out}"')
        made.raw = raw
        return made


def _say(what, text, values, cond=None):
    b = current(what)
    head = ["assert ", cond, ", "] if cond is not None else ["print "]
    if not b.kernel_open:
        if cond is not None:
            fail(1006, f"{what} stands outside `with T.Kernel(...)`", fix="move it into the body of T.Kernel")
        for v in values:
            buf = v.buf if isinstance(v, Region) else None
            if buf is not None and buf.space != "gm" or isinstance(v, Expr) and not v.pure:
                fail(1006, f"{what} of {describe(v)} outside `with T.Kernel(...)`", fix="only tensors are there")
        head = [f"print {'before' if b.grid is None else 'after'} "]
    head.append(Quoted(text))
    for v in values:
        head += [", ", v]
    b.say(head)


def _escape(text):
    return str(text).replace("%", "%%")


def _mark(v):
    return "%g" if v.dtype.is_float else "%d"


def _spread(text, args, escape):
    """(format, values) of an f-string with values of the chip; `escape`: no conversion in it is meant as one."""
    out, values, rest = "", [], list(args)
    for p in text.parts:
        if isinstance(p, Expr):
            out += _mark(p)
            values.append(p)
        else:
            out += _escape(p) if escape else p
            taken = 0 if escape else sum(m.group(2) is not None for m in _SPEC.finditer(p))
            values, rest = values + rest[:taken], rest[taken:]
    return out, values + rest


def _formatted(what, fmt, args):
    """(text, values) of a format of C: strings are put in, numbers stay."""
    if isinstance(fmt, Text):
        fmt, args = _spread(fmt, args, False)
    if not isinstance(fmt, str):
        fail(1004, f"{what} takes a format text first, not {describe(fmt)}", fix="T.print(value) prints one value")
    out, values, at, rest = [], [], 0, list(args)
    for m in _SPEC.finditer(fmt):
        out.append(fmt[at : m.start()])
        at = m.end()
        if m.group(2) is None:
            out.append("%%")
            continue
        if not rest:
            fail(1004, f"{what}: '{m.group()}' has no value", fix="give a value for each conversion")
        v = rest.pop(0)
        if m.group(2) == "s" and isinstance(v, Expr):
            out.append(_mark(v))
            values.append(v)
        elif m.group(2) == "s":
            out.append(_escape(v))
        elif isinstance(v, (Buffer, Region)):
            fail(1004, f"{what} of the tile {describe(v)}", fix="T.print(tile) prints it; tile[i, j] is one element")
        elif m.group(2) not in _NUMBERS:
            fail(1004, f"{what}: there is no conversion '{m.group()}'", fix="%d, %u, %x, %c, %f, %e, %g and %s")
        else:
            out.append(f"%{m.group(1)}{m.group(2)}")
            values.append(wrap(v))
    if rest:
        fail(
            1004,
            f"{what} has {len(args)} values for {len(args) - len(rest)} conversions in {fmt!r}",
            fix="a conversion such as %d or %f for each value",
        )
    return "".join(out) + fmt[at:], values


def printf(fmt, *args):
    """Prints scalars by a format of C: T.printf("row %d: %f\\n", i, a[i, 0])."""
    _say("T.printf", *_formatted("T.printf", fmt, args))


def print(obj, msg=""):
    """Prints a scalar, a tile or a slice of one, after a message."""
    lead, before = _spread(msg, (), True) if isinstance(msg, Text) else (_escape(msg), [])
    lead = f"{lead}: " if msg else ""
    if isinstance(obj, (Buffer, Region)):
        _say("T.print", lead + "%t", [*before, region_of(obj, "T.print")])
    elif isinstance(obj, Expr):
        _say("T.print", lead + _mark(obj), [*before, obj])
    elif isinstance(obj, Text):
        text, values = _spread(obj, (), True)
        _say("T.print", lead + text, before + values)
    else:
        _say("T.print", lead + _escape(obj), before)


def dump_tensor(tensor, desc=0, dump_size=None, shape_info=()):
    """Prints the first `dump_size` elements of a tile or tensor under the number `desc`."""
    r = region_of(tensor, "T.dump_tensor")
    known = value_of(desc)
    at_run_time = known is None and isinstance(desc, Expr)
    lead = "dump %d: " if at_run_time else f"dump {desc if known is None else known}: "
    values = [desc] if at_run_time else []
    if dump_size is None:
        _say("T.dump_tensor", lead + "%t", [*values, r])
    else:
        _say("T.dump_tensor", lead + "%*t", [*values, wrap(dump_size, int32), r])


def device_assert(cond, msg="", *args):
    """A run in which `cond` is false is a fault; the message may be a format with values."""
    if isinstance(msg, Text):
        msg, args = _spread(msg, args, not args)
    text, values = _formatted("T.device_assert", str(msg), args) if args else (_escape(msg), [])
    _say("T.device_assert", text, values, to_bool(cond))


__all__ = ["device_assert", "dump_tensor", "print", "printf"]
