"""Random programs do the same however they are compiled and run: tools/randprog.py says what is compared.

Programs that once did not are in test/random, cut down to what matters.
"""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("randprog", ROOT / "tools" / "randprog.py")
randprog = importlib.util.module_from_spec(spec)
spec.loader.exec_module(randprog)

CHUNK = 250


@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_random_programs(first):
    refused = []
    for seed in range(first, first + CHUNK):
        _, status, reason, _ = randprog.outcome(seed)
        assert status != "wrong", f"python tools/randprog.py --show {seed}: {reason}"
        refused += [f"{seed}: {reason}"] * (status == "refused")
    assert len(refused) < CHUNK // 20, "\n".join(refused)


def test_all_of_the_language_is_drawn():
    assert set(randprog.source_ops()) <= set(randprog.EMIT), "an op of the table that no program can hold"
    drawn = {name for seed in range(2000) for name in randprog.generate(seed).used}
    assert drawn == set(randprog.EMIT)


def test_the_same_seed_gives_the_same_text():
    assert randprog.generate(7).text == randprog.generate(7).text != randprog.generate(8).text


@pytest.mark.parametrize("path", sorted((ROOT / "test" / "random").glob("*.tl")), ids=lambda p: p.stem)
@pytest.mark.parametrize("seed", (0, 4, 8))
def test_found_before(path, seed):
    randprog.check(randprog.Program(seed, path.read_text()))
