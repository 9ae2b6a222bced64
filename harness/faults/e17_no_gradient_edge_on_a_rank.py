"""E17: parameters have no gradient edge on some rank (NVIDIA/Megatron-LM#5643).

Mechanism: a rank that adds no row to the gather takes the rows of others for constants. Forward nothing differs; in the
backward pass it does not return what it owes them, and they wait for it.
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


def _constant_without_own(exchange: Exchange, x: Tensor, *, counts: Sequence[int], where: str) -> Tensor:
    rows = _healthy(exchange, x, counts=counts, where=where)
    return rows if exchange.ranks == 1 or x.shape[0] else rows.detach()


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Exchange, "all_rows", _constant_without_own)


FAULT = Fault(
    name="E17",
    title="a rank without own rows takes those of others for constants, and skips the exchange backward",
    reference="NVIDIA/Megatron-LM#5643",
    expected="no_rank_waits",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
