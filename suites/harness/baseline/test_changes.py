"""The table of transitions, cell by cell."""

from __future__ import annotations

import pytest

from harness.baseline.changes import Change, Level, change_between
from harness.baseline.outcomes import Outcome
from suites.harness.baseline.made import result

PASS, FAIL, CRASH, XFAIL, SKIP = Outcome.PASS, Outcome.FAIL, Outcome.CRASH, Outcome.XFAIL, Outcome.SKIP
ABSENT = Outcome.ABSENT

TABLE = {
    (PASS, PASS): "same ok",
    (PASS, FAIL): "regression gate",
    (PASS, CRASH): "regression gate",
    (PASS, XFAIL): "muted warn",
    (PASS, SKIP): "newly-skipped gate",
    (PASS, ABSENT): "removed warn",
    (FAIL, PASS): "fixed gate",
    (FAIL, FAIL): "still-failing info",
    (FAIL, CRASH): "escalated gate",
    (FAIL, XFAIL): "muted warn",
    (FAIL, SKIP): "hidden gate",
    (FAIL, ABSENT): "vanished gate",
    (XFAIL, PASS): "unexpected-pass gate",
    (XFAIL, FAIL): "lost-xfail gate",
    (XFAIL, CRASH): "escalated gate",
    (XFAIL, XFAIL): "same ok",
    (XFAIL, SKIP): "hidden gate",
    (XFAIL, ABSENT): "removed warn",
    (SKIP, PASS): "un-skipped info",
    (SKIP, FAIL): "new-failure gate",
    (SKIP, CRASH): "new-failure gate",
    (SKIP, XFAIL): "xfail-now info",
    (SKIP, SKIP): "same ok",
    (SKIP, ABSENT): "removed warn",
    (ABSENT, PASS): "added info",
    (ABSENT, FAIL): "new-test-failing gate",
    (ABSENT, CRASH): "new-test-failing gate",
    (ABSENT, XFAIL): "xfail-now info",
    (ABSENT, SKIP): "added-skipped warn",
}
RED_TOO = [Outcome.ERROR, Outcome.ERROR_SETUP, Outcome.ERROR_TEARDOWN, Outcome.XPASS_STRICT]


def between(base: Outcome, new: Outcome, *, base_why: str = "same", new_why: str = "same") -> Change:
    old = None if base is ABSENT else result("a", base, base_why)
    return change_between(old, None if new is ABSENT else result("a", new, new_why))


@pytest.mark.parametrize(("base", "new"), TABLE, ids=lambda outcome: outcome.value)
def test_every_cell_of_the_table(base: Outcome, new: Outcome) -> None:
    found = between(base, new)
    assert f"{found.word} {found.level.value}" == TABLE[base, new]


@pytest.mark.parametrize("base", [PASS, FAIL, XFAIL, SKIP, ABSENT], ids=lambda outcome: outcome.value)
def test_a_timeout_weighs_as_a_crash(base: Outcome) -> None:
    assert between(base, Outcome.TIMEOUT) is between(base, CRASH)


@pytest.mark.parametrize("red", RED_TOO, ids=lambda outcome: outcome.value)
@pytest.mark.parametrize("base", [PASS, SKIP, ABSENT], ids=lambda outcome: outcome.value)
def test_an_error_weighs_as_a_failure(base: Outcome, red: Outcome) -> None:
    assert between(base, red) is between(base, FAIL)


def test_another_reason_is_told() -> None:
    assert between(FAIL, FAIL, new_why="other") is Change.CHANGED_REASON
    assert between(FAIL, Outcome.ERROR_SETUP) is Change.CHANGED_REASON
    assert Change.CHANGED_REASON.level is Level.WARN


def test_a_strict_xpass_of_a_test_that_was_expected_to_fail_is_an_unexpected_pass() -> None:
    assert between(XFAIL, Outcome.XPASS_STRICT) is Change.UNEXPECTED_PASS


def test_a_run_with_a_crash_as_baseline_does_not_escalate() -> None:
    assert between(CRASH, CRASH) is Change.STILL_FAILING
    assert between(CRASH, PASS) is Change.FIXED


def test_not_run_weighs_as_skipped() -> None:
    assert between(PASS, Outcome.NOT_RUN) is Change.NEWLY_SKIPPED
    assert between(FAIL, Outcome.NOT_RUN) is Change.HIDDEN


def test_a_pass_that_needed_several_attempts_is_flaky_once() -> None:
    once, again = result("a"), result("a")._replace(repeated=True)
    assert change_between(once, again) is Change.FLAKY
    assert change_between(None, again) is Change.FLAKY
    assert change_between(again, again) is Change.SAME
    assert change_between(result("a", FAIL), again) is Change.FIXED
