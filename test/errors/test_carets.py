"""The caret stands below the very argument, index or name that a message speaks of: at the mark in each statement."""

import linecache
import sys
import textwrap
import warnings

import pytest

import tilelang

pytest.importorskip("tilelang._core")

MARK = "~~"
HEAD = """
import numpy as np
import tilelang
import tilelang.language as T
@T.prim_func
def f(A: T.Tensor((16, 64), "float32"),
      B: T.Tensor((16, 64), "float32")):
    with T.Kernel(1) as bx:
        a = T.alloc_shared((16, 64), "float32")
        b = T.alloc_shared((16, 64), "float32")
        h = T.alloc_shared((64, 64), "float16")
        r = T.alloc_shared((16,), "float32")
        T.copy(A, a)
"""
# found by the front end while it traces: from Python 3.11 on it knows the call or index it is at
TRACED = """
b[0, 0] = ~~a[16, 0]
~~b[0, 64] = a[0, 0]
T.copy(~~a[0:17, :], b)
b[0, 0] = a[0, 0] + ~~a[0, "i"]
b[0, 0] = 1.0 + ~~round(a[0, 0])
b[0, 0] = a[0, 0] if ~~a[0] > 0 else 1.0
T.copy(a, b); T.copy(~~a[::2, :], b)
b[0, 0] = T.exp(~~T.lgo(a[0, 0]))
"""
# these name what they speak of
NAMED = """
T.copy(~~a, b[0:8, :])
T.gemm(~~a, h, b)
T.reduce_sum(a, r, ~~dmi=1)
T.reduce_sum(a, ~~b, dim=1)
T.tile.add(b, a, ~~r)
T.copy(a, b, ~~coalesced_width=3)
T.copy(\\n               ~~a,\\n               b[0:8, :])
"""


def _messages(text, name):
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        space = {"__name__": "mistake"}
        try:
            exec(compile(text, name, "exec"), space)
            tilelang.compile(space["f"], out_idx=-1)
        except tilelang.CompileError as e:
            return e.errors
    return [w.message.diagnostic for w in said if w.category is tilelang.errors.TileLangWarning]


def _check(statement, head=HEAD):
    marked = head + textwrap.indent(statement, "        ") + "\n        T.copy(b, B)\n"
    before = marked[: marked.index(MARK)]
    line, col = before.count("\n") + 1, len(before) - before.rfind("\n")
    found = _messages(marked.replace(MARK, ""), f"caret {statement}.py")
    assert (line, col) in [(d.line, d.col) for d in found], "\n".join(map(str, found))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python does not say where in a line it is")
@pytest.mark.parametrize("statement", TRACED.strip().split("\n"))
def test_an_expression(statement):
    _check(statement)


@pytest.mark.parametrize("statement", [s.replace("\\n", "\n") for s in NAMED.strip().split("\n")])
def test_a_name(statement):
    _check(statement)


def test_a_parameter_that_is_never_written():
    """Its line of the signature, not that of the `def`."""
    (d,) = [d for d in _messages(HEAD, "parameter.py") if "'B'" in d.text]
    assert (d.line, d.col) == (7, 7), str(d)


def test_the_second_place():
    text = HEAD + "        T.copy(a, A[0:8, :])\n"
    (d,) = _messages(text, "second place.py")
    shown = text.split("\n")[d.other["line"] - 1][d.other["col"] - 1 :]
    assert shown.startswith("a = T.alloc" if "'a'" in d.other["text"] else "A: T.Tensor"), str(d)
