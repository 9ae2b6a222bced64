"""D12b: labels are not shifted at all (NVIDIA/Megatron-LM#5682).

Mechanism: the trunk is to predict the token it stands on, which it can read. The loss falls faster than it should and
nothing crosses a boundary; samples alone are as wrong as packed ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.labels import labelled
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return labelled(subject, lambda layout, _steps: layout.ahead(0), trunk=True)


FAULT = Fault(
    name="D12b",
    title="the trunk's labels are not shifted",
    reference="NVIDIA/Megatron-LM#5682",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
)
