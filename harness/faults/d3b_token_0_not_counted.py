"""D3b: a roll fills 0 as a label, and a mask keeps it out of the loss.

Mechanism: that of D3 behind a loss mask that is rolled rightly. Every loss is right to the bit; who reads the nll of
each token (to weigh samples, to report perplexity) reads one too many a sample and depth.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.d3_roll_fills_token_0 import fill_with_0
from harness.faults.labels import also_labelled
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _uncounted(context: PackContext, steps: int) -> tuple[Tensor, Tensor]:
    labels, counted = fill_with_0(context, steps)
    return labels, torch.zeros_like(counted)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return also_labelled(subject, _uncounted, at=lambda _depth: True)


FAULT = Fault(
    name="D3b",
    title="where a sample has no label, each token's nll is that of token 0",
    reference="no public report",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
