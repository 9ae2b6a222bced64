"""The kill matrix: which property catches which planted fault, and how surely a run does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from harness.nightly.blocks import Block, Cell, Section, Table
from harness.nightly.findings import CAUGHT
from harness.nightly.view import View
from harness.nightly.wording import count, listed

_ENOUGH = 0.99
_WEAKEST = 20


def faults_section(view: View) -> Section | None:
    """Left out where no fault was planted and no odds were measured."""
    faults, odds = view.night.faults, view.night.odds
    if faults is None and odds is None:
        return None
    blocks: list[Block] = []
    leads = []
    bad: list[str] = []
    if faults is not None:
        rows = faults["rows"]
        bad = [row["name"] for row in rows if CAUGHT.get(row["verdict"], 1) == 2]
        leads.append(_lead(rows, bad))
        if faults.get("parity_line"):
            leads.append(faults["parity_line"].capitalize())
        blocks.append(_matrix(faults))
        if faults.get("absent"):
            blocks.append(_absent(faults["absent"]))
    if odds is not None:
        weak = [each["fault"] for each in odds["odds"] if each["a_run_at_least"] < _ENOUGH]
        all_odds = count(len(odds["odds"]), "fault")
        leads.append(f"A run catches {len(odds['odds']) - len(weak)} of {all_odds} at {_ENOUGH:.0%} or more")
        blocks.append(_odds(odds["odds"]))
    return Section(
        id="faults", title="Kill matrix", lead=". ".join(leads) + ".", blocks=blocks, tone="bad" if bad else ""
    )


def _lead(rows: list[Mapping[str, Any]], bad: list[str]) -> str:
    verdicts = Counter(row["verdict"] for row in rows)
    planted = sum(row["what"] == "fault" for row in rows)
    lead = f"{verdicts['caught']} of {count(planted, 'fault')} are caught"
    healthy = len(rows) - planted
    if healthy:
        lead += f", {verdicts['quiet']} of {count(healthy, 'harmless change')} raise no alarm"
    return lead + (f"; look at {listed(bad, show=5)}" if bad else "")


_VERDICTS = {0: "good", 1: "warn", 2: "bad"}


def _matrix(faults: Mapping[str, Any]) -> Table:
    names = [name for name in faults["properties"] if any(name in row["cells"] for row in faults["rows"])]
    return Table(
        caption="Layouts that violate a property, of those that were asked, with each fault planted "
        "(framed: the property that is to catch it; blank was not asked)",
        columns=("fault", "title", "verdict", "loss parity sees it", *names),
        rows=[_row(row, names) for row in sorted(faults["rows"], key=lambda row: -CAUGHT.get(row["verdict"], 1))],
        grid=True,
        left=frozenset({0, 1, 2}),
    )


def _row(row: Mapping[str, Any], names: list[str]) -> list[Cell]:
    parity = row.get("parity")
    sees = Cell("")
    if parity:
        title = f"loss differs by {parity['loss']}, cosine of the output {parity['cosine']}"
        sees = Cell("yes" if parity["sees"] else "no", tone="" if parity["sees"] else "mute", title=title)
    verdict = row["verdict"]
    return [
        Cell(row["name"], code=True),
        Cell(row["title"], title=str(row.get("reference") or "")),
        Cell(verdict, tone=_VERDICTS[CAUGHT.get(verdict, 1)], value=CAUGHT.get(verdict, 1)),
        sees,
        *(_cell(row["cells"].get(name), expected=name == row["expected"]) for name in names),
    ]


def _cell(cell: Mapping[str, Any] | None, *, expected: bool) -> Cell:
    frame = " framed" if expected else ""
    if not cell or not cell["asked"]:
        return Cell("", tone=frame.strip())
    asked, violated, undecided = cell["asked"], cell["violated"], cell["undecided"]
    title = f"{violated} of {asked} violated, {undecided} undecided"
    title += f": {cell['sentence']}" if cell.get("sentence") else ""
    if violated:
        heat = 3 + round(6 * violated / asked)
        return Cell(f"{violated}/{asked}", tone=f"h{heat}{frame}", value=violated / asked, title=title)
    return Cell("?" if undecided else "·", tone=f"mute{frame}", value=0, title=title)


def _absent(absent: Mapping[str, str]) -> Table:
    return Table(
        caption="Faults that were not planted",
        columns=("fault", "reason"),
        rows=[[Cell(name, code=True), Cell(reason)] for name, reason in absent.items()],
        left=frozenset({0, 1}),
    )


def _odds(odds: list[Mapping[str, Any]]) -> Table:
    weakest = sorted(odds, key=lambda each: each["a_run_at_least"])
    return Table(
        caption="How surely a run catches a fault, the least sure first",
        columns=("fault", "caught by", "caught", "a layout", "a run, at least"),
        rows=[
            [
                Cell(each["fault"], code=True),
                Cell(each["property"], code=True),
                Cell(f"{each['caught']}/{each['cases']}", value=each["caught"]),
                Cell(f"{each['a_layout']:.3f}", value=each["a_layout"]),
                # Rounded down: a chance is never told as certain.
                Cell(
                    f"{min(int(each['a_run_at_least'] * 1e5), 99_999) / 1e3:.3f}%",
                    tone="bad" if each["a_run_at_least"] < _ENOUGH else "",
                    value=each["a_run_at_least"],
                ),
            ]
            for each in weakest[:_WEAKEST]
        ],
        hidden=max(len(weakest) - _WEAKEST, 0),
        left=frozenset({0, 1}),
    )
