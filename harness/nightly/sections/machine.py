"""What was measured of the machine: memory by window, and times of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.nightly.blocks import Block, Cell, Picture, Section, Table
from harness.nightly.view import View
from harness.nightly.wording import signed, size


def machine_section(view: View) -> Section | None:
    """Left out where nothing was measured."""
    ladder, steps = view.summary.bench.get("ladder", []), view.summary.bench.get("steps", [])
    if not ladder and not steps:
        return None
    leads, blocks = [], list[Block]()
    if ladder:
        most = max(ladder, key=lambda rung: rung["window"])
        leads.append(f"A window of {most['window']:,} tokens takes {size(most['peak_bytes'])}")
        blocks += [
            Picture(name="ladder", says=leads[-1], draw=lambda: _draw(ladder)),
            Table(
                caption="Memory by window",
                columns=("window (tokens)", "peak", "predicted", "peak / predicted"),
                rows=[_rung(rung) for rung in ladder],
            ),
        ]
    if steps:
        blocks.append(_steps(view, steps))
        slowest = max(steps, key=lambda step: step["window"])
        leads.append(f"A step of {slowest['window']:,} tokens takes {slowest['median_ms']:.3g} ms")
    return Section(id="machine", title="Memory and steps", lead=". ".join(leads) + ".", blocks=blocks)


def _draw(ladder: list[Mapping[str, Any]]) -> str:
    from harness.nightly.output.plots import memory_ladder

    return memory_ladder(ladder)


def _rung(rung: Mapping[str, Any]) -> list[Cell]:
    peak, predicted = rung["peak_bytes"], rung["predicted_bytes"]
    return [
        Cell(f"{rung['window']:,}", value=rung["window"]),
        Cell(size(peak), value=peak),
        Cell(size(predicted) if predicted else "-", value=predicted),
        Cell(f"{peak / predicted:.2f}" if predicted else "-", value=peak / predicted if predicted else None),
    ]


def _steps(view: View, steps: list[Mapping[str, Any]]) -> Table:
    before = {
        step["window"]: step["median_ms"]
        for number in view.before
        for step in view.nights.summaries[number].bench.get("steps", [])
    }
    rows = []
    for step in steps:
        window, median, spread = step["window"], step["median_ms"], step["spread_ms"]
        change = median - before[window] if window in before else None
        slower = change is not None and change > max(spread or 0, 0.1 * median)
        rows.append(
            [
                Cell(f"{window:,}", value=window),
                Cell(f"{median:.4g} ms", value=median),
                Cell("-" if spread is None else f"{spread:.3g} ms", value=spread),
                Cell("-")
                if change is None
                else Cell(signed(change, f"{abs(change):.3g} ms"), tone="warn" if slower else "", value=change),
            ]
        )
    return Table(
        caption="Time of a step", columns=("window (tokens)", "median", "spread", "since last measured"), rows=rows
    )
