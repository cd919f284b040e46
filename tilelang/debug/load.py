"""IR text as a `machine.Program`, through the JSON of the core (src/ir/json.c)."""

import json

from ..frontend.expr import Buffer, Element, Expr, Region, Var
from ..language.dtypes import DType
from . import core
from .arith import const
from .machine import Node, Program

_FIELDS = {  # field -> how it is read
    "buf": "buf", "var": "var", "value": "expr", "cond": "expr", "only": "expr", "lo": "expr", "hi": "expr",
    "step": "expr", "id": "expr",
    "idx": "exprs", "ext": "exprs", "vars": "names", "in": "args", "out": "args", "attrs": "attrs",
    "body": "block", "alt": "block", "args": "args",
}  # fmt: skip
_CALLED = {"in": "ins", "out": "outs"}


class Loader:
    def __init__(self, data, paths):
        self.data = data
        self.files = [paths.get(f, f) for f in data["files"]]
        self.vars = {name: Var(name, DType(dtype), "let") for name, dtype in data["vars"]}
        self.bufs = {}
        for b in data["bufs"]:
            made = Buffer(b["name"], (), DType(b["dtype"]), b["space"], self.place(*b["at"]))
            made.addr = b["addr"]
            made.mark = "out" if b["out"] else "workspace" if b["workspace"] else ""
            self.bufs[b["name"]] = made
        for b in data["bufs"]:
            self.bufs[b["name"]].shape = tuple(self.exprs(b["shape"]))
            self.bufs[b["name"]].view = self.bufs[b["view"]] if b["view"] else None

    def place(self, number, line, col):
        return (self.files[number - 1] if number else None, line, col)

    def expr(self, e):
        if e is None:
            return None
        op, dtype, rest = e[0], DType(e[1]), e[2:]
        if op == "const":
            return Expr("const", (const(float(rest[0]) if isinstance(rest[0], str) else rest[0], dtype),), dtype, True)
        if op == "var":
            return self.vars[rest[0]]
        if op == "load":
            return Element(self.bufs[rest[0]], tuple(self.exprs(rest[1:])))
        return Expr(op, tuple(self.exprs(rest)), dtype)

    def exprs(self, list_):
        return [self.expr(e) for e in list_]

    def arg(self, a):
        if isinstance(a, dict):
            return Region(self.bufs[a["buf"]], self.exprs(a["off"]), self.exprs(a["ext"]))
        return self.expr(a)

    def args(self, list_):
        return [self.arg(a) for a in list_]

    def buf(self, name):
        return self.bufs[name]

    def var(self, name):
        return self.vars[name]

    def names(self, list_):
        return [self.vars[n] for n in list_]

    def attrs(self, found):
        return {k: self.expr(v) if isinstance(v, list) else v for k, v in found.items()}

    def block(self, body):
        return [self.stmt(s) for s in body]

    def stmt(self, s):
        fields = {_CALLED.get(k, k): getattr(self, _FIELDS[k])(v) if k in _FIELDS else v for k, v in s.items()}
        return Node(fields.pop("kind"), tuple(fields.pop("at")), **fields)

    def program(self):
        d = self.data
        params = [self.bufs[n] if n in self.bufs else self.vars[n] for n in d["params"]]
        grid = [(self.vars[n], self.expr(e)) for n, e in d["grid"]]
        vid = self.vars[d["vid"]] if d["vid"] else None
        return Program(d["kernel"], params, grid, vid, self.block(d["body"]), self.files, d["cores"])


def program(text, name="kernel.tl", paths=None):
    """The program of IR text; CompileError when the text has errors. `paths` maps its file names to files here."""
    data = json.loads(core.parsed(text, name, paths).program_json())
    return Loader(data, paths or {}).program()
