"""Where rows of the matrix are asked: named configurations, ranks, and the cases drawn for both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, zip_longest

from harness.case import Case
from harness.catalogue import properties
from harness.corpus import Corpus
from harness.engine.draw import Draw
from harness.engine.row import Row, Unit
from harness.engine.run import asked_at
from harness.engine.unit import Work, cases_of
from harness.properties import Property
from harness.strategies import PackSize

TRAINED_TOKENS = 4096
"""Tokens of a pack of the size people train on, at the least."""

_SLOT_TOKENS = 16
_SMALL = PackSize(min_samples=2, max_samples=4, min_tokens=30, max_tokens=90)
_SMALL_CASES = 8


@dataclass(frozen=True)
class Place:
    """A named configuration, and the number of context-parallel ranks, None for the subject as it is."""

    kind: str
    ranks: int | None

    def properties(self) -> list[Property]:
        """What can be asked here, in the order of the catalogue."""
        return [prop for prop in properties() if self.kind in prop.kinds and asked_at(prop, self.ranks)]


def places(kinds: Sequence[str], ranks: Sequence[int]) -> list[Place]:
    """Every configuration on every number of ranks; on none of them if there are none."""
    return [Place(kind, number) for kind in kinds for number in (*ranks, *(() if ranks else (None,)))]


def in_turn(work: Work, where: Sequence[Place]) -> Iterator[tuple[Place, Case]]:
    """The places' cases, one of each in turn: a few small packs first, which are quick and show most of what there is.

    Then as many of the profile's own size as it asks of a property and kind.
    """
    few = min(_SMALL_CASES, work.profile.cases_per_kind)
    for profile in (replace(work.profile, size=_SMALL, cases_per_kind=few), work.profile):
        sized = replace(work, profile=profile)
        drawn = ([(place, case) for case in _drawn(sized, place)] for place in where)
        yield from (case for case in chain.from_iterable(zip_longest(*drawn)) if case is not None)


@lru_cache(maxsize=128)
def _drawn(work: Work, place: Place) -> tuple[Case, ...]:
    asked = place.properties()
    # What speaks of ranks wants cases that the others have no use for, such as one sample over all ranks.
    wanted = [prop for prop in asked if prop.ranked] or asked
    unit = Unit(place.kind, (Row("every property", place.ranks),))
    found: list[Case] = []
    Draw(unit, cases_of(work, unit, wanted), layouts=work.profile.cases_per_kind, seed=work.seed).run(found.append)
    return tuple(unit.rows[0].at(case) for case in found)


@lru_cache(maxsize=64)
def trained_cases(place: Place, corpus: Corpus) -> tuple[Case, Case]:
    """Packs of `TRAINED_TOKENS` of samples of the text's own lengths: dense, and with slots of full multiples of 16."""
    lengths = list(corpus.natural_lengths(at_most=TRAINED_TOKENS // 4))
    random.Random(f"{place.kind} {place.ranks}").shuffle(lengths)

    def case(slot_tokens: int) -> Case:
        kept: list[int] = []
        slots: list[int] = []
        for length in lengths * (TRAINED_TOKENS // sum(lengths) + 1):
            slot = -(-length // slot_tokens) * slot_tokens
            if sum(slots) + slot <= TRAINED_TOKENS:
                kept.append(length)
                slots.append(slot)
        return Case(
            config=place.kind, lengths=tuple(kept), slots=tuple(slots), total=TRAINED_TOKENS, seed=1, ranks=place.ranks
        )

    return case(1), case(_SLOT_TOKENS)
