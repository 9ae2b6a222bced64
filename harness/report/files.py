"""A run's files: one JSON line a unit as it finishes, then the report, JUnit XML and the violating cases."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Literal

from harness.atomic import write_json
from harness.junit import JUnitCase, write_junit
from harness.report.run import Report, case_file_name
from harness.report.units import UnitResult, counts_to_json
from harness.verdict import Outcome

_JUNIT: dict[Outcome, Literal["passed", "failure", "error", "skipped"]] = {
    Outcome.HOLDS: "passed",
    Outcome.VIOLATED: "failure",
    Outcome.UNDECIDED: "error",
    Outcome.VACUOUS: "skipped",
}


class ResultLines:
    """results.jsonl of a run's folder: a line is on disk before the next unit is waited for. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "results.jsonl").open("w", encoding="utf-8")

    def __enter__(self) -> ResultLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, unit: UnitResult) -> None:
        """Write one unit and flush it."""
        self._file.write(json.dumps(unit.to_json()) + "\n")
        self._file.flush()


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, junit.xml and a file for each violating case into the run's folder, each whole or not at all.

    results.jsonl is there already: the run appends to it as units finish.
    """
    for unit in report.units:
        for number, finding in enumerate(unit.findings):
            write_json(folder / case_file_name(unit, number), finding.case)
    write_junit(
        folder / "junit.xml",
        name="harness",
        timestamp=report.started,
        properties={
            "subject": report.subject,
            "profile": report.profile,
            "seed": str(report.seed),
            "fault": str(report.fault),
            "corpus": str(report.corpus.get("name")),
            "corpus_digest": str(report.corpus.get("digest")),
        },
        cases=[_junit_case(report, unit) for unit in report.units],
    )
    write_json(folder / "report.json", report.to_json())


def _junit_case(report: Report, unit: UnitResult) -> JUnitCase:
    commands = "\n".join(report.replay_commands(unit))
    message = " | ".join(finding.witness.sentence() for finding in unit.findings) or unit.reason
    counted = ", ".join(f"{count} {name}" for name, count in counts_to_json(unit.counts).items())
    return JUnitCase(
        classname=f"harness.{unit.property_name}",
        name=unit.kind,
        seconds=unit.seconds,
        result=_JUNIT[unit.outcome],
        type=unit.outcome.value,
        message=message,
        text=f"{message}\n{commands}".strip(),
        output=f"{unit.layouts} layouts: {counted}; largest error {unit.error}, bound {unit.bound}",
    )
