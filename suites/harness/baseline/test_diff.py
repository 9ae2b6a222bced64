"""What a comparison promises, on drawn runs; renames, flakes and re-runs; and the two anchor cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from harness.baseline.changes import Change, Level
from harness.baseline.diff import Diff, compare
from harness.baseline.flakes import Flake
from harness.baseline.outcomes import Outcome
from harness.baseline.output.wording import headline
from harness.baseline.run import Problem, Result, Run
from harness.baseline.store import Baseline, baseline_of
from suites.harness.baseline.made import TODAY, base_of, result, run_of

REAL = [Outcome.PASS, Outcome.FAIL, Outcome.ERROR_SETUP, Outcome.XFAIL, Outcome.XPASS_STRICT, Outcome.SKIP]

names = st.sampled_from([f"test_{word}" for word in "ash birch cedar elm fir hazel larch lime oak pine".split()])
results = st.builds(result, names, st.sampled_from([*REAL, Outcome.CRASH, Outcome.TIMEOUT]), st.sampled_from("ab"))
runs = st.lists(results, max_size=10, unique_by=lambda found: found.id).map(lambda found: run_of(*found))

# What a class becomes when the two sides change places.
MIRROR = {
    Change.REGRESSION: {Change.FIXED},
    Change.FIXED: {Change.REGRESSION},
    Change.MUTED: {Change.UNEXPECTED_PASS, Change.LOST_XFAIL, Change.ESCALATED},
    Change.UNEXPECTED_PASS: {Change.MUTED},
    Change.LOST_XFAIL: {Change.MUTED},
    Change.NEWLY_SKIPPED: {Change.UNSKIPPED},
    Change.UNSKIPPED: {Change.NEWLY_SKIPPED},
    Change.HIDDEN: {Change.NEW_FAILURE, Change.XFAIL_NOW},
    Change.NEW_FAILURE: {Change.HIDDEN},
    Change.XFAIL_NOW: {Change.HIDDEN, Change.REMOVED},
    Change.REMOVED: {Change.ADDED, Change.ADDED_SKIPPED, Change.XFAIL_NOW},
    Change.ADDED: {Change.REMOVED},
    Change.ADDED_SKIPPED: {Change.REMOVED},
    Change.VANISHED: {Change.NEW_TEST_FAILING},
    Change.NEW_TEST_FAILING: {Change.VANISHED},
    Change.ESCALATED: {Change.CHANGED_REASON, Change.STILL_FAILING, Change.MUTED},
    Change.CHANGED_REASON: {Change.CHANGED_REASON, Change.ESCALATED},
    Change.STILL_FAILING: {Change.STILL_FAILING, Change.CHANGED_REASON, Change.ESCALATED},
    Change.RENAMED: {Change.RENAMED},
}


def classes(base: Baseline, run: Run) -> dict[str, Change]:
    """The class of each test that is not as before, whatever the run's shares say."""
    return {entry.id: entry.change for entry in _lenient(base, run).entries}


def _lenient(base: Baseline, run: Run, **changes: object) -> Diff:
    """A comparison of runs that promise to be whole, so that small drawn ones are judged too."""
    anchor = result("anchor")  # in both, so that no two runs are strangers
    held = replace(base, results={**base.results, anchor.id: anchor}, selection=".")
    whole = replace(run, results={**run.results, anchor.id: anchor}, selection=".", counts_itself=True)
    return compare(held, whole, today=TODAY, **changes)  # type: ignore[arg-type]


@given(runs)
def test_a_run_against_itself_differs_in_nothing(run: Run) -> None:
    assert set(classes(baseline_of(run), run).values()) <= {Change.STILL_FAILING}
    assert _lenient(baseline_of(run), run).gated == ()


@given(runs, runs)
def test_each_test_is_in_exactly_one_class(one: Run, other: Run) -> None:
    diff = _lenient(baseline_of(one), other)
    ids = [entry.id for entry in diff.entries]
    assert len(ids) == len(set(ids))
    assert len(ids) + diff.same == len({*one.results, *other.results}) + 1


