"""Recomputed blocks: the same bits of every loss and gradient, on one rank, context ranks, expert ranks and stages."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from suites.v4model.parallel.ranks import CONFIG, PACKS, Step, on_mesh, on_one_rank, part_of, whole_model
from suites.v4model.support import gradients
from v4model import V4Config, V4Model
from v4model.exchange import RankError
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.model.model import StageOutput
from v4model.ops import blocks
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step

STEP = Step([[PACKS["slots"], PACKS["no window"]]])


@pytest.fixture(autouse=True)
def _several_blocks_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", 16)


def recomputing(model: V4Model, *, within: bool = True) -> V4Model:
    """The same weights in a model that recomputes."""
    again = V4Model(model.config, dtype=model.dtype, share=model.share, recompute=True, recompute_within=within)
    again.load_state_dict(model.state_dict())
    return again


def losses(out: StageOutput) -> dict[str, Tensor]:
    """Everything of an output that is a loss or a hidden state."""
    return {name: value for name, value in vars(out).items() if isinstance(value, Tensor) and name != "logits"} | {
        f"counts {name}": counts for name, counts in out.router_counts.items()
    }


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize(
    "config", [CONFIG, replace(CONFIG, fixed_shape_experts=False)], ids=["fixed shapes", "own tokens"]
)
def test_one_rank(config: V4Config) -> None:
    whole = whole_model(config)
    (kept,), kept_grads = on_one_rank(whole, STEP)
    (again,), again_grads = on_one_rank(recomputing(whole), STEP)
    for one, other in zip(kept, again, strict=True):
        assert_same_bits(losses(one), losses(other))
        for depth, other_depth in zip(one.mtp, other.mtp, strict=True):
            assert torch.equal(depth.hidden, other_depth.hidden)
    assert_same_bits(kept_grads, again_grads)


def test_blocks_as_a_whole() -> None:
    whole = whole_model(CONFIG)
    (kept,), kept_grads = on_one_rank(whole, STEP)
    (again,), again_grads = on_one_rank(recomputing(whole, within=False), STEP)
    for one, other in zip(kept, again, strict=True):
        assert_same_bits(losses(one), losses(other))
    assert_same_bits(kept_grads, again_grads)


@pytest.mark.parametrize("mesh", [Mesh(cp=2), Mesh(cp=2, ep=2, pp=2)], ids=lambda m: f"{m.cp}{m.ep}{m.pp}")
def test_ranks(mesh: Mesh) -> None:
    kept, kept_grads = on_mesh(whole_model(), STEP, mesh)
    models = [recomputing(part_of(whole_model(), mesh.share(rank))) for rank in range(mesh.world)]
    world = InProcessWorld(mesh)

    def work(member: Member) -> list[StageOutput]:
        model = models[member.rank]
        return run_step(model, STEP.packs[0], ranks=member.ranks, pipe=member.pipe, counts=STEP.counts, logits=True)

    again = world.run(work)
    for rank in range(mesh.world):
        for one, other in zip(kept[rank], again[rank], strict=True):
            assert_same_bits(losses(one), losses(other))
        assert_same_bits(kept_grads[rank], gradients(models[rank]))


def test_the_exchanges_of_every_block_happen_again() -> None:
    sent = []
    for recompute in (False, True):
        model, world = whole_model(), InProcessWorld(Mesh(cp=2))
        model = recomputing(model) if recompute else model
        world.run(lambda member, model=model: model(PACKS["slots"], ranks=member.ranks).loss.backward())
        sent.append(sum((member.ranks.cp.sent_bytes for member in world.members), Counter[str]()))
    kept, again = sent
    # Forward and backward of a halo are of a size, as are those of pooled rows; a total is not sent again backward.
    assert again["left_halo"] == pytest.approx(1.5 * kept["left_halo"])
    assert again["all_rows"] == pytest.approx(1.5 * kept["all_rows"])
    assert again["right_halo"] == kept["right_halo"]


def test_a_rank_that_does_not_recompute_is_told() -> None:
    models = [recomputing(whole_model()), whole_model()]
    with pytest.raises(RankError, match=r"asks for .*, where rank|waits in"):
        InProcessWorld(Mesh(cp=2)).run(
            lambda member: models[member.rank](PACKS["slots"], ranks=member.ranks).loss.backward()
        )


def test_intermediate_values_are_dropped() -> None:
    """What autograd keeps between the forward and the backward pass: the blocks' inputs, and the loss heads."""
    kept = {}
    for recompute in (False, True):
        model = recomputing(whole_model()) if recompute else whole_model()
        seen: dict[int, int] = {}

        def note(tensor: Tensor, seen: dict[int, int] = seen) -> Tensor:
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            out = model(PACKS["ragged"])
        assert out.loss.requires_grad
        parameters = {parameter.data_ptr() for parameter in model.parameters()}
        kept[recompute] = sum(size for place, size in seen.items() if place not in parameters)
    print(f"kept between the passes: {kept[False]:,} bytes, with recompute {kept[True]:,}")
    assert kept[True] < kept[False] / 10


@pytest.mark.parametrize("within", [False, True])
def test_picks_are_dropped_too(monkeypatch: pytest.MonkeyPatch, *, within: bool) -> None:
    # 0.5 GiB a layer for 131,072 tokens of 512 picks.
    found: list[weakref.ref[torch.UntypedStorage]] = []
    choose = Indexer._choose

    def noted(indexer: Indexer, *heads: Tensor, context: PackContext) -> Tensor:
        picks = choose(indexer, *heads, context=context)
        found.append(weakref.ref(picks.untyped_storage()))
        return picks

    monkeypatch.setattr(Indexer, "_choose", noted)
    out = recomputing(whole_model(), within=within)(PACKS["ragged"])
    assert out.loss.requires_grad
    assert len(found) == 3
    assert [each() for each in found] == [None] * 3
