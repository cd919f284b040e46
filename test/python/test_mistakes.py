"""Mistakes that people make first: each message names the mistake and what to write instead."""

import itertools
import sys
import textwrap

import numpy
import pytest

import tilelang
import tilelang.language as T


def error_of(make):
    with pytest.raises(tilelang.CompileError) as caught:
        make()
    return caught.value


def test_two_statements_of_a_line_are_two_places():
    """They have their own columns, and hand-written order is checked between them as between two lines."""

    @T.prim_func
    def main(A: T.Tensor((16, 64), "float32"), C: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, is_npu=True) as (bx, vid):
            a = T.alloc_ub((8, 64), "float32")
            with T.Scope("V"):
                T.copy(A[vid * 8, 0], a); T.tile.add(a, a, 1.0); T.copy(a, C[vid * 8, 0])  # noqa: E702

    kernel = tilelang.compile(main, out_idx=[-1], pass_configs={"tl.ascend_auto_sync": False})
    places = [line.split("@")[1] for line in kernel.ir().splitlines() if "copy" in line or "add" in line]
    columns = [int(p.split(":")[1]) for p in places]
    assert len({p.split(":")[0] for p in places}) == 1
    if sys.version_info >= (3, 11):  # Python 3.10 knows no columns
        assert len(columns) == 3 and sorted(set(columns)) == columns
        with pytest.raises(tilelang.KernelFault) as caught:
            kernel(numpy.ones((16, 64), numpy.float32))
        assert caught.value.errors[0].code == "TL0805"


@pytest.mark.parametrize(
    "name, instead",
    [("erf", "T.tanh"), ("log10", "T.log(x)"), ("fabs", "T.abs(x)"), ("rint", "T.round(x)"), ("asin", "polynomial")],
)
def test_functions_without_an_instruction(name, instead):
    """The message says what to write instead."""
    d = error_of(lambda: getattr(T, name)).errors[0]
    assert d.code == "TL1002" and f"T.{name}" in d.text
    assert instead in d.fix


@pytest.mark.parametrize(
    "read, text, fix",
    [
        (lambda x: x.shpe, "'A' float32(64, 128) has no 'shpe'", "did you mean .shape?"),
        (lambda x: x[0, 0].dtyp, "A[0, 0] has no 'dtyp'", "did you mean .dtype?"),
        (lambda x: x[0:4, :].shap, "has no 'shap'", "did you mean .shape?"),
    ],
)
def test_unknown_attributes(read, text, fix):
    def make():
        @T.prim_func
        def main(A: T.Tensor((64, 128), "float32")):
            with T.Kernel(1) as _:
                read(A)

        tilelang.compile(main)

    d = error_of(make).errors[0]
    assert d.code == "TL1001" and text in d.text and fix in d.fix


def test_forgotten_out_idx_and_unnamed_buffers():
    @T.prim_func
    def twice(A: T.Tensor((16, 64), "float32"), C: T.Tensor((16, 64), "float32")):
        with T.Kernel(1) as _:
            a = T.alloc_ub((16, 64), "float32")
            T.copy(A, a)
            T.copy(a, C)

    x = numpy.ones((16, 64), numpy.float32)
    with pytest.raises(tilelang.ArgumentError, match=r"missing: C[^$]*out_idx=\[1\]"):
        tilelang.compile(twice)(x)
    with pytest.raises(tilelang.ArgumentError) as caught:
        tilelang.compile(twice)()
    assert caught.value.errors[0].fix == "twice(A, C)"  # A is no output

    def body():  # a plain function: its names are not known while it runs
        T.reduce_sum(T.alloc_ub((64, 64), "float32"), T.alloc_ub((3,), "float32"), dim=1)

    def make():
        @T.prim_func
        def main(A: T.Tensor((64, 128), "float32")):
            with T.Kernel(1) as _:
                body()

        tilelang.compile(main)

    assert "'buffer' takes (3,)" in str(error_of(make))


def rows(grid, body, out_idx=(-1,)):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(*grid) as bx:
            a = T.alloc_ub((16, 64), "float32")
            body(A, C, a, bx)

    return tilelang.compile(main, out_idx=list(out_idx))


def copy_rows(A, C, a, bx):
    T.copy(A[bx * 16, 0], a)
    T.copy(a, C[bx * 16, 0])


def test_one_name_for_several_indices():
    d = error_of(lambda: rows((4, 4), copy_rows)).errors[0]
    assert "gives 2 indices (bx, by)" in d.text and d.fix == "as (bx, by):"


