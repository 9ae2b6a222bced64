"""Where two recorded runs part: the first part of the model whose rows differ though they should agree, and why.

One mechanism for every property that compares runs: before and after a perturbation (rows that may not see it must keep
their bits), packed and alone, on ranks and on one rank (all real rows must agree within the property's bound).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.measure import moved_rows, place_of, row_differences, tokens_of
from harness.subjects.record import (
    NONE,
    block_of,
    depth_of,
    layer_of,
    leaf_of,
    module_of,
    names_pooled_rows,
    names_reads,
    widened,
)
from harness.tolerance import largest_magnitude
from harness.witness import Place, Reading, Row

if TYPE_CHECKING:
    from harness.subjects.record import Record
    from v4model import PackLayout, V4Config


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where runs part: branch and layer as in a witness, the token of the first wrong row, and what that row read."""

    branch: str
    layer: str
    at: Place
    row: Row | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two records of one pack. agree(depth) is [T] bool, rows that must be equal; bound 0 asks for bits.

    Pooled rows are compared where they are read: a wrong one that nobody reads is none of a property's business.
    """

    got: Record
    expected: Record
    layout: PackLayout
    config: V4Config
    agree: Callable[[int], Tensor]
    bound: float

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Tables that both runs have, in the order of execution."""
        return tuple(name for name in self.expected if name in self.got)

    def moved(self, name: str) -> Tensor:
        """[T] or [W] bool: rows that differ, whether they may or not; pooled rows of unequal number all do."""
        got, expected = self.got[name], self.expected[name]
        if names_reads(name):
            width = max(got.shape[1], expected.shape[1])
            got, expected = (widened(table, width).sort(dim=1).values for table in (got, expected))
        if got.shape != expected.shape:
            return torch.ones(len(got), dtype=torch.bool)
        return self._differ(got, expected)

    def _differ(self, got: Tensor, expected: Tensor) -> Tensor:
        if self.bound == 0 or not got.is_floating_point():
            return moved_rows(got, expected)
        return row_differences(got, expected) > self.bound * largest_magnitude(expected)

    def wrong(self, name: str) -> Tensor:
        """[T] bool: rows of tokens that differ though they may not; none of pooled rows."""
        if names_pooled_rows(name):
            return torch.zeros_like(self.layout.real)
        return self.moved(name) & self.agree(depth_of(name))

    def wrong_names(self) -> Iterator[str]:
        """Tables with wrong rows, in the order of execution."""
        return (name for name in self.names if bool(self.wrong(name).any()))

    def parting(self) -> tuple[str, Tensor] | None:
        """The first layer with wrong rows and which they are, [T] bool; None if nothing parts.

        All that a layer records is one place: a row of it is wrong if it is in any of its tables.
        """
        first = next(self.wrong_names(), None)
        if first is None:
            return None
        layer = _layer(first)
        return layer, torch.stack([self.wrong(name) for name in self.names if _layer(name) == layer]).any(dim=0)

    def origin(self, *, near: int | None) -> Origin | None:
        """Where the runs part, told of the wrong row nearest to token `near`, or the first; None if nowhere."""
        parting = self.parting()
        if parting is None:
            return None
        layer, wrong = parting
        at = min(tokens_of(wrong).tolist(), key=lambda token: (token if near is None else abs(token - near), token))
        branch, row = self._cause(layer, at)
        return Origin(branch=branch, layer=layer, at=place_of(self.layout, at), row=row)

    def _cause(self, layer: str, at: int) -> tuple[str, Row | None]:
        if leaf_of(layer) == "self_attn":
            return self._attention(layer, at)
        if leaf_of(layer) == "e_proj":
            return "shift", self._ahead(layer, at)
        return ("router" if leaf_of(layer) in ("mlp", "gate") else "unknown"), None

    def _attention(self, attention: str, at: int) -> tuple[str, Row | None]:
        """What the row of an attention layer read: its own tokens first, then pooled rows, then the choice of them."""
        ratio = self.config.compress_ratios[layer_of(attention, num_hidden_layers=self.config.num_hidden_layers)]
        if f"{attention}.local" not in self.names:
            return ("local or pool" if ratio else "local"), None
        inputs = f"{block_of(attention)}.attn_hc"
        moved = set(tokens_of(self.moved(inputs)).tolist()) if inputs in self.names else set()
        row = self._row(f"{attention}.local", at, moved, tokens=1)
        if row is not None or not ratio:
            # Right rows, read rightly, and yet a wrong result: the arithmetic is at fault, no branch.
            return ("unknown" if row is None else "local"), row
        visible, picks = f"{attention}.visible", f"{attention}.indexer.picks"
        picked = picks in self.names
        candidates = set().union(*self._reads(visible, at))
        rows = self._changed_windows(attention, "compressor")
        row = self._row(visible, at, rows & candidates if not picked else set(), tokens=ratio)
        if row is None and picked:
            # A candidate that was read and is wrong came from the pool; any other wrong row, from the choice.
            read = set().union(*self._reads(picks, at)) & rows & candidates
            row = self._nearest(dict.fromkeys(read, self._of_both), at, tokens=ratio)
        if row is not None:
            return "pool", row
        if not picked:
            return "unknown", None
        keys = self._changed_windows(attention, "indexer.compressor") & candidates
        row = self._row(picks, at, rows, tokens=ratio) or self._row(visible, at, keys, tokens=ratio)
        scored = f"{attention}.indexer.scores"
        wrong = row is not None or (scored in self.names and bool(self.wrong(scored)[at]))
        return ("picks" if wrong else "unknown"), row

    def _ahead(self, module: str, at: int) -> Row | None:
        """The token whose embedding an MTP depth joined to the row."""
        name = f"{module}.ahead"
        if name not in self.names:
            return None
        return self._row(name, at, set().union(*self._reads(name, at)), tokens=1)

    def _reads(self, name: str, at: int) -> tuple[set[int], set[int]]:
        """What row `at` reads in each of the runs."""
        got, expected = (set(record[name][at].tolist()) - {NONE} for record in (self.got, self.expected))
        return got, expected

    def _row(self, name: str, at: int, changed: set[int], *, tokens: int) -> Row | None:
        """What only one of the runs reads, or both although it is among the changed rows."""
        got, expected = self._reads(name, at)
        found = dict.fromkeys(got - expected, Reading.READ) | dict.fromkeys(expected - got, Reading.MISSED)
        return self._nearest(found | dict.fromkeys(got & expected & changed, self._of_both), at, tokens=tokens)

    @property
    def _of_both(self) -> Reading:
        """Under a perturbation, a changed row is one that may not be read; between layouts it is computed otherwise."""
        return Reading.READ if self.bound == 0 else Reading.DIFFERENT

    def _nearest(self, rows: dict[int, Reading], at: int, *, tokens: int) -> Row | None:
        if not rows:
            return None
        # What is read says more than what is not, and a place in the pack more than one outside.
        first = min(rows, key=lambda row: (row < 0, rows[row] is Reading.MISSED, abs(row + tokens - 1 - at), row))
        if first < 0:
            return Row(first=None, last=None, reading=rows[first])
        last = min(first + tokens, self.layout.total) - 1
        return Row(first=place_of(self.layout, first), last=place_of(self.layout, last), reading=rows[first])

    def _changed_windows(self, attention: str, part: str) -> set[int]:
        """Windows, by first token, of pooled rows that differ or that only one run has."""
        windows, name = f"{attention}.windows", f"{attention}.{part}"
        if windows not in self.names or name not in self.names:
            return set()
        old, new = (
            dict(zip(record[windows].tolist(), record[name], strict=True)) for record in (self.expected, self.got)
        )
        common = sorted(set(old) & set(new))
        if not common:
            return set(old) ^ set(new)
        got, expected = (torch.stack([rows[window] for window in common]) for rows in (new, old))
        moved = self._differ(got, expected)
        return (set(old) ^ set(new)) | {common[row] for row in tokens_of(moved).tolist()}


def _layer(name: str) -> str:
    """The module that witnesses name: a whole attention layer for any part of it, else the module of the table."""
    attention = f"{block_of(name)}.self_attn"
    return attention if name.startswith(attention) else module_of(name)
