"""T.printf, T.print, T.dump_tensor, T.device_assert: they show, and change nothing."""

import json
import pathlib
import re
import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug.interpret import interpret

_core = pytest.importorskip("tilelang._core")
ROOT = pathlib.Path(__file__).parents[1]


def make(loud):
    say = T if loud else Silent

    @T.prim_func
    def f(A: T.Tensor((70, 32), "float32"), C: T.Tensor((70, 32), "float32"), n: T.int32):
        say.printf("n is %d, %s\n", n, "text")
        say.dump_tensor(A, 7, 3)
        with T.Kernel(T.ceildiv(70, 32)) as bx:
            a, b = T.alloc_shared((32, 32), "float32"), T.alloc_shared((32, 32), "float32")
            T.copy(A[bx * 32, 0], a)
            say.print(a[0, 0:4], "first")
            say.printf("block %2d: %g%%\n", bx, a[0, 1])
            for i in T.serial(2):
                T.tile.mul(b, a, 2.0)
                say.print(i)
                say.device_assert(b[0, 0] < 1000.0, "too large: %f", b[0, 0])
                T.copy(b, a)
            T.copy(b, C[bx * 32, 0])
        say.print(C[69, 0:2])

    return tilelang.compile(f, out_idx=[1])


class Silent:
    printf = print = dump_tensor = device_assert = staticmethod(lambda *args: None)


def without_prints(text):
    lines = [x for x in text.split("\n") if not x.strip().startswith(("print ", "assert "))]
    text, more = "\n".join(x.rsplit(" @", 1)[0] for x in lines), 1
    while more:  # loops and ifs that held nothing else
        text, more = re.subn(r"\n *(?:for|if|while) [^\n]*\{\n *\}(?=\n)", "", text)
    return text


A = (np.arange(70 * 32) % 97).astype(np.float32).reshape(70, 32)


def test_nothing_changes():
    loud, quiet = make(True), make(False)
    assert without_prints(loud.ir(after="lowered")) == without_prints(quiet.ir(after="lowered"))
    assert loud.ir(after="lowered").count("print ") == 6
    np.testing.assert_array_equal(loud(A, 3), quiet(A, 3))
    for chosen in ("buffers", "flags", "memory"):
        a, b = ([(x.get("name"), x.get("addr"), x.get("why")) for x in k.explain_json()[chosen]] for k in (loud, quiet))
        assert a == b


def lines_of(out):
    return [x.split("test_print.py:")[-1] for x in out.strip().split("\n")]


def test_what_is_printed(capsys):
    kernel = make(True)
    capsys.readouterr()
    kernel(A, 3)
    simulated = lines_of(capsys.readouterr().out)
    at = make.__code__.co_firstlineno
    assert simulated[0] == f"{at + 5} before the launch: n is 3, text"
    assert simulated[1] == f"{at + 6} before the launch: dump 7: A float32[70, 32] [0, 1, 2]"
    assert simulated[2] == f"{at + 10} block (0), vector core: first: a float32[1, 4]"
    assert simulated[3] == "[[0, 1, 2, 3]]"
    assert simulated[4] == f"{at + 11} block (0), vector core: block  0: 1%"
    assert [x.split(": ")[-1] for x in simulated if f"{at + 14} " in x] == ["0", "1"] * 3
    assert simulated[-2:] == [f"{at + 18} after the launch: C float32[1, 2]", "[[296, 300]]"]
    assert kernel.last_run["printed"][4]["where"] == "block (0), vector core"
    kernel.interpret(A, 3)
    interpreted = lines_of(capsys.readouterr().out)
    assert [x.replace(", vector core", "") for x in simulated] == interpreted


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_order_does_not_depend_on_threads(threads, tlc):
    text = """tl 1
kernel @k(%A: gm f32[64], %C: gm f32[64] out) grid(%bx: 40) {
  alloc %a: ub f32[64]
  copy %A -> %a
  for %i in 0..%bx % 5 {
    print "%d of %d: %t", %i, %bx, %a[0 +: 2]
  }
  if %bx == 39 {
    copy %a -> %C
  }
}
"""
    status, out, _ = tlc("sim", "-", "--threads", str(threads), stdin=text)
    want = [f"block ({b}), vector core: {i} of {b}:" for b in range(40) for i in range(b % 5)]
    assert status == 0
    got = [x.split(" %a")[0].split(" ", 1)[1] for x in out.split("\n") if " of " in x and ":" in x]
    assert got[: len(want)] == want


def test_a_failed_assertion(capsys):
    kernel = make(True)
    big = A.copy()
    big[35, 0] = big[32, 0] = 600
    with pytest.raises(tilelang.KernelFault) as e:
        kernel(big, 3)
    d = e.value.diagnostics[0]
    assert d.code == "TL0817" and "too large: 1200.000000" in d.text and "block (1)" in d.text
    assert d.line == make.__code__.co_firstlineno + 15
    with pytest.raises(tilelang.KernelFault, match="TL0817.*too large: 1200.000000"):
        kernel.interpret(big, 3)


