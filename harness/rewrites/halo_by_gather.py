"""A halo is cut out of the tokens of all ranks, which every rank gathers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.exchange import Exchange
from v4model.pack.shard import ShardPlan

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _all(exchange: Exchange, x: Tensor, *, plan: ShardPlan, where: str) -> Tensor:
    return exchange.all_rows(x, counts=[plan.size] * plan.ranks, where=where)


def _left(exchange: Exchange, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
    return _all(exchange, x, plan=plan, where=where)[plan.left(rows).start : plan.end]


def _right(exchange: Exchange, x: Tensor, *, rows: int, plan: ShardPlan, where: str) -> Tensor:
    return _all(exchange, x, plan=plan, where=where)[plan.start : plan.right(rows).stop]


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Exchange, "left_halo", _left), (Exchange, "right_halo", _right))


REWRITE = Rewrite(
    name="halo_by_gather",
    title="halos are cut out of what every rank gathers",
    apply=_apply,
    ranks=(2, 4),
)
