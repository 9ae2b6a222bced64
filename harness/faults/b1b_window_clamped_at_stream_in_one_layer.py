"""B1b: the window of the trunk's last layer alone is clamped at the start of the stream (a variant of B1).

Mechanism: one layer has an attention of its own, with a mask of its own. All layers before it are right, and MTP's.
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
    *_, last = model_of(subject).trunk.layers.values()
    return told([last], _everywhere)


FAULT = Fault(
    name="B1b",
    title="the last trunk layer alone clamps the local window at the start of the stream",
    reference="radixark/miles#2038, in one layer",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
