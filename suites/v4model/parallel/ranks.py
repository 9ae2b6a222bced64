"""What the tests of ranks share: packs, a model cut into shares, and a step on a mesh next to the same on one rank."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from harness.tolerance import GRADIENT_FLOOR_SHARE, REORDERED_F64
from suites.v4model.support import LAYOUTS, gradients, relative_error, stirred
from suites.v4model.support import random_pack as unmasked_pack
from v4model import Pack, PackLayout, V4Config, V4Model, V4Output, presets
from v4model.layers.share import Share
from v4model.model.model import StageOutput
from v4model.pack.counts import StepCounts, counts_of
from v4model.parallel.groups import Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step

CONFIG = presets.tiny()
DEPTHS = CONFIG.num_nextn_predict_layers
BOUND = REORDERED_F64
"""Sums over ranks are taken in another order than on one; a row or a label from the wrong place moves 1e-6 and more."""


@lru_cache
def whole_model(config: V4Config = CONFIG) -> V4Model:
    """The model that holds everything, in float64; shared, so not to be changed."""
    return stirred(config)


def masked_pack(layout: PackLayout, *, seed: int) -> Pack:
    """Random tokens, about two thirds of them supervised."""
    mask = torch.rand(layout.total, generator=torch.Generator().manual_seed(seed + 50)) < 0.7
    return unmasked_pack(layout, seed=seed, supervised=mask)


def drawn_pack(seed: int) -> Pack:
    """Lengths around the window and the ratios, slots with and without padding, some tail."""
    source = random.Random(seed)
    lengths = [source.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 40]) for _ in range(source.randint(1, 5))]
    slots = [length + source.choice([0, 0, 3, 9]) for length in lengths]
    layout = PackLayout.from_lengths(lengths, slots=slots, total=sum(slots) + source.randint(0, 20))
    return masked_pack(layout, seed=seed)


PACKS = {name: masked_pack(layout, seed=7) for name, layout in LAYOUTS.items()}
PACKS |= {f"drawn {seed}": drawn_pack(seed) for seed in range(4)}


def compare_gradients(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Every gradient by name, relative to its own largest entry or to a share of the model's largest."""
    assert found.keys() == expected.keys()
    floor = GRADIENT_FLOOR_SHARE * max(float(grad.abs().max()) for grad in expected.values())
    errors = {name: relative_error(found[name], grad, floor=floor) for name, grad in expected.items()}
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] <= BOUND, f"{worst}: {errors[worst]:.1e}"


def is_expert(name: str) -> bool:
    return ".mlp.experts." in name


def part_of(whole: V4Model, share: Share) -> V4Model:
    """A share of a model, with its values."""
    part, held = V4Model(whole.config, dtype=whole.dtype, share=share), share.experts(whole.config.n_routed_experts)
    values = {name: whole.state_dict()[name] for name in part.state_dict()}
    part.load_state_dict(
        {name: value[held.start : held.stop] if is_expert(name) else value for name, value in values.items()}
    )
    return part


@dataclass(frozen=True)
class Step:
    """A step of one replica or more: by replica, its micro-batches; the counts are those of all together."""

    packs: Sequence[Sequence[Pack]]

    @property
    def counts(self) -> StepCounts:
        return counts_of((pack for replica in self.packs for pack in replica), depths=DEPTHS)


def on_one_rank(whole: V4Model, step: Step) -> tuple[list[list[V4Output]], dict[str, Tensor]]:
    """Outputs by replica and micro-batch, and the gradients of the step's loss."""
    whole.zero_grad()
    outs = [[whole(pack, logits=True, counts=step.counts) for pack in replica] for replica in step.packs]
    torch.stack([out.loss for replica in outs for out in replica]).sum().backward()
    return outs, {name: grad.clone() for name, grad in gradients(whole).items()}


