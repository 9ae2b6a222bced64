"""A report for machines: every section with its tables as plain values; pictures are left to the page."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from harness.nightly.blocks import Block, Cell, Page, Picture, Table, Witness

SCHEMA_VERSION = 1


def render_json(page: Page) -> str:
    """The report as JSON."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "title": page.title,
        "state": page.state,
        "headline": page.headline,
        "context": page.context,
        "cards": [
            {"label": card.label, "value": card.value, "deltas": [text for text, _ in card.deltas]}
            for card in page.cards
        ],
        "sections": [
            {
                "id": section.id,
                "title": section.title,
                "lead": section.lead,
                "blocks": [_block(block) for block in section.blocks],
            }
            for section in page.sections
        ],
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Table):
        rows = [[_cell(cell) for cell in row] for row in block.rows]
        return {"caption": block.caption, "columns": list(block.columns), "rows": rows, "hidden": block.hidden}
    if isinstance(block, Picture):
        return {"picture": block.name, "says": block.says}
    if isinstance(block, Witness):
        return {"title": block.title, "sentence": block.sentence, "command": block.command}
    return asdict(block)


def _cell(cell: Cell) -> str | float:
    """The number behind a cell where there is one."""
    return cell.text if cell.value is None or not math.isfinite(cell.value) else cell.value
