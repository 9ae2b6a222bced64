"""Asks every property of one fault, of one rewrite, or of the healthy model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.case import Case
from harness.catalogue import find_fault, find_subject
from harness.engine.decide import Planted, decide, decide_together, on_ranks
from harness.engine.unit import Work
from harness.faults.activity import changed_by
from harness.faults.registry import Fault
from harness.matrix import result
from harness.matrix.parity import Output
from harness.matrix.places import Place, in_turn, places, trained_cases
from harness.matrix.result import Cell, Parity, Row
from harness.properties.locate import witnesses_are_brief
from harness.rewrites.registry import Ran, Rewrite, load_rewrites
from harness.strata import every_stratum_of
from harness.verdict import Outcome, Verdict
from v4model.exchange import RankError

if TYPE_CHECKING:
    from harness.properties import LooksAt, Property
    from harness.subjects.protocol import Subject

ENOUGH = 3
"""Cases that a property decides on before it is said not to catch a fault that another one has to catch."""

ENOUGH_OF_HEALTHY = 4
"""At each place: a kind, on each number of ranks."""

_TRIES = 3
"""Cases tried for one that a property can decide on."""


@dataclass
class _Tally:
    prop: Property
    enough: int | None
    """Decided cases to ask, None for all there are."""
    tried: int = 0
    verdicts: list[tuple[Case, Verdict]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        if any(verdict.outcome is Outcome.VIOLATED for _, verdict in self.verdicts):
            return False
        return self.enough is None or (len(self.verdicts) < self.enough and self.tried < _TRIES * self.enough)

    def add(self, case: Case, verdict: Verdict) -> None:
        self.tried += 1
        if verdict.outcome is not Outcome.VACUOUS:
            self.verdicts.append((case, verdict))

    @property
    def violation(self) -> Case | None:
        return next((case for case, verdict in self.verdicts if verdict.outcome is Outcome.VIOLATED), None)

    def cell(self) -> Cell:
        undecided = [verdict for _, verdict in self.verdicts if verdict.outcome is Outcome.UNDECIDED]
        found = self.violation
        sentences = [verdict.witness.sentence() for _, verdict in self.verdicts if verdict.witness is not None]
        return Cell(
            asked=len(self.verdicts),
            violated=int(found is not None),
            undecided=len(undecided),
            reason=undecided[0].reason if undecided else None,
            token=None if found is None else found.token(),
            sentence=sentences[0] if sentences else None,
        )


def fault_row(work: Work, name: str) -> Row:
    """A fault under every property that looks at what it is planted in, where it shows.

    The property that must catch it is asked until it does or the profile's cases are over; the others a few times. A
    violation counts only if the same case holds without the fault.
    """
    began, fault = time.perf_counter(), find_fault(name)
    where = places(fault.kinds, fault.ranks)
    looks_at = next(prop.looks_at for prop in where[0].properties() if prop.name == fault.expected)
    tallies = _asked(
        work,
        where,
        planted=fault,
        looks_at=looks_at,
        enough=lambda prop: None if prop.name == fault.expected else ENOUGH,
        shows=lambda case: fault.can_show(every_stratum_of(case, case.pack(work.corpus))),
    )
    caught = tallies[fault.expected].violation
    alarmed = [tally for tally in tallies.values() if tally.violation is not None and not _holds(work, tally)]
    if alarmed:
        verdict = result.ALARM
    elif caught is not None:
        verdict = result.CAUGHT
    else:
        verdict = result.MISSED if _is_active(work, fault, tallies) else result.INACTIVE
    small = caught or next((case for tally in tallies.values() for case, _ in tally.verdicts), None)
    return Row(
        name=name,
        what=result.FAULT,
        title=fault.title,
        reference=fault.reference,
        expected=fault.expected,
        verdict=verdict,
        cells={prop: tally.cell() for prop, tally in tallies.items()},
        parity=_on_trained_packs(work, fault, where[0]) if looks_at == "model" else None,
        parity_here=_parity(work, fault, small) if looks_at == "model" and small else None,
        seconds=time.perf_counter() - began,
    )


def rewrite_row(work: Work, name: str) -> Row:
    """A rewrite of the model under every property that looks at that: it has to run and to be left alone."""
    began = time.perf_counter()
    rewrite = next(each for each in load_rewrites() if each.name == name)
    counted = _Counted(rewrite)
    where = places(rewrite.kinds, rewrite.ranks)
    tallies = _asked(work, where, planted=counted, looks_at="model", enough=lambda _: ENOUGH)
    verdict = _quiet_or_not(tallies)
    if verdict == result.QUIET and not counted.calls:
        verdict = result.INACTIVE
    return Row(
        name=name,
        what=result.REWRITE,
        title=rewrite.title,
        verdict=verdict,
        cells={prop: tally.cell() for prop, tally in tallies.items()},
        seconds=time.perf_counter() - began,
    )


def healthy_row(work: Work, place: Place) -> Row:
    """The model as it is, at one place, under every property."""
    began = time.perf_counter()
    tallies = _asked(work, [place], planted=None, enough=lambda _: ENOUGH_OF_HEALTHY)
    return Row(
        name="healthy",
        what=result.HEALTHY,
        title="the model as it is",
        verdict=_quiet_or_not(tallies),
        cells={prop: tally.cell() for prop, tally in tallies.items()},
        seconds=time.perf_counter() - began,
    )


def _asked(
    work: Work,
    where: list[Place],
    *,
    planted: Planted | None,
    looks_at: LooksAt | None = None,
    enough: Callable[[Property], int | None],
    shows: Callable[[Case], bool] = lambda _: True,
) -> dict[str, _Tally]:
    of_place = {place: [prop for prop in place.properties() if looks_at in (None, prop.looks_at)] for place in where}
    tallies = {prop.name: _Tally(prop, enough(prop)) for props in of_place.values() for prop in props}
    factory = find_subject(work.subject)
    for place, case in in_turn(work, where):
        if not any(tally.is_open for tally in tallies.values()):
            break
        asked = [prop for prop in of_place[place] if tallies[prop.name].is_open]
        if not asked or not shows(case):
            continue
        with witnesses_are_brief():
            verdicts = decide_together([(prop, case) for prop in asked], factory, work.corpus, fault=planted)
        for prop, (verdict, _) in zip(asked, verdicts, strict=True):
            tallies[prop.name].add(case, verdict)
    return tallies


def _holds(work: Work, tally: _Tally) -> bool:
    """Whether the case that violates a property holds without anything planted."""
    assert tally.violation is not None
    verdict = decide(tally.prop, find_subject(work.subject), tally.violation, work.corpus, fault=None)
    return verdict.outcome is Outcome.HOLDS


def _is_active(work: Work, fault: Fault, tallies: dict[str, _Tally]) -> bool:
    cases = dict.fromkeys(case for tally in tallies.values() for case, _ in tally.verdicts)
    return any(changed_by(fault, _subject(work, case), case.pack(work.corpus)) for case in list(cases)[:ENOUGH])


def _on_trained_packs(work: Work, fault: Fault, place: Place) -> Parity:
    """The first parity that sees it on the packs that people train on, else the one that comes nearest."""
    found: list[Parity] = []
    for case in trained_cases(place, work.corpus):
        found.append(_parity(work, fault, case))
        if found[-1].sees:
            return found[-1]
    return max(found, key=lambda parity: parity.loss)


def _parity(work: Work, fault: Fault, case: Case) -> Parity:
    healthy = _healthy(work, case)
    try:
        with fault.apply(subject := _subject(work, case)):
            faulty = Output.of(subject, case.pack(work.corpus))
    except RankError:
        return Parity(loss=math.inf, cosine=0.0)
    return healthy.parity(faulty)


@lru_cache(maxsize=24)
def _healthy(work: Work, case: Case) -> Output:
    # Kept over the faults: the packs that people train on are the same for all of them.
    return Output.of(_subject(work, case), case.pack(work.corpus))


def _subject(work: Work, case: Case) -> Subject:
    return on_ranks(find_subject(work.subject)(case.v4config(), case.torch_dtype(), case.seed), case)


def _quiet_or_not(tallies: dict[str, _Tally]) -> str:
    verdicts = [verdict.outcome for tally in tallies.values() for _, verdict in tally.verdicts]
    if Outcome.VIOLATED in verdicts:
        return result.ALARM
    return result.UNDECIDED if Outcome.UNDECIDED in verdicts else result.QUIET


@dataclass
class _Counted:
    """A rewrite that adds up how often it ran, over all the times that it was planted."""

    rewrite: Rewrite
    planted: list[Ran] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.rewrite.name

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.rewrite.ranks

    @property
    def calls(self) -> int:
        return sum(ran.calls for ran in self.planted)

    @contextmanager
    def apply(self, subject: Subject) -> Iterator[None]:
        with self.rewrite.apply(subject) as ran:
            self.planted.append(ran)
            yield