@given(runs, runs)
def test_changing_sides_mirrors_the_classes(one: Run, other: Run) -> None:
    forward, backward = classes(baseline_of(one), other), classes(baseline_of(other), one)
    assert forward.keys() == backward.keys()
    assert all(backward[identity] in MIRROR[change] for identity, change in forward.items())


@given(runs, runs)
def test_the_order_of_results_does_not_matter(one: Run, other: Run) -> None:
    turned = [replace(run, results=dict(reversed(run.results.items()))) for run in (one, other)]
    assert classes(baseline_of(one), other) == classes(baseline_of(turned[0]), turned[1])


@given(runs, runs, names)
def test_a_new_passing_test_never_gates(one: Run, other: Run, name: str) -> None:
    fresh = result(f"{name}_that_is_new")
    more = replace(other, results={**other.results, fresh.id: fresh})
    before, after = _lenient(baseline_of(one), other), _lenient(baseline_of(one), more)
    assert {entry.id for entry in after.gated} == {entry.id for entry in before.gated}


@given(runs, runs)
def test_what_always_gates_cannot_be_switched_off(one: Run, other: Run) -> None:
    plain = _lenient(baseline_of(one), other)
    strict = _lenient(baseline_of(one), other, fail_on=[Change.REMOVED, Change.MUTED])
    assert {entry.id for entry in plain.gated} <= {entry.id for entry in strict.gated}
    assert all(entry.gated for entry in plain.entries if entry.change.level is Level.GATE)


def _known(count: int) -> list[Result]:
    return [result(f"test_known_{n}", Outcome.FAIL, f"reason {n}") for n in range(count)]


def _passing(count: int) -> list[Result]:
    return [result(f"test_fine_{n}") for n in range(count)]


def test_the_anchor_case() -> None:
    """Main: 548 passed, 38 failed. Branch: 602 passed, 38 failed, the same names, the same reasons."""
    diff = compare(base_of(*_passing(548), *_known(38)), run_of(*_passing(602), *_known(38)), today=TODAY)
    assert headline(diff) == "0 regressions, 38 still failing, 54 added"
    assert diff.exit_code == 0


def test_the_trap_beside_it() -> None:
    """38 failures again, with one name exchanged."""
    base, new = [*_passing(548), *_known(38)], [*_passing(602), *_known(38)]
    new[3], new[-1] = result("test_fine_3", Outcome.FAIL, "reason 37"), result("test_known_37")
    assert Counter(found.outcome for found in new)[Outcome.FAIL] == 38
    diff = compare(base_of(*base), run_of(*new), today=TODAY)
    assert headline(diff) == "1 regression, 1 fixed, 37 still failing, 54 added"
    assert diff.exit_code == 1
    assert [entry.id for entry in diff.gated] == ["t.py::test_fine_3", "t.py::test_known_37"]


def test_the_same_names_for_other_reasons_are_told() -> None:
    other = [found._replace(fingerprints=("another",)) for found in _known(38)]
    diff = compare(base_of(*_passing(548), *_known(38)), run_of(*_passing(548), *other), today=TODAY)
    assert headline(diff) == "0 regressions, 38 changed reason"
    assert diff.exit_code == 0
    gated = compare(
        base_of(*_passing(548), *_known(38)),
        run_of(*_passing(548), *other),
        today=TODAY,
        fail_on=[Change.CHANGED_REASON],
    )
    assert gated.exit_code == 1


def test_a_rename_is_told_and_exempt_from_the_gate_of_removals() -> None:
    fine = _passing(20)
    old, new = result("test_holds"), result("test_it_holds")
    diff = compare(base_of(*fine, old), run_of(*fine, new), today=TODAY, fail_on=[Change.REMOVED])
    assert headline(diff) == "0 regressions, 1 renamed?"
    assert diff.exit_code == 0
    gone = compare(base_of(*fine, old), run_of(*fine), today=TODAY, fail_on=[Change.REMOVED])
    assert (headline(gone), gone.exit_code) == ("0 regressions, 1 removed", 1)


