"""The way to a card: building kernels with the toolkit of this machine, launching them, and what the machine has.

A `Launcher` stands for one kernel on cards. Its first call with arguments of some kinds, dtypes, shapes and places does
what a call on the simulated chip does - every check, sizes, results to make - and keeps the outcome as a `Plan`; the
next one with the same looks that up and hands addresses to the C core. Tensors on a card (torch_npu) are launched on
torch's current stream and not waited for; numpy arrays and tensors of the host are copied in, run, waited for, copied
back.
"""

import atexit
import functools
import json
import os
import sys
import threading
import time

import numpy

from . import _core, cache
from ._core import address
from .errors import ArgumentError, CompileError, DeviceError, _short, from_core, user_frame
from .frontend.expr import evaluate
from .kernel import warn_of
from .language.dtypes import numpy_dtype
from .tensors import give_back, stored

_lock = threading.Lock()
_found = []  # the _core.Device of this process, once it could be opened


def runtime():
    """The toolkit's runtime, opened when it is first needed; DeviceError says what is missing."""
    with _lock:
        if not _found:
            made = _core.Device()
            if not made.count():
                raise DeviceError(from_core(json.loads(made.diags_json()), {}))
            atexit.register(made.abandon)
            _found.append(made)
        return _found[0]


def device_count():
    """How many cards the runtime sees; 0 without a toolkit or a card."""
    try:
        return runtime().count()
    except DeviceError:
        return 0


def chip_of_device():
    """The name of this machine's chip as `tlc chips` lists it; None: no card, or another chip."""
    try:
        return runtime().chip()
    except DeviceError:
        return None


def synchronize(card=None, stream=None):
    """Waits for a stream of a card and raises what failed there, with the kernel and the line of its call. Without a
    card, the current one; a stream is given by its address (0: the default one); without, torch_npu's current one."""
    card = _current_card() if card is None else card
    if stream is None:
        stream = _torch_stream()(card) if "torch_npu" in sys.modules else 0
    said = runtime().wait(card, stream)
    if said is not None:
        raise DeviceError(from_core(json.loads(said), {}))


def build(kernel, fresh=False):
    """(path of the built library, was it in the cache). `fresh` builds it even if it is there."""
    program = kernel._need("building")
    with kernel._lock:
        program.diags_clear()
        made = program.build(kernel.target, fresh or not cache.enabled())
        found = kernel.findings(program)
    if made is None:
        raise _error_of(found)
    warn_of(found)
    return made[0], made[2]


def _error_of(found):
    """A source that the compiler refuses is a CompileError; everything else is the machine's."""
    refused = all(d.code == "TL1101" for d in found if d.severity == "error")
    return (CompileError if refused else DeviceError)(found)


@functools.cache
def _torch_stream():
    """A function of a card's number: the address of torch_npu's current stream there. It has to be the one that first
    empties torch_npu's task queue (not ..NoWait): what torch has queued on the host must reach the stream before us."""
    inside = getattr(sys.modules.get("torch_npu"), "_C", None)
    if hasattr(inside, "_npu_getCurrentRawStream"):
        return inside._npu_getCurrentRawStream
    import torch

    return lambda index: torch.npu.current_stream(index).npu_stream


def _current_card():
    """torch_npu's current card when it is there, else the first one."""
    if "torch_npu" not in sys.modules:
        return 0
    import torch

    return torch.npu.current_device()


class Plan:
    """What a call does when its arguments look as they did: where each value of the launch comes from. Slots are the
    parameters of the IR: symbolic sizes, then the kernel's; a slot of a workspace stays 0, the core provides it."""

    def __init__(self):
        self.arrays, self.tensors, self.scalars, self.outs = [], [], [], []
        self.fresh = self.read_only = 0


