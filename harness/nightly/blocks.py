"""What a report consists of, in values that a page, Markdown and JSON all tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. tone: good, bad, warn, mute, hole or h0 to h9 (a heat). value: what it is sorted by, if not its text.

    title: a longer text for whoever asks. code: a name that may be broken anywhere.
    """

    text: str
    tone: str = ""
    value: float | None = None
    title: str = ""
    code: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; the first cell of a row names it. hidden: rows left out. grid: narrow cells, headings upright.

    left: numbers of columns whose cells are words. end: the end of a row matters more than its beginning.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    hidden: int = 0
    grid: bool = False
    left: frozenset[int] = frozenset({0})
    end: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A plot: `draw` gives it as SVG, `says` in words for whoever does not see it."""

    name: str
    says: str
    draw: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Witness:
    """A violation: its sentence, the command that shows it again, and its picture as a data URI if there is one."""

    title: str
    sentence: str
    command: str
    picture: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Things that share a cause: its name, and the first of them."""

    title: str
    items: Sequence[str]
    hidden: int = 0
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Names with values."""

    pairs: Sequence[tuple[str, str]]


Block: TypeAlias = Table | Picture | Witness | Group | Pairs


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under its own heading; lead is what it says in one sentence."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]
    tone: str = ""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A figure at the top with how it differs, as (text, tone)."""

    label: str
    value: str
    tone: str
    deltas: Sequence[tuple[str, str]]
    link: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report. state: passed, failed or undecided."""

    title: str
    state: str
    headline: str
    context: str
    cards: Sequence[Card]
    sections: Sequence[Section]
