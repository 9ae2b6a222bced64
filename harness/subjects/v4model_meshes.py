"""A step of several packs on a mesh of ranks in this process, next to the same step on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from v4model import Pack, V4Config, V4Model, V4Output
from v4model.layers.experts import held_experts
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step

__all__ = ["Mesh", "StepRun", "expert_meshes", "pipeline_meshes", "step_on_mesh", "step_on_one_rank"]


def expert_meshes(config: V4Config, ranks: int) -> list[Mesh]:
    """Ways to spread the experts over `ranks`: over context ranks, over replicas, over half of the ranks."""
    meshes = [Mesh(cp=ranks, ep=ranks), Mesh(dp=ranks, ep=ranks)]
    if ranks % 2 == 0 and ranks > 2:
        meshes += [Mesh(cp=ranks, ep=2), Mesh(dp=2, cp=ranks // 2, ep=ranks)]
    return [mesh for mesh in meshes if config.n_routed_experts % mesh.ep == 0 and mesh.ep > 1]


def pipeline_meshes(config: V4Config, ranks: int) -> list[Mesh]:
    """Pipelines over `ranks`: a stage a rank, or two stages with context ranks or expert replicas in each."""
    meshes = [Mesh(pp=ranks)]
    if ranks % 2 == 0 and ranks > 2:
        meshes += [Mesh(pp=2, cp=ranks // 2), Mesh(pp=2, dp=ranks // 2, ep=ranks // 2)]
    return [mesh for mesh in meshes if 1 < mesh.pp <= config.num_hidden_layers]


@dataclass(frozen=True, eq=False)
class StepRun:
    """The step's loss, nll [T] of every pack (by depth, the trunk first), and gradients by parameter."""

    loss: Tensor
    nll: list[list[Tensor]]
    gradients: dict[str, Tensor]


def step_on_one_rank(model: V4Model, packs: Sequence[Pack]) -> StepRun:
    """All packs one after another on the whole model; each pack's losses are its share of the step's."""
    counts = counts_of(packs, depths=model.config.num_nextn_predict_layers)
    outs = [model(pack, counts=counts) for pack in packs]
    loss = torch.stack([out.loss for out in outs]).sum()
    names = [name for name, _ in model.named_parameters()]
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    gradients = {name: grad for name, grad in zip(names, grads, strict=True) if grad is not None}
    return StepRun(loss.detach(), [_nll(out) for out in outs], gradients)


def step_on_mesh(model: V4Model, packs: Sequence[Pack], mesh: Mesh) -> StepRun:
    """The packs dealt to the mesh's replicas, each rank with its share of the model's weights.

    Raises:
        RankError: ranks that disagree.
    """
    counts = counts_of(packs, depths=model.config.num_nextn_predict_layers)
    shares = [_share_of(model, mesh, rank) for rank in range(mesh.world)]

    def work(member: Member) -> list[V4Output | None]:
        own = packs[mesh.replica(member.rank) :: mesh.dp]
        share = shares[member.rank]
        outs = run_step(share, own, ranks=member.ranks, pipe=member.pipe, counts=counts)
        losses[member.rank] = torch.stack([out.loss.detach() for out in outs]).sum()
        return [out if isinstance(out, V4Output) else None for out in outs]

    losses: dict[int, Tensor] = {}
    done = InProcessWorld(mesh).run(work)
    # Context ranks hold the same loss; it counts once for each replica and stage.
    loss = torch.stack([losses[rank] for rank in range(mesh.world) if rank % mesh.cp == 0]).sum()
    last = (mesh.pp - 1) * mesh.stage_size
    nll = []
    for index, pack in enumerate(packs):
        first = last + index % mesh.dp * mesh.cp
        parts = [done[first + cp_rank][index // mesh.dp] for cp_rank in range(mesh.cp)]
        by_depth = zip(*(_nll(out) for out in parts if out is not None), strict=True)
        nll.append([torch.cat(of_ranks)[: pack.layout.total] for of_ranks in by_depth])
    return StepRun(loss, nll, _gradients(model, shares))


def _nll(out: V4Output) -> list[Tensor]:
    return [out.token_nll.detach(), *(depth.token_nll.detach() for depth in out.mtp)]


@torch.no_grad()
def _share_of(model: V4Model, mesh: Mesh, rank: int) -> V4Model:
    share = V4Model(model.config, dtype=model.dtype, share=mesh.share(rank))
    whole = model.state_dict()
    held = held_experts(share)
    for name, tensor in share.state_dict().items():
        tensor.copy_(whole[name][held[name].start : held[name].stop] if name in held else whole[name])
    return share


def _gradients(model: V4Model, shares: Sequence[V4Model]) -> dict[str, Tensor]:
    """Summed over the ranks that hold a parameter, in rank order."""
    whole = dict(model.named_parameters())
    total: dict[str, Tensor] = {}
    for share in shares:
        held = held_experts(share)
        for name, parameter in share.named_parameters():
            if parameter.grad is None:
                continue
            into = total.setdefault(name, torch.zeros_like(whole[name]))
            rows = held.get(name)
            (into if rows is None else into[rows.start : rows.stop]).add_(parameter.grad)
    return total
