"""Bounds for a subject: those of float64 and of equal bits, and what takes their place where it declares less.

A subject that lacks "float64 throughout" rounds as float32 does, whatever its dtype; one that lacks "fixed shapes" sums
in another order when other tokens are routed elsewhere, so that bits say nothing. Neither makes a defect smaller, but
rounding can then decide a choice among nearly equal values, and a row that it decides proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.properties.measure import generator, row_differences
from harness.subjects.support import EMBEDDINGS, FIXED_SHAPES, WIDE, unsupported_by
from harness.tolerance import (
    EXACT,
    REORDERED_F32,
    REORDERED_F64,
    ROUNDINGS_F32,
    ROUNDINGS_F64,
    largest_magnitude,
)
from harness.verdict import Verdict

if TYPE_CHECKING:
    from harness.case import Case
    from harness.subjects.protocol import Subject
    from v4model import Pack

_TRIES = 3
"""Times that embeddings are moved by rounding before a row counts as decided by something else."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Largest relative errors allowed.

    reordered: where sums are taken in another order. still: where nothing may move, 0 if the order is fixed.
    roundings: how far inputs may be moved, relative to themselves, to see whether rounding decides.
    """

    reordered: float
    still: float
    roundings: float

    @property
    def are_usual(self) -> bool:
        """Whether they are those of a subject that lacks nothing."""
        return self.reordered == REORDERED_F64 and self.still == EXACT


def bounds_of(subject: Subject, case: Case) -> Bounds:
    """The bounds that a subject is held to on a case."""
    unsupported = unsupported_by(subject)
    is_wide = case.dtype == "float64" and WIDE not in unsupported
    reordered = REORDERED_F64 if is_wide else REORDERED_F32
    return Bounds(
        reordered=reordered,
        still=reordered if FIXED_SHAPES in unsupported else EXACT,
        roundings=ROUNDINGS_F64 if is_wide else ROUNDINGS_F32,
    )


def unless_rounding_decides(verdict: Verdict, subject: Subject, case: Case, pack: Pack) -> Verdict:
    """The verdict, or UNDECIDED if the row that its witness names also moves when every embedding is rounded anew.

    Only asked where bounds are not the usual ones: with those, no choice is near enough to be decided by chance.
    """
    witness, bounds = verdict.witness, bounds_of(subject, case)
    if witness is None or witness.query is None or bounds.are_usual or EMBEDDINGS in unsupported_by(subject):
        return verdict
    if not 0 <= witness.query.token < pack.layout.total:
        return verdict
    embeddings, source = subject.embeddings(pack), generator(case, "rounding")
    with torch.no_grad():
        before = subject.observe(pack, embeddings=embeddings).depths[witness.depth].values
        for _ in range(_TRIES):
            noise = torch.randn(embeddings.shape, generator=source, dtype=torch.float64).to(embeddings)
            moved = embeddings * (1 + bounds.roundings * noise)
            after = subject.observe(pack, embeddings=moved).depths[witness.depth].values
            error = float(row_differences(after, before)[witness.query.token]) / largest_magnitude(before)
            if error > bounds.reordered:
                return Verdict.undecided(
                    f"rounding decides what {witness.query} gives: it moves by {error:.1e} when embeddings move by "
                    f"{bounds.roundings:.1e}"
                )
    return verdict
