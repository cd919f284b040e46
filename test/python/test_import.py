"""What `import tilelang` loads; how long it takes is measured in bench/."""

import subprocess
import sys

CODE = """
import sys
import tilelang, tilelang.language
print(*[m for m in ("torch", "rich", "ml_dtypes", "hypothesis", "pytest") if m in sys.modules])
"""


def test_import_is_light():
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    assert out == []
