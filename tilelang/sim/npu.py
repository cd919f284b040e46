"""The modules torch.npu and torch.cuda of a machine with simulated cards."""

import contextlib
import os
import time
import types


class Properties:
    """What get_device_properties says of the chip that kernels run on."""

    def __init__(self, chip):
        name, family, cube, vector, mhz = chip
        self.name = f"Ascend{name}"
        self.family = family
        self.cube_core_num, self.vector_core_num = cube, vector
        self.aic_core_num, self.aiv_core_num = cube, vector
        self.multi_processor_count = cube
        self.clock_rate = mhz * 1000
        self.total_memory = 64 << 30
        self.shared_memory_per_block = self.shared_memory_per_multiprocessor = 192 << 10  # UB of a vector core
        self.L2_cache_size = 192 << 20
        self.major, self.minor = 0, 0

    def __repr__(self):
        return (
            f"_NPUDeviceProperties(name='{self.name}', cube_core_num={self.cube_core_num},"
            f" vector_core_num={self.vector_core_num})"
        )


class Event:
    """A moment on the host's clock: kernels run to their end when they are called."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.at = None

    def record(self, stream=None):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        """Milliseconds."""
        return (end.at - self.at) * 1e3

    def query(self):
        return True

    def wait(self, stream=None):
        pass

    def synchronize(self):
        pass


class Stream:
    """Work is done when it is asked for, so every stream is in order with every other."""

    _as_parameter_ = None
    npu_stream = 0

    def __init__(self, device=None, priority=0, **kwargs):
        self.device, self.priority = device, priority

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None

    def record_event(self, event=None):
        event = event or Event(enable_timing=True)
        event.record(self)
        return event

    def query(self):
        return True

    def _nothing(self, *args, **kwargs):
        pass

    wait_stream = wait_event = synchronize = _nothing


def current_chip():
    from ..kernel import chip_named

    return chip_named(os.environ.get("TILELANG_CHIP"))


def make_module(torch):
    """The module torch.npu."""
    from .graph import NPUGraph, graph

    m = types.ModuleType("torch.npu", "Simulated Ascend cards behind torch's names.")
    here, stream = {"device": 0}, Stream()

    def nothing(*args, **kwargs):
        return None

    def set_device(device):
        here["device"] = int(str(device).rsplit(":", 1)[-1]) if str(device)[-1].isdigit() else 0

    @contextlib.contextmanager
    def on_device(device):
        before = here["device"]
        set_device(device)
        yield
        here["device"] = before

    m.is_available = m.is_initialized = lambda: True
    m.device_count = lambda: 1
    m.current_device = lambda: here["device"]
    m.set_device, m.device = set_device, on_device
    m.get_device_properties = lambda device=None: Properties(current_chip())
    m.get_device_name = lambda device=None: Properties(current_chip()).name
    m.get_device_capability = lambda device=None: None
    m.get_soc_version = lambda: 220
    m.init = m.synchronize = m.empty_cache = m.set_compile_mode = m.set_option = nothing
    m.finalize_dump = m.init_dump = m.reset_peak_memory_stats = m.set_stream = nothing
    m.memory_allocated = m.max_memory_allocated = m.memory_reserved = m.max_memory_reserved = lambda device=None: 0
    m.mem_get_info = lambda device=None: (64 << 30, 64 << 30)
    m.manual_seed = m.manual_seed_all = torch.manual_seed
    m.initial_seed, m.seed = torch.initial_seed, torch.seed
    m.get_rng_state = lambda device=None: torch.get_rng_state()
    m.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    m.is_bf16_supported = lambda *args: True
    m.current_stream = m.default_stream = lambda device=None: stream
    m.stream = lambda s: contextlib.nullcontext(s)
    m.Stream, m.Event = Stream, Event
    m.NPUGraph, m.graph = NPUGraph, graph
    m.config = types.SimpleNamespace(allow_internal_format=False)
    m.amp = types.SimpleNamespace(autocast=lambda *a, **k: torch.autocast("cpu", *a, **k))
    return m


def patch_cuda(p, torch, module, capability):
    """torch.cuda answers as torch.npu does. `capability` (major, minor) is what get_device_capability says: programs
    choose tile sizes by it."""
    for name, value in vars(module).items():
        if not name.startswith("_") and name not in ("NPUGraph", "graph", "config", "amp"):
            p.set(torch.cuda, name, value)
    p.set(torch.cuda, "get_device_capability", lambda device=None: capability)
    for name in ("manual_seed", "manual_seed_all"):  # torch.manual_seed calls these
        p.set(torch.cuda, name, torch.default_generator.manual_seed)
    marks = types.SimpleNamespace(range_start=lambda *a: 0, range_end=lambda *a: None, mark=lambda *a: None,
                                  range_push=lambda *a: 0, range_pop=lambda *a: None)  # fmt: skip
    p.set(torch.cuda, "nvtx", marks)
    p.set(torch.cuda, "profiler", types.SimpleNamespace(start=lambda: None, stop=lambda: None))
