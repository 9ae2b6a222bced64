"""Red tests by cause: 38 failures are often three."""

from __future__ import annotations

from collections.abc import Iterator

from harness.baseline.fingerprint import normal_line
from harness.baseline.outcomes import RED
from harness.nightly.blocks import Group, Section
from harness.nightly.view import View
from harness.nightly.wording import count
from harness.verdict import Outcome

_GROUPS = 20
_NAMES = 8


def failures_section(view: View) -> Section | None:
    """Left out where no test ran and nothing is undecided."""
    red: dict[str, list[str]] = {}
    messages: dict[str, str] = {}
    for result in view.results.values():
        if result.outcome in RED:
            reason = result.reason or result.outcome.value
            red.setdefault(reason, []).append(result.id)
            messages.setdefault(reason, result.message)
    undecided = _undecided(view)
    if not view.results and not undecided:
        return None
    total = sum(map(len, red.values()))
    lead = count(total, "red test") + (f" = {count(len(red), 'cause')}." if red else ".")
    if undecided:
        lead += f" {count(len(undecided), 'reason')} why properties are undecided."
    return Section(
        id="failures",
        title="Failures",
        lead=lead,
        blocks=[*_groups(red, messages, "red test"), *_groups(undecided, {}, "undecided unit")],
        tone="bad" if red else "warn" if undecided else "",
    )


def _undecided(view: View) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, unit in view.night.units():
        if unit.outcome is Outcome.UNDECIDED:
            found.setdefault(normal_line(unit.reason), []).append(f"{unit.property_name} on {unit.kind}")
    return found


def _groups(causes: dict[str, list[str]], messages: dict[str, str], what: str) -> Iterator[Group]:
    largest = sorted(causes, key=lambda reason: (-len(causes[reason]), reason))
    for reason in largest[:_GROUPS]:
        names = causes[reason]
        yield Group(
            title=f"{count(len(names), what)}: {reason}",
            detail=messages.get(reason, ""),
            items=names[:_NAMES],
            hidden=max(len(names) - _NAMES, 0),
        )
    if len(largest) > _GROUPS:
        rest = sum(len(causes[reason]) for reason in largest[_GROUPS:])
        yield Group(title=f"{count(len(largest) - _GROUPS, 'more cause')} of {count(rest, what)}", items=())
