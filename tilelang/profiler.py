"""Timing on the host, and checking a kernel against a reference: do_bench, kernel.get_profiler().

The time is that of the host: for a kernel on the simulated chip it says how long the simulation takes, not how long the
chip would. With torch_npu it waits for the card.
"""

import enum
import statistics
import sys
import time

from .errors import ArgumentError
from .language.dtypes import numpy_dtype


class TensorSupplyType(enum.Enum):
    """What the inputs made for a kernel hold."""

    Integer, Uniform, Normal, Randn, Zero, One, Auto = range(1, 8)


_MODES = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}


def do_bench(fn, warmup=25, rep=100, n_warmup=0, n_repeat=0, quantiles=None, return_mode="mean", **ignored):
    """Milliseconds of one call of fn; `warmup` and `rep` are milliseconds to spend, at least one call each is made."""
    if return_mode not in _MODES:
        raise ArgumentError(f"do_bench: return_mode={return_mode!r}; one of {', '.join(_MODES)}")
    first = _time(fn)
    for _ in range(n_warmup or min(int(warmup / max(first, 1e-3)), 1000)):
        fn()
    repeats = n_repeat or min(max(int(rep / max(first, 1e-3)), 0), 10000)
    times = [_time(fn) for _ in range(repeats)] or [first]
    if quantiles:
        times.sort()
        found = [times[min(int(q * len(times)), len(times) - 1)] for q in quantiles]
        return found[0] if len(found) == 1 else found
    return _MODES[return_mode](times)


def _time(fn):
    began = time.perf_counter()
    fn()
    if "torch_npu" in sys.modules:  # a launch on a card only queues
        sys.modules["torch"].npu.synchronize()
    return (time.perf_counter() - began) * 1e3


def make_tensor(shape, dtype, supply, seed, kind="numpy"):
    """An input for a parameter."""
    import numpy

    rng = numpy.random.default_rng(seed)
    target = numpy_dtype(dtype)
    if supply is TensorSupplyType.Zero:
        made = numpy.zeros(shape)
    elif supply is TensorSupplyType.One:
        made = numpy.ones(shape)
    elif dtype.is_float and supply is not TensorSupplyType.Integer:
        made = rng.uniform(-1, 1, shape) if supply is TensorSupplyType.Uniform else rng.standard_normal(shape)
    else:
        made = rng.integers(0 if dtype.startswith(("u", "b")) else -2, 2 if dtype == "bool" else 3, shape)
    made = made.astype(target)
    if kind == "torch":
        import torch

        name = str(dtype)
        whole = made.astype("float32") if dtype.is_float else made
        return torch.from_numpy(whole).to(getattr(torch, name))
    return made


def host_kind():
    """ "torch" where the program has imported torch, else "numpy"."""
    return "torch" if "torch" in sys.modules else "numpy"


def make_inputs(kernel, supply=TensorSupplyType.Auto, kind=None):
    """Tensors for the parameters that a caller gives; scalars are 1."""
    kind = kind or host_kind()
    out = []
    for n, i in enumerate(kernel.inputs):
        p = kernel.params[i]
        if p.kind == "scalar":
            out.append(1)
            continue
        if not all(isinstance(s, int) for s in p.shape):
            raise ArgumentError(
                f"{kernel.name}: inputs cannot be made for '{p.name}', whose size is known only in a call",
                "give them: input_tensors=[...]",
            )
        out.append(make_tensor(p.shape, p.dtype, supply, n, kind))
    return out


def agree(got, want, rtol, atol, max_mismatched_ratio=0.01):
    """None if two results agree, else what differs."""
    import numpy

    pairs = zip(got, want) if isinstance(got, (list, tuple)) else [(got, want)]
    for k, (a, b) in enumerate(pairs):
        a, b = (numpy.asarray(_plain(t), dtype="float64") for t in (a, b))
        if a.shape != b.shape:
            return f"result {k} has shape {a.shape}, the reference {b.shape}"
        bad = ~numpy.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if bad.size and bad.mean() > max_mismatched_ratio:
            worst = float(numpy.nanmax(numpy.abs(a - b)))
            return f"result {k}: {int(bad.sum())} of {bad.size} elements differ, by {worst:.4g} at most"
    return None


def _plain(t):
    if hasattr(t, "detach"):
        t = t.detach().cpu()
        return t.float().numpy() if t.is_floating_point() else t.numpy()
    return t


class Profiler:
    """What kernel.get_profiler() gives."""

    def __init__(self, kernel, supply=TensorSupplyType.Auto):
        self.kernel, self.supply = kernel, supply

    def _inputs(self, given):
        return list(given) if given is not None else make_inputs(self.kernel, self.supply)

    def run_once(self, func=None):
        return (func or self.kernel)(*self._inputs(None))

    def do_bench(self, func=None, warmup=25, rep=100, n_warmup=0, n_repeat=0, input_tensors=None, **options):
        """Milliseconds of one call on the host."""
        inputs, fn = self._inputs(input_tensors), func or self.kernel
        return do_bench(lambda: fn(*inputs), warmup, rep, n_warmup, n_repeat, **options)

    def assert_allclose(self, reference_program, input_tensors=None, atol=1e-2, rtol=1e-2, max_mismatched_ratio=0.01):
        """Raises AssertionError when the kernel and the reference differ."""
        inputs = self._inputs(input_tensors)
        found = agree(self.kernel(*inputs), reference_program(*inputs), rtol, atol, max_mismatched_ratio)
        if found:
            raise AssertionError(f"{self.kernel.name}: {found}")
