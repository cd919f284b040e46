"""The command line of tlc with what is wrong: status 2 and one line that says what, never a crash or silence."""

import os
import subprocess

import pytest

TEXT = """tl 1
kernel @k(%n: i32, %h: u64, %A: gm f32[64], %C: gm f32[64] out) grid(%bx: 1) lowered("910B2", vector) {
  alloc %a: ub f32[64] at 0
  vector {
    gm_to_ub %A -> %a
    barrier all
    ub_to_gm %a -> %C
  }
}
"""


@pytest.fixture
def run(tlc, tmp_path):
    (tmp_path / "k.tl").write_text(TEXT)
    (tmp_path / "dir").mkdir()
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
    (tmp_path / "short.bin").write_bytes(b"abc")
    return lambda *args, stdin=None: tlc(*args, cwd=tmp_path, stdin=stdin)


SIM = ("--arg", "n=1", "--arg", "h=2")


@pytest.mark.parametrize(
    "args,says",
    [
        (["frobnicate"], "unknown command 'frobnicate'"),
        (["check"], "check needs a file"),
        (["check", "none.tl"], "cannot open 'none.tl': No such file"),
        (["check", ""], "cannot open '': No such file"),
        (["check", "dir"], "cannot read 'dir': Is a directory"),
        (["check", "--chip", "950", "k.tl"], "--chip means nothing to check"),
        (["fmt", "--arg", "n=1", "k.tl"], "--arg means nothing to fmt"),
        (["check", "--shout", "k.tl"], "unknown option --shout"),
        (["opt", "k.tl", "-p"], "option -p needs a value"),
        (["passes", "k.tl"], "passes takes no file"),
        (["chips", "k.tl"], "chips takes no file"),
        (["fmt", "-o", "out.tl", "k.tl", "k.tl"], "-o is for one file, 2 are given"),
        (["fmt", "-o", "none/out.tl", "k.tl"], "cannot open 'none/out.tl' for writing: No such file"),
        (["fmt", "-o", "/dev/full", "k.tl"], "cannot write /dev/full: No space left"),
        (["build", "k.tl"], "build needs a directory"),
        (["replay", "k.tl"], "the file records no call"),
        (["explain", "TL9999"], "there is no code TL9999"),
        (["sim", "k.tl"], "%n: i32 is a scalar without a value"),
        (["sim", *SIM, "--arg", "n=2", "k.tl"], "%n is given twice"),
        (["sim", "--arg", "n=2147483648", "--arg", "h=1", "k.tl"], "%n: i32 does not hold 2147483648"),
        (["sim", "--arg", "n=1", "--arg", "h=-1", "k.tl"], "%h: u64 does not hold -1"),
        (["sim", "--arg", "n=1", "--arg", "h=18446744073709551616", "k.tl"], "%h: u64 does not hold"),
        (["sim", "--arg", "n=1.5", "--arg", "h=1", "k.tl"], "%n: '1.5' is not a number"),
        (["sim", *SIM, "--arg", "Z=1", "k.tl"], "the kernel has no parameter %Z"),
        (["sim", *SIM, "--arg", "A", "k.tl"], "expected NAME=VALUE, found 'A'"),
        (["sim", *SIM, "--arg", "A=dir", "k.tl"], "%A: 'dir' is not zeros, ones, iota, rand:SEED, FILE.npy or"),
        (["sim", *SIM, "--arg", "A=rand:x", "k.tl"], "A: 'x' is not a whole number"),
        (["sim", *SIM, "--arg", "A=bad.npy", "k.tl"], "bad.npy is not a .npy file"),
        (["sim", *SIM, "--arg", "A=short.bin", "k.tl"], "short.bin: %A has 256 bytes, the file 3"),
        (["sim", *SIM, "--threads", "many", "k.tl"], "--threads: 'many' is not a whole number"),
        (["sim", *SIM, "--schedule", "-1", "k.tl"], "--schedule: '-1' is not a whole number"),
        (["sim", *SIM, "--set", "mhz=1", "k.tl"], "--set goes with --time"),
        (["sim", "--arg", "Z=1", "k.tl"], "the kernel has no parameter %Z"),
        (["sim", *SIM, "--out", "n=n.npy", "k.tl"], "%n is a scalar; --out saves a tensor"),
        (["sim", *SIM, "--out", "C=none/c.npy", "k.tl"], "cannot open 'none/c.npy' for writing"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_wrong_usage(run, args, says):
    status, _, err = run(*args)
    assert status == 2
    assert err.startswith("tlc: ") and says in err and err.count("\n") == 1


def test_a_mark_of_utf8_before_the_text(run):
    assert run("check", "-", stdin="\ufeff" + TEXT)[0] == 0


@pytest.mark.parametrize("n", ["h=18446744073709551615", "h=0x10"])
def test_ends_of_a_dtype(run, n):
    assert run("sim", "--arg", "n=-2147483648", "--arg", n, "k.tl")[0] == 0


@pytest.mark.parametrize(
    "text,says",
    [
        ("", "expected 'tl' before the end of the text"),
        ("\x1b[31mtl 1", "expected 'tl' before the byte 0x1b"),
        ("tl 1\nkernel @k() grid(%b: 1) { é }", "expected a statement before the byte 0xc3"),
        ("tl 1\nkernel @k() grid(%b: 18446744073709551616) { }", "18446744073709551616 does not fit 64 bits"),
    ],
)
def test_text_that_is_no_program(run, text, says):
    status, _, err = run("check", "-", stdin=text)
    assert status == 1 and says in err and "\x1b" not in err


def test_standard_input_is_not_written_back(run, tmp_path):
    status, out, _ = run("fmt", "-w", "-", stdin=TEXT)
    assert status == 0 and out == TEXT.rstrip("\n") + "\n" and not (tmp_path / "-").exists()


@pytest.mark.parametrize("args", [["help"], ["chips"], ["explain", "TL0100"], ["fmt", "k.tl"], ["sim", *SIM, "k.tl"]])
def test_output_that_is_lost(run, tlc_path, tmp_path, args):
    """A full disk and a closed stream are errors; no file that tlc opens takes the place of a closed stream."""
    for close in (False, True):
        with open("/dev/full", "w") as full:
            p = subprocess.run(
                [tlc_path, *args],
                cwd=tmp_path,
                stdout=None if close else full,
                stderr=subprocess.PIPE,
                preexec_fn=(lambda: os.close(1)) if close else None,
            )
        assert p.returncode == 2 and b"cannot write the standard output" in p.stderr


def test_cost_of_many_loops_in_each_other(run, tmp_path):
    """A condition on all of 26 indices: the loops are walked in parts, but not all of them."""
    loops = [f"for %i{n} in 0..4 {{" for n in range(26)]
    total = " + ".join(f"%i{n}" for n in range(26))
    body = [*loops, f"if {total} == 3 {{", "fill 1.0 -> %a", "}", *("}" for _ in loops)]
    head = 'tl 1\nkernel @k() grid(%b: 1) lowered("910B2", vector) {\nalloc %a: ub f32[64] at 0\nvector {\n'
    (tmp_path / "deep.tl").write_text(head + "\n".join(body) + "\n}\n}\n")
    status, out, _ = run("cost", "deep.tl")
    assert status == 0 and out.startswith("at least ")
