"""C9c: where fewer rows than top-k are visible, rows of zeros fill up the softmax.

Mechanism: picks that are none read a row of zeros, as they should, and are not masked: each has score 0 and takes its
share of the softmax. Outputs shrink, most of all where few rows are visible; a sample alone is as wrong as packed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from harness.faults.softmax import attend_to
from v4model.ops import attend

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    picked = torch.arange(rows.shape[1], device=rows.device) >= first_picked
    out, probability = attend_to(q, table, sinks, rows=rows, seen=picked | (rows >= 0))
    return out, probability[..., first_picked:-1].detach().sum(1)


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, attend, "_attend_block", _block)


FAULT = Fault(
    name="C9c",
    title="picks that are none are rows of zeros that take a share of the softmax",
    reference="no public report",
    expected="matches_plain_reading",
    kinds=("all", "csa"),
    apply=_apply,
)
