"""C8: the indexer scores rows of other samples (radixark/miles#2038).

Mechanism: the candidates of a query are all rows of the pack up to the last complete one of its own sample; what the
indexer picks, the attention reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from harness.faults.corners import SEVERAL_SAMPLES
from harness.faults.falsified import with_pools
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _from_the_first(_context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    return PoolVisibility(pool.windows, torch.zeros_like(pool.base), pool.base + pool.visible)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), lambda context: with_pools(context, _from_the_first))


FAULT = Fault(
    name="C8",
    title="the indexer picks among the rows of all samples so far",
    reference="radixark/miles#2038",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
    strata=SEVERAL_SAMPLES,
)
