"""Reads nights from their folders. Damage inside a night makes it invalid and is told; it never raises.

A night's folder holds `night.json` and, each where it was run, `suites/results.jsonl`, runs of `harness run` below
`fuzz/` and `ranks/`, `faults.json`, `odds.json`, `peers.json` and `bench.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from harness.baseline.key import key_of
from harness.baseline.reading import read_run
from harness.baseline.run import Run
from harness.errors import UsageError
from harness.nightly.night import SCHEMA_VERSION, Facts, Night, PropertyRun, Stage
from harness.report import Report, UnitResult

NIGHT = "night.json"
REPORT = "report.json"
RESULTS = "results.jsonl"
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

_T = TypeVar("_T")
# The JSON files beside `night.json`: the lists in each, and what an entry of theirs has to say.
_TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "faults": {"rows": ("name", "what", "title", "expected", "verdict", "cells")},
    "odds": {"odds": ("fault", "property", "cases", "caught", "a_layout", "a_run_at_least")},
    "peers": {"peers": ("name", "package", "version", "outcome", "missing", "baseline", "changes", "cells")},
    "bench": {
        "ladder": ("window", "peak_bytes", "predicted_bytes"),
        "steps": ("window", "median_ms", "spread_ms"),
    },
}


def read_nights(places: Iterable[str]) -> list[Night]:
    """Every night's folder among the places, oldest first; all other places together are one night more.

    Raises UsageError for a place that is no night and no run.
    """
    paths = [Path(place) for place in places]
    nights = [read_night(path) for path in paths if (path / NIGHT).is_file()]
    loose = [path for path in paths if not (path / NIGHT).is_file()]
    if loose:
        nights.append(_read_loose(loose))
    return sorted(nights, key=lambda night: (night.facts.started, night.facts.stamp))


def read_night(folder: Path) -> Night:
    """Read one night's folder; raises UsageError if `night.json` is none."""
    try:
        facts = _facts(folder.resolve().name, json.loads((folder / NIGHT).read_text(encoding="utf-8")))
    except DAMAGE as error:
        raise UsageError(got=_told(error), expected="a night", where=str(folder / NIGHT)) from error
    parts = _Parts()
    parts.tests += map(str, sorted((folder / "suites").glob("*.jsonl")))
    for name in ("fuzz", "ranks"):
        for run in sorted({file.parent for file in (folder / name).rglob(RESULTS)}):
            parts.take_run(run)
    for name in _TABLES:
        if (folder / f"{name}.json").is_file():
            parts.take_table(folder / f"{name}.json", name)
    return parts.to_night(facts, folder)


def _read_loose(paths: list[Path]) -> Night:
    """A night made of what its pieces say of themselves."""
    parts = _Parts()
    for path in paths:
        parts.take(path)
    suites = parts.suites()
    report = next((run.report for run in parts.runs if run.report is not None), None)
    told = (suites and suites.started, report and report.started)
    started = min((_utc(text) for text in told if text), default="")
    facts = Facts(
        stamp=started or "not dated",
        started=started,
        seed="" if report is None or report.seed is None else str(report.seed),
        commit="" if suites is None else suites.commit,
        versions={} if report is None else report.versions,
        device="" if suites is None or suites.facts is None else suites.facts.get("device", ""),
        key="" if suites is None else key_of(suites.facts) or "",
    )
    return parts.to_night(facts, None)


def _utc(text: str) -> str:
    """A time stamp in UTC, to the second, so that stamps sort as times do; raises ValueError for another text."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _facts(stamp: str, data: dict[str, Any]) -> Facts:
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version {data['schema_version']}, not {SCHEMA_VERSION}")
    return Facts(
        stamp=stamp,
        started=_utc(data["started"]),
        ended=data["ended"] or "",
        seed="" if data["seed"] is None else str(data["seed"]),
        commit=data["commit"],
        dirty=bool(data["dirty"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        device=data["device"],
        key=data["key"] or "",
        shards=tuple(map(str, data["shards"])),
        budget_s=data["budget_s"],
        validity=data["validity"],
        stages=tuple(
            Stage(
                name=stage["name"],
                status=stage["status"],
                reason=stage.get("reason") or "",
                seconds=float(stage.get("seconds") or 0),
                files=tuple(stage.get("files", ())),
                verdict=stage.get("verdict") or "",
            )
            for stage in data["stages"]
        ),
    )


@dataclass
class _Parts:
    """What has been found so far, and what is wrong with it."""

    tests: list[str] = field(default_factory=list)
    runs: list[PropertyRun] = field(default_factory=list)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, path: Path) -> None:
        """Take a piece for what it is: a run's folder, one of the tables, or else results of tests."""
        if path.is_dir() and _is_property_run(path):
            self.take_run(path)
            return
        if not path.exists():
            raise UsageError(got=f"no file {path}", expected="folders of nights, or runs", where="report")
        if path.suffix == ".json":
            found = self._try(path, lambda: _json(path))
            name = next((name for name, lists in _TABLES.items() if lists.keys() & (found or {})), None)
            if name is None:
                raise UsageError(got=str(path), expected=f"one of {', '.join(_TABLES)}.json", where="report")
            self.take_table(path, name)
            return
        self.tests.append(str(path))

    def take_run(self, folder: Path) -> None:
        """Take a run of properties, whole or stopped."""
        file = folder / REPORT
        if file.is_file():
            report = self._try(file, lambda: Report.from_json(_json(file)))
            units = () if report is None else report.units
        else:
            report, units = None, self._try(folder / RESULTS, lambda: _units(folder / RESULTS)) or ()
        self.runs.append(PropertyRun(folder=folder, units=units, report=report))

    def take_table(self, path: Path, name: str) -> None:
        """Take a JSON file whose key lists what it holds."""
        found = self._try(path, lambda: _table(path, name))
        if found is not None:
            self.tables[name] = found

    def suites(self) -> Run | None:
        """The results of tests as one run."""
        return read_run(self.tests) if self.tests else None

    def to_night(self, facts: Facts, folder: Path | None) -> Night:
        """The night; it is not valid if a part of it cannot be read, or was killed."""
        suites = self.suites()
        problems = [*self.problems, *(problem.sentence for problem in (suites.problems if suites else ()))]
        if facts.is_valid and problems:
            more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
            facts = replace(facts, validity=f"invalid: {problems[0]}{more}")
        return Night(facts=facts, folder=folder, suites=suites, runs=tuple(self.runs), **self.tables)

    def _try(self, path: Path, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except DAMAGE as error:
            self.problems.append(f"{path}: {_told(error)}")
            return None


def _is_property_run(folder: Path) -> bool:
    """Results of tests begin with a header; results of properties have none."""
    if (folder / REPORT).is_file():
        return True
    if not (folder / RESULTS).is_file():
        return False
    with (folder / RESULTS).open(encoding="utf-8", errors="replace") as lines:
        return '"property"' in lines.readline()


def _units(path: Path) -> tuple[UnitResult, ...]:
    """The units of a run that was stopped; its last line may be cut."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return tuple(UnitResult.from_json(json.loads(line)) for line in lines[:-1])


def _table(path: Path, name: str) -> dict[str, Any]:
    found = _json(path)
    lists = _TABLES[name]
    if not lists.keys() & found.keys():
        raise ValueError(f"expected {' or '.join(lists)}")
    for key, fields in lists.items():
        for entry in found.get(key, []):
            for field_name in fields:
                entry[field_name]
    if name == "faults":
        found["properties"]
    return found


def _json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _told(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(getattr(error, "strerror", None) or error)
