"""No property raises an alarm at a model that computes the same in another way; each rewrite is seen to have run."""

from __future__ import annotations

from functools import cache

import pytest

from harness.case import Case
from harness.catalogue import properties
from harness.engine.decide import on_ranks
from harness.properties import Property
from harness.rewrites.registry import Rewrite, load_rewrites
from harness.subjects.protocol import Subject
from harness.verdict import Outcome, Verdict
from suites.quality.drawn import FACTORY, corpus

REWRITES = load_rewrites()

# Samples off every grid, padding inside and at the tail, more rows than picks; bits, in a dtype that rounds more.
_LAYOUTS = ("6p1.21+31/s3", "9.6p1/s5/float32")
_RANKED_LAYOUT = "9.7p2+20/s1"


def _cases(rewrite: Rewrite) -> list[Case]:
    if rewrite.ranks:
        return [Case.from_token(f"csa@{rewrite.ranks[-1]}/{_RANKED_LAYOUT}")]
    kinds = (rewrite.kinds[0], rewrite.kinds[-1])
    return [Case.from_token(f"{kind}/{layout}") for kind, layout in zip(kinds, _LAYOUTS, strict=True)]


@cache
def _subject(case: Case) -> Subject:
    return on_ranks(FACTORY(case.v4config(), case.torch_dtype(), case.seed), case)


def _asked(case: Case) -> list[Property]:
    """Of ranks, what is asked of them in one process; else every property that says something of a model on one."""
    of_models = [prop for prop in properties() if prop.observed is None and case.dtype in prop.dtypes]
    found = [prop for prop in of_models if prop.ranked is (case.ranks is not None)]
    return [prop for prop in found if case.ranks is None or prop.on_processes]


def _checked(prop: Property, rewrite: Rewrite, case: Case) -> tuple[Verdict, int]:
    subject = _subject(case)
    with rewrite.apply(subject) as ran:
        return prop.check(subject, case, corpus()), ran.calls


@pytest.mark.parametrize("rewrite", [pytest.param(rewrite, id=rewrite.name) for rewrite in REWRITES])
def test_no_property_raises_an_alarm(rewrite: Rewrite) -> None:
    held = 0
    for case in _cases(rewrite):
        reached = 0
        for prop in _asked(case):
            verdict, calls = _checked(prop, rewrite, case)
            told = verdict.witness.sentence() if verdict.witness else verdict.reason
            assert verdict.outcome in (Outcome.HOLDS, Outcome.VACUOUS), f"{prop.name} on {case.token()}: {told}"
            held += verdict.outcome is Outcome.HOLDS
            reached += calls
        assert reached > 0, f"{case.token()} does not reach {rewrite.name}"
    assert held >= 2
    print(f"{rewrite.name}: {held} verdicts of HOLDS")
