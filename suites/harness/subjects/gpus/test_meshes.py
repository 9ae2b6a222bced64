"""Which meshes are compared on so many GPUs, and packs of real text for them."""

from __future__ import annotations

import pytest

from harness.subjects.gpus.meshes import by_world, meshes, models, named, real_packs, widened
from v4model.parallel.groups import Mesh

FOUR = [Mesh(cp=4), Mesh(dp=4, ep=4), Mesh(cp=4, ep=4), Mesh(pp=2, cp=2, ep=2), Mesh(pp=3)]
EIGHT = [
    Mesh(cp=8),
    Mesh(dp=8, ep=8),
    Mesh(cp=8, ep=8),
    Mesh(pp=2, dp=2, cp=2, ep=2),
    Mesh(pp=3, cp=2, ep=2),
]
TWO = [Mesh(cp=2), Mesh(dp=2, ep=2), Mesh(cp=2, ep=2), Mesh(pp=2)]


@pytest.mark.parametrize(("gpus", "expected"), [(2, TWO), (4, FOUR), (8, EIGHT)])
def test_every_way_of_using_so_many_ranks(gpus: int, expected: list[Mesh]) -> None:
    for config in models().values():
        assert list(meshes(gpus, config)) == expected


def test_ranks_that_stages_do_not_divide_are_left_idle() -> None:
    assert {world: [named(mesh) for mesh in found] for world, found in by_world(EIGHT).items()} == {
        8: ["dp=1 pp=1 cp=8 ep=1", "dp=8 pp=1 cp=1 ep=8", "dp=1 pp=1 cp=8 ep=8", "dp=2 pp=2 cp=2 ep=2"],
        6: ["dp=1 pp=3 cp=2 ep=2"],
    }
    assert [*by_world(FOUR)] == [4, 3]


def test_what_a_model_cannot_be_cut_into_is_left_out() -> None:
    assert meshes(3, widened()) == (Mesh(cp=3), Mesh(pp=2), Mesh(pp=3))


def test_packs_are_ragged_and_enough_for_every_replica() -> None:
    config = models()["tiny"]
    for gpus, number in ((2, 4), (8, 8)):
        packs = real_packs(gpus, config, tokens=256)
        assert len(packs) == number
        assert len({length for pack in packs for length in pack.layout.lengths}) > number
        for pack in packs:
            assert pack.layout.total == 256
            assert int(pack.tokens.max()) < config.vocab_size
            assert pack.supervised.any()
