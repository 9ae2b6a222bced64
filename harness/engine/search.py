"""One unit: rows asked of the same drawn cases, and what violates made smaller."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import strategies as st

from harness.case import Case
from harness.engine.draw import Draw
from harness.engine.profiles import Profile
from harness.engine.reduce import reduced
from harness.engine.row import Row, Unit
from harness.report import Finding, UnitResult, strongest, worst
from harness.verdict import Outcome, Verdict
from harness.witness import Witness

Judge: TypeAlias = Callable[[Case, Sequence[Row]], Sequence[tuple[Verdict, float]]]
"""The verdict of each row on a drawn case, and the seconds it took."""

_REASONS_KEPT = 20
_VIOLATIONS_ENOUGH = 5
"""Violating layouts after which a row is asked no more: defects of other origins have had their chance."""


@dataclass
class _Tally:
    """What one row has seen so far; mutable, and only here."""

    row: Row
    counts: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    measured: tuple[float | None, float | None] = (None, None)
    parts: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    suspect: str | None = None
    known: dict[Case, Verdict] = field(default_factory=dict)
    firsts: dict[tuple[bool, str], Case] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.counts[Outcome.VIOLATED] < _VIOLATIONS_ENOUGH

    def count(self, case: Case, verdict: Verdict, *, seconds: float) -> None:
        self.known[case] = verdict
        self.counts[verdict.outcome] += 1
        self.seconds += seconds
        self.measured = worst([self.measured, (verdict.error, verdict.bound)])
        for depth, error in enumerate(verdict.by_depth):
            part = f"{case.dtype}, {f'MTP {depth}' if depth else 'trunk'}"
            self.parts[part] = max(self.parts.get(part, 0.0), error)
        if verdict.reason and (verdict.reason in self.reasons or len(self.reasons) < _REASONS_KEPT):
            self.reasons[verdict.reason] += 1
        if verdict.witness is not None:
            self.firsts.setdefault(_origin(verdict.witness), case)
        if verdict.outcome is Outcome.UNDECIDED and self.suspect is None:
            self.suspect = case.token()

    def trouble(self, reason: str, case: Case | None) -> None:
        """The search itself failed: what it found is worth nothing, and the row is undecided."""
        self.counts[Outcome.VIOLATED] = 0
        self.counts[Outcome.UNDECIDED] += 1
        self.reasons = Counter({reason: self.counts[Outcome.UNDECIDED]})
        self.suspect = self.suspect if case is None else case.token()
        self.findings = []

    def result(self, kind: str) -> UnitResult:
        counts = {outcome: self.counts[outcome] for outcome in Outcome}
        return UnitResult(
            property_name=self.row.property_name,
            kind=kind + self.row.place,
            outcome=strongest(outcome for outcome, count in counts.items() if count),
            counts=counts,
            error=self.measured[0],
            bound=self.measured[1],
            parts=dict(sorted(self.parts.items())),
            seconds=self.seconds,
            reasons=dict(self.reasons),
            strata=dict(sorted(self.met.items())),
            undecided=self.suspect,
            findings=tuple(self.findings),
        )


class _EnoughError(Exception):
    """No more cases may be spent."""


def _origin(witness: Witness) -> tuple[bool, str]:
    """What tells one defect from another: trunk or MTP, and the branch."""
    return witness.depth > 0, witness.branch


def search(
    unit: Unit,
    *,
    cases: st.SearchStrategy[Case],
    judge: Judge,
    profile: Profile,
    seed: int | None,
    layouts: int,
    strata: Callable[[Case], frozenset[str]] = lambda _: frozenset(),
) -> tuple[UnitResult, ...]:
    """Ask every row of the unit about `layouts` drawn cases; then shrink what violates, each origin apart.

    strata: what a case is an instance of, to be counted. seed: None for the profile's own way (the same cases every
    time, or fresh ones). A row with some violations is asked no more, the others go on. A violation that does not come
    back when its case is checked again leaves its row UNDECIDED.
    """
    if seed is None and not profile.derandomize:
        seed = secrets.randbits(63)
    tallies = {row: _Tally(row) for row in unit.rows}
    # Rows on the same ranks see the same instances; the first counts them.
    counting = {row.place: row for row in reversed(unit.rows)}

    def probe(case: Case) -> None:
        rows = [row for row, tally in tallies.items() if tally.is_open]
        for row, (verdict, seconds) in zip(rows, judge(case, rows) if rows else (), strict=True):
            placed = row.at(case)
            tallies[row].count(placed, verdict, seconds=seconds)
            if counting[row.place] is row:
                tallies[row].met.update(strata(placed))

    trouble = Draw(unit, cases, layouts=layouts, seed=seed).run(probe)
    for tally in tallies.values():
        if trouble is not None:
            tally.trouble(trouble, None)
            continue
        for origin, first in list(tally.firsts.items()):
            found = _shrunk(tally, origin, judge=judge, limit=profile.shrink_cases)
            finding, reason = _confirmed(tally, judge, first, *found)
            if finding is None:
                tally.trouble(reason, first)
                break
            tally.findings.append(finding)
    return tuple(tally.result(unit.kind) for tally in tallies.values())


def _shrunk(tally: _Tally, origin: tuple[bool, str], *, judge: Judge, limit: int) -> tuple[Case, int]:
    """The smallest case of one origin, and how many cases beyond those drawn that took."""
    row, spent, smallest = tally.row, 0, tally.firsts[origin]

    def violates(case: Case) -> bool:
        nonlocal spent, smallest
        if case not in tally.known:
            if spent == limit:
                raise _EnoughError
            spent += 1
            ((tally.known[case], seconds),) = judge(case, [row])
            tally.seconds += seconds
        witness = tally.known[case].witness
        if witness is None or _origin(witness) != origin:
            return False
        smallest = case
        return True

    with suppress(_EnoughError):
        reduced(smallest, violates)
    return smallest, spent


def _confirmed(tally: _Tally, judge: Judge, first: Case, minimal: Case, spent: int) -> tuple[Finding | None, str]:
    """Check the minimal case once more: what is reported is what a replay will see."""
    ((again, seconds),) = judge(minimal, [tally.row])
    tally.seconds += seconds
    if again.witness is None:
        return None, f"not repeatable: {minimal.token()} was violated, then {again.outcome.value}"
    tally.measured = worst([tally.measured, (again.error, again.bound)])
    return (
        Finding(
            token=minimal.token(),
            case=minimal.to_json(),
            witness=again.witness,
            first=first.token(),
            shrink_cases=spent,
        ),
        "",
    )
