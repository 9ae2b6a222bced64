"""A training step on one rank or on a mesh of processes, and all that it gave, joined on rank 0."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from v4model import Pack, V4Config, V4Model, V4Output
from v4model.layers.experts import held_experts
from v4model.pack.counts import counts_of
from v4model.parallel.groups import Mesh
from v4model.parallel.pp import run_step_keeping
from v4model.train.feed import StepPacks
from v4model.train.settings import TrainSettings
from v4model.train.torch_engine import TorchEngine

SEED = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """What a step gave, on the host.

    nll: of all packs' tokens, in float64. gradients: by parameter, before clipping, in the model's dtype. before and
    after: the optimizer's wide weights around the update. grad_norm: as the engine says it. disagreeing: names of which
    ranks that hold copies have other bits: gradients, updated weights, router biases. sent_bytes: over context and over
    expert groups, by all ranks, forward and backward. seconds: of forward and backward, warm.
    """

    loss: float
    nll: Tensor
    gradients: dict[str, Tensor]
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    grad_norm: float
    disagreeing: tuple[str, ...]
    sent_bytes: tuple[int, int]
    seconds: float


def settings_of(config: V4Config, mesh: Mesh, *, dtype: torch.dtype, packs: int) -> TrainSettings:
    """What is trained with: AdamW with decay, and a norm of gradients so small that it is always clipped."""
    return TrainSettings(
        config=config,
        steps=1,
        packs_per_step=packs,
        learning_rate=1e-3,
        clip_norm=1e-2,
        dtype=str(dtype).removeprefix("torch."),
        seed=SEED,
        mesh=mesh,
    )


def step_on(
    settings: TrainSettings, packs: Sequence[Pack], *, rounded: torch.dtype, device: torch.device | str
) -> Step | None:
    """The step on the ranks of the settings' mesh, this process one of them; None on all but rank 0; collective.

    Args:
        rounded: what initial weights are rounded to, whatever the step computes in.
    """
    mesh = settings.mesh
    engine = TorchEngine(settings, device=device)
    _round_weights(engine, rounded)
    rank = engine.member.rank
    own = StepPacks(
        own=list(packs[mesh.replica(rank) :: mesh.dp]),
        numbers=list(range(len(packs))),
        counts=counts_of(packs, depths=settings.config.num_nextn_predict_layers),
        real_tokens=sum(pack.layout.real_tokens for pack in packs),
        without_hca=0,
    )
    nll = _nll(engine, own)
    _forget_bytes(engine)
    _synchronise(engine)
    began = time.perf_counter()
    losses = engine.gradients(own)
    _synchronise(engine)
    seconds = time.perf_counter() - began
    gradients = {name: _host(parameter.grad) for name, parameter in engine.model.named_parameters()}
    before = _wide_weights(engine)
    engine.update(0, losses)
    part = _Part.of(engine, nll=nll, gradients=gradients, before=before)
    parts: list[_Part] = [part] * mesh.world
    if mesh.world > 1:
        dist.gather_object(part, parts if rank == 0 else None)
    if rank:
        return None
    return _joined(parts, packs, mesh, loss=losses.loss, grad_norm=losses.grad_norm, seconds=seconds)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """What one rank has of a step: nll of its own tokens, on the last stage only; tensors that it is first to hold.

    digests: of all that it holds, by sort and name, and by the experts that it is of.
    """

    nll: list[Tensor]
    replica: int
    cp_rank: int
    tensors: dict[str, dict[str, Tensor]]
    experts: dict[str, range]
    digests: dict[tuple[str, str, range | None], bytes]
    sent_bytes: tuple[int, int]

    @classmethod
    def of(
        cls, engine: TorchEngine, *, nll: list[Tensor], gradients: dict[str, Tensor], before: dict[str, Tensor]
    ) -> _Part:
        member, experts = engine.member, held_experts(engine.model)
        sorts = {"gradient": gradients, "before": before, "after": _wide_weights(engine)}
        biases = {
            name: _host(x) for name, x in engine.model.named_buffers() if name.endswith("e_score_correction_bias")
        }
        digests = {
            (sort, name, experts.get(name)): _digest(tensor)
            for sort, tensors in {**sorts, "bias": biases}.items()
            for name, tensor in tensors.items()
        }
        first = {name for name in gradients if _is_first(engine.mesh, member.rank, name, is_expert=name in experts)}
        return cls(
            nll=nll,
            replica=engine.replica,
            cp_rank=member.ranks.cp.rank,
            tensors={sort: {name: tensors[name] for name in first} for sort, tensors in sorts.items()},
            experts=experts,
            digests=digests,
            sent_bytes=(member.ranks.cp.sent_bytes.total(), member.ranks.ep.sent_bytes.total()),
        )


def _is_first(mesh: Mesh, rank: int, name: str, *, is_expert: bool) -> bool:
    """Whether this rank sends the values of a parameter, for all that hold copies of it."""
    holders = mesh.expert_replicas(rank) if is_expert else mesh.stage_group(rank)
    return rank == min(holders) and not (mesh.stage(rank) > 0 and name.endswith("embed_tokens.weight"))


def _joined(
    parts: Sequence[_Part], packs: Sequence[Pack], mesh: Mesh, *, loss: float, grad_norm: float, seconds: float
) -> Step:
    shards: dict[tuple[int, int], Tensor] = {}
    digests: dict[tuple[str, str, range | None], bytes] = {}
    disagreeing = set()
    for part in parts:
        for index, nll in enumerate(part.nll):
            shards[index * mesh.dp + part.replica, part.cp_rank] = nll
        for key, digest in part.digests.items():
            if digests.setdefault(key, digest) != digest:
                disagreeing.add(f"{key[0]} of {key[1]}")
    rows = [
        torch.cat([shards[index, cp_rank] for cp_rank in range(mesh.cp)])[: pack.layout.total]
        for index, pack in enumerate(packs)
    ]
    whole = {sort: _whole(parts, sort, mesh) for sort in ("gradient", "before", "after")}
    return Step(
        loss=loss,
        nll=torch.cat(rows),
        gradients=whole["gradient"],
        before=whole["before"],
        after=whole["after"],
        grad_norm=grad_norm,
        disagreeing=tuple(sorted(disagreeing)),
        sent_bytes=(sum(part.sent_bytes[0] for part in parts), sum(part.sent_bytes[1] for part in parts)),
        seconds=seconds,
    )


def _whole(parts: Sequence[_Part], sort: str, mesh: Mesh) -> dict[str, Tensor]:
    """By parameter, the experts of all ranks in one stack; NaN where no rank sent a row."""
    found: dict[str, Tensor] = {}
    for part in parts:
        for name, tensor in part.tensors[sort].items():
            held = part.experts.get(name)
            if held is None:
                found[name] = tensor
            else:
                stack = found.setdefault(name, tensor.new_full((len(held) * mesh.ep, *tensor.shape[1:]), torch.nan))
                stack[held.start : held.stop] = tensor
    return found


def _nll(engine: TorchEngine, packs: StepPacks) -> list[Tensor]:
    """[n] of each of this replica's packs where the rank is of the last stage; a whole step, whose gradients go."""

    def keep(out: object) -> list[Tensor]:
        return [_host(out.token_nll).double()] if isinstance(out, V4Output) else []

    member = engine.member
    kept = run_step_keeping(
        engine.model, packs.own, ranks=member.ranks, pipe=member.pipe, counts=packs.counts, keep=keep
    )
    engine.model.zero_grad()
    return [nll for of_pack in kept for nll in of_pack]


def _round_weights(engine: TorchEngine, rounded: torch.dtype) -> None:
    """Gives the engine the weights that a model in the dtype `rounded` begins with."""
    model = engine.model
    source = V4Model(model.config, dtype=rounded, device=model.device, seed=SEED, share=model.share)
    model.load_state_dict(source.state_dict())
    engine.optimizer.adopt()


def _wide_weights(engine: TorchEngine) -> dict[str, Tensor]:
    return {name: _host(weight) for name, weight in engine.optimizer.weights.items()}


def _forget_bytes(engine: TorchEngine) -> None:
    for exchange in (engine.member.ranks.cp, engine.member.ranks.ep):
        exchange.sent_bytes.clear()


def _synchronise(engine: TorchEngine) -> None:
    if engine.model.device.type == "cuda":
        torch.cuda.synchronize()


def _host(x: Tensor | None) -> Tensor:
    """A copy of its own: weights on a CPU change in place."""
    assert x is not None
    return x.detach().to("cpu", copy=True)


def _digest(x: Tensor) -> bytes:
    return hashlib.blake2b(x.contiguous().reshape(-1).view(torch.uint8).numpy().data, digest_size=16).digest()
