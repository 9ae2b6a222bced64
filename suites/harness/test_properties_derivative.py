"""Slopes by differences: agree with right gradients, part from wrong ones, and leave the parameters to the bit."""

from __future__ import annotations

import pytest
import torch

from harness.case import Case
from harness.catalogue import find_fault, find_property
from harness.subjects.v4model_one_rank import V4OneRank, build
from harness.tolerance import DIFFERENCES_F64
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.quality.drawn import corpus

NAME = "gradients_are_derivatives"


def _subject(case: Case) -> V4OneRank:
    return build(case.v4config(), case.torch_dtype(), case.seed)


def _asked(case: Case, subject: V4OneRank) -> Verdict:
    return find_property(NAME).check(subject, case, fakes.corpus())


@pytest.mark.parametrize("kind", ["all", "dense", "csa", "hca"])
def test_gradients_of_the_model_are_its_slopes(kind: str) -> None:
    case = Case.from_token(f"{kind}/7p3.5.21+40/s3")
    verdict = _asked(case, _subject(case))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.error is not None
    assert 0 < verdict.error < DIFFERENCES_F64
    print(f"{kind}: {verdict.error:.1e}")


@pytest.mark.parametrize(("fault", "what"), [("B7d", "the losses"), ("C12d", "the KL term")])
def test_a_wrong_backward_pass_is_told_by_what_it_differentiates(fault: str, what: str) -> None:
    case = Case.from_token("csa/7p3.5.21+40/s3")
    subject = _subject(case)
    with find_fault(fault).apply(subject):
        verdict = _asked(case, subject)
    assert verdict.witness is not None
    assert what in verdict.witness.sentence()
    # Nothing else moves: it takes gradients, and an independent view of them.
    with find_fault(fault).apply(subject):
        assert find_property("packed_equals_alone").check(subject, case, fakes.corpus()).outcome is Outcome.HOLDS


def test_a_kink_beside_the_parameters_is_no_wrong_gradient() -> None:
    # An activation lies within 1e-8 of where experts clamp: a slope across both sides is the mean of two.
    case = Case.from_token("all,num_experts_per_tok=1/1.16/s327")
    subject = _subject(case)
    assert find_property(NAME).check(subject, case, corpus()).outcome is Outcome.HOLDS


def test_parameters_are_the_same_bits_afterwards() -> None:
    case = Case.from_token("all/7.5/s3")
    subject = _subject(case)
    before = {name: leaf.detach().clone() for name, leaf in subject.parameters().items()}
    _asked(case, subject)
    assert all(torch.equal(leaf, before[name]) for name, leaf in subject.parameters().items())


def test_choices_that_flip_on_both_sides_are_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.properties.derivative._STEPS", (0.5, 0.3))
    case = Case.from_token("all/30.21/s3")
    verdict = _asked(case, _subject(case))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "flip on both sides" in verdict.reason
