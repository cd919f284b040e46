"""Layouts for T.annotate_layout. They are hints: the compiler places fractals itself (docs/ir.md)."""


class Layout:
    """A named layout of a buffer."""

    def __init__(self, name, buffer):
        self.name, self.buffer = name, buffer

    def __repr__(self):
        return f"{self.name}({self.buffer!r})"


def make_zn_layout(buffer):
    return Layout("zn", buffer)


def make_nz_layout(buffer):
    return Layout("nz", buffer)


__all__ = ["Layout", "make_nz_layout", "make_zn_layout"]
