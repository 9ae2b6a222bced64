"""E14: the gradient at a halo is not sent back to the rank that lent it.

Mechanism: forward the rows travel as ever; backward they are constants, those of the local window and of windows in
front of the shard, and the embeddings that MTP reads behind it. No public report is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

_healthy_left, _healthy_right = Exchange.left_halo, Exchange.right_halo


def _left(exchange: Exchange, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
    joined = _healthy_left(exchange, x.detach(), rows=rows, plan=plan, where=where)
    return torch.cat([joined[: joined.shape[0] - x.shape[0]], x])


def _right(exchange: Exchange, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
    joined = _healthy_right(exchange, x.detach(), rows=rows, plan=plan, where=where)
    return torch.cat([x, joined[x.shape[0] :]])


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    with replaced(subject, Exchange, "left_halo", _left), replaced(subject, Exchange, "right_halo", _right):
        yield


FAULT = Fault(
    name="E14",
    title="the gradient at a halo is not sent back",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
