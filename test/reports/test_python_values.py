"""The kinds of reports about Python in kernels, in other places than those reported: when a value is read, what the
`else` of a loop means, what functions of Python do. A row is a body and what it leaves in row 0 of `o`."""

import linecache
import textwrap

import numpy as np
import pytest

import tilelang
from tilelang import KernelFault

HEAD = """
import tilelang.language as T
@T.prim_func
def f(X: T.Tensor((4, 16), "float32"), N: T.Tensor((8,), "int32"), O: T.Tensor((4, 16), "float32")):
    with T.Kernel(1) as bx:
        x = T.alloc_shared((4, 16), "float32")
        o = T.alloc_shared((4, 16), "float32")
        v = T.alloc_var("float32", 1.0)
        w = T.alloc_var("float32", 2.0)
        n = T.alloc_var("int32", 0)
        T.copy(X, x)
        T.fill(o, 0.0)
"""
X = np.arange(64, dtype=np.float32).reshape(4, 16) + 1
N = np.arange(8, dtype=np.int32)


def compiled(body):
    text = HEAD + textwrap.indent(textwrap.dedent(body).strip(), "        ") + "\n        T.copy(o, O)\n"
    name = f"body {body}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    return tilelang.compile(space["f"], out_idx=-1)


def run(body):
    return compiled(body)(X, N)[0]


def check(body, want):
    got = run(body)
    assert np.array_equal(got[: len(want)], np.float32(want)) and not got[len(want) :].any(), got


@pytest.mark.parametrize("body, want", [
    ("x[0, 0], x[0, 1] = x[0, 1], x[0, 0]\nT.copy(x[0, 0:2], o[0, 0:2])", [2, 1]),
    ("v, w = w, v\no[0, 0], o[0, 1] = v, w", [2, 1]),
    ("v, (w, n) = w, (v, N[3])\no[0, 0], o[0, 1], o[0, 2] = v, w, n", [2, 1, 3]),
    ("x[0, 0] = x[0, 1] = x[0, 0] + 9\nT.copy(x[0, 0:2], o[0, 0:2])", [10, 10]),
    ("a, *b = x[0, 0], x[0, 1]\nx[0, 1] = 99.0\no[0, 0], o[0, 1] = a, b[0]", [1, 2]),
    ("a = {'k': x[0, 3]}\nx[0, 3] = 99.0\no[0, 0] = a['k']", [4]),
])  # fmt: skip
def test_a_value_is_read_where_it_stands(body, want):
    check(body, want)


@pytest.mark.parametrize("body, want", [
    ("n = 5\nfor n in T.serial(3):\n    o[0, n] = 1.0\no[0, 5] = n", [1, 1, 1, 0, 0, 5]),
    ("for i in range(4):\n    if N[i]:\n        o[0, i] = 1.0\n    if not x[0, i] - 2:\n        o[0, i] = 7.0",
     [0, 7, 1, 1]),
    ("T.fill(o[0, N[3]:16], 9.0)\nT.fill(o[0, 0:N[2]], 4.0)\nT.fill(o[0, 6:16], 0)", [4, 4, 0, 9, 9, 9]),
    ("k = N[5]\nT.copy(x[1, 0:k], o[0, 0:k])\nT.tile.mul(o[0, 0:k], o[0, 0:k], o[0, 0:k])", [289, 324, 361, 400, 441]),
    ("v = N[3]\nv -= 5\nv *= 3\no[0, 0], o[0, 1], o[0, 2] = v, v // 4, v % 4", [-6, -2, 2]),
])  # fmt: skip
def test_names_conditions_and_slices_of_run_time(body, want):
    check(body, want)


FOUND = """
for i in {loop}:
    if N[i] == {number}:
        break
    o[0, i] = 1.0
else:
    o[0, 5] = 7.0
"""
WHILE = """
while n < 3:
    if N[n] == {number}:
        break
    o[0, n] = 1.0
    n += 1
else:
    o[0, 5] = 7.0
"""


@pytest.mark.parametrize("loop", ["range(3)", "T.serial(0, 3)", "while"])
def test_else_of_a_loop_runs_unless_it_was_left(loop):
    text = WHILE if loop == "while" else FOUND
    check(text.format(loop=loop, number=1), [1])
    check(text.format(loop=loop, number=9), [1, 1, 1, 0, 0, 7])
    inner = textwrap.indent(text.format(loop=loop, number="1 + 8 * k"), "    ").replace("o[0, 5]", "o[0, 5 + k]")
    check("for k in range(2):\n    n = 0\n" + inner, [1, 1, 1, 0, 0, 0, 7])


def test_else_of_a_loop_that_python_runs():
    text = "for i in [0, 1, 2]:\n    if i == {}:\n        break\n    o[0, i] = 1.0\nelse:\n    o[0, 5] = 7.0"
    check(text.format(1), [1])
    check(text.format(9), [1, 1, 1, 0, 0, 7])


