"""C11b: the indexer's target leaves the sink out (NVIDIA/Megatron-LM#5960, #6349).

Mechanism: the target is taken from the logits of local tokens and picked rows, the sink joins in the attention's kernel
only. Heads with much mass in their sink count for more than they should.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.registry import Fault
from harness.faults.softmax import teaching

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _without_the_sink(picked: Tensor, sink: Tensor) -> Tensor:
    rest = 1 - sink
    return torch.where(rest > 0, picked / rest, 0).detach().sum(1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return teaching(subject, _without_the_sink)


FAULT = Fault(
    name="C11b",
    title="the KL target ignores the sink's mass",
    reference="NVIDIA/Megatron-LM#6349",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
