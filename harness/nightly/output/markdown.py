"""A report as Markdown for a step summary, within GitHub's bound; what comes from tests stands in code spans."""

from __future__ import annotations

from collections.abc import Iterator

from harness.baseline.output.markdown import code
from harness.nightly.blocks import Block, Cell, Group, Page, Pairs, Picture, Section, Table, Witness

MOST_BYTES = 1_000_000
"""GitHub drops a step summary above 1 MiB whole."""
_ROWS = 50
_MARKUP = frozenset("\\`*_[]<>#@|&~")
_MARKS = {"passed": "Passed", "failed": "Failed", "undecided": "Undecided"}


def render_markdown(page: Page) -> str:
    """The report within MOST_BYTES; longer tables are shown shorter until it fits."""
    rows = _ROWS
    while True:
        text = "\n".join(_document(page, rows)) + "\n"
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES or rows == 0:
            return text
        rows //= 2


def _document(page: Page, rows: int) -> Iterator[str]:
    yield f"## {_MARKS[page.state]}: {_text(page.headline)}"
    yield ""
    yield code(page.context)
    yield ""
    if page.cards:
        yield "| figure | value | differs by |"
        yield "|---|---:|---|"
        yield from (
            f"| {card.label} | {card.value} | {', '.join(text for text, _ in card.deltas)} |" for card in page.cards
        )
    for section in page.sections:
        yield from _section(section, rows)


def _section(section: Section, rows: int) -> Iterator[str]:
    yield ""
    yield f"### {section.title}"
    yield ""
    yield _text(section.lead)
    for block in section.blocks:
        yield ""
        yield from _block(block, rows)


def _block(block: Block, rows: int) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block, rows)
    elif isinstance(block, Picture):
        yield _text(block.says)
    elif isinstance(block, Witness):
        yield f"- {code(block.sentence)}"
        yield f"  - {code(block.command)}"
    elif isinstance(block, Group):
        yield f"- {code(block.title)}"
        yield from (f"  - {code(item)}" for item in (block.detail, *block.items) if item)
        if block.hidden:
            yield f"  - and {block.hidden:,} more"
    elif isinstance(block, Pairs):
        yield from (f"- {name}: {code(value)}" for name, value in block.pairs)


def _table(table: Table, rows: int) -> Iterator[str]:
    shown = table.rows[:rows]
    yield f"<details><summary>{_escaped(table.caption)}</summary>"
    yield ""
    yield "| " + " | ".join(_escaped(name) for name in table.columns) + " |"
    yield "|" + "".join("---|" if n in table.left else "---:|" for n in range(len(table.columns)))
    for row in shown:
        yield "| " + " | ".join(_cell(cell) for cell in row) + " |"
    hidden = table.hidden + len(table.rows) - len(shown)
    if hidden:
        yield ""
        yield f"and {hidden:,} more"
    yield ""
    yield "</details>"


def _cell(cell: Cell) -> str:
    """A table ends a cell at every bar, even inside a code span."""
    if not cell.text:
        return ""
    return code(cell.text).replace("|", "\\|") if cell.code else _escaped(cell.text)


def _text(text: str) -> str:
    """A sentence of ours, which may name what others wrote."""
    return _escaped(text) if text.isascii() and not set(text) & set("<>@#`*_[]") else code(text)


def _escaped(text: str) -> str:
    """Text whose marks mean nothing; as hexadecimal entities, which hold no `#1`."""
    return "".join(f"&#x{ord(mark):X};" if mark in _MARKUP else mark for mark in text)
