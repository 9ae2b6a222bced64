"""What one property gave on one kind of configuration: a unit of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.verdict import Outcome
from harness.witness import Witness

SCHEMA_VERSION = 2

# What outranks what where several outcomes meet: one violation is a violation, an undecided part leaves the whole
# undecided, and a whole is vacuous only if every part is.
_RANK = (Outcome.VIOLATED, Outcome.UNDECIDED, Outcome.HOLDS, Outcome.VACUOUS)


def strongest(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a whole from those of its parts; of no parts, VACUOUS."""
    present = set(outcomes)
    return next((outcome for outcome in _RANK if outcome in present), Outcome.VACUOUS)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The smallest case found that violates a property, with its witness; `first` is the token it shrank from."""

    token: str
    case: Mapping[str, Any]
    witness: Witness
    first: str
    shrink_cases: int

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {
            "token": self.token,
            "case": dict(self.case),
            "sentence": self.witness.sentence(),
            "witness": self.witness.to_json(),
            "first": self.first,
            "shrink_cases": self.shrink_cases,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """Read what `to_json` wrote; raises KeyError for a missing field."""
        return Finding(
            token=data["token"],
            case=data["case"],
            witness=Witness.from_json(data["witness"]),
            first=data["first"],
            shrink_cases=int(data["shrink_cases"]),
        )


@dataclass(frozen=True, kw_only=True)
class UnitResult:
    """What one property gave on one kind, on its ranks: a row of the run.

    counts: layouts by outcome, shrinking not included. error, bound: of the layout that came nearest to its bound
    (or went furthest past it), None if nothing was measured. parts: the largest error by dtype and depth ("float64,
    MTP 1"), where depths were compared apart. reasons: why layouts were vacuous or undecided, with how many of
    them. undecided: the first undecided case's token. strata: layouts by what they are instances of. findings: one
    an origin (trunk or MTP, branch), the first seen first.
    """

    property_name: str
    kind: str
    outcome: Outcome
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    error: float | None = None
    bound: float | None = None
    seconds: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    undecided: str | None = None
    findings: tuple[Finding, ...] = ()
    strata: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The property, with the ranks it ran on: "cp_matches_one_rank@4p"."""
        _, at, ranks = self.kind.partition("@")
        return f"{self.property_name}{at}{ranks}"

    @property
    def layouts(self) -> int:
        """Layouts that got a verdict."""
        return sum(self.counts.values())

    @property
    def reason(self) -> str:
        """The most frequent reason, with how many layouts had it."""
        if not self.reasons:
            return ""
        text, count = max(self.reasons.items(), key=lambda item: item[1])
        return f"{text} ({count} of {self.layouts} layouts)" if self.layouts else text

    def to_json(self) -> dict[str, Any]:
        """The unit as plain values, one line of results.jsonl."""
        return {
            "schema_version": SCHEMA_VERSION,
            "property": self.property_name,
            "kind": self.kind,
            "outcome": self.outcome.value,
            "layouts": self.layouts,
            "counts": counts_to_json(self.counts),
            "error": number_to_json(self.error),
            "bound": number_to_json(self.bound),
            "parts": {name: number_to_json(error) for name, error in self.parts.items()},
            "seconds": round(self.seconds, 3),
            "reasons": dict(self.reasons),
            "undecided": self.undecided,
            "findings": [finding.to_json() for finding in self.findings],
            "strata": dict(self.strata),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> UnitResult:
        """Read what `to_json` wrote; raises KeyError for a missing field, ValueError for another schema."""
        check_schema(data)
        return UnitResult(
            property_name=data["property"],
            kind=data["kind"],
            outcome=Outcome(data["outcome"]),
            counts={Outcome(name): int(count) for name, count in data["counts"].items()},
            error=number_from_json(data["error"]),
            bound=number_from_json(data["bound"]),
            seconds=float(data["seconds"]),
            reasons=data["reasons"],
            undecided=data["undecided"],
            findings=tuple(Finding.from_json(finding) for finding in data["findings"]),
            strata=data["strata"],
            # Older reports of this version have none.
            parts={name: float(error) for name, error in data.get("parts", {}).items()},
        )


def worst(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[float | None, float | None]:
    """Of (error, bound) pairs the one with the largest error in units of its bound; (None, None) of none."""
    measured = [(error, bound) for error, bound in pairs if error is not None and bound is not None]
    return max(measured, key=_strain, default=(None, None))


def _strain(pair: tuple[float, float]) -> tuple[float, float]:
    error, bound = pair
    if error != error:
        return math.inf, math.inf
    return (error / bound if bound > 0 else math.inf if error > 0 else 0.0), error


def counts_to_json(counts: Mapping[Outcome, int]) -> dict[str, int]:
    """Layouts by outcome, every outcome named."""
    return {outcome.value: counts.get(outcome, 0) for outcome in Outcome}


def number_to_json(value: float | None) -> float | str | None:
    """JSON has no inf and no nan; `float()` reads these strings back."""
    return value if value is None or math.isfinite(value) else str(value)


def number_from_json(value: float | str | None) -> float | None:
    """Read what `number_to_json` wrote."""
    return None if value is None else float(value)


def check_schema(data: Mapping[str, Any]) -> None:
    """Refuse what another version wrote; raises ValueError."""
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"expected schema_version {SCHEMA_VERSION}, got {data['schema_version']}")
