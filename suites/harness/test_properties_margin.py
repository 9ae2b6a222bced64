"""Choices that rounding decides: excused where values differ by less than the bound, never where they are equal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_property
from harness.engine import decide
from harness.faults.registry import load_faults
from harness.properties.equivalence import ALONE
from harness.properties.locate import localised, witnesses_are_brief
from harness.properties.margin import decided_by_rounding
from harness.properties.parting import Comparison
from harness.subjects.v4model_one_rank import build
from harness.verdict import Outcome, Verdict
from harness.witness import Witness
from suites.harness import fakes

CASE = Case(config="csa", lengths=(20,), total=20, seed=0)
ATTENTION, GATE = "layers.0.self_attn", "layers.1.mlp.gate"
BOUND = 1e-9


def compared(got: dict[str, Tensor], expected: dict[str, Tensor], *, bound: float = BOUND) -> Comparison:
    return Comparison(
        got=got,
        expected=expected,
        layout=CASE.layout(),
        config=CASE.v4config(),
        agree=lambda _depth: torch.ones(20, dtype=torch.bool),
        bound=bound,
    )


def picked(window: int, score: float, *, at: int = 19, other: float = 0.5) -> dict[str, Tensor]:
    """A layer in which every query picks window 0, and query `at` one more, with its score."""
    picks = torch.tensor([[0, -1]] * 20)
    scores = torch.tensor([[other, 0.0]] * 20, dtype=torch.float64)
    picks[at, 1], scores[at, 1] = window, score
    return {f"{ATTENTION}.indexer.picks": picks, f"{ATTENTION}.indexer.scores": scores}


def routed(expert: int, choice: Tensor) -> dict[str, Tensor]:
    experts = torch.tensor([[0, 1]] * 20)
    experts[7, 1] = expert
    return {f"{GATE}.experts": experts, f"{GATE}.choice": choice.expand(20, -1)}


@pytest.mark.parametrize(
    ("score", "other", "excused"),
    [
        (0.25 + 1e-12, 0.25, True),
        (0.25, 0.25, False),  # a tie goes to the lower window: whoever takes the other is wrong
        (0.26, 0.25, False),
        (1e-17, 0.0, True),
        (0.0, 0.0, False),
    ],
)
def test_picks(score: float, other: float, excused: bool) -> None:  # noqa: FBT001 - a column of the table
    reason = decided_by_rounding(compared(picked(8, score), picked(4, other)))
    assert (reason is not None) is excused
    if reason is not None:
        assert reason.startswith("at sample 0, position 19 (token 19) the choice in layers.0.self_attn hangs on")


def test_a_row_that_nothing_excuses_is_enough() -> None:
    got, expected = picked(8, 0.25 + 1e-12), picked(4, 0.25)
    assert decided_by_rounding(compared(got, expected)) is not None
    got[ATTENTION] = torch.zeros(20, 2, dtype=torch.float64)
    expected[ATTENTION] = got[ATTENTION].clone()
    got[ATTENTION][3] = 1.0
    assert decided_by_rounding(compared(got, expected)) is None


def test_a_pick_more_or_less_is_no_matter_of_margins() -> None:
    assert decided_by_rounding(compared(picked(8, 0.25), picked(-1, 0.0))) is None


def test_experts() -> None:
    choice = torch.tensor([0.9, 0.5, 0.5 + 1e-13, 0.1], dtype=torch.float64)
    assert "layers.1.mlp.gate hangs on" in (decided_by_rounding(compared(routed(2, choice), routed(1, choice))) or "")
    assert decided_by_rounding(compared(routed(3, choice), routed(1, choice))) is None


def test_the_verdict_is_undecided_and_says_so() -> None:
    subject = build(CASE.v4config(), torch.float64, 0)
    verdict = Verdict.violated(Witness(property="p", what="logits differ", magnitude=1.0, bound=BOUND))
    got, expected = picked(8, 0.25 + 1e-12), picked(4, 0.25)
    told = localised(verdict, subject, layout=CASE.layout(), got=lambda _: got, expected=lambda _: expected)
    assert told.outcome is Outcome.UNDECIDED
    assert "which rounding decides" in told.reason


def test_ties_broken_by_another_rule_are_still_a_violation() -> None:
    (fault,) = (fault for fault in load_faults() if fault.name == "C17")
    case = Case(config="csa,index_n_heads=1", lengths=(40, 41), total=81, seed=2)
    subject = build(case.v4config(), torch.float64, case.seed)
    others = [replace(case, lengths=(40, length), total=40 + length) for length in range(41, 49)]
    prop, corpus = find_property(ALONE), fakes.corpus()
    found = [decide(prop, lambda *_: subject, other, corpus, fault=fault) for other in others]
    assert Outcome.VIOLATED in {verdict.outcome for verdict in found}
    assert Outcome.UNDECIDED not in {verdict.outcome for verdict in found}


def test_brief_witnesses_name_a_row_and_spend_no_run_on_the_rest() -> None:
    (fault,) = (fault for fault in load_faults() if fault.name == "C3")
    case = Case.from_token("csa/4.4/s0")
    subject = build(case.v4config(), torch.float64, case.seed)
    with witnesses_are_brief():
        verdict = decide(find_property(fault.expected), lambda *_: subject, case, fakes.corpus(), fault=fault)
    assert verdict.witness is not None
    assert (verdict.witness.source, verdict.witness.layer, verdict.witness.magnitude) == (None, None, math.inf)
    assert verdict.witness.query is not None
