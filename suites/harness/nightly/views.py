"""Views and pages of synthetic nights, and what stands where on a page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.baseline.store import Baseline
from harness.nightly.blocks import Cell, Page, Section, Table
from harness.nightly.nights import no_nights
from harness.nightly.reading import read_nights
from harness.nightly.sections import page_of
from harness.nightly.summary import summarise
from harness.nightly.view import View, view_of


def view(folders: Iterable[Path], *, baseline: Baseline | None = None) -> View:
    """The view of the newest of these nights after the others."""
    made = read_nights(map(str, folders))
    nights = no_nights()
    for night in made:
        nights = nights.plus(summarise(night), night.suites.results if night.suites else {})
    return view_of(made[-1], nights, baseline=baseline)


def page(folders: Iterable[Path], *, baseline: Baseline | None = None) -> Page:
    """Its page."""
    return page_of(view(folders, baseline=baseline))


def section(page: Page, name: str) -> Section:
    """The section of a name."""
    (found,) = [section for section in page.sections if section.id == name]
    return found


def table(section: Section, caption: str) -> Table:
    """The table whose caption begins so."""
    (found,) = [block for block in section.blocks if isinstance(block, Table) and block.caption.startswith(caption)]
    return found


def row(table: Table, name: str) -> list[Cell]:
    """The row that a name begins."""
    (found,) = [list(row) for row in table.rows if row[0].text == name]
    return found
