"""C17: rows of equal score are chosen by the sort, whose choice depends on the number of columns.

Mechanism: `torch.topk` instead of a stable sort. Where every ReLU of a row is closed its score is exactly 0, and so is
that of others; which of them are kept then differs between a packed query and the same one alone, whose candidates
stand in fewer columns. Values were seen to differ by up to 4.0 with few index heads.
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


def _by_topk(scores: Tensor, *, rows: Tensor, topk: int) -> Tensor:
    best = scores.topk(min(topk, scores.shape[1]), dim=1).indices
    return torch.nn.functional.pad(rows.gather(1, best), (0, topk - best.shape[1]), value=-1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, indexer, "pick_rows", _by_topk)


FAULT = Fault(
    name="C17",
    title="ties at score 0 are broken by the shape of the scores",
    reference="torch.topk, as in huggingface/transformers 5.23",
    expected="packed_equals_alone",
    kinds=("all", "csa"),
    apply=_apply,
    strata=("more CSA rows than top-k of one index head",),
)
