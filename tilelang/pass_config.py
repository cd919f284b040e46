"""Keys of `pass_configs`. They are strings: a raw string and a key are the same."""

from enum import Enum


class PassConfigKey(str, Enum):
    TL_ASCEND_AUTO_SYNC = "tl.ascend_auto_sync"
    TL_ASCEND_MEMORY_PLANNING = "tl.ascend_memory_planning"
    TL_ASCEND_AUTO_CV_COMBINE = "tl.ascend_auto_cv_combine"
    TL_ASCEND_AUTO_CV_SYNC = "tl.ascend_auto_cross_core_sync"
    TIR_MERGE_STATIC_SMEM = "tir.merge_static_smem"

    __str__ = str.__str__
    __hash__ = str.__hash__


def read(configs):
    """{key: value} of a pass_configs dict; a key that does nothing is a warning."""
    from .errors import fail, nearest, warn

    known = {str(k.value): k for k in PassConfigKey}
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
