"""The whole matrix: every fault, every rewrite and the healthy model, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from harness.catalogue import properties, unknown
from harness.engine.decide import describe_error
from harness.engine.pool import in_jobs
from harness.engine.unit import Work
from harness.faults.absent import ABSENT
from harness.faults.registry import load_faults
from harness.kinds import KINDS
from harness.matrix import result
from harness.matrix.ask import fault_row, healthy_row, rewrite_row
from harness.matrix.places import Place, places
from harness.matrix.result import Matrix, Row, merged
from harness.rewrites.registry import load_rewrites

HEALTHY = "healthy"

RANKS = (2, 4)
"""Numbers of ranks on which the healthy model is asked what faults of ranks are."""


@dataclass(frozen=True)
class Item:
    """What one process asks at a time: a fault or a rewrite by name, or the healthy model at one place."""

    what: str
    name: str
    place: Place | None = None


def row_names() -> list[str]:
    """The names of all rows in their order: the healthy model, faults, rewrites."""
    return [HEALTHY, *(fault.name for fault in load_faults()), *(rewrite.name for rewrite in load_rewrites())]


def items(only: Sequence[str] = ()) -> list[Item]:
    """The rows of a run, those of ranks first because they take longest; raises UsageError for an unknown name."""
    faults, rewrites, known = load_faults(), load_rewrites(), row_names()
    for name in only:
        if name not in known:
            raise unknown("fault or rewrite", name, known)
    planted = [(result.FAULT, fault) for fault in faults] + [(result.REWRITE, rewrite) for rewrite in rewrites]
    of_ranks = sorted(planted, key=lambda one: not one[1].ranks)
    healthy = [Item(result.HEALTHY, HEALTHY, place) for place in (*places(KINDS, RANKS), *places(KINDS, ()))]
    every = [*healthy, *(Item(what, one.name) for what, one in of_ranks)]
    return [item for item in every if not only or item.name in only]


@dataclass
class Asking:
    """Items that are asked in several processes; `matrix` is what is known so far, also after Ctrl-C.

    whole: nothing is left out by name.
    """

    work: Work
    items: Sequence[Item]
    whole: bool
    rows: dict[Item, Row] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def run(self, *, jobs: int, done: Callable[[], None]) -> None:
        """Ask all; `done` is called after each."""
        for item, row in in_jobs(_row, self.work, self.items, jobs=jobs, lost=_lost):
            self.rows[item] = row
            done()

    def matrix(self) -> Matrix:
        """The rows in the zoo's order, the healthy one first and of all its parts."""
        whole = self.whole and len(self.rows) == len(self.items)
        parts = [self.rows[item] for item in self.items if item.what == result.HEALTHY and item in self.rows]
        by_name = {row.name: row for row in self.rows.values() if row.what != result.HEALTHY}
        found = [by_name[name] for name in row_names() if name in by_name]
        return Matrix(
            subject=self.work.subject,
            profile=self.work.profile.name,
            started=self.started.isoformat(timespec="seconds"),
            seconds=(datetime.now(UTC) - self.started).total_seconds(),
            properties=[prop.name for prop in properties()],
            rows=[*([merged(parts)] if parts else []), *found],
            whole=whole,
            absent=ABSENT if whole else {},
        )


def _row(work: Work, item: Item) -> Row:
    try:
        if item.place is not None:
            return healthy_row(work, item.place)
        return (fault_row if item.what == result.FAULT else rewrite_row)(work, item.name)
    except Exception as error:  # one row's trouble must not cost the others
        return _lost(item, describe_error(error))


def _lost(item: Item, reason: str) -> Row:
    return Row(name=item.name, what=item.what, title=reason, verdict=result.UNDECIDED, cells={})
