"""What is not as on the last night, by name, and what differs from the baseline."""

from __future__ import annotations

from harness.baseline.output.wording import headline as diff_headline
from harness.nightly.blocks import Block, Cell, Group, Section, Table
from harness.nightly.findings import Changed, Findings
from harness.nightly.view import View
from harness.nightly.wording import count

_SHOWN = 30
_TONES = {2: "bad", 1: "warn", 0: "mute", -1: "good"}


def changes_section(view: View, found: Findings) -> Section:
    """Regressions first."""
    rows = [_row(changed) for changed in found.changes[:_SHOWN]]
    blocks: list[Block] = []
    if rows:
        blocks.append(
            Table(
                caption="Changes since the last night",
                columns=("name", "what", "change", "detail"),
                rows=rows,
                hidden=len(found.changes) - len(rows),
                left=frozenset({0, 1, 2, 3}),
            )
        )
    if found.diff is not None:
        blocks.append(_baseline(found))
    return Section(
        id="changes",
        title="What changed",
        lead=_lead(view, found),
        blocks=blocks,
        tone="bad" if found.regressions else "",
    )


def _lead(view: View, found: Findings) -> str:
    if view.last is None:
        return "There is no earlier night of this configuration to compare with."
    since = f"since the night of {view.last.started[:10]}"
    if not found.changes:
        return f"Nothing changed {since}."
    better = sum(changed.weight < 0 for changed in found.changes)
    other = len(found.changes) - better - found.regressions
    parts = [count(found.regressions, "regression")]
    parts += [f"{better:,} for the better"] * bool(better) + [count(other, "other change")] * bool(other)
    return f"{', '.join(parts)} {since}."


def _row(changed: Changed) -> list[Cell]:
    return [
        Cell(changed.name, code=True),
        Cell(changed.what),
        Cell(changed.change.partition(":")[0], tone=_TONES[changed.weight], title=changed.change),
        Cell(changed.detail, code=True),
    ]


def _baseline(found: Findings) -> Group:
    diff = found.diff
    assert diff is not None
    gated = [f"{entry.id}: {entry.change.word}" for entry in diff.gated]
    return Group(
        title=f"Against the baseline: {diff_headline(diff)}",
        detail=f"{diff.baseline.source} {diff.baseline.date}".strip(),
        items=gated[:10],
        hidden=max(len(gated) - 10, 0),
    )
