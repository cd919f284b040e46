"""Changes a few tokens or lines of programs and compiles them: python tools/fuzz/fuzz_ir.py.

fuzz_parse.c mutates bytes and finds what the parser does not expect; of these mutants more are programs, and what is
found is in the passes behind it. They come from the random generator (tools/randprog.py) and the tests. A mutant is
refused with an error that is about it, or it lowers, verified after every pass, its text reads back as itself, and both
writers take it. A find is TL0002 (a pass broke the program), a text that does not read back, or a crash, of which the
program stays in the file that is named at the start.

    --seconds N   --seed N   --keep FOLDER (programs of finds)
"""

import argparse
import collections
import pathlib
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import randprog

from tilelang import _core

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKEN = re.compile(r"%[\w.]+|\b\d+(?:\.\d+)?\b|\b[a-z_]\w*\b|[-+*/<>=!&|:]+|\S")
NUMBERS = "0 1 2 3 5 7 8 15 16 17 31 32 33 48 63 64 65 127 128 256 -1 -8 1000 4096 65536 2147483647 %n".split()
DTYPES = "f16 f32 bf16 i8 u8 i16 u16 i32 u32 i64 u64 e4m3 e5m2 i4x2 bool".split()
SPACES = "ub shared fragment l1 l0c gm l0a l0b".split()
SIGNS = ("+", "-", "*", "//", "%", "<", "<=", "==", ">", "+:", ",", "=", "+=", "")
ATTRS = ("init(true)", "init(false)", "trans_a", "trans_b", "dim(0)", "dim(1)", "pad(1)", "pipeline(2)", "mode(rint)",
         "cmp(lt)", "maskrep", "relu", "atomic", "keep")  # fmt: skip
BLOCKS = ("for %zz in 0..3", "for %zz in 0..1", "for %zz in 0..%bx", "if %bx == 0", "if %bx < 1", "vector", "cube",
          "parallel %zz: 4", "while %bx > 3")  # fmt: skip


def other_token(text, rng):
    tokens = list(TOKEN.finditer(text))
    if not tokens:
        return text
    at = rng.choice(tokens)
    old = at.group()
    if old[0].isdigit():
        n = int(float(old))
        new = rng.choice([*NUMBERS, str(n + 1), str(max(0, n - 1)), str(n * 2)])
    elif old[0] == "%":
        new = rng.choice(sorted(set(re.findall(r"%[\w.]+", text))) or [old])
    elif old in DTYPES:
        new = rng.choice(DTYPES)
    elif old in SPACES:
        new = rng.choice(SPACES)
    elif old[0].isalpha():
        new = rng.choice([*(t.group() for t in tokens if t.group()[0].isalpha()), *ATTRS])
    else:
        new = rng.choice(SIGNS)
    return text[: at.start()] + new + text[at.end() :]


def other_line(text, rng):
    """A line goes, moves, comes twice, gets an attribute or a block of its own."""
    lines = text.split("\n")
    at, to, how = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(5)
    line = lines[at]
    opens = line.rstrip().endswith("{") or line.strip().startswith("}")
    if how == 0:
        lines.insert(to, lines.pop(at))
    elif how == 1:
        lines.insert(to, line)
    elif how == 2 and not opens:
        lines.pop(at)
    elif how == 3 and not opens:
        lines[at] = f"{rng.choice(BLOCKS)} {{\n{line}\n}}"
    elif how == 4:
        lines[at] = f"{line} {rng.choice(ATTRS)}"
    return "\n".join(lines)


def mutant(text, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        text = (other_token if rng.random() < 0.6 else other_line)(text, rng)
    return text


def outcome(text):
    """("refused" | "lowered" | "FIND", what is wrong)."""
    p = _core.Program()
    if not p.load("mutant.tl", text):
        return "refused", ""
    if not p.lower(verify_each=True):
        found = randprog.problems(p)
        return ("FIND", "; ".join(found)) if any(f.startswith("TL0002") for f in found) else ("refused", "")
    again = _core.Program()
    if not again.load("lowered.tl", p.text()) or again.text() != p.text():
        return "FIND", f"the lowered text does not read back: {randprog.problems(again)}"
    p.emit("ascendc"), p.emit("pto")
    return "lowered", ""


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", type=pathlib.Path)
    options = options.parse_args()
    rng, counts, known = random.Random(options.seed), collections.Counter(), set()
    texts = [f.read_text() for d in ("pass", "ir", "random") for f in sorted((ROOT / "test" / d).rglob("*.tl"))]
    last = pathlib.Path(tempfile.gettempdir(), f"fuzz-ir-{options.seed}.tl")
    print(f"the mutant under way is in {last}", flush=True)
    end, seed = time.monotonic() + options.seconds, options.seed * 1_000_000
    while time.monotonic() < end:
        seed += 1
        base = randprog.generate(seed).text if rng.random() < 0.6 else rng.choice(texts)
        for _ in range(12):
            text = mutant(base, rng)
            last.write_text(text)
            status, what = outcome(text)
            kind = re.sub(r"\d+|%[\w.]+", "N", what)[:200]
            if status == "FIND" and kind not in known:
                known.add(kind)
                print(f"FIND {what}\n{text}", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{options.seed}-{len(known)}.tl").write_text(text)
            counts[status] += 1
    last.unlink(missing_ok=True)
    print(f"{sum(counts.values())} mutants, {dict(counts)}")
    return bool(known)


if __name__ == "__main__":
    sys.exit(main())
