"""A1: the MTP layer takes the pack descriptor and does not pass it on (AMD-AGI/Primus#1062).

Mechanism: the block of every MTP depth knows the pack as one sample: local window, pooled windows, positions and router
statistics run from the first token to the last. The shifted embeddings are the right ones, and the loss stays finite.
The same effect was measured in nemo_automodel 0.7.0.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import as_one_sample
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.model.mtp import MTPDepth

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told([depth.block for depth in parts(subject, MTPDepth)], as_one_sample)


FAULT = Fault(
    name="A1",
    title="the MTP layer drops the layout: its block sees the whole pack as one sample",
    reference="AMD-AGI/Primus#1062",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
