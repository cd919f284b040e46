"""Timing, and checking a kernel against a reference: do_bench, kernel.get_profiler().

A function that launches kernels on the simulated chip is timed by the simulator's clock: what the launches would take
on the chip, one after the other. What does not launch any is timed on the host, with
torch_npu until the card is done.
"""

import enum
import statistics
import sys
import time

from ..errors import ArgumentError, warn
from ..kernel import LAUNCHES
from ..language.dtypes import numpy_dtype
from ..tensors import what
from .profile import Profile


class TensorSupplyType(enum.Enum):
    """What the inputs made for a kernel hold, as in mainline: of floats, Uniform and Auto are even from -1 to 1, Normal
    has the mean -1 and Randn 0, both the deviation 1."""

    Integer, Uniform, Normal, Randn, Zero, One, Auto = range(1, 8)


_MODES = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}


class Milliseconds(float):
    """A time in ms. `by`: "simulated chip" or "host"; `host_ms`: what one call took here."""

    def __new__(cls, value, by, host_ms):
        self = super().__new__(cls, value)
        self.by, self.host_ms = by, host_ms
        return self

    def __reduce__(self):
        return Milliseconds, (float(self), self.by, self.host_ms)


def simulated(fn):
    """(milliseconds on the chip of the kernels that one call of fn launches, or None; milliseconds on the host)."""
    times, clock = [], [0.0]

    def launched(kernel, values, views, recorded):
        began = time.perf_counter()
        times.append(Profile(kernel, values, follow=recorded).us)
        clock[0] += time.perf_counter() - began

    token = LAUNCHES.set(launched)
    try:
        host = _time(fn)
    finally:
        LAUNCHES.reset(token)
    return (sum(times) * 1e-3 if times else None), host - clock[0] * 1e3


def _function(name, given, like="lambda A, B: A @ B"):
    if not callable(given):
        raise ArgumentError(f"{name} takes a function, not {what(given)}", like)
    return given


def do_bench(fn, warmup=25, rep=100, n_warmup=0, n_repeat=0, quantiles=None, return_mode="mean", **ignored):
    """Milliseconds of one call of fn. Where fn launches kernels on the simulated chip: what they take there by its
    clock, the same every time; a warning says so once. Else time on the host: `warmup` and `rep` are milliseconds to
    spend, at least one call each is made. The number that comes back knows which it is: `.by`, and `.host_ms`."""
    if return_mode not in _MODES:
        raise ArgumentError(
            f"do_bench: return_mode={return_mode!r}; one of {', '.join(_MODES)}", f"one of {', '.join(_MODES)}"
        )
    chip, first = simulated(_function("do_bench", fn, "do_bench(lambda: kernel(a, b))"))
    if chip is not None:
        warn(f"do_bench: {chip:.4g} ms is simulated time of the chip; simulating took {first:.4g} ms here", 1025)
        found = Milliseconds(chip, "simulated chip", first)
        return [found] * len(quantiles) if quantiles and len(quantiles) > 1 else found
    found = _bench_host(fn, first, warmup, rep, n_warmup, n_repeat, quantiles, return_mode)
    return found if isinstance(found, list) else Milliseconds(found, "host", first)


def _bench_host(fn, first, warmup, rep, n_warmup, n_repeat, quantiles, return_mode):
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
        even = supply in (TensorSupplyType.Uniform, TensorSupplyType.Auto)
        made = rng.uniform(-1, 1, shape) if even else rng.standard_normal(shape)
        if supply is TensorSupplyType.Normal:
            made -= 1
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
    """None if two results agree, else what differs. Each is a tensor, or a list or tuple of tensors."""
    import numpy

    several = isinstance(got, (list, tuple))
    got = list(got) if several else [got]
    want = list(want) if isinstance(want, (list, tuple)) and (several or len(want) == 1) else [want]
    if len(got) != len(want):
        return f"there are {len(got)} results, the reference has {len(want)}"
    for k, (a, b) in enumerate(zip(got, want)):
        if a is None or b is None:
            return f"{'the kernel' if a is None else 'the reference'} returns nothing: out_idx says which parameters do"
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

    @property
    def func(self):
        """The kernel."""
        return self.kernel

    def _get_inputs(self, with_output=False):
        return self._inputs(None)

    def run_once(self, func=None):
        return _function("run_once", func or self.kernel)(*self._inputs(None))

    def do_bench(self, func=None, warmup=25, rep=100, n_warmup=0, n_repeat=0, input_tensors=None, **options):
        """Milliseconds of one call, as do_bench tells them."""
        inputs, fn = self._inputs(input_tensors), _function("do_bench", func or self.kernel)
        return do_bench(lambda: fn(*inputs), warmup, rep, n_warmup, n_repeat, **options)

    def assert_allclose(self, reference_program, input_tensors=None, atol=1e-2, rtol=1e-2, max_mismatched_ratio=0.01):
        """Raises AssertionError when the kernel and the reference differ."""
        _function("assert_allclose", reference_program)
        inputs = self._inputs(input_tensors)
        found = agree(self.kernel(*inputs), reference_program(*inputs), rtol, atol, max_mismatched_ratio)
        if found:
            raise AssertionError(f"{self.kernel.name}: {found}")
