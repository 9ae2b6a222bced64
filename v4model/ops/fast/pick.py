"""The fast twin of `v4model.layers.indexer.choose_rows`: [tokens, windows] of scores at a time, never times heads."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from v4model.ops.fast.kernels import pick as kernels
from v4model.ops.fast.tuning import SCORE
from v4model.pack.visibility import PoolVisibility

SCORES_AT_ONCE = 1 << 27
"""Scores that exist at once: 512 MiB in float32, which is all tokens of a block up to 16,384 windows."""

_LARGEST_ROW = 65536
"""Columns that a program keeps in its registers; longer rows are read again for every bit."""


def choose_rows(
    q: Tensor,
    gate: Tensor,
    keys: Tensor,
    *,
    visible: PoolVisibility,
    topk: int,
    block_tokens: int,  # noqa: ARG001 - bounds the memory of the plain twin
) -> Tensor:
    """As the plain twin. Scores are sums in float32 in another order, so near-ties may fall otherwise; ties do not."""
    tokens, heads, width = q.shape
    picks = torch.empty(tokens, topk, dtype=torch.int32, device=q.device)
    picked = torch.empty(tokens, topk, dtype=torch.float32, device=q.device)
    q, gate, keys = q.contiguous(), gate.contiguous(), keys.contiguous()
    columns = max(keys.shape[0], 1)
    # A power of two, so that few variants of the kernel are compiled.
    block = min(max(triton.next_power_of_2(columns), triton.next_power_of_2(topk), 128), _LARGEST_ROW)
    step = min(max(SCORES_AT_ONCE // columns, 1), max(tokens, 1))
    scores = torch.empty(step, columns, dtype=torch.float32, device=q.device)
    tile_t, tile_w = (SCORE.split, SCORE.rows) if q.dtype != torch.float32 else (32, 32)
    for first in range(0, tokens, step):
        part = min(step, tokens - first)
        if keys.shape[0]:
            kernels.score[triton.cdiv(part, tile_t), triton.cdiv(keys.shape[0], tile_w)](
                q, gate, keys, visible.base, visible.visible, scores, first, part, keys.shape[0], columns, heads,
                WIDTH=width, BLOCK_T=tile_t, BLOCK_W=tile_w, BLOCK_D=max(triton.next_power_of_2(width), 16), 
                STAGES=SCORE.stages, num_warps=SCORE.warps,
            )  # fmt: skip
        kernels.best[part,](
            scores, visible.base, visible.visible, picks, picked, first, columns,
            TOPK=topk, BLOCK_K=triton.next_power_of_2(topk), BLOCK=block, PART=min(block, 2048),
            ONE_BLOCK=columns <= _LARGEST_ROW, num_warps=min(max(block // 2048, 4), 16),
        )  # fmt: skip
    # Best first. They stand by row, so that a stable sort leaves equal scores with the lower row first.
    order = torch.sort(picked, dim=1, descending=True, stable=True).indices
    return picks.gather(1, order).to(torch.int64)
