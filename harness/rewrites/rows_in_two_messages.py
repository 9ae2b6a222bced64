"""Whatever rows ranks exchange travels in two messages, the first half of each rank's and the rest."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.exchange import Exchange, Request, _Moves

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_healthy = Exchange._move


def _in_two(exchange: Exchange, x: Tensor, moves: _Moves, request: Request) -> Tensor:
    middles = [(start + end) // 2 for start, end in moves.sends]
    halves = [count // 2 for count in moves.receives]
    rests = [count - half for count, half in zip(moves.receives, halves, strict=True)]
    first = _Moves([(start, middle) for (start, _), middle in zip(moves.sends, middles, strict=True)], halves)
    second = _Moves([(middle, end) for (_, end), middle in zip(moves.sends, middles, strict=True)], rests)
    came = _healthy(exchange, x, first, request).split(halves), _healthy(exchange, x, second, request).split(rests)
    return torch.cat([part for of_rank in zip(*came, strict=True) for part in of_rank])


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Exchange, "_move", _in_two))


REWRITE = Rewrite(
    name="rows_in_two_messages",
    title="rows travel between ranks in two messages",
    apply=_apply,
    ranks=(2, 4),
)
