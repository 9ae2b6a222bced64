"""The flake map: tests whose outcome changed, night by night; blank where a test did not run."""

from __future__ import annotations

from harness.baseline.outcomes import IDLE, RED, Outcome
from harness.nightly.blocks import Cell, Section, Table
from harness.nightly.findings import Findings
from harness.nightly.nights import REPEATED, outcome_of
from harness.nightly.trends import Course
from harness.nightly.view import View
from harness.nightly.wording import count

_SHOWN = 40
_TONES = {"red": "bad", "flake": "warn", "fixed": "good"}


def flakes_section(view: View, found: Findings) -> Section | None:
    """Left out where there is only one night with tests."""
    if not view.results or not view.before:
        return None
    flakes, red = found.flakes, sum(course.kind == "red" for course in found.courses)
    nights = count(len(found.shown), "night")
    lead = f"{count(flakes, 'flake')} and {count(red, 'test')} red since a certain night, in {nights}."
    lead += " F is red, dot passed, ~ passed but not at once, s skipped, x expected to fail; blank did not run." * bool(
        found.courses
    )
    blocks = [_map(view, found)] if found.courses else []
    return Section(id="flakes", title="Flake map", lead=lead, blocks=blocks, tone="warn" if flakes else "")


def _map(view: View, found: Findings) -> Table:
    days = [view.nights.summaries[number].day for number in found.shown]
    return Table(
        caption="Tests whose outcome changed, the gravest first",
        columns=("test", "what", *days),
        rows=[_row(view, found, course) for course in found.courses[:_SHOWN]],
        hidden=max(len(found.courses) - _SHOWN, 0),
        grid=True,
        end=True,
        left=frozenset({0, 1}),
    )


def _row(view: View, found: Findings, course: Course) -> list[Cell]:
    day = view.nights.summaries[course.since].day
    what = f"flake, {course.changes} changes" if course.kind == "flake" else f"{course.kind} since {day}"
    cells = [_cell(view, number, int(view.nights.codes[number, course.test])) for number in found.shown]
    name = view.nights.tests[course.test]
    return [Cell(name, code=True), Cell(what, tone=_TONES[course.kind]), *cells]


def _cell(view: View, number: int, code: int) -> Cell:
    why = view.why_not(number)
    if why:
        return Cell("", tone="hole", title=why)
    outcome = outcome_of(code)
    title = f"{view.nights.summaries[number].day}: {outcome.value}"
    if outcome is Outcome.ABSENT:
        return Cell("", title=title)
    if outcome in RED:
        return Cell("F", tone="bad", title=title)
    if outcome in IDLE:
        return Cell("s", tone="mute", title=title)
    if outcome is Outcome.XFAIL:
        return Cell("x", tone="mute", title=title)
    if code >= REPEATED:
        return Cell("~", tone="warn", title=f"{title}, not at once")
    return Cell("·", tone="good", title=title)
