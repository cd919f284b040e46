"""Breaks lowered programs in many ways and counts what the simulator's checks find: python tools/inject.py [FILE ...].

A *case* is a lowered program and its arguments: every .tl text of the test folders and every kernel that a Python
file starts. A *fault* is a small change of its text, of one kind of KINDS: a flag deleted, renumbered or moved, a
barrier gone, an address shifted or given to two live buffers, a guard dropped, an extent off by one; or of MISTAKES,
what people get wrong: a buffer too small, a tail taken for a full tile, a copy left out, another grid.

Whether a fault *matters* is decided without the checks: the changed program runs under a number of schedules (orders
of the pipes that the chip allows, see `tlc sim --schedule`) with poisoned memories, and some result differs from that
of the right program, or nothing can move any more. Then it runs once with checks, in the usual order: a fault is
found if there is a diagnostic (and found when compiled, if the compiler says so of the same text with its flags written
by hand). If there is none, but the numbers differ in the usual order too, the text has become
*another program*, right in itself; only a second opinion can tell (kernel.interpret runs the source). What remains is
*missed*. A diagnostic for a program that was not changed is a false alarm.

    --write FILE --title T    the table, as a part of a page
    --missed FILE             texts of what was missed
    --limit N                 faults of a kind in one case (0: all)    --schedules N    --seed N    --jobs N
    --kinds WORD,WORD         only the kinds whose name holds one of them
    --keep FILE --minutes N   results go there, a line a program; a run that was stopped goes on with the same options.
                              Programs are taken in a scattered order, so that a part of them is an even choice
    --again WORD,WORD         the same faults of these kinds are tried again, of the programs whose results were kept
    --collect FILE COMMAND    run a Python script (or -m MODULE ...) and keep the kernels that it starts as cases
"""

import argparse
import collections
import ctypes
import difflib
import json
import multiprocessing
import pathlib
import pickle
import random
import re
import runpy
import sys
import time
import zlib

import ml_dtypes
import numpy as np

from tilelang import _core

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ("test/sim", "test/pass", "test/random")  # texts that tests run
POISON = 0x5A
MAX_BYTES, MAX_SECONDS = 64 << 20, 1.0  # larger kernels are not collected
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}

# ---- cases -------------------------------------------------------------------------------------------------------


class Case:
    """A lowered text and arguments: arrays by parameter, scalars. run() leaves them as they are."""

    def __init__(self, name, text, args):
        self.name, self.text, self.args = name, text, args

    def run(self, text, checks, schedule=0):
        """(codes of warnings and errors, bytes of all arrays afterwards; None if it did not end well)."""
        program = _core.Program()
        if not program.load(self.name, text):
            return codes(program), None
        arrays = [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]
        scratch = self.workspaces(program, text, arrays)
        given = [(a.ctypes.data, a.shape) if isinstance(a, np.ndarray) else a for a in arrays]
        ok, _ = program.sim(given, checks=checks, threads=1, schedule=schedule)
        after = b"".join(a.tobytes() for i, a in enumerate(arrays) if isinstance(a, np.ndarray) and i not in scratch)
        return codes(program), after if ok else None

    @staticmethod
    def workspaces(program, text, arrays):
        """Which arrays are workspaces, which are no results. The changed text may want them larger or smaller; those
        that the compiler made come last, and are made here."""
        found = set()
        for i, p in enumerate(json.loads(program.signature_json())["params"] if "workspace" in text else ()):
            if not p.get("workspace") or not all(isinstance(n, int) for n in p["shape"]):
                continue
            found.add(i)
            if i < len(arrays) and arrays[i].shape == tuple(p["shape"]):
                continue
            kind = np.dtype(DTYPES[p["dtype"]])
            made = np.full(int(np.prod(p["shape"])) * kind.itemsize, POISON, np.uint8).view(kind).reshape(p["shape"])
            arrays[i : i + 1] = [made]
        return found


def codes(program):
    return [d["code"] for d in json.loads(program.diags_json()) if d["severity"] != "note"]


def said_when_compiled(name, text):
    """Codes of what the compiler says of the flags and barriers of a lowered text when they are written by hand."""
    program = _core.Program()
    source = re.sub(r'lowered\("[^"]*", (\w+)\)', r'after("memplan", \1)', text, count=1)
    if not program.load(name, source):
        return []
    program.lower(no_auto_sync=True)
    return [c for c in codes(program) if c in ("TL0701", "TL0702", "TL0704", "TL0705")]


def lowered(name, text):
    """(program, its lowered text); None if the text is no right program."""
    program = _core.Program()
    if not program.load(name, text):
        return None
    if not re.search(r"\blowered\(", text) and not program.lower():
        return None
    return program, program.text()


