"""The pages of docs/ that teach: their programs run, and the Chinese page has the same ones."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("tilelang._core")

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["debugging", "profiling"])
def test_programs(page, tmp_path):
    english, chinese = ((DOCS / f"{page}{tongue}.md").read_text(encoding="utf-8") for tongue in ("", ".zh"))
    blocks, twins = (re.findall(r"^```(.*)\n((?:.*\n)*?)```", text, re.M) for text in (english, chinese))
    assert blocks == twins
    assert len(re.findall("^#", english, re.M)) == len(re.findall("^#", chinese, re.M))
    (tmp_path / "page.py").write_text("".join(b for how, b in blocks if how == "python" and b[0] != " "))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
