"""torch without a card: the words "npu" and "cuda" as devices, on host memory.

Both stand for host memory wherever torch takes a device: factory functions, `.to`, `torch.device`, modules,
generators, loading. "cuda" is there because programs in mainline TileLang say it; the chip is the same.
Going to the card and coming back are copies, as they are with a card: a kernel that writes in
place does not change the tensor that was sent. What is on the card already stays where it is under `.to("npu")`:
tensors are taken to be there unless a factory function made them for the host, which leaves a mark on them, or
`.cpu()` did.

Half precision matrix products are computed in float32 and rounded once, as the cube does; on the host they would
take minutes otherwise. Functions such as exp are rounded once. A source that overlaps its destination is copied
first.
"""

import functools

CARDS = ("npu", "cuda")


def is_card(device):
    """Does a program name a card? A bare number is one too."""
    return type(device) is int or isinstance(device, str) and device.split(":")[0] in CARDS


def host(device):
    """The device to use for one that a program names."""
    return "cpu" if is_card(device) else device


def _positional(args):
    """`x.to("npu")` and its like: the first device among the positional arguments."""
    return tuple(host(a) for a in args)


def _takes_device(fn):
    @functools.wraps(fn)
    def call(*args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = host(kwargs["device"])
        return fn(*args, **kwargs)

    return call


class Default:
    """Are tensors made on the card when a program does not say?"""

    card = False


def _makes(fn, default, Tensor):
    """A factory function: what it makes for the host is marked. Host memory is near the card as it is."""

    @functools.wraps(fn)
    def call(*args, **kwargs):
        device = kwargs.get("device")
        kwargs.pop("pin_memory", None)
        if device is not None:
            kwargs["device"] = host(device)
        out = fn(*args, **kwargs)
        if isinstance(out, Tensor) and (device == "cpu" if device is not None else not default.card):
            out.tl_host = True
        return out

    return call


def _make_device(real):
    class Kind(type(real)):
        def __instancecheck__(cls, obj):
            return isinstance(obj, real)

        def __subclasscheck__(cls, other):
            return other is cls or issubclass(other, real)

    class device(metaclass=Kind):
        """torch.device, which knows the cards."""

        def __new__(cls, *args, **kwargs):
            if "type" in kwargs:
                kwargs["type"] = host(kwargs["type"])
            if args and is_card(args[0]):
                return real("cpu")
            return real(*args, **kwargs)

    return device


# torch functions that take device= besides those torch itself lists
_LIKE = (
    "empty_like zeros_like ones_like full_like rand_like randn_like randint_like from_file frombuffer complex "
    "normal bernoulli Generator vander"
).split()
_METHODS = "new_empty new_zeros new_ones new_full new_tensor new_empty_strided".split()


def _factories(torch):
    from torch.utils import _device

    names = {f.__name__ for f in _device._device_constructors()} | set(_LIKE)
    return sorted(n for n in names if callable(getattr(torch, n, None)))


def patch_devices(p, torch):
    """Device arguments of functions, methods and modules."""
    Tensor, Module = torch.Tensor, torch.nn.Module
    real_to, real_cpu = Tensor.to, Tensor.cpu

    def there(self, non_blocking=False, **kwargs):
        return self.clone(memory_format=torch.contiguous_format)

    def to_card(self, device=None, non_blocking=False, memory_format=None):
        """A copy on the card, contiguous."""
        return there(self)

    def on_host(self):
        return getattr(self, "tl_host", False)

    @functools.wraps(real_to)
    def to(self, *args, **kwargs):
        names = [a for a in (*args[:1], kwargs.get("device")) if isinstance(a, str) or is_card(a)]
        if "device" in kwargs:
            kwargs["device"] = host(kwargs["device"])
        out = real_to(self, *_positional(args), **kwargs)
        if out is self and names and is_card(names[0]):
            return there(out) if on_host(self) else out.contiguous()
        if names and names[0] == "cpu":
            out = out.clone() if out is self and not on_host(self) else out
            out.tl_host = True
        return out

    @functools.wraps(real_cpu)
    def cpu(self, *args, **kwargs):
        out = real_cpu(self, *args, **kwargs)
        out = out.clone() if out is self and not on_host(self) else out
        out.tl_host = True
        return out

    default = Default()

    def set_default(old):
        def set_default_device(device):
            default.card = is_card(device)
            old(None if default.card else device)

        return set_default_device

    for word in CARDS:
        p.set(Tensor, word, to_card)
        p.set(Module, word, lambda self, device=None: self)
    p.set(Tensor, "is_npu", property(lambda self: False))
    p.set(Tensor, "pin_memory", lambda self, *args: self)
    p.set(Tensor, "to", to)
    p.set(Tensor, "cpu", cpu)
    for name in _METHODS:
        p.wrap(Tensor, name, _takes_device)
    p.set(torch, "device", _make_device(torch.device))
    for name in _factories(torch):
        if name == "Generator":
            p.set(torch, name, _make_generator(torch.Generator))
        else:
            p.wrap(torch, name, functools.partial(_makes, default=default, Tensor=Tensor))
    p.wrap(torch, "set_default_device", set_default)
    p.wrap(torch, "load", _loads)
    module_to = Module.to
    p.set(Module, "to", functools.wraps(module_to)(
        lambda self, *a, **k: module_to(self, *_positional(a), **{n: host(v) for n, v in k.items()})
    ))  # fmt: skip
    autocast = torch.amp.autocast_mode.autocast
    p.wrap(autocast, "__init__", lambda old: lambda self, device_type, *a, **k: old(self, host(device_type), *a, **k))


def _make_generator(real):
    class Kind(type(real)):
        def __instancecheck__(cls, obj):
            return isinstance(obj, real)

    class Generator(metaclass=Kind):
        def __new__(cls, device="cpu"):
            return real(host(device))

    return Generator


def _loads(old):
    @functools.wraps(old)
    def load(f, map_location=None, *args, **kwargs):
        if isinstance(map_location, dict):
            map_location = {host(k): host(v) for k, v in map_location.items()}
        return old(f, host(map_location), *args, **kwargs)

    return load


# ---- what the host's half precision lacks --------------------------------------------------------------------

_PRODUCTS = {
    "": (
        "matmul mm bmm mv dot inner outer addmm addmv addbmm baddbmm einsum tensordot chain_matmul conv1d conv2d conv3d"
    ),
    "Tensor": "matmul __matmul__ __rmatmul__ mm bmm mv dot inner outer addmm addmv addbmm baddbmm",
    "functional": "linear conv1d conv2d conv3d scaled_dot_product_attention",
}


def _in_float(torch, fn):
    half, float32, Tensor = torch.float16, torch.float32, torch.Tensor

    def wide(v):
        if isinstance(v, Tensor) and v.dtype is half:
            return v.to(float32)
        if isinstance(v, (list, tuple)):
            return type(v)([wide(x) for x in v]) if any(isinstance(x, (Tensor, list, tuple)) for x in v) else v
        return v

    def has_half(v):
        return any(
            x.dtype is half if isinstance(x, Tensor) else isinstance(x, (list, tuple)) and has_half(x) for x in v
        )

    @functools.wraps(fn)
    def call(*args, **kwargs):
        if not has_half(args) or "out" in kwargs:
            return fn(*args, **kwargs)
        out = fn(*wide(args), **{k: wide(v) for k, v in kwargs.items()})
        return out.to(half) if isinstance(out, Tensor) and out.dtype is float32 else out

    return call


def patch_half(p, torch):
    """Products of half precision tensors, computed in float32."""
    import torch.nn.functional as functional

    for where, owner in (("", torch), ("Tensor", torch.Tensor), ("functional", functional)):
        for name in _PRODUCTS[where].split():
            p.wrap(owner, name, functools.partial(_in_float, torch))


_ROUNDED = "exp log log2 sin cos tanh sigmoid rsqrt erf"


def patch_functions(p, torch):
    """Functions of float32 tensors, rounded once: the host's fast versions are off by a unit here and there,
    which shows
    where a program compares half precision results for equality."""
    float32, Tensor = torch.float32, torch.Tensor

    def rounded(fn):
        @functools.wraps(fn)
        def call(input, *args, **kwargs):
            if not isinstance(input, Tensor) or input.dtype is not float32 or args or kwargs:
                return fn(input, *args, **kwargs)
            return fn(input.double()).to(float32)

        return call

    for name in _ROUNDED.split():
        p.wrap(torch, name, rounded)
        p.wrap(Tensor, name, rounded)


def patch_overlap(p, torch):
    """Assignments whose source shares memory with the destination, or is an int the dtype does not hold."""
    Tensor = torch.Tensor
    setitem, copy_ = Tensor.__setitem__, Tensor.copy_

    @functools.wraps(setitem)
    def assign(self, index, value):
        try:
            return setitem(self, index, value)
        except RuntimeError as e:
            if isinstance(value, int) and "without overflow" in str(e):  # wraps, as it did when scripts were written
                return setitem(self, index, torch.tensor(value).to(self.dtype))
            if not isinstance(value, Tensor) or "memory location" not in str(e):
                raise
        return setitem(self, index, value.clone())

    @functools.wraps(copy_)
    def copy(self, src, *args, **kwargs):
        try:
            return copy_(self, src, *args, **kwargs)
        except RuntimeError as e:
            if "memory location" not in str(e):
                raise
        return copy_(self, src.clone(), *args, **kwargs)

    p.set(Tensor, "__setitem__", assign)
    p.set(Tensor, "copy_", copy)


def patch_targets(p, torch):
    """Losses take class numbers of any integer type."""
    import torch.nn.functional as functional

    def wide(fn):
        @functools.wraps(fn)
        def call(input, target, *args, **kwargs):
            if target.dtype in (torch.int32, torch.int16, torch.int8):
                target = target.long()
            return fn(input, target, *args, **kwargs)

        return call

    for name in ("cross_entropy", "nll_loss"):
        p.wrap(functional, name, wide)
