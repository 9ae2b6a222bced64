"""How near errors come to their bounds: a heat map of the newest night, and what drifts."""

from __future__ import annotations

import math

from harness.nightly.blocks import Block, Cell, Picture, Section, Table
from harness.nightly.findings import Findings
from harness.nightly.sections.durations import rise_table
from harness.nightly.summary import Measured
from harness.nightly.view import View
from harness.nightly.wording import count, share
from harness.verdict import Outcome

_LINES = 5
_MARKS = {Outcome.UNDECIDED: "?", Outcome.VACUOUS: "-"}


def numerics_section(view: View, found: Findings) -> Section | None:
    """Left out where no property was checked."""
    if not view.summary.measured:
        return None
    nearest = max((one for one in view.summary.measured if one.share is not None), key=_share, default=None)
    lead = "All that was checked allows not one bit of difference."
    if nearest is not None:
        lead = f"{nearest.property_name} on {nearest.kind} comes nearest to its bound, at {share(nearest.share)} of it"
        lead += (
            f"; {count(len(found.drifts), 'error')} {'drifts' if len(found.drifts) == 1 else 'drift'}."
            if found.drifts
            else "; none drifts."
        )
    blocks: list[Block] = [_heat(view), *_heat_by_part(view)]
    if found.drifts:
        blocks.append(rise_table("Errors that rise against their bounds", found.drifts, share))
    if len(view.counted) > 1 and nearest is not None:
        names = _lines(view, found)
        blocks.append(Picture(name="drift", says=_says(view, names), draw=lambda: _draw(view, names)))
    return Section(id="numerics", title="Numerics", lead=lead, blocks=blocks, tone="warn" if found.drifts else "")


def _share(one: Measured) -> float:
    value = one.share
    assert value is not None
    return math.inf if math.isnan(value) else value


def _heat(view: View) -> Table:
    """Properties by kinds and ranks."""
    measured = view.summary.measured
    kinds = sorted({one.kind for one in measured}, key=lambda kind: (kind.partition("@")[2], kind))
    cells = {(one.property_name, one.kind): one for one in measured}
    before = {(one.property_name, one.kind): one for one in (view.last.measured if view.last else ())}
    names = list(dict.fromkeys(one.property_name for one in measured))
    return Table(
        caption="Largest error in units of its bound, by property, kind of layer and ranks "
        "(= not one bit differs where none may; @4p: four processes; blank was not asked)",
        columns=("property", *kinds),
        rows=[
            [Cell(name, code=True), *(_cell(cells.get((name, kind)), before.get((name, kind))) for kind in kinds)]
            for name in names
        ],
        grid=True,
    )


def _heat_by_part(view: View) -> list[Block]:
    """What is compared depth by depth: property, dtype and depth by kinds and ranks."""
    measured = [one for one in view.summary.measured if one.parts and one.bound]
    if not measured:
        return []
    kinds = sorted({one.kind for one in measured}, key=lambda kind: (kind.partition("@")[2], kind))
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for one in measured:
        assert one.bound is not None
        for part, error in one.parts.items():
            rows.setdefault((one.property_name, part), {})[one.kind] = error / one.bound
    return [
        Table(
            caption="The same by dtype and depth, where depths are compared apart",
            columns=("property", "dtype, depth", *kinds),
            rows=[
                [Cell(name, code=True), Cell(part), *(_part(shares.get(kind)) for kind in kinds)]
                for (name, part), shares in rows.items()
            ],
            grid=True,
        )
    ]


def _part(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(share(value), tone=_tone(value), value=value)


def _cell(one: Measured | None, before: Measured | None) -> Cell:
    if one is None:
        return Cell("")
    last = "" if before is None else f"; last night {share(before.share)}"
    title = f"{one.outcome.value} on {one.layouts:,} layouts, error {one.error}, bound {one.bound}{last}"
    if one.outcome is Outcome.VIOLATED:
        return Cell("≠" if one.share is None else share(one.share), tone="bad", title=title)
    if one.outcome in _MARKS:
        return Cell(_MARKS[one.outcome], tone="warn" if one.outcome is Outcome.UNDECIDED else "mute", title=title)
    if one.share is None:
        return Cell("=", tone="h0", title=title)
    return Cell(share(one.share), tone=_tone(one.share), value=one.share, title=title)


def _tone(value: float) -> str:
    """A heat of ten steps, one a power of ten below the bound."""
    if value > 1 or math.isnan(value):
        return "bad"
    return "h0" if value == 0 else f"h{min(max(math.floor(10 + math.log10(value)), 0), 9)}"


def _lines(view: View, found: Findings) -> list[str]:
    """What is drawn: what drifts, else what comes nearest to its bound."""
    shares = {f"{one.property_name} on {one.kind}": one for one in view.summary.measured if one.share is not None}
    nearest = sorted(shares, key=lambda name: -_share(shares[name]))
    return list(dict.fromkeys([*(rise.name for rise in found.drifts), *nearest]))[:_LINES]


def _says(view: View, names: list[str]) -> str:
    return f"Error in units of its bound over {count(len(view.counted), 'night')}, for {', '.join(names)}."


def _draw(view: View, names: list[str]) -> str:
    from harness.nightly.output.plots import drift

    lines: dict[str, list[float]] = {name: [] for name in names}
    for number, summary in enumerate(view.nights.summaries):
        row = {f"{one.property_name} on {one.kind}": one.share for one in summary.measured}
        for name in names:
            value = row.get(name) if not view.why_not(number) else None
            lines[name].append(math.nan if value is None else value)
    return drift(days=[summary.day for summary in view.nights.summaries], lines=lines)
