"""The tables of Python against those of the C core: one fact is written once, or checked."""

import pathlib
import re

from tilelang import errors
from tilelang.frontend import expr
from tilelang.language import sync, tile
from tilelang.language.dtypes import IR_NAME

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"


def rows(path, macro):
    return re.findall(rf"^{macro}\((.*)\)", (SRC / path).read_text(), re.M)


def fields(row):
    return [f.strip().strip('"') for f in re.findall(r'"[^"]*"|\'[^\']*\'|[^,]+', row)]


def test_dtypes():
    table = {fields(r)[2]: fields(r)[1] for r in rows("ir/types.def", "DTYPE")}
    assert table == IR_NAME


def test_pipes():
    assert tuple(fields(r)[1] for r in rows("ir/types.def", "PIPE")) == sync.PIPES


def test_tile_operations_exist():
    ops = {}
    for r in rows("ir/ops.def", "OP"):
        f = fields(r)
        ops[f[1]] = f[4]
    for name, (op, kinds) in tile._TABLE.items():
        assert op in ops, f"T.tile.{name} emits '{op}', which is no op"
        assert ops[op] == kinds, f"T.tile.{name}: operands {kinds}, the op takes {ops[op]}"


def test_operators():
    infix = {fields(r)[1]: int(fields(r)[4]) for r in rows("ir/exprs.def", "EXPR") if fields(r)[3] == "'i'"}
    assert infix == expr.PREC


def test_diagnostics():
    table = {}
    for r in rows("base/diag.def", "DIAG"):
        f = fields(r)
        table[int(f[1])] = (f[2].lower(), f[3])
    for number, entry in errors.CODES.items():
        assert table.get(number) == entry, number
    python = {n for n in table if 1000 <= n < 1100}
    assert python == {n for n in errors.CODES if n >= 1000}


def test_every_code_is_used():
    files = [p for p in (SRC.parent / "tilelang").rglob("*.py")]
    text = "".join(p.read_text() for p in files)
    for number in errors.CODES:
        assert len(re.findall(rf"\b(?:TL)?{number}\b", text)) > 1, number  # its row, and a use
