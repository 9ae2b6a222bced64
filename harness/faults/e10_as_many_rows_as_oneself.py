"""E10: a rank expects of all others as many rows as it has itself.

Mechanism: a gather of equal shares, where ranks complete different numbers of windows. Among processes that is a hang,
or rows shifted without a word. No public report is known.
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


def _equal_shares(exchange: Exchange, x: Tensor, *, counts: Sequence[int], where: str) -> Tensor:
    return _healthy(exchange, x, counts=[x.shape[0]] * len(counts), where=where)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Exchange, "all_rows", _equal_shares)


FAULT = Fault(
    name="E10",
    title="ranks gather as many rows of every other as they have themselves",
    reference="no public report",
    expected="no_rank_waits",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
