"""Compression of token windows to pooled rows (CSA 2.3.1 eq. 9-12, HCA 2.3.2 eq. 20-23)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from v4model.ops.precision import wide
from v4model.ops.twins import has_fast_twin
from v4model.pack.windows import Windows


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows] for rows [...] into x [N, d]; a row of -1 is zeros and sends no gradient.

    A zero row is appended and read instead, so that nothing of a real row (a NaN, say) comes through, also backward.
    """
    padded = torch.cat([x, x.new_zeros(1, x.shape[1])])
    # An embedding's backward pass leaves its padding row out; indexing would add all of them up there one by one.
    return F.embedding(torch.where(rows >= 0, rows, x.shape[0]), padded, padding_idx=x.shape[0])


@has_fast_twin("pool")
def pool_windows(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    """HCA: per-channel softmax over a window's slots of (gate + bias), weighted sum of kv.

    Args:
        kv, gate: [T, d]; position_bias: [ratio, d].

    Returns:
        [W, d].
    """
    slots = windows.slots()
    weight = torch.softmax(wide(gather_rows(gate, slots)) + position_bias, dim=1)
    return (weight * gather_rows(kv, slots)).sum(1).to(kv.dtype)


@has_fast_twin("pool")
def pool_overlapping_windows(kv: Tensor, gate: Tensor, position_bias: Tensor, *, windows: Windows) -> Tensor:
    """CSA: row w pools 2 * ratio slots, the first half-projection of window w-1 and the second of window w.

    The first window of a sample has no predecessor: those slots have gate -inf, weight exactly 0.

    Args:
        kv, gate: [T, 2d]; position_bias: [ratio, 2d], by slot in the token's own window.

    Returns:
        [W, d].
    """
    width = kv.shape[1] // 2
    now, before = windows.slots(), windows.slots(back=1)
    gate_now = wide(gather_rows(gate[:, width:], now)) + position_bias[:, width:]
    gate_before = wide(gather_rows(gate[:, :width], before)) + position_bias[:, :width]
    gate_before = torch.where((before >= 0)[..., None], gate_before, float("-inf"))
    weight = torch.softmax(torch.cat([gate_before, gate_now], dim=1), dim=1)
    values = torch.cat([gather_rows(kv[:, :width], before), gather_rows(kv[:, width:], now)], dim=1)
    return (weight * values).sum(1).to(kv.dtype)
