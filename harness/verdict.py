"""What one check of one property on one case concludes. Imports no torch."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.witness import Witness


class Outcome(enum.Enum):
    """The four answers. An empty check is VACUOUS, a broken one UNDECIDED; neither ever counts as a pass."""

    HOLDS = "HOLDS"
    VIOLATED = "VIOLATED"
    VACUOUS = "VACUOUS"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class Verdict:
    """An outcome with what supports it.

    error is the largest error seen and bound the largest allowed, in the same unit; both None when nothing was
    measured. reason explains VACUOUS and UNDECIDED. by_depth: the largest error of the trunk and of each MTP depth,
    where they were compared apart.
    """

    outcome: Outcome
    error: float | None = None
    bound: float | None = None
    witness: Witness | None = None
    reason: str = ""
    by_depth: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.VIOLATED) != (self.witness is not None):
            raise ValueError(
                f"got {self.outcome.value} with witness {self.witness}; expected a witness exactly when "
                "VIOLATED; where: Verdict"
            )
        measured = self.error is not None and self.bound is not None
        if self.outcome in (Outcome.HOLDS, Outcome.VIOLATED) and not measured:
            raise ValueError(f"got {self.outcome.value} without error and bound; expected both; where: Verdict")
        if self.outcome in (Outcome.VACUOUS, Outcome.UNDECIDED) and not self.reason:
            raise ValueError(f"got {self.outcome.value} without a reason; expected one; where: Verdict")

    @staticmethod
    def holds(*, error: float, bound: float, by_depth: tuple[float, ...] = ()) -> Verdict:
        """The property was put to the test and held."""
        return Verdict(Outcome.HOLDS, error=error, bound=bound, by_depth=by_depth)

    @staticmethod
    def violated(witness: Witness, *, error: float | None = None, bound: float | None = None) -> Verdict:
        """The property is false, and the witness shows it; error and bound default to the witness's own."""
        return Verdict(
            Outcome.VIOLATED,
            error=witness.magnitude if error is None else error,
            bound=witness.bound if bound is None else bound,
            witness=witness,
        )

    @staticmethod
    def vacuous(reason: str) -> Verdict:
        """The case has nothing that the property could have caught."""
        return Verdict(Outcome.VACUOUS, reason=reason)

    @staticmethod
    def undecided(reason: str) -> Verdict:
        """The check could not be carried out."""
        return Verdict(Outcome.UNDECIDED, reason=reason)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "outcome": self.outcome.value,
            "error": _number_out(self.error),
            "bound": _number_out(self.bound),
            "witness": None if self.witness is None else self.witness.to_json(),
            "reason": self.reason,
            "by_depth": list(self.by_depth),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Verdict:
        """Read what `to_json` wrote."""
        return Verdict(
            Outcome(data["outcome"]),
            error=None if data["error"] is None else float(data["error"]),
            bound=None if data["bound"] is None else float(data["bound"]),
            witness=None if data["witness"] is None else Witness.from_json(data["witness"]),
            reason=data["reason"],
            by_depth=tuple(data["by_depth"]),
        )


def _number_out(value: float | None) -> float | str | None:
    """JSON has no inf and no nan; `float()` reads these strings back."""
    if value is None or (value == value and abs(value) != float("inf")):
        return value
    return str(value)
