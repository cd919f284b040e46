"""Sizes of an Ascend chip, asked of the compiler."""

import functools


@functools.lru_cache(maxsize=None)
def _memories(chip):
    """{memory: bytes}, read off a small kernel compiled for the chip."""
    from ... import language as T
    from ...jit import compile

    @T.prim_func
    def probe(a: T.Tensor((16, 16), "float16"), b: T.Tensor((16, 16), "float16"), c: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            x, y = T.alloc_L1((16, 16), "float16"), T.alloc_L1((16, 16), "float16")
            z = T.alloc_L0C((16, 16), "float32")
            T.copy(a, x)
            T.copy(b, y)
            T.gemm_v0(x, y, z, init=True)
            T.copy(z, c)

    return {m["space"]: m["available"] for m in compile(probe, chip=chip).explain_json()["memory"]}


class Ascend:
    """A chip: memories in bytes, cores, and what one core moves a cycle."""

    bytes_per_cycle = 64.0  # of one core from L2, all cores together
    step_cycles = 200  # start of one K step: a flag and the latency of a copy

    def __init__(self, chip=None):
        from ...kernel import chip_named

        self.name, self.family, self.cores, self.vector_cores, self.mhz = chip_named(chip)
        sizes = _memories(self.name)
        self.l1, self.l0c = sizes["l1"], sizes["l0c"]

    def __repr__(self):
        return f"Ascend({self.name})"
