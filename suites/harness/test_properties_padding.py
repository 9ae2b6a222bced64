"""padding_changes_nothing, on a healthy fake model and on one with a defect planted."""

from __future__ import annotations

import pytest

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.properties.padding import NAME
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.harness.fake_subject import with_defects

LENGTHS = (9, 5, 14, 1)
SLOTS = {"none": LENGTHS, "tail": LENGTHS, "inside": (12, 5, 16, 1), "both": (12, 5, 14, 3)}


def check(*defects: str, padding: str = "both", seed: int = 3, dtype: str = "float64") -> Verdict:
    slots = SLOTS[padding]
    total = sum(slots) + (4 if padding in ("tail", "both") else 0)
    case = Case(config="csa", lengths=LENGTHS, slots=slots, total=total, seed=seed, dtype=dtype)
    subject = with_defects(*defects)(case.v4config(), case.torch_dtype(), case.seed)
    return decide(find_property(NAME), lambda *_: subject, case, fakes.corpus(), fault=None)


@pytest.mark.parametrize("padding", sorted(SLOTS))
def test_healthy_model_holds_wherever_padding_is(padding: str) -> None:
    for seed in range(3):
        verdict = check(padding=padding, seed=seed)
        assert verdict.outcome is Outcome.HOLDS
        assert verdict.error is not None
        assert verdict.error < 1e-12


@pytest.mark.parametrize("padding", sorted(SLOTS))
def test_padding_that_is_multiplied_by_zero_is_seen_by_nan(padding: str) -> None:
    witness = check("padding multiplied by 0", padding=padding).witness
    assert witness is not None
    assert witness.branch == "padding"
    assert witness.what == "logits of padding are not 0"
    assert (witness.got, witness.expected) == ("nan", "0")
    assert witness.query is not None
    assert witness.query.sample == -1


def test_padding_that_is_not_zeroed_is_seen_even_without_poison() -> None:
    witness = check("padding not zeroed").witness
    assert witness is not None
    assert witness.what == "logits of padding are not 0"
    assert witness.got != "nan"


@pytest.mark.parametrize("seed", range(3))
def test_padding_that_a_sample_sees_names_the_query(seed: int) -> None:
    witness = check("padding attended", seed=seed).witness
    assert witness is not None
    assert witness.query is not None
    # Padding stands before a sample that is not the first.
    assert witness.query.sample > 0
    assert "padding tokens between samples" in witness.what or "poison" in witness.what


def test_padding_in_the_loss_is_seen() -> None:
    witness = check("padding in the count").witness
    assert witness is not None
    assert witness.branch == "loss"
    assert "the count of main" in witness.what


def test_a_label_in_the_padding_is_seen_by_its_content() -> None:
    witness = check("label rolled over the sample's end", padding="inside").witness
    assert witness is not None
    assert witness.what.startswith("nll differ from those before")


def test_other_dtypes_are_undecided() -> None:
    assert check(dtype="float32").outcome is Outcome.UNDECIDED
