"""Programs written for a machine with Ascend cards, on this one.

    python -m tilelang.sim SCRIPT.py [arguments]
    python -m tilelang.sim -m pytest tests/

gives a program what it expects of its host: the device "npu" everywhere in torch, `x.npu()`, `torch.npu.*`, `torch_npu`
and the operators in it that programs compare with; "cuda", `x.cuda()` and `torch.cuda.*` for programs in mainline
TileLang, with the same meaning; all in host memory. Kernels run on the simulated chip as always.
Nothing of this happens on `import tilelang`: `install()` does it and `remove()` takes it back.
"""

import contextlib
import sys

from . import record
from .patch import Patches

_now = None


def install(capability=(8, 0)):
    """Makes this process look like one with a card. Needs torch. `capability`: torch.cuda.get_device_capability()."""
    global _now
    if _now is not None:
        return
    import importlib.util

    import torch

    import tilelang

    from ..kernel import Kernel
    from . import device, graph, mainline, npu, reference

    p = Patches()
    try:
        device.patch_devices(p, torch)
        device.patch_half(p, torch)
        device.patch_functions(p, torch)
        device.patch_overlap(p, torch)
        device.patch_targets(p, torch)
        module = npu.make_module(torch)
        p.set(torch, "npu", module)
        p.module("torch.npu", module)
        npu.patch_cuda(p, torch, module, tuple(capability))
        p.module("torch_npu", reference.make_torch_npu(module))
        p.set(torch.ops, "npu", reference.Namespace())
        p.set(Kernel, "loose", True)
        p.set(Kernel, "home", "torch")
        p.wrap(Kernel, "_run", lambda run: lambda self, *args: graph.kernel_runs(self, run, *args))
        if importlib.util.find_spec("tvm") is None:
            for path, m in mainline.tvm_modules().items():
                p.module(path, m)
            p.set(tilelang, "tvm", sys.modules["tvm"])
        for path, m in mainline.inner_modules(tuple(capability)).items():
            p.module(path, m)
        record.patch(p, torch)
    except BaseException:
        p.undo()
        raise
    _now = p


def remove():
    """Takes back everything that install() changed."""
    global _now
    if _now is not None:
        _now.undo()
        _now = None


def installed():
    return _now is not None


@contextlib.contextmanager
def simulated():
    """`with tilelang.sim.simulated():` - install and remove."""
    if installed():
        yield
        return
    install()
    try:
        yield
    finally:
        remove()


__all__ = ["install", "installed", "remove", "simulated"]
