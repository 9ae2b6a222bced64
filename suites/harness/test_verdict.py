"""Verdicts: four outcomes, each with what supports it, and JSON both ways."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.verdict import Outcome, Verdict
from harness.witness import Place, Witness

WITNESS = Witness(
    property="p", query=Place(1, 0, 5), source=Place(0, 2, 2), what="logits moved", magnitude=0.5, bound=0.0
)


def test_constructors_give_their_outcome() -> None:
    assert Verdict.holds(error=1e-12, bound=1e-9) == Verdict(Outcome.HOLDS, error=1e-12, bound=1e-9)
    assert Verdict.vacuous("why").outcome is Outcome.VACUOUS
    assert Verdict.undecided("why").outcome is Outcome.UNDECIDED
    violated = Verdict.violated(WITNESS)
    assert (violated.outcome, violated.error, violated.bound) == (Outcome.VIOLATED, 0.5, 0.0)
    assert Verdict.violated(WITNESS, error=2.0, bound=1.0).error == 2.0


def test_a_violation_has_a_witness_and_nothing_else_has() -> None:
    with pytest.raises(ValueError, match="expected a witness exactly when VIOLATED"):
        Verdict(Outcome.VIOLATED)
    with pytest.raises(ValueError, match="expected a witness exactly when VIOLATED"):
        Verdict(Outcome.HOLDS, error=0.0, bound=0.0, witness=WITNESS)


@pytest.mark.parametrize("outcome", [Outcome.VACUOUS, Outcome.UNDECIDED])
def test_an_empty_check_says_why(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="without a reason"):
        Verdict(outcome)


@pytest.mark.parametrize("outcome", [Outcome.HOLDS, Outcome.VIOLATED])
def test_what_was_measured_says_how_much(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="without error and bound"):
        Verdict(outcome, witness=WITNESS if outcome is Outcome.VIOLATED else None)


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict.holds(error=1e-13, bound=1e-9),
        Verdict.violated(WITNESS, error=float("inf"), bound=0.0),
        Verdict.vacuous("one sample"),
        Verdict.undecided("MemoryError: full"),
    ],
)
def test_json_goes_both_ways(verdict: Verdict) -> None:
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    "module", ["harness.verdict", "harness.witness", "harness.junit", "harness.report", "harness.report.table"]
)
def test_results_need_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
