"""C7d: a sample whose length is a multiple of the ratio has no row of its last window.

Mechanism: windows begin at `range(0, length - ratio, ratio)`, which ends one too early where no remainder follows. Only
the sample's last token sees that row, and it has no label: every loss of a head is right.

Measured on packs of 60 to 200 tokens: the main loss does not move, the total by 2e-8 (median), 2e-6 at most.
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


def _one_less(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    kept = own(context, (context.layout.length - 1) // pool.windows.ratio)
    return replace(pool, visible=torch.minimum(pool.visible, kept.clamp_min(0)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(trunk_and_mtp(subject), lambda context: with_pools(context, _one_less))


FAULT = Fault(
    name="C7d",
    title="the last window of a sample without a remainder is lost",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    strata=(
        "length a multiple of the CSA ratio",
        "length a multiple of the HCA ratio",
    ),
)
