"""E15: a rank on which nothing is supervised divides 0 by 0 (NVIDIA/Megatron-LM#673, #1764).

Mechanism: every rank takes the mean over its own labels, and weighs it by their number. Without any that is NaN, and
so is the sum over the ranks.
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


def _weighted_mean(local: LocalLoss) -> Tensor:
    return local.nll_sum / local.count * local.count


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return adding(subject, _weighted_mean)


FAULT = Fault(
    name="E15",
    title="a rank without a supervised label divides 0 by 0",
    reference="NVIDIA/Megatron-LM#673",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
