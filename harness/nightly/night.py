"""One night as a value: what was run, under what, and all that it left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.baseline.run import Run
from harness.report import Report, UnitResult

VALID = "valid"
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a night: suites, fuzz, ranks, faults, odds, peers or bench. status: done, stopped or left out.

    verdict: passed, failed or undecided, "" of a stage that says nothing.
    """

    name: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class PropertyRun:
    """What a run of `harness run` left in its folder; report is None if it was stopped before the end."""

    folder: Path
    units: tuple[UnitResult, ...]
    report: Report | None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a night says of itself.

    stamp: its name, of which there is one. started: UTC. seed: that of the search. budget_s: the seconds that it might
    take, None without a limit. validity: "valid", or "invalid: reason" or "infrastructure: reason"; only a valid night
    counts in trends.
    """

    stamp: str
    started: str
    ended: str = ""
    seed: str = ""
    commit: str = ""
    dirty: bool = False
    versions: Mapping[str, str]
    device: str = ""
    key: str = ""
    shards: tuple[str, ...] = ()
    budget_s: float | None = None
    validity: str = VALID
    stages: tuple[Stage, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether its figures mean anything."""
        return self.validity == VALID

    @property
    def day(self) -> str:
        """The day on which it began, YYYY-MM-DD."""
        return self.started[:10]


@dataclass(frozen=True, kw_only=True)
class Night:
    """A night with all its details; what it did not run is None or empty. faults, odds, peers and bench are JSON."""

    facts: Facts
    folder: Path | None = None
    suites: Run | None = None
    runs: tuple[PropertyRun, ...] = ()
    faults: Mapping[str, Any] | None = None
    odds: Mapping[str, Any] | None = None
    peers: Mapping[str, Any] | None = None
    bench: Mapping[str, Any] | None = None

    def units(self) -> Iterator[tuple[PropertyRun, UnitResult]]:
        """Every unit of every run of properties."""
        for run in self.runs:
            for unit in run.units:
                yield run, unit
