"""C7b: every query sees at least one row.

Mechanism: the number of visible rows is clamped to 1, so that no softmax over them is empty. The first ratio - 1
queries of each sample see its first row, and with it their future; all others are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.falsified import own, with_pools
from harness.faults.patching import told, trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _at_least_one(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    complete = own(context, context.layout.length // pool.windows.ratio)
    at_least_one = torch.minimum(pool.visible.clamp_min(1), complete)
    return replace(pool, visible=torch.where(context.sample >= 0, at_least_one, 0))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _at_least_one))


FAULT = Fault(
    name="C7b",
    title="a sample's first queries see its first row before it is complete",
    reference="no public report",
    expected="query_sees_no_future",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
