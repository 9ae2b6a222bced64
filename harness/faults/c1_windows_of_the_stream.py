"""C1: compression windows lie at multiples of the ratio in the stream (radixark/miles#2038).

Mechanism: a window that begins before its sample pools tokens of the one before it (or padding), and the sample's
queries read the row. A sample that starts at a multiple of the ratio shows nothing.
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


def _of_the_stream(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return pool_on_the_grid(context, pool, mixed=True)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _of_the_stream))


FAULT = Fault(
    name="C1",
    title="windows follow the stream: a pooled row mixes two samples",
    reference="radixark/miles#2038",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=OFF_THE_GRID,
)
