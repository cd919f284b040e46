"""Chips as the carver sees them."""

from . import ascend

__all__ = ["ascend"]
