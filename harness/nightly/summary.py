"""What the history keeps of a night besides its tests: enough for every trend, and nothing that only details need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.baseline.outcomes import RED
from harness.nightly.night import VALID, Night
from harness.report import UnitResult, strongest
from harness.report.units import number_from_json, number_to_json
from harness.verdict import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A property on one kind of configuration and one number of ranks ("csa@4"), with its largest error.

    parts: the same by dtype and depth ("float64, MTP 1"), where depths were compared apart.
    """

    property_name: str
    kind: str
    outcome: Outcome
    layouts: int
    error: float | None
    bound: float | None
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Error in units of its bound; None where nothing was measured, or where not one bit may differ."""
        if self.error is None or not self.bound:
            return None
        return self.error / self.bound


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One night for the trends. reasons: why red tests are red. faults: the verdict of every row of the kill matrix;
    planted: which of them are faults. peers: of each public model that was asked its version, and the outcome of each
    property.
    """

    stamp: str
    started: str
    seconds: float
    commit: str
    key: str
    validity: str
    reasons: Mapping[str, str]
    measured: tuple[Measured, ...]
    strata: Mapping[str, int]
    wanted_strata: int
    unmet_strata: tuple[str, ...]
    faults: Mapping[str, str]
    planted: tuple[str, ...]
    bench: Mapping[str, Any]
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_valid(self) -> bool:
        """Whether the night counts in trends."""
        return self.validity == VALID

    @property
    def day(self) -> str:
        """The day on which it began, as `11-30`."""
        return self.started[5:10] or self.stamp

    def properties(self) -> dict[str, Outcome]:
        """The outcome of each property over its kinds, by its name with the ranks."""
        groups: dict[str, list[Outcome]] = {}
        for one in self.measured:
            at = one.kind.partition("@")
            groups.setdefault(one.property_name + at[1] + at[2], []).append(one.outcome)
        return {name: strongest(outcomes) for name, outcomes in groups.items()}

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        # Nights from before there were peers, and nights without any, are told in the same words.
        peers = {"peers": {name: dict(peer) for name, peer in self.peers.items()}} if self.peers else {}
        return {
            **peers,
            "stamp": self.stamp,
            "started": self.started,
            "seconds": self.seconds,
            "commit": self.commit,
            "key": self.key,
            "validity": self.validity,
            "reasons": dict(self.reasons),
            "measured": [
                [
                    one.property_name,
                    one.kind,
                    one.outcome.value,
                    one.layouts,
                    number_to_json(one.error),
                    number_to_json(one.bound),
                    {name: number_to_json(error) for name, error in one.parts.items()},
                ]
                for one in self.measured
            ],
            "strata": dict(self.strata),
            "wanted_strata": self.wanted_strata,
            "unmet_strata": list(self.unmet_strata),
            "faults": dict(self.faults),
            "planted": list(self.planted),
            "bench": dict(self.bench),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Summary:
        """Read what `to_json` wrote."""
        plain = {name: value for name, value in data.items() if name not in ("measured", "unmet_strata", "planted")}
        return Summary(
            **plain,
            measured=tuple(
                Measured(
                    property_name=name,
                    kind=kind,
                    outcome=Outcome(outcome),
                    layouts=layouts,
                    error=number_from_json(error),
                    bound=number_from_json(bound),
                    parts={part: float(of_part) for part, of_part in parts.items()},
                )
                for name, kind, outcome, layouts, error, bound, parts in data["measured"]
            ),
            unmet_strata=tuple(data["unmet_strata"]),
            planted=tuple(data["planted"]),
        )


def summarise(night: Night) -> Summary:
    """The summary of a night."""
    facts = night.facts
    strata: Counter[str] = Counter()
    unmet: set[str] = set()
    wanted: set[str] = set()
    for run in night.runs:
        for unit in run.units:
            strata.update(unit.strata)
        wanted |= set(run.report.wanted_strata if run.report else ())
        unmet |= set(run.report.unmet_strata if run.report else ())
    results = night.suites.results.values() if night.suites else ()
    return Summary(
        stamp=facts.stamp,
        started=facts.started,
        seconds=round(sum(stage.seconds for stage in facts.stages), 1),
        commit=facts.commit + ("-dirty" if facts.dirty and not facts.commit.endswith("-dirty") else ""),
        key=facts.key,
        validity=facts.validity,
        reasons={result.id: result.reason for result in results if result.outcome in RED},
        measured=tuple(_measured(unit) for _, unit in night.units()),
        strata=dict(strata),
        wanted_strata=len(wanted),
        unmet_strata=tuple(sorted(name for name in unmet if not strata[name])),
        faults={row["name"]: row["verdict"] for row in (night.faults or {}).get("rows", ())},
        planted=tuple(row["name"] for row in (night.faults or {}).get("rows", ()) if row["what"] == "fault"),
        peers={
            peer["name"]: {
                "version": peer["version"],
                "outcomes": {name: cell["outcome"] for name, cell in peer["cells"].items()},
            }
            for peer in (night.peers or {}).get("peers", ())
            if not peer["missing"]
        },
        bench={name: (night.bench or {}).get(name, []) for name in ("ladder", "steps")},
    )


def _measured(unit: UnitResult) -> Measured:
    return Measured(
        property_name=unit.property_name,
        kind=unit.kind,
        outcome=unit.outcome,
        layouts=unit.layouts,
        error=unit.error,
        bound=unit.bound,
        parts=unit.parts,
    )
