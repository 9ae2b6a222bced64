"""Where the figures come from: commit, versions, device, seed, shards, validity, stages."""

from __future__ import annotations

from harness.nightly.blocks import Block, Cell, Pairs, Section, Table
from harness.nightly.view import View
from harness.nightly.wording import seconds

_STATUS = {"done": "good", "stopped": "warn", "left out": "mute"}


def provenance_section(view: View) -> Section:
    """Always there."""
    facts = view.night.facts
    pairs = [
        ("validity", facts.validity),
        ("commit", view.summary.commit),
        ("started", facts.started),
        ("ended", facts.ended),
        ("device", facts.device),
        ("configuration", facts.key),
        ("seed", facts.seed),
        ("shards", ", ".join(facts.shards)),
        ("budget", "" if facts.budget_s is None else seconds(facts.budget_s)),
        ("versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items())),
        *((run.folder.name, run.report.headline) for run in view.night.runs if run.report is not None),
        ("history", "holds other figures of this night than its folder" if view.differs else ""),
    ]
    blocks: list[Block] = [Pairs(pairs=[(name, value) for name, value in pairs if value])]
    if facts.stages:
        blocks.append(
            Table(
                caption="Stages",
                columns=("stage", "status", "took", "reason", "files"),
                rows=[
                    [
                        Cell(stage.name),
                        Cell(stage.status, tone=_STATUS.get(stage.status, "")),
                        Cell(seconds(stage.seconds), value=stage.seconds),
                        Cell(stage.reason),
                        Cell(", ".join(stage.files), code=True),
                    ]
                    for stage in facts.stages
                ],
                left=frozenset({0, 1, 3, 4}),
            )
        )
    return Section(id="provenance", title="Provenance", lead="Under what all this was found.", blocks=blocks)
