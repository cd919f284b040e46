"""Small integer functions for the host and for kernels."""

from .language.math import cdiv


def next_power_of_2(n):
    """The smallest power of two that is at least n."""
    return 1 << max(int(n) - 1, 0).bit_length()


__all__ = ["cdiv", "next_power_of_2"]
