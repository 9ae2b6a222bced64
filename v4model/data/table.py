"""SampleTable: many samples in flat arrays, four bytes a token, and the policies for samples that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from v4model.data.recipe import Recipe
from v4model.data.sources import Located, Sample
from v4model.errors import DataError, UnsupervisedError

Ints = npt.NDArray[np.int64]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What a recipe's policies took away.

    truncated_labels and split_labels are supervised tokens that no position predicts any more. dropped_tokens counts
    pieces only: a record in which nothing is learned was never encoded.
    """

    truncated_samples: int = 0
    truncated_tokens: int = 0
    truncated_labels: int = 0
    split_samples: int = 0
    split_labels: int = 0
    dropped_samples: int = 0
    dropped_tokens: int = 0

    @classmethod
    def from_counts(cls, counts: Sequence[int]) -> Losses:
        """The inverse of `dataclasses.astuple`."""
        return cls(**{field.name: count for field, count in zip(fields(cls), counts, strict=True)})

    def __add__(self, other: Losses) -> Losses:
        return Losses(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleTable:
    """S samples of N tokens, one after another.

    Args:
        tokens: [N] int32.
        supervised: [N] bool, True where the token counts as a label.
        lengths: [S] int64.
        record: [S] int64, the record of the source that a sample comes from, from 0.
        offset: [S] int64, its first token in that record (0 unless the record was split).
    """

    tokens: npt.NDArray[np.int32]
    supervised: npt.NDArray[np.bool_]
    lengths: Ints
    record: Ints
    offset: Ints

    @cached_property
    def starts(self) -> Ints:
        """[S] int64: first token of each sample."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def labels(self) -> Ints:
        """[S] int64: supervised labels of each sample; its first token has no position before it and never is one."""
        flags = self.supervised.astype(np.int64)
        flags[self.starts] = 0
        return np.add.reduceat(flags, self.starts) if flags.size else flags

    def take(self, order: Ints) -> SampleTable:
        """The samples `order`, in that order."""
        lengths = self.lengths[order]
        ends = np.cumsum(lengths)
        token = np.arange(ends[-1] if ends.size else 0) + np.repeat(self.starts[order] - (ends - lengths), lengths)
        return SampleTable(
            tokens=self.tokens[token],
            supervised=self.supervised[token],
            lengths=lengths,
            record=self.record[order],
            offset=self.offset[order],
        )


@dataclass(frozen=True)
class _Piece:
    sample: Sample
    record: int
    offset: int


def tabulate(samples: Iterable[Located], *, recipe: Recipe) -> tuple[SampleTable, Losses]:
    """All samples, cut or dropped as the recipe says, and what that cost.

    Raises:
        DataError: a sample longer than the window, or one in which nothing is learned, where the recipe refuses it;
            nothing left.
    """
    losses, pieces = Losses(), []
    for record, (where, found) in enumerate(samples):
        if isinstance(found, UnsupervisedError):
            losses += _drop(found, recipe=recipe, tokens=0)
            continue
        cost, cut = _fit(found, record=record, where=where, recipe=recipe)
        losses += cost
        for piece in cut:
            if any(piece.sample.supervised[1:]):
                pieces.append(piece)
                continue
            count = len(piece.sample.tokens)
            place = f"{where}, tokens [{piece.offset}, {piece.offset + count})"
            error = UnsupervisedError(got="no supervised label", expected="at least one", where=place)
            losses += _drop(error, recipe=recipe, tokens=count)
    if not pieces:
        raise DataError(got="no sample with a label", expected="at least one", where="after the recipe's policies")
    if losses.dropped_samples:
        _log.warning("dropped %d samples in which nothing is learned", losses.dropped_samples)
    return _table(pieces), losses


def _fit(sample: Sample, *, record: int, where: str, recipe: Recipe) -> tuple[Losses, Iterator[_Piece]]:
    length, window = len(sample.tokens), recipe.window
    if length > window and recipe.too_long == "error":
        expected = f"at most the window's {window} (or too_long 'truncate' or 'split')"
        raise DataError(got=f"a sample of {length} tokens", expected=expected, where=where)
    starts = range(0, length, window)
    if length <= window:
        losses = Losses()
    elif recipe.too_long == "truncate":
        starts = starts[:1]
        labels = sum(sample.supervised[window:])
        losses = Losses(truncated_samples=1, truncated_tokens=length - window, truncated_labels=labels)
    else:
        losses = Losses(split_samples=1, split_labels=sum(sample.supervised[start] for start in starts[1:]))
    ends = ((start, start + window) for start in starts)
    cut = (_Piece(Sample(sample.tokens[a:b], sample.supervised[a:b]), record, a) for a, b in ends)
    return losses, cut


def _drop(error: UnsupervisedError, *, recipe: Recipe, tokens: int) -> Losses:
    if recipe.unsupervised == "error":
        raise UnsupervisedError(got=error.got, expected=f"{error.expected} (or unsupervised 'drop')", where=error.where)
    _log.info("dropped: %s", error)
    return Losses(dropped_samples=1, dropped_tokens=tokens)


def _table(pieces: list[_Piece]) -> SampleTable:
    return SampleTable(
        tokens=np.concatenate([np.array(piece.sample.tokens, dtype=np.int32) for piece in pieces]),
        supervised=np.concatenate([np.array(piece.sample.supervised, dtype=np.bool_) for piece in pieces]),
        lengths=np.array([len(piece.sample.tokens) for piece in pieces], dtype=np.int64),
        record=np.array([piece.record for piece in pieces], dtype=np.int64),
        offset=np.array([piece.offset for piece in pieces], dtype=np.int64),
    )
