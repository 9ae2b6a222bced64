"""C15: gathered rows are used as dense keys: every query reads every query's rows.

Mechanism: the rows picked by the queries of a block are gathered to [B * k, d] and handed to an attention without a
query axis in its keys. Each query reads the picks of all, of its own and other samples, past and future. Found while
porting to nemo_automodel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.faults.patching import replaced
from harness.faults.registry import Fault
from v4model.ops import attend
from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _block(q: Tensor, table: Tensor, sinks: Tensor, *, rows: Tensor, first_picked: int) -> tuple[Tensor, Tensor]:
    queries, local, picked = q.shape[0], rows[:, :first_picked], rows[:, first_picked:]
    near, dense = gather_rows(table, local), gather_rows(table, picked.flatten())
    scores = wide(torch.cat([q @ near.transpose(1, 2), q @ dense.T], dim=-1)) * q.shape[-1] ** -0.5
    seen = torch.cat([local, picked.reshape(1, -1).expand(queries, -1)], dim=1) >= 0
    scores = torch.where(seen[:, None, :], scores, float("-inf"))
    scores = torch.cat([scores, sinks[None, :, None].expand(queries, -1, 1)], dim=-1)
    probability = torch.softmax(scores, dim=-1)[..., :-1]
    of_local, of_dense = probability.to(q.dtype).split([first_picked, picked.numel()], dim=-1)
    mass = probability[..., first_picked:].detach().unflatten(-1, picked.shape).sum(1)
    return of_local @ near + of_dense @ dense, mass[torch.arange(queries), torch.arange(queries)]


def _apply(subject: Subject) -> AbstractContextManager[None]:
    return replaced(subject, attend, "_attend_block", _block)


FAULT = Fault(
    name="C15",
    title="the picks of all queries are keys of each",
    reference="found while porting to NVIDIA-NeMo/Automodel",
    expected="query_sees_only_its_sample",
    kinds=("all", "csa"),
    apply=_apply,
)
