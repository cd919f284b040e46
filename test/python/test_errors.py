"""What the front end says about wrong kernels: code, line, names, what to change."""

import json
import pathlib

import pytest

import tilelang
import tilelang.language as T
from tilelang import CompileError

THIS = pathlib.Path(__file__)


def line_of(marker):
    lines = THIS.read_text().splitlines()
    return 1 + next(n for n, text in enumerate(lines) if text.rstrip().endswith("# " + marker))


def error_of(make):
    with pytest.raises(CompileError) as caught:
        make()
    return caught.value


def check(make, code, text, fix=None, marker=None):
    d = error_of(make).errors[0]
    assert d.code == code, str(d)
    assert text in d.text, d.text
    if fix is not None:
        assert d.fix and fix in d.fix, d.fix
    if marker is not None:
        assert pathlib.Path(d.file).name == THIS.name and d.line == line_of(marker), (d.file, d.line)
    return d


def in_kernel(body):
    """A prim_func whose T.Kernel runs `body(x, y)` on two tiles."""

    def make():
        @T.prim_func
        def f(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32"), n: T.int32):
            with T.Kernel(4, is_npu=True) as (cid, vid):
                x = T.alloc_ub((64, 64), "float32")
                y = T.alloc_ub((64, 64), "float32")
                body(X, Y, x, y, n)

        return f

    return make


def test_article_shapes_disagree():
    """The kernel as the article prints it: a (64, K) slice into a (64, 64) tile."""
    M, N, K = 1024, 1024, 1024

    def make():
        @T.prim_func
        def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
            with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
                a_tile = T.alloc_shared((64, 64), "float16")
                b_tile = T.alloc_shared((64, 64), "float16")
                c_tile = T.alloc_local((64, 64), "float32", scope="local")
                T.copy(A[by * 64 : by * 64 + 64, :], a_tile)
                T.copy(B[:, bx * 64 : bx * 64 + 64], b_tile)
                for i, j, k in T.Parallel(64, 64, 64):
                    c_tile[i, j] += a_tile[i, k] * b_tile[k, j]
                T.copy(c_tile, C[by * 64 : by * 64 + 64, bx * 64 : bx * 64 + 64])

    e = error_of(make)
    assert [d.code for d in e.errors] == ["TL0501", "TL0501"]
    first = e.errors[0]
    assert first.text == (
        "T.copy moves 'A[by * 64 : by * 64 + 64, 0 : 1024]' of shape (64, 1024) into 'a_tile' of shape (64, 64)"
    )
    assert first.fix == "make 'a_tile' (64, 1024), or take a slice of shape (64, 64) of 'A' and loop over it"
    assert first.other["text"] == "'a_tile' is made here"
    assert "T.copy(A[by * 64 : by * 64 + 64, :], a_tile)" in str(e) and "^" in str(e)
    assert json.loads(e.as_json())[1]["line"] == first.line + 1


def test_unknown_name():
    e = error_of(lambda: T.alloc_share)
    assert isinstance(e, AttributeError)
    assert e.errors[0].fix == "did you mean T.alloc_shared?"
    assert not hasattr(T, "no_such_name_at_all")
    check(lambda: T.tile.exq, "TL1001", "T.tile has no 'exq'", "T.tile.exp")
    check(lambda: T.sigmoyd, "TL1001", "T has no 'sigmoyd'", "T.sigmoid")
    check(lambda: T.sub, "TL1001", "T has no 'sub'", "T.tile.sub")


def test_refused_names():
    check(lambda: T.wgmma_gemm, "TL1002", "a feature of GPUs")
    check(lambda: T.atomic_max, "TL1002", "T.atomic_max is refused")


def test_python_if_outside_a_kernel():
    def helper(x):
        if x[0, 0] > 0:  # HELPER_IF
            T.clear(x)

    d = check(
        in_kernel(lambda X, Y, x, y, n: helper(x)),
        "TL1005",
        "x[0, 0] > 0.0 is known only when the kernel runs; Python needs the truth",
        "@T.macro",
        "HELPER_IF",
    )
    assert "T.if_then_else" in d.fix


def test_values_of_the_chip_in_python():
    check(in_kernel(lambda X, Y, x, y, n: [1, 2][n]), "TL1005", "n is known only when the kernel runs", "T.unroll")
    check(in_kernel(lambda X, Y, x, y, n: int(n)), "TL1005", "Python needs an integer")
    check(in_kernel(lambda X, Y, x, y, n: float(n)), "TL1005", "Python needs a number")
    check(in_kernel(lambda X, Y, x, y, n: list(x)), "TL1005", "cannot be looped over")
    check(in_kernel(lambda X, Y, x, y, n: x + y), "TL1004", "operators work on elements", "T.Parallel")
    check(in_kernel(lambda X, Y, x, y, n: x > 0), "TL1004", "operators work on elements")


def test_outside_a_kernel():
    check(lambda: T.copy(1, 2), "TL1006", "T.copy is used outside a kernel")
    check(lambda: T.alloc_shared((4,), "int8"), "TL1006", "T.alloc_shared is used outside a kernel")

    def before_the_kernel():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            x = T.alloc_ub((4,), "float32")  # BEFORE
            with T.Kernel(1) as bx:
                T.copy(X, x)

    check(before_the_kernel, "TL1006", "'alloc' stands outside `with T.Kernel(...)`", marker="BEFORE")

    def none():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            pass

    check(none, "TL1010", "kernel 'f' has no `with T.Kernel(...)`")

    def two():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            with T.Kernel(1) as bx:
                with T.Kernel(1) as by:
                    pass

    check(two, "TL1006", "T.Kernel inside T.Kernel")


def test_grid():
    def names():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            with T.Kernel(4) as (cid, vid):
                pass

    check(names, "TL1004", "T.Kernel gives 1 index, 2 names take them", "is_npu=True")

    def threads():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            with T.Kernel(4, threads=128, is_npu=True) as cid:
                pass

    check(threads, "TL1004", "threads=128", "threads=1 or threads=2")

    def loaded():
        @T.prim_func
        def f(X: T.Tensor((4,), "int32")):
            with T.Kernel(X[0]) as cid:
                pass

    check(loaded, "TL1004", "is read from memory")


def test_names_that_change_in_a_run_time_loop():
    def carried():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                total = 0
                for i in T.serial(64):  # CARRIED
                    total = total + X[i]

    check(carried, "TL1007", "'total' changes from one run of this loop to the next", "T.alloc_var", "CARRIED")

    def swapped():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                a = T.alloc_ub((64,), "float32")
                b = T.alloc_ub((64,), "float32")
                for _ in range(3):
                    T.copy(a, b)
                    a, b = b, a

    check(swapped, "TL1007", "'a' changes from one run of this loop to the next")


def test_names_of_a_block_end_with_it():
    def after_if():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32"), n: T.int32):
            with T.Kernel(1) as bx:
                t = 1.0
                if n > 2:  # DECIDES
                    t = 2.0
                X[0] = t  # USES

    d = check(after_if, "TL1008", "'t' is not known here: it gets its value inside a run-time `if`", marker="USES")
    assert d.other["line"] == line_of("DECIDES")

    def after_loop():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                for i in T.serial(4):
                    t = X[i]
                X[0] = t

    check(after_loop, "TL1008", "inside a run-time loop", "T.alloc_var")


def test_misplaced_statements():
    def broken():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32"), n: T.int32):
            with T.Kernel(1) as bx:
                for i in [1, 2]:
                    if n > i:
                        break

    check(broken, "TL1006", "`break` of a loop that Python runs")

    def copied():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64,), "float32")
                for i in T.Parallel(64):
                    T.copy(X, x)

    check(copied, "TL1006", "'copy' stands inside T.Parallel")


