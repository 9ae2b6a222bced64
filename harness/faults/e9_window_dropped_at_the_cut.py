"""E9: a window with a cut inside is dropped.

Mechanism: every rank compresses the windows that lie in its shard as a whole; all count the rows alike, there are fewer
than on one rank. No public report is known.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from harness.faults.falsified import with_pools
from harness.faults.on_ranks import told_on_ranks
from harness.faults.patching import trunk_and_mtp
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.pack.visibility import PoolVisibility
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _uncut(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    old, size = pool.windows, context.plan.size
    kept = old.first_token // size == (old.first_token + old.ratio - 1) // size
    windows = Windows(old.ratio, old.first_token[kept], old.index[kept], old.sample[kept])
    before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    base = before[pool.base]
    return PoolVisibility(windows, base, before[pool.base + pool.visible] - base)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told_on_ranks(trunk_and_mtp(subject), lambda context: with_pools(context, _uncut))


FAULT = Fault(
    name="E9",
    title="a window with a cut inside is compressed by no rank",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa", "hca"),
    apply=_apply,
    ranks=(2, 4),
)
