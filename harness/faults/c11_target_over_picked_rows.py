"""C11: the indexer's target is a softmax over the picked rows alone (NVIDIA/Megatron-LM#5960, #6349).

Mechanism: each head's probabilities are renormalised over its picked rows before the heads are added, as if local
tokens and the sink took nothing. A head that looks elsewhere then counts as much as one that looks at the rows.
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


def _over_picked(picked: Tensor, _sink: Tensor) -> Tensor:
    mass = picked.sum(-1, keepdim=True)
    return torch.where(mass > 0, picked / mass, 0).detach().sum(1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return teaching(subject, _over_picked)


FAULT = Fault(
    name="C11",
    title="the KL target is renormalised over the picked rows, head by head",
    reference="NVIDIA/Megatron-LM#5960",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
