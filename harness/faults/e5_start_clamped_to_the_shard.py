"""E5: the start of a sample over three ranks is clamped to the rank's own first token.

Mechanism: a rank asks the one before it where the sample that reaches over the cut began. If it began earlier still,
the rank takes its own first token for the start: its queries see no local token and no window that began before. A
sample over two ranks is right. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import own, starts_of, with_pools
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _clamped(context: PackContext) -> Tensor:
    """[n] bool: own tokens whose sample began before the rank before."""
    return (context.sample >= 0) & (own(context, starts_of(context.layout)) < context.plan.start - context.plan.size)


def _local(context: PackContext) -> PackContext:
    old = context.visibility
    local_lo = torch.where(_clamped(context), old.local_lo.clamp_min(context.plan.start), old.local_lo)
    return replace(context, visibility=replace(old, local_lo=local_lo))


def _pooled(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    ratio, tokens_before = pool.windows.ratio, context.plan.start - own(context, starts_of(context.layout))
    hidden = torch.where(_clamped(context), -(-tokens_before // ratio), 0)
    return replace(pool, base=pool.base + hidden, visible=(pool.visible - hidden).clamp_min(0))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), lambda context: with_pools(_local(context), _pooled))


FAULT = Fault(
    name="E5",
    title="a sample over three ranks starts at the third rank's own first token",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(3, 4),
)
