"""C17b: rows of equal score are chosen the latest first.

Mechanism: a sort upwards, read from its end: stable, the same packed and alone, and against the rule that the lower
window wins. Shows where the ReLUs of all index heads are closed for several rows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.layers import indexer

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _latest(scores: Tensor, *, rows: Tensor, topk: int) -> Tensor:
    order = torch.sort(scores + 0.0, dim=1, stable=True).indices.flip(1)[:, :topk]
    picks = rows.gather(1, order)
    return torch.nn.functional.pad(picks, (0, topk - picks.shape[1]), value=-1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, indexer, "pick_rows", _latest)


FAULT = Fault(
    name="C17b",
    title="ties go to the later row",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("more CSA rows than top-k of one index head",),
)
