"""Public models under the same properties: what each violates, in which version, and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.nightly.blocks import Block, Cell, Group, Section, Table, Witness
from harness.nightly.view import View
from harness.nightly.wording import count

_TONES = {"HOLDS": "good", "VIOLATED": "bad", "VACUOUS": "mute", "UNDECIDED": "warn"}
_WITNESSES = 20


def peers_section(view: View) -> Section | None:
    """Left out where no public model was asked."""
    if view.night.peers is None:
        return None
    peers = view.night.peers["peers"]
    asked = [peer for peer in peers if not peer["missing"]]
    names = view.night.peers.get("properties") or sorted({name for peer in peers for name in peer["cells"]})
    blocks: list[Block] = [_table(peers, names)]
    changes = [f"{peer['name']}: {change}" for peer in asked for change in peer["changes"]]
    if changes:
        blocks.append(Group(title="Against the stored verdicts of a version", items=changes))
    blocks += _witnesses(asked)
    return Section(id="peers", title="Public models", lead=_lead(peers, asked, changes), blocks=blocks)


def _lead(peers: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]], changes: Sequence[str]) -> str:
    violating = sum(peer["outcome"] == "VIOLATED" for peer in asked)
    parts = [f"{violating} of {count(len(asked), 'peer')} asked violate a property"]
    if len(asked) < len(peers):
        parts.append(f"{len(peers) - len(asked)} could not be asked")
    parts.append(f"{count(len(changes), 'verdict')} changed against a stored version" if changes else "nothing changed")
    return "; ".join(parts) + ". What a public model violates is no failure of this night."


def _table(peers: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    return Table(
        caption="Verdict of each property on each public model over all kinds of configuration (blank: not asked)",
        columns=("peer", "version", "compared with", *names),
        rows=[_row(peer, names) for peer in peers],
        grid=True,
        left=frozenset({0, 1, 2}),
    )


def _row(peer: Mapping[str, Any], names: Sequence[str]) -> list[Cell]:
    version = f"{peer['package']} {peer['version']}" if peer["version"] else f"{peer['package']}, missing"
    return [
        Cell(peer["name"], code=True, title=str(peer.get("about") or "")),
        Cell(version, tone="warn" if peer["missing"] else "", title=peer["missing"]),
        Cell(peer["baseline"] or "-", tone="" if peer["baseline"] else "mute"),
        *(_cell(peer["cells"].get(name)) for name in names),
    ]


def _cell(cell: Mapping[str, Any] | None) -> Cell:
    if cell is None:
        return Cell("")
    outcome = str(cell["outcome"])
    kinds = [kind for kind, found in (cell.get("kinds") or {}).items() if found == outcome]
    why = cell["witnesses"][0]["sentence"] if cell.get("witnesses") else cell.get("reason") or ""
    title = f"{outcome} on {', '.join(kinds)}{': ' if why else ''}{why}" if kinds else why
    return Cell(outcome.lower(), tone=_TONES.get(outcome, "warn"), title=title)


def _witnesses(asked: Sequence[Mapping[str, Any]]) -> list[Witness]:
    found = [
        Witness(
            title=f"{peer['name']} {peer['version']}: {name}",
            sentence=witness["sentence"],
            command=witness["command"],
        )
        for peer in asked
        for name, cell in peer["cells"].items()
        for witness in cell.get("witnesses") or ()
    ]
    return found[:_WITNESSES]
