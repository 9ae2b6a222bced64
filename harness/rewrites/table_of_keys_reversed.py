"""The table of keys and pooled rows is stored from its last row on, and what is read renumbered."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.ops import attend
from v4model.ops.attend import _attend_block

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _renumbered(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    renumbered = torch.where(rows >= 0, table.shape[0] - 1 - rows, -1)
    return _attend_block(q, table.flip(0), sinks, rows=renumbered, first_picked=first_picked)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (attend, "_attend_block", _renumbered))


REWRITE = Rewrite(
    name="table_of_keys_reversed",
    title="keys and pooled rows lie in another order, and picks are renumbered",
    apply=_apply,
)
