"""Products of parts of tiles: where the cube can address them, what it cannot, and accumulators filled by parts."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

P = 64


def product(kind, row, col, rows, at=0, dtype="float16"):
    @T.prim_func
    def main(A: T.Tensor((P, P), dtype), B: T.Tensor((P, P), dtype), C: T.Tensor((P, P), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), dtype)
            b = T.alloc_shared((P, P), dtype)
            c = T.alloc_fragment((P, P), "float32")
            T.copy(A, a)
            T.copy(B, b)
            if kind == "computed":
                for i, j in T.Parallel(P, P):
                    a[i, j] = a[i, j] * 2.0
            T.clear(c)
            if kind in ("left", "computed"):
                T.gemm(a[row : row + rows, col : col + 32], b[0:32, 0:P], c[at : at + rows, :])
            if kind == "right":
                T.gemm(a[0:32, 0:rows], b[row : row + rows, col : col + 32], c[at : at + 32, 0:32])
            if kind == "left turned":
                T.gemm(a[row : row + rows, col : col + 32], b[0:rows, 0:P], c[at : at + 32, :], transpose_A=True)
            if kind == "right turned":
                T.gemm(a[0:32, 0:32], b[row : row + rows, col : col + 32], c[at : at + 32, 0:rows], transpose_B=True)
            T.copy(c, C)

    return main


def expected(kind, row, col, rows, at, a, b):
    a, b, c = a.astype("f4"), b.astype("f4"), np.zeros((P, P), "f4")
    part_a, part_b = a[row : row + rows, col : col + 32], b[row : row + rows, col : col + 32]
    if kind in ("left", "computed"):
        c[at : at + rows] = (2 if kind == "computed" else 1) * part_a @ b[:32]
    elif kind == "right":
        c[at : at + 32, :32] = a[:32, :rows] @ part_b
    elif kind == "left turned":
        c[at : at + 32] = part_a.T @ b[:rows]
    else:
        c[at : at + 32, :rows] = a[:32, :32] @ part_b.T
    return c


KINDS = ["left", "right", "left turned", "right turned", "computed"]
AS_THEY_ARE = ("left", "right turned", "computed")  # float32 fractals that need no turning


@pytest.mark.parametrize("chip", ["910B3", "950"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row, col, rows, at", [(8, 0, 16, 0), (13, 16, 32, 16), (5, 0, 20, 0), (0, 16, 16, 32)])
def test_a_part_from_any_row(kind, row, col, rows, at, dtype, chip):
    if row and dtype == "float32" and kind not in AS_THEY_ARE:
        with pytest.raises(tilelang.CompileError, match="TL0504"):
            tilelang.compile(product(kind, row, col, rows, at, dtype), chip=chip)
        return
    kernel = tilelang.compile(product(kind, row, col, rows, at, dtype), chip=chip)
    rng = np.random.default_rng(row)
    a, b = (rng.standard_normal((P, P)).astype(dtype) for _ in "ab")
    c = np.zeros((P, P), "f4")
    kernel(a, b, c)
    np.testing.assert_allclose(c, expected(kind, row, col, rows, at, a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kind, row, col, rows, at, word",
    [
        ("left", 0, 5, 16, 0, "column 5 is no multiple of 16"),
        ("right", 0, 24, 16, 0, "column 24 is no multiple of 16"),
        ("left", 44, 0, 20, 0, "row 44 is no multiple of 16"),
        ("left", 0, 0, 16, 8, "row 8 is no multiple of 16"),
    ],
)
def test_a_part_out_of_reach_is_told_once(kind, row, col, rows, at, word):
    with pytest.raises(tilelang.CompileError, match=word) as e:
        tilelang.compile(product(kind, row, col, rows, at))
    assert str(e.value).count("error TL") == 1


def test_a_computed_part_gets_a_tile_of_its_own():
    kernel = tilelang.compile(product("computed", 3, 5, 16))
    a = np.arange(P * P).reshape(P, P).astype("f2") / 4096
    b, c = np.eye(P, dtype="f2"), np.zeros((P, P), "f4")
    kernel(a, b, c)
    np.testing.assert_array_equal(c, expected("computed", 3, 5, 16, 0, a, b))


@pytest.mark.parametrize("order", ["halves", "part twice", "planes", "part cleared", "loop"])
def test_accumulators_cleared_whole_and_multiplied_by_parts(order):
    @T.prim_func
    def main(A: T.Tensor((P, P), "float16"), B: T.Tensor((P, P), "float16"), C: T.Tensor((2, P, P), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), "float16")
            b = T.alloc_shared((P, P), "float16")
            c = T.alloc_fragment((2, P, P), "float32")
            T.copy(A, a)
            T.copy(B, b)
            if order == "part cleared":
                T.gemm(a, b, c[0, :, :], clear_accum=True)
                T.gemm(a, b, c[1, :, :], clear_accum=True)
                T.clear(c[0, 0:32, :])
                T.gemm(a, b, c[0, :, :])
            else:
                T.clear(c)
            if order == "halves":
                T.gemm(a[0:32, :], b, c[0, 0:32, :])
                T.gemm(a[32:64, :], b, c[0, 32:64, :])
            if order == "part twice":
                T.gemm(a[0:32, :], b, c[1, 0:32, :])
                T.gemm(a[0:32, :], b, c[1, 0:32, :])
            if order == "planes":
                T.gemm(a, b, c[1, :, :])
                T.gemm(a, b, c[0, :, :])
            if order == "loop":
                for s in T.serial(4):
                    T.gemm(a[s * 16 : s * 16 + 16, :], b, c[s % 2, s * 16 : s * 16 + 16, :])
            T.copy(c, C)

    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((P, P)).astype("f2") for _ in "ab")
    c, p, want = np.full((2, P, P), 7, "f4"), a.astype("f4") @ b.astype("f4"), np.zeros((2, P, P), "f4")
    if order == "halves":
        want[0] = p
    elif order == "part twice":
        want[1, :32] = 2 * p[:32]
    elif order == "planes":
        want[:] = p
    elif order == "loop":
        for s in range(4):
            want[s % 2, s * 16 : s * 16 + 16] = p[s * 16 : s * 16 + 16]
    else:
        want[:] = p
        want[0, 32:] *= 2
    tilelang.compile(main)(a, b, c)
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("row, col, cube", [(16, 0, True), (15, 0, True), (8, 16, True), (16, 5, False)])
def test_a_product_written_as_loops(row, col, cube):
    @T.prim_func
    def main(A: T.Tensor((P, 32), "float16"), B: T.Tensor((P, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, 32), "float16")
            b = T.alloc_shared((P, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for i, j, k in T.Parallel(16, 16, 16):
                c[i, j] += a[i + row, k + col] * b[k + row, j]
            T.copy(c, C)

    kernel = tilelang.compile(main)
    rng = np.random.default_rng(row)
    a, b = rng.standard_normal((P, 32)).astype("f2"), rng.standard_normal((P, 16)).astype("f2")
    c = np.zeros((16, 16), "f4")
    kernel(a, b, c)
    left, right = a[row : row + 16, col : col + 16, None], b[None, row : row + 16]
    if cube:  # products are exact there; the vector unit rounds each to float16, as it stands in the text
        left, right = left.astype("f4"), right.astype("f4")
    want = (left * right).sum(1, dtype="f4")
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-5)
    assert ("mmad" in str(kernel.ir("sync"))) == cube


@pytest.mark.parametrize("start", ["tensor", "UB", "shared", "fragment", "constant", "product", "a part", "in a loop"])
def test_an_accumulator_that_starts_with_values(start):
    @T.prim_func
    def main(
        A: T.Tensor((P, P), "float16"),
        B: T.Tensor((P, P), "float16"),
        D: T.Tensor((P, P), "float32"),
        C: T.Tensor((P, P), "float32"),
    ):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), "float16")
            b = T.alloc_shared((P, P), "float16")
            c = T.alloc_fragment((P, P), "float32")
            T.copy(A, a)
            T.copy(B, b)
            if start in ("UB", "shared", "fragment"):
                alloc = {"UB": T.alloc_ub, "shared": T.alloc_shared, "fragment": T.alloc_fragment}[start]
                d = alloc((P, P), "float32")
                T.copy(D, d)
                T.copy(d, c)
            elif start == "constant":
                T.fill(c, 1.5)
            elif start == "product":
                e = T.alloc_fragment((P, P), "float32")
                T.gemm(a, b, e, clear_accum=True)
                T.copy(e, c)
            elif start == "a part":
                T.clear(c)
                T.copy(D[0:32, :], c[0:32, :])
            else:
                T.copy(D, c)
            if start == "in a loop":
                for k in T.Pipelined(4, num_stages=2):
                    T.gemm(a[:, k * 16 : k * 16 + 16], b[k * 16 : k * 16 + 16, :], c)
            else:
                T.gemm(a, b, c)
            T.copy(c, C)

    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((P, P)).astype("f2") for _ in "ab")
    d, c, p = rng.standard_normal((P, P)).astype("f4"), np.zeros((P, P), "f4"), a.astype("f4") @ b.astype("f4")
    first = {"constant": 1.5, "product": p, "a part": np.where(np.arange(P)[:, None] < 32, d, 0)}.get(start, d)
    tilelang.compile(main)(a, b, d, c)
    np.testing.assert_allclose(c, first + p, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("through", ["tensor", "fragment"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "int8", "int32"])
def test_sums_of_int8_leave_as_another_dtype(dtype, through):
    @T.prim_func
    def main(A: T.Tensor((P, P), "int8"), B: T.Tensor((P, P), "int8"), C: T.Tensor((P, P), dtype)):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), "int8")
            b = T.alloc_shared((P, P), "int8")
            c = T.alloc_fragment((P, P), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            if through == "tensor":
                T.copy(c, C)
            else:
                d = T.alloc_fragment((P, P), dtype)
                T.copy(c, d)
                T.copy(d, C)

    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 2, (P, P)).astype("i1") for _ in "ab")
    c = np.zeros((P, P), dtype)
    tilelang.compile(main)(a, b, c)
    np.testing.assert_array_equal(c, (a.astype("i4") @ b.astype("i4")).astype(dtype))


@pytest.mark.parametrize("jump", ["break", "continue"])
@pytest.mark.parametrize("n", [0, 1, 3, 9])
def test_a_loop_that_is_left_before_its_product(jump, n):
    @T.prim_func
    def main(
        A: T.Tensor((P, P), "float16"), B: T.Tensor((P, P), "float16"), n: T.int32, C: T.Tensor((P, P), "float32")
    ):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, 16), "float16")
            b = T.alloc_shared((16, P), "float16")
            c = T.alloc_fragment((P, P), "float32")
            T.clear(c)
            for k in T.serial(4):
                if k == n:
                    if jump == "break":
                        break
                    else:
                        continue
                T.copy(A[0, k * 16], a)
                T.copy(B[k * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((P, P)).astype("f2") for _ in "ab")
    c = np.zeros((P, P), "f4")
    tilelang.compile(main)(a, b, n, c)
    steps = [k for k in range(4) if (k < n if jump == "break" else k != n)]
    want = sum((a[:, 16 * k :][:, :16].astype("f4") @ b[16 * k :][:16].astype("f4") for k in steps), np.zeros((P, P)))
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("use", ["copied", "scaled", "started", "operand"])
@pytest.mark.parametrize("dtype, sums", [("float16", "float16"), ("bfloat16", "bfloat16"), ("int8", "float32")])
def test_accumulators_of_other_dtypes_than_the_cube_has(dtype, sums, use):
    """Sums are made in float32 (int32) and become the accumulator's dtype when they leave the cube."""

    @T.prim_func
    def main(
        A: T.Tensor((P, P), dtype), B: T.Tensor((P, P), dtype), D: T.Tensor((P, P), sums), C: T.Tensor((P, P), sums)
    ):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), dtype)
            b = T.alloc_shared((P, P), dtype)
            c = T.alloc_fragment((P, P), sums)
            T.copy(A, a)
            T.copy(B, b)
            if use == "started":
                T.copy(D, c)
            else:
                T.clear(c)
            for k in T.serial(2):
                T.gemm(a[:, k * 32 : k * 32 + 32], b[k * 32 : k * 32 + 32, :], c)
            if use == "scaled":
                for i, j in T.Parallel(P, P):
                    c[i, j] = c[i, j] * 0.5
            if use == "operand":
                s = T.alloc_shared((P, P), dtype)
                e = T.alloc_fragment((P, P), sums)
                T.copy(c, s)
                T.gemm(s, b, e, clear_accum=True)
                T.copy(e, C)
            else:
                T.copy(c, C)

    rng = np.random.default_rng(7)
    kind, out = (ml_dtypes.bfloat16 if d == "bfloat16" else d for d in (dtype, sums))
    a, b = (rng.integers(0, 2, (P, P)).astype(kind) for _ in "ab")
    d, c = rng.integers(0, 4, (P, P)).astype(out), np.zeros((P, P), out)
    tilelang.compile(main)(a, b, d, c)
    p = a.astype("f4") @ b.astype("f4")
    want = {"copied": p, "scaled": p * 0.5, "started": p + d.astype("f4"), "operand": p @ b.astype("f4")}[use]
    np.testing.assert_allclose(c.astype("f4"), want, rtol=1e-2 if sums == "bfloat16" else 1e-3)


