"""How the tests ended night by night, and which nights do not count."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from harness.nightly.blocks import Cell, Picture, Section, Table
from harness.nightly.view import View
from harness.nightly.wording import count

_SHOWN = 30


def outcomes_section(view: View) -> Section | None:
    """Left out where no night has tests."""
    if not view.nights.codes.any():
        return None
    left_out = [number for number in range(len(view.nights.summaries)) if view.why_not(number)]
    lead = f"{count(len(view.counted), 'night')} in the trend"
    lead += f"; {len(left_out)} left out: not valid, or of another configuration." if left_out else "."
    picture = Picture(name="outcomes", says=_says(view), draw=lambda: _draw(view))
    return Section(
        id="outcomes",
        title="Outcomes",
        lead=lead,
        blocks=[picture, _table(view)] if len(view.nights.summaries) > 1 else [_table(view)],
    )


def _says(view: View) -> str:
    reds = [int(view.nights.red[number].sum()) for number in view.counted]
    if not reds:
        return "No night counts."
    return (
        f"Red tests in {count(len(reds), 'night')}: {min(reds)} to {max(reds)}, {reds[-1]} in the newest that counts."
    )


def _draw(view: View) -> str:
    from harness.nightly.output.plots import outcome_trend

    nights = view.nights
    return outcome_trend(
        days=[summary.day for summary in nights.summaries],
        left_out={number: view.why_not(number).partition(":")[0] for number in range(len(nights.summaries))
                  if view.why_not(number)},
        red=nights.red.sum(axis=1),
        new=_newly_red(view),
        idle=nights.idle.sum(axis=1),
        tests=(nights.codes > 0).sum(axis=1),
    )  # fmt: skip


def _newly_red(view: View) -> npt.NDArray[np.int64]:
    """[nights] red tests that were not red on the night before that counts."""
    red = view.nights.red
    found = np.zeros(len(red), dtype=np.int64)
    for before, night in pairwise(view.counted):
        found[night] = (red[night] & ~red[before]).sum()
    return found


def _table(view: View) -> Table:
    newest_first = list(range(len(view.nights.summaries)))[::-1]
    return Table(
        caption="Nights, newest first",
        columns=("night", "tests", "red", "skipped", "properties that hold", "faults caught", "commit", "counts"),
        rows=[_row(view, number) for number in newest_first[:_SHOWN]],
        hidden=max(len(newest_first) - _SHOWN, 0),
        left=frozenset({0, 6, 7}),
    )


def _row(view: View, number: int) -> list[Cell]:
    nights, each = view.nights, view.nights.summaries[number]
    red, why = int(nights.red[number].sum()), view.why_not(number)
    outcomes = [outcome.value for outcome in each.properties().values()]
    verdicts = list(each.faults.values())
    return [
        Cell(each.started[:16].replace("T", " ") or each.stamp),
        _number(int((nights.codes[number] > 0).sum())),
        Cell(f"{red:,}", tone="bad" if red and not why else "", value=red),
        _number(int(nights.idle[number].sum())),
        _number(outcomes.count("HOLDS")) if outcomes else Cell("-"),
        _number(verdicts.count("caught")) if verdicts else Cell("-"),
        Cell(each.commit[:12], code=True),
        Cell(why or "yes", tone="warn" if why else ""),
    ]


def _number(value: int) -> Cell:
    return Cell(f"{value:,}", value=value)
