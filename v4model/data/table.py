"""SampleTable: many samples in flat arrays, four bytes a token, and the policies for samples that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from v4model.data.recipe import Recipe
from v4model.data.sources import Located
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
    """A sample or a part of one; arrays from the start, as lists of Python integers take ten times as much."""

    tokens: npt.NDArray[np.int32]
    supervised: npt.NDArray[np.bool_]
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
        tokens = np.array(found.tokens, dtype=np.int32)
        supervised = np.array(found.supervised, dtype=np.bool_)
        cost, cuts = _cut(supervised, where=where, recipe=recipe)
        losses += cost
        for start, end in cuts:
            if supervised[start + 1 : end].any():
                pieces.append(_Piece(tokens[start:end], supervised[start:end], record, start))
                continue
            place = f"{where}, tokens [{start}, {end})"
            error = UnsupervisedError(got="no supervised label", expected="at least one", where=place)
            losses += _drop(error, recipe=recipe, tokens=end - start)
    if not pieces:
        raise DataError(got="no sample with a label", expected="at least one", where="after the recipe's policies")
    if losses.dropped_samples:
        _log.warning("dropped %d samples in which nothing is learned", losses.dropped_samples)
    return _table(pieces), losses


def _cut(supervised: npt.NDArray[np.bool_], *, where: str, recipe: Recipe) -> tuple[Losses, list[tuple[int, int]]]:
    """The tokens [start, end) that become samples, and what is lost."""
    length, window = supervised.size, recipe.window
    if length <= window:
        return Losses(), [(0, length)]
    if recipe.too_long == "error":
        expected = f"at most the window's {window} (or too_long 'truncate' or 'split')"
        raise DataError(got=f"a sample of {length} tokens", expected=expected, where=where)
    if recipe.too_long == "truncate":
        labels = int(supervised[window:].sum())
        cost = Losses(truncated_samples=1, truncated_tokens=length - window, truncated_labels=labels)
        return cost, [(0, window)]
    starts = range(0, length, window)
    cost = Losses(split_samples=1, split_labels=int(supervised[window::window].sum()))
    return cost, [(start, min(start + window, length)) for start in starts]


def _drop(error: UnsupervisedError, *, recipe: Recipe, tokens: int) -> Losses:
    if recipe.unsupervised == "error":
        raise UnsupervisedError(got=error.got, expected=f"{error.expected} (or unsupervised 'drop')", where=error.where)
    _log.info("dropped: %s", error)
    return Losses(dropped_samples=1, dropped_tokens=tokens)


def _table(pieces: list[_Piece]) -> SampleTable:
    return SampleTable(
        tokens=np.concatenate([piece.tokens for piece in pieces]),
        supervised=np.concatenate([piece.supervised for piece in pieces]),
        lengths=np.array([piece.tokens.size for piece in pieces], dtype=np.int64),
        record=np.array([piece.record for piece in pieces], dtype=np.int64),
        offset=np.array([piece.offset for piece in pieces], dtype=np.int64),
    )
