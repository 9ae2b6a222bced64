"""What can happen to one test between the baseline and a run, and what of it gates a merge."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from harness.baseline.outcomes import IDLE, LOST, RED, Outcome
from harness.baseline.run import Result


class Level(enum.Enum):
    """How much a change weighs: GATE always fails the comparison, WARN and INFO only by `--fail-on`."""

    GATE = "gate"
    WARN = "warn"
    INFO = "info"
    OK = "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """name is the word of `--fail-on` and of JSON; one and many are the words of the headline."""

    name: str
    level: Level
    one: str
    many: str
    title: str


def _kind(name: str, level: Level, words: str, title: str) -> _Kind:
    one, _, many = words.partition("|")
    return _Kind(name=name, level=level, one=one, many=many or one, title=title)


class Change(enum.Enum):
    """Every class that a test can fall into, gravest first."""

    REGRESSION = _kind("regression", Level.GATE, "regression|regressions", "REGRESSION: passed, is red now")
    ESCALATED = _kind("escalated", Level.GATE, "escalated", "ESCALATED: was red, now crashes or never ends")
    NEW_TEST_FAILING = _kind("new-test-failing", Level.GATE, "new test failing|new tests failing", "NEW TEST FAILING")
    NEW_FAILURE = _kind("new-failure", Level.GATE, "new failure|new failures", "NEW FAILURE: was skipped, is red now")
    LOST_XFAIL = _kind("lost-xfail", Level.GATE, "lost xfail", "LOST XFAIL: was expected to fail, now fails unexpected")
    VANISHED = _kind("vanished", Level.GATE, "vanished", "VANISHED: was red, is gone; absence is no fix")
    HIDDEN = _kind("hidden", Level.GATE, "hidden", "HIDDEN: was red or expected to fail, is skipped now")
    NEWLY_SKIPPED = _kind("newly-skipped", Level.GATE, "newly skipped", "NEWLY SKIPPED: passed, is skipped now")
    UNEXPECTED_PASS = _kind(
        "unexpected-pass", Level.GATE, "unexpected pass|unexpected passes", "UNEXPECTED PASS: bless it, or fix the mark"
    )
    FIXED = _kind("fixed", Level.GATE, "fixed", "FIXED: was red, passes now; gates until it is blessed")
    REMOVED = _kind("removed", Level.WARN, "removed", "REMOVED: is gone")
    RENAMED = _kind("renamed", Level.WARN, "renamed?", "RENAMED?: one gone, one new, and the names match")
    MUTED = _kind("muted", Level.WARN, "muted", "MUTED: is marked xfail now")
    CHANGED_REASON = _kind("changed-reason", Level.WARN, "changed reason", "CHANGED REASON: red as before, but why?")
    KNOWN_FLAKE = _kind("known-flake", Level.WARN, "known flake|known flakes", "KNOWN FLAKE: on the list of flakes")
    FLAKY = _kind("flaky", Level.WARN, "flaky", "FLAKY: passes, but not in its only attempt")
    ADDED_SKIPPED = _kind("added-skipped", Level.WARN, "added, skipped", "ADDED, SKIPPED: new, and never carried out")
    STILL_FAILING = _kind("still-failing", Level.INFO, "still failing", "STILL FAILING: as the baseline says")
    XFAIL_NOW = _kind("xfail-now", Level.INFO, "xfail now", "XFAIL NOW: was skipped or is new, expected to fail")
    UNSKIPPED = _kind("un-skipped", Level.INFO, "un-skipped", "UN-SKIPPED: was skipped, passes now")
    ADDED = _kind("added", Level.INFO, "added", "ADDED: new, and passes")
    SAME = _kind("same", Level.OK, "as before", "AS BEFORE")

    @property
    def word(self) -> str:
        """The name on command lines and in JSON."""
        return self.value.name

    @property
    def level(self) -> Level:
        """How much it weighs."""
        return self.value.level


_C = Change
_COLUMNS = ("pass", "red", "lost", "xfail", "idle", "absent")
# Rows: what the baseline says; columns: what the run says. `lost` is a crash or a timeout.
_TABLE: dict[str, tuple[Change, ...]] = {
    "pass": (_C.SAME, _C.REGRESSION, _C.REGRESSION, _C.MUTED, _C.NEWLY_SKIPPED, _C.REMOVED),
    "red": (_C.FIXED, _C.STILL_FAILING, _C.ESCALATED, _C.MUTED, _C.HIDDEN, _C.VANISHED),
    "lost": (_C.FIXED, _C.STILL_FAILING, _C.STILL_FAILING, _C.MUTED, _C.HIDDEN, _C.VANISHED),
    "xfail": (_C.UNEXPECTED_PASS, _C.LOST_XFAIL, _C.ESCALATED, _C.SAME, _C.HIDDEN, _C.REMOVED),
    "idle": (_C.UNSKIPPED, _C.NEW_FAILURE, _C.NEW_FAILURE, _C.XFAIL_NOW, _C.SAME, _C.REMOVED),
    "absent": (_C.ADDED, _C.NEW_TEST_FAILING, _C.NEW_TEST_FAILING, _C.XFAIL_NOW, _C.ADDED_SKIPPED, _C.SAME),
}


def change_between(base: Result | None, new: Result | None) -> Change:
    """The class of a test; None is absent. At most one of the two may be None."""
    row, column = _column(base), _column(new)
    change = _TABLE[row][_COLUMNS.index(column)]
    if change is Change.STILL_FAILING and base is not None and new is not None:
        return change if (base.outcome, base.reason) == (new.outcome, new.reason) else Change.CHANGED_REASON
    if change is Change.LOST_XFAIL and new is not None and new.outcome is Outcome.XPASS_STRICT:
        return Change.UNEXPECTED_PASS
    if column == "pass" and row in ("pass", "absent") and new is not None and new.repeated:
        return Change.SAME if base is not None and base.repeated else Change.FLAKY
    return change


def _column(result: Result | None) -> str:
    if result is None or result.outcome is Outcome.ABSENT:
        return "absent"
    if result.outcome in LOST:
        return "lost"
    if result.outcome in RED:
        return "red"
    if result.outcome in IDLE:
        return "idle"
    return "xfail" if result.outcome is Outcome.XFAIL else "pass"
