"""Strata: what a case is an instance of, so that a run can say which corners it has seen. Pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.strata.cuts import CUT_STRATA, cut_strata
from harness.strata.layouts import DTYPE_STRATA, LAYOUT_STRATA, layout_strata

if TYPE_CHECKING:
    from harness.case import Case
    from v4model import Pack

__all__ = ["CUT_STRATA", "DTYPE_STRATA", "LAYOUT_STRATA", "every_stratum_of", "strata_of"]


def strata_of(case: Case, pack: Pack) -> frozenset[str]:
    """Names of all strata that a case belongs to: of its cuts if it runs on ranks, else of its layout and sizes."""
    return layout_strata(case, pack) if case.ranks is None else cut_strata(case, pack)


def every_stratum_of(case: Case, pack: Pack) -> frozenset[str]:
    """Names of the strata of its layout and sizes, and of its cuts if it runs on ranks."""
    return layout_strata(case, pack) | cut_strata(case, pack)
