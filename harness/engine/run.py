"""A whole run: plan its units, have them searched, write what they found as it comes."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from harness.catalogue import find_fault, find_property, find_subject
from harness.corpus import Corpus
from harness.engine.pool import in_jobs
from harness.engine.profiles import Profile
from harness.engine.row import Row, Unit
from harness.engine.unit import Work, search_unit, undecided_unit
from harness.kinds import KINDS
from harness.properties import Property
from harness.report import Report, ResultLines, UnitResult, write_report
from harness.strata import CUT_STRATA, DTYPE_STRATA, LAYOUT_STRATA
from harness.subjects.support import left_out, unsupported_by, versions_of

CHECKED_ON_RANKS = ("query_sees_only_its_sample", "query_sees_no_future")


_Group: TypeAlias = tuple[int | None, list[Row]]
"""How many layouts (None: the profile's cases_per_kind), and the rows that are asked of the same ones."""


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
        kinds = KINDS if self.fault is None else find_fault(self.fault).kinds
        properties = {name: find_property(name) for name in self.properties}
        groups = self._on_ranks(properties) if self.sizes else _as_it_is(properties)
        return tuple(
            Unit(kind, having, layouts=layouts)
            for layouts, rows in groups
            for kind in kinds
            if (having := tuple(row for row in rows if kind in properties[row.property_name].kinds))
        )

    @property
    def rows(self) -> tuple[tuple[str, Row], ...]:
        """Kind and row of every result to come, in the order of the report: property by property, then ranks."""
        units = [(unit.kind, row) for unit in self.units() for row in unit.rows]
        of_kind = {kind: number for number, kind in enumerate(KINDS)}
        order = {name: number for number, name in enumerate(self.properties)}
        return tuple(
            sorted(
                units,
                key=lambda one: (order[one[1].property_name], one[1].ranks or 0, one[1].processes, of_kind[one[0]]),
            )
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks to run on, `cp` or the fault's own."""
        return self.cp if self.cp or self.fault is None else find_fault(self.fault).ranks

    @property
    def wanted_strata(self) -> tuple[str, ...]:
        """What must be met; nothing with a fault planted (rows end where it shows), nor by a part of the kinds."""
        if self.fault is not None or not self.profile.wants_strata:
            return ()
        if self.sizes:
            return CUT_STRATA if max(self.sizes) >= 4 else ()
        properties = [find_property(name) for name in self.properties]
        if not any(prop.kinds == KINDS for prop in properties if not prop.ranked):
            return ()
        dtypes = {dtype for prop in properties for dtype in prop.dtypes}
        return (*LAYOUT_STRATA, *(name for dtype, name in DTYPE_STRATA.items() if dtype in dtypes))

    def _on_ranks(self, properties: Mapping[str, Property]) -> Iterator[_Group]:
        """What is asked of the same layouts: equality and agreement of all sizes, of processes, then size by size."""
        profile, sizes = self.profile, self.sizes
        alike = [name for name, prop in properties.items() if prop.on_processes and prop.looks_at == "model"]
        meshes = [name for name, prop in properties.items() if prop.on_processes and prop.looks_at == "mesh"]
        yield profile.ranked_per_kind, [Row(name, ranks) for name in alike for ranks in sizes]
        if self.fault is None:
            several = [ranks for ranks in sizes if ranks > 1]
            for names in (alike, meshes):
                yield (
                    profile.processes_per_kind,
                    [Row(name, size, processes=True) for name in names for size in several],
                )
        for ranks in sizes:
            asked = {name: prop for name, prop in properties.items() if name not in alike and asked_at(prop, ranks)}
            for layouts, about_ranks in ((profile.meshes_per_kind, True), (profile.ranked_others_per_kind, False)):
                yield layouts, [Row(name, ranks) for name, prop in asked.items() if prop.ranked is about_ranks]


def asked_at(prop: Property, ranks: int | None) -> bool:
    """Whether a property says something of a subject on so many ranks; None: of the subject as it is."""
    if ranks is None:
        return not prop.ranked
    return ranks >= prop.least_ranks and (prop.ranked or (prop.name in CHECKED_ON_RANKS and ranks > 1))


def _as_it_is(properties: Mapping[str, Property]) -> Iterator[_Group]:
    for name, prop in properties.items():
        if asked_at(prop, None):
            yield None, [Row(name)]


def run(plan: Plan, *, folder: Path, jobs: int = 1, done: Callable[[UnitResult], None] | None = None) -> Report:
    """Search every unit of a plan in `jobs` processes (1: in this one) and write the run's files into `folder`.

    `done` is called with each unit as it finishes. Raises UsageError before anything runs if a name is unknown or the
    folder cannot be written; KeyboardInterrupt passes through after the workers have ended, results.jsonl complete so
    far.
    """
    units, rows = plan.units(), plan.rows
    began, started = time.perf_counter(), datetime.now(UTC)
    work = Work(subject=plan.subject, profile=plan.profile, corpus=plan.corpus, seed=plan.seed, fault=plan.fault)
    results: dict[tuple[str, str], UnitResult] = {}
    with ResultLines(folder) as lines:
        for _, of_rows in in_jobs(search_unit, work, units, jobs=jobs, lost=undecided_unit):
            for result in of_rows:
                results[result.property_name, result.kind] = result
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
        jobs=max(1, min(jobs, len(units))),
        folder=str(folder),
        started=started.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - began,
        versions=_versions(plan.subject),
        planned=len(rows),
        wanted_strata=plan.wanted_strata,
        most_vacuous=1.0 if plan.fault else plan.profile.most_vacuous,
        left_out=left_out(unsupported_by(find_subject(plan.subject))),
        units=tuple(results[key] for kind, row in rows if (key := (row.property_name, kind + row.place)) in results),
    )
    write_report(report, folder)
    return report


def _versions(subject: str) -> dict[str, str]:
    packages = ("torch", "hypothesis", "tokenizers")
    own = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}
    theirs = versions_of(find_subject(subject))
    return {**own, **{f"{name} of the subject": version for name, version in theirs.items()}}
