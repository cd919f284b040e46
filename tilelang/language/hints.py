"""Hints of the dialects: accepted, noted, without effect here. And the names that are refused by name."""

from ..errors import fail
from ..frontend.builder import active

# name -> why it does nothing
_NOTED = {
    "annotate_layout": "layouts are chosen by the compiler",
    "annotate_safe_value": "what lies outside a tensor is read as the copy's pad_value",
    "annotate_l2_hit_ratio": "there is no such control",
    "annotate_restrict_buffers": "tensors of a kernel are taken as distinct",
    "annotate_min_blocks_per_sm": "there is no such control",
    "annotate_pass_configs": "give pass_configs= to @tilelang.jit",
    "annotate_compile_flags": "nothing is compiled for a host here",
    "func_attr": "attributes have no meaning here",
    "assume": "bounds are proven or checked, not assumed",
    "pdl_sync": "launches of kernels follow each other",
    "no_set_max_nreg": "there are no registers to set",
    "disable_warp_group_reg_alloc": "there are no warps",
}

REFUSED = {
    **dict.fromkeys(
        "alloc_barrier alloc_tmem alloc_descriptor ClusterKernel CUDASourceCodeKernel tma_copy copy_cluster wgmma_gemm "
        "tcgen05_gemm gemm_sp warp_reduce_sum warp_reduce_max warp_reduce_min warp_reduce_bitand "
        "warp_reduce_bitor call_extern call_intrin ptx_arrive_barrier mbarrier_wait_parity "
        "import_source dp4a".split(),
        "it is a feature of GPUs that Ascend has not",
    ),
    **dict.fromkeys(
        "uint4 float4_e2m1fn float6_e2m3fn float6_e3m2fn".split(),
        "of the elements smaller than a byte there is int4 only; take uint8 with two values a byte and unpack them "
        "with shifts in T.Parallel",
    ),
    **dict.fromkeys(
        "async_copy atomic_max atomic_min atomic_or atomic_addx2 atomic_addx4 atomic_load atomic_store shmem_put_nbi "
        "shmem_get_nbi shmem_ub_put_nbi shmem_ub_get_nbi make_tensor ptr PersistentTileScheduler "
        "any_of all_of meta_class".split(),
        "it is not supported yet",
    ),
}

# functions that no instruction of the chip computes -> what to write instead
_INSTEAD = {
    "erf": "gelu within 5e-4: 0.5 * x * (1.0 + T.tanh(0.79788456 * (x + 0.044715 * x * x * x)))",
    "tan": "T.sin(x) / T.cos(x)",
    "sinh": "0.5 * (T.exp(x) - T.exp(-x))",
    "cosh": "0.5 * (T.exp(x) + T.exp(-x))",
    "log10": "T.log(x) * 0.4342944819",
    "log1p": "T.log(1.0 + x)",
    "exp10": "T.exp(x * 2.302585093)",
    "hypot": "T.sqrt(x * x + y * y)",
    "fabs": "T.abs(x)",
    "nearbyint": "T.round(x)",
    "rint": "T.round(x)",
    "trunc": "T.if_then_else(x < 0.0, T.ceil(x), T.floor(x))",
    "copysign": "T.if_then_else(y < 0.0, -T.abs(x), T.abs(x))",
    "isnan": "x != x",
    **dict.fromkeys(("fmod", "mod"), "T.truncmod(a, b) or a % b of integers"),
    **dict.fromkeys("erfc asin acos atan atan2 asinh acosh atanh ldexp nextafter popcount isinf isfinite".split()),
}
REFUSED.update(dict.fromkeys(_INSTEAD, "no instruction of the chip computes it"))


def _make(name, why):
    def function(*args, **kwargs):
        b = active()
        if b is not None:
            b.note(f"T.{name} has no effect here: {why}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"No effect here: {why}."
    return function


for _n, _w in _NOTED.items():
    globals()[_n] = _make(_n, _w)


def refuse(name, kind):
    instead = _INSTEAD.get(name)
    fail(1002, f"T.{name} is refused: {REFUSED[name]}", fix=f"write {instead}" if instead else None, kind=kind)


__all__ = [*_NOTED]
