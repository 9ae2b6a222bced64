"""Recording blesses what it prints, keeps what did not change, and refuses what is no baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.baseline.diff import compare
from harness.baseline.outcomes import UNREAL, Outcome
from harness.baseline.record import existing_baseline, prepare, record
from harness.baseline.run import Run
from harness.baseline.store import read_baseline, render
from harness.baseline.validity import Limits
from suites.harness.baseline.made import TODAY, result, run_of
from suites.harness.baseline.test_diff import runs

FINE = [result(f"fine_{n}") for n in range(20)]


def _record(run: Run, folder: Path, reason: str = "because") -> bool:
    return record(run, existing_baseline(folder, key="k"), folder, key="k", reason=reason, issue="")


def _problems(run: Run, folder: Path) -> list[str]:
    base = existing_baseline(folder, key="k")
    return [p.kind for p in prepare(run, base, today=TODAY, key="k", limits=Limits()).problems]


@given(runs.filter(lambda run: not any(found.outcome in UNREAL for found in run.results.values())))
def test_what_was_recorded_is_not_different(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    folder = tmp_path_factory.mktemp("baseline")
    assert _record(run, folder)
    found = compare(read_baseline(folder), run, today=TODAY, key="k")
    assert found.gated == ()
    assert {entry.change.word for entry in found.entries} <= {"still-failing"}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if run.results:
        assert not _record(run, folder, "another reason")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("outcome", sorted(UNREAL, key=lambda o: o.value), ids=lambda outcome: outcome.value)
def test_an_accident_is_not_recorded(outcome: Outcome, tmp_path: Path) -> None:
    assert _problems(run_of(*FINE, result("odd", outcome)), tmp_path) == ["unreal"]
    assert _problems(run_of(*FINE, result("odd", Outcome.FAIL)), tmp_path) == []


def test_an_invalid_run_is_not_recorded(tmp_path: Path) -> None:
    assert _problems(run_of(), tmp_path) == ["empty"]
    assert _problems(run_of(*FINE, exit_codes=(2,)), tmp_path) == ["exit"]
    assert _problems(run_of(*(f._replace(outcome=Outcome.SKIP) for f in FINE)), tmp_path) == ["skipped"]
    assert _problems(run_of(*(f._replace(outcome=Outcome.FAIL) for f in FINE)), tmp_path) == ["infrastructure"]


def test_a_part_of_a_run_does_not_replace_the_whole(tmp_path: Path) -> None:
    _record(run_of(*FINE), tmp_path)
    assert _problems(run_of(*FINE[5:]), tmp_path) == ["partial"]
    assert _problems(run_of(*FINE[1:]), tmp_path) == []


def test_what_did_not_change_keeps_its_reason_and_date(tmp_path: Path) -> None:
    first = run_of(*FINE, result("a", Outcome.FAIL, "x"), started="2026-11-01T00:00:00+00:00")
    _record(first, tmp_path, "first")
    more = [*FINE, result("a", Outcome.FAIL, "x"), result("b", Outcome.FAIL, "y")]
    assert _record(run_of(*more, started="2026-11-29T00:00:00+00:00"), tmp_path, "second")
    blessings = read_baseline(tmp_path).blessings
    assert (blessings["t.py::a"].reason, blessings["t.py::a"].since) == ("first", "2026-11-01")
    assert (blessings["t.py::b"].reason, blessings["t.py::b"].since) == ("second", "2026-11-29")
    changed = run_of(*FINE, result("a", Outcome.FAIL, "z"), started="2026-11-30T00:00:00+00:00")
    _record(changed, tmp_path, "third")
    assert read_baseline(tmp_path).blessings["t.py::a"].reason == "third"


@given(runs, st.permutations(range(10)))
def test_the_order_of_results_does_not_change_the_files(run: Run, order: list[int]) -> None:
    from harness.baseline.store import baseline_of

    listed = list(run.results.values())
    turned = run_of(*(listed[n] for n in order if n < len(listed)))
    assert render(baseline_of(run)) == render(baseline_of(turned))
