"""python -m tilelang reduce FILE.tl: a smaller program that fails in the same way.

Statements are taken out in chunks that become smaller, loops and ifs are replaced by what stands in them, constants
are made smaller; what still fails in the same way is kept, until nothing more can go. "In the same way" is the first
code that `tlc` reports for the text - of the passes, of a run with random arguments (`--sim`), of a recorded call
(`--replay`) - or a crash; or, with `--interpret`, that the simulated chip and the interpreter give other numbers; or
`--test CMD`: a shell command that succeeds on a file ({}) that still fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^\s*(for|if|while|parallel|cube|vector)\b.*\{\s*$")


class Tree:
    """A text as nested statements: (line, body, tail) with body None for a plain line; tail closes a block."""

    def __init__(self, text):
        lines = [x for x in text.split("\n") if x.strip()]
        first = next(i for i, x in enumerate(lines) if x.lstrip().startswith("kernel "))
        if not lines[first].rstrip().endswith("{") or lines[-1].strip()[:1] != "}":
            raise ValueError("statements and braces do not stand on lines of their own, as `tlc fmt` puts them")
        self.head, self.end = lines[: first + 1], lines[-1]
        self.body, rest = self.read(lines[first + 1 : -1])
        if rest:
            raise ValueError("braces do not match")

    def read(self, lines):
        out = []
        while lines:
            line, lines = lines[0], lines[1:]
            if line.lstrip().startswith("}"):
                return out, [line, *lines]
            if BLOCK.match(line):
                body, tail, lines = self.block(lines)
                if "else" in tail:
                    other, end, lines = self.block(lines)
                    out.append((line, body, (tail, other, end)))
                else:
                    out.append((line, body, tail))
            else:
                out.append((line, None, None))
        return out, []

    def block(self, lines):
        """What stands up to a closing brace, the line of the brace, the lines behind it."""
        body, lines = self.read(lines)
        if not lines:
            raise ValueError("braces do not match")
        return body, lines[0], lines[1:]

    @staticmethod
    def lines(body):
        for line, inner, tail in body:
            yield line
            if inner is None:
                continue
            yield from Tree.lines(inner)
            if isinstance(tail, tuple):
                yield tail[0]
                yield from Tree.lines(tail[1])
                yield tail[2]
            else:
                yield tail

    def text(self, body=None):
        return "\n".join([*self.head, *self.lines(self.body if body is None else body), self.end, ""])


def _paths(body, at=()):
    """Where statements stand, outer ones first."""
    for n, (_, inner, tail) in enumerate(body):
        yield (*at, n)
        if inner is not None:
            yield from _paths(inner, (*at, n, 0))
        if isinstance(tail, tuple):
            yield from _paths(tail[1], (*at, n, 1))


def _edit(body, path, new):
    """The body with the statements `new` in place of the one at a path."""
    n, rest = path[0], path[1:]
    if not rest:
        return [*body[:n], *new, *body[n + 1 :]]
    line, inner, tail = body[n]
    if rest[0] == 0:
        inner = _edit(inner, rest[1:], new)
    else:
        tail = (tail[0], _edit(tail[1], rest[1:], new), tail[2])
    return [*body[:n], (line, inner, tail), *body[n + 1 :]]


def _at(body, path):
    s = body[path[0]]
    for k in range(1, len(path), 2):
        s = (s[1] if path[k] == 0 else s[2][1])[path[k + 1]]
    return s


def _without(body, paths):
    for path in sorted(paths, reverse=True):
        body = _edit(body, path, [])
    return body


def reduce(text, fails, log=lambda text: None):
    """The smallest text found for which `fails(text)` is true; `text` itself must fail."""
    tree = Tree(text)

    def keep(body):
        nonlocal tree
        if fails(tree.text(body)):
            tree.body = body
            log(tree.text())
            return True
        return False

    while True:
        before = tree.text()
        _drop_chunks(tree, keep)
        _open_blocks(tree, keep)
        text = _smaller_numbers(tree.text(), fails)
        text = _fewer_parameters(text, fails)
        tree = Tree(text)
        if tree.text() == before:
            return before


def _drop_chunks(tree, keep):
    size = max(len(list(_paths(tree.body))) // 2, 1)
    while size:
        at = 0
        while True:
            paths = [p for p in _paths(tree.body) if len(p) < 30]
            if at >= len(paths):
                break
            chunk = paths[at : at + size]
            outer = [p for p in chunk if not any(p != q and p[: len(q)] == q for q in chunk)]
            if not keep(_without(tree.body, outer)):
                at += size
        size //= 2


def _open_blocks(tree, keep):
    at = 0
    while True:
        paths = [p for p in _paths(tree.body) if _at(tree.body, p)[1] is not None]
        if at >= len(paths):
            return
        line, inner, tail = _at(tree.body, paths[at])
        choices = [inner] + ([tail[1]] if isinstance(tail, tuple) else [])
        if not any(keep(_edit(tree.body, paths[at], c)) for c in choices):
            at += 1


def _smaller_numbers(text, fails):
    """Constants above 1, from the largest on: 1, halves, everywhere at once."""
    for n in sorted({int(x) for x in re.findall(r"(?<![\w.%#@:])\d+(?![\w.:])", text) if int(x) > 1}, reverse=True):
        for smaller in (1, 16, n // 2):
            if not 0 < smaller < n:
                continue
            tried = re.sub(rf"(?<![\w.%#@:]){n}(?![\w.:])", str(smaller), text)
            if tried != text and fails(tried):
                text = tried
                break
    return text


def _fewer_parameters(text, fails):
    m = re.search(r"kernel @\S+?\((.*)\) grid", text)
    for p in re.findall(r"%\w+: (?:gm )?\w+(?:\[[^]]*\])?(?: out| workspace)?", m.group(1)) if m else []:
        if len(re.findall(re.escape(p.split(":")[0]) + r"\b", text)) > 1:
            continue
        for tried in (text.replace(p + ", ", "", 1), text.replace(", " + p, "", 1)):
            if tried != text and fails(tried):
                text = tried
                break
    return text


# ---- what "fails in the same way" means -----------------------------------------------------------------------------


def outcome(command, text, timeout):
    """The first error code of a command on a text, "crash N" for a signal, "hang", or None."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.tl")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        try:
            done = subprocess.run([*command, path], capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return "hang"
    if done.returncode < 0:
        return f"crash {-done.returncode}"
    found = re.search(rb"error (TL\d{4})", done.stderr)
    return found.group(1).decode() if found else None  # replay: status 0 says that the error is the recorded one


def differs(text):
    """Do the simulated chip and the interpreter give other numbers for small random arguments?"""
    import numpy as np

    from ..errors import CompileError
    from ..frontend.expr import Buffer, evaluate
    from . import core
    from .arith import np_dtype
    from .interpret import interpret
    from .load import program

    try:
        p = core.lowered(text)
        params = program(p.text()).params
        rng, sizes, args = np.random.default_rng(1), {}, []
        for q in params:
            if isinstance(q, Buffer):
                shape = tuple(int(evaluate(s, sizes)) for s in q.shape)
                low = 0 if q.dtype[0] == "u" or q.mark else -4
                args.append(rng.integers(low, 1 if q.mark else 5, shape).astype(np_dtype(q.dtype)))
            else:
                args.append(1.5 if q.dtype.is_float else 33)
                sizes[q.name] = args[-1]
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        if core.simulate(p, args, checks=True):
            return False
        interpret(text, mine[: len(program(text).params)])
    except (CompileError, KeyError, ValueError):
        return False
    near = [
        np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-2, 1e-2, equal_nan=True)
        for a, b, q in zip(args, mine, params)
        if isinstance(a, np.ndarray) and q.mark == "out"
    ]
    return not all(near)


