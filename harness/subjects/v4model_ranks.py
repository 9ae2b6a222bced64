"""The packed model on several ranks behind the one-rank protocol: in this process, or on processes over gloo or NCCL.

Every property written for one rank then runs on ranks: outputs of all ranks are joined to whole tensors, and their
graph is one autograd node that asks every rank for its own backward.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.subjects.protocol import Depth, Observation
from harness.subjects.rank_pool import DEVICES, RankPool, pool_of
from harness.subjects.record import Record, joined_ranks
from harness.subjects.recording import Recording, recording
from harness.subjects.v4model_one_rank import V4OneRank, lively_model, observation
from v4model import Pack, V4Config, V4Model
from v4model.exchange import RankError
from v4model.pack.shard import ShardPlan, shard_of
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld
from v4model.parallel.processes import join


@dataclass(frozen=True, eq=False)
class RankRun:
    """What one rank gives of a forward pass: per-token tensors [n, ...], and scalars that all ranks have alike."""

    per_token: list[Tensor]
    scalars: dict[str, Tensor]
    counts: dict[str, float]


@dataclass(frozen=True, eq=False)
class RankGraph:
    """What a rank keeps of a forward pass: outputs (per token, then scalars) and what they are differentiated by."""

    outputs: list[Tensor]
    inputs: list[Tensor]


def forward_rank(model: V4Model, pack: Pack, embeddings: Tensor | None, member: Member) -> tuple[RankRun, RankGraph]:
    """One rank's forward pass; embeddings [n, D] of its tokens, or None. What it gives for others is on the host."""
    leaf = None if embeddings is None else embeddings.detach().to(model.device).requires_grad_()
    out = model(pack, logits=True, embeddings=leaf, ranks=member.ranks)
    real = out.plan.layout.real[out.plan.start : out.plan.end]
    seen = observation(out, real=real)
    per_token = [tensor for depth in seen.depths for tensor in (depth.values, depth.nll, depth.valid)]
    scalars = {f"sum {name}": value for name, value in seen.sums.items()}
    scalars |= {f"loss {name}": value for name, value in seen.losses.items()}
    run = RankRun(
        [tensor.detach().cpu() for tensor in per_token],
        {name: value.detach().cpu() for name, value in scalars.items()},
        dict(seen.counts),
    )
    differentiable = [tensor for tensor in per_token if tensor.is_floating_point()]
    inputs = [*([] if leaf is None else [leaf]), *model.parameters()]
    return run, RankGraph([*differentiable, *scalars.values()], inputs)


def record_rank(model: V4Model, pack: Pack, embeddings: Tensor | None, member: Member, found: Recording) -> Record:
    """What one rank's parts read and put out, inside `recording`, on the host."""
    given = None if embeddings is None else embeddings.to(model.device)
    with torch.no_grad():
        model(pack, embeddings=given, ranks=member.ranks)
    return {name: table.cpu() for name, table in found.own.items()}


