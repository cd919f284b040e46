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

from ..errors import ArgumentError, CompileError, file_name
from ..frontend.expr import Buffer
from . import core
from .call import copied

_WIDTH = 100


def _words(launch, kernel):
    out = [f"version {core._core.version()}"]
    if launch.options.get("chip"):
        out.append(f"chip {launch.options['chip']}")
    out += [f"option {name.replace('_', '-')}" for name in ("no_auto_sync", "no_auto_memory") if launch.options[name]]
    if not kernel.checks:
        out.append("option no-checks")
    return out


def _data(name, array):
    if array.size and (array.view(np.uint8) == 0xFF).all():
        return [f"poison {name}"]
    text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return [f"data {name} {text[i : i + _WIDTH]}" for i in range(0, max(len(text), 1), _WIDTH)]


def _outcome(kernel, launch, tensors, written):
    try:
        p = launch.lowered()
    except CompileError as e:
        return [f"error {e.code}"]
    faults = launch.simulate(p, tensors, checks=bool(kernel.checks), threads=1)
    if faults:
        return [f"fault {faults[0].code}"]
    crc = {i: zlib.crc32(np.ascontiguousarray(tensors[i]).tobytes()) for i in written}
    return [f"result {kernel.params[i].name} {n:08x}" for i, n in crc.items()]


def reproduce(call, path, number=None):
    """Writes the file; returns its path. Of several launches it holds one, with the tensors it begins with: by number
    (from 1), or the first that fails, or the last."""
    kernel = call.kernel
    kernel._need("reproduce")
    if not call.launches:
        raise ArgumentError(f"{kernel.name}: this call launches nothing: it has no blocks", "sizes greater than 0")
    if number is not None and number not in range(1, len(call.launches) + 1):
        raise ArgumentError(f"reproduce(launch={number!r}): the call has {len(call.launches)} launches", "launch=1")
    tensors = call.tensors()
    for n, launch in enumerate(call.launches, 1):
        base = copied(tensors)
        outcome = _outcome(kernel, launch, tensors, call.results(launch))
        if n == number or (number is None and any(not w.startswith("result") for w in outcome)):
            break
    words = _words(launch, kernel)
    for p, v in zip(launch.program().params, launch.arguments(base)):
        words += _data(p.name, v) if isinstance(p, Buffer) else [f"arg {p.name} {v!r}"]
    with open(file_name(path, "kernel.reproduce"), "w", encoding="utf-8") as f:
        f.write(f"; a call of a kernel{', ' * bool(launch.title)}{launch.title}: tlc replay FILE runs it again\n")
        f.writelines(f";! {w}\n" for w in words + outcome)
        f.write(launch.text)
    return path