def test_cube_and_vector_cores_print_what_they_have(capsys):
    @T.prim_func
    def f(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1) as bx:
            a, b = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
            c, d = T.alloc_fragment((32, 32), "float32"), T.alloc_shared((32, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.print(b[0:1, 0:3], "in L1")
            T.gemm(a, b, c, clear_accum=True)
            T.print(c[3:4, 0:3], "in L0C")
            T.copy(c, d)
            T.printf("block %d\n", bx)
            T.print(d)
            T.tile.exp(d, d)
            T.copy(d, C)

    kernel = tilelang.compile(f, out_idx=[2])
    a = np.eye(32, dtype=np.float16)
    b = (np.arange(32 * 32) % 7).astype(np.float16).reshape(32, 32)
    capsys.readouterr()
    kernel(a, b)
    out = lines_of(capsys.readouterr().out)
    text = "\n".join(out)
    assert "block (0), cube core: in L1: b float16[1, 3]\n[[0, 1, 2]]" in text
    assert "block (0), cube core: in L0C: c float32[1, 3]\n[[5, 6, 0]]" in text
    assert text.count("block 0") == 1
    assert "vector core 0: d float32[16, 32]" in text and "vector core 1: d float32[16, 32]" in text


def test_the_sum_of_a_product_is_shown_while_it_grows(capsys):
    @T.prim_func
    def f(A: T.Tensor((32, 96), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1) as bx:
            a, b = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A[0, 0], b)
            T.clear(c)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.gemm(a, b, c)
                T.print(c[0:1, 0:2], "sum")
            for i, j in T.Parallel(32, 32):
                c[i, j] = c[i, j] * 2.0
            T.copy(c, C)

    kernel = tilelang.compile(f, out_idx=[1])
    for run in (kernel, kernel.interpret):
        capsys.readouterr()
        run(np.ones((32, 96), np.float16))
        said = "\n".join(lines_of(capsys.readouterr().out))
        assert [said.count(f"[[{n}, {n}]]") for n in (32, 64, 96)] == [1, 1, 1]


def test_only_what_would_change_the_program_is_left_out(capsys):
    @T.prim_func
    def f(A: T.Tensor((2, 32), "float32"), C: T.Tensor((2, 32), "float32"), n: T.int32):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((2, 32), "float32")
            T.copy(A, a)
            for i in T.serial(n):
                T.printf("step %d\n", i)
                for _ in T.serial(T.cast(a[0, 0], "int32")):
                    T.print("large")
            T.device_assert(n < 4)
            T.copy(a, C)

    with pytest.warns(tilelang.errors.TileLangWarning, match="TL1201.*this print is left out") as said:
        kernel = tilelang.compile(f, out_idx=[1])
    first = f.fn.__code__.co_firstlineno
    assert [w.message.diagnostic.line - first for w in said] == [8]
    capsys.readouterr()
    kernel(np.full((2, 32), 3, np.float32), 2)
    out = capsys.readouterr().out
    assert "step 0" in out and "step 1" in out and "large" not in out
    with pytest.raises(tilelang.KernelFault, match="`n < 4` does not hold"):
        kernel(np.zeros((2, 32), np.float32), 4)
    with pytest.raises(tilelang.KernelFault, match="`n < 4` does not hold"):
        kernel.interpret(np.zeros((2, 32), np.float32), 4)


def test_elements_that_the_scalar_unit_does_not_reach():
    @T.prim_func
    def f(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1) as bx:
            a, c = T.alloc_L1((32, 32), "float16"), T.alloc_L0C((32, 32), "float32")
            T.copy(A, a)
            T.gemm_v0(a, a, c, init=True)
            T.print(c[0, 0])
            T.print(c[0:1, 0:1])
            T.copy(c, C)

    with pytest.warns(tilelang.errors.TileLangWarning, match="does not reach 'c' in l0c; a slice is shown"):
        kernel = tilelang.compile(f, out_idx=[1])
    assert kernel.ir("lowered").count(" print ") == 1


def test_the_tools_that_run_a_kernel_many_times_are_quiet(capsys):
    @T.prim_func
    def f(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        T.print(A, "before")
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64,), "float32")
            T.copy(A, a)
            T.print(a)
            T.copy(a, C)

    kernel, a = tilelang.compile(f, out_idx=[1]), np.ones(64, np.float32)
    capsys.readouterr()
    assert kernel.compare(a) and not kernel.bisect(a) and not kernel.numerics(a)
    assert capsys.readouterr().out == ""
    kernel.interpret(a)
    assert len(lines_of(capsys.readouterr().out)) == 2


def test_a_number_of_a_dump_that_the_run_knows(capsys):
    @T.prim_func
    def f(A: T.Tensor((3, 32), "float32")):
        with T.Kernel(3) as bx:
            a = T.alloc_shared((1, 32), "float32")
            T.copy(A[bx, 0], a)
            T.dump_tensor(a, bx + 7, 2)

    kernel = tilelang.compile(f)
    for run in (kernel, kernel.interpret):
        capsys.readouterr()
        run(np.zeros((3, 32), np.float32))
        out = capsys.readouterr().out
        assert all(f"dump {n}: a float32[1, 32] [0, 0]" in out for n in (7, 8, 9))
    assert "DumpTensor(" in kernel.get_kernel_source()


def test_the_writers():
    kernel = make(True)
    source = kernel.get_kernel_source()
    assert 'AscendC::printf("block %2d: %g%%\\n", blockIdx, ' in source.replace("bx", "blockIdx")
    assert source.count("DumpTensor(") == 1 and "assert(" in source
    assert source.count("a print before the launch is the host's") == 2
    assert "no prints or assertions in PTO" in kernel.get_kernel_source("pto")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda a: T.printf("%d %d", 1), "'%d' has no value"),
        (lambda a: T.printf("%d", 1, 2), "2 values for 1 conversions"),
        (lambda a: T.printf("%t", 1), "no conversion '%t'"),
        (lambda a: T.printf("%f", a), "of the tile 'a'"),
        (lambda a: T.printf(a), "takes a format text first"),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(tilelang.CompileError, match="TL1004") as e:

        @T.prim_func
        def f(C: T.Tensor((16,), "float32")):
            with T.Kernel(1) as bx:
                a = T.alloc_shared((16,), "float32")
                T.clear(a)
                call(a)
                T.copy(a, C)

    assert message in str(e.value)


