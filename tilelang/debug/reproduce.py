"""`kernel.reproduce(path)`: one file that holds a call - IR, arguments, options, versions, what came out.

The file is IR text; what belongs to the call stands in comments that begin with `;!`, so that every verb of `tlc`
takes the file, and `tlc replay FILE` runs it and says whether the same comes out. The words:

    ;! version TLC             of the core that ran it
    ;! chip NAME               the chip, when it was named
    ;! option no-auto-sync     or no-auto-memory, no-checks, schedule N
    ;! arg NAME VALUE          a scalar
    ;! data NAME BASE64        bytes of a tensor as it went in, row-major; several lines are one value
    ;! poison NAME             a tensor that nothing had written: bytes of ones
    ;! result NAME CRC32       of a tensor's bytes afterwards
    ;! fault TLnnnn            what the simulated chip reported first
    ;! error TLnnnn            what the compiler reported first
"""

import base64
import zlib

import numpy as np

from ..errors import CompileError
from ..frontend.expr import Buffer
from . import core

_WIDTH = 100


def _words(call, kernel):
    out = [f"version {core._core.version()}"]
    if call.options.get("chip"):
        out.append(f"chip {call.options['chip']}")
    out += [f"option {name.replace('_', '-')}" for name in ("no_auto_sync", "no_auto_memory") if call.options[name]]
    if not kernel.checks:
        out.append("option no-checks")
    return out


def _data(name, array):
    if array.size and (array.view(np.uint8) == 0xFF).all():
        return [f"poison {name}"]
    text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return [f"data {name} {text[i : i + _WIDTH]}" for i in range(0, max(len(text), 1), _WIDTH)]


def _outcome(call, kernel, params):
    try:
        p = core.lowered(call.text, call.paths, **call.options)
    except CompileError as e:
        return [f"error {e.code}"]
    args = call.arguments()
    faults = core.simulate(p, args + call.workspaces(p), checks=bool(kernel.checks), threads=1)
    if faults:
        return [f"fault {faults[0].code}"]
    return [f"result {params[i].name} {zlib.crc32(np.ascontiguousarray(args[i]).tobytes()):08x}" for i in call.written]


def reproduce(kernel, call, path):
    """Writes the file; returns its path."""
    params = call.program().params
    words = _words(call, kernel)
    for p, v in zip(params, call.base):
        words += _data(p.name, v) if isinstance(p, Buffer) else [f"arg {p.name} {v!r}"]
    words += _outcome(call, kernel, params)
    with open(path, "w", encoding="utf-8") as f:
        f.write("; a call of a kernel: tlc replay FILE runs it again\n")
        f.writelines(f";! {w}\n" for w in words)
        f.write(call.text)
    return path
