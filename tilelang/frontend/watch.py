"""A loop of plain Python that does not end is an error of the kernel, not a hang.

What the rewriter sees counts its rounds (hooks.Rounds), and statements have a limit (builder.MOST). A helper that is
not rewritten can loop without making any. So while a kernel is traced another thread looks after it from time to time:
the same loop of the same call, and no new statement since the last look, is taken for endless; the exception that ends
it is raised in the thread that traces. Under a debugger nothing is.
"""

import ast
import ctypes
import linecache
import sys
import threading

from ..errors import of_user

PAUSE = 20.0  # seconds between two looks
_LOOPS = (ast.While, ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Endless(BaseException):
    """Ends a loop; no `except Exception` of a helper stops it."""


class Watch:
    """Over one builder; `place`: where the loop stands that was ended, once one was."""

    def __init__(self, builder):
        self.builder = builder
        self.thread = threading.get_ident()
        self.lock, self.over, self.place = threading.Lock(), False, None
        self.seen = None, 0
        self.wait()

    def wait(self):
        self.timer = threading.Timer(PAUSE, self.look)
        self.timer.daemon = True
        self.timer.start()

    def look(self):
        with self.lock:
            frame = None if self.over else self.looping()
            now = frame, self.builder.made
            if frame is not None and now == self.seen:
                loop = _loop(frame)
                self.place = (frame.f_code.co_filename, loop.lineno, loop.col_offset + 1)
                self._raise(Endless)
            elif not self.over:
                self.seen = now
                self.wait()

    def looping(self):
        """The innermost call of the kernel's functions that stands in a loop of Python; None."""
        frames, frame = [], sys._current_frames().get(self.thread)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        mine = frames[: len(frames) - self.builder.depth]
        if any(f.f_trace is not None for f in mine):
            return None
        return next((f for f in mine if of_user(f) and _loop(f) is not None), None)

    def _raise(self, error):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), error and ctypes.py_object(error))

    def end(self):
        """The kernel is traced."""
        self.timer.cancel()
        with self.lock:
            self.over, self.seen = True, None
            if self.place is not None:
                self._raise(None)  # on its way still, or here


def _loop(frame):
    """The innermost loop that a line of a frame stands in; None."""
    if frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"):
        frame = frame.f_back or frame
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except SyntaxError:
        return None
    found = None
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, _LOOPS) and node.lineno <= frame.f_lineno <= node.end_lineno:
            found = node
    return found
