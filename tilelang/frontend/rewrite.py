"""Rewrites a kernel function so that running it traces it.

Control flow, assignments and boolean operators become calls of a frame object (hooks.Frame); everything else stays
Python. The rewritten tree keeps the line numbers of the source, is compiled under the same file name and bound to the
same globals and closure, so names resolve as the author wrote them and errors point at the source.

    for i in T.serial(n):            h = F.for_(T.serial(n), "i", carried, at)
        x = a[i]             -->     s = F.save(locals(), names)
                                     for i in h:
                                         x = F.assign("x", a[i])
                                     if h.ir: i, x = F.leave(h, s, locals())
"""

import ast
import contextlib
import gc
import inspect
import linecache
import sys
import types

from ..errors import fail
from .hooks import ON_CHIP

FRAME, MAKE = "__tl_f", "__tl"
# functions of Python that hooks.Frame.pythons answers for where a value or a loop of the chip is passed
PYTHONS = frozenset(f.__name__ for f in ON_CHIP)


def _command(name):
    """The lines of `python -c TEXT`, which Python itself keeps from version 3.13 on."""
    given = sys.orig_argv
    if name != "<string>" or "-c" not in given[:-1] or sys.argv[:1] != ["-c"]:
        return []
    text = given[given.index("-c") + 1]
    lines = [line + "\n" for line in text.splitlines()]
    linecache.cache[name] = (len(text), None, lines, name)
    return lines


def _source(fn):
    """(lines of the function, first line number)."""
    code = fn.__code__
    lines = linecache.getlines(code.co_filename, fn.__globals__) or _command(code.co_filename)
    if not lines:
        fail(
            1009,
            f"the source of '{fn.__name__}' is not available ({code.co_filename})",
            fix="kernels are read from their source: define them in a file or a notebook cell",
            at=(code.co_filename, code.co_firstlineno, 1),
        )
    first = code.co_firstlineno
    if first > len(lines) or not lines[first - 1].lstrip().startswith(("@", "def ", "async ", "class ")):
        if "lambda" not in code.co_name:
            fail(
                1009,
                f"line {first} of {code.co_filename} is not where '{fn.__name__}' begins: its source is not available",
                fix="kernels are read from their source: a file as it was when it was loaded, or a notebook cell",
                at=(code.co_filename, first, 1),
            )
    lines = [line.lstrip("\f") for line in lines[first - 1 :]]  # a form feed begins a page and indents nothing
    return inspect.getblock(lines), first


def parse(fn):
    """The FunctionDef of fn with the line numbers of its file."""
    lines, first = _source(fn)
    pad = len(lines[0]) - len(lines[0].lstrip())
    text = "".join(lines)
    # an indented block parses inside `if 1:`; that keeps multi-line strings as they are
    try:
        tree = ast.parse("if 1:\n" + text if pad else text)
    except SyntaxError as e:
        fail(
            1009,
            f"the source of '{fn.__name__}' cannot be read by itself: {e.msg}",
            fix="a kernel is a `def` that begins on a line of its own",
            at=(fn.__code__.co_filename, first, pad + 1),
        )
    if pad:
        tree = tree.body[0]
        ast.increment_lineno(tree, first - 2)
    else:
        ast.increment_lineno(tree, first - 1)
    for node in tree.body:
        other = "is not a `def`"
        if isinstance(node, ast.FunctionDef):
            if not fn.__code__.co_flags & inspect.CO_GENERATOR:
                return node
            other = "has a `yield`"
        if isinstance(node, ast.AsyncFunctionDef):
            other = "is an `async def`"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.lineno
    fail(
        1009,
        f"'{fn.__name__}' {other}",
        fix="kernels and macros are plain functions: `def` with statements, and at most a `return`",
        at=(fn.__code__.co_filename, first, pad + 1),
    )


def _stored(nodes):
    """Names that a list of statements binds, in order of first appearance."""
    out = {}

    class Find(ast.NodeVisitor):
        def visit_Name(self, node):
            if isinstance(node.ctx, ast.Store):
                out.setdefault(node.id)

        def visit_FunctionDef(self, node):
            out.setdefault(node.name)

        def visit_Lambda(self, node):
            pass

        visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ClassDef = visit_Lambda

    for n in nodes:
        Find().visit(n)
    return [n for n in out if not n.startswith("__tl")]


