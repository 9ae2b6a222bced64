"""One unit: what the search concludes about healthy, leaking, raising and fickle subjects, and how it shrinks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from harness.case import Case
from harness.engine.profiles import PROFILES, Profile, find_profile
from harness.engine.search import search
from harness.engine.unit import Unit, Work, search_unit
from harness.errors import UsageError
from harness.report import UnitResult
from harness.strategies import cases
from harness.verdict import Outcome, Verdict
from harness.witness import Place, Witness
from suites.harness import fakes

SMALL = replace(PROFILES["quick"], name="small", cases_per_kind=12, shrink_cases=200)


def found(subject: str, kind: str = "dense", *, prop: str = "ALONE", fault: str | None = None) -> UnitResult:
    """What one unit gives on a fake subject."""
    work = Work(subject=fakes.named(subject), profile=SMALL, corpus=fakes.corpus(), seed=None, fault=fault)
    return search_unit(work, Unit(property_name=fakes.named(prop), kind=kind))


def test_a_healthy_subject_holds() -> None:
    unit = found("healthy")
    assert unit.outcome is Outcome.HOLDS
    assert unit.layouts == SMALL.cases_per_kind
    assert unit.counts[Outcome.HOLDS] >= 11
    assert unit.counts[Outcome.VACUOUS] >= 1
    assert (unit.error, unit.bound, unit.finding) == (0.0, 0.0, None)
    assert unit.reasons == {"one sample has no neighbour": unit.counts[Outcome.VACUOUS]}
    assert unit.seconds > 0


def test_a_leak_is_shrunk_to_its_smallest_case() -> None:
    unit = found("leaking")
    assert unit.outcome is Outcome.VIOLATED
    assert unit.finding is not None
    assert unit.finding.token == "dense/1.1/s0"
    assert Case.from_json(unit.finding.case) == Case.from_token("dense/1.1/s0")
    assert len(unit.finding.first) > len("dense/1.1/s0")
    assert unit.finding.witness.query == Place(1, 0, 1)
    assert unit.counts[Outcome.VIOLATED] == 1
    assert unit.finding.witness.magnitude > 0
    assert unit.error is not None
    assert unit.error >= unit.finding.witness.magnitude


def test_a_subject_that_raises_is_undecided_with_its_reason() -> None:
    unit = found("raising", "csa")
    assert unit.outcome is Outcome.UNDECIDED
    assert unit.counts[Outcome.UNDECIDED] == unit.layouts == SMALL.cases_per_kind
    assert unit.undecided is not None
    assert unit.undecided.startswith("csa/")
    assert all(reason.startswith("MemoryError: no room for seed") for reason in unit.reasons)
    assert not any("channels" in reason for reason in unit.reasons)


def test_a_violation_that_does_not_come_back_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "_built", [])
    unit = found("fickle")
    assert unit.outcome is Outcome.UNDECIDED
    assert unit.finding is None
    assert "not repeatable" in unit.reason
    assert unit.undecided is not None
    assert unit.counts[Outcome.VIOLATED] == 0


def test_a_violation_that_comes_back_only_while_shrinking_is_undecided() -> None:
    calls: list[Case] = []

    def check(case: Case) -> Verdict:
        calls.append(case)
        if len(calls) <= 3:
            return Verdict.violated(Witness(property="p", what="moved", magnitude=1.0, bound=0.0))
        return Verdict.holds(error=0.0, bound=0.0)

    profile = replace(SMALL, shrink_cases=2)
    unit = search("p", "all", cases=cases("all"), check=check, profile=profile, layouts=5, seed=None)
    assert unit.outcome is Outcome.UNDECIDED
    assert "not repeatable" in unit.reason


def test_a_check_that_returns_something_else_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "Verdict", type("NoVerdict", (), {"vacuous": lambda _: 3, "holds": lambda **_: 3}))
    unit = found("healthy")
    assert unit.outcome is Outcome.UNDECIDED
    assert "returned int instead of a Verdict" in unit.reason


def test_only_vacuous_checks_leave_the_unit_vacuous() -> None:
    unit = found("healthy", prop="VACUOUS")
    assert unit.outcome is Outcome.VACUOUS
    assert unit.error is None
    assert unit.reason == f"nothing to see ({SMALL.cases_per_kind} of {SMALL.cases_per_kind} layouts)"


def test_names_that_mean_nothing_leave_the_unit_undecided() -> None:
    assert "unknown fault" in found("healthy", fault="nothing").reason
    assert "no 'missing'" in found("missing").reason


@pytest.mark.parametrize("limit", [0, 3, 25])
def test_shrinking_spends_no_more_cases_than_it_may(limit: int) -> None:
    checked: list[Case] = []

    def check(case: Case) -> Verdict:
        checked.append(case)
        if sum(case.lengths) < 40:
            return Verdict.holds(error=1.0, bound=2.0)
        return Verdict.violated(Witness(property="p", what="moved", magnitude=3.0, bound=2.0))

    profile = replace(SMALL, shrink_cases=limit)
    unit = search("p", "all", cases=cases("all"), check=check, profile=profile, layouts=10, seed=None)
    assert unit.finding is not None
    assert unit.finding.shrink_cases == limit
    # Before the first violation, while shrinking, and once more to confirm.
    assert len(checked) == unit.layouts + limit + 1
    assert unit.finding.token == checked[-1].token()
    assert (unit.error, unit.bound) == (3.0, 2.0)


def test_the_largest_error_is_the_one_nearest_its_bound() -> None:
    errors = iter([(1e-12, 1e-9), (5e-10, 1e-9), (3.0, 100.0)] * 9)

    def check(_: Case) -> Verdict:
        error, bound = next(errors)
        return Verdict.holds(error=error, bound=bound)

    unit = search("p", "all", cases=cases("all"), check=check, profile=SMALL, layouts=12, seed=None)
    assert (unit.error, unit.bound) == (5e-10, 1e-9)


def drawn(seed: int | None, *, profile: Profile = SMALL, kind: str = "dense", name: str = "p") -> list[str]:
    """The tokens of all cases that a search checks."""
    tokens: list[str] = []

    def check(case: Case) -> Verdict:
        tokens.append(case.token())
        return Verdict.holds(error=0.0, bound=0.0)

    search(name, kind, cases=cases(kind), check=check, profile=profile, layouts=12, seed=seed)
    return tokens


def test_cases_are_the_same_every_time_and_others_with_a_seed() -> None:
    assert drawn(None) == drawn(None)
    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(None)
    assert drawn(5) != drawn(6)


def test_each_unit_has_its_own_cases() -> None:
    assert drawn(None, name="p") != drawn(None, name="q")


def test_without_a_seed_a_profile_that_explores_draws_other_cases() -> None:
    wide = replace(SMALL, shrink_cases=1, derandomize=False)
    assert drawn(None, profile=wide) != drawn(None, profile=wide)


def test_an_empty_strategy_is_undecided() -> None:
    nothing: st.SearchStrategy[Case] = st.just(Case.from_token("all/1/s0")).filter(lambda _: False)
    unit = search("p", "all", cases=nothing, check=lambda _: Verdict.vacuous("-"), profile=SMALL, layouts=12, seed=None)
    assert unit.outcome is Outcome.UNDECIDED
    assert "Unsatisfiable" in unit.reason


def test_profiles_are_large_enough() -> None:
    kinds = 4
    assert kinds * (PROFILES["quick"].cases_per_kind - 1) >= 25
    assert kinds * (PROFILES["ci"].cases_per_kind - 1) >= 200
    assert PROFILES["nightly"].cases_per_kind >= 500
    with pytest.raises(UsageError, match="quick, perhaps"):
        find_profile("quik")