def test_prints_between_all_statements_change_nothing():
    """Every program of the pass and simulator tests, with a print of each buffer after each statement."""
    seen = 0
    for path in sorted([*ROOT.glob("pass/*/*.tl"), *ROOT.glob("python/golden/*.tl")]):
        p = _core.Program()
        text = path.read_text()
        if "after(" in text or not p.load(path.name, text):
            continue
        data, plain = json.loads(p.program_json()), _core.Program()
        plain.load(path.name, p.text())
        loud = _core.Program()
        if not plain.lower() or not loud.load(path.name, with_prints(p.text(), data)):
            continue
        assert loud.lower(verify_each=True), loud.diags_text()
        if "skew" not in path.name:  # there statements go into other iterations
            assert "would make another program" not in loud.diags_text(), path
        assert without_prints(loud.text()) == without_prints(plain.text()), path
        seen += "print" in loud.text()
    assert seen > 100


def with_prints(text, data):
    """A print of each buffer declared so far after each plain statement outside of `parallel`."""
    shapes = {b["name"]: len(b["shape"]) for b in data["bufs"]}
    out, names, depth, parallel = [], [], 0, None
    for line in text.split("\n"):
        out.append(line)
        word = line.strip()
        at = " @" + line.rsplit(" @", 1)[1] if " @" in line else ""
        if word.startswith("alloc "):
            names.append(word.split("%")[1].split(":")[0])
        depth += line.count("{") - line.count("}")
        if word.startswith("parallel ") and parallel is None:
            parallel = depth
        if parallel is not None and depth < parallel:
            parallel = None
        elif parallel is None and names and " -> " in word and shapes:
            out.append(f'print "%t", %{names[len(out) % len(names)]}{at}')
    return "\n".join(out)


