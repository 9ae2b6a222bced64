"""The table of public models on a terminal: a letter a property, a line a peer, then what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase

from harness.peers.result import PeerRow, PeerTable
from harness.verdict import Outcome

_MARKS = {Outcome.HOLDS: ".", Outcome.VIOLATED: "#", Outcome.VACUOUS: "-", Outcome.UNDECIDED: "?"}

LEGEND = ". holds, # violated, ? undecided, - vacuous"


def lines(table: PeerTable) -> Iterator[str]:
    """The table with its legend, the smallest witness of each violated cell, and why others are undecided."""
    letters = dict(zip(table.properties, ascii_lowercase, strict=False))
    width = max((len(row.name) for row in table.rows), default=4) + 2
    yield f"{'':<{width}}{''.join(letters.values())}  {'version':<10}"
    for row in table.rows:
        marks = "".join(mark(row, name) for name in table.properties)
        yield f"{row.name:<{width}}{marks}  {row.version or 'missing':<10}{row.about}"
    yield ""
    yield from (f"{letter} {name}" for name, letter in letters.items())
    yield LEGEND
    for row in table.rows:
        yield from _details(row)
    asked = [row for row in table.rows if not row.missing]
    clean = sum(row.outcome is not Outcome.VIOLATED for row in asked)
    yield ""
    yield (
        f"{clean} of {len(asked)} peers asked violate nothing, in {table.seconds:.0f} s "
        f"({table.cpu_seconds:.0f} s of processor time, {table.jobs} at a time)"
    )


def mark(row: PeerRow, name: str) -> str:
    """One character for a property of a peer; a question mark where it was not asked."""
    cell = row.cells.get(name)
    return "?" if cell is None else _MARKS[cell.outcome]


def _details(row: PeerRow) -> Iterator[str]:
    told = [f"  {change}" for change in row.changes]
    for name, cell in row.cells.items():
        if cell.witnesses:
            kinds = ", ".join(kind for kind, outcome in cell.kinds.items() if outcome == Outcome.VIOLATED.value)
            told.append(f"  {name} is VIOLATED on {kinds}")
            told += [line for each in cell.witnesses for line in (f"    {each.sentence}", f"      {each.command}")]
        elif cell.outcome in (Outcome.UNDECIDED, Outcome.VACUOUS):
            told.append(f"  {name} is {cell.outcome.value}: {cell.reason}")
    if row.missing:
        told.append(f"  UNDECIDED: {row.missing}")
    if told:
        against = f", against its baseline of {row.baseline}" if row.baseline else ", without a baseline"
        yield ""
        yield f"{row.name}, {row.package} {row.version or '(missing)'}{'' if row.missing else against}"
        yield from told