def backward_rank(graph: RankGraph, grads: list[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the inputs for those of the outputs (None: not asked), on the host; collective, like the forward."""
    pairs = [
        (out, grad.to(out.device))
        for out, grad in zip(graph.outputs, grads, strict=True)
        # A loss that no parameter enters (no indexer: no KL) has no graph, the same on every rank.
        if grad is not None and out.requires_grad
    ]
    found = torch.autograd.grad(
        [out for out, _ in pairs],
        graph.inputs,
        grad_outputs=[grad for _, grad in pairs],
        retain_graph=True,
        allow_unused=True,
    )
    return [None if grad is None else grad.cpu() for grad in found]


class World(Protocol):
    """Where the ranks are. A handle names what a forward pass left on them for its backward passes."""

    ranks: int

    def forward(
        self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]
    ) -> tuple[list[RankRun], Any]: ...

    def backward(self, handle: Any, grads: Sequence[list[Tensor | None]]) -> list[list[Tensor | None]]: ...

    def record(self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]) -> list[Record]: ...


class InProcess:
    """Ranks simulated in this process, deterministic to the bit."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def forward(self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]) -> tuple[list[RankRun], Any]:
        world, model = InProcessWorld(Mesh(cp=self.ranks)), subject.model
        done = world.run(lambda member: forward_rank(model, pack, embeddings[member.rank], member))
        return [run for run, _ in done], (world, [graph for _, graph in done])

    def backward(self, handle: Any, grads: Sequence[list[Tensor | None]]) -> list[list[Tensor | None]]:
        world, graphs = handle
        result: list[list[Tensor | None]] = world.run(
            lambda member: backward_rank(graphs[member.rank], grads[member.rank])
        )
        return result

    def record(self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]) -> list[Record]:
        world, model = InProcessWorld(Mesh(cp=self.ranks)), subject.model
        with recording(model) as found:
            return world.run(lambda member: record_rank(model, pack, embeddings[member.rank], member, found))


class Processes:
    """Ranks on this process's warm pool of that backend; they build the model themselves, from its key."""

    def __init__(self, ranks: int, *, backend: str = "gloo") -> None:
        self.ranks, self.backend = ranks, backend

    @property
    def pool(self) -> RankPool:
        """The one that lives now."""
        return pool_of(self.ranks, backend=self.backend)

    def key(self, subject: V4OneRank) -> Key:
        """What a rank builds the subject's model from."""
        return subject.config, subject.model.dtype, subject.seed, DEVICES[self.backend]

    def forward(self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]) -> tuple[list[RankRun], Any]:
        handle = _RemoteGraph(self.pool)
        alive = sorted(graph.number for graph in _RemoteGraph.alive)
        arguments = [(self.ranks, self.key(subject), pack, part, handle.number, alive) for part in embeddings]
        return handle.pool.call(_forward_there, arguments), handle

    def backward(self, handle: Any, grads: Sequence[list[Tensor | None]]) -> list[list[Tensor | None]]:
        result: list[list[Tensor | None]] = handle.pool.call(_backward_there, [(handle.number, part) for part in grads])
        return result

    def record(self, subject: V4OneRank, pack: Pack, embeddings: Sequence[Tensor | None]) -> list[Record]:
        arguments = [(self.ranks, self.key(subject), pack, part) for part in embeddings]
        return self.pool.call(_record_there, arguments)


Key: TypeAlias = tuple[V4Config, torch.dtype, int, str]
"""What `lively_model` builds the same model from in any process: configuration, dtype, seed, device."""


class _RemoteGraph:
    """Names a graph that the ranks of a pool keep for as long as this object lives."""

    alive: ClassVar[weakref.WeakSet[_RemoteGraph]] = weakref.WeakSet()
    count: ClassVar[int] = 0

    def __init__(self, pool: RankPool) -> None:
        _RemoteGraph.count += 1
        self.pool, self.number = pool, _RemoteGraph.count
        self.alive.add(self)


_graphs_here: dict[int, RankGraph] = {}
_members_here: dict[int, Member] = {}


def _forward_there(
    ranks: int,
    key: Key,
    pack: Pack,
    embeddings: Tensor | None,
    number: int,
    alive: list[int],
) -> RankRun:
    """On a rank of a pool."""
    for forgotten in set(_graphs_here) - set(alive):
        del _graphs_here[forgotten]
    run, _graphs_here[number] = forward_rank(lively_model(*key), pack, embeddings, _member_here(ranks))
    return run


def _record_there(ranks: int, key: Key, pack: Pack, embeddings: Tensor | None) -> Record:
    """On a rank of a pool."""
    model = lively_model(*key)
    with recording(model) as found:
        return record_rank(model, pack, embeddings, _member_here(ranks), found)


def _member_here(ranks: int) -> Member:
    if ranks not in _members_here:
        _members_here[ranks] = join(Mesh(cp=ranks), checked=True)
    return _members_here[ranks]


def _backward_there(number: int, grads: list[Tensor | None]) -> list[Tensor | None]:
    """On a rank of a pool."""
    return backward_rank(_graphs_here[number], grads)


