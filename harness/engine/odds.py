"""How likely the search is to catch a fault: from one layout, and so from one run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

from harness.case import Case
from harness.catalogue import find_fault, find_property, find_subject
from harness.engine.decide import decide
from harness.engine.draw import Draw
from harness.engine.pool import in_jobs
from harness.engine.row import Row, Unit
from harness.engine.unit import Work, cases_of
from harness.faults.registry import Fault
from harness.properties.locate import witnesses_are_brief
from harness.verdict import Outcome

RUN_SIZES = (1, 2, 4)
"""Numbers of ranks of the run whose odds are told, for faults of ranks."""

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Odds:
    """Of `cases` layouts drawn as the profile draws them, `caught` violated the property that is to catch the fault.

    layouts: how many layouts a run of the profile asks of that property, on the kinds that the fault shows on.
    trouble: why a case was undecided, of the first that was, "" if none.
    """

    fault: str
    property_name: str
    cases: int
    caught: int
    layouts: int
    trouble: str = ""

    @property
    def a_layout(self) -> float:
        """Share of layouts that catch the fault."""
        return self.caught / self.cases if self.cases else 0.0

    @property
    def at_least(self) -> float:
        """Lower end of the exact (Clopper-Pearson) one-sided interval of `CONFIDENCE` for `a_layout`."""
        if not self.cases:
            return 0.0
        test = binomtest(self.caught, self.cases, alternative="greater")
        return float(test.proportion_ci(confidence_level=CONFIDENCE, method="exact").low)

    @property
    def a_run(self) -> float:
        """Chance that a run catches the fault, with `at_least` for every layout.

        Kinds that catch it more or less often only raise it: their shares are mixed as the run mixes the kinds.
        """
        return float(1 - (1 - self.at_least) ** self.layouts)

    def to_json(self) -> dict[str, Any]:
        """The odds as plain values."""
        return {
            "fault": self.fault,
            "property": self.property_name,
            "cases": self.cases,
            "caught": self.caught,
            "a_layout": self.a_layout,
            "a_layout_at_least": self.at_least,
            "layouts_a_run": self.layouts,
            "a_run_at_least": self.a_run,
            "trouble": self.trouble,
        }


def odds(
    names: list[str], work: Work, *, cases: int, jobs: int, done: Callable[[Odds], None] | None = None
) -> list[Odds]:
    """The odds of each named fault from at least `cases` layouts over its kinds and ranks, in `jobs` processes."""
    measure = functools.partial(_odds_of, cases)
    found = {}
    for name, result in in_jobs(measure, work, names, jobs=jobs, lost=_lost):
        found[name] = result
        if done is not None:
            done(result)
    return [found[name] for name in names]


def _odds_of(cases: int, work: Work, name: str) -> Odds:
    fault = find_fault(name)
    prop, factory = find_property(fault.expected), find_subject(work.subject)
    asked = caught = 0
    trouble = ""
    for case in _drawn(work, fault, cases=cases):
        with witnesses_are_brief():
            verdict = decide(prop, factory, case, work.corpus, fault=fault)
        asked += 1
        caught += verdict.outcome is Outcome.VIOLATED
        if verdict.outcome is Outcome.UNDECIDED:
            trouble = trouble or f"{case.token()}: {verdict.reason}"
    return Odds(
        fault=name,
        property_name=fault.expected,
        cases=asked,
        caught=caught,
        # A layout on two numbers of ranks is counted once: what one misses, the other is likely to miss.
        layouts=len(fault.kinds) * (work.profile.ranked_per_kind if fault.ranks else work.profile.cases_per_kind),
        trouble=trouble,
    )


def _lost(name: str, reason: str) -> Odds:
    return Odds(fault=name, property_name=find_fault(name).expected, cases=0, caught=0, layouts=0, trouble=reason)


def _drawn(work: Work, fault: Fault, *, cases: int) -> Iterator[Case]:
    """At least `cases` cases as the profile draws them, the kinds in turn, and the fault's ranks that a run has."""
    prop = find_property(fault.expected)
    rows = tuple(Row(fault.expected, ranks) for ranks in fault.ranks if ranks in RUN_SIZES) or (Row(fault.expected),)
    for kind in fault.kinds:
        unit = Unit(kind, rows)
        found: list[Case] = []
        draw = Draw(unit, cases_of(work, unit, (prop,)), layouts=-(-cases // len(fault.kinds)), seed=work.seed)
        draw.run(found.append)
        for number, case in enumerate(found):
            yield rows[number % len(rows)].at(case)
