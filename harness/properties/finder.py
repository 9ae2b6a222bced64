"""From "something moved" to a witness: one query, one source, and where the one reads the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.properties.bounds import bounds_of
from harness.properties.influence import Influence
from harness.properties.locate import is_brief, located
from harness.properties.measure import moved_rows, place_of, row_differences, rows_of_samples, tokens_of
from harness.properties.perturb import Manner, other_tokens
from harness.tolerance import EXACT, largest_magnitude
from harness.witness import Witness

if TYPE_CHECKING:
    from harness.case import Case
    from harness.subjects.protocol import Observation, Subject
    from v4model import Pack

Allowed = Callable[[int], Tensor]
"""allowed(depth) is [T, T] bool: which sources (columns) a query (row) may read at that depth, by the property."""

Watched = Callable[[int, str], Tensor]
"""watched(depth, "logits" or "nll") is [T] bool: rows that may not move."""


class RepetitionError(RuntimeError):
    """The subject gives something else each time, so that nothing follows from a difference."""


class Finder:
    """Puts one property's questions about a pack to a subject and turns what it finds into witnesses."""

    def __init__(self, subject: Subject, case: Case, pack: Pack, *, name: str, allowed: Allowed) -> None:
        self._subject = subject
        self._layout = pack.layout
        self._name = name
        self._allowed = allowed
        self._still = bounds_of(subject, case).still
        self.error = 0.0
        """The largest relative movement seen of a row that should keep still, where less than bits is asked."""
        self.influence = Influence(subject, case, pack)
        self.ids = other_tokens(case, pack, vocab_size=subject.config.vocab_size)

    @property
    def num_depths(self) -> int:
        """Trunk and MTP depths."""
        return len(self.influence.observation.depths)

    def moves(self, manner: Manner, marked: Tensor, *, watched: Watched) -> bool:
        """Whether perturbing the marked tokens ([T] bool) moves a watched row by a bit."""
        return self._moved(manner, marked, watched) is not None

    def by_perturbing(self, manner: Manner, marked: Tensor, *, watched: Watched) -> Witness | None:
        """The witness if perturbing the marked tokens ([T] bool) moves a watched row by a bit.

        No watched row may be allowed to read a marked token.
        """
        found = self._moved(manner, marked, watched)
        if found is None:
            return None
        depth, kind, rows = found
        # Padding that moved says less than a sample that did; and the row next to a marked token most likely read one
        # itself, not through others.
        rows = rows & self._layout.real if (rows & self._layout.real).any() else rows
        query = int(_by_distance(tokens_of(rows), tokens_of(marked))[0])
        what = f"{kind} moved under {manner.name}"
        if is_brief():
            return self._brief_witness(depth, query, what=what)

        def moved_by(some: Tensor) -> tuple[Tensor, Tensor]:
            mask = torch.zeros_like(marked)
            mask[some] = True
            got, expected = (_table(run, depth, kind) for run in (self._run(manner, mask), self.influence.observation))
            return self._differ(got, expected, watched(depth, kind)), row_differences(got, expected)

        suspects = _by_distance(tokens_of(marked), torch.tensor([query]))
        source = _narrowed(suspects, lambda some: bool(moved_by(some)[0][query]))
        by_source, difference = moved_by(torch.tensor([source]))
        if (by_source & rows).any():
            query = int(_by_distance(tokens_of(by_source & rows), torch.tensor([source]))[0])
        branch = "loss" if kind == "nll" else "unknown"
        return self._witness(
            manner,
            depth,
            query,
            source,
            branch=branch,
            what=what,
            magnitude=float(difference[query]),
            bound=self._still * largest_magnitude(_table(self.influence.observation, depth, kind)),
        )

    def reaches(self, rows: Sequence[Tensor], *, forbidden: Tensor) -> bool:
        """Whether a gradient from the rows ([T] bool a depth) at a forbidden embedding ([T] bool) is not exactly 0."""
        return bool((self.influence.reach(rows)[forbidden] != 0).any())

    def by_gradient(self, rows: Sequence[Tensor], *, forbidden: Tensor) -> Witness | None:
        """The witness if a gradient from the rows at a forbidden embedding is not exactly 0."""
        if not self.reaches(rows, forbidden=forbidden):
            return None
        what = "the logits have a gradient at its embedding"
        suspects = tokens_of(forbidden)
        if is_brief():
            return self._brief_witness(0, None, what=what)
        for depth, mask in enumerate(rows):
            candidates = _by_distance(tokens_of(mask), suspects)

            def still_reaches(some: Tensor, depth: int = depth) -> bool:
                return bool((self.influence.reach_of(depth, some)[forbidden] != 0).any())

            if still_reaches(candidates):
                break
        query = _narrowed(candidates, still_reaches)
        reach = torch.where(forbidden, self.influence.reach_of(depth, torch.tensor([query])), 0.0)
        source = int(_by_distance(tokens_of(reach != 0), torch.tensor([query]))[0])
        return self._witness(
            self.ids, depth, query, source, branch="gradient", what=what, magnitude=float(reach[source])
        )

    def _moved(self, manner: Manner, marked: Tensor, watched: Watched) -> tuple[int, str, Tensor] | None:
        """Depth, "logits" or "nll", and moved rows [T] bool of the first table in which a watched row moved."""
        got, expected = self._run(manner, marked), self.influence.observation
        for depth in range(self.num_depths):
            for kind in ("logits", "nll"):
                one, two = _table(got, depth, kind), _table(expected, depth, kind)
                rows = self._differ(one, two, watched(depth, kind))
                if rows.any():
                    self._check_repeats(depth, kind)
                    return depth, kind, rows
        return None

    def _check_repeats(self, depth: int, kind: str) -> None:
        """Raises RepetitionError where rows move by themselves, from one run to the next."""
        again, expected = (_table(run, depth, kind) for run in (self.influence.observed(), self.influence.observation))
        if self._differ(again, expected, torch.ones_like(self._layout.real)).any():
            by = float(row_differences(again, expected).max())
            raise RepetitionError(f"the {kind} of two runs of the same pack differ, by {by:.3g}")

    def _differ(self, got: Tensor, expected: Tensor, watched: Tensor) -> Tensor:
        """[T] bool: watched rows that moved, by a bit or, where shapes are not fixed, by more than their bound."""
        if self._still == EXACT:
            return moved_rows(got, expected) & watched
        errors = torch.where(watched, row_differences(got, expected), 0) / max(largest_magnitude(expected), 1e-300)
        self.error = max(self.error, float(errors.max()))
        return errors > self._still

    def _run(self, manner: Manner, marked: Tensor) -> Observation:
        return manner.applied(marked).observe(self._subject)

    def _brief_witness(self, depth: int, query: int | None, *, what: str) -> Witness:
        place = None if query is None else place_of(self._layout, query)
        return Witness(property=self._name, depth=depth, query=place, what=what, magnitude=math.inf, bound=self._still)

    def _witness(
        self,
        manner: Manner,
        depth: int,
        query: int,
        source: int,
        *,
        branch: str,
        what: str,
        magnitude: float,
        bound: float = EXACT,
    ) -> Witness:
        """branch: what it is if no recorded part of the model differs between the two runs."""
        only = torch.zeros_like(self._layout.real)
        before = manner.applied(only)
        only[source] = True
        own = rows_of_samples(self._layout, [int(self._layout.sample[query])])
        witness = Witness(
            property=self._name,
            depth=depth,
            query=place_of(self._layout, query),
            source=place_of(self._layout, source),
            branch=branch,
            what=what,
            magnitude=magnitude,
            bound=bound,
        )
        return located(
            witness,
            self._subject,
            before=before,
            after=manner.applied(only),
            forbidden=lambda at: own & ~self._allowed(at)[:, source],
        )


def _table(run: Observation, depth: int, kind: str) -> Tensor:
    return run.depths[depth].values if kind == "logits" else run.depths[depth].nll


def _by_distance(tokens: Tensor, others: Tensor) -> Tensor:
    """Tokens (LongTensor), those nearest to one of the others first, earlier ones first among equals."""
    distance = (tokens[:, None] - others[None, :]).abs().amin(dim=1)
    return tokens[torch.sort(distance, stable=True).indices]


def _narrowed(tokens: Tensor, matters: Callable[[Tensor], bool]) -> int:
    """One of the tokens that matters by itself, the first if it can be told; all together do.

    Halves the tokens. Where it takes tokens of both halves, the first token is named.
    """
    while len(tokens) > 1:
        middle = len(tokens) // 2
        if matters(tokens[:middle]):
            tokens = tokens[:middle]
        elif matters(tokens[middle:]):
            tokens = tokens[middle:]
        else:
            break
    return int(tokens[0])
