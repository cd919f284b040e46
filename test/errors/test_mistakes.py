"""Mistakes of newcomers by kind: each is a message with a code, the line, a caret, and what to write instead.

`KERNEL` rows are one statement in a kernel, `SCRIPT` rows a program whose last line is wrong.
"""

import ast
import linecache
import pathlib
import signal
import textwrap
import warnings

import pytest

import tilelang

pytest.importorskip("tilelang._core")

ROOT = pathlib.Path(__file__).parent.parent.parent
BEGIN = "import math\nimport numpy as np\nimport tilelang\nimport tilelang.language as T\n"
HEAD = """
@T.prim_func
def f(A: T.Tensor((16, 64), "float32"), B: T.Tensor((16, 64), "float32"), n: T.int32):
    with T.Kernel(1) as bx:
        a = T.alloc_shared((16, 64), "float32")
        b = T.alloc_shared((16, 64), "float32")
        m = T.alloc_shared((16,), "float32")
        T.copy(A, a)
"""
COPY = HEAD + "        T.copy(a, B)\n"

EAGER = """
@tilelang.jit
def f(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(1) as bx:
        a = T.alloc_shared((16, 64), "float32")
        T.copy(A, a[0:M, 0:N])
        T.copy(a[0:M, 0:N], C)
    return {}

"""


TUNED = """
def tuned(configs, **options):
    @tilelang.autotune(configs=configs, **options)
    @tilelang.jit(out_idx=[0])
    def make(bm=16):
        @T.prim_func
        def f(B: T.Tensor((64,), "float32")):
            with T.Kernel(T.ceildiv(64, bm)) as bx:
                a = T.alloc_shared((bm,), "float32")
                T.fill(a, float(bm))
                T.copy(a, B[bx * bm])
        return f
    return make

"""


