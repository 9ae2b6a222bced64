"""E14b: the gradient at a halo is sent back, and lost on rank 0.

Mechanism: rank 0 has no halo of its own and leaves out what belongs to it, the sum over what it lent included. Every
other rank is right. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.exchange import Exchange
from v4model.pack.shard import ShardPlan

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Exchange.left_halo


def _lost_on_rank_0(exchange: Exchange, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
    lent = x.view_as(x)
    if exchange.rank == 0 and lent.requires_grad:
        # Rank 0 still takes part in the backward exchange; it only drops what comes.
        lent.register_hook(torch.zeros_like)
    joined = _healthy(exchange, lent, rows=rows, plan=plan, where=where)
    return torch.cat([joined[: joined.shape[0] - x.shape[0]], x])


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Exchange, "left_halo", _lost_on_rank_0)


FAULT = Fault(
    name="E14b",
    title="the gradient at a halo is lost on rank 0",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
