"""Sums over the tokens that picked a row, in the tokens' order: the same bits every time, without atomics."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import attend_keys as kernels
from v4model.ops.fast.tuning import SUM


def add_by_row(sent: Tensor, rows: Tensor, *, to: Tensor) -> None:
    """to[r] += sum of sent[t, k] wherever rows[t, k] is r.

    Args:
        sent: [n, k, width], read only where there is a row; rows: [n, k], -1 where none; to: [R, width] float32.
    """
    if not to.numel() or not sent.numel():
        return
    width = to.shape[1]
    # Stable: a row's contributions stand in the order of their tokens.
    by_row, entry = torch.sort(rows.flatten().to(torch.int32), stable=True)
    bound = torch.searchsorted(by_row, torch.arange(to.shape[0] + 1, device=to.device, dtype=by_row.dtype))
    block_c = min(max(int(triton.next_power_of_2(width)), 16), SUM.channels)
    kernels.sum_by_row[to.shape[0], triton.cdiv(width, block_c)](
        sent, entry, bound, to, WIDTH=width, BLOCK_E=SUM.rows, BLOCK_C=block_c, STAGES=SUM.stages, num_warps=SUM.warps
    )
