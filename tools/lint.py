#!/usr/bin/env python3
"""Checks the laws of the house that a compiler does not: `python tools/lint.py` prints findings, exit status 1 if any.

What it looks at, one function each:

  includes     base < ir < arch < {pass | target | sim | cost} < api and base < rt < api; across folders only
               <folder>/<folder>.h and tables (.def); the Python module and tools see only tilelang.h
  sizes        lines a file, lines a function, columns a line; names of files
  calls        the library does not exit, abort or print, and has no variables outside of a context
  diagnostics  every code of diag.def is used and has a page in docs/errors, whose programs are tests; every rule of
               docs/ir.md has a test that breaks it
  python       the extension is imported in two modules, torch never at the top of a module, no path of one machine
  docs         generated pages are fresh, links between pages lead somewhere

A finding is an error unless it is printed as a warning; warnings do not change the exit status. Exceptions stand below,
in tables, with the reason."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE = 1200
MAX_FUNCTION = 80
MAX_COLUMNS = 120

ROOMS = ["base", "ir", "arch", "pass", "target", "sim", "cost", "rt"]
SEES = {
    "base": [],
    "ir": ["base"],
    "arch": ["base", "ir"],
    "pass": ["base", "ir", "arch"],
    "target": ["base", "ir", "arch"],
    "sim": ["base", "ir", "arch"],
    "cost": ["base", "ir", "arch"],
    "rt": ["base"],
    "api": ROOMS,
    "python": [],
    "tools": [],
}

# (file name, function): why it may be longer than MAX_FUNCTION
LONG_FUNCTIONS = {}

# (file name, call): why the library may do that there
ALLOWED_CALLS = {
    ("arena.c", "abort"): "no `oom` buffer: nobody is there to be told",
}

BANNED_NAMES = re.compile(r"^(util|common|helper|misc|manager)", re.I)
CALLS = re.compile(r"(?<![\w.>])(_?exit|quick_exit|abort|assert|v?f?printf|f?puts|putchar|perror)\s*\(")
# The modules of tilelang/ that talk to the C core: programs, DLPack capsules, the machine and its devices.
EXTENSION_USERS = ("kernel.py", "tensors.py", "device.py", "core.py", "explain.py")
# Tables that the Python API wants to be able to write.
PYTHON_TABLES = re.compile(r"\s*static (?:struct )?(?:Py(?:Type|Method|Module|Member|GetSet)\w*|char \*names\[\])")
# Where people keep their home directories; spelled in parts so that this line is not a finding.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/[\w.]+")


class Findings:
    def __init__(self):
        self.errors = []
        self.warnings = []

    def error(self, path, line, text):
        self.errors.append(f"{rel(path)}:{line}: {text}")

    def warn(self, path, line, text):
        self.warnings.append(f"{rel(path)}:{line}: warning: {text}")


def rel(path):
    path = Path(path)
    return path.relative_to(ROOT).as_posix() if path.is_absolute() else path.as_posix()


def project_files():
    """Files under version control or about to be; without git, everything that does not look built."""
    try:
        out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, check=True).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        skip = re.compile(r"(^|/)(\.|build|dist|__pycache__|.*\.egg-info)")
        names = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if p.is_file()]
        names = [n for n in names if not skip.search(n)]
    return sorted(ROOT / n for n in set(names) if (ROOT / n).is_file())


def read(path):
    return path.read_text(encoding="utf-8")


def without_comments_and_strings(text):
    """C source with comments and literals blanked, line structure kept."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def room_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "tools":
        return "tools"
    if parts[0] == "include":
        return "include"
    if parts[0] != "src":
        return None
    return parts[1]


# ---- includes ---------------------------------------------------------------------------------------------------


def check_includes(files, out):
    for path in files:
        room = room_of(path)
        if path.suffix not in (".c", ".h") or room is None:
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            m = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not m:
                continue
            if m.group(1) == "<":
                check_system_include(path, room, m.group(2), number, out)
            else:
                check_own_include(path, room, m.group(2), number, out)


def check_system_include(path, room, name, number, out):
    if name == "Python.h" and room != "python":
        out.error(path, number, "only src/python includes Python.h")
    if name == "dlfcn.h" and room != "rt":
        out.error(path, number, "only src/rt loads libraries")


def check_own_include(path, room, name, number, out):
    candidates = [path.parent / name, ROOT / "include" / name, ROOT / "src" / name]
    found = next((c.resolve() for c in candidates if c.is_file()), None)
    if found is None:
        out.error(path, number, f'"{name}" is not a file of the project')
        return
    target = room_of(found)
    if found.suffix not in (".h", ".def") and not (found.suffix == ".inc" and target == room):
        out.error(path, number, f'"{name}": only headers and tables are included, and .inc files of the same folder')
    elif target == "include":
        if room not in ("api", "python", "tools"):
            out.error(path, number, f"{room} does not see the public API")
    elif target == room:
        pass
    elif room not in SEES:
        out.error(path, number, f"src/{room} is no room of docs/design.md")
    elif target not in SEES[room]:
        below = ", ".join(SEES[room]) or "tilelang.h only"
        out.error(path, number, f'{room} must not see {target} ("{name}"); it sees {below}')
    elif found.suffix == ".h" and found != ROOT / "src" / target / f"{target}.h":
        out.error(path, number, f'"{name}" is private to src/{target}; others include {target}/{target}.h')


