"""E9b: a window that ends on a cut is compressed by the ranks on both sides.

Mechanism: a rank owns the windows that end at its first token or later, or at the token before it (<= for <). Every
rank reads the row twice, and whatever lies behind it one row too early. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.shard import ShardPlan
from v4model.pack.windows import windows_of

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True)
class _BothSides(ShardPlan):
    def windows(self, *, ratio: int) -> tuple[range, ...]:
        last = windows_of(self.layout, ratio=ratio).first_token + (ratio - 1)
        owned = []
        for rows, rank in zip(super().windows(ratio=ratio), range(self.ranks), strict=True):
            ends_before = bool((last == self.bounds(rank)[0] - 1).any())
            owned.append(range(rows.start - ends_before, rows.stop))
        return tuple(owned)


def _owned_twice(context: PackContext) -> PackContext:
    return replace(context, plan=_BothSides(context.layout, context.plan.rank, context.plan.ranks))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), _owned_twice)


FAULT = Fault(
    name="E9b",
    title="a window that ends on a cut is compressed twice, and the rows behind it move",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
