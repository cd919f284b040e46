"""The debugging tools on calls that make several launches: each names the launch it speaks of."""


import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug import call as calls

rng = np.random.default_rng(3)


def norm(wrong=False, narrow=False):
    """Y = X * 2 + sum over rows of X, in three launches; `wrong`: the last one takes another tile."""
    kept = "float16" if narrow else "float32"

    @T.prim_func
    def f(
        X: T.Tensor((64, 32), "float32"), S: T.Tensor((1, 32), kept), Z: T.Tensor((64, 32), "float32"),
        Y: T.Tensor((64, 32), "float32"),
    ):  # fmt: skip
        with T.Kernel(1) as bx:
            x, s = T.alloc_ub((64, 32), "float32"), T.alloc_ub((1, 32), kept)
            T.copy(X, x)
            t = T.alloc_ub((1, 32), "float32")
            T.reduce_sum(x, t, dim=0)
            T.copy(t, s)
            T.copy(s, S)
        with T.Kernel(4) as bx:
            x = T.alloc_ub((16, 32), "float32")
            T.copy(X[bx * 16, 0], x)
            T.tile.mul(x, x, 2.0)
            T.copy(x, Z[bx * 16, 0])
        with T.Kernel(4) as bx:
            x, s = T.alloc_ub((16, 32), "float32"), T.alloc_ub((1, 32), kept)
            t = T.alloc_ub((1, 32), "float32")
            T.copy(Z[((bx + 1) % 4 if wrong else bx) * 16, 0], x)
            T.copy(S, s)
            T.copy(s, t)
            for i, j in T.Parallel(16, 32):
                x[i, j] = x[i, j] + t[0, j]
            T.copy(x, Y[bx * 16, 0])

    return tilelang.compile(f, out_idx=[3], workspace_idx=[1, 2])


def floats(*shape):
    return rng.standard_normal(shape).astype("float32")


def lines(kernel):
    return [k.traced.builder.launched[1] for k in kernel._launches(None)]


def right(x):
    return 2 * x + x.sum(0)


def test_compare_of_several_launches():
    x = floats(64, 32)
    for ref in (None, right):
        assert norm().compare(x, ref=ref, rtol=1e-4)
    kernel = norm(wrong=True)
    found = kernel.compare(x, ref=right)
    assert not found and found[0].kind == "exchanged tiles" and found.launch is None
    assert found[0].where.startswith("launch 3 of 3 (") and found[0].where.endswith("vector core 0")
    assert f"test_launches.py:{lines(kernel)[2]})" in found[0].where and "launch 3 of 3" in str(found)
    assert kernel.compare(x)  # the program is wrong, no launch of it runs wrongly


def spoilt(monkeypatch, number, was, now):
    """One launch is compiled as if a pass wrote something else."""
    real = calls.Launch.lowered

    def lowered(self):
        text, options = self.text, self.options
        if f"launch {number} of" in self.title:
            assert was in text
            self.text = text.replace(was, now)
        p = real(self)
        self.text = text
        return p

    monkeypatch.setattr(calls.Launch, "lowered", lowered)


def test_compare_names_the_first_launch_that_differs(monkeypatch):
    spoilt(monkeypatch, 2, "mul %x, 2.0", "mul %x, 3.0")
    found = norm().compare(floats(64, 32))
    assert not found and found.launch.startswith("launch 2 of 3 (") and found.step.name == "Z"
    assert "is the first that gives something else than the interpreter:\nZ: " in str(found)


def test_bisect_of_several_launches(monkeypatch):
    x = floats(64, 32)
    report = norm().bisect(x)
    assert not report and "no pass changes" in str(report)
    from tilelang.debug import bisect

    real = bisect.stages

    def stages(text, paths=None, **options):
        steps = real(text, paths, **options)
        return [(n, t.replace("mul %x, 2.0", "mul %x, 3.0") if n == "legalize" else t) for n, t in steps]

    monkeypatch.setattr(bisect, "stages", stages)
    report = norm().bisect(x)
    assert report.stage == "legalize" and str(report).startswith("launch 2 of 3 (") and "Z[0, 0] was" in report.what


def test_numerics_of_several_launches():
    found = norm(narrow=True).numerics(np.full((64, 32), 2000, np.float32))
    assert [e.overflow for e in found.entries] == [32] and "launch 1 of 3" in str(found)


def test_reproduce_of_one_of_several_launches(tmp_path, tlc):
    x = floats(64, 32)
    for number in (None, 1, 2, 3):
        path = norm().reproduce(tmp_path / f"{number}.tl", x, launch=number)
        status, out, err = tlc("replay", path)
        assert status == 0, out + err
        assert f"launch {number or 3} of 3" in open(path).read()
    with pytest.raises(tilelang.ArgumentError, match="the call has 3 launches"):
        norm().reproduce(tmp_path / "4.tl", x, launch=4)


@tilelang.jit
def split_sum(X, parts):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((N,), "float32")
    partial = T.alloc_global((parts, N), "float32")
    rows = M // parts
    with T.Kernel(parts) as bx:
        x, s = T.alloc_fragment((rows, N), "float32"), T.alloc_fragment((N,), "float32")
        T.copy(X[bx * rows, 0], x)
        T.reduce_sum(x, s, dim=0)
        T.copy(s, partial[bx, 0])
    with T.Kernel(1) as _:
        x, s = T.alloc_fragment((parts, N), "float32"), T.alloc_fragment((N,), "float32")
        T.copy(partial, x)
        T.reduce_sum(x, s, dim=0)
        T.copy(s, Y)
    return Y


def test_a_function_that_is_called_with_tensors(tmp_path):
    x = floats(64, 96)
    np.testing.assert_allclose(split_sum.interpret(x, 4), x.sum(0), rtol=1e-4, atol=1e-5)
    assert split_sum.compare(x, 4) and split_sum.compare(x, 4, ref=lambda x, parts: x.sum(0), rtol=1e-4)
    assert not split_sum.bisect(x, 4) and not split_sum.numerics(x, 4)
    split_sum.reproduce(tmp_path / "s.tl", x, 4)
    assert "launch 2 of 2" in (tmp_path / "s.tl").read_text()


def test_a_function_that_builds_kernels():
    @tilelang.jit(out_idx=[1])
    def make(n):
        @T.prim_func
        def f(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
            with T.Kernel(1) as bx:
                T.copy(X, Y)

        return f

    with pytest.raises(tilelang.ArgumentError, match="'make' builds kernels"):
        make.compare(64)
    assert make(64).compare(floats(64))


def test_a_call_keeps_its_tensors():
    n = 1 << 18

    @T.prim_func
    def f(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(n // 1024) as bx:
            x = T.alloc_shared((1024,), "float32")
            T.copy(X[bx * 1024], x)
            T.copy(x, Y[bx * 1024])

    call = calls.Call(tilelang.compile(f, out_idx=[1]), [np.arange(n, dtype=np.float32)], {})
    others = [np.full(n, 7, np.float32) for _ in range(4)]  # where a freed tensor was
    tensors = call.tensors()
    np.testing.assert_array_equal(tensors[0], np.arange(n))
    assert np.isnan(tensors[1]).all() and len(others) == 4
