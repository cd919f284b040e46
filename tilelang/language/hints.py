"""Hints of the dialects: accepted, noted, without effect here. And the names that are refused by name."""

from ..errors import fail, warn
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
    "no_set_max_nreg": "there are no registers to set",
    "disable_warp_group_reg_alloc": "there are no warps",
}

# what the text says when it should be seen at once: a program may count on the effect
_WARNED = {
    "printf": "printing from a kernel is not supported yet",
    "print": "printing from a kernel is not supported yet",
    "dump_tensor": "dumping from a kernel is not supported yet",
    "device_assert": "asserts on the chip are not supported yet; the simulator checks bounds and races by itself",
}

REFUSED = {
    **dict.fromkeys(
        "alloc_barrier alloc_tmem alloc_descriptor ClusterKernel CUDASourceCodeKernel tma_copy copy_cluster wgmma_gemm "
        "tcgen05_gemm gemm_sp get_thread_binding warp_reduce_sum warp_reduce_max warp_reduce_min warp_reduce_bitand "
        "warp_reduce_bitor call_extern call_intrin sync_threads sync_warp ptx_arrive_barrier mbarrier_wait_parity "
        "import_source dp4a".split(),
        "it is a feature of GPUs that Ascend has not",
    ),
    **dict.fromkeys(
        "alloc_global alloc_reducer reducer_init reducer_update "
        "finalize_reducer async_copy im2col "
        "c2d_im2col atomic_max atomic_min atomic_or atomic_addx2 atomic_addx4 atomic_load atomic_store shmem_put_nbi "
        "shmem_get_nbi shmem_ub_put_nbi shmem_ub_get_nbi StridedTensor make_tensor ptr PersistentTileScheduler "
        "any_of all_of thread_return loop_break meta_class Ref".split(),
        "it is not supported yet",
    ),
}


def _make(name, why, loud):
    def function(*args, **kwargs):
        b = active()
        if loud:
            warn(f"T.{name} has no effect: {why}")
        elif b is not None:
            b.note(f"T.{name} has no effect here: {why}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"No effect here: {why}."
    return function


for _n, _w in _NOTED.items():
    globals()[_n] = _make(_n, _w, False)
for _n, _w in _WARNED.items():
    globals()[_n] = _make(_n, _w, True)


def refuse(name, kind):
    fail(1002, f"T.{name} is refused: {REFUSED[name]}", kind=kind)


__all__ = [*_NOTED, *_WARNED]
