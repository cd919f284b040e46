"""The interpreter against the simulated chip: two readings of the IR that share no code give the same bytes."""

import json
import pathlib

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.debug.arith import np_dtype
from tilelang.debug.interpret import interpret
from tilelang.debug.load import program
from tilelang.errors import KernelFault
from tilelang.frontend.expr import Buffer, evaluate

_core = pytest.importorskip("tilelang._core")
ROOT = pathlib.Path(__file__).parents[1]
# Functions that are lowered to several instructions, and sums whose order is the lowering's: relative error
CLOSE = {"ew_pow": 1e-5, "ew_unary": 1e-5}
# left out: indices and sizes do not fit them; powers of negative numbers, where the last bit of an exponent decides
FAULTY = {"ew_gather_index", "gemm_batch", "gm_dynamic", "gm_row_gather", "ew_sin"}


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
    found = sorted(p for p in (ROOT / folder).glob("*.tl") if p.stem not in FAULTY and not p.stem.startswith("bad_"))
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
