"""python -m tilelang COMMAND: what needs Python; the rest is `tlc`."""

import sys

COMMANDS = {
    "explain": ("explain", "what a code of a message means: explain TL0600"),
    "doctor": ("device", "what this machine has to build and launch kernels with, and what to do"),
    "reduce": ("debug.reduce", "a smaller IR text that fails in the same way"),
}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        lines = "".join(f"  {n:10} {text}\n" for n, (_, text) in COMMANDS.items())
        sys.stderr.write(f"usage: python -m tilelang COMMAND\n\n{lines}")
        return 2
    import importlib

    return importlib.import_module("tilelang." + COMMANDS[name][0]).main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
