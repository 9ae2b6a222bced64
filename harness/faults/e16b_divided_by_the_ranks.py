"""E16b: the loss is divided by the number of ranks once more (NVIDIA/Megatron-LM#906, #3959).

Mechanism: the sum over all ranks is divided by all labels, and every rank divides its share by the ranks as well.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.on_ranks import LocalLoss, adding
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _divided(local: LocalLoss) -> Tensor:
    return local.nll_sum / local.ranks


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return adding(subject, _divided)


FAULT = Fault(
    name="E16b",
    title="the loss is divided by the number of ranks once more",
    reference="NVIDIA/Megatron-LM#3959",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