def test_a_rename_silences_nothing() -> None:
    fine = _passing(20)
    old, new = result("test_holds", Outcome.FAIL, "x"), result("test_it_holds", Outcome.FAIL, "x")
    diff = compare(base_of(*fine, old), run_of(*fine, new), today=TODAY)
    assert headline(diff) == "0 regressions, 1 new test failing, 1 vanished"
    passing = compare(base_of(*fine, old), run_of(*fine, result("test_it_holds")), today=TODAY)
    assert headline(passing) == "0 regressions, 1 vanished, 1 added"


def _flaky(base: Baseline, name: str, expires: date) -> Baseline:
    flake = Flake(id=f"t.py::{name}", reason="races", issue="#7", expires=expires)
    return replace(base, flakes={flake.id: flake})


def test_a_listed_flake_does_not_gate_until_its_day() -> None:
    fine = _passing(20)
    run = run_of(*fine[1:], result("test_fine_0", Outcome.FAIL, "x"))
    listed = _flaky(base_of(*fine), "test_fine_0", TODAY)
    assert headline(compare(listed, run, today=TODAY)) == "0 regressions, 1 known flake"
    expired = compare(_flaky(base_of(*fine), "test_fine_0", date(2026, 11, 28)), run, today=TODAY)
    assert expired.exit_code == 1
    assert any("expired on 2026-11-28" in note for note in expired.notes)
    crashed = run_of(*fine[1:], result("test_fine_0", Outcome.CRASH))
    assert compare(listed, crashed, today=TODAY).exit_code == 1


def test_a_flake_of_no_test_is_told() -> None:
    diff = compare(_flaky(base_of(*_passing(3)), "test_gone", TODAY), run_of(*_passing(3)), today=TODAY)
    assert any("is no test of the baseline" in note for note in diff.notes)


def test_a_second_attempt_speaks_of_regressions_only_and_both_outcomes_are_kept() -> None:
    fine = _passing(20)
    red = [result("test_fine_0", Outcome.FAIL, "x"), result("test_fine_1", Outcome.FAIL, "y")]
    again = run_of(result("test_fine_0"), result("test_fine_1", Outcome.FAIL, "y"), result("test_fine_2", Outcome.FAIL))
    diff = compare(base_of(*fine), run_of(*red, *fine[2:]), today=TODAY, rerun=again)
    assert [(entry.id[-1], entry.change.word, entry.note.partition(";")[0]) for entry in diff.entries] == [
        ("0", "regression", "run again: pass"),
        ("1", "regression", "run again: fail"),
    ]
    listed = _flaky(base_of(*fine), "test_fine_1", TODAY)
    assert compare(listed, run_of(*fine[:1], red[1], *fine[2:]), today=TODAY, rerun=again).exit_code == 1
    listed = _flaky(base_of(*fine), "test_fine_0", TODAY)
    (entry,) = compare(listed, run_of(red[0], *fine[1:]), today=TODAY, rerun=again).entries
    assert (entry.change, entry.note) == (Change.KNOWN_FLAKE, "run again: pass; races (#7, until 2026-11-29)")


def test_a_second_run_that_cannot_be_read_is_told() -> None:
    fine = _passing(20)
    gone = run_of(problems=(Problem(kind="absent", sentence="again.xml does not exist"),))
    diff = compare(base_of(*fine), run_of(*fine), today=TODAY, rerun=gone)
    assert diff.notes == ("the second run: again.xml does not exist",)
    assert diff.exit_code == 0


def test_a_side_without_files_is_compared_by_classes() -> None:
    base = base_of(*_passing(20))
    plain = {f"t::{found.id.partition('::')[2]}": found for found in _passing(20)}
    run = run_of(
        *(found._replace(id=identity, file=None) for identity, found in plain.items()),
        has_files=False,
    )
    assert compare(base, run, today=TODAY).entries == ()
    assert compare(baseline_of(run), run_of(*_passing(20)), today=TODAY).entries == ()
