"""One unit: what the search concludes about healthy, leaking, raising and fickle subjects, and how it shrinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from harness.case import Case
from harness.engine.profiles import PROFILES, Profile, find_profile
from harness.engine.row import Row, Unit
from harness.engine.search import search
from harness.engine.unit import Work, search_unit
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
    (result,) = search_unit(work, Unit(kind, (Row(fakes.named(prop)),)))
    return result


def searched(
    check: Callable[[Case], Verdict],
    *,
    strategy: st.SearchStrategy[Case] | None = None,
    profile: Profile = SMALL,
    layouts: int = 12,
    seed: int | None = None,
    name: str = "p",
    kind: str = "all",
) -> UnitResult:
    """What a search with one check and no subject gives."""
    (result,) = search(
        Unit(kind, (Row(name),)),
        cases=cases(kind) if strategy is None else strategy,
        judge=lambda case, rows: [(check(case), 0.0) for _ in rows],
        profile=profile,
        layouts=layouts,
        seed=seed,
    )
    return result


def test_a_healthy_subject_holds() -> None:
    unit = found("healthy")
    assert unit.outcome is Outcome.HOLDS
    assert unit.layouts == SMALL.cases_per_kind
    assert unit.counts[Outcome.HOLDS] >= 10
    assert unit.counts[Outcome.VACUOUS] >= 1
    assert (unit.error, unit.bound, unit.findings) == (0.0, 0.0, ())
    assert unit.reasons == {"one sample has no neighbour": unit.counts[Outcome.VACUOUS]}
    assert unit.seconds > 0


def test_a_leak_is_shrunk_to_its_smallest_case() -> None:
    unit = found("leaking")
    assert unit.outcome is Outcome.VIOLATED
    (finding,) = unit.findings
    assert finding.token == "dense/1.1/s0"
    assert Case.from_json(finding.case) == Case.from_token("dense/1.1/s0")
    assert len(finding.first) > len("dense/1.1/s0")
    assert finding.witness.query == Place(1, 0, 1)
    assert unit.counts[Outcome.VIOLATED] == 5  # enough: it is asked no more
    assert finding.witness.magnitude > 0
    assert unit.error is not None
    assert unit.error >= finding.witness.magnitude


def test_a_subject_that_raises_is_undecided_with_its_reason() -> None:
    unit = found("raising", "csa")
    assert unit.outcome is Outcome.UNDECIDED
    assert unit.counts[Outcome.UNDECIDED] == unit.layouts == SMALL.cases_per_kind
    assert unit.undecided is not None
    assert unit.undecided.startswith("csa/")
    assert all(reason.startswith("MemoryError: no room for seed") for reason in unit.reasons)
    assert not any("channels" in reason for reason in unit.reasons)


def test_a_subject_that_leaves_the_program_is_undecided() -> None:
    unit = found("leaving")
    assert unit.counts[Outcome.UNDECIDED] == unit.layouts == SMALL.cases_per_kind
    assert unit.reason.startswith("SystemExit: 0")


def test_a_violation_that_does_not_come_back_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "_built", [])
    unit = found("fickle")
    assert unit.outcome is Outcome.UNDECIDED
    assert unit.findings == ()
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
    unit = searched(check, profile=profile, layouts=5)
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


@pytest.mark.parametrize("limit", [0, 3, 15])
def test_shrinking_spends_no_more_cases_than_it_may(limit: int) -> None:
    checked: list[Case] = []

    def check(case: Case) -> Verdict:
        checked.append(case)
        if sum(case.lengths) < 40:
            return Verdict.holds(error=1.0, bound=2.0)
        return Verdict.violated(Witness(property="p", what="moved", magnitude=3.0, bound=2.0))

    profile = replace(SMALL, shrink_cases=limit)
    unit = searched(check, profile=profile, layouts=10)
    (finding,) = unit.findings
    assert finding.shrink_cases == limit
    # Those drawn, while shrinking, and once more to confirm.
    assert len(checked) == unit.layouts + limit + 1
    assert finding.token == checked[-1].token()
    assert (unit.error, unit.bound) == (3.0, 2.0)


def test_nothing_is_drawn_while_shrinking() -> None:
    drawn: list[Case] = []

    def noted(case: Case) -> Case:
        drawn.append(case)
        return case

    def check(case: Case) -> Verdict:
        return _seen() if sum(case.lengths) >= 40 else Verdict.holds(error=1.0, bound=2.0)

    unit = searched(check, strategy=cases("all").map(noted), layouts=10)
    assert unit.findings[0].shrink_cases > 3
    assert len(drawn) == 10


def test_few_cases_are_spent_on_what_a_reader_counts() -> None:
    def check(case: Case) -> Verdict:
        return _seen() if max(case.lengths) >= 5 else Verdict.holds(error=1.0, bound=2.0)

    (finding,) = searched(check, profile=replace(SMALL, shrink_cases=14), layouts=10).findings
    assert len(finding.case["lengths"]) == 1


def _seen(*, depth: int = 0, branch: str = "pool") -> Verdict:
    return Verdict.violated(Witness(property="p", depth=depth, branch=branch, what="moved", magnitude=1.0, bound=0.0))


def test_defects_of_two_origins_are_shrunk_apart() -> None:
    def check(case: Case) -> Verdict:
        if len(case.lengths) > 4:
            return _seen(branch="pool")
        return _seen(depth=1, branch="shift") if max(case.lengths) > 20 else Verdict.holds(error=0.0, bound=0.0)

    unit = searched(check, profile=replace(SMALL, shrink_cases=300), layouts=40)
    by_branch = {finding.witness.branch: Case.from_token(finding.token).lengths for finding in unit.findings}
    assert by_branch == {"pool": (1, 1, 1, 1, 1), "shift": (21,)}


def test_a_violated_row_leaves_the_others_their_layouts() -> None:
    asked: dict[str, list[Case]] = {"bad": [], "good": []}

    def judge(case: Case, rows: Sequence[Row]) -> list[tuple[Verdict, float]]:
        for row in rows:
            asked[row.property_name].append(case)
        verdicts = {"bad": _seen(), "good": Verdict.holds(error=0.0, bound=0.0)}
        return [(verdicts[row.property_name], 0.25) for row in rows]

    unit = Unit("all", (Row("bad", 2), Row("good", 4)))
    bad, good = search(unit, cases=cases("all"), judge=judge, profile=SMALL, layouts=9, seed=None)
    assert (bad.name, bad.layouts, good.name, good.layouts) == ("bad@2", 5, "good@4", 9)
    assert asked["bad"][:5] == asked["good"][:5]
    assert (good.kind, good.outcome, good.seconds) == ("all@4", Outcome.HOLDS, 9 * 0.25)
    assert Case.from_token(bad.findings[0].token).ranks == 2


def test_the_largest_error_is_the_one_nearest_its_bound() -> None:
    errors = iter([(1e-12, 1e-9), (5e-10, 1e-9), (3.0, 100.0)] * 9)

    def check(_: Case) -> Verdict:
        error, bound = next(errors)
        return Verdict.holds(error=error, bound=bound)

    unit = searched(check)
    assert (unit.error, unit.bound) == (5e-10, 1e-9)


def test_errors_are_kept_by_dtype_and_depth() -> None:
    errors = iter([(1e-12, 3e-12), (2e-12,), (0.0, 1e-12, 4e-12)])
    unit = searched(lambda _: Verdict.holds(error=1e-11, bound=1e-9, by_depth=next(errors)), layouts=3)
    assert unit.parts == {"float64, MTP 1": 3e-12, "float64, MTP 2": 4e-12, "float64, trunk": 2e-12}
    assert UnitResult.from_json(unit.to_json()).parts == unit.parts


def drawn(seed: int | None, *, profile: Profile = SMALL, kind: str = "dense", name: str = "p") -> list[str]:
    """The tokens of all cases that a search checks."""
    tokens: list[str] = []

    def check(case: Case) -> Verdict:
        tokens.append(case.token())
        return Verdict.holds(error=0.0, bound=0.0)

    searched(check, profile=profile, seed=seed, name=name, kind=kind)
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
    unit = searched(lambda _: Verdict.vacuous("-"), strategy=nothing)
    assert unit.outcome is Outcome.UNDECIDED
    assert "Unsatisfiable" in unit.reason


def test_profiles_are_large_enough() -> None:
    kinds = 4
    assert kinds * (PROFILES["quick"].cases_per_kind - 1) >= 25
    assert kinds * (PROFILES["ci"].cases_per_kind - 1) >= 200
    assert PROFILES["nightly"].cases_per_kind >= 500
    with pytest.raises(UsageError, match="quick, perhaps"):
        find_profile("quik")
