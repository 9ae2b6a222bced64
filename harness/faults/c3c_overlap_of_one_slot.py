"""C3c: one slot of a sample's first window comes from the previous sample.

Mechanism: the mask of the overlap half compares with `>=` where `>` is meant, so that of the four tokens before a
sample the nearest one passes. A single token of the neighbour, in one row of each sample.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import reaching, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_slot(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    start = pool.windows.first_token - pool.windows.position
    return replace(pool, windows=reaching(pool.windows, (start - 1).clamp_min(0)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _one_slot))


FAULT = Fault(
    name="C3c",
    title="one slot of a first window's overlap half is the token before the sample",
    reference="no public report",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