def run(text, name):
    """The first error of a program."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(tilelang.TileLangError) as caught:
            exec(compile(text, name, "exec"), {"__name__": "mistake"})
    return caught.value


def check(e, name, line, code, text, fix):
    d = e.errors[0]
    assert (d.code, d.file, d.line) == (code, name, line), str(e)
    assert text in d.text and d.fix and fix in d.fix and "\n" in str(d) and "^" in str(d), str(e)
    assert len({str(d) for d in e.diagnostics}) == len(e.diagnostics), str(e)


KERNEL = """
T.alloc_shard((16, 64), "float32")         | TL1001 | T has no 'alloc_shard' | did you mean T.alloc_shared?
with T.kernel(1): pass                     | TL1001 | T has no 'kernel' | did you mean T.Kernel?
T.tile.exq(a, a)                           | TL1001 | T.tile has no 'exq' | did you mean T.tile.exp?
T.alloc_shared((16, 64), dytpe="float32")  | TL1004 | T.alloc_shared has no argument 'dytpe' | did you mean 'dtype'?
T.alloc_shared(size=(16, 64))              | TL1004 | no argument 'size' | T.alloc_shared(shape, dtype="float32"
T.gemm(a, b, a, transpose_b=True)          | TL1004 | T.gemm has no argument 'transpose_b' | did you mean 'transpose_B'?
T.reduce_sum(a, m, axis=1)                 | TL1004 | T.reduce_sum has no argument 'axis' | dim=-1
T.copy(A, a, transposed=True)              | TL1004 | T.copy has no argument 'transposed' | did you mean 'transpose'?
for k in T.Pipelined(4, num_stage=2): pass | TL1004 | T.Pipelined has no argument 'num_stage' | 'num_stages'?
for k in T.Parallel(4, threads=2): pass    | TL1004 | T.Parallel has no argument 'threads' | T.Parallel(*extents)
T.tile.add(dst=a, src=a)                   | TL1004 | T.tile.add has no argument 'src' | T.tile.add(dst, *operands)
T.copy(A)                                  | TL1004 | without its argument 'dst' | T.copy(src, dst
T.gemm(a)                                  | TL1004 | without its arguments 'B' and 'C' | T.gemm(A, B, C
T.copy(A, a, src=A)                        | TL1004 | gets its argument 'src' twice | T.copy(src, dst
T.alloc_ub(16, 64, 3, "float32")           | TL1004 | takes 2 arguments by place, 4 given | shape, dtype
T.barrier_all(1, 2)                        | TL1004 | takes 0 arguments by place, 2 given | T.barrier_all()
T.sync_all(a)                              | TL1004 | T.sync_all | T.sync_all(
T.float32(1, 2)                            | TL1004 | converts one value, not 2 values | T.float32(x)
T.alloc_shared(16, 64)                     | TL1003 | 64 is given where a dtype belongs | stand together
T.alloc_shared((16, 64), None)             | TL1003 | None is given where a dtype | 'float16'
T.alloc_shared("float32", (16, 64))        | TL1011 | 'float32' is not a size | the shape comes first
T.alloc_shared((16, "N"))                  | TL1011 | the string 'N' is not a size | T.symbolic('N')
T.alloc_shared((16, None))                 | TL1011 | None is not a size | give it a value
T.alloc_shared((16, 64 / 2))               | TL1011 | float 32.0 is not a size | `//`
T.copy(A, None)                            | TL1004 | not None | give it a value
T.copy([A], a)                             | TL1004 | not list | one value
T.copy(np.ones((16, 64)), a)               | TL1004 | not ndarray | make it a parameter
a[0, 0] = a[0, 0] + np.ones(3)             | TL1004 | '+' of element a[0, 0] and ndarray | make it a parameter
a[0, 0] = np.ones(3) * a[0, 0]             | TL1004 | '*' of ndarray | make it a parameter
a[0, 0] = a[0, 0] * [1, 2]                 | TL1004 | '*' of element a[0, 0] and list | one value
a[0, 0] = None + a[0, 0]                   | TL1004 | '+' of None | give it a value
a[0, 0] = 1j                               | TL1004 | cannot take complex | two tiles
a[0, 0] = "hello"                          | TL1004 | cannot take the string | a number
a[16, 0] = 1.0                             | TL1011 | index 16 in dimension 0 | from 0 to 15
a[-17, 0] = 1.0                            | TL1011 | index -17 in dimension 0 | from 0 to 15
a[0, 0, 0] = 1.0                           | TL1011 | has 2 dimensions, 3 indices | a[i, j]
a["x", 0] = 1.0                            | TL1011 | the string 'x' is not an index | a number
a[[0, 1], 0] = 1.0                         | TL1011 | is not an index | one value
T.copy(A[bx / 2, 0], a)                    | TL1011 | must be an integer | `//`
T.copy(a[8:4, :], b[8:4, :])               | TL1011 | an empty slice | b is greater than a
T.copy(a[0:20, :], B)                      | TL1011 | slice 0:20 | end it at 16
x = len(a)                                 | TL1005 | has no len() | x.shape[0]
x = a.T                                    | TL1001 | has no 'T' | T.transpose(src, dst)
x = a.size                                 | TL1001 | has no 'size' | .shape
x = a.sum()                                | TL1001 | has no 'sum' | T.reduce_sum
x = a.shpae                                | TL1001 | has no 'shpae' | did you mean .shape?
a.count = 3                                | TL1005 | no attribute 'count' | names of its own
x = a(0, 0)                                | TL1005 | not callable | index it
x = bx[0]                                  | TL1005 | not subscriptable | one value has no elements
x = round(a[0, 0])                         | TL1005 | __round__ | T.round(x)
x = math.exp(a[0, 0])                      | TL1005 | needs a number | T.exp
x = np.exp(a[0, 0])                        | TL1005 | needs a number | T.exp
x = max(a[0, k] for k in range(4))         | TL1005 | needs the truth | T.max
x = [a[0, k] for k in T.serial(4)]         | TL1004 | a comprehension over a loop that the chip runs | compute
for k, j in enumerate(T.serial(4)): a[k, j] = 1.0 | TL1004 | `enumerate` over a loop | compute
for k in zip(T.serial(4), range(4)): a[0, 0] = 1.0 | TL1004 | `zip` over a loop | compute
for k in reversed(T.serial(4)): a[0, k] = 1.0 | TL1004 | `reversed` over a loop | compute
T.fill(a[0:2, 0:300], 1.0)                 | TL1011 | slice 0:300 | end it at 64
x = T.alloc_var("int8", 300)               | TL1004 | 300 does not fit int8, which holds -128 to 127 | int16
T.fill(T.alloc_shared((8,), "int8"), 200)  | TL1004 | 200 does not fit int8 | in that range
T.copy(n, b)                               | TL1004 | not n (int32) | n: T.Tensor
T.copy(bx, b)                              | TL1004 | not bx (int32) | T.fill
x = T.handle                               | TL1002 | T.handle is refused | T.Tensor parameter
T.copy(a[0:4, :], b)                       | TL0501 | moves | take (16, 64) of 'a', or (4, 64) of 'b'
T.gemm(a, b, T.alloc_fragment((16, 16), "float32")) | TL0502 | disagree in K | transpose_B=True: the shapes then agree
T.gemm(a, b, T.alloc_fragment((8, 16), "float32"), transpose_B=True) | TL0502 | in M | the result is (16, 16)
T.tile.broadcast(b, a, axis=5)             | TL1004 | 'axis' is int 5 | 1 repeats columns
T.copy(a, b, m)                            | TL1004 | 'enable_relu' is a Python value, not the tile 'm' | help(
T.copy(a, b, transpose=n)                  | TL1005 | needs its argument 'transpose' | Python value
T.reduce_sum(a, m, 1, b)                   | TL1004 | 'b' float32(16, 64) is neither | clear=True
T.reduce_sum(m, a, dim=1)                  | TL1004 | 'dim' is int 1; 'm' float32(16,) has 1 dimension | from -1 to 0
T.tile.sub(b, 1.0, a)                      | TL1004 | takes a tile first, not float 1.0 | T.tile.mul
T.tile.gelu(b, a)                          | TL1001 | no 'gelu' | T.tanh
T.gemm(a, b, a, transpose_b=True)          | TL1004 | no argument 'transpose_b' | 'transpose_B'
T.gemm(a, b, a, transpose_a=True)          | TL1004 | no argument 'transpose_a' | 'transpose_A'
x = T.round(a[0, 0], "up")                 | TL1004 | rounding_mode=up | ties-to-even
x = f"{bx:04d}"                            | TL1005 | needs a number | T.printf
for k in T.Parallel(-4): a[k, 0] = 1.0     | TL1004 | T.Parallel over (-4,) | at least 0
x = a[0, 0] << 2                           | TL1004 | '<<' takes integers | T.reinterpret
x, y = a                                   | TL1005 | cannot be unpacked into 2 names | x.shape
x = {0: 1.0}[bx]                           | TL1005 | a dict of Python needs its value now | T.if_then_else
x = bx // 0                                | TL1004 | bx // 0 | a divisor
x = T.ceildiv(n, 0)                        | TL1004 | T.ceildiv(n, 0) | a divisor
T.copy(A[0], a)                            | TL0501 | of shape (1, 64) into 'a' | slice both sides
a[0, 0] = a[0, 0] * 10**400                | TL1004 | is beyond every float dtype | T.infinity
v = T.alloc_var("int32", init=2.5)         | TL1004 | 2.5 is no whole number | T.cast(2.5, 'int32')
T.alloc_ub((4,), "int32")[0] = 0.5         | TL1004 | 0.5 is no whole number | T.cast(0.5, 'int32')
T.copy(a[0:n, :], b[0:n + 1, :])           | TL0501 | of shape (n, 64) into | slice both sides to the same shape
while bx < n: T.copy(A, a)                 | TL1006 | `while bx < n` does not end | v = v + 1
while a[0, 0] < 1.0: T.copy(b, A)          | TL1006 | does not end | v = v + 1
while True: T.copy(A, a)                   | TL1006 | and goes on | T.serial
T.alloc_shared((16,), "float32", "nowhere") | TL1004 | 'nowhere' is no memory for it | 'shared.dyn'
T.alloc_fragment((16,), scope=3)           | TL1004 | T.alloc_fragment: int 3 is no memory | 'local.fragment'
v = T.alloc_var("float32", "zero")         | TL1004 | T.alloc_var: the string 'zero' is no memory | 'local.var'
v = T.alloc_var("float32"); v[0] = 1.0     | TL1005 | 'v' is a variable and has no elements | v = value
T.gemm(a, b, a, transpose_B="no")          | TL1004 | 'transpose_B' is the string 'no' | transpose_B=False
T.copy(a, b, "no")                         | TL1004 | 'enable_relu' is the string 'no' | enable_relu=False
T.reduce_sum(a, m, 1, clear="yes")         | TL1004 | 'clear' is the string 'yes' | clear=True
for i, j in T.serial(4): T.fill(a, 0.0)    | TL1004 | one index, 2 names take it | T.grid(m, n)
for i, j in T.Pipelined(2, 4): T.fill(a, 0.0) | TL1004 | one index, 2 names | T.grid(m, n)
for i, j in range(4): T.fill(a, 0.0)       | TL1004 | one index, 2 names | T.grid(m, n)
for i in T.Parallel(4, 4): a[i, 0] = 1.0   | TL1011 | tuple (i, j) is not an index | unpack it
a[np.True_, 0] = 1.0                       | TL1011 | True is not an index | T.if_then_else
import copy; x = copy.copy(a)              | TL1004 | Python cannot copy it | T.copy(x, y)
import copy; x = copy.deepcopy([a[0:4, :]]) | TL1004 | Python cannot copy it | T.copy(x, y)
import fractions; a[0, 0] = fractions.Fraction(1, 2) | TL1004 | Fraction | float(x)
a[0, 0] = ValueError("no")                 | TL1004 | cannot take ValueError | a number of Python
x = T.ceildiv("a", 2)                      | TL1004 | T.ceildiv cannot take the string 'a' | a number
x = T.exp([1, 2])                          | TL1004 | T.exp cannot take list [1, 2] | one value
x = T.max(None, 2)                         | TL1004 | T.max cannot take None | give it a value
x = T.bitwise_and(2.5, 2)                  | TL1004 | T.bitwise_and of float 2.5 and int 2 | T.cast
x = T.ceil(float("nan"))                   | TL1004 | T.ceil of float nan | a finite number
x = T.trunc(a)                             | TL1004 | a scalar was expected, not 'a' | one element of it
x = T.pow(a, 2)                            | TL1004 | T.pow works on elements | T.Parallel
x = T.floordiv(a, 2)                       | TL1004 | T.floordiv works on elements | T.Parallel
with T.Then(5): pass                       | TL1004 | T.Then takes 0 arguments by place | T.Then()
x = T.comm_reducer(5)                      | TL1002 | a reduction of threads by 5 | T.max(x, y)
T.use_swizzle("x")                         | TL1004 | panel_size=the string 'x' | a Python number
with T.Scope: pass                         | TL1004 | `with T.Scope` without its parentheses | T.Scope(...)
with T.serial(4): pass                     | TL1004 | `with` over a loop | for i in
with T.Kernel(2) as by: pass               | TL1006 | T.Kernel inside T.Kernel | one behind the other
"""


def rows(text):
    for row in text.strip().splitlines():
        *statement, code, said, fix = (part.strip() for part in row.split(" | "))
        yield pytest.param(" | ".join(statement), code, said, fix, id=row.split(" |")[0].strip())


@pytest.mark.parametrize("statement, code, text, fix", rows(KERNEL))
def test_statement(statement, code, text, fix, monkeypatch):
    monkeypatch.setattr("tilelang.frontend.builder.MOST", 300)
    program = BEGIN + HEAD + f"        {statement}\n"
    name = f"{abs(hash(statement))}.py"
    check(run(program, name), name, program.count("\n"), code, text, fix)


SCRIPT = [
    ("", "@tilelang.jit(outidx=[-1])\ndef g(M): pass", "TL1030", "no option 'outidx'", "did you mean 'out_idx'?"),
    ("", "tilelang.jit([-1])", "TL1030", "takes a function, not list", "by name"),
    ("", "tilelang.compile()", "TL1030", "without its argument 'func'", "tilelang.compile(func"),
    (COPY, "tilelang.compile(f, [1], 'ascend')", "TL1030", "takes 2 arguments by place", "tilelang.compile(func"),
    (COPY, "tilelang.compile(f, outidx=[1])", "TL1030", "no option 'outidx'", "did you mean 'out_idx'?"),
    (COPY, "tilelang.compile(f, out_idx=[3])", "TL1030", "3 is no number of one of the 3", "out_idx=[-1]"),
    (COPY, "tilelang.compile(f, out_idx=True)", "TL1030", "True is no number", "out_idx=[-1]"),
    (COPY, "tilelang.compile(f, out_idx=['B'])", "TL1030", "'B' is no number", "out_idx=[1] is 'B'"),
    (COPY, "tilelang.compile(f, out_idx=[2])", "TL1030", "'n', is a scalar", "out_idx=[1]"),
    (COPY, "tilelang.compile(f, out_idx=[1, 1])", "TL1030", "twice", "out_idx=[1]"),
    (COPY, "tilelang.compile(f, threads='two')", "TL1030", "threads='two'", "threads=0"),
    (COPY, "tilelang.compile(f, checks='no')", "TL1030", "checks='no'", "checks=False"),
    (COPY, "f(np.ones((16, 64), np.float32))", "TL1030", "missing: B, n", "f(A, B, n)"),
    (COPY, "f(np.ones((8, 64), np.float32), np.ones((16, 64), np.float32), 3)", "TL1030", "(8, 64), wanted (16, 64)",
     "T.symbolic"),
    (COPY, "f([1, 2], np.ones((16, 64), np.float32), 3)", "TL1030", "is list", "numpy.array"),
    (COPY, "f(3.0, np.ones((16, 64), np.float32), 3)", "TL1030", "is float 3.0", "T.int32"),
    (COPY, "f(np.ones((16, 64), np.float32), np.ones((16, 64), np.float32), 2.5)", "TL1030", "float 2.5", "int(x)"),
    ("@tilelang.jit\ndef g(M, N): pass\n", "g(16)", "TL1030", "g is called without its argument 'N'", "g(M, N)"),
    ("@tilelang.jit\ndef g(M, N): pass\n", "g(M=16, n=4)", "TL1030", "no argument 'n'", "did you mean 'N'?"),
    ("@tilelang.jit\ndef g(M): pass\n", "g(16)", "TL1030", "returns None", "`return` it"),
    (COPY + "k = tilelang.compile(f, out_idx=[1])\n", "k.reproduce()", "TL1030", "'path'", "kernel.reproduce("),
    (COPY + "k = tilelang.compile(f, out_idx=[1])\n", "k.reproduce('/no/where', np.ones((16, 64), np.float32), 1)",
     "TL1030", "No such file or directory: '/no/where'", "a path"),
    (COPY + "k = tilelang.compile(f, out_idx=[1])\n", "k.profile(3)", "TL1030", "'A' is int 3", "its shape"),
    (COPY + "k = tilelang.compile(f, out_idx=[1])\n", "k.ir(befor='x')", "TL1030", "no argument 'befor'", "kernel.ir("),
    ("", "tilelang.complie(3)", "TL1001", "tilelang has no 'complie'", "tilelang.compile?"),
    ("", "@T.prim_func\ndef f(A: T.Tensor((4,), 'int8')):\n    with T.Kernel: pass", "TL1004",
     "`with T.Kernel` without", "with T.Kernel(...)"),
    ("", "@T.prim_func\ndef f(A: T.Tensor((4,), 'int8')):\n    with T.Kernel((2, 2)) as (x, y): pass", "TL1004",
     "a number for each dimension", "without the inner"),
    ("", "@T.prim_func\ndef f(A: T.Tensor((4,), 'int8')):\n    with T.Kernel(2, threads=0): pass", "TL1004",
     "threads=0", "from 1 on"),
    ("", "@T.prim_func\ndef f(A: T.Tensor((4,), 'int8')):\n    with T.Kernel(2, is_npu='no'): pass", "TL1004",
     "'is_npu' is the string 'no'", "is_npu=False"),
    (TUNED, "tuned(None)()", "TL1030", "configs is None", "configs=["),
    (TUNED, "tuned({'bm': [16, 32]})()", "TL1030", "configs is dict", "configs=["),
    (TUNED, "tuned([1, 2])()", "TL1030", "int 1 is no configuration", "{argument: value}"),
    (TUNED, "tilelang.autotune(configs=[], ref_prog=5)", "TL1030", "ref_prog is int 5", "ref_prog=lambda"),
    ("", "tilelang.autotune(config=[])", "TL1030", "no argument 'config'", "did you mean 'configs'?"),
    (EAGER.format("C"), "f(np.ones(4, np.float32))", "TL1030", "'A' has 1 dimension", "2 dimensions"),
    (EAGER.format("C"), "f(None)", "TL1030", "argument 'A' is None", "numpy array"),
    (EAGER.format("C"), "f(np.ones((4, 4), np.float32), 3, 4)", "TL1030", "takes 1 argument", "f(A)"),
    (EAGER.format("C").replace("jit", "jit(out_idx=[0])"), "f(np.ones((4, 4), np.float32))", "TL1030", "out_idx of 'f'",
     "T.empty"),
    ("@T.macro\ndef plus(x, v): pass\n\n" + HEAD, "        plus(a)\n", "TL1004", "plus is called", "plus(x, v)"),
    ("", "@T.prim_func\ndef f(self, A: T.Tensor((4,), 'int8')): pass", "TL1010", "no annotation", "is no method"),
    ("", "def f(*A: T.Tensor((4,), 'int8')): pass\nT.prim_func(f)", "TL1010", "*args", "def f(A"),
    ("", "async def f(A: T.Tensor((4,), 'int8')): pass\nT.prim_func(f)", "TL1009", "`async def`", "plain functions"),
    ("", "def f(A: T.Tensor((4,), 'int8')): yield 1\nT.prim_func(f)", "TL1009", "`yield`", "plain functions"),
    ("", "A = T.Tensor(shape=(4,), dytpe='int8')", "TL1004", "T.Tensor has no argument 'dytpe'", "'dtype'?"),
    ("", "A = T.Tensor()", "TL1004", "T.Tensor is called without its argument 'shape'", "T.Tensor(shape"),
    ("", "@T.prim_func\ndef f(A: T.Tensor((4,), 'int8')):\n    with T.Kernel(2**20, 2**20) as (x, y): pass", "TL1004",
     "1099511627776 blocks", "larger tiles"),
]  # fmt: skip


@pytest.mark.parametrize("before, wrong, code, text, fix", SCRIPT, ids=lambda v: "-")
def test_script(before, wrong, code, text, fix):
    program = BEGIN + before + wrong
    name = f"{abs(hash(program))}.py"
    e = run(program, name)
    check(e, name, e.errors[0].line, code, text, fix)
    assert e.errors[0].line > (BEGIN + before).count("\n")


LEFT = """
kept = []

@T.prim_func
def other(A: T.Tensor((16, 64), "float32")):
    with T.Kernel(2) as bx:
        kept.extend([A, bx])

@T.prim_func
def f(A: T.Tensor((16, 64), "float32"), B: T.Tensor((16, 64), "float32")):
    with T.Kernel(2) as bx:
        a = T.alloc_shared((8, 64), "float32")
        T.copy(A[bx * 8, 0], a)
    with T.Kernel(2) as by:
        b = T.alloc_shared((8, 64), "float32")
        T.copy({})
        T.copy(b, B[by * 8, 0])
tilelang.compile(f)
"""


@pytest.mark.parametrize(
    "operands, text, fix",
    [
        ("a, B[by * 8, 0]", "'a' float32(8, 64) belongs to another kernel", "nothing but tensors"),
        ("A[bx * 8, 0], b", "'bx' belongs to another kernel", "an index lives"),
        ("kept[0][0:8, :], b", "'A' float32(16, 64) belongs to another kernel", "nothing but tensors"),
        ("A[kept[1] * 8, 0], b", "'bx' belongs to another kernel", "an index lives"),
    ],
)
def test_what_belongs_to_another_launch(operands, text, fix):
    program = BEGIN + LEFT.format(operands)
    check(run(program, "left.py"), "left.py", program[: program.index(operands)].count("\n") + 1, "TL1008", text, fix)


def test_a_result_that_is_not_returned():
    space = {}
    exec_in(EAGER.format("None"), "lost.py", space)
    with pytest.warns(tilelang.TileLangWarning, match="TL1020: 'C' is made with T.empty and not returned"):
        space["f"](space["np"].ones((16, 64), "float32"))


def test_names_of_other_scripts():
    program = (
        BEGIN + HEAD.replace("b =", "плитка =") + "        T.copy(плитка, B)\ntilelang.compile(f, out_idx=[1])(B, 1)"
    )
    program = program.replace("tilelang.compile", "B = np.ones((16, 64), np.float32)\ntilelang.compile")
    found = run(program, "names.py").errors[0]
    assert found.code == "TL0802" and "'плитка'" in found.text and "__" not in str(found)


def test_a_run_can_be_interrupted():
    space = {}
    body = (
        "        v = T.alloc_var('int32', init=0)\n        while v < n:\n"
        "            v = v * 1\n            T.copy(A, a)\n"
    )
    exec_in(HEAD + body + "        T.copy(a, B)\n", "endless.py", space)
    kernel, x = tilelang.compile(space["f"], out_idx=[1]), space["np"].ones((16, 64), "float32")

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            kernel(x, 4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (kernel(x, 0) == x).all()


EMPTY = """
N = T.symbolic("N")

@T.prim_func
def f(A: T.Tensor((N, 64), "float32"), B: T.Tensor(({rows}, 64), "float32")):
    with T.Kernel({grid}) as bx:
        a = T.alloc_shared((16, 64), "float32")
        T.copy(A[bx * 16, 0], a)
        T.copy(a, B[bx * 16, 0])

kernel = tilelang.compile(f, out_idx={out_idx})
A = np.ones((0, 64), np.float32)
"""


def test_no_blocks():
    """Nothing to write: nothing said. A result that would hold nothing: an error; the caller's tensor: a warning."""
    space = {}
    exec_in(EMPTY.format(rows="N", grid="T.ceildiv(N, 16)", out_idx="[1]"), "empty.py", space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert space["kernel"](space["A"]).shape == (0, 64)
    for grid, said in (("T.ceildiv(N, 16)", "has 0 blocks in this call"), ("0", "has 0 blocks in this call")):
        program = BEGIN + EMPTY.format(rows=16, grid=grid, out_idx="[1]") + "kernel(A)"
        check(run(program, "none.py"), "none.py", program.count("\n") + 1, "TL1030", said, "at least one block")
    program = BEGIN + EMPTY.format(rows=16, grid="N - 4", out_idx="[1]") + "kernel(A)"
    check(run(program, "less.py"), "less.py", program.count("\n") + 1, "TL1030", "has -4 blocks: N is 0", "from 0 to")
    exec_in(EMPTY.format(rows=16, grid="N", out_idx="[]"), "given.py", space)
    with pytest.warns(tilelang.TileLangWarning, match="TL1027: f: argument 'B': .* 0 blocks"):
        space["kernel"](space["A"], space["np"].ones((16, 64), "float32"))


def exec_in(text, name, space):
    text = BEGIN + text
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), space)


def test_one_finding_of_a_value_that_stands_twice():
    body = "        for i, j in T.Parallel(32, 64):\n            a[i, j] = a[i, j] + a[i, j]\n"
    e = run(BEGIN + HEAD + body + "tilelang.compile(f)", "twice.py")
    assert [d.code for d in e.errors] == ["TL0233"], str(e)


def test_a_macro_may_call_itself():
    space = {}
    macro = """
    @T.macro
    def double(x, k):
        if k > 0:
            T.tile.add(x, x, x)
            double(x, k - 1)
    """
    body = "        double(a, 3)\n        T.copy(a, B)\n"
    exec_in(textwrap.dedent(macro) + HEAD + body, "macro.py", space)
    x = space["np"].ones((16, 64), "float32")
    assert (tilelang.compile(space["f"], out_idx=[1])(x, 0) == 8).all()


def test_every_message_says_what_to_change():
    """Each call of fail, Builder.error and ArgumentError in the package has a fix."""
    without = []
    for path in sorted((ROOT / "tilelang").rglob("*.py")):
        text = path.read_text()
        for n in ast.walk(ast.parse(text)) if "fail(" in text or "ArgumentError(" in text else ():
            if not isinstance(n, ast.Call):
                continue
            name, fix = getattr(n.func, "id", getattr(n.func, "attr", "")), "fix" in {k.arg for k in n.keywords}
            few = len(n.args) < (2 if name == "ArgumentError" else 3)
            if name in ("fail", "ArgumentError") or name == "error" and len(n.args) > 1:
                without += [f"{path.name}:{n.lineno}"] * (few and not fix)
    assert not without


def test_bounds_of_loops_by_name():
    space = {}
    body = """        for k in T.serial(2, stop=8, step=3): a[k, 0] = -1.0
        for k in T.unroll(4, step=2): a[k, 1] = -1.0
        for k in T.serial(start=14, stop=16): a[k, 2] = -1.0
        T.copy(a, B)
"""
    exec_in(HEAD + body, "bounds.py", space)
    np = space["np"]
    got = tilelang.compile(space["f"], out_idx=[1])(np.ones((16, 64), np.float32), 0)
    assert [np.flatnonzero(got[:, c] < 0).tolist() for c in range(3)] == [[2, 5], [0, 2], [14, 15]]


@pytest.mark.parametrize("body, name", [
    ("l = []\nfor k in T.serial(8): l.append(k)", "list 'l'"),
    ("c = [0]\nfor k in range(8): c[0] += 1", "list 'c'"),
    ("d = {}\nif n > 2: d['x'] = a", "dict 'd'"),
    ("s = {1}\nfor k in T.Parallel(8): s.add(2)", "set 's'"),
])  # fmt: skip
def test_lists_of_python_in_blocks_of_the_chip(body, name):
    space = {}
    with pytest.warns(tilelang.TileLangWarning, match=f"TL1023: the {name} is one of Python"):
        exec_in(HEAD + textwrap.indent(body, " " * 8) + "\n        T.copy(a, B)\n", f"{name}.py", space)


def test_lists_of_python_that_hold_what_they_should():
    body = """        c, seen = [a, b], []
        for k in T.serial(8):
            d = [c[0], c[1]]
            d.append(a)
        for k in T.unroll(4):
            seen.append(k)
        if len(seen) == 4:
            c[0] = b
        T.copy(a, B)
"""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec_in(HEAD + body, "lists.py", {})


def test_a_counter_of_python_in_a_loop_of_the_chip():
    """What should change the condition is named, not that nothing does."""
    body = "        i = 0\n        while n > i:\n            i += 1\n"
    check(run(BEGIN + HEAD + body, "counter.py"), "counter.py", 14, "TL1007", "'i' changes", "i = T.alloc_var(")


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint32"])
def test_atomic_additions_by_dtype(dtype):
    for what in ("T.atomic_add(B, a)", "for i in T.Parallel(16): T.atomic_add(B[i], 1)"):
        program = BEGIN + (
            f"@T.prim_func\ndef f(B: T.Tensor((16,), '{dtype}')):\n    with T.Kernel(4) as bx:\n"
            f"        a = T.alloc_ub((16,), '{dtype}')\n        T.fill(a, 2)\n        {what}\ntilelang.compile(f)\n"
        )
        check(run(program, "atomic.py"), "atomic.py", 10, "TL0241", f"'B' of dtype {dtype}", "keep the sums in")


def test_a_form_feed_before_a_kernel(tmp_path):
    path = tmp_path / "pages.py"
    path.write_text(BEGIN + HEAD.replace("@T.prim_func", "\f@T.prim_func") + "        T.copy(a, B)\n")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    x = space["np"].ones((16, 64), "float32")
    assert (tilelang.compile(space["f"], out_idx=[1])(x, 0) == x).all()


@pytest.mark.parametrize("statement, code", [
    ("T.copy(A, a, coalesced_width=4)", "TL1020"),
    ("l = []\n        for k in T.serial(4): l.append(k)", "TL1023"),
    ("v = T.alloc_var('float16', 1e9)", "TL1026"),
])  # fmt: skip
def test_warnings_that_the_user_makes_errors(statement, code):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tilelang.TileLangWarning, match=f"^{code}"):
            exec_in(HEAD + f"        {statement}\n", f"{code}.py", {})
