"""C6: the indexer has no causal mask (huggingface/transformers#45758, #45820).

Mechanism: the candidates of a query are all rows of its sample, those behind it too; what the indexer picks, the
attention reads. Of a pack, nothing but the query's own sample is touched.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.faults.falsified import own, with_pools
from harness.faults.patching import parts, told
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.pack.visibility import PoolVisibility

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def all_of_the_sample(context: PackContext, pool: PoolVisibility) -> PoolVisibility:
    complete = own(context, context.layout.length // pool.windows.ratio)
    return replace(pool, visible=torch.where(context.sample >= 0, complete, 0))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return told(parts(subject, Indexer), lambda context: with_pools(context, all_of_the_sample))


FAULT = Fault(
    name="C6",
    title="the indexer picks among all rows of the sample, future ones too",
    reference="huggingface/transformers#45758",
    expected="query_sees_no_future",
    kinds=("all", "csa"),
    apply=_apply,
)
