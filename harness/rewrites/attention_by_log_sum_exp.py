"""Probabilities are exp(score - log of the sum of exponentials), the sink in that sum alone."""

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


def _attend_block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    keys = gather_rows(table, rows)
    scores = wide(torch.einsum("bhd,bcd->bhc", q, keys)) * q.shape[-1] ** -0.5
    scores = torch.where((rows >= 0)[:, None, :], scores, float("-inf"))
    sink = sinks[None, :, None].expand(q.shape[0], -1, 1)
    probability = torch.exp(scores - torch.cat([sink, scores], dim=-1).logsumexp(-1, keepdim=True))
    out = probability.to(q.dtype) @ keys
    return out, probability[..., first_picked:].detach().sum(1)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (attend, "_attend_block", _attend_block))


REWRITE = Rewrite(
    name="attention_by_log_sum_exp",
    title="attention probabilities come from the log of their sum",
    apply=_apply,
)
