"""C8b: the indexer's candidates begin one row before the sample's first.

Mechanism: the sum over samples that gives each its first row is inclusive in one place and exclusive in the other. One
row of the neighbour stands among the candidates, and is read where its score is high enough or few others are there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import with_pools
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _one_earlier(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    earlier = ((pool.base > 0) & (pool.visible > 0)).to(pool.base.dtype)
    return replace(pool, base=pool.base - earlier, visible=pool.visible + earlier)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), lambda context: with_pools(context, _one_earlier))


FAULT = Fault(
    name="C8b",
    title="the last row of the sample before is among the indexer's candidates",
    reference="no public report",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
