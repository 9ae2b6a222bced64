"""B1e: at one position of a sample, the fourth, the window is clamped at the start of the stream (a variant of B1).

Mechanism: B1 at an edge of a block of queries, in one row a sample; every other row of that layer is right to the bit.
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

_POSITION = 3


def one_row(context: PackContext) -> PackContext:
    """The context with the window of one position clamped at the start of the stream."""
    position = context.key_position[-context.tokens.numel() :]
    return clamped_at_stream(context, position == _POSITION)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), one_row)


FAULT = Fault(
    name="B1e",
    title="the local window of one position is clamped at the start of the stream",
    reference="radixark/miles#2038, in one row",
    expected="query_sees_only_its_sample",
    kinds=KINDS,
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
