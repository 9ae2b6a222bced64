"""Ranks that serve many meshes keep one process group for the same ranks: each has threads of its own."""

from __future__ import annotations

from harness.subjects.rank_pool import pool_of
from v4model.parallel.groups import Mesh
from v4model.parallel.processes import ProcessWire, join

MESHES = (Mesh(cp=2), Mesh(cp=2, ep=2), Mesh(dp=2, ep=2), Mesh(pp=2))


def _names_of_groups(meshes: tuple[Mesh, ...]) -> list[tuple[str, str]]:
    """Of the groups that this rank exchanges tokens and experts in, a mesh after the other."""
    found = []
    for mesh in meshes:
        ranks = join(mesh).ranks
        wires = [exchange.wire for exchange in (ranks.cp, ranks.ep)]
        cp, ep = (wire.group.group_name for wire in wires if isinstance(wire, ProcessWire))
        found.append((cp, ep))
    return found


def test_the_same_ranks_are_one_group_in_every_mesh() -> None:
    for answer in pool_of(2).call(_names_of_groups, [(MESHES,)] * 2):
        both, alone = answer[0]
        assert both != alone
        assert answer == [(both, alone), (both, both), (alone, both), (alone, alone)]
