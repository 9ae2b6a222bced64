"""Which sample goes into which pack: arithmetic on lengths alone.

Best-fit decreasing (Johnson 1973) on a histogram of lengths: the longest samples first, each into the pack with the
least room that still takes it. As lengths decrease, a pack is either open (has room for the current length) and in a
heap by room, or asleep in the list of its room until a length that fits comes up; so the tightest fit is the heap's top
and n samples take O(n log n + window). There is no limit on samples per pack.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from v4model.data.recipe import Mode
from v4model.errors import DataError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Assignment:
    """Samples by pack.

    Args:
        order: [S] int64, every sample once, pack after pack.
        samples_per_pack: [P] int64.
    """

    order: Ints
    samples_per_pack: Ints

    def fill(self, slots: npt.ArrayLike) -> Ints:
        """[P] int64: tokens that slots of the given sizes take in each pack."""
        sizes = np.asarray(slots, dtype=np.int64)[self.order]
        return np.add.reduceat(sizes, np.cumsum(self.samples_per_pack) - self.samples_per_pack)


def aligned(lengths: npt.ArrayLike, *, align: int) -> Ints:
    """Lengths rounded up to multiples of `align`: the slots that samples take."""
    return -(-np.asarray(lengths, dtype=np.int64) // align) * align


def least_packs(slots: npt.ArrayLike, *, window: int) -> int:
    """No packing has fewer packs than tokens / window, rounded up."""
    return -(-int(np.sum(slots)) // window)


def assign(slots: npt.ArrayLike, *, window: int, mode: Mode = "best-fit", seed: int = 0) -> Assignment:
    """Packs of at most `window` tokens; the same for the same arguments.

    `best-fit` puts the pack with the most room last. The seed shuffles samples of equal length and the order inside
    each pack; the other modes keep the samples' order.

    Raises:
        DataError: no samples, or one of less than 1 or more than `window` tokens.
    """
    sizes = np.asarray(slots, dtype=np.int64)
    if not sizes.size:
        raise DataError(got="no samples", expected="at least one to pack")
    for sample in np.flatnonzero((sizes < 1) | (sizes > window))[:1]:
        where = f"sample {sample} of {sizes.size}"
        raise DataError(got=f"a sample of {sizes[sample]} tokens", expected=f"1 to {window}", where=where)
    if mode == "padded":
        return Assignment(np.arange(sizes.size), np.ones(sizes.size, dtype=np.int64))
    if mode == "sequential":
        return Assignment(np.arange(sizes.size), _sequential(sizes, window=window))
    return _best_fit(sizes, window=window, seed=seed)


def _sequential(sizes: Ints, *, window: int) -> Ints:
    ends = np.cumsum(sizes)
    firsts = [0]
    while firsts[-1] < sizes.size:
        taken = ends[firsts[-1] - 1] if firsts[-1] else 0
        firsts.append(int(np.searchsorted(ends, taken + window, side="right")))
    return np.diff(firsts)


def _best_fit(sizes: Ints, *, window: int, seed: int) -> Assignment:
    random = np.random.default_rng(seed)
    packs, times = _place(np.bincount(sizes), window=window)
    shuffled = random.permutation(sizes.size)
    decreasing = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    pack = np.empty(sizes.size, dtype=np.int64)
    pack[decreasing] = np.repeat(packs, times)
    # The remainder stands where a reader expects it.
    fill = np.bincount(pack, weights=sizes)
    emptiest = fill.size - 1 - int(np.argmin(fill[::-1]))
    pack = np.where(pack == emptiest, fill.size - 1, pack - (pack > emptiest))
    shuffled = random.permutation(sizes.size)
    return Assignment(shuffled[np.argsort(pack[shuffled], kind="stable")], np.bincount(pack))


def _place(counts: Ints, *, window: int) -> tuple[list[int], list[int]]:
    """Placements in decreasing order of length: the pack, and how many samples of that length it takes at once.

    A pack that took a sample is the tightest for the next of the same length too, while that fits: one step for both.
    """
    packs: list[int] = []
    times: list[int] = []
    open_packs: list[tuple[int, int]] = []  # heap of (room, pack), room >= the current length
    asleep: list[list[int]] = [[] for _ in range(window)]  # packs by room < the current length
    known, previous = 0, window
    for length in np.flatnonzero(counts)[::-1].tolist():
        for room in range(length, previous):
            for pack in asleep[room]:
                heappush(open_packs, (room, pack))
            asleep[room].clear()
        previous, left = length, int(counts[length])
        while left:
            if open_packs:
                room, pack = heappop(open_packs)
            else:
                room, pack, known = window, known, known + 1
            taken = min(left, room // length)
            packs.append(pack)
            times.append(taken)
            left, room = left - taken, room - taken * length
            if room >= length:
                heappush(open_packs, (room, pack))
            else:
                asleep[room].append(pack)
    return packs, times
