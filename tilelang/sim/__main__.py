"""python -m tilelang.sim [options] SCRIPT.py [arguments]  |  -m MODULE [arguments]"""

import argparse
import os
import runpy
import sys


def _capability(text):
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def arguments():
    p = argparse.ArgumentParser(
        prog="python -m tilelang.sim",
        allow_abbrev=False,
        description="Runs a program that expects an Ascend card on the simulated chip, without a change to it.",
        usage="%(prog)s [--chip NAME] [--checks on|off] [--record FILE]"
        " [--capability N.N] (SCRIPT.py | -m MODULE) [arguments]",
    )
    p.add_argument("--chip", help="the chip to simulate, such as 910B2 (environment: TILELANG_CHIP)")
    p.add_argument(
        "--checks", choices=("on", "off"), help="races, bounds, uninitialised reads: on unless said otherwise"
    )
    p.add_argument("--record", metavar="FILE", help="keep seconds, kernels and failures there, as JSON")
    p.add_argument(
        "--capability", metavar="N.N", type=_capability, default=(8, 0),
        help="what torch.cuda.get_device_capability() says to programs that choose by it: 8.0 unless said otherwise",
    )  # fmt: skip
    p.add_argument("-m", dest="module", action="store_true", help="the program is a module, such as pytest")
    p.add_argument("program", help="a Python file, or a module after -m")
    p.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the program")
    return p.parse_args()


def main():
    args = arguments()
    if args.chip:
        os.environ["TILELANG_CHIP"] = args.chip
    if args.checks:
        os.environ["TILELANG_CHECKS"] = "1" if args.checks == "on" else "0"
    if not args.module and not os.path.exists(args.program):
        sys.exit(f"python -m tilelang.sim: there is no file {args.program}")
    try:
        import torch  # noqa: F401 - asked for here so that its absence is one sentence
    except ImportError:
        sys.exit("python -m tilelang.sim needs torch (a CPU build): pip install torch")

    from . import install, record

    # processes that pytest starts for itself load this and look alike
    before = os.environ.get("PYTEST_PLUGINS")
    os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, [before, "tilelang.sim.pytest_plugin"]))
    install(args.capability)
    record.keep_in = args.record
    try:
        if args.module:
            sys.argv = [args.program, *args.rest]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(args.program, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [args.program, *args.rest]
            sys.path.insert(0, os.path.dirname(os.path.abspath(args.program)))
            runpy.run_path(args.program, run_name="__main__")
    finally:
        if args.record:
            record.write(args.record)


main()
