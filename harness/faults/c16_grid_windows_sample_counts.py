"""C16: windows are cut on the pack's grid, visibility is counted from the sample's start.

Mechanism: of the windows on the grid that lie inside its sample, a query at position t sees the first (t + 1) // ratio.
Where the sample starts off the grid these end up to ratio - 1 tokens later than the query: it sees the future of its
own sample. No neighbour is touched. Measured in nemo_automodel 0.7.0: 3, 11 and 127 tokens at ratios 4, 16 and 128.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.corners import OFF_THE_GRID
from harness.faults.falsified import own, pool_on_the_grid, starts_of, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def counted_from_the_sample(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    grid = pool_on_the_grid(context, pool, mixed=False)
    end = own(context, starts_of(context.layout) + context.layout.length)
    inside = (end // pool.windows.ratio - grid.base).clamp_min(0)
    return replace(grid, visible=torch.minimum(pool.visible, inside))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, counted_from_the_sample))


FAULT = Fault(
    name="C16",
    title="windows on the pack's grid, visibility from the sample's start: a query sees its own future",
    reference="measured in nemo_automodel 0.7.0",
    expected="query_sees_no_future",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=OFF_THE_GRID,
)
