"""Reports about dynamic shapes, frameworks, installation and documents."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_R154_one_program_for_any_number_of_rows(rng):
    m = T.symbolic("m")

    @T.prim_func
    def f(X: T.Tensor((m, 48), "float32"), Y: T.Tensor((m, 48), "float16")):
        with T.Kernel(T.ceildiv(m, 8)) as bx:
            x = T.alloc_ub((8, 48), "float32")
            y = T.alloc_ub((8, 48), "float16")
            T.copy(X[bx * 8, 0], x)
            T.tile.cast(y, x, "CAST_RINT", 8 * 48)
            T.copy(y, Y[bx * 8, 0])

    kernel = tilelang.compile(f)
    for rows in (1, 7, 64):
        x, y = rng.standard_normal((rows, 48), np.float32), np.zeros((rows, 48), np.float16)
        kernel(x, y)
        assert np.array_equal(y, x.astype(np.float16))


def test_R155_dimensions_that_are_expressions(rng):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n,), "float32"), O: T.Tensor((n + 1,), "int32"), Y: T.Tensor((2 * n,), "float32")):
        with T.Kernel(n) as bx:
            Y[2 * bx] = X[bx]
            Y[2 * bx + 1] = T.cast(O[bx + 1] - O[bx], "float32")

    kernel = tilelang.compile(f)
    for size in (1, 5):
        x, o = rng.standard_normal(size, np.float32), np.arange(size + 1, dtype=np.int32) ** 2
        y = np.zeros(2 * size, np.float32)
        kernel(x, o, y)
        assert np.array_equal(y[::2], x) and np.array_equal(y[1::2], np.diff(o))
    with pytest.raises(tilelang.ArgumentError, match=r"'O' has shape \(5,\), wanted \(6,\).*n is 5"):
        kernel(np.zeros(5, np.float32), np.zeros(5, np.int32), np.zeros(10, np.float32))


def test_R156_no_size_has_to_divide_anything(rng):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32"), Z: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128)) as bx:
            for i in T.Parallel(128):
                Z[bx * 128 + i] = X[bx * 128 + i] + Y[bx * 128 + i]

    kernel = tilelang.compile(f)
    for size in (1, 2, 31, 127, 128, 129, 300):
        x, y, z = (rng.standard_normal(size, np.float32) for _ in range(3))
        kernel(x, y, z)
        assert np.array_equal(z, x + y)


def test_R157_promises_about_sizes_are_not_needed(rng):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n, 8), "float32"), Y: T.Tensor((n, 8), "float32")):
        with T.Kernel(T.ceildiv(n, 8)) as bx:
            T.assume(n % 8 == 0)
            x = T.alloc_ub((8, 8), "float32")
            T.copy(X[bx * 8, 0], x)
            T.copy(x, Y[bx * 8, 0])

    x, y = rng.standard_normal((12, 8), np.float32), np.zeros((12, 8), np.float32)
    tilelang.compile(f)(x, y)  # 12 breaks the promise, and nothing relies on it
    assert np.array_equal(x, y)


def test_R158_tiles_of_unknown_size_are_refused(fails):
    m = T.symbolic("m")

    def make():
        @T.prim_func
        def f(X: T.Tensor((m, 64), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((m, 64), "float32")
                T.annotate_address({x: 4096})
                T.copy(X, x)

    fails(make, "TL1004", "size m", "largest size")


def test_R161_the_written_program_stands_alone():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    source = tilelang.compile(f).get_kernel_source()
    included = set(re.findall(r'#include [<"](.*)[>"]', source))
    assert included and not any("tilelang" in i for i in included)


def test_R162_R163_from_source_to_call_in_one_step(tmp_path):
    (tmp_path / "op.py").write_text(
        "import tilelang, tilelang.language as T\n"
        "@tilelang.jit(out_idx=[-1])\n"
        "def double(n):\n"
        "    @T.prim_func\n"
        "    def f(X: T.Tensor((n,), 'float32'), Y: T.Tensor((n,), 'float32')):\n"
        "        with T.Kernel(1) as bx:\n"
        "            x = T.alloc_ub((n,), 'float32')\n"
        "            T.copy(X, x)\n"
        "            T.tile.add(x, x, x)\n"
        "            T.copy(x, Y)\n"
        "    return f\n"
    )
    code = "import numpy as np, op; print(op.double(8)(np.ones(8, np.float32)).tolist())"
    p = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert p.stdout == "[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]\n", p.stderr


def test_R165_optional_arguments_are_variants(rng):
    def masked(with_mask):
        parameters = {"X": T.Tensor((64,), "float32"), "Y": T.Tensor((64,), "float32")}

        def body(X, Y, M=None):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64,), "float32")
                T.copy(X, x)
                if M is not None:
                    m = T.alloc_ub((64,), "float32")
                    T.copy(M, m)
                    T.tile.mul(x, x, m)
                T.copy(x, Y)

        if with_mask:
            parameters["M"] = T.Tensor((64,), "float32")

            def f(X, Y, M):
                call(X, Y, M)
        else:

            def f(X, Y):
                call(X, Y)

        call = T.macro(body)
        f.__annotations__ = parameters
        return tilelang.compile(T.prim_func(f), out_idx=1)

    x, m = rng.standard_normal(64, np.float32), rng.integers(0, 2, 64).astype(np.float32)
    assert np.array_equal(masked(False)(x), x) and np.array_equal(masked(True)(x, m), x * m)


@pytest.mark.parametrize("blocks", [1, 0])
def test_R166_an_empty_launch_does_nothing(blocks):
    n = T.symbolic("n")

    @T.prim_func
    def f(X: T.Tensor((n, 8), "float32"), Y: T.Tensor((n, 8), "float32")):
        with T.Kernel(n) as bx:
            x = T.alloc_ub((8,), "float32")
            T.copy(X[bx, :], x)
            T.copy(x, Y[bx, :])

    kernel = tilelang.compile(f)
    kernel(np.zeros((1, 8), np.float32), np.zeros((1, 8), np.float32))
    kernel(np.zeros((blocks, 8), np.float32), np.zeros((blocks, 8), np.float32))
    assert kernel.last_run["blocks"] == blocks


@pytest.mark.parametrize("first, second", [("tilelang", "torch"), ("torch", "tilelang")])
def test_R170_order_of_imports(first, second):
    pytest.importorskip("torch")
    code = f"import {first}, {second}, tilelang; from tilelang import _core; print(len(_core.passes()) > 5)"
    p = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert p.stdout == "True\n", p.stderr


def test_R168_R169_R174_what_the_build_needs():
    """One library to build, from one folder: no submodules, no packages but a C compiler's own."""
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert set(re.findall(r"find_package\((\w+)", cmake)) == {"Threads", "Python"}
    assert not (ROOT / ".gitmodules").exists()
    headers = {
        h for p in (ROOT / "src").rglob("*.[ch]") if not {"python", "rt", "twin"} & set(p.parts)
        for h in re.findall(r"^#include <(.*)>", p.read_text(), re.M)
    }  # fmt: skip
    standard = "errno float inttypes limits locale math pthread setjmp stdarg stdatomic stdbool stddef stdint stdio"
    assert headers <= {f"{h}.h" for h in f"{standard} stdlib string time unistd immintrin".split()}, headers


