"""One unit: a property on one kind of configuration, searched and shrunk by Hypothesis."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from harness.case import Case
from harness.engine.decide import describe_error
from harness.engine.profiles import Profile
from harness.report import Finding, UnitResult, strongest, worst
from harness.verdict import Outcome, Verdict

_REASONS_KEPT = 20


class _Violation(Exception):
    """Tells Hypothesis that a case is worth shrinking."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.token())
        self.case = case


@dataclass
class _Tally:
    """What the search has seen so far; mutable, and only here."""

    check: Callable[[Case], Verdict]
    strata: Callable[[Case], frozenset[str]]
    shrink_cases: int
    met: Counter[str] = field(default_factory=Counter)
    counts: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    measured: tuple[float | None, float | None] = (None, None)
    undecided: str | None = None
    first: Case | None = None
    violating: dict[Case, Verdict] = field(default_factory=dict)
    shrunk: int = 0

    def judge(self, case: Case) -> Verdict:
        """Check a case. After the first violation, cases only serve to shrink it, and their number is limited."""
        if self.first is None:
            verdict = self.check(case)
            self._count(case, verdict)
        elif self.shrunk >= self.shrink_cases:
            # Only what is known to violate still does: Hypothesis then finds nothing smaller and stops.
            return self.violating.get(case, Verdict.vacuous("the limit of cases for shrinking is reached"))
        else:
            self.shrunk += 1
            verdict = self.check(case)
        if verdict.outcome is Outcome.VIOLATED:
            self.first = self.first or case
            self.violating[case] = verdict
        return verdict

    def _count(self, case: Case, verdict: Verdict) -> None:
        self.counts[verdict.outcome] += 1
        self.met.update(self.strata(case))
        self.measured = worst([self.measured, (verdict.error, verdict.bound)])
        if verdict.reason and (verdict.reason in self.reasons or len(self.reasons) < _REASONS_KEPT):
            self.reasons[verdict.reason] += 1
        if verdict.outcome is Outcome.UNDECIDED and self.undecided is None:
            self.undecided = case.token()


def search(
    name: str,
    kind: str,
    *,
    cases: st.SearchStrategy[Case],
    check: Callable[[Case], Verdict],
    profile: Profile,
    seed: int | None,
    layouts: int,
    strata: Callable[[Case], frozenset[str]] = lambda _: frozenset(),
) -> UnitResult:
    """Draw cases until one violates the property or there are `layouts` of them; shrink what violates.

    name: the property's. strata: what a case is an instance of, to be counted. seed: None for the profile's own way
    (the same cases every time, or fresh ones). A violation that does not come back when its case is checked again
    leaves the unit UNDECIDED.
    """
    tally = _Tally(check=check, strata=strata, shrink_cases=profile.shrink_cases)
    began = time.perf_counter()
    minimal, trouble = _explore(tally, cases, profile=profile, seed=seed, layouts=layouts, unit=f"{name}/{kind}")
    finding = None
    if minimal is not None and trouble is None:
        finding, trouble = _confirm(tally, minimal)
    if trouble is not None:
        tally.counts[Outcome.VIOLATED] = 0
        tally.counts[Outcome.UNDECIDED] += 1
        tally.reasons = Counter({trouble: tally.counts[Outcome.UNDECIDED]})
        suspect = minimal or tally.first
        tally.undecided = tally.undecided if suspect is None else suspect.token()
    counts = {outcome: tally.counts[outcome] for outcome in Outcome}
    return UnitResult(
        property_name=name,
        kind=kind,
        outcome=strongest(outcome for outcome, count in counts.items() if count),
        counts=counts,
        error=tally.measured[0],
        bound=tally.measured[1],
        seconds=time.perf_counter() - began,
        reasons=dict(tally.reasons),
        strata=dict(sorted(tally.met.items())),
        undecided=tally.undecided,
        finding=finding,
    )


def _explore(
    tally: _Tally, cases: st.SearchStrategy[Case], *, profile: Profile, seed: int | None, layouts: int, unit: str
) -> tuple[Case | None, str | None]:
    """The minimal violating case, if any, and what kept the search from its end, if anything."""

    def probe(case: Case) -> None:
        if tally.judge(case).outcome is Outcome.VIOLATED:
            raise _Violation(case)

    run = hypothesis.given(cases)(_settings(profile, seed=seed, layouts=layouts)(probe))
    if profile.derandomize or seed is not None:
        run = hypothesis.seed(_unit_seed(seed, unit))(run)
    try:
        run()
    except _Violation as found:
        return found.case, None
    except Flaky:
        return None, f"not repeatable: {tally.first.token() if tally.first else 'a case'} was violated once"
    except hypothesis.errors.HypothesisException as error:
        return None, describe_error(error)
    return None, None


def _confirm(tally: _Tally, minimal: Case) -> tuple[Finding | None, str | None]:
    """Check the minimal case once more: what is reported is what a replay will see."""
    again = tally.check(minimal)
    if again.witness is None:
        return None, f"not repeatable: {minimal.token()} was violated, then {again.outcome.value}"
    tally.measured = worst([tally.measured, (again.error, again.bound)])
    return (
        Finding(
            token=minimal.token(),
            case=minimal.to_json(),
            witness=again.witness,
            first=(tally.first or minimal).token(),
            shrink_cases=tally.shrunk,
        ),
        None,
    )


def _settings(profile: Profile, *, seed: int | None, layouts: int) -> hypothesis.settings:
    """Every setting, so that neither Hypothesis's own CI profile nor an environment variable changes a run."""
    return hypothesis.settings(
        max_examples=layouts,
        derandomize=profile.derandomize and seed is None,
        database=None,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        stateful_step_count=1,
        report_multiple_bugs=False,
        suppress_health_check=tuple(HealthCheck),
        deadline=None,
        print_blob=False,
        backend="hypothesis",
    )


def _unit_seed(seed: int | None, unit: str) -> int:
    # Left to itself Hypothesis would seed from the source text of `probe`: one draw for all units, and another one
    # after any edit of it.
    return int.from_bytes(hashlib.sha256(f"{seed}/{unit}".encode()).digest()[:8], "big")