class _Joined(torch.autograd.Function):
    """Outputs of all ranks as whole tensors; inputs are the embeddings (or an empty tensor) and the parameters."""

    @staticmethod
    def forward(
        ctx: Any, world: World, subject: V4OneRank, pack: Pack, names: list[str], counts: dict[str, float],
        embeddings: Tensor, *parameters: Tensor,  # noqa: ARG004 - arrive here only to be part of the graph
    ) -> tuple[Tensor, ...]:  # fmt: skip
        plan = shard_of(pack.layout, rank=0, ranks=world.ranks)
        ctx.world, ctx.plan, ctx.total, ctx.given = world, plan, pack.layout.total, embeddings.numel() > 0
        runs, ctx.handle = world.forward(subject, pack, _by_rank(embeddings if ctx.given else None, plan))
        _check_alike(runs)
        names += runs[0].scalars
        counts |= runs[0].counts
        per_token = [
            torch.cat(of_ranks)[: ctx.total] for of_ranks in zip(*(run.per_token for run in runs), strict=True)
        ]
        outputs = (*per_token, *runs[0].scalars.values())
        ctx.mark_non_differentiable(*(tensor for tensor in outputs if not tensor.is_floating_point()))
        ctx.differentiable = [tensor.is_floating_point() for tensor in outputs]
        # What nobody differentiates stays None, and no rank runs backward through it.
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ranks, size = ctx.world.ranks, ctx.plan.size
        of_ranks: list[list[Tensor | None]] = [[] for _ in range(ranks)]
        for grad in itertools.compress(grads, ctx.differentiable):
            # Per token, each rank its rows; a scalar is the same on all ranks and counts once, so all get its gradient.
            parts = [grad] * ranks
            if grad is not None and grad.ndim:
                padding = [0, 0] * (grad.ndim - 1) + [0, ctx.plan.layout.total - ctx.total]
                parts = list(F.pad(grad, padding).split(size))
            for rank, part in enumerate(parts):
                of_ranks[rank].append(part)
        found = ctx.world.backward(ctx.handle, of_ranks)
        embeddings = None
        if ctx.given:
            embeddings = torch.cat([of_rank.pop(0) for of_rank in found])[: ctx.total]
        return (None, None, None, None, None, embeddings, *(_sum(of_ranks) for of_ranks in zip(*found, strict=True)))


def _by_rank(embeddings: Tensor | None, plan: ShardPlan) -> list[Tensor | None]:
    """Each rank's rows of the pack's embeddings [T, D], padded as the plan pads the pack; None for each if None."""
    if embeddings is None:
        return [None] * plan.ranks
    return list(F.pad(embeddings, (0, 0, 0, plan.layout.total - len(embeddings))).split(plan.size))


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    """In rank order; None where no rank has a gradient."""
    total: Tensor | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _check_alike(runs: Sequence[RankRun]) -> None:
    for rank, run in enumerate(runs):
        for name, value in run.scalars.items():
            # NaN equals NaN: a subject may be asked about NaN embeddings.
            if not torch.equal(value.nan_to_num(), runs[0].scalars[name].nan_to_num()):
                raise RankError(f"rank {rank} has a {name} of {value.item()}, rank 0 of {runs[0].scalars[name].item()}")


@dataclass(frozen=True)
class V4OnRanks:
    """A one-rank subject's model on context-parallel ranks."""

    one: V4OneRank
    world: World

    @property
    def name(self) -> str:
        """The one-rank subject's, with the number of ranks."""
        return f"{self.one.name} on {self.world.ranks} ranks"

    @property
    def config(self) -> V4Config:
        """The model's."""
        return self.one.config

    @property
    def model(self) -> V4Model:
        """The one that ranks in this process run, open to faults."""
        return self.one.model

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.world.ranks

    def parameters(self) -> Mapping[str, Tensor]:
        """Every parameter by its name in the module tree; their gradients are sums over the ranks."""
        return self.one.parameters()

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, D], 0 at padding, detached."""
        return self.one.embeddings(pack)

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Record:
        """What all ranks read and put out, joined; pooled rows as rank 0 has gathered them."""
        plan = shard_of(pack.layout, rank=0, ranks=self.world.ranks)
        return joined_ranks(self.world.record(self.one, pack, _by_rank(embeddings, plan)), total=pack.layout.total)

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """One forward on all ranks; raises RankError if they disagree."""
        names: list[str] = []
        counts: dict[str, float] = {}
        given = torch.empty(0) if embeddings is None else embeddings
        parameters = self.parameters().values()
        outputs = _Joined.apply(self.world, self.one, pack, names, counts, given, *parameters)  # type: ignore[no-untyped-call]
        scalars = dict(zip(names, outputs[len(outputs) - len(names) :], strict=True))
        tokens = outputs[: len(outputs) - len(names)]
        return Observation(
            depths=tuple(
                Depth(values=tokens[i], nll=tokens[i + 1], valid=tokens[i + 2]) for i in range(0, len(tokens), 3)
            ),
            sums={name.removeprefix("sum "): value for name, value in scalars.items() if name.startswith("sum ")},
            counts=counts,
            losses={name.removeprefix("loss "): value for name, value in scalars.items() if name.startswith("loss ")},
        )
