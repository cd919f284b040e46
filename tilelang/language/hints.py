"""Hints of the dialects: accepted, noted, without effect here. And the names that are refused by name."""

import functools
import re

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
    "pdl_trigger": "launches of kernels follow each other",
    **dict.fromkeys(
        "no_set_max_nreg set_max_nreg annotate_producer_reg_dealloc annotate_consumer_reg_alloc".split(),
        "there are no registers to set",
    ),
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
        "any_of all_of meta_class handle".split(),
        "it is not supported yet",
    ),
}

# names by their beginning -> why they are refused, what to write instead
_FAMILIES = [
    (r"(annotate_ws|mbarrier|barrier|named_barrier|cluster|clc|cp_async|tma|tcgen05|fence)_|alloc_\w*(barrier|desc)|WS|"
     r"ws(_|$)|\w*(_in_cluster|tmem|tma_descriptor)$",
     "it is a feature of GPUs that Ascend has not",
     "nothing: the order of the pipes is found, T.Pipelined lets copies run ahead"),
    (r"mfma|ptx_mma|tvm_mfma|\w*wgmma|\w*_blockscaled$", "it is a feature of GPUs that Ascend has not", "T.gemm"),
    (r"(ld|st)[gs]\d+$|__ldg$", "it is a feature of GPUs that Ascend has not",
     "the element, x[i], or T.copy of a whole tile"),
    (r"shfl_|shuffle_|\w*ballot|activemask|(any|all|match_any|match_all)_sync$|syncthreads_|\w*warp|__(ffs|fns)$|"
     r"get_lane",
     "there are no warps of threads", "the whole tile at once: T.Parallel, T.reduce_sum, T.reduce_max"),
    (r"ptx_|tvm_|call_|ds_read|extern", "it is a feature of GPUs that Ascend has not", "the same in T.*"),
    (r"__(exp|log|sin|cos|log2|exp10|log10|tan)$|ieee_|fast_", "how a function rounds is the chip's",
     "the plain operator or function: a + b, T.exp(x)"),
    (r"\w+\d+x\d+$|(add|sub|mul|max|min|abs|fma)2$|Ramp$|Broadcast$|Shuffle$|extract_lane$",
     "there are no vectors of elements in the language",
     "a tile: T.Parallel, a slice x[0:n], T.fill"),
    (r"u?(int|float)[1246](_\w+)?$", "of the elements smaller than a byte there is int4 only",
     "T.uint8, two values a byte"),
    (r"rng_", "the chip has no random numbers", "a tensor parameter with random numbers"),
    (r"(float64|double|complex\d*)$", "the chip has no such dtype", "T.float32"),
    (r"float8_\w+$", "the chip has no such dtype", "T.float8_e4m3fn or T.float8_e5m2"),
    (r"launch_thread|env_thread|get_block_binding$", "blocks come from T.Kernel", "with T.Kernel(n) as bx:"),
    (r"decl_buffer|match_buffer|sblock|block$|reads$|writes$|access_ptr|address_of|buffer_(load|store)|bind$|let$",
     "it belongs to the script of TVM", "a T.Tensor parameter or T.alloc_shared, and x[i]"),
]  # fmt: skip

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
    "copysign": "T.if_then_else(y < 0.0, -T.abs(x), T.abs(x))",
    "isnan": "x != x",
    **dict.fromkeys(("fmod", "mod"), "T.truncmod(a, b) as C, a % b as Python"),
    "isinf": "T.abs(x) == T.infinity(dtype)",
    "isfinite": "T.abs(x) < T.infinity(dtype)",
    "ldexp": "x * T.exp2(n)",
    "erfc": "1.0 - erf(x), with what stands for erf",
    "popcount": "shifts and masks: x - ((x >> 1) & 0x55555555) and so on",
    **dict.fromkeys(
        "asin acos atan atan2 asinh acosh atanh nextafter".split(), "a polynomial of x in T.Parallel, or the host"
    ),
}
REFUSED.update(dict.fromkeys(_INSTEAD, "no instruction of the chip computes it"))
_INSTEAD.update(
    {
        **dict.fromkeys("tma_copy copy_cluster async_copy".split(), "T.copy; T.Pipelined lets it run ahead"),
        **dict.fromkeys("wgmma_gemm tcgen05_gemm dp4a".split(), "T.gemm"),
        "gemm_sp": "T.gemm of the whole matrix",
        "alloc_tmem": "T.alloc_fragment",
        **dict.fromkeys(
            "alloc_barrier ptx_arrive_barrier mbarrier_wait_parity alloc_descriptor".split(),
            "nothing: the order of the pipes is found; by hand T.set_flag and T.wait_flag",
        ),
        **{f"warp_reduce_{n}": f"T.reduce_{n}(tile, out, dim)" for n in "sum max min bitand bitor".split()},
        "ClusterKernel": "T.Kernel",
        "PersistentTileScheduler": "T.Persistent",
        **dict.fromkeys("call_extern call_intrin import_source CUDASourceCodeKernel".split(), "the same in T.*"),
        **dict.fromkeys("atomic_max atomic_min atomic_or".split(),
                        "a tensor with an element for each block, which a second T.Kernel reduces"),
        **dict.fromkeys("atomic_addx2 atomic_addx4".split(), "T.atomic_add"),
        **dict.fromkeys("atomic_load atomic_store".split(), "the element itself, x[i]; T.sync_all() orders all blocks"),
        **dict.fromkeys("shmem_put_nbi shmem_get_nbi shmem_ub_put_nbi shmem_ub_get_nbi".split(),
                        "a tensor parameter with what the other card sends"),
        **dict.fromkeys("make_tensor ptr".split(), "a T.Tensor parameter; T.reshape and T.view read it otherwise"),
        **dict.fromkeys("any_of all_of".split(), "T.reduce_max or T.reduce_min of a tile of 0 and 1"),
        "handle": "a T.Tensor parameter",
        "meta_class": "a Python function that returns the prim_func",
        **dict.fromkeys("uint4 float4_e2m1fn float6_e2m3fn float6_e3m2fn".split(), "T.uint8"),
    }
)

