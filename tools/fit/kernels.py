"""The published kernels as lowered IR text: each function returns (text, shapes of the tensors).

The schedules are those their authors describe: tile sizes, buffers, who waits for whom. What their libraries add
(objects, run-time tiling) is not in the text.
"""

HEAD = 'tl 1\nfile "published.py"\n'


class Body:
    """Lines of a block with indentation and places."""

    def __init__(self):
        self.lines, self.depth, self.line = [], 1, 0

    def __call__(self, text):
        self.line += 1
        self.lines.append("  " * self.depth + f"{text} @{self.line}:1")

    def open(self, text):
        self.line += 1
        self.lines.append("  " * self.depth + text + " {")
        self.depth += 1

    def close(self):
        self.depth -= 1
        self.lines.append("  " * self.depth + f"}} @{self.line}:1")

    def text(self):
        return "\n".join(self.lines)


def kernel(params, grid, chip, side, allocs, body, vid=False):
    head = f"kernel @k({', '.join(params)}) grid({grid}){' vid(%vid)' if vid else ''} lowered(\"{chip}\", {side}) {{\n"
    allocs = "".join(f"  alloc {a} @1:1\n" for a in allocs)
    return HEAD + head + allocs + body.text() + "\n}\n"


def _copies(chip, side, tile, copy, cores, m, n, tile_m, tile_n, repeat, split, whole, stagger):
    """Tiles of a tensor to one buffer by all cores of a side; `copy`: the op, and how its target begins."""
    b = Body()
    b.open(side)
    part = n // split if split > 1 else n
    own = m if whole else m // cores
    b.open(f"for %s in 0..{split}")
    b.open(f"for %r in 0..{repeat}")
    b.open(f"for %i in 0..{own // tile_m}")
    if whole:
        pick = f"(%i // {cores} * {cores} + (%i + %b) % {cores})" if stagger else "%i"
        b(f"let %row: i32 = {pick} * {tile_m}")
    else:
        b(f"let %row: i32 = %b * {own} + %i * {tile_m}")
    b.open(f"for %j in 0..{-(-part // tile_n)}")
    b(f"let %col: i32 = %s * {part} + %j * {tile_n}")
    cols = f"min({tile_n}, {n} - %col)" if part % tile_n else f"{tile_n}"
    b(f"{copy[0]} %A[%row +: {tile_m}, %col +: {cols}] -> {copy[1]}0 +: {tile_m}, 0 +: {cols}]")
    for _ in range(4):
        b.close()
    b.close()
    return kernel([f"%A: gm f16[{m}, {n}]"], f"%b: {cores}", chip, side, [tile], b), [(m, n)]


def copy_ub(chip, cores, m, n, tile_m, tile_n, repeat=1, split=1, whole=False, stagger=False):
    """GM to UB by all vector cores, rows shared out (whole: every core reads all, `stagger`: from another start).

    split: columns in that many parts, each read `repeat` times before the next.
    """
    tile = f"%u: ub f16[1, {tile_m}, {-(-tile_n * 2 // 32) * 16}] at 0"
    copy = ("gm_to_ub", "%u[0, ")
    return _copies(chip, "vector", tile, copy, cores, m, n, tile_m, tile_n, repeat, split, whole, stagger)


def copy_l1(chip, cores, m, n, tile_m, tile_n, repeat=1, split=1, whole=False, stagger=False):
    """GM to L1 (ND2NZ) by all cube cores; arguments as copy_ub."""
    tile = f"%t: l1 f16[{tile_m}, {-(-tile_n // 16) * 16}] nz at 0"
    copy = ("gm_to_l1", "%t[")
    return _copies(chip, "cube", tile, copy, cores, m, n, tile_m, tile_n, repeat, split, whole, stagger)


