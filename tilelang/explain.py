"""python -m tilelang explain TLnnnn: the page about a code - what it means, a program that causes it, one that does
not."""

import sys

from .errors import ArgumentError


def page(code):
    """The page about a code ("TL0600", "0600" or 600) as Markdown; ArgumentError if there is no such code."""
    from . import _core

    text = str(code).upper()
    found = _core.page(text if text.startswith("TL") else f"TL{text:>04}")
    if found is None:
        raise ArgumentError(f"there is no code {text}", "docs/errors.md lists the codes")
    return found


def main(codes):
    try:
        print("\n".join(page(c) for c in codes), end="")
    except ArgumentError as e:
        sys.stderr.write(f"{e.errors[0].text}; {e.errors[0].fix}\n")
        return 2
    if not codes:
        sys.stderr.write("usage: python -m tilelang explain TLnnnn...\n")
    return 0 if codes else 2
