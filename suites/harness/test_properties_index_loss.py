"""kl_reaches_only_the_indexer, on the healthy model, with what is not detached, and where there is nothing to teach."""

from __future__ import annotations

import pytest

from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.engine import decide
from harness.properties.index_loss import NAME
from harness.subjects.protocol import SubjectFactory
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.harness.fake_subject import with_defects

MODEL = find_subject("v4model")


def check(token: str, *, fault: str | None = None, factory: SubjectFactory = MODEL) -> Verdict:
    planted = None if fault is None else find_fault(fault)
    return decide(find_property(NAME), factory, Case.from_token(token), fakes.corpus(), fault=planted)


@pytest.mark.parametrize("token", ["all/9.5p2.18+40/s5", "csa/30/s1", "csa,index_topk=1/30/s1"])
def test_the_healthy_model_holds_to_the_bit(token: str) -> None:
    verdict = check(token)
    # One pick a query has probability 1 whatever its score.
    expected = Outcome.VACUOUS if "index_topk=1" in token else Outcome.HOLDS
    assert (verdict.outcome, verdict.error) == (expected, 0.0 if expected is Outcome.HOLDS else None)


@pytest.mark.parametrize("fault", ["C12", "C12b"])
def test_what_is_not_detached_is_named(fault: str) -> None:
    witness = check("csa/9.30/s2", fault=fault).witness
    assert witness is not None
    assert (witness.branch, witness.bound) == ("gradient", 0.0)
    assert witness.what == "the KL term has a gradient at the embedding"
    assert witness.query is not None


def test_without_two_rows_to_choose_from_there_is_nothing_to_teach() -> None:
    verdict = check("csa/7.3/s1")
    assert (verdict.outcome, verdict.reason) == (
        Outcome.VACUOUS,
        "no query has two rows to choose from: there is nothing to teach",
    )


def test_a_detached_term_says_nothing() -> None:
    # That it teaches nothing is what every_parameter_has_a_gradient finds.
    assert check("csa/30/s1", fault="C12c").reason == "the KL term has no gradient at all"


def test_a_subject_without_an_indexer_is_vacuous() -> None:
    verdict = check("csa/9/s1", factory=with_defects())
    assert (verdict.outcome, verdict.reason) == (Outcome.VACUOUS, "no parameter is named after an indexer")
