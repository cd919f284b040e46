"""tools/lint.py finds what it is there to find: each case plants one fault in a small tree."""

import importlib.util
from pathlib import Path

import pytest

LINT = Path(__file__).resolve().parents[2] / "tools" / "lint.py"

CLEAN = {
    "include/tilelang.h": "int tl_x(void);\n",
    "src/base/base.h": "typedef int Loc;\n",
    "docs/errors/TL0007.md": "# TL0007: bad\n",
    "src/base/diag.def": 'DIAG(OK, 0, NOTE, "no error")\nDIAG(BAD, 7, ERROR, "bad")\n',
    "src/base/diag.c": '#include "base.h"\n#include "diag.def"\nstatic const int table[] = {DIAG_BAD};\n',
    "src/ir/ir.h": '#include "../base/base.h"\n',
    "src/ir/ops.def": "",
    "src/ir/parse.c": '#include "ir.h"\nint parse(void)\n{\n  return 0;\n}\n',
    "src/arch/arch.h": '#include "../ir/ir.h"\n',
    "src/pass/pass.h": '#include "../arch/arch.h"\n',
    "src/pass/scope.h": '#include "pass.h"\n',
    "src/pass/scope.c": '#include "scope.h"\n',
    "src/sim/sim.h": '#include "../arch/arch.h"\n#include "../ir/ops.def"\n',
    "src/api/api.c": '#include "tilelang.h"\n#include "pass/pass.h"\n#include "sim/sim.h"\n',
    "tools/tlc.c": '#include "tilelang.h"\n',
    "tilelang/kernel.py": "def f():\n    from . import _core\n    import torch\n",
    "docs/ir.md": "# IR\n\n## Rules\n\n1. First.\n",
    "test/ir/bad/R1-first.tl": "; TL0007\n",
}

FAULTS = [
    ("includes", {"src/sim/a.c": '#include "../pass/pass.h"\n'}, "src/sim/a.c:1: sim must not see pass"),
    ("includes", {"src/base/a.c": '#include "../ir/ir.h"\n'}, "src/base/a.c:1: base must not see ir"),
    ("includes", {"src/api/api.c": '#include "pass/scope.h"\n'},
     "src/api/api.c:1: \"pass/scope.h\" is private to src/pass"),
    ("includes", {"tools/tlc.c": '#include "../src/ir/ir.h"\n'}, "tools must not see ir"),
    ("includes", {"src/ir/a.c": '#include "tilelang.h"\n'}, "ir does not see the public API"),
    ("includes", {"src/pass/a.c": '#include "scope.c"\n'}, "only headers and tables are included"),
    ("includes", {"src/ir/a.c": '#include "gone.h"\n'}, '"gone.h" is not a file of the project'),
    ("includes", {"src/ir/a.c": "#include <Python.h>\n"}, "only src/python includes Python.h"),
    ("includes", {"src/extra/a.c": '#include "../ir/ir.h"\n'}, "src/extra is no room"),
    ("sizes", {"src/ir/a.c": "int x;\n" * 1201}, "1201 lines; a file has at most 1200"),
    ("sizes", {"src/ir/a.c": "/*" + "x" * 130 + "*/\n"}, "columns; a line has at most 120"),
    ("sizes", {"src/ir/a.c": "int long_one(int a,\n             int b) {\n" + "  a++;\n" * 78 + "}\n"},
     "long_one has 81 lines"),
    ("sizes", {"tilelang/a.py": "def long_one():\n" + "    x = 1\n" * 80}, "long_one has 81 lines"),
    ("names", {"src/ir/utils.c": ""}, "`utils.c` says nothing about what is inside"),
    ("names", {"src/sim/parse.c": ""}, "another file is called parse.c"),
    ("calls", {"src/ir/a.c": "void f(void) {\n  exit(1);\n}\n"}, "src/ir/a.c:2: exit()"),
    ("calls", {"src/ir/a.c": 'void f(void) {\n  printf("x");\n}\n'}, "src/ir/a.c:2: printf()"),
    ("calls", {"src/ir/a.c": "static int count;\n"}, "src/ir/a.c:1: a variable outside of any context"),
    ("calls", {"src/ir/a.c": "int count = 3;\n"}, "a variable outside of any context"),
    ("calls", {"src/ir/a.c": 'static const char *names[] = {"a"};\n'}, "a variable outside of any context"),
    ("calls", {"src/ir/a.c": "void f(void) {\n  static int calls = 0;\n}\n"}, "a variable outside of any context"),
    ("diagnostics", {"src/base/diag.c": "int x(void);\n"}, "TL0007 BAD is never reported"),
    ("diagnostics", {"test/ir/bad/R1-first.tl": "; TL0099\n"}, "TL0099 is named in Python or in a test"),
    ("rules", {"docs/ir.md": "# IR\n\n## Rules\n\n1. One.\n2. Two.\n"}, "rule 2 has no test"),
    ("rules", {"docs/ir.md": "# IR\n\n## Rules\n\n1. One.\n3. Three.\n"}, "rule 3 stands where rule 2 is due"),
    ("python", {"tilelang/a.py": "import torch\n"}, "torch is optional"),
    ("python", {"tilelang/a.py": "try:\n    import torch\nexcept ImportError:\n    pass\n"}, "torch is optional"),
    ("python", {"tilelang/a.py": "from . import _core\n"}, "import the extension `_core`"),
    ("paths", {"docs/a.md": "see /" + "home/someone/notes\n"}, "is a path of one machine"),
]


@pytest.fixture
def lint(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("lint_under_test", LINT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def run(lint, root, check, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = lint.Findings()
    getattr(lint, "check_" + check)(sorted(p for p in root.rglob("*") if p.is_file()), found)
    return found


@pytest.mark.parametrize("check", ["includes", "sizes", "names", "calls", "diagnostics", "rules", "python", "paths"])
def test_clean_tree_has_no_findings(lint, tmp_path, check):
    found = run(lint, tmp_path, check, CLEAN)
    assert found.errors == [] and found.warnings == []


@pytest.mark.parametrize("check, fault, text", FAULTS)
def test_planted_fault_is_found(lint, tmp_path, check, fault, text):
    found = run(lint, tmp_path, check, {**CLEAN, **fault})
    assert any(text in line for line in found.errors), found.errors


def test_code_without_a_page(lint, tmp_path):
    tree = {k: v for k, v in CLEAN.items() if not k.startswith("docs/errors")}
    found = run(lint, tmp_path, "diagnostics", tree)
    assert ["TL0007 has no page docs/errors/TL0007.md" in e for e in found.warnings] == [True]


@pytest.mark.parametrize("line", [
    "static const int table[] = {1};",
    "static const char *const names[] = {",
    "const Pass pass_table[] = {",
    "typedef struct IrExpr IrExpr;",
    "extern const OpInfo op_info[OP_COUNT];",
    "static bool check(Verifier *v);",
    "struct ArenaChunk { ArenaChunk *next; };",
    "  return count;",
    "  int count = 0;",
    "static inline int f(int a) { int b = a; return b; }",
])  # fmt: skip
def test_what_is_no_variable_of_the_library(lint, line):
    assert not lint.mutable_variable(line)