@pytest.mark.parametrize(
    "body, code, text",
    [
        (lambda X, Y, x, y, n: x[64, 0], "TL1011", "index 64 in dimension 0 of 'x' float32(64, 64), which has 64"),
        (lambda X, Y, x, y, n: x[0, 60:70], "TL1011", "slice 60:70 in dimension 1"),
        (lambda X, Y, x, y, n: x[0, 0, 0], "TL1011", "has 2 dimensions, 3 indices are given"),
        (lambda X, Y, x, y, n: x[0, ::2], "TL1011", "a slice with step 2"),
        (lambda X, Y, x, y, n: x[0.5, 0], "TL1011", "float 0.5 is not an index"),
        (lambda X, Y, x, y, n: x[8:8, 0], "TL1011", "an empty slice"),
        (lambda X, Y, x, y, n: T.copy(x, 3), "TL1004", "T.copy takes a tile (buffer or slice), not int 3"),
        (lambda X, Y, x, y, n: T.copy(X[0, 0], x[0, 0]), "TL1004", "T.copy between two elements"),
        (lambda X, Y, x, y, n: T.copy(X, x, speed=3), "TL1004", "T.copy has no argument 'speed'"),
        (lambda X, Y, x, y, n: T.fill(x, y), "TL1004", "T.fill takes one value"),
        (lambda X, Y, x, y, n: T.tile.add(x, y), "TL1004", "T.tile.add takes 2 operands after the destination, 1"),
        (lambda X, Y, x, y, n: T.tile.add(x, y, y[0:8, 0:8]), "TL1012", "'y' gives (8, 8), 'x' takes (64, 64)"),
        (lambda X, Y, x, y, n: T.tile.cast(x, y, "CAST_UP"), "TL1004", "'CAST_UP' is not a rounding mode"),
        (lambda X, Y, x, y, n: T.tile.compare(x, y, y, "LESS"), "TL1004", "'less' is not a comparison"),
        (lambda X, Y, x, y, n: T.reduce_sum(x, y), "TL1012", "gives (64,); 'y' takes (64, 64)"),
        (lambda X, Y, x, y, n: T.reduce_sum(x, y, dim=3), "TL1004", "'dim' is int 3"),
        (lambda X, Y, x, y, n: T.gemm(x, y[0:32, :], x), "TL0502", "disagree in K: 64 and 32"),
        (lambda X, Y, x, y, n: T.gemm(x, y, x[:, 0:16]), "TL0502", "disagree in N: 64 and 16"),
        (lambda X, Y, x, y, n: T.alloc_ub((n,), "int8"), "TL1004", "which is known only at run time"),
        (lambda X, Y, x, y, n: T.alloc_ub((0,), "int8"), "TL1004", "with a size of 0"),
        (lambda X, Y, x, y, n: T.alloc_ub((4,), "float31"), "TL1003", "'float31' is not a dtype"),
        (lambda X, Y, x, y, n: T.set_flag("mte7", "v", 0), "TL1004", "the string 'mte7' is not a pipe"),
        (lambda X, Y, x, y, n: T.Scope("X"), "TL1004", "T.Scope takes 'C' or 'V'"),
        (lambda X, Y, x, y, n: T.serial(1, 2, 3, 4), "TL1004", "T.serial takes 1 to 3 bounds"),
        (lambda X, Y, x, y, n: T.Pipelined(4, num_stages=n), "TL1004", "num_stages"),
        (lambda X, Y, x, y, n: x.__setitem__((0, 0), y), "TL1004", "does not fit into an element"),
        (lambda X, Y, x, y, n: x.__setitem__(0, 1.0), "TL1004", "is a tile and cannot be assigned to"),
        (lambda X, Y, x, y, n: n << 0.5, "TL1004", "takes integers"),
        (lambda X, Y, x, y, n: T.max(x, y), "TL1004", "T.max works on elements"),
        (lambda X, Y, x, y, n: T.exp(x), "TL1004", "works on elements"),
        (lambda X, Y, x, y, n: T.reinterpret("int64", x[0, 0]), "TL1004", "32 bits and 64 bits"),
        (lambda X, Y, x, y, n: T.atomic_add(x, y), "TL1004", "adds a tile of the chip to a tensor"),
        (lambda X, Y, x, y, n: T.empty((4,), "int8"), "TL1006", "T.empty in a prim_func"),
        (lambda X, Y, x, y, n: T.const("M"), "TL1006", "T.const outside an eager kernel"),
    ],
)  # fmt: skip
def test_wrong_arguments(body, code, text):
    check(in_kernel(body), code, text)


