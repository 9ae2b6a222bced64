"""The softmax over an overlapping window takes its own slots first and its predecessor's behind them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers import compressor
from v4model.ops.pool import gather_rows
from v4model.ops.precision import wide
from v4model.pack.windows import Windows

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _pooled(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    width = kv.shape[1] // 2
    now, before = windows.slots(), windows.slots(back=1)
    gate_now = wide(gather_rows(gate[:, width:], now)) + position_bias[:, width:]
    gate_before = wide(gather_rows(gate[:, :width], before)) + position_bias[:, :width]
    gate_before = torch.where((before >= 0)[..., None], gate_before, float("-inf"))
    weight = torch.softmax(torch.cat([gate_now, gate_before], dim=1), dim=1)
    values = torch.cat([gather_rows(kv[:, width:], now), gather_rows(kv[:, :width], before)], dim=1)
    return (weight * values).sum(1).to(kv.dtype)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (compressor, "pool_overlapping_windows", _pooled))


REWRITE = Rewrite(
    name="overlap_halves_swapped",
    title="an overlapping window's own slots come before its predecessor's",
    apply=_apply,
    kinds=("all", "csa"),
)
