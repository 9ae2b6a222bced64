"""The joint softmax in one pass over blocks of keys, with a running maximum and a running sum."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.ops import attend
from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


_KEYS = 4


def _attend_block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    keys = gather_rows(table, rows)
    scores = wide(q @ keys.transpose(1, 2)) * q.shape[-1] ** -0.5
    scores = torch.where((rows >= 0)[:, None, :], scores, float("-inf"))
    # The sink comes first, so that no maximum is ever -inf; its value is 0. The result does not depend on the maximum.
    sink = sinks.expand(q.shape[:2])
    top, total, out = sink.detach(), torch.exp(sink - sink.detach()), torch.zeros_like(q)
    for start in range(0, rows.shape[1], _KEYS):
        block, values = scores[:, :, start : start + _KEYS], keys[:, start : start + _KEYS]
        higher = torch.maximum(top, block.detach().amax(-1))
        share, kept = torch.exp(block - higher[..., None]), torch.exp(top - higher)
        total = total * kept + share.sum(-1)
        out = out * kept[..., None].to(q.dtype) + share.to(q.dtype) @ values
        top = higher
    mass = torch.exp(scores[..., first_picked:].detach() - top[..., None]) / total.detach()[..., None]
    return out / total[..., None].to(q.dtype), mass.sum(1)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (attend, "_attend_block", _attend_block))


REWRITE = Rewrite(
    name="attention_online",
    title="the joint softmax runs over blocks of keys, online",
    apply=_apply,
)
