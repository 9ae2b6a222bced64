"""F11: experts have a capacity, and neighbours decide which of a sample's tokens they keep.

Mechanism: an expert takes the first tokens of the stream that choose it, as many as an even spread would give it; to
later ones it adds nothing. On ranks, each has its own stream. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.capacity import first_come, kept
from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.exchange import Exchange
from v4model.layers.experts import Experts
from v4model.layers.router import Routing

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Experts.forward


def _within_capacity(
    experts: Experts, x: Tensor, routing: Routing, *, ranks: Exchange, recompute: bool = False
) -> Tensor:
    chosen, count = routing.experts, experts.num_experts
    fits = first_come(chosen, count=count, room=-(-chosen.numel() // count))
    return _healthy(experts, x, kept(routing, fits), ranks=ranks, recompute=recompute)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Experts, "forward", _within_capacity)


FAULT = Fault(
    name="F11",
    title="experts have a capacity: neighbours decide which of a sample's tokens they keep",
    reference="no public report",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
