"""The matrix on a terminal of 80 columns: a letter a property, a line a row."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase

from harness.matrix.result import ABOUT, ALARM, CAUGHT, FAULT, QUIET, Cell, Matrix, Row

_TITLE_COLUMNS = 42

LEGEND = (
    "# caught by the property that must, + caught by another, . not caught,",
    "! not caught by the property that must, or an alarm, ? undecided",
)


def lines(matrix: Matrix) -> Iterator[str]:
    """The table with its legend, what is not as it should be, and the figures."""
    names = matrix.asked
    letters = dict(zip(names, ascii_lowercase, strict=False))
    yield f"{'':<10}{''.join(letters.values())}"
    for row in matrix.rows:
        marks = "".join(mark(row, name) for name in names)
        title = row.title if len(row.title) <= _TITLE_COLUMNS else f"{row.title[: _TITLE_COLUMNS - 3]}..."
        yield f"{_short(row):<10}{marks}  {title}".rstrip()
    yield ""
    yield from (f"{letter} {name}" for name, letter in letters.items())
    yield from LEGEND
    yield ""
    for row in matrix.rows:
        if row.verdict not in (CAUGHT, QUIET):
            yield from _trouble(row)
    for name in matrix.idle:
        yield f"{name} caught no fault"
    if matrix.absent:
        yield f"not planted here: {', '.join(matrix.absent)} (`--json` has the reasons)"
    if matrix.parity_line:
        yield matrix.parity_line
    yield f"{matrix.headline}, in {matrix.seconds:.0f} s"


def mark(row: Row, name: str) -> str:
    """One character for a property on a row; a space where it was not asked."""
    cell = row.cells.get(name, Cell())
    if cell.violated:
        return "#" if name == row.expected else "+" if row.what == FAULT else "!"
    if name == row.expected:
        return "!"
    if cell.undecided:
        return "?"
    return "." if cell.asked else " "


def _short(row: Row) -> str:
    return row.name if len(row.name) < 10 else f"{row.name[:8]}~"


def _trouble(row: Row) -> Iterator[str]:
    yield f"{row.name}: {ABOUT[row.verdict]} ({row.title})"
    for name, cell in row.cells.items():
        if cell.violated and row.verdict == ALARM:
            yield f"  {cell.sentence}"
            yield f"  harness replay {cell.token} --only {name}"
        elif cell.undecided:
            yield f"  {name}: undecided on {cell.undecided} of {cell.asked}: {cell.reason}"
        elif name == row.expected:
            yield f"  {name} holds on {cell.asked} cases"
