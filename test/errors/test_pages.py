"""The pages of docs/errors: every code has one, its wrong program gives exactly that code, its right one passes.

A page is Markdown: the title of the code, what it means, then two programs under "## Wrong" and "## Right". The word
after the fence says what runs them: `python`, or `tl` with a command of tlc. Python programs begin with the three
imports of `PRELUDE`. A code that no program causes says so and has no programs.
"""

import linecache
import pathlib
import re
import shlex
import warnings

import pytest

import tilelang
import tilelang.__main__
from tilelang.explain import page as explain

pytest.importorskip("tilelang._core")

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs/errors").glob("TL*.md"))
PRELUDE = "import numpy as np\nimport tilelang\nimport tilelang.language as T\n"
NONE = "TL" + "9999"  # no code of diag.def
INTERNAL = "cannot be caused from outside"
ROW = re.compile(r'^DIAG\(\w+, (\d+), (\w+), "((?:\\.|[^"])*)"\)', re.M)
CODES = {f"TL{int(n):04d}": (s, t) for n, s, t in ROW.findall((ROOT / "src/base/diag.def").read_text()) if int(n)}


def programs(path):
    """{"Wrong": (how to run it, text), "Right": ...}"""
    found = re.findall(r"^## (\w+)\n\n```(.*)\n((?:.*\n)*?)```", path.read_text(), re.M)
    return {heading: (how, text) for heading, how, text in found}


def run_python(text, name, tmp_path, monkeypatch):
    """(codes of errors, codes of warnings, codes of notes) of a program."""
    if "import torch" in text:
        pytest.importorskip("torch")
    text = PRELUDE + text
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "page", "__file__": name}
    errors = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(text, name, "exec"), space)
        except tilelang.TileLangError as e:
            found = e.diagnostics
            errors = {d.code for d in e.errors}
            assert found[0].file == name and found[0].line > PRELUDE.count("\n"), str(e)
    kernels = [v for v in space.values() if isinstance(v, tilelang.Kernel)]
    warned = {w.message.diagnostic.code for w in caught if isinstance(w.message, tilelang.TileLangWarning)}
    return errors, warned, {d.code for k in kernels for d in k.diagnostics if d.severity == "note"}


def run_tl(tlc, words, text, tmp_path):
    file = tmp_path / "page.tl"
    file.write_text(text)
    command, *options = shlex.split(words)
    _, _, diagnostics = tlc(command, *options, file.name, cwd=tmp_path)
    found = re.findall(r"^\S+ (error|warning|note) (TL\d+): ", diagnostics, re.M)
    return tuple({code for s, code in found if s == kind} for kind in ("error", "warning", "note"))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_page(path, tlc, tmp_path, monkeypatch):
    code = path.stem
    severity, title = CODES[code]
    assert path.read_text().startswith(f"# {code}: {title}\n\n")
    found = programs(path)
    if not found:
        assert INTERNAL in " ".join(path.read_text().split())
        return
    assert list(found) == ["Wrong", "Right"]
    for which, (how, text) in found.items():
        kind, _, words = how.partition(" ")
        if kind == "python":
            errors, warned, notes = run_python(text, f"{code}-{which}.py", tmp_path, monkeypatch)
        else:
            assert kind == "tl"
            errors, warned, notes = run_tl(tlc, words, text, tmp_path)
        if which == "Right":
            assert not errors and not warned and code not in notes, (errors, warned)
        elif severity == "NOTE":
            assert code in notes and not errors and not warned, (errors, warned, notes)
        else:
            if code.startswith("TL08"):  # what the compiler foresees of a fault
                warned -= {w for w in warned if w.startswith("TL07")}
            assert (errors, warned) == (({code}, set()) if severity == "ERROR" else (set(), {code}))


