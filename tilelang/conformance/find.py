"""What there is to run below a folder: scripts, and files of pytest cases."""

import ast
import dataclasses
import fnmatch
import pathlib

NEVER = {"__init__.py", "setup.py", "conftest.py"}


@dataclasses.dataclass(frozen=True)
class Program:
    """One file. kind: "script", "pytest", or "part" (definitions only: other files import it)."""

    path: str
    kind: str


def _is_guard(node):
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _acts(node):
    """Does a statement of a module do something besides defining names?"""
    if isinstance(node, (ast.For, ast.While, ast.With)) or _is_guard(node):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and not ast.unparse(node.value.func).endswith(
            ("clear_cache", "disable_cache", "enable_cache", "insert", "append", "manual_seed", "set_default_device")
        )
    if isinstance(node, (ast.If, ast.Try)):
        return any(_acts(n) for n in [*node.body, *node.orelse])
    return isinstance(node, ast.Assert)


def _cases(tree):
    names = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    classes = [n.name for n in tree.body if isinstance(n, ast.ClassDef)]
    return any(n.startswith("test_") for n in names) or any(n.startswith("Test") for n in classes)


def kind_of(path):
    """ "script", "pytest" or "part"."""
    try:
        tree = ast.parse(pathlib.Path(path).read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return "script"
    name = pathlib.Path(path).name
    uses_pytest = any(
        any(a.name == "pytest" for a in n.names) if isinstance(n, ast.Import) else n.module == "pytest"
        for n in ast.walk(tree)
        if isinstance(n, (ast.Import, ast.ImportFrom))
    )
    named = name.startswith("test_") or name.endswith("_test.py")
    guarded = any(_is_guard(n) for n in tree.body)
    if _cases(tree) and named and (uses_pytest or not guarded or name.startswith("test_")):
        return "pytest"
    return "script" if any(_acts(n) for n in tree.body) else "part"


def programs(folder, only=(), without=()):
    """Every Program below a folder (or the one file), sorted; `only` and `without` are patterns on the path in it."""
    folder = pathlib.Path(folder)
    if folder.is_file():
        return [Program(str(folder), kind_of(folder))]
    out = []
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).as_posix()
        if path.name in NEVER or any(part.startswith(".") for part in path.parts):
            continue
        if only and not any(fnmatch.fnmatch(inside, p) for p in only):
            continue
        if any(fnmatch.fnmatch(inside, p) for p in without):
            continue
        out.append(Program(inside, kind_of(path)))
    return out
