"""B1d: the window of the pack's last sample alone is clamped at the start of the stream (a variant of B1).

Mechanism: a start that is looked up by the next boundary has none for the last sample, and 0 is what is left. All
other samples are right to the bit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.b1_window_clamped_at_stream import clamped_at_stream
from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _last_sample(context: PackContext) -> PackContext:
    return clamped_at_stream(context, context.sample == context.layout.num_samples - 1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _last_sample)


FAULT = Fault(
    name="B1d",
    title="the last sample's local window is clamped at the start of the stream",
    reference="radixark/miles#2038, in one sample",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
