"""Layouts for T.annotate_layout. They are hints: the compiler places the elements of a tile itself (docs/ir.md), so
that bank conflicts of a GPU and its swizzles have no counterpart."""


class Layout:
    """A layout of a buffer, by name; or one given as a function of the indices."""

    def __init__(self, name, buffer=None, **ignored):
        self.name, self.buffer = name, buffer

    def __repr__(self):
        return f"{self.name}({self.buffer!r})"


class Fragment(Layout):
    """Which thread holds which element, on a GPU."""


def _named(name):
    def make(buffer, *args, **kwargs):
        return Layout(name, buffer)

    make.__name__ = f"make_{name}_layout"
    make.__doc__ = f"The hint {name!r}."
    return make


make_zn_layout, make_nz_layout = _named("zn"), _named("nz")
make_swizzled_layout = _named("swizzled")
make_full_bank_swizzled_layout = _named("full_bank_swizzled")
make_half_bank_swizzled_layout = _named("half_bank_swizzled")
make_quarter_bank_swizzled_layout = _named("quarter_bank_swizzled")
make_linear_layout = _named("linear")

__all__ = [n for n in globals() if n.startswith("make_")] + ["Fragment", "Layout"]
