"""@tilelang.autotune: tries the configurations of a kernel and keeps the best.

A configuration that does not compile, faults or gives other numbers than the reference is left out, and why is kept:
`kernel.get_tuner_result()["tried"]`, with the warnings of each; those of the best one are shown. What is compared is
milliseconds as do_bench tells them: on the simulated chip those of its clock; "by" says which.
"""

import contextlib
import functools
import inspect
import typing
import warnings

from ..errors import ArgumentError, CompileError, TileLangError, rightly
from ..jit import JITFunction, jit
from ..tensors import is_tensor, what
from ..profiler import TensorSupplyType, agree, do_bench, make_inputs


class Result(typing.NamedTuple):
    """What AutoTuner.run gives; latencies in milliseconds."""

    kernel: object
    config: dict
    latency: float
    ref_latency: float | None


class AutoTuner:
    """What the decorator gives: call it like the function, without the arguments that the configurations give."""

    def __init__(self, fn, configs, options):
        if not isinstance(fn, JITFunction):
            raise ArgumentError(
                "@tilelang.autotune stands above @tilelang.jit",
                "@tilelang.autotune(configs=[...]) above @tilelang.jit above the function",
            )
        functools.update_wrapper(self, fn)
        once = hasattr(configs, "__next__")  # a generator, which gives them once
        self.jit, self.configs, self.options = fn, list(configs) if once else configs, options
        self.signature = inspect.signature(fn.fn)
        self.found = {}

    def __getattr__(self, name):
        return getattr(self.jit, name)

    @classmethod
    def from_kernel(cls, kernel, configs):
        """A tuner for a function of the configurations that returns a prim_func: `.set_compile_args(out_idx=[-1])
        .set_profile_args(ref_prog=f).run()`. Without these calls, the options of jit and autotune are the defaults."""
        return cls(jit(kernel), configs, _options())

    def set_compile_args(self, **options):
        """Options of @tilelang.jit."""
        self.jit = jit(self.jit.fn, **options)
        return self

    def set_profile_args(self, **options):
        """Options of @tilelang.autotune."""
        self.options.update((k, v) for k, v in options.items() if k in self.options)
        return self

    def run(self, **ignored):
        """The best of all configurations, as a Result."""
        best = self._tune((), {}, self._configs((), {}))
        return Result(best, best.config, best.latency, best.ref_latency)

    def _configs(self, args, kwargs):
        found = self.configs
        if callable(found):
            found = found(tuple(args), tuple(sorted(kwargs.items())))
        names = list(self.signature.parameters)
        out = []
        if isinstance(found, (str, dict)) or not hasattr(found, "__iter__"):
            raise ArgumentError(
                f"autotune: configs is {what(found)}, wanted a list of configurations",
                "configs=[{argument: value}, ...], or a function that gives such a list",
            )
        for c in found:
            if not isinstance(c, (dict, list, tuple)):
                raise ArgumentError(
                    f"autotune: {what(c)} is no configuration", "{argument: value}, or a value for each argument"
                )
            if not isinstance(c, dict):
                free = [n for n in names if n not in kwargs][len(args) :]
                if len(c) > len(free):
                    raise ArgumentError(
                        f"autotune: the configuration {c!r} has {len(c)} values, '{self.jit.__name__}' {len(free)} "
                        "arguments left",
                        "a value for each argument, or {argument: value}",
                    )
                c = zip(free, c)
            c = dict(c)
            unknown = [n for n in c if n not in names]
            if unknown:
                raise ArgumentError(
                    f"autotune: '{self.jit.__name__}' has no argument '{unknown[0]}'",
                    "the keys of a configuration are names of its arguments",
                )
            out.append(c)
        if not out:
            raise ArgumentError(
                f"autotune: there is no configuration for '{self.jit.__name__}'",
                "configs=[{...}, ...] with at least one",
            )
        return out

    def __call__(self, *args, **kwargs):
        best = self._best(args, kwargs)
        if best is None:
            return self.jit(*args, **kwargs)
        return self.jit(*args, **{**kwargs, **best.config}) if self.jit.style == "eager" else best

    def compile(self, *args, **kwargs):
        """The kernel, tuned where the arguments leave a choice; it is not called."""
        return self._best(args, kwargs) or self.jit.compile(*args, **kwargs)

    def _best(self, args, kwargs):
        """The best kernel; None when the arguments leave no choice."""
        given = set(list(self.signature.parameters)[: len(args)]) | set(kwargs)
        needed = {n for n, p in self.signature.parameters.items() if p.default is inspect.Parameter.empty}
        configs = self.configs if callable(self.configs) else self._configs(args, kwargs)
        if not callable(configs) and all(set(c) <= given for c in configs) or callable(configs) and needed <= given:
            return None
        key = tuple((n, _key(v)) for n, v in self._named(args, kwargs).items())
        if key not in self.found:
            self.found[key] = self._tune(args, kwargs, self._configs(args, kwargs))
        return self.found[key]

    def _named(self, args, kwargs):
        """{name: argument} in the order of the parameters, however the caller gave them."""
        try:
            return dict(self.signature.bind_partial(*args, **kwargs).arguments)
        except TypeError:  # @tilelang.jit says what is wrong with them
            return {**dict(enumerate(args)), **kwargs}

    def _tune(self, args, kwargs, configs):
        tried, best = [], None
        eager = self.jit.style == "eager"
        tensors = [v for v in self._named(args, kwargs).values() if is_tensor(v)] if eager else None
        reference = Reference(self.options, tensors or None)
        for config in configs:
            entry = {"config": config}
            tried.append(entry)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    kernel = self.jit.compile(*args, **{**kwargs, **config})
                    entry["latency"], by = reference.measure(kernel)
                except (TileLangError, AssertionError, ValueError, ZeroDivisionError) as e:
                    entry["reason"] = _reason(e)
            if said:
                entry["warnings"] = [str(w.message) for w in said]
            if "latency" in entry and (best is None or entry["latency"] < best[0]["latency"]):
                best = (entry, kernel, by, said)
        if best is None:
            reasons = "\n".join(f"  {t['config']}: {t['reason']}" for t in tried)
            raise ArgumentError(
                f"autotune: no configuration of '{self.jit.__name__}' works:\n{reasons}",
                "start with a configuration that compiles: call the function with its values",
            )
        entry, kernel, by, said = best
        for w in said:  # of the others: in "tried"
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        kernel.tuner_result = {
            "latency": entry["latency"], "config": entry["config"], "ref_latency": reference.latency, "by": by,
            "tried": tried,
        }  # fmt: skip
        kernel.latency, kernel.config, kernel.ref_latency = entry["latency"], entry["config"], reference.latency
        return kernel


