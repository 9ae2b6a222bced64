"""F8: SwiGLU is clamped behind the product instead of before it.

Mechanism: gate and up are multiplied as they come, and only the product is kept within the limit. No public report is
known.
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


def _behind(gate: Tensor, up: Tensor, *, limit: float) -> Tensor:
    return (F.silu(gate) * up).clamp(-limit, limit)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, experts, "clamped_swiglu", _behind)


FAULT = Fault(
    name="F8",
    title="experts clamp behind the product instead of before it",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
