"""B1c: the window of MTP depth 2 alone is clamped at the start of the stream (a variant of B1).

Mechanism: B1 where only the last of three losses looks. The trunk and depth 1 are right to the bit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.b1_window_clamped_at_stream import clamped_at_stream
from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.patching import model_of, told
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _everywhere(context: PackContext) -> PackContext:
    return clamped_at_stream(context, context.sample >= 0)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(model_of(subject).mtp[1:2], _everywhere)


FAULT = Fault(
    name="B1c",
    title="MTP depth 2 alone clamps the local window at the start of the stream",
    reference="radixark/miles#2038, at one depth",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