# Arguments of other compilers that mean nothing here; every other name that a function does not have is an error.
_FOREIGN = {
    "gemm": "wg_wait use_2cta annotations",
    "cumsum": "annotations",
    "unroll": "annotations explicit unroll_factor",
    "vectorized": "annotations",
    "serial": "annotations",
    "Parallel": "coalesced_width loop_layout prefer_async annotations",
    "alloc_global": "scope data strides elem_offset align offset_factor buffer_type axis_separators",
    "print": "warp_group_id warp_id",
    "device_assert": "no_stack_info",
    "finalize_reducer": "batch annotations",
    "im2col": "eviction_policy cache_hint",
}
for _n in "sum max min abssum absmax bitand bitor bitxor".split():
    _FOREIGN[f"reduce_{_n}"] = "batch nan_propagate annotations"


def without_foreign(name, fn):
    """`fn`, T.`name`, without its arguments of other compilers; a note says that they have no effect."""
    foreign = _FOREIGN.get(name, "").split()
    if not foreign:
        return fn

    @functools.wraps(fn)
    def wrapped_foreign(*args, **kwargs):
        given = [n for n in foreign if n in kwargs]
        b = active()
        if b is not None and any(kwargs[n] is not None for n in given):
            b.note(f"T.{name}({', '.join(given)}=...) has no effect on Ascend")
        return fn(*args, **{n: v for n, v in kwargs.items() if n not in given})

    return wrapped_foreign


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
    """Fails for a name that is known and has no meaning here."""
    why, instead = REFUSED.get(name), _INSTEAD.get(name)
    if why is None:
        why, instead = next(((w, i) for start, w, i in _FAMILIES if re.match(start, name)), (None, None))
    if why is not None:
        fail(1002, f"T.{name} is refused: {why}", fix=f"write {instead}" if instead else None, kind=kind)


__all__ = [*_NOTED]