def main(argv):
    parser = argparse.ArgumentParser(prog="python -m tilelang reduce", description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("-o", "--out", help="where the result goes; the standard output")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--sim", action="store_true", help="run it on the simulated chip")
    how.add_argument("--replay", action="store_true", help="the file is of kernel.reproduce()")
    how.add_argument("--interpret", action="store_true", help="the interpreter and the simulated chip disagree")
    how.add_argument("--test", metavar="CMD", help="a shell command; {} is the file; success: it still fails")
    parser.add_argument("--tlc", help="the tlc to ask; else $TLC, that of this Python, or that of the PATH")
    parser.add_argument("--timeout", type=float, default=20, help="seconds for one try")
    o = parser.parse_args(argv)
    try:
        with open(o.file, encoding="utf-8") as f:
            text = f.read()
    except (OSError, UnicodeDecodeError) as e:
        sys.stderr.write(f"{o.file} cannot be read: {getattr(e, 'strerror', None) or e}\n")
        return 2
    beside = os.path.join(os.path.dirname(sys.executable), "tlc")
    tlc = next((t for t in (o.tlc, os.environ.get("TLC"), beside, "tlc") if t and shutil.which(t)), None)
    if tlc is None and not (o.interpret or o.test):
        sys.stderr.write("there is no tlc on the PATH; --tlc says where it is\n")
        return 2
    if not any(line.lstrip().startswith("kernel ") for line in text.split("\n")):
        sys.stderr.write(f"{o.file} is no IR text: no line of it begins with `kernel`\n")
        return 2
    if o.interpret:
        fails = differs
    elif o.test:
        fails = _command(o.test, o.timeout)
    else:
        verb = ["sim"] if o.sim else ["replay"] if o.replay else ["opt"]
        want = outcome([tlc, *verb], text, o.timeout)
        if want is None:
            other = "see --sim, --replay, --interpret, --test"
            sys.stderr.write(f"{o.file} does not fail under `tlc {verb[0]}`; {other}\n")
            return 2

        def fails(tried):
            return outcome([tlc, *verb], tried, o.timeout) == want

    if not fails(text):
        sys.stderr.write(f"{o.file} does not fail\n")
        return 2
    try:
        small = reduce(text, fails)
    except ValueError as e:
        sys.stderr.write(f"{o.file} cannot be taken apart: {e}\n")
        return 2
    if o.out:
        try:
            with open(o.out, "w", encoding="utf-8") as f:
                f.write(small)
        except OSError as e:
            sys.stderr.write(f"{o.out} cannot be written: {e.strerror}\n")
            return 2
    else:
        sys.stdout.write(small)
    sys.stderr.write(f"{text.count(chr(10))} lines became {small.count(chr(10))}\n")
    return 0


def _command(command, timeout):
    def fails(text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "case.tl")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            try:
                done = subprocess.run(command.replace("{}", path), shell=True, capture_output=True, timeout=timeout)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0

    return fails
