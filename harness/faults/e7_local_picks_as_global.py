"""E7: the indexer numbers the rows of its rank, the attention takes the numbers for those of the pack.

Mechanism: picks count from the rank's own first pooled row; rows of ranks before it have no number and are lost. The
first rank is right. No public report is known.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers.context import Inputs, PackContext
from v4model.layers.indexer import Indexer, Picked

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

_healthy = Indexer.forward


def _numbered_on_the_rank(indexer: Indexer, inputs: Inputs, *, context: PackContext, where: str) -> Picked:
    picked = _healthy(indexer, inputs, context=context, where=where)
    # On one rank the first row is row 0, and nothing changes.
    first = context.plan.windows(ratio=indexer.ratio)[context.plan.rank].start
    picks = torch.where(picked.picks >= first, picked.picks - first, -1)
    return Picked(picks, torch.where(picks >= 0, picked.scores, -math.inf))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, Indexer, "forward", _numbered_on_the_rank)


FAULT = Fault(
    name="E7",
    title="picks of the rank's own rows are read as rows of the pack",
    reference="no public report",
    expected="cp_matches_one_rank",
    kinds=("all", "csa"),
    apply=_apply,
    ranks=(2, 4),
)
