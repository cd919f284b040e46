"""The interpreter against the simulated chip: two readings of the IR that share no code give the same bytes."""

import contextlib
import json
import pathlib
import re
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug.arith import apply, np_dtype
from tilelang.debug.interpret import interpret
from tilelang.debug.load import program
from tilelang.errors import KernelFault
from tilelang.frontend.expr import Buffer, evaluate
from tilelang.language.dtypes import DType

_core = pytest.importorskip("tilelang._core")
ROOT = pathlib.Path(__file__).parents[1]
# Functions that are lowered to several instructions, and sums whose order is the lowering's: relative error
CLOSE = {"ew_pow": 1e-5, "ew_unary": 1e-5}
# left out: indices and sizes do not fit them; powers of negative numbers, where the last bit of an exponent decides;
# blocks that write the same
FAULTY = {"ew_gather_index", "gemm_batch", "gm_dynamic", "gm_row_gather", "ew_sin", "l1-column"}


def arguments(params):
    """Small integers for every parameter, so that sums are exact."""
    rng, sizes, out = np.random.default_rng(1), {}, []
    for p in params:
        if not isinstance(p, Buffer):
            sizes[p.name] = 1.5 if p.dtype.is_float else 70
            out.append(sizes[p.name])
            continue
        shape = tuple(int(evaluate(s, sizes)) for s in p.shape)
        low = 0 if p.dtype.startswith("u") or p.mark else -4
        out.append(rng.integers(low, 1 if p.mark else 5, shape).astype(np_dtype(p.dtype)))
    return out


def simulate(text, args, lowered=False):
    p = _core.Program()
    assert p.load("kernel.tl", text) and (lowered or p.lower()), p.diags_text()
    ok, _ = p.sim([(a.ctypes.data, a.shape) if isinstance(a, np.ndarray) else a for a in args])
    assert ok, p.diags_text()
    return p.text()


def agree(got, want, rtol):
    for a, b in zip(got, want):
        if isinstance(a, np.ndarray) and rtol:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


def texts(folder):
    found = sorted((ROOT / folder).glob("*.tl"))
    found = [p for p in found if p.stem not in FAULTY and not p.stem.startswith(("bad_", "bad-"))]
    return [pytest.param(p, id=p.stem) for p in found]


@pytest.mark.parametrize("path", texts("pass/parallel"))
def test_source_level(path):
    text = path.read_text()
    params = program(text).params
    want, got = arguments(params), arguments(params)
    simulate(text, want + arguments(lowered_params(text)[len(params) :]))
    interpret(text, got)
    agree(got, want, CLOSE.get(path.stem))


def lowered_params(text):
    p = _core.Program()
    assert p.load("kernel.tl", text) and p.lower(), p.diags_text()
    return json.loads(p.program_json()) and program(p.text()).params


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in sorted((ROOT / "sim").glob("*.tl"))])
def test_lowered_level(path):
    """Flags between the cores of a block and between blocks; programs that the simulator refuses are left out."""
    if path.with_suffix(".err").exists():
        pytest.skip("a fault of the simulator")
    text = path.read_text()
    if "; run:" in text:
        pytest.skip("runs with other options")
    want, got = arguments(program(text).params), arguments(program(text).params)
    simulate(text, want, lowered=True)
    interpret(text, got)
    agree(got, want, None)


