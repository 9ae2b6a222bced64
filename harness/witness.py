"""What a violated property saw: data first, one sentence second. Imports no torch."""

from __future__ import annotations

import enum
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


class Reading(enum.Enum):
    """How the wrong computation treats a row, compared with the right one."""

    READ = "read"
    MISSED = "missed"
    DIFFERENT = "different"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a part of the model read: one token's row, or the pooled row of a window.

    first and last: the token, twice, or the window's ends; None if they are not in the pack at hand, but in what that
    is compared with.
    """

    first: Place | None
    last: Place | None
    reading: Reading = Reading.READ

    def __str__(self) -> str:
        """As a clause: "reads token 4 (sample 0, position 4)"."""
        if self.reading is Reading.MISSED:
            return f"does not read {self._named()}"
        return f"reads {self._named()}{', which differs' if self.reading is Reading.DIFFERENT else ''}"

    def _named(self) -> str:
        first, last = self.first, self.last
        if first is None or last is None:
            return "a row that is not in this pack"
        if first == last:
            where = "padding" if first.sample < 0 else f"sample {first.sample}, position {first.position}"
            return f"token {first.token} ({where})"
        return f"the pooled row of tokens {first.token} to {last.token} ({_where(first, last)})"

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        first, last = (None if place is None else place.to_json() for place in (self.first, self.last))
        return {"first": first, "last": last, "reading": self.reading.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Row:
        """Read what `to_json` wrote."""
        first, last = (None if data[end] is None else Place.from_json(data[end]) for end in ("first", "last"))
        return Row(first=first, last=last, reading=Reading(data["reading"]))


def _where(first: Place, last: Place) -> str:
    """A window's place in its sample, or what it mixes."""
    if first.sample != last.sample:
        names = ["padding" if place.sample < 0 else f"sample {place.sample}" for place in (first, last)]
        return f"{names[0]} and {names[1]} mixed"
    if first.sample < 0:
        return "padding"
    window, rest = divmod(first.position, last.token - first.token + 1)
    return f"sample {first.sample}, {f'from position {first.position} on' if rest else f'window {window}'}"


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Who read what, where, and how large the effect is.

    depth: 0 for the trunk, k for MTP depth k. query: the token whose result is wrong, None if the finding is about a
    whole tensor. source: the token it read, None if there is no single one. branch: local, pool, picks, router, shift,
    label, loss, gradient, padding, data (how packs are made, before any model) or unknown. layer: the layer's or
    parameter's name if known. at: the token whose row of that layer is the first that is wrong, and row: what it read
    there; None if not recorded. what: the observed effect, a short noun phrase with a verb ("logits moved"). magnitude
    and bound have the same unit.
    """

    property: str
    depth: int = 0
    query: Place | None = None
    source: Place | None = None
    branch: str = "unknown"
    layer: str | None = None
    at: Place | None = None
    row: Row | None = None
    what: str
    magnitude: float
    bound: float
    got: str | None = None
    expected: str | None = None

    def sentence(self) -> str:
        """The witness as one readable sentence."""
        parts = [] if self.branch == "data" else ["in the trunk" if self.depth == 0 else f"at MTP depth {self.depth}"]
        if self.query is not None:
            parts.append(f"query {self.query}")
        if self.source is not None:
            parts.append(f"{'read' if self.query is not None else 'something read'} {self.source}")
        through = self._through()
        if through:
            parts.append(through)
        limit = "no difference is allowed" if self.bound == 0 else f"the bound is {self.bound:.3g}"
        where = f"{' '.join(parts)}: " if parts else ""
        text = f"{self.property}: {where}{self.what}, by {self.magnitude:.3g} where {limit}"
        if self.got is not None:
            text += f"; got {self.got}"
        if self.expected is not None:
            text += f"; expected {self.expected}"
        return text

    def _through(self) -> str:
        branch = "" if self.branch in ("unknown", "data") else f"the {self.branch} branch"
        place = " of ".join(part for part in (branch, self.layer or "") if part)
        if not place:
            return ""
        if self.at is not None and self.source is None:
            return f"first differs in {place}{self._reading()}"
        return f"{'through' if branch else 'in'} {place}{self._reading()}"

    def _reading(self) -> str:
        """What the first wrong row read, as a clause."""
        if self.at is None:
            return ""
        here = "it" if self.at == self.query else f"token {self.at.token}"
        if self.row is None:
            return "" if self.at == self.query else f", at {here}"
        if self.at == self.query and self.source is not None and self.row.first == self.row.last == self.source:
            return ""  # said already
        return f", where {here} {self.row}"

    def to_json(self) -> dict[str, Any]:
        """The witness as plain values."""
        return {
            "property": self.property,
            "depth": self.depth,
            "query": None if self.query is None else self.query.to_json(),
            "source": None if self.source is None else self.source.to_json(),
            "branch": self.branch,
            "layer": self.layer,
            "at": None if self.at is None else self.at.to_json(),
            "row": None if self.row is None else self.row.to_json(),
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
            at=None if data["at"] is None else Place.from_json(data["at"]),
            row=None if data["row"] is None else Row.from_json(data["row"]),
            what=data["what"],
            magnitude=float(data["magnitude"]),
            bound=float(data["bound"]),
            got=data["got"],
            expected=data["expected"],
        )


def _number_out(value: float) -> float | str:
    """JSON has no inf and no nan; `float()` reads these strings back."""
    return value if value == value and abs(value) != float("inf") else str(value)
