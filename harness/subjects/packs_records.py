"""What the harness asks of a subject that also makes packs of text: a file of records in, packs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from v4model import Pack, PackLayout


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What records are packed by.

    window: tokens a pack has room for. align: samples start at multiples of it. ranks: a pack's row is padded to a
    multiple of them. seed: of the order. tokenizer: "bytes" is one token a byte of UTF-8, its id the byte, and 256
    to 260 for BOS, EOS, user, assistant and the end of thinking; "v4" is that of the released model.
    """

    window: int
    align: int = 1
    ranks: int = 1
    seed: int = 0
    tokenizer: str = "bytes"


def _nothing(_step: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A folder that packs are kept in, as a builder sees it.

    machine: the builder's; locks do not hold between two of them. step: called wherever another builder may come in
    between, with a name for the place.
    """

    folder: Path
    machine: str = "one"
    step: Callable[[str], None] = _nothing


@runtime_checkable
class PacksRecords(Protocol):
    """A subject that makes packs of records; whatever it refuses, it refuses by a ValueError."""

    def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
        """All packs of a file of records: chat JSON Lines (.jsonl) or Alpaca JSON (.json).

        A sample is BOS, the user's marker and text, the assistant's marker, the end of thinking, the answer and EOS;
        the answer and its EOS are supervised.
        """
        ...

    def layout_of_boundaries(self, cu_seqlens: Tensor, *, padded: Tensor | None, total: int) -> PackLayout:
        """The layout that cumulative boundaries [S + 1] tell, repeated ones at the end allowed.

        padded: those of the slots, if they are not the samples' own. total: tokens of the pack.
        """
        ...

    def layout_of_positions(self, position_ids: Tensor, *, padding: int | None) -> PackLayout:
        """The layout that positions [T] tell, the last `padding` of which are padding; None: that is not said."""
        ...
