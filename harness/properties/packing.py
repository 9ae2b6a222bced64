"""Records become packs: each sample once and whole, nothing between them, and no pack that was not needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

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
from harness.subjects.packs_records import Packing, PacksRecords

if TYPE_CHECKING:
    from harness.witness import Witness
    from v4model import Pack, PackLayout

NAME = "packing_keeps_every_sample"


def _answers(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Iterator[tuple[Request, Answer]]:
    """As it is; and with samples at multiples of 8 in rows that three ranks share."""
    request = request_of(lengths, choose)
    cut = replace(request.packing, align=8, ranks=3, seed=choose.randrange(1, 100))
    with folder() as place:
        path = write_chat(place / "records.jsonl", [record.chat for record in request.records])
        for packing in (request.packing, cut):
            yield replace(request, packing=packing), asked(subject, path, packing)


def _tables(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> dict[str, Tensor]:
    answers = _answers(subject, lengths, choose)
    return {f"packs of {request.packing}": answer.table for request, answer in answers}


def _find(subject: PacksRecords, lengths: Sequence[int], choose: Random) -> Witness | None:
    for request, answer in _answers(subject, lengths, choose):
        if answer.refusal:
            return wrong(NAME, "records that fit the window are refused", got=answer.refusal, expected="packs")
        for number, pack in enumerate(answer.packs):
            what = _wrong_with(pack, request.packing)
            if what is not None:
                return wrong(NAME, f"pack {number} of {len(answer.packs)} {what}")
        witness = _lost_or_new(request, answer) or _needless(request.packing, answer)
        if witness is not None:
            return witness
    return None


def _wrong_with(pack: Pack, packing: Packing) -> str | None:
    layout, row = pack.layout, -(-packing.window // packing.ranks) * packing.ranks
    if layout.total != row:
        return f"has {layout.total} tokens, not the row's {row}"
    if 0 in layout.lengths:
        return f"has an empty sample, number {layout.lengths.index(0)} of {len(layout.lengths)}"
    starts = [0, *(start + slot for start, slot in zip(layout.starts, _slots(layout, packing), strict=True))]
    if list(layout.starts) != starts[:-1]:
        return f"has samples at {list(layout.starts)}, not one behind the other at {starts[:-1]}"
    if starts[-1] > packing.window:
        return f"holds slots of {starts[-1]} tokens, more than the window's {packing.window}"
    return None


def _lost_or_new(request: Request, answer: Answer) -> Witness | None:
    expected = Counter(record.sample for record in request.records)
    found = Counter(sample for _, sample in answer.samples())
    new = found - expected
    if new:
        place, sample = next((place, sample) for place, sample in answer.samples() if sample in new)
        what = f"{place} is no record's, or another's once more"
        return wrong(NAME, what, count=new.total(), got=f"tokens {_told(sample[0])} supervised {sum(sample[1])}")
    lost = expected - found
    if lost:
        length = len(next(iter(lost))[0])
        some = f"{lost.total()} of {expected.total()} records, such as one of {length} tokens,"
        return wrong(NAME, f"{some} are in no pack of a window of {request.packing.window}", count=lost.total())
    return None


def _needless(packing: Packing, answer: Answer) -> Witness | None:
    # Whoever opens a pack only for a sample that fits into none that is open leaves no two packs that fit into one.
    filled = sorted((sum(_slots(pack.layout, packing)), number) for number, pack in enumerate(answer.packs))
    if len(filled) < 2 or filled[0][0] + filled[1][0] > packing.window:
        return None
    (one, first), (two, second) = filled[:2]
    real = sum(tokens for tokens, _ in filled) / (packing.window * len(filled))
    what = f"packs {first} and {second} of {len(filled)}, filled with {one} and {two} tokens, would fit into one"
    return wrong(NAME, what, got=f"{real:.0%} of all packs filled", expected=f"at most {packing.window} a pack")


def _slots(layout: PackLayout, packing: Packing) -> list[int]:
    return [-(-length // packing.align) * packing.align for length in layout.lengths]


def _told(tokens: Sequence[int]) -> str:
    return f"{list(tokens[:8])}{' ...' if len(tokens) > 8 else ''} ({len(tokens)})"


register(
    Property(
        NAME,
        "packs hold each record's sample once, whole and labelled, and nothing else; no two packs would fit into one",
        check_of(NAME, _find),
        kinds=("all",),
        rounded=True,
        looks_at="data",
        observed=observe_of(NAME, _tables),
    )
)