def arguments(program, settings):
    """Small random values like those of `tlc sim`, outputs poisoned. None: a size is not known."""
    made, values = [], dict(settings)
    source = np.random.default_rng(1)
    for p in json.loads(program.signature_json())["params"]:
        kind = np.dtype(DTYPES[p["dtype"]])
        if p["kind"] == "scalar":
            if p["name"] not in values:
                return None
            values[p["name"]] = float(values[p["name"]]) if kind.kind in "fV" else int(values[p["name"]])
            made.append(values[p["name"]])
            continue
        if not all(isinstance(s, int) for s in p["shape"]):
            return None
        data = source.integers(-8, 9, p["shape"])
        data = data / 8 if kind.kind in "fV" else data + 8 if kind.kind in "ub" else data
        data = np.ascontiguousarray(data.astype(kind))
        if p["out"] or p["workspace"]:
            data.view(np.uint8)[...] = POISON
        made.append(data)
    return made


def text_case(path):
    """The case of a .tl file; None if it is no right program or touches no tensor."""
    source = path.read_text(errors="replace")
    wrong = path.with_suffix(".err")
    if "gm " not in source or (wrong.exists() and ": error TL" in wrong.read_text()):
        return None
    found = lowered(str(path), source)
    if not found:
        return None
    args = arguments(found[0], [s.split("=") for s in re.findall(r"--arg (\w+=[-\w.]+)", source)])
    return args and Case(str(path), found[1], args)


class Recorder:
    """Stands before a Program and keeps what it simulates."""

    def __init__(self, program, name, cases):
        self.program, self.name, self.cases = program, name, cases

    def __getattr__(self, name):
        return getattr(self.program, name)

    def sim(self, args, **options):
        params, copies = json.loads(self.program.signature_json())["params"], []
        for p, a in zip(params, args):
            if isinstance(a, tuple):
                kind = np.dtype(DTYPES[p["dtype"]])
                raw = ctypes.string_at(a[0], int(np.prod(a[1])) * kind.itemsize)
                a = np.frombuffer(raw, kind).reshape(a[1]).copy()
            copies.append(a)
        began = time.perf_counter()
        result = self.program.sim(args, **{**options, "checks": False})
        small = sum(a.nbytes for a in copies if isinstance(a, np.ndarray)) < MAX_BYTES
        if result[0] and small and time.perf_counter() - began < MAX_SECONDS:
            for a, p in zip(copies, params):
                if p.get("out") or p.get("workspace"):
                    a.view(np.uint8)[...] = POISON
            case = Case(self.name, self.program.text(), copies)
            self.cases.setdefault(zlib.crc32(case.text.encode()), case)
        return result


def collect(out, command):
    """Runs a Python command in this process; every kernel that it starts becomes a case in the file `out`."""
    from tilelang.kernel import Kernel

    cases, run = {}, Kernel._run

    def recorded(kernel, *args):
        program = kernel._program
        if program is None:
            return run(kernel, *args)
        kernel._program = Recorder(program, f"{pathlib.Path(command[0]).name}:{kernel.name}", cases)
        try:
            return run(kernel, *args)
        finally:
            kernel._program = program

    Kernel._run = recorded
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            sys.path.insert(0, str(pathlib.Path(command[0]).parent))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit:
        pass
    finally:
        with open(out, "wb") as f:
            pickle.dump(list(cases.values()), f)
        print(f"{out}: {len(cases)} cases")


def cases_of(paths):
    for path in paths:
        if path.suffix == ".cases":
            with open(path, "rb") as f:
                yield from pickle.load(f)
        elif case := text_case(path):
            yield case


# ---- faults ------------------------------------------------------------------------------------------------------

FLAG = re.compile(r"(\s*)(set_flag|wait_flag) (\w+) -> (\w+) #(.*?)( @[\d:]+)?$")
CROSS = re.compile(r"(\s*)(cross_set|cross_wait) (\w+ )?#(.*?)( mode\(\d\))?( @[\d:]+)?$")
ALL = re.compile(r"\s*sync_all")
ALLOC_SHAPE = re.compile(r"\s*alloc %\S+: \w+ \w+\[(.*?)\]")
BARRIER = re.compile(r"\s*barrier ")
ALLOC = re.compile(r"\s*alloc (%\S+): (\w+) .* at (\d+)")
OPERATION = re.compile(r"\s*\w+ .*->")
PIPES = {"cube": ("mte1", "mte2", "m", "fix", "s"), "vector": ("mte2", "v", "mte3", "s")}
OPENING = re.compile(r".*\{\s*$")


def ids_of(expr):
    """The ids that `e` may be: 3; %i % 2; (%i - 4) % 2 + 1."""
    if expr.strip().isdigit():
        return {int(expr)}
    found = re.search(r"% (\d+)(?: \+ (\d+))?$", expr)
    if not found:
        return set(range(8))
    return {int(found[2] or 0) + i for i in range(int(found[1]))}


def is_sync(line):
    return FLAG.match(line) or CROSS.match(line) or BARRIER.match(line) or ALL.match(line)


def flag_groups(lines):
    """Lines that stand and fall together: all sets and waits of an id of a pipe pair, or of a cross-core flag."""
    groups = []
    for i, line in enumerate(lines):
        flag, cross = FLAG.match(line), CROSS.match(line)
        if not flag and not cross:
            continue
        names = {(flag[3], flag[4], n) for n in ids_of(flag[5])} if flag else {(n,) for n in ids_of(cross[4])}
        mine = {i}
        for g in [g for g in groups if g[0] & names]:
            groups.remove(g)
            names, mine = names | g[0], mine | g[1]
        groups.append((names, mine))
    return [g[1] for g in groups]


