"""Smaller cases by what a reader counts: fewer samples first, then the named configuration, less padding, fewer tokens.

Hypothesis, which draws the cases, would shrink the choices that made one, from the large first case on. These steps ask
a third as many cases, end at fewer samples (two neighbours that only together make a sample long enough become one),
and are the same for any strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from harness.case import DTYPES, Case

_Step: TypeAlias = Callable[[Case], Iterator[Case]]

_FEW = 16
"""Tokens of a sample up to which every shorter length is tried."""


def reduced(case: Case, violates: Callable[[Case], bool]) -> Case:
    """The case, or one of fewer samples (or else simpler) that `violates` too; no single step makes it simpler."""
    while True:
        before = case
        for step in (_fewer_samples, _plainer, _less_padding):
            case = _as_far_as_it_goes(step, case, violates)
        for candidates in (_shorter, _any_shorter):
            # One sample to its end after the other: each step of one makes all that was tried of the others new.
            for number in range(len(case.lengths)):
                case = _as_far_as_it_goes(partial(candidates, number=number), case, violates)
        case = _as_far_as_it_goes(_lower_seed, case, violates)
        if case == before:
            return case


def _weight(case: Case) -> tuple[int, ...]:
    """What a reader counts, the most important first; the smaller, the simpler the case."""
    padding = case.total - sum(case.lengths)
    changes = case.config.count(",")
    return len(case.lengths), changes, DTYPES.index(case.dtype), padding, case.total, case.seed


def _as_far_as_it_goes(step: _Step, case: Case, violates: Callable[[Case], bool]) -> Case:
    while True:
        candidates = (smaller for smaller in step(case) if _weight(smaller) < _weight(case))
        found = next((smaller for smaller in candidates if violates(smaller)), None)
        if found is None:
            return case
        case = found


def _fewer_samples(case: Case) -> Iterator[Case]:
    """A half, all but one, or two neighbours as one."""
    samples = _samples(case)
    count = len(samples)
    if count > 2:
        yield _with_samples(case, samples[count // 2 :])
        yield _with_samples(case, samples[: count // 2])
    if count > 1:
        for number in range(count):
            yield _with_samples(case, samples[:number] + samples[number + 1 :])
        for number in range(count - 1):
            (one, one_slot), (two, two_slot) = samples[number : number + 2]
            merged = (one + two, one_slot + two_slot)
            yield _with_samples(case, [*samples[:number], merged, *samples[number + 2 :]])


def _plainer(case: Case) -> Iterator[Case]:
    """The named configuration, one change less, or float64."""
    kind, *changes = case.config.split(",")
    yield from _configured(case, kind)
    for number in range(len(changes)):
        yield from _configured(case, ",".join((kind, *changes[:number], *changes[number + 1 :])))
    yield replace(case, dtype=DTYPES[0])


def _configured(case: Case, config: str) -> Iterator[Case]:
    """The case with another configuration, if its sizes fit together."""
    changed = replace(case, config=config)
    try:
        changed.v4config()
    except ValueError:  # two changes that only make sense together
        return
    yield changed


def _less_padding(case: Case) -> Iterator[Case]:
    yield replace(case, slots=None, total=sum(case.lengths))
    yield replace(case, total=sum(case.lengths if case.slots is None else case.slots))


def _shorter(case: Case, *, number: int) -> Iterator[Case]:
    """Sample `number` with one token, a half, three quarters, ... and one token less."""
    length = case.lengths[number]
    yield _with_length(case, number, 1)
    cut = length - length // 2
    while 0 < cut < length:
        yield _with_length(case, number, length - cut)
        cut //= 2


def _any_shorter(case: Case, *, number: int) -> Iterator[Case]:
    for length in range(1, min(case.lengths[number], _FEW)):
        yield _with_length(case, number, length)


def _lower_seed(case: Case) -> Iterator[Case]:
    for seed in (0, 1):
        yield replace(case, seed=seed)


def _samples(case: Case) -> list[tuple[int, int]]:
    """Length and slot of each."""
    return list(zip(case.lengths, case.lengths if case.slots is None else case.slots, strict=True))


def _with_samples(case: Case, some: list[tuple[int, int]]) -> Case:
    """These samples, and the padding at the tail."""
    tail = case.total - sum(slot for _, slot in _samples(case))
    lengths, slots = (tuple(column) for column in zip(*some, strict=True))
    return replace(case, lengths=lengths, slots=slots, total=sum(slots) + tail)


def _with_length(case: Case, number: int, length: int) -> Case:
    """Sample `number` of so many tokens, the padding behind it as it is."""
    samples = _samples(case)
    old, slot = samples[number]
    samples[number] = (length, slot - old + length)
    return _with_samples(case, samples)
