"""D3: a roll fills 0, a real token id, as a label (PaddlePaddle/PaddleFleet#1808).

Mechanism: what is shifted in at the end of each sample is 0 instead of the number that means no label, and the loss
counts it where the position itself is supervised: every sample is taught to be followed by token 0.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.labels import also_labelled
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def fill_with_0(context: PackContext, steps: int) -> tuple[Tensor, Tensor]:
    """Label 0 where a sample has none, counted where the position is supervised."""
    end = (context.sample >= 0) & (context.ahead(steps) < 0)
    return torch.where(end, 0, -1), context.ahead_supervised[: len(end)]


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return also_labelled(subject, fill_with_0, at=lambda _depth: True)


FAULT = Fault(
    name="D3",
    title="where a sample has no label, the label is token 0",
    reference="PaddlePaddle/PaddleFleet#1808",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
