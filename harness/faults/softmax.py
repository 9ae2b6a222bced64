"""The joint softmax of a block of queries, open to what faults of the indexer's target take out of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from harness.faults.patching import replaced
from v4model.ops import attend
from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

Mass: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""mass(picked [B, H, k], sink [B, H, 1]): of probabilities of a joint softmax, what the indexer is to learn [B, k]."""


def attend_to(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The output [B, H, d] and the probability [B, H, C + 1] of each of the rows [B, C] seen [B, C], the sink last."""
    keys = gather_rows(table, rows)
    scores = wide(q @ keys.transpose(1, 2)) * q.shape[-1] ** -0.5
    scores = torch.where(seen[:, None, :], scores, float("-inf"))
    probability = torch.softmax(torch.cat([scores, sinks[None, :, None].expand(q.shape[0], -1, 1)], dim=-1), dim=-1)
    return probability[..., :-1].to(q.dtype) @ keys, probability


def teaching(subject: Subject, mass: Mass) -> AbstractContextManager[None]:
    """The indexer's target is made of `mass`; the attention itself is right."""

    def block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
        out, probability = attend_to(q, table, sinks, rows=rows, seen=rows >= 0)
        return out, mass(probability[..., first_picked:-1], probability[..., -1:])

    return replaced(subject, attend, "_attend_block", block)
