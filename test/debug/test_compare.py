"""kernel.compare and kernel.bisect on kernels that are wrong on purpose."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug.bisect import between
from tilelang.debug.call import Call
from tilelang.debug.core import lowered, stages

pytest.importorskip("tilelang._core")
rng = np.random.default_rng(0)


def gemm(M=96, N=64, K=128, steps=None, swap=False, guard=None, dtype="float16"):
    """A @ B in tiles of 32 x 32 x 32; `steps`: of 4, how many are done."""

    @T.prim_func
    def f(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32)) as (bx, by):
            a, b = T.alloc_shared((32, 32), dtype), T.alloc_shared((32, 32), dtype)
            c = T.alloc_fragment((32, 32), "float32")
            for k in T.serial(steps or K // 32):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            if swap:
                T.copy(c, C[by * 32, (1 - bx) * 32])
            else:
                T.copy(c, C[by * 32, bx * 32])

    return tilelang.compile(f, out_idx=[2])


def matrices(M=96, N=64, K=128):
    return rng.normal(size=(M, K)).astype(np.float16), rng.normal(size=(K, N)).astype(np.float16)


def product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def test_all_agrees():
    a, b = matrices()
    for ref in (None, product, product(a, b)):
        found = gemm().compare(a, b, ref=ref)
        assert found and found[0].count == 0 and "C: agrees" in str(found)
    assert not gemm().bisect(a, b)


def test_missed_accumulation():
    a, b = matrices()
    found = gemm(steps=3).compare(a, b, ref=product)
    assert not found and found[0].kind == "accumulation" and "missed accumulation" in found[0].why
    share = float(re.search(r"about (\d+)%", found[0].why).group(1))
    assert 65 < share < 85


def test_exchanged_tiles_and_who_wrote_them():
    a, b = matrices()
    found = gemm(swap=True).compare(a, b, ref=product)[0]
    assert found.kind == "exchanged tiles"
    assert found.count > 0.99 * 96 * 64 and found.tile == (32, 32) and found.by_tile.shape == (3, 2)
    row, col = found.worst
    assert found.where == f"block ({1 - col // 32}, {row // 32}), cube core"
    assert found.line[0].endswith("test_compare.py") and found.line[1] == gemm.__code__.co_firstlineno + 13
    assert found.error == np.abs(product(a[:, ::1], b)[row, col] - gemm(swap=True)(a, b)[row, col])


def test_transposed():
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, 2) as (bx, by):
            a, b = T.alloc_ub((32, 32), "float32"), T.alloc_ub((32, 32), "float32")
            T.copy(A[by * 32, bx * 32], a)
            T.tile.transpose(b, a)
            T.copy(b, C[by * 32, bx * 32])

    kernel = tilelang.compile(f, out_idx=[1])
    a = rng.normal(size=(64, 64)).astype(np.float32)
    found = kernel.compare(a, ref=a)[0]
    assert (found.kind, found.why) == ("transposed", "each tile is transposed")


def test_tail():
    @T.prim_func
    def f(A: T.Tensor((70, 64), "float32"), C: T.Tensor((70, 64), "float32")):
        with T.Kernel(3) as bx:
            a = T.alloc_ub((32, 64), "float32")
            T.copy(A[T.min(bx * 32, 70 - 32), 0], a)  # the last tile begins too early
            T.tile.add(a, a, 1.0)
            T.copy(a, C[bx * 32, 0])

    kernel = tilelang.compile(f, out_idx=[1])
    a = rng.normal(size=(70, 64)).astype(np.float32)
    found = kernel.compare(a, ref=lambda x: x + 1)[0]
    assert found.kind == "tail" and "behind element 64 of dimension 0, in the last tile of 6 of 32" in found.why
    assert found.where == "block (2), vector core 0"


def test_precision_and_zeros():
    a, b = matrices()
    exact = gemm().compare(a, b, ref=product(a, b) * np.float32(1.001))[0]
    assert exact.kind in ("precision", "accumulation")
    zeros = gemm().compare(np.zeros_like(a), b, ref=product(a, b))[0]
    assert zeros.kind == "not written" and "all zeros" in zeros.why


def test_a_heat_map(tmp_path):
    pytest.importorskip("matplotlib")
    a, b = matrices()
    found = gemm(swap=True).compare(a, b, ref=product)
    path = found.save(tmp_path / "c.png")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data == found.save(tmp_path / "d.png").read_bytes()


def test_tensors_of_the_caller_stay():
    @T.prim_func
    def f(C: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            c = T.alloc_ub((64,), "float32")
            T.copy(C, c)
            T.tile.add(c, c, 1.0)
            T.copy(c, C)

    kernel = tilelang.compile(f)
    c = np.arange(64, dtype=np.float32)
    assert kernel.compare(c) and kernel.compare(c, ref=np.arange(64) + 1)
    np.testing.assert_array_equal(c, np.arange(64))


def copied_rows(dtype="float32"):
    """C = A in the first `rows` blocks of two rows."""
    n = T.symbolic("n")

    @T.prim_func
    def f(A: T.Tensor((n, 32), dtype), C: T.Tensor((n, 32), dtype), rows: T.int32):
        with T.Kernel(T.ceildiv(n, 2)) as bx:
            a = T.alloc_shared((2, 32), dtype)
            T.copy(A[bx * 2, 0], a)
            if bx < rows:
                T.copy(a, C[bx * 2, 0])

    return tilelang.compile(f, out_idx=[1])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_are_compared_exactly(dtype):
    a = rng.integers(2**61, 2**62, (4, 32)).astype(dtype)
    near = a.copy()
    near[1, 5] += 1
    found = copied_rows(dtype=dtype).compare(a, 2, ref=near)
    assert not found and found[0].count == 1 and found[0].worst == (1, 5) and found[0].error == 1
    assert f"is {a[1, 5]}, the reference {near[1, 5]}" in str(found)


def test_outputs_without_elements_and_without_blocks(tmp_path):
    empty = np.zeros((0, 32), np.float32)
    kernel = copied_rows()
    found = kernel.compare(empty, 2)
    assert found and not kernel.bisect(empty, 2) and not kernel.numerics(empty, 2)
    pytest.importorskip("matplotlib")
    assert found.save(tmp_path / "empty.png").exists()
    with pytest.raises(tilelang.ArgumentError, match="this call launches nothing"):
        kernel.reproduce(tmp_path / "r.tl", empty, 2)


def test_what_nothing_writes_is_said():
    found = copied_rows().compare(np.ones((6, 32), np.float32), 1)
    assert found and "C: agrees" in str(found) and "; 128 of 192 elements are never written" in str(found)


def test_references_of_every_kind():
    kernel, a = copied_rows(), np.ones((4, 32), np.float32)
    assert kernel.compare(a, 2, ref=1.0) and kernel.compare(a, 2, ref=np.float32(1)) and not kernel.compare(a, 2, ref=2)
    for ref, message in (
        (lambda A: A, "ref is called with the 2 arguments of the call"),
        (lambda A, rows: None, "ref returns None"),
        ("one", "ref is str 'one'"),
        ([a, a], "ref gives 2 tensors, the kernel writes 1"),
        (a[:3], "the reference of 'C' has shape"),
    ):
        with pytest.raises(tilelang.ArgumentError, match=message):
            kernel.compare(a, 2, ref=ref)
    torch = pytest.importorskip("torch")
    for dtype in ("float8_e4m3fn", "float8_e5m2", "bfloat16", "bool"):
        x = (torch.arange(128).reshape(4, 32) % 3).to(getattr(torch, dtype))
        assert copied_rows(dtype=dtype).compare(x, 2, ref=lambda A, rows: A)


# ---- a race, and a pass that breaks the program ---------------------------------------------------------------------


def racing():
    @T.prim_func
    def f(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_ub((1, 64), "float32")
            with T.Scope("V"):
                for i in T.serial(8):
                    T.copy(A[i, 0], a)
                    T.set_flag("mte2", "mte3", 0)
                    T.wait_flag("mte2", "mte3", 0)
                    T.copy(a, C[i, 0])  # the next load does not wait for this store

    return tilelang.compile(f, out_idx=[1])


def test_a_race():
    a = rng.normal(size=(8, 64)).astype(np.float32)
    found = racing().compare(a, ref=a)
    assert not found and any(d.code == "TL0805" for d in found.faults)
    report = racing().bisect(a)
    assert report.stage == "sync" and "flags are missing" in report.what


@pytest.mark.parametrize("stage", ["parallel", "legalize", "memplan"])
def test_a_pass_that_changes_the_numbers(stage):
    @T.prim_func
    def f(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(2) as bx:
            a, b = T.alloc_shared((32, 64), "float32"), T.alloc_shared((32, 64), "float32")
            T.copy(A[bx * 32, 0], a)
            for i, j in T.Parallel(32, 64):
                b[i, j] = a[i, j] * 3.0
            T.copy(b, C[bx * 32, 0])

    kernel = tilelang.compile(f, out_idx=[1])
    a = rng.normal(size=(64, 64)).astype(np.float32)
    call = Call(kernel, [a], {})
    (launch,), steps = call.launches, []
    for name, text in stages(launch.text, launch.paths):
        if name == stage:  # what a bug of this pass would leave; the passes after it go on from there
            was, now = ("at 8192", "at 4096") if stage == "memplan" else ("mul %a, 3.0", "add %a, 3.0")
            text = text.replace(was, now)
            steps.append((name, text))
            rest = dict(stages(text, launch.paths))
            steps += [(n, rest[n]) for n, _ in stages(launch.text, launch.paths)[len(steps) :]]
            break
        steps.append((name, text))
    report = between(call, launch, call.tensors(), steps)
    assert report.stage == stage, report.what
    assert report.before in (launch.text, *(t for _, t in steps)) and report.after != report.before
    if stage != "memplan":
        assert "+" in report.diff() and "add %a, 3.0" in report.diff() and "C[0, 0] was" in report.what


def test_lowered_text_is_what_runs():
    assert "lowered(" in lowered(gemm().ir()).text()


def test_infinity_is_near_to_itself_only():
    """A reference of infinity has no tolerance around it."""
    k = copied()
    x = np.ones(64, np.float32)
    for value in (1.0, -np.inf, np.inf):
        x[3], want = value, np.full(64, 1.0, np.float32)
        want[3] = np.inf
        found = k.compare(x, ref=want)
        assert found[0].count == (value != np.inf)


def copied():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((64,), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    return tilelang.compile(f, out_idx=[1])
