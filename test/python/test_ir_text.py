"""Python function -> IR text, one golden file a kernel. Line 1 of a golden file is that of the `def`."""

import enum
import pathlib
import re

import pytest

import tilelang
import tilelang.language as T
from tilelang import DataType, _core

GOLDEN = pathlib.Path(__file__).parent / "golden"


def text_of(f):
    return f.script()


def relative(text):
    """Lines counted from the `def` of the kernel, so that this file may change."""
    first = int(re.findall(r"@(\d+):\d+$", text, re.M)[-1])
    return re.sub(r"@(\d+):(\d+)$", lambda m: f"@{int(m[1]) - first + 1}:{m[2]}", text, flags=re.M)


def article():
    M = N = K = 1024

    @T.prim_func
    def gemm_simple(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, K), "float16")
            b = T.alloc_shared((K, 64), "float16")
            c = T.alloc_local((64, 64), "float32", scope="local")
            T.copy(A[by * 64 : by * 64 + 64, :], a)
            T.copy(B[:, bx * 64 : bx * 64 + 64], b)
            for i, j, k in T.Parallel(64, 64, K):
                c[i, j] += a[i, k] * b[k, j]
            T.copy(c, C[by * 64 : by * 64 + 64, bx * 64 : bx * 64 + 64])

    return gemm_simple


def mainline_lazy(M=1000, N=777, K=1234, bm=128, bn=128, bk=32):
    @T.prim_func
    def gemm(A: T.Tensor((M, K), T.float16), B: T.Tensor((K, N), T.float16), C: T.Tensor((M, N), T.float16)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), T.float16)
            b = T.alloc_shared((bk, bn), T.float16)
            c = T.alloc_fragment((bm, bn), T.float32)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(K, bk), num_stages=3):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return gemm


