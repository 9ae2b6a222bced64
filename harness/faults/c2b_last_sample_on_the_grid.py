"""C2b: the windows of the pack's last sample alone follow the stream.

Mechanism: the list of sample starts is cut by one (`cu_seqlens[:-2]`), so that the last sample finds none to count from
and is cut at multiples of the ratio in the pack, from its first whole one on. Nothing leaks, all other samples are
right, and a pack of one sample is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.faults.corners import OFF_THE_GRID
from harness.faults.falsified import pool_from, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _last_one(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    ratio = pool.windows.ratio
    *others, last = context.layout.starts
    return pool_from(context, pool, [*others, -(-last // ratio) * ratio])


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _last_one))


FAULT = Fault(
    name="C2b",
    title="the last sample's windows follow the stream: no leak, but other rows",
    reference="no public report",
    expected="packed_equals_alone",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=OFF_THE_GRID,
)