def on_mesh(whole: V4Model, step: Step, mesh: Mesh) -> tuple[list[list[StageOutput]], list[dict[str, Tensor]]]:
    """By rank: its outputs by micro-batch, and its own gradients, not yet added up."""
    models = [part_of(whole, mesh.share(rank)) for rank in range(mesh.world)]
    outs = InProcessWorld(mesh).run(
        lambda member: run_step(
            models[member.rank],
            step.packs[mesh.replica(member.rank)],
            ranks=member.ranks,
            pipe=member.pipe,
            counts=step.counts,
            logits=True,
        )
    )
    return outs, [gradients(model) for model in models]


def added_up(of_ranks: Sequence[Mapping[str, Tensor]], mesh: Mesh, *, rank: int) -> dict[str, Tensor]:
    """The gradients of a rank's parameters summed over the mesh's groups, as every rank that holds one has to do."""
    found = {}
    for name in of_ranks[rank]:
        group = mesh.expert_replicas(rank) if is_expert(name) else mesh.stage_group(rank)
        if name == "trunk.embed_tokens.weight":
            group = tuple({member for end in mesh.ends_group(rank) for member in mesh.stage_group(end)})
        found[name] = torch.stack([of_ranks[member][name] for member in group]).sum(0)
    return found


def check_step(step: Step, mesh: Mesh, *, whole: V4Model | None = None) -> None:
    """Losses, logits and every gradient on every rank of a mesh against one model on one rank."""
    whole = whole or whole_model()
    expected, expected_grads = on_one_rank(whole, step)
    outs, grads = on_mesh(whole, step, mesh)
    for rank in range(mesh.world):
        held = mesh.share(rank).experts(CONFIG.n_routed_experts)
        of_share = {name: expected_grads[name] for name in grads[rank]}
        of_share = {name: g[held.start : held.stop] if is_expert(name) else g for name, g in of_share.items()}
        compare_gradients(added_up(grads, mesh, rank=rank), of_share)
    for replica, micro_batches in enumerate(expected):
        for number, whole_out in enumerate(micro_batches):
            # By stage, the outputs of the replica's ranks.
            stages: list[list[StageOutput]] = [[] for _ in range(mesh.pp)]
            for rank in range(mesh.world):
                if mesh.replica(rank) == replica:
                    stages[mesh.stage(rank)].append(outs[rank][number])
            compare_outputs(stages, whole_out)


def compare_outputs(stages: Sequence[Sequence[StageOutput]], whole: V4Output) -> None:
    """Of one micro-batch: stages[s][i] is the output of context rank i on stage s."""
    for ranks in stages:
        assert all(torch.equal(out.loss, ranks[0].loss) for out in ranks), "the same bits on every rank"
    loss = sum(ranks[0].loss for ranks in stages)
    assert relative_error(loss, whole.loss) <= BOUND
    counts = {name: count for ranks in stages for name, count in ranks[0].router_counts.items()}
    assert counts.keys() == whole.router_counts.keys()
    assert all(torch.equal(counts[name], count) for name, count in whole.router_counts.items())
    compare_last_stage(stages[-1], whole)


def compare_last_stage(ranks: Sequence[StageOutput], whole: V4Output) -> None:
    """Values of every token at every depth; rows behind the pack's last token are padding and exactly 0."""
    outs = [out for out in ranks if isinstance(out, V4Output)]
    assert len(outs) == len(ranks)
    total = whole.token_nll.shape[0]
    for depth in range(DEPTHS + 1):
        of_ranks = [(out, *out.mtp)[depth] for out in outs]
        expected = (whole, *whole.mtp)[depth]
        for name in ("logits", "hidden", "token_nll"):
            joined = torch.cat([getattr(out, name) for out in of_ranks])
            assert relative_error(joined[:total], getattr(expected, name)) <= BOUND, f"{name} of depth {depth}"
            assert not joined[total:].any(), f"{name} of padding at depth {depth}"
        if depth:
            valid = torch.cat([out.valid for out in of_ranks])
            assert torch.equal(valid[:total], expected.valid)
            assert not valid[total:].any()
    for out in outs:
        assert relative_error(out.main_loss, whole.main_loss) <= BOUND
        for found, expected_loss in zip(out.mtp_losses, whole.mtp_losses, strict=True):
            assert relative_error(found, expected_loss) <= BOUND
