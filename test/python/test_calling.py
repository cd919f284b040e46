"""Calling kernels: devices, kinds of tensors, outputs, wrong arguments."""

import array
import io
import threading
import warnings

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import ArgumentError, DeviceError, TileLangWarning

pytest.importorskip("tilelang._core")


def copy_kernel(shape=(8, 64), dtype="float32", **options):
    @T.prim_func
    def twice(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1) as bx:
            x = T.alloc_shared(shape, dtype)
            T.copy(X, x)
            for i, j in T.Parallel(*shape):
                x[i, j] = x[i, j] + x[i, j]
            T.copy(x, Y)

    return tilelang.compile(twice, **{"out_idx": [1], **options})


def rows_kernel():
    M = T.symbolic("M")

    @T.prim_func
    def add_rows(
        X: T.Tensor((M, 64), "float32"),
        W: T.Tensor((M,), "float32"),
        s: T.float32,
        n: T.int32,
        Y: T.Tensor((M, 64), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, 8)) as bx:
            x = T.alloc_shared((8, 64), "float32")
            T.copy(X[bx * 8, 0], x)
            for i, j in T.Parallel(8, 64):
                x[i, j] = x[i, j] * s + n
            T.copy(x, Y[bx * 8, 0])

    return tilelang.compile(add_rows, out_idx=-1)


X = np.arange(512, dtype=np.float32).reshape(8, 64)


def test_byte_order_and_alignment():
    with pytest.raises(ArgumentError, match="argument 'X' holds float32 in the byte order of other machines"):
        copy_kernel()(X.astype(X.dtype.newbyteorder()))
    odd = np.frombuffer(b"." + X.tobytes(), np.float32, offset=1).reshape(8, 64)  # starts on no multiple of 4 bytes
    np.testing.assert_array_equal(copy_kernel()(odd), 2 * X)


def test_out_idx_and_in_place():
    out = copy_kernel()(X)
    assert isinstance(out, np.ndarray) and out.dtype == np.float32
    np.testing.assert_array_equal(out, 2 * X)
    y = np.zeros_like(X)
    assert copy_kernel(out_idx=None)(X, y) is None
    np.testing.assert_array_equal(y, 2 * X)
    y[:] = 0
    assert copy_kernel()(X, y) is y  # the output may be given too
    np.testing.assert_array_equal(y, 2 * X)
    np.testing.assert_array_equal(copy_kernel(out_idx=-1)(X=X), 2 * X)


