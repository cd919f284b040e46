"""Mutates kernels written in the DSL and compiles them: fuzz_dsl.py [--seconds N] [--seed N]

The kernels are those of the tests and examples that compile by themselves (a function that a test makes for many sizes
does not), and the ones below.

Whatever a kernel's text is, `tilelang` answers with a kernel, with an error of its own (tilelang.errors), or with what
Python itself says about the user's lines. An exception that rises from a line of tilelang while a kernel is traced or
compiled and is none of its own errors is a find, and so is an internal fault (TL0002). Mutations are small: names of T
exchanged, numbers changed, statements doubled, dropped or exchanged, arguments dropped.
"""

import argparse
import ast
import contextlib
import copy
import io
import linecache
import pathlib
import random
import re
import signal
import sys
import time
import traceback
import warnings

import tilelang
import tilelang.language as T
from tilelang import errors

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HOME = pathlib.Path(tilelang.__file__).resolve().parent
NUMBERS = (0, 1, -1, 2, 3, 7, 16, 31, 64, 1000, 1 << 20, 1 << 40, 0.5, float("nan"))
WORDS = ("float16", "float32", "int8", "uint64", "bfloat16", "nonsense")

SEED = '''
import tilelang
import tilelang.language as T

@T.prim_func
def gemm(A: T.Tensor((100, 64), "float16"), B: T.Tensor((64, 96), "float16"), C: T.Tensor((100, 96), "float32")):
    with T.Kernel(T.ceildiv(96, 32), T.ceildiv(100, 32)) as (bx, by):
        a = T.alloc_shared((32, 32), "float16")
        b = T.alloc_shared((32, 32), "float16")
        c = T.alloc_fragment((32, 32), "float32")
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[by * 32, k * 32], a)
            T.copy(B[k * 32, bx * 32], b)
            T.gemm(a, b, c)
        for i, j in T.Parallel(32, 32):
            c[i, j] = T.max(c[i, j] * 2.0, 0.0)
        T.copy(c, C[by * 32, bx * 32])

@T.prim_func
def rows(X: T.Tensor((40, 70), "float32"), Y: T.Tensor((40, 70), "float32"), n: T.int32):
    with T.Kernel(5) as bx:
        x = T.alloc_ub((8, 70), "float32")
        m = T.alloc_ub((8,), "float32")
        T.copy(X[bx * 8, 0], x)
        T.reduce_max(x, m, dim=1)
        for i, j in T.Parallel(8, 70):
            if j < n:
                x[i, j] = T.exp(x[i, j] - m[i])
        for r in T.serial(8):
            T.tile.add(x[r, 0:64], x[r, 0:64], 1.0)
            if r > 3:
                x[r, 0] = T.cast(r, "float32")
        T.copy(x, Y[bx * 8, 0])
'''


class Mutator(ast.NodeTransformer):
    """Changes about one node in `rare`."""

    def __init__(self, rng, rare):
        self.rng, self.rare = rng, rare
        self.names = [n for n in dir(T) if not n.startswith("_")]

    def now(self):
        return self.rng.randrange(self.rare) == 0

    def visit_Constant(self, node):
        if self.now() and isinstance(node.value, (int, float)):
            return ast.Constant(self.rng.choice(NUMBERS))
        if self.now() and isinstance(node.value, str):
            return ast.Constant(self.rng.choice(WORDS))
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if self.now() and isinstance(node.value, ast.Name) and node.value.id == "T":
            node.attr = self.rng.choice(self.names)
        return node

    def visit_Name(self, node):
        if self.now() and isinstance(node.ctx, ast.Load) and node.id not in ("T", "tilelang"):
            node.id = self.rng.choice(("a", "b", "c", "x", "m", "bx", "A", "X", "k", "unknown"))
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if self.now() and node.args:
            node.args.pop(self.rng.randrange(len(node.args)))
        if self.now() and node.args:
            node.args.append(copy.deepcopy(self.rng.choice(node.args)))
        if self.now() and node.keywords:
            node.keywords.pop()
        return node

    def body(self, body):
        body = list(body)
        at = self.rng.randrange(len(body))
        if self.now():
            body.insert(at, copy.deepcopy(body[self.rng.randrange(len(body))]))
        elif self.now():
            body[at] = ast.Pass()
        elif self.now():
            other = self.rng.randrange(len(body))
            body[at], body[other] = body[other], body[at]
        return body

    def generic_visit(self, node):
        super().generic_visit(node)
        if isinstance(node, (ast.With, ast.For, ast.If)) and node.body:
            node.body = self.body(node.body)
        return node


def mutant(tree, rng):
    tree = copy.deepcopy(tree)
    changed = Mutator(rng, rng.choice((8, 20, 60))).visit(tree)
    return ast.unparse(ast.fix_missing_locations(changed))


def late(signum, frame):
    raise TimeoutError("a mutant takes more than 20 seconds")


def run(source, name):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"__name__": "mutant"}
    signal.alarm(20)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, name, "exec"), space)
            for value in list(space.values()):
                if hasattr(value, "traced") or type(value).__name__ == "PrimFunc":
                    tilelang.compile(value)
    finally:
        signal.alarm(0)
        linecache.cache.pop(name, None)


def try_one(source, name):
    """None, or what is wrong with how the text was answered."""
    try:
        run(source, name)
    except errors.TileLangError as e:
        return str(e) if "TL0002" in str(e) else None
    except TimeoutError as e:
        return str(e)
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        traced = any(f.name == "traced" for f in traceback.extract_tb(e.__traceback__))
        if traced and HOME in pathlib.Path(last.filename).resolve().parents:
            return f"{type(e).__name__}: {e}\n{''.join(traceback.format_tb(e.__traceback__)[-3:])}"
    return None


def kernels():
    """Syntax trees of modules with one kernel each."""
    head = "import tilelang\nimport tilelang.language as T\n\n"
    for file in sorted([*ROOT.glob("test/**/*.py"), *ROOT.glob("examples/*.py")]):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef) or "T.prim_func" not in map(ast.unparse, node.decorator_list):
                continue
            source = head + ast.unparse(node)
            try:
                run(source, "kernel.py")
            except Exception:  # it is wrong on purpose, or wants names of its surroundings
                continue
            yield ast.parse(source)


def kind_of(wrong):
    """The first line, without names, numbers and the place."""
    return re.sub(r"'[^']*'|\d+", "", re.sub(r"^\S+\.py:\d+:\d+: ", "", wrong.strip().splitlines()[0]))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    trees = [ast.parse(SEED), *kernels()]
    end, n, finds = time.monotonic() + options.seconds, 0, set()
    while time.monotonic() < end:
        n += 1
        rng = random.Random(options.seed * 1_000_003 + n)
        source = mutant(rng.choice(trees), rng)
        wrong = try_one(source, f"mutant{n}.py")
        if wrong and kind_of(wrong) not in finds:
            finds.add(kind_of(wrong))
            print(f"== mutant {n} of seed {options.seed}: {wrong}\n{source}\n", flush=True)
    print(f"{n} mutants of {len(trees)} modules in {options.seconds:.0f} s, {len(finds)} finds")
    sys.exit(bool(finds))


if __name__ == "__main__":
    main()