# Rules that the front end checks first: page | T.Kernel | statement (@: next line) | what a Python program gets.
FIRST = """
0201 | T.Kernel(1, 1, 1, 1) | pass                                    | TL1004
0202 | T.Kernel(-1)   | pass                                          | TL1004
0203 | T.Kernel(N[0]) | pass                                          | TL1004
0206 | T.Kernel(4)    | T.alloc_ub((64, 0), "float32")                | TL1004
0207 | T.Kernel(4)    | T.alloc_ub((64, n), "float32")                | TL1004
0213 | T.Kernel(4)    | for i in T.serial(0, 4, 0): A[i, 0] = 0.0     | TL1004
0209 | T.Kernel(4)    | if bx == 0: b = T.alloc_ub((64, 64), "float32")@T.copy(A, b) | TL1008
0215 | T.Kernel(4)    | for j in T.Parallel(64):@    if A[0, j] > 0: break | TL1006
0217 | T.Kernel(4)    | for i in T.Parallel(64): T.fill(a, 0.0)       | TL1006
0234 | T.Kernel(4)    | T.fill(a[0:0, :], 0.0)                        | TL1011
0235 | T.Kernel(4)    | A[0, 0] = bx % 0                              | TL1004
0237 | T.Kernel(4)    | while True: A[0, 0] = 1.0                     | TL1006
0241 | T.Kernel(4)    | T.tile.exp(i, i)                              | TL0551
0245 | T.Kernel(4)    | T.copy(A, a[0:32, :])                          | TL0501
0246 | T.Kernel(4)    | T.tile.add(a, a, a[0:32, :])                  | TL1012
0247 | T.Kernel(4)    | T.gemm(a, a[0:32, :], a)                      | TL0502
0248 | T.Kernel(4)    | T.reduce_sum(a, a[:, 0:1], dim=2)             | TL1004
0249 | T.Kernel(4)    | T.reduce_sum(a, a[0, 0:32], dim=1)            | TL1012
0252 | T.Kernel(4)    | T.tile.compare(a, a, 0.0)                     | TL1004
0253 | T.Kernel(4)    | T.atomic_add(a, a)                            | TL1004
0271 | T.Kernel(4)    | T.set_cross_flag("FIX", 0, mode=3)            | TL1004
0274 | T.Kernel(4)    | T.view(a, (64, 65))                           | TL1004
0275 | T.Kernel(4)    | T.view(a, (64, 65))                           | TL1004
0278 | T.Kernel(4)    | T.tile.gather_mask(a, a, 9)                   | TL1004
0281 | T.Kernel(4)    | T.printf("%d %d", bx)                         | TL1004
"""


@pytest.mark.parametrize("row", FIRST.strip().split("\n"))
def test_first(row, tmp_path, monkeypatch):
    """The page says which code a Python program gets in place of this one, and it does."""
    code, grid, statement, first = (x.strip().replace("@", "\n        ") for x in row.split("|"))
    assert f"\n\nA Python program gets {first} for this.\n" in (ROOT / f"docs/errors/TL{code}.md").read_text()
    text = f"""@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32"), N: T.Tensor((8,), "int32"), n: T.int32):
    with {grid} as bx:
        a, i = T.alloc_ub((64, 64), "float32"), T.alloc_ub((64, 64), "int32")
        {statement}

tilelang.compile(kernel)
"""
    assert run_python(text, f"first-{code}.py", tmp_path, monkeypatch)[0] == {first}


def test_every_page_has_a_code():
    """The other way round the lint says what is missing."""
    assert {p.stem for p in PAGES} <= set(CODES)


def test_explain(tlc, capsys):
    text = (ROOT / "docs/errors/TL0206.md").read_text()
    assert tlc("explain", "TL0206") == (0, text, "") and explain("206") == explain("tl0206") == text
    status, out, err = tlc("explain", "TL0206", "tl0207")
    assert status == 0 and out.startswith(text) and "# TL0207" in out
    status, out, err = tlc("explain", NONE)
    assert status == 2 and out == "" and f"there is no code {NONE}" in err
    with pytest.raises(tilelang.ArgumentError, match=f"there is no code {NONE}"):
        explain(NONE)
    from tilelang.explain import main

    assert main(["TL0206"]) == 0 and capsys.readouterr().out == text
    assert main(["nonsense"]) == 2 and "there is no code" in capsys.readouterr().err


@pytest.mark.parametrize("words, status, says", [
    (["expalin"], 2, "there is no command 'expalin'; did you mean 'explain'?"),
    (["sim", "x.py"], 2, "there is no command 'sim': python -m tilelang.sim is one by itself"),
    ([], 2, "usage: python -m tilelang COMMAND"),
    (["--help"], 0, "usage: python -m tilelang COMMAND"),
    (["--version"], 0, f"tilelang {tilelang.__version__}"),
])  # fmt: skip
def test_commands(words, status, says, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tilelang", *words])
    assert tilelang.__main__.main() == status
    shown = capsys.readouterr()
    assert says in (shown.err if status else shown.out)
