"""Ranks as processes: the exchange's wire over torch.distributed, gloo or NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from v4model.exchange import Exchange, RankError, Ranks, Request, check_agreement
from v4model.layers.experts import held_experts
from v4model.parallel.groups import Member, Mesh

Result = TypeVar("Result")

_LONGEST_REQUEST = 96
"""Bytes of a request's text that ranks compare; longer ones are cut."""


class ProcessWire:
    """One rank's end of a process group.

    Args:
        checked: ranks compare what they ask for before every exchange, at the price of one small collective each, so
            that a disagreement is an error with names and not a hang or garbled rows.
    """

    def __init__(self, group: dist.ProcessGroup, *, checked: bool) -> None:
        self.group, self.checked, self.turn = group, checked, 0
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        self.turn += 1
        rows = torch.cat([part.detach() for part in sends])
        sizes = [part.shape[0] for part in sends]
        out = rows.new_empty(sum(receives), *rows.shape[1:])
        what = f"{request}, exchange {self.turn}"
        # Both are under way at once; what the ranks ask for is looked at before the rows are waited for.
        asked = self._ask(request, sizes, device=rows.device) if self.checked else None
        sent = _waiting(
            lambda: dist.all_to_all_single(out, rows, list(receives), sizes, group=self.group, async_op=True),
            self.rank,
            what,
        )
        if asked is not None:
            work, everyone = asked
            _waiting(work.wait, self.rank, what)
            self._check(request, everyone, receives)
        _waiting(sent.wait, self.rank, what)
        return list(out.split(list(receives)))

    def _ask(self, request: Request, sizes: list[int], *, device: torch.device) -> tuple[dist.Work, list[Tensor]]:
        """Begins to gather what every rank asks for; the tensors hold it once the work is done."""
        text = str(request).encode()[:_LONGEST_REQUEST].ljust(_LONGEST_REQUEST)
        own = torch.tensor([*text, *(0 for _ in sizes)], dtype=torch.int64, device=device)
        own[_LONGEST_REQUEST:] = torch.tensor(sizes, device=device)
        everyone = [torch.empty_like(own) for _ in range(self.ranks)]
        what = f"{request}, exchange {self.turn}"
        work: dist.Work = _waiting(
            lambda: dist.all_gather(everyone, own, group=self.group, async_op=True), self.rank, what
        )
        return work, everyone

    def _check(self, request: Request, everyone: list[Tensor], receives: Sequence[int]) -> None:
        for other, theirs in enumerate(torch.stack(everyone).cpu()):
            check_agreement(
                own=str(request)[:_LONGEST_REQUEST],
                theirs=bytes(theirs[:_LONGEST_REQUEST].tolist()).decode().rstrip(),
                expected_rows=receives[other],
                rows=int(theirs[_LONGEST_REQUEST + self.rank]),
                rank=self.rank,
                other=other,
                turn=self.turn,
            )


class ProcessPipe:
    """One rank's end of the pipeline; peers are the world ranks at its place, by stage."""

    def __init__(self, rank: int, *, peers: Sequence[int]) -> None:
        self.rank, self.peers = rank, list(peers)

    def send(self, x: Tensor, *, to_stage: int) -> None:
        peer = self.peers[to_stage]
        _waiting(lambda: dist.send(x.detach().contiguous(), peer), self.rank, f"a message to stage {to_stage}")

    def receive(self, like: Tensor, *, from_stage: int) -> Tensor:
        message = torch.empty_like(like, memory_format=torch.contiguous_format)
        peer = self.peers[from_stage]
        _waiting(lambda: dist.recv(message, peer), self.rank, f"a message of stage {from_stage}")
        return message


def join(mesh: Mesh, *, checked: bool = False) -> Member:
    """This process's member of `mesh`, over the default process group of torch.distributed, of mesh.world ranks.

    Collective: every process of the world calls it, once a mesh.
    """
    rank = dist.get_rank()
    # All groups at once: making one is collective over the world, and stages come to use them at different times.
    for sort in ("cp_group", "ep_group", "stage_group", "expert_replicas", "ends_group"):
        _group(mesh, sort)
    cp = Exchange(ProcessWire(_group(mesh, "cp_group"), checked=checked))
    ep = Exchange(ProcessWire(_group(mesh, "ep_group"), checked=checked))
    peers = [mesh.peer(rank, stage=stage) for stage in range(mesh.pp)]
    return Member(rank, Ranks(cp, ep), ProcessPipe(rank, peers=peers))


def sum_gradients(model: nn.Module, *, mesh: Mesh) -> None:
    """Adds up every parameter's `.grad` over the ranks that hold it; collective, after a step's backward passes.

    Experts add over their replicas, the embedding also over the first and the last stage (MTP embeds too), all else
    over the stage.
    """
    rank = dist.get_rank()
    of_experts = held_experts(model)
    for name, parameter in model.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        group = _group(mesh, "expert_replicas" if name in of_experts else "stage_group")
        dist.all_reduce(grad, group=group)
        if name.endswith("embed_tokens.weight") and mesh.pp > 1 and mesh.stage(rank) in (0, mesh.pp - 1):
            dist.all_reduce(grad, group=_group(mesh, "ends_group"))
        parameter.grad = grad


def total_over_stage(x: Tensor, *, mesh: Mesh) -> None:
    """Adds up x in place over the ranks that hold the same layers; collective."""
    dist.all_reduce(x, group=_group(mesh, "stage_group"))


@cache
def _group(mesh: Mesh, sort: str) -> dist.ProcessGroup:
    """The process group of this rank; all ranks make all groups of that sort (a method of Mesh), in the same order."""
    members: Callable[[int], tuple[int, ...]] = getattr(mesh, sort)
    groups = {ranks: _group_of(ranks) for ranks in sorted({members(rank) for rank in range(mesh.world)})}
    return groups[members(dist.get_rank())]


@cache
def _group_of(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """One group for the same ranks of all meshes and sorts: each has threads (gloo) or a communicator (NCCL).

    Collective over the world. To a rank outside it is torch's mark of no member.
    """
    group: dist.ProcessGroup = dist.new_group(list(ranks))
    return group


def _waiting(operation: Callable[[], Result], rank: int, what: str) -> Result:
    try:
        return operation()
    except RuntimeError as error:
        raise RankError(f"rank {rank} gave up in {what}: {str(error).splitlines()[0]}") from error
