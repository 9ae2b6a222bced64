"""Asks the catalogue: each property holds on each kind, on one rank and on ranks."""

from __future__ import annotations

from collections.abc import Callable

from harness.engine.unit import Unit, Work, search_unit
from harness.report import UnitResult
from harness.verdict import Outcome


def _told(result: UnitResult) -> str:
    if result.finding is None:
        return f"{result.outcome.value}: {result.reason}"
    return f"{result.finding.witness.sentence()}\nharness replay {result.finding.token} --only {result.property_name}"


def test_property_holds(unit: Unit, work: Work, record_property: Callable[[str, object], None]) -> None:
    result = search_unit(work, unit)
    record_property("layouts", result.layouts)
    record_property("error_and_bound", f"{result.error} / {result.bound}")
    assert result.outcome is Outcome.HOLDS, _told(result)


def test_property_holds_on_ranks(ranked_unit: Unit, work: Work, record_property: Callable[[str, object], None]) -> None:
    result = search_unit(work, ranked_unit)
    record_property("layouts", result.layouts)
    record_property("error_and_bound", f"{result.error} / {result.bound}")
    assert result.outcome is Outcome.HOLDS, _told(result)
