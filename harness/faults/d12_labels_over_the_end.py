"""D12: labels are shifted over the sample's end (NVIDIA/Megatron-LM#5682).

Mechanism: the trunk's labels are the next tokens of the pack: the last position of a sample is to predict the first
token of the next one, and is counted where that token is supervised.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import ahead_in_pack
from harness.faults.labels import labelled
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return labelled(subject, ahead_in_pack, trunk=True)


FAULT = Fault(
    name="D12",
    title="the trunk's labels are shifted over the end of a sample",
    reference="NVIDIA/Megatron-LM#5682",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
