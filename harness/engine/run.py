"""A whole run: plan its units, have them searched, write what they found as it comes."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import Corpus
from harness.engine.pool import search_in_processes
from harness.engine.profiles import Profile
from harness.engine.unit import Unit, Work, search_here
from harness.properties import Property
from harness.report import Report, ResultLines, UnitResult, write_report
from harness.strata import CUT_STRATA

CHECKED_ON_RANKS = ("query_sees_only_its_sample", "query_sees_no_future")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run. properties, subject and fault are names of the catalogue (or module:attribute).

    cp: numbers of context-parallel ranks; empty to check the subject as it is, or on the fault's own ranks if it is one
    of ranks.
    """

    properties: tuple[str, ...]
    subject: str
    profile: Profile
    corpus: Corpus
    data: str | None = None
    seed: int | None = None
    fault: str | None = None
    cp: tuple[int, ...] = ()

    def units(self) -> tuple[Unit, ...]:
        """Every property on every kind that it, and the fault if there is one, has; with `sizes`, on ranks.

        Properties of ranks run on every number of them, isolation and causality where ranks exchange (more than one).
        Real processes are left out when a fault is planted: it is planted in this one only.

        Raises UsageError for a name that the catalogue does not have.
        """
        find_subject(self.subject)
        kinds = None if self.fault is None else find_fault(self.fault).kinds
        named = [(name, find_property(name)) for name in self.properties]
        units = (
            unit
            for name, prop in named
            for unit in (self._on_ranks(name, prop) if self.sizes else _as_it_is(name, prop))
        )
        return tuple(unit for unit in units if kinds is None or unit.kind in kinds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks to run on, `cp` or the fault's own."""
        return self.cp if self.cp or self.fault is None else find_fault(self.fault).ranks

    @property
    def wanted_strata(self) -> tuple[str, ...]:
        """What must be met; nothing when a fault is planted, for the search ends where it shows."""
        if self.fault is not None or not self.profile.wants_strata or max(self.sizes, default=0) < 4:
            return ()
        return CUT_STRATA

    def _on_ranks(self, name: str, prop: Property) -> Iterator[Unit]:
        profile = self.profile
        for ranks in self.sizes:
            amounts = []
            if prop.on_processes:
                amounts = [(False, profile.ranked_per_kind)]
                if ranks > 1 and self.fault is None:
                    amounts.append((True, profile.processes_per_kind))
            elif ranks >= prop.least_ranks and (prop.ranked or (prop.name in CHECKED_ON_RANKS and ranks > 1)):
                amounts = [(False, profile.ranked_others_per_kind)]
            for processes, layouts in amounts:
                for kind in prop.kinds:
                    yield Unit(name, kind, ranks=ranks, processes=processes, layouts=layouts)


def _as_it_is(name: str, prop: Property) -> Iterator[Unit]:
    if not prop.ranked:
        for kind in prop.kinds:
            yield Unit(name, kind)


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
        wanted_strata=plan.wanted_strata,
        units=tuple(results[unit] for unit in units if unit in results),
    )
    write_report(report, folder)
    return report


def _versions() -> dict[str, str]:
    packages = ("torch", "hypothesis", "tokenizers")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}
