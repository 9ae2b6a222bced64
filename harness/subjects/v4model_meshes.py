"""A step of several packs on a mesh of ranks, in this process or on others, next to the same step on one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from harness.subjects.v4model_one_rank import V4OneRank, lively_model
from harness.subjects.v4model_ranks import Key, Processes
from v4model import Pack, V4Config, V4Model, V4Output
from v4model.layers.experts import held_experts
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.pp import run_step
from v4model.parallel.processes import join

__all__ = [
    "Mesh",
    "StepRun",
    "expert_meshes",
    "pipeline_meshes",
    "step_on_mesh",
    "step_on_one_rank",
    "step_on_processes",
]


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
    shares = [_share_of(model, mesh, rank) for rank in range(mesh.world)]
    return _joined(model, packs, mesh, InProcessWorld(mesh).run(lambda member: _work(shares, packs, mesh, member)))


def step_on_processes(subject: V4OneRank, packs: Sequence[Pack], mesh: Mesh) -> StepRun:
    """`step_on_mesh` on the processes of the subject's backend.

    Raises:
        RankError: ranks that disagree.
    """
    world = Processes(mesh.world, backend=subject.backend)
    parts = world.pool.call(_step_there, [(world.key(subject), list(packs), mesh)] * mesh.world)
    return _joined(subject.model, packs, mesh, parts)


@dataclass(frozen=True, eq=False)
class _Part:
    """What one rank has of a step, on the host: its own loss, nll of its tokens (none before the last stage) by
    micro-batch and depth, gradients before they are summed, and which experts those are of.
    """

    loss: Tensor
    nll: list[list[Tensor]]
    gradients: dict[str, Tensor]
    experts: dict[str, range]


def _step_there(key: Key, packs: Sequence[Pack], mesh: Mesh) -> _Part:
    """On a rank of a pool."""
    member = _member_here(mesh)
    share = _share_of(lively_model(*key), mesh, member.rank)
    return _work({member.rank: share}, packs, mesh, member)


@cache
def _member_here(mesh: Mesh) -> Member:
    return join(mesh, checked=True)


def _work(
    shares: Sequence[V4Model] | Mapping[int, V4Model], packs: Sequence[Pack], mesh: Mesh, member: Member
) -> _Part:
    share, own = shares[member.rank], packs[mesh.replica(member.rank) :: mesh.dp]
    counts = counts_of(packs, depths=share.config.num_nextn_predict_layers)
    outs = run_step(share, own, ranks=member.ranks, pipe=member.pipe, counts=counts)
    return _Part(
        torch.stack([out.loss.detach() for out in outs]).sum().cpu(),
        [[nll.cpu() for nll in _nll(out)] if isinstance(out, V4Output) else [] for out in outs],
        {name: p.grad.cpu() for name, p in share.named_parameters() if p.grad is not None},
        held_experts(share),
    )


def _joined(model: V4Model, packs: Sequence[Pack], mesh: Mesh, parts: Sequence[_Part]) -> StepRun:
    # Context ranks hold the same loss; it counts once for each replica and stage.
    loss = torch.stack([part.loss for rank, part in enumerate(parts) if rank % mesh.cp == 0]).sum()
    last = (mesh.pp - 1) * mesh.stage_size
    nll = []
    for index, pack in enumerate(packs):
        first = last + index % mesh.dp * mesh.cp
        of_pack = [parts[first + cp_rank].nll[index // mesh.dp] for cp_rank in range(mesh.cp)]
        nll.append([torch.cat(of_ranks)[: pack.layout.total] for of_ranks in zip(*of_pack, strict=True)])
    return StepRun(loss, nll, _gradients(model, parts))


def _nll(out: V4Output) -> list[Tensor]:
    return [out.token_nll.detach(), *(depth.token_nll.detach() for depth in out.mtp)]


@torch.no_grad()
def _share_of(model: V4Model, mesh: Mesh, rank: int) -> V4Model:
    share = V4Model(model.config, dtype=model.dtype, device=model.device, share=mesh.share(rank))
    whole = model.state_dict()
    held = held_experts(share)
    for name, tensor in share.state_dict().items():
        tensor.copy_(whole[name][held[name].start : held[name].stop] if name in held else whole[name])
    return share


def _gradients(model: V4Model, parts: Sequence[_Part]) -> dict[str, Tensor]:
    """Summed over the ranks that hold a parameter, in rank order."""
    whole = dict(model.named_parameters())
    total: dict[str, Tensor] = {}
    for part in parts:
        for name, grad in part.gradients.items():
            into = total.setdefault(name, torch.zeros_like(whole[name]))
            rows = part.experts.get(name)
            (into if rows is None else into[rows.start : rows.stop]).add_(grad)
    return total
