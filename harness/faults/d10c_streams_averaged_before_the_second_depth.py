"""D10c: the residual streams are averaged before the second MTP depth.

Mechanism: that of D10 between depths alone: the first starts from the trunk's streams, and hands on their mean. The
main loss and the first depth's are right to the bit.

Measured on packs of 60 to 200 tokens: the total loss moves by 5e-5 (median), 5e-4 at most.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.d10_streams_averaged_before_mtp import averaged
from harness.faults.patching import given, model_of
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return given(model_of(subject).mtp[1:2], averaged)


FAULT = Fault(
    name="D10c",
    title="the residual streams are averaged between MTP depths",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=KINDS,
    apply=_apply,
    strata=("several MTP depths",),
)
