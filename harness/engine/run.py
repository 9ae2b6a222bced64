"""A whole run: plan its units, have them searched, write what they found as it comes."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import Corpus
from harness.engine.pool import search_in_processes
from harness.engine.profiles import Profile
from harness.engine.unit import Unit, Work, search_here
from harness.report import Report, ResultLines, UnitResult, write_report


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run. properties, subject and fault are names of the catalogue (or module:attribute)."""

    properties: tuple[str, ...]
    subject: str
    profile: Profile
    corpus: Corpus
    data: str | None = None
    seed: int | None = None
    fault: str | None = None

    def units(self) -> tuple[Unit, ...]:
        """Every property on every kind that it, and the fault if there is one, has.

        Raises UsageError for a name that the catalogue does not have.
        """
        find_subject(self.subject)
        kinds = None if self.fault is None else find_fault(self.fault).kinds
        return tuple(
            Unit(property_name=name, kind=kind)
            for name in self.properties
            for kind in find_property(name).kinds
            if kinds is None or kind in kinds
        )


def run(plan: Plan, *, folder: Path, jobs: int = 1, done: Callable[[UnitResult], None] | None = None) -> Report:
    """Search every unit of a plan in `jobs` processes (1: in this one) and write the run's files into `folder`.

    `done` is called with each unit as it finishes. Raises UsageError before anything runs if a name is unknown or the
    folder cannot be written; KeyboardInterrupt passes through after the workers have ended, results.jsonl complete so
    far.
    """
    units = plan.units()
    began, started = time.perf_counter(), datetime.now(UTC)
    work = Work(subject=plan.subject, profile=plan.profile, corpus=plan.corpus, seed=plan.seed, fault=plan.fault)
    jobs = max(1, min(jobs, len(units)))
    results: dict[Unit, UnitResult] = {}
    with ResultLines(folder) as lines:
        finished = search_here(work, units) if jobs == 1 else search_in_processes(work, units, jobs=jobs)
        for unit, result in finished:
            results[unit] = result
            lines.append(result)
            if done is not None:
                done(result)
    report = Report(
        subject=plan.subject,
        profile=plan.profile.name,
        seed=plan.seed,
        fault=plan.fault,
        data=plan.data,
        corpus=plan.corpus.to_json(),
        jobs=jobs,
        folder=str(folder),
        started=started.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - began,
        versions=_versions(),
        planned=len(units),
        units=tuple(results[unit] for unit in units if unit in results),
    )
    write_report(report, folder)
    return report


def _versions() -> dict[str, str]:
    packages = ("torch", "hypothesis", "tokenizers")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}
