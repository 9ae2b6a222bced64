"""Bounds for a subject: those of float64 and of equal bits, and what takes their place where it declares less.

A `Measurable` subject in a narrow dtype is held to bounds that are computed for each case
(`harness.properties.rounding`) instead of those of sums in another order here.

A subject that lacks "float64 throughout" rounds as float32 does, whatever its dtype; one that lacks "fixed shapes" sums
in another order when other tokens are routed elsewhere, so that bits say nothing. Neither makes a defect smaller, but
rounding can then decide a choice among nearly equal values, and a row that it decides proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from harness.properties.measure import generator, row_differences
from harness.subjects.protocol import Measurable, Unsupported
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

    still: where nothing may move, 0 if the order is fixed. roundings: how far inputs may be moved, relative to
    themselves, to see whether rounding decides. in_other_order: where sums are taken in another order, None where no
    fixed bound tells a defect from rounding.
    """

    still: float
    roundings: float
    in_other_order: float | None

    @property
    def reordered(self) -> float:
        """Where sums are taken in another order; raises Unsupported in dtypes that only computed bounds serve."""
        if self.in_other_order is None:
            raise Unsupported("narrower than float32, bounds have to be computed, and it is not Measurable")
        return self.in_other_order

    @property
    def are_usual(self) -> bool:
        """Whether they are those of a subject that lacks nothing."""
        return self.in_other_order == REORDERED_F64 and self.still == EXACT


def measurable(subject: Subject, case: Case) -> Measurable | None:
    """The subject as one whose bounds are computed on the case, None where they are fixed."""
    return subject if case.dtype != "float64" and isinstance(subject, Measurable) else None


def bounds_of(subject: Subject, case: Case) -> Bounds:
    """The bounds that a subject is held to on a case."""
    unsupported = unsupported_by(subject)
    is_wide = case.dtype == "float64" and WIDE not in unsupported
    known = {"float64": REORDERED_F64 if is_wide else REORDERED_F32, "float32": REORDERED_F32}
    bounds = Bounds(
        still=EXACT,
        roundings=ROUNDINGS_F64 if is_wide else ROUNDINGS_F32,
        in_other_order=known.get(case.dtype),
    )
    return replace(bounds, still=bounds.reordered) if FIXED_SHAPES in unsupported else bounds


def unless_rounding_decides(verdict: Verdict, subject: Subject, case: Case, pack: Pack) -> Verdict:
    """The verdict, or UNDECIDED if the row that its witness names also moves when every embedding is rounded anew.

    Only asked where bounds are fixed and not the usual ones: with those, no choice is near enough to be decided by
    chance, and where they are computed no choice is left to it.
    """
    witness, bounds = verdict.witness, bounds_of(subject, case)
    if witness is None or witness.query is None or bounds.are_usual or EMBEDDINGS in unsupported_by(subject):
        return verdict
    if measurable(subject, case) is not None:
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
