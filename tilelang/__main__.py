"""python -m tilelang COMMAND: what needs Python; the rest is `tlc`."""

import importlib
import sys

from . import __version__
from .errors import nearest

COMMANDS = {
    "explain": ("explain", "what a code of a message means: explain TL0600"),
    "doctor": ("device", "what this machine has to build and launch kernels with, and what to do"),
    "reduce": ("debug.reduce", "a smaller IR text that fails in the same way"),
}
MODULES = ("sim", "conformance")  # commands of their own


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in COMMANDS:
        return importlib.import_module("tilelang." + COMMANDS[name][0]).main(sys.argv[2:])
    if name == "--version":
        print(f"tilelang {__version__}")
        return 0
    lines = "".join(f"  {n:10} {text}\n" for n, (_, text) in COMMANDS.items())
    usage = f"usage: python -m tilelang COMMAND\n\n{lines}"
    if name in ("-h", "--help", "help"):
        print(usage, end="")
        return 0
    near = nearest(name, COMMANDS)
    other = f"; did you mean '{near}'?" if near else ""
    other = f": python -m tilelang.{name} is one by itself" if name in MODULES else other
    sys.stderr.write(f"python -m tilelang: there is no command '{name}'{other}\n\n" * bool(name) + usage)
    return 2


if __name__ == "__main__":
    sys.exit(main())
