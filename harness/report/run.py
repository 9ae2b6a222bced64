"""A whole run: its units, what they say together, and the exit code."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import tokens
from harness.report.units import (
    SCHEMA_VERSION,
    UnitResult,
    check_schema,
    counts_to_json,
    number_to_json,
    strongest,
    worst,
)
from harness.verdict import Outcome


@dataclass(frozen=True, kw_only=True)
class PropertySummary:
    """One property over all its kinds; seconds are those of the units added up."""

    name: str
    outcome: Outcome
    counts: Mapping[Outcome, int]
    error: float | None
    bound: float | None
    seconds: float
    units: tuple[UnitResult, ...]

    @property
    def layouts(self) -> int:
        """Layouts that got a verdict."""
        return sum(self.counts.values())


def summarise(units: Iterable[UnitResult]) -> tuple[PropertySummary, ...]:
    """Units grouped by property and ranks, in order of first appearance."""
    groups: dict[str, list[UnitResult]] = {}
    for unit in units:
        groups.setdefault(unit.name, []).append(unit)
    return tuple(_summary(name, tuple(group)) for name, group in groups.items())


def _summary(name: str, units: tuple[UnitResult, ...]) -> PropertySummary:
    error, bound = worst((unit.error, unit.bound) for unit in units)
    return PropertySummary(
        name=name,
        outcome=strongest(unit.outcome for unit in units),
        counts={outcome: sum(unit.counts.get(outcome, 0) for unit in units) for outcome in Outcome},
        error=error,
        bound=bound,
        seconds=sum(unit.seconds for unit in units),
        units=units,
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run. planned: units that were to be run; units: those that were, in the order planned.

    wanted_strata: what at least one layout has to be an instance of. most_vacuous: the share of a property's layouts
    that may be vacuous. left_out: what the subject says that it does not support, and no layout asked of it.
    """

    subject: str
    profile: str
    seed: int | None
    fault: str | None
    data: str | None
    corpus: Mapping[str, Any]
    jobs: int
    folder: str
    started: str
    seconds: float
    versions: Mapping[str, str]
    planned: int
    units: tuple[UnitResult, ...]
    wanted_strata: tuple[str, ...] = ()
    most_vacuous: float = 1.0
    left_out: tuple[str, ...] = ()

    @property
    def strata(self) -> Mapping[str, int]:
        """Layouts by stratum over all units, the wanted ones named even at zero."""
        counts = Counter(dict.fromkeys(self.wanted_strata, 0))
        for unit in self.units:
            counts.update(unit.strata)
        return dict(counts)

    @property
    def unmet_strata(self) -> tuple[str, ...]:
        """Wanted strata that no layout belongs to: what they would show is unknown."""
        return tuple(name for name in self.wanted_strata if not self.strata[name])

    @property
    def mostly_vacuous(self) -> tuple[str, ...]:
        """Properties that hold, on so few of their layouts that the rest proves too little."""
        return tuple(
            f"{group.name} ({group.counts[Outcome.VACUOUS]} of {group.layouts} layouts)"
            for group in self.summaries
            if group.outcome is Outcome.HOLDS and group.counts[Outcome.VACUOUS] > self.most_vacuous * group.layouts
        )

    @property
    def summaries(self) -> tuple[PropertySummary, ...]:
        """One summary a property."""
        return summarise(self.units)

    @property
    def outcome(self) -> Outcome:
        """VIOLATED if any property is; HOLDS only if every property holds on at least one layout."""
        outcomes = {summary.outcome for summary in self.summaries}
        if Outcome.VIOLATED in outcomes:
            return Outcome.VIOLATED
        if Outcome.UNDECIDED in outcomes or len(self.units) < self.planned:
            return Outcome.UNDECIDED
        if self.unmet_strata or self.mostly_vacuous or self.left_out:
            return Outcome.UNDECIDED
        # A property that no layout put to the test is unknown, and a run that leaves one unknown has not passed.
        return Outcome.VACUOUS if Outcome.VACUOUS in outcomes or not outcomes else Outcome.HOLDS

    @property
    def exit_code(self) -> int:
        """0 every property holds, 1 one is violated, 3 one could not be decided."""
        return {Outcome.HOLDS: 0, Outcome.VIOLATED: 1}.get(self.outcome, 3)

    @property
    def headline(self) -> str:
        """The run in one sentence."""
        groups = self.summaries
        named = {outcome: [group.name for group in groups if group.outcome is outcome] for outcome in Outcome}
        layouts = sum(group.layouts for group in groups)
        planted = "" if self.fault is None else f" with fault {self.fault} planted"
        if planted and any("@" in unit.kind for unit in self.units):
            planted += " on ranks of one process"
        tail = f"{layouts} layouts of {self.subject}{planted}, {self.seconds:.0f} s"
        parts = [f"{len(named[Outcome.HOLDS])} of {len(groups)} properties hold"]
        for outcome, words in ((Outcome.VIOLATED, "violated"), (Outcome.UNDECIDED, "undecided"),
                               (Outcome.VACUOUS, "never put to the test")):  # fmt: skip
            if named[outcome]:
                parts.append(f"{words}: {', '.join(named[outcome])}")
        if self.unmet_strata:
            parts.append(f"no layout for: {', '.join(self.unmet_strata)}")
        if self.mostly_vacuous:
            parts.append(f"mostly vacuous: {', '.join(self.mostly_vacuous)}")
        if self.left_out:
            parts.append(f"not asked, because unsupported: {', '.join(self.left_out)}")
        return f"{self.outcome.value}: {'; '.join(parts)} ({tail})."

    def replay_commands(self, unit: UnitResult) -> tuple[str, ...]:
        """The commands that show a unit's findings again, or else its first undecided case.

        A token past the longest one is named by its file in the run's folder instead.
        """
        found = [
            finding.token
            if len(finding.token) <= tokens.LONGEST
            else str(Path(self.folder, case_file_name(unit, number)))
            for number, finding in enumerate(unit.findings)
        ]
        if not found and unit.undecided is not None:
            found = [unit.undecided]
        return tuple(self._replay_command(unit, token) for token in found)

    def _replay_command(self, unit: UnitResult, token: str) -> str:
        words = ["harness", "replay", token, "--only", unit.property_name]
        if self.subject != "v4model":
            words += ["--subject", self.subject]
        if self.fault is not None:
            words += ["--fault", self.fault]
        if self.data is not None:
            words += ["--data", self.data]
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "strata": dict(self.strata),
            "wanted_strata": list(self.wanted_strata),
            "unmet_strata": list(self.unmet_strata),
            "most_vacuous": self.most_vacuous,
            "mostly_vacuous": list(self.mostly_vacuous),
            "left_out": list(self.left_out),
            "headline": self.headline,
            "subject": self.subject,
            "profile": self.profile,
            "seed": self.seed,
            "fault": self.fault,
            "data": self.data,
            "corpus": dict(self.corpus),
            "jobs": self.jobs,
            "folder": self.folder,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "versions": dict(self.versions),
            "planned_units": self.planned,
            "properties": [_summary_to_json(summary) for summary in self.summaries],
            "units": [{**unit.to_json(), "replay": list(self.replay_commands(unit))} for unit in self.units],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Report:
        """Read what `to_json` wrote; raises KeyError for a missing field, ValueError for another schema."""
        check_schema(data)
        return Report(
            **{name: data[name] for name in _PLAIN},
            planned=int(data["planned_units"]),
            units=tuple(UnitResult.from_json(unit) for unit in data["units"]),
            # These came later: an older report says only which strata were not met.
            left_out=tuple(data.get("left_out", ())),
            wanted_strata=tuple(data.get("wanted_strata", data["unmet_strata"])),
            most_vacuous=data.get("most_vacuous", 1.0),
        )


_PLAIN = ("subject", "profile", "seed", "fault", "data", "corpus", "jobs", "folder", "started", "seconds", "versions")
"""Fields that JSON holds as they are."""


def _summary_to_json(summary: PropertySummary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "outcome": summary.outcome.value,
        "layouts": summary.layouts,
        "counts": counts_to_json(summary.counts),
        "error": number_to_json(summary.error),
        "bound": number_to_json(summary.bound),
        "seconds": round(summary.seconds, 3),
    }


def case_file_name(unit: UnitResult, number: int) -> str:
    """Name of the file that holds the minimal case of a unit's finding in the run's folder."""
    again = f"-{number + 1}" if number else ""
    return f"case-{unit.property_name.replace(':', '.')}-{unit.kind}{again}.json"