def _key(v):
    return (tuple(v.shape), str(v.dtype)) if is_tensor(v) else repr(v)


def _copied(v):
    """A tensor that kernels may write to."""
    return v.clone() if hasattr(v, "clone") else v.copy()


def _reason(e):
    if isinstance(e, CompileError) and e.errors:
        return f"{e.errors[0].code}: {e.errors[0].text}"
    return f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"


_given = []  # of set_autotune_inputs, innermost last


@contextlib.contextmanager
def set_autotune_inputs(*inputs):
    """`with set_autotune_inputs(a, b):` - kernels that are tuned inside are measured with these tensors."""
    _given.append(list(inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else list(inputs))
    try:
        yield
    finally:
        _given.pop()


class Reference:
    """Inputs and expected results, made once."""

    def __init__(self, options, tensors=None):
        """`tensors`: of the call that is tuned, where there is one; else inputs are made."""
        self.tensors = tensors
        self.options, self.inputs, self.wanted, self.latency = options, None, None, None

    def measure(self, kernel):
        """(milliseconds, by which clock) of a kernel that gives the right numbers."""
        o = self.options
        if self.inputs is None or not o["cache_input_tensors"]:
            given = _given[-1] if _given else self.tensors
            supply = (lambda params: given) if given is not None else o["supply_prog"]
            params = [kernel.params[i] for i in kernel.inputs]
            self.inputs = list(supply(params)) if supply else make_inputs(kernel, o["supply_type"])
            self.wanted = None
        got = kernel(*self.copies())
        if o["ref_prog"] is not None and not o["skip_check"]:
            if self.wanted is None:
                made = []
                given = self.copies()
                self.latency = do_bench(lambda: made.append(o["ref_prog"](*given)), warmup=0, rep=0)
                self.wanted = made[0]
            if o["manual_check_prog"]:
                o["manual_check_prog"](self.inputs, self.wanted)
            found = agree(got, self.wanted, o["rtol"], o["atol"], o["max_mismatched_ratio"])
            if found:
                raise AssertionError(found)
        if kernel.device == "sim":
            return kernel.profile(*self.copies()).us * 1e-3, "simulated chip"
        given = self.copies()
        return do_bench(lambda: kernel(*given), warmup=0, rep=0), "host"

    def copies(self):
        """The inputs, for one that may write to them."""
        return [_copied(v) if is_tensor(v) else v for v in self.inputs]


def _options(*, supply_type=TensorSupplyType.Auto, ref_prog=None, supply_prog=None, rtol=1e-2, atol=1e-2,
             max_mismatched_ratio=0.01, skip_check=False, manual_check_prog=None, cache_input_tensors=True,
             **ignored):  # fmt: skip
    for name, given in (("ref_prog", ref_prog), ("supply_prog", supply_prog), ("manual_check_prog", manual_check_prog)):
        if given is not None and not callable(given):
            raise ArgumentError(f"autotune: {name} is {what(given)}, wanted a function", f"{name}=lambda ...: ...")
    return dict(
        supply_type=supply_type, ref_prog=ref_prog, supply_prog=supply_prog, rtol=rtol, atol=atol,
        max_mismatched_ratio=max_mismatched_ratio, skip_check=skip_check, manual_check_prog=manual_check_prog,
        cache_input_tensors=cache_input_tensors,
    )  # fmt: skip


@rightly("tilelang.autotune", ArgumentError)
def autotune(func=None, *, configs, **options):
    """Decorator above @tilelang.jit. `configs`: a list of {argument: value}, or a function of (args, kwargs) that gives
    one. Options: supply_type, supply_prog (inputs), ref_prog, rtol, atol, max_mismatched_ratio, skip_check,
    manual_check_prog, cache_input_tensors."""
    options = _options(**options)

    def wrap(fn):
        return AutoTuner(fn, configs, options)

    return wrap if func is None else wrap(func)


__all__ = ["AutoTuner", "autotune", "set_autotune_inputs"]
