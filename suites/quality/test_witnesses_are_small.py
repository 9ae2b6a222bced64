"""How small the search shrinks what it finds: a finding is read by a person, and two samples are enough for a leak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.case import Case
from harness.catalogue import find_fault
from harness.engine import PROFILES
from harness.engine.row import Row, Unit
from harness.engine.unit import Work, search_unit
from harness.verdict import Outcome
from suites.quality.drawn import corpus

# Fault, kind, ranks, samples at most. E5 is a sample over three ranks: one is enough.
_WANTED = [
    ("A1", "dense", None, 2),
    ("C1", "csa", None, 2),
    ("C3", "csa", None, 2),
    ("C16", "csa", None, 2),
    ("D1", "all", None, 2),
    ("E3", "csa", 4, 2),
    ("E5", "hca", 4, 1),
]


@pytest.mark.parametrize(("name", "kind", "ranks", "samples"), _WANTED, ids=[row[0] for row in _WANTED])
def test_a_witness_is_small(name: str, kind: str, ranks: int | None, samples: int) -> None:
    # Few layouts: what is measured is the shrinking.
    profile = replace(PROFILES["quick"], name="few", cases_per_kind=4)
    work = Work(subject="v4model", profile=profile, corpus=corpus(), seed=None, fault=name)
    (result,) = search_unit(work, Unit(kind, (Row(find_fault(name).expected, ranks),)))
    assert result.outcome is Outcome.VIOLATED, result.reason
    found = [Case.from_token(finding.token) for finding in result.findings]
    config = found[0].v4config()
    most = 3 * max(config.sliding_window, *config.ratios, 0)
    smallest = min(found, key=lambda case: (len(case.lengths), case.total))
    print(name, [finding.token for finding in result.findings], f"of at most {most} tokens")
    assert len(smallest.lengths) <= samples
    assert smallest.total <= most
    assert smallest.config == kind, "the configuration is the named one"