def without(lines, gone):
    return [line for i, line in enumerate(lines) if i not in gone]


def changed(lines, i, line):
    return lines[:i] + [line] + lines[i + 1 :]


def moved(lines, i, to):
    rest = without(lines, {i})
    at = to if to < i else to - 1
    return rest[:at] + [lines[i]] + rest[at:]


def delete_pair(lines):
    for group in flag_groups(lines):
        yield without(lines, group)


def delete_one(lines):
    for i, line in enumerate(lines):
        if FLAG.match(line) or CROSS.match(line):
            yield without(lines, {i})


def delete_barrier(lines):
    for i, line in enumerate(lines):
        if BARRIER.match(line) or ALL.match(line):
            yield without(lines, {i})


def swap(lines):
    """A flag or barrier changes places with the instruction beside it."""
    for i, line in enumerate(lines[:-1]):
        a, b = is_sync(line), is_sync(lines[i + 1])
        if bool(a) != bool(b) and OPERATION.match(line if b else lines[i + 1]):
            yield lines[:i] + [lines[i + 1], line] + lines[i + 2 :]


def renumber(lines):
    """Another id, or another pipe, at one end."""
    for i, line in enumerate(lines):
        flag, cross = FLAG.match(line), CROSS.match(line)
        if flag:
            own = ids_of(flag[5])
            same = [o for x in lines if (o := FLAG.match(x)) and o[3] == flag[3] and o[4] == flag[4]]
            taken = {n for o in same for n in ids_of(o[5])}
            for n in sorted((taken - own) | {max(taken) + 1} if max(taken) < 7 else taken - own):
                yield changed(lines, i, f"{flag[1]}{flag[2]} {flag[3]} -> {flag[4]} #{n}")
            pairs = {(o[3], o[4]) for x in lines if (o := FLAG.match(x))} - {(flag[3], flag[4])}
            for src, dst in sorted(pairs):
                if src == flag[3] or dst == flag[4]:
                    yield changed(lines, i, f"{flag[1]}{flag[2]} {src} -> {dst} #{flag[5]}")
        if cross:
            taken = {n for x in lines if (o := CROSS.match(x)) for n in ids_of(o[4])}
            for n in sorted((taken | {max(taken) + 1}) - ids_of(cross[4])):
                yield changed(lines, i, f"{cross[1]}{cross[2]} {cross[3] or ''}#{n}{cross[5] or ''}")


def move(lines):
    """A set comes some instructions earlier, a wait or a barrier later, or either leaves its loop."""
    for i, line in enumerate(lines):
        if not is_sync(line):
            continue
        early = "set" in line.split("#")[0]
        step, n, at = (-1, 0, i - 1) if early else (1, 0, i + 1)
        while 0 < at < len(lines) - 1 and not OPENING.match(lines[at]) and not lines[at].strip().startswith("}"):
            if OPERATION.match(lines[at]) and not is_sync(lines[at]):
                n += 1
                if n in (1, 2, 4):
                    yield moved(lines, i, at if early else at + 1)
            at += step
        edge = lines[at].strip()
        if edge.startswith("for ") if early else edge.startswith("}"):
            yield moved(lines, i, at if early else at + 1)


def shift_address(lines):
    for i, line in enumerate(lines):
        found = ALLOC.match(line)
        for by in (-256, -32, 32, 256) if found else ():
            if int(found[3]) + by >= 0:
                yield changed(lines, i, re.sub(r" at \d+", f" at {int(found[3]) + by}", line))


def shorten_lifetime(lines):
    """The address of another buffer of the memory, which is then reused too early."""
    places = [(i, *m.groups()) for i, line in enumerate(lines) if (m := ALLOC.match(line))]
    for i, _, space, at in places:
        for j, _, other, there in places:
            if i != j and space == other and at != there:
                yield changed(lines, i, re.sub(r" at \d+", f" at {there}", lines[i]))


def arguments_of_call(text, start):
    """The arguments of the call whose `(` stands at `start`, and where it ends."""
    depth, parts, begin = 0, [], start + 1
    for i in range(start, len(text)):
        c = text[i]
        depth += c in "([" and 1 or -(c in ")]")
        if (c == "," and depth == 1) or depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
        if depth == 0:
            return parts, i + 1
    return parts, len(text)


def drop_guard(lines):
    """min(a, b) becomes a or b; a condition becomes true."""
    for i, line in enumerate(lines):
        for call in re.finditer(r"\b(min|max)\(", line):
            parts, end = arguments_of_call(line, call.end() - 1)
            for part in parts if len(parts) == 2 else ():
                yield changed(lines, i, line[: call.start()] + f"({part})" + line[end:])
        if re.match(r"\s*if .* \{$", line):
            yield changed(lines, i, re.sub(r"if .* \{", "if true {", line))