def test_a_loop_of_python_without_end(monkeypatch):
    monkeypatch.setattr("tilelang.frontend.builder.MOST", 500)

    def body(A, C, a, bx):
        while True:
            T.tile.add(a, a, 1.0)

    d = error_of(lambda: rows((4,), body)).errors[0]
    assert d.code == "TL1006" and "goes on" in d.text and "T.serial" in d.fix


_ENDLESS = r"""
while True: T.tile.add(a, a, 1.0)
while True: n += 1
while 1:\n    for k in [1, 2]:\n        break
while n > 0: n += 1; T.tile.add(a, a, 1.0)
while n > 0: n += 1
for k in itertools.count(): T.tile.add(a, a, 1.0)
for k in itertools.cycle([1, 2]): T.tile.add(a, a, 1.0)
for k in itertools.repeat(3): pass
helper(a)
"""
_KERNEL = """
import itertools
import tilelang.language as T

def helper(a):
    while True:
        T.tile.add(a, a, 1.0)

@T.prim_func
def main(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(4) as bx:
        a = T.alloc_ub((16, 64), "float32")
        n = 1
        T.copy(A[bx * 16, 0], a)
"""


@pytest.mark.parametrize("loop", _ENDLESS.strip().splitlines())
def test_loops_without_end_are_told_early_at_their_line(loop, monkeypatch, tmp_path):
    monkeypatch.setattr("tilelang.frontend.builder.MOST", 1 << 13)
    monkeypatch.setattr("tilelang.frontend.builder.MANY", 256)
    path = tmp_path / "loop.py"
    path.write_text(_KERNEL + textwrap.indent(loop.replace("\\n", "\n"), " " * 8) + "\n")
    d = error_of(lambda: exec(compile(path.read_text(), str(path), "exec"), {})).errors[0]
    line = 6 if "helper" in loop else _KERNEL.count("\n") + 1
    assert d.code == "TL1006" and d.line == line and "goes on" in d.text and "T.serial" in d.fix


def test_a_loop_around_launches_without_end(monkeypatch):
    monkeypatch.setattr("tilelang.frontend.builder.MANY", 64)

    def make():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            for _ in range(1 << 20):
                with T.Kernel(4) as bx:
                    a = T.alloc_ub((16, 64), "float32")
                    T.copy(A[bx * 16, 0], a)

    d = error_of(make).errors[0]
    assert d.code == "TL1006" and "64 launches" in d.text and "T.serial" in d.fix


def test_long_loops_that_end():
    def body(A, C, a, bx):
        copy_rows(A, C, a, bx)
        n = 0
        while True:
            n += 1
            if n == 6000:
                break
        for i, j in itertools.product(range(16), range(64)):
            a[i, j] = float(i * n)

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(4) as bx:
            a = T.alloc_ub((16, 64), "float32")
            n, i = 0, 0
            while True:
                n += 2
                if n >= 100000:
                    break
            while i < 5000:
                i += 1
                if i % 500 == 0:
                    T.tile.fill(a, float(n))
            body(A, C, a, bx)

    assert main.script().count("fill") == 10


def test_loops_that_end_by_an_iterator(monkeypatch):
    monkeypatch.setattr("tilelang.frontend.builder.MANY", 16)

    def tiles(a, n):
        k = 0
        while True:
            T.tile.add(a, a, float(k))
            yield k
            k += 1

    def until_empty(a, values):
        try:
            while True:
                T.tile.fill(a, next(values))
        except StopIteration:
            pass

    def body(A, C, a, bx):
        until_empty(a, iter([1.0] * 40))
        for k in tiles(a, 40):
            if k == 40:
                break
        T.copy(a, C[bx * 16, 0])

    assert rows((4,), body)(numpy.zeros((64, 64), "float32"))[0, 0] == 1 + sum(range(41))


@pytest.mark.parametrize("shape", [(1 << 20,), (2, 1 << 22), (1 << 20, 4)])
def test_a_tile_of_megabytes(shape):
    """It does not fit, and that is all that is said of it: not that a row of it is too long for one move."""

    @T.prim_func
    def main(A: T.Tensor(shape, "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_ub(shape, "float32")
            T.copy(A, a)
            T.copy(a, A)

    (d,) = error_of(lambda: tilelang.compile(main)).errors
    assert d.code == "TL0600" and "'a'" in d.text
