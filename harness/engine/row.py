"""Rows of a run's table, and the units that check several of them on the same layouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.case import Case


@dataclass(frozen=True)
class Row:
    """A property, and the context-parallel ranks that it is asked on: in one process, or on gloo processes."""

    property_name: str
    ranks: int | None = None
    processes: bool = False

    @property
    def place(self) -> str:
        """The ranks as replay tokens write them: "@4p", or nothing."""
        return "" if self.ranks is None else f"@{self.ranks}{'p' if self.processes else ''}"

    def at(self, case: Case) -> Case:
        """A drawn case on the row's ranks."""
        return replace(case, ranks=self.ranks, processes=self.processes)


@dataclass(frozen=True)
class Unit:
    """What one process searches at a time: rows that are asked of the same layouts of one named configuration.

    Rows of one unit share what they all need: the subject, and its run on one rank. layouts: how many to draw, None for
    the profile's cases_per_kind.
    """

    kind: str
    rows: tuple[Row, ...]
    layouts: int | None = None

    @property
    def label(self) -> str:
        """Properties, configuration and ranks: "cp_matches_one_rank+no_rank_waits-all@1@2@4"."""
        names = "+".join(dict.fromkeys(row.property_name for row in self.rows))
        return f"{names}-{self.kind}{''.join(dict.fromkeys(row.place for row in self.rows))}"

    @property
    def most_ranks(self) -> int | None:
        """The largest number of ranks among the rows, for which layouts are drawn."""
        return max((row.ranks for row in self.rows if row.ranks is not None), default=None)
