"""C7c: a row becomes visible one token after its window is complete.

Mechanism: t // ratio where (t + 1) // ratio is meant, the other way to be off by one: the last token of each window
does not see its row. Nothing leaks, and a sample alone is as wrong as packed.
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


def _one_late(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    late = own(context, context.layout.position // pool.windows.ratio)
    return replace(pool, visible=torch.where(context.sample >= 0, late, 0))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _one_late))


FAULT = Fault(
    name="C7c",
    title="a query does not see the row whose window it completes",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
)