def add(chip, cores, m, n, length, double, serial=False, conflict_free=False):
    """z = x + y, f16; `length` elements a transfer, rows shared out over the cores; one or two sets of buffers.

    serial: the next transfer in waits for the transfer out before.
    """
    b = Body()
    b.open("vector")
    stages = 2 if double else 1
    step = length * 2
    if conflict_free:
        at = {"x": (0, 65536), "y": (step, 65536 + step), "z": (131072, 131072 + step)}
    else:
        at = {v: tuple(s * 3 * step + i * step for s in range(2)) for i, v in enumerate("xyz")}
    allocs = [f"%{v}{s}: ub f16[{length}] at {at[v][s]}" for v in "xyz" for s in range(stages)]
    total = m * n
    own = -(-m // cores) * n
    b(f"let %first: i32 = %b * {own}")
    b(f"let %count: i32 = min({own}, {total} - %first)")
    for s in range(stages):
        b(f"set_flag {'mte3' if serial else 'v'} -> mte2 #{s}")
        b(f"set_flag mte3 -> v #{s}")
    b.open(f"for %o in 0..(%count + {stages * length - 1}) // {stages * length}")
    for s in range(stages):
        b(f"let %at{s}: i32 = %o * {stages * length} + {s * length}")
        b(f"let %n{s}: i32 = min({length}, %count - %at{s})")
        b.open(f"if %n{s} > 0")
        b(f"wait_flag {'mte3' if serial else 'v'} -> mte2 #{s}")
        b(f"gm_to_ub %X[%first + %at{s} +: %n{s}] -> %x{s}[0 +: %n{s}]")
        b(f"gm_to_ub %Y[%first + %at{s} +: %n{s}] -> %y{s}[0 +: %n{s}]")
        b(f"set_flag mte2 -> v #{s}")
        b(f"wait_flag mte2 -> v #{s}")
        b(f"wait_flag mte3 -> v #{s}")
        b(f"add %x{s}[0 +: %n{s}], %y{s}[0 +: %n{s}] -> %z{s}[0 +: %n{s}]")
        if not serial:
            b(f"set_flag v -> mte2 #{s}")
        b(f"set_flag v -> mte3 #{s}")
        b(f"wait_flag v -> mte3 #{s}")
        b(f"ub_to_gm %z{s}[0 +: %n{s}] -> %Z[%first + %at{s} +: %n{s}]")
        b(f"set_flag mte3 -> v #{s}")
        if serial:
            b(f"set_flag mte3 -> mte2 #{s}")
        b.close()
    b.close()
    for s in range(stages):
        b(f"wait_flag {'mte3' if serial else 'v'} -> mte2 #{s}")
        b(f"wait_flag mte3 -> v #{s}")
    b.close()
    params = [f"%{v}: gm f16[{total}]{' out' if v == 'Z' else ''}" for v in "XYZ"]
    return kernel(params, f"%b: {cores}", chip, "vector", allocs, b), [(total,)] * 3


def _both_sets(b, what):
    """What is set before a loop over two sets of buffers, or waited for after it: loads and stores may go on."""
    for s in (0, 1):
        b(f"{what} v -> mte2 #{s}")
        b(f"{what} mte3 -> v #{s}")


GELU = ["mul %x, %x -> %y", "mul %y, %x -> %y", "mul %y, 0.044715 -> %y", "add %x, %y -> %y",
        "mul %y, -1.595769 -> %y", "exp %y -> %y", "add %y, 1 -> %y", "div %x, %y -> %y"]  # fmt: skip


def gelu(chip, cores, m, n, length):
    """y = x / (1 + exp(-1.595769 (x + 0.044715 x^3))), f32, two sets of buffers; rows shared out over the cores."""
    b = Body()
    b.open("vector")
    own = -(-m // cores) * n
    b(f"let %first: i32 = %b * {own}")
    b(f"let %count: i32 = min({own}, {m * n} - %first)")
    _both_sets(b, "set_flag")
    b.open(f"for %o in 0..(%count + {2 * length - 1}) // {2 * length}")
    for s in (0, 1):
        b(f"let %at{s}: i32 = %o * {2 * length} + {s * length}")
        b(f"let %n{s}: i32 = min({length}, %count - %at{s})")
        part = f"[0 +: %n{s}]"
        b.open(f"if %n{s} > 0")
        b(f"wait_flag v -> mte2 #{s}")
        b(f"gm_to_ub %X[%first + %at{s} +: %n{s}] -> %x{s}{part}")
        b(f"set_flag mte2 -> v #{s}")
        b(f"wait_flag mte2 -> v #{s}")
        b(f"wait_flag mte3 -> v #{s}")
        for op in GELU:
            b(op.replace("%x", f"%x{s}{part}").replace("%y", f"%y{s}{part}"))
            b("barrier v")
        b(f"set_flag v -> mte2 #{s}")
        b(f"set_flag v -> mte3 #{s}")
        b(f"wait_flag v -> mte3 #{s}")
        b(f"ub_to_gm %y{s}{part} -> %Y[%first + %at{s} +: %n{s}]")
        b(f"set_flag mte3 -> v #{s}")
        b.close()
    b.close()
    _both_sets(b, "wait_flag")
    b.close()
    params = [f"%X: gm f32[{m * n}]", f"%Y: gm f32[{m * n}] out"]
    allocs = [f"%{v}{s}: ub f32[{length}] at {(2 * s + i) * 4 * length}" for s in (0, 1) for i, v in enumerate("xy")]
    return kernel(params, f"%b: {cores}", chip, "vector", allocs, b), [(m * n,)] * 2


def nd_to_nz(chip, row_splits, col_splits, size, height, width):
    """size x size, f16, row-major to columns of 16 elements, one behind the other; tiles of height x width, two sets of
    buffers. The rows of tiles are shared out over row_splits, the columns over col_splits; a row of 16 elements of
    padding between the columns of a tile in UB, so that writes do not meet in a bank."""
    b = Body()
    b.open("vector")
    tiles, own = -(-size // height), size // col_splits // width
    b(f"let %rs: i32 = %b // {col_splits}")
    b(f"let %from: i32 = %rs * {tiles // row_splits} + min(%rs, {tiles % row_splits})")
    b(f"let %n: i32 = {tiles // row_splits} + min(max({tiles % row_splits} - %rs, 0), 1)")
    _both_sets(b, "set_flag")
    b.open(f"for %i in 0..(%n * {own} + 1) // 2")
    for s in (0, 1):
        b(f"let %t{s}: i32 = %i * 2 + {s}")
        b.open(f"if %t{s} < %n * {own}")
        b(f"let %r{s}: i32 = (%from + %t{s} // {own}) * {height}")
        b(f"let %c{s}: i32 = %b % {col_splits} * {size // col_splits} + %t{s} % {own} * {width}")
        b(f"let %h{s}: i32 = min({height}, {size} - %r{s})")
        b(f"wait_flag v -> mte2 #{s}")
        b(f"gm_to_ub %X[%r{s} +: %h{s}, %c{s} +: {width}] -> %x{s}[0 +: %h{s}, 0 +: {width}]")
        b(f"set_flag mte2 -> v #{s}")
        b(f"wait_flag mte2 -> v #{s}")
        b(f"wait_flag mte3 -> v #{s}")
        b(f"move %x{s}[0 +: %h{s}, 0 +: {width}] -> %y{s}[0 +: %h{s}, 0 +: {width}]")
        b(f"set_flag v -> mte2 #{s}")
        b(f"set_flag v -> mte3 #{s}")
        b(f"wait_flag v -> mte3 #{s}")
        b(f"ub_to_gm %z{s}[0 +: {width // 16}, 0 +: %h{s} * 16] -> "
          f"%Z[%c{s} // 16 +: {width // 16}, %r{s} * 16 +: %h{s} * 16]")
        b(f"set_flag mte3 -> v #{s}")
        b.close()
    b.close()
    _both_sets(b, "wait_flag")
    b.close()
    nd, nz = height * width * 2, (height + 1) * width * 2
    allocs = [f"%x{s}: ub f16[{height}, {width}] at {s * nd}" for s in (0, 1)]
    allocs += [f"%y{s}: ub f16[{height}, {width}] at {2 * nd + s * nz}" for s in (0, 1)]
    allocs += [f"%z{s}: ub f16[{width // 16}, {(height + 1) * 16}] at {2 * nd + s * nz}" for s in (0, 1)]
    shapes = [(size, size), (size // 16, size * 16)]
    params = [f"%X: gm f16[{size}, {size}]", f"%Z: gm f16[{size // 16}, {size * 16}] out"]
    return kernel(params, f"%b: {row_splits * col_splits}", chip, "vector", allocs, b), shapes


class Gemm:
    """The cube program of one GEMM: A is M x K, B is N x K (trans_b) or K x N.

    L1 holds `stages` packets of A (bm x step_a bk) and of B (bn x step_b bk); L0A and L0B two base blocks each, L0C
    one. With two stages a packet is loaded as soon as the one two before it is used up, B before A, within a block of
    C.
    """

    def __init__(self, b, k, bm, bn, bk, step_a, step_b, stages, trans_b):
        self.b, self.bm, self.bn, self.bk, self.stages, self.trans_b = b, bm, bn, bk, stages, trans_b
        self.steps = k // bk
        self.step = {"a": step_a, "b": step_b}
        self.flag = {"a": 0, "b": 2}

    def load(self, what, packet):
        """GM to L1: packet number `packet` (an expression) of A or B."""
        b, at = self.b, f"({packet}) % {self.stages}"
        k, n = f"({packet}) * {self.step[what] * self.bk}", self.step[what] * self.bk
        b(f"wait_flag mte1 -> mte2 #{self.flag[what]} + {at}")
        if what == "a":
            b(f"gm_to_l1 %A[%row +: %mm, {k} +: {n}] -> %a1[{at}, 0 +: %mm, 0 +: {n}]")
        elif self.trans_b:
            b(f"gm_to_l1 %B[%col +: %nn, {k} +: {n}] -> %b1[{at}, 0 +: %nn, 0 +: {n}]")
        else:
            b(f"gm_to_l1 %B[{k} +: {n}, %col +: %nn] -> %b1[{at}, 0 +: {n}, 0 +: %nn]")
        b(f"set_flag mte2 -> mte1 #{self.flag[what]} + {at}")

    def load_next(self, what):
        """After step %kk: the packet whose place is free now."""
        b, step = self.b, self.step[what]
        packets = self.steps // step
        if self.stages == 1:
            b.open(f"if (%kk + 1) % {step} == 0 && %kk + 1 < {self.steps}")
            self.load(what, f"(%kk + 1) // {step}")
            b.close()
            return
        if packets > 1:
            b.open("if %kk == 0")
            self.load(what, "1")
            b.close()
        b.open(f"if (%kk + 1) % {step} == 0 && %kk + 1 < {(packets - 1) * step}")
        self.load(what, f"(%kk + 1) // {step} + 1")
        b.close()

    def product(self):
        """L1 to L0 and the product of base block %kk."""
        b, bk = self.b, self.bk
        at = {w: f"%kk // {s} % {self.stages}" for w, s in self.step.items()}
        b("let %p0: i32 = %kk % 2")
        b("wait_flag m -> mte1 #%p0")
        for w, step in self.step.items():
            b.open(f"if %kk % {step} == 0")
            b(f"wait_flag mte2 -> mte1 #{self.flag[w]} + {at[w]}")
            b.close()
        part = {w: f"%kk % {s} * {bk} +: {bk}" for w, s in self.step.items()}
        b(f"l1_to_l0a %a1[{at['a']}, 0 +: %m16, {part['a']}] -> %a0[%p0, 0 +: %m16, 0 +: {bk}]")
        box = f"0 +: %n16, {part['b']}" if self.trans_b else f"{part['b']}, 0 +: %n16"
        b(f"l1_to_l0b %b1[{at['b']}, {box}] -> %b0[%p0, 0 +: {bk}, 0 +: %n16]{' trans' if self.trans_b else ''}")
        for w, step in self.step.items():
            b.open(f"if %kk % {step} == {step - 1}")
            b(f"set_flag mte1 -> mte2 #{self.flag[w]} + {at[w]}")
            b.close()
        b("set_flag mte1 -> m #%p0")
        b("wait_flag mte1 -> m #%p0")
        b.open("if %kk == 0")
        b("wait_flag fix -> m #0")
        b.close()
        c = "%c0[0 +: %m16, 0 +: %n16]"
        b(f"mmad %a0[%p0, 0 +: %m16, 0 +: {bk}], %b0[%p0, 0 +: {bk}, 0 +: %n16] -> {c} init(%kk == 0)")
        b("set_flag m -> mte1 #%p0")

    def block(self):
        """One block of C."""
        b = self.b
        self.load("b", "0")
        self.load("a", "0")
        b.open(f"for %kk in 0..{self.steps}")
        self.product()
        self.load_next("b")
        self.load_next("a")
        b.close()
        b("set_flag m -> fix #0")
        b("wait_flag m -> fix #0")
        b("l0c_to_gm %c0[0 +: %mm, 0 +: %nn] -> %C[%row +: %mm, %col +: %nn]")
        b("set_flag fix -> m #0")


def gemm(chip, m, n, k, bm, bn, bk, single_m, single_n, step_a=1, step_b=1, l1_stages=2, rounds=1, out="f16",
         trans_b=True):
    """C = A B; each cube core has single_m x single_n of C, `rounds` times along M."""
    cores_m, cores_n = -(-m // (single_m * rounds)), -(-n // single_n)
    ka, kb = step_a * bk, step_b * bk
    b_shape = f"{bn}, {kb}" if trans_b else f"{kb}, {bn}"
    allocs = [
        f"%a1: l1 f16[{l1_stages}, {bm}, {ka}] nz at 0",
        f"%b1: l1 f16[{l1_stages}, {b_shape}] nz at {l1_stages * bm * ka * 2}",
        f"%a0: l0a f16[2, {bm}, {bk}] zz at 0",
        f"%b0: l0b f16[2, {bk}, {bn}] zn at 0",
        f"%c0: l0c f32[{bm}, {bn}] nz at 0",
    ]
    flags = [f"mte1 -> mte2 #{i}" for s in range(l1_stages) for i in (s, 2 + s)]
    flags += ["m -> mte1 #0", "m -> mte1 #1", "fix -> m #0"]
    b = Body()
    b.open("cube")
    b(f"let %bm: i32 = %b % {cores_m}")
    b(f"let %bn: i32 = %b // {cores_m}")
    for f in flags:
        b(f"set_flag {f}")
    b.open(f"for %r in 0..{rounds}")
    b(f"let %m0: i32 = %r * {m // rounds} + %bm * {single_m}")
    b(f"let %n0: i32 = %bn * {single_n}")
    b.open(f"for %nt in 0..(min({single_n}, {n} - %n0) + {bn - 1}) // {bn}")
    b.open(f"for %mt in 0..(min({single_m}, {m} - %m0) + {bm - 1}) // {bm}")
    b(f"let %row: i32 = %m0 + %mt * {bm}")
    b(f"let %col: i32 = %n0 + %nt * {bn}")
    b(f"let %mm: i32 = min({bm}, min(%m0 + {single_m}, {m}) - %row)")
    b(f"let %nn: i32 = min({bn}, min(%n0 + {single_n}, {n}) - %col)")
    b("let %m16: i32 = (%mm + 15) // 16 * 16")
    b("let %n16: i32 = (%nn + 15) // 16 * 16")
    Gemm(b, k, bm, bn, bk, step_a, step_b, l1_stages, trans_b).block()
    for _ in range(3):
        b.close()
    for f in flags:
        b(f"wait_flag {f}")
    b.close()
    bs = (n, k) if trans_b else (k, n)
    params = [f"%A: gm f16[{m}, {k}]", f"%B: gm f16[{bs[0]}, {bs[1]}]", f"%C: gm {out}[{m}, {n}] out"]
    return kernel(params, f"%b: {cores_m * cores_n}", chip, "cube", allocs, b), [(m, k), bs, (m, n)]


def developer_gemm(chip, size, bm, bn, bk, persistent):
    """The product as one writes it in Python, with no flag, address or order of one's own; lowered by the compiler."""
    import tilelang
    import tilelang.language as T

    shape = (size, size)

    def tile(A, B, C, a, b, c, row, col):
        for k in T.Pipelined(size // bk, num_stages=2):
            T.copy(A[row, k * bk], a)
            T.copy(B[k * bk, col], b)
            T.gemm(a, b, c, clear_accum=k == 0)
        T.copy(c, C[row, col])

    @T.prim_func
    def gemm(A: T.Tensor(shape, "float16"), B: T.Tensor(shape, "float16"), C: T.Tensor(shape, "float32")):
        with T.Kernel(24 if persistent else (size // bm) * (size // bn)) as (core,):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            if persistent:
                for i, j in T.Persistent([size // bm, size // bn], 24, core, group_size=4):
                    tile(A, B, C, a, b, c, i * bm, j * bn)
            else:
                tile(A, B, C, a, b, c, core // (size // bn) * bm, core % (size // bn) * bn)

    return tilelang.compile(gemm, chip=chip).ir(after="lowered"), [shape] * 3


def vector_loop(chip, op, count, dtype, addresses, times, args=2, scalar=""):
    """One vector instruction `times` times, alone on one core; `scalar`: its last input."""
    b = Body()
    b.open("vector")
    names = [f"%s{i}" for i in range(args)] + ["%d"]
    allocs = [f"{v}: ub {dtype}[{count}] at {a}" for v, a in zip(names, addresses)]
    b.open(f"for %i in 0..{times}")
    b(f"{op} {', '.join(names[:-1] + [scalar] * bool(scalar))} -> %d")
    b.close()
    b.close()
    return kernel([], "%b: 1", chip, "vector", allocs, b), []


def row_reduction(chip, op, rows, cols, dtype):
    """One row reduction, alone on one core."""
    b = Body()
    b.open("vector")
    b(f"{op} %s -> %d")
    b.close()
    allocs = [f"%s: ub {dtype}[{rows}, {cols}] at 0", f"%d: ub {dtype}[{rows}] at 65536"]
    return kernel([], "%b: 1", chip, "vector", allocs, b), []


def mmad_loop(chip, m, n, k, times):
    """`times` products of m x n x k, alone on one core."""
    b = Body()
    b.open("cube")
    b.open(f"for %i in 0..{times}")
    b("mmad %a, %b0 -> %c init(%i == 0)")
    b.close()
    b.close()
    allocs = [f"%a: l0a f16[{m}, {k}] zz at 0", f"%b0: l0b f16[{k}, {n}] zn at 0", f"%c: l0c f32[{m}, {n}] nz at 0"]
    return kernel([], "%b: 1", chip, "cube", allocs, b), []


def empty(chip, blocks):
    """Blocks of a vector kernel that do nothing but one scalar statement's worth of synchronisation."""
    b = Body()
    b.open("vector")
    b("barrier v")
    b.close()
    return kernel([], f"%b: {blocks}", chip, "vector", [], b), []
