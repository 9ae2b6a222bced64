"""What a cache gives back is what would have been built, whatever else was asked of it before or meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties import Property, register
from harness.properties.records import (
    Answer,
    Request,
    asked,
    check_of,
    folder,
    observe_of,
    request_of,
    write_chat,
    wrong,
)
from harness.subjects.packs_records import Cache, Packing, PacksRecords

if TYPE_CHECKING:
    from harness.witness import Witness
    from v4model import Pack

NAME = "cache_gives_what_was_asked"

_INTERRUPTED = 3
"""Steps of a builder at which another one comes in between, drawn from all of them: each costs four files."""

_AT_ONCE = 8
"""Records that the two pack, few for the same reason."""


def _find(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Witness | None:
    for what, got, fresh in _answers(subject, lengths, choose):
        if not torch.equal(got.table, fresh.table):
            told, wanted = _difference(got, fresh)
            return wrong(NAME, f"the cache gives other packs {what}", got=told, expected=wanted)
    return None


def _tables(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> dict[str, Tensor]:
    return {what: got.table for what, got, _ in _answers(subject, lengths, choose)}


def _answers(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Iterator[tuple[str, Answer, Answer]]:
    request = request_of(lengths, choose)
    with folder() as place:
        path = write_chat(place / "records.jsonl", [record.chat for record in request.records])
        yield from _one_after_another(subject, path, request, place / "cache")
        write_chat(path, [record.chat for record in request.records[:_AT_ONCE]])
        yield from _at_once(subject, path, request.packing, place, choose)


def _one_after_another(
    subject: PacksRecords, path: Path, request: Request, cache: Path
) -> Iterator[tuple[str, Answer, Answer]]:
    """The same folder is asked after every change of one thing, and once more as at first."""
    first = request.packing
    for what, packing in {
        "at first": first,
        "for another window": replace(first, window=first.window + 8),
        "for samples at multiples of 8": replace(first, align=8),
        "for three ranks": replace(first, ranks=3),
        "for another seed": replace(first, seed=1),
        "for another tokenizer": replace(first, tokenizer="v4"),
        "as at first, again": first,
    }.items():
        yield what, asked(subject, path, packing, cache=Cache(folder=cache)), asked(subject, path, packing)
    # A file of the same name and size.
    write_chat(path, [record.chat for record in request.records[::-1]])
    yield "for other records", asked(subject, path, first, cache=Cache(folder=cache)), asked(subject, path, first)


def _at_once(
    subject: PacksRecords, path: Path, packing: Packing, place: Path, choose: Random
) -> Iterator[tuple[str, Answer, Answer]]:
    """While one builder stands at a step, another one on another machine builds what it needs in the same folder."""
    steps: list[str] = []
    asked(subject, path, packing, cache=Cache(folder=place / "alone", step=steps.append))
    other = replace(packing, seed=packing.seed + 1)
    fresh, theirs = asked(subject, path, packing), asked(subject, path, other)
    for number in sorted(choose.sample(range(len(steps)), min(_INTERRUPTED, len(steps)))):
        both = place / f"both-{number}"
        interrupt = _Interrupt(subject, path, other, Cache(folder=both, machine="two"), at=number)
        where = f"to a builder interrupted at {steps[number]!r}"
        yield where, asked(subject, path, packing, cache=Cache(folder=both, step=interrupt)), fresh
        if interrupt.answer is not None:
            yield f"{where}, of the other one", interrupt.answer, theirs
        yield f"{where}, read later", asked(subject, path, packing, cache=Cache(folder=both)), fresh
        yield f"{where}, the other's read later", asked(subject, path, other, cache=Cache(folder=both)), theirs


class _Interrupt:
    """Lets another builder build when a step is reached for the n-th time."""

    def __init__(self, subject: PacksRecords, path: Path, packing: Packing, cache: Cache, *, at: int) -> None:
        self._builder, self._left = (subject, path, packing, cache), at
        self.answer: Answer | None = None

    def __call__(self, _step: str) -> None:
        self._left -= 1
        if self._left == -1:
            subject, path, packing, cache = self._builder
            self.answer = asked(subject, path, packing, cache=cache)


def _difference(got: Answer, fresh: Answer) -> tuple[str, str]:
    """Where two answers differ first, in words for each."""
    if got.refusal or fresh.refusal or len(got.packs) != len(fresh.packs):
        return _whole(got), _whole(fresh)
    for number, (one, other) in enumerate(zip(got.packs, fresh.packs, strict=True)):
        if one.layout != other.layout:
            return f"{_placed(one)} in pack {number}", _placed(other)
        differs = (one.tokens != other.tokens) | (one.supervised != other.supervised)
        if bool(differs.any()):
            token = int(differs.nonzero()[0])
            found, wanted = (int(pack.tokens[token]) for pack in (one, other))
            return f"token {found} at {other.layout.where(token)} of pack {number}", f"token {wanted}"
    return _whole(got), _whole(fresh)


def _placed(pack: Pack) -> str:
    return f"samples of {list(pack.layout.lengths)} tokens at {list(pack.layout.starts)}"


def _whole(answer: Answer) -> str:
    return answer.refusal or f"{len(answer.packs)} packs"


register(
    Property(
        NAME,
        "packs from a cache are those of a fresh build, after any change and with two builders at a time",
        check_of(NAME, _find),
        kinds=("all",),
        rounded=True,
        looks_at="data",
        observed=observe_of(NAME, _tables),
    )
)