# ---- sizes and names ----------------------------------------------------------------------------------------------


def c_functions(text):
    """(name, first line, last line) of every function, by the house style: its brace closes in column 0."""
    lines = without_comments_and_strings(text).splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if line[:1].isalpha() or line[:1] == "_":
            start = number
        if line.rstrip() == "}" and start is not None:
            head = " ".join(lines[start - 1:start + 6])
            m = re.search(r"(\w+)\s*\(", head)
            if m and not re.match(r"(typedef|struct|enum|union)\b[^(]*\{", head):
                yield m.group(1), start, number
            start = None


def check_sizes(files, out):
    for path in files:
        if path.suffix not in (".c", ".h", ".py"):
            continue
        text = read(path)
        lines = text.splitlines()
        if len(lines) > MAX_FILE:
            out.error(path, len(lines), f"{len(lines)} lines; a file has at most {MAX_FILE}")
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                out.error(path, number, f"{len(line)} columns; a line has at most {MAX_COLUMNS}")
        functions = c_functions(text) if path.suffix != ".py" else python_functions(path, text, out)
        for name, first, last in functions:
            if last - first + 1 > MAX_FUNCTION and (path.name, name) not in LONG_FUNCTIONS:
                out.error(path, first, f"{name} has {last - first + 1} lines; a function has at most {MAX_FUNCTION}")


def python_functions(path, text, out):
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        out.error(path, e.lineno or 1, f"not Python: {e.msg}")
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def check_names(files, out):
    seen = {}
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if not name.isascii() or " " in name:
            out.error(path, 1, "names of files are ASCII without blanks")
        if BANNED_NAMES.match(path.name):
            out.error(path, 1, f"`{path.name}` says nothing about what is inside; name it after that")
        if path.suffix in (".c", ".h", ".def"):
            if path.name in seen:
                out.error(path, 1, f"another file is called {path.name}: {rel(seen[path.name])}")
            seen[path.name] = path


# ---- what the library must not do -------------------------------------------------------------------------------


def check_calls(files, out):
    for path in files:
        room = room_of(path)
        if path.suffix not in (".c", ".h") or room not in SEES or room == "tools" or path.parent.name == "twin":
            continue  # the twin is a program of its own: a process is a core
        text = without_comments_and_strings(read(path))
        for number, line in enumerate(text.splitlines(), 1):
            for m in CALLS.finditer(line):
                if (path.name, m.group(1)) not in ALLOWED_CALLS:
                    out.error(path, number, f"{m.group(1)}(): the library does not exit, abort or print")
            if mutable_variable(line) and not (room == "python" and PYTHON_TABLES.match(line)):
                out.error(path, number, "a variable outside of any context; make it const or put it in one")


def mutable_variable(line):
    """A definition with static storage that is not const. Statements of functions are indented, so column 0 tells."""
    m = re.match(r"(\s*static\s+|(?:_Thread_local\s+|extern\s+)?(?=[A-Za-z_]))"
                 r"((?:(?:const|unsigned|signed|struct|enum|union|volatile|_Atomic|long)\s+)*[A-Za-z_]\w*\b)"
                 r"([^=;(){]*?)\b([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)(=|;)", line)
    if not m:
        return False
    head = m.group(1).split()[:1] + m.group(2).split()
    other = {"typedef", "struct", "return", "goto", "union", "enum", "inline"}
    if not other.isdisjoint(head) and m.group(6) == ";":
        return False
    if "typedef" in head or not m.group(1).strip() and line[:1].isspace():
        return False
    declaration = m.group(1) + m.group(2) + m.group(3)
    after_star = declaration.rpartition("*")[2]
    return "const" not in after_star.split()


# ---- diagnostics and rules --------------------------------------------------------------------------------------


def diag_rows():
    path = ROOT / "src/base/diag.def"
    for number, line in enumerate(read(path).splitlines(), 1):
        m = re.match(r'DIAG\((\w+),\s*(\d+),\s*(\w+),\s*"((?:\\.|[^"\\])*)"\)', line)
        if m:
            yield path, number, m.group(1), int(m.group(2))


