"""One pack as rows to look at: tokens, boundaries, masks and the labels that the model makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from v4model.data.packed import PackedData
from v4model.data.packing import aligned
from v4model.data.tokenizer import ChatTokenizer
from v4model.errors import DataError

if TYPE_CHECKING:
    from v4model.pack import PackLayout

_EDGE_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """Token `token` of a row: its id, whether it counts as a label, and the label that its position predicts.

    `label` is None where the sample has no next token; `learned` says that the label is supervised.
    """

    token: int
    position: int
    id: int
    text: str
    supervised: bool
    label: int | None
    label_text: str
    learned: bool


@dataclass(frozen=True, kw_only=True)
class Part:
    """A sample of the pack, or padding (no rows); None among the rows stands for those left out."""

    title: str
    rows: tuple[TokenRow | None, ...]


@dataclass(frozen=True, kw_only=True)
class PackView:
    """A pack: what it is, and its samples."""

    heading: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class _Viewed:
    """A pack with its labels as the model makes them: by the layout's own shift."""

    data: PackedData
    index: int
    tokenizer: ChatTokenizer

    @cached_property
    def columns(self) -> tuple[list[int], list[bool], list[int]]:
        """Ids, masks, and the token that each position predicts (-1 where none)."""
        pack = self.data.pack(self.index)
        return pack.tokens.tolist(), pack.supervised.tolist(), pack.layout.ahead(1).tolist()

    def row(self, token: int, *, position: int) -> TokenRow:
        ids, supervised, ahead = self.columns
        source = ahead[token]
        return TokenRow(
            token=token,
            position=position,
            id=ids[token],
            text=self.tokenizer.decode([ids[token]]),
            supervised=supervised[token],
            label=ids[source] if source >= 0 else None,
            label_text=self.tokenizer.decode([ids[source]]) if source >= 0 else "",
            learned=source >= 0 and supervised[source],
        )


def view_pack(
    data: PackedData, index: int, *, tokenizer: ChatTokenizer, tokens: tuple[int, int] | None = None
) -> PackView:
    """The rows of a pack: all of tokens [a, b), or the first and last three of each sample.

    Raises:
        DataError: a pack that is not there, or tokens outside it.
    """
    layout, table, viewed = data.layout(index), data.table, _Viewed(data, index, tokenizer)
    total = layout.total
    if tokens is not None and not 0 <= tokens[0] < tokens[1] <= total:
        got = f"tokens {tokens[0]}:{tokens[1]}"
        raise DataError(got=got, expected=f"a range inside 0:{total}", where=f"pack {index}")
    samples = data.samples(index)
    parts, end = [], 0
    for number, start, length in zip(samples, layout.starts, layout.lengths, strict=True):
        parts += _padding(end, start, tokens=tokens)
        end = start + length
        rows = _rows(viewed, start, length, tokens=tokens)
        if rows:
            title = f"sample {number - samples.start} of {layout.num_samples}: tokens [{start}, {end}), "
            title += f"{int(table.labels[number])} labels, record {int(table.record[number]) + 1}"
            offset = int(table.offset[number])
            parts.append(Part(title=title + (f" from its token {offset}" if offset else ""), rows=rows))
    parts += _padding(end, total, tokens=tokens)
    return PackView(heading=_heading(data, index, layout=layout), parts=tuple(parts))


def _heading(data: PackedData, index: int, *, layout: PackLayout) -> str:
    samples = data.samples(index)
    labels = int(data.table.labels[samples.start : samples.stop].sum())
    lines = [
        f"pack {index} of {len(data)}: {layout.num_samples} samples, {layout.real_tokens:,} of {layout.total:,} tokens "
        f"real, {labels:,} labels",
        f"cu_seqlens {_boundaries(list(accumulate(layout.lengths, initial=0)))}",
    ]
    if data.recipe.align > 1:
        slots = aligned(layout.lengths, align=data.recipe.align).tolist()
        lines.append(f"cu_seqlens_padded {_boundaries(list(accumulate(slots, initial=0)))}")
    return "\n".join(lines)


def _padding(start: int, end: int, *, tokens: tuple[int, int] | None) -> list[Part]:
    start, end = (start, end) if tokens is None else (max(start, tokens[0]), min(end, tokens[1]))
    return [Part(title=f"padding: tokens [{start}, {end})", rows=())] if start < end else []


def _rows(viewed: _Viewed, start: int, length: int, *, tokens: tuple[int, int] | None) -> tuple[TokenRow | None, ...]:
    wanted = _wanted(start, length, tokens)
    return tuple(None if token is None else viewed.row(token, position=token - start) for token in wanted)


def _wanted(start: int, length: int, tokens: tuple[int, int] | None) -> Iterator[int | None]:
    end = start + length
    if tokens is not None:
        yield from range(max(start, tokens[0]), min(end, tokens[1]))
    elif length <= 2 * _EDGE_TOKENS + 1:
        yield from range(start, end)
    else:
        yield from (*range(start, start + _EDGE_TOKENS), None, *range(end - _EDGE_TOKENS, end))


def _boundaries(bounds: list[int]) -> str:
    if len(bounds) <= 12:
        return ", ".join(map(str, bounds))
    return f"{', '.join(map(str, bounds[:6]))}, ..., {', '.join(map(str, bounds[-3:]))}"
