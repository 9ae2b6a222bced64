"""every_parameter_has_a_gradient, on a healthy fake model and on one with a defect planted."""

from __future__ import annotations

from harness.case import Case
from harness.catalogue import find_property
from harness.properties.reach import NAME
from harness.subjects.protocol import Subject
from harness.verdict import Outcome, Verdict
from suites.harness import fakes
from suites.harness.fake_subject import with_defects


def check_subject(subject: Subject, case: Case) -> Verdict:
    return find_property(NAME).check(subject, case, fakes.corpus())


def check(*defects: str, seed: int) -> Verdict:
    case = Case(config="csa", lengths=(9, 5, 1), total=17, seed=seed)
    return check_subject(with_defects(*defects)(case.v4config(), case.torch_dtype(), case.seed), case)


def test_healthy_model_holds() -> None:
    for seed in range(6):
        assert check(seed=seed).outcome is Outcome.HOLDS


def test_a_layout_without_a_window_must_not_lose_the_pool() -> None:
    for seed in range(6):
        witness = check("no window, no gradient", seed=seed).witness
        assert witness is not None
        assert (witness.branch, witness.layer) == ("gradient", "pool")
        assert witness.what.startswith("no gradient edge on")


def test_nothing_supervised_must_not_give_nan() -> None:
    found = [check("nothing supervised divides by 0", seed=seed).witness for seed in range(6)]
    said = [witness.what for witness in found if witness is not None]
    # Two of the three small layouts are tried in each case, and each of them leaves some depth without a label.
    assert len(said) == 6
    assert all(what.startswith("a loss that is not finite on") for what in said)


def test_a_frozen_parameter_is_named() -> None:
    case = Case(config="csa", lengths=(9, 5, 1), total=17, seed=1)
    subject = with_defects()(case.v4config(), case.torch_dtype(), case.seed)
    subject.parameters()["head"].requires_grad = False
    witness = check_subject(subject, case).witness
    assert witness is not None
    assert witness.layer == "head"
    assert witness.what.startswith("a parameter that is frozen on")
