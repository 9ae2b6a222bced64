"""Computed bounds: what a choice costs, what is judged anew, and by which size gradients are judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from harness.case import Case
from harness.properties.rounding import _cost, persisting
from harness.properties.tally import EMBEDDINGS, VALUES, Tally
from harness.subjects.protocol import Choice, Subject
from harness.subjects.v4model_cuda import FLOAT32, V4OnDevice
from harness.tolerance import EXACT
from harness.verdict import Outcome, Verdict
from harness.witness import Witness
from suites.harness import fakes
from v4model import PackLayout

CASE = Case.from_token("dense/5.9/s1/float32")
LAYOUT = PackLayout.from_lengths([5, 9])
INF = math.inf


def subject() -> V4OnDevice:
    """On the CPU."""
    return replace(FLOAT32, device="cpu")(CASE.v4config(), torch.float32, CASE.seed)


def violated(*, bound: float) -> Verdict:
    """By twice the bound, or by 1."""
    return Verdict.violated(Witness(property="any", what="it differs", magnitude=2 * bound or 1.0, bound=bound))


@pytest.mark.parametrize(
    ("values", "taken", "told", "absent", "cost"),
    [
        ([4.0, 3.0, 1.0], [1, 1, 0], 1, 0, 0.0),
        ([4.0, 3.0, 1.0], [1, 0, 1], 1, 0, 0.5),
        ([4.0, 3.0, 1.0], [1, 0, 1], 0, 0, 0.0),
        ([4.0, 3.0, 1.0], [1, 1, 0], 1, 1, INF),
        ([4.0, -INF, -INF], [1, 0, 0], 1, 0, 0.0),
        ([-INF, -INF, -INF], [0, 0, 0], 1, 0, 0.0),
        ([4.0, math.nan, 1.0], [1, 0, 1], 1, 0, INF),
        ([], [], 1, 0, 0.0),
        ([], [], 1, 1, INF),
    ],
)
def test_a_choice_costs_what_was_left_is_better_by(
    values: list[float],
    taken: list[int],
    told: int,
    absent: int,
    cost: float,
) -> None:
    choice = Choice(
        torch.tensor([values], dtype=torch.float64),
        torch.tensor([taken], dtype=torch.bool),
        torch.tensor([told > 0]),
        torch.tensor([absent > 0]),
    )
    assert _cost(choice).tolist() == [cost]


def test_what_does_not_stay_when_parameters_move_by_a_rounding_is_judged_anew() -> None:
    asked, model = iter([violated(bound=1e-6), violated(bound=1e-6), Verdict.holds(error=0.0, bound=1e-6)]), subject()
    before = {name: leaf.detach().clone() for name, leaf in model.parameters().items()}
    sizes: list[float] = []

    def check(subject: Subject, _case: Case, _corpus: object) -> Verdict:
        moved = [
            float(((leaf.detach() - before[name]) / before[name]).abs().max())
            for name, leaf in subject.parameters().items()
        ]
        sizes.append(max(moved))
        return next(asked)

    verdict = persisting(check)(model, CASE, fakes.corpus())
    assert verdict.outcome is Outcome.HOLDS
    assert "rounding decided before" in verdict.reason
    assert sizes[0] == 0
    assert all(1e-7 < size < 1e-5 for size in sizes[1:])
    assert all(torch.equal(leaf, before[name]) for name, leaf in model.parameters().items())


@pytest.mark.parametrize(("bound", "times"), [(1e-6, 4), (EXACT, 1)])
def test_what_stays_counts_and_bits_count_at_once(bound: float, times: int) -> None:
    asked: Iterator[int] = iter(range(100))

    def check(_subject: Subject, _case: Case, _corpus: object) -> Verdict:
        next(asked)
        return violated(bound=bound)

    assert persisting(check)(subject(), CASE, fakes.corpus()).outcome is Outcome.VIOLATED
    assert next(asked) == times


def test_gradients_have_bounds_of_their_own_and_the_size_of_their_module() -> None:
    expected = {"a.fn": torch.tensor([1.0, 0.5]), "a.scale": torch.tensor([1e-3]), "b.fn": torch.tensor([1e-2])}
    got = {**expected, "a.scale": torch.tensor([1.1e-3])}
    tally = Tally("any", bound=1e-6, layout=LAYOUT, of_gradients={"a.scale": 2e-4})
    tally.gradients(got, expected, floor=1e-6, than="the other")
    verdict = tally.verdict()
    assert (verdict.outcome, verdict.bound) == (Outcome.HOLDS, 2e-4)
    assert verdict.error == pytest.approx(1e-4, rel=1e-3)
    assert tally.errors.keys() == {VALUES, *expected}
    fixed = Tally("any", bound=1e-2, layout=LAYOUT)
    fixed.gradients(got, expected, floor=1e-6, than="the other")
    assert fixed.verdict().outcome is Outcome.VIOLATED


def test_the_gradient_at_embeddings_has_its_bound() -> None:
    tally = Tally("any", bound=1e-6, layout=LAYOUT, of_gradients={EMBEDDINGS: 1e-2})
    rows, tokens = torch.ones(14, 2), torch.arange(14)
    tally.rows(rows * 1.001, rows, tokens=tokens, what="it differs", branch="gradient", layer=EMBEDDINGS)
    assert not tally.violated
    tally.rows(rows * 1.001, rows, tokens=tokens, what="it differs")
    assert tally.violated
