"""Every fault that shows on one rank violates the property it names within the quick profile's number of cases.

The same cases are clean without the fault, and the subject gives its healthy bits again once the fault is gone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import PROFILES, decide
from harness.faults.registry import Fault, load_faults
from harness.strategies import PackSize, cases
from harness.subjects.protocol import Subject
from harness.verdict import Outcome, Verdict
from suites.quality.drawn import FACTORY, corpus, drawn, on_healthy

_SMALL = PackSize(min_samples=2, max_samples=4, min_tokens=30, max_tokens=90)
"""Smaller packs than a run draws: a defect that needs a large one would be missed here."""

# Scores tie where the ReLUs of all index heads are closed; with one head that is every second row. Ties decide where
# few rows are open and many closed, which takes a sample of some length.
_STRATA = {"C17": ("csa", "csa,index_n_heads=1", PackSize())}


@cache
def _drawn(kind: str, size: PackSize) -> tuple[Case, ...]:
    """As many cases as the quick profile draws."""
    return drawn(cases(kind, size=size), count=PROFILES["quick"].cases_per_kind)


def _values(subject: Subject, case: Case) -> torch.Tensor:
    """Logits, nll and sums in one row."""
    with torch.no_grad():
        seen = subject.observe(case.pack(corpus()))
    tables = [table for depth in seen.depths for table in (depth.values, depth.nll)]
    return torch.cat([table.reshape(-1) for table in (*tables, *seen.sums.values())])


def _planted(fault: Fault, subject: Subject, case: Case) -> Verdict:
    return decide(find_property(fault.expected), lambda *_: subject, case, corpus(), fault=fault)


def _cases(fault: Fault) -> list[Case]:
    kind, config, size = _STRATA.get(fault.name, (fault.kinds[0], fault.kinds[0], _SMALL))
    return [replace(case, config=config) for case in _drawn(kind, size)]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in load_faults() if not fault.ranks])
def test_its_property_catches_the_fault(fault: Fault) -> None:
    began, tried = time.perf_counter(), 0
    for case in _cases(fault):
        tried += 1
        subject = FACTORY(case.v4config(), case.torch_dtype(), case.seed)
        before = _values(subject, case)
        verdict = _planted(fault, subject, case)
        assert torch.equal(_values(subject, case), before)
        healthy = on_healthy(fault.expected, case)
        if verdict.outcome is Outcome.VIOLATED:
            break
        assert verdict.outcome is not Outcome.UNDECIDED, verdict.reason
        assert healthy.outcome in (Outcome.HOLDS, Outcome.VACUOUS), healthy.reason
    assert verdict.witness is not None, f"{fault.name} passes {fault.expected} on {tried} cases"
    assert healthy.outcome is Outcome.HOLDS, healthy.reason
    sentence = verdict.witness.sentence()
    assert sentence.startswith(f"{fault.expected}: ")
    print(f"{fault.name} in case {tried} ({time.perf_counter() - began:.2f} s), {case.token()}\n  {sentence}")