def diag_names_used(files):
    """DIAG_X in the C sources, also where a macro of the file pastes DIAG_PREFIX_##name, and codes in text."""
    used = set()
    for path in files:
        if path.suffix not in (".c", ".h") or room_of(path) not in SEES:
            continue
        text = read(path)
        used.update(re.findall(r"\bDIAG_(\w+)", text))
        used.update(re.findall(r"\bTL\d{4}\b", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))
        for prefix in set(re.findall(r"\bDIAG_(\w*?)##", text)):
            used.update(prefix + word for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", text))
    return used


def check_diagnostics(files, out):
    python = "\n".join(read(p) for p in files if p.suffix == ".py" and rel(p).startswith("tilelang/"))
    shown = [p for p in files if rel(p).startswith("test/") and not rel(p).startswith("test/tools/") and readable(p)]
    tests = "\n".join(read(p) for p in shown)
    used = diag_names_used(files)
    numbers = {}
    for path, line, name, number in diag_rows():
        code = f"TL{number:04d}"
        if number in numbers:
            out.error(path, line, f"{code} is also the number of {numbers[number]}")
        numbers[number] = name
        if number == 0:
            continue
        if name not in used and code not in used and not re.search(rf"\b(TL)?0*{number}\b", python):
            out.error(path, line, f"{code} {name} is never reported")
        if not (ROOT / f"docs/errors/{code}.md").exists():
            out.warn(path, line, f"{code} has no page docs/errors/{code}.md: write it like the others")
    for code in sorted(set(re.findall(r"\bTL\d{4}\b", python + tests))):
        if int(code[2:]) not in numbers:
            out.error(ROOT / "src/base/diag.def", 1, f"{code} is named in Python or in a test, but not defined")


def readable(path):
    return path.suffix in (".py", ".tl", ".txt", ".out", ".err", ".json", ".md", ".c", ".cpp", ".expect", "")


def check_rules(files, out):
    page = ROOT / "docs/ir.md"
    section = read(page).partition("\n## Rules")[2]
    base = read(page).count("\n") - section.count("\n")
    names = [p.name for p in files if rel(p).startswith("test/ir/bad/")]
    count = 0
    for number, line in enumerate(section.splitlines(), base + 1):
        m = re.match(r"(\d+)\. ", line)
        if not m:
            continue
        count += 1
        if int(m.group(1)) != count:
            out.error(page, number, f"rule {m.group(1)} stands where rule {count} is due")
        if not any(re.match(rf"R0*{m.group(1)}-.*\.tl$", n) for n in names):
            out.error(page, number, f"rule {m.group(1)} has no test test/ir/bad/R{m.group(1)}-*.tl")
    if count == 0:
        out.error(page, 1, "no numbered rules under `## Rules`")


# ---- Python -----------------------------------------------------------------------------------------------------


def check_python(files, out):
    for path in files:
        if path.suffix != ".py" or not rel(path).startswith("tilelang/"):
            continue
        try:
            tree = ast.parse(read(path))
        except SyntaxError:
            continue  # reported by check_sizes
        for node in ast.walk(tree):
            if imports(node, "_core") and path.name not in EXTENSION_USERS:
                out.error(path, node.lineno, f"only {', '.join(EXTENSION_USERS)} import the extension `_core`")
        for node in top_level(tree.body):
            for heavy in ("torch", "onnx", "onnxruntime", "matplotlib", "dask"):
                if imports(node, heavy):
                    out.error(path, node.lineno, f"{heavy} is optional: import it where it is used, not at the top")


def top_level(body):
    """Statements that run on import: the module's, and those inside its ifs and trys."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                for inner in getattr(node, field, []):
                    yield from top_level(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def imports(node, name):
    if isinstance(node, ast.Import):
        return any(name in a.name.split(".") for a in node.names)
    if isinstance(node, ast.ImportFrom):
        return name in (node.module or "").split(".") or any(a.name == name for a in node.names)
    return False


def check_paths(files, out):
    for path in files:
        if path.suffix not in (".c", ".h", ".def", ".py", ".md", ".toml", ".txt", ".tl", "") or path.name == "LICENSE":
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            m = MACHINE_PATH.search(line)
            if m:
                out.error(path, number, f"`{m.group(0)}` is a path of one machine")


# ---- docs -------------------------------------------------------------------------------------------------------


def check_docs(files, out):
    sys.path.insert(0, str(ROOT / "tools"))
    import gen_docs
    for path, text in gen_docs.pages():
        if not path.is_file() or read(path) != text:
            out.error(path, 1, "stale: run `python tools/gen_docs.py`")
    for path in files:
        if path.suffix != ".md":
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if "://" not in link and not (path.parent / link).exists():
                    out.error(path, number, f"the link to {link} leads nowhere")


CHECKS = [check_includes, check_sizes, check_names, check_calls, check_diagnostics, check_rules, check_python,
          check_paths, check_docs]


def main():
    os.chdir(ROOT)
    files = project_files()
    out = Findings()
    for check in CHECKS:
        check(files, out)
    for line in out.warnings + out.errors:
        print(line)
    print(f"lint: {len(files)} files, {len(out.errors)} errors, {len(out.warnings)} warnings")
    return 1 if out.errors else 0


if __name__ == "__main__":
    sys.exit(main())
