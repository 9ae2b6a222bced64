"""D6: MTP rolls the loss mask once more than the ids (NVIDIA/Megatron-LM#5011, review).

Mechanism: the mask handed over is one of labels already, and depth k rolls it k times as it does ids, and once more: a
label counts where the token behind it is supervised. The last token of a prompt counts, that of an answer does not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.labels import counted_at, is_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.ops.shift import shift

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _once_more(context: PackContext, steps: int) -> Tensor:
    return shift(context.ahead_supervised, source=context.ahead(steps + 1), fill=False)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return counted_at(subject, _once_more, at=is_mtp)


FAULT = Fault(
    name="D6",
    title="MTP's loss mask is rolled once more than its labels",
    reference="NVIDIA/Megatron-LM#5011",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
