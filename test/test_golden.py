"""Golden tests of `tlc`: every .tl file in these folders is one test.

    test/ir/*.tl               tlc fmt prints the file itself
    test/ir/bad/*.tl           tlc check fails; .err: the diagnostics
    test/pass/<pass>/*.tl      tlc opt -p <pass>; .out: the text after the pass
    test/emit/<target>/*.tl    tlc emit -t <target>; .out: the source
    test/sim/*.tl              tlc sim; .out: the results
    test/time/*.tl             tlc sim --time; .out: the table of cycles

Beside x.tl stand x.out (the output) and x.err (the diagnostics); a file that is not there means that nothing came out.
Whether the command must fail follows from x.err: it fails exactly when that file reports an error. A line
`; run: OPTIONS` in the file adds options to the command. New expectations are written by pytest --update-golden.
"""

import pathlib
import re
import shlex

import pytest

TEST_DIR = pathlib.Path(__file__).parent


def inputs(folder):
    return sorted((TEST_DIR / folder).rglob("*.tl"))


def name(path):
    return str(path.relative_to(TEST_DIR))


def options(path):
    return [w for line in re.findall(r"^; run: (.*)$", path.read_text(), re.M) for w in shlex.split(line)]


def run_golden(tlc, golden, path, *command):
    status, out, err = tlc(*command, *options(path), path.name, cwd=path.parent)
    assert status in (0, 1), f"exit status {status}: {err}"
    assert (status == 1) == (": error TL" in err), f"exit status {status}, diagnostics:\n{err}"
    golden(path.with_suffix(".out"), out or None)
    golden(path.with_suffix(".err"), err or None)
    return status


@pytest.mark.parametrize("path", [p for p in inputs("ir") if "bad" not in p.parts], ids=name)
def test_format(tlc, golden, path):
    status, out, err = tlc("fmt", path.name, cwd=path.parent)
    assert status == 0, err
    golden(path, out)
    golden(path.with_suffix(".err"), err or None)


@pytest.mark.parametrize("path", inputs("ir/bad"), ids=name)
def test_rule(tlc, golden, path):
    status, out, err = tlc("check", path.name, cwd=path.parent)
    assert out == ""
    golden(path.with_suffix(".err"), err)
    rule = re.match(r"R(\d+)-", path.name)
    if rule:
        assert f" TL{200 + int(rule[1]):04d}: " in err, "the rule that the file is named after was not reported"
    assert status == (1 if ": error TL" in err else 0)
    assert err, "nothing was reported"


@pytest.mark.parametrize("path", inputs("pass"), ids=name)
def test_pass(tlc, golden, path):
    run_golden(tlc, golden, path, "opt", "--verify", "-p", path.parent.name)


@pytest.mark.parametrize("path", inputs("emit"), ids=name)
def test_emit(tlc, golden, path):
    run_golden(tlc, golden, path, "emit", "-t", path.parent.name)


@pytest.mark.parametrize("path", inputs("sim"), ids=name)
def test_sim(tlc, golden, path):
    run_golden(tlc, golden, path, "sim")


@pytest.mark.parametrize("path", inputs("sim"), ids=name)
def test_any_schedule(tlc, path):
    """In whatever order pipes happen to run: the same numbers, or the same kinds of faults."""

    def outcome(seed):
        status, out, err = tlc("sim", "--schedule", seed, *options(path), path.name, cwd=path.parent)
        return status, re.findall(r"crc32 \w+", out), sorted(set(re.findall(r"error (TL\d+)", err)))

    usual = outcome(0)
    for seed in (1, 2, 3):
        assert outcome(seed) == usual, f"seed {seed}"


@pytest.mark.parametrize("path", inputs("time"), ids=name)
def test_time(tlc, golden, path):
    run_golden(tlc, golden, path, "sim", "--time")


def test_every_rule_has_a_test():
    rules = re.findall(r"^(\d+)\. .* TL(\d+)$", (TEST_DIR.parent / "docs" / "ir.md").read_text(), re.M)
    codes = re.findall(r"^DIAG\(RULE_\w+, (\d+),", (TEST_DIR.parent / "src/base/diag.def").read_text(), re.M)
    assert [int(c) for c in codes] == [int(code) for _, code in rules] == [200 + int(n) for n, _ in rules]
    tested = {m[1] for p in inputs("ir/bad") if (m := re.match(r"R(\d+)-", p.name))}
    assert {f"{int(n):02d}" for n, _ in rules} == tested


@pytest.mark.parametrize("folder", ["ir", "pass", "emit", "sim", "time"])
def test_no_orphans(folder):
    """An expectation without an input tests nothing."""
    for path in [*(TEST_DIR / folder).rglob("*.out"), *(TEST_DIR / folder).rglob("*.err")]:
        assert path.with_suffix(".tl").exists(), f"{name(path)} has no .tl file"
