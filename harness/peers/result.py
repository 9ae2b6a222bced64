"""What public models gave: a table of peers and properties, as a value and as JSON. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.report import Report, UnitResult, strongest
from harness.report.units import Finding, number_to_json
from harness.verdict import Outcome

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """The smallest finding of a cell: what is wrong, on which case, and the command that shows it."""

    sentence: str
    token: str
    command: str


@dataclass(frozen=True, kw_only=True)
class PropertyCell:
    """One property of one peer. witnesses: the smallest in the trunk and in MTP, smallest first. reason: where
    undecided or vacuous.
    """

    outcome: Outcome
    layouts: int = 0
    error: float | None = None
    witnesses: tuple[Witnessed, ...] = ()
    reason: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "outcome": self.outcome.value,
            "layouts": self.layouts,
            "error": number_to_json(self.error),
            "witnesses": [vars(witness) for witness in self.witnesses],
            "reason": self.reason,
            "kinds": dict(self.kinds),
        }


@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """One peer. version: of its package, "" where it is not installed; changes: against its baseline, in words.

    missing: why it could not be asked, with the command that helps. baseline: the version compared with, if any.
    """

    name: str
    about: str
    package: str
    version: str
    cells: Mapping[str, PropertyCell]
    seconds: float = 0.0
    missing: str = ""
    baseline: str = ""
    changes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """VIOLATED if a property is; UNDECIDED where it was not asked."""
        if self.missing:
            return Outcome.UNDECIDED
        decided = [cell.outcome for cell in self.cells.values() if cell.outcome is not Outcome.UNDECIDED]
        return strongest(decided) if decided else Outcome.UNDECIDED

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "about": self.about,
            "package": self.package,
            "version": self.version,
            "outcome": self.outcome.value,
            "seconds": round(self.seconds, 1),
            "missing": self.missing,
            "baseline": self.baseline,
            "changes": list(self.changes),
            "cells": {name: cell.to_json() for name, cell in self.cells.items()},
        }


@dataclass(frozen=True, kw_only=True)
class PeerTable:
    """Everything that one command asked. cpu_seconds: of all processes; seconds: on the clock."""

    properties: tuple[str, ...]
    rows: tuple[PeerRow, ...]
    started: str
    seconds: float
    cpu_seconds: float
    jobs: int

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the schema's version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "jobs": self.jobs,
            "properties": list(self.properties),
            "peers": [row.to_json() for row in self.rows],
        }


def cells_of(report: Report, properties: Iterable[str]) -> dict[str, PropertyCell]:
    """A run's units as cells, one a property over all kinds."""
    units: dict[str, list[UnitResult]] = {name: [] for name in properties}
    for unit in report.units:
        units.setdefault(unit.property_name, []).append(unit)
    return {name: _cell(report, found) for name, found in units.items() if found}


def _cell(report: Report, units: list[UnitResult]) -> PropertyCell:
    outcome = strongest(unit.outcome for unit in units)
    findings = [(unit, number, found) for unit in units for number, found in enumerate(unit.findings)]
    # One defect must not hide another: the trunk and MTP each have theirs.
    smallest: dict[bool, Witnessed] = {}
    for unit, number, found in sorted(findings, key=lambda one: _size(one[2])):
        command = report.replay_commands(unit)[number]
        told = Witnessed(sentence=found.witness.sentence(), token=found.token, command=command)
        smallest.setdefault(found.witness.depth > 0, told)
    reasons = [unit.reason for unit in units if unit.outcome is outcome and unit.reason]
    errors = [unit.error for unit in units if unit.error is not None]
    return PropertyCell(
        outcome=outcome,
        layouts=sum(unit.layouts for unit in units),
        error=max(errors, default=None),
        witnesses=tuple(smallest.values()),
        reason=reasons[0] if reasons and not smallest and outcome is not Outcome.HOLDS else "",
        kinds={unit.kind: unit.outcome.value for unit in units},
    )


def _size(found: Finding) -> tuple[int, int, bool, str]:
    """Fewest tokens first, then fewest samples; a configuration with one kind of layer before one with all."""
    return found.case["total"], len(found.case["lengths"]), found.token.startswith("all"), found.token
