"""What a violated property saw: data first, one sentence second. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """One token of a pack: the sample it belongs to, its position there, its index in the pack.

    Padding belongs to no sample: `sample` is then -1 and `position` has no meaning.
    """

    sample: int
    position: int
    token: int

    def __str__(self) -> str:
        if self.sample < 0:
            return f"padding (token {self.token})"
        return f"sample {self.sample}, position {self.position} (token {self.token})"

    def to_json(self) -> dict[str, int]:
        """The place as plain numbers."""
        return {"sample": self.sample, "position": self.position, "token": self.token}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Place:
        """Read what `to_json` wrote."""
        return Place(int(data["sample"]), int(data["position"]), int(data["token"]))


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Who read what, where, and how large the effect is.

    depth: 0 for the trunk, k for MTP depth k. query: the token whose result is wrong, None if the finding is about a
    whole tensor. source: the token it read, None if there is no single one. branch: local, pool, picks, router, label,
    loss, gradient, padding or unknown. layer: the layer's or parameter's name if known. what: the observed effect, a
    short noun phrase with a verb ("logits moved"). magnitude and bound have the same unit.
    """

    property: str
    depth: int = 0
    query: Place | None = None
    source: Place | None = None
    branch: str = "unknown"
    layer: str | None = None
    what: str
    magnitude: float
    bound: float
    got: str | None = None
    expected: str | None = None

    def sentence(self) -> str:
        """The witness as one readable sentence."""
        parts = ["in the trunk" if self.depth == 0 else f"at MTP depth {self.depth}"]
        if self.query is not None:
            parts.append(f"query {self.query}")
        if self.source is not None:
            parts.append(f"{'read' if self.query is not None else 'something read'} {self.source}")
        through = self._through()
        if through:
            parts.append(through)
        limit = "no difference is allowed" if self.bound == 0 else f"the bound is {self.bound:.3g}"
        text = f"{self.property}: {' '.join(parts)}: {self.what}, by {self.magnitude:.3g} where {limit}"
        if self.got is not None:
            text += f"; got {self.got}"
        if self.expected is not None:
            text += f"; expected {self.expected}"
        return text

    def _through(self) -> str:
        branch = "" if self.branch == "unknown" else f"the {self.branch} branch"
        if branch and self.layer is not None:
            return f"through {branch} of {self.layer}"
        if branch:
            return f"through {branch}"
        return f"in {self.layer}" if self.layer is not None else ""

    def to_json(self) -> dict[str, Any]:
        """The witness as plain values."""
        return {
            "property": self.property,
            "depth": self.depth,
            "query": None if self.query is None else self.query.to_json(),
            "source": None if self.source is None else self.source.to_json(),
            "branch": self.branch,
            "layer": self.layer,
            "what": self.what,
            "magnitude": _number_out(self.magnitude),
            "bound": _number_out(self.bound),
            "got": self.got,
            "expected": self.expected,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Witness:
        """Read what `to_json` wrote; raises KeyError for a missing field."""
        return Witness(
            property=data["property"],
            depth=int(data["depth"]),
            query=None if data["query"] is None else Place.from_json(data["query"]),
            source=None if data["source"] is None else Place.from_json(data["source"]),
            branch=data["branch"],
            layer=data["layer"],
            what=data["what"],
            magnitude=float(data["magnitude"]),
            bound=float(data["bound"]),
            got=data["got"],
            expected=data["expected"],
        )


def _number_out(value: float) -> float | str:
    """JSON has no inf and no nan; `float()` reads these strings back."""
    return value if value == value and abs(value) != float("inf") else str(value)
