#!/usr/bin/env python3
"""Writes docs/errors.md and docs/ops.md from the tables of the C core; tools/lint.py fails while they are stale.

    python tools/gen_docs.py

The tables are C: a row is MACRO(value, "text", ...). Strings, characters, names and numbers are all a row may hold."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rows(file, macro):
    """(comment line above, columns) of every row; comments are the headings inside a table."""
    heading = ""
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        m = re.match(r"\s*/\*\s*(?:-+\s*)?(.*?)\s*-*\s*\*/\s*$", line)
        if m:
            heading = m.group(1)
        m = re.match(rf"{macro}\((.*)\)\s*(?:/\*\s*(.*?)\s*\*/)?\s*$", line)
        if m:
            yield heading, split_columns(m.group(1)), m.group(2) or ""


def split_columns(text):
    columns = []
    for part in re.findall(r'\s*("(?:\\.|[^"\\])*"|\'.\'|(?:[^,"()]|\([^()]*\))+)\s*(?:,|$)', text):
        part = part.strip()
        if part[0] == '"':
            part = re.sub(r"\\(.)", r"\1", part[1:-1])
        elif part[0] == "'":
            part = part[1]
        columns.append(part)
    return columns


def table(head, lines):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return out + ["| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines]


def banner(*sources):
    return f"<!-- Written by tools/gen_docs.py from {', '.join(sources)}. Change those, then run it again. -->"


# ---- errors -----------------------------------------------------------------------------------------------------

SEVERITY = {"ERROR": "error", "WARNING": "warning", "NOTE": "note"}


def errors_page():
    source = "src/base/diag.def"
    out = [banner(source), "# Diagnostics", "",
           "Every message carries a code, a place - the line of the Python source where the statement was written, or",
           "of the `.tl` text - a sentence with the names, shapes and bytes at hand, sometimes a second place, and",
           "what to change. A number is never used for anything else later. An error stops the compilation or the",
           "run; a warning says what will be slow, or has no effect; a note says what was decided on your behalf.", "",
           "Every code has a page with a program that causes it and one that does not; `tlc explain TL0600` and",
           "`python -m tilelang explain TL0600` print it. The Python programs of the pages begin with",
           "`import numpy as np`, `import tilelang` and `import tilelang.language as T`. All of them are tests.", ""]
    current, lines = None, []
    for heading, (_, number, severity, title), _ in rows(source, "DIAG"):
        if int(number) == 0:
            continue
        if heading != current:
            out += flush_errors(current, lines)
            current, lines = heading, []
        code = f"TL{int(number):04d}"
        rule = f" ([rule {int(number) - 200}](ir.md#rules))" if 200 < int(number) < 300 else ""
        page = (ROOT / f"docs/errors/{code}.md").exists()
        lines.append((f"[`{code}`](errors/{code}.md)" if page else f"`{code}`", SEVERITY[severity], title + rule))
    out += flush_errors(current, lines)
    return "\n".join(out).rstrip() + "\n"


def flush_errors(heading, lines):
    if not lines:
        return []
    heading = re.sub(r"^(\d\dxx)\s+", r"\1 - ", heading)
    return [f"## {heading}", ""] + table(("code", "kind", "what"), lines) + [""]


# ---- ops --------------------------------------------------------------------------------------------------------

LEVEL = {"s": "source", "l": "lowered", "b": "both"}


def dtype_rules():
    """RULE_X -> what the comment beside it in ir.h says."""
    text = (ROOT / "src/ir/ir.h").read_text(encoding="utf-8")
    return dict(re.findall(r"^\s*RULE_(\w+),?\s*/\*\s*(.*?)\s*\*/", text, flags=re.M))


def op_operands(op):
    """One operand list as a person would write it: `add a, b|s -> dst`."""
    inputs, outputs = op[4], op[5]
    names = iter("abcdefgh")
    ins = []
    for letter in inputs:
        name = next(names)
        ins.append({"r": f"%{name}", "s": name, "e": f"%{name}\\|{name}"}[letter])
    outs = [{"w": "%dst", "u": "%dst+"}[letter] for letter in outputs]
    return f"`{op[1]} {', '.join(ins)} -> {', '.join(outs)}`".replace("\\|", "|")


def ops_page():
    attrs = {a[0]: a[1] for _, a, _ in rows("src/ir/attrs.def", "ATTR")}
    sources = [f"src/ir/{f}" for f in ("ops.def", "attrs.def", "types.def", "exprs.def", "ir.h")]
    out = [banner(*sources), "# Operations", "",
           "Every statement with operands. `%a` is a region of a buffer, `a` a scalar expression, `%a|a` either of the",
           "two; `%dst` is overwritten, `%dst+` read and written. *Level*: `source` ops are what programs say,",
           "`lowered` ops are one instruction of one pipe, `both` are either, depending on the kernel.",
           "[ir.md](ir.md) has the grammar, the forms an instruction takes, and the rules.", ""]
    current, lines = None, []
    for heading, op, _ in rows("src/ir/ops.def", "OP"):
        if heading != current:
            out += flush_ops(current, lines)
            current, lines = heading, []
        mine = [attrs[a] for a in re.findall(r"A\((\w+)\)", op[8])]
        source_memory, _, result_memory = op[7].rpartition("->")
        memory = f"{source_memory.replace(',', ', ')} → {result_memory}" if op[7] else ""
        pipe = "" if op[3] == "NONE" else op[3].lower()
        lines.append((op_operands(op), LEVEL[op[2]], pipe, memory, op[6].replace("RULE_", "").lower(),
                      ", ".join(f"`{a}`" for a in mine), op[10]))
    out += flush_ops(current, lines)
    out += other_tables()
    return "\n".join(out).rstrip() + "\n"


def flush_ops(heading, lines):
    if not lines:
        return []
    head = ("op", "level", "pipe", "memories, lowered", "dtypes", "attributes", "meaning")
    return [f"## {heading[:1].upper()}{heading[1:]}", ""] + table(head, lines) + [""]


def other_tables():
    values = {"f": "", "e": "scalar expression", "i": "integer", "m": "rounding mode", "c": "comparison"}
    out = ["## Dtype rules", "", "The lists hold at the lowered level; at source level any dtype is made to fit.", ""]
    out += table(("rule", "operands"), [(k.lower(), v) for k, v in dtype_rules().items()]) + [""]
    out += ["## Attributes", ""]
    out += table(("attribute", "value", "meaning"),
                 [(f"`{a[1]}`", values[a[2]], note) for _, a, note in rows("src/ir/attrs.def", "ATTR")]) + [""]
    out += ["## Dtypes", ""]
    out += table(("dtype", "numpy", "bits", "Ascend C"),
                 [(f"`{d[1]}`", d[2], d[3], f"`{d[5]}`") for _, d, _ in rows("src/ir/types.def", "DTYPE")]) + [""]
    out += ["## Memories", ""]
    out += table(("name", "meaning"), [(f"`{s[1]}`", s[4]) for _, s, _ in rows("src/ir/types.def", "SPACE")]) + [""]
    sides = {"c": "cube", "v": "vector", "b": "both"}
    out += ["## Pipes", "",
            "In order: a later instruction sees what an earlier one of the same pipe wrote, without a barrier.", ""]
    out += table(("pipe", "core", "in order", "Ascend C"),
                 [(f"`{p[1]}`", sides[p[2]], "yes" if p[3] == "1" else "no", f"`{p[4]}`")
                  for _, p, _ in rows("src/ir/types.def", "PIPE")]) + [""]
    out += ["## Layouts", ""]
    layouts = [(f"`{x[1]}`", x[2]) for _, x, _ in rows("src/ir/types.def", "LAYOUT")]
    out += table(("layout", "meaning"), layouts) + [""]
    out += ["## Rounding modes of `cast`", ""]
    modes = [(f"`{x[1]}`", note) for _, x, note in rows("src/ir/types.def", "CASTMODE")]
    out += table(("mode", "meaning"), modes) + [""]
    kinds = {"i": "`a {0} b`", "p": "`{0}a`", "c": "`{0}({1})`"}
    exprs = [(kinds[e[3]].format(e[1], ", ".join("ab"[:int(e[2])])), "bool" if e[5] == "b" else "as the operands", note)
             for _, e, note in rows("src/ir/exprs.def", "EXPR")]
    return out + ["## Scalar operators", ""] + table(("form", "dtype", "note"), exprs) + [""]


def pages():
    return [(ROOT / "docs/errors.md", errors_page()), (ROOT / "docs/ops.md", ops_page())]


def main():
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")


if __name__ == "__main__":
    sys.exit(main())
