"""F5b: expert ranks exchange buffers of one size, and what does not fit is lost (a variant of F5, NVIDIA-NeMo/RL#4079).

Mechanism: every rank sends every other the same number of rows, its choices by the number of ranks. Choices beyond that
fall out behind the buffer's end; nothing hangs, and every shape is right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.capacity import first_come, kept
from harness.faults.on_meshes import replaced_on_meshes
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.exchange import Exchange
from v4model.layers.experts import Experts
from v4model.layers.router import Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Experts._on_their_ranks


def _equal_buffers(experts: Experts, x: Tensor, routing: Routing, *, ranks: Exchange) -> Tensor:
    rank = routing.experts // (experts.num_experts // ranks.ranks)
    fits = first_come(rank, count=ranks.ranks, room=-(-rank.numel() // ranks.ranks))
    return _healthy(experts, x, kept(routing, fits), ranks=ranks)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced_on_meshes(subject, Experts, "_on_their_ranks", _equal_buffers)


FAULT = Fault(
    name="F5b",
    title="expert ranks exchange buffers of one size and lose what does not fit",
    reference="NVIDIA-NeMo/RL#4079",
    expected="ep_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
