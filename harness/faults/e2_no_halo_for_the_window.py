"""E2: no halo for the local window (AMD-AGI/Primus#994).

Mechanism: a query's window begins at its rank's first token at the earliest, in every layer. Pooled rows are right.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from harness.kinds import KINDS
from v4model.layers.context import PackContext

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _within_the_shard(context: PackContext) -> PackContext:
    old = context.visibility
    return replace(context, visibility=replace(old, local_lo=old.local_lo.clamp_min(context.plan.start)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), _within_the_shard)


FAULT = Fault(
    name="E2",
    title="no halo for the local window: it ends at the shard's start",
    reference="AMD-AGI/Primus#994",
    expected="cp_matches_one_rank",
    kinds=KINDS,
    apply=_apply,
    ranks=(2, 4),
)