STEPS = ["clear", "multiply", "start", "clear if", "multiply if", "start if", "start when"]


@pytest.mark.parametrize("last", STEPS)
@pytest.mark.parametrize("middle", STEPS)
def test_accumulator_that_is_cleared_and_started(middle, last):
    """Whatever came since it was cleared, at compile time or at run time: nothing is lost, nothing stays."""
    steps = ["clear", middle, last, "multiply"]

    @T.prim_func
    def main(A: T.Tensor((P, P), "float16"), B: T.Tensor((P, P), "float16"), s: T.int32, C: T.Tensor((P, P), "float")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((P, P), "float16")
            b = T.alloc_shared((P, P), "float16")
            c = T.alloc_fragment((P, P), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for step in steps:
                if step == "clear":
                    T.clear(c)
                elif step == "multiply":
                    T.gemm(a, b, c)
                elif step == "start":
                    T.gemm(a, b, c, clear_accum=True)
                elif step == "start when":
                    T.gemm(a, b, c, clear_accum=s == 1)
                elif s == 1:
                    if step == "clear if":
                        T.clear(c)
                    else:
                        T.gemm(a, b, c, clear_accum=step == "start if")
            T.copy(c, C)

    kernel = tilelang.compile(main)
    a = b = np.ones((P, P), np.float16)
    for s in (0, 1):
        c, n = np.zeros((P, P), np.float32), 0
        kernel(a, b, s, c)
        for step in steps:
            if step.endswith("if") and not s:
                continue
            starts = step.startswith(("clear", "start")) and (step != "start when" or s)
            n = (0 if starts else n) + (not step.startswith("clear"))
        assert np.all(c == P * n), (s, c[0, 0] / P, n)


def test_part_of_a_tile_past_the_end_of_the_tensor():
    """Rows that the tensor does not have are zeros, in whichever part of the tile they come."""

    @T.prim_func
    def main(A: T.Tensor((100, P), "float16"), B: T.Tensor((P, P), "float16"), C: T.Tensor((2 * P, P), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((2 * P, P), "float16")
            b = T.alloc_shared((P, P), "float16")
            c = T.alloc_fragment((2 * P, P), "float32")
            for i in T.serial(2):
                T.copy(A[i * P : i * P + P, :], a[i * P : i * P + P, :])
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    c = np.full((2 * P, P), 7, np.float32)
    tilelang.compile(main)(np.ones((100, P), np.float16), np.ones((P, P), np.float16), c)
    assert np.all(c[:100] == P) and np.all(c[100:] == 0)
