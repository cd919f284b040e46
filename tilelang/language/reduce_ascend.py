"""The reductions of the Ascend dialect under the name of their own module; `T.reduce_sum` is the same."""

from .ops import reduce_max, reduce_min, reduce_sum

__all__ = ["reduce_max", "reduce_min", "reduce_sum"]
