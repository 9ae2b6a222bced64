"""Every fault that shows on one rank violates the property it names within the quick profile's number of cases.

Cases are those that meet the fault's strata: small packs first, which are quick, then packs as a run draws them.

The same cases are clean without the fault, and the subject gives its healthy bits again once the fault is gone.
"""

from __future__ import annotations

import time

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.faults.registry import Fault, load_faults
from harness.subjects.protocol import Subject
from harness.verdict import Outcome, Verdict
from suites.quality.drawn import FACTORY, cases_of, corpus, on_healthy, values_of


def _values(subject: Subject, case: Case) -> torch.Tensor:
    return values_of(subject, case.pack(corpus()))


def _planted(fault: Fault, subject: Subject, case: Case) -> Verdict:
    return decide(find_property(fault.expected), lambda *_: subject, case, corpus(), fault=fault)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in load_faults() if not fault.ranks])
def test_its_property_catches_the_fault(fault: Fault) -> None:
    began, tried = time.perf_counter(), 0
    for case in cases_of(fault, kind=fault.kinds[0]):
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