@pytest.mark.parametrize("body, want", [
    ("for i in range(7, 0, -3):\n    o[0, i] = i", [0, 1, 0, 0, 4, 0, 0, 7]),
    ("for i in T.serial(N[5], -1, -2):\n    o[0, i] = i", [0, 1, 0, 3, 0, 5]),
    ("for i in range(0, 7, -1):\n    o[0, i] = 1.0", [0]),
    ("for i in range(0, 7, N[3]):\n    o[0, i] = 1.0", [1, 0, 0, 1, 0, 0, 1]),
])  # fmt: skip
def test_steps(body, want):
    check(body, want)


def test_a_step_that_turns_out_not_to_be_positive():
    with pytest.raises(KernelFault, match="TL0817: `step > 0`.*must be positive"):
        run("for i in range(0, 7, N[0]):\n    o[0, i] = 1.0")


@pytest.mark.parametrize("body, want", [
    ("o[0, 0] = max(x[0, 0], 3.0, x[0, 1])\no[0, 1] = min([x[0, 3], x[0, 1]])\no[0, 2] = max(2, 7)", [3, 2, 7]),
    ("o[0, 0] = int(x[0, 1] * -1.4)\no[0, 1] = float(N[3]) / 2\no[0, 2] = int('7')", [-2, 1.5, 7]),
    ("q, r = divmod(N[7], 2)\no[0, 0], o[0, 1] = q, r", [3, 1]),
    ("o[0, 0] = N[3] in (1, 3)\no[0, 1] = N[3] not in (1, 3)\no[0, 2] = N[3] in range(1, 9, 2)\no[0, 3] = 3 in (3,)",
     [1, 0, 1, 1]),
    ("if N[3] in (1, 2):\n    o[0, 0] = 1.0\nelif 0 < N[2] in (2, 5):\n    o[0, 1] = 1.0", [0, 1]),
    ("for i in range(4):\n    match N[i]:\n        case 0:\n            o[0, i] = 1.0\n        case 1 | 2:\n"
     "            o[0, i] = 5.0\n        case k:\n            o[0, i] = k * 2", [1, 5, 5, 6]),
    ("match N.shape:\n    case (a,):\n        o[0, 0] = a", [8]),
    ("o[0, 0] = T.truncdiv(N[3] - 10, 3)\no[0, 1] = T.truncmod(N[3] - 10, 3)\no[0, 2] = T.truncdiv(-7, 3)\n"
     "o[0, 3] = T.truncmod(-x[0, 3], 2.5)\no[0, 4] = T.truncdiv(-x[0, 3], 1.5)", [-2, -1, -2, -1.5, -2]),
    ("for j in T.Parallel(4):\n    o[0, j] = T.trunc(x[0, j] * -0.75)", [0, -1, -2, -3]),
    ("for j in T.Parallel(4):\n    o[0, j] = T.round(x[0, j] * -0.5, 'ties-away-from-zero')", [-1, -1, -2, -2]),
    ("for j in T.Parallel(4):\n    o[0, j] = T.round(x[0, j] * -0.5)", [0, -1, -2, -2]),
    ("if any([N[3] > 5, N[2] == 2]):\n    o[0, 0] = 1.0\nif all(N[3] > i for i in range(3)):\n    o[0, 1] = 1.0\n"
     "if all([N[3] > 5, True]):\n    o[0, 2] = 1.0\nif any([]) or not all(()):\n    o[0, 3] = 1.0", [1, 1]),
    ("if any(4 // i > 1 for i in (1, 0)):\n    o[0, 0] = 1.0\nif all(N[3] == 2 or 4 // i for i in (1, 2)):\n"
     "    o[0, 1] = 1.0\nif not all([N[3] == 2, False, 1 // 1]):\n    o[0, 2] = 1.0", [1, 1, 1]),
])  # fmt: skip
def test_functions_and_operators_of_python(body, want):
    check(body, want)


def test_assert_is_checked_on_the_chip():
    check("assert x[0, 0] > 0, 'first'\no[0, 0] = 1.0", [1])
    with pytest.raises(KernelFault, match="TL0817.*first"):
        run("assert x[0, 0] < 0, 'first'\no[0, 0] = 1.0")
    with pytest.raises(AssertionError, match="second"):
        run("assert 8 < x.shape[0], 'second'\no[0, 0] = 1.0")


def test_interpreted_names_end_with_their_loop_too():
    body = "n = 5\nfor n in T.serial(3):\n    o[0, n] = 1.0\n"
    body += "for k in T.serial(2):\n    w = w + k\no[0, 5], o[0, 6] = n, w"
    check(body, [1, 1, 1, 0, 0, 5, 3])
    assert np.array_equal(compiled(body).interpret(X, N), compiled(body)(X, N))
