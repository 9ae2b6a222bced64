"""Mesh: its groups against a definition by coordinates, for meshes of every kind."""

from __future__ import annotations

import pytest

from v4model.errors import ConfigError
from v4model.layers.share import Share
from v4model.parallel.groups import Mesh

MESHES = [
    Mesh(),
    Mesh(cp=4),
    Mesh(pp=3),
    Mesh(cp=2, ep=2),
    Mesh(cp=4, ep=2),
    Mesh(dp=4, ep=2),
    Mesh(dp=2, cp=3, ep=6),
    Mesh(dp=2, cp=3, ep=2),  # expert groups that cut across context groups
    Mesh(cp=2, pp=4),
    Mesh(dp=3, cp=2, ep=3, pp=2),
    Mesh(dp=2, cp=2, ep=4, pp=2),
    Mesh(dp=2, cp=2, ep=1, pp=3),
]
every_mesh = pytest.mark.parametrize("mesh", MESHES, ids=lambda m: f"cp{m.cp}-dp{m.dp}-pp{m.pp}-ep{m.ep}")

Place = dict[str, int]


def places(mesh: Mesh) -> list[Place]:
    """By world rank, where it stands: cp runs fastest, then dp, then pp; experts follow the place in the stage."""
    found = []
    for pp in range(mesh.pp):
        for dp in range(mesh.dp):
            for cp in range(mesh.cp):
                in_stage = dp * mesh.cp + cp
                found.append({"pp": pp, "dp": dp, "cp": cp, "in_stage": in_stage,
                              "expert": in_stage % mesh.ep, "expert_group": in_stage // mesh.ep})  # fmt: skip
    return found


def alike(mesh: Mesh, rank: int, *names: str) -> tuple[int, ...]:
    """World ranks that stand where `rank` does by all of `names`, ascending."""
    at = places(mesh)
    return tuple(other for other in range(len(at)) if all(at[other][name] == at[rank][name] for name in names))


@every_mesh
def test_groups_are_the_ranks_alike_in_all_else(mesh: Mesh) -> None:
    assert mesh.world == len(places(mesh)) == mesh.cp * mesh.dp * mesh.pp
    assert mesh.stage_size == mesh.cp * mesh.dp
    for rank in range(mesh.world):
        assert mesh.cp_group(rank) == alike(mesh, rank, "pp", "dp")
        assert mesh.ep_group(rank) == alike(mesh, rank, "pp", "expert_group")
        assert mesh.stage_group(rank) == alike(mesh, rank, "pp")
        assert mesh.expert_replicas(rank) == alike(mesh, rank, "pp", "expert")


@every_mesh
def test_each_kind_of_group_parts_the_world(mesh: Mesh) -> None:
    for group in (mesh.cp_group, mesh.ep_group, mesh.stage_group, mesh.expert_replicas, mesh.ends_group):
        groups = {group(rank) for rank in range(mesh.world)}
        assert sorted(rank for members in groups for rank in members) == list(range(mesh.world)), group.__name__
        assert all(group(rank) == members for members in groups for rank in members), group.__name__


@every_mesh
def test_a_groups_order_is_that_of_shards_and_of_experts(mesh: Mesh) -> None:
    for rank, place in enumerate(places(mesh)):
        assert mesh.cp_group(rank).index(rank) == place["cp"], "rank i of a context group owns shard i"
        assert mesh.ep_group(rank).index(rank) == place["expert"] == mesh.share(rank).expert_rank
        assert len(mesh.ep_group(rank)) == mesh.ep
        assert len(mesh.ep_group(rank)) * len(mesh.expert_replicas(rank)) == mesh.stage_size


@every_mesh
def test_stages_peers_and_replicas(mesh: Mesh) -> None:
    at = places(mesh)
    for rank, place in enumerate(at):
        assert mesh.stage(rank) == place["pp"]
        assert mesh.replica(rank) == place["dp"]
        assert mesh.share(rank) == Share(
            stage=place["pp"], stages=mesh.pp, expert_rank=place["expert"], expert_ranks=mesh.ep
        )
        for stage in range(mesh.pp):
            assert at[mesh.peer(rank, stage=stage)] == place | {"pp": stage}
        ends = alike(mesh, rank, "in_stage")
        expected = (ends[0], ends[-1]) if place["pp"] in (0, mesh.pp - 1) else (rank,)
        assert mesh.ends_group(rank) == tuple(dict.fromkeys(expected))


@pytest.mark.parametrize(
    ("sizes", "got", "expected"),
    [
        ({"cp": 0}, "cp = 0", "at least 1"),
        ({"dp": -1}, "dp = -1", "at least 1"),
        ({"pp": 0, "cp": 2}, "pp = 0", "at least 1"),
        ({"ep": 0}, "ep = 0", "at least 1"),
        ({"ep": 2}, "ep = 2", "a divisor of dp * cp = 1"),
        ({"cp": 4, "ep": 3}, "ep = 3", "a divisor of dp * cp = 4"),
        ({"cp": 2, "dp": 3, "ep": 4, "pp": 2}, "ep = 4", "a divisor of dp * cp = 6"),
    ],
)
def test_refusals(sizes: dict[str, int], got: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Mesh(**sizes)
    assert (caught.value.got, caught.value.expected, caught.value.where) == (got, expected, "Mesh")


def test_equal_meshes_are_one_key() -> None:
    assert Mesh(cp=2, pp=2) == Mesh(cp=2, pp=2)
    assert hash(Mesh(cp=2, pp=2)) == hash(Mesh(cp=2, pp=2))
