"""E3: the halo for the overlap is missing at a shard's start.

Mechanism: a window that began on the rank before is read whole, but of the window before it, whose half the same row
pools too, only what lies on this rank; slots before the shard count as absent, as before a sample's first window. No
public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import with_pools
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True, eq=False)
class _CutOff(Windows):
    start: int
    """First token of which an earlier window's half may be read."""

    def slots(self, *, back: int = 0) -> Tensor:
        slots = super().slots(back=back)
        return torch.where(slots >= self.start, slots, -1) if back else slots

    def part(self, rows: range) -> Windows:
        return _cut_off(super().part(rows), start=self.start)

    def starting_at(self, token: int) -> Windows:
        return _cut_off(super().starting_at(token), start=self.start - token)


def _cut_off(windows: Windows, *, start: int) -> Windows:
    return _CutOff(windows.ratio, windows.first_token, windows.index, windows.sample, start)


def _without_halo(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return replace(pool, windows=_cut_off(pool.windows, start=context.plan.start))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), lambda context: with_pools(context, _without_halo))


FAULT = Fault(
    name="E3",
    title="a pooled row's overlap half ends at the shard's start",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa"),
    apply=_apply,
    ranks=(2, 4),
)