@T.prim_func
def raises(X: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(2) as bx:
        if n > 3:
            raise ValueError("n is too large")
        for i in T.serial(4):
            if n + i > 5:
                raise IndexError
        X[bx] = 1.0


def test_a_raise_where_the_chip_decides_is_an_assertion():
    x = np.zeros(64, "float32")
    raises(x, 1)
    assert x[:3].tolist() == [1, 1, 0]
    with pytest.raises(tilelang.KernelFault, match=r"TL0817: ValueError: n is too large \(block"):
        raises(x, 4)
    with pytest.raises(tilelang.KernelFault, match=r"TL0817: IndexError \(block"):
        raises(x, 3)
    with pytest.raises(ValueError, match="n is too large"):  # in Python it is what it is
        raises.compiled().interpret(x, 4)


@T.prim_func
def conditional(X: T.Tensor((4, 16), "float32"), Y: T.Tensor((4, 16), "float32")):
    with T.Kernel(1) as bx:
        x, y = T.alloc_ub((4, 16), "float32"), T.alloc_ub((4, 16), "float32")
        T.copy(X, x)
        for i in T.serial(4):
            if x[i, 0] > 20:
                T.printf("row %d is %g", i, x[i, 0])
                if x[i, 0] > 40:
                    T.print(x[i, 0:2], "row")
            else:
                T.printf("small %d", i)
            v = x[i, 2]
            if v > 30:
                T.printf("v %g", v)
                T.device_assert(x[i, 1] < 1000, "large")
        for i, j in T.Parallel(4, 16):
            y[i, j] = x[i, j] * 2
        T.copy(y, Y)


@T.prim_func
def silent(X: T.Tensor((4, 16), "float32"), Y: T.Tensor((4, 16), "float32")):
    with T.Kernel(1) as bx:
        x, y = T.alloc_ub((4, 16), "float32"), T.alloc_ub((4, 16), "float32")
        T.copy(X, x)
        for i, j in T.Parallel(4, 16):
            y[i, j] = x[i, j] * 2
        T.copy(y, Y)


def test_prints_under_conditions_on_elements():
    """They are shown, and the program is the one without them."""
    x, y = np.arange(64, dtype="float32").reshape(4, 16), np.zeros((4, 16), "float32")
    kernel = conditional.compiled()
    kernel(x, y)
    said = [p["text"] for p in kernel.last_run["printed"]]
    assert said[:5] == ["small 0", "small 1", "row 2 is 32", "v 34", "row 3 is 48"]
    assert said[5].startswith("row: ") and "[[48, 49]]" in said[5] and said[6:] == ["v 50"]
    assert not kernel.diagnostics

    def plain(text):  # without prints and places
        lines = [re.sub(r" @[\d:]+$", "", n) for n in text.splitlines() if " print " not in n and " assert " not in n]
        return [n for n in lines if not n.startswith(("file", "kernel", "tl"))]

    with_says = "\n".join(plain(kernel.ir(after="sync")))
    with_says = re.sub(r"\n +for %i in 0..4 \{\n +\}", "", with_says)
    assert with_says.splitlines() == plain(silent.compiled().ir(after="sync"))
    assert "if (x.GetValue" in kernel.get_kernel_source("ascendc")
    x[3, 1] = 1000
    with pytest.raises(tilelang.KernelFault, match="TL0817: `x.i, 1. < 1"):
        kernel(x, y)


def test_the_index_of_a_loop_whose_sides_run_apart(capsys):
    """The cube works on another iteration than the vector cores: what is shown is the one that the author means."""

    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            a, b, p = (T.alloc_shared((64, 64), "float16") for _ in range(3))
            s, c = (T.alloc_fragment((64, 64), "float32") for _ in range(2))
            T.copy(A, a)
            T.clear(c)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(B[i * 64, 0], b)
                T.gemm(a, b, s, transpose_B=True, clear_accum=True)
                T.printf("%d\n", i * 10)
                T.tile.mul(s, s, 0.5)
                T.copy(s, p)
                T.gemm(p, b, c)
            T.copy(c, C)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = tilelang.compile(f, out_idx=[2])
    a, b = (np.ones(s, np.float16) for s in ((64, 64), (256, 64)))
    kernel(a, b)
    assert [x.rsplit(" ", 1)[-1] for x in lines_of(capsys.readouterr().out)] == ["0", "10", "20", "30"]


def test_values_in_f_strings(capsys):
    """A text with values of the chip in it shows what they are when the kernel runs."""

    @T.prim_func
    def f(A: T.Tensor((16, 64), "float32"), n: T.int32):
        with T.Kernel(1) as _:
            a = T.alloc_shared((16, 64), "float32")
            T.copy(A, a)
            T.printf(f"n = {n}, a = {a[0, 1]}, 7%%\n")
            T.print(f"n is {n} 100% %d")
            T.print(a[0, 0:3], msg=f"row {n}")
            T.printf(f"{n} %d %s %5.1f\n", n + 1, n + 2, a[0, 3])
            T.printf("%s|%s|%s\n", n, a[0, 2], "x%d")
            both = f"n {n}" + f", 50%% of {a[0, 4]}"
            T.printf("of " + f"({both})" + "\n")
            T.device_assert(n == 3, f"n is {n}, 100%, {a[0, 1]}")

    kernel, x = tilelang.compile(f), np.arange(1024, dtype=np.float32).reshape(16, 64)
    for call in (kernel, kernel.interpret):
        capsys.readouterr()
        call(x, 3)
        said = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines() if ": " in line]
        assert said[:2] + said[3:] == [
            "n = 3, a = 1, 7%", "n is 3 100% %d", "3 4 5   3.0", "3|2|x%d", "of (n 3, 50% of 4)",
        ]  # fmt: skip
        assert said[2].startswith("row 3: a float32[1, 3]")
        with pytest.raises(tilelang.KernelFault, match="n is 4, 100%, 1 "):
            call(x, 4)
