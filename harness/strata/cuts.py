"""Strata of context-parallel cuts.

A cut is the first token of a rank other than the first; W is the sliding window, r a compression ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.case import Case
    from v4model import Pack, V4Config

CUT_STRATA = (
    "cut inside a window",
    "cut inside an overlap half",
    "cut one token before a sample's end",
    "cut on a sample's end",
    "cut one token behind a sample's end",
    "sample over 2 ranks",
    "sample over 3 ranks",
    "sample over 4 ranks",
    "shard shorter than the sliding window",
    "shard shorter than a halo",
    "shard without a complete window",
    "unequal window counts",
    "padding-only rank",
    "nothing supervised on a rank",
    "tokens not a multiple of the ranks",
)
"""What a run on 4 ranks has to meet; on 2 ranks no sample lies over more, on 1 there is no cut."""


def cut_strata(case: Case, pack: Pack) -> frozenset[str]:
    """The strata of a case on ranks; empty for one that runs on no ranks."""
    if case.ranks is None or case.ranks == 1:
        return frozenset()
    return frozenset(_cut_strata(case.v4config(), pack, ranks=case.ranks))


def _cut_strata(config: V4Config, pack: Pack, *, ranks: int) -> Iterator[str]:
    layout = pack.layout
    size = -(-layout.total // ranks)
    if size * ranks != layout.total:
        yield "tokens not a multiple of the ranks"
    if size < config.sliding_window:
        yield "shard shorter than the sliding window"
    if size < max(config.reach(layer) for layer in range(len(config.compress_ratios))):
        yield "shard shorter than a halo"
    samples = [(start, start + length) for start, length in zip(layout.starts, layout.lengths, strict=True)]
    for start, end in samples:
        touched = (end - 1) // size - start // size + 1
        if 2 <= touched <= 4:
            yield f"sample over {touched} ranks"
        for cut in range(size, size * ranks, size):
            yield from _of_cut(cut, start, end, ratios=config.ratios)
    labels = {int(token) - 1 for token in pack.supervised.nonzero() if int(layout.position[token]) > 0}
    for rank in range(ranks):
        own = range(rank * size, (rank + 1) * size)
        if not any(start < own.stop and end > own.start for start, end in samples):
            yield "padding-only rank"
        elif labels.isdisjoint(own):
            yield "nothing supervised on a rank"
    for ratio in config.ratios:
        counts = [0] * ranks
        for start, end in samples:
            for last in range(start + ratio - 1, end, ratio):
                counts[last // size] += 1
        if 0 in counts and any(counts):
            yield "shard without a complete window"
        if len(set(counts)) > 1:
            yield "unequal window counts"


def _of_cut(cut: int, start: int, end: int, *, ratios: tuple[int, ...]) -> Iterator[str]:
    if start < cut == end - 1:
        yield "cut one token before a sample's end"
    if cut == end:
        yield "cut on a sample's end"
    if cut == end + 1:
        yield "cut one token behind a sample's end"
    for ratio in ratios:
        position, in_windows = cut - start, (end - start) // ratio * ratio
        if 0 < position < in_windows:
            if position % ratio:
                yield "cut inside a window"
            # The row of the next window pools this one too, so a cut inside it or behind it parts the two.
            if ratio == 4 and position // ratio * ratio + ratio < in_windows and position % ratio:
                yield "cut inside an overlap half"