def test_snapshot_is_not_a_place():
    def make():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64,), "float32")
                origin = X[0]
                T.copy(origin, x)

    check(make, "TL1004", "T.copy takes a tile", "holds the value at that moment")


def test_wrong_signature():
    def bare():
        @T.prim_func
        def f(X):
            pass

    check(bare, "TL1010", "parameter 'X' of 'f' has no annotation", "T.Tensor")

    def star():
        @T.prim_func
        def f(*X):
            pass

    check(star, "TL1010", "takes *args or **kwargs")
    check(lambda: tilelang.compile(size_of_nothing()), "TL1013", "the size 'Q' is used but is not a dimension")


def size_of_nothing():
    Q = T.symbolic("Q")

    @T.prim_func
    def f(X: T.Tensor((Q * 2,), "float32")):
        with T.Kernel(Q) as bx:
            X[bx] = 0.0

    return f


def test_helper_and_macro_lines():
    """Statements of helper functions and macros carry their own lines."""

    def helper(x):
        T.tile.exp(x, x)  # HELPER

    @T.macro
    def inlined(x):
        T.tile.ln(x, x)  # MACRO

    text = in_kernel(lambda X, Y, x, y, n: (helper(x), inlined(y)))().script()
    assert f"exp %x -> %x @{line_of('HELPER')}:9" in text
    assert f"ln %y -> %y @{line_of('MACRO')}:9" in text


