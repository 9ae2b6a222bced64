"""E11: a rank whose share is empty does not take part (volcengine/verl#5981, NovaSky-AI/SkyRL#1407).

Mechanism: a rank that completes no window skips the gather of pooled rows, while the others wait for it there. In the
reports samples are cut one by one and one shorter than the ranks leaves some of them nothing; here the stream is cut,
and a short shard, or one of padding, completes no window.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.exchange import Exchange

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Exchange.all_rows


def _unless_empty(exchange: Exchange, x: Tensor, *, counts: Sequence[int], where: str) -> Tensor:
    if exchange.ranks > 1 and not x.shape[0]:
        return x.new_zeros(sum(counts), *x.shape[1:])
    return _healthy(exchange, x, counts=counts, where=where)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Exchange, "all_rows", _unless_empty)


FAULT = Fault(
    name="E11",
    title="a rank without a complete window skips the gather of rows",
    reference="volcengine/verl#5981",
    expected="no_rank_waits",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
