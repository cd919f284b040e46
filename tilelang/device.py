"""What a machine has to build and launch kernels with."""

import json
import sys


def doctor(root=None, python=None):
    """Driver, firmware, devices, toolkit, compiler, headers and torch_npu of this machine, as a dict:
    {"tlc", "ready", "findings": [{"what", "health": "ok" | "missing" | "mismatch", "needed", "found", "where", "text",
    "fix"}]}. `root` stands for / (tests), `python` is the interpreter asked for torch_npu (this one)."""
    from . import _core

    return json.loads(_core.doctor(root, python or sys.executable, True)[0])


def main(args):
    """`python -m tilelang doctor [--json]`: exit status 0 when nothing that is needed is missing."""
    from . import _core

    if args not in ([], ["--json"]):
        print("usage: python -m tilelang doctor [--json]", file=sys.stderr)
        return 2
    text, ready = _core.doctor(None, sys.executable, bool(args))
    sys.stdout.write(text)
    return 0 if ready else 1