def test_options_without_effect_warn():
    with pytest.warns(tilelang.TileLangWarning, match=r"T.copy\(eviction_policy=...\) has no effect"):
        in_kernel(lambda X, Y, x, y, n: T.copy(X, x, eviction_policy="evict_first"))()
    with pytest.warns(tilelang.TileLangWarning, match=r"T.Pipelined\(order=...\) has no effect"):
        in_kernel(lambda X, Y, x, y, n: T.Pipelined(4, order=[0, 1]))()
    with pytest.warns(tilelang.TileLangWarning, match="T.unroll has no effect"):
        in_kernel(lambda X, Y, x, y, n: T.unroll(n))()


def test_hints_are_noted():
    def make():
        @T.prim_func
        def f(X: T.Tensor((4,), "float32")):
            with T.Kernel(4, threads=128) as bx:
                T.use_swizzle(8)
                X[bx] = 1.0

        return f

    notes = [n.text for n in make().traced.builder.notes]
    assert notes[0] == "threads=128 has no meaning on Ascend and is ignored: a block runs on one core"
    assert "T.use_swizzle(panel) has no effect here" in notes[1]


def test_source_is_needed():
    space = {"T": T}
    exec("def f(X: T.Tensor((4,), 'float32')):\n    pass\n", space)
    e = error_of(lambda: T.prim_func(space["f"]))
    assert e.code == "TL1009"


# ---- what a user sees of them ---------------------------------------------------------------------------------------


def test_to_dict_and_pickle():
    import pickle

    e = error_of(in_kernel(lambda X, Y, x, y, n: T.gemm(x, y[0:32, :], x)))
    found = e.to_dict()
    assert found["error"] == "CompileError" and found["diagnostics"] == json.loads(e.as_json())
    assert found["diagnostics"][0]["code"] == "TL0502" and found["diagnostics"][0]["other"]["line"] > 0
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is CompileError and again.to_dict() == found and str(again) == str(e)
    argument = tilelang.ArgumentError("x is 3", "pass a tensor", ("k.py", 3, 1))
    assert pickle.loads(pickle.dumps(argument)).to_dict() == argument.to_dict()
    assert argument.code == "TL1030" and argument.to_dict()["diagnostics"][0]["fix"] == "pass a tensor"


PROGRAM = """
import tilelang, tilelang.language as T

def build():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x, eviction_policy="first")
            T.copy(x, X[0:32])

build()
"""


def run_program(tmp_path, **env):
    import os
    import subprocess
    import sys

    file = tmp_path / "k.py"
    file.write_text(PROGRAM)
    env = {**os.environ, **env}
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=env, cwd=tmp_path)


def test_an_uncaught_error_is_a_message_below_the_users_frames(tmp_path):
    p = run_program(tmp_path)
    assert p.returncode == 1 and p.stdout == ""
    assert "k.py:9:26: warning TL1020: T.copy(eviction_policy=...) has no effect on Ascend\n    " in p.stderr
    assert "k.py:10:20: error TL0501: T.copy moves 'x' of shape (64,)" in p.stderr
    lines = p.stderr.splitlines()
    assert lines[lines.index("                T.copy(x, X[0:32])") + 1] == "                       ^"
    assert p.stderr.rstrip().endswith("more: python -m tilelang explain TL0501")
    assert p.stderr.count("File ") == 2 and "frontend" not in p.stderr and "\033" not in p.stderr
    assert "frontend" in run_program(tmp_path, TILELANG_TRACEBACK="1").stderr


