"""An explanation as lines for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from harness.properties.measure import tokens_of
from harness.subjects.record import block_of, depth_of, names_pooled_rows

if TYPE_CHECKING:
    from torch import Tensor

    from harness.explain.explanation import Explanation
    from harness.properties.parting import Comparison

WIDTH = 80


def lines(explanation: Explanation) -> Iterator[str]:
    """Verdicts, the sentence of the witness, and layer by layer which rows are wrong."""
    for name, verdict in explanation.verdicts:
        detail = f": {verdict.reason}" if verdict.reason else ""
        yield from _wrapped(f"{verdict.outcome.value:<9} {name}{detail}", indent="  ")
    if explanation.witness is None:
        told = f"Nothing to explain: {explanation.summary}. The map shows what each sample depends on."
        yield from _wrapped(told, indent="")
    else:
        yield from textwrap.wrap(explanation.witness.sentence(), WIDTH, initial_indent="  ", subsequent_indent="  ")
    if explanation.comparison is not None:
        yield from ("", "Two runs compared, in the order of execution:")
        yield from steps(explanation.comparison)
    if explanation.no_map:
        yield from _wrapped(f"No map: {explanation.no_map}", indent="  ")


def steps(comparison: Comparison) -> Iterator[str]:
    """A line a block, and for the first block with wrong rows a line a table."""
    first = next(comparison.wrong_names(), None)
    shown = list(comparison.names)
    width = max((len(name) for name in shown if first and block_of(name) == block_of(first)), default=8)
    for block, names in groupby(shown, key=block_of):
        if first is not None and block == block_of(first):
            for name in names:
                mark = "  <- first" if name == first else ""
                yield f"  {name:<{width}}  {_rows(comparison, name, room=WIDTH - width - 4 - len(mark))}{mark}"
        else:
            wrong = sum(bool(comparison.wrong(name).any()) for name in names)
            yield f"  {block:<{width}}  {f'{wrong} parts wrong behind it' if wrong else 'agrees'}"


def _rows(comparison: Comparison, name: str, *, room: int) -> str:
    moved = comparison.moved(name)
    if names_pooled_rows(name):
        return f"{int(moved.sum())} of {len(moved)} pooled rows moved" if bool(moved.any()) else "agrees"
    wrong, asked = comparison.wrong(name), comparison.agree(depth_of(name))
    if not bool(wrong.any()):
        others = int((moved & comparison.layout.real).sum())
        return f"agrees; {others} {'row' if others == 1 else 'rows'} moved that may" if others else "agrees"
    text = f"{int(wrong.sum())} of {int(asked.sum())} wrong: tokens"
    return textwrap.shorten(f"{text} {_spans(wrong)}", room, placeholder=" ...")


def _spans(rows: Tensor) -> str:
    """ "4-7, 9"."""
    spans: list[list[int]] = []
    for token in tokens_of(rows).tolist():
        if spans and spans[-1][-1] == token - 1:
            spans[-1] = [spans[-1][0], token]
        else:
            spans.append([token])
    return ", ".join("-".join(map(str, span)) for span in spans)


def _wrapped(text: str, *, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent)
