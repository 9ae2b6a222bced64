"""How a case is written as one short word that a shell takes as it is.

    all/5.33.17+64/s123                 three samples of 5, 33 and 17 tokens, 64 in all (9 of tail padding), seed 123
    csa,index_topk=2/8p3.1x4/s7/float32 8 tokens and 3 of padding behind them, four samples of one token, no tail
    all@4/40.24/s0                      on four context-parallel ranks in one process; all@4p: on gloo processes

A layout too long to be read is packed into digits of base 64 (`z64.999.9.` and what follows): the samples' lengths and
paddings as one number whose digits have the bases (longest length) and (longest padding + 1).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.errors import CaseError

LONGEST = 200
"""A token stays within this many characters for up to 64 samples of up to 1,000 tokens and 31 of padding each."""

_WHOLE = re.compile(
    r"(?P<config>[^/@]+)(?:@(?P<ranks>\d{1,3})(?P<processes>p?))?/(?P<samples>[^/+]+)(?:\+(?P<total>\d{1,9}))?/s(?P<seed>\d{1,19})(?:/(?P<dtype>[a-z0-9]+))?",
    re.ASCII,
)
_ITEM = re.compile(r"(?P<length>\d{1,9})(?:p(?P<padding>\d{1,9}))?(?:x(?P<times>\d{1,4}))?", re.ASCII)
_PACKED = re.compile(
    r"z(?P<count>\d{1,4})\.(?P<length>\d{1,9})\.(?P<padding>\d{1,9})\.(?P<digits>[A-Za-z0-9_-]*)", re.ASCII
)


@dataclass(frozen=True)
class Parts:
    """A token taken apart; None for what it does not say."""

    config: str
    ranks: int | None
    processes: bool
    samples: str
    total: int | None
    seed: int
    dtype: str | None


def split(text: str) -> Parts:
    """A token's parts; raises CaseError."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise CaseError(
            got=f"{shown!r}",
            expected="CONFIG[@RANKS[p]]/LENGTHS[+TOTAL]/sSEED[/DTYPE], such as all/5.33.17+64/s123",
            where="the replay token",
        )
    ranks, total = match["ranks"], match["total"]
    return Parts(
        config=match["config"],
        ranks=None if ranks is None else int(ranks),
        processes=bool(match["processes"]),
        samples=match["samples"],
        total=None if total is None else int(total),
        seed=int(match["seed"]),
        dtype=match["dtype"],
    )


def write_samples(lengths: Sequence[int], paddings: Sequence[int], *, room: int) -> str:
    """The samples as text, readable if that fits into `room` characters, else packed."""
    plain = ".".join(
        _item(length, padding, sum(1 for _ in group))
        for (length, padding), group in groupby(zip(lengths, paddings, strict=True))
    )
    return plain if len(plain) <= room else _packed(lengths, paddings)


def read_samples(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths and paddings of the samples; the inverse of `write_samples`; raises CaseError."""
    if text.startswith("z"):
        return _unpacked(text)
    lengths: list[int] = []
    paddings: list[int] = []
    for index, item in enumerate(text.split(".")):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise CaseError(
                got=f"{item!r}",
                expected="LENGTH, LENGTHpPADDING or either with xTIMES",
                where=f"item {index} of the replay token's samples",
            )
        times = int(match["times"] or 1)
        lengths += [int(match["length"])] * times
        paddings += [int(match["padding"] or 0)] * times
    return tuple(lengths), tuple(paddings)


def _item(length: int, padding: int, times: int) -> str:
    text = f"{length}p{padding}" if padding else f"{length}"
    if times == 2 and len(text) == 1:
        return f"{text}.{text}"
    return text if times == 1 else f"{text}x{times}"


def _packed(lengths: Sequence[int], paddings: Sequence[int]) -> str:
    longest, widest = max(lengths), max(paddings)
    number = 0
    for length, padding in zip(lengths, paddings, strict=True):
        number = (number * longest + length - 1) * (widest + 1) + padding
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    text = base64.urlsafe_b64encode(digits).decode().rstrip("=")
    return f"z{len(lengths)}.{longest}.{widest}.{text}"


def _unpacked(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    match = _PACKED.fullmatch(text)
    where = "the replay token's packed samples"
    if match is None or int(match["length"]) < 1:
        raise CaseError(got=f"{text[:40]!r}", expected="zCOUNT.LONGEST.WIDEST.DIGITS", where=where)
    digits = match["digits"]
    try:
        number = int.from_bytes(base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4)), "big")
    except binascii.Error as error:
        raise CaseError(got=f"{digits[:40]!r}", expected="whole digits of base 64", where=where) from error
    pairs: list[tuple[int, int]] = []
    for _ in range(int(match["count"])):
        number, padding = divmod(number, int(match["padding"]) + 1)
        number, length = divmod(number, int(match["length"]))
        pairs.append((length + 1, padding))
    if number:
        raise CaseError(got="more digits", expected=f"those of {match['count']} samples", where=where)
    pairs.reverse()
    return tuple(length for length, _ in pairs), tuple(padding for _, padding in pairs)