def test_colour_only_on_a_terminal(monkeypatch):
    from tilelang.errors import wants_color

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_color(Terminal()) and not wants_color(open("/dev/null"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Terminal())
    e = tilelang.ArgumentError("x is 3", "pass a tensor", ("k.py", 3, 1))
    assert "\033[1;31merror TL1030:\033[0m" in e.render(color=True) and "\033" not in str(e)
    assert e._render_traceback_()[0].startswith("k.py:3:1: ")


@pytest.mark.parametrize("call", ["T.pow((1, 2), 3)", "T.exp2(T.copy)", "T.ceildiv((1,), 2)", "T.cast(n, 5)"])
def test_an_argument_of_a_strange_kind_is_the_users_error(call, tmp_path):
    """No traceback of ours, whatever is passed to a function of T."""
    path = tmp_path / "strange.py"
    path.write_text(
        "import tilelang.language as T\n@T.prim_func\n"
        'def k(A: T.Tensor((8,), "float32"), n: T.int32):\n    with T.Kernel(1) as bx:\n'
        f"        x = {call}\n"
    )
    with pytest.raises(CompileError) as e:
        exec(compile(path.read_text(), str(path), "exec"), {})
    assert e.value.diagnostics[0].line == 5


def test_one_run_shows_every_wrong_call():
    def make():
        @T.prim_func
        def f(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64, 64), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64, 64), "float32")
                T.copy(X, x, sideways=True)
                T.tile.add(x, x)
                T.copy(x, Y[0:32, :])
                T.fill(x, x)
                T.tile.exq(x, x)
                T.fill(x, "never seen")

    found = error_of(make).errors
    assert [d.code for d in found] == ["TL1004", "TL1004", "TL0501", "TL1004", "TL1001"]
    assert [d.line - found[0].line for d in found] == [0, 1, 2, 3, 4]


def test_every_refused_name_says_what_to_write_instead():
    from tilelang.language import hints

    assert set(hints.REFUSED) == set(hints._INSTEAD)
    with pytest.raises(tilelang.CompileError, match="fix: write a tensor with an element for each block"):
        T.atomic_max


def test_one_message_for_a_statement_and_what_takes_its_value(tmp_path):
    e = error_of(in_kernel(lambda X, Y, x, y, n: T.copy(T.gemm(x, y), Y)))
    assert len(e.errors) == 1 and "argument 'C'" in str(e)


def test_a_number_beyond_a_signed_dtype_stands_for_its_bits_with_a_warning():
    def body(X, Y, x, y, n):
        b = T.alloc_shared((64,), "int8")
        b[0] = 200

    with pytest.warns(tilelang.errors.TileLangWarning, match="TL1026: 200 is beyond int8.* its bits are those of -56"):
        in_kernel(body)()


def test_places_to_gather_from_are_integers_though_they_are_the_data_too():
    with pytest.raises(tilelang.CompileError, match="TL0276.*the indices 'x' of dtype float16"):
        tilelang.compile(T.prim_func(gathers_by_itself))


def gathers_by_itself(X: T.Tensor((64, 64), "float16")):
    with T.Kernel(1) as bx:
        x = T.alloc_ub((64, 64), "float16")
        y = T.alloc_ub((64, 64), "float16")
        T.copy(X, x)
        T.tile.gather(y, x, x, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, r: T.gemm(x[0, 0], y, y),
        lambda x, y, r: T.gemm(y, y, x[0, 0]),
        lambda x, y, r: T.mma(A=x[0, 0], B=y, C=y),
        lambda x, y, r: T.reduce_sum(x[0, 0], r, dim=1),
        lambda x, y, r: T.tile.add(x[0, 0], y, 1.0),
        lambda x, y, r: T.tile.exp(x[0, 0], y),
        lambda x, y, r: T.tile.broadcast(x[0, 0], r),
        lambda x, y, r: T.tile.sigmoid(x[0, 0], y),
    ],
)
def test_an_element_where_a_tile_is_wanted(call):
    def make():
        @T.prim_func
        def f(n: T.int32, Y: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                x, y = T.alloc_shared((64, 64), "float32"), T.alloc_shared((64, 64), "float32")
                r = T.alloc_shared((64,), "float32")
                call(x, y, r)
                T.copy(r, Y)

    assert error_of(make).errors[0].fix == (
        "x[0, 0] is one element: write x for the whole tile, x[0 : m, 0 : n] for a part of it"
    )


def around(n):
    while n >= 0:  # AROUND
        n = (n + 1) % 7


def test_a_helper_that_never_ends(monkeypatch):
    monkeypatch.setattr("tilelang.frontend.watch.PAUSE", 0.05)

    def make():
        @T.prim_func
        def f(X: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                around(bx.range[0])

    check(make, "TL1006", "this loop of Python goes on, and makes no statement", "T.serial", marker="AROUND")