def off_by_one(lines):
    """An extent of one operand, of all operands that share it, or of a loop, one more or one less."""
    for i, line in enumerate(lines):
        loop = re.match(r"(\s*for .*\.\.)(\d+)( .*)$", line)
        if loop:
            for n in (int(loop[2]) - 1, int(loop[2]) + 1):
                yield changed(lines, i, f"{loop[1]}{n}{loop[3]}")
        extents = list(re.finditer(r"\+: (\d+)", line))
        for m in extents:
            for n in (int(m[1]) - 1, int(m[1]) + 1):
                yield changed(lines, i, f"{line[: m.start(1)]}{n}{line[m.end(1) :]}")
        for old in sorted({m[1] for m in extents}):
            if sum(m[1] == old for m in extents) > 1:
                for n in (int(old) - 1, int(old) + 1):
                    yield changed(lines, i, re.sub(rf"\+: {old}\b", f"+: {n}", line))


def loop_around(lines, i):
    """(index, begin, end) of the innermost loop around line i; None: there is none."""
    depth = 0
    for j in range(i - 1, -1, -1):
        depth += lines[j].strip().startswith("}") - bool(OPENING.match(lines[j]))
        loop = re.match(r"\s*for (%\S+) in (.*?)\.\.(.*?) (?:step .*|pipeline.*)?\{", lines[j])
        if depth < 0 and loop:
            return loop.groups()
        if depth < 0:
            depth = 0
    return None


def some_iterations(lines):
    """One end of a flag, or a barrier, only in all iterations but the first, or but the last."""
    for i, line in enumerate(lines):
        loop = is_sync(line) and not ALL.match(line) and loop_around(lines, i)
        if loop:
            var, begin, end = loop
            for cond in (f"{var} != {begin}", f"{var} != {end} - 1"):
                yield lines[:i] + [f"if {cond} {{", line, "}"] + lines[i + 1 :]


def some_blocks(lines):
    """One end of a flag, or a barrier, in a branch that not all blocks take."""
    var = next((m[1] for x in lines if (m := re.search(r"grid\((%\w+): [2-9]", x))), None)
    for i, line in enumerate(lines):
        if var and is_sync(line) and not ALL.match(line):
            yield lines[:i] + [f"if {var} != 1 {{", line, "}"] + lines[i + 1 :]


def same_id(lines):
    """An id that goes round with the iterations stands still."""
    for i, line in enumerate(lines):
        flag = FLAG.match(line)
        if flag and "%" in flag[5]:
            yield changed(lines, i, f"{flag[1]}{flag[2]} {flag[3]} -> {flag[4]} #{min(ids_of(flag[5]))}")


def other_mode(lines):
    for i, line in enumerate(lines):
        if CROSS.match(line) and (m := re.search(r"mode\((\d)\)", line)):
            for n in {"0", "1", "2"} - {m[1]}:
                yield changed(lines, i, line.replace(m[0], f"mode({n})"))


def other_version(lines):
    """The other half of a double buffer, in one operand."""
    for i, line in enumerate(lines):
        for m in re.finditer(r"\[(\(.*?\)|%\w+) % (\d+) \+: 1", line):
            yield changed(lines, i, f"{line[: m.start()]}[({m[1]} + 1) % {m[2]} +: 1{line[m.end() :]}")


def accumulator(lines):
    """A product that always begins anew, or never."""
    for i, line in enumerate(lines):
        found = re.search(r" init\((.*)\)(?= @|$)", line)
        for word in ("true", "false") if found else ():
            yield changed(lines, i, line.replace(found[0], f" init({word})"))


