"""Which test that is gone may be which new one. Said as a question; told from names alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

SIMILAR = 0.6
"""The least likeness of two function names in one file; difflib calls this a close match."""

_MOST_IN_A_GROUP = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """An id taken apart: `place::function[parameters]`."""

    id: str
    place: str
    function: str
    parameters: str


def find_renames(removed: Iterable[str], added: Iterable[str]) -> dict[str, str]:
    """Old id to new id, where each of the two has no other candidate.

    Candidates are a test of the same name and parameters elsewhere, and one in the same place with the same parameters
    and a similar name.
    """
    gone, new = [_parts(i) for i in removed], [_parts(i) for i in added]
    forward: dict[str, set[str]] = defaultdict(set)
    backward: dict[str, set[str]] = defaultdict(set)
    for old, candidate in _pairs(gone, new):
        if old.function == candidate.function or _similar(old.function, candidate.function):
            forward[old.id].add(candidate.id)
            backward[candidate.id].add(old.id)
    return {
        old: min(found) for old, found in sorted(forward.items()) if len(found) == 1 and len(backward[min(found)]) == 1
    }


def _pairs(gone: list[_Parts], new: list[_Parts]) -> Iterator[tuple[_Parts, _Parts]]:
    """Pairs that share function and parameters, or place and parameters."""
    for by_place in (False, True):
        olds, news = _grouped(gone, by_place=by_place), _grouped(new, by_place=by_place)
        for shared in olds.keys() & news.keys():
            # A whole family that changed at once has no unique partner, and would cost the square of its size.
            if max(len(olds[shared]), len(news[shared])) <= _MOST_IN_A_GROUP:
                yield from ((old, candidate) for old in olds[shared] for candidate in news[shared])


def _grouped(parts: list[_Parts], *, by_place: bool) -> dict[tuple[str, str], list[_Parts]]:
    found: dict[tuple[str, str], list[_Parts]] = defaultdict(list)
    for part in parts:
        found[part.place if by_place else part.function, part.parameters].append(part)
    return found


def _parts(identity: str) -> _Parts:
    base, bracket, parameters = identity.partition("[")
    place, _, function = base.rpartition("::")
    return _Parts(id=identity, place=place, function=function, parameters=bracket + parameters)


@cache
def _similar(one: str, other: str) -> bool:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= SIMILAR
