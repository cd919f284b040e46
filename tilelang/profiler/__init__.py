"""How long a kernel takes: on the simulated chip (`kernel.profile`), and on this host (`do_bench`)."""

from .bench import Profiler, TensorSupplyType, agree, do_bench, host_kind, make_inputs, make_tensor
from .profile import Line, Profile, profile

__all__ = [
    "Line",
    "Profile",
    "Profiler",
    "TensorSupplyType",
    "agree",
    "do_bench",
    "host_kind",
    "make_inputs",
    "make_tensor",
    "profile",
]
