"""What was violated in the newest night: a sentence, a command and a picture each."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from harness.nightly.blocks import Group, Section, Witness
from harness.nightly.findings import picture_beside
from harness.nightly.view import View
from harness.nightly.wording import count
from harness.report import case_file_name

_SHOWN = 12
_PICTURE_BYTES = 1_000_000
"""All pictures together; the page has to stay one that opens at once."""


def witnesses_section(view: View) -> Section | None:
    """Left out where no property was checked."""
    if not view.summary.measured:
        return None
    found = list(_witnesses(view))
    lead = "No property was violated."
    if found:
        lead = f"{count(len(found), 'violation')}, each shown by the smallest case that was found of its origin."
    rest = [witness.sentence for witness in found[_SHOWN:]]
    blocks: list[Witness | Group] = [*found[:_SHOWN]]
    if rest:
        blocks.append(Group(title=f"{len(rest)} more", items=rest[:_SHOWN], hidden=max(len(rest) - _SHOWN, 0)))
    return Section(id="witnesses", title="Witnesses", lead=lead, blocks=blocks, tone="bad" if found else "")


def _witnesses(view: View) -> Iterator[Witness]:
    room = _PICTURE_BYTES
    for run, unit in view.night.units():
        for number, finding in enumerate(unit.findings):
            picture = _picture(picture_beside(run.folder / case_file_name(unit, number)), room)
            room -= len(picture)
            command = "" if run.report is None else _command(run.report.replay_commands(unit), number)
            yield Witness(
                title=f"{unit.property_name} on {unit.kind}",
                sentence=finding.witness.sentence(),
                command=command or f"harness replay {finding.token} --only {unit.property_name}",
                picture=picture,
            )


def _command(commands: tuple[str, ...], number: int) -> str:
    """The same case explained; a picture says more than the verdict again."""
    return commands[number].replace("harness replay", "harness explain", 1) if number < len(commands) else ""


def _picture(path: Path, room: int) -> str:
    """A data URI; empty if there is no picture or no room. As an image, nothing in it can run or ask the network."""
    if not path.is_file() or path.stat().st_size * 4 // 3 > room:
        return ""
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
