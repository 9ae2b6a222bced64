"""C6b: the indexer has no causal mask, and the attention masks what it picked of the future.

Mechanism: top-k runs over all rows of the sample, and picks that are not complete yet are dropped behind it. No value
of the future is read, but rows of the future take the places of visible ones: which of these a query reads depends on
tokens behind it. Shows where a sample has more rows than are picked.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from harness.faults.c6_indexer_without_causal_mask import all_of_the_sample
from harness.faults.falsified import with_pools
from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Indexer, Picked

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    healthy = Indexer.forward

    def forward(indexer: Indexer, inputs: Inputs, *, context: PackContext, where: str) -> Picked:
        given = with_pools(context, all_of_the_sample)
        picked = healthy(indexer, inputs, context=given, where=where)
        pool = context.visibility.pools[indexer.ratio]
        complete = picked.picks < (pool.base + pool.visible)[:, None]
        return Picked(torch.where(complete, picked.picks, -1), torch.where(complete, picked.scores, float("-inf")))

    return replaced(subject, Indexer, "forward", forward)


FAULT = Fault(
    name="C6b",
    title="rows of the future take places among the picks and are masked behind the top-k",
    reference="no public report",
    expected="query_sees_no_future",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("more CSA rows than top-k",),
)
