"""D12c: the trunk's label crosses the last boundary of the pack alone.

Mechanism: that of D12 (NVIDIA/Megatron-LM#5682) where ends are masked in a loop over `cu_seqlens[1:-2]`: the last
token but one sample predicts the first of the last. One label of a pack is wrong.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import ahead_in_pack
from harness.faults.labels import labelled
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model import PackLayout

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _over_the_last(layout: PackLayout, steps: int) -> Tensor:
    before_the_last = layout.sample == layout.num_samples - 2
    return torch.where(before_the_last, ahead_in_pack(layout, steps), layout.ahead(steps))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return labelled(subject, _over_the_last, trunk=True)


FAULT = Fault(
    name="D12c",
    title="the trunk's label crosses the last boundary of the pack",
    reference="NVIDIA/Megatron-LM#5682",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=(
        "no padding",
        "padding at the tail alone",
    ),
)
