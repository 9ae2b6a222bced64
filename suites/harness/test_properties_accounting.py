"""labels_stay_inside, on a healthy fake model and on one with a defect planted."""

from __future__ import annotations

import pytest

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.properties.accounting import NAME, Label, labels_of
from harness.verdict import Outcome, Verdict
from harness.witness import Place, Witness
from suites.harness import fakes
from suites.harness.fake_subject import with_defects
from v4model import PackLayout

LENGTHS = (9, 5, 14, 1)


def check(*defects: str, lengths: tuple[int, ...] = LENGTHS, seed: int = 3, dtype: str = "float64") -> Verdict:
    slots = tuple(length + 2 * (index % 2) for index, length in enumerate(lengths))
    case = Case(config="csa", lengths=lengths, slots=slots, total=sum(slots) + 3, seed=seed, dtype=dtype)
    subject = with_defects(*defects)(case.v4config(), case.torch_dtype(), case.seed)
    return decide(find_property(NAME), lambda *_: subject, case, fakes.corpus(), fault=None)


def witness_of(verdict: Verdict) -> Witness:
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness is not None
    return verdict.witness


def test_labels_by_hand() -> None:
    layout = PackLayout.from_lengths([3, 1, 2], total=8, slots=[4, 1, 2])
    assert labels_of(layout, depth=0) == [Label(0, 1), Label(1, 2), Label(5, 6)]
    assert labels_of(layout, depth=1) == [Label(0, 2)]
    assert labels_of(layout, depth=2) == []


@pytest.mark.parametrize("lengths", [LENGTHS, (1,), (1, 1, 2), (30,)])
def test_healthy_model_holds(lengths: tuple[int, ...]) -> None:
    for seed in range(3):
        verdict = check(lengths=lengths, seed=seed)
        assert verdict.outcome is Outcome.HOLDS
        assert verdict.error is not None
        assert verdict.error < 1e-12


def test_a_label_over_the_end_is_named_at_the_last_position() -> None:
    witness = witness_of(check("label rolled over the sample's end"))
    assert (witness.depth, witness.branch) == (0, "label")
    assert witness.query is not None
    # Last positions of the samples; the nll there must be 0.
    assert witness.query in {Place(0, 8, 8), Place(1, 4, 13), Place(2, 13, 29), Place(3, 0, 30)}
    assert witness.expected == "0"


def test_the_wrong_shift_is_named_at_the_depth_that_has_it() -> None:
    witness = witness_of(check("label of depth 1 at every depth"))
    assert (witness.depth, witness.branch) == (2, "label")


def test_the_mask_belongs_to_the_label() -> None:
    witness = witness_of(check("mask of the query's own token"))
    assert witness.branch == "loss"
    assert "supervised labels" in witness.what


def test_padding_is_not_counted() -> None:
    witness = witness_of(check("padding in the count"))
    assert "the count of main" in witness.what


def test_a_mean_of_means_is_not_the_mean() -> None:
    assert witness_of(check("mean of means")).what == "the loss is not the supervised labels' sum by their number"


def test_nothing_supervised_gives_zero() -> None:
    witness = witness_of(check("nothing supervised divides by 0"))
    assert (witness.got, witness.expected) == ("nan", "0")


def test_the_total_has_every_term() -> None:
    assert witness_of(check("KL left out of the total")).what.startswith("the total is not")


def test_other_dtypes_are_undecided() -> None:
    assert check(dtype="bfloat16").outcome is Outcome.UNDECIDED
