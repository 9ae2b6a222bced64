"""C2: windows follow the stream, and those that mix two samples are masked (measured in nemo_automodel 0.7.0).

Mechanism: nothing leaks, but a sample that starts off a multiple of the ratio is cut at other places than alone and has
other rows (27 of 30 of them in the measured pack).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import OFF_THE_GRID
from harness.faults.falsified import pool_on_the_grid, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _whole_ones(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return pool_on_the_grid(context, pool, mixed=False)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _whole_ones))


FAULT = Fault(
    name="C2",
    title="windows follow the stream and mixed ones are masked: no leak, but other rows",
    reference="measured in nemo_automodel 0.7.0",
    expected="order_and_offset_change_nothing",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=OFF_THE_GRID,
)
