"""Asks the catalogue: each property holds on each kind, on one rank and on ranks."""

from __future__ import annotations

from collections.abc import Callable

from harness.engine.row import Unit
from harness.engine.unit import Work, search_unit
from harness.report import UnitResult
from harness.verdict import Outcome


def _told(result: UnitResult) -> str:
    where = f"{result.outcome.value} {result.name} on {result.kind}"
    told = [
        f"{finding.witness.sentence()}\nharness replay {finding.token} --only {result.property_name}"
        for finding in result.findings
    ]
    return "\n".join([where, *(told or [result.reason])])


def _check(unit: Unit, work: Work, record: Callable[[str, object], None]) -> None:
    results = search_unit(work, unit)
    for result in results:
        record(f"layouts {result.name}", result.layouts)
        record(f"error_and_bound {result.name}", f"{result.error} / {result.bound}")
    bad = [result for result in results if result.outcome is not Outcome.HOLDS]
    assert not bad, "\n".join(map(_told, bad))


def test_property_holds(unit: Unit, work: Work, record_property: Callable[[str, object], None]) -> None:
    _check(unit, work, record_property)


def test_property_holds_on_ranks(ranked_unit: Unit, work: Work, record_property: Callable[[str, object], None]) -> None:
    _check(ranked_unit, work, record_property)
