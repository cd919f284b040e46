"""Small questions about the host and the chip."""

from . import target

__all__ = ["target"]
