"""The place where the Ascend dialect keeps its layout hints."""

from .layout import Layout, make_nz_layout, make_zn_layout

__all__ = ["Layout", "make_nz_layout", "make_zn_layout"]
