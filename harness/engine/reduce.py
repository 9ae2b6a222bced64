"""Smaller cases by what a reader counts: fewer samples first, then the named configuration, less padding, fewer tokens.

Hypothesis shrinks the choices that made a case, one by one. Two neighbours that only together make a sample long enough
are beyond it: dropping one loses the violation, and it never makes the other longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.case import DTYPES, Case


def reduced(case: Case, violates: Callable[[Case], bool]) -> Case:
    """The case, or one of fewer samples (or else simpler) that `violates` too; no single step makes it simpler."""
    while True:
        candidates = (smaller for smaller in _smaller(case) if weight(smaller) < weight(case))
        found = next((smaller for smaller in candidates if violates(smaller)), None)
        if found is None:
            return case
        case = found


def weight(case: Case) -> tuple[int, ...]:
    """What a reader counts, the most important first; the smaller, the simpler the case."""
    padding = case.total - sum(case.lengths)
    changes = case.config.count(",")
    return len(case.lengths), changes, DTYPES.index(case.dtype), padding, case.total


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that differ in one respect, the largest steps first."""
    slots = case.lengths if case.slots is None else case.slots
    tail = case.total - sum(slots)
    samples = list(zip(case.lengths, slots, strict=True))

    def with_samples(some: list[tuple[int, int]]) -> Case:
        lengths, slots = (tuple(column) for column in zip(*some, strict=True))
        return replace(case, lengths=lengths, slots=slots, total=sum(slots) + tail)

    count = len(samples)
    if count > 1:
        for number in range(count):
            yield with_samples(samples[:number] + samples[number + 1 :])
        for number in range(count - 1):
            (one, one_slot), (two, two_slot) = samples[number : number + 2]
            merged = (one + two, one_slot + two_slot)
            yield with_samples([*samples[:number], merged, *samples[number + 2 :]])
    if "," in case.config:
        kind, *changes = case.config.split(",")
        for number in range(len(changes)):
            yield from _configured(case, ",".join((kind, *changes[:number], *changes[number + 1 :])))
    if case.dtype != DTYPES[0]:
        yield replace(case, dtype=DTYPES[0])
    yield replace(case, slots=None, total=sum(case.lengths))
    yield replace(case, total=sum(slots))
    for number, (length, slot) in enumerate(samples):
        for shorter in (length // 2, length - 1):
            if shorter:
                yield with_samples([*samples[:number], (shorter, slot - length + shorter), *samples[number + 1 :]])


def _configured(case: Case, config: str) -> Iterator[Case]:
    """The case with another configuration, if its sizes fit together."""
    changed = replace(case, config=config)
    try:
        changed.v4config()
    except ValueError:  # two changes that only make sense together
        return
    yield changed
