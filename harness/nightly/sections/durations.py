"""How long the tests take: all of them by night, the slowest twenty, and those that take longer and longer."""

from __future__ import annotations

import numpy as np

from harness.nightly.blocks import Block, Cell, Picture, Section, Table
from harness.nightly.findings import Findings
from harness.nightly.trends import Rise
from harness.nightly.view import View
from harness.nightly.wording import count, seconds, signed

SLOWEST = 20
_NOTABLE_S = 0.2
"""A smaller difference is noise whatever its share."""


def durations_section(view: View, found: Findings) -> Section | None:
    """Left out where no test says how long it took."""
    total = float(view.nights.millis[-1].sum()) / 1000
    if not total:
        return None
    lead = f"All tests together take {seconds(total)}"
    if view.before:
        before = float(view.nights.millis[view.before[-1]].sum()) / 1000
        lead += f", {signed(total - before, seconds(abs(total - before)))} since the last night"
    lead += f"; {count(len(found.slower), 'test')} slower and slower." if found.slower else "."
    blocks: list[Block] = []
    if len(view.counted) > 1:
        blocks.append(Picture(name="durations", says=lead, draw=lambda: _draw(view)))
    if found.slower:
        blocks.append(rise_table("Slower and slower", found.slower, seconds))
    blocks.append(_slowest(view))
    return Section(id="durations", title="Durations", lead=lead, blocks=blocks, tone="warn" if found.slower else "")


def rise_table(caption: str, rises: tuple[Rise, ...], show: object) -> Table:
    """Figures that rise: from, to, how many times, how sure."""
    assert callable(show)
    return Table(
        caption=caption,
        columns=("what", "oldest third", "newest third", "times", "nights", "sure (sd)"),
        rows=[
            [
                Cell(rise.name, code=True),
                Cell(show(rise.first), value=rise.first),
                Cell(show(rise.last), tone="warn", value=rise.last),
                Cell("new" if np.isinf(rise.factor) else f"{rise.factor:.2g}x", value=min(rise.factor, 1e300)),
                Cell(str(rise.nights), value=rise.nights),
                Cell(f"{rise.z:.1f}", value=rise.z),
            ]
            for rise in rises[:SLOWEST]
        ],
        hidden=max(len(rises) - SLOWEST, 0),
    )


def _draw(view: View) -> str:
    from harness.nightly.output.plots import duration_trend

    nights = view.nights
    return duration_trend(
        days=[summary.day for summary in nights.summaries],
        left_out={number: "" for number in range(len(nights.summaries)) if view.why_not(number)},
        seconds=nights.millis.sum(axis=1) / 1000,
    )


def _slowest(view: View) -> Table:
    nights = view.nights
    newest = nights.millis[-1].astype(np.float64) / 1000
    last = nights.millis[view.before[-1]].astype(np.float64) / 1000 if view.before else np.zeros_like(newest)
    order = np.argsort(-newest, kind="stable")[:SLOWEST]
    return Table(
        caption=f"Slowest {SLOWEST} tests",
        columns=("test", "takes", "since last night", "usually", "times the usual"),
        rows=[
            _row(nights.tests[test], newest[test], last[test], float(view.usual_millis[test]) / 1000)
            for test in order
            if newest[test]
        ],
    )


def _row(name: str, now: float, last: float, usual: float) -> list[Cell]:
    known = not np.isnan(usual) and usual > 0
    slower = known and now > 1.5 * usual and now - usual > _NOTABLE_S
    change = now - last
    return [
        Cell(name, code=True),
        Cell(seconds(now), value=now),
        Cell(signed(change, seconds(abs(change))), value=change) if last else Cell("new"),
        Cell(seconds(usual), value=usual) if known else Cell("-"),
        Cell(f"{now / usual:.2g}x", tone="warn" if slower else "", value=now / usual) if known else Cell("-"),
    ]
