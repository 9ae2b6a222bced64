"""B1g: at the fourth position of a sample, MTP depth 2 clamps the window at the start of the stream (a variant of B1).

Mechanism: B1e where only the last of three losses looks. The trunk and depth 1 are right to the bit.
In the median of 30 packs of kind `all` the loss moves by 6e-5 of itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.b1e_window_of_one_row import one_row
from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(model_of(subject).mtp[1:2], one_row)


FAULT = Fault(
    name="B1g",
    title="MTP depth 2 clamps the local window of one position at the start of the stream",
    reference="radixark/miles#2038, in one row",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
