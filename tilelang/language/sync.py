"""Synchronisation by hand: flags between pipes, barriers, flags between cores."""

from ..errors import fail, nearest
from ..frontend.builder import current
from ..frontend.expr import describe, wrap
from .dtypes import int32

PIPES = ("s", "v", "m", "mte1", "mte2", "mte3", "fix", "all")


def _pipe(what, name):
    p = str(name).lower().removeprefix("pipe_")
    if not isinstance(name, str) or p not in PIPES:
        near = nearest(p, PIPES)
        fail(
            1004,
            f"{what}: {describe(name)} is not a pipe",
            fix=f"did you mean '{near}'?" if near else f"one of {', '.join(PIPES)}",
        )
    return p


def set_flag(src, dst, event_id):
    """Pipe `src` raises a flag that pipe `dst` waits for."""
    b = current("T.set_flag")
    b.hand_sync = True
    b.emit([f"set_flag {_pipe('T.set_flag', src)} -> {_pipe('T.set_flag', dst)} #", wrap(event_id, int32)])


def wait_flag(src, dst, event_id):
    """Pipe `dst` waits for the flag that pipe `src` raises."""
    b = current("T.wait_flag")
    b.hand_sync = True
    b.emit([f"wait_flag {_pipe('T.wait_flag', src)} -> {_pipe('T.wait_flag', dst)} #", wrap(event_id, int32)])


def pipe_barrier(pipe):
    """Earlier instructions of a pipe end before later ones begin."""
    b = current("T.pipe_barrier")
    b.hand_sync = True
    b.emit([f"barrier {_pipe('T.pipe_barrier', pipe)}"])


def barrier_all():
    """Orders every pipe of the core."""
    b = current("T.barrier_all")
    b.hand_sync = True
    b.emit(["barrier all"])


def set_cross_flag(pipe, flag_id, mode=2):
    """Raises a flag between cube and vector cores (mode 2), or among all cores (modes 0 and 1)."""
    if mode not in (0, 1, 2):
        given = mode if isinstance(mode, int) else describe(mode)
        fail(1004, f"T.set_cross_flag with mode={given}", fix="mode is 0, 1 or 2")
    current("T.set_cross_flag").emit(
        [f"cross_set {_pipe('T.set_cross_flag', pipe)} #", wrap(flag_id, int32), f" mode({mode})"]
    )


def wait_cross_flag(flag_id, pipe=""):
    """Waits for a flag of the other cores."""
    word = f"{_pipe('T.wait_cross_flag', pipe)} " if pipe else ""
    current("T.wait_cross_flag").emit([f"cross_wait {word}#", wrap(flag_id, int32)])


def sync_all():
    """All cores of the launch meet."""
    current("T.sync_all").emit(["sync_all"])


sync_grid = sync_all
