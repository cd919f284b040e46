"""Reports about debugging and about simulators that were not trusted."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import KernelFault


def test_R101_python_print_shows_names_of_the_chips_values(capsys):
    @T.prim_func
    def f(Y: T.Tensor((4, 8), "float32")):
        with T.Kernel(4) as bx:
            print("block", bx, "of", 4, "from", bx * 8)
            Y[bx, 0] = 1.0

    assert capsys.readouterr().out == "block bx of 4 from bx * 8\n"


def test_R106_locations_never_change_code(tlc, tmp_path):
    @T.prim_func
    def f(X: T.Tensor((128,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((128,), "float32")
            y = T.alloc_ub((1,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=0)
            T.copy(y, Y)

    def bare(text):
        return re.sub(r" @[\d:]+|file \"[^\"]*\"\n", "", text)

    with_places = f.script()
    outputs = []
    for text in (with_places, bare(with_places)):
        (tmp_path / "k.tl").write_text(text)
        status, out, err = tlc("opt", "k.tl", cwd=tmp_path)
        assert status == 0, err
        outputs.append((bare(out), tlc("sim", "k.tl", cwd=tmp_path)[1]))
    assert bare(with_places) != with_places and outputs[0] == outputs[1]


def test_R108_both_vector_cores(rng):
    @T.prim_func
    def f(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            x = T.alloc_ub((128,), "float32")
            T.copy(X[vid * 128], x)
            T.copy(x, Y[vid * 128])

    x = rng.standard_normal(256, np.float32)
    kernel = tilelang.compile(f, out_idx=-1)
    assert np.array_equal(kernel(x), x)
    assert kernel.last_run["gm_read_bytes"] == kernel.last_run["gm_write_bytes"] == 1024


def test_R109_step_through_in_python(rng):
    seen = []

    @T.prim_func
    def f(X: T.Tensor((4, 4), "float32"), Y: T.Tensor((4, 4), "float32")):
        with T.Kernel(2, 2) as (bx, by):
            x = T.alloc_ub((2, 2), "float32")
            T.copy(X[by * 2, bx * 2], x)
            T.tile.add(x, x, 1.0)
            seen.append(x)  # where breakpoint() would stand
            T.copy(x, Y[by * 2, bx * 2])

    kernel = tilelang.compile(f, out_idx=-1)
    assert len(seen) == 1  # tracing runs the body once
    x = rng.standard_normal((4, 4), np.float32)
    assert np.array_equal(kernel.interpret(x), x + 1) and np.array_equal(kernel(x), x + 1)


def test_R112_numbers_are_those_of_the_chip(rng):
    """A product rounds its operands to float16 and sums in float32; it differs from float64 as the chip does."""

    @T.prim_func
    def f(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a, b = rng.standard_normal((64, 64)), rng.standard_normal((64, 64))
    got = tilelang.compile(f, out_idx=-1)(a.astype(np.float16), b.astype(np.float16))
    rounded = a.astype(np.float16).astype(np.float64) @ b.astype(np.float16).astype(np.float64)
    assert 1e-4 < np.abs(got - a @ b).max() < 5e-2  # the operands' rounding shows
    assert np.abs(got - rounded).max() < 1e-5  # and nothing else


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_R113_same_inputs_same_outputs(rng, threads):
    @T.prim_func
    def f(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(8) as bx:
            a = T.alloc_shared((16, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((16, 64), "float32")
            T.copy(A[bx * 16, 0], a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(16, 64):
                c[i, j] = T.exp(c[i, j] * 0.125)
            T.copy(c, C[bx * 16, 0])

    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((128, 64), (64, 64)))
    kernel = tilelang.compile(f, out_idx=-1, threads=threads)
    runs = [kernel(a, b) for _ in range(3)] + [tilelang.compile(f, out_idx=-1, threads=1)(a, b)]
    assert all(np.array_equal(r, runs[0]) for r in runs)


@pytest.mark.parametrize("m, n", [(8, 5), (3, 16), (1, 1)])
def test_R114_static_and_dynamic_valid_shapes_mix(rng, m, n):
    rows, cols = T.symbolic("rows"), T.symbolic("cols")

    @T.prim_func
    def f(X: T.Tensor((rows, 16), "float32"), Y: T.Tensor((8, cols), "float32"), Z: T.Tensor((rows, cols), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((8, 16), "float32")
            y = T.alloc_ub((8, 16), "float32")
            T.copy(X[0, 0], x)
            T.copy(Y[0, 0], y)
            T.tile.add(x, x, y)
            T.copy(x, Z[0, 0])

    x, y = rng.standard_normal((m, 16), np.float32), rng.standard_normal((8, n), np.float32)
    z = np.zeros((m, n), np.float32)
    tilelang.compile(f)(x, y, z)
    assert np.array_equal(z, x[:, :n] + y[:m, :])


def hand_over(to_cube):
    @T.prim_func
    def f(A: T.Tensor((16, 16), "float16"), W: T.Tensor((16, 16), "float32" if not to_cube else "float16"),
          C: T.Tensor((16, 16), "float32")):  # fmt: skip
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_L1((16, 16), "float16")
            b = T.alloc_L1((16, 16), "float16")
            c = T.alloc_L0C((16, 16), "float32")
            x = T.alloc_ub((8, 16), "float32")
            h = T.alloc_ub((8, 16), "float16")
            if to_cube:
                with T.Scope("V"):
                    T.copy(A[vid * 8, 0], h)
                    T.tile.add(h, h, 1.0)
                    T.copy(h, W[vid * 8, 0])
                    T.set_cross_flag("MTE3", 0)
                with T.Scope("C"):
                    T.copy(A, b)
                    T.wait_cross_flag(0)
                    T.copy(W, a)
                    T.gemm_v0(a, b, c, init=True)
                    T.copy(c, C)
            else:
                with T.Scope("C"):
                    T.copy(A, a)
                    T.gemm_v0(a, a, c, init=True)
                    T.copy(c, W)
                    T.set_cross_flag("FIX", 0)
                with T.Scope("V"):
                    T.wait_cross_flag(0)
                    T.copy(W[vid * 8, 0], x)
                    T.tile.add(x, x, 1.0)
                    T.copy(x, C[vid * 8, 0])

    return f


@pytest.mark.parametrize("to_cube", [False, True])
def test_R115_R116_R118_flags_between_the_cores(rng, to_cube):
    kernel = tilelang.compile(hand_over(to_cube), out_idx=-1, workspace_idx=1)
    a = rng.integers(-3, 4, (16, 16)).astype(np.float16)
    f = a.astype(np.float32)
    assert np.array_equal(kernel(a), (f + 1) @ f if to_cube else f @ f + 1)
    source = kernel.get_kernel_source()  # the program that is written is the one that was run
    assert "CrossCoreSetFlag" in source and "CrossCoreWaitFlag" in source


def test_R117_the_target_is_in_the_program(rng):
    @T.prim_func
    def f(X: T.Tensor((4, 64), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_ub((4, 64), "float32")
            y = T.alloc_ub((4,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    x = rng.integers(-8, 9, (4, 64)).astype(np.float32)
    for chip in ("910B2", "950"):
        kernel = tilelang.compile(f, out_idx=-1, chip=chip)
        assert f'lowered("{chip}"' in kernel.ir("lowered") and kernel.explain_json()["chip"] == chip
        assert np.array_equal(kernel(x), x.sum(1))


@pytest.mark.parametrize("chip", ["910B2", "910_9391", "950"])
def test_R120_R175_every_chip_runs_the_same_kernels(rng, agree, chip):
    @T.prim_func
    def gemm(A: T.Tensor((100, 60), "float16"), B: T.Tensor((60, 70), "float16"), C: T.Tensor((100, 70), "float32")):
        with T.Kernel(T.ceildiv(70, 32), T.ceildiv(100, 32)) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((100, 60), (60, 70)))
    agree(tilelang.compile(gemm, out_idx=-1, chip=chip)(a, b), a.astype(np.float32) @ b.astype(np.float32), 0)


def test_R121_all_cores_at_once(rng):
    @T.prim_func
    def f(X: T.Tensor((48 * 128, 128), "float16"), Y: T.Tensor((48 * 128, 128), "float16")):
        with T.Kernel(24) as cid:
            x = T.alloc_ub((128, 128), "float16")
            for i in T.serial(2):
                T.copy(X[(i * 24 + cid) * 128, 0], x)
                T.tile.add(x, x, 1.0)
                T.copy(x, Y[(i * 24 + cid) * 128, 0])

    x = rng.standard_normal((48 * 128, 128)).astype(np.float16)
    kernel = tilelang.compile(f, out_idx=-1)
    assert np.array_equal(kernel(x), x + np.float16(1))
    assert kernel.last_run["cores_used"] == 24


def test_R119_faults_only_where_there_are_faults(rng):
    """The same kernel with and without its order: the one is right, the other is found."""

    def f(ordered):
        @T.prim_func
        def k(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((64,), "float32")
                T.copy(X, x)
                T.set_flag("mte2", "v", 0)
                T.wait_flag("mte2", "v", 0)
                T.tile.add(x, x, 1.0)
                if ordered:
                    T.set_flag("v", "mte3", 0)
                    T.wait_flag("v", "mte3", 0)
                T.copy(x, Y)

        return tilelang.compile(k, out_idx=-1)

    x = rng.standard_normal(64, np.float32)
    assert np.array_equal(f(True)(x), x + 1)
    with pytest.raises(KernelFault) as e:
        f(False)(x)
    assert e.value.code == "TL0805"
