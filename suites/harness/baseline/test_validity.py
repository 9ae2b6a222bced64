"""A run is judged only if it says enough; each reason against it is one sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from harness.baseline.diff import Diff, compare
from harness.baseline.outcomes import Outcome
from harness.baseline.run import Run
from harness.baseline.store import Baseline
from harness.baseline.validity import Limits
from suites.harness.baseline.made import TODAY, base_of, result, run_of

TWENTY = [result(f"test_{n}") for n in range(20)]
FACTS = {"device": "cpu", "dtype": "float64", "torch": "2.13.0", "python": "3.11", "profile": "quick", "seed": "7"}


def judged(base: Baseline, run: Run, **changes: object) -> Diff:
    return compare(base, run, today=TODAY, **changes)  # type: ignore[arg-type]


def kinds(diff: Diff) -> list[str]:
    return [problem.kind for problem in diff.problems]


@pytest.mark.parametrize("code", [2, 3, 4, 5, 137, -15])
def test_pytests_own_exit_code_counts(code: int) -> None:
    diff = judged(base_of(*TWENTY), run_of(*TWENTY, exit_codes=(code,)))
    assert kinds(diff) == ["exit"]
    assert diff.exit_code == 3


def test_a_code_that_contradicts_the_results_counts() -> None:
    red = [*TWENTY, result("red", Outcome.FAIL)]
    assert kinds(judged(base_of(*red), run_of(*red, exit_codes=(0,)))) == ["exit"]
    assert kinds(judged(base_of(*TWENTY), run_of(*TWENTY, exit_codes=(1,)))) == ["exit"]
    assert kinds(judged(base_of(*red), run_of(*red, exit_codes=(1,)))) == []
    assert kinds(judged(base_of(*red), run_of(*red, exit_codes=(0, 1)))) == []


@pytest.mark.parametrize(("missing", "expected"), [(0, []), (2, []), (3, ["partial"]), (19, ["partial"])])
def test_a_tenth_may_be_missing(missing: int, expected: list[str]) -> None:
    diff = judged(base_of(*TWENTY), run_of(*TWENTY[missing:]))
    assert kinds(diff) == expected
    assert all(entry.new is not None for entry in diff.entries) or not expected


def test_a_run_that_ends_red_and_lacks_tests_was_stopped() -> None:
    known = [*TWENTY, result("test_known", Outcome.FAIL, "x")]
    base = base_of(*known, result("test_zzz"))
    assert kinds(judged(base, run_of(*known, ends_red=True))) == ["stopped"]
    assert kinds(judged(base, run_of(*known, ends_red=True), limits=Limits(missing=100))) == []
    assert kinds(judged(base_of(*known), run_of(*known, ends_red=True))) == []


def test_a_run_with_a_crash_that_lacks_tests_lost_them() -> None:
    known = [*TWENTY, result("test_known", Outcome.CRASH)]
    base = base_of(*known, result("test_zzz"))
    assert kinds(judged(base, run_of(*known))) == ["lost"]
    assert kinds(judged(base, run_of(*known), limits=Limits(missing=100))) == []
    assert kinds(judged(base_of(*known), run_of(*known))) == []


def test_more_may_be_missing_if_the_caller_says_so() -> None:
    assert kinds(judged(base_of(*TWENTY), run_of(*TWENTY[10:]), limits=Limits(missing=50))) == []


def test_a_run_that_counts_its_tests_may_lose_any_number() -> None:
    base = replace(base_of(*TWENTY), selection="suites")
    run = run_of(*TWENTY[15:], counts_itself=True, selection="suites")
    assert kinds(judged(base, run)) == []
    assert kinds(judged(base, replace(run, selection=None))) == ["partial"]
    assert kinds(judged(base, replace(run, selection="suites/v4model"))) == ["selection", "partial"]
    assert kinds(judged(replace(base, selection=None), run)) == ["partial"]


def test_another_project_is_not_compared_even_if_it_counts_itself() -> None:
    other = [found._replace(id=f"other/{found.id}") for found in TWENTY]
    base = replace(base_of(*TWENTY), selection=".")
    diff = judged(base, run_of(*other, counts_itself=True, selection="."))
    assert kinds(diff) == ["ids"]
    assert "this run has 'other/' in front of ids" in diff.problems[0].sentence


def test_all_skipped_is_nothing_tried() -> None:
    idle = [found._replace(outcome=Outcome.SKIP) for found in TWENTY]
    assert kinds(judged(base_of(*TWENTY), run_of(*idle))) == ["skipped"]
    assert kinds(judged(base_of(*idle), run_of(*idle))) == ["skipped"]
    assert kinds(judged(base_of(*TWENTY), run_of(*idle[:11], *TWENTY[11:]))) == ["skipped"]
    assert kinds(judged(base_of(*TWENTY), run_of(*idle[:10], *TWENTY[10:]))) == []


def test_nearly_all_red_is_the_infrastructure_unless_it_is_usual() -> None:
    red = [found._replace(outcome=Outcome.FAIL) for found in TWENTY]
    assert kinds(judged(base_of(*TWENTY), run_of(*red[:17], *TWENTY[17:]))) == ["infrastructure"]
    assert kinds(judged(base_of(*TWENTY), run_of(*red[:16], *TWENTY[16:]))) == []
    assert kinds(judged(base_of(*red), run_of(*red))) == []
    assert kinds(judged(base_of(*TWENTY[:3]), run_of(*red[:3]))) == []


def test_another_configuration_is_not_compared() -> None:
    base = replace(base_of(*TWENTY), facts=FACTS)
    assert kinds(judged(base, run_of(*TWENTY, facts=FACTS | {"seed": "8"}))) == []
    diff = judged(base, run_of(*TWENTY, facts=FACTS | {"torch": "2.11.0"}))
    assert [p.sentence for p in diff.problems] == [
        "another configuration than the baseline's: torch 2.11.0, was 2.13.0"
    ]
    assert kinds(judged(base, run_of(*TWENTY, facts=None))) == []
    assert kinds(judged(replace(base, key="theirs"), run_of(*TWENTY), key="ours")) == ["key"]
    other = run_of(*TWENTY, facts=FACTS | {"torch": "2.11.0"})
    assert kinds(judged(replace(base, key="ours"), other, key="ours")) == ["key"]
    assert kinds(judged(replace(base, key="ours"), run_of(*TWENTY), key="ours")) == []


def test_an_old_baseline_counts_only_where_an_age_is_stated() -> None:
    old = replace(base_of(*TWENTY), date=(TODAY - timedelta(days=31)).isoformat())
    assert kinds(judged(old, run_of(*TWENTY))) == []
    assert kinds(judged(old, run_of(*TWENTY), limits=Limits(oldest_days=31))) == []
    assert kinds(judged(old, run_of(*TWENTY), limits=Limits(oldest_days=30))) == ["old"]
    assert kinds(judged(base_of(*TWENTY), run_of(*TWENTY), limits=Limits(oldest_days=30))) == ["old"]


def test_an_empty_run_is_no_run() -> None:
    assert kinds(judged(base_of(*TWENTY), run_of())) == ["empty"]
    assert kinds(judged(base_of(), run_of())) == ["empty"]


def test_what_did_run_is_told_and_absence_is_not() -> None:
    broken = TWENTY[5]._replace(outcome=Outcome.FAIL)
    diff = judged(base_of(*TWENTY), run_of(*TWENTY[:5], broken))
    assert diff.exit_code == 3
    assert [(entry.id, entry.change.word) for entry in diff.entries] == [("t.py::test_5", "regression")]