def _inside(loop):
    """(node, own) of the body of a loop, without the functions in it; own: a `break` there leaves this loop."""
    todo = [(n, True) for n in loop.body]
    while todo:
        node, own = todo.pop()
        yield node, own
        if isinstance(node, (ast.For, ast.While)):
            todo += [(n, False) for n in node.body] + [(n, own) for n in node.orelse]
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo += [(n, own) for n in ast.iter_child_nodes(node)]


def endless(loop):
    """Is a `while` true for ever, and nothing in it can leave it: `break`, `return`, `raise`, `yield`, next()?"""
    if not isinstance(loop.test, ast.Constant) or not loop.test.value:
        return False
    ends = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)
    return not any(
        isinstance(n, ends) or own and isinstance(n, ast.Break) or isinstance(n, ast.Name) and n.id == "next"
        for n, own in _inside(loop)
    )


def _leaves(loop):
    """Has a loop an `else`, and a `break` that skips it?"""
    return bool(loop.orelse) and any(own and isinstance(n, ast.Break) for n, own in _inside(loop))


def endless_loop(frames):
    """The place of a `while` without end that one of the frames stands in, of functions that are not rewritten, too;
    None: there is none."""
    trees = {}
    for frame in frames:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if file not in trees:
            try:
                trees[file] = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
            except SyntaxError:
                trees[file] = []
        for node in trees[file]:
            if isinstance(node, ast.While) and node.lineno <= line <= node.end_lineno and endless(node):
                return file, node.lineno, node.col_offset + 1
    return None


class _FirstUse(ast.NodeVisitor):
    """Names whose first appearance in evaluation order is a read."""

    def __init__(self):
        self.first = {}

    def visit_Name(self, node):
        self.first.setdefault(node.id, type(node.ctx) is not ast.Store)

    def visit_Assign(self, node):
        self.visit(node.value)
        for t in node.targets:
            self.visit(t)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_ListComp(self, node):
        inner = _FirstUse()
        for g in node.generators:
            self.visit(g.iter)
            inner.visit(g.target)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                inner.visit(getattr(node, part))
        for name, read in inner.first.items():
            if read:
                self.first.setdefault(name, True)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_AugAssign(self, node):
        if isinstance(node.target, ast.Name):
            self.first.setdefault(node.target.id, True)
        self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node):
        self.visit(node.iter)
        self.visit(node.target)
        for n in node.body + node.orelse:
            self.visit(n)

    def visit_If(self, node):
        self.visit(node.test)
        for n in node.body + node.orelse:
            self.visit(n)


def _carried(target, body):
    """Names of a loop body that may be read before the body gives them a value, and that the body rebinds."""
    seen = _FirstUse()
    if target is not None:
        seen.visit(target)
    for n in body:
        seen.visit(n)
    return [n for n in _stored(body) if seen.first.get(n)]


def _put(new, old):
    """A made node stands where `old` begins; it must not seem to end elsewhere, or calls get the line of their end."""
    ast.copy_location(new, old)
    if new is not old:
        new.end_lineno, new.end_col_offset = new.lineno, new.col_offset
    return new


def _call(method, *args):
    return ast.Call(ast.Attribute(ast.Name(FRAME, ast.Load()), method, ast.Load()), list(args), [])


def _const(v):
    if isinstance(v, (tuple, list)):
        return ast.Tuple([_const(x) for x in v], ast.Load())
    return ast.Constant(v)


def _name(n):
    return ast.Name(n, ast.Load())


def _lambda(body):
    empty = ast.arguments(posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[])
    return ast.Lambda(empty, body)


