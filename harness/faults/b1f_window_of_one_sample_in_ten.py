"""B1f: the window of one sample in ten is clamped at the start of the stream (a variant of B1).

Mechanism: samples that start at the last token of a block of ten do not find their block's boundary. Nine packs in ten
that a test tries by hand are right to the bit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.b1_window_clamped_at_stream import clamped_at_stream
from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import own, starts_of
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_BLOCK_TOKENS = 10


def _last_of_a_block(context: PackContext) -> PackContext:
    start = own(context, starts_of(context.layout))
    return clamped_at_stream(context, start % _BLOCK_TOKENS == _BLOCK_TOKENS - 1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), _last_of_a_block)


FAULT = Fault(
    name="B1f",
    title="the local window of one sample in ten is clamped at the start of the stream",
    reference="radixark/miles#2038, in one sample in ten",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
