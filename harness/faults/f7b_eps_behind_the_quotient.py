"""F7b: Sinkhorn's eps is added to the quotient instead of the sum (NVIDIA-NeMo/Automodel#2039).

Mechanism: x / sum + eps where x / (sum + eps) is meant, a millionth of each entry.
The loss moves by 4e-6 of itself at most in 30 packs of kind `all`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers import hyper

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _added_behind(x: Tensor, *, iterations: int, eps: float) -> Tensor:
    x = x / x.sum(-2, keepdim=True) + eps
    for _ in range(iterations - 1):
        x = x / x.sum(-1, keepdim=True) + eps
        x = x / x.sum(-2, keepdim=True) + eps
    return x


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, hyper, "sinkhorn", _added_behind)


FAULT = Fault(
    name="F7b",
    title="Sinkhorn adds eps to the quotient, not to the sum",
    reference="NVIDIA-NeMo/Automodel#2039",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
