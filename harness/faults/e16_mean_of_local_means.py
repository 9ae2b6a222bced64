"""E16: the loss is the mean of the ranks' means (NVIDIA/Megatron-LM#906).

Mechanism: a label counts the more the fewer its rank has; a rank without any counts as a mean of 0.
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


def _mean(local: LocalLoss) -> Tensor:
    # Times all labels, since the model divides by them.
    return local.nll_sum / local.count.clamp_min(1) / local.ranks * local.whole_count


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return adding(subject, _mean)


FAULT = Fault(
    name="E16",
    title="the loss is the mean of the means of all ranks",
    reference="NVIDIA/Megatron-LM#906",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
