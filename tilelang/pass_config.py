"""Keys of `pass_configs`. They are strings: a raw string and a key are the same.

The keys of mainline TileLang steer its code for GPUs; they are known by name and do nothing here.
"""

from enum import Enum


_ASCEND = {
    "TL_ASCEND_AUTO_SYNC": "tl.ascend_auto_sync",
    "TL_ASCEND_MEMORY_PLANNING": "tl.ascend_memory_planning",
    "TL_ASCEND_AUTO_CV_COMBINE": "tl.ascend_auto_cv_combine",
    "TL_ASCEND_AUTO_CV_SYNC": "tl.ascend_auto_cross_core_sync",
}
_MAINLINE = """
    tl.disable_buffer_init_check tl.disable_data_race_check tl.disable_prelower_semantic_check
    tl.disable_warp_specialized tl.enable_fast_math tl.disable_fast_math tl.ptxas_register_usage_level
    tl.enable_ptxas_verbose_output tl.device_compile_flags tl.emit_line_directives tl.config_index_bitwidth
    tl.enable_reducer_plan_verbose tl.layout_cost_model tl.reducer_force_baseline tl.disable_tma_lower
    tl.disable_vectorize_256 tl.enable_async_copy tl.enable_lower_ldgstg tl.enable_lower_ldgstg_predicated
    tl.enable_vectorize_planner_verbose tl.disable_wgmma tl.debug_merge_shared_memory_allocations
    tl.enable_aggressive_shared_memory_merge tl.disable_shared_memory_reuse tl.disable_shuffle_elect
    tl.disable_loop_unswitching tl.loop_unswitching_allow_non_trivial_else tl.if_stmt_binding_inline_replayable_binds
    tl.disable_thread_storage_sync tl.force_let_inline tl.ast_print_enable tl.layout_visualization_enable
    tl.layout_visualization_formats tl.storage_rewrite_detect_inplace tl.disable_out_of_bound_warning
    tl.enable_dump_ir tl.pass_profile tl.pass_profile_threshold_ms tl.disable_dynamic_tail_split
    tl.dynamic_alignment tir.merge_static_smem tir.disable_vectorize tir.use_async_copy tir.enable_debug tir.noalias
""".split()
# those whose key is not spelt like the name
_OTHER = {"TL_SIMPLIFY": "tl.Simplify", "TL_DISABLE_SAFE_MEMORY_ACCESS": "tl.disable_safe_memory_legalize"}


class _Key(str, Enum):
    __str__ = str.__str__
    __hash__ = str.__hash__


PassConfigKey = _Key(
    "PassConfigKey", {**_ASCEND, **{k.upper().replace(".", "_"): k for k in _MAINLINE}, **_OTHER}, module=__name__
)


def read(configs):
    """{key: value} of a pass_configs dict; a key that does nothing is a warning."""
    from .errors import fail, nearest, warn

    if configs is not None and not isinstance(configs, dict):
        fail(1004, f"pass_configs={configs!r}", fix="a dict: {tilelang.PassConfigKey.TL_ASCEND_AUTO_SYNC: True}")

    known = {str(k.value): k for k in PassConfigKey}
    known.update({k.replace("tir.", "tirx."): v for k, v in known.items()})  # the newer spelling
    out = {}
    for key, value in (configs or {}).items():
        name = str(key.value if isinstance(key, Enum) else key)
        if name not in known:
            if not isinstance(key, str):
                fail(1004, f"pass_configs: {key!r} is not a key", fix="tilelang.PassConfigKey lists them")
            near = nearest(name, known)
            warn(
                f"pass_configs '{name}' has no effect: there is no such key"
                + (f"; did you mean '{near}'?" if near else "")
            )
            continue
        out[known[name]] = value
    return out