def stride_off(lines):
    """A factor of an index is another one: rows that lie closer or wider than the tensor says."""
    for i, line in enumerate(lines):
        for m in re.finditer(r" \* (\d+)(?= |,|\))", line) if OPERATION.match(line) else ():
            for n in (int(m[1]) - 1, int(m[1]) + 1, int(m[1]) // 2):
                yield changed(lines, i, f"{line[: m.start(1)]}{n}{line[m.end(1) :]}")


def other_transpose(lines):
    for i, line in enumerate(lines):
        if re.match(r"\s*l1_to_l0[ab] ", line):
            at = re.search(r"( @[\d:]+)?$", line).start()
            yield changed(lines, i, line.replace(" trans", "") if " trans" in line else f"{line[:at]} trans{line[at:]}")


def same_block(lines):
    """The part of a block in a tensor that it writes, or reads, is that of another block."""
    grid = {m[0] for x in lines if x.startswith("kernel") for m in re.finditer(r"%\w+", x.split("grid(")[-1])}
    for i, line in enumerate(lines):
        for var in sorted(grid) if OPERATION.match(line) else ():
            for m in re.finditer(re.escape(var) + r"\b", line):
                yield changed(lines, i, f"{line[: m.start()]}({var} // 2){line[m.end() :]}")


def depths(lines):
    """How many loops stand around each line."""
    stack, found = [], []
    for line in lines:
        if line.strip().startswith("}"):
            stack.pop()
        found.append(sum(stack))
        if OPENING.match(line):
            stack.append(bool(re.match(r"\s*(for|while) ", line)))
    return found


def no_prime(lines):
    """The set before a loop, the wait after it, or both, of a flag that the loop waits for and sets."""
    deep = depths(lines)
    for group in flag_groups(lines):
        outside = {i for i in group if not deep[i]}
        if outside and outside != group:
            yield from (without(lines, {i}) for i in sorted(outside))
            yield without(lines, outside)


def other_way(lines):
    """A flag from the pipe that should wait to the one that should set."""
    for group in flag_groups(lines):
        if all(FLAG.match(lines[i]) for i in group):
            yield [re.sub(r"(\w+) -> (\w+) #", r"\2 -> \1 #", x) if i in group else x for i, x in enumerate(lines)]


def other_pipe(lines):
    """A cross-core flag that another pipe sets or waits on."""
    side = ""
    for i, line in enumerate(lines):
        side = line.strip().removesuffix(" {") if line.strip() in ("cube {", "vector {") else side
        cross = CROSS.match(line)
        for pipe in PIPES[side] if cross and cross[3] else ():
            if cross[3] != f"{pipe} ":
                yield changed(lines, i, line.replace(f" {cross[3]}#", f" {pipe} #"))


def too_small(lines):
    """A dimension of a workspace, or of a buffer, is one less, or half."""
    for i, line in enumerate(lines):
        places = re.finditer(r"\[([^\]]*)\](?= workspace)", line) if line.startswith("kernel") else ()
        places = [ALLOC_SHAPE.match(line)] if ALLOC_SHAPE.match(line) else places
        for place in places:
            sizes = place[1].split(", ")
            for d, n in enumerate(sizes):
                for less in {int(n) - 1, int(n) // 2} - {0} if n.isdigit() else ():
                    shape = ", ".join([*sizes[:d], str(less), *sizes[d + 1 :]])
                    yield changed(lines, i, line[: place.start(1)] + shape + line[place.end(1) :])


def one_for_all(lines):
    """A workspace in which each block has a part is shared by all of them."""
    head = next(x for x in lines if x.startswith("kernel"))
    grid = re.findall(r"%[\w.]+", head.split("grid(")[-1])
    for name in re.findall(r"(%[\w.]+): gm \w+\[[^\]]*\] workspace", head):
        part = re.compile(re.escape(name) + r"\[([^:]*?) \+:")

        def first(m):
            return name + "[" + re.sub("|".join(map(re.escape, sorted(grid, reverse=True))) + r"\b", "0", m[1]) + " +:"

        yield [part.sub(first, x) if OPERATION.match(x) else x for x in lines]


def tail_as_data(lines):
    """A tail is taken for a full tile: its pad is not cleared, or something else, or what works on it takes it all."""
    full = r"\bmin\((\d+), (?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    for i, line in enumerate(lines):
        if re.match(rf"\s*if {full} < \d+ {{", line) and i + 2 < len(lines) and lines[i + 2].strip().startswith("}"):
            yield without(lines, {i, i + 1, i + 2})
        if OPERATION.match(line) and re.search(full, line):
            yield changed(lines, i, re.sub(full, r"\1", line))
        if re.match(r"\s*for ", line) and re.search(full, line):
            yield changed(lines, i, re.sub(full, r"\1", line))
        if (pad := re.search(r" pad\((.*?)(\d[\d.e+-]*)(\)+)(?= @|$)", line)) and not pad[2].startswith("1"):
            yield changed(lines, i, line.replace(pad[0], f" pad({pad[1]}{'1.0' if '.' in pad[2] else '1'}{pad[3]}"))


def other_grid(lines):
    """More blocks, or fewer, than the tensors have parts."""
    i, line = next((i, x) for i, x in enumerate(lines) if x.startswith("kernel"))
    for m in re.finditer(r"%[\w.]+: (\d+)(?=[,)])", line.split("lowered(")[0]):
        for n in {int(m[1]) - 1, int(m[1]) + 1, int(m[1]) // 2, 2 * int(m[1])} - {0}:
            yield changed(lines, i, line[: m.start(1)] + str(n) + line[m.end(1) :])


def same_core(lines):
    """Both vector cores of a block take the part of one of them, in one statement."""
    name = next((m[1] for x in lines if (m := re.search(r" vid\((%[\w.]+)\)", x))), None)
    for i, line in enumerate(lines):
        if name and OPERATION.match(line) and re.search(re.escape(name) + r"\b", line):
            for n in "01":
                yield changed(lines, i, re.sub(re.escape(name) + r"\b", n, line))


def other_round(lines):
    """The versions of a buffer, or the ids of a flag, go round in one more or one less."""
    for i, line in enumerate(lines):
        for m in re.finditer(r"% (\d+)(?= \+: 1\b|$| @)", line):
            for n in {int(m[1]) - 1, int(m[1]) + 1} - {0}:
                yield changed(lines, i, line[: m.start(1)] + str(n) + line[m.end(1) :])


def no_fill(lines):
    """What is summed up, or the rest of a tile, is not cleared first."""
    for i, line in enumerate(lines):
        if re.match(r"\s*(l1_)?fill ", line):
            yield without(lines, {i})


def no_copy(lines):
    """A load, a store, or a copy on the chip is left out."""
    for i, line in enumerate(lines):
        if re.match(r"\s*\w+_to_\w+ ", line):
            yield without(lines, {i})


def other_order(lines):
    """Two instructions change places."""
    for i, line in enumerate(lines[:-1]):
        if all(OPERATION.match(x) and not is_sync(x) for x in (line, lines[i + 1])):
            yield [*lines[:i], lines[i + 1], line, *lines[i + 2 :]]


def other_buffer(lines):
    """Another buffer of the same memory, type and shape."""
    kinds = {m[1]: m[2] for x in lines if (m := re.match(r"\s*alloc (%\S+): (.*?) at \d+", x))}
    for i, line in enumerate(lines):
        for m in re.finditer(r"%[\w.]+", line) if OPERATION.match(line) and not is_sync(line) else ():
            for other in kinds:
                if other != m[0] and kinds[other] == kinds.get(m[0]):
                    yield changed(lines, i, line[: m.start()] + other + line[m.end() :])


def other_cast(lines):
    for i, line in enumerate(lines):
        found = re.match(r"\s*cast .*( mode\((\w+)\))", line)
        for word in {"none", "rint", "floor", "ceil", "round", "trunc"} - {found[2]} if found else ():
            yield changed(lines, i, line.replace(found[1], f" mode({word})"))


KINDS = {
    "both ends of a flag deleted": delete_pair,
    "one end of a flag deleted": delete_one,
    "barrier or sync_all deleted": delete_barrier,
    "flag or barrier swapped with an instruction": swap,
    "flag renumbered, or on another pipe": renumber,
    "flag or barrier moved": move,
    "address shifted": shift_address,
    "lifetime shortened: an address given to two": shorten_lifetime,
    "guard dropped": drop_guard,
    "extent off by one": off_by_one,
}
MISTAKES = {
    "flag or barrier in some iterations only": some_iterations,
    "flag or barrier in some blocks only": some_blocks,
    "id of a flag the same in all iterations": same_id,
    "cross-core flag of another mode": other_mode,
    "version of a buffer off by one": other_version,
    "accumulator begun always, or never": accumulator,
    "factor of an index another one": stride_off,
    "operand transposed the other way": other_transpose,
    "part of another block": same_block,
    "part of the other vector core": same_core,
    "set before a loop, or wait after it, missing": no_prime,
    "flag the other way round": other_way,
    "cross-core flag on another pipe": other_pipe,
    "versions or ids go round in another number": other_round,
    "workspace or buffer too small": too_small,
    "one workspace for all blocks": one_for_all,
    "tail taken for a full tile": tail_as_data,
    "fill left out": no_fill,
    "copy left out": no_copy,
    "two instructions change places": other_order,
    "another buffer": other_buffer,
    "another number of blocks": other_grid,
    "another rounding of a cast": other_cast,
}
ALL_KINDS = KINDS | MISTAKES
CHANGES_FLAGS = {delete_pair, delete_one, delete_barrier, swap, renumber, move, some_iterations, some_blocks, same_id}
CHANGES_FLAGS |= {other_mode, no_prime, other_way, other_pipe}

# ---- trying them -------------------------------------------------------------------------------------------------


def tries(case, kind, limit, rng):
    lines = case.text.splitlines()
    found = list(dict.fromkeys("\n".join(x) + "\n" for x in ALL_KINDS[kind](lines)))
    return rng.sample(found, limit) if limit and len(found) > limit else found


def chosen(options, words=None):
    return [k for k in ALL_KINDS if any(word in k for word in (words or options.kinds).split(","))]


def judge(case, options, again=()):
    """[(kind, text, verdict, codes, found when compiled)] of a case, or a string that says why it is no case. `again`:
    only of these kinds, of a case that was judged before.

    Verdicts: refused (by the verifier), found, another (program), missed, latent (found, but no result changed), quiet.
    """
    started, right = case.run(case.text, True)
    if right is None or started:
        return f"{started}"
    began = time.process_time()
    case.run(case.text, False, 1)
    if not again and time.process_time() - began > options.seconds:
        return "it runs too long"
    seeds = [s for s in range(options.schedules + 1) if case.run(case.text, False, s)[1] == right]
    if not seeds:
        return "its numbers depend on the schedule"
    if said_when_compiled(case.name, case.text):
        return "false alarm when compiled"
    rng = random.Random(options.seed + zlib.crc32(case.text.encode()))
    results = []
    for kind in chosen(options):
        texts = tries(case, kind, options.limit, rng)
        for text in texts if not again or kind in again else ():
            refused = not _core.Program().load(case.name, text)
            found_codes, _ = case.run(text, True)
            matters = not refused and any(case.run(text, False, s)[1] != right for s in seeds)
            if refused:
                verdict = "refused"
            elif found_codes:
                verdict = "found" if matters else "latent"
            elif matters:
                verdict = "another" if case.run(text, False)[1] != right else "missed"
            else:
                verdict = "quiet"
            flags = verdict == "found" and ALL_KINDS[kind] in CHANGES_FLAGS
            early = flags and bool(said_when_compiled(case.name, text))
            results.append((kind, text, verdict, found_codes, early))
    return results


def work(item):
    """A line of the results: [[kind, verdict, codes, found when compiled, difference]], or why it is no case. `kept`:
    the line of an earlier run, or None."""
    case, options, kept = item
    again = chosen(options, options.again) if kept else ()
    found = judge(case, options, again)
    if not isinstance(found, str):
        found = [
            (kind, verdict, codes, early, difference(case.text, text) if verdict in ("missed", "another") else "")
            for kind, text, verdict, codes, early in found
        ]
        found += [x for x in kept["found"] if x[0] not in again] if kept else []
    return {"case": number(case), "name": case.name, "found": found, "again": again_mark(options)}


def again_mark(options):
    return f"{options.again}: {options.note}" if options.again else ""


def number(case):
    return zlib.crc32(f"{case.name}\n{case.text}".encode())


def percent(part, of):
    """Rounded down, so that no share reads better than it is."""
    return f"{10000 * part // of / 100:.2f} %" if of else ""


class Score:
    """What was counted of one kind: faults by verdict, and the first code of those with a diagnostic."""

    def __init__(self):
        self.verdicts, self.codes, self.early = collections.Counter(), collections.Counter(), 0

    def add(self, verdict, codes, early):
        self.verdicts[verdict] += 1
        self.early += early
        self.codes.update(codes[:1])

    def row(self, kind):
        v, n = self.verdicts, sum(self.codes.values())
        matter = v["found"] + v["another"] + v["missed"]
        share = [percent(x, matter) for x in (v["found"], v["found"] + v["another"])]
        most = ", ".join(f"{c} {round(100 * m / n)} %" for c, m in self.codes.most_common(4))
        cells = [kind, v.total(), v["refused"], matter, v["found"], self.early or "", v["another"], v["missed"], *share]
        return f"| {' | '.join(map(str, [*cells, v['latent'], most]))} |"


def results(cases, options):
    """Lines of the results, kept ones first, until the time is up."""
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    lines = [json.loads(x) for x in options.keep.open()] if options.keep and options.keep.exists() else []
    kept = {x["case"]: x for x in lines}  # the last of a case
    done = {
        n
        for n, x in kept.items()
        if not options.again or x.get("again") == again_mark(options) or isinstance(x["found"], str)
    }
    order = sorted(range(len(cases)), key=lambda i: i * 0.6180339887 % 1)
    numbers = [number(c) for c in cases]
    yield from (kept[n] for n in done & set(numbers))
    if options.again:
        order = [i for i in order if numbers[i] in kept]
    left = (
        (cases[i], options, kept.get(numbers[i]))
        for i in order
        if numbers[i] not in done and time.monotonic() < until
    )
    pool = multiprocessing.Pool(options.jobs) if options.jobs > 1 else None
    for line in (pool.imap if pool else map)(work, left):
        if options.keep:
            with options.keep.open("a") as f:
                f.write(json.dumps(line) + "\n")
        yield line
    if pool:
        pool.close()


def score(cases, options):
    """(scores by kind, names of cases tried, [(case, diagnostics)] that are no cases, [(case, kind, difference)] that
    were missed, how many cases there are)."""
    cases = list(cases)
    scores, tried, unfit, missed = {k: Score() for k in chosen(options)}, [], [], []
    for line in results(cases, options):
        if isinstance(line["found"], str):
            unfit.append((line["name"], line["found"]))
            continue
        tried.append(line["name"])
        for kind, verdict, codes, early, change in line["found"]:
            scores[kind].add(verdict, codes, early)
            if change:
                missed.append((line["name"], f"{kind}, {verdict}", change))
    return scores, tried, unfit, missed, len({number(c) for c in cases})


HEAD = (
    "| fault | injected | refused when read | can change a result | found by the checks | of these when compiled "
    "| another program | missed | found | with a second opinion | found, no result changed | first message |\n"
    "|---" + "|--:" * 10 + "|---|"
)


def table(scores):
    total = Score()
    for s in scores.values():
        total.verdicts += s.verdicts
        total.codes += s.codes
        total.early += s.early
    return "\n".join([HEAD, *(s.row(k) for k, s in scores.items()), total.row("**all**")])


def tables(scores):
    """Faults of the usual kinds, and other mistakes."""
    groups = [{k: s for k, s in scores.items() if (k in MISTAKES) == other} for other in (False, True)]
    return "\n\nOther mistakes that are made:\n\n".join(table(g) for g in groups if g)


def difference(before, after):
    old, new = before.splitlines(), after.splitlines()
    return "\n".join(
        x for x in difflib.unified_diff(old, new, lineterm="", n=1) if not x.startswith(("---", "+++", "@@"))
    )


PAGE = """# What the checks find

Made by `python tools/inject.py --write docs/checker.md`; the file says how. Each row is one kind of small change to a
lowered program. Whether a change matters is decided without the checks: the changed program runs under {schedules}
orders of the pipes that the chip allows, with poisoned memories, and a result differs or nothing can move any more.

* *refused when read*: the verifier has a rule against it; it never runs.
* *found by the checks*: one run with checks, in the usual order, reports an error, or a warning that names the place.
* *of these when compiled*: the same flags and barriers written by hand in a program that is compiled: the compiler
  warns of them, so nothing need run.
* *another program*: nothing is unordered, unwritten or out of bounds, and the numbers are wrong in every run: the text
  says something else, and says it properly. Only a second opinion can tell; `kernel.interpret` is one.
* *missed*: wrong numbers under some schedule, and no message. This is what the checks are there to prevent.
* *found, no result changed*: an error that none of the schedules turned into wrong numbers; mostly unordered
  accesses that need another timing.

What is left as *another program* is mostly a loop with one iteration less, an instruction that works in place on one
row or column less, an index with another factor, the part of another block or vector core, another buffer of the same
shape, a square operand that is transposed, another rounding: everything that is read was written, in order, and
everything that is returned, too. So it is with a tail whose pad enters a sum or a maximum: the pad holds a value, and
nothing in a lowered program tells it from data. What a check can still see of it is what was left over: elements of an
output that nobody wrote (TL0818), the end of an operand of a product that nobody loaded (TL0819) or that lies in L0 and
no product took (TL0820), gaps between the tiles of a tensor (TL0821), a transfer with elements on one side only
(TL0804), a product that the next iteration overwrites (TL0283).

## What is said of flags and barriers written by hand

* A missing order is told once, for the nearest access that needs it, and all of a program in one run, up to eight. The
  fix names the statements and the line that they belong before; `test/test_checker.py` writes them there and wants
  nothing left.
* What orders nothing is named by `kernel.explain()` with the lines to delete, all of which may go at once, and
  `kernel.profile()` times the program without them. A line that also runs on the other kind of core, or stands for
  several flags of which one is needed, is not named.
* The compiler decides both on the trace of all iterations of a block of one core, up to 6000 events; of longer ones it
  takes three to five iterations of each loop. It says nothing where a flag, barrier or `break` hangs on what only a run
  knows (a block index, a scalar argument, data), where the id of a flag does, and of accesses whose place or extent
  does: then the run with checks decides.
* The cores of a block are run against each other, all iterations, up to 12000 steps a core, of the first and the last
  block. The compiler says which flag, inside a core or between cores, is set and waited for unequally often (TL0702);
  which waits hold each other up for ever (TL0704, both lines); which set may be lost, or serve another wait (TL0705);
  and which bytes of GM one core writes and another one reads with no flag between them (TL0701, with the flag to write
  and whether it must come back). Cross-core flags that order nothing are named like the others; all blocks must agree,
  no flag may come to hold more sets than it can.
* Left to the run: two cores that write to the same place, for it may be the same values; what blocks that wait for each
  other (mode 0, `sync_all`) order beyond their own; conditions, trip counts, ids and places that data or an argument
  decides.

False alarms: none known. Every kernel of the tests runs with checks and must not report anything, and so must the
random programs of `tools/randprog.py`. The flags and barriers of all these programs, taken as written by hand, are
compiled without a warning. Left out of the tables are programs that are wrong as they are (tests of messages; kernels
of the collection that lack a barrier or read what nothing wrote) and those that take long.

{parts}
"""


def part(title, found, note=""):
    scores, tried, unfit, _, of = found
    some = f", evenly chosen of {of}" if len(tried) + len(unfit) < of else ""
    text = f"## {title}\n\n{tables(scores)}\n\n{len(tried)} programs{some}"
    return text + (f"; {len(unfit)} were left out." if unfit else ".") + (f" {note}." if note else "")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("files", nargs="*", type=pathlib.Path, help=".tl texts and .cases; default: texts that tests run")
    p.add_argument("--write", type=pathlib.Path)
    p.add_argument("--limit", type=int, default=8)
    p.add_argument("--schedules", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=0.5, help="a program that runs longer is left out")
    p.add_argument("--missed", type=pathlib.Path)
    p.add_argument("--kinds", default="", help="only the kinds whose name holds one of these")
    p.add_argument("--note", default="", help="stands below the table: of which commit it is")
    p.add_argument("--keep", type=pathlib.Path)
    p.add_argument("--again", default="")
    p.add_argument("--minutes", type=float)
    p.add_argument("--title", default="Programs of the tests and examples")
    if sys.argv[1:2] == ["--collect"]:
        return collect(sys.argv[2], sys.argv[3:])
    options = p.parse_args()
    began = time.perf_counter()
    found = score(cases_of(options.files or sorted(p for d in RUN for p in (ROOT / d).rglob("*.tl"))), options)
    text = part(options.title, found, options.note)
    print(f"{text}\n{time.perf_counter() - began:.0f} s")
    for name, why in found[2]:
        print(f"left out: {name}: {why}")
    if options.write:
        old = options.write.read_text() if options.write.exists() else ""
        parts = dict.fromkeys(re.findall(r"^## .*?(?=^## |\Z)", old, re.M | re.S))
        ours = (f"## {options.title}\n", "## What is said")
        parts = [x.strip() for x in parts if not x.startswith(ours)] + [text]
        page = PAGE.format(schedules=options.schedules + 1, parts="\n\n".join(sorted(parts, reverse=True)))
        options.write.write_text(page)
    if options.missed:
        text = (f"== {name}: {k}\n{change}\n" for name, k, change in found[3])
        options.missed.write_text("".join(text))


if __name__ == "__main__":
    main()