def test_R164_the_extension_knows_no_framework():
    from tilelang import _core

    text = pathlib.Path(_core.__file__).read_bytes()
    assert not re.search(rb"libtorch|libc10|at::Tensor|torch_npu\.", text)
    x = np.arange(12, dtype=np.float32)
    assert tilelang.tensors.view(x, "x").address == x.ctypes.data


def test_R171_the_extension_asks_for_an_old_c_library():
    from tilelang import _core

    text = pathlib.Path(_core.__file__).read_bytes()
    wanted = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_(2\.\d+)", text)}
    assert wanted and _core.__file__.endswith(".abi3.so")


def test_R172_one_table_of_chips():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((64,), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    from tilelang import _core

    for name, family, *_ in _core.chips():
        kernel = tilelang.compile(f, chip=name)
        assert name in kernel.get_kernel_source(), name
        assert kernel.explain_json()["chip"] == name and family in ("a2", "a3", "a5")


def test_R176_stages_are_named_and_the_second_number_is_the_end():
    def trips(*bounds, **options):
        @T.prim_func
        def f(Y: T.Tensor((16, 8), "float32")):
            with T.Kernel(1) as bx:
                y = T.alloc_ub((8,), "float32")
                for i in T.Pipelined(*bounds, **options):
                    T.tile.fill(y, 1.0)
                    T.copy(y, Y[i, :])

        y = np.zeros((16, 8), np.float32)
        tilelang.compile(f)(y)
        return y[:, 0].nonzero()[0].tolist()

    assert trips(8, num_stages=2) == list(range(8)) and trips(2, 8) == list(range(2, 8)) and trips(8, 2) == []


def test_R177_fused_operations_compute_what_their_names_say():
    @T.prim_func
    def f(A: T.Tensor((8,), "float32"), S: T.Tensor((8,), "float32"), M: T.Tensor((8,), "float32"),
          Y: T.Tensor((2, 8), "float32")):  # fmt: skip
        with T.Kernel(1) as bx:
            acc = T.alloc_ub((8,), "float32")
            s = T.alloc_ub((8,), "float32")
            m = T.alloc_ub((8,), "float32")
            T.copy(A, acc)
            T.copy(S, s)
            T.copy(M, m)
            T.tile.mul_add_dst(acc, s, m)  # s * m + acc
            T.copy(acc, Y[0, :])
            T.copy(A, acc)
            for i in T.Parallel(8):
                acc[i] = acc[i] * s[i] - m[i]
            T.copy(acc, Y[1, :])

    a, s, m = (np.full(8, v, np.float32) for v in (2, 3, 5))
    y = tilelang.compile(f, out_idx=-1)(a, s, m)
    assert y[0, 0] == 3 * 5 + 2 and y[1, 0] == 2 * 3 - 5


def test_R178_scalar_operands_are_described():
    from tilelang.language import tile

    ops = (ROOT / "docs/ops.md").read_text()
    for name in ("add", "sub", "mul", "div", "max", "min"):
        assert tile._TABLE[name][1] == "re"  # a tile, then a tile or one value
        assert f"`{name} %a, %b|b -> %dst`" in ops.replace("\\|", "|"), name


def test_R179_the_programs_of_the_readme_run(tmp_path):
    for page in ("README.md", "README.zh.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        program = re.search(r"```python\n(.*?)```", text, re.S)[1].replace("1000, 777, 1234", "100, 77, 123")
        program = program.replace("(1000, 1234), (1234, 777)", "(100, 123), (123, 77)")
        file = tmp_path / "readme.py"
        file.write_text(program, encoding="utf-8")
        p = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env={**os.environ})
        assert p.returncode == 0 and float(p.stdout.splitlines()[0]) < 1e-3, p.stderr


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_R180_merges_of_two_three_and_four_lists(rng, ways, dtype):
    width = 64 // np.dtype(dtype).itemsize // 8  # elements of a record of 8 bytes

    @T.prim_func
    def f(X: T.Tensor((ways, 32), dtype), Y: T.Tensor((ways * 32 * width,), dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((ways, 32), dtype)
            index = T.alloc_ub((32,), "uint32")
            runs = T.alloc_ub((ways, 32 * width), dtype)
            y = T.alloc_ub((ways * 32 * width,), dtype)
            T.copy(X, x)
            for w in T.unroll(ways):
                T.tile.arith_progression(T.view(index, dtype="int32"), w * 32, 1)
                T.tile.sort32(runs[w, :], x[w, :], index)
            T.tile.merge_sort(y, *(runs[w, :] for w in range(ways)))
            T.copy(y, Y)

    x = rng.permutation(ways * 32).astype(dtype).reshape(ways, 32)
    y = tilelang.compile(f, out_idx=-1)(x)
    assert np.array_equal(y[::width], np.sort(x.ravel())[::-1])
    assert np.array_equal(y.view(np.uint32)[1::2], np.argsort(-x.ravel().astype(np.float32), kind="stable"))
