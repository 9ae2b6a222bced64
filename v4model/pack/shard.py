"""ShardPlan: what one rank of a context-parallel group owns of a pack. Pure host arithmetic, no process group."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from v4model.errors import PackError
from v4model.pack.layout import PackLayout

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardPlan:
    """Rank `rank` of `ranks` owns tokens [start, end) of `layout`, contiguous and of equal size.

    Any cut is legal: inside a sample, a window or an overlap half; a shard may be padding only, or shorter than what
    its queries look back to. A window belongs to the rank that holds its last token.
    """

    layout: PackLayout
    """The whole pack, its tail padded to a multiple of `ranks`."""
    rank: int
    ranks: int

    @property
    def size(self) -> int:
        """Tokens each rank owns."""
        return self.layout.total // self.ranks

    @property
    def start(self) -> int:
        return self.rank * self.size

    @property
    def end(self) -> int:
        return self.start + self.size

    def bounds(self, rank: int) -> tuple[int, int]:
        """Tokens [start, end) of another rank."""
        return rank * self.size, (rank + 1) * self.size

    def left(self, rows: int, *, of: int | None = None) -> range:
        """The tokens of a left halo of at most `rows`, of another rank if given.

        Shorter where the stream begins, and longer than a shard if need be.
        """
        start, _ = self.bounds(self.rank if of is None else of)
        return range(max(start - rows, 0), start)

    def right(self, rows: int, *, of: int | None = None) -> range:
        """The tokens of a right halo of at most `rows`, of another rank if given."""
        _, end = self.bounds(self.rank if of is None else of)
        return range(end, min(end + rows, self.layout.total))

    def windows(self, *, ratio: int) -> tuple[range, ...]:
        """By rank, the pooled rows it owns: complete windows are numbered along the stream, so each owns a run."""
        ends = [_windows_ending_before(self.layout, self.bounds(rank)[0], ratio) for rank in range(self.ranks)]
        ends.append(_windows_ending_before(self.layout, self.layout.total, ratio))
        return tuple(range(first, last) for first, last in pairwise(ends))


@lru_cache(maxsize=1024)
def _windows_ending_before(layout: PackLayout, token: int, ratio: int) -> int:
    return sum(
        min(max(token - start, 0), length) // ratio for start, length in zip(layout.starts, layout.lengths, strict=True)
    )


@lru_cache(maxsize=256)
def shard_of(layout: PackLayout, *, rank: int, ranks: int, order: str = "contiguous") -> ShardPlan:
    """The plan of one rank; a layout that does not divide is padded at its tail, and a log line says so.

    Raises:
        PackError: a rank outside the group, or another order: windows and halos need neighbours to be neighbours, so
            the zig-zag order that balances causal attention is refused.
    """
    if order != "contiguous":
        raise PackError(got=f"shard order {order!r}", expected="'contiguous' (zig-zag cuts windows and halos apart)")
    if not 0 <= rank < ranks:
        raise PackError(got=f"rank {rank}", expected=f"0 to {ranks - 1}", where=f"a group of {ranks}")
    missing = -layout.total % ranks
    if missing and rank == 0:
        _log.info("padded a pack of %d tokens by %d, to a multiple of %d ranks", layout.total, missing, ranks)
    return ShardPlan(replace(layout, total=layout.total + missing), rank, ranks)
