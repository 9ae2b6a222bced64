"""F5: expert ranks with different numbers of tokens are treated as equal (NVIDIA-NeMo/RL#4079).

Mechanism: no rank tells the others how many rows it sends; each expects of the others what it sends to them. On
processes that hangs or shifts rows; here the ranks disagree by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.on_meshes import replaced_on_meshes
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.exchange import Exchange, Wire
from v4model.layers.experts import Experts
from v4model.layers.router import Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Experts._on_their_ranks


class _Untold(Exchange):
    """An exchange whose first message, the numbers of rows, is never sent."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._assumed = False

    def swap_rows(self, x: Tensor, *, sends: Sequence[int], receives: Sequence[int], where: str) -> Tensor:
        if not self._assumed:
            self._assumed = True
            return x
        return super().swap_rows(x, sends=sends, receives=receives, where=where)


def _as_many_as_oneself(experts: Experts, x: Tensor, routing: Routing, *, ranks: Exchange) -> Tensor:
    return _healthy(experts, x, routing, ranks=_Untold(ranks.wire))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced_on_meshes(subject, Experts, "_on_their_ranks", _as_many_as_oneself)


FAULT = Fault(
    name="F5",
    title="expert ranks expect as many rows of the others as they send to them",
    reference="NVIDIA-NeMo/RL#4079",
    expected="ep_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
