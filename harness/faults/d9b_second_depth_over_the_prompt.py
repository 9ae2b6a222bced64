"""D9b: the second MTP depth's loss runs over the prompt.

Mechanism: the mask is handed over for the first depth and not rolled for the next, which counts every label. No
padding is counted; the main loss and the first depth's are right to the bit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.labels import counted_at, is_second_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return counted_at(subject, lambda context, steps: context.ahead(steps) >= 0, at=is_second_mtp)


FAULT = Fault(
    name="D9b",
    title="the second MTP depth's loss runs over the prompt",
    reference="no public report",
    expected="labels_stay_inside",
    kinds=KINDS,
    apply=_apply,
    strata=("several MTP depths",),
)
