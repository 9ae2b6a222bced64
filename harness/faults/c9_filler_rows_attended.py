"""C9: where fewer rows than top-k are visible, rows that are not fill up the picks (NVIDIA-NeMo/Automodel#3035).

Mechanism: rows that a query may not see get score -inf, and top-k of them all returns as many as asked for: with the
visible ones come others of score -inf, the first of the pack, and nobody asks again which were masked. Where a pack has
fewer rows than top-k the reported code, without a clamp, fails; here it is clamped.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import PackContext
from v4model.layers.indexer import Indexer
from v4model.ops.pick import index_scores, pick_rows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _apply(subject: Subject) -> AbstractContextManager[None]:
    def choose(indexer: Indexer, q: Tensor, gate: Tensor, keys: Tensor, *, context: PackContext) -> Tensor:
        pool = context.visibility.pools[indexer.ratio]
        rows = torch.arange(len(keys), device=keys.device).expand(len(q), -1)
        visible = (rows >= pool.base[:, None]) & (rows < (pool.base + pool.visible)[:, None])
        with torch.no_grad():
            scores = index_scores(q, gate, keys, rows=torch.where(visible, rows, -1))
            return pick_rows(scores, rows=rows, topk=indexer.topk)

    return replaced(subject, Indexer, "_choose", choose)


FAULT = Fault(
    name="C9",
    title="rows of score -inf fill up the picks and are attended",
    reference="NVIDIA-NeMo/Automodel#3035",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
)
