"""Strata: what a case is an instance of, by hand, and that a search meets them all."""

from __future__ import annotations

from functools import cache

import pytest

from harness.case import Case
from harness.engine import PROFILES
from harness.engine.draw import Draw
from harness.engine.row import Unit
from harness.kinds import KINDS
from harness.strata import CUT_STRATA, LAYOUT_STRATA, strata_of
from harness.strategies import cases
from harness.strategies.cuts import ranked_cases
from suites.harness import fakes


def strata(token: str) -> frozenset[str]:
    case = Case.from_token(token)
    return strata_of(case, case.pack(fakes.corpus()))


def test_strata_by_hand() -> None:
    # Samples [0, 7), [7, 15), [15, 16) of a model with ratios 4 and 16, window 8, top-k 4, two MTP depths.
    found = strata("all/7.8.1/s0")
    assert {"three samples and more", "no padding", "sample of one token", "dtype float64"} <= found
    assert {"length one below a multiple of the CSA ratio", "length a multiple of the CSA ratio"} <= found
    assert {"start off the CSA grid with whole windows", "sample with several CSA windows"} <= found
    assert {"sample as long as the sliding window", "sample shorter than the sliding window"} <= found
    assert {"pack without a complete HCA window", "sample no longer than the MTP depths"} <= found
    assert "no more CSA rows than top-k" in found
    assert found.isdisjoint({"sample one token longer than the sliding window", "more CSA rows than top-k", "no MTP"})
    assert not {name for name in found if name.startswith("changed")}


@pytest.mark.parametrize(
    ("token", "name", "met"),
    [
        ("csa/5.21/s0", "more CSA rows than top-k", True),
        ("csa/5.19/s0", "more CSA rows than top-k", False),
        ("csa,index_n_heads=1/5.21/s0", "more CSA rows than top-k of one index head", True),
        ("csa/4.21/s0", "more CSA rows than top-k off the grid", False),
        ("csa/5.21/s0", "more CSA rows than top-k off the grid", True),
        ("dense/5.21/s0", "sample without a complete CSA window", False),
        ("hca/7.8/s0", "sample without a HCA window before one with", True),
        ("hca/8.7/s0", "sample without a HCA window before one with", False),
        ("hca/9p2.4/s0", "interior padding alone", True),
        ("hca/9p2.4+20/s0", "padding inside and at the tail", True),
        ("hca/9.4+20/s0", "padding at the tail alone", True),
        ("csa/9.4+20/s0", "padding at the tail behind a whole window", True),
        ("hca,compress_ratios=6:6:6:6/9/s0", "changed HCA ratio", True),
        ("hca,sliding_window=5/9/s0", "changed sliding window", True),
        ("all/9/s0/bfloat16", "dtype bfloat16", True),
        ("csa/1.1.5/s0", "samples of one token next to each other", True),
        ("all/9/s0", "several MTP depths", True),
        ("dense,compress_ratios=0:0:0,num_nextn_predict_layers=1/9/s0", "several MTP depths", False),
        ("csa/1.5.1/s0", "samples of one token next to each other", False),
    ],
)
def test_a_stratum_by_hand(token: str, name: str, met: bool) -> None:  # noqa: FBT001 - a column of the table
    assert name in (*LAYOUT_STRATA, "dtype bfloat16")
    assert (name in strata(token)) is met


def test_on_ranks_cuts_are_told_instead() -> None:
    assert strata("all@1/7.8.1/s0") == frozenset()
    assert "cut inside a window" in strata("all@2/6.6/s0") | strata("all@2/9.3/s0")
    assert set(strata("all@4/6.6/s0")) <= set(CUT_STRATA)


@cache
def _met(*, ranks: int | None, layouts: int) -> frozenset[str]:
    met: set[str] = set()
    for kind in KINDS:
        found: list[Case] = []
        strategy = cases(kind) if ranks is None else ranked_cases(kind, ranks=ranks)
        Draw(Unit(kind, ()), strategy, layouts=layouts, seed=0).run(found.append)
        met.update(*(strata_of(case, case.pack(fakes.corpus())) for case in found))
    return frozenset(met)


def test_what_the_ci_profile_draws_for_one_property_meets_every_stratum() -> None:
    # One property: a run asks several, each about layouts of its own.
    missing = set(LAYOUT_STRATA) - _met(ranks=None, layouts=PROFILES["ci"].cases_per_kind)
    assert not missing
    assert not set(CUT_STRATA) - _met(ranks=4, layouts=PROFILES["ci"].ranked_per_kind)
