"""docs/user-reports.md names every report once, and every test that the reports have."""

import pathlib
import re

HERE = pathlib.Path(__file__).parent
PAGE = (HERE.parent.parent / "docs/user-reports.md").read_text(encoding="utf-8")


def test_the_page_and_the_tests_agree():
    tests = {}
    for file in HERE.glob("test_*.py"):
        for name in re.findall(r"^def (test_R\w+)\(", file.read_text(), re.M):
            for number in re.findall(r"R\d{3}", name):
                tests.setdefault(number, set()).add(file.name)
    lines = re.findall(r"^\| (R\d{3}) (.*`.*)$", PAGE, re.M)
    tested = {number: set(re.findall(r"`(test_\w+\.py)`", line)) for number, line in lines}
    left_out = re.findall(r"^\| (R\d{3}) \| [^`|]* \|$", PAGE.partition("## Left out")[2], re.M)
    assert tested == tests
    assert sorted([*tested, *left_out]) == [f"R{n:03d}" for n in range(1, 181)]
