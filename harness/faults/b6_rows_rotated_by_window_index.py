"""B6: pooled rows are rotated by the index of their window, not by index x ratio.

Mechanism: positions of the compressed sequence stand where those of tokens are meant. Right where a sample has one
window, and alone as wrong as in a pack. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor

from harness.faults.corners import SEVERAL_WINDOWS
from harness.faults.falsified import with_pool_positions
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _index(_context: PackContext, windows: Windows) -> Tensor:
    return windows.index


def by_window_index(context: PackContext) -> PackContext:
    """The context with pooled rows rotated by the number of their window in the sample."""
    return with_pool_positions(context, _index)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), by_window_index)


FAULT = Fault(
    name="B6",
    title="pooled rows are rotated by window index instead of index x ratio",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=SEVERAL_WINDOWS,
)
