"""C9b: where fewer rows than top-k are visible, the last pick is repeated.

Mechanism: the list of picks is filled up to top-k with its own last entry, which is valid everywhere: nothing leaks.
But the softmax counts that row as often as it stands there. A sample alone is as wrong as packed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers import indexer
from v4model.ops.pick import pick_rows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _repeated(scores: Tensor, *, rows: Tensor, topk: int) -> Tensor:
    picks = pick_rows(scores, rows=rows, topk=topk)
    last = (picks >= 0).sum(1, keepdim=True) - 1
    return torch.where(picks >= 0, picks, picks.gather(1, last.clamp_min(0)))


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, indexer, "pick_rows", _repeated)


FAULT = Fault(
    name="C9b",
    title="the last pick fills up the list, and the softmax counts it again and again",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
