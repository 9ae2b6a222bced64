"""E6: the backward of the gather slices, and does not add.

Mechanism: of the gradient at the gathered rows each rank keeps what its own queries sent to its own rows; what the
queries of other ranks sent there is lost. Forward nothing differs (the drift of losses over training was seen to grow
from 2e-5 to 4.5e-4). No public report is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.exchange import Exchange

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Exchange.all_rows


def _sliced(exchange: Exchange, x: Tensor, *, counts: Sequence[int], where: str) -> Tensor:
    rows = _healthy(exchange, x.detach(), counts=counts, where=where)
    first = sum(counts[: exchange.rank])
    return torch.cat([rows[:first], x, rows[first + x.shape[0] :]])


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Exchange, "all_rows", _sliced)


FAULT = Fault(
    name="E6",
    title="the gather's backward keeps the own slice and adds nothing of other ranks",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
