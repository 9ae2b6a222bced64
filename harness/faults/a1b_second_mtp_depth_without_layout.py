"""A1b: the layout is lost on the way to MTP depth 2 only (a variant of A1).

Mechanism: depth 1 passes the layout to its block, depth 2 does not. The trunk and depth 1 are right to the bit.
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
    return told([depth.block for depth in parts(subject, MTPDepth)[1:2]], as_one_sample)


FAULT = Fault(
    name="A1b",
    title="MTP depth 2 drops the layout, depth 1 does not",
    reference="AMD-AGI/Primus#1062, at one depth",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