class Launcher:
    def __init__(self, kernel):
        self.kernel = kernel
        self.plans = {}
        self.lock = threading.Lock()
        self.files = {}  # names of source files: the core points into them while a launch may still fail
        self.loaded = None
        self.blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING", "0") not in ("", "0")

    def load(self):
        """The kernel, built and loaded; `library` and `cached` say where from."""
        with self.lock:
            if self.loaded is None:
                kernel = self.kernel
                began = time.perf_counter()
                self.library, self.cached = build(kernel)
                program = kernel._need("launching")
                loaded = _core.Loaded(program, runtime(), self.library)
                if not loaded.ok():
                    raise DeviceError(kernel.findings(program))
                kernel.times["build"] = time.perf_counter() - began
                self.loaded = loaded
        return self.loaded

    def __call__(self, args, kwargs):
        key = look(args) if not kwargs else None
        plan = self.plans.get(key)
        if plan is not None:
            done = self.run(plan, args)
            if done is not self:
                return done
        kernel = self.kernel
        got, views, scalars, env, other = kernel._accept(args, kwargs)
        if other:
            return kernel._variant(other)._launch(args, kwargs)
        kernel._shared(views)
        kernel._idle([kernel], env, scalars, set(kernel.out_idx) - set(got))
        plan = self.plan(got, views, scalars, env)
        done = self.run(plan, list(got.values()))
        if key is not None and len(self.plans) < 4096:
            self.plans[key] = plan
        return done

    def plan(self, got, views, scalars, env):
        """The Plan for these arguments, which it counts in the order of `got`."""
        kernel, plan = self.kernel, Plan()
        places = {v.device for v in views.values()}
        if len(places) > 1:
            raise ArgumentError(
                f"{kernel.name}: the tensors are on {' and '.join(sorted(places))}; move them to one",
                "x.npu(0), or all on the host",
            )
        where = places.pop() if places else "cpu"
        plan.host = where == "cpu"
        plan.card = kernel.card if plan.host else int(where.partition(":")[2] or 0)
        plan.kind = next((v.kind for v in views.values()), kernel.home)
        plan.values = [env[n] for n in kernel.sizes] + [0] * len(kernel.params)
        position = {i: n for n, i in enumerate(got)}
        made = {}
        for i, p in enumerate(kernel.params):
            slot, written = len(kernel.sizes) + i, i in kernel.written or p.role == "out"
            if p.kind == "tensor" and not written:
                plan.read_only |= 1 << slot
            if i in scalars:
                plan.scalars.append((slot, position[i], i))
            elif i in views and type(got[i]) is numpy.ndarray:
                plan.arrays.append((slot, position[i], int(written)))
            elif i in views and hasattr(got[i], "data_ptr"):
                plan.tensors.append((slot, position[i]))
            elif i in views:
                plan.values[slot] = views[i].address
            elif p.role == "out":
                plan.fresh |= 1 << slot
                made[i] = len(plan.outs)
                plan.outs.append((slot, _maker(plan.kind, tuple(evaluate(s, env) for s in p.shape), p.dtype, where)))
        plan.picks = [(i in made, made[i] if i in made else position[i]) for i in kernel.out_idx]
        return plan

    def run(self, plan, args):
        """The results; itself when an argument is not as the plan wants it after all."""
        kernel, values, made = self.kernel, plan.values.copy(), []
        for slot, n, written in plan.arrays:
            at = address(args[n], written)
            if at is None:
                return self
            values[slot] = at
        for slot, n in plan.tensors:
            values[slot] = args[n].data_ptr()
        for slot, n, i in plan.scalars:
            values[slot] = kernel._scalar(i, args[n])
        for slot, make in plan.outs:
            result, values[slot] = make()
            made.append(result)
        if kernel._program is not None:
            self.launch(plan, values)
        outs = [made[n] if new else args[n] for new, n in plan.picks]
        if plan.kind not in ("numpy", "torch"):
            outs = [give_back(plan.kind, x) if new else x for x, (new, _) in zip(outs, plan.picks)]
        return None if not outs else outs[0] if len(outs) == 1 else outs

    def launch(self, plan, values):
        loaded = self.loaded or self.load()
        card = _current_card() if plan.card is None else plan.card
        if plan.host:
            with self.lock:
                said = loaded.launch(values, card, 0, 1, 0, plan.fresh, plan.read_only, None, 0)
        else:
            frame = user_frame(2)
            file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("?", 0)
            name = self.files.get(file) or self.files.setdefault(file, _short(file))
            with self.lock:
                said = loaded.launch(values, card, _torch_stream()(card), 0, self.blocking, 0, 0, name, line)
        if said is not None:
            found = from_core(json.loads(said), {})
            for d in found:
                if not d.line and (plan.host or self.blocking):  # else it may be of an earlier launch
                    d.file, d.line, d.col = self.kernel.traced.builder.where
            raise DeviceError(found)


def look(args):
    """What a plan depends on; None: some argument is no numpy array, torch tensor or number."""
    key = []
    for a in args:
        if type(a) is numpy.ndarray:
            key.append((a.dtype, a.shape))
        elif isinstance(a, (int, float, numpy.generic)):
            key.append(type(a))
        elif hasattr(a, "data_ptr"):
            key.append((a.dtype, a.shape, a.device, a.is_contiguous()))
        else:
            return None
    return tuple(key)


def _maker(kind, shape, dtype, where):
    """A function that makes a result: (the tensor, its address)."""
    shape, dtype = stored(shape, dtype)
    if kind == "torch":
        import torch

        like = {"dtype": getattr(torch, str(dtype)), "device": where}

        def make():
            made = torch.empty(shape, **like)
            return made, made.data_ptr()
    else:
        of = numpy_dtype(dtype)

        def make():
            made = numpy.empty(shape, of)
            return made, address(made, 1)

    return make


# ---- python -m tilelang doctor --------------------------------------------------------------------------------------


def doctor(root=None, python=None):
    """Driver, firmware, devices, toolkit, compiler, headers and torch_npu of this machine, as a dict:
    {"tlc", "ready", "findings": [{"what", "health": "ok" | "missing" | "mismatch", "needed", "found", "where", "text",
    "fix"}]}. `root` stands for / (tests), `python` is the interpreter asked for torch_npu (this one)."""
    return json.loads(_core.doctor(root, python or sys.executable, True)[0])


def main(args):
    """`python -m tilelang doctor [--json]`: exit status 0 when nothing that is needed is missing."""
    if args not in ([], ["--json"]):
        print("usage: python -m tilelang doctor [--json]", file=sys.stderr)
        return 2
    text, ready = _core.doctor(None, sys.executable, bool(args))
    sys.stdout.write(text)
    return 0 if ready else 1
