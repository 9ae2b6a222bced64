"""StepCounts: what a step's sums are divided by, known on the host before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from v4model.pack.collate import Pack


@dataclass(frozen=True)
class StepCounts:
    """Counts over all packs of a step: its micro-batches, on all replicas.

    labels: supervised labels of the trunk, then of each MTP depth. tokens: positions that router statistics are made
    of, all real tokens in the trunk, then the valid positions of each MTP depth.
    """

    labels: tuple[int, ...]
    tokens: tuple[int, ...]

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(_add(self.labels, other.labels), _add(self.tokens, other.tokens))


def counts_of(packs: Iterable[Pack], *, depths: int) -> StepCounts:
    """The counts of packs for a model with `depths` MTP depths."""
    total = StepCounts((0,) * (depths + 1), (0,) * (depths + 1))
    for pack in packs:
        supervised = pack.supervised.cpu()
        labels, tokens = [], []
        for depth in range(depths + 1):
            source = pack.layout.ahead(depth + 1)
            labels.append(int(supervised[source[source >= 0]].sum()))
            tokens.append(sum(max(length - depth, 0) for length in pack.layout.lengths))
        total += StepCounts(tuple(labels), tuple(tokens))
    return total


def _add(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
