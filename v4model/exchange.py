"""Exchange: the verbs by which ranks compute as one, with explicit adjoints, over a raw wire.

Each rank runs its own forward and its own backward. Every rank ends with the same loss and seeds its backward with 1;
a parameter's gradient is the sum of all ranks' gradients. So `total` hands its gradient on unchanged (the loss counts
once, however many ranks hold it), and what a rank lent to others comes back added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from v4model.pack.shard import ShardPlan


@dataclass(frozen=True)
class Request:
    """What a rank asks of the others; ranks that ask different things at the same time disagree, and say so."""

    verb: str
    where: str
    backward: bool = False

    def __str__(self) -> str:
        return f"{self.verb} in {self.where}" + (" (backward)" if self.backward else "")


class RankError(RuntimeError):
    """Ranks that disagree, or that would wait for each other for ever, told by name."""


def check_agreement(
    *, own: Request | str, theirs: Request | str, expected_rows: int, rows: int, rank: int, other: int, turn: int
) -> None:
    """That rank `other` does what rank `rank` does in exchange `turn`, and sends the rows it expects.

    Raises:
        RankError: they disagree.
    """
    if theirs != own:
        raise RankError(f"rank {rank} asks for {own}, where rank {other} asks for {theirs} (exchange {turn})")
    if rows != expected_rows:
        raise RankError(
            f"rank {rank} expects {expected_rows} rows of rank {other} in {own}, which sends {rows} (exchange {turn})"
        )


class Pipe(Protocol):
    """Carries tensors between the stages of a pipeline, without autograd."""

    def send(self, x: Tensor, *, to_stage: int) -> None: ...

    def receive(self, like: Tensor, *, from_stage: int) -> Tensor:
        """The next message of that stage, of the shape and dtype of `like`."""
        ...


class Wire(Protocol):
    """Moves tensors among the ranks of one group, without autograd."""

    rank: int
    ranks: int

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        """sends[r] [n_r, ...] goes to rank r; what rank r sent comes back at [r], with receives[r] rows.

        All sends have the same trailing shape and dtype. Collective: every rank of the group calls it.
        """
        ...


class Exchange:
    """The verbs of one group, counting the bytes each sends to other ranks."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sent_bytes: Counter[str] = Counter()

    @property
    def rank(self) -> int:
        return self.wire.rank

    @property
    def ranks(self) -> int:
        return self.wire.ranks

    def left_halo(self, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
        """x [n, ...] of the owned tokens -> [h + n, ...] with the `rows` tokens before them (fewer at the start)."""
        if self.ranks == 1:
            return x
        halo = self._tokens(
            x, reach=lambda rank: plan.left(rows, of=rank), plan=plan, request=Request("left_halo", where)
        )
        return torch.cat([halo, x])

    def right_halo(self, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
        """x [n, ...] -> [n + h, ...] with the `rows` tokens behind them (fewer at the end)."""
        if self.ranks == 1:
            return x
        request = Request("right_halo", where)
        halo = self._tokens(x, reach=lambda rank: plan.right(rows, of=rank), plan=plan, request=request)
        return torch.cat([x, halo])

    def all_rows(self, x: Tensor, *, counts: Sequence[int], where: str) -> Tensor:
        """x [counts[rank], ...] of each rank -> all of them in rank order [sum(counts), ...], on every rank."""
        if self.ranks == 1:
            return x
        moves = _Moves(sends=[(0, x.shape[0])] * self.ranks, receives=list(counts))
        return self._move(x, moves, Request("all_rows", where))

    def total(self, x: Tensor, *, where: str) -> Tensor:
        """Sum of x over the ranks, the same bits on every rank; the gradient passes unchanged."""
        if self.ranks == 1:
            return x
        total: Tensor = _Total.apply(x, self, Request("total", where))  # type: ignore[no-untyped-call]
        return total

    def swap_rows(self, x: Tensor, *, sends: Sequence[int], receives: Sequence[int], where: str) -> Tensor:
        """Rows of x [sum(sends), ...], in order of receiving rank -> [sum(receives), ...] in order of sending rank."""
        if self.ranks == 1:
            return x
        ends = torch.tensor([0, *sends]).cumsum(0).tolist()
        moves = _Moves(sends=list(pairwise(ends)), receives=list(receives))
        return self._move(x, moves, Request("swap_rows", where))

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:
        """The wire's swap, counted."""
        self.sent_bytes[request.verb] += sum(s.nbytes for rank, s in enumerate(sends) if rank != self.rank)
        return self.wire.swap(sends, receives=receives, request=request)

    def _tokens(self, x: Tensor, *, reach: Callable[[int], range], plan: ShardPlan, request: Request) -> Tensor:
        own = range(plan.start, plan.end)
        sends = [_overlap(own, reach(rank)) for rank in range(self.ranks)]
        wanted = reach(self.rank)
        receives = [len(_overlap(range(*plan.bounds(rank)), wanted)) for rank in range(self.ranks)]
        moves = _Moves(sends=[(part.start - plan.start, part.stop - plan.start) for part in sends], receives=receives)
        return self._move(x, moves, request)

    def _move(self, x: Tensor, moves: _Moves, request: Request) -> Tensor:
        moved: Tensor = _Move.apply(x, moves, self, request)  # type: ignore[no-untyped-call]
        return moved


@dataclass(frozen=True)
class _Moves:
    """sends[r]: rows [a, b) of the own tensor that go to rank r; receives[r]: rows that come from rank r."""

    sends: list[tuple[int, int]]
    receives: list[int]


class _Move(torch.autograd.Function):
    """Rows to others, theirs joined in rank order; backward, gradients return to the rows they left and add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, moves: _Moves, exchange: Exchange, request: Request) -> Tensor:
        ctx.moves, ctx.exchange, ctx.request, ctx.shape = (moves, exchange, request, x.shape)
        sends = [x[start:end] for start, end in moves.sends]
        return torch.cat(exchange.swap(sends, receives=moves.receives, request=request))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        back = Request(ctx.request.verb, ctx.request.where, backward=True)
        sizes = [end - start for start, end in ctx.moves.sends]
        parts = ctx.exchange.swap(grads[0].split(ctx.moves.receives), receives=sizes, request=back)
        grad = grads[0].new_zeros(ctx.shape)
        # In rank order, so that the bits do not depend on who was first.
        for (start, end), part in zip(ctx.moves.sends, parts, strict=True):
            grad[start:end] += part
        return grad, None, None, None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange, request: Request) -> Tensor:  # noqa: ARG004 - torch's protocol
        parts = exchange.swap([x[None]] * exchange.ranks, receives=[1] * exchange.ranks, request=request)
        total = parts[0][0].clone()
        for part in parts[1:]:
            total += part[0]
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:  # noqa: ARG004 - torch's protocol
        return grads[0], None, None


class _NoWire:
    """A group of one rank: what it sends, it receives."""

    rank, ranks = 0, 1

    def swap(self, sends: Sequence[Tensor], *, receives: Sequence[int], request: Request) -> list[Tensor]:  # noqa: ARG002
        return list(sends)


@dataclass(frozen=True, eq=False)
class Ranks:
    """The groups one rank computes in: cp shares the tokens of a pack, ep the experts of every MoE."""

    cp: Exchange
    ep: Exchange

    @classmethod
    def one(cls) -> Ranks:
        """No one to exchange with: every verb is the identity."""
        return cls(Exchange(_NoWire()), Exchange(_NoWire()))


def _overlap(a: range, b: range) -> range:
    start, stop = max(a.start, b.start), min(a.stop, b.stop)
    return range(start, max(start, stop))
