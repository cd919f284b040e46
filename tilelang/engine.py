"""tilelang.engine.lower: a kernel as source, without a call."""

from .errors import ArgumentError


class CompiledArtifact:
    """`kernel_source`, and the Kernel it came from."""

    def __init__(self, kernel, source):
        self.kernel, self.kernel_source = kernel, source
        self.params = kernel.params

    def __repr__(self):
        return f"<artifact of {self.kernel.name}>"


def lower(func, target="auto", target_host=None, platform="auto", **options):
    """Compiles a prim_func and writes its source for the chip."""
    from .jit import compile
    from .kernel import Kernel

    if isinstance(func, dict) or func is None:
        raise ArgumentError(
            f"engine.lower takes a prim_func, not {type(func).__name__}", "mark the kernel with @T.prim_func"
        )
    kernel = func if isinstance(func, Kernel) else compile(func, target=target, platform=platform, **options)
    return CompiledArtifact(kernel, kernel.get_kernel_source())
