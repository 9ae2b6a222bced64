"""C12d: the KL term is scaled once more on its way back (a variant of C12; no public report).

Mechanism: the value is right, and a scaler that hangs the term on another tensor's gradient is passed through twice, so
that the indexer learns at twice the rate. Every forward value is the same, and so is what packed and alone give.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.attention import base
from v4model.ops.pick import picks_divergence

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _twice(scores: Tensor, mass: Tensor, *, picks: Tensor) -> Tensor:
    divergence = picks_divergence(scores, mass, picks=picks)
    return 2 * divergence - divergence.detach()


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, base, "picks_divergence", _twice)


FAULT = Fault(
    name="C12d",
    title="the KL term is scaled twice on its way back to the indexer",
    reference="no public report",
    expected="gradients_are_derivatives",
    kinds=("all", "csa"),
    apply=_apply,
)