def test_kernel_interpret():
    @T.prim_func
    def gemm(A: T.Tensor((50, 70), "float16"), B: T.Tensor((70, 33), "float16"), C: T.Tensor((50, 33), "float32")):
        with T.Kernel(T.ceildiv(33, 32), T.ceildiv(50, 32)) as (bx, by):
            a = T.alloc_shared((32, 16), "float16")
            b = T.alloc_shared((16, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            for k in T.Pipelined(T.ceildiv(70, 16), num_stages=2):
                T.copy(A[by * 32, k * 16], a)
                T.copy(B[k * 16, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    kernel = tilelang.compile(gemm, out_idx=[-1])
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (50, 70)).astype(np.float16), rng.integers(-9, 9, (70, 33)).astype(np.float16)
    c = kernel.interpret(a, b)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    np.testing.assert_array_equal(c, kernel(a, b))


def test_faults_have_places():
    text = """tl 1
file "k.py"
kernel @k(%A: gm f32[16], %C: gm f32[16] out) grid(%bx: 1) {
  alloc %a: ub f32[16] @2:5
  copy %A -> %a @3:5
  for %i in 0..20 {
    %a[i32(%A[0]) + %i] = 0.0 @5:9
  } @4:5
  copy %a -> %C @6:5
} @1:1
"""
    with pytest.raises(KernelFault) as e:
        interpret(text, [np.zeros(16, np.float32), np.zeros(16, np.float32)])
    d = e.value.diagnostics[0]
    assert (d.code, d.file, d.line, d.col) == ("TL0801", "k.py", 5, 9)
    assert "index 16 in dimension 0 of 'a', which has 16 (block (0))" in d.text


# ---- kernels from Python: their function runs ------------------------------------------------------------------


def test_python_in_the_kernel_sees_values(capsys):
    seen = []

    @T.prim_func
    def f(A: T.Tensor((8, 16), "float32"), C: T.Tensor((8, 16), "float32")):
        with T.Kernel(2) as bx:
            a = T.alloc_shared((4, 16), "float32")
            T.copy(A[bx * 4, 0], a)
            for i in T.serial(4):
                if i == 2:
                    T.tile.mul(a[i, :], a[i, :], 10.0)
                breakpoint()
                print("row", i, a[i, 1])
            T.copy(a, C[bx * 4, 0])

    capsys.readouterr()
    kernel = tilelang.compile(f, out_idx=[-1])
    a = np.arange(128, dtype=np.float32).reshape(8, 16)

    def stop():
        names = sys._getframe(1).f_locals
        seen.append((int(names["bx"]), int(names["i"]), np.asarray(names["a"]).copy()))
        assert repr(names["i"]) == str(int(names["i"])) and "[[" in repr(names["a"])

    hook, sys.breakpointhook = sys.breakpointhook, stop
    try:
        c = kernel.interpret(a)
        assert len(seen) == 8
        np.testing.assert_array_equal(kernel(a), c)  # a call does not stop
    finally:
        sys.breakpointhook = hook
    assert len(seen) == 8
    want = a.copy()
    want[[2, 6]] *= 10
    np.testing.assert_array_equal(c, want)
    for bx, i, tile in seen:
        rows = slice(bx * 4, bx * 4 + 4)
        np.testing.assert_array_equal(tile, np.where((np.arange(4) <= i)[:, None], want[rows], a[rows]))
    assert capsys.readouterr().out.split("\n")[:2] == ["row 0 1.0", "row 1 17.0"]


def test_exceptions_of_the_kernel_come_through():
    @T.prim_func
    def f(A: T.Tensor((16,), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((16,), "float32")
            T.copy(A, a)
            check(a)
            T.copy(a, C)

    kernel = tilelang.compile(f, out_idx=[-1])
    check.on = True
    with pytest.raises(AssertionError, match="not finite"):
        kernel.interpret(np.full(16, np.inf, np.float32))
    check.on = False


def check(tile):
    assert not check.on or np.isfinite(tile).all(), "not finite"


check.on = False


def test_control_flow_that_the_chip_decides():
    @T.prim_func
    def f(N: T.Tensor((8,), "int32"), C: T.Tensor((8, 8), "int32")):
        with T.Kernel(8) as bx:
            c = T.alloc_ub((8,), "int32")
            T.tile.fill(c, 0)
            i = T.alloc_var("int32", init=0)
            n = N[bx]
            while i < 20:
                if i >= n:
                    break
                i += 1
                if i % 3 == 0:
                    continue
                elif i == 7:
                    c[7] = c[7] + 100
                else:
                    c[i - 1] = i
            for k in range(n):
                if k == 6:
                    break
                c[k] = c[k] + c[7]
            T.copy(c, C[bx, 0])

    kernel = tilelang.compile(f, out_idx=[-1])
    n = np.arange(8, dtype=np.int32)
    np.testing.assert_array_equal(kernel.interpret(n), kernel(n))


def two_sides(by_hand):
    """exp(A @ B) @ B: the cube's product goes to the vector cores and back."""
    M = 32

    @T.prim_func
    def f(
        A: T.Tensor((4 * M, M), "float16"),
        B: T.Tensor((M, M), "float16"),
        S: T.Tensor((4 * M, M), "float32"),
        P: T.Tensor((4 * M, M), "float16"),
        C: T.Tensor((4 * M, M), "float32"),
    ):
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a, b, p = (T.alloc_L1((M, M), "float16") for _ in range(3))
            s = T.alloc_L0C((M, M), "float32")
            u, h = T.alloc_ub((M // 2, M), "float32"), T.alloc_ub((M // 2, M), "float16")
            for side in ("C", "V") if by_hand else (None,):
                with T.Scope(side) if side else contextlib.nullcontext():
                    for i in T.serial(2):
                        row = (cid * 2 + i) * M
                        if side != "V":
                            T.copy(A[row, 0], a)
                            T.copy(B, b)
                            T.gemm_v0(a, b, s, init=True)
                            T.copy(s, S[row, 0])
                            if by_hand:
                                T.set_cross_flag("fix", 0)
                        if side != "C":
                            if by_hand:
                                T.wait_cross_flag(0)
                            T.copy(S[row + vid * (M // 2), 0], u)
                            T.tile.exp(u, u)
                            T.copy(u, h)
                            T.copy(h, P[row + vid * (M // 2), 0])
                            if by_hand:
                                T.set_cross_flag("mte3", 1)
                        if side != "V":
                            if by_hand:
                                T.wait_cross_flag(1)
                            T.copy(P[row, 0], p)
                            T.gemm_v0(p, b, s, init=True)
                            T.copy(s, C[row, 0])

    return f


@pytest.mark.parametrize("by_hand", [False, True])
def test_cube_and_vector_cores(by_hand):
    options = {"tl.ascend_auto_sync": True}
    kernel = tilelang.compile(two_sides(by_hand), out_idx=[4], workspace_idx=[2, 3], pass_configs=options)
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(128, 32)) * 0.1).astype(np.float16)
    b = rng.normal(size=(32, 32)).astype(np.float16)
    got = kernel.interpret(a, b)
    np.testing.assert_allclose(got, kernel(a, b), rtol=1e-3, atol=1e-3)
    s = np.exp(a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(got, s @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


def test_cores_that_wait_for_nothing():
    text = """tl 1
kernel @k(%A: gm f32[8], %C: gm f32[8] out) grid(%bx: 1) vid(%v) {
  alloc %a: ub f32[8]
  cube {
    cross_wait m #3
  }
  vector {
    copy %A -> %a
    copy %a -> %C
  }
}
"""
    with pytest.raises(KernelFault, match=r"TL0809: nothing can move any more: block \(0\), cube core waits at line 5"):
        interpret(text, [np.zeros(8, np.float32), np.zeros(8, np.float32)])


def test_a_workspace_read_too_early():
    text = """tl 1
kernel @k(%W: gm f32[8] workspace, %C: gm f32[8] out) grid(%bx: 1) {
  alloc %a: ub f32[8]
  copy %W -> %a
  copy %a -> %W
  copy %a -> %C
}
"""
    with pytest.raises(KernelFault, match="TL0802: 'W' is read where nothing has written yet"):
        interpret(text, [None, None])


# ---- both sides, each in the order of its own statements -----------------------------------------------------------


def answers(seen):
    """C = sum of A_i @ f16(2 * (A_i @ B)) with the product and its double handed over in workspaces, the cube's
    statements first; `seen` gets what the vector cores compute with."""
    M, n = 32, 3

    def look(vid, u):
        try:
            seen.append((int(vid), np.asarray(u).copy()))
        except tilelang.CompileError:
            pass  # not while it is traced

    @T.prim_func
    def f(A: T.Tensor((n * M, M), "float16"), B: T.Tensor((M, M), "float16"), S: T.Tensor((M, M), "float32"),
          P: T.Tensor((M, M), "float16"), C: T.Tensor((M, M), "float32")):  # fmt: skip
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a, b, p = (T.alloc_L1((M, M), "float16") for _ in range(3))
            s, o = T.alloc_L0C((M, M), "float32"), T.alloc_L0C((M, M), "float32")
            u, h = T.alloc_ub((M // 2, M), "float32"), T.alloc_ub((M // 2, M), "float16")
            T.copy(B, b)
            for i in T.serial(n):
                T.copy(A[i * M, 0], a)
                T.gemm_v0(a, b, s, init=True)
                T.copy(s, S)
                T.copy(P, p)
                T.gemm_v0(a, p, o, init=(i == 0))
            T.copy(o, C)
            for i in T.serial(n):
                T.copy(S[vid * M // 2, 0], u)
                T.tile.mul(u, u, 2.0)
                look(vid, u)
                T.copy(u, h)
                T.copy(h, P[vid * M // 2, 0])

    return tilelang.compile(f, out_idx=[4], workspace_idx=[2, 3], pass_configs={"tl.ascend_auto_sync": True})


def test_sides_that_answer_each_other():
    rng = np.random.default_rng(8)
    a, b = (rng.normal(size=s).astype(np.float16) for s in ((96, 32), (32, 32)))
    seen = []
    kernel = answers(seen)
    got = kernel.interpret(a, b)
    tiles = a.astype(np.float32).reshape(3, 32, 32)
    products = 2 * (tiles @ b.astype(np.float32))
    want = (tiles @ products.astype(np.float16).astype(np.float32)).sum(0)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(got, kernel(a, b), rtol=1e-3, atol=1e-3)
    assert kernel.compare(a, b, rtol=1e-3) and not kernel.bisect(a, b)
    for side in (0, 1):  # Python in the kernel sees the values of the moment, on each vector core
        tiles = [u for vid, u in seen if vid == side and np.isfinite(u).all()]  # on the cube core it has no values
        assert len(tiles) == 3
        np.testing.assert_allclose(tiles, products[:, 16 * side : 16 * side + 16], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("first", ["C", "V"])
@pytest.mark.parametrize("flags", [True, False])
def test_sides_in_blocks_of_their_own_keep_to_their_flags(first, flags):
    M, n = 32, 3

    @T.macro
    def cube(A, S, P, C, a, p, s, o):
        with T.Scope("C"):
            for i in T.serial(n):
                T.copy(A[i * M, 0], a)
                T.gemm_v0(a, a, s, init=True)
                T.copy(s, S)
                if flags:
                    T.set_cross_flag("FIX", 0)
                    T.wait_cross_flag(1)
                T.copy(P, p)
                T.gemm_v0(a, p, o, init=(i == 0))
            T.copy(o, C)

    @T.macro
    def vector(S, P, u, h, vid):
        with T.Scope("V"):
            for i in T.serial(n):
                if flags:
                    T.wait_cross_flag(0)
                T.copy(S[vid * M // 2, 0], u)
                T.copy(u, h)
                T.copy(h, P[vid * M // 2, 0])
                if flags:
                    T.set_cross_flag("MTE3", 1)

    @T.prim_func
    def f(A: T.Tensor((n * M, M), "float16"), S: T.Tensor((M, M), "float32"), P: T.Tensor((M, M), "float16"),
          C: T.Tensor((M, M), "float32")):  # fmt: skip
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a, p = T.alloc_L1((M, M), "float16"), T.alloc_L1((M, M), "float16")
            s, o = T.alloc_L0C((M, M), "float32"), T.alloc_L0C((M, M), "float32")
            u, h = T.alloc_ub((M // 2, M), "float32"), T.alloc_ub((M // 2, M), "float16")
            if first == "C":
                cube(A, S, P, C, a, p, s, o)
                vector(S, P, u, h, vid)
            else:
                vector(S, P, u, h, vid)
                cube(A, S, P, C, a, p, s, o)

    auto = {"tl.ascend_auto_sync": True}
    kernel = tilelang.compile(f, out_idx=[3], workspace_idx=[1, 2], pass_configs=auto)
    a = np.random.default_rng(8).normal(size=(96, 32)).astype(np.float16)
    if flags:
        np.testing.assert_allclose(kernel.interpret(a), kernel(a), rtol=1e-3, atol=1e-3)
        return
    for run in (kernel, kernel.interpret):
        with pytest.raises(tilelang.KernelFault, match="TL0802"):
            run(a)


def test_sides_that_wait_for_each_other():
    @T.prim_func
    def f(A: T.Tensor((32, 32), "float32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a, u = T.alloc_L1((32, 32), "float32"), T.alloc_ub((16, 32), "float32")
            with T.Scope("C"):
                T.copy(A, a)
                T.wait_cross_flag(3)
                T.set_cross_flag("FIX", 4)
            with T.Scope("V"):
                T.copy(A[vid * 16, 0], u)
                T.wait_cross_flag(4)
                T.copy(u, C[vid * 16, 0])
                T.set_cross_flag("MTE3", 3)

    with pytest.raises(tilelang.KernelFault) as e:
        tilelang.compile(f, out_idx=[1]).interpret(np.zeros((32, 32), np.float32))
    (d,) = e.value.diagnostics
    assert d.code == "TL0809" and "nothing can move any more" in d.text
    assert re.search(r"block \(0\), cube core waits at line \d+ for cross-core flag 3", d.text), d.text
    assert re.search(r"vector core 1 waits at line \d+ for cross-core flag 4", d.text), d.text


IN_PARALLEL = """
for k in T.Parallel(16): ; for j in T.Parallel(64): ; a[k, j] = a[k, j] + 1.0
for k in T.Parallel(4): ; for j in T.serial(3): ; a[k, j] = -1.0
for k, l in T.Parallel(4, 8): ; for j in T.serial(3): ; a[k, l] = a[k, l] * 2.0
for k in T.Parallel(4): ; for j in T.serial(3, -1, -1): ; a[k, j] = 9.0 + j
for k in T.Parallel(4): ; for j, l in T.grid(2, 3): ; a[k, j * 3 + l] = 9.0 + j
for k in T.Parallel(4): ; for j in T.serial(k): ; a[k, j] = 9.0 + j
for k in T.Parallel(4): ; for j in T.serial(n, 6, 2): ; a[k, j] = 9.0 + j
for k in T.Parallel(4): ; for j in T.serial(0): ; a[k, j] = 9.0
for k in T.Parallel(0): ; a[k, 0] = 9.0
for k in T.Parallel(16): ; for j in T.serial(64): ; m[k] = T.max(m[k], a[k, j])
for k, j in T.Parallel(16, 64): ; v += a[k, j]
for k, j in T.Parallel(16, 64): ; v = v + 1.0 ; a[k, j] = v
for k, j in T.Parallel(16, 64): ; v = a[k, j] * 2.0 ; a[k, j] = v
for k, j in T.Parallel(16, 64): ; if a[k, j] > 1000.0: ; v += 1.0
for k in T.Parallel(16): ; a[k, k > 7] = 9.0
for k in T.Parallel(4): ; w = T.alloc_var("float32", 0.0) ; for j in T.serial(64): ; w += a[k, j]
"""


@pytest.mark.filterwarnings("ignore::tilelang.TileLangWarning")
@pytest.mark.parametrize("loop", IN_PARALLEL.strip().splitlines())
def test_loops_and_variables_inside_parallel(loop, tmp_path):
    """As the scalar loop does: a loop runs in each iteration, a variable goes from one iteration to the next."""
    depth, lines = 2, []
    for part in loop.split(" ; "):
        lines.append("    " * depth + part)
        depth += part.endswith(":")
    head = """
import tilelang.language as T
@T.prim_func
def f(A: T.Tensor((16, 64), "float32"), n: T.int32, B: T.Tensor((17, 64), "float32")):
    with T.Kernel(1) as _:
        a = T.alloc_shared((16, 64), "float32")
        m = T.alloc_shared((16,), "float32")
        v = T.alloc_var("float32", 0.0)
        T.copy(A, a)
        T.fill(m, 0.0)
"""
    tail = "\n        a[15, 63] = v\n        T.copy(a, B[0:16, :])\n        T.copy(m, B[16, 0:16])\n"
    (tmp_path / "parallel.py").write_text(head + "\n".join(lines) + tail)
    space = {}
    exec(compile(head + "\n".join(lines) + tail, str(tmp_path / "parallel.py"), "exec"), space)
    kernel, x = tilelang.compile(space["f"]), np.arange(1024, dtype=np.float32).reshape(16, 64)
    got, want = np.zeros((17, 64), np.float32), np.zeros((17, 64), np.float32)
    kernel.interpret(x, 3, got)
    kernel(x, 3, want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint8", "int16"])
def test_integers_are_the_same_alone_and_in_arrays(dtype):
    """Whatever of the two operands is a number and whatever an array."""
    kind, info = DType(dtype), np.iinfo(dtype)
    wide = np.uint64 if dtype == "uint64" else np.int64
    values = [0, 1, 7, 40, 63, info.max, info.max // 2 + 1] + [info.min, -1] * (info.min < 0)
    values = [v for v in values if v <= info.max]
    for op in "+ - * // % min max & | ^ << >> pow < ==".split():
        result = DType("bool") if op in ("<", "==") else kind
        for a in values:
            for b in values[op in ("//", "%") :]:
                both = [(a, b), (np.array([a], wide), b), (a, np.array([b], wide)), tuple(np.array([[a], [b]], wide))]
                got = {int(np.ravel(apply(op, result, kind, *v))[0]) for v in both}
                assert len(got) == 1, (op, a, b, got)
