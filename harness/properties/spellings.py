"""A layout is the same in whichever way it is told: boundaries, slots, positions, with padding declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.records import check_of, observe_of, wrong
from harness.subjects.packs_records import PacksRecords

if TYPE_CHECKING:
    from harness.witness import Witness
    from v4model import PackLayout

NAME = "every_spelling_names_the_same_samples"


def _find(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Witness | None:
    for spelling, wanted, got in _answers(subject, lengths, choose):
        if got != wanted:
            return wrong(NAME, f"{spelling} are read as other samples", got=_told(got), expected=_told(wanted))
    return None


def _tables(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> dict[str, Tensor]:
    answers = _answers(subject, lengths, choose)
    return {spelling: torch.tensor([-1] if got is None else [*sum(got, ())]) for spelling, _, got in answers}


_Read = tuple[tuple[int, ...], tuple[int, ...], tuple[int]]
"""Lengths, starts and the total of a layout."""


def _answers(
    subject: PacksRecords, lengths: Sequence[int], choose: Random
) -> Iterator[tuple[str, _Read | None, _Read | None]]:
    """What is told, what it means, and how the subject reads it; None for a refusal."""
    ends = list(accumulate(lengths, initial=0))
    slots = [length + choose.randrange(3) for length in lengths]
    slot_ends = list(accumulate(slots, initial=0))
    for padding in (0, choose.randint(2, 9)):
        total = ends[-1] + padding
        dense: _Read = (tuple(lengths), tuple(ends[:-1]), (total,))
        padded: _Read = (tuple(lengths), tuple(slot_ends[:-1]), (slot_ends[-1] + padding,))
        behind = f"with {padding} tokens of padding"
        for again in (0, 2):
            repeated = [*ends, *ends[-1:] * again]
            name = f"boundaries {repeated} {behind}"
            yield name, dense, _boundaries(subject, repeated, None, total=total)
        name = f"boundaries {ends} in slots {slot_ends} {behind}"
        yield name, padded, _boundaries(subject, ends, slot_ends, total=slot_ends[-1] + padding)
        positions = [position for length in lengths for position in range(length)] + [0] * padding
        yield f"positions of {list(lengths)} {behind}", dense, _positions(subject, positions, padding=padding)
    # Zeros at the end may be padding or samples of one token: whoever does not say which is refused.
    yield f"positions of {list(lengths)} and zeros not declared", None, _positions(subject, positions, padding=None)


def _boundaries(subject: PacksRecords, ends: list[int], slots: list[int] | None, *, total: int) -> _Read | None:
    padded = None if slots is None else torch.tensor(slots, dtype=torch.int32)
    try:
        return _read(subject.layout_of_boundaries(torch.tensor(ends, dtype=torch.int32), padded=padded, total=total))
    except ValueError:
        return None


def _positions(subject: PacksRecords, positions: list[int], *, padding: int | None) -> _Read | None:
    try:
        return _read(subject.layout_of_positions(torch.tensor(positions), padding=padding))
    except ValueError:
        return None


def _read(layout: PackLayout) -> _Read:
    return tuple(layout.lengths), tuple(layout.starts), (layout.total,)


def _told(read: _Read | None) -> str:
    if read is None:
        return "a refusal"
    lengths, starts, (total,) = read
    return f"{len(lengths)} samples of {list(lengths)} tokens at {list(starts)} in {total}"


register(
    Property(
        NAME,
        "boundaries, slots and positions give the samples they were made of; padding that is not declared is refused",
        check_of(NAME, _find),
        kinds=("all",),
        rounded=True,
        looks_at="data",
        observed=observe_of(NAME, _tables),
    )
)
