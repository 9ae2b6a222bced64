"""B2: positions are an arange over the pack (radixark/miles#2038, pytorch/torchtitan#2559, LLaMA-Factory#7318).

Mechanism: queries and local keys are rotated by their index in the pack; pooled rows keep the positions of their
windows in the sample. Rotations are relative, so an offset that queries and keys share cancels: a model of dense layers
alone computes the right thing and cannot show the defect.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import counted_over_the_pack
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), counted_over_the_pack)


FAULT = Fault(
    name="B2",
    title="positions count on over the pack instead of restarting in each sample",
    reference="radixark/miles#2038",
    expected="packed_equals_alone",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
