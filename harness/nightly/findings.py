"""What of a night is worth a person's look: what changed since the last one, what flakes, what drifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TypeVar

import numpy as np

from harness.baseline.changes import Change, Level, change_between
from harness.baseline.diff import Diff, compare
from harness.baseline.outcomes import Outcome as TestOutcome
from harness.baseline.run import Result
from harness.nightly.nights import REPEATED
from harness.nightly.summary import Summary
from harness.nightly.trends import Course, Rise, courses, rises
from harness.nightly.view import View
from harness.verdict import Outcome

_T = TypeVar("_T")

SHOWN_NIGHTS = 30
"""Nights in which a change of outcome makes a flake: older ones say little of today's code."""
_SLOW_MS = 50
"""A test that takes less is not told to become slower."""

CAUGHT = {"caught": 0, "quiet": 0, "undecided": 1, "vacuous": 2, "missed": 2, "alarm": 2}
"""How bad a fault's verdict is."""
_BAD = {Outcome.HOLDS: 0, Outcome.VACUOUS: 1, Outcome.UNDECIDED: 1, Outcome.VIOLATED: 2}


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What is not as on the last night: a test, property, fault, stratum or peer. weight: 2 bad to -1 good."""

    what: str
    name: str
    change: str
    detail: str
    weight: int


@dataclass(frozen=True, kw_only=True)
class Findings:
    """changes: since the last night that counts. courses: tests whose outcome changed over the newest nights shown.

    drifts: measured errors that rise against their bounds. slower: tests that take longer and longer. diff: the
    comparison with the baseline, None without one.
    """

    changes: tuple[Changed, ...]
    courses: tuple[Course, ...]
    shown: tuple[int, ...]
    drifts: tuple[Rise, ...]
    slower: tuple[Rise, ...]
    diff: Diff | None

    @property
    def regressions(self) -> int:
        """Changes for the worse."""
        return sum(changed.weight == 2 for changed in self.changes)

    @property
    def flakes(self) -> int:
        """Tests that pass and fail in turn."""
        return sum(course.kind == "flake" for course in self.courses)


def find(view: View) -> Findings:
    """Look at a night and at those before it."""
    shown = tuple(range(len(view.nights.summaries)))[-SHOWN_NIGHTS:]
    rows = [number for number in shown if number in view.counted]
    nights = view.nights
    again = nights.passed[rows] & (nights.codes[rows] >= REPEATED)
    found = courses(nights.red[rows], nights.passed[rows], again) if rows else []
    diff = None
    if view.baseline is not None and view.night.suites is not None:
        day = date.fromisoformat(view.night.facts.day) if view.night.facts.day else date.max
        diff = compare(view.baseline, view.night.suites, today=day)
    flakes = {nights.tests[course.test] for course in found if course.kind == "flake"}
    changes = [_flaked(changed) if changed.name in flakes else changed for changed in _changes(view)]
    return Findings(
        changes=tuple(sorted(changes, key=lambda one: (-one.weight, one.what != "test", one.name))),
        courses=tuple(Course(test=c.test, kind=c.kind, changes=c.changes, since=rows[c.since]) for c in found),
        shown=shown,
        drifts=tuple(_drifts(view)),
        slower=tuple(_slower(view)),
        diff=diff,
    )


def _flaked(changed: Changed) -> Changed:
    """What a flake does is told, and is neither a regression nor a fix."""
    return replace(changed, change=f"FLAKE AGAIN: {changed.change}", weight=1)


def _changes(view: View) -> Iterator[Changed]:
    last = view.last
    if last is None:
        return
    yield from _tests(view)
    was, now = last.properties(), view.summary.properties()
    for name in sorted(was.keys() & now.keys()):
        if was[name] is not now[name]:
            change = f"{was[name].value} → {now[name].value}"
            yield Changed(
                what="property", name=name, change=change, detail="", weight=_weight(_BAD, was[name], now[name])
            )
    for name in sorted(last.faults.keys() & view.summary.faults.keys()):
        one, two = last.faults[name], view.summary.faults[name]
        if one != two:
            weight = _weight(CAUGHT, one, two)
            yield Changed(what="fault", name=name, change=f"{one} → {two}", detail="", weight=weight)
    for name in sorted(set(view.summary.unmet_strata) - set(last.unmet_strata)):
        yield Changed(what="stratum", name=name, change="met → not met", detail="", weight=1)
    yield from _peers(last, view.summary)


def _peers(was: Summary, now: Summary) -> Iterator[Changed]:
    """What public models that both nights asked give now: a new version, and what it fixes or breaks.

    None of it is a regression of this repository, so the worst of it is doubtful.
    """
    for name in sorted(was.peers.keys() & now.peers.keys()):
        one, two = was.peers[name], now.peers[name]
        versions = f"{one['version']} → {two['version']}" if one["version"] != two["version"] else ""
        moved = False
        for prop in sorted(one["outcomes"].keys() & two["outcomes"].keys()):
            before, after = Outcome(one["outcomes"][prop]), Outcome(two["outcomes"][prop])
            if before is not after:
                weight = min(_weight(_BAD, before, after), 1)
                change = f"{before.value} → {after.value}"
                yield Changed(what="peer", name=f"{name}: {prop}", change=change, detail=versions, weight=weight)
                moved = True
        if versions and not moved:
            yield Changed(what="peer", name=name, change=versions, detail="the same verdicts", weight=0)


def _weight(badness: Mapping[_T, int], was: _T, now: _T) -> int:
    """How grave a step is: 2 to the worst, 1 to something doubtful, -1 to something better."""
    one, two = badness.get(was, 1), badness.get(now, 1)
    return -1 if two < one else two


_WEIGHTS = {Level.GATE: 2, Level.WARN: 1, Level.INFO: 0, Level.OK: 0}
_GOOD = frozenset({Change.FIXED, Change.UNEXPECTED_PASS, Change.UNSKIPPED})


def _tests(view: View) -> Iterator[Changed]:
    was, now = view.last_results, view.results
    if not now or not was:
        return
    for name in was.keys() | now.keys():
        old, new = was.get(name), now.get(name)
        if new is None and not view.summary.is_valid:
            continue  # a night that is no whole one says nothing of what is not there
        change = change_between(old, new)
        if change in (Change.SAME, Change.STILL_FAILING, Change.ADDED):
            continue
        weight = -1 if change in _GOOD else _WEIGHTS[change.level]
        yield Changed(what="test", name=name, change=change.value.title, detail=_detail(old, new), weight=weight)


def _detail(old: Result | None, new: Result | None) -> str:
    if new is None:
        return f"was {old.outcome.value}" if old else ""
    return new.message or new.reason or ("" if new.outcome is TestOutcome.PASS else new.outcome.value)


def _drifts(view: View) -> list[Rise]:
    """Of each property and kind the error in units of its bound, over the nights that count."""
    rows = [
        {f"{one.property_name} on {one.kind}": one.share for one in view.nights.summaries[number].measured}
        for number in view.counted
    ]
    names = sorted({name for row in rows for name, value in row.items() if value is not None})
    values = np.array([[_number(row.get(name)) for name in names] for row in rows], dtype=np.float64)
    return rises(names, values) if names else []


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _slower(view: View) -> list[Rise]:
    """Tests whose duration rises; those that passed, as a failure may come early."""
    rows = view.counted
    tests = np.flatnonzero(view.usual_millis > _SLOW_MS)
    millis = view.nights.millis[rows][:, tests].astype(np.float64) / 1000
    millis[~view.nights.passed[rows][:, tests]] = np.nan
    return rises([view.nights.tests[test] for test in tests], millis)


def picture_beside(case_file: Path) -> Path:
    """Where the picture of a case's witness lies: beside the case's file."""
    return case_file.with_suffix(".svg")