def ascend_expert(M=512, N=512, K=512, bM=128, bN=256, bK=64):
    class Event(enum.IntEnum):
        FREE = 1

    @T.macro
    def announce(pipe: "str", event: T.int32):
        T.set_flag("mte1", pipe, event)

    @T.prim_func
    def main(A: T.Tensor([M, K], "float16"), B: T.Tensor([N, K], "float16"), C: T.Tensor([M, N], "float16")):
        with T.Kernel(M // bM * (N // bN), is_npu=True) as (cid, _):
            A_L1 = T.alloc_L1((2, bM, bK), "float16")
            B_L1 = T.alloc_L1((2, bN, bK), "float16")
            C_L0 = T.alloc_L0C((bM, bN), "float")
            T.annotate_address({A_L1: 0, B_L1: 65536})
            with T.Scope("C"):
                announce("mte2", 0)
                announce("mte2", Event.FREE)
                for k in range(K // bK):
                    s = k % 2
                    T.wait_flag("mte1", "MTE2", s)
                    T.copy(A[cid // 2 * bM, k * bK], A_L1[s, :, :])
                    T.copy(B[cid % 2 * bN, k * bK], B_L1[s, :, :])
                    T.pipe_barrier("mte2")
                    T.gemm_v0(A_L1[s, :, :], B_L1[s, :, :], C_L0, transpose_B=True, init=(k == 0))
                    announce("mte2", s)
                T.barrier_all()
                T.copy(C_L0, C[cid // 2 * bM, cid % 2 * bN], enable_relu=True)
                T.set_cross_flag("FIX", 3)
            with T.Scope("V"):
                T.wait_cross_flag(3)
                T.sync_all()

    return main


def ascend_developer(B=4, S=256, H=8, D=64, dtype="float"):
    op = "add"

    def scaled(a, b):
        T.tile.mul(a, b, 0.125)
        return getattr(T.tile, op)(a, a, b)

    @T.prim_func
    def main(
        X: T.Tensor((B, H, S, D), dtype), idx: T.Tensor((S,), "int32"), Y: T.Tensor((B, H, S, D), dtype), s: T.float32
    ):
        with T.Kernel(B * H, is_npu=True) as (cid, vid):
            x = T.alloc_ub([S // 2, D], dtype)
            y, z = T.alloc_ub((S // 2, D), dtype), T.alloc_ub((S // 2, D), dtype)
            top = T.alloc_ub((S // 2,), dtype)
            many = [T.alloc_ub((16,), dtype) for _ in range(2)]
            b, h = cid // H, cid % H
            T.copy(X[b, h, vid * (S // 2), 0], x, pad_value=-T.infinity(dtype))
            T.copy(X[b, h, vid * (S // 2) : vid * (S // 2) + S // 2, :], y)
            first = idx[cid]
            T.reduce_max(x, top, dim=-1)
            T.reduce_sum(x, many[0], dim=0, real_shape=[S // 2, 16], clear=False)
            T.tile.fill(many[1], s / 2)
            scaled(z, y)
            T.tile.cast(y, z, "CAST_RINT", S // 2 * D)
            T.tile.broadcast(z, top, axis=1)
            T.tile.sub(z, z, first)
            T.tile.axpy(x[0, :], x[1, :], top[0])
            T.copy(z, Y[b, h, vid * (S // 2), 0])
            T.tile.atomic_add(Y[b, h, 0, 0], y)

    return main


def mask_and_select(n=512):
    @T.prim_func
    def main(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            x = T.alloc_ub(n, "half")
            y = T.alloc_ub(n, "half")
            mask = T.alloc_ub((n // 8,), "uint8")
            T.copy(X, x)
            T.tile.compare(mask, x, 0.0, "GT")
            T.tile.select(y, mask, x, -1.0, "VSEL_TENSOR_SCALAR_MODE")
            T.tile.clamp(y, y, -2, 2, n)
            T.tile.createvecindex(x, 3)
            T.copy(y, Y)

    return main


def control_flow():
    M = T.symbolic("M")
    table = {"a": 3}

    @T.prim_func
    def main(X: T.Tensor((M, M // 2 + 1, 64), "int32"), Y: T.Tensor((M,), "int64"), n: T.int32, flag: T.bool):
        with T.Kernel(T.ceildiv(M, 4)) as bx:
            x = T.alloc_shared((64,), "int32")
            v = T.alloc_var("int32", init=table["a"])
            w = T.alloc_var("float32")
            T.copy(X[bx, 0, :], x)
            for i in T.serial(2, n):
                if i % 2 == 0 and not flag:
                    v = v + x[i]
                    w += 1
                elif 1 <= i < 4 or x[i] > 7:
                    continue
                else:
                    x[i] = -x[i] // 3 ^ 1 << 2
                    break
            while v < n:
                v += 2 if flag else T.max(v, 1)
            for i in T.unroll(2):
                x[i] *= [10, 20][i]
            if table["a"] == 3:
                name = "chosen by Python"
            else:
                T.copy(X[0, 0, 0], x)
            for i in T.Parallel(64):
                t = x[i] * 2
                if t > 3:
                    x[i] = t
            for a, b in T.Persistent([6, 16], 4, bx):
                x[a] = b
            Y[bx] = T.Cast("int64", v) + len(name)
            Y[bx] = T.if_then_else(w > 0.5, Y[bx], T.reinterpret("int32", w))

    return main


def inlined_functions():
    @T.macro
    def twice(dst, src, f):
        t = f(src[0])
        for i in T.serial(dst.shape[0]):
            dst[i] = t + f(src[i])

    @T.prim_func
    def main(X: T.Tensor((128,), "float32"), Y: T.Tensor((128,), "float32")):
        with T.Kernel(2, is_npu=True, threads=2) as (cid):
            x = T.alloc_ub(64, "float32")
            y = T.alloc_ub(64, "float32")
            T.copy(X[cid * 64], x)
            twice(y, x, lambda v: v * float(DataType("float32").bits))
            twice(x, y, abs)
            T.copy(x, Y[cid * 64 : cid * 64 + 64])

    return main


def parallel_forms():
    @T.prim_func
    def main(X: T.Tensor((32, 48), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1) as _:
            x = T.alloc_shared((32, 48), "float32")
            y = T.alloc_shared((32,), "float32")
            T.copy(X, x)
            for i in T.Parallel(32):
                for j in T.Parallel(48):
                    x[i, j] = T.exp(x[i, j]) * 2
            for i, j in T.Parallel(32, 48):
                y[i] -= x[i, j]
            for i in T.Parallel(32):
                y[i] -= 1
                y[i] /= x[i, 0] + y[31 - i]
            T.copy(y, Y)

    return main


def doubled(blocks, tiles, m=300, n=200):
    """Y = 2 X by tiles of 64 x 64; `tiles(bx)` gives those of a block."""

    @T.prim_func
    def main(X: T.Tensor((m, n), "float32"), Y: T.Tensor((m, n), "float32")):
        with T.Kernel(blocks) as bx:
            x = T.alloc_shared((64, 64), "float32")
            for i, j in tiles(bx):
                T.copy(X[i * 64, j * 64], x)
                for r, c in T.Parallel(64, 64):
                    x[r, c] = x[r, c] * 2.0
                T.copy(x, Y[i * 64, j * 64])

    return main


def persistent(m=300, n=200, blocks=6, group=8):
    return doubled(blocks, lambda bx: T.Persistent([T.ceildiv(m, 64), T.ceildiv(n, 64)], blocks, bx, group), m, n)


def persistent_symbolic(blocks=3):
    m = T.symbolic("m")
    return doubled(blocks, lambda bx: T.Persistent([T.ceildiv(m, 64), 5], blocks, bx), m, 300)


def persistent_row(n=500, blocks=4):
    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(blocks) as bx:
            x = T.alloc_shared((64,), "float32")
            for i in T.Persistent([T.ceildiv(n, 64)], blocks, bx):
                T.copy(X[i * 64], x)
                for r in T.Parallel(64):
                    x[r] = x[r] * 2.0
                T.copy(x, Y[i * 64])

    return main


def swizzle_index(m=300, n=200, off=2, dir=0):
    rows, cols = T.ceildiv(m, 64), T.ceildiv(n, 64)

    def tile(bx):
        t = T.use_swizzle(bx, m, n, 64, 64, 64, off=off, dir=dir)
        yield t // cols, t % cols

    return doubled(rows * cols, tile, m, n)


def swizzle_panel(m=300, n=200):
    cols = T.ceildiv(n, 64)

    def tile(bx):
        T.use_swizzle(10)
        yield bx // cols, bx % cols

    return doubled(T.ceildiv(m, 64) * cols, tile, m, n)


KERNELS = [
    article,
    mainline_lazy,
    ascend_expert,
    ascend_developer,
    mask_and_select,
    control_flow,
    inlined_functions,
    parallel_forms,
    persistent,
    persistent_symbolic,
    persistent_row,
    swizzle_index,
    swizzle_panel,
]


@pytest.mark.parametrize("make", KERNELS, ids=lambda f: f.__name__)
def test_golden(make, golden):
    golden(GOLDEN / (make.__name__ + ".tl"), relative(text_of(make())))


@pytest.mark.parametrize("make", KERNELS, ids=lambda f: f.__name__)
def test_text_is_canonical(make):
    """What Python prints, the C core reads without a complaint and prints the same."""
    core = pytest.importorskip("tilelang._core")
    text = text_of(make())
    program = core.Program()
    assert program.load("x.tl", text), program.diags_text()
    assert program.text() == text


@pytest.mark.parametrize("m, n", [(300, 200), (256, 512), (1, 1), (640, 70), (70, 640)])
@pytest.mark.parametrize(
    "make",
    [
        persistent,
        lambda m, n: persistent(m, n, blocks=7, group=3),
        lambda m, n: persistent(m, n, blocks=40),
        swizzle_index,
        lambda m, n: swizzle_index(m, n, off=3),
        lambda m, n: swizzle_index(m, n, off=2, dir=1),
        swizzle_panel,
    ],
    ids=["persistent", "groups of 3", "more blocks than tiles", "swizzle", "off 3", "columns", "panel"],
)
def test_every_tile_once(make, m, n):
    """Two blocks that write one tile would be a fault of the simulator; a tile that none writes stays NaN."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("tilelang._core")
    x = np.arange(m * n, dtype="float32").reshape(m, n)
    y = np.full((m, n), np.nan, "float32")
    tilelang.compile(make(m, n))(x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_out_and_workspace_marks():
    kernel_text = mainline_lazy().traced.text(out_idx=[2], workspace_idx=[1])
    assert "%B: gm f16[1234, 777] workspace, %C: gm f16[1000, 777] out)" in kernel_text


def test_eager_text(golden):
    @tilelang.jit
    def matmul(A, B, bm: int, bk: int = 32):
        M, N, K = T.const("M, N, K")
        A: T.Tensor((M, K), T.float16)
        B: T.Tensor[[K, N], T.float16]
        R = T.dynamic("R")
        C = T.empty((M, N), T.float32)
        D = T.empty(M, 64, dtype="float32")
        del R
        with T.Kernel(T.ceildiv(N, bm), T.ceildiv(M, bm)) as (bx, by):
            a = T.alloc_shared((bm, bk), T.float16)
            b = T.alloc_shared((bk, bm), T.float16)
            c = T.alloc_fragment((bm, bm), T.float32)
            for ko in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bm], b)
                T.gemm(a, b, c, clear_accum=(ko == 0))
            T.copy(c, C[by * bm, bx * bm])
            T.copy(c, D[by * bm, 0])
        return C, D

    pytest.importorskip("tilelang._core")
    golden(GOLDEN / "eager.tl", relative(matmul.compile(M=200, N=96, K=64, bm=64).ir()))


def test_same_text_every_time():
    assert text_of(ascend_developer()) == text_of(ascend_developer())


def test_file_names_without_folders():
    assert 'file "test_ir_text.py"\n' in text_of(inlined_functions())


def test_texts_and_file_names_end_in_backslashes(tmp_path):
    """What the text escapes is read back as it was."""
    script = tmp_path / 'we"ird\\n.py'
    script.write_text("import tilelang.language as T\n@T.prim_func\ndef kernel(A: T.Tensor((8,), 'float32')):\n"
                      "    with T.Kernel(1):\n        T.print('C:\\\\dir\\\\')\n", encoding="utf-8")  # fmt: skip
    names = {"__name__": "weird"}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    text = text_of(names["kernel"])
    assert 'file "we\'ird\\\\n.py"\n' in text and 'print "C:\\\\dir\\\\"' in text
    p = _core.Program()
    assert p.load("k.tl", text) and p.text() == text
    assert not p.load("k.tl", text.replace("dir", "d\0r")) and "a string with a byte 0" in p.diags_text()
