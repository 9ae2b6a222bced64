"""E8: index keys are rotated before the gather, by positions on their rank.

Mechanism: of a sample that began on an earlier rank, the first row of this rank is rotated to position 0 and the others
count on from there. Queries are rotated by their true positions, and the attention's own rows too: only the choice of
rows and the KL term move. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.falsified import with_pools
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import parts
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.pack.visibility import PoolVisibility
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


@dataclass(frozen=True, eq=False)
class _CountedOnTheRank(Windows):
    @property
    def position(self) -> Tensor:
        # Windows lie in the order of their samples, so the first row tells which sample reaches over the cut.
        earlier = torch.where(self.sample == self.sample[:1], self.index[:1], 0)
        return (self.index - earlier) * self.ratio

    def part(self, rows: range) -> Windows:
        return _counted(super().part(rows))


def _counted(windows: Windows) -> Windows:
    return _CountedOnTheRank(windows.ratio, windows.first_token, windows.index, windows.sample)


def _at_local_positions(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return replace(pool, windows=_counted(pool.windows))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(parts(subject, Indexer), lambda context: with_pools(context, _at_local_positions))


FAULT = Fault(
    name="E8",
    title="index keys are rotated by their positions on the rank",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa"),
    apply=_apply,
    ranks=(2, 4),
)
