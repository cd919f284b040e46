"""Tile sizes to try, from the sizes of a problem and of the chip's memories: closed forms, nothing is run.

A hint has `block` (rows and columns of the tile of the result) and `rstep` (how much of K is in L1 at once). Candidates
are those that fit L1 (two tiles of each operand) and L0C; they are ordered by an estimate: the bytes that all blocks
read, over the bandwidth the cores share, or the products over the cores' throughput, whichever takes longer,
for as many
rounds of blocks as the cores need.
"""

from ..errors import ArgumentError
from ..language.dtypes import DType
from . import arch

_SIZES = (16, 32, 64, 128, 256)


class Hint:
    def __init__(self, block, rstep, cost):
        self.block, self.rstep, self.cost = list(block), list(rstep), cost

    def __repr__(self):
        return f"Hint(block={self.block}, rstep={self.rstep})"


class MatmulTemplate:
    """C[M, N] = A[M, K] B[K, N]."""

    def __init__(
        self,
        M,
        N,
        K,
        in_dtype="float16",
        accum_dtype="float32",
        out_dtype="float16",
        trans_A=False,
        trans_B=False,
        **ignored,
    ):
        self.M, self.N, self.K = M, N, K
        self.in_dtype = DType(in_dtype)
        self.arch = None

    def with_arch(self, chip):
        self.arch = chip
        return self

    def recommend_hints(self, topk=10):
        """The best `topk` hints, best first."""
        if self.arch is None:
            raise ArgumentError(
                "MatmulTemplate: say for which chip: template.with_arch(Ascend())",
                "template.with_arch(carver.arch.Ascend())",
            )
        item, chip = self.in_dtype.itemsize, self.arch
        found = []
        for bm in _fitting(self.M):
            for bn in _fitting(self.N):
                if bm * bn * 4 > chip.l0c:  # the cube accumulates in 4-byte elements
                    continue
                for bk in _fitting(self.K):
                    if 2 * (bm + bn) * bk * item <= chip.l1:
                        found.append(Hint((bm, bn), (bk,), self.cost(bm, bn, bk)))
        return sorted(found, key=lambda h: (h.cost, -h.rstep[0], h.block))[:topk]

    def cost(self, bm, bn, bk):
        """Cycles, roughly."""
        chip, item = self.arch, self.in_dtype.itemsize
        blocks = -(-self.M // bm) * -(-self.N // bn)
        rounds = -(-blocks // chip.cores)
        steps = -(-self.K // bk)
        moved = (bm + bn) * bk * item * steps
        busy = -(-bm // 16) * -(-bn // 16) * -(-bk // (32 // item)) * steps
        return rounds * max(moved / chip.bytes_per_cycle, busy) + rounds * steps * chip.step_cycles


def _fitting(extent):
    sizes = [s for s in _SIZES if s <= extent] or [_SIZES[0]]
    whole = [s for s in sizes if extent % s == 0]
    return whole or sizes


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"tilelang.carver has no '{name}'; it has MatmulTemplate")


__all__ = ["Hint", "MatmulTemplate", "arch"]
