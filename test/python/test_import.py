"""What `import tilelang` costs."""

import subprocess
import sys

CODE = """
import sys
import tilelang, tilelang.language
heavy = [m for m in ("torch", "rich", "ml_dtypes", "hypothesis", "pytest", "sqlite3", "matplotlib") if m in sys.modules]
print(*heavy)
"""


def test_import_is_light():
    """Its seconds are measured in bench/; here: nothing heavy comes along."""
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    assert out == []