def test_an_output_that_is_not_written():
    """A warning that names tensor, first element and copy, unless the caller or another launch put values there."""
    N, blocks = T.symbolic("N"), T.symbolic("B")

    @T.prim_func
    def part(X: T.Tensor((N,), "float32"), grid: T.Tensor((blocks,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(blocks) as bx:
            x = T.alloc_ub((32,), "float32")
            T.copy(X[bx * 32], x)
            T.copy(x, Y[bx * 32])

    kernel = tilelang.compile(part, out_idx=-1)
    x, grid = np.ones(100, np.float32), np.zeros(4, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel(x, grid).sum() == 100
        y = np.zeros(100, np.float32)
        assert kernel(x, grid[:3], y).sum() == 96 and kernel(np.ones(0, np.float32), grid[:0]).shape == (0,)
    with pytest.warns(TileLangWarning, match=r"TL0818: 4 of the 100 elements of 'Y'.* the first has index \[96\]"):
        kernel(x, grid[:3])

    @T.prim_func
    def halves(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        for at in (0, 32):
            with T.Kernel(1) as bx:
                x = T.alloc_ub((32,), "float32")
                T.copy(X[at], x)
                T.copy(x, Y[at])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tilelang.compile(halves, out_idx=-1)(x[:64]).sum() == 64


def test_several_outputs_are_a_list():
    @T.prim_func
    def f(
        X: T.Tensor((64,), "float32"),
        Y: T.Tensor((64,), "float32"),
        W: T.Tensor((64,), "float32"),
        Z: T.Tensor((64,), "float16"),
    ):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((64,), "float32")
            z = T.alloc_shared((64,), "float16")
            T.copy(X, x)
            T.copy(x, W)
            T.copy(x, Y)
            T.tile.cast(z, x, "CAST_RINT", 64)
            T.copy(z, Z)

    outs = tilelang.compile(f, out_idx=[1, -1], workspace_idx=[2])(X[0])
    assert type(outs) is list and [o.dtype for o in outs] == [np.float32, np.float16]
    np.testing.assert_array_equal(outs[0], X[0])


def test_prim_func_can_be_called():
    @T.prim_func
    def f(X: T.Tensor((8, 64), "float32"), Y: T.Tensor((8, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((8, 64), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    y = np.zeros_like(X)
    f(X, y)
    np.testing.assert_array_equal(X, y)
    assert "lowered(" in f.ir(after="lowered") and "f" in f.explain()


def test_jit_on_a_prim_func():
    @tilelang.jit(out_idx=[1])
    @T.prim_func
    def f(X: T.Tensor((8, 64), "float32"), Y: T.Tensor((8, 64), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((8, 64), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    np.testing.assert_array_equal(f(X), X)


def test_lazy_kernels_are_kept():
    calls = []

    @tilelang.jit(out_idx=[1])
    def make(n, dtype="float32"):
        calls.append(n)

        @T.prim_func
        def f(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
            with T.Kernel(1) as bx:
                x = T.alloc_shared((n,), dtype)
                T.copy(X, x)
                T.copy(x, Y)

        return f

    assert make.style == "lazy"
    assert make(64) is make(64) and calls == [64]
    assert make(64) is not make(64, dtype="float16")
    tilelang.cache.clear_cache()
    make(64)
    assert calls == [64, 64, 64]
    tilelang.disable_cache()
    try:
        assert make(64) is not make(64)
    finally:
        tilelang.enable_cache()


def test_eager():
    traced = []

    @tilelang.jit
    def scale(A, B: T.Tensor((4,), "int32"), factor: float, s: T.float32, n: int = 16):
        M, N = T.const("M, N")
        A: T.Tensor((M, N), T.float32)
        C = T.empty((M, N), T.float32)
        traced.append((M, N))
        with T.Kernel(T.ceildiv(M, n)) as bx:
            a = T.alloc_shared((n, N), T.float32)
            T.copy(A[bx * n, 0], a)
            for i, j in T.Parallel(n, N):
                a[i, j] = a[i, j] * factor + s
            T.copy(a, C[bx * n, 0])
        return C

    b = np.zeros(4, np.int32)
    assert scale.style == "eager"
    np.testing.assert_array_equal(scale(X, b, 2.0, 1.0), X * 2 + 1)
    np.testing.assert_array_equal(scale(X, b, 2.0, 3.0, n=8), X * 2 + 3)
    scale(X, b, 2.0, 7.0)  # another run-time scalar: no new trace
    assert traced == [(8, 64), (8, 64)]
    np.testing.assert_array_equal(scale(X[:, :32].copy(), b, 2.0, 1.0), X[:, :32] * 2 + 1)
    assert traced[-1] == (8, 32)
    kernel = scale.compile(factor=3.0, M=8, N=64)
    assert kernel.params[0].shape == (8, 64)
    with pytest.raises(ArgumentError, match="scale has no argument and no T.const 'Q'"):
        scale.compile(factor=3.0, M=8, N=64, Q=3)
    with pytest.raises(tilelang.CompileError, match="T.const 'N' is not a dimension of any tensor by itself"):
        scale.compile(factor=3.0, M=8)


def test_symbolic_rows():
    kernel = rows_kernel()
    for m in (1, 7, 64, 1000):
        x = np.random.default_rng(m).standard_normal((m, 64), dtype=np.float32)
        y = kernel(x, np.zeros(m, np.float32), 2.0, 3)
        np.testing.assert_allclose(y, x * 2 + 3, rtol=1e-6)
        assert kernel.last_run["blocks"] == -(-m // 8)


def test_nothing_to_do():
    kernel = rows_kernel()
    y = kernel(np.zeros((0, 64), np.float32), np.zeros(0, np.float32), 1.0, 1)
    assert y.shape == (0, 64) and kernel.last_run["blocks"] == 0

    @T.prim_func
    def none(X: T.Tensor((64,), "float32"), Y: T.Tensor((0, 64), "float32")):
        with T.Kernel(T.ceildiv(0, 16)) as bx:
            x = T.alloc_shared((64,), "float32")
            T.copy(X, x)

    kernel = tilelang.compile(none, out_idx=[1])
    assert kernel(X[0].copy()).shape == (0, 64)
    assert "a call does nothing" in kernel.explain()


@pytest.mark.parametrize(
    "argument, message",
    [
        (X.astype(np.float16), "argument 'X' has dtype float16, wanted float32"),
        (X.astype(np.float64), "argument 'X' has dtype float64, wanted float32"),
        (X[0], "argument 'X' has 1 dimension, shape (64,), wanted 2"),
        (X[:4], "argument 'X' has shape (4, 64), wanted (8, 64): dimension 0 is 4, not 8"),
        (np.ascontiguousarray(X.T).T, "argument 'X' is not contiguous, shape (8, 64)"),
        (3.0, "argument 'X' is float 3.0, wanted a tensor X: float32[8, 64]"),
        (None, "argument 'X' is None, wanted a tensor"),
    ],
)
def test_wrong_tensor(argument, message):
    with pytest.raises(ArgumentError) as e:
        copy_kernel()(argument)
    assert message in str(e.value)
    assert isinstance(e.value, TypeError) and isinstance(e.value, ValueError)


def test_sizes_that_divide_by_zero():
    """A grid of `64 // n` with n = 0 is told in words; what a choice leaves out is not computed."""

    def make(blocks):
        @T.prim_func
        def f(n: T.int32, Y: T.Tensor((64,), "float32")):
            with T.Kernel(blocks(n)) as bx:
                Y[bx] = 1.0

        return tilelang.compile(f)

    with pytest.raises(ArgumentError, match="`64 // n` divides by zero with n = 0"):
        make(lambda n: 64 // n)(0, np.zeros(64, np.float32))
    y = np.zeros(64, np.float32)
    make(lambda n: T.if_then_else(n > 0, 64 // n, 3))(0, y)
    assert y.sum() == 3


def test_wrong_calls():
    kernel = copy_kernel()
    for args, kwargs, message in [
        ((), {}, "twice takes 1 argument (X: float32[8, 64]), 0 given; missing: X"),
        ((X, X.copy(), X), {}, "twice takes 1 argument (X: float32[8, 64]), 3 given"),
        ((X,), {"Z": X}, "twice has no parameter 'Z'"),
        ((X,), {"X": X}, "'X' is given twice"),
    ]:
        with pytest.raises(ArgumentError) as e:
            kernel(*args, **kwargs)
        assert message in str(e.value)
    frozen = X.copy()
    frozen.flags.writeable = False
    kernel(frozen)  # only read
    with pytest.raises(ArgumentError, match="is written by the kernel, but the array is read-only"):
        kernel(X, frozen)
    rows = rows_kernel()
    with pytest.raises(ArgumentError, match=r"dimension 0 is 9, not 8; M is 8 from dimension 0 of 'X'"):
        rows(X, np.zeros(9, np.float32), 1.0, 1)
    with pytest.raises(ArgumentError, match="argument 'n' is float 1.5, wanted a number for int32"):
        rows(X, np.zeros(8, np.float32), 1.0, 1.5)
    with pytest.raises(ArgumentError, match="which int32 does not hold"):
        rows(X, np.zeros(8, np.float32), 1.0, 2**31)


def test_wrong_options():
    with pytest.raises(ArgumentError, match="(?s)device='simm': there is no such device; .* did you mean 'sim'"):
        copy_kernel(device="simm")
    with pytest.raises(ArgumentError, match="target='ptx': there is no such target"):
        copy_kernel(target="ptx")
    with pytest.raises(ArgumentError, match=r"out_idx=\[5\]: 5 is no number of one of the 2 parameters \(X, Y\)"):
        copy_kernel(out_idx=[5])
    assert copy_kernel(out_idx=range(1, 2)).out_idx == copy_kernel(out_idx=np.array([1])).out_idx == [1]
    assert copy_kernel(out_idx=np.array(-1)).out_idx == copy_kernel(out_idx=np.int32(1)).out_idx == [1]
    with pytest.raises(ArgumentError, match="named in out_idx and in workspace_idx"):
        copy_kernel(workspace_idx=[1])
    with pytest.raises(tilelang.CompileError, match="910B2"):
        copy_kernel(chip="910Z")
    with pytest.raises(ArgumentError, match="(?s)tilelang.compile has no option 'devcie'.*did you mean 'device'?"):
        copy_kernel(devcie="sim")
    with pytest.raises(ArgumentError, match="platform='A9': there is no such family of chips"):
        copy_kernel(platform="A9")
    with pytest.warns(tilelang.TileLangWarning, match="compile_flags=.* has no effect"):
        copy_kernel(compile_flags=["-O3"])
    with pytest.raises(ArgumentError, match="tilelang.compile takes a prim_func, not int"):
        tilelang.compile(3)
    with pytest.warns(tilelang.TileLangWarning, match="'tl.ascend_auto_sink' has no effect.*tl.ascend_auto_sync"):
        copy_kernel(pass_configs={"tl.ascend_auto_sink": True})
    with pytest.raises(ArgumentError, match="there is no such pass; the passes are"):
        copy_kernel().ir(after="nothing")


@pytest.mark.parametrize("name, value, says", [
    ("TILELANG_CHECKS", "maybe", "TILELANG_CHECKS='maybe': the fault checks are on or off"),
    ("TILELANG_CHIP", "910Z", "TILELANG_CHIP='910Z': there is no such chip; one of 910B1"),
    ("TILELANG_DEVICE", "cuda", "TILELANG_DEVICE='cuda': there is no such device; one of sim, ascend"),
    ("TILELANG_DEVICE", "sim:1", "TILELANG_DEVICE='sim:1' is no device"),
])  # fmt: skip
def test_wrong_words_of_the_environment(name, value, says, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError) as caught:
        copy_kernel()
    assert says in caught.value.errors[0].text and caught.value.errors[0].fix


@pytest.mark.parametrize("value, on", [("", True), ("ON", True), ("yes", True), ("False", False), ("0", False)])
def test_checks_by_the_environment(value, on, monkeypatch):
    monkeypatch.setenv("TILELANG_CHECKS", value)
    assert copy_kernel().checks is on and copy_kernel(checks=not on).checks is not on


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_that_are_not_dense_numbers():
    torch = pytest.importorskip("torch")
    kernel, x = copy_kernel(), torch.ones(8, 64)
    for wrong, text, fix in (
        (x.to("meta"), "is on meta: it has no data", "device='cpu'"),
        (x.to_sparse(), "torch.sparse_coo", "x.to_dense()"),
        (x.to(torch.complex64), "has dtype complex64", "x.real and x.imag"),
        (torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "has dtype qint8", "x.dequantize()"),
        (np.ones((8, 64), np.complex64), "has dtype complex64", "x.real and x.imag"),
    ):
        with pytest.raises(ArgumentError) as caught:
            kernel(wrong)
        assert text in caught.value.errors[0].text and fix in caught.value.errors[0].fix


def test_results_that_would_be_lost_in_a_copy():
    """The cure of an output that is not contiguous says how the numbers come back."""
    kernel = tilelang.compile(copy_kernel().prim_func)
    for wrong, back in ((np.zeros((64, 8), np.float32).T, "x[...] = y"), (None, "x.copy_(y)")):
        if wrong is None:
            torch = pytest.importorskip("torch")
            wrong = torch.zeros(64, 8).T
        with pytest.raises(ArgumentError) as caught:
            kernel(np.ones((8, 64), np.float32), wrong)
        assert "'Y' is not contiguous" in caught.value.errors[0].text and back in caught.value.errors[0].fix


@pytest.mark.parametrize("call", [
    lambda k, x: k.export(5), lambda k, x: k.export(""), lambda k, x: k.explain(x), lambda k, x: k.reproduce(7, x),
    lambda k, x: k.profile().save_trace(None), lambda k, x: k.profile().save_html(5),
    lambda k, x: k.profile().save_plots([]), lambda k, x: k.compare(x).save(3),
])  # fmt: skip
def test_what_is_no_path(call):
    """A number would be a file that is open already."""
    with pytest.raises(ArgumentError, match="is no path"):
        call(copy_kernel(), X)


def test_files_that_cannot_be_written():
    for name in ("save_trace", "save_html"):
        with pytest.raises(ArgumentError, match=f"profile.{name}: No such file or directory: '/nowhere/x'"):
            getattr(copy_kernel().profile(), name)("/nowhere/x")
    profiler = copy_kernel().get_profiler()
    for call in (profiler.do_bench, profiler.assert_allclose):
        with pytest.raises(ArgumentError, match="takes a function, not int 5"):
            call(5)


@T.prim_func
def says(A: T.Tensor((4,), "float32")):
    with T.Kernel(1) as _:
        A[0] = A[0] + 1.0
        T.printf("плитка %f\n", A[0])


def test_nobody_reads_what_is_printed(monkeypatch):
    """A closed pipe is the caller's exception, as with print; a character that the terminal has not is none."""

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    kernel, x = tilelang.compile(says), np.ones(4, np.float32)
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(BrokenPipeError):
        kernel(x)
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    kernel(x)
    plain.flush()
    assert rb"\u043f\u043b\u0438\u0442\u043a\u0430 3.0" in plain.buffer.getvalue()


def test_device(monkeypatch):
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME"):
        monkeypatch.setenv(name, "/nowhere")
    kernel = copy_kernel(device="ascend")
    assert "Ascend C" in kernel.get_kernel_source()
    with pytest.raises(DeviceError, match="(?s)there is no CANN toolkit to build it with.*TILELANG_DEVICE=sim"):
        kernel(X)
    monkeypatch.setenv("TILELANG_DEVICE", "ascend")
    with pytest.raises(DeviceError):
        copy_kernel()(X)
    monkeypatch.setenv("TILELANG_DEVICE", "sim")
    monkeypatch.setenv("TILELANG_CHIP", "910B4")
    kernel = copy_kernel()
    kernel(X)
    assert kernel.explain_json()["chip"] == "910B4"


def test_keys_are_strings():
    key = tilelang.PassConfigKey.TL_ASCEND_AUTO_SYNC
    assert key == "tl.ascend_auto_sync" and {key: 1}["tl.ascend_auto_sync"] == 1 and f"{key}" == "tl.ascend_auto_sync"


def test_what_pass_configs_switch_off():
    """Off means that the author did it: no flag is added, no address is used twice."""
    key = tilelang.PassConfigKey

    @T.prim_func
    def twice(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1):
            for i in T.serial(2):
                a, b = T.alloc_ub((256,), "float32"), T.alloc_ub((256,), "float32")
                T.copy(A[i * 256], a)
                T.tile.exp(b, a)
                T.copy(b, B[i * 256])

    def compiled(**configs):
        return tilelang.compile(twice, out_idx=[1], pass_configs={key[k]: v for k, v in configs.items()})

    x = np.linspace(0, 1, 512, dtype="float32")
    for on in ({}, {"TL_ASCEND_AUTO_SYNC": True}, {"TL_ASCEND_MEMORY_PLANNING": False}):
        np.testing.assert_allclose(compiled(**on)(x), np.exp(x), rtol=1e-5)
    off = compiled(TL_ASCEND_AUTO_SYNC=False)
    assert "flag" not in off.ir("lowered")
    with pytest.raises(tilelang.KernelFault, match="TL0805"):
        off(x)


def test_views():
    kernel = copy_kernel((1, 16), "int32")
    data = array.array("i", range(16))
    with pytest.raises(ArgumentError, match="has 1 dimension"):
        kernel(data)
    np.testing.assert_array_equal(kernel(memoryview(data).cast("B").cast("i", (1, 16))), 2 * np.arange(16)[None])


class OnlyDLPack:
    """Any library's tensor: nothing but the protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    out = copy_kernel()(OnlyDLPack(X))
    np.testing.assert_array_equal(np.asarray(out), 2 * X)
    with pytest.raises(ArgumentError, match="has dtype float64"):
        copy_kernel()(OnlyDLPack(X.astype(np.float64)))
    with pytest.raises(ArgumentError, match="not contiguous"):
        copy_kernel()(OnlyDLPack(np.ascontiguousarray(X.T).T))
    y = np.zeros_like(X)
    copy_kernel()(OnlyDLPack(X), OnlyDLPack(y))  # written without a copy
    np.testing.assert_array_equal(y, 2 * X)


def test_bfloat16_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = X.astype(ml_dtypes.bfloat16)
    out = copy_kernel(dtype="bfloat16")(x)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(out, x + x)


def test_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(512, dtype=torch.float32).reshape(8, 64)
    out = copy_kernel()(x)
    assert isinstance(out, torch.Tensor) and torch.equal(out, 2 * x)
    half = copy_kernel(dtype="bfloat16")(x.to(torch.bfloat16))
    assert half.dtype == torch.bfloat16
    y = torch.zeros_like(x)
    copy_kernel(out_idx=None)(x, y)
    assert torch.equal(y, 2 * x)
    with pytest.raises(ArgumentError, match="not contiguous"):
        copy_kernel()(x.t().contiguous().t())
    with pytest.raises(ArgumentError, match="is on meta"):
        copy_kernel()(x.to("meta"))
    with pytest.raises(ArgumentError, match="has dtype float16, wanted float32"):
        copy_kernel()(x.half())


def test_looking_inside():
    kernel = copy_kernel()
    assert kernel.ir().startswith("tl 1\n") and "parallel" in kernel.ir()
    assert "parallel %i" not in kernel.ir(after="parallel")
    assert "set_flag" in kernel.ir(after="lowered")
    assert kernel.get_kernel_source() == kernel.get_kernel_source("ascendc") == kernel.kernel_source
    assert {p.name: p.role for p in kernel.params} == {"X": "in", "Y": "out"}
    kernel(X)
    assert {"trace", "print", "load", "lower", "emit", "run"} <= set(kernel.times)
    assert kernel.last_run["blocks"] == 1 and kernel.last_run["gm_write_bytes"] == X.nbytes
    text = kernel.explain()
    assert "x" in text and "ub" in text


def test_many_threads():
    kernel = copy_kernel()
    results = [None] * 8

    def run(i):
        results[i] = kernel(X + i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, r in enumerate(results):
        np.testing.assert_array_equal(r, 2 * (X + i))


def test_faults_name_python_lines():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((64,), "float32")
            T.copy(x, Y)  # nothing was ever written to x

    with pytest.raises(tilelang.KernelFault) as e:
        tilelang.compile(f, out_idx=[1])(X[0].copy())
    assert e.value.code == "TL0802"
    assert "T.copy(x, Y)" in str(e.value)
    tilelang.compile(f, out_idx=[1], checks=False)(X[0].copy())


def test_arguments_that_share_bytes():
    @T.prim_func
    def f(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            x = T.alloc_shared((64,), "float32")
            T.copy(X, x)
            T.copy(x, Y)
            T.copy(x, Z)

    kernel = tilelang.compile(f, checks=False)
    a = np.arange(256, dtype="float32")

    def said(*args):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kernel(*args)
        return [w.message.diagnostic.text for w in caught if w.message.diagnostic.code == "TL1028"]

    assert said(a[:64], a[64:128], a[128:192]) == []
    assert said(a[:64], a[:64], a[128:192]) == []  # in place
    (text,) = said(a[:64], a[63:127], a[128:192])
    assert "'X' and 'Y' share 4 bytes, and the kernel writes 'Y'" in text
    (text,) = said(a[:64], a[64:128], a[64:128])
    assert "'Y' and 'Z' share 256 bytes" in text
    assert len(said(a[32:96], a[:64], a[64:128])) == 2


@pytest.mark.parametrize("size", [-5, 1.5, "x", None, 2**40, True])
@pytest.mark.parametrize("verb", ["profile", "cost"])
def test_sizes_that_are_none(verb, size):
    with pytest.raises(ArgumentError, match=f"{verb}: the size M is .*") as caught:
        getattr(rows_kernel(), verb)(M=size)
    assert caught.value.errors[0].fix == "a number from 0 to 2^31 - 1"
