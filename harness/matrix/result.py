"""What the kill matrix found, as values and as JSON. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1

FAULT, REWRITE, HEALTHY = "fault", "rewrite", "healthy"
"""What a row plants: a defect, the same computation written in another way, or nothing."""

CAUGHT, MISSED, INACTIVE, QUIET, ALARM, UNDECIDED = "caught", "missed", "vacuous", "quiet", "alarm", "undecided"
"""Verdicts of rows. A fault is caught if the property that must catch it is violated by it on a case that holds without
it; vacuous if it changed nothing on any case it was asked on. A rewrite and the healthy model are quiet, or an alarm.
"""

ABOUT: Mapping[str, str] = {
    CAUGHT: "caught",
    MISSED: "not caught by the property that must",
    INACTIVE: "it changed nothing, so nothing is proven",
    QUIET: "no alarm",
    ALARM: "an alarm where nothing is wrong",
    UNDECIDED: "could not be decided",
}

LOSS_BOUND = 5e-3
COSINE_BOUND = 0.999


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One property on one row: of `asked` cases that it could decide on, how many it was `violated` on.

    It is asked no more after the first violation, whose replay token and sentence are kept. undecided: how many cases
    it could not decide, and why the first of them.
    """

    asked: int = 0
    violated: int = 0
    undecided: int = 0
    reason: str | None = None
    token: str | None = None
    sentence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Loss parity of a faulty model with the healthy one on the same pack.

    loss: relative difference of the loss. cosine: of the whole output, all logits of the trunk in one vector.
    """

    loss: float
    cosine: float

    @property
    def sees(self) -> bool:
        """Whether the difference is beyond what the field allows."""
        return not (self.loss <= LOSS_BOUND and self.cosine >= COSINE_BOUND)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite or missing number is null."""
        numbers = {"loss": self.loss, "cosine": self.cosine}
        return {name: value if abs(value) < float("inf") else None for name, value in numbers.items()} | {
            "sees": self.sees
        }


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault, one rewrite, or the healthy model, under every property that speaks of it.

    parity: on a pack of the size people train on; parity_here: on the case that caught it. None where the model is not
    what the fault is planted in.
    """

    name: str
    what: str
    title: str
    reference: str = ""
    expected: str | None = None
    verdict: str
    cells: Mapping[str, Cell]
    parity: Parity | None = None
    parity_here: Parity | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        plain = {name: value for name, value in vars(self).items() if name not in ("cells", "parity", "parity_here")}
        cells = {name: vars(cell) for name, cell in self.cells.items()}
        parities = {name: value and value.to_json() for name, value in self._parities.items()}
        return {**plain, "cells": cells, **parities}

    @property
    def _parities(self) -> dict[str, Parity | None]:
        return {"parity": self.parity, "parity_here": self.parity_here}


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All rows of a run. whole: nothing was left out by name, so that a property that caught nothing is a failure.

    absent: rows of the zoo that cannot be planted here, with the reason.
    """

    subject: str
    profile: str
    started: str
    seconds: float
    properties: Sequence[str]
    rows: Sequence[Row]
    whole: bool
    absent: Mapping[str, str] = field(default_factory=dict)

    def of(self, what: str, *verdicts: str) -> list[Row]:
        """Rows of one sort, those with one of the verdicts if any is given."""
        return [row for row in self.rows if row.what == what and (not verdicts or row.verdict in verdicts)]

    @property
    def asked(self) -> list[str]:
        """Properties that were asked of a row."""
        return [name for name in self.properties if any(name in row.cells for row in self.rows)]

    @property
    def idle(self) -> list[str]:
        """Properties that caught no fault, in a whole run."""
        faults = self.of(FAULT)
        return [name for name in self.properties if self.whole and not any(_violated(row, name) for row in faults)]

    @property
    def exit_code(self) -> int:
        """0 all caught and none alarmed; 1 if not; 3 if what should be quiet could not be decided."""
        verdicts = {row.verdict for row in self.rows}
        if self.idle or not verdicts.isdisjoint((MISSED, INACTIVE, ALARM)):
            return 1
        return 3 if UNDECIDED in verdicts else 0

    @property
    def headline(self) -> str:
        """One sentence of figures."""
        faults, alarms = self.of(FAULT), [row for row in self.rows if row.verdict == ALARM]
        parts = [f"{len(self.of(FAULT, CAUGHT))} of {_counted(len(faults), 'fault')} caught"]
        if self.of(HEALTHY) or self.of(REWRITE):
            healthy = "the healthy model" if self.of(HEALTHY) else ""
            rewrites = _counted(len(self.of(REWRITE)), "equivalent rewrite") if self.of(REWRITE) else ""
            parts.append(f"{_counted(len(alarms), 'alarm')} on {' and '.join(filter(None, (healthy, rewrites)))}")
        return ", ".join(parts)

    @property
    def parity_line(self) -> str:
        """How many of the faults loss parity does not see, or "" where it was asked of none."""
        asked = [row for row in self.of(FAULT) if row.parity is not None]
        if not asked:
            return ""
        missed = [row for row in asked if row.parity is not None and not row.parity.sees]
        here = [row for row in asked if row.parity_here is not None and not row.parity_here.sees]
        return (
            f"loss parity (loss within {LOSS_BOUND:g} relative, cosine of the output at least {COSINE_BOUND}) misses "
            f"{len(missed)} of {len(asked)} on a pack of 4,096 tokens, {len(here)} on the small case that catches them"
        )

    def to_json(self) -> dict[str, Any]:
        """The matrix as plain values, with its schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "subject": self.subject,
            "profile": self.profile,
            "started": self.started,
            "seconds": self.seconds,
            "whole": self.whole,
            "headline": self.headline,
            "parity_line": self.parity_line,
            "properties": list(self.properties),
            "idle": self.idle,
            "rows": [row.to_json() for row in self.rows],
            "absent": dict(self.absent),
        }


def merged(rows: Iterable[Row]) -> Row:
    """One row of parts that were asked on different cases: cells are added, the worst verdict stands."""
    parts = list(rows)
    worst = next(
        verdict for verdict in (ALARM, UNDECIDED, parts[0].verdict) if any(part.verdict == verdict for part in parts)
    )
    names = dict.fromkeys(name for part in parts for name in part.cells)
    # A part that was lost says why in its title.
    title = next(part.title for part in parts if part.verdict == worst)
    return Row(
        name=parts[0].name,
        what=parts[0].what,
        title=title,
        verdict=worst,
        cells={name: _added([part.cells[name] for part in parts if name in part.cells]) for name in names},
        seconds=sum(part.seconds for part in parts),
    )


def _added(cells: list[Cell]) -> Cell:
    def first(name: str) -> str | None:
        return next((getattr(cell, name) for cell in cells if getattr(cell, name)), None)

    return Cell(
        asked=sum(cell.asked for cell in cells),
        violated=sum(cell.violated for cell in cells),
        undecided=sum(cell.undecided for cell in cells),
        reason=first("reason"),
        token=first("token"),
        sentence=first("sentence"),
    )


def _violated(row: Row, name: str) -> bool:
    return name in row.cells and row.cells[name].violated > 0


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
