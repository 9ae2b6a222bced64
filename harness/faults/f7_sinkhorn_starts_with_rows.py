"""F7: Sinkhorn starts with rows instead of columns (NVIDIA-NeMo/Automodel#2039).

Mechanism: the one normalisation before the loop is of rows, and the loop goes column, row: rows add up to 1 at the end,
columns nearly. With many iterations both orders meet.
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


def _rows_first(x: Tensor, *, iterations: int, eps: float) -> Tensor:
    x = x / (x.sum(-1, keepdim=True) + eps)
    for _ in range(iterations - 1):
        x = x / (x.sum(-2, keepdim=True) + eps)
        x = x / (x.sum(-1, keepdim=True) + eps)
    return x


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, hyper, "sinkhorn", _rows_first)


FAULT = Fault(
    name="F7",
    title="Sinkhorn normalises rows first",
    reference="NVIDIA-NeMo/Automodel#2039",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
)
