"""F8b: SwiGLU is not clamped at all.

Mechanism: the limit is read from the configuration and never used. Activations that stay within it, as those of a
freshly initialised model do, hide it. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers import experts

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _unclamped(gate: Tensor, up: Tensor, *, limit: float) -> Tensor:  # noqa: ARG001
    return F.silu(gate) * up


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, experts, "clamped_swiglu", _unclamped)


FAULT = Fault(
    name="F8b",
    title="experts do not clamp",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
