"""D9: MTP's loss runs over prompt and padding (NVIDIA-NeMo/Megatron-Bridge#6103: 15.8 against 4.42).

Mechanism: the loss mask does not reach MTP: every position of a sample counts, supervised or not, and so does padding,
which is labelled with the pad id. The sum is divided by the supervised labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.labels import also_labelled, counted_at, is_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _padding(context: PackContext, _steps: int) -> tuple[Tensor, Tensor]:
    padding = context.sample < 0
    return torch.where(padding, 0, -1), padding


@contextmanager
def _apply(subject: Subject) -> Iterator[None]:
    prompt = counted_at(subject, lambda context, steps: context.ahead(steps) >= 0, at=is_mtp)
    with prompt, also_labelled(subject, _padding, at=is_mtp):
        yield


FAULT = Fault(
    name="D9",
    title="MTP's loss runs over prompt and padding",
    reference="NVIDIA-NeMo/Megatron-Bridge#6103",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