def _spec(target):
    """The names of a target: a name, a tuple of specs, or None."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, (ast.Tuple, ast.List)):
        if any(isinstance(t, ast.Starred) for t in target.elts):
            return None
        return tuple(_spec(t) for t in target.elts)
    return None


def _plain(v):
    """Is it a value of an f-string without a format or conversion?"""
    return isinstance(v, ast.FormattedValue) and v.conversion == -1 and v.format_spec is None


def _locals():
    return ast.Call(_name("locals"), [], [])


_BINOPS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip


def _pattern(p, subject):
    """The test that a pattern of `match` stands for; None when it binds parts of the value."""
    if isinstance(p, ast.MatchValue):
        return ast.Compare(_name(subject), [ast.Eq()], [p.value])
    if isinstance(p, ast.MatchSingleton):
        return ast.Compare(_name(subject), [ast.Is()], [_const(p.value)])
    if isinstance(p, ast.MatchAs) and p.pattern is None:
        return _const(True)
    if isinstance(p, ast.MatchOr):
        parts = [_pattern(q, subject) for q in p.patterns]
        return None if None in parts else ast.BoolOp(ast.Or(), parts)
    return None


class Rewriter(ast.NodeTransformer):
    def __init__(self):
        self.count = 0
        self.loops = []

    def temp(self, what):
        self.count += 1
        return f"__tl_{what}{self.count}"

    # ---- functions ----------------------------------------------------------------------------------------------

    def function(self, node):
        """The whole function: prologue, body, no decorators, no annotations, no defaults."""
        a = node.args
        names = [x.arg for x in a.posonlyargs + a.args + a.kwonlyargs]
        for x in a.posonlyargs + a.args + a.kwonlyargs + [v for v in (a.vararg, a.kwarg) if v]:
            x.annotation = None
        body = self.block(node.body)
        frame = ast.Assign(
            [ast.Name(FRAME, ast.Store())],
            ast.Call(_name(MAKE), [_const(names), ast.Tuple([_name(n) for n in names], ast.Load())], []),
        )
        end = [] if isinstance(node.body[-1], ast.Return) else [_put(self.returned(_const(None)), node.body[-1])]
        node.body = [_put(frame, node.body[0])] + body + end
        node.decorator_list, node.returns = [], None
        return node

    def visit_FunctionDef(self, node):
        if node.decorator_list:
            return node  # a macro: rewritten when it is made
        return Rewriter().function(node)

    def visit_AsyncFunctionDef(self, node):
        return node

    visit_ClassDef = visit_AsyncFunctionDef

    def block(self, stmts):
        out = []
        for s in stmts:
            new = self.visit(s)
            for n in new if isinstance(new, list) else [new]:
                if n is not None:
                    out.append(_put(n, s))
        return out

    def at(self, node, new):
        for n in new:
            _put(n, node)
        return new

    # ---- assignment ---------------------------------------------------------------------------------------------

    def visit_Assign(self, node):
        value = self.visit(node.value)
        targets = [self.visit(t) for t in node.targets]
        if len(targets) == 1:
            return self.assign(targets[0], value)
        tmp = self.temp("v")
        out = [ast.Assign([ast.Name(tmp, ast.Store())], _call("once", value))]
        return self.at(node, out + [self.assign(t, _name(tmp)) for t in targets])

    def assign(self, target, value):
        spec = _spec(target)
        many = isinstance(target, (ast.Tuple, ast.List))
        if spec is not None or many:
            value = _call("assign", _const(spec), value) if spec is not None else _call("each", value)
        return ast.Assign([target], value)

    def visit_AnnAssign(self, node):
        annotation = self.visit(node.annotation)
        if node.value is not None:
            value = self.visit(node.value)
            return self.assign(node.target, value)
        if not isinstance(node.target, ast.Name):
            return None
        n = node.target.id
        return ast.Assign(
            [ast.Name(n, ast.Store())], _call("annotate", _const(n), _lambda(annotation), _lambda(_name(n)))
        )

    def visit_AugAssign(self, node):
        value, op = self.visit(node.value), _const(_BINOPS[type(node.op)])
        t = node.target
        if isinstance(t, ast.Name):
            return ast.Assign([ast.Name(t.id, ast.Store())], _call("aug", _const(t.id), _name(t.id), op, value))
        if isinstance(t, ast.Subscript):
            return ast.Expr(_call("aug_store", self.visit(t.value), self.index(t.slice), op, value))
        node.value = value
        return node

    def index(self, s):
        if isinstance(s, ast.Slice):
            parts = [self.visit(p) if p is not None else _const(None) for p in (s.lower, s.upper, s.step)]
            return ast.Call(_name("slice"), parts, [])
        if isinstance(s, ast.Tuple):
            return ast.Tuple([self.index(e) for e in s.elts], ast.Load())
        return self.visit(s)

    # ---- control flow -------------------------------------------------------------------------------------------

    def visit_For(self, node):
        h, saved = self.temp("h"), self.temp("s")
        names = _stored([node.target] + node.body)
        carried = _carried(node.target, node.body)
        it = node.iter
        is_range = isinstance(it, ast.Call) and isinstance(it.func, ast.Name) and it.func.id == "range"
        it = self.visit(it)
        if is_range:
            it.func = _call("range_", it.func)
        self.loops.append(h)
        body = self.again(h, saved, carried, node) + self.block(node.body)
        self.loops.pop()
        ends = _const(_leaves(node))
        out = [
            ast.Assign([ast.Name(h, ast.Store())], _call("for_", it, _const(_spec(node.target)), ends)),
            ast.Assign([ast.Name(saved, ast.Store())], _call("save", _locals(), _const(names))),
            ast.For(node.target, _name(h), body, []),
            self.leave(h, saved, names, carried),
        ]
        return self.at(node, out) + self.otherwise(h, node)

    def otherwise(self, h, node):
        """The `else` of a loop stands after it, where the loop has a `break` under a condition."""
        if not _leaves(node):
            return self.block(node.orelse)
        return self.visit(_put(ast.If(_call("unbroken", _name(h)), node.orelse, []), node.orelse[0]))

    def again(self, h, saved, carried, node):
        """At the start of each iteration: names that each run of a loop of the chip begins with."""
        if not carried:
            return []
        call = self.unpack(carried, _call("again", _name(saved), _locals(), _const(carried)))
        return self.at(node, [ast.If(ast.Attribute(_name(h), "live", ast.Load()), [call], [])])

    def leave(self, h, saved, names, carried):
        call = _call("leave", _name(h), _name(saved), _locals(), _const(names), _const(carried))
        return ast.If(ast.Attribute(_name(h), "ends", ast.Load()), [self.unpack(names, call)], [])

    def unpack(self, names, call):
        if not names:
            return ast.Expr(call)
        return ast.Assign([ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())], call)

    def visit_While(self, node):
        h, saved = self.temp("h"), self.temp("s")
        names, carried = _stored(node.body), _carried(None, node.body)
        test = self.visit(node.test)
        self.loops.append(h)
        body = self.block(node.body)
        self.loops.pop()
        out = [
            ast.Assign(
                [ast.Name(h, ast.Store())],
                _call("while_", _lambda(test), _const(_leaves(node)), _const(endless(node))),
            ),
            ast.Assign([ast.Name(saved, ast.Store())], _call("save", _locals(), _const(names))),
            ast.While(ast.Call(ast.Attribute(_name(h), "next", ast.Load()), [], []), body, []),
            self.leave(h, saved, names, carried),
        ]
        return self.at(node, out) + self.otherwise(h, node)

    def visit_If(self, node):
        h, saved = self.temp("h"), self.temp("s")
        names = _stored(node.body + node.orelse)
        test = self.visit(node.test)
        body, orelse = self.block(node.body), self.block(node.orelse)

        def ask(method):
            return ast.Call(ast.Attribute(_name(h), method, ast.Load()), [], [])

        out = [
            ast.Assign([ast.Name(h, ast.Store())], _call("if_", test)),
            ast.Assign([ast.Name(saved, ast.Store())], _call("save", _locals(), _const(names))),
            ast.If(ask("then"), body, []),
        ]
        if orelse:
            if names:
                back = _call("between", _name(h), _name(saved), _locals(), _const(names))
                out.append(ast.If(ast.Attribute(_name(h), "ir", ast.Load()), [self.unpack(names, back)], []))
            out.append(ast.If(ask("orelse"), orelse, []))
        done = _call("merge", _name(h), _name(saved), _locals(), _const(names))
        out.append(ast.If(ask("end"), [self.unpack(names, done)], []))
        return self.at(node, out)

    def visit_Assert(self, node):
        said = _lambda(self.visit(node.msg)) if node.msg is not None else _const(None)
        node.test = _put(_call("assert_", self.visit(node.test), said), node.test)
        return node

    def visit_Match(self, node):
        """Patterns of values, with `|`, `_` and names, are a chain of `if`."""
        subject = self.temp("m")
        chain = []
        for case in reversed(node.cases):
            test, body = _pattern(case.pattern, subject), list(case.body)
            if test is None:  # it takes a value apart, which only Python can
                return self.generic_visit(node)
            name = getattr(case.pattern, "name", None)
            if name:
                body.insert(0, _put(ast.Assign([ast.Name(name, ast.Store())], _name(subject)), case.body[0]))
            if case.guard is not None:
                if name:
                    return self.generic_visit(node)
                test = ast.BoolOp(ast.And(), [test, case.guard])
            chain = [ast.copy_location(ast.If(test, body, chain), case.pattern)]
        first = ast.Assign([ast.Name(subject, ast.Store())], self.visit(node.subject))
        whole = ast.fix_missing_locations(ast.copy_location(ast.Module(chain, []), node)).body[0]
        made = self.visit(whole)
        return self.at(node, [first]) + (made if isinstance(made, list) else [made])

    def visit_Break(self, node):
        return self.jump(node, "break")

    def visit_Continue(self, node):
        return self.jump(node, "continue")

    def jump(self, node, word):
        if not self.loops:
            return node
        return ast.If(_call("jump", _name(self.loops[-1]), _const(word)), [node], [])

    def visit_Return(self, node):
        value = self.visit(node.value) if node.value is not None else _const(None)
        return self.returned(value)

    def returned(self, value):
        result = ast.Attribute(_name(FRAME), "result", ast.Load())
        return ast.If(_call("ret", value), [ast.Return(result)], [])

    def visit_Raise(self, node):
        self.generic_visit(node)
        return ast.If(_call("raise_", _lambda(node.exc)), [node], []) if node.exc is not None else node

    def visit_With(self, node):
        for item in node.items:
            spec = _spec(item.optional_vars) if item.optional_vars is not None else None
            item.context_expr = _put(_call("with_", self.visit(item.context_expr), _const(spec)), item.context_expr)
        node.body = self.block(node.body)
        return node

    # ---- expressions --------------------------------------------------------------------------------------------

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in PYTHONS:
            node.func = _put(_call("pythons", node.func), node.func)
        return node

    def visit_JoinedStr(self, node):
        self.generic_visit(node)
        if not any(map(_plain, node.values)):
            return node
        kept = (ast.Constant, ast.FormattedValue)
        parts = [v.value if _plain(v) else ast.JoinedStr([v]) if isinstance(v, kept) else v for v in node.values]
        return _put(_call("text", *parts), node)

    def visit_comprehension(self, node):
        self.generic_visit(node)
        node.iter = _put(_call("items", node.iter), node.iter)
        return node

    def visit_BoolOp(self, node):
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        values = [_lambda(self.visit(v)) for v in node.values]
        return _put(_call(method, *values), node)

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        return _put(_call("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node):
        parts = (self.visit(node.test), _lambda(self.visit(node.body)), _lambda(self.visit(node.orelse)))
        return _put(_call("ifexp", *parts), node)

    def visit_Compare(self, node):
        self.generic_visit(node)
        left, parts = node.left, []
        for op, right in zip(node.ops, node.comparators):
            part = ast.Compare(left, [op], [right])
            if isinstance(op, (ast.In, ast.NotIn)):
                part = _call("in_", left, right)
                part = _call("not_", part) if isinstance(op, ast.NotIn) else part
            parts.append(part)
            left = right
        if len(parts) == 1:
            return _put(parts[0], node) if isinstance(parts[0], ast.Call) else node
        return _put(_call("and_", *map(_lambda, parts)), node)


_CODE = {}  # (code object, file) -> (rewritten code object, line and column of its `def`)


def _compile(fn):
    tree = parse(fn)
    where = (fn.__code__.co_filename, tree.lineno, tree.col_offset + 1)
    tree = Rewriter().function(tree)
    name, tree.name = tree.name, "__tl_inner"  # so that in its body its own name means what it means outside
    free = [n for n in fn.__code__.co_freevars if n != MAKE]
    arguments = [ast.arg(n) for n in free + [MAKE]]
    outer = ast.FunctionDef(
        name="__tl_outer",
        args=ast.arguments(
            posonlyargs=[], args=arguments, vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
        ),
        body=[tree, ast.Return(_name(tree.name))],
        decorator_list=[],
    )
    # defaults are bound to the new function as they are; the tree only needs placeholders
    tree.args.defaults = [_const(None) for _ in tree.args.defaults]
    tree.args.kw_defaults = [d and _const(None) for d in tree.args.kw_defaults]
    module = ast.Module([_put(outer, tree)], [])
    ast.fix_missing_locations(module)
    code = compile(module, fn.__code__.co_filename, "exec", dont_inherit=True)
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code.replace(co_name=name), where


@contextlib.contextmanager
def _uncollected():
    """The collector of cycles waits: beside torch, one of its rounds takes longer than the whole compile, and a syntax
    tree makes enough objects to set one off."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def rewrite(fn, make_frame):
    """(fn as a tracing function, its place); `make_frame(names, values)` makes the frame object of a call."""
    key = (fn.__code__, fn.__code__.co_filename)  # equal code in two files is two places
    found = _CODE.get(key)
    if found is None:
        with _uncollected():
            found = _CODE[key] = _compile(fn)
    code, where = found
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    cells[MAKE] = types.CellType(make_frame)
    closure = tuple(cells.get(n) or types.CellType() for n in code.co_freevars)
    out = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    out.__kwdefaults__ = fn.__kwdefaults__
    return out, where
